"""Direct hand-over between real nodes: b wants blocks (decode), a has them (prefill). lend_probe plays both coordinators.

Whichever process fails: blocks reported as landed are right, pending requests end by their deadline, and after the end of a BRING not
one byte of its blocks changes. Blocks that prefill has reused are never taken for the ones it had offered."""

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
from nodes_test import peers, wait_alive

PROBE = os.path.join(BIN, "..", "tests", "lend_probe")
BUDGET_MS = 20000 * PATIENCE
TTL_MS = 30000 * PATIENCE


class Probe:
    """A lend_probe at a node; its lines are kept until a test reads them."""

    def __init__(self, node):
        self.process = subprocess.Popen([PROBE, *node.where, "--node-name", node.name], env=node.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
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
                raise AssertionError(f"'{start}' was not printed by {self.node.instance}, but {self.kept}\n{self.node.logs()}") from None

    def ask(self, *words):
        self.say(*words)
        return self.expect(*words[:2])

    def fill(self, number, byte):
        self.say("fill", number, byte)
        self.expect("filled", number)

    def bring(self, number, count, length, ttl_ms=TTL_MS, lender=""):
        self.say("bring", number, count, length, ttl_ms, lender)
        return self.expect("ticket", number)

    def source(self, number, count, length, spare=None):
        assert self.ask("source", number, count, length, 4 * count if spare is None else spare) == "SL_OK"

    def lend(self, number, layers, ticket, budget_ms=BUDGET_MS):
        self.say("lend", number, layers, budget_ms, ticket)

    def lent(self, number):
        return self.expect("lent", number)

    def fenced(self, number):
        self.say("fence", number)
        code = self.expect("fenced", number)
        assert code == "SL_OK", code

    def over(self, number, seconds=60):
        """The result of its BRING: True when all has landed, otherwise the reason."""
        end = time.monotonic() + seconds * PATIENCE
        while True:
            for line in list(self.kept):
                words = line.split(maxsplit=2)
                if words[:2] == ["brought", str(number)]:
                    self.kept.remove(line)
                    return words[2]
                if words[:2] == ["landed", str(number)]:
                    self.kept.remove(line)
                    if words[2].startswith("2 "):
                        return True
            try:
                self.kept.append(self.lines.get(timeout=max(0.01, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no line about {number}, but {self.kept}\n{self.node.logs()}") from None

    def holds(self, number, byte=None):
        """Whether its blocks have the pattern of their number, or this byte throughout."""
        if byte is None:
            self.say("check", number)
        else:
            self.say("is", number, byte)
        return self.expect("is", number) == "1"

    def begun(self, number):
        return self.ask("begun", number).split() == ["1", "0"]

    def ended(self, number):
        """Whether its BRING was answered before all had landed, as far as lines were read."""
        return any(line.startswith(f"brought {number} ") for line in self.kept)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=60 * PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


def tell(text):
    print(text, file=sys.stderr)


def transporter_counter(node, name):
    status = json.loads(node.ctl("status", "--pages").stdout)
    return next(row for row in status["actors"] if row["name"] == "transporter.0")["counters"][name]


class Lending(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(3, unknown_node="c", settings=["--engines-max", "512",  # each hand-over has one engine at each side
                                                            "--handover-read-wait", f"{1500 * PACE}ms"])
        self.cluster.__enter__()
        self.probes, self.numbers = [], itertools.count(1000)
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
        """A hand-over from a to b without a fault."""
        self.prefill.source(number, count, length)
        ticket = self.decode.bring(number, count, length)
        self.prefill.lend(number, layers, ticket)
        self.assertEqual(self.prefill.lent(number), "SL_OK")
        told = []
        while not told or told[-1][0] != "2":
            told.append(self.decode.expect("landed", number).split())
        self.assertGreaterEqual(sum(int(pieces) for _, pieces in told), layers * count)  # on a busy machine some are reported twice
        self.assertTrue(self.decode.holds(number))
        self.decode.fenced(number)

    def hands_over(self, number, count, length, layers):
        """Whether a hand-over from a to b is complete; right after a restart parts of it may use connections of the old process."""
        self.prefill.source(number, count, length)
        ticket = self.decode.bring(number, count, length)
        self.prefill.lend(number, layers, ticket)
        code = self.prefill.lent(number)
        self.decode.fenced(number)
        return code == "SL_OK"

    def halfway(self, number, count=96, length=1 << 20, ttl_ms=TTL_MS, budget_ms=BUDGET_MS):
        """Begins a large hand-over, and returns in the middle of it, or at its end if this machine is too busy. Returns its ticket."""
        self.prefill.source(number, count, length)
        ticket = self.decode.bring(number, count, length, ttl_ms)
        self.prefill.lend(number, 1, ticket, budget_ms)
        wait_until(lambda: self.decode.begun(number) or self.decode.holds(number) or self.decode.ended(number), 20, "bytes arrive")
        return ticket

    def forget(self):
        """Starts new probes: the engines of the old ones end."""
        for probe in (self.prefill, self.decode):
            probe.end()
        self.prefill, self.decode = self.probe(self.a), self.probe(self.b)

    def meet(self):
        """Makes them hand over again. After failed reads a peer stays broken until one succeeds, whether it is connected or not."""
        for node, other in ((self.a, "b"), (self.b, "a")):
            wait_until(lambda at=node, name=other: peers(at).get(name, {}).get("state") in ("alive", "broken"), 20,
                       f"{node.name} reaches {other}")
        wait_until(lambda: self.hands_over(next(self.numbers), 2, 4096, 1), 20, "they hand over again")

    def test_blocks_arrive_layer_by_layer(self):
        for number, (count, length, layers) in enumerate([(1, 1, 1), (3, 4095, 1), (16, 65536 + 1, 5), (64, 1 << 20, 4)], 1):
            self.whole(number, count, length, layers)

    def test_within_one_node_blocks_are_copied(self):
        self.prefill.source(1, 32, 1 << 20)
        ticket = self.prefill.bring(2, 32, 1 << 20)
        self.prefill.lend(1, 4, ticket)
        self.assertEqual(self.prefill.lent(1), "SL_OK")
        self.assertIs(self.prefill.over(2), True)
        self.prefill.fenced(2)
        self.assertEqual(self.prefill.ask("same", 2, 1), "1")

    def test_a_stranger_with_a_stolen_ticket_gives_nothing(self):
        thief = self.probe(self.c)
        self.prefill.source(1, 4, 100000)
        thief.source(1, 4, 100000)
        ticket = self.decode.bring(1, 4, 100000)
        thief.lend(1, 1, ticket, 3000 * PACE)
        self.assertRegex(thief.lent(1), "^SL_ERR_(UNREACHABLE|PEER_DIED|TIMEOUT|NOT_FOUND)")
        self.assertTrue(self.decode.holds(1, 0))
        self.prefill.lend(1, 1, ticket)  # and it is still valid for a
        self.assertEqual(self.prefill.lent(1), "SL_OK")
        self.assertTrue(self.decode.holds(1))
        self.decode.fenced(1)
        self.decode.fill(1, 7)
        self.prefill.source(2, 4, 100000)
        self.prefill.lend(2, 1, ticket, 3000 * PACE)  # a stale one: decode has all of it
        self.assertEqual(self.prefill.lent(2).split()[0], "SL_OK")
        self.assertTrue(self.decode.holds(1, 7))

    def test_a_node_that_was_not_named_gives_nothing(self):
        self.prefill.source(1, 4, 100000)
        ticket = self.decode.bring(1, 4, 100000, lender="c")
        self.prefill.lend(1, 1, ticket, 3000 * PACE)
        self.assertRegex(self.prefill.lent(1), "^SL_ERR_")
        self.assertTrue(self.decode.holds(1, 0))
        self.decode.fenced(1)
        self.whole(2, 4, 100000, 1)

    def test_blocks_that_nobody_reads_come_back(self):
        for number, spare, code in ((1, 0, "SL_ERR_LIMIT"), (2, 64, "SL_ERR_TIMEOUT")):
            with self.subTest(code):  # all of the pool waits, or less than a quarter
                self.prefill.source(number, 4, 100000, spare)
                ticket = self.decode.bring(number, 4, 100000)
                with self.b.actors_stopped("transporter.0"):
                    self.prefill.lend(number, 1, ticket)
                    answer = self.prefill.lent(number)
                    self.assertTrue(answer.startswith(code), answer)
                    self.prefill.fill(number, 90)
                self.assertNotEqual(self.decode.over(number), True)  # a late read is not accepted
                self.decode.fenced(number)
        self.meet()
        self.whole(3, 4, 65536, 1)

    def test_a_reader_that_slept_takes_nothing_that_was_given_back(self):
        interrupted = 0
        for number in range(1, 4):
            self.halfway(number)
            with self.b.actors_stopped("transporter.0"):
                interrupted += self.decode.begun(number)
                code = self.prefill.lent(number)
                self.prefill.fill(number, 90)  # the blocks are reused
            over = self.decode.over(number)
            # It may have had all when it stopped, and only its answer was late: then all of it is right.
            self.assertTrue(over is not True or self.decode.holds(number), f"{code}, {over}")
            self.decode.fenced(number)
            self.decode.fill(number, 7)
            self.meet()
            self.whole(100 + number, 4, 65536, 1)  # all queued frames have arrived
            self.assertTrue(self.decode.holds(number, 7))
            self.forget()
        tell(f"{interrupted} of 3 in the middle")

    def test_a_lender_that_slept_past_the_end_changes_nothing(self):
        for number in range(1, 4):
            self.halfway(number, ttl_ms=750 * PACE)
            with self.a.actors_stopped("transporter.0"):
                over = self.decode.over(number)
                self.assertTrue(over is not True or self.decode.holds(number), over)
                self.decode.fenced(number)
                self.decode.fill(number, 90)
            self.prefill.lent(number)  # it ends, with or without success
            self.meet()
            self.whole(100 + number, 4, 65536, 1)
            self.assertTrue(self.decode.holds(number, 90))
            self.forget()

    def ends_with_a_life(self, node):
        """A transporter is killed in the middle: both sides notice, and the next hand-over is complete."""
        self.halfway(1)
        pid = node.pid("transporter.0")
        os.kill(pid, signal.SIGKILL)
        code = self.prefill.lent(1)
        if code == "SL_OK":
            self.assertTrue(self.decode.holds(1))
        else:
            self.assertRegex(code, "^SL_ERR_")
        node.wait_restarted("transporter.0", pid)
        self.decode.fenced(1)
        self.decode.fill(1, 90)
        self.meet()
        self.assertTrue(self.decode.holds(1, 90))
        self.forget()
        self.whole(2, 8, 1 << 20, 2)

    def test_a_lender_that_is_killed_ends_the_hand_over(self):
        self.ends_with_a_life(self.a)

    def test_a_reader_that_is_killed_ends_the_hand_over(self):
        self.ends_with_a_life(self.b)

    def test_a_decode_that_dies_ends_what_it_asked_for(self):
        ticket = self.decode.bring(1, 4, 100000)
        self.prefill.source(1, 4, 100000)
        self.decode.end(signal.SIGKILL)
        wait_until(lambda: transporter_counter(self.b, "takes_open") == 0, 10, "it ends with its engine")
        self.prefill.lend(1, 1, ticket, 3000 * PACE)
        self.assertRegex(self.prefill.lent(1), "^SL_ERR_")
        self.decode = self.probe(self.b)
        self.whole(2, 4, 100000, 1)

    def test_prefill_that_gives_up_is_heard(self):
        self.prefill.source(1, 4, 100000)
        ticket = self.decode.bring(1, 4, 100000)
        with self.b.actors_stopped("transporter.0"):
            self.prefill.lend(1, 1, ticket)
            self.prefill.say("drop", 1)
            self.assertEqual(self.prefill.expect("dropped", 1), "SL_OK")
            self.prefill.fill(1, 90)
        self.assertNotEqual(self.decode.over(1), True)
        self.decode.fenced(1)

    def test_decode_that_gives_up_is_heard(self):
        self.halfway(1)
        self.decode.fenced(1)
        whole = self.decode.holds(1)  # all of it had arrived before
        self.decode.fill(1, 90)
        self.assertIn(self.prefill.lent(1).split()[0], ["SL_ERR_CANCELLED"] + ["SL_OK"] * whole)
        self.whole(2, 4, 65536, 1)
        self.assertTrue(self.decode.holds(1, 90))

    def test_a_cut_ends_both_sides_and_heals(self):
        self.halfway(1)
        self.cluster.network.cut(0)
        self.assertRegex(self.prefill.lent(1), "^SL_(ERR_PEER_DIED|ERR_UNREACHABLE|ERR_TIMEOUT|ERR_LIMIT|OK)")
        over = self.decode.over(1)
        self.assertTrue(over is not True or self.decode.holds(1), over)
        self.decode.fenced(1)
        self.cluster.network.mend(0)
        self.meet()
        self.forget()
        self.whole(2, 8, 1 << 20, 2)


if __name__ == "__main__":
    main()
