"""A process of another user at a node's gate, which lets it read: it tries to get more. Prints what it got, one a line.

    containers_hostile.py SOCKET
    containers_hostile.py --many N SOCKET    until stdin ends: N clients
"""

import array
import mmap
import os
import socket
import struct
import sys
import time

HELLO, OPEN, LOOK, REMOVE, PINS, LEND, UNLEND, FETCH = range(1, 9)


def ask(gate, question, name=b"", a=0, b=0, c=0, fd=-1):
    """(code, descriptor or -1)"""
    packet = struct.pack("<8sIIQQQ64s", b"slgate>\n", 1, question, a, b, c, name)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
    gate.sendmsg([packet], rights)
    answer, control, _, _ = gate.recvmsg(280, socket.CMSG_SPACE(4))
    given = array.array("i", control[0][2]) if control else [-1]
    return struct.unpack_from("<I", answer, 12)[0], given[0]


def attempt(what, act):
    try:
        act()
    except (OSError, ValueError):
        return
    print(what)


def connected(path):
    gate = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gate.connect(path)
    return gate


def many(count, path):
    """Each of them stays."""
    gates = [connected(path) for _ in range(count)]
    print(f"let in {sum(ask(gate, HELLO)[0] == 0 for gate in gates)} of {count}", flush=True)
    sys.stdin.read()


def unread(path):
    """How many descriptors can be left on their way: they count against the node's user."""
    gate = connected(path)
    ask(gate, HELLO)
    packet = struct.pack("<8sIIQQQ64s", b"slgate>\n", 1, OPEN, 0, 0, 0, b"index")
    try:
        for _ in range(200):
            gate.sendmsg([packet], [], socket.MSG_DONTWAIT)
            time.sleep(0.002)
    except OSError:
        pass
    count = 0
    gate.settimeout(1)
    try:
        while gate.recvmsg(280, socket.CMSG_SPACE(4))[1]:
            count += 1
    except OSError:
        pass
    return count


def main():
    if sys.argv[1] == "--many":
        many(int(sys.argv[2]), sys.argv[3])
        return
    gate = connected(sys.argv[1])
    hello = ask(gate, HELLO)[0]
    if hello != 0:
        print("hello refused")
        return
    print("hello", hello)
    for name in (b"index", b"arena.0", b"seen"):
        code, fd = ask(gate, OPEN, name)
        print("read", name.decode(), code)
        attempt(f"truncated {name}", lambda: os.ftruncate(fd, 0))
        attempt(f"wrote {name}", lambda: os.pwrite(fd, b"x", 0))
        attempt(f"mapped {name}", lambda: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
        attempt(f"opened {name} anew", lambda: os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR)))
        attempt(f"changed the mode of {name}", lambda: os.fchmod(fd, 0o666))
        attempt(f"punched a hole into {name}", lambda: os.posix_fallocate(fd, 0, 4096))
        attempt(f"found the folder of {name}", lambda: os.listdir(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}"))))
    for name in (b"index", b"arena.0", b"seen", b"leases", b"counts", b"labels"):
        if ask(gate, OPEN, name, 1)[1] >= 0:
            print("writes", name)
    for name in (b"leases", b"counts", b"labels", b"settled", b"metrics.registrar", b"pins.client.1.0", b"../../etc/passwd", b".", b"",
                 b"a" * 64):
        if ask(gate, OPEN, name)[1] >= 0:
            print("reads", name)
    for what, words in (("pins", (PINS, b"pins.client.1.0", 8, 8)), ("remove", (REMOVE, b"index")), ("unlend", (UNLEND, b"", 0)),
                        ("fetch", (FETCH, b"", os.getppid(), 0, 0)), ("another question", (77,))):
        code, fd = ask(gate, *words)
        if code == 0 or fd >= 0:
            print("may", what)
    if ask(gate, LEND, fd=0)[0] == 0:
        print("may lend")
    print("unread", unread(sys.argv[1]))


main()
