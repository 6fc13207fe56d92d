"""Blocks of another node directly into an engine's pools, while all processes around it are killed or stopped (pull_probe.c).

A load that is disturbed loads fewer blocks, never a wrong byte. Blocks that the engine has back are not written to any more."""

import json
import os
import signal
import subprocess
import time
import unittest

from cluster_support import PATIENCE, Cluster, counter, main, wait_alive, wait_until
from node_support import BIN

PARTS = os.path.join(BIN, "..", "tests", "parts_probe")
PROBE = os.path.join(BIN, "..", "tests", "pull_probe")
STRAIGHT = ["--fabric-pools", "true", "--cache-remote-loads", "false"]
TROUBLES_MAX = 20


def probe(node, program, *arguments):
    return subprocess.Popen([program, node.instance, node.directory + "/run", node.shm, *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(test, node, process):
    out, errors = process.communicate(timeout=120 * PATIENCE)
    test.assertEqual(process.returncode, 0, errors + node.logs())
    return out


def registered(node, count=1):
    wait_until(lambda: counter(node, "transporter.0", "pool_engines") == count, 20, f"{count} engines' pools are registered")


class Load:
    """Loads at a node, which start when its pools are registered there."""

    def __init__(self, test, node, shape, timeout_ms, times, anew=False):
        """anew: the node's own values are removed before each load."""
        self.test, self.node, self.anew = test, node, anew
        self.process = probe(node, PROBE, "load", *shape, timeout_ms, times)
        test.assertEqual(self.process.stdout.readline(), "registered\n")
        registered(node)

    def ready(self):
        """The next load has its pools, at both ends."""
        self.test.assertEqual(self.process.stdout.readline(), "poisoned\n", self.process.poll())
        wait_alive(self.node, "a")
        registered(self.node)
        if self.anew:
            self.node.ctl("rm", "--all", check=False)  # values that a load through the arena has kept

    def begin(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def one(self):
        """(blocks, code, seconds) of the load that was started."""
        word, blocks, code, took = self.process.stdout.readline().split() or ["nothing"] * 4
        self.test.assertEqual(word, "loaded", self.process.poll())
        return int(blocks), int(code), int(took) / 1e6

    def end(self):
        _, errors = self.process.communicate(timeout=60 * PATIENCE)
        self.test.assertEqual(self.process.returncode, 0, errors + self.node.logs())

    def all(self, times):
        rows = []
        for _ in range(times):
            self.ready()
            self.begin()
            rows.append(self.one())
        self.end()
        return rows


def pinned(node):
    """Values that peers keep pinned."""
    done = node.ctl("nodes", "--json", check=False)
    return sum(row["pinned_values"] for row in json.loads(done.stdout)["nodes"]) if done.returncode == 0 else -1


def until_met(attempt, whole):
    """Repeats a fault until it hits a transfer: attempt returns the results of the loads. This process may get its core back when all
    is over, and then nothing was tested."""
    for _ in range(TROUBLES_MAX):
        if min(attempt()) < whole:
            return
    raise AssertionError(f"{TROUBLES_MAX} times the transfers were over before their trouble came")


def store(test, node, shape):
    finished(test, node, probe(node, PROBE, "store", *shape))


class Bytes(unittest.TestCase):
    def test_what_some_ranks_wrote_any_number_reads(self):
        """1, 2, 4, 8 ranks and two layouts at each node: heads in fragments, and parts that all ranks have. A pool is several
        regions of the fabric."""
        with Cluster(2, ranks=8, settings=[*STRAIGHT, "--mr-bytes-max", "65536"]) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            finished(self, a, probe(a, PARTS, "writers"))
            reading = probe(b, PARTS, "readers")
            for _ in range(8):
                self.assertEqual(reading.stdout.readline(), "registered\n", reading.stderr.read() if reading.poll() else "")
                registered(b)
                self.assertGreater(counter(b, "transporter.0", "regions_registered"), 4)
                reading.stdin.write("\n")
                reading.stdin.flush()
            finished(self, b, reading)
            self.assertEqual(counter(b, "transporter.0", "pulls_refused"), 0)
            self.assertEqual(counter(b, "transporter.0", "pulled_values"), 8 * 8 * 5 * 5)
            self.assertGreater(counter(b, "transporter.0", "pull_copied_bytes"), 0)
            self.assertEqual(counter(b, "coordinator", "blocks_from_remote"), 8 * 8 * 5)
            self.assertEqual(b.ctl("ls").stdout, b"")  # no block was kept
            wait_until(lambda: counter(b, "transporter.0", "pool_engines") == 0, 20, "no pool stays registered")

    def test_with_the_setting_true_a_copy_is_kept(self):
        shape = (1, 16, 65536, 4, 1)
        with Cluster(2, settings=["--fabric-pools", "true"]) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            store(self, a, shape)
            self.assertEqual([row[:2] for row in Load(self, b, shape, 5000 * PATIENCE, 2).all(2)], [(16, 0)] * 2)
            self.assertEqual(counter(b, "transporter.0", "pulled_values"), 0)
            self.assertEqual(counter(b, "coordinator", "blocks_from_memory"), 16)

    def test_the_arena_goes_before_and_the_rest_straight(self):
        """Blocks of this node are copied; a second engine's blocks after them are read from the other node."""
        with Cluster(2, settings=STRAIGHT) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            store(self, a, (1, 24, 32768, 4, 1))
            store(self, b, (1, 8, 32768, 4, 1))
            rows = Load(self, b, (1, 24, 32768, 4, 1), 5000 * PATIENCE, 3).all(3)
            self.assertEqual([row[:2] for row in rows], [(24, 0)] * 3)
            self.assertEqual(counter(b, "coordinator", "blocks_from_memory"), 3 * 8)
            self.assertEqual(counter(b, "coordinator", "blocks_from_remote"), 3 * 16)

    def test_a_value_that_is_spoilt_at_its_holder_ends_the_prefix(self):
        shape = (3, 8, 65536, 2, 1)
        with Cluster(2, settings=STRAIGHT) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            store(self, a, shape)
            self.spoil(a, shape, block=5)
            load = Load(self, b, shape, 5000, 2)
            self.assertEqual([row[0] for row in load.all(2)], [5, 5])
            self.assertGreaterEqual(counter(b, "transporter.0", "digests_bad"), 2)

    def spoil(self, node, shape, block):
        """Changes a byte in the middle of a block, in the node's memory."""
        seed, _, piece_bytes, _, _ = shape
        at = piece_bytes // 16
        word = (seed * 0x9e3779b97f4a7c15 + (block << 24) + at) & (1 << 64) - 1
        word ^= word >> 29
        wanted = (word * 0xbf58476d1ce4e5b9 & (1 << 64) - 1).to_bytes(8, "little")
        path = next(os.path.join(folder, name) for folder, _, names in os.walk(node.shm) for name in names if name == "arena.0")
        with open(path, "r+b") as arena:
            found = arena.read().find(wanted)
            self.assertGreater(found, 0)
            arena.seek(found)
            arena.write(bytes([wanted[0] ^ 1]))


class Trouble(unittest.TestCase):
    SHAPE = (7, 48, 262144, 4, 2)  # 96 MiB

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(2, ranks=2, memory="256MiB", settings=STRAIGHT)
        cls.cluster.__enter__()
        cls.a, cls.b = cls.cluster.nodes
        wait_alive(cls.b, "a")
        done = probe(cls.a, PROBE, "store", *cls.SHAPE)
        _, errors = done.communicate(timeout=120 * PATIENCE)
        assert done.returncode == 0, errors

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None, None, None)

    def tearDown(self):
        for node in (self.a, self.b):
            node.wait_ready()
        wait_alive(self.b, "a")
        wait_until(lambda: counter(self.b, "transporter.0", "pool_engines") == 0, 20, "no pool stays registered")
        wait_until(lambda: pinned(self.a) == 0, 20, "no pins stay")
        # Works again, if not at once then soon: misses and failures of a peer are remembered for a moment.
        wait_until(lambda: Load(self, self.b, self.SHAPE, 20000, 1, anew=True).all(1)[0][:2] == (48, 0), 5, "all of it is loaded")

    def killing(self, node, actor, times=8):
        """Loads, with a kill at another moment of each. Loaded bytes are right."""
        load = Load(self, self.b, self.SHAPE, 3000, times, anew=True)
        rows = []
        for turn in range(times):
            load.ready()
            pid = node.live_pid(actor)
            load.begin()
            time.sleep(0.004 + 0.008 * turn)
            os.kill(pid, signal.SIGKILL)
            rows.append(load.one())
            node.wait_restarted(actor, pid)
        load.end()
        for _, _, seconds in rows:
            self.assertLess(seconds, 3 + 5 * PATIENCE)  # its deadline is 3 s
        return rows

    def test_the_transporter_of_the_reader_is_killed(self):
        rows = self.killing(self.b, "transporter.0")
        self.assertGreater(sum(blocks for blocks, _, _ in rows), 0)

    def test_the_transporter_of_the_holder_is_killed(self):
        self.killing(self.a, "transporter.0")

    def test_the_coordinator_is_killed(self):
        self.killing(self.b, "coordinator")

    def test_the_engine_is_killed(self):
        for turn in range(6):
            load = Load(self, self.b, self.SHAPE, 3000, 1, anew=True)
            load.ready()
            load.begin()
            time.sleep(0.004 + 0.008 * turn)
            load.process.kill()
            load.process.communicate()
            wait_until(lambda: counter(self.b, "transporter.0", "pool_engines") == 0, 5, "its pools are gone")

    def stopped(self, seconds, times):
        """Stops the transporter beyond the op's deadline; when it continues, the blocks have another use. Returns each load's blocks."""
        load = Load(self, self.b, self.SHAPE, 400, times, anew=True)
        rows = []
        for turn in range(times):
            load.ready()
            pid = self.b.live_pid("transporter.0")
            load.begin()
            time.sleep(0.003 + 0.004 * turn)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass  # it acknowledged no fence
            rows.append(load.one())
            self.b.wait_ready()
        load.end()
        return [blocks for blocks, _, _ in rows]

    def test_a_transporter_that_stands_still_writes_nothing_late(self):
        until_met(lambda: self.stopped(0.6, times=6), 48)

    def test_a_transporter_that_stands_still_for_long_is_killed(self):
        pids = []

        def stopped():
            pids.append(self.b.live_pid("transporter.0"))
            return self.stopped(4.0, times=1)

        until_met(stopped, 48)
        self.assertNotEqual(self.b.live_pid("transporter.0"), pids[-1])

    def test_the_holder_stands_still(self):
        load = Load(self, self.b, self.SHAPE, 1000, 3, anew=True)
        for turn in range(3):
            load.ready()
            pid = self.a.live_pid("transporter.0")
            load.begin()
            time.sleep(0.003 + 0.005 * turn)
            os.kill(pid, signal.SIGSTOP)
            load.one()
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass  # the supervisor ended it as hung
        load.end()


if __name__ == "__main__":
    main()
