"""Hints of a request about its session, priority and retention: `sluice_hints` in its kv_transfer_params. Imports no vLLM."""

from sluice.hints import hints_checked

NAME = "sluice_hints"


def hints_of(params):
    """Returns the hints of kv_transfer_params as engine.store takes them, or None. Raises ValueError for unknown names and values."""
    given = params.get(NAME) if isinstance(params, dict) else None
    return None if given is None else hints_checked(NAME, given)
