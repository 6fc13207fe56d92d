"""The stores that are compared: how each is installed, which processes it has, and how its workers are started. All processes
started here end with this process, also when it is killed."""

import glob
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from rows import SECTIONS

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import children  # noqa: E402

MOONCAKE_PACKAGES = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine")  # the only difference is libcuda
PACKAGE_OF = {"libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1", "libcurl.so.4": "libcurl4",
              "librdmacm.so.1": "librdmacm1", "libnl-3.so.200": "libnl-3-200", "libstdc++.so.6": "libstdc++6"}
COLD_FILLS = 3  # times the memory, written and read; the last part, which still fills memory, is not read


class Missing(Exception):
    """Why a store cannot be measured here."""


class Refused(Exception):
    """A worker's answer that is an error."""


def run(arguments, seconds=900, **options):
    """The program's output; raises Missing with its last line when it fails."""
    try:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                              timeout=seconds, **options)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise Missing(str(failure)) from failure
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise Missing(f"'{' '.join(arguments)}' failed: {lines[-1]}")
    return done.stdout


def apt_install(packages, what):
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"{what} needs {' '.join(packages)}: apt-get install {' '.join(packages)}")
    # Their services are not started: the bench runs programs of its own.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    try:
        run(command, env=environment)
    except Missing:
        run(["apt-get", "update", "-q"])
        run(command, env=environment)


def popen(arguments, log, environment, **options):
    """As children.popen; raises Missing when the program cannot be started."""
    try:
        return children.popen(arguments, log, environment, **options)
    except OSError as failure:
        raise Missing(str(failure)) from failure


def end(process, seconds=15):
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def session_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[3])
    except OSError:
        return 0


def cpu_ns_of(pid):
    """CPU time of all its living threads."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        try:
            with open(path, encoding="utf-8") as stat:
                total += int(stat.read().split()[0])
        except OSError:
            pass  # the thread has ended
    return total


class Worker:
    """A measuring process of one side."""

    def __init__(self, side, number, options):
        self.log = os.path.join(side.directory, f"worker-{options['section']}-{number}.log")
        self.process = popen([side.interpreter, "-u", os.path.join(HERE, "worker.py"), json.dumps(options)], self.log,
                             side.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers = b""

    def tell(self, **command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Refused(self.last_words()) from None

    def answer(self, seconds=120):
        end_s = time.monotonic() + seconds
        while b"\n" not in self.answers:
            if not select.select([self.process.stdout], [], [], max(0, end_s - time.monotonic()))[0]:
                raise Refused(f"no answer within {seconds} s; {self.last_words()}")
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                raise Refused(f"its process ended; {self.last_words()}")
            self.answers += got
        line, self.answers = self.answers.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def last_words(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            lines = log.read().strip().splitlines()
        return f"its output: {lines[-1]}" if lines else "it printed nothing"

    def close(self):
        if self.process.poll() is None:
            try:
                self.tell(do="close")
                self.answer(10)
            except Refused:
                pass
            self.process.stdin.close()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                end(self.process, 5)
        self.process.stdout.close()


class Side:
    """One store. prepare() once, stop() at the end; between them section_start() and section_stop() for each section."""

    name, title = "", ""
    sections = tuple(section for section in SECTIONS if section != "cold")

    def __init__(self, options):
        self.options = options
        self.section, self.written, self.cold_bytes = "", set(), COLD_FILLS * options.cold_memory_bytes
        self.directory = children.directory_make("peers", self.name, tempfile.gettempdir())
        self.interpreter = sys.executable
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "MC_"))}
        self.processes, self.workers, self.services = [], [], []
        self.version = ""

    def prepare(self):
        """Raises Missing if it cannot run here."""

    def services_start(self, section):
        """Starts the section's processes besides its workers. Returns the options of the workers."""
        return {}

    def service(self, arguments, name, environment=None, port=None, seconds=30):
        """Starts a service and waits until it listens."""
        process = popen(arguments, os.path.join(self.directory, name + ".log"), environment or self.environment)
        self.processes.append(process)
        end_s = time.monotonic() + seconds
        while port is not None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process
            self.check_runs(process, name, end_s)
        return process

    def check_runs(self, process, name, end_s):
        time.sleep(0.05)
        if process.poll() is not None or time.monotonic() > end_s:
            with open(os.path.join(self.directory, name + ".log"), encoding="utf-8", errors="replace") as log:
                said = log.read().strip().splitlines() or ["nothing"]
            raise Missing(f"{name} does not start: {said[-1]}")

    def section_start(self, section, count):
        """Starts the workers; they answer in workers_wait()."""
        self.section, self.written = section, set()
        options = {"store": self.name, "section": section, "buffer_bytes": self.options.buffer_bytes,
                   "local_bytes": self.options.local_bytes, "segment_bytes": self.options.segment_bytes // count,
                   "cold_bytes": self.cold_bytes, **self.services_start(section)}
        self.workers = [Worker(self, number, options) for number in range(count)]

    def workers_wait(self):
        for worker in self.workers:
            worker.answer(120)

    def services_find(self):
        """The processes of this section's services; those that they start later are not counted."""
        sessions = {process.pid for process in self.processes}
        self.services = [pid for pid in os.listdir("/proc") if pid.isdigit() and session_of(pid) in sessions]

    def services_cpu_ns(self):
        return sum(cpu_ns_of(pid) for pid in self.services)

    def section_stop(self):
        for worker in self.workers:
            worker.close()
        self.workers = []
        for process in reversed(self.processes):
            end(process)
        self.processes = []

    def stop(self):
        self.section_stop()
        if self.options.keep:
            print(f"{self.title}: logs are in {self.directory}", file=sys.stderr)
        else:
            shutil.rmtree(self.directory, ignore_errors=True)


class MooncakeLike(Side):
    """The common part of both mooncake.store modules: a master, and for standalone sections a process with the memory."""

    def master_start(self):
        raise NotImplementedError

    def client_program(self):
        raise NotImplementedError

    def services_start(self, section):
        self.port = children.free_port()
        self.master_start()
        told = {"master": f"127.0.0.1:{self.port}"}
        if section in ("standalone", "dummy"):
            port = children.free_port()
            self.service(
                [*self.client_program(), "--host=127.0.0.1", f"--port={port}", "--metadata_server=P2PHANDSHAKE",
                 f"--master_server_address=127.0.0.1:{self.port}", f"--global_segment_size={self.options.segment_bytes}",
                 f"--local_buffer_size={self.options.local_bytes}", "--threads=2"], f"client-{section}", port=port)
            told.update(client=f"127.0.0.1:{port}", segment_bytes=0)
        return told


class Sluice(MooncakeLike):
    name, title = "sluice", "Sluice"
    sections = tuple(SECTIONS)

    def services_start(self, section):
        told = super().services_start(section)
        if section == "cold":
            told["segment_bytes"] = self.options.cold_memory_bytes
        return told

    def prepare(self):
        self.build = os.path.abspath(self.options.build)
        package = os.path.join(self.build, "python")
        try:
            run([self.interpreter, "-c", "import mooncake.store"], env={**self.environment, "PYTHONPATH": package})
        except Missing as failure:
            raise Missing(f"{failure}; cmake --preset release && cmake --build --preset release") from failure
        self.version = run(["git", "-C", ROOT, "describe", "--always", "--dirty"]).strip()
        self.shm = children.directory_make("peers", self.name, "/dev/shm")
        self.environment.update(PYTHONPATH=package, SLUICE_BIN=os.path.join(self.build, "bin"), SLUICE_SHM_DIR=self.shm + "/node",
                                SLUICE_RUNTIME_DIR=self.directory + "/run", PYTHONDONTWRITEBYTECODE="1")

    def master_start(self):
        memory, disk = self.options.segment_bytes + (64 << 20), []
        if self.section == "cold": # on the file system of --cache: a temporary directory may be memory
            memory = self.options.cold_memory_bytes + (64 << 20)
            disk = ["--enable_offload", f"--root_fs_dir={self.disk_make()}", f"--quota_bytes={4 * self.cold_bytes}"]
        process = self.service([os.path.join(self.build, "bin", "mooncake_master"), f"--port={self.port}",
                                f"--metrics_port={children.free_port()}", *disk], "master", port=self.port,
                               environment={**self.environment, "SLUICE_MEMORY": str(memory)})
        end_s = time.monotonic() + 120
        while not self.node_ready():
            self.check_runs(process, "master", end_s)
        self.master = process

    def workers_wait(self):
        """Memory is populated gradually after the first ops: this is not measured here, but in first_put.py."""
        super().workers_wait()
        end_s = time.monotonic() + 300
        lent = self.options.cold_memory_bytes if self.section == "cold" else self.options.segment_bytes
        while self.populated_bytes() < lent:
            self.check_runs(self.master, "master", end_s)

    def disk_make(self):
        os.makedirs(self.options.cache, exist_ok=True)
        self.disk = children.directory_make("peers", "disk", self.options.cache)
        return self.disk

    def section_stop(self):
        super().section_stop()
        if hasattr(self, "disk"):
            shutil.rmtree(self.disk, ignore_errors=True)

    def node_ready(self):
        asked = subprocess.run([os.path.join(self.build, "bin", "sluicectl"), "status", "--not-ready", "registrar", "keyer",
                                "coordinator", "--instance", f"mooncake-{self.port}"],
                               env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return asked.returncode == 0 and not asked.stdout.strip()

    def populated_bytes(self):
        actors = json.loads(run([os.path.join(self.build, "bin", "sluicectl"), "status", "--json", "--instance",
                                 f"mooncake-{self.port}"], env=self.environment))["actors"]
        return next(actor["counters"]["usable_bytes"] for actor in actors if actor["name"] == "registrar")

    def client_program(self):
        return [os.path.join(self.build, "bin", "mooncake_client")]

    def stop(self):
        super().stop()
        if hasattr(self, "shm"):
            shutil.rmtree(self.shm, ignore_errors=True)


class Mooncake(MooncakeLike):
    """The wheel of PyPI in a virtual environment of its own, with its fastest settings: copies by memcpy where it can, no metrics,
    errors logged only; in sections of two processes each prefers its own memory. Its limits of transfers in flight are raised, since
    batches of many pieces fail with the defaults over TCP."""

    name, title = "mooncake", "Mooncake"

    def prepare(self):
        venv = os.path.join(self.options.cache, "mooncake")
        self.interpreter = os.path.join(venv, "bin", "python")
        if not self.installed():
            self.install(venv)
        self.package = run([self.interpreter, "-c", "import mooncake; print(mooncake.__path__[0])"]).strip()
        self.libraries_complete()
        try:
            run([self.interpreter, "-c", "import mooncake.store"])
        except Missing as failure:
            raise Missing(f"its module does not load: {failure}") from failure
        self.version = run([self.interpreter, "-c", "import importlib.metadata as m; print(next(d.version for d in m.distributions()"
                            " if d.name.startswith('mooncake-transfer-engine')))"]).strip()
        self.environment.update(MC_STORE_MEMCPY="1", MC_STORE_CLIENT_METRIC="0", MC_LOG_LEVEL="ERROR", GLOG_minloglevel="2",
                                MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER="65536", MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER="65536")

    def installed(self):
        return os.path.exists(self.interpreter) and subprocess.run(
            [self.interpreter, "-c", "import mooncake"], stderr=subprocess.DEVNULL).returncode == 0

    def install(self, venv):
        print(f"{self.title}: installing {self.options.mooncake} in {venv}", file=sys.stderr, flush=True)
        run([sys.executable, "-m", "venv", venv])
        pinned = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages", self.options.mooncake + ".txt")
        what = ["--require-hashes", "-r", pinned] if os.path.exists(pinned) else [self.options.mooncake]
        run([self.interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", *what])

    def libraries_complete(self):
        """Installs shared libraries that the wheel takes from the system, as root."""
        lacks = set()
        for program in ("store.so", "mooncake_master", "mooncake_client"):
            for line in run(["ldd", os.path.join(self.package, program)]).splitlines():
                if line.endswith("not found"):
                    lacks.add(line.split()[0])
        unknown = sorted(lacks - PACKAGE_OF.keys())
        if unknown:
            raise Missing(f"it lacks {', '.join(unknown)}")
        if lacks:
            apt_install(sorted(PACKAGE_OF[name] for name in lacks), "its wheel")

    def program(self, name):
        path = os.path.join(self.package, name)
        os.chmod(path, 0o755)
        return path

    def master_start(self):
        self.service([self.program("mooncake_master"), f"--port={self.port}", "--rpc_address=127.0.0.1",
                      f"--metrics_port={children.free_port()}", "--metrics_host=127.0.0.1", "--enable_metric_reporting=false",
                      "--minloglevel=2"], "master", port=self.port)

    def client_program(self):
        return [self.program("mooncake_client"), "--minloglevel=2"]


class Redis(Side):
    name, title = "redis", "Redis"

    def prepare(self):
        if shutil.which("redis-server") is None:
            apt_install(["redis-server"], "the bench")
        self.version = run(["redis-server", "--version"]).split("v=", 1)[1].split()[0]
        self.path = os.path.join(self.directory, "redis.sock")

    def services_start(self, section):
        process = self.service(["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--appendonly", "no",
                                "--dir", self.directory], "redis")
        end_s = time.monotonic() + 15
        while not os.path.exists(self.path):
            self.check_runs(process, "redis", end_s)
        return {"socket": self.path}


class Memcpy(Side):
    """The limit. For cold reads it is the disk, bypassing the page cache."""

    name, title = "memcpy", "memcpy"
    sections = tuple(SECTIONS)

    def services_start(self, section):
        if section == "cold":
            os.makedirs(self.options.cache, exist_ok=True)
            self.disk = children.directory_make("peers", "plain", self.options.cache)
            return {"file": os.path.join(self.disk, "values")}
        return {"segment_bytes": self.options.segment_bytes // 4}

    def section_stop(self):
        super().section_stop()
        if hasattr(self, "disk"):
            shutil.rmtree(self.disk, ignore_errors=True)


SIDES = {side.name: side for side in (Sluice, Mooncake, Redis, Memcpy)}
