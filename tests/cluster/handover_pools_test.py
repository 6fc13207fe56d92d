"""Direct hand-overs straight between the pools of engines: nothing is copied but by the sockets."""

import os
import signal
import sys
import threading
import unittest

from cluster_support import PACE, Cluster, counter, main, missing, wait_alive, wait_until
from pushing_support import Pushing

POOLS = ("--fabric-pools", "true", "--mr-bytes-max", "1MiB")


def moved(node, way):
    """Bytes that the node's transporter pushed (out) or took in (in) straight, and bytes that it and its swappers copied for it."""
    swappers = [name for name in node.processes() if name.startswith("swapper.")]
    copied = sum(counter(node, name, f"{way}_bytes") for name in swappers)
    straight = counter(node, "transporter.0", "pushed_pool_bytes" if way == "out" else "arrived_pool_bytes")
    return straight, copied + counter(node, "transporter.0", "copied_bytes")


class HandoverPools(Pushing):
    def pushed(self, cluster, *arguments, requests=200, straight=True):
        a, b = cluster.nodes
        wait_alive(a, "b")
        wait_alive(b, "a")
        report = self.demo(a, b, "--mode", "direct", "--requests", str(requests), "--concurrency", "16", "--op-timeout",
                           "30s", *arguments)
        self.assertEqual(report["complete"], requests, report)
        self.assertEqual(counter(a, "coordinator", "handovers_pushed"), requests)
        self.assert_nothing_is_left(a, b)
        if straight:
            out, copied = moved(a, "out")
            self.assertGreater(out, 0)
            self.assertEqual(copied, 0)
            self.assertEqual(moved(b, "in"), (out, 0))
            for node in (a, b):
                self.assertEqual(counter(node, "coordinator", "pushes_straight_refused"), 0)
        return report

    def test_ranks(self):
        for ranks in (1, 2, 4, 8):
            with self.subTest(ranks=ranks), Cluster(2, ranks=ranks, memory="128MiB", settings=POOLS) as cluster:
                self.pushed(cluster, "--ranks", str(ranks))

    def test_a_thousand_requests(self):
        with Cluster(2, ranks=2, memory="256MiB", settings=POOLS) as cluster:
            self.pushed(cluster, "--ranks", "2", requests=1000)
            self.assertEqual(counter(cluster.nodes[1], "transporter.0", "pool_tickets"), 1000)


if __name__ == "__main__":
    reason = missing()
    if reason is not None:
        print(f"skipped: {reason}")
        sys.exit(77)
    main()
