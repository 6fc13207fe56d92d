"""SGLang's HiCache over mooncake.store: ranks store pages, others find the longest prefix and read it, byte for byte."""

import threading
import unittest
import zlib

from connector_support import PATIENCE, StoreNode, Worker, be_worker, content
from node_support import main
from sglang import HiCache, page_keys, set_up

from mooncake.store import MooncakeDistributedStore

PAGE_TOKENS = 16


class RankProcess:
    """A rank that a test drives from another process."""

    def __init__(self, rank, rank_count, layout):
        self.cache = HiCache(rank, rank_count, layout)

    def store_pages(self, keys):
        for page, key in enumerate(keys):
            for half in range(self.cache.halves):
                self.cache.write_page(page, half, data_of(self.cache, key, half))
        return self.cache.batch_set(keys, list(range(len(keys))))

    def hit_pages(self, keys):
        return self.cache.batch_exists(keys)

    def read_pages(self, keys):
        """Number of pages that were read, and of those with wrong bytes."""
        self.cache.pool.clear()
        read = self.cache.batch_get(keys, list(range(len(keys))))
        wrong = sum(self.cache.read_page(page, half) != data_of(self.cache, key, half)
                    for page, key in enumerate(keys[:read]) for half in range(self.cache.halves))
        return [read, wrong]

    def lose_page(self, key):
        return self.cache.store.batch_remove(self.cache.names(key), True)

    def close(self):
        self.cache.close()


def data_of(cache, key, half):
    return content((key, half, 0 if cache.mla else cache.rank), cache.page_bytes)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(StoreNode())

    def keys(self, count, prompt=0):
        """Keys of a prompt that no other test has."""
        number = zlib.crc32(self.id().encode())
        return page_keys([number, prompt, *range(count * PAGE_TOKENS - 2)], PAGE_TOKENS)

    def cache(self, *arguments, **options):
        made = HiCache(*arguments, **options)
        self.addCleanup(made.close)
        return made

    def stored(self, cache, keys):
        for page, key in enumerate(keys):
            for half in range(cache.halves):
                cache.write_page(page, half, data_of(cache, key, half))
        self.assertEqual(cache.batch_set(keys, list(range(len(keys)))), [True] * len(keys))

    def check(self, cache, keys, pages):
        for page, key in zip(pages, keys):
            for half in range(cache.halves):
                self.assertEqual(cache.read_page(page, half), data_of(cache, key, half), (page, half))

    def test_pages_come_back_in_every_layout(self):
        for layout in ("page_first", "layer_first", "mla"):
            with self.subTest(layout=layout):
                cache, keys = self.cache(0, 1, layout), self.keys(20, ["page_first", "layer_first", "mla"].index(layout))
                self.assertEqual(cache.batch_exists(keys), 0)
                self.stored(cache, keys)
                self.assertEqual(cache.batch_exists(keys), 20)
                cache.pool.clear()
                pages = list(range(40, 60))
                self.assertEqual(cache.batch_get(keys, pages), 20)
                self.check(cache, keys, pages)

    def test_more_pages_than_a_batch_has(self):
        cache = self.cache(0, 1, pages=300, layers=2, run_bytes=512)
        keys = self.keys(300)
        self.stored(cache, keys)
        cache.pool.clear()
        self.assertEqual((cache.batch_exists(keys), cache.batch_get(keys, list(range(300)))), (300, 300))
        self.check(cache, keys, range(300))

    def test_a_prefix_ends_at_the_first_page_that_lacks_an_object(self):
        cache, keys = self.cache(0, 1), self.keys(10)
        self.stored(cache, keys)
        self.assertEqual(cache.store.remove(cache.names(keys[6])[1], force=True), 0)
        self.assertEqual(cache.batch_exists(keys), 6)
        self.assertEqual(cache.batch_get(keys, list(range(10))), 6)
        self.assertEqual(cache.batch_exists(self.keys(10, prompt=1)), 0)

    def test_storing_again_changes_nothing(self):
        cache, keys = self.cache(0, 1), self.keys(4)
        self.stored(cache, keys)
        for page in range(4):
            for half in range(2):
                cache.write_page(page, half, bytes(cache.page_bytes))
        self.assertEqual(cache.batch_set(keys, [0, 1, 2, 3]), [True] * 4)
        names, runs = cache.objects(keys, [0, 1, 2, 3])
        self.assertEqual(cache.put(names, runs, cache.config(keys)), [0] * 8)  # without asking first
        self.assertEqual(cache.batch_get(keys, [8, 9, 10, 11]), 4)
        self.check(cache, keys, [8, 9, 10, 11])

    def test_grouped_pages_are_pages(self):
        cache, keys = self.cache(0, 1, grouped=True), self.keys(6)
        self.stored(cache, keys)
        self.assertEqual(cache.batch_exists(keys), 6)
        cache.pool.clear()
        self.assertEqual(cache.batch_get(keys, list(range(6))), 6)
        self.check(cache, keys, range(6))

    def test_only_rank_0_stores_what_all_ranks_share(self):
        first, second = self.cache(0, 2, "mla"), self.cache(1, 2, "mla")
        keys = self.keys(5)
        self.stored(second, keys)
        self.assertEqual(second.batch_exists(keys), 0)
        self.stored(first, keys)
        self.assertEqual(second.batch_exists(keys), 5)
        second.pool.clear()
        self.assertEqual(second.batch_get(keys, list(range(5))), 5)
        self.check(second, keys, range(5))

    def test_a_reader_and_a_writer_side_by_side(self):
        cache, failures = self.cache(0, 1, pages=128), []
        prompts = [self.keys(8, prompt) for prompt in range(8)]
        ready = [threading.Event() for _ in prompts]

        def back_up():
            try:
                for number, keys in enumerate(prompts):
                    pages = list(range(number * 8, number * 8 + 8))
                    for page, key in zip(pages, keys):
                        for half in range(2):
                            cache.write_page(page, half, data_of(cache, key, half))
                    self.assertEqual(cache.batch_set(keys, pages), [True] * 8)
                    ready[number].set()
            except AssertionError as failure:
                failures.append(failure)
                for event in ready:
                    event.set()

        writer = threading.Thread(target=back_up)
        writer.start()
        for number, keys in enumerate(prompts):
            self.assertTrue(ready[number].wait(60 * PATIENCE))
            if failures:
                break
            pages = list(range(64 + number * 8, 72 + number * 8))
            self.assertEqual(cache.batch_get(keys, pages), 8)
            self.check(cache, keys, pages)
        writer.join()
        self.assertEqual(failures, [])

    def test_clearing(self):
        cache, keys = self.cache(0, 1), self.keys(3)
        self.stored(cache, keys)
        self.assertGreaterEqual(cache.clear(), 6)
        self.assertEqual(cache.batch_exists(keys), 0)

    def test_a_keyword_of_tomorrow_is_dropped(self):
        store = MooncakeDistributedStore()
        self.addCleanup(store.close)
        kept = set_up(store, 1 << 20, options={"tenant_id": "default", "keyword_of_tomorrow": 1})
        self.assertEqual(kept, {"tenant_id": "default"})

    def test_an_engine_is_shared(self):
        from mooncake.engine import TransferEngine

        engine = TransferEngine()
        self.assertEqual(engine.initialize("localhost", "P2PHANDSHAKE", "rdma", ""), 0)
        store = MooncakeDistributedStore()
        self.addCleanup(store.close)
        set_up(store, 1 << 20, engine=engine.get_engine())
        self.assertEqual(store.put("sglang-engine", b"x"), 0)

    def test_ranks_in_processes_agree_on_the_shortest_prefix(self):
        keys = self.keys(12)
        with Worker(RankProcess, 0, 2, "page_first") as first, Worker(RankProcess, 1, 2, "page_first") as second:
            ranks = (first, second)
            for rank in ranks:
                self.assertEqual(rank.call("store_pages", keys), [True] * 12)
            self.assertEqual([rank.call("hit_pages", keys) for rank in ranks], [12, 12])
            second.call("lose_page", keys[7])
            hit = min(rank.call("hit_pages", keys) for rank in ranks)
            self.assertEqual(hit, 7)
            for rank in ranks:
                rank.start("read_pages", keys[:hit])
            self.assertEqual([rank.hear() for rank in ranks], [[7, 0], [7, 0]])

    def test_what_a_rank_contributed_goes_with_it_and_comes_again(self):
        keys = self.keys(6)
        with Worker(RankProcess, 0, 1, "page_first") as before:
            before.call("store_pages", keys)
            before.kill()
        with Worker(RankProcess, 0, 1, "page_first") as after:
            self.assertIn(after.call("hit_pages", keys), range(7))  # its own pages may be lost
            self.assertEqual(after.call("store_pages", keys), [True] * 6)
            self.assertEqual(after.call("read_pages", keys), [6, 0])


if __name__ == "__main__":
    if not be_worker({"RankProcess": RankProcess}):
        main()
