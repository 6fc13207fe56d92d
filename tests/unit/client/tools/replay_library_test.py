"""The library calls of sluicectl replay by ctypes: its structures match the headers, and it detects every wrong byte."""

import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
from array import array

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "tests", "python"), os.path.join(ROOT, "tests", "support")]
import python_support  # noqa: E402, F401  (a sanitizer's runtime must load first)
from node_support import BIN  # noqa: E402

SHARE = os.path.join(os.path.dirname(BIN), "share", "sluice")
sys.path.insert(0, SHARE)
import replay_library as library  # noqa: E402
import suite  # noqa: E402

STRUCTURES = {"sl_error": library.Error, "sl_client_options": library._ClientOptions, "sl_engine_layer": library._Layer, "sl_engine_pool": library._Pool,
              "sl_model": library._Model, "sl_engine_options": library._EngineOptions, "sl_hints": library.Hints, "sl_compute_rate": library.Prefill, "sl_op_request": library._Request,
              "sl_op_result": library.Result, "replay_place": library._Place}
CODES = ("OK", "NOT_FOUND", "LIMIT", "TIMEOUT", "UNREACHABLE", "PROTOCOL", "VERSION", "PERMISSION", "INVALID", "CONFIG", "FOREIGN")


class Headers(unittest.TestCase):
    def test_structures_and_numbers_are_those_of_the_headers(self):
        wanted = {"SLUICE_API_VERSION": library.API_VERSION, **{"SL_OK" if name == "OK" else f"SL_ERR_{name}": getattr(library, name) for name in CODES}}
        for name, structure in STRUCTURES.items():
            wanted[f"sizeof(struct {name})"] = ctypes.sizeof(structure)
            for field, *_ in structure._fields_:
                wanted[f"offsetof(struct {name}, {field})"] = getattr(structure, field).offset
                wanted[f"sizeof(((struct {name} *)0)->{field})"] = getattr(structure, field).size
        with tempfile.TemporaryDirectory() as place:
            with open(place + "/ask.c", "w", encoding="utf-8") as file:
                file.write('#include "client/tools/bench/replay_content.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n')
                file.writelines(f'    printf("%ld\\n", (long)({what}));\n' for what in wanted)
                file.write("}\n")
            subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-I", ROOT, place + "/ask.c", "-o", place + "/ask"], check=True)
            found = subprocess.run([place + "/ask"], stdout=subprocess.PIPE, check=True).stdout.split()
        self.assertEqual(wanted, dict(zip(wanted, map(int, found))))


class Content(unittest.TestCase):
    """Two ranks of two pools of three layers, and blocks whose parts are no whole words."""

    BLOCK_BYTES, BLOCKS, LAYERS = 1003, 4, 3

    def setUp(self):
        rows = (library._Layer * self.LAYERS)()
        memory_bytes = library._content.replay_layers(self.LAYERS, self.BLOCK_BYTES, self.BLOCKS, rows)
        part = (ctypes.c_uint64 * -(-self.BLOCK_BYTES // 8))()
        self.rows, self.memories = rows, [(ctypes.c_ubyte * memory_bytes)() for _ in range(4)]
        self.engine = library.Engine.__new__(library.Engine)  # without a node
        self.engine.places = [library._Place(ctypes.addressof(memory), rows, self.LAYERS, self.BLOCK_BYTES, i // 2, i % 2, part)
                              for i, memory in enumerate(self.memories)]
        self.blocks, self.chains = array("I", [2, 0, 3]), array("Q", [5, 6, 7])

    def wrong(self):
        return list(self.engine.wrong(self.blocks, self.chains, 3))

    def test_every_wrong_byte_is_seen_where_it_is(self):
        self.engine.compute(self.blocks, self.chains, 0)
        self.assertEqual(self.wrong(), [])
        for place, memory in enumerate(self.memories):
            for index, block in enumerate(self.blocks):
                for layer, row in enumerate(self.rows):
                    first = row.offset_bytes + block * row.block_stride_bytes
                    for at in (first, first + row.piece_bytes - 1):
                        memory[at] ^= 1
                        self.assertEqual(self.wrong(), [(index, place // 2, place % 2, layer)])
                        memory[at] ^= 1
        self.assertEqual(self.wrong(), [])

    def test_what_is_stale_or_another_blocks_is_wrong(self):
        everywhere = [(i, rank, pool, 0) for rank in (0, 1) for pool in (0, 1) for i in range(3)]
        self.engine.compute(self.blocks, self.chains, 0)
        self.engine.poison(self.blocks)
        self.assertEqual(self.wrong(), everywhere)
        self.engine.compute(self.blocks, array("Q", [6, 7, 5]), 0)
        self.assertEqual(self.wrong(), everywhere)
        self.engine.compute(self.blocks, self.chains, 1)  # the first was computed before: it is still wrong
        self.assertEqual(self.wrong(), [row for row in everywhere if row[0] == 0])

    def test_a_missing_library_is_one_line(self):
        with tempfile.TemporaryDirectory() as place:
            os.makedirs(place + "/share/sluice")
            for name in ("replay_library.py", "replay_trace.py"):
                os.symlink(os.path.realpath(os.path.join(ROOT, "client", "tools", "bench", name)), f"{place}/share/sluice/{name}")
            with open(place + "/libsluice.so.0", "w", encoding="utf-8"):
                pass  # whether the system has it makes no difference
            program = f"import os, sys; sys.path.insert(0, '{place}/share/sluice'); os.path.realpath = os.path.abspath; import replay_library"
            done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "LD_LIBRARY_PATH": place}, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertTrue(done.stderr.startswith("sluicectl replay: "), done.stderr)


if __name__ == "__main__":
    suite.run()
