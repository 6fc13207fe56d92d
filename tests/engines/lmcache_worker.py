"""Runs in LMCache's environment: LMCache's own engine, controlled by lines of JSON.

The engine, its storage manager, its back ends and its connector are LMCache's. `Pool` replaces a GPU: it copies between CPU tensors and the
engine's memory objects. A seed gives the tokens of a prompt and the bytes of its KV cache, so that every process knows them. Arguments: one
JSON object, read in engine_make()."""

import os
import statistics
import threading
import time
import types

import prometheus_client
import torch
from lmcache.utils import mock_up_broadcast_fn, mock_up_broadcast_object_fn
from lmcache.v1.cache_engine import LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.gpu_connector import GPUConnectorInterface
from lmcache.v1.lookup_client.mooncake_lookup_client import MooncakeLookupClient
from lmcache.v1.metadata import LMCacheMetadata

from serve import serve

LAYERS, HEADS, HEAD, CHUNK = 4, 2, 64, 256
COUNTERS = {"lmcache:num_lookup_tokens_total": "queried", "lmcache:num_lookup_hits_total": "hits",
            "lmcache:num_requested_tokens_total": "asked", "lmcache:num_hit_tokens_total": "loaded"}
STORE_SECONDS = 60


def tokens_of(seed, count):
    return torch.randint(0, 32000, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def cache_of(seed, count, rank):
    """[2][layers][tokens][heads * head_dim] float16, any bits; a longer prompt begins with the same"""
    generator = torch.Generator().manual_seed(seed * 64 + rank)
    by_token = torch.randint(-32768, 32768, (count, 2, LAYERS, HEADS * HEAD), generator=generator, dtype=torch.int16)
    return by_token.permute(1, 2, 0, 3).contiguous().view(torch.float16)


def same_bytes(one, other):
    return torch.equal(one.view(torch.int16), other.view(torch.int16))


class Pool(GPUConnectorInterface):
    """kvcaches: the cache of a whole prompt, as cache_of() makes it."""

    def get_shape(self, num_tokens):
        return torch.Size([2, LAYERS, num_tokens, HEADS * HEAD])

    def from_gpu(self, memory_obj, start, end, **kwargs):
        memory_obj.tensor.copy_(kwargs["kvcaches"][:, :, start:end])

    def to_gpu(self, memory_obj, start, end, **kwargs):
        kwargs["kvcaches"][:, :, start:end].copy_(memory_obj.tensor)

    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for memory_obj, start, end in zip(memory_objs, starts, ends):
            self.from_gpu(memory_obj, start, end, **kwargs)

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for memory_obj, start, end in zip(memory_objs, starts, ends):
            self.to_gpu(memory_obj, start, end, **kwargs)


def storage_of(told):
    """LMCache's settings: Sluice's plug-in (`native`: its options), or the connector to a master of Mooncake."""
    if "native" in told:
        return {"storage_plugins": ["sluice"],
                "extra_config": {"storage_plugin.sluice.module_path": "sluice.lmcache", "storage_plugin.sluice.class_name": "SluiceBackend",
                                 **{f"sluice.{name}": value for name, value in told["native"].items()}}}
    address = told["master"]
    return {"remote_url": f"mooncakestore://{address}/", "remote_serde": "naive",
            "extra_config": {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "master_server_address": address,
                             "protocol": "tcp", "device_name": "", "global_segment_size": told.get("segment_bytes", 0),
                             "local_buffer_size": 64 << 20, "transfer_timeout": 30, "save_chunk_meta": told.get("chunk_meta", False)}}


def engine_make(told):
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=told.get("chunk", CHUNK), local_cpu=told.get("hot", False), max_local_cpu_size=told.get("gib", 0.2),
        save_unfull_chunk=told.get("unfull", False), enable_async_loading=told.get("asynchronous", False), pre_caching_hash_algorithm="sha256_cbor", blocking_timeout_secs=30,
        **storage_of(told))
    ranks = told.get("ranks", 1)
    metadata = LMCacheMetadata(model_name="engines/test", world_size=ranks, local_world_size=ranks, worker_id=told.get("rank", 0),
                               local_worker_id=told.get("rank", 0), kv_dtype=torch.float16, kv_shape=(LAYERS, 2, config.chunk_size, HEADS, HEAD),
                               chunk_size=config.chunk_size)
    engine = LMCacheEngineBuilder.get_or_create("worker", config, metadata, Pool(), mock_up_broadcast_fn, mock_up_broadcast_object_fn)
    engine.post_init()
    return engine


class Worker:
    def __init__(self, told):
        self.rank, self.master, self.speeds = told.get("rank", 0), told.get("master"), 0
        self.engine = engine_make(told)

    def counters(self):
        """LMCache's own counters, which one of its threads moves to Prometheus now and then; here this is done immediately."""
        logger = LMCacheEngineBuilder._stat_loggers["worker"]
        logger.prometheus_logger.log_prometheus(logger.monitor.get_stats_and_clear())
        found = dict.fromkeys(COUNTERS.values(), 0)
        for family in prometheus_client.REGISTRY.collect():
            for sample in family.samples:
                if sample.name in COUNTERS:
                    found[COUNTERS[sample.name]] += int(sample.value)
        return found

    def counted(self, before, **more):
        after = self.counters()
        return {**more, **{name: after[name] - before[name] for name in after}}

    def store(self, seed, count, wait=True, configs=None):
        """Answers when LMCache finds the whole prompt, since it writes after its answer; `wait` false: immediately. configs: what vLLM's
        request has in its kv_transfer_params, as LMCache's connector passes it on."""
        self.engine.store(tokens=tokens_of(seed, count), kvcaches=cache_of(seed, count, self.rank), request_configs=configs)
        end_s = time.monotonic() + STORE_SECONDS
        while wait and self.engine.lookup(tokens_of(seed, count)) < count // CHUNK * CHUNK:
            if time.monotonic() > end_s:
                return {"error": f"not stored within {STORE_SECONDS} s"}
            time.sleep(0.01)
        return {}

    def lookup(self, seed, count):
        before = self.counters()
        found = self.engine.lookup(tokens_of(seed, count))
        return self.counted(before, found=found)

    def scheduler_lookup(self, seed, count):
        """Looks up with LMCache's client that asks the store without an engine."""
        asks = MooncakeLookupClient(self.engine.config, self.engine.metadata, self.master)
        found = asks.lookup(tokens_of(seed, count))
        asks.store.close()
        return {"found": found}

    def retrieve(self, seed, count, configs=None):
        """right: the bytes are those that were stored, and nothing else was written."""
        before, pool = self.counters(), torch.zeros(2, LAYERS, count, HEADS * HEAD, dtype=torch.float16)
        mask = self.engine.retrieve(tokens_of(seed, count), kvcaches=pool, request_configs=configs)
        want = cache_of(seed, count, self.rank)
        want[:, :, ~mask] = 0
        return self.counted(before, found=int(mask.sum()), right=same_bytes(pool, want))

    def pinned(self, seed, count):
        """Does a lookup that pins, a removal by another client, and a read; then the same without a pin."""
        import sluice  # the native plug-in's

        looked = self.engine.lookup(tokens_of(seed, count), lookup_id="pinned", pin=True)
        time.sleep(0.5)  # pins are taken after the answer
        with sluice.Client() as client:
            client.remove_batch([info.key for info in client.list("lmcache/")])
        answer = self.retrieve_pinned(seed, count, "pinned")
        self.engine.lookup_unpin("pinned")
        return {**answer, "looked": looked, "after": self.retrieve(seed, count)["found"]}

    def retrieve_pinned(self, seed, count, lookup_id):
        pool = torch.zeros(2, LAYERS, count, HEADS * HEAD, dtype=torch.float16)
        mask = self.engine.retrieve(tokens_of(seed, count), kvcaches=pool, req_id=lookup_id)
        want = cache_of(seed, count, self.rank)
        want[:, :, ~mask] = 0
        return {"found": int(mask.sum()), "right": same_bytes(pool, want)}

    def prefetch(self, seed, count):
        """Asynchronous loading: the lookup starts it and notifies a scheduler when it is done, here one that only waits."""
        answered = threading.Event()
        self.engine.storage_manager.async_lookup_server = types.SimpleNamespace(send_response_to_scheduler=lambda *_: answered.set())
        self.engine.async_lookup_and_prefetch(lookup_id="prefetch", tokens=tokens_of(seed, count), pin=True)
        if not answered.wait(STORE_SECONDS):
            return {"error": f"no answer to the lookup within {STORE_SECONDS} s"}
        return self.retrieve_pinned(seed, count, "prefetch")

    def work(self, seeds, count, seconds):
        """Stores and retrieves prompts in turn for this time."""
        end_s, rounds, found, wrong = time.monotonic() + seconds, 0, 0, 0
        while time.monotonic() < end_s:
            seed = seeds[rounds % len(seeds)]
            self.store(seed, count, wait=False)
            answer = self.retrieve(seed, count)
            rounds, found, wrong = rounds + 1, found + answer["found"], wrong + (not answer["right"])
        return {"rounds": rounds, "found": found, "wrong": wrong}

    def speed(self, rounds, count):
        """GB/s and seconds of this process's CPU for each GB, medians of the rounds: chunks stored until they are found, read without a
        copy, read and copied on as to an engine; and only a copy of as many bytes."""
        torch.set_num_threads(1)
        manager = self.engine.storage_manager
        location, = (name for name in manager.storage_backends if name != "LocalCPUBackend")
        found = {"put": [], "handed": [], "get": [], "memcpy": []}
        source, pool = cache_of(1, count, 0), torch.zeros(2, LAYERS, count, HEADS * HEAD, dtype=torch.float16)
        gigabytes = source.nbytes / 1e9

        def timed(name, call):
            wall_s, cpu_s = time.monotonic(), time.process_time()
            answer = call()
            found[name].append((gigabytes / (time.monotonic() - wall_s), (time.process_time() - cpu_s) / gigabytes))
            return answer

        def put(keys, objects):
            manager.batched_put(keys, objects)
            while manager.batched_contains(keys)[0] < len(keys):
                time.sleep(0.0002)

        def get(keys, chunks):
            objects = manager.batched_get(keys, location)
            for one, (start, end, _) in zip(objects, chunks):
                pool[:, :, start:end].copy_(one.tensor)
            return objects

        def let_go(objects):
            for one in objects:
                one.ref_count_down()

        for _ in range(rounds + 1):
            chunks = list(self.engine.token_database.process_tokens(tokens_of(1000 + self.speeds, count)))
            self.speeds += 1
            keys = [key for _, _, key in chunks]
            objects = [manager.allocate(self.engine.metadata.get_shapes(end - start), self.engine.metadata.get_dtypes(), busy_loop=False)
                       for start, end, _ in chunks]
            for one, (start, end, _) in zip(objects, chunks):
                one.tensor.copy_(source[:, :, start:end])
            timed("put", lambda: put(keys, objects))
            let_go(timed("handed", lambda: manager.batched_get(keys, location)))
            pool.zero_()
            objects = timed("get", lambda: get(keys, chunks))
            let_go(objects)
            if not same_bytes(pool, source):
                return {"error": "other bytes than were stored"}
            timed("memcpy", lambda: pool.copy_(source))
            manager.batched_remove(keys)
        return {name: [statistics.median(column) for column in zip(*figures[1:])] for name, figures in found.items()}

    def close(self):
        LMCacheEngineBuilder.destroy("worker")
        return {}


def stop(worker):
    worker.close()
    os._exit(0)  # does not wait for LMCache's threads


def main():
    serve(lambda told: (Worker(told), {}), lambda worker, name, **arguments: getattr(worker, name)(**arguments), stop)


if __name__ == "__main__":
    main()
