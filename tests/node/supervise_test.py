"""Supervision of the supervisor: it is killed, stopped and started again, its watcher and its programs die and hang, systemd notifies it."""

import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from node_support import BIN, NODE, PACE, Node, children_of, command_of, free_port, lives, log_of, main, unsanitized_only, wait_until

SUPERVISE = os.path.join(BIN, "sluice-supervise")
# The longest time that a caller of sluice-node waits: a program that hangs is ended after 10 s and killed 1 s later.
CALL_SECONDS = 11


def supervisor_killed(node):
    pid = node.supervisor_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lives(pid), 3, "the supervisor is gone")


def born_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as line:
        return line.read().rsplit(")", 1)[1].split()[19]


def supervision(node):
    return json.loads(node.ctl("status", "--json").stdout)["supervisor"]


class Adoption(unittest.TestCase):
    def test_what_a_killed_supervisor_left_goes_on_under_the_next_one(self):
        with Node(disk="256MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            before = {name: node.pid(name) for name in node.processes()}
            self.assertEqual(supervision(node)["state"], "supervised")
            killed, watcher = time.time(), node.watcher_pid()
            supervisor_killed(node)
            wait_until(lambda: not lives(watcher), 2, "its watcher ends with it")

            seen = wait_until(lambda: (lambda seen: seen if seen["since_ms"] else None)(supervision(node)), 2, "actors noticed it")
            self.assertEqual(seen["state"], "unsupervised")
            self.assertLess(abs(seen["since_ms"] / 1000 - killed), 30 * PACE)
            self.assertIn(b"unsupervised since 20", node.ctl("status").stdout)
            self.assertIn(b"unsupervised since 20", node.ctl("doctor", "--disk", "0", check=False).stdout)
            self.assertIn("no supervisor", node.supervisor("status", check=False).stdout)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

            node.start()
            self.assertEqual({name: node.pid(name) for name in node.processes()}, before)
            wait_until(lambda: supervision(node)["state"] == "supervised", 2, "it is seen")
            wait_until(lambda: "supervised again" in log_of(node, "keyer"), 2, "actors know of the new one")
            self.assertNotIn(b"unsupervised", node.ctl("status").stdout)
            for name, old in before.items():
                os.kill(old, signal.SIGKILL)
                node.wait_restarted(name, old, 2)
            node.wait_ready()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            self.assertEqual({row[2] for row in node.processes().values()}, {1})
            node.supervisor("restart", "keyer")
            node.supervisor("restart")
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            node.stop()
            self.assertEqual(node.leftovers(), [])

    def test_an_adopted_node_restarts_and_stops_as_any_other(self):
        with Node() as node:
            node.ctl("put", "kept", stdin=b"value")
            supervisor_killed(node)
            node.start()
            old = node.pid("coordinator")
            node.supervisor("restart", "coordinator")
            self.assertNotEqual(node.pid("coordinator"), old)
            self.assertEqual(node.processes()["coordinator"][3], "0")  # the kernel or its page shows that it drained
            stopped = node.pid("keyer")
            os.kill(stopped, signal.SIGSTOP)
            node.wait_restarted("keyer", stopped, 6)
            node.stop("--keep-arena")
            self.assertEqual([line for line in node.leftovers() if line.startswith("process")], [])
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_actors_of_other_settings_are_replaced_and_memory_stays(self):
        with Node() as node:
            node.ctl("put", "kept", stdin=b"value")
            supervisor_killed(node)
            left = {name: node.pid(name) for name in node.processes()}
            node.settings += ["--lease-ttl", "1s"]
            node.start()
            for name, pid in left.items():  # a ready node is the new one
                self.assertFalse(lives(pid), name)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_an_exit_code_from_before_does_not_end_the_wait_of_a_start(self):
        """The state file of the earlier supervisor exists until the next one has written its own."""
        with Node(ranks=1) as node:
            supervisor_killed(node)
            os.kill(keyer := node.pid("keyer"), signal.SIGKILL)
            wait_until(lambda: not lives(keyer), 3, "the keyer is gone")
            with open(node.directory + "/run/supervisor.state", "r+", encoding="utf-8") as file:
                rows = file.read().replace(f"keyer {keyer} running 0 -", "keyer 0 crash-loop 7 2")
                file.seek(0)
                file.write(rows)
            node.start()
            self.assertEqual(node.processes()["keyer"][1:], ("running", 0, "-"))

    def test_what_is_left_without_a_registrar_holds_up_no_start_with_other_settings(self):
        """Its port is in use until it is ended."""
        with Node(ranks=1, settings=("--fabric", "tcp", "--fabric-address", f"127.0.0.1:{free_port()}")) as node:
            left, registrar = node.pid("transporter.0"), node.pid("registrar")
            supervisor_killed(node)
            os.kill(registrar, signal.SIGKILL)
            wait_until(lambda: not lives(registrar), 3, "the registrar is gone")
            node.settings += ["--lease-ttl", "1s"]
            node.start()
            self.assertFalse(lives(left))

    def test_a_process_that_has_the_pid_of_an_actor_by_now_is_not_adopted(self):
        with Node() as node:
            supervisor_killed(node)
            stranger = subprocess.Popen(["sleep", "60"])
            path = node.directory + "/run/pid/keyer"
            with open(path, encoding="utf-8") as line:
                keyer, started = line.read().split()
            with open(path, "w", encoding="utf-8") as line:  # another start time: the pid was used again
                line.write(f"{stranger.pid} {started}\n")
            os.kill(int(keyer), signal.SIGKILL)
            node.start()
            self.assertNotIn(node.pid("keyer"), (0, stranger.pid))
            self.assertIsNone(stranger.poll())
            stranger.kill()
            stranger.wait()

    def test_a_process_whose_first_thread_has_ended_lives(self):
        """As every killed process for a moment: its descriptors are open, with the locks on them."""
        code = "import ctypes, fcntl, sys, threading, time\nfcntl.flock(lock := open(sys.argv[1], 'a'), fcntl.LOCK_EX)\n" \
               "threading.Thread(target=time.sleep, args=(600,)).start()\nprint(flush=True)\nctypes.CDLL(None).syscall(%d, 0)" % (60 if os.uname().machine == "x86_64" else 93)
        record = f"/tmp/sl-record-{os.getpid()}.first"
        self.addCleanup(os.remove, record)
        with Node(ranks=1) as node:
            supervisor_killed(node)
            os.kill(keyer := node.pid("keyer"), signal.SIGKILL)
            wait_until(lambda: not lives(keyer), 3, "the keyer is gone")
            other = subprocess.Popen([sys.executable, "-c", code, record], stdout=subprocess.PIPE)
            self.addCleanup(other.communicate)
            self.addCleanup(other.kill)
            other.stdout.readline()
            wait_until(lambda: not lives(other.pid), 20, "its first thread has ended")
            with open(node.directory + "/run/pid/keyer", "w", encoding="utf-8") as line:
                line.write(f"{other.pid} {born_of(other.pid)}\n")
            node.settings += ["--record", record]
            node.start()
            self.assertEqual(other.wait(), -signal.SIGKILL)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/proc/sys/kernel/ns_last_pid"), "skipped: no pid can be chosen here")
    def test_a_process_that_gets_the_pid_of_an_actor_while_a_start_checks_is_not_killed(self):
        node = Node(ranks=1)
        again, mark = node.directory + "/again", node.directory + "/mark"
        node.programs_with_ctl(f"""'config --check'*) if [ -e {again} ]; then rm {again}
            read pid born <{node.directory}/run/pid/keyer; kill -KILL $pid
            until [ "$!" = $pid ]; do echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid; sleep 600 </dev/null >/dev/null 2>&1 & [ $! = $pid ] || kill $!; done
            echo $! >{mark}
        fi ;;""")
        with node:
            supervisor_killed(node)
            with open(again, "w", encoding="utf-8"):
                pass
            node.settings += ["--lease-ttl", "1s"]
            node.start()
            with open(mark, encoding="utf-8") as line:
                other = int(line.read())
            self.assertEqual(command_of(other)[0], "sleep")
            os.kill(other, signal.SIGKILL)

    def test_nothing_that_stands_in_a_file_of_the_node_is_run(self):
        """Files of a directory that was open once: another user who placed them there cannot run commands in the supervisor's shell."""
        with Node(ranks=1) as node:
            run, mark = node.directory + "/run/", node.directory + "/mark"
            supervisor_killed(node)
            spell = f"x[$(touch${{IFS}}{mark})]"
            with open(run + "supervisor.state", "r+", encoding="utf-8") as file:
                rows = [line.split() for line in file.read().splitlines()]
                file.seek(0)
                file.writelines(f"{row[0]} {spell if row[0] == 'keyer' else row[1]} {row[2]} {spell} {spell}\n" for row in rows)
            for name, text in (("supervisor.ready", f"waiting {spell}\n"), ("supervisor.format", f"1\t{spell}\t{spell}\n"), (f"pid/swapper.0{spell.replace('/', '')}", None)):
                with open(run + "pid/swapper.0", encoding="utf-8") as real, open(run + name, "w", encoding="utf-8") as file:
                    file.write(text or real.read())
            node.supervisor("status", check=False)
            node.start()
            keyer = node.pid("keyer")
            os.kill(keyer, signal.SIGKILL)
            node.wait_restarted("keyer", keyer, 2)
            node.supervisor("status")
            node.supervisor("restart", "keyer")
            self.assertFalse(os.path.exists(mark))

    def test_stop_without_a_supervisor_drains_what_it_left(self):
        with Node(disk="256MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            supervisor_killed(node)
            done = node.supervisor("stop")
            self.assertIn("without a supervisor", done.stdout)
            self.assertIn("draining", log_of(node, "registrar"))
            self.assertEqual(node.leftovers(), [])
            self.assertEqual(node.supervisor("stop", check=False).returncode, 3)

    def test_of_two_starts_at_once_one_wins_and_the_other_says_so(self):
        node = Node()
        try:
            for left in (False, True):
                if left:
                    supervisor_killed(node)
                starts = [subprocess.Popen([NODE, "start", *node.settings, *node.where], env=node.environment, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
                said = [start.communicate(timeout=60 * PACE)[0] for start in starts]
                codes = [start.returncode for start in starts]
                self.assertEqual(sorted(codes), [0, 1, 1], said)
                for code, text in zip(codes, said):
                    self.assertRegex(text, "is ready" if code == 0 else "runs already|just being started")
                node.wait_ready()
            node.stop()
            self.assertEqual(node.leftovers(), [])
        finally:
            node.__exit__()

    def test_a_start_that_meets_one_without_a_name_yet_hears_the_name(self):
        """A start takes the lock and then writes its name: this process does that here, late."""
        node = Node()
        self.addCleanup(node.__exit__)
        os.mkdir(node.directory + "/run", 0o700)
        path = node.directory + "/run/supervisor.lock"
        with open(path, "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            start = subprocess.Popen([NODE, "start", *node.settings, *node.where], env=node.environment, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            # It has looked for a name without success.
            wait_until(lambda: any("flock" in word for child in children_of(start.pid) for word in command_of(child)[:1]), 20,
                       "it waits for the lock")
            lock.write(f"{os.getpid()} {born_of(os.getpid())}\n")
            lock.flush()
            said = start.communicate(timeout=60 * PACE)[0]
        self.assertEqual(start.returncode, 1, said)
        self.assertIn(f"(process {os.getpid()})", said)


@unsanitized_only
class Moments(unittest.TestCase):
    """The supervisor is killed at any moment of a command: the command ends, and the next start or stop handles what is left."""

    def commanded(self, node, *words, after, victim=Node.supervisor_pid, how=signal.SIGKILL):
        """Signals the victim this long after the command began; returns the command's code and output."""
        began = time.monotonic()
        running = subprocess.Popen([NODE, *words, *node.where], env=node.environment, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        time.sleep(after)
        try:
            os.kill(victim(node), how)
        except (OSError, IndexError, ValueError, AssertionError):
            pass  # it does not exist yet, or no longer
        said = running.communicate(timeout=30 * PACE)[0]
        self.assertLess(time.monotonic() - began, 30 * PACE, said)
        return running.returncode, said

    def started(self, node):
        """The supervisor may be killed while it replaces itself, and then lives."""
        done = node.supervisor("start", *node.settings, check=False)
        self.assertTrue(done.returncode == 0 or "runs already" in done.stdout, done.stdout)
        node.wait_ready()
        return done.stdout

    def test_killed_at_any_moment(self):
        seed = int(os.environ.get("SLUICE_TEST_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        print(f"seed {seed}", flush=True)
        with Node(ranks=1, memory="64MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            for words, keeps in ((["stop", "--keep-arena"], True), (["restart"], True), (["restart", "registrar"], True)) * 2:
                said = self.commanded(node, *words, after=chance.uniform(0, 0.4))
                said = said, self.started(node)
                self.assertEqual(node.ctl("get", "kept").stdout if keeps else b"value", b"value", said)
            for _ in range(3):
                node.stop("--keep-arena")
                said = self.commanded(node, "start", *node.settings, after=chance.uniform(0, 0.5))
                if said[0] == 0:  # it was killed after the start, or not at all
                    node.supervisor("stop", "--keep-arena", check=False)
                said = said, self.started(node)
                self.assertEqual(node.ctl("get", "kept").stdout, b"value", said)
            node.stop()
            self.assertEqual(node.leftovers(), [])


    def test_a_watcher_struck_at_any_moment_and_a_supervisor_stopped_in_a_stop_end_no_command(self):
        seed = int(os.environ.get("SLUICE_TEST_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        print(f"seed {seed}", flush=True)
        with Node(ranks=1, memory="64MiB") as node:
            node.ctl("put", "kept", stdin=b"value")
            for victim, how in ((Node.watcher_pid, signal.SIGKILL), (Node.watcher_pid, signal.SIGSTOP), (Node.supervisor_pid, signal.SIGSTOP)):
                commands = [["stop", "--keep-arena"], ["start", *node.settings], ["restart", "registrar"], ["restart"]]
                for words in commands if victim is Node.watcher_pid else commands[:1]:
                    code, said = self.commanded(node, *words, after=chance.uniform(0, 0.3), victim=victim, how=how)
                    self.assertEqual(code, 0, (words, how, said))
            node.start()
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            node.stop()
            self.assertEqual(node.leftovers(), [])


@unsanitized_only
class Hangs(unittest.TestCase):
    def test_a_stopped_supervisor_is_named_and_can_be_ended(self):
        with Node() as node:
            os.kill(node.supervisor_pid(), signal.SIGSTOP)
            wait_until(lambda: supervision(node)["state"] == "stopped", 3, "it is seen to be stopped")  # it stops only at its next instruction
            self.assertIn(b"kill -CONT", node.ctl("status").stdout)
            for words in (["status"], ["start", *node.settings], ["restart", "keyer"], ["restart"]):
                self.assertIn("kill -CONT", node.supervisor(*words, check=False).stdout, words)
            node.stop()
            self.assertEqual(node.leftovers(), [])

    def test_what_hung_while_the_supervisor_did_is_judged_anew(self):
        with Node() as node:
            supervisor, actor = node.supervisor_pid(), node.pid("registrar")
            for pid in (supervisor, actor):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(4)  # its watcher reports three times that the registrar is stopped
            os.kill(actor, signal.SIGCONT)
            wait_until(lambda: all(row["silent_s"] < 0.5 for row in json.loads(node.ctl("status", "--json").stdout)["actors"]), 5, "its loop turns")
            time.sleep(1.2)
            os.kill(supervisor, signal.SIGCONT)
            time.sleep(1)
            self.assertEqual(node.pid("registrar"), actor)
            self.assertTrue(lives(actor))

    def test_a_watcher_that_is_killed_or_stopped_is_replaced(self):
        with Node() as node:
            for how in (signal.SIGKILL, signal.SIGSTOP):
                watcher = wait_until(node.watcher_pid, 5, "there is a watcher")
                actor = node.pid("keyer")
                os.kill(watcher, how)
                os.kill(actor, signal.SIGKILL)
                node.wait_restarted("keyer", actor, 8)
                wait_until(lambda: node.watcher_pid() not in (0, watcher), 8, "there is another watcher")
                self.assertFalse(lives(watcher))
            node.wait_ready()
            with open(node.directory + "/run/log/supervisor.jsonl", encoding="utf-8") as log:
                said = log.read()
            self.assertIn("has ended: a new one starts", said)
            self.assertIn("has reported nothing for over", said)

    def test_a_watcher_that_cannot_run_costs_time_and_no_actor(self):
        node = Node()
        node.programs_with_ctl("")
        with node:
            program = node.directory + "/bin/sluice-supervise"
            os.remove(program)
            with open(program, "w", encoding="utf-8") as script:
                script.write("#!/bin/sh\nexit 1\n")
            os.chmod(program, 0o755)
            os.kill(node.watcher_pid(), signal.SIGKILL)
            for _ in range(2):
                actor = node.live_pid("keyer")
                os.kill(actor, signal.SIGKILL)
                node.wait_restarted("keyer", actor, 8)
            node.stop()
            self.assertEqual(node.leftovers(), [])

    def test_no_command_hangs_with_its_programs(self):
        node = Node()
        hang = node.directory + "/hang"
        node.programs_with_ctl(f'*) if [ -e {hang} ]; then trap "" TERM; exec sleep 600; fi ;;')
        with node:
            with open(hang, "w", encoding="utf-8"):
                pass
            began = time.monotonic()
            commands = [["start", *node.settings], ["stop"], ["status"], ["status", "--json"], ["restart"], ["restart", "keyer"], ["logs"]]
            running = [subprocess.Popen([NODE, *words, *node.where], env=node.environment, text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT) for words in commands]
            said = [one.communicate(timeout=120)[0] for one in running]
            self.assertLess(time.monotonic() - began, CALL_SECONDS + 30 * PACE)
            for words, text in zip(commands, said):
                self.assertIn("sluicectl config has not answered within 10 s", text, words)
            # The node continues: its supervisor calls no program that hangs.
            actor = node.pid("keyer")
            os.kill(actor, signal.SIGKILL)
            node.wait_restarted("keyer", actor, 2)
            os.remove(hang)
            node.wait_ready()

    def test_a_supervisor_at_rest_runs_no_program(self):
        with Node(disk="256MiB") as node:
            node.wait_ready()
            pid = node.supervisor_pid()

            def ended():  # page faults of its children that have ended: any program has some
                with open(f"/proc/{pid}/stat", encoding="utf-8") as line:
                    return line.read().rsplit(")", 1)[1].split()[8]
            time.sleep(1)
            before, children = ended(), children_of(pid)
            time.sleep(3)
            self.assertEqual((ended(), children_of(pid)), (before, children))


class Systemd(unittest.TestCase):
    """A socket in place of systemd's."""

    def setUp(self):
        self.node = Node(ranks=1, memory="64MiB")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.node.directory + "/notify")
        self.said = []
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        while True:
            try:
                self.said.append(self.socket.recv(4096).decode())
            except OSError:
                return

    def tearDown(self):
        self.node.__exit__()
        self.socket.close()

    def told(self, text):
        return sum(one.startswith(text) for one in self.said)

    def test_systemd_hears_how_it_goes_and_no_word_of_a_supervisor_that_hangs(self):
        node = self.node
        node.environment.update(NOTIFY_SOCKET=node.directory + "/notify", WATCHDOG_USEC="2000000")
        unit = subprocess.Popen([NODE, "start", "--foreground", *node.settings, *node.where], env=node.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.told("READY=1"), 15, "READY=1")
        wait_until(lambda: self.told("STATUS=5 of 5 actors are ready"), 5, "STATUS=")
        wait_until(lambda: self.told("WATCHDOG=1") > 2, 5, "the watchdog is fed")
        actor = node.live_pid("keyer")
        with open(f"/proc/{actor}/environ", "rb") as environment:
            self.assertNotIn(b"NOTIFY_SOCKET", environment.read())

        os.kill(unit.pid, signal.SIGSTOP)
        time.sleep(1)
        before = self.told("WATCHDOG=1")
        time.sleep(2)
        self.assertEqual(self.told("WATCHDOG=1"), before)  # though its watcher lives
        os.kill(unit.pid, signal.SIGCONT)
        wait_until(lambda: self.told("WATCHDOG=1") > before, 5, "the watchdog is fed again")

        os.kill(node.watcher_pid(), signal.SIGKILL)
        before = self.told("WATCHDOG=1")
        wait_until(lambda: self.told("WATCHDOG=1") > before + 1, 5, "also by the next watcher")
        os.kill(actor, signal.SIGKILL)
        node.wait_restarted("keyer", actor, 2)
        unit.terminate()
        self.assertEqual(unit.wait(30 * PACE), 0)
        self.assertEqual((self.told("READY=1"), self.told("STOPPING=1")), (1, 1))
        self.assertEqual(node.leftovers(), [])


class Watcher(unittest.TestCase):
    """sluice-supervise by itself."""

    def setUp(self):
        self.node = Node()
        os.makedirs(self.node.directory + "/run", mode=0o700)
        with open(self.node.directory + "/run/supervisor.pid", "w", encoding="utf-8") as line:
            line.write(f"{os.getpid()} 1\n")

    def tearDown(self):
        self.watcher.stdin.close()
        self.watcher.wait(30 * PACE)
        self.watcher.stdout.close()
        self.watcher.stderr.close()
        self.node.__exit__()

    def start(self, **environment):
        self.watcher = subprocess.Popen([SUPERVISE, "watch", self.node.directory + "/run", self.node.shm, str(os.getpid())],
                                        env=dict(os.environ, **environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        self.assertEqual(self.watcher.stdout.readline(), "tick\n")

    def asked(self, *lines):
        self.watcher.stdin.write("".join(line + "\n" for line in lines))

    def test_deaths_are_told_once_also_those_that_came_before(self):
        self.start()
        living, dead = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["true"])
        dead.wait()
        born = born_of(living.pid)
        self.asked(f"watch keyer {living.pid} {born}", f"watch swapper.0 {dead.pid} {born}")
        said = [self.watcher.stdout.readline() for _ in range(2)]
        self.assertIn(f"gone swapper.0 {dead.pid} unknown\n", said)
        living.kill()
        living.wait()
        while not said[-1].startswith(f"gone keyer {living.pid}"):
            said.append(self.watcher.stdout.readline())
        self.assertRegex(said[-1], " (137|unknown)\n")  # an older kernel reports it only to the parent
        self.asked("nudge")
        self.assertEqual(self.watcher.stdout.readline(), "nudge\n")  # and nothing between them

    def test_a_state_says_how_many_commands_it_is_younger_than(self):
        self.start()
        for number, command in enumerate((f"watch keyer {os.getpid()} {born_of(os.getpid())}", f"mind metrics {os.getppid()} {born_of(os.getppid())}"), 1):
            self.asked(command)
            self.assertEqual(self.watcher.stdout.readline(), f"state waiting {number} keyer\n")

    def test_a_tick_waits_for_the_answer_to_the_last_one(self):
        self.start(NOTIFY_SOCKET=self.node.directory + "/nobody", WATCHDOG_USEC="100000")
        time.sleep(0.5)
        self.asked("nudge")
        self.assertEqual(self.watcher.stdout.readline(), "nudge\n")
        self.asked("alive")
        self.assertEqual(self.watcher.stdout.readline(), "tick\n")

    def test_a_directory_that_names_another_supervisor_is_told(self):
        self.start()
        os.remove(self.node.directory + "/run/supervisor.pid")
        self.assertEqual(self.watcher.stdout.readline(), "lost\n")

    def test_what_is_no_command_ends_it(self):
        for line in ("dance", "watch keyer", "watch keyer 0 1", "watch key/er 1 1", "watch keyer 1 1 1", "watch " + "x" * 3000):
            self.start()
            self.asked(line)
            self.assertEqual(self.watcher.wait(30 * PACE), 1, line)
            self.assertIn("sluice-supervise: '" if len(line) < 500 else "over 2048 bytes", self.watcher.stderr.read())
            for pipe in (self.watcher.stdin, self.watcher.stdout, self.watcher.stderr):
                pipe.close()

    def test_it_ends_with_its_script(self):
        self.start()
        self.watcher.stdin.close()
        self.assertEqual(self.watcher.wait(30 * PACE), 0)


if __name__ == "__main__":
    main()
