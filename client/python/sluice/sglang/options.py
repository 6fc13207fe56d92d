"""Settings in SGLang's extra configuration, in addition to those of all back ends (sluice.backend)."""

from ..backend import Options, number, switch, text

# Names that SGLang itself reads, or removes before a back end sees them.
OF_SGLANG = frozenset((
    "backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold", "prefetch_timeout_base",
    "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys", "tp_lcm_size"))

ROWS = {
    "timeout": (number(0.001, 3600, float), 2.0),  # seconds per call; SGLang waits about as long for prefetches
    "extra_backend_tag": (text, None),             # engines with different tags share no pages
    "kv_heads": (number(1, 65536), None),          # of the whole model, if ranks share heads
    "peers": (switch, True),                       # whether to ask other nodes for pages that this one lacks
}


def options_of(extra, peers=True):
    """Returns Options of SGLang's dict. Raises ValueError, which names source, setting and value."""
    return Options(extra, rows={**ROWS, "peers": (switch, peers)}, ignored=OF_SGLANG, where="extra config: ")


def flag(extra, name):
    """Returns a boolean that SGLang also reads; texts are refused, since SGLang takes any text for true."""
    value = extra.get(name, False)
    if value is not True and value is not False and not (type(value) is int and value in (0, 1)):
        raise ValueError(f"{name}: must be true or false, not {value!r}")
    return bool(value)
