"""Two nodes with two links of their own: values travel by both, one link down and up costs nothing but its share."""

import json
import os
import sys
import time
import unittest

from cluster_support import FABRIC_PORT, PATIENCE, Cluster, main, missing, wait_alive, wait_until

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

    def test_a_node_with_one_link_meets_one_with_two(self):
        self.b.stop()
        self.b.settings += ["--fabric-address", f"{self.cluster.network.address(1)}:{FABRIC_PORT}"]
        self.b.start()
        wait_alive(self.b, "a")
        first, second = self.shares(4)
        self.assertGreaterEqual(first, 4 * VALUE)
        self.assertLess(second, VALUE)


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
