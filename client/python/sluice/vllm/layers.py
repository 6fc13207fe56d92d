"""Loads and stores layer by layer, while the step computes: what vLLM's scheduler tells its workers, and what a worker does with it.
No vLLM in it.

The scheduler begins an op with the step and gives its number to the workers. Before a layer computes, each worker waits until it is
in. What it has computed it says to be ready, up to the last layer but one: the last is the scheduler's word, when the step's output
was processed. So nothing is committed of a step that failed or whose tokens were taken back."""

import collections
import dataclasses
import logging
import time

import sluice

from .layout import layers_apart, pieces_of

log = logging.getLogger("vllm.sluice")
BLOCKS_MIN = 2      # of a store by layers; smaller ones are one copy behind their step, and many steps of decoding have such
SAY_SECONDS = 10.0  # between two lines of failures


def check(settings, groups, zeroed=False, drafts=False, stages=1):
    """Raises ValueError where a model cannot go layer by layer. zeroed: vLLM clears blocks when a step begins; drafts: a draft
    model runs behind the step's end; stages: of a pipeline, which do not have the same layers."""
    for name in ("load", "save"):
        if getattr(settings, name) != "layers":
            continue
        reasons = [(len(groups) > 1 or groups[0].kind != "full", "serves models with one group of caches alone, of full attention"),
                   (zeroed, "does not serve caches whose blocks vLLM clears"), (drafts, "does not serve speculative decoding"),
                   (stages > 1, "does not serve pipeline parallelism")]
        for refused, why in reasons:
            if refused:
                raise ValueError(f"kv_connector_extra_config: {name}: 'layers' {why}")


def wanted(settings):
    return "layers" in (settings.load, settings.save)


def ends_of(group, split, caches, block_count):
    """[layers of the pool up to each layer of the model], as a store or load by layers says it: of a part, which all have alike."""
    heads = group.heads // (split.heads // group.shards)
    ends, end = [], 0
    for name in layers_apart(group, caches):
        end += sum(len(pieces_of(cache, block_count, 0, heads)) for cache in caches[name])
        ends.append(end)
    return ends


def numbers_of(group, caches):
    """{name of a layer: its number}: one that shows the cache of another has that one's."""
    first = {name: (caches[name][0].base, caches[name][0].offset) for name in group.layers}
    number = {first[name]: i for i, name in enumerate(layers_apart(group, caches))}
    return {name: number[first[name]] for name in group.layers}


@dataclasses.dataclass
class Coming:
    """A load of a step."""

    op: int
    blocks: list  # of vLLM: that are to come


# ---- the scheduler's half ----

class ByLayers:
    """What the scheduler does for ops by layers; a part of Scheduler."""

    layer_ends = ()  # known from the workers

    def load_told(self, load, op):
        """The workers wait for it, and say what did not come: until the step's output is there nobody knows."""
        load.tracker.unsure = self.steps[-1].number
        load.told = True
        self.told.loads.append(Coming(op.number, list(load.chunks[0].tables[0])))
        self.layered.append((self.steps[-1].number, load))

    def blocks_failed(self, invalid):
        """In the output of a step that is being processed."""
        for _, load in self.layered:
            if not invalid.isdisjoint(load.chunks[0].tables[0]):
                self.load_wrong(load)

    def load_wrong(self, load):
        """What was computed of the request, or will be in steps that are scheduled, counts for nothing."""
        tracker = load.tracker
        tracker.failed = True
        self.unfill(tracker)
        if tracker.next is not None:
            tracker.next = [min(at, load.start // group.block_tokens) for at, group in zip(tracker.next, self.classes)]

    def stores_begin(self):
        """The blocks of the step that begins, of requests whose prefix is sure."""
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
        """The output of the step was processed: so many of the blocks are right. False: they have to be stored as any others."""
        op, chunk.op = chunk.op, None
        if chunk.stored:  # it was there already
            return True
        if count == chunk.count and op in self.ops:
            try:
                op.layers_ready(len(self.layer_ends))
                return True
            except sluice.SluiceError as error:
                self.node_lost(error.code, f"a store by layers: {error}")
        else:
            self.cancel(op)
        self.pool.touch(chunk.held)  # the op lets go of its own
        return False

    def cancel(self, op):
        try:
            op.cancel()
        except sluice.SluiceError as error:
            self.node_lost(error.code, f"a store was not cancelled: {error}")

    def layers_processed(self, number):
        """The output of this step was processed."""
        self.layered = [(step, load) for step, load in self.layered if step > number]


# ---- a worker's half ----

class Computed:
    """A layer that was computed when it was said: where the call returns behind the work, as on a CPU."""

    @staticmethod
    def query():
        return True


class Worker:
    """A rank. registered: node.Registered with one class; numbers: of layers by name; count: of layers; mark: makes what tells
    whether the layer just submitted is computed (on CUDA an event that was recorded)."""

    def __init__(self, registered, rank, numbers, count, timeout, mark=Computed, now=time.monotonic):
        self.registered, self.rank, self.numbers, self.count, self.timeout = registered, rank, numbers, count, timeout
        self.mark, self.now = mark, now
        self.told = None
        self.coming = []   # loads of which layers are waited for, that have not failed
        self.there = 0     # layers that all of them have
        self.invalid = set()
        self.done = set()  # layers that were submitted
        self.front = 0     # of them, from the first on
        self.marks = collections.deque()  # (layers, mark)
        self.said = 0
        self.until = 0.0
        self.say_at = 0.0
        self.stats = {}

    def begin(self, told):
        """A step. Whichever call is its first."""
        if told is self.told:
            return
        self.told, self.there, self.invalid = told, 0, set()
        self.coming = [dataclasses.replace(load) for load in told.loads]
        self.done, self.front, self.said = set(), 0, 0
        self.marks.clear()
        self.until = self.now() + self.timeout

    def wait(self, told, name):
        """Returns when the layer of all loads is in, or they have failed."""
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
        """How many are in, of the blocks that come; 0: none does."""
        try:
            if not self.registered.engines:
                raise sluice.UnreachableError("this rank is not registered")
            got, blocks = self.registered.engines[0].layers_wait(load.op, self.rank, layers, timeout=max(0.001, self.until - self.now()))
        except sluice.SluiceError as error:
            self.say(f"layer {layers - 1} of a load did not come: {error}")
            return 0
        if blocks < len(load.blocks):
            self.say(f"{blocks} of {len(load.blocks)} blocks of a load came")
            self.invalid.update(load.blocks[blocks:])
            load.blocks = load.blocks[:blocks]
        return got if load.blocks else 0

    def saved(self, told, name):
        """The layer was submitted."""
        self.begin(told)
        number = self.numbers.get(name)
        if not told.saves or number is None:
            return
        self.done.add(number)
        front = self.front
        while self.front in self.done and self.front < self.count - 1:  # the last layer is the scheduler's word
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
        except sluice.SluiceError as error:  # costs nothing but time: the scheduler's word is of all layers
            self.say(f"layers of a store were not told: {error}")
        self.said = ready

    def end(self, told):
        """The step was submitted. Loads of which a layer was not waited for were not computed with."""
        self.begin(told)
        self.tell()
        if self.there < self.count:
            for load in self.coming:
                self.say("a step did not wait for its loads")
                self.invalid.update(load.blocks)
            self.coming = []

    def failed(self, told):
        """Blocks that did not come in time."""
        return self.invalid if told is self.told else set()

    def say(self, what):
        if self.now() >= self.say_at:
            log.warning("%s", what)
            self.say_at = self.now() + SAY_SECONDS

    def take_stats(self):
        stats, self.stats = self.stats, {}
        return stats
