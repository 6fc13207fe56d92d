"""Hand-overs of vLLM's connector on real nodes, without vLLM: two engines as in vllm_native_node_test.py, on one node and on two."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from vllm_native_node_test import BLOCKS, STATES, Played
from node_support import CTL
from node_support import Node as RealNode
from node_support import PATIENCE, main, wait_until
from ports import free_port
from vllm_native_test import hashable

import sluice

ASKED = {"do_remote_decode": True}
MODES = {"storage": sluice.HANDOVER_BY_STORAGE, "direct": sluice.HANDOVER_DIRECT}
ACTORS = ("registrar", "coordinator", "swapper.0", "swapper.1", "transporter.0")
HANDED_SECONDS = 20 * PATIENCE
DEADLINE_SECONDS = 4.0  # limit of decode's receives when a process is killed


def prompt(name, tokens, params=None):
    one = hashable(name, tokens)
    one.block_hashes = [f"{name} {i}".encode().ljust(32, b".") for i in range(tokens // STATES)]
    one.num_prompt_tokens, one.kv_transfer_params = tokens, params
    one.all_token_ids = list(range(tokens))
    return one


class Side(Played):
    """An engine that prefills or decodes."""

    def __init__(self, real, name, ranks=1, order="HN", mode="storage"):
        super().__init__(real, f"{name}, 16 bytes at least", ranks, order)
        self.scheduler.handovers.mode = MODES[mode]
        self.scheduler.settings.handover_timeout = HANDED_SECONDS
        self.scheduler.settings.save = False  # nothing but hand-overs brings blocks
        self.finished, self.failed = set(), set()  # only hand-overs move blocks

    def take(self, tokens):
        if self.next + tokens // STATES + 1 >= BLOCKS:
            self.next = 1
        return self.blocks(-(-tokens // STATES))

    def keys(self, one):
        return [*one.block_hashes, f"{one.request_id} tail"]

    def prefill(self, one):
        """Computes the prompt, and returns the transfer parameters for decode."""
        blocks = self.take(one.num_tokens)
        for block, key in zip(blocks, self.keys(one)):
            for rank in self.ranks:
                rank.fill(block, key)
        self.scheduler.match(one, 0)
        self.scheduler.step_begin({one.request_id: one.num_tokens}, lambda _: [blocks])
        given = self.scheduler.handovers.send(one, [blocks])
        self.scheduler.step_end()
        self.scheduler.request_end(one.request_id)
        return given

    def decode(self, one):
        """Starts to receive; returns the request's blocks."""
        tokens, later = self.scheduler.match(one, 0)
        blocks = self.take(one.num_tokens - 1)
        self.scheduler.allocated(one, [blocks], tokens)
        self.turn()
        return blocks if tokens and later else None

    def turn(self):
        """A step without work."""
        step = self.scheduler.step_begin({}, None)
        if step.register:
            for rank in self.registered:
                rank.nudge()
        self.finished |= self.scheduler.take_finished()
        self.failed |= step.failed
        self.scheduler.step_end()

    def wait(self, one, *others, seconds=HANDED_SECONDS):
        """Whether the request's blocks have arrived. others: sides that would really be in other processes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for side in (*others, self):
                side.turn()
            if one.request_id in self.finished | self.failed:
                return one.request_id in self.finished
        raise AssertionError(f"{one.request_id} has not ended in {seconds} s")

    def idle(self, seconds=HANDED_SECONDS):
        end = time.monotonic() + seconds
        while self.scheduler.busy and time.monotonic() < end:
            self.turn()
        return not self.scheduler.pool.held

    def wrong(self, one, blocks):
        return [cell for block, key in zip(blocks, self.keys(one)) for rank in self.ranks for cell in rank.wrong(block, key)]


class Sides(unittest.TestCase):
    def side(self, *how, **more):
        one = Side(*how, **more)
        self.addCleanup(one.close)
        return one

    def hand(self, prefill, decode, name, tokens=5 * STATES + 7, both=False):
        """One request, first prefill, then decode; or decode waits for prefill."""
        number = f"{hash(name) & 0xffffffffffff | 1:x}"
        computed = prompt(name, tokens, {**ASKED, "sluice_handover": number} if both else ASKED)
        given = {"do_remote_prefill": True, "sluice_handover": number, "sluice_node": prefill.node.name()}
        given = given if both else prefill.prefill(computed)
        self.assertIsNotNone(given)
        decoded = prompt(name, tokens, given)
        blocks = decode.decode(decoded)
        self.assertIsNotNone(blocks)
        if both:
            self.assertIsNotNone(prefill.prefill(computed))
        self.assertTrue(decode.wait(decoded, prefill), "the hand-over failed")
        self.assertEqual(decode.wrong(decoded, blocks), [])
        decode.scheduler.request_end(name)
        self.assertTrue(decode.idle())
        self.assertTrue(prefill.idle())


class OneNode(Sides):
    def test_one_node(self):
        with RealNode(ranks=2, memory="64MiB") as real:
            for mode in MODES:
                for ranks in ((1, 1), (2, 1), (1, 2)):
                    prefill = self.side(real, f"prefill {mode} {ranks}", ranks[0], mode=mode)
                    decode = self.side(real, f"decode {mode} {ranks}", ranks[1], order="NH", mode=mode)
                    for both in (False, True):
                        for tokens in (2, STATES, STATES + 1, 5 * STATES + 7, 6 * STATES):
                            with self.subTest(mode=mode, ranks=ranks, both=both, tokens=tokens):
                                self.hand(prefill, decode, f"{mode} {ranks} {both} {tokens}", tokens, both)
                    for one in (prefill, decode):
                        one.close()

    def test_behind_what_decode_has(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            prefill, decode = self.side(real, "prefill"), self.side(real, "decode")
            one = prompt("a", 5 * STATES + 7, prefill.prefill(prompt("a", 5 * STATES + 7, ASKED)))
            tokens, _ = decode.scheduler.match(one, 2 * STATES)
            self.assertEqual(tokens, 3 * STATES + 6)
            blocks = decode.take(one.num_tokens - 1)
            decode.scheduler.allocated(one, [blocks], tokens)
            self.assertTrue(decode.wait(one, prefill))
            for block, key in list(zip(blocks, decode.keys(one)))[2:]:
                self.assertEqual(decode.ranks[0].wrong(block, key), [])

    def test_an_incomplete_block_is_there_as_long_as_the_hand_over(self):
        with RealNode(ranks=1, memory="64MiB", settings=["--handover-partial-ttl", "200ms"]) as real:
            prefill, decode = self.side(real, "prefill"), self.side(real, "decode")
            given = prefill.prefill(prompt("a", 100, ASKED))
            self.assertTrue(prefill.idle())
            time.sleep(1.0)
            one = prompt("a", 100, given)
            blocks = decode.decode(one)
            self.assertTrue(decode.wait(one))
            self.assertEqual(decode.wrong(one, blocks), [])

    def test_prefill_that_never_comes_costs_the_deadline(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            decode = self.side(real, "decode")
            decode.scheduler.settings.handover_timeout = 0.5
            one = prompt("a", 100, {"do_remote_prefill": True, "sluice_handover": "77"})
            began = time.monotonic()
            self.assertIsNotNone(decode.decode(one))
            self.assertFalse(decode.wait(one))
            self.assertLess(time.monotonic() - began, 0.5 + 2 * PATIENCE)
            self.assertTrue(decode.idle())
            self.assertEqual(decode.scheduler.match(one, 0), (0, False))  # it is computed

    def test_a_request_that_is_gone_frees_its_blocks(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            decode = self.side(real, "decode")
            one = prompt("a", 100, {"do_remote_prefill": True, "sluice_handover": "77"})
            self.assertIsNotNone(decode.decode(one))
            decode.scheduler.request_end("a")
            began = time.monotonic()
            self.assertFalse(decode.wait(one))
            self.assertLess(time.monotonic() - began, 2 * PATIENCE)
            self.assertTrue(decode.idle())

    def test_the_same_number_again_is_a_clean_failure(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            prefill, decode = self.side(real, "prefill"), self.side(real, "decode")
            given = prefill.prefill(prompt("a", 100, ASKED))
            for name, want in (("a", True), ("b", False)):  # the second one is another prompt
                one = prompt(name, 100, given)
                one.request_id = f"request {name}"
                if not want:
                    decode.scheduler.settings.handover_timeout = 2.0
                self.assertIsNotNone(decode.decode(one))
                self.assertEqual(decode.wait(one, prefill), want)
                self.assertTrue(decode.idle())

    def test_killed_actors_cost_no_wrong_byte(self):
        with RealNode(ranks=2, memory="64MiB") as real:
            for mode in MODES:
                prefill, decode = self.side(real, f"prefill {mode}", 2, mode=mode), self.side(real, f"decode {mode}", 2, mode=mode)
                decode.scheduler.settings.handover_timeout = DEADLINE_SECONDS
                for actor in ACTORS:
                    with self.subTest(mode=mode, actor=actor):
                        pid = real.pid(actor)
                        self.killed_beside(real, pid, prefill, decode, f"{mode} {actor}")
                        real.wait_restarted(actor, pid, 10 * PATIENCE)
                        real.wait_ready(10 * PATIENCE)
                        for one in (prefill, decode):
                            self.assertTrue(one.idle())
                            one.scheduler.paused_until = 0.0
                        self.settled(prefill, decode, f"{mode} {actor} after")

    def killed_beside(self, real, pid, prefill, decode, name):
        for i in range(6):
            number = f"{hash(name + str(i)) & 0xffffffff | 1:x}"
            computed = prompt(f"{name} {i}", 100, {**ASKED, "sluice_handover": number})
            decoded = prompt(f"{name} {i}", 100, {"do_remote_prefill": True, "sluice_handover": number})
            began = time.monotonic()
            blocks = decode.decode(decoded)
            if i == 2:
                os.kill(pid, signal.SIGKILL)
            prefill.prefill(computed)
            if blocks is not None and decode.wait(decoded, prefill):
                self.assertEqual(decode.wrong(decoded, blocks), [])
            self.assertLess(time.monotonic() - began, DEADLINE_SECONDS + 6 * PATIENCE)

    def settled(self, prefill, decode, name):
        """Hand-overs work as before; the first ones may find that the node does not know the ranks."""
        for attempt in range(20):
            given = prefill.prefill(prompt(f"{name} {attempt}", 100, ASKED))
            one = prompt(f"{name} {attempt}", 100, given)
            if given is not None and decode.decode(one) is not None and decode.wait(one, prefill):
                return
            time.sleep(0.1)
        self.fail("hand-overs do not go on")

    def test_a_node_that_is_started_anew(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            prefill, decode = self.side(real, "prefill"), self.side(real, "decode")
            decode.scheduler.settings.handover_timeout = DEADLINE_SECONDS
            self.hand(prefill, decode, "before")
            real.stop()
            real.start()
            self.settled(prefill, decode, "after")


class Pair:
    """Two nodes on this machine that are peers."""

    def __init__(self, ranks=1):
        self.directory = tempfile.mkdtemp(prefix="sl-keys-")
        names, control, fabric = ("a", "b"), [free_port(), free_port()], [free_port(), free_port()]
        for name in names:
            subprocess.run([CTL, "keygen", os.path.join(self.directory, name), name], check=True, stdout=subprocess.DEVNULL)
        for name, other in (("a", "b"), ("b", "a")):
            shutil.copy(os.path.join(self.directory, other, f"{other}.pub"), os.path.join(self.directory, name))
        peers = ",".join(f"{name}@127.0.0.1:{port}" for name, port in zip(names, control))
        self.nodes = [RealNode(ranks=ranks, memory="64MiB", settings=[
            "--node-name", name, "--peers", peers, "--cluster-listen", f"127.0.0.1:{control[i]}", "--cluster-keys",
            os.path.join(self.directory, name), "--fabric", "tcp", "--fabric-address", f"127.0.0.1:{fabric[i]}"])
            for i, name in enumerate(names)]

    def __enter__(self):
        for node in self.nodes:
            node.start()
        for node, peer in zip(self.nodes, "ba"):
            wait_until(lambda at=node, who=peer: f'"{who}"'.encode() in at.ctl("nodes", "--json").stdout and
                       b'"alive"' in at.ctl("nodes", "--json").stdout, 20 * PATIENCE, "the nodes have found each other")
        return self.nodes

    def __exit__(self, *_):
        for node in self.nodes:
            node.__exit__()
        shutil.rmtree(self.directory, ignore_errors=True)


class TwoNodes(Sides):
    def test_two_nodes(self):
        with Pair(2) as (a, b):
            for mode in MODES:
                prefill, decode = self.side(a, f"prefill {mode}", 1, mode=mode), self.side(b, f"decode {mode}", 2, order="NH", mode=mode)
                self.assertEqual((prefill.node.name(), decode.node.name()), ("a", "b"))
                for both in (False, True):
                    for tokens in (2, STATES + 1, 5 * STATES + 7, 6 * STATES):
                        with self.subTest(mode=mode, both=both, tokens=tokens):
                            self.hand(prefill, decode, f"{mode} {both} {tokens}", tokens, both)


if __name__ == "__main__":
    main()
