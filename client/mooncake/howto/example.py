#!/usr/bin/env python3
"""Shows how an inference engine uses mooncake.store, without an engine.

Two processes act as workers of vLLM. Each has memory for the KV cache of some blocks; a block has a segment in each layer, as on a GPU.
The first worker computes a prompt and stores its blocks. The second one has a longer prompt with the same beginning: it looks up how many
of its blocks are stored, reads them into its own memory, and checks every byte.

    python3 example.py                          starts a mooncake_master if none runs at 127.0.0.1:50051
    python3 example.py --master HOST:PORT       uses this one, or fails
"""

import argparse
import contextlib
import ctypes
import hashlib
import http.client
import importlib.util
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

MASTER = "127.0.0.1:50051"
READY_SECONDS = 60
KEYS_A_CALL = 32
LOCAL_BUFFER_BYTES = 16 << 20
SEGMENT_BYTES_MIN = 64 << 20
RUNNING = "was running"
UNSEEN_BLOCKS = 4  # of the second prompt, after the shared ones
Report = Dict[str, Any]
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Shape(NamedTuple):
    blocks: int  # of the first prompt
    layers: int
    segment_bytes: int  # of one block in one layer
    run: str  # makes the keys of each run unique

    @property
    def block_bytes(self) -> int:
        return self.layers * self.segment_bytes

    def keys(self, prompt: str, count: int) -> List[str]:
        """A chain: the key of a block covers all tokens up to its end. Prompts differ after the shared blocks."""
        keys, chain = [], hashlib.sha256(self.run.encode())
        for block in range(count):
            chain.update(f"{'shared' if block < self.blocks else prompt} {block};".encode())
            keys.append(f"demo-model@tp_rank:0@{chain.hexdigest()}")
        return keys


class Cache:
    """Memory for blocks, contiguous for each layer: a block is spread over all layers."""

    def __init__(self, shape: Shape, blocks: int) -> None:
        self.shape, self.layer_bytes = shape, blocks * shape.segment_bytes
        self.length_bytes = shape.layers * self.layer_bytes
        self.memory = mmap.mmap(-1, self.length_bytes, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def _offsets(self, block: int) -> Iterator[int]:
        for layer in range(self.shape.layers):
            yield layer * self.layer_bytes + block * self.shape.segment_bytes

    def addresses(self, block: int) -> List[int]:
        return [self.address + offset for offset in self._offsets(block)]

    def compute(self, block: int, key: str) -> None:
        """Simulates the model: fills the block with bytes that depend on the key."""
        content = hashlib.shake_128(key.encode()).digest(self.shape.block_bytes)
        for layer, offset in enumerate(self._offsets(block)):
            start = layer * self.shape.segment_bytes
            self.memory[offset:offset + self.shape.segment_bytes] = content[start:start + self.shape.segment_bytes]

    def holds(self, block: int, key: str) -> bool:
        content = hashlib.shake_128(key.encode()).digest(self.shape.block_bytes)
        size = self.shape.segment_bytes
        return all(self.memory[offset:offset + size] == content[layer * size:(layer + 1) * size]
                   for layer, offset in enumerate(self._offsets(block)))


class Failure(Exception):
    """The reason why the example ends, as text."""


class Bar:
    """A progress bar on a terminal; silent elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet or not sys.stderr.isatty()

    def show(self, what: str, done: int, total: int) -> None:
        if not self.quiet:
            full = 30 * done // total
            sys.stderr.write(f"\r  {what:<28} [{'#' * full}{'.' * (30 - full)}] {done}/{total}")
            sys.stderr.flush()

    def clear(self) -> None:
        if not self.quiet:
            sys.stderr.write("\r\033[K")


def batches(count: int) -> Iterator[range]:
    for start in range(0, count, KEYS_A_CALL):
        yield range(start, min(start + KEYS_A_CALL, count))


def set_up(master: str, segment_bytes: int, cache: Cache):  # type: ignore[no-untyped-def]
    """Returns a store, set up as a connector does. Raises Failure."""
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    code = store.setup("localhost", "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER_BYTES, "tcp", "", master)
    if code != 0:
        raise Failure(f"setup with the master {master} gave {code}: no master there, or not enough shared memory for a segment "
                      f"of {segment_bytes >> 20} MiB")
    code = store.register_buffer(cache.address, cache.length_bytes)
    if code != 0:
        raise Failure(f"register_buffer gave {code}")
    return store


# ---------------------------------------------------------------- the two workers
def store_prompt(store, shape: Shape, cache: Cache, bar: Bar) -> Report:  # type: ignore[no-untyped-def]
    """Worker 1: stores the blocks of its prompt that do not exist yet."""
    keys = shape.keys("first", shape.blocks)
    for block, key in enumerate(keys):
        cache.compute(block, key)
        bar.show("worker 1 computes", block + 1, shape.blocks)
    seconds, stored = 0.0, 0
    for batch in batches(shape.blocks):
        begun = time.perf_counter()
        there = store.batch_is_exist([keys[i] for i in batch])
        missing = [i for i, code in zip(batch, there) if code != 1]
        codes = store.batch_put_from_multi_buffers([keys[i] for i in missing], [cache.addresses(i) for i in missing],
                                                   [[shape.segment_bytes] * shape.layers for _ in missing])
        seconds += time.perf_counter() - begun
        if any(codes):
            raise Failure(f"batch_put_from_multi_buffers gave {sorted(set(codes))}")
        stored += len(codes)
        bar.show("worker 1 stores", batch.stop, shape.blocks)
    bar.clear()
    return {"stored_blocks": stored, "put_seconds": seconds}


def read_prompt(store, shape: Shape, cache: Cache, tell) -> Report:  # type: ignore[no-untyped-def]
    """Worker 2: finds the longest stored prefix, reads it and checks it."""
    keys = shape.keys("second", shape.blocks + UNSEEN_BLOCKS)
    found = store.batch_is_exist(keys)
    prefix = next((i for i, code in enumerate(found) if code != 1), len(keys))
    tiers = {"memory": 0, "disk": 0}
    for replicas in store.batch_get_replica_desc(keys[:prefix]).values():
        tiers["memory" if any(replica.is_memory_replica() for replica in replicas) else "disk"] += 1
    seconds, wrong = 0.0, 0
    for batch in batches(prefix):
        begun = time.perf_counter()
        lengths = store.batch_get_into_multi_buffers([keys[i] for i in batch], [cache.addresses(i) for i in batch],
                                                     [[shape.segment_bytes] * shape.layers for _ in batch])
        seconds += time.perf_counter() - begun
        for i, length in zip(batch, lengths):
            wrong += length != shape.block_bytes or not cache.holds(i, keys[i])
        tell(batch.stop, prefix)
    return {"asked_blocks": len(keys), "prefix_blocks": prefix, "wrong_blocks": wrong, "get_seconds": seconds, "tiers": tiers}


def be_worker_2(given: Report) -> int:
    """Runs in a separate process. Prints a line of JSON for each step; the last one is the result."""
    def tell(done: int, total: int) -> None:
        print(json.dumps({"done": done, "total": total}), flush=True)

    shape = Shape(**given["shape"])
    cache = Cache(shape, shape.blocks + UNSEEN_BLOCKS)
    try:
        store = set_up(given["master"], 0, cache)
        print(json.dumps({"result": read_prompt(store, shape, cache, tell)}), flush=True)
        store.close()
    except Failure as failure:
        print(json.dumps({"failure": str(failure)}), flush=True)
        return 1
    return 0


def watch_worker_2(master: str, shape: Shape, bar: Bar) -> Report:
    command = [sys.executable, os.path.realpath(__file__), "--worker-2", json.dumps({"master": master, "shape": shape._asdict()})]
    report: Report = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        for line in worker.stdout:
            report = json.loads(line)
            if "done" in report:
                bar.show("worker 2 reads and checks", report["done"], report["total"])
    bar.clear()
    if "result" not in report:
        raise Failure(f"worker 2: {report.get('failure', f'ended with {worker.returncode}')}")
    return dict(report["result"])


# ---------------------------------------------------------------- our own master
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def master_command() -> List[str]:
    if importlib.util.find_spec("mooncake.daemons") is not None:
        return [sys.executable, "-m", "mooncake.cli", "mooncake_master"]
    path = shutil.which("mooncake_master")
    if path is None:
        raise Failure("no master runs, and the program mooncake_master is neither in the package mooncake nor in PATH")
    return [path]


def master_is_there(master: str) -> bool:
    """Whether a mooncake_master of Sluice answers at this address: it greets with a line of JSON."""
    host, _, port = master.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection, connection.makefile("rb") as lines:
            return "sluice" in json.loads(lines.readline(4096))
    except (OSError, ValueError):
        return False


def admin(metrics_port: int, path: str) -> Optional[str]:
    """Returns a page of the admin HTTP; None: it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}{path}", timeout=10) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return None


@contextlib.contextmanager
def own_master(memory_bytes: int) -> Iterator[Tuple[str, int]]:
    """Starts a master that ends with the `with` block; gives (address, port of the admin HTTP)."""
    port, metrics_port = free_port(), free_port()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*master_command(), f"--port={port}", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1",
                                    f"--metrics_port={metrics_port}", f"--memory={memory_bytes}"], stdout=log, stderr=log)
        try:
            end = time.monotonic() + READY_SECONDS
            while not json.loads(admin(metrics_port, "/health") or "{}").get("service_ready"):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise Failure(f"mooncake_master did not start; its output:\n{log.read()[-2000:]}")
                time.sleep(0.1)
            yield f"127.0.0.1:{port}", metrics_port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# ---------------------------------------------------------------- the report
def play(master: str, metrics_port: int, shape: Shape, bar: Bar) -> Report:
    cache = Cache(shape, shape.blocks)
    store = set_up(master, max(SEGMENT_BYTES_MIN, shape.blocks * shape.block_bytes * 3 // 2), cache)
    try:
        report = {"block_bytes": shape.block_bytes, "segment": store.get_hostname(), **store_prompt(store, shape, cache, bar)}
        told = admin(metrics_port, "/get_all_segments")
        report["segments"] = None if told is None else told.split()
        report.update(watch_worker_2(master, shape, bar))
    finally:
        store.close()
    report["good"] = report["prefix_blocks"] == shape.blocks and report["wrong_blocks"] == 0
    return report


def speed(blocks: int, block_bytes: int, seconds: float) -> str:
    return f"{blocks * block_bytes / max(seconds, 1e-9) / 1e9:.2f} GB/s"


def print_report(report: Report, shape: Shape) -> None:
    size = shape.block_bytes
    print(f"master    {report['master']} ({report['master_was']}); segments: {', '.join(report['segments'] or ['unknown'])}")
    print(f"worker 1  {report['segment']}: stored {report['stored_blocks']} blocks of {size >> 10} KiB from {shape.layers} layers, "
          f"{speed(report['stored_blocks'], size, report['put_seconds'])}")
    print(f"worker 2  looked up {report['asked_blocks']} blocks, found a prefix of {report['prefix_blocks']} "
          f"({report['tiers']['memory']} in memory, {report['tiers']['disk']} on disk), "
          f"{speed(report['prefix_blocks'], size, report['get_seconds'])}")
    if report["master_was"] != RUNNING:
        print("speed     of a node that started a second ago; use --master for one that has touched its memory")
    print(f"bytes     {'every byte is correct' if report['good'] else str(report['wrong_blocks']) + ' blocks are wrong or missing'}")


def size_of(text: str) -> int:
    number, unit = (text[:-1], UNITS[text[-1].lower()]) if text[-1:].lower() in UNITS else (text, 1)
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) * unit <= 1 << 30:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1..1g bytes, for example 32k")
    return int(number) * unit


def count_of(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1..1048576")
    return int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--master", metavar="HOST:PORT", help=f"a running master (default: {MASTER}, or one is started)")
    parser.add_argument("--metrics-port", type=count_of, default=9003, help="port of its admin HTTP (%(default)s)")
    parser.add_argument("--blocks", type=count_of, default=128, help="blocks of the prompt (%(default)s)")
    parser.add_argument("--layers", type=count_of, default=32, help="layers of the model (%(default)s)")
    parser.add_argument("--segment", type=size_of, default="16k", help="bytes of a block in a layer (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--worker-2", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.layers * options.segment > 1 << 30:
        parser.error("a block has at most 1 GiB: --layers times --segment")
    return options


def main() -> int:
    options = arguments()
    if options.worker_2:
        return be_worker_2(json.loads(options.worker_2))
    shape = Shape(options.blocks, options.layers, options.segment, f"{os.getpid()}-{time.time_ns()}")
    bar = Bar(options.json)
    try:
        if options.master or os.environ.get("SLUICE_INSTANCE") or master_is_there(MASTER):
            master, was = options.master or MASTER, RUNNING
            report = play(master, options.metrics_port, shape, bar)
        else:
            was = "started for this and stopped"
            with own_master(max(256 << 20, shape.blocks * shape.block_bytes * 2)) as (master, metrics_port):
                report = play(master, metrics_port, shape, bar)
    except (Failure, ImportError) as failure:
        bar.clear()
        print(f"example: {failure}", file=sys.stderr)
        return 1
    report.update(master=os.environ.get("SLUICE_INSTANCE") or master, master_was=was)
    if options.json:
        print(json.dumps(report))
    else:
        print_report(report, shape)
    return 0 if report["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
