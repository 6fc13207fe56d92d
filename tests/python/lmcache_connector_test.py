"""mooncake.lmcache_connector as LMCache's multi-process mode uses it: batches are submitted, and an eventfd signals their ends."""

import os
import select
import time
import unittest

from contract_support import MIB, OnPool, main

from mooncake.lmcache_connector import L1RegistrationConfig, LMCacheMooncakeClient

SECONDS = 30


class Batches(OnPool):
    def setUp(self):
        super().setUp()
        self.pool.use()
        self.client = self.client_make()

    def client_make(self, **more):
        config = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "global_segment_size": str(16 * MIB),
                  "local_buffer_size": "0", "master_server_address": self.pool.address}
        client = LMCacheMooncakeClient(config, **more)
        self.addCleanup(client.close)
        return client

    def ended(self, number, client=None):
        """(all went well, the first error, which keys) of that batch; the eventfd was readable before."""
        client = client or self.client
        end_s = time.monotonic() + SECONDS
        while True:
            self.assertTrue(select.select([client.event_fd()], [], [], max(0, end_s - time.monotonic()))[0], f"batch {number} does not end")
            for completion in client.drain_completions():
                if completion[0] == number:
                    return completion[1:]

    def test_what_was_set_exists_and_is_got(self):
        keys, values = self.keys(3), [os.urandom(1000 + at) for at in range(3)]
        self.assertEqual(self.ended(self.client.submit_batch_exists(keys)), (True, "", [False] * 3))
        self.assertEqual(self.ended(self.client.submit_batch_set(keys, [memoryview(bytearray(value)) for value in values])), (True, "", [True] * 3))
        self.assertEqual(self.ended(self.client.submit_batch_exists([*keys, self.key("none")])), (True, "", [True] * 3 + [False]))
        into = [bytearray(len(value)) for value in values]
        self.assertEqual(self.ended(self.client.submit_batch_get(keys, [memoryview(one) for one in into])), (True, "", [True] * 3))
        self.assertEqual(into, values)

    def test_a_view_that_cannot_be_written_can_be_stored(self):
        self.assertEqual(self.ended(self.client.submit_batch_set([self.key()], [memoryview(b"constant")])), (True, "", [True]))
        into = bytearray(8)
        self.assertEqual(self.ended(self.client.submit_batch_get([self.key()], [memoryview(into)])), (True, "", [True]))
        self.assertEqual(into, b"constant")

    def test_a_miss_and_a_value_of_another_size_are_named(self):
        here, absent = self.key("here"), self.key("absent")
        self.ended(self.client.submit_batch_set([here], [memoryview(bytearray(100))]))
        for key, size in ((absent, 100), (here, 50), (here, 200)):
            with self.subTest(key=key, size=size):
                good, error, which = self.ended(self.client.submit_batch_get([here, key], [memoryview(bytearray(100)), memoryview(bytearray(size))]))
                self.assertEqual((good, which), (False, [True, False]))
                self.assertIn(key, error)

    def test_delete_removes_what_is_leased(self):
        keys = self.keys(2)
        self.ended(self.client.submit_batch_set(keys, [memoryview(bytearray(10))] * 2))
        self.ended(self.client.submit_batch_exists(keys))  # leases both
        self.assertEqual(self.ended(self.client.submit_batch_delete([*keys, self.key("none")])), (True, "", [True, True, False]))
        self.assertEqual(self.ended(self.client.submit_batch_exists(keys)), (True, "", [False, False]))

    def test_nothing_and_nonsense_end_too(self):
        self.assertEqual(self.ended(self.client.submit_batch_get([], [])), (True, "", []))
        good, error, which = self.ended(self.client.submit_batch_get([self.key()], [memoryview(b"read-only")]))
        self.assertEqual((good, which), (False, [False]))
        self.assertTrue(error)

    def test_batches_of_all_kinds_side_by_side(self):
        client = self.client_make(num_workers=2, per_op_workers={"lookup": 1, "store": 2})
        numbers = {client.submit_batch_set([self.key(at)], [memoryview(bytearray(1000))]) for at in range(50)}
        numbers |= {client.submit_batch_exists([self.key(at)]) for at in range(50)}
        seen, end_s = {}, time.monotonic() + SECONDS
        while len(seen) < len(numbers):
            self.assertTrue(select.select([client.event_fd()], [], [], max(0, end_s - time.monotonic()))[0], f"only {len(seen)} ended")
            for number, good, error, _ in client.drain_completions():
                self.assertNotIn(number, seen)
                seen[number] = (good, error)
        self.assertEqual(seen, {number: (True, "") for number in numbers})
        self.assertEqual(client.drain_completions(), [])

    def test_memory_is_registered_when_it_is_asked_for(self):
        memory = self.memory(MIB)
        registration = L1RegistrationConfig()
        registration.enabled, registration.base, registration.size = True, memory.address, MIB
        self.client_make(l1_registration=registration).close()
        registration.size = 0
        with self.assertRaisesRegex(RuntimeError, "could not be registered"):
            self.client_make(l1_registration=registration)

    def test_setup_that_fails_raises(self):
        with self.assertRaisesRegex(RuntimeError, "setup of the store failed with -600"):
            LMCacheMooncakeClient({"master_server_address": self.pool.address})

    def test_a_closed_client_refuses(self):
        self.client.close()
        self.client.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            self.client.submit_batch_exists([self.key()])


if __name__ == "__main__":
    main()
