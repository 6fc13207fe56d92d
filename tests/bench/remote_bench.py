#!/usr/bin/env python3
"""Figures: values of another node through FETCH, beside a send/recv loop that hashes what it receives, between the same
two namespaces with as many connections, in turns. Medians; CPU is that of both ends (transporters, or the loop's two,
with the faulting of its memory). The loop's memory is in huge pages; the nodes' is when /dev/shm is mounted so, as
deploy/install does.

Encrypted, the fetch is also measured beside one thread that receives records, opens them with libcrypto and hashes what was
in them; its sender has sealed them before. `clear` sets fabric_encryption to false.

  remote_bench.py [ROUNDS [clear]]"""

import json
import os
import resource
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "cluster"))

from cluster_support import Cluster, Network, missing, wait_until  # noqa: E402
from node_support import BIN  # noqa: E402

PROGRAM = os.path.join(BIN, "..", "tests", "remote_bench")
LOOP_PORT = 7420
CONNECTIONS = 4
TOTAL = 256 << 20


def cpu_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def objects(node, what, prefix, count, size):
    done = subprocess.run([PROGRAM, what, node.directory + "/run", node.shm, node.instance, prefix, str(count), str(size)],
                          stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def fetch(cluster, prefix, size):
    a, b = cluster.nodes
    count = TOTAL // size
    objects(a, "put", prefix, count, size)
    pids = [a.pid("transporter.0"), b.pid("transporter.0")]
    before = sum(cpu_of(pid) for pid in pids)
    seconds = objects(b, "get", prefix, count, size)
    cpu = sum(cpu_of(pid) for pid in pids) - before
    for node in (a, b):
        node.ctl("rm", "--all")
    return TOTAL / seconds, cpu / TOTAL * 1e9


def loop(cluster, size, what="pull"):
    connections = 1 if what == "open" else CONNECTIONS
    arguments = [Network.address(0), str(LOOP_PORT), str(connections), str(size), str(TOTAL)]
    before = cpu_of_children()
    sender = subprocess.Popen([*cluster.network.ports[0].enter(), PROGRAM, "seal" if what == "open" else "serve", *arguments],
                              stdout=subprocess.PIPE)
    sender.stdout.readline()
    done = subprocess.run([*cluster.network.ports[1].enter(), PROGRAM, what, *arguments], stdout=subprocess.PIPE,
                          text=True, check=True)
    sender.communicate()
    return TOTAL / float(done.stdout), (cpu_of_children() - before) / TOTAL * 1e9


def huge_pages(node):
    actors = json.loads(node.ctl("status", "--metrics", "--json").stdout)["actors"]
    return next(actor for actor in actors if actor["name"] == "registrar")["counters"]["huge_pages"] == 1


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    encrypted = "false" if sys.argv[2:] == ["clear"] else "true"
    with Cluster(2, memory="768MiB",
                 settings=["--fabric-lanes", str(CONNECTIONS), "--fabric-encryption", encrypted]) as cluster:
        wait_until(lambda: cluster.nodes[1].ctl("nodes").stdout.count(b" alive ") == 1, 10, "a is alive")
        print(f"arenas in {'huge' if huge_pages(cluster.nodes[1]) else 'small'} pages", flush=True)
        fetch(cluster, "warm", 1 << 20)
        for size in (256 << 10, 1 << 20, 4 << 20):
            figures = [(fetch(cluster, f"r{turn}", size), loop(cluster, size), loop(cluster, size, "plain"),
                        loop(cluster, size, "open")) for turn in range(rounds)]
            for name, at in (("fetch", 0), ("loop, hashed", 1), ("loop, plain", 2), ("loop, opened", 3)):
                print(f"{size >> 10:5} KiB  {name:13} {statistics.median(f[at][0] for f in figures) / 1e9:6.2f} GB/s  "
                      f"{statistics.median(f[at][1] for f in figures):.2f} CPU s/GB")
            print(f"{size >> 10:5} KiB  fetch to hashed loop {statistics.median(f[0][0] / f[1][0] for f in figures):.2f}, to "
                  f"one thread that opens and hashes {statistics.median(f[0][0] / f[3][0] for f in figures):.2f} "
                  f"(median of {rounds} turns)", flush=True)


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
