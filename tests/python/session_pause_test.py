"""A hint in the middle of a pause: blocks of that session are read back from disk before its next turn, and no other blocks are."""

import json
import os
import signal
import time
import unittest

from python_support import client, sluice
from node_support import PATIENCE, Node, main, wait_until

BLOCK, TOKENS, LENGTH, AGENTS = 64 << 10, 512, 8, 6  # bytes, tokens of a block, blocks of a session, sessions
COUNT = AGENTS * LENGTH
OTHERS = 512  # blocks that take all of memory
TOLD = 5.0  # seconds


class SessionPause(unittest.TestCase):
    def open(self, **how):
        node = self.enterContext(Node(ranks=1, **{"memory": "16MiB", "disk": "256MiB", **how}))
        return node, self.enterContext(client(node))

    def setUp(self):
        self.node, self.client = self.open()
        layers = [sluice.Layer(0, 2 * COUNT * BLOCK, BLOCK, BLOCK)]
        self.engine = self.client.engine("e", pools=[sluice.Pool("p", 0, layers, memory_bytes=2 * COUNT * BLOCK)], block_tokens=TOKENS,
                                         block_count=2 * COUNT)
        self.addCleanup(self.engine.end)
        self.memory = self.engine.memory()
        self.right = os.urandom(COUNT * BLOCK)
        self.memory[:COUNT * BLOCK] = self.right

    def keys(self, agent):
        return [bytes([agent, i]) * 8 for i in range(LENGTH)]

    def stored(self):
        """Each session stored its blocks and pauses. Other stores followed: the blocks are only on disk."""
        for agent in range(AGENTS):
            first = agent * LENGTH
            self.engine.store(hashes=self.keys(agent), blocks=range(first, first + LENGTH), hints={"session_id": f"agent {agent}"}).wait()
        self.node.ctl("flush")
        for _ in range(OTHERS // LENGTH):
            self.engine.store(hashes=[os.urandom(16) for _ in range(LENGTH)], blocks=range(COUNT, COUNT + LENGTH)).wait(60)
        self.node.ctl("flush")

    def turn(self, agent):
        """Runs the session's next turn and checks its bytes; returns where its blocks came from."""
        first = COUNT + agent * LENGTH
        self.memory[first * BLOCK:(first + LENGTH) * BLOCK] = bytes(LENGTH * BLOCK)
        result = self.engine.load(hashes=self.keys(agent), blocks=range(first, first + LENGTH), timeout=30 * PATIENCE,
                                  hints={"session_id": f"agent {agent}"}).wait()
        self.assertEqual(result.block_count, LENGTH)
        self.assertEqual(bytes(self.memory[first * BLOCK:(first + LENGTH) * BLOCK]), self.right[agent * LENGTH * BLOCK:(agent + 1) * LENGTH * BLOCK])
        return {"memory": result.from_memory, "disk": result.from_disk}

    def counted(self, name):
        for actor in json.loads(self.node.ctl("status", "--pages").stdout)["actors"]:
            if actor["name"] == "coordinator":
                return actor["counters"].get(name, 0)
        raise AssertionError("no coordinator")

    def came(self, blocks, within, why):
        before = self.counted("session_parts_prefetched")
        return lambda: wait_until(lambda: self.counted("session_parts_prefetched") >= before + blocks, within, why)

    def test_blocks_come_before_the_turn_that_was_told_in_the_pause(self):
        self.stored()
        self.assertEqual(self.counted("session_parts_prefetched"), 0)  # no hint was given yet

        in_time, began = self.came(LENGTH, TOLD * PATIENCE, "blocks of the session come"), time.monotonic()
        self.assertIs(self.client.session_pause("agent 1", TOLD), True)
        in_time()
        print(f"told {TOLD} s: the blocks are there after {time.monotonic() - began:.2f} s")

        self.assertEqual(self.turn(1), {"memory": LENGTH, "disk": 0})
        self.assertEqual(self.turn(2), {"memory": 0, "disk": LENGTH})  # a session without a hint
        self.assertEqual(self.counted("session_pauses_reported"), 1)

    def test_a_pause_that_is_over_brings_them_at_once(self):
        self.stored()
        in_time = self.came(LENGTH, 2 * PATIENCE, "blocks of the session come")
        self.assertIs(self.client.session_pause("agent 3", 604800), True)
        self.assertIs(self.client.session_pause("agent 3", 0), True)
        in_time()
        self.assertEqual(self.turn(3), {"memory": LENGTH, "disk": 0})

    def test_blocks_that_left_in_the_pause_come_again_before_it_ends(self):
        """Nothing is worth more, so they are kept from the beginning. But other new blocks are not on disk yet, so these are evicted."""
        self.engine.store(hashes=self.keys(0), blocks=range(LENGTH), hints={"session_id": "agent 0", "pause": TOLD * PATIENCE}).wait()
        self.node.ctl("flush")
        self.engine.store(hashes=[os.urandom(16) for _ in range(OTHERS)], blocks=[COUNT + i % COUNT for i in range(OTHERS)]).wait(60)
        self.node.ctl("flush")
        names = [key.hex() for key in self.keys(0)]

        def here():
            return sum(info.in_memory for info in self.client.list() if info.key.split("/")[1] in names)

        wait_until(lambda: here() == LENGTH, TOLD * PATIENCE, "they come again")
        self.assertEqual(self.turn(0), {"memory": LENGTH, "disk": 0})

    def test_whom_nobody_knows_and_what_is_no_word(self):
        self.stored()
        self.assertIs(self.client.session_pause("agent 77", 1), False)
        self.assertIs(self.client.session_pause("agent 4", None), True)
        self.assertEqual(self.node.ctl("session", "agent 4", "--pause", "604800s").stdout, b"reported\n")
        self.assertEqual(json.loads(self.node.ctl("session", "agent 4", "--unknown", "--json").stdout), {"reported": True})
        for words, code in ((("agent 77", "--pause", "1s"), 1), (("agent 4",), 2), (("--unknown",), 2), (("agent 4", "--pause", "8d"), 2),
                            (("agent 4", "--pause", "1s", "--unknown"), 2)):
            self.assertEqual(self.node.ctl("session", *words, check=False).returncode, code, words)
        for error, words in ((TypeError, ("agent 4",)), (TypeError, (4, 1)), (ValueError, ("", 1)), (ValueError, ("a\0b", 1)), (TypeError, ("agent 4", "soon")),
                             (ValueError, ("agent 4", -1)), (sluice.InvalidError, ("agent 4", 604801))):
            with self.subTest(words=words), self.assertRaises(error):
                self.client.session_pause(*words)
        with client(self.node, read_only=True) as reader, self.assertRaises(sluice.NotPermittedError):
            reader.session_pause("agent 4", 1)

        pid = self.node.live_pid("coordinator")
        os.kill(pid, signal.SIGKILL)
        self.node.wait_restarted("coordinator", pid)
        self.assertIs(self.client.session_pause("agent 4", 1, timeout=20 * PATIENCE), False)  # until its next op
        self.turn(4)
        self.assertIs(self.client.session_pause("agent 4", 604800), True)

    def test_a_node_that_keeps_no_sessions_says_so(self):
        for how in ({"disk": "0"}, {"settings": ["--prefetch-sessions", "0"]}):
            with self.subTest(how=how):
                node, without = self.open(**how)
                with self.assertRaisesRegex(sluice.UnsupportedError, "keeps no sessions"):
                    without.session_pause("agent 1", 1)
                self.assertEqual(node.ctl("session", "agent 1", "--pause", "1s", check=False).returncode, 1)


if __name__ == "__main__":
    main()
