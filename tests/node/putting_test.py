"""Puts by several threads of one client while the node under them is killed, stopped and replaced."""

import os
import select
import shutil
import signal
import subprocess
import time
import unittest

from node_support import main
from object_api import BIN, SLOWDOWN, BareNode

PROBE = os.path.join(BIN, "..", "tests", "putting_probe")
TTL = 120  # seconds that a reservation lasts: long enough to notice a put that waits for its end
BOUND = 30  # seconds, plus those without a node: far from the two above and from a busy machine's pauses


class PuttingNode(BareNode):
    def __init__(self):
        super().__init__(memory="64MiB", disk="0")
        self.actors = [("registrar", None)]
        self.settings += ["--reservation-ttl", f"{TTL}s"]

    def putting(self, what, said=b"putting\n"):
        probe = subprocess.Popen([PROBE, self.instance, self.directory + "/run", self.shm, str(what)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = select.select([probe.stdout], [], [], 30 * SLOWDOWN)[0] and probe.stdout.readline()
        if line != said:
            probe.kill()
            raise AssertionError(f"{line}: {probe.communicate()[1].decode()}{self.logs()}")
        return probe

    def replace(self):
        """Replaces the node, as by a stop and a start. Returns how long none was running."""
        since = time.monotonic()
        self.stop()
        shutil.rmtree(self.shm)
        for role, number in self.actors:
            self.start(role, number)
        return time.monotonic() - since


@unittest.skipUnless(os.path.exists(PROBE), "putting_probe was not built")
class Putting(unittest.TestCase):
    def run_under(self, threads, trouble, rounds):
        with PuttingNode() as node:
            probe = node.putting(threads)
            away = 0
            try:
                for _ in range(rounds):
                    away = max(away, trouble(node))
                    time.sleep(0.3)  # puts continue
                out, errors = probe.communicate(timeout=90 * SLOWDOWN)
            finally:
                probe.kill()
            self.assertEqual(probe.returncode, 0, errors.decode() + node.logs())
            count, failed, longest_ms, failure = out.decode().strip("\n").split(" ", 3)
            print(f"{threads} threads: {count} puts, longest {longest_ms} ms, node away {1000 * away:.0f} ms")
            self.assertEqual((int(failed), failure), (0, ""), node.logs())
            self.assertLess(int(longest_ms), 1000 * (away + BOUND))

    def test_a_node_that_is_replaced_stops_no_put(self):
        for threads in (1, 2, 4, 8):
            with self.subTest(threads=threads):
                self.run_under(threads, PuttingNode.replace, 4)

    def test_a_registrar_that_is_killed_stops_no_put(self):
        def kill(node):
            since = time.monotonic()
            node.processes["registrar"].kill()
            node.processes["registrar"].wait()
            node.processes.pop("registrar").stdout.close()
            node.start("registrar")
            return time.monotonic() - since

        for threads in (1, 2, 4, 8):
            with self.subTest(threads=threads):
                self.run_under(threads, kill, 4)

    def test_what_is_granted_to_a_put_that_was_given_up_goes_back_at_once(self):
        with PuttingNode() as node:
            probe = node.putting("late", said=b"open\n")
            registrar = node.processes["registrar"]
            try:
                registrar.send_signal(signal.SIGSTOP)
                probe.stdin.write(b"\n")
                probe.stdin.flush()
                self.assertEqual(probe.stdout.readline(), b"SL_ERR_TIMEOUT\n")
                registrar.send_signal(signal.SIGCONT)  # it finds the request, and grants
                # The probe lives, and makes no call: otherwise it would keep the key for TTL seconds.
                done = node.ctl("put", "late", "--op-timeout", "60s", stdin=b"of another")
                self.assertEqual(done.returncode, 0, done.stderr.decode() + node.logs())
                self.assertEqual(node.ctl("get", "late").stdout, b"of another")
                _, errors = probe.communicate(timeout=30 * SLOWDOWN)
                self.assertEqual(probe.returncode, 0, errors.decode())
            finally:
                registrar.send_signal(signal.SIGCONT)
                probe.kill()


if __name__ == "__main__":
    main()
