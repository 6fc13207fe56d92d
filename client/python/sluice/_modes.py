"""Checks the settings of a store that connectors pass as texts, each by itself and together."""

import re
from fractions import Fraction

from ._native import ConfigError

_SIZE = re.compile(r"([0-9]{1,40}(?:\.[0-9]{1,40})?)\s*([kmgt]?)b?", re.ASCII | re.IGNORECASE)
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_MODES = ("embedded", "standalone-store")
_STANDARD, _LEAST, _LOCAL_BUFFER_MAX = 4 << 30, 1024, 1 << 40


def _size(name, text):
    found = _SIZE.fullmatch(text.strip())
    size = int(Fraction(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " ")) if found else 1 << 64
    if size >= 1 << 64:
        raise ConfigError(f"{name}: '{text[:64]}' is not a size: a number with b, kb, mb, gb or tb (powers of 1024)")
    if 0 < size < _LEAST:
        raise ConfigError(f"{name}: '{text[:64]}' is neither 0 nor at least {_LEAST} bytes")
    return size


def store_config(mode=None, global_segment_size=None, local_buffer_size=None, enable_offload=None):
    """Checks the texts of a connector's configuration, each by itself and together, and returns a dict of their values; sizes are in
    bytes. Raises ConfigError, which names the setting and the problem."""
    for value in (mode, global_segment_size, local_buffer_size, enable_offload):
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"texts are needed, not {value!r}")
    if mode not in (None, *_MODES):
        raise ConfigError(f"mode: '{mode[:64]}' is neither embedded nor standalone-store")
    embedded = mode != "standalone-store"
    segment = (_STANDARD if embedded else 0) if global_segment_size is None else _size("global_segment_size", global_segment_size)
    local = _STANDARD if local_buffer_size is None else _size("local_buffer_size", local_buffer_size)
    if enable_offload is not None and enable_offload.lower() not in _BOOLEANS:
        raise ConfigError(f"enable_offload: '{enable_offload[:64]}' is not a boolean: true, false, yes, no, on, off, 1 or 0")
    if embedded != (segment > 0):
        raise ConfigError("global_segment_size: 0, but mode embedded contributes memory: > 0" if embedded else
                          f"global_segment_size: {segment} bytes, but mode standalone-store contributes none: 0")
    if not 0 < local <= _LOCAL_BUFFER_MAX:
        raise ConfigError(f"local_buffer_size: {local} bytes, a connector needs 1 KiB to 1 TiB")
    return {"mode": _MODES[not embedded], "global_segment_size": segment, "local_buffer_size": local,
            "enable_offload": enable_offload is not None and _BOOLEANS[enable_offload.lower()]}
