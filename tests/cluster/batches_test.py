"""Batches, LMCache's plug-in and vLLM's tier when another node has the values: lookups ask it, and reads fetch them from there."""

import array
import asyncio
import ctypes
import json
import os
import select
import sys
import threading
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))

import engine_stubs as stubs  # noqa: E402
from python_support import client, sluice  # noqa: E402
from cluster_support import PACE, PATIENCE, Cluster, main, wait_until  # noqa: E402

from sluice import lmcache, vllm_tier  # noqa: E402

TOKEN_BYTES, CHUNK = 128, 256
ROW_BYTES = 16 << 10


def alive(node, name):
    done = node.ctl("nodes", "--json", check=False)
    return done.returncode == 0 and any(row["name"] == name and row["state"] == "alive" for row in json.loads(done.stdout)["nodes"])


def at(node):
    return mock.patch.dict(os.environ, {"SLUICE_INSTANCE": node.instance, "SLUICE_RUNTIME_DIR": node.directory + "/run",
                                        "SLUICE_SHM_DIR": node.shm})


class Elsewhere(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(2)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.a, cls.b = cls.cluster.nodes
        for node, name in ((cls.a, "b"), (cls.b, "a")):
            wait_until(lambda node=node, name=name: alive(node, name), 10, f"{name} is alive at {node.name}")

    def result(self, batches, number):
        self.assertTrue(select.select([batches.event_fd()], [], [], 10 * PATIENCE)[0])
        (got, *rest), = batches.drain()
        self.assertEqual(got, number)
        return tuple(rest)

    def test_batches_find_and_read_what_a_peer_has(self):
        value = os.urandom(300_000)
        with client(self.a) as there, client(self.b) as here, sluice.Batches(here) as batches:
            self.assertTrue(batches.has_peers)
            there.put("peer", value)
            self.assertFalse(here.exists("peer"))
            self.assertEqual(batches.look(["peer", "no"]), [True, False])
            self.assertEqual(self.result(batches, batches.exists(["no", "peer"])), (True, "", [False, True]))
            buffer = bytearray(len(value))
            self.assertEqual(self.result(batches, batches.get(["peer", "no"], [buffer, bytearray(1)])), (True, "", [True, False]))
            self.assertEqual(buffer, value)

    def test_a_look_of_many_keys_has_one_deadline(self):
        keys = [f"late{i}" for i in range(8192)]
        with client(self.a) as there, client(self.b, settings={"op_timeout": "300ms"}) as here, sluice.Batches(here) as batches:
            there.put("there", b"1")
            here.put("late1", b"1")
            want = [sluice.Code.NOT_FOUND] * 8192 + [0]
            want[1] = 0
            self.assertEqual(here.find_pages([*keys, "there"], elsewhere=True, timeout=10 * PATIENCE), bytes(want))
            with self.b.actors_stopped("transporter.0"):
                began = time.monotonic()
                codes = here.find_pages(keys, elsewhere=True)
                self.assertEqual((codes[1], set(codes[:1] + codes[2:])), (0, {sluice.Code.TIMEOUT}))
                self.assertEqual(batches.look(keys), [i == 1 for i in range(8192)])
                self.assertLess(time.monotonic() - began, 4 * PACE)

    def test_lmcaches_plugin_does(self):
        about = types.SimpleNamespace(
            model_name="model", use_mla=False, world_size=1, worker_id=0, first_rank=0, is_first_rank=lambda: True, kv_layer_groups_manager=None,
            kv_shape=(4, 2, CHUNK, 1, 8), get_dtypes=lambda: [stubs.float16], get_shapes=lambda tokens=CHUNK: [stubs.Size((2, 4, tokens, 8))])
        told = types.SimpleNamespace(use_layerwise=False, pin_timeout_sec=300, chunk_size=CHUNK, extra_config={})
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            with at(self.b):
                backend = lmcache.SluiceBackend(config=told, metadata=about, loop=loop)
            keys, value = [stubs.CacheEngineKey(i) for i in range(2)], os.urandom(CHUNK * TOKEN_BYTES)
            with client(self.a) as there:
                there.put(backend._names(keys)[0], value)
            self.assertEqual(backend.batched_contains(keys), 1)
            self.assertEqual(asyncio.run(backend.batched_async_contains("id", keys)), 1)
            found = backend.batched_get_blocking(keys)
            self.assertEqual((found[0].raw_data.bytes(), found[1]), (value, None))
            backend.close()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def test_vllms_tier_asks_by_its_own_thread(self):
        memory = (ctypes.c_byte * ROW_BYTES * 4)()
        view = memoryview(memory)
        spec = types.SimpleNamespace(blocks_per_chunk=1, kv_events_config=types.SimpleNamespace(enable_kv_cache_events=False),
                                     config=types.SimpleNamespace(kv_cache_layout=None, model=types.SimpleNamespace(name="model")))
        with at(self.b):
            tier = vllm_tier.SluiceTier(offloading_spec=spec, primary_kv_view=view, tier_type="SluiceTier")
        self.addCleanup(tier.shutdown)
        keys, value = [b"\x01" * 8, b"\x02" * 8], os.urandom(ROW_BYTES)
        with client(self.a) as there:
            there.put(tier._link._prefix + keys[0].hex(), value)
        asked = []
        with mock.patch.object(tier._lookups, "lookup", create=True, side_effect=lambda key, request: asked.append(key)):
            self.assertIs(tier.lookup(keys[0], types.SimpleNamespace(req_id="r")), stubs.LookupResult.RETRY)
        self.assertEqual((asked, list(tier._lookups.batch_lookup(keys, None))), (keys[:1], [True, False]))
        tier.submit_load(types.SimpleNamespace(job_id=1, keys=keys, chunk_ids=array.array("I", [3, 1])))
        tier.drain_jobs()
        result, = tier.get_finished_jobs()
        self.assertEqual((result.success, result.successful_keys), (False, (keys[0],)))
        self.assertEqual(bytes(view.cast("B")[3 * ROW_BYTES:]), value)


if __name__ == "__main__":
    main()
