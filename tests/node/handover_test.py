"""Hand-overs from a prefill to a decode engine on one node, through storage and direct, undisturbed and with processes killed."""

import json
import os
import signal
import subprocess
import threading
import time
import unittest

from node_support import PACE, PATIENCE, PD_ENGINES, Node, fabric_without_peers, main, metric, wait_until

# Undisturbed hand-overs must not fail for lack of time.
PATIENT = ["--op-timeout", "30s"]


class Handover(unittest.TestCase):
    def demo(self, node, *arguments, check=True, environment=None):
        done = subprocess.run([PD_ENGINES, *arguments, *node.where], timeout=300 * PATIENCE, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env={**node.environment, **(environment or {})})
        if check:
            self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}\n{node.logs()}")
        return json.loads(done.stdout) if done.stdout else done

    def assert_nothing_is_left(self, node):
        wait_until(lambda: metric(node, "coordinator", "handovers_active") == 0, 12, "no hand-over is left")
        for name in ("held_count", "held_bytes", "claim_count"):
            wait_until(lambda name=name: metric(node, "registrar", name) == 0, 5, f"the registrar's {name} is 0")

    def assert_no_byte_is_wrong(self, report):
        self.assertEqual((report["wrong_bytes"], report["late_writes"], report["blocks_held"]), (0, 0, 0))

    def test_a_thousand_requests_with_incomplete_last_blocks(self):
        with Node(ranks=2, memory="256MiB") as node:
            report = self.demo(node, "--requests", "1000", "--ranks", "2", "--concurrency", "32", *PATIENT)
            self.assert_no_byte_is_wrong(report)
            self.assertEqual(report["complete"], 1000)
            self.assertGreater(report["partial_tails"], 800)
            self.assertGreater(report["output_stored"], 0)
            self.assert_nothing_is_left(node)

    def test_incomplete_blocks_go_when_their_time_is_over(self):
        with Node(ranks=1, settings=["--handover-partial-ttl", "1ms"]) as node:
            report = self.demo(node, "--requests", "50", "--blocks", "1", *PATIENT)
            self.assertEqual(report["complete"], 50)
            whole = 50 - report["partial_tails"] + report["output_stored"]
            wait_until(lambda: metric(node, "registrar", "block_count") <= whole, 5, "incomplete blocks are gone")

    def test_held_blocks_survive_a_memory_that_is_too_small_for_all(self):
        # 64 requests of 4 or more blocks of 64 KiB do not fit into 8 MiB; 16 at a time do.
        with Node(ranks=1, memory="16MiB") as node:
            report = self.demo(node, "--requests", "300", "--block-bytes", "64KiB", "--blocks", "8", "--concurrency", "8",
                               *PATIENT)
            self.assert_no_byte_is_wrong(report)
            self.assertEqual(report["complete"], 300)
            self.assertGreater(metric(node, "registrar", "evicted_count"), 0)
            self.assert_nothing_is_left(node)

    def test_prefill_killed_in_the_middle(self):
        with Node(ranks=2, memory="256MiB") as node:
            report = self.demo(node, "--requests", "1000", "--ranks", "2", "--concurrency", "64", "--op-timeout", f"{2 * PACE}s",
                               "--kill-prefill")
            self.assert_no_byte_is_wrong(report)
            self.assertTrue(report["prefill_killed"])
            self.assertGreaterEqual(report["complete"], 400)
            self.assertGreater(report["errors_502"], 0)
            self.assertEqual(report["complete"] + report["errors_502"], 1000)
            self.assert_nothing_is_left(node)

    def test_a_thousand_requests_pushed(self):
        with Node(ranks=2, memory="256MiB", settings=fabric_without_peers()) as node:
            report = self.demo(node, "--mode", "direct", "--requests", "1000", "--ranks", "2", "--concurrency", "32", *PATIENT)
            self.assert_no_byte_is_wrong(report)
            self.assertEqual((report["complete"], report["send_failed"]), (1000, 0))
            # The first ones, at most all that are under way at once, may start before the fabric knows the pools: they use storage.
            self.assertGreaterEqual(metric(node, "coordinator", "handovers_pushed"), 1000 - 32 - 10)
            self.assert_nothing_is_left(node)

    def test_prefill_killed_in_the_middle_of_pushing(self):
        for by_layers in ([], ["--by-layers"]):
            with self.subTest(by_layers=by_layers), Node(ranks=2, memory="256MiB", settings=fabric_without_peers()) as node:
                report = self.demo(node, "--mode", "direct", *by_layers, "--requests", "400", "--ranks", "2", "--concurrency", "64",
                                   "--op-timeout", f"{2 * PACE}s", "--kill-prefill")
                self.assert_no_byte_is_wrong(report)
                self.assertGreater(report["errors_502"], 0)
                self.assertEqual(report["complete"] + report["errors_502"], 400)
                self.assert_nothing_is_left(node)

    def test_layers_are_pushed_while_the_next_ones_are_computed(self):
        # Prefill computes a last layer only after decode has reported that the first one has arrived, and is right.
        with Node(ranks=2, memory="256MiB", settings=fabric_without_peers()) as node:
            report = self.demo(node, "--mode", "direct", "--by-layers", "--requests", "200", "--ranks", "2", "--layers", "7",
                               "--block-bytes", "50001", "--concurrency", "8", *PATIENT)
            self.assert_no_byte_is_wrong(report)
            self.assertEqual((report["complete"], report["send_failed"]), (200, 0))
            pushed = metric(node, "coordinator", "handovers_pushed")
            self.assertGreaterEqual(pushed, 190)
            self.assertGreaterEqual(report["layers_ahead"], pushed)
            self.assertGreaterEqual(report["layers_early"], pushed)
            self.assert_nothing_is_left(node)

    def test_layers_are_stored_while_the_next_ones_are_computed(self):
        with Node(ranks=2, memory="256MiB", disk="64MiB") as node:
            report = self.demo(node, "--by-layers", "--requests", "200", "--ranks", "2", "--layers", "7", "--block-bytes", "50001",
                               *PATIENT)
            self.assert_no_byte_is_wrong(report)
            self.assertEqual((report["complete"], report["send_failed"]), (200, 0))
            self.assertGreater(metric(node, "coordinator", "layers_copied"), 0)
            self.assert_nothing_is_left(node)

    def test_what_cannot_be_pushed_goes_through_storage(self):
        for settings in ((), (*fabric_without_peers(), "--fabric-pools", "false")):
            with self.subTest(settings=settings), Node(ranks=1, settings=settings) as node:
                for by_layers in ([], ["--by-layers"]):
                    report = self.demo(node, "--mode", "direct", *by_layers, "--requests", "20", *PATIENT)
                    self.assert_no_byte_is_wrong(report)
                    self.assertEqual((report["complete"], report["send_failed"]), (20, 0))
                self.assertGreaterEqual(metric(node, "coordinator", "handovers_fallen_back"), 40)
                self.assertEqual(metric(node, "coordinator", "handovers_pushed"), 0)
                self.assert_nothing_is_left(node)

    def test_actors_killed_meanwhile(self):
        with Node(ranks=2, memory="256MiB", settings=fabric_without_peers()) as node:
            stop = threading.Event()

            def kill():
                for turn in range(1000):
                    if stop.wait(0.3):
                        return
                    name = ("coordinator", "registrar", "swapper.1", "keyer", "transporter.0")[turn % 5]
                    old = node.pid(name)
                    if old != 0:
                        try:
                            os.kill(old, signal.SIGKILL)
                        except ProcessLookupError:
                            continue
                        node.wait_restarted(name, old)

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                end = time.monotonic() + 10
                requests = complete = 0
                while time.monotonic() < end:
                    mode = (["storage"], ["direct", "--by-layers"], ["direct"], ["storage", "--by-layers"])[requests // 300 % 4]
                    report = self.demo(node, "--mode", *mode, "--requests", "300", "--ranks", "2", "--concurrency", "16",
                                       "--seed", str(requests), check=False)
                    self.assert_no_byte_is_wrong(report)
                    requests += 300
                    complete += report["complete"]
                    self.assertEqual(report["complete"] + report["errors_502"] + report["errors_other"], 300)
            finally:
                stop.set()
                killer.join()
            self.assertGreater(complete, requests // 2)

    def test_the_environment_is_strict(self):
        with Node(ranks=1) as node:
            for text in ("flase", "", "2"):
                done = self.demo(node, check=False, environment={"FD_PD_TRANSFER_VIA_STORAGE": text})
                self.assertEqual(done.returncode, 2, text)
                self.assertIn("FD_PD_TRANSFER_VIA_STORAGE", done.stderr)
            self.assertEqual(self.demo(node, environment={"FD_PD_TRANSFER_VIA_STORAGE": "True"})["mode"], "storage")


if __name__ == "__main__":
    main()
