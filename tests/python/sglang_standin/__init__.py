"""Replaces SGLang and torch where they are not installed, so that sluice.sglang can be imported and called: the few names it uses, pools of
plain memory, and tensors that are arrays. tests/engines/sglang_native.py drives the real classes."""

import array
import ctypes
import dataclasses
import enum
import sys
import types


class Tensor:
    """A flat array of numbers, or of bytes."""

    def __init__(self, values, dtype="uint8"):
        self.values, self.dtype = values, dtype

    def detach(self):
        return self

    cpu = long = contiguous = detach

    def numpy(self):
        return self.values

    def tolist(self):
        return list(self.values)

    def __len__(self):
        return len(self.values)

    def data_ptr(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.values))

    @property
    def nbytes(self):
        return memoryview(self.values).nbytes


def arange(first, end, dtype=None):
    return Tensor(array.array("q", range(first, end)), dtype)


class PoolName(str, enum.Enum):
    KV, MAMBA, INDEXER = "kv", "mamba", "indexer"

    def __str__(self):
        return self.value


class PoolHitPolicy(str, enum.Enum):
    ALL_PAGES, TRAILING_PAGES, BLOCK_GROUPS = "all_pages", "trailing_pages", "block_groups"


@dataclasses.dataclass
class PoolTransfer:
    name: PoolName
    host_indices: object = None
    keys: object = None
    hit_policy: PoolHitPolicy = PoolHitPolicy.ALL_PAGES


@dataclasses.dataclass
class PoolTransferResult:
    kv_hit_pages: int
    extra_pool_hit_pages: dict
    restorable_prefix_pages: object = None


@dataclasses.dataclass
class Config:
    """HiCacheStorageConfig"""

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    attn_cp_rank: int = 0
    attn_cp_size: int = 1
    is_mla_model: bool = False
    enable_storage_metrics: bool = True
    model_name: str = "model"
    tp_lcm_size: object = None
    extra_config: object = None
    dcp_size: int = 1


class HiCacheStorage:
    pass


class Pool:
    """Host memory of pages. A page of `shape`, (name, size) from the slowest index to the fastest, is one run for each index
    before `token`."""

    layout, start_layer, end_layer = "page_first", 0, 2

    def __init__(self, page, pages, lengths):
        """lengths: bytes of the pieces of a page; each is in a run of its own over all pages."""
        self.page_size, self.size, self.lengths, self.layer_num = page, page * pages, lengths, 2
        self.kv_buffer = Tensor(bytearray(sum(lengths) * pages))
        self.pages = pages

    def get_hybrid_pool_buffer(self):
        return [self.kv_buffer]

    def bases(self):
        """Where the runs begin in the pool's memory."""
        return [sum(self.lengths[:number]) * self.pages for number in range(len(self.lengths))]

    def get_page_buffer_meta(self, indices):
        told = [first // self.page_size for first in indices.tolist()[::self.page_size]]
        at = self.kv_buffer.data_ptr()
        return [at + base + page * length for page in told for base, length in zip(self.bases(), self.lengths)], self.lengths * len(told)

    def piece(self, number, page):
        first = self.bases()[number] + page * self.lengths[number]
        return memoryview(self.kv_buffer.values)[first:first + self.lengths[number]]

    def page(self, page):
        return b"".join(bytes(self.piece(number, page)) for number in range(len(self.lengths)))

    def page_set(self, page, value):
        for number, length in enumerate(self.lengths):
            self.piece(number, page)[:], value = value[:length], value[length:]

    def get_dummy_flat_data_page(self):
        return Tensor(bytearray(sum(self.lengths)))


class MHATokenToKVPoolHost(Pool):
    """K and V; heads and dimensions in bytes. layer_first: K of layer 0, V of layer 0, K of layer 1, ..."""

    def __init__(self, layout, page, pages, layers, heads, dim):
        self.layout, self.head_num, self.head_dim, self.v_head_dim = layout, heads, dim, dim
        self.dtype = types.SimpleNamespace(itemsize=1)
        all_bytes = page * layers * heads * dim
        super().__init__(page, pages, [all_bytes // layers] * 2 * layers if layout == "layer_first" else [all_bytes] * 2)
        self.layer_num = layers

    def get_split_heads_page_buffer_meta(self, indices, slices):
        addresses, lengths = self.get_page_buffer_meta(indices)
        cut = lengths[0] // slices
        return [half + number * cut for page in zip(addresses[::2], addresses[1::2]) for number in range(slices) for half in page], \
            [cut] * len(addresses) * slices


class MLATokenToKVPoolHost(Pool):
    pass


# SGLang's global settings.
MODEL = types.SimpleNamespace(model_path="model", kv_cache_dtype="auto", dtype="auto", quantization=None, quantization_param_path=None,
                              revision=None, json_model_override_args="{}", load_format="auto", model_loader_extra_config="{}", download_dir=None)
LORA = types.SimpleNamespace(lora_paths=None)
SPEC = types.SimpleNamespace(speculative_draft_model_path=None, speculative_draft_model_revision=None)


def install():
    """Makes `import torch` and `import sglang...` return these, in this process."""
    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made

    module("torch", arange=arange, int64="int64", Tensor=Tensor)
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.pool_host", "sglang.srt.observability"):
        module(name, __path__=[])
    module("sglang.srt.mem_cache.hicache_storage", HiCacheStorage=HiCacheStorage, PoolName=PoolName, PoolHitPolicy=PoolHitPolicy,
           PoolTransfer=PoolTransfer, PoolTransferResult=PoolTransferResult)
    module("sglang.srt.mem_cache.pool_host.mha", MHATokenToKVPoolHost=MHATokenToKVPoolHost)
    module("sglang.srt.mem_cache.pool_host.mla", MLATokenToKVPoolHost=MLATokenToKVPoolHost)
    module("sglang.srt.runtime_context", get_model=lambda: MODEL, get_spec=lambda: SPEC, get_lora=lambda: LORA)
    module("sglang.srt.observability.metrics_collector", StorageMetrics=types.SimpleNamespace)
