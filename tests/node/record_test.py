"""A node records its requests, also while a registrar is killed, and python -m sluice.advise evaluates the recording."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from python_support import LIBASAN, PACKAGE  # noqa: E402
from node_support import PATIENCE, Node, main, wait_until, workload  # noqa: E402

KIB = 1 << 10
BOUND = 20  # seconds, times the patience: only ends hangs


class Record(unittest.TestCase):
    def setUp(self):
        self.path = f"/tmp/sl-record-{os.getpid()}.rec"
        self.addCleanup(self.remove)
        self.remove()

    def remove(self):
        for name in (self.path, self.path + ".1"):
            if os.path.exists(name):
                os.unlink(name)

    def python(self, module, *arguments, to=""):
        """Runs one of the package's modules, with the interpreter of this process."""
        package = {} if PACKAGE == "installed" else {"PYTHONPATH": PACKAGE}
        preload = {"LD_PRELOAD": LIBASAN, "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"} if LIBASAN else {}
        line = f'exec "$@" >{to}' if to else 'exec "$@"'
        return subprocess.run(["bash", "-c", line, "bash", sys.executable, "-m", f"sluice.{module}", *arguments], env={**os.environ, **package, **preload}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300 * PATIENCE, check=False)

    def advice(self):
        done = self.python("advise", self.path, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"node": {"references": 0}}

    def seen(self, references):
        wait_until(lambda: self.advice()["node"]["references"] >= references, BOUND, f"{references} references are in the file")
        advice = self.advice()
        self.assertEqual(advice["node"]["references"], references)
        self.assertEqual(advice["recording"]["lost"], 0)
        return advice

    def replay(self, node, trace):
        report = node.directory + "/report.json"
        node.ctl("replay", trace, "--ranks", "1", "--op-timeout", "30s", "--json", report, "--progress", "off", timeout=300)
        with open(report, encoding="utf-8") as file:
            shown = json.load(file)
        return shown["block_references"], shown["hits"]

    def test_what_engines_ask_for_is_seen_also_when_the_registrar_is_killed(self):
        with Node(ranks=1, memory="8MiB", settings=["--record", self.path]) as node:
            trace = node.directory + "/trace.jsonl"
            workload(trace, 300, 1)
            first = self.replay(node, trace)
            self.seen(first[0])
            old = node.pid("registrar")
            node.signal("registrar", signal.SIGKILL)
            node.wait_restarted("registrar", old)
            node.wait_ready(BOUND)
            second = self.replay(node, trace)

            advice = self.seen(first[0] + second[0])

            self.assertEqual(advice["recording"]["restarts"], 1)
            self.assertAlmostEqual(advice["node"]["hit_share"], (first[1] + second[1]) / (first[0] + second[0]), delta=0.001)
            self.assertAlmostEqual(advice["node"]["model_hit_share"], advice["node"]["hit_share"], delta=0.05)  # little to learn from
            self.assertEqual(advice["node"]["memory_bytes"], 8 << 20)

    def test_a_new_node_begins_a_new_file_and_keeps_the_old_one(self):
        with Node(ranks=1, memory="64MiB", settings=["--record", self.path]) as node:
            for number in range(5):
                node.ctl("put", f"customer-{number}", stdin=os.urandom(64 * KIB))
            self.seen(5)
            with open(self.path, "rb") as recording:
                self.assertNotIn(b"customer", recording.read())

            node.stop()
            node.start()

            node.ctl("put", "other", stdin=b"x")
            self.seen(1)
            self.assertTrue(os.path.exists(self.path + ".1"))

    def test_words_and_what_is_no_recording(self):
        with Node(ranks=1, memory="64MiB", settings=["--record", self.path]) as node:
            node.ctl("put", "a", stdin=b"a")
            node.ctl("put", "b", stdin=b"b")
            self.seen(2)

            text = self.python("advise", self.path, "--progress", "on").stdout

            self.assertIn("This node hit 0.0 % of 2 references", text)
            self.assertIn("That is too little", text)
            self.assertIn("Twice the memory (128.0 MiB) would bring almost nothing", text)
            for arguments, code, said in ((["/dev/null"], 1, "it is not a recording of a node"), ([self.path + ".none"], 1, "No such file"),
                                          ([], 2, "FILE"), ([self.path, "--write-budget", "much"], 2, "'much' is not a size")):
                done = self.python("advise", *arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(said, done.stderr)
            for to in ("/dev/full", "&-"):
                for module in ("advise", "recording"):
                    done = self.python(module, self.path, to=to)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertRegex(done.stderr, rf"\Asluice.{module}: cannot write to standard output: [^\n]*\n\Z")
            self.assertEqual(self.python("recording", self.path, "--jsonl", to=" >(exit 0)").stderr, "")

    def test_the_model_hits_what_the_node_has_hit_within_a_point_and_the_trace_can_be_played_again(self):
        with Node(ranks=1, memory="8MiB", disk="128MiB", settings=["--record", self.path]) as node:
            trace, again = node.directory + "/trace.jsonl", node.directory + "/again.jsonl"
            workload(trace, 1500, 1)
            self.replay(node, trace)
            node.stop()  # all of it is in the file

            advice = self.advice()

            self.assertAlmostEqual(advice["node"]["model_hit_share"], advice["node"]["hit_share"], delta=0.01)
            rows = {(row["policy"], row["memory_bytes"] >> 20, row["disk_bytes"] >> 20, row["admission"], bool(row["write_budget"])): row
                    for row in advice["rows"]}
            node_row, alone = rows["density", 8, 128, "all", False], rows["density", 8, 0, "none", False]
            self.assertLess(alone["hit_share"] + 0.02, node_row["hit_share"])  # the gain from the disk
            self.assertLess(alone["hit_share"], rows["density", 16, 0, "none", False]["hit_share"])
            self.assertLessEqual(node_row["hit_share"], rows["density", 8, 256, "all", False]["hit_share"])
            self.assertLess(rows["density", 8, 128, "all", True]["written_bytes"], 0.7 * node_row["written_bytes"])  # a budget of half as much
            with open(again, "w", encoding="utf-8") as file:
                file.write(self.python("recording", self.path, "--jsonl").stdout)
            with open(trace, encoding="utf-8") as file:
                want = [len(json.loads(line)["hash_ids"]) for line in file]
            with open(again, encoding="utf-8") as file:
                got = [json.loads(line) for line in file]
            self.assertEqual(sum(len(line["hash_ids"]) for line in got), advice["node"]["references"])
            self.assertGreater(len(got), 0.9 * len(want))
            node.start()
            self.assertEqual(node.ctl("replay", again, "--ranks", "1", "--limit", "20", "--op-timeout", "30s", "--progress", "off").returncode, 0)


if __name__ == "__main__":
    main()
