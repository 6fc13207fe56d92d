"""Reads traces, and chooses the hints about sessions that the engine of a replay sends: the same for the same trace, shares and seed."""

import itertools
import json
from array import array
from typing import NamedTuple

BLOCK_TOKENS = 512  # tokens that a hash id represents
LINE_BYTES_MAX, REQUESTS_MAX, IDS_MAX = 16 << 20, 10_000_000, 1 << 30
TOKENS_MAX, ID_MAX, TIMESTAMP_MAX = 1 << 26, (1 << 32) - 1, (1 << 63) - 1


class Request(NamedTuple):
    timestamp_ms: int
    input_length: int  # tokens; the last block is cut to it
    ids: array


# ---- reading ----

class TraceError(Exception):
    """too_much: the trace exceeds a bound; else it is malformed."""

    def __init__(self, text, too_much=False):
        super().__init__(text)
        self.too_much = too_much


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _number(found, name, low, high):
    value = found.get(name)
    if type(value) is not int or not low <= value <= high:
        raise TraceError(f"{name} must be a whole number from {low} to {high}")
    return value


def request_of(line):
    try:
        found = json.loads(line.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"not JSON: {error}") from None
    ids = found.get("hash_ids") if isinstance(found, dict) else None
    if not isinstance(ids, list) or not ids:
        raise TraceError("hash_ids must be a list that is not empty")
    timestamp_ms = _number(found, "timestamp", 0, TIMESTAMP_MAX) if "timestamp" in found else 0
    length = _number(found, "input_length", 1, TOKENS_MAX)
    if len(ids) != -(-length // BLOCK_TOKENS):
        raise TraceError(f"{len(ids)} hash_ids of {BLOCK_TOKENS} tokens do not fit input_length {length}")
    for i, number in enumerate(ids):
        if type(number) is not int or not 0 <= number <= ID_MAX:
            raise TraceError(f"hash_ids[{i}] must be a whole number from 0 to {ID_MAX}")
    return Request(timestamp_ms, length, array("I", ids))


def trace_of(file, limit):
    """The first `limit` requests. The text of an error begins with the number of the line."""
    requests, ids = [], 0
    for number in itertools.count(1):
        line = file.readline(LINE_BYTES_MAX + 1) if len(requests) < limit else b""
        if not line:
            return requests
        try:
            if len(line) > LINE_BYTES_MAX:
                raise TraceError(f"over {LINE_BYTES_MAX} bytes", True)
            if not line.strip():
                continue
            request = request_of(line)
            ids += len(request.ids)
            if len(requests) == REQUESTS_MAX or ids > IDS_MAX:
                raise TraceError(f"more than {REQUESTS_MAX} requests, or {IDS_MAX} hash_ids in all", True)
            requests.append(request)
        except TraceError as error:
            raise TraceError(f"{number}: {error}", error.too_much) from None


# ---- sessions ----

UNKNOWN, ENDS, GOES_ON = 0, 1, 2  # enum sl_session
MASK = (1 << 64) - 1
TOLD_SEED, RIGHT_SEED, OTHER_SEED, ERROR_SEED = 3000017, 4000037, 5000011, 6000011  # independent draws for each purpose
OTHERS_MAX = 64


def _mix(number):
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9 & MASK
    number = (number ^ number >> 27) * 0x94d049bb133111eb & MASK
    return number ^ number >> 31


def drawn(seed, request):
    """A random number in 0..1 for a request. tests/bench/policy draws the same."""
    return (_mix(_mix(seed + 1 & MASK) + request & MASK) >> 11) / (1 << 53)


def ends_of(requests):
    """For each request, whether it ends a session: no later request continues from its last complete block."""
    last = {number: i for i, request in enumerate(requests) for number in request.ids}  # the request that has the block last
    return [last[request.ids[max(len(request.ids) - 2, 0)]] == i for i, request in enumerate(requests)]


def session_hint(ends_reported, hints_right, seed, ends, request):
    """The session hint of a request: ENDS for a share of the ends; or, with hints_right, a hint for each request, of which a share is right."""
    if ends_reported is not None:
        return ENDS if ends and drawn(seed, request) < ends_reported else UNKNOWN
    if hints_right is not None:
        return ENDS if ends == (drawn(seed, request) < hints_right) else GOES_ON
    return UNKNOWN


def pauses_of(requests):
    """For each request, the ms until its session continues: until the next request that has all of its blocks except the last one, and more
    than one; 0: it does not continue."""
    pauses, last = [0] * len(requests), {}
    for i, request in enumerate(requests):
        here = list(itertools.takewhile(last.__contains__, request.ids))
        if len(here) > 1:
            before = last[here[-1]]
            if len(here) + 1 >= len(requests[before].ids) and pauses[before] == 0:
                pauses[before] = max(request.timestamp_ms - requests[before].timestamp_ms, 1)
        last.update(dict.fromkeys(request.ids, i))
    return pauses


def pause_hint(told, right, error, seed, pauses, request):
    """The pause hint of a request in ms; 0: no hint. told: share of the requests that have one. right: share of these with the right pause;
    the others have that of another request. error: a pause is off by up to this share."""
    if not drawn(seed + TOLD_SEED, request) < told:
        return 0
    pause = pauses[request]
    if not drawn(seed + RIGHT_SEED, request) < right:
        others = (pauses[int(drawn(seed + OTHER_SEED + i, request) * len(pauses))] for i in range(OTHERS_MAX))
        pause = next(filter(None, others), 0)
    off = error * (2 * drawn(seed + ERROR_SEED, request) - 1)
    return max(int(pause * max(1 + off, 0.0)), 1) if pause else 0
