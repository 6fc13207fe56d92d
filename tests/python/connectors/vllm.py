"""The calls that vLLM's MooncakeStoreConnector makes to the store: one worker a rank, which registers its GPU's KV cache
(here: host memory at the same kind of address), a sender that stores blocks, receivers that load them, and the lookup over
all ranks. Written from the description of its calls, without code of vLLM."""

import json
import os
import pickle
import queue
import socket
import threading
from hashlib import sha256

from connector_support import HostMemory

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

NO_SPACE = -200
SIZES = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "b": 1}
DISK_STAGING_BYTES = 1280 << 20


def size_of(text):
    """An int, or a text like "4gb"."""
    if isinstance(text, int):
        return text
    text = text.strip().lower()
    for suffix, factor in SIZES.items():
        if text.endswith(suffix):
            return int(text[:-len(suffix)]) * factor
    return int(text)


class StoreConfig:
    """The JSON file that MOONCAKE_CONFIG_PATH names."""

    def __init__(self):
        with open(os.environ["MOONCAKE_CONFIG_PATH"], encoding="utf-8") as file:
            given = json.load(file)
        self.metadata_server = given.get("metadata_server", "")
        self.master = given.get("master_server_address", "")
        self.protocol = given.get("protocol", "rdma")
        self.device = given.get("device_name", "")
        self.mode = given.get("mode", "embedded")
        self.segment_bytes = size_of(given.get("global_segment_size", 4 << 30))
        self.buffer_bytes = size_of(given.get("local_buffer_size", 4 << 30))
        self.enable_offload = given.get("enable_offload", False)
        if self.mode not in ("embedded", "standalone-store"):
            raise ValueError(f"mode {self.mode!r}")
        if (self.mode == "embedded") == (self.segment_bytes == 0):
            raise ValueError(f"{self.mode} with global_segment_size {self.segment_bytes}")
        if self.buffer_bytes <= 0:
            raise ValueError("local_buffer_size")
        self.preferred_segment = os.environ.get("MOONCAKE_PREFERRED_SEGMENT", "")
        self.hostname = os.environ.get("MOONCAKE_REQUESTER_LOCAL_HOSTNAME") or socket.gethostbyname("localhost")


def block_hashes(tokens, block_tokens, seed="vllm-none-hash"):
    """A chain of digests, one for each whole block: SHA-256 of a pickle."""
    def digest(of):
        return sha256(pickle.dumps(of, protocol=5)).digest()

    parent, hashes = digest(seed), []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = digest((parent, tuple(tokens[start:start + block_tokens]), None))
        hashes.append(parent.hex())
    return hashes


class Cache:
    """The KV cache of a rank: tensors in one allocation. blocks_first: one run of a block in each tensor; else K and V are the
    leading dimension: two runs a layer."""

    def __init__(self, layers, blocks, run_bytes, blocks_first):
        self.layers, self.blocks, self.run_bytes = layers, blocks, run_bytes
        self.runs_per_layer = 1 if blocks_first else 2
        self.memory = HostMemory(layers * self.runs_per_layer * blocks * run_bytes)

    def runs(self, block):
        """Offsets of a block, in the order in which the tensors were registered."""
        return [(tensor * self.blocks + block) * self.run_bytes for tensor in range(self.layers * self.runs_per_layer)]

    @property
    def block_bytes(self):
        return self.layers * self.runs_per_layer * self.run_bytes

    def write(self, block, data):
        for number, at in enumerate(self.runs(block)):
            self.memory.write(at, data[number * self.run_bytes:(number + 1) * self.run_bytes])

    def read(self, block):
        return b"".join(self.memory.read(at, self.run_bytes) for at in self.runs(block))


class Rank:
    """A worker. kv_ranks: how many ranks hold different heads; ranks beyond share keys and stripe their writes."""

    def __init__(self, tp_rank, tp_size, kv_ranks=None, layers=4, blocks=64, run_bytes=2048, blocks_first=False, model="m",
                 receivers=2, tier_log=False):
        self.replication = tp_size // (kv_ranks or tp_size)
        self.tp_rank, self.tp_size, self.model = tp_rank, tp_size, model
        self.config = StoreConfig()
        self.store = MooncakeDistributedStore()
        code = self.store.setup(self.config.hostname, self.config.metadata_server, self.config.segment_bytes,
                                self.config.buffer_bytes, self.config.protocol, self.config.device, self.config.master)
        if code != 0:
            raise RuntimeError(f"setup gave {code}")
        self.cache = Cache(layers, blocks, run_bytes, blocks_first)
        self.registered = self.store.register_buffer(self.cache.memory.address, self.cache.memory.length_bytes)
        self.tier_log = tier_log
        self.tiers = {"memory": 0, "disk": 0, "local_disk": 0}
        self.paused = False  # after a -200, until a batch succeeds
        self.skipped_requests = set()
        self.work, self.results = queue.Queue(), queue.Queue()
        self.threads = [threading.Thread(target=self.receive, daemon=True) for _ in range(receivers)]
        for thread in self.threads:
            thread.start()

    def close(self):
        for _ in self.threads:
            self.work.put(None)
        for thread in self.threads:
            thread.join()
        return self.store.close()

    def key(self, hash_text, rank=None):
        rank = (self.tp_rank if rank is None else rank) // self.replication
        return f"{self.model}@tp_rank:{rank}@pcp0@dcp0@pp_rank:0@group:0@{hash_text}"

    def placed(self, block):
        """Addresses and sizes of a block, as the two multi-buffer calls take them."""
        return ([self.cache.memory.address + at for at in self.cache.runs(block)],
                [self.cache.run_bytes] * (self.cache.layers * self.cache.runs_per_layer))

    def put_config(self):
        config = ReplicateConfig()
        if self.config.preferred_segment:
            config.preferred_segment = self.config.preferred_segment
        return config

    def save(self, request, hashes, blocks):
        """Stores missing blocks, or this rank's stripe of them where ranks share keys. Returns the number of puts; -200 makes
        the sender skip this request until some batch succeeds."""
        if self.paused and request in self.skipped_requests:
            return 0
        keys = [self.key(one) for one in hashes]
        there = self.store.batch_is_exist(keys)
        missing = [i for i, code in enumerate(there) if code != 1 and i % self.replication == self.tp_rank % self.replication]
        if not missing:
            return 0
        places = [self.placed(blocks[i]) for i in missing]
        codes = self.store.batch_put_from_multi_buffers([keys[i] for i in missing], [one[0] for one in places],
                                                        [one[1] for one in places], self.put_config())
        if NO_SPACE in codes:
            self.paused = True
            self.skipped_requests.add(request)
        elif all(code >= 0 for code in codes):
            self.paused = False
            self.skipped_requests.clear()
        return sum(code >= 0 for code in codes)

    def lookup(self, hashes, block_tokens=16, token_count=None):
        """Rank 0's server: blocks from the first one on that all ranks have; of a full hit the last token is computed."""
        ranks = range(0, self.tp_size, self.replication)
        keys = [self.key(one, rank) for one in hashes for rank in ranks]
        found = self.store.batch_is_exist(keys)
        hit = 0
        for at in range(0, len(keys), len(ranks)):
            if any(code != 1 for code in found[at:at + len(ranks)]):
                break
            hit += 1
        tokens = hit * block_tokens
        return [hit, tokens - 1 if token_count is not None and tokens >= token_count else tokens]

    def sub_batches(self, hashes, blocks):
        """Keys rotated by the rank, split by the size of the disk's staging if there is a disk."""
        order = [(i + self.tp_rank * len(hashes) // self.tp_size) % len(hashes) for i in range(len(hashes))]
        budget = int(DISK_STAGING_BYTES * float(os.environ.get("VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO", "0.9")))
        cost = sum((self.cache.run_bytes + 4095) // 4096 * 4096
                   for _ in range(self.cache.layers * self.cache.runs_per_layer)) + 8192
        count = max(1, budget // cost) if self.config.enable_offload else len(order)
        return [order[at:at + count] for at in range(0, len(order), count)]

    def receive(self):
        while (task := self.work.get()) is not None:
            request, hashes, blocks = task
            self.results.put((request, self.load_now(hashes, blocks)))

    def load_now(self, hashes, blocks):
        """Returns blocks that failed, which the engine computes again. The first negative entry ends the request's other sub-batches."""
        failed = set()
        for part in self.sub_batches(hashes, blocks):
            if failed:
                failed.update(blocks[i] for i in part)
                continue
            keys = [self.key(hashes[i]) for i in part]
            if self.tier_log:
                self.log_tiers(keys)
            places = [self.placed(blocks[i]) for i in part]
            lengths = self.store.batch_get_into_multi_buffers(keys, [one[0] for one in places], [one[1] for one in places])
            failed.update(blocks[i] for i, length in zip(part, lengths) if length < 0)
        return sorted(failed)

    def log_tiers(self, keys):
        told = self.store.batch_get_replica_desc(keys)
        for replicas in told.values():
            for name in self.tiers:
                self.tiers[name] += any(getattr(one, f"is_{name}_replica")() for one in replicas)

    def load(self, requests):
        """[[request, hashes, blocks], ...] by the receiver threads; {request: failed blocks}."""
        for one in requests:
            self.work.put(one)
        return dict(self.results.get(timeout=300) for _ in requests)

    def reset(self):
        return self.store.remove_all(force=True)
