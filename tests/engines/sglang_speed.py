"""The speed of 64 pages at a time between a host pool of SGLang and the node: by sluice.sglang, by SGLang's MooncakeStore, and as a
plain copy of the same bytes. Each round stores new keys and reads them back."""

import ctypes
import resource
import statistics
import time

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.storage import StorageBackendFactory

import sglang_worker
import sluice
from sglang_worker import PAGE

ROUNDS, WARM = 25, 3
DIM, LAYERS = 64, 16


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Speed:
    def __init__(self, told, native):
        sglang_worker.server_args_publish(told)
        self.page_bytes, self.pages = told["page_bytes"], told["pages"]
        heads = self.page_bytes // (PAGE * LAYERS * DIM * 2 * 2)
        device = MHATokenToKVPool(self.pages * PAGE, PAGE, torch.float16, heads, DIM, LAYERS, "cpu", False)
        with host_memory_budget_scope(1 << 30):
            self.pool = MHATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, 2, 0, PAGE, "page_first", pin_memory=False,
                                             device_capacity_tokens=device.size, start_layer=0, end_layer=LAYERS)
        self.bytes = self.pool.kv_buffer.view(torch.uint8)
        self.bytes.random_(0, 256)
        self.first = torch.arange(self.pages * PAGE)  # pages to store, and pages to read them to
        self.second = self.first + self.pages * PAGE
        self.client = sluice.Client()
        cut = {"sluice.sglang, heads cut in two": self.storage("dynamic", native, tp_lcm_size=2)} if heads > 1 else {}
        self.stores = {"sluice.sglang": self.storage("dynamic", native), **cut,
                       "MooncakeStore, our wheel": self.storage("mooncake", sglang_worker.store_config(told))}

    def storage(self, name, extra, **more):
        config = HiCacheStorageConfig(tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=False,
                                      enable_storage_metrics=False, is_page_first_layout=True, model_name="engines/speed",
                                      extra_config=extra, **more)
        storage = StorageBackendFactory.create_backend(name, config, self.pool)
        storage.register_mem_pool_host(self.pool)
        return storage

    def measure(self):
        times = {path: ([], []) for path in ("memcpy", *self.stores)}
        target = torch.zeros(self.pages * self.page_bytes, dtype=torch.uint8)
        for number in range(WARM + ROUNDS):
            keep = number >= WARM
            self.copied(target, times["memcpy"] if keep else ([], []))
            for path, storage in self.stores.items():
                self.round(storage, [f"{path[0]}{number}-{page:060}" for page in range(self.pages)], times[path] if keep else ([], []))
        return [{"path": path, **self.row(*told)} for path, told in times.items()]

    def row(self, sets, gets):
        size = self.pages * self.page_bytes / 1e9
        (set_s, set_cpu), (get_s, get_cpu) = ([statistics.median(column) for column in zip(*told)] for told in (sets, gets))
        return {"set": size / set_s, "set_pages": self.pages / set_s, "get": size / get_s, "get_pages": self.pages / get_s,
                "set_cpu": set_cpu / size, "get_cpu": get_cpu / size}

    @staticmethod
    def timed(call, into):
        cpu, began = cpu_s(), time.perf_counter()
        answer = call()
        into.append((time.perf_counter() - began, cpu_s() - cpu))
        return answer

    def copied(self, target, into):
        first, size, whole = self.bytes.data_ptr(), self.pages * self.page_bytes // 2, self.bytes[0].nbytes

        def copy(to_pool):  # K and V of the pages, each in one run
            for half in (0, 1):
                ours, theirs = first + half * whole + to_pool * size, target.data_ptr() + half * size
                ctypes.memmove(*((ours, theirs) if to_pool else (theirs, ours)), size)

        self.timed(lambda: copy(False), into[0])
        self.timed(lambda: copy(True), into[1])

    def round(self, storage, keys, into):
        if not all(self.timed(lambda: storage.batch_set_v1(keys, self.first), into[0])):
            raise RuntimeError("not all was stored")
        if not all(self.timed(lambda: storage.batch_get_v1(keys, self.second), into[1])):
            raise RuntimeError("not all was read")
        half = self.pages * PAGE
        if not torch.equal(self.bytes[:, :half], self.bytes[:, half:2 * half]):
            raise RuntimeError("other bytes than were stored")
        self.client.remove_all()  # so that the next round uses the same memory

    def close(self):
        for storage in self.stores.values():
            storage.close()
        self.client.close()
