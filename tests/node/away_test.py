"""A disk that was absent - left out of the list, or below a mount that was missing - returns no removed value."""

import os
import shutil
import signal
import subprocess
import unittest

from disks_test import DisksNode
from node_support import lives, main, wait_until
from values_support import Values, put_all


def mount(*arguments):
    return subprocess.run(["mount", *arguments], check=False, stderr=subprocess.DEVNULL).returncode == 0


class Away(unittest.TestCase):
    def node(self, paths="AB"):
        node = DisksNode(paths)
        node.__enter__()
        self.addCleanup(node.__exit__)
        return node

    def fill(self, node, name="old"):
        node.put(name, 24)
        node.flush()

    def change(self, node, letters, keep):
        node.stop(*(["--keep-arena"] if keep else []))
        node.use(letters)
        node.start()
        node.wait_ready(60)

    def power_cut(self, node):
        """Kills every process at once, and removes the memory."""
        with open(node.directory + "/run/supervisor.pid", encoding="utf-8") as line:
            pids = [int(line.read().split()[0])]
        pids += [row[0] for row in node.processes().values() if row[0] != 0]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(lives(pid) for pid in pids), 10, "everything is dead")
        shutil.rmtree(node.shm, ignore_errors=True)

    def remove_all(self, node):
        """Removes keys by name; each answer is that it is removed, or did not exist."""
        with Values(node) as client:
            for key in node.values:
                self.assertIn(client.remove(key, 20000), ("SL_OK", "SL_ERR_NOT_FOUND", "SL_ERR_DISK_AWAY"), client.why + node.logs())

    def risen(self, node):
        return sorted(set(node.values) - set(node.missing(timeout_ms=20000)))

    def check_gone(self, node):
        self.assertEqual(self.risen(node), [], node.logs())
        self.fill(node, "new")  # and the node is complete
        new = [key for key in node.values if key.startswith("new/")]
        self.assertEqual(node.missing(new), [], node.logs())

    def emptied(self, node):
        return sum(disk["emptied_segments"] for disk in node.disks().values())

    def check_left_out(self, keep):
        node = self.node("AB")
        self.fill(node)
        self.change(node, "B", keep)
        self.remove_all(node)
        self.change(node, "AB", keep)
        self.assertGreater(self.emptied(node), 0)
        self.check_gone(node)

    def test_path_that_is_put_back_with_the_memory_kept(self):
        self.check_left_out(True)

    def test_path_that_is_put_back_after_a_stop(self):
        self.check_left_out(False)

    def test_path_that_is_put_back_after_power_cuts(self):
        node = self.node("AB")
        self.fill(node)
        self.power_cut(node)
        node.use("B")
        node.start()
        node.wait_ready(60)
        self.remove_all(node)
        self.power_cut(node)
        node.use("BA")
        node.start()
        node.wait_ready(60)
        self.check_gone(node)

    def test_removal_of_everything_at_once(self):
        node = self.node("AB")
        self.fill(node)
        self.change(node, "B", False)
        node.ctl("rm", "--all", "--op-timeout", "20s")
        self.change(node, "AB", False)
        self.check_gone(node)

    def test_one_disk_alone_and_then_the_other_with_the_memory_kept(self):
        node = self.node("A")
        self.fill(node)
        self.change(node, "B", True)
        self.remove_all(node)
        self.change(node, "A", True)
        self.check_gone(node)

    def test_one_disk_alone_then_the_other_then_both(self):
        node = self.node("A")
        self.fill(node)
        self.change(node, "B", False)
        self.remove_all(node)
        self.change(node, "A", False)  # no tierer runs that knows
        self.change(node, "AB", False)
        self.check_gone(node)

    def test_no_disks_for_a_while_with_the_memory_kept(self):
        node = self.node("A")
        self.fill(node)
        disk = node.settings.index("--disk") + 1
        for size in ("0", node.settings[disk]):
            node.settings[disk] = size
            self.change(node, "A", True)
            if size == "0":
                self.assertLess(len(node.missing(timeout_ms=5000)), len(node.values))
                node.put("old", 24)  # also what was only on the disk
                self.remove_all(node)
        wait_until(lambda: self.emptied(node) > 0, 60, "the disk is emptied")
        self.check_gone(node)

    def test_new_value_of_a_key_whose_disk_is_away_stays(self):
        node = self.node("AB")
        self.fill(node)
        self.change(node, "B", False)
        old = dict(node.values)
        for key in node.missing(timeout_ms=20000):  # values that were only on A are put again, with other bytes
            node.values[key] = node.random.randbytes(len(old[key]))
            put_all(node, {key: node.values[key]}, 60000)
        self.assertNotEqual(old, node.values)
        node.flush()
        self.change(node, "AB", False)
        self.assertEqual(node.missing(), [], node.logs())

    def test_path_that_was_left_out_of_an_idle_node_keeps_everything(self):
        for keep in (True, False):
            node = self.node("AB")
            self.fill(node)
            self.change(node, "B", keep)
            self.assertLess(len(node.missing(timeout_ms=5000)), len(node.values))
            self.change(node, "AB", keep)
            self.assertEqual(node.missing(), [], node.logs())

    def wrong_directory(self, others):
        """A node whose disk A is a mount, which is missing while all keys are removed."""
        node = DisksNode(others + "A")
        real, path = node.directory + "/real", node.path("A")
        os.makedirs(real, mode=0o700)
        os.makedirs(path, mode=0o700)
        if not mount("--bind", real, path):
            shutil.rmtree(node.directory, ignore_errors=True)
            self.skipTest("mounting is not permitted here")
        self.addCleanup(node.__exit__)
        self.addCleanup(lambda: subprocess.run(["umount", "--lazy", path], check=False, stderr=subprocess.DEVNULL))
        tierer = f"tierer.{len(others)}"
        node.__enter__()
        self.fill(node)
        pid = node.pid(tierer)
        subprocess.run(["umount", "--lazy", path], check=True)
        wait_until(lambda: node.pid(tierer) not in (0, pid), 60, "the tierer serves the mount point")
        node.wait_ready(60)
        self.remove_all(node)
        return node, tierer, lambda: mount("--bind", real, path)

    def test_mount_that_was_missing(self):
        for others in ("", "B"):
            node, tierer, remount = self.wrong_directory(others)
            pid = node.pid(tierer)
            self.assertTrue(remount())
            wait_until(lambda: node.pid(tierer) not in (0, pid), 60, "the tierer serves the disk")
            node.wait_ready(60)
            wait_until(lambda: self.emptied(node) > 0, 60, "the disk is emptied")
            self.check_gone(node)
            self.power_cut(node)
            node.start()
            node.wait_ready(60)
            old = [key for key in node.values if key.startswith("old/")]
            self.assertEqual(node.missing(old), sorted(old), node.logs())

    def test_mount_that_was_missing_until_a_power_cut(self):
        node, _, remount = self.wrong_directory("B")
        self.power_cut(node)
        self.assertTrue(remount())
        node.start()
        node.wait_ready(60)
        self.check_gone(node)


if __name__ == "__main__":
    main()
