"""sluice.sglang over a stand-in for SGLang (sglang_standin): which bytes are stored under which key, which ranks share them, and that a
failing node is a miss. tests/engines/sglang_native.py drives the same with SGLang's own classes."""

import logging
import os
import signal
import time
import types
from unittest import mock

import python_support
from python_support import sluice, weights_make
import sglang_standin as standin
from node_support import PACE, PATIENCE, Node, free_port, main, wait_until

standin.install()

from sluice.sglang import SluiceHiCache, node as node_module, options, plans  # noqa: E402
from sglang_standin import Config, MHATokenToKVPoolHost, MLATokenToKVPoolHost, Pool, PoolHitPolicy, PoolName, PoolTransfer  # noqa: E402

PAGE, PAGES, LAYERS, HEADS, DIM = 4, 8, 3, 4, 16
KEYS = [f"hash{number}" for number in range(PAGES)]


def indices(*pages, page=PAGE):
    return standin.Tensor(standin.array.array("q", [number * page + i for number in pages for i in range(page)]))


def mha(layout="page_first", heads=HEADS):
    return MHATokenToKVPoolHost(layout, PAGE, PAGES, LAYERS, heads, DIM)


def fill(pool):
    pool.kv_buffer.values[:] = os.urandom(len(pool.kv_buffer.values))
    return pool


def heads_of(pool, page, first, count):
    """{(half, layer, token, head): bytes} of a page of an MHA pool, heads numbered from `first` on, as its layout says."""
    order = {"layer_first": "hltn", "page_first_direct": "hltn", "page_first": "htln", "page_head": "hntl"}[pool.layout]
    if pool.layout == "layer_first":
        whole = b"".join(bytes(pool.piece(2 * layer + half, page)) for half in (0, 1) for layer in range(LAYERS))
    else:
        whole = pool.page(page)
    sizes, cells = {"h": 2, "l": LAYERS, "t": PAGE, "n": count}, {}
    for number in range(2 * LAYERS * PAGE * count):
        at, rest = {}, number
        for name in reversed(order):
            rest, at[name] = divmod(rest, sizes[name])
        cells[at["h"], at["l"], at["t"], at["n"] + first] = whole[number * DIM:(number + 1) * DIM]
    return cells


class OnNode(python_support.OnNode):
    def where(self, node=None):
        node = node or self.node
        return {"instance": node.instance, "settings": {"runtime_dir": node.directory + "/run", "shm_dir": node.shm}, "interface_v1": 1}

    def store(self, pool, extra=(), node=None, **config):
        store = SluiceHiCache(Config(extra_config={**self.where(node), **dict(extra)}, **config))
        self.addCleanup(store.close)
        store.register_mem_pool_host(pool)
        return store


class Pages(OnNode):
    def test_every_layout_gives_back_what_it_stored(self):
        for layout in plans.ORDERS:
            with self.subTest(layout):
                pool = fill(mha(layout))
                store = self.store(pool, {"extra_backend_tag": layout})
                before = [pool.page(page) for page in range(PAGES)]
                self.assertEqual(store.batch_exists(KEYS), 0)
                self.assertEqual(store.batch_set_v1(KEYS[:3], indices(5, 1, 2)), [True] * 3)
                self.assertEqual(store.batch_exists(KEYS), 3)
                self.assertEqual(store.batch_get_v1(KEYS[:4], indices(0, 3, 4, 7)), [True] * 3 + [False])
                self.assertEqual([pool.page(page) for page in (0, 3, 4)], [before[5], before[1], before[2]])
                for page in (1, 2, 5, 6, 7):
                    self.assertEqual(pool.page(page), before[page])

    def test_a_page_is_one_object(self):
        self.store(fill(mha())).batch_set_v1(KEYS, indices(*range(PAGES)))
        self.assertEqual(len(self.client.list()), PAGES)

    def test_layer_first_and_page_first_direct_share(self):
        one, other = fill(mha("layer_first")), mha("page_first_direct")
        self.store(one).batch_set_v1(KEYS[:1], indices(3))
        self.assertEqual(self.store(other).batch_get_v1(KEYS[:1], indices(6)), [True])
        self.assertEqual(heads_of(other, 6, 0, HEADS), heads_of(one, 3, 0, HEADS))

    def test_ranks_of_another_number_share_heads(self):
        for layout in plans.ORDERS:
            with self.subTest(layout):
                extra = {"extra_backend_tag": layout}
                one, rank = fill(mha(layout)), [mha(layout, HEADS // 2) for _ in (0, 1)]
                whole = self.store(one, extra, tp_lcm_size=2)
                parts = [self.store(rank[number], extra, tp_rank=number, tp_size=2, tp_lcm_size=2) for number in (0, 1)]
                whole.batch_set_v1(KEYS[:1], indices(2))
                for number in (0, 1):
                    self.assertEqual(parts[number].batch_get_v1(KEYS[:1], indices(4)), [True])
                got = {**heads_of(rank[0], 4, 0, 2), **heads_of(rank[1], 4, 2, 2)}
                self.assertEqual(got, heads_of(one, 2, 0, HEADS))
                fill(rank[0]), fill(rank[1])
                parts[0].batch_set_v1(KEYS[1:2], indices(0))
                self.assertEqual(whole.batch_exists(KEYS[1:2]), 0)  # half of the heads is no page
                parts[1].batch_set_v1(KEYS[1:2], indices(7))
                self.assertEqual(whole.batch_get_v1(KEYS[1:2], indices(5)), [True])
                self.assertEqual(heads_of(one, 5, 0, HEADS), {**heads_of(rank[0], 0, 0, 2), **heads_of(rank[1], 7, 2, 2)})

    def test_ranks_that_share_heads_share_objects(self):
        pools = [fill(mha(heads=1)) for _ in range(4)]
        stores = [self.store(pool, {"kv_heads": 2}, tp_rank=rank, tp_size=4) for rank, pool in enumerate(pools)]
        stores[0].batch_set_v1(KEYS[:1], indices(0))
        self.assertEqual([store.batch_exists(KEYS[:1]) for store in stores], [1, 1, 0, 0])
        with self.assertRaisesRegex(ValueError, "kv_heads"):
            self.store(mha(heads=2), {"kv_heads": 3}, tp_size=4)

    def test_latent_pages_are_stored_once_for_all_ranks(self):
        pools = [fill(MLATokenToKVPoolHost(PAGE, PAGES, [96])) for _ in (0, 1)]
        stores = [self.store(pool, tp_rank=rank, tp_size=2, is_mla_model=True) for rank, pool in enumerate(pools)]
        stores[0].batch_set_v1(KEYS[:1], indices(0))
        self.assertEqual(stores[1].batch_get_v1(KEYS[:1], indices(3)), [True])
        self.assertEqual(pools[1].page(3), pools[0].page(0))
        self.assertEqual(len(self.client.list()), 1)

    def test_what_gives_bytes_another_meaning_is_in_the_keys(self):
        self.store(fill(mha())).batch_set_v1(KEYS[:1], indices(0))
        other_dtype, other_stage = mha(), mha()
        other_dtype.kv_buffer.dtype = "float32"
        other_stage.start_layer, other_stage.end_layer = 2, 4
        for pool, extra, config in ((mha(), {"model": "b"}, {}), (mha(), {"extra_backend_tag": "b"}, {}), (mha(), {}, {"model_name": "b"}),
                                    (mha("page_head"), {}, {}), (mha(heads=2), {}, {}), (other_dtype, {}, {}), (other_stage, {}, {}),
                                    (mha(heads=2), {}, {"tp_size": 2}), (mha(), {}, {"attn_cp_size": 2})):
            self.assertEqual(self.store(pool, extra, **config).batch_exists(KEYS[:1]), 0)
        self.assertEqual(self.store(mha()).batch_exists(KEYS[:1]), 1)

    def test_settings_that_give_bytes_another_meaning_are_in_the_keys(self):
        """Both kinds of FP8 are in pools of bytes, so neither the pool's type nor its sizes distinguish them."""
        def told(of, **settings):
            before = dict(vars(of))
            vars(of).update(settings)
            try:
                return self.store(mha()).batch_exists(KEYS[:1])
            finally:
                vars(of).update(before)

        self.store(fill(mha())).batch_set_v1(KEYS[:1], indices(0))
        for settings in ({"kv_cache_dtype": "fp8_e5m2"}, {"kv_cache_dtype": "fp8_e4m3"}, {"quantization": "fp8"}, {"revision": "v2"},
                         {"json_model_override_args": '{"rope_theta": 1}'}, {"quantization_param_path": "scales.json"}, {"load_format": "dummy"},
                         {"load_format": "remote", "model_loader_extra_config": '{"from": "there"}'}):
            self.assertEqual(told(standin.MODEL, **settings), 0, settings)
        self.assertEqual(told(standin.SPEC, speculative_draft_model_path="draft"), 0)
        self.assertEqual(told(standin.SPEC, speculative_draft_model_path="model"), 1)
        self.assertEqual(told(standin.MODEL), 1)

    def test_weights_are_in_the_keys_and_not_their_path(self):
        """Weights of the model, of a draft, and of adapters: SGLang's own keys only have an adapter's name and path."""
        one, two, other = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))
        adapter = [[types.SimpleNamespace(lora_name="a", lora_path=path)] for path in (one, two, other)]

        def store(model=one, model_name="served", **settings):
            with mock.patch.multiple(standin.MODEL, model_path=model, **settings):
                return self.store(fill(mha()), model_name=model_name)

        store().batch_set_v1(KEYS[:1], indices(0))
        self.assertEqual(store(two, "served by another name", revision="said of a path").batch_exists(KEYS[:1]), 1)
        self.assertEqual(store(other).batch_exists(KEYS[:1]), 0)
        self.assertEqual(store(load_format="dummy").batch_exists(KEYS[:1]), 0)
        os.symlink("loop.safetensors", os.path.join(other, "loop.safetensors"))
        with self.assertRaisesRegex(ValueError, "loop.safetensors: .*setting `model`"):
            store(other)
        with mock.patch.object(standin.MODEL, "model_path", other):  # which helps
            self.store(mha(), {"model": "mine"})
        os.unlink(os.path.join(other, "loop.safetensors"))
        with mock.patch.object(standin.SPEC, "speculative_draft_model_path", two):
            store().batch_set_v1(KEYS[1:2], indices(0))
            self.assertEqual(store().batch_exists(KEYS[1:2]), 1)
        with mock.patch.object(standin.SPEC, "speculative_draft_model_path", other):
            self.assertEqual(store().batch_exists(KEYS[1:2]), 0)
        with mock.patch.object(standin.LORA, "lora_paths", adapter[0]):
            store().batch_set_v1(KEYS[2:3], indices(0))
        for path, there in zip(adapter, (1, 1, 0)):
            with mock.patch.object(standin.LORA, "lora_paths", path):
                self.assertEqual(store().batch_exists(KEYS[2:3]), there)

    def test_pages_that_are_no_pages_fail_and_touch_nothing(self):
        pool = fill(mha())
        store, before = self.store(pool), bytes(pool.kv_buffer.values)
        self.assertEqual(store.batch_set_v1(KEYS[:1], indices(PAGES)), [False])
        self.assertEqual(store.batch_set_v1(KEYS[:1], standin.Tensor(standin.array.array("q", [1, 2, 3, 4]))), [False])
        self.assertEqual(self.client.list(), [])
        self.assertEqual(store.batch_get_v1(KEYS[:1], indices(PAGES)), [False])
        self.assertEqual(bytes(pool.kv_buffer.values), before)

    def test_a_pool_whose_pages_lie_unevenly_is_refused(self):
        pool = mha()
        meta = pool.get_page_buffer_meta
        pool.get_page_buffer_meta = lambda told: ([at + 1 * (told.tolist()[0] == PAGES // 2 * PAGE) for at in meta(told)[0]], meta(told)[1])
        with self.assertRaisesRegex(ValueError, "evenly spaced"):
            self.store(pool)

    def test_pages_go_through_tensors_under_the_same_keys(self):
        pool = fill(mha())
        flat, direct = self.store(pool, {"interface_v1": 0}), self.store(pool)
        self.assertTrue(flat.batch_set(KEYS[:2], [standin.Tensor(bytearray(pool.page(page))) for page in (4, 5)]))
        self.assertEqual(direct.batch_get_v1(KEYS[:2], indices(0, 1)), [True, True])
        self.assertEqual((pool.page(0), pool.page(1)), (pool.page(4), pool.page(5)))
        direct.batch_set_v1(KEYS[2:3], indices(6))
        got = flat.batch_get(KEYS[2:4], [pool.get_dummy_flat_data_page() for _ in (0, 1)])
        self.assertEqual((bytes(got[0].values), got[1]), (pool.page(6), None))
        self.assertTrue(flat.exists(KEYS[0]))
        self.assertFalse(flat.set(KEYS[5], standin.Tensor(bytearray(3))))
        self.assertIsNone(flat.get(KEYS[5]))

    def test_the_figures_count_what_was_moved(self):
        store = self.store(fill(mha()))
        store.batch_set_v1(KEYS[:4], indices(0, 1, 2, 3))
        store.batch_set_v1(KEYS[:4], indices(0, 1, 2, 3))
        store.batch_set_v1(KEYS[:6], indices(0, 1, 2, 3, 4, 5))
        store.batch_get_v1(KEYS, indices(*range(PAGES)))
        told = store.get_stats()
        self.assertEqual((told.backup_pgs, told.prefetch_pgs), ([4, 2], [6]))
        self.assertTrue(all(speed > 0 for speed in told.backup_bandwidth + told.prefetch_bandwidth))
        self.assertEqual(store.get_stats().backup_pgs, [])

    def test_clear_removes_this_model_alone(self):
        store, other = self.store(fill(mha())), self.store(fill(mha()), {"model": "b"})
        for one in (store, other):
            one.batch_set_v1(KEYS, indices(*range(PAGES)))
        store.clear()
        self.assertEqual((store.batch_exists(KEYS), other.batch_exists(KEYS)), (0, PAGES))


class Hybrid(OnNode):
    def setUp(self):
        super().setUp()
        self.kv, self.index, self.states = (fill(pool) for pool in (MLATokenToKVPoolHost(PAGE, PAGES, [96]), Pool(PAGE, PAGES, [32]),
                                                                    Pool(1, PAGES, [64, 16, 8])))
        self.hybrid = self.store_of(0)

    def store_of(self, rank):
        store = self.store(self.kv, is_mla_model=True, tp_rank=rank, tp_size=2)
        for name, pool in ((PoolName.KV, self.kv), (PoolName.INDEXER, self.index), (PoolName.MAMBA, self.states)):
            store.register_mem_host_pool_v2(pool, name)
        return store

    def write(self, pages, index, states):
        """states: numbers of pages after which there is a state."""
        self.hybrid.batch_set_v1(KEYS[:pages], indices(*range(pages)))
        told = [PoolTransfer(PoolName.INDEXER, indices(*range(index)), KEYS[:index])]
        told += [PoolTransfer(PoolName.MAMBA, indices(*states, page=1), [KEYS[number - 1] for number in states])] if states else []
        return self.hybrid.batch_set_v2(told)

    def found(self, window=1, store=None):
        wanted = [PoolTransfer(PoolName.INDEXER, keys=KEYS),
                  PoolTransfer(PoolName.MAMBA, keys=KEYS[-window:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]
        return (store or self.hybrid).batch_exists_v2(KEYS, wanted)

    def test_each_pool_says_where_a_prefix_may_end(self):
        self.assertEqual(self.write(7, 6, [2, 3, 5]), {PoolName.INDEXER: [True] * 6, PoolName.MAMBA: [True] * 3})
        told = self.found()
        self.assertEqual((told.kv_hit_pages, told.restorable_prefix_pages), (5, [2, 3, 5]))
        self.assertEqual(told.extra_pool_hit_pages, {PoolName.KV: 7, PoolName.INDEXER: 6, PoolName.MAMBA: 5})
        self.assertEqual(self.found(window=2).restorable_prefix_pages, [3])

    def test_without_a_state_there_is_no_hit(self):
        self.write(7, 6, [])
        told = self.found()
        self.assertEqual((told.kv_hit_pages, told.restorable_prefix_pages), (0, []))

    def test_a_window_that_begins_before_the_prefix_is_what_there_is(self):
        self.write(7, 7, [1, 2])
        self.assertEqual(self.found(window=3).restorable_prefix_pages, [1, 2])

    def test_states_belong_to_a_rank(self):
        self.write(7, 7, [7])
        self.assertEqual(self.found(store=self.store_of(1)).restorable_prefix_pages, [])

    def test_bytes_of_all_pools_come_back(self):
        self.write(4, 4, [4])
        want = [self.kv.page(1), self.index.page(2), self.states.page(4)]
        got = self.hybrid.batch_get_v2([PoolTransfer(PoolName.INDEXER, indices(7, 6), [KEYS[2], "nobody"]),
                                        PoolTransfer(PoolName.MAMBA, indices(0, page=1), [KEYS[3]])])
        self.assertEqual(got, {PoolName.INDEXER: [True, False], PoolName.MAMBA: [True]})
        self.hybrid.batch_get_v1([KEYS[1]], indices(7))
        self.assertEqual([self.kv.page(7), self.index.page(7), self.states.page(0)], want)

    def test_a_cache_without_memory_of_its_own_holds_indices_alone(self):
        logical = mha()
        logical.kv_buffer = None
        store = self.store(logical, is_mla_model=True)
        store.register_mem_host_pool_v2(self.index, PoolName.INDEXER)
        self.assertEqual(store.batch_set_v1(KEYS, indices(*range(PAGES))), [True] * PAGES)
        self.assertEqual(store.batch_exists_v2(KEYS, [PoolTransfer(PoolName.INDEXER, keys=KEYS)]).kv_hit_pages, 0)
        store.batch_set_v2([PoolTransfer(PoolName.INDEXER, indices(0, 1), KEYS[:2])])
        self.assertEqual(store.batch_exists_v2(KEYS, [PoolTransfer(PoolName.INDEXER, keys=KEYS)]).kv_hit_pages, 2)


class Peers(OnNode):
    """Two nodes that are peers, here on one host."""

    def peer(self, name, ports, other, other_ports):
        node = Node(ranks=1, memory="64MiB", settings=[
            "--node-name", name, "--peers", f"{other}@127.0.0.1:{other_ports[0]}", "--cluster-listen", f"127.0.0.1:{ports[0]}", "--fabric", "tcp",
            "--fabric-address", f"127.0.0.1:{ports[1]}", "--cluster-plaintext", "true", "--peer-timeout", "20s"])
        node.__enter__()
        self.addCleanup(node.__exit__)
        return node

    def store(self, pool, *how, path, **more):
        with mock.patch.object(standin.MODEL, "model_path", path):
            return super().store(pool, *how, **more)

    def test_pages_of_another_node_are_hits_where_peers_are_asked(self):
        """Its model is at another path; other weights are also a miss there."""
        ports = [free_port() for _ in range(4)]
        nodes = [self.peer("a", ports[:2], "b", ports[2:]), self.peer("b", ports[2:], "a", ports[:2])]
        pools, paths = [fill(mha()), fill(mha())], [weights_make(self, "weights") for _ in range(2)]
        stores = [self.store(pool, node=node, path=path) for pool, node, path in zip(pools, nodes, paths)]
        alone = self.store(mha(), {"peers": False}, node=nodes[1], path=paths[1])
        other = self.store(mha(), node=nodes[1], path=weights_make(self, "WEIGHTS"))
        stores[0].batch_set_v1(KEYS[:3], indices(1, 2, 3))
        wait_until(lambda: stores[1].batch_exists(KEYS) == 3, 60, "b learns of a's pages")
        self.assertEqual((alone.batch_exists(KEYS), other.batch_exists(KEYS)), (0, 0))
        self.assertEqual(stores[1].batch_get_v1(KEYS[:4], indices(4, 5, 6, 7)), [True] * 3 + [False])
        self.assertEqual([pools[1].page(page) for page in (4, 5, 6)], [pools[0].page(page) for page in (1, 2, 3)])


class Failures(OnNode):
    def lines(self, call):
        with self.assertLogs(node_module.logger, logging.INFO) as caught:
            call()
        return caught.output

    def test_a_node_that_was_stopped_is_a_miss_said_once_and_comes_back(self):
        with Node(ranks=1, memory="64MiB") as node:
            store = self.store(fill(mha()), node=node)
            store.batch_set_v1(KEYS[:1], indices(0))
            node.stop()

            def without():
                for _ in range(3):
                    began = time.monotonic()
                    self.assertEqual(store.batch_set_v1(KEYS[1:3], indices(1, 2)), [False, False])
                    self.assertEqual(store.batch_exists(KEYS[1:3]), 0)
                    self.assertLess(time.monotonic() - began, 3 * PATIENCE)

            said = self.lines(without)
            self.assertEqual(len(said), 1, said)
            self.assertIn("storing fails", said[0])
            node.start()
            time.sleep(1.1)  # after a failure it was not asked for `retry`
            said = self.lines(lambda: wait_until(lambda: store.batch_set_v1(KEYS[1:2], indices(1)) == [True], 10, "it works again"))
            self.assertIn("works again", said[-1])

    def test_an_actor_that_stands_still_costs_a_deadline_at_most(self):
        with Node(ranks=1, memory="64MiB") as node:
            pool = fill(mha())
            store = self.store(pool, {"timeout": 1 * PACE}, node=node)
            wait_until(lambda: store.batch_set_v1(KEYS[:1], indices(0)) == [True], 10, "it is stored")
            os.kill(node.pid("registrar"), signal.SIGSTOP)
            began = time.monotonic()
            stored = store.batch_set_v1(KEYS[1:2], indices(1))[0]  # the supervisor may have replaced it by then
            self.assertLess(time.monotonic() - began, 2 * PATIENCE)
            self.assertIn(store.batch_exists(KEYS), (1 + stored, 2))  # a store without an answer may be carried out later
            self.assertEqual(store.batch_get_v1(KEYS[:1], indices(5)), [True])
            self.assertEqual(pool.page(5), pool.page(0))
            wait_until(lambda: store.batch_set_v1(KEYS[2:3], indices(2)) == [True], 20, "pages are stored again")

    def test_no_room_is_said_once(self):
        with Node(ranks=1, memory="1MiB") as node:
            pool = fill(MLATokenToKVPoolHost(PAGE, PAGES, [1 << 20]))
            store = self.store(pool, node=node)
            said = self.lines(lambda: [self.assertEqual(store.batch_set_v1(KEYS, indices(*range(PAGES))), [False] * PAGES) for _ in (1, 2)])
            self.assertEqual(len(said), 1, said)

    def test_a_node_that_is_silent_is_left_alone(self):
        trouble = node_module.CallHealth("storing", retry=60)
        self.assertFalse(trouble.quiet())
        self.lines(lambda: trouble.failed(1, sluice.Code.NO_SPACE, "no room"))
        self.assertFalse(trouble.quiet())
        trouble.failed(1, sluice.Code.TIMEOUT, "no answer")
        self.assertTrue(trouble.quiet())
        self.lines(trouble.fine)
        self.assertFalse(trouble.quiet())

    def test_no_node_is_an_error_at_the_start(self):
        with self.assertRaises(sluice.UnreachableError):
            SluiceHiCache(Config(extra_config={**self.where(), "settings": {"runtime_dir": self.node.directory + "/none"}}))

    def test_options_are_strict(self):
        for extra, said in (({"timeuot": 1}, "timeuot"), ({"timeout": "x"}, "timeout"), ({"timeout": 0}, "timeout"), ({"peers": 2}, "peers"),
                            ({"peers": "flase"}, "peers"), ({"kv_heads": 0}, "kv_heads"), ({"interface_v1": "1"}, "interface_v1"),
                            ({"timeout": float("inf")}, "timeout"), ({"model": 7}, "model")):
            with self.subTest(extra), self.assertRaisesRegex(ValueError, said):
                SluiceHiCache(Config(extra_config={**self.where(), **extra}))
        told = options.options_of({"timeout": 1, "backend_name": "x", "prefetch_threshold": 3, "model": None})
        self.assertEqual((told.timeout, told.model), (1.0, None))
        with self.assertRaisesRegex(ValueError, "DCP"):
            SluiceHiCache(Config(dcp_size=2, extra_config=self.where()))


if __name__ == "__main__":
    main()
