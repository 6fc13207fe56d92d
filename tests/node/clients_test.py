"""A client lives as long as it holds the lock of its pin file. Tests what a node does when a client loses the lock by
mistake, forks or dies."""

import os
import signal
import time
import unittest

from containers_support import LIVES, Asked, evict_all, lock_is_lost, lost_is_refused, pins, restart
from node_support import Node, main, wait_until


@unittest.skipUnless(os.path.exists(LIVES), "lives_probe was not built")
class Clients(unittest.TestCase):
    def started(self):
        node = Node(ranks=1, memory="16MiB")
        self.addCleanup(node.__exit__)
        node.__enter__()
        probe = Asked(self, node, (LIVES,), ("0",))
        self.assertEqual(probe.code("pin"), "SL_OK")
        return node, probe

    def test_a_lock_that_was_lost_by_mistake_costs_no_pins_and_the_next_call(self):
        node, probe = self.started()

        self.assertEqual(probe.code("touch"), "SL_OK")

        lock_is_lost(self, node, probe)
        lost_is_refused(self, probe)
        probe.kill()
        wait_until(lambda: pins(node) == [], 5, "its pins are gone")

    def test_a_client_that_closes_all_descriptors_keeps_what_it_reads(self):
        node, probe = self.started()

        self.assertEqual(probe.code("shut"), "SL_OK")

        lock_is_lost(self, node, probe)
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

        print(f"noticed after {(time.monotonic() - since) * 1000:.0f} ms")

    def test_a_stopped_client_lives(self):
        node, probe = self.started()
        os.kill(probe.process.pid, signal.SIGSTOP)

        evict_all(node)
        restart(node)
        evict_all(node)
        os.kill(probe.process.pid, signal.SIGCONT)

        self.assertEqual(probe.code("check"), "whole")


if __name__ == "__main__":
    main()
