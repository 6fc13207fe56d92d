"""An actor that is ready to run and gets no core: what it logs, and what doctor says. Takes a core from everyone for a second."""

import json
import os
import subprocess
import sys
import time
import unittest

from node_support import Node, allowed, log_of, main, wait_until

CORE = min(os.sched_getaffinity(0))
# Takes a core from everyone for less than a second: the kernel's own limit of such processes, and a node's patience.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
until = time.monotonic() + 0.9
while time.monotonic() < until: pass
"""


class Core(unittest.TestCase):
    def test_an_actor_without_a_core_says_so(self):
        if not rt_allowed():
            self.skipTest("needs the right to a real-time process")
        with Node() as node:
            node.ctl("put", "kept", stdin=b"value")
            time.sleep(1.1)  # an actor looks once a second
            os.sched_setaffinity(node.pid("registrar"), {CORE})
            subprocess.run([sys.executable, "-c", HOG, str(CORE)], check=True, timeout=20)
            wait_until(lambda: "had no core for" in log_of(node, "registrar"), 10, "the registrar's line")
            checks = json.loads(node.ctl("doctor", "--json", check=False).stdout)
            cores = [check for check in checks["checks"] if check["check"] == "cores"]
            self.assertEqual(len(cores), 1, checks)
            self.assertRegex(cores[0]["text"], r"^[a-z]+(\.\d+)? was ready to run and had no core for [0-9.]+ s of its [0-9]+ s$")


def rt_allowed():
    return allowed("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))")


if __name__ == "__main__":
    main()
