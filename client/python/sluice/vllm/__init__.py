"""SluiceConnector: stores vLLM's KV caches in a node of Sluice.

    --kv-transfer-config '{"kv_connector": "SluiceConnector", "kv_connector_module_path": "sluice.vllm", "kv_role": "kv_both",
                           "kv_load_failure_policy": "recompute"}'

Workers only register the memory of their caches. The scheduler's process looks requests up in shared memory, starts loads and stores, and
polls for their ends. docs/guides/vllm.md has the settings."""


def __getattr__(name):
    """Imports the connector on first use, since only it needs vLLM."""
    if name == "SluiceConnector":
        from .connector import SluiceConnector

        return SluiceConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
