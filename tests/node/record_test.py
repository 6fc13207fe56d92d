"""A node records what it is asked for, across a killed registrar, and sluicectl advise makes sense of it."""

import json
import os
import signal
import unittest

from node_support import Node, main, wait_until, workload

KIB = 1 << 10
BOUND = 20  # seconds, times the patience: ends hangs


class Record(unittest.TestCase):
    def setUp(self):
        self.path = f"/tmp/sl-record-{os.getpid()}.rec"
        self.addCleanup(self.remove)
        self.remove()

    def remove(self):
        for name in (self.path, self.path + ".1"):
            if os.path.exists(name):
                os.unlink(name)

    def advice(self, node):
        done = node.ctl("advise", self.path, "--json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"node": {"references": 0}}

    def seen(self, node, references):
        wait_until(lambda: self.advice(node)["node"]["references"] >= references, BOUND, f"{references} references are in the file")
        advice = self.advice(node)
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
            self.seen(node, first[0])
            old = node.pid("registrar")
            node.signal("registrar", signal.SIGKILL)
            node.wait_restarted("registrar", old)
            node.wait_ready(BOUND)
            second = self.replay(node, trace)

            advice = self.seen(node, first[0] + second[0])

            self.assertEqual(advice["recording"]["restarts"], 1)
            self.assertAlmostEqual(advice["node"]["hit_share"], (first[1] + second[1]) / (first[0] + second[0]), delta=0.001)
            self.assertAlmostEqual(advice["node"]["model_hit_share"], advice["node"]["hit_share"], delta=0.05)  # little to learn from
            self.assertEqual(advice["node"]["memory_bytes"], 8 << 20)

    def test_a_new_node_begins_a_new_file_and_keeps_the_old_one(self):
        with Node(ranks=1, memory="64MiB", settings=["--record", self.path]) as node:
            for number in range(5):
                node.ctl("put", f"customer-{number}", stdin=os.urandom(64 * KIB))
            self.seen(node, 5)
            with open(self.path, "rb") as recording:
                self.assertNotIn(b"customer", recording.read())

            node.stop()
            node.start()

            node.ctl("put", "other", stdin=b"x")
            self.seen(node, 1)
            self.assertTrue(os.path.exists(self.path + ".1"))

    def test_words_and_what_is_no_recording(self):
        with Node(ranks=1, memory="64MiB", settings=["--record", self.path]) as node:
            node.ctl("put", "a", stdin=b"a")
            node.ctl("put", "b", stdin=b"b")
            self.seen(node, 2)

            text = node.ctl("advise", self.path, "--progress", "on").stdout.decode()

            self.assertIn("This node hit 0.0 % of 2 references", text)
            self.assertIn("That is little", text)
            self.assertIn("Twice the memory (128.0 MiB) would bring next to nothing", text)
            self.assertEqual(node.ctl("advise", "/dev/null", check=False).returncode, 1)
            self.assertEqual(node.ctl("advise", self.path + ".none", check=False).returncode, 1)
            self.assertEqual(node.ctl("advise", check=False).returncode, 2)


if __name__ == "__main__":
    main()
