"""Runs in an environment with vLLM: its TieringOffloadingManager with Sluice as secondary tier, controlled by lines of JSON.

vLLM's worker side of this spec refuses CPUs, so the bytes of chunks are written into the primary tier's memory here; all else is
vLLM's. Arguments: {"tier": options of the tier, "chunks": of the primary tier}."""

import os
import time

import numpy
from vllm.v1.kv_offload.base import LookupResult, ReqContext, ScheduleEndContext, make_offload_key
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig, OffloadingGroupConfig, OffloadingModelConfig,
                                       OffloadingParallelConfig)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from serve import serve

CHUNK_BYTES = 64 << 10
STEP_SECONDS = 0.002
WAIT_SECONDS = 60


def config_of(told):
    tier = {"type": "SluiceTier", "module_path": "sluice.vllm_tier", **told.get("tier", {})}
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer",), group_id=0),), worker_kv_bytes_per_block=CHUNK_BYTES,
        enable_kv_cache_events=True, extra_config={"cpu_bytes_to_use": told["chunks"] * CHUNK_BYTES, "secondary_tiers": [tier]},
        engine_id=f"sluice-test-{os.getpid()}", model=OffloadingModelConfig(name="engines/test", dtype="float16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
                                          data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=False))


def keys_of(seed, count):
    return [make_offload_key(seed.to_bytes(16, "big") + at.to_bytes(16, "big"), 0) for at in range(count)]


def bytes_of(seed, at):
    return numpy.random.default_rng(seed * 4096 + at).integers(-128, 128, CHUNK_BYTES, dtype=numpy.int8)


class Worker:
    def __init__(self, told):
        self.spec = TieringOffloadingSpec(config_of(told))
        self.manager = self.spec.get_manager()
        self.memory = numpy.asarray(self.manager.primary_tier.get_kv_memoryview())
        self.requests, self.longest = 0, 0.0

    def request(self):
        self.requests += 1
        context = ReqContext(req_id=f"r{self.requests}")
        self.manager.on_new_request(context)
        return context

    def timed(self, call, *arguments):
        """Measures a call: it runs in the scheduler, so it must not wait."""
        began = time.monotonic()
        answer = call(*arguments)
        self.longest = max(self.longest, time.monotonic() - began)
        return answer

    def step(self, *fresh):
        self.timed(self.manager.on_schedule_end, ScheduleEndContext(new_req_ids=fresh, preempted_req_ids=()))
        time.sleep(STEP_SECONDS)

    def settle(self):
        """Waits until no transfer is under way."""
        end_s = time.monotonic() + WAIT_SECONDS
        while self.manager._jobs:
            self.timed(self.manager._process_finished_jobs)
            self.step()
            if time.monotonic() > end_s:
                raise RuntimeError(f"transfers are under way after {WAIT_SECONDS} s")

    def store(self, seed, count):
        """Writes into the primary tier, from where vLLM cascades it; then clears the primary tier."""
        context, keys = self.request(), keys_of(seed, count)
        prepared = self.timed(self.manager.prepare_store, keys, context)
        for key, chunk in zip(prepared.keys_to_store, prepared.store_spec.chunk_ids):
            self.memory[chunk] = bytes_of(seed, keys.index(key))
        self.timed(self.manager.complete_store, prepared.keys_to_store, context)
        self.manager.on_request_finished(context)
        self.step()
        self.settle()
        self.manager.reset_cache()
        events = sum(len(event.keys) for event in self.manager.take_events() if not event.removed and event.medium.name == "STORAGE")
        return {"events": events}

    def load(self, seed, count):
        """found: chunks up to the first miss; right: those with the right bytes."""
        context, keys, found, wrong, end_s = self.request(), keys_of(seed, count), 0, 0, time.monotonic() + WAIT_SECONDS
        while True:
            answers = [self.timed(self.manager.lookup, key, context) for key in keys]
            self.step()
            if not any(answer in (LookupResult.RETRY, LookupResult.HIT_PENDING) for answer in answers):
                break
            if time.monotonic() > end_s:
                raise RuntimeError(f"lookups ask to come again after {WAIT_SECONDS} s")
        while found < count and answers[found] is LookupResult.HIT:
            found += 1
        if found:
            loaded = self.manager.prepare_load(keys[:found], context)
            wrong = sum(not numpy.array_equal(self.memory[chunk], bytes_of(seed, at)) for at, chunk in enumerate(loaded.chunk_ids))
            self.manager.complete_load(keys[:found], context)
        self.manager.on_request_finished(context)
        self.settle()
        self.manager.reset_cache()
        return {"found": found, "right": wrong == 0}

    def work(self, seeds, count, seconds):
        end_s, rounds, found, wrong = time.monotonic() + seconds, 0, 0, 0
        while time.monotonic() < end_s:
            seed = seeds[rounds % len(seeds)]
            self.store(seed, count)
            answer = self.load(seed, count)
            rounds, found, wrong = rounds + 1, found + answer["found"], wrong + (not answer["right"])
        return {"rounds": rounds, "found": found, "wrong": wrong}

    def slowest(self):
        """Seconds of the longest call since the last question."""
        longest, self.longest = self.longest, 0.0
        return {"seconds": longest}


def stop(worker):
    worker.memory = None  # it points into memory that is closed
    worker.manager.shutdown()
    os._exit(0)


def main():
    serve(lambda told: (Worker(told), {}), lambda worker, name, **arguments: getattr(worker, name)(**arguments), stop)


if __name__ == "__main__":
    main()
