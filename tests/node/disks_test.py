"""A node with several disks: one that dies, is lost or cannot be used costs only its own objects; paths are added, removed and swapped."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import unittest

from node_support import CTL, Node, main, wait_until
from values_support import Values, put_all

SIZE = 256 << 10
DISK = 128 << 20
SETTINGS = ("--disk-segment", "2MiB", "--memory-chunk", "4MiB")


class DisksNode(Node):
    """Two paths, A and B; far less memory than the tests put."""

    def __init__(self, paths="AB"):
        super().__init__(ranks=1, memory="4MiB", disk=str(DISK), settings=SETTINGS)
        self.settings += ["--disk-path", self.paths(paths)]
        self.values = {}
        self.said = {}  # errors of keys that were not found
        self.random = random.Random(7)

    def path(self, letter):
        return f"{self.directory}/disk-{letter}"

    def paths(self, letters):
        return ",".join(self.path(letter) for letter in letters)

    def use(self, letters):
        self.settings[-1] = self.paths(letters)

    def put(self, name, count):
        put_all(self, {f"{name}/{index}": self.values.setdefault(f"{name}/{index}", self.random.randbytes(SIZE)) for index in range(count)}, 60000)

    def flush(self):
        self.ctl("flush", "--timeout", "120s")

    def missing(self, keys=None, timeout_ms=60000):
        """Keys that are missing, or are not found in time."""
        missing = []
        with Values(self) as client:
            for key in keys or self.values:
                got = client.get(key, timeout_ms)
                if got is None:
                    self.said[key] = client.why
                    missing.append(key)
                elif got != self.values[key]:
                    raise AssertionError(f"{key}: wrong bytes\n{self.logs()}")
        return sorted(missing)

    def disks(self):
        shown = json.loads(self.ctl("tiers", "--json").stdout)
        return {disk["name"]: disk for disk in shown["disk"]["tierers"]}

    def kill(self, name):
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid


class Disks(unittest.TestCase):
    def node(self, paths="AB"):
        node = DisksNode(paths)
        node.__enter__()
        self.addCleanup(node.__exit__)
        return node

    def all_there(self, node, keys=None):
        missing = node.missing(keys)
        if missing:
            self.fail("\n".join(f"{key}: {node.said[key]}" for key in missing) + node.logs())

    def test_killed_tierer_under_load_and_a_restart_of_all_lose_nothing(self):
        node = self.node()
        stopping, kills = threading.Event(), []

        def killer():
            pace = random.Random(3)
            while not stopping.wait(0.1 + pace.random() / 2):
                if node.processes().get("tierer.1", (0, ""))[1] == "running":
                    with contextlib.suppress(ProcessLookupError):  # it has ended, but the supervisor does not know yet
                        kills.append(node.kill("tierer.1"))

        thread = threading.Thread(target=killer)
        thread.start()
        try:
            for turn in range(16):  # long enough that it dies several times meanwhile
                if turn < 5 or len(kills) < 3:
                    node.put(f"load{turn}", 12)
                    stopping.wait(0.1)
            wait_until(lambda: kills, 20, "a tierer runs, and is killed")
        finally:
            stopping.set()
            thread.join()
        # Killed often, it waits before it restarts; meanwhile reads of its objects fail as unreachable.
        node.wait_ready(30)
        node.put("after", 12)  # on a busy machine it may have died each time before it got any value
        node.flush()
        self.all_there(node)
        node.stop()
        node.start()
        disks = node.disks()
        self.assertEqual(sorted(disks), ["tierer.0", "tierer.1"])
        for disk in disks.values():
            self.assertGreater(disk["objects"], 0)
            self.assertLessEqual(disk["used_bytes"], DISK // 2)
        self.all_there(node)
        print(f"{len(kills)} kills; objects by disk:", [disk["objects"] for disk in disks.values()])

    def test_disk_that_lost_its_files_costs_its_objects(self):
        node = self.node()
        node.put("old", 40)
        node.flush()
        on_b = node.disks()["tierer.1"]["objects"]
        self.assertGreater(on_b, 0)
        with node.actors_stopped():  # so that it does not restart before its files are removed
            old = node.kill("tierer.1")
            shutil.rmtree(node.path("B"))
        node.wait_restarted("tierer.1", old, 20)
        node.wait_ready(30)
        lost = node.missing()
        self.assertLessEqual(len(lost), on_b)
        self.assertLess(len(lost), 40)
        node.put("old", 40)
        node.put("new", 10)
        node.flush()
        self.all_there(node)
        node.stop()
        node.start()
        self.all_there(node)

    def test_disk_that_cannot_be_used_is_gone_around_and_comes_back(self):
        node = self.node()
        node.put("old", 40)
        node.flush()
        os.rename(node.path("B"), node.path("B") + ".away")
        with open(node.path("B"), "w", encoding="utf-8") as file:
            file.write("no directory")
        node.kill("tierer.1")
        wait_until(lambda: "tierer.1 not reachable" in node.ctl("status").stdout.decode(), 20, "the node reports it")
        node.put("new", 24)
        node.flush()
        new = [key for key in node.values if key.startswith("new/")]
        self.all_there(node, new)
        os.remove(node.path("B"))
        os.rename(node.path("B") + ".away", node.path("B"))
        wait_until(lambda: node.processes()["tierer.1"][1] == "running", 20, "the tierer is back")
        node.wait_ready(30)
        self.all_there(node)

    def change(self, node, letters, keep):
        node.stop(*(["--keep-arena"] if keep else []))
        node.use(letters)
        node.start()

    def check_changes(self, keep):
        node = self.node("AB")
        node.put("old", 24)
        node.flush()
        self.change(node, "BA", keep)
        self.all_there(node)
        self.change(node, "BAC", keep)
        node.put("new", 24)
        node.flush()
        self.all_there(node)
        on_a = node.disks()["tierer.1"]["objects"]
        self.assertGreater(on_a, 0)
        self.assertGreater(node.disks()["tierer.2"]["objects"], 0)
        self.change(node, "CB", keep)
        wait_until(lambda: json.loads(node.ctl("status", "--json").stdout), 20, "the node answers")
        lost = node.missing(timeout_ms=20000)
        self.assertLessEqual(len(lost), on_a)
        self.assertLess(len(lost), len(node.values))
        for name in ("old", "new"):
            node.put(name, 24)
        node.flush()
        self.all_there(node)
        print(f"memory kept {keep}: path removed, {len(lost)} of {len(node.values)} objects were only there")

    def test_changed_paths_with_the_memory_kept(self):
        self.check_changes(True)

    def test_changed_paths_after_a_stop(self):
        self.check_changes(False)

    def test_wrong_lists_are_refused_by_name(self):
        for value, said in (("/x,,/y", "entry 2 is empty"), ("/x,/y,/x/", "'/x' is listed twice"),
                            (",".join(f"/{number}" for number in range(9)), "9 directories, at most 8")):
            done = subprocess.run([CTL, "config", "--disk-path", value], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stdout)


if __name__ == "__main__":
    main()
