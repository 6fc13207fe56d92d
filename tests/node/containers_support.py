"""Clients that share nothing with a node but its runtime directory: no process numbers, IPC, network, /tmp or /dev/shm."""

import contextlib
import os
import signal
import subprocess
import types

from contributions_support import Probe as Asked
from node_support import BIN, wait_until

LIVES = os.path.join(BIN, "..", "tests", "lives_probe")
HERE = "/mnt"  # where the client finds the one directory, as HERE/run

SCRIPT = f"""set -e
mount -t tmpfs none {HERE} && mkdir {HERE}/run && mount --bind "$1" {HERE}/run
mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp
shift
exec "$@"
"""


def apart(shared, user=("--map-root-user",)):
    """Words before a command that then runs in namespaces of its own, with the directory at HERE/run."""
    return ["unshare", "--user", *user, "--mount", "--pid", "--ipc", "--net", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
            SCRIPT, "sh", shared]


def can_be_apart():
    """Where the programs lie below /tmp they would be hidden, too."""
    return not BIN.startswith("/tmp/") and subprocess.run([*apart("/var"), "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def seen_there(node):
    """The node, as a client of another container knows it."""
    return types.SimpleNamespace(instance=node.instance, directory=HERE, shm="/dev/shm/none")


def shared(node):
    return node.directory + "/run"


def child_of(pid):
    """The one that unshare started."""
    def find():
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as line:
            found = line.read().split()
        return int(found[0]) if found else 0
    return wait_until(find, 5, f"{pid} has a child")


class Inside(Asked):
    """A probe in a container."""

    def __init__(self, test, node, *program, words=None):
        super().__init__(test, seen_there(node), (*(words or apart(shared(node))), program[0]), program[1:])
        self.node = node

    def counts(self):
        words = self.ask("count")
        plain = dict(zip(words[0:6:2], (int(word) for word in words[1:6:2])))
        plain.update((name, int(times)) for name, times in (word.split("=") for word in words[6:]))
        return plain

    def wait_ok(self, more, seconds=10):
        end = self.counts().get("SL_OK", 0) + more
        wait_until(lambda: self.counts().get("SL_OK", 0) >= end or self.process.poll() is not None, seconds, f"{more} more calls end well")


def signal_all(number, pids):
    """To each that is there: a stand-in ends with its client, and may just have done so."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def standins(node):
    """Processes of the node that are clients of other containers."""
    folder = shared(node) + "/gate.d"
    return [int(name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
