"""Runs in LMCache's environment: the storage manager of its multi-process server with an L2 adapter, controlled by lines of JSON.
Arguments: {"server": those of `lmcache server`}."""

import argparse
import os
import time

import torch
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec
from lmcache.v1.distributed.config import add_storage_manager_args, parse_args_to_config
from lmcache.v1.distributed.storage_manager import StorageManager
from lmcache.v1.mp_observability.event_bus import EventBusConfig, init_event_bus

from serve import serve

CHUNK_BYTES = 1 << 20
LAYOUT = MemoryLayoutDesc(shapes=[torch.Size([CHUNK_BYTES])], dtypes=[torch.uint8])
WAIT_SECONDS = 60


def keys_of(seed, count):
    return [ObjectKey(chunk_hash=ObjectKey.IntHash2Bytes(seed * 1000 + at), model_name="engines-test", kv_rank=0) for at in range(count)]


def bytes_of(seed, at):
    return torch.randint(0, 256, (CHUNK_BYTES,), generator=torch.Generator().manual_seed(seed * 1000 + at), dtype=torch.uint8)


class Worker:
    def __init__(self, told):
        parser = argparse.ArgumentParser()
        add_storage_manager_args(parser)
        init_event_bus(EventBusConfig(enabled=False))
        self.manager = StorageManager(parse_args_to_config(parser.parse_args(told["server"])))
        self.adapter = self.manager.l2_adapters()[0][1]

    def write(self, seed, count):
        """Writes into LMCache's own memory and from there into the store; then clears LMCache's memory."""
        keys, before = keys_of(seed, count), self.adapter.get_usage().total_bytes_used
        reserved = self.manager.reserve_write(keys, LAYOUT)
        for at, key in enumerate(keys):
            reserved[key].tensor.view(-1).copy_(bytes_of(seed, at))
        self.manager.finish_write(keys)
        end_s = time.monotonic() + WAIT_SECONDS
        while self.adapter.get_usage().total_bytes_used - before < count * CHUNK_BYTES:
            if time.monotonic() > end_s:
                return {"error": f"the store has {self.adapter.get_usage().total_bytes_used - before} bytes after {WAIT_SECONDS} s"}
            time.sleep(0.01)
        self.manager.clear(force=True)
        return {}

    def read(self, seed, count):
        """hits: chunks that LMCache counts as hits of the adapter; right: those with the right bytes."""
        keys = keys_of(seed, count)
        spec = PrefetchTaskSpec(key_groups=[GroupedObjectKeys(keys=keys, object_group_id=0, layout_desc=LAYOUT)])
        handle = self.manager.submit_prefetch_task(spec)
        if not self.manager.wait_prefetch_status(handle, WAIT_SECONDS):
            return {"error": f"no result of the prefetch within {WAIT_SECONDS} s"}
        result = self.manager.query_prefetch_status(handle)
        found = keys[:result.hit_cells[0].count_leading_ones()]
        wrong = 0
        if found:
            with self.manager.read_prefetched_results(found) as objects:
                wrong = len(found) if objects is None else sum(
                    not torch.equal(one.tensor.view(-1), bytes_of(seed, at)) for at, one in enumerate(objects))
            self.manager.finish_read_prefetched(found)
        self.manager.clear(force=True)
        return {"hits": result.l2_hit_count, "found": len(found), "right": wrong == 0}

    def work(self, seeds, count, seconds):
        end_s, rounds, hits, wrong = time.monotonic() + seconds, 0, 0, 0
        while time.monotonic() < end_s:
            answer = self.read(seeds[rounds % len(seeds)], count)
            if "error" in answer:
                return answer
            rounds, hits, wrong = rounds + 1, hits + answer["hits"], wrong + (not answer["right"])
        return {"rounds": rounds, "hits": hits, "wrong": wrong}


def stop(worker):
    worker.manager.close()
    os._exit(0)  # does not wait for LMCache's threads


def main():
    serve(lambda told: (Worker(told), {}), lambda worker, name, **arguments: getattr(worker, name)(**arguments), stop)


if __name__ == "__main__":
    main()
