"""This tree beside the release before it: memory and disks of the one under the other, processes of both together, and the upgrade of
a node of the release under load.

    deploy/test --upgrade [--folder DIR] [TEST...]     a minute or more once, until the release is built; then some three minutes

The release is the newest tag v* before this commit, else the commit that tests/upgrade/release names. It is built in
build/upgrade/COMMIT and kept there. Exit codes: 0, 1 (something does not hold), 77 (this machine cannot).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "node"), os.path.join(HERE, "..", "support")]

import release  # noqa: E402
import suite  # noqa: E402
from node_support import BIN, CTL, NODE, Node, expected_hits, paced, wait_until, workload  # noqa: E402
from upgrade_support import DEADLINE_MS, TESTS, Lives, Putting, Upgrade, programs_copied, programs_of  # noqa: E402

OLD = {}  # root, bin, script, ctl, tests of the release; main fills it


class Mixed(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="sl-mix-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def node(self, old, **settings):
        node = Node(**{"ranks": 2, "memory": "256MiB", "disk": "512MiB", **settings})
        if old:
            self.as_release(node)
        node.__enter__()
        self.addCleanup(lambda: (self.as_tree(node), node.__exit__()))
        return node

    @staticmethod
    def as_release(node):
        node.script, node.ctl_program, node.environment["SLUICE_BIN"] = OLD["script"], OLD["ctl"], OLD["bin"]

    @staticmethod
    def as_tree(node):
        node.script, node.ctl_program, node.environment["SLUICE_BIN"] = NODE, CTL, BIN

    def trace(self, name, requests, seed, duration_ms=0):
        path = f"{self.directory}/{name}.jsonl"
        workload(path, requests, seed)
        if duration_ms:
            paced(path, duration_ms)
        return path

    def replayed(self, node, trace, *words):
        node.ctl("replay", trace, "--ranks", "2", "--block-bytes", "4096", "--op-timeout", "30s", "--json", trace + ".json", *words)
        return self.report(trace)

    def report(self, trace):
        with open(trace + ".json", encoding="utf-8") as lines:
            report = json.load(lines)
        self.assertEqual((report["mismatches"], report["lost"], report["errors"]), (0, 0, 0), report)
        return report


class Left(Mixed):
    """What one has left, the other opens."""

    def left_and_opened(self, before, after):
        node = self.node(old=before is self.as_release)
        trace = self.trace("trace", 150, 3)
        references, hits = expected_hits(trace)
        self.assertEqual(self.replayed(node, trace)["hits"], hits)
        for number in range(50):
            node.ctl("put", f"k{number}", stdin=b"value %d" % number)
        node.ctl("flush")
        node.stop("--keep-arena")
        after(node)
        node.start()
        kept = self.replayed(node, trace)
        self.assertEqual((kept["hits"], kept["hits_by_tier"]["memory"]), (references, references))
        for number in range(50):
            self.assertEqual(node.ctl("get", f"k{number}").stdout, b"value %d" % number)
        node.stop()
        node.start()  # memory is gone: what the other has written to disk
        from_disk = self.replayed(node, trace)
        self.assertEqual(from_disk["hits"], references)
        self.assertGreater(from_disk["hits_by_tier"]["disk"], 0)
        print(f"{kept['hits']} of {references} blocks from memory, {from_disk['hits_by_tier']['disk']} from disk")

    def test_of_the_release_by_this_tree(self):
        self.left_and_opened(self.as_release, self.as_tree)

    def test_of_this_tree_by_the_release(self):
        """Whoever goes back keeps what he has, or is refused by name: here the formats are the same, or the test says which is not."""
        self.left_and_opened(self.as_tree, self.as_release)


class Together(Mixed):
    def clients(self, old_node):
        node = self.node(old=old_node)
        for as_one in (self.as_release, self.as_tree):
            as_one(node)
            trace = self.trace("old" if as_one is self.as_release else "new", 150, 3 if as_one is self.as_release else 4)
            self.assertGreaterEqual(self.replayed(node, trace)["hits"], expected_hits(trace)[1])
            node.ctl("put", "of-" + os.path.basename(trace), stdin=b"x" * 100_000)
            self.assertIn(b"registrar", node.ctl("status").stdout)
        for as_one in (self.as_release, self.as_tree):
            as_one(node)
            for name in ("of-old.jsonl", "of-new.jsonl"):
                self.assertEqual(node.ctl("get", name).stdout, b"x" * 100_000)
            for name in ("old", "new"):
                trace = f"{self.directory}/{name}.jsonl"
                self.assertEqual(self.replayed(node, trace)["hits"], expected_hits(trace)[0])
        (self.as_release if old_node else self.as_tree)(node)

    def test_clients_of_both_on_a_node_of_the_release(self):
        self.clients(True)

    def test_clients_of_both_on_a_node_of_this_tree(self):
        self.clients(False)

    def test_each_actor_alone_of_the_release_and_all_but_each(self):
        """Under this tree's supervisor, whose upgrade can be told where the program of an actor is."""
        node = self.node(old=False)
        trace = self.trace("trace", 100, 3)
        references, _ = expected_hits(trace)
        self.replayed(node, trace)
        names = [name for name in node.processes() if not name.startswith("metrics")]
        os.mkdir(node.directory + "/run/program")
        for alone in (True, False):
            for odd in names:
                for name in names:
                    of_release = (name == odd) == alone
                    with open(f"{node.directory}/run/program/{name}", "w", encoding="utf-8") as place:
                        place.write((OLD["bin"] if of_release else BIN) + "\n")
                    if (programs_of(node)[name] == OLD["bin"]) != of_release:
                        node.supervisor("restart", name)
                node.wait_ready()
                self.assertEqual({name for name, place in programs_of(node).items() if place == OLD["bin"]},
                                 {name for name in names if (name == odd) == alone})
                self.assertEqual(self.replayed(node, trace)["hits"], references, (odd, alone))


class Upgrades(Mixed):
    def test_a_node_of_the_release_under_load_of_both(self):
        node = self.node(old=True, memory="1GiB", disk="1GiB")
        traces = {name: self.trace(name, 600, seed, 20_000) for name, seed in (("old", 3), ("new", 4))}
        replays = {}
        for name, as_one in (("old", self.as_release), ("new", self.as_tree)):
            as_one(node)
            replays[name] = node.replay_start(traces[name], "--ranks", "2", "--block-bytes", "4096", "--speed", "1", "--window", "100", "--json",
                                              traces[name] + ".json")
        probes = [(Lives(self, node, 2, tests), Putting(node, 2, tests)) for tests in (OLD["tests"], TESTS)]
        time.sleep(2)
        new = programs_copied(self.directory + "/programs")
        code, said, seconds = Upgrade(node, new).end()
        print(said)
        self.assertEqual(code, 0, said + node.logs())
        self.assertEqual(set(programs_of(node).values()), {new})
        for (looking, putting), who in zip(probes, ("release", "tree")):
            counts = looking.counts()
            puts, failed, longest_ms, failure = putting.end()
            print(f"clients of the {who}: {counts}, {puts} puts, longest {longest_ms:.0f} ms")
            self.assertEqual((counts["wrong"], failed, failure), (0, 0, ""))
            self.assertLess(longest_ms, DEADLINE_MS)
        for name, replay in replays.items():
            said = replay.communicate(timeout=300)[0]
            report = self.report(traces[name])
            print(f"replay of the {name}: {report['hits']} hits ({expected_hits(traces[name])[1]} by the trace alone), lost 0, wrong 0, longest op "
                  f"{report['longest_op_us'] / 1000:.0f} ms, by 100 requests {[window['hits'] for window in report['windows']]}; upgrade {seconds:.1f} s")
            self.assertGreaterEqual(report["hits"], expected_hits(traces[name])[1], said)
            self.assertLess(report["longest_op_us"] / 1000, DEADLINE_MS)
        node.stop()
        self.assertEqual(node.leftovers(), [])

    def test_a_supervisor_of_the_release_that_another_program_runs(self):
        """As systemd does it: who runs the supervisor starts it again, by then with the script of this tree."""
        node = Node(ranks=2, memory="64MiB", disk="0")
        self.as_release(node)
        words = ["start", "--foreground", *node.settings, *node.where]
        runs = [subprocess.Popen([OLD["script"], *words], env=node.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        over = threading.Event()

        def again():
            if runs[0].wait() != 0 and not over.is_set():
                runs.append(subprocess.Popen([NODE, *words], env=dict(node.environment, SLUICE_BIN=BIN), stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))

        runner = threading.Thread(target=again)
        runner.start()
        self.addCleanup(lambda: (over.set(), self.as_tree(node), node.__exit__(), runner.join(), [run.wait() for run in runs]))
        wait_until(lambda: os.path.exists(node.directory + "/run/supervisor.state"), 5, "the supervisor runs")
        self.as_tree(node)
        node.wait_ready()
        node.ctl("put", "kept", stdin=b"value")

        code, said, _ = Upgrade(node, BIN).end()

        self.assertEqual(code, 0, said + node.logs())
        self.assertEqual(set(programs_of(node).values()), {BIN})
        self.assertEqual(node.supervisor_pid(), runs[1].pid)
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_back_to_the_release(self):
        """Its programs answer what this supervisor asks, or nothing is changed, by name."""
        node = self.node(old=False, disk="0")
        node.ctl("put", "kept", stdin=b"value")
        done = subprocess.run([NODE, "upgrade", "--bin", OLD["bin"], *node.where], env=node.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout)
        if done.returncode == 0:
            self.assertEqual(set(programs_of(node).values()), {OLD["bin"]})
        else:
            self.assertIn("nothing was changed", done.stdout)
            self.assertEqual(set(programs_of(node).values()), {BIN})
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=os.path.join(release.ROOT, "build", "upgrade"), help="where the release is built")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    if not os.path.exists(CTL):
        print(f"skipped: no programs in {BIN}")
        sys.exit(suite.SKIP_CODE)
    name, commit = release.commit_of_release()
    root = release.built(name, commit, arguments.folder)
    print(f"release {name}, this tree {release.git('describe', '--always', '--dirty')}", flush=True)
    OLD.update(root=root, bin=root + "/build/release/bin", script=root + "/deploy/sluice-node", ctl=root + "/build/release/bin/sluicectl",
               tests=root + "/build/release/tests")
    sys.argv[1:] = arguments.tests
    suite.run()


if __name__ == "__main__":
    main()
