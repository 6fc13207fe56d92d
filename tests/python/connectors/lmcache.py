"""The calls that LMCache's mooncakestore connector makes to the store, in process: one object a chunk of 256 tokens, by address or
with a header of its own. Written from the description of its calls, without code of LMCache."""

import asyncio
import struct

from connector_support import HostMemory

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

HEADER = struct.Struct("<7i")  # 28 bytes: length, format, dtype and a shape of four
LEGACY = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}


class Connector:
    """extra_config: as in LMCache's YAML, with or without the prefix mooncake_. A chunk is [2, layers, tokens, hidden]."""

    def __init__(self, url, extra_config, worker=0, world=1, pool_bytes=16 << 20, save_chunk_meta=True):
        host_port = url.removeprefix("mooncakestore://").rstrip("/")
        self.worker, self.world, self.save_chunk_meta = worker, world, save_chunk_meta
        self.store = MooncakeDistributedStore()
        given = {"master_server_addr": host_port, **{name.removeprefix("mooncake_"): value for name, value in extra_config.items()}}
        self.prefer_local = given.pop("prefer_local_alloc", False)
        try:
            self.code = self.store.setup({name: str(value) for name, value in given.items()})
        except TypeError:
            self.code = self.store.setup(given["local_hostname"], given["metadata_server"], int(given["global_segment_size"]),
                                         int(given["local_buffer_size"]), given.get("protocol", "tcp"),
                                         given.get("rdma_devices", given.get("device_name", "")), given["master_server_addr"])
        # The connector ignores the code: calls on a store without setup must do no harm.
        self.pool = HostMemory(pool_bytes)
        self.store.register_buffer(self.pool.address, pool_bytes)
        self.config = ReplicateConfig()
        if self.prefer_local:
            self.config.preferred_segment = self.store.get_hostname()

    def close(self):
        self.store.unregister_buffer(self.pool.address)
        return self.store.close()

    def key(self, model, chunk_hash):
        return f"vllm@{model}@{self.world}@{self.worker}@{chunk_hash:x}@bfloat16"

    def exists(self, key):
        return bool(self.store.is_exist(key))

    def batched_contains(self, keys):
        """Number of chunks from the first one on that exist."""
        found = self.store.batch_is_exist(keys)
        return next((i for i, code in enumerate(found) if code != 1), len(keys))

    async def put(self, key, offset, length, shape):
        """Puts from the pool; with a header before the bytes where chunks have one."""
        if not self.save_chunk_meta:
            call = (self.store.put_from, key, self.pool.address + offset, length, self.config)
            return await asyncio.wait_for(asyncio.to_thread(*call), 60)
        header = HEADER.pack(length, 2, 1, *shape)
        body = memoryview(self.pool.map)[offset:offset + length]
        return await asyncio.wait_for(asyncio.to_thread(self.store.put_parts, key, header, body, config=self.config), 60)

    async def get(self, keys, offsets, length):
        """Reads into the pool: bytes of each chunk, None where it is missing."""
        if not self.save_chunk_meta:
            lengths = await asyncio.to_thread(self.store.batch_get_into, keys, [self.pool.address + at for at in offsets],
                                              [length] * len(keys))
            return [one if one > 0 else None for one in lengths]
        taken = []
        for handle, offset in zip(await asyncio.to_thread(self.store.batch_get_buffer, keys), offsets):
            if handle is None:
                taken.append(None)
                continue
            view = memoryview(handle)
            size, *_ = HEADER.unpack_from(view)
            self.pool.map[offset:offset + size] = view[HEADER.size:HEADER.size + size]
            taken.append(size)
        return taken


class LookupClient:
    """A client besides the engine: it contributes nothing and only asks which chunks exist."""

    def __init__(self, master):
        self.store = MooncakeDistributedStore()
        self.code = self.store.setup("localhost", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", master)

    def lookup(self, keys):
        found = self.store.batch_is_exist(keys)
        return next((i for i, code in enumerate(found) if code != 1), len(keys))

    def close(self):
        return self.store.close()
