"""Estimates what more memory, a disk or a write budget would have brought to a node, from its recording.

    sluice-node start --record FILE ...
    python -m sluice.advise FILE

Replays the requests of a recording (sluice.recording) against a model of memory, with a disk below it. A request is a chain of blocks;
its hit is the longest prefix that is in memory or on disk. Blocks of the prefix that are on disk are read into memory, the rest is
stored, and all of them count as used. `density` runs the same code as a node's eviction. The model leaves out: transfer times,
overlapping requests, pins and leases of readers, and parts of a block that are stored separately. It compares its hit rate with the
node's and warns if they differ by more than a point.

A recording has every value and block that was stored, and every use of an existing one. It lacks lookups that found nothing and were not
followed by a store. Tokens are those of whole blocks.
"""

import argparse
import collections
import fractions
import json
import math
import multiprocessing
import os
import re
import sys

from . import _output
from . import recording as _recording
from ._order import Density

FEW = 10_000  # references: with fewer the result is uncertain
SMALL_GAIN = 0.5  # points
APART = 1.0  # points between the model and the node
REUSE_MIN = 0.15  # least reuse probability for admission `reuse`: disk_admission_min
SEGMENT_BYTES = 64 << 20  # disk_segment's default, for nodes without a disk
PAGE_BYTES = 4096
MS_A_DAY, HOUR_MS = 86_400_000, 3_600_000
SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:b|([kmgt])(i?b)?)?\s*", re.ASCII | re.IGNORECASE)


class Lru(collections.OrderedDict):
    """The blocks in memory, evicted least recently used first; of one request, the last block first."""

    def use(self, ids, to, *_):
        for at in range(len(ids) - 1, -1, -1):
            if to[at]:
                self[ids[at]] = None
                self.move_to_end(ids[at])

    def evict(self):
        return self.popitem(last=False)[0]

    def chance(self, *_):
        return 1.0


POLICIES = {"lru": Lru, "density": Density}


class Disk:
    """A disk as a log of segments, as in actors/registrar/disk/reclaim.c. The oldest segment is reclaimed first. Its blocks that were
    used since they were written, and not longer ago than half of the disk's size in writes, are written again, up to a quarter of the
    reclaimed bytes."""

    KEEP_SHARE, KEEP_AGE = 4, 2
    HEADS, SLACK = 8192, 65536  # bytes of a segment: its header and trailer; overhead of the file system
    # Below half of `level` (the budget of 1/64 of the recording's time, an hour at most) only the best blocks are written.
    LEVEL_FREE, SPAN_PARTS, BINS, SEEN_MAX = 0.5, 64, 64, 4096

    def __init__(self, row, record, result):
        self.row, self.sizes, self.result = row, record.disk_sizes, result
        paths, header = max(record.header.path_count, 1), record.header
        # A segment is at most a quarter of a disk, as on a node.
        most = row.disk_bytes // paths // 4 // PAGE_BYTES * PAGE_BYTES
        self.segment_bytes = min(header.segment_bytes or SEGMENT_BYTES, most) - self.HEADS
        # One segment of each disk is kept empty, for the next writes.
        self.segments = paths * max(row.disk_bytes // paths // (self.segment_bytes + self.HEADS + self.SLACK) - 1, 1)
        self.here, self.queue = {}, collections.deque()  # block: [segment, bytes written at its last use, or None]
        self.newest = self.left = self.written = self.keep_bytes = 0
        self.a_ms = row.budget / MS_A_DAY
        self.budget, self.budget_at_ms = 0.0, None
        self.level = min(record.span_us / 1000 / self.SPAN_PARTS, HOUR_MS) * self.a_ms
        self.seen, self.seen_count = [0.0] * self.BINS, 0

    def __contains__(self, block):
        return block in self.here

    def wanted(self, block):
        self.here[block][1] = self.written

    def _fill(self, now_ms):
        """Adds to the budget by the recording's clock; at most an hour's worth accumulates."""
        since_ms = now_ms - (now_ms if self.budget_at_ms is None else self.budget_at_ms)
        self.budget_at_ms = now_ms
        self.budget = min(self.budget + since_ms * self.a_ms, HOUR_MS * self.a_ms)

    def allows(self, block, chance, now_ms):
        """Whether the budget admits a block with this reuse probability: the less is left, the higher it must be. Of equal ones as many
        as fit are drawn at random, all blocks of a request or none."""
        if not self.level:
            return True
        self._fill(now_ms)
        at = int(math.sqrt(min(max(chance, 0.0), 1.0)) * (self.BINS - 1))
        self.seen[at] += self.sizes[block]
        self.seen_count += 1
        if self.seen_count >= self.SEEN_MAX:
            self.seen, self.seen_count = [one / 2 for one in self.seen], self.SEEN_MAX // 2
        drawn = hash((now_ms, 1)) % 1_000_003 / 1_000_003
        better = (sum(self.seen[at + 1:]) + drawn * self.seen[at]) / sum(self.seen)
        return better < self.budget / self.level / self.LEVEL_FREE

    def write(self, block, now_ms):
        """Writes the block; False: the budget is spent, or the block is larger than a segment."""
        size = self.sizes[block]
        if self.row.budget:
            self._fill(now_ms)
            if self.budget < size:
                return False
        if size > self.segment_bytes:
            return False
        if self.row.budget:
            self.budget -= size
        while size > self.left:  # rewritten blocks go to the new segment as well
            self.newest += 1
            self.left = self.segment_bytes
            while self.queue and self.newest - self.here[self.queue[0]][0] >= self.segments:
                self._reclaim()
        self._append(block)
        return True

    def _append(self, block):
        size = self.sizes[block]
        self.left -= min(size, self.left)
        self.here[block] = [self.newest, None]
        self.queue.append(block)
        self.written += size
        self.result.written += 1
        self.result.written_bytes += size

    def _reclaim(self):
        block = self.queue.popleft()
        _, wanted_at = self.here.pop(block)
        size = self.sizes[block]
        self.keep_bytes = min(self.keep_bytes + size, self.row.disk_bytes)
        if wanted_at is not None and self.written - wanted_at <= self.row.disk_bytes // self.KEEP_AGE and size <= self.keep_bytes // self.KEEP_SHARE:
            self.keep_bytes -= size * self.KEEP_SHARE
            self.budget -= size if self.row.budget else 0
            self.result.rewritten += 1
            self._append(block)


class Result:
    def __init__(self):
        self.references = self.hits = self.memory_hits = self.hit_bytes = self.tokens = self.tokens_saved = 0
        self.written = self.written_bytes = self.rewritten = 0

    @property
    def points(self):
        return share(self.hits, self.references)


class Row:
    """One configuration to replay. memory_bytes 0: unlimited. budget: bytes per day that may be written; 0: no limit."""

    def __init__(self, policy, memory_bytes, disk_bytes=0, admission="all", budget=0):
        self.policy, self.memory_bytes, self.disk_bytes, self.admission, self.budget = policy, memory_bytes, disk_bytes, admission, budget
        self.result = None

    @property
    def plan(self):
        return self.policy, self.memory_bytes, self.disk_bytes, self.admission

    @property
    def writes(self):
        return "none" if not self.disk_bytes else "budget" if self.budget else self.admission


def play(record, row):
    """Replays the recording for a Row and returns the Result."""
    result, memory = Result(), POLICIES[row.policy]()
    disk = Disk(row, record, result) if row.disk_bytes else ()
    room, used, stored_count, stored_bytes = row.memory_bytes or math.inf, 0, 0, 0
    sizes, tokens = record.sizes, record.tokens
    for request in record.requests:
        ids = request.ids
        hit = in_memory = 0
        for block in ids:
            if block in memory:
                in_memory += 1
            elif block not in disk:
                break
            hit += 1
        if not request.uncounted:
            result.references += len(ids)
            result.hits += hit
            result.memory_hits += in_memory
            result.hit_bytes += sum(sizes[block] for block in ids[:hit])
            result.tokens += sum(tokens[block] for block in ids)
            result.tokens_saved += sum(tokens[block] for block in ids[:hit])
        to, seen, stored = bytearray(len(ids)), set(), 0
        for at, block in enumerate(ids):
            if block not in seen:  # once a request
                seen.add(block)
                here = block in memory
                new = not here and block not in disk
                to[at] = here or new or at < hit  # after the first miss, blocks on disk stay there
                stored += new
                used += 0 if here or not to[at] else sizes[block]
                stored_bytes += sizes[block] if new else 0
        stored_count += stored
        memory.use(ids, bytes(to), request.before, stored, request.hint, request.at_us // 1_000_000)
        if disk != ():
            now_ms = request.at_us // 1000
            horizon = 2 * row.disk_bytes // max(stored_bytes // max(stored_count, 1), 1)
            for at, block in enumerate(ids):
                if not to[at]:
                    continue
                if block in disk:
                    disk.wanted(block)
                elif (not row.budget or row.policy == "lru" or disk.allows(block, memory.chance(block, horizon), now_ms)) and (
                        row.admission == "all" or memory.chance(block, horizon) >= REUSE_MIN):
                    disk.write(block, now_ms)
        while used > room:
            used -= sizes[memory.evict()]
    return result


# ---- texts ----


def share(part, whole):
    return 100.0 * part / whole if whole else 0.0


def size_text(size):
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024


def size_parse(text):
    """Reads a size as sl_parse_size does: KB is 1000 bytes, K and KiB are 1024."""
    found = SIZE.fullmatch(text)
    power = " kmgt".index((found[2] or " ").lower()) if found else 0
    size = int(fractions.Fraction(found[1]) * ((1000 if (found[3] or "").lower() == "b" else 1024) ** power)) if found else 1 << 64
    if size >> 64:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: a number with B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB or TiB")
    return size


class Advice:
    def __init__(self, record, budget, progress):
        self.record, self.progress, self.rows, self.texts = record, progress, {}, []
        head = record.header
        self.policy = head.policy if head.policy in POLICIES else "density"
        self.memory, self.disk = head.memory_bytes, head.disk_bytes
        self.disks = (self.disk or self.memory * 4, self.disk * 2 or self.memory * 16)
        plan = [Row(self.policy, self.memory * 2 ** at // 2) for at in range(4)]
        plan += [Row("lru" if self.policy == "density" else "density", self.memory), Row("lru", 0)]
        plan += [Row(self.policy, self.memory, size, budget=head.budget_bytes) for size in self.disks]
        plan += [Row("density", self.memory, size, admission, head.budget_bytes) for size in self.disks for admission in ("all", "reuse")]
        plan += [Row("lru" if self.policy == "density" else "density", self.memory, self.disk, budget=head.budget_bytes)]
        plan += [Row(self.policy, self.memory * 2, self.disk, budget=head.budget_bytes)]
        self.rows = {row.plan: row for row in plan}
        self._run(list(self.rows.values()))
        every = self.row("density", self.disks[0])
        self.limited = Row("density", self.memory, self.disks[0], budget=budget or max(self.a_day(every) // 2, 1))
        self._run([self.limited])
        self._report_node()
        self._report_memory()
        self._report_disk()
        self._report_policy()

    def _run(self, rows):
        """Replays rows in parallel, one process for each processor at most."""
        processes = min(len(rows), len(os.sched_getaffinity(0)))
        with multiprocessing.get_context("fork").Pool(processes, _worker, (self.record,)) as pool:
            for done, (row, result) in enumerate(zip(rows, pool.imap(_play, rows)), 1):
                row.result = result
                if self.progress:
                    print(f"\r{done} of {len(rows)} replayed ", end="\n" if done == len(rows) else "", file=sys.stderr, flush=True)

    def row(self, policy=None, disk=None, memory=None, admission="all"):
        """The row with these values; the rest is as the node was configured."""
        return self.rows[(policy or self.policy, self.memory if memory is None else memory, self.disk if disk is None else disk, admission)]

    def a_day(self, row):
        return int(row.result.written_bytes / max(self.record.span_us / 1000 / MS_A_DAY, 1e-9))

    @property
    def node_points(self):
        return share(self.record.load_count, self.record.references)

    def _gain(self, row):
        now, then = self.row().result, row.result
        tokens = f", {max(then.tokens_saved - now.tokens_saved, 0) / 1e6:.2f} million tokens not computed" if then.tokens else ""
        return f"{max(then.hits - now.hits, 0)} blocks ({size_text(max(then.hit_bytes - now.hit_bytes, 0))}) more from the cache{tokens}"

    def _report_node(self):
        record, model, say = self.record, self.row().result.points, self.texts.append
        disk = f" and a disk of {size_text(self.disk)}" if self.disk else ""
        say(f"This node hit {self.node_points:.1f} % of {record.references} references to blocks in {record.span_us / 6e7:.1f} min, with "
            f"{size_text(self.memory)} of memory{disk} (policy {record.header.policy}). The model gives {model:.1f} %.")
        if abs(model - self.node_points) > APART:
            say("The two differ by more than a point: pins, leases, lost events and overlapping requests are not in the model. Take the "
                "following as a rough estimate.")
        if record.lost_count:
            say(f"{record.lost_count} events are missing: the registrar or its disk was too slow for them.")
        if record.full:
            say("The recording reached its maximum size (record_max) and stopped.")
        if record.torn_bytes:
            say(f"The last {record.torn_bytes} bytes belong to an incomplete frame and are left out.")
        if record.damaged_count:
            say(f"The recording is damaged at {record.damaged_count} places ({record.damaged_bytes} bytes); their events are missing.")
        if record.references < FEW:
            say("That is too little: record some hours of your traffic before you decide.")

    def _report_memory(self):
        twice, say = self.row(memory=self.memory * 2), self.texts.append
        more, size = twice.result.points - self.row().result.points, size_text(self.memory * 2)
        say(f"Twice the memory ({size}) would bring almost nothing: {more:.1f} points." if more < SMALL_GAIN else
            f"Twice the memory ({size}) would bring {more:.1f} points: {self._gain(twice)}.")
        say(f"Unlimited memory would reach {self.row('lru', 0, 0).result.points:.1f} %: all other references are the first use of a block.")

    def _report_disk(self):
        size = self.disk * 2 or self.memory * 4
        disk, picky, say = self.row(disk=size), self.row("density", size, admission="reuse"), self.texts.append
        what = "Twice the disk" if self.disk else "A disk of four times the memory"
        say(f"{what} ({size_text(size)}) would bring {disk.result.points - self.row().result.points:.1f} points: {self._gain(disk)}. "
            f"This traffic would write {size_text(self.a_day(disk))} a day to it.")
        if disk.result.written:
            say(f"Writing only blocks that are likely to be reused (a probability of {100 * REUSE_MIN:.0f} %) would write "
                f"{share(picky.result.written, disk.result.written):.0f} % of that, for {picky.result.points - disk.result.points:+.1f} points.")
        every, limited = self.row("density", self.disks[0]), self.limited
        say(f"With a budget of {size_text(limited.budget)} a day (disk_write_budget) a disk of {size_text(limited.disk_bytes)} would take "
            f"{size_text(self.a_day(limited))} of writes a day, and the hit rate would be {limited.result.points:.1f} %: "
            f"{limited.result.points - every.result.points:+.1f} points against {'the budget of the node' if every.budget else 'no budget'}.")

    def _report_policy(self):
        other = "density" if self.policy == "lru" else "lru"
        self.texts.append(f"With evict_policy {other} it would be {self.row(other).result.points:.1f} %.")

    # ---- output ----

    def all_rows(self):
        return [*self.rows.values(), self.limited]

    def print(self):
        print("\n".join(self.texts))
        print("\nIn % of references (tokens: in % of tokens), and the difference to this node as it was:\n\n"
              f"  {'memory':>10} {'disk':>10}  {'policy':<8} {'writes':<6} {'hits':>7} {'':>7} {'memory':>8} {'tokens':>9} {'written':>9}")
        for row in self.all_rows():
            one = row.result
            print(f"  {size_text(row.memory_bytes) if row.memory_bytes else 'all':>10} {size_text(row.disk_bytes) if row.disk_bytes else '-':>10}  "
                  f"{row.policy:<8} {row.writes if row.disk_bytes else '':<6} {one.points:7.2f} {one.points - self.row().result.points:+7.2f} "
                  f"{share(one.memory_hits, one.references):8.2f} " + (f"{share(one.tokens_saved, one.tokens):9.2f}" if one.tokens else f"{'?':>9}")
                  + (f" {share(one.written, one.references):9.2f}" if row.disk_bytes else ""))

    def json(self):
        record, head = self.record, self.record.header
        rows = [{"policy": row.policy, "memory_bytes": row.memory_bytes, "disk_bytes": row.disk_bytes,
                 "admission": row.admission if row.disk_bytes else "none", "write_budget": row.budget, "hit_share": one.points / 100,
                 "memory_hit_share": share(one.memory_hits, one.references) / 100, "tokens_saved_share": share(one.tokens_saved, one.tokens) / 100,
                 "hit_bytes": one.hit_bytes, "tokens_saved": one.tokens_saved, "written": one.written, "written_bytes": one.written_bytes,
                 "rewritten": one.rewritten} for row, one in ((row, row.result) for row in self.all_rows())]
        node = {"memory_bytes": self.memory, "disk_bytes": self.disk, "segment_bytes": head.segment_bytes, "write_budget": head.budget_bytes,
                "policy": head.policy, "references": record.references, "hit_share": self.node_points / 100,
                "disk_hit_share": share(record.disk_count, record.references) / 100, "model_hit_share": self.row().result.points / 100}
        about = {"began_unix_ns": head.began_unix_ns, "span_us": record.span_us, "events": record.event_count, "requests": len(record.requests),
                 "lost": record.lost_count, "restarts": record.restart_count, "torn_bytes": record.torn_bytes,
                 "damaged_bytes": record.damaged_bytes, "full": record.full, "there_before": record.before_count, "removed": record.gone_count}
        return {"recording": about, "node": node, "rows": rows, "advice": self.texts}


_shared = None  # the recording, in a worker process


def _worker(record):
    global _shared
    _shared = record


def _play(row):
    return play(_shared, row)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sluice.advise", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="the file of the node's setting record; it may still grow")
    parser.add_argument("--write-budget", type=size_parse, default=0, metavar="SIZE",
                        help="bytes per day that may be written to a disk, for one of the rows (default: half of what would be written)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--progress", choices=("auto", "on", "off"), default="auto")
    options = parser.parse_args(arguments)
    try:
        record = _recording.read(options.file)
        if not record.references or not record.header.memory_bytes:
            raise _recording.Wrong("it contains no use of a block yet")
    except (OSError, _recording.Wrong) as error:
        print(f"sluice.advise: {options.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    advice = Advice(record, options.write_budget, options.progress == "on" or (options.progress == "auto" and sys.stderr.isatty()))
    if options.json:
        print(json.dumps(advice.json(), indent=1))
    else:
        advice.print()
    return 0


if __name__ == "__main__":
    _output.run("sluice.advise", main)
