"""What the connector counts, in vLLM's log and its Prometheus page."""

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

COUNTERS = {
    "lookups": "Look-ups of requests' prefixes.",
    "lookup_seconds": "Time that look-ups took.",
    "lookup_errors": "Look-ups that found no node.",
    "queried_tokens": "Tokens that were looked up.",
    "hit_tokens": "Tokens of them that may be loaded.",
    "loads": "Loads that ended.",
    "load_seconds": "Time from a load's start to its end.",
    "load_failures": "Loads that brought less than all.",
    "blocks_not_waited_for": "Blocks that were sooner computed than loaded.",
    "loaded_blocks": "Blocks that were loaded.",
    "loaded_bytes": "Bytes that were loaded.",
    "stores": "Stores that ended.",
    "store_seconds": "Time from a store's start to its end.",
    "store_failures": "Stores that failed.",
    "stored_blocks": "Blocks that were stored.",
    "existed_blocks": "Blocks that were stored already.",
    "dropped_blocks": "Blocks that were not stored: too many stores under way, or no node.",
    "layer_waits": "Waits of ranks for a layer that was not in.",
    "layer_wait_seconds": "Time that these took.",
    "start_errors": "Loads and stores that could not be started.",
    "handovers_sent": "Hand-overs that ended at prefill, one for each rule of caches.",
    "handover_send_seconds": "Time from the end of a prefill to that of its hand-over.",
    "handover_send_failures": "Hand-overs that failed at prefill.",
    "handovers_received": "Requests whose hand-over ended at decode.",
    "handover_receive_seconds": "Time that decode waited for hand-overs.",
    "handover_receive_failures": "Requests that decode began anew because their hand-over failed.",
    "handovers_refused": "Requests with parameters of a hand-over that were taken for ordinary ones.",
    "hints_refused": "Requests whose sluice_hints were not understood and left out.",
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
