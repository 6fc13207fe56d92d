"""Two nodes with two links of their own: values travel by both, one link down and up costs nothing but its share."""

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
from pushing_support import Pushing
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
        """Bytes that b has from its first and its second link."""
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
        """One value from a to b; gives how long it took. A miss is asked for again: it may be noted for a moment."""
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
        """What each link carried of so many values."""
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

        self.cluster.network.cut(0)  # the first link: control messages go there, too, and come back with it
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
        self.assertNotIn("transporter.1", self.b.processes())

    def test_a_node_with_one_link_or_one_process_meets_one_with_two(self):
        both = self.b.settings[-1]
        self.again("--fabric-address", f"{self.cluster.network.address(1)}:{FABRIC_PORT}")
        first, second = self.shares(4)
        self.assertGreaterEqual(first, 4 * VALUE)
        self.assertLess(second, VALUE)

        self.again("--fabric-address", both, "--fabric-processes", "false")
        wait_until(self.both_carry, 20, "both links carry values")


class RailProcesses(unittest.TestCase):
    """transporter.1 drives the second link of each node. It may die, stop, or lose its door: nobody's values do."""

    COUNT = 24

    def setUp(self):
        # On a busy machine a rail's process may say nothing for a second, and would be killed for it.
        self.cluster = TwoLinks(settings=("--fabric-stall", "3s", "--fence-timeout", "3s"))
        self.addCleanup(self.cluster.__exit__)
        self.cluster.__enter__()
        self.a, self.b = self.cluster.nodes
        wait_alive(self.b, "a")
        wait_alive(self.a, "b")
        self.values = {}
        self.round = 0

    def put(self, count=COUNT):
        """New values at a."""
        self.round += 1
        self.values = {f"r{self.round}.{i}": os.urandom(VALUE) for i in range(count)}
        put_all(self.a, self.values)

    def get(self, between):
        """All of them at b, one after the other; between(i) comes before value i. Gives how often b missed one."""
        missed = 0
        with Values(self.b) as client:
            for i, (key, value) in enumerate(self.values.items()):
                between(i)
                deadline = time.monotonic() + 20 * PATIENCE
                while (got := client.get(key, 5000 * PATIENCE)) is None:  # longer than it takes to notice a rail that stands still
                    missed += 1
                    self.assertLess(time.monotonic(), deadline, f"{key} at b: {client.why}")
                    time.sleep(0.05)
                self.assertTrue(got == value, key)
        return missed

    def carried(self):
        """Whether both links carry what is read now."""
        self.put(6)
        before = self.cluster.received()
        self.get(lambda i: None)
        return min(now - then for now, then in zip(self.cluster.received(), before)) >= VALUE

    def harm(self, node, name, how, at=(4, 12)):
        def between(i):
            if i in at:
                node.signal(name, how)
        return between

    def died(self, node, name, how, at=(4, 12)):
        """Values are read while a process is harmed. Gives misses, values that b read in all, bytes on its links."""
        self.put()
        before, links = counter(self.b, "transporter.0", "values_read"), self.cluster.received()
        missed = self.get(self.harm(node, name, how, at))
        read = counter(self.b, "transporter.0", "values_read") - before
        return missed, read, sum(now - then for now, then in zip(self.cluster.received(), links))

    def test_one_rail_dies_and_nothing_else(self):
        wait_until(self.carried, 20, "both links carry values")
        self.b.signal("transporter.1", signal.SIGKILL)
        time.sleep(PATIENCE)
        self.assertTrue(self.carried())  # within a second
        for node in (self.b, self.a):
            doors = [self.a.pid("transporter.0"), self.b.pid("transporter.0")]
            missed, read, received = self.died(node, "transporter.1", signal.SIGKILL)
            self.assertEqual((missed, read), (0, self.COUNT))  # no transfer failed, none was begun again
            self.assertLess(received, (self.COUNT + 2 + 1) * VALUE)  # sent again: a piece a death, and protocol
            self.assertEqual(doors, [self.a.pid("transporter.0"), self.b.pid("transporter.0")])
            wait_until(self.carried, 10, "both links carry values again")

    def test_a_stopped_rail_is_killed(self):
        wait_until(self.carried, 20, "both links carry values")
        stopped = self.b.pid("transporter.1")
        missed, _, _ = self.died(self.b, "transporter.1", signal.SIGSTOP, at=(4,))
        self.assertEqual(missed, 0)
        self.assertNotEqual(self.b.pid("transporter.1"), stopped)
        wait_until(self.carried, 10, "both links carry values again")

    def test_the_door_dies(self):
        wait_until(self.carried, 20, "both links carry values")
        rails = [self.a.pid("transporter.1"), self.b.pid("transporter.1")]
        for node in (self.b, self.a):
            self.died(node, "transporter.0", signal.SIGKILL)
            wait_alive(self.b, "a")
            wait_until(self.carried, 20, "both links carry values again")
        self.assertEqual(rails, [self.a.pid("transporter.1"), self.b.pid("transporter.1")], self.a.logs() + self.b.logs())
        self.assertIn("begins anew", self.b.logs())


class Straight(Pushing):
    """Loads and hand-overs straight between pools, while transporter.1 of both nodes is killed every 100 ms."""

    SHAPE = (7, 64, 131072, 4, 2)  # 64 MiB
    SETTINGS = ("--load-keeps", "false", "--handover-push-fallback", "false", "--fabric-stall", "3s", "--fence-timeout", "3s")

    @classmethod
    def setUpClass(cls):
        cls.cluster = TwoLinks(ranks=2, settings=cls.SETTINGS)
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.__enter__()
        cls.a, cls.b = cls.cluster.nodes
        wait_alive(cls.b, "a")
        wait_alive(cls.a, "b")

    def setUp(self):
        def carries(node):
            # The page of one that is dead stays, with its last figures, until the next has begun.
            status = json.loads(node.ctl("status", "--metrics", "--json").stdout)
            return any(row["name"] == "transporter.1" and row["alive"] and row["counters"]["links_up"] > 0 for row in status["actors"])
        wait_until(lambda: carries(self.a) and carries(self.b), 20, "both links are up")

    @contextlib.contextmanager
    def killing(self):
        """Gives the list of deaths."""
        over, deaths = threading.Event(), []
        doors = [node.pid("transporter.0") for node in (self.a, self.b)]

        def kill():
            while not over.wait(0.1):
                for node in (self.a, self.b):
                    pid = node.pid("transporter.1")
                    try:
                        if pid != 0:
                            os.kill(pid, signal.SIGKILL)
                            deaths.append(pid)
                    except ProcessLookupError:
                        pass
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield deaths
        finally:
            over.set()
            killer.join()
        self.assertGreaterEqual(len(deaths), 2)  # the supervisor takes longer each time
        self.assertEqual(doors, [node.pid("transporter.0") for node in (self.a, self.b)])

    def rail_bytes(self, name):
        return sum(counter(node, "transporter.1", name) for node in (self.a, self.b))

    def wait_carried(self, name, move, what):
        """Moves bytes until transporter.1 carries some of them: its links are up before every key and grant is known there."""
        def carried():
            before = self.rail_bytes(name)
            move()
            return self.rail_bytes(name) > before
        wait_until(carried, 10, what)

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
            self.assertEqual(process.returncode, 0, errors + self.b.logs())  # no byte was wrong, and none came late
            wait_until(lambda: counter(self.b, "transporter.0", "pool_engines") == 0, 20, "its pools are let go")

        def first():
            process = load(1)
            one(process)
            end(process)
        self.wait_carried("read_bytes", first, "transporter.1 reads into pools")
        times = 39
        process = load(times)
        with self.killing():
            for _ in range(times):
                one(process)
                time.sleep(0.05)
        end(process)
        self.assertEqual(counter(self.b, "transporter.0", "digests_bad"), 0)
        self.assertEqual(counter(self.b, "coordinator", "blocks_from_memory"), 0)

    def test_hand_overs(self):
        wanted = 600
        straight = ("--mode", "direct", "--ranks", "2", "--concurrency", "16", "--block-bytes", "65536", "--op-timeout", "20s")

        def first():
            self.assertEqual(self.demo(self.a, self.b, *straight, "--requests", "50")["complete"], 50)
        self.wait_carried("written_bytes", first, "transporter.1 writes into pools")
        with self.killing():
            report = self.demo(self.a, self.b, *straight, "--requests", str(wanted))
        self.assertEqual(report["complete"], wanted, report)
        self.assertGreater(counter(self.b, "transporter.0", "arrived_pool_bytes"), 0)
        self.assert_nothing_is_left(self.a, self.b)
        for node in (self.a, self.b):
            wait_until(lambda at=node: counter(at, "transporter.0", "pool_memories") == 0, 20, f"no pool at {node.name}")


if __name__ == "__main__":
    main()
