"""The parts of sluicectl replay and workload that need no node: traces, session hints, device blocks, counts."""

import io
import itertools
import json
import os
import subprocess
import sys
import unittest
from array import array
from types import SimpleNamespace
from unittest import mock

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "client", "tools", "bench"), os.path.join(ROOT, "client", "tools", "command"), os.path.join(ROOT, "tests", "support")]
sys.modules["replay_library"] = SimpleNamespace(  # libsluice is not needed here
    OK=0, NOT_FOUND=1, LIMIT=4, TIMEOUT=5, UNREACHABLE=8, PROTOCOL=12, VERSION=13, PERMISSION=14, INVALID=15, CONFIG=17, FOREIGN=19, Failure=type("Failure", (Exception,), {"code": 15}),
    Hints=SimpleNamespace, Prefill=lambda *_: None, error_name=str, error_text=str)
import replay  # noqa: E402
import replay_trace  # noqa: E402
import suite  # noqa: E402
import workload  # noqa: E402
from replay_trace import ENDS, GOES_ON, UNKNOWN, TraceError, trace_of  # noqa: E402


def trace(*rows, times=itertools.repeat(0)):
    """Of hash ids of whole blocks."""
    lines = (json.dumps({"timestamp": at, "input_length": 512 * len(ids), "hash_ids": ids}) for ids, at in zip(rows, times))
    return trace_of(io.BytesIO("\n".join(lines).encode()), 1000)


class Lines(unittest.TestCase):
    def test_a_line_is_taken(self):
        [request] = trace_of(io.BytesIO(b'{"timestamp": 3, "input_length": 700, "output_length": 5, "hash_ids": [4, 6]}'), 9)
        self.assertEqual((request.timestamp_ms, request.input_length, list(request.ids)), (3, 700, [4, 6]))

    def test_a_bad_line_is_refused_by_name(self):
        for line, named in ((b"{nonsense", "JSON"), (b"[]", "hash_ids"), (b'{"input_length": 1}', "hash_ids"), (b'{"input_length": 1, "hash_ids": []}', "hash_ids"),
                            (b'{"input_length": 1, "hash_ids": [-1]}', "hash_ids[0]"), (b'{"input_length": 1, "hash_ids": [4294967296]}', "hash_ids[0]"),
                            (b'{"input_length": 1, "hash_ids": ["1"]}', "hash_ids[0]"), (b'{"input_length": 1, "hash_ids": [true]}', "hash_ids[0]"),
                            (b'{"input_length": 0, "hash_ids": [1]}', "input_length"), (b'{"input_length": 1.5, "hash_ids": [1]}', "input_length"),
                            (b'{"input_length": 513, "hash_ids": [1]}', "do not fit"), (b'{"input_length": 512, "hash_ids": [1, 2]}', "do not fit"),
                            (b'{"input_length": 99999999999, "hash_ids": [1]}', "input_length"),
                            (b'{"timestamp": -1, "input_length": 1, "hash_ids": [1]}', "timestamp"),
                            (b'{"input_length": 1, "input_length": 1, "hash_ids": [1]}', "JSON"), (b'"\xff"', "JSON"), (b"[" * 100000, "JSON")):
            with self.assertRaises(TraceError) as caught:
                trace_of(io.BytesIO(line), 9)
            self.assertIn(named, str(caught.exception), line[:60])
            self.assertFalse(caught.exception.too_much)

    def test_the_line_of_a_bad_trace_is_named_and_the_limit_ends_before_it(self):
        text = b'{"input_length": 1, "hash_ids": [1]}\n\n{nonsense\n'
        with self.assertRaisesRegex(TraceError, "^3: "):
            trace_of(io.BytesIO(text), 9)
        self.assertEqual(len(trace_of(io.BytesIO(text), 1)), 1)

    def test_a_line_has_a_bound(self):
        with self.assertRaisesRegex(TraceError, "^1: over 16777216 bytes") as caught:
            trace_of(io.BytesIO(b" " * (replay_trace.LINE_BYTES_MAX + 1)), 9)
        self.assertTrue(caught.exception.too_much)


class Sessions(unittest.TestCase):
    # Three sessions. The last block of a request is partial: its continuation has a different one.
    rows = ([1, 2, 3], [10, 11], [1, 2, 4, 5], [20], [1, 2, 4, 6])

    def test_a_session_ends_where_no_later_request_extends_it(self):
        self.assertEqual(replay_trace.ends_of(trace(*self.rows)), [False, True, False, True, True])

    def test_a_session_goes_on_with_the_next_request_that_has_its_blocks(self):
        self.assertEqual(replay_trace.pauses_of(trace(*self.rows, times=(0, 5, 70, 80, 100))), [70, 0, 30, 0, 0])

    def test_what_is_said_follows_the_share(self):
        for ends_reported, hints_right, at_end, at_others in ((None, None, UNKNOWN, UNKNOWN), (0, None, UNKNOWN, UNKNOWN), (1, None, ENDS, UNKNOWN),
                                                          (None, 0, GOES_ON, ENDS), (None, 1, ENDS, GOES_ON)):
            for request in range(1000):
                self.assertEqual(replay_trace.session_hint(ends_reported, hints_right, 7, True, request), at_end)
                self.assertEqual(replay_trace.session_hint(ends_reported, hints_right, 7, False, request), at_others)

    def test_a_seed_draws_the_same_and_another_one_others(self):
        said = {seed: [replay_trace.session_hint(0.3, None, seed, True, request) for request in range(10000)] for seed in (1, 2)}
        alike = sum(map(int.__eq__, said[1], said[2]))
        self.assertTrue(2800 <= said[1].count(ENDS) <= 3200)
        self.assertTrue(5500 <= alike <= 6100)  # 0.3^2 + 0.7^2 of them, by chance
        # As the model of tests/bench/policy draws (policy_hints_test).
        self.assertEqual([round(replay_trace.drawn(1, request), 12) for request in (0, 1, 12030)], [0.323895924592, 0.245160352259, 0.812080492774])

    def test_pauses_are_told_as_often_and_as_rightly_as_asked(self):
        pauses = [1000 + i for i in range(1000)]

        def said(*shares):
            return [replay_trace.pause_hint(*shares, 1, pauses, request) for request in range(1000)]

        self.assertEqual(said(0, 1, 0), [0] * 1000)
        self.assertEqual(said(1, 1, 0), pauses)
        self.assertTrue(400 <= sum(map(bool, said(0.5, 1, 0))) <= 600)
        wrong = said(1, 0, 0)
        self.assertLess(sum(map(int.__eq__, wrong, pauses)), 10)
        self.assertLessEqual(set(wrong), set(pauses))
        self.assertTrue(all(abs(one - pause) <= 0.2 * pause + 1 for one, pause in zip(said(1, 1, 0.2), pauses)))


class Op:
    def __init__(self, blocks, fences):
        self.blocks, self.fences, self.released = blocks, list(fences), False

    def fenced(self, _):
        self.released = not self.fences or self.fences.pop(0)
        return self.released

    def stored(self, _):
        return True

    def release(self):
        self.released = True


class Engine:
    """Loads find the blocks of `found`, or none; all blocks are stored. fences: for each store, which looks find it fenced."""

    def __init__(self, fences=(), found=lambda chains: 0):
        self.fences, self.found, self.chains, self.ops = list(fences), found, None, []
        self.poison = self.compute = lambda *_: None
        self.wrong = lambda *_: ()
        self.request = SimpleNamespace(token_count=1)

    def prepare(self, ids, _, count):
        self.chains = array("Q", ids[:count])
        return self.chains

    def run(self, store, blocks, first, _, __):
        assert not set(blocks) & {block for op in self.ops if not op.released for block in op.blocks}, "lent to another op"
        fences = self.fences.pop(0) if store and self.fences else None
        count = len(blocks) - first if store else self.found(self.chains)
        result = SimpleNamespace(code=0 if count else 1, trace_id=1, fenced=fences is None, block_count=count, stored_count=count, bytes=4096 * count,
                                 from_memory=count, from_disk=0, from_remote=0, not_awaited_count=0)
        self.ops.append(Op(blocks, fences or []))
        return self.ops[-1], result


def played(engine, requests, dropped=lambda: 0, **options):
    asked = dict(ranks=1, pools=1, layers=1, block_bytes=4096, device_blocks=8, op_timeout=10**9, first=0, window=0, progress=False, speed=None, json="-",
                 prefill_rate=0, prefill_doubles=0, prefill_unreported=False, ends_reported=None, hints_right=None, pauses_reported=0, published=0, hint_seed=1,
                 keys_of_pairs=False, key_of_cut_block=True, key_format="sluice")
    side = SimpleNamespace(engine=engine, known=set(), dropped=dropped)
    return replay.Replay(SimpleNamespace(**{**asked, **options}), requests, [side]).play_all()


class Blocks(unittest.TestCase):
    requests = trace([1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12])

    def test_those_of_an_op_that_is_not_fenced_are_not_used_until_it_is(self):
        engine = Engine([[False, False, True]])  # when its store ends, before the next request, before the one after it
        report = played(engine, self.requests)
        self.assertEqual((report["requests_skipped"], report["errors"], report["blocks_stored"]), (0, 0, 12))
        self.assertEqual(engine.ops[1].fences, [])

    def test_a_request_without_blocks_is_skipped_and_all_ops_end(self):
        engine = Engine([[False] * 9, [False] * 9, [False] * 9])
        report = played(engine, self.requests)
        self.assertEqual((report["requests"], report["requests_skipped"], report["errors"]), (4, 2, 2))
        self.assertEqual(report["errors_by_kind"], [{"op": "load", "code": "4", "count": 2, "text": "no free device blocks: 2 ops are not fenced"}])
        self.assertTrue(all(op.released for op in engine.ops))

    def test_what_was_acknowledged_and_is_missing_is_lost(self):
        again = trace([1, 2, 3], [1, 2, 3])
        report = played(Engine(), again)
        self.assertEqual((report["hits"], report["misses_of_acknowledged"], report["lost"]), (0, 3, 3))
        seen = set()

        def found(chains):
            count = sum(1 for _ in itertools.takewhile(seen.__contains__, chains))
            seen.update(chains)
            return count

        report = played(Engine(found=found), again)
        self.assertEqual((report["hits"], report["lost"], report["hits_by_tier"]["memory"], report["blocks_stored"]), (3, 0, 3, 3))


    def test_an_error_of_ours_ends_the_ops_whose_blocks_were_set_aside(self):
        engine = Engine([[False] * 9], lambda _: 0 if len(engine.ops) < 2 else 1 // 0)
        with self.assertRaises(ZeroDivisionError):
            played(engine, self.requests)
        self.assertTrue(all(op.released for op in engine.ops))


class Looks(unittest.TestCase):
    """At a node's metrics pages."""

    def published(self, answers, timeout_ns=10**9, spent_ns=0):
        """answers: of each look, (when it was published, whether the directory is up), or nothing to read."""
        clock, looks = [5], iter(answers)

        def counters(*_):
            clock[0] += spent_ns
            answer = next(looks)
            if answer is None:
                raise replay.Failure("no page")
            return answer

        side = SimpleNamespace(pages=SimpleNamespace(counters=counters))
        with mock.patch.object(replay, "time", SimpleNamespace(monotonic_ns=lambda: clock[0], sleep=lambda _: None)):
            return replay.Side.published(side, timeout_ns), len(list(looks))

    def test_what_was_published_after_the_wait_began_is_known(self):
        self.assertEqual(self.published([(4, 1), (5, 1), (6, 1), (7, 1)]), (True, 1))

    def test_a_transporter_without_a_page_is_waited_for_and_a_directory_that_is_down_is_not(self):
        self.assertEqual(self.published([None, (6, 1)]), (True, 0))
        self.assertEqual(self.published([None, (5, 0), (6, 1)]), (False, 1))

    def test_no_look_begins_after_the_deadline(self):
        self.assertEqual(self.published([(5, 1), (5, 1), (6, 1)], timeout_ns=100, spent_ns=50), (False, 1))

    def test_evictions_that_cannot_be_read_are_an_error_before_the_run_and_after_it(self):
        def dropped():
            if next(looks):
                raise replay.Failure("no page")
            return 0

        again, looks = trace([1, 2, 3], [1, 2, 3]), iter([True])
        with self.assertRaises(replay.Failure):
            played(Engine(), again, dropped)
        looks = iter([False, True])
        report = played(Engine(), again, dropped)
        self.assertEqual((report["misses_of_acknowledged"], report["lost"], report["errors"]), (3, 0, 1))
        self.assertEqual(report["errors_by_kind"], [{"op": "evictions", "code": "15", "count": 1, "text": "not known: no page"}])


class Times(unittest.TestCase):
    def test_times_of_any_length_are_slept_and_said(self):
        requests = trace([1], [1, 2], [1, 2, 3], times=(0, 9 * 10**18, 2**63 - 1))
        slept = []
        with mock.patch("time.sleep", slept.append):
            played(Engine(), requests, speed=1e-300, pauses_reported=1, pauses_right=1, pause_error=0)
            engine = Engine()
            engine.request.token_count = 1 << 26
            played(engine, requests, prefill_rate=1, prefill_doubles=1)
        self.assertEqual(slept, [0, 1e9, 1e9, 1e9, 1e9, 1e9])


class Workload(unittest.TestCase):
    def requests(self, seed, count=600, sessions=64, rate=4):
        made = workload.Workload(seed, sessions, rate)
        return [made.request() for _ in range(count)]

    def test_the_same_parameters_give_the_same_workload_for_good(self):
        mark = 0xcbf29ce484222325  # FNV-1a
        for timestamp, length, output, ids in self.requests(7):
            for number in (timestamp, length, output, *ids):
                mark = (mark ^ number) * 0x100000001b3 & (1 << 64) - 1
        self.assertEqual(mark, 0x6ba0a52b1469f2ca)
        self.assertNotEqual(self.requests(7), self.requests(8))

    def test_it_has_the_shape_of_a_trace_with_shared_prefixes(self):
        known, references, hits, last = set(), 0, 0, 0
        for timestamp, length, _, ids in self.requests(7):
            self.assertEqual(len(ids), -(-length // 512))
            self.assertGreaterEqual(timestamp, last)
            last = timestamp
            references += len(ids)
            hits += sum(1 for _ in itertools.takewhile(known.__contains__, ids))
            known.update(ids)
        self.assertGreater(references, 600 * 5)
        self.assertTrue(15 < 100 * hits / references < 80)  # worth caching, and not everything is known

    def test_what_is_printed_is_a_trace(self):
        done = subprocess.run([sys.executable, workload.__file__, "60", "3", "64", "4"], env={"PYTHONPATH": ":".join(sys.path)}, check=True, stdout=subprocess.PIPE)
        self.assertEqual([list(request.ids) for request in trace_of(io.BytesIO(done.stdout), 100)], [ids for _, _, _, ids in self.requests(3, 60)])

    def test_times_end_where_those_of_traces_do(self):
        self.assertEqual([timestamp for timestamp, _, _, _ in self.requests(7, 3, rate=1e-306)], [2**63 - 1] * 3)

    def test_a_bad_parameter_is_named(self):
        for words, named in ((("0", "1", "1", "1"), "requests"), (("1", "1", "0", "1"), "sessions"), (("1", "1", "1", "0"), "rate"), (("1", "1", "1", "x"), "--rate 'x'")):
            done = subprocess.run([sys.executable, workload.__file__, *words], env={"PYTHONPATH": ":".join(sys.path)}, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(named, done.stderr)


if __name__ == "__main__":
    suite.run()
