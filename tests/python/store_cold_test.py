"""Processes that together read far more from disk than memory holds, with leases on the keys that they look up: each
gets all its values, byte for byte."""

import hashlib
import random
import time
import unittest

from contract_support import Child, Memory, MooncakeDistributedStore, OnPool, main, say
from node_support import PATIENCE

MIB = 1 << 20
COUNT, BATCH, READERS = 160, 40, 8
KEYS = [f"cold-{number:04}" for number in range(COUNT)]
NO_SPACE = -200


def value(number):
    return hashlib.sha256(str(number).encode()).digest() * (MIB // 32)


def reader(address, seed, calls):
    """A process: batches of neighbours that were looked up before, as engines do."""
    draw = random.Random(seed)
    store = MooncakeDistributedStore()
    if store.setup("localhost", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", address) != 0:
        say("no store")
        return
    buffer = Memory(BATCH * MIB, store)
    addresses = [buffer.address + at * MIB for at in range(BATCH)]
    for _ in range(calls):
        first = draw.randrange(COUNT - BATCH)
        keys = KEYS[first:first + BATCH]
        found = store.batch_is_exist(keys)
        lengths = store.batch_get_into(keys, addresses, [MIB] * BATCH)
        for at in range(BATCH):
            if found[at] != 1 or lengths[at] != MIB:
                say(f"value {first + at}: exists {found[at]}, read {lengths[at]}")
                return
            if buffer.read(MIB, at * MIB) != value(first + at):
                say(f"value {first + at} has other bytes")
                return
    say("all")
    store.close()


class Crowd(OnPool):
    pool_settings = {"memory": "96MiB", "disk": "1GiB", "lease_ms": 5000}

    def test_readers_of_a_small_memory_do_not_evict_each_others_values_for_ever(self):
        """8 batches of 40 MiB at a time in 96 MiB, of which 64 are contributed."""
        end_s = time.monotonic() + 60 * PATIENCE
        for number, key in enumerate(KEYS):
            while (code := self.store.put(key, value(number))) == NO_SPACE and time.monotonic() < end_s:
                time.sleep(0.01)
            self.assertEqual(code, 0)
        readers = [Child(reader, self.pool.address, seed, 4, pool=self.pool) for seed in range(READERS)]
        for child in readers:
            self.addCleanup(child.__exit__)
        self.assertEqual([child.child_line(120 * PATIENCE) for child in readers], ["all"] * READERS)


if __name__ == "__main__":
    main()
