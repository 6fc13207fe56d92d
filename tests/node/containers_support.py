"""Clients that share only two directories with a node: no process numbers, IPC, network, /tmp or /dev/shm."""

import os
import signal
import subprocess
import types

from contributions_support import Probe as Asked
from node_support import BIN, log_of, wait_until
from values_support import put_all

LIVES = os.path.join(BIN, "..", "tests", "lives_probe")
HERE = "/mnt"  # where the client finds the two directories, as HERE/run and HERE/shm

SCRIPT = f"""set -e
mount -t tmpfs none {HERE} && mkdir {HERE}/run {HERE}/shm && mount --bind "$1" {HERE}/run && mount --bind "$2" {HERE}/shm
mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp
shift 2
exec "$@"
"""


def apart(run, shm):
    """Words before a command that run it in namespaces of its own, with the directories at HERE."""
    return ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--ipc", "--net", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
            SCRIPT, "sh", run, shm]


def can_be_apart():
    """False where programs lie below /tmp, since they would be hidden as well."""
    return not BIN.startswith("/tmp/") and subprocess.run([*apart("/var", "/var"), "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def seen_there(node):
    """The node, as a client of another container sees it."""
    return types.SimpleNamespace(instance=node.instance, directory=HERE, shm=HERE + "/shm/" + os.path.basename(node.shm))


def shared(node):
    """The second one holds the shm directory, which a stop removes and a start makes."""
    return node.directory + "/run", os.path.dirname(node.shm)


def child_of(pid):
    """The child that unshare started."""
    def find():
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as line:
            found = line.read().split()
        return int(found[0]) if found else 0
    return wait_until(find, 5, f"{pid} has a child")


class Inside(Asked):
    """A probe in a container."""

    def __init__(self, test, node, *program, words=None):
        super().__init__(test, seen_there(node), (*(words or apart(*shared(node))), program[0]), program[1:])
        self.node = node

    def counts(self):
        words = self.ask("count")
        plain = dict(zip(words[0:6:2], (int(word) for word in words[1:6:2])))
        plain.update((name, int(times)) for name, times in (word.split("=") for word in words[6:]))
        return plain

    def wait_ok(self, more, seconds=10):
        end = self.counts().get("SL_OK", 0) + more
        wait_until(lambda: self.counts().get("SL_OK", 0) >= end or self.process.poll() is not None, seconds, f"{more} more calls end well")


def pins(node):
    """Pin files of clients: their names contain the process number in the client's namespace."""
    return [name for name in os.listdir(node.shm) if name.startswith("pins.client.")]


def evict_all(node):
    """Puts more than a node of 16 MiB holds."""
    put_all(node, {f"other-{number}": b"other" * 28000 for number in range(130)})


def restart(node, actor="registrar"):
    old = node.live_pid(actor)
    os.kill(old, signal.SIGKILL)
    node.wait_restarted(actor, old)


def lock_is_lost(test, node, probe):
    """The log names it; its pins stay, also over restarts."""
    (name,) = pins(node)
    line = f"{name[len('pins.'):]} has lost the lock of its pin file"
    wait_until(lambda: line in log_of(node, "registrar") or probe.process.poll() is not None, 5, "the log names it")
    for turn in range(2):
        evict_all(node)
        test.assertEqual(probe.code("check"), "whole")
        restart(node)
    wait_until(lambda: len(pins(node)) < 2, 5, "others that ended have left nothing")
    test.assertEqual(pins(node), [name])


def lost_is_refused(test, probe):
    """Its next call gets the error; another client is accepted."""
    wait_until(lambda: probe.code("draft") == "SL_ERR_STALE", 5, "its call gets the error")
    test.assertEqual(probe.code("put"), "SL_ERR_STALE")
    test.assertEqual(probe.code("pool"), "SL_ERR_STALE", "and does not ask until its deadline")
    test.assertEqual(probe.code("more"), "SL_OK", "others of the same process are let in")
    test.assertEqual(probe.code("check"), "whole")
