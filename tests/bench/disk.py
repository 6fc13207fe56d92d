#!/usr/bin/env python3
"""Figures: the disk tier of a fresh node beside fio, in one run: same file system, sizes and depth, io_uring and O_DIRECT.

store: values are put until twice the memory went through, then flushed: the clock stops when the last one is durable. load: the
same values in the same order by three threads, pinned where they arrive in the arena. Memory holds half of them, so with the
policy lru each one comes from the disk: which share did is printed. fio runs before and after each side, so that a machine that
gets slower or faster meanwhile shows in both. CPU is that of the node's actors and of this process, by the GB.

    python3 tests/bench/disk.py [--directory DIR] [--memory-mib 512] [--sizes 64,256,1024,4096] [--build build/release] [--json]

DIR is where the disk tier and fio's file are. Sizes are in KiB."""

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
MIB = 1 << 20
DEPTH = 32
READERS = 3
TIMEOUT = 60


def actors_cpu(node):
    """Seconds that the node's actors ran so far."""
    return sum(time.clock_gettime((~row[0] << 3) | 2) for row in node.processes().values() if row[0] != 0)


def values_read(node):
    actors = json.loads(node.ctl("status", "--metrics", "--json").stdout)["actors"]
    return sum(actor["counters"]["values_read"] for actor in actors if actor["name"].startswith("tierer."))


class Measured:
    """Rate and CPU time of what is done in a `with`."""

    def __init__(self, node, total):
        self.node, self.total = node, total

    def cpu(self):
        return actors_cpu(self.node) + time.process_time()

    def __enter__(self):
        self.cpu_s, self.began = self.cpu(), time.monotonic()
        return self

    def __exit__(self, *_):
        self.rate = self.total / (time.monotonic() - self.began)
        self.cpu_s_per_gb = (self.cpu() - self.cpu_s) / self.total * 1e9


def fio(path, size, total, kind):
    if kind == "write" and os.path.exists(path):
        os.unlink(path)  # like a fresh segment: allocated, never written
    done = subprocess.run(["fio", "--name=bench", f"--filename={path}", f"--bs={size}", f"--iodepth={DEPTH}", f"--size={total}",
                           "--ioengine=io_uring", "--direct=1", f"--rw={kind}", "--end_fsync=1", "--output-format=json"],
                          stdout=subprocess.PIPE, check=True)
    job = json.loads(done.stdout)["jobs"][0]
    seconds, moved = job[kind]["runtime"] / 1e3, job[kind]["io_bytes"]
    return moved / seconds, (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds / moved * 1e9


def between(path, size, total, kind, run):
    """What run measured, beside the mean of fio before and after it."""
    before = fio(path, size, total, kind)
    side = run()
    limit, cpu = ((a + b) / 2 for a, b in zip(before, fio(path, size, total, kind)))
    return {"bytes_per_s": side.rate, "cpu_s_per_gb": side.cpu_s_per_gb, "ratio": side.rate / limit,
            "fio": {"bytes_per_s": limit, "cpu_s_per_gb": cpu}}


def measured(sluice, node, path, size, total):
    settings = {"instance": node.instance, "runtime_dir": node.directory + "/run", "shm_dir": node.shm}
    count, batch = total // size, max(min(8 * MIB, total // 32) // size, 1)
    values = memoryview(os.urandom(64 * MIB))
    starts = [number * 2654435761 % ((len(values) - size) // 64 + 1) * 64 for number in range(count)]
    keys = [f"bench/disk/{size}/{number}" for number in range(count)]
    groups = [range(first, min(first + batch, count)) for first in range(0, count, batch)]
    with sluice.Client(settings=settings) as client:
        def store():
            with Measured(node, count * size) as side:
                for group in groups:
                    codes = client.put_batch([keys[n] for n in group], [values[starts[n]:starts[n] + size] for n in group], timeout=TIMEOUT)
                    assert not any(codes), codes
                client.flush(timeout=TIMEOUT)
            return side

        def load_group(group):
            for number, view in zip(group, client.get_pinned_batch([keys[n] for n in group], timeout=TIMEOUT)):
                with view, memoryview(view) as got:  # its beginning: that it is the right value; the tierer compared the digest
                    assert len(got) == size and got[:64] == values[starts[number]:starts[number] + 64], keys[number]

        def load():
            with concurrent.futures.ThreadPoolExecutor(READERS) as threads, Measured(node, count * size) as side:
                list(threads.map(load_group, groups))
            return side

        row = {"size_bytes": size, "values": count, "store": between(path, size, total, "write", store)}
        before = values_read(node)
        row["load"] = between(path, size, total, "read", load)
        row["from_disk"] = (values_read(node) - before) / count
        client.remove_all(timeout=TIMEOUT)
    return row


def row_print(row):
    print(f"{row['size_bytes'] >> 10} KiB, {row['values']} values, {row['from_disk']:.0%} of the loads from disk")
    for name in ("store", "load"):
        side, limit = row[name], row[name]["fio"]
        print(f"  {name:<6} {side['bytes_per_s'] / 1e6:8.0f} MB/s  {side['cpu_s_per_gb']:.3f} CPU s/GB   "
              f"fio {limit['bytes_per_s'] / 1e6:8.0f} MB/s  {limit['cpu_s_per_gb']:.3f} CPU s/GB   ratio {side['ratio']:.2f}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--directory")
    options.add_argument("--memory-mib", type=int, default=512)
    options.add_argument("--sizes", default="64,256,1024,4096")
    options.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    build = os.path.realpath(asked.build)
    if shutil.which("fio") is None or not os.path.isdir(build + "/python"):
        print("needs fio (Debian's package) and the Python package of the build")
        sys.exit(77)
    os.environ["SLUICE_BIN"] = build + "/bin"
    sys.path[:0] = [os.path.join(HERE, "..", "node"), build + "/python"]
    import sluice
    from node_support import Node  # it reads SLUICE_BIN when it is imported
    total = 2 * asked.memory_mib * MIB
    node = Node(ranks=1, memory=f"{asked.memory_mib}MiB", disk=str(4 * total),
                settings=["--evict-policy", "lru", "--disk-queue-depth", str(DEPTH)])
    if asked.directory:
        node.settings += ["--disk-path", asked.directory]
    with node:
        path = (asked.directory or node.directory) + "/fio.tmp"
        try:
            rows = [measured(sluice, node, path, int(size) << 10, total) for size in asked.sizes.split(",")]
        finally:
            if os.path.exists(path):
                os.unlink(path)
    if asked.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            row_print(row)


if __name__ == "__main__":
    main()
