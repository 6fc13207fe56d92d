"""A secondary tier of vLLM's TieringOffloadingSpec that stores in a node of Sluice.

    "secondary_tiers": [{"type": "SluiceTier", "module_path": "sluice.vllm_tier"}]

docs/guides/vllm.md has the options and the behaviour on failures. The tier runs in vLLM's scheduler, so no call waits: native threads
copy between vLLM's memory and the node's. A key is vLLM's own, after a prefix: a digest of the fields by which vLLM's file tier separates
caches. vLLM's hashes contain an adapter's name and path; the tier adds its weights."""

import collections
import hashlib
import json
import logging
import time
from typing import ClassVar

from vllm.v1.core import kv_cache_utils
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, OffloadingEvent, RequestOffloadingContext
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from . import SluiceError, weights
from .backend import Options, one_of, switch
from .linking import ROWS, Link, LimitedLog
from .vllm.adapters import Adapters

FAILED_SECONDS = 10.0   # how long a key whose load failed is a miss; else vLLM would load it again and again
FAILED_MAX = 65536
DRAIN_TURNS = 6         # how often drain_jobs waits for a job's timeout


class Lookups(AsyncLookupManager):
    """Lookups that also ask other nodes, on one of vLLM's threads."""

    def __init__(self, tier):
        super().__init__(tier_type=tier.tier_type)
        self._tier = tier

    def batch_lookup(self, keys, req_context):
        return self._tier.look(keys)


class Job(collections.namedtuple("Job", "id keys load began")):
    __slots__ = ()


class SluiceTier(SecondaryTierManager):
    """The tier. A failure of the node is a miss, or the block is not stored; so is a late reply."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, **given):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        rows = {**ROWS, "enable_kv_events": (switch, False), "locality": (one_of("LOCAL", "REMOTE"), None)}
        options = Options(given, rows, where=f"secondary tier {tier_type}: ")
        self.locality = None if options.locality is None else Locality(options.locality)
        self._timeout = options.timeout
        self._said = LimitedLog(logging.getLogger("sluice.vllm_tier"))
        self._events = [] if options.enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events else None
        named = FileMapper.from_offloading_spec("vllm-tier", offloading_spec, blocks_per_file=offloading_spec.blocks_per_chunk,
                                                parallel_agnostic=True)
        self._jobs = {}                            # number of the job in Batches: Job
        self._ended = []                           # results of jobs that could not start
        self._failed = collections.OrderedDict()   # key: end of the time in which it is a miss
        config, fields = offloading_spec.config, named.get_run_config()
        fields["model_name"] = options.model or weights.identity_by_name(config.model.name, options.whole)
        # These fields lack the order of bytes in a block, which the attention back end chooses, and their number.
        told = json.dumps([fields, config.kv_cache_layout, self.block_size_bytes], sort_keys=True)
        self._link = Link(options, prefix=f"vllm-tier/{hashlib.sha256(told.encode()).hexdigest()}_r{named.rank}/")
        self._lookups = Lookups(self)
        adapters = Adapters(options.whole)
        adapters.watch(EngineCore)
        adapters.hashed(kv_cache_utils)

    # ---- lookups ----

    def look(self, keys):
        """Whether this node or a peer has each key. Any thread."""
        held = self._link.open()
        if held is None:
            return [False] * len(keys)
        try:
            return held[1].look([key.hex() for key in keys], timeout=self._timeout)
        except SluiceError as failure:
            self._said.warn("lookups fail and count as misses: %s", failure)
            return [False] * len(keys)

    def lookup(self, key, req_context):
        until = self._failed.get(key)
        if until is not None:
            if time.monotonic() < until:
                return LookupResult.MISS
            del self._failed[key]
        held = self._link.open()
        if held is not None and held[1].has_peers:
            found = self._lookups.lookup(key, req_context)
            return LookupResult.RETRY if found is None else LookupResult.HIT if found else LookupResult.MISS
        return LookupResult.HIT if self.look([key])[0] else LookupResult.MISS

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self._lookups.cleanup(req_context.req_id)

    def on_schedule_end(self, context):
        self._lookups.flush()

    # ---- jobs ----

    def _submit(self, job, load):
        held, keys, began = self._link.open(), list(job.keys), time.monotonic()
        if held is None:
            self._ended.append(JobResult(job.job_id, False))
            self._fail(keys if load else ())
            return
        try:
            begin = held[1].get_rows if load else held[1].put_rows
            self._jobs[begin(keys, self._primary_kv_view, job.chunk_ids.tolist())] = Job(job.job_id, keys, load, began)
        except SluiceError as failure:
            self._said.warn("%s fail: %s", "loads" if load else "stores", failure)
            self._ended.append(JobResult(job.job_id, False))
            self._fail(keys if load else ())

    def submit_store(self, job_metadata):
        self._submit(job_metadata, False)

    def submit_load(self, job_metadata):
        self._submit(job_metadata, True)

    def _fail(self, keys):
        until = time.monotonic() + FAILED_SECONDS
        self._lookups.mark_miss(keys)
        for key in keys:
            self._failed[key] = until
        while len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)

    def _result(self, job, error, fine):
        good, bytes_each = [key for key, one in zip(job.keys, fine) if one], self.block_size_bytes
        if len(good) < len(fine):
            self._said.warn("%d of %d chunks were not %s: %s", len(fine) - len(good), len(fine), "loaded" if job.load else "stored",
                            error or "not found")
        if job.load and len(good) < len(fine):
            self._fail([key for key, one in zip(job.keys, fine) if not one])
        if self._events is not None and not job.load and good:
            self._events.append(OffloadingEvent(keys=good, medium=self.medium, removed=False, locality=self.locality))
        return JobResult(job.id, len(good) == len(fine), tuple(good) if job.load and good else None, time.monotonic() - job.began,
                         len(good) * bytes_each)

    def get_finished_jobs(self):
        results, self._ended = self._ended, []
        held = self._link.open()
        for number, _, error, fine in held[1].drain() if held is not None and self._jobs else ():
            results.append(self._result(self._jobs.pop(number), error, fine))
        return results

    def drain_jobs(self):
        """Waits for all jobs. Raises TimeoutError if one still uses vLLM's memory long after its deadline: vLLM reuses it afterwards."""
        held = self._link.open()
        for _ in range(DRAIN_TURNS if held is not None else 0):
            if held[1].wait(self._timeout):
                return
            self._said.warn("jobs are past their deadline; still waiting for them")
        if held is not None:
            raise TimeoutError(f"jobs with a deadline of {self._timeout:g} s have not ended after {DRAIN_TURNS * self._timeout:g} s")

    def take_events(self):
        if self._events:
            taken, self._events = self._events, []
            yield from taken

    def shutdown(self):
        self._lookups.shutdown()
        self._link.close()
