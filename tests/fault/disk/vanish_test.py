"""A disk directory that is removed, unmounted or made read-only under a living tierer: misses, a state that reports it, recovery."""

import os
import random
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "node"))

from node_support import Node, main, wait_until  # noqa: E402

SETTINGS = ("--disk-segment", "4MiB", "--op-timeout", "10s")


def mount(*arguments):
    return subprocess.run(["mount", *arguments], check=False, stderr=subprocess.DEVNULL).returncode == 0


class Vanish(unittest.TestCase):
    def fill(self, node, count):
        rng = random.Random(7)
        values = {f"object{number}": rng.randbytes(1 << 20) for number in range(count)}
        for key, value in values.items():
            node.ctl("put", key, "-", stdin=value)
        node.ctl("flush", "--timeout", "120s")
        return values

    def served(self, node, values):
        """The number of values found; their bytes must be right."""
        count = 0
        for key, value in values.items():
            got = node.ctl("get", key, "-", check=False)
            self.assertTrue(got.returncode != 0 or got.stdout == value, f"wrong bytes of {key}")
            count += got.returncode == 0
        return count

    def changed(self, node, pid):
        """Waits until the tierer has noticed: it is a new process, or the supervisor waits to restart it."""
        wait_until(lambda: node.pid("tierer.0") != pid, 20, "the tierer noticed")

    def back(self, node):
        wait_until(lambda: node.pid("tierer.0") != 0, 60, "the tierer is back")
        node.wait_ready(60)

    def test_removed_directory_costs_what_was_in_it(self):
        with Node(ranks=1, memory="8MiB", disk="64MiB", settings=SETTINGS) as node:
            values = self.fill(node, 16)
            pid = node.pid("tierer.0")
            shutil.rmtree(node.directory + "/disk")
            self.changed(node, pid)
            self.back(node)
            left = self.served(node, values)
            self.assertLess(left, len(values))  # most were only on disk
            again = self.fill(node, 16)
            self.assertEqual(self.served(node, again), len(again), node.logs())
            print(f"{left} of {len(values)} were in memory as well")

    def test_directory_that_was_taken_away_comes_back_with_all_of_it(self):
        node = Node(ranks=1, memory="8MiB", disk="64MiB", settings=SETTINGS)
        real, path = node.directory + "/real", node.directory + "/disk"
        os.makedirs(real, mode=0o700)
        os.makedirs(path, mode=0o700)
        if not mount("--bind", real, path):
            shutil.rmtree(node.directory, ignore_errors=True)
            self.skipTest("mounting is not permitted here")
        try:
            with node:
                values = self.fill(node, 16)
                pid = node.pid("tierer.0")
                subprocess.run(["umount", "--lazy", path], check=True)
                self.changed(node, pid)
                self.assertLess(self.served(node, values), len(values))
                pid = node.pid("tierer.0")
                self.assertTrue(mount("--bind", real, path))
                self.assertTrue(mount("-o", "remount,bind,ro", path))
                self.changed(node, pid)
                wait_until(lambda: b"degraded" in node.ctl("status").stdout, 20, "the node reports that its disk is missing")
                self.served(node, values)
                self.assertTrue(mount("-o", "remount,bind,rw", path))
                self.back(node)
                # The tierer is ready before it has reported the values it found.
                wait_until(lambda: self.served(node, values) == len(values), 60, "everything is there again")
        finally:
            subprocess.run(["umount", "--lazy", path], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(node.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
