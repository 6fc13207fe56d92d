"""Hand-overs by the engine's own keys, without receipts or tickets: the nodes notify each other. One node and two."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from python_support import client, sluice  # noqa: E402
from cluster_support import PATIENCE, Cluster, counter, main, wait_alive, wait_until  # noqa: E402
from node_support import wait_pools  # noqa: E402

BLOCKS, PIECE = 64, 20000
MODES = (sluice.HANDOVER_BY_STORAGE, sluice.HANDOVER_DIRECT)


def number():
    return int.from_bytes(os.urandom(8), "little") | 1


class Side:
    """A client of a node, with an engine of one pool."""

    def __init__(self, test, node, name):
        self.client = client(node, settings={"op_timeout": f"{10 * PATIENCE}s"})
        test.addCleanup(self.client.close)
        pool = sluice.Pool("attention", sluice.POOL_ATTENTION, [sluice.Layer(0, BLOCKS * PIECE, PIECE, PIECE)])
        self.engine = self.client.engine(name, pools=[pool], block_tokens=4, block_count=BLOCKS, model={"name": "m"}, key_format="sluice")
        test.addCleanup(self.engine.end)
        self.memory = self.engine.memory()

    def block(self, at):
        return self.memory[at * PIECE:][:PIECE]

    def fill(self, blocks):
        for at in blocks:
            self.block(at)[:] = os.urandom(PIECE)


class Case(unittest.TestCase):
    """Two nodes."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(2, memory="64MiB", settings=["--handover-wait", f"{20 * PATIENCE}s", "--handover-partial-ttl", "2s"])
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.a, cls.b = cls.cluster.nodes
        wait_alive(cls.a, "b")
        wait_alive(cls.b, "a")

    def setUp(self):
        self.prefill, self.decode, self.beside = Side(self, self.a, "prefill"), Side(self, self.b, "decode"), Side(self, self.a, "beside")
        wait_pools(self.a, 2)
        wait_pools(self.b, 1)

    def keys(self, count):
        return [os.urandom(32) for _ in range(count)]

    def assert_same(self, blocks, side, others):
        for one, other in zip(blocks, others):
            self.assertEqual(bytes(self.prefill.block(one)), bytes(side.block(other)))

    def over(self):
        for node in (self.a, self.b):
            wait_until(lambda at=node: counter(at, "coordinator", "handovers_active") == 0, 30, f"no hand-over is left at {node.name}")
            wait_until(lambda at=node: counter(at, "registrar", "held_bytes") == 0, 30, f"nothing is held at {node.name}")

    def offered(self, receive, mode):
        """Prefill's node knows of decode, and of its ticket."""
        def there():
            try:
                return receive.ticket()
            except sluice.BusyError:
                return None

        if mode == sluice.HANDOVER_DIRECT:
            wait_until(there, 10, "a ticket")
        time.sleep(0.1)

    def pair(self, mode, decode, node, first, partial=False):
        keys, at = self.keys(3), number()
        self.prefill.fill([0, 1, 2])
        words = {"hashes": keys, "partial": partial, "mode": mode}
        if first:
            receive = decode.engine.receive(at, blocks=[5, 6, 7], node=node, **words)
            self.offered(receive, mode)
        send = self.prefill.engine.send(at, blocks=[0, 1, 2], **words)
        if not first:
            receive = decode.engine.receive(at, blocks=[5, 6, 7], node=node, **words)
        self.assertEqual(send.wait().block_count, 3)
        self.assertEqual(receive.wait().block_count, 3)
        self.assert_same([0, 1, 2], decode, [5, 6, 7])


class Words(Case):
    def test_both_modes_in_both_orders(self):
        for mode in MODES:
            for decode, node in ((self.decode, "a"), (self.beside, None), (self.beside, "a")):
                for first in (True, False):
                    with self.subTest(mode=mode, node=node, first=first):
                        self.pair(mode, decode, node, first)
        self.over()

    def test_what_decode_offered_is_pushed(self):
        for side, node in ((self.decode, "a"), (self.beside, None)):
            def is_pushed(side=side, node=node):  # the offer may reach prefill's node too late
                pushed = counter(self.a, "coordinator", "handovers_pushed")
                self.pair(sluice.HANDOVER_DIRECT, side, node, True)
                return counter(self.a, "coordinator", "handovers_pushed") == pushed + 1

            wait_until(is_pushed, 20, "what decode offered is pushed")
        self.over()

    def test_an_incomplete_last_block_is_transient(self):
        def there():
            return len(list(self.prefill.client.list(self.prefill.engine.model_identity + "/")))

        before = there()
        self.pair(sluice.HANDOVER_BY_STORAGE, self.beside, None, False, partial=True)
        wait_until(lambda: there() == before + 2, 10, "the incomplete block is removed, the others exist")
        time.sleep(1)
        self.assertEqual(there(), before + 2)
        self.assertRaises(sluice.InvalidError, self.prefill.engine.store, hashes=self.keys(1), blocks=[0], partial=True)

    def test_what_is_stored_already_is_held_and_what_decode_has_is_skipped(self):
        keys, at = self.keys(4), number()
        self.prefill.fill(range(4))
        self.assertEqual(self.prefill.engine.store(hashes=keys[:3], blocks=[0, 1, 2]).wait().stored_count, 3)
        receive = self.decode.engine.receive(at, hashes=keys[2:], blocks=[6, 7], first_block=2, node="a", mode=1)
        sent = self.prefill.engine.send(at, hashes=keys, blocks=[0, 1, 2, 3], mode=1).wait()
        self.assertEqual((sent.block_count, sent.existed_count, sent.stored_count), (4, 3, 1))
        self.assertEqual(receive.wait().block_count, 2)
        self.assert_same([2, 3], self.decode, [6, 7])
        self.over()

    def test_other_keys_fail_by_name(self):
        for mode in MODES:
            at = number()
            receive = self.decode.engine.receive(at, hashes=self.keys(2), blocks=[6, 7], node="a", mode=mode)
            time.sleep(0.1)
            send = self.prefill.engine.send(at, hashes=self.keys(2), blocks=[0, 1], mode=mode)
            with self.assertRaises(sluice.SluiceError) as caught:
                send.wait()
                receive.wait()
            self.assertIn("keys", str(caught.exception))
        self.over()

    def test_prefill_that_fails_is_told(self):
        began = time.monotonic()
        at = number()
        receive = self.decode.engine.receive(at, hashes=self.keys(2), blocks=[6, 7], node="a", mode=1)
        self.a.signal("swapper.0", signal.SIGSTOP)
        send = self.prefill.engine.send(at, hashes=self.keys(2), blocks=[0, 1], mode=1, timeout=1.0)
        self.assertRaises(sluice.SluiceError, send.wait)
        self.assertRaises(sluice.HandoverError, receive.wait)
        self.assertLess(time.monotonic() - began, 8 * PATIENCE)

    def test_a_node_that_is_no_peer_and_a_prefill_that_never_comes(self):
        for node in ("nobody", "a"):
            began = time.monotonic()
            receive = self.decode.engine.receive(number(), hashes=self.keys(1), blocks=[6], node=node, mode=1, timeout=1.0)
            with self.assertRaises(sluice.HandoverError):
                receive.wait()
            receive.wait_fenced()
            self.assertLess(time.monotonic() - began, 5 * PATIENCE)
        self.assertRaises(sluice.InvalidError, self.decode.engine.receive, number(), hashes=self.keys(1), blocks=[6], node="x" * 40, mode=1)


class Killed(Case):
    """In a class of its own: leftovers of hand-overs whose actors were killed end at their deadline, for which no test waits here."""

    def killed(self, node, actor, mode):
        """SIGKILL in the middle of many hand-overs: each is whole or fails by its deadline, and afterwards all are whole."""
        ops, failed = [], 0
        self.prefill.fill(range(8))
        pid = node.pid(actor)
        for i in range(24):
            keys, at, block = self.keys(2), number(), i % 8
            receive = self.decode.engine.receive(at, hashes=keys, blocks=[2 * i, 2 * i + 1], node="a", mode=mode, timeout=6.0 * PATIENCE)
            ops.append((receive, self.prefill.engine.send(at, hashes=keys, blocks=[block, (block + 1) % 8], mode=mode,
                                                          timeout=6.0 * PATIENCE), i))
            if i == 8:
                os.kill(pid, signal.SIGKILL)
        for _, send, _ in ops:  # a client that waits for an op also processes its other ops: both sides have a client of their own
            try:
                send.wait()
            except sluice.SluiceError:
                pass
        for receive, _, i in ops:
            try:
                receive.wait()
            except sluice.HandoverError:
                failed += 1
            else:
                self.assert_same([i % 8, (i + 1) % 8], self.decode, [2 * i, 2 * i + 1])
            receive.wait_fenced()
        wait_alive(self.a, "b")
        wait_alive(self.b, "a")
        wait_until(lambda: self.whole(mode), 20, "hand-overs are whole again")
        return failed

    def whole(self, mode):
        try:
            self.pair(mode, self.decode, "a", True)
        except sluice.SluiceError:
            return False
        return True

    def test_killed_actors_cost_no_more_than_their_hand_overs(self):
        for mode in MODES:
            for node in (self.a, self.b):
                for actor in ("coordinator", "transporter.0", "swapper.0", "registrar"):
                    with self.subTest(mode=mode, node=node.name, actor=actor):
                        began = time.monotonic()
                        failed = self.killed(node, actor, mode)
                        self.assertLess(time.monotonic() - began, 40 * PATIENCE)
                        print(f"mode {mode}, {actor} of {node.name} killed: {failed} of 24 failed, "
                              f"{time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
