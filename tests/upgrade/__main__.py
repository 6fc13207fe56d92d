"""Runs this tree and the release before it on the same data: each names and refuses what the other has left and does not change it, their
clients and nodes refuse each other, and so does the upgrade. Formats change once, with 0.3; from its first commit on tests/upgrade checks
again that one release reads what the other has left.

    deploy/test --upgrade [--folder DIR] [TEST...]     a minute or more once, until the release is built; then a minute

The release is the newest tag v* before this commit, else the commit that tests/upgrade/release names. It is built in
build/upgrade/COMMIT and kept there. Exit codes: 0, 1 (a test failed), 77 (this machine cannot).
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "node"), os.path.join(HERE, "..", "support")]

import release  # noqa: E402
import suite  # noqa: E402
from node_support import BIN, CTL, NODE, Node  # noqa: E402
from upgrade_support import programs_of  # noqa: E402

OLD = {}  # bin, script, ctl of the release; main fills it


class Mixed(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="sl-mix-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def node(self, old, **settings):
        node = Node(**{"ranks": 2, "memory": "256MiB", "disk": "512MiB", **settings})
        if old:
            self.as_release(node)
        node.__enter__()
        self.addCleanup(lambda: (self.as_tree(node), node.__exit__()))
        return node

    @staticmethod
    def as_release(node):
        node.script, node.ctl_program, node.environment["SLUICE_BIN"] = OLD["script"], OLD["ctl"], OLD["bin"]

    @staticmethod
    def as_tree(node):
        node.script, node.ctl_program, node.environment["SLUICE_BIN"] = NODE, CTL, BIN


class Refused(Mixed):
    def supervised(self, node, *words):
        done = subprocess.run([node.script, *words, *node.where], env=node.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        print(done.stdout)
        return done

    def leftovers_refused(self, before, after, *parts):
        """A part is data that is left for the other to find: memory, or the disk."""
        for part in parts:
            with self.subTest(part=part):
                node = self.node(old=before is self.as_release)
                node.ctl("put", "kept", stdin=b"value")
                node.ctl("flush")
                node.stop(*(["--keep-arena"] if part == "memory" else []))
                if part == "disk":
                    shutil.rmtree(node.shm, ignore_errors=True)
                disk = node.directory + "/disk"
                place = node.shm if part == "memory" else disk
                left = digests(place)
                self.assertTrue(left)
                after(node)

                done = self.supervised(node, "start", *node.settings)

                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stdout, r"has format [0-9]+.* knows (up to )?[0-9]+: ")
                self.assertEqual(digests(place), left)
                for advised in (node.shm, disk):
                    shutil.rmtree(advised, ignore_errors=True)
                node.start()
                node.ctl("put", "again", stdin=b"value")
                node.stop()

    def test_what_the_release_has_left(self):
        self.leftovers_refused(self.as_release, self.as_tree, "memory", "disk")

    def test_what_this_tree_has_left(self):
        self.leftovers_refused(self.as_tree, self.as_release, "memory", "disk")

    def clients(self, old_node):
        node = self.node(old=old_node, disk="0")
        node.ctl("put", "kept", stdin=b"value")
        (self.as_tree if old_node else self.as_release)(node)
        for words in (("get", "kept"), ("put", "other")):
            done = node.ctl(*words, stdin=b"x", check=False)
            print(done.stderr.decode())
            self.assertEqual(done.returncode, 3, done)
            self.assertRegex(done.stderr.decode(), "has format [0-9]+.*: use the sluice package of the node's version")
        (self.as_release if old_node else self.as_tree)(node)
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_a_client_of_this_tree_at_a_node_of_the_release(self):
        self.clients(True)

    def test_a_client_of_the_release_at_a_node_of_this_tree(self):
        self.clients(False)

    def upgraded(self, old_node):
        node = self.node(old=old_node, disk="0")
        node.ctl("put", "kept", stdin=b"value")
        before = programs_of(node)
        done = subprocess.run([NODE, "upgrade", "--bin", BIN if old_node else OLD["bin"], *node.where], env=node.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nothing was changed", done.stdout)
        if old_node:
            self.assertRegex(done.stdout, r"has format [0-9]+.* knows [0-9]+: ", "not that a program of the release is missing")
        self.assertEqual(programs_of(node), before)
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_an_upgrade_from_the_release(self):
        self.upgraded(True)

    def test_back_to_the_release(self):
        self.upgraded(False)


def digests(directory):
    """{file below it: digest of its bytes}"""
    found = {}
    for here, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(here, name), "rb") as file:
                found[os.path.relpath(os.path.join(here, name), directory)] = hashlib.sha256(file.read()).hexdigest()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=os.path.join(release.ROOT, "build", "upgrade"), help="where the release is built")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    if not os.path.exists(CTL):
        print(f"skipped: no programs in {BIN}")
        sys.exit(suite.SKIP_CODE)
    name, commit = release.commit_of_release()
    root = release.built(name, commit, arguments.folder)
    print(f"release {name}, this tree {release.git('describe', '--always', '--dirty')}", flush=True)
    OLD.update(bin=root + "/build/release/bin", script=root + "/deploy/sluice-node", ctl=root + "/build/release/bin/sluicectl")
    sys.argv[1:] = arguments.tests
    suite.run()


if __name__ == "__main__":
    main()
