"""LMCache's in-process connector over mooncake.store: chunks by address and with headers, and a separate lookup client."""

import asyncio
import unittest
import zlib

from connector_support import MASTER, MIB, HostMemory, StoreNode, Worker, be_worker, content
from lmcache import HEADER, Connector, LookupClient
from node_support import main

CHUNK = 2 * 8 * 256 * 16
SHAPE = [2, 8, 256, 16]
BASE = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "global_segment_size": 32 * MIB,
        "local_buffer_size": 16 * MIB, "transfer_timeout": 1}


class WorkerProcess:
    def __init__(self, worker, world, chunk_meta, extra):
        self.connector = Connector(f"mooncakestore://{MASTER}/", {**BASE, **extra}, worker, world, save_chunk_meta=chunk_meta)

    def keys(self, hashes):
        return [self.connector.key("model", one) for one in hashes]

    def put(self, hashes):
        async def all_of_them():
            codes = []
            for number, key in enumerate(self.keys(hashes)):
                self.connector.pool.write(number * CHUNK, content(key, CHUNK))
                codes.append(self.connector.put(key, number * CHUNK, CHUNK, SHAPE))
            return await asyncio.gather(*codes)

        return asyncio.run(all_of_them())

    def get(self, hashes):
        """Number of bytes of each, and the ones whose bytes are wrong."""
        self.connector.pool.clear()
        keys = self.keys(hashes)
        got = asyncio.run(self.connector.get(keys, [number * CHUNK for number in range(len(keys))], CHUNK))
        wrong = [key for number, key in enumerate(keys)
                 if got[number] and self.connector.pool.read(number * CHUNK, CHUNK) != content(key, CHUNK)]
        return [got, wrong]

    def hits(self, hashes):
        return [self.connector.batched_contains(self.keys(hashes)), [self.connector.exists(key) for key in self.keys(hashes)]]

    def close(self):
        self.connector.close()


class Chunks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())

    def hashes(self, count, prompt=0):
        start = (zlib.crc32(self.id().encode()) << 16) + (prompt << 8)
        return list(range(start, start + count))

    def engine(self, world, chunk_meta=True, **extra):
        return [self.enterContext(Worker(WorkerProcess, worker, world, chunk_meta, extra)) for worker in range(world)]

    def test_an_engine_reads_what_another_stored(self):
        for chunk_meta in (True, False):
            with self.subTest(chunk_meta=chunk_meta):
                first, second = self.engine(2, chunk_meta), self.engine(2, chunk_meta)
                hashes = self.hashes(20, int(chunk_meta))
                for worker in first:
                    worker.start("put", hashes)
                self.assertEqual([worker.hear() for worker in first], [[0] * len(hashes)] * 2)
                for worker in second:
                    self.assertEqual(worker.call("hits", hashes), [len(hashes), [True] * len(hashes)])
                    worker.start("get", hashes)
                self.assertEqual([worker.hear() for worker in second], [[[CHUNK] * len(hashes), []]] * 2)

    def test_chunks_that_are_missing(self):
        worker, = self.engine(1)
        hashes = self.hashes(10)
        self.assertEqual(worker.call("put", hashes[:4] + hashes[5:]), [0] * 9)
        self.assertEqual(worker.call("hits", hashes), [4, [True] * 4 + [False] + [True] * 5])
        self.assertEqual(worker.call("get", hashes), [[CHUNK] * 4 + [None] + [CHUNK] * 5, []])

    def test_prefer_local_alloc(self):
        """preferred_segment is the own get_hostname()."""
        worker, = self.engine(1, mooncake_prefer_local_alloc=True)
        self.assertEqual(worker.call("put", self.hashes(5)), [0] * 5)
        self.assertEqual(worker.call("get", self.hashes(5)), [[CHUNK] * 5, []])

    def test_the_names_of_old_configurations(self):
        """device_name and master_server_address, texts for sizes, and keys that the store does not know."""
        worker, = self.engine(1, device_name="", master_server_address=MASTER, mooncake_storage_root_dir="",
                              global_segment_size="64MB", local_buffer_size="16 MB")
        self.assertEqual(worker.call("put", self.hashes(3)), [0] * 3)
        self.assertEqual(worker.call("get", self.hashes(3)), [[CHUNK] * 3, []])

    def test_a_lookup_client(self):
        worker, = self.engine(1)
        hashes = self.hashes(6)
        self.assertEqual(worker.call("put", hashes), [0] * 6)
        client = LookupClient(MASTER)
        self.assertEqual(client.code, 0)
        keys = [f"vllm@model@1@0@{one:x}@bfloat16" for one in hashes]
        self.assertEqual(client.lookup([*keys, "other"]), 6)
        self.assertEqual(client.close(), 0)

    def test_a_connector_whose_setup_failed(self):
        """The connector ignores the code: all later calls answer as with an empty cache."""
        connector = Connector(f"mooncakestore://{MASTER}/", {**BASE, "global_segment_size": "50%"})
        self.assertNotEqual(connector.code, 0)
        self.assertEqual((connector.batched_contains(["a", "b"]), connector.exists("a")), (0, False))
        self.assertLess(asyncio.run(connector.put("a", 0, CHUNK, SHAPE)), 0)
        self.assertEqual(asyncio.run(connector.get(["a"], [0], CHUNK)), [None])
        connector.close()

    def test_a_header_of_28_bytes(self):
        self.assertEqual(HEADER.size, 28)
        self.assertEqual(HostMemory(4096).length_bytes, 4096)


if __name__ == "__main__":
    if not be_worker({"WorkerProcess": WorkerProcess}):
        main()
