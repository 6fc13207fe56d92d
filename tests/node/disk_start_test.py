"""The directory of a disk tier: an operator's own directory is used, an unusable one makes the start fail, and a dead tier is reported."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

from node_support import BIN, PATIENCE, Node, main, store_setup, wait_until
from stuck import stuck
from values_support import Values

UID = os.geteuid()
ROOT_ALONE = unittest.skipUnless(UID == 0, "skipped: only root can give a directory away")


class DiskStart(unittest.TestCase):
    def node(self, settings=(), **options):
        """Not started; its disk path does not exist yet."""
        node = Node(ranks=1, memory="64MiB", disk="64MiB", settings=settings, **options)
        self.addCleanup(node.__exit__)
        return node

    def place(self, node):
        return node.directory + "/disk"

    def own(self, node):
        return f"{self.place(node)}/sluice-disk-{UID}"

    def put_flushed(self, node, key):
        node.ctl("put", key, "-", stdin=key.encode())
        node.ctl("flush", "--timeout", "60s")

    def test_a_directory_of_mode_0755_gets_one_below_and_is_found_again(self):
        node = self.node()
        os.mkdir(self.place(node))
        os.chmod(self.place(node), 0o755)
        for mode in (0o755, 0o700, 0o755):  # a later change does not move it
            os.chmod(self.place(node), mode)
            node.start()
            key = f"key{mode}"
            self.put_flushed(node, key)
            node.stop()
            self.assertEqual(os.listdir(self.place(node)), [f"sluice-disk-{UID}"])
            self.assertEqual(os.stat(self.own(node)).st_mode & 0o7777, 0o700)
        node.start()
        for mode in (0o755, 0o700):
            self.assertEqual(node.ctl("get", f"key{mode}").stdout, f"key{mode}".encode(), node.logs())

    def test_a_directory_that_holds_a_disk_stays_it(self):
        node = self.node()
        node.start()  # makes it, 0700
        self.put_flushed(node, "kept")
        node.stop()
        os.chmod(self.place(node), 0o755)
        node.start()
        self.assertEqual(node.ctl("get", "kept").stdout, b"kept", node.logs())
        self.assertFalse(os.path.exists(self.own(node)))

    def refused(self, node, *texts, seconds=10):
        """The start fails soon, reports why, and leaves no process running."""
        started = time.monotonic()
        done = node.supervisor("start", *node.settings, check=False)
        self.assertLess(time.monotonic() - started, seconds * PATIENCE)
        self.assertEqual(done.returncode, 1, done.stdout)
        for text in texts:
            self.assertIn(text, done.stdout)
        self.assertEqual(node.leftovers(), [])
        self.assertEqual(node.supervisor("status", check=False).returncode, 3)

    def test_what_is_no_directory_is_refused(self):
        node = self.node()
        with open(self.place(node), "w", encoding="utf-8"):
            pass
        self.refused(node, "is no directory", self.place(node))

    def test_what_cannot_be_made_is_refused(self):
        node = self.node(settings=("--disk-path", "/proc/nothing"))
        self.refused(node, "/proc/nothing")

    def test_others_who_may_write_are_refused_but_for_a_sticky_directory(self):
        node = self.node()
        os.mkdir(self.place(node))
        for mode in (0o777, 0o775):
            os.chmod(self.place(node), mode)
            self.refused(node, "others may write there", f"{mode:04o}", "chmod")
        os.chmod(self.place(node), 0o1777)
        node.start()
        self.assertTrue(os.path.isdir(self.own(node)))

    @ROOT_ALONE
    def test_a_directory_of_another_user_is_refused(self):
        node = self.node()
        os.mkdir(self.place(node))
        os.chown(self.place(node), 4711, 4711)
        self.refused(node, "belongs to uid 4711")

    def test_two_paths_that_are_one_directory_are_refused(self):
        node = self.node()
        path, link = self.place(node), node.directory + "/link"
        os.mkdir(path)
        os.symlink(path, link)
        node.settings += ["--disk-path", f"{path},{link}"]
        self.refused(node, "lead to the same directory")

    def test_a_disk_of_another_node_is_refused(self):
        first, second = self.node(), self.node()
        first.start()
        second.start()
        registrar, words = second.pid("registrar"), ("--disk-path", self.place(first))
        said = f"is in use by the node of '{first.directory}/run'"
        self.assertRegex(second.supervisor("restart", *words, check=False).stdout, f"nothing was changed: .*{said}")
        self.assertEqual(second.pid("registrar"), registrar)
        second.stop()
        second.settings += words
        self.refused(second, said, seconds=2)
        for command in (("config", "--check"), ("doctor",)):
            done = second.ctl(*command, *second.settings, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, (done.stdout + done.stderr).decode())
        self.put_flushed(first, "undisturbed")
        first.supervisor("restart")  # its own disk is its own

    def test_a_directory_with_the_name_of_a_file_of_the_disk_is_named(self):
        node = self.node()
        node.start()
        self.put_flushed(node, "kept")
        for name in ("segment.7", "members"):
            path = f"{self.place(node)}/{name}"
            if os.path.exists(path):
                os.rename(path, node.directory + "/aside")
            os.mkdir(path)
            refused = node.supervisor("restart", check=False).stdout
            self.assertRegex(refused, f"nothing was changed: .*{path}' is no plain file: move it elsewhere")
            node.stop()
            self.refused(node, f"{path}' is no plain file: move it elsewhere")
            self.assertIn(f"{path}' is no plain file", node.ctl("doctor", *node.settings, check=False).stdout.decode())
            os.rmdir(path)
            if name == "members":
                os.rename(node.directory + "/aside", path)
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"kept")

    def test_a_restart_with_a_disk_that_a_start_refuses_changes_nothing(self):
        node = self.node()
        node.start()
        registrar, other = node.pid("registrar"), node.directory + "/other"
        with open(other, "w", encoding="utf-8"):
            refused = node.supervisor("restart", "--disk-path", other, check=False)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertRegex(refused.stdout, f"nothing was changed: .*{other}.* is no directory")
        self.assertEqual(node.pid("registrar"), registrar)
        node.supervisor("restart")
        self.put_flushed(node, "kept")

    # ---- a failing disk, and a node that starts nevertheless ----

    def two_paths(self, node, other):
        node.settings += ["--disk-path", f"{self.place(node)},{other}"]

    def test_one_path_of_two_that_cannot_work_is_told_of_and_the_node_starts(self):
        node = self.node()
        self.two_paths(node, "/proc/nothing")
        said = node.start().stdout
        self.assertRegex(said, "/proc/nothing.*: going on with the other disks")
        self.assertIn("continues without tierer.1", said)
        self.put_flushed(node, "kept")

    def test_a_disk_whose_lock_is_held_a_while_is_waited_for(self):
        """As with requests of a killed tierer that the device has not answered."""
        node = self.node()
        os.mkdir(self.place(node), 0o700)
        with open(self.place(node) + "/lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            def held_until_the_tierer_met_it():
                try:
                    wait_until(lambda: "in use by another process" in node.logs(), 20, "the tierer finds the lock held")
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)

            holder = threading.Thread(target=held_until_the_tierer_met_it)
            holder.start()
            self.addCleanup(holder.join)
            said = node.start().stdout
        self.assertRegex(said, "in use by another process: the tierer tries again")
        self.put_flushed(node, "kept")

    def test_what_another_tierer_has_open_is_not_asked(self):
        """Its device may not answer."""
        node = self.node()
        node.start()
        node.stop()  # its disk has a lock
        stuck(self, node.directory + "/device")("open('/proc/self/comm', 'w').write('sluice-tierer')")
        self.assertNotIn("has not answered", node.start().stdout)

    def test_a_check_that_does_not_answer_keeps_no_node_from_its_start(self):
        """As on a device that hangs: the program that checks never ends."""
        node = self.node()
        node.programs_with_ctl('"config --check"*) exec sleep 600 ;;')
        said = node.start().stdout
        self.assertRegex(said, f"the disk check of {self.place(node)} has not answered within 10 s: starting anyway")
        self.put_flushed(node, "kept")

    def test_a_disk_that_does_not_answer_keeps_no_command_waiting(self):
        node = self.node()
        node.start()
        node.stop()  # leaves its logs
        stuck(self, node.directory + "/device")
        self.two_paths(node, node.directory + "/device/disk")
        said = node.start(disks=False).stdout
        self.assertRegex(said, "has not answered within 10 s: starting anyway")
        self.assertIn("continues without tierer.1", said)
        os.mkdir(node.directory + "/run/mine")
        self.assertIn("tierer.1", node.supervisor("status", check=False).stdout)
        node.ctl("put", "new", "-", stdin=b"new")
        self.assertEqual(node.ctl("get", "new").stdout, b"new")
        self.assertIn("stopped", node.stop().stdout)

    def test_a_file_system_without_room_is_refused(self):
        node = self.node()
        self.small_file_system(node, "1m")
        self.refused(node, "free", "two segments")

    def small_file_system(self, node, size):
        os.mkdir(self.place(node))
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "none", self.place(node)],
                          check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("mounting is not permitted here")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.place(node)], check=False)

    # ---- a file system that is full below the ceiling ----

    def put_many(self, node, numbers):
        """Puts far more than memory holds: each put that finds it full waits for the disk."""
        with Values(node) as client:
            for number in numbers:
                client.put(f"v{number}", bytes([number]) * (900 << 10), 60000)
        node.ctl("flush", "--timeout", "60s")

    def found(self, node, numbers):
        with Values(node) as client:
            return [number for number in numbers if client.get(f"v{number}", 60000) == bytes([number]) * (900 << 10)]

    def test_a_full_file_system_gives_the_oldest_values_up_and_takes_new_ones(self):
        node = Node(ranks=1, memory="8MiB", disk="64MiB", settings=("--disk-segment", "1MiB"))
        self.addCleanup(node.__exit__)
        self.small_file_system(node, "24m")
        node.start()
        self.put_many(node, range(60))
        self.assertEqual(self.found(node, range(45, 60)), list(range(45, 60)), node.logs())
        self.assertRegex(self.told(node)[1], "the file system is full: [0-9]+ of 64 MiB are used")

        with open(self.place(node) + "/of-another-program", "wb") as file:
            used = os.statvfs(self.place(node))
            file.write(bytes((used.f_bavail * used.f_frsize) & ~0xffff))
        node.signal("tierer.0", signal.SIGKILL)
        wait_until(lambda: node.ctl("status", "--ready=disks", "--deadline", "1s", check=False).returncode == 0, 60, "it is back")
        self.put_many(node, range(60, 120))
        self.assertEqual(self.found(node, range(105, 120)), list(range(105, 120)), node.logs())
        self.assertEqual(self.told(node)[0], "ready")

    def test_a_file_system_without_room_for_two_files_is_a_full_disk(self):
        node = Node(ranks=1, memory="8MiB", disk="64MiB", settings=("--disk-segment", "1MiB"))
        self.addCleanup(node.__exit__)
        self.small_file_system(node, "24m")
        node.start()
        with open(self.place(node) + "/of-another-program", "wb") as file:
            used = os.statvfs(self.place(node))
            file.write(bytes((used.f_bavail * used.f_frsize) & ~0xffff))
        node.ctl("put", "a", "-", stdin=b"a")
        wait_until(lambda: self.told(node)[0] == "degraded", 60, "it is full")
        self.assertIn("full: ", self.told(node)[1])
        with Values(node) as client:  # as without a disk, immediately: the oldest leave memory
            for number in range(30):
                client.put(f"v{number}", bytes([number]) * (900 << 10), 60000)
        os.remove(self.place(node) + "/of-another-program")
        wait_until(lambda: self.told(node)[0] == "ready", 60, "there is room again")
        node.ctl("flush", "--timeout", "60s")

    def test_a_disk_without_room_for_two_files_is_read_after_a_restart(self):
        node = Node(ranks=1, memory="8MiB", disk="64MiB", settings=("--disk-segment", "1MiB"))
        self.addCleanup(node.__exit__)
        self.small_file_system(node, "24m")
        node.start()
        with open(self.place(node) + "/of-another-program", "wb") as file:
            used = os.statvfs(self.place(node))
            file.write(bytes((used.f_bavail * used.f_frsize - (1200 << 10)) & ~0xffff))
        self.put_flushed(node, "kept")
        node.stop()
        node.start()
        self.assertEqual(node.ctl("get", "kept").stdout, b"kept", node.logs())
        node.ctl("put", "new", "-", stdin=bytes(900 << 10))
        wait_until(lambda: self.told(node)[1].startswith("full: "), 60, "it is full")

    # ---- dead values ----

    def files(self, node):
        """Number of log files, and bytes that they take."""
        blocks = []
        for name in os.listdir(self.place(node)):
            with contextlib.suppress(FileNotFoundError):
                blocks += [os.stat(f"{self.place(node)}/{name}").st_blocks * 512] if name.startswith("segment.") else []
        return len(blocks), sum(blocks)

    def test_segments_in_the_middle_give_their_room_back(self):
        """One value is live, in the oldest file: later values that were removed take no space, and the number of files does not grow."""
        node = Node(ranks=1, memory="8MiB", disk="32MiB", settings=("--disk-segment", "1MiB"))
        self.addCleanup(node.__exit__)
        node.start()
        self.put_flushed(node, "lives")
        for turn in range(5):
            numbers = range(20 * turn, 20 * turn + 20)
            self.put_many(node, numbers)
            self.assertGreater(self.files(node)[1], 20 * (900 << 10))
            node.ctl("rm", *(f"v{number}" for number in numbers))
            if turn == 0:
                wait_until(lambda: self.files(node)[1] < 10 << 20 or "cannot free parts of a file" in node.logs(), 60, "room is back")
                self.assertEqual(node.ctl("get", "lives").stdout, b"lives", node.logs())
        self.assertLessEqual(self.files(node)[0], 65)
        node.stop()
        node.start()
        self.put_flushed(node, "new")

    def test_a_smaller_disk_than_before_starts(self):
        node = self.node(settings=("--disk-segment", "1MiB"))
        node.start()
        with Values(node) as client:
            for number in range(5000):  # each in a page of its own: more than 16 MiB have
                client.put(f"small{number}", b"%d" % number, 60000)
        node.ctl("flush", "--timeout", "60s")
        node.stop()
        node.settings[node.settings.index("--disk") + 1] = "16MiB"
        node.start()
        self.put_flushed(node, "new")
        self.assertEqual(node.ctl("get", "new").stdout, b"new", node.logs())

    # ---- a disk that takes long to read ----

    def slow(self, node):
        """A file with the number of reads of log files that the tierer's start and scan may do; without it all of them."""
        library = os.path.join(BIN, "../tests/held/libheld_reads.so")
        if not os.path.exists(library):
            self.skipTest("nothing is preloaded into sanitized programs")
        held = node.directory + "/held"
        node.programs_with("sluice-tierer", f'export LD_PRELOAD="{library}" HELD_READS="{held}"')
        return held

    def allow(self, held, count):
        with open(held + ".new", "w", encoding="utf-8") as file:
            file.write(str(count))
        os.rename(held + ".new", held)

    def told(self, node, name="tierer.0"):
        """(health, reason) of the actor"""
        actors = json.loads(node.ctl("status", "--json").stdout)["actors"]
        return next((actor["health"], actor["reason"]) for actor in actors if actor["name"] == name)

    def test_a_disk_that_takes_long_to_read_keeps_nobody_waiting(self):
        node = self.node(settings=("--disk-segment", "1MiB"))
        held = self.slow(node)
        node.start()
        for number in range(24):
            node.ctl("put", f"old{number}", "-", stdin=bytes([number]) * (900 << 10))
        node.ctl("flush", "--timeout", "60s")
        node.stop()
        segments = len([name for name in os.listdir(self.place(node)) if name.startswith("segment.")])
        self.assertGreater(segments, 15)

        self.allow(held, 3)  # reads of the first log files' footers
        said = node.start(disks=False).stdout
        tierer, registrar = node.pid("tierer.0"), node.pid("registrar")
        self.assertRegex(said, r"ready; degraded: .*tierer\.0 \(reading its log, [0-9]+ %\)")
        wait_until(lambda: re.fullmatch(r"reading its log, [1-9][0-9]? %", self.told(node)[1]), 60, "it says how far it is")
        self.assertEqual(node.ctl("status", "--ready").returncode, 0)
        waiting = node.ctl("status", "--ready=disks", "--deadline", "100ms", check=False)
        self.assertEqual((waiting.returncode, b"not all disks have been read" in waiting.stdout), (1, True), waiting)
        self.assertEqual(node.ctl("get", "old0", check=False).returncode, 1)  # a miss
        node.ctl("put", "new", "-", stdin=b"new")
        self.assertEqual(node.ctl("get", "new").stdout, b"new")
        time.sleep(3)  # as long as an actor may be silent

        self.allow(held, segments + 2)  # the start ends; the records for the registrar are read again, and held up
        wait_until(lambda: self.told(node)[1].startswith("reporting its contents"), 60, "its log is read")
        self.assertEqual(node.ctl("status", "--ready").returncode, 0)
        time.sleep(3)
        self.assertEqual(node.ctl("status", "--ready=disks", "--deadline", "100ms", check=False).returncode, 1)

        os.remove(held)
        self.assertEqual(node.ctl("status", "--ready=disks").returncode, 0)
        for number in range(24):
            self.assertEqual(node.ctl("get", f"old{number}").stdout, bytes([number]) * (900 << 10), node.logs())
        self.assertEqual((node.pid("tierer.0"), node.pid("registrar")), (tierer, registrar), node.logs())

    def test_a_node_is_stopped_and_killed_while_it_reads_a_disk(self):
        node = self.node(settings=("--disk-segment", "1MiB"))
        held = self.slow(node)
        node.start()
        for number in range(24):
            node.ctl("put", f"old{number}", "-", stdin=bytes([number]) * (900 << 10))
        node.ctl("flush", "--timeout", "60s")
        node.stop()
        self.allow(held, 3)
        node.start(disks=False)
        node.signal("tierer.0", signal.SIGKILL)
        wait_until(lambda: self.told(node)[1].startswith("reading its log"), 60, "the next one reads it")
        node.stop()
        self.assertEqual(node.leftovers(), [])
        os.remove(held)
        node.start()
        self.assertEqual(node.ctl("status", "--ready=disks").returncode, 0)
        self.assertEqual(node.ctl("get", "old0").stdout, bytes(900 << 10), node.logs())

    # ---- a tier that dies while the node runs ----

    def broken(self):
        """A node whose tierer can no longer start: a file is in the place of its disk."""
        node = self.node()
        node.start()
        for key in ("a", "b", "c"):
            self.put_flushed(node, key)
        shutil.rmtree(self.place(node))
        with open(self.place(node), "w", encoding="utf-8"):
            pass
        wait_until(lambda: "no disk tier" in node.ctl("status").stdout.decode(), 20, "the node says that it has no disk tier")
        return node

    def test_a_tier_that_dies_again_and_again_is_told_of_and_holds_up_nobody(self):
        node = self.broken()
        said = node.ctl("status").stdout.decode()
        self.assertRegex(said, r"registrar .*degraded.*no disk tier: tierer\.0 not reachable: .*is no directory")
        self.assertRegex(node.supervisor("status").stdout, r"tierer\.0 +\d+ (waiting|running|crash-loop)")
        for key, words in (("a", ["rm", "a"]), ("a", ["rm", "a"]), ("all", ["rm", "--all"]), ("new", ["flush"])):
            node.ctl("put", "new", "-", stdin=b"new")
            started = time.monotonic()
            done = node.ctl(*words, "--op-timeout" if words[0] == "rm" else "--timeout", "60s", check=False)
            self.assertLess(time.monotonic() - started, 20, words)
            self.assertEqual(done.returncode, 1, done.stderr)  # not 3: the node exists
            self.assertRegex(done.stderr.decode(), "disk is unavailable|no disk tier")
            self.assertIn("sluicectl tiers", done.stderr.decode())
            self.assertIn("flush again" if words == ["flush"] else "no need to repeat", done.stderr.decode())
        self.assertNotEqual(node.ctl("get", "a", check=False).returncode, 0)
        for command in (("restart", "keyer"), ("start", *node.settings)):  # the node continues under a new supervisor
            done = node.supervisor(*command, check=False)  # a tierer that was just started may be missed
            self.assertTrue(done.returncode == 0 or "continues without tierer.0" in done.stdout, done.stdout)
            self.assertEqual(node.ctl("get", "new").stdout, b"new")
            os.kill(node.supervisor_pid(), signal.SIGKILL)
        node.supervisor("start", *node.settings, check=False)
        os.remove(self.place(node))
        wait_until(lambda: b"no disk tier" not in node.ctl("status").stdout, 20, "the disk is back")
        node.wait_ready(30)
        self.put_flushed(node, "again")

    def test_doctor_tells_of_the_node_that_runs(self):
        node = self.node()
        node.start()
        disks = self.disk_lines(node)
        self.assertEqual([line["level"] for line in disks], ["ok"])
        self.assertIn("tierer.0 serves", disks[0]["text"])
        [memory] = [line for line in self.doctor_lines(node) if line["check"] == "memory"]
        self.assertIn("memory, index_memory and trace_events need up to 152.3 MiB", memory["text"])  # and at least 64 of them for the index
        node.stop()
        self.assertIn("no disk tier", self.disk_lines(node)[0]["text"])  # no tierer runs: the defaults

    def test_doctor_tells_of_a_tier_that_dies(self):
        node = self.broken()
        line = self.disk_lines(node)[0]
        self.assertEqual(line["level"], "fail", line)
        self.assertRegex(line["text"], r"the disk '.*' is not served: tierer\.0 does not run")
        self.assertNotEqual(line["mend"], "")

    def test_setup_of_the_store_tells_of_a_tier_that_dies(self):
        done = store_setup(self.broken())
        if done is None:
            self.skipTest("no mooncake.store in this build")
        self.assertEqual(done[0], 0, done)
        self.assertIn("the node is degraded: no disk tier: tierer.0", done[1])

    def test_more_than_there_is_is_told_of(self):
        node = self.node(settings=("--disk", "7TiB"))
        node.start()
        [disk] = self.disk_lines(node)
        self.assertEqual((disk["level"], disk["mend"]), ("warn", "free some space, or restart the node with a lower disk"), disk)
        self.assertIn("its limit is 7.0 TiB", disk["text"])

    def doctor_lines(self, node):
        return json.loads(node.ctl("doctor", "--json", check=False).stdout)["checks"]

    def disk_lines(self, node):
        return [line for line in self.doctor_lines(node) if line["check"] == "disk"]


if __name__ == "__main__":
    main()
