"""HiCache's storage in a node of Sluice: pages are copied directly between the host pool and the node's memory."""

import array
import logging
import time

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult

from ..hints import hints_checked, name_checked
from ..linking import LimitedLog
from .node import Node, leading, window_ends
from .options import flag, options_of
from .plans import buffers_of, plan_of

logger = logging.getLogger(__name__)

SESSION, HINTS = "session_id", "sluice_hints"  # names in a call's extra info


def indices_of(tensor):
    """Returns a tensor's values as 64-bit numbers in host memory."""
    return tensor.detach().cpu().long().contiguous().numpy()


class SluiceHiCache(HiCacheStorage):
    """Storage for --hicache-storage-backend dynamic. Any thread may call it. No call raises when the node fails, and none takes longer
    than the option timeout for each batch."""

    def __init__(self, storage_config, kwargs=None):
        """Raises ValueError (extra configuration), sluice.SluiceError (the node does not answer)."""
        extra = dict(storage_config.extra_config or {})
        if getattr(storage_config, "dcp_size", 1) > 1:
            raise ValueError("sluice does not store pages that are split over ranks (DCP)")
        self.config = storage_config
        self.options = options_of(extra)
        self.flat = not flag(extra, "interface_v1")
        self.plans = {}
        self.mem_pool_host = None
        self.metrics = {"prefetch_pgs": [], "backup_pgs": [], "prefetch_bandwidth": [], "backup_bandwidth": []}
        self.node = Node(self.options)
        self.said = LimitedLog(logger)

    # ---- pools ----

    def _plan_make(self, pool, name):
        plan = plan_of(pool, name, self.config, self.options, flat=self.flat)
        self.node.register((buffer.data_ptr(), buffer.nbytes) for buffer in buffers_of(pool))
        self.plans[name] = plan
        logger.info("sluice: pool %s: %d bytes a page under %s, %s", name, plan.size, plan.prefix, plan.identity)

    def register_mem_pool_host(self, mem_pool_host):
        self.mem_pool_host = mem_pool_host
        if getattr(mem_pool_host, "kv_buffer", None) is not None:  # else it holds only indices
            self._plan_make(mem_pool_host, PoolName.KV)

    def register_mem_host_pool_v2(self, host_pool, host_pool_name):
        if host_pool_name != PoolName.KV or PoolName.KV not in self.plans:
            if getattr(host_pool, "kv_buffer", True) is not None:
                self._plan_make(host_pool, host_pool_name)

    # ---- hints ----

    def _hint(self, keys, codes, extra_info, asked, others=()):
        """Sends the call's hints for the pages that exist, and for others: [(plan, keys)]. SGLang passes none without a session."""
        told = getattr(extra_info, "extra_info", None)
        if not told or PoolName.KV not in self.plans:
            return
        try:
            given = told.get(HINTS)
            hints = {} if given is None else hints_checked(HINTS, given) or {}
            if told.get(SESSION) is not None and "session_id" not in hints:
                hints["session_id"] = name_checked("extra_info", told[SESSION])
        except (ValueError, AttributeError, TypeError) as failure:
            self.said.warn("hints of a call are ignored: %s", failure)
            return
        before = list(extra_info.prefix_keys or ()) if asked else []
        if hints and (there := keys[:leading(codes)]):
            shared = self.config.is_mla_model
            self.node.hint([(self.plans[PoolName.KV], [*before, *there]), *others], hints, asked, 0 if shared else self.config.tp_rank)

    # ---- pages in the pools' memory ----

    def _set(self, name, keys, host_indices):
        """Stores pages; returns a bool for each key: whether it exists now."""
        plan = self.plans[name]
        missing = len(keys) - self.node.find(plan, keys).count(0)
        if missing == 0:
            return [True] * len(keys)
        begin = time.perf_counter()
        codes = self.node.put(plan, keys, indices_of(host_indices))
        self._count("backup", min(missing, codes.count(0)), plan, begin)
        return [code == 0 for code in codes]

    def _get(self, name, keys, host_indices):
        plan = self.plans[name]
        begin = time.perf_counter()
        codes = self.node.get(plan, keys, indices_of(host_indices))
        self._count("prefetch", codes.count(0), plan, begin)
        return [code == 0 for code in codes]

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        fine = self._set(PoolName.KV, keys, host_indices) if PoolName.KV in self.plans else [True] * len(keys)
        self._hint(keys, [not one for one in fine], extra_info, False)
        return fine

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        fine = self._get(PoolName.KV, keys, host_indices) if PoolName.KV in self.plans else [True] * len(keys)
        self._hint(keys, [not one for one in fine], extra_info, True)
        return fine

    def batch_exists(self, keys, extra_info=None):
        return leading(self.node.find(self.plans[PoolName.KV], keys)) if PoolName.KV in self.plans else len(keys)

    def _hint_v2(self, transfers, fine, extra_info, asked):
        others = [(self.plans[one.name], [key for key, there in zip(one.keys, fine[one.name]) if there])
                  for one in transfers if one.name != PoolName.KV]
        for transfer in transfers:
            if transfer.name == PoolName.KV:
                self._hint(transfer.keys, [not one for one in fine[PoolName.KV]], extra_info, asked, others)
        return fine

    def batch_set_v2(self, transfers, extra_info=None):
        fine = {transfer.name: self._set(transfer.name, transfer.keys, transfer.host_indices) for transfer in transfers}
        return self._hint_v2(transfers, fine, extra_info, False)

    def batch_get_v2(self, transfers, extra_info=None):
        fine = {transfer.name: self._get(transfer.name, transfer.keys, transfer.host_indices) for transfer in transfers}
        return self._hint_v2(transfers, fine, extra_info, True)

    def batch_exists_v2(self, keys, pool_transfers=None, extra_info=None):
        return restorable(self.node, self.plans, self.batch_exists(keys, extra_info), keys, pool_transfers)

    # ---- pages as tensors of their own, without interface_v1 ----

    def _flat(self, call, key, tensor):
        """Copies one page between the store and a tensor that holds the whole page."""
        plan = self.plans[PoolName.KV]
        if len(plan.suffixes) != 1 or tensor.nbytes != plan.size:
            logger.warning("sluice: a page has %d bytes in %d values, not %d", plan.size, len(plan.suffixes), tensor.nbytes)
            return False
        one = {"addresses": array.array("Q", [tensor.data_ptr()]), "strides": array.array("Q", [0]),
               "lengths": array.array("Q", [tensor.nbytes])}
        what = "storing" if call == self.node.client.put_pages else "reading"
        return self.node._call(what, 1, lambda: call([key], array.array("Q", [0]), 1, 1, **one, prefix=plan.prefix,
                                                     suffixes=plan.suffixes, timeout=self.options.timeout)) == b"\0"

    def set(self, key, value=None, target_location=None, target_sizes=None):
        value = target_location if value is None else value
        return value is not None and self._flat(self.node.client.put_pages, key, value.detach().cpu().contiguous())

    def get(self, key, target_location=None, target_sizes=None):
        into = self.mem_pool_host.get_dummy_flat_data_page() if target_location is None else target_location
        return into if self._flat(self.node.client.get_pages, key, into) else None

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        values = target_locations if values is None else values
        return values is not None and all([self.set(key, value) for key, value in zip(keys, values)])

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        return [self.get(key, into) for key, into in zip(keys, target_locations or [None] * len(keys))]

    def exists(self, key):
        return self.batch_exists([key]) == 1

    # ---- the rest ----

    def _count(self, what, pages, plan, begin):
        if self.config.enable_storage_metrics and pages:
            seconds = max(time.perf_counter() - begin, 1e-9)
            self.metrics[what + "_pgs"].append(pages)
            self.metrics[what + "_bandwidth"].append(pages * plan.size / 2**30 / seconds)

    def get_stats(self):
        from sglang.srt.observability.metrics_collector import StorageMetrics  # needs a metrics library

        told, self.metrics = self.metrics, {name: [] for name in self.metrics}
        return StorageMetrics(**told)

    def clear(self):
        """Removes the pages of these pools from this node, also for all engines that share them."""
        for plan in self.plans.values():
            self.node.clear(plan.prefix)

    def close(self):
        self.node.close()


def restorable(node, plans, kv_pages, keys, transfers):
    """Returns a PoolTransferResult: how many pages of a prefix of kv_pages every pool can serve."""
    hits = {PoolName.KV: kv_pages} if kv_pages else {}
    ends = set(range(1, kv_pages + 1))
    for transfer in transfers or ():
        if not ends:
            break
        if transfer.hit_policy not in (PoolHitPolicy.ALL_PAGES, PoolHitPolicy.TRAILING_PAGES):
            continue  # another form of the same pages, which limits nothing
        codes = node.find(plans[transfer.name], keys[:kv_pages])
        if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
            served = range(1, leading(codes) + 1)
        else:
            served = window_ends(codes, max(1, len(transfer.keys or ())))
        if served:
            hits[transfer.name] = served[-1]
        ends &= set(served)
    lengths = sorted(ends)
    return PoolTransferResult(lengths[-1] if lengths else 0, hits, lengths)
