"""The registrar's processor time for each block that is committed, on a node that replays a trace, with the policies lru and
density in turns.

    python3 tests/bench/commit_cpu.py [--trace FILE] [--pairs 5] [--blocks 10000] [--ranks 2] [--build build/release] [--json]

Each run is a fresh node with memory for exactly --blocks blocks and no disk, as of `deploy/demo --blocks`. Counted is what the
registrar ran while the trace was replayed, by the blocks that were stored meanwhile: so each commit bears its share of
evictions, mailboxes, and ticks. Which policy begins changes from pair to pair. Without a trace
a small one is made.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
POLICIES = ("lru", "density")
PART_BYTES = 4096  # one part takes a page


def ran_ns(pid):
    """What all of its threads ran, those that ended, too: in ticks of 10 ms, which the kernel takes from what it measured."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as line:
        fields = line.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 10**9 // os.sysconf("SC_CLK_TCK")


def run(node_class, policy, asked, trace):
    """Nanoseconds for each block, blocks, and the part of references that hit."""
    memory = str(asked.blocks * asked.ranks * PART_BYTES)
    with node_class(ranks=asked.ranks, memory=memory, settings=["--evict-policy", policy]) as node, \
            tempfile.TemporaryDirectory() as directory:
        report = directory + "/report.json"
        pid = node.pid("registrar")
        before = ran_ns(pid)
        node.ctl("replay", trace, "--ranks", str(asked.ranks), "--block-bytes", str(PART_BYTES), "--json", report, timeout=600)
        ran = ran_ns(pid) - before
        with open(report, encoding="utf-8") as text:
            told = json.load(text)
    blocks = told["blocks_stored"]
    return {"ns": ran / blocks, "blocks": blocks, "hit_rate": told["hits"] / told["block_references"]}


def measured(node_class, asked, trace):
    """A row a pair: what each policy took."""
    rows = []
    for pair in range(asked.pairs):
        row = {}
        for policy in POLICIES if pair % 2 == 0 else POLICIES[::-1]:
            row[policy] = run(node_class, policy, asked, trace)
        rows.append(row)
        if not asked.json:
            print("  ".join(f"{policy} {row[policy]['ns']:6.0f} ns a block ({row[policy]['blocks']} blocks, "
                            f"{row[policy]['hit_rate']:.1%} hits)" for policy in POLICIES), flush=True)
    return rows


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--trace")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--blocks", type=int, default=10000)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    os.environ["SLUICE_BIN"] = os.path.join(os.path.realpath(asked.build), "bin")
    sys.path.insert(0, os.path.join(HERE, "..", "node"))
    from node_support import Node, workload  # it reads SLUICE_BIN when it is imported
    with tempfile.TemporaryDirectory() as directory:
        trace = asked.trace
        if trace is None:
            trace = directory + "/trace.jsonl"
            workload(trace, 200, 1)
        rows = measured(Node, asked, trace)
    more = statistics.median(row["density"]["ns"] - row["lru"]["ns"] for row in rows)
    if asked.json:
        print(json.dumps({"difference_ns": more, "pairs": rows}))
    else:
        print(f"density takes {more:+.0f} ns a block more (median of {len(rows)} pairs)")


if __name__ == "__main__":
    main()
