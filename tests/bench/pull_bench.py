#!/usr/bin/env python3
"""Prints figures of LOAD of blocks that another node holds, through the arena (cache_remote_loads) and directly into the engine's
pool, in turns and in one run. Three nodes in namespaces: a has the blocks, b keeps what it loads, c does not. Medians. CPU
is that of transporters, swapper and coordinator, without the engine.

    pull_bench.py [ROUNDS]"""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "cluster"))

from cluster_support import Cluster, counter, cpu_of, missing, wait_alive, wait_until  # noqa: E402
from node_support import BIN  # noqa: E402

PROBE = os.path.join(BIN, "..", "tests", "pull_probe")
TOTAL = 128 << 20
LAYERS = 16
ACTORS = ("transporter.0", "swapper.0", "coordinator", "registrar")


def probe(node, *arguments):
    return subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm, *map(str, arguments)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Side:
    """An engine at a node that loads again and again."""

    def __init__(self, holder, node, shape, rounds):
        self.node, self.pids = node, [holder.pid("transporter.0"), *(node.pid(actor) for actor in ACTORS)]
        self.process = probe(node, "load", *shape, 60000, rounds)
        assert self.process.stdout.readline() == "registered\n"
        self.figures = []

    def load(self, blocks):
        assert self.process.stdout.readline() == "poisoned\n"
        wait_until(lambda: counter(self.node, "transporter.0", "pool_engines") == 1, 20, "the pool is registered")
        self.node.ctl("rm", "--all", check=False)
        before = sum(cpu_of(pid) for pid in self.pids)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        _, loaded, code, took = self.process.stdout.readline().split()
        assert int(loaded) == blocks and code == "0", (loaded, code)
        self.figures.append((TOTAL / int(took) * 1e6, (sum(cpu_of(pid) for pid in self.pids) - before) / TOTAL * 1e9))

    def end(self):
        self.process.communicate()
        assert self.process.returncode == 0


def copied(node):
    return json.loads(node.ctl("nodes", "--json").stdout)["copied_per_byte_moved"]


def compare(cluster, part_bytes, rounds):
    a, b, c = cluster.nodes
    blocks = TOTAL // part_bytes
    shape = (part_bytes, blocks, part_bytes // LAYERS, LAYERS, 1)
    done = probe(a, "store", *shape)
    done.communicate()
    assert done.returncode == 0
    sides = [Side(a, b, shape, rounds + 1), Side(a, c, shape, rounds + 1)]
    for _ in range(rounds + 1):
        for side in sides:
            side.load(blocks)
    for side in sides:
        side.end()
        del side.figures[0]  # links and pages were cold
    speed = [statistics.median(figure[0] for figure in side.figures) for side in sides]
    cpu = [statistics.median(figure[1] for figure in side.figures) for side in sides]
    for name, at in (("through the arena", 0), ("straight", 1)):
        print(f"{part_bytes >> 10:5} KiB  {name:18} {speed[at] / 1e9:6.2f} GB/s  {cpu[at]:.2f} CPU s/GB  "
              f"copied per byte moved {copied((b, c)[at]):.2f}")
    print(f"{part_bytes >> 10:5} KiB  straight to arena {speed[1] / speed[0]:.2f} in speed, {cpu[1] / cpu[0]:.2f} in CPU "
          f"(medians of {rounds} turns)", flush=True)
    a.ctl("rm", "--all")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    cluster = Cluster(3, memory="768MiB", settings=["--fabric-pools", "true"])
    cluster.nodes[2].settings += ["--cache-remote-loads", "false"]
    with cluster:
        for node in cluster.nodes[1:]:
            wait_alive(node, "a")
        for part_bytes in (256 << 10, 1 << 20, 4 << 20):
            compare(cluster, part_bytes, rounds)


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
