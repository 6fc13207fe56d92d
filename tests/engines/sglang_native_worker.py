"""As sglang_worker.py, on the native back ends of the package sluice: HiCache's dynamic back end and the unified cache's linker.

The bytes of a page are made head by head and layer by layer from a seed, so that every layout and every split over ranks has the
same model's bytes. Arguments as of sglang_worker.py, and: heads (of this rank), node (extra configuration that says where it is),
v1 (whether pages lie in the host pool)."""

import torch
from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker

import sglang_worker
from serve import serve
from sglang_worker import LAYERS, PAGE, HiCache, Linker, bytes_of

DIM, LATENT = 64, 512 + 64
# Of a page [K or V][layer][token][head][dim], or [layer][token][latent]: the order that a layout has it in.
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


class NativeLinker(Linker):
    def make(self, arguments, params, components, told):
        return create_unified_cache_linker(arguments, params, backend="dynamic", components=components, config={
            "linker": "SluiceLinker", "linker_module_path": "sluice.sglang.linker",
            "linker_extra_config": {**told["node"], **told.get("extra", {})}})


def start(told):
    return (NativeLinker if told["mode"] == "linker" else NativeHiCache)(told), {}


if __name__ == "__main__":
    serve(start, sglang_worker.command, sglang_worker.stop)
