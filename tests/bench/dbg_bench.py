#!/usr/bin/env python3
"""Figures: FETCH over two addresses between two namespaces, with both rails in transporter.0 and with a process a rail, in
turns. Medians and their ratio; CPU is that of all transporters of both nodes. Run by hand as root.

  rails_bench.py [ROUNDS]"""

import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "cluster"))

from cluster_support import main, missing, wait_alive  # noqa: E402,F401
from rails_test import TwoLinks  # noqa: E402
from remote_bench import TOTAL, cpu_of, objects  # noqa: E402

SIZES = (256 << 10, 1 << 20, 4 << 20)
MODES = ("false", "true")


def transporters(cluster):
    return [pid for node in cluster.nodes for name, (pid, *_) in node.processes().items() if name.startswith("transporter.")]


def fetch(cluster, prefix, size):
    a, b = cluster.nodes
    count = TOTAL // size
    objects(a, "put", prefix, count, size)
    pids = transporters(cluster)
    before = sum(cpu_of(pid) for pid in pids)
    seconds = objects(b, "get", prefix, count, size)
    cpu = sum(cpu_of(pid) for pid in pids) - before
    for node in (a, b):
        node.ctl("rm", "--all")
    return TOTAL / seconds, cpu / TOTAL * 1e9


def run(rounds):
    figures = {(mode, size): [] for mode in MODES for size in SIZES}
    with TwoLinks() as cluster:
        plain = [list(node.settings) for node in cluster.nodes]
        for turn in range(rounds):
            for mode in MODES:
                for node, settings in zip(cluster.nodes, plain):
                    node.stop()
                    node.settings = [*settings, "--fabric-processes", mode, "--memory", "1GiB"]
                for node in cluster.nodes:
                    node.start()
                wait_alive(cluster.nodes[1], "a")
                wait_alive(cluster.nodes[0], "b")
                time.sleep(1)
                for size in SIZES:
                    try:
                        figures[mode, size].append(fetch(cluster, f"{turn}.{mode}.{size}.", size))
                    except OSError:
                        for node in cluster.nodes:
                            print(node.logs())
                            print(node.supervisor("status").stdout)
                        raise
    print(f"{'size':>8} {'one process':>14} {'CPU s/GB':>9} {'a process a rail':>17} {'CPU s/GB':>9} {'ratio':>6}")
    for size in SIZES:
        one, many = ([statistics.median(column) for column in zip(*figures[mode, size])] for mode in MODES)
        print(f"{size >> 10:>6} K {one[0] / 1e6:>9.0f} MB/s {one[1]:>9.2f} {many[0] / 1e6:>12.0f} MB/s {many[1]:>9.2f}"
              f" {many[0] / one[0]:>6.2f}")


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
