"""The byte limit of the disk under churn: the space that all files really take, sampled throughout. SL_CHURN_SECONDS: how long."""

import os
import re
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "node"))

from node_support import Node, main, workload  # noqa: E402

SECONDS = float(os.environ.get("SL_CHURN_SECONDS", "8"))
CEILING = 64 << 20


def real_bytes(directory):
    """The sum of the blocks of all files; a file that is removed meanwhile counts as empty."""
    total = 0
    for entry in os.scandir(directory):
        try:
            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            pass
    return total


class Churn(unittest.TestCase):
    def test_ceiling_holds_at_every_sample(self):
        stopping = threading.Event()
        samples, peak, over = 0, 0, []

        def sample(directory):
            nonlocal samples, peak
            while not stopping.wait(0.002):
                seen = real_bytes(directory)
                samples += 1
                peak = max(peak, seen)
                if seen > CEILING:
                    over.append(seen)

        with Node(ranks=1, memory="16MiB", disk=str(CEILING), settings=("--disk-segment", "4MiB")) as node:
            thread = threading.Thread(target=sample, args=(node.directory + "/disk",))
            thread.start()
            try:
                end, rounds = time.monotonic() + SECONDS, 0
                while rounds == 0 or time.monotonic() < end:
                    trace = f"{node.directory}/trace.{rounds}"
                    workload(trace, 200, 100 + rounds)
                    node.ctl("replay", trace, "--block-bytes", "65536", "--op-timeout", "60s", timeout=3600)
                    os.unlink(trace)
                    rounds += 1
                node.ctl("flush", "--timeout", "300s")
                counters = dict(re.findall(r"\b(\w+)[ =]+(\d+)", node.ctl("status", "--metrics").stdout.decode()))
            finally:
                stopping.set()
                thread.join()
        reclaimed, written = int(counters["reclaimed_segments"]), int(counters["bytes_written"])
        print(f"{rounds} workloads, {written} bytes written, {reclaimed} segments reclaimed, {samples} samples, "
              f"at most {peak} of {CEILING} bytes")
        self.assertEqual(over, [])
        self.assertGreater(samples, 0)
        self.assertGreater(reclaimed, 0)  # otherwise there was no churn


if __name__ == "__main__":
    main()
