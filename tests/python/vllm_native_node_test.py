"""The native back end of vLLM on a real node, without vLLM: ranks with plain memory of this process, and the scheduler."""

import ctypes
import os
import signal
import time
import unittest

import python_support  # noqa: F401  the package that was built
from node_support import Node as RealNode
from node_support import PATIENCE, main, wait_until

import sluice
from sluice.vllm import facts, layout, node, scheduler, settings
from sluice.vllm import stages as stages_of
from vllm_native_test import Pool, hashable

HEADS, STATES, STATE_BYTES, BLOCKS, LAYERS = 4, 16, 8, 64, 5
PAGE = HEADS * STATES * STATE_BYTES


def told(real):
    return settings.parse({"instance": real.instance, "settings": {"runtime_dir": real.directory + "/run", "shm_dir": real.shm}, "retry": 0.1})


class Rank:
    """A rank's caches: layers of [blocks][heads][states] or, side by side, [blocks][states][heads]. layers: those of its stage."""

    def __init__(self, rank, ranks, order, layers=range(LAYERS)):
        self.rank, self.heads, self.order = rank, HEADS // ranks, order
        self.page = PAGE // ranks
        self.memory = ctypes.create_string_buffer(LAYERS * BLOCKS * self.page)
        inner = {"HN": (STATES * STATE_BYTES, STATE_BYTES), "NH": (STATE_BYTES, self.heads * STATE_BYTES)}[order]
        names = [f"layers.{i}.attn" for i in layers]
        self.caches = {name: (layout.Cache(name, ctypes.addressof(self.memory), len(self.memory.raw), i * BLOCKS * self.page,
                                           (BLOCKS, self.heads, STATES, STATE_BYTES), (self.page, *inner)),) for i, name in enumerate(names)}
        self.group = layout.Group(0, "full", STATES, 0, tuple(names), self.heads, ranks)

    def replace_memory(self):
        """Replaces its memory."""
        self.memory, gone = ctypes.create_string_buffer(len(self.memory.raw)), self.memory
        self.caches = {name: (cache._replace(base=ctypes.addressof(self.memory)),) for name, (cache,) in self.caches.items()}
        ctypes.memset(gone, 0xee, len(gone.raw))

    def at(self, name, block, head, state):
        (cache,) = self.caches[name]
        return cache.offset + block * cache.strides[0] + head * cache.strides[1] + state * cache.strides[2]

    def cells(self, block):
        """{(layer, head of the model, state): where}"""
        return {(name, self.rank * self.heads + head, state): self.at(name, block, head, state)
                for name in self.caches for head in range(self.heads) for state in range(STATES)}

    def fill(self, block, key):
        for cell, at in self.cells(block).items():
            self.memory[at:at + STATE_BYTES] = value(cell, key)

    def wrong(self, block, key):
        return [cell for cell, at in self.cells(block).items() if self.memory[at:at + STATE_BYTES] != value(cell, key)]


def value(cell, key):
    return hash_of(f"{cell} {key}")


def hash_of(text):
    return (int.from_bytes(text.encode(), "little") * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(STATE_BYTES, "little")


class Played:
    """One vLLM: its ranks and its scheduler, connected to a node."""

    def __init__(self, real, name, ranks, order="HN", pipeline=1, stages=0):
        """pipeline: its stages, of `ranks` ranks each; stages: the setting."""
        ends = [0, *stages_of.stage_ends(LAYERS, pipeline)]
        self.ranks = [Rank(i, ranks, order, range(first, end)) for first, end in zip(ends, ends[1:]) for i in range(ranks)]
        self.classes = layout.classes_of([self.ranks[0].group])
        told_by = [{0: (rank.group.layers,)} for rank in self.ranks[::ranks]]
        self.split = stages_of.splits_of([self.ranks[0].group], told_by, {0: HEADS}, stages_of.cuts_of(LAYERS, pipeline, stages))[0]
        models = {group.name: {"name": "played"} for group in self.classes}
        world = len(self.ranks)
        firsts = [layout.first_part(rank.group, self.split, rank.rank, ranks, stages_of.first_slice(self.split, rank.group.layers))
                  for rank in self.ranks]

        def pool(layers, addresses, memory_bytes):
            return sluice.Pool("full-0", sluice.POOL_ATTENTION, layers, memory_bytes=memory_bytes, device=addresses,
                               part_count=self.split.parts, first_parts=firsts)

        self.registered = []
        for number, rank in enumerate(self.ranks):
            one = node.Registered(told(real), name)
            one.register(self.classes, lambda *_, rank=rank: [pool(*self.memory(rank))], models, BLOCKS, world, number, 1)
            self.registered.append(one)
        self.node = node.Node(told(real), name)
        self.node.register(self.classes, lambda *_: [pool((), None, 0)], models, BLOCKS, world)
        self.scheduler = scheduler.Scheduler(self.classes, STATES, told(real), self.node)
        self.scheduler.pool = Pool(BLOCKS)
        self.next = 1
        if real.processes():  # on a busy machine it may need another try
            wait_until(lambda: all(one.ready for one in [*self.registered, self.node]), 10, "all is registered")

    def memory(self, rank):
        layers, addresses = layout.layers_of(rank.group, self.split, rank.caches, BLOCKS)
        return layers, [addresses], len(rank.memory.raw)

    def blocks(self, count):
        self.next += count
        return list(range(self.next - count, self.next))

    def answer(self, one, until=10.0):
        """vLLM's calls for one request by itself: (tokens that were loaded, its blocks)."""
        tokens, _ = self.scheduler.match(one, 0)
        blocks = self.blocks(one.num_tokens // STATES)
        self.scheduler.allocated(one, [blocks], tokens)
        loaded, end = 0, time.monotonic() + until * PATIENCE
        while tokens and time.monotonic() < end:
            step = self.scheduler.step_begin({}, None)
            if step.register:
                for rank in self.registered:
                    rank.nudge()
            finished = self.scheduler.take_finished()
            self.scheduler.step_end()
            if one.request_id in finished:
                loaded = tokens
            if finished or step.finished:
                break
        for i in range(loaded // STATES, len(blocks)):
            for rank in self.ranks:
                rank.fill(blocks[i], one.block_hashes[i])
        one.num_computed_tokens = loaded
        self.scheduler.step_begin({one.request_id: one.num_tokens - loaded}, lambda _: [blocks])
        one.num_computed_tokens = one.num_tokens
        self.scheduler.step_end()
        while self.scheduler.busy and time.monotonic() < end:
            step = self.scheduler.step_begin({}, None)
            if step.register:
                for rank in self.registered:
                    rank.nudge()
            self.scheduler.step_end()
        self.scheduler.request_end(one.request_id)
        return loaded, blocks

    def close(self):
        for one in [*self.registered, self.node]:
            one.close()


STATE_PAGE, STATE_USED = 256, 200  # a page is padded to that of the attention


class Stateful:
    """One vLLM of one rank with a layer of attention and two with states, whose blocks it offers at the end of each step."""

    def __init__(self, real, name):
        self.memory = [ctypes.create_string_buffer(BLOCKS * size) for size in (PAGE, STATE_PAGE, STATE_PAGE)]
        groups = [layout.Group(0, "full", STATES, 0, ("layers.0.attn",), HEADS, 1),
                  *(layout.Group(i, "state", STATES, 0, (f"layers.{i}.mixer",), 1, 1, "form") for i in (1, 2))]
        shapes = [(BLOCKS, HEADS, STATES, STATE_BYTES), *[(BLOCKS, 1, 1, STATE_USED)] * 2]
        strides = [(PAGE, STATES * STATE_BYTES, STATE_BYTES), *[(STATE_PAGE, STATE_USED, STATE_USED)] * 2]
        self.caches = {group.layers[0]: (layout.Cache(group.layers[0], ctypes.addressof(memory), len(memory.raw), 0, shape, stride),)
                       for group, memory, shape, stride in zip(groups, self.memory, shapes, strides)}
        self.classes = layout.classes_of(groups)
        splits = {group.index: stages_of.Split(layout.parts_of(group), (group.layers,)) for group in groups}
        models = {group.name: {"name": "states"} for group in self.classes}

        def pools(_, members, here=True):
            made = {group.index: layout.layers_of(group, splits[group.index], self.caches, BLOCKS) for group in members.groups}
            return [sluice.Pool(facts.pool_name(group), facts.pool_kind(group), made[group.index][0] if here else (),
                                memory_bytes=len(self.memory[group.index].raw), device=[made[group.index][1]] if here else None,
                                part_count=splits[group.index].parts, first_parts=[0]) for group in members.groups]

        self.rank, self.node = node.Registered(told(real), name), node.Node(told(real), name)
        self.rank.register(self.classes, pools, models, BLOCKS, 1, 0, 1)
        self.node.register(self.classes, lambda at, members: pools(at, members, False), models, BLOCKS, 1)
        self.scheduler = scheduler.Scheduler(self.classes, STATES, told(real), self.node, True)
        self.scheduler.pool = Pool(BLOCKS)
        wait_until(lambda: self.rank.ready and self.node.ready, 10, "all is registered")

    def page(self, group, block):
        used, page = (PAGE, PAGE) if group == 0 else (STATE_USED, STATE_PAGE)
        return self.memory[group][block * page:block * page + used]

    def fill(self, group, block, key):
        page = PAGE if group == 0 else STATE_PAGE
        ctypes.memmove(ctypes.addressof(self.memory[group]) + block * page, state_of(group, key), PAGE if group == 0 else STATE_USED)

    def steps(self, until):
        end = time.monotonic() + 10 * PATIENCE
        while not until() and time.monotonic() < end:
            self.scheduler.step_begin({}, None)
            self.scheduler.step_end()

    def close(self):
        self.rank.close()
        self.node.close()


def state_of(group, key):
    return (f"{group} {key}".encode() * PAGE)[:PAGE if group == 0 else STATE_USED]


def request(name, blocks=5):
    one = hashable(name, blocks * STATES)
    one.block_hashes = [f"{name} {i}".encode().ljust(32, b".") for i in range(blocks)]
    return one


class Ranks(unittest.TestCase):
    def check(self, played, one, blocks, count):
        for block, key in list(zip(blocks, one.block_hashes))[:count]:
            for rank in played.ranks:
                self.assertEqual(rank.wrong(block, key), [])

    def played(self, real, *how, **more):
        one = Played(real, *how, **more)
        self.addCleanup(one.close)
        return one

    def test_what_some_ranks_wrote_others_read(self):
        with RealNode(ranks=4, memory="64MiB") as real:
            for writers, readers, order in ((1, 2, "NH"), (2, 1, "HN"), (4, 2, "HN"), (1, 4, "HN")):
                with self.subTest(writers=writers, readers=readers, order=order):
                    name = f"{writers} {readers}"
                    writer = self.played(real, f"writer of {name}, 16 bytes", writers)
                    self.assertEqual(writer.answer(request(name))[0], 0)
                    self.assertEqual(writer.scheduler.stats["stored_blocks"], 5)
                    reader = self.played(real, f"reader of {name}, 16 bytes", readers, order=order)
                    one = request(name)
                    loaded, blocks = reader.answer(one)
                    self.assertEqual(loaded, 4 * STATES)  # the last block is computed
                    self.check(reader, one, blocks, 4)
                    self.assertEqual(reader.scheduler.pool.held, set())
                    writer.close()
                    reader.close()

    def test_what_some_stages_wrote_others_read(self):
        """Pipelines of 1, 2 and 4 stages times 1 and 2 ranks; 5 layers, so stages have 2, 1, 1, 1 or 3 and 2."""
        with RealNode(ranks=8, memory="64MiB") as real:
            shapes = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2)]
            for i, (pipeline, ranks) in enumerate(shapes):
                readers = [shapes[i - 1], shapes[i - 2], shapes[i - 3]]
                name = f"{pipeline} {ranks}"
                writer = self.played(real, f"writer of {name}, 16 bytes", ranks, pipeline=pipeline, stages=4)
                self.assertEqual(writer.answer(request(name))[0], 0)
                self.assertEqual(writer.scheduler.stats["stored_blocks"], 5)
                writer.close()
                for stages, count in readers:
                    with self.subTest(writer=(pipeline, ranks), reader=(stages, count)):
                        reader = self.played(real, f"reader {stages} {count} of {name}, 16 bytes", count, "NH", stages, 4)
                        one = request(name)
                        loaded, blocks = reader.answer(one)
                        self.assertEqual(loaded, 4 * STATES)  # the last block is computed
                        self.check(reader, one, blocks, 4)
                        reader.close()

    def test_stages_that_do_not_share_find_nothing_of_each_other(self):
        with RealNode(ranks=2, memory="64MiB") as real:
            writer = self.played(real, "writer, 16 bytes at least", 1)
            writer.answer(request("a"))
            reader = self.played(real, "reader, 16 bytes at least", 1, pipeline=2)
            self.assertEqual(reader.answer(request("a"))[0], 0)

    def test_a_node_that_was_started_anew_has_what_is_on_disk(self):
        with RealNode(ranks=1, memory="64MiB", disk="64MiB") as real:
            played = self.played(real, "one engine, 16 bytes", 1)
            played.answer(request("a"))
            real.ctl("flush")
            real.stop()
            real.start()
            one = request("a")
            loaded, blocks = played.answer(one)
            self.assertEqual(loaded, 4 * STATES)
            self.check(played, one, blocks, 4)

    def test_without_a_node_all_is_computed_and_a_late_one_is_used(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            real.stop()
            played = self.played(real, "early engine, 16 bytes", 1)
            self.assertEqual(played.answer(request("a"))[0], 0)
            real.start()
            wait_until(lambda: all(one.ready for one in [*played.registered, played.node]), 10, "all is registered")
            played.answer(request("a"))
            self.assertEqual(played.answer(request("a"))[0], 4 * STATES)

    def test_killed_actors_cost_no_wrong_byte(self):
        with RealNode(ranks=2, memory="64MiB", disk="64MiB") as real:
            played = self.played(real, "one engine, 16 bytes", 2)
            played.answer(request("a"))
            for actor in ("registrar", "coordinator", "swapper.0", "swapper.1", "tierer.0"):
                with self.subTest(actor=actor):
                    pid = real.pid(actor)
                    os.kill(pid, signal.SIGKILL)
                    for name in ("a", f"while {actor} is down"):
                        one = request(name)
                        loaded, blocks = played.answer(one)
                        self.check(played, one, blocks, loaded // STATES)
                    real.wait_restarted(actor, pid, 10 * PATIENCE)
                    real.wait_ready(10 * PATIENCE)
                    played.scheduler.paused_until = 0.0
                    played.next = 1
                    self.assertEqual(played.scheduler.pool.held, set())
                    self.assertEqual(played.answer(request("a"))[0], 4 * STATES)

    def test_memory_that_slept_is_another_one(self):
        """Nothing is stored from unmapped memory, and loads after its return are written to its new place."""
        with RealNode(ranks=2, memory="64MiB") as real:
            played = self.played(real, "one engine, 16 bytes", 2)
            played.answer(request("a"))
            for one in played.registered:
                one.rest()
            before = [rank.memory for rank in played.ranks]
            self.assertEqual(played.answer(request("b"))[0], 0)
            self.assertEqual((played.scheduler.stats["store_failures"], played.scheduler.stats["stored_blocks"]), (1, 5))
            for rank, one in zip(played.ranks, played.registered):
                rank.replace_memory()
                self.assertTrue(one.wake())
            one = request("a")
            loaded, blocks = played.answer(one)
            self.assertEqual(loaded, 4 * STATES)
            self.check(played, one, blocks, 4)
            self.assertEqual({byte for memory in before for byte in memory.raw}, {0xee})  # nothing was written there
            # Memory that was replaced without notice.
            for rank in played.ranks:
                rank.replace_memory()
            for one in played.registered:
                one.anew()
            one = request("a")
            loaded, blocks = played.answer(one)
            self.assertEqual(loaded, 4 * STATES)
            self.check(played, one, blocks, 4)

    def test_states_are_stored_at_checkpoints_and_read_where_one_is(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            writer, one = Stateful(real, "writer, 16 bytes at least"), request("a", 6)
            self.addCleanup(writer.close)
            writer.scheduler.match(one, 0)
            table = list(range(1, 7))
            for first, last, block in ((0, 4, 30), (4, 6, 31)):  # two steps, that end at boundaries
                for i in range(first, last):
                    writer.fill(0, table[i], one.block_hashes[i])
                for group in (1, 2):
                    writer.fill(group, block + 10 * group, one.block_hashes[last - 1])
                writer.scheduler.step_begin({one.request_id: (last - first) * STATES}, lambda _: [table, [], []],
                                            {one.request_id: [(group, block + 10 * group, last * STATES) for group in (1, 2)]})
                one.num_computed_tokens = last * STATES
                writer.scheduler.step_end()
            writer.steps(lambda: not writer.scheduler.busy)
            self.assertEqual(writer.scheduler.stats["stored_blocks"], 6 + 2)

            reader, one = Stateful(real, "reader, 16 bytes at least"), request("a", 6)
            self.addCleanup(reader.close)
            # The last token is computed: of the two states the first one counts.
            self.assertEqual(reader.scheduler.match(one, 0), (4 * STATES, True))
            tables = [[11, 12, 13, 14], [0, 0, 0, 21], [0, 0, 0, 22]]
            reader.scheduler.allocated(one, tables, 4 * STATES)
            reader.steps(lambda: bool(reader.scheduler.finished))
            self.assertEqual(reader.scheduler.take_finished(), {one.request_id})
            for i, block in enumerate(tables[0]):
                self.assertEqual(reader.page(0, block), state_of(0, one.block_hashes[i]))
            for group in (1, 2):
                self.assertEqual(reader.page(group, tables[group][3]), state_of(group, one.block_hashes[3]))
                self.assertEqual(reader.memory[group].raw.count(0), len(reader.memory[group].raw) - STATE_USED)
            self.assertEqual(reader.scheduler.pool.held, set())

    def test_a_reset_forgets_the_model(self):
        with RealNode(ranks=1, memory="64MiB") as real:
            played = self.played(real, "one engine, 16 bytes", 1)
            played.answer(request("a"))
            self.assertTrue(played.scheduler.drain(5))
            played.node.forget()
            self.assertEqual(played.scheduler.match(request("a"), 0), (0, False))


if __name__ == "__main__":
    main()
