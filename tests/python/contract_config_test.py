"""The exports of `mooncake.store`, and every field of ReplicateConfig (sections 1.1 to 1.4 of the contract)."""

import ast
import inspect
import subprocess
import sys
import unittest

from contract_support import (INVALID, MIB, MOONCAKE, OnPool, config, interpreter_environment, main, mooncake_store,
                              unlike_mooncake)
from mooncake.store import MooncakeDistributedStore, ReplicateConfig, SoftPinAction

METHODS = """alloc_from_mem_pool allocate_and_mount_segment batch_get_buffer batch_get_into
    batch_get_into_multi_buffer_ranges batch_get_into_multi_buffers batch_get_replica_desc batch_get_session_end
    batch_get_session_start batch_is_exist batch_put_from batch_put_from_multi_buffer_ranges
    batch_put_from_multi_buffers batch_put_session_end batch_put_session_revoke batch_put_session_start batch_remove
    batch_replica_clear batch_upsert_from close get get_batch get_buffer get_hostname get_into get_into_ranges
    get_offload_rpc_read_count get_replica_desc get_size health_check is_exist put put_batch put_from
    put_from_with_metadata put_parts register_buffer remove remove_all remove_by_regex setup setup_dummy
    unregister_buffer upsert upsert_batch upsert_from upsert_parts""".split()


KEYWORDS = """
    put(key, value, config)
    put_parts(key, config)
    put_batch(keys, values, config)
    put_from(key, buffer_ptr, size, config)
    put_from_with_metadata(key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config)
    batch_put_from(keys, buffer_ptrs, sizes, config)
    batch_put_from_multi_buffers(keys, all_buffer_ptrs, all_sizes, config)
    upsert(key, value, config)
    upsert_from(key, buffer_ptr, size, config)
    upsert_parts(key, config)
    upsert_batch(keys, values, config)
    batch_upsert_from(keys, buffer_ptrs, sizes, config)
    get_into(key, buffer_ptr, size)
    batch_get_into(keys, buffer_ptrs, sizes)
    batch_get_into_multi_buffers(keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node)
    get_into_ranges(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes)
    batch_get_session_start(keys)
    batch_get_into_multi_buffer_ranges(keys, all_buffer_ptrs, all_sizes, all_src_offsets)
    batch_get_session_end(keys)
    batch_put_session_start(keys, sizes, config)
    batch_put_from_multi_buffer_ranges(keys, all_buffer_ptrs, all_sizes, all_dst_offsets)
    batch_put_session_end(keys)
    batch_put_session_revoke(keys)
    batch_is_exist(keys)
    remove(key, force)
    remove_by_regex(regex_pattern, force)
    remove_all(force)
    batch_remove(keys, force)
    batch_replica_clear(keys, segment_name)
    register_buffer(buffer_ptr, size)
    unregister_buffer(buffer_ptr)
    get_replica_desc(key)
    batch_get_replica_desc(keys)
    setup_dummy(mem_pool_size, local_buffer_size, server_address)
    mount_segment(path, size, offset, protocol, location)
    unmount_segment(segment_ids, grace_period_seconds)
    allocate_and_mount_segment(size, protocol, location)
    unmount_and_free_segment(segment_ids, grace_period_seconds)
    unmount_local_disk_segment(grace_period_seconds)"""


class Surface(unittest.TestCase):
    def test_every_method_that_a_connector_calls_is_there(self):
        """1.1 MooncakeDistributedStore: its methods, and none that SGLang would take for a newer one."""
        for name in METHODS:
            self.assertTrue(callable(getattr(MooncakeDistributedStore, name, None)), name)
        self.assertFalse(hasattr(MooncakeDistributedStore, "batch_get_session_start_with_sources"))

    def test_enums_have_their_numbers(self):
        """1.1 enums: names, numbers, and the ones that the module exports directly."""
        names = "UNKNOWN KVCACHE TENSOR WEIGHT SAMPLE ACTIVATION GRADIENT OPTIMIZER_STATE METADATA GENERAL".split()
        for number, name in enumerate(names):
            self.assertEqual(int(getattr(mooncake_store.ObjectDataType, name)), number)
            self.assertEqual(getattr(mooncake_store, name), getattr(mooncake_store.ObjectDataType, name))
        for number, name in enumerate(("PRESERVE", "ENABLE", "DISABLE")):
            self.assertEqual(int(getattr(SoftPinAction, name)), number)
            self.assertFalse(hasattr(mooncake_store, name))
        for name in "UNDEFINED INITIALIZED PROCESSING COMPLETE REMOVED FAILED".split():
            self.assertIsNotNone(getattr(mooncake_store.ReplicaStatus, name))
        self.assertEqual(mooncake_store.COMPLETE, mooncake_store.ReplicaStatus.COMPLETE)

    def test_classes_are_closed(self):
        """1.1 closed classes: an unknown attribute raises AttributeError."""
        for one in (ReplicateConfig(), MooncakeDistributedStore()):
            with self.assertRaises(AttributeError):
                one.no_such_field = 1

    def test_a_wrong_keyword_is_named(self):
        """1.1 TypeError, trap 7: the text has the keyword's name and the accepted signature."""
        store = MooncakeDistributedStore()
        for call, keyword, others in ((store.setup, "brand_new_keyword", ("local_hostname", "tenant_id", "engine")),
                                      (store.put, "nonsense", ("key", "value", "config")),
                                      (store.batch_put_from_multi_buffers, "nonsense", ("all_buffer_ptrs", "all_sizes")),
                                      (store.remove_all, "nonsense", ("force",))):
            with self.assertRaises(TypeError) as caught:
                call(**{keyword: 1})
            for word in (keyword, *others):
                self.assertIn(word, str(caught.exception))

    def test_the_keyword_that_is_refused_beside_good_ones_is_named(self):
        """trap 7: SGLang drops the keyword that it finds in the text, so the text names the new one also if all others are right."""
        store = MooncakeDistributedStore()
        with self.assertRaises(TypeError) as caught:
            store.setup("localhost", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", "127.0.0.1:1", None, enable_ssd_offload=False,
                        a_keyword_of_next_year=True)
        self.assertIn("a_keyword_of_next_year", str(caught.exception))

    def test_keywords(self):
        """1.1 TypeError: every call accepts its arguments by these names, and raises TypeError without the first of them."""
        for call in KEYWORDS.strip().splitlines():
            name, arguments = call.strip().rstrip(")").split("(")
            method = getattr(MooncakeDistributedStore(), name)
            text = ""
            try:
                method(**{"no_such_keyword": 1})
            except TypeError as failure:
                text = str(failure)
            for argument in arguments.split(", "):
                self.assertRegex(text, rf"\b{argument}\b", name)

    def test_module_imports_in_any_order(self):
        """1.2 layout: store before or after engine, as their crash reports show."""
        for modules in ("mooncake.store, mooncake.engine", "mooncake.engine, mooncake.store"):
            done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; import {modules}"],
                                  capture_output=True, text=True, check=False, env=interpreter_environment())
            self.assertEqual(done.returncode, 0, done.stderr)


class Fields(unittest.TestCase):
    """Types and defaults; the effects of the fields are in the tests of writing and of terms."""

    numbers = ("replica_num", "nof_replica_num", "dfs_replica_num")

    def test_defaults(self):
        """1.4 replica_num, nof_replica_num, dfs_replica_num, soft_pin_action, soft_pin_ttl_ms, with_hard_pin, preferred_segments,
        preferred_nof_segments, preferred_segment, prefer_alloc_in_same_node, data_type, group_ids: defaults."""
        one = ReplicateConfig()
        self.assertEqual([getattr(one, name) for name in self.numbers], [1, 0, 0])
        self.assertEqual(one.soft_pin_action, SoftPinAction.PRESERVE)
        self.assertIsNone(one.soft_pin_ttl_ms)
        self.assertIs(one.with_hard_pin, False)
        self.assertEqual(one.preferred_segments, [])
        self.assertEqual(one.preferred_nof_segments, [])
        self.assertEqual(one.preferred_segment, "")
        self.assertIs(one.prefer_alloc_in_same_node, False)
        self.assertEqual(one.data_type, mooncake_store.ObjectDataType.UNKNOWN)
        self.assertIsNone(one.group_ids)

    def test_what_is_set_is_read(self):
        """1.4 replica_num, nof_replica_num, dfs_replica_num, soft_pin_action, soft_pin_ttl_ms, with_hard_pin, preferred_segments,
        preferred_nof_segments, preferred_segment, prefer_alloc_in_same_node, data_type, group_ids: assignment."""
        one = ReplicateConfig()
        for name, value in (("replica_num", 3), ("nof_replica_num", 2), ("dfs_replica_num", 1),
                            ("soft_pin_action", SoftPinAction.DISABLE), ("soft_pin_ttl_ms", 0),
                            ("soft_pin_ttl_ms", (1 << 64) - 1), ("soft_pin_ttl_ms", None), ("with_hard_pin", True),
                            ("preferred_segments", ["a:1", "b:2"]), ("preferred_nof_segments", ["n"]),
                            ("preferred_segment", "c:3"), ("prefer_alloc_in_same_node", True),
                            ("data_type", mooncake_store.ObjectDataType.WEIGHT), ("group_ids", ["group-a", ""]),
                            ("group_ids", None)):
            setattr(one, name, value)
            self.assertEqual(getattr(one, name), value, name)

    def test_types_are_checked_at_assignment(self):
        """1.4 replica_num, nof_replica_num, dfs_replica_num, soft_pin_action, soft_pin_ttl_ms, preferred_segments,
        preferred_nof_segments, preferred_segment, data_type, group_ids: TypeError for the wrong type."""
        one = ReplicateConfig()
        for name, wrong in (("replica_num", "1"), ("nof_replica_num", None), ("dfs_replica_num", []),
                            ("soft_pin_action", "ENABLE"), ("soft_pin_ttl_ms", "1"), ("preferred_segments", 1),
                            ("preferred_nof_segments", [1]), ("preferred_segment", 1), ("data_type", "KVCACHE"),
                            ("group_ids", [1]), ("group_ids", 1), ("replica_num", -1)):
            with self.assertRaises(TypeError, msg=f"{name} = {wrong!r}"):
                setattr(one, name, wrong)
        self.assertEqual((one.replica_num, one.group_ids), (1, None))

    def test_soft_pin_ttl_out_of_range(self):
        """1.4 soft_pin_ttl_ms: negative or 2^64 and above raises TypeError at assignment."""
        one = ReplicateConfig()
        for wrong in (-1, 1 << 64):
            with self.assertRaises(TypeError):
                one.soft_pin_ttl_ms = wrong
        self.assertIsNone(one.soft_pin_ttl_ms)

    def test_text_has_the_numbers(self):
        """1.4 str: contains the numbers."""
        text = str(config(replica_num=3, nof_replica_num=7, preferred_segments=["seg:9"], soft_pin_ttl_ms=4711,
                          soft_pin_action=SoftPinAction.ENABLE))
        for word in ("3", "7", "seg:9", "4711"):
            self.assertIn(word, text)

    @unlike_mooncake("the tree dropped the field of the releases")
    def test_the_pin_of_releases(self):
        """1.4 with_soft_pin: the boolean of releases is soft_pin_action ENABLE."""
        one = ReplicateConfig()
        self.assertIs(one.with_soft_pin, False)
        one.with_soft_pin = True
        self.assertIs(one.with_soft_pin, True)
        self.assertEqual(one.soft_pin_action, SoftPinAction.ENABLE)
        one.with_soft_pin = False
        self.assertEqual(one.soft_pin_action, SoftPinAction.PRESERVE)

    def test_lists_are_copies(self):
        """1.4 preferred_segments, group_ids: later changes of a list change no config."""
        names = ["a", "b"]
        one = config(preferred_segments=names, group_ids=names)
        names.append("c")
        one.preferred_segments.append("d")
        self.assertEqual((one.preferred_segments, one.group_ids), (["a", "b"], ["a", "b"]))


class Configured(OnPool):
    """Fields at puts; pins and groups under pressure are in contract_terms_test.py."""

    def test_replicas_are_best_effort(self):
        """1.4 replica_num: more than the number of segments stores as many as possible."""
        key, value = self.stored(config=config(replica_num=3))
        self.assertEqual(self.store.get(key), value)
        self.assertEqual(len(self.store.get_replica_desc(key)), 1)

    def test_a_value_lies_in_one_segment(self):
        """1.4 replica_num: two segments, two wanted replicas: one is stored; trap 12: two stores in one process."""
        other = self.opened(64 * MIB)
        key, value = self.stored(config=config(replica_num=2))
        self.assertEqual([one.is_memory_replica() for one in self.store.get_replica_desc(key)], [True])
        self.assertEqual(other.get(key), value)
        self.assertEqual(self.store.get(key), value)

    def test_no_replica_at_all_is_refused(self):
        """1.4 replica_num: 0 is an error."""
        self.assertLess(self.store.put(self.key(), b"v", config(replica_num=0)), 0)
        self.assert_absent(self.key())

    def test_preferred_segment(self):
        """1.4 preferred_segment, trap 15: the value is stored in the segment of that get_hostname()."""
        other = self.opened(64 * MIB)
        for name, there in (("a", other), ("b", self.store)):
            key, value = self.stored(name, config=config(preferred_segment=there.get_hostname()))
            self.assertEqual(self.store.get(key), value)
            self.assertEqual(other.close() if there is self.store else 0, 0)
        self.assertEqual(self.store.is_exist(self.key("a")), 0)
        self.assertEqual(self.store.is_exist(self.key("b")), 1)

    def test_preferred_segments_in_order(self):
        """1.4 preferred_segments: tried in order, unknown names (trap 15) are skipped."""
        other = self.opened(64 * MIB)
        names = ["nobody:1", other.get_hostname(), self.store.get_hostname()]
        key, _ = self.stored(config=config(preferred_segments=names))
        other.close()
        self.assert_absent(key)

    def test_the_single_form_wins(self):
        """1.4 preferred_segment: when it is given, it takes precedence over the list."""
        other = self.opened(64 * MIB)
        key, _ = self.stored(config=config(preferred_segment=other.get_hostname(),
                                           preferred_segments=[self.store.get_hostname()]))
        other.close()
        self.assert_absent(key)

    def test_unknown_segments_are_no_error(self):
        """1.4 preferred_segment, trap 15: unknown names are ignored."""
        self.stored("a", config=config(preferred_segment="nobody:1"))
        self.stored("b", config=config(preferred_segments=["nobody:1", "", "nowhere"]))

    def test_nof_segments_that_nobody_has(self):
        """1.4 preferred_nof_segments: names are ignored without such storage."""
        key, value = self.stored(config=config(preferred_nof_segments=["n"]))
        self.assertEqual(self.store.get(key), value)

    def test_storage_that_is_not_there(self):
        """1.4 nof_replica_num, dfs_replica_num: without such storage the memory replica counts, or the put fails (the
        wheel answers -1601 for dfs): never a success without a value."""
        for field in ("nof_replica_num", "dfs_replica_num"):
            key = self.key(field)
            code = self.store.put(key, b"v", config(**{field: 1}))
            self.assertLessEqual(code, 0)
            self.assertEqual(self.store.get(key), b"v" if code == 0 else b"")

    def test_data_type_is_a_label(self):
        """1.4 data_type: any value is accepted."""
        for kind in (mooncake_store.KVCACHE, mooncake_store.GENERAL):
            key, value = self.stored(str(kind), config=config(data_type=kind))
            self.assertEqual(self.store.get(key), value)

    def test_same_node_is_for_multi_buffers_alone(self):
        """1.4 prefer_alloc_in_same_node: the multi-buffer calls accept it, all other puts answer -600."""
        same = config(prefer_alloc_in_same_node=True)
        memory = self.memory(4096)
        at = memory.write(b"v" * 100)
        keys = self.keys(2)
        self.assertEqual(self.store.put(self.key(), b"v", same), INVALID)
        self.assertEqual(self.store.put_parts(self.key(), b"v", config=same), INVALID)
        self.assertEqual(self.store.put_batch(keys, [b"v", b"w"], same), INVALID)
        self.assertEqual(self.store.put_from(self.key(), at, 100, same), INVALID)
        self.assert_plain(self.store.batch_put_from(keys, [at, at], [10, 10], same), [INVALID] * 2)
        self.assertEqual(self.store.upsert(self.key(), b"v", same), INVALID)
        self.assertEqual(self.store.upsert_from(self.key(), at, 100, same), INVALID)
        self.assertEqual(self.store.upsert_parts(self.key(), b"v", config=same), INVALID)
        self.assertEqual(self.store.upsert_batch(keys, [b"v", b"w"], same), INVALID)
        self.assert_plain(self.store.batch_upsert_from(keys, [at, at], [10, 10], same), [INVALID] * 2)
        self.assert_plain(self.store.batch_is_exist([self.key(), *keys]), [0, 0, 0])
        self.assert_plain(self.store.batch_put_from_multi_buffers(keys, [[at], [at]], [[100], [50]], same), [0, 0])
        self.assertEqual(self.store.get(keys[1]), b"v" * 50)

    def test_same_node_wants_one_replica(self):
        """1.4 prefer_alloc_in_same_node: with two replicas it is refused."""
        at = self.memory(4096).write(b"v" * 100)
        two = config(prefer_alloc_in_same_node=True, replica_num=2)
        self.assert_plain(self.store.batch_put_from_multi_buffers([self.key()], [[at]], [[100]], two), [INVALID])
        self.assert_absent(self.key())

    def test_groups_are_one_a_key(self):
        """1.4 group_ids: one entry for each key of a batch; another number of entries is refused."""
        keys = self.keys(2)
        self.assertEqual(self.store.put_batch(keys, [b"1", b"2"], config(group_ids=["g", ""])), 0)
        self.assertEqual(self.store.put(self.key("one"), b"1", config(group_ids=["g"])), 0)
        at = self.memory(4096).write(b"v" * 100)
        for count in (0, 1, 3):
            wrong = config(group_ids=["g"] * count)
            fresh = self.keys(2, f"n{count}-")
            self.assertLess(self.store.put_batch(fresh, [b"1", b"2"], wrong), 0, count)
            self.assert_plain(self.store.batch_put_from(fresh, [at, at], [1, 1], wrong), [INVALID] * 2)
            self.assert_plain(self.store.batch_is_exist(fresh), [0, 0])


class Stubs(unittest.TestCase):
    def test_signatures_are_documented(self):
        """1.1 stubs: store.pyi has all methods, with the keywords that they accept."""
        if MOONCAKE:
            self.skipTest("Mooncake has no stubs")
        with open(mooncake_store.__file__.rsplit("/", 1)[0] + "/store.pyi", encoding="utf-8") as text:
            classes = {one.name: one for one in ast.parse(text.read()).body if isinstance(one, ast.ClassDef)}
        methods = {one.name for one in classes["MooncakeDistributedStore"].body if isinstance(one, ast.FunctionDef)}
        real = {name for name, member in vars(MooncakeDistributedStore).items()
                if not name.startswith("_") and callable(member)}
        self.assertEqual({name for name in methods if not name.startswith("_")}, real)
        self.assertTrue(inspect.isclass(MooncakeDistributedStore))


if __name__ == "__main__":
    main()
