"""A client's life is the lock of its pin file: whoever loses it by mistake, forks or dies, and what the node does then."""

import os
import signal
import time
import unittest

from containers_support import LIVES, Asked, pins
from node_support import PATIENCE, Node, log_of, main, wait_until
from values_support import put_all


def evict_all(node):
    """More than a node of 16 MiB holds is put."""
    put_all(node, {f"other-{number}": b"other" * 28000 for number in range(130)})


@unittest.skipUnless(os.path.exists(LIVES), "lives_probe was not built")
class Clients(unittest.TestCase):
    def started(self):
        node = Node(ranks=1, memory="16MiB")
        self.addCleanup(node.__exit__)
        node.__enter__()
        probe = Asked(self, node, (LIVES,), ("0",))
        self.assertEqual(probe.code("pin"), "SL_OK")
        return node, probe

    def restart(self, node):
        old = node.live_pid("registrar")
        os.kill(old, signal.SIGKILL)
        node.wait_restarted("registrar", old)

    def lost(self, node, probe):
        """The log names it; its pins stay, also over restarts; its next call hears of it; another client is let in."""
        (name,) = pins(node)
        wait_until(lambda: f"{name[len('pins.'):]} has lost the lock of its pin file" in log_of(node, "registrar"), 5, "the log names it")
        for turn in range(2):
            evict_all(node)
            self.assertEqual(probe.code("check"), "whole")
            self.restart(node)
        wait_until(lambda: pins(node) == [name], 5, "others that ended have left nothing")

    def test_a_lock_that_was_lost_by_mistake_costs_no_pins_and_the_next_call(self):
        node, probe = self.started()

        self.assertEqual(probe.code("touch"), "SL_OK")

        self.lost(node, probe)
        wait_until(lambda: probe.code("draft") == "SL_ERR_STALE", 5, "its call hears of it")
        self.assertEqual(probe.code("put"), "SL_ERR_STALE")
        self.assertEqual(probe.code("pool"), "SL_ERR_STALE", "and does not ask until its deadline")
        self.assertEqual(probe.code("more"), "SL_OK", "others of the same process are let in")
        self.assertEqual(probe.code("check"), "whole")
        probe.kill()
        wait_until(lambda: pins(node) == [], 5, "its pins are gone")

    def test_a_client_that_closes_all_descriptors_keeps_what_it_reads(self):
        node, probe = self.started()

        self.assertEqual(probe.code("shut"), "SL_OK")

        try:
            self.lost(node, probe)
        except AssertionError:  # libzmq ends a process when it finds that its own descriptors are gone, sooner or later
            if probe.process.poll() != -signal.SIGABRT:
                raise
        probe.kill()
        wait_until(lambda: pins(node) == [], 5, "its pins are gone")

    def test_a_fork_that_outlives_its_parent_keeps_nothing(self):
        node, probe = self.started()
        child = int(probe.code("fork"))
        self.addCleanup(os.kill, child, signal.SIGKILL)

        since = time.monotonic()
        probe.kill()
        wait_until(lambda: pins(node) == [], 5, "the parent's pins are gone")

        print(f"noticed after {(time.monotonic() - since) * 1000:.0f} ms beside a fork that holds the connection")
        os.kill(child, 0)

    def test_a_client_that_is_killed_is_noticed(self):
        node, probe = self.started()

        since = time.monotonic()
        probe.kill()
        wait_until(lambda: pins(node) == [], 5, "its pins are gone")

        took = time.monotonic() - since
        print(f"noticed after {took * 1000:.0f} ms")
        self.assertLess(took, PATIENCE)

    def test_a_stopped_client_lives(self):
        node, probe = self.started()
        os.kill(probe.process.pid, signal.SIGSTOP)

        evict_all(node)
        self.restart(node)
        evict_all(node)
        os.kill(probe.process.pid, signal.SIGCONT)

        self.assertEqual(probe.code("check"), "whole")


if __name__ == "__main__":
    main()
