"""Values from and into pieces of memory, on a node with only a registrar, which is all that objects in memory need."""

import json
import os
import select
import shutil
import subprocess
import time
import unittest

from object_api import BIN, SLOWDOWN, BareNode, suite

DEVICE_PROBE = os.path.join(BIN, "..", "tests", "device_probe")
MEMORY_PROBE = os.path.join(BIN, "..", "tests", "engine_memory_probe")
DRIVER = os.path.join(BIN, "..", "tests", "fake", "libcuda.so.1")
PROBE = os.path.join(BIN, "..", "tests", "pieces_probe")


class PiecesNode(BareNode):
    def __init__(self, memory="64MiB", disk="0"):
        super().__init__(memory=memory, disk=disk)
        self.actors = [("registrar", None)] + ([("tierer", 0)] if disk != "0" else [])
        self.settings += ["--memory-chunk", "16MiB"]

    def used_bytes(self):
        shown = json.loads(self.ctl("status", "--pages").stdout)
        return next(actor for actor in shown["actors"] if actor["name"] == "registrar")["counters"]["used_bytes"]

    def wait_used(self, wanted):
        end = time.monotonic() + 20 * SLOWDOWN
        while (used := self.used_bytes()) != wanted:
            if time.monotonic() > end:
                raise AssertionError(f"{used} bytes are used, not {wanted}\n{self.logs()}")
            time.sleep(0.02)

    def start_probe(self, what):
        return subprocess.Popen([PROBE, self.instance, self.directory + "/run", self.shm, what], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def await_line(probe, wanted):
    line = select.select([probe.stdout], [], [], 30 * SLOWDOWN)[0] and probe.stdout.readline()
    if line != wanted:
        probe.kill()
        raise AssertionError(f"{line} instead of {wanted}: {probe.communicate()[1].decode()}")


def go_on(probe):
    probe.stdin.write(b"\n")
    probe.stdin.flush()


@unittest.skipUnless(os.path.exists(PROBE), "pieces_probe was not built")
class Pieces(unittest.TestCase):
    def run_probe(self, what, **options):
        with PiecesNode(**options) as node:
            done = subprocess.run([PROBE, node.instance, node.directory + "/run", node.shm, what],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOWDOWN)
            self.assertEqual(done.returncode, 0, done.stderr.decode() + node.logs())

    def test_a_value_is_the_same_whatever_pieces_it_comes_in(self):
        self.run_probe("shapes")

    def test_what_is_no_value_is_refused_and_says_why(self):
        self.run_probe("refusals")

    def test_ranges_of_a_value_and_what_lies_behind_its_end(self):
        self.run_probe("reading")

    def test_a_batch_of_many_messages(self):
        self.run_probe("many")

    def test_a_draft_is_what_was_written_and_zero_elsewhere(self):
        self.run_probe("draft_shapes")

    def test_threads_write_one_draft(self):
        self.run_probe("draft_threads")

    def test_what_a_draft_refuses(self):
        self.run_probe("draft_refusals")

    def test_dropped_drafts_give_their_room_back(self):
        self.run_probe("draft_drops")

    def test_a_draft_whose_time_is_over(self):
        self.run_probe("draft_expiry")

    def test_a_writer_that_was_stopped_writes_over_nothing(self):
        self.run_probe("draft_stops")

    def test_a_killed_writer_leaves_nothing(self):
        with PiecesNode() as node:
            probe = node.start_probe("draft_hold")
            await_line(probe, b"holding\n")
            node.wait_used(16 << 20)
            probe.kill()
            probe.communicate()
            node.wait_used(0)

    def test_drafts_over_restarts_of_the_registrar_and_the_node(self):
        with PiecesNode() as node:
            probe = node.start_probe("draft_restarts")
            await_line(probe, b"registrar\n")
            node.processes["registrar"].kill()
            node.processes["registrar"].wait()
            node.processes["registrar"].stdout.close()
            node.start("registrar")
            go_on(probe)
            await_line(probe, b"replace\n")
            node.stop()
            shutil.rmtree(node.shm)
            node.start("registrar")
            go_on(probe)
            errors = probe.communicate(timeout=60 * SLOWDOWN)[1]
            self.assertEqual(probe.returncode, 0, errors.decode() + node.logs())

    def test_a_value_stays_until_another_replaces_it(self):
        self.run_probe("replacing")

    @unittest.skipUnless(os.path.exists(os.path.join(BIN, "sluice-tierer")), "sluice-tierer was not built")
    def test_values_on_disk_alone_come_into_pieces(self):
        self.run_probe("from_disk", disk="1GiB")

    def test_threads_share_a_client_and_a_fork_does_not(self):
        self.run_probe("threads")


@unittest.skipUnless(os.path.exists(DEVICE_PROBE) and os.path.exists(DRIVER), "device_probe was not built")
class Device(unittest.TestCase):
    def run_probe(self, what):
        with PiecesNode() as node:
            done = subprocess.run([DEVICE_PROBE, node.instance, node.directory + "/run", node.shm, what, DRIVER],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOWDOWN)
            self.assertEqual(done.returncode, 0, done.stderr.decode() + node.logs())

    def test_device_memory_is_put_and_got(self):
        self.run_probe("moves")

    def test_pieces_of_device_and_host_memory_in_one_batch(self):
        self.run_probe("mixed")

    def test_a_draft_from_device_memory(self):
        self.run_probe("draft")

    def test_a_draft_that_could_not_be_written_has_the_digest_of_its_bytes(self):
        self.run_probe("draft-fails")

    def test_without_pinned_arenas_a_buffer_serves(self):
        self.run_probe("bounce")

    def test_arenas_are_pinned_in_small_steps_beside_the_calls(self):
        self.run_probe("pins")

    def test_what_could_not_be_pinned_is_tried_again(self):
        self.run_probe("retries")

    def test_what_can_never_be_pinned_is_left(self):
        self.run_probe("gives-up")

    def test_a_capture_of_another_thread_is_not_spoilt(self):
        self.run_probe("captures")

    def test_each_call_of_the_driver_fails_in_turn(self):
        self.run_probe("fails")

    def test_small_pieces_and_digests_by_kernels(self):
        self.run_probe("kernels")

    def test_no_batch_where_registered_memory_has_another_address_on_the_device(self):
        self.run_probe("attribute")

    def test_copies_that_do_not_end(self):
        self.run_probe("hangs")

    def start_probe(self, node, what):
        probe = subprocess.Popen([DEVICE_PROBE, node.instance, node.directory + "/run", node.shm, what, DRIVER],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)
        return probe

    def test_what_a_gpu_may_write_to_is_taken_until_it_has_ended(self):
        with PiecesNode() as node:
            probe = self.start_probe(node, "late")
            await_line(probe, b"over\n")
            node.wait_used(128)  # only "small"
            go_on(probe)
            self.assertEqual(probe.wait(30 * SLOWDOWN), 0, node.logs())

    def test_what_a_gpu_may_read_from_is_taken_until_it_has_ended(self):
        with PiecesNode() as node:
            probe = self.start_probe(node, "late-get")
            for _ in range(2):
                await_line(probe, b"held\n")
                time.sleep(1)  # long enough for an unpinned value to be evicted
                self.assertGreater(node.used_bytes(), 4096)
                go_on(probe)
                await_line(probe, b"over\n")
                node.wait_used(128)
                go_on(probe)
            self.assertEqual(probe.wait(30 * SLOWDOWN), 0, node.logs())

    def test_nothing_lands_in_another_s_value_when_the_client_was_closed(self):
        self.run_probe("closed-while-it-hangs")

    def test_an_arena_that_goes_while_a_gpu_hangs_stays_pinned(self):
        self.run_probe("ends-while-it-hangs")

    def test_copies_come_after_the_engine_s_event(self):
        self.run_probe("event")

    def test_an_event_that_one_thread_waits_for_keeps_no_other_from_its_copies(self):
        self.run_probe("event-others")


@unittest.skipUnless(os.path.exists(MEMORY_PROBE) and os.path.exists(DRIVER), "engine_memory_probe was not built")
class EngineMemory(unittest.TestCase):
    def run_probe(self, what):
        with PiecesNode() as node:
            done = subprocess.run([MEMORY_PROBE, node.instance, node.directory + "/run", node.shm, what, DRIVER],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOWDOWN)
            self.assertEqual(done.returncode, 0, done.stderr.decode() + node.logs())
            left = [name for name in os.listdir(node.directory + "/run") if name.startswith("memory.")]
            self.assertEqual(left, [])
            return node.logs()

    def test_parts_of_an_allocation_are_registered_by_base_and_offset(self):
        self.assertIn("1 ranks, 1 pools, cuda ipc", self.run_probe("allocated"))

    def test_memory_that_was_freed_is_not_written_to(self):
        self.run_probe("reallocated")

    def test_memory_of_many_handles_is_handed_out(self):
        self.assertIn("1 ranks, 1 pools, cuda memory of many handles", self.run_probe("segments"))

    def test_memory_that_slept_is_registered_anew(self):
        self.run_probe("sleeps")

    def test_memory_that_cannot_be_shared_is_refused_with_what_helps(self):
        self.run_probe("refused")

    def test_each_call_of_the_driver_fails_in_turn(self):
        self.run_probe("fails")


if __name__ == "__main__":
    suite.run()
