"""The secondary tier for vLLM on a real node, with stubs for vLLM: no call waits, failures are misses. tests/engines has the real one."""

import array
import ctypes
import os
import re
import signal
import sys
import time
import types
from unittest import mock

import engine_stubs as stubs
import python_support
from node_support import PACE, Slept, main, wait_until
from python_support import weights_make

from sluice import vllm_tier

ROW_BYTES, ROWS = 16 << 10, 64
PREFIX = re.compile("vllm-tier/[0-9a-f]{64}_r0/")
QUICK_SECONDS = 0.2 * PACE  # longest sleep of calls that must not wait


def spec(events=True, layout="NHD", path="model"):
    return types.SimpleNamespace(blocks_per_chunk=1, kv_events_config=types.SimpleNamespace(enable_kv_cache_events=events),
                                 config=types.SimpleNamespace(kv_cache_layout=layout, model=types.SimpleNamespace(name=path)))


def keys_of(count, salt=0):
    return [bytes([salt, at, 0, 255]) + bytes(4) for at in range(count)]


def job(number, keys, rows):
    return types.SimpleNamespace(job_id=number, keys=keys, chunk_ids=array.array("I", rows))


class Tier(python_support.OnNode):
    def setUp(self):
        self.node.wait_ready()
        where = {"SLUICE_INSTANCE": self.node.instance, "SLUICE_RUNTIME_DIR": self.node.directory + "/run", "SLUICE_SHM_DIR": self.node.shm}
        patched = mock.patch.dict(os.environ, where)
        patched.start()
        self.addCleanup(patched.stop)
        super().setUp()
        self.request = types.SimpleNamespace(req_id="r")

    def tier(self, layout="NHD", row_bytes=ROW_BYTES, path="model", **options):
        memory = (ctypes.c_byte * row_bytes * ROWS)()
        made = vllm_tier.SluiceTier(offloading_spec=spec(layout=layout, path=path), primary_kv_view=memoryview(memory), tier_type="SluiceTier", **options)
        self.addCleanup(made.shutdown)
        return made, memoryview(memory).cast("B")

    @staticmethod
    def row(flat, at):
        return flat[at * ROW_BYTES:(at + 1) * ROW_BYTES]

    def finished(self, tier, count=1, seconds=10):
        found = []

        def enough():
            found.extend(tier.get_finished_jobs())
            return len(found) >= count

        wait_until(enough, seconds, f"{count} jobs end")
        self.assertEqual(len(found), count)
        return {one.job_id: one for one in found}

    def test_what_was_stored_is_found_and_loaded_into_its_rows(self):
        tier, flat = self.tier(enable_kv_events=True, locality="LOCAL")
        keys = keys_of(8)
        flat[:] = os.urandom(len(flat))
        wanted = [bytes(self.row(flat, at)) for at in range(10, 18)]
        self.assertEqual([tier.lookup(one, self.request) for one in keys], [stubs.LookupResult.MISS] * 8)
        tier.submit_store(job(1, keys, range(10, 18)))
        stored = self.finished(tier)[1]
        self.assertEqual((stored.success, stored.transfer_bytes), (True, 8 * ROW_BYTES))
        event, = tier.take_events()
        self.assertEqual((event.keys, event.removed, event.locality), (keys, False, stubs.Locality.LOCAL))
        self.assertEqual(list(tier.take_events()), [])
        self.assertEqual({PREFIX.sub("", info.key, 1) for info in self.client.list()}, {one.hex() for one in keys})
        self.assertEqual([tier.lookup(one, self.request) for one in keys], [stubs.LookupResult.HIT] * 8)
        before = bytes(flat)
        tier.submit_load(job(2, keys, range(8)))
        loaded = self.finished(tier)[2]
        self.assertEqual((loaded.success, loaded.successful_keys), (True, tuple(keys)))
        self.assertEqual([bytes(self.row(flat, at)) for at in range(8)], wanted)
        self.assertEqual(bytes(flat[8 * ROW_BYTES:]), before[8 * ROW_BYTES:], "other rows were touched")
        self.assertIsInstance(tier.on_new_request(self.request), types.SimpleNamespace)

    def test_engines_whose_bytes_differ_do_not_meet(self):
        hit, miss, keys = stubs.LookupResult.HIT, stubs.LookupResult.MISS, keys_of(2)
        one, two, different = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))
        first, _ = self.tier(path=one)
        first.submit_store(job(1, keys, [0, 1]))
        self.finished(first)
        for same, options in ((True, {}), (False, {"layout": "HND"}), (False, {"layout": None}), (False, {"row_bytes": 2 * ROW_BYTES}),
                              (False, {"model": "in fp8"}), (True, {"path": two}), (False, {"path": different}), (False, {"weights": "whole"})):
            options = {"path": one, **options}
            other, _ = self.tier(**options)
            self.assertEqual([other.lookup(one, self.request) for one in keys], [hit if same else miss] * 2, options)

    def test_a_model_of_which_the_revision_is_not_certain_is_refused(self):
        places = [weights_make(self, text) for text in ("weights", "WEIGHTS")]
        with mock.patch.object(vllm_tier.weights, "revisions_of", return_value=places):
            with self.assertRaisesRegex(ValueError, "2 revisions"):
                self.tier(path="hub/model")
            self.tier(path="hub/model", model="the second")

    def test_vllms_hashes_say_the_weights_of_adapters(self):
        def adapter(path):
            return types.SimpleNamespace(lora_name="a", lora_path=path)

        def keys(path=None, request=None):
            request = request or types.SimpleNamespace(lora_request=adapter(path) if path else None)
            return vllm_tier.kv_cache_utils._gen_lora_extra_hash_keys(request)

        one, two, other = (weights_make(self, text) for text in ("weights", "WEIGHTS", "Weights"))
        self.tier()
        engine = stubs.EngineCore()
        for path in (one, two):
            self.assertTrue(engine.add_lora(adapter(path)))
        before = keys(one)
        (kind, name, path, weights), = before
        self.assertEqual((kind, name, path, weights[:8]), ("lora", "a", one, "weights:"))
        self.assertNotEqual(keys(two)[0][3], weights)
        self.assertEqual(keys(), [])
        os.replace(os.path.join(other, "model.safetensors"), os.path.join(two, "model.safetensors"))
        request = types.SimpleNamespace(lora_request=adapter(two))
        with self.assertLogs("sluice.weights", "WARNING"):
            unknown = keys(request=request)
        self.assertEqual(keys(request=request), unknown, "a request has one name")
        self.assertNotEqual(keys(two), unknown, "what is not known was found")
        self.tier()
        self.assertEqual(keys(one), before, "a second tier of the process says it once more")
        self.assertNotEqual(keys(two)[0][3], unknown[0][3])

    def test_a_vllm_that_hashes_adapters_otherwise_is_refused(self):
        class EngineCore:
            def load_lora(self, lora_request):
                return True

        utils = vllm_tier.kv_cache_utils
        for owner, name, other in ((vllm_tier, "EngineCore", EngineCore), (utils, "_gen_lora_extra_hash_keys", lambda lora: []),
                                   (utils, "_gen_lora_extra_hash_keys", None), (utils, "generate_block_hash_extra_keys", lambda request: []),
                                   (utils, "generate_block_hash_extra_keys", None)):
            with mock.patch.object(owner, name, other), self.assertRaisesRegex(ValueError, r"this vLLM has no \S+\.(add_lora|_gen_lora.*)\("):
                self.tier()
        self.tier()

    def test_what_is_missing_is_named_and_a_miss_for_a_while(self):
        tier, _ = self.tier()
        keys = keys_of(4)
        tier.submit_store(job(1, keys[:2], [0, 1]))
        self.assertTrue(self.finished(tier)[1].success)
        tier.submit_load(job(2, keys, [0, 1, 2, 3]))
        loaded = self.finished(tier)[2]
        self.assertEqual((loaded.success, loaded.successful_keys), (False, tuple(keys[:2])))
        tier.submit_store(job(3, keys, [0, 1, 2, 3]))
        self.assertTrue(self.finished(tier)[3].success)
        miss, hit = stubs.LookupResult.MISS, stubs.LookupResult.HIT
        self.assertEqual([tier.lookup(one, self.request) for one in keys], [hit, hit, miss, miss])
        self.assertEqual(tier._lookups.missed, keys[2:])
        with mock.patch.object(vllm_tier.time, "monotonic", return_value=time.monotonic() + vllm_tier.FAILED_SECONDS + 1):
            self.assertEqual([tier.lookup(one, self.request) for one in keys], [hit] * 4)

    def test_a_chunk_of_another_size_is_no_hit(self):
        tier, _ = self.tier()
        one, = keys_of(1)
        tier.submit_store(job(0, [one], [0]))
        self.finished(tier)
        stored, = self.client.list()
        self.client.remove(stored.key)
        self.client.put(stored.key, bytes(ROW_BYTES - 1))
        tier.submit_load(job(1, [one], [0]))
        loaded = self.finished(tier)[1]
        self.assertEqual((loaded.success, loaded.successful_keys), (False, None))
        self.assertIs(tier.lookup(one, self.request), stubs.LookupResult.MISS)

    def test_no_call_waits_while_the_registrar_stands_still(self):
        tier, flat = self.tier(timeout=5 * PACE)
        there, fresh = keys_of(1), keys_of(4, salt=1)
        self.row(flat, 0)[:] = b"x" * ROW_BYTES
        tier.submit_store(job(1, there, [0]))
        self.finished(tier)
        with self.node.actors_stopped("registrar"):
            began = time.monotonic()
            with Slept() as slept:
                tier.submit_store(job(2, fresh, [1, 2, 3, 4]))
                self.assertIs(tier.lookup(there[0], self.request), stubs.LookupResult.HIT)
                self.assertIs(tier.lookup(fresh[0], self.request), stubs.LookupResult.MISS)
                tier.submit_load(job(3, there, [9]))
                early = list(tier.get_finished_jobs())
            self.assertLess(slept.seconds, QUICK_SECONDS)
            tier.drain_jobs()
            self.assertLess(time.monotonic() - began, 30 * PACE)
            results = {one.job_id: one for one in [*early, *tier.get_finished_jobs()]}
            self.assertEqual((results[2].success, results[3].success), (False, True))
            self.assertEqual(bytes(self.row(flat, 9)), b"x" * ROW_BYTES)

    def test_no_bytes_are_wrong_while_the_registrar_is_killed(self):
        tier, flat = self.tier(timeout=1 * PACE)
        values = {one: bytes([at]) * ROW_BYTES for at, one in enumerate(keys_of(16))}
        for at, value in enumerate(values.values()):
            self.row(flat, at)[:] = value
        old, hits = self.node.pid("registrar"), 0
        for turn in range(30):
            if turn == 5:
                os.kill(old, signal.SIGKILL)
            tier.submit_store(job(2 * turn, list(values), range(16)))
            tier.submit_load(job(2 * turn + 1, list(values), range(32, 48)))
            tier.drain_jobs()
            results = {one.job_id: one for one in tier.get_finished_jobs()}
            self.assertEqual(set(results), {2 * turn, 2 * turn + 1})
            for at, (one, value) in enumerate(values.items()):
                if one in (results[2 * turn + 1].successful_keys or ()):
                    hits += 1
                    self.assertEqual(bytes(self.row(flat, 32 + at)), value)
        self.assertGreater(hits, 0)
        self.node.wait_restarted("registrar", old)

    def test_a_drain_ends_though_a_job_does_not(self):
        """vLLM reuses the memory after a drain: while a job uses it, the drain must not seem to be over."""
        tier, _ = self.tier(timeout=0.05)
        waits = []

        def wait(seconds):
            self.assertLess(len(waits), 100, "it waits for ever")
            waits.append(seconds)
            time.sleep(seconds)
            return len(waits) > 1 and slow

        stuck = types.SimpleNamespace(wait=wait, close=lambda: None)
        with mock.patch.object(tier._link, "open", lambda: (None, stuck)):
            for slow in (False, True):  # for ever; only longer than its deadline
                waits.clear()
                if slow:
                    tier.drain_jobs()
                    self.assertEqual(len(waits), 2)
                else:
                    with self.assertRaisesRegex(TimeoutError, "have not ended"):
                        tier.drain_jobs()
                    self.assertLessEqual(sum(waits), 10 * 0.05)

    def test_without_a_node_all_is_a_miss_and_ends(self):
        with mock.patch.dict(os.environ, {"SLUICE_RUNTIME_DIR": self.node.directory + "/none", "SLUICE_SHM_DIR": self.node.shm + "-none"}):
            tier, _ = self.tier()
            keys = keys_of(2)
            self.assertIs(tier.lookup(keys[0], self.request), stubs.LookupResult.MISS)
            tier.submit_store(job(1, keys, [0, 1]))
            tier.submit_load(job(2, keys, [0, 1]))
            tier.drain_jobs()
            self.assertEqual({number: one.success for number, one in self.finished(tier, 2).items()}, {1: False, 2: False})

    def test_it_lets_go_of_vllms_memory(self):
        memory = (ctypes.c_byte * ROW_BYTES * ROWS)()
        view = memoryview(memory)
        tier = vllm_tier.SluiceTier(offloading_spec=spec(), primary_kv_view=view, tier_type="SluiceTier")
        tier.submit_store(job(1, keys_of(ROWS), range(ROWS)))
        tier.on_request_finished(self.request)
        tier.on_schedule_end(None)
        tier.shutdown()
        view.release()  # BufferError if a job still had it
        self.assertEqual((tier._lookups.cleaned, tier._lookups.down), (["r"], True))

    def test_options_are_strict(self):
        for given in ({"root_dir": "/x"}, {"timeout": -1}, {"enable_kv_events": "perhaps"}, {"locality": "NEAR"}):
            with self.assertRaises(ValueError, msg=given):
                self.tier(**given)


if __name__ == "__main__":
    sys.exit(main())
