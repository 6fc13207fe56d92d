"""A client of metrics_test.py, which counts its own references: metrics_driver.py FILE THREADS SECONDS KEYS... If the first key is
`tenant=NAME`, it is a client of mooncake.store.

Each thread has a row of FILE (mapped, so that it survives a kill): `begun` increases before an operation, and its result's counter
after it. Then begun less all others is the number in flight."""

import mmap
import random
import struct
import sys
import threading
import time

FIELDS = ("gets", "found", "missed", "failed", "bytes", "looks", "here", "nowhere")
ROW = struct.Struct(f"<{len(FIELDS)}Q")


def totals(path):
    with open(path, "rb") as file:
        content = file.read()
    sums = [sum(column) for column in zip(*ROW.iter_unpack(content))]
    return dict(zip(FIELDS, sums))


class Mooncake:
    """A mooncake.store as a client; the value of a missing key is empty."""

    def __init__(self, tenant):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        if self.store.setup("localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", "127.0.0.1:1", tenant_id=tenant) != 0:
            sys.exit("no store")

    def exists(self, key):
        return self.store.is_exist(key) == 1

    def get(self, key):
        import sluice

        value = self.store.get(key)
        if not value:
            raise sluice.NotFoundError(sluice.Code.NOT_FOUND, key)
        return value


def work(client, memory, number, seconds, keys):
    import sluice

    fields = dict.fromkeys(FIELDS, 0)

    def note(**changes):
        for name, change in changes.items():
            fields[name] += change
            struct.pack_into("<Q", memory, number * ROW.size + 8 * FIELDS.index(name), fields[name])

    choose = random.Random(number)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        key = choose.choice(keys)
        if choose.random() < 0.3:
            note(looks=1)
            note(**{"here" if client.exists(key) else "nowhere": 1})
            continue
        note(gets=1)
        try:
            note(found=1, bytes=len(client.get(key)))
        except sluice.NotFoundError:
            note(missed=1)
        except sluice.SluiceError:
            note(failed=1)


def main():
    import sluice

    path, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with open(path, "wb+") as file:
        file.truncate(ROW.size * threads)
        memory = mmap.mmap(file.fileno(), 0)
    keys = sys.argv[4:]
    tenant = keys.pop(0).removeprefix("tenant=") if keys[0].startswith("tenant=") else None
    client = Mooncake(tenant) if tenant else sluice.Client()
    team = [threading.Thread(target=work, args=(client, memory, number, seconds, keys)) for number in range(threads)]
    print("begun", flush=True)
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()


if __name__ == "__main__":
    main()
