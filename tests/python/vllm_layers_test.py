"""Layer by layer without vLLM: what the scheduler sends to the workers, and what a worker does in a step. Node and engine are played; the
last tests are on a real node."""

import types
import unittest

import python_support  # noqa: F401  the package that was built
from node_support import PATIENCE, main
from node_support import Node as RealNode

import sluice
from sluice.vllm import facts, layers, layout, settings
from sluice.vllm.stages import Split
from vllm_native_node_test import HEADS, STATES, Played, value
from vllm_native_node_test import request as real_request
from vllm_native_test import HYBRID, Node, Op, Stage, cache, hashable

ENDS = [1, 2, 3]


class LayeredOp(Op):
    def __init__(self, told, number):
        super().__init__(told)
        self.number, self.ready, self.cancelled = number, 0, False

    def layers_ready(self, count):
        self.ready = count

    def cancel(self):
        self.cancelled = True


class LayeredNode(Node):
    def start(self, kept, at, hashes, tables, timeout, layer_ends=None, **said):
        if self.refuse:
            raise self.refuse
        op = LayeredOp(types.SimpleNamespace(at=at, hashes=list(hashes), tables=[list(table) for table in tables], timeout=timeout,
                                             layer_ends=layer_ends), 100 + len(self.stores) + len(self.loads))
        kept.append(op)
        return op


def stage(**more):
    made = Stage(node=LayeredNode(), **more)
    made.scheduler.layer_ends = ENDS
    return made


def error(kind, code):
    made = kind("no")
    made.code = code
    return made


GONE, LATE = error(sluice.UnreachableError, sluice.Code.UNREACHABLE), error(sluice.DeadlineError, sluice.Code.TIMEOUT)


class Loads(unittest.TestCase):
    def filled(self, tokens=160, there=6, **more):
        made, one = stage(load="layers", **more), hashable("a", tokens)
        made.node.keys[0].update(one.block_hashes[:there])
        return made, one

    def test_the_step_begins_with_its_load_and_does_not_wait_for_it(self):
        made, one = self.filled()
        self.assertEqual(made.match(one), (96, False))
        made.load(one)
        told = made.begin({one: 64})
        (op,) = made.node.loads
        self.assertEqual((op.layer_ends, made.node.waited), (ENDS, 0))
        self.assertEqual(told.loads, [layers.StepLoad(op.number, [1, 2, 3, 4, 5, 6])])
        made.node.end(op)
        self.assertEqual(made.end(), set())  # no step waits for it: it is in the step
        self.assertEqual(made.node.stores[0].hashes, one.block_hashes[6:10])
        self.assertEqual(made.begin().loads, [])

    def test_blocks_that_did_not_come_are_what_the_workers_say(self):
        made, one = self.filled()
        made.load(one)
        made.begin({one: 64})
        made.begin({})  # a step ahead
        made.node.end(made.node.loads[0], blocks=0, code=sluice.Code.INCOMPLETE)
        self.assertEqual(made.begin({}).invalid, set())
        made.scheduler.blocks_failed({4, 5, 6})
        one.num_computed_tokens = 48  # as vLLM does
        made.end()
        self.assertEqual(made.node.stores, [])
        self.assertEqual(made.pool.held, set())
        self.assertEqual(made.match(one), (0, False))

    def test_what_later_steps_compute_of_a_failed_load_is_not_stored_even_when_preempted(self):
        made, one = self.filled(tokens=320)
        made.load(one)
        made.begin({one: 64})
        made.begin({one: 64})  # before the output of the first
        made.node.end(made.node.loads[0], blocks=0, code=sluice.Code.INCOMPLETE)
        made.scheduler.blocks_failed({1})
        one.num_preemptions, one.num_computed_tokens = 1, 0
        made.end()
        made.end()
        self.assertEqual((made.node.stores, made.pool.held), ([], set()))
        made.begin({one: 160})
        made.end()
        self.assertEqual(made.node.stores[0].hashes, one.block_hashes[:10])

    def test_a_load_that_cannot_start_is_told_with_its_step(self):
        made, one = self.filled()
        made.node.refuse = GONE
        made.load(one)
        told = made.begin({one: 64})
        self.assertEqual((told.loads, told.invalid, told.finished), ([], {1, 2, 3, 4, 5, 6}, set()))

    def test_blocks_are_held_until_nothing_writes_them(self):
        made, one = self.filled()
        made.load(one)
        made.begin({one: 64})
        made.scheduler.request_end("a")
        made.node.end(made.node.loads[0], blocks=0, code=sluice.Code.TIMEOUT, fenced=False)
        made.scheduler.blocks_failed({1})
        made.end()
        self.assertEqual(made.pool.held, {1, 2, 3, 4, 5, 6})
        made.node.fence.add(made.node.loads[0])
        made.clock += 1
        made.begin()
        self.assertEqual(made.pool.held, set())


class Stores(unittest.TestCase):
    def begun(self, tokens=64, **more):
        made, one = stage(save="layers", **more), hashable("a", 160)
        made.match(one)
        return made, one, made.begin({one: tokens})

    def test_a_store_begins_with_its_step_and_ends_behind_it(self):
        made, one, said = self.begun()
        (op,) = made.node.stores
        self.assertEqual((op.layer_ends, op.hashes, said.saves, op.ready), (ENDS, one.block_hashes[:4], [op.number], 0))
        made.end()
        self.assertEqual((op.ready, made.pool.held), (3, {1, 2, 3, 4}))
        made.node.end(op)
        self.assertEqual(made.begin().saves, [])
        self.assertEqual((len(made.node.stores), made.pool.held, made.scheduler.store_count), (1, set(), 0))

    def test_tokens_that_were_taken_back_end_the_store(self):
        made, one, _ = self.begun()
        one.num_computed_tokens -= 20
        made.end()
        first, second = made.node.stores
        self.assertEqual((first.cancelled, first.ready, second.layer_ends, second.hashes), (True, 0, None, one.block_hashes[:2]))
        made.node.end(first, code=sluice.Code.CANCELLED)
        made.begin()
        self.assertEqual(made.pool.held, {1, 2, 3, 4})  # by the second
        made.node.end(second)
        made.begin()
        self.assertEqual(made.pool.held, set())

    def test_a_store_that_failed_is_tried_once_more_behind_the_step(self):
        made, one, _ = self.begun()
        made.node.end(made.node.stores[0], code=sluice.Code.NO_SPACE)
        made.begin()
        made.end()
        self.assertEqual([op.layer_ends for op in made.node.stores], [ENDS, None])

    def test_blocks_of_a_failed_store_stay_until_its_step_is_processed(self):
        """A preemption or an end must not give them to another request, whose contents the second store would read."""
        for fenced in (True, False):
            with self.subTest(fenced=fenced):
                made, one, _ = self.begun()
                made.begin({one: 64})  # before the output of the first
                first = made.node.stores[0]
                made.node.end(first, code=sluice.Code.INCOMPLETE, fenced=fenced)
                made.scheduler.poll()
                made.node.fence.add(first)
                made.clock += 1
                made.scheduler.poll()
                one.num_preemptions, one.num_computed_tokens = 1, 0
                self.assertEqual((made.pool.held, made.scheduler.unfenced), ({1, 2, 3, 4, 5, 6, 7, 8}, []))
                made.end()
                self.assertEqual((made.node.stores[2].tables, made.node.stores[2].layer_ends), ([[1, 2, 3, 4]], None))
                made.end()
                for op in made.node.stores[1:]:
                    made.node.end(op)
                made.begin()
                self.assertEqual((made.pool.held, made.scheduler.store_count), (set(), 0))

    def test_dropped_chunks_of_failed_stores_are_released(self):
        made, _, _ = self.begun()
        made.node.end(made.node.stores[0], code=sluice.Code.INCOMPLETE)
        made.scheduler.poll()
        self.assertTrue(made.scheduler.drain(1))
        made.end()
        self.assertEqual((len(made.node.stores), made.pool.held), (1, set()))

    def test_what_was_there_is_not_stored_twice(self):
        made, one, _ = self.begun()
        made.node.end(made.node.stores[0])
        made.begin()
        made.end()
        self.assertEqual((len(made.node.stores), made.pool.held), (1, set()))

    def test_a_block_alone_is_stored_behind_its_step(self):
        made, one, said = self.begun(tokens=16)
        self.assertEqual((said.saves, made.node.stores), ([], []))
        made.end()
        self.assertEqual(made.node.stores[0].layer_ends, None)

    def test_what_a_load_may_still_spoil_is_stored_when_that_is_known(self):
        made, one = stage(load="layers", save="layers"), hashable("a", 320)
        made.node.keys[0].update(one.block_hashes[:6])
        made.load(one)
        self.assertEqual(made.begin({one: 64}).saves, [])
        self.assertEqual(made.begin({one: 64}).saves, [])  # the output of the first step is still missing
        made.node.end(made.node.loads[0])
        made.end()
        self.assertEqual(made.node.stores[0].layer_ends, None)
        self.assertEqual(len(made.begin({one: 64}).saves), 1)

    def test_a_drained_scheduler_cancels_them(self):
        made, one, _ = self.begun()
        made.node.wait = lambda seconds: made.node.end(made.node.stores[0], code=sluice.Code.CANCELLED)
        self.assertTrue(made.scheduler.drain(1))
        made.end()
        self.assertEqual((made.node.stores[0].cancelled, made.pool.held), (True, set()))


class Engine:
    """Number of layers of each op that have arrived, for a number of blocks; or an exception."""

    def __init__(self):
        self.there, self.waits, self.words = {}, [], []

    def layers_wait(self, op, rank, count, timeout):
        self.waits.append((op, rank, count))
        got = self.there[op]
        if isinstance(got, Exception):
            raise got
        return max(got[0], count), got[1]

    def layers_ready(self, ops, rank, count):
        self.words.append((list(ops), rank, count))


class Mark:
    over = False

    def query(self):
        return self.over


class Workers(unittest.TestCase):
    def setUp(self):
        self.engine = Engine()
        self.names = {"a": 0, "b": 1, "c": 2, "like a": 0}
        self.worker = layers.Worker(types.SimpleNamespace(engines=[self.engine]), 5, self.names, 3, 2.0, now=lambda: 0.0)

    def told(self, *loads, saves=()):
        return types.SimpleNamespace(loads=[layers.StepLoad(*load) for load in loads], saves=list(saves))

    def step(self, told, names="abc"):
        for name in names:
            self.worker.wait(told, name)
            self.worker.saved(told, name)
        self.worker.end(told)
        return self.worker.failed(told)

    def test_each_layer_is_waited_for_once(self):
        self.engine.there = {7: (1, 2), 8: (2, 1)}
        self.assertEqual(self.step(self.told((7, [1, 2]), (8, [3]))), set())
        self.assertEqual(self.engine.waits, [(7, 5, 1), (8, 5, 1), (7, 5, 2), (8, 5, 2), (7, 5, 3), (8, 5, 3)])

    def test_layers_that_came_together_cost_one_wait(self):
        self.engine.there = {7: (3, 2)}
        self.assertEqual(self.step(self.told((7, [1, 2]))), set())
        self.assertEqual(self.engine.waits, [(7, 5, 1)])
        self.assertEqual(self.worker.take_stats()["layer_waits"], 1)

    def test_a_load_that_fails_is_named_and_does_not_hold_up_others(self):
        self.engine.there = {7: LATE, 8: (3, 1)}
        self.assertEqual(self.step(self.told((7, [1, 2]), (8, [3]))), {1, 2})
        self.assertEqual(self.engine.waits, [(7, 5, 1), (8, 5, 1)])

    def test_blocks_that_a_load_lacks_are_named(self):
        self.engine.there = {7: (1, 2)}
        self.assertEqual(self.step(self.told((7, [1, 2, 3, 4]))), {3, 4})
        self.assertEqual(len(self.engine.waits), 3)  # the two are good

    def test_less_blocks_than_were_told_before(self):
        told, self.engine.there = self.told((7, [1, 2, 3])), {7: (1, 3)}
        self.worker.wait(told, "a")
        self.engine.there = {7: (2, 1)}  # a restarted coordinator found these
        self.assertEqual(self.step(told, "bc"), {2, 3})

    def test_a_step_that_did_not_wait_has_not_loaded(self):
        self.engine.there = {7: (1, 2)}
        self.assertEqual(self.step(self.told((7, [1, 2])), "ab"), {1, 2})

    def test_a_step_is_judged_by_itself(self):
        self.engine.there = {7: LATE}
        first = self.told((7, [1, 2]))
        self.assertEqual(self.step(first), {1, 2})
        self.assertEqual(self.step(self.told()), set())
        self.assertEqual(self.worker.failed(first), set())

    def test_a_rank_that_is_not_registered_has_no_loads(self):
        self.worker.registered.engines = []
        self.assertEqual(self.step(self.told((7, [1]), saves=[9])), {1})

    def test_layers_are_told_in_order_and_the_last_is_not(self):
        self.step(self.told(saves=[8, 9]), ["a", "like a", "c", "b"])
        self.assertEqual(self.engine.words, [([8, 9], 5, 1), ([8, 9], 5, 2)])

    def test_layers_are_told_when_they_are_computed(self):
        marks = []
        self.worker.mark = lambda: marks.append(Mark()) or marks[-1]
        told = self.told(saves=[8])
        self.worker.saved(told, "a")
        self.worker.saved(told, "b")
        self.assertEqual(self.engine.words, [])
        marks[0].over = True
        self.worker.saved(told, "c")
        self.assertEqual(self.engine.words, [([8], 5, 1)])
        marks[1].over = True
        self.worker.end(told)
        self.assertEqual(self.engine.words, [([8], 5, 1), ([8], 5, 2)])

    def test_marks_of_a_step_say_nothing_of_the_next(self):
        marks = []
        self.worker.mark = lambda: marks.append(Mark()) or marks[-1]
        self.step(self.told(saves=[8]))
        marks[0].over = marks[1].over = True
        self.worker.saved(self.told(saves=[9]), "b")
        self.assertEqual(self.engine.words, [])

    def test_a_word_that_is_lost_costs_nothing(self):
        def lost(*_):
            raise GONE

        self.engine.layers_ready = lost
        self.assertEqual(self.step(self.told(saves=[8])), set())


class Facts(unittest.TestCase):
    def test_what_cannot_go_by_layers_is_refused(self):
        full, window = HYBRID[0].groups, HYBRID[1].groups
        for given in ({"load": "layers"}, {"save": "layers"}):
            parsed = settings.parse(given)
            layers.check(parsed, full)
            for groups, more, said in ((full + window, {}, "one group"), (window, {}, "full attention"), (full, {"zeroed": True}, "clears"),
                                       (full, {"drafts": True}, "speculative"), (full, {"stages": 2}, "pipeline")):
                with self.assertRaisesRegex(ValueError, f"{next(iter(given))}: 'layers'.*{said}"):
                    layers.check(parsed, groups, **more)
        layers.check(settings.parse({}), full + window, True, True, 2)

    def test_settings(self):
        for given, want in (("layers", "layers"), (True, True), ("off", False)):
            self.assertEqual(settings.parse({"save": given}).save, want)
            self.assertEqual(settings.saves(settings.parse({"save": given}), True), want)
            self.assertIs(settings.saves(settings.parse({"save": given}), False), False)
        for given in ({"save": "layer"}, {"load": "layer"}):
            with self.assertRaisesRegex(ValueError, next(iter(given))):
                settings.parse(given)

    def test_ends_and_numbers(self):
        group = layout.Group(0, "full", 16, 0, ("a", "b", "c"), 4, 1)
        split = Split(4, (group.layers,))
        caches = {name: cache(name, 8, 4, 16, 64, "HN", i * 32768) for i, name in enumerate("abc")}
        self.assertEqual(layers.ends_of(group, split, caches, 8), [1, 2, 3])
        caches["b"] = caches["a"]
        self.assertEqual((layers.ends_of(group, split, caches, 8), layers.numbers_of(group, caches)), ([1, 2], {"a": 0, "b": 0, "c": 1}))
        wide = {name: cache(name, 8, 4, 4, 64, "NH", i * 32768, 8192) for i, name in enumerate("abc")}  # blocks of the kernel in one
        self.assertEqual(layers.ends_of(group, split, wide, 4)[-1], len(layout.layers_of(group, split, wide, 4)[0]) // 4)

    def test_work_on_a_cpu_is_done_when_the_call_returns(self):
        self.assertTrue(facts.mark_of(types.SimpleNamespace(is_cuda=False))().query())


class Layered(Played):
    """vLLM's steps, layer by layer: each rank waits, computes and reports."""

    def __init__(self, real, name, ranks, order="HN", **more):
        super().__init__(real, name, ranks, order)
        self.scheduler.settings.load = self.scheduler.settings.save = "layers"
        group = self.ranks[0].group
        self.scheduler.layer_ends = layers.ends_of(group, self.split, self.ranks[0].caches, 64)
        count = len(self.scheduler.layer_ends)
        self.workers = [layers.Worker(one, rank.rank, layers.numbers_of(rank.group, rank.caches), count, 5.0 * PATIENCE)
                        for one, rank in zip(self.registered, self.ranks)]

    def serve(self, one):
        """A request's only step: (tokens that were loaded, its blocks, blocks that failed)."""
        tokens, later = self.scheduler.match(one, 0)
        assert not later
        blocks = self.blocks(one.num_tokens // STATES)
        self.scheduler.allocated(one, [blocks], tokens)
        one.num_computed_tokens = tokens
        told_now = self.scheduler.step_begin({one.request_id: one.num_tokens - tokens}, lambda _: [blocks])
        one.num_computed_tokens = one.num_tokens
        wrong = []
        for name in self.ranks[0].group.layers:
            for rank, worker in zip(self.ranks, self.workers):
                worker.wait(told_now, name)
                wrong += [cell for block, key in list(zip(blocks, one.block_hashes))[:tokens // STATES]
                          for cell in rank.wrong(block, key) if cell[0] == name and block not in worker.invalid]
                for block, key in list(zip(blocks, one.block_hashes))[tokens // STATES:]:
                    for cell, at in rank.cells(block).items():
                        if cell[0] == name:
                            rank.memory[at:at + 8] = value(cell, key)
                worker.saved(told_now, name)
        invalid = set()
        for worker in self.workers:
            worker.end(told_now)
            invalid |= worker.failed(told_now) | told_now.invalid
        assert wrong == [], wrong
        if invalid:
            one.num_computed_tokens = min(blocks.index(block) for block in invalid) * STATES
        self.scheduler.blocks_failed(invalid)
        self.scheduler.take_finished()
        self.scheduler.step_end()
        while self.scheduler.busy:
            self.scheduler.step_begin({}, None)
            self.scheduler.step_end()
        self.scheduler.request_end(one.request_id)
        return tokens, blocks, invalid, told_now


class OnANode(unittest.TestCase):
    def test_ranks_store_and_load_layer_by_layer(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks), RealNode(ranks=ranks, memory="64MiB") as real:
                played = Layered(real, "first", ranks)
                loaded, _, invalid, said = played.serve(real_request("a", 5))
                self.assertEqual((loaded, invalid, len(said.saves)), (0, set(), 1))
                loaded, blocks, invalid, said = played.serve(real_request("a", 5))
                self.assertEqual((loaded, invalid, len(said.loads)), (4 * STATES, set(), 1))
                self.assertEqual(played.scheduler.stats["stored_blocks"], 5)
                other = Layered(real, "second", ranks, "NH")
                self.assertEqual(other.serve(real_request("a", 5))[0], 4 * STATES)
                other.close()
                played.close()

    def test_a_load_without_a_swapper_names_its_blocks(self):
        with RealNode(ranks=2, memory="64MiB") as real:
            played = Layered(real, "first", 2)
            played.serve(real_request("a", 5))
            played.scheduler.settings.timeout = 0.4
            with real.actors_stopped("swapper.1"):
                loaded, blocks, invalid, _ = played.serve(real_request("a", 5))
                self.assertEqual((loaded, invalid), (4 * STATES, set(blocks[:4])))
            played.close()


if __name__ == "__main__":
    main()
