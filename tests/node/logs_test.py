"""Leftovers of stopped nodes: logs that can be found, and that do not grow in number or length forever."""

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from node_support import BIN, CTL, NODE, PATIENCE, main, wait_until

KEPT = 16  # LEFT_NODES of deploy/sluice-node
DAYS = 30


class Logs(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="sl-logs.")
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.base = f"{self.home}/sluice-{os.geteuid()}"
        os.mkdir(self.base, 0o700)
        self.shm = f"/dev/shm/sluice-test-logs-{os.getpid()}"
        self.addCleanup(shutil.rmtree, self.shm, ignore_errors=True)

    def node(self, command, *arguments):
        done = subprocess.run([NODE, command, "--instance", "mine", "--shm-dir", self.shm, *arguments], timeout=60 * PATIENCE,
                              env=dict(os.environ, SLUICE_BIN=BIN, XDG_RUNTIME_DIR=self.home), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def start(self):
        self.addCleanup(subprocess.run, [NODE, "stop", "--instance", "mine", "--shm-dir", self.shm], check=False, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL, env=dict(os.environ, SLUICE_BIN=BIN, XDG_RUNTIME_DIR=self.home))
        return self.node("start", "--ranks", "1", "--memory", "16MiB")

    def left(self, name, age_s, *more):
        """Leftovers of a node that was stopped this long ago."""
        path = f"{self.base}/{name}"
        os.makedirs(path + "/log", 0o700)
        for file in ("log/registrar.jsonl", "start-arguments", "supervisor.lock", *more):
            with open(f"{path}/{file}", "w", encoding="utf-8") as out:
                out.write("1\n")
        os.utime(path + "/log", (time.time() - age_s,) * 2)
        return path

    def test_the_logs_of_a_stopped_node_are_named_and_read(self):
        self.start()
        self.assertIn(f"its logs are in {self.base}/mine/log", self.node("stop"))
        self.assertIn('"actor":"registrar"', self.node("logs", "registrar"))
        self.assertEqual(sorted(os.listdir(self.base + "/mine")), ["log", "start-arguments", "supervisor.lock"])

    def test_a_start_removes_the_oldest_of_many_and_what_is_very_old(self):
        for number in range(KEPT + 4):
            self.left(f"n{number:02}", 100 + number)
        self.left("aged", (DAYS + 1) * 86400)
        self.start()
        self.assertEqual(sorted(os.listdir(self.base)), sorted([f"n{number:02}" for number in range(KEPT)] + ["mine"]))

    def test_whoever_has_more_than_logs_or_is_busy_is_left_alone(self):
        old = (DAYS + 1) * 86400
        self.left("disk-tier", old)
        os.mkdir(self.base + "/disk-tier/disk")
        self.left("runs", old, "registrar.sock")
        self.left("hidden", old, ".mine")
        outside = self.home + "/outside"
        os.mkdir(outside)
        linked = self.left("linked", old)
        shutil.rmtree(linked + "/log")
        os.symlink(outside, linked + "/log")
        with open(self.left("starts", old) + "/supervisor.lock", "r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.left("goes", old)
            self.start()
            self.assertEqual(sorted(os.listdir(self.base)), ["disk-tier", "hidden", "linked", "mine", "runs", "starts"])
            self.assertTrue(os.path.isdir(outside))

    def test_the_socket_of_a_killed_exporter_keeps_nothing_and_that_of_a_living_one_does(self):
        old = (DAYS + 1) * 86400
        for name in ("killed", "lives", "spelled"):
            self.left(name, old)
        with socket.socket(socket.AF_UNIX) as killed, socket.socket(socket.AF_UNIX) as lives, socket.socket(socket.AF_UNIX) as spelled:
            killed.bind(self.base + "/killed/metrics.http")
            killed.listen()
            killed.close()
            lives.bind(self.base + "/lives/metrics.http")
            lives.listen()
            spelled.bind(self.base + "/lives/../spelled/metrics.http")
            spelled.listen()
            self.start()
            self.assertEqual(sorted(os.listdir(self.base)), ["lives", "mine", "spelled"])
        with socket.socket(socket.AF_UNIX) as mine:  # the exporter of this node was killed, and its node is stopped
            if os.path.exists(BIN + "/sluice-metrics"):
                wait_until(lambda: os.path.exists(self.base + "/mine/metrics.http"), 10, "the exporter serves")
                os.unlink(self.base + "/mine/metrics.http")
            mine.bind(self.base + "/mine/metrics.http")
        self.node("stop")
        self.assertEqual(sorted(os.listdir(self.base + "/mine")), ["log", "start-arguments", "supervisor.lock"])

    def test_a_runtime_directory_that_was_named_has_neighbours_that_are_no_nodes(self):
        neighbour = self.left("neighbour", (DAYS + 1) * 86400)
        run = self.base + "/elsewhere"
        self.node("start", "--ranks", "1", "--memory", "16MiB", "--runtime-dir", run)
        self.node("stop", "--runtime-dir", run)
        self.assertTrue(os.path.isdir(neighbour))

    def test_a_file_that_was_turned_is_followed_and_traced(self):
        self.start()
        log = self.base + "/mine/log/"
        ctl = [CTL, "trace", "--instance", "mine", "--shm-dir", self.shm]
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.home)
        identity = "00000000000000ab"
        os.rename(log + "registrar.jsonl", log + "registrar.jsonl.1")
        with open(log + "registrar.jsonl.1", "a", encoding="utf-8") as old:
            old.write(f'{{"ns":{time.monotonic_ns()},"level":"info","actor":"registrar","trace":"{identity}","msg":"of before the turn"}}\n')
        said = subprocess.run([*ctl, identity], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("of before the turn", said)

        def write(word):
            with open(log + "registrar.jsonl", "w", encoding="utf-8") as new:
                new.write(f'{{"msg":"{word}"}}\n')

        def read(word):
            for line in follow.stdout:
                if word in line:
                    return
            self.fail(f"the end of the log came before {word}")

        write("one")
        follow = subprocess.Popen([NODE, "logs", "-f", "registrar", *ctl[2:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  env=dict(environment, SLUICE_BIN=BIN))
        self.addCleanup(follow.stdout.close)
        self.addCleanup(follow.wait)
        self.addCleanup(follow.kill)
        read("one")
        os.rename(log + "registrar.jsonl", log + "registrar.jsonl.1")
        write("two")
        read("two")

    def test_long_files_of_the_supervisor_begin_anew(self):
        path = self.left("mine", 0) + "/log/"
        for name in ("supervisor.jsonl", "registrar.out"):
            with open(path + name, "wb") as out:
                out.truncate(5 << 20)
        with open(path + "registrar.out", "ab", buffering=0) as writer:  # as an actor that still runs has it open
            self.start()
            writer.write(b"more\n")
        self.assertEqual(os.path.getsize(path + "supervisor.jsonl.1"), 5 << 20)
        self.assertEqual(os.path.getsize(path + "registrar.out.1"), 1 << 20)
        for name in ("supervisor.jsonl", "registrar.out"):
            self.assertLess(os.path.getsize(path + name), 1 << 20)
        with open(path + "registrar.out", "rb") as out:
            self.assertIn(b"more\n", out.read())

    def test_the_logs_of_a_node_that_ran_for_long_are_there_after_its_stop(self):
        self.start()
        aged = time.time() - (DAYS + 10) * 86400
        os.utime(self.base + "/mine/log", (aged, aged))  # no file was added or removed since
        self.node("stop")
        other = ["--instance", "other", "--shm-dir", self.shm + "-other"]
        self.addCleanup(shutil.rmtree, self.shm + "-other", ignore_errors=True)
        self.node("start", "--ranks", "1", "--memory", "16MiB", *other)
        self.node("stop", *other)
        self.assertTrue(os.path.isdir(self.base + "/mine/log"))


if __name__ == "__main__":
    main()
