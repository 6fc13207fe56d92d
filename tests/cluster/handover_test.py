"""Hand-overs from a prefill engine at one node to a decode engine at another, through storage and direct."""

import os
import signal
import subprocess
import threading

from cluster_support import PACE, PD_ENGINES, Cluster, counter, main, wait_alive, wait_until
from handing_support import Handing, config_of


class Handover(Handing):
    def test_a_thousand_requests_with_incomplete_last_blocks(self):
        with Cluster(2, ranks=2, memory="256MiB") as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            report = self.demo(a, b, "--requests", "1000", "--ranks", "2", "--concurrency", "32", "--op-timeout", "30s")
            self.assertEqual(report["complete"], 1000, report)
            self.assertGreater(report["from_remote"], 1000)
            # Prefill's engine ends no hold: decode's node reports that it has everything.
            self.assert_nothing_is_left(a, b)
            wait_until(lambda: counter(a, "registrar", "held_count") == 0, 10, "no block is held")
            self.assertEqual(counter(a, "coordinator", "handovers_released_by_peers"), 1000)
            self.assertEqual(counter(a, "coordinator", "releases_refused"), 0)
            self.assertEqual(counter(a, "coordinator", "handovers_aborted"), 0)

    def test_pools_are_registered_while_their_engines_live(self):
        with Cluster(2, ranks=2, memory="256MiB",
                     settings=("--fabric-pools", "true", "--mr-bytes-max", "1MiB")) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            for node in (a, b):
                wait_until(lambda at=node: counter(at, "transporter.0", "regions_registered") == 256, 10,
                           f"the arena of {node.name} is registered")
            report = self.demo(a, b, "--requests", "1000", "--ranks", "2", "--concurrency", "32", "--op-timeout", "30s")
            self.assertEqual(report["complete"], 1000, report)
            for node in (a, b):
                self.assertIn("memories registered with the fabric, 0 bytes are left out", node.logs())
                wait_until(lambda at=node: counter(at, "transporter.0", "pool_memories") == 0, 10,
                           f"no pool is registered at {node.name}")
                self.assertEqual(counter(node, "transporter.0", "pools_refused"), 0)
                self.assertEqual(counter(node, "transporter.0", "regions_registered"), 256)

    def test_a_thousand_requests_pushed(self):
        with Cluster(2, ranks=2, memory="256MiB") as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            report = self.demo(a, b, "--mode", "direct", "--requests", "1000", "--ranks", "2", "--concurrency", "32",
                               "--op-timeout", "30s")
            self.assertEqual(report["complete"], 1000, report)
            self.assertGreaterEqual(counter(a, "coordinator", "handovers_pushed"), 990)
            self.assert_nothing_is_left(a, b)

    def test_layers_are_pushed_while_the_next_ones_are_computed(self):
        # Prefill computes a last layer only after decode, at the other node, has reported that the first one has arrived, and is right.
        with Cluster(2, ranks=2, memory="256MiB") as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            report = self.demo(a, b, "--mode", "direct", "--by-layers", "--requests", "200", "--ranks", "2", "--layers", "7",
                               "--block-bytes", "50001", "--concurrency", "8", "--op-timeout", "30s")
            self.assertEqual(report["complete"], 200, report)
            pushed = counter(a, "coordinator", "handovers_pushed")
            self.assertGreaterEqual(pushed, 190)
            self.assertGreaterEqual(report["layers_ahead"], pushed)
            self.assertGreaterEqual(report["layers_early"], pushed)
            self.assert_nothing_is_left(a, b)

    def test_late_writes_of_a_stopped_transporter_change_nothing(self):
        self.late_writes("--requests", "2000")

    def test_late_layers_of_a_stopped_transporter_change_nothing(self):
        self.late_writes("--requests", "1000", "--by-layers")

    def late_writes(self, *arguments):
        # Prefill's transporter sleeps past the end of its tickets; decode's blocks are poisoned and checked before they are
        # reused and at the end (late_writes).
        with Cluster(2, memory="256MiB", settings=["--handover-fallback", "false"]) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            stopped = a.pid("transporter.0")

            def stop():
                wait_until(lambda: counter(b, "coordinator", "handovers_consumed") > 30, 20, "it runs")
                os.kill(stopped, signal.SIGSTOP)
                stop.timer = threading.Timer(1.6, go_on)
                stop.timer.start()

            def go_on():
                try:
                    os.kill(stopped, signal.SIGCONT)
                except ProcessLookupError:  # the supervisor ended it as hung
                    pass

            stopper = threading.Thread(target=stop)
            stopper.start()
            report = self.demo(a, b, "--mode", "direct", *arguments, "--op-timeout", "1s", "--concurrency", "32")
            stopper.join()
            stop.timer.join()
            self.assertGreater(report["complete"], 30)
            self.assertGreater(report["errors_502"], 0)
            self.assertEqual(report["complete"] + report["errors_502"] + report["errors_other"], int(arguments[1]), report)
            self.assert_nothing_is_left(a, b)
            wait_until(lambda: counter(b, "registrar", "claim_count") == 0, 10, "all extents are released")

    def test_prefill_killed_in_the_middle(self):
        with Cluster(2, ranks=2, memory="256MiB", settings=["--handover-hold", "5s"]) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            report = self.demo(a, b, "--requests", "400", "--ranks", "2", "--concurrency", "64", "--op-timeout",
                               f"{2 * PACE}s", "--kill-prefill")
            self.assertTrue(report["prefill_killed"])
            self.assertGreater(report["errors_502"], 0)
            self.assertEqual(report["complete"] + report["errors_502"], 400, report)
            self.assert_nothing_is_left(a, b)

    def test_decodes_node_dies_in_the_middle(self):
        # No actor reports any more that decode has the held blocks: the hold ends at its deadline.
        with Cluster(2, memory="256MiB", settings=["--handover-hold", "3s"]) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            demo = subprocess.Popen([PD_ENGINES, "--prefill-config", config_of(a), "--decode-config", config_of(b),
                                     "--requests", "100000", "--op-timeout", "60s", "--concurrency", "64"],
                                    stdout=subprocess.DEVNULL, env=a.environment)
            try:
                wait_until(lambda: counter(b, "coordinator", "handovers_consumed") > 30, 20, "it runs")
                b.kill()
                wait_until(lambda: counter(a, "coordinator", "handovers_aborted") > 0, 20, "a hand-over ends by its time")
            finally:
                demo.kill()
                demo.wait()
            self.assert_nothing_is_left(a)
            wait_until(lambda: counter(a, "registrar", "held_count") == 0, 10, "no block is held")

    def test_prefills_node_dies_in_the_middle(self):
        with Cluster(2, memory="256MiB") as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")

            def kill():
                wait_until(lambda: counter(b, "coordinator", "handovers_consumed") > 50, 20, "it runs")
                for name in ("transporter.0", "coordinator", "registrar"):
                    a.signal(name, signal.SIGSTOP)

            killer = threading.Thread(target=kill)
            killer.start()
            report = self.demo(a, b, "--requests", "300", "--op-timeout", "2s", "--concurrency", "64")
            killer.join()
            for name in ("transporter.0", "coordinator", "registrar"):
                try:
                    a.signal(name, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            self.assertGreaterEqual(report["complete"], 50)
            self.assertEqual(report["complete"] + report["errors_502"] + report["errors_other"], 300, report)


if __name__ == "__main__":
    main()
