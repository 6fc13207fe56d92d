"""Common code of upgrades: programs in a directory of their own, load that is checked, the upgrade itself."""

import os
import shutil
import subprocess
import time

from contributions_support import Probe as Asked
from node_support import BIN, NODE, PATIENCE

TESTS = os.path.join(BIN, "..", "tests")
DEADLINE_MS = 2000  # of an op: no call waits longer because of an upgrade


def programs_copied(directory, source=BIN):
    """A copy of a node's programs: other files, so that tests can see which ones an actor runs."""
    os.mkdir(directory)
    for name in os.listdir(source):
        if name.startswith("sluice"):
            shutil.copy2(os.path.join(source, name), directory)
    scripts = os.path.join(directory, "..", "share")
    if not os.path.exists(scripts):
        shutil.copytree(os.path.join(source, "..", "share"), scripts)
    return directory


def program_of(node, name):
    with open(f"{node.directory}/run/pid/{name}", encoding="utf-8") as line:
        return os.path.dirname(os.readlink(f"/proc/{line.read().split()[0]}/exe"))


def programs_of(node):
    """{actor or helper: the directory of the program that it runs}"""
    return {name: program_of(node, name) for name in sorted(os.listdir(node.directory + "/run/pid"))}


class Upgrade:
    """sluice-node upgrade in the background; end() returns its output and how long it took."""

    def __init__(self, node, directory, script=NODE):
        self.node = node
        self.began = time.monotonic()
        self.process = subprocess.Popen([script, "upgrade", "--bin", directory, *node.where], env=node.environment, start_new_session=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self):
        said = self.process.communicate(timeout=60 * PATIENCE)[0]
        return self.process.returncode, said, time.monotonic() - self.began


class Lives(Asked):
    """lives_probe: threads that put, get, pin and draft, and check every byte."""

    def __init__(self, test, node, threads, tests=TESTS):
        super().__init__(test, Placed(node), (os.path.join(tests, "lives_probe"),), (str(threads),))

    def counts(self):
        words = self.ask("count")
        return dict(zip(words[0:6:2], (int(word) for word in words[1:6:2])))


class Placed:
    """A node's place, in the form that probes need."""

    def __init__(self, node):
        self.instance, self.directory, self.shm = node.instance, node.directory, node.shm


class Putting:
    """putting_probe: threads that put; at its end it prints how many failed, and the longest put."""

    def __init__(self, node, threads, tests=TESTS):
        self.process = subprocess.Popen([os.path.join(tests, "putting_probe"), node.instance, node.directory + "/run", node.shm, str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "putting\n":
            raise AssertionError("putting_probe did not begin")

    def end(self):
        """(puts, failed, longest in ms, the first failure)"""
        count, failed, longest_ms, failure = self.process.communicate(timeout=30 * PATIENCE)[0].strip("\n").split(" ", 3)
        return int(count), int(failed), float(longest_ms), failure
