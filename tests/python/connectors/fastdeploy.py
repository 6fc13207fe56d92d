"""The calls that FastDeploy's cache_transfer_manager makes to the store: one process a rank, two pinned buffers, K and V of a
block as objects of their own. Written from the description of its calls, without code of FastDeploy."""

import pickle
import time
import uuid
from hashlib import sha256

from connector_support import HostMemory, MASTER

from mooncake.store import MooncakeDistributedStore

LOCAL_BUFFER_BYTES = 1 << 20
WARM_UP_BYTES = 1 << 20


def block_hashes(tokens, block_tokens):
    """A chain over whole blocks, as text."""
    hashes = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        value = (list(tokens[start:start + block_tokens]), hashes[-1:])
        hashes.append(sha256(pickle.dumps(value, protocol=4)).hexdigest())
    return hashes


def input_hashes(tokens, block_tokens):
    """Hashes of the whole blocks, and of an incomplete last one, which contains its length."""
    hashes = block_hashes(tokens, block_tokens)
    rest = list(tokens[len(hashes) * block_tokens:])
    if rest:
        hashes.append(sha256(pickle.dumps((rest, hashes[-1:]), protocol=4)).hexdigest() + f":partial:{len(rest)}")
    return hashes


class TransferManager:
    """One rank. fp8: blocks also have scales. chunk_bytes: a buffer is registered in chunks of this size (0: in one)."""

    def __init__(self, rank, blocks=32, half_bytes=16384, segment_bytes=32 << 20, fp8=False, chunk_bytes=0, model=""):
        self.rank, self.blocks, self.half_bytes, self.model = rank, blocks, half_bytes, model
        self.parts = ["key", "value"] + (["key_scale", "value_scale"] if fp8 else [])
        self.sizes = {part: half_bytes // 32 if part.endswith("scale") else half_bytes for part in self.parts}
        self.store = MooncakeDistributedStore()
        code = self.store.setup(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", global_segment_size=segment_bytes,
                                local_buffer_size=LOCAL_BUFFER_BYTES, protocol="rdma", rdma_devices="mlx5_0",
                                master_server_addr=MASTER)
        if code:
            raise RuntimeError(f"setup gave {code}")
        self.warm_up()
        total = blocks * sum(self.sizes.values())
        self.buffers = {name: HostMemory(total) for name in ("read", "write")}
        for buffer in self.buffers.values():
            for start in range(0, total, chunk_bytes or total):
                length = min(chunk_bytes or total, total - start)
                if self.store.register_buffer(buffer.address + start, length) != 0:
                    raise RuntimeError("register_buffer failed")

    def close(self):
        self.store.close()

    def warm_up(self):
        key, value = f"fastdeploy_mooncake_store_warmup_key{uuid.uuid4().hex}", b"\x5a" * WARM_UP_BYTES
        assert self.store.put(key, value) == 0
        assert self.store.is_exist(key) == 1
        assert self.store.get(key) == value
        for _ in range(60):  # it has just been read: the lease has to end
            code = self.store.remove(key)
            if code == 0:
                return
            assert code == -706, code
            time.sleep(0.1)
        raise AssertionError("the warm-up key stays leased")

    def name(self, block_hash, part):
        return f"prefix{self.model}_{block_hash}_{self.rank}_{part}"

    def place(self, part, block):
        """Offset in a buffer: K of all blocks, then V, then scales."""
        before = self.parts[:self.parts.index(part)]
        return self.blocks * sum(self.sizes[one] for one in before) + block * self.sizes[part]

    def objects(self, buffer, hashes, blocks):
        """Names, addresses, sizes."""
        wanted = [(self.name(block_hash, part), self.buffers[buffer].address + self.place(part, block), self.sizes[part])
                  for part in self.parts for block_hash, block in zip(hashes, blocks)]
        return [list(column) for column in zip(*wanted)] if wanted else [[], [], []]

    def query(self, hashes):
        """Number of blocks from the first one on that exist with all their parts."""
        for i, block_hash in enumerate(hashes):
            if any(code != 1 for code in self.store.batch_is_exist([self.name(block_hash, part) for part in self.parts])):
                return i
        return len(hashes)

    def write(self, hashes, blocks):
        """Number of objects that are in the store afterwards."""
        return self.store.batch_put_from(*self.objects("write", hashes, blocks)).count(0)

    def read(self, hashes, blocks):
        """The blocks that were read completely."""
        lengths = self.store.batch_get_into(*self.objects("read", hashes, blocks))
        good = []
        for i, block in enumerate(blocks):
            if all(lengths[part * len(blocks) + i] > 0 for part in range(len(self.parts))):
                good.append(block)
        return good

    def fill(self, block, part, data):
        self.buffers["write"].write(self.place(part, block), data)

    def seen(self, block, part):
        return self.buffers["read"].read(self.place(part, block), self.sizes[part])

    def clear(self):
        return self.store.remove_all()
