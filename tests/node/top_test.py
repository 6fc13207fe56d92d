"""sluicectl top: its figures are the replay's, and in a terminal of tmux it shows a node that lives, fails, stops and restarts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from node_support import CTL, ROOT, Node, main, wait_until, workload


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, directory, command, columns=80, rows=24):
        self.tmux = ["tmux", "-S", directory + "/tmux", "-f", "/dev/null"]
        self.code = directory + "/code"
        line = f"LC_ALL=C.UTF-8 {command}; echo $? > {self.code}; sleep 600"
        subprocess.run([*self.tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), line], check=True)

    def keys(self, *names):
        subprocess.run([*self.tmux, "send-keys", *names], check=True)

    def resize(self, columns, rows):
        subprocess.run([*self.tmux, "resize-window", "-x", str(columns), "-y", str(rows)], check=True)

    def lines(self, *options):
        return subprocess.run([*self.tmux, "capture-pane", "-p", *options], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")

    def coloured(self):
        """Its lines with the escapes that set colours (tests/pictures)."""
        return self.lines("-e", "-N")[:-1]

    def shows(self, *texts, seconds=5):
        """Waits until all of the texts are on the screen, and returns its lines."""
        found = []

        def seen():
            found[:] = self.lines()
            return all(any(text in line for line in found) for text in texts)

        wait_until(seen, seconds, lambda: f"{texts} in\n" + "\n".join(found))
        return found

    def word(self, name, number):
        """A word, counted from 0, of the line that begins with a name; "" if there is none (a screen may be half drawn)."""
        words = next((line.split() for line in self.lines() if line.startswith(name)), [])
        return words[number] if number < len(words) else ""

    def ended(self):
        def code():
            try:
                with open(self.code, encoding="utf-8") as line:
                    return line.read().strip()
            except FileNotFoundError:
                return ""

        return wait_until(code, 5, "top ends")

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], check=False)


class Top(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="sl-top.")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.trace = self.directory + "/trace.jsonl"

    def open(self, node, *arguments, **size):
        if shutil.which("tmux") is None:
            self.skipTest("skipped: no tmux")
        terminal = Terminal(self.directory, " ".join([CTL, "top", "--interval", "250ms", *arguments, *node.where]), **size)
        self.addCleanup(terminal.close)
        return terminal

    def replay(self, node, *arguments):
        report = self.directory + "/report.json"
        node.ctl("replay", self.trace, "--ranks", "2", "--block-bytes", "4096", "--op-timeout", "30s", "--json", report, *arguments,
                 timeout=600)
        with open(report, encoding="utf-8") as lines:
            return json.load(lines)

    def test_what_it_counts_is_what_the_replay_counted(self):
        workload(self.trace, 300, 7)
        with Node(ranks=2, memory="16MiB", disk="256MiB") as node:
            report = self.replay(node)
            found = []

            def settled():  # gauges are of the registrar's last tick
                found[:] = [json.loads(node.ctl("top", "--once", "--json", "--interval", "100ms").stdout)]
                return [group["objects"] for group in found[0]["groups"]] == [found[0]["memory"]["keys"]]

            wait_until(settled, 5, lambda: f"as many objects as keys in {found}")
            seen = found[0]
            loads = {tier: seen["loads"][tier]["count"] for tier in ("memory", "disk", "remote")}
            self.assertEqual({tier: count for tier, count in loads.items() if count > 0},
                             {tier: count for tier, count in report["hits_by_tier"].items() if count > 0})
            self.assertEqual(loads["memory"] + loads["disk"] + seen["loads"]["missed"]["count"], report["block_references"])
            hits = seen["hits"]
            self.assertEqual((hits["references"], hits["hits"]), (report["block_references"], loads["memory"] + loads["disk"]))
            self.assertTrue(hits["hits"] <= hits["ceiling_hits"] <= hits["references"], hits)
            self.assertAlmostEqual(hits["hit_percent"], 100 * hits["hits"] / hits["references"], 3)
            self.assertLessEqual(sum(group["memory_bytes"] for group in seen["groups"]), seen["memory"]["used_bytes"])
            self.assertEqual(len(seen["engines"]), 1)
            engine = seen["engines"][0]
            self.assertEqual({tier: engine["loads"][tier]["count"] for tier in seen["loads"]},
                             {tier: row["count"] for tier, row in seen["loads"].items()})
            self.assertEqual((engine["stored"], engine["store_bytes"]), (seen["stores"]["stored"], seen["stores"]["bytes"]))
            self.assertEqual(engine["model"], seen["groups"][0]["name"])
            prefixes = json.loads(node.ctl("top", "--once", "--json", "--prefixes", "--interval", "100ms").stdout)["groups"]
            self.assertEqual([group["name"].split("/")[2:] for group in prefixes], [["0", "pool0"], ["1", "pool0"]])
            for view in ("overview", "memory", "disks", "peers", "actors", "engines"):
                said = node.ctl("top", "--once", "--view", view, "--interval", "100ms").stdout.decode()
                self.assertIn(f"sluice {node.instance}", said)
                self.assertIn("7/7 actors ready", said)
            said = node.ctl("top", "--once", "--interval", "100ms").stdout.decode()
            with open(os.path.join(ROOT, "deploy", "monitoring", "top.svg"), encoding="utf-8") as file:
                picture = re.findall(r'<text x="14"[^>]*>([^<]*)<', file.read())
            self.assertEqual([line.split("  ")[0] for line in said.splitlines()[1:]], picture[1:-1], "README's picture: python3 tests/pictures")

    def test_ceilings_and_figures_are_there_from_the_first_moment(self):
        with Node(ranks=1, memory="256MiB", disk="128MiB") as node:
            tiers = json.loads(node.ctl("tiers", "--json").stdout)
            self.assertEqual(tiers["memory"]["ceiling_bytes"], 256 << 20)
            self.assertEqual(tiers["disk"]["tierers"][0]["ceiling_bytes"], 128 << 20)
            said = node.ctl("tiers").stdout.decode()
            self.assertRegex(said, r"memory +ready +0 B +256.0 MiB")
            self.assertRegex(said, r"tierer.0 +ready +0 B +128.0 MiB")
            node.ctl("put", "key", "-", stdin=b"value")
            node.ctl("get", "key")
            node.ctl("get", "nowhere", check=False)
            said = node.ctl("status").stdout.decode()
            self.assertIn("gets     2 keys: memory 50.0%, disk 0.0%, remote 0.0%, missed 50.0%; 5 B; p50 <", said)
            # The registrar's gauges are of its last tick.
            wait_until(lambda: b"memory   64 B of 256.0 MiB, 1 keys; 0 units evicted" in node.ctl("status").stdout, 5, "the key is counted")
            figures = json.loads(node.ctl("status", "--json").stdout)["figures"]
            self.assertEqual([figures["gets"][name] for name in ("memory", "disk", "remote", "missed", "bytes")], [1, 0, 0, 1, 5])

    def test_a_terminal_shows_a_node_live(self):
        workload(self.trace, 400, 3)
        with Node(ranks=2, memory="16MiB", disk="128MiB") as node:
            top = self.open(node)
            lines = top.shows("7/7 actors ready", "overview", "evicted", "q")
            self.assertTrue(all(len(line) <= 80 for line in lines))
            wait_until(lambda: top.word("stores", 2) == "0", 5, "no stores yet")
            replay = node.replay_start(self.trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "20")
            self.addCleanup(replay.stdout.close)
            self.addCleanup(replay.wait)
            self.addCleanup(replay.kill)
            wait_until(lambda: top.word("stores", 1) not in ("", "0"), 10, "stores a second are shown")
            wait_until(lambda: any(chr(0x2588) in line for line in top.lines()), 10, "a sparkline is drawn")
            top.keys("2")
            top.shows("memory", "sorted by memory", "model")
            top.keys("g")
            top.shows("/*/0/pool0", "/*/1/pool0", "prefix")
            top.keys("/", "*", "/", "1", "/", "Enter")
            wait_until(lambda: not any("/*/0/pool0" in line for line in top.lines()), 5, "rows are left out")
            top.shows("/*/1/pool0", "names with '*/1/'")
            top.keys("/", "Escape", "3")
            top.shows("tierer.0", "written since the start")
            top.keys("5")
            top.shows("coordinator", "transporter.0", "silent")
            top.keys("s")
            top.shows("sorted by processor time")
            top.keys("6")
            top.shows("engines of", "  replay", "% found), stores ")
            top.keys("/", "n", "o", "Enter")
            top.shows("names with 'no'")
            wait_until(lambda: not any("replay" in line for line in top.lines()), 5, "engines of other names are left out")
            top.keys("/", "Escape", "p")
            top.shows("PAUSED", "  replay")
            top.keys("p", "5")
            top.resize(120, 40)
            wait_until(lambda: len(top.lines()) >= 40, 5, "the window is larger")
            top.shows("coordinator", "h help", "q quit")
            top.resize(30, 5)
            top.shows("sluice", "1-6 views")
            top.resize(80, 24)
            top.keys("q")
            self.assertEqual(top.ended(), "0")

    def test_what_is_used_is_seen_while_it_is(self):
        workload(self.trace, 100, 5)
        with Node(ranks=2, memory="64MiB") as node:
            self.replay(node)
            top = self.open(node, "--view", "memory", "--prefixes")
            top.shows("/*/0/pool0", "/*/1/pool0", "uses/s")
            top.keys("s", "s", "s")
            top.shows("sorted by uses")

            def rates():
                """Uses a second by prefix, in the order of the screen: the last but one word of a row."""
                return {line.split()[-1]: line.split()[-2] for line in top.lines() if "pool0" in line}

            wait_until(lambda: list(rates().values()) == ["0", "0"], 10, "no value is in use")
            top.keys("r")  # the most used is last, whatever its name
            top.shows("reversed")
            replays = [node.replay_start(self.trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "50")]
            self.addCleanup(lambda: [each.kill() or each.communicate() for each in replays])

            def is_used():
                if replays[-1].poll() is not None:  # it was too fast for us
                    replays.append(node.replay_start(self.trace, "--ranks", "2", "--block-bytes", "4096", "--speed", "50"))
                return list(rates().values())[-1:] not in ([], ["0"])

            wait_until(is_used, 30, lambda: f"uses in {rates()}")
            found = []

            def is_told():
                is_used()
                found[:] = json.loads(node.ctl("top", "--once", "--json", "--interval", "200ms").stdout)["groups"]
                return found and found[0]["uses_per_second"] > 0

            wait_until(is_told, 30, lambda: f"uses in {found}")
            top.keys("q")
            self.assertEqual(top.ended(), "0")

    def test_hurt_and_stopped_nodes_are_said_and_come_back(self):
        with Node(ranks=1, memory="16MiB") as node:
            top = self.open(node, "--view", "actors")
            top.shows("keyer")
            wait_until(lambda: top.word("keyer", 2) == "1", 5, "one start is counted")
            with node.actors_stopped("swapper.0"):
                top.shows("swapper.0: stuck", seconds=10)
            pid = node.live_pid("keyer")
            os.kill(pid, signal.SIGKILL)
            node.wait_restarted("keyer", pid)
            wait_until(lambda: top.word("keyer", 2) == "2", 10, "the restart is counted")
            node.stop()
            top.shows("no node runs under the name", seconds=10)
            node.start()
            wait_until(lambda: not any("no node runs" in line for line in top.lines()), 10, "the node is back")
            top.shows("keyer", "actors ready")
            top.keys("Q")
            self.assertEqual(top.ended(), "0")

    def test_a_node_that_ends_between_two_readings_is_none(self):
        with Node(ranks=1, memory="16MiB") as node:
            python, go, waits = (os.path.join(self.directory, name) for name in ("python3", "go", "waits"))
            with open(python, "w", encoding="utf-8") as script:
                script.write(f"#!/bin/sh\n: >{waits}\nwhile [ ! -e {go} ]; do sleep 0.1; done\nexec {sys.executable} \"$@\"\n")
            os.chmod(python, 0o700)
            top = subprocess.Popen([CTL, "top", "--once", *node.where], env=dict(os.environ, PATH=f"{self.directory}:{os.environ['PATH']}"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            wait_until(lambda: os.path.exists(waits), 10, "the node is read once")
            node.stop()
            with open(go, "w", encoding="utf-8"):
                said = top.communicate(timeout=60)
            self.assertEqual(top.returncode, 3, said)
            self.assertIn("no node runs", said[1])

    @staticmethod
    def children(pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
            return [int(child) for child in children.read().split()]

    def readings_of(self, pid):
        """The process that top.py starts; python3 may have had others before."""
        def is_it(child):
            try:
                with open(f"/proc/{child}/cmdline", encoding="utf-8") as words:
                    return "--readings" in words.read()
            except (FileNotFoundError, ProcessLookupError):
                return False

        return wait_until(lambda: next(filter(is_it, self.children(pid)), None), 10, "its readings run")

    def test_an_interrupt_ends_it_as_the_signal_does(self):
        with Node(ranks=1, memory="16MiB") as node:
            top = subprocess.Popen([CTL, "top", "--once", "--interval", "60s", *node.where], start_new_session=True)
            self.addCleanup(top.kill)
            wait_until(lambda: self.children(top.pid), 10, "it reads the node")
            os.killpg(top.pid, signal.SIGINT)
            self.assertEqual(top.wait(timeout=30), -signal.SIGINT)

    def test_readings_that_are_killed_are_said(self):
        with Node(ranks=1, memory="16MiB") as node:
            top = subprocess.Popen([CTL, "top", "--once", *node.where], stderr=subprocess.PIPE, text=True)
            self.addCleanup(top.kill)
            os.kill(self.readings_of(top.pid), signal.SIGKILL)
            said = top.communicate(timeout=30)[1]
            self.assertEqual((top.returncode, said), (1, "sluicectl top: its readings were ended by signal 9\n"))
            live = self.open(node)
            live.shows("actors ready")
            shell, = subprocess.run([*live.tmux, "list-panes", "-F", "#{pane_pid}"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            os.kill(self.readings_of(self.children(shell)[0]), signal.SIGKILL)
            self.assertEqual(live.ended(), "1")
            live.shows("its readings were ended by signal 9")

    def test_what_cannot_be_shown_is_refused(self):
        where = ["--instance", "nobody", "--runtime-dir", self.directory + "/run", "--shm-dir", self.directory + "/shm"]

        def top(*arguments):
            done = subprocess.run([CTL, "top", *arguments, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            return done.returncode, done.stderr

        self.assertEqual(top("--once")[0], 3)
        for arguments, said in [((), "needs a terminal"), (("--json",), "--once"), (("--once", "--view", "nice"), "overview"),
                                (("--once", "--interval", "1ms"), "100ms"), (("--once", "word"), "is not an option"),
                                (("--once", "--filter", "x" * 40), "31 bytes")]:
            code, error = top(*arguments)
            self.assertEqual(code, 2, arguments)
            self.assertIn(said, error)

    def test_a_terminal_that_is_not_known_is_named(self):
        if shutil.which("script") is None:
            self.skipTest("skipped: no script")
        with Node(ranks=1, memory="16MiB") as node:
            command = f"{CTL} top {' '.join(node.where)}"
            for term, why in (("nothing-of-the-kind", "is not known"), ("dumb", "cannot move its cursor")):
                done = subprocess.run(["script", "-qec", command, "/dev/null"], env=dict(os.environ, TERM=term), timeout=60,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
                self.assertIn(f"'{term}' {why}", done.stdout)
                self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    main()
