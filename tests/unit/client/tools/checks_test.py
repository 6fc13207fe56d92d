"""The findings of doctor and of a start: limits under which a node could not run, with the sum that it needs, and systemd's settings."""

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "client", "tools", "ctl"), os.path.join(ROOT, "client", "tools", "command"), os.path.join(ROOT, "tests", "support")]
import checks  # noqa: E402
import suite  # noqa: E402

BIN = os.environ.get("SLUICE_BIN", os.path.join(ROOT, "build", "release", "bin"))
MIB, GIB = 1 << 20, 1 << 30
OK, WARN, FAIL = "ok", "warn", "fail"
UNLIMITED = {"memory": {"most": -1, "left": -1, "file": "/x/memory.max"}, "cores": {"most": -1, "left": -1, "file": ""}, "processes": {"most": -1, "left": -1, "file": ""},
             "oom_kills": 0, "threads": -1, "file_bytes": -1, "locked_bytes": -1, "data_bytes": -1, "address_bytes": -1, "descriptors": -1}
PIDFD_OPEN, IO_URING_SETUP = 434, 425


def worst(facts):
    """The level of all limits, and the first line that has it, unless all is fine."""
    lines = list(checks.limits(facts))
    level = max((row[1] for row in lines), key=[OK, WARN, FAIL].index)
    return level, next(f"{check}: {text}" for check, at, text, _ in lines if at == level) if level != OK else ""


def refuse(call):
    """As a seccomp profile of a container does, in this process."""
    rules = b"".join(struct.pack("HBBI", *rule) for rule in ((0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
    buffer = ctypes.create_string_buffer(rules)
    program = struct.pack("HxxxxxxQ", len(rules) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program)):
        raise OSError(ctypes.get_errno(), "no seccomp")


class Limits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A sluicectl whose checks.py returns its facts."""
        cls.place = tempfile.mkdtemp(prefix="checks-")
        cls.addClassCleanup(shutil.rmtree, cls.place)
        os.makedirs(cls.place + "/share/sluice")
        os.mkdir(cls.place + "/bin")
        shutil.copy(BIN + "/sluicectl", cls.place + "/bin")
        with open(cls.place + "/share/sluice/checks.py", "w", encoding="utf-8") as script:
            script.write("import sys\nprint(sys.stdin.read())\nsys.exit(1)\n")

    def facts(self, *settings, call=None):
        words = [self.place + "/bin/sluicectl", "config", "--check", "--runtime-dir", self.place + "/run", "--shm-dir", self.place + "/shm"]
        done = subprocess.run(words + [word for setting in settings for word in ("--" + setting[0], setting[1])], stdout=subprocess.PIPE, check=False,
                              preexec_fn=call and (lambda: refuse(call)))
        return {**checks.decoded(json.loads(done.stdout)), "limits": {**UNLIMITED}, "running": False}

    def test_a_node_that_would_not_live_is_named_with_its_sum(self):
        memory, two_disks = ("memory", "256MiB"), (("disk", "1GiB"), ("disk_path", "/a,/b"))
        for settings, limit, value, want, says in (
                ((memory,), "memory.most", 640 * MIB, OK, ""),
                ((memory,), "memory.most", 640 * MIB - 1, FAIL, "memory_limit: memory 256 MiB, index 64 MiB and 320 MiB for actors need 640 MiB; "),
                ((memory, ("ranks", "2")), "memory.most", 640 * MIB, FAIL, "384 MiB for actors need 704 MiB"),
                ((memory, ("index_memory", "128MiB")), "memory.most", 640 * MIB, FAIL, "index 128 MiB"),
                ((("memory", "1GiB"), ("disk", "1TiB")), "memory.most", 2 * GIB, FAIL, "index 1152 MiB"),
                # five actors, 1020 MiB more each
                ((memory, ("trace_events", "16777216")), "memory.most", 5740 * MIB - 1, FAIL, "5420 MiB for actors need 5740 MiB"),
                ((memory, ("trace_events", "16777216")), "address_bytes", 5 * GIB, FAIL, "addresses: memory, index and actors need 5740 MiB"),
                ((memory, ("trace_events", "64")), "memory.most", 640 * MIB, OK, ""),
                ((memory, *two_disks, ("disk_staging", "4GiB")), "memory.most", 8 * GIB, FAIL, "8384 MiB for actors"),
                ((memory, ("ranks", "2"), ("swap_staging", "4GiB")), "memory.most", 8 * GIB, FAIL, "8512 MiB for actors"),
                ((memory, ("ghosts_max", "16777216")), "memory.most", GIB, FAIL, "1085 MiB for actors"),
                ((memory, ("reservations_max", "16777216")), "memory.most", 4 * GIB, FAIL, "4400 MiB for actors"),
                ((("clients_max", "4"),), "descriptors", -1, FAIL, "clients_max: 4 processes may attach, 4 of them are actors"),
                ((("clients_max", "5"),), "descriptors", -1, OK, ""),
                ((("clients_max", "9"), ("ranks", "4"), *two_disks), "descriptors", -1, FAIL, "9 of them are actors"),
                ((("ranks", "1"),), "processes.most", 64, OK, ""),
                ((("ranks", "1"),), "processes.left", 63, FAIL, "processes: the node needs 64 threads"),
                ((("ranks", "2"),), "processes.most", 64, FAIL, "the node needs 72 threads"),
                (two_disks, "processes.most", 79, FAIL, "needs 80 threads"),
                ((("ranks", "1"),), "descriptors", 79, FAIL, "descriptors: RLIMIT_NOFILE allows a process 79 descriptors; the node needs 80"),
                ((("ranks", "1"),), "descriptors", 80, WARN, "up to 2624"),
                ((("ranks", "2"),), "descriptors", 87, FAIL, "needs 88"),
                ((("disk", "400GiB"),), "descriptors", 4096, WARN, "up to 8533 with"),
                ((), "cores.most", 1000, OK, ""),
                ((), "cores.most", 250, WARN, "core_limit:  allows 0.25 cores"),
                ((memory,), "file_bytes", 260 * MIB, OK, ""),
                ((memory,), "file_bytes", 256 * MIB, FAIL, "file_size: the file for memory has 260 MiB; RLIMIT_FSIZE allows 256 MiB"),
                ((("memory", "1MiB"),), "file_bytes", 0, FAIL, "the file for the index has 68 MiB"),
                ((("memory", "8MiB"), ("index_memory", "8MiB")), "file_bytes", 20 * MIB, FAIL, "the file for clients' counts has 40 MiB"),
                ((("memory", "1MiB"), ("trace_events", "16777216")), "file_bytes", GIB, FAIL, "the file for trace_events has 1025 MiB"),
                ((("memory", "1MiB"), ("disk", "2GiB"), ("disk_segment", "512MiB")), "file_bytes", 500 * MIB, FAIL, "the file for disk_segment has 512 MiB"),
                ((("memory", "1MiB"), ("record", self.place + "/r")), "file_bytes", 200 * MIB, FAIL, "record_max has"),
                ((("memory", "1MiB"), ("log_bytes_max", "1GiB")), "file_bytes", 200 * MIB, FAIL, "log_bytes_max has"),
                ((("memory", "1GiB"),), "locked_bytes", 0, OK, ""),
                ((("memory", "1GiB"), ("fabric", "verbs")), "locked_bytes", GIB - 1, FAIL, "memlock: the fabric locks 1024 MiB; RLIMIT_MEMLOCK allows 1024 MiB"),
                ((("memory", "1GiB"),), "address_bytes", GIB, FAIL, "RLIMIT_AS allows 1024 MiB"),
                ((("ranks", "8"),), "data_bytes", 191 * MIB, FAIL, "data: an actor needs 192 MiB; RLIMIT_DATA allows 191 MiB"),
                ((("ranks", "8"),), "data_bytes", 192 * MIB, OK, "")):
            with self.subTest(settings=settings, limit=limit, value=value):
                facts, (name, _, part) = self.facts(*settings), limit.partition(".")
                facts["limits"][name] = {**UNLIMITED[name], part: value} if part else value
                level, said = worst(facts)
                self.assertEqual(level, want, said)
                self.assertIn(says, said)

    def test_kills_for_want_of_memory_are_told(self):
        facts = self.facts()
        facts["limits"].update(memory={"most": 64 * GIB, "left": 64 * GIB, "file": "/x/memory.max"}, oom_kills=13)
        level, said = worst(facts)
        self.assertEqual(level, WARN)
        self.assertIn("/x/memory.max allows 65536 MiB, and the kernel has killed 13 processes there", said)

    def test_no_node_starts_unchecked(self):
        done = subprocess.run([BIN + "/sluicectl", "config", "--check", "--runtime-dir", self.place + "/run", "--shm-dir", self.place + "/shm"], check=False,
                              env={"PATH": self.place}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "sluicectl: cannot run python3: No such file or directory\n"))

    def test_limits_of_another_process_are_its_own(self):
        with subprocess.Popen(["sleep", "600"]) as child:
            self.addCleanup(child.kill)
            small = {"file_bytes": resource.RLIMIT_FSIZE, "locked_bytes": resource.RLIMIT_MEMLOCK, "threads": resource.RLIMIT_NPROC}
            for which in small.values():
                resource.prlimit(child.pid, which, (4096, 4096))
            os.makedirs(f"{self.place}/proc/{child.pid}")
            for able, lifted in (("0000000000000000", 4096), ("0000000001004000", -1)):  # SYS_RESOURCE, IPC_LOCK
                with open(f"{self.place}/proc/{child.pid}/status", "w", encoding="ascii") as status:
                    status.write(f"Name:\tx\nCapEff:\t{able}\n")
                found = checks.shell_limits(child.pid, self.place)
                self.assertEqual([found[name] for name in small], [4096, lifted, lifted])
            with open(f"{self.place}/proc/{child.pid}/status", "w", encoding="ascii") as status:
                status.write("Name:\tx\n")
            self.assertEqual(checks.shell_limits(child.pid, self.place)["locked_bytes"], 4096)  # no capability is known
            child.kill()
        self.assertIn("RLIMIT_NPROC has 63 left of 63", worst({**self.facts(), "limits": {**UNLIMITED, "threads": 63}})[1])
        self.assertEqual(set(checks.shell_limits(child.pid).values()), {-1})

    @unittest.skipUnless(platform.machine() == "x86_64", "skipped: the rules know only the calls of x86-64")
    def test_a_profile_that_refuses_what_a_node_needs_is_seen(self):
        for call, settings, want in ((PIDFD_OPEN, (), "pidfd: Operation not permitted"), (IO_URING_SETUP, (), ""),
                                     (IO_URING_SETUP, (("disk", "1GiB"),), "io_uring: Operation not permitted"),
                                     (IO_URING_SETUP, (("fabric", "tcp"),), "io_uring: Operation not permitted")):
            with self.subTest(call=call, settings=settings):
                self.assertEqual(worst(self.facts(*settings)), (OK, ""))
                self.assertEqual(worst(self.facts(*settings, call=call)), (FAIL if want else OK, want))  # io_uring is for who wants it


class Logout(unittest.TestCase):
    def test_a_logout_removes_memory_where_systemd_is_told_nothing_else(self):
        seats, conf, more = "/run/systemd/seats/", "/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d/"
        for files, uid, want in (({seats: ""}, 1000, True), ({"/etc/x": "x"}, 1000, False),  # no logind
                                 ({seats: ""}, 0, False), ({seats: ""}, 999, False),
                                 ({seats: "", "/var/lib/systemd/linger/ada": "x"}, 1000, False), ({seats: "", "/var/lib/systemd/linger/bob": "x"}, 1000, True),
                                 ({seats: "", conf: "[Login]\n#RemoveIPC=no\n"}, 1000, True), ({seats: "", conf: "[Login]\nRemoveIPC=no\n"}, 1000, False),
                                 ({seats: "", more + "a.conf": "[Login]\n RemoveIPC = false\n"}, 1000, False),
                                 ({seats: "", more + "a": "[Login]\nRemoveIPC=no\n"}, 1000, True),
                                 ({seats: "", conf: "RemoveIPC=no\n", "/usr/lib/systemd/logind.conf.d/b.conf": "RemoveIPC=yes\n"}, 1000, True),
                                 ({seats: "", more + "1.conf": "RemoveIPC=yes\n", more + "2.conf": "RemoveIPC=off\n"}, 1000, False),
                                 ({seats: "", conf: "RemoveIPC=No\n"}, 1000, False),
                                 ({seats: "", "/usr/lib/systemd/logind.conf": "RemoveIPC=no\n", conf: "RemoveIPC=Yes\n"}, 1000, True),
                                 ({seats: "", conf: "RemoveIPC=no\n", more[:-1]: "no directory"}, 1000, False)):
            with self.subTest(files=files, uid=uid), tempfile.TemporaryDirectory() as root:
                for name, text in files.items():
                    os.makedirs(os.path.dirname(root + name), exist_ok=True)
                    if text:
                        with open(root + name, "w", encoding="utf-8") as file:
                            file.write(text)
                self.assertEqual(checks.logout_removes(root, "ada", uid), want)


class Used(unittest.TestCase):
    def test_a_file_that_is_removed_meanwhile_leaves_the_others_counted(self):
        with tempfile.TemporaryDirectory() as place:
            for name in ("a", "b"):
                with open(f"{place}/{name}", "w", encoding="ascii") as file:
                    file.write("x" * 8192)
            with os.scandir(place) as entries:
                seen = list(entries)
            os.unlink(f"{place}/a")
            with unittest.mock.patch("os.scandir", lambda _: contextlib.nullcontext(seen)):
                self.assertEqual(checks.used(place), os.stat(place + "/b").st_blocks * 512)
        self.assertEqual(checks.used(place), 0)


class Guard(unittest.TestCase):
    def test_a_check_that_fails_is_a_line_and_the_next_is_made(self):
        def broken(_):
            yield checks.line("broken", OK, "seen")
            os.stat("/none/x")

        for error in (OSError(24, "Too many open files", "/x"), ValueError("no such letter"), KeyError("fact")):
            with self.subTest(error=error), unittest.mock.patch("os.stat", side_effect=error):
                rows = [row for check in (broken, checks.refused) for row in checks.guarded(check, {"refused": "next"})]
                self.assertEqual([row[:2] for row in rows], [("broken", OK), ("broken", FAIL), ("", FAIL)])
                self.assertIn(f"the check of broken failed: {type(error).__name__}: {error}", rows[1][2])
                self.assertNotEqual(rows[1][3], "")


class Interrupt(unittest.TestCase):
    def test_an_interrupt_ends_a_script_without_a_traceback_unless_it_is_ignored(self):
        script = "import plain, signal, sys\nplain.interruptible()\nprint('on', flush=True)\nplain.run(lambda: len(sys.stdin.read()))"
        for before, code in ((signal.SIG_DFL, -signal.SIGINT), (signal.SIG_IGN, 0)):
            with self.subTest(before=before), subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                               cwd=os.path.join(ROOT, "client", "tools", "command"),
                                                               preexec_fn=lambda: signal.signal(signal.SIGINT, before)) as child:
                self.assertEqual(child.stdout.readline(), b"on\n")
                child.send_signal(signal.SIGINT)
                self.assertEqual(child.communicate(timeout=60), (b"", b""))
                self.assertEqual(child.returncode, code)


class Addresses(unittest.TestCase):
    def test_a_second_is_waited_for_all_places_that_are_in_use(self):
        now, settings = [0.0], {"fabric": "tcp", "fabric_address": ",".join(f"127.0.0.1:{port}" for port in range(1, 17)), "cluster_listen": "*:17"}

        def sleep(seconds):
            now[0] += seconds

        with unittest.mock.patch.multiple("checks.time", monotonic=lambda: now[0], sleep=sleep), \
                unittest.mock.patch("checks.port_try", return_value=errno.EADDRINUSE):
            lines = list(checks.ports({"settings": settings, "running": False}))
        self.assertEqual([level for _, level, _, _ in lines], [FAIL] * 17)
        self.assertAlmostEqual(now[0], 1, delta=0.03)

    def test_hosts_and_ports_are_cut_as_actors_cut_them(self):
        for text, needs_port, want in (("1.2.3.4", False, ("1.2.3.4", None)), ("1.2.3.4:5", False, ("1.2.3.4", "5")), ("::1", False, ("::1", None)),
                                       ("::1:5", True, ("::1", "5")), ("[::1]:5", False, ("::1", "5")), ("[::1]", False, ("::1", None)),
                                       ("[::1", False, ("", None)), ("[::1]5", False, ("", None)), ("", False, ("", None)), ("a", True, ("a", None)),
                                       ("lo:5", True, ("lo", "5")), ("1.2.3.4:", False, ("1.2.3.4", ""))):
            self.assertEqual(checks.cut(text, needs_port), want, text)
        for port in ("", "65536", "+1", "1 ", "000001", "\u0661"):
            self.assertIsNone(checks.sockaddr("127.0.0.1", port), port)
        self.assertIsNone(checks.sockaddr("name", "1"))
        self.assertEqual(checks.interface_ip("lo"), "127.0.0.1")
        self.assertEqual([checks.interface_ip(name) for name in ("", "none", "a" * 16)], ["", "", ""])


if __name__ == "__main__":
    suite.run()
