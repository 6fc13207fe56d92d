"""Existence, size and removal (section 1.9 of the contract)."""

import time

from contract_support import INVALID, LEASED, MIB, NOT_FOUND, NOT_READY, Child, OnPool, config, lease_over, main, say
from mooncake.store import MooncakeDistributedStore, ReplicateConfig


class Looking(OnPool):
    def test_is_exist(self):
        """1.9 is_exist, trap 13: plain ints 1 and 0."""
        key, _ = self.stored()
        self.assertEqual([type(self.store.is_exist(key)), self.store.is_exist(key)], [int, 1])
        self.assertEqual([type(self.store.is_exist(self.key("no"))), self.store.is_exist(self.key("no"))], [int, 0])

    def test_is_exist_of_what_is_being_written(self):
        """1.9 is_exist: 0 until it is readable."""
        key = self.key()
        self.assert_plain(self.store.batch_put_session_start([key], [5], ReplicateConfig()), [0])
        self.assertEqual(self.store.is_exist(key), 0)
        self.assert_plain(self.store.batch_is_exist([key]), [0])
        self.assert_plain(self.store.batch_put_session_end([key]), [0])
        self.assertEqual(self.store.is_exist(key), 1)

    def test_batch_is_exist(self):
        """1.9 batch_is_exist, trap 4: list of ints; [] -> []."""
        key, _ = self.stored()
        self.assert_plain(self.store.batch_is_exist([key, self.key("no"), key]), [1, 0, 1])
        self.assert_plain(self.store.batch_is_exist([]), [])
        for wrong in ("k", [1], None):
            with self.assertRaises(TypeError):
                self.store.batch_is_exist(wrong)

    def test_get_size(self):
        """1.9 get_size: bytes; -704 for what is missing."""
        key, _ = self.stored(length=12345)
        self.assertEqual(self.store.get_size(key), 12345)
        self.assertEqual(self.store.get_size(self.key("no")), NOT_FOUND)

    def test_look_ups_lease(self):
        """1.9 is_exist, batch_is_exist, get_size, 1.11 lease, trap 10: each lookup leases: remove is -706, and 0 after one TTL."""
        memory = self.memory(4096)
        store = self.store
        looks = {
            "is_exist": store.is_exist, "batch_is_exist": lambda key: store.batch_is_exist([key]), "get_size": store.get_size,
            "get": store.get, "get_batch": lambda key: store.get_batch([key]),
            "get_into": lambda key: store.get_into(key, memory.address, 4096),
            "batch_get_into": lambda key: store.batch_get_into([key], [memory.address], [4096]),
            "batch_get_into_multi_buffers": lambda key: store.batch_get_into_multi_buffers([key], [[memory.address]], [[4096]]),
            "get_into_ranges": lambda key: store.get_into_ranges([memory.address], [[key]], [[[0]]], [[[0]]], [[[1]]]),
            "get_replica_desc": store.get_replica_desc, "batch_get_replica_desc": lambda key: store.batch_get_replica_desc([key]),
        }
        keys = {name: self.stored(name)[0] for name in looks}
        for name, look in looks.items():
            look(keys[name])
            self.assertEqual(store.remove(keys[name]), LEASED, name)
        lease_over(self.pool)
        for name, key in keys.items():
            self.assertEqual(store.remove(key), 0, name)

    def test_look_ups_of_another_store_lease_too(self):
        """1.9 remove: -706 whichever store leased."""
        other = self.opened(0)
        key, _ = self.stored()
        self.assertEqual(other.is_exist(key), 1)
        self.assertEqual(self.store.remove(key), LEASED)
        self.assertEqual(other.remove(key), LEASED)

    def test_leases_are_renewed(self):
        """1.9 is_exist: a second lookup prolongs the lease."""
        key, _ = self.stored()
        for _ in range(8):
            self.assertEqual(self.store.is_exist(key), 1)
            self.assertEqual(self.store.remove(key), LEASED)
            time.sleep(self.pool.lease_ms / 1000 / 4)
        self.eventually(0, lambda: self.store.remove(key), LEASED)


def child_puts(address, key):
    one = MooncakeDistributedStore()
    one.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", address)
    say(one.put(key, b"v"))


class Removing(OnPool):
    def test_remove(self):
        """1.9 remove: 0 and the key does not exist any more, -704 for a missing key; also with force."""
        for force in (False, True):
            key, _ = self.stored(str(force))
            self.assertEqual(self.store.remove(key, force), 0)
            self.assert_absent(key)
            self.assertEqual(self.store.remove(key, force), NOT_FOUND)
        self.assertEqual(self.store.remove(key=self.key("no"), force=True), NOT_FOUND)

    def test_remove_of_what_is_leased(self):
        """1.9 remove, trap 10: -706 for a leased key, which stays; force ignores the lease."""
        key, value = self.stored()
        self.assertEqual(self.store.is_exist(key), 1)
        self.assertEqual(self.store.remove(key), LEASED)
        self.assertEqual(self.store.get(key), value)
        self.assertEqual(self.store.remove(key, force=True), 0)
        self.assert_absent(key)

    def test_remove_of_what_is_being_written(self):
        """1.9 remove: -703 incomplete, even with force."""
        key = self.key()
        self.assert_plain(self.store.batch_put_session_start([key], [5], ReplicateConfig()), [0])
        for force in (False, True):
            self.assertEqual(self.store.remove(key, force), NOT_READY)
            self.assert_plain(self.store.batch_remove([key], force), [NOT_READY])
        self.assert_plain(self.store.batch_put_session_end([key]), [0])
        self.assertEqual(self.store.remove(key), 0)

    def test_put_after_remove(self):
        """1.9 remove: the key can be put again."""
        key, _ = self.stored()
        for number in range(20):
            self.assertEqual(self.store.remove(key, True), 0)
            self.assertEqual(self.store.put(key, str(number).encode()), 0)
            self.assertEqual(self.store.get(key), str(number).encode())

    def test_batch_remove(self):
        """1.9 batch_remove: like remove, for each key."""
        key, _ = self.stored("a")
        leased, value = self.stored("b")
        self.assertEqual(self.store.is_exist(leased), 1)
        self.assert_plain(self.store.batch_remove([key, self.key("no"), leased]), [0, NOT_FOUND, LEASED])
        self.assertEqual(self.store.get(leased), value)
        self.assert_plain(self.store.batch_remove([leased], force=True), [0])
        self.assert_plain(self.store.batch_remove([]), [])

    def test_batch_remove_with_a_key_twice(self):
        """1.9 batch_remove: the second of the same key is -704."""
        key, _ = self.stored()
        codes = self.store.batch_remove([key, key], True)
        self.assertEqual(sorted(codes), [NOT_FOUND, 0])

    def test_remove_all(self):
        """1.9 remove_all: number removed; leased ones stay unless forced."""
        self.store.remove_all(True)
        keys = [self.stored(str(number))[0] for number in range(10)]
        self.assertEqual(self.store.is_exist(keys[0]), 1)
        self.assertEqual(self.store.remove_all(), 9)
        self.assertEqual(self.store.is_exist(keys[0]), 1)
        self.assertEqual(self.store.remove_all(force=True), 1)
        self.assertEqual(self.store.remove_all(True), 0)
        self.assert_plain(self.store.batch_is_exist(keys), [0] * 10)

    def test_remove_by_regex(self):
        """1.9 remove_by_regex: number removed; search, not full match; ECMAScript syntax."""
        prefix = self.key("")
        for name in ("a1", "a22", "b1", "xa1", "c.d", "cxd"):
            self.assertEqual(self.store.put(prefix + name, b"v"), 0)
        for pattern, count in ((r"no such thing", 0), (r"a\d{2}$", 1), (r"/xa", 1), (r"^" + prefix + r"a\d", 1),
                               (r"c\.d$", 1), (prefix + r"(?:b|c)", 2), (prefix, 0)):
            self.assertEqual(self.store.remove_by_regex(pattern), count, pattern)

    def test_remove_by_regex_of_a_bad_pattern(self):
        """1.9 remove_by_regex: bad pattern -600, nothing is removed."""
        key, value = self.stored()
        for pattern in ("(", "[", "*", "a{2,1}"):
            self.assertEqual(self.store.remove_by_regex(pattern), INVALID, pattern)
            self.assertEqual(self.store.remove_by_regex(pattern, True), INVALID, pattern)
        self.assertEqual(self.store.get(key), value)

    def test_remove_by_regex_and_leases(self):
        """1.9 remove_by_regex: leased and incomplete ones are skipped; force takes leased ones."""
        leased, _ = self.stored("leased")
        self.stored("free")
        self.assert_plain(self.store.batch_put_session_start([self.key("begun")], [5], ReplicateConfig()), [0])
        self.assertEqual(self.store.is_exist(leased), 1)
        pattern = "test_remove_by_regex_and_leases"
        self.assertEqual(self.store.remove_by_regex(pattern), 1)
        self.assertEqual(self.store.remove_by_regex(pattern, force=True), 1)
        self.assert_plain(self.store.batch_put_session_end([self.key("begun")]), [0])
        self.assertEqual(self.store.is_exist(self.key("begun")), 1)

    def test_batch_replica_clear(self):
        """1.9 batch_replica_clear: the cleared keys: those that this process wrote (the reference: this client), without lease."""
        mine, _ = self.stored("mine")
        leased, _ = self.stored("leased")
        theirs = self.key("theirs")
        with Child(child_puts, self.pool.address, theirs, pool=self.pool) as child:
            self.assertEqual(child.child_line(), 0)
        self.assertEqual(self.store.is_exist(leased), 1)
        keys = [mine, leased, theirs, self.key("no")]
        self.assertEqual(self.store.batch_replica_clear(keys), [mine])
        self.assert_plain(self.store.batch_is_exist(keys), [0, 1, 1, 0])

    def test_batch_replica_clear_of_a_segment(self):
        """1.9 batch_replica_clear: with a segment's name only the values in it."""
        other = self.opened(64 * MIB)
        key, value = self.stored(config=config(preferred_segment=other.get_hostname()))
        lease_over(self.pool)
        for name in (self.store.get_hostname(), "nowhere:1"):
            self.assertEqual(self.store.batch_replica_clear([key], name), [])
        self.assertEqual(self.store.get(key), value)
        lease_over(self.pool)
        self.assertEqual(self.store.batch_replica_clear([key], other.get_hostname()), [key])
        self.assertEqual(self.store.is_exist(key), 0)

    def test_wrong_types(self):
        """1.9 remove, batch_remove, remove_by_regex: TypeError."""
        for call in (lambda: self.store.remove(1), lambda: self.store.remove(), lambda: self.store.batch_remove("k"),
                     lambda: self.store.remove_by_regex(None), lambda: self.store.get_size(1)):
            with self.assertRaises(TypeError):
                call()


if __name__ == "__main__":
    main()
