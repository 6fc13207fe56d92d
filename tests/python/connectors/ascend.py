"""The calls that vllm-ascend's KV pool makes to the store: setup with the transfer engine's object as the eighth argument, one
object a block and rank, all layers at once by the multi-buffer pair, or layer by layer by sessions. Written from the description of
its calls, without code of vllm-ascend."""

from connector_support import MASTER, HostMemory

from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, ReplicateConfig


class Pool:
    """One rank: K and V of each layer in a tensor of its own."""

    def __init__(self, rank, layers=6, blocks=64, run_bytes=2048, segment_bytes=64 << 20, preferred=True):
        self.rank, self.layers, self.blocks, self.run_bytes = rank, layers, blocks, run_bytes
        self.engine = TransferEngine()
        if self.engine.initialize("localhost", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("the transfer engine was not initialised")
        self.store = MooncakeDistributedStore()
        code = self.store.setup("localhost", "P2PHANDSHAKE", segment_bytes, 16 << 20, "ascend", "", MASTER,
                                self.engine.get_engine())
        if code != 0:
            raise RuntimeError(f"setup gave {code}")
        self.memory = HostMemory(2 * layers * blocks * run_bytes)
        length = blocks * run_bytes
        for tensor in range(2 * layers):
            if self.store.register_buffer(self.memory.address + tensor * length, length) != 0:
                raise RuntimeError("register_buffer failed")
        self.config = ReplicateConfig()
        if preferred:
            self.config.preferred_segment = self.store.get_hostname()
        self.config.prefer_alloc_in_same_node = True

    def close(self):
        return self.store.close()

    def key(self, block_hash):
        return f"model@pcp0@dcp0@head_or_tp_rank:{self.rank}@pp_rank:0@{block_hash}"

    def at(self, layer, half, block):
        return ((layer * 2 + half) * self.blocks + block) * self.run_bytes

    @property
    def block_bytes(self):
        return 2 * self.layers * self.run_bytes

    def places(self, block, layers=None):
        """Addresses and sizes of K and V of these layers of a block."""
        runs = [self.at(layer, half, block) for layer in (range(self.layers) if layers is None else layers) for half in range(2)]
        return [self.memory.address + at for at in runs], [self.run_bytes] * len(runs)

    def write_layer(self, block, layer, data):
        for half in range(2):
            start = (layer * 2 + half) * self.run_bytes
            self.memory.write(self.at(layer, half, block), data[start:start + self.run_bytes])

    def read_block(self, block):
        return b"".join(self.memory.read(self.at(layer, half, block), self.run_bytes)
                        for layer in range(self.layers) for half in range(2))

    def lookup(self, hashes):
        found = self.store.batch_is_exist([self.key(one) for one in hashes])
        return next((i for i, code in enumerate(found) if code != 1), len(hashes))

    def put(self, hashes, blocks):
        placed = [self.places(block) for block in blocks]
        return self.store.batch_put_from_multi_buffers([self.key(one) for one in hashes], [one[0] for one in placed],
                                                       [one[1] for one in placed], self.config)

    def get(self, hashes, blocks):
        placed = [self.places(block) for block in blocks]
        return self.store.batch_get_into_multi_buffers([self.key(one) for one in hashes], [one[0] for one in placed],
                                                       [one[1] for one in placed], True)

    # ---- layer by layer
    def put_begin(self, hashes):
        """Blocks that this rank is to write: those that neither exist (-705) nor are being written."""
        codes = self.store.batch_put_session_start([self.key(one) for one in hashes], [self.block_bytes] * len(hashes), self.config)
        return [one for one, code in zip(hashes, codes) if code == 0], codes

    def ranges(self, blocks, layer):
        placed = [self.places(block, [layer]) for block in blocks]
        start = 2 * layer * self.run_bytes
        return [one[0] for one in placed], [one[1] for one in placed], [[start, start + self.run_bytes]] * len(blocks)

    def put_layer(self, hashes, blocks, layer):
        return self.store.batch_put_from_multi_buffer_ranges([self.key(one) for one in hashes], *self.ranges(blocks, layer))

    def put_end(self, hashes):
        return self.store.batch_put_session_end([self.key(one) for one in hashes])

    def put_revoke(self, hashes):
        return self.store.batch_put_session_revoke([self.key(one) for one in hashes])

    def get_begin(self, hashes):
        return self.store.batch_get_session_start([self.key(one) for one in hashes])

    def get_layer(self, hashes, blocks, layer):
        return self.store.batch_get_into_multi_buffer_ranges([self.key(one) for one in hashes], *self.ranges(blocks, layer))

    def get_end(self, hashes):
        return self.store.batch_get_session_end([self.key(one) for one in hashes])
