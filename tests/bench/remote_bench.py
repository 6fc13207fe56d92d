#!/usr/bin/env python3
"""Prints figures of fetching values of another node with BRING, compared with a send/recv loop that hashes what it receives,
between the same two namespaces with as many connections, in turns. Medians; CPU is that of the transporters' threads, or of the
loop's, at the sending and the receiving end. The loop's memory is in huge pages; the nodes' is if /dev/shm is mounted so, as
deploy/install does.

With encryption, the fetch is also compared with one thread that receives records, opens them with libcrypto and hashes the
contents, on a CPU of its own. Its sender has the other CPU. The sender has sealed the records before ("opened"), so that the
receiver never waits for one; or it seals them as it sends ("sealed, opened"), as a node has to. `clear` sets fabric_encryption to
false.

    remote_bench.py [ROUNDS [clear]]"""

import json
import os
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
    """Seconds that the process's threads have run."""
    total_ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as stat:
            total_ns += int(stat.read().split()[0])
    return total_ns / 1e9


def objects(node, what, prefix, count, size):
    done = subprocess.run([PROGRAM, what, node.directory + "/run", node.shm, node.instance, prefix, str(count), str(size)],
                          stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def fetch(cluster, prefix, size):
    a, b = cluster.nodes
    count = TOTAL // size
    objects(a, "put", prefix, count, size)
    pids = [node.pid("transporter.0") for node in (a, b)]
    before = [cpu_of(pid) for pid in pids]
    seconds = objects(b, "get", prefix, count, size)
    cpu = [cpu_of(pid) - was for pid, was in zip(pids, before)]
    for node in (a, b):
        node.ctl("rm", "--all")
    return TOTAL / seconds, cpu[0] / TOTAL * 1e9, cpu[1] / TOTAL * 1e9


def loop(cluster, size, sends="serve", receives="pull"):
    connections = 1 if receives == "open" else CONNECTIONS
    arguments = [Network.address(0), str(LOOP_PORT), str(connections), str(size), str(TOTAL)]
    sender = subprocess.Popen([*cluster.network.ports[0].enter(), PROGRAM, sends, *arguments], stdout=subprocess.PIPE, text=True)
    sender.stdout.readline()
    done = subprocess.run([*cluster.network.ports[1].enter(), PROGRAM, receives, *arguments], stdout=subprocess.PIPE,
                          text=True, check=True)
    seconds, received_s = (float(word) for word in done.stdout.split())
    sent_s = float(sender.communicate()[0])
    return TOTAL / seconds, sent_s / TOTAL * 1e9, received_s / TOTAL * 1e9


def huge_pages(node):
    actors = json.loads(node.ctl("status", "--pages").stdout)["actors"]
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
            figures = [(fetch(cluster, f"r{turn}", size), loop(cluster, size), loop(cluster, size, receives="plain"),
                        loop(cluster, size, "sealed", "open"), loop(cluster, size, "seal", "open")) for turn in range(rounds)]
            for at, name in enumerate(("fetch", "loop, hashed", "loop, plain", "loop, opened", "loop, sealed, opened")):
                rate, sent, received = (statistics.median(figure[at][i] for figure in figures) for i in range(3))
                print(f"{size >> 10:5} KiB  {name:20} {rate / 1e9:6.2f} GB/s  CPU {sent:.2f} + {received:.2f} s/GB")
            hashed, opened, sealed = (statistics.median(f[0][0] / f[at][0] for f in figures) for at in (1, 3, 4))
            print(f"{size >> 10:5} KiB  fetch to the hashed loop {hashed:.2f}, to one thread that opens and hashes {opened:.2f}, "
                  f"to one whose sender seals {sealed:.2f} (medians of {rounds} turns)", flush=True)


if __name__ == "__main__":
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    main()
