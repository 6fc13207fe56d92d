"""vLLM's MooncakeStoreConnector over mooncake.store: ranks store blocks, other engines look them up and load them."""

import json
import os
import tempfile
import unittest
import zlib

from connector_support import MASTER, MIB, StoreNode, Worker, be_worker, content
from node_support import main
from vllm import NO_SPACE, Rank, StoreConfig, block_hashes, size_of

BLOCK_TOKENS = 16


def configured(**other):
    """Writes the file of MOONCAKE_CONFIG_PATH; returns its name."""
    given = {"metadata_server": "P2PHANDSHAKE", "master_server_address": MASTER, "protocol": "rdma", "device_name": "mlx5_0",
             "global_segment_size": "64mb", "local_buffer_size": "16mb", **other}
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as file:
        json.dump(given, file)
    os.environ["MOONCAKE_CONFIG_PATH"] = file.name
    return file.name


class RankProcess:
    """A rank that a test drives from another process."""

    def __init__(self, rank, size, options):
        self.rank = Rank(rank, size, **options)

    def data(self, hash_text):
        return content((hash_text, self.rank.tp_rank // self.rank.replication), self.rank.cache.block_bytes)

    def save(self, request, hashes):
        for block, one in enumerate(hashes):
            self.rank.cache.write(block, self.data(one))
        return self.rank.save(request, hashes, list(range(len(hashes))))

    def lookup(self, hashes, token_count=None):
        return self.rank.lookup(hashes, BLOCK_TOKENS, token_count)

    def load(self, requests):
        """[[request, hashes], ...], into blocks from the last one on: failed blocks of each, and number of those with wrong bytes."""
        self.rank.cache.memory.clear()
        tasks, block = [], self.rank.cache.blocks
        for request, hashes in requests:
            block -= len(hashes)
            tasks.append([request, hashes, list(range(block, block + len(hashes)))])
        failed = self.rank.load(tasks)
        wrong = sum(self.rank.cache.read(at) != self.data(one) for request, hashes, blocks in tasks
                    for one, at in zip(hashes, blocks) if at not in failed[request])
        return [[[at - blocks[0] for at in failed[request]] for request, _, blocks in tasks], wrong]

    def forget(self, hash_text):
        return self.rank.store.remove(self.rank.key(hash_text), True)

    def reset(self):
        return self.rank.reset()

    def tiers(self):
        return self.rank.tiers

    def close(self):
        self.rank.close()


class Blocks(unittest.TestCase):
    options = {"layers": 4, "blocks": 128, "run_bytes": 4096}

    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())
        cls.addClassCleanup(os.unlink, configured())
        cls.addClassCleanup(os.environ.pop, "MOONCAKE_CONFIG_PATH")

    def hashes(self, count, prompt=0):
        """Hashes of a prompt that no other test has."""
        number = zlib.crc32(self.id().encode())
        return block_hashes([number, prompt, *range(count * BLOCK_TOKENS - 2)], BLOCK_TOKENS)

    def engine(self, size, **options):
        return [self.enterContext(Worker(RankProcess, rank, size, {**self.options, **options})) for rank in range(size)]

    def everywhere(self, ranks, name, *arguments):
        for rank in ranks:
            rank.start(name, *arguments)
        return [rank.hear() for rank in ranks]

    def test_an_engine_reads_what_another_stored(self):
        """Four ranks store, four of a second engine look up and load, with several receivers at once."""
        first, second = self.engine(4), self.engine(4)
        prompts = [self.hashes(20, prompt) for prompt in range(4)]
        self.assertEqual(second[0].call("lookup", prompts[0]), [0, 0])
        for number, hashes in enumerate(prompts):
            self.assertEqual(self.everywhere(first, "save", f"r{number}", hashes), [20] * 4)
        self.assertEqual(second[0].call("lookup", prompts[0]), [20, 320])
        self.assertEqual(second[0].call("lookup", prompts[0], 320), [20, 319])
        self.assertEqual(second[0].call("lookup", self.hashes(30, 0)), [20, 320])
        answers = self.everywhere(second, "load", [[f"r{number}", hashes] for number, hashes in enumerate(prompts)])
        self.assertEqual(answers, [[[[], [], [], []], 0]] * 4)
        self.assertEqual(self.everywhere(second, "save", "again", prompts[0]), [0] * 4)

    def test_layouts(self):
        """K and V apart, blocks first, one layer, and pieces of odd sizes."""
        for number, options in enumerate(({"blocks_first": True}, {"layers": 1, "run_bytes": 40_000},
                                          {"layers": 64, "run_bytes": 81})):
            with self.subTest(options):
                first, second = self.engine(1, **options)[0], self.engine(1, **options)[0]
                hashes = self.hashes(25, number)
                self.assertEqual(first.call("save", "r", hashes), 25)
                self.assertEqual(second.call("load", [["r", hashes]]), [[[]], 0])

    def test_ranks_that_share_keys_stripe_their_writes(self):
        """GQA with two KV heads on four ranks: two ranks hold the same bytes and each writes half of them."""
        ranks = self.engine(4, kv_ranks=2)
        hashes = self.hashes(10)
        self.assertEqual(self.everywhere(ranks, "save", "r", hashes), [5] * 4)
        self.assertEqual(ranks[0].call("lookup", hashes), [10, 160])
        self.assertEqual(self.everywhere(ranks, "load", [["r", hashes]]), [[[[]], 0]] * 4)

    def test_one_rank_that_lacks_a_block_ends_the_prefix(self):
        ranks = self.engine(2)
        hashes = self.hashes(12)
        self.assertEqual(self.everywhere(ranks, "save", "r", hashes), [12, 12])
        self.assertEqual(ranks[1].call("forget", hashes[7]), 0)
        self.assertEqual(ranks[0].call("lookup", hashes), [7, 112])

    def test_a_block_that_is_gone_is_a_load_error(self):
        """A negative entry names the block; the others are loaded."""
        first, second = self.engine(1)[0], self.engine(1)[0]
        hashes = self.hashes(12)
        self.assertEqual(first.call("save", "r", hashes), 12)
        self.assertEqual(first.call("forget", hashes[5]), 0)
        self.assertEqual(second.call("load", [["r", hashes]]), [[[5]], 0])

    def test_tiers_are_logged(self):
        rank = self.engine(1, tier_log=True)[0]
        hashes = self.hashes(10)
        self.assertEqual(rank.call("save", "r", hashes), 10)
        self.assertEqual(rank.call("load", [["r", hashes]]), [[[]], 0])
        self.assertEqual(rank.call("tiers"), {"memory": 10, "disk": 0, "local_disk": 0})

    def test_a_preferred_segment(self):
        """MOONCAKE_PREFERRED_SEGMENT is another's get_hostname()."""
        there = self.engine(1)[0]
        os.environ["MOONCAKE_PREFERRED_SEGMENT"] = "127.0.0.1:1"  # a segment that does not exist
        self.addCleanup(os.environ.pop, "MOONCAKE_PREFERRED_SEGMENT")
        here = self.engine(1)[0]
        hashes = self.hashes(5)
        self.assertEqual(here.call("save", "r", hashes), 5)
        self.assertEqual(there.call("load", [["r", hashes]]), [[[]], 0])

    def test_offload_cuts_batches(self):
        self.addCleanup(os.environ.__setitem__, "MOONCAKE_CONFIG_PATH", os.environ["MOONCAKE_CONFIG_PATH"])
        self.addCleanup(os.unlink, configured(enable_offload=True))
        os.environ["VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO"] = "0.0001"
        self.addCleanup(os.environ.pop, "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO")
        rank = self.engine(1)[0]
        hashes = self.hashes(20)
        self.assertEqual(rank.call("save", "r", hashes), 20)
        self.assertEqual(rank.call("load", [["r", hashes]]), [[[]], 0])

    def test_an_engine_that_is_killed(self):
        """A rank that is killed while it stores and loads: the others go on, and read whole blocks or none."""
        first, second = self.engine(1)[0], self.engine(1)[0]
        hashes = self.hashes(40)
        self.assertEqual(first.call("save", "r", hashes), 40)
        second.start("load", [["r", hashes]] * 3)
        second.kill()
        third = self.engine(1)[0]
        self.assertEqual(third.call("load", [["r", hashes]])[1], 0)  # values that the second contributed are lost with it
        self.assertEqual(first.call("save", "again", hashes) + first.call("lookup", hashes)[0] >= 40, True)
        self.assertEqual(third.call("load", [["r", hashes]]), [[[]], 0])

    def test_reset(self):
        """remove_all(force=True) while values are leased."""
        rank = self.engine(1)[0]
        hashes = self.hashes(8)
        self.assertEqual(rank.call("save", "r", hashes), 8)
        self.assertEqual(rank.call("lookup", hashes), [8, 128])
        self.assertGreaterEqual(rank.call("reset"), 8)
        self.assertEqual(rank.call("lookup", hashes), [0, 0])


class Pressure(unittest.TestCase):
    def test_no_space_pauses_the_request(self):
        """-200: the sender backs off from that request, and continues when a later batch succeeds."""
        with StoreNode(memory="64MiB", lease="3s"):
            self.addCleanup(os.unlink, configured(global_segment_size="16mb"))
            self.addCleanup(os.environ.pop, "MOONCAKE_CONFIG_PATH")
            with Worker(Held, {"layers": 4, "blocks": 64, "run_bytes": 64 << 10}) as rank:  # 512 KiB a block
                self.assertEqual(rank.call("scenario"), "done")


class Held:
    def __init__(self, options):
        self.rank = Rank(0, 1, **options)

    def scenario(self):
        import time

        rank = self.rank
        names = [block_hashes([prompt, *range(BLOCK_TOKENS * 24 - 1)], BLOCK_TOKENS) for prompt in range(3)]
        first = rank.save("first", names[0], list(range(24)))  # 12 of 16 MiB
        assert first == 24 and not rank.paused, first
        deadline = time.monotonic() + 60
        while not rank.paused:  # leased values are not evicted
            rank.lookup(names[0])
            got = rank.save("second", names[1], list(range(24)))
            assert time.monotonic() < deadline, got
        assert rank.save("second", names[1], list(range(24))) == 0  # is skipped
        number = 0
        while rank.paused:
            time.sleep(0.1)
            rank.save(f"third{number}", names[2], list(range(24)))
            number += 1
            assert time.monotonic() < deadline
        assert not rank.skipped_requests
        assert rank.lookup(names[2])[0] == 24
        return "done"

    def close(self):
        self.rank.close()


class Config(unittest.TestCase):
    def read(self, **other):
        self.addCleanup(os.unlink, configured(**other))
        self.addCleanup(os.environ.pop, "MOONCAKE_CONFIG_PATH", None)
        return StoreConfig()

    def test_sizes(self):
        self.assertEqual([size_of(text) for text in (7, "7", "2kb", "3 MB", "4GB", "5b")],
                         [7, 7, 2 << 10, 3 << 20, 4 << 30, 5])
        self.assertEqual(self.read().segment_bytes, 64 * MIB)

    def test_modes(self):
        self.assertEqual(self.read(mode="standalone-store", global_segment_size=0).segment_bytes, 0)
        for wrong in ({"mode": "standalone-store"}, {"global_segment_size": 0}, {"mode": "other"}, {"local_buffer_size": 0}):
            with self.assertRaises(ValueError):
                self.read(**wrong)

    def test_hashes_are_vllms(self):
        """engines.md 2.2: tokens 1..16 and 17..32."""
        self.assertEqual(block_hashes(list(range(1, 33)), 16), [
            "7b255da405e1d722823892e4fef187b4d8ac78215d7f0dd2137bb037547f4caf",
            "8e717becdc2054b7a3223b7b844f462c0db0ac86287b752b16d077ad0843c577"])
        self.assertEqual(NO_SPACE, -200)


if __name__ == "__main__":
    if not be_worker({"RankProcess": RankProcess, "Held": Held}):
        main()
