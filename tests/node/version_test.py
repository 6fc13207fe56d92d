"""Programs of another build: what differs is said by both numbers, and nobody waits for what cannot change."""

import os
import struct
import time
import unittest

from node_support import PATIENCE, Node, main, store_setup

LAYOUT_AT, METRICS_VERSION_AT = 20, 8


class Versions(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1, memory="64MiB")
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)

    def forge(self, name, at):
        with open(f"{self.node.shm}/{name}", "r+b") as segment:
            segment.seek(at)
            segment.write(struct.pack("<I", 4711))

    def refused(self, *words):
        started = time.monotonic()
        done = self.node.ctl(*words, check=False)
        self.assertEqual(done.returncode, 3, done)
        self.assertLess(time.monotonic() - started, 2 * PATIENCE)
        return done.stderr.decode()

    def test_a_client_of_another_build_says_so_at_once(self):
        for name in ("index", "arena.0"):
            self.forge(name, LAYOUT_AT)
            for words in (("get", "key"), ("ls",), ("rm", "key")):
                said = self.refused(*words)
                for text in ("has layout 4711 (sluice ", "this program (sluice ", "knows 1", "use the sluice package"):
                    self.assertIn(text, said)

    def test_status_of_another_build_is_not_taken_for_no_node(self):
        for name in os.listdir(self.node.shm):
            if name.startswith("metrics."):
                self.forge(name, METRICS_VERSION_AT)
        said = self.refused("status")
        self.assertIn("has format 4711", said)
        self.assertIn("use the sluice package", said)

    def test_setup_of_the_store_says_so(self):
        self.forge("index", LAYOUT_AT)
        done = store_setup(self.node)
        if done is None:
            self.skipTest("no mooncake.store in this build")
        self.assertEqual(done[0], 1, done)
        self.assertIn("has layout 4711", done[1])


if __name__ == "__main__":
    main()
