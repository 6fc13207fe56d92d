"""Tensors of torch, through mooncake.store in this process. Prints one line of JSON; exits with 77 and the reason where there is no torch.

    torch_probe.py plain|expandable|capture|order|beside [small]

plain, expandable: batches of puts and gets between tensors and a node, byte for byte, from either allocator; and an engine whose tensors
the node's swapper maps by their addresses. capture: the same from a thread while another captures a graph. order: a put directly after work
on the default stream. beside: copies, by this process and by a node's swapper, while matrices are multiplied: what each side loses. small:
sizes for a CPU that plays the GPU."""

import json
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "tests", "node"), os.path.join(ROOT, "build", "release", "python")]
SMALL = sys.argv[2:] == ["small"]
MIB = 1 << 20
OTHER_PYTHONS = ("/opt/conda/bin/python", "/opt/venv/bin/python", "/usr/bin/python3")
MASTER = "127.0.0.1:50051"  # nothing listens there: SLUICE_INSTANCE selects the node
ROUNDS = 3 if SMALL else 5
MEMORY_SHARE = 4  # multiple of a tensor's size that is the node's memory
CAPTURE_SECONDS_MAX = 15
BESIDE_SECONDS = 0.3 if SMALL else 2.0


class Skipped(Exception):
    pass


def torch_import():
    """Imports a torch with a GPU, in this interpreter or in another that is known to have it."""
    try:
        import torch
    except ImportError:
        tried = os.environ.get("CHECKUP_TRIED", "").split(":")
        for python in OTHER_PYTHONS:
            if os.path.exists(python) and python not in tried and os.path.realpath(python) != os.path.realpath(sys.executable):
                os.environ["CHECKUP_TRIED"] = ":".join([*tried, python])
                os.execv(python, [python, *sys.argv])
        raise Skipped("no torch here") from None
    if not torch.cuda.is_available():
        raise Skipped(f"torch {torch.__version__} finds no GPU")
    return torch


def store_import():
    """Imports the store after torch, whose libraries have to be loaded first."""
    if sys.version_info < (3, 11):
        raise Skipped(f"the packages want CPython 3.11, here is {sys.version.split()[0]}")
    try:
        from mooncake.store import MooncakeDistributedStore
    except ImportError as wrong:
        raise Skipped(f"mooncake.store: {wrong}") from None
    return MooncakeDistributedStore


def must(right, what):
    if not right:
        raise SystemExit(what)


class Bed:
    """A node, a store on it, and two registered tensors: source of puts, target of gets."""

    def __init__(self, length_bytes):
        from node_support import Node

        self.torch = torch_import()
        make = store_import()
        self.node = Node(ranks=1, memory=f"{max(64, MEMORY_SHARE * length_bytes // MIB)}MiB",
                         settings=("--device", "auto", "--lease-ttl", "500ms"))
        self.node.__enter__()
        try:
            os.environ.update(SLUICE_INSTANCE=self.node.instance, SLUICE_RUNTIME_DIR=self.node.directory + "/run", SLUICE_SHM_DIR=self.node.shm)
            self.store = make()
            must(self.store.setup("localhost", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", MASTER) == 0, "setup of the store failed")
            self.source, self.target = self.tensor(length_bytes), self.tensor(length_bytes)
            self.source.random_(0, 256)
            self.torch.cuda.synchronize()
            self.register(self.source)
            self.register(self.target)
            self.count = 0
        except BaseException:
            self.close()
            raise

    def tensor(self, length_bytes):
        return self.torch.empty(length_bytes, dtype=self.torch.uint8, device="cuda")

    def register(self, tensor):
        code = self.store.register_buffer(tensor.data_ptr(), tensor.numel())
        must(code == 0, f"register_buffer gave {code}")

    def close(self):
        if hasattr(self, "store"):
            self.store.close()
        self.node.__exit__(None, None, None)

    def there_and_back(self, piece_bytes, pieces):
        """(seconds of the put, seconds of the get) of new keys; every byte is compared."""
        keys = [f"{os.getpid()}-{self.count}-{i}" for i in range(pieces)]
        sizes = [piece_bytes] * pieces
        self.count += 1
        self.target.zero_()
        self.torch.cuda.synchronize()
        start = time.monotonic()
        codes = self.store.batch_put_from(keys, [self.source.data_ptr() + i * piece_bytes for i in range(pieces)], sizes)
        put = time.monotonic() - start
        must(codes == [0] * pieces, f"batch_put_from gave {sorted(set(codes))}")
        # In reverse, so that neither side has the order of the other.
        start = time.monotonic()
        got = self.store.batch_get_into(keys, [self.target.data_ptr() + (pieces - 1 - i) * piece_bytes for i in range(pieces)], sizes)
        took = time.monotonic() - start
        must(got == sizes, f"batch_get_into gave {sorted(set(got))}")
        whole = piece_bytes * pieces
        want = self.source[:whole].view(pieces, piece_bytes).flip(0).reshape(-1)
        must(self.torch.equal(self.target[:whole], want), f"bytes differ: {pieces} pieces of {piece_bytes}")
        removed = self.store.batch_remove(keys, True)
        must(removed == [0] * pieces, f"batch_remove gave {sorted(set(removed))}")
        return put, took


    def warm(self):
        """This process pins the parts of the arena that it has used, while it copies: two rounds, so that all of it is pinned."""
        for _ in range(2 * MEMORY_SHARE):
            self.there_and_back(MIB, self.source.numel() // MIB)


def inside_a_segment(bed):
    """Small tensors, which the allocator cuts out of one segment: they begin at any address that the driver knows."""
    small = [bed.tensor(300_032) for _ in range(4)]
    source, target = small[1], small[3]
    source.random_(0, 256)
    target.zero_()
    bed.torch.cuda.synchronize()
    bed.register(source)
    bed.register(target)
    must(bed.store.put_from("inside", source.data_ptr() + 512, 200_000) == 0, "put_from of a small tensor failed")
    must(bed.store.get_into("inside", target.data_ptr() + 1024, 200_000) == 200_000, "get_into a small tensor failed")
    must(bed.torch.equal(source[512:200_512], target[1024:201_024]), "bytes of a small tensor differ")
    must(int((target[201_024:] != 0).sum()) == 0, "a get wrote past its end")


def as_an_engine(bed):
    """Tensors that are registered by their addresses: the node's swapper maps them, stores blocks of them and loads them into others.
    Returns the kind of their memory, or why it cannot be shared."""
    import sluice

    layers, blocks, piece, tokens = 4, 16, 65536, 4
    caches = [bed.tensor(blocks * piece) for _ in range(layers)]
    for cache in caches:
        cache.random_(0, 256)
    bed.torch.cuda.synchronize()
    half = blocks // 2
    words = list(range(half * tokens))
    pool = sluice.Pool("kv", sluice.POOL_ATTENTION, [sluice.Layer(0, blocks * piece, piece, piece)] * layers,
                       device=[[cache.data_ptr() for cache in caches]])
    with sluice.Client() as client:
        try:
            engine = client.engine("torch", pools=[pool], block_tokens=tokens, block_count=blocks, model={"name": "torch"})
        except sluice.UnsupportedError as reason:
            return f"not registered: {reason}"
        with engine:
            until = time.monotonic() + 10
            while True:  # the swapper may not have sent its HELLO to the registrar yet
                try:
                    engine.store(words, list(range(half))).wait()
                    break
                except sluice.IncompleteError:
                    must(time.monotonic() < until, "blocks of registered tensors were not stored in time")
            for cache in caches:
                cache[half * piece:].zero_()
            bed.torch.cuda.synchronize()
            got = engine.load(words, list(range(half, blocks))).wait()
            must(got.block_count == half, f"{got.block_count} of {half} blocks of registered tensors were loaded")
            for cache in caches:
                must(bed.torch.equal(cache[:half * piece], cache[half * piece:]), "bytes of registered tensors differ")
            return f"registered as {engine.memory_kind()}"


def tensors(allocator):
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    bed = Bed((8 if SMALL else 512) * MIB)
    rows = []
    try:
        inside_a_segment(bed)
        registered = as_an_engine(bed)
        bed.warm()
        for piece_bytes, pieces in ((4096, 1000), (28672, 100), (65536, 100)) if SMALL else (
                (4096, 1000), (16384, 1000), (28672, 1000), (65536, 1000), (262144, 1000)):
            if piece_bytes * pieces > bed.source.numel():
                continue
            times = [bed.there_and_back(piece_bytes, pieces) for _ in range(ROUNDS)]
            for what, direction, index in (("put", "out", 0), ("get", "in", 1)):
                median = sorted(one[index] for one in times)[ROUNDS // 2]
                rows.append({"kind": "torch", "what": what, "direction": direction, "allocator": allocator, "piece_bytes": piece_bytes,
                             "pieces": pieces, "gb_per_s": round(piece_bytes * pieces / median / 1e9, 3),
                             "us_per_object": round(median / pieces * 1e6, 3)})
    finally:
        bed.close()
    return rows, [f"torch {bed.torch.__version__}, {bed.torch.cuda.get_device_name(0)}", f"tensors of an engine: {registered}"]


class Loop:
    """Puts and gets repeatedly in a thread, at least once; end() raises its failure."""

    def __init__(self, bed, piece_bytes, pieces):
        self.bed, self.shape, self.seconds, self.wrong, self.over = bed, (piece_bytes, pieces), [], None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        store, (piece_bytes, pieces) = self.bed.store, self.shape
        sizes = [piece_bytes] * pieces
        put_to = [self.bed.source.data_ptr() + i * piece_bytes for i in range(pieces)]
        got_to = [self.bed.target.data_ptr() + i * piece_bytes for i in range(pieces)]
        while (not self.over or not self.seconds) and self.wrong is None:
            keys = [f"loop-{self.bed.count}-{len(self.seconds)}-{i}" for i in range(pieces)]
            start = time.monotonic()
            codes = store.batch_put_from(keys, put_to, sizes)
            got = store.batch_get_into(keys, got_to, sizes)
            self.seconds.append(time.monotonic() - start)
            if codes != [0] * pieces or got != sizes:
                self.wrong = f"put gave {sorted(set(codes))}, get {sorted(set(got))}"
            store.batch_remove(keys, True)

    def end(self):
        """Returns GB/s of both directions together."""
        self.over = True
        self.thread.join(20)
        must(not self.thread.is_alive(), "puts and gets hang")
        must(self.wrong is None, str(self.wrong))
        return 2 * self.shape[0] * self.shape[1] * len(self.seconds) / sum(self.seconds) / 1e9


def capture():
    """Captures a graph, in the strictest mode, while another thread puts and gets: both must be right."""
    bed = Bed((4 if SMALL else 64) * MIB)
    torch, rows = bed.torch, []
    try:
        for mode in ("global", "thread_local", "relaxed"):
            total = torch.zeros(1024, device="cuda")
            one = torch.ones(1024, device="cuda")
            torch.cuda.synchronize()
            bed.count += 1
            loop = Loop(bed, 16384, 100)
            graph = torch.cuda.CUDAGraph()
            wrong, during = None, 0
            try:
                with torch.cuda.graph(graph, capture_error_mode=mode):
                    before, start = len(loop.seconds), time.monotonic()
                    # Two, since the first may have begun before the capture.
                    while during < 2 * 100 and loop.wrong is None and time.monotonic() < start + CAPTURE_SECONDS_MAX:
                        total += one
                        time.sleep(0.01)
                        during = (len(loop.seconds) - before) * 100
            except RuntimeError as failure:
                wrong = str(failure).splitlines()[0]
            loop.end()
            must(wrong is None, f"a capture in mode {mode} was spoilt: {wrong}")
            must(during >= 200, f"within {CAPTURE_SECONDS_MAX} s nothing was put and got while a graph was captured in mode {mode}")
            before = float(total[0])
            graph.replay()
            torch.cuda.synchronize()
            must(float(total[0]) > before, "the graph does nothing")
            rows.append({"kind": "torch", "what": f"capture, {mode}", "pieces": during, "piece_bytes": 16384})
    finally:
        bed.close()
    return rows, []


def order():
    """Checks which bytes a put reads when it directly follows work on the default stream. The contract requires a wait before the put:
    after a wait, the put must read what the work wrote."""
    bed = Bed((2 if SMALL else 64) * MIB)
    torch, notes = bed.torch, []
    try:
        length = bed.source.numel()
        for waited in (True, False):
            key = f"order-{waited}"
            bed.source.fill_(1)
            torch.cuda.synchronize()
            torch.cuda._sleep(100_000_000)  # about 50 ms on a GPU
            bed.source.fill_(2)
            if waited:
                torch.cuda.current_stream().synchronize()
            must(bed.store.put_from(key, bed.source.data_ptr(), length) == 0, "put_from failed")
            torch.cuda.synchronize()
            must(bed.store.get_into(key, bed.target.data_ptr(), length) == length, "get_into failed")
            # A get has ended when it returns: work of any stream may follow.
            right = int((bed.target == 2).sum()) == length
            must(right or not waited, "a put after a wait for the default stream read older bytes")
            if not waited:
                notes.append("a put without a wait for the default stream took " + ("what was written" if right else "what was there before: "
                             "callers wait, as the contract says"))
        return [{"kind": "torch", "what": "order", "right": True}], notes
    finally:
        bed.close()


def matmul_rate(torch, a, b, seconds, event):
    """Products a second. event: set once they run."""
    torch.mm(a, b)
    torch.cuda.synchronize()
    event.set()
    start, number = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for _ in range(8):
            torch.mm(a, b)
        torch.cuda.synchronize()
        number += 8
    return number / (time.monotonic() - start)


def node_loop(bed):
    """An engine in a process of its own, whose blocks the node's swapper copies."""
    from node_support import BIN

    sizes = ("16384", "8", "64") if SMALL else ("65536", "32", "128")
    seconds = str(max(1, int(BESIDE_SECONDS)))
    command = [os.path.join(BIN, "..", "tests", "engine_speed"), bed.node.instance, bed.node.directory + "/run", bed.node.shm, *sizes, seconds,
               "whole"]
    return subprocess.Popen(command, env=bed.node.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def node_rate(process):
    out, err = process.communicate(timeout=45)
    must(process.returncode == 0, f"engine_speed ended with {process.returncode}: {err[-300:]}")
    said = json.loads(out.strip().splitlines()[-1])
    moved, busy_ms = 0, 0.0
    for side in (said["store"], said["load"]):
        moved += side["bytes"]
        busy_ms += side["mean_ms"] * side["ops"]
    return moved / busy_ms / 1e6 if busy_ms else 0.0


def beside():
    """Matrices only, copies only, both together; copies by this process, and by the swapper."""
    bed = Bed((8 if SMALL else 128) * MIB)
    torch, rows = bed.torch, []
    try:
        n = 64 if SMALL else 8192
        a, b = (torch.randn(n, n, device="cuda").to(torch.bfloat16) for _ in range(2))
        running = threading.Event()
        compute_alone = matmul_rate(torch, a, b, BESIDE_SECONDS, running)
        loop = Loop(bed, 65536, 100 if SMALL else 1000)
        time.sleep(BESIDE_SECONDS)
        copy_alone = loop.end()
        bed.count += 1
        loop = Loop(bed, 65536, 100 if SMALL else 1000)
        compute_beside = matmul_rate(torch, a, b, BESIDE_SECONDS, running)
        copy_beside = loop.end()
        rows.append({"kind": "beside", "what": "in this process", "compute_alone": compute_alone, "compute_beside": compute_beside,
                     "copy_alone": copy_alone, "copy_beside": copy_beside})
        copy_alone = node_rate(node_loop(bed))
        process = node_loop(bed)
        try:
            must(process.stdout.readline() == "running\n", "engine_speed did not begin")
            compute_beside = matmul_rate(torch, a, b, BESIDE_SECONDS, running)
            copy_beside = node_rate(process)
        finally:
            process.kill()
        rows.append({"kind": "beside", "what": "through the node", "compute_alone": compute_alone, "compute_beside": compute_beside,
                     "copy_alone": copy_alone, "copy_beside": copy_beside})
    finally:
        bed.close()
    return [{name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()} for row in rows], []


def main():
    part = sys.argv[1]
    try:
        rows, notes = tensors(part) if part in ("plain", "expandable") else {"capture": capture, "order": order, "beside": beside}[part]()
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 77
    print(json.dumps({"rows": rows, "notes": notes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
