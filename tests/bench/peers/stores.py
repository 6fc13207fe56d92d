"""Stores that a worker measures, all with the calls of mooncake.store: Redis with its own protocol over a unix socket, and plain
memcpy. Mooncake's module and Sluice's need no code here."""

import ctypes
import mmap
import os
import socket

IOVEC_MAX = 1024


def memory_of(address, length):
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


class RedisStore:
    """One connection. Values go from and to the caller's memory without a copy in Python: requests by sendmsg, replies,
    whose lengths are known, by recvmsg_into."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(path)
        self.reader = self.socket.makefile("rb", buffering=1 << 16)
        self.base, self.memory = 0, None

    def register_buffer(self, address, length):
        self.base, self.memory = address, memory_of(address, length)
        return 0

    def close(self):
        self.reader.close()
        self.socket.close()
        return 0

    # ---- the protocol ----

    def send(self, parts):
        while parts:
            some = parts[:IOVEC_MAX]
            sent = self.socket.sendmsg(some)
            parts = trimmed(parts, sent)

    def receive(self, parts):
        while parts:
            got = self.socket.recvmsg_into(parts[:IOVEC_MAX])[0]
            if got == 0:
                raise ConnectionError("redis closed the connection")
            parts = trimmed(parts, got)

    def reply(self):
        """A status or a number, unconverted."""
        line = self.reader.readline()
        if line[:1] in (b"-", b""):
            raise ConnectionError(f"redis says {line!r}")
        return line

    def bulk(self):
        length = int(self.reader.readline()[1:])
        if length < 0:
            return b""
        value = self.reader.read(length)
        self.reader.read(2)
        return value

    def slices(self, addresses, sizes):
        base, memory = self.base, self.memory
        return [memory[at - base:at - base + size] for at, size in zip(addresses, sizes)]

    def store(self, keys, values, lengths):
        """Pipelined SETs, of values that are lists of buffers: faster than MSET where values are large, and never slower."""
        parts = []
        for key, value, length in zip(keys, values, lengths):
            name = key.encode()
            parts.append(b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(name), name, length))
            parts += value
            parts.append(b"\r\n")
        self.send(parts)
        for _ in keys:
            self.reply()

    def load(self, keys, targets, lengths):
        """MGET into lists of buffers that are as long as the values."""
        names = [key.encode() for key in keys]
        self.send([b"*%d\r\n$4\r\nMGET\r\n" % (len(keys) + 1) + b"".join(b"$%d\r\n%b\r\n" % (len(name), name) for name in names)])
        heads = [b"*%d\r\n$%d\r\n" % (len(keys), lengths[0])] + [b"\r\n$%d\r\n" % length for length in lengths[1:]]
        marks = [bytearray(len(head)) for head in heads]
        parts = []
        for mark, target in zip(marks, targets):
            parts.append(mark)
            parts += target
        parts.append(bytearray(2))
        self.receive(parts)
        return [length if mark == head else -704 for mark, head, length in zip(marks, heads, lengths)]

    # ---- the calls of mooncake.store ----

    def put(self, key, value):
        self.store([key], [[value]], [len(value)])
        return 0

    def put_batch(self, keys, values):
        self.store(keys, [[value] for value in values], [len(value) for value in values])
        return 0

    def put_from(self, key, address, size):
        self.store([key], [self.slices((address,), (size,))], [size])
        return 0

    def batch_put_from(self, keys, addresses, sizes):
        self.store(keys, [[part] for part in self.slices(addresses, sizes)], sizes)
        return [0] * len(keys)

    def batch_put_from_multi_buffers(self, keys, addresses, sizes):
        self.store(keys, [self.slices(*one) for one in zip(addresses, sizes)], [sum(one) for one in sizes])
        return [0] * len(keys)

    def get(self, key):
        name = key.encode()
        self.send([b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)])
        return self.bulk()

    def get_batch(self, keys):
        names = [key.encode() for key in keys]
        self.send([b"*%d\r\n$4\r\nMGET\r\n" % (len(keys) + 1) + b"".join(b"$%d\r\n%b\r\n" % (len(name), name) for name in names)])
        self.reply()
        return [self.bulk() for _ in keys]

    def get_into(self, key, address, size):
        return self.load([key], [self.slices((address,), (size,))], [size])[0]

    def batch_get_into(self, keys, addresses, sizes):
        return self.load(keys, [[part] for part in self.slices(addresses, sizes)], sizes)

    def batch_get_into_multi_buffers(self, keys, addresses, sizes):
        return self.load(keys, [self.slices(*one) for one in zip(addresses, sizes)], [sum(one) for one in sizes])

    def is_exist(self, key):
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys):
        names = [key.encode() for key in keys]
        self.send([b"".join(b"*2\r\n$6\r\nEXISTS\r\n$%d\r\n%b\r\n" % (len(name), name) for name in names)])
        return [int(self.reply()[1:]) for _ in keys]

    def remove_all(self, force):
        self.send([b"*2\r\n$8\r\nFLUSHALL\r\n$4\r\nSYNC\r\n"])
        self.reply()
        return 0


def trimmed(parts, done):
    """The rest of a list of buffers after `done` bytes of it."""
    at = 0
    while at < len(parts) and done >= len(parts[at]):
        done -= len(parts[at])
        at += 1
    rest = parts[at:]
    if done:
        rest[0] = memoryview(rest[0])[done:]
    return rest


class MemcpyStore:
    """The limit: the bytes of a call in one copy between the caller's buffer and memory that the calls walk through, of a store
    without names. It remembers only its position, and starts again with each phase."""

    def __init__(self, length):
        self.length = length
        self.map = mmap.mmap(-1, length)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        ctypes.memset(self.address, 1, length)
        self.at = self.size = 0

    def register_buffer(self, address, length):
        return 0

    def close(self):
        return 0

    def begin(self, size):
        """The next values have this size."""
        self.at, self.size = 0, size

    def next(self, length):
        if self.at + length > self.length:
            self.at = 0
        self.at += length
        return self.address + self.at - length

    def put(self, key, value):
        ctypes.memmove(self.next(len(value)), value, len(value))
        return 0

    def put_batch(self, keys, values):
        return [self.put(None, value) for value in values][0]

    def put_from(self, key, address, size):
        ctypes.memmove(self.next(size), address, size)
        return 0

    def batch_put_from(self, keys, addresses, sizes):
        length = sizes[0] * len(keys)
        ctypes.memmove(self.next(length), addresses[0], length)
        return 0

    def batch_put_from_multi_buffers(self, keys, addresses, sizes):
        length = sizes[0][0] * len(sizes[0]) * len(keys)
        ctypes.memmove(self.next(length), addresses[0][0], length)
        return 0

    def get(self, key):
        return ctypes.string_at(self.next(self.size), self.size)

    def get_batch(self, keys):
        return [self.get(key) for key in keys]

    def get_into(self, key, address, size):
        ctypes.memmove(address, self.next(size), size)
        return size

    def batch_get_into(self, keys, addresses, sizes):
        length = sizes[0] * len(keys)
        ctypes.memmove(addresses[0], self.next(length), length)
        return 0

    def batch_get_into_multi_buffers(self, keys, addresses, sizes):
        length = sizes[0][0] * len(sizes[0]) * len(keys)
        ctypes.memmove(addresses[0][0], self.next(length), length)
        return 0

    def remove_all(self, force):
        return 0


class DiskStore:
    """The limit of cold reads: values one after the other in a file, read with O_DIRECT by the caller's threads. Keys end with
    the number of the value."""

    def __init__(self, path, length):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        os.posix_fallocate(self.file, 0, length)

    def register_buffer(self, address, length):
        return 0

    def put_from(self, key, address, size):
        return 0 if os.pwrite(self.file, memory_of(address, size), int(key[-8:], 16) * size) == size else -1

    def get_into(self, key, address, size):
        return os.preadv(self.file, [memory_of(address, size)], int(key[-8:], 16) * size)

    def batch_get_into(self, keys, addresses, sizes):
        return [self.get_into(*one) for one in zip(keys, addresses, sizes)]

    def close(self):
        os.close(self.file)
        return 0
