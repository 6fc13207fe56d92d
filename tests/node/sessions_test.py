"""Sessions that announce when they continue find their blocks in memory, whichever process is killed meanwhile."""

import json
import os
import signal
import tempfile
import unittest

from node_support import PACE, Node, main, wait_until

SESSIONS, TURNS, PAUSE_MS, FIRST_BLOCKS = 50, 10, 20_000, 20
SPEED = 10
UNIT = 2 * 4096  # a block of two ranks
MEMORY_BLOCKS, DISK_BLOCKS = 360, 6000


def trace(path):
    """Sessions in turn; each turn has all blocks of the one before except its last, which is cut, and one more."""
    rows = []
    for turn in range(TURNS):
        for session in range(SESSIONS):
            first = session * 1000
            kept = list(range(first, first + FIRST_BLOCKS + turn))
            cut = first + 500 + turn
            rows.append((turn * PAUSE_MS + session * PAUSE_MS // SESSIONS, kept + [cut]))
    with open(path, "w", encoding="utf-8") as file:
        for at_ms, ids in rows:
            file.write(json.dumps({"timestamp": at_ms, "input_length": len(ids) * 512 - 100, "output_length": 1, "hash_ids": ids}) + "\n")


def counters(node, name):
    for actor in json.loads(node.ctl("status", "--pages").stdout)["actors"]:
        if actor["name"] == name:
            return actor["counters"]
    raise AssertionError(f"no {name}")


class Sessions(unittest.TestCase):
    def node(self, *settings):
        return Node(ranks=2, memory=str(MEMORY_BLOCKS * UNIT), disk=str(DISK_BLOCKS * UNIT + (16 << 20)), settings=("--disk-segment", "2MiB", *settings))

    def start(self, node, directory, speed=SPEED):
        trace(directory + "/trace")
        return node.replay_start(directory + "/trace", "--ranks", "2", "--block-bytes", "4096", "--op-timeout", "30s", "--speed", str(speed),
                                 "--pauses-reported", "1", "--json", directory + "/report")

    def report(self, node, replay, directory):
        output, _ = replay.communicate(timeout=300)
        self.assertEqual(replay.returncode, 0, f"{output}\n{node.logs()}")
        with open(directory + "/report", encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual((report["mismatches"], report["errors"], report["lost"]), (0, 0, 0))
        self.assertEqual(report["pauses_reported"], SESSIONS * (TURNS - 1))
        return report

    def played(self, *settings, speed=SPEED):
        with tempfile.TemporaryDirectory() as directory, self.node(*settings) as node:
            report = self.report(node, self.start(node, directory, speed), directory)
            shown = json.loads(node.ctl("tiers", "--json").stdout)["memory"]["ahead"]
            return report["hits_by_tier"], shown

    def test_what_is_told_is_in_memory_when_it_is_asked_for(self):
        without, nothing = self.played("--prefetch-sessions", "0")
        print(f"without {without} {nothing}")
        for speed in (SPEED, SPEED / 4):  # a busy machine may not read them in 2 s: then it gets 8
            told, shown = self.played(speed=speed)
            print(f"announced at speed {speed}: {told} {shown}")
            if told["disk"] < without["disk"] / 2 and shown["units_wanted"] > without["disk"] / 4:
                break
        self.assertGreater(without["disk"], SESSIONS * FIRST_BLOCKS * (TURNS - 1) // 2, "memory is too large for this test")
        self.assertEqual((nothing["objects"], nothing["session_prefetches"]), (0, 0))
        self.assertLess(told["disk"], without["disk"] / 2)
        self.assertGreater(shown["units_wanted"], without["disk"] / 4)
        self.assertLessEqual(shown["sessions"], SESSIONS)

    def more_come(self, node, when):
        """Waits for prefetched blocks."""
        def came():
            return counters(node, "coordinator").get("session_parts_prefetched", 0)
        before = came()
        wait_until(lambda: came() > before, 15, f"blocks are prefetched {when}")

    def test_it_goes_on_when_registrar_tierer_and_coordinator_are_killed(self):
        with tempfile.TemporaryDirectory() as directory, self.node() as node:
            replay = self.start(node, directory, SPEED / PACE)
            self.more_come(node, "at first")
            for actor in ("registrar", "tierer.0", "coordinator", "registrar"):
                self.assertIsNone(replay.poll(), "the replay was over too soon")
                pid = node.live_pid(actor)
                os.kill(pid, signal.SIGKILL)
                node.wait_restarted(actor, pid)
                self.more_come(node, f"after {actor} was killed")
            report = self.report(node, replay, directory)
            self.assertGreater(report["hits"], 0)


if __name__ == "__main__":
    main()
