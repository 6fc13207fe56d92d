"""A recording gives the requests that were made; torn, damaged and other files are reported. node/record tests a node's own recording."""

import argparse
import os
import random
import re
import struct
import sys
import threading
import unittest
import zlib

import python_support
from sluice import advise, recording
from sluice.recording import AGAIN, FETCH, FULL, GONE, LOAD, LOST, STORE
from node_support import main

FILE_ID, SIZE = 5, 100


def header(version=recording.VERSION, **more):
    words = {"memory": 1000, "disk": 0, "segment": 0, "budget": 0, "paths": 0, **more}
    head = recording.HEADER.pack(b"SLRECORD", version, 128, FILE_ID, 77, words["memory"], words["disk"], b"density", words["segment"],
                                 words["budget"], words["paths"], 0)
    return head[:120] + struct.pack("<I4x", zlib.crc32(head))


def varint(number):
    found = b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def event(kind, name=0, parent=0, size=0, tokens=0, hint=0, new_op=False, count=0, after_us=0):
    """An event, without the fields that are left out because they repeat the event before."""
    extra = hint | 4 * new_op
    return (bytes([kind | (0x10 if parent else 0) | (0x80 if extra else 0)]) + (bytes([extra]) if extra else b"") + varint(after_us)
            + (varint(count) if kind == LOST else b"") + struct.pack("<Q", name) + (struct.pack("<Q", parent) if parent else b"")
            + varint(size) + varint(tokens))


def frame(*events, begun=0, file_id=FILE_ID, count=None):
    body = b"".join(events)
    head = struct.pack("<4sIIIQQ", b"SLRM", len(body), len(events) if count is None else count, 0, begun, file_id)
    return head[:12] + struct.pack("<I", zlib.crc32(head + body)) + head[16:] + body


def stored(name, parent=0, **more):
    return event(STORE, name, parent, SIZE, 16, **more)


def read(*frames):
    return recording.Recording(header() + b"".join(frames))


def requests(record):
    return [(one.ids, one.before, one.uncounted) for one in record.requests]


class Requests(unittest.TestCase):
    def test_a_load_and_the_store_behind_it_are_one_request(self):
        got = read(frame(stored(1), stored(2, 1), event(LOAD, 2, 1), event(LOAD, 1), stored(3, 2, new_op=True, hint=1, after_us=10)))
        self.assertEqual(requests(got), [([0, 1], None, False), ([0, 1, 2], None, False)])
        self.assertEqual((got.load_count, got.store_count, got.requests[1].hint, got.span_us), (2, 3, 1, 10))
        self.assertEqual(list(recording.trace_lines(got, 16))[1],
                         '{"timestamp": 0, "input_length": 48, "output_length": 0, "hash_ids": [0, 1, 2]}')
        self.assertEqual(recording.block_tokens(got), 16)

    def test_requests_that_overlap_are_told_apart(self):
        got = read(frame(stored(1), stored(11, new_op=True), event(LOAD, 1), event(LOAD, 11), stored(12, 11, new_op=True),
                         stored(2, 1, new_op=True)))
        self.assertEqual([ids for ids, _, _ in requests(got)], [[0], [1], [0, 3], [1, 2]])

    def test_a_store_a_minute_later_is_a_request_of_its_own_that_knows_what_is_before_it(self):
        got = read(frame(stored(1), event(LOAD, 1), stored(2, 1, new_op=True, after_us=61_000_000)))
        self.assertEqual(requests(got), [([0], None, False), ([0], None, False), ([1], 0, False)])

    def test_what_was_there_before_is_brought_in_uncounted(self):
        got = read(frame(event(LOAD, 2, 1), event(LOAD, 1), stored(3, 2, new_op=True)))
        self.assertEqual(requests(got), [([1, 0], None, True), ([1, 0, 2], None, False)])
        self.assertEqual((got.before_count, got.load_count, got.store_count), (2, 2, 1))

    def test_a_block_that_was_removed_is_another_one_when_it_comes_again(self):
        got = read(frame(stored(1), event(GONE, 1), stored(1, new_op=True), event(LOAD, 1)))
        self.assertEqual([ids for ids, _, _ in requests(got)], [[0], [1], [1]])
        self.assertEqual(got.gone_count, 1)

    def test_what_came_from_disk_is_counted_so_once(self):
        got = read(frame(stored(1), event(FETCH, 1), event(LOAD, 1), event(GONE, 9), event(LOAD, 1)))
        self.assertEqual((got.disk_count, got.load_count), (1, 2))

    def test_what_is_missing_is_told(self):
        got = read(frame(event(LOST, count=12), event(AGAIN), event(LOST, count=300), event(FULL)))
        self.assertEqual((got.lost_count, got.restart_count, got.full, got.references), (312, 1, True, 0))

    def test_chains_that_bite_their_tail_end(self):
        got = read(frame(stored(1, 3), stored(2, 1), stored(3, 2), event(LOAD, 3, 2), event(LOAD, 1, 1)))
        self.assertEqual(got.references, 5)


class Files(unittest.TestCase):
    def setUp(self):
        self.frames = [frame(*(stored(number * 100 + at) for at in range(3))) for number in range(1, 4)]

    def test_a_torn_tail_costs_its_frame_alone(self):
        whole = b"".join(self.frames)
        for cut in range(len(self.frames[0] + self.frames[1]), len(whole)):
            got = read(whole[:cut])
            self.assertEqual((got.store_count, got.torn_bytes), (6, cut - len(self.frames[0] + self.frames[1])))

    def test_a_damaged_frame_costs_itself(self):
        for at in range(len(self.frames[1])):
            damaged = bytearray(self.frames[1])
            damaged[at] ^= 0x10
            got = read(self.frames[0], bytes(damaged), self.frames[2])
            self.assertEqual((got.store_count, got.damaged_count, got.damaged_bytes, got.torn_bytes), (6, 1, len(damaged), 0))

    def test_what_a_kill_left_is_skipped_by_what_follows(self):
        got = read(self.frames[0], self.frames[1][:40], self.frames[2])
        self.assertEqual((got.store_count, got.damaged_count, got.damaged_bytes), (6, 1, 40))

    def test_a_frame_of_another_file_is_not_believed(self):
        self.assertEqual(read(frame(stored(1), file_id=6)).references, 0)

    def test_any_bytes_in_a_frame_are_read_safely(self):
        drawn = random.Random(1)
        for _ in range(2000):
            body = drawn.randbytes(60)
            got = read(frame(body, count=drawn.randrange(12)))
            self.assertIn(got.torn_bytes, (0, recording.FRAME.size + 60))
            for row in (advise.Row("lru", 1000), advise.Row("density", 1000, 1 << 24)):
                result = advise.play(got, row)
                self.assertEqual(result.references, sum(len(one.ids) for one in got.requests if not one.uncounted))

    def test_many_beginnings_of_frames_end(self):
        self.assertEqual(read(b"SLRM" * 100_000).torn_bytes, 400_000)

    def test_heads_that_are_wrong_are_named(self):
        good = header(disk=7, segment=8, budget=9, paths=2)
        got = recording.Recording(good).header
        self.assertEqual((got.memory_bytes, got.disk_bytes, got.segment_bytes, got.budget_bytes, got.path_count, got.policy, got.began_unix_ns),
                         (1000, 7, 8, 9, 2, "density", 77))
        for data, said in ((good[:100], "not a recording"), (b"", "not a recording"), (b"X" + good[1:], "not a recording"),
                           (header(version=2), "version 2, version 3 is read"), (good[:40] + b"\1" + good[41:], "damaged")):
            with self.assertRaisesRegex(recording.Wrong, said):
                recording.Recording(data)


class Order(unittest.TestCase):
    """Tests of sluice._order beyond those of policy_model and a node's registrar."""

    def test_wrong_arguments_are_named(self):
        memory = advise.Density()
        memory.use([0, 1], b"\1\1", None, 2, 0, 0)
        self.assertIn(1, memory)
        self.assertEqual(memory.evict(), 1)
        self.assertNotIn(1, memory)
        for call in (lambda: memory.use([0], b"", None, 1, 0, 0), lambda: memory.use([0], b"\1", None, 1, 3, 0), lambda: 1 << 40 in memory,
                     lambda: memory.chance(-1, 5)):
            with self.assertRaises((ValueError, OverflowError, TypeError)):
                call()
        self.assertEqual(memory.evict(), 0)
        with self.assertRaises(IndexError):
            memory.evict()

    def test_threads_may_share_one(self):
        memory, failures = advise.Density(), []

        def work(seed):
            choose = random.Random(seed)
            try:
                for now_s in range(3000):
                    ids = choose.sample(range(200), 8)
                    memory.use(ids, b"\1" * 8, None, 8, 0, now_s)
                    for block in ids[:4]:
                        memory.chance(block, 50)
                        memory.evict()
            except Exception as error:  # pylint: disable=broad-exception-caught
                failures.append(error)

        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([error for error in failures if not isinstance(error, IndexError)], [])
        left = set()
        with self.assertRaises(IndexError):
            while True:
                block = memory.evict()
                self.assertNotIn(block, left)
                left.add(block)


class Sizes(unittest.TestCase):
    def test_sizes_are_read_as_the_node_reads_them(self):
        """By the table of the C parser's own test."""
        with open(os.path.join(python_support.ROOT, "tests/unit/runtime/base/parse_test.c"), encoding="utf-8") as file:
            table = file.read().partition("} sizes[] = {")[2].partition("\n};")[0]
        rows = re.findall(r'{"(.*)", ([^,]+), [^,}]+}', table)
        self.assertGreater(len(rows), 20)
        names = {"SL_GIB": 1 << 30, "SL_MIB": 1 << 20, "UINT64_MAX": (1 << 64) - 1, "UNTOUCHED": None}
        for text, want in rows + [("500GB", "500000000000"), ("1.5TiB", "1536 * SL_GIB"), ("500gib", "500 * SL_GIB")]:
            text, want = text.encode().decode("unicode_escape"), eval(want, names)  # a table of ours
            with self.subTest(text=text):
                if want is None:
                    self.assertRaisesRegex(argparse.ArgumentTypeError, "not a size", advise.size_parse, text)
                else:
                    self.assertEqual(advise.size_parse(text), want)


if __name__ == "__main__":
    main()
