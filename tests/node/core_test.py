"""An actor that is ready to run and gets no core: its log, and doctor's report. Takes a core from all other processes for a second. Also the answers of a probe,
`sluicectl status --ready`."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from contributions_support import Probe
from node_support import CTL, NODE, PATIENCE, Node, allowed, lives, log_of, main, wait_until

LONG = f"{10 * PATIENCE}s"  # a busy machine takes longer than a probe waits
NAMES_SAID = 8  # names of running nodes (client/tools/command/output.c)
CORE = min(os.sched_getaffinity(0))
# Takes one core from all other processes for less than a second: below the kernel's limit for such processes, and a node's own.
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
until = time.monotonic() + 0.9
while time.monotonic() < until: pass
"""


def control_characters(said):
    """Control characters of a text, which a terminal obeys."""
    return [letter for letter in said if letter not in "\n\t" and (letter < " " or "\x7f" <= letter < "\xa0" or "\u2028" <= letter < "\u202f" or "\u2066" <= letter < "\u206a")]


class Core(unittest.TestCase):
    def test_an_actor_without_a_core_says_so(self):
        if not rt_allowed():
            self.skipTest("needs the right to a real-time process")
        with Node() as node:
            node.ctl("put", "kept", stdin=b"value")
            time.sleep(1.1)  # an actor checks once a second
            os.sched_setaffinity(node.pid("registrar"), {CORE})
            subprocess.run([sys.executable, "-c", HOG, str(CORE)], check=True, timeout=60 * PATIENCE)
            wait_until(lambda: "had no core for" in log_of(node, "registrar"), 10, "the registrar's line")
            checks = json.loads(node.ctl("doctor", "--json", check=False).stdout)
            cores = [check for check in checks["checks"] if check["check"] == "cores"]
            self.assertEqual(len(cores), 1, checks)
            self.assertRegex(cores[0]["text"], r"^[a-z]+(\.\d+)? was ready to run and had no core for [0-9.]+ s of its [0-9.]+ s$")


class Ready(unittest.TestCase):
    def node(self, **options):
        node = Node(ranks=1, memory="64MiB", **options)
        self.addCleanup(node.__exit__)
        return node

    def killed(self, node, actor):
        """Kills the actor and waits. A stopped supervisor does not restart it."""
        pid = node.pid(actor)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not lives(pid), 10, f"{actor} is gone")

    def asked(self, node, *words):
        """(exit code, answer)"""
        done = node.ctl("status", "--ready", "--json", *words, check=False)
        return done.returncode, json.loads(done.stdout)

    def test_a_node_is_ready_from_its_start_to_its_stop(self):
        node = self.node()
        before = self.asked(node, "--deadline", "20ms")
        node.start()
        serving = self.asked(node, "--deadline", LONG)
        node.stop()
        after = self.asked(node, "--deadline", "20ms")

        self.assertEqual((serving[0], serving[1]["ready"], serving[1]["missing"], serving[1]["degraded"]), (0, True, [], []))
        for code, answer in (before, after):
            self.assertEqual((code, answer["ready"]), (1, False), answer)

    def test_a_missing_actor_is_named(self):
        node = self.node()
        node.start()
        os.kill(node.supervisor_pid(), signal.SIGSTOP)  # so that it is not restarted
        self.addCleanup(os.kill, node.supervisor_pid(), signal.SIGCONT)
        self.killed(node, "keyer")

        code, answer = self.asked(node, "--deadline", "100ms")
        said = node.ctl("status", "--ready", "--deadline", "100ms", check=False)

        self.assertEqual((code, answer["missing"]), (1, ["keyer"]), answer)
        self.assertEqual(said.stdout, b"not ready; missing: keyer\n")

    def test_a_registrar_that_answers_nothing_is_not_waited_for(self):
        node = self.node()
        node.start()
        for pid in (node.supervisor_pid(), node.pid("registrar")):
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(os.kill, pid, signal.SIGCONT)
        began = time.monotonic()

        code, answer = self.asked(node, "--deadline", "300ms")

        self.assertLess(time.monotonic() - began, 5 * PATIENCE)
        self.assertEqual((code, answer["ready"]), (1, False), answer)
        self.assertTrue(answer["why"] or "registrar" in answer["missing"], answer)

    def test_one_disk_of_two_is_enough(self):
        node = self.node(disk="128MiB")
        disks = [node.directory + "/disk-a", node.directory + "/disk-b"]
        node.settings[node.settings.index("--disk-path") + 1] = ",".join(disks)
        node.start()
        os.kill(node.supervisor_pid(), signal.SIGSTOP)
        self.addCleanup(os.kill, node.supervisor_pid(), signal.SIGCONT)

        self.killed(node, "tierer.1")
        one = self.asked(node, "--deadline", LONG)
        self.killed(node, "tierer.0")
        none = self.asked(node, "--deadline", "100ms")

        self.assertEqual((one[0], one[1]["missing"]), (0, ["tierer.1"]), one)
        self.assertEqual((none[0], none[1]["missing"]), (1, ["tierer.0", "tierer.1"]), none)

    def test_a_node_with_as_many_clients_as_it_takes_is_ready(self):
        node = self.node(settings=("--clients-max", "5"))  # its actors, and a client
        node.start()
        client = Probe(self, node)
        self.assertEqual(client.code("put", "k", 1, 1024), "SL_OK")

        code, answer = self.asked(node, "--deadline", LONG)

        self.assertEqual((code, answer["ready"]), (0, True), answer)
        self.assertIn("clients_max", answer["why"])

    def test_no_name_reaches_a_terminal_as_an_order(self):
        node = self.node()
        node.start()
        for key in ("\x1b[2J", "\x9b31m", "\u202egpj.exe", "\u2066x", "gr\u00fc\u00df"):
            node.ctl("put", key, "-", stdin=b"v")
            for words in (("ls",), ("ls", "--json"), ("exists", key), ("explain", key), ("explain", key, "--json"), ("get", key + "-not"),
                          ("get", key + "-not", "--json"), ("status", key), ("status", "--" + key), ("get", key, "--op-timeout", key)):
                done = node.ctl(*words, check=False)
                said = (done.stdout + done.stderr).decode()  # UTF-8 all of it
                self.assertEqual(control_characters(said), [], (words, said))
                if words == ("ls",):
                    self.assertEqual("gr\u00fc\u00df" in said, key == "gr\u00fc\u00df")

    def test_no_word_of_a_command_line_reaches_a_terminal_as_an_order(self):
        with tempfile.TemporaryDirectory() as directory:
            for word in ("\x1b[2J", "\x9b31m", "\u202egpj.exe", "\u2066x"):
                environment = {**os.environ, "SLUICE_EVENTS_MODEL": "m" + word, "SLUICE_INSTANCE": f"none-{os.getpid()}"}
                for words in ((CTL, word), (CTL, "help", word), (CTL, "config"), (CTL, "keygen", directory + "/" + word, "a"), (NODE, word), (NODE, "stop", word)):
                    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=60 * PATIENCE, check=False)
                    self.assertEqual(control_characters(done.stdout.decode()), [], (words, done.stdout))

    def test_what_cannot_be_written_is_said_once(self):
        """For commands in C and those whose text Python makes; a reader that has gone is no failure to report."""
        with Node(ranks=1, memory="64MiB") as node:
            node.ctl("put", "a", stdin=b"value" * 20000)
            commands = [(CTL, *words) for words in (("status",), ("pools",), ("nodes",), ("tiers",), ("explain", "a"), ("ls",), ("get", "a"),
                                                    ("top", "--once"), ("config", "--template"), ("status", "--json"), ("help",))]
            for to, said in ((">/dev/full", r"sluicectl: cannot write to standard output.*\n"), (">&-", r"sluicectl: cannot write to standard output.*\n"), ("| :", "")):
                for command in commands:
                    where = node.where if command[1] != "help" else []
                    with self.subTest(to=to, command=command[1:]):
                        line = f'set -o pipefail; "$@" {to if to[0] == ">" else ""} {to if to[0] == "|" else ""}'
                        done = subprocess.run(["bash", "-c", line, "bash", *command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                              timeout=60 * PATIENCE, check=False)
                        self.assertRegex(done.stderr, rf"\A{said}\Z")
                        if to[0] == ">":
                            self.assertEqual(done.returncode, 1)
            self.assertEqual(node.ctl("get", "a").stdout, b"value" * 20000)

    def test_words_that_do_not_go_together(self):
        node = self.node()
        for words in (["--deadline", "1s"], ["--ready", "--metrics"], ["--ready", "--deadline", "2h"], ["--ready", "registrar"]):
            self.assertEqual(node.ctl("status", *words, check=False).returncode, 2, words)


def another_can_ask():
    return os.geteuid() == 0 and subprocess.run(["setpriv", "--reuid=4711", "--clear-groups", "test", "-x", CTL], check=False).returncode == 0


class Missing(unittest.TestCase):
    """Messages to a user who asks a node that does not run."""

    def asked(self, *words, before=()):
        """(exit code, standard error), for a node that was never started."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLUICE_", "XDG_"))}
        done = subprocess.run([*before, CTL, *words, "--instance", f"none-{os.getpid()}"], env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=False)
        return done.returncode, done.stderr

    def test_nodes_that_run_are_named(self):
        node = Node(ranks=1, memory="64MiB")
        self.addCleanup(node.__exit__)
        node.shm = node.where[-1] = f"/dev/shm/sluice-{os.geteuid()}/{node.instance}"  # the default directory of nodes
        node.start()
        for words in (["status"], ["get", "key"], ["events", "--once"]):
            code, said = self.asked(*words)
            self.assertEqual(code, 3)
            self.assertRegex(said, r"no node runs under the name 'none-\d+'")
            names = re.search(r"(?m)^--instance selects the node; running: (.+)$", said)
            self.assertIsNotNone(names, said)
            names = names[1].split(", ")
            self.assertTrue(node.instance in names or len(names) == NAMES_SAID, said)

    @unittest.skipUnless(another_can_ask(), "skipped: not root, or another user does not reach the programs")
    def test_without_any_it_says_how_to_begin(self):
        code, said = self.asked("status", before=["setpriv", "--reuid", "4711", "--clear-groups"])
        self.assertEqual((code, said.splitlines()[-1]), (3, "no node of this user runs here: start one with sluice-node start"))

    def test_a_setting_of_actors_is_none_of_a_node(self):
        node = Node(ranks=1, memory="64MiB")
        self.addCleanup(node.__exit__)
        done = node.supervisor("start", *node.settings, "--rank", "2", check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranks N", done.stdout)
        self.assertEqual(node.leftovers(), [])


def rt_allowed():
    return allowed("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))")


if __name__ == "__main__":
    main()
