"""SluiceConnector: the interface that vLLM calls in its scheduler and in its workers."""

import dataclasses
import logging

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorHandshakeMetadata, KVConnectorMetadata, KVConnectorRole, KVConnectorTransferResults,
    KVConnectorWorkerMetadata, SupportsHMA)
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash, resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

import sluice

from . import facts, layers
from .adapters import Adapters
from .layout import classes_of, first_part, layers_apart, layers_of, parts_of
from .node import Node, Registered
from .scheduler import Scheduler, StepUpdate
from .settings import parse, saves
from .stages import first_slice, splits_of
from .stats import SluicePromMetrics, SluiceStats

log = logging.getLogger("vllm.sluice")


@dataclasses.dataclass
class Models(KVConnectorHandshakeMetadata):
    """Models and splits that workers register. They send them to the scheduler, which has neither tensors nor all stages' layers."""

    of: dict      # class: model
    splits: dict  # group: Split
    layer_ends: list = dataclasses.field(default_factory=list)  # layers.ends_of, if loads or stores are by layers


@dataclasses.dataclass
class Step(KVConnectorMetadata):
    told: StepUpdate


@dataclasses.dataclass
class Awake(KVConnectorWorkerMetadata):
    """Makes vLLM pass the output of an empty step to the scheduler's connector."""

    def aggregate(self, other):
        return self


class SluiceConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self.settings = parse(transfer.kv_connector_extra_config)
        self.groups = facts.groups_of(vllm_config, kv_cache_config, get_kv_cache_spec_kind)
        self.classes = classes_of(self.groups)
        self.cuts = facts.cuts_of(vllm_config, self.settings)
        self.heads = {group.index: parts_of(group, self.settings.parts, len(self.cuts) + 1) for group in self.groups}
        self.ranks = vllm_config.parallel_config.tensor_parallel_size  # of a stage
        self.stages = vllm_config.parallel_config.pipeline_parallel_size
        self.scheduler = self.worker = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler_begin(transfer)
        else:
            self.worker = Registered(self.settings, transfer.engine_id)
            self.models = Models({}, {})
            self.by_layers = None

    def pool(self, group, split, layers=(), addresses=None, base_bytes=0, first_slices=None):
        """first_slices: number of the first slice of each stage; the scheduler does not need them."""
        rank_parts = [first_part(group, split, rank, self.ranks, first) for first in first_slices or [0] * self.stages
                      for rank in range(self.ranks)]
        return sluice.Pool(facts.pool_name(group), facts.pool_kind(group), layers, memory_bytes=base_bytes, device=addresses,
                           part_count=split.parts, first_parts=rank_parts)

    # ---- workers ----

    def register_kv_caches(self, kv_caches):
        from vllm.distributed.parallel_state import get_pp_group, get_tensor_model_parallel_rank

        caches = facts.caches_of(self.groups, kv_caches)
        count = self._kv_cache_config.num_blocks
        here = {group.index: (layers_apart(group, caches), self.interior(group, caches)) for group in self.groups}
        told = facts.of_all_stages(here, self.stages, get_pp_group)
        facts.stages_check(self.classes, told)
        splits = splits_of(self.groups, told, self.heads, self.cuts)
        interiors = {group.index: next(stage[group.index][1] for stage in told if stage[group.index][0]) for group in self.groups}
        self.models = Models(facts.models_of(self._vllm_config, self.settings, self.classes, splits, interiors), splits)

        def pool(group):
            layers, addresses = layers_of(group, splits[group.index], facts.caches_of([group], kv_caches), count)
            most = max((cache.base_bytes for name in group.layers for cache in caches[name]), default=0)
            first_slices = [first_slice(splits[group.index], stage[group.index][0]) for stage in told]
            return self.pool(group, splits[group.index], layers, [addresses], most, first_slices)

        rank = get_pp_group().rank_in_group * self.ranks + get_tensor_model_parallel_rank()
        if layers.wanted(self.settings):
            group = self.groups[0]
            self.models.layer_ends = layers.ends_of(group, splits[group.index], caches, count)
            self.by_layers = layers.Worker(self.worker, rank, layers.numbers_of(group, caches), len(self.models.layer_ends),
                                           self.settings.timeout, facts.mark_of(kv_caches[group.layers[0]]))
        self.worker.register(self.classes, lambda _, members: [pool(group) for group in members.groups], self.models.of, count,
                             self.ranks * self.stages, rank, 1)
        facts.sleep_watch(self._vllm_config.model_config, self.worker)

    def interior(self, group, caches):
        """Describes the order of bytes within the states of a head, which the attention back end chooses."""
        if not group.layers:
            return ""
        cache = caches[group.layers[0]][0]
        layer = self._vllm_config.compilation_config.static_forward_context.get(group.layers[0])
        backend = layer.get_attn_backend().get_name() if hasattr(layer, "get_attn_backend") else ""
        return f"{backend} {getattr(getattr(layer, 'impl', None), 'isa', '')} {cache.shape[2]} {cache.shape[3]}"

    def get_handshake_metadata(self):
        return self.models

    def start_load_kv(self, forward_context, **kwargs):
        told = self._get_connector_metadata().told if self.has_connector_metadata() else None
        if self.worker.ready and told is not None:
            if told.anew:
                self.worker.anew()
            elif told.register:
                self.worker.nudge()

    def wait_for_layer_load(self, layer_name):
        if self.by_layers is not None:
            self.by_layers.wait(self._get_connector_metadata().told, layer_name)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        if self.by_layers is not None:
            self.by_layers.saved(self._get_connector_metadata().told, layer_name)

    def wait_for_save(self):
        if self.by_layers is not None:
            self.by_layers.end(self._get_connector_metadata().told)

    def get_transfer_results(self, finished_req_ids):
        told = self._get_connector_metadata().told
        return KVConnectorTransferResults(finished_recving=set(told.finished), failed_recving=set(told.failed))

    def get_block_ids_with_load_errors(self):
        told = self._get_connector_metadata().told
        return told.invalid | self.by_layers.failed(told) if self.by_layers is not None else set(told.invalid)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        """True for layers: a CUDA graph of the whole step would be replayed without the calls for each layer."""
        return layers.wanted(parse(extra_config))

    def build_connector_worker_meta(self):
        return Awake() if self._get_connector_metadata().told.pending else None

    # ---- the scheduler ----

    def scheduler_begin(self, transfer):
        _, hash_tokens = resolve_kv_cache_block_sizes(self._kv_cache_config, self._vllm_config)
        for group in self.classes:
            if group.block_tokens % hash_tokens:
                raise ValueError(f"SluiceConnector: blocks of {group.block_tokens} tokens, hashes of {hash_tokens}")
        if transfer.kv_load_failure_policy != "recompute":
            log.warning("kv_load_failure_policy is %r: a failed load ends its request; with 'recompute' it does not",
                        transfer.kv_load_failure_policy)
        facts.load_check(self.settings, self.groups)
        layers.check(self.settings, self.groups, getattr(self._kv_cache_config, "needs_kv_cache_zeroing", False),
                     getattr(self._vllm_config, "speculative_config", None) is not None,
                     max(self.stages, self.settings.stages))
        self.settings.save = saves(self.settings, transfer.is_kv_producer)
        self.loads = transfer.is_kv_consumer
        self.cut_tokens = None
        self.adapters = Adapters(self.settings.whole)
        facts.adapters_watch(self.adapters)
        self.node = Node(self.settings, transfer.engine_id)
        self.scheduler = Scheduler(self.classes, hash_tokens, self.settings, self.node,
                                   any(group.kind != "full" for group in self.groups))
        self.scheduler.recomputes = transfer.kv_load_failure_policy == "recompute"
        self.scheduler.handovers.extra_keys, self.scheduler.handovers.sends = facts.extra_keys, transfer.is_kv_producer
        events = self._vllm_config.kv_events_config
        if events is not None and events.enable_kv_cache_events:
            self.scheduler.announce()

    def set_xfer_handshake_metadata_pp_aware(self, metadata):
        told = metadata[min(metadata)]  # the same from all ranks
        self.scheduler.layer_ends = told.layer_ends

        def pools(_, members):
            return [self.pool(group, told.splits[group.index]) for group in members.groups]

        self.node.register(self.classes, pools, told.of, self._kv_cache_config.num_blocks, self.ranks * self.stages)

    def bind_gpu_block_pool(self, gpu_block_pool):
        self.scheduler.bind(gpu_block_pool)

    @property
    def requires_kv_delivery(self):
        return False

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.scheduler.match(self.adapters.named(request), num_computed_tokens, self.loads and not request.skip_reading_prefix_cache)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:
            self.scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        cut_tokens = self._vllm_config.cache_config.block_size
        if cut_tokens != self.cut_tokens:  # checked at the first step: vLLM changes it after it has made the connector
            self.cut_tokens = cut_tokens
            warning = facts.states_warning(self.groups, cut_tokens, self._vllm_config.model_config.model)
            if warning is not None:
                log.warning(warning)
        there = scheduler_output.kv_connector_block_state
        return Step(self.scheduler.step_begin(scheduler_output.num_scheduled_tokens, self._kv_cache_manager.get_block_ids,
                                              there.boundary_state_offloads if there is not None else None))

    def update_connector_output(self, connector_output):
        self.scheduler.blocks_failed(connector_output.invalid_block_ids)
        finished = self.scheduler.take_finished()
        if finished:
            connector_output.finished_recving = (connector_output.finished_recving or set()) | finished

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request, block_ids):
        params = None
        if request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED"):
            params = self.scheduler.handovers.send(self.adapters.named(request), block_ids)
        self.adapters.end(request.request_id)
        self.scheduler.request_end(request.request_id)
        return False, params  # False: blocks of running stores are referenced

    def take_events(self):
        self.scheduler.step_end()  # vLLM's last call for each step whose output was processed
        return [self.event(group.index, self.classes[at].block_tokens, *told)
                for at, *told in self.scheduler.take_events() for group in self.classes[at].groups]

    def event(self, group_index, block_tokens, keys, stored, content):
        hashes, medium = [maybe_convert_block_hash(key) for key in keys], self.settings.events_medium
        if not stored:
            return BlockRemoved(block_hashes=hashes, medium=medium, group_idx=group_index)
        before = content.before if content is not None else None
        return BlockStored(block_hashes=hashes, parent_block_hash=None if before is None else maybe_convert_block_hash(before),
                           token_ids=content.tokens if content is not None else [], block_size=block_tokens, lora_id=None, medium=medium,
                           lora_name=None, group_idx=group_index)

    def has_pending_push_work(self):
        return self.scheduler.busy

    def has_pending_block_frees(self):
        return self.scheduler.frees_blocks

    def reset_cache(self):
        """Removes all blocks of this model, for every engine: its weights have changed."""
        try:
            return self.scheduler.drain(self.settings.timeout) and self.node.forget()
        except sluice.SluiceError as error:
            log.warning("reset_cache: %s", error)
            return False

    def get_kv_connector_stats(self):
        counts = self.scheduler if self.scheduler is not None else self.by_layers
        data = counts.take_stats() if counts is not None else {}
        return SluiceStats(data=data) if data else None

    def shutdown(self):
        (self.node if self.scheduler is not None else self.worker).close()

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return SluiceStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return SluicePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
