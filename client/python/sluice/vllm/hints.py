"""What a request says of its session and its next turn, of priority and retention: `sluice_hints` in its kv_transfer_params. No vLLM in it."""

from sluice.backend import number

NAME = "sluice_hints"
SECONDS_MAX = 7 * 86400
ID_BYTES_MAX = 1024
WORDS = {"session": ("ends", "goes on"), "priority": ("low", "normal", "high")}
SHOWN = 60  # characters of what is not understood


def hints_of(params):
    """The hints of kv_transfer_params as engine.store takes them, or None. Raises ValueError for what is not understood."""
    given = params.get(NAME) if isinstance(params, dict) else None
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError(f"{NAME}: an object, not {ascii(given)[:SHOWN]}")
    hints = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in WORDS:
            if value not in WORDS[name]:
                raise ValueError(f"{NAME}: {name} is one of {', '.join(WORDS[name])}, not {ascii(value)[:SHOWN]}")
            hints[name] = value
        elif name in ("keep", "pause"):
            hints[name] = number(0, SECONDS_MAX, float)(f"{NAME}: {name}", value)
        elif name == "session_id":
            if not isinstance(value, str) or not value or len(value.encode("utf-8", "replace")) > ID_BYTES_MAX:
                raise ValueError(f"{NAME}: session_id is a text of 1 to {ID_BYTES_MAX} bytes, not {ascii(value)[:SHOWN]}")
            if "\0" in value or not value.isprintable():
                raise ValueError(f"{NAME}: session_id is not printable: {ascii(value)[:SHOWN]}")
            hints[name] = value
        else:
            raise ValueError(f"{NAME}: there is no {ascii(name)[:SHOWN]}, but session, session_id, pause, priority and keep")
    return hints or None
