"""Directories that a user names: other files there stay, whatever command is run, and a node that ends removes only its own files."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from contributions_support import Probe
from node_support import BIN, CTL, NODE, PATIENCE, Node, lives, log_of, main, wait_until
from stuck import stuck

KEPT = ("mine.txt", ".hidden", "below/deep.txt", "settings", "watch", "index", "arena.0", "metrics.csv", "pid/registrar", "program/keyer",
        "program.old/sluice-keyer", "gate.d/12", "log/notes.txt", "supervisor.state", "keep-arena", "metrics.at", "registrar.out")
SETTINGS = ("--ranks", "1", "--memory", "16MiB")


def tree(path):
    """{name: (mode, inode, bytes)} of all entries."""
    found = {}
    for folder, folders, files in os.walk(path):
        for name in [".", *folders, *files]:
            at = os.path.join(folder, name)
            about = os.lstat(at)
            text = None
            if os.path.isfile(at) and not os.path.islink(at):
                with open(at, "rb") as file:
                    text = file.read()
            found[os.path.relpath(at, path)] = (about.st_mode, about.st_ino, text)
    return found


class Dirs(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="sl-dirs.")
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.run, self.shm = self.home + "/run", f"/dev/shm/sluice-test-dirs-{os.getpid()}"
        self.addCleanup(shutil.rmtree, self.shm, ignore_errors=True)

    def foreign(self, name, *files):
        path = f"{self.home}/{name}"
        os.mkdir(path, 0o700)
        for file in files:
            os.makedirs(os.path.dirname(f"{path}/{file}"), exist_ok=True)
            with open(f"{path}/{file}", "w", encoding="utf-8") as out:
                out.write(f"what somebody wrote into {file}\n")
        return path

    def node(self, command, *arguments, code=0, **places):
        where = {"runtime_dir": self.run, "shm_dir": self.shm, **places}
        words = [word for name, path in where.items() for word in ("--" + name.replace("_", "-"), path)]
        done = subprocess.run([NODE, command, "--instance", "dirs", *words, *arguments], timeout=60 * PATIENCE, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=dict(os.environ, SLUICE_BIN=BIN), check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def start(self, **places):
        self.addCleanup(self.node, "stop", code=None, **places)
        return self.node("start", *SETTINGS, **places)

    def refused(self, path, **places):
        before = tree(path)
        said = self.node("start", *SETTINGS, code=1, **places)
        self.assertIn(path.rstrip("/").rsplit("/", 1)[-1], said)
        self.node("stop", code=None, **places)
        self.assertEqual(tree(path), before, said)

    def test_a_directory_with_other_files_is_refused_and_stays(self):
        for number, files in enumerate([("mine.txt",), (".hidden",), ("below/deep.txt",), ("settings",), ("index", "arena.0"), ("metrics.csv",),
                                        ("pid/registrar", "program/keyer"), KEPT, ("supervisor.lock", *KEPT)]):
            for place in ("runtime_dir", "shm_dir", "log_dir"):
                if place != "log_dir" or files == KEPT:
                    with self.subTest(files=files, place=place):
                        path = self.foreign(f"d{number}-{place}", *files)
                        with socket.socket(socket.AF_UNIX) as one:
                            one.bind(path + "/x.sock")
                        self.refused(path, **{place: path})

    def test_a_directory_that_the_node_has_for_something_else_is_refused_and_stays_empty(self):
        disk = ("--disk", "64MiB")
        pairs = (("shm_dir", "runtime_dir"), ("shm_dir", "log_dir"), ("disk_path", "runtime_dir"), ("disk_path", "shm_dir"), ("disk_path", "log_dir"))
        for number, (new, has) in enumerate(pairs):
            with self.subTest(new=new, has=has):
                path, link = self.foreign(f"d{number}"), f"{self.home}/link{number}"
                os.symlink(path, link)
                places = {"runtime_dir": self.run, "shm_dir": self.shm, new: path, has: link}
                words = [word for name, at in places.items() for word in ("--" + name.replace("_", "-"), at)]
                done = subprocess.run([CTL, "config", "--check", *SETTINGS, *disk, *words], timeout=60 * PATIENCE, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("is the node's", done.stderr)
                self.assertEqual(os.listdir(path), [])
                self.assertIn("is the node's", self.node("start", *SETTINGS, *disk, code=1, **{new: path, has: link}))
                self.start(**{has: link})
                self.node("stop", **{has: link})

    def test_a_path_however_it_is_spelled_leads_to_the_same(self):
        path = self.foreign("d", "mine.txt")
        os.symlink(path, self.home + "/link")
        for spelled in (path + "//.", self.home + "/link", self.home + "/x/../d"):
            for place in ("runtime_dir", "shm_dir"):
                self.refused(path, **{place: spelled})
        with contextlib.chdir(self.home):
            self.node("start", *SETTINGS, shm_dir="d", code=None)
            self.node("stop", shm_dir="d", code=None)
        self.assertEqual(sorted(os.listdir(path)), ["mine.txt"])
        self.assertTrue(os.path.islink(self.home + "/link"))

    def test_a_mode_is_not_changed_where_others_have_files(self):
        path = self.foreign("d", "mine.txt")
        os.chmod(path, 0o755)
        for place in ("runtime_dir", "shm_dir", "log_dir"):
            self.node("start", *SETTINGS, code=1, **{place: path})
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o755)

    def test_a_stop_takes_what_the_node_made_and_an_empty_directory_that_was_there_stays(self):
        shm, logs = self.foreign("shm"), self.foreign("logs", "notes.txt")
        places = {"shm_dir": shm, "log_dir": logs}
        self.start(**places)
        for path in (shm, self.run, logs):
            with open(path + "/later.txt", "w", encoding="utf-8") as out:
                out.write("somebody's\n")
        self.node("restart", **places)  # a directory of this node's, with files of others
        self.node("stop", **places)
        self.assertEqual(sorted(os.listdir(shm)), [".sluice-node", "later.txt"])
        self.assertEqual(sorted(os.listdir(self.run)), [".sluice-node", "later.txt", "log", "start-arguments", "supervisor.lock"])
        self.assertIn("notes.txt", os.listdir(logs))
        for path in (shm, self.run):
            os.remove(path + "/later.txt")
        self.start(**places)
        self.node("stop", **places)
        self.assertEqual(os.listdir(shm), [])
        self.assertEqual(sorted(os.listdir(self.run)), ["log", "start-arguments", "supervisor.lock"])
        self.start(log_dir=logs)
        self.node("stop", log_dir=logs)
        self.assertFalse(os.path.exists(self.shm), "the node had made it")

    def test_directories_of_one_node_may_lie_in_each_other(self):
        disk = ("--disk", "16MiB", "--disk-path", self.run + "/values")
        for places in ({"shm_dir": self.run + "/memory"}, {"runtime_dir": self.home + "/outer/run", "shm_dir": self.home + "/outer"},
                       {"log_dir": self.run}):
            self.start(**places)
            self.node("restart", *disk, **places)
            self.node("stop", **places)
            self.assertTrue(os.path.exists(self.run + "/values/lock"))
            self.assertFalse(os.path.exists(places.get("shm_dir", self.shm) + "/index"))

    def test_names_with_signs_of_a_settings_file_are_read_once(self):
        odd = "a \"b\" 'c' #d ${HOME} $x \\ "
        places = {"runtime_dir": f"{self.home}/r{odd}", "shm_dir": f"{self.shm}/{odd}", "log_dir": f"{self.home}/l{odd}",
                  "disk_path": f"{self.home}/d{odd}x", "record": f"{self.home}/'q' "}
        with open(self.home + "/node.conf", "w", encoding="utf-8") as out:
            out.write("ranks = 1\nmemory = 16MiB\ndisk = 16MiB\ninstance = dirs\n")
            for name, value in places.items():
                out.write(f"{name} = '" + value.replace("\\", "\\\\").replace("'", "\\'") + "'\n")
        run, shm = f"{self.home}/r{odd}", f"{self.shm}/{odd}"

        def sluice(program, *words, code=0):
            done = subprocess.run([program, *words, "--config", "node.conf"], cwd=self.home, timeout=60 * PATIENCE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, env=dict(os.environ, SLUICE_BIN=BIN), check=False, input="value")
            self.assertIn(done.returncode, (code, 0), done.stdout)
            return done.stdout

        self.addCleanup(sluice, NODE, "stop", code=3)
        sluice(NODE, "start")
        for path in (run, shm, f"{self.home}/l{odd}", f"{self.home}/d{odd}x"):
            self.assertTrue(os.listdir(path), path)
        self.assertTrue(os.path.exists(shm + "/.sluice-node"))
        sluice(CTL, "put", "kept")
        sluice(NODE, "restart")
        self.assertEqual(sluice(CTL, "get", "kept"), "value")
        sluice(NODE, "status")
        sluice(NODE, "stop")
        self.assertEqual(sorted(os.listdir(self.home)), sorted(["node.conf", "'q' ", f"r{odd}", f"l{odd}", f"d{odd}x"]))
        self.assertEqual(sorted(os.listdir(run)), ["log", "start-arguments", "supervisor.lock"])
        self.assertFalse(os.path.exists(shm))

    def test_the_memory_of_another_node_is_neither_taken_nor_removed(self):
        with Node(ranks=1, memory="16MiB") as other:
            other.ctl("put", "kept", stdin=b"value")
            self.node("stop", shm_dir=other.shm, code=3)
            said = self.node("start", *SETTINGS, shm_dir=other.shm, code=1)
            self.assertIn("another node", said)
            self.assertIn(other.directory + "/run", said)
            self.start()
            self.node("stop", shm_dir=other.shm)  # of the running node, whatever is named
            self.assertFalse(os.path.exists(self.shm))
            self.assertEqual(other.ctl("get", "kept").stdout, b"value")
            other.stop("--keep-arena")
            self.node("start", *SETTINGS, shm_dir=other.shm, code=1)
            self.node("stop", shm_dir=other.shm, code=None)
            other.start()
            self.assertEqual(other.ctl("get", "kept").stdout, b"value")

    def container(self, command, *arguments, programs=BIN, **places):
        """Starts a command as in a container, whose runtime directory has the same path as the one here but is another one."""
        where = {"runtime_dir": self.run, "shm_dir": self.shm, **places}
        words = [word for name, path in where.items() for word in ("--" + name.replace("_", "-"), path)]
        line = f'mount -t tmpfs -o mode=0700 none "{self.run}" && exec "$@"'
        return subprocess.Popen(["unshare", "--mount", "sh", "-c", line, "sh", NODE, command, *arguments, *words, "--instance", "dirs"], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "SLUICE_BIN": programs})

    def containers(self):
        os.mkdir(self.run, 0o700)
        if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", self.run], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mounting is not permitted here")

    def ended(self, command, code):
        said = command.communicate(timeout=60 * PATIENCE)[0]
        self.assertEqual(command.returncode, code, said)
        return said

    def in_use(self, path, setting, said):
        self.assertRegex(said, f"{path} is in use by another node, .*: stop the other node, or set another {setting}")

    def test_what_a_node_of_another_mount_namespace_has_is_not_shared(self):
        """As with two containers that share one directory of the host: each has its runtime directory under the same path."""
        self.containers()
        logs = self.home + "/logs"
        self.start(log_dir=logs)
        with open(logs + "/supervisor.jsonl", encoding="utf-8") as file:
            before = file.read()
        said = self.ended(self.container("start", *SETTINGS, log_dir=logs, shm_dir=self.shm + "-b"), 1)
        self.in_use(logs, "log_dir", said)
        said = self.ended(self.container("start", *SETTINGS, log_dir=logs + "-b"), 1)
        self.in_use(self.shm, "shm_dir", said)
        with open(logs + "/supervisor.jsonl", encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        self.assertFalse(os.path.exists(self.shm + "-b"))
        self.node("status", log_dir=logs)

    def test_of_two_starts_at_once_in_two_containers_with_one_directory_one_wins(self):
        self.containers()
        programs, reached, waits = self.home + "/bin", self.home + "/reached", self.home + "/waits"
        os.mkdir(programs)
        for name in os.listdir(BIN):
            if name != "sluicectl":
                os.symlink(f"{BIN}/{name}", f"{programs}/{name}")
        with open(programs + "/sluicectl", "w", encoding="utf-8") as script:  # it is stopped while it checks
            script.write(f'#!/bin/sh\ncase "$*" in "config --check"*) : >{reached}; while [ -e {waits} ]; do sleep 0.05; done ;; esac\nexec "{CTL}" "$@"\n')
        os.chmod(programs + "/sluicectl", 0o755)
        for there in (False, True):  # the shm directory
            with self.subTest(there=there):
                if there:
                    os.mkdir(self.shm, 0o700)
                with open(waits, "w", encoding="utf-8"):
                    pass
                first = self.container("start", "--foreground", *SETTINGS, log_dir=self.home + "/logs-b", programs=programs)
                wait_until(lambda: os.path.exists(reached), 20, "the first one checks")
                os.kill(first.pid, signal.SIGSTOP)
                os.remove(waits)
                if there:  # it has made the directory
                    self.in_use(self.shm, "shm_dir", self.node("start", *SETTINGS, code=1))
                    os.kill(first.pid, signal.SIGCONT)
                    wait_until(lambda: os.path.exists(self.shm + "/index"), 20, "it has started")
                    first.terminate()
                    self.ended(first, 0)
                else:
                    self.start()
                    os.kill(first.pid, signal.SIGCONT)
                    self.in_use(self.shm, "shm_dir", self.ended(first, 1))
                    self.node("stop")
                os.remove(reached)

    def held(self, path):
        """As held by a node of another container."""
        os.makedirs(path, 0o700, exist_ok=True)
        fd = os.open(path, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        return fd

    def test_a_start_or_restart_with_logs_that_cannot_be_had_changes_nothing(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            before = {name: node.pid(name) for name in node.processes()}
            used, open_to_all, foreign = self.home + "/used", self.home + "/open", self.foreign("foreign", "registrar.jsonl/mine")
            fd = self.held(used)
            self.addCleanup(os.close, fd)
            os.mkdir(open_to_all)
            os.chmod(open_to_all, 0o777)
            for logs, text in ((used, f"nothing was changed: {used} is in use by another node"), (open_to_all + "/logs", "chmod"),
                               (foreign, "is not one: move it elsewhere\nsluice-node: nothing was changed")):
                said = node.supervisor("restart", "--log-dir", logs, check=False)
                self.assertEqual(said.returncode, 1, said.stdout)
                self.assertIn(text, said.stdout)
            os.kill(node.supervisor_pid(), signal.SIGKILL)
            said = node.supervisor("start", *node.settings, "--log-dir", used, check=False)
            self.assertEqual(said.returncode, 1, said.stdout)
            self.in_use(used, "log_dir", said.stdout)
            self.assertEqual(os.listdir(used), [])
            self.assertFalse(os.path.islink(node.directory + "/run/log"))
            self.assertIn(f"{len(before)} actors", node.start().stdout)
            self.assertEqual({name: node.pid(name) for name in node.processes()}, before)
            node.supervisor("restart", "--log-dir", node.directory + "/run")
            node.supervisor("restart", "--log-dir", self.home + "/new")
            with open(node.directory + "/run/settings", "w", encoding="utf-8"):  # as when the disk is full
                pass
            node.supervisor("restart")
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_memory_that_another_node_has_by_now_is_not_removed(self):
        """A node of another container took it over, when this one had been killed, or when its name was removed."""
        with Node(ranks=1, memory="16MiB") as node:
            for pid in node.running():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not node.running(), 20, "all are dead")
            before, run = tree(node.shm), tree(node.directory + "/run")
            fd = self.held(node.directory + "/run")  # its actors live, and their pids are those of another namespace
            said = node.supervisor("stop", check=False)
            self.assertEqual(said.returncode, 1, said.stdout)
            self.assertIn(f"nothing was removed: {node.directory}/run is in use", said.stdout)
            self.assertEqual(tree(node.directory + "/run"), run)
            os.close(fd)
            fd = self.held(node.shm)
            said = node.stop().stdout
            self.in_use(node.shm, "shm_dir", said)
            self.assertIn(f"shared memory in {node.shm} is kept", said)
            self.assertEqual(tree(node.shm), before)
            os.close(fd)
            node.start()
            fd = self.held(node.shm)
            os.remove(node.shm + "/index")
            supervisor, before = node.supervisor_pid(), tree(node.shm)
            wait_until(lambda: not lives(supervisor), 20, "the node ends")
            self.assertLessEqual({"arena.0", "settled"}, set(os.listdir(node.shm)))
            self.in_use(node.shm, "shm_dir", log_of(node, "supervisor"))
            os.close(fd)

    def test_memory_that_cannot_be_removed_ends_no_node_and_a_stop_says_so(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.stop()
            node.programs_with_ctl('"dirs clear memory"*) exit 1 ;;')
            node.start()
            supervisor, before = node.supervisor_pid(), node.live_pid("registrar")
            shutil.rmtree(node.shm)
            os.mkdir(node.shm, 0o700)
            node.wait_restarted("registrar", before, 20)
            node.wait_ready(20)
            self.assertEqual(node.supervisor_pid(), supervisor)
            self.assertIn(f"shared memory in {node.shm} is kept: see", node.stop().stdout)
            self.assertIn(f"shared memory in {node.shm} is kept\"", log_of(node, "supervisor"))
            shutil.rmtree(node.shm)

    def test_a_supervisor_holds_the_directories_while_no_actor_lives(self):
        """Also a supervisor that took its actors over, was replaced by a new program, or whose memory was made again."""
        with Node(ranks=1, memory="16MiB") as node:
            def adopt():
                os.kill(node.supervisor_pid(), signal.SIGKILL)
                node.start()

            def anew():
                before = node.live_pid("registrar")
                shutil.rmtree(node.shm)
                node.wait_restarted("registrar", before, 20)
                node.wait_ready(20)

            for change in (adopt, lambda: node.supervisor("upgrade"), anew):
                change()
                supervisor, actors = node.supervisor_pid(), [node.live_pid(name) for name in node.processes()]
                os.kill(supervisor, signal.SIGSTOP)
                for pid in actors:
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not any(map(lives, actors)), 20, "no actor lives")
                for path in (node.shm, node.directory + "/run/log"):
                    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                    with self.assertRaises(BlockingIOError, msg=(change, path)):
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.close(fd)
                os.kill(supervisor, signal.SIGCONT)
                node.wait_restarted("registrar", actors[0], 20)
                node.wait_ready(20)

    def test_what_is_left_without_a_registrar_that_comes_up_is_stopped_and_memory_stays(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            programs = node.environment["SLUICE_BIN"]
            node.programs_with("sluice-registrar", 'case "$*" in --version) ;; *) exit 2 ;; esac')
            registrar = node.live_pid("registrar")
            os.kill(node.supervisor_pid(), signal.SIGKILL)
            os.kill(registrar, signal.SIGKILL)
            wait_until(lambda: not lives(registrar), 20, "it is dead")
            said = node.supervisor("start", *node.settings, check=False)
            self.assertEqual(said.returncode, 1, said.stdout)
            self.assertIn("is stopped; its logs", said.stdout)
            node.environment["SLUICE_BIN"] = programs
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_killed_processes_that_hang_in_the_kernel_keep_no_node_from_its_start(self):
        """Like a tierer of a lost device. In a container of its own it is unknown that it was killed, or which node it belonged to."""
        waits = stuck(self, self.home + "/device")
        logs = self.home + "/logs"
        hold = f"for path in {[self.run, self.shm, logs]}: os.makedirs(path, 0o700, True), fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_SH)"
        for ended in (subprocess.Popen.kill, subprocess.Popen.terminate):
            ended(waits(hold))
        self.assertIn("killed processes that hang in the kernel still hold", self.start(log_dir=logs))
        self.node("stop", log_dir=logs)
        self.assertEqual(os.listdir(self.shm), [])
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("namespaces are not permitted here")
        logs += "-b"
        waits(hold.replace("logs'", "logs-b'"), apart)
        self.in_use(logs, "log_dir", self.node("start", *SETTINGS, code=1, log_dir=logs))

    def test_memory_that_is_to_stay_stays_where_no_file_can_be_made(self):
        self.run_dir_mounted("nr_inodes=100")
        self.start()
        with contextlib.suppress(OSError):
            for number in range(100):
                os.close(os.open(f"{self.run}/other-{number}", os.O_CREAT, 0o600))
        self.assertIn("nothing was stopped: the node's memory would be lost", self.node("stop", "--keep-arena", code=1))
        self.node("status")

    def test_a_command_under_another_name_leaves_the_node_alone(self):
        with Node(ranks=1, memory="16MiB") as other:
            other.ctl("put", "kept", stdin=b"value")
            run, pid = other.directory + "/run", other.supervisor_pid()
            for command in ("stop", "restart", "upgrade", "status"):
                for shm in (self.shm, other.shm):
                    said = self.node(command, code=3, runtime_dir=run, shm_dir=shm)
                    self.assertIn(f"'{other.instance}'", said, command)
            said = self.node("start", *SETTINGS, code=1, runtime_dir=run)
            self.assertIn(f"{run} is the runtime directory of node '{other.instance}', which runs (supervisor {pid})", said)
            self.assertEqual(other.supervisor_pid(), pid)
            self.assertEqual(other.ctl("get", "kept").stdout, b"value")

    def run_dir_mounted(self, bound):
        os.mkdir(self.run, 0o700)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", bound + ",mode=0700", "none", self.run], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mounting is not permitted here")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.run], check=False)

    def run_dir_filled(self, free_bytes):
        os.makedirs(self.run + "/cache", mode=0o700)
        with open(self.run + "/cache/of-another-program", "wb", buffering=0) as fill:
            with contextlib.suppress(OSError):
                while fill.write(bytes(4096)) > 0:
                    pass
            fill.truncate(fill.tell() - free_bytes)

    def test_a_start_that_has_no_room_for_its_arguments_leaves_those_of_the_last_one(self):
        self.run_dir_mounted("size=1m")
        logs = {"log_dir": self.home + "/logs"}
        self.start(**logs)
        self.node("stop", **logs)
        with open(self.run + "/start-arguments", encoding="utf-8") as file:
            before = file.read()
        self.run_dir_filled(32 << 10)
        self.assertIn("cannot write", self.node("start", *SETTINGS, *[f"--peers={'x' * 1000}"] * 50, "--peers=", code=1, **logs))
        with open(self.run + "/start-arguments", encoding="utf-8") as file:
            self.assertEqual(file.read(), before)

    def test_a_restart_that_has_no_room_for_its_settings_changes_nothing(self):
        self.run_dir_mounted("size=1m")
        logs = {"log_dir": self.home + "/logs"}
        self.start(**logs)
        words = ["--instance", "dirs", "--runtime-dir", self.run, "--shm-dir", self.shm]
        subprocess.run([CTL, "put", "kept", *words], input=b"value", timeout=60 * PATIENCE, check=True)
        with open(self.run + "/supervisor.pid", encoding="utf-8") as file:
            before = file.read()
        self.run_dir_filled(0)
        self.assertIn(f"nothing was changed: no space left in {self.run}", self.node("restart", code=1, **logs))
        with open(self.run + "/supervisor.pid", encoding="utf-8") as file:
            self.assertEqual(file.read(), before)
        os.remove(self.run + "/cache/of-another-program")
        self.node("restart", **logs)
        self.assertEqual(subprocess.run([CTL, "get", "kept", *words], stdout=subprocess.PIPE, timeout=60 * PATIENCE, check=True).stdout, b"value")

    def test_the_logs_of_another_node_are_not_shared(self):
        logs = self.home + "/logs"
        with Node(ranks=1, memory="16MiB", settings=["--log-dir", logs]) as other:
            said = self.node("start", *SETTINGS, code=1, log_dir=logs)
            self.assertIn("another node", said)
            self.assertIn(other.directory + "/run", said)
            self.node("stop", code=None, log_dir=logs)
            other.ctl("put", "kept", stdin=b"value")
            other.stop()
            self.start(log_dir=logs)  # one after the other they are allowed
            self.node("stop", log_dir=logs)

    def test_what_a_node_of_a_release_before_left_is_known_by_its_names(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            pids = [node.supervisor_pid(), *(node.pid(name) for name in node.processes())]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not any(lives(pid) for pid in pids), 10, "all are dead")
            for path in (node.directory + "/run", node.directory + "/run/log", node.shm):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path + "/.sluice-node")
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            node.stop("--keep-arena")
            os.remove(node.shm + "/.sluice-node")
            node.supervisor("stop", check=False)
            self.assertFalse(os.path.exists(node.shm))

    def test_what_other_settings_lose_of_a_killed_node_is_said(self):
        with Node(ranks=1, memory="16MiB", disk="64MiB") as node:
            def killed_whole():
                pids = [node.supervisor_pid()]
                for name in os.listdir(node.directory + "/run/pid"):
                    with open(f"{node.directory}/run/pid/{name}", encoding="utf-8") as line:
                        pids.append(int(line.read().split()[0]))
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda: not any(lives(pid) for pid in pids), 10, "all are dead")

            node.ctl("put", "kept", stdin=b"value")
            killed_whole()
            node.where[-1] = node.shm + ".2"
            refused = node.supervisor("start", *node.settings, check=False)
            self.assertEqual(refused.returncode, 1, refused.stdout)
            self.assertIn(f"its memory is in {node.shm}: set shm_dir to it", refused.stdout)
            self.assertFalse(os.path.exists(node.shm + ".2/index"))
            node.where[-1] = node.shm
            said = node.supervisor("start", *node.settings, "--contributions", "true", "--disk-path", self.home + "/other").stdout
            self.assertIn("1 values in memory belong to no contribution and are removed", said)
            self.assertIn(f"values on disk in {node.directory}/disk are not served", said)
            killed_whole()
            said = node.supervisor("stop")
            self.assertIn(f"its memory in {node.shm}", said.stdout)
            self.assertFalse(os.path.exists(node.shm))
            self.assertEqual(node.supervisor("stop", check=False).returncode, 3)

    def test_a_node_of_a_release_before_is_not_lost_for_files_of_others(self):
        with Node(ranks=1, memory="16MiB") as node:
            run, shm = node.directory + "/run", node.shm
            for path in (run, shm):
                with open(path + "/notes.txt", "w", encoding="utf-8") as out:
                    out.write("somebody's\n")

            def before():
                for path in (run, run + "/log", shm):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(path + "/.sluice-node")

            before()
            node.ctl("put", "kept", stdin=b"value")
            node.supervisor("upgrade")
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            os.kill(node.supervisor_pid(), signal.SIGKILL)  # raises if none runs
            before()
            self.assertIn("notes.txt", node.supervisor("start", *node.settings, check=False).stdout)
            node.supervisor("stop")
            self.assertEqual(sorted(os.listdir(shm)), [".sluice-node", "notes.txt"])
            self.assertEqual(sorted(os.listdir(run)), [".sluice-node", "log", "notes.txt", "start-arguments", "supervisor.lock"])

    def test_a_start_that_fails_removes_nothing_that_it_did_not_make(self):
        shm = self.foreign("shm")
        self.node("start", *SETTINGS, "--disk", "1GiB", "--disk-path", self.foreign("d", "lock"), "--disk-segment", "1TiB", shm_dir=shm, code=None)
        self.assertTrue(os.path.isdir(shm))

    def test_what_another_user_left_in_a_directory_is_not_used(self):
        path = self.foreign("run")
        victim = self.home + "/victim"
        with open(victim, "w", encoding="utf-8") as out:
            out.write("mine\n")
        for name in ("supervisor.state", "supervisor.lock", "supervisor.state.new", "settings"):
            for make in (os.symlink, os.link):
                with open(path + "/registrar.lock", "w", encoding="utf-8"):
                    pass
                make(victim, f"{path}/{name}")
                said = self.node("start", *SETTINGS, runtime_dir=path, code=1)
                self.assertIn(name, said)
                self.node("stop", runtime_dir=path, code=None)
                with open(victim, encoding="utf-8") as file:
                    self.assertEqual(file.read(), "mine\n")
                os.remove(f"{path}/{name}")
        if os.geteuid() == 0:
            with open(path + "/supervisor.state", "w", encoding="utf-8") as file:
                os.chown(file.fileno(), 4711, 4711)
            self.assertIn("supervisor.state", self.node("start", *SETTINGS, runtime_dir=path, code=1))
            os.remove(path + "/supervisor.state")
            with subprocess.Popen(["sleep", "600"]) as victim:
                self.addCleanup(victim.kill)
                with open(f"/proc/{victim.pid}/stat", encoding="utf-8") as file:
                    born = file.read().rsplit(") ", 1)[1].split()[19]
                with open(path + "/supervisor.pid", "w", encoding="utf-8") as file:
                    file.write(f"{victim.pid} {born}\n")
                    os.chown(file.fileno(), 4711, 4711)
                for command in ("stop", "status", "restart", "upgrade"):
                    self.assertIn("supervisor.pid", self.node(command, runtime_dir=path, code=1))
                self.assertIsNone(victim.poll())
                victim.kill()

    def test_a_runtime_directory_where_others_may_put_another_one_is_refused(self):
        open_to_all = self.foreign("open")
        os.chmod(open_to_all, 0o777)
        for place in ("runtime_dir", "shm_dir", "log_dir"):
            said = self.node("start", *SETTINGS, code=1, **{place: open_to_all + "/node"})
            self.assertIn("chmod +t", said)
        self.assertEqual(os.listdir(open_to_all), [])
        os.chmod(open_to_all, 0o1777)
        self.start(runtime_dir=open_to_all + "/node")
        self.node("stop", runtime_dir=open_to_all + "/node")


HANG = 10  # times the patience: 60 s, which only a hang reaches


class Names(unittest.TestCase):
    """Names that a cleaner, systemd's RemoveIPC or a person removes under a running node."""

    def whole(self, node):
        """It is supervised and ready, and serves a new client."""
        node.wait_ready(HANG)
        node.ctl("put", "after", stdin=b"after")
        self.assertEqual(node.ctl("get", "after").stdout, b"after")

    def again(self, path):
        wait_until(lambda: os.path.exists(path), HANG, f"{path} is made again")

    def python(self, node, code):
        """A process that attaches, reads a line, and runs this code."""
        package = os.environ.get("SLUICE_TEST_PACKAGE", os.path.join(BIN, "..", "python"))
        text = f"import sluice\nclient = sluice.Client()\nclient.put('python', b'1')\n" \
               f"print('attached', flush=True)\ninput()\n{code}"
        environment = dict(os.environ, PYTHONPATH=package, SLUICE_INSTANCE=node.instance, SLUICE_RUNTIME_DIR=node.directory + "/run",
                           SLUICE_SHM_DIR=node.shm)
        if os.environ.get("SLUICE_TEST_PRELOAD"):
            environment.update(LD_PRELOAD=os.environ["SLUICE_TEST_PRELOAD"], ASAN_OPTIONS="detect_leaks=0")
        process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=environment)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "attached\n")
        return process

    def test_shared_memory_that_is_removed_begins_empty_and_clients_attach_again(self):
        with Node(ranks=1, memory="32MiB", disk="64MiB") as node:
            probe = Probe(self, node)
            self.assertEqual(probe.code("put", "held", 1, 4096), "SL_OK")
            python = self.python(node, """
import time
end = time.monotonic() + 600
while time.monotonic() < end:
    try:
        client.put('later', b'2')
        print(bytes(client.get('later')), flush=True)
        break
    except sluice.SluiceError:
        time.sleep(0.05)
""") if os.environ.get("SLUICE_TEST_PACKAGE") else None
            node.ctl("put", "kept", stdin=b"value")
            for turn, names in enumerate((None, ("arena.0",), ("index",), ("settled",))):
                before = {name: node.pid(name) for name in node.processes()}
                if names is None:
                    shutil.rmtree(node.shm)
                else:
                    for name in names:
                        path = f"{node.shm}/{name}"
                        if name == "arena.0":
                            os.remove(path)
                        else:  # looks the same, but is another file
                            shutil.copy(path, path + ".copy")
                            os.replace(path + ".copy", path)
                wait_until(lambda: all(node.pid(name) not in (0, pid) for name, pid in before.items()), HANG, "actors are restarted")
                self.whole(node)
                self.assertEqual(node.ctl("get", "kept").stdout, b"value", "it was written to disk")
                wait_until(lambda: probe.code("put", f"again{turn}", 1, 4096) == "SL_OK", HANG, "a C client attaches again")
                self.assertEqual(probe.code("get", f"again{turn}"), "SL_OK")
                self.assertEqual(probe.code("get", "held"), "SL_OK")
            if python is not None:
                self.assertIn("b'2'", python.communicate("\n", timeout=600)[0])
            self.assertIn("restarts with empty memory", log_of(node, "supervisor"))

    def test_figures_that_are_removed_or_cut_begin_anew_and_memory_stays(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            pids = {name: node.pid(name) for name in node.processes()}
            for harm in (os.remove, lambda path: os.truncate(path, 0)):
                for name in ("counts", "labels", "seen", "changes"):
                    path = f"{node.shm}/{name}"
                    bytes_, inode = os.path.getsize(path), os.stat(path).st_ino
                    held = os.open(path, os.O_RDONLY)  # so that its number is not reused
                    harm(path)
                    wait_until(lambda: os.path.exists(path) and os.path.getsize(path) == bytes_ and os.stat(path).st_ino != inode, HANG, name)
                    os.close(held)
            time.sleep(3)  # the watcher checks once a second
            self.whole(node)
            self.assertEqual({name: node.pid(name) for name in node.processes()}, pids)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_what_is_removed_from_the_runtime_directory_is_made_again(self):
        with Node(ranks=1, memory="32MiB", settings=["--metrics-listen", "local"]) as node:
            run = node.directory + "/run/"
            node.ctl("put", "kept", stdin=b"value")
            node.wait_ready()
            supervisor = node.supervisor_pid()
            time.sleep(4)  # it is no longer new and was checked since: an actor's lost files are noticed by comparison
            made = [name for name in sorted(os.listdir(run)) if name not in ("watch", "gate.d", "disk", "cache", "supervisor.state.new")]
            self.assertTrue({"metrics.at", "supervisor.format", "supervisor.helpers", "supervisor.state", "pid", "log", "supervisor.lock", "registrar.lock", "keyer.sock"} < set(made), made)
            for name in made:
                (shutil.rmtree if os.path.isdir(run + name) else os.remove)(run + name)
            for name in made:
                self.again(run + name)
            self.again(run + "log/keyer.jsonl")
            self.again(run + "pid/keyer")
            self.whole(node)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value", "its memory is as it was")
            with open(run + "supervisor.pid", "w", encoding="utf-8"):  # as when the disk is full
                pass
            wait_until(lambda: os.path.getsize(run + "supervisor.pid") > 0, HANG, "it has its text again")
            self.assertEqual(node.supervisor_pid(), supervisor)
            said = node.supervisor("start", *node.settings, check=False)
            self.assertIn("runs already", said.stdout)
            keyer = node.live_pid("keyer")
            os.kill(keyer, signal.SIGKILL)
            node.wait_restarted("keyer", keyer, 20)
            os.remove(node.shm + "/metrics.keyer")
            self.again(node.shm + "/metrics.keyer")
            self.whole(node)
            before = node.live_pid("keyer")
            os.remove(run + "keyer.sock")
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
                other.bind(run + "keyer.sock")
                node.wait_restarted("keyer", before, HANG)
            self.whole(node)

    def test_a_node_whose_runtime_directory_is_another_one_ends_and_writes_nothing_there(self):
        with Node(ranks=1, memory="16MiB", settings=["--log-dir", tempfile.gettempdir() + f"/sl-logs-{os.getpid()}"]) as node:
            logs = tempfile.gettempdir() + f"/sl-logs-{os.getpid()}"
            self.addCleanup(shutil.rmtree, logs, True)
            run, moved = node.directory + "/run", node.directory + "/moved"
            pids = [node.supervisor_pid(), *(node.pid(name) for name in node.processes())]
            os.rename(run, moved)
            os.mkdir(run, 0o700)
            with open(run + "/supervisor.state", "w", encoding="utf-8") as file:
                file.write("somebody's\n")
            wait_until(lambda: not any(lives(pid) for pid in pids), HANG, "every process has ended")
            self.assertEqual(os.listdir(run), ["supervisor.state"])
            with open(run + "/supervisor.state", encoding="utf-8") as file:
                self.assertEqual(file.read(), "somebody's\n")
            with open(logs + "/supervisor.jsonl", encoding="utf-8") as file:
                self.assertIn("was removed or replaced by another directory", file.read())

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root can make directories of others")
    def test_logs_go_on_where_they_were_when_a_directory_cannot_be_made_again_or_is_another_users(self):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o1777)
            logs, moved, theirs, secret = place + "/logs", place + "/moved", place + "/theirs", place + "/secret"
            with open(secret, "w", encoding="utf-8"):
                pass
            os.chmod(secret, 0o600)
            with Node(ranks=1, memory="16MiB", settings=["--log-dir", logs]) as node:
                os.mkdir(theirs)
                for name in os.listdir(logs):
                    os.symlink(secret, f"{theirs}/{name}")
                    os.lchown(f"{theirs}/{name}", 65534, 65534)
                os.chown(theirs, 65534, 65534)
                os.rename(logs, moved)

                def said(name):
                    with open(f"{moved}/{name}", encoding="utf-8") as file:
                        return file.read()

                with open(logs, "w", encoding="utf-8"):  # none can be made
                    pass
                for times in (1, 2):
                    pids = [node.supervisor_pid(), *(node.pid(name) for name in node.processes())]
                    wait_until(lambda: said("supervisor.jsonl").count("logs continue in the old directory") == times, HANG, "it is logged")
                    self.assertEqual(pids, [node.supervisor_pid(), *(node.pid(name) for name in node.processes())])
                    os.kill(keyer := node.live_pid("keyer"), signal.SIGKILL)
                    node.wait_restarted("keyer", keyer, HANG)
                    wait_until(lambda: said("keyer.out").count("further lines are written to standard error") == times, HANG, "its log continues there")
                    self.whole(node)
                    if times == 1:
                        os.remove(logs)
                        os.rename(theirs, logs)
                self.assertEqual(os.path.getsize(secret), 0)

    def test_cleaners_that_heed_locks_leave_the_directories_alone(self):
        """systemd-tmpfiles skips a directory that it cannot lock."""
        with Node(ranks=1, memory="16MiB") as node:
            for kill in (False, True):
                if kill:
                    os.kill(node.supervisor_pid(), signal.SIGKILL)
                for path in (node.directory + "/run", node.directory + "/run/log", node.shm):
                    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                    with self.assertRaises(BlockingIOError, msg=path):
                        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.close(fd)


if __name__ == "__main__":
    main()
