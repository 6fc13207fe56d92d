"""The steps of the check-up, the most important first in case time runs out."""

import json
import os
import shutil
import subprocess
import sys

import sanitizer
from runner import Step, plain_read

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", "..", ".."))
BUILD = os.path.join(ROOT, "build", "release")
BIN, TESTS, PLAYED = (os.path.join(BUILD, *parts) for parts in (("bin",), ("tests",), ("tests", "fake")))
PACKED_SANITIZER = os.path.join(ROOT, "sanitizer", "bin", "compute-sanitizer")
TOOLKIT_SANITIZERS = ("/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
                      "/opt/cuda/extras/compute-sanitizer/compute-sanitizer", PACKED_SANITIZER)
SPARE = os.path.join(BUILD, "spare")  # in an archive: libraries for a machine that lacks them
DRIVERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/usr/lib64-nvidia")
UNRELEASED_BYTES_MAX = 64 << 20  # other processes may allocate this much meanwhile
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BENCHES = (
    ("small", "4 to 28 KiB, by every way", 0, "4KiB,16KiB,28KiB", "1000,10000,100000", "scattered", "tmpfs"),
    ("large", "64 and 256 KiB, by every way", 0, "64KiB,256KiB", "1000,10000,100000", "scattered", "tmpfs"),
    ("cap", "the same on eight multiprocessors", 8, "4KiB,16KiB,28KiB,64KiB,256KiB", "1000,10000", "scattered", "tmpfs"),
    ("order", "values one after the other, and layer by layer", 0, "4KiB,16KiB,28KiB,64KiB,256KiB", "10000", "adjacent,layers", "tmpfs"),
    ("pinned", "memory of the driver's own", 0, "4KiB,28KiB,64KiB", "10000", "scattered", "pinned"),
)
BENCHES_PLAYED = (
    ("small", BENCHES[0][1], 0, "4KiB,16KiB,28KiB", "1000", "scattered", "tmpfs"),
    ("large", BENCHES[1][1], 0, "64KiB,256KiB", "60", "scattered", "tmpfs"),
    ("cap", BENCHES[2][1], 8, "4KiB", "1000", "scattered", "tmpfs"),
    ("order", BENCHES[3][1], 0, "4KiB", "1000", "adjacent,layers", "tmpfs"),
    ("pinned", BENCHES[4][1], 0, "4KiB", "1000", "scattered", "pinned"),
)
BENCH_SECONDS, BENCH_LIMIT_S = 45, 75  # no row starts later; a row takes seconds, and before it the fastest copy path is measured


def room():
    """(bytes of memory available to processes, bytes of shared memory that are free)"""
    with open("/proc/meminfo", encoding="ascii") as lines:
        memory = next(int(line.split()[1]) * KIB for line in lines if line.startswith("MemAvailable:"))
    try:
        shared = os.statvfs("/dev/shm")
    except OSError:
        return memory, 0
    return memory, shared.f_bavail * shared.f_frsize


class Sizes:
    """How much is measured. Played: seconds in all, on a CPU that plays a GPU. Otherwise as much as the machine has memory for."""

    def __init__(self, played):
        memory, shared = room()
        self.bench_bytes = 32 * MIB if played else min(7 * GIB, memory // 4, shared // 2)
        # Name, title, multiprocessors of a kernel, sizes, counts, layout of values on the host, kind of host memory.
        self.benches = BENCHES_PLAYED if played else BENCHES
        self.shapes = "1" if played else "7"  # shapes of gpu_test under the sanitizers: all but the largest pieces
        self.register_bytes = 64 * MIB if played else min(2 * GIB, memory // 4)
        # PIECE,LAYERS,BLOCKS of engines. A node has four times the bytes of the largest in shared memory; so has the engine itself.
        self.kill = ("16384,4,64",) if played else ("65536,8,128",)
        self.node = ("16384,8,64",) if played else ("65536,64,512", "28672,32,512", "4096,32,512")
        self.layers = self.node[:1]
        if not played and min(shared, memory // 2) < 10 * GIB:
            self.node = ("65536,8,128", "28672,8,128", "4096,8,128")
            self.layers = ("65536,8,128",)
        self.seconds = 1 if played else 4


def rows_of(results, kind):
    return [row for result in results for row in result["rows"] if row.get("kind") == kind]


def bench_read(ran, results):
    """Rows of `bench gpu --json`, each with its limits."""
    if not ran.out.startswith("{"):
        return {"reason": ran.err.strip()[-300:] or "it printed nothing"}
    said = json.loads(ran.out)
    if "error" in said:
        return {"skipped": said["text"]} if said["error"] == "SL_ERR_UNSUPPORTED" else {"reason": said["text"]}
    link = next((row["link"]["limit_gb_per_s"] for row in rows_of(results, "device")), None)
    rows = [dict({"kind": "bench"}, **row, bytes=row["piece_bytes"] * row["pieces"], best_gb_per_s=max(row["ways"].values()),
                 link_gb_per_s=link) for row in said["rows"]]
    notes = [said["device"], said["note"], f"{said['rows_late']} rows left out for lack of time" if said["rows_late"] else ""]
    return {"rows": rows, "notes": [note for note in notes if note]}


def pinned_limit(results, direction):
    """GB/s of one large pinned copy, as the bench measured it."""
    limits = [row["limit_gb_per_s"] for row in rows_of(results, "bench") if row["direction"] == direction and row["bytes"] >= 4 * MIB]
    return max(limits, default=None)


def with_pinned_limit(ran, results):
    """A probe's rows, each with the bench's limit for its direction."""
    said = plain_read(ran, results)
    for row in said.get("rows", []):
        if "direction" in row:
            row["pinned_gb_per_s"] = pinned_limit(results, row["direction"])
    return said


def memory_released_read(ran, results):
    """The device's free memory, and the number of pages that drivers hold pinned, are as at the start."""
    now = {row["kind"]: row for row in plain_read(ran, results).get("rows", [])}
    first = {row["kind"]: row for row in reversed(rows_of(results, "device") + rows_of(results, "machine"))}
    lost = {}
    for kind, field, sign, unit in (("device", "free_bytes", -1, 1), ("machine", "pinned_pages", 1, os.sysconf("SC_PAGE_SIZE"))):
        before, after = (said.get(kind, {}).get(field) for said in (first, now))
        if before is not None and after is not None:
            lost[field] = sign * (after - before) * unit
    if "free_bytes" not in lost:
        return {"skipped": "free memory is unknown for the start or for now"}
    wrong = [f"{what}: {number} bytes were not released" for what, number in lost.items() if number > UNRELEASED_BYTES_MAX]
    return {"rows": [{"kind": "given back", **lost}], "reason": "; ".join(wrong) or None}


def sanitizer_program(played):
    if played:
        return os.path.join(HERE, "played", "compute-sanitizer")
    return shutil.which("compute-sanitizer") or next(filter(os.path.exists, TOOLKIT_SANITIZERS), "compute-sanitizer")


def all_steps(work, played):
    """The steps. work: a folder that they share; the bench records the fastest copy path there, and nodes read it."""
    sizes = Sizes(played)

    def script(name, *words):
        return [sys.executable, os.path.join(HERE, name), *map(str, words)]

    def bench(name, title, cap, lengths, counts, values, host):
        command = [os.path.join(BIN, "sluicectl"), "bench", "gpu", "--json", "--total", str(sizes.bench_bytes), "--seconds", str(BENCH_SECONDS),
                   "--swap-multiprocessors", str(cap), "--sizes", lengths, "--counts", counts, "--values", values, "--host", host,
                   "--runtime-dir", os.path.join(work, "bench")]
        return Step(f"bench-{name}", title, command, BENCH_LIMIT_S, read=bench_read)

    gpu_test = os.path.join(TESTS, "gpu_test")
    facts = script("facts.py")
    steps = [
        Step("programs", "the packed programs start here", [os.path.join(BIN, "sluicectl"), "--help"], 10),
        Step("device", "driver, device, link, modes", facts, 30),
        # In one process: on a machine without persistence mode each first context of a process costs seconds.
        Step("gpu_test-ways", "every way and shape there and back", [gpu_test], 100,
             environment={"CK_FORK": "no", "CK_RUN_CASE": "ways", "SLUICE_TEST_SHAPES": "3" if played else "9"}),
        Step("gpu_test-others", "memory of other processes, bytes of the bench", [gpu_test], 60,
             environment={"CK_RUN_CASE": "gpu"}),
        *(bench(*one) for one in sizes.benches),
        Step("node", "stores and loads through a node", script("node_speed.py", "whole", sizes.seconds, *sizes.node), 70, needs=("bash",),
             read=with_pinned_limit),
        Step("node-layers", "the same layer by layer", script("node_speed.py", "layers", sizes.seconds, *sizes.layers), 50, needs=("bash",),
             read=with_pinned_limit),
        Step("node-kill", "the swapper is killed in the middle", script("node_speed.py", "kill", sizes.seconds, *sizes.kill), 60, needs=("bash",)),
        Step("device-node", "which device a node takes", [sys.executable, os.path.join(HERE, "..", "device_node_test.py")]
             + ([PLAYED] if played else []), 60, needs=("bash",)),
        Step("registration", "what pinning costs", script("registration.py", sizes.register_bytes), 40),
    ]
    for part, title in (("plain", "tensors of torch's allocator"), ("expandable", "tensors in expandable segments"),
                        ("capture", "puts and gets while a graph is captured"), ("order", "the default stream's order"),
                        ("beside", "copies beside a matmul loop")):
        steps.append(Step(f"torch-{part}", title, script("torch_probe.py", part, *(["small"] if played else [])), 60, needs=("bash",),
                          read=with_pinned_limit, environment={"PYTHONPATH": os.path.join(HERE, "played")} if played else None))
    checker = sanitizer_program(played)
    for tool in ("memcheck", "racecheck", "initcheck"):
        # In one process, and only the moves: every context that is opened costs seconds under the tool.
        words = ["--leak-check", "full"] if tool == "memcheck" else []
        steps.append(Step(f"sanitizer-{tool}", f"compute-sanitizer's {tool} over the kernels",
                          [checker, "--tool", tool, "--target-processes", "all", *words, gpu_test], 75, needs=(checker,),
                          environment={"CK_FORK": "no", "CK_RUN_CASE": "ways", "SLUICE_TEST_SHAPES": sizes.shapes}, read=sanitizer.reader(tool)))
    steps.append(Step("given-back", "device memory is released", facts, 30, read=memory_released_read))
    return steps


def loads(library):
    """Whether a process finds the library by itself."""
    return subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{library}')"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def library_path():
    """LD_LIBRARY_PATH for a machine whose driver is not in the loader's path, or which lacks the library of C++."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if not loads("libcuda.so.1"):
        folders += [folder for folder in DRIVERS if os.path.exists(os.path.join(folder, "libcuda.so.1"))][:1]
    if os.path.isdir(SPARE) and not (loads("libstdc++.so.6") and loads("libgcc_s.so.1")):
        folders.append(SPARE)
    return ":".join(folder for folder in folders if folder)


def environment(work, played):
    """The environment of every step."""
    found = {"SLUICE_BIN": BIN, "CHECKUP_CACHE": os.path.join(work, "bench"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    path = library_path()
    if played:
        path = f"{PLAYED}:{path}".strip(":")
        found.update(FAKE_CUDA_SHARED="1", SLUICE_TEST_DRIVER=os.path.join(PLAYED, "libcuda.so.1"))
    if path:
        found["LD_LIBRARY_PATH"] = path
    return found
