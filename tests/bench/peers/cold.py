"""Values that are only on disk, read by several threads of one process through one store."""

import ctypes
import struct
import threading
import time

STAMP = struct.Struct("<QQ")
MARK = 0xC01DC01D
NO_SPACE = -200  # memory is full of values that are not yet on disk: writers back off
BACK_OFF_S, PATIENCE_NS = 0.005, 60_000_000_000
UNREAD_SHARE = 3  # the last 1/UNREAD_SHARE of what was written is still in memory


class ColdWrong(Exception):
    """The bytes that were read are not those that were put."""


class ColdReads:
    def __init__(self, store, buffer, command):
        self.store, self.buffer = store, buffer
        self.size, self.batch, self.threads = command["size"], command["batch"], command["threads"]
        self.prefix, self.thorough = command["prefix"], command["thorough"]
        self.values = command["calls"]
        self.lock, self.next, self.times, self.failure = threading.Lock(), 0, [], None

    def key(self, number):
        return f"{self.prefix}{number:08x}"

    def put(self):
        """Every value is the first bytes of the buffer with a stamp of its own."""
        clock, times, cpu_ns = time.perf_counter_ns, [], time.process_time_ns()
        for number in range(self.values):
            STAMP.pack_into(self.buffer.memory, 0, MARK, number)
            began = clock()
            while (code := self.store.put_from(self.key(number), self.buffer.address, self.size)) == NO_SPACE:
                if clock() - began > PATIENCE_NS:
                    break
                time.sleep(BACK_OFF_S)
            times.append(clock() - began)
            if code != 0:
                raise ColdWrong(f"put_from gave {code} for value {number} of {self.values}")
        return {"times": times, "cpu_ns": time.process_time_ns() - cpu_ns}

    def get(self):
        """Each thread takes the next values that no thread has taken. Times are of calls."""
        ctypes.memset(self.buffer.target, 0, self.threads * self.batch * self.size)
        cpu_ns = time.process_time_ns()
        threads = [threading.Thread(target=self.run, args=(number,)) for number in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure
        return {"times": self.times, "cpu_ns": time.process_time_ns() - cpu_ns}

    def run(self, thread):
        at = self.buffer.target + thread * self.batch * self.size
        end = self.values - self.values // UNREAD_SHARE
        clock = time.perf_counter_ns
        while self.failure is None:
            with self.lock:
                first, self.next = self.next, self.next + self.batch
            if first + self.batch > end:
                return
            if self.batch == 1:
                arguments, want = (self.key(first), at, self.size), self.size
                began = clock()
                got = self.store.get_into(*arguments)
            else:
                keys = [self.key(number) for number in range(first, first + self.batch)]
                arguments = (keys, [at + i * self.size for i in range(self.batch)], [self.size] * self.batch)
                want = [self.size] * self.batch
                began = clock()
                got = self.store.batch_get_into(*arguments)
            self.times.append(clock() - began)
            if got != want:
                self.failure = ColdWrong(f"reading value {first} gave {got if self.batch == 1 else 'another length'}")
                return
            self.check(first, at)

    def check(self, first, at):
        for i in range(self.batch):
            place = at + i * self.size
            stamp = STAMP.unpack(ctypes.string_at(place, STAMP.size))
            same = stamp == (MARK, first + i)
            if same and self.thorough:  # all of it, once: it takes time from the other threads
                rest = self.size - STAMP.size
                same = ctypes.string_at(place + STAMP.size, rest) == ctypes.string_at(self.buffer.address + STAMP.size, rest)
            if not same:
                self.failure = ColdWrong(f"value {first + i} came back with other bytes")
                return
