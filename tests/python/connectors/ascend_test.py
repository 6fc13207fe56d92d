"""vllm-ascend's KV pool over mooncake.store: whole blocks and layer by layer, between ranks and engines."""

import unittest
import zlib

from ascend import Pool
from connector_support import StoreNode, Worker, be_worker, content
from node_support import main, wait_until


class RankProcess:
    def __init__(self, rank):
        self.pool = Pool(rank)

    def data(self, one):
        return content((one, self.pool.rank), self.pool.block_bytes)

    def put(self, hashes):
        for block, one in enumerate(hashes):
            for layer in range(self.pool.layers):
                self.pool.write_layer(block, layer, self.data(one))
        return self.pool.put(hashes, list(range(len(hashes))))

    def put_by_layers(self, hashes, layers=None):
        """Writes this number of layers; does not end the puts unless these are all."""
        mine, codes = self.pool.put_begin(hashes)
        blocks = [hashes.index(one) for one in mine]
        moved = []
        for layer in range(self.pool.layers if layers is None else layers):
            for one, block in zip(mine, blocks):
                self.pool.write_layer(block, layer, self.data(one))
            moved += self.pool.put_layer(mine, blocks, layer)
        ended = self.pool.put_end(mine) if layers is None else []
        return [codes, sorted(set(moved)), ended]

    def get(self, hashes):
        self.pool.memory.clear()
        blocks = [40 - number for number in range(len(hashes))]
        return [self.pool.get(hashes, blocks), self.wrong(hashes, blocks)]

    def get_by_layers(self, hashes):
        self.pool.memory.clear()
        blocks = list(range(len(hashes)))
        codes = self.pool.get_begin(hashes)
        moved = [length for layer in range(self.pool.layers) for length in self.pool.get_layer(hashes, blocks, layer)]
        return [codes, sorted(set(moved)), self.pool.get_end(hashes), self.wrong(hashes, blocks)]

    def wrong(self, hashes, blocks):
        return [one for one, block in zip(hashes, blocks) if self.pool.read_block(block) != self.data(one)]

    def lookup(self, hashes):
        return self.pool.lookup(hashes)

    def revoke(self, hashes):
        return self.pool.put_revoke(hashes)

    def layer_bytes(self):
        return 2 * self.pool.run_bytes

    def close(self):
        self.pool.close()


class Blocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())

    def hashes(self, count):
        return [f"{zlib.crc32(self.id().encode()):08x}{number:056x}" for number in range(count)]

    def engine(self, size):
        return [self.enterContext(Worker(RankProcess, rank)) for rank in range(size)]

    def everywhere(self, ranks, name, *arguments):
        for rank in ranks:
            rank.start(name, *arguments)
        return [rank.hear() for rank in ranks]

    def test_whole_blocks(self):
        first, second = self.engine(2), self.engine(2)
        hashes = self.hashes(16)
        self.assertEqual(self.everywhere(first, "put", hashes), [[0] * 16] * 2)
        self.assertEqual(self.everywhere(second, "lookup", [*hashes, "more"]), [16, 16])
        self.assertEqual(self.everywhere(second, "get", hashes), [[[6 * 2 * 2048] * 16, []]] * 2)

    def test_layer_by_layer(self):
        first, second = self.engine(2), self.engine(2)
        hashes = self.hashes(16)
        length = first[0].call("layer_bytes")
        self.assertEqual(self.everywhere(first, "put_by_layers", hashes), [[[0] * 16, [length], [0] * 16]] * 2)
        self.assertEqual(self.everywhere(second, "get_by_layers", hashes), [[[0] * 16, [length], 0, []]] * 2)
        self.assertEqual(self.everywhere(second, "put_by_layers", hashes), [[[-705] * 16, [], []]] * 2)
        self.assertEqual(self.everywhere(second, "get", hashes), [[[6 * 2 * 2048] * 16, []]] * 2)

    def test_layers_that_never_come(self):
        """A session that is revoked, or whose process is killed, leaves nothing, and another stores the blocks."""
        first, second = self.engine(1)[0], self.engine(1)[0]
        hashes = self.hashes(8)
        length = first.call("layer_bytes")
        self.assertEqual(first.call("put_by_layers", hashes, 3), [[0] * 8, [length], []])
        self.assertEqual(second.call("lookup", hashes), 0)
        self.assertEqual(first.call("revoke", hashes[:4]), [0] * 4)
        # The release is sent without waiting for an answer: another request may arrive first.
        wait_until(lambda: second.call("put_by_layers", hashes[3:4]) == [[0], [length], [0]], 10, "the last space is released")
        self.assertEqual(second.call("put_by_layers", hashes[:3]), [[0] * 3, [length], [0] * 3])
        first.kill()
        rest, tries = hashes[4:], 0
        while second.call("lookup", rest) < 4 and tries < 600:
            second.call("put_by_layers", rest)
            tries += 1
        self.assertEqual(second.call("get", hashes), [[6 * 2 * 2048] * 8, []])


if __name__ == "__main__":
    if not be_worker({"RankProcess": RankProcess}):
        main()
