"""The calls that SGLang's HiCache makes to the store, page by page: setup, warm-up, keys, layouts, batches, prefix and groups.
Written from the description of its calls, without code of SGLang."""

import re
import struct
import uuid
from hashlib import sha256

from connector_support import HostMemory, MASTER

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

BATCH_MAX = 128  # pages
LOCAL_BUFFER_BYTES = 16 << 20
OPTIONAL = {"enable_ssd_offload": False, "ssd_offload_path": "", "tenant_id": "default", "enable_client_http_server": False,
            "client_http_port": 9300}


def page_keys(tokens, page_tokens):
    """A chain of digests, one for each whole page."""
    keys, prior = [], b""
    for start in range(0, len(tokens) - page_tokens + 1, page_tokens):
        prior = sha256(prior + struct.pack(f"<{page_tokens}I", *tokens[start:start + page_tokens])).digest()
        keys.append(prior.hex())
    return keys


def set_up(store, segment_bytes, engine=None, options=None, master=MASTER):
    """Eight positional arguments and keywords. A TypeError that names one of these drops it and tries again."""
    options = dict(OPTIONAL if options is None else options)
    while True:
        try:
            code = store.setup("localhost", "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER_BYTES, "rdma", "mlx5_0", master, engine,
                               **options)
        except TypeError as error:
            # The text lists the given and the accepted keywords: one that is only given is too new.
            accepted = " ".join(line for line in str(error).splitlines() if line.lstrip()[:1].isdigit())
            refused = [name for name in options
                       if re.search(rf"\b{name}\b", str(error)) and not re.search(rf"\b{name}\b", accepted)]
            if not refused or "tenant_id" in refused:
                raise
            del options[refused[0]]
            continue
        if code:
            raise RuntimeError(f"setup gave {code}")
        return options


def warm_up(store):
    key, value = "sglang_mooncake_store_warmup_key" + uuid.uuid4().hex, bytes(4 << 10)
    assert store.put(key, value) == 0
    assert store.is_exist(key) == 1
    assert store.get(key) == value


class HiCache:
    """One rank. layout: "page_first" (K and V of a page are one run each: two objects), "layer_first" (a run a layer), or "mla"
    (one object a page with as many runs as layers, stored only by rank 0)."""

    def __init__(self, rank, rank_count, layout="page_first", pages=64, layers=4, run_bytes=2048, segment_bytes=32 << 20,
                 grouped=False):
        self.rank, self.layout, self.layers, self.run_bytes, self.grouped = rank, layout, layers, run_bytes, grouped
        self.mla = layout == "mla"
        self.halves = 1 if self.mla else 2
        self.page_bytes = layers * run_bytes  # bytes of a half
        self.half_bytes = pages * self.page_bytes
        self.pool = HostMemory(self.halves * self.half_bytes)
        self.store = MooncakeDistributedStore()
        set_up(self.store, segment_bytes // rank_count)
        warm_up(self.store)
        if self.store.register_buffer(self.pool.address, self.pool.length_bytes) != 0:
            raise RuntimeError("register_buffer failed")

    def close(self):
        self.store.close()

    def names(self, key):
        """Objects of a page."""
        return [f"{key}__k"] if self.mla else [f"{key}_{self.rank}_k", f"{key}_{self.rank}_v"]

    def runs(self, page, half):
        """(offset, length) of a page's half in the host pool."""
        start = half * self.half_bytes
        if self.layout == "page_first":
            return [(start + page * self.page_bytes, self.page_bytes)]
        stride = self.half_bytes // self.layers
        return [(start + layer * stride + page * self.run_bytes, self.run_bytes) for layer in range(self.layers)]

    def write_page(self, page, half, data):
        for offset, length in self.runs(page, half):
            self.pool.write(offset, data[:length])
            data = data[length:]

    def read_page(self, page, half):
        return b"".join(self.pool.read(offset, length) for offset, length in self.runs(page, half))

    def objects(self, keys, pages):
        """(names, runs of each) of pages of the host pool."""
        names = [name for key in keys for name in self.names(key)]
        return names, [self.runs(page, half) for page in pages for half in range(self.halves)]

    def batch_exists(self, keys):
        """Number of pages from the first one on that exist with all their objects."""
        names = [name for key in keys for name in self.names(key)]
        found = self.store.batch_is_exist(names)
        missing = next((i for i, code in enumerate(found) if code != 1), len(names))
        return missing // self.halves

    def config(self, keys):
        config = ReplicateConfig()
        if self.grouped and hasattr(config, "group_ids"):
            config.group_ids = [f"sglang-hicache:{key}" for key in keys for _ in range(self.halves)]
        return config

    def batch_set(self, keys, pages):
        """Whether each page is in the store afterwards. Puts only missing pages."""
        done = []
        for start in range(0, len(keys), BATCH_MAX):
            done += self.set_some(keys[start:start + BATCH_MAX], pages[start:start + BATCH_MAX])
        return done

    def set_some(self, keys, pages):
        if self.mla and self.rank != 0:
            return [True] * len(keys)
        names, runs = self.objects(keys, pages)
        there = self.store.batch_is_exist(names)
        config = self.config(keys)
        missing = [i for i, code in enumerate(there) if code != 1]
        if config.group_ids is not None:
            config.group_ids = [config.group_ids[i] for i in missing]
        codes = self.put([names[i] for i in missing], [runs[i] for i in missing], config)
        for i, code in zip(missing, codes):
            there[i] = 1 if code == 0 else code
        return [all(code == 1 for code in there[i:i + self.halves]) for i in range(0, len(names), self.halves)]

    def put(self, names, runs, config):
        if self.layout == "page_first":
            return self.store.batch_put_from(names, [self.pool.address + run[0][0] for run in runs],
                                             [run[0][1] for run in runs], config)
        return self.store.batch_put_from_multi_buffers(names, [[self.pool.address + at for at, _ in run] for run in runs],
                                                       [[length for _, length in run] for run in runs], config)

    def batch_get(self, keys, pages):
        """Number of pages from the first one on that were read."""
        for start in range(0, len(keys), BATCH_MAX):
            names, runs = self.objects(keys[start:start + BATCH_MAX], pages[start:start + BATCH_MAX])
            lengths = self.get(names, runs)
            failed = next((i for i, length in enumerate(lengths) if length <= 0), None)
            if failed is not None:
                return start + failed // self.halves
        return len(keys)

    def get(self, names, runs):
        if self.layout == "page_first":
            return self.store.batch_get_into(names, [self.pool.address + run[0][0] for run in runs], [run[0][1] for run in runs])
        return self.store.batch_get_into_multi_buffers(names, [[self.pool.address + at for at, _ in run] for run in runs],
                                                       [[length for _, length in run] for run in runs])

    def clear(self):
        return self.store.remove_all()
