"""Reading and writing layer by layer (section 1.8 of the contract)."""

from contract_support import (EXISTS, INVALID, KIB, MIB, NO_SPACE, NOT_FOUND, OnPool, config, lease_over, main,
                              wheel_differs, value_of)
from mooncake.store import ReplicateConfig


class Reading(OnPool):
    def test_layer_by_layer(self):
        """1.8 batch_get_session_start, batch_get_into_multi_buffer_ranges, batch_get_session_end: SGLang's loop."""
        layers, size = 8, 1000
        keys = self.keys(5)
        values = [value_of(key, layers * size) for key in keys]
        self.assertEqual(self.store.put_batch(keys, values), 0)
        memory = self.memory(64 * KIB)
        self.assert_plain(self.store.batch_get_session_start(keys), [0] * 5)
        for layer in range(layers):
            at = [[memory.address + i * layers * size + layer * size] for i in range(5)]
            got = self.store.batch_get_into_multi_buffer_ranges(keys, at, [[size]] * 5, [[layer * size]] * 5)
            self.assert_plain(got, [size] * 5)
        self.assertEqual(self.store.batch_get_session_end(keys), 0)
        self.assertEqual([memory.read(layers * size, i * layers * size) for i in range(5)], values)

    def test_several_ranges_of_a_key(self):
        """1.8 batch_get_into_multi_buffer_ranges: bytes of this call, from any offsets in any order."""
        key, value = self.stored(length=5000)
        memory = self.memory(8 * KIB)
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        got = self.store.batch_get_into_multi_buffer_ranges([key], [[memory.address, memory.address + 4096]], [[100, 900]],
                                                            [[4900, 17]])
        self.assert_plain(got, [1000])
        self.assertEqual((memory.read(100), memory.read(900, 4096)), (value[4900:], value[17:917]))
        self.assertEqual(self.store.batch_get_session_end([key]), 0)

    def test_start_of_what_is_not_there(self):
        """1.8 batch_get_session_start: -704 for what is missing, others start."""
        key, _ = self.stored()
        self.assert_plain(self.store.batch_get_session_start([self.key("no"), key]), [NOT_FOUND, 0])
        self.assertEqual(self.store.batch_get_session_end([self.key("no"), key]), 0)

    def test_start_of_what_is_being_written(self):
        """1.8 batch_get_session_start: it needs a complete replica."""
        self.assert_plain(self.store.batch_put_session_start([self.key()], [5], ReplicateConfig()), [0])
        self.assertLess(self.store.batch_get_session_start([self.key()])[0], 0)
        self.assert_plain(self.store.batch_put_session_revoke([self.key()]), [0])

    def test_ranges_without_a_session(self):
        """1.8 batch_get_into_multi_buffer_ranges: a key without session is an error, others are read."""
        key, value = self.stored()
        other, _ = self.stored("other")
        memory = self.memory(4096)
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        got = self.store.batch_get_into_multi_buffer_ranges([other, key], [[memory.address], [memory.address + 1000]],
                                                            [[10], [1000]], [[0], [0]])
        self.assertLess(got[0], 0)
        self.assertEqual(got[1], 1000)
        self.assertEqual(memory.read(1000, 1000), value)
        self.assertEqual(self.store.batch_get_session_end([key]), 0)
        got = self.store.batch_get_into_multi_buffer_ranges([key], [[memory.address]], [[10]], [[0]])
        self.assertLess(got[0], 0)

    def test_ranges_beyond_the_value(self):
        """1.8 batch_get_into_multi_buffer_ranges: past the value is an error, nothing is written; so are shapes that disagree."""
        key, _ = self.stored(length=100)
        memory = self.memory(4096)
        memory.clear()
        at = memory.address
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        for sizes, sources in (([101], [0]), ([1], [100]), ([1], [(1 << 64) - 1]), ([10], [95])):
            self.assertLess(self.store.batch_get_into_multi_buffer_ranges([key], [[at]], [sizes], [sources])[0], 0)
        for addresses, sizes, sources in (([[at, at]], [[1]], [[0]]), ([[at]], [[1, 1]], [[0]]), ([[at]], [[1]], [[0, 0]]),
                                          ([], [[1]], [[0]]), ([[at]], [], [[0]]), ([[at]], [[1]], [])):
            got = self.store.batch_get_into_multi_buffer_ranges([key], addresses, sizes, sources)
            self.assertEqual(len(got), 1)
            self.assertLess(got[0], 0)
        self.assertEqual(memory.read(4096), b"\xee" * 4096)
        self.assertEqual(self.store.batch_get_session_end([key]), 0)

    def test_a_session_leases(self):
        """1.8 batch_get_session_start: grants a lease: remove is -706 until it is over."""
        key, _ = self.stored()
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        self.assertEqual(self.store.remove(key), -706)
        self.assertEqual(self.store.batch_get_session_end([key]), 0)
        self.eventually(0, lambda: self.store.remove(key), -706)

    def test_a_lease_that_is_over(self):
        """1.8 batch_get_into_multi_buffer_ranges: -707 when the lease has ended, then the session is dropped."""
        key, _ = self.stored()
        memory = self.memory(4096)
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        lease_over(self.pool)
        call = lambda: self.store.batch_get_into_multi_buffer_ranges([key], [[memory.address]], [[10]], [[0]])[0]  # noqa: E731
        self.assertEqual(call(), -707)
        self.assertLess(call(), 0)
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        self.assertEqual(call(), 10)
        self.assertEqual(self.store.batch_get_session_end([key]), 0)

    def test_end_of_what_was_not_started(self):
        """1.8 batch_get_session_end: 0."""
        self.assertEqual(self.store.batch_get_session_end([self.key()]), 0)
        self.assertEqual(self.store.batch_get_session_end([]), 0)

    def test_of_nothing(self):
        """1.8 batch_get_session_start, batch_put_session_start: [] -> []."""
        self.assert_plain(self.store.batch_get_session_start([]), [])
        self.assert_plain(self.store.batch_put_session_start([], [], ReplicateConfig()), [])
        self.assert_plain(self.store.batch_put_session_end([]), [])
        self.assert_plain(self.store.batch_put_session_revoke([]), [])


class Writing(OnPool):
    def start(self, keys, sizes, *how):
        return self.store.batch_put_session_start(keys, sizes, *(how or [ReplicateConfig()]))

    def test_layer_by_layer(self):
        """1.8 batch_put_session_start, batch_put_from_multi_buffer_ranges, batch_put_session_end: readable after the end, every byte."""
        layers, size = 6, 1000
        keys = self.keys(4)
        values = [value_of(key, layers * size) for key in keys]
        memory = self.memory(64 * KIB)
        self.assert_plain(self.start(keys, [layers * size] * 4), [0] * 4)
        for layer in reversed(range(layers)):
            at = [[memory.write(value[layer * size:(layer + 1) * size], i * size)] for i, value in enumerate(values)]
            got = self.store.batch_put_from_multi_buffer_ranges(keys, at, [[size]] * 4, [[layer * size]] * 4)
            self.assert_plain(got, [size] * 4)
            self.assertEqual(self.store.get(keys[0]), b"")
        self.assert_plain(self.store.batch_put_session_end(keys), [0] * 4)
        self.assertEqual(self.store.get_batch(keys), values)

    def test_without_config(self):
        """1.8 batch_put_session_start: config has a default."""
        self.assert_plain(self.store.batch_put_session_start([self.key()], [5]), [0])
        self.assert_plain(self.store.batch_put_session_revoke([self.key()]), [0])

    def test_of_a_key_that_exists(self):
        """1.8 batch_put_session_start, trap 1: an existing key is -705, not 0."""
        key, value = self.stored()
        self.assert_plain(self.start([key, self.key("new")], [10, 10]), [EXISTS, 0])
        self.assert_plain(self.store.batch_put_session_revoke([self.key("new")]), [0])
        self.assertEqual(self.store.get(key), value)

    def test_a_second_start(self):
        """1.8 batch_put_session_start: a second start of the same key is -600; the first session continues."""
        self.assert_plain(self.start([self.key()], [5]), [0])
        self.assert_plain(self.start([self.key()], [5]), [INVALID])
        at = self.memory(KIB).write(b"value")
        self.assert_plain(self.store.batch_put_from_multi_buffer_ranges([self.key()], [[at]], [[5]], [[0]]), [5])
        self.assert_plain(self.store.batch_put_session_end([self.key()]), [0])
        self.assertEqual(self.store.get(self.key()), b"value")

    def test_revoke(self):
        """1.8 batch_put_session_revoke: releases the space; without session -600; the key can be put afterwards."""
        keys = self.keys(2)
        for _ in range(4):  # 4 x 2 x 24 MiB in 64
            self.assert_plain(self.start(keys, [24 * MIB] * 2), [0, 0])
            self.assert_plain(self.store.batch_put_session_revoke(keys), [0, 0])
        self.assert_plain(self.store.batch_put_session_revoke(keys), [INVALID, INVALID])
        self.assert_plain(self.store.batch_put_session_end(keys[:1]), [INVALID])
        self.assert_absent(keys[0])
        self.assertEqual(self.store.put(keys[0], b"v"), 0)
        self.assertEqual(self.store.get(keys[0]), b"v")

    def test_no_space(self):
        """1.8 batch_put_session_start: reserves the space: -200 when there is none."""
        self.assert_plain(self.start(self.keys(2), [self.segment + MIB, 10]), [NO_SPACE, 0])
        self.assert_plain(self.store.batch_put_session_revoke(self.keys(2)), [INVALID, 0])

    def test_sizes_that_are_none(self):
        """1.8 batch_put_session_start: size 0, an empty key and lengths that differ are refused."""
        self.assertLess(self.start([self.key()], [0])[0], 0)
        self.assertLess(self.start([""], [5])[0], 0)
        codes = self.start(self.keys(2), [5])
        self.assert_plain(codes, [INVALID] * 2)
        with self.assertRaises(TypeError):
            self.start([self.key()], [-1])
        self.assert_plain(self.store.batch_is_exist([self.key(), *self.keys(2)]), [0] * 3)

    def test_ranges_beyond_the_size(self):
        """1.8 batch_put_from_multi_buffer_ranges: past the size is an error; others are written."""
        keys = self.keys(2)
        at = self.memory(KIB).write(b"v" * 100)
        self.assert_plain(self.start(keys, [10, 10]), [0, 0])
        for sizes, targets in (([11], [0]), ([1], [10]), ([5], [6]), ([1], [(1 << 64) - 1])):
            got = self.store.batch_put_from_multi_buffer_ranges(keys, [[at], [at]], [sizes, [10]], [targets, [0]])
            self.assertLess(got[0], 0)
            self.assertEqual(got[1], 10)
        self.assert_plain(self.store.batch_put_session_revoke(keys[:1]), [0])
        self.assert_plain(self.store.batch_put_session_end(keys[1:]), [0])
        self.assertEqual(self.store.get(keys[1]), b"v" * 10)

    def test_ranges_without_a_session(self):
        """1.8 batch_put_from_multi_buffer_ranges: without session an error, and nothing is stored."""
        at = self.memory(KIB).write(b"v" * 100)
        self.assertLess(self.store.batch_put_from_multi_buffer_ranges([self.key()], [[at]], [[10]], [[0]])[0], 0)
        self.assert_absent(self.key())

    def test_sessions_take_terms(self):
        """1.8 batch_put_session_start: prefer_alloc_in_same_node is accepted, groups are one a key."""
        self.assert_plain(self.start([self.key("s")], [5], config(prefer_alloc_in_same_node=True)), [0])
        self.assert_plain(self.store.batch_put_session_revoke([self.key("s")]), [0])
        self.assert_plain(self.start(self.keys(2), [5, 5], config(group_ids=["g", "g"])), [0, 0])
        self.assert_plain(self.store.batch_put_session_end(self.keys(2)), [0, 0])

    def test_sessions_of_two_stores(self):
        """1.8 batch_put_session_start: another store's session cannot be ended by this one."""
        other = self.opened(0)
        self.assert_plain(other.batch_put_session_start([self.key()], [5], ReplicateConfig()), [0])
        self.assertLess(self.store.batch_put_session_end([self.key()])[0], 0)
        self.assertLess(self.store.batch_put_session_revoke([self.key()])[0], 0)
        self.assert_plain(other.batch_put_session_end([self.key()]), [0])
        self.assertEqual(len(self.store.get(self.key())), 5)

    @wheel_differs("they block their keys for 30 s")
    def test_close_gives_up_what_was_begun(self):
        """1.8 batch_put_session_start: close() revokes; the key can be put immediately."""
        other = self.opened(0)
        self.assert_plain(other.batch_put_session_start([self.key()], [5], ReplicateConfig()), [0])
        self.assertEqual(other.close(), 0)
        self.assertEqual(self.store.put(self.key(), b"mine"), 0)
        self.assertEqual(self.store.get(self.key()), b"mine")


if __name__ == "__main__":
    main()
