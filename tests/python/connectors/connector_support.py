"""Shared code of the connectors' drivers: a node like the one that mooncake_master starts, pinned host memory as engines have it, and
workers in processes of their own."""

import ctypes
import hashlib
import json
import mmap
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import python_support  # noqa: E402 - also finds the package
from node_support import BIN, PATIENCE, Node  # noqa: E402

if python_support.PACKAGE != "installed" and not any(
        name.startswith("_store.") and name.endswith(".so") for name in os.listdir(os.path.join(python_support.PACKAGE, "mooncake"))):
    print(f"skipped: no mooncake.store in {python_support.PACKAGE}")
    sys.exit(77)

MASTER = "127.0.0.1:50051"  # $SLUICE_INSTANCE overrides it
MIB = 1 << 20
__all__ = ["BIN", "MASTER", "MIB", "PATIENCE", "HostMemory", "StoreNode", "content", "Worker", "be_worker"]


class StoreNode:
    """A node with contributions and leases; stores of this process, and of its workers, find it."""

    def __init__(self, memory="512MiB", lease="500ms"):
        self.node = Node(ranks=1, memory=memory, settings=["--contributions", "true", "--lease-ttl", lease])

    def __enter__(self):
        self.node.__enter__()
        os.environ.update({"SLUICE_INSTANCE": self.node.instance, "SLUICE_RUNTIME_DIR": self.node.directory + "/run",
                           "SLUICE_SHM_DIR": self.node.shm})
        return self

    def __exit__(self, *failure):
        self.node.__exit__(*failure)
        for name in ("SLUICE_INSTANCE", "SLUICE_RUNTIME_DIR", "SLUICE_SHM_DIR"):
            os.environ.pop(name, None)


class HostMemory:
    """A pinned host pool, reduced to what a store sees: an address and a length."""

    def __init__(self, length_bytes):
        self.length_bytes = length_bytes
        self.map = mmap.mmap(-1, length_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def write(self, offset, data):
        self.map[offset:offset + len(data)] = data

    def read(self, offset, length_bytes):
        return self.map[offset:offset + length_bytes]

    def clear(self):
        self.map[:] = b"\xee" * self.length_bytes


def content(name, length_bytes):
    """In place of a model's output: bytes that differ for every name."""
    return hashlib.shake_128(str(name).encode()).digest(length_bytes)


class Worker:
    """A process that runs a function of the calling test's file: call(NAME, ...) returns its method's answer. Use as a context manager."""

    def __init__(self, make, *arguments):
        command = [sys.executable, os.path.realpath(sys.argv[0]), "--worker", make.__name__, json.dumps(arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=python_support.environment())
        self.hear()

    def hear(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise AssertionError(f"a worker ended with {self.process.wait()}")

    def start(self, name, *arguments):
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()

    def call(self, name, *arguments):
        self.start(name, *arguments)
        return self.hear()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(60 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


def be_worker(makers):
    """In the worker's process: makes its object, and calls the methods named on standard input until that ends. True: this was a worker."""
    if sys.argv[1:2] != ["--worker"]:
        return False
    worker = makers[sys.argv[2]](*json.loads(sys.argv[3]))
    print("@true", flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print("@" + json.dumps(getattr(worker, name)(*arguments)), flush=True)
    worker.close()
    return True
