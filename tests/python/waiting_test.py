"""Load or recompute: loads that announce how fast their engine computes, on a node whose disk is slow, stops, or whose tierer is killed."""

import json
import os
import signal
import threading
import time
import unittest

from python_support import client, sluice
from node_support import PATIENCE, Node, main, wait_until

BLOCK, TOKENS, CHAINS, LENGTH = 64 << 10, 512, 8, 8  # bytes, tokens of a block; number of chains, blocks of a chain
COUNT = CHAINS * LENGTH
SOON = {"prefill": LENGTH * TOKENS * 5}  # tokens a second: a chain is computed in 0.2 s


class SlowDisk:
    """The tierer runs for 2 ms of 40."""

    def __init__(self, node):
        self.pid, self.over = node.live_pid("tierer.0"), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.038)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.002)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Waiting(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1, memory="16MiB", disk="256MiB", settings=["--disk-staging", "1MiB", "--evict-policy", "lru"])
        self.enterContext(self.node)
        self.client = self.enterContext(client(self.node))
        layers = [sluice.Layer(0, 2 * COUNT * BLOCK, BLOCK, BLOCK)]
        self.engine = self.client.engine("e", pools=[sluice.Pool("p", 0, layers, memory_bytes=2 * COUNT * BLOCK)], block_tokens=TOKENS,
                                         block_count=2 * COUNT)
        self.addCleanup(self.engine.end)
        self.memory = self.engine.memory()
        self.right = [os.urandom(BLOCK) for _ in range(COUNT)]
        for i, value in enumerate(self.right):
            self.memory[i * BLOCK:(i + 1) * BLOCK] = value
        for chain in range(CHAINS):
            self.assertEqual(self.engine.store(hashes=self.keys(chain), blocks=self.blocks(chain)).wait().stored_count, LENGTH)
        self.evict_all()

    def keys(self, chain):
        return [bytes([chain, i]) * 8 for i in range(LENGTH)]

    def blocks(self, chain):
        return range(chain * LENGTH, (chain + 1) * LENGTH)

    def evict_all(self):
        """Gets all chains out of memory, so that they are only on disk."""
        self.node.ctl("flush")
        for round_ in range(4):
            for chain in range(CHAINS):
                keys = [os.urandom(16) for _ in range(LENGTH)]
                self.engine.store(hashes=keys, blocks=range(COUNT + chain * LENGTH, COUNT + (chain + 1) * LENGTH)).wait(60)
            self.node.ctl("flush")

    def begun(self, chain, **words):
        """(a load, its target blocks)."""
        target = [COUNT + block for block in self.blocks(chain)]
        for block in target:
            self.memory[block * BLOCK:(block + 1) * BLOCK] = bytes(BLOCK)
        return self.engine.load(hashes=self.keys(chain), blocks=target, timeout=30 * PATIENCE, **words), target

    def ended(self, chain, load, target):
        """Checks the bytes that it loaded."""
        result = load.wait()
        self.assertEqual(result.code, 0)
        for i in range(result.block_count):
            self.assertEqual(bytes(self.memory[target[i] * BLOCK:(target[i] + 1) * BLOCK]), self.right[chain * LENGTH + i])
        return result

    def load(self, chain, **words):
        return self.ended(chain, *self.begun(chain, **words))

    def counted(self, name):
        for actor in json.loads(self.node.ctl("status", "--pages").stdout)["actors"]:
            if actor["name"] == "coordinator":
                return actor["counters"][name]
        raise AssertionError("no coordinator")

    def at_once(self, number, work):
        """work(chain) in this number of threads."""
        results = [None] * number

        def run(at):
            results[at] = work(at)

        threads = [threading.Thread(target=run, args=(at,)) for at in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertNotIn(None, results)  # a failed assertion only ends its own thread
        return results

    def assert_all_there(self):
        """Loads that did not wait lose no block."""
        for chain in range(CHAINS):
            result = self.load(chain)
            self.assertEqual((result.block_count, result.not_awaited_count), (LENGTH, 0))

    def test_a_load_waits_for_a_disk_that_stops_as_long_as_computing_takes(self):
        with self.node.actors_stopped("tierer.0"):
            hard = self.begun(1)
            soft = self.load(0, **SOON)  # returns although the disk does not respond
            self.assertIsNone(hard[0].poll())
        self.assertEqual((soft.block_count, soft.not_awaited_count), (0, LENGTH))
        self.assertEqual(self.ended(1, *hard).block_count, LENGTH)
        self.assertGreaterEqual(self.counted("soft_deadlines_missed"), 1)
        self.assertGreaterEqual(self.counted("blocks_not_waited_for"), LENGTH)
        self.assert_all_there()

    def test_threads_on_a_disk_that_stops(self):
        with self.node.actors_stopped("tierer.0"):
            for result in self.at_once(CHAINS, lambda chain: self.load(chain, **SOON)):  # otherwise none returns
                self.assertEqual((result.block_count, result.not_awaited_count), (0, LENGTH))
        self.assert_all_there()

    def test_threads_on_a_slow_disk(self):
        for number in (1, 2, 4, 8):
            with self.subTest(threads=number), SlowDisk(self.node):
                for result in self.at_once(number, lambda chain: self.load(chain, **SOON)):
                    self.assertEqual(result.block_count + result.not_awaited_count, LENGTH)
        self.assert_all_there()
        tiers = self.node.ctl("tiers").stdout.decode()
        if self.counted("blocks_not_waited_for"):
            self.assertIn("skipped by loads: ", tiers)

    def test_a_tierer_that_is_killed_while_loads_wait_costs_no_more(self):
        for number in (1, 4):
            with self.subTest(threads=number):
                old = self.node.live_pid("tierer.0")
                with self.node.actors_stopped():  # so that it is not restarted meanwhile
                    os.kill(old, signal.SIGSTOP)
                    timer = threading.Timer(0.05, os.kill, (old, signal.SIGKILL))
                    timer.start()

                    results = self.at_once(number, lambda chain: self.load(chain, **SOON))  # otherwise none returns

                    timer.join()
                for result in results:
                    self.assertEqual(result.block_count + result.not_awaited_count, LENGTH)
                self.node.wait_restarted("tierer.0", old)
                self.node.wait_ready()
        wait_until(lambda: self.load(0).block_count == LENGTH, 10, "the disk is read again")
        self.assert_all_there()

    def test_wrong_words(self):
        for error, prefill in ((TypeError, "fast"), (TypeError, 5.5), (TypeError, (1, 2, 3)), (OverflowError, -1), (sluice.InvalidError, 1 << 41),
                               (sluice.InvalidError, (5, 1 << 41))):
            with self.subTest(prefill=prefill), self.assertRaises(error):
                self.load(0, prefill=prefill)
        self.assertEqual(self.load(0, prefill=(1, 4096)).block_count, LENGTH)
        self.assertEqual(self.load(0, prefill=None).block_count, LENGTH)


if __name__ == "__main__":
    main()
