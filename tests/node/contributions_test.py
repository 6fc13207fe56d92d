"""Processes that contribute memory to the node: their values are lost when they die, and they contribute again to a new node."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from node_support import Node, main, wait_until
from contributions_support import PROBE, Probe

MIB = 1 << 20
BOUND = 20  # seconds, times the patience: only ends hangs


@unittest.skipUnless(os.path.exists(PROBE), "contributions_probe was not built")
class Contributions(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1, memory="64MiB", settings=["--contributions", "true"])
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)

    def registrar(self, counter):
        shown = json.loads(self.node.ctl("status", "--pages").stdout)
        return next(actor for actor in shown["actors"] if actor["name"] == "registrar")["counters"][counter]

    def two(self):
        a, b = Probe(self, self.node), Probe(self, self.node)
        self.assertEqual(a.code("contribute", "host:1", 16 * MIB, 0), "SL_OK")
        self.assertEqual(b.code("contribute", "host:2", 8 * MIB, 0), "SL_OK")
        return a, b

    def filled(self):
        a, b = self.two()
        for number in range(4):
            self.assertEqual(a.code("put", f"a{number}", number, MIB, "host:1"), "SL_OK")
            self.assertEqual(a.code("put", f"b{number}", number, MIB, "host:2"), "SL_OK")
        return a, b

    def gone(self, probe):
        wait_until(lambda: all(probe.code("get", f"a{number}") == "SL_ERR_NOT_FOUND" for number in range(4)), BOUND,
                   "the values of the dead process are gone")
        for number in range(4):
            self.assertEqual(probe.ask("get", f"b{number}")[:2], ["SL_OK", str(number)])
        self.assertEqual(probe.listed(), {"host:2": (4 * MIB, 8 * MIB)})

    def test_values_of_a_killed_process_go_and_the_others_stay(self):
        a, b = self.filled()
        self.assertEqual(b.listed(), {"host:1": (4 * MIB, 16 * MIB), "host:2": (4 * MIB, 8 * MIB)})
        wait_until(lambda: self.registrar("contributed_bytes") == 24 * MIB, BOUND, "the gauge shows it")
        a.kill()
        self.gone(b)
        wait_until(lambda: self.registrar("contributed_bytes") == 8 * MIB, BOUND, "capacity shrinks")
        story = json.loads(self.node.ctl("explain", "a0", "--json", check=False).stdout)
        self.assertIn("its contribution host:1 ended", json.dumps(story))

    def test_registrar_and_contributor_die_together(self):
        a, b = self.filled()
        old = self.node.pid("registrar")
        os.kill(old, signal.SIGSTOP)
        a.kill()
        os.kill(old, signal.SIGKILL)
        self.node.wait_restarted("registrar", old, BOUND)
        self.gone(b)

    def test_a_client_that_ends_well_takes_its_contribution_along(self):
        a, b = self.filled()
        a.end()
        self.gone(b)

    def test_a_full_node_evicts_and_what_fits_nowhere_is_refused(self):
        a, _ = self.two()
        for number in range(64):
            self.assertEqual(a.code("put", f"k{number}", number, MIB), "SL_OK")
        self.assertLessEqual(sum(used for used, _ in a.listed().values()), 24 * MIB)
        self.assertEqual(a.ask("get", "k63")[:2], ["SL_OK", "63"])
        self.assertEqual(a.code("get", "k0"), "SL_ERR_NOT_FOUND")
        self.assertEqual(a.code("withdraw", "host:1"), "SL_OK")
        self.assertEqual(a.code("put", "fits", 1, 8 * MIB), "SL_OK")
        self.assertEqual(a.code("contribute", "too-much", 57 * MIB, 0), "SL_ERR_NO_SPACE")
        self.assertEqual(a.code("contribute", "small", 4096, 0), "SL_OK")
        self.assertEqual(a.code("contribute", "host:2", 4096, 0), "SL_ERR_EXISTS")

    def test_without_contributions_nothing_fits(self):
        a = Probe(self, self.node)
        self.assertEqual(a.code("put", "k", 1, 4096), "SL_ERR_NO_SPACE")
        self.assertEqual(a.code("withdraw", "nobody's"), "SL_ERR_NOT_FOUND")
        self.assertEqual(a.code("contribute", "x" * 300, 4096, 0), "SL_ERR_INVALID")
        self.assertEqual(a.code("contribute", "empty", 0, 0), "SL_ERR_INVALID")

    def test_a_lasting_one_outlives_its_process(self):
        a, b = Probe(self, self.node), Probe(self, self.node)
        self.assertEqual(a.code("contribute", "node", 8 * MIB, 1), "SL_OK")
        self.assertEqual(a.code("put", "k", 7, MIB), "SL_OK")
        a.kill()
        old = self.node.pid("registrar")
        os.kill(old, signal.SIGKILL)
        self.node.wait_restarted("registrar", old, BOUND)
        self.assertEqual(b.ask("get", "k")[:2], ["SL_OK", "7"])
        self.assertEqual(b.listed(), {"node": (MIB, 8 * MIB)})
        rows = json.loads(self.node.ctl("contributions", "--json").stdout)["contributions"]
        self.assertEqual([(row["name"], row["lasting"], row["length_bytes"]) for row in rows], [("node", True, 8 * MIB)])
        self.assertIn(b"(lasting)", self.node.ctl("contributions").stdout)
        self.assertEqual(b.code("withdraw", "node"), "SL_OK")
        self.assertEqual(b.code("get", "k"), "SL_ERR_NOT_FOUND")

    def test_contributions_come_back_by_themselves_to_a_node_started_anew(self):
        a, b = self.filled()
        self.node.stop()
        shutil.rmtree(self.node.shm, ignore_errors=True)
        self.node.start()
        self.assertEqual(b.code("put", "new", 5, MIB), "SL_OK")  # b has made its own again, a has not called yet
        self.assertEqual(b.listed(), {"host:2": (MIB, 8 * MIB)})
        self.assertEqual(a.ask("get", "new")[:2], ["SL_OK", "5"])
        self.assertEqual(a.listed(), {"host:1": (0, 16 * MIB), "host:2": (MIB, 8 * MIB)})
        self.assertEqual(a.code("get", "a0"), "SL_ERR_NOT_FOUND")


class Memory(unittest.TestCase):
    def test_memory_is_taken_as_it_is_contributed(self):
        with Node(ranks=1, memory="512MiB", settings=["--contributions", "true"]) as node:
            def there():
                actors = json.loads(node.ctl("status", "--json").stdout)["actors"]
                return next(actor["counters"]["usable_bytes"] for actor in actors if actor["name"] == "registrar")
            self.assertEqual(there(), 0)
            a = Probe(self, node)
            self.assertEqual(a.code("contribute", "host:1", 8 * MIB, 0), "SL_OK")
            wait_until(lambda: there() >= 8 * MIB, BOUND, "the contribution exists")
            self.assertLess(there(), 256 * MIB)
            b = Probe(self, node)
            self.assertEqual(b.code("contribute", "host:2", 300 * MIB, 0), "SL_OK")
            wait_until(lambda: there() >= 308 * MIB, BOUND, "the rest is made")


@unittest.skipUnless(os.path.exists(PROBE), "contributions_probe was not built")
class GivenBack(unittest.TestCase):
    """Memory that is no longer contributed is returned to the system, under a client that has all of it mapped."""

    def node(self):
        return Node(ranks=1, memory="160MiB", settings=["--contributions", "true"])

    def blocks(self, node):
        return os.stat(f"{node.shm}/arena.0").st_blocks * 512

    def rounds(self, node, count):
        """Puts and withdraws, with the registrar killed after every fourth withdrawal. No read finds another value's bytes."""
        a, b = Probe(self, node), Probe(self, node)
        before = self.blocks(node)
        self.assertEqual(b.code("contribute", "small", 4 * MIB, 0), "SL_OK")
        self.assertEqual(b.code("put", "mapped", 1, MIB), "SL_OK")
        self.assertEqual(b.code("get", "mapped"), "SL_OK")
        self.assertEqual(b.code("withdraw", "small"), "SL_OK")
        most = 0
        for number in range(count):
            self.assertEqual(a.code("contribute", "host:1", 96 * MIB, 0), "SL_OK")
            for key in range(48):
                self.assertEqual(a.code("put", f"k{number}/{key}", 1000 * number + key, MIB, "host:1"), "SL_OK")
            for key in range(0, 48, 7):
                self.assertEqual(b.ask("get", f"k{number}/{key}")[:2], ["SL_OK", str(1000 * number + key)])
            most = max(most, self.blocks(node))
            old = node.pid("registrar")
            self.assertEqual(a.code("withdraw", "host:1"), "SL_OK")
            if number % 4 == 3:  # before, during and after
                time.sleep(number % 3 * 3.3)
                os.kill(old, signal.SIGKILL)
                node.wait_restarted("registrar", old, BOUND)
            for key in range(48):
                code, found, *_ = b.ask("get", f"k{number}/{key}")
                self.assertEqual(code, "SL_ERR_NOT_FOUND", found)
        self.assertGreater(most, before + 48 * MIB)
        wait_until(lambda: self.blocks(node) == before, 3 * BOUND, f"arena.0 takes {before} bytes again")
        self.assertEqual(a.code("contribute", "host:1", 32 * MIB, 0), "SL_OK")
        self.assertEqual(a.code("put", "again", 7, MIB), "SL_OK")
        self.assertEqual(b.ask("get", "again")[:2], ["SL_OK", "7"])

    def test_the_arena_takes_what_it_took_before_twenty_rounds(self):
        with self.node() as node:
            self.rounds(node, 20)

    def test_two_of_which_one_stays(self):
        with self.node() as node:
            a, b = Probe(self, node), Probe(self, node)
            self.assertEqual(a.code("contribute", "host:1", 16 * MIB, 0), "SL_OK")
            self.assertEqual(b.code("contribute", "host:2", 96 * MIB, 0), "SL_OK")
            for number in range(14):
                self.assertEqual(a.code("put", f"a{number}", number, MIB, "host:1"), "SL_OK")
            for number in range(60):
                self.assertEqual(b.code("put", f"b{number}", number, MIB, "host:2"), "SL_OK")
            self.assertGreater(self.blocks(node), 74 * MIB)
            self.assertEqual(b.code("withdraw", "host:2"), "SL_OK")
            wait_until(lambda: self.blocks(node) < 36 * MIB, 3 * BOUND, "unused memory is released")
            for number in range(14):
                self.assertEqual(b.ask("get", f"a{number}")[:2], ["SL_OK", str(number)])

    def test_what_the_system_has_given_to_others_is_refused(self):
        node = self.node()
        place = tempfile.mkdtemp(prefix="sl-full-")
        self.addCleanup(shutil.rmtree, place, True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m,mode=0700", "none", place], check=False).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        node.shm = place + "/node"
        node.where[-1] = node.shm
        with node:
            a, b = Probe(self, node), Probe(self, node)
            self.assertEqual(a.code("contribute", "host:1", 64 * MIB, 0), "SL_OK")
            for number in range(60):
                self.assertEqual(a.code("put", f"k{number}", number, MIB), "SL_OK")
            self.assertEqual(b.ask("get", "k3")[:2], ["SL_OK", "3"])
            self.assertEqual(a.code("withdraw", "host:1"), "SL_OK")
            wait_until(lambda: self.blocks(node) < MIB, 3 * BOUND, "the arena is empty")
            with open(place + "/others", "wb") as others:
                os.posix_fallocate(others.fileno(), 0, 88 * MIB)
            self.assertEqual(a.code("contribute", "host:1", 64 * MIB, 0), "SL_ERR_NO_SPACE")
            self.assertEqual(a.code("put", "k", 1, MIB), "SL_ERR_NO_SPACE")
            self.assertEqual(b.code("get", "k3"), "SL_ERR_NOT_FOUND")
            # The file system has space when it is contributed, and none when it is written.
            os.truncate(place + "/others", 20 * MIB)
            self.assertEqual(a.code("contribute", "host:1", 64 * MIB, 0), "SL_OK")
            with open(place + "/others", "ab") as others, contextlib.suppress(OSError):
                while True:
                    others.write(bytes(MIB))
                    others.flush()
            codes = [a.code("put", f"n{number}", number, MIB) for number in range(60)]
            self.assertLessEqual(set(codes), {"SL_OK", "SL_ERR_NO_SPACE"})
            for number, code in enumerate(codes):
                said = b.ask("get", f"n{number}")
                self.assertIn(said[0], ("SL_OK", "SL_ERR_NOT_FOUND"))
                self.assertTrue(said[0] != "SL_OK" or (code == "SL_OK" and said[1] == str(number)))
            os.remove(place + "/others")
            self.assertEqual(a.code("put", "last", 5, MIB), "SL_OK")
            self.assertEqual(b.ask("get", "last")[:2], ["SL_OK", "5"])
            self.assertEqual([a.process.poll(), b.process.poll()], [None, None])


class Without(unittest.TestCase):
    def test_other_nodes_have_none(self):
        with Node(ranks=1, memory="16MiB") as node:
            done = node.ctl("contributions", check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(b"takes no contributions", done.stderr)


if __name__ == "__main__":
    main()
