"""As sglang_worker.py, on the native back ends of the package sluice: HiCache's dynamic back end and the unified cache's linker.

A seed gives the bytes of a page head by head and layer by layer, so that every layout and every split over ranks has the same model's
bytes. Arguments as of sglang_worker.py, and: heads (of this rank), node (extra configuration that locates it), v1 (whether pages are in
the host pool)."""

import torch
from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.dsa import DSAIndexerPoolHost, make_dsa_indexer_pool_decl
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory
from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker

import sglang_worker
from serve import serve
from sglang_worker import LAYERS, PAGE, HiCache, Linker, bytes_of

DIM, LATENT, POOL_TOKENS = 64, 512 + 64, 1024
# A layout's order of the dimensions of a page: [K or V][layer][token][head][dim], or [layer][token][latent].
MHA_ORDER = {"page_first": (0, 2, 1, 3, 4), "page_head": (0, 3, 2, 1, 4)}
MLA_ORDER = {"page_first": (1, 0, 2)}


def native_config(told):
    return {"backend_name": "sluice", "module_path": "sluice.sglang", "class_name": "SluiceHiCache", "interface_v1": told.get("v1", 1),
            **told["node"], **told.get("extra", {})}


class NativeHiCache(HiCache):
    backend, config = "dynamic", staticmethod(native_config)

    def __init__(self, told):
        self.layout, self.heads = told["layout"], told.get("heads", 2)
        super().__init__(told)

    def page_of(self, seed, number):
        if self.shared:
            page = bytes_of(LAYERS * PAGE * LATENT * 2, seed, number).view(torch.float16).view(LAYERS, PAGE, LATENT)
            order = MLA_ORDER.get(self.layout)
        else:
            first = self.rank * self.heads
            page = torch.stack([bytes_of(2 * LAYERS * PAGE * DIM * 2, seed, number, head).view(torch.float16).view(2, LAYERS, PAGE, DIM)
                                for head in range(first, first + self.heads)], dim=3)
            order = MHA_ORDER.get(self.layout)
        return (page.permute(order) if order else page).contiguous().flatten()


class Hybrid:
    """The pools of a hybrid model: MLA with its index (all pages are needed), and states of linear attention, of which a prefix needs
    the last one. The back end is called as HybridCacheController does."""

    def __init__(self, told):
        sglang_worker.server_args_publish(told)
        device = DSATokenToKVPool(size=POOL_TOKENS, page_size=PAGE, dtype=torch.bfloat16, kv_lora_rank=512, qk_rope_head_dim=64,
                                  layer_num=LAYERS, device="cpu", enable_memory_saver=False, kv_cache_dim=LATENT, index_head_dim=128)
        state = MambaStateBufferInfo(temporal=torch.zeros(2, 9, 4, 16, dtype=torch.float32),
                                     conv=(torch.zeros(2, 9, 3, 8, dtype=torch.bfloat16), torch.zeros(2, 9, 5, dtype=torch.bfloat16)))
        with host_memory_budget_scope(sglang_worker.HOST_BYTES_MAX):
            latent = MLATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE, told["layout"], pin_memory=False,
                                          device_capacity_tokens=device.size, start_layer=device.start_layer,
                                          end_layer=device.end_layer, target_layer_num=LAYERS)
            index = DSAIndexerPoolHost(make_dsa_indexer_pool_decl(device), latent, pin_memory=False)
            states = MambaPoolHost(state, 2, 0, device_capacity=8, pin_memory=False, layout=told["layout"])
        self.pools = {PoolName.KV: latent, PoolName.INDEXER: index, PoolName.MAMBA: states}
        self.storage = StorageBackendFactory.create_backend("dynamic", HiCacheStorageConfig(
            tp_rank=told.get("rank", 0), tp_size=told.get("ranks", 1), pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
            is_mla_model=True, enable_storage_metrics=True, is_page_first_layout=False, model_name="engines/hybrid",
            extra_config=native_config(told)), latent)
        self.storage.register_mem_pool_host(latent)
        for name, pool in self.pools.items():
            self.storage.register_mem_host_pool_v2(pool, name)
        self.storage.on_host_pools_registered()

    def buffers(self, name):
        """[pages or slots][bytes], one for each tensor of a pool."""
        pool = self.pools[name]
        tensors = pool.get_hybrid_pool_buffer() if hasattr(pool, "get_hybrid_pool_buffer") else [pool.kv_buffer]
        rows = [len(tensor) // PAGE if len(tensor) == pool.size and name != PoolName.MAMBA else len(tensor) for tensor in tensors]
        return [tensor.view(-1).view(torch.uint8).view(count, -1) for tensor, count in zip(tensors, rows)]

    def fill(self, name, page, *seeds):
        for part, buffer in enumerate(self.buffers(name)):
            buffer[page] = bytes_of(buffer.shape[1], *seeds, part) if seeds else 0

    def right(self, name, page, *seeds):
        return all(torch.equal(buffer[page], bytes_of(buffer.shape[1], *seeds, part)) for part, buffer in enumerate(self.buffers(name)))

    def transfer(self, name, keys, pages, policy=PoolHitPolicy.ALL_PAGES):
        page = self.pools[name].page_size or 1
        indices = torch.cat([torch.arange(number * page, (number + 1) * page) for number in pages])
        return PoolTransfer(name=name, host_indices=indices, keys=keys, hit_policy=policy)

    def write(self, seed, pages, states):
        """states: numbers of pages after which there is a state. Returns what was reported as stored, by pool."""
        keys = [f"{seed}-{number}" for number in range(pages)]
        for number in range(pages):
            for name in (PoolName.KV, PoolName.INDEXER):
                self.fill(name, number, seed, number, len(name))
        for number in states:
            self.fill(PoolName.MAMBA, number, seed, number, 3)
        pool = [self.transfer(PoolName.INDEXER, keys, range(pages))]
        pool += [self.transfer(PoolName.MAMBA, [keys[number - 1] for number in states], states)] if states else []
        told = self.storage.batch_set_v2(pool)
        told[PoolName.KV] = self.storage.batch_set_v1(keys, self.transfer(PoolName.KV, keys, range(pages)).host_indices)
        return {"stored": {str(name): sum(ok) for name, ok in told.items()}}

    def read(self, seed, pages):
        """lengths: at which a prefix is complete; right: all pools of the longest have the bytes that were stored."""
        keys = [f"{seed}-{number}" for number in range(pages)]
        wanted = [PoolTransfer(name=PoolName.INDEXER, keys=keys),
                  PoolTransfer(name=PoolName.MAMBA, keys=keys[-1:], hit_policy=PoolHitPolicy.TRAILING_PAGES)]
        hit = self.storage.batch_exists_v2(keys, wanted)
        count = hit.kv_hit_pages
        answer = {"lengths": hit.restorable_prefix_pages, "hits": {str(name): n for name, n in hit.extra_pool_hit_pages.items()}}
        if not count:
            return {**answer, "right": True, "came": 0}
        for name in (PoolName.KV, PoolName.INDEXER):
            for number in range(pages):
                self.fill(name, number)
        self.fill(PoolName.MAMBA, 1)
        told = self.storage.batch_get_v2([self.transfer(PoolName.INDEXER, keys[:count], range(count)),
                                          self.transfer(PoolName.MAMBA, [keys[count - 1]], [1])])
        told[PoolName.KV] = self.storage.batch_get_v1(keys[:count], self.transfer(PoolName.KV, keys, range(count)).host_indices)
        right = all(self.right(name, number, seed, number, len(name)) for name in (PoolName.KV, PoolName.INDEXER)
                    for number in range(count)) and self.right(PoolName.MAMBA, 1, seed, count, 3)
        return {**answer, "right": right, "came": min(sum(ok) for ok in (told[PoolName.KV], told[PoolName.INDEXER])),
                "states": sum(told[PoolName.MAMBA])}

    def clear(self):
        self.storage.clear()
        return {}

    def close(self):
        self.storage.close()


class NativeLinker(Linker):
    def make(self, arguments, params, components, told):
        return create_unified_cache_linker(arguments, params, backend="dynamic", components=components, config={
            "linker": "SluiceLinker", "linker_module_path": "sluice.sglang.linker",
            "linker_extra_config": {**told["node"], **told.get("extra", {})}})


def start(told):
    if told["mode"] == "speed":
        from sglang_speed import Speed

        return Speed(told, native_config(told)), {}
    return {"linker": NativeLinker, "hicache": NativeHiCache, "hybrid": Hybrid}[told["mode"]](told), {}


if __name__ == "__main__":
    serve(start, sglang_worker.command, sglang_worker.stop)
