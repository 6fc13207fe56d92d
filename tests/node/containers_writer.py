"""A process of another user at a node's gate, which lets it write by a window: it lies. Prints what went otherwise than it should.

    containers_writer.py lie SOCKET
    containers_writer.py half SOCKET     until stdin ends: half of a value of the key "half" is there
    containers_writer.py full SOCKET     until stdin ends: has all but half a MiB of a node of 16 MiB
    containers_writer.py many N SOCKET   until stdin ends: N connections that write
    containers_writer.py hoard SOCKET    takes more than its share of a node of 64 MiB, with clients_pin_bytes_max of 2.5 MiB
    containers_writer.py cling OTHER SOCKET  until stdin ends: pins "value", holds on to those pins, and closes its connection while a
                                             put of "drafted" waits. It may not open OTHER, the name of a segment
"""

import array
import fcntl
import mmap
import os
import socket
import struct
import sys
import time

HELLO, OPEN, PINS, WRITE, PUT, PIN, UNPIN, DRAFT, FILL, COMMIT, DROP = 1, 2, 5, 10, 11, 12, 13, 14, 15, 16, 17
MOST = 2 ** 64 - 1
LIMIT, PERMISSION, INVALID = 4, 14, 15


class Gate:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.settimeout(20)
        self.window, self.slot, self.fd = None, 0, -1

    def send(self, question, a=0, b=0, c=2 * 10 ** 9, fd=-1, magic=b"slgate>\n", version=1, name=b""):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
        self.socket.sendmsg([struct.pack("<8sIIQQQ64s", magic, version, question, a, b, c, name)], rights)

    def hear(self):
        """(code, a, b, descriptor); None: the connection is over."""
        try:
            answer, control, _, _ = self.socket.recvmsg(280, socket.CMSG_SPACE(4))
        except ConnectionResetError:
            return None
        if len(answer) != 280:
            return None
        return (struct.unpack_from("<I", answer, 12)[0], *struct.unpack_from("<QQ", answer, 16), array.array("i", control[0][2])[0] if control else -1)

    def ask(self, *words, **more):
        self.send(*words, **more)
        return self.hear()

    def write(self):
        heard = self.ask(WRITE)
        if heard is None or heard[0] != 0:
            return heard
        _, size, slots, self.fd = heard
        self.window, self.slot = mmap.mmap(self.fd, size), size // slots
        return heard

    def item(self, at=0, value_at=4096, length=5, key_at=1024, place=0, key_length=3, number=0):
        """place: of DRAFT, ns"""
        self.window[at * 56:at * 56 + 56] = struct.pack("<QQQQQIIII", value_at, length, key_at, place, 0, key_length, 0, number, 0)

    def told(self, at=0):
        """(number, code)"""
        return struct.unpack_from("<II", self.window, at * 56 + 48)


def expect(what, got, wanted):
    if got != wanted:
        print(f"{what}: {got}, expected {wanted}")


def refuses(what, gate, *words):
    heard = gate.ask(*words)
    if heard is None or heard[0] == 0 or heard[3] >= 0:
        print(f"{what}: {heard}")


def is_over(what, gate, *words, **more):
    try:
        expect(what, gate.ask(*words, **more), None)
    except (BrokenPipeError, ConnectionResetError):
        pass


def lie(path):
    gate = Gate(path)
    expect("write", gate.write()[0], 0)
    for what, act in (("cut", lambda: os.ftruncate(gate.fd, 4096)), ("grew", lambda: os.ftruncate(gate.fd, 1 << 30)), ("unsealed", lambda: os.fchmod(gate.fd, 0))):
        try:
            act()
            if what != "unsealed":
                print(f"the window was {what}")
        except OSError:
            pass
    gate.window[1024:1027] = b"lie"
    gate.window[4096:4101] = b"value"
    size = gate.slot
    for what, item in (("value behind the slot", {"value_at": size - 4}), ("value beyond all", {"value_at": MOST}), ("length beyond all", {"length": MOST}),
                       ("length over the end", {"value_at": 4096, "length": size - 4095}), ("sum that wraps", {"value_at": MOST - 2, "length": 5}),
                       ("value over its items", {"value_at": 8}), ("key behind the slot", {"key_at": size - 2}), ("key beyond all", {"key_at": MOST}),
                       ("key over its items", {"key_at": 0}), ("no key", {"key_length": 0}), ("long key", {"key_length": 1025}),
                       ("endless key", {"key_length": 2 ** 32 - 1})):
        gate.item(**item)
        refuses(what, gate, PUT, 0, 1)
    gate.item()
    for what, words in (("slot 4", (PUT, 4, 1)), ("slot beyond all", (PUT, MOST, 1)), ("no items", (PUT, 0, 0)), ("1,025 items", (PUT, 0, 1025)),
                        ("items beyond all", (PUT, 0, MOST)), ("another question", (77, 0, 1)), ("open", (OPEN, 0, 1)), ("pins", (PINS, 0, 1)),
                        ("hello", (HELLO, 0, 1)), ("write twice", (WRITE, 0, 1))):
        refuses(what, gate, *words)
    refuses("two drafts", gate, DRAFT, 0, 2)
    for number in (0, 1, 4, 5, 2 ** 32 - 1):  # of no draft
        gate.item(number=number)
        for question in (FILL, COMMIT):
            refuses(f"{question} of draft {number}", gate, question, 0, 1)
        gate.send(DROP, number)
    gate.send(DROP, MOST)
    for number in (0, 1, 4096, 4097, MOST):
        gate.send(UNPIN, number)
    gate.window[1024:1027] = b"a\0b"
    gate.item()
    expect("a key with NUL", (gate.ask(PUT, 0, 1)[0], gate.told()[1] != 0), (0, True))
    gate.window[1024:1027] = b"lie"
    gate.item(length=1 << 50)
    expect("a draft beyond memory", (gate.ask(DRAFT, 0, 1)[0], gate.told()[1] != 0), (0, True))
    gate.item(length=8)
    expect("a draft", (gate.ask(DRAFT, 0, 1)[0], gate.told()[1]), (0, 0))
    number = gate.told()[0]
    for place in (4, 8, MOST, MOST - 4):
        gate.item(number=number, place=place)
        refuses(f"a draft filled at {place}", gate, FILL, 0, 1)
    gate.send(DROP, number)
    gate.send(DROP, number)
    gate.item(number=number)
    refuses("a draft filled that was dropped", gate, FILL, 0, 1)
    gate.item(length=8)
    expect("another draft", (gate.ask(DRAFT, 0, 1)[0], gate.told()), (0, (number + 1, 0)))
    gate.send(DROP, number + 1)
    gate.item()
    expect("pin of nothing", (gate.ask(PIN, 0, 1)[0], gate.told()[1] != 0), (0, True))
    expect("put", (gate.ask(PUT, 0, 1, fd=0)[0], gate.told()[1]), (0, 0))
    expect("the longest time", gate.ask(PUT, 0, 1, c=MOST)[0], 0)
    expect("no time", gate.ask(PUT, 0, 1, c=0) is not None, True)
    is_over("other words", gate, PUT, 0, 1, magic=b"slgate<\n")
    for first in (PUT, PIN, DRAFT):
        refuses(f"{first} before write", Gate(path), first, 0, 1)
    reader = Gate(path)
    expect("hello", reader.ask(HELLO)[0], 0)
    refuses("write after hello", reader, WRITE)
    short = Gate(path)
    short.write()
    short.socket.send(b"slgate>\n")
    expect("half a question", short.hear(), None)
    unread = Gate(path)  # who never reads an answer ends by itself
    unread.write()
    unread.window[1024:1027] = b"lie"
    unread.item()
    unread.socket.setblocking(False)
    try:
        for _ in range(100000):
            unread.send(PUT, 0, 1)
    except OSError:
        pass


def half(path):
    gate = Gate(path)
    gate.write()
    gate.window[1024:1028] = b"half"
    gate.item(length=4 << 20, key_length=4)
    heard = gate.ask(DRAFT, 0, 1)
    number, code = gate.told()
    gate.item(length=1 << 20, number=number)
    filled = gate.ask(FILL, 0, 1)
    print("half", heard[0], code, filled[0], flush=True)
    sys.stdin.read()


def until(what, act):
    end = time.monotonic() + 30
    while not act():
        if time.monotonic() > end:
            print(f"{what}: not within 30 s")
            return
        time.sleep(0.02)


def hoard(path):
    mine, other, busy = Gate(path), Gate(path), Gate(path)
    for gate in (mine, other, busy):
        expect("write", gate.write()[0], 0)
        gate.window[1024:1027] = gate.window[gate.slot + 1024:gate.slot + 1027] = b"one"

    mine.item(length=1 << 20)
    expect("put", (mine.ask(PUT, 0, 1)[0], mine.told()[1]), (0, 0))
    for turn in range(2):
        mine.item()
        expect(f"pin {turn}", (mine.ask(PIN, 0, 1)[0], mine.told()), (0, (turn + 1, 0)))
    other.item()
    expect("the third pin, by another client", (other.ask(PIN, 0, 1)[0], other.told()[1]), (0, LIMIT))
    mine.send(UNPIN, 1)
    mine.ask(PIN, 0, 0)  # that is read behind it
    other.item()
    expect("a pin after one is over", (other.ask(PIN, 0, 1)[0], other.told()), (0, (1, 0)))

    def drafts(gate, lives_ns):
        gate.item(length=8 << 20, place=lives_ns)
        return gate.ask(DRAFT, 0, 1)[0] or gate.told()[1]

    mine.window[1024:1027], other.window[1024:1027] = b"two", b"six"
    expect("two drafts of 8 MiB, a third", (drafts(mine, 10 ** 8), drafts(other, 10 ** 8), drafts(other, 0)), (0, 0, LIMIT))
    until("quiet drafts give their room back", lambda: drafts(other, 0) == 0)
    mine.item(number=mine.told()[0])
    expect("a draft whose time is over", mine.ask(FILL, 0, 1)[0], INVALID)

    number, filled = other.told()[0], []
    for part in range(6):
        for at in range(1024):
            other.item(at, number=number, value_at=1 << 17, length=1, place=2 * (part * 1024 + at))
        filled.append(other.ask(FILL, 0, 1024)[0])
    expect("a draft in 1-byte ranges", filled, [0] * 5 + [LIMIT])

    mine.window[1024:1027] = b"six"
    mine.item()
    mine.send(PUT, 0, 1, c=20 * 10 ** 9)
    mine.window[mine.slot:mine.slot + 56] = struct.pack("<QQQQQIIII", 0, 0, 1024, 0, 0, 3, 0, 0, 0)
    expect("a pin behind a put that waits", mine.ask(PIN, 1, 1)[:2], (0, 1))
    busy.window[1024:1027] = b"six"
    busy.item()
    busy.send(PUT, 0, 1, c=20 * 10 ** 9)
    is_over("a second question about a slot", busy, PUT, 0, 1)
    other.send(DROP, number)
    expect("the put that waited", (mine.hear()[:2], mine.told()[1]), ((0, 0), 0))


def many(count, path):
    gates, let_in = [], 0
    for _ in range(count):
        gates.append(Gate(path))
        let_in += gates[-1].write()[0] == 0
    print(f"let in {let_in} of {count}", flush=True)
    sys.stdin.read()


def cling(other, path):
    reader, gate = Gate(path), Gate(path)
    expect("hello", reader.ask(HELLO)[0], 0)
    gate.send(WRITE)
    answer, control, _, _ = gate.socket.recvmsg(280, socket.CMSG_SPACE(4))
    name = answer[40:].split(b"\0")[0]
    gate.window = mmap.mmap(array.array("i", control[0][2])[0], struct.unpack_from("<Q", answer, 16)[0])
    gate.slot = len(gate.window) // 4
    gate.window[1024:1029] = b"value"
    gate.item(key_length=5)
    expect("pin", (gate.ask(PIN, 0, 1)[0], gate.told()), (0, (1, 0)))
    expect("another user's", reader.ask(OPEN, name=other.encode())[0], PERMISSION)
    expect("own pins, to write", reader.ask(OPEN, 1, name=name)[0], PERMISSION)
    code, _, _, pins = reader.ask(OPEN, name=name)
    expect("own pins", code, 0)
    fcntl.lockf(pins, fcntl.LOCK_SH | fcntl.LOCK_NB)
    for what, act in (("locked to write", lambda: fcntl.lockf(pins, fcntl.LOCK_EX | fcntl.LOCK_NB)), ("cut", lambda: os.ftruncate(pins, 0)),
                      ("opened to write", lambda: os.open(f"/proc/self/fd/{pins}", os.O_RDWR))):
        try:
            act()
            print(f"the pins were {what}")
        except OSError:
            pass
    gate.window[1024:1031] = b"drafted"
    gate.item(key_length=7)
    gate.send(PUT, 0, 1, c=20 * 10 ** 9)
    time.sleep(0.3)  # so that it is under way
    gate.socket.close()
    print("clings", flush=True)
    sys.stdin.read()


def full(path):
    gate = Gate(path)
    gate.write()
    gate.window[1024:1028] = b"full"
    gate.item(length=31 << 19, key_length=4)
    heard = gate.ask(DRAFT, 0, 1)
    print("full", heard[0], gate.told()[1], flush=True)
    sys.stdin.read()


if sys.argv[1] == "many":
    many(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1] == "cling":
    cling(*sys.argv[2:])
else:
    {"lie": lie, "half": half, "full": full, "hoard": hoard}[sys.argv[1]](sys.argv[2])
    print("done")
