"""What the extra configuration of a back end may say beside the settings of all back ends (sluice.backend)."""

from ..backend import Options, number, switch, text

# Those that SGLang itself reads, or takes away before a back end sees them.
OF_SGLANG = frozenset((
    "backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold", "prefetch_timeout_base",
    "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys", "tp_lcm_size"))

ROWS = {
    "timeout": (number(0.001, 3600, float), 2.0),  # seconds that a call may take; SGLang waits for prefetches about as long
    "extra_backend_tag": (text, None),             # keeps apart what would be shared
    "kv_heads": (number(1, 65536), None),          # of the whole model, where ranks share heads
    "peers": (switch, True),                       # whether other nodes are asked for what this one has not
}


def options_of(extra, peers=True):
    """Options of SGLang's dict. Raises ValueError with source, name and value."""
    return Options(extra, rows={**ROWS, "peers": (switch, peers)}, ignored=OF_SGLANG, where="extra config: ")


def flag(extra, name):
    """A boolean as SGLang reads it, where any text would be true."""
    value = extra.get(name, False)
    if value is not True and value is not False and not (type(value) is int and value in (0, 1)):
        raise ValueError(f"{name}: true or false is needed, not {value!r}")
    return bool(value)
