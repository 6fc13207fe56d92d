"""What was announced as stored, and whether it still is. The node tells nobody what it evicts: so its index is asked, some blocks at a
time, as look-ups do. Pure."""

import collections

import sluice

# Of blocks that follow each other: key of the block before the first one, or None, and their tokens.
Content = collections.namedtuple("Content", "before tokens")
PAUSE_SECONDS = 0.05  # between two looks, while the engine steps
LOOK_COUNT = 256      # blocks of one of them: 0.13 ms


class Announced:
    """At most `kept` blocks of each class. What is pushed out is announced as removed: nobody looks at it any more. look(at, hashes)
    gives one text of 0 and 1. One thread; times in seconds."""

    def __init__(self, class_count, kept, look, now):
        self.kept, self.look, self.now = kept, look, now
        self.blocks = [collections.OrderedDict() for _ in range(class_count)]  # the one that was seen longest ago first
        self.told = []  # (class, names, whether they are there, Content or None)
        self.next_at, self.turn = 0.0, 0

    def stored(self, at, hashes, content=None, names=None):
        """names: what the hashes are called in events; None: as they are."""
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
        """Looks at some, when it is time."""
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
        except sluice.SluiceError:  # no node: nobody knows
            there = "1" * len(looked)
        blocks.update((key, name) for (key, name), bit in zip(looked.items(), there) if bit == "1")
        self.removed(at, [name for name, bit in zip(looked.values(), there) if bit == "0"])

    def take(self):
        """[(class, names, whether they are there, Content or None)] since the last call, in their order."""
        told, self.told = self.told, []
        return told
