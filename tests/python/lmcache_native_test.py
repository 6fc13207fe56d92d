"""LMCache's plug-in and its native connector on a real node, with stubs instead of LMCache: their answers, the objects that they hold, and
that failures of the node become misses. tests/engines runs the real LMCache."""

import asyncio
import json
import os
import select
import signal
import sys
import threading
import time
import types
import unittest
from unittest import mock

import engine_stubs as stubs
import python_support
from python_support import sluice, weights_make
from node_support import PACE, PATIENCE, ROOT, Node, Slept, main, wait_until

from sluice import lmcache, lmcache_l2

TOKEN_SHAPE = (2, 4, 1, 8)  # of float16: 128 bytes
TOKEN_BYTES, CHUNK = 128, 256
CHUNK_BYTES = TOKEN_BYTES * CHUNK


class LocalMemory:
    """LMCache's own memory, with space for this number of objects."""

    def __init__(self, room=1000, use_hot=False):
        self.room, self.use_hot, self.given = room, use_hot, []

    def allocate(self, shapes, dtypes, fmt=None, eviction=True, busy_loop=True):
        assert not busy_loop, "waiting for room may take for ever"
        if self.room == 0:
            return None
        self.room -= 1
        about = stubs.MemoryObjMetadata(shapes[0], dtypes[0], 0, 0, 1, 0, fmt, shapes=shapes, dtypes=dtypes)
        made = stubs.TensorMemoryObj(None, about, self)
        made.raw_data = stubs.Tensor(bytearray(made.get_size()))
        self.given.append(made)
        return made

    def free(self, made):
        self.room += 1
        self.given.remove(made)


def metadata(**more):
    return types.SimpleNamespace(**{
        "model_name": "model", "use_mla": False, "world_size": 1, "worker_id": 0, "first_rank": 0, "is_first_rank": lambda: True, "kv_layer_groups_manager": None,
        "kv_shape": (4, 2, CHUNK, 1, 8), "get_dtypes": lambda: [stubs.float16],
        "get_shapes": lambda tokens=CHUNK: [stubs.Size((2, 4, tokens, 8))], **more})


def config(**extra):
    return types.SimpleNamespace(use_layerwise=False, pin_timeout_sec=300, chunk_size=CHUNK,
                                 extra_config={f"sluice.{name}": value for name, value in extra.items()})


class OnNode(python_support.OnNode):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enter(cls.node)

    @classmethod
    def enter(cls, node):
        variables = {"SLUICE_INSTANCE": node.instance, "SLUICE_RUNTIME_DIR": node.directory + "/run", "SLUICE_SHM_DIR": node.shm}
        patched = mock.patch.dict(os.environ, variables)
        patched.start()
        cls.addClassCleanup(patched.stop)

    def setUp(self):
        self.node.wait_ready()
        super().setUp()

    def loop(self):
        """An event loop as LMCache's storage manager has it."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        def end():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

        self.addCleanup(end)
        return loop

    def backend(self, memory=None, about=None, **extra):
        made = lmcache.SluiceBackend(config=config(**extra), dst_device="cpu", metadata=about or metadata(),
                                     local_cpu_backend=memory or LocalMemory(), loop=self.loop())
        self.addCleanup(made.close)
        return made

    def objects(self, memory, values):
        made = []
        for value in values:
            tokens = len(value) // TOKEN_BYTES
            one = memory.allocate([stubs.Size((2, 4, tokens, 8))], [stubs.float16], busy_loop=False)
            one.raw_data.held[:] = value
            made.append(one)
        return made

    def stored(self, backend, keys, values):
        """Puts them and waits; returns the answer of each put."""
        memory = backend.local_cpu_backend
        objects = self.objects(memory, values)
        futures = backend.batched_submit_put_task(keys, objects)
        for one in objects:
            one.ref_count_down()  # as LMCache does after a put
        return futures[0].result(10 * PATIENCE)

    def stopped(self):
        pids = self.node.pids_to_stop("registrar")

        def go_on():
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)
            pids.clear()

        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(go_on)
        return go_on


def key(number, **more):
    return stubs.CacheEngineKey(number, **more)


class Plugin(OnNode):
    def test_what_was_stored_is_found_and_read_where_it_lies(self):
        memory = LocalMemory()
        backend, keys = self.backend(memory), [key(i) for i in range(3)]
        values = [os.urandom(CHUNK_BYTES), os.urandom(CHUNK_BYTES), os.urandom(100 * TOKEN_BYTES)]
        self.assertEqual(self.stored(backend, keys, values), [True] * 3)
        self.assertEqual(memory.given, [], "objects were not released")
        self.assertEqual(backend.batched_contains([*keys, key(9), keys[0]]), 3)
        self.assertIs(backend.contains(keys[0]), True)
        self.assertIs(backend.contains(key(9)), False)
        found = backend.batched_get_blocking([*keys, key(9)])
        self.assertIsNone(found[3])
        self.assertEqual([one.raw_data.bytes() for one in found[:3]], values)
        self.assertEqual([one.meta.shape[2] for one in found[:3]], [CHUNK, CHUNK, 100])
        self.assertTrue(all(isinstance(one.raw_data.held, sluice.View) for one in found[:3]), "they were copied")
        views = [one.raw_data.held for one in found[:3]]
        for one in found[:3]:
            one.ref_count_down()
            self.assertFalse(one.valid)
        self.assertEqual(memory.given, [], "a view was taken from LMCache's memory")
        self.assertEqual([sys.getrefcount(view) for view in views], [3, 3, 3], "a view is still held")  # list, loop, argument

    def test_weights_are_in_the_keys_and_not_their_path(self):
        one, two, other = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))

        def there(path, **extra):
            return self.backend(about=metadata(model_name=path), **extra).contains(key(77, model=path))

        for extra in ({}, {"weights": "whole"}):
            self.stored(self.backend(about=metadata(model_name=one), **extra), [key(77, model=one)], [os.urandom(CHUNK_BYTES)])
            self.assertEqual([there(path, **extra) for path in (one, two, other)], [True, True, False])
        self.assertFalse(there(one, model="mine"))
        self.stored(self.backend(about=metadata(model_name=one), model="mine"), [key(77, model=one)], [os.urandom(CHUNK_BYTES)])
        self.assertTrue(there(other, model="mine"))
        with mock.patch.object(lmcache.weights, "revisions_of", return_value=[one, other]), self.assertRaisesRegex(ValueError, "2 revisions"):
            self.backend(about=metadata(model_name="hub/model"))

    def test_an_adapter_that_vllm_loads_is_told(self):
        class WorkerLoRAManager:
            def _load_adapter(self, adapter):
                return adapter

        adapter = types.SimpleNamespace(lora_name="a")
        with mock.patch.dict(sys.modules, {"vllm.lora.worker_manager": types.SimpleNamespace(WorkerLoRAManager=WorkerLoRAManager)}):
            for _ in range(2):
                self.backend()
        with self.assertLogs("sluice.lmcache", "WARNING") as said:
            self.assertEqual([WorkerLoRAManager()._load_adapter(adapter) for _ in range(3)], [adapter] * 3)
        self.assertEqual(len(said.output), 1)
        self.assertIn("adapter 'a': LMCache's keys", said.output[0])
        with mock.patch.dict(sys.modules, {"vllm.lora.worker_manager": types.SimpleNamespace()}), self.assertLogs("sluice.lmcache", "WARNING") as said:
            self.backend()
        self.assertIn("adapter '(any)': LMCache's keys", said.output[0], "another vLLM")

    def test_what_lmcache_keeps_or_a_gpu_reads_is_copied(self):
        value = os.urandom(CHUNK_BYTES)
        self.stored(self.backend(), [key(1)], [value])
        hot, plain, off = LocalMemory(use_hot=True), LocalMemory(), LocalMemory()
        for memory, read in ((hot, self.backend(hot).batched_get_blocking), (off, self.backend(off, zero_copy="no").batched_get_blocking),
                             (plain, lambda keys, backend=self.backend(plain): [backend.get_blocking(one) for one in keys])):
            found = read([key(1), key(9)])
            self.assertIsNone(found[1])
            self.assertIs(found[0], memory.given[0])
            self.assertEqual(found[0].raw_data.bytes(), value)
            found[0].ref_count_down()
            self.assertEqual(memory.given, [])

    def test_no_room_in_lmcaches_memory_is_a_miss(self):
        self.stored(self.backend(), [key(1), key(2)], [os.urandom(CHUNK_BYTES)] * 2)
        memory = LocalMemory(room=1, use_hot=True)
        found = self.backend(memory).batched_get_blocking([key(1), key(2)])
        self.assertEqual([one is None for one in found], [False, True])

    def test_other_layouts_models_and_sizes_are_misses(self):
        self.stored(self.backend(), [key(1)], [os.urandom(CHUNK_BYTES)])
        other = metadata(get_shapes=lambda tokens=CHUNK: [stubs.Size((2, 8, tokens, 4))])
        self.assertFalse(self.backend(about=other).contains(key(1)), "another layout of as many bytes was found")
        self.assertFalse(self.backend().contains(key(1, model="other")))
        self.assertFalse(self.backend().contains(key(1, worker_id=1)))
        backend = self.backend()
        name = backend._names([key(2)])[0]
        self.client.put(name, bytes(TOKEN_BYTES + 1))
        self.assertEqual(backend.batched_get_blocking([key(2)]), [None])
        self.assertIsNone(backend.get_blocking(key(2)))

    def test_all_ranks_of_mla_share_what_the_first_stores(self):
        first = self.backend(about=metadata(use_mla=True, world_size=2))
        second = self.backend(about=metadata(use_mla=True, world_size=2, is_first_rank=lambda: False))
        value = os.urandom(CHUNK_BYTES)
        objects = self.objects(second.local_cpu_backend, [value])
        self.assertIsNone(second.batched_submit_put_task([key(1, worker_id=1)], objects))
        self.assertFalse(second.contains(key(1, worker_id=1)))
        self.stored(first, [key(1)], [value])
        self.assertTrue(second.contains(key(1, worker_id=1)))

    def test_long_keys_are_stored_by_a_digest(self):
        backend = self.backend()
        keys = [key(1, model="m" * 2000), key(1, model="m" * 1999 + "n")]
        values = [os.urandom(CHUNK_BYTES) for _ in keys]
        self.assertEqual(self.stored(backend, keys, values), [True, True])
        self.assertEqual([one.raw_data.bytes() for one in backend.batched_get_blocking(keys)], values)

    def test_pins_hold_what_was_removed_until_they_are_given_back(self):
        backend, value = self.backend(), os.urandom(CHUNK_BYTES)
        self.stored(backend, [key(1), key(2)], [value] * 2)
        self.assertEqual(backend.batched_contains([key(1), key(2), key(3)], pin=True), 2)
        self.assertTrue(backend.pin(key(1)))
        backend._pins.views(backend._names([key(2)]), 5)
        self.assertEqual(backend.batched_remove([key(1), key(2), key(3)]), 2)
        self.assertEqual([one.raw_data.bytes() for one in backend.batched_get_blocking([key(1), key(2)])], [value] * 2)
        self.assertTrue(backend.unpin(key(1)))
        self.assertEqual(backend.batched_get_blocking([key(1)])[0].raw_data.bytes(), value, "the second pin")
        self.assertTrue(backend.unpin(key(1)))
        self.assertFalse(backend.unpin(key(1)))
        self.assertEqual(backend.batched_get_blocking([key(1)]), [None])
        self.assertFalse(backend.pin(key(1)))

    def test_forgotten_pins_end(self):
        backend = self.backend(pin_timeout=1)
        self.stored(backend, [key(1), key(2)], [os.urandom(CHUNK_BYTES)] * 2)
        backend.contains(key(1), pin=True)
        time.sleep(1.1)
        backend.contains(key(2), pin=True)
        self.assertFalse(backend.unpin(key(1)))

    def test_a_callback_hears_of_each_that_was_stored(self):
        backend, heard = self.backend(), []
        objects = self.objects(backend.local_cpu_backend, [os.urandom(CHUNK_BYTES)] * 2)

        def callback(one):
            heard.append(one.chunk_hash)
            raise RuntimeError("the caller's")

        backend.batched_submit_put_task([key(1), key(2)], objects, on_complete_callback=callback)[0].result(10 * PATIENCE)
        self.assertEqual(heard, [1, 2])

    def test_asynchronous_loading_gives_the_first_ones(self):
        backend, value = self.backend(), os.urandom(CHUNK_BYTES)
        self.stored(backend, [key(1), key(3)], [value] * 2)

        async def load():
            count = await backend.batched_async_contains("id", [key(1), key(2), key(3)], pin=True)
            return count, await backend.batched_get_non_blocking("id", [key(1), key(2), key(3)])

        count, found = asyncio.run(load())
        self.assertEqual((count, [one.raw_data.bytes() for one in found]), (1, [value]))

    def test_no_code_is_taken_for_a_hit(self):
        backend = self.backend()
        for answer in ([False], []):
            with mock.patch.object(backend._link, "open", return_value=(None, mock.Mock(look=lambda names, timeout: answer))):
                self.assertIs(backend.contains(key(1)), False)
        failing = mock.Mock(look=mock.Mock(side_effect=sluice.UnreachableError("gone")))
        with mock.patch.object(backend._link, "open", return_value=(None, failing)):
            self.assertIs(backend.contains(key(1)), False)
            self.assertEqual(backend.batched_contains([key(1)]), 0)

    def test_options_are_strict(self):
        for extra in ({"zero_copy": "maybe"}, {"zero_copy": 2}, {"timeout": 0}, {"timeout": "soon"}, {"threads": 1.5}, {"threads": True},
                      {"depth": 0}, {"instance": ""}, {"instances": "x"}):
            with self.assertRaises(ValueError, msg=extra) as caught:
                self.backend(**extra)
            self.assertIn("extra_config: sluice." + next(iter(extra)), str(caught.exception))
        layers = config()
        layers.use_layerwise = True
        with self.assertRaises(ValueError):
            lmcache.SluiceBackend(config=layers, metadata=metadata(), loop=self.loop())

    def test_puts_end_by_their_deadline_and_reads_go_on(self):
        backend = self.backend(timeout=5 * PACE)
        memory, value = backend.local_cpu_backend, os.urandom(CHUNK_BYTES)
        self.stored(backend, [key(1)], [value])
        go_on = self.stopped()
        objects = self.objects(memory, [os.urandom(CHUNK_BYTES)] * 2)
        with Slept() as slept:
            future = backend.batched_submit_put_task([key(2), key(3)], objects)[0]
        self.assertLess(slept.seconds, 0.3 * PACE, "submitting waited")
        self.assertTrue(backend.exists_in_put_tasks(key(2)))
        self.assertIsNone(backend.batched_submit_put_task([key(2)], objects[:1]), "it is being put")
        self.assertEqual(backend.batched_get_blocking([key(1)])[0].raw_data.bytes(), value)
        self.assertEqual(future.result(30 * PACE), [False, False])
        self.assertFalse(backend.exists_in_put_tasks(key(2)))
        self.assertEqual([one.meta.ref_count for one in objects], [1, 1])
        go_on()
        wait_until(lambda: self.stored(backend, [key(4)], [value]) == [True], 5, "puts work again")

    def test_closing_waits_for_what_was_submitted(self):
        backend = self.backend()
        objects = self.objects(backend.local_cpu_backend, [os.urandom(CHUNK_BYTES)] * 16)
        future = backend.batched_submit_put_task([key(i) for i in range(16)], objects)[0]
        backend.close()
        self.assertEqual(future.result(0), [True] * 16)
        self.assertEqual((backend.contains(key(1)), backend.batched_get_blocking([key(1)])), (False, [None]))
        self.assertIsNone(backend.batched_submit_put_task([key(99)], objects[:1]))
        self.assertEqual(backend.batched_remove([key(1)]), 0)


class Pins(unittest.TestCase):
    def test_look_ups_and_reads_beside_an_end_are_misses(self):
        """LMCache's other threads still make lookups while its engine ends, and an exception there would end them."""
        begun, over = threading.Event(), threading.Event()

        def fetch(names, timeout):
            begun.set()
            over.wait(10 * PATIENCE)
            return ["view"] * len(names)

        slow, pins = types.SimpleNamespace(get_pinned_batch=fetch), lmcache.Pins(60)
        pins.add(slow, ["a"], 10)
        self.assertTrue(begun.wait(10 * PATIENCE))
        pins.add(slow, ["b"], 10)  # waits for the first one
        found = []
        reader = threading.Thread(target=lambda: found.append(pins.views(["b"], 10 * PATIENCE)))
        reader.start()
        time.sleep(0.1)
        pins.close()
        reader.join(5 * PATIENCE)
        over.set()
        self.assertEqual(found, [[None]])
        pins.add(slow, ["c"], 10)
        self.assertEqual(pins.views(["c"], 1), [None])


class WithoutNode(OnNode):
    def test_the_plugin_finds_a_node_that_starts_later(self):
        node = Node(ranks=1, memory="32MiB")
        where = {"SLUICE_INSTANCE": node.instance, "SLUICE_RUNTIME_DIR": node.directory + "/run", "SLUICE_SHM_DIR": node.shm}
        with mock.patch.dict(os.environ, where), self.assertLogs("sluice", "WARNING") as said:
            backend = self.backend()
            self.assertEqual((backend.contains(key(1)), backend.batched_get_blocking([key(1)])), (False, [None]))
            self.assertIsNone(backend.batched_submit_put_task([key(1)], self.objects(LocalMemory(), [bytes(CHUNK_BYTES)])))
            with node:
                value = os.urandom(CHUNK_BYTES)
                wait_until(lambda: backend._link.open() is not None, 10, "the node was found")
                self.assertEqual(self.stored(backend, [key(1)], [value]), [True])
                self.assertEqual(backend.batched_get_blocking([key(1)])[0].raw_data.bytes(), value)
        self.assertIn("no node", said.output[0])
        self.assertLessEqual(len(said.output), 2, "each attempt was logged")

    def test_the_connector_says_so(self):
        began = time.monotonic()
        nowhere = {"SLUICE_RUNTIME_DIR": self.node.directory + "/none", "SLUICE_SHM_DIR": self.node.shm + "-none"}
        with mock.patch.dict(os.environ, nowhere), self.assertRaises(sluice.UnreachableError):
            lmcache_l2.Connector(instance="nobody", start_wait=0.3)
        self.assertGreaterEqual(time.monotonic() - began, 0.3)


class SecondLevel(OnNode):
    """The calls of LMCache's native connectors, in its order."""

    def setUp(self):
        super().setUp()
        python_support.weights_wait(self)
        self.connector = lmcache_l2.Connector(timeout=5 * PACE)
        self.addCleanup(self.connector.close)

    def completion(self, number):
        self.assertTrue(select.select([self.connector.event_fd()], [], [], 10 * PATIENCE)[0])
        (got, *rest), = self.connector.drain_completions()
        self.assertEqual(got, number)
        return tuple(rest)

    def test_set_exists_get_delete(self):
        keys, values = [f"m@0000000{i}@0@ab" for i in range(4)], [os.urandom(10_000) for _ in range(4)]
        self.assertEqual(self.completion(self.connector.submit_batch_set(keys, [memoryview(value) for value in values])),
                         (True, "", [True] * 4))
        self.assertEqual(sorted(info.key for info in self.client.list()), [f"lmcache-l2/{one}" for one in keys])
        self.assertEqual(self.completion(self.connector.submit_batch_exists([*keys, "no"])), (True, "", [True] * 4 + [False]))
        buffers = [bytearray(10_000) for _ in range(5)]
        self.assertEqual(self.completion(self.connector.submit_batch_get([*keys, "no"], [memoryview(one) for one in buffers])),
                         (True, "", [True] * 4 + [False]))
        self.assertEqual([bytes(one) for one in buffers[:4]], values)
        self.assertEqual(self.completion(self.connector.submit_batch_delete(keys[:2])), (True, "", [True, True]))
        self.assertEqual(self.completion(self.connector.submit_batch_exists(keys)), (True, "", [False, False, True, True]))

    def test_weights_are_in_the_keys_and_not_their_path(self):
        """The server keeps running when engines are restarted with other weights, and does not know which they have: then nothing is found."""
        one, two, other = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))

        def there(model):
            return self.completion(self.connector.submit_batch_exists([f"{model}@00000001@0@ab"]))[2] == [True]

        self.completion(self.connector.submit_batch_set([f"{one}@00000001@0@ab"], [b"value"]))
        self.assertEqual([there(model) for model in (one, two, other, "m")], [True, True, False, False])
        os.replace(os.path.join(other, "model.safetensors"), os.path.join(one, "model.safetensors"))
        with self.assertLogs("sluice.weights", "WARNING"):
            self.assertFalse(there(one))
        self.assertEqual(self.completion(self.connector.submit_batch_set([f"{one}@00000001@0@ab"], [b"value"]))[::2], (False, [False]))
        self.assertEqual([there(model) for model in (one, two)], [False, True])

    def test_files_that_hang_keep_no_thread_of_lmcache(self):
        goes_on = threading.Event()
        self.addCleanup(goes_on.set)
        with mock.patch.object(lmcache_l2.weights, "files_of", lambda *given: goes_on.wait() and {}):
            with mock.patch.object(lmcache_l2.weights, "WAIT_SECONDS", 0.05):
                stored = self.connector.submit_batch_set(["m@00000001@0@ab"], [b"value"])
            self.assertEqual(self.completion(stored)[::2], (False, [False]))
            self.assertEqual(self.completion(self.connector.submit_batch_exists(["m@00000001@0@ab"]))[2], [False])
        self.assertEqual(self.client.list(), [], "values that cannot be found take no memory")

    def test_failures_are_completions_with_a_text(self):
        go_on = self.stopped()
        ok, error, bools = self.completion(self.connector.submit_batch_set(["k"], [b"value"]))
        self.assertEqual((ok, bools, bool(error)), (False, [False], True))
        go_on()

    def test_unknown_parameters_are_errors(self):
        for given in ({"host": "x"}, {"timeout": 0}, {"start_wait": -1}):
            with self.assertRaises(ValueError, msg=given) as caught:
                lmcache_l2.Connector(**given)
            self.assertIn("adapter_params: " + next(iter(given)), str(caught.exception))


class Howto(unittest.TestCase):
    """The texts that users copy are accepted by the code."""

    @staticmethod
    def lines(name):
        with open(os.path.join(ROOT, "docs", "start", name), encoding="utf-8") as file:
            return file.read()

    def test_the_adapter_line_is_json_of_known_options(self):
        line = next(line for line in self.lines("lmcache.md").splitlines() if '"native_plugin"' in line)
        told = json.loads(line[line.index("{"):line.rindex("}") + 1])
        self.assertEqual((told["module_path"], getattr(lmcache_l2, told["class_name"])), ("sluice.lmcache_l2", lmcache_l2.Connector))


if __name__ == "__main__":
    sys.exit(main())
