"""Objects through the Python package: every call, hostile arguments, threads, forks, and that nothing leaks."""

import array
import contextlib
import gc
import mmap
import os
import subprocess
import sys
import threading
import time
import unittest

import python_support
from python_support import client, fork, interpreter, sluice
from node_support import PACE, PATIENCE, main

KIB = 1024


class OnNode(python_support.OnNode):
    def raises(self, error, call, *args, **names):
        """Checks that the call raises this error, and that its code is that of its class."""
        with self.assertRaises(error) as caught:
            call(*args, **names)
        if issubclass(error, sluice.SluiceError):
            self.assertEqual(caught.exception.code, error.code)
            self.assertTrue(str(caught.exception))
        return caught.exception


class Objects(OnNode):
    def test_what_was_put_is_read_in_every_form(self):
        value = os.urandom(100_000)
        self.assertIsNone(self.client.put("k", value))
        self.assertEqual(self.client.get("k"), value)
        into = bytearray(200_000)
        self.assertEqual(self.client.get_into("k", into), len(value))
        self.assertEqual(bytes(into[:len(value)]), value)
        with self.client.get_pinned("k") as view:
            self.assertEqual(bytes(view), value)
            self.assertEqual(len(view), len(value))
            self.assertTrue(memoryview(view).readonly)
        self.assertIs(self.client.exists("k"), True)
        self.assertEqual(self.client.size("k"), len(value))

    def test_any_contiguous_buffer_is_a_value_or_a_target(self):
        numbers = array.array("I", range(1000))
        self.client.put(b"array", numbers)
        self.client.put("cast", memoryview(b"abcdefgh").cast("H"))
        into = array.array("I", bytes(4000))
        self.assertEqual(self.client.get_into("array", into), 4000)
        self.assertEqual(into, numbers)
        self.assertEqual(self.client.get("cast"), b"abcdefgh")

    def test_a_key_that_exists_keeps_its_value(self):
        self.client.put("k", b"first")
        self.client.put("k", b"second")
        self.assertEqual(self.client.get("k"), b"first")

    def test_removed_objects_are_gone_and_explained(self):
        self.client.put("a", b"1")
        self.client.put("b", b"2")
        self.client.remove("a")
        self.raises(sluice.NotFoundError, self.client.get, "a")
        self.raises(sluice.NotFoundError, self.client.remove, "a")
        self.raises(sluice.NotFoundError, self.client.size, "a")
        self.raises(sluice.NotFoundError, self.client.stat, "a")
        self.raises(sluice.NotFoundError, self.client.get_pinned, "a")
        self.raises(sluice.NotFoundError, self.client.get_into, "a", bytearray(1))
        gone, there = self.client.explain(["a", "b"])
        self.assertEqual((gone.code, there.code), (sluice.Code.NOT_FOUND, 0))
        self.assertIn("removed", gone.text)
        self.assertGreaterEqual(gone.ago, 0)
        self.client.remove_all()
        self.assertEqual(self.client.list(), [])

    def test_list_and_stat_tell_the_same(self):
        for i in range(300):
            self.client.put(f"list/ä{i}", bytes(i + 1))
        self.client.put("other", b"x")
        infos = self.client.list("list/")
        self.assertEqual(sorted(info.key for info in infos), sorted(f"list/ä{i}" for i in range(300)))
        self.assertEqual(len(self.client.list()), 301)
        self.assertEqual(len(self.client.list(limit=7)), 7)
        for info in infos:
            self.assertEqual(info, self.client.stat(info.key))
            self.assertTrue(info.in_memory and not info.on_disk and 0 < info.digest < 1 << 128)

    def test_batches_answer_for_each(self):
        keys = [f"k{i}" for i in range(1000)]
        values = [bytes([i % 256]) * (i + 1) for i in range(1000)]
        self.assertEqual(self.client.put_batch(keys, values), [0] * 1000)
        self.assertEqual(self.client.get_batch(keys), values)
        self.assertEqual(self.client.get_batch(["k5", "no", "k7"]), [values[5], None, values[7]])
        buffers = [bytearray(2000) for _ in keys]
        self.assertEqual(self.client.get_batch_into(keys, buffers), [i + 1 for i in range(1000)])
        self.assertEqual([bytes(b[:i + 1]) for i, b in enumerate(buffers)], values)
        small = [bytearray(1), bytearray(100), bytearray(100)]
        self.assertEqual(self.client.get_batch_into(["k9", "no", "k9"], small),
                         [-sluice.Code.LIMIT, -sluice.Code.NOT_FOUND, 10])
        views = self.client.get_pinned_batch(["k3", "no", "k4"])
        self.assertIsNone(views[1])
        self.assertEqual((bytes(views[0]), bytes(views[2])), (values[3], values[4]))
        self.assertEqual(self.client.exists_batch(["k1", "no"]), [True, False])
        self.assertEqual(self.client.prefetch(["k1", "no"]), [sluice.Code.EXISTS, sluice.Code.NOT_FOUND])
        self.assertEqual(self.client.remove_batch(["k1", "no"]), [0, sluice.Code.NOT_FOUND])
        for call in (self.client.get_batch, self.client.exists_batch, self.client.get_pinned_batch, self.client.remove_batch):
            self.assertEqual(call([]), [])
        self.assertIs(type(self.client.put_batch(["t"], [b"1"])[0]), int)

    def test_an_item_of_a_batch_that_cannot_be_says_why(self):
        self.assertEqual(self.client.put_batch(["ok", "empty"], [b"1", b""]), [0, sluice.Code.INVALID])

    def test_a_value_that_is_too_large_is_told_the_limit_and_the_way(self):
        """Also by the command line. The memory and the file are never touched."""
        gib = 1 << 30
        large = memoryview(mmap.mmap(-1, gib + 1, flags=mmap.MAP_PRIVATE))
        file = self.node.directory + "/large"
        # The chunks of this node's memory are smaller than 1 GiB.
        for length, limit in ((gib + 1, f"{gib} bytes (1 GiB)"), (gib, "(the node's memory_chunk; 1 GiB at most)"),
                              (gib - 1, "(the node's memory_chunk; 1 GiB at most)")):
            error = str(self.raises(sluice.InvalidError, self.client.put, "large", large[:length]))
            self.assertEqual(self.client.put_batch(["large", "ok"], [large[:length], b"1"]), [sluice.Code.INVALID, 0])
            for part in (limit, f"not {length}", "in parts"):
                self.assertIn(part, error)
        with open(file, "wb") as sparse:
            sparse.truncate(gib + 1)
        for arguments, stdin in (((file,), None), ((), open(file, "rb"))):
            with stdin or contextlib.nullcontext():
                done = subprocess.run([self.node.ctl_program, "put", "large", *arguments, *self.node.where], stdin=stdin, env=self.node.environment,
                                      capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            for part in (f"{gib} bytes (1 GiB)", f"not {gib + 1}", "in parts"):
                self.assertIn(part, done.stderr)
        with open(file, "rb") as rest:  # the rest of a file, after a command that has read the first part
            rest.seek(gib)
            subprocess.run([self.node.ctl_program, "put", "rest", *self.node.where], stdin=rest, env=self.node.environment, check=True)
        self.assertEqual(self.client.get("rest"), b"\0")

    def test_flush_needs_a_disk_and_nodes_know_nobody(self):
        self.raises(sluice.UnsupportedError, self.client.flush)
        cluster, nodes = self.client.nodes()
        self.assertEqual((cluster.listen, nodes), ("", []))

    def test_what_does_not_fit_has_no_space(self):
        """Half of memory is pinned by each of two: nothing is left to evict."""
        with client(self.node) as other:
            views = []
            for i in range(62):
                one = (self.client, other)[i % 2]
                one.put(f"k{i}", bytes(1 << 20))
                views += one.get_pinned_batch([f"k{i}"])
            error = self.raises(sluice.NoSpaceError, self.client.put, "large", bytes(20 << 20), timeout=1 * PACE)
            self.assertIn("no room", str(error))


class Views(OnNode):
    def test_a_view_that_is_in_use_keeps_its_bytes_until_the_last_array_is_gone(self):
        value = os.urandom(300 * KIB)
        self.client.put("k", value)
        view = self.client.get_pinned("k")
        first, second = memoryview(view), memoryview(view)[10:20]
        view.release()
        self.assertTrue(view.released and view.pinned)
        self.raises(BufferError, memoryview, view)
        self.raises(sluice.InvalidError, len, view)
        self.raises(sluice.InvalidError, view.__enter__)
        self.client.remove("k")
        self.client.put("other", bytes(300 * KIB))  # would be at the same place
        self.assertEqual((bytes(first), bytes(second)), (value, value[10:20]))
        first.release()
        self.assertTrue(view.pinned)
        second.release()
        self.assertFalse(view.pinned)
        view.release()

    def test_a_client_that_is_closed_or_forgotten_serves_the_views_that_live(self):
        other = client(self.node)
        other.put("k", b"x" * 5000)
        view = other.get_pinned("k")
        other.close()
        self.assertTrue(other.closed)
        self.assertEqual(bytes(view), b"x" * 5000)
        del other
        gc.collect()
        self.assertEqual(bytes(view), b"x" * 5000)
        memory = memoryview(view)
        del view
        self.assertEqual(bytes(memory), b"x" * 5000)

    def test_nothing_can_be_written_through_a_view(self):
        self.client.put("k", b"abc")
        with self.client.get_pinned("k") as view:
            with self.assertRaises(TypeError):
                memoryview(view)[0] = 1
            self.raises(BufferError, self.client.get_into, "k", view)

    def test_pins_are_given_back(self):
        self.client.put("k", b"x" * 5000)
        with client(self.node, settings={"client_pins_max": 16}) as few:
            kept = [few.get_pinned("k") for _ in range(16)]
            self.raises(sluice.LimitError, few.get_pinned, "k")
            kept.pop().release()
            for _ in range(100):
                with few.get_pinned("k") as view:
                    self.assertEqual(view.pinned, True)
                self.assertEqual(view.pinned, False)
                few.get_pinned("k")  # forgotten at once
            self.raises(sluice.LimitError, few.get_pinned_batch, ["k", "no", "k"])  # one fits: it is not kept
            few.get_pinned("k")


class Hostile(OnNode):
    def test_wrong_keys(self):
        for key in (None, 1, 1.5, bytearray(b"k"), ["k"]):
            for call in (self.client.get, self.client.exists, self.client.size, self.client.stat, self.client.remove):
                self.raises(TypeError, call, key)
        for key in ("", b"", "a\0b", b"a\0b", "k" * 1025, "ä" * 513):
            for call in (self.client.get, self.client.exists, self.client.get_pinned, self.client.remove):
                self.raises(sluice.InvalidError, call, key)
            self.raises(sluice.InvalidError, self.client.put, key, b"x")
            self.raises(sluice.InvalidError, self.client.exists_batch, ["fine", key])
        for key in (b"\xff", b"ok\xc3", "\ud800"):
            self.raises(UnicodeError, self.client.put, key, b"x")
            self.raises(UnicodeError, self.client.get_batch, ["fine", key])
        self.client.put("k" * 1024, b"x")
        self.assertEqual(self.client.get(b"k" * 1024), b"x")

    def test_wrong_buffers(self):
        self.client.put("k", b"12345678")
        self.raises(TypeError, self.client.put, "n", "text")
        self.raises(TypeError, self.client.put, "n", None)
        self.raises(sluice.InvalidError, self.client.put, "n", b"")
        self.raises(BufferError, self.client.put, "n", memoryview(b"abcdefgh")[::2])
        self.raises(BufferError, self.client.get_into, "k", b"readonly")
        self.raises(BufferError, self.client.get_into, "k", memoryview(bytearray(64))[::2])
        self.raises(TypeError, self.client.get_into, "k", 7)
        small = bytearray(7)
        self.raises(sluice.LimitError, self.client.get_into, "k", small)
        self.raises(sluice.LimitError, self.client.get_into, "k", bytearray())
        self.raises(BufferError, self.client.get_batch_into, ["k", "k"], [bytearray(8), b"readonly"])
        self.assertFalse(self.client.exists("n"))

    def test_a_buffer_in_use_cannot_be_resized(self):
        """libsluice reads these bytes without the GIL, so they must not move: a batch that fails releases all of them."""
        value = bytearray(b"x" * 100)
        self.raises(TypeError, self.client.put_batch, ["a", "b"], [value, None])
        value.extend(b"y")  # BufferError if the first view were still held
        self.client.put_batch(["a", "b"], [value, value])
        value.extend(b"z")

    def test_wrong_counts(self):
        self.raises(sluice.InvalidError, self.client.put_batch, ["a", "b"], [b"1"])
        self.raises(sluice.InvalidError, self.client.get_batch_into, ["a"], [])
        self.raises(sluice.InvalidError, self.client.exists_batch, range(10 ** 15))
        self.raises(sluice.InvalidError, self.client.get_batch, ["k"] * 65537)
        self.raises(sluice.InvalidError, self.client.explain, ["k"] * 65)
        self.raises(sluice.InvalidError, self.client.explain, [])
        self.raises(TypeError, self.client.exists_batch, "key")
        self.raises(TypeError, self.client.exists_batch, b"key")
        self.raises(TypeError, self.client.exists_batch, 5)
        self.raises(TypeError, self.client.exists_batch, (k for k in ["a"]))
        self.raises(OverflowError, self.client.list, limit=-1)
        self.assertEqual(self.client.exists_batch(["k"] * 65536), [False] * 65536)

    def test_a_sequence_that_lies_about_its_length(self):
        class Liar:
            def __len__(self):
                return 3

            def __getitem__(self, place):
                if place > 70000:
                    raise IndexError
                return "k"

        class Failing(Liar):
            def __getitem__(self, place):
                raise ZeroDivisionError

        self.raises(sluice.InvalidError, self.client.exists_batch, Liar())
        self.raises(ZeroDivisionError, self.client.exists_batch, Failing())

    def test_wrong_timeouts(self):
        for timeout in (-1, -0.001, float("nan"), float("-inf")):
            self.raises(ValueError, self.client.get, "k", timeout=timeout)
        self.raises(TypeError, self.client.get, "k", timeout="1s")
        self.raises(sluice.NotFoundError, self.client.get, "k", timeout=float("inf"))
        self.raises(sluice.NotFoundError, self.client.get, "k", timeout=1e300)

    def test_wrong_words(self):
        self.raises(TypeError, self.client.get)
        self.raises(TypeError, self.client.get, "k", 1)
        self.raises(TypeError, self.client.get, "k", patience=1)
        self.raises(TypeError, sluice.View)
        self.raises(TypeError, sluice.Op)
        self.raises(TypeError, sluice.Engine)
        with self.assertRaises(TypeError):
            type("Own", (sluice.Client,), {})

    def test_a_closed_client_refuses_every_call(self):
        self.client.close()
        self.client.close()
        calls = [("put", "k", b"x"), ("get", "k"), ("get_into", "k", bytearray(1)), ("get_pinned", "k"), ("exists", "k"),
                 ("size", "k"), ("stat", "k"), ("remove", "k"), ("remove_all",), ("list",), ("put_batch", ["k"], [b"x"]),
                 ("get_batch", ["k"]), ("get_batch_into", ["k"], [bytearray(1)]), ("get_pinned_batch", ["k"]),
                 ("exists_batch", ["k"]), ("remove_batch", ["k"]), ("prefetch", ["k"]), ("session_pause", "s", 1), ("flush",), ("explain", ["k"]),
                 ("nodes",), ("handover_end", [1]), ("__enter__",)]
        for name, *args in calls:
            error = self.raises(sluice.InvalidError, getattr(self.client, name), *args)
            self.assertIn("closed", str(error), name)
        with self.assertRaises(ValueError):
            self.client.instance

    def test_no_node(self):
        error = self.raises(sluice.UnreachableError, sluice.Client, "nobody-" + self.node.instance)
        self.assertIsInstance(error, ConnectionError)
        self.raises(sluice.ConfigError, sluice.Client, settings={"no_such_setting": 1})
        self.raises(sluice.ConfigError, sluice.Client, settings={"op_timeout": "soon"})
        self.raises(TypeError, sluice.Client, settings=5)

    def test_a_read_only_client_reads_alone(self):
        self.client.put("k", b"x")
        with client(self.node, read_only=True) as reader:
            self.assertEqual(reader.get("k"), b"x")
            self.raises(sluice.NotPermittedError, reader.put, "n", b"x")
            self.raises(sluice.NotPermittedError, reader.get_pinned, "k")


class Threads(OnNode):
    def test_others_run_while_one_waits(self):
        """A put that waits for a stopped actor does not hold the GIL."""
        self.client.put("there", b"x")
        ended = []

        def wait():
            try:
                self.client.put("late", b"x", timeout=2.0 * PACE)
            except sluice.SluiceError as error:
                ended.append(error.code)

        with self.node.actors_stopped("registrar"):
            waiting = threading.Thread(target=wait)
            waiting.start()
            turns = 0
            while waiting.is_alive():
                self.assertEqual(self.client.get("there"), b"x")  # and other calls of the same client
                turns += 1
            waiting.join()
        # With the GIL held there would be at most two: one before it was taken, one after.
        self.assertGreater(turns, 2)
        self.assertEqual(ended, [sluice.Code.TIMEOUT])

    def test_closed_by_one_while_others_read(self):
        for _ in range(20):
            shared = client(self.node)
            shared.put("k", b"x" * 100_000)
            wrong = []

            def read(shared=shared, wrong=wrong):
                try:
                    while True:
                        if shared.get("k") != b"x" * 100_000:
                            wrong.append("bytes")
                except sluice.InvalidError as error:
                    if "closed" not in str(error):
                        wrong.append(error)

            readers = [threading.Thread(target=read) for _ in range(4)]
            for reader in readers:
                reader.start()
            time.sleep(0.005)
            shared.close()
            for reader in readers:
                reader.join(10 * PATIENCE)
                self.assertFalse(reader.is_alive())
            self.assertEqual(wrong, [])

    def test_many_threads_put_and_get(self):
        wrong = []

        def work(number):
            for turn in range(100):
                value = bytes([number, turn]) * (1000 + 500 * turn)
                self.client.put(f"{number}/{turn}", value)
                if self.client.get(f"{number}/{turn}") != value:
                    wrong.append((number, turn))

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(self.client.list()), 800)


class Ends(OnNode):
    def test_the_interpreter_ends_while_a_thread_waits(self):
        done = interpreter(f"""
import os, sluice, threading, time
client = sluice.Client({self.node.instance!r}, settings={{"runtime_dir": {self.node.directory + "/run"!r}, "shm_dir": {self.node.shm!r}}})
threading.Thread(target=client.pool_await, args=("nobody", 0, "p"), kwargs={{"timeout": 0.5}}, daemon=True).start()
time.sleep(0.2)
class Late:
    def __init__(self):
        self.sleep, self.write = time.sleep, os.write
    def __del__(self):  # the thread comes back meanwhile
        self.sleep({2 * PATIENCE})
        self.write(1, b"late")
late = Late()
""")
        self.assertEqual((done.returncode, done.stdout), (0, "late"), done.stderr)

    def test_a_package_that_is_imported_anew_is_whole(self):
        done = interpreter("""
import sys, sluice
before, names = sluice, set(sluice.__all__)
for name in [name for name in sys.modules if name.partition(".")[0] == "sluice"]:
    del sys.modules[name]
import sluice
assert sluice is not before and set(sluice.__all__) == names, names ^ set(sluice.__all__)
assert len(sluice.Code) == len(before.Code) and sluice.NotFoundError is before.NotFoundError
try:
    sluice.Client("nobody")
except sluice.UnreachableError:
    print("caught")
""")
        self.assertEqual((done.returncode, done.stdout), (0, "caught\n"), done.stderr)


class Forks(OnNode):
    def test_a_child_is_refused_and_harms_nobody(self):
        self.client.put("k", b"x" * 5000)
        view = self.client.get_pinned("k")
        child = fork()
        if child == 0:
            status = 1
            try:
                refused = 0
                for call in (lambda: self.client.get("k"), lambda: self.client.put("n", b"x"), lambda: self.client.list()):
                    try:
                        call()
                    except sluice.InvalidError as error:
                        refused += "fork" in str(error)
                view.release()  # it stays in the parent
                self.client.close()
                with client(self.node) as own:
                    status = 0 if refused == 3 and own.get("k") == b"x" * 5000 else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.client.remove("k")
        for i in range(100):  # pushes everything out that is not pinned
            self.client.put(f"k{i}", bytes(1 << 20))
        self.assertEqual(bytes(view), b"x" * 5000)
        self.assertTrue(view.pinned)


class Leaks(OnNode):
    def rounds(self, count):
        for _ in range(count):
            self.client.get("k")
            self.client.get_into("k", self.into)
            self.client.exists("k")
            self.client.stat("k")
            self.client.get_batch(["k", "no"])
            self.client.exists_batch(["k", "no"])
            self.client.get_batch_into(["k", "no"], [self.into, self.into])
            self.client.list("k")
            with self.client.get_pinned("k") as view:
                bytes(view)
            for call, wrong in ((self.client.get, "no"), (self.client.get, b"\xff"), (self.client.get_batch, ["k", 1]),
                                (self.client.put, None), (self.client.get_pinned, "no")):
                try:
                    call(wrong)
                except (sluice.SluiceError, TypeError, UnicodeError):
                    pass

    def test_nothing_stays_after_many_calls(self):
        self.client.put("k", b"x" * 1000)
        self.into = bytearray(2000)
        self.rounds(50)
        gc.collect()
        watched = [self.client, self.into, sluice.Client, sluice.View, sluice.ObjectInfo, sluice.NotFoundError]
        references = [sys.getrefcount(one) for one in watched]
        blocks = sys.getallocatedblocks()
        self.rounds(1000)  # 14,000 calls
        gc.collect()
        self.assertEqual([sys.getrefcount(one) for one in watched], references)
        # 0 with PYTHONMALLOC=malloc, where there are no blocks to count.
        self.assertLess(sys.getallocatedblocks() - blocks, 200)

    def test_clients_that_come_and_go_leave_no_descriptor(self):
        def once():
            with client(self.node) as one:
                one.exists("k")

        self.client.close()  # its own connection may be made late
        once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            once()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_closed_clients_leave_their_slots_to_others(self):
        """Closed while a view of theirs lived: with the last view. clients_max is 256."""
        self.client.put("k", b"x" * 5000)
        for _ in range(2):
            views = []
            for _ in range(130):
                with client(self.node) as one:
                    views.append(one.get_pinned("k"))
            self.assertEqual({bytes(view) for view in views}, {b"x" * 5000})


class Stubs(unittest.TestCase):
    def test_they_name_what_there_is(self):
        import ast

        with open(os.path.join(os.path.dirname(sluice.__file__), "__init__.pyi"), encoding="utf-8") as text:
            tree = ast.parse(text.read())
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(sluice.__file__), "py.typed")))
        named = {}
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                named[node.name] = node
            elif isinstance(node, ast.AnnAssign):
                named[node.target.id] = node
        self.assertEqual(set(sluice.__all__) - set(named), set())
        self.assertEqual(set(named) - set(sluice.__all__), set())
        for name, node in named.items():
            if not isinstance(node, ast.ClassDef) or issubclass(getattr(sluice, name), (BaseException, tuple)):
                continue
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            members |= {t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets}
            real = {n for base in getattr(sluice, name).__mro__ for n in vars(base) if base.__module__.startswith("sluice") and not n.startswith("_")}
            self.assertEqual({n for n in members if not n.startswith("_")}, real, name)
        fields = [n.target.id for n in named["OpResult"].body]
        self.assertEqual(fields, [n for n in sluice.OpResult.__match_args__])

    def test_every_code_has_its_exception(self):
        for code in sluice.Code:
            if code != 0:
                matching = [e for e in vars(sluice).values() if isinstance(e, type) and issubclass(e, sluice.SluiceError)
                            and e is not sluice.SluiceError and e.code == code]
                self.assertEqual(len(matching), 1, code)
                self.assertEqual(matching[0].name, "SL_ERR_" + code.name)


if __name__ == "__main__":
    main()
