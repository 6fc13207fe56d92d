"""The unified cache's linker: copies pages between an engine's device pools and a node, without a host pool.

The scheduler's thread looks pages up and queues transfers. One thread loads, layer by layer, and one stores."""

import collections
import logging
import queue
import threading
import types

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import resolve_hybrid_device_pool_group
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import LayerWiseLoadCounter, UnifiedCacheLinker
from sglang.srt.runtime_context import get_model, get_parallel

import sluice

from ..hints import name_checked
from ..linking import LimitedLog
from .hicache import indices_of, restorable
from .node import Node
from .options import options_of
from .plans import Plan, in_a_row, model_of, numbers, pages_probed

logger = logging.getLogger(__name__)

SESSION_PAGES_MAX = 65536  # pages whose last session is remembered


def layer_arrays(entry, layer, page_count):
    """Returns the arrays of get_pages for a layer's bytes in a pool's pages; None: the layer has none."""
    told = []

    def meta(indices):
        addresses, lengths, offsets = entry.get_prepared_layer_range_meta(entry.prepare_locations(indices), layer)
        told.append(offsets[0])
        return addresses[0], lengths[0]

    if entry.get_prepared_layer_range_meta([0], layer) is None:
        return None
    pieces = pages_probed(meta, entry.page_size, page_count)
    addresses, strides, lengths = zip(*pieces)
    return {"addresses": numbers(addresses), "strides": numbers(strides), "lengths": numbers(lengths), "offsets": numbers(told[0])}


class DevicePool:
    """One of SGLang's device pools: a page is one value, with all layers in a row."""

    def __init__(self, entry, layer_count, identity):
        if not entry.packed:
            raise ValueError(f"pool {entry.name}: pages of several values are not stored")
        rows = min(buffer.shape[0] for buffer in entry.kv_buffer)
        second_page = torch.arange(entry.page_size, 2 * entry.page_size)
        page_count = rows // entry.prepare_locations(second_page)[0]  # a page is one row, or one for each token
        pieces = pages_probed(entry.get_page_buffer_meta, entry.page_size, page_count)
        self.entry = entry
        self.plan = Plan({**identity, "pool": str(entry.name), "page": entry.page_size, "order": "layer token",
                          "dtype": sorted({str(buffer.dtype) for buffer in entry.kv_buffer}),
                          "lengths": [length for _, _, length in pieces]},
                         [""], entry.page_size, page_count * entry.page_size, in_a_row(pieces))
        self.layers = [layer_arrays(entry, layer, page_count) for layer in range(layer_count)]
        for arrays in filter(None, self.layers):
            arrays["sizes"] = numbers([self.plan.size])


class Sessions:
    """The last session of each page. SGLang passes the session when it offloads pages, but not when it loads them. Any thread."""

    def __init__(self, said):
        self._said, self._lock = said, threading.Lock()
        self._of = collections.OrderedDict()

    def checked(self, session_id):
        """Returns the name if it is valid, else None."""
        try:
            return None if session_id is None else name_checked("offload", session_id)
        except ValueError as failure:
            self._said.warn("a session is ignored: %s", failure)
            return None

    def note(self, keys, name):
        with self._lock:
            for key in keys:
                self._of[key] = name
                self._of.move_to_end(key)
            while len(self._of) > SESSION_PAGES_MAX:
                self._of.popitem(last=False)

    def find(self, keys):
        """Returns the session of the last page, since sessions may share the first pages."""
        with self._lock:
            return self._of.get(keys[-1]) if keys else None


class Missing(Exception):
    """Pages have disappeared since the lookup, or could not be read."""


class SluiceLinker(UnifiedCacheLinker):
    """Linker for --unified-cache-external-linker-backend dynamic. Every transfer ends: each call to the node has a deadline, and the
    first failed call ends its transfer."""

    def __init__(self, server_args, params, *, components, extra_config=None, forward_stream=None):
        """Raises ValueError (extra configuration, a pool that cannot be stored), sluice.SluiceError (the node does not answer)."""
        self.options = options_of(dict(extra_config or {}), peers=False)  # lookups block the scheduler, so they ask no peers
        self.forward_stream = forward_stream
        group = resolve_hybrid_device_pool_group(kvcache=params.token_to_kv_pool_allocator.get_kvcache(), page_size=params.page_size,
                                                 params=params, components=components)
        self.pool_group, self.pools, self.num_layers = group, group.entry_map, group.num_layers
        rank, self.world = ranks_of(params)
        self.stores = not group.rank_replicated or rank == 0
        self.lane = 0 if group.rank_replicated else rank
        self.sessions = Sessions(LimitedLog(logger))
        self.device_pools = self._pools_make(params, rank)
        self.plans = {name: pool.plan for name, pool in self.device_pools.items()}
        if getattr(server_args, "enable_linker_mla_dedup", False):
            logger.info("sluice: every rank loads for itself, enable_linker_mla_dedup changes nothing")
        self.node = Node(self.options)
        self.node.register({(buffer.untyped_storage().data_ptr(), buffer.untyped_storage().nbytes())
                            for entry in group.entries for buffer in entry.kv_buffer})
        self.layer_done_counter = LayerWiseLoadCounter(self.num_layers)
        if PoolName.MAMBA in self.pools:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        self.pending = {}
        self.stats = {"lookup": 0, "load": 0, "offload": 0}
        self.loads, self.offloads, self.results = queue.Queue(), queue.Queue(), queue.Queue()
        self.threads = [threading.Thread(target=work, args=(jobs, do), daemon=True, name=f"sluice-{what}-{rank}")
                        for what, jobs, do in (("load", self.loads, self._load), ("offload", self.offloads, self._offload))]
        for thread in self.threads:
            thread.start()

    def _pools_make(self, params, rank):
        config = types.SimpleNamespace(model_name=get_model().model_path)
        identity = {**model_of(config, self.options), "kind": "linker", "pp": [params.pp_rank, params.pp_size],
                    "cp": [params.attn_cp_rank, params.attn_cp_size],
                    "rank": None if self.pool_group.rank_replicated else [rank, self.world]}
        pools = {name: DevicePool(entry, self.num_layers, identity) for name, entry in self.pools.items()}
        for name, pool in pools.items():
            logger.info("sluice: pool %s: %d bytes a page under %s, %s", name, pool.plan.size, pool.plan.prefix, pool.plan.identity)
        return pools

    # ---- the scheduler's thread ----

    def lookup(self, rid, transfers):
        expanded = self.pool_group.resolve_transfers(transfers)
        if not expanded:
            return []
        self.stats["lookup"] += 1
        keys = list(next(transfer.keys for transfer in transfers if transfer.name == PoolName.KV))
        return restorable(self.node, self.plans, len(keys), keys, expanded).restorable_prefix_pages

    def load(self, rid, transfers):
        if rid in self.pending:
            raise RuntimeError(f"a load of {rid} is queued already")
        expanded = self.pool_group.resolve_transfers(transfers, allow_partial=True, allow_missing_kv=True)
        # Pages evicted since the lookup are computed again. Several ranks could not agree on them here, so their load fails as a whole.
        if not expanded or self.world == 1 and any(any(self.node.find(self.plans[one.name], one.keys)) for one in expanded):
            return False
        self.pending[rid] = expanded
        return True

    def cancel_queued_load(self, rid):
        return self.pending.pop(rid, None) is not None

    def start_layer_wise_loading(self):
        if not self.pending:
            return -1
        pending, self.pending = self.pending, {}
        index = self.layer_done_counter.update_producer()
        # Earlier work on these pages, also of the forward stream, must have ended: the thread's writes are not ordered by any stream.
        events = self.record_offload_ready()
        self.loads.put((index, list(pending.values()), events))
        self.stats["load"] += len(pending)
        return index

    def finish_layer_wise_loading(self, counter_index):
        return self.layer_done_counter.finish(counter_index)

    def offload(self, transfers, session_id=None):
        expanded = self.pool_group.resolve_transfers(transfers, allow_partial=True)
        if not expanded:
            return False
        if self.stores:
            self.offloads.put((expanded, self.record_offload_ready(), self.sessions.checked(session_id)))
        else:
            self.results.put(True)  # all ranks have the same bytes: the first one stores them
        return True

    def num_completed_offloads(self):
        return self.results.qsize()

    def pop_completed_offload(self):
        return self.results.get_nowait()

    def reset(self):
        self.pending.clear()
        self.loads.join()
        self.offloads.join()
        while not self.results.empty():
            self.results.get_nowait()
        self.layer_done_counter.reset()

    def close(self):
        if not self.threads:
            return
        self.reset()
        self.loads.put(None)
        self.offloads.put(None)
        for thread in self.threads:
            thread.join()
        self.threads = []
        logger.info("sluice: linker ends: %s", self.stats)
        self.node.close()

    # ---- the threads ----

    def _load(self, index, requests, events):
        transfers = [transfer for request in requests for transfer in request]
        try:
            for event in events:
                event.synchronize()
            batches = [(name, *of) for name in self.plans if (of := joined(transfers, name))]
            held = [self._hold(name, keys) for name, keys, _ in batches]
            for layer in range(self.num_layers):
                for name, keys, indices in batches:
                    arrays = self.device_pools[name].layers[layer]
                    codes = self.node.get(self.plans[name], keys, indices, **arrays) if arrays else b""
                    if any(codes):
                        raise Missing(f"{len(codes) - codes.count(0)} of {len(codes)} pages of pool {name} did not arrive")
                self.layer_done_counter.complete(index, layer)
            del held
        except Exception as error:  # any failure: the scheduler waits for the result
            logger.warning("sluice: a load fails: %s", error)
            self.layer_done_counter.fail(index, error)
            return
        for request in requests if self.stores else ():
            self._turn(request, True)

    def _turn(self, transfers, asked, name=None):
        """Sends hints for the session of transferred pages: `name`, or the session that last had their last page."""
        pools = sorted(((self.plans[one.name], one.keys) for one in transfers), key=lambda pool: pool[0] is not self.plans[PoolName.KV])
        if pools and pools[0][0] is self.plans[PoolName.KV] and (name := name or self.sessions.find(pools[0][1])) is not None:
            self.node.hint(pools, {"session_id": name}, asked, self.lane)

    def _hold(self, name, keys):
        """Pins values in memory until the returned views are released."""
        plan = self.plans[name]
        try:
            return self.node.client.get_pinned_batch([plan.prefix + key for key in keys], timeout=self.options.timeout)
        except sluice.LimitError:
            return None  # too many to pin: if a value is evicted meanwhile, the load fails
        except sluice.SluiceError as error:
            raise Missing(str(error)) from error

    def _offload(self, transfers, events, session_id):
        stored = False
        try:
            for event in events:
                event.synchronize()
            stored = not any(any(self.node.put(self.plans[one.name], one.keys, indices_of(one.host_indices))) for one in transfers)
            self.stats["offload"] += stored
        except Exception as error:  # any failure: the tree waits for the result
            logger.warning("sluice: an offload fails: %s", error)
        finally:
            self.results.put(stored)
        if stored and session_id is not None:
            for one in transfers:
                if one.name == PoolName.KV:
                    self.sessions.note(one.keys, session_id)
            self._turn(transfers, False, session_id)


def ranks_of(params):
    """Returns (number of this rank, number of ranks) of the group that shares a request's heads."""
    group = params.attn_tp_cache_group or params.tp_cache_group
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(group=group), torch.distributed.get_world_size(group=group)
    return 0, get_parallel().tp_size


def joined(transfers, name):
    """Returns (keys, indices) of all transfers of a pool; None: there are none."""
    ours = [transfer for transfer in transfers if transfer.name == name]
    if not ours:
        return None
    return [key for transfer in ours for key in transfer.keys], indices_of(torch.cat([transfer.host_indices for transfer in ours]))


def work(jobs, do):
    """Main loop of a thread: runs jobs until one is None."""
    while (job := jobs.get()) is not None:
        try:
            do(*job)
        except Exception:  # go on: others wait for the next job
            logger.exception("sluice: a transfer ended without a result")
        finally:
            jobs.task_done()
    jobs.task_done()
