"""FastDeploy's cache_transfer_manager over mooncake.store: ranks write blocks, others query and read them, byte for byte."""

import unittest
import zlib

from connector_support import StoreNode, Worker, be_worker, content
from fastdeploy import TransferManager, block_hashes, input_hashes
from node_support import main

BLOCK_TOKENS = 64


def data_of(manager, block_hash, part):
    return content((block_hash, manager.rank, part), manager.sizes[part])


def write_blocks(manager, hashes, blocks):
    for block_hash, block in zip(hashes, blocks):
        for part in manager.parts:
            manager.fill(block, part, data_of(manager, block_hash, part))
    return manager.write(hashes, blocks)


def wrong_parts(manager, hashes, blocks):
    return [(block, part) for block_hash, block in zip(hashes, blocks) for part in manager.parts
            if manager.seen(block, part) != data_of(manager, block_hash, part)]


class RankProcess:
    def __init__(self, rank):
        self.manager = TransferManager(rank)

    def write(self, hashes):
        return write_blocks(self.manager, hashes, list(range(len(hashes))))

    def query(self, hashes):
        return self.manager.query(hashes)

    def read(self, hashes):
        """(valid blocks, parts with other bytes than were written)."""
        good = self.manager.read(hashes, list(range(len(hashes))))
        return [good, wrong_parts(self.manager, [hashes[i] for i in good], good)]

    def lose(self, block_hash):
        return self.manager.store.remove(self.manager.name(block_hash, "value"), True)

    def close(self):
        self.manager.close()


class Blocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())

    def hashes(self, count, prompt=0):
        number = zlib.crc32(self.id().encode())
        return block_hashes([number, prompt, *range(count * BLOCK_TOKENS - 2)], BLOCK_TOKENS)

    def manager(self, *arguments, **options):
        made = TransferManager(*arguments, **options)
        self.addCleanup(made.close)
        return made

    def test_the_chain_is_fastdeploys(self):
        hashes = block_hashes(range(1, 129), 64)
        self.assertEqual(hashes, ["785603a0eefb22e928d356f44635e7f3c7bc04a6d93dcc655c4fe74b8e3d1a37",
                                  "6d72d582be48c99dc1e60b3e58ca84b486bc48ac8dfb9ca9170ed8160bdcb1b8"])

    def test_blocks_come_back(self):
        for fp8 in (False, True):
            with self.subTest(fp8=fp8):
                manager, hashes = self.manager(0, fp8=fp8), self.hashes(10, prompt=int(fp8))
                parts = 4 if fp8 else 2
                self.assertEqual(manager.query(hashes), 0)
                self.assertEqual(write_blocks(manager, hashes, list(range(10))), 10 * parts)
                self.assertEqual(manager.query(hashes), 10)
                blocks = list(range(20, 30))
                self.assertEqual(manager.read(hashes, blocks), blocks)
                self.assertEqual(wrong_parts(manager, hashes, blocks), [])

    def test_a_query_ends_where_a_part_is_missing(self):
        for part in ("key", "value", "key_scale", "value_scale"):
            with self.subTest(part=part):
                manager = self.manager(0, fp8=True)
                hashes = self.hashes(6, ("key", "value", "key_scale", "value_scale").index(part))
                write_blocks(manager, hashes, list(range(6)))
                self.assertEqual(manager.store.remove(manager.name(hashes[3], part), force=True), 0)
                self.assertEqual(manager.query(hashes), 3)
                self.assertEqual(manager.read(hashes, list(range(6))), [0, 1, 2, 4, 5])

    def test_writing_again_counts_as_written(self):
        manager, hashes = self.manager(0), self.hashes(4)
        self.assertEqual(write_blocks(manager, hashes, [0, 1, 2, 3]), 8)
        self.assertEqual(manager.write(hashes, [4, 5, 6, 7]), 8)  # other bytes: the first ones stay
        self.assertEqual(manager.read(hashes, [0, 1, 2, 3]), [0, 1, 2, 3])
        self.assertEqual(wrong_parts(manager, hashes, [0, 1, 2, 3]), [])

    def test_a_transfer_may_span_registered_chunks(self):
        manager = self.manager(0, blocks=8, half_bytes=12288, chunk_bytes=16384)
        hashes = self.hashes(8)
        self.assertEqual(write_blocks(manager, hashes, list(range(8))), 16)
        self.assertEqual(manager.read(hashes, list(range(8))), list(range(8)))
        self.assertEqual(wrong_parts(manager, hashes, range(8)), [])

    def test_nothing_to_do_is_nothing(self):
        manager = self.manager(0)
        self.assertEqual((manager.write([], []), manager.read([], []), manager.query([])), (0, [], 0))

    def test_models_and_ranks_do_not_see_each_other(self):
        manager, hashes = self.manager(0), self.hashes(3)
        write_blocks(manager, hashes, [0, 1, 2])
        self.assertEqual(self.manager(1).query(hashes), 0)
        self.assertEqual(self.manager(0, model="RL-STEP12").query(hashes), 0)
        self.assertEqual(self.manager(0).query(hashes), 3)

    def test_clearing(self):
        manager, hashes = self.manager(0), self.hashes(3)
        write_blocks(manager, hashes, [0, 1, 2])
        self.assertGreaterEqual(manager.clear(), 6)
        self.assertEqual(manager.query(hashes), 0)

    def test_ranks_in_processes_and_the_shortest_answer(self):
        hashes = self.hashes(8)
        with Worker(RankProcess, 0) as first, Worker(RankProcess, 1) as second:
            ranks = (first, second)
            for rank in ranks:
                rank.start("write", hashes)
            self.assertEqual([rank.hear() for rank in ranks], [16, 16])
            self.assertEqual(second.call("lose", hashes[5]), 0)
            hit = min(rank.call("query", hashes) for rank in ranks)
            self.assertEqual(hit, 5)
            for rank in ranks:
                rank.start("read", hashes[:hit])
            self.assertEqual([rank.hear() for rank in ranks], [[[0, 1, 2, 3, 4], []]] * 2)


class Refused(Exception):
    """The failure that decode answers with 502."""


class Engine:
    """Prefill or decode with FD_PD_TRANSFER_VIA_STORAGE=1: two ranks, and an engine process that knows the requests."""

    def __init__(self, name):
        self.ranks = [Worker(RankProcess, rank) for rank in range(2)]
        self.name, self.requests = name, {}

    def __enter__(self):
        for rank in self.ranks:
            rank.__enter__()
        return self

    def __exit__(self, *error):
        for rank in self.ranks:
            rank.__exit__(*error)

    def all(self, call, hashes):
        for rank in self.ranks:
            rank.start(call, hashes)
        return [rank.hear() for rank in self.ranks]

    def store(self, tokens):
        """Every rank has every object of the blocks acknowledged."""
        hashes = input_hashes(tokens, BLOCK_TOKENS)
        return self.all("write", hashes) == [2 * len(hashes)] * 2

    def first_token(self, request):
        """Prefill has stored its input before it sends the first token."""
        if not self.store(self.requests.pop(request)):
            raise Refused(request)

    def receive(self, request):
        """Decode reads what prefill stored into blocks of its own. None: the request was cancelled meanwhile, which is no failure."""
        tokens = self.requests.get(request)
        if tokens is None:
            return None
        hashes = input_hashes(tokens, BLOCK_TOKENS)
        answers = self.all("read", hashes)
        wrong = [parts for _, parts in answers if parts]
        if wrong:
            raise AssertionError(f"other bytes than were written: {wrong}")
        if min(len(good) for good, _ in answers) < len(hashes):
            del self.requests[request]
            raise Refused(request)
        return len(hashes)

    def finish(self, request, output):
        """When it ends, only decode writes the blocks, including its output."""
        tokens = self.requests.pop(request) + output
        return self.store(tokens)

    def query(self, tokens):
        return min(self.all("query", input_hashes(tokens, BLOCK_TOKENS)))


class ThroughStorage(unittest.TestCase):
    """Prefill and decode are separate engines that share only the store."""

    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())

    def test_the_names_are_fastdeploys(self):
        hashes = input_hashes(range(1, 136), 64)
        self.assertEqual(hashes[2], "ef75738915bce82296e468903f81ae3a8288506eaf617e1909ce38f3d1f69e9b:partial:7")
        self.assertEqual(input_hashes(range(1, 130), 64)[2], "5df174f2ef2d576b8c5a758a24a99ffdfe7bb3186710c5a2cb154d407d83acf7:partial:1")
        self.assertEqual(input_hashes(range(1, 129), 64), block_hashes(range(1, 129), 64))

    def test_prefill_hands_over_and_decode_alone_writes_at_the_end(self):
        prompts = {f"r{i}": [i, *range(5 * BLOCK_TOKENS + extra)] for i, extra in enumerate((-1, 0, 6, 40))}
        with Engine("prefill") as prefill, Engine("decode") as decode:
            for request, tokens in prompts.items():
                prefill.requests[request] = decode.requests[request] = tokens
            del decode.requests["r2"]  # cancelled there before its first token came
            for request, tokens in prompts.items():
                self.assertEqual(decode.query(tokens), 0)
                prefill.first_token(request)
                self.assertEqual(decode.receive(request), None if request == "r2" else -(-len(tokens) // BLOCK_TOKENS))
            whole = prompts["r3"] + list(range(900, 1000))
            self.assertEqual(prefill.query(whole), 5)  # of the whole blocks, prefill stored only the input's
            self.assertTrue(decode.finish("r3", list(range(900, 1000))))
            self.assertEqual(prefill.query(whole), -(-len(whole) // BLOCK_TOKENS))
            self.assertEqual(prefill.query(prompts["r0"] + list(range(900, 1000))), 5)

    def test_anything_short_of_all_is_refused(self):
        with Engine("prefill") as prefill, Engine("decode") as decode:
            for lost in range(3):
                tokens = [100 + lost, *range(3 * BLOCK_TOKENS - 20)]
                hashes = input_hashes(tokens, BLOCK_TOKENS)
                self.assertIn(":partial:", hashes[-1])
                prefill.requests["r"] = decode.requests["r"] = tokens
                prefill.first_token("r")
                self.assertEqual(prefill.ranks[1].call("lose", hashes[lost]), 0)
                with self.assertRaises(Refused):
                    decode.receive("r")
                self.assertEqual(decode.query(tokens), lost)
                decode.requests["r"] = prefill.requests["r"] = tokens  # tried again from the start
                prefill.first_token("r")
                self.assertEqual(decode.receive("r"), 3)
                decode.finish("r", [])


if __name__ == "__main__":
    if not be_worker({"RankProcess": RankProcess}):
        main()
