"""Programs of another build: a difference is reported with both numbers, and no program waits for what cannot change."""

import hashlib
import os
import struct
import time
import unittest

from node_support import PATIENCE, Node, main, store_setup

LAYOUT_AT, METRICS_VERSION_AT = 20, 8


class Versions(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1, memory="64MiB")
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)

    def forge(self, name, at):
        with open(f"{self.node.shm}/{name}", "r+b") as segment:
            segment.seek(at)
            segment.write(struct.pack("<I", 4711))

    def refused(self, *words):
        started = time.monotonic()
        done = self.node.ctl(*words, check=False)
        self.assertEqual(done.returncode, 3, done)
        self.assertLess(time.monotonic() - started, 2 * PATIENCE)
        return done.stderr.decode()

    def test_a_client_of_another_build_says_so_at_once(self):
        for name in ("index", "arena.0"):
            self.forge(name, LAYOUT_AT)
            for words in (("get", "key"), ("ls",), ("rm", "key")):
                said = self.refused(*words)
                for text in ("has layout 4711 (sluice ", "this program (sluice ", "knows 1", "use the sluice package"):
                    self.assertIn(text, said)

    def test_status_of_another_build_is_not_taken_for_no_node(self):
        for name in os.listdir(self.node.shm):
            if name.startswith("metrics."):
                self.forge(name, METRICS_VERSION_AT)
        said = self.refused("status")
        self.assertIn("has format 4711", said)
        self.assertIn("use the sluice package", said)

    def test_setup_of_the_store_says_so(self):
        self.forge("index", LAYOUT_AT)
        done = store_setup(self.node)
        if done is None:
            self.skipTest("no mooncake.store in this build")
        self.assertEqual(done[0], 1, done)
        self.assertIn("has layout 4711", done[1])

    def test_a_registrar_refuses_what_it_cannot_read_and_touches_nothing(self):
        self.node.ctl("put", "kept", stdin=b"value")
        self.node.stop("--keep-arena")
        for name in ("index", "arena.0", "leases", "settled", "counts", "labels", "seen", "changes"):
            path = f"{self.node.shm}/{name}"
            if not os.path.exists(path):
                continue
            with self.subTest(segment=name):
                self.forge(name, LAYOUT_AT)
                before = contents(self.node.shm)

                done = self.node.supervisor("start", *self.node.settings, check=False)

                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(f"'{name}' has layout 4711 (sluice ", done.stdout)
                self.assertIn("knows 1: use the sluice package of the node's version, or lose what is in memory: sluice-node stop", done.stdout)
                self.assertEqual(contents(self.node.shm), before)
                with open(path, "r+b") as segment:
                    segment.seek(LAYOUT_AT)
                    segment.write(struct.pack("<I", 1))
        self.node.start()
        self.assertEqual(self.node.ctl("get", "kept").stdout, b"value")


def contents(directory):
    """{file: digest} of the shm files, except the pages of actors' metrics: actors that wait for a registrar count that."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if not name.startswith(("metrics.", "pins.")):
            with open(f"{directory}/{name}", "rb") as segment:
                found[name] = hashlib.sha256(segment.read()).hexdigest()
    return found


if __name__ == "__main__":
    main()
