"""Virtual environments of the engines: made once from PyPI, step by step, and kept. If one cannot be made, its engine is skipped."""

import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

from reasons import Skipped

STAMP = "sluice-steps.json"
CONSTRAINTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "constraints.txt")
STEP_SECONDS = 1800
HEARTBEAT_SECONDS = 20
TERMINAL_SECONDS = 2

# Prints names and versions that the interpreter given this program installs: a package's requirements, without some of them.
REQUIREMENTS_OF = """
import importlib.metadata, re, sys
from pip._vendor.packaging.requirements import Requirement
for line in importlib.metadata.requires(sys.argv[1]) or []:
    need = Requirement(line)
    if (need.marker is None or need.marker.evaluate({"extra": ""})) and need.name not in sys.argv[2:]:
        need.marker = None
        print(need)
"""


@dataclasses.dataclass(frozen=True)
class Step:
    """One run of pip install."""

    title: str
    arguments: tuple = ()
    requirements_of: str = ""  # an installed package, whose requirements are installed
    without: tuple = ()        # except these


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Describes an environment: a directory below build/engines and the steps that fill it."""

    name: str
    steps: tuple
    free_gib: float                      # free space that the disk must have before the first step
    pythons: tuple = ("3.11", "3.12")
    base: object = None                  # a recipe whose packages are also visible: torch is 5 GiB
    pinned: bool = True                  # versions are from constraints.txt, where its steps name none


@dataclasses.dataclass
class Environment:
    directory: str
    interpreter: str
    seconds: float  # that this run spent on making it; 0 when it existed
    bytes: int


def engines_directory(root):
    return os.path.abspath(os.environ.get("SL_ENGINES_DIR") or os.path.join(root, "build", "engines"))


def prepare(recipe, base):
    """The recipe's environment; steps that an earlier run completed are not repeated. Raises Skipped if it cannot be made."""
    below = prepare(recipe.base, base) if recipe.base else None
    directory = os.path.join(base, recipe.name)
    os.makedirs(base, exist_ok=True)
    with open(directory + ".lock", "a", encoding="utf-8") as lock:
        locked(lock, directory)
        done = steps_done(directory)
        todo = [step for step in recipe.steps if described(step) not in done]
        began = time.monotonic()
        if todo:
            room = shutil.disk_usage(base).free / 2**30
            if not done and room < recipe.free_gib:
                raise Skipped(f"{base} has {room:.1f} GiB free, {recipe.name} takes {recipe.free_gib:g} GiB")
            print(f"{recipe.name}: {len(todo)} of {len(recipe.steps)} steps to install in {directory}", flush=True)
        interpreter = os.path.join(directory, "bin", "python")
        if not os.path.exists(os.path.join(directory, STAMP)):
            if os.path.isdir(directory) and os.listdir(directory):
                raise Skipped(f"{directory} exists, but no run made it: name another directory (SL_ENGINES_DIR)")
            os.makedirs(directory, exist_ok=True)
            stamp(directory, done)  # first: a directory with this stamp may be filled and removed
        if not os.path.exists(interpreter):
            venv_make(recipe, directory)
        if below:
            packages_share(below.interpreter, interpreter)
        for number, step in enumerate(recipe.steps, 1):
            if step in todo:
                step_run(directory, interpreter, step, ("-c", CONSTRAINTS) if recipe.pinned else (), f"{recipe.name} {number}/{len(recipe.steps)} {step.title}")
                done.append(described(step))
                stamp(directory, done)
    return Environment(directory, interpreter, time.monotonic() - began if todo else 0.0, tree_bytes(directory))


def locked(lock, directory):
    end_s = time.monotonic() + STEP_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise Skipped(f"another run makes {directory} since {STEP_SECONDS} s") from None
            time.sleep(1)


def described(step):
    return json.dumps(dataclasses.asdict(step), sort_keys=True)


def steps_done(directory):
    try:
        with open(os.path.join(directory, STAMP), encoding="utf-8") as stamped:
            return json.load(stamped)
    except FileNotFoundError:
        return []


def stamp(directory, done):
    path = os.path.join(directory, STAMP)
    with open(path + ".new", "w", encoding="utf-8") as stamped:
        json.dump(done, stamped, indent=1)
    os.replace(path + ".new", path)


def venv_make(recipe, directory):
    python = python_find(recipe.pythons)
    made = subprocess.run([python, "-m", "venv", directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        shutil.rmtree(directory, ignore_errors=True)
        last = (made.stdout.strip().splitlines() or ["no output"])[-1]
        raise Skipped(f"'{python} -m venv' failed: {last} (Debian: apt-get install python3-venv)")


def packages_share(below, above):
    """Makes the packages of the venv below visible to a venv, after its own, with a file of Python's `site`."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    seen, own = (subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, text=True, check=True).stdout.strip() for python in (below, above))
    with open(os.path.join(own, "below.pth"), "w", encoding="utf-8") as file:
        file.write(seen + "\n")


def python_find(versions):
    """Finds an interpreter of these versions that runs; the first one wins."""
    candidates = [sys.executable] + [path for version in versions if (path := shutil.which("python" + version))]
    for path in candidates:
        asked = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if asked.returncode == 0 and asked.stdout.strip() in versions:
            return path
    raise Skipped(f"no Python {' or '.join(versions)} on this machine")


def step_run(directory, interpreter, step, constraints, title):
    """Runs pip and prints a line with its time and the disk it takes. Raises Skipped with its last error."""
    arguments = list(step.arguments)
    if step.requirements_of:
        listed = subprocess.run([interpreter, "-c", REQUIREMENTS_OF, step.requirements_of, *step.without],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if listed.returncode != 0:
            raise Skipped(f"requirements of {step.requirements_of}: {(listed.stderr.strip().splitlines() or ['?'])[-1]}")
        arguments += listed.stdout.splitlines()
    log = directory + "-install.log"
    bytes_before, began = tree_bytes(directory), time.monotonic()
    progress = Progress(title, lambda: tree_bytes(directory) - bytes_before)
    with open(log, "ab") as sink:
        at = sink.tell()
        command = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
                   *constraints, *arguments]
        sink.write((" ".join(command) + "\n").encode())
        sink.flush()
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
        try:
            while pip.poll() is None:
                if time.monotonic() - began > STEP_SECONDS:
                    raise Skipped(f"{title}: pip did not end within {STEP_SECONDS} s ({log})")
                progress.show()
                time.sleep(0.25)
        finally:
            if pip.poll() is None:
                pip.kill()
            pip.wait()
            progress.end()
    if pip.returncode != 0:
        raise Skipped(f"{title}: {pip_error(log, at)} ({log})")


def pip_error(log, at):
    with open(log, "rb") as written:
        written.seek(at)
        lines = written.read().decode(errors="replace").strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR") and "dependency resolver" not in line]
    return (errors or lines or ["pip printed nothing"])[-1]


class Progress:
    """Prints one line that is rewritten on a terminal; elsewhere a line now and then."""

    def __init__(self, title, bytes_now):
        self.title, self.bytes_now = title, bytes_now
        self.began = self.said = time.monotonic()
        self.terminal = sys.stdout.isatty()
        if not self.terminal:
            print(f"{title} ...", flush=True)

    def line(self):
        return f"{self.title}: {time.monotonic() - self.began:.0f} s, {max(0, self.bytes_now()) / 2**20:.0f} MiB"

    def show(self):
        now = time.monotonic()
        if now - self.said > (TERMINAL_SECONDS if self.terminal else HEARTBEAT_SECONDS):
            self.said = now
            print(f"\r\x1b[K{self.line()}" if self.terminal else self.line(), end="" if self.terminal else "\n", flush=True)

    def end(self):
        print(("\r\x1b[K" if self.terminal else "") + self.line() + ", done", flush=True)


def tree_bytes(directory):
    total = 0
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # pip is changing these files
    return total
