"""Every call that reads: results, bytes, and what does not change when it fails (section 1.7 of the contract)."""

import gc
import os
import sys

from contract_support import (INVALID, KIB, MIB, NOT_FOUND, NOT_READY, Memory, OnPool, main, wheel_differs, unlike_mooncake,
                              value_of, wait_until)
from mooncake.store import ReplicateConfig


class Copies(OnPool):
    """Calls that return bytes and handles."""

    def test_get(self):
        """1.7 get: bytes."""
        key, value = self.stored(length=100_000)
        self.assertIs(type(self.store.get(key)), bytes)
        self.assertEqual(self.store.get(key), value)

    def test_get_of_what_is_not_there(self):
        """1.7 get, trap 2: b"" for a missing key and for every failure."""
        self.assertEqual(self.store.get(self.key()), b"")
        self.assertEqual(self.store.get(""), b"")
        self.assert_plain(self.store.batch_put_session_start([self.key()], [5], ReplicateConfig()), [0])
        self.assertEqual(self.store.get(self.key()), b"")
        self.assert_plain(self.store.batch_put_session_revoke([self.key()]), [0])
        key, value = self.stored("large", 2 * MIB)
        small = self.opened(0, MIB)
        self.assertIn(small.get(key), (b"", value))  # larger than the staging memory

    def test_get_without_staging(self):
        """1.7 get, trap 9: a store without local buffer answers b"" or the bytes, and get_into works."""
        key, value = self.stored()
        bare = self.opened(0, 0)
        self.assertIn(bare.get(key), (b"", value))
        memory = self.memory(4096, bare)
        self.assertEqual(bare.get_into(key, memory.address, 4096), len(value))
        self.assertEqual(memory.read(len(value)), value)

    def test_get_batch(self):
        """1.7 get_batch, trap 4: b"" for keys that failed; [b""] for no keys."""
        key, value = self.stored()
        self.assertEqual(self.store.get_batch([self.key("no"), key, self.key("no2"), key]), [b"", value, b"", value])
        self.assertEqual(self.store.get_batch([]), [b""])

    def test_get_buffer(self):
        """1.7 get_buffer: a BufferHandle; None for a missing key."""
        key, value = self.stored(length=10_000)
        handle = self.store.get_buffer(key)
        self.assertEqual((handle.size(), len(handle), bytes(handle)), (len(value), len(value), value))
        self.assertIs(type(handle.ptr()), int)
        self.assertNotEqual(handle.ptr(), 0)
        self.assertIsNone(self.store.get_buffer(self.key("no")))

    def test_buffer_protocol(self):
        """1.7 BufferHandle: one dimension, items of one byte, ptr() is the address of the bytes."""
        import ctypes

        key, value = self.stored(length=1000)
        handle = self.store.get_buffer(key)
        view = memoryview(handle)
        self.assertEqual((view.ndim, view.itemsize, view.nbytes, view.contiguous), (1, 1, 1000, True))
        self.assertEqual((view.format, view.shape, view.strides), ("b", (1000,), (1,)))
        self.assertEqual(ctypes.string_at(handle.ptr(), handle.size()), value)
        self.assertEqual(view.tobytes(), value)

    @unlike_mooncake("its handles are all private copies")
    def test_shared_bytes_are_read_only(self):
        """1.7 BufferHandle: a shared value is read-only: writing through a view is refused; a copy may be written."""
        key, value = self.stored(length=1000)
        shared = memoryview(self.store.get_buffer(key))
        self.assertTrue(shared.readonly)
        with self.assertRaises(TypeError):
            shared[0] = 1
        keys = self.keys(100, "many")
        self.assertEqual(self.store.put_batch(keys, [b"%d" % i for i in range(100)]), 0)
        os.environ["SLUICE_CLIENT_PINS_MAX"] = "16"
        self.addCleanup(os.environ.pop, "SLUICE_CLIENT_PINS_MAX")
        handles = self.opened(0).batch_get_buffer(keys)  # more than there are pins: the rest are copies
        views = [memoryview(handle) for handle in handles]
        self.assertEqual({view.format for view in views}, {"b"})
        copies = [i for i, view in enumerate(views) if not view.readonly]
        self.assertNotEqual(copies, [])
        views[copies[0]].cast("B")[:] = bytes(len(views[copies[0]]))
        self.assertEqual(bytes(handles[copies[0]]), bytes(len(views[copies[0]])))
        self.assertEqual(self.store.get(keys[copies[0]]), b"%d" % copies[0])

    def test_a_view_keeps_the_memory(self):
        """1.7 BufferHandle: any view keeps the memory, also after removal and after the handle."""
        key, value = self.stored(length=MIB)
        view = memoryview(self.store.get_buffer(key))
        gc.collect()
        self.assertEqual(self.store.remove(key, True), 0)
        for number in range(80):  # fills the segment over
            self.store.put(self.key(f"f{number}"), bytes(MIB))
        self.assertEqual(view.tobytes(), value)
        self.store.remove_by_regex("/f[0-9]+$", True)

    @unlike_mooncake("the memory is the store's, which is gone")
    def test_a_handle_outlives_its_store(self):
        """1.7 BufferHandle: bytes stay readable after the store was closed."""
        key, value = self.stored(length=MIB)
        one = self.opened(0)
        handle = one.get_buffer(key)
        view = memoryview(handle)
        self.assertEqual(one.close(), 0)
        del one
        gc.collect()
        self.assertEqual(bytes(handle), value)
        self.assertEqual(view.tobytes(), value)

    def test_staging_returns_with_the_handle(self):
        """1.7 get_buffer: memory is released when the handle is collected."""
        key, value = self.stored(length=4 * MIB)
        for _ in range(20):  # 80 MiB through 16
            handle = self.store.get_buffer(key)
            self.assertIsNotNone(handle)
            self.assertEqual(bytes(memoryview(handle)[:10]), value[:10])
            del handle

    def test_batch_get_buffer(self):
        """1.7 batch_get_buffer, trap 4: None for what is missing, others unaffected; [] -> []."""
        first, value = self.stored("a", 5000)
        second, other = self.stored("b", 1)
        handles = self.store.batch_get_buffer([first, self.key("no"), second])
        self.assertIs(type(handles), list)
        self.assertIsNone(handles[1])
        self.assertEqual((bytes(handles[0]), bytes(handles[2])), (value, other))
        self.assertEqual(self.store.batch_get_buffer([]), [])

    def test_handles_are_counted(self):
        """1.7 BufferHandle: thousands are made and deleted without a leak."""
        key, _ = self.stored(length=100)
        before = sys.getallocatedblocks()
        for _ in range(2000):
            memoryview(self.store.get_buffer(key)).release()
        gc.collect()
        self.assertLess(sys.getallocatedblocks() - before, 500)


class Into(OnPool):
    def test_get_into(self):
        """1.7 get_into: bytes read; the bytes after the value do not change."""
        memory = self.memory(64 * KIB)
        for size in (1, 63, 4096, 40_001):
            key, value = self.stored(str(size), size)
            memory.clear()
            got = self.store.get_into(key, memory.address + 100, memory.length - 100)
            self.assertEqual((type(got), got), (int, size))
            self.assertEqual(memory.read(100), b"\xee" * 100)
            self.assertEqual(memory.read(size + 50, 100), value + b"\xee" * 50)

    def test_get_into_exactly(self):
        """1.7 get_into: a buffer of the value's size."""
        key, value = self.stored(length=4096)
        memory = self.memory(4096)
        self.assertEqual(self.store.get_into(key, memory.address, 4096), 4096)
        self.assertEqual(memory.read(4096), value)

    def test_get_into_that_fails(self):
        """1.7 get_into: -704 missing, -600 when the buffer is smaller than the value; nothing is written."""
        memory = self.memory(4096)
        memory.clear()
        self.assertEqual(self.store.get_into(self.key(), memory.address, 4096), NOT_FOUND)
        key, _ = self.stored(length=1000)
        for size in (0, 1, 999):
            self.assertEqual(self.store.get_into(key, memory.address, size), INVALID)
        self.assertEqual(memory.read(4096), b"\xee" * 4096)

    def test_get_into_of_what_is_being_written(self):
        """1.7 get_into: -703 not ready."""
        key = self.key()
        memory = self.memory(4096)
        self.assert_plain(self.store.batch_put_session_start([key], [5], ReplicateConfig()), [0])
        self.eventually(NOT_READY, lambda: self.store.get_into(key, memory.address, 4096), NOT_FOUND)
        self.eventually([NOT_READY], lambda: self.store.batch_get_into([key], [memory.address], [4096]), [NOT_FOUND])
        self.eventually([NOT_READY], lambda: self.store.batch_get_into_multi_buffers([key], [[memory.address]], [[4096]]), [NOT_FOUND])
        self.assert_plain(self.store.batch_put_session_revoke([key]), [0])
        self.assertEqual(self.store.get_into(key, memory.address, 4096), NOT_FOUND)

    def test_batch_get_into(self):
        """1.7 batch_get_into: per key, a real list of plain ints (trap 13)."""
        small, value = self.stored("a", 10)
        large, other = self.stored("b", 1000)
        memory = self.memory(4096)
        memory.clear()
        at = memory.address
        got = self.store.batch_get_into([small, self.key("no"), large, large], [at, at + 100, at + 200, at + 1200],
                                        [100, 100, 1000, 999])
        self.assert_plain(got, [10, NOT_FOUND, 1000, INVALID])
        self.assertEqual(memory.read(10), value)
        self.assertEqual(memory.read(100, 100), b"\xee" * 100)
        self.assertEqual(memory.read(1000, 200), other)
        self.assertEqual(memory.read(1000, 1200), b"\xee" * 1000)

    def test_batch_get_into_of_different_lengths(self):
        """1.7 batch_get_into, trap 3: all -600, as many as keys; [] -> []."""
        keys = [self.stored(name)[0] for name in "abc"]
        at = self.memory(4096).address
        for addresses, sizes in (([at], [1000] * 3), ([at] * 3, [1000]), ([], []), ([at] * 4, [1000] * 4)):
            self.assert_plain(self.store.batch_get_into(keys, addresses, sizes), [INVALID] * 3)
        self.assert_plain(self.store.batch_get_into([], [], []), [])

    def test_batch_get_into_of_many(self):
        """1.7 batch_get_into: a thousand keys of different sizes."""
        keys = self.keys(1000)
        values = [value_of(key, 1 + i) for i, key in enumerate(keys)]
        self.assertEqual(self.store.put_batch(keys, values), 0)
        memory = self.memory(1024 * 1000)
        got = self.store.batch_get_into(keys, [memory.address + 1024 * i for i in range(1000)], [1024] * 1000)
        self.assert_plain(got, [len(value) for value in values])
        self.assertEqual([memory.read(len(value), 1024 * i) for i, value in enumerate(values)], values)

    def test_multi_buffers(self):
        """1.7 batch_get_into_multi_buffers: success = the value's size, scattered in the order of the list."""
        value = value_of("multi", 10_000)
        key = self.key()
        self.assertEqual(self.store.put(key, value), 0)
        memory = self.memory(64 * KIB)
        sizes = [1, 4095, 0, 4097, 1807]
        offsets = [60_000, 100, 7, 8192, 20_000]
        got = self.store.batch_get_into_multi_buffers([key, self.key("no")],
                                                      [[memory.address + at for at in offsets], [memory.address + 40_000]],
                                                      [sizes, [100]])
        self.assert_plain(got, [10_000, NOT_FOUND])
        self.assertEqual(b"".join(memory.read(size, at) for at, size in zip(offsets, sizes)), value)

    @wheel_differs("-800")
    def test_multi_buffers_that_are_larger(self):
        """1.7 batch_get_into_multi_buffers: a larger scatter list is accepted, its rest does not change."""
        key, value = self.stored(length=100)
        memory = self.memory(4096)
        memory.clear()
        at = memory.address
        sizes = [60, 60, 60]
        got = self.store.batch_get_into_multi_buffers([key], [[at, at + 1000, at + 2000]], [sizes])
        self.assert_plain(got, [100])
        self.assertEqual(memory.read(60) + memory.read(40, 1000), value)
        self.assertEqual(memory.read(20, 1040), b"\xee" * 20)
        self.assertEqual(memory.read(60, 2000), b"\xee" * 60)

    def test_multi_buffers_that_are_too_small(self):
        """1.7 batch_get_into_multi_buffers: -600 if the sizes sum to less than the value; nothing is written, others are."""
        keys = [self.stored(name, 100)[0] for name in "ab"]
        memory = self.memory(4096)
        memory.clear()
        at = memory.address
        got = self.store.batch_get_into_multi_buffers(keys, [[at, at + 50], [at + 200]], [[50, 49], [100]])
        self.assert_plain(got, [INVALID, 100])
        self.assertEqual(memory.read(200), b"\xee" * 200)
        self.assertEqual(memory.read(100, 200), value_of(keys[1], 100))

    def test_multi_buffers_of_different_lengths(self):
        """1.7 batch_get_into_multi_buffers, trap 3: -600 each; [] -> []; by an existing keyword."""
        keys = [self.stored(name)[0] for name in "ab"]
        at = self.memory(4096).address
        for addresses, sizes in (([[at]], [[1000]] * 2), ([[at]] * 2, [[1000]]), ([], [])):
            self.assert_plain(self.store.batch_get_into_multi_buffers(keys, addresses, sizes), [INVALID] * 2)
        self.assert_plain(self.store.batch_get_into_multi_buffers([], [], []), [])
        self.assert_plain(self.store.batch_get_into_multi_buffers(keys[:1], [[at]], [[1000]],
                                                                  prefer_alloc_in_same_node=False), [1000])

    @unlike_mooncake("it reads beyond the shorter list")
    def test_multi_buffers_of_one_key_that_differ(self):
        """1.7 batch_get_into_multi_buffers: addresses and sizes of one key that differ: -600 for it."""
        keys = [self.stored(name, 10)[0] for name in "ab"]
        at = self.memory(4096).address
        self.assert_plain(self.store.batch_get_into_multi_buffers(keys, [[at], [at, at]], [[10], [10]]), [10, INVALID])

    def test_same_node_at_reads(self):
        """1.7 batch_get_into_multi_buffers: with prefer_alloc_in_same_node it reads values that were stored with it."""
        key = self.key()
        memory = self.memory(4096)
        at = memory.write(value_of(key, 300))
        same = ReplicateConfig()
        same.prefer_alloc_in_same_node = True
        self.assert_plain(self.store.batch_put_from_multi_buffers([key], [[at, at + 100]], [[100, 200]], same), [0])
        got = self.store.batch_get_into_multi_buffers([key], [[at + 1000, at + 2000]], [[100, 200]], True)
        self.assert_plain(got, [300])
        self.assertEqual(memory.read(100, 1000) + memory.read(200, 2000), value_of(key, 300))

    def test_wrong_types(self):
        """1.7 get_into, batch_get_into, batch_get_into_multi_buffers: TypeError for wrong types and negative numbers."""
        key, _ = self.stored()
        at = self.memory(4096).address
        store = self.store
        for call in (lambda: store.get_into(1, at, 10), lambda: store.get_into(key, "a", 10),
                     lambda: store.get_into(key, at, -1), lambda: store.get_into(key, -at, 10),
                     lambda: store.batch_get_into(key, [at], [10]), lambda: store.batch_get_into([key], [at], [-1]),
                     lambda: store.batch_get_into([key], [None], [1]), lambda: store.get(None), lambda: store.get_batch("k"),
                     lambda: store.batch_get_into_multi_buffers([key], [at], [10]),
                     lambda: store.batch_get_into_multi_buffers([key], [[at]], [[-1]])):
            with self.assertRaises(TypeError):
                call()

    def test_registration_is_not_checked(self):
        """1.7 registration: get_into and batch_get_into_multi_buffers work on memory of the process that was never
        registered; 1.10 register_buffer."""
        key, value = self.stored()
        memory = Memory(4096)
        self.assertIn(self.store.get_into(key, memory.address, 4096), (1000, -800))
        self.assertIn(self.store.batch_get_into_multi_buffers([key], [[memory.address]], [[4096]]), ([1000], [-800]))

    def test_another_process_memory_is_read(self):
        """1.7 get_into: values of a second store of this process, also when that is closed."""
        other = self.opened(0)
        key = self.key()
        self.assertEqual(other.put(key, b"of the other"), 0)
        self.assertEqual(other.close(), 0)
        self.assertEqual(self.store.get(key), b"of the other")


class Ranges(OnPool):
    """get_into_ranges: buffers -> keys of that buffer -> fragments of that key."""

    def test_fragments(self):
        """1.7 get_into_ranges: bytes copied, in the shape of all_dst_offsets."""
        first, a = self.stored("a", 1000)
        second, b = self.stored("b", 500)
        one, two = self.memory(4096), self.memory(4096)
        got = self.store.get_into_ranges([one.address, two.address], [[first, second], [second]],
                                         [[[0, 200], [1000]], [[7]]], [[[900, 0], [499]], [[100]]],
                                         [[[100, 50], [1]], [[300]]])
        self.assertEqual(got, [[[100, 50], [1]], [[300]]])
        self.assertEqual(one.read(100), a[900:])
        self.assertEqual(one.read(50, 200), a[:50])
        self.assertEqual(one.read(1, 1000), b[499:])
        self.assertEqual(two.read(300, 7), b[100:400])

    def test_missing_keys(self):
        """1.7 get_into_ranges: missing key: its fragments -704, other keys fine."""
        key, value = self.stored(length=100)
        memory = self.memory(4096)
        got = self.store.get_into_ranges([memory.address], [[self.key("no"), key]], [[[0, 10], [100]]], [[[0, 0], [0]]],
                                         [[[10, 10], [100]]])
        self.assertEqual(got, [[[NOT_FOUND, NOT_FOUND], [100]]])
        self.assertEqual(memory.read(100, 100), value)

    def test_beyond_the_value_or_the_buffer(self):
        """1.7 get_into_ranges: a fragment past the value or past the buffer is negative, and nothing is written past them."""
        key, value = self.stored(length=100)
        memory = self.memory(4096)
        memory.clear()
        got = self.store.get_into_ranges([memory.address], [[key, key, key]], [[[0], [4090], [10]]], [[[50], [0], [101]]],
                                         [[[51], [100], [1]]])
        self.assertTrue(all(one[0] < 0 for one in got[0]), got)
        self.assertEqual(memory.read(4096), b"\xee" * 4096)
        huge = (1 << 64) - 10
        got = self.store.get_into_ranges([memory.address], [[key, key, key]], [[[0], [huge], [0]]], [[[huge], [0], [0]]],
                                         [[[100], [100], [huge]]])
        self.assertTrue(all(one[0] < 0 for one in got[0]), got)

    def test_shapes_that_disagree(self):
        """1.7 get_into_ranges: where shapes disagree for a key all of its fragments are negative, others are fine."""
        keys = [self.stored(name, 100)[0] for name in "ab"]
        memory = self.memory(4096)
        got = self.store.get_into_ranges([memory.address], [keys], [[[0, 10], [200]]], [[[0], [0]]], [[[10, 10], [100]]])
        self.assertEqual((len(got), len(got[0]), got[0][1]), (1, 2, [100]))
        self.assertEqual(len(got[0][0]), 2)
        self.assertTrue(all(one < 0 for one in got[0][0]), got)

    def test_memory_that_is_not_registered(self):
        """1.7 get_into_ranges: -600 for a buffer of unknown size."""
        key, _ = self.stored(length=100)
        memory = Memory(4096)
        self.assertEqual(self.store.get_into_ranges([memory.address], [[key]], [[[0]]], [[[0]]], [[[10]]]), [[[INVALID]]])

    def test_a_buffer_inside_a_registered_one(self):
        """1.7 get_into_ranges: an address inside of a registered buffer extends to its end."""
        key, value = self.stored(length=100)
        memory = self.memory(4096)
        got = self.store.get_into_ranges([memory.address + 4000], [[key, key]], [[[0], [0]]], [[[0], [0]]], [[[96], [97]]])
        self.assertEqual(got[0][0], [96])
        self.assertLess(got[0][1][0], 0)
        self.assertEqual(memory.read(96, 4000), value[:96])

    def test_of_nothing(self):
        """1.7 get_into_ranges: without buffers, keys, or fragments."""
        self.assertEqual(self.store.get_into_ranges([], [], [], [], []), [])
        at = self.memory(4096).address
        self.assertEqual(self.store.get_into_ranges([at], [[]], [[]], [[]], [[]]), [[]])

    def test_negative_numbers(self):
        """1.7 get_into_ranges: TypeError."""
        key, _ = self.stored()
        at = self.memory(4096).address
        for dst, src, size in ((-1, 0, 1), (0, -1, 1), (0, 0, -1)):
            with self.assertRaises(TypeError):
                self.store.get_into_ranges([at], [[key]], [[[dst]]], [[[src]]], [[[size]]])


class Replicas(OnPool):
    def test_a_value_is_read_wherever_it_lies(self):
        """1.7 replica choice: a value in one process's memory is read by all, and lost with that process."""
        other = self.opened(64 * MIB)
        there = ReplicateConfig()
        there.preferred_segment = other.get_hostname()
        key, value = self.stored(config=there)
        reader = self.opened(0)
        memory = self.memory(4096, reader)
        self.assertEqual((self.store.get(key), other.get(key)), (value, value))
        self.assertEqual(reader.get_into(key, memory.address, 4096), 1000)
        other.close()
        self.assertEqual(self.store.is_exist(key), 0)


if __name__ == "__main__":
    main()
