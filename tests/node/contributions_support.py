"""Drives contributions_probe, a client that executes commands, a line each."""

import os
import select
import subprocess
import time

from node_support import BIN, PATIENCE

PROBE = os.path.join(BIN, "..", "tests", "contributions_probe")
PATIENCE_S = 20 * PATIENCE


class Probe:
    def __init__(self, test, node, program=(PROBE,), arguments=()):
        self.process = subprocess.Popen([*program, node.instance, node.directory + "/run", node.shm, *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.heard = b""
        test.addCleanup(self.end)

    def tell(self, *words):
        self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())

    def hear(self):
        end = time.monotonic() + PATIENCE_S
        while b"\n" not in self.heard:
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            more = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if more == b"":
                self.process.kill()
                raise AssertionError(f"the probe says nothing: {self.process.stderr.read().decode()}")
            self.heard += more
        line, self.heard = self.heard.split(b"\n", 1)
        return line.decode().split()

    def ask(self, *words):
        """[code, ...]"""
        self.tell(*words)
        return self.hear()

    def code(self, *words):
        return self.ask(*words)[0]

    def listed(self):
        """{name: (used, length)}"""
        answer = self.ask("list")
        if answer[0] != "SL_OK":
            raise AssertionError(f"list: {answer}")
        pairs = (word.split("=") for word in answer[1:])
        return {name: tuple(int(part) for part in sizes.split("/")) for name, sizes in pairs}

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
