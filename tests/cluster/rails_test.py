"""Two nodes with two links of their own: values travel by both, one link down and up costs nothing but its share."""

import json
import os
import signal
import sys
import threading
import time
import unittest

from cluster_support import FABRIC_PORT, PATIENCE, Cluster, counter, main, missing, wait_alive, wait_until

VALUE = 4 << 20


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
            self.nodes[i].settings += ["--fabric-address", f"{self.network.address(i)}:{FABRIC_PORT},{self.second(i)}:{FABRIC_PORT}",
                                       "--fabric-pools", "false"]  # which keep all rails in the door

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

    def test_a_node_with_one_link_meets_one_with_two(self):
        self.b.stop()
        self.b.settings += ["--fabric-address", f"{self.cluster.network.address(1)}:{FABRIC_PORT}"]
        self.b.start()
        wait_alive(self.b, "a")
        first, second = self.shares(4)
        self.assertGreaterEqual(first, 4 * VALUE)
        self.assertLess(second, VALUE)


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

    def put(self):
        """New values at a."""
        self.round += 1
        self.values = {f"r{self.round}.{i}": os.urandom(VALUE) for i in range(self.COUNT)}
        for key, value in self.values.items():
            self.a.ctl("put", key, "-", stdin=value)

    def get(self, between):
        """All of them at b, one after the other; between(i) comes before value i. Gives how often b missed one."""
        missed = 0
        for i, (key, value) in enumerate(self.values.items()):
            between(i)
            deadline = time.monotonic() + 20 * PATIENCE
            while (done := self.b.ctl("get", key, "-", check=False)).returncode != 0:
                missed += 1
                self.assertLess(time.monotonic(), deadline, f"{key} at b: {done.stderr}")
                time.sleep(0.05)
            self.assertEqual(done.stdout, value)
        return missed

    def carried(self):
        """Whether both links carry what is read now."""
        self.put()
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
        for node in (self.b, self.a):
            doors = [self.a.pid("transporter.0"), self.b.pid("transporter.0")]
            missed, read, received = self.died(node, "transporter.1", signal.SIGKILL)
            self.assertEqual((missed, read), (0, self.COUNT))  # no transfer failed, none was begun again
            self.assertLess(received, (self.COUNT + 2 + 1) * VALUE)  # sent again: a piece a death, and protocol
            self.assertEqual(doors, [self.a.pid("transporter.0"), self.b.pid("transporter.0")])
            wait_until(self.carried, 10, "both links carry values again")

    def test_a_rail_dies_in_the_middle_of_many_reads(self):
        wait_until(self.carried, 20, "both links carry values")
        self.assertNotIn("silent", self.a.logs() + self.b.logs())
        for node in (self.b, self.a):
            self.put()
            door, before = self.b.pid("transporter.0"), counter(self.b, "transporter.0", "values_read")
            wrong, missed = [], []

            def read(keys):
                for key in keys:
                    done = self.b.ctl("get", key, "-", check=False)
                    missed.extend([key] if done.returncode != 0 else [])
                    wrong.extend([key] if done.returncode == 0 and done.stdout != self.values[key] else [])
            keys = list(self.values)
            readers = [threading.Thread(target=read, args=(keys[i::6],)) for i in range(6)]
            for reader in readers:
                reader.start()
            deaths = 0
            while any(reader.is_alive() for reader in readers):
                time.sleep(0.1)
                pid = node.processes()["transporter.1"][0]
                if pid != 0:
                    try:
                        os.kill(pid, signal.SIGKILL)
                        deaths += 1
                    except ProcessLookupError:
                        pass
            for reader in readers:
                reader.join()
            self.assertGreater(deaths, 0)
            self.assertEqual((wrong, missed), ([], []))
            self.assertEqual(counter(self.b, "transporter.0", "values_read") - before, self.COUNT)
            self.assertEqual(self.b.pid("transporter.0"), door)
            wait_until(self.carried, 20, "both links carry values again")

    def test_it_carries_again_within_a_second(self):
        wait_until(self.carried, 20, "both links carry values")
        self.b.signal("transporter.1", signal.SIGKILL)
        time.sleep(PATIENCE)
        self.assertTrue(self.carried())

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
        self.assertEqual(rails, [self.a.pid("transporter.1"), self.b.pid("transporter.1")])
        self.assertIn("begins anew", self.b.logs())

    def test_one_process_when_told_so(self):
        self.b.stop()
        self.b.settings += ["--fabric-processes", "false"]
        self.b.start()
        wait_alive(self.b, "a")
        self.assertNotIn("transporter.1", self.b.processes())
        wait_until(self.carried, 20, "both links carry values")


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
