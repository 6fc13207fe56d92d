"""Tracks blocks that were announced as stored in KV events, to announce their removal. The node does not report evictions, so its index
is polled, some blocks at a time. Pure."""

import collections

import sluice

# For consecutive blocks: key of the block before the first one, or None, and their tokens.
Content = collections.namedtuple("Content", "before tokens")
PAUSE_SECONDS = 0.05  # between two polls, while the engine steps
LOOK_COUNT = 256      # blocks per poll: 0.13 ms


class Announced:
    """Tracks at most `kept` blocks of each class. A block beyond them is announced as removed, since it is no longer polled. look(at,
    hashes) returns a text of 0 and 1. One thread; times are in seconds."""

    def __init__(self, class_count, kept, look, now):
        self.kept, self.look, self.now = kept, look, now
        self.blocks = [collections.OrderedDict() for _ in range(class_count)]  # least recently polled first
        self.told = []  # (class, names, whether they are stored, Content or None)
        self.next_at, self.turn = 0.0, 0

    def stored(self, at, hashes, content=None, names=None):
        """Announces blocks as stored. names: their names in events; None: the hashes."""
        blocks, names = self.blocks[at], list(names or hashes)
        self.told.append((at, names, True, content))
        for key, name in zip(hashes, names):
            blocks[key] = name
            blocks.move_to_end(key)
        self.removed(at, [blocks.popitem(last=False)[1] for _ in range(len(blocks) - self.kept)])

    def removed(self, at, names):
        if names:
            self.told.append((at, names, False, None))

    def check(self):
        """Polls the next blocks if PAUSE_SECONDS have passed."""
        if self.now() < self.next_at:
            return
        self.next_at = self.now() + PAUSE_SECONDS
        at = self.turn = (self.turn + 1) % len(self.blocks)
        blocks = self.blocks[at]
        looked = dict(blocks.popitem(last=False) for _ in range(min(LOOK_COUNT, len(blocks))))
        if not looked:
            return
        try:
            there = self.look(at, list(looked))
        except sluice.SluiceError:  # the node does not answer: assume that nothing changed
            there = "1" * len(looked)
        blocks.update((key, name) for (key, name), bit in zip(looked.items(), there) if bit == "1")
        self.removed(at, [name for name, bit in zip(looked.values(), there) if bit == "0"])

    def take(self):
        """Returns [(class, names, whether they are stored, Content or None)] since the last call, in order."""
        told, self.told = self.told, []
        return told
