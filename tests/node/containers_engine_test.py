"""clients_write: engines of users other than the node's register memory, store and load by stand-ins that relay."""

import os
import signal
import subprocess
import unittest

from containers_support import Inside, apart_as, child_of, gate_pid, seen_there, signal_all, standing_still, standins
from containers_write_test import READER, WRITER, guests, others_can_run
from node_support import BIN, PATIENCE, Node, lives, log_of, main, wait_until

PROBE = os.path.join(BIN, "..", "tests", "relay_probe")
PARTS = os.path.join(BIN, "..", "tests", "parts_probe")
LIAR = os.path.join(BIN, "..", "tests", "relay_liar")


class Engine(Inside):
    """relay_probe as another user."""

    def __init__(self, test, node, threads, uid=WRITER):
        super().__init__(test, node, PROBE, str(threads), words=apart_as(uid, guests(node)))

    def ready(self, kind="made"):
        code, *text = self.ask("register", kind)
        if code != "SL_OK":
            raise AssertionError(f"register: {code} {' '.join(text)}")
        return self

    def kill_inside(self):
        os.kill(child_of(self.process.pid), signal.SIGKILL)
        self.process.wait()


@unittest.skipUnless(others_can_run(), "not root, no namespaces, or other users do not reach the programs")
class OtherUsersEngines(unittest.TestCase):
    def node(self, *more, **settings):
        node = Node(ranks=settings.pop("ranks", 1), settings=("--clients-write", str(WRITER), "--clients-allow", str(READER), *more), **settings)
        self.addCleanup(node.__exit__)
        node.__enter__()
        wait_until(lambda: os.path.exists(guests(node) + "/gate.attach"), 5, "the gate for guests")
        return node

    def test_what_another_users_engine_may(self):
        node = self.node("--clients-pool-bytes-max", "2MiB", memory="64MiB", disk="64MiB")
        engine = Engine(self, node, 1).ready()
        self.assertEqual(engine.code("start"), "started")
        engine.wait_ok(20)
        engine.ask("rest")
        counts = engine.counts()
        self.assertEqual((counts["wrong"], counts["late"], counts["unfenced"]), (0, 0, 0), counts)
        self.assertEqual({name for name in counts if name.startswith("SL_")}, {"SL_OK"}, counts)
        self.assertGreater(counts["loaded"], 10, counts)
        self.assertEqual((engine.ask("layers"), engine.ask("pause")), (["SL_OK", "SL_OK", "whole"], ["SL_OK"]))

        for what, code, text in (("remove", "SL_ERR_PERMISSION", "another user's"), ("pool", "SL_ERR_PERMISSION", "another user's"),
                                 ("handover", "SL_ERR_UNSUPPORTED", "hand-overs are not for a client of another user")):
            heard = engine.ask("refused", what)
            self.assertTrue(heard[0] == code and text in " ".join(heard), (what, heard))
        for kind, code, text in (("fd", "SL_OK", ""), ("alloc", "SL_OK", ""), ("made", "SL_OK", ""), ("plain", "SL_ERR_UNSUPPORTED", "sl_memory_alloc"),
                                 ("sealed", "SL_ERR_UNSUPPORTED", "cut short"), ("made", "SL_OK", "")):
            heard = engine.ask("life", kind)
            self.assertTrue(heard[0] == code and text in " ".join(heard), (kind, heard))
        heard = [engine.ask("other") for _ in range(4)]  # 512 KiB each
        self.assertEqual([words[0] for words in heard], ["SL_OK"] * 3 + ["SL_ERR_LIMIT"], heard)
        self.assertIn("clients_pool_bytes_max", " ".join(heard[3]))
        engine.end()
        self.assertEqual(engine.process.returncode, 0)
        wait_until(lambda: standins(node) == [], 5, "clients that are gone have no process any more")

    def test_every_process_is_killed(self):
        """1, 2, 4 and 8 threads on one engine, and several processes at once."""
        node = self.node(memory="64MiB")
        engines = [Engine(self, node, threads).ready() for threads in (1, 2, 4, 8)]
        for engine in engines:
            engine.ask("start")
            engine.wait_ok(50)

        for actor in ("registrar", "swapper.0", "coordinator", "gate", "stand-ins"):
            if actor == "stand-ins":
                signal_all(signal.SIGKILL, standins(node))
            elif actor == "gate":
                os.kill(gate_pid(node), signal.SIGKILL)
            else:
                old = node.live_pid(actor)
                os.kill(old, signal.SIGKILL)
                node.wait_restarted(actor, old)
            for engine in engines:
                engine.wait_ok(50)
        engines.pop().kill_inside()

        for engine in engines:
            engine.wait_ok(20)
            engine.ask("rest")
            counts = engine.counts()
            self.assertEqual((counts["wrong"], counts["late"], counts["unfenced"]), (0, 0, 0), counts)
            self.assertGreater(counts["loaded"], 50, counts)
            engine.end()
            self.assertEqual(engine.process.returncode, 0)
        wait_until(lambda: not any(lives(pid) for pid in standins(node)), 5, "nothing is left of them")
        wait_until(lambda: not any(name.startswith(("pins.client", "pins.guest")) for name in os.listdir(node.shm)), 5, "no pins are left")

    def test_a_stand_in_that_is_stopped_costs_its_ops_their_deadline(self):
        node = self.node()
        engine = Engine(self, node, 4).ready()
        engine.ask("start")
        engine.wait_ok(20)

        with standing_still(node, *standins(node)):
            wait_until(lambda: engine.counts().get("SL_ERR_TIMEOUT", 0) >= 4, 10, "ops end by their deadline")

        engine.wait_ok(20)
        engine.ask("rest")
        counts = engine.counts()
        self.assertEqual((counts["wrong"], counts["late"], counts["unfenced"]), (0, 0, 0), counts)

    def test_ranks_that_are_processes(self):
        """Engines of 1, 2, 4 and 8 of them share what they store."""
        node = self.node(ranks=8, memory="256MiB")
        there = seen_there(node)

        done = subprocess.run([*apart_as(WRITER, guests(node)), PARTS, there.instance, there.directory + "/run", there.shm, "team"],
                              stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)

        self.assertEqual((done.returncode, done.stderr), (0, b""))
        wait_until(lambda: standins(node) == [], 5, "clients that are gone have no process any more")

    def test_who_lies_harms_nobody(self):
        node = self.node("--clients-pool-bytes-max", "1MiB")
        honest = Engine(self, node, 1).ready()
        honest.ask("start")
        honest.wait_ok(10)

        liar = subprocess.run([*apart_as(WRITER, guests(node)), LIAR, seen_there(node).directory + "/run"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * PATIENCE, check=False)

        self.assertEqual(liar.stdout, b"done\n", liar.stderr.decode())
        self.assertIn("memory of an engine came without its descriptor: the client sent none", log_of(node, "clients"))
        honest.wait_ok(10)
        honest.ask("rest")
        counts = honest.counts()
        self.assertEqual((counts["wrong"], counts["late"], counts["unfenced"]), (0, 0, 0), counts)
        self.assertEqual({name for name in counts if name.startswith("SL_")}, {"SL_OK"}, counts)


if __name__ == "__main__":
    main()
