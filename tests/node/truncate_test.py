"""Shm files that another process of this user truncates: no process dies or reads wrong bytes, and the node soon works again."""

import json
import os
import tempfile
import time
import unittest

from lives_support import PROBE, Kept, Probe
from node_support import Node, main, wait_until, workload

CUTS = int(os.environ.get("SLUICE_TEST_CUTS", "2"))  # for each file and number of threads
WHOLE_S = 5  # times the patience
FINE = {"SL_OK", "SL_ERR_NOT_FOUND", "SL_ERR_CORRUPT", "SL_ERR_UNREACHABLE", "SL_ERR_TIMEOUT", "SL_ERR_BUSY", "SL_ERR_STALE", "SL_ERR_NO_SPACE",
        "SL_ERR_PEER_DIED", "SL_ERR_LIMIT", "SL_ERR_EXISTS"}


def cut(path, part):
    """Truncates to this share of its length."""
    os.truncate(path, int(os.stat(path).st_size * part) // 8 * 8)


def made_anew(path, before):
    """Whether it is another file, or (the page of an actor's metrics) the same one in its full length."""
    try:
        about = os.stat(path)
        return about.st_ino != before.st_ino or about.st_size == before.st_size
    except FileNotFoundError:
        return False


@unittest.skipUnless(os.path.exists(PROBE), "lives_probe was not built")
class Truncate(unittest.TestCase):
    def segments(self, node):
        """[(name, path)], one of each kind."""
        return [(name, os.path.join(node.shm, name)) for name in sorted(os.listdir(node.shm)) if not name.startswith("metrics")]

    def lives(self, probe, what):
        self.assertIsNone(probe.process.poll(), f"the client died with status {probe.process.poll()} when {what}")

    @staticmethod
    def stores(node):
        status = json.loads(node.ctl("status", "--pages").stdout)
        return next(row["counters"]["stores"] for row in status["actors"] if row["name"] == "coordinator")

    def cut_all(self, threads):
        node = Kept(self)
        node.start()
        probe = Probe(self, node, threads)
        probe.wait_ok(100)
        names = [name for name, _ in self.segments(node)]
        self.assertTrue({"arena.0", "index"} < set(names) and any(name.startswith("pins.") for name in names), names)
        for turn in range(CUTS):
            for name in names:
                what = f"{name} was cut"
                before, registrar, path = probe.counts(), node.registrar.pid, os.path.join(node.shm, name)
                wait_until(lambda: name in os.listdir(node.shm), WHOLE_S, f"{name} exists")
                whole = os.stat(path)
                cut(path, (0, 0.5, 0.1)[turn % 3])
                if name in ("counts", "labels", "seen", "changes"):  # it continues with new ones
                    wait_until(lambda: self.lives(probe, what) or made_anew(path, whole), WHOLE_S, f"counts again: {what}")
                    self.assertEqual(node.registrar.pid, registrar)
                    continue
                wait_until(lambda: self.lives(probe, what) or node.registrar.pid != registrar, WHOLE_S, f"a new registrar: {what}")
                probe.wait_ok(20 * threads, WHOLE_S)
                self.lives(probe, what)
                self.assertEqual(probe.counts()["wrong"], 0, what)
                self.assertGreater(probe.counts()["ops"], before["ops"])
        self.assertTrue(all(status == 1 for status in node.ended), f"each registrar ended with a logged error:  {node.ended}")
        with open(node.directory + "/run/log/registrar.jsonl", encoding="utf-8") as lines:
            log = lines.read()
        self.assertIn("cut short", log)
        counts = probe.counts()
        self.assertLessEqual({code for code in counts if code.startswith("SL_")}, FINE, counts)
        probe.ask("rest")
        wait_until(lambda: probe.ask("look") and probe.kept()[0] == 1, WHOLE_S, "the memory of the truncated files is released")
        probe.end()
        self.assertEqual(probe.process.returncode, 0, "how the client ended")

    def test_one_thread(self):
        self.cut_all(1)

    def test_two_threads(self):
        self.cut_all(2)

    def test_four_threads(self):
        self.cut_all(4)

    def test_eight_threads(self):
        self.cut_all(8)

    def test_an_idle_client_learns_it_from_its_views(self):
        node = Kept(self)
        node.start()
        probe = Probe(self, node, 0)
        self.assertEqual(probe.code("pin"), "SL_OK")
        self.assertEqual(probe.code("draft"), "SL_OK")
        self.assertEqual(probe.code("check"), "whole")
        cut(os.path.join(node.shm, "arena.0"), 0)
        self.assertEqual(probe.code("check"), "broken")
        self.assertIn(probe.code("write"), ("SL_ERR_CORRUPT", "SL_ERR_STALE"))
        self.assertEqual(probe.code("release"), "released")
        self.assertIn(probe.code("commit"), ("SL_ERR_CORRUPT", "SL_ERR_STALE", "SL_ERR_UNREACHABLE"))
        wait_until(lambda: probe.code("pin") == "SL_OK", WHOLE_S, "the node is whole")
        self.assertEqual(probe.code("check"), "whole")
        self.assertEqual(probe.code("release"), "released")

    def test_a_whole_node_under_load(self):
        """Each actor uses shm files meanwhile; whichever is truncated, it ends with a logged error, if it ends at all."""
        with tempfile.TemporaryDirectory() as directory, Node(ranks=2, memory="64MiB", disk="256MiB") as node:
            trace, report = directory + "/trace", directory + "/report"
            workload(trace, 20000, 11)
            replay = node.replay_start(trace, "--ranks", "2", "--block-bytes", "4096", "--json", report)
            self.addCleanup(lambda: replay.poll() is not None or replay.kill())
            # It has read its trace and registered: an engine that registers while its node is restarted may be refused.
            wait_until(lambda: replay.poll() is not None or self.stores(node) > 0, 20, "the engine stores")
            probe = Probe(self, node, 2)
            probe.wait_ok(200)
            names = ["arena.0", "index", "arena.0", f"pins.client.{probe.process.pid}.0", "pins.coordinator", "metrics.registrar",
                     "metrics.swapper.0", "metrics.tierer.0"]
            for turn, name in enumerate(name for name in names if os.path.exists(os.path.join(node.shm, name))):
                what, begun = f"{name} was cut", time.monotonic()
                wait_until(lambda: name in os.listdir(node.shm), WHOLE_S, f"{name} exists")
                before = (os.stat(os.path.join(node.shm, name)), node.processes())
                cut(os.path.join(node.shm, name), (0, 0, 0.5)[turn % 3] if name == "arena.0" else 0)
                wait_until(lambda: made_anew(os.path.join(node.shm, name), before[0]), 2 * WHOLE_S, f"another {name}")
                node.wait_ready(2 * WHOLE_S)
                probe.wait_ok(40, 2 * WHOLE_S)
                self.lives(probe, what)
                print(f"{what}: whole after {time.monotonic() - begun:.1f} s; started again: "
                      f"{[actor for actor, row in node.processes().items() if row[0] != before[1][actor][0]]}")
                for actor, row in node.processes().items():
                    self.assertIn(row[3], ("-", "1", "137"), f"how {actor} ended when {what}")
            counts = probe.counts()
            self.assertEqual(counts["wrong"], 0, counts)
            self.assertIsNone(replay.poll(), "the engine ended: " + (str(replay.communicate()) if replay.poll() is not None else ""))
            replay.terminate()
            replay.communicate()
            workload(trace, 100, 5)
            node.ctl("replay", trace, "--ranks", "2", "--block-bytes", "4096", "--op-timeout", "30s", "--json", report, timeout=120)
            with open(report, encoding="utf-8") as lines:
                found = json.load(lines)
            self.assertEqual([found[name] for name in ("mismatches", "errors", "lost")], [0, 0, 0])


if __name__ == "__main__":
    main()
