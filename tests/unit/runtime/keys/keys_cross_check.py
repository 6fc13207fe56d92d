#!/usr/bin/env python3
"""Cross-checks sluice's keys against CPython's own pickle and hashlib on random inputs.

usage: keys_cross_check.py KEYS_LINES [SEED]

CBOR is encoded here (only arrays, integers, bytes, text and null with shortest heads are hashed). XXH3 is that of
libxxhash, through ctypes; without the library that part is left out, with a message.
"""
import ctypes
import ctypes.util
import hashlib
import json
import pickle
import random
import subprocess
import sys


def cbor_head(major, value):
    if value < 24:
        return bytes([major << 5 | value])
    for info, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << (8 * size):
            return bytes([major << 5 | info]) + value.to_bytes(size, "big")
    raise ValueError(value)


def cbor(value):
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return cbor_head(0, value) if value >= 0 else cbor_head(1, -1 - value)
    if isinstance(value, bytes):
        return cbor_head(2, len(value)) + value
    if isinstance(value, str):
        raw = value.encode()
        return cbor_head(3, len(raw)) + raw
    return cbor_head(4, len(value)) + b"".join(cbor(item) for item in value)


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def load_xxh3():
    name = ctypes.util.find_library("xxhash") or "libxxhash.so.0"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    library.XXH3_128bits.restype = Xxh128
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def xxh3(data):
        digest = library.XXH3_128bits(data, len(data))
        return digest.high.to_bytes(8, "big") + digest.low.to_bytes(8, "big")

    return xxh3


XXH3 = load_xxh3()


def sha256(data):
    return hashlib.sha256(data).digest()


def hasher(name, protocol):
    """The engine's hash of a Python object."""
    encode = cbor if name.endswith("-cbor") else lambda value: pickle.dumps(value, protocol)
    digest = XXH3 if "xxhash" in name else sha256
    return lambda value: digest(encode(value))


def fresh(text):
    """An equal text that is another object (except those that Python interns)."""
    return "".join(list(text)) if len(text) > 1 else text


class Extras:
    """Random extras of one block: the Python objects, and the JSON that describes them."""

    def __init__(self, rng, texts_only):
        self.rng = rng
        self.texts_only = texts_only
        self.leaves = []

    def leaf(self):
        kind = self.rng.randrange(100)
        if self.leaves and kind < 20:
            index = self.rng.randrange(len(self.leaves))
            value, described = self.leaves[index], {"same_as": index}
        elif kind < 60 or self.texts_only:
            length = self.rng.choice([0, 1, 1, 2, 7, 64, 255, 256, 300])
            if self.rng.randrange(150) == 0:
                length = self.rng.choice([65535, 65536, 70000])
            alphabet = self.rng.choice(["ab", "aé\u00ff", "\u20ac\U0001f600b\u0000"])
            value = fresh("".join(self.rng.choice(alphabet) for _ in range(length)))
            described = value
        elif kind < 80:
            bits = self.rng.choice([4, 8, 16, 31, 32, 40, 63])
            value = self.rng.randrange(-(1 << bits), 1 << bits)
            described = value
        elif kind < 90:
            value = bytes(self.rng.randrange(256) for _ in range(self.rng.choice([0, 1, 2, 32, 255, 256])))
            described = {"hex": value.hex()}
        else:
            value = described = None
        self.leaves.append(value)
        return value, described

    def element(self, depth=0):
        if not self.texts_only and depth < 3 and self.rng.randrange(4) == 0:
            pairs = [self.element(depth + 1) for _ in range(self.rng.choice([0, 1, 2, 2, 3, 4, 5]))]
            return tuple(value for value, _ in pairs), [described for _, described in pairs]
        return self.leaf()

    def block(self, count):
        pairs = [self.element() for _ in range(count)]
        return [value for value, _ in pairs], [described for _, described in pairs]


def random_tokens(rng, count):
    top = rng.choice([200, 60000, 152064, 2**31 - 1, 2**32 - 1])
    return [rng.randrange(top + 1) for _ in range(count)]


def reference(name, size, tokens, extras, seed, parent, partial, protocol):
    units = max(len(tokens) - 1, 0) if name == "sglang-bigram" else len(tokens)
    take_last = partial and name in ("fastdeploy", "lmcache-sha256", "lmcache-sha256-cbor")
    keys = []
    hash_of = hasher(name, protocol)
    previous = parent
    if previous is None and name.startswith(("vllm", "lmcache")):
        previous = hash_of(fresh(seed or "vllm-none-hash")).hex()
    for start in range(0, units, size):
        block = tokens[start:start + size]
        index = start // size
        count = min(size, units - start)
        if count < size and not take_last:
            break
        objects = extras[index] if index < len(extras) else []
        mark = ""
        if name == "fastdeploy":
            if count < size:
                objects, mark = [], f":partial:{count}"
            head = [previous] if previous is not None else []
            digest = hash_of((block, head + objects)).hex()
        elif name == "fastdeploy-v1":
            digest = hash_of((previous or "", tuple(block), tuple(objects) or None)).hex()
        elif name.startswith("sglang"):
            data = bytes.fromhex(previous) if previous else b""
            if name == "sglang":
                data += b"".join(t.to_bytes(4, "little") for t in block)
            else:
                pairs = tokens[start:start + size + 1]
                data += b"".join(a.to_bytes(4, "little") + b.to_bytes(4, "little")
                                 for a, b in zip(pairs, pairs[1:]))
            digest = sha256(data).hex()
        else:
            digest = hash_of((bytes.fromhex(previous), tuple(block), tuple(objects) or None)).hex()
        keys.append(digest + mark)
        previous = digest
    return keys


def case(rng, name, size):
    length = rng.choice([0, 1, size - 1, size, size + 1, 3 * size, rng.randrange(4 * size + 1)])
    tokens = random_tokens(rng, length)
    line = {"tokens": tokens}
    objects, described = [], []
    blocks = -(-length // size)
    if name.startswith(("fastdeploy", "vllm")) and blocks and rng.randrange(3):
        for _ in range(rng.randrange(blocks + 1)):
            count = rng.choice([0, 0, 1, 2, 3, 4, 6, 6, 999, 1000, 1001, 2001]) if rng.randrange(20) == 0 else \
                rng.randrange(6)
            values, texts = Extras(rng, name == "fastdeploy").block(count)
            objects.append(values)
            described.append(texts)
        line["extras"] = described
    seed = rng.choice(["", "0", "vllm-none-hash", "säed", "x" * 200])
    if seed:
        line["seed"] = seed
    parent = None
    if rng.randrange(3) == 0:
        parent = bytes(rng.randrange(256) for _ in range(16 if "xxhash" in name else 32)).hex()
        line["parent"] = parent
    return line, (tokens, objects, seed, parent)


FORMATS = ["fastdeploy", "fastdeploy-v1", "vllm-sha256", "vllm-sha256-cbor", "vllm-xxhash", "vllm-xxhash-cbor",
           "sglang", "sglang-bigram", "lmcache-sha256", "lmcache-sha256-cbor"]


def check(program, rng, name, size, count, protocol):
    default = 4 if name.startswith("fastdeploy") else 5
    partial = rng.randrange(2)
    cases = [case(rng, name, size) for _ in range(count)]
    text = "".join(json.dumps(line) + "\n" for line, _ in cases)
    result = subprocess.run([program, name, str(size), str(partial), str(protocol)], input=text, text=True,
                            capture_output=True, check=True, timeout=120)
    got = []
    current = []
    for row in result.stdout.split("\n")[:-1]:
        if row == "":
            got.append(current)
            current = []
        else:
            current.append(row)
    assert len(got) == len(cases), f"{name}: {len(got)} answers for {len(cases)} lines"
    for (line, (tokens, objects, seed, parent)), keys in zip(cases, got):
        want = reference(name, size, tokens, objects, seed, parent, partial, protocol or default)
        if keys != want:
            print(f"{name}, block_tokens {size}, partial {partial}, protocol {protocol}: differs")
            print(json.dumps(line)[:4000])
            print("got ", keys[:4], "\nwant", want[:4])
            return False
    return True


def main():
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, CPython {sys.version.split()[0]}")
    rng = random.Random(seed)
    done = 0
    for name in FORMATS:
        if "xxhash" in name and XXH3 is None:
            print(f"{name}: left out, libxxhash was not found")
            continue
        # 20,000 and more: pickles of several frames; 1000 and 1001: the edge of a list's batches.
        for size, count in ((1, 20), (3, 40), (16, 60), (64, 40), (999, 4), (1000, 6), (1001, 6), (2001, 4),
                            (20000, 3), (65536, 2)):
            for protocol in (0, 4, 5) if "cbor" not in name and "sglang" not in name else (0,):
                if not check(sys.argv[1], rng, name, size, count, protocol):
                    return 1
                done += count
    print(f"{done} inputs agree")
    return 0


sys.exit(main())
