"""FastDeploy's cache_transfer_manager over mooncake.store: ranks write blocks, others query and read them, byte for byte."""

import unittest
import zlib

from connector_support import StoreNode, Worker, be_worker, content
from fastdeploy import TransferManager, block_hashes
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


if __name__ == "__main__":
    if not be_worker({"RankProcess": RankProcess}):
        main()
