"""Nodes that read from each other: values and blocks that one has and another one needs; nodes that die, stop, are cut off or
unknown.

A node in trouble costs a miss, never a wrong byte and never a wait beyond the deadline."""

import json
import os
import shutil
import signal
import tempfile
import time
import unittest

from cluster_support import (CONTROL_PORT, FABRIC_PORT, PATIENCE, Cluster, ClusterNode, Network, main, wait_until,
                             workload)


def peers(node):
    done = node.ctl("nodes", "--json", check=False)
    return {row["name"]: row for row in json.loads(done.stdout)["nodes"]} if done.returncode == 0 else {}


def wait_alive(node, *names):
    wait_until(lambda: all(peers(node).get(name, {}).get("state") == "alive" for name in names), 10,
               f"{names} alive at {node.name}")


def get(node, key):
    """The bytes of a key, None for a miss. Any other result is an error of the test."""
    done = node.ctl("get", key, "-", check=False)
    if done.returncode == 0:
        return done.stdout
    assert b"not found" in done.stderr, done.stderr
    return None


def put(node, key, length):
    value = os.urandom(length)
    node.ctl("put", key, "-", "--op-timeout", "60s", stdin=value)
    return value


def connections(node):
    """Connections of its port for bytes, and from it to others' ports."""
    lines = node.network.ports[node.port].run("ss -Htn state established").splitlines()
    return sum(1 for line in lines if f":{FABRIC_PORT} " in line + " ")


def get_until(node, key, value):
    """A key that a living peer has arrives, if not at once (the peer may be busy, or its answer late) then soon."""
    wait_until(lambda: get(node, key) == value, 10, f"{key} at {node.name}")


class Reading(unittest.TestCase):
    def test_values_come_with_the_right_bytes_once(self):
        with Cluster(2) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            for length in (1, 4095, 4096, 65536 + 1, 1 << 20, 20 << 20):
                key = f"v{length}"
                value = put(a, key, length)
                get_until(b, key, value)
            read = peers(b)["a"]["read_values"]
            self.assertEqual(read, 6)
            self.assertEqual(get(b, "v4096"), get(a, "v4096"))
            self.assertEqual(peers(b)["a"]["read_values"], read)  # it is stored here now
            self.assertIsNone(get(b, "nowhere"))
            self.assertEqual(b.ctl("exists", "v1", "nowhere", check=False).returncode, 1)
            wait_until(lambda: peers(a)["b"]["pinned_values"] == 0, 10, "nothing stays pinned")

    def test_what_is_on_the_peers_disk_alone_comes_too(self):
        with Cluster(2, memory="16MiB", disk="256MiB") as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            first = put(a, "first", 1 << 20)
            for i in range(30):  # evicts it from a's memory
                put(a, f"more{i}", 1 << 20)
            a.ctl("flush")
            self.assertIn(b" -d first", a.ctl("ls", "first").stdout)
            get_until(b, "first", first)

    def test_blocks_are_loaded_from_where_they_were_stored(self):
        with Cluster(2, ranks=2, memory="256MiB") as cluster, tempfile.TemporaryDirectory(prefix="sl-") as folder:
            a, b = cluster.nodes
            wait_alive(b, "a")
            trace = os.path.join(folder, "trace")
            workload(trace, 40, seed=3)
            arguments = ["replay", trace, "--ranks", "2", "--pools", "2", "--block-bytes", "8KiB", "--op-timeout", "30s"]
            a.ctl(*arguments, timeout=120 * PATIENCE)  # checks every byte it loads
            b.ctl(*arguments, timeout=120 * PATIENCE)
            loads = json.loads(b.ctl("tiers", "--json").stdout)
            self.assertGreater(loads["remote"]["blocks_loaded"], 0)
            self.assertGreater(peers(b)["a"]["read_values"], 0)


class Elsewhere(unittest.TestCase):
    def test_what_another_node_has_is_seen_and_removed_there(self):
        with Cluster(2, settings=["--peer-removes", "true"]) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            self.assertEqual(b.ctl("exists", "--everywhere", "k", check=False).returncode, 1)
            put(a, "k", 5000)  # visible at once: an earlier answer is not cached
            seen = b.ctl("exists", "--everywhere", "k")
            self.assertEqual(seen.stdout, b"yes\tk\tat a\n")
            self.assertEqual(b.ctl("exists", "k", check=False).returncode, 1)
            b.ctl("rm", "--everywhere", "k")
            self.assertEqual(a.ctl("exists", "k", check=False).returncode, 1)
            gone = b.ctl("rm", "--everywhere", "k", check=False)
            self.assertIn(b"not found", gone.stderr)

    def test_peers_remove_nothing_unless_they_may(self):
        with Cluster(2) as cluster:
            a, b = cluster.nodes
            wait_alive(b, "a")
            put(a, "k", 5000)
            b.ctl("rm", "--everywhere", "k", check=False)
            self.assertEqual(a.ctl("exists", "k", check=False).returncode, 0)


class Strangers(unittest.TestCase):
    def test_who_has_no_key_gets_nothing(self):
        with Cluster(3, unknown_node="c") as cluster:
            a, b, c = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            value = put(a, "secret", 100000)
            get_until(b, "secret", value)
            for _ in range(5):
                self.assertIsNone(get(c, "secret"))
            self.assertEqual({row["state"] for row in peers(c).values()}, {"away"})
            self.assertNotEqual(peers(a).get("c", {}).get("state"), "alive")
            cluster.allow("a", "c")  # no restart: a key that is added counts
            wait_until(lambda: peers(c)["a"]["state"] == "alive", 20, "c is let in")
            get_until(c, "secret", value)

    def test_a_key_that_is_removed_ends_all_that_goes_on(self):
        with Cluster(2) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            values = {f"v{i}": put(a, f"v{i}", 3 << 20) for i in range(8)}
            get_until(b, "v0", values["v0"])
            self.assertGreater(connections(a), 0)
            os.remove(os.path.join(cluster.directory, "a", "b.pub"))
            # Well within the time after which a silent peer counts as unreachable.
            wait_until(lambda: connections(a) == 0, 3, "the connections for bytes are closed")
            self.assertNotEqual(peers(a)["b"]["state"], "alive")
            for name in ("v1", "v2"):
                self.assertIsNone(get(b, name))
            time.sleep(2)
            self.assertEqual(connections(a), 0)  # no connection is opened again by itself
            former = a.live_pid("transporter.0")
            a.signal("transporter.0", signal.SIGKILL)  # and a start without the key does not fail
            wait_until(lambda: a.live_pid("transporter.0") != former and peers(a).get("b", {}).get("state") == "no key", 10,
                       lambda: f"b is left out: {a.processes()}, {peers(a)}")
            self.assertEqual(a.ctl("status", "--ready").returncode, 0)
            cluster.allow("a", "b")
            wait_alive(a, "b")
            wait_alive(b, "a")
            for name, value in values.items():
                get_until(b, name, value)

    def test_another_key_under_the_same_name_is_another_node(self):
        with Cluster(2) as cluster, tempfile.TemporaryDirectory(prefix="sl-") as folder:
            a, b = cluster.nodes
            wait_alive(b, "a")
            value = put(a, "k", 1 << 20)
            get_until(b, "k", value)
            other = put(a, "other", 1 << 20)
            b.ctl("keygen", folder, "b")  # another node's key, in place of that of b
            shutil.copy(os.path.join(folder, "b.pub"), os.path.join(cluster.directory, "a"))
            wait_until(lambda: connections(a) == 0, 3, "the connections for bytes are closed")
            self.assertIsNone(get(b, "other"))
            cluster.allow("a", "b")
            wait_alive(b, "a")
            get_until(b, "other", other)

    def test_nothing_listens_unless_configured(self):
        network = Network(1)
        try:
            quiet = ([], ["--peers", f"x@10.98.0.9:{CONTROL_PORT}", "--fabric", "tcp", "--cluster-plaintext", "true"])
            for settings in quiet:
                with ClusterNode(network, 0, "lone", settings=settings, ranks=1, memory="64MiB") as node:
                    node.wait_ready()
                    self.assertEqual(node.listening(), [])
                    self.assertIsNone(get(node, "nothing"))
            with ClusterNode(network, 0, "open", ranks=1, memory="64MiB", settings=[
                    "--cluster-listen", f"{network.address(0)}:{CONTROL_PORT}", "--cluster-plaintext", "true",
                    "--fabric", "tcp", "--fabric-address", f"{network.address(0)}:{FABRIC_PORT}"]) as node:
                wait_until(lambda: len(node.listening()) == 2, 5, "both ports")
        finally:
            network.close()


class Twins(unittest.TestCase):
    """Two nodes with one name and one key: a machine that was cloned."""

    def reason(self, node):
        return next(row["reason"] for row in json.loads(node.ctl("status", "--json").stdout)["actors"]
                    if row["name"] == "transporter.0")

    def said(self, node):
        """The reason that it reports everywhere; it does not change any more."""
        reason = self.reason(node)
        line = next(line for line in json.loads(node.ctl("doctor", "--json", check=False).stdout)["checks"]
                    if line["check"] == "names")
        self.assertEqual(line["level"], "fail" if reason else "ok", line)
        self.assertIn(reason, line["text"])
        self.assertIn("degraded: transporter.0" if reason else "ready", node.ctl("status", "--ready").stdout.decode())
        return reason

    def check(self, use_directory):
        with Cluster(2, twin="a", use_directory=use_directory) as cluster:
            a, b = cluster.nodes
            wait_alive(a, "b")
            wait_alive(b, "a")
            values = {f"v{i}": put(a, f"v{i}", 100000) for i in range(10)}
            get_until(b, "v0", values["v0"])
            for node in (a, b):
                self.assertEqual(self.said(node), "")
            cluster.twin.start()
            for node in (a, b, cluster.twin):
                wait_until(lambda node=node: all(Network.address(i) in self.reason(node) for i in (0, 2)), 60,
                           lambda node=node: f"both addresses at {node.name}: {self.reason(node)}")
                self.said(node)
            self.assertEqual(peers(b)["a"]["state"], "twice")
            for i in range(1, 9):  # the first pair stays connected
                get_until(b, f"v{i}", values[f"v{i}"])
                get_until(a, f"w{i}", put(b, f"w{i}", 100000))
            a.kill()  # now the name is free
            wait_until(lambda: self.reason(cluster.twin) == "" and peers(cluster.twin).get("b", {}).get("state") == "alive", 60,
                       lambda: f"the other one continues: {self.reason(cluster.twin)}")
            get_until(cluster.twin, "w1", get(b, "w1"))

    def test_the_first_of_two_nodes_with_one_name_goes_on(self):
        self.check(use_directory=False)

    def test_the_first_of_two_records_in_the_directory_goes_on(self):
        self.check(use_directory=True)


class Trouble(unittest.TestCase):
    """Three nodes; a and c have "both", only a has "one". b reads."""

    def setUp(self):
        self.cluster = Cluster(3)
        self.cluster.__enter__()
        self.a, self.b, self.c = self.cluster.nodes
        wait_alive(self.b, "a", "c")
        wait_alive(self.c, "a")
        self.sent = 0

    def tearDown(self):
        self.cluster.__exit__()

    def spread(self):
        """Values that b lacks: (key, bytes) at a and c, and only at a."""
        self.sent += 1
        both, one = f"both{self.sent}", f"one{self.sent}"
        value = put(self.a, both, 3 << 20)
        self.c.ctl("put", both, "-", stdin=value)
        return (both, value), (one, put(self.a, one, 3 << 20))

    def gets_end(self, both, one):
        """While a is in trouble: values that c has are read, values that only a has are read or a miss, no call hangs."""
        get_until(self.b, *both)
        start = time.monotonic()
        self.assertIn(get(self.b, one[0]), (None, one[1]))
        self.assertLess(time.monotonic() - start, 30 * PATIENCE)  # a limit, not a measurement

    def well_again(self):
        wait_alive(self.b, "a", "c")
        both, one = self.spread()
        get_until(self.b, *both)
        get_until(self.b, *one)

    def test_a_killed_holder(self):
        both, one = self.spread()
        pid = self.a.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        self.gets_end(both, one)
        self.a.wait_restarted("transporter.0", pid)
        self.well_again()

    def test_a_stopped_holder(self):
        both, one = self.spread()
        pid = self.a.pid("transporter.0")
        os.kill(pid, signal.SIGSTOP)
        self.gets_end(both, one)
        self.a.wait_restarted("transporter.0", pid)  # the supervisor restarts it
        self.well_again()

    def test_a_killed_reader(self):
        both, one = self.spread()
        pid = self.b.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        self.b.wait_restarted("transporter.0", pid)
        get_until(self.b, *both)
        get_until(self.b, *one)
        wait_until(lambda: peers(self.a)["b"]["pinned_values"] == 0, 20, "its pins are gone")

    def test_a_registrar_that_dies_at_either_end(self):
        for node in (self.a, self.b):
            both, one = self.spread()
            pid = node.pid("registrar")
            os.kill(pid, signal.SIGKILL)
            node.wait_restarted("registrar", pid)
            get_until(self.b, *one)
            get_until(self.b, *both)

    def test_a_partition_heals(self):
        both, one = self.spread()
        self.cluster.network.cut(0)
        self.gets_end(both, one)
        wait_until(lambda: peers(self.b)["a"]["state"] == "away", 20, "a is marked unreachable")
        self.assertIsNone(get(self.b, "nowhere"))
        self.cluster.network.mend(0)
        wait_until(lambda: peers(self.b)["a"]["state"] == "alive", 20, "a is back")
        self.well_again()

    def test_the_holder_dies_while_it_is_read(self):
        values = {f"big{i}": put(self.a, f"big{i}", 8 << 20) for i in range(4)}
        for i, (key, value) in enumerate(values.items()):
            pid = self.a.pid("transporter.0")
            reading = self.b.ctl_start("get", key, "-")
            # In the middle of it, before, or after: each is right bytes or a miss.
            time.sleep(0.01 * i)
            os.kill(pid, signal.SIGKILL)
            got, _ = reading.communicate(timeout=60 * PATIENCE)
            self.assertTrue(got == value or (reading.returncode == 1 and got == b""), (len(got), reading.returncode))
            self.a.wait_restarted("transporter.0", pid)
            wait_alive(self.b, "a")
        for key, value in values.items():
            get_until(self.b, key, value)


if __name__ == "__main__":
    main()
