"""Direct hand-overs between the pools of engines: only the sockets copy."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

from cluster_support import PACE, PATIENCE, Cluster, counter, main, wait_alive, wait_until
from node_support import BIN, log_of
from handing_support import Handing

POOLS = ("--fabric-pools", "true", "--mr-bytes-max", "1MiB")
PARTS = os.path.join(BIN, "..", "tests", "parts_probe")


def counters(node):
    """{actor: its counters}, read with one command."""
    status = json.loads(node.ctl("status", "--pages").stdout)
    return {row["name"]: row["counters"] for row in status["actors"]}


def moved(counted, way):
    """Bytes that a node's transporter sent (out) or read (in) directly, and bytes that it and its swappers copied for it."""
    copied = sum(row[f"{way}_bytes"] for name, row in counted.items() if name.startswith("swapper."))
    transporter = counted["transporter.0"]
    straight = transporter["pool_read_bytes" if way == "out" else "landed_bytes"]
    return straight, copied + transporter["copied_bytes"]


def started(*arguments, **options):
    """A cluster of two nodes that know each other, for all cases of a class. Its __exit__ ends it."""
    cluster = Cluster(2, *arguments, **options)
    cluster.__enter__()
    try:
        wait_alive(cluster.nodes[0], "b")
        wait_alive(cluster.nodes[1], "a")
    except BaseException:
        cluster.__exit__(*sys.exc_info())
        raise
    return cluster


class Counted(Handing):
    TRIES = 5

    def counts(self, a, b):
        at_a, at_b = counters(a), counters(b)
        return {"out": moved(at_a, "out"), "in": moved(at_b, "in"), "pushed": at_a["coordinator"]["handovers_pushed"],
                "takes": at_b["transporter.0"]["takes"],
                "refused": sum(at["coordinator"]["pushes_direct_refused"] for at in (at_a, at_b))}

    def pushed(self, cluster, *arguments, requests=200):
        """Runs hand-overs between engines of their own. Those that start before the fabric has registered these pools use storage, and so
        do those that a busy machine delays; if there are some, all is done once more. Leaves the increases of the last run's counters."""
        a, b = cluster.nodes
        for _ in range(self.TRIES):
            before = self.counts(a, b)
            report = self.demo(a, b, "--mode", "direct", "--requests", str(requests), "--concurrency", "16", "--op-timeout",
                               "30s", *arguments)
            # Prefill also learns of each: a hand-over that it gave up would not count as pushed, and would be remembered.
            self.assertEqual((report["complete"], report["sent"]), (requests, requests), report)
            self.assert_nothing_is_left(a, b)
            after = self.counts(a, b)
            self.added = {name: tuple(map(int.__sub__, after[name], before[name])) if name in ("out", "in")
                          else after[name] - before[name] for name in after}
            # On a busy machine a few use storage, as in handover_test.py: decode has no core for 200 ms.
            self.fallen = requests - self.added["pushed"]
            if self.added["refused"] == 0 and self.fallen <= 0.05 * requests:
                break
        if self.fallen > 0.05 * requests:
            self.fail(self.told(a, b))
        return report

    @staticmethod
    def told(a, b):
        at = [counters(node) for node in (a, b)]
        told = {name: [row["coordinator"][name] for row in at] for name in
                ("handovers_fallen_back", "pushes_direct", "handovers_aborted", "handovers_committed")}
        told.update({name: [row["transporter.0"][name] for row in at] for name in
                     ("loans", "loans_failed", "takes", "takes_failed", "takes_refused", "digests_bad")})
        told["reasons"] = [line for node in (a, b) for line in log_of(node, "coordinator").splitlines()
                           if "uses storage" in line]
        return told

    def nothing_was_copied(self):
        (out, copied), (came, copied_in) = self.added["out"], self.added["in"]
        self.assertEqual(self.added["refused"], 0)
        self.assertGreater(out, 0)
        if self.fallen == 0:
            self.assertEqual((copied, came, copied_in), (0, out, 0))
        else:
            self.assertLess(copied + copied_in, 0.2 * out)


class Straight(Counted):
    @classmethod
    def setUpClass(cls):
        cls.cluster = started(ranks=8, memory="256MiB", settings=POOLS)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()

    def test_ranks(self):
        for ranks in (1, 2, 4, 8):
            with self.subTest(ranks=ranks):
                self.pushed(self.cluster, "--ranks", str(ranks))
                self.nothing_was_copied()

    def test_a_thousand_requests(self):
        self.pushed(self.cluster, "--ranks", "2", requests=1000)
        self.nothing_was_copied()
        self.assertGreaterEqual(self.added["takes"], 990)

    def test_layers_go_while_the_next_ones_are_computed(self):
        report = self.pushed(self.cluster, "--by-layers", "--ranks", "2", "--layers", "7", "--block-bytes", "50001")
        self.assertGreaterEqual(report["layers_ahead"], 190)
        self.assertGreaterEqual(report["layers_early"], 190)
        self.nothing_was_copied()


class OneSide(Handing):
    def test_a_side_whose_pools_are_not_in_the_fabric_goes_through_storage(self):
        for straight in (0, 1):
            with self.subTest(straight="ab"[straight]):
                cluster = Cluster(2, ranks=2, memory="128MiB")
                cluster.nodes[straight].settings += POOLS
                cluster.nodes[1 - straight].settings += ["--fabric-pools", "false"]
                with cluster:
                    a, b = cluster.nodes
                    wait_alive(a, "b")
                    wait_alive(b, "a")
                    for by_layers in ((), ("--by-layers",)):
                        report = self.demo(a, b, "--mode", "direct", "--requests", "200", "--concurrency", "16", "--ranks", "2",
                                           "--op-timeout", "30s", *by_layers)
                        self.assertEqual((report["complete"], report["sent"]), (200, 200), report)
                        self.assert_nothing_is_left(a, b)
                    self.assertEqual(counter(a, "coordinator", "handovers_pushed"), 0)
                    # Decode counts it itself when the fabric has not registered its pool yet: prefill then gets no ticket.
                    self.assertGreaterEqual(sum(counter(node, "coordinator", "handovers_fallen_back") for node in (a, b)), 400)


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
        self.assertEqual(counter(b, "coordinator", "pushes_direct_refused"), 0)
        self.assertEqual(counter(b, "transporter.0", "takes"), 64)

    def test_what_some_ranks_computed_any_number_takes(self):
        with Cluster(2, ranks=8, settings=["--fabric-pools", "true", "--mr-bytes-max", "65536"]) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            self.matrix(a, b, 8)
            out, copied = moved(counters(a), "out")
            self.assertEqual(copied, 0)
            came, copied = moved(counters(b), "in")
            self.assertEqual(came, out)
            self.assertGreater(copied, 0)  # parts that several ranks have

    def test_on_one_node_bytes_are_copied_from_pool_to_pool(self):
        with Cluster(1, ranks=8, settings=["--fabric-pools", "true", "--mr-bytes-max", "65536"]) as cluster:
            node = cluster.nodes[0]
            self.matrix(node, node, 16)
            counted = counters(node)
            out, copied = moved(counted, "out")
            self.assertGreaterEqual(copied, out)
            for name, row in counted.items():
                if name.startswith("swapper."):
                    self.assertEqual((row["out_bytes"], row["in_bytes"]), (0, 0))


class Disturbed(Handing):
    """pd_engines poisons decode's blocks, and checks them before they are reused and at the end (late_writes). Leftovers of all cases are
    checked once at the end: they may take time to disappear."""

    @classmethod
    def setUpClass(cls):
        brief = f"{PACE}s"
        cls.cluster = started(ranks=2, memory="256MiB", settings=["--handover-fallback", "false", "--handover-wait", brief,
                                                                  "--handover-hold", brief, *POOLS])

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()

    def consumed(self):
        return counter(self.cluster.nodes[1], "coordinator", "handovers_consumed")

    def flows(self, ended):
        """Whether it makes progress before the demo has ended; the counter restarts with its actor."""
        began = self.consumed()
        wait_until(lambda: ended.is_set() or self.consumed() not in range(began, began + 20), 20, "hand-overs are consumed")
        return not ended.is_set()

    def disturb(self, victim, actor, stops):
        pid = victim.live_pid(actor)
        os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
        if stops:
            time.sleep(1.6)  # past the end of the tickets that are open
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:  # the actor was ended as hung
                pass
        victim.wait_ready()

    def disturbed(self, *arguments):
        """Hand-overs before the fabric has registered these pools fail immediately. All is done once more if no
        transfer was disturbed because of them."""
        for _ in range(Counted.TRIES):
            if self.disturbed_once(*arguments):
                return
        self.fail("no transfer was disturbed")

    def disturbed_once(self, side, actor, stops, turns, *arguments, requests=600):
        a, b = self.cluster.nodes
        arrived, done, ended = counter(b, "transporter.0", "landed_bytes"), [], threading.Event()

        def worker_run():
            while len(done) < turns and self.flows(ended):
                self.disturb(self.cluster.nodes[side], actor, stops)
                done.append(True)

        worker = threading.Thread(target=worker_run)
        worker.start()
        try:
            report = self.demo(a, b, "--mode", "direct", *arguments, "--ranks", "2", "--op-timeout", "1s",
                               "--concurrency", "32", "--block-bytes", "65536", "--requests", str(requests))
        finally:
            ended.set()
            worker.join()
        self.assertEqual(report["complete"] + report["errors_502"] + report["errors_other"], requests, report)
        if not done:
            return False
        self.assertGreater(report["complete"], 30)
        if (side, actor) != (1, "transporter.0"):  # its counter would restart
            self.assertGreater(counter(b, "transporter.0", "landed_bytes"), arrived)
        return True

    def prefills_engine_is_killed(self):
        a, b = self.cluster.nodes
        report = self.demo(a, b, "--mode", "direct", "--requests", "128", "--ranks", "2", "--concurrency", "32",
                           "--block-bytes", "65536", "--op-timeout", f"{PACE}s", "--kill-prefill")
        self.assertTrue(report["prefill_killed"])
        self.assertEqual(report["complete"] + report["errors_502"], 128, report)

    def test_actors_and_engines_are_killed_and_stopped(self):
        for side, actor, turns, *arguments in (
                (0, "transporter.0", 2), (0, "transporter.0", 2, "--by-layers"), (0, "coordinator", 1), (1, "transporter.0", 1),
                (1, "coordinator", 1, "--by-layers")):
            with self.subTest(stopped=actor, side="ab"[side], arguments=arguments):
                self.disturbed(side, actor, True, turns, *arguments)
        for side, actor, *arguments in (
                (0, "transporter.0"), (0, "coordinator"), (1, "transporter.0", "--by-layers"), (1, "coordinator")):
            with self.subTest(killed=actor, side="ab"[side], arguments=arguments):
                self.disturbed(side, actor, False, 2, *arguments)
        with self.subTest(killed="prefill"):
            self.prefills_engine_is_killed()
        a, b = self.cluster.nodes
        self.assert_nothing_is_left(a, b)
        for node in (a, b):
            wait_until(lambda at=node: counter(at, "transporter.0", "pool_memories") == 0, 20, f"no pool at {node.name}")
        wait_until(lambda: counter(a, "transporter.0", "loans_open") == counter(b, "transporter.0", "takes_open") == 0, 20,
                   "nothing is lent and read")


if __name__ == "__main__":
    main()
