"""clients_write: users other than the node's put, pin and get by stand-ins that copy."""

import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from containers_support import LIVES, Asked, Inside, apart_as, can_be_apart, child_of, gate_pid, seen_there, shared, signal_all, standing_still, standins
from node_support import BIN, CTL, NODE, PACE, PATIENCE, Node, lives, main, wait_until

WRITER, READER = 61002, 61003
NODE_USER = 61010
LIAR = os.path.join(os.path.dirname(os.path.realpath(__file__)), "containers_writer.py")


def others_can_run():
    """Whether other users reach the programs and this folder."""
    return os.geteuid() == 0 and can_be_apart() and subprocess.run(
        ["setpriv", f"--reuid={WRITER}", "--clear-groups", "sh", "-c", f"test -x {CTL} && test -x {sys.executable} && test -r {LIAR}"], check=False).returncode == 0


def guests(node):
    return shared(node) + "/guests"


def ctl_as(uid, node, *words, stdin=None):
    there = seen_there(node)
    return subprocess.run([*apart_as(uid, guests(node)), CTL, *words, "--instance", there.instance, "--runtime-dir", there.directory + "/run"],
                          input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)


class Guest(Inside):
    """lives_probe as another user."""

    def __init__(self, test, node, threads):
        super().__init__(test, node, LIVES, str(threads), words=apart_as(WRITER, guests(node)))

    def kill_inside(self):
        os.kill(child_of(self.process.pid), signal.SIGKILL)
        self.process.wait()


class Told(Inside):
    """guest_probe as another user."""

    def __init__(self, test, node):
        super().__init__(test, node, os.path.join(BIN, "..", "tests", "guest_probe"), words=apart_as(WRITER, guests(node)))

    def fill_pins(self):
        """Until nothing more may be pinned: 2 values of 512 KiB of 1 MiB."""
        return [self.code("pin", f"pinned-{number}") for number in range(3)]


@unittest.skipUnless(others_can_run(), "not root, no namespaces, or other users do not reach the programs")
class OneUsersProcess(unittest.TestCase):
    """One node: 1 MiB may be pinned, and the values "cold-N" of 512 KiB are on disk alone."""

    @classmethod
    def setUpClass(cls):
        cls.node = Node(ranks=1, memory="32MiB", disk="512MiB",
                        settings=("--clients-write", str(WRITER), "--clients-pin-bytes-max", "1MiB", "--op-timeout", "500ms", "--reservation-ttl", "60s"))
        cls.addClassCleanup(cls.node.__exit__)
        cls.node.__enter__()
        wait_until(lambda: os.path.exists(guests(cls.node) + "/gate.attach"), 5, "the gate for guests")

    def probe(self, cold):
        """After it put cold values, which then left memory, and those to be pinned."""
        probe = Told(self, self.node)
        codes = [probe.code("put", f"cold-{number}", 512) for number in range(cold)]
        for number in range(10):
            self.node.ctl("put", f"{self.id()}-{number}", "--op-timeout", "60s", stdin=b"other!!!" * (1 << 19))
        codes += [probe.code("put", f"pinned-{number}", 512) for number in range(3)]
        self.assertEqual(set(codes), {"SL_OK"})
        return probe

    def test_a_get_beyond_its_pins_copies(self):
        probe = self.probe(cold=3)
        self.assertEqual(probe.fill_pins(), ["SL_OK", "SL_OK", "SL_ERR_LIMIT"])

        got = [probe.ask("get", f"cold-{number}", 512) for number in range(3)]

        self.assertEqual(got, [["SL_OK", "whole"]] * 3)
        self.assertEqual((probe.code("release"), probe.code("pin", "cold-0")), ("released", "SL_OK"))

    def test_answers_that_come_late_hold_nothing(self):
        wait_until(lambda: standins(self.node) == [], 5, "clients of other tests are gone")
        probe = self.probe(cold=0)
        with standing_still(self.node, *standins(self.node)):
            probe.ask("within", 100)
            late = [probe.code("pin", f"pinned-{number}") for number in range(2)]
        probe.ask("within", 10000)

        self.assertEqual(late, ["SL_ERR_TIMEOUT"] * 2)
        for key in ("pinned-0", "pinned-1"):
            wait_until(lambda key=key: probe.code("pin", key) == "SL_OK", 5, "pins of late answers are given back")
        self.assertEqual(probe.code("pin", "pinned-2"), "SL_ERR_LIMIT")

    def test_a_put_waits_as_long_as_its_caller(self):
        """And not as long as the node's op_timeout."""
        self.node.ctl("rm", "drafted", check=False)
        owner = Asked(self, self.node, (LIVES,), ("0",))
        probe = Told(self, self.node)
        self.assertEqual((owner.code("draft"), owner.code("write")), ("SL_OK", "SL_OK"))

        probe.tell("put", "drafted", 4)
        time.sleep(1)
        committed = owner.code("commit")

        self.assertEqual((committed, probe.hear()), ("SL_OK", ["SL_OK"]))

    def test_puts_that_wait_keep_nobody_from_pinning(self):
        self.node.ctl("rm", "drafted", check=False)
        owner = Asked(self, self.node, (LIVES,), ("0",))
        probe = self.probe(cold=0)
        self.assertEqual((owner.code("draft"), owner.code("write")), ("SL_OK", "SL_OK"))

        probe.ask("puts", "drafted")
        time.sleep(0.2)  # all of them wait
        pinned = probe.code("pin", "pinned-0")
        committed = owner.code("commit")

        self.assertEqual((pinned, committed, probe.ask("join")), ("SL_OK", "SL_OK", ["SL_OK"] * 4))

    def test_a_fork_neither_writes_nor_releases(self):
        probe = self.probe(cold=1)
        probe.fill_pins()

        codes = probe.ask("fork", "cold-0")

        self.assertEqual(codes, ["SL_ERR_INVALID"] * 3)
        self.assertEqual(probe.code("pin", "pinned-2"), "SL_ERR_LIMIT")
        self.assertEqual(probe.ask("get", "cold-0", 512), ["SL_OK", "whole"])

    def test_a_fork_keeps_no_process_of_the_node(self):
        wait_until(lambda: standins(self.node) == [], 5, "clients of other tests are gone")
        probe = Told(self, self.node)
        self.assertEqual((probe.code("put", "left", 4), len(standins(self.node))), ("SL_OK", 2))

        left = probe.code("leave")

        self.assertEqual(left, "left")
        wait_until(lambda: standins(self.node) == [], 5, "a client that is closed has no process any more")
        self.assertIsNone(probe.process.poll())


@unittest.skipUnless(others_can_run(), "not root, no namespaces, or other users do not reach the programs")
class OtherUsersWrite(unittest.TestCase):
    def node(self, **settings):
        settings.setdefault("settings", ("--clients-write", str(WRITER), "--clients-allow", str(READER)))
        node = Node(ranks=1, **settings)
        self.addCleanup(node.__exit__)
        node.__enter__()
        wait_until(lambda: os.path.exists(guests(node) + "/gate.attach"), 5, "the gate for guests")
        return node

    def liar(self, node, *words):
        liar = subprocess.Popen([*apart_as(WRITER, guests(node)), sys.executable, LIAR, *words, seen_there(node).directory + "/run/gate.attach"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: liar.poll() is None and liar.kill())
        return liar

    def pins(self, node):
        """Of clients of other users."""
        return [name for name in os.listdir(node.shm) if name.startswith("pins.guest.")]

    def evict_all(self, node, turn):
        """More than a node of 16 MiB holds is put."""
        for number in range(10):
            node.ctl("put", f"other-{turn}-{number}", stdin=b"other!!!" * (1 << 18))

    def test_what_another_user_may(self):
        node = self.node(disk="512MiB", memory="128MiB")
        large = os.urandom(1 << 20) * 20 + b"the end"  # more than the window
        node.ctl("put", "from-here", stdin=b"one")

        put = ctl_as(WRITER, node, "put", "from-there", stdin=b"two")
        put_large = ctl_as(WRITER, node, "put", "large", stdin=large)
        got = ctl_as(WRITER, node, "get", "from-here")

        self.assertEqual((put.returncode, put_large.returncode, got.stdout), (0, 0, b"one"), put.stderr + put_large.stderr + got.stderr)
        self.assertEqual((node.ctl("get", "from-there").stdout, ctl_as(READER, node, "get", "from-there").stdout), (b"two", b"two"))
        self.assertTrue(node.ctl("get", "large").stdout == large)
        for number in range(8):  # on disk alone, afterwards
            node.ctl("put", f"more-{number}", stdin=large)
        self.assertTrue(ctl_as(WRITER, node, "get", "large").stdout == large)
        removed = ctl_as(WRITER, node, "rm", "from-here")
        self.assertTrue(removed.returncode != 0 and b"the node is another user's" in removed.stderr, removed.stderr)
        reads = ctl_as(READER, node, "put", "other", stdin=b"value")
        self.assertIn(b"the node is another user's, and its clients_write", reads.stderr)
        self.assertEqual(node.ctl("get", "from-here").stdout, b"one")
        wait_until(lambda: standins(node) == [], 5, "clients that are gone have no process any more")

    def test_who_lies_harms_nobody(self):
        node = self.node(settings=("--clients-write", str(WRITER), "--clients-allow", str(READER), "--clients-of-user", "3"))

        lied, errors = self.liar(node, "lie").communicate(timeout=60 * PATIENCE)
        self.assertEqual((lied, node.ctl("get", "lie").stdout), (b"done\n", b"value"), errors)

        half = self.liar(node, "half")
        self.assertEqual(half.stdout.readline(), b"half 0 0 0\n")
        self.assertNotEqual(node.ctl("get", "half", check=False).returncode, 0)
        os.kill(child_of(half.pid), signal.SIGKILL)
        self.assertEqual(ctl_as(WRITER, node, "put", "half", stdin=b"whole").returncode, 0)
        self.assertEqual(node.ctl("get", "half").stdout, b"whole")

        many = self.liar(node, "many", "10")
        self.assertEqual(many.stdout.readline(), b"let in 3 of 10\n")
        self.assertIn(b"too many clients of other users", ctl_as(WRITER, node, "get", "lie").stderr)
        self.assertEqual(ctl_as(READER, node, "get", "lie").stdout, b"value")
        os.kill(child_of(many.pid), signal.SIGKILL)
        wait_until(lambda: standins(node) == [], 5, "they are gone")

    def test_what_one_user_may_hold(self):
        node = self.node(memory="64MiB", settings=("--clients-write", str(WRITER), "--clients-pin-bytes-max", "2560KiB"))

        hoarded, errors = self.liar(node, "hoard").communicate(timeout=60 * PATIENCE)

        self.assertEqual((hoarded, node.ctl("get", "six").stdout), (b"done\n", b"\0" * 5), errors)

    def test_a_put_that_waits_for_room_waits_no_longer_than_its_caller(self):
        """In the registrar it waits behind all who are not guests, and holds up none of them."""
        node = self.node(memory="16MiB")
        self.assertEqual(self.liar(node, "full").stdout.readline(), b"full 0 0\n")

        def waiting(count):
            lines = node.ctl("metrics").stdout.decode().splitlines()
            return [line.split()[1] for line in lines if line.startswith("sluice_reserve_waiting")] == [str(count)]

        probe = Told(self, node)
        probe.ask("within", 5000 * PACE)
        probe.tell("put", "late", 1024)
        wait_until(lambda: waiting(1), 5, "it waits for room")
        self.assertIn(probe.hear(), (["SL_ERR_NO_SPACE"], ["SL_ERR_TIMEOUT"]))  # the answer leaves 50 ms before the deadline
        wait_until(lambda: waiting(0), 2, "nobody waits")

        probe.ask("within", 50000)
        probe.tell("put", "never", 1024)
        wait_until(lambda: waiting(1), 5, "it waits for room")
        node.ctl("put", "of-the-owner", stdin=b"it fits")  # behind one that does not
        self.assertTrue(waiting(1))
        os.kill(child_of(probe.process.pid), signal.SIGKILL)
        wait_until(lambda: waiting(0), 2, "nobody waits")

    def test_every_process_is_killed(self):
        """1, 2, 4 and 8 threads on one handle, and several processes at once."""
        node = self.node()
        probes = [Guest(self, node, threads) for threads in (1, 2, 4, 8)]
        for probe in probes:
            probe.wait_ok(100)

        for actor in ("registrar", "keyer", "coordinator", "gate", "stand-ins"):
            if actor == "stand-ins":
                signal_all(signal.SIGKILL, standins(node))
            elif actor == "gate":
                os.kill(gate_pid(node), signal.SIGKILL)
            else:
                old = node.live_pid(actor)
                os.kill(old, signal.SIGKILL)
                node.wait_restarted(actor, old)
            for probe in probes:
                probe.wait_ok(50)
        probes.pop().kill_inside()

        for probe in probes:
            probe.ask("rest")
            counts = probe.counts()
            self.assertEqual(counts["wrong"], 0, counts)
            self.assertGreater(counts["read"], 50, counts)
            probe.end()
            self.assertEqual(probe.process.returncode, 0)
        wait_until(lambda: not any(lives(pid) for pid in standins(node)), 5, "nothing is left of them")
        wait_until(lambda: self.pins(node) == [], 5, "no pins are left")

    def test_a_view_keeps_its_bytes(self):
        node = self.node(memory="16MiB")
        probe = Guest(self, node, 0)
        self.assertEqual(probe.code("pin"), "SL_OK")

        for turn in range(2):
            self.evict_all(node, turn)
            self.assertEqual(probe.code("check"), "whole")
            old = node.live_pid("registrar")
            os.kill(old, signal.SIGKILL)
            node.wait_restarted("registrar", old)

        self.assertEqual((probe.code("release"), probe.code("pin"), probe.code("check")), ("released", "SL_OK", "whole"))

    def test_views_keep_their_bytes_without_the_processes_that_pinned_them(self):
        node = self.node(memory="16MiB")
        probe = Told(self, node)

        for turn in range(2):
            self.assertEqual((probe.code("put", f"value-{turn}", 512), probe.code("pin", f"value-{turn}")), ("SL_OK", "SL_OK"))
            killed = standins(node)
            signal_all(signal.SIGKILL, killed)
            wait_until(lambda killed=killed: not any(lives(pid) for pid in killed), 5, "they are gone")
            if turn == 1:
                old = node.live_pid("registrar")
                os.kill(old, signal.SIGKILL)
                node.wait_restarted("registrar", old)
            self.evict_all(node, turn)
            self.assertEqual(probe.ask("look"), ["whole"] * (turn + 1))

        self.assertEqual((probe.code("put", "value", 512), probe.code("pin", "value"), len(self.pins(node))), ("SL_OK", "SL_OK", 3))
        self.evict_all(node, "last")
        self.assertEqual((probe.ask("look"), probe.code("release")), (["whole"] * 3, "released"))
        wait_until(lambda: len(self.pins(node)) == 1, 5, "what the dead ones held is given back")

    def test_a_writing_process_stands_still(self):
        """Its client hears so by its deadline, and nothing is kept for ever."""
        node = self.node(memory="16MiB")
        probe = Told(self, node)
        self.assertEqual((probe.code("put", "value", 512), probe.code("pin", "value")), ("SL_OK", "SL_OK"))
        writer = int(self.pins(node)[0].split(".")[3])

        with standing_still(node, writer):
            probe.ask("within", 300)
            codes = [probe.code("put", "late", 512), probe.code("put", "later", 512), probe.code("pin", "value")]
        probe.ask("within", 10000)
        self.assertEqual(codes, ["SL_ERR_TIMEOUT"] * 3)
        for key in ("late", "later", "latest"):
            self.assertEqual((probe.code("put", key, 512), probe.ask("get", key, 512)), ("SL_OK", ["SL_OK", "whole"]))
        self.assertEqual((probe.ask("look"), lives(writer)), (["whole"], True))

        os.kill(writer, signal.SIGSTOP)
        wait_until(lambda: not lives(writer), 5, "who stands still is ended")
        self.evict_all(node, "other")
        self.assertEqual((probe.code("put", "again", 512), probe.ask("look")), ("SL_OK", ["whole"]))

        signal_all(signal.SIGSTOP, standins(node))
        os.kill(child_of(probe.process.pid), signal.SIGKILL)
        wait_until(lambda: standins(node) == [] and self.pins(node) == [], 5, "nothing of it is left")

    def test_who_closes_its_connection_keeps_no_pins(self):
        """Whatever it holds on to."""
        node = self.node(memory="16MiB")
        node.ctl("put", "value", stdin=b"x")
        owner = Asked(self, node, (LIVES,), ("0",))
        self.assertEqual((owner.code("draft"), owner.code("write")), ("SL_OK", "SL_OK"))

        liar = self.liar(node, "cling", f"pins.guest.{READER}.1.00000")
        self.assertEqual(liar.stdout.readline(), b"clings\n")

        wait_until(lambda: self.pins(node) == [] and len(standins(node)) == 1, 5, "no pins are left, and the one process by which it reads")
        self.assertIsNone(liar.poll())

    def test_an_engine_that_runs_as_root(self):
        """As images of engines do, at a node that does not."""
        node = Node(ranks=1, settings=("--clients-write", "0"))
        os.chmod(node.directory, 0o755)
        shutil.chown(node.directory, NODE_USER)
        for name, program in (("script", NODE), ("ctl_program", CTL)):
            path = f"{node.directory}/{name}"
            with open(path, "w", encoding="utf-8") as script:
                script.write(f'#!/bin/sh\nexec setpriv --reuid={NODE_USER} --regid={NODE_USER} --clear-groups "{program}" "$@"\n')
            os.chmod(path, 0o755)
            setattr(node, name, path)
        self.addCleanup(node.__exit__)
        node.__enter__()
        wait_until(lambda: os.path.exists(guests(node) + "/gate.attach"), 5, "the gate for guests")

        put = ctl_as(0, node, "put", "key", stdin=b"value")

        self.assertEqual((put.returncode, put.stderr), (0, b""))
        self.assertEqual((node.ctl("get", "key").stdout, ctl_as(0, node, "get", "key").stdout), (b"value", b"value"))
        self.assertIn(f"nothing of uid {WRITER}".encode(), ctl_as(WRITER, node, "put", "other", stdin=b"x").stderr)


if __name__ == "__main__":
    main()
