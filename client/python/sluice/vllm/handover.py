"""Hand-overs: prefill in one engine, decode in another. Uses few attributes of vLLM's requests.

A proxy adds parameters to the requests (kv_transfer_params), with the names that vLLM's proxies use. ASKED requests a hand-over from
prefill, and prefill's response has the parameters for decode's request (OFFERED and the names below). A proxy that calls both at once
chooses the number itself. Clients can forge all parameters: invalid ones make an ordinary request, and only the blocks' keys decide what
is loaded."""

import dataclasses
import hashlib
import logging
import re
import secrets
import struct
from typing import NamedTuple, Optional

import sluice

log = logging.getLogger("vllm.sluice")
ASKED = "do_remote_decode"
OFFERED = "do_remote_prefill"
NUMBER = "sluice_handover"  # hexadecimal: some proxies turn numbers into floating point
NODE = "sluice_node"        # prefill's node; missing: decode's own node
MODELS = "sluice_models"    # {class: model identity} of prefill; missing: not compared
NUMBER_MAX = (1 << 64) - 1
NODE_BYTES_MAX = 31
SHOWN = 80                  # characters of a parameter in a log line
NULL_BLOCK = 0              # vLLM's placeholder for blocks that a window has left
KINDS = ("full", "window")  # of groups; states are not at the position that decode needs
# Codes of a receive that do not indicate trouble with the node: prefill is late or gone, or the request was cancelled.
QUIET = (sluice.Code.HANDOVER, sluice.Code.TIMEOUT, sluice.Code.CANCELLED, sluice.Code.INCOMPLETE)


class Offer(NamedTuple):
    """A hand-over that decode's request names."""

    number: int
    node: str
    models: dict


@dataclasses.dataclass
class Send:
    """A running send of one class at prefill."""

    held: list  # vLLM's blocks
    began: float


def number_of(value):
    """Parses a hand-over's number. Raises ValueError."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if isinstance(value, str) and re.fullmatch("[0-9a-fA-F]{1,16}", value):
        number = int(value, 16)
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"{NUMBER}: 1 to 16 hexadecimal digits, not {ascii(value)[:SHOWN]}")
    return number


def offer_of(params):
    """Returns the Offer, or None without one. Raises ValueError for invalid parameters."""
    if not isinstance(params, dict) or params.get(OFFERED) is not True:
        return None
    node, models = ((empty if params.get(name) is None else params[name]) for name, empty in ((NODE, ""), (MODELS, {})))
    if not isinstance(node, str) or not node.isprintable() or len(node.encode(errors="replace")) > NODE_BYTES_MAX:
        raise ValueError(f"{NODE}: a name of {NODE_BYTES_MAX} bytes at most, not {ascii(node)[:SHOWN]}")
    if not isinstance(models, dict):
        raise ValueError(f"{MODELS}: an object, not {ascii(models)[:SHOWN]}")
    return Offer(number_of(params.get(NUMBER)), node, models)


def asked(request):
    """Whether the request asks prefill for a hand-over."""
    return isinstance(request.kv_transfer_params, dict) and request.kv_transfer_params.get(ASKED) is True


def part_number(number, name):
    """Number of the hand-over of one class: each class has its own."""
    return int.from_bytes(hashlib.sha256(f"{number:016x} {name}".encode()).digest()[:8], "little") or 1


def span(group, start, end):
    """Blocks [first, last) of a class that decode needs to compute the token at `end` if it has those before `start`."""
    first = start // group.block_tokens
    if group.window_blocks:
        window = max(one.window for one in group.groups)
        first = max(first, max(0, end - window + 1) // group.block_tokens)
    return first, -(-end // group.block_tokens)


def tail_key(before, tokens, extra, length):
    """Key of an incomplete block. before: key of the previous block; extra: other inputs of its states."""
    told = b"sluice tail\0" + struct.pack("<II", len(before), len(tokens)) + before + struct.pack(f"<{len(tokens)}I", *tokens) + extra
    return hashlib.sha256(told).digest()[:length]


class Handovers:
    """Both sides of hand-overs, for a Scheduler. extra_keys(request, first token, end): what vLLM hashes besides tokens, as bytes."""

    def __init__(self, scheduler):
        self.of = scheduler
        self.mode = {"storage": sluice.HANDOVER_BY_STORAGE, "direct": sluice.HANDOVER_DIRECT}.get(scheduler.settings.handover)
        if self.mode is None:
            self.mode = sluice.handover_mode()
        self.extra_keys = lambda request, first, end: b""
        self.windows = [at for at, group in enumerate(scheduler.classes) if group.window_blocks]
        self.sends = True  # whether this engine may be prefill
        self.sending = 0   # blocks that running sends reference

    # ---- both sides ----

    def served(self, request):
        """Raises ValueError for requests whose blocks have no keys, and for models whose caches cannot be handed over."""
        kinds = {one.kind for group in self.of.classes for one in group.groups}
        if not kinds.issubset(KINDS):
            raise ValueError(f"caches of the kinds {', '.join(sorted(kinds))} cannot be handed over")
        if len(request.block_hashes) * self.of.hash_tokens + self.of.hash_tokens <= request.num_prompt_tokens:
            raise ValueError("the engine hashes no blocks (enable_prefix_caching)")

    def keys(self, at, request, first, last):
        """(keys of the blocks [first, last) of a class, whether the last one is incomplete)"""
        group = self.of.classes[at]
        full = min(last, request.num_prompt_tokens // group.block_tokens)
        keys = list(self.of.hashes(at, request, first, full))
        if last > full:
            start, end = full * group.block_tokens, request.num_prompt_tokens - 1
            before = request.block_hashes[start // self.of.hash_tokens - 1] if full else b""
            keys.append(tail_key(before, list(request.all_token_ids[start:end]), self.extra_keys(request, start, end), len(before) or 32))
        return keys, last > full

    def refused(self, why):
        """Logs a refusal, with a rate limit, since clients can provoke it."""
        self.of.count(handovers_refused=1)
        self.of.say("a hand-over is refused, the request runs as an ordinary one: %s", why)

    # ---- decode ----

    def offered(self, request):
        """Returns the Offer of this request, or None."""
        try:
            offer = offer_of(request.kv_transfer_params)
            if offer is not None:
                self.served(request)
                self.compare(offer)
            return offer
        except ValueError as error:
            self.refused(error)
            return None

    def compare(self, offer):
        if offer.models:
            ours = self.of.node.models(self.of.classes)
            for name in sorted({*ours, *map(str, offer.models)}):
                if ours.get(name) != offer.models.get(name):
                    theirs = ascii(offer.models.get(name))[:SHOWN]
                    raise ValueError(f"{name[:SHOWN]}: prefill's model is {theirs}, decode's {ours.get(name)}; "
                                     f"block size, data type, parts and attention back end are in it")

    def tokens(self, tracker, computed):
        """Number of tokens beyond `computed` that prefill hands over; 0: no hand-over. Decode computes the last one."""
        request = tracker.request
        if tracker.offer is None:
            return 0
        if tracker.offer is Ellipsis:  # not parsed yet
            tracker.offer = self.offered(request)
        if tracker.offer is not None:
            aligned = all(computed % group.block_tokens == 0 for group in self.of.classes)
            if aligned and request.num_tokens == request.num_prompt_tokens > computed + 1:
                return request.num_prompt_tokens - 1 - computed
            tracker.offer = None  # the engine has all tokens, or the request was preempted
        return 0

    def receive(self, load, chunk):
        """Starts a receive and returns the op, or None."""
        keys, partial = self.keys(chunk.at, load.tracker.request, chunk.first, chunk.first + chunk.count)
        return self.of.start(self.of.node.receive, chunk.at, keys, chunk.tables, self.of.settings.handover_timeout, first=chunk.first,
                             number=part_number(load.offer.number, self.of.classes[chunk.at].name), partial=partial, mode=self.mode,
                             node=load.offer.node, request=load.tracker.request, hints=load.tracker.hints)

    def receive_ended(self, load, result):
        """Handles the end of one op. A failed one cancels the others, since their blocks would not be used. A restarted node also fails
        it, visible only in the text, so this registers again."""
        if result.code != sluice.Code.OK:
            self.of.register_again()
            self.of.say("a hand-over has failed, its request restarts: %s", result.why)
            self.cancel(load.request_id)

    def cancel(self, request_id):
        """Cancels receives of a request that has ended, so that its blocks become free."""
        for op, (what, _) in list(self.of.ops.items()):
            if getattr(what, "offer", None) is not None and what.request_id == request_id:
                try:
                    op.cancel()
                except sluice.SluiceError:
                    pass  # it ends by its deadline

    # ---- prefill ----

    def step_begins(self, tokens_of, tables_of):
        """References the blocks of windows that decode needs when the end of a prompt is scheduled: later its window may leave them."""
        for request_id, count in tokens_of.items() if self.windows and self.sends else ():
            tracker = self.of.trackers.get(request_id)
            if tracker is not None and asked(tracker.request):
                begin, end = tracker.request.num_computed_tokens, tracker.request.num_prompt_tokens
                if begin < end <= begin + count:
                    self.leave(tracker)  # references from before a preemption
                    tables = tables_of(request_id)
                    tracker.windows = {at: self.of.chunk(at, tables, *span(self.of.classes[at], 0, end - 1)) for at in self.windows}

    def leave(self, tracker):
        for chunk in (tracker.windows or {}).values():
            self.of.blocks_release(chunk.held)
        tracker.windows = None

    def send(self, request, tables):
        """Starts the hand-over that an ended request asked for and returns the parameters for decode; None: no hand-over. tables: a list
        of blocks for each of vLLM's groups."""
        if not asked(request) or request.num_prompt_tokens < 2 or not self.sends or not self.of.free(self.sending):
            return None
        given = request.kv_transfer_params.get(NUMBER)
        try:
            self.served(request)
            number = number_of(given) if given is not None else secrets.randbits(63) + 1
            chunks = self.chunks(request, tables)
        except ValueError as error:
            self.refused(error)
            return None
        started = [self.send_start(request, number, chunk) for chunk in chunks]  # start all: each releases its own blocks
        if not all(started):
            return None
        return {OFFERED: True, ASKED: False, NUMBER: f"{number:x}", NODE: self.of.node.name(), MODELS: self.of.node.models(self.of.classes)}

    def chunks(self, request, tables):
        tracker = self.of.trackers.get(request.request_id)
        kept = (tracker.windows if tracker is not None else None) or {}
        spans = [span(group, 0, request.num_prompt_tokens - 1) for group in self.of.classes]
        for at, (first, last) in enumerate(spans):
            for i, one in enumerate(self.of.classes[at].groups):
                table = kept[at].tables[i] if at in kept else tables[one.index][first:last]
                if len(table) < last - first or NULL_BLOCK in table:
                    raise ValueError(f"{self.of.classes[at].name}: a block that decode needs was already freed")
        return [kept.pop(at) if at in kept else self.of.chunk(at, tables, *at_span) for at, at_span in enumerate(spans)]

    def send_start(self, request, number, chunk):
        tracker = self.of.trackers.get(request.request_id)
        keys, partial = self.keys(chunk.at, request, chunk.first, chunk.first + chunk.count)
        op = self.of.start(self.of.node.send, chunk.at, keys, chunk.tables, self.of.settings.store_timeout, first=chunk.first,
                           number=part_number(number, self.of.classes[chunk.at].name), partial=partial, mode=self.mode, request=request,
                           hints=tracker.hints if tracker is not None else None, before=self.of.before(chunk.at, request, chunk.first))
        if op is None:
            self.of.blocks_release(chunk.held)
            return False
        self.of.ops[op] = (Send(chunk.held, self.of.now()), 0)
        self.sending += len(chunk.held)
        return True

    def send_ended(self, op, send, result):
        self.sending -= len(send.held)
        self.of.count(handovers_sent=1, handover_send_seconds=self.of.now() - send.began,
                      handover_send_failures=result.code != sluice.Code.OK)
        if result.code not in QUIET:
            self.of.node_lost(result.code, result.why)
        self.of.fenced_or_later(op, send.held, result)
