"""Direct hand-overs straight between the pools of engines: nothing is copied but by the sockets."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from cluster_support import PACE, PATIENCE, Cluster, counter, main, missing, wait_alive, wait_until
from node_support import BIN
from pushing_support import Pushing

POOLS = ("--fabric-pools", "true", "--mr-bytes-max", "1MiB")
PARTS = os.path.join(BIN, "..", "tests", "parts_probe")


def moved(node, way):
    """Bytes that the node's transporter pushed (out) or took in (in) straight, and bytes that it and its swappers copied for it."""
    swappers = [name for name in node.processes() if name.startswith("swapper.")]
    copied = sum(counter(node, name, f"{way}_bytes") for name in swappers)
    straight = counter(node, "transporter.0", "pushed_pool_bytes" if way == "out" else "arrived_pool_bytes")
    return straight, copied + counter(node, "transporter.0", "copied_bytes")


class Straight(Pushing):
    TRIES = 5

    def counts(self, a, b):
        return {"out": moved(a, "out"), "in": moved(b, "in"), "pushed": counter(a, "coordinator", "handovers_pushed"),
                "tickets": counter(b, "transporter.0", "pool_tickets"),
                "refused": sum(counter(node, "coordinator", "pushes_straight_refused") for node in (a, b))}

    def pushed(self, cluster, *arguments, requests=200):
        """Hand-overs between engines of their own. What the first of them ask for before the fabric has registered these pools goes
        by extents; then all is done once more. Leaves what the last time added to the counts."""
        a, b = cluster.nodes
        wait_alive(a, "b")
        wait_alive(b, "a")
        for _ in range(self.TRIES):
            before = self.counts(a, b)
            report = self.demo(a, b, "--mode", "direct", "--requests", str(requests), "--concurrency", "16", "--op-timeout",
                               "30s", *arguments)
            self.assertEqual(report["complete"], requests, report)
            self.assert_nothing_is_left(a, b)
            after = self.counts(a, b)
            self.added = {name: tuple(map(int.__sub__, after[name], before[name])) if name in ("out", "in")
                          else after[name] - before[name] for name in after}
            if self.added["refused"] == 0:
                break
        told = {name: [counter(node, "coordinator", name) for node in (a, b)] for name in
                ("handovers_fallen_back", "pushes_straight", "handovers_aborted", "handovers_committed")}
        told.update({name: [counter(node, "transporter.0", name) for node in (a, b)] for name in
                     ("pushes", "pushes_failed", "tickets_expired", "tickets_refused", "pool_tickets", "arrivals", "arrivals_bad")})
        told["reasons"] = [line for node in (a, b) for line in node.logs().splitlines() if "goes through storage" in line]
        # On a busy machine a few go through storage, as in handover_test.py.
        self.fallen = requests - self.added["pushed"]
        self.assertLessEqual(self.fallen, 0.05 * requests, told)
        return report

    def nothing_was_copied(self):
        (out, copied), (came, copied_in) = self.added["out"], self.added["in"]
        self.assertEqual(self.added["refused"], 0)
        self.assertGreater(out, 0)
        if self.fallen == 0:
            self.assertEqual((copied, came, copied_in), (0, out, 0))
        else:
            self.assertLess(copied + copied_in, 0.2 * out)

    def test_ranks(self):
        for ranks in (1, 2, 4, 8):
            with self.subTest(ranks=ranks), Cluster(2, ranks=ranks, memory="128MiB", settings=POOLS) as cluster:
                self.pushed(cluster, "--ranks", str(ranks))
                self.nothing_was_copied()

    def test_a_thousand_requests(self):
        with Cluster(2, ranks=2, memory="256MiB", settings=POOLS) as cluster:
            self.pushed(cluster, "--ranks", "2", requests=1000)
            self.nothing_was_copied()
            self.assertGreaterEqual(self.added["tickets"], 990)

    def test_layers_go_while_the_next_ones_are_computed(self):
        with Cluster(2, ranks=2, memory="256MiB", settings=POOLS) as cluster:
            report = self.pushed(cluster, "--by-layers", "--ranks", "2", "--layers", "7", "--block-bytes", "50001")
            self.assertGreaterEqual(report["layers_ahead"], 190)
            self.assertGreaterEqual(report["layers_early"], 190)
            self.nothing_was_copied()

    def test_a_side_whose_pools_are_not_in_the_fabric_goes_by_extents(self):
        for straight in (0, 1):
            with self.subTest(straight="ab"[straight]), Cluster(2, ranks=2, memory="128MiB") as cluster:
                cluster.nodes[straight].settings += list(POOLS)
                cluster.nodes[1 - straight].settings += ["--fabric-pools", "false"]
                for node in cluster.nodes:
                    node.stop()
                    node.start()
                self.pushed(cluster, "--ranks", "2")
                out, out_copied = moved(cluster.nodes[0], "out")
                came, in_copied = moved(cluster.nodes[1], "in")
                self.assertEqual(out > 0, straight == 0)
                self.assertEqual(came > 0, straight == 1)
                self.assertGreater(in_copied if straight == 0 else out_copied, 0)


def probe(node, what):
    return subprocess.Popen([PARTS, node.instance, node.directory + "/run", node.shm, what], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Shapes(unittest.TestCase):
    def matrix(self, a, b, engines):
        """1, 2, 4, 8 ranks and two layouts at each side: heads in fragments, heads that two ranks have, parts that all have."""
        giving, taking = probe(a, "givers"), probe(b, "takers")
        try:
            for process in (giving, taking):
                self.assertEqual(process.stdout.readline(), "registered\n")
            for node in {a, b}:
                wait_until(lambda at=node: counter(at, "transporter.0", "pool_engines") == engines, 30, "all pools are registered")
            for process in (giving, taking):
                process.stdin.write("\n")
                process.stdin.flush()
            for _ in range(64):
                ticket = taking.stdout.readline()
                self.assertNotEqual(ticket, "", "no ticket")
                giving.stdin.write(ticket)
                giving.stdin.flush()
        finally:
            for process in (giving, taking):
                try:
                    _, errors = process.communicate(timeout=120 * PATIENCE)
                finally:
                    process.kill()
                self.assertEqual(process.returncode, 0, errors + a.logs() + b.logs())
        self.assertEqual(counter(b, "coordinator", "handovers_consumed"), 64)
        self.assertEqual(counter(a, "coordinator", "handovers_pushed"), 64)
        self.assertEqual(counter(b, "coordinator", "pushes_straight_refused"), 0)
        self.assertEqual(counter(b, "transporter.0", "pool_tickets"), 64)

    def test_what_some_ranks_computed_any_number_takes(self):
        with Cluster(2, ranks=8, settings=["--fabric-pools", "true", "--mr-bytes-max", "65536"]) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            self.matrix(a, b, 8)
            out, copied = moved(a, "out")
            self.assertEqual(copied, 0)
            came, copied = moved(b, "in")
            self.assertEqual(came, out)
            self.assertGreater(copied, 0)  # what several ranks have

    def test_on_one_node_bytes_are_copied_from_pool_to_pool(self):
        with Cluster(1, ranks=8, settings=["--fabric-pools", "true", "--mr-bytes-max", "65536"]) as cluster:
            node = cluster.nodes[0]
            self.matrix(node, node, 16)
            out, copied = moved(node, "out")
            self.assertGreaterEqual(copied, out)
            for name in node.processes():
                if name.startswith("swapper."):
                    self.assertEqual((counter(node, name, "out_bytes"), counter(node, name, "in_bytes")), (0, 0))


class Disturbed(Pushing):
    """pd-demo poisons decode's blocks, and looks at them again before they are reused and at the end (late_writes)."""

    def disturbed(self, side, actor, stops, *arguments, requests=1200):
        settings = ["--handover-push-fallback", "false", *POOLS]
        with Cluster(2, ranks=2, memory="256MiB", settings=settings) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            victim, ended = cluster.nodes[side], threading.Event()

            def disturb():
                wait_until(lambda: counter(b, "coordinator", "handovers_consumed") > 30, 20, "it runs")
                for turn in range(3):
                    pid = victim.live_pid(actor)
                    os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
                    if stops:
                        time.sleep(1.6)
                        try:
                            os.kill(pid, signal.SIGCONT)
                        except ProcessLookupError:  # somebody lost patience
                            pass
                    victim.wait_ready()
                    if ended.wait(0.3 + 0.1 * turn):
                        return

            worker = threading.Thread(target=disturb)
            worker.start()
            try:
                report = self.demo(a, b, "--mode", "direct", *arguments, "--ranks", "2", "--op-timeout", "1s",
                                   "--concurrency", "32", "--block-bytes", "65536", "--requests", str(requests))
            finally:
                ended.set()
                worker.join()
            self.assertGreater(report["complete"], 30)
            self.assertEqual(report["complete"] + report["errors_502"] + report["errors_other"], requests, report)
            self.assertGreater(counter(b, "transporter.0", "arrived_pool_bytes") + (actor == "transporter.0"), 0)
            self.assert_nothing_is_left(a, b)
            for node in (a, b):
                wait_until(lambda at=node: counter(at, "transporter.0", "pool_memories") == 0, 20, f"no pool at {node.name}")
            wait_until(lambda: counter(b, "transporter.0", "tickets_open") == 0, 20, "no ticket is left")

    def test_prefills_transporter_is_stopped(self):
        self.disturbed(0, "transporter.0", True)

    def test_prefills_transporter_is_stopped_by_layers(self):
        self.disturbed(0, "transporter.0", True, "--by-layers")

    def test_prefills_transporter_is_killed(self):
        self.disturbed(0, "transporter.0", False)

    def test_prefills_coordinator_is_killed(self):
        self.disturbed(0, "coordinator", False)

    def test_prefills_coordinator_is_stopped(self):
        self.disturbed(0, "coordinator", True)

    def test_decodes_transporter_is_stopped(self):
        self.disturbed(1, "transporter.0", True)

    def test_decodes_transporter_is_killed(self):
        self.disturbed(1, "transporter.0", False, "--by-layers")

    def test_decodes_coordinator_is_killed(self):
        self.disturbed(1, "coordinator", False)

    def test_decodes_coordinator_is_stopped(self):
        self.disturbed(1, "coordinator", True, "--by-layers")

    def test_prefills_engine_is_killed(self):
        with Cluster(2, ranks=2, memory="256MiB", settings=["--handover-hold", "5s", *POOLS]) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            report = self.demo(a, b, "--mode", "direct", "--requests", "400", "--ranks", "2", "--concurrency", "32",
                               "--block-bytes", "65536", "--op-timeout", f"{2 * PACE}s", "--kill-prefill")
            self.assertTrue(report["prefill_killed"])
            self.assertEqual(report["complete"] + report["errors_502"], 400, report)
            self.assert_nothing_is_left(a, b)
            wait_until(lambda: counter(a, "transporter.0", "pool_memories") == 0, 20, "prefill's pools are gone")


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main()
