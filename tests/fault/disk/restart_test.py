"""The disk tier of real nodes: all processes killed, shared memory lost, tierers killed while they write."""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "node"))

from node_support import TRACE, Node, expected_hits, main, wait_until, workload  # noqa: E402

LONG = os.environ.get("SL_DISK_BED_LONG") == "1"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as line:
            return line.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def all_killed(node):
    pids = [row[0] for row in node.processes().values() if row[0] != 0]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(pid, signal.SIGKILL)
    return not any(alive(pid) for pid in pids)


def kill_everything(node):
    """Ends a node as a power cut does: kills every process at once and removes its shared memory."""
    supervisor = node.supervisor_pid()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not alive(supervisor), 10, "the supervisor is dead")  # first: it may be about to restart the others
    wait_until(lambda: all_killed(node) and (time.sleep(0.1) or all_killed(node)), 10, "everything is dead")
    shutil.rmtree(node.shm, ignore_errors=True)


def read(node, key):
    """The value, or None if absent; right after a start the arena may have no space for it yet."""
    end = time.monotonic() + 60
    while True:
        got = node.ctl("get", key, "-", check=False)
        if got.returncode == 0 or b"not found" in got.stderr or time.monotonic() > end:
            return got


class Restart(unittest.TestCase):
    def replay(self, node, trace, *arguments):
        report = node.directory + "/report.json"
        node.ctl("replay", trace, "--op-timeout", "60s", "--json", report, *arguments, timeout=3600)
        with open(report, encoding="utf-8") as lines:
            report = json.load(lines)
        self.assertEqual((report["mismatches"], report["errors"], report["lost"]), (0, 0, 0))
        return report

    def check_replay(self, trace, memory, disk, *arguments):
        references, hits = expected_hits(trace)
        with Node(ranks=1, memory=memory, disk=disk, settings=("--disk-segment", "4MiB")) as node:
            first = self.replay(node, trace, *arguments)
            self.assertEqual((first["block_references"], first["hits"]), (references, hits))
            node.ctl("flush", "--timeout", "300s")
            kill_everything(node)
            node.start()
            again = self.replay(node, trace, *arguments)
            self.assertEqual(again["hits"], references)
            self.assertEqual(again["blocks_stored"], 0)
            self.assertGreater(again["hits_by_tier"]["disk"], 0)
            print("first:", first["hits_by_tier"], "after the kill:", again["hits_by_tier"])

    def test_replay_hits_everything_after_all_was_killed(self):
        with tempfile.TemporaryDirectory() as directory:
            trace = directory + "/trace.jsonl"
            workload(trace, 300, 11)
            self.check_replay(trace, "16MiB", "512MiB")

    @unittest.skipUnless(LONG and os.path.exists(TRACE), "the production trace: SL_DISK_BED_LONG=1")
    def test_production_trace_after_all_was_killed(self):
        self.check_replay(TRACE, "256MiB", "6GiB")

    def test_durable_objects_survive_kills_of_a_writing_tierer(self):
        """A state file lists pending and durable values; durable ones must be found, pending ones may be."""
        rng = random.Random(5)
        rounds, objects = (12, 40) if LONG else (3, 14)
        kills = 0
        with Node(ranks=1, memory="64MiB", disk="256MiB", settings=("--disk-segment", "4MiB")) as node:
            state = node.directory + "/state.jsonl"
            values = {}

            def note(what, keys):
                with open(state, "a", encoding="utf-8") as lines:
                    lines.write(json.dumps([what, keys]) + "\n")

            for number in range(rounds):
                stopping = threading.Event()

                def killer(stopping=stopping):
                    nonlocal kills
                    pace = random.Random(number)
                    while not stopping.wait(0.05 + pace.random() / 2):
                        pid = node.pid("tierer.0")
                        if pid:
                            try:
                                os.kill(pid, signal.SIGKILL)
                                kills += 1
                            except ProcessLookupError:
                                continue

                thread = threading.Thread(target=killer)
                thread.start()
                try:
                    for index in range(objects):
                        key = f"round{number}/object{index}"
                        values[key] = rng.randbytes(rng.choice([1, 4096, 70000, 1 << 20]))
                        note("pending", [key])
                        node.ctl("put", key, "-", stdin=values[key])
                finally:
                    stopping.set()
                    thread.join()
                if number % 3 != 2:  # every third kill hits writes in progress
                    wait_until(lambda: node.pid("tierer.0") != 0, 20, "the tierer is back")
                    node.ctl("flush", "--timeout", "120s")
                    note("durable", [key for key in values if key.startswith(f"round{number}/")])
                kill_everything(node)
                node.start()
                durable = set()
                with open(state, encoding="utf-8") as lines:
                    for line in lines:
                        what, keys = json.loads(line)
                        durable.update(keys if what == "durable" else [])
                lost, wrong, said = 0, 0, []
                for key, value in values.items():
                    got = read(node, key)
                    if got.returncode == 0:
                        wrong += got.stdout != value
                    elif key in durable:
                        lost += 1
                        said.append(f"{key}: {got.stderr.decode()}")
                self.assertEqual((lost, wrong), (0, 0), "".join(said) + node.logs())
        print(f"{kills} tierers and {rounds} nodes killed, {len(values)} objects: durable lost 0, wrong 0")


if __name__ == "__main__":
    main()
