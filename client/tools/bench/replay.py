"""`sluicectl replay`: replays a trace as an engine of N ranks would, and prints a report.

    python3 replay.py OPTIONS TRACE CONFIG JSON ALSO ADVICE ASKS_AS SETTING...        as replay.c passes them

OPTIONS: a JSON object; ADVICE: printed if the node cannot be reached; ASKS_AS: the user that root became; "": not given."""

import gc
import json
import math
import sys
import time
from array import array
from itertools import compress
from operator import or_
from types import SimpleNamespace

import replay_library as library
import replay_trace as trace
from plain import clean, interruptible, percent, run, size_text
from replay_library import Failure, Hints, Prefill
from replay_trace import BLOCK_TOKENS

FINE, NO, WRONG_USE, UNREACHABLE = range(4)
EXITS = {library.UNREACHABLE: UNREACHABLE, library.TIMEOUT: UNREACHABLE, library.FOREIGN: UNREACHABLE, library.VERSION: UNREACHABLE,
         library.INVALID: WRONG_USE, library.CONFIG: WRONG_USE}
RANKS_MAX, POOLS_MAX, LAYERS_MAX, DEVICE_MAX, SIDES_MAX, BLOCK_BYTES_MAX = 64, 8, 1024, 1 << 24, 8, 1 << 30
PREFILL_LIMIT, KEEP_NS_LIMIT = 1 << 40, 7 * 86400 * 10**9  # SL_COMPUTE_RATE_MAX, SL_KEEP_NS_LIMIT
ASIDES_MAX, SLOWEST_MAX, FAILED_MAX, MISMATCHES_SAID = 128, 10, 64, 10
SLOW_GRACE_NS = 100_000_000  # an op is slow if it exceeds its deadline by more than this
PROGRESS_NS, LOOK_S, SLEEP_S_MAX = 100_000_000, 0.0002, 1e9
COUNTS = ("requests", "requests_skipped", "block_references", "hits", "ends_reported", "pauses_reported", "continues_reported", "mismatches", "errors", "lost",
          "misses_of_acknowledged", "dropped_blocks", "bytes_stored", "bytes_loaded", "blocks_stored", "blocks_existed", "blocks_not_stored", "ops",
          "ops_slow", "unpublished", "not_awaited")


class Wrong(Exception):
    """An error in the options or arguments."""


def say(text):
    print(clean(f"sluicectl replay: {text}"), file=sys.stderr)


# ---- options ----

def share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise Wrong(f"'{text}' is not a share from 0 to 1")
    return value


def options_of(options, trace_name, config, json_name, also, advice, asks_as, *settings):
    """The options of the command line; numbers are unsigned, times in ns."""
    asked = {name.replace("-", "_"): value % (1 << 64) if type(value) is int else value for name, value in json.loads(options).items()}
    asked.update(trace=trace_name, config=config, json=json_name, also=also, advice=advice, asks_as=asks_as, settings=settings)
    return SimpleNamespace(**asked)


def options_check(asked):
    if not (1 <= asked.ranks <= RANKS_MAX and 1 <= asked.pools <= POOLS_MAX):
        raise Wrong(f"expected 1 to {RANKS_MAX} ranks, 1 to {POOLS_MAX} pools")
    if not (1 <= asked.layers <= LAYERS_MAX and asked.layers <= asked.block_bytes <= BLOCK_BYTES_MAX):
        raise Wrong(f"expected 1 to {LAYERS_MAX} layers, and --block-bytes from the number of layers to 1 GiB")
    if asked.limit == 0 or asked.op_timeout == 0 or asked.device_blocks > DEVICE_MAX:
        raise Wrong(f"--limit and --op-timeout must be above 0, --device-blocks at most {DEVICE_MAX}")
    if max(asked.prefill_rate, asked.prefill_doubles) > PREFILL_LIMIT or asked.prefill_rate == 0 and (asked.prefill_doubles or asked.prefill_unreported):
        raise Wrong("--prefill-rate and --prefill-doubles must be at most 2^40, and the other --prefill options need a rate")
    if asked.speed is not None:
        text = asked.speed
        try:
            asked.speed = float(text)
        except ValueError:
            asked.speed = 0
        if not 0 < asked.speed <= 1e9:
            raise Wrong(f"--speed '{text}' is not a number above 0")
    if asked.ends_reported is not None and asked.hints_right is not None:
        raise Wrong("--ends-reported and --hints-right exclude each other")
    for name, usual in (("ends_reported", None), ("hints_right", None), ("pauses_reported", 0), ("pauses_right", 1), ("pause_error", 0)):
        text = getattr(asked, name)
        setattr(asked, name, usual if text is None else share(text))
    if asked.pauses_reported > 0 and asked.speed is None:
        raise Wrong("--pauses-reported needs --speed: without the trace's times there are no pauses")


def file_open(path, mode):
    try:
        return open(path, mode)
    except PermissionError as error:
        raise Failure(library.PERMISSION, f"open '{path}': {error.strerror}") from None
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Wrong(f"open '{path}': {error.strerror}") from None


def requests_read(asked):
    try:
        with sys.stdin.buffer if asked.trace == "-" else file_open(asked.trace, "rb") as file:
            requests = trace.trace_of(file, asked.limit)
    except trace.TraceError as error:
        code = library.LIMIT if error.too_much else library.INVALID
        raise Failure(code, f"{asked.trace}:{error}") from None
    if len(requests) <= asked.first:
        raise Wrong(f"'{asked.trace}' has {len(requests)} requests, but --first is {asked.first}")
    asked.longest = longest = max(len(request.ids) for request in requests)
    # Twice the longest request by default: an op that is not fenced may still use the blocks of one request.
    asked.device_blocks = asked.device_blocks or 2 * longest
    if asked.device_blocks < longest:
        raise Wrong(f"the longest request has {longest} blocks, --device-blocks is {asked.device_blocks}")
    return requests


# ---- nodes ----

class Side:
    """A node with an engine of this process. Requests use the nodes in turn."""

    def __init__(self, asked, config, settings):
        self.known = set()  # chains that the node acknowledged
        self.engine = library.Engine(
            config, settings, ranks=asked.ranks, pools=asked.pools, layers=asked.layers, block_bytes=asked.block_bytes,
            block_count=asked.device_blocks, token_count=asked.longest * BLOCK_TOKENS, key_format=asked.key_format, timeout_ns=asked.op_timeout)
        self.pages = library.Pages(config, settings)

    def ranks_check(self, ranks):
        """Reports too few ranks of the node before the first op, since every op would fail."""
        swappers = self.pages.ranks()
        if 0 < swappers < ranks:
            raise Wrong(f"--ranks {ranks}, but node '{self.engine.instance}' was started with --ranks {swappers}")

    def dropped(self):
        """Number of blocks that left the node: by eviction without a disk copy, by removal, by their time to live, by a bad disk. Blocks
        that were evicted from memory to disk do not count."""
        [count] = self.pages.counters("registrar", "dropped_count")
        return count

    def published(self, timeout_ns):
        """Waits until the directory knows all blocks of the node. False: not in time, or there is no directory."""
        from_ns = now_ns = time.monotonic_ns()
        while now_ns < from_ns + timeout_ns:
            try:
                published_ns, up = self.pages.counters("transporter.0", "directory_published_ns", "directory_up")
            except Failure:  # the transporter has no page yet
                published_ns, up = 0, 1
            if published_ns > from_ns or not up:
                return published_ns > from_ns
            time.sleep(LOOK_S)
            now_ns = time.monotonic_ns()
        return False


# ---- the report ----

class Report:
    def __init__(self, asked):
        self.asked, self.counts = asked, SimpleNamespace(**dict.fromkeys(COUNTS, 0))
        self.tiers = {"memory": 0, "disk": 0, "remote": 0}
        self.times = {"load": array("Q"), "store": array("Q")}  # ns
        self.kinds, self.slowest, self.failed, self.windows = {}, [], [], []
        self.longest_ns = self.shown_ns = 0
        self.waited_s = self.compute_s = 0.0  # time for loads, and for computing the other blocks

    def failure(self, op, code, text, trace_id=0, duration_ns=0):
        self.counts.errors += 1
        name = library.error_name(code)
        if len(self.failed) < FAILED_MAX:
            self.failed.append({"trace": f"{trace_id:016x}", "op": op, "us": duration_ns / 1e3, "code": name})
        kind = self.kinds.setdefault((op, code), {"op": op, "code": name, "count": 0, "text": text})  # with the text of the first
        kind["count"] += 1

    def op(self, op, result, duration_ns):
        self.counts.ops += 1
        self.counts.ops_slow += duration_ns > self.asked.op_timeout + SLOW_GRACE_NS
        self.longest_ns = max(self.longest_ns, duration_ns)
        self.times[op].append(duration_ns)
        if len(self.slowest) < SLOWEST_MAX or duration_ns / 1e3 > self.slowest[-1]["us"]:
            self.slowest.append({"trace": f"{result.trace_id:016x}", "op": op, "us": duration_ns / 1e3, "code": library.error_name(result.code)})
            self.slowest.sort(key=lambda row: -row["us"])
            del self.slowest[SLOWEST_MAX:]
        # A load that finds nothing is not an error.
        if result.code != library.OK and (op == "store" or result.code != library.NOT_FOUND):
            self.failure(op, result.code, result.why.text.decode(errors="replace") or library.error_text(result.code), result.trace_id, duration_ns)

    def progress(self, done, total, started_ns, last):
        now_ns = time.monotonic_ns()
        if not self.asked.progress or not last and now_ns - self.shown_ns < PROGRESS_NS:
            return
        self.shown_ns, counts, seconds = now_ns, self.counts, (now_ns - started_ns) / 1e9
        rate = (counts.bytes_loaded + counts.bytes_stored) / seconds / 1e6 if seconds > 0 else 0
        cells = 30 * done // total
        print(f"\r[{'#' * cells}{'.' * (30 - cells)}] {done}/{total}  hits {percent(counts.hits, counts.block_references):.1f} %  {rate:.0f} MB/s  "
              f"errors {counts.errors}  {'took' if last else 'left'} {seconds if last else seconds * total / done - seconds:.0f} s   ",
              end="\n" if last else "", file=sys.stderr, flush=True)

    def window(self, started_ns, last):
        """Ends and prints a row of the report after each window of requests."""
        if not self.asked.window or self.counts.requests % self.asked.window and not last:
            return
        before = self.windows[-1]["sums"] if self.windows else dict.fromkeys(("requests", "block_references", "hits", "from_remote", "unpublished", "errors"), 0)
        sums = {name: self.tiers["remote"] if name == "from_remote" else getattr(self.counts, name) for name in before}
        row = {name: sums[name] - before[name] for name in sums}
        row.update(first=before["requests"], end_s=(time.monotonic_ns() - started_ns) / 1e9, sums=sums)
        self.windows.append(row)
        if self.asked.json != "-":
            print(f"requests {row['first']}..{sums['requests'] - 1}  {row['end_s']:.1f} s  hits {row['hits']} of {row['block_references']}, remote "
                  f"{row['from_remote']}, errors {row['errors']}, not published {row['unpublished']}", flush=True)

    def quantiles(self, op):
        times = sorted(self.times[op])
        at = {name: times[max(math.ceil(part * len(times)), 1) - 1] / 1e3 if times else 0.0 for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
        return {**at, "count": len(times)}

    def all(self, nodes, wall_ns):
        asked, found = self.asked, vars(self.counts)
        found.update(ranks=asked.ranks, pools=asked.pools, layers=asked.layers, block_bytes=asked.block_bytes, nodes=nodes, hits_by_tier=self.tiers)
        if asked.prefill_rate:
            found["first_tokens"] = {"all_s": self.waited_s + self.compute_s, "loads_s": self.waited_s, "computing_s": self.compute_s}
        if asked.window:
            found["windows"] = [{name: value for name, value in row.items() if name != "sums"} for row in self.windows]
        return {**found, "load_us": self.quantiles("load"), "store_us": self.quantiles("store"), "longest_op_us": self.longest_ns / 1e3,
                "op_timeout_us": asked.op_timeout / 1e3, "wall_s": wall_ns / 1e9, "key_format": asked.key_format,
                "errors_by_kind": list(self.kinds.values()), "slowest": self.slowest, "failed": self.failed}


def lines_of(shown):
    """The report for people."""
    tiers = ", ".join(f"{tier} {count}" for tier, count in shown["hits_by_tier"].items())
    yield f"{'requests':<18}{shown['requests']} in {shown['wall_s']:.2f} s"
    yield f"{'block references':<18}{shown['block_references']}"
    yield f"{'hits':<18}{shown['hits']} ({percent(shown['hits'], shown['block_references']):.1f} %): {tiers}"
    if shown["ends_reported"] or shown["continues_reported"]:
        yield f"{'session hints':<18}{shown['ends_reported']} that a session ends, {shown['continues_reported']} that it continues"
    if "first_tokens" in shown:
        times = shown["first_tokens"]
        yield (f"{'first tokens':<18}{times['all_s']:.2f} s in all: loads {times['loads_s']:.2f} s, then computing {times['computing_s']:.2f} s; "
               f"{shown['not_awaited']} blocks were skipped by loads")
    yield f"{'stored':<18}{shown['blocks_stored']} blocks, {shown['blocks_existed']} existed, {shown['blocks_not_stored']} not stored"
    yield f"{'bytes':<18}loaded {size_text(shown['bytes_loaded'])}, stored {size_text(shown['bytes_stored'])}"
    for op in ("load", "store"):
        yield f"{op:<18}p50 {shown[op + '_us']['p50']:.0f} us, p99 {shown[op + '_us']['p99']:.0f} us"
    yield f"{'longest op':<18}{shown['longest_op_us']:.0f} us, over its deadline: {shown['ops_slow']}"
    yield f"{'mismatches':<18}{shown['mismatches']}"
    yield f"{'lost':<18}{shown['lost']} ({shown['misses_of_acknowledged']} acknowledged blocks missed, {shown['dropped_blocks']} evicted)"
    yield f"{'errors':<18}{shown['errors']}"
    if shown["unpublished"]:
        yield f"{'not published':<18}{shown['unpublished']} requests were not published in time"
    yield from (f"  {kind['count']:>6} x {kind['op']}: {kind['text']}" for kind in shown["errors_by_kind"])


def report_write(asked, shown, file):
    if asked.json == "-":
        print(json.dumps(shown, separators=(",", ":")))
        return FINE
    failed = None
    try:
        if file:
            with file:
                file.write(json.dumps(shown, indent=1).encode())
    except OSError as error:
        failed = error
    for line in lines_of(shown):
        print(clean(line))
    if failed:
        say(f"write '{asked.json}': {failed.strerror}")
    return NO if failed else FINE


# ---- the engine's requests ----

class Replay:
    def __init__(self, asked, requests, sides):
        self.asked, self.requests, self.sides, self.report = asked, requests, sides, Report(asked)
        self.free, self.asides = array("I", range(asked.device_blocks)), []  # device blocks; ops whose blocks may still be in use
        hinted = asked.ends_reported is not None or asked.hints_right is not None
        self.ends = trace.ends_of(requests) if hinted else [False] * len(requests)
        self.pauses = trace.pauses_of(requests) if asked.pauses_reported > 0 else None
        self.side = None  # of the present request, as are the fields below
        self.blocks, self.chains, self.hints = array("I"), array("Q"), Hints()

    # Device blocks.

    def blocks_take(self):
        """Takes free blocks for the request. First waits for ops that were set aside, only shortly unless their blocks are needed."""
        needed = len(self.chains)
        for op in list(self.asides):
            if op.fenced(self.asked.op_timeout if len(self.free) < needed else 1_000_000):
                self.asides.remove(op)
                self.free += op.blocks
        if len(self.free) < needed:
            return False
        self.blocks = self.free[len(self.free) - needed:]
        del self.free[len(self.free) - needed:]
        return True

    def finish(self, op, fenced):
        """Handles the blocks of an ended op. True: they are free. Otherwise they are set aside with the op."""
        if op is None or not fenced and op.fenced(self.asked.op_timeout):
            return True
        if not fenced and len(self.asides) < ASIDES_MAX:
            self.asides.append(op)
        else:  # if it is not fenced, its blocks are not used again in this run
            op.release()
        return fenced

    def check(self, loaded):
        """Checks every byte of the loaded blocks in every rank and pool."""
        for block, rank, pool, layer in self.side.engine.wrong(self.blocks, self.chains, loaded):
            self.report.counts.mismatches += 1
            if self.report.counts.mismatches <= MISMATCHES_SAID:
                say(f"wrong bytes: request {self.report.counts.requests}, block {block}, rank {rank}, pool {pool}, layer {layer}")

    # Ops.

    def op(self, name, first, prefill):
        started_ns = time.monotonic_ns()
        op, result = self.side.engine.run(name == "store", self.blocks, first, self.hints, prefill)
        duration_ns = time.monotonic_ns() - started_ns
        self.report.op(name, result, duration_ns)
        return op, result, duration_ns

    def first_token(self, loaded, load_ns):
        """The engine's time to the first token: after the load it computes all other tokens."""
        asked, end = self.asked, self.side.engine.request.token_count
        if asked.prefill_rate == 0:
            return
        first = min(loaded * BLOCK_TOKENS, end)
        work = end - first + ((end * end - first * first) / (2 * asked.prefill_doubles) if asked.prefill_doubles else 0)
        time.sleep(min(work / asked.prefill_rate, SLEEP_S_MAX))  # the node works meanwhile, as beside an engine
        self.report.waited_s += load_ns / 1e9
        self.report.compute_s += work / asked.prefill_rate

    def load(self):
        """Loads the longest prefix and checks it. Gives the number of loaded blocks, and whether all blocks are free."""
        counts, known = self.report.counts, self.side.known
        self.side.engine.poison(self.blocks)  # so that stale bytes fail the check
        told = Prefill() if self.asked.prefill_unreported else Prefill(self.asked.prefill_rate, self.asked.prefill_doubles)
        op, result, load_ns = self.op("load", 0, told)
        fine = result.code == library.OK and result.block_count <= len(self.blocks)
        loaded = result.block_count if fine else 0
        self.first_token(loaded, load_ns)
        counts.not_awaited += result.not_awaited_count
        self.check(loaded)
        known.update(self.chains[:loaded])
        if fine:
            counts.hits += loaded
            counts.bytes_loaded += result.bytes
            found = {"memory": result.from_memory, "disk": result.from_disk, "remote": result.from_remote}
            for tier, count in found.items():
                self.report.tiers[tier] += count
            if sum(found.values()) != loaded:
                self.report.failure("load", library.PROTOCOL, "tier counts do not sum to the blocks loaded", result.trace_id)
        # With other codes, or blocks that the load skipped, nothing is known about the next block.
        missing = result.code in (library.OK, library.NOT_FOUND) and result.not_awaited_count == 0
        if missing and loaded < len(self.chains) and self.chains[loaded] in known:
            counts.misses_of_acknowledged += 1
        return loaded, self.finish(op, result.fenced)

    def store(self, loaded):
        """Stores the computed blocks; records acknowledged blocks, and those that turned out to be missing. True: the blocks are free."""
        counts, known, asked = self.report.counts, self.side.known, self.asked
        op, result, _ = self.op("store", loaded, Prefill())
        if op is None:
            return True
        chains = self.chains[loaded:]
        anew = [op.stored(i) for i in range(len(chains))] if result.stored_count < len(chains) else [True] * len(chains)
        there = [not new and op.existed(i) for i, new in enumerate(anew)]
        # The first block was counted when the load missed it.
        counts.misses_of_acknowledged += sum(map(known.__contains__, compress(chains[1:], anew[1:])))
        known.update(compress(chains, map(or_, anew, there)))
        stored, existed = sum(anew), sum(there)
        counts.blocks_stored += stored
        counts.blocks_existed += existed
        counts.blocks_not_stored += len(self.chains) - loaded - stored - existed
        counts.bytes_stored += stored * asked.block_bytes * asked.ranks * asked.pools
        return self.finish(op, result.fenced)

    # Requests.

    def hints_choose(self, number):
        asked, counts = self.asked, self.report.counts
        said = trace.session_hint(asked.ends_reported, asked.hints_right, asked.hint_seed, self.ends[number], number)
        pause_ms = 0
        if self.pauses is not None:
            pause_ms = trace.pause_hint(asked.pauses_reported, asked.pauses_right, asked.pause_error, asked.hint_seed, self.pauses, number)
        counts.pauses_reported += pause_ms != 0
        counts.ends_reported += said == trace.ENDS
        counts.continues_reported += said == trace.GOES_ON
        self.hints = Hints(session=said, pause_ns=int(min(pause_ms * 1e6 / asked.speed, KEEP_NS_LIMIT)) if pause_ms else 0)

    def key_count(self, request):
        """Number of blocks of the request for which the key format has keys."""
        units = request.input_length - self.asked.keys_of_pairs
        return min(units // BLOCK_TOKENS + (self.asked.key_of_cut_block and units % BLOCK_TOKENS != 0), len(request.ids))

    def play(self, number):
        """Plays one request. Errors are counted."""
        request, counts = self.requests[number], self.report.counts
        self.chains = self.side.engine.prepare(request.ids, request.input_length, self.key_count(request))
        self.hints_choose(number)
        counts.block_references += len(request.ids)
        if self.chains and not self.blocks_take():
            self.report.failure("load", library.LIMIT, f"no free device blocks: {len(self.asides)} ops are not fenced")
            counts.requests_skipped += 1
        elif self.chains:
            loaded, ours = self.load()
            if not ours:  # compute everything into other blocks
                loaded, ours = 0, self.blocks_take()
            if ours and loaded < len(self.chains):
                self.side.engine.compute(self.blocks, self.chains, loaded)
                ours = self.store(loaded)
            if ours:
                self.free += self.blocks
        counts.requests += 1

    def play_all(self):
        asked, counts, requests = self.asked, self.report.counts, self.requests
        dropped = sum(side.dropped() for side in self.sides)
        started_ns = time.monotonic_ns()
        try:
            for number in range(asked.first, len(requests)):
                last, since_ms = number + 1 == len(requests), requests[number].timestamp_ms - requests[0].timestamp_ms
                if asked.speed is not None and since_ms >= 0:  # the trace's own times
                    time.sleep(min(max(started_ns / 1e9 + since_ms / 1e3 / asked.speed - time.monotonic(), 0), SLEEP_S_MAX))
                self.side = self.sides[number % len(self.sides)]
                self.play(number)
                if asked.published and not self.side.published(asked.published):
                    counts.unpublished += 1
                self.report.window(started_ns, last)
                self.report.progress(number + 1, len(requests), started_ns, last)
        finally:
            for op in self.asides:  # an engine can end only after its ops
                op.release()
        wall_ns = time.monotonic_ns() - started_ns
        try:
            now = sum(side.dropped() for side in self.sides)
            counts.dropped_blocks = now - dropped if now >= dropped else now
            counts.lost = max(counts.misses_of_acknowledged - counts.dropped_blocks, 0)
        except Failure as failure:  # then losses are not known either
            self.report.failure("evictions", failure.code, f"not known: {failure}")
        return self.report.all(len(self.sides), wall_ns)


def replay(asked, sides):
    options_check(asked)
    requests = requests_read(asked)
    others = [config for config in asked.also.split(",") if config]
    if len(others) >= SIDES_MAX:
        raise Wrong(f"--also: more than {SIDES_MAX} nodes")
    sides.append(Side(asked, asked.config, asked.settings))
    for config in others:
        sides.append(Side(asked, config, []))
    for side in sides:
        side.ranks_check(asked.ranks)
    file = file_open(asked.json, "wb") if asked.json not in ("", "-") else None
    gc.disable()  # there are no reference cycles, and scanning a long trace for them costs time
    shown = Replay(asked, requests, sides).play_all()
    code = report_write(asked, shown, file)
    good = shown["mismatches"] == shown["errors"] == shown["lost"] == 0
    return code if code != FINE or good else NO


def main():
    sides, asked = [], options_of(*sys.argv[1:])
    try:
        return replay(asked, sides)
    except Wrong as wrong:
        say(f"{wrong}; see: sluicectl replay --help")
        return WRONG_USE
    except Failure as failure:
        say(f"{failure} ({library.error_text(failure.code)})")
        if failure.code == library.UNREACHABLE:
            sys.stderr.write(asked.advice)
        if failure.code == library.PERMISSION and asked.asks_as:
            print(f"ran as user '{asked.asks_as}', since this node belongs to that user, who must be able to open the file; standard input and output always work",
                  file=sys.stderr)
        return EXITS.get(failure.code, NO)
    finally:
        for side in sides:
            side.engine.close()


if __name__ == "__main__":
    interruptible()
    run(main)
