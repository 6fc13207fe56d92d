#!/usr/bin/env python3
"""Which device a node's swapper runs on, and how a node handles a lost GPU.

    device_node_test.py [FOLDER OF A DRIVER THAT PLAYS A GPU]"""
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "node"))
from node_support import BIN, Node, suite, wait_until  # noqa: E402

PLAYED = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def swapper(node, rank=0):
    pages = json.loads(node.ctl("status", "--json", check=False).stdout)["actors"]
    return next((page for page in pages if page["name"] == f"swapper.{rank}"), None)


def gpus():
    """The number of the driver's devices, up to four, as a power of two; in a process of its own."""
    code = ("import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(0)\n"
            "print(count.value if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    return next(count for count in (4, 2, 1, 0) if int(said or 0) >= count)


class Device(unittest.TestCase):
    def test_auto_says_what_it_took_and_why(self):
        node = Node(ranks=1, memory="64MiB", settings=("--device", "auto"))
        if PLAYED:
            node.environment["LD_LIBRARY_PATH"] = PLAYED
        with node:
            reason = wait_until(lambda: swapper(node)["reason"], 5, "the swapper's reason in status")
            print(reason)
            self.assertRegex(reason, "device cuda: GPU 0 Fake" if PLAYED else r"^device (host: device cuda: |cuda: GPU 0 )\w+")
            self.assertIn(reason, node.logs())
            self.assertEqual(swapper(node)["health"], "ready")

    def test_blocks_of_a_gpu_are_stored_and_loaded(self):
        node = Node(ranks=1, memory="64MiB", settings=("--device", "auto"))
        if PLAYED:
            node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_SHARED="1")
        with node:
            reason = wait_until(lambda: swapper(node)["reason"], 5, "the swapper's reason in status")
            if not reason.startswith("device cuda: "):
                self.skipTest(reason)
            for maker in ("ipc", "sluice", "allocated", "segments", "event"):
                probe = subprocess.run([os.path.join(BIN, "..", "tests", "engine_probe"), node.instance, node.directory + "/run", node.shm, maker],
                                       env=node.environment, capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(probe.stdout, "ok 2621440\n", maker + probe.stderr + node.logs())
            counters = swapper(node)["counters"]
            print(counters)
            self.assertEqual(counters["parts_out"], 80)
            self.assertEqual(counters["parts_in"], 80)

    def test_one_process_a_rank_each_on_its_gpu(self):
        """All ranks read what half of the ranks wrote: memory in the middle of an allocation, runs of heads, full checks of loads."""
        ranks = 4 if PLAYED else gpus()
        if ranks == 0:
            self.skipTest("no driver with a GPU here")
        node = Node(ranks=ranks, memory="64MiB", settings=("--device", "auto", "--swap-measure", "false", "--load-verify", "all"))
        if PLAYED:
            node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_SHARED="1", FAKE_CUDA_GPUS="4")
        with node:
            probe = subprocess.run([os.path.join(BIN, "..", "tests", "parts_probe"), node.instance, node.directory + "/run", node.shm,
                                    f"gpu{ranks}"], env=node.environment, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(probe.returncode, 0, probe.stderr + node.logs())
            for rank in range(ranks):
                page = swapper(node, rank)
                self.assertRegex(page["reason"], rf"^device cuda: GPU {rank} ")
                counters = page["counters"]
                print(rank, counters)
                self.assertEqual(counters["parts_verified"], counters["parts_in"])
                self.assertGreater(counters["parts_in"], 0)
                self.assertEqual(counters["parts_corrupt"], 0)

    @unittest.skipUnless(PLAYED, "no driver that plays a GPU, or no kernels")
    def test_older_drivers_and_gpus_get_what_they_take(self):
        # Driver (CUDA), architecture, the swapper's report about its kernels, its health.
        for number, capability, kernels, health in (
                (13000, 90, r", kernels by (nvcc|ptxas|PTX) [\d.]+", "ready"),
                (12000, 90, r"driver 12\.0.*, kernels by (ptxas 1[12]\.\d sm_90|PTX 7\.0)$", "ready"),
                (12080, 100, r"driver 12\.8.*, kernels by PTX 7\.0$", "ready"),
                (12000, 75, r"; only copies, no kernels: refused by the driver: .*PTX 7\.0: code 209", "degraded")):
            node = Node(ranks=1, memory="64MiB", settings=("--device", "auto", "--swap-measure", "false"))
            node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_SHARED="1", FAKE_CUDA_NUMBER=str(number),
                                    FAKE_CUDA_CAPABILITY=str(capability))
            with self.subTest(number=number, capability=capability), node:
                reason = wait_until(lambda: swapper(node)["reason"], 5, "the swapper's reason in status")
                print(reason)
                self.assertRegex(reason, kernels)
                self.assertIn(reason, node.logs())
                self.assertEqual(swapper(node)["health"], health)
                probe = subprocess.run([os.path.join(BIN, "..", "tests", "engine_probe"), node.instance, node.directory + "/run", node.shm, "ipc"],
                                       env=node.environment, capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(probe.stdout, "ok 2621440\n", probe.stderr + node.logs())
                if health == "degraded":
                    self.assertEqual(swapper(node)["counters"]["kernels"], 0)

    @unittest.skipUnless(PLAYED, "no driver that plays a GPU, or no kernels")
    def test_engine_on_another_gpu_is_told_which(self):
        node = Node(ranks=1, memory="64MiB", settings=("--device", "cuda", "--swap-measure", "false"))
        node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_SHARED="1")
        with node:
            wait_until(lambda: swapper(node)["reason"].startswith("device cuda: GPU 0"), 5, "the GPU")
            self.assertIn("rank 0 has GPU-fafafafa-fafa-fafa-fafa-fafafafafafa, CUDA_VISIBLE_DEVICES not set", node.logs())
            other = dict(node.environment, FAKE_CUDA_UUID="18", CUDA_VISIBLE_DEVICES="5,6")
            probe = subprocess.run([os.path.join(BIN, "..", "tests", "engine_probe"), node.instance, node.directory + "/run", node.shm, "ipc", "3"],
                                   env=other, capture_output=True, text=True, timeout=120, check=False)
            print(probe.stdout)
            self.assertIn("the engine's memory is on GPU-12121212-1212-1212-1212-121212121212 (CUDA_VISIBLE_DEVICES 5,6), "
                          "the swapper has GPU-fafafafa-fafa-fafa-fafa-fafafafafafa (not set)", node.logs())
            self.assertIn("GPU-fafafafa-fafa-fafa-fafa-fafafafafafa (not set)", probe.stdout)
            self.assertEqual(probe.returncode, 1)
            probe = subprocess.run([os.path.join(BIN, "..", "tests", "engine_probe"), node.instance, node.directory + "/run", node.shm, "sluice"],
                                   env=other, capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(probe.stdout, "memory of the engine's GPU: \n")  # it can check that before it maps

    @unittest.skipUnless(PLAYED, "no driver that plays a GPU, or no kernels")
    def test_system_that_is_not_ready_is_waited_for_and_the_host_not_taken(self):
        node = Node(ranks=1, memory="64MiB", settings=("--device", "auto", "--swap-measure", "false"))
        marker = node.directory + "/not-ready"
        node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_NOT_READY=marker)
        with node:
            wait_until(lambda: swapper(node)["reason"].startswith("device cuda: GPU 0"), 5, "the GPU")
            with open(marker, "w", encoding="utf-8"):
                pass
            os.kill(node.pid("swapper.0"), signal.SIGKILL)
            page = wait_until(lambda: (page := swapper(node))["reason"].find("fabricmanager") > 0 and page, 5, "the reason in status")
            print(page["health"], page["reason"])
            self.assertEqual(page["health"], "stopped")
            self.assertIn("code 802", page["reason"])
            os.unlink(marker)
            wait_until(lambda: swapper(node)["reason"].startswith("device cuda: GPU 0") and swapper(node)["health"] == "ready", 15,
                       "the GPU, once the system is ready")

    @unittest.skipUnless(PLAYED, "no driver that plays a GPU, or no kernels")
    def test_lost_gpu_restarts_the_swapper_and_not_the_node(self):
        node = Node(ranks=1, memory="64MiB", settings=("--device", "cuda", "--swap-measure", "false"))
        marker = node.directory + "/lost"
        node.environment.update(LD_LIBRARY_PATH=PLAYED, FAKE_CUDA_STICKY_ONCE=marker)
        with node:
            wait_until(lambda: swapper(node)["counters"].get("pinned_bytes") == 64 << 20, 5, "the arena is pinned")
            before = {name: node.pid(name) for name in ("registrar", "coordinator", "keyer", "swapper.0")}
            with open(marker, "w", encoding="utf-8"):
                pass
            wait_until(lambda: swapper(node)["incarnation"] == 2 and swapper(node)["health"] == "ready", 10,
                       "another swapper")
            self.assertFalse(os.path.exists(marker))
            wait_until(lambda: swapper(node)["counters"].get("pinned_bytes") == 64 << 20, 5, "pinned again")
            self.assertIn("CUDA_ERROR_ILLEGAL_ADDRESS", node.logs())
            after = {name: node.pid(name) for name in before}
            self.assertNotEqual(before.pop("swapper.0"), after.pop("swapper.0"))
            self.assertEqual(before, after)


if __name__ == "__main__":
    suite.run()
