"""Pages of an engine's memory by their addresses: every byte arrives at the right place, and arguments that do not fit are refused before
anything is read or written."""

import array
import ctypes
import os
import sys
import tracemalloc

import python_support
from python_support import sluice
from node_support import main

PAGE, PAGES, PIECE = 4, 8, 512


def numbers(*values):
    return array.array("Q", values)


def indices(*pages, page=PAGE):
    return array.array("q", [number * page + i for number in pages for i in range(page)])


class Pool:
    """Memory of PAGES pages: two halves (K and V), of each page one piece in each. It is kept alive: addresses hold no reference."""

    kept = []

    def __init__(self, fill=None):
        self.bytes = bytearray(os.urandom(2 * PAGES * PIECE) if fill is None else bytes([fill]) * 2 * PAGES * PIECE)
        self.held = memoryview(self.bytes)
        self.kept.append(self)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    def piece(self, half, page):
        first = (half * PAGES + page) * PIECE
        return bytes(self.held[first:first + PIECE])

    def arrays(self):
        return {"page": PAGE, "limit": PAGE * PAGES, "addresses": numbers(self.at, self.at + PAGES * PIECE),
                "strides": numbers(PIECE, PIECE), "lengths": numbers(PIECE, PIECE)}


class Pages(python_support.OnNode):
    def refused(self, call, **changed):
        pool = Pool()
        told = {"keys": ["a"], "indices": indices(0), **pool.arrays(), **changed}
        with self.assertRaises(sluice.InvalidError) as caught:
            call(**told)
        self.assertTrue(str(caught.exception))
        self.assertEqual(self.client.list(), [])

    def test_pages_go_out_and_come_back_into_others(self):
        pool, other = Pool(), Pool(fill=0)
        self.assertEqual(self.client.put_pages(["a", "b"], indices(5, 2), **pool.arrays(), prefix="p/"), b"\0\0")
        self.assertEqual(self.client.get("p/a"), pool.piece(0, 5) + pool.piece(1, 5))
        self.assertEqual(self.client.get_pages(["b", "a"], indices(0, 7), **other.arrays(), prefix="p/"), b"\0\0")
        for half in (0, 1):
            self.assertEqual(other.piece(half, 0), pool.piece(half, 2))
            self.assertEqual(other.piece(half, 7), pool.piece(half, 5))
            for page in range(1, 7):
                self.assertEqual(other.piece(half, page), bytes(PIECE))

    def test_a_value_for_each_suffix(self):
        pool, other = Pool(), Pool(fill=0)
        told = {"suffixes": (".k", ".v")}
        self.assertEqual(self.client.put_pages(["a"], indices(1), **pool.arrays(), **told), b"\0")
        self.assertEqual(self.client.get("a.k"), pool.piece(0, 1))
        self.assertEqual(self.client.get("a.v"), pool.piece(1, 1))
        self.assertEqual(self.client.find_pages(["a", "b"], **told), bytes([0, sluice.Code.NOT_FOUND]))
        self.client.remove("a.v")
        self.assertEqual(self.client.find_pages(["a"], **told), bytes([sluice.Code.NOT_FOUND]))
        self.assertEqual(self.client.get_pages(["a"], indices(1), **other.arrays(), **told), bytes([sluice.Code.NOT_FOUND]))

    def test_runs_are_gathered_and_scattered(self):
        pool, other = Pool(), Pool(fill=0)
        half = PIECE // 2
        told = {**pool.arrays(), "lengths": numbers(64, 64), "counts": numbers(4, 4), "steps": numbers(128, 128)}
        self.assertEqual(self.client.put_pages(["a"], indices(3), **told), b"\0")
        want = b"".join(pool.piece(which, 3)[at:at + 64] for which in (0, 1) for at in range(0, PIECE, 128))
        self.assertEqual(self.client.get("a"), want)
        self.assertEqual(len(want), 2 * half)
        told["addresses"] = other.arrays()["addresses"]
        self.assertEqual(self.client.get_pages(["a"], indices(3), **told), b"\0")
        for at in range(0, PIECE, 128):
            self.assertEqual(other.piece(0, 3)[at:at + 128], pool.piece(0, 3)[at:at + 64] + bytes(64))

    def test_a_part_of_a_value_by_its_offset(self):
        pool, other = Pool(), Pool(fill=0)
        self.client.put_pages(["a"], indices(0), **pool.arrays())
        second = {"page": PAGE, "limit": PAGE * PAGES, "addresses": numbers(other.at), "strides": numbers(PIECE),
                  "lengths": numbers(PIECE), "offsets": numbers(PIECE), "sizes": numbers(2 * PIECE)}
        self.assertEqual(self.client.get_pages(["a"], indices(4), **second), b"\0")
        self.assertEqual(other.piece(0, 4), pool.piece(1, 0))

    def test_pieces_in_another_order_than_the_value(self):
        pool = Pool()
        told = {**pool.arrays(), "offsets": numbers(PIECE, 0)}
        self.assertEqual(self.client.put_pages(["a"], indices(0), **told), b"\0")
        self.assertEqual(self.client.get("a"), pool.piece(1, 0) + pool.piece(0, 0))

    def test_a_value_of_another_size_is_no_page(self):
        for length in (PIECE, 2 * PIECE - 1, 2 * PIECE + 1, 3 * PIECE):
            self.client.put(f"{length}", bytes(length))
            got = self.client.get_pages([f"{length}"], indices(0), **Pool().arrays())
            self.assertEqual(got, bytes([sluice.Code.LIMIT]))

    def test_what_exists_stays_as_it_is(self):
        first, second = Pool(), Pool()
        self.client.put_pages(["a"], indices(0), **first.arrays())
        self.assertEqual(self.client.put_pages(["a"], indices(0), **second.arrays()), b"\0")
        self.assertEqual(self.client.get("a"), first.piece(0, 0) + first.piece(1, 0))

    def test_no_page_is_no_work(self):
        self.assertEqual(self.client.put_pages([], indices(), **Pool().arrays()), b"")
        self.assertEqual(self.client.get_pages([], indices(), **Pool().arrays()), b"")
        self.assertEqual(self.client.find_pages([]), b"")

    def test_indices_that_are_no_pages_are_refused(self):
        for wrong in (indices(PAGES), indices(0)[1:] + indices(1)[:1], array.array("q", [0, 1, 3, 2]), indices(0)[:3], indices(0, 1),
                      array.array("q", [-4, -3, -2, -1]), array.array("i", [0, 1, 2, 3])):
            self.refused(self.client.put_pages, indices=wrong)
            self.refused(self.client.get_pages, indices=wrong)
        self.refused(self.client.put_pages, limit=3)
        self.refused(self.client.put_pages, page=0)

    def test_arrays_that_do_not_fit_are_refused(self):
        for name in ("addresses", "strides", "lengths"):
            self.refused(self.client.put_pages, **{name: numbers(1)})
            self.refused(self.client.put_pages, **{name: array.array("I", [1, 1])})
        self.refused(self.client.put_pages, suffixes=("a", "b", "c"))
        self.refused(self.client.put_pages, suffixes=())
        self.refused(self.client.put_pages, offsets=numbers(1))
        self.refused(self.client.put_pages, counts=numbers(1, 1))
        self.refused(self.client.put_pages, sizes=numbers(1, 2))
        self.refused(self.client.put_pages, counts=numbers(1 << 40, 1), steps=numbers(0, 0))
        self.refused(self.client.put_pages, counts=numbers(0, 0), steps=numbers(0, 0))

    def test_keys_that_are_none_are_refused(self):
        for key in ("", "a\0b", "a" * 1025):
            self.refused(self.client.put_pages, keys=[key])
        self.refused(self.client.put_pages, prefix="a" * 1024)
        with self.assertRaises(TypeError):
            self.client.find_pages([1])
        with self.assertRaises(sluice.InvalidError):
            self.client.find_pages(["a"] * 40_000, suffixes=("a", "b"))

    def test_memory_is_registered_as_often_as_it_is_unregistered(self):
        pool = Pool()
        self.client.register_memory(pool.at, len(pool.bytes))
        self.assertEqual(self.client.put_pages(["a"], indices(0), **pool.arrays()), b"\0")
        self.client.unregister_memory(pool.at)
        with self.assertRaises(sluice.NotFoundError):
            self.client.unregister_memory(pool.at)
        with self.assertRaises(sluice.InvalidError):
            self.client.register_memory(0, 0)

    def test_calls_and_refusals_keep_nothing(self):
        pool = Pool()
        held, wrong, keys = indices(*range(PAGES)), indices(PAGES), [f"key{number}" for number in range(PAGES)]

        def calls(count):
            for _ in range(count):
                self.client.put_pages(keys, held, **pool.arrays(), suffixes=("k", "v"))
                self.client.get_pages(keys, held, **pool.arrays(), suffixes=("k", "v"))
                self.client.find_pages(["a", "none"], elsewhere=True)
                for told in ({"indices": wrong}, {"keys": [""]}, {"keys": ["a" * 2000]}, {"lengths": numbers(1)}, {"strides": b"12345678"}):
                    with self.assertRaises(sluice.InvalidError):
                        self.client.put_pages(**{"keys": keys, "indices": held, **pool.arrays(), **told})

        references = sys.getrefcount(held), sys.getrefcount(wrong)
        calls(20)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        calls(400)
        self.assertLess(tracemalloc.get_traced_memory()[0] - before, 20_000)  # one lost array of a call would be more
        self.assertEqual((sys.getrefcount(held), sys.getrefcount(wrong)), references)

    def test_a_client_that_is_closed_refuses(self):
        self.client.close()
        with self.assertRaises(sluice.SluiceError):
            self.client.find_pages(["a"])
        with self.assertRaises(sluice.SluiceError):
            self.client.put_pages(["a"], indices(0), **Pool().arrays())


if __name__ == "__main__":
    main()
