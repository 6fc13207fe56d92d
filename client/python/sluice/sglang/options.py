"""What the extra configuration of a back end may say. A name that is not known, or a value of the wrong kind, is an error."""

import dataclasses
import math
from typing import Optional

# Those that SGLang itself reads, or takes away before a back end sees them.
OF_SGLANG = frozenset((
    "backend_name", "module_path", "class_name", "interface_v1", "prefetch_threshold", "prefetch_timeout_base",
    "prefetch_timeout_per_ki_token", "hicache_storage_pass_prefix_keys", "tp_lcm_size"))


@dataclasses.dataclass(frozen=True)
class Options:
    """instance, config, settings: the node, as of sluice.Client. timeout: seconds that a call may take. retry: seconds without
    calls after one that the node did not answer. model: in place of SGLang's model name. extra_backend_tag: keeps apart what
    would be shared. kv_heads: of the whole model, where ranks share heads. peers: whether other nodes are asked."""

    instance: Optional[str] = None
    config: Optional[str] = None
    settings: Optional[dict] = None
    timeout: float = 2.0
    retry: float = 1.0
    model: Optional[str] = None
    extra_backend_tag: Optional[str] = None
    kv_heads: Optional[int] = None
    peers: bool = True


KINDS = {"instance": str, "config": str, "settings": dict, "timeout": float, "retry": float, "model": str, "extra_backend_tag": str,
         "kv_heads": int, "peers": bool}


def _value(name, value):
    kind = KINDS[name]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{name}: {kind.__name__} is needed, not {value!r}")
    if kind is float and not (math.isfinite(value) and value > 0) or kind is int and value < 1:
        raise ValueError(f"{name}: more than 0 is needed, not {value!r}")
    return value


def options_of(extra, **defaults):
    """The Options of a dict. Raises ValueError, which names what is wrong."""
    unknown = sorted(set(extra) - set(KINDS) - OF_SGLANG)
    if unknown:
        raise ValueError(f"sluice knows no {', '.join(unknown)}; it knows {', '.join(sorted(KINDS))}")
    told = {name: _value(name, value) for name, value in extra.items() if name in KINDS and value is not None}
    return Options(**{**defaults, **told})


def flag(extra, name):
    """A boolean that SGLang lets be 0 or 1."""
    value = extra.get(name, False)
    if value is not True and value is not False and not (type(value) is int and value in (0, 1)):
        raise ValueError(f"{name}: true or false is needed, not {value!r}")
    return bool(value)
