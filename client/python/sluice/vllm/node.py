"""The node as scheduler and workers see it: attached to when it is there, asked again when it was not, and no error of theirs."""

import logging
import select
import time

import sluice

from .layout import Class

OPEN_SECONDS = 0.5
REST = 10            # times as long as an attempt took nothing is tried again
NUDGE_SECONDS = 1.0
BATCH_MAX = 65536
log = logging.getLogger("vllm.sluice")


class Registered:
    """The registrations of this process, one a class of pools, of a team that its engine's id names. make(at, class) gives the
    pools. first_rank and rank_count: the ranks that are in this process."""

    def __init__(self, settings, engine_id, now=time.monotonic):
        self.settings, self.engine_id, self.now = settings, engine_id, now
        self.client = None
        self.named = None   # the node's name
        self.wanted = None  # arguments of register()
        self.engines = []
        self.retry_at = 0.0
        self.said = None
        self.asleep = False  # the memory is away

    def register(self, classes, make, models, block_count, world, first_rank=0, rank_count=0):
        """Raises what no time makes better. Gives whether all is registered; when it is not, there is no node yet. make is called whenever
        they are made."""
        self.wanted = (classes, make, models, block_count, world, first_rank, rank_count)
        try:
            return self.attempt(self.settings.timeout)
        except (sluice.InvalidError, sluice.ConfigError, sluice.UnsupportedError):
            raise
        except sluice.SluiceError as error:
            return self.failed(error)

    @property
    def ready(self):
        """Whether all is registered; tries it, at most once in the setting `retry` and in a tenth of the time. Raises nothing: a node
        that comes late and refuses is one that is not there."""
        if self.wanted is None or self.asleep:
            return False
        if len(self.engines) == len(self.wanted[0]):
            return True
        began = self.now()
        if began < self.retry_at:
            return False
        try:
            return self.attempt(OPEN_SECONDS)
        except sluice.SluiceError as error:
            self.failed(error)
        self.retry_at = max(self.retry_at, self.now() + REST * (self.now() - began))  # a step of the engine waited for it
        return False

    def attempt(self, seconds):
        self.register_all(seconds)
        log.info("registered %s at the node %s", ", ".join(self.names()), self.client.instance)
        return True

    def failed(self, error):
        self.retry_at = self.now() + self.settings.retry
        self.say(error)
        return False

    def say(self, error):
        if str(error) != self.said:  # once
            self.said = str(error)
            log.warning("no node, nothing is loaded or stored: %s", error)

    def names(self):
        return [group.name for group in self.wanted[0]]

    def register_all(self, seconds):
        classes, make, models, block_count, world, first_rank, rank_count = self.wanted
        if self.client is None:
            self.client = self.open(seconds)
        for at in range(len(self.engines), len(classes)):
            group: Class = classes[at]
            self.engines.append(self.client.engine(
                f"vllm-{self.engine_id[:8]}-{group.name}", pools=make(at, group), block_tokens=group.block_tokens, block_count=block_count,
                world=world, model=models[group.name], key_format="sluice", team=sluice.team_number(f"{self.engine_id} {group.name}"),
                first_rank=first_rank, rank_count=rank_count, timeout=OPEN_SECONDS * 4))

    def open(self, seconds):
        """A client, within so many seconds."""
        return self.settings.open(seconds)  # embedded ranks lend memory

    def nudge(self):
        """A node that was started anew hears of the registrations with the next op: one that finds nothing."""
        for engine in self.engines:
            try:
                engine.load(hashes=[bytes(32)], blocks=[[0]] * self.pools(engine), timeout=NUDGE_SECONDS).release()
            except sluice.SluiceError as error:
                self.say(error)

    def rest(self):
        """The memory goes away: when this is over nothing is loaded into it or stored from it, and no swapper maps it."""
        self.asleep = True
        self.engines_end()

    def wake(self):
        """It is there again. Gives whether all is registered."""
        self.asleep, self.retry_at = False, 0.0
        return self.ready

    def anew(self):
        """What is registered is not what lies there now."""
        if not self.asleep:
            self.rest()
            self.wake()

    def pools(self, engine):
        return len(self.wanted[0][self.engines.index(engine)].groups)

    def engines_end(self):
        for engine in self.engines:
            engine.end()
        self.engines = []

    def close(self):
        self.engines_end()
        if self.client is not None:
            self.client.close()
            self.client = None
        self.wanted = None


class Node(Registered):
    """What the scheduler asks of it. `at` is the number of a class; hashes a list of keys, tables a list of blocks a pool."""

    def open(self, seconds):
        return sluice.Client(self.settings.instance, config=self.settings.config, settings=self.settings.settings,
                             timeout=min(seconds, OPEN_SECONDS))

    def look(self, at, hashes, window, hold):
        return self.engines[at].look(hashes, window=window, hold=hold)

    def look_there(self, at, hashes, window):
        return self.engines[at].look_there(hashes, window=window)[1]

    def store(self, at, hashes, tables, timeout, layer_ends=None, *, hints=None, before=None):
        return self.engines[at].store(hashes=hashes, blocks=tables, timeout=timeout, layer_ends=layer_ends, hints=hints, before=before)

    def load(self, at, hashes, tables, timeout, layer_ends=None, *, hints=None, prefill=None, first=0):
        """first: number of the first block in its prompt, where prefill is given."""
        return self.engines[at].load(hashes=hashes, blocks=tables, timeout=timeout, layer_ends=layer_ends, hints=hints, prefill=prefill,
                                     first_block=first)

    def send(self, at, hashes, tables, timeout, *, number, first, partial, mode, hints=None, before=None):
        return self.engines[at].send(number, hashes=hashes, blocks=tables, timeout=timeout, first_block=first, partial=partial, mode=mode,
                                     hints=hints, before=before)

    def receive(self, at, hashes, tables, timeout, *, number, first, partial, mode, node, hints=None):
        return self.engines[at].receive(number, hashes=hashes, blocks=tables, timeout=timeout, first_block=first, partial=partial,
                                        mode=mode, node=node or None, hints=hints)

    def models(self, classes):
        """{class: model identity}: who has the same ones reads the same blocks."""
        return {group.name: engine.model_identity for group, engine in zip(classes, self.engines)}

    def name(self):
        """Among its peers; "": it has none."""
        if self.named is None:
            try:
                self.named = self.client.nodes(timeout=OPEN_SECONDS)[0].name or ""
            except sluice.SluiceError:
                return ""
        return self.named

    def ended(self):
        return self.client.ended_ops() if self.client is not None else ()

    def wait(self, seconds):
        """Until an op has ended, perhaps, or so long."""
        if self.client is None:
            time.sleep(seconds)
        else:
            select.select([self.client.event_fd()], [], [], seconds)

    def fenced(self, op):
        try:
            op.wait_fenced(timeout=0.01)
            return True
        except sluice.SluiceError:
            return False

    def forget(self):
        """Removes all blocks of these models from the node. Whether none is left: what is being written stays."""
        gone = True
        for engine in self.engines:
            keys = [info.key for info in self.client.list(engine.model_identity + "/")]
            for first in range(0, len(keys), BATCH_MAX):
                codes = self.client.remove_batch(keys[first:first + BATCH_MAX])
                gone = gone and all(code in (sluice.Code.OK, sluice.Code.NOT_FOUND) for code in codes)
        return gone
