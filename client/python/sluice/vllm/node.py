"""The node for the scheduler and the workers: connects when the node runs, retries later if not, and does not raise then."""

import logging
import select
import time

import sluice

from .layout import Class

OPEN_SECONDS = 0.5
REST = 10            # pause after an attempt, as a multiple of its duration
NUDGE_SECONDS = 1.0
BATCH_MAX = 65536
log = logging.getLogger("vllm.sluice")


class Registered:
    """The registrations of this process, one for each class of pools; the engine's id names the team. make(at, class) returns the pools.
    first_rank, rank_count: the ranks in this process."""

    def __init__(self, settings, engine_id, now=time.monotonic):
        self.settings, self.engine_id, self.now = settings, engine_id, now
        self.client = None
        self.named = None   # the node's name
        self.wanted = None  # arguments of register()
        self.engines = []
        self.retry_at = 0.0
        self.said = None
        self.asleep = False  # the memory is freed

    def register(self, classes, make, models, block_count, world, first_rank=0, rank_count=0):
        """Registers all classes. Returns False if the node does not answer yet; `ready` retries, and calls make again. Raises permanent
        errors."""
        self.wanted = (classes, make, models, block_count, world, first_rank, rank_count)
        try:
            return self.attempt(self.settings.timeout)
        except (sluice.InvalidError, sluice.ConfigError, sluice.UnsupportedError):
            raise
        except sluice.SluiceError as error:
            return self.failed(error)

    @property
    def ready(self):
        """Whether all classes are registered. Tries it, at most once per `retry` seconds and for a tenth of the time. Raises nothing."""
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
        self.retry_at = max(self.retry_at, self.now() + REST * (self.now() - began))  # an engine step waited for the attempt
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
        """Opens a client; the node has `seconds` to answer."""
        return self.settings.open(seconds)  # embedded ranks contribute memory

    def nudge(self):
        """Makes a restarted node learn of the registrations, by a load that finds nothing: they are sent with the next op."""
        for engine in self.engines:
            try:
                engine.load(hashes=[bytes(32)], blocks=[[0]] * self.pools(engine), timeout=NUDGE_SECONDS).release()
            except sluice.SluiceError as error:
                self.say(error)

    def rest(self):
        """Ends the registrations before the memory is freed. Afterwards no op uses it, and no swapper maps it."""
        self.asleep = True
        self.engines_end()

    def wake(self):
        """Registers again when memory exists again. Returns whether all classes are registered."""
        self.asleep, self.retry_at = False, 0.0
        return self.ready

    def anew(self):
        """Registers again because the memory at the registered addresses has changed."""
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
    """The scheduler's interface to the node. at: number of a class; hashes: list of keys; tables: a list of blocks for each pool."""

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
        """first: number of the first block in its prompt, used with prefill."""
        return self.engines[at].load(hashes=hashes, blocks=tables, timeout=timeout, layer_ends=layer_ends, hints=hints, prefill=prefill,
                                     first_block=first)

    def send(self, at, hashes, tables, timeout, *, number, first, partial, mode, hints=None, before=None):
        return self.engines[at].send(number, hashes=hashes, blocks=tables, timeout=timeout, first_block=first, partial=partial, mode=mode,
                                     hints=hints, before=before)

    def receive(self, at, hashes, tables, timeout, *, number, first, partial, mode, node, hints=None):
        return self.engines[at].receive(number, hashes=hashes, blocks=tables, timeout=timeout, first_block=first, partial=partial,
                                        mode=mode, node=node or None, hints=hints)

    def models(self, classes):
        """{class: model identity}. Engines with equal identities share blocks."""
        return {group.name: engine.model_identity for group, engine in zip(classes, self.engines)}

    def name(self):
        """The node's name among its peers; "": it has none."""
        if self.named is None:
            try:
                self.named = self.client.nodes(timeout=OPEN_SECONDS)[0].name or ""
            except sluice.SluiceError:
                return ""
        return self.named

    def ended(self):
        return self.client.ended_ops() if self.client is not None else ()

    def wait(self, seconds):
        """Waits until an op may have ended, `seconds` at most."""
        if self.client is None:
            time.sleep(seconds)
        else:
            ends = select.poll()  # select() refuses descriptors from 1024 on
            ends.register(self.client.event_fd(), select.POLLIN)
            ends.poll(seconds * 1000)

    def fenced(self, op):
        try:
            op.wait_fenced(timeout=0.01)
            return True
        except sluice.SluiceError:
            return False

    def forget(self):
        """Removes all blocks of these models from the node. Returns whether none is left; blocks that are being written stay."""
        gone = True
        for engine in self.engines:
            keys = [info.key for info in self.client.list(engine.model_identity + "/")]
            for first in range(0, len(keys), BATCH_MAX):
                codes = self.client.remove_batch(keys[first:first + BATCH_MAX])
                gone = gone and all(code in (sluice.Code.OK, sluice.Code.NOT_FOUND) for code in codes)
        return gone
