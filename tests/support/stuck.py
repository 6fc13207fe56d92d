"""A directory on a device that does not answer, like that of a lost NFS server: a process that reads or stats its file `lock`, or looks
for another one, waits in the kernel, where no signal ends it. It is a FUSE file system whose server is this program, so every wait ends
with it."""

import ctypes
import os
import struct
import subprocess
import sys

INIT, GETATTR, LOOKUP, OPEN, READ = 26, 3, 1, 14, 15
ROOT, FILE = 1, 2  # nodes


def attributes(node, mode):
    return struct.pack("<Q5Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, os.geteuid(), os.getegid(), 0, 4096, 0)


def answer(op, node):
    """The reply; None: never reply."""
    if op == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 0, 0, 0, 0, *[0] * 7)
    if op == LOOKUP:
        return struct.pack("<QQQQII", FILE, 1, 3600, 0, 0, 0) + attributes(FILE, 0o100600)
    if op == GETATTR and node == ROOT:
        return struct.pack("<QII", 3600, 0, 0) + attributes(ROOT, 0o40700)
    return struct.pack("<QII", 1, 1, 0) if op == OPEN else None  # bypasses the page cache


def serve(path):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
    if ctypes.CDLL(None).mount(b"stuck", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError("mount")
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 17)
        _, op, unique, node = struct.unpack("<IIQQ", request[:24])
        if op == READ or (op == GETATTR and node == FILE) or (op == LOOKUP and request[40:] != b"lock\0"):
            print("asked", flush=True)
        else:
            text = answer(op, node)
            os.write(device, struct.pack("<IiQ", 16 + len(text or b""), 0 if text else -38, unique) + (text or b""))


def stuck(test, path):
    """Returns a function that starts a process, which runs the given code and then waits for a file of this directory until the test
    ends, even if it is killed. Skips the test where FUSE is not permitted."""
    os.mkdir(path)
    server = subprocess.Popen([sys.executable, __file__, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    test.addCleanup(subprocess.run, ["umount", "--lazy", path], stderr=subprocess.DEVNULL, check=False)
    test.addCleanup(server.communicate)
    test.addCleanup(server.kill)
    if server.stdout.readline() != "mounted\n":
        test.skipTest("FUSE is not permitted here")

    def waits(code, apart=()):
        code = f"import fcntl, os\n{code}\nos.read(os.open({path + '/lock'!r}, os.O_RDONLY), 1)"
        process = subprocess.Popen([*apart, sys.executable, "-c", code])
        test.addCleanup(process.wait)
        test.addCleanup(process.kill)
        test.addCleanup(server.kill)  # first: the process cannot end before
        server.stdout.readline()
        return process

    return waits


if __name__ == "__main__":
    serve(sys.argv[1])
