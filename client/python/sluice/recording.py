"""Reads a node's recording (`sluice-node start --record FILE`): uses and stores of blocks, grouped into requests.

    python -m sluice.recording FILE            prints a summary
    python -m sluice.recording FILE --jsonl    prints its requests as a trace, with timestamp, input_length, output_length, hash_ids

The registrar writes the file (format: runtime/base/sl_recording.c). It contains no keys: a block is named by a keyed hash. Incomplete or
damaged frames are skipped and counted.

An event concerns one block. A load's uses are in order from the end of its chain to the beginning, as engines report them; an op's stores
are in any order. A run is a sequence of adjacent events whose blocks belong to one chain. A run of uses starts a request. A run of stores
extends the request that ends where the run starts, if that request started within the last minute.
"""

import argparse
import json
import struct
import sys
import zlib
from typing import NamedTuple

from . import _output

VERSION = 3
HEADER, FRAME = struct.Struct("<8sIIQQQQ16sQQQ32xI4x"), struct.Struct("<IIIIQQ")
MAGIC, FRAME_MAGIC = b"SLRECORD", b"SLRM"
LOAD, STORE, FETCH, GONE, LOST, AGAIN, FULL = range(1, 8)
CONTINUE_US = 60_000_000
FRAME_MAX, FOLLOW_TRIES_MAX = 1 << 20, 4096  # bytes of a frame; number of frame candidates tried after a damaged one
# Size of a value's record on a disk, without keys (actors/tierer/segment_format.h).
RECORD_BYTES = 64


class Wrong(Exception):
    """The file is not a valid recording; the text has the reason."""


class Header(NamedTuple):
    file_id: int
    began_unix_ns: int
    memory_bytes: int
    disk_bytes: int
    policy: str
    segment_bytes: int
    budget_bytes: int
    path_count: int


class Event(NamedTuple):
    kind: int
    at_us: int
    name: int
    parent: int  # the block before it in its chain; 0: none
    size: int  # bytes of memory; 0: not known
    tokens: int
    parts: int
    key_bytes: int
    hint: int  # of the session: 1: ends, 2: continues
    new_op: bool
    count: int  # events lost, of LOST


class Request:
    """A chain of blocks, by number."""

    __slots__ = ("at_us", "ids", "before", "hint", "uncounted", "last")

    def __init__(self, at_us, ids, before, hint, uncounted, last):
        self.at_us, self.ids, self.hint = at_us, ids, hint
        self.before = before  # the block before its first one, or None
        self.uncounted = uncounted  # blocks that existed before the recording began
        self.last = last


class Block:
    __slots__ = ("id", "parent", "depth", "size", "tokens", "heads", "known", "gone", "fetched", "open")

    def __init__(self, number):
        self.id, self.parent, self.depth = number, None, 0
        self.size = self.tokens = self.heads = 0
        self.known = self.gone = self.fetched = False
        self.open = []  # requests that end with this block and may be extended


def header_of(data):
    if len(data) < HEADER.size or data[:8] != MAGIC:
        raise Wrong("it is not a recording of a node")
    _, version, _, file_id, began, memory, disk, policy, segment, budget, paths, check = HEADER.unpack_from(data)
    if version != VERSION:
        raise Wrong(f"it is a recording of version {version}, version {VERSION} is read: record again with this release")
    if check != zlib.crc32(data[:HEADER.size - 8] + bytes(8)):
        raise Wrong("the head of the recording is damaged")
    return Header(file_id, began, memory, disk, policy.rstrip(b"\0").decode("utf-8", "replace"), segment, budget, paths)


def events_of(data, at, end, begun_us, count):
    """Decodes the events of a frame. Raises IndexError, struct.error or ValueError if the bytes are invalid."""
    last_us, last_name, last_parent, size, tokens, parts, key_bytes = begun_us, 0, 0, 0, 0, 0, 0
    found = []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError

    for _ in range(count):
        head, extra, lost = data[at], 0, 0
        at += 1
        if head & 0x80:
            extra = data[at]
            at += 1
        last_us += number()
        if head & 7 == LOST:
            lost = number()
        name = last_parent
        if not head & 0x20:
            name, = struct.unpack_from("<Q", data, at)
            at += 8
        parent = 0
        if head & 0x18 == 0x08:
            parent = last_name
        elif head & 0x18 == 0x10:
            parent, = struct.unpack_from("<Q", data, at)
            at += 8
        if not head & 0x40:
            size, tokens = number(), number()
        if extra & 8:
            parts, key_bytes = number(), number()
        if at > end or head & 7 == 0 or head & 0x18 == 0x18 or extra & ~8 > 6:
            raise ValueError
        known = size != 0
        found.append(Event(head & 7, last_us, name, parent, size, tokens, parts if known else 0, key_bytes if known else 0, extra & 3,
                           bool(extra & 4), lost))
        last_name, last_parent = name, parent
    if at != end:
        raise ValueError
    return found


class Recording:
    """The contents of a file: requests, and totals."""

    def __init__(self, data):
        self.header = header_of(data)
        self.requests, self.sizes, self.disk_sizes, self.tokens = [], [], [], []  # the last three by block
        self.event_count = self.load_count = self.disk_count = self.store_count = self.before_count = 0
        self.gone_count = self.lost_count = self.restart_count = self.damaged_count = self.damaged_bytes = self.torn_bytes = self.span_us = 0
        self.full = False
        self._blocks, self._ids = {}, 0
        self._run, self._kind, self._at_us, self._hint, self._fetched = [], 0, 0, 0, 0
        for event in self._frames(data):
            self._take(event)
        self._run_end()
        self._sizes()

    @property
    def references(self):
        return self.load_count + self.store_count

    def _frames(self, data):
        at = HEADER.size
        while at < len(data):
            events = self._frame(data, at)
            if events is None:
                follows = at
                for _ in range(FOLLOW_TRIES_MAX):
                    follows = data.find(FRAME_MAGIC, follows + 1)
                    if follows < 0 or self._frame(data, follows) is not None:
                        break
                else:
                    follows = -1
                if follows < 0:
                    self.torn_bytes = len(data) - at
                    return
                self.damaged_count += 1
                self.damaged_bytes += follows - at
                at = follows
                continue
            self.event_count += len(events)
            at += FRAME.size + FRAME.unpack_from(data, at)[1]
            yield from events

    def _frame(self, data, at):
        """The events of the frame at `at`; None: no complete frame of this file begins there."""
        if len(data) - at < FRAME.size or data[at:at + 4] != FRAME_MAGIC:
            return None
        _, length, count, check, begun, file_id = FRAME.unpack_from(data, at)
        end = at + FRAME.size + length
        if length > FRAME_MAX or end > len(data) or file_id != self.header.file_id:
            return None
        if check != zlib.crc32(data[at + 16:end], zlib.crc32(data[at:at + 12] + bytes(4))):
            return None
        try:
            return events_of(data, at + FRAME.size, end, begun, count)
        except (IndexError, ValueError, struct.error):
            return None

    # ---- events to blocks ----

    def _id(self):
        self._ids += 1
        return self._ids - 1

    def _block(self, name):
        if name == 0:
            return None
        block = self._blocks.get(name)
        if block is None:
            block = self._blocks[name] = Block(self._id())
        return block

    def _take(self, event):
        self.span_us = max(self.span_us, event.at_us)
        if event.kind == LOST:
            self.lost_count += event.count
        elif event.kind == AGAIN:
            self.restart_count += 1
        elif event.kind == FULL:
            self.full = True
        elif event.kind == GONE:
            self._run_end()
            block = self._block(event.name)
            if block is not None:
                self.gone_count += block.known and not block.gone
                block.gone = True
        else:
            block = self._block(event.name)
            if block is not None:
                self._learn(block, event)
                self._note(block, event)

    def _learn(self, block, event):
        parent = self._block(event.parent)
        if block.parent is None and parent is not block:
            block.parent = parent
        if event.size:
            block.size = event.size
            # A tierer writes a value's record in front of it, and once more at the end of the segment.
            block.heads = max(event.parts, 1) * 2 * (RECORD_BYTES + event.key_bytes + 7 & ~7)
        block.tokens = event.tokens or block.tokens

    def _note(self, block, event):
        if event.kind == FETCH:
            block.fetched = True
            return
        if not self._continues(block, event):
            self._run_end()
            self._kind, self._at_us = event.kind, event.at_us
        if event.kind == STORE and block.gone:  # a block that was removed gets a new number
            block.id, block.gone = self._id(), False
        self._run.append(block)
        self._hint = event.hint or self._hint
        self._fetched += event.kind == LOAD and block.fetched
        block.fetched = False

    def _continues(self, block, event):
        if not self._run or self._kind != event.kind:
            return False
        last = self._run[-1]
        if block is last or event.at_us > self._at_us + CONTINUE_US:
            return False
        return last.parent is block or (event.kind == STORE and (block.parent is last or not event.new_op))

    # ---- runs to requests ----

    def _depth(self, block):
        """Position of the block in its chain, as far as its parents are known; only the order of depths matters."""
        chain = []
        while block is not None and block.depth == 0:
            block.depth = -1  # ends at a cycle
            chain.append(block)
            block = block.parent
        depth = max(block.depth, 0) if block is not None else 0
        for block in reversed(chain):
            depth += 1
            block.depth = depth
        return depth

    def _run_end(self):
        run, self._run = self._run, []
        if run:
            for block in run:
                self._depth(block)
            run.sort(key=lambda block: block.depth)
            (self._loaded if self._kind == LOAD else self._stored)(run)
        self._fetched = self._hint = 0

    def _request(self, run, uncounted=False):
        before = run[0].parent
        request = Request(self._at_us, [block.id for block in run], None if before is None else before.id, self._hint, uncounted, run[-1])
        self.requests.append(request)
        return request

    def _loaded(self, run):
        """Adds the request of a run of uses. Blocks that existed before the recording began precede it as an uncounted request."""
        unknown = 0
        for at, block in enumerate(run, 1):
            if not block.known:
                unknown, block.known = at, True
                self.before_count += 1
        if unknown:
            self._request(run[:unknown], True)
        run[-1].open.append(self._request(run))
        self.load_count += len(run)
        self.disk_count += self._fetched

    def _stored(self, run):
        before = run[0].parent
        request = before.open.pop() if before is not None and before.open and self._at_us <= before.open[-1].at_us + CONTINUE_US else None
        for block in run:
            block.known = True
        if request is None:
            request = self._request(run)
        else:
            request.ids += [block.id for block in run]
            request.hint, request.last = self._hint or request.hint, run[-1]
        run[-1].open.append(request)
        self.store_count += len(run)

    def _sizes(self):
        known = [block.size for block in self._blocks.values() if block.size]
        mean = max(sum(known) // len(known), 1) if known else 1
        # Numbers of removed blocks keep the mean size: the block itself has a new number.
        self.sizes, self.disk_sizes, self.tokens = [mean] * self._ids, [mean] * self._ids, [0] * self._ids
        for block in self._blocks.values():
            self.sizes[block.id] = block.size or mean
            self.disk_sizes[block.id] = self.sizes[block.id] + block.heads
            self.tokens[block.id] = block.tokens
        del self._blocks


def read(path):
    """The Recording of a file. Raises OSError, Wrong."""
    with open(path, "rb") as file:
        return Recording(file.read())


def block_tokens(recording):
    """The most frequent number of tokens in a block; 0: not known."""
    counts = {}
    for tokens in recording.tokens:
        if tokens:
            counts[tokens] = counts.get(tokens, 0) + 1
    return max(counts, key=counts.get, default=0)


def trace_lines(recording, tokens):
    """JSON lines of the counted requests, with blocks of `tokens` tokens."""
    for request in recording.requests:
        if not request.uncounted:
            yield json.dumps({"timestamp": request.at_us // 1000, "input_length": len(request.ids) * tokens, "output_length": 0,
                              "hash_ids": request.ids})


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sluice.recording", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="the file of the node's setting record; it may still grow")
    parser.add_argument("--jsonl", action="store_true", help="print its requests as a trace")
    parser.add_argument("--block-tokens", type=int, metavar="N", help="tokens of a block in the trace (default: as recorded, else 512)")
    options = parser.parse_args(arguments)
    try:
        recording = read(options.file)
    except (OSError, Wrong) as error:
        print(f"sluice.recording: {options.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    if options.jsonl:
        for line in trace_lines(recording, options.block_tokens or block_tokens(recording) or 512):
            print(line)
    else:
        shown = {name: value for name, value in vars(recording).items() if isinstance(value, int) and not name.startswith("_")}
        print(json.dumps({**recording.header._asdict(), "requests": sum(not one.uncounted for one in recording.requests), **shown}, indent=1))
    return 0


if __name__ == "__main__":
    _output.run("sluice.recording", main)
