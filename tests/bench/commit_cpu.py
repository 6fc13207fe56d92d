"""Measures the registrar's CPU time for each committed block, on a node that replays a trace, in pairs: with the policies lru and density;
or with lru in another build (--before) and density in this one.

    python3 tests/bench/commit_cpu.py [--trace FILE] [--pairs 5] [--blocks 10000] [--ranks 2] [--build build/release]
                                     [--before BUILD] [--json]

Each run is a fresh node with memory for exactly --blocks blocks and no disk, like `deploy/demo --blocks`. It counts the registrar's CPU
time during the replay, divided by the blocks stored meanwhile: so each commit includes its share of evictions, mailboxes, and ticks. Before
that, the first third of the trace is replayed: it fills the memory and density's ghosts (65,536 and four for each block). The kernel clears
their pages at the first touch, in some runs for the registrar and in others for an earlier process; so use a long trace. The side that
begins changes from pair to pair. Without a trace a small one is made. BUILD is CMake's build folder: node and client of a side are those of
its own tree.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
PART_BYTES = 4096  # one part takes a page


def cpu_ns(pid):
    """CPU time of all of its threads, also ended ones, by the process's clock (clock_getcpuclockid): /proc counts ticks of 10 ms."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def side_of(name, build, policy):
    """Settings of one side of a pair: a tree older than the setting has only the policy lru."""
    build = os.path.realpath(build)
    with open(build + "/CMakeCache.txt", encoding="utf-8") as lines:
        source = next(line.split("=", 1)[1].strip() for line in lines if line.startswith("CMAKE_HOME_DIRECTORY"))
    programs = os.path.join(build, "bin")
    told = subprocess.run([programs + "/sluicectl", "config", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    settings = ["--evict-policy", policy] if "evict-policy" in told else []
    if not settings and policy != "lru":
        raise SystemExit(f"{build} has only the policy lru")
    return {"name": name, "programs": programs, "script": os.path.join(source, "deploy", "sluice-node"), "settings": settings}


def parts_of(trace, directory):
    """Files with the first third of a trace, and with the rest."""
    with open(trace, encoding="utf-8") as text:
        lines = text.readlines()
    paths = (directory + "/filling.jsonl", directory + "/rest.jsonl")
    for path, part in zip(paths, (lines[:len(lines) // 3], lines[len(lines) // 3:])):
        with open(path, "w", encoding="utf-8") as text:
            text.writelines(part)
    return paths


def run(node_class, side, asked, trace):
    """Nanoseconds for each block, number of blocks, and share of references that hit."""
    memory = str(asked.blocks * asked.ranks * PART_BYTES)
    node = node_class(ranks=asked.ranks, memory=memory, settings=side["settings"])
    node.script, node.ctl_program = side["script"], side["programs"] + "/sluicectl"
    node.environment["SLUICE_BIN"] = side["programs"]
    with node, tempfile.TemporaryDirectory() as directory:
        report = directory + "/report.json"
        replayed = ["--ranks", str(asked.ranks), "--block-bytes", str(PART_BYTES), "--json", report]
        pid = node.pid("registrar")
        filling, rest = parts_of(trace, directory)
        node.ctl("replay", filling, *replayed, timeout=600)
        before = cpu_ns(pid)
        node.ctl("replay", rest, *replayed, timeout=600)
        ran = cpu_ns(pid) - before
        with open(report, encoding="utf-8") as text:
            told = json.load(text)
    blocks = told["blocks_stored"]
    return {"ns": ran / blocks, "blocks": blocks, "hit_rate": told["hits"] / told["block_references"]}


def measured(node_class, sides, asked, trace):
    """A row a pair, with the time of each side."""
    rows = []
    for pair in range(asked.pairs):
        row = {}
        for side in sides if pair % 2 == 0 else sides[::-1]:
            row[side["name"]] = run(node_class, side, asked, trace)
        rows.append(row)
        if not asked.json:
            print("  ".join(f"{name} {row[name]['ns']:6.0f} ns a block ({row[name]['blocks']} blocks, "
                            f"{row[name]['hit_rate']:.1%} hits)" for name in (side["name"] for side in sides)), flush=True)
    return rows


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--trace")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--blocks", type=int, default=10000)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    options.add_argument("--before", metavar="BUILD", help="a build of another tree, measured with lru")
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
        first = "before" if asked.before else "lru"
        sides = [side_of(first, asked.before or asked.build, "lru"), side_of("density", asked.build, "density")]
        rows = measured(Node, sides, asked, trace)
    more = statistics.median(row["density"]["ns"] - row[first]["ns"] for row in rows)
    ratio = statistics.median(row["density"]["ns"] / row[first]["ns"] for row in rows)
    if asked.json:
        print(json.dumps({"difference_ns": more, "ratio": ratio, "pairs": rows}))
    else:
        print(f"density takes {more:+.0f} ns a block more than {first}, {ratio:.2f} of it (medians of {len(rows)} pairs)")


if __name__ == "__main__":
    main()
