"""The configuration of back ends: three sources, strict rules, modes and sizes with libsluice's meanings."""

import json
import os
import tempfile
import unittest
from unittest import mock

from python_support import sluice
from node_support import Node, main
from sluice.backend import Options, number, one_of, switch

GIB = 1 << 30


def settings_of(node):
    return {"runtime_dir": node.directory + "/run", "shm_dir": node.shm}


ROWS = {"parts": (number(0, 64), 0), "load": (one_of("async", "layers", "sync"), "async"), "peers": (switch, True)}


def clean(**more):
    """The environment without settings of back ends."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_BACKEND_")}
    return mock.patch.dict(os.environ, {**kept, **more}, clear=True)


class Sources(unittest.TestCase):
    def test_defaults(self):
        with clean():
            options = Options({}, ROWS)
        self.assertEqual((options.instance, options.timeout, options.parts, options.load, options.peers), (None, 10.0, 0, "async", True))
        self.assertEqual((options.store["mode"], options.store["global_segment_size"]), ("standalone-store", 0))

    def test_the_engine_wins_over_the_environment_and_that_over_the_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"parts": 2, "load": "sync", "timeout": 3, "peers": "off"}, file)
            file.flush()
            with clean(SLUICE_BACKEND_LOAD="layers", SLUICE_BACKEND_TIMEOUT="4.5"):
                options = Options({"timeout": 5, "config_file": file.name, "kept": 1}, ROWS, ignored=("kept",))
            with clean(SLUICE_BACKEND_CONFIG=file.name):
                other = Options({}, ROWS)
        self.assertEqual((options.parts, options.load, options.timeout, options.peers), (2, "layers", 5.0, False))
        self.assertEqual((other.parts, other.timeout), (2, 3.0))

    def test_a_client_leaves_settings_of_back_ends_alone(self):
        with clean(SLUICE_BACKEND_TIMEOUT="4.5"), self.assertRaises(sluice.UnreachableError):
            sluice.Client("nobody", timeout=0.1)

    def test_what_is_wrong_is_named_with_its_source(self):
        cases = [({"prats": 1}, {}, "extra.prats.*parts"), ({"parts": 65}, {}, "extra.parts.*65"), ({"parts": True}, {}, "extra.parts"),
                 ({"parts": 1.5}, {}, "extra.parts"), ({"peers": "flase"}, {}, "extra.peers.*flase"), ({"peers": 2}, {}, "extra.peers"),
                 ({"load": "fast"}, {}, "extra.load.*async, layers, sync"), ({"timeout": "nan"}, {}, "extra.timeout"),
                 ({"timeout": 0}, {}, "extra.timeout"), ({"instance": 5}, {}, "extra.instance"), ({"settings": "[1]"}, {}, "extra.settings"),
                 ({}, {"SLUICE_BACKEND_PEERS": "ja"}, "SLUICE_BACKEND_peers"), ({}, {"SLUICE_BACKEND_NO": "1"}, "SLUICE_BACKEND_no"),
                 ({}, {"SLUICE_BACKEND_CONFIG": "/nowhere.json"}, "/nowhere.json"), ({"config_file": "/nowhere.json"}, {}, "/nowhere.json"),
                 ({"mode": "embeded"}, {}, "extra.*mode.*embeded"), ({"mode": "embedded", "global_segment_size": 0}, {}, "global_segment_size"),
                 ({"mode": "standalone-store", "global_segment_size": "1gb"}, {}, "global_segment_size"),
                 ({"local_buffer_size": 0}, {}, "local_buffer_size"), ({"enable_offload": "flase"}, {}, "enable_offload"),
                 ({"global_segment_size": "50%", "mode": "embedded"}, {}, "50%")]
        for given, environment, named in cases:
            with self.subTest(given=given, environment=environment), clean(**environment):
                with self.assertRaisesRegex(ValueError, named):
                    Options(given, ROWS, where="extra.")

    def test_the_matrix_of_modes(self):
        cases = [({"mode": "embedded"}, 4 * GIB), ({"mode": "embedded", "global_segment_size": "512mb"}, GIB // 2),
                 ({"mode": "embedded", "global_segment_size": 2 * GIB}, 2 * GIB), ({"mode": "standalone-store"}, 0),
                 ({"mode": "standalone-store", "global_segment_size": 0}, 0), ({"global_segment_size": 0}, 0), ({}, 0)]
        for given, segment in cases:
            with self.subTest(given=given), clean():
                self.assertEqual(Options(given).store["global_segment_size"], segment)


class Modes(unittest.TestCase):
    """Texts of a connector's configuration (mode, global_segment_size, local_buffer_size, enable_offload)."""

    def test_modes_allow_what_they_should(self):
        for texts, want in (
                ((), ("embedded", 4 * GIB, 4 * GIB, False)), (("embedded", "80GB", "128 mb", "true"), ("embedded", 80 * GIB, GIB // 8, True)),
                (("standalone-store",), ("standalone-store", 0, 4 * GIB, False)),
                (("standalone-store", "0", "1024", "1"), ("standalone-store", 0, 1024, True)),
                ((None, " 4 gb "), ("embedded", 4 * GIB, 4 * GIB, False)), ((None, "1.5 GB"), ("embedded", 3 * GIB // 2, 4 * GIB, False)), ((None, None, "1TB"), ("embedded", 4 * GIB, 1 << 40, False))):
            self.assertEqual(tuple(sluice.store_config(*texts).values()), want, texts)

    def test_what_is_wrong_is_named(self):
        for texts, field, value in (
                (("embedded", "0"), "global_segment_size", "0"), (("embedded", "0gb"), "global_segment_size", ""),
                (("standalone-store", "1024"), "global_segment_size", "1024"), (("embedded", None, "0"), "local_buffer_size", "0"),
                (("standalone-store", "0", "0"), "local_buffer_size", "0"), (("",), "mode", ""), (("standalone",), "mode", "'standalone'"),
                (("Embedded",), "mode", ""), ((None, "50%"), "global_segment_size", "50%"), ((None, None, "-1"), "local_buffer_size", "-1"),
                ((None, None, ""), "local_buffer_size", ""), ((None, "1023"), "global_segment_size", "1023"),
                ((None, "9" * 5000), "global_segment_size", "9" * 64), ((None, "1." + "9" * 5000), "global_segment_size", ""),
                ((None, "18446744073709551616"), "global_segment_size", ""), ((None, "18446744073709551615 tb"), "global_segment_size", ""),
                ((None, None, "1025gb"), "local_buffer_size", ""), ((None, "4 KiB"), "global_segment_size", "4 KiB"),
                (("standalone-store", "1gb", None, "flase"), "enable_offload", "flase")):  # although another one is wrong for the mode
            with self.assertRaises(sluice.ConfigError, msg=texts) as caught:
                sluice.store_config(*texts)
            self.assertTrue(str(caught.exception).startswith(field) and value in str(caught.exception), caught.exception)
        self.assertRaises(TypeError, sluice.store_config, 1)

    def test_booleans_are_strict_in_either_mode(self):
        for mode in ("embedded", "standalone-store"):
            for texts, want in ((("true", "True", "1", "yes", "on"), True), (("false", "False", "0", "no", "off"), False)):
                for text in texts:
                    self.assertIs(sluice.store_config(mode, enable_offload=text)["enable_offload"], want)
            for text in ("flase", "", "2", "truee", " true"):
                with self.assertRaisesRegex(sluice.ConfigError, f"enable_offload: '{text}'"):
                    sluice.store_config(mode, enable_offload=text)


class Rules(unittest.TestCase):
    def test_who_makes_the_pools(self):
        for profiling in (False, True):
            for host_blocks in (0, 5):
                for storage in (False, True):
                    for split in (False, True):
                        made = sluice.pool_creator(profiling=profiling, host_blocks=host_blocks, storage=storage, split=split)
                        self.assertEqual(made, "engine" if profiling or not (host_blocks or storage or split) else "sluice")

    def test_what_has_to_be_mapped(self):
        self.assertEqual(sluice.required_bytes([(4096, 100), (4096, 300), (8192, 50), (0, 1 << 40)]), 350)
        self.assertEqual(sluice.required_bytes([]), 0)
        self.assertRaises(sluice.InvalidError, sluice.required_bytes, [(4096, 100), (4100, 10)])
        self.assertRaises(TypeError, sluice.required_bytes, [(1, 2, 3)])
        self.assertRaises(TypeError, sluice.required_bytes, [5])
        self.assertRaises(TypeError, sluice.required_bytes, 5)

    def test_numbers_that_do_not_fit_are_refused(self):
        for wrong in (-1, 1 << 64, (1 << 64) + 4096):
            self.assertRaises(OverflowError, sluice.pool_creator, host_blocks=wrong)
            self.assertRaises(OverflowError, sluice.required_bytes, [(wrong, 100)])
            self.assertRaises(OverflowError, sluice.required_bytes, [(4096, wrong)])
        for wrong in (-1, 1 << 32, (1 << 32) + 1):
            self.assertRaises(OverflowError, sluice.look_prefix, [(b"\1", wrong)], 1)


class Memory(unittest.TestCase):
    def test_an_embedded_back_end_lends_memory_as_long_as_it_lives(self):
        with Node(ranks=1, memory="64MiB", settings=["--contributions", "true"]) as node:
            given = {"instance": node.instance, "settings": settings_of(node), "mode": "embedded", "global_segment_size": "8mb"}
            with clean():
                lender = Options(given).open()
                lender.put("lent", bytes(1 << 20))
                lender.close()
                given["mode"], given["global_segment_size"] = "standalone-store", 0
                with Options(given).open() as other:
                    self.assertFalse(other.exists("lent"))
                    self.assertRaises(sluice.SluiceError, other.put, "nowhere", bytes(1 << 20), timeout=1)
                    other.contribute("by hand", 4 << 20)
                    other.put("lent", bytes(1 << 20))
                    self.assertRaises(sluice.InvalidError, other.contribute, "none", 0)
                    for wrong in (-1, (1 << 64) + (4 << 20)):
                        self.assertRaises(OverflowError, other.contribute, "wrong", wrong)
                    other.withdraw("by hand")
                    self.assertFalse(other.exists("lent"))

    def test_a_node_without_contributions_says_so(self):
        with Node(ranks=1, memory="64MiB") as node, clean():
            given = {"instance": node.instance, "settings": settings_of(node), "mode": "embedded", "global_segment_size": "8mb"}
            self.assertRaises(sluice.UnsupportedError, Options(given).open)


if __name__ == "__main__":
    main()
