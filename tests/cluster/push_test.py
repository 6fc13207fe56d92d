"""Direct hand-over between real nodes: b wants blocks (decode), a has them (prefill). push_probe plays both coordinators.

Whatever happens to whom: bytes that are told to have arrived are right, what is pending ends by its deadline, and after the end
of a ticket not one byte of its blocks changes."""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import unittest

from cluster_support import PACE, PATIENCE, Cluster, main, wait_until
from node_support import BIN
from nodes_test import wait_alive

PROBE = os.path.join(BIN, "..", "tests", "push_probe")
BUDGET_MS = 20000 * PATIENCE
TTL_MS = 30000 * PATIENCE


class Probe:
    """A push_probe at a node; lines that it says are kept until they are asked for."""

    def __init__(self, node):
        self.process = subprocess.Popen([PROBE, *node.where], env=node.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.node, self.lines, self.kept = node, queue.Queue(), []
        threading.Thread(target=self.listen, daemon=True).start()
        self.expect("ready")
        self.say("meet")
        code = self.expect("met")
        assert code == "SL_OK", code

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def say(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def expect(self, *start, seconds=60):
        """The first line that begins with these words, without them."""
        start = " ".join(str(word) for word in start)
        end = time.monotonic() + seconds * PATIENCE
        while True:
            for line in self.kept:
                if line == start or line.startswith(start + " "):
                    self.kept.remove(line)
                    return line[len(start):].strip()
                assert not line.startswith("error"), f"{line}\n{self.node.logs()}"
            try:
                self.kept.append(self.lines.get(timeout=max(0.01, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"'{start}' was not said by {self.node.instance}, but {self.kept}\n{self.node.logs()}") from None

    def ask(self, *words):
        self.say(*words)
        return self.expect(*words[:2])

    def fill(self, number, byte):
        self.say("fill", number, byte)
        self.expect("filled", number)

    def open(self, number, count, length, ttl_ms=TTL_MS, sender=""):
        self.say("open", number, count, length, ttl_ms, sender)
        return self.expect("ticket", number)

    def source(self, number, count, length):
        assert self.ask("source", number, count, length) == "SL_OK"

    def push(self, number, layers, ticket, budget_ms=BUDGET_MS):
        self.say("push", number, layers, budget_ms, ticket)

    def pushed(self, number, layer):
        return self.expect("pushed", number, layer)

    def closed(self, number):
        self.say("close", number)
        code = self.expect("closed", number)
        assert code == "SL_OK", code

    def holds(self, number, byte=None):
        """Whether its blocks have the pattern of their number, or this byte throughout."""
        if byte is None:
            self.say("check", number)
        else:
            self.say("is", number, byte)
        return self.expect("is", number) == "1"

    def begun(self, number):
        return self.ask("begun", number).split() == ["1", "0"]

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=60 * PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


def tell(text):
    print(text, file=sys.stderr)


def tickets_open(node):
    status = json.loads(node.ctl("status", "--metrics", "--json").stdout)
    return next(row for row in status["actors"] if row["name"] == "transporter.0")["counters"]["tickets_open"]


class Pushing(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(3, stranger="c", settings=["--engines-max", "512"])  # a hand-over has one at each side
        self.cluster.__enter__()
        self.probes = []
        try:
            self.a, self.b, self.c = self.cluster.nodes
            wait_alive(self.a, "b")
            wait_alive(self.b, "a")
            self.prefill, self.decode = self.probe(self.a), self.probe(self.b)
        except BaseException:
            self.tearDown()
            raise

    def tearDown(self):
        for probe in self.probes:
            if probe.process.poll() is None:
                probe.end(signal.SIGKILL)
        self.cluster.__exit__()

    def probe(self, node):
        self.probes.append(Probe(node))
        return self.probes[-1]

    def whole(self, number, count, length, layers):
        """A hand-over from a to b in which nothing goes wrong."""
        self.prefill.source(number, count, length)
        ticket = self.decode.open(number, count, length)
        self.prefill.push(number, layers, ticket)
        for layer in range(layers):
            self.assertEqual(self.prefill.pushed(number, layer), "SL_OK")
        told = []
        while not told or told[-1][0] != "1":  # the whole; a layer may be told twice on a busy machine
            told.append(self.decode.expect("arrived", number).split()[:4])
        self.assertEqual(told[-1], ["1", str(layers), str(count), "SL_OK"])
        self.assertEqual({int(layer) for _, layer, *_ in told}, set(range(1, layers + 1)))
        self.assertTrue(self.decode.holds(number))
        self.decode.closed(number)

    def arrives(self, number, count, length, layers):
        """Whether a hand-over from a to b comes whole; right after a restart parts of it may go to connections of the old life."""
        self.prefill.source(number, count, length)
        ticket = self.decode.open(number, count, length)
        self.prefill.push(number, layers, ticket)
        codes = [self.prefill.pushed(number, layer) for layer in range(layers)]
        self.decode.closed(number)
        return codes == ["SL_OK"] * layers

    def halfway(self, number, count=96, length=1 << 20, ttl_ms=TTL_MS, budget_ms=BUDGET_MS):
        """Begins a large hand-over, and returns in the middle of it. Gives its ticket."""
        self.prefill.source(number, count, length)
        ticket = self.decode.open(number, count, length, ttl_ms)
        self.prefill.push(number, 1, ticket, budget_ms)
        wait_until(lambda: self.decode.begun(number) or self.decode.holds(number), 20, "bytes arrive")
        return ticket

    def test_blocks_arrive_layer_by_layer(self):
        for number, (count, length, layers) in enumerate([(1, 1, 1), (3, 4095, 1), (16, 65536 + 1, 5), (64, 1 << 20, 4)], 1):
            self.whole(number, count, length, layers)

    def test_within_one_node_blocks_are_copied(self):
        self.prefill.source(1, 32, 1 << 20)
        ticket = self.prefill.open(2, 32, 1 << 20)
        self.prefill.push(1, 4, ticket)
        for layer in range(4):
            self.assertEqual(self.prefill.pushed(1, layer), "SL_OK")
        self.prefill.closed(2)
        self.assertEqual(self.prefill.ask("same", 2, 1), "1")

    def test_a_stranger_with_a_stolen_ticket_gets_nothing(self):
        thief = self.probe(self.c)
        self.prefill.source(1, 4, 100000)
        thief.source(1, 4, 100000)
        ticket = self.decode.open(1, 4, 100000)
        thief.push(1, 1, ticket, 3000 * PACE)
        self.assertRegex(thief.pushed(1, 0), "^SL_ERR_(UNREACHABLE|PEER_DIED|TIMEOUT)")
        self.assertTrue(self.decode.holds(1, 0))
        self.prefill.push(1, 1, ticket)  # and it is still good for a
        self.assertEqual(self.prefill.pushed(1, 0), "SL_OK")
        self.assertTrue(self.decode.holds(1))
        self.decode.closed(1)
        self.decode.fill(1, 7)
        self.prefill.source(2, 4, 100000)
        self.prefill.push(2, 1, ticket)  # a stale one
        self.assertTrue(self.prefill.pushed(2, 0).startswith("SL_ERR_STALE"))
        self.assertTrue(self.decode.holds(1, 7))

    def test_a_writer_that_slept_past_the_end_writes_nothing(self):
        interrupted = 0
        for number in range(1, 6):
            self.halfway(number, ttl_ms=750 * PACE)
            with self.a.standing_still("transporter.0"):
                interrupted += self.decode.begun(number)
                state = self.decode.expect("arrived", number).split()
                self.assertIn((state[0], state[3]), [("2", "SL_ERR_TIMEOUT"), ("2", "SL_ERR_PEER_DIED"), ("1", "SL_OK")])
                self.decode.closed(number)
                self.decode.fill(number, 90)  # the blocks are used for something else
            self.prefill.pushed(number, 0)  # it ends, one way or the other
            wait_alive(self.a, "b")
            self.whole(100 + number, 4, 65536, 1)  # all that was queued before has come
            self.assertTrue(self.decode.holds(number, 90))
            self.forget()
        tell(f"{interrupted} of 5 in the middle")

    def forget(self):
        """New probes: the engines of the old ones end."""
        for probe in (self.prefill, self.decode):
            probe.end()
        self.prefill, self.decode = self.probe(self.a), self.probe(self.b)

    def test_a_writer_that_is_killed_comes_back_and_goes_on(self):
        self.halfway(1)
        pid = self.a.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        # Perhaps all had arrived and was acknowledged, and the answer died with who was to give it.
        self.assertIn(self.prefill.pushed(1, 0), ("SL_OK", "SL_ERR_STALE the hand-over is complete"))
        self.assertEqual(self.decode.expect("arrived", 1).split()[0], "1")
        self.assertTrue(self.decode.holds(1))
        self.decode.closed(1)

    def test_a_receiver_that_is_killed_ends_the_push_by_name(self):
        self.halfway(1)
        pid = self.b.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        answer = self.prefill.pushed(1, 0)
        self.assertRegex(answer, "^(SL_ERR_PEER_DIED|SL_ERR_STALE|SL_OK)")
        self.assertIn("life" if "STALE" in answer else "", answer)
        self.b.wait_restarted("transporter.0", pid)
        self.decode.closed(1)
        wait_alive(self.a, "b")
        numbers = itertools.count(10)
        wait_until(lambda: self.arrives(next(numbers), 8, 1 << 20, 2), 20, "b's new life is sent to")
        self.forget()
        self.whole(2, 8, 1 << 20, 2)

    def test_a_decode_that_dies_takes_its_tickets_with_it(self):
        ticket = self.decode.open(1, 4, 100000)
        self.prefill.source(1, 4, 100000)
        self.decode.end(signal.SIGKILL)
        # A push under way before that is noticed would end with its own deadline instead.
        wait_until(lambda: tickets_open(self.b) == 0, 10, "the ticket ends with its engine")
        def stale():
            self.prefill.push(1, 1, ticket, 2000 * PACE)
            answer = self.prefill.pushed(1, 0)  # PEER_DIED: the transporter was too slow for the registrar's fence
            return answer.startswith(("SL_ERR_STALE", "SL_ERR_PEER_DIED"))
        wait_until(stale, 10, "its engine has ended, and the ticket with it")
        self.decode = self.probe(self.b)
        self.whole(2, 4, 100000, 1)

    def test_prefill_that_gives_up_is_heard(self):
        ticket = self.decode.open(1, 4, 100000)
        self.prefill.say("abort", 1, ticket)
        self.assertEqual(self.prefill.expect("aborted", 1), "SL_OK")
        self.assertIn("the test gave up", self.decode.expect("arrived", 1, 2))
        self.decode.closed(1)

    def test_a_cut_ends_both_sides_and_heals(self):
        self.halfway(1)
        self.cluster.network.cut(0)
        self.assertRegex(self.prefill.pushed(1, 0), "^SL_(ERR_PEER_DIED|ERR_UNREACHABLE|ERR_TIMEOUT|OK)")
        self.assertRegex(self.decode.expect("arrived", 1), "^(2 0 0 SL_ERR_PEER_DIED node a|1 1 )")
        self.decode.closed(1)
        self.cluster.network.mend(0)
        wait_alive(self.a, "b")
        wait_alive(self.b, "a")
        self.forget()
        self.whole(2, 8, 1 << 20, 2)


if __name__ == "__main__":
    main()
