"""The node of a master: settings, start, adoption, watch and end.

sluice-node runs the node in a separate session, so the node and its memory survive if the master is killed. The next master of the name
adopts the node if its settings would be the same as in RUNTIME_DIR/mooncake-master.conf."""

import asyncio
import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
from typing import Dict, List, Optional, Tuple

from mooncake.daemons.daemon import Programs, keep_file, remove_leftovers, write_file
from mooncake.daemons.flags import Failure, Flags
from mooncake.mooncake_config import parse_size

STOP_S = 45  # longer than sluice-node lets its actors drain
MIB = 1 << 20
ROOM_MIN_MIB = 96  # tables, pages of processes, two steps of memory population
DISK_PERCENT = 90
DISK_BYTES_MAX = 2048 << 30
DISK_DIRECTORY = "/data/file_storage"
WORDS_BYTES = 2000  # of a node's last output


def start_time(pid: int) -> Optional[str]:
    """Start of a process, in ticks since the boot; None: it has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as line:
            fields = line.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[19] if fields[0] not in "ZX" else None


def free_bytes(path: str) -> int:
    """Free bytes of the file system of a path, or of its first existing parent."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    room = os.statvfs(path)
    return room.f_bavail * room.f_frsize


class Taken(Failure):
    """Another master owns the node."""


class Node:
    def __init__(self, flags: Flags, programs: Programs, instance: str):
        self.flags, self.programs, self.instance = flags, programs, instance
        self.adopted = False  # it was already running
        self.room_bytes: Optional[int] = None  # free shared memory before the node's start; None: its memory existed already
        self.supervisor: Optional[int] = None
        self.child: Optional["subprocess.Popen[bytes]"] = None
        self.died = asyncio.Event()
        self._lock: Optional[int] = None
        self._said_bytes = 0
        self._watch: Optional[int] = None
        self.settings: Dict[str, str] = {}
        self.text = ""  # of the settings file

    async def open(self) -> None:
        """Makes the node's directories and takes its lock. Raises Failure, also for directories of another user."""
        log_dir = self.flags["log_dir"]
        words = ["--instance", self.instance, *(["--log-dir", log_dir] if log_dir else [])]
        await self._read_settings("--make-private", *words)
        self.config_path = self.runtime_dir + "/mooncake-master.conf"
        self.lock_path = self.runtime_dir + "/mooncake-master.lock"
        self._take_lock()
        remove_leftovers(self.runtime_dir, r"mooncake-master\.conf")
        self._place = os.stat(self.runtime_dir)

    def _take_lock(self) -> None:
        lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise Taken(f"another mooncake_master runs node '{self.instance}'") from error
        if self._lock is not None:
            os.close(self._lock)
        self._lock = lock

    def keep_names(self) -> None:
        """Restores files that a cleaner removed: without them the next master could not adopt the node, or a second one would take it.
        Raises Taken if another master has the lock."""
        if not os.path.samestat(os.stat(self.runtime_dir), self._place):
            return  # the directory was replaced: the node ends
        keep_file(self.config_path, self.text)
        if not os.path.lexists(self.lock_path) or not os.path.samestat(os.stat(self.lock_path), os.fstat(self._lock)):
            self._take_lock()

    async def _read_settings(self, *words: str) -> None:
        said = json.loads(await self.programs.run("config", "--json", *words))
        self.settings = {name: setting["value"] for name, setting in said.items()}
        self.runtime_dir, self.shm_dir, self.log_dir = (self.settings[name] for name in ("runtime_dir", "shm_dir", "log_dir"))

    @property
    def disk_bytes(self) -> int:
        return int(self.settings["disk"])

    @property
    def memory_bytes(self) -> int:
        return int(self.settings["memory"])

    # ---- planned settings
    def _has_memory(self) -> bool:
        return os.path.exists(self.shm_dir + "/arena.0")

    def _text_before(self) -> str:
        try:
            with open(self.config_path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _size_before(self, name: str) -> int:
        """Size that an earlier master chose, if the node's memory still exists; else 0."""
        found = re.search(rf"^{name} = ([0-9]+)$", self._text_before(), re.MULTILINE) if self._has_memory() else None
        return int(found[1]) if found else 0

    def _plan(self, cluster: List[Tuple[str, str]]) -> str:
        """Returns the text of the settings file."""
        flags = self.flags
        rows = self._memory()
        rows.append(("contributions", "true"))
        for name, flag in (("lease_ttl", "default_kv_lease_ttl"), ("soft_pin_max", "max_kv_soft_pin_ttl"),
                           ("put_preempt", "put_start_discard_timeout_sec"), ("put_release", "put_start_release_timeout_sec")):
            rows.append((name, f"{flags[flag]}ms"))
        rows += [("evict_watermark", f"{flags['eviction_high_watermark_ratio']:.6f}"), ("evict_ratio", f"{flags['eviction_ratio']:.6f}")]
        rows += self._disk() + cluster
        if flags["log_dir"]:
            rows.append(("log_dir", flags["log_dir"]))
        if any("\n" in value for _, value in rows):
            raise Failure("a setting of a node must not contain a line feed")
        return "# written by mooncake_master, from its flags\n" + "".join(f"{name} = {value}\n" for name, value in rows)

    def _memory(self) -> List[Tuple[str, str]]:
        """Without --memory the node chooses its limit from the free space."""
        if not self._has_memory():
            self.room_bytes = free_bytes(self.shm_dir)
            if self.room_bytes < ROOM_MIN_MIB * MIB:
                raise Failure(f"'{self.shm_dir}' has {self.room_bytes // MIB} MiB free, but a node needs at least {ROOM_MIN_MIB}: free some "
                              "(df -h /dev/shm), or give the container more (docker run --shm-size)")
        size = self.flags["memory"] or self._size_before("memory")
        return [("memory", str(size))] if size else []

    def _disk(self) -> List[Tuple[str, str]]:
        flags = self.flags
        if not flags["enable_offload"] and not flags["root_fs_dir"]:
            return []
        variables = ("SLUICE_DISK_PATH", "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH")
        source, path = next(((name, os.environ[name]) for name in variables if os.environ.get(name)),
                            ("--root_fs_dir", flags["root_fs_dir"]) if flags["root_fs_dir"] else
                            ("the default (MOONCAKE_OFFLOAD_FILE_STORAGE_PATH is not set)", DISK_DIRECTORY))
        place = re.sub("^[^/,]*:(?=/)", "", path)  # strips KIND: of KIND:/DIR
        if not place.startswith("/"):
            raise Failure(f"{source}: '{path[:128]}' must begin with /")
        if "," not in path:
            try:
                os.mkdir(place, 0o700)
            except FileExistsError:
                pass
            except OSError as error:
                raise Failure(f"disk tier, by {source}: directory '{path[:100]}': {error.strerror}") from error
        size = (0 if flags["quota_bytes"] else self._size_before("disk")) or self._disk_size(place)
        if size == 0:
            raise Failure(f"disk tier, by {source}: no space at '{path[:100]}', or less than 1 MiB requested")
        return [("disk", str(size)), ("disk_path", path)]

    def _disk_size(self, path: str) -> int:
        variable = "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES"
        try:
            limit = parse_size(os.environ.get(variable) or DISK_BYTES_MAX, variable)
        except ValueError as error:
            raise Failure(str(error)[:256]) from error
        place = next((at for at in (f"{path}/sluice-disk-{os.geteuid()}", path) if os.path.isdir(at)), path)
        try:  # space that this node's disk tier already uses counts as free
            here = sum(entry.stat().st_blocks * 512 for entry in os.scandir(place) if entry.is_file(follow_symlinks=False))
        except OSError:
            here = 0  # the node's start reports why
        usable = (free_bytes(path) + here) // 100 * DISK_PERCENT
        size = min(self.flags["quota_bytes"] or usable, limit, self.flags["global_file_segment_size"])
        return size // MIB * MIB

    # ---- starting
    async def start(self, cluster: List[Tuple[str, str]]) -> None:
        """Adopts the running node, or starts it; does not wait until it is ready. Raises Failure."""
        self.text = text = self._plan(cluster)
        before = self._text_before()
        running = self._running()
        if running and (text != before or not self._masters_own()):
            raise Failure(f"node '{self.instance}' is running, and {self._difference(before, text)}; end it: sluice-node stop --instance {self.instance}")
        if text != before:
            if self._has_memory():
                await self._end_leftovers()
            write_file(self.config_path, text)
        try:
            await self._read_settings("--config", self.config_path, "--instance", self.instance)
        except Failure:
            if text != before:
                os.unlink(self.config_path)  # no node can use it
            raise
        self.adopted, self.supervisor = running is not None, running
        if running is None:
            self._spawn()
        asyncio.get_running_loop().add_reader(self._watch, self._watch_end)

    def _running(self) -> Optional[int]:
        """Returns the process id of the supervisor in the pid file if it is alive; _watch is then its pidfd, opened before the check."""
        try:
            with open(self.runtime_dir + "/supervisor.pid", encoding="utf-8") as file:
                found = re.match(r"([1-9][0-9]{0,9}) ([0-9]+)", file.read())
        except FileNotFoundError:
            return None
        if not found:
            return None
        try:
            self._watch = os.pidfd_open(int(found[1]))
        except ProcessLookupError:
            return None
        if start_time(int(found[1])) == found[2]:
            return int(found[1])
        os.close(self._watch)
        self._watch = None
        return None

    def _masters_own(self) -> bool:
        """Whether the running node was started as _spawn does. sluice-node adds --memory if missing, and at a restart the node's name."""
        with open(self.runtime_dir + "/start-arguments", "rb") as file:
            given = os.fsdecode(file.read())
        words = ["--config", os.path.realpath(self.config_path), "--instance", self.instance, ""]
        memory = "" if "\nmemory = " in self.text else "(--memory\0[0-9]+\0)?"
        return re.fullmatch(re.escape("\0".join(words)) + memory + "(--(instance|runtime-dir|shm-dir)[\0=][^\0]*\0)*", given) is not None

    @staticmethod
    def _difference(before: str, asked: str) -> str:
        """Describes the first line that differs, for people."""
        if before in ("", asked):
            return "it was not started by a mooncake_master"
        had, want = before.split("\n"), asked.split("\n")
        at = next((number for number, line in enumerate(had) if want[number:number + 1] != [line]), len(had) - 1)
        return f"it has '{had[at][:80]}', requested is '{want[min(at, len(want) - 1)][:80]}'"

    def _popen(self, *words: str) -> "subprocess.Popen[bytes]":
        """Runs sluice-node with output to supervisor.out, in a session that Ctrl-C does not reach."""
        with open(self.log_dir + "/supervisor.out", "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            return subprocess.Popen([self.programs.node, *words, "--instance", self.instance], env=self.programs.environment(),
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    async def _end_leftovers(self) -> None:
        """Ends processes and removes memory that a killed node with other settings left."""
        process = self._popen("stop")
        code = await asyncio.get_running_loop().run_in_executor(None, process.wait, STOP_S)
        if code not in (0, 3):  # 3: no supervisor was running, as expected
            raise Failure(f"leftovers of an earlier node '{self.instance}' could not be removed: sluice-node stop ended with code {code}")

    def _spawn(self) -> None:
        try:
            self._said_bytes = os.path.getsize(self.log_dir + "/supervisor.out")
        except FileNotFoundError:
            self._said_bytes = 0
        self.child = self._popen("start", "--foreground", "--config", self.config_path)
        self.supervisor = self.child.pid
        self._watch = os.pidfd_open(self.supervisor)

    def _watch_end(self) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None
        self.died.set()

    def last_words(self) -> str:
        """Returns the last output of the supervisor that ended."""
        try:
            with open(self.log_dir + "/supervisor.out", "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._said_bytes, end - WORDS_BYTES))
                return file.read().decode("utf-8", "replace").strip() or "it ended without output"
        except FileNotFoundError:
            return f"its directory {self.log_dir} was removed"

    # ---- ending
    async def stop(self) -> None:
        """Ends the node and its memory. Raises Failure if it had to be killed."""
        if self.supervisor is None or self.died.is_set():
            return
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._send(number)
        try:
            await asyncio.wait_for(self.died.wait(), STOP_S)
        except asyncio.TimeoutError as error:
            self._send(signal.SIGKILL)
            await self.died.wait()
            raise Failure(f"supervisor {self.supervisor} of node '{self.instance}' did not end: killed") from error
        finally:
            if self.child:
                self.child.wait()

    def _send(self, number: signal.Signals) -> None:
        if self._watch is not None:  # else it has ended
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watch, number)

    def close(self) -> None:
        self._watch_end()
        if self._lock is not None:
            os.close(self._lock)
