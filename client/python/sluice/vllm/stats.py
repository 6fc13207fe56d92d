"""The connector's counters in vLLM's log and Prometheus metrics."""

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

COUNTERS = {
    "lookups": "Lookups of requests' prefixes.",
    "lookup_seconds": "Seconds spent in lookups.",
    "lookup_errors": "Lookups that failed.",
    "queried_tokens": "Tokens looked up.",
    "hit_tokens": "Looked-up tokens that can be loaded.",
    "loads": "Loads that ended.",
    "load_seconds": "Seconds from start to end of loads.",
    "load_failures": "Loads that did not load all blocks.",
    "blocks_not_waited_for": "Blocks that loads skipped because computing them is faster.",
    "loaded_blocks": "Blocks loaded.",
    "loaded_bytes": "Bytes loaded.",
    "stores": "Stores that ended.",
    "store_seconds": "Seconds from start to end of stores.",
    "store_failures": "Stores that failed.",
    "stored_blocks": "Blocks stored.",
    "existed_blocks": "Blocks that were already stored.",
    "dropped_blocks": "Blocks not stored: too many stores were running, or the node did not answer.",
    "layer_waits": "Waits of ranks for a layer that was not loaded yet.",
    "layer_wait_seconds": "Seconds spent in these waits.",
    "start_errors": "Loads and stores that could not be started.",
    "handovers_sent": "Hand-overs that ended at prefill, one for each class of caches.",
    "handover_send_seconds": "Seconds from the end of a prefill to the end of its hand-over.",
    "handover_send_failures": "Hand-overs that failed at prefill.",
    "handovers_received": "Requests whose hand-over ended at decode.",
    "handover_receive_seconds": "Seconds that decode waited for hand-overs.",
    "handover_receive_failures": "Requests that decode restarted because their hand-over failed.",
    "handovers_refused": "Requests whose hand-over parameters were refused; they run as ordinary requests.",
    "hints_refused": "Requests whose sluice_hints were invalid and ignored.",
}


class SluiceStats(KVConnectorStats):
    def reset(self):
        self.data = {}

    def aggregate(self, other):
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self):
        data = self.data
        reduced = {name: data[name] for name in ("stored_blocks", "loaded_blocks", "load_failures", "store_failures",
                                                "handovers_sent", "handovers_received", "handover_send_failures",
                                                "handover_receive_failures", "handovers_refused", "hints_refused") if data.get(name)}
        for what, ended in (("load", "loads"), ("store", "stores"), ("lookup", "lookups"), ("handover_send", "handovers_sent"),
                            ("handover_receive", "handovers_received")):
            if data.get(ended):
                reduced[what + " ms"] = round(data[what + "_seconds"] * 1e3 / data[ended], 3)
        return reduced

    def is_empty(self):
        return not self.data


class SluicePromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self.counters = {}
        for name, said in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:sluice_{name}_total", documentation=said, labelnames=labelnames)
            self.counters[name] = {engine: counter.labels(*values) for engine, values in per_engine_labelvalues.items()}

    def observe(self, transfer_stats_data, engine_idx=0):
        for name, value in transfer_stats_data.items():
            if value and name in self.counters:
                self.counters[name][engine_idx].inc(value)
