"""Keys of every kind in every call: str and bytes, longer than a node's keys may be, with zeros, not UTF-8 (section 1.6 of the contract).
Keys that a node does not support are replaced by their digest."""

import hashlib
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

from contract_support import (INVALID, KIB, MIB, MOONCAKE, NOT_FOUND, OnPool, PATIENCE, config, lease_over, main, unlike_mooncake, value_of)
from mooncake.store import ReplicateConfig

KINDS = {
    "bytes": b"bytes %d", "str": "str %d", "no UTF-8": b"\xff\xfe %d", "zero": "a\0b %d", "zero at the end": b"%d\0",
    "marked": "\1tenant\1%d", "marked as a digest": "\1\3" + "0" * 64 + "-%d", "1024": "x" * 1020 + "%4d", "1025": "x" * 1020 + "%5d",
    "long": "long/" * 1000 + "%d", "long and not ASCII": "\N{SNOWMAN}" * 2000 + "%d", "very long": b"y" * 100_000 + b"%d",
}
BY_DIGEST = {"no UTF-8", "zero", "zero at the end", "1025", "long", "long and not ASCII", "very long"}


def name_of_digest(key, tenant=""):
    """The node's name for the key."""
    return f"\1{tenant}\3{hashlib.sha256(key).hexdigest()}-{len(key)}"


class Kinds(OnPool):
    def each(self, count=1):
        """(kind, this number of keys that no other test has) of each kind."""
        Kinds.number = getattr(Kinds, "number", 0) + count
        for kind, text in KINDS.items():
            keys = [text % number for number in range(Kinds.number - count, Kinds.number)]
            yield kind, keys if count > 1 else keys[0]

    def test_written_and_read_by_every_call(self):
        """1.6 common key, put, put_parts, put_batch, put_from, put_from_with_metadata, batch_put_from, batch_put_from_multi_buffers, 1.7
        get, get_batch, get_buffer, batch_get_buffer, get_into, batch_get_into, batch_get_into_multi_buffers, get_into_ranges, trap 19: all
        keys work alike."""
        store, memory = self.store, self.memory(64 * KIB)
        value = value_of("any", 3000)
        at, to = memory.write(value), memory.address + 32 * KIB
        writers = [
            lambda key: store.put(key, value), lambda key: store.put_parts(key, value[:5], value[5:]),
            lambda key: store.put_batch([key], [value]), lambda key: store.put_from(key, at, 3000),
            lambda key: store.put_from_with_metadata(key, at + 10, at, 2990, 10),
            lambda key: store.batch_put_from([key], [at], [3000])[0],
            lambda key: store.batch_put_from_multi_buffers([key], [[at, at + 1000]], [[1000, 2000]])[0],
        ]
        if MOONCAKE:
            del writers[4]
        for _, keys in self.each(len(writers)):
            for key, write in zip(keys, writers):
                self.assertEqual(write(key), 0)
                self.assertEqual(write(key), 0)  # it exists
                self.assertEqual((store.is_exist(key), store.get_size(key)), (1, 3000))
                self.assertEqual(store.get(key), value)
            self.assertEqual(store.get_batch(keys), [value] * len(keys))
            self.assertEqual([bytes(one) for one in store.batch_get_buffer(keys)], [value] * len(keys))
            self.assertEqual(bytes(store.get_buffer(keys[0])), value)
            for read in (lambda: store.get_into(keys[0], to, 3000), lambda: store.batch_get_into([keys[0]], [to], [4000])[0],
                         lambda: store.batch_get_into_multi_buffers([keys[0]], [[to, to + 10]], [[10, 2990]])[0]):
                memory.clear()
                self.assertEqual(read(), 3000)
                self.assertEqual(memory.read(3001, 32 * KIB), value + b"\xee")
            memory.write(value)
            self.assertEqual(store.get_into(keys[0], to, 2999), INVALID)
            got = store.get_into_ranges([to], [[keys[0], keys[1]]], [[[0, 100, 0], [300]]], [[[5, 2990, 2990], [0]]],
                                        [[[90, 10, 11], [3000]]])
            self.assertEqual(got, [[[90, 10, INVALID], [3000]]])
            self.assertEqual(memory.read(110, 32 * KIB), value[5:95] + memory.read(10, 32 * KIB + 90) + value[2990:])
            self.assertEqual(memory.read(3000, 32 * KIB + 300), value)
            self.assertEqual(store.batch_remove(keys, True), [0] * len(keys))
            self.assert_plain(store.batch_is_exist(keys), [0] * len(keys))

    def test_batches_of_all_kinds(self):
        """1.6 batch_put_from, 1.7 batch_get_into, 1.9 batch_is_exist, batch_remove: mixed, the same key twice, and with missing keys."""
        keys = [key for _, key in self.each()]
        memory = self.memory(len(keys) * KIB)
        at = [memory.address + i * KIB for i in range(len(keys))]
        for i in range(len(keys)):
            memory.write(value_of(i, KIB), i * KIB)
        self.assert_plain(self.store.batch_put_from(keys, at, [KIB] * len(keys)), [0] * len(keys))
        memory.clear()
        self.assert_plain(self.store.batch_is_exist([*keys, "none" * 1000, *keys]), [1] * len(keys) + [0] + [1] * len(keys))
        got = self.store.batch_get_into([*keys, b"none" * 1000, keys[-1]], [*at, at[0], at[-1]], [KIB] * (len(keys) + 2))
        self.assert_plain(got, [KIB] * len(keys) + [NOT_FOUND, KIB])
        for i in range(len(keys)):
            self.assertEqual(memory.read(KIB, i * KIB), value_of(i, KIB))
        fresh = "twice" * 1000
        self.assertEqual(self.store.put_batch([fresh, fresh], [b"first", b"last"]), 0)
        self.assertEqual(self.store.get(fresh), b"first" if MOONCAKE else b"last")  # the wheel differs from the reference
        self.assert_plain(self.store.batch_remove([*keys, fresh, "none" * 1000], True), [0] * (len(keys) + 1) + [NOT_FOUND])

    def test_str_and_bytes_are_one_key(self):
        """1.6 common key: a str means its UTF-8."""
        for key in ("grün", "grün" * 1000):
            self.assertEqual(self.store.put(key, b"value"), 0)
            self.assertEqual(self.store.get(key.encode()), b"value")
            self.assertEqual(self.store.remove(key.encode(), True), 0)

    def test_replaced(self):
        """1.6 upsert, upsert_from, upsert_parts, upsert_batch, batch_upsert_from, upsert different size: the new value."""
        store, memory = self.store, self.memory(8 * KIB)
        at = memory.write(value_of("up", 5000))
        calls = [lambda key, n: store.upsert(key, memory.read(n)), lambda key, n: store.upsert_from(key, at, n),
                 lambda key, n: store.upsert_parts(key, memory.read(10), memory.read(n - 10, 10)),
                 lambda key, n: store.upsert_batch([key], [memory.read(n)]),
                 lambda key, n: store.batch_upsert_from([key], [at], [n])[0]]
        for _, keys in self.each(len(calls)):
            for key, call in zip(keys, calls):
                for length in (100, 5000, 20):
                    self.assertEqual(call(key, length), 0)
                    self.assertEqual(store.get(key), memory.read(length))
            store.batch_remove(keys, True)

    @unlike_mooncake("a key that is there has no session in its wheel")
    def test_sessions(self):
        """1.8 batch_put_session_start, batch_put_from_multi_buffer_ranges, batch_put_session_end, batch_put_session_revoke,
        batch_get_session_start, batch_get_into_multi_buffer_ranges, batch_get_session_end: offsets are those of the value."""
        store, memory = self.store, self.memory(8 * KIB)
        value = value_of("session", 3000)
        at, to = memory.write(value), memory.address + 4 * KIB
        for _, key in self.each():
            self.assert_plain(store.batch_put_session_start([key], [3000], ReplicateConfig()), [0])
            self.assert_plain(store.batch_put_session_start([key], [3000], ReplicateConfig()), [INVALID])
            write = store.batch_put_from_multi_buffer_ranges
            self.assert_plain(write([key], [[at + 1000]], [[2000]], [[1000]]), [2000])
            self.assert_plain(write([key], [[at]], [[1001]], [[2000]]), [INVALID])
            self.assert_plain(write([key], [[at, at + 500]], [[500, 500]], [[0, 500]]), [1000])
            self.assert_plain(store.batch_put_session_end([key]), [0])
            self.assertEqual(store.get(key), value)
            self.assert_plain(store.batch_get_session_start([key]), [0])
            read = store.batch_get_into_multi_buffer_ranges
            self.assert_plain(read([key], [[to, to + 100]], [[100, 50]], [[2900, 0]]), [150])
            self.assertEqual(memory.read(150, 4 * KIB), value[2900:] + value[:50])
            self.assert_plain(read([key], [[to]], [[101]], [[2900]]), [INVALID])
            self.assertEqual(store.batch_get_session_end([key]), 0)
            self.assertEqual(store.remove(key, True), 0)
            self.assert_plain(store.batch_put_session_start([key], [3000], ReplicateConfig()), [0])
            self.assert_plain(store.batch_put_session_end([key]), [0])  # nothing was written: zeros
            self.assertEqual(store.get(key), bytes(3000))
            self.assertEqual(store.remove(key, True), 0)
            self.assert_plain(store.batch_put_session_start([key], [3000], ReplicateConfig()), [0])
            self.assert_plain(store.batch_put_session_revoke([key]), [0])
            self.assertEqual(store.is_exist(key), 0)

    def test_removal(self):
        """1.9 remove, remove_by_regex, remove_all, batch_replica_clear: by the key itself, under any of its names; a pattern finds no key
        that is replaced by its digest."""
        self.store.remove_all(True)
        for kind, keys in self.each(3):
            self.assertEqual(self.store.put_batch(keys, [b"v"] * 3), 0)
            pattern = f"{Kinds.number - 1}" + ("\\x00$" if kind == "zero at the end" else "$")
            found = MOONCAKE or kind not in BY_DIGEST
            self.assertEqual(self.store.remove_by_regex(pattern, True), int(found), kind)
            self.assert_plain(self.store.batch_is_exist(keys), [1, 1, int(not found)])
            self.assertEqual(self.store.remove(keys[2], True), NOT_FOUND if found else 0)
            lease_over(self.pool)
            if not MOONCAKE:  # its names are only str, and it does not clear values that were put a moment ago
                self.assertEqual(self.store.batch_replica_clear(keys[:1]), [self.as_told(keys[0])])
                self.assertEqual(self.store.is_exist(keys[0]), 0)
            self.assertEqual(self.store.remove(keys[1], True), 0)
            self.assertEqual(self.store.remove(keys[1], True), NOT_FOUND)
        keys = ["r" * 3000, b"\xffr", "zero\0r"]
        self.store.remove_all(True)
        self.assertEqual(self.store.put_batch(keys, [b"v"] * 3), 0)
        self.assertEqual(self.store.remove_all(True), 3)

    @staticmethod
    def as_told(key):
        try:
            return key if isinstance(key, str) else key.decode()
        except UnicodeDecodeError:
            return key

    def test_descriptors(self):
        """1.11 get_replica_desc, batch_get_replica_desc: by the key as a str; with its value's size."""
        for kind, key in self.each():
            if MOONCAKE and kind == "no UTF-8":
                continue  # it raises UnicodeDecodeError
            self.assertEqual(self.store.put(key, bytes(777)), 0)
            found, = self.store.get_replica_desc(key)
            self.assertEqual(found.get_memory_descriptor().buffer_descriptor.size, 777)
            self.assertEqual(list(self.store.batch_get_replica_desc([key, "none" * 999])), [self.as_told(key)])

    @unlike_mooncake("its tenants are a setting of its master")
    def test_tenants(self):
        """1.5 setup tenant_id: keys of two tenants never collide, under any names."""
        left, right = self.opened(tenant_id="left"), self.opened(tenant_id="right")
        for kind, key in self.each():
            for store, value in ((self.store, b"default"), (left, b"left"), (right, b"right")):
                self.assertEqual(store.put(key, value), 0)
            self.assertEqual([store.get(key) for store in (self.store, left, right)], [b"default", b"left", b"right"])
        self.assertEqual(left.remove_by_regex("long/long|bytes", True), 1)
        self.assertEqual(left.remove_all(True), len(KINDS) - 1)
        self.assertEqual(right.remove_all(True), len(KINDS))
        self.assertEqual(self.store.get(key), b"default")

    @unlike_mooncake("it has no limit")
    def test_the_longest(self):
        """1.6 common key: 1 MiB at most; beyond it -400, and nothing of it exists."""
        self.assertEqual(self.store.put("k" * MIB, b"value"), 0)
        self.assertEqual(self.store.get("k" * MIB), b"value")
        self.assertEqual(self.store.remove("k" * MIB, True), 0)
        key = "k" * (MIB + 1)
        self.assertEqual((self.store.put(key, b"v"), self.store.is_exist(key), self.store.get(key)), (-400, 0, b""))
        self.assertEqual((self.store.get_size(key), self.store.remove(key), self.store.get_buffer(key)), (NOT_FOUND, NOT_FOUND, None))

    def test_patterns_and_long_keys(self):
        """1.9 remove_by_regex: a pattern may look at every byte of a key a few times."""
        self.assertEqual(self.store.put("q0" + "k" * 1_000, b"v"), 0)
        self.assertEqual(self.store.put("q0", b"v"), 0)
        self.assertEqual(self.store.remove_by_regex("^q.*[xy]$", True), 0)
        self.assertEqual(self.store.remove_by_regex("^q.*0", True), 2)
        self.assertEqual(self.store.put("q1999", b"v"), 0)
        self.assertEqual(self.store.remove_by_regex("|".join(f"^q{i}$" for i in range(2000)), True), 1)

    @unlike_mooncake("nothing there ends a hostile pattern")
    def test_a_pattern_that_takes_for_ever(self):
        """1.9 remove_by_regex: ends after ten times MC_RPC_TIMEOUT_MS, and nothing is removed."""
        keys = [f"{'u' * 1000}{i}" for i in range(4000)]
        self.assertEqual(self.store.put_batch(keys, [b"v"] * len(keys)), 0)
        os.environ["MC_RPC_TIMEOUT_MS"] = "300"
        self.addCleanup(os.environ.pop, "MC_RPC_TIMEOUT_MS")
        hasty = self.opened(0)
        began = time.monotonic()
        self.assertEqual(hasty.remove_by_regex("[u].*[xy]", True), -901)
        self.assertLess(time.monotonic() - began, 6 * PATIENCE)
        self.assert_plain(self.store.batch_is_exist(keys), [1] * len(keys))
        self.assert_plain(self.store.batch_remove(keys, True), [0] * len(keys))

    def test_values_too_large_of_a_long_key(self):
        """1.6 batch_put_from_multi_buffers: a value is 1 GiB at most; the others of the batch are written."""
        memory = self.memory(MIB)
        large = [memory.address] * 1025
        self.assertEqual(self.store.batch_put_from_multi_buffers(["v" * 2000, "v"], [large, [memory.address]],
                                                                 [[MIB] * 1025, [5]]), [INVALID, 0])
        self.assertEqual(self.store.remove("v", True), 0)

    def test_groups_and_pins(self):
        """1.4 group_ids, with_hard_pin: for a long key as for any."""
        keys = ["g" * 2000 + str(i) for i in range(2)]
        self.assertEqual(self.store.put_batch(keys, [b"v"] * 2, config(group_ids=["g", "g"], with_hard_pin=True)), 0)
        self.assertEqual(self.store.get_batch(keys), [b"v"] * 2)
        self.assertEqual(self.store.batch_remove(keys, True), [0, 0])

    def test_wrong_types(self):
        """1.6 common key, 1.1 TypeError: neither str nor bytes; the text names the accepted types."""
        for key in (None, 1, 1.5, ["k"], bytearray(b"k") if not MOONCAKE else None):
            with self.assertRaises(TypeError):
                self.store.put(key, b"v")
            with self.assertRaises(TypeError):
                self.store.batch_is_exist([key])
        with self.assertRaisesRegex(TypeError, "str"):
            self.store.get(1)
        with self.assertRaises(TypeError):
            self.store.batch_is_exist(b"ab")


@unlike_mooncake("names on a node are Sluice's")
class Digests(OnPool):
    """The node's names for long keys."""

    def client(self):
        import sluice

        environment = self.pool.environment()
        instance = environment.get("SLUICE_INSTANCE") or "mooncake-" + self.pool.address.rsplit(":", 1)[1]
        one = sluice.Client(instance=instance)
        self.addCleanup(one.close)
        return one

    def test_names(self):
        """1.6 common key: short keys are their own names; others are replaced by their digest, and all stored values are only values."""
        raw = self.client()
        key = "n" * 2000
        self.assertEqual(self.store.put_batch(["short", key], [b"value"] * 2), 0)
        self.assertEqual(raw.get("short"), b"value")
        self.assertEqual(raw.get(name_of_digest(key.encode())), b"value")
        self.assertEqual(bytes(self.store.get_buffer(key)), b"value")

    def test_copies_where_pins_ran_out(self):
        """1.7 get_buffer, batch_get_buffer: also for long keys."""
        keys = ["p" * 1500 + str(i) for i in range(100)]
        self.assertEqual(self.store.put_batch(keys, [b"%d" % i for i in range(100)]), 0)
        os.environ["SLUICE_CLIENT_PINS_MAX"] = "16"
        self.addCleanup(os.environ.pop, "SLUICE_CLIENT_PINS_MAX")
        handles = self.opened(0).batch_get_buffer(keys)
        self.assertEqual([bytes(one) for one in handles], [b"%d" % i for i in range(100)])
        self.assertEqual({memoryview(one).readonly for one in handles}, {True, False})

    def ask(self, path, method="GET", **arguments):
        url = f"http://127.0.0.1:{self.pool.metrics_port}{path}?{urllib.parse.urlencode(arguments, safe=',')}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60 * PATIENCE) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            return error.read()

    def test_the_admin_finds_keys_of_all_kinds(self):
        """1.6 common key: the master's HTTP finds keys as they were given, and lists those that are their own names."""
        if self.pool.metrics_port is None:
            self.skipTest("no mooncake_master was built")
        self.store.remove_all(True)
        long, zero, binary = "l" * 5000, "a\0b", b"\xff\xfe"
        huge = b"h" * 300_000
        for key in ("short", long, zero, binary, huge):
            self.assertEqual(self.store.put(key, bytes(123)), 0)
        left = self.opened(tenant_id="left")
        self.assertEqual(left.put("left" * 1000, bytes(77)), 0)
        self.assertEqual(self.ask("/get_all_keys"), b"short\n")
        self.assertEqual(self.ask("/get_all_keys", tenant_id="left"), b"")
        told = json.loads(self.ask("/query_key", key=long))
        self.assertEqual((told["success"], told["size"], told["data"][0]["size"]), (True, 123, 123), told)
        self.assertIn(b"malformed", self.ask("/query_key", key=zero))  # no argument has a zero
        told = json.loads(self.ask("/batch_query_keys", keys=f"short,{long},{'m' * 2000}"))["data"]
        self.assertEqual([told["short"]["size"], told[long]["size"], told["m" * 2000]["ok"]], [123, 123, False])
        lease_over(self.pool)
        self.assertEqual(json.loads(self.ask("/api/v1/remove_all", "POST", force="true", tenant_id="left"))["removed_count"], 1)
        self.assertEqual(json.loads(self.ask("/api/v1/remove_all", "POST", force="true"))["removed_count"], 5)
        self.assertEqual(self.ask("/get_all_keys"), b"")


if __name__ == "__main__":
    main()
