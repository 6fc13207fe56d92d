"""Engines of 1, 2, 4 and 8 ranks that share their blocks, on a real node (parts_probe.c)."""

import os
import subprocess
import sys
import unittest

from node_support import BIN, PATIENCE, Node, main

PROBE = os.path.join(BIN, "..", "tests", "parts_probe")


@unittest.skipUnless(os.path.exists(PROBE), "parts_probe was not built")
class Parts(unittest.TestCase):
    def probe(self, what, **settings):
        with Node(memory="64MiB", **settings) as node:
            done = subprocess.run([PROBE, node.instance, node.directory + "/run", node.shm, what], capture_output=True, text=True,
                                  timeout=60 * PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr + node.logs())
            try:
                with open(node.directory + "/run/log/clients.jsonl", encoding="utf-8") as lines:
                    return lines.read()
            except FileNotFoundError:
                return ""

    def test_what_some_ranks_wrote_any_number_reads(self):
        """64 pairs of 1, 2, 4, 8 ranks and two layouts."""
        self.probe("matrix", ranks=8)

    def test_one_process_a_rank(self):
        self.probe("team", ranks=4)

    def test_one_process_a_rank_in_plain_memory(self):
        self.probe("plain", ranks=4)

    def test_one_process_a_rank_in_pools_of_the_node(self):
        self.probe("lent", ranks=4)

    def test_ranks_register_other_memory_while_they_live(self):
        """Swappers have unmapped the former memory before sl_engine_end returns."""
        self.probe("again", ranks=2)

    def test_what_is_spoilt_in_memory_is_a_miss_and_stored_anew(self):
        self.probe("damage", ranks=2, settings=["--load-verify", "all"])

    def test_a_rank_dies_and_comes_back(self):
        self.probe("death", ranks=2)


if __name__ == "__main__":
    main()
