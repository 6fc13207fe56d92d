"""Shared by mooncake_master and mooncake_client: log, programs, secrets, files, start and end."""

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from typing import Any, Awaitable, Callable, Dict, List, Optional, Sequence

from mooncake.daemons.flags import Failure, Flag, Flags, WrongUse

LEVELS = ("info", "warn", "error", "error")  # by minloglevel
_log_from = 0
_log_actor = ""


def log(level: str, text: str) -> None:
    """Writes one line of JSON to standard error."""
    if LEVELS.index(level) >= _log_from:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        print(json.dumps({"ts": stamp, "level": level, "actor": _log_actor, "msg": text}, ensure_ascii=False), file=sys.stderr, flush=True)


# ---- programs of the node

class Programs:
    """Finds sluicectl, the actors and sluice-node."""

    def __init__(self) -> None:
        package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        own = os.path.dirname(os.path.realpath(sys.argv[0]))
        places = [os.environ.get("SLUICE_BIN", ""), package + "/bin", own, os.path.realpath(package + "/../../bin"), "/usr/lib/sluice/bin", "/usr/bin"]
        self.bin = next((place for place in places if place and os.access(place + "/sluicectl", os.X_OK)), "")
        if not self.bin:
            raise Failure(f"sluicectl and the actors of a node are neither in '{own}' nor in the places beside it: set SLUICE_BIN")
        self.ctl = self.bin + "/sluicectl"
        beside = ("", "/../deploy", "/../../../deploy", "/../lib/sluice")
        self.node = next((self.bin + place + "/sluice-node" for place in beside if os.access(self.bin + place + "/sluice-node", os.X_OK)), "")
        if not self.node:
            raise Failure(f"sluice-node, which runs a node, is neither in '{self.bin}' nor in the places beside it")

    def environment(self) -> Dict[str, str]:
        """Environment of the node's processes: with the path of the programs, without the daemons' secrets."""
        kept = {name: value for name, value in os.environ.items() if name not in ("MOONCAKE_CLUSTER_SECRET", "MOONCAKE_ADMIN_TOKEN")}
        return {"SLUICE_BIN": self.bin, **kept}

    def version(self) -> str:
        said = subprocess.run([self.ctl, "--version"], stdout=subprocess.PIPE, text=True, timeout=20, check=True).stdout
        return said.strip().rpartition(" ")[2]

    async def run(self, *words: str) -> bytes:
        """Runs sluicectl and returns its output. Raises Failure with its error text if it does not exit with 0."""
        process = await asyncio.create_subprocess_exec(self.ctl, *words, env=self.environment(), stdin=asyncio.subprocess.DEVNULL,
                                                       stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        try:
            out, said = await asyncio.wait_for(process.communicate(), 20)
        except asyncio.TimeoutError as error:
            process.kill()
            await process.wait()
            raise Failure(f"sluicectl {words[0]} has not answered within 20 s") from error
        if process.returncode != 0:
            text = said.decode("utf-8", "replace").strip()
            raise Failure(text.removeprefix(f"sluicectl {words[0]}: ") or f"sluicectl {words[0]} ended with code {process.returncode}")
        return out

    async def status(self, instance: str) -> Dict[str, Any]:
        """Returns the metrics pages of all actors: health, reason, counters and histograms."""
        return json.loads(await self.run("status", "--pages", "--instance", instance))


def why_not_ready(status: Dict[str, Any], disks: bool) -> "tuple[bool, str]":
    """Returns whether a node serves (its registrar, and a disk if it has any), and what is missing, even if it serves."""
    rows = {row["name"]: row for row in status["actors"]}
    wanted = [["registrar"], sorted(name for name in rows if name.startswith("tierer.")) or ["tierer.0"]]
    note = ""
    for names in wanted[:2 if disks else 1]:
        serves = False
        for name in names:
            row = rows.get(name)
            if row is None:
                note = note or f"{name} has not started"
            elif not row["alive"]:
                note = note or f"{name} is down" + (f": {row['reason']}" if row["health"] == "stopped" and row["reason"] else "")
            elif row["health"] not in ("ready", "degraded"):
                note = note or f"{name} is not ready: {row['reason']}"
            else:
                serves = True
                note = note or (f"{name}: {row['reason']}" if row["health"] == "degraded" else "")
        if not serves:
            return False, note
    return True, note


# ---- secrets

SECRET_BYTES_MIN = 16


def secret(variable: str) -> Optional[str]:
    """Returns the variable, or the first line of the file that VARIABLE_FILE names, which only its owner may read. Raises Failure."""
    source, text = variable, os.environ.get(variable, "")
    path = os.environ.get(variable + "_FILE", "")
    if not text and not path:
        return None
    if not text:
        source, text = path, _private_line(variable + "_FILE", path)
    if len(text.encode()) < SECRET_BYTES_MIN:
        raise Failure(f"{source}: a secret has at least {SECRET_BYTES_MIN} characters")
    return text


def _private_line(source: str, path: str) -> str:
    """Returns the first line of a file that only its owner, this user or root, can read or replace."""
    try:
        check_place(os.path.dirname(os.path.realpath(path)))
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Failure(f"'{path}' is not a regular file")
            # The group of root's files may read a secret, as for a service whose settings belong to root.
            allowed = 0o027 if about.st_uid == 0 != os.geteuid() else 0o077
            if about.st_uid not in (os.geteuid(), 0) or about.st_mode & allowed:
                raise Failure(f"'{path}' may be read or written by others: chown it to this user, and chmod 600")
            return file.read(1024).decode().split("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError, Failure) as error:
        raise Failure(f"{source}: {error}") from error


def check_place(directory: str) -> None:
    """Raises Failure if another user could rename files in the directory, or a directory above it."""
    while True:
        about = os.stat(directory)
        writers = 0o022 & ~(0o020 if about.st_gid == about.st_uid else 0)
        if about.st_uid not in (os.geteuid(), 0) or (about.st_mode & writers and not about.st_mode & stat.S_ISVTX):
            raise Failure(f"'{directory}' belongs to another user, or others may write there")
        if directory == "/":
            return
        directory = os.path.dirname(directory)


def make_directory(path: str) -> None:
    """Makes a directory of this user, closed to others. Raises Failure, or OSError if it cannot be made."""
    os.makedirs(path, 0o700, exist_ok=True)
    about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise Failure(f"'{path}' must be a directory of this user, with mode 0700")


FILE_BYTES_MAX = 32768


def read_file(path: str) -> str:
    """Reads a small file that a daemon wrote; refuses one of another user. Raises Failure, which names it, and FileNotFoundError."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_uid not in (os.geteuid(), 0):
                raise Failure(f"'{path}' is not a regular file of this user")
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Failure(f"'{path}': {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise Failure(f"'{path}' has more than {FILE_BYTES_MAX} bytes")
    return data.decode("utf-8", "replace")


def write_file(path: str, text: str, mode: int = 0o600) -> None:
    """Writes a new file, syncs and renames it, so that readers, also after a power cut, see the old file or the new one."""
    new = f"{path}.{os.urandom(4).hex()}"  # a unique name
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise OSError(error.errno, error.strerror, path) from error
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_leftovers(directory: str, names: str) -> None:
    """Removes temporary files that a killed write_file left for such names (a regular expression)."""
    for name in os.listdir(directory):
        if re.fullmatch(rf"(?:{names})\.[0-9a-f]{{8}}", name):
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{name}")


def keep_file(path: str, text: str, mode: int = 0o600) -> None:
    """Writes the file again if a cleaner removed it."""
    if not os.path.lexists(path):
        write_file(path, text, mode)
        log("warn", f"'{path}' was removed; written again")


class PeriodicCheck:
    """Runs a periodic check and logs each new failure once."""

    def __init__(self) -> None:
        self.trouble = ""

    def look(self, keep: Callable[[], None], what: str) -> None:
        why = ""
        try:
            keep()
        except (OSError, Failure) as error:
            why = str(error)
        if why and why != self.trouble:
            log("warn", f"{what}: {why}")
        self.trouble = why


# ---- start and end

def run(name: str, table: Sequence[Flag], about: str, body: Callable[[Flags, asyncio.Event], Awaitable[None]],
        words: Optional[List[str]] = None) -> int:
    """Runs a daemon and returns its exit code. body returns or raises Failure; the event is set on SIGTERM and SIGINT."""
    global _log_from, _log_actor
    flags = Flags(table)
    try:
        asked = flags.parse(sys.argv[1:] if words is None else words)
    except WrongUse as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    if asked == "help":
        print(f"usage: {name} [FLAGS]\n\n{about}\n\n{flags.help()}", end="")
        return 0
    if asked == "version":
        try:
            print(f"{name} of sluice {Programs().version()}")
        except Failure as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        return 0
    _log_from, _log_actor = (0, 1, 2, 2)[flags["minloglevel"]], name
    for flag, text in flags.ignored():
        shown = f"={text[:100]}" if flag.kind != "text" or flag.choices else ""  # other texts may contain passwords
        log("warn", f"--{flag.name}{shown} has no effect: {flag.help}")
    code = asyncio.run(_run(name, flags, body))
    log("info", "ended with an error" if code else "stopped")
    return code


async def _run(name: str, flags: Flags, body: Callable[[Flags, asyncio.Event], Awaitable[None]]) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.set_exception_handler(lambda _, what: log("error", f"{what.get('message')}: {what.get('exception')!r}"))
    try:
        await body(flags, ended)
    except (Failure, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0
