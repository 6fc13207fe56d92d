"""What a request says of its session, of priority and retention: `sluice_hints` in its kv_transfer_params. No vLLM in it."""

from sluice.backend import number

NAME = "sluice_hints"
KEEP_SECONDS_MAX = 7 * 86400
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
        elif name == "keep":
            hints[name] = number(0, KEEP_SECONDS_MAX, float)(f"{NAME}: keep", value)
        else:
            raise ValueError(f"{NAME}: there is no {ascii(name)[:SHOWN]}, but session, priority and keep")
    return hints or None
