"""Runs steps one after the other. Each is a process group of its own with a time limit, so that a hang costs one step."""

import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FINE, SKIPPED, SHORT, FAILED, HUNG = "fine", "skipped", "short", "failed", "hung"
SKIP_CODE = 77  # as in all suites of this tree
READ_BYTES = 32 << 20  # the end of a step's output: a step that hangs may print without limit
KEPT_BYTES = 16 << 10  # kept in the results
LEAST_SECONDS = 5.0  # a step does not start with less time left
GRACE_SECONDS = 5.0  # for processes that end by themselves after their step
SHARED = "/dev/shm"
PR_SET_CHILD_SUBREAPER = 36


class Step:
    """One command and its time limit.

    The command is fixed when the step is made. limit_s bounds the whole step. needs: programs, by name or path; the step is skipped if the
    machine lacks one, but fails if one of ours is missing. read(ran, results) gets a StepRun and the results of the steps before; it returns a
    dict with any of reason (why it failed), rows (each with a "kind"), notes. Without it only the exit code counts, and rows are the
    objects of the last line that is JSON."""

    def __init__(self, name, title, command, limit_s, needs=(), environment=None, read=None):
        self.name, self.title, self.command, self.limit_s = name, title, list(command), limit_s
        self.needs, self.environment, self.read = needs, environment or {}, read


class StepRun:
    """The result of a step's process. code: its exit code; negative: the signal; None: it was ended at its limit."""

    def __init__(self, code, out, err, seconds, pid=0):
        self.code, self.out, self.err, self.seconds, self.pid = code, out, err, seconds, pid


def missing(needs):
    """The first program that is not installed, or None."""
    return next((need for need in needs if shutil.which(need) is None), None)


# ---- processes ----


def stat_of(pid):
    """(name, state, parent) of a process, or None when it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, tail = file.read().rpartition(")")
        fields = tail.split()
        return head.partition("(")[2], fields[0], int(fields[1])
    except (OSError, IndexError, ValueError):
        return None


def lives(pid):
    stat = stat_of(pid)
    return stat is not None and stat[1] not in ("Z", "X")


def descendants(root):
    """{pid: (name, state)} of root's descendants that still run."""
    children, seen = {}, {}
    for entry in os.listdir("/proc"):
        stat = stat_of(entry) if entry.isdigit() else None
        if stat:
            children.setdefault(stat[2], []).append((int(entry), stat))
    todo = [root]
    while todo:
        for pid, (name, state, _) in children.get(todo.pop(), []):
            todo.append(pid)
            if state not in ("Z", "X"):
                seen[pid] = (name, state)
    return seen


def reap():
    """Reaps orphans that were reparented to this process; the step's own child is reaped by its Popen."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def where(pid, name, state):
    """Describes what a process that does not end is doing, as far as the system shows it."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="utf-8") as file:
            place = file.read().strip()
    except OSError:
        place = ""
    return f"{name} ({state}{', in ' + place if place not in ('', '0') else ''})"


def end_all(root):
    """Kills root's descendants. Returns the names of those that cannot be killed, for example because a driver hangs."""
    end = time.monotonic() + GRACE_SECONDS
    while True:
        left = descendants(root)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        if not left or time.monotonic() > end:
            return [f"{name} cannot be killed" for name, _ in left.values()]
        time.sleep(0.05)


def still_running(root):
    """Descendants that still run some time after the step has ended."""
    end = time.monotonic() + GRACE_SECONDS
    while True:
        reap()
        left = descendants(root)
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


# ---- a step ----


def tail(file, length_bytes):
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - length_bytes))
    return file.read().decode(errors="replace")


def run(command, environment, limit_s, root):
    """(StepRun, notes): runs the command to its end or its limit. root: this process, to which its orphans are reparented."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start, notes = time.monotonic(), []
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
            notes += ["ran: " + where(pid, *about) for pid, about in sorted(descendants(root).items())]
            os.killpg(process.pid, signal.SIGTERM)  # some clean up after themselves
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        seconds = time.monotonic() - start
        if code is not None:
            notes += [f"left behind: {name}" for name, _ in still_running(root).values()]
        notes += end_all(root)
        process.poll()
        return StepRun(code, tail(out, READ_BYTES), tail(err, KEPT_BYTES), seconds, process.pid), notes


def last_line(ran):
    """The last line of standard error, or of standard output if that is empty."""
    lines = [line.strip() for line in (ran.out + "\n" + ran.err).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def reason_of_skip(ran):
    for line in reversed((ran.out + "\n" + ran.err).splitlines()):
        if "skipped" in line:
            return line.partition("skipped")[2].strip(" :'\"")[:300] or last_line(ran)
    return last_line(ran)


def plain_read(ran, _results):
    """Reads a probe's last output: {"rows": [...], "notes": [...]}, on a line of its own. Empty if there is no such line."""
    line = next((line for line in reversed(ran.out.splitlines()) if line.startswith('{"rows"')), None)
    if line is None:
        return {}
    said = json.loads(line)
    return {"rows": said["rows"], "notes": said.get("notes", [])}


def judge(step, ran, notes, results):
    """The result of a step that was run."""
    result = {"name": step.name, "title": step.title, "status": FINE, "reason": "", "seconds": round(ran.seconds, 2), "rows": [],
              "notes": notes, "command": step.command, "code": ran.code, "out": ran.out[-KEPT_BYTES:], "err": ran.err}
    if ran.code is None:
        result.update(status=HUNG, reason=f"not over after {ran.seconds:.0f} s")
    elif ran.code == SKIP_CODE:
        result.update(status=SKIPPED, reason=reason_of_skip(ran))
    else:
        read = {}
        try:
            read = (step.read or plain_read)(ran, results)
        except (ValueError, LookupError, TypeError, AttributeError) as wrong:
            result.update(status=FAILED, reason=f"its output cannot be read: {wrong}")
        result["rows"] = read.get("rows", [])
        result["notes"] = notes + read.get("notes", [])
        if read.get("skipped"):
            result.update(status=SKIPPED, reason=read["skipped"])
        elif ran.code != 0:
            result.update(status=FAILED, reason=read.get("reason") or f"exit {ran.code}: {last_line(ran)}")
        elif read.get("reason"):
            result.update(status=FAILED, reason=read["reason"])
        elif any(note.startswith("left behind") for note in notes):
            result.update(status=FAILED, reason="it left processes behind")
    return result


def unrun(step, reason):
    return {"name": step.name, "title": step.title, "status": SKIPPED, "reason": reason, "seconds": 0.0, "rows": [], "notes": [],
            "command": step.command, "code": None, "out": "", "err": ""}


def shared_clear(pid):
    """Removes the shm files of nodes that process pid started (tests/node/node_support.py names them). Returns a note for each."""
    notes = []
    for path in sorted(glob.glob(os.path.join(SHARED, f"sluice-test-t{pid}-*"))):
        notes.append(f"left behind: {path}")
        shutil.rmtree(path, ignore_errors=True)
    return notes


class Ended(Exception):
    """The check-up was asked to end."""


class Runner:
    """Runs steps within a total time in seconds. Calls told(result) as each ends. As a context it leaves no process running, also when it
    is asked to end (SIGTERM, SIGINT: Ended)."""

    def __init__(self, seconds, told, environment=None):
        self.end = time.monotonic() + seconds
        self.told = told
        self.environment = environment or {}
        self.results = []
        # Orphans of a step are reparented to us, so that none escapes by a session of its own. Some sandboxes cannot do that.
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            print(f"checkup: no subreaper ({os.strerror(ctypes.get_errno())}): daemons that a step leaves behind are not seen", file=sys.stderr)

    def __enter__(self):
        def end(number, _frame):
            raise Ended(signal.Signals(number).name)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        return self

    def __exit__(self, *_about):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end_all(os.getpid())

    def step(self, step):
        left = self.end - time.monotonic()
        need = missing(step.needs)
        if need:
            result = unrun(step, f"no {os.path.basename(need)} here")
        elif left < LEAST_SECONDS:
            result = unrun(step, "no time was left")
        else:
            with tempfile.TemporaryDirectory(prefix="checkup-") as folder:
                environment = {**os.environ, **self.environment, "TMPDIR": folder, **step.environment}
                try:
                    ran, notes = run(step.command, environment, min(step.limit_s, left), os.getpid())
                    result = judge(step, ran, notes + shared_clear(ran.pid), self.results)
                    if ran.code is None and left < step.limit_s:
                        result.update(status=SKIPPED, reason=f"the time of the whole run was over, after {ran.seconds:.0f} s of it")
                except OSError as wrong:
                    result = dict(unrun(step, f"cannot be started: {wrong}"), status=FAILED)
        self.results.append(result)
        self.told(result)
        return result
