"""The supervisor: starts, restarts actors that die or hang, stops and leaves nothing."""

import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from contributions_support import PROBE, Probe
from node_support import BIN, NODE, PATIENCE, Node, allowed, lives, log_of, main, wait_until


class Supervisor(unittest.TestCase):
    def test_start_and_stop_leave_nothing_behind(self):
        with Node(ranks=2) as node:
            self.assertEqual(set(node.processes()), {"registrar", "keyer", "swapper.0", "swapper.1", "transporter.0", "coordinator"})
            node.stop()
            self.assertEqual(node.leftovers(), [])

    def test_a_started_node_is_known_to_a_supervisor_slower_than_its_actors(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/mv", "w", encoding="utf-8") as slow:
                slow.write('#!/bin/sh\nsleep 2\nexec /bin/mv "$@"\n')
            os.chmod(folder + "/mv", 0o755)
            node = Node()
            node.environment["PATH"] = folder + ":" + node.environment["PATH"]
            with node:
                self.assertIn("registrar", node.processes())

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root can make directories of others")
    def test_nothing_is_believed_below_a_directory_of_another_user(self):
        """Another user's settings are not evaluated, a process that such a file names is not signalled, a link's target stays."""
        for owner in (65534, 12345):
            with self.subTest(owner=owner), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as precious:
                parent, victim = folder + "/parent", subprocess.Popen(["sleep", "60"])
                run, node = parent + "/run", Node()
                os.chmod(folder, 0o755)
                os.makedirs(run + "/pid", mode=0o700)
                os.mkdir(precious + "/pid")
                with open(f"/proc/{victim.pid}/stat", encoding="utf-8") as stat:
                    started = stat.read().rsplit(")", 1)[1].split()[19]
                for path in (run + "/supervisor.pid", run + "/pid/keyer", precious + "/supervisor.pid"):
                    with open(path, "w", encoding="utf-8") as text:
                        text.write(f"{victim.pid} {started}\n")
                for name in ("arguments", "start-arguments"):
                    with open(f"{run}/{name}", "w", encoding="utf-8") as text:
                        text.write(f"$(touch {folder}/evaluated)")
                os.symlink(precious, parent + "/link")
                os.chown(parent, owner, owner)
                try:
                    for place in (run, parent + "/link", parent + "/missing/run"):
                        node.where[3] = place
                        for command in ("start", "status", "logs", "restart", "stop"):
                            done = node.supervisor(command, check=False)
                            self.assertEqual(done.returncode, 1, (command, done.stdout))
                            self.assertIn(f"belongs to uid {owner}", done.stdout)
                            self.assertIn("'parent'", done.stdout)
                    self.assertIsNone(victim.poll())
                    self.assertEqual(sorted(os.listdir(folder)), ["parent"])
                    self.assertEqual(sorted(os.listdir(precious)), ["pid", "supervisor.pid"])
                    self.assertEqual(sorted(os.listdir(parent)), ["link", "run"])
                    self.assertEqual(sorted(os.listdir(run)), ["arguments", "pid", "start-arguments", "supervisor.pid"])
                finally:
                    victim.kill()
                    victim.wait()

    def test_a_directory_that_others_may_read_is_closed_by_the_start(self):
        node = Node(ranks=1)
        os.mkdir(node.directory + "/run")
        os.chmod(node.directory + "/run", 0o755)
        self.assertEqual(node.supervisor("status", check=False).returncode, 3)
        with node:
            self.assertEqual(os.stat(node.directory + "/run").st_mode & 0o777, 0o700)

    def test_second_start_is_refused_by_name(self):
        with Node() as node:
            again = node.supervisor("start", *node.settings, check=False)
            self.assertEqual(again.returncode, 1)
            self.assertIn("runs already", again.stdout)

    def test_status_without_a_node_is_code_3(self):
        node = Node()
        self.assertEqual(node.supervisor("status", check=False).returncode, 3)
        self.assertEqual(node.ctl("put", "a", stdin=b"x", check=False).returncode, 3)

    def test_a_wait_for_disks_ends_where_no_node_runs(self):
        node = Node()
        done = node.ctl("status", "--ready=disks", check=False)  # otherwise it would wait for an hour
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"no node runs under the name", done.stdout)
        node.__exit__()

    def test_wrong_settings_are_named(self):
        for words, text in ((["--ranks", "0"], "ranks"), (["--memory", "lots"], "memory"), (["--flase", "1"], "flase"),
                            (["--directory-url", "redis://u:pw@1.2.3.4"], "no password"),
                            (["--evict-policy", "fifo"], "evict_policy: 'fifo' is none of density lru"),
                            (["--disk-admission", "nonsense"], "disk_admission: 'nonsense' is none of all reuse second"),
                            (["--fabric", "carrier-pigeon"], "fabric: 'carrier-pigeon' is none of off tcp verbs")):
            node = Node()
            done = node.supervisor("start", *words, check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stdout)

    def test_what_would_not_live_is_refused_before_anything_runs(self):
        """Each of these was once 15 s of a crash loop, or a node that was killed repeatedly."""
        alone = ["--fabric", "tcp", "--cluster-plaintext", "true"]
        none = [] if os.path.exists("/proc/driver/nvidia") else [("", ["--device", "cuda"], "is not started: device cuda: ")]
        none += [] if os.path.exists("/sys/class/infiniband") else [("", ["--fabric", "verbs"], "is not started: .*RDMA")]
        for shell, words, text in (
                *none,
                ("", [*alone, "--fabric-address", "127.0.0.1,203.0.113.7"], "is not started: fabric_address: '203.0.113.7' is not an address of this"),
                ("", [*alone, "--cluster-listen", "203.0.113.7:7411"], "is not started: cluster_listen: '203.0.113.7:7411' is not an address of this"),
                ("", [*alone, "--cluster-listen", "nobody:7411"], "is not started: cluster_listen: 'nobody:7411' is not an address of this"),
                ("", ["--cluster-listen", "127.0.0.1:7411", "--cluster-plaintext", "true"], "is not started: .* set fabric"),
                ("ulimit -n 60", [], "is not started: descriptors: RLIMIT_NOFILE allows a process 60 descriptors; the node needs 80"),
                ("", ["--clients-max", "1"], "is not started: clients_max: 1 processes may attach, 4 of them are actors"),
                ("", ["--record", "/nowhere/x.rec"], "is not started: record: open '/nowhere/x.rec': No such file"),
                ("", ["--record", "/dev/shm"], "is not started: record: open '/dev/shm': Is a directory"),
                ("", ["--record", os.path.abspath(__file__)], "is not started: record: '.*' exists and is not a recording of a node"),
                ("", [*alone, "--peers", "b@h:1,b@h:2"], "is not started: .*'b' is listed twice"),
                ("", ["--fabric", "tcp", "--cluster-listen", "127.0.0.1:9"], "cluster_keys is not set: .* has no keys"),
                ("", ["--index-memory", "1MiB", "--index-keys", "1000000"], "is not started: .*too small for 1000000 keys"),
                ("ulimit -f 1000", [], "is not started: .*file_size: the file for memory has 132 MiB; RLIMIT_FSIZE allows 1 MiB"),
                ("ulimit -f 0", [], "is not started: no file may grow"),
                ("ulimit -f 20000", ["--memory", "8MiB", "--index-memory", "8MiB"], "file_size: the file for clients' counts has 40 MiB"),
                ("ulimit -f 200000", ["--trace-events", "16777216"], "file_size: the file for trace_events has 1025 MiB"),
                ("ulimit -d 65536", [], "is not started: data: an actor needs 192 MiB; RLIMIT_DATA allows 64 MiB"),
                ("ulimit -v 400000", [], "is not started: .*addresses: memory, index and actors need")):
            if ("ulimit -v" in shell or "ulimit -d" in shell) and "SLUICE_TEST_SANITIZED" in os.environ:
                continue  # a sanitizer maps terabytes of addresses
            with self.subTest(words=words, shell=shell):
                node = Node()
                line = [NODE, "start", "--memory", "128MiB", *words, *node.where]
                done = subprocess.run(["bash", "-c", shell + '\nexec "$@"', "bash", *line], env=node.environment, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * PATIENCE)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stdout, text)
                self.assertEqual(node.running(), {})
                self.assertFalse(os.path.exists(node.shm))
                node.__exit__()

    def test_flight_recorders_that_have_no_room_are_refused(self):
        """Their pages are allocated at the start: before, every actor ended at its first write, again and again."""
        node = Node()
        place = node.directory + "/small"
        os.mkdir(place)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=132m,mode=0700", "none", place], check=False).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        node.shm = place + "/node"
        node.where[-1] = node.shm
        done = node.supervisor("start", "--memory", "40MiB", "--trace-events", "2000000", check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, "is not started: trace_events: the actors' flight recorders need 610.6 MiB; .* has 132.0 MiB")
        self.assertEqual(node.running(), {})
        self.assertFalse(os.path.exists(node.shm))

    def test_a_settings_file_that_others_could_have_written_is_refused(self):
        node = Node()
        path = node.directory + "/conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write("memory = 16MiB\n")
        for owner, mode, text in ((0, 0o666, "users other than its owner can write it"), (65534, 0o600, "belongs to uid 65534, neither this user nor root")):
            if owner and os.geteuid() != 0:
                continue
            os.chmod(path, mode)
            if owner:
                os.chown(path, owner, owner)
            for done in (node.supervisor("start", "--config", path, check=False), node.ctl("config", "--check", "--config", path, check=False),
                         node.ctl("doctor", "--config", path, check=False)):
                self.assertEqual(done.returncode, 1)
                said = done.stdout if isinstance(done.stdout, str) else (done.stdout + done.stderr).decode()
                self.assertIn(text, said)
        self.assertEqual(node.running(), {})
        node.__exit__()

    def test_doctor_looks_at_the_limits_of_the_node_that_runs(self):
        """As with a unit whose limits differ from those of the caller's shell."""
        with Node(ranks=1, memory="64MiB") as node:
            _, hard = resource.prlimit(node.pid("registrar"), resource.RLIMIT_FSIZE)
            resource.prlimit(node.pid("registrar"), resource.RLIMIT_FSIZE, (1 << 20, hard))
            self.assertRegex(node.ctl("doctor", check=False).stdout, rb"fail file_size +the file for memory has 68 MiB; RLIMIT_FSIZE allows 1 MiB")

    def test_a_node_killed_whole_says_what_its_memory_wants_and_loses_nothing(self):
        with Node(ranks=1, memory="64MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            refused = node.supervisor("restart", "--memory", "128MiB", check=False)
            self.assertEqual(refused.returncode, 1, refused.stdout)
            self.assertIn("nothing was changed: arena.0 of an earlier start has memory = 67108864", refused.stdout)
            supervisor = node.supervisor_pid()
            registrar = node.pid("registrar")
            os.kill(supervisor, signal.SIGKILL)
            wait_until(lambda: not lives(supervisor), 10, "it is gone")
            # Its actors continue without it: a refused start does not touch them.
            refused = node.supervisor("start", *node.settings, "--memory", "128MiB", check=False)
            self.assertEqual(refused.returncode, 1, refused.stdout)
            self.assertIn("is not started: arena.0 of an earlier start", refused.stdout)
            self.assertTrue(lives(registrar))
            for pid in node.running():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not node.running(), 10, "all are gone")
            for words in (["--memory", "128MiB"], ["--memory-chunk", "16MiB"], ["--index-memory", "512MiB"], ["--index-keys", "10"]):
                done = node.supervisor("start", *node.settings, *words, check=False)
                self.assertEqual(done.returncode, 1, done.stdout)
                helps = "start without both, which keeps it" if "index" in words[0] else "start with that"
                self.assertIn(f"; {helps}, or lose what is in memory: sluice-node stop", done.stdout)
                self.assertEqual(node.running(), {})
            # A larger disk would also need a larger index: that is no reason to lose this one.
            node.supervisor("start", *node.settings, "--disk", "2GiB", "--disk-path", node.directory + "/disk")
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_each_killed_actor_comes_back_and_objects_stay(self):
        with Node(disk="256MiB") as node:
            node.ctl("put", "kept", stdin=b"k" * 10000)
            for name in list(node.processes()):
                old = node.pid(name)
                os.kill(old, signal.SIGKILL)
                node.wait_restarted(name, old, 2)
                node.wait_ready()
                self.assertEqual(node.ctl("get", "kept").stdout, b"k" * 10000, name)
            node.ctl("put", "after", stdin=b"new")
            self.assertEqual(node.ctl("get", "after").stdout, b"new")

    def test_stopped_actor_is_killed_and_replaced(self):
        with Node() as node:
            old = node.pid("registrar")
            node.ctl("put", "kept", stdin=b"value")
            os.kill(old, signal.SIGSTOP)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")  # readers need no actor
            node.wait_restarted("registrar", old, 6)
            node.wait_ready()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_crash_loop_is_visible_and_backs_off(self):
        with Node() as node:
            for _ in range(6):
                pid = wait_until(lambda: node.pid("keyer"), 8, "keyer runs")
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: node.pid("keyer") != pid, 3, "the exit was noticed")
            log = node.directory + "/run/log/supervisor.jsonl"
            with open(log, encoding="utf-8") as lines:
                self.assertRegex(lines.read(), r"crash loop.* last code 137 \(SIGKILL: .* when memory ran out")
            self.assertRegex(node.supervisor("status", check=False).stdout, r"keyer .* 137 \(SIGKILL")
            wait_until(lambda: node.pid("keyer"), 8, "keyer runs again after the back-off")

    def test_a_node_whose_directory_was_deleted_ends(self):
        with Node() as node:
            run = node.directory + "/run"
            shutil.rmtree(run)
            wait_until(lambda: not node.leftovers() and not os.path.exists(node.shm), 10, "every process of the node has ended, and its memory is gone")

    def test_a_state_that_could_not_be_written_is_not_believed(self):
        with Node(ranks=1, memory="64MiB") as node:
            os.mkdir(node.directory + "/run/supervisor.state.new")  # as when the disk is full
            old = node.pid("keyer")
            os.kill(old, signal.SIGKILL)

            def shown():
                rows = json.loads(node.supervisor("status", "--json", check=False).stdout)["processes"]
                return next((row["pid"], row["state"]) for row in rows if row["name"] == "keyer")

            wait_until(lambda: shown()[0] not in (0, old), 20, "the new process is shown")
            self.assertEqual(shown()[1], "running")
            self.assertNotIn(f" {old} ", node.supervisor("status").stdout)
            self.assertEqual(node.pid("keyer"), old)
            os.rmdir(node.directory + "/run/supervisor.state.new")
            node.wait_restarted("keyer", old)  # it is written when it can be
            os.kill(node.supervisor_pid(), signal.SIGKILL)
            new = node.pid("keyer")
            os.kill(new, signal.SIGKILL)
            wait_until(lambda: shown() == (0, "down"), 20, "it is not restarted, and is shown as down")

    def test_replace_memory_removes_only_memory_that_the_start_cannot_use(self):
        """As a pod's start, when its node was stopped with its memory kept."""
        def start(*words, code=0, asked=True):
            done = node.supervisor("start", *node.settings, *words, *(["--replace-memory"] if asked else []), check=False)
            self.assertEqual(done.returncode, code, done.stdout)
            return done.stdout

        def refused(text, *words, **more):
            self.assertIn(text, start("--memory", "128MiB", *words, code=1, **more))
            self.assertTrue(os.path.exists(node.shm + "/index"))

        with Node(ranks=1, memory="64MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            refused("runs already")
            os.kill(node.supervisor_pid(), signal.SIGKILL)
            refused("arena.0 of an earlier start has memory = 67108864")  # its actors serve
            node.stop("--keep-arena")
            refused("arena.0 of an earlier start has memory = 67108864", asked=False)
            refused("raise clients_max", "--clients-max", "4")  # the node could not start without the memory either
            refused("record: ", "--record", "/proc/none/recording")
            refused("index", "--index-keys", "100000000", "--index-memory", "64MiB")
            holder = os.open(node.shm, os.O_RDONLY)
            fcntl.flock(holder, fcntl.LOCK_SH)
            refused("is in use by another node")
            os.close(holder)
            self.assertNotIn("is removed", start())
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

            larger, more_keys = ("--memory", "128MiB"), ("--index-memory", "512MiB")
            for words, why in ((larger, "arena.0 of an earlier start"), (larger + more_keys, "the index of an earlier start"), (larger + more_keys, "'leases' has layout 4711")):
                node.ctl("put", "kept", stdin=b"value")
                node.stop("--keep-arena")
                if "layout" in why:
                    with open(node.shm + "/leases", "r+b") as file:
                        file.seek(20)
                        file.write((4711).to_bytes(4, "little"))
                self.assertRegex(start(*words), f"memory of an earlier start in {node.shm} is removed .*{why}")
                self.assertRegex(log_of(node, "supervisor"), f"is removed .*{why}")
                self.assertEqual(node.ctl("get", "kept", check=False).returncode, 1)

    def test_stop_with_keep_arena_keeps_objects(self):
        with Node() as node:
            node.ctl("put", "kept", stdin=b"value")
            node.stop("--keep-arena")
            self.assertTrue(os.path.exists(node.shm + "/arena.0"))
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_restart_of_one_actor_drains_it(self):
        with Node() as node:
            old = node.pid("coordinator")
            done = node.supervisor("restart", "coordinator")
            self.assertNotIn("MiB", done.stdout)  # the sizes are those of its start, not of this command
            self.assertNotEqual(node.pid("coordinator"), old)
            self.assertEqual(node.processes()["coordinator"][3], "0")

    def test_a_restart_of_what_is_no_actor_ends_nothing(self):
        with Node(ranks=1) as node:
            supervisor = node.supervisor_pid()
            for name in ("../supervisor.pid", "nobody"):
                self.assertIn(f"no actor '{name}' runs", node.supervisor("restart", name, check=False).stdout)
            node.ctl("put", "a", stdin=b"a")
            self.assertEqual(node.supervisor_pid(), supervisor)
            self.assertTrue(lives(supervisor))

    def reads(self, probe):
        return probe.code("get", "k"), probe.code("exists", "k")

    @unittest.skipUnless(os.path.exists(PROBE), "contributions_probe was not built")
    def test_a_stopped_node_is_not_read_and_a_killed_one_is(self):
        with Node(ranks=1, memory="64MiB") as node:
            probe = Probe(self, node)
            self.assertEqual(probe.code("put", "k", 1, 4096), "SL_OK")
            with open(node.directory + "/run/supervisor.pid", encoding="utf-8") as line:
                pids = [int(line.read().split()[0]), *(node.pid(name) for name in node.processes())]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not any(lives(pid) for pid in pids), 3, "all are dead")
            time.sleep(1)
            self.assertEqual(self.reads(probe), ("SL_OK", "SL_OK"))
            node.start()
            node.supervisor("restart")
            self.assertEqual(self.reads(probe), ("SL_OK", "SL_OK"))
            node.stop()
            wait_until(lambda: self.reads(probe) == ("SL_ERR_UNREACHABLE",) * 2, 1, "a reader knows of the stop")
            self.assertEqual(probe.code("put", "k", 1, 4096), "SL_ERR_UNREACHABLE")
            node.start()
            wait_until(lambda: self.reads(probe) == ("SL_ERR_NOT_FOUND",) * 2, 1, "a reader knows of the next node")
            self.assertEqual(probe.code("put", "k", 2, 4096), "SL_OK")
            self.assertEqual(self.reads(probe), ("SL_OK", "SL_OK"))

    def test_it_finds_its_programs_from_a_relative_path_whatever_cd_searches(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("deploy", "other/deploy"):
                os.makedirs(f"{folder}/{name}")
            shutil.copy(NODE, folder + "/deploy")
            os.symlink(BIN, folder + "/bin")
            environment = {name: value for name, value in os.environ.items() if name != "SLUICE_BIN"}
            for searched in (".", folder + "/other"):
                done = subprocess.run(["deploy/sluice-node", "--version"], cwd=folder, env=dict(environment, CDPATH=searched),
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.startswith("sluice-node "), done.stdout)

    def test_a_line_on_standard_error_is_no_setting(self):
        """For example a line of the linker, which every program and shell of such an environment prints."""
        node = Node(ranks=1, memory="16MiB")
        node.environment["LD_PRELOAD"] = "/nowhere/absent.so"
        with node:
            for words in (["status"], ["restart", "keyer"], ["restart"], ["logs"], ["upgrade", "--bin", BIN], ["stop"]):
                self.assertIn("absent.so", node.supervisor(*words).stdout, words)

    def test_two_instances_live_side_by_side(self):
        with Node() as one, Node() as two:
            one.ctl("put", "key", stdin=b"one")
            two.ctl("put", "key", stdin=b"two")
            self.assertEqual(one.ctl("get", "key").stdout, b"one")
            self.assertEqual(two.ctl("get", "key").stdout, b"two")

    def test_an_upgrade_says_before_any_change_that_others_may_write_the_settings(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            with Node(ranks=1, memory="16MiB", settings=["--config", file.name]) as node:
                before = {name: node.pid(name) for name in node.processes()}
                os.chmod(file.name, 0o666)
                refused = node.supervisor("upgrade", check=False)
                self.assertEqual(refused.returncode, 1, refused.stdout)
                self.assertIn("nothing was changed: the node's settings are refused", refused.stdout)
                self.assertIn("chmod", refused.stdout)
                self.assertEqual({name: node.pid(name) for name in node.processes()}, before)
                os.chmod(file.name, 0o600)

    def test_directories_and_segments_are_private(self):
        with Node() as node:
            for place in (node.directory + "/run", node.shm):
                self.assertEqual(os.stat(place).st_mode & 0o777, 0o700, place)
            for name in os.listdir(node.shm):
                self.assertEqual(os.stat(os.path.join(node.shm, name)).st_mode & 0o077, 0, name)
            for name in os.listdir(node.directory + "/run"):
                if name.endswith((".sock", ".http")):
                    self.assertEqual(os.stat(os.path.join(node.directory, "run", name)).st_mode & 0o077, 0, name)

    def test_actors_go_before_others_where_they_may(self):
        with Node(settings=["--priority", "7"]) as node:
            pid = node.pid("registrar")
            level = os.getpriority(os.PRIO_PROCESS, pid)
            if not nice_allowed():
                self.assertIn("priority over other processes", log_of(node, "registrar"))
                return
            self.assertEqual(level, max(os.getpriority(os.PRIO_PROCESS, 0) - 7, -20))
            if os.path.exists(f"/proc/{pid}/autogroup"):
                with open(f"/proc/{pid}/autogroup", encoding="utf-8") as line:
                    self.assertEqual(line.read().split()[-2:], ["nice", "-7"])


def nice_allowed():
    return allowed("os.nice(-7)")


if __name__ == "__main__":
    main()
