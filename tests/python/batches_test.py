"""Batches in the background: every job ends, by its deadline, with the bytes that were stored, whatever happens to the node."""

import array
import ctypes
import mmap
import os
import select
import signal
import sys
import tempfile
import threading
import time

import python_support
from python_support import client, fork, interpreter, sluice
from node_support import BIN, PACE, PATIENCE, Slept, main, wait_until

MIB = 1 << 20


class Int32(int):
    """Like numpy's: products also have 32 bits."""

    def __mul__(self, other):
        return Int32(((int(self) * int(other) + (1 << 31)) & 0xffffffff) - (1 << 31))

    def __add__(self, other):
        return Int32(int(self) + int(other))


def rows_of(count, row_bytes):
    """Memory of two dimensions, and a view of its bytes."""
    memory = (ctypes.c_ubyte * row_bytes * count)()
    return memory, memoryview(memory).cast("B")


class OnNode(python_support.OnNode):
    settings = {"ranks": 1, "memory": "256MiB"}

    def batches(self, **options):
        made = sluice.Batches(self.client, **options)
        self.addCleanup(made.close)
        return made

    def results(self, batches, count, seconds=10):
        """{number: (ok, error, bools)} of this number of jobs; the eventfd signals when there are results."""
        found, end_s = {}, time.monotonic() + seconds * PATIENCE
        while len(found) < count:
            self.assertTrue(select.select([batches.event_fd()], [], [], max(0, end_s - time.monotonic()))[0],
                            f"{len(found)} of {count} jobs ended")
            for number, *result in batches.drain():
                self.assertNotIn(number, found)
                found[number] = tuple(result)
        return found

    def result(self, batches, number, seconds=10):
        return self.results(batches, 1, seconds)[number]


class Working(OnNode):
    def test_what_was_put_is_looked_up_read_and_removed(self):
        with self.batches() as batches:
            keys, values = [f"k{i}" for i in range(100)], [os.urandom(1000 + i) for i in range(100)]
            self.assertEqual(self.result(batches, batches.put(keys, values)), (True, "", [True] * 100))
            self.assertEqual(self.result(batches, batches.exists([*keys, "no"])), (True, "", [True] * 100 + [False]))
            buffers = [bytearray(len(value)) for value in values]
            self.assertEqual(self.result(batches, batches.get(keys, buffers)), (True, "", [True] * 100))
            self.assertEqual([bytes(buffer) for buffer in buffers], values)
            self.assertEqual(self.result(batches, batches.remove(["k1", "no"])), (True, "", [True, False]))
            self.assertFalse(self.client.exists("k1"))
            self.assertEqual(batches.look(["k0", "k1", "no"]), [True, False, False])

    def test_a_large_job_is_shared_by_threads_and_comes_back_whole(self):
        with self.batches(threads=3) as batches:
            values = [os.urandom(1 * MIB) for _ in range(64)]
            keys = [f"large{i}" for i in range(64)]
            self.assertEqual(self.result(batches, batches.put(keys, values)), (True, "", [True] * 64))
            buffers = [bytearray(1 * MIB) for _ in values]
            self.assertEqual(self.result(batches, batches.get(keys, buffers)), (True, "", [True] * 64))
            self.assertEqual([bytes(buffer) for buffer in buffers], values)

    def test_a_job_of_many_keys_is_answered_in_their_order(self):
        with self.batches(threads=3) as batches:
            keys = [f"many{i}" for i in range(3000)]
            self.assertEqual(self.result(batches, batches.put(keys[::2], [str(i).encode() for i in range(0, 3000, 2)]))[0], True)
            self.assertEqual(self.result(batches, batches.exists(keys)), (True, "", [True, False] * 1500))
            buffers = [bytearray(len(str(i))) for i in range(3000)]
            self.assertEqual(self.result(batches, batches.get(keys, buffers)), (True, "", [True, False] * 1500))
            self.assertEqual([int(buffer) for buffer in buffers[::2]], list(range(0, 3000, 2)))
            self.assertEqual(batches.look(keys), [True, False] * 1500)

    def test_jobs_of_several_threads_come_back_each_with_its_own(self):
        with self.batches(threads=4, depth=10000) as batches:
            def work(at):
                for i in range(100):
                    batches.put([f"{at}/{i}"], [bytes([at, i]) * 50])
            threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertTrue(all(ok and bools == [True] for ok, _, bools in self.results(batches, 400).values()))
            buffers = {(at, i): bytearray(100) for at in range(4) for i in range(100)}
            numbers = {batches.get([f"{at}/{i}"], [buffer]): (at, i) for (at, i), buffer in buffers.items()}
            for number, (ok, _, bools) in self.results(batches, 400).items():
                self.assertEqual((ok, bools, bytes(buffers[numbers[number]])), (True, [True], bytes(numbers[number]) * 50))

    def test_rows_have_keys_of_any_bytes_and_a_prefix(self):
        with self.batches(prefix="tier/") as batches:
            memory, flat = rows_of(8, 4096)
            flat[:] = os.urandom(8 * 4096)
            keys = [bytes([0, 255, at]) for at in range(4)]
            stored = self.result(batches, batches.put_rows(keys, memory, [7, 1, 3, 0]))
            self.assertEqual(stored, (True, "", [True] * 4))
            self.assertEqual(sorted(info.key for info in self.client.list()), [f"tier/00ff0{at}" for at in range(4)])
            self.assertEqual(self.client.get("tier/00ff00"), bytes(flat[7 * 4096:]))
            into, got = rows_of(8, 4096)
            rows = array.array("I", [2, 3, 4, 5])
            loaded = self.result(batches, batches.get_rows([*keys[:3], b"\x01"], into, rows))
            self.assertEqual(loaded, (True, "", [True, True, True, False]))
            for at, source in ((2, 7), (3, 1), (4, 3)):
                self.assertEqual(got[at * 4096:(at + 1) * 4096], flat[source * 4096:(source + 1) * 4096])
            for at in (0, 1, 5, 6, 7):
                self.assertEqual(bytes(got[at * 4096:(at + 1) * 4096]), bytes(4096), f"row {at} was touched")
            self.assertEqual(batches.look(["00ff00", "01"]), [True, False])
            self.assertEqual(self.result(batches, batches.exists(["00ff01"])), (True, "", [True]))

    def test_rows_beyond_2_gib_are_found_by_numbers_of_32_bits(self):
        with tempfile.TemporaryFile() as file, self.batches() as batches:
            file.truncate(2600 * 2 * MIB)  # holes
            rows = [476, 1500, 2048, 2500]
            for row in rows:
                os.pwrite(file.fileno(), b"row %d" % row, row * 2 * MIB)
            memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("B", (2600, 2 * MIB))
            keys = [b"%d" % row for row in rows]
            self.assertEqual(self.result(batches, batches.put_rows(keys, memory, [Int32(row) for row in rows])), (True, "", [True] * 4))
            for row, key in zip(rows, keys):
                self.assertEqual(self.client.get(key.hex())[:8].rstrip(b"\0"), b"row %d" % row)
            to = [1499, 1501, 2047, 2049]
            self.assertEqual(self.result(batches, batches.get_rows(keys, memory, [Int32(row) for row in to])), (True, "", [True] * 4))
            for row, into in zip(rows, to):
                self.assertEqual(os.pread(file.fileno(), 8, into * 2 * MIB).rstrip(b"\0"), b"row %d" % row)

    def test_a_value_of_another_size_is_no_hit(self):
        with self.batches() as batches:
            self.client.put("v", bytes(100))
            for size in (99, 101):
                ok, error, bools = self.result(batches, batches.get(["v"], [bytearray(size)]))
                self.assertEqual((ok, bools), (False, [False]))
                self.assertEqual(error, f"the value has 100 bytes, the buffer {size}")

    def test_misses_are_answers_and_existing_keys_are_stored(self):
        with self.batches() as batches:
            self.client.put("there", b"first")
            self.assertEqual(self.result(batches, batches.get(["no"], [bytearray(1)])), (True, "", [False]))
            self.assertEqual(self.result(batches, batches.put(["there"], [b"other"])), (True, "", [True]))
            self.assertEqual(self.client.get("there"), b"first")

    def test_an_empty_job_ends(self):
        with self.batches() as batches:
            for number in (batches.put([], []), batches.get([], []), batches.exists([]), batches.remove([])):
                self.assertGreater(number, 0)
            self.assertEqual(list(self.results(batches, 4).values()), [(True, "", [])] * 4)
            self.assertEqual(batches.look([]), [])

    def test_the_event_is_over_when_all_was_drained(self):
        with self.batches() as batches:
            self.assertFalse(select.select([batches.event_fd()], [], [], 0)[0])
            self.result(batches, batches.exists(["k"]))
            self.assertFalse(select.select([batches.event_fd()], [], [], 0)[0])
            self.assertEqual(batches.drain(), [])

    def test_wait_ends_when_nothing_is_left(self):
        with self.batches() as batches:
            self.assertTrue(batches.wait())
            for i in range(20):
                batches.put([f"w{i}"], [bytes(MIB)])
            self.assertTrue(batches.wait(30 * PATIENCE))
            self.assertEqual(batches.pending, 0)
            self.assertEqual(len(batches.drain()), 20)


    def test_threads_without_memory_leave_signals_as_they_were(self):
        library = os.path.join(BIN, "../tests/held/libno_memory.so")
        if not os.path.exists(library):
            self.skipTest("nothing is preloaded into sanitized programs")
        program = f"""
import ctypes, signal, sluice
client, library, refused = sluice.Client(instance={self.node.instance!r}, settings={{"runtime_dir": {self.node.directory!r} + "/run", "shm_dir": {self.node.shm!r}}}), ctypes.CDLL(None), 0
for number in range(1, 50):
    library.no_memory_at(number)
    try:
        sluice.Batches(client, threads=3).close()
    except (MemoryError, sluice.NoMemoryError):
        refused += 1
    library.no_memory_at(0)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []), number
print(refused)
"""
        done = interpreter(program, LD_PRELOAD=library)
        self.assertGreater(int(done.stdout or -1), 3, done.stderr)


class Refusing(OnNode):
    def test_wrong_calls_are_refused_and_hold_no_buffers(self):
        target = bytearray(10)
        memory, _ = rows_of(2, 16)
        with self.batches(prefix="p" * 1000) as batches:
            for error, call in (
                    (sluice.InvalidError, lambda: batches.put(["k"], [])),
                    (sluice.InvalidError, lambda: batches.get([""], [target])),
                    (sluice.InvalidError, lambda: batches.get(["k" * 25], [target])),
                    (sluice.InvalidError, lambda: batches.put_rows([b"k"], target, [0])),
                    (sluice.InvalidError, lambda: batches.put_rows([b"k"], memory, [2])),
                    (sluice.InvalidError, lambda: batches.put_rows([b"k"], memory, [])),
                    (sluice.InvalidError, lambda: batches.put_rows([b"k" * 13], memory, [0])),
                    (TypeError, lambda: batches.put_rows(["k"], memory, [0])),
                    (TypeError, lambda: batches.put_rows([b""], memory, [0])),
                    (OverflowError, lambda: batches.put_rows([b"k"], memory, [-1])),
                    *((TypeError, lambda keys=keys: batches.put_rows(keys, memory, [0, 1]))
                      for keys in ({b"k", b"l"}, {b"k": 0, b"l": 1}, iter([b"k", b"l"]), b"kl", "kl")),
                    *((TypeError, lambda rows=rows: batches.put_rows([b"k", b"l"], memory, rows))
                      for rows in ({0, 1}, {0: 1, 1: 0}, iter([0, 1]), b"\0\1", [0.0, 1.0])),
                    *((TypeError, lambda keys=keys: batches.put(keys, [b"1", b"2"]))
                      for keys in ({"k", "l"}, {"k": 0, "l": 1}, iter(["k", "l"]), (key for key in ("k", "l")), "kl")),
                    (TypeError, lambda: batches.get([1], [target])),
                    (BufferError, lambda: batches.get(["k"], [b"constant"])),
                    (ValueError, lambda: batches.exists(["k"], timeout=-1)),
                    (TypeError, lambda: batches.exists("text"))):
                with self.assertRaises(error):
                    call()
            target.append(0)  # BufferError if a refused call still held it
            self.assertEqual((batches.pending, batches.drain()), (0, []))
        for options in ({"threads": 0}, {"threads": 65}, {"depth": 0}, {"depth": 65537}, {"prefix": "x" * 1025}):
            with self.assertRaises(sluice.InvalidError, msg=options):
                sluice.Batches(self.client, **options)
        for options in ({"threads": (1 << 32) + 3}, {"depth": (1 << 32) + 3}, {"threads": -1}, {"depth": -1}):
            with self.assertRaises(OverflowError, msg=options):
                sluice.Batches(self.client, **options)
        with self.assertRaises(TypeError):
            sluice.Batches("client")

    def test_a_closed_one_refuses_and_gives_all_back(self):
        target = bytearray(10)
        batches = self.batches()
        batches.get(["no"], [target])
        batches.close()
        target.append(0)
        for call in (batches.drain, batches.event_fd, lambda: batches.put(["k"], [b"v"]), lambda: batches.look(["k"])):
            with self.assertRaises(sluice.InvalidError):
                call()
        self.assertTrue(batches.closed)
        batches.close()

    def test_the_client_stays_until_its_batches_are_gone(self):
        own = client(self.node)
        batches = sluice.Batches(own)
        own.close()
        self.assertEqual(self.result(batches, batches.put(["late"], [b"v"])), (True, "", [True]))
        batches.close()

    def test_a_child_has_none(self):
        batches = self.batches()
        pid = fork()
        if pid == 0:
            try:
                batches.drain()
            except sluice.InvalidError:
                del batches
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(self.result(batches, batches.put(["parent"], [b"v"])), (True, "", [True]))


class Suffering(OnNode):
    """The registrar is stopped or killed: writers wait for it, readers do not."""

    def setUp(self):
        self.node.wait_ready()
        super().setUp()

    def stopped(self):
        """Stops it without a replacement. Returns a function that continues it."""
        pids = self.node.pids_to_stop("registrar")

        def go_on():
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)
            pids.clear()

        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(go_on)
        return go_on

    def test_jobs_end_by_their_deadlines_while_the_registrar_stands_still(self):
        self.client.put("there", b"value")
        patient = self.enterContext(client(self.node, settings={"op_timeout": "1h"}))  # of calls without a deadline of their own
        with sluice.Batches(patient, timeout=0.5 * PACE) as batches:
            go_on = self.stopped()
            with Slept() as slept:
                numbers = [batches.put([f"s{i}/{j}" for j in range(3)], [os.urandom(3 * MIB)] * 3) for i in range(20)]
            self.assertLess(slept.seconds, 0.4 * PACE, "submitting waited")
            buffer = bytearray(5)
            read = batches.get(["there"], [buffer], timeout=20 * PACE)
            results = self.results(batches, 21)
            self.assertEqual((results[read], bytes(buffer)), ((True, "", [True]), b"value"))
            for number in numbers:
                self.assertEqual((results[number][0], results[number][2]), (False, [False] * 3))
                self.assertTrue(results[number][1])
            go_on()
            wait_until(lambda: self.result(batches, batches.put(["after"], [b"v"]))[0], 5, "puts work again")

    def test_reads_do_not_wait_for_writes_that_stand_still(self):
        self.client.put("there", b"value")
        for threads in (2, 3):
            with self.batches(threads=threads, timeout=20 * PACE) as batches:
                go_on = self.stopped()
                for i in range(10):
                    batches.put([f"r{threads}/{i}"], [os.urandom(3 * MIB)])
                began, buffer = time.monotonic(), bytearray(5)
                for _ in range(5):
                    self.assertEqual(self.result(batches, batches.get(["there"], [buffer])), (True, "", [True]))
                self.assertLess(time.monotonic() - began, 10 * PACE, "reads waited for writes")
                self.assertEqual(batches.pending, 10)
                go_on()
                self.results(batches, 10, 10)
                self.node.wait_ready()

    def test_more_than_depth_end_at_once(self):
        with self.batches(depth=2, timeout=20 * PACE) as batches:
            go_on = self.stopped()
            numbers = [batches.put([f"d{i}"], [b"v"]) for i in range(5)]
            began = time.monotonic()
            results = self.results(batches, 3)
            self.assertLess(time.monotonic() - began, 10 * PACE)
            self.assertEqual(results, {number: (False, "a limit is reached", [False]) for number in numbers[2:]})
            self.assertEqual(batches.pending, 2)
            go_on()
            self.results(batches, 2)

    def test_closing_cancels_what_waits(self):
        batches = self.batches(threads=1, timeout=3 * PACE)
        go_on = self.stopped()
        targets = [bytearray(b"value") for _ in range(10)]
        for i, target in enumerate(targets):
            batches.put([f"c{i}"], [target])
        began = time.monotonic()
        batches.close()
        self.assertLess(time.monotonic() - began, 20 * PACE)  # ten, one after the other, would be 30
        for target in targets:
            target.append(0)
        go_on()

    def test_what_waits_for_writers_ends_by_its_deadline_where_others_read(self):
        self.client.put("there", b"value")
        with self.batches(threads=3, timeout=20 * PACE) as batches:
            go_on = self.stopped()
            for i in range(2):  # all threads that write
                batches.put([f"l{i}"], [os.urandom(3 * MIB)])
            late = batches.put(["late"], [b"v"], timeout=0.2 * PACE)
            time.sleep(0.4 * PACE)
            began, read = time.monotonic(), batches.get(["there"], [bytearray(5)])
            results = self.results(batches, 2)
            self.assertLess(time.monotonic() - began, 15 * PACE)  # fewer than the writing threads
            self.assertEqual((results[late], results[read]), ((False, "deadline passed", [False]), (True, "", [True])))
            go_on()

    def test_two_that_close_it_leave_the_client_until_its_threads_have_ended(self):
        for pause in (0.1, 1, 5):  # the start of the thread cannot be observed; jobs that it had not started are cancelled
            own = client(self.node)
            batches = sluice.Batches(own, threads=1, timeout=60 * PACE)
            go_on = self.stopped()
            batches.put(["two"], [os.urandom(3 * MIB)])
            time.sleep(pause * PACE)
            held = sys.getrefcount(own)
            first = threading.Thread(target=batches.close)
            first.start()
            wait_until(lambda made=batches: made.closed, 5, "the first one closes it")
            batches.close()
            if first.is_alive():
                break
            go_on()
        self.assertEqual((first.is_alive(), sys.getrefcount(own)), (True, held))
        own.close()
        go_on()
        first.join()
        self.assertLess(sys.getrefcount(own), held)

    def test_no_wrong_bytes_while_the_registrar_is_killed(self):
        values = {f"k{i}": bytes([i]) * (256 << 10) for i in range(32)}
        with self.batches(timeout=2 * PACE) as batches:
            for _ in range(3):
                old = self.node.pid("registrar")
                jobs = {}
                for turn in range(20):
                    batches.put(list(values), list(values.values()))
                    buffers = [bytearray(256 << 10) for _ in values]
                    jobs[batches.get(list(values), buffers)] = buffers
                    if turn == 5:
                        os.kill(old, signal.SIGKILL)
                results = self.results(batches, 40, 10)
                for number, buffers in jobs.items():
                    for buffer, found, value in zip(buffers, results[number][2], values.values()):
                        self.assertFalse(found and bytes(buffer) != value, "other bytes than were stored")
                self.node.wait_restarted("registrar", old)
                self.node.wait_ready()
            wait_until(lambda: self.result(batches, batches.put(["again"], [b"v"]))[0], 5, "puts work again")


if __name__ == "__main__":
    sys.exit(main())
