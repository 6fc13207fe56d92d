"""Measures an idle node: each process's share of a core by schedstat, and how often it is woken.

    python3 tests/bench/rest.py [--seconds 60] [--ranks 2] [--disk 256MiB] [--build build/release] [--json]

The node has a disk tier and no clients, and has had --settle seconds to become idle. Counted are the supervisor, all that it
starts, and all threads. Short-lived programs are counted as their parent's `children`.
"""

import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


def stat_of(pid):
    """(parent, CPU seconds of its children that ended and were collected), or None when it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as line:
            fields = line.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[1]), (int(fields[13]) + int(fields[14])) * TICK_SECONDS


def name_of(pid):
    """sluice-registrar, sluice-swapper 1, bash sluice-node, ..."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            words = line.read().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    name = os.path.basename(words[0])
    if name in ("bash", "sh") and len(words) > 1:
        name += " " + os.path.basename(words[1])
    if "--rank" in words:
        name += " " + words[words.index("--rank") + 1]
    return name


def runs_of(pid):
    """{thread: (nanoseconds run, times it was given a core)}."""
    runs = {}
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as line:
                ran, _, times = line.read().split()
            runs[thread] = int(ran), int(times)
    except OSError:
        pass  # it ends
    return runs


def below(roots):
    """These processes and all their descendants."""
    parents = {int(entry): stat_of(entry) for entry in os.listdir("/proc") if entry.isdigit()}
    found, more = set(), set(roots)
    while more:
        found |= more
        more = {pid for pid, stat in parents.items() if stat is not None and stat[0] in more} - found
    return found


def measured(roots, seconds):
    """One row for each process that ran all the time: its CPU time, its number of turns, and the CPU time of its children that ended."""
    before = {pid: (runs_of(pid), stat_of(pid)) for pid in below(roots)}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    rows = []
    for pid, (runs, stat) in before.items():
        now_runs, now_stat = runs_of(pid), stat_of(pid)
        if stat is None or now_stat is None:
            continue
        threads = [(now[0] - runs.get(thread, (0, 0))[0], now[1] - runs.get(thread, (0, 0))[1]) for thread, now in now_runs.items()]
        rows.append({"name": name_of(pid), "pid": pid, "percent": sum(ran for ran, _ in threads) / took / 1e7,
                     "wakeups_per_s": sum(times for _, times in threads) / took,
                     "children_percent": (now_stat[1] - stat[1]) / took * 100})
    return sorted(rows, key=lambda row: row["name"])


def report(rows, seconds):
    print(f"{'PROCESS':<28} {'CORE':>8} {'WAKE-UPS':>10} {'CHILDREN':>9}")
    for row in rows:
        print(f"{row['name']:<28} {row['percent']:>7.3f}% {row['wakeups_per_s']:>8.1f}/s {row['children_percent']:>8.3f}%")
    print(f"{'all, over %g s' % seconds:<28} {total(rows):>7.3f}% {sum(row['wakeups_per_s'] for row in rows):>8.1f}/s")


def total(rows):
    return sum(row["percent"] + row["children_percent"] for row in rows)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--settle", type=float, default=5)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--disk", default="256MiB")
    options.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    os.environ["SLUICE_BIN"] = os.path.join(os.path.realpath(asked.build), "bin")
    sys.path.insert(0, os.path.join(HERE, "..", "node"))
    from node_support import Node  # it reads SLUICE_BIN when it is imported
    with Node(ranks=asked.ranks, disk=asked.disk) as node:
        time.sleep(asked.settle)
        with open(node.directory + "/run/supervisor.pid", encoding="utf-8") as line:
            roots = [int(line.read().split()[0]), *(node.pid(name) for name in node.processes())]
        rows = measured(roots, asked.seconds)
    if asked.json:
        print(json.dumps({"seconds": asked.seconds, "total_percent": total(rows), "processes": rows}))
    else:
        report(rows, asked.seconds)


if __name__ == "__main__":
    main()
