"""Loads and stores layer by layer while the step computes: the scheduler's half and the worker's half. Imports no vLLM.

The scheduler starts an op with the step and sends its number to the workers. Before a layer computes, each worker waits until the layer
is loaded. A worker reports computed layers as ready, except the last one, which the scheduler reports when it has processed the step's
output. So no block is committed from a step that failed or whose tokens were revoked."""

import collections
import dataclasses
import logging
import time

import sluice

from .layout import layers_apart, pieces_of

log = logging.getLogger("vllm.sluice")
BLOCKS_MIN = 2      # least blocks of a store by layers; smaller stores, as in most decode steps, are one copy after the step
SAY_SECONDS = 10.0  # between two log lines of failures


def check(settings, groups, zeroed=False, drafts=False, stages=1):
    """Raises ValueError if a model does not support `layers`. zeroed: vLLM clears blocks when a step begins. drafts: a draft model runs
    after the step. stages: pipeline stages, which have different layers."""
    for name in ("load", "save"):
        if getattr(settings, name) != "layers":
            continue
        reasons = [(len(groups) > 1 or groups[0].kind != "full", "supports only models with one group of caches, with full attention"),
                   (zeroed, "does not support caches whose blocks vLLM clears"), (drafts, "does not support speculative decoding"),
                   (stages > 1, "does not support pipeline parallelism")]
        for refused, why in reasons:
            if refused:
                raise ValueError(f"kv_connector_extra_config: {name}: 'layers' {why}")


def wanted(settings):
    return "layers" in (settings.load, settings.save)


def ends_of(group, split, caches, block_count):
    """Returns layer_ends for store and load: the number of the pool's layers up to each layer of the model, equal for all parts."""
    heads = group.heads // (split.heads // group.shards)
    ends, end = [], 0
    for name in layers_apart(group, caches):
        end += sum(len(pieces_of(cache, block_count, 0, heads)) for cache in caches[name])
        ends.append(end)
    return ends


def numbers_of(group, caches):
    """Returns {name of a layer: its number}. A layer that shares another one's cache has its number."""
    first = {name: (caches[name][0].base, caches[name][0].offset) for name in group.layers}
    number = {first[name]: i for i, name in enumerate(layers_apart(group, caches))}
    return {name: number[first[name]] for name in group.layers}


@dataclasses.dataclass
class StepLoad:
    """A load that belongs to a step."""

    op: int
    blocks: list  # vLLM's blocks that it loads


# ---- the scheduler's half ----

class ByLayers:
    """The scheduler's methods for ops by layers; a base class of Scheduler."""

    layer_ends = ()  # received from the workers

    def load_told(self, load, op):
        """Passes a load to the workers, which wait for it and report missing blocks. The result is known only with the step's output."""
        load.tracker.unsure = self.steps[-1].number
        load.told = True
        self.told.loads.append(StepLoad(op.number, list(load.chunks[0].tables[0])))
        self.layered.append((self.steps[-1].number, load))

    def blocks_failed(self, invalid):
        """Handles blocks that the output of the current step reports as failed."""
        for _, load in self.layered:
            if not invalid.isdisjoint(load.chunks[0].tables[0]):
                self.load_wrong(load)

    def load_wrong(self, load):
        """Marks what scheduled steps computed or will compute of the request as invalid."""
        tracker = load.tracker
        tracker.failed = True
        self.unfill(tracker)
        if tracker.next is not None:
            tracker.next = [min(at, load.start // group.block_tokens) for at, group in zip(tracker.next, self.classes)]

    def stores_begin(self):
        """Starts stores of the blocks that the new step fills, for requests whose prefix is certain."""
        if self.settings.save != "layers" or not self.layer_ends or self.now() < self.paused_until:
            return
        for filled in self.steps[-1].filled:
            tracker = filled.tracker
            if tracker.failed or tracker.unsure >= self.steps[0].number:
                continue
            for chunk in filled.chunks:
                if chunk.count >= BLOCKS_MIN and self.store_count + self.stuck < self.settings.stores_max:
                    self.store_begin(tracker, chunk)

    def store_begin(self, tracker, chunk):
        hashes = self.hashes(chunk.at, tracker.request, chunk.first, chunk.first + chunk.count)
        op = self.start(self.node.store, chunk.at, hashes, chunk.tables, self.settings.store_timeout, self.layer_ends,
                        request=tracker.request, **self.said(tracker, chunk))
        if op is not None:
            chunk.op = op
            self.store_keep(op, chunk, hashes, tracker.request)
            self.told.saves.append(op.number)

    def store_finish(self, chunk, count):
        """Ends a store by layers when the step's output was processed. count: valid blocks. False: store them in the ordinary way."""
        op, chunk.op = chunk.op, None
        if chunk.stored:  # all blocks existed, or the store has ended
            return True
        if count == chunk.count:
            try:
                op.layers_ready(len(self.layer_ends))
                return True
            except sluice.SluiceError as error:
                self.node_lost(error.code, f"a store by layers: {error}")
        else:
            self.cancel(op)
        self.pool.touch(chunk.held)  # the op releases its own references
        return False

    def cancel(self, op):
        try:
            op.cancel()
        except sluice.SluiceError as error:
            self.node_lost(error.code, f"a store was not cancelled: {error}")

    def layers_processed(self, number):
        """Forgets loads whose step's output was processed."""
        self.layered = [(step, load) for step, load in self.layered if step > number]


# ---- a worker's half ----

class Computed:
    """The mark of a layer that is computed when the call returns, as on a CPU."""

    @staticmethod
    def query():
        return True


class Worker:
    """A rank's half. registered: node.Registered with one class. numbers: {layer: number}. count: number of layers. mark: makes an object
    whose query() reports whether the layer just submitted is computed (on CUDA a recorded event)."""

    def __init__(self, registered, rank, numbers, count, timeout, mark=Computed, now=time.monotonic):
        self.registered, self.rank, self.numbers, self.count, self.timeout = registered, rank, numbers, count, timeout
        self.mark, self.now = mark, now
        self.told = None
        self.coming = []   # loads of this step that have not failed
        self.there = 0     # number of layers that all of them have loaded
        self.invalid = set()
        self.done = set()  # submitted layers
        self.front = 0     # number of submitted layers without a gap, from the first on
        self.marks = collections.deque()  # (layers, mark)
        self.said = 0
        self.until = 0.0
        self.say_at = 0.0
        self.stats = {}

    def begin(self, told):
        """Starts a step; every call begins with it."""
        if told is self.told:
            return
        self.told, self.there, self.invalid = told, 0, set()
        self.coming = [dataclasses.replace(load) for load in told.loads]
        self.done, self.front, self.said = set(), 0, 0
        self.marks.clear()
        self.until = self.now() + self.timeout

    def wait(self, told, name):
        """Returns when all loads have loaded the layer or failed."""
        self.begin(told)
        layers = self.numbers.get(name, self.count - 1) + 1
        if not self.coming or layers <= self.there:
            return
        began = self.now()
        there = self.count
        for load in list(self.coming):
            got = self.layers_of(load, layers)
            if got < layers:
                self.coming.remove(load)
                self.invalid.update(load.blocks)
            else:
                there = min(there, got)
        self.there = there
        self.stats["layer_waits"] = self.stats.get("layer_waits", 0) + 1
        self.stats["layer_wait_seconds"] = self.stats.get("layer_wait_seconds", 0.0) + self.now() - began

    def layers_of(self, load, layers):
        """Waits and returns the number of loaded layers; 0: the load failed."""
        try:
            if not self.registered.engines:
                raise sluice.UnreachableError("this rank is not registered")
            got, blocks = self.registered.engines[0].layers_wait(load.op, self.rank, layers, timeout=max(0.001, self.until - self.now()))
        except sluice.SluiceError as error:
            self.say(f"layer {layers - 1} of a load is missing: {error}")
            return 0
        if blocks < len(load.blocks):
            self.say(f"{blocks} of {len(load.blocks)} blocks of a load arrived")
            self.invalid.update(load.blocks[blocks:])
            load.blocks = load.blocks[:blocks]
        return got if load.blocks else 0

    def saved(self, told, name):
        """Notes that the work of a layer was submitted."""
        self.begin(told)
        number = self.numbers.get(name)
        if not told.saves or number is None:
            return
        self.done.add(number)
        front = self.front
        while self.front in self.done and self.front < self.count - 1:  # the scheduler reports the last layer
            self.front += 1
        if self.front > front:
            self.marks.append((self.front, self.mark()))
        self.tell()

    def tell(self):
        ready = self.said
        while self.marks and self.marks[0][1].query():
            ready = self.marks.popleft()[0]
        if ready == self.said or not self.registered.engines:
            return
        try:
            self.registered.engines[0].layers_ready(self.told.saves, self.rank, ready)
        except sluice.SluiceError as error:  # only costs time: the scheduler's report covers all layers
            self.say(f"layers of a store were not reported: {error}")
        self.said = ready

    def end(self, told):
        """Ends the step. Loads of which some layer was not awaited were not used by the computation, and count as failed."""
        self.begin(told)
        self.tell()
        if self.there < self.count:
            for load in self.coming:
                self.say("a step did not wait for its loads")
                self.invalid.update(load.blocks)
            self.coming = []

    def failed(self, told):
        """Returns blocks that were not loaded in time."""
        return self.invalid if told is self.told else set()

    def say(self, what):
        if self.now() >= self.say_at:
            log.warning("%s", what)
            self.say_at = self.now() + SAY_SECONDS

    def take_stats(self):
        stats, self.stats = self.stats, {}
        return stats
