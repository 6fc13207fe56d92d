"""Hand-overs of vLLM's connector without vLLM: what is sent and received of a prompt, and the results of requests whose hand-over fails.
The stage is that of vllm_native_test.py; prefill and decode are two of them."""

import logging
import unittest

import vllm_native_test as native
from node_support import main

import sluice
from sluice.vllm import handover, settings
from sluice.vllm.layout import Class, Group

ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}


class Node(native.Node):
    """Also records hand-overs that were started."""

    def __init__(self, class_count=1):
        super().__init__(class_count)
        self.sends, self.receives = [], []
        self.identities = [f"model{at}" for at in range(class_count)]

    def hand(self, kept, told, more):
        op = self.start(kept, *told)
        op.__dict__.update(more, cancelled=False)
        op.cancel = lambda: setattr(op, "cancelled", True)
        return op

    def send(self, *told, **more):
        return self.hand(self.sends, told, more)

    def receive(self, *told, **more):
        return self.hand(self.receives, told, more)

    def models(self, classes):
        return {one.name: identity for one, identity in zip(classes, self.identities)}

    def name(self):
        return "prefill-node"


def request(name, tokens, params=None, words=None):
    """`words` determine its tokens: requests with the same ones have the same prefix."""
    one = native.hashable(words or "words", tokens)
    one.request_id = name
    one.kv_transfer_params = params
    one.num_prompt_tokens = tokens
    one.all_token_ids = [hash_of(words or "words") + i for i in range(tokens)]
    return one


def hash_of(words):
    return sum(words.encode())


def stage(classes=native.FULL, **more):
    made = native.Stage(classes, Node(len(classes)), **{"handover": "storage", **more})
    made.scheduler.handovers.extra_keys = lambda one, first, end: getattr(one, "extra", b"")
    return made


class Prefill:
    """A stage that has computed a prompt."""

    def __init__(self, tokens, params=None, classes=native.FULL, words=None, **more):
        self.stage = stage(classes, **more)
        self.request = request("p", tokens, ASKED if params is None else params, words)
        self.stage.match(self.request)
        self.stage.begin({self.request: tokens})
        self.tables = self.stage.tables["p"]

    def end(self):
        given = self.stage.scheduler.handovers.send(self.request, self.tables)
        self.stage.scheduler.request_end("p")
        return given

    @property
    def sends(self):
        return self.stage.node.sends


class Quiet(unittest.TestCase):
    def setUp(self):
        logging.getLogger("vllm.sluice").setLevel(logging.ERROR)
        self.addCleanup(logging.getLogger("vllm.sluice").setLevel, logging.NOTSET)


class Sending(Quiet):
    def test_all_blocks_of_the_prompt_and_what_decode_is_told(self):
        prefill = Prefill(100)
        given = prefill.end()
        (op,) = prefill.sends
        self.assertEqual((op.hashes[:6], len(op.hashes), op.partial, op.first), (prefill.request.block_hashes, 7, True, 0))
        self.assertEqual(op.tables, [[1, 2, 3, 4, 5, 6, 7]])
        self.assertEqual((given["do_remote_prefill"], given["do_remote_decode"], given["sluice_node"]), (True, False, "prefill-node"))
        self.assertEqual(given["sluice_models"], {"full16": "model0"})
        self.assertEqual(op.number, handover.part_number(int(given["sluice_handover"], 16), "full16"))
        self.assertEqual(op.mode, sluice.HANDOVER_BY_STORAGE)

    def test_what_is_named_at_the_ends_of_blocks(self):
        for tokens, blocks, partial in ((2, 1, True), (15, 1, True), (16, 1, False), (17, 1, False), (18, 2, True), (32, 2, False),
                                        (33, 2, False)):
            with self.subTest(tokens=tokens):
                prefill = Prefill(tokens)
                self.assertIsNotNone(prefill.end())
                (op,) = prefill.sends
                self.assertEqual((len(op.hashes), op.partial), (blocks, partial))

    def test_a_prompt_of_one_token_is_not_handed_over(self):
        prefill = Prefill(1)
        self.assertEqual((prefill.end(), prefill.sends), (None, []))

    def test_output_of_prefill_is_not_handed_over(self):
        prefill = Prefill(30)  # as with max_tokens above 1
        prefill.stage.allocate(prefill.request, 70)
        prefill.request.num_tokens = 70
        prefill.request.block_hashes += [b"output"] * 3
        prefill.end()
        (op,) = prefill.sends
        self.assertEqual((op.tables, op.partial), ([[1, 2]], True))

    def test_blocks_are_referenced_until_the_send_is_fenced(self):
        prefill = Prefill(40, save=False)
        prefill.end()
        prefill.stage.end()
        self.assertEqual(prefill.stage.pool.held, {1, 2, 3})
        self.assertTrue(prefill.stage.scheduler.busy)
        prefill.stage.node.end(prefill.sends[0], code=sluice.Code.CANCELLED, fenced=False)
        prefill.stage.begin()
        self.assertEqual(prefill.stage.pool.held, {1, 2, 3})
        prefill.stage.node.fence.add(prefill.sends[0])
        prefill.stage.clock += 1
        prefill.stage.end()
        self.assertEqual((prefill.stage.pool.held, prefill.stage.scheduler.busy), (set(), False))
        stats = prefill.stage.scheduler.take_stats()
        self.assertEqual((stats["handovers_sent"], stats["handover_send_failures"]), (1, 1))

    def test_a_window_sends_what_decode_needs(self):
        prefill = Prefill(200, classes=native.HYBRID)
        prefill.tables[1][:8] = [0] * 8  # tokens before 200 - 64 + 1 were freed
        self.assertIsNotNone(prefill.end())
        full, window = prefill.sends
        self.assertEqual((full.first, len(full.hashes), window.first, len(window.hashes)), (0, 13, 8, 5))
        self.assertNotEqual(full.number, window.number)
        self.assertEqual(window.hashes, full.hashes[8:])

    def test_a_window_s_first_block_is_kept_from_the_step_that_leaves_it_on(self):
        prefill = Prefill(207, classes=native.HYBRID, save=False)
        held = prefill.tables[1][8:13]
        self.assertEqual(prefill.stage.pool.held, set(held))
        prefill.tables[1][:9] = [0] * 9  # 207 - 64 + 1 is a block's first token; decode computes 206, which reads 143
        self.assertIsNotNone(prefill.end())
        self.assertEqual((prefill.sends[1].first, prefill.sends[1].tables), (8, [held]))
        for op in prefill.sends:
            prefill.stage.node.end(op)
        prefill.stage.begin()
        self.assertEqual(prefill.stage.pool.held, set())

    def test_a_window_that_was_left_before_is_not_handed_over(self):
        prefill = Prefill(207, classes=native.HYBRID, save=False)
        prefill.stage.scheduler.handovers.leave(prefill.stage.scheduler.trackers["p"])
        prefill.tables[1][:9] = [0] * 9
        self.assertEqual((prefill.end(), prefill.sends, prefill.stage.pool.held), (None, [], set()))

    def test_what_is_kept_of_windows_goes_with_the_request(self):
        prefill = Prefill(207, classes=native.HYBRID, save=False)
        prefill.request.num_computed_tokens, prefill.request.num_preemptions = 0, 1  # preempted, and computed again elsewhere
        prefill.tables[1][:] = [100 + i for i in range(13)]
        prefill.stage.begin({prefill.request: 207})
        self.assertEqual(prefill.stage.pool.held, {108, 109, 110, 111, 112})
        prefill.stage.scheduler.request_end("p")  # aborted
        self.assertEqual(prefill.stage.pool.held, set())

    def test_windows_of_ordinary_requests_are_not_kept(self):
        self.assertEqual(Prefill(207, {}, classes=native.HYBRID, save=False).stage.pool.held, set())

    def test_a_number_of_the_proxy_s_is_used(self):
        prefill = Prefill(40, {**ASKED, "sluice_handover": "00ff"}, handover="direct")
        self.assertEqual(prefill.end()["sluice_handover"], "ff")
        self.assertEqual((prefill.sends[0].number, prefill.sends[0].mode), (handover.part_number(255, "full16"), sluice.HANDOVER_DIRECT))

    def test_ordinary_requests_and_hostile_ones_hand_nothing_over(self):
        for params in (False, {}, [], "do_remote_decode", {"do_remote_decode": 1}, {"do_remote_decode": False},
                       {**ASKED, "sluice_handover": -1}, {**ASKED, "sluice_handover": "x" * 1000}, {**ASKED, "sluice_handover": {}}):
            with self.subTest(params=str(params)[:40]):
                prefill = Prefill(40, params)
                self.assertEqual((prefill.end(), prefill.sends), (None, []))

    def test_a_node_that_refuses_tells_decode_nothing(self):
        prefill = Prefill(200, classes=native.HYBRID, save=False)
        prefill.stage.node.refuse = sluice.UnreachableError("gone")
        prefill.stage.node.refuse.code = sluice.Code.UNREACHABLE
        self.assertIsNone(prefill.end())
        self.assertEqual(prefill.stage.pool.held, set())

    def test_no_more_than_allowed(self):
        prefill = Prefill(40, stores_max=1)
        self.assertIsNotNone(prefill.end())
        self.assertIsNone(prefill.end())

    def test_a_role_that_does_not_produce_sends_nothing(self):
        prefill = Prefill(40)
        prefill.stage.scheduler.handovers.sends = False
        self.assertIsNone(prefill.end())

    def test_engines_without_hashes_and_states_are_refused(self):
        prefill = Prefill(40)
        prefill.request.block_hashes = []
        self.assertIsNone(prefill.end())
        states = [Class("state", 16, 1, (Group(0, "state", 16, 0, ("a",), 1, 1),))]
        prefill = Prefill(40, classes=states)
        self.assertIsNone(prefill.end())
        self.assertEqual(prefill.stage.scheduler.take_stats()["handovers_refused"], 1)


class Tails(unittest.TestCase):
    def key(self, tokens=40, words="words", extra=b""):
        made = stage()
        one = request("a", tokens, words=words)
        one.extra = extra
        return made.scheduler.handovers.keys(0, one, 0, -(-(tokens - 1) // 16))[0][-1]

    def test_keys_of_incomplete_blocks(self):
        keys = {self.key(), self.key(41), self.key(words="other"), self.key(extra=b"adapter"), self.key(24), self.key(8)}
        self.assertEqual(len(keys), 6)
        self.assertEqual(self.key(), self.key())

    def test_as_long_as_the_engine_s(self):
        self.assertEqual(len(handover.tail_key(b"x" * 16, [1], b"", 16)), 16)


class Receiving(Quiet):
    def pair(self, tokens=100, classes=native.FULL, computed=0, **more):
        """(a decode stage whose request has prefill's parameters, the request, prefill)"""
        prefill = Prefill(tokens, classes=classes)
        made = stage(classes, **more)
        one = request("d", tokens, prefill.end())
        if computed:
            made.allocate(one, computed)
        return made, one, prefill

    def test_all_but_the_last_token_come(self):
        made, one, prefill = self.pair()
        self.assertEqual(made.match(one), (99, True))
        made.load(one)
        self.assertTrue(made.begin().pending)
        (op,), (sent,) = made.node.receives, prefill.sends
        self.assertEqual((op.number, op.hashes, op.partial, op.first, op.node), (sent.number, sent.hashes, True, 0, "prefill-node"))
        self.assertEqual((op.tables, op.timeout), ([[1, 2, 3, 4, 5, 6, 7]], 30.0))
        self.assertEqual(made.end(), set())
        made.node.end(op)
        made.begin()
        self.assertEqual(made.end(), {"d"})
        self.assertEqual(made.pool.held, set())
        stats = made.scheduler.take_stats()
        self.assertEqual((stats["handovers_received"], stats["handover_receive_failures"], stats.get("loads")), (1, 0, None))

    def test_both_sides_name_the_same_at_the_ends_of_blocks(self):
        for classes in (native.FULL, native.HYBRID):
            for tokens in (2, 15, 16, 17, 18, 32, 33, 100, 112, 113, 200):
                with self.subTest(tokens=tokens, classes=len(classes)):
                    made, one, prefill = self.pair(tokens, classes)
                    self.assertEqual(made.load(one), tokens - 1)
                    made.begin()
                    self.assertEqual([(op.number, op.hashes, op.first, op.partial) for op in made.node.receives],
                                     [(op.number, op.hashes, op.first, op.partial) for op in prefill.sends])

    def test_behind_what_decode_has(self):
        made, one, prefill = self.pair(computed=32)
        self.assertEqual(made.load(one, 32), 67)
        made.begin()
        (op,), (sent,) = made.node.receives, prefill.sends
        self.assertEqual((op.first, op.hashes, op.tables), (2, sent.hashes[2:], [[3, 4, 5, 6, 7]]))

    def test_what_decode_has_is_not_received(self):
        made, one, _ = self.pair(97, computed=96)
        self.assertEqual(made.match(one, 96), (0, False))

    def test_only_what_decode_adds_is_stored(self):
        made, one, _ = self.pair(100)
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0])
        made.end()
        one.num_tokens, one.block_hashes = 140, one.block_hashes + [b"7", b"8"]
        made.begin({one: 41})
        made.end()
        self.assertEqual(made.node.stores[0].hashes, [b"7", b"8"])

    def test_a_hand_over_that_fails_is_begun_anew_with_what_is_stored(self):
        made, one, _ = self.pair()
        made.node.keys[0].update(one.block_hashes[:3])
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0], blocks=0, code=sluice.Code.HANDOVER)
        made.end()
        told = made.begin()
        self.assertEqual((told.finished, told.failed, told.invalid), ({"d"}, {"d"}, set()))
        self.assertTrue(told.register)  # a restarted node does not know the ranks
        self.assertEqual(made.pool.held, set())
        self.assertEqual(made.match(one), (48, True))
        made.load(one)
        made.begin()
        made.node.end(made.node.loads[0], blocks=0, code=sluice.Code.CORRUPT)  # and once more: it is computed
        made.end()
        made.begin()
        self.assertEqual(made.match(one), (0, False))
        self.assertEqual(len(made.node.receives), 1)

    def test_prefill_that_is_late_is_not_the_node_s_fault(self):
        made, one, _ = self.pair()
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0], blocks=0, code=sluice.Code.TIMEOUT)
        made.end()
        made.begin()
        other = request("e", 50, words="other")
        made.node.keys[0].update(other.block_hashes)
        self.assertEqual(made.match(other), (48, True))

    def test_blocks_that_may_still_be_written_are_not_given_away(self):
        made, one, _ = self.pair(40)
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0], blocks=0, code=sluice.Code.HANDOVER, fenced=False)
        made.end()
        self.assertEqual(made.pool.held, {1, 2, 3})
        made.node.fence.add(made.node.receives[0])
        made.clock += 1
        made.begin()
        made.end()
        self.assertEqual(made.pool.held, set())

    def test_one_class_that_fails_ends_the_others(self):
        made, one, _ = self.pair(200, native.HYBRID)
        made.load(one)
        made.begin()
        full, window = made.node.receives
        made.node.end(full, blocks=0, code=sluice.Code.HANDOVER)
        made.end()
        self.assertTrue(window.cancelled)
        self.assertEqual(made.begin().failed, set())  # the request's blocks are still being written
        made.node.end(window, blocks=0, code=sluice.Code.CANCELLED)
        made.end()
        self.assertEqual(made.begin().failed, {"d"})

    def test_a_request_that_is_gone_ends_its_hand_over(self):
        made, one, _ = self.pair()
        made.load(one)
        made.begin()
        made.scheduler.request_end("d")
        self.assertTrue(made.node.receives[0].cancelled)
        made.node.end(made.node.receives[0], blocks=0, code=sluice.Code.CANCELLED)
        made.end()
        self.assertEqual(made.begin().finished, {"d"})  # then vLLM frees its blocks

    def test_a_request_that_was_preempted_is_not_handed_over_again(self):
        made, one, _ = self.pair()
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0])
        made.end()
        one.num_tokens, one.num_computed_tokens, one.num_preemptions = 101, 0, 1
        self.assertEqual(made.match(one), (0, False))

    def test_asked_twice_before_there_are_blocks(self):
        made, one, _ = self.pair()
        self.assertEqual([made.match(one) for _ in range(2)], [(99, True)] * 2)
        made.load(one)
        made.begin()
        self.assertEqual(len(made.node.receives), 1)

    def test_a_node_that_is_away_makes_an_ordinary_request(self):
        made, one, _ = self.pair()
        made.node.ready = False
        self.assertEqual(made.match(one), (0, False))

    def test_an_engine_that_waits_for_loads_does_not_wait_for_prefill(self):
        made, one, _ = self.pair(load="sync")
        self.assertEqual(made.match(one), (99, True))
        made.load(one)
        made.begin()
        made.node.end(made.node.receives[0])
        self.assertEqual(made.end(), {"d"})

    def test_both_at_once(self):
        made = stage(handover="direct")
        one = request("d", 100, {"do_remote_prefill": True, "sluice_handover": "ff", "sluice_node": "prefill-node"})
        prefill = Prefill(100, {**ASKED, "sluice_handover": "ff"}, handover="direct")
        made.load(one)
        made.begin()
        prefill.end()
        (op,), (sent,) = made.node.receives, prefill.sends
        self.assertEqual((op.number, op.hashes, op.mode), (sent.number, sent.hashes, sluice.HANDOVER_DIRECT))

    def test_another_model_is_named(self):
        made, one, _ = self.pair()
        made.node.identities = ["another"]
        logging.getLogger("vllm.sluice").setLevel(logging.WARNING)
        with self.assertLogs("vllm.sluice", "WARNING") as said:
            self.assertEqual(made.match(one), (0, False))
        self.assertIn("full16: prefill's model is 'model0', decode's another", said.output[0])

    def test_hostile_parameters_make_ordinary_requests(self):
        good = {"do_remote_prefill": True, "sluice_handover": "ff"}
        for params in (None, [], "x", {"do_remote_prefill": True}, {"do_remote_prefill": "yes", "sluice_handover": "ff"},
                       {**good, "sluice_handover": "0"}, {**good, "sluice_handover": 1 << 64}, {**good, "sluice_handover": True},
                       {**good, "sluice_handover": 1.5}, {**good, "sluice_handover": ["ff"]}, {**good, "sluice_handover": "٣"},
                       {**good, "sluice_node": "n" * 32}, {**good, "sluice_node": "a\nb"}, {**good, "sluice_node": {}},
                       {**good, "sluice_node": "\ud800"}, {**good, "sluice_models": ["full16"]}, {**good, "sluice_models": {"full16": {}}},
                       {**good, "sluice_models": {"x" * 1000: 1}}):
            with self.subTest(params=ascii(params)[:60]):
                made, one = stage(), request("d", 100, params)
                made.node.keys[0].update(one.block_hashes[:2])
                self.assertEqual(made.match(one), (32, True))
        self.assertEqual(stage().match(request("d", 100, good)), (99, True))

    def test_lines_that_clients_provoke_are_few(self):
        made = stage()
        logging.getLogger("vllm.sluice").setLevel(logging.WARNING)
        with self.assertLogs("vllm.sluice", "WARNING") as said:
            for i in range(100):
                made.match(request(str(i), 100, {"do_remote_prefill": True, "sluice_handover": "x" * 100000}))
        self.assertEqual(len(said.output), 1)
        self.assertLess(len(said.output[0]), 300)
        self.assertEqual(made.scheduler.take_stats()["handovers_refused"], 100)


class Mode(unittest.TestCase):
    def test_the_setting_goes_before_the_environment(self):
        for given, want in (("storage", sluice.HANDOVER_BY_STORAGE), ("direct", sluice.HANDOVER_DIRECT), (None, sluice.handover_mode())):
            self.assertEqual(stage(handover=given).scheduler.handovers.mode, want)

    def test_another_mode_is_refused(self):
        with self.assertRaisesRegex(ValueError, "handover: one of storage, direct"):
            settings.parse({"handover": "both"})


if __name__ == "__main__":
    main()
