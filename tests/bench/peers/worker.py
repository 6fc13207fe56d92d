"""A process that measures one store: commands and answers are lines of JSON on its standard input and output. The program is
the same for every store, and runs with the interpreter and the PYTHONPATH that has the store's module."""

import ctypes
import gc
import json
import mmap
import os
import struct
import sys
import time

from rows import CALLS, PIECES
from cold import ColdReads, ColdWrong
from stores import DiskStore, MemcpyStore, RedisStore, memory_of

PATTERN_BYTES = 16 << 20
PASS_PIECES_MAX = 65536  # prepared in Python before the measurement; a pass is still larger than caches
PASS_VALUES_MAX = 16384
PATIENCE = 8  # after this multiple of the wanted seconds, the least number of calls no longer counts
STAMP = struct.Struct("<QQ")
MEMCMP = ctypes.CDLL(None).memcmp
MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Failure(Exception):
    """A wrong answer of a store, in words."""


class Buffer:
    """The process's own memory: where values are written from, and where they are read to."""

    def __init__(self, length, allocate):
        self.length = length  # length of each half
        if allocate is None:
            self.map = mmap.mmap(-1, 2 * length)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        else:
            self.address = allocate(2 * length)
        self.target = self.address + length
        self.memory = memory_of(self.address, 2 * length)
        seed = int.from_bytes(b"sluice", "little")
        pattern = bytearray(PATTERN_BYTES)
        for at in range(0, PATTERN_BYTES, 8):
            seed = (seed * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
            struct.pack_into("<Q", pattern, at, seed)
        for at in range(0, length, PATTERN_BYTES):
            self.memory[at:at + PATTERN_BYTES] = pattern
        self.pattern, self.stamped = pattern, set()
        ctypes.memset(self.target, 0, length)


    def stamps_remove(self):
        """Sets the bytes back to those that every process has."""
        for at in self.stamped:
            self.memory[at:at + STAMP.size] = self.pattern[at % PATTERN_BYTES:at % PATTERN_BYTES + STAMP.size]
        self.stamped.clear()


class Shape:
    """Where the values of an exercise are in the buffer, and the arguments of its calls. As many values as fit the buffer
    are one pass; the next pass uses the same memory with new stamps, which make every value different from all others."""

    def __init__(self, buffer, kind, size, batch):
        self.buffer, self.kind, self.size, self.batch = buffer, kind, size, batch
        room = min(buffer.length, 64 << 20) if kind == "bytes" else buffer.length  # these are copied once more
        values_max = PASS_PIECES_MAX // PIECES if kind == "pieces" else PASS_VALUES_MAX
        self.calls = max(1, min(room // size, values_max) // batch)
        self.put, self.get = CALLS[kind][2 * (batch > 1):][:2]

    def block(self, call):
        return call * self.batch * self.size

    def first(self, call, value):
        """Where a value begins."""
        step = self.size // PIECES if self.kind == "pieces" else self.size
        return self.block(call) + value * step

    def stamp(self, cell, first_number, calls):
        for call in range(calls):
            for value in range(self.batch):
                at = self.first(call, value)
                STAMP.pack_into(self.buffer.memory, at, cell, first_number + call * self.batch + value)
                self.buffer.stamped.add(at)

    def places(self, call, base):
        """The arguments of a call that name the places of its values."""
        if self.kind == "pieces":
            piece = self.size // PIECES
            return ([[base + self.first(call, value) + layer * self.batch * piece for layer in range(PIECES)]
                     for value in range(self.batch)], [[piece] * PIECES for _ in range(self.batch)])
        if self.batch > 1:
            return ([base + self.first(call, value) for value in range(self.batch)], [self.size] * self.batch)
        return (base + self.first(call, 0), self.size)

    def value(self, call, value):
        at = self.first(call, value)
        return bytes(self.buffer.memory[at:at + self.size])

    def keys(self, prefix, call_number):
        """The keys of a call, counted through all passes."""
        first = call_number * self.batch
        if self.batch == 1:
            return f"{prefix}{first:08x}"
        return [f"{prefix}{first + at:08x}" for at in range(self.batch)]


def sleep_until(start_ns):
    while (left := start_ns - time.perf_counter_ns()) > 0:
        time.sleep(left / 1e9)


class Times:
    """Durations of calls in ns, and their CPU time in this process; how long and how often to call."""

    def __init__(self, seconds, minimum):
        self.calls, self.cpu_ns = [], 0
        self.minimum = minimum
        self.wanted_ns = self.left_ns = int(seconds * 1e9)

    def over(self):
        return self.left_ns <= 0 and (len(self.calls) >= self.minimum or self.left_ns <= -PATIENCE * self.wanted_ns)

    def __len__(self):
        return len(self.calls)

    def answer(self):
        return {"times": self.calls, "cpu_ns": self.cpu_ns}


def timed(function, calls, times, each=None):
    """Calls until the time is over or all are done; adds to times, returns the results. each(number, result) takes results
    one by one instead, outside the measured time, so that a result's memory is free for the next one, as in real use."""
    clock, durations, minimum = time.perf_counter_ns, times.calls, times.minimum
    results, first = [], len(durations) + 1
    start_ns = clock()
    end_ns = start_ns + times.left_ns
    hard_ns = end_ns + PATIENCE * times.wanted_ns
    gc.disable()
    cpu_ns = time.process_time_ns()
    for arguments in calls:
        began = clock()
        result = function(*arguments)
        ended = clock()
        durations.append(ended - began)
        if each is None:
            results.append(result)
        else:
            checked_ns = time.process_time_ns()
            each(len(durations) - first, result)
            del result
            cpu_ns += time.process_time_ns() - checked_ns
        if ended > end_ns and (len(durations) >= minimum or ended > hard_ns):
            break
    times.cpu_ns += time.process_time_ns() - cpu_ns
    times.left_ns -= clock() - start_ns
    gc.enable()
    return results


class Worker:
    def __init__(self, options):
        self.store, self.extra, self.checked = None, (), True
        allocate = None
        if options["store"] == "redis":
            self.store = RedisStore(options["socket"])
        elif options["store"] == "memcpy" and "file" not in options:
            self.store, self.checked = MemcpyStore(options["segment_bytes"]), False
        elif options["store"] != "memcpy":
            allocate = self.open(options)
        if "file" in options:
            self.store = DiskStore(options["file"], options["cold_bytes"])
        self.buffer = Buffer(options["buffer_bytes"], allocate)
        code = self.store.register_buffer(self.buffer.address, 2 * self.buffer.length)
        if code != 0:
            raise Failure(f"register_buffer gave {code}")

    def open(self, options):
        """Opens a store of the module mooncake.store. Returns the allocator of buffers, or None."""
        from mooncake import store as module

        self.store = module.MooncakeDistributedStore()
        if options["section"] == "dummy":
            self.allocator = module.MooncakeHostMemAllocator()
            code = self.store.setup_dummy(4 * options["buffer_bytes"], options["local_bytes"], options["client"])
        else:
            code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", options["segment_bytes"], options["local_bytes"], "tcp", "",
                                    options["master"])
        if code != 0:
            raise Failure(f"setup gave {code}")
        if options["segment_bytes"] and options["section"] in ("two", "cross"):
            config = module.ReplicateConfig()
            config.preferred_segment = self.store.get_hostname()
            self.extra = (config,)
        return self.allocator.alloc if options["section"] == "dummy" else None

    def shape(self, command):
        if hasattr(self.store, "begin"):
            self.store.begin(command["size"])
        self.buffer.stamps_remove()
        return Shape(self.buffer, command["kind"], command["size"], command["batch"])

    def put(self, command):
        """Writes new values for this number of seconds or bytes."""
        shape = self.shape(command)
        function = getattr(self.store, shape.put)
        calls_max = max(command["calls_min"], command["bytes_max"] // (shape.size * shape.batch))
        want = 0 if shape.batch == 1 or shape.put == "put_batch" else [0] * shape.batch
        times = Times(command["seconds"], command["calls_min"])
        while len(times) < calls_max:
            done = len(times)
            count = min(shape.calls, calls_max - done)
            shape.stamp(command["cell"], done * shape.batch, count)
            calls = []
            for call in range(count):
                keys = shape.keys(command["prefix"], done + call)
                if shape.kind != "bytes":
                    calls.append((keys, *shape.places(call, self.buffer.address), *self.extra))
                elif shape.batch == 1:
                    calls.append((keys, shape.value(call, 0), *self.extra))
                else:
                    calls.append((keys, [shape.value(call, value) for value in range(shape.batch)], *self.extra))
            if done == 0:
                sleep_until(command["start_ns"])
            results = timed(function, calls, times)
            wrong = [result for result in results if result != want]
            if wrong and self.checked:
                raise Failure(f"{shape.put} gave {shortened(wrong[0], want)}")
            if times.over():
                break
        return times.answer()

    def get(self, command):
        """Reads what the given number of calls wrote, in the same way, and compares every byte."""
        shape = self.shape(command)
        function = getattr(self.store, shape.get)
        want = shape.size if shape.batch == 1 else [shape.size] * shape.batch
        times = Times(command["seconds"], command["calls_min"])
        while len(times) < command["calls"]:
            done = len(times)
            count = min(shape.calls, command["calls"] - done)
            shape.stamp(command["cell"], done * shape.batch, count)
            if command["thorough"] or done == 0:
                ctypes.memset(self.buffer.target, 0, shape.block(count))
            calls = []
            for call in range(count):
                keys = shape.keys(command["prefix"], done + call)
                calls.append((keys,) if shape.kind == "bytes" else (keys, *shape.places(call, self.buffer.target)))
            if done == 0:
                sleep_until(command["start_ns"])
            if shape.kind == "bytes":
                timed(function, calls, times, lambda call, result: self.check_value(shape, call, result))
            else:
                self.check(shape, timed(function, calls, times), want)
            if times.over():
                break
        return times.answer()

    def check_value(self, shape, call, result):
        for value, got in enumerate([result] if shape.batch == 1 else result):
            at = self.buffer.address + shape.first(call, value)
            if self.checked and (len(got) != shape.size or MEMCMP(got, at, shape.size) != 0):
                raise Failure(f"{shape.get} gave other bytes than were put")

    def check(self, shape, results, want):
        wrong = [result for result in results if result != want]
        if wrong and self.checked:
            raise Failure(f"{shape.get} gave {shortened(wrong[0], want)}")
        if self.checked and MEMCMP(self.buffer.target, self.buffer.address, shape.block(len(results))) != 0:
            raise Failure(f"{shape.get} gave other bytes than were put")

    def exist(self, command):
        """Looks up keys that exist (found) or do not, again and again."""
        batch, calls = command["batch"], []
        function = self.store.is_exist if batch == 1 else self.store.batch_is_exist
        for call in range(max(1, command["keys"] // batch)):
            keys = [f"{command['prefix']}{call * batch + at:08x}" for at in range(batch)]
            calls.append((keys[0],) if batch == 1 else (keys,))
        found = int(command["found"])
        want = found if batch == 1 else [found] * batch
        times = Times(command["seconds"], 1)
        sleep_until(command["start_ns"])
        while len(times) < command["calls_max"] and not times.over():
            wrong = [result for result in timed(function, calls, times) if result != want]
            if wrong:
                raise Failure(f"{function.__name__} gave {shortened(wrong[0], want)}")
        return times.answer()

    def cold_put(self, command):
        return ColdReads(self.store, self.buffer, command).put()

    def cold_get(self, command):
        return ColdReads(self.store, self.buffer, command).get()

    def clear(self, command):
        self.store.remove_all(True)
        return {}

    def close(self, command):
        return {"code": self.store.close()}


def shortened(result, want):
    """A list of codes, reduced to its first wrong one."""
    if not isinstance(result, list) or not isinstance(want, list) or len(result) != len(want):
        return str(result)[:80]
    bad = [code for code, right in zip(result, want) if code != right]
    return f"{bad[0]} for {len(bad)} of {len(result)} keys"


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # modules print as they like

    def answer(what):
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        worker = Worker(json.loads(sys.argv[1]))
        answer({"ready": True})
    except (Failure, ImportError, OSError, RuntimeError, AttributeError) as failure:
        answer({"error": f"{failure or type(failure).__name__}"})
        return 1
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer(getattr(worker, command["do"])(command))
        except ColdWrong as failure:
            answer({"error": str(failure)})
        except (Failure, OSError, RuntimeError, AttributeError, TypeError) as failure:
            answer({"error": f"{type(failure).__name__}: {failure}" if not isinstance(failure, Failure) else str(failure)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
