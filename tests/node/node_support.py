"""Real nodes for tests: started by deploy/sluice-node in directories of their own, always cleaned up."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))

import suite  # noqa: E402
from ports import free_port  # noqa: E402,F401

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("SLUICE_BIN", os.path.join(ROOT, "build", "release", "bin"))
NODE = os.path.join(ROOT, "deploy", "sluice-node")
CTL = os.path.join(BIN, "sluicectl")
PD_ENGINES = os.path.join(os.path.dirname(BIN), "tests", "pd_engines")  # support/pd
TRACE = os.path.join(ROOT, "..", "shared", "data", "conversation_trace.jsonl")


# Things that take seconds on an idle machine may take many times as long on a busy or sanitized one.
PATIENCE = 6 * int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))
# Tests in which sanitizers can find nothing, such as those of scripts or of hits in a trace, run only in other builds.
unsanitized_only = unittest.skipIf("SLUICE_TEST_SANITIZED" in os.environ, "skipped: not under sanitizers")
# Pause after the first check of a condition.
ASK_PAUSE_S = 0.1 if "SLUICE_TEST_SANITIZED" in os.environ else 0.025
# Least time limit, times PATIENCE, of things that must happen: only a hang reaches it, no busy machine does.
HANG_S = 60
# Factor of times that a test waits out, such as the deadline of an op that cannot succeed.
PACE = 2 * int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))


def _kill(pid, how, kill=os.kill):
    """Refuses pid 0, which names every process of the caller's group: a SIGSTOP to a missing actor stopped whole test runs silently."""
    if pid <= 0:
        raise AssertionError(f"signal {how} for process {pid}: the actor does not exist")
    kill(pid, how)


os.kill = _kill


def wait_until(condition, seconds, what):
    """Polls condition until it returns a true value. After `seconds`, at least HANG_S, times PATIENCE, it fails with the text `what`, or
    with what that function returns then."""
    seconds = max(seconds, HANG_S) * PATIENCE
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        value = condition()
        if value:
            return value
        # Most conditions start a process, five times as expensive with a sanitizer: the longer it takes, the less often they are polled.
        time.sleep(min(ASK_PAUSE_S * (1 + 2 * (time.monotonic() - begin)), 0.5))
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


class Slept:
    """How long this thread slept in a `with`, as .seconds, without running or waiting for a core: so even a busy machine shows waits."""

    @staticmethod
    def _now():
        with open("/proc/thread-self/schedstat", encoding="utf-8") as stat:
            ran, queued, _ = stat.read().split()
        return time.monotonic() - (int(ran) + int(queued)) / 1e9

    def __enter__(self):
        self._began = self._now()
        return self

    def __exit__(self, *_):
        self.seconds = self._now() - self._began


def lives(pid):
    """Whether the process runs; False for one that has ended and was not collected yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as line:
        return [int(child) for child in line.read().split()]


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def fabric_without_peers():
    """Settings of a node without peers that still has engines' pools in its fabric."""
    return ("--node-name", "alone", "--fabric", "tcp", "--cluster-plaintext", "true", "--cluster-listen", f"127.0.0.1:{free_port()}")


def metric(node, actor, name):
    """A metric of an actor, from `status --metrics`. The registrar writes its gauges now and then, so poll for a value that decreases."""
    status = json.loads(node.ctl("status", "--pages").stdout)
    return next(row for row in status["actors"] if row["name"] == actor)["counters"][name]


def wait_pools(node, count):
    """Waits until the node's fabric has the pools of this number of engines: before that, direct hand-overs use storage."""
    def taken():
        actors = json.loads(node.ctl("status", "--pages").stdout)["actors"]
        return next(row for row in actors if row["name"] == "transporter.0")["counters"]["pool_engines"] == count

    wait_until(taken, 20, f"the fabric has the pools of {count} engines")


class Node:
    """One node under a supervisor. Use as a context manager."""

    count = 0
    leaks_looked_for = set()

    def __init__(self, ranks=2, memory="256MiB", disk="0", settings=()):
        Node.count += 1
        self.instance = f"t{os.getpid()}-{Node.count}"
        self.directory = tempfile.mkdtemp(prefix="sl-")
        self.shm = f"/dev/shm/sluice-test-{self.instance}"
        self.where = ["--instance", self.instance, "--runtime-dir", self.directory + "/run", "--shm-dir", self.shm]
        self.settings = ["--ranks", str(ranks), "--memory", memory, "--disk", disk]
        if disk != "0":
            self.settings += ["--disk-path", self.directory + "/disk"]
        self.settings += list(settings)
        self.environment = dict(os.environ, SLUICE_BIN=BIN)
        self.script, self.ctl_program = NODE, CTL

    def supervisor(self, command, *arguments, check=True, timeout=60 * PATIENCE):
        done = subprocess.run([self.script, command, *arguments, *self.where], env=self.environment, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if (check and done.returncode != 0) or NODE + ": line " in done.stdout:  # bash reports an error in the script
            raise AssertionError(f"sluice-node {command} gave {done.returncode}:\n{done.stdout}\n{self.logs()}")
        return done

    def programs_with_ctl(self, case):
        """The node's programs, with a sluicectl that behaves differently in one case of the shell: 'config*) sleep 9 ;;'."""
        self.programs_with("sluicectl", f'case "$*" in\n{case}\nesac')

    def programs_with(self, changed, before):
        """The node's programs, one of which first runs other commands."""
        programs = self.directory + "/bin"
        os.mkdir(programs)
        for name in os.listdir(BIN):
            if name != changed:
                os.symlink(f"{BIN}/{name}", f"{programs}/{name}")
        with open(f"{programs}/{changed}", "w", encoding="utf-8") as script:
            script.write(f'#!/bin/sh\n{before}\nexec "{BIN}/{changed}" "$@"\n')
        os.chmod(f"{programs}/{changed}", 0o755)
        self.environment["SLUICE_BIN"] = programs

    def start(self, disks=True):
        """disks: also waits until each disk was read, unless its tierer does not run."""
        done = self.supervisor("start", *self.settings)
        if disks and "--disk-path" in self.settings:
            wait_until(self.disks_read, 60, "all disks are read")
        return done

    def disks_read(self):
        answer = json.loads(self.ctl("status", "--ready=disks", "--deadline", "1s", "--json", check=False).stdout)
        return answer["disks_read"] or answer["missing"]

    def stop(self, *arguments):
        return self.supervisor("stop", *arguments)

    def ctl(self, *arguments, check=True, timeout=60 * PATIENCE, stdin=None):
        """check: it must succeed. The deadline is one that even a busy machine does not reach."""
        environment = self.environment_of(arguments)
        if check and arguments[0] in ("put", "get", "rm", "bench"):
            environment = {"SLUICE_OP_TIMEOUT": f"{HANG_S}s", **environment}
        done = subprocess.run([self.ctl_program, *arguments, *self.where], env=environment, timeout=timeout, input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise AssertionError(f"sluicectl {' '.join(arguments)} gave {done.returncode}:\n"
                                 f"{done.stdout.decode(errors='replace')}{done.stderr.decode(errors='replace')}\n{self.logs()}")
        return done

    def environment_of(self, arguments):
        """Switches off leak checks except the first time that a test runs a command with these options: a check takes a third of a
        command's time, and most commands are repeated until a condition holds."""
        asked = tuple(word for number, word in enumerate(arguments) if number == 0 or word.startswith("--"))
        if "SLUICE_TEST_SANITIZED" not in os.environ or asked not in Node.leaks_looked_for:
            Node.leaks_looked_for.add(asked)
            return self.environment
        return {**self.environment, "ASAN_OPTIONS": self.environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}

    def replay_start(self, trace, *arguments):
        return subprocess.Popen([self.ctl_program, "replay", trace, *arguments, *self.where], env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def processes(self):
        """{actor: (pid, state, restarts, last exit)} as the supervisor sees them."""
        rows = {}
        try:
            with open(self.directory + "/run/supervisor.state", encoding="utf-8") as lines:
                for line in lines:
                    name, pid, state, restarts, last = line.split()
                    rows[name] = (int(pid), state, int(restarts), last)
        except FileNotFoundError:
            pass
        return rows

    def pid(self, name):
        return self.processes().get(name, (0,))[0]

    def supervisor_pid(self):
        with open(self.directory + "/run/supervisor.pid", encoding="utf-8") as line:
            return int(line.read().split()[0])

    def watcher_pid(self):
        """0: none runs at the moment."""
        return next((pid for pid in children_of(self.supervisor_pid()) if "watch" in command_of(pid)[1:2]), 0)

    def live_pid(self, name):
        """Waits while no process runs as the actor: between a death and its restart pid() is 0."""
        found = []
        wait_until(lambda: found.append(self.pid(name)) or found[-1] != 0, 20, f"{name} runs")
        return found[-1]

    def signal(self, name, how):
        """Signals the process that is the actor now: one found earlier may have ended."""
        def sent():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.live_pid(name), how)
                return True
            return False

        wait_until(sent, 20, f"{name} gets signal {how}")

    def pids_to_stop(self, *names):
        """Pids to stop in this order, and to continue in reverse, so that actors are paused and still exist afterwards. The supervisor
        replaces an actor that is stopped for a second; its watcher must not notice it either: its last report must still be fresh."""
        watcher = wait_until(self.watcher_pid, 20, "a watcher runs")
        return [self.supervisor_pid(), watcher, *(self.live_pid(name) for name in names)]

    @contextlib.contextmanager
    def actors_stopped(self, *names):
        """Stops these actors inside of the `with`."""
        pids = self.pids_to_stop(*names)
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def wait_restarted(self, name, old_pid, seconds=5):
        return wait_until(lambda: self.pid(name) not in (0, old_pid) and self.pid(name), seconds, f"{name} restarted")

    def wait_ready(self, seconds=5):
        names = list(self.processes())
        wait_until(lambda: self.ctl("status", "--not-ready", "--within-ms", "1000", *names, check=False).stdout.strip() == b"", seconds,
                   "all actors ready")

    def logs(self):
        text = []
        log = self.directory + "/run/log"
        for name in sorted(os.listdir(log)) if os.path.isdir(log) else []:
            with open(os.path.join(log, name), encoding="utf-8", errors="replace") as lines:
                tail = lines.readlines()[-15:]
            if tail:
                text.append(f"--- {name}\n" + "".join(tail))
        return "\n".join(text)

    def running(self):
        """{pid: command line} of the node's processes, by their programs: also of those that no supervisor knows."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as line:
                        words = line.read().split(b"\0")
                except OSError:
                    continue
                if self.instance.encode() in words and any(b"sluice" in word for word in words[:2]):
                    found[int(entry)] = b" ".join(words).decode()
        return found

    def leftovers(self):
        """Things that a stop should have removed: processes, sockets, shm files."""
        left = []
        if os.path.isdir(self.shm):
            left += [os.path.join(self.shm, name) for name in os.listdir(self.shm)]
        run = self.directory + "/run"
        if os.path.isdir(run):
            left += [os.path.join(run, name) for name in os.listdir(run) if name.endswith((".sock", ".attach", ".pid", ".ready", ".http", ".at", ".helpers", "watch"))]
        left += [f"process {pid}: {command}" for pid, command in self.running().items()]
        return left

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *_):
        self.supervisor("stop", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)


def store_setup(node):
    """(code, output on standard error) of a mooncake.store that is set up at the node; None: this build has none."""
    program = ("import sys; from mooncake.store import MooncakeDistributedStore as Store; "
               "sys.exit(Store().setup('localhost', 'P2PHANDSHAKE', 0, 1 << 20, 'tcp', '', '127.0.0.1:1') != 0)")
    environment = dict(os.environ, SLUICE_INSTANCE=node.instance, SLUICE_RUNTIME_DIR=node.directory + "/run", SLUICE_SHM_DIR=node.shm,
                       PYTHONPATH=os.path.join(os.path.dirname(BIN), "python"))
    sanitizer = os.environ.get("SLUICE_TEST_PRELOAD", "")  # its runtime has to be loaded before the package
    if sanitizer:
        environment.update(LD_PRELOAD=sanitizer, PYTHONMALLOC="malloc",
                           ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    done = subprocess.run([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE)
    return None if "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr else (done.returncode, done.stderr)


def log_of(node, name):
    """The log lines of an actor."""
    with open(f"{node.directory}/run/log/{name}.jsonl", encoding="utf-8") as lines:
        return lines.read()


def allowed(statement):
    """Whether a process of this user may do that."""
    return subprocess.run([sys.executable, "-c", "import os; " + statement], stderr=subprocess.DEVNULL, check=False).returncode == 0


def workload(path, requests, seed):
    with open(path, "wb") as out:
        subprocess.run([CTL, "workload", "--requests", str(requests), "--seed", str(seed)], check=True, stdout=out)


def paced(trace, duration_ms):
    """Spreads the requests of a trace evenly over a time."""
    with open(trace, encoding="utf-8") as lines:
        requests = [json.loads(line) for line in lines]
    with open(trace, "w", encoding="utf-8") as lines:
        for index, request in enumerate(requests):
            request["timestamp"] = index * duration_ms // len(requests)
            lines.write(json.dumps(request) + "\n")


def expected_hits(path, block_tokens=512):
    """Hits of a cache that never evicts, computed from the trace: the longest known prefix of every request."""
    known, references, hits = set(), 0, 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            chain, keys = (), []
            length = request["input_length"]
            for index, block in enumerate(request["hash_ids"]):
                tokens = min(block_tokens, length - index * block_tokens)
                chain = hash((chain, block, tokens))
                keys.append(chain)
            references += len(keys)
            for key in keys:
                if key not in known:
                    break
                hits += 1
            known.update(keys)
    return references, hits


def main():
    if not os.path.exists(os.path.join(BIN, "sluice-registrar")):
        print(f"skipped: no programs in {BIN}")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    suite.run()
