"""A client that outlives its node: memory of former nodes is released, and bytes of it that are still held do not change."""

import os
import unittest

from lives_support import PROBE, Bare, Probe
from node_support import main, wait_until

LIVES = int(os.environ.get("SLUICE_TEST_LIVES", "15"))


@unittest.skipUnless(os.path.exists(PROBE), "lives_probe was not built")
class Lives(unittest.TestCase):
    def one_arena(self, probe):
        """The arena of the running node; a lookup unmaps the others."""
        return probe.ask("look")[0] in ("SL_OK", "SL_ERR_NOT_FOUND") and probe.kept()[0] == 1

    def outlive(self, threads):
        node = Bare(self)
        node.start()
        probe = Probe(self, node, threads)
        probe.wait_ok(200)
        probe.ask("rest")
        wait_until(lambda: self.one_arena(probe), 5, "one arena is mapped")
        first = probe.kept()[1]
        probe.ask("go")
        for life in range(LIVES):
            node.stop()
            node.start()
            probe.wait_ok(50 * threads)
            if life % 5 == 4:
                arenas = probe.kept()[0]
                self.assertLessEqual(arenas, 4, f"arenas after {life + 1} lives")
        probe.ask("rest")
        wait_until(lambda: self.one_arena(probe), 5, "one arena is mapped")
        last = probe.kept()[1]
        # The same shm files; how full they are depends on what the threads had put.
        self.assertLess(last, first + (18 << 20), f"{first} bytes in the first life, {last} in the last")
        counts = probe.counts()
        self.assertEqual(counts["wrong"], 0, counts)
        self.assertGreater(counts["read"], 100, counts)
        probe.end()
        self.assertEqual(probe.process.returncode, 0, "how the client ended")

    def test_one_thread(self):
        self.outlive(1)

    def test_two_threads(self):
        self.outlive(2)

    def test_four_threads(self):
        self.outlive(4)

    def test_eight_threads(self):
        self.outlive(8)

    def test_what_is_held_of_an_old_node_stays_until_it_is_released(self):
        node = Bare(self)
        node.start()
        probe = Probe(self, node, 0)
        self.assertEqual(probe.code("pin"), "SL_OK")
        self.assertEqual(probe.code("draft"), "SL_OK")
        for _ in range(3):
            node.stop()
            node.start()
            wait_until(lambda: probe.code("look") == "SL_ERR_NOT_FOUND", 5, "the new node is found")
            self.assertEqual(probe.code("check"), "whole")
            self.assertEqual(probe.code("write"), "SL_ERR_STALE")
        wait_until(lambda: probe.code("look") and probe.kept()[0] == 2, 5, "the first and the last node's memory is mapped")
        self.assertEqual(probe.code("release"), "released")
        self.assertEqual(probe.kept()[0], 2, "the draft holds it")
        self.assertEqual(probe.code("commit"), "SL_ERR_STALE")
        self.assertEqual(probe.kept()[0], 1, "the last use was over: it is let go at once")
        # The same again, ended by the view.
        self.assertEqual(probe.code("pin"), "SL_OK")
        node.stop()
        node.start()
        wait_until(lambda: probe.code("look") == "SL_ERR_NOT_FOUND", 5, "the new node is found")
        wait_until(lambda: probe.code("look") and probe.kept()[0] == 2, 5, "both are mapped")
        self.assertEqual(probe.code("check"), "whole")
        self.assertEqual(probe.code("release"), "released")
        self.assertEqual(probe.kept()[0], 1)
        self.assertEqual(probe.code("pin"), "SL_OK", "pins of the node that runs are as ever")
        self.assertEqual(probe.code("release"), "released")

    def test_clients_that_were_closed_leave_their_slots_to_others(self):
        node = Bare(self)
        node.start()
        probe = Probe(self, node, 0)
        self.assertEqual(probe.code("pin"), "SL_OK")
        self.assertEqual(probe.code("more"), "SL_OK")
        # A fork that closes its copy of the client ends nothing of the parent's.
        self.assertEqual(probe.code("child"), "0")
        self.assertEqual(probe.code("more"), "SL_OK")
        self.assertEqual([name for name in node.pins() if name.startswith(f"pins.client.{probe.process.pid}.")], node.pins())
        writer = Probe(self, node, 1)
        writer.wait_ok(4000)  # some 20 times the memory: all that is not pinned is evicted
        self.assertEqual(probe.code("check"), "whole")
        self.assertEqual(probe.code("release"), "released")
        writer.end()

    def test_a_process_that_runs_another_program_attaches_as_another_client(self):
        """Its process id and start time stay, and its former resources may not be released yet."""
        node = Bare(self)
        node.start()
        probe = Probe(self, node, 0)
        for way in ("close exec", "close exec", "exec"):
            probe.tell(*way.split())
            self.assertEqual(probe.code("pin"), "SL_OK", way)
        writer = Probe(self, node, 1)
        writer.wait_ok(4000)
        self.assertEqual(probe.code("check"), "whole")
        self.assertEqual(probe.code("release"), "released")
        writer.end()

    def test_a_client_that_a_new_node_never_heard_of_leaves_nothing_there(self):
        node = Bare(self)
        node.start()
        probe = Probe(self, node, 0)
        self.assertEqual((probe.code("pin"), probe.code("release")), ("SL_OK", "released"))
        node.stop()
        node.start()
        wait_until(lambda: probe.code("look") == "SL_ERR_NOT_FOUND" and node.pins() != [], 5, "it reads in the new node")

        probe.tell("close", "exec")

        self.assertEqual(probe.code("pin"), "SL_OK")
        self.assertEqual(len(node.pins()), 1)
        self.assertEqual(probe.code("release"), "released")


if __name__ == "__main__":
    main()
