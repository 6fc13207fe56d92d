"""SluiceConnector: what vLLM calls, in its scheduler and in its workers."""

import dataclasses
import logging

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorHandshakeMetadata, KVConnectorMetadata, KVConnectorRole, KVConnectorTransferResults,
    KVConnectorWorkerMetadata, SupportsHMA)
from vllm.distributed.kv_events import BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash, resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

import sluice

from . import facts
from .layout import classes_of, first_part, layers_apart, layers_of, parts_of
from .node import Node, Registered
from .scheduler import Scheduler, Told
from .settings import parse
from .stats import SluicePromMetrics, SluiceStats

log = logging.getLogger("vllm.sluice")


@dataclasses.dataclass
class Models(KVConnectorHandshakeMetadata):
    """What workers register, {class: model}, and the scheduler, too: it does not see the tensors."""

    of: dict


@dataclasses.dataclass
class Step(KVConnectorMetadata):
    told: Told


@dataclasses.dataclass
class Awake(KVConnectorWorkerMetadata):
    """Makes vLLM hand the output of an empty step to the scheduler's connector."""

    def aggregate(self, other):
        return self


class SluiceConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self.settings = parse(transfer.kv_connector_extra_config)
        self.groups = facts.groups_of(vllm_config, kv_cache_config, get_kv_cache_spec_kind)
        self.classes = classes_of(self.groups)
        self.parts = {group.index: parts_of(group, self.settings.parts) for group in self.groups}
        self.ranks = vllm_config.parallel_config.tensor_parallel_size
        self.scheduler = self.worker = None
        if role == KVConnectorRole.SCHEDULER:
            self.scheduler_begin(transfer)
        else:
            self.worker = Registered(self.settings, transfer.engine_id)
            self.models = {}

    def pool(self, group, layers=(), addresses=None, base_bytes=0):
        rank_parts = [first_part(group, self.parts[group.index], rank, self.ranks) for rank in range(self.ranks)]
        return sluice.Pool(facts.pool_name(group), facts.pool_kind(), layers, memory_bytes=base_bytes, device=addresses,
                           part_count=self.parts[group.index], first_parts=rank_parts)

    # ---- workers ----

    def register_kv_caches(self, kv_caches):
        caches = facts.caches_of(self.groups, kv_caches)
        count = self._kv_cache_config.num_blocks
        made = {group.index: layers_of(group, self.parts[group.index], caches, count) for group in self.groups}
        interiors = {group.index: self.interior(group, caches[group.layers[0]]) for group in self.groups}
        layers = {group.index: len(layers_apart(group, caches)) for group in self.groups}
        self.models = {group.name: facts.model_of(self._vllm_config, self.settings, group, self.parts, layers, interiors)
                       for group in self.classes}
        bytes_of = {group.index: caches[group.layers[0]].base_bytes for group in self.groups}

        def pools(_, members):
            return [self.pool(group, made[group.index][0], [made[group.index][1]], bytes_of[group.index]) for group in members.groups]

        from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
        self.worker.register(self.classes, pools, self.models, count, self.ranks, get_tensor_model_parallel_rank(), 1)

    def interior(self, group, cache):
        """The order of bytes within the states of a head, which its attention back end decides."""
        layer = self._vllm_config.compilation_config.static_forward_context.get(group.layers[0])
        backend = layer.get_attn_backend().get_name() if hasattr(layer, "get_attn_backend") else ""
        return f"{backend} {getattr(getattr(layer, 'impl', None), 'isa', '')} {cache.shape[2]} {cache.shape[3]}"

    def get_handshake_metadata(self):
        return Models(self.models)

    def start_load_kv(self, forward_context, **kwargs):
        if self.worker.ready and self.has_connector_metadata() and self._get_connector_metadata().told.register:
            self.worker.nudge()

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        pass

    def get_transfer_results(self, finished_req_ids):
        told = self._get_connector_metadata().told
        return KVConnectorTransferResults(finished_recving=set(told.finished), failed_recving=set(told.failed))

    def get_block_ids_with_load_errors(self):
        return set(self._get_connector_metadata().told.invalid)

    def build_connector_worker_meta(self):
        return Awake() if self._get_connector_metadata().told.pending else None

    # ---- the scheduler ----

    def scheduler_begin(self, transfer):
        _, hash_tokens = resolve_kv_cache_block_sizes(self._kv_cache_config, self._vllm_config)
        for group in self.classes:
            if group.block_tokens % hash_tokens:
                raise ValueError(f"SluiceConnector: blocks of {group.block_tokens} tokens, hashes of {hash_tokens}")
        if transfer.kv_load_failure_policy != "recompute":
            log.warning("kv_load_failure_policy is %r: a load that fails ends its request; 'recompute' does not",
                        transfer.kv_load_failure_policy)
        facts.load_check(self.settings, self.groups)
        self.settings.save = self.settings.save and transfer.is_kv_producer
        self.loads = transfer.is_kv_consumer
        self.node = Node(self.settings, transfer.engine_id)
        self.scheduler = Scheduler(self.classes, hash_tokens, self.settings, self.node,
                                   any(group.kind == "window" for group in self.groups))
        self.scheduler.handovers.extra_keys, self.scheduler.handovers.sends = facts.extra_keys, transfer.is_kv_producer
        events = self._vllm_config.kv_events_config
        if events is not None and events.enable_kv_cache_events:
            self.scheduler.events = []

    def set_xfer_handshake_metadata(self, metadata):
        models = metadata[min(metadata)].of

        def pools(_, members):
            return [self.pool(group) for group in members.groups]

        self.node.register(self.classes, pools, models, self._kv_cache_config.num_blocks, self.ranks)

    def bind_gpu_block_pool(self, gpu_block_pool):
        self.scheduler.pool = gpu_block_pool

    @property
    def requires_kv_delivery(self):
        return False

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self.scheduler.match(request, num_computed_tokens, self.loads and not request.skip_reading_prefix_cache)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens > 0:
            self.scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return Step(self.scheduler.step_begin(scheduler_output.num_scheduled_tokens, self._kv_cache_manager.get_block_ids))

    def update_connector_output(self, connector_output):
        finished = self.scheduler.take_finished()
        if finished:
            connector_output.finished_recving = (connector_output.finished_recving or set()) | finished

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request, block_ids):
        params = None
        if request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED"):
            params = self.scheduler.handovers.send(request, block_ids)
        self.scheduler.request_end(request.request_id)
        return False, params  # what is being stored is referenced

    def take_events(self):
        self.scheduler.step_end()  # the last call of each step whose output was processed
        if not self.scheduler.events:
            return ()
        events, self.scheduler.events = self.scheduler.events, []
        return [BlockStored(block_hashes=[maybe_convert_block_hash(key) for key in hashes], parent_block_hash=None, token_ids=[],
                            block_size=self.classes[at].block_tokens, lora_id=None, medium="SLUICE", lora_name=None, group_idx=group.index)
                for at, hashes in events for group in self.classes[at].groups]

    def has_pending_push_work(self):
        return self.scheduler.busy

    def has_pending_block_frees(self):
        return self.scheduler.frees_blocks

    def reset_cache(self):
        """Forgets all blocks of this model, for every engine: its weights have changed."""
        try:
            return self.scheduler.drain(self.settings.timeout) and self.node.forget()
        except sluice.SluiceError as error:
            log.warning("reset_cache: %s", error)
            return False

    def get_kv_connector_stats(self):
        data = self.scheduler.take_stats() if self.scheduler is not None else {}
        return SluiceStats(data=data) if data else None

    def shutdown(self):
        (self.node if self.scheduler is not None else self.worker).close()

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return SluiceStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return SluicePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
