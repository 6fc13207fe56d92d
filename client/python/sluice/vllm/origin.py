"""Sets the origin of ops: the name of vLLM's request and its trace context. Imports no vLLM."""

import re

import sluice

TRACEPARENT = re.compile(r"((?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")
NAME_BYTES_MAX = 127


def traceparent_of(request):
    """Returns the request's traceparent, or None. Ignores invalid ones, as the standard requires."""
    headers = getattr(request, "trace_headers", None) or {}
    text = headers.get("traceparent")
    found = TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    return found[1] if found and not (found[2] and text.startswith("00")) else None  # only later versions may have more fields


def name_of(request):
    """The request's name, cut to the length that a node accepts."""
    name = str(getattr(request, "request_id", "")).replace("\0", "")
    return name.encode("utf-8", "ignore")[:NAME_BYTES_MAX].decode("utf-8", "ignore")


def origin_set(request):
    """Makes this request the origin of ops that this thread starts next; None: no request."""
    if request is None:
        sluice.set_origin()
    else:
        sluice.set_origin(name_of(request), traceparent_of(request))
