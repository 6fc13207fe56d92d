"""Directories that a user names: what is no node's stays, whatever is asked for, and a node that ends takes its own files alone."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from node_support import BIN, NODE, PATIENCE, Node, lives, main, wait_until

KEPT = ("mine.txt", ".hidden", "below/deep.txt", "settings", "watch", "index", "arena.0", "metrics.csv", "pid/registrar", "program/keyer",
        "program.old/sluice-keyer", "gate.d/12", "log/notes.txt", "supervisor.state", "keep-arena", "metrics.at", "registrar.out")
SETTINGS = ("--ranks", "1", "--memory", "16MiB")


def tree(path):
    """{name: (mode, inode, bytes)} of all that lies there."""
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

    def test_the_memory_of_another_node_is_neither_taken_nor_removed(self):
        with Node(ranks=1, memory="16MiB") as other:
            other.ctl("put", "kept", stdin=b"value")
            self.node("stop", shm_dir=other.shm, code=3)
            said = self.node("start", *SETTINGS, shm_dir=other.shm, code=1)
            self.assertIn("another node", said)
            self.assertIn(other.directory + "/run", said)
            self.start()
            self.node("stop", shm_dir=other.shm)  # of the node that runs, whatever is named
            self.assertFalse(os.path.exists(self.shm))
            self.assertEqual(other.ctl("get", "kept").stdout, b"value")
            other.stop("--keep-arena")
            self.node("start", *SETTINGS, shm_dir=other.shm, code=1)
            self.node("stop", shm_dir=other.shm, code=None)
            other.start()
            self.assertEqual(other.ctl("get", "kept").stdout, b"value")

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


if __name__ == "__main__":
    main()
