"""Every call that writes: results, stored bytes, and what remains when it fails (section 1.6 of the contract)."""

import array
import contextlib
import ctypes
import io
import mmap
import threading

from contract_support import (INVALID, KIB, MIB, MOONCAKE, NO_SPACE, Memory, OnPool, config, main, wheel_differs,
                              unlike_mooncake, value_of)
from mooncake.store import ReplicateConfig, SoftPinAction

GIB = 1 << 30


class Common(OnPool):
    """The rules that all have in common."""

    def writers(self, value, at=None):
        """{name of each call: the call}: with a key and the value, returns its code. at: address of the value, if it has one."""
        if at is None:
            at = self.memory(max(len(value), 1) + 64 * KIB).write(value)
        half, size = len(value) // 2, len(value)
        store = self.store
        calls = {
            "put": lambda key, *how: store.put(key, value, *how),
            "put_parts": lambda key, *how: store.put_parts(key, value[:half], value[half:], **dict(zip(["config"], how))),
            "put_batch": lambda key, *how: store.put_batch([key], [value], *how),
            "put_from": lambda key, *how: store.put_from(key, at, size, *how),
            "put_from_with_metadata": lambda key, *how: store.put_from_with_metadata(key, at + half, at, size - half, half, *how),
            "batch_put_from": lambda key, *how: store.batch_put_from([key], [at], [size], *how)[0],
            "batch_put_from_multi_buffers": lambda key, *how: store.batch_put_from_multi_buffers(
                [key], [[at, at + half]], [[half, size - half]], *how)[0],
            "upsert": lambda key, *how: store.upsert(key, value, *how),
            "upsert_from": lambda key, *how: store.upsert_from(key, at, size, *how),
            "upsert_parts": lambda key, *how: store.upsert_parts(key, value[:half], value[half:],
                                                                 **dict(zip(["config"], how))),
            "upsert_batch": lambda key, *how: store.upsert_batch([key], [value], *how),
            "batch_upsert_from": lambda key, *how: store.batch_upsert_from([key], [at], [size], *how)[0],
        }
        if MOONCAKE:
            del calls["put_from_with_metadata"]  # its codes have the sign flipped, or are -1
        return calls

    def test_all_store_the_same_bytes(self):
        """1.6 put, put_parts, put_batch, put_from, put_from_with_metadata, batch_put_from, batch_put_from_multi_buffers, upsert,
        upsert_from, upsert_parts, upsert_batch, batch_upsert_from: 0 and every byte."""
        value = value_of("same", 300_001)
        for name, write in self.writers(value).items():
            with self.subTest(name):
                self.assertEqual(write(self.key(name)), 0)
                self.assertEqual(self.store.get(self.key(name)), value)
                self.assertEqual(self.store.get_size(self.key(name)), len(value))

    def test_a_config_goes_with_each(self):
        """1.6 put, put_parts, put_batch, put_from, put_from_with_metadata, batch_put_from, batch_put_from_multi_buffers, upsert,
        upsert_from, upsert_parts, upsert_batch, batch_upsert_from: take a ReplicateConfig."""
        for name, write in self.writers(b"value").items():
            with self.subTest(name):
                self.assertEqual(write(self.key(name), ReplicateConfig()), 0)
                self.assertEqual(self.store.get(self.key(name)), b"value")

    def test_a_key_that_exists(self):
        """1.6 common existing key, trap 1: every put answers 0 and the old value stays."""
        for name, write in self.writers(b"other value").items():
            if "upsert" in name:
                continue
            with self.subTest(name):
                key, value = self.stored(name)
                self.assertEqual(write(key), 0)
                self.assertEqual(self.store.get(key), value)

    def test_empty_keys(self):
        """1.6 common key: an empty one is refused with -600."""
        for name, write in self.writers(b"value").items():
            with self.subTest(name):
                self.assertEqual(write(""), INVALID)

    def test_keys_of_any_text(self):
        """1.6 common key: any str that is not empty, also long ones (trap 19)."""
        for number, key in enumerate(("ä/ö ü", "with space\n", "日本語", "x" * 800, "%s{}@:#?&=\\", "../../etc")):
            key = f"{key}{number}"
            self.assertEqual(self.store.put(key, key.encode()), 0, key)
            self.assertEqual(self.store.get(key), key.encode())
            self.assertEqual(self.store.remove(key, True), 0)

    def test_keys_of_other_types(self):
        """1.6 common key: what is neither str nor bytes raises TypeError."""
        for key in (None, 1, ["k"]):
            with self.assertRaises(TypeError):
                self.store.put(key, b"v")
            with self.assertRaises(TypeError):
                self.store.put_batch([key], [b"v"])

    def test_same_node_is_refused(self):
        """1.6 common prefer_alloc_in_same_node: -600 except for the multi-buffer calls."""
        for name, write in self.writers(b"value").items():
            with self.subTest(name):
                key = self.key(name)
                code = write(key, config(prefer_alloc_in_same_node=True))
                if name == "batch_put_from_multi_buffers":
                    self.assertEqual(code, 0)
                else:
                    self.assertEqual(code, INVALID)
                    self.assert_absent(key)

    def test_negative_sizes_and_addresses(self):
        """1.6 common sizes: they are unsigned, a negative int raises TypeError."""
        at = self.memory(KIB).address
        store, key = self.store, self.key()
        for call in (lambda: store.put_from(key, at, -1), lambda: store.put_from(key, -1, 1),
                     lambda: store.batch_put_from([key], [at], [-1]), lambda: store.batch_put_from([key], [-1], [1]),
                     lambda: store.batch_put_from_multi_buffers([key], [[at]], [[-1]]),
                     lambda: store.batch_put_from_multi_buffers([key], [[-1]], [[1]]),
                     lambda: store.upsert_from(key, at, -1), lambda: store.batch_upsert_from([key], [at], [-1]),
                     lambda: store.put_from_with_metadata(key, at, at, -1, 1),
                     lambda: store.put_from_with_metadata(key, at, at, 1, -1)):
            with self.assertRaises(TypeError):
                call()
        self.assert_absent(key)

    def test_no_space(self):
        """1.6 common no space: -200, and nothing remains."""
        value = bytes(self.segment + MIB)
        for name, write in self.writers(value).items():
            if name in ("put", "put_parts", "put_batch", "upsert", "upsert_parts", "upsert_batch"):
                continue  # larger than the staging memory: the next test
            with self.subTest(name):
                self.assertEqual(write(self.key(name)), NO_SPACE)
                self.assert_absent(self.key(name))

    @unlike_mooncake("a value is as large as what the segments hold")
    def test_a_value_that_is_too_large(self):
        """1.6 common sizes, 1.8 batch_put_session_start: -600 above 1 GiB, and where the node's memory has smaller chunks, and a line on
        standard error that names the limit and the way. The memory is never touched."""
        large = mmap.mmap(-1, GIB + 100, flags=mmap.MAP_PRIVATE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(large))
        calls = list(self.writers(memoryview(large), at))
        calls = [*calls, "session"]
        for number, name in enumerate(calls):
            for size, limit in ((GIB + 1 + number, f"{GIB} bytes (1 GiB)"), (GIB - number, None)):
                with self.subTest((name, size)), contextlib.redirect_stderr(io.StringIO()) as said:
                    value = memoryview(large)[:size]
                    write = {**self.writers(value, at), "session": lambda key, size=size: self.store.batch_put_session_start([key], [size])[0]}[name]
                    self.assertEqual(write(self.key(name)), INVALID)
                    if limit is not None:
                        for part in ("a put gives -600", limit, f"not {size}", "in parts"):
                            self.assertIn(part, said.getvalue())
        self.assert_plain(self.store.batch_is_exist([self.key(name) for name in calls]), [0] * len(calls))

    def test_no_staging_space(self):
        """1.6 common no staging space: -600 of the copying calls when the local buffer is smaller than the value."""
        value = bytes(self.buffer + MIB)
        for name, write in self.writers(value).items():
            if name in ("put", "put_parts", "put_batch", "upsert", "upsert_parts", "upsert_batch"):
                with self.subTest(name):
                    self.assertEqual(write(self.key(name)), INVALID)
                    self.assert_absent(self.key(name))

    def test_somebody_else_is_writing(self):
        """1.6 common key being written: a put answers 0 although nothing is readable yet; the first writer's value is stored."""
        for name, write in self.writers(b"late").items():
            if "upsert" in name:
                continue
            with self.subTest(name):
                key = self.key(name)
                self.assert_plain(self.store.batch_put_session_start([key], [5], ReplicateConfig()), [0])
                self.assertEqual(write(key), 0)
                self.assertEqual(self.store.get(key), b"")
                at = self.memory(KIB).write(b"first")
                self.assert_plain(self.store.batch_put_from_multi_buffer_ranges([key], [[at]], [[5]], [[0]]), [5])
                self.assert_plain(self.store.batch_put_session_end([key]), [0])
                self.assertEqual(self.store.get(key), b"first")

    def test_a_put_leases_nothing(self):
        """1.6 common lease, trap 10: remove right after any put succeeds."""
        for name, write in self.writers(b"value").items():
            with self.subTest(name):
                self.assertEqual(write(self.key(name)), 0)
                self.assertEqual(self.store.remove(self.key(name)), 0)


class Values(OnPool):
    """Types of values that put, put_batch, put_parts and the upserts accept."""

    def test_anything_with_bytes(self):
        """1.6 common value: any buffer: bytes, bytearray, memoryview, arrays of bytes."""
        for number, value in enumerate((b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), array.array("B", b"array"))):
            key = self.key(str(number))
            self.assertEqual(self.store.put(key, value), 0)
            self.assertEqual(self.store.get(key), bytes(value))
            self.assertEqual(self.store.put_batch([key + "b"], [value]), 0)
            self.assertEqual(self.store.get(key + "b"), bytes(value))
            self.assertEqual(self.store.put_parts(key + "p", value, b"+", value), 0)
            self.assertEqual(self.store.get(key + "p"), bytes(value) + b"+" + bytes(value))
            self.assertEqual(self.store.upsert(key, b"x"), 0)
            self.assertEqual(self.store.upsert_batch([key], [value]), 0)
            self.assertEqual(self.store.get(key), bytes(value))

    def test_text_is_no_value(self):
        """1.6 common value: a str raises TypeError, as any other object without a buffer does."""
        for wrong in ("text", 1, None, ["b"]):
            for call in (lambda: self.store.put(self.key(), wrong), lambda: self.store.put_batch([self.key()], [wrong]),
                         lambda: self.store.upsert(self.key(), wrong), lambda: self.store.put_parts(self.key(), wrong),
                         lambda: self.store.upsert_parts(self.key(), b"x", wrong)):
                with self.assertRaises(TypeError):
                    call()
        self.assert_absent(self.key())

    @unlike_mooncake("it takes the number of elements for that of bytes and stores only the first part")
    def test_elements_of_several_bytes(self):
        """trap 6: arrays of float or int are stored with all their bytes."""
        for kind in "Hifdq":
            value = array.array(kind, range(1000))
            for name, write in (("put", self.store.put), ("upsert", self.store.upsert)):
                key = self.key(kind + name)
                self.assertEqual(write(key, value), 0)
                self.assertEqual(self.store.get(key), value.tobytes())
            self.assertEqual(self.store.put_batch([self.key(kind + "b")], [value]), 0)
            self.assertEqual(self.store.get(self.key(kind + "b")), value.tobytes())
        table = memoryview(bytes(range(48))).cast("B", (4, 12))
        self.assertEqual(self.store.put(self.key("2d"), table), 0)
        self.assertEqual(self.store.get(self.key("2d")), bytes(range(48)))

    @unlike_mooncake("it ignores strides and stores other bytes")
    def test_views_with_gaps(self):
        """trap 6: a view that is not contiguous is compacted or refused, never other bytes."""
        source = bytes(range(200))
        for number, view in enumerate((memoryview(source)[::2], memoryview(source)[::-1])):
            key = self.key(str(number))
            try:
                code = self.store.put(key, view)
            except (BufferError, TypeError, ValueError):
                code = INVALID
            self.assertEqual(self.store.get(key), view.tobytes() if code == 0 else b"")

    def test_empty_values(self):
        """1.6 put, upsert, put_batch, trap 5: an empty value is refused and leaves no object."""
        self.assertEqual(self.store.put(self.key(), b""), INVALID)
        self.assertEqual(self.store.upsert(self.key(), b""), INVALID)
        self.assertLess(self.store.put_batch([self.key()], [b""]), 0)
        self.assert_absent(self.key())

    def test_an_empty_upsert_keeps_the_value(self):
        """1.6 upsert: one that is refused changes nothing."""
        key, value = self.stored()
        self.assertEqual(self.store.upsert(key, b""), INVALID)
        self.assertEqual(self.store.get(key), value)


class Puts(OnPool):
    def test_put(self):
        """1.6 put: by position and by keyword."""
        self.assertEqual(self.store.put(key=self.key(), value=b"v", config=ReplicateConfig()), 0)
        self.assertEqual(self.store.get(self.key()), b"v")

    def test_sizes_around_what_is_likely_to_break(self):
        """1.6 put: values of 1 byte to 8 MiB, around powers of two."""
        for size in (1, 2, 7, 8, 63, 64, 65, 4095, 4096, 4097, 16383, 16384, 16385, MIB - 1, MIB, MIB + 1, 8 * MIB):
            key, value = self.stored(str(size), size)
            self.assertEqual(self.store.get(key), value, size)
            self.assertEqual(self.store.remove(key, True), 0)

    def test_put_parts(self):
        """1.6 put_parts: parts are joined in order; config only by keyword."""
        self.assertEqual(self.store.put_parts(self.key(), b"one", b"", bytearray(b"two"), memoryview(b"three")), 0)
        self.assertEqual(self.store.get(self.key()), b"onetwothree")
        with self.assertRaises(TypeError):
            self.store.put_parts(self.key("c"), b"one", ReplicateConfig())
        self.assert_absent(self.key("c"))

    def test_put_parts_many(self):
        """1.6 put_parts: LMCache's header and body, and hundreds of parts."""
        body = value_of("body", 2 * MIB)
        self.assertEqual(self.store.put_parts(self.key("l"), b"h" * 28, memoryview(body)), 0)
        self.assertEqual(self.store.get(self.key("l")), b"h" * 28 + body)
        parts = [bytes([i % 256]) * (i % 7) for i in range(500)]
        self.assertEqual(self.store.put_parts(self.key("m"), *parts), 0)
        self.assertEqual(self.store.get(self.key("m")), b"".join(parts))

    def test_put_parts_of_nothing(self):
        """1.6 put_parts, trap 5: total 0 bytes -> 0 and no object."""
        self.assertEqual(self.store.put_parts(self.key()), 0)
        self.assertEqual(self.store.put_parts(self.key(), b"", b""), 0)
        self.assert_absent(self.key())

    def test_put_parts_of_wrong_shape(self):
        """1.6 put_parts: a part with items of several bytes or dimensions raises RuntimeError."""
        for wrong in (array.array("i", [1, 2]), memoryview(bytes(16)).cast("B", (4, 4))):
            with self.assertRaises(RuntimeError):
                self.store.put_parts(self.key(), b"ok", wrong)
        self.assert_absent(self.key())

    def test_put_batch(self):
        """1.6 put_batch: one int for all."""
        keys = self.keys(50)
        values = [value_of(key, 100 + i) for i, key in enumerate(keys)]
        self.assertEqual(self.store.put_batch(keys, values), 0)
        self.assertEqual(self.store.get_batch(keys), values)

    def test_put_batch_of_nothing(self):
        """1.6 put_batch: of no keys is 0 or a code, and no crash."""
        self.assertLessEqual(self.store.put_batch([], []), 0)

    def test_put_batch_of_different_lengths(self):
        """1.6 put_batch: different lengths -600, nothing is stored."""
        keys = self.keys(2)
        self.assertEqual(self.store.put_batch(keys, [b"1"]), INVALID)
        self.assertEqual(self.store.put_batch(keys, [b"1", b"2", b"3"]), INVALID)
        self.assert_plain(self.store.batch_is_exist(keys), [0, 0])

    @wheel_differs("the first value wins")
    def test_put_batch_with_a_key_twice(self):
        """1.6 put_batch: duplicate keys collapse, the last value wins."""
        key, other = self.keys(2)
        self.assertEqual(self.store.put_batch([key, other, key], [b"first", b"other", b"last"]), 0)
        self.assertEqual(self.store.get(key), b"last")
        self.assertEqual(self.store.get(other), b"other")

    def test_put_batch_with_keys_that_exist(self):
        """1.6 put_batch: keys that exist are no error and keep their value."""
        key, value = self.stored()
        self.assertEqual(self.store.put_batch([key, self.key("new")], [b"x", b"y"]), 0)
        self.assertEqual(self.store.get_batch([key, self.key("new")]), [value, b"y"])

    def test_put_from(self):
        """1.6 put_from: a registered address; the memory may change afterwards."""
        memory = self.memory(64 * KIB)
        value = value_of("put_from", 50_000)
        self.assertEqual(self.store.put_from(self.key(), memory.write(value, 77), len(value)), 0)
        memory.clear()
        self.assertEqual(self.store.get(self.key()), value)

    def test_put_from_of_nothing(self):
        """1.6 put_from, trap 5: size 0 -> 0 and no object."""
        self.assertEqual(self.store.put_from(self.key(), self.memory(KIB).address, 0), 0)
        self.assert_absent(self.key())

    def test_put_from_with_metadata(self):
        """1.6 put_from_with_metadata: object = metadata then data."""
        memory = self.memory(64 * KIB)
        data, head = memory.write(b"D" * 1000), memory.write(b"M" * 10, 32 * KIB)
        self.assertEqual(self.store.put_from_with_metadata(self.key(), data, head, 1000, 10), 0)
        self.assertEqual(self.store.get(self.key()), b"M" * 10 + b"D" * 1000)

    @unlike_mooncake("the sign of the code is flipped")
    def test_put_from_with_metadata_that_fails(self):
        """1.6 put_from_with_metadata: failure is negative."""
        memory = self.memory(self.segment + 2 * MIB)
        code = self.store.put_from_with_metadata(self.key(), memory.address + KIB, memory.address, self.segment + MIB, KIB)
        self.assertEqual(code, NO_SPACE)
        self.assertEqual(self.store.put_from_with_metadata("", memory.address + KIB, memory.address, KIB, KIB), INVALID)
        self.assert_absent(self.key())

    def test_batch_put_from(self):
        """1.6 batch_put_from: one int a key, a real list (FastDeploy counts its zeros)."""
        memory = self.memory(MIB)
        keys = self.keys(100)
        values = [value_of(key, 5000 + i) for i, key in enumerate(keys)]
        at = [memory.write(value, i * 10_000) for i, value in enumerate(values)]
        codes = self.store.batch_put_from(keys, at, [len(value) for value in values])
        self.assert_plain(codes, [0] * 100)
        self.assertEqual(codes.count(0), 100)
        memory.clear()
        self.assertEqual(self.store.get_batch(keys), values)

    def test_batch_put_from_of_nothing(self):
        """1.6 batch_put_from: [] -> []."""
        self.assert_plain(self.store.batch_put_from([], [], []), [])

    def test_batch_put_from_of_different_lengths(self):
        """1.6 batch_put_from, trap 3: all -600, as many as keys."""
        keys, at = self.keys(3), self.memory(KIB).address
        for addresses, sizes in (([at], [1, 1, 1]), ([at] * 3, [1]), ([], []), ([at] * 4, [1] * 4)):
            self.assert_plain(self.store.batch_put_from(keys, addresses, sizes), [INVALID] * 3)
        self.assert_plain(self.store.batch_is_exist(keys), [0] * 3)

    def test_batch_put_from_with_keys_that_exist(self):
        """1.6 batch_put_from: keys that exist -> 0, their value stays."""
        key, value = self.stored()
        at = self.memory(KIB).write(b"x" * 100)
        self.assert_plain(self.store.batch_put_from([key, self.key("n")], [at, at], [100, 50]), [0, 0])
        self.assertEqual(self.store.get_batch([key, self.key("n")]), [value, b"x" * 50])

    def test_one_that_fails_fails_alone(self):
        """1.6 batch_put_from, batch_put_from_multi_buffers, batch_upsert_from: -200 for one without space, the others are stored."""
        memory = self.memory(self.segment + 2 * MIB)
        at = memory.write(b"v" * 100)
        size = self.segment + MIB
        for name, call in (("from", lambda keys: self.store.batch_put_from(keys, [at] * 3, [100, size, 50])),
                           ("multi", lambda keys: self.store.batch_put_from_multi_buffers(
                               keys, [[at]] * 3, [[100], [size], [50]])),
                           ("upsert", lambda keys: self.store.batch_upsert_from(keys, [at] * 3, [100, size, 50]))):
            with self.subTest(name):
                keys = self.keys(3, name)
                self.assert_plain(call(keys), [0, NO_SPACE, 0])
                self.assert_plain(self.store.batch_is_exist(keys), [1, 0, 1])
                self.assertEqual(self.store.get_batch([keys[0], keys[2]]), [b"v" * 100, b"v" * 50])

    def test_batch_put_from_with_a_key_twice(self):
        """1.6 batch_put_from: a key given twice uses the last buffer for both."""
        memory = self.memory(KIB)
        first, last = memory.write(b"first"), memory.write(b"last!", 100)
        key = self.key()
        self.assert_plain(self.store.batch_put_from([key, key], [first, last], [5, 5]), [0, 0])
        self.assertEqual(self.store.get(key), b"last!")

    def test_batch_put_from_with_an_empty_one(self):
        """1.6 batch_put_from: one of size 0 leaves no object and does not affect others."""
        keys, at = self.keys(2), self.memory(KIB).write(b"v")
        codes = self.store.batch_put_from(keys, [at, at], [0, 1])
        self.assertEqual(codes[1], 0)
        self.assertLessEqual(codes[0], 0)
        self.assert_plain(self.store.batch_is_exist(keys), [0, 1])

    def test_wrong_types_in_batches(self):
        """1.6 batch_put_from, batch_put_from_multi_buffers: wrong types raise TypeError."""
        at, key = self.memory(KIB).address, self.key()
        for call in (lambda: self.store.batch_put_from(key, [at], [1]), lambda: self.store.batch_put_from([1], [at], [1]),
                     lambda: self.store.batch_put_from([key], ["a"], [1]), lambda: self.store.batch_put_from([key], [at], [None]),
                     lambda: self.store.batch_put_from_multi_buffers([key], [at], [1]),
                     lambda: self.store.batch_put_from_multi_buffers([key], [[at]], [1]),
                     lambda: self.store.batch_put_from([key], [at], [1 << 64])):
            with self.assertRaises(TypeError):
                call()
        self.assert_absent(key)


class MultiBuffers(OnPool):
    """The write path of vLLM."""

    def scattered(self, memory, key, count, length):
        """Pieces of a value that are scattered over memory in reverse order, with gaps: (addresses, sizes, value)."""
        value = value_of(key, count * length)
        addresses = [memory.write(value[i * length:(i + 1) * length], (count - 1 - i) * (length + 13)) for i in range(count)]
        return addresses, [length] * count, value

    def test_concatenation(self):
        """1.6 batch_put_from_multi_buffers: the value is the concatenation of the scatter list."""
        keys = self.keys(20)
        addresses, sizes, values = [], [], []
        for number, key in enumerate(keys):
            at, size, value = self.scattered(self.memory(64 * KIB), key, number + 1, 1001)
            addresses.append(at)
            sizes.append(size)
            values.append(value)
        self.assert_plain(self.store.batch_put_from_multi_buffers(keys, addresses, sizes), [0] * 20)
        self.assertEqual(self.store.get_batch(keys), values)

    def test_with_config_by_keyword_and_position(self):
        """1.6 batch_put_from_multi_buffers: config as the fourth, as vLLM gives it."""
        at, size, value = self.scattered(self.memory(64 * KIB), self.key(), 3, 100)
        named = config(preferred_segment=self.store.get_hostname())
        self.assert_plain(self.store.batch_put_from_multi_buffers([self.key()], [at], [size], named), [0])
        self.assert_plain(self.store.batch_put_from_multi_buffers(keys=[self.key("n")], all_buffer_ptrs=[at],
                                                                  all_sizes=[size], config=named), [0])
        self.assertEqual(self.store.get_batch([self.key(), self.key("n")]), [value, value])

    def test_pieces_of_different_sizes(self):
        """1.6 batch_put_from_multi_buffers: pieces of 1 byte to 1 MiB, the same memory twice, empty pieces between."""
        memory = self.memory(2 * MIB)
        source = value_of("source", 2 * MIB)
        memory.write(source)
        parts = [(0, 1), (5, 0), (100, 4097), (0, 1), (1000, MIB), (7, 63), (2 * MIB - 1, 1), (9, 0)]
        code = self.store.batch_put_from_multi_buffers([self.key()], [[memory.address + at for at, _ in parts]],
                                                       [[length for _, length in parts]])
        self.assert_plain(code, [0])
        self.assertEqual(self.store.get(self.key()), b"".join(source[at:at + length] for at, length in parts))

    def test_many_layers(self):
        """1.6 batch_put_from_multi_buffers: 160 pieces a key (80 layers, K and V), 64 keys."""
        memory = self.memory(4 * MIB)
        source = value_of("layers", 4 * MIB)
        memory.write(source)
        keys = self.keys(64)
        offsets = [[(k * 160 + i) * 409 % (4 * MIB - 256) for i in range(160)] for k in range(64)]
        codes = self.store.batch_put_from_multi_buffers(keys, [[memory.address + at for at in row] for row in offsets],
                                                        [[256] * 160] * 64)
        self.assert_plain(codes, [0] * 64)
        self.assertEqual(self.store.get_batch(keys), [b"".join(source[at:at + 256] for at in row) for row in offsets])

    def test_lengths_that_differ(self):
        """1.6 batch_put_from_multi_buffers, trap 3: -600 for each key when lists are of different lengths."""
        keys, at = self.keys(3), self.memory(KIB).address
        for addresses, sizes in (([[at]], [[1]] * 3), ([[at]] * 3, [[1]]), ([], [])):
            self.assert_plain(self.store.batch_put_from_multi_buffers(keys, addresses, sizes), [INVALID] * 3)
        self.assert_plain(self.store.batch_is_exist(keys), [0] * 3)

    @unlike_mooncake("it reads beyond the shorter list")
    def test_lengths_that_differ_for_one_key(self):
        """1.6 batch_put_from_multi_buffers: addresses and sizes of one key that differ: -600 for it, others are stored."""
        keys, at = self.keys(3), self.memory(KIB).write(b"v" * 10)
        codes = self.store.batch_put_from_multi_buffers(keys, [[at], [at, at], [at]], [[5], [5], [5, 5]])
        self.assert_plain(codes, [0, INVALID, INVALID])
        self.assert_plain(self.store.batch_is_exist(keys), [1, 0, 0])

    def test_of_nothing(self):
        """1.6 batch_put_from_multi_buffers: [] -> []."""
        self.assert_plain(self.store.batch_put_from_multi_buffers([], [], []), [])

    def test_keys_that_exist_and_keys_twice(self):
        """1.6 batch_put_from_multi_buffers: keys that exist -> 0, a key twice has one of its values."""
        key, value = self.stored()
        twice, at = self.key("twice"), self.memory(KIB).write(b"abcdefgh")
        codes = self.store.batch_put_from_multi_buffers([key, twice, twice], [[at], [at], [at + 4]], [[4], [4], [4]])
        self.assert_plain(codes, [0, 0, 0])
        self.assertEqual(self.store.get(key), value)
        self.assertIn(self.store.get(twice), (b"abcd", b"efgh"))

    def test_large_batches(self):
        """trap 19: 20,000 keys of 200 bytes in one call, looked up in one call."""
        count = 20_000
        memory = self.memory(count * 8)
        memory.write(b"".join(i.to_bytes(8, "little") for i in range(count)))
        keys = [f"{i:08}" + self.key("x" * 160) for i in range(count)]
        at = [[memory.address + 8 * i, memory.address + 8 * i + 4] for i in range(count)]
        self.assertEqual(self.store.batch_put_from_multi_buffers(keys, at, [[4, 4]] * count), [0] * count)
        self.assertEqual(self.store.batch_is_exist(keys), [1] * count)
        into = self.memory(count * 8)
        target = [[into.address + 8 * i] for i in range(count)]
        self.assertEqual(self.store.batch_get_into_multi_buffers(keys, target, [[8]] * count), [8] * count)
        self.assertEqual(into.read(count * 8), memory.read(count * 8))
        self.assertEqual(self.store.batch_remove(keys, True), [0] * count)


class Upserts(OnPool):
    def replaced(self, name, length):
        """All upserts of an existing key; the new value has this many bytes."""
        memory = self.memory(max(length, 1))
        store, half = self.store, length // 2
        new = value_of(name + "new", length)
        at = memory.write(new)
        forms = {
            "upsert": lambda key: store.upsert(key, new),
            "upsert_from": lambda key: store.upsert_from(key, at, length),
            "upsert_parts": lambda key: store.upsert_parts(key, new[:half], new[half:]),
            "upsert_batch": lambda key: store.upsert_batch([key], [new]),
            "batch_upsert_from": lambda key: store.batch_upsert_from([key], [at], [length])[0],
        }
        for form, call in forms.items():
            with self.subTest(form):
                key, _ = self.stored(f"{name}{form}", 1000)
                self.assertEqual(call(key), 0)
                self.assertEqual(self.store.get(key), new)
                self.assertEqual(self.store.get_size(key), length)

    def test_absent(self):
        """1.6 upsert absent: like put."""
        self.assertEqual(self.store.upsert(self.key(), b"v"), 0)
        self.assertEqual(self.store.get(self.key()), b"v")

    def test_same_size(self):
        """1.6 upsert same size: the new value."""
        self.replaced("s", 1000)

    def test_different_size(self):
        """1.6 upsert different size: the new value, shorter and longer."""
        self.replaced("l", 100_000)
        self.replaced("h", 10)

    @unlike_mooncake("old buffers stay for 600 s: -200 after a few")
    def test_many_times(self):
        """1.6 upsert different size: old values release their space."""
        key = self.key()
        for number in range(200):  # 1 MiB each, in 64 MiB
            value = value_of(number, MIB - number)
            self.eventually(0, lambda v=value: self.store.upsert(key, v), NO_SPACE)
            if number % 50 == 0:
                self.assertEqual(self.store.get(key), value)
        self.assertEqual(self.store.get(key), value)

    def test_batches(self):
        """1.6 batch_upsert_from: one code a key; upsert_batch: one int; lengths that differ -600."""
        keys, at = self.keys(3), self.memory(KIB).write(b"abcdefgh")
        self.assert_plain(self.store.batch_upsert_from(keys, [at] * 3, [1, 2, 3]), [0] * 3)
        self.assert_plain(self.store.batch_upsert_from(keys, [at + 1] * 3, [1, 2, 3]), [0] * 3)
        self.assertEqual(self.store.get_batch(keys), [b"b", b"bc", b"bcd"])
        self.assert_plain(self.store.batch_upsert_from(keys, [at], [1, 2, 3]), [INVALID] * 3)
        self.assert_plain(self.store.batch_upsert_from([], [], []), [])
        self.assertEqual(self.store.upsert_batch(keys, [b"x"]), INVALID)
        self.assertEqual(self.store.get_batch(keys), [b"b", b"bc", b"bcd"])

    @unlike_mooncake("the key is unreadable, -703, until the write ends, and -714 hits the writer")
    def test_readers_see_the_old_or_the_new(self):
        """1.6 upsert reader holds: readers see the old value or the new one, whole; no reader gets -703 or -714."""
        key = self.key()
        values = [value_of(i, 200_000 if i % 2 else 150_000) for i in range(4)]
        self.assertEqual(self.store.put(key, values[0]), 0)
        stop, wrong = threading.Event(), []

        def read():
            memory = Memory(MIB, self.store)
            while not stop.is_set():
                size = self.store.get_into(key, memory.address, MIB)
                if size < 0 or memory.read(size) not in values:
                    wrong.append(size)
            self.store.unregister_buffer(memory.address)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for one in threads:
            one.start()
        codes = {self.store.upsert(key, values[i % 4]) for i in range(1, 201)}
        stop.set()
        for one in threads:
            one.join()
        self.assertEqual((codes, wrong), ({0}, []))

    @unlike_mooncake("-714")
    def test_a_reader_that_holds_keeps_the_old(self):
        """1.6 upsert reader holds: a buffer handle keeps the bytes that it was given."""
        key, value = self.stored()
        handle = self.store.get_buffer(key)
        self.assertEqual(self.store.upsert(key, b"new"), 0)
        self.assertEqual((bytes(handle), self.store.get(key)), (value, b"new"))

    @wheel_differs("-703 until the session's writer ends")
    def test_a_put_that_is_pre_empted(self):
        """1.6 upsert somebody puts: it does not wait for the other put's 30 s; either its value is read, or it is -705 or busy immediately."""
        key = self.key()
        self.assert_plain(self.store.batch_put_session_start([key], [5], ReplicateConfig()), [0])
        code = self.store.upsert(key, b"upserted")
        self.assertLessEqual(code, 0)
        ended = self.store.batch_put_session_end([key])[0]
        self.assertIn(0, (code, ended))
        self.assertEqual(self.store.get(key), b"upserted" if code == 0 else bytes(5))

    def test_another_group(self):
        """1.6 upsert group: an id that differs from the stored one is -600, the same one 0."""
        key, value = self.stored(config=config(group_ids=["g"]))
        self.assertEqual(self.store.upsert(key, b"v", config(group_ids=["h"])), INVALID)
        self.assertEqual(self.store.get(key), value)
        self.assertEqual(self.store.upsert(key, b"w", config(group_ids=["g"])), 0)
        self.assertEqual(self.store.get(key), b"w")

    def test_ttl_without_enable(self):
        """1.6 upsert soft_pin_ttl_ms: with PRESERVE or DISABLE -600; 1.4 soft_pin_ttl_ms: of puts too."""
        for action in (SoftPinAction.PRESERVE, SoftPinAction.DISABLE):
            wrong = config(soft_pin_action=action, soft_pin_ttl_ms=1000)
            self.assertEqual(self.store.upsert(self.key(), b"v", wrong), INVALID)
            self.assertEqual(self.store.put(self.key(), b"v", wrong), INVALID)
        self.assert_absent(self.key())
        right = config(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=1000)
        self.assertEqual(self.store.upsert(self.key(), b"v", right), 0)

    def test_ttl_above_the_maximum(self):
        """1.4 soft_pin_ttl_ms: above the master's maximum (24 h) -600."""
        long = config(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=25 * 3600 * 1000)
        self.assertEqual(self.store.put(self.key(), b"v", long), INVALID)
        self.assert_absent(self.key())
        day = config(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=24 * 3600 * 1000)
        self.assertEqual(self.store.put(self.key(), b"v", day), 0)


if __name__ == "__main__":
    main()
