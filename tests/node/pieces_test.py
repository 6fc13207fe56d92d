"""Values from and into pieces of memory, on a registrar alone: nothing else is needed for objects in memory."""

import os
import subprocess
import unittest

from object_api import BIN, SLOWDOWN, BareNode

PROBE = os.path.join(BIN, "..", "tests", "pieces_probe")


class PiecesNode(BareNode):
    def __init__(self, memory="64MiB"):
        super().__init__(memory=memory, disk="0")
        self.actors = [("registrar", None)]
        self.settings += ["--memory-chunk", "16MiB"]


@unittest.skipUnless(os.path.exists(PROBE), "pieces_probe was not built")
class Pieces(unittest.TestCase):
    def run_probe(self, what, **options):
        with PiecesNode(**options) as node:
            done = subprocess.run([PROBE, node.instance, node.directory + "/run", node.shm, what],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOWDOWN)
            self.assertEqual(done.returncode, 0, done.stderr.decode() + node.logs())

    def test_a_value_is_the_same_whatever_pieces_it_comes_in(self):
        self.run_probe("shapes")

    def test_what_is_no_value_is_refused_and_says_why(self):
        self.run_probe("refusals")

    def test_ranges_of_a_value_and_what_lies_behind_its_end(self):
        self.run_probe("reading")

    def test_a_batch_of_many_messages(self):
        self.run_probe("many")

    def test_threads_share_a_client_and_a_fork_does_not(self):
        self.run_probe("threads")


if __name__ == "__main__":
    unittest.main(verbosity=2)
