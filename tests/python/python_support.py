"""Shared code of the tests of the Python package: the package of this build (or, with SLUICE_TEST_PACKAGE=installed, the one that pip
installed), and clients of a test's node."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "node"))
PACKAGE = os.environ.get("SLUICE_TEST_PACKAGE", os.path.join(ROOT, "build", "release", "python"))
LIBASAN = os.environ.pop("SLUICE_TEST_PRELOAD", "")
NO_LEAKS = ":detect_leaks=0"
if LIBASAN and "LD_PRELOAD" not in os.environ:
    # A sanitizer's runtime has to be loaded first in its process, here the interpreter. The interpreter itself is not sanitized and leaks
    # memory at its end. Its own allocator would hide overruns and uses after free.
    os.environ.update(LD_PRELOAD=LIBASAN, PYTHONMALLOC="malloc",
                      ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + NO_LEAKS)
    os.execv(sys.executable, [sys.executable, *sys.argv])
os.environ.pop("SLUICE_TEST_PACKAGE", None)  # no setting of a node
LIBASAN = os.environ.pop("LD_PRELOAD", "")  # the node's processes bring their own
if LIBASAN:
    os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "").removesuffix(NO_LEAKS)
if PACKAGE != "installed":
    if not os.path.isdir(os.path.join(PACKAGE, "sluice")):
        print(f"skipped: no Python package in {PACKAGE}: it was built without CPython's headers")
        sys.exit(77)
    sys.path.insert(0, PACKAGE)

import sluice.weights  # noqa: E402
from node_support import PATIENCE, Node  # noqa: E402


def weights_wait(case):
    """Makes the digest of files finish in time, even on a busy machine."""
    patched = mock.patch.object(sluice.weights, "WAIT_SECONDS", 100 * PATIENCE)
    patched.start()
    case.addCleanup(patched.stop)


def weights_make(case, text):
    """A directory with a model's weights, for one test."""
    weights_wait(case)
    directory = tempfile.mkdtemp()
    case.addCleanup(shutil.rmtree, directory)
    with open(os.path.join(directory, "model.safetensors"), "w", encoding="utf-8") as file:
        file.write(text)
    return directory


def environment():
    """Environment of a process that also uses the package."""
    preload = {"SLUICE_TEST_PRELOAD": LIBASAN} if LIBASAN else {}
    return {**os.environ, **preload, "SLUICE_TEST_PACKAGE": PACKAGE}


def interpreter(program, **environment):
    """Runs a program in an interpreter of its own, with the package; returns the result."""
    variables = {**os.environ, **environment, "PYTHONPATH": "" if PACKAGE == "installed" else PACKAGE}
    if LIBASAN:
        variables.update(LD_PRELOAD=LIBASAN, PYTHONMALLOC="malloc", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + NO_LEAKS)
    return subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=60 * PATIENCE)


def _others_at_rest(but):
    """{thread: number of its context switches} of all other threads of this process, which sleep; None: one of them does not."""
    switches = {}
    for thread in os.listdir("/proc/self/task"):
        if int(thread) not in (threading.get_native_id(), but):
            try:
                with open(f"/proc/self/task/{thread}/status", encoding="utf-8") as status:
                    rows = dict(line.split(":\t", 1) for line in status)
            except OSError:
                return None
            if not rows["State"].startswith("S"):
                return None
            switches[thread] = rows["voluntary_ctxt_switches"] + rows["nonvoluntary_ctxt_switches"]
    return switches


def fork(but=0):
    """os.fork() for processes with threads. For a fork, libc takes its allocator's locks; a sanitizer's runtime does not, so its child
    would wait forever for a lock that another thread held. With a sanitizer, the child therefore continues only if no other thread ran
    meanwhile; otherwise the fork is repeated. but: native id of a thread that may run, since it hardly ever allocates."""
    if not LIBASAN:
        return os.fork()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        before = _others_at_rest(but)
        if before is None:
            time.sleep(0.001)
            continue
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(there)
            if os.read(here, 1) != b"g":
                os._exit(0)
            os.close(here)
            return 0
        os.close(here)
        with open(there, "wb", buffering=0) as gate:
            if _others_at_rest(but) == before:
                gate.write(b"g")
                return child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raise AssertionError("other threads never rested during a fork")


def client(node, **options):
    """A client of a test's node."""
    settings = {"runtime_dir": node.directory + "/run", "shm_dir": node.shm, "op_timeout": f"{10 * PATIENCE}s", **options.pop("settings", {})}
    return sluice.Client(node.instance, settings=settings, **{"timeout": 10 * PATIENCE, **options})


class OnNode(unittest.TestCase):
    """Tests on one node a class, which is empty when a test begins; self.client is only for that test."""

    settings = {"ranks": 1, "memory": "64MiB"}  # settings of the node
    client_settings = {}

    @classmethod
    def setUpClass(cls):
        cls.node = Node(**cls.settings)
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__)

    def setUp(self):
        self.client = client(self.node, settings=self.client_settings)
        self.addCleanup(self.client.close)
        self.client.remove_all()
