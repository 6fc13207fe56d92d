"""A node and its clients in different containers: with namespaces of their own, and two shared directories."""

import os
import select
import signal
import subprocess
import sys
import time
import unittest

from containers_support import LIVES, Asked, Inside, apart, can_be_apart, child_of, evict_all, lock_is_lost, lost_is_refused, pins, restart, seen_there, shared
from node_support import BIN, CTL, PATIENCE, Node, main, wait_until

CLIENT = os.path.join(BIN, "..", "tests", "client_probe")
POOLS = os.path.join(BIN, "..", "tests", "pool_probe")
LONG = 10000 * PATIENCE  # ms: only ends hangs


@unittest.skipUnless(can_be_apart(), "no namespaces here, or the programs lie below /tmp")
class Containers(unittest.TestCase):
    def node(self, **settings):
        node = Node(**settings)
        self.addCleanup(node.__exit__)
        return node.__enter__()

    def ctl_inside(self, node, *words, stdin=None):
        there = seen_there(node)
        return subprocess.run([*apart(*shared(node)), CTL, *words, "--instance", there.instance, "--runtime-dir", there.directory + "/run", "--shm-dir",
                               there.shm],
                              input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)

    def test_values_go_both_ways(self):
        node = self.node(ranks=1)
        node.ctl("put", "from-here", stdin=b"one")

        put = self.ctl_inside(node, "put", "from-there", stdin=b"two")
        got = self.ctl_inside(node, "get", "from-here")

        self.assertEqual((put.returncode, got.stdout), (0, b"one"), put.stderr + got.stderr)
        self.assertEqual(node.ctl("get", "from-there").stdout, b"two")
        wait_until(lambda: pins(node) == [], 5, "clients that are gone have left nothing")

    @unittest.skipUnless(os.path.exists(CLIENT), "client_probe was not built")
    def test_all_of_the_object_api_and_an_engine(self):
        """Batches, views, drafts, STORE and LOAD on the host back end; the registrar is killed; the node is replaced."""
        node = self.node(ranks=1)
        there = seen_there(node)
        probe = subprocess.Popen([*apart(*shared(node)), CLIENT, there.instance, there.directory + "/run", there.shm],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: probe.poll() is None and probe.kill())

        def said():
            return select.select([probe.stdout], [], [], 60 * PATIENCE)[0] and probe.stdout.readline()

        heard = [said()]
        if heard == [b"registrar\n"]:
            restart(node, "registrar")
            probe.stdin.write(b"\n")
            probe.stdin.flush()
            heard.append(said())
        if heard[-1] == b"replace\n":
            node.stop()
            node.start()
        _, errors = probe.communicate(b"\n", timeout=60 * PATIENCE)

        self.assertEqual((heard, probe.returncode), ([b"registrar\n", b"replace\n"], 0), errors.decode() + node.logs())

    @unittest.skipUnless(os.path.exists(POOLS), "pool_probe was not built")
    def test_pools_and_engines_on_both_sides(self):
        """Memory made there is mapped here, and the reverse; an engine there stores and loads through a swapper here."""
        node = self.node(ranks=1)
        there, here = Inside(self, node, POOLS), Asked(self, node, (POOLS,))
        self.assertEqual((there.hear(), here.hear()), (["ok"], ["ok"]))

        for number, (owner, mapper) in enumerate(((there, here), (here, there))):
            self.assertEqual(owner.ask("create", number, LONG), ["ok"])
            self.assertEqual((owner.ask("poke", number, 77), owner.ask("publish", number)), (["ok"], ["ok"]))
            self.assertEqual((mapper.ask("await", number, LONG), mapper.ask("peek", number)), (["ok"], ["ok", "77"]))
        for number in (2, 3):
            self.assertEqual((there.ask("create", number, LONG), there.ask("publish", number)), (["ok"], ["ok"]))
        self.assertEqual((there.ask("register"), there.ask("fill", 5, 8), there.ask("store", 5, 8)), (["ok"], ["ok"], ["ok", "8"]))
        self.assertEqual((there.ask("load", 5, 8), there.ask("check", 5, 8)), (["ok", "8"], ["ok", "0"]))  # number of wrong blocks: 0

        since = time.monotonic()
        os.kill(child_of(there.process.pid), signal.SIGKILL)
        self.assertEqual(here.ask("over", 0, LONG), ["ok"])
        print(f"the owner's death was noticed after {(time.monotonic() - since) * 1000:.0f} ms")

    def test_every_process_of_the_node_is_killed(self):
        node = self.node(ranks=1)
        probe = Inside(self, node, LIVES, "4")
        probe.wait_ok(200)

        for turn in range(3):
            for actor in ("registrar", "coordinator", "keyer"):
                restart(node, actor)
                probe.wait_ok(100)

        probe.ask("rest")
        counts = probe.counts()
        self.assertEqual(counts["wrong"], 0, counts)
        self.assertGreater(counts["read"], 1000, counts)
        probe.end()
        self.assertEqual(probe.process.returncode, 0)

    def test_a_client_that_is_killed_is_noticed(self):
        node = self.node(ranks=1)
        probe = Inside(self, node, LIVES, "0")
        self.assertEqual(probe.code("pin"), "SL_OK")
        self.assertEqual(len(pins(node)), 1)

        since = time.monotonic()
        os.kill(child_of(probe.process.pid), signal.SIGKILL)
        wait_until(lambda: pins(node) == [], 1, "its pins are gone")

        print(f"the client's death was noticed after {(time.monotonic() - since) * 1000:.0f} ms")

    def test_two_clients_with_the_same_process_number_are_two(self):
        """Each is the first of its namespace, or nearly. One is killed: the other keeps its pins, also over a restart."""
        node = self.node(ranks=1, memory="16MiB")
        one, other = Inside(self, node, LIVES, "0"), Inside(self, node, LIVES, "0")
        self.assertEqual((one.code("pin"), other.code("pin")), ("SL_OK", "SL_OK"))
        before = pins(node)
        self.assertEqual(len({name.split(".")[2] for name in before}), 1, before)
        self.assertEqual(len(before), 2)

        os.kill(child_of(one.process.pid), signal.SIGKILL)
        wait_until(lambda: len(pins(node)) == 1, 5, "its pins are gone")
        for turn in range(2):
            evict_all(node)
            self.assertEqual(other.code("check"), "whole")
            restart(node, "registrar")

        self.assertEqual((other.code("release"), other.code("pin")), ("released", "SL_OK"))

    def test_a_stopped_client_keeps_what_it_reads(self):
        node = self.node(ranks=1, memory="16MiB")
        probe = Inside(self, node, LIVES, "0")
        self.assertEqual(probe.code("pin"), "SL_OK")
        os.kill(child_of(probe.process.pid), signal.SIGSTOP)

        for turn in range(2):
            restart(node, "registrar")
            evict_all(node)
        os.kill(child_of(probe.process.pid), signal.SIGCONT)

        self.assertEqual(probe.code("check"), "whole")

    def test_a_lock_that_was_lost_by_mistake_costs_no_pins_and_the_next_call(self):
        node = self.node(ranks=1, memory="16MiB")
        probe = Inside(self, node, LIVES, "0")
        self.assertEqual(probe.code("pin"), "SL_OK")

        self.assertEqual(probe.code("touch"), "SL_OK")

        lock_is_lost(self, node, probe)
        lost_is_refused(self, probe)
        os.kill(child_of(probe.process.pid), signal.SIGKILL)
        wait_until(lambda: pins(node) == [], 5, "its pins are gone")

    def test_a_client_outlives_a_node_that_keeps_its_memory(self):
        node = self.node(ranks=1, memory="16MiB")
        probe = Inside(self, node, LIVES, "0")
        self.assertEqual(probe.code("pin"), "SL_OK")

        node.stop("--keep-arena")
        node.start()
        evict_all(node)

        self.assertEqual(probe.code("check"), "whole")

    def test_attaching_while_the_registrar_is_dead(self):
        node = self.node(ranks=1)
        node.ctl("put", "key", stdin=b"value")
        restart(node, "registrar")

        got = wait_until(lambda: self.ctl_inside(node, "get", "key").stdout, 5, "a client attaches")

        self.assertEqual(got, b"value")

    def test_a_client_reads_on_in_what_a_stop_has_left_it(self):
        node = self.node(ranks=1)
        probe = Inside(self, node, LIVES, "0")
        self.assertEqual(probe.code("pin"), "SL_OK")

        node.stop()

        self.assertEqual(node.leftovers(), [])
        self.assertEqual(probe.code("check"), "whole")

    def test_formats_are_not_judged_from_where_no_process_is_seen(self):
        node = self.node(ranks=1)

        there = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", CTL, "formats",
                                *node.where], env=node.environment, stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)

        self.assertEqual(there.returncode, 1)
        self.assertIn(b"another pid namespace", there.stderr)
        self.assertEqual(node.ctl("formats").returncode, 0)

    def test_a_client_without_the_node_s_segments_is_told_where_it_looked(self):
        node = self.node(ranks=1)
        there = seen_there(node)

        got = subprocess.run([*apart(*shared(node)), CTL, "get", "key", "--instance", there.instance, "--runtime-dir", there.directory + "/run",
                              "--shm-dir", "/dev/shm/none"], stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)

        self.assertIn(b"no node runs under the name", got.stderr)
        self.assertIn(b"/dev/shm/none", got.stderr)
        self.assertEqual(got.returncode, 3)


if __name__ == "__main__":
    main()
