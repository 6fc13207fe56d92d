"""Runs in SGLang's environment, without a GPU: SGLang's own classes between its device pools and the store, controlled by lines of
JSON.

mode hicache: a host pool, and HiCacheController with its storage threads over the back end mooncake. mode linker: the direct linker
of the unified cache, over a device pool of CPU tensors. A seed gives the bytes of a page, so that every process knows them.
Arguments: one JSON object, read in HiCache and Linker."""

import os
import queue
import threading
import time

import torch
from sglang.srt.managers.cache_controller import HiCacheController
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.hicache_storage import PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool, MHATokenToKVPool, MLATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs

from serve import serve

PAGE, LAYERS, TOKENS = 64, 4, 4096
HOST_BYTES_MAX = 256 << 20
WAIT_SECONDS = 60


def server_args_publish(told):
    arguments = ServerArgs(model_path="dummy", page_size=PAGE, device="cpu", tp_size=told.get("ranks", 1))
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=told.get("rank", 0)))
    return arguments


def store_config(told):
    """As in --hicache-storage-backend-extra-config."""
    config = {"master_server_address": told["master"], "local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE",
              "protocol": "tcp", "device_name": "", "global_segment_size": told.get("segment_bytes", 0)}
    if "client" in told:
        config.update(standalone_storage=True, client_server_address=told["client"])
    return {**config, **told.get("extra", {})}


def tokens_of(seed, pages):
    return torch.randint(0, 32000, (pages * PAGE,), generator=torch.Generator().manual_seed(seed)).tolist()


def bytes_of(count, *seeds):
    """uint8, different for each seed"""
    seed = 0
    for part in seeds:
        seed = seed * 1009 + part
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


class HiCache:
    """Pages of host memory, stored and fetched by the controller's own threads, as its scheduler requests them."""

    backend, config = "mooncake", staticmethod(store_config)

    def __init__(self, told):
        server_args_publish(told)
        self.rank = told.get("rank", 0)
        mha = told["kind"] == "mha"
        if mha:
            device = MHATokenToKVPool(TOKENS // 2, PAGE, torch.float16, told.get("heads", 2), 64, LAYERS, "cpu", False)
        else:
            device = MLATokenToKVPool(TOKENS // 2, PAGE, torch.float16, 512, 64, LAYERS, "cpu", False)
        make, more = (MHATokenToKVPoolHost, {}) if mha else (MLATokenToKVPoolHost, {"target_layer_num": LAYERS})
        with host_memory_budget_scope(HOST_BYTES_MAX):  # otherwise SGLang wants 10 GiB of the machine to stay free
            self.host = make(device.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE, told["layout"], pin_memory=False,
                             allocator_type="mooncake" if "client" in told else "default", device_capacity_tokens=device.size,
                             start_layer=device.start_layer, end_layer=device.end_layer, **more)
        self.controller = HiCacheController(
            PagedTokenToKVPoolAllocator(TOKENS // 2, PAGE, torch.float16, "cpu", device, False), self.host, PAGE, None,
            threading.Event(), io_backend="direct", storage_backend=self.backend, model_name="engines/test",
            storage_backend_extra_config=self.config(told), prefetch_threshold=PAGE, enable_storage_metrics=True)
        self.shared = not mha  # MLA: all ranks have the same bytes
        self.page = self.host.get_dummy_flat_data_page()

    def page_of(self, seed, number):
        return bytes_of(self.page.nbytes, seed, number, 0 if self.shared else self.rank).view(self.page.dtype)

    def counted(self):
        """[pages stored, pages fetched] since the last time, as the back end counts them for SGLang's metrics"""
        stats = self.controller.storage_backend.get_stats()
        return [sum(stats.backup_pgs), sum(stats.prefetch_pgs)]

    def write(self, seed, pages):
        """Returns the number of tokens that the controller reports as stored."""
        indices, tokens = self.host.alloc(pages * PAGE), tokens_of(seed, pages)
        for number in range(pages):
            self.host.set_from_flat_data_page(int(indices[number * PAGE]), self.page_of(seed, number))
        self.controller.write_storage(indices, tokens, hash_value=get_storage_hash_str(tokens, None, page_size=PAGE))
        done = self.controller.ack_backup_queue.get(timeout=WAIT_SECONDS)
        self.host.free(indices)
        return {"tokens": done.completed_tokens, "counted": self.counted()[0]}

    def read(self, seed, pages):
        """found: tokens that the store has; tokens: of them, those that were read; right: with the right bytes."""
        self.controller.prefetch("request", tokens_of(seed, pages))
        operation = self.controller.prefetch_hit_queue.get(timeout=WAIT_SECONDS)
        found, came, wrong = operation.storage_hit_count, 0, 0
        if found:
            indices = self.host.alloc(found)
            for number in range(found // PAGE):
                self.host.set_from_flat_data_page(int(indices[number * PAGE]), torch.zeros_like(self.page))
            operation.host_indices = indices
            self.controller.prefetch_buffer.put(operation)
            while True:
                ack = self.controller.ack_prefetch_queue.get(timeout=WAIT_SECONDS)
                came = came if ack.completed_tokens is None else ack.completed_tokens
                if ack.completed_req:
                    break
            for number in range(came // PAGE):
                page = self.host.get_data_page(int(indices[number * PAGE]))
                wrong += not torch.equal(page.view(torch.uint8), self.page_of(seed, number).view(torch.uint8))
            self.host.free(indices)
        return {"found": found, "tokens": came, "right": wrong == 0, "counted": self.counted()[1]}

    def close(self):
        self.controller.detach_storage_backend()


class Linker:
    """Pages of a device pool, stored and loaded layer by layer without a host pool. The pool is that of a model with sparse
    attention (DSA): latent cache and index, two objects a page."""

    def __init__(self, told):
        arguments = server_args_publish(told)
        device = DSATokenToKVPool(size=TOKENS, page_size=PAGE, dtype=torch.bfloat16, kv_lora_rank=512, qk_rope_head_dim=64,
                                  layer_num=LAYERS, device="cpu", enable_memory_saver=False, kv_cache_dim=576, index_head_dim=128)
        self.allocator = PagedTokenToKVPoolAllocator(TOKENS, PAGE, torch.bfloat16, "cpu", device, False)
        requests = ReqToTokenPool(size=4, max_context_len=TOKENS, device="cpu", enable_memory_saver=False)
        params = CacheInitParams(disable=False, req_to_token_pool=requests, token_to_kv_pool_allocator=self.allocator, page_size=PAGE)
        self.linker = self.make(arguments, params, {ComponentType.FULL}, told)

    def make(self, arguments, params, components, told):
        from sglang.srt.mem_cache.storage.mooncake_store.mooncake_direct_linker import MooncakeDirectLinker

        return MooncakeDirectLinker(arguments, params, components=components, extra_config=store_config(told))

    def transfer(self, seed, pages, indices=None):
        return PoolTransfer(name=PoolName.KV, device_indices=indices,
                            keys=get_storage_hash_str(tokens_of(seed, pages), None, page_size=PAGE))

    def pieces(self, indices):
        """The parts of all pools that belong to a page: (page number, which part, its bytes)."""
        for number in range(len(indices) // PAGE):
            slot, part = int(indices[number * PAGE]), 0
            for entry in self.linker.pools.values():
                rows = slice(slot, slot + PAGE) if entry.name == PoolName.KV else slice(slot // PAGE, slot // PAGE + 1)
                for buffer in entry.kv_buffer:
                    yield number, part, buffer[rows].view(torch.uint8).view(-1)
                    part += 1

    def write(self, seed, pages, session_id=None):
        indices = self.allocator.alloc(pages * PAGE)
        for number, part, piece in self.pieces(indices):
            piece.copy_(bytes_of(piece.numel(), seed, number, part))
        stored = self.linker.offload([self.transfer(seed, pages, indices)], session_id=session_id)
        end_s = time.monotonic() + WAIT_SECONDS
        while stored and not self.linker.num_completed_offloads():
            if time.monotonic() > end_s:
                raise TimeoutError(f"not offloaded within {WAIT_SECONDS} s")
            time.sleep(0.005)
        stored = stored and self.linker.pop_completed_offload()
        self.allocator.free(indices)
        return {"tokens": pages * PAGE * stored, "counted": pages * stored}

    def read(self, seed, pages):
        before = self.linker.stats["load"]
        hits = self.linker.lookup("request", [self.transfer(seed, pages)])
        found, wrong, came = max(hits, default=0), 0, 0
        if found:
            indices = self.allocator.alloc(found * PAGE)
            for _, _, piece in self.pieces(indices):
                piece.zero_()
            wanted = self.transfer(seed, pages, indices)
            wanted.keys = wanted.keys[:found]
            self.linker.load("request", [wanted])
            batch = self.linker.start_layer_wise_loading()
            self.linker.layer_done_counter.set_consumer(batch)
            try:
                self.linker.layer_done_counter.wait_until(LAYERS - 1)
            except RuntimeError as error:  # some layers were not loaded; the bytes are not used
                print(f"load: {error}", flush=True)
            came = found if self.linker.finish_layer_wise_loading(batch) else 0
            if came:
                wrong = sum(not torch.equal(piece, bytes_of(piece.numel(), seed, number, part))
                            for number, part, piece in self.pieces(indices))
            self.allocator.free(indices)
        return {"found": found * PAGE, "tokens": came * PAGE, "right": wrong == 0,
                "counted": came * (self.linker.stats["load"] > before)}

    def close(self):
        self.linker.close()


def work(engine, seeds, pages, seconds):
    """Stores and reads prompts in turn for this time."""
    end_s, rounds, tokens, wrong = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < end_s:
        seed = seeds[rounds % len(seeds)]
        engine.write(seed, pages)
        answer = engine.read(seed, pages)
        rounds, tokens, wrong = rounds + 1, tokens + answer["tokens"], wrong + (not answer["right"])
    return {"rounds": rounds, "tokens": tokens, "wrong": wrong}


def start(told):
    return (Linker if told["mode"] == "linker" else HiCache)(told), {}


def command(engine, name, **arguments):
    try:
        return work(engine, **arguments) if name == "work" else getattr(engine, name)(**arguments)
    except queue.Empty:
        raise TimeoutError(f"SGLang's threads did not answer within {WAIT_SECONDS} s") from None


def stop(engine):
    engine.close()
    os._exit(0)  # does not wait for SGLang's threads


def main():
    serve(start, command, stop)


if __name__ == "__main__":
    main()
