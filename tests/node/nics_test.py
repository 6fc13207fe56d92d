"""NICs as nodes, tiers and doctor show them, on a fake tree of sysfs; a node without any works as before."""

import json
import os
import shutil
import tempfile
import threading
import time
import unittest

from node_support import Node, main, wait_until

GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


class Tree:
    """A copy of the kernel's tree below /sys, with the files that are read."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="sl-sysfs-")

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    def nic(self, name, pci, socket, state="4: ACTIVE", netdev="eth0", mtu=9000):
        device = f"devices/{pci}"
        port = f"{device}/infiniband/{name}/ports/1"
        files = {"state": state, "rate": "100 Gb/sec (4X EDR)", "link_layer": "Ethernet", "gids/0": GID, "gid_attrs/types/0": "RoCE v2",
                 "gid_attrs/ndevs/0": netdev, "counters/port_xmit_data": "0", "counters/port_rcv_data": "0"}
        for file, text in files.items():
            self.write(f"{port}/{file}", text)
        self.write(f"{device}/numa_node", str(socket))
        self.write(f"class/net/{netdev}/mtu", str(mtu))
        os.symlink("../..", os.path.join(self.root, f"{device}/infiniband/{name}/device"))
        os.symlink(f"../../{device}/infiniband/{name}", os.path.join(self.root, "class/infiniband", name))

    def two_sockets(self):
        os.makedirs(os.path.join(self.root, "class/infiniband"))
        self.nic("mlx5_0", "pci0000:10/0000:10:01.0/0000:11:00.0", 0)
        self.nic("mlx5_1", "pci0000:80/0000:80:01.0/0000:81:00.0", 1, netdev="eth1", mtu=1500)
        self.nic("mlx5_2", "pci0000:80/0000:80:02.0/0000:82:00.0", 1, state="1: DOWN", netdev="eth2")
        return self


def by_name(rows):
    return {row["name"]: row for row in rows}


class Nics(unittest.TestCase):
    def setUp(self):
        self.tree = Tree()
        self.addCleanup(shutil.rmtree, self.tree.root)
        self.visible = os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        self.addCleanup(lambda: self.visible is not None and os.environ.update(CUDA_VISIBLE_DEVICES=self.visible))

    def ctl(self, node, *words, check=True):
        return node.ctl(*words, "--sysfs", self.tree.root, check=check).stdout.decode()

    def checks(self, *words):
        """doctor's report on NICs for a node that does not run: (level, text) by check."""
        node = Node()
        self.addCleanup(shutil.rmtree, node.directory)
        lines = json.loads(self.ctl(node, "doctor", "--json", *words, check=False))["checks"]
        return {check: [(line["level"], line["text"]) for line in lines if line["check"] == check] for check in ("nic", "mtu", "nic_plan")}

    def test_a_node_without_nics_shows_none(self):
        os.makedirs(os.path.join(self.tree.root, "class"))
        with Node(ranks=1, memory="64MiB", settings=["--nic", "auto"]) as node:
            self.assertEqual(json.loads(self.ctl(node, "tiers", "--json"))["remote"]["nics"], [])
            self.assertNotIn("NIC", self.ctl(node, "tiers"))

    def test_tiers_and_nodes_show_state_speed_and_load(self):
        self.tree.two_sockets()
        counter = "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data"
        stop = threading.Event()

        def traffic():
            began = time.monotonic()
            while not stop.wait(0.01):  # 5 GB/s of 12.5, in words of 4 bytes
                self.tree.write(counter + ".new", str(int((time.monotonic() - began) * 5e9 / 4)))
                os.replace(os.path.join(self.tree.root, counter + ".new"), os.path.join(self.tree.root, counter))

        with Node(ranks=1, memory="64MiB") as node:
            thread = threading.Thread(target=traffic)
            thread.start()
            try:
                def shown():
                    rows = by_name(json.loads(self.ctl(node, "tiers", "--json"))["remote"]["nics"])
                    return rows if rows["mlx5_1"]["received_bytes_s"] > 2e9 else None

                tiers = wait_until(shown, 10, "the traffic is seen")  # the thread that makes it may get no core for a while
                nodes = by_name(json.loads(self.ctl(node, "nodes", "--json"))["nics"])
                text = self.ctl(node, "nodes")
            finally:
                stop.set()
                thread.join()
        self.assertEqual(list(tiers), ["mlx5_0", "mlx5_1", "mlx5_2"])
        self.assertEqual(set(nodes), set(tiers))
        self.assertEqual([row["state"] for row in tiers.values()], ["ACTIVE", "ACTIVE", "DOWN"])
        self.assertEqual([row["usable"] for row in tiers.values()], [True, True, False])
        self.assertEqual([row["numa_node"] for row in tiers.values()], [0, 1, 1])
        self.assertEqual(tiers["mlx5_0"]["speed_mbit_s"], 100000)
        self.assertEqual((tiers["mlx5_0"]["load_percent"], tiers["mlx5_0"]["received_bytes_s"]), (0, 0))
        self.assertAlmostEqual(tiers["mlx5_1"]["load_percent"], tiers["mlx5_1"]["received_bytes_s"] / 12.5e9 * 100, places=3)
        self.assertEqual(tiers["mlx5_1"]["sent_bytes_s"], 0)
        self.assertEqual(tiers["mlx5_0"]["ranks"], [])  # without verbs they serve no rank
        self.assertIn("100 Gbit/s", text)
        self.assertIn("DOWN", text)

    def test_doctor_says_what_each_port_is_good_for(self):
        self.tree.two_sockets()
        said = self.checks("--fabric", "verbs", "--nic", "auto", "--ranks", "4")
        self.assertEqual([level for level, _ in said["nic"]], ["ok", "ok", "warn"])
        self.assertIn("mlx5_0: active, Ethernet, 100 Gbit/s, socket 0, 1 usable GIDs", said["nic"][0][1])
        self.assertIn("mlx5_2: state 'DOWN'", said["nic"][2][1])
        self.assertEqual([level for level, _ in said["mtu"]], ["ok", "warn"])
        self.assertEqual(said["nic_plan"], [("ok", "mlx5_0 serves ranks 0,2"), ("ok", "mlx5_1 serves ranks 1,3")])

    def test_doctor_judges_lists(self):
        self.tree.two_sockets()
        for words, level, text in ((("--nic", "mlx5_1"), "ok", "mlx5_1 serves ranks 0,1"),
                                   (("--nic", "mlx5_0,mlx5_1", "--nic-by", "rank"), "ok", "mlx5_0 serves ranks 0"),
                                   (("--nic", "mlx5_2"), "fail", "mlx5_2: not usable"),
                                   (("--nic", "mlx5_7"), "fail", "mlx5_7: no such RDMA port"),
                                   (("--nic", "mlx5_0,,mlx5_1"), "fail", "entry 1 of 'mlx5_0,,mlx5_1' is empty"),
                                   (("--nic", "mlx5_0,mlx5_1"), "fail", "CUDA_VISIBLE_DEVICES is not set"),
                                   ((), "ok", "first device")):
            with self.subTest(words=words):
                got = self.checks("--fabric", "verbs", "--ranks", "2", *words)["nic_plan"][0]
                self.assertEqual(got[0], level, got)
                self.assertIn(text, got[1])

    def test_doctor_fails_when_no_port_works(self):
        os.makedirs(os.path.join(self.tree.root, "class/infiniband"))
        self.assertEqual(self.checks("--fabric", "verbs")["nic"], [("fail", "no RDMA device, but fabric = verbs")])
        self.assertEqual(self.checks()["nic"], [("ok", "no RDMA device")])
        self.tree.nic("mlx5_0", "pci0000:10/0000:10:01.0/0000:11:00.0", 0, state="1: DOWN")
        said = self.checks("--fabric", "verbs", "--nic", "auto")
        self.assertEqual(said["nic"][0][0], "fail")
        self.assertEqual(said["nic_plan"][0][0], "fail")
        self.assertEqual(self.checks()["nic"][0][0], "warn")


if __name__ == "__main__":
    main()
