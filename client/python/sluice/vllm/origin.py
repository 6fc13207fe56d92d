"""Whose ops are: what vLLM calls the request, and the trace context that came with it. No vLLM in it."""

import re

import sluice

TRACEPARENT = re.compile(r"((?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
NAME_BYTES_MAX = 127


def traceparent_of(request):
    """The text, or None. What is none is left out, as its standard says: a header must not fail a request."""
    headers = getattr(request, "trace_headers", None) or {}
    text = headers.get("traceparent")
    found = TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found and not (found[2] and text.startswith("00")) else None  # only later versions have more


def name_of(request):
    """As much of its name as a node takes."""
    name = str(getattr(request, "request_id", "")).replace("\0", "")
    return name.encode("utf-8", "ignore")[:NAME_BYTES_MAX].decode("utf-8", "ignore")


def origin_set(request):
    """Ops that this thread starts next are of this request; None: of nobody's."""
    if request is None:
        sluice.set_origin()
    else:
        sluice.set_origin(name_of(request), traceparent_of(request))
