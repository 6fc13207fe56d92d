"""Building blocks of scenarios: processes that end with this one, a node of Sluice in directories of its own, and workers. A worker is a
program in an engine's environment that answers commands with lines of JSON."""

import collections
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from reasons import Failed, Overdue, Skipped

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

from children import directory_make, free_port, popen  # noqa: E402

MOONCAKE = "mooncake-transfer-engine-non-cuda==0.3.13"
MOONCAKE_CUDA = "nvidia-cuda-runtime-cu12"
GIB = 1 << 30
LOG_LINES = 60
SLOWDOWN = int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))  # for a busy machine: all time limits are longer
DAMAGE_FIRST, DAMAGE_EVERY, DAMAGE_NOT_LAST = 9001, 16 << 10, 256 << 10  # a file begins and ends with descriptions of values


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One row of the report. `action` returns an Outcome (or None), or raises Failed or Skipped."""

    name: str
    action: object
    seconds: int = 600  # the watchdog's limit: several starts of engines, also on a busy machine


@dataclasses.dataclass(frozen=True)
class Outcome:
    hits: int = 0     # tokens, from the engine's own metrics
    queried: int = 0
    note: str = ""


@dataclasses.dataclass
class Table:
    """Figures that are printed after the scenarios."""

    title: str
    header: tuple
    rows: list = dataclasses.field(default_factory=list)


def check(holds, said):
    if not holds:
        raise Failed(said)


def wait_until(holds, seconds, what):
    """Returns the first true answer of holds(). Limits under a minute are too short for a busy machine."""
    seconds = max(seconds, 60) * SLOWDOWN
    end_s = time.monotonic() + seconds
    while not (answer := holds()):
        if time.monotonic() > end_s:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(0.05)
    return answer


def end(process, seconds=20):
    """Sends SIGTERM, then SIGKILL, to all of its session."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
    for pid in session_pids(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if process.poll() is None:
        process.kill()  # a leader that is a zombie while its threads end is not among session_pids
        process.wait(60)


def session_pids(session):
    """The living processes of a session, with its leader."""
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                pids.append(int(name))
    return pids


def wheel_make(package):
    """Makes the wheel of `sluice` or `mooncake` with the programs that were built here. Raises Skipped if that fails."""
    made = subprocess.run([os.path.join(ROOT, "deploy", "wheel"), package], stdout=subprocess.PIPE, text=True)
    if made.returncode != 0:
        raise Skipped(f"deploy/wheel {package} failed (above)")
    return made.stdout.strip().splitlines()[-1]


class Run:
    """One engine's scenarios: its environment, a directory, and all processes that were started."""

    def __init__(self, name, environment, wheel, options):
        self.name, self.environment, self.options = name, environment, options
        self.interpreter = environment.interpreter
        self.directory = directory_make("engines", name, tempfile.gettempdir())
        self.shm = directory_make("engines", name, "/dev/shm")
        self.wheel = os.path.join(self.directory, "wheel")  # Sluice's package mooncake, for PYTHONPATH
        self.started = []
        self.stops = 0  # how often everything was stopped
        self.tables = []
        self.numbers = collections.Counter()
        self.pip_target(self.wheel, wheel)

    def pip_target(self, target, package):
        done = subprocess.run([self.interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
                               "--target", target, package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Skipped(f"pip install {package}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}")

    def sluice_package(self):
        """The package sluice, for PYTHONPATH."""
        target = os.path.join(self.directory, "sluice")
        if not os.path.isdir(target):
            self.pip_target(target, wheel_make("sluice"))
        return target

    def mooncake_wheel(self):
        """Mooncake's own package and the CUDA runtime that it is linked with, kept next to the environments: (for PYTHONPATH, for
        LD_LIBRARY_PATH). Raises Skipped if they cannot be downloaded."""
        cuda = self.package_beside("mooncake-cuda", MOONCAKE_CUDA)
        return self.package_beside("mooncake-wheel", MOONCAKE), os.path.join(cuda, "nvidia", "cuda_runtime", "lib")

    def package_beside(self, name, package):
        """A package of PyPI without its requirements, for PYTHONPATH, kept next to the environments. Raises Skipped if it is unavailable."""
        target = os.path.join(os.path.dirname(self.environment.directory), name)
        if not os.path.isdir(target):
            self.pip_target(target + ".new", package)
            os.replace(target + ".new", target)
        return target

    def number(self, what):
        """1, 2, ...: numbers the things that the run starts."""
        self.numbers[what] += 1
        return self.numbers[what]

    def variables(self, **more):
        """The environment of processes: ours without settings of Sluice and of Mooncake, plus `more`."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "MC_", "MOONCAKE_"))}
        return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **{name: str(value) for name, value in more.items()}}

    def started_add(self, thing):
        """Registers a thing whose stop() is called at the end, the last one first."""
        self.started.append(thing)
        return thing

    def stop(self):
        for thing in reversed(self.started):
            thing.stop()
        self.started = []
        self.stops += 1

    def logs_print(self):
        """Prints the ends of all logs of this run."""
        for path, _, names in os.walk(self.directory):
            if path.startswith(self.wheel):
                continue
            for name in sorted(names):
                if name.endswith((".log", ".jsonl", ".out")):
                    with open(os.path.join(path, name), encoding="utf-8", errors="replace") as log:
                        lines = collections.deque(log, LOG_LINES)
                    print(f"---- {os.path.join(path, name)}", *(line.rstrip() for line in lines), sep="\n", flush=True)

    def close(self):
        self.stop()
        shutil.rmtree(self.shm, ignore_errors=True)
        if self.options.keep:
            print(f"{self.name}: logs are in {self.directory}", flush=True)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)


class Worker:
    """A program in the engine's environment. It receives a line of JSON and answers with one; its output is logged."""

    def __init__(self, run, program, name, environment, arguments=None, prefix=()):
        """prefix: a command that runs the program."""
        self.name = f"{name}-{run.number(name)}"
        self.log = os.path.join(run.directory, self.name + ".log")
        self.process = popen([*prefix, run.interpreter, "-u", program, json.dumps(arguments or {})], self.log, environment,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers = b""
        run.started_add(self)

    def tell(self, **command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} ended: {self.last_words()}") from None

    def answer(self, seconds=120):
        """Waits for an answer. Raises Failed when it reports a failure, when the program exits, or after the time limit."""
        seconds *= SLOWDOWN
        end_s = time.monotonic() + seconds
        while b"\n" not in self.answers:
            if not select.select([self.process.stdout], [], [], max(0, end_s - time.monotonic()))[0]:
                raise Failed(f"{self.name}: no answer within {seconds} s")
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                raise Failed(f"{self.name} ended: {self.last_words()}")
            self.answers += got
        line, self.answers = self.answers.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def has_answer(self, seconds):
        """Whether an answer arrives within this time."""
        return bool(self.answers) or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ask(self, seconds=120, **command):
        self.tell(**command)
        return self.answer(seconds)

    def last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def stop(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.close()  # it exits normally
                self.process.wait(20)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass
        end(self.process)
        self.process.stdout.close()


class Node:
    """A node of Sluice that mooncake_master starts, and a mooncake_client which contributes its memory."""

    def __init__(self, run, memory_bytes=GIB, disk_bytes=0, contribute=True, **settings):
        self.run, self.memory_bytes, self.contribute = run, memory_bytes, contribute
        self.port, self.metrics_port = free_port(), free_port()
        self.name = f"node-{run.number('node')}"
        self.directory = os.path.join(run.directory, self.name)
        self.disk = os.path.join(self.directory, "disk")
        os.makedirs(self.disk)
        os.chmod(self.disk, 0o700)  # as a node requires
        self.bin = os.path.join(run.wheel, "mooncake", "bin")
        self.settings = {"SLUICE_SHM_DIR": os.path.join(run.shm, self.name), "SLUICE_RUNTIME_DIR": os.path.join(self.directory, "run"),
                         "SLUICE_INSTANCE": self.name}
        self.variables = run.variables(**self.settings, SLUICE_MEMORY=memory_bytes + (64 << 20),
                                       **({"SLUICE_DISK": disk_bytes, "SLUICE_DISK_PATH": self.disk} if disk_bytes else {}), **settings)
        self.address = f"127.0.0.1:{self.port}"
        self.master = self.client = None
        run.started_add(self)
        self.start()

    def client_variables(self):
        """The environment of a process that uses the node through its package."""
        return {**self.settings, "PYTHONPATH": self.run.wheel}

    def program(self, name):
        return os.path.join(self.bin, name)

    def daemon(self, name, *flags):
        """Starts mooncake_master or mooncake_client of the wheel, with a log of its name."""
        return popen([self.run.interpreter, "-m", "mooncake.cli", name, *flags], os.path.join(self.directory, name.split("_")[1] + ".log"),
                     {**self.variables, "PYTHONPATH": self.run.wheel})

    def start(self):
        self.master_start()
        if self.contribute:
            self.client_start()

    def master_start(self):
        self.master = self.daemon("mooncake_master", f"--port={self.port}", f"--metrics_port={self.metrics_port}")
        wait_until(self.ready, 60, f"{self.name} is ready")

    def client_start(self):
        self.client_port = free_port()
        self.client = self.daemon("mooncake_client", "--host=127.0.0.1", f"--port={self.client_port}", "--metadata_server=P2PHANDSHAKE",
                                  f"--master_server_address={self.address}", f"--global_segment_size={self.memory_bytes}",
                                  "--local_buffer_size=0")
        wait_until(self.contributed, 60, f"{self.name} has memory")

    def contributed(self):
        if self.client.poll() is not None:
            raise Failed(f"mooncake_client ended with {self.client.returncode} ({self.directory}/client.log)")
        return self.metric("master_total_capacity_bytes") >= self.memory_bytes

    def ready(self):
        if self.master.poll() is not None:
            raise Failed(f"mooncake_master ended with {self.master.returncode} ({self.directory}/master.log)")
        asked = self.ctl("status", "--not-ready", "registrar", "keyer", "coordinator")
        return asked.returncode == 0 and not asked.stdout.strip() and self.metrics() is not None

    def ctl(self, *arguments, seconds=60):
        return subprocess.run([self.program("sluicectl"), *arguments], env=self.variables, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=seconds)

    def metrics(self):
        """The master's metrics page, or None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as page:
                return page.read().decode()
        except OSError:
            return None

    def metric(self, name):
        for line in (self.metrics() or "").splitlines():
            if line.startswith(name + " ") or line.startswith(name + "{"):
                return float(line.split()[-1])
        return 0.0

    def keys(self):
        return int(self.metric("master_key_count"))

    def settled(self, seconds=60):
        """Waits until no key was added for a second: engines store after they have answered. Returns the number of keys."""
        end_s, before, since = time.monotonic() + seconds, -1, time.monotonic()
        while time.monotonic() - since < 1.0:
            now = self.keys()
            if now != before:
                before, since = now, time.monotonic()
            check(time.monotonic() < end_s, f"{self.name} is still written to after {seconds} s")
            time.sleep(0.1)
        return before

    def actors(self):
        """{name: pid} of the running actors."""
        asked = self.ctl("status", "--json")
        check(asked.returncode == 0, f"sluicectl status: {asked.stderr.strip()}")
        return {actor["name"]: actor["pid"] for actor in json.loads(asked.stdout)["actors"] if actor.get("pid")}

    def counters(self, actor="coordinator"):
        """The counters of an actor."""
        asked = self.ctl("status", "--metrics", "--json")
        check(asked.returncode == 0, f"sluicectl status: {asked.stderr.strip()}")
        return next(one for one in json.loads(asked.stdout)["actors"] if one["name"] == actor)["counters"]

    def listed(self):
        """{key: its entry in `sluicectl ls`}."""
        asked = self.ctl("ls", "--json")
        check(asked.returncode == 0, f"sluicectl ls: {asked.stderr.strip()}")
        return {one["key"]: one for one in json.loads(asked.stdout)["objects"]}

    def session(self, name, *words):
        """Whether the node knows the session. Announces the longest pause, or what `words` say."""
        return self.ctl("session", name, *(words or ("--pause", "604800s"))).returncode == 0

    def flush(self):
        """Waits until all values are on disk."""
        asked = self.ctl("flush")
        check(asked.returncode == 0, f"sluicectl flush: {asked.stdout.strip()} {asked.stderr.strip()}")

    def disk_damage(self):
        """Changes bytes on the disk of a stopped node. Returns their number."""
        changed = 0
        for path, _, names in os.walk(self.disk):
            for name in names:
                with open(os.path.join(path, name), "r+b", buffering=0) as file:
                    for at in range(DAMAGE_FIRST, os.fstat(file.fileno()).st_size - DAMAGE_NOT_LAST, DAMAGE_EVERY):
                        byte = os.pread(file.fileno(), 1, at)
                        if byte not in (b"", b"\0"):
                            os.pwrite(file.fileno(), bytes([byte[0] ^ 0x55]), at)
                            changed += 1
        return changed

    def stop(self):
        for process in (self.client, self.master):
            if process is not None:
                end(process, 30)
        self.client = self.master = None


class NativeNode(Node):
    """A node whose clients have the package sluice, but not mooncake."""

    def client_variables(self):
        return {**self.settings, "PYTHONPATH": self.run.sluice_package()}


class Watchdog:
    """Raises Overdue in the scenario when its time limit is over."""

    def __init__(self, seconds):
        self.seconds = seconds * SLOWDOWN

    def __enter__(self):
        def overdue(*_):
            raise Overdue(f"it did not end within {self.seconds} s")

        self.before = signal.signal(signal.SIGALRM, overdue)
        signal.alarm(self.seconds)

    def __exit__(self, *_):
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)


def progress(text):
    """Prints progress for a person."""
    print(text, file=sys.stderr, flush=True)
