"""Leases, pins, groups and eviction under pressure (sections 1.4 and 3.3 to 3.5 of the contract)."""

import time

from contract_support import (LEASED, LEASE_MS, MIB, MOONCAKE, NO_SPACE, Memory, OnPool, config, lease_over, main,
                              wheel_differs, unlike_mooncake, value_of, wait_until)
from mooncake.store import SoftPinAction


class Pressure(OnPool):
    """A pool that few values fill. Its order of eviction is Mooncake's: density would depend on earlier tests."""

    pool_settings = {"memory": "64MiB", "evict_policy": "lru"}
    segment = 32 * MIB
    buffer = 16 * MIB

    def setUp(self):
        self.store.remove_all(True)

    def put(self, name, length=MIB, **how):
        key = self.key(name)
        return self.store.put(key, value_of(key, length), *([config(**how)] if how else []))

    def fill(self, name, count):
        """Puts until this number of values were accepted; returns their keys, in order."""
        taken = []
        for number in range(count):
            key = self.key(f"{name}{number}")
            self.eventually(0, lambda k=key: self.store.put(k, value_of(k, MIB)), NO_SPACE)
            taken.append(key)
        return taken

    def there(self, keys):
        """Those keys that exist, with the right bytes; leases them."""
        found = []
        for key in keys:
            value = self.store.get(key)
            if value:
                self.assertEqual(value, value_of(key, len(value)))
                found.append(key)
        return found


class Eviction(Pressure):
    def test_old_values_make_room(self):
        """3.5 eviction: puts beyond the pool's size succeed; the remaining values are whole."""
        keys = self.fill("k", 100)
        left = self.there(keys)
        self.assertGreater(len(left), 5)
        self.assertLess(len(left), 33)
        self.assertIn(keys[-1], left)

    @wheel_differs("its order is by the end of leases, sampled")
    def test_the_longest_unused_go_first(self):
        """3.5 eviction: near-LRU."""
        keys = self.fill("k", 24)
        self.assertEqual(self.there(keys[:8]), keys[:8])
        lease_over(self.pool)
        self.fill("new", 12)
        self.assertEqual(self.there(keys[:8]), keys[:8])

    def test_batches_under_pressure(self):
        """1.6 common no space: a batch larger than the free space answers 0 and -200 for each, and these codes are true."""
        memory = self.memory(40 * MIB)
        keys = self.keys(40)
        for number, key in enumerate(keys):
            memory.write(value_of(key, MIB), number * MIB)
        codes = self.store.batch_put_from_multi_buffers(keys, [[memory.address + i * MIB] for i in range(40)], [[MIB]] * 40)
        self.assertLessEqual(set(codes), {0, NO_SPACE})
        self.assertGreater(codes.count(0), 5)
        left = set(self.there(keys))
        self.assertEqual([key for key, code in zip(keys, codes) if code == NO_SPACE and key in left], [])
        if not MOONCAKE:
            self.assertGreater(len(left), 5)

    def test_values_that_never_fit(self):
        """1.6 common no space: a value larger than the pool: -200, and nothing is evicted for it."""
        keys = self.fill("k", 8)
        memory = self.memory(48 * MIB)
        self.assertEqual(self.store.put_from(self.key("huge"), memory.address, 40 * MIB), NO_SPACE)
        if not MOONCAKE:
            self.assertEqual(self.there(keys), keys)


class Leased(Pressure):
    """Leases that outlast the test."""

    pool_settings = {"memory": "64MiB", "lease_ms": 30_000}

    def full(self):
        """Keys that fill the pool, all leased."""
        keys, code = [], 0
        while code == 0:
            key = self.key(f"k{len(keys)}")
            code = self.store.put(key, value_of(key, MIB))
            if code == 0:
                self.assertEqual(self.store.is_exist(key), 1)
                keys.append(key)
            self.assertLess(len(keys), 40)
        self.assertEqual(code, NO_SPACE)
        return keys

    def test_leased_values_stay(self):
        """3.3 leases, 1.6 common no space: leased values are not evicted: -200 at once when only such values are left, without
        waiting for a lease; removal by force makes space."""
        keys = self.full()
        self.assertGreater(len(keys), 16)
        for number in range(20):
            self.assertEqual(self.put(f"more{number}"), NO_SPACE)
        self.assertEqual(self.there(keys), keys)
        self.assertEqual(self.store.remove(keys[0], True), 0)
        self.assertEqual(self.put("after"), 0)

    def test_every_put(self):
        """1.6 common no space: all calls that put answer -200, also sessions and upserts."""
        self.full()
        memory = self.memory(MIB)
        at, key = memory.address, self.key("new")
        self.assertEqual(self.store.put(key, bytes(MIB)), NO_SPACE)
        self.assertEqual(self.store.put_parts(key, bytes(MIB)), NO_SPACE)
        self.assertEqual(self.store.put_batch([key], [bytes(MIB)]), NO_SPACE)
        self.assertEqual(self.store.put_from(key, at, MIB), NO_SPACE)
        self.assertEqual(self.store.upsert(key, bytes(MIB)), NO_SPACE)
        self.assert_plain(self.store.batch_put_from([key], [at], [MIB]), [NO_SPACE])
        self.assert_plain(self.store.batch_put_from_multi_buffers([key, key + "2"], [[at], [at]], [[MIB], [MIB]]), [NO_SPACE] * 2)
        self.assert_plain(self.store.batch_put_session_start([key], [MIB]), [NO_SPACE])
        self.assert_absent(key)

    def test_unleased_values_make_room(self):
        """3.5 eviction: values without a lease are evicted, leased ones are not."""
        keys = self.full()
        self.assertEqual(self.store.batch_remove(keys[:8], True), [0] * 8)
        for number in range(30):
            self.eventually(0, lambda n=number: self.put(f"more{n}"), NO_SPACE)
        self.assertEqual(self.there(keys[8:]), keys[8:])


class Pins(Pressure):
    def test_hard_pins_are_never_evicted(self):
        """1.4 with_hard_pin: never evicted; explicit remove still works."""
        pinned = self.keys(4, "pinned")
        for key in pinned:
            self.assertEqual(self.store.put(key, value_of(key, MIB), config(with_hard_pin=True)), 0)
        self.fill("k", 80)
        self.assertEqual(self.there(pinned), pinned)
        lease_over(self.pool)
        self.assertEqual([self.store.remove(key) for key in pinned], [0] * 4)
        self.assertEqual(self.there(pinned), [])

    def test_a_pool_of_hard_pins(self):
        """1.4 with_hard_pin: when all is pinned a put is -200, until a removal."""
        keys = []
        for number in range(40):
            key = self.key(f"p{number}")
            if self.store.put(key, value_of(key, MIB), config(with_hard_pin=True)) != 0:
                break
            keys.append(key)
        self.assertLess(len(keys), 33)
        self.assertEqual(self.put("more"), NO_SPACE)
        self.assertEqual(self.there(keys), keys)
        self.assertEqual(self.store.remove_all(True), len(keys))
        self.assertEqual(self.put("more"), 0)

    def test_hard_pins_stay_over_upserts(self):
        """1.4 with_hard_pin, 1.6 upsert hard pin: immutable afterwards: an upsert without it keeps it."""
        key = self.key("pinned")
        self.assertEqual(self.store.put(key, b"old", config(with_hard_pin=True)), 0)
        self.assertEqual(self.store.upsert(key, value_of(key, MIB)), 0)
        self.fill("k", 80)
        self.assertEqual(self.there([key]), [key])

    def test_soft_pins_go_last(self):
        """1.4 soft_pin_action: ENABLE: only evicted when no other value is left."""
        pinned = self.keys(4, "soft")
        for key in pinned:
            self.assertEqual(self.store.put(key, value_of(key, MIB), config(soft_pin_action=SoftPinAction.ENABLE)), 0)
        self.fill("k", 80)
        self.assertEqual(self.there(pinned), pinned)

    def test_soft_pins_do_go(self):
        """1.4 soft_pin_action: in the second pass, so a pool full of them takes new values."""
        keys = self.keys(60, "soft")
        for key in keys:
            self.eventually(0, lambda k=key: self.store.put(k, value_of(k, MIB), config(soft_pin_action=SoftPinAction.ENABLE)),
                            NO_SPACE)
        self.assertIn(keys[-1], self.there(keys))

    @unlike_mooncake("there is no such field")
    def test_the_pin_of_releases(self):
        """1.4 with_soft_pin: pins as soft_pin_action does."""
        pinned = self.keys(4, "soft")
        for key in pinned:
            self.assertEqual(self.store.put(key, value_of(key, MIB), config(with_soft_pin=True)), 0)
        self.fill("k", 80)
        self.assertEqual(self.there(pinned), pinned)

    @wheel_differs("near-LRU: which ones go is by chance")
    def test_soft_pins_end(self):
        """1.4 soft_pin_ttl_ms: a fixed deadline, which reads do not extend."""
        key = self.key("soft")
        short = config(soft_pin_action=SoftPinAction.ENABLE, soft_pin_ttl_ms=200)
        self.assertEqual(self.store.put(key, value_of(key, MIB), short), 0)
        time.sleep(0.3 + LEASE_MS / 1000)
        self.fill("k", 80)
        self.assertEqual(self.there([key]), [])

    @wheel_differs("near-LRU: which ones go is by chance")
    def test_an_upsert_unpins(self):
        """1.4 soft_pin_action: DISABLE unpins on upsert, PRESERVE leaves as is."""
        keep, drop = self.keys(2, "soft")
        for key in (keep, drop):
            self.assertEqual(self.store.put(key, value_of(key, MIB), config(soft_pin_action=SoftPinAction.ENABLE)), 0)
        self.assertEqual(self.store.upsert(keep, value_of(keep, MIB), config(soft_pin_action=SoftPinAction.PRESERVE)), 0)
        self.assertEqual(self.store.upsert(drop, value_of(drop, MIB), config(soft_pin_action=SoftPinAction.DISABLE)), 0)
        self.fill("k", 80)
        self.assertEqual(self.there([keep, drop]), [keep])


class Groups(Pressure):
    def put_group(self, name, count):
        keys = self.keys(count, name)
        for key in keys:
            self.assertEqual(self.store.put(key, value_of(key, MIB), config(group_ids=[name])), 0)
        return keys

    @wheel_differs("a sampled order: may take any")
    def test_members_go_together(self):
        """1.4 group_ids: members are evicted together."""
        groups = [self.put_group(f"g{number}-", 4) for number in range(5)]
        self.fill("k", 20)
        for group in groups:
            self.assertIn(sum(self.store.batch_is_exist(group)), (0, 4))
        self.assertEqual(sum(self.store.batch_is_exist(groups[0])), 0)

    def test_a_lease_on_one_holds_all(self):
        """1.4 group_ids: members are leased together: none is evicted and none is removed."""
        group = self.put_group("g", 4)
        self.assertEqual(self.store.is_exist(group[0]), 1)
        self.assertEqual(self.store.remove(group[3]), LEASED)
        number = 0
        end = time.monotonic() + LEASE_MS / 1000 * 2
        while time.monotonic() < end:
            self.assertEqual(self.store.is_exist(group[1]), 1)
            self.put(f"more{number}")
            number += 1
        self.assertEqual(self.there(group), group)

    def test_without_a_group(self):
        """1.4 group_ids: "" is no group."""
        keys = self.keys(2)
        self.assertEqual(self.store.put_batch(keys, [b"1", b"2"], config(group_ids=["", ""])), 0)
        self.assertEqual(self.store.is_exist(keys[0]), 1)
        self.assertEqual(self.store.remove(keys[1]), 0)

    def test_groups_of_a_batch(self):
        """1.4 group_ids: one for each key of batch_put_from_multi_buffers, as SGLang gives them."""
        memory = self.memory(4096)
        keys = self.keys(4)
        groups = ["sglang-hicache:a", "sglang-hicache:a", "sglang-hicache:b", ""]
        codes = self.store.batch_put_from_multi_buffers(keys, [[memory.address]] * 4, [[100]] * 4, config(group_ids=groups))
        self.assert_plain(codes, [0] * 4)
        self.assertEqual(self.store.is_exist(keys[0]), 1)
        self.assert_plain(self.store.batch_remove(keys), [LEASED, LEASED, 0, 0])


class Leases(OnPool):
    def test_room_after_one_ttl(self):
        """1.6 common no space, 3.3 leases: vLLM's back-off: -200 while all is leased, 0 when leases are over."""
        memory = self.memory(40 * MIB)
        self.store.remove_all(True)
        first, second = self.keys(2)
        self.assertEqual(self.store.put_from(first, memory.address, 40 * MIB), 0)
        self.assertEqual(self.store.is_exist(first), 1)
        seen = []
        wait_until(lambda: seen.append(self.store.put_from(second, memory.address, 40 * MIB)) or seen[-1] != NO_SPACE, 10,
                   "room for the second")
        self.assertEqual(seen[-1], 0)
        self.assertEqual(self.store.batch_is_exist([first, second]), [0, 1])
        self.store.remove_all(True)

    def test_after_one_ttl(self):
        """3.3 leases, trap 10, trap 18: -706 until the lease of --default_kv_lease_ttl is over, then 0."""
        key, _ = self.stored()
        self.assertEqual(self.store.is_exist(key), 1)
        started = time.monotonic()
        codes = []
        while not codes or codes[-1] == LEASED:
            codes.append(self.store.remove(key))
            time.sleep(0.01)
            self.assertLess(time.monotonic() - started, 60)
        self.assertEqual((codes[0], codes[-1]), (LEASED, 0))
        self.assertGreater(time.monotonic() - started, LEASE_MS / 1000 * 0.9)

    def test_a_batch_of_leases(self):
        """3.3 leases: batch_is_exist leases each that it finds."""
        keys = [self.stored(str(number))[0] for number in range(50)]
        self.assertEqual(self.store.batch_is_exist(keys), [1] * 50)
        self.assert_plain(self.store.batch_remove(keys), [LEASED] * 50)
        lease_over(self.pool)
        self.assert_plain(self.store.batch_remove(keys), [0] * 50)

    @unlike_mooncake("a get of 48 MiB that outlives a lease of 1 ms is timing, and its leases cannot be that short")
    def test_a_get_that_takes_longer_than_its_lease(self):
        """1.7 get_into: -707 when the lease ran out during the read: whole bytes or -707, never others."""
        pool = type(self.pool)(lease_ms=1, memory="256MiB")
        self.addCleanup(pool.close)
        store = pool.open(128 * MIB)
        self.pool.use()
        self.addCleanup(store.close)
        memory = Memory(48 * MIB, store)
        value = value_of("long", 48 * MIB)
        self.assertEqual(store.put_from("k", memory.write(value), len(value)), 0)
        seen = set()
        for _ in range(10):
            memory.clear()
            got = store.get_into("k", memory.address, memory.length)
            seen.add(got)
            if got == memory.length:
                self.assertEqual(memory.read(memory.length) == value, True)
        self.assertLessEqual(seen, {memory.length, -707})


if __name__ == "__main__":
    main()
