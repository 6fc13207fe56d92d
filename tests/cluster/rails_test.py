"""Two nodes with two links of their own: values use both, and one link that goes down and up costs only its share."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from cluster_support import FABRIC_PORT, PATIENCE, Cluster, counter, main, wait_alive, wait_until
from node_support import BIN
from handing_support import Handing
from values_support import Values, put_all

PROBE = os.path.join(BIN, "..", "tests", "pull_probe")
VALUE = 4 << 20


def probe(node, *arguments):
    return subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm, *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class TwoLinks(Cluster):
    """The second link of node i has the address 10.99.0.(i + 1), on a bridge of its own."""

    def __init__(self, **options):
        super().__init__(2, memory="512MiB", **options)
        hub = self.network.hub
        hub.run("ip link add sl-br2 type bridge && ip link set sl-br2 up")
        for i, space in enumerate(self.network.ports):
            hub.run(f"ip link add sl-q{i} type veth peer name sl-f{i} && ip link set sl-q{i} master sl-br2 up"
                    f" && ip link set sl-f{i} netns {space.holder.pid}")
            space.run(f"ip addr add {self.second(i)}/24 dev sl-f{i} && ip link set sl-f{i} up")
            self.nodes[i].settings += ["--fabric-address", f"{self.network.address(i)}:{FABRIC_PORT},{self.second(i)}:{FABRIC_PORT}"]

    @staticmethod
    def second(i):
        return f"10.99.0.{i + 1}"

    def received(self):
        """Bytes that b received over its first and its second link."""
        space = self.network.ports[1]
        return [json.loads(space.run(f"ip -s -j link show dev {name}"))[0]["stats64"]["rx"]["bytes"] for name in ("sl-e1", "sl-f1")]


class Rails(unittest.TestCase):
    def setUp(self):
        self.cluster = TwoLinks()
        self.addCleanup(self.cluster.__exit__)
        self.cluster.__enter__()
        self.a, self.b = self.cluster.nodes
        self.count = 0
        wait_alive(self.b, "a")
        wait_alive(self.a, "b")

    def move(self):
        """Moves one value from a to b; returns how long it took. A miss is asked for again: it may be cached for a moment."""
        self.count += 1
        key, value = f"v{self.count}", os.urandom(VALUE)
        self.a.ctl("put", key, "-", stdin=value)
        start = time.monotonic()
        got = []

        def there():
            done = self.b.ctl("get", key, "-", check=False)
            got[:] = [done.stdout] if done.returncode == 0 else []
            return bool(got)
        wait_until(there, 20, f"{key} at b")
        self.assertEqual(got[0], value)
        return time.monotonic() - start

    def shares(self, count):
        """Bytes that each link carried for this number of values."""
        before = self.cluster.received()
        for _ in range(count):
            self.move()
        return [now - then for now, then in zip(self.cluster.received(), before)]

    def both_carry(self):
        return min(self.shares(4)) >= VALUE

    def test_both_links_carry_and_one_is_enough(self):
        self.assertIn("10.99.0.2", json.loads(self.b.ctl("nodes", "--json").stdout)["fabric"])
        wait_until(self.both_carry, 20, "both links carry values")
        shares = self.shares(8)
        self.assertGreaterEqual(min(shares), 3 * VALUE, shares)
        pid = self.b.pid("transporter.0")

        self.cluster.network.hub.run("ip link set sl-q0 down")
        for _ in range(4):
            self.assertLess(self.move(), 10 * PATIENCE)
        first, second = self.shares(4)
        self.assertGreaterEqual(first, 4 * VALUE)
        self.assertLess(second, VALUE)

        self.cluster.network.hub.run("ip link set sl-q0 up")
        wait_until(self.both_carry, 30, "both links carry values again")

        self.cluster.network.cut(0)  # the first link: it also carries control messages, which work again with it
        time.sleep(2)
        self.cluster.network.mend(0)
        wait_alive(self.b, "a")
        wait_until(self.both_carry, 30, "both links carry values again")
        self.assertEqual(self.b.pid("transporter.0"), pid)

    def again(self, *settings):
        self.b.stop()
        self.b.settings += settings
        self.b.start()
        wait_alive(self.b, "a")

    def test_a_node_with_one_link_meets_one_with_two(self):
        both = self.b.settings[-1]
        self.again("--fabric-address", f"{self.cluster.network.address(1)}:{FABRIC_PORT}")
        first, second = self.shares(4)
        self.assertGreaterEqual(first, 4 * VALUE)
        self.assertLess(second, VALUE)

        self.again("--fabric-address", both)
        wait_until(self.both_carry, 20, "both links carry values")


class Transporter(unittest.TestCase):
    """One process drives both links of a node. When it is killed, both links carry values again."""

    COUNT = 12

    def setUp(self):
        self.cluster = TwoLinks()
        self.addCleanup(self.cluster.__exit__)
        self.cluster.__enter__()
        self.a, self.b = self.cluster.nodes
        wait_alive(self.b, "a")
        wait_alive(self.a, "b")
        self.values = {}
        self.round = 0

    def put(self, count=COUNT):
        """Puts new values at a."""
        self.round += 1
        self.values = {f"r{self.round}.{i}": os.urandom(VALUE) for i in range(count)}
        put_all(self.a, self.values)

    def get(self, between):
        """Reads all of them at b, one after the other; between(i) runs before value i."""
        with Values(self.b) as client:
            for i, (key, value) in enumerate(self.values.items()):
                between(i)
                deadline = time.monotonic() + 20 * PATIENCE
                while (got := client.get(key, 5000 * PATIENCE)) is None:
                    self.assertLess(time.monotonic(), deadline, f"{key} at b: {client.why}")
                    time.sleep(0.05)
                self.assertTrue(got == value, key)

    def carried(self):
        """Whether both links carry the reads now."""
        self.put(6)
        before = self.cluster.received()
        self.get(lambda i: None)
        return min(now - then for now, then in zip(self.cluster.received(), before)) >= VALUE

    def test_it_is_killed_while_values_are_read(self):
        wait_until(self.carried, 20, "both links carry values")
        for node in (self.b, self.a):
            self.put()
            self.get(lambda i, at=node: at.signal("transporter.0", signal.SIGKILL) if i in (2, 7) else None)
            wait_alive(self.b, "a")
            wait_until(self.carried, 20, "both links carry values again")


class Straight(Handing):
    """Loads and hand-overs directly between pools, while the second link of a node goes down repeatedly."""

    SHAPE = (7, 64, 131072, 4, 2)  # 64 MiB
    SETTINGS = ("--cache-remote-loads", "false", "--handover-fallback", "false", "--fabric-progress-timeout", "1s",
                "--handover-read-wait", f"{2 * PATIENCE}s")
    DOWN = 2  # seconds: the link fails, and its transfers continue on the other

    @classmethod
    def setUpClass(cls):
        cls.cluster = TwoLinks(ranks=2, settings=cls.SETTINGS)
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.__enter__()
        cls.a, cls.b = cls.cluster.nodes
        wait_alive(cls.b, "a")
        wait_alive(cls.a, "b")

    @contextlib.contextmanager
    def going_down(self):
        """The link goes down at least once; the list has the times when it went down."""
        over, times = threading.Event(), []

        def go():
            while not times or not over.is_set():
                self.cluster.network.hub.run("ip link set sl-q0 down")
                times.append(time.monotonic())
                time.sleep(self.DOWN)
                self.cluster.network.hub.run("ip link set sl-q0 up")
                over.wait(1)
        thread = threading.Thread(target=go)
        doors = [node.pid("transporter.0") for node in (self.a, self.b)]
        thread.start()
        try:
            yield times
        finally:
            over.set()
            thread.join()
        self.assertEqual(doors, [node.pid("transporter.0") for node in (self.a, self.b)])

    def wait_carried(self, move):
        """Moves bytes until the second link carries some of them."""
        def carried():
            before = self.cluster.received()[1]
            move()
            return self.cluster.received()[1] - before > VALUE
        wait_until(carried, 20, "the second link carries blocks")

    def test_loads(self):
        store = probe(self.a, "store", *self.SHAPE)
        _, errors = store.communicate(timeout=120 * PATIENCE)
        self.assertEqual(store.returncode, 0, errors + self.a.logs())

        def load(times):
            process = probe(self.b, "load", *self.SHAPE, 20000, times)
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "registered\n")
            wait_until(lambda: counter(self.b, "transporter.0", "pool_engines") == 1, 20, "its pools are registered")
            return process

        def one(process):
            self.assertEqual(process.stdout.readline(), "poisoned\n", process.poll())
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline().split()[:3], ["loaded", "64", "0"])

        def end(process):
            _, errors = process.communicate(timeout=60 * PATIENCE)
            self.assertEqual(process.returncode, 0, errors + self.b.logs())  # no byte was wrong or late
            wait_until(lambda: counter(self.b, "transporter.0", "pool_engines") == 0, 20, "its pools are let go")

        def first():
            process = load(1)
            one(process)
            end(process)
        self.wait_carried(first)
        times = 39
        process = load(times)
        with self.going_down():
            for _ in range(times):
                one(process)
                time.sleep(0.05)
        end(process)
        self.assertEqual(counter(self.b, "transporter.0", "digests_bad"), 0)
        self.assertEqual(counter(self.b, "coordinator", "blocks_from_memory"), 0)

    def refused(self):
        return sum(counter(node, "coordinator", "pushes_direct_refused") for node in (self.a, self.b))

    def test_hand_overs(self):
        straight = ("--mode", "direct", "--ranks", "2", "--concurrency", "16", "--block-bytes", "65536", "--op-timeout", "20s")

        def move(requests):  # once more if the first ones started before the fabric had registered these pools
            for _ in range(5):
                before = self.refused()
                report = self.demo(self.a, self.b, *straight, "--requests", str(requests))
                if self.refused() == before:
                    break
            self.assertEqual(report["complete"], requests, report)

        self.wait_carried(lambda: move(50))
        with self.going_down():
            move(600)
        self.assertGreater(counter(self.b, "transporter.0", "landed_bytes"), 0)
        self.assert_nothing_is_left(self.a, self.b)
        for node in (self.a, self.b):
            wait_until(lambda at=node: counter(at, "transporter.0", "pool_memories") == 0, 20, f"no pool at {node.name}")


if __name__ == "__main__":
    main()
