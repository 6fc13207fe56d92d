"""Shared code of the tests of the contract of `mooncake.store`: a pool to run against, stores, registered memory, other processes.

The names `row` are those of contract_rows.py; the docstring of each test begins with them. With CONTRACT_PEER=mooncake the same tests
run against Mooncake's own wheel, to check the reading of its contract: in a virtual environment that has it, run `bin/python
tests/python/contract_reading_test.py`. This is not part of the test suite; tests that Mooncake fails (it crashes, or truncates) are
marked with `unlike_mooncake` and the reason."""

import atexit
import ctypes
import glob
import hashlib
import json
import mmap
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "node"), os.path.join(HERE, "..", "support")]
MOONCAKE = os.environ.get("CONTRACT_PEER") == "mooncake"
if MOONCAKE:
    from node_support import PACE, PATIENCE, free_port, wait_until
else:
    import python_support
    from node_support import BIN, PACE, PATIENCE, Node, free_port, wait_until

    if python_support.PACKAGE != "installed" and not glob.glob(os.path.join(python_support.PACKAGE, "mooncake", "_store.*.so")):
        print(f"skipped: no mooncake.store in {python_support.PACKAGE}")
        sys.exit(77)
import suite  # noqa: E402
from mooncake import store as mooncake_store  # noqa: E402
from mooncake.store import MooncakeDistributedStore, ReplicateConfig  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
LEASE_MS = int(os.environ.get("SLUICE_TEST_LEASE_MS", str(1000 * PACE)))
# The codes that connectors and tests distinguish.
INTERNAL, NO_SPACE, INVALID, NO_REPLICA, NOT_READY = -1, -200, -600, -702, -703
NOT_FOUND, EXISTS, LEASED, LEASE_OVER, FILE_NOT_FOUND = -704, -705, -706, -707, -1100


def unlike_mooncake(reason):
    """Marks a test of behaviour that users want and Mooncake lacks."""
    return unittest.skipIf(MOONCAKE, "Mooncake differs: " + reason)


def wheel_differs(reason):
    """Marks a test in which the wheel 0.3.13.post1 differs from the reference: the reference decides."""
    return unittest.skipIf(MOONCAKE, "the wheel differs: " + reason)


def interpreter_environment():
    """Environment of another interpreter that imports the module of this build: a sanitizer's runtime is loaded first."""
    if MOONCAKE or not python_support.LIBASAN:
        return dict(os.environ)
    return dict(os.environ, LD_PRELOAD=python_support.LIBASAN, PYTHONMALLOC="malloc",
                ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + python_support.NO_LEAKS)


PLACES = ("SLUICE_INSTANCE", "SLUICE_RUNTIME_DIR", "SLUICE_SHM_DIR")


class Pool:
    """A master and what it needs: mooncake_master; or only a node, with a disk or if mooncake_master was not built."""

    def __init__(self, lease_ms=LEASE_MS, memory="512MiB", disk="0", evict_policy="density"):
        self.lease_ms = lease_ms
        self.process = self.node = self.metrics_port = None
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        if MOONCAKE:
            self.start(os.path.join(os.path.dirname(sys.executable), "mooncake_master"), port, dict(os.environ))
            return
        settings = ["--contributions", "true", "--lease-ttl", f"{lease_ms}ms", "--evict-policy", evict_policy]
        self.node = Node(ranks=1, memory=memory, disk=disk, settings=settings)
        self.places = {"SLUICE_RUNTIME_DIR": self.node.directory + "/run", "SLUICE_SHM_DIR": self.node.shm}
        program = os.path.join(BIN, "mooncake_master")
        if disk == "0" and os.path.exists(program):
            environment = {**os.environ, **self.places, "SLUICE_MEMORY": memory, "SLUICE_EVICT_POLICY": evict_policy, "SLUICE_BIN": BIN}
            environment.pop("SLUICE_INSTANCE", None)
            self.start(program, port, environment)
            wait_until(self.node.processes, 20, "a node behind the master")
            self.node.wait_ready(20)
        else:
            self.places["SLUICE_INSTANCE"] = self.node.instance
            self.node.__enter__()

    def start(self, program, port, environment):
        self.metrics_port = free_port()
        self.process = subprocess.Popen(
            [program, f"--port={port}", f"--metrics_port={self.metrics_port}", f"--default_kv_lease_ttl={self.lease_ms}",
             "--eviction_high_watermark_ratio=1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        wait_until(lambda: self.answers(port), 20, "a master that answers")

    @staticmethod
    def answers(port):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    def environment(self):
        """Variables with which stores find it: an instance, or none when the port of its address selects it."""
        return {} if MOONCAKE else self.places

    def use(self):
        """Makes stores of this process that are set up from now on find it."""
        if not MOONCAKE:
            for name in PLACES:
                os.environ.pop(name, None)
            os.environ.update(self.places)

    def close(self):
        if self.process:
            self.process.send_signal(signal.SIGKILL if MOONCAKE else signal.SIGTERM)  # if killed, ours would leave its node
            self.process.wait()
        if self.node and self.process is None:
            self.node.__exit__()
        elif self.node:
            shutil.rmtree(self.node.directory, ignore_errors=True)
            shutil.rmtree(self.node.shm, ignore_errors=True)
        self.process = self.node = None

    def open(self, segment=0, buffer=16 * MIB, hostname="localhost", **keywords):
        """A store that is set up, with all the seven arguments by position."""
        self.use()
        one = MooncakeDistributedStore()
        code = one.setup(hostname, "P2PHANDSHAKE", segment, buffer, "tcp", "", self.address, **keywords)
        if code != 0:
            raise AssertionError(f"setup gave {code}\n{self.node.logs() if self.node else ''}")
        return one


class Memory:
    """Anonymous memory as engines have it; address is its start, which is registered."""

    def __init__(self, length, store=None):
        self.length = length
        self.map = mmap.mmap(-1, max(length, 1))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.store = store
        if store is not None and store.register_buffer(self.address, length) != 0:
            raise AssertionError("register_buffer failed")

    def write(self, value, at=0):
        """Returns the address of the written bytes."""
        self.map[at:at + len(value)] = value
        return self.address + at

    def read(self, length, at=0):
        return self.map[at:at + length]

    def clear(self, byte=0xEE):
        self.map[:] = bytes([byte]) * self.length


def value_of(key, length):
    """Bytes that differ for every key."""
    return hashlib.shake_128(str(key).encode()).digest(length)


def config(**fields):
    one = ReplicateConfig()
    for name, value in fields.items():
        setattr(one, name, value)
    return one


_pools = {}


def shared_pool(**settings):
    """One that lives as long as this process."""
    name = json.dumps(settings, sort_keys=True)
    if name not in _pools:
        _pools[name] = Pool(**settings)
    _pools[name].use()
    return _pools[name]


@atexit.register
def close_pools():
    for pool in _pools.values():
        pool.close()


class OnPool(unittest.TestCase):
    """Tests with a store for the class on a pool that classes share, and keys that no other test has."""

    pool_settings = {}
    segment = 64 * MIB
    buffer = 16 * MIB

    @classmethod
    def setUpClass(cls):
        cls.pool = shared_pool(**cls.pool_settings)
        cls.store = cls.pool.open(cls.segment, cls.buffer)
        cls.addClassCleanup(cls.store.close)

    def key(self, name="k"):
        return f"{self.id().rsplit('.', 1)[1]}/{name}"

    def keys(self, count, name="k"):
        return [self.key(f"{name}{i}") for i in range(count)]

    def memory(self, length, store=None):
        """Memory that is registered with the store until the test ends."""
        one = Memory(length, store or self.store)
        self.addCleanup(lambda: one.store.unregister_buffer(one.address))  # keeps the memory mapped until then
        return one

    def opened(self, *arguments, **keywords):
        one = self.pool.open(*arguments, **keywords)
        self.addCleanup(one.close)
        return one

    def stored(self, name="k", length=1000, **how):
        """Puts a key; returns it and its value."""
        key = self.key(name)
        value = value_of(key, length)
        self.assertEqual(self.store.put(key, value, **how), 0)
        return key, value

    def assert_plain(self, result, expected):
        """A real list of plain ints, as connectors expect."""
        self.assertIs(type(result), list)
        self.assertEqual(result, expected)
        self.assertEqual({type(one) for one in result} - {int}, set())

    def assert_absent(self, key):
        self.assertEqual(self.store.is_exist(key), 0)
        self.assertEqual(self.store.get_size(key), NOT_FOUND)
        self.assertEqual(self.store.get(key), b"")

    def eventually(self, code, call, *allowed):
        """Repeats until it returns code; until then only allowed codes."""
        def once():
            seen = call()
            self.assertIn(seen, (code, *allowed))
            return seen == code

        wait_until(once, 10, f"{code} of {call}")


class Child:
    """Another process that runs a function of the test's file: it prints JSON lines and reads them, and can be killed."""

    def __init__(self, function, *arguments, pool=None):
        environment = dict(os.environ) if MOONCAKE else python_support.environment()
        if pool is not None and not MOONCAKE:
            environment = {name: value for name, value in environment.items() if name not in PLACES}
            environment.update(pool.environment())
        script = os.path.realpath(sys.modules[function.__module__].__file__)
        self.process = subprocess.Popen([sys.executable, script, "--child", function.__name__, json.dumps(arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                self.lines.put(json.loads(line[1:]))
        self.lines.put(EOFError("the other process ended"))

    def child_line(self, seconds=20):
        """Its next line."""
        said = self.lines.get(timeout=seconds * PATIENCE)
        if isinstance(said, Exception):
            raise said
        return said

    def tell(self, what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait()

    def end(self, seconds=20):
        """Ends it and returns its exit code."""
        self.process.stdin.close()
        return self.process.wait(seconds * PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


def say(what):
    """Called in a child."""
    sys.stdout.write("@" + json.dumps(what) + "\n")
    sys.stdout.flush()


def child_read():
    """Called in a child: None at the end of the input."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def lease_over(pool=None):
    """Waits as long as a lease lasts."""
    time.sleep((pool.lease_ms if pool else LEASE_MS) / 1000 + 0.05)


def main():
    if sys.argv[1:2] == ["--child"]:
        getattr(sys.modules["__main__"], sys.argv[2])(*json.loads(sys.argv[3]))
        sys.stdout.flush()
        return
    if not MOONCAKE and not os.path.exists(os.path.join(BIN, "sluice-registrar")):
        print(f"skipped: no programs in {BIN}")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    suite.run()
