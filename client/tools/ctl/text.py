"""Makes the text that commands of sluicectl print for people from their --json answer at standard input.

    python3 text.py COMMAND < ANSWER
"""

import json
import sys
import textwrap

from plain import clean, interruptible, run, size_text

OUTCOMES = {"open": "not decided yet", "memory": "hit, memory", "disk": "hit, disk", "remote": "hit, another node", "missing": "miss",
         "behind": "not requested: follows a missing block", "left": "here, but faster to compute than to read",
         "failed": "not loaded: the op failed", "stored": "stored", "existed": "existed already", "refused": "not stored"}
NO_REASON = {"memory", "disk", "remote", "stored", "existed", "behind"}  # outcomes that need no explanation


# ---- tables ----

def table(head, rows, none):
    """Lines of a table. The first cell of head is the format of all lines; none: the line for an empty table."""
    form, *names = head
    if rows or none is None:
        yield form.format(*names).rstrip()
    for row in rows:
        yield form.format(*row).rstrip()
    if not rows and none:
        yield none


def contributions(shown):
    return table(("{:>3} {:>11} {:>11} {:>9}  {:<24} {}", "NR", "BYTES", "USED", "VALUES", "PROCESS", "NAME"),
                 [(row["number"], size_text(row["length_bytes"]), size_text(row["used_bytes"]), row["values"], row["process"] or "(lasting)", row["name"])
                  for row in shown["contributions"]], "no contributions: values have no space")


def pools(shown):
    def owner(row):
        return f"{row['owner']} ({row['owner_pid']})" if row["owner_pid"] else row["owner"] + " (gone)" if row["owner"] else "-"

    return table(("{:<20} {:>4} {:<16} {:<10} {:<20} {:>10} {:<24} {:>7}  {}", "DEPLOYMENT", "RANK", "POOL", "STATE", "EPOCH", "BYTES", "OWNER",
                  "WAITING", "MAPPED BY"),
                 [(row["deployment"], row["rank"], row["pool"], row["state"], row["epoch"], size_text(row["bytes"]), owner(row), row["waiter_count"],
                   row["mappers"] if row["mapper_count"] else "-") for row in shown["pools"]], "no pools")


def formats(shown):
    """Names files that cannot be read on standard error."""
    for row in shown["found"]:
        if not row["readable"]:
            print(row["why"], file=sys.stderr)
    for row in shown["formats"]:
        row["reads"] = " to ".join(map(str, dict.fromkeys((row["oldest_read"], row["newest_read"]))))
    return table(("{:<18} {:>8} {:>8}", "FORMAT", "WRITES", "READS"), [(row["name"], row["written"], row["reads"]) for row in shown["formats"]], "")


def keygen(shown):
    pair = f"{shown['directory']}/{shown['node']}"
    yield f"created {pair}.secret (keep it here) and {pair}.pub (copy it to the peers)"


# ---- config --template ----

UNITS = {"SIZE": (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), "RATIO": (("", 10**6),),
         "DURATION": (("h", 3600 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))}
KINDS = {"COUNT": "a whole number", "SIZE": "a size", "DURATION": "a duration", "RATIO": "a share"}


def config(rows):
    """A settings file in which every setting is explained and commented out."""
    def bound(kind, value):
        return next((f"{value // unit}{name}" for name, unit in UNITS.get(kind, ()) if value and value % unit == 0), str(value))

    for row in rows:
        kind, values = row["kind"], [bound(row["kind"], row[name]) for name in ("low", "high")]
        may_be = (f"one of {row['choices'].strip()}" if row["choices"] else f"a text of at most {row['high']} bytes" if kind == "TEXT" else
                  "true or false" if kind == "BOOL" else f"{KINDS[kind]}, {' to '.join(values)}")
        yield from ("", f"# {row['name']}: {may_be}")
        yield from textwrap.wrap(row["help"], 102, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False)
        yield f"#{row['name']} = {row['default'] or chr(34) * 2}"


# ---- explain ----

def ago(ns):
    return f" ({ns / 1e9:.{1 if ns < 100e9 else 0}f} s ago)" if ns else ""


def explain_op(op):
    request = (f", request {op['request']}" if op["request"] else "") + (f", for {op['requester']}" if op["requester"] else "")
    yield f"{op['kind']} of op {op['op']}, trace {op['trace']}{request}{ago(max(op['ago_ns'], 1))}"
    yield f"  {op['ended']} after {op['took_ns'] / 1e6:.1f} ms{': ' if op['reason'] else ''}{op['reason']}"
    yield from (f"  {name} {op[name]}" for name in ("model", "traceparent") if op[name])
    reasons = {reason["block"]: reason for reason in op["not_there"]}
    for run in op["runs"]:
        first, at = run["first_block"], f" after {run['at_ns'] / 1e6:.1f} ms" if run["at_ns"] else ""
        yield f"  blocks {first} to {first + run['count'] - 1}: {OUTCOMES[run['outcome']]}{at}"
        reason = reasons.get(first) if run["outcome"] not in NO_REASON else None  # the reason of the run's first block
        if reason:
            yield f"    block {first} now: {reason['word']}, {reason['text']}{ago(reason['ago_ns'])}"
            yield f"      {reason['key']}"
    if op["elsewhere"]:
        yield f"    {op['elsewhere']}"


def explain_tokens(shown):
    rows, first = shown["blocks"], 0
    yield f"model {shown['model']} ({shown['name']}): the first {shown['prefix']} of {len(rows)} blocks are here"
    while first < len(rows):
        def alike(row, with_=rows[first]):
            return (row["code"], row["ago_ns"] // 10**9, row["text"]) == (with_["code"], with_["ago_ns"] // 10**9, with_["text"])

        end = next((at for at in range(first, len(rows)) if not alike(rows[at])), len(rows))
        yield f"blocks {first} to {end - 1}: {rows[first]['word']}, {rows[first]['text']}{ago(rows[first]['ago_ns'])}"
        first = end
    if shown["elsewhere"]:
        yield f"block {shown['prefix']} is {shown['elsewhere']}"


def explain(shown):
    if "ops" in shown:
        for op in shown["ops"]:
            yield from explain_op(op)
    elif "blocks" in shown:
        yield from explain_tokens(shown)
    else:
        for row in shown["keys"]:
            yield row["word"], row["key"], row["text"] + ago(row["ago_ns"])  # cells, by tabs


# ---- benches ----

def bench(shown):
    if isinstance(shown, list):
        return bench_rows(shown)
    return {"engine": bench_engine, "disk": bench_disk}.get(shown["bench"], bench_one)(shown)


def bench_rows(rows):
    form = "{:<7} {:>9} x {:<4} {:>14} {:>11} {:>13} {:>13}   {}"
    yield form.format("", "size", "keys", "keys", "bytes", "p50 a call", "p99 a call", "ratio of rates (of single calls)")
    for row in rows:
        exists = row["bench"] == "exists"
        of = f"{row['ratio']:.2f} ({row['call_ratio']:.2f}) of " + ("a bare table" if exists else "memcpy")
        if "copy" in row:
            of += f", {row['copy']['ratio']:.2f} ({row['copy']['call_ratio']:.2f}) of the fastest copy"
        yield form.format(row["bench"], size_text(row["size_bytes"]), row["batch"], f"{row['ops_per_s']:.0f} /s",
                          "" if exists else f"{row['bytes_per_s'] / 1e6:.0f} MB/s", f"{row['p50_us']:.2f} us", f"{row['p99_us']:.2f} us", of)


def bench_one(row):
    yield from bench_rows([row])
    yield (f"{row['keys']} keys; {row['state']}; walking over {size_text(row['walk_bytes'])}, last-level cache {size_text(row['llc_bytes'])}, "
           f"{row['rounds']} rounds")


def bench_disk(shown):
    yield f"baseline: fio, io_uring, O_DIRECT, depth {shown['depth']}"
    for row in shown["sizes"]:
        yield f"{size_text(row['size_bytes'])}, {row['values']} values, {100 * row['loaded_from_disk_share']:.0f} % of the loads from disk"
        for name in ("store", "load"):
            side, base = row[name], row[name]["baseline"]
            yield (f"  {name:<6} {side['bytes_per_s'] / 1e6:8.0f} MB/s  {side['cpu_s_per_gb']:.3f} CPU s/GB (tierer {side['tierer_cpu_s_per_gb']:.3f})   "
                   f"baseline {base['bytes_per_s'] / 1e6:8.0f} MB/s  {base['cpu_s_per_gb']:.3f} CPU s/GB   ratio {side['ratio']:.2f}")


def bench_engine(shown):
    yield (f"ops of {shown['blocks']} blocks, {shown['ranks']} ranks, parts of {size_text(shown['part_bytes'])} in {shown['layers']} layers; walking over "
           f"{size_text(shown['walk_bytes'])}, last-level cache {size_text(shown['llc_bytes'])}, {shown['rounds']} rounds")
    for row in shown["rows"]:
        rate = (f", {row['bytes_per_s'] / 1e9:.2f} GB/s; CPU {row['cpu_s_per_gb']:.3f} s/GB" if row["bytes_per_s"] else
                f"; a block {row['p50_us'] / shown['blocks']:.3f} us")
        yield (f"  {row['op']:<6} p50 {row['p50_us']:.2f} us, p99 {row['p99_us']:.2f} us, least {row['least_us']:.2f} us; {row['ops_per_s']:.0f} ops/s{rate}")
        yield "        CPU us an op: " + ", ".join(f"{who} {us:.1f}" for who, us in row["cpu_us"].items() if us >= 0.05 or who == "client")
        for side in filter(None, (row.get("baseline"), row.get("copy"))):
            what = (f"{side['bytes_per_s'] / 1e9:8.2f} GB/s   ratio a rank {side['ratio']:.3f}, of single ops" if side["bytes_per_s"] else
                    f"{1e6 / (side['ops_per_s'] or 1) / shown['blocks']:8.3f} us a block   ratio {side['ratio']:.3f}, of single calls")
            yield f"        {side['name']:<32} {what} {side['op_ratio']:.3f}"
    if shown["loads_not_from_memory"]:
        yield f"  {shown['loads_not_from_memory']} loads had blocks from disk or from another node"


def main():
    commands = {"bench": bench, "config": config, "contributions": contributions, "explain": explain, "formats": formats, "keygen": keygen,
                "pools": pools, "session": lambda _: ["reported"]}
    for line in commands[sys.argv[1]](json.load(sys.stdin)):
        print("\t".join(map(clean, line if isinstance(line, tuple) else (line,))))


if __name__ == "__main__":
    interruptible()
    run(main)
