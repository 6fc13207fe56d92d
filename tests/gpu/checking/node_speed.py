"""Runs engines on the GPU with a real node (engine_speed). Prints one line of JSON; exits with 77 and the reason where the node has no GPU.

    node_speed.py whole|layers|kill SECONDS PIECE_BYTES,LAYERS,BLOCKS...

One engine after the other, each of the shape and for the time given. whole, layers: stores and loads all at once, or layer by layer. kill:
the swapper is killed (-9) in the middle; ops may fail until then, loaded bytes must be right, and a new swapper must serve the rest."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "node"))
from node_support import BIN, Node, wait_until  # noqa: E402

PIN_SECONDS = 20  # a node gets its memory in the background (populate_threads), and pins it as it arrives
COUNTERS = ("copies", "copies_repeated", "pinned_bytes", "bounced_bytes", "dma_copies", "dma_batches", "kernels")


def swapper_of(node):
    pages = json.loads(node.ctl("status", "--json", check=False).stdout)["actors"]
    return next((page for page in pages if page["name"] == "swapper.0"), None)


def reason_of(node):
    page = swapper_of(node)
    return page and page.get("reason")


def figures_copy(node):
    """Copies the results of an earlier `bench gpu` to where this node looks for them, so that it measures nothing during the copies."""
    known = glob.glob(os.path.join(os.environ.get("CHECKUP_CACHE", ""), "cache", "crossover-*"))
    os.makedirs(node.directory + "/run/cache", exist_ok=True)
    for path in known if "CHECKUP_CACHE" in os.environ else []:
        shutil.copy(path, node.directory + "/run/cache")


def pinned_in(node, memory_bytes, seconds):
    """Whether all of the arena is pinned within that time; until it is, copies take another path."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if swapper_of(node)["counters"].get("pinned_bytes") == memory_bytes:
            return True
        time.sleep(0.1)
    return False


def speed(node, way, shape, seconds):
    command = [os.path.join(BIN, "..", "tests", "engine_speed"), node.instance, node.directory + "/run", node.shm, *map(str, shape), str(seconds),
               way]
    return subprocess.Popen(command, env=node.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, node):
    out, err = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"engine_speed ended with {process.returncode}: {err.strip()[-500:]}\n{node.logs()}")
    return json.loads(out.strip().splitlines()[-1]), err


def killed(node, process):
    """Kills the swapper while the engine runs. Returns its pid."""
    line = process.stdout.readline()
    if line != "running\n":
        return None  # ended() reports why
    pid = node.pid("swapper.0")
    os.kill(pid, signal.SIGKILL)
    node.wait_restarted("swapper.0", pid)
    return pid


def engine_run(node, way, shape, seconds):
    """(rows, notes) of one engine."""
    process = speed(node, "whole" if way == "kill" else way, shape, seconds)
    try:
        pid = killed(node, process) if way == "kill" else None
        said, err = ended(process, node)
    finally:
        process.kill()
    page = swapper_of(node)
    row = {"kind": "node", "way": way, **{name: said[name] for name in ("piece_bytes", "layers", "blocks", "rounds")},
           "counters": {name: page["counters"].get(name) for name in COUNTERS}}
    rows = [dict(row, direction="out", **said["store"]), dict(row, direction="in", **said["load"])]
    for row in rows if way != "layers" else []:
        del row["first_layer_ms"]
    notes = [line for line in err.splitlines() if line][:10]
    if way == "kill":
        if pid is None or page["incarnation"] < 2:
            raise SystemExit(f"no other swapper serves: {page}")
        notes.append(f"the swapper was killed; the worst store took {said['store']['worst_ms']:.0f} ms, "
                     f"the worst load {said['load']['worst_ms']:.0f} ms")
    return rows, notes


def main():
    way, seconds, shapes = sys.argv[1], int(sys.argv[2]), [[int(number) for number in word.split(",")] for word in sys.argv[3:]]
    pool_bytes = max(piece * layers * blocks for piece, layers, blocks in shapes)
    # Memory for the values of eight rounds: later ones evict the first. A load of more than an eighth of the memory is split, and layer by
    # layer its first part arrives whole.
    memory_mib = max(64, 4 * pool_bytes >> 20)
    node = Node(ranks=1, memory=f"{memory_mib}MiB", settings=("--device", "auto", "--swap-measure", "true" if way != "kill" else "false"))
    figures_copy(node)
    rows, notes = [], []
    with node:
        reason = wait_until(lambda: reason_of(node), 5, "the swapper's reason in status")
        if not reason.startswith("device cuda: "):
            print("skipped:", reason)
            return 77
        if not pinned_in(node, memory_mib << 20, PIN_SECONDS):
            notes.append(f"the arena of {memory_mib} MiB was not pinned within {PIN_SECONDS} s, and copies go on in another way until it is")
        for shape in shapes:
            more = engine_run(node, way, shape, seconds)
            rows += more[0]
            notes += more[1]
    print(json.dumps({"rows": rows, "notes": notes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
