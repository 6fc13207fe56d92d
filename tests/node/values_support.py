"""values_probe: one client for many values, since a sluicectl for each would cost more than the node itself."""

import os
import select
import subprocess
import tempfile

from node_support import BIN, PATIENCE

PROBE = os.path.join(BIN, "..", "tests", "values_probe")
PATIENCE_S = 60 * PATIENCE


class Values:
    """A client of the node. Use as a context manager. Timeouts of 0 are the node's."""

    def __init__(self, node):
        self.node = node
        self.why = ""  # error of the last request; "CODE: text"

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
        return AssertionError(f"{what}: {self.why} {self.said.read().decode()}\n{self.node.logs()}")

    def _ask(self, words, value=b"", within_ms=0):
        """(code, bytes that follow, text)"""
        try:
            self.process.stdin.write(words.encode() + b"\n" + value)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(f"{words}: the client has ended") from None
        ready = select.select([self.process.stdout], [], [], PATIENCE_S + within_ms / 1000)[0]
        line = self.process.stdout.readline() if ready else b""
        if line == b"":
            raise self._failure(f"{words}: no answer")
        code, length, text = line.decode().rstrip("\n").split(" ", 2)
        self.why = "" if code == "SL_OK" else f"{code}: {text}"
        return code, self.process.stdout.read(int(length)), text

    def put(self, key, value, timeout_ms=60000):
        if self._ask(f"put {key} {len(value)} {timeout_ms}", value, timeout_ms)[0] != "SL_OK":
            raise self._failure(f"put {key}")

    def get(self, key, timeout_ms=0):
        """None: it has none; .why has the reason."""
        code, value, _ = self._ask(f"get {key} {timeout_ms}", within_ms=timeout_ms)
        return value if code == "SL_OK" else None

    def remove(self, key, timeout_ms=0):
        """The error's name."""
        return self._ask(f"remove {key} {timeout_ms}", within_ms=timeout_ms)[0]

    def exists(self, key):
        return self._ask(f"exists {key}")[0] == "SL_OK"

    def places(self, key):
        """Which of "memory" and "disk" have it; it must exist."""
        code, _, text = self._ask(f"stat {key}")
        if code != "SL_OK":
            raise self._failure(f"stat {key}")
        return text.split()


def put_all(node, values, timeout_ms=60000):
    """{key: value}"""
    with Values(node) as client:
        for key, value in values.items():
            client.put(key, value, timeout_ms)


def get_all(node, keys, timeout_ms=0):
    """{key: value or None}"""
    with Values(node) as client:
        return {key: client.get(key, timeout_ms) for key in keys}
