"""Nodes that know of each other only by a directory: a real redis-server, which readers ask.

The trace over two nodes: requests go to the nodes in turn, and each waits until the directory knows what the one before stored.
SL_TRACE_REQUESTS is how many of the conversation trace's requests are played (default 400; 12031 is all: ten minutes)."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cluster_support import CONTROL_PORT, CTL, PATIENCE, Cluster, Network, main, wait_until
from node_support import TRACE, expected_hits

REQUESTS = int(os.environ.get("SL_TRACE_REQUESTS", "400"))
# The time limit is generous: these tests are about a server that is down, not about a slow one.
USE_DIRECTORY = {"use_directory": True, "settings": ["--directory-timeout", "10s", "--directory-walk", "5ms"]}


def rows(node):
    done = node.ctl("nodes", "--json", check=False)
    return {row["name"]: row for row in json.loads(done.stdout)["nodes"]} if done.returncode == 0 else {}


def state(node, name):
    return rows(node).get(name, {}).get("state")


def wait_all_alive(nodes):
    for node, other in itertools.permutations(nodes, 2):
        wait_until(lambda node=node, other=other: state(node, other.name) == "alive", 20, f"{other.name} alive at {node.name}")


def counters(node):
    pages = json.loads(node.ctl("status", "--json", check=False).stdout)["actors"]
    return next(page["counters"] for page in pages if page["name"] == "transporter.0")


def published(node):
    """Waits until the directory lists all keys of the node."""
    now_ns = time.monotonic_ns()
    wait_until(lambda: counters(node)["directory_published_ns"] > now_ns, 20, f"{node.name} is published")


def get(node, key):
    """The bytes of a key, None for a miss. Any other result is an error of the test."""
    done = node.ctl("get", key, "-", "--op-timeout", f"{10 * PATIENCE}s", check=False)
    if done.returncode == 0:
        return done.stdout
    assert b"not found" in done.stderr, done.stderr
    return None


def put(node, key, length=100000):
    value = os.urandom(length)
    node.ctl("put", key, "-", stdin=value)
    return value


class Finding(unittest.TestCase):
    def test_nodes_find_each_other_and_ask_who_holds(self):
        with Cluster(3, **USE_DIRECTORY) as cluster:
            a, b, c = cluster.nodes
            wait_all_alive(cluster.nodes)
            self.assertEqual(rows(b)["a"]["source"], "directory")
            value = put(a, "one")
            published(a)
            self.assertEqual(get(b, "one"), value)  # at once: it is published
            self.assertEqual(rows(b)["a"]["read_values"], 1)
            before = counters(c)["pins_taken"], counters(b)["batches"]
            self.assertIsNone(get(b, "nowhere"))
            self.assertEqual((counters(c)["pins_taken"], counters(b)["batches"]), before)  # no peer was asked
            a.ctl("rm", "one")
            b.ctl("rm", "one")
            published(a)
            published(b)
            self.assertIsNone(get(c, "one"))

    def test_who_has_no_key_here_is_not_connected_to(self):
        with Cluster(3, unknown_node="c", **USE_DIRECTORY) as cluster:
            a, b, c = cluster.nodes
            wait_all_alive([a, b])
            wait_until(lambda: state(a, "c") == "no key", 20, "a learns of c from the directory")
            value = put(c, "bait")
            published(c)
            for _ in range(5):
                self.assertIsNone(get(a, "bait"))
            # c's own attempts to connect end at a's own port.
            towards = f"ss -Htna dst {Network.address(2)}:{CONTROL_PORT}"
            self.assertEqual(cluster.network.ports[0].run(towards).strip(), "")
            cluster.allow("a", "c")  # no restart: a key that is added counts
            wait_until(lambda: get(a, "bait") == value, 20, "c is asked")
            self.assertEqual(state(b, "c"), "no key")


class Trouble(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(2, **USE_DIRECTORY)
        self.cluster.__enter__()
        self.a, self.b = self.cluster.nodes
        wait_all_alive(self.cluster.nodes)

    def tearDown(self):
        self.cluster.__exit__()

    def test_a_directory_that_is_away_fails_nothing(self):
        before, after = put(self.a, "before"), None
        published(self.a)
        self.cluster.redis.kill()
        wait_until(lambda: counters(self.b)["directory_up"] == 0, 20, "its end is noticed")
        self.assertEqual(get(self.b, "before"), before)  # known nodes are asked
        self.assertIsNone(get(self.b, "nowhere"))
        after = put(self.a, "meanwhile")
        self.assertEqual(get(self.b, "meanwhile"), after)
        self.cluster.redis.start()
        value = put(self.a, "later")
        published(self.a)
        wait_until(lambda: counters(self.b)["directory_up"] == 1 and counters(self.b)["directory_member_count"] == 1, 20,
                   "b knows a again")
        self.assertEqual(get(self.b, "later"), value)

    def test_a_directory_that_stands_still_costs_its_share(self):
        value = put(self.a, "one")
        published(self.a)
        os.kill(self.cluster.redis.process.pid, signal.SIGSTOP)
        try:
            self.assertEqual(get(self.b, "one"), value)
            self.assertIsNone(get(self.b, "nowhere"))
        finally:
            os.kill(self.cluster.redis.process.pid, signal.SIGCONT)

    def test_a_holder_that_began_anew_costs_a_miss(self):
        put(self.a, "lost")
        published(self.a)
        self.a.stop()
        self.a.start()
        self.assertIsNone(get(self.b, "lost"))
        wait_all_alive(self.cluster.nodes)
        self.assertIsNone(get(self.b, "lost"))
        value = put(self.a, "fresh")
        published(self.a)
        wait_until(lambda: get(self.b, "fresh") == value, 20, "what its new life holds")

    def test_a_transporter_that_was_killed_is_found_again(self):
        value = put(self.a, "kept")
        published(self.a)
        pid = self.a.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        self.a.wait_restarted("transporter.0", pid)
        wait_until(lambda: get(self.b, "kept") == value, 20, "what the node still holds")


@unittest.skipIf(not os.path.exists(TRACE), "skipped: no conversation trace beside the project")
class Trace(unittest.TestCase):
    """An engine on two nodes. The hits of a cache that never evicts follow from the trace."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sl-trace-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(TRACE, encoding="utf-8") as lines:
            self.lines = list(itertools.islice(lines, REQUESTS))
        # Small values, and a table no larger than needed: the time is spent waiting for the directory's walks.
        self.cluster = Cluster(2, use_directory=True, memory="512MiB", settings=[
            "--directory-walk", "1ms", "--directory-timeout", "10s", "--index-memory", "160MiB", "--index-keys",
            str(max(20000, 25 * REQUESTS))])
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)
        wait_all_alive(self.cluster.nodes)

    def expected(self, requests):
        """(block references, hits) of this number of first requests."""
        path = os.path.join(self.folder, "trace.jsonl")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(self.lines[:requests])
        return expected_hits(path)

    def replay_start(self, first, end, *arguments):
        a, b = self.cluster.nodes
        other = os.path.join(self.folder, "b.conf")
        with open(other, "w", encoding="utf-8") as out:
            out.write(f"instance = {b.instance}\nruntime_dir = {b.directory}/run\nshm_dir = {b.shm}\n")
        return subprocess.Popen(
            [CTL, "replay", TRACE, "--first", str(first), "--limit", str(end), "--also", other + ",", "--published",
             f"{10 * PATIENCE}s", "--block-bytes", "512", "--layers", "1", "--op-timeout", "60s",
             "--json", os.path.join(self.folder, "report.json"), *arguments, *a.where],
            env=a.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def replay_end(self, replay):
        text = replay.communicate(timeout=600 * PATIENCE)[0]
        self.assertEqual(replay.returncode, 0, text)
        with open(os.path.join(self.folder, "report.json"), encoding="utf-8") as lines:
            report = json.load(lines)
        self.assertEqual((report["mismatches"], report["errors"], report["lost"], report["nodes"]), (0, 0, 0, 2))
        return report

    def test_hits_are_those_of_one_cache(self):
        references, hits = self.expected(len(self.lines))
        report = self.replay_end(self.replay_start(0, len(self.lines)))
        print(f"{len(self.lines)} requests over two nodes in {report['wall_s']:.0f} s: {report['hits']} hits, {hits} follow from "
              f"the trace; by tier {report['hits_by_tier']}")
        self.assertEqual((report["block_references"], report["unpublished"]), (references, 0))
        self.assertEqual(report["hits"], hits)
        self.assertGreater(report["hits_by_tier"]["remote"], 0)

    def test_hits_recover_from_a_directory_that_was_killed(self):
        redis, nodes = self.cluster.redis, self.cluster.nodes
        phases = (("before", None), ("killed on the way", redis.kill), ("without", None),
                  ("started on the way", redis.start), ("after", None))
        ends = [len(self.lines) * i // len(phases) for i in range(len(phases) + 1)]
        for i, (phase, act) in enumerate(phases):
            replay = self.replay_start(ends[i], ends[i + 1], "--window", str(max(1, (ends[i + 1] - ends[i]) // 4)))
            if act is not None:
                replay.stdout.readline()  # a quarter of the trace is played
                act()
            report = self.replay_end(replay)
            right = self.expected(ends[i + 1])[1] - self.expected(ends[i])[1]
            print(f"redis {phase}: {report['hits']} hits of {right} that follow from the trace, "
                  f"{report['hits_by_tier']['remote']} remote; {report['unpublished']} of {report['requests']} requests not "
                  f"published; mismatches {report['mismatches']}, errors {report['errors']}")
            if phase in ("before", "after"):
                self.assertEqual((report["hits"], report["unpublished"]), (right, 0))
            if phase == "without":
                self.assertEqual(report["unpublished"], report["requests"])
            if phase == "started on the way":
                for node in nodes:
                    published(node)
                wait_until(lambda: all(counters(node)["directory_member_count"] == 1 for node in nodes), 20, "they know each other")


if __name__ == "__main__":
    if shutil.which("redis-server") is None:
        print("skipped: redis-server is not installed (deploy/install --test)")
        sys.exit(77)
    main()
