"""A real model through Sluice: the same tokens, to the last bit of the logits, with the cache off, on, after a restart of the node
from disk, and with prefill and decode in different processes. A wrong byte gives other tokens."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))

try:
    import numpy as np
except ImportError:
    print("skipped: no numpy (Debian's python3-numpy)")
    sys.exit(77)

from python_support import client, environment, sluice  # noqa: E402
import tiny_model  # noqa: E402
from node_support import PATIENCE, Node, fabric_without_peers, main, wait_pools  # noqa: E402

PROMPT = [int(token) for token in np.random.default_rng(7).integers(0, tiny_model.VOCABULARY, 75)]
COUNT = 40
np.seterr(over="ignore", invalid="ignore")  # by a wrong exponent
WHOLE = (len(PROMPT) - 1) // tiny_model.BLOCK_TOKENS
PATIENT = {"op_timeout": f"{10 * PATIENCE}s"}


def reference(prompt=PROMPT, count=COUNT):
    """The tokens with the cache off."""
    return tiny_model.Engine(tiny_model.Weights()).generate(prompt, count)


def flip(cache, block, name):
    """Flips the highest bit of the exponent of one number in a piece."""
    piece = next(piece for called, piece in cache.pieces(block) if called == name)
    piece[7] ^= 0x40


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.right = reference()

    def open(self, node):
        attached = client(node, settings=PATIENT)
        self.addCleanup(attached.close)
        return attached

    def same_logits(self, run, right):
        return all(np.array_equal(a, b) for a, b in zip(run.logits, right.logits))

    def assert_same(self, run, right=None):
        right = right or self.right
        self.assertEqual(run.tokens, right.tokens)
        self.assertTrue(self.same_logits(run, right))

    def test_the_model_is_worth_the_test(self):
        self.assertGreater(len(set(self.right.tokens)), 10)  # not the same token all the time
        other = reference([PROMPT[0] ^ 1] + PROMPT[1:])
        self.assertNotEqual(other.tokens, self.right.tokens)  # distant tokens matter

    def test_on_and_a_second_time(self):
        with Node(ranks=tiny_model.WORLD, memory="64MiB") as node:
            engine = tiny_model.Engine(tiny_model.Weights(), self.open(node))
            cold = engine.generate(PROMPT, COUNT)
            self.assertEqual((cold.loaded, cold.computed), (0, len(PROMPT)))
            self.assert_same(cold)
            warm = engine.generate(PROMPT, COUNT)
            self.assertEqual(warm.loaded, WHOLE * tiny_model.BLOCK_TOKENS)
            self.assertEqual(warm.computed, len(PROMPT) - warm.loaded)
            self.assert_same(warm)
            # The next turn of the conversation: the generated tokens are known as well.
            turn = PROMPT + self.right.tokens + [5, 6, 7]
            longer = engine.generate(turn, COUNT)
            self.assertGreaterEqual(longer.loaded, len(PROMPT) + COUNT - tiny_model.BLOCK_TOKENS)
            self.assert_same(longer, reference(turn))
            # Another engine, as after its restart: other device blocks, the same values.
            other = tiny_model.Engine(tiny_model.Weights(), self.open(node), "other").generate(PROMPT, COUNT)
            self.assertEqual(other.loaded, WHOLE * tiny_model.BLOCK_TOKENS)
            self.assert_same(other)

    def test_after_a_restart_of_the_node(self):
        with Node(ranks=tiny_model.WORLD, memory="64MiB", disk="256MiB") as node:
            before = client(node, settings=PATIENT)
            tiny_model.Engine(tiny_model.Weights(), before).generate(PROMPT, COUNT)
            before.flush(timeout=10 * PATIENCE)
            before.close()
            node.stop()
            self.assertEqual(node.leftovers(), [])  # memory is released
            node.start()
            after = self.open(node)
            run = tiny_model.Engine(tiny_model.Weights(), after).generate(PROMPT, COUNT)
            self.assertEqual((run.loaded, run.from_disk), (WHOLE * tiny_model.BLOCK_TOKENS, WHOLE))
            self.assert_same(run)

    def test_a_wrong_byte_in_any_piece_is_noticed(self):
        with Node(ranks=tiny_model.WORLD, memory="64MiB") as node:
            engine = tiny_model.Engine(tiny_model.Weights(), self.open(node))
            engine.generate(PROMPT, COUNT)
            names = [name for name, _ in engine.cache.pieces(0)]
            self.assertEqual(len(names), tiny_model.WORLD * tiny_model.LAYERS * 3)
            for name in names:
                # Only the state at the end of the prefix is read.
                place = WHOLE - 1 if name.endswith("state") else 1
                run = engine.generate(PROMPT, COUNT, damage=lambda cache, blocks: flip(cache, blocks[place], name))
                self.assertGreater(run.loaded, 0)
                self.assertFalse(self.same_logits(run, self.right), name)
                if not name.endswith("key"):  # one token of 75 that is never attended to may have no effect
                    self.assertNotEqual(run.tokens, self.right.tokens, name)


class Child:
    """Prefill or decode: this file as a process of its own, controlled by lines of JSON."""

    def __init__(self, role, node, number, mode, **more):
        task = {"role": role, "instance": node.instance, "directory": node.directory, "shm": node.shm, "id": number,
                "mode": mode, **more}
        self.process = subprocess.Popen([sys.executable, os.path.realpath(__file__), "--as", json.dumps(task)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the process ended: {self.process.wait()}")
        return json.loads(line)

    def tell(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(10 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class HandedOver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.right = reference()

    def hand_over(self, mode, **more):
        number = int.from_bytes(os.urandom(8), "little") | 1
        with Node(ranks=tiny_model.WORLD, memory="64MiB", settings=["--op-timeout", PATIENT["op_timeout"], *fabric_without_peers()]) as node:
            with Child("decode", node, number, mode, **more) as decode, Child("prefill", node, number, mode) as prefill:
                for side in (decode, prefill):
                    self.assertTrue(side.hear()["registered"])
                wait_pools(node, 2)
                decode.tell(go=True)
                prefill.tell(ticket=decode.hear()["ticket"])
                first = prefill.hear()
                decode.tell(**first)
                answer = decode.hear()
            rows = json.loads(node.ctl("status", "--pages").stdout)["actors"]
            counters = next(row for row in rows if row["name"] == "coordinator")["counters"]
            return first["token"], answer, counters

    def check(self, mode, pushed):
        first, answer, counters = self.hand_over(mode)
        self.assertEqual(answer["blocks"], -(-len(PROMPT) // tiny_model.BLOCK_TOKENS))  # the incomplete one too
        self.assertEqual([first] + answer["tokens"], self.right.tokens)
        self.assertEqual(counters["handovers_pushed"], pushed)

    def test_through_storage(self):
        self.check(sluice.HANDOVER_BY_STORAGE, 0)

    def test_direct(self):
        self.check(sluice.HANDOVER_DIRECT, 1)

    def test_a_wrong_byte_is_noticed(self):
        first, answer, _ = self.hand_over(sluice.HANDOVER_BY_STORAGE, damage="rank 1 layer 2 value")
        self.assertNotEqual([first] + answer["tokens"], self.right.tokens)


# ---- the two processes ----

def say(**what):
    print(json.dumps(what), flush=True)


def ticket_of(op):
    while True:
        try:
            return op.ticket()
        except sluice.BusyError:
            if op.poll() is not None:
                raise


def prefill(engine, task):
    run, blocks, tokens = tiny_model.Run(), engine.take(len(PROMPT)), list(PROMPT)
    ticket = json.loads(sys.stdin.readline())["ticket"]
    engine.go_on(run, tokens, 0, len(PROMPT) + 1, blocks)
    with engine.engine.send(task["id"], np.array(PROMPT, np.uint32), blocks, mode=task["mode"],
                            ticket=bytes.fromhex(ticket) if ticket else None) as op:
        op.wait()
        say(token=run.tokens[0], receipt=op.receipt().hex())


def decode(engine, attached, task):
    json.loads(sys.stdin.readline())
    run, blocks = tiny_model.Run(), engine.take(len(PROMPT) + COUNT)
    used = -(-len(PROMPT) // tiny_model.BLOCK_TOKENS)
    with engine.engine.receive(task["id"], np.array(PROMPT, np.uint32), blocks[:used], mode=task["mode"]) as op:
        say(ticket=ticket_of(op).hex() if task["mode"] == sluice.HANDOVER_DIRECT else None)
        first = json.loads(sys.stdin.readline())
        attached.handover_arrived([bytes.fromhex(first["receipt"])])
        result = op.wait()
    if "damage" in task:
        flip(engine.cache, blocks[1], task["damage"])
    engine.go_on(run, PROMPT + [first["token"]], len(PROMPT), len(PROMPT) + COUNT, blocks)
    say(tokens=run.tokens, blocks=result.block_count)


def child(task):
    settings = {"runtime_dir": task["directory"] + "/run", "shm_dir": task["shm"], **PATIENT}
    with sluice.Client(task["instance"], settings=settings) as attached:
        engine = tiny_model.Engine(tiny_model.Weights(), attached, task["role"])
        say(registered=True)
        if task["role"] == "prefill":
            prefill(engine, task)
        else:
            decode(engine, attached, task)


if __name__ == "__main__":
    if "--as" in sys.argv:
        child(json.loads(sys.argv[sys.argv.index("--as") + 1]))
    else:
        main()
