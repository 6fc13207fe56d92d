"""Stores, loads and hand-overs by layers on a real node, with actors killed between two layers (layers_probe.c)."""

import os
import select
import signal
import subprocess
import unittest

from node_support import BIN, PATIENCE, Node, fabric_without_peers, main, wait_until
from handover_test import metric

PROBE = os.path.join(BIN, "..", "tests", "layers_probe")


@unittest.skipUnless(os.path.exists(PROBE), "layers_probe was not built")
class Layers(unittest.TestCase):
    def test_an_engine_that_computes_layer_by_layer(self):
        with Node(ranks=1, memory="64MiB", settings=fabric_without_peers()) as node:
            probe = subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            killed = []
            try:
                while True:
                    ready = select.select([probe.stdout], [], [], 20 * PATIENCE)[0]
                    name = probe.stdout.readline().decode().strip() if ready else ""
                    if name in ("", "done"):
                        break
                    old = node.pid(name)
                    os.kill(old, signal.SIGKILL)
                    node.wait_restarted(name, old)
                    killed.append(name)
                    probe.stdin.write(b"\n")
                    probe.stdin.flush()
                _, errors = probe.communicate(timeout=20 * PATIENCE)
            finally:
                probe.kill()
            self.assertEqual((name, probe.returncode), ("done", 0), errors.decode() + node.logs())
            self.assertEqual(len(killed), 8, killed)
            wait_until(lambda: metric(node, "coordinator", "handovers_active") == 0, 12, "no hand-over is left")
            for gauge in ("held_count", "claim_count"):
                wait_until(lambda gauge=gauge: metric(node, "registrar", gauge) == 0, 12, f"the registrar's {gauge} is 0")


if __name__ == "__main__":
    main()
