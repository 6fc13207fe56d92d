"""The programs of client/examples do what their first lines promise."""

import os
import subprocess
import sys
import unittest

from node_support import BIN, PATIENCE, ROOT, Node, fabric_without_peers, main, metric, unsanitized_only

PACKAGE = os.path.join(os.path.dirname(BIN), "python")
PUT_AND_GOT = "a copy: a value of up to 1 GiB\nin place: a value of up to 1 GiB\nexists: yes\n"


class Examples(unittest.TestCase):
    def assert_prints(self, node, command, wanted):
        where = {"SLUICE_INSTANCE": node.instance, "SLUICE_RUNTIME_DIR": node.directory + "/run", "SLUICE_SHM_DIR": node.shm, "PYTHONPATH": PACKAGE}
        done = subprocess.run(command, env={**node.environment, **where}, timeout=60 * PATIENCE, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, wanted), done.stderr)

    def example(self, name):
        return os.path.join(os.path.dirname(BIN), "tests", f"example_{name}")

    def test_put_and_get(self):
        with Node(ranks=1) as node:
            self.assert_prints(node, [self.example("put_get")], PUT_AND_GOT)

    @unsanitized_only
    @unittest.skipUnless(os.path.isdir(os.path.join(PACKAGE, "sluice")), "the Python package was not built")
    def test_put_and_get_in_python(self):
        with Node(ranks=1) as node:
            self.assert_prints(node, [sys.executable, os.path.join(ROOT, "client", "examples", "put_get.py")], PUT_AND_GOT)

    def test_an_engine_stores_and_loads_and_finds_its_blocks_again(self):
        with Node(ranks=1) as node:
            for stored in (4, 0):
                self.assert_prints(node, [self.example("engine")],
                                   f"{stored} blocks stored, {4 - stored} were stored before, 4 loaded, every byte right\n")

    def test_prefill_hands_over_to_decode_through_storage_and_directly(self):
        with Node(ranks=1, settings=fabric_without_peers()) as node:
            for mode in ([], ["direct"]):
                self.assert_prints(node, [self.example("handover"), *mode], "8 of 8 requests handed over, every byte right\n")
            self.assertGreater(metric(node, "coordinator", "handovers_pushed"), 0)


if __name__ == "__main__":
    main()
