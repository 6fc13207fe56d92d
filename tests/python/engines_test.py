"""Engines through the Python package: pools without copies, store and load, hand-over, hostile arguments, lifetimes."""

import array
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
import unittest

import python_support
from python_support import client, fork, sluice
from node_support import BIN, PATIENCE, Node, fabric_without_peers, main, wait_pools, wait_until

BLOCKS, PIECE, LAYERS, TOKENS = 16, 4096, 2, 4
RECEIPT_BYTES, TICKET_BYTES = 64, 160  # struct sl_transfer_params, struct sl_ticket
STRIDE = PIECE + 64  # blocks are not adjacent


def pool(name="attention", **options):
    layers = [sluice.Layer(layer * BLOCKS * STRIDE, BLOCKS * STRIDE, STRIDE, PIECE) for layer in range(LAYERS)]
    return sluice.Pool(name, sluice.POOL_ATTENTION, layers, **options)


def blocks_of(engine, rank=0, number=0):
    """[layer][block] -> a writable memoryview of the block's bytes."""
    memory = engine.memory(rank, number)
    return [[memory[(layer * BLOCKS + block) * STRIDE:][:PIECE] for block in range(BLOCKS)] for layer in range(LAYERS)]


class OnNode(python_support.OnNode):
    settings = {"ranks": 2, "memory": "64MiB", "settings": ["--op-timeout", f"{10 * PATIENCE}s"]}
    client_settings = {"op_timeout": f"{10 * PATIENCE}s"}

    def register(self, name="e", **options):
        words = {"pools": [pool()], "block_tokens": TOKENS, "block_count": BLOCKS, "model": {"name": "m"}, **options}
        engine = (words.pop("client", self.client)).engine(name, **words)
        self.addCleanup(engine.end)
        return engine

    def fill(self, engine, blocks, rank=0):
        memory = blocks_of(engine, rank)
        for layer in range(LAYERS):
            for block in blocks:
                memory[layer][block][:] = os.urandom(PIECE)

    def same(self, engine, blocks, other, others, rank=0):
        ours, theirs = blocks_of(engine, rank), blocks_of(other, rank)
        return all(ours[layer][a] == theirs[layer][b] for layer in range(LAYERS) for a, b in zip(blocks, others))


class Ops(OnNode):
    def test_blocks_are_stored_and_loaded_for_all_ranks(self):
        engine = self.register(world=2)
        self.assertEqual(engine.memory().nbytes, LAYERS * BLOCKS * STRIDE)
        self.assertEqual(engine.memory(1, "attention").nbytes, LAYERS * BLOCKS * STRIDE)
        for rank in range(2):
            self.fill(engine, [3, 1], rank)
        stored = engine.store(range(8), [3, 1])
        result = stored.wait()
        self.assertEqual((result.code, result.block_count, result.stored_count, result.existed_count), (0, 2, 2, 0))
        self.assertTrue(stored.block_stored(0) and stored.block_stored(1) and not stored.block_stored(2))
        self.assertFalse(stored.block_existed(0))
        self.assertEqual(stored.poll(), result)
        again = engine.store(range(8), [3, 1])
        self.assertEqual(again.wait().existed_count, 2)
        self.assertTrue(again.block_existed(1))
        load = engine.load(array.array("I", list(range(8)) + [99] * 4), [8, 9, 10], trace_id=77)
        result = load.wait(30)
        self.assertEqual((result.block_count, result.from_memory, result.trace_id, result.fenced), (2, 2, 77, True))
        self.assertEqual(result.bytes, 2 * 2 * LAYERS * PIECE)
        for rank in range(2):
            self.assertTrue(self.same(engine, [3, 1], engine, [8, 9], rank))

    def test_events_of_the_engines_streams(self):
        engine = self.register(world=2)
        self.fill(engine, [3])
        # A node without a GPU has no events, which the error names; nothing is stored.
        for events in (b"e" * 64, {1: bytearray(64), 0: b"e" * 64}):
            with self.assertRaises(sluice.SluiceError) as caught:
                engine.store(range(4), [3], events=events).wait()
            self.assertIn("device host does not support events", str(caught.exception))
            self.assertEqual(caught.exception.result.stored_count, 0)
        self.assertEqual(engine.store(range(4), [3], events=None).wait().stored_count, 1)
        with self.assertRaises(sluice.SluiceError):
            engine.load(range(4), [5], events=b"e" * 64).wait()
        for call in (engine.store, engine.load):
            for wrong, error in ((b"e" * 63, ValueError), ({0: b""}, ValueError), ({-1: b"e" * 64}, (ValueError, OverflowError)),
                                 ({0: 7}, TypeError), (7, TypeError), ({r: b"e" * 64 for r in range(65)}, ValueError)):
                with self.assertRaises(error):
                    call(range(4), [3], events=wrong)
            with self.assertRaisesRegex(sluice.SluiceError, "no such rank"):
                call(range(4), [3], events={2: b"e" * 64})
        self.assertEqual(engine.load(range(4), [5], events={}).wait().block_count, 1)

    def test_first_block_and_partial_blocks(self):
        engine = self.register()
        self.fill(engine, [0, 1, 2])
        self.assertEqual(engine.store(range(10), [0, 1, 2], partial=True).wait().stored_count, 3)
        self.assertEqual(engine.load(range(10), [5, 6], first_block=1, partial=True).wait().block_count, 2)
        self.assertTrue(self.same(engine, [1, 2], engine, [5, 6]))
        self.assertEqual(engine.load(range(1, 11), [5]).wait().block_count, 0)

    def test_other_models_do_not_meet(self):
        one, other = self.register("one"), self.register("other", model={"name": "m", "dtype": "bf16"})
        self.assertEqual(len(one.model_identity), 32)
        self.assertNotEqual(one.model_identity, other.model_identity)
        one.store(range(4), [0]).wait()
        self.assertEqual(other.load(range(4), [0]).wait().block_count, 0)

    def test_memory_of_the_engines_own(self):
        fd = os.memfd_create("mine")
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, LAYERS * BLOCKS * STRIDE)
        engine = self.register(pools=[pool(fds=[fd])])
        engine.memory()[:4] = b"mine"
        self.assertEqual(os.pread(fd, 4, 0), b"mine")

    def test_several_pools(self):
        state = sluice.Pool("state", sluice.POOL_MAMBA_STATE, [sluice.Layer(0, BLOCKS * 512, 512, 512)], memory_bytes=65536)
        engine = self.register(pools=[pool(), state])
        self.assertEqual(engine.memory(0, "state").nbytes, 65536)
        engine.memory(0, 1)[:512] = b"s" * 512
        engine.store(range(4), [0]).wait()
        engine.load(range(4), [7]).wait()
        self.assertEqual(bytes(engine.memory(0, "state")[7 * 512:8 * 512]), b"s" * 512)

    def test_by_layers(self):
        engine = self.register()
        memory = blocks_of(engine)
        store = engine.store(range(8), [0, 1], layer_count=LAYERS)
        for layer in range(LAYERS):
            for block in (0, 1):
                memory[layer][block][:] = os.urandom(PIECE)
            self.assertRaises(sluice.InvalidError, store.layer_ready, LAYERS)
            store.layer_ready(layer)
            self.assertRaises(sluice.SluiceError, store.layer_ready, layer)
        self.assertEqual(store.wait().stored_count, 2)
        load = engine.load(range(12), [4, 5, 6], layer_count=LAYERS)
        for layer in range(LAYERS):
            self.assertEqual(load.layer_wait(layer, 10 * PATIENCE), 2)
            self.assertEqual((memory[layer][4], memory[layer][5]), (memory[layer][0], memory[layer][1]))
        self.assertEqual(load.wait().block_count, 2)
        self.assertRaises(sluice.InvalidError, load.layer_wait, LAYERS)
        self.assertRaises(sluice.InvalidError, load.layer_ready, 0)
        self.assertRaises(OverflowError, load.layer_wait, -1)

    def test_an_op_that_is_still_running(self):
        engine = self.register()
        with self.node.actors_stopped("swapper.0"):
            op = engine.store(range(4), [0])
            self.assertIsNone(op.poll())
            began = time.monotonic()
            with self.assertRaises(sluice.DeadlineError) as caught:
                op.wait(0.3)
            self.assertIsNone(caught.exception.result)
            self.assertGreaterEqual(time.monotonic() - began, 0.29)
            with self.assertRaises(sluice.DeadlineError):
                op.wait(0)
            with self.assertRaises(sluice.BusyError):
                op.block_stored(0)
            codes = []
            waiting = threading.Thread(target=lambda: codes.append(self.code_of(op.wait)))
            interval = sys.getswitchinterval()
            sys.setswitchinterval(3600)  # so that only a call that releases the interpreter lets another thread run
            try:
                waiting.start()  # returns when the thread runs: during the call, or after it
                self.assertEqual(codes, [])
            finally:
                sys.setswitchinterval(interval)
        waiting.join()
        self.assertEqual(codes, [0])
        self.assertEqual(op.wait().stored_count, 1)

    def code_of(self, call):
        try:
            call()
        except sluice.SluiceError as error:
            return int(error.code)
        return 0

    def test_a_signal_ends_a_wait(self):
        engine = self.register()
        op = engine.receive(5, range(4), [0], mode=sluice.HANDOVER_BY_STORAGE)  # without a sender

        class Rung(Exception):
            pass

        def ring(*_):
            raise Rung

        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with self.assertRaises(Rung):
                op.wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        op.cancel()
        op.wait_fenced()

    def test_a_failed_op_raises_its_code_with_the_result(self):
        engine = self.register()
        with engine.receive(6, range(4), [0], mode=sluice.HANDOVER_BY_STORAGE) as op:
            op.cancel()
            with self.assertRaises(sluice.CancelledError) as caught:
                op.wait()
            self.assertEqual((caught.exception.result.code, caught.exception.result.block_count), (9, 0))
            self.assertEqual(self.code_of(op.poll), 9)
        self.assertTrue(op.released)

    def test_leaving_the_block_of_an_op_frees_its_device_blocks(self):
        engine = self.register()
        began = time.monotonic()
        with engine.receive(7, range(4), [0], mode=sluice.HANDOVER_BY_STORAGE) as op:
            pass
        self.assertTrue(op.released)
        self.assertLess(time.monotonic() - began, 5 * PATIENCE)
        with self.assertRaises(ZeroDivisionError):
            with engine.receive(8, range(4), [0], mode=sluice.HANDOVER_BY_STORAGE):
                raise ZeroDivisionError


class Keys(OnNode):
    """Keys that the engine made, parts that are no ranks, ranks that register for themselves."""

    def halves(self):
        """One pool: a page is two parts side by side, in fragments of 8 bytes."""
        layers = [sluice.Layer(8 * part, STRIDE * BLOCKS - 8 * part, STRIDE, 32, part, 8, 16) for part in range(2)]
        return sluice.Pool("attention", sluice.POOL_ATTENTION, layers, memory_bytes=STRIDE * BLOCKS, part_count=2, first_parts=[0])

    def test_a_rank_of_a_team_may_have_nothing_of_a_pool(self):
        """So is a pipeline stage without a layer of a kind that the other stages have."""
        team = sluice.team_number("stages of which one has no window")

        def pool(name, parts, first, layers):
            return sluice.Pool(name, sluice.POOL_ATTENTION, layers, part_count=parts, first_parts=[0, first])

        def register(rank, *pools):
            engine = self.client.engine(f"stage {rank}", pools=pools, block_tokens=4, block_count=BLOCKS, world=2, model={"name": "tiny"}, team=team,
                                        first_rank=rank, rank_count=1)
            self.addCleanup(engine.end)
            return engine

        layer = [sluice.Layer(0, STRIDE * BLOCKS, STRIDE, STRIDE)]
        first = register(0, pool("full", 2, 1, layer), pool("window", 1, 0, layer))
        second = register(1, pool("full", 2, 1, layer), pool("window", 1, 0, []))
        first.memory(0, "full")[:STRIDE] = b"a" * STRIDE
        first.memory(0, "window")[:STRIDE] = b"b" * STRIDE
        second.memory(1, "full")[:STRIDE] = b"c" * STRIDE
        self.assertEqual(first.store(hashes=[b"k" * 32], blocks=[0]).wait().stored_count, 1)
        self.assertEqual(second.load(hashes=[b"k" * 32], blocks=[1]).wait().block_count, 1)
        for engine, rank, name, byte in ((first, 0, "full", b"a"), (first, 0, "window", b"b"), (second, 1, "full", b"c")):
            self.assertEqual(bytes(engine.memory(rank, name)[STRIDE:2 * STRIDE]), byte * STRIDE)
        with self.assertRaisesRegex(sluice.InvalidError, "0 regions"):
            register(1, pool("full", 2, 1, []), pool("window", 1, 0, []))
        with self.assertRaisesRegex(sluice.InvalidError, "layers, not 0"):
            self.client.engine("no team", pools=[pool("full", 2, 1, [])], block_tokens=4, block_count=BLOCKS, world=2, model={"name": "tiny"})

    def test_every_form_of_keys_and_blocks(self):
        engine = self.register(world=2)
        for rank in range(2):
            self.fill(engine, [0, 1, 2], rank)
        keys = [bytes([i]) * 32 for i in range(3)]
        stored = engine.store(hashes=keys, blocks=[0, 1, 2]).wait()
        self.assertEqual((stored.stored_count, stored.block_count), (3, 3))
        forms = [(keys, {}), (tuple(keys), {}), (b"".join(keys), {"hash_bytes": 32}), (bytearray(b"".join(keys)), {"hash_bytes": 32}),
                 (keys, {"hash_bytes": 32})]
        for number, (hashes, more) in enumerate(forms):
            for blocks in ([5, 6, 7], array.array("I", [5, 6, 7]), [[5, 6, 7]], [array.array("I", [5, 6, 7])], ((5, 6, 7),)):
                with self.subTest(form=number, blocks=blocks):
                    self.fill(engine, [5, 6, 7])
                    self.assertEqual(engine.load(hashes=hashes, blocks=blocks, **more).wait().block_count, 3)
                    for rank in range(2):
                        self.same(engine, [0, 1, 2], engine, [5, 6, 7], rank)
        self.assertEqual(engine.load(hashes=[keys[0], b"x" * 32], blocks=[3, 4]).wait().block_count, 1)

    def test_hints_and_the_key_before(self):
        engine = self.register()
        self.fill(engine, [0, 1])
        keys = [bytes([i]) * 32 for i in range(2)]
        said = {"session": "ends", "priority": "high", "keep": 5, "session_id": "chat 7", "pause": 2.5}
        self.assertEqual(engine.store(hashes=keys, blocks=[0, 1], hints=said, before=b"b" * 32).wait().stored_count, 2)
        for hints in (None, {}, said, {"session": "continues"}, {"session": None, "priority": None, "keep": None, "session_id": None, "pause": None}, {"priority": "low", "keep": 0.5}):
            self.assertEqual(engine.load(hashes=keys, blocks=[3, 4], hints=hints).wait().block_count, 2)
        self.assertEqual(engine.store(range(4), [0], hints=said).wait().stored_count, 1)
        for error, words in [(TypeError, {"hints": "ends"}), (ValueError, {"hints": {"session": "over"}}), (ValueError, {"hints": {"priority": 1}}),
                             (ValueError, {"hints": {5: "ends"}}), (ValueError, {"hints": {"paws": 1}}), (ValueError, {"hints": {"pause": -1}}),
                             (TypeError, {"hints": {"session_id": 7}}), (ValueError, {"hints": {"session_id": ""}}), (ValueError, {"hints": {"session_id": "a\0b"}}),
                             (sluice.InvalidError, {"hints": {"pause": 7 * 86400 + 1}}), (TypeError, {"hints": {"keep": "long"}}),
                             (ValueError, {"hints": {"keep": -1}}), (sluice.InvalidError, {"hints": {"keep": 7 * 86400 + 1}}),
                             (TypeError, {"before": "text"}), (sluice.InvalidError, {"before": b"short"})]:
            with self.subTest(words=words), self.assertRaises(error):
                engine.store(hashes=keys, blocks=[0, 1], **words)
        with self.assertRaises(sluice.InvalidError):
            engine.store(range(4), [0], before=b"b" * 32)  # keys of tokens are known

    def test_what_is_wrong_is_refused(self):
        engine = self.register()
        keys = [b"k" * 32] * 2
        for error, words in [(TypeError, {}), (TypeError, {"hashes": keys}), (TypeError, {"blocks": [0]}), (TypeError, {"hash_bytes": 32}),
                             (TypeError, {"hashes": keys, "blocks": [0, 1], "tokens": [1], "device_blocks": [0]}),
                             (TypeError, {"hashes": ["text"], "blocks": [0]}), (TypeError, {"hashes": 5, "blocks": [0]}),
                             (TypeError, {"hashes": keys, "blocks": 5}), (TypeError, {"hashes": keys, "blocks": ["a", "b"]}),
                             (sluice.InvalidError, {"hashes": [b"ab", b"c"], "blocks": [0, 1]}),
                             (sluice.InvalidError, {"hashes": [b""], "blocks": [0]}),
                             (sluice.InvalidError, {"hashes": [b"x" * 65], "blocks": [0]}),
                             (sluice.InvalidError, {"hashes": b"x" * 64, "blocks": [0, 1]}),
                             (sluice.InvalidError, {"hashes": b"x" * 65, "hash_bytes": 32, "blocks": [0, 1]}),
                             (sluice.InvalidError, {"hashes": keys, "hash_bytes": 16, "blocks": [0, 1]}),
                             (sluice.InvalidError, {"hashes": keys, "blocks": [0]}),
                             (sluice.InvalidError, {"hashes": keys, "blocks": [[0, 1], [0]]}),
                             (sluice.InvalidError, {"hashes": keys, "blocks": [[0, 1]] * 9}),
                             (sluice.InvalidError, {"hashes": keys, "blocks": [0, 1], "partial": True}),
                             (OverflowError, {"hashes": keys, "blocks": [0, 1], "hash_bytes": -1})]:
            with self.subTest(words=words):
                self.assertRaises(error, engine.store, **words)

    def test_looking_blocks_up(self):
        engine = self.register()
        keys = [bytes([i]) * 16 for i in range(20)]
        self.assertEqual(engine.look(keys), 0)
        for first, count in ((0, 5), (6, 3)):
            engine.store(hashes=keys[first:first + count], blocks=list(range(count))).wait()
        bits = 0b1_1101_1111
        self.assertEqual(engine.look(keys), 5)
        self.assertEqual(engine.look(b"".join(keys), hash_bytes=16, hold=1.5), 5)
        self.assertEqual(engine.look_there(keys), (5, bits.to_bytes(3, "little")))
        self.assertEqual([engine.look(keys, window=window) for window in (1, 2, 3, 4, 5, 6)], [9, 9, 9, 5, 5, 5])
        self.assertEqual(engine.look_there(keys, window=1, hold=1)[0], 9)
        self.assertEqual((engine.look([]), engine.look(b"", hash_bytes=8), engine.look_there([])), (0, 0, (0, b"")))
        there = engine.look_there(keys)[1]
        self.assertEqual([sluice.look_prefix([(there, 0), (there, window)], 20) for window in (0, 1)], [5, 5])
        self.assertEqual(sluice.look_prefix([(there, 1), (b"\xff\xff\xff", 0)], 20), 9)
        self.assertEqual(sluice.look_prefix([(there, 1)], 3), 3)
        for error, words in [(TypeError, [5, 20]), (TypeError, [[5], 20]), (ValueError, [[], 20]), (ValueError, [[(b"", 0)], 20]),
                             (TypeError, [[("text", 0)], 4])]:
            self.assertRaises(error, sluice.look_prefix, *words)
        self.assertRaises(sluice.InvalidError, engine.look, b"x" * 17, hash_bytes=16)
        self.assertRaises(TypeError, engine.look, 5)
        self.assertRaises(TypeError, engine.look)
        self.assertRaises(ValueError, engine.look, keys, hold=-1)

    def test_a_hold_of_0_is_none(self):
        """Only a lookup that holds maps the leases."""
        def maps_leases():
            with open("/proc/self/maps", encoding="utf-8") as maps:
                return node.shm + "/leases" in maps.read()

        with Node(ranks=1, memory="16MiB") as node, client(node) as one:
            engine = one.engine("e", pools=[pool()], block_tokens=4, block_count=BLOCKS)
            engine.store(hashes=[b"key"], blocks=[0]).wait()
            for hold, held in ((None, False), (0, False), (0.0, False), (1e-9, True), (1, True)):
                self.assertEqual(engine.look([b"key"], hold=hold), 1)
                self.assertEqual(engine.look_there([b"key"], hold=hold)[0], 1)
                self.assertEqual(maps_leases(), held, hold)

    def test_what_is_held_is_not_evicted(self):
        with Node(ranks=1, memory="16MiB", settings=["--block-lease", "60s"]) as node, client(node) as one:
            layers = [sluice.Layer(0, 64 << 20, 1 << 20, 1 << 20)]
            engine = one.engine("e", pools=[sluice.Pool("p", 0, layers, memory_bytes=64 << 20)], block_tokens=4, block_count=64)
            keys = [bytes([i]) * 8 for i in range(40)]
            self.assertEqual(engine.store(hashes=keys[:4], blocks=range(4)).wait().stored_count, 4)
            self.assertEqual(engine.look(keys[:4], hold=60), 4)
            for i in range(4, 40):
                engine.store(hashes=keys[i:i + 1], blocks=[i]).wait()
            self.assertEqual(engine.look(keys[:4]), 4)
            self.assertLess(engine.look_there(keys)[1].count(b"\xff"), 4)
            self.assertEqual(engine.load(hashes=keys[:4], blocks=range(40, 44)).wait().block_count, 4)

    def test_ends_of_ops_at_a_descriptor(self):
        engine, fd = self.register(), self.client.event_fd()
        self.assertEqual(fd, self.client.event_fd())
        self.assertEqual(self.client.ended_ops(), [])
        keys, kept, told = [bytes([i]) * 8 for i in range(200)], {}, []
        for number in (1, 2, 4, 8):
            def submit(first, count, number=number):
                for i in range(first, first + count):
                    op = engine.store(hashes=[bytes([i, number]) * 8], blocks=[i % BLOCKS])
                    kept[id(op)] = op
            threads = [threading.Thread(target=submit, args=(i * 20, 20)) for i in range(number)]
            for thread in threads:
                thread.start()
            told, ends = [], time.monotonic() + 60 * PATIENCE
            while len(told) < 20 * number and time.monotonic() < ends:
                self.assertTrue(select.select([fd], [], [], 60 * PATIENCE)[0])
                for op, result in self.client.ended_ops():
                    self.assertIs(kept[id(op)], op)
                    self.assertEqual((result.code, result.stored_count), (0, 1))
                    self.assertTrue(op.block_stored(0) and not op.block_loaded(0))
                    told.append(id(op))
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(told), sorted(kept))
            kept.clear()
        gone = engine.store(hashes=keys[:1], blocks=[0])
        gone.wait()
        gone.release()
        engine.store(hashes=keys[1:2], blocks=[0])  # kept by no engine
        load = engine.load(hashes=[bytes([0, 1]) * 8, b"none" * 4], blocks=[1, 2])
        wait_until(lambda: load.poll() is not None, 10, "the load")
        self.assertEqual([op for op, _ in self.client.ended_ops()], [load])
        self.assertEqual([load.block_loaded(i) for i in range(3)], [True, False, False])
        self.assertEqual(self.client.ended_ops(), [])

    def test_threads_that_start_release_and_ask_for_ends(self):
        """An op that is released while its end is reported is not returned afterwards."""
        engine, stop, seen = self.register(), threading.Event(), []
        self.client.event_fd()

        def churn(number):
            for i in range(150):
                op = engine.store(hashes=[bytes([number, i % 250]) * 8], blocks=[number])
                if i % 3 == 0:
                    op.wait()
                op.release()

        def ask():
            while not stop.is_set():
                for op, result in self.client.ended_ops():
                    seen.append(result.stored_count)
        asking = [threading.Thread(target=ask) for _ in range(2)]
        churning = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
        for thread in asking + churning:
            thread.start()
        for thread in churning:
            thread.join()
        stop.set()
        for thread in asking:
            thread.join()
        self.assertTrue(seen)
        self.assertEqual(set(seen), {1})

    def test_many_end_everything_at_once(self):
        for i in range(20):
            own = client(self.node, settings=self.client_settings)
            made = own.pool_create("at once", 0, f"p{i}", LAYERS * BLOCKS * STRIDE)
            made.publish()
            engine = own.engine("at once", pools=[pool(device_pools=[made])], block_tokens=TOKENS, block_count=BLOCKS)
            batches, ready = sluice.Batches(own), threading.Barrier(8)
            op = engine.store(hashes=[bytes([i]) * 16], blocks=[0])

            def end(ends=(op.release, engine.end, made.release, batches.close, own.close), ready=ready):
                ready.wait()
                for one in ends:
                    one()

            threads = [threading.Thread(target=end) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        wait_until(lambda: not self.client.pools(), 5, "the pools are released")

    def test_one_rank_writes_what_two_read(self):
        one = self.register("one", pools=[self.halves()])
        two = [sluice.Layer(0, 32 * BLOCKS, 32, 32)]
        two = self.register("two", world=2, pools=[sluice.Pool("attention", sluice.POOL_ATTENTION, two, part_count=2)])
        self.assertEqual(one.model_identity, two.model_identity)
        page = os.urandom(64)
        one.memory()[STRIDE:STRIDE + 64] = page
        self.assertEqual(one.store(hashes=[b"page"], blocks=[1]).wait().stored_count, 1)
        self.assertEqual(two.load(hashes=[b"page"], blocks=[3]).wait().block_count, 1)
        for rank in range(2):
            want = b"".join(page[i:i + 8] for i in range(8 * rank, 64, 16))
            self.assertEqual(bytes(two.memory(rank)[96:128]), want)

    def test_ranks_of_a_team_register_for_themselves(self):
        team = sluice.team_number(os.urandom(16))
        self.assertGreaterEqual(team, 1 << 63)
        self.assertEqual(sluice.team_number("team of sixteen!"), sluice.team_number(b"team of sixteen!"))
        layers = [sluice.Layer(0, 32 * BLOCKS, 32, 32)]
        words = {"world": 2, "team": team, "pools": [sluice.Pool("attention", sluice.POOL_ATTENTION, layers, part_count=2)]}
        whole = self.register("scheduler", **{**words, "pools": [words["pools"][0]._replace(layers=())]})
        with self.assertRaises(sluice.NotFoundError):
            whole.store(hashes=[b"page"], blocks=[0]).wait()
        ranks = [self.register("rank", first_rank=rank, rank_count=1, **words) for rank in range(2)]
        self.assertEqual({engine.model_identity for engine in ranks}, {whole.model_identity})
        for rank, engine in enumerate(ranks):
            engine.memory(rank)[:32] = bytes([rank + 1]) * 32
        self.assertEqual(whole.store(hashes=[b"page"], blocks=[0]).wait().stored_count, 1)
        self.assertEqual(ranks[1].load(hashes=[b"page"], blocks=[2]).wait().block_count, 1)
        for rank, engine in enumerate(ranks):
            self.assertEqual(bytes(engine.memory(rank)[64:96]), bytes([rank + 1]) * 32)
        self.assertRaises(sluice.ExistsError, self.register, "again", first_rank=1, rank_count=1, **words)


class Handover(OnNode):
    settings = {**OnNode.settings, "settings": [*OnNode.settings["settings"], *fabric_without_peers()]}

    def both(self, mode):
        decode_client = client(self.node, settings={"op_timeout": f"{10 * PATIENCE}s"})
        self.addCleanup(decode_client.close)
        prefill, decode = self.register("prefill"), self.register("decode", client=decode_client)
        wait_pools(self.node, 2)
        self.fill(prefill, [0, 1, 2])
        number = int.from_bytes(os.urandom(8), "little") | 1
        receive = decode.receive(number, range(10), [4, 5, 6], mode=mode)
        ticket = None
        if mode == sluice.HANDOVER_DIRECT:
            ticket = wait_until(lambda: self.ticket_of(receive), 5, "a ticket")
            self.assertIs(type(ticket), bytes)
        with self.assertRaises(sluice.InvalidError):
            receive.receipt()
        send = prefill.send(number, range(10), [0, 1, 2], mode=mode, ticket=ticket, hold=20 * PATIENCE)
        with self.assertRaises(sluice.InvalidError):
            send.ticket()
        self.assertEqual(send.wait().block_count, 3)
        receipt = send.receipt()
        self.assertIs(type(receipt), bytes)
        self.assertEqual(decode_client.handover_arrived([receipt]), [0])
        self.assertEqual(receive.wait().block_count, 3)
        self.assertTrue(self.same(prefill, [0, 1, 2], decode, [4, 5, 6]))
        # 0 as long as the hold is being ended.
        wait_until(lambda: self.client.handover_end([number]) == [sluice.Code.NOT_FOUND], 5, "the hand-over is over")
        self.assertEqual(decode_client.handover_arrived([bytes([receipt[0] ^ 255]) + receipt[1:]]), [sluice.Code.NOT_FOUND])

    def ticket_of(self, op):
        try:
            return op.ticket()
        except sluice.BusyError:
            return None

    def test_through_storage(self):
        self.both(sluice.HANDOVER_BY_STORAGE)

    def test_direct(self):
        self.both(sluice.HANDOVER_DIRECT)

    def test_the_environment_says_how(self):
        name = "FD_PD_TRANSFER_VIA_STORAGE"
        for text, mode in (("1", sluice.HANDOVER_BY_STORAGE), ("0", sluice.HANDOVER_DIRECT)):
            os.environ[name] = text
            self.assertEqual(sluice.handover_mode(), mode)
        os.environ[name] = "flase"
        self.assertRaises(sluice.ConfigError, sluice.handover_mode)
        del os.environ[name]
        self.assertEqual(sluice.handover_mode(), sluice.HANDOVER_DIRECT)

    def test_wrong_receipts_tickets_and_ids(self):
        engine = self.register()
        for wrong in (b"", b"x", bytes(RECEIPT_BYTES), None, 5):
            self.assertRaises((ValueError, TypeError), self.client.handover_arrived, [wrong])
        self.assertRaises(ValueError, engine.send, 1, range(4), [0], mode=2, ticket=b"short")
        self.assertRaises(sluice.InvalidError, engine.send, 1, range(4), [0], mode=2, ticket=bytes(TICKET_BYTES))
        self.assertRaises(sluice.InvalidError, engine.send, 0, range(4), [0], mode=1)
        self.assertRaises(sluice.InvalidError, engine.send, 1, range(4), [0], mode=9)
        self.assertRaises(OverflowError, engine.send, -1, range(4), [0])
        self.assertRaises(OverflowError, engine.receive, 1 << 64, range(4), [0])
        self.assertRaises(sluice.InvalidError, self.client.handover_end, range(1025))
        self.assertRaises(sluice.InvalidError, self.client.handover_end, [])


class DevicePools(OnNode):
    LENGTH = LAYERS * BLOCKS * STRIDE

    def test_one_makes_it_and_others_map_it(self):
        with client(self.node) as other:
            mine = self.client.pool_create("chat", 0, "attention", self.LENGTH)
            self.assertRaises(sluice.BusyError, other.pool_create, "chat", 0, "attention", self.LENGTH)
            self.assertRaises(sluice.DeadlineError, other.pool_await, "chat", 0, "attention", timeout=0.1)
            memoryview(mine)[:4] = b"kept"
            mine.publish()
            theirs = other.pool_await("chat", 0, "attention")
            self.assertEqual((theirs.length, theirs.epoch), (self.LENGTH, mine.epoch))
            self.assertEqual(bytes(memoryview(theirs)[:4]), b"kept")
            row = next(row for row in other.pools() if row.deployment == "chat")
            self.assertEqual((row.state, row.owner_pid, row.length, row.by_sluice), ("ready", os.getpid(), self.LENGTH, False))
            self.assertRaises(sluice.DeadlineError, theirs.wait_over, 0.1)
            view = memoryview(theirs)
            self.assertRaises(sluice.DeadlineError, mine.revoke, 0.2)
            theirs.wait_over(PATIENCE)
            theirs.release()
            self.assertEqual(bytes(view[:4]), b"kept")  # it is not unmapped under an array
            self.assertRaises(BufferError, memoryview, theirs)
            view.release()
            mine.revoke()
            mine.release()
            for call in (mine.publish, mine.revoke, mine.wait_over, mine.__enter__, lambda: mine.length, lambda: mine.epoch):
                self.assertRaises(sluice.InvalidError, call)

    def test_an_engine_on_pools_that_sluice_made(self):
        pools = [self.client.pool_acquire("made", rank, "attention", self.LENGTH) for rank in range(2)]
        engine = self.register(world=2, pools=[pool(device_pools=pools)])
        for rank in range(2):
            self.fill(engine, [0, 1], rank)
            self.assertEqual(bytes(memoryview(pools[rank])[:PIECE]), bytes(engine.memory(rank)[:PIECE]))
        engine.store(range(8), [0, 1]).wait()
        self.assertEqual(engine.load(range(8), [4, 5]).wait().block_count, 2)
        self.assertTrue(self.same(engine, [0, 1], engine, [4, 5], 1))
        self.assertRaises(BufferError, pools[0].revoke)  # the engine still uses it
        for one in pools:
            one.release()
        memory = engine.memory(0)
        memory[:2] = b"ok"  # and still does
        self.assertEqual(len(self.client.pools()), 2)
        engine.end()
        self.assertEqual(bytes(memory[:2]), b"ok")
        memory.release()
        del memory
        gc.collect()
        wait_until(lambda: not self.client.pools(), 5, "the pools are released")

    def test_wrong_pools(self):
        fine = {"block_tokens": 4, "block_count": BLOCKS}
        for error, wrong in [(sluice.InvalidError, []), (TypeError, [5]), (TypeError, [None]), (TypeError, [self.client])]:
            self.assertRaises(error, self.client.engine, "e", pools=[pool(device_pools=wrong)], **fine)
        one = self.client.pool_acquire("small", 0, "attention", 4096)
        self.assertRaises(sluice.InvalidError, self.client.engine, "e", pools=[pool(device_pools=[one])], **fine)
        self.assertRaises(sluice.InvalidError, self.client.engine, "e", pools=[pool(device_pools=[one])], world=2, **fine)
        one.revoke()  # no pool kept it
        one.release()
        self.assertRaises(sluice.InvalidError, self.client.engine, "e", pools=[pool(device_pools=[one])], **fine)
        for arguments in (("", 0, "a", 1), ("d", 64, "a", 1), ("d", 0, "A", 1), ("d", 0, "a", 0)):
            self.assertRaises(sluice.InvalidError, self.client.pool_create, *arguments)
        self.assertRaises(OverflowError, self.client.pool_create, "d", -1, "a", 1)
        self.assertRaises(ValueError, self.client.pool_create, "d\0", 0, "a", 1)
        self.assertRaises(TypeError, sluice.DevicePool)

    def test_the_owners_death_is_heard(self):
        here, there = os.pipe()
        child = fork()
        if child == 0:
            try:
                own = client(self.node)
                made = own.pool_create("dying", 0, "attention", self.LENGTH)
                made.publish()
                os.write(there, b"!")
                time.sleep(600)
            finally:
                os._exit(1)
        try:
            os.close(there)
            self.assertEqual(os.read(here, 1), b"!")
            with self.client.pool_await("dying", 0, "attention") as mapped:
                os.kill(child, signal.SIGKILL)
                mapped.wait_over(10 * PATIENCE)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(here)


class Hostile(OnNode):
    def test_wrong_registrations(self):
        engine, fine = self.client.engine, {"pools": [pool()], "block_tokens": 4, "block_count": BLOCKS}
        layer = sluice.Layer(0, BLOCKS * STRIDE, STRIDE, PIECE)
        wrong = [
            (TypeError, {**fine, "pools": None}), (TypeError, {**fine, "pools": [5]}), (TypeError, {**fine, "pools": "abc"}),
            (TypeError, {**fine, "pools": [("a", 0)]}), (sluice.InvalidError, {**fine, "pools": []}),
            (sluice.InvalidError, {**fine, "pools": [pool()] * 9}), (sluice.InvalidError, {**fine, "pools": [pool(), pool()]}),
            (sluice.InvalidError, {**fine, "pools": [pool("BAD NAME")]}), (ValueError, {**fine, "pools": [pool("a\0b")]}),
            (sluice.InvalidError, {**fine, "pools": [pool(None)]}),
            (sluice.InvalidError, {**fine, "pools": [sluice.Pool("p", 0, [])]}),
            (sluice.InvalidError, {**fine, "pools": [sluice.Pool("p", 0, [layer] * 4097)]}),
            (TypeError, {**fine, "pools": [sluice.Pool("p", 0, [(1, 2)])]}),
            (OverflowError, {**fine, "pools": [sluice.Pool("p", 0, [layer._replace(offset=-1)])]}),
            (sluice.InvalidError, {**fine, "pools": [sluice.Pool("p", 0, [layer._replace(offset=(1 << 64) - 1)])]}),
            (sluice.InvalidError, {**fine, "pools": [sluice.Pool("p", 0, [layer], memory_bytes=1)]}),
            (sluice.InvalidError, {**fine, "pools": [pool(fds=[])]}), (sluice.SluiceError, {**fine, "pools": [pool(fds=[-1])]}),
            (TypeError, {**fine, "pools": [pool(fds=["x"])]}), (OverflowError, {**fine, "block_count": 1 << 32}),
            (sluice.InvalidError, {**fine, "block_count": 0}), (sluice.InvalidError, {**fine, "block_tokens": 0}),
            (sluice.InvalidError, {**fine, "world": 65}), (OverflowError, {**fine, "world": -1}),
            (sluice.InvalidError, {**fine, "model": {"nmae": "m"}}), (TypeError, {**fine, "model": {"name": 5}}),
            (TypeError, {**fine, "model": 5}),
            (TypeError, {"pools": [pool()]}), (TypeError, {**fine, "no": 1}), (ValueError, {**fine, "key_format": "a\0b"}),
        ]
        for error, words in wrong:
            with self.subTest(error=error, words=words):
                self.assertRaises(error, engine, "e", **words)
        self.assertRaises(TypeError, engine, 5, **fine)
        self.assertRaises(sluice.InvalidError, engine, "", **fine)

    def test_wrong_requests(self):
        engine = self.register()
        for error, tokens, blocks in [
                (sluice.InvalidError, [], []), (TypeError, None, [0]), (TypeError, "abc", [0]), (TypeError, ["a"], [0]),
                (TypeError, [1.5], [0]), (OverflowError, [-1], [0]), (OverflowError, [1 << 32], [0]),
                (sluice.InvalidError, range(4194305), [0]), (sluice.InvalidError, [0] * 4, [0] * 65537),
                (sluice.InvalidError, range(10 ** 15), [0]), (OverflowError, range(4), [-1])]:
            with self.subTest(error=error, tokens=repr(tokens)[:40]):
                self.assertRaises(error, engine.store, tokens, blocks)
        self.assertRaises(TypeError, engine.load, range(4))
        self.assertRaises(OverflowError, engine.load, range(4), [0], first_block=-1)
        self.assertRaises(ValueError, engine.load, range(4), [0], timeout=-1)
        self.assertRaises(sluice.SluiceError, lambda: engine.store(range(4), [BLOCKS]).wait())
        self.assertRaises(sluice.SluiceError, lambda: engine.store(range(4), [0], extras="no json").wait())
        self.assertRaises(sluice.InvalidError, engine.memory, 1)
        self.assertRaises(sluice.InvalidError, engine.memory, 0, 1)
        self.assertRaises(LookupError, engine.memory, 0, "no")
        self.assertRaises(OverflowError, engine.memory, -1)

    def test_tokens_of_every_form_make_the_same_keys(self):
        engine = self.register()
        self.fill(engine, [0])
        engine.store([1, 2, 3, 4], [0]).wait()
        strided = memoryview(array.array("I", [1, 0, 2, 0, 3, 0, 4, 0]))[::2]
        unaligned = memoryview(b"x" + array.array("I", [1, 2, 3, 4]).tobytes())[1:].cast("I")
        for tokens in (array.array("I", [1, 2, 3, 4]), array.array("q", [1, 2, 3, 4]), (1, 2, 3, 4), range(1, 5), b"\1\2\3\4",
                       strided, unaligned):
            if isinstance(tokens, bytes):
                self.assertRaises(TypeError, engine.load, tokens, [1])
                continue
            self.assertEqual(engine.load(tokens, [1]).wait().block_count, 1, tokens)


class Lifetimes(OnNode):
    def test_memory_lives_as_long_as_anything_shows_it(self):
        engine = self.register()
        memory = engine.memory()
        part = memory[10:20]
        memory[10:14] = b"abcd"
        engine.end()
        self.client.close()
        self.assertTrue(engine.ended)
        for call in (lambda: engine.memory(), lambda: engine.store(range(4), [0]), lambda: engine.model_identity,
                     engine.__enter__, lambda: self.client.engine("e", pools=[pool()], block_tokens=4, block_count=BLOCKS)):
            self.assertRaises(sluice.InvalidError, call)
        del engine, memory
        gc.collect()
        part[:2] = b"xy"
        self.assertEqual(bytes(part[:4]), b"xycd")

    def test_an_op_keeps_its_engine_and_client(self):
        with client(self.node) as other:
            with other.engine("e", pools=[pool()], block_tokens=TOKENS, block_count=BLOCKS) as engine:
                op = engine.store(range(4), [0])
        self.assertTrue(other.closed and engine.ended)
        del other, engine
        self.assertEqual(op.wait().stored_count, 1)
        op.release()
        for call in (op.wait, op.poll, op.cancel, op.wait_fenced, op.receipt, op.ticket, op.__enter__,
                     lambda: op.block_stored(0)):
            self.assertRaises(sluice.InvalidError, call)
        op.release()

    def test_an_ended_engine_is_gone_at_the_node(self):
        """Its memory as well: a thousand times its size would not fit."""
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            with self.register() as engine:
                engine.memory()[0] = 1
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 12)

    def test_a_child_leaves_the_parents_engine_alone(self):
        engine = self.register()
        op = engine.store(range(4), [0])
        child = fork()
        if child == 0:
            status = 1
            try:
                refused = 0
                for call in (lambda: engine.store(range(4), [0]), op.wait, op.poll, engine.memory):
                    try:
                        call()
                    except sluice.InvalidError:
                        refused += 1
                op.release()
                engine.end()
                status = 0 if refused == 4 else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(op.wait().stored_count, 1)
        self.assertEqual(engine.load(range(4), [1]).wait().block_count, 1)

    def test_nothing_stays_after_many_ops(self):
        engine = self.register()
        blocks = [0]

        def rounds(count):
            for _ in range(count):
                engine.store(range(4), blocks).wait()
                with engine.load(range(4), blocks) as op:
                    op.wait()
                bytes(engine.memory()[:10])
                for wrong in (lambda: engine.load(["x"], blocks), lambda: engine.memory(7), lambda: engine.load([1], [1] * 70000)):
                    self.assertRaises((TypeError, sluice.InvalidError), wrong)

        rounds(20)
        gc.collect()
        watched = [engine, self.client, blocks, sluice.OpResult, sluice.Op]
        references, allocated = [sys.getrefcount(one) for one in watched], sys.getallocatedblocks()
        rounds(300)
        gc.collect()
        self.assertEqual([sys.getrefcount(one) for one in watched], references)
        self.assertLess(sys.getallocatedblocks() - allocated, 200)


FAKE = os.path.join(BIN, "..", "tests", "fake", "libcuda.so.1")


@unittest.skipUnless(os.path.exists(FAKE), "the driver that plays a GPU was not built")
class DeviceMemory(OnNode):
    """Tensors of this process, by their addresses. The driver plays a GPU in ordinary memory."""

    def setUp(self):
        super().setUp()
        self.cuda = ctypes.CDLL(FAKE)
        context, self.at = ctypes.c_void_p(), ctypes.c_uint64()
        self.assertEqual(self.cuda.cuInit(0), 0)
        self.assertEqual(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(self.cuda.cuCtxSetCurrent(context), 0)
        self.assertEqual(self.cuda.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(8 << 20)), 0)

    def tensors(self, count=LAYERS, first=4096):
        return [self.at.value + first + layer * (1 << 20) for layer in range(count)]

    def pool(self, device):
        layers = [sluice.Layer(0, BLOCKS * STRIDE, STRIDE, PIECE)] * LAYERS
        return sluice.Pool("attention", sluice.POOL_ATTENTION, layers, device=device)

    def test_tensors_are_registered_by_their_addresses(self):
        engine = self.register(pools=[self.pool([self.tensors()])])
        self.assertEqual(engine.memory_kind(), "cuda ipc")
        self.assertEqual(engine.memory_kind(0, "attention"), "cuda ipc")
        self.assertRaises(sluice.InvalidError, engine.memory)
        self.assertRaises(sluice.InvalidError, engine.memory_kind, 1)
        self.assertIn("1 ranks, 1 pools, cuda ipc", self.node.logs())
        self.assertEqual(self.register("plain").memory_kind(), "shared memory")

    def test_tensors_that_were_freed_are_told(self):
        engine = self.register(pools=[self.pool([self.tensors()])])
        self.assertEqual(self.cuda.cuMemFree_v2(self.at), 0)
        with self.assertRaisesRegex(sluice.SluiceError, "sleep mode") as raised:
            engine.store(range(4), [0])
        self.assertEqual(raised.exception.code, sluice.Code.STALE)

    def test_plain_memory_is_registered_by_its_address(self):
        """Tensors of an engine on CPUs."""
        plain = ctypes.create_string_buffer(LAYERS << 20)
        rows = [ctypes.addressof(plain) + layer * (1 << 20) for layer in range(LAYERS)]
        self.assertEqual(self.register(pools=[self.pool([rows])]).memory_kind(), "memory of the process")
        self.assertIn("memory of the process", self.node.logs())
        with self.assertRaisesRegex(sluice.InvalidError, "in one pool"):
            self.register("mixed", pools=[self.pool([rows[:1] + self.tensors()[1:]])])

    def test_wrong_addresses(self):
        fine = {"block_tokens": 4, "block_count": BLOCKS}
        for error, wrong in [(sluice.InvalidError, []), (sluice.InvalidError, [[]]), (sluice.InvalidError, [self.tensors(1)]),
                             (sluice.InvalidError, [self.tensors()] * 2), (TypeError, 5), (TypeError, [5]), (TypeError, [["a", "b"]]),
                             (OverflowError, [[-1, -1]]), (sluice.InvalidError, [[0, 0]]), (sluice.InvalidError, [self.tensors(first=7 << 20)])]:
            with self.subTest(wrong=wrong):
                self.assertRaises(error, self.client.engine, "e", pools=[self.pool(wrong)], **fine)


if __name__ == "__main__":
    main()
