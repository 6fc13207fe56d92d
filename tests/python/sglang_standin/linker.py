"""Replaces the parts of SGLang that sluice.sglang.linker uses: a group of device pools in plain memory, and the counter of layers."""

import array
import concurrent.futures
import dataclasses
import sys
import types

import sglang_standin
from sglang_standin import PoolName, Tensor


def cat(tensors):
    return Tensor(array.array("q", [number for tensor in tensors for number in tensor.tolist()]))


class Entry:
    """A device pool: of each layer one buffer of rows. A page is one row (rows_are_pages), or as many as it has tokens."""

    packed = True

    def __init__(self, name, source, page, pages, layers, row_bytes, rows_are_pages=False):
        self.name, self.source, self.page_size, self.layers = name, source, page, layers
        self.span, self.row_bytes, self.pages = 1 if rows_are_pages else page, row_bytes, pages
        self.kv_buffer = [Buffer(pages * self.span, row_bytes) for _ in range(layers)]

    def prepare_locations(self, indices):
        return [first // self.page_size * self.span for first in indices.tolist()[::self.page_size]]

    def get_page_buffer_meta(self, indices):
        told = [(buffer.at + row * self.row_bytes, self.row_bytes * self.span)
                for row in self.prepare_locations(indices) for buffer in self.kv_buffer]
        return [at for at, _ in told], [length for _, length in told]

    def get_prepared_layer_range_meta(self, rows, layer):
        if layer >= self.layers:
            return None
        length = self.row_bytes * self.span
        return ([[self.kv_buffer[layer].at + row * self.row_bytes] for row in rows], [[length]] * len(rows), [[layer * length]] * len(rows))

    def page(self, number, layer):
        length = self.row_bytes * self.span
        return memoryview(self.kv_buffer[layer].values)[number * length:(number + 1) * length]


class Buffer:
    dtype = "uint8"

    def __init__(self, rows, row_bytes):
        self.shape, self.values = (rows, row_bytes), bytearray(rows * row_bytes)
        self.at = Tensor(self.values).data_ptr()

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.at, nbytes=lambda: len(self.values))


class Group:
    def __init__(self, entries, layers, rank_replicated):
        self.entries, self.entry_map = entries, {entry.name: entry for entry in entries}
        self.num_layers, self.rank_replicated = layers, rank_replicated

    def resolve_transfers(self, transfers, allow_partial=False, allow_missing_kv=False):
        by_name = {transfer.name: transfer for transfer in transfers if transfer.keys}
        if not by_name or (not allow_missing_kv and PoolName.KV not in by_name):
            return []
        return [dataclasses.replace(by_name[entry.source], name=entry.name) for entry in self.entries if entry.source in by_name]


class Counter:
    """LayerWiseLoadCounter"""

    def __init__(self, layers):
        self.layers, self.index, self.futures = layers, -1, {}

    def update_producer(self):
        self.index += 1
        self.futures[self.index] = [concurrent.futures.Future() for _ in range(self.layers)]
        return self.index

    def complete(self, index, layer):
        self.futures[index][layer].set_result(None)

    def fail(self, index, error):
        for future in self.futures.get(index, ()):
            if not future.done():
                future.set_exception(error)

    def finish(self, index):
        landed = all([future.exception() is None for future in self.futures[index]])
        del self.futures[index]
        return landed

    def reset(self):
        self.futures.clear()


class Event:
    def __init__(self, happened):
        self.happened = happened

    def synchronize(self):
        self.happened()


class UnifiedCacheLinker:
    happened = staticmethod(lambda: None)

    def record_offload_ready(self):
        return [Event(self.happened)]


def install(group, world=1):
    """As sglang_standin.install; group() returns the pools of the next linker."""
    sglang_standin.install()
    sys.modules["torch"].cat = cat
    sys.modules["torch"].distributed = types.SimpleNamespace(is_available=lambda: False)
    for name in ("sglang.srt.mem_cache.hybrid_cache", "sglang.srt.mem_cache.unified_cache"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    for name, names in {
            "mem_cache.hybrid_cache.linker_pool_assembler": {"resolve_hybrid_device_pool_group": lambda **_: group()},
            "mem_cache.unified_cache.unified_cache_linker": {"LayerWiseLoadCounter": Counter, "UnifiedCacheLinker": UnifiedCacheLinker}}.items():
        made = types.ModuleType("sglang.srt." + name)
        made.__dict__.update(names)
        sys.modules["sglang.srt." + name] = made
    sys.modules["sglang.srt.runtime_context"].get_parallel = lambda: types.SimpleNamespace(tp_size=world)
