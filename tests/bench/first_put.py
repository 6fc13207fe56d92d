#!/usr/bin/env python3
"""Measures a client's first put, and whether writing at full speed right after it stalls, each time on a node of its own.

Each round starts a node, sets up clients, puts one value (of each of two sizes in turn) and then --total in values of
--size. It prints medians over the rounds of the times of setup and of the first put, of p50, p99 and the longest of
all further puts, and the CPU time of the registrar. The limit in the same run is a copy of as many bytes into fresh pages
of /dev/shm (which zeroes them, as a first write to new memory does), and the ratio is that of the rates. `late` is a
client that is set up after another one has written; `restarted` a put of a client whose node was restarted; `killed`
one whose registrar was killed just before.

  first_put.py [--rounds N] [--modes embedded,standalone,node] [--threads N] [--processes N] [--json FILE]"""

import argparse
import ctypes
import json
import mmap
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "peers"))

from sides import end, popen, session_of  # noqa: E402
from children import directory_make, free_port  # noqa: E402 (sides knows where)

MIB = 1 << 20
FIRST_SIZES = (4096, MIB)
MODES = ("embedded", "standalone", "node")
MEMMOVE = ctypes.CDLL(None).memmove
MEMMOVE.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


# ---- the process that writes ----

class MooncakeWriter:
    def __init__(self, told):
        from mooncake.store import MooncakeDistributedStore
        self.told, self.store = told, MooncakeDistributedStore()

    def setup(self):
        return self.store.setup("127.0.0.1", "P2PHANDSHAKE", self.told["segment"], 16 * MIB, "tcp", "", self.told["master"])

    def put(self, key, at, size):
        return self.store.put_from(key, at, size)


class SluiceWriter:
    def __init__(self, told):
        import sluice
        self.sluice, self.client, self.told = sluice, None, told

    def setup(self):
        self.client = self.sluice.Client(self.told["instance"])
        return 0

    def put(self, key, at, size):
        self.client.put(key, (ctypes.c_char * size).from_address(at))
        return 0


def timed(call, *arguments):
    begun = time.perf_counter_ns()
    code = call(*arguments)
    took = (time.perf_counter_ns() - begun) / 1e6
    if code != 0:
        raise SystemExit(f"{call.__name__}{arguments[:1]} gave {code}")
    return took


class Worker:
    def __init__(self, told):
        self.told = told
        self.writer = SluiceWriter(told) if told["mode"] == "node" else MooncakeWriter(told)
        self.memory = mmap.mmap(-1, 16 * MIB)
        self.memory.write(os.urandom(MIB) * 16)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.turn = 0

    def do_first(self, command):
        self.turn += 1
        name = f"{os.getpid()}-first-{self.turn}"
        answer = {}
        if command["setup"]:
            answer["setup"] = timed(self.writer.setup)
        answer["first"] = timed(self.writer.put, name, self.at, command["size"])
        return answer

    def do_write(self, command):
        size, threads = command["size"], command["threads"]
        times = [[] for _ in range(threads)]

        def write(number):
            for value in range(command["total"] // size // threads):
                at = self.at + (value * threads + number) * size % (16 * MIB - size + 1)
                times[number].append(timed(self.writer.put, f"{os.getpid()}-{number}-{value}", at, size))

        begun = time.perf_counter()
        running = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
        for one in running:
            one.start()
        for one in running:
            one.join()
        return {"seconds": time.perf_counter() - begun, "times": sum(times, [])}

    def serve(self):
        print(json.dumps({}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            print(json.dumps(getattr(self, "do_" + command["do"])(command)), flush=True)


# ---- nodes ----

class BenchWorker:
    """A worker as the bench sees it."""

    def __init__(self, place, told):
        self.process = popen([sys.executable, os.path.realpath(__file__), "--worker", json.dumps(told)],
                             place.directory + "/worker.log", place.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.log, self.heard = place.directory + "/worker.log", b""
        self.answer()

    def tell(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, seconds=300):
        until = time.monotonic() + seconds
        while b"\n" not in self.heard:
            ready = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]
            got = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not got:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise SystemExit(f"a worker ended or is silent: {log.read()[-1000:]}")
            self.heard += got
        line, self.heard = self.heard.split(b"\n", 1)
        return json.loads(line)

    def ask(self, **command):
        self.tell(**command)
        return self.answer()

    def close(self):
        self.process.stdin.close()
        end(self.process, 0.5)
        self.process.stdout.close()


class Place:
    """A node, its directories and its workers. Use as a context manager."""

    def __init__(self, options, mode):
        self.options, self.mode, self.workers, self.daemons = options, mode, [], []
        self.bin = os.path.join(options.build, "bin")
        self.directory = directory_make("peers", "first", tempfile.gettempdir())
        self.shm = directory_make("peers", "first", "/dev/shm")
        self.port = free_port()
        self.instance = f"mooncake-{self.port}"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "MC_"))}
        self.environment.update(PYTHONPATH=os.path.join(options.build, "python"), SLUICE_BIN=self.bin, PYTHONDONTWRITEBYTECODE="1",
                                SLUICE_SHM_DIR=self.shm + "/node", SLUICE_RUNTIME_DIR=self.directory + "/run")

    def node_memory(self):
        return self.options.segment * (2 if self.options.late else 1) + 64 * MIB

    def start(self):
        if self.mode == "node":
            subprocess.run([os.path.join(ROOT, "deploy", "sluice-node"), "start", "--instance", self.instance, "--ranks", "1",
                            "--memory", str(self.node_memory())], env=self.environment, check=True, stdout=subprocess.DEVNULL)
            return
        self.daemons.append(popen([self.bin + "/mooncake_master", f"--port={self.port}", f"--metrics_port={free_port()}"],
                                  self.directory + "/master.log", {**self.environment, "SLUICE_MEMORY": str(self.node_memory())}))
        self.wait(lambda: self.ctl("status", "--not-ready", "registrar", "keyer", "coordinator") == b"", "the node serves")
        if self.mode == "standalone":
            port = free_port()
            self.daemons.append(popen([self.bin + "/mooncake_client", "--host=127.0.0.1", f"--port={port}",
                                       f"--master_server_address=127.0.0.1:{self.port}",
                                       f"--global_segment_size={self.options.segment}"], self.directory + "/client.log", self.environment))
            self.wait(lambda: self.port_of(port) in self.ctl("contributions"), "mooncake_client has contributed")

    @staticmethod
    def port_of(port):
        return f"127.0.0.1:{port}".encode()

    def ctl(self, *words):
        done = subprocess.run([self.bin + "/sluicectl", *words, "--instance", self.instance], env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.strip() if done.returncode == 0 else b"-"

    @staticmethod
    def wait(condition, what, seconds=60):
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise SystemExit(f"not within {seconds} s: {what}")
            time.sleep(0.02)

    def stop(self):
        for daemon in reversed(self.daemons):
            end(daemon)
        self.daemons = []
        if self.mode == "node":
            subprocess.run([os.path.join(ROOT, "deploy", "sluice-node"), "stop", "--instance", self.instance],
                           env=self.environment, stdout=subprocess.DEVNULL)

    def worker(self, share=1):
        segment = self.options.segment // share if self.mode == "embedded" else 0
        told = {"mode": self.mode, "segment": segment, "master": f"127.0.0.1:{self.port}", "instance": self.instance}
        self.workers.append(BenchWorker(self, told))
        return self.workers[-1]

    def actor(self, name):
        with open(f"{self.directory}/run/pid/{name}", encoding="utf-8") as line:
            return int(line.read().split()[0])

    def cpu_s(self, name):
        """CPU time of all its threads, also of those that ended."""
        with open(f"/proc/{self.actor(name)}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.close()
        self.stop()
        for path in (self.directory, self.shm):
            subprocess.run(["rm", "-rf", path], check=False)


# ---- figures ----

def limit(options):
    """The same bytes into fresh pages of a file in /dev/shm: times of each copy of --size."""
    size = options.size
    source = mmap.mmap(-1, 16 * MIB)
    source.write(os.urandom(MIB) * 16)
    at = ctypes.addressof(ctypes.c_char.from_buffer(source))
    times = []
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(options.total)
        with mmap.mmap(file.fileno(), options.total) as fresh:
            hold = ctypes.c_char.from_buffer(fresh)
            to = ctypes.addressof(hold)
            for value in range(options.total // size):
                begun = time.perf_counter_ns()
                MEMMOVE(to + value * size, at + value * size % (16 * MIB - size + 1), size)
                times.append((time.perf_counter_ns() - begun) / 1e6)
            del hold
    return {"times": times, "seconds": sum(times) / 1e3}


def rows_of(round_rows, times, seconds, total):
    ordered = sorted(times)
    round_rows["p50"] = ordered[len(ordered) // 2]
    round_rows["p99"] = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    round_rows["max"] = ordered[-1]
    round_rows["rate"] = total / seconds / 1e9


def one_round(options, mode, first_size):
    row = {}
    with Place(options, mode) as place:
        place.start()
        workers = [place.worker(options.processes) for _ in range(options.processes)]
        before = place.cpu_s("registrar")
        for worker in workers:
            worker.tell(do="first", size=first_size, setup=True)
        begun = [worker.answer() for worker in workers]
        row["setup"] = max(one["setup"] for one in begun)
        row[f"first {first_size}"] = max(one["first"] for one in begun)
        for worker in workers:
            worker.tell(do="write", size=options.size, total=options.total // options.processes, threads=options.threads)
        written = [worker.answer() for worker in workers]
        rows_of(row, sum((one["times"] for one in written), []), max(one["seconds"] for one in written), options.total)
        row["registrar cpu"] = place.cpu_s("registrar") - before
        if options.late:
            late = place.worker().ask(do="first", size=first_size, setup=True)
            row["late setup"], row["late first"] = late["setup"], late["first"]
        if options.restart:
            pid = place.actor("registrar")
            os.kill(pid, signal.SIGKILL)
            row["killed"] = workers[0].ask(do="first", size=first_size, setup=False)["first"]
            place.stop()
            place.start()
            row["restarted"] = workers[0].ask(do="first", size=first_size, setup=False)["first"]
    return row


def measure(options):
    figures = {}
    for mode in options.modes.split(","):
        rounds = []
        for turn in range(options.rounds):
            row = one_round(options, mode, FIRST_SIZES[turn % len(FIRST_SIZES)])
            bare = limit(options)
            fresh = {}
            rows_of(fresh, bare["times"], bare["seconds"], options.total)
            row.update({f"limit {name}": value for name, value in fresh.items()})
            row["ratio"] = row["rate"] / fresh["rate"]
            rounds.append(row)
        names = list(dict.fromkeys(name for row in rounds for name in row))
        figures[mode] = {name: statistics.median(row[name] for row in rounds if name in row) for name in names}
        figures[mode]["longest"] = max(row["max"] for row in rounds)
        show(options, mode, figures[mode])
    return figures


def show(options, mode, row):
    units = {"rate": "GB/s", "limit rate": "GB/s", "ratio": "", "registrar cpu": "s"}
    print(f"{mode}, {options.processes} processes x {options.threads} threads, {options.total // MIB} MiB in values of "
          f"{options.size} bytes, {options.rounds} rounds")
    for name, value in row.items():
        print(f"  {name:14} {value:9.3f} {units.get(name, 'ms')}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--segment", type=int, default=4096, help="MiB that a client contributes")
    parser.add_argument("--total", type=int, default=2048, help="MiB that are written")
    parser.add_argument("--size", type=int, default=MIB, help="bytes of a value")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--late", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--restart", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        Worker(json.loads(options.worker)).serve()
        return
    options.segment *= MIB
    options.total *= MIB
    options.build = os.path.abspath(options.build)
    figures = measure(options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(figures, out, indent=1)


if __name__ == "__main__":
    main()
