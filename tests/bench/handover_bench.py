#!/usr/bin/env python3
"""Prints figures of direct hand-overs from one node to another, in namespaces. Medians. CPU is that of all actors of both
nodes, without the engines.

    handover_bench.py [ROUNDS]"""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "cluster"))

from cluster_support import Cluster, counter, cpu_of, missing, wait_alive, wait_until  # noqa: E402
from node_support import BIN  # noqa: E402

PROBE = os.path.join(BIN, "..", "tests", "pull_probe")
TOTAL = 64 << 20
LAYERS = 16
ACTORS = ("transporter.0", "swapper.0", "coordinator", "registrar")


def probe(node, *arguments):
    process = subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm, *map(str, arguments)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "registered\n"
    return process


class Pair:
    """Engines at two nodes, and the cost of hand-overs between them."""

    def __init__(self, giver, taker, shape, rounds):
        self.nodes = (giver, taker)
        self.giving = probe(giver, "give", *shape, 60000, rounds)
        self.taking = probe(taker, "take", *shape, 60000, rounds)
        for node in self.nodes:
            wait_until(lambda at=node: counter(at, "transporter.0", "pool_engines") == 1, 20, "the pool is registered")
        self.pids = [node.pid(actor) for node in self.nodes for actor in ACTORS]
        self.figures, self.before = [], self.counters()

    def counters(self):
        moved = copied = 0
        for node in self.nodes:
            found = json.loads(node.ctl("nodes", "--json").stdout)
            moved, copied = moved + found["moved_bytes"], copied + found["copied_bytes"]
        return moved, copied

    def hand_over(self, blocks):
        assert self.taking.stdout.readline() == "poisoned\n"
        before = sum(cpu_of(pid) for pid in self.pids)
        self.taking.stdin.write("\n")
        self.taking.stdin.flush()
        self.giving.stdin.write(self.taking.stdout.readline())
        self.giving.stdin.flush()
        _, loaded, code, took = self.taking.stdout.readline().split()
        assert int(loaded) == blocks and code == "0", (loaded, code)
        assert self.giving.stdout.readline() == "gave 0\n"
        self.figures.append((TOTAL / int(took) * 1e6, (sum(cpu_of(pid) for pid in self.pids) - before) / TOTAL * 1e9))

    def end(self):
        moved, copied = (now - then for now, then in zip(self.counters(), self.before))
        for process in (self.giving, self.taking):
            process.communicate()
            assert process.returncode == 0
        return copied / (moved / 2)  # each byte is sent by one node and received by the other


def measure(cluster, part_bytes, rounds):
    blocks = TOTAL // part_bytes
    pair = Pair(*cluster.nodes, (part_bytes, blocks, part_bytes // LAYERS, LAYERS, 1), rounds + 1)
    for _ in range(rounds + 1):
        pair.hand_over(blocks)
    copies = pair.end()
    del pair.figures[0]  # links and pages were cold
    speed, cpu = (statistics.median(figure[i] for figure in pair.figures) for i in range(2))
    print(f"{part_bytes >> 10:5} KiB  {TOTAL / speed * 1e3:6.1f} ms for 64 MiB  {speed / 1e9:5.2f} GB/s  {cpu:.2f} CPU s/GB  "
          f"copies of a byte {copies:.2f} (medians of {rounds} turns)", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    with Cluster(2, memory="512MiB") as cluster:
        a, b = cluster.nodes
        wait_alive(a, "b")
        wait_alive(b, "a")
        for part_bytes in (16 << 10, 64 << 10, 1 << 20):
            measure(cluster, part_bytes, rounds)


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
