"""What a request says of its session and its next turn, of priority and retention: `sluice_hints` in its kv_transfer_params. No vLLM in it."""

from sluice.hints import hints_checked

NAME = "sluice_hints"


def hints_of(params):
    """The hints of kv_transfer_params as engine.store takes them, or None. Raises ValueError for what is not understood."""
    given = params.get(NAME) if isinstance(params, dict) else None
    return None if given is None else hints_checked(NAME, given)
