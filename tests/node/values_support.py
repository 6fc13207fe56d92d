"""values_probe: one client for many values, where a sluicectl each would cost more than the node does."""

import os
import select
import subprocess
import tempfile

from node_support import BIN, PATIENCE

PROBE = os.path.join(BIN, "..", "tests", "values_probe")
PATIENCE_S = 60 * PATIENCE


class Values:
    """A client of the node. Use as a context manager."""

    def __init__(self, node):
        self.node = node

    def __enter__(self):
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([PROBE, self.node.instance, self.node.directory + "/run", self.node.shm], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.said)
        return self

    def __exit__(self, failed, *_):
        if failed:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)
        with self.said:
            if self.process.returncode != 0 and not failed:
                raise self._failure("end")

    def _failure(self, what):
        self.said.seek(0)
        return AssertionError(f"{what}: {self.said.read().decode()}\n{self.node.logs()}")

    def _ask(self, words, value=b""):
        """(code, length of what follows)"""
        self.process.stdin.write(words.encode() + b"\n" + value)
        self.process.stdin.flush()
        line = self.process.stdout.readline() if select.select([self.process.stdout], [], [], PATIENCE_S)[0] else b""
        if line == b"":
            raise self._failure(f"{words}: no answer")
        code, length = line.decode().split()
        return code, int(length)

    def put(self, key, value):
        code, _ = self._ask(f"put {key} {len(value)}", value)
        if code != "SL_OK":
            raise self._failure(f"put {key}: {code}")

    def get(self, key):
        """None: it has none now."""
        code, length = self._ask(f"get {key}")
        return self.process.stdout.read(length) if code == "SL_OK" else None

    def exists(self, key):
        return self._ask(f"exists {key}")[0] == "SL_OK"


def put_all(node, values):
    """{key: value}"""
    with Values(node) as client:
        for key, value in values.items():
            client.put(key, value)
