"""Hostile processes on the node's machine: of another user, who has no access, and of the same user, who may do much but can neither make
others read wrong bytes nor hang them. (Changes of mapped files by the same user are not tested here.)"""

import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from node_support import BIN, CTL, NODE, PATIENCE, Node, free_port, main, wait_until

OWNER, STRANGERS = 61001, (61002, 65534)


def attack_as(told):
    """Tries everything on the node that root described. Returns what it was able to do: every refusal is right."""
    done = []

    def attempt(what, act):
        try:
            act()
        except (PermissionError, FileNotFoundError, ProcessLookupError, ConnectionRefusedError):
            return
        except OSError as error:  # it got further than it should
            done.append(f"{what}: {error}")
            return
        done.append(what)

    libc = ctypes.CDLL(None, use_errno=True)

    class Part(ctypes.Structure):
        _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    def call(result):
        if result < 0:
            raise OSError(ctypes.get_errno(), "")  # PermissionError if it is that

    def connect(path, kind):
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.settimeout(2)
            one.connect(path)
            one.send(b"\xff" * 64)

    # first, since actors whose files are removed end
    for path in told["sockets"]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            attempt(f"connect to {path}", lambda: connect(path, kind))
    for name in told["abstract"]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            attempt(f"connect to @{name}", lambda: connect("\0" + name, kind))
    for path in told["files"]:
        attempt(f"read {path}", lambda: os.close(os.open(path, os.O_RDONLY)))
        attempt(f"write {path}", lambda: os.close(os.open(path, os.O_RDWR)))
        attempt(f"truncate {path}", lambda: os.truncate(path, 0))
        attempt(f"stat {path}", lambda: os.stat(path))
        attempt(f"unlink {path}", lambda: os.unlink(path))
        attempt(f"rename {path}", lambda: os.rename(path, path + ".gone"))
        attempt(f"link {path}", lambda: os.link(path, told["own"] + "/linked"))
        attempt(f"chmod {path}", lambda: os.chmod(path, 0o666))
    for pid in told["pids"]:
        for name in ("environ", "maps", "mem", "auxv", "stack"):
            attempt(f"read /proc/{pid}/{name}", lambda: os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY)))
        for name in ("fd", "map_files", "root", "cwd"):
            attempt(f"list /proc/{pid}/{name}", lambda: os.listdir(f"/proc/{pid}/{name}"))
        for number in range(32):
            attempt(f"open /proc/{pid}/fd/{number}", lambda: os.close(os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY)))
        for number in (0, signal.SIGSTOP, signal.SIGTERM, signal.SIGUSR1):
            attempt(f"signal {number} to {pid}", lambda: os.kill(pid, number))
        attempt(f"trace {pid}", lambda: call(libc.ptrace(16, pid, None, None)))
        attempt(f"priority of {pid}", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))

        def descriptor():
            fd = os.pidfd_open(pid)
            for number in range(3, 32):
                call(libc.syscall(438, fd, number, 0))

        attempt(f"take a descriptor of {pid}", descriptor)
        room = ctypes.create_string_buffer(8)
        here, there = Part(ctypes.addressof(room), 8), Part(0x400000, 8)
        attempt(f"look into {pid}", lambda: call(libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)))
        attempt(f"write into {pid}", lambda: call(libc.process_vm_writev(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)))
    for folder in told["folders"]:
        attempt(f"list {folder}", lambda: os.listdir(folder))
        attempt(f"enter {folder}", lambda: os.chdir(folder))
        attempt(f"create in {folder}", lambda: os.close(os.open(folder + "/hostile", os.O_CREAT | os.O_WRONLY)))
        attempt(f"link in {folder}", lambda: os.symlink("/etc/passwd", folder + "/hostile-link"))
        attempt(f"make a folder in {folder}", lambda: os.mkdir(folder + "/hostile-folder"))
        attempt(f"chmod {folder}", lambda: os.chmod(folder, 0o777))
        attempt(f"rename {folder}", lambda: os.rename(folder, folder + ".gone"))
        attempt(f"take {folder} away", lambda: os.rmdir(folder))
    return done


def as_user(uid, words, **options):
    """Runs as that user, with no groups."""
    return subprocess.run(words, user=uid, group=uid, extra_groups=[], cwd="/", timeout=60 * PATIENCE, check=False, **options)


def in_user(uid, function, *arguments):
    """The function's result in a process of that user: a fork, since other users cannot run every interpreter."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            os.chdir("/")
            with os.fdopen(there, "w") as out:
                json.dump(function(*arguments), out)
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(there)
    with os.fdopen(here) as said:
        text = said.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise AssertionError(f"{function.__name__} as user {uid} failed")
    return json.loads(text)


HTTP_HEADS = (
    b"GET /health HTTP/1.1\r\n", b"POST /api/v1/remove_all HTTP/1.1\r\nOrigin: http://elsewhere\r\nContent-Length: 0\r\n\r\n",
    b"PUT /metadata?key=%00 HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"GET /" + b"a" * 40000, b"\0" * 300,
    b'{"join": "' + b"[" * 3000, b'{"join": {}, "mac": 7}\n',
    b"DELETE /metadata?key=%zz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n")


def garbage(ports, heads, turns):
    """Sends one of the heads and random bytes, `turns` times to each port of the loopback. Returns the number of connections."""
    rng = random.Random(3)
    made = 0
    for port in ports:
        for turn in range(turns):
            with socket.socket() as one:
                one.settimeout(0.3)
                try:
                    one.connect(("127.0.0.1", port))
                    made += 1
                    for _ in range(rng.randrange(1, 4)):
                        one.send(rng.choice(heads) + rng.randbytes(rng.randrange(600)))
                    if turn % 4 == 0:
                        one.recv(4096)
                except OSError:
                    pass
    return made


class OwnedNode(Node):
    """A node of a user; its parent directories are like /tmp and /dev/shm."""

    def __init__(self, uid, **options):
        super().__init__(**options)
        self.uid = uid
        os.chmod(self.directory, 0o755)
        os.chown(self.directory, uid, uid)
        self.environment.update(HOME="/nonexistent", PYTHONDONTWRITEBYTECODE="1")

    def supervisor(self, command, *arguments, check=True, timeout=60 * PATIENCE):
        done = as_user(self.uid, [NODE, command, *arguments, *self.where], env=self.environment, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"sluice-node {command} gave {done.returncode}:\n{done.stdout}\n{self.logs()}")
        return done

    def ctl(self, *arguments, check=True, timeout=60 * PATIENCE, stdin=None):
        done = as_user(self.uid, [CTL, *arguments, *self.where], env=self.environment, input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise AssertionError(f"sluicectl {' '.join(arguments)} gave {done.returncode}:\n{done.stderr.decode()}\n{self.logs()}")
        return done

    def things(self):
        """(folders, files, sockets) of the node, without those of its parents."""
        folders, files, sockets = [], [], []
        for root in (self.directory + "/run", self.directory + "/disk", self.directory + "/keys", self.shm):
            for folder, below, names in os.walk(root):
                folders.append(folder)
                for name in names:
                    path = os.path.join(folder, name)
                    (sockets if stat.S_ISSOCK(os.lstat(path).st_mode) else files).append(path)
        return folders, files, sockets

    def pids(self):
        with open(self.directory + "/run/supervisor.pid", encoding="utf-8") as line:
            return [int(line.read().split()[0]), *(row[0] for row in self.processes().values())]


def abstract_sockets(pids):
    """Abstract sockets of these processes, which root may see: those of other processes on the machine are left out."""
    held = set()
    for pid in pids:
        for number in os.listdir(f"/proc/{pid}/fd"):
            try:
                held.add(os.readlink(f"/proc/{pid}/fd/{number}"))
            except FileNotFoundError:
                pass  # closed meanwhile
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as lines:
        words = [line.split() for line in lines]
    return sorted({row[7][1:] for row in words if len(row) > 7 and row[7].startswith("@") and f"socket:[{row[6]}]" in held})


def secret_words(directory):
    """Keys, as they would appear in a command line or a name."""
    found = []
    for name in os.listdir(directory):
        if name.endswith(".secret"):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                found += [word for word in file.read().split() if len(word) >= 32]
    return found


@unittest.skipUnless(os.geteuid() == 0, "needs root, to be several users")
class Another(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if as_user(OWNER, ["test", "-x", CTL], stdout=subprocess.DEVNULL).returncode != 0:
            raise unittest.SkipTest("another user cannot run what was built here")

    def setUp(self):
        self.data, self.control = free_port(), free_port()
        self.node = OwnedNode(OWNER, ranks=2, memory="64MiB", disk="64MiB")
        self.addCleanup(self.node.__exit__)
        keys = self.node.directory + "/keys"
        made = as_user(OWNER, [CTL, "keygen", keys, "a"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(made.returncode, 0, made.stdout)
        self.node.settings += ["--node-name", "a", "--cluster-keys", keys, "--cluster-listen", f"127.0.0.1:{self.control}",
                               "--fabric", "tcp", "--fabric-address", f"127.0.0.1:{self.data}"]
        self.node.start()
        self.node.wait_ready()
        self.abstract = abstract_sockets(self.node.pids())
        self.value = os.urandom(1 << 20)
        self.node.ctl("put", "k", "-", stdin=self.value)

    def attack(self, uid):
        folders, files, sockets = self.node.things()
        self.assertGreater(len(files), 20)
        self.assertGreaterEqual(len(sockets), 8)
        with tempfile.TemporaryDirectory(prefix="sl-") as own:
            os.chown(own, uid, uid)
            told = dict(folders=folders, files=files, sockets=sockets, abstract=self.abstract, pids=self.node.pids(), own=own)
            return in_user(uid, attack_as, told)

    def kill(self):
        """Ends the processes that the attack stopped, which end no other way. The supervisor may have started actors since the attack got
        its list, which neither it nor that list knows: so running processes are looked for until there are none."""
        def none_runs():
            for pid in self.node.running():
                try:
                    process = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                try:
                    if pid in self.node.running():  # the descriptor is not of another process that reused its number
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                finally:
                    os.close(process)
            return not self.node.running()

        wait_until(none_runs, 10, lambda: f"no process is left: {self.node.running()}")

    def test_the_attack_finds_what_is_open(self):
        """Its own user and root can do nearly all of it: so the attack is a real one."""
        self.addCleanup(self.kill)
        done = self.attack(OWNER)
        for what in ("list", "create in", "read", "write", "stat", "connect to", "signal"):
            self.assertTrue(any(one.startswith(what) for one in done), f"{what}: {done[:20]}")

    def test_another_user_reads_writes_and_harms_nothing(self):
        wait_until(lambda: not any("/pins.client." in path for path in self.node.things()[1]), 5, "clients that have ended have left nothing")
        folders, files, _ = self.node.things()
        states = {path: (os.stat(path).st_mode, os.stat(path).st_uid, os.stat(path).st_ino) for path in folders + files}
        before = self.node.processes()
        for uid in STRANGERS:
            with self.subTest(uid=uid):
                self.assertEqual(self.attack(uid), [])
        self.assertEqual({path: (os.stat(path).st_mode, os.stat(path).st_uid, os.stat(path).st_ino) for path in folders + files
                          if os.path.exists(path)}, states)
        self.assertEqual({name: row[0] for name, row in self.node.processes().items()}, {name: row[0] for name, row in before.items()})
        self.assertEqual(self.node.ctl("get", "k", "-").stdout, self.value)

    def test_another_user_cannot_use_the_commands(self):
        for uid in STRANGERS:
            for words in (["status"], ["get", "k", "-"], ["put", "k", "-"], ["rm", "k"], ["ls"], ["tiers"], ["nodes"]):
                done = as_user(uid, [CTL, *words, *self.node.where], env=self.node.environment, input=b"x", stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
                self.assertNotEqual(done.returncode, 0, words)
                self.assertNotIn(self.value[:64], done.stdout)
            for command in ("stop", "restart", "status"):
                done = as_user(uid, [NODE, command, *self.node.where], env=self.node.environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
                self.assertNotEqual(done.returncode, 0, command)
        self.node.wait_ready()
        self.assertEqual(self.node.ctl("get", "k", "-").stdout, self.value)

    def test_nothing_secret_is_in_what_everybody_may_read(self):
        words = secret_words(self.node.directory + "/keys")
        self.assertTrue(words)
        seen = b""
        for pid in self.node.pids():
            for name in ("cmdline", "comm", "status", "stat"):
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    seen += file.read()
        for word in words:
            self.assertNotIn(word.encode(), seen)

    def test_garbage_at_the_ports_of_the_node_costs_nothing(self):
        """Any user of the host reaches them by the loopback."""
        before = {name: row[0] for name, row in self.node.processes().items()}
        heads = (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x03", b"\x16\x03\x01\x02\x00\x01")
        self.assertEqual(in_user(STRANGERS[0], garbage, (self.data, self.control), heads, 120), 240)
        self.node.wait_ready()
        self.assertEqual({name: row[0] for name, row in self.node.processes().items()}, before)
        self.assertEqual(self.node.ctl("get", "k", "-").stdout, self.value)


class Same(unittest.TestCase):
    """Of the same user: a process of a faulty program."""

    def setUp(self):
        self.node = Node(ranks=2, memory="64MiB", disk="64MiB")
        self.addCleanup(self.node.__exit__)
        self.node.start()
        self.node.wait_ready()
        self.value = os.urandom(1 << 20)
        self.node.ctl("put", "k", "-", stdin=self.value)

    def sockets(self):
        run = self.node.directory + "/run"
        return sorted(os.path.join(run, name) for name in os.listdir(run) if name.endswith(".sock"))

    def assert_serves(self):
        self.node.wait_ready(20)
        self.assertEqual(self.node.ctl("get", "k", "-").stdout, self.value)
        self.node.ctl("put", "after", "-", stdin=self.value[7:])
        self.assertEqual(self.node.ctl("get", "after", "-").stdout, self.value[7:])
        self.node.ctl("rm", "after")

    def open(self, path):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(one.close)
        one.settimeout(5)
        one.connect(path)
        return one

    def test_garbage_on_every_socket(self):
        """Random bytes, descriptors that no protocol expects, disconnects in the middle."""
        rng = random.Random(5)
        before = {name: row[0] for name, row in self.node.processes().items()}
        null = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, null)
        for path in self.sockets():
            for _ in range(60):
                one = self.open(path)
                try:
                    for _ in range(rng.randrange(1, 5)):
                        length = rng.randrange(1, 3000)
                        one.send(bytes([rng.choice((0, 1, 2, 4)), min(length, 255)]) + rng.randbytes(length))
                    socket.send_fds(one, [rng.randbytes(rng.randrange(1, 200))], [null] * rng.randrange(1, 9))
                except (BrokenPipeError, ConnectionResetError, TimeoutError):
                    pass
                one.close()
        self.assert_serves()
        self.assertEqual({name: row[0] for name, row in self.node.processes().items()}, before)

    def test_connections_that_say_nothing(self):
        """Some hundreds of idle connections to every socket: when it is full it refuses more, and the rest works."""
        held = []
        for path in self.sockets():
            for _ in range(300):
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                one.setblocking(False)
                try:
                    one.connect(path)
                except (BlockingIOError, ConnectionRefusedError):
                    one.close()
                    continue
                held.append(one)
                self.addCleanup(one.close)
        self.assertGreater(len(held), 300)
        self.assert_serves()

    def test_a_client_that_is_stopped_holds_nobody_up(self):
        trace = self.node.directory + "/trace"
        with open(trace, "wb") as out:
            subprocess.run([CTL, "workload", "--requests", "400", "--seed", "1"], check=True, stdout=out)
        replay = self.node.replay_start(trace, "--ranks", "2")
        self.addCleanup(replay.stdout.close)
        self.addCleanup(replay.wait)
        self.addCleanup(replay.kill)
        time.sleep(0.5)
        for _ in range(5):
            replay.send_signal(signal.SIGSTOP)
            for i in range(20):
                self.node.ctl("put", f"s{i}", "-", stdin=self.value[:100000 + i])
                self.assertEqual(self.node.ctl("get", f"s{i}", "-").stdout, self.value[:100000 + i])
            replay.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        replay.kill()
        self.assert_serves()

    def test_locks_that_somebody_else_holds(self):
        """A process of the same user locks every file of the node in both ways. Running actors continue; an actor that restarts waits or
        reports the lock, and runs when the locks are released."""
        locked = []
        for root in (self.node.directory + "/run", self.node.directory + "/disk", self.node.shm):
            for folder, _, names in os.walk(root):
                for name in names:
                    path = os.path.join(folder, name)
                    if stat.S_ISSOCK(os.stat(path).st_mode):
                        continue
                    file = open(path, "r+b", buffering=0)  # a FIFO cannot be sought in
                    self.addCleanup(file.close)
                    for lock in (fcntl.flock, fcntl.lockf):
                        try:
                            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                            locked.append(file)
                        except BlockingIOError:
                            pass
        self.assertGreater(len(locked), 20)
        self.assert_serves()
        for name in ("registrar", "coordinator", "swapper.0", "tierer.0"):
            self.node.signal(name, signal.SIGKILL)
        time.sleep(1)
        for file in locked:
            file.close()
        wait_until(lambda: all(row[1] == "up" or row[0] != 0 for row in self.node.processes().values()), 20, "all actors run")
        self.assert_serves()


@unittest.skipUnless(os.geteuid() == 0 and os.path.exists(os.path.join(BIN, "mooncake_master")), "needs root, and mooncake_master")
class Master(unittest.TestCase):
    """A master's ports are on the loopback, which every user of the host reaches: garbage there has no effect."""

    def test_garbage_at_the_ports_of_a_master(self):
        directory = tempfile.mkdtemp(prefix="sl-mc-")
        self.addCleanup(shutil.rmtree, directory, True)
        shm = f"/dev/shm/sluice-test-users-{os.getpid()}"
        self.addCleanup(shutil.rmtree, shm, True)
        ports = [free_port() for _ in range(3)]
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("SLUICE_", "MOONCAKE_", "MC_"))}
        environment.update(SLUICE_RUNTIME_DIR=directory + "/run", SLUICE_SHM_DIR=shm, XDG_RUNTIME_DIR=directory, SLUICE_INSTANCE=f"u{os.getpid()}")
        with open(directory + "/log", "w+b") as log:
            master = subprocess.Popen([os.path.join(BIN, "mooncake_master"), f"--port={ports[0]}", f"--metrics_port={ports[1]}",
                                       "--enable_http_metadata_server=true", f"--http_metadata_server_port={ports[2]}", "--memory=128mb"],
                                      env=environment, stdout=log, stderr=log)
            try:
                wait_until(lambda: master.poll() is not None or self.healthy(ports[1]), 30, "the master answers")
                for uid in STRANGERS:
                    self.assertEqual(in_user(uid, garbage, ports, HTTP_HEADS, 80), 240)
                self.assertIsNone(master.poll())
                self.assertTrue(self.healthy(ports[1]))
                for uid in STRANGERS:  # its files are the owner's
                    for path in (directory + "/run", shm):
                        self.assertNotEqual(as_user(uid, ["ls", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode, 0)
            finally:
                master.terminate()
                master.wait(timeout=60 * PATIENCE)

    def healthy(self, port):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
                one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return one.recv(4096).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


if __name__ == "__main__":
    main()
