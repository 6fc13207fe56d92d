"""What the tests of the Python package share: the package that was built (or, with SLUICE_TEST_PACKAGE=installed, the one
that pip installed), and clients of a test's node."""

import os
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "node"))
PACKAGE = os.environ.get("SLUICE_TEST_PACKAGE", os.path.join(ROOT, "build", "release", "python"))
LIBASAN = os.environ.pop("SLUICE_TEST_PRELOAD", "")
NO_LEAKS = ":detect_leaks=0"
if LIBASAN and "LD_PRELOAD" not in os.environ:
    # A sanitizer's runtime comes first in its process, which is the interpreter here. The interpreter itself is not
    # sanitized and leaves memory behind at its end. Its own allocator would hide what is overrun or used after free.
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

import sluice  # noqa: E402


def environment():
    """Of a process that uses the package too."""
    preload = {"SLUICE_TEST_PRELOAD": LIBASAN} if LIBASAN else {}
    return {**os.environ, **preload, "SLUICE_TEST_PACKAGE": PACKAGE}


def client(node, **options):
    """A client of the node of a test."""
    settings = {"runtime_dir": node.directory + "/run", "shm_dir": node.shm, **options.pop("settings", {})}
    return sluice.Client(node.instance, settings=settings, **options)
