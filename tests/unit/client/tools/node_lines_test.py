"""The output of sluicectl status, tiers and nodes for given actors' pages and metrics: device memory in the fabric, figures."""

import json
import os
import sys
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "client", "tools", "ctl"), os.path.join(ROOT, "client", "tools", "command"), os.path.join(ROOT, "tests", "support")]
import node  # noqa: E402
import suite  # noqa: E402


class DeviceMemory(unittest.TestCase):
    def test_it_says_what_is_registered_and_why_the_rest_is_not(self):
        for metric, value, shown in (
                ("pool_bytes", 5, '{"dmabuf_bytes":0,"left_out":[]}'),
                ("pool_device_bytes", 4096, '{"dmabuf_bytes":4096,"left_out":[]}'),
                ("pool_device_out_fabric_bytes", 1, '{"dmabuf_bytes":0,"left_out":[{"cause":"fabric","bytes":1,"why":"the fabric does not support dmabuf '
                 '(tcp, or libibverbs without ibv_reg_dmabuf_mr)"}]}'),
                ("pool_device_out_swapper_bytes", 2, '{"dmabuf_bytes":0,"left_out":[{"cause":"swapper","bytes":2,"why":"the driver or the GPU '
                 'exports no dmabuf, or the rank\'s swapper did not answer"}]}'),
                ("pool_device_out_nic_bytes", 3, '{"dmabuf_bytes":0,"left_out":[{"cause":"nic","bytes":3,"why":"the NIC or its driver did not '
                 'register it"}]}')):
            pages = [{"name": "registrar", "counters": {metric: 9}}, {"name": "transporter.0", "counters": {metric: value}}]
            self.assertEqual(json.dumps(node.fabric_memory(pages), separators=(",", ":")), shown)

    def test_without_a_node_there_is_none(self):
        self.assertEqual(node.fabric_memory([]), {"dmabuf_bytes": 0, "left_out": []})


class Figures(unittest.TestCase):
    def test_a_quantile_is_the_end_of_its_bucket_and_the_last_has_none(self):
        family = "sluice_load_duration_seconds"

        def shown(*counts):
            samples = [{"name": family + "_bucket", "labels": {"actor": "coordinator", "le": end}, "value": count}
                       for end, count in zip(("0.0005", "0.002", "+Inf"), counts)]
            samples.append({"name": family + "_sum", "labels": {"actor": "coordinator"}, "value": 7})
            found = node.figures([{"name": family, "samples": samples}])["loads"]
            return found["p50_ns"], found["p99_ns"]

        self.assertEqual(shown(0, 0, 0), (0, 0))
        self.assertEqual(shown(98, 99, 100), (500_000, 2_000_000))
        self.assertEqual(shown(0, 60, 100), (2_000_000, -1))


if __name__ == "__main__":
    suite.run()
