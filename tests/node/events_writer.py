"""A writer of events_test.py: events_writer.py NAME THREADS. Threads put and remove keys of two ranks, named as by vLLM's Mooncake
connector, and one of four stores runs of blocks as an engine. `hold` on standard input stops them, and `held` reports that all have
stopped; `go` continues."""

import hashlib
import random
import sys
import threading

BLOCKS, RANKS, RUN, PIECE = 60, 2, 4, 16 << 10


class Gate:
    """Worker threads pass it before each operation."""

    def __init__(self, count):
        self.count, self.inside, self.open, self.changed = count, 0, True, threading.Condition()

    def __enter__(self):
        with self.changed:
            self.changed.wait_for(lambda: self.open)
            self.inside += 1

    def __exit__(self, *_):
        with self.changed:
            self.inside -= 1
            self.changed.notify_all()

    def hold(self):
        with self.changed:
            self.open = False
            self.changed.wait_for(lambda: self.inside == 0)

    def go(self):
        with self.changed:
            self.open = True
            self.changed.notify_all()


def key_of(model, rank, block):
    digest = hashlib.sha256(f"{model} {block}".encode()).hexdigest()
    return f"{model}@tp_rank:{rank}@pcp0@dcp0@pp_rank:0@group:0@{digest}"


def objects(client, gate, model, number):
    import sluice

    choose = random.Random(number)
    while True:
        with gate:
            key = key_of(f"{model}-{choose.randrange(2)}", choose.randrange(RANKS), choose.randrange(BLOCKS))
            try:
                if choose.random() < 0.7:
                    client.put(key, key.encode() * choose.randrange(1, 600))
                else:
                    client.remove(key)
            except sluice.SluiceError:
                pass  # absent, or its actor was just killed: the index decides


def blocks(engine, gate, name, number):
    import sluice

    choose = random.Random(number)
    rows = list(range(number * RUN, number * RUN + RUN))
    while True:
        with gate:
            run = choose.randrange(40)
            hashes = [hashlib.sha256(f"{name} {run} {block}".encode()).digest() for block in range(RUN)]
            try:
                engine.store(hashes=hashes, blocks=rows).wait()
            except sluice.SluiceError:
                pass


def main():
    import sluice

    name, threads = sys.argv[1], int(sys.argv[2])
    gate = Gate(threads)
    count = threads * RUN
    layers = [sluice.Layer(layer * count * PIECE, count * PIECE, PIECE, PIECE) for layer in range(2)]
    client = sluice.Client(settings={"op_timeout": "2s"})
    engine = client.engine(name, pools=[sluice.Pool("attention", sluice.POOL_ATTENTION, layers)], block_tokens=16, block_count=count,
                           model={"name": name})
    for number in range(threads):
        work = (blocks, (engine, gate, name, number)) if number % 4 == 1 else (objects, (client, gate, name, number))
        threading.Thread(target=work[0], args=work[1], daemon=True).start()
    print("begun", flush=True)
    for line in sys.stdin:
        if line.strip() == "hold":
            gate.hold()
            print("held", flush=True)
        else:
            gate.go()


if __name__ == "__main__":
    main()
