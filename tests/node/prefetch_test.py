"""Prefetched values, and values that stay on a disk whose log is overwritten several times."""

import hashlib
import json
import os
import signal
import unittest

from node_support import Node, main
from values_support import put_all

SIZE = 512 << 10


def value(name):
    seed = hashlib.sha256(name.encode()).digest()
    return (seed * (SIZE // len(seed) + 1))[:SIZE]


class Stores:
    """Puts and reads on a node; every value read equals the one put."""

    def __init__(self, test, node):
        self.test, self.node, self.count = test, node, 0

    def put(self, name):
        self.node.ctl("put", name, "-", "--op-timeout", "60s", stdin=value(name))

    def churn(self, count):
        names = [f"cold{number}" for number in range(self.count, self.count + count)]
        put_all(self.node, {name: value(name) for name in names}, 60000)
        self.count += count

    def read(self, name):
        """Returns whether it was found."""
        got = self.node.ctl("get", name, "--op-timeout", "60s", check=False)
        self.test.assertIn(got.returncode, (0, 1), got.stderr)
        if got.returncode == 0:
            self.test.assertEqual(hashlib.sha256(got.stdout).digest(), hashlib.sha256(value(name)).digest(), name)
        return got.returncode == 0

    def place(self, name):
        return json.loads(self.node.ctl("stat", name, "--json").stdout)


def registrar_metric(node, name):
    for actor in json.loads(node.ctl("status", "--pages").stdout)["actors"]:
        if actor["name"] == "registrar":
            return actor["counters"][name]
    raise AssertionError("no registrar")


class Prefetch(unittest.TestCase):
    def test_prefetch_brings_into_memory_what_is_on_disk_alone(self):
        with Node(ranks=1, memory="16MiB", disk="256MiB") as node:
            stores = Stores(self, node)
            stores.churn(48)
            node.ctl("flush")
            stores.churn(16)  # now the first are only on disk
            node.ctl("flush")
            self.assertFalse(stores.place("cold0")["in_memory"])

            done = node.ctl("prefetch", "cold0", "cold1", "cold63", "nowhere", "--json", check=False)

            self.assertEqual(done.returncode, 1)
            answer = json.loads(done.stdout)
            self.assertEqual([(row["key"], row["code"], row["in_memory"]) for row in answer["keys"]],
                             [("cold0", "SL_OK", True), ("cold1", "SL_OK", True), ("cold63", "SL_ERR_EXISTS", True),
                              ("nowhere", "SL_ERR_NOT_FOUND", False)])
            self.assertFalse(answer["all"])
            self.assertTrue(stores.place("cold0")["in_memory"])
            self.assertTrue(stores.read("cold0") and stores.read("cold1"))
            again = node.ctl("prefetch", "cold0", "cold1", "--timeout", "20s")
            self.assertEqual(again.stdout.decode(), "memory\tcold0\nmemory\tcold1\n")

    def test_prefetch_takes_a_quarter_of_memory_at_most(self):
        with Node(ranks=1, memory="16MiB", disk="256MiB") as node:
            stores = Stores(self, node)
            stores.churn(64)
            node.ctl("flush")
            done = node.ctl("prefetch", *[f"cold{i}" for i in range(32)], "--json", "--timeout", "60s", check=False)
            codes = [row["code"] for row in json.loads(done.stdout)["keys"]]
            self.assertEqual(codes.count("SL_OK"), 8, codes)  # 4 of 16 MiB
            self.assertEqual(codes.count("SL_ERR_NO_SPACE"), 24, codes)

    def test_wrong_use_and_help(self):
        with Node(ranks=1, memory="16MiB") as node:
            self.assertEqual(node.ctl("prefetch", check=False).returncode, 2)
            self.assertEqual(node.ctl("prefetch", "k", "--timeout", "soon", check=False).returncode, 2)
            self.assertEqual(node.ctl("prefetch", "k", check=False).returncode, 1)
            self.assertIn(b"loaded", node.ctl("prefetch", "--help").stdout)
            self.assertEqual(node.ctl("prefetch", "k" * 1025, check=False).returncode, 2)


class Kept(unittest.TestCase):
    settings = ("--disk-segment", "4MiB")

    def test_what_is_wanted_stays_on_a_disk_that_is_written_round_and_round(self):
        with Node(ranks=1, memory="8MiB", disk="48MiB", settings=self.settings) as node:
            stores = Stores(self, node)
            there = asked = 0
            for turn in range(32):  # 160 MiB through 48 MiB; memory holds 16 values
                name = f"hot{turn % 4}"
                found = stores.read(name)
                if not found:  # the first time, and if a busy machine did not read it back in time
                    stores.put(name)
                asked += turn >= 4
                there += turn >= 4 and found
                stores.churn(10)
            kept = registrar_metric(node, "rewritten_from_disk_count")
            print(f"requested values were found {there} of {asked} times; {kept} times one was read back and rewritten")
            self.assertGreater(kept, 0)
            self.assertFalse(stores.read("cold0"))
            self.assertLessEqual(sum(os.stat(os.path.join(node.directory, "disk", name)).st_blocks * 512
                                     for name in os.listdir(node.directory + "/disk")), 48 << 20)

    def test_kills_meanwhile_lose_no_bytes_and_raise_nothing_that_was_removed(self):
        with Node(ranks=1, memory="8MiB", disk="32MiB", settings=self.settings) as node:
            stores = Stores(self, node)
            removed = []
            for turn in range(8):
                stores.put(f"hot{turn}")
                stores.churn(20)
                for kept in range(turn + 1):
                    stores.read(f"hot{kept}")
                gone = f"cold{stores.count - 7}"
                if node.ctl("rm", gone, check=False).returncode == 0:
                    removed.append(gone)
                victims = [("tierer.0",), ("registrar",), ("tierer.0", "registrar")][turn % 3]
                stores.churn(3)  # a log file is probably being reclaimed
                for name in victims:
                    pid = node.pid(name)
                    if pid:
                        os.kill(pid, signal.SIGKILL)
                for name in victims:
                    node.wait_restarted(name, 0)
                node.wait_ready(10)
                for name in removed:
                    self.assertFalse(stores.read(name), name)
            self.assertTrue(removed)
            node.ctl("flush")
            for turn in range(8):
                stores.read(f"hot{turn}")


if __name__ == "__main__":
    main()
