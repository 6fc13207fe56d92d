"""The connector in vLLM's scheduler: decides what is loaded and stored, and when. It uses few attributes of vLLM's requests and block
pool, and Sluice only through `node` (node.py).

A block that is stored or loaded is referenced until Sluice no longer touches it. So neither a preemption, nor an abort, nor a sliding
window gives it to another request meanwhile."""

import dataclasses
import logging
import os
import time
from typing import Any, Optional

import sluice

from .events import Announced, Content
from .handover import QUIET, Handovers, Send, span
from .hints import hints_of
from .layers import ByLayers
from .origin import origin_set
from .pace import Pace

log = logging.getLogger("vllm.sluice")  # logged with vLLM's own lines
FENCE_PAUSE_SECONDS = 0.2
AGAIN_SECONDS = 0.05       # delay before a retry of a load whose ranks the node did not know
AGAIN_MAX = 20
SAY_SECONDS = 10.0         # between two log lines of failures
FENCE_STEP_SECONDS = 60.0  # how long the engine keeps stepping for a fence; afterwards a later request polls it
FREE_SECONDS = 1.0         # how long vLLM waits for the blocks of a store instead of preempting a request
IDLE_WAIT_SECONDS = 0.002  # wait of a step without tokens while loads are running
SYNC_WAIT_SECONDS = 0.05
NULL_BLOCK = 0             # vLLM's placeholder for blocks that a window has left
# After these the node is not called for a while, since each of them costs the caller a deadline.
AWAY = (sluice.Code.UNREACHABLE, sluice.Code.TIMEOUT, sluice.Code.PEER_DIED, sluice.Code.DRAINING)


@dataclasses.dataclass
class Tracker:
    """A request from its first lookup to its end."""

    request: Any
    computed: int = 0           # tokens that the engine itself had at the last lookup
    failed: bool = False        # a load failed: no more loads for this request
    next: Optional[list] = None  # for each class: the first block not yet considered for storing
    unsure: int = 0             # by layers: the last step with a load that may still fail
    wrong: int = 0              # results of steps up to this one are invalid: a load had failed
    preemptions: int = 0        # the request's count at its lookup
    offer: Any = ...            # hand-over to receive (handover.Offer); None: none, or used; ...: not parsed yet
    windows: Optional[dict] = None  # {class: Chunk} kept for a hand-over
    hints: Optional[dict] = None  # of its kv_transfer_params


@dataclasses.dataclass
class Chunk:
    """Blocks [first, first + count) of a class; referenced in vLLM's pool."""

    at: int       # number of the class
    first: int
    tables: list  # for each group: blocks, NULL_BLOCK for those that a window has left
    held: list    # vLLM's blocks
    op: Any = None  # its store by layers, which now owns `held`
    stored: bool = False

    @property
    def count(self):
        return len(self.tables[0])


@dataclasses.dataclass
class Filled:
    """A request in a step, and the blocks that the step fills."""

    tracker: Tracker
    end: int  # tokens of the request after the step
    preemptions: int
    chunks: list


@dataclasses.dataclass
class Step:
    number: int
    filled: list


@dataclasses.dataclass
class Load:
    request_id: str
    tracker: Tracker
    chunks: list
    start: int    # tokens
    end: int
    step: int     # the last step that was scheduled before
    sync: bool = False
    told: bool = False  # by layers: the workers report missing blocks
    ops: int = 0  # running
    good: Optional[list] = None  # for each chunk: number of its first blocks that were loaded
    unfenced: bool = False
    left: int = 0  # blocks that were stored, but were faster to compute than to read
    tiers: tuple = (0, 0, 0)  # blocks from memory, disk, other nodes
    again: int = 0  # number of retries
    began: float = 0.0
    offer: Any = None  # handover.Offer, if prefill hands the blocks over


@dataclasses.dataclass
class Store:
    chunk: Chunk
    hashes: list
    began: float
    content: Any = None  # events.Content
    names: Any = None  # names of the hashes in events


@dataclasses.dataclass
class StepUpdate:
    """Sent to the workers with a step. They return most of it, since vLLM's scheduler expects it from them."""

    finished: set = dataclasses.field(default_factory=set)
    failed: set = dataclasses.field(default_factory=set)    # requests, of finished
    invalid: set = dataclasses.field(default_factory=set)   # blocks
    loads: list = dataclasses.field(default_factory=list)   # by layers, of this step: layers.StepLoad
    saves: list = dataclasses.field(default_factory=list)   # numbers of stores
    pending: bool = False   # loads are running: also report a step without work
    register: bool = False  # the node does not know the ranks
    anew: bool = False      # the node knows memory that the ranks no longer have


class Scheduler(ByLayers):
    """The scheduler's half of the connector: one for each engine, one thread. Times are in seconds."""

    def __init__(self, classes, hash_tokens, settings, node, window_blocks_move=False, now=time.monotonic):
        self.classes, self.hash_tokens, self.settings, self.node, self.now = classes, hash_tokens, settings, node, now
        # vLLM reuses blocks that a window has left while a running step still reads them; only then do loads wait for that step.
        self.ordered = window_blocks_move
        self.pool = None
        self.trackers = {}
        self.steps = []           # scheduled, output not processed yet
        self.scheduled = 0
        self.loads_new = []       # not started
        self.loads_again = []     # (load, chunk index, when): the node was restarted and does not know the ranks yet
        self.ops = {}             # op -> (Store or Load, chunk index)
        self.store_count = 0      # blocks that running stores reference
        self.load_count = 0
        self.unfenced = []        # (op, blocks, time of the next query, time until which the engine steps for it)
        self.announced = None     # events.Announced, if KV events are enabled
        self.told = StepUpdate()
        self.layered = []         # (step, load by layers), output not processed yet
        self.finished = set()     # requests whose load succeeded, not reported to vLLM yet
        self.paused_until = 0.0
        self.register_at = 0.0
        self.say_at = 0.0
        self.tier_log = os.environ.get("VLLM_MOONCAKE_STORE_TIER_LOG", "0") not in ("", "0")
        self.stats = {}
        self.handovers = Handovers(self)
        # A shorter load falls under vLLM's policy for failed loads, so loads skip blocks only with `recompute`.
        self.pace = Pace(settings.prefill_rate, settings.prefill_doubles)
        self.recomputes = False

    def bind(self, pool):
        """Takes vLLM's block pool. The pool can be reset only if no block is referenced, so a reset first waits for running stores."""
        self.pool = pool
        reset = pool.reset_prefix_cache

        def reset_when_stored():
            self.drain(self.settings.timeout)
            return reset()

        pool.reset_prefix_cache = reset_when_stored

    # ---- lookup ----

    def hashes(self, at, request, first, last):
        """Keys of the blocks [first, last) of a class. The hash of a block's last tokens covers all tokens before."""
        step = self.classes[at].block_tokens // self.hash_tokens
        return request.block_hashes[(first + 1) * step - 1:last * step:step]

    def names(self, at, request, first, last):
        """Names of these blocks in events: vLLM's hashes, even if an adapter changes the keys."""
        return self.hashes(at, getattr(request, "asked", request), first, last)

    def match(self, request, computed, wanted=True):
        """Looks a request up: (tokens beyond `computed` that can be loaded, whether the load is asynchronous). If not wanted, loads none,
        but tracks the request from now on."""
        tracker = self.trackers.get(request.request_id)
        if tracker is None:
            tracker = self.trackers[request.request_id] = Tracker(request, hints=self.hints(request))
        tracker.request, tracker.computed = request, computed
        if tracker.preemptions != request.num_preemptions:  # it starts again; blocks that it had computed may be gone
            tracker.next, tracker.preemptions = None, request.num_preemptions
        if not wanted or tracker.failed or not self.free():
            return 0, False
        tokens = self.handovers.tokens(tracker, computed)
        if tokens > 0:
            return tokens, True
        began = self.now()
        tokens = self.prefix(request, computed, request.num_tokens - 1)  # the last token must be computed: it yields the next one
        if tracker.next is None:
            before = 0 if computed == 0 else self.prefix(request, 0, computed)
            there = computed + tokens if before == computed else before
            tracker.next = [there // group.block_tokens for group in self.classes]
        queried = max(0, request.num_tokens - 1 - computed)
        self.count(lookups=1, lookup_seconds=self.now() - began, queried_tokens=queried, hit_tokens=tokens)
        return tokens, tokens > 0 and self.settings.load == "async"

    def hints(self, request):
        """The request's hints, or None. Invalid ones are logged and ignored."""
        try:
            return hints_of(request.kv_transfer_params)
        except ValueError as error:
            self.count(hints_refused=1)
            self.say("hints of a request are ignored: %s", error)
            return None

    def before(self, at, request, first):
        """Key of the block before block `first` of a class, or None."""
        return self.hashes(at, request, first - 1, first)[0] if first > 0 else None

    def free(self, under_way=0):
        """Whether further ops may start while running ones reference `under_way` blocks."""
        return self.now() >= self.paused_until and self.stuck + under_way < self.settings.stores_max and self.node.ready

    def prefix(self, request, start, end):
        """Number of tokens from `start` on, up to `end`, that all classes have."""
        looked = []
        for at, group in enumerate(self.classes):
            first, last = start // group.block_tokens, min(end, len(request.block_hashes) * self.hash_tokens) // group.block_tokens
            if start % group.block_tokens or last <= first:
                return 0
            looked.append((group, first, self.hashes(at, request, first, last)))
        try:
            if len(looked) == 1 and not looked[0][0].window_blocks:
                group, _, hashes = looked[0]
                return self.node.look(0, hashes, 0, self.settings.hold) * group.block_tokens
            return self.prefix_of_all(looked)
        except sluice.SluiceError:
            self.count(lookup_errors=1)
            return 0

    def prefix_of_all(self, looked):
        """The longest prefix, in tokens, that all classes have; its blocks are held. 0 if a block was evicted meanwhile."""
        there = [self.node.look_there(at, hashes, group.window_blocks) for at, (group, _, hashes) in enumerate(looked)]
        tokens = hit_tokens([(bits_text(bits, len(hashes)), group.window_blocks, group.block_tokens)
                             for bits, (group, _, hashes) in zip(there, looked)])
        for at, (group, _, hashes) in enumerate(looked):
            count = tokens // group.block_tokens
            first = max(0, count - group.window_blocks) if group.window_blocks else 0
            if count > first and self.node.look(at, hashes[first:count], 0, self.settings.hold) < count - first:
                return 0  # evicted since
        return tokens

    def allocated(self, request, tables, tokens):
        """Queues a load of `tokens` beyond the computed ones, for which vLLM has allocated blocks. tables: a list for each of its
        groups."""
        if tokens == 0:
            return
        tracker = self.trackers[request.request_id]
        start, end = tracker.computed, tracker.computed + tokens
        offer, tracker.offer = None if tracker.offer is ... else tracker.offer, None
        load = Load(request.request_id, tracker, [], start, end, self.scheduled, self.settings.load != "async" and offer is None,
                    offer=offer)
        if offer is not None and tracker.next is None:
            tracker.next = [0] * len(self.classes)
        for at, group in enumerate(self.classes):
            first, last = start // group.block_tokens, end // group.block_tokens
            if offer is not None:
                first, last = span(group, start, end)
            elif group.window_blocks:
                first = max(first, last - group.window_blocks)
            load.chunks.append(self.chunk(at, tables, first, last))
            if tracker.next is not None:
                tracker.next[at] = max(tracker.next[at], end // group.block_tokens)
        self.loads_new.append(load)

    def chunk(self, at, tables, first, last):
        cut = [tables[group.index][first:last] for group in self.classes[at].groups]
        held = [self.pool.blocks[block] for table in cut for block in table if block != NULL_BLOCK]
        self.pool.touch(held)
        return Chunk(at, first, cut, held)

    def blocks_release(self, held):
        self.pool.free_blocks(reversed(held))

    # ---- steps ----

    def step_begin(self, tokens_of, tables_of, states=None):
        """Called when vLLM has scheduled a step; returns a record for the workers. tokens_of: {request: tokens that the step computes}.
        tables_of(request): a list of its blocks for each group. states: {request: [(group, block, tokens)]}, blocks that will hold the
        state after `tokens` tokens at the end of the step."""
        self.scheduled += 1
        self.pace.begins(sum(tokens_of.values()), self.now())
        filled = []
        if self.settings.save and self.node.ready:
            for request_id, count in tokens_of.items():
                tracker = self.trackers.get(request_id)
                if tracker is not None:
                    self.fill(filled, tracker, tracker.request.num_computed_tokens + count, tables_of)
            for request_id, told in (states or {}).items():
                tracker = self.trackers.get(request_id)
                if tracker is not None:
                    self.fill_states(filled, tracker, tracker.request.num_computed_tokens + tokens_of.get(request_id, 0), told)
        self.handovers.step_begins(tokens_of, tables_of)
        self.steps.append(Step(self.scheduled, filled))
        self.loads_start()
        if not tokens_of and self.busy:
            self.node.wait(IDLE_WAIT_SECONDS)
        self.poll()
        self.stores_begin()
        told, self.told = self.told, StepUpdate()
        told.pending = self.load_count > 0 or bool(self.loads_new) or bool(self.finished)
        self.pace.scheduled(sum(tokens_of.values()), self.now())
        return told

    def fill(self, filled, tracker, end, tables_of):
        if self.steps and self.steps[0].number <= tracker.wrong:
            return
        if tracker.next is None:
            tracker.next = [0] * len(self.classes)
        tables, chunks = None, []
        for at, group in enumerate(self.classes):
            last = min(end, len(tracker.request.block_hashes) * self.hash_tokens) // group.block_tokens
            if last > tracker.next[at] and not group.offered:
                tables = tables or tables_of(tracker.request.request_id)
                chunks.append(self.chunk(at, tables, tracker.next[at], last))
                tracker.next[at] = last
        if chunks:
            filled.append(Filled(tracker, end, tracker.request.num_preemptions, chunks))

    def fill_states(self, filled, tracker, end, told):
        """Adds a block for each state, if all groups of its class have one at the same boundary."""
        if tracker.next is None:
            tracker.next = [0] * len(self.classes)
        chunks = []
        for at, group in enumerate(self.classes):
            for last, table in states_at(group, told) if group.offered else ():
                if tracker.next[at] < last and last * group.block_tokens <= min(end, len(tracker.request.block_hashes) * self.hash_tokens):
                    held = [self.pool.blocks[block] for block in table]
                    self.pool.touch(held)
                    chunks.append(Chunk(at, last - 1, [[block] for block in table], held))
                    tracker.next[at] = last
        if chunks:
            filled.append(Filled(tracker, end, tracker.request.num_preemptions, chunks))

    def step_end(self):
        """Called when vLLM has processed the output of the oldest step: stores the blocks that it filled."""
        if not self.steps:
            return
        step = self.steps.pop(0)
        self.layers_processed(step.number)
        for filled in step.filled:
            request = filled.tracker.request
            end = filled.end
            if request.num_preemptions == filled.preemptions:  # tokens may have been revoked: drafts, failed loads
                end = min(end, request.num_computed_tokens - request.num_in_flight_tokens)
            for chunk in filled.chunks:
                self.store(filled.tracker, chunk, max(0, end // self.classes[chunk.at].block_tokens - chunk.first))
        self.loads_start()
        self.poll()

    def store(self, tracker, chunk, count):
        if count < chunk.count:  # revoked tokens are computed and considered again
            tracker.next[chunk.at] = min(tracker.next[chunk.at], chunk.first + count)
        if chunk.op is not None and self.store_finish(chunk, count):
            return
        gone = max((leading(table, NULL_BLOCK) for table in chunk.tables), default=0)  # the window left these before they were full
        if count <= gone or self.store_count + self.stuck >= self.settings.stores_max or self.now() < self.paused_until:
            self.blocks_release(chunk.held)
            self.count(dropped_blocks=max(0, count - gone))
            return
        hashes = self.hashes(chunk.at, tracker.request, chunk.first + gone, chunk.first + count)
        op = self.start(self.node.store, chunk.at, hashes, [table[gone:count] for table in chunk.tables], self.settings.store_timeout,
                        request=tracker.request, **self.said(tracker, chunk, gone))
        if op is None:
            self.blocks_release(chunk.held)
            return
        self.store_keep(op, chunk, hashes, tracker.request, gone)

    def said(self, tracker, chunk, gone=0):
        """Arguments of a store: the request's hints, and the key of the block before the chunk."""
        return {"hints": tracker.hints, "before": self.before(chunk.at, tracker.request, chunk.first + gone)}

    def store_keep(self, op, chunk, hashes, request, gone=0):
        first = chunk.first + gone
        self.ops[op] = (Store(chunk, hashes, self.now(), self.content(chunk.at, request, first, len(hashes)),
                              self.names(chunk.at, request, first, first + len(hashes))), 0)
        self.store_count += len(chunk.held)

    def start(self, call, *told, request=None, **more):
        """Starts an op and returns it; None if that fails. request: of which the op is a part."""
        try:
            origin_set(request)
            return call(*told, **more)
        except sluice.SluiceError as error:
            self.count(start_errors=1)
            self.node_lost(error.code, f"not started: {error}")
            return None

    def node_lost(self, code, why):
        """Handles the code of an op: logs a failure, pauses calls, or requests a new registration. Does nothing for OK."""
        if code not in (sluice.Code.OK, sluice.Code.CANCELLED):
            self.say("a load or store has failed (%s): %s", sluice.Code(code).name, why)
        if code == sluice.Code.NOT_FOUND:  # the node does not know its ranks: it was restarted
            self.register_again()
        elif code == sluice.Code.STALE:
            if self.now() >= self.register_at:
                self.told.anew = True
                self.register_at = self.now() + self.settings.retry
        elif code in AWAY:
            pause = self.settings.timeout if code == sluice.Code.TIMEOUT else self.settings.retry
            self.paused_until = max(self.paused_until, self.now() + pause)

    def register_again(self):
        if self.now() >= self.register_at:
            self.told.register = True
            self.register_at = self.now() + self.settings.retry

    def say(self, *line):
        """Logs a failure, at most one line every SAY_SECONDS."""
        if self.now() >= self.say_at:
            log.warning(*line)
            self.say_at = self.now() + SAY_SECONDS

    # ---- loads ----

    def loads_start(self):
        waiting = []
        for load in self.loads_new:
            if self.ordered and self.steps and self.steps[0].number <= load.step:
                waiting.append(load)
            else:
                self.load_start(load)
        self.loads_new = waiting

    def load_start(self, load):
        load.began, load.good = self.now(), [0] * len(load.chunks)
        self.load_count += 1
        for i, chunk in enumerate(load.chunks):
            if chunk.count == 0:
                continue
            if not self.chunk_load_start(load, i):
                break
            load.ops += 1
        if load.ops == 0:
            self.load_ended(load)
        while load.sync and not load.told and load.ops > 0:  # each op ends by its deadline
            self.node.wait(SYNC_WAIT_SECONDS)
            self.poll()

    def chunk_load_start(self, load, i):
        chunk = load.chunks[i]
        if any(NULL_BLOCK in table for table in chunk.tables):
            return False  # vLLM allocated no block for one that the prefix needs
        by_layers = [self.layer_ends] if self.settings.load == "layers" and self.layer_ends and load.offer is None else []
        op = (self.handovers.receive(load, chunk) if load.offer is not None else
              self.start(self.node.load, chunk.at, self.chunk_hashes(load, i), chunk.tables, self.settings.timeout, *by_layers,
                         request=load.tracker.request, hints=load.tracker.hints, **self.soft(load, chunk)))
        if op is not None:
            self.ops[op] = (load, i)
            if by_layers:
                self.load_told(load, op)
        return op is not None

    def soft(self, load, chunk):
        """Arguments that let a load skip blocks that are faster to compute. Only for one class without windows and layers."""
        prefill = self.pace.prefill() if self.recomputes else None
        if prefill is None or len(load.chunks) != 1 or self.classes[0].window_blocks or self.settings.load == "layers":
            return {}
        return {"prefill": prefill, "first": chunk.first}

    def chunk_hashes(self, load, i):
        chunk = load.chunks[i]
        return self.hashes(chunk.at, load.tracker.request, chunk.first, chunk.first + chunk.count)

    def loads_try_again(self):
        while self.loads_again and self.now() >= self.loads_again[0][2]:
            load, i, _ = self.loads_again.pop(0)
            if not self.chunk_load_start(load, i):
                self.load_op_over(load)

    def ranks_unknown(self, load, at, result):
        """Whether the load failed only because the node does not know the ranks: all its blocks exist."""
        if result.code != sluice.Code.NOT_FOUND or load.sync or load.offer or load.again >= AGAIN_MAX or not result.fenced:
            return False
        try:
            return self.node.look(load.chunks[at].at, self.chunk_hashes(load, at), 0, self.settings.hold) == load.chunks[at].count
        except sluice.SluiceError:
            return False

    def load_op_over(self, load):
        load.ops -= 1
        if load.ops == 0:
            self.load_ended(load)

    def load_ended(self, load):
        self.load_count -= 1
        whole = all(good == chunk.count for good, chunk in zip(load.good, load.chunks))
        took = self.now() - load.began
        if load.offer is None:
            self.count(loads=1, load_seconds=took, load_failures=not whole and load.left == 0, blocks_not_waited_for=load.left)
        else:
            self.count(handovers_received=1, handover_receive_seconds=took, handover_receive_failures=not whole)
        held = [block for chunk in load.chunks for block in chunk.held]
        if self.tier_log:
            log.info("load of request %s: %d blocks wanted, %d from memory, %d from disk, %d from other nodes, %.1f ms", load.request_id,
                     sum(chunk.count for chunk in load.chunks), *load.tiers, took * 1000)
        if whole:
            if not load.sync:
                self.finished.add(load.request_id)
        elif load.told:
            load.tracker.failed = True  # the workers report the missing blocks
        else:
            load.tracker.failed = load.offer is None  # after a failed hand-over, stored blocks may still be loaded
            if load.sync:
                self.unfill(load.tracker)
            if load.tracker.next is not None:
                load.tracker.next = [min(at, load.start // group.block_tokens) for at, group in zip(load.tracker.next, self.classes)]
            one = load.chunks[0].tables
            if load.sync or (len(load.chunks) == 1 and len(one) == 1 and not load.unfenced and not self.classes[0].window_blocks and
                             load.offer is None):
                self.told.invalid.update(one[0][load.good[0]:])
            else:
                self.told.failed.add(load.request_id)
            if not load.sync:
                self.told.finished.add(load.request_id)
        self.blocks_release(held)

    def unfill(self, tracker):
        """Marks the results of this request in running steps as invalid and drops their chunks."""
        tracker.wrong = self.scheduled
        for step in self.steps:
            for filled in step.filled:
                if filled.tracker is tracker:
                    self.chunks_drop(filled)

    def chunks_drop(self, filled):
        for chunk in filled.chunks:
            op, chunk.op = chunk.op, None
            if op is not None:
                self.cancel(op)
            else:
                self.blocks_release(chunk.held)
        filled.chunks = []

    # ---- ends of ops ----

    def poll(self):
        for op, result in self.node.ended():
            what, at = self.ops.pop(op, (None, 0))
            if what is None:
                continue
            if isinstance(what, Store):
                self.store_ended(op, what, result)
            elif isinstance(what, Send):
                self.handovers.send_ended(op, what, result)
            else:
                self.load_op_ended(op, what, at, result)
        self.loads_try_again()
        self.fences_poll()

    def store_ended(self, op, store, result):
        self.store_count -= len(store.chunk.held)
        self.count(stores=1, store_seconds=self.now() - store.began, stored_blocks=result.stored_count, existed_blocks=result.existed_count,
                   store_failures=result.code != sluice.Code.OK)
        self.node_lost(result.code, result.why)
        store.chunk.stored = result.code == sluice.Code.OK
        if store.chunk.op is not None and not store.chunk.stored:  # before the output of its step: the blocks stay for a second store
            store.chunk.op = None
            self.pool.touch(store.chunk.held)
        if self.announced is not None and result.code == sluice.Code.OK:
            self.announced.stored(store.chunk.at, store.hashes, store.content, store.names)
        self.fenced_or_later(op, store.chunk.held, result)

    def load_op_ended(self, op, load, at, result):
        if self.ranks_unknown(load, at, result):
            load.again += 1
            self.loads_again.append((load, at, self.now() + AGAIN_SECONDS))
            self.node_lost(result.code, result.why)
            return
        count = load.chunks[at].count
        load.good[at] = 0 if result.code != sluice.Code.OK else count if load.offer is not None else min(result.block_count, count)
        load.left += result.not_awaited_count if load.offer is None else 0
        load.tiers = tuple(map(sum, zip(load.tiers, (result.from_memory, result.from_disk, result.from_remote))))
        self.count(loaded_blocks=load.good[at], loaded_bytes=result.bytes)
        if load.offer is not None:
            self.handovers.receive_ended(load, result)
        if load.offer is None or result.code not in QUIET:
            self.node_lost(result.code, result.why)
        if not result.fenced:  # it may still write: the request gets other blocks
            load.unfenced = True
            held = load.chunks[at].held
            self.pool.touch(held)
            self.fenced_or_later(op, held, result)
        self.load_op_over(load)

    def fenced_or_later(self, op, held, result):
        if result.fenced:
            self.blocks_release(held)
        else:
            self.unfenced.append((op, held, self.now() + FENCE_PAUSE_SECONDS, self.now() + FENCE_STEP_SECONDS))

    def fences_poll(self):
        """Asks about one op per call, since each query may take a round trip."""
        if self.unfenced and self.now() >= self.unfenced[0][2]:
            op, held, _, until = self.unfenced.pop(0)
            if self.node.fenced(op):
                self.blocks_release(held)
            else:
                self.unfenced.append((op, held, self.now() + FENCE_PAUSE_SECONDS, until))

    def take_finished(self):
        self.poll()
        finished, self.finished = self.finished, set()
        return finished

    # ---- events ----

    def announce(self):
        """Enables KV events."""
        def look(at, hashes):
            return bits_text(self.node.look_there(at, hashes, 0), len(hashes))

        self.announced = Announced(len(self.classes), self.settings.events_kept, look, self.now)

    def content(self, at, request, first, count):
        """Content for events; None unless the keys depend only on tokens (no adapters, images or salt) and attention is full."""
        group = self.classes[at]
        start, end = first * group.block_tokens, (first + count) * group.block_tokens
        if self.announced is None or group.window_blocks or self.handovers.extra_keys(request, 0, end) not in (b"", b"None"):
            return None
        return Content(self.before(at, request, first), list(request.all_token_ids[start:end]))

    def take_events(self):
        """Returns [(class, hashes, whether they are stored, Content or None)] since the last call."""
        if self.announced is None:
            return []
        if self.node.ready:
            self.announced.check()
        return self.announced.take()

    # ---- the rest ----

    @property
    def pool(self):
        """vLLM's block pool. By default stores may reference a quarter of its blocks."""
        return self._pool

    @pool.setter
    def pool(self, pool):
        self._pool = pool
        if pool is not None and self.settings.stores_max == 0:
            self.settings.stores_max = max(1, len(pool.blocks) // 4)

    @property
    def stuck(self):
        """Number of blocks of ops that have ended and are not fenced. Bounded, else a hanging node would take all of vLLM's blocks."""
        return sum(len(held) for _, held, _, _ in self.unfenced)

    @property
    def busy(self):
        """Whether blocks are referenced that only a further step would release."""
        return bool(self.ops or self.loads_again) or any(until > self.now() for _, _, _, until in self.unfenced)

    @property
    def frees_blocks(self):
        """Whether blocks may become free within a step or two without a preemption: stores end within milliseconds, or hang. Blocks of
        loads belong to their requests and do not count."""
        return any(isinstance(what, (Store, Send)) and self.now() - what.began < FREE_SECONDS for what, _ in self.ops.values())

    def drain(self, seconds):
        """Drops chunks that are not being stored yet and waits for running stores. Returns whether all ended within `seconds`."""
        for step in self.steps:
            for filled in step.filled:
                self.chunks_drop(filled)
            step.filled = []
        end = self.now() + seconds
        while (self.store_count + self.handovers.sending > 0 or self.stuck) and self.now() < end:
            self.node.wait(IDLE_WAIT_SECONDS)
            self.poll()
        return self.store_count + self.handovers.sending == 0 and not self.stuck

    def request_end(self, request_id):
        tracker = self.trackers.pop(request_id, None)
        if tracker is not None:
            self.handovers.leave(tracker)
            self.handovers.cancel(request_id)

    def count(self, **more):
        for name, value in more.items():
            self.stats[name] = self.stats.get(name, 0) + value

    def take_stats(self):
        stats, self.stats = self.stats, {}
        return stats


def states_at(group, told):
    """Converts [(group, block, tokens)] to [(number of blocks up to a boundary, a block for each group of the class)]."""
    found = {}
    for index, block, tokens in told:
        if block != NULL_BLOCK and tokens > 0 and tokens % group.block_tokens == 0:
            found.setdefault(tokens // group.block_tokens, {})[index] = block
    members = [member.index for member in group.groups]
    return [(last, [blocks[index] for index in members]) for last, blocks in sorted(found.items()) if all(index in blocks for index in members)]


def leading(table, value):
    """Number of entries at the front that equal value."""
    count = 0
    while count < len(table) and table[count] == value:
        count += 1
    return count


def bits_text(bits, count):
    """A bitmap as text of 0 and 1, block 0 first."""
    return format(int.from_bytes(bits, "little"), f"0{count}b")[::-1][:count]


def hit_tokens(classes):
    """The longest prefix, in tokens, that all classes have. classes: [(text of bits, window in blocks or 0, tokens of a block)]."""
    tokens = min(len(text) * size for text, _, size in classes)
    while True:
        before = tokens
        for text, window, size in classes:
            tokens = min(tokens, prefix_blocks(text, window, tokens // size) * size)
        if tokens == before:
            return tokens


def prefix_blocks(text, window, most):
    """The longest prefix of at most `most` blocks of which all blocks exist, or the last `window` ones."""
    whole = min(most, len(text) - len(text.lstrip("1")))
    if window == 0 or whole == most:
        return whole
    found = text.rfind("1" * window, 0, most)
    return max(whole, found + window if found >= 0 else 0)
