"""SluiceConnector: vLLM's KV caches in a node of Sluice.

    --kv-transfer-config '{"kv_connector": "SluiceConnector", "kv_connector_module_path": "sluice.vllm", "kv_role": "kv_both",
                           "kv_load_failure_policy": "recompute"}'

Workers register the memory of their caches, and no more: the scheduler's process looks requests up in shared memory, submits loads
and stores, and hears of their ends. docs/guides/vllm.md has the settings."""


def __getattr__(name):
    """The connector needs vLLM; what is beside it does not."""
    if name == "SluiceConnector":
        from .connector import SluiceConnector

        return SluiceConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
