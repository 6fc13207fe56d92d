"""sluice.sglang.linker over a stand-in for SGLang: offloaded pages are loaded layer by layer, and a missing page ends a load, never with
other bytes. tests/engines/sglang_native.py drives it with SGLang's own classes."""

import os
import threading
import time
import types

import python_support
from python_support import sluice
from node_support import Node, PATIENCE, main, wait_until
from sglang_standin import PoolHitPolicy, PoolName, PoolTransfer, array, linker as standin, Tensor

PAGE, PAGES, LAYERS, ROW = 4, 8, 3, 32
KEYS = [f"hash{number}" for number in range(PAGES)]



def group():
    return standin.Group([standin.Entry(PoolName.KV, PoolName.KV, PAGE, PAGES, LAYERS, ROW),
                          standin.Entry(PoolName.INDEXER, PoolName.KV, PAGE, PAGES, 2, 48, rows_are_pages=True),
                          standin.Entry(PoolName.MAMBA, PoolName.MAMBA, 1, PAGES, LAYERS, 64, rows_are_pages=True)], LAYERS, True)


standin.install(group)

from sluice.sglang import linker as module  # noqa: E402


def indices(pages, page=PAGE):
    return Tensor(array.array("q", [number * page + i for number in pages for i in range(page)]))


class OnNode(python_support.OnNode):
    def setUp(self):
        super().setUp()
        self.linker = self.make()

    def make(self, node=None, counters=None, **extra):
        node = node or self.node
        params = types.SimpleNamespace(
            token_to_kv_pool_allocator=types.SimpleNamespace(get_kvcache=lambda: None), page_size=PAGE, pp_rank=0, pp_size=1,
            attn_cp_rank=0, attn_cp_size=1, attn_tp_cache_group=None, tp_cache_group=None,
            req_to_token_pool=types.SimpleNamespace(register_layer_transfer_counter=(counters if counters is not None else []).append))
        told = {"instance": node.instance, "settings": {"runtime_dir": node.directory + "/run", "shm_dir": node.shm}, **extra}
        made = module.SluiceLinker(types.SimpleNamespace(), params, components=set(), extra_config=told)
        self.addCleanup(made.close)
        for entry in made.pools.values():
            for buffer in entry.kv_buffer:
                buffer.values[:] = os.urandom(len(buffer.values))
        return made

    @staticmethod
    def transfers(keys, pages, state=None):
        """Pages, and of the last one the state in slot `state`."""
        told = [PoolTransfer(PoolName.KV, indices(pages), list(keys))]
        return told + ([] if state is None else [PoolTransfer(PoolName.MAMBA, indices([state], 1), [keys[-1]], PoolHitPolicy.TRAILING_PAGES)])

    def offload(self, linker, keys, pages, state):
        self.assertTrue(linker.offload(self.transfers(keys, pages, state)))
        wait_until(linker.num_completed_offloads, 10, "it is offloaded")
        return linker.pop_completed_offload()

    def load(self, linker, keys, pages, state):
        """Whether all layers were loaded."""
        self.assertTrue(linker.load("request", self.transfers(keys, pages, state)))
        index = linker.start_layer_wise_loading()
        self.assertGreaterEqual(index, 0)
        return linker.finish_layer_wise_loading(index)

    @staticmethod
    def bytes_of(linker, pages, state):
        wanted = [(PoolName.KV, pages), (PoolName.INDEXER, pages), (PoolName.MAMBA, [state])]
        return [bytes(linker.pools[name].page(page, layer)) for name, numbers in wanted
                for page in numbers for layer in range(linker.pools[name].layers)]


class Transfers(OnNode):
    def test_what_was_offloaded_comes_back_elsewhere(self):
        self.assertTrue(self.offload(self.linker, KEYS[:3], [1, 4, 2], 5))
        want = self.bytes_of(self.linker, [1, 4, 2], 5)
        other = self.make()
        lookup = [PoolTransfer(PoolName.KV, keys=KEYS), PoolTransfer(PoolName.MAMBA, keys=KEYS[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]
        self.assertEqual(other.lookup("request", lookup), [3])
        untouched = self.bytes_of(other, [0, 1, 2, 3], 1)
        self.assertTrue(self.load(other, KEYS[:3], [5, 6, 7], 0))
        self.assertEqual(self.bytes_of(other, [5, 6, 7], 0), want)
        self.assertEqual(self.bytes_of(other, [0, 1, 2, 3], 1), untouched)
        self.assertEqual(other.stats["load"], 1)

    def test_only_states_of_all_layers_or_only_pages_may_be_wanted(self):
        self.offload(self.linker, KEYS[:1], [1], 2)
        want = self.bytes_of(self.linker, [1], 2)
        self.assertTrue(self.linker.load("request", self.transfers(KEYS[:1], [3], 4)[1:]))
        self.assertTrue(self.linker.finish_layer_wise_loading(self.linker.start_layer_wise_loading()))
        self.assertEqual(self.bytes_of(self.linker, [1], 4), want)

    def test_loads_of_several_requests_go_together(self):
        self.offload(self.linker, KEYS[:2], [1, 2], 3)
        for rid, page, key in (("a", 6, 0), ("b", 7, 1)):
            self.assertTrue(self.linker.load(rid, self.transfers(KEYS[key:key + 1], [page])))
        self.assertTrue(self.linker.finish_layer_wise_loading(self.linker.start_layer_wise_loading()))
        self.assertEqual(self.bytes_of(self.linker, [6, 7], 3), self.bytes_of(self.linker, [1, 2], 3))

    def test_a_queued_load_can_be_cancelled_once(self):
        self.offload(self.linker, KEYS[:1], [1], 2)
        self.assertTrue(self.linker.load("a", self.transfers(KEYS[:1], [3])))
        with self.assertRaises(RuntimeError):
            self.linker.load("a", self.transfers(KEYS[:1], [3]))
        self.assertTrue(self.linker.cancel_queued_load("a"))
        self.assertFalse(self.linker.cancel_queued_load("a"))
        self.assertEqual(self.linker.start_layer_wise_loading(), -1)

    def test_nothing_is_no_transfer(self):
        self.assertEqual(self.linker.lookup("a", [PoolTransfer(PoolName.KV, keys=[])]), [])
        self.assertFalse(self.linker.load("a", [PoolTransfer(PoolName.KV, keys=[])]))
        self.assertFalse(self.linker.offload([PoolTransfer(PoolName.KV, keys=[])]))

    def test_a_copy_waits_for_the_engine(self):
        happened, asked = threading.Event(), threading.Event()
        self.linker.happened = lambda: (asked.set(), happened.wait(60))
        self.assertTrue(self.linker.offload(self.transfers(KEYS[:1], [1])))
        self.assertTrue(asked.wait(60))
        self.assertEqual(self.client.list(), [])
        self.linker.pools[PoolName.KV].page(1, 0)[:] = b"x" * ROW * PAGE  # written late
        happened.set()
        wait_until(self.linker.num_completed_offloads, 10, "it is offloaded")
        value = next(info.key for info in self.client.list() if info.size == LAYERS * ROW * PAGE)
        self.assertEqual(self.client.get(value)[:ROW * PAGE], b"x" * ROW * PAGE)

    def test_states_have_a_counter_of_layers(self):
        counters = []
        made = self.make(counters=counters)
        self.assertEqual(counters, [made.layer_done_counter])


class Failures(OnNode):
    def keys_of(self, pool, key):
        return self.linker.plans[pool].prefix + key

    def test_pages_that_left_since_the_look_up_are_refused(self):
        self.offload(self.linker, KEYS[:2], [1, 2], 3)
        self.client.remove(self.keys_of(PoolName.INDEXER, KEYS[1]))
        self.assertFalse(self.linker.load("a", self.transfers(KEYS[:2], [4, 5])))
        self.assertEqual(self.linker.start_layer_wise_loading(), -1)

    def test_pages_that_left_since_they_were_queued_fail_the_load(self):
        self.offload(self.linker, KEYS[:2], [1, 2], 3)
        self.assertTrue(self.linker.load("a", self.transfers(KEYS[:2], [4, 5])))
        self.client.remove(self.keys_of(PoolName.KV, KEYS[1]))
        with self.assertLogs(module.logger) as said:
            self.assertFalse(self.linker.finish_layer_wise_loading(self.linker.start_layer_wise_loading()))
        self.assertIn("1 of 2 pages of pool kv did not arrive", said.output[0])
        self.assertTrue(self.load(self.linker, KEYS[:1], [6], None))  # the next one succeeds
        self.assertEqual(self.bytes_of(self.linker, [6], 3), self.bytes_of(self.linker, [1], 3))

    def test_what_is_loaded_stays_though_it_is_removed_meanwhile(self):
        self.offload(self.linker, KEYS[:1], [1], 2)
        held = self.linker._hold(PoolName.KV, KEYS[:1])
        self.client.remove(self.keys_of(PoolName.KV, KEYS[0]))
        self.assertEqual(bytes(held[0])[:ROW * PAGE], bytes(self.linker.pools[PoolName.KV].page(1, 0)))

    def test_an_event_that_fails_fails_its_transfer_alone(self):
        def wrong():
            raise RuntimeError("no such event")

        self.offload(self.linker, KEYS[:1], [1], 2)
        self.linker.happened = wrong
        with self.assertLogs(module.logger):
            self.assertFalse(self.offload(self.linker, KEYS[1:2], [2], 3))
            self.assertFalse(self.load(self.linker, KEYS[:1], [4], None))
        self.linker.happened = lambda: None
        self.assertTrue(self.load(self.linker, KEYS[:1], [4], None))

    def test_a_node_that_was_stopped_costs_deadlines_alone(self):
        with Node(ranks=1, memory="64MiB") as node:
            linker = self.make(node)
            self.assertTrue(self.offload(linker, KEYS[:1], [1], 2))
            node.stop()
            began = time.monotonic()
            self.assertFalse(self.offload(linker, KEYS[1:2], [2], 3))
            self.assertEqual(linker.lookup("a", [PoolTransfer(PoolName.KV, keys=KEYS[1:]),
                                                 PoolTransfer(PoolName.MAMBA, keys=KEYS[1:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]), [])
            self.assertFalse(linker.load("b", self.transfers(KEYS[1:2], [4])))
            linker.reset()
            self.assertLess(time.monotonic() - began, 4 * PATIENCE)

    def test_reset_ends_what_is_queued_and_close_may_come_twice(self):
        self.offload(self.linker, KEYS[:1], [1], 2)
        self.linker.load("a", self.transfers(KEYS[:1], [3]))
        self.linker.offload(self.transfers(KEYS[1:2], [2], 3))
        self.linker.reset()
        self.assertEqual((self.linker.num_completed_offloads(), self.linker.start_layer_wise_loading()), (0, -1))
        self.linker.close()
        self.linker.close()

    def test_options_are_strict_and_a_node_is_needed(self):
        with self.assertRaisesRegex(ValueError, "timeuot"):
            self.make(timeuot=1)
        with self.assertRaises(sluice.UnreachableError):
            self.make(settings={"runtime_dir": self.node.directory + "/none"})


if __name__ == "__main__":
    main()
