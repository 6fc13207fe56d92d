"""An engine of metrics_test.py, which counts its own references: metrics_engine.py FILE THREADS SECONDS MODEL.

Threads of one engine store, load and look up runs of blocks under keys that a model's engines share. As in metrics_driver.py each thread
has a row of FILE, and begun less ended is the number in flight."""

import hashlib
import mmap
import random
import struct
import sys
import threading
import time

FIELDS = ("loads", "memory", "disk", "remote", "none", "failed", "bytes", "looks", "here", "nowhere", "stores", "stored", "existed", "refused")
ROW = struct.Struct(f"<{len(FIELDS)}Q")
RUN, PIECE, LAYERS, RUNS = 4, 16 << 10, 2, 80


def totals(path):
    with open(path, "rb") as file:
        content = file.read()
    return dict(zip(FIELDS, (sum(column) for column in zip(*ROW.iter_unpack(content)))))


def run_of(number):
    """Keys of the blocks of one run; runs of odd numbers never store those after the first two."""
    return [hashlib.sha256(f"{number} {block}".encode()).digest() for block in range(RUN)]


def work(engine, memory, number, seconds):
    fields = dict.fromkeys(FIELDS, 0)

    def note(**changes):
        for name, change in changes.items():
            fields[name] += change
            struct.pack_into("<Q", memory, number * ROW.size + 8 * FIELDS.index(name), fields[name])

    choose = random.Random(number)
    blocks = list(range(number * RUN, number * RUN + RUN))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run = choose.randrange(RUNS)
        keys, dice = run_of(run), choose.random()
        if dice < 0.2:
            note(looks=RUN)
            found = engine.look(keys)
            note(here=found, nowhere=RUN - found)
        elif dice < 0.5:
            count = 2 if run % 2 == 1 else RUN
            note(stores=count)
            result = engine.store(hashes=keys[:count], blocks=blocks[:count]).wait()
            note(stored=result.stored_count, existed=result.existed_count, refused=count - result.stored_count - result.existed_count)
        else:
            note(loads=RUN)
            result = engine.load(hashes=keys, blocks=blocks).wait()
            rest = RUN - result.block_count
            note(memory=result.from_memory, disk=result.from_disk, remote=result.from_remote, bytes=result.bytes,
                 **{"none" if result.code == 0 else "failed": rest})


def main():
    import sluice

    path, threads, seconds, model = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    with open(path, "wb+") as file:
        file.truncate(ROW.size * threads)
        memory = mmap.mmap(file.fileno(), 0)
    count = threads * RUN
    layers = [sluice.Layer(layer * count * PIECE, count * PIECE, PIECE, PIECE) for layer in range(LAYERS)]
    with sluice.Client(settings={"op_timeout": "60s"}) as client:
        engine = client.engine(f"{model}-{threads}", pools=[sluice.Pool("attention", sluice.POOL_ATTENTION, layers)], block_tokens=16,
                               block_count=count, model={"name": model})
        team = [threading.Thread(target=work, args=(engine, memory, number, seconds)) for number in range(threads)]
        print(engine.model_identity, flush=True)
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        engine.end()


if __name__ == "__main__":
    main()
