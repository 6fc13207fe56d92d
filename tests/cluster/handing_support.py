"""Hand-overs between the nodes of a cluster, with the engines of support/pd."""

import json
import os
import subprocess
import unittest

from cluster_support import PATIENCE, PD_ENGINES, counter, wait_until


def config_of(node):
    path = os.path.join(node.directory, "client.conf")
    with open(path, "w", encoding="utf-8") as out:
        out.write("".join(f"{name} = \"{value}\"\n" for name, value in
                          (("instance", node.instance), ("runtime_dir", node.directory + "/run"), ("shm_dir", node.shm))))
    return path


class Handing(unittest.TestCase):
    def demo(self, prefill, decode, *arguments):
        done = subprocess.run([PD_ENGINES, "--prefill-config", config_of(prefill), "--decode-config",
                               config_of(decode), *arguments], timeout=300 * PATIENCE, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=prefill.environment)
        self.assertTrue(done.stdout, f"{done.stderr}\n{prefill.logs()}\n{decode.logs()}")
        report = json.loads(done.stdout)
        self.assertEqual((report["wrong_bytes"], report["late_writes"], report["blocks_held"]), (0, 0, 0))
        return report

    def assert_nothing_is_left(self, *nodes):
        for node in nodes:
            wait_until(lambda at=node: counter(at, "coordinator", "handovers_active") == 0, 50,
                       f"no hand-over is left at {node.name}")
            wait_until(lambda at=node: counter(at, "registrar", "held_bytes") == 0, 50, f"nothing is held at {node.name}")
