"""Leases, pins and bundles, on a node with only a registrar, which is all that objects in memory need."""

import json
import os
import select
import subprocess
import time
import unittest

from object_api import BIN, SLOWDOWN, BareNode, suite

PROBE = os.path.join(BIN, "..", "tests", "terms_probe")


class TermsNode(BareNode):
    def __init__(self, lease_ttl):
        super().__init__(memory="64MiB", disk="0")
        self.actors = [("registrar", None)]
        self.settings += ["--memory-chunk", "16MiB", "--lease-ttl", lease_ttl]

    def __enter__(self):
        super().__enter__()
        end = time.monotonic() + 20 * SLOWDOWN
        while self.usable_bytes() < 64 << 20:  # fewer values fit until all of it is populated
            if time.monotonic() > end:
                logs = self.logs()
                self.__exit__()
                raise AssertionError(logs)
            time.sleep(0.02)
        return self

    def usable_bytes(self):
        shown = json.loads(self.ctl("status", "--metrics", "--json").stdout)
        return next(actor for actor in shown["actors"] if actor["name"] == "registrar")["counters"]["usable_bytes"]

    def start_probe(self, what):
        return subprocess.Popen([PROBE, self.instance, self.directory + "/run", self.shm, what], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def registrar_anew(self):
        self.processes["registrar"].kill()
        self.processes["registrar"].wait()
        self.processes["registrar"].stdout.close()
        self.start("registrar")


@unittest.skipUnless(os.path.exists(PROBE), "terms_probe was not built")
class Terms(unittest.TestCase):
    def finish(self, node, probe):
        errors = probe.communicate(timeout=90 * SLOWDOWN)[1]
        self.assertEqual(probe.returncode, 0, errors.decode() + node.logs())

    def run_probe(self, what, lease_ttl="1h"):
        with TermsNode(lease_ttl) as node:
            self.finish(node, node.start_probe(what))

    def await_ready(self, node, probe):
        line = select.select([probe.stdout], [], [], 30 * SLOWDOWN)[0] and probe.stdout.readline()
        if line != b"ready\n":
            probe.kill()
            self.fail(f"{line} {probe.communicate()[1].decode()} {node.logs()}")

    def test_look_ups_lease_and_puts_do_not(self):
        self.run_probe("leasing")

    def test_what_a_look_up_tells(self):
        self.run_probe("telling")

    def test_a_batch_of_many(self):
        self.run_probe("many")

    def test_a_node_full_of_leases_takes_puts_again_when_they_end(self):
        self.run_probe("full", f"{5 * SLOWDOWN // 4}s")

    def test_a_copy_that_outlives_its_lease(self):
        self.run_probe("lease_over", "1us")

    def test_pins(self):
        self.run_probe("pins", "0")

    def test_bundles(self):
        self.run_probe("bundles")

    def test_what_is_being_written_is_busy(self):
        self.run_probe("writing")

    def test_a_killed_registrar_keeps_all_of_it(self):
        with TermsNode("1h") as node:
            probe = node.start_probe("restart")
            self.await_ready(node, probe)
            node.registrar_anew()
            probe.stdin.write(b"\n")
            self.finish(node, probe)

    def test_leases_that_come_with_another_registrar(self):
        with TermsNode("0") as node:
            probe = node.start_probe("late")
            self.await_ready(node, probe)
            node.settings[node.settings.index("--lease-ttl") + 1] = "1h"
            node.registrar_anew()
            probe.stdin.write(b"\n")
            self.finish(node, probe)


if __name__ == "__main__":
    suite.run()
