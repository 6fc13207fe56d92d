"""Hints about values with keys of their own: values are read back from disk before their session continues, stay longer or shorter, and
engines' back ends pass on the hints of requests."""

import asyncio
import json
import os
import threading
import time
import types
import unittest
from unittest import mock

import engine_stubs as stubs
from python_support import client, sluice
from node_support import PATIENCE, Node, main, wait_until
import lmcache_native_test as of_lmcache

from sluice import hints, lmcache

VALUE, LENGTH = 256 << 10, 8  # bytes of a value, values of a session
OTHERS = 200                  # values that take all of memory, and more
TOLD = 604800


def counted(node, name):
    for actor in json.loads(node.ctl("status", "--pages").stdout)["actors"]:
        if actor["name"] == "coordinator":
            return actor["counters"].get(name, 0)
    raise AssertionError("no coordinator")


class OnNode(unittest.TestCase):
    def setUp(self):
        self.node = self.enterContext(Node(ranks=1, memory="16MiB", disk="256MiB"))
        self.client = self.enterContext(client(self.node))

    def chain(self, name, put=True):
        keys = [f"{name}/{i}" for i in range(LENGTH)]
        if put:
            self.assertEqual(self.client.put_batch(keys, [os.urandom(VALUE) for _ in keys]), [0] * LENGTH)
        return keys

    def others(self, name="other"):
        """Puts values that are never read, until the earlier values are only on disk. Each batch is flushed, since only values on disk are
        evicted: otherwise the values that are to stay would be evicted first."""
        for first in range(0, OTHERS, LENGTH):
            self.client.put_batch([f"{name} {first + i}" for i in range(LENGTH)], [os.urandom(VALUE)] * LENGTH, timeout=60 * PATIENCE)
            self.node.ctl("flush")

    def in_memory(self, keys):
        return [self.client.stat(key).in_memory for key in keys].count(True)

    def back(self, keys):
        wait_until(lambda: self.in_memory(keys) == len(keys), 10 * PATIENCE, "its values are in memory again")


class Values(OnNode):
    def test_values_of_a_session_come_back_when_its_pause_is_over(self):
        mine, yours = self.chain("mine"), self.chain("yours")
        self.client.hint(mine, {"session_id": "agent 1", "pause": TOLD})
        self.client.hint(yours, {"session_id": "agent 2", "pause": TOLD})
        self.others()
        self.assertEqual(self.in_memory(mine + yours), 0)
        self.assertIs(self.client.session_pause("agent 1", 0), True)
        self.back(mine)
        self.assertEqual(self.in_memory(yours), 0)

    def test_a_session_that_ends_is_forgotten(self):
        mine = self.chain("mine")
        self.client.hint(mine, {"session_id": "agent 1"})
        self.assertIs(self.client.session_pause("agent 1", TOLD), True)
        self.client.hint(mine, {"session_id": "agent 1", "session": "ends"}, asked=True)
        self.assertIs(self.client.session_pause("agent 1", 0), False)

    def test_all_ranks_of_a_session_are_told_of_its_pause(self):
        ranks = [self.chain(f"rank {rank}") for rank in range(3)]
        for rank, keys in enumerate(ranks):
            self.client.hint(keys, {"session_id": "agent 1", "pause": TOLD}, lane=rank)
        self.others()
        self.assertIs(self.client.session_pause("agent 1", 0), True)
        self.back(sum(ranks, []))

    def test_values_that_are_to_be_kept_outlive_others(self):
        kept, plain = self.chain("kept")[:4], self.chain("plain")[:4]  # fits the eighth of memory that may be kept
        self.client.hint(kept, {"keep": 600})
        self.others()
        self.assertEqual(self.in_memory(plain), 0)
        self.assertEqual(self.in_memory(kept), len(kept))

    def test_what_is_kept_has_its_share_of_what_is_contributed_alone(self):
        """The arena is larger, and has held more."""
        with Node(ranks=1, memory="64MiB", disk="256MiB", settings=["--contributions", "true"]) as node, client(node) as one:
            self.node, self.client = node, one
            one.contribute("large", 48 << 20)
            self.others("before")
            one.withdraw("large")
            one.contribute("small", 16 << 20)
            kept = sum((self.chain(f"kept {i}") for i in range(4)), [])
            one.hint(kept, {"keep": 600})
            self.others()
            self.assertIn(self.in_memory(kept), range(1, len(kept) // 4 + 1))  # an eighth of 16 MiB

    def test_what_is_no_hint_is_refused_by_name(self):
        for error, keys, given, more in (
                (ValueError, ["a"], {"sesion": "ends"}, {}), (ValueError, ["a"], {"session": "soon"}, {}), (TypeError, ["a"], "ends", {}),
                (sluice.InvalidError, ["a"], {"pause": TOLD + 1}, {}), (sluice.InvalidError, ["a"], {"priority": "high"}, {"lane": 64}),
                (TypeError, 7, {}, {})):
            with self.subTest(keys=keys, given=given, more=more), self.assertRaises(error):
                self.client.hint(keys, given, **more)
        self.client.hint([], {"session_id": "nobody"})
        self.client.hint(["never put"], {"priority": "high", "session_id": "somebody"})
        self.assertIs(self.client.session_pause("nobody", 1), False)
        with client(self.node, read_only=True) as reader, self.assertRaises(sluice.NotPermittedError):
            reader.hint(["a"], {"priority": "high"})

    def test_hints_that_are_wrong_cost_no_byte_and_no_value(self):
        mine = self.chain("mine")
        values = self.client.get_batch(mine)
        for given in ({"session": "ends", "priority": "low"}, {"session_id": "a", "pause": 0.001}, {"keep": TOLD, "priority": "high"}):
            self.client.hint(mine, given, asked=True)
            self.client.hint(list(reversed(mine)), given)
        self.others()
        self.assertEqual(self.client.get_batch(mine), values)


class HintSender(unittest.TestCase):
    def test_nobody_waits_for_a_node_that_does_not_answer(self):
        go_on, lines, told = threading.Event(), [], []

        def hint(names, given, *, asked, lane, timeout):
            go_on.wait(60)
            told.append((names, asked, lane))
            if names == ["bad"]:
                raise sluice.DeadlineError("it does not answer")

        teller = hints.HintSender(types.SimpleNamespace(warn=lambda what, *more: lines.append(what % more)), 1.0, lane=66)
        slow = types.SimpleNamespace(hint=hint)
        began = time.monotonic()
        teller.tell(slow, ["bad"], {"session_id": "a"}, True)
        for number in range(2 * hints.WAITING_MAX):
            teller.tell(slow, [str(number)], {"session_id": "a"}, False)
        self.assertLess(time.monotonic() - began, 5 * PATIENCE)
        self.assertIn("hints are dropped: they arrive faster than the node takes them", lines)
        go_on.set()
        teller.wait()
        self.assertEqual(told[0], (["bad"], True, 2))
        self.assertIn("hints could not be sent: it does not answer", lines)
        self.assertGreaterEqual(len(told), hints.WAITING_MAX)
        teller.close()
        teller.close()


class Lmcache(OnNode):
    """Requests of vLLM with lmcache.sluice.* in their kv_transfer_params: LMCache hands those on as its keys' request_configs."""

    def setUp(self):
        super().setUp()
        told = {"SLUICE_INSTANCE": self.node.instance, "SLUICE_RUNTIME_DIR": self.node.directory + "/run", "SLUICE_SHM_DIR": self.node.shm}
        self.enterContext(mock.patch.dict(os.environ, told))
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever)
        thread.start()
        self.addCleanup(lambda: (self.loop.call_soon_threadsafe(self.loop.stop), thread.join(), self.loop.close()))

    def backend(self, **about):
        made = lmcache.SluiceBackend(config=of_lmcache.config(), dst_device="cpu", metadata=of_lmcache.metadata(**about),
                                     local_cpu_backend=of_lmcache.LocalMemory(), loop=self.loop)
        self.addCleanup(made.close)
        return made

    def put(self, backend, keys):
        objects = of_lmcache.OnNode.objects(self, backend.local_cpu_backend, [os.urandom(of_lmcache.CHUNK_BYTES) for _ in keys])
        self.assertEqual(backend.batched_submit_put_task(keys, objects)[0].result(10 * PATIENCE), [True] * len(keys))

    def test_what_a_request_says_arrives_with_its_puts_and_reads(self):
        backend = self.backend()
        keys = [stubs.CacheEngineKey(i, request_configs={"lmcache.sluice.session_id": "chat 7", "lmcache.sluice.pause": "604800",
                                                         "lmcache.tag.user": "u", "lmcache.skip_save": False}) for i in range(3)]
        self.put(backend, keys)
        wait_until(lambda: self.client.session_pause("chat 7", TOLD), 10 * PATIENCE, "the session is known")
        self.assertEqual(counted(self.node, "session_turns"), 0)
        self.assertEqual(len(backend.batched_get_blocking(keys)), 3)
        wait_until(lambda: counted(self.node, "session_turns") == 1, 10 * PATIENCE, "the session's turn is known")
        ending = [stubs.CacheEngineKey(i, request_configs={"lmcache.sluice.session_id": "chat 7", "lmcache.sluice.session": "ends"})
                  for i in range(3)]
        backend.batched_get_blocking(ending)
        wait_until(lambda: not self.client.session_pause("chat 7", TOLD), 10 * PATIENCE, "the session has ended")

    def test_hints_are_no_part_of_a_key(self):
        backend = self.backend()
        self.put(backend, [stubs.CacheEngineKey(1, request_configs={"lmcache.sluice.session_id": "chat 7"})])
        self.assertIs(backend.contains(stubs.CacheEngineKey(1)), True)

    def test_what_is_not_understood_is_left_out_and_said(self):
        backend = self.backend()
        for given in ({"lmcache.sluice.sesion": "ends"}, {"lmcache.sluice.pause": "soon"}, {"lmcache.sluice.session_id": "a\nb"}):
            with self.subTest(given=given), self.assertLogs("sluice.lmcache", "WARNING") as lines:
                backend._said._last.clear()
                self.put(backend, [stubs.CacheEngineKey(str(given), request_configs=given)])
                wait_until(lambda: lines.output, 10 * PATIENCE, "the log says it")
            self.assertIn("hints of a request are ignored", lines.output[0])
            self.assertEqual(len(backend.batched_get_blocking([stubs.CacheEngineKey(str(given))])), 1)

    def test_of_bytes_that_all_ranks_have_the_first_one_speaks(self):
        second = self.backend(use_mla=True, world_size=2, worker_id=1, is_first_rank=lambda: False)
        second.batched_get_blocking([stubs.CacheEngineKey(1, request_configs={"lmcache.sluice.session_id": "chat 8"})])
        self.assertIsNone(second._teller)


if __name__ == "__main__":
    main()
