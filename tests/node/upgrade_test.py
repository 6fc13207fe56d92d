"""sluice-node upgrade: changes the programs of a node that serves. Nothing is lost or wrong, no call waits beyond a deadline, and whichever
process is killed meanwhile, the upgrade continues when it is run again."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from node_support import BIN, CTL, NODE, PACE, Node, expected_hits, lives, log_of, main, paced, unsanitized_only, wait_until, workload
from upgrade_support import DEADLINE_MS, Lives, Putting, Upgrade, program_of, programs_copied, programs_of

# By itself on two cores no op takes longer than DEADLINE_MS, the default deadline. While other suites run it may.
OP_TIMEOUT, LONGEST_MS = f"{DEADLINE_MS * PACE}ms", (DEADLINE_MS + 10000) * PACE
SLOWDOWN = int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))
LAYOUT_AT = 20
METRICS_VERSION_AT, METRICS_PID_AT = 8, 72


class Upgraded(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="sl-up-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.new = programs_copied(self.directory + "/the new ones")

    def node(self, **settings):
        node = Node(**{"ranks": 2, "memory": "128MiB", "disk": "256MiB", **settings})
        node.__enter__()
        self.addCleanup(node.__exit__)
        return node

    def upgraded(self, node, directory=None):
        code, said, seconds = Upgrade(node, directory or self.new).end()
        self.assertEqual(code, 0, said + node.logs())
        self.assertEqual(set(programs_of(node).values()), {directory or self.new}, said)
        return said, seconds

    def trace(self, name, requests, seed, duration_ms):
        path = f"{self.directory}/{name}.jsonl"
        workload(path, requests, seed)
        paced(path, duration_ms)
        return path


class Engine(threading.Thread):
    """Replays traces one after another, at least one, until .over is set, so that upgrades are under load however long they take."""

    def __init__(self, test, node, number, duration_ms):
        super().__init__()
        self.test, self.node, self.number, self.duration_ms = test, node, number, duration_ms
        self.over = threading.Event()
        self.all, self.reports, self.said = f"{test.directory}/all{number}", [], ""
        self.start()

    def run(self):
        while not self.reports or not self.over.is_set():
            trace = self.test.trace(f"trace{self.number}", 300, 11 + self.number + 100 * len(self.reports), self.duration_ms)
            with open(trace, encoding="utf-8") as lines, open(self.all, "a", encoding="utf-8") as all_of_them:
                all_of_them.write(lines.read())
            replay = self.node.replay_start(trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "1", "--op-timeout", OP_TIMEOUT,
                                            "--json", trace + ".json")
            self.said += replay.communicate(timeout=600)[0]
            with open(trace + ".json", encoding="utf-8") as report:
                self.reports.append(json.load(report))

    def end(self):
        """{figure: its sum over the traces}, the longest op in ms, the hits of a cache without limits"""
        self.join()
        counts = {name: sum(report[name] for report in self.reports) for name in ("hits", "block_references", "mismatches", "lost", "errors")}
        return counts, max(report["longest_op_us"] for report in self.reports) / 1000, expected_hits(self.all)[1]


class UnderLoad(Upgraded):
    def replays(self, processes):
        """This number of engines replay traces of their own while the node is upgraded and downgraded."""
        node = self.node(memory="512MiB", disk="512MiB")
        engines = [Engine(self, node, number, (13_000 + 2_000 * processes) * SLOWDOWN) for number in range(processes)]
        for engine in engines:
            self.addCleanup(engine.over.set)
        time.sleep(1)
        _, there = self.upgraded(node)
        other = programs_copied(self.directory + "/other")
        _, back = self.upgraded(node, other)
        for engine in engines:
            engine.over.set()
        for engine in engines:
            counts, longest_ms, hits = engine.end()
            print(f"{processes} engines, two upgrades of {there:.1f} and {back:.1f} s: {len(engine.reports)} traces, {counts['hits']} hits of "
                  f"{counts['block_references']} ({hits} without a cache's limits), longest op {longest_ms:.0f} ms")
            self.assertEqual((counts["mismatches"], counts["lost"], counts["errors"]), (0, 0, 0), engine.said + node.logs())
            if processes == 1:
                self.assertEqual(counts["hits"], hits)
            else:  # one finds what another has stored
                self.assertGreaterEqual(counts["hits"], hits)
            self.assertLess(longest_ms, LONGEST_MS)

    @unsanitized_only
    def test_hits_of_an_engine_are_those_of_its_trace(self):
        self.replays(1)

    def test_several_engines(self):
        self.replays(4)

    def threads(self, threads):
        node = self.node()
        looking, putting = Lives(self, node, threads), Putting(node, threads)
        before = looking.counts()
        _, seconds = self.upgraded(node)
        after = looking.counts()
        puts, failed, longest_ms, failure = putting.end()
        print(f"{threads} threads of each kind: upgrade {seconds:.1f} s, {after['ops'] - before['ops']} ops and {puts} puts meanwhile, wrong "
              f"{after['wrong']}, failed {failed}, longest put {longest_ms:.0f} ms")
        self.assertEqual(after["wrong"], 0)
        self.assertEqual((failed, failure), (0, ""), node.logs())
        self.assertLess(longest_ms, LONGEST_MS)
        self.assertGreater(after["read"], before["read"])

    @unsanitized_only
    def test_1_thread(self):
        self.threads(1)

    @unsanitized_only
    def test_2_threads(self):
        self.threads(2)

    def test_4_threads(self):
        self.threads(4)

    @unsanitized_only
    def test_8_threads(self):
        self.threads(8)


class Killed(Upgraded):
    @unsanitized_only
    def test_whatever_is_killed_meanwhile_the_next_upgrade_ends_it(self):
        seed = int(os.environ.get("SLUICE_TEST_SEED", time.time()))
        print(f"seed {seed}")
        draw = random.Random(seed)
        node = self.node()
        node.ctl("put", "kept", stdin=b"value")
        trace = self.trace("trace", 1200, 5, 35_000 * SLOWDOWN)
        replay = node.replay_start(trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "1", "--op-timeout", OP_TIMEOUT, "--json", trace + ".json")
        directory = self.new
        for number, victim in enumerate(("upgrade", "supervisor", "actor", "upgrade", "supervisor", "everyone")):
            upgrade = Upgrade(node, directory)
            time.sleep(draw.uniform(0.1, 4.5))
            self.kill(node, upgrade, victim, draw)
            upgrade.end()
            if victim in ("supervisor", "everyone"):
                node.start()
            self.upgraded(node, directory)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            shutil.rmtree(f"{self.directory}/n{number - 2}", ignore_errors=True)
            directory = programs_copied(f"{self.directory}/n{number}")
        said = replay.communicate(timeout=600)[0]
        with open(trace + ".json", encoding="utf-8") as lines:
            report = json.load(lines)
        print(f"errors {report['errors']}, longest op {report['longest_op_us'] / 1000:.0f} ms")
        self.assertEqual((report["mismatches"], report["lost"]), (0, 0), said + node.logs())
        self.assertLess(report["longest_op_us"] / 1000, LONGEST_MS)
        node.stop()
        self.assertEqual(node.leftovers(), [])

    @staticmethod
    def kill(node, upgrade, victim, draw):
        if victim in ("upgrade", "everyone") and upgrade.process.poll() is None:
            os.killpg(upgrade.process.pid, signal.SIGKILL)
        if victim in ("supervisor", "everyone"):
            pid = node.supervisor_pid()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not lives(pid), 3, "the supervisor is gone")
        if victim in ("actor", "everyone"):
            pid = node.pid(draw.choice([name for name in node.processes() if not name.startswith("metrics")]))
            if pid and lives(pid):
                os.kill(pid, signal.SIGKILL)


class Refused(Upgraded):
    def refused(self, node, directory=None, word="nothing was changed"):
        before = programs_of(node), {name: node.pid(name) for name in node.processes()}, node.supervisor_pid()
        code, said, _ = Upgrade(node, directory or self.new).end()
        self.assertEqual(code, 1, said)
        self.assertIn(word, said)
        self.assertEqual((programs_of(node), {name: node.pid(name) for name in node.processes()}, node.supervisor_pid()), before)
        return said

    def test_programs_that_do_not_run_here(self):
        node = self.node(disk="0")
        with open(self.new + "/sluice-coordinator", "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\nexit 127\n")
        self.assertIn("sluice-coordinator does not run here", self.refused(node))
        os.remove(self.new + "/sluice-coordinator")
        self.assertIn("sluice-coordinator does not run here", self.refused(node))

    def test_programs_without_the_scripts_of_a_start(self):
        node = self.node(disk="0")
        os.mkdir(self.directory + "/bare")
        bare = programs_copied(self.directory + "/bare/bin")
        shutil.rmtree(self.directory + "/bare/share")
        self.assertIn("share/sluice/checks.py, which a start needs", self.refused(node, bare))

    def test_memory_that_the_new_programs_cannot_read(self):
        node = self.node(disk="0")
        with open(node.shm + "/index", "r+b") as segment:
            segment.seek(LAYOUT_AT)
            segment.write(struct.pack("<I", 4711))
        self.assertIn("'index' has layout 4711", self.refused(node))
        with open(node.shm + "/index", "r+b") as segment:
            segment.seek(LAYOUT_AT)
            segment.write(struct.pack("<I", 1))

    def test_pins_that_the_new_programs_cannot_read_are_named_with_their_way_out(self):
        node = self.node(disk="0")
        left = os.fsencode(node.shm) + b"/pins.left by \xff"
        shutil.copy(node.shm + "/pins.coordinator", left)
        with open(left, "r+b") as segment:
            segment.seek(LAYOUT_AT)
            segment.write(struct.pack("<I", 4711))
        said = self.refused(node)
        self.assertIn("has layout 4711", said)
        found = json.loads(node.ctl("formats", "--json", check=False).stdout)["found"]
        [row] = [row for row in found if not row["readable"]]
        self.assertEqual((row["kind"], row["file"]), ("pins", "hex:" + os.path.basename(left).hex()))
        os.rename(left, node.shm + "/pins.client.1.1")
        self.assertIn(f"if the process that made it has ended: rm '{node.shm}/pins.client.1.1'", self.refused(node))
        os.remove(node.shm + "/pins.client.1.1")
        self.upgraded(node)

    def test_figures_of_the_dead_that_the_new_programs_cannot_read_are_left_out(self):
        node = self.node(disk="0")
        left = node.shm + "/metrics.client.1.1"
        shutil.copy(node.shm + "/metrics.coordinator", left)
        with open(left, "r+b") as page:
            page.seek(METRICS_VERSION_AT)
            page.write(struct.pack("<I", 4711))
        self.assertIn("'%.100s' has format 4711" % left, self.refused(node))  # the coordinator lives
        with open(left, "r+b") as page:
            page.seek(METRICS_PID_AT)
            page.write(struct.pack("<I", 0))
        said = node.ctl("formats")
        self.assertIn("'metrics.client.1.1': metrics of a process that has ended", said.stderr.decode())
        [row] = [row for row in json.loads(node.ctl("formats", "--json").stdout)["found"] if not row["readable"]]
        self.assertTrue(row["left_out"])
        self.upgraded(node)

    def test_memory_that_cannot_be_looked_into_is_not_called_readable(self):
        with open(self.directory + "/file", "w", encoding="utf-8"):
            pass
        for words in (("formats",), ("config", "--check")):
            done = subprocess.run([CTL, *words, "--shm-dir", self.directory + "/file"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(f"look into '{self.directory}/file'", done.stderr)

    def test_settings_that_have_changed_or_are_not_known(self):
        settings = self.directory + "/node.conf"
        with open(settings, "w", encoding="utf-8") as lines:
            lines.write("block_lease = 4s\n")
        node = self.node(disk="0", settings=["--config", settings])
        with open(settings, "w", encoding="utf-8") as lines:
            lines.write("block_lease = 3s\n")
        self.assertIn("these settings differ from the start of the node: block_lease", self.refused(node))
        with open(settings, "a", encoding="utf-8") as lines:
            lines.write("of_a_later_release = 1\n")
        self.assertIn("of_a_later_release", self.refused(node))

    def test_a_node_that_is_not_there_or_not_whole(self):
        node = self.node(disk="0")
        node.stop()
        self.assertEqual(Upgrade(node, self.new).end()[0], 3)
        self.assertEqual(Upgrade(node, self.directory).end()[0], 2)

    def test_what_a_later_supervisor_has_left_is_not_touched(self):
        node = self.node(disk="0")
        path = node.directory + "/run/supervisor.format"
        with open(path, encoding="utf-8") as line:
            before = line.read()
        with open(path, "w", encoding="utf-8") as line:
            line.write("4711\t9.9\t/opt/sluice/bin/sluice-node\t/opt/sluice/bin\n")
        for command in ("start", "stop", "status", "upgrade"):
            done = node.supervisor(command, check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("has format 4711 (sluice 9.9), this sluice-node knows 1 to 1: use /opt/sluice/bin/sluice-node", done.stdout)
        with open(path, "w", encoding="utf-8") as line:
            line.write("1 and what else a release may say of itself\n")
        self.assertEqual(node.supervisor("status", check=False).returncode, 0)
        with open(path, "w", encoding="utf-8") as line:
            line.write(before)
        node.wait_ready()


def replaced(directory, program, how):
    """The program prints its version, and otherwise does something else."""
    os.rename(f"{directory}/{program}", directory + "/real")
    with open(f"{directory}/{program}", "w", encoding="utf-8") as script:
        script.write(f'#!/bin/bash\n[ "$1" != --version ] || exec "{directory}/real" --version\n{how}\n')
    os.chmod(f"{directory}/{program}", 0o755)


def restored(directory, program):
    os.rename(directory + "/real", f"{directory}/{program}")


def helper_state(node, name):
    with open(node.directory + "/run/supervisor.helpers", encoding="utf-8") as lines:
        return next((line.split()[2] for line in lines if line.startswith(name + " ")), "")


def seen(look):
    """Its result; None while the file that it reads is being written, or its process has ended."""
    with contextlib.suppress(FileNotFoundError, IndexError):
        return look()
    return None


def supervisor_format(node):
    with open(node.directory + "/run/supervisor.format", encoding="utf-8") as line:
        return line.read()


class Swapped(Upgraded):
    def test_an_actor_whose_new_program_fails_runs_the_old_one_again(self):
        node = self.node()
        old = os.path.dirname(os.path.realpath(node.environment["SLUICE_BIN"] + "/sluice-registrar"))
        node.ctl("put", "kept", stdin=b"value")
        for how, said in (("echo fails as told; exit 1", "fails as told"), ("exec sleep 60", "")):
            replaced(self.new, "sluice-swapper", how)

            code, heard, _ = Upgrade(node, self.new).end()

            self.assertEqual(code, 1, heard)
            self.assertIn("swapper.0 does not work with the new program, and runs the old one again", heard)
            self.assertIn(said, heard)
            node.wait_ready()
            programs = programs_of(node)
            self.assertEqual((programs["registrar"], programs["keyer"], programs["tierer.0"]), (self.new,) * 3)
            self.assertEqual((programs["swapper.0"], programs["swapper.1"], programs["coordinator"]), (old,) * 3)
            self.assertEqual(node.ctl("get", "kept").stdout, b"value")
            restored(self.new, "sluice-swapper")
        self.upgraded(node)
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_a_directory_of_symbolic_links_to_programs(self):
        links = self.directory + "/a prefix without share/bin"
        os.makedirs(links)
        for name in os.listdir(self.new):
            os.symlink(f"{self.new}/{name}", f"{links}/{name}")
        node = self.node(disk="0", ranks=1)
        code, said, _ = Upgrade(node, links).end()
        self.assertEqual(code, 0, said)
        self.assertEqual(set(programs_of(node).values()), {self.new})

    def test_twice_changes_nothing_and_says_so(self):
        node = self.node(disk="0")
        self.upgraded(node)
        pids = {name: node.pid(name) for name in node.processes()}
        supervisor = node.supervisor_pid()

        watcher = node.watcher_pid()
        done = node.supervisor("upgrade", "--bin", self.new, "--json")
        self.assertNotIn(node.watcher_pid(), (0, watcher))  # the supervisor has restarted itself

        report = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual({actor["swapped"] for actor in report["actors"]}, {False})
        self.assertEqual({name: node.pid(name) for name in node.processes()}, pids)
        self.assertEqual(node.supervisor_pid(), supervisor)

    def test_the_supervisor_goes_on_as_the_same_process_and_restarts_by_the_new_programs(self):
        node = self.node(disk="0")
        supervisor = node.supervisor_pid()
        self.upgraded(node)
        self.assertEqual(node.supervisor_pid(), supervisor)
        self.assertIn("continues as", log_of(node, "supervisor"))
        for name in list(node.processes()):
            old = node.pid(name)
            os.kill(old, signal.SIGKILL)
            node.wait_restarted(name, old, 3)
            # Between fork and exec it is the shell of the supervisor.
            wait_until(lambda: seen(lambda: program_of(node, name)) == self.new, 3, f"{name} runs the new program")
        node.wait_ready()
        stopped = node.pid("keyer")  # a hang is noticed
        os.kill(stopped, signal.SIGSTOP)
        node.wait_restarted("keyer", stopped, 3 * PACE)
        node.stop()
        self.assertEqual(node.leftovers(), [])

    def node_of_replaced_programs(self):
        """As packages replace them: the files of running programs are removed."""
        place = programs_copied(self.directory + "/place")
        node = Node(ranks=1, memory="64MiB", disk="0")
        node.environment["SLUICE_BIN"] = place
        node.__enter__()
        self.addCleanup(node.__exit__)
        node.ctl("put", "kept", stdin=b"value")
        for name in os.listdir(place):
            os.rename(f"{self.new}/{name}", f"{place}/{name}")
        self.assertIn("(deleted)", os.readlink(f"/proc/{node.pid('keyer')}/exe"))
        return node, place

    def test_programs_that_were_replaced_in_their_place(self):
        node, place = self.node_of_replaced_programs()
        replaced(place, "sluice-keyer", "exit 1")

        failed = node.supervisor("upgrade", check=False)

        self.assertEqual(failed.returncode, 1, failed.stdout)
        self.assertIn("keyer does not work with the new program, and runs the old one again", failed.stdout)
        self.assertEqual(program_of(node, "keyer"), node.directory + "/run/program.old")
        restored(place, "sluice-keyer")
        node.supervisor("upgrade")
        self.assertEqual(set(programs_of(node).values()), {place})
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")
        node.stop()
        self.assertEqual(node.leftovers(), [])

    def test_copies_of_replaced_programs_that_cannot_run_in_the_runtime_directory(self):
        """As where /run is mounted with noexec: here a file is in the way."""
        node, place = self.node_of_replaced_programs()
        in_the_way = [node.directory + "/run/program.old", node.directory + "/run/log/program.old"]
        for path in in_the_way:
            with open(path, "w", encoding="utf-8"):
                pass
        before = {name: node.pid(name) for name in node.processes()}

        refused = node.supervisor("upgrade", check=False)

        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("nothing was changed: the program of registrar was removed", refused.stdout)
        self.assertEqual({name: node.pid(name) for name in node.processes()}, before)
        os.remove(in_the_way[1])
        replaced(place, "sluice-keyer", "exit 1")
        failed = node.supervisor("upgrade", check=False)
        self.assertIn("keyer does not work with the new program, and runs the old one again", failed.stdout)
        self.assertEqual(program_of(node, "keyer"), in_the_way[1])
        restored(place, "sluice-keyer")
        node.supervisor("upgrade")
        self.assertEqual(set(programs_of(node).values()), {place})
        self.assertEqual([path for path in in_the_way if os.path.exists(path)], [])
        self.assertEqual(node.ctl("get", "kept").stdout, b"value")

    def test_a_helper_that_is_down_or_does_not_work_is_said_and_the_upgrade_goes_on(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            node = self.node(disk="0", ranks=1, settings=["--metrics-listen", f"127.0.0.1:{taken.getsockname()[1]}"])
            wait_until(lambda: helper_state(node, "metrics") == "crash-loop", 30, "it is tried every few seconds")

            code, said, _ = Upgrade(node, self.new).end()

            self.assertEqual(code, 0, said + node.logs())
            self.assertRegex(said, "metrics +(does not run|does not work)")
            self.assertEqual({program_of(node, name) for name in node.processes()}, {self.new}, said)
        wait_until(lambda: helper_state(node, "metrics") == "running", 30, "it is served when the address is free")
        wait_until(lambda: seen(lambda: program_of(node, "metrics")) == self.new, 5, "by the new program")
        other = programs_copied(self.directory + "/other")
        replaced(other, "sluice-metrics", "echo fails as told; exit 1")

        code, said, _ = Upgrade(node, other).end()

        self.assertEqual(code, 0, said + node.logs())
        self.assertRegex(said, "metrics +does not work with the new program: it ended again: fails as told")
        self.assertEqual({program_of(node, name) for name in node.processes()}, {other}, said)
        self.assertIn(f"\t{other}\n", supervisor_format(node))

    def test_a_supervisor_that_fails_is_left_to_the_system_that_runs_it(self):
        node = self.node(disk="0", ranks=1)
        os.kill(node.supervisor_pid(), signal.SIGKILL)
        by_system = subprocess.Popen([NODE, "start", "--foreground", *node.settings, *node.where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                     env=dict(node.environment, NOTIFY_SOCKET=node.directory + "/notify"))
        self.addCleanup(by_system.wait)
        self.addCleanup(by_system.kill)
        wait_until(lambda: seen(node.supervisor_pid) == by_system.pid, 10, "it is its supervisor")
        node.wait_ready()
        with open(NODE, encoding="utf-8") as script, open(self.new + "/sluice-node", "w", encoding="utf-8") as failing:
            first, rest = script.read().split("\n", 1)
            failing.write(f"{first}\n[ -z \"${{SLUICE_TAKES_OVER:-}}\" ] || exit 1\n{rest}")
        os.chmod(self.new + "/sluice-node", 0o755)

        code, said, _ = Upgrade(node, self.new).end()

        self.assertEqual(code, 1, said)
        self.assertIn("the supervisor has ended meanwhile; the actors keep running", said)
        self.assertEqual(by_system.wait(timeout=60), 1)
        self.assertFalse(lives(node.supervisor_pid()))  # nor does another one run
        os.remove(self.new + "/sluice-node")
        node.start()
        self.upgraded(node)

    def test_a_stop_that_comes_just_before_the_supervisor_goes_on_as_the_next_one_stops_the_node(self):
        """The file that names the next one is a FIFO here: the supervisor waits in the middle of reading it."""
        with Node(ranks=1, memory="64MiB", disk="0") as node:
            path = node.directory + "/run/supervisor.next"
            os.mkfifo(path)
            os.kill(node.supervisor_pid(), signal.SIGUSR1)
            with open(path, "w", encoding="utf-8") as fifo:
                os.kill(node.supervisor_pid(), signal.SIGTERM)
                fifo.write(f"{NODE}\n{node.environment['SLUICE_BIN']}\n")
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            wait_until(lambda: node.leftovers() == [], 30, "the node is stopped")

    def test_only_one_upgrade_at_a_time(self):
        node = self.node(disk="0")
        first = Upgrade(node, self.new)
        wait_until(lambda: os.path.isdir(node.directory + "/run/program"), 5, "it began")
        second = Upgrade(node, self.new).end()
        self.assertEqual(second[0], 1, second[1])
        self.assertIn("another upgrade", second[1])
        self.assertEqual(first.end()[0], 0)

    def test_help_and_wrong_use(self):
        self.assertEqual(subprocess.run([NODE, "upgrade", "--bin"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode, 2)


if __name__ == "__main__":
    main()
