"""The main use: replays through a real node, undisturbed, under memory pressure, and while actors are killed."""

import collections
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from node_support import CTL, TRACE, Node, expected_hits, main, paced, wait_until, workload

SECONDS = int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.trace = cls.directory.name + "/trace.jsonl"
        workload(cls.trace, 400, 7)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def replay(self, node, *arguments, trace=None):
        report = self.directory.name + "/report.json"
        # No op may fail here, even on a busy machine: the deadline is never reached.
        node.ctl("replay", trace or self.trace, "--block-bytes", "4096", "--op-timeout", "30s", "--json", report,
                 *arguments, timeout=600)
        with open(report, encoding="utf-8") as lines:
            return json.load(lines)

    def assert_whole(self, report):
        self.assertEqual(report["mismatches"], 0)
        self.assertEqual(report["errors"], 0)
        self.assertEqual(report["lost"], 0)
        self.assertEqual(sum(report["hits_by_tier"].values()), report["hits"])

    def test_hits_follow_from_the_trace_alone(self):
        references, hits = expected_hits(self.trace)
        self.assertGreater(hits, 0)
        with Node(ranks=2, memory="1GiB") as node:
            report = self.replay(node, "--ranks", "2")
            self.assert_whole(report)
            self.assertEqual((report["block_references"], report["hits"]), (references, hits))
            again = self.replay(node, "--ranks", "2")
            self.assertEqual(again["hits"], references)

    def test_time_to_first_tokens_is_that_of_loads_and_of_computing(self):
        with Node(ranks=1, memory="1GiB") as node:
            first = self.replay(node, "--limit", "20", "--prefill-rate", "10000000")
            again = self.replay(node, "--limit", "20", "--prefill-rate", "10000000", "--prefill-doubles", "1000")
            plain = self.replay(node, "--limit", "20")
            too_many = node.ctl("replay", self.trace, "--ranks", "2", check=False)
            wrong = [node.ctl("replay", self.trace, *words, check=False).returncode
                     for words in (["--prefill-unreported"], ["--prefill-doubles", "5"], ["--prefill-rate", str(1 << 41)])]
        with open(self.trace, encoding="utf-8") as lines:
            tokens = sum(json.loads(line)["input_length"] for line in itertools.islice(lines, 20))
        for report in first, again:
            times = report["first_tokens"]
            self.assertAlmostEqual(times["all_s"], times["loads_s"] + times["computing_s"])
            self.assertGreater(times["loads_s"], 0)
            self.assertEqual((report["not_awaited"], report["errors"]), (0, 0))
        self.assertGreater(first["first_tokens"]["computing_s"], 0)
        self.assertLessEqual(first["first_tokens"]["computing_s"], tokens / 1e7)
        self.assertEqual(again["first_tokens"]["computing_s"], 0)  # all blocks were loaded
        self.assertNotIn("first_tokens", plain)
        self.assertEqual(wrong, [2, 2, 2])
        self.assertEqual((too_many.returncode, too_many.stdout), (2, b""))
        self.assertRegex(too_many.stderr, b"--ranks 2, but node '.*' was started with --ranks 1")

    def test_odd_sizes_and_pools(self):
        _, hits = expected_hits(self.trace)
        with Node(ranks=1, memory="1GiB") as node:
            report = self.replay(node, "--ranks", "1", "--pools", "2", "--layers", "3", "--block-bytes", "1235")
            self.assert_whole(report)
            self.assertEqual(report["hits"], hits)

    def test_names_of_any_bytes_are_those_that_were_given(self):
        with Node(ranks=1, memory="64MiB") as node:
            config, report = (os.fsencode(self.directory.name) + b"/\xff" + name for name in (b".conf", b".json"))
            with open(config, "w", encoding="utf-8") as file:
                file.write(f"instance = {node.instance}\nruntime_dir = {node.directory}/run\nshm_dir = {node.shm}\n")
            done = subprocess.run([CTL, "replay", self.trace, "--limit", "3", "--op-timeout", "30s", "--config", config, "--json", report], env=node.environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=60 * SECONDS, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(report, encoding="utf-8") as lines:
                self.assertEqual(json.load(lines)["requests"], 3)
            done = node.ctl("replay", self.trace, "--limit", "3", "--json", self.directory.name, check=False)
            self.assertEqual((done.returncode, b"Is a directory" in done.stderr, done.stdout), (2, True, b""))  # fails before the replay

    def test_wrong_use_is_named_where_no_node_runs(self):
        where = ["--instance", f"none-{os.getpid()}"]
        bad = self.directory.name + "/bad.jsonl"
        with open(bad, "w", encoding="utf-8") as file:
            file.write("{nonsense\n")
        for words, code, named in (([self.trace, "--ranks", "0"], 2, "ranks"), ([self.trace, "--first", "99999999"], 2, "has 400 requests"), ([bad], 2, "bad.jsonl:1:"),
                                   ([self.directory.name], 2, "Is a directory"), ([bad + "/trace"], 2, "Not a directory"),
                                   ([bad + ".none"], 2, "No such file"), ([self.trace], 3, "running: |start one with")):
            done = subprocess.run([CTL, "replay", *words, *where], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=60 * SECONDS, check=False)
            self.assertEqual(done.returncode, code, (words, done.stdout))
            self.assertRegex(done.stdout, named)

    def test_disk_carries_what_memory_cannot(self):
        _, hits = expected_hits(self.trace)
        with Node(ranks=2, memory="8MiB", disk="1GiB") as node:
            peak = {"disk": 0}
            replay = node.replay_start(self.trace, "--ranks", "2", "--block-bytes", "4096", "--op-timeout",
                                       "30s", "--json", self.directory.name + "/disk.json")
            while replay.poll() is None:
                used = sum(os.stat(os.path.join(node.directory, "disk", name)).st_blocks * 512
                           for name in os.listdir(node.directory + "/disk"))
                peak["disk"] = max(peak["disk"], used)
                time.sleep(0.05)
            self.assertEqual(replay.returncode, 0, replay.communicate()[0] + node.logs())
            with open(self.directory.name + "/disk.json", encoding="utf-8") as lines:
                report = json.load(lines)
            self.assert_whole(report)
            self.assertEqual(report["hits"], hits)
            self.assertGreater(report["hits_by_tier"]["disk"], 0)
            self.assertLessEqual(peak["disk"], 1 << 30)
            self.assertLessEqual(os.stat(node.shm + "/arena.0").st_blocks * 512, (8 << 20) + (4 << 20))

    def test_eviction_without_a_disk_gives_misses_never_wrong_bytes(self):
        references, hits = expected_hits(self.trace)
        with Node(ranks=2, memory="8MiB") as node:
            report = self.replay(node, "--ranks", "2")
            self.assertEqual((report["mismatches"], report["errors"], report["lost"]), (0, 0, 0))
            self.assertEqual(report["block_references"], references)
            self.assertLess(report["hits"], hits)

    def test_content_comes_back_from_disk_after_a_restart(self):
        references, _ = expected_hits(self.trace)
        with Node(ranks=2, memory="64MiB", disk="1GiB") as node:
            self.assert_whole(self.replay(node, "--ranks", "2"))
            node.ctl("flush")
            node.stop()
            node.start()
            wait_until(lambda: b"scan" not in node.ctl("status").stdout, 10, "disk scanned")
            report = self.replay(node, "--ranks", "2")
            self.assert_whole(report)
            self.assertEqual(report["hits"], references)
            self.assertGreater(report["hits_by_tier"]["disk"], 0)

    def test_kill_of_each_actor_in_turn_during_a_replay(self):
        with Node(ranks=2, memory="1GiB", disk="1GiB") as node:
            names = list(node.processes())
            report_path = self.directory.name + "/kill.json"
            trace = self.directory.name + "/long.jsonl"
            requests = 1500
            workload(trace, requests, 11)
            paced(trace, 20_000)  # the replay lasts this long on any machine: enough to kill every actor
            started = time.monotonic()
            replay = node.replay_start(trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "1", "--json",
                                       report_path)
            killed = collections.Counter()
            while replay.poll() is None:
                name = names[killed.total() % len(names)]
                # A limit, so that a slow machine gets to the end: the rest runs undisturbed.
                pid = node.pid(name) if killed.total() < 2 * len(names) else 0
                if pid:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed[name] += 1
                time.sleep(0.8)
                self.assertLess(time.monotonic() - started, 240 * SECONDS, "the replay hangs")
            output = replay.communicate()[0]
            self.assertTrue(os.path.exists(report_path), output + node.logs())
            with open(report_path, encoding="utf-8") as lines:
                report = json.load(lines)
            print(f"killed {killed.total()}, errors {report['errors']}, longest op {report.get('longest_op_us')} us")
            self.assertEqual(set(killed), set(names), "everyone was killed at least once")
            self.assertEqual((report["mismatches"], report["lost"]), (0, 0), output + node.logs())
            self.assertEqual(report["requests"], requests)
            self.assertLess(report["longest_op_us"], 30_000_000 * SECONDS)  # their deadline is 2 s; they may get no core for a while

    def test_trace_shows_the_path_of_an_op_in_time_order(self):
        with Node(ranks=2) as node:
            report = self.replay(node, "--ranks", "2", "--limit", "20")
            self.assert_whole(report)
            last = node.ctl("trace", "--last", "5").stdout.decode()
            identity = re.search(r"\b[0-9a-f]{16}\b", last)
            self.assertIsNotNone(identity, last)
            shown = json.loads(node.ctl("trace", identity.group(0), "--json").stdout)
            events = shown["events"]
            self.assertEqual([event["at_ns"] for event in events], sorted(event["at_ns"] for event in events))
            actors = {event["actor"] for event in events}
            self.assertLessEqual({"coordinator", "keyer"}, actors)
            self.assertTrue({"swapper.0", "swapper.1"} <= actors or "registrar" in actors, actors)

    @unittest.skipUnless(os.path.exists(TRACE), "the conversation trace is not beside the project")
    def test_conversation_trace_hits_exactly(self):
        # Under sanitizers only its beginning: all of it takes minutes and checks no more of the code.
        limit = 12031 if SECONDS == 1 else 1000
        trace = self.directory.name + "/conversation.jsonl"
        with open(TRACE, encoding="utf-8") as whole, open(trace, "w", encoding="utf-8") as beginning:
            beginning.writelines(itertools.islice(whole, limit))
        references, hits = (288500, 105710) if SECONDS == 1 else expected_hits(trace)
        with Node(ranks=2, memory="4GiB") as node:
            report = self.replay(node, "--ranks", "2", trace=trace)
            self.assert_whole(report)
            self.assertEqual((report["requests"], report["block_references"], report["hits"]), (limit, references, hits))


if __name__ == "__main__":
    main()
