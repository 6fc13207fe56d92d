"""The resources of a killed or stopped client are released: pins, reservations, its shm files; also when the registrar dies with it."""

import json
import os
import select
import signal
import statistics
import subprocess
import time
import unittest

from node_support import BIN, Node, main, wait_until

PROBE = os.path.join(BIN, "..", "tests", "death_probe")
SLOWDOWN = int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))
MIB = 1 << 20
HELD = 24 * MIB  # pinned 8, reserved 16
ROUNDS = 5
BOUND = 20 * SLOWDOWN  # limit of a hang


def used_bytes(node):
    shown = json.loads(node.ctl("status", "--pages").stdout)
    return next(actor for actor in shown["actors"] if actor["name"] == "registrar")["counters"]["used_bytes"]


@unittest.skipUnless(os.path.exists(PROBE), "death_probe was not built")
class Death(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1)
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)

    def holder(self):
        """A client that holds HELD bytes."""
        probe = subprocess.Popen([PROBE, self.node.instance, self.node.directory + "/run", self.node.shm],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)
        ready = select.select([probe.stdout], [], [], BOUND)[0] and probe.stdout.readline()
        self.assertEqual(ready, b"holding\n", probe.poll() is not None and probe.stderr.read())
        wait_until(lambda: used_bytes(self.node) == HELD, BOUND, "the client's bytes are shown")
        return probe

    def released(self, since, what):
        wait_until(lambda: used_bytes(self.node) == 0, BOUND, what)
        return (time.monotonic() - since) * 1000

    def kill(self, probe):
        since = time.monotonic()
        probe.kill()
        probe.wait()
        return since

    def test_a_killed_client_gives_back_what_it_held(self):
        took = [self.released(self.kill(self.holder()), "all was released") for _ in range(ROUNDS)]
        print(f"killed client: pins and reservations back after {statistics.median(took):.0f} ms "
              f"(median of {ROUNDS}, worst {max(took):.0f}; a look takes some 10 ms)")
        self.assertLess(statistics.median(took), 5000 * SLOWDOWN)
        left = [name for name in os.listdir(self.node.shm) if name.startswith("pins.client")]
        self.assertEqual(left, [])

    def test_a_stopped_client_keeps_what_it_holds_and_stops_nobody(self):
        probe = self.holder()
        probe.send_signal(signal.SIGSTOP)
        for number in range(20):
            self.node.ctl("put", f"other/{number}", stdin=b"x" * MIB)
            self.assertEqual(self.node.ctl("get", f"other/{number}").stdout, b"x" * MIB)
        # A gauge is written ten times a second.
        wait_until(lambda: used_bytes(self.node) == HELD + 20 * MIB, BOUND, "what was put is there beside what is held")
        self.node.ctl("rm", "--all")
        wait_until(lambda: used_bytes(self.node) == HELD, BOUND, "only held bytes are left")
        self.released(self.kill(probe), "all was released")

    def test_a_registrar_that_dies_first_still_gives_it_back(self):
        probe = self.holder()
        old = self.node.pid("registrar")
        os.kill(old, signal.SIGKILL)
        self.node.wait_restarted("registrar", old, BOUND)
        self.node.wait_ready(BOUND)
        self.assertEqual(used_bytes(self.node), HELD)
        took = self.released(self.kill(probe), "all was released by the new registrar")
        print(f"killed client of a registrar that was killed before: {took:.0f} ms")

    def test_client_and_registrar_die_together(self):
        probe = self.holder()
        old = self.node.pid("registrar")
        since = time.monotonic()
        os.kill(old, signal.SIGSTOP)
        self.kill(probe)
        os.kill(old, signal.SIGKILL)
        self.node.wait_restarted("registrar", old, BOUND)
        self.node.wait_ready(BOUND)
        print(f"client and registrar killed together: {self.released(since, 'all was released'):.0f} ms")


if __name__ == "__main__":
    main()
