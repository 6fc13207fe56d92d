"""SGLang's information about sessions reaches the node with the pages: in the extra info of HiCache's calls, and with the session that
the linker offloads for."""

import json
import os
import types
import unittest

from python_support import client
from node_support import PATIENCE, Node, main, wait_until
import sglang_linker_test as of_linker
import sglang_standin as standin

from sluice.sglang import hicache, linker

PAGE, PAGES = of_linker.PAGE, of_linker.PAGES
TOLD = 604800


class OnNode(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node(ranks=1, memory="16MiB", disk="256MiB"))
        self.client = self.enterContext(client(self.node))

    def turns(self):
        for actor in json.loads(self.node.ctl("status", "--pages").stdout)["actors"]:
            if actor["name"] == "coordinator":
                return actor["counters"].get("session_turns", 0)
        raise AssertionError("no coordinator")


class Hicache(OnNode):
    """The caller fills the extra info of HiCache's calls with the session: SGLang's own linker of Mooncake does so."""

    def storage(self, **config):
        told = {"interface_v1": 1, "instance": self.node.instance,
                "settings": {"runtime_dir": self.node.directory + "/run", "shm_dir": self.node.shm}}
        made = hicache.SluiceHiCache(standin.Config(extra_config=told, is_mla_model=True, **config), {})
        self.addCleanup(made.close)
        self.pool = standin.MLATokenToKVPoolHost(PAGE, PAGES, [64])
        made.register_mem_pool_host(self.pool)
        return made

    def info(self, prefix=(), **extra):
        return types.SimpleNamespace(prefix_keys=list(prefix), extra_info=extra)

    def indices(self, pages):
        return standin.Tensor(standin.array.array("q", [page * PAGE + i for page in pages for i in range(PAGE)]))

    def test_the_session_of_a_call_is_told(self):
        storage = self.storage()
        self.assertEqual(storage.batch_set_v1(["a", "b"], self.indices([0, 1]), self.info(session_id="chat 7")), [True] * 2)
        self.assertIs(self.client.session_pause("chat 7", TOLD), True)
        self.assertEqual(storage.batch_get_v1(["b"], self.indices([3]), self.info(["a"], session_id="chat 7")), [True])
        self.assertEqual(self.turns(), 1)
        transfers = [standin.PoolTransfer(standin.PoolName.KV, self.indices([2]), ["c"])]
        ends = self.info(["a", "b"], session_id="chat 7", sluice_hints={"session": "ends"})
        self.assertEqual(storage.batch_set_v2(transfers, ends), {standin.PoolName.KV: [True]})
        self.assertIs(self.client.session_pause("chat 7", TOLD), False)

    def test_what_is_not_understood_is_left_out_and_said(self):
        storage = self.storage()
        for extra in ({"session_id": 7}, {"session_id": ""}, {"sluice_hints": {"session": "soon"}}, {"sluice_hints": 3}):
            storage.said._last.clear()
            with self.subTest(extra=extra), self.assertLogs("sluice.sglang.hicache", "WARNING") as lines:
                self.assertEqual(storage.batch_set_v1(["a"], self.indices([0]), self.info(**extra)), [True])
            self.assertIn("hints of a call are ignored", lines.output[0])
        for nothing in (None, types.SimpleNamespace(prefix_keys=None, extra_info=None), self.info()):
            self.assertEqual(storage.batch_get_v1(["a"], self.indices([0]), nothing), [True])


class Linker(OnNode):
    """SGLang names the session when it offloads. When it loads, the last page determines the session."""

    make, transfers = of_linker.OnNode.make, staticmethod(of_linker.OnNode.transfers)

    def offloaded(self, made, keys, pages, session_id, state=None):
        self.assertTrue(made.offload(self.transfers(keys, pages, state), session_id=session_id))
        wait_until(made.num_completed_offloads, 10 * PATIENCE, "it is offloaded")
        self.assertIs(made.pop_completed_offload(), True)

    def test_a_load_is_a_turn_of_the_session_that_offloaded_its_last_page(self):
        made = self.make(self.node)
        self.offloaded(made, ["system", "a"], [0, 1], "chat 7")
        self.offloaded(made, ["b"], [2], "chat 8")
        for name in ("chat 7", "chat 8"):
            wait_until(lambda name=name: self.client.session_pause(name, TOLD), 10 * PATIENCE, "the session is known")
        self.assertEqual(self.turns(), 0)
        self.assertTrue(made.load("request", self.transfers(["system", "a"], [4, 5])))
        self.assertTrue(made.finish_layer_wise_loading(made.start_layer_wise_loading()))
        wait_until(lambda: self.turns() == 1, 10 * PATIENCE, "the turn is known")
        self.assertTrue(made.load("other", self.transfers(["system"], [4])))
        self.assertTrue(made.finish_layer_wise_loading(made.start_layer_wise_loading()))
        made.reset()  # also waits for the hints to be sent
        self.assertEqual(self.turns(), 2)

    def test_values_of_all_pools_come_back_when_the_pause_is_over(self):
        made, keys = self.make(self.node), ["a", "b", "c"]

        def here():
            return sum(self.client.stat(info.key).in_memory for info in self.client.list("sglang/"))

        for turn in ("offloaded", "loaded"):
            with self.subTest(turn):
                if turn == "offloaded":
                    self.offloaded(made, keys, [0, 1, 2], "chat 7", state=3)
                else:
                    self.assertTrue(made.load("request", self.transfers(keys, [4, 5, 6], state=4)))
                    self.assertTrue(made.finish_layer_wise_loading(made.start_layer_wise_loading()))
                made.reset()  # also waits for the hints to be sent
                self.assertIs(self.client.session_pause("chat 7", TOLD), True)
                for first in range(0, 200, 8):  # other values fill all of memory
                    self.client.put_batch([f"{turn} {first + i}" for i in range(8)], [os.urandom(256 << 10)] * 8, timeout=60 * PATIENCE)
                    self.node.ctl("flush")
                self.assertEqual(here(), 0)
                self.assertIs(self.client.session_pause("chat 7", 0), True)
                wait_until(lambda: here() == 2 * len(keys) + 1, 10 * PATIENCE, "pages, their index and the state are in memory")

    def test_what_is_no_name_is_left_out(self):
        made = self.make(self.node)
        for number, name in enumerate((7, "", "a\0b", None)):
            self.offloaded(made, [f"k{number}"], [0], name)
        self.assertTrue(made.load("request", self.transfers(["k0"], [1])))
        self.assertTrue(made.finish_layer_wise_loading(made.start_layer_wise_loading()))
        made.reset()
        self.assertEqual(self.turns(), 0)

    def test_what_session_had_a_page_is_bounded(self):
        sessions = linker.Sessions(types.SimpleNamespace(warn=self.fail))
        sessions.note([str(i) for i in range(linker.SESSION_PAGES_MAX + 10)], "many")
        self.assertIsNone(sessions.find(["9"]))
        self.assertEqual(sessions.find(["9", "10"]), "many")
        self.assertIsNone(sessions.find([]))


if __name__ == "__main__":
    main()
