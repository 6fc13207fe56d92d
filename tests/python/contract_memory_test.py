"""Registering memory, the allocator, and descriptions of replicas (sections 1.10, 1.11 and 1.15 of the contract)."""

import ctypes
import mmap
import os
import subprocess
import sys
import unittest

from contract_support import (INVALID, KIB, MIB, MOONCAKE, NOT_FOUND, Child, Memory, OnPool, free_port, lease_over,
                              main, mooncake_store, say, unlike_mooncake, value_of, wait_until)
from mooncake.store import MooncakeDistributedStore, MooncakeHostMemAllocator, ReplicateConfig


class Registration(OnPool):
    def test_register_and_unregister(self):
        """1.10 register_buffer, unregister_buffer: 0; -600 for memory that is not registered."""
        memory = Memory(MIB)
        self.assertEqual(self.store.register_buffer(memory.address, MIB), 0)
        self.assertEqual(self.store.unregister_buffer(memory.address), 0)
        self.assertEqual(self.store.unregister_buffer(memory.address), INVALID)
        self.assertEqual(self.store.unregister_buffer(memory.address + 1), INVALID)
        self.assertEqual(self.store.register_buffer(memory.address, MIB), 0)
        self.assertEqual(self.store.unregister_buffer(memory.address), 0)

    def test_by_keyword(self):
        """1.10 register_buffer, unregister_buffer: keywords buffer_ptr, size."""
        memory = Memory(MIB)
        self.assertEqual(self.store.register_buffer(buffer_ptr=memory.address, size=MIB), 0)
        self.assertEqual(self.store.unregister_buffer(buffer_ptr=memory.address), 0)

    def test_nothing(self):
        """1.10 register_buffer: a size of 0 and an address of 0 are refused; negative ones raise TypeError."""
        memory = Memory(MIB)
        self.assertEqual(self.store.register_buffer(0, MIB), INVALID)
        self.assertEqual(self.store.register_buffer(memory.address, 0), INVALID)
        for address, size in ((-1, 1), (memory.address, -1), ("a", 1), (memory.address, None)):
            with self.assertRaises(TypeError):
                self.store.register_buffer(address, size)

    @unlike_mooncake("each page of it is registered")
    def test_one_call_for_all_of_a_pool(self):
        """1.10 register_buffer: one call may cover tens of GiB; it allocates no memory."""
        large = mmap.mmap(-1, 64 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
        address = ctypes.addressof(ctypes.c_char.from_buffer(large))
        self.assertEqual(self.store.register_buffer(address, 64 << 30), 0)
        large[5 << 30:(5 << 30) + 5] = b"value"
        self.assertEqual(self.store.put_from(self.key(), address + (5 << 30), 5), 0)
        self.assertEqual(self.store.get_into(self.key(), address + (63 << 30), MIB), 5)
        self.assertEqual(large[63 << 30:(63 << 30) + 5], b"value")
        self.assertEqual(self.store.unregister_buffer(address), 0)

    def test_values_across_two_registrations(self):
        """1.10 register_buffer: FastDeploy registers one buffer in adjoining pieces; a value may extend over two of them."""
        memory = Memory(256 * KIB)
        for at in (0, 128 * KIB):
            self.assertEqual(self.store.register_buffer(memory.address + at, 128 * KIB), 0)
        value = value_of("across", 100 * KIB)
        at = memory.write(value, 80 * KIB)
        self.assertEqual(self.store.put_from(self.key(), at, len(value)), 0)
        memory.clear()
        self.assertEqual(self.store.get_into(self.key(), memory.address + 70 * KIB, 110 * KIB), len(value))
        self.assertEqual(memory.read(len(value), 70 * KIB), value)
        for at in (0, 128 * KIB):
            self.assertEqual(self.store.unregister_buffer(memory.address + at), 0)

    def test_chunks_above_the_limit(self):
        """1.10 register_buffer: memory larger than MC_MAX_MR_SIZE is registered in one call."""
        os.environ["MC_MAX_MR_SIZE"] = str(MIB)
        self.addCleanup(os.environ.pop, "MC_MAX_MR_SIZE")
        memory = Memory(8 * MIB)
        self.assertEqual(self.store.register_buffer(memory.address, memory.length), 0)
        self.assertEqual(self.store.unregister_buffer(memory.address), 0)

    def test_many(self):
        """1.10 register_buffer: hundreds of regions, in any order."""
        memory = Memory(4 * MIB)
        regions = [memory.address + i * 8 * KIB for i in range(400)]
        self.assertEqual({self.store.register_buffer(at, 4 * KIB) for at in regions}, {0})
        self.assertEqual({self.store.unregister_buffer(at) for at in reversed(regions)}, {0})
        self.assertEqual(self.store.unregister_buffer(regions[7]), INVALID)

    def test_parts_of_what_is_registered(self):
        """1.10 register_buffer, unregister_buffer: memory may be registered in adjoining parts; each is unregistered by its start."""
        memory = Memory(MIB)
        at, half = memory.address, MIB // 2
        for parts in ([(0, half), (half, half)], [(half, half), (half - 10, 10), (0, half - 10)]):
            with self.subTest(parts):
                for offset, length in parts:
                    self.assertEqual(self.store.register_buffer(at + offset, length), 0)
                key, value = self.stored(str(parts), length=700_000)
                self.assertEqual(self.store.get_into_ranges([at], [[key]], [[[5]]], [[[0]]], [[[len(value)]]]), [[[len(value)]]])
                self.assertEqual(memory.read(len(value), 5), value)
                for offset, _ in parts:
                    self.assertEqual(self.store.unregister_buffer(at + offset), 0)
                self.assertEqual(self.store.unregister_buffer(at), INVALID)
                self.assertEqual(self.store.get_into_ranges([at], [[key]], [[[0]]], [[[0]]], [[[10]]]), [[[INVALID]]])

    @unlike_mooncake("with tcp only nothing is refused")
    def test_parts_that_stick_out(self):
        """1.10 register_buffer: -600 for memory that overlaps a registered buffer: across its start or end, inside and around it."""
        memory = Memory(MIB)
        at = memory.address
        self.assertEqual(self.store.register_buffer(at + 1000, 1000), 0)
        for offset, length in ((0, 1001), (500, 1000), (1999, 10), (1500, 1000), (0, 3000), (1000, 5), (1999, 1), (1000, 1001), (999, 1001)):
            self.assertEqual(self.store.register_buffer(at + offset, length), INVALID, (offset, length))
        for offset, length in ((0, 1000), (2000, 10)):
            self.assertEqual(self.store.register_buffer(at + offset, length), 0, (offset, length))
        for offset, length in ((2005, 1000), (0, 1), (0, 5000)):
            self.assertEqual(self.store.register_buffer(at + offset, length), INVALID, (offset, length))
        self.assertEqual([self.store.unregister_buffer(at + offset) for offset in (0, 1000, 1500, 2000)], [0, 0, INVALID, 0])
        self.assertEqual([self.store.unregister_buffer(at + offset) for offset in (0, 1000, 1999, 2000)], [INVALID] * 4)

    @unlike_mooncake("with tcp only nothing is refused")
    def test_overlapping(self):
        """1.10 register_buffer, unregister_buffer: the same address again is -600, and so is the second unregister."""
        memory = Memory(MIB)
        for _ in range(2):
            codes = [self.store.register_buffer(memory.address, MIB) for _ in range(3)]
            codes += [self.store.unregister_buffer(memory.address) for _ in range(3)]
            self.assertEqual(codes, [0, INVALID, INVALID, 0, INVALID, INVALID])

    def test_two_stores_register_the_same(self):
        """1.10 register_buffer: each store has its own registrations."""
        other = self.opened(0)
        memory = self.memory(MIB)
        self.assertEqual(other.register_buffer(memory.address, MIB), 0)
        self.assertEqual(other.unregister_buffer(memory.address), 0)
        self.assertEqual(other.unregister_buffer(memory.address), INVALID)

    @unlike_mooncake("it crashes")
    def test_no_address(self):
        """1.10 register_buffer, 1.6 put_from, 1.7 get_into: address 0 is refused, no crash. (Other addresses that are not mapped
        end the process, as in any library.)"""
        key, _ = self.stored(length=100)
        fresh = self.keys(6, "n")
        store = self.store
        codes = [store.put_from(fresh[0], 0, 100), store.get_into(key, 0, 100), *store.batch_put_from([fresh[1]], [0], [100]),
                 *store.batch_get_into([key], [0], [100]), store.upsert_from(fresh[2], 0, 100),
                 *store.batch_put_from_multi_buffers([fresh[3]], [[0]], [[100]]),
                 *store.batch_get_into_multi_buffers([key], [[0]], [[100]]),
                 *store.get_into_ranges([0], [[key]], [[[0]]], [[[0]]], [[[10]]])[0][0]]
        self.assertEqual(codes, [INVALID] * 8)
        self.assert_plain(self.store.batch_is_exist(fresh), [0] * 6)


class Allocator(OnPool):
    def test_alloc_and_free(self):
        """1.15 MooncakeHostMemAllocator.alloc, MooncakeHostMemAllocator.free: zeroed shared memory; free 0, and -1 for other addresses."""
        allocator = MooncakeHostMemAllocator()
        address = allocator.alloc(3 * MIB)
        self.assertIs(type(address), int)
        self.assertEqual(address % 4096, 0)
        self.assertEqual(ctypes.string_at(address, 3 * MIB), bytes(3 * MIB))
        ctypes.memset(address, 7, 3 * MIB)
        self.assertEqual(allocator.free(address), 0)
        self.assertEqual(allocator.free(address), -1)
        self.assertEqual(allocator.free(12345), -1)

    def test_failure(self):
        """1.15 MooncakeHostMemAllocator.alloc: RuntimeError when it cannot."""
        for size in (0, 1 << 50):
            with self.assertRaises(RuntimeError):
                MooncakeHostMemAllocator().alloc(size)

    def test_one_for_the_process(self):
        """1.15 MooncakeHostMemAllocator: one shared instance a process: another object can free its memory, which outlives the object."""
        address = MooncakeHostMemAllocator().alloc(MIB)
        ctypes.memset(address, 1, MIB)
        self.assertEqual(MooncakeHostMemAllocator().free(address), 0)

    def test_blocks_do_not_overlap(self):
        """1.15 MooncakeHostMemAllocator.alloc: many blocks, each its own."""
        allocator = MooncakeHostMemAllocator()
        blocks = [allocator.alloc(64 * KIB) for _ in range(50)]
        for number, at in enumerate(blocks):
            ctypes.memset(at, number, 64 * KIB)
        for number, at in enumerate(blocks):
            self.assertEqual(ctypes.string_at(at, 64 * KIB), bytes([number]) * 64 * KIB)
            self.assertEqual(allocator.free(at), 0)

    def test_its_memory_is_as_any(self):
        """1.15 MooncakeHostMemAllocator: its memory can be registered, put from, and read into."""
        allocator = MooncakeHostMemAllocator()
        address = allocator.alloc(MIB)
        self.assertEqual(self.store.register_buffer(address, MIB), 0)
        ctypes.memmove(address, b"value", 5)
        self.assertEqual(self.store.put_from(self.key(), address, 5), 0)
        self.assertEqual(self.store.get_into(self.key(), address + 1000, 100), 5)
        self.assertEqual(ctypes.string_at(address + 1000, 5), b"value")
        self.assertEqual(self.store.unregister_buffer(address), 0)
        self.assertEqual(allocator.free(address), 0)

    def test_addresses_for_torch(self):
        """1.1 get_alloc_func_addr, get_free_func_addr, bind_to_numa_node: addresses of C functions; a missing node is no crash."""
        for name in ("get_alloc_func_addr", "get_free_func_addr"):
            self.assertGreater(getattr(mooncake_store, name)(), 0)
        with Child(child_bind_to_numa_node) as child:
            child.child_line()


def child_bind_to_numa_node():
    for node in (0, 999, -1):
        try:
            mooncake_store.bind_to_numa_node(node)
        except (RuntimeError, ValueError, OSError):
            pass
    say("alive")


class Descriptors(OnPool):
    def test_of_memory(self):
        """1.11 get_replica_desc, ReplicaDescriptor, MemoryDescriptor, Descriptor: for a value in memory."""
        key, value = self.stored(length=12_345)
        found = self.store.get_replica_desc(key)
        self.assertIs(type(found), list)
        one, = found
        self.assertEqual([one.is_memory_replica(), one.is_disk_replica(), one.is_local_disk_replica()], [True, False, False])
        self.assertEqual(one.status, mooncake_store.ReplicaStatus.COMPLETE)
        buffer = one.get_memory_descriptor().buffer_descriptor
        self.assertEqual(buffer.size, len(value))
        self.assertIs(type(buffer.buffer_address), int)
        self.assertRegex(buffer.transport_endpoint, r"^.+:\d+$")  # the wheel's in P2P mode is another port of the host
        self.assertTrue(repr(buffer))

    def test_the_wrong_getter(self):
        """1.11 ReplicaDescriptor: the wrong getter raises RuntimeError; status is read-only."""
        one, = self.store.get_replica_desc(self.stored()[0])
        with self.assertRaises(RuntimeError):
            one.get_disk_descriptor()
        with self.assertRaises(AttributeError):
            one.status = mooncake_store.ReplicaStatus.FAILED

    def test_of_nothing(self):
        """1.11 get_replica_desc: [] on any error."""
        self.assertEqual(self.store.get_replica_desc(self.key()), [])
        self.assertEqual(self.store.get_replica_desc(""), [])

    def test_batch(self):
        """1.11 batch_get_replica_desc: dict key -> list, missing keys left out."""
        keys = [self.stored(name)[0] for name in "ab"]
        found = self.store.batch_get_replica_desc([keys[0], self.key("no"), keys[1], keys[1]])
        self.assertIs(type(found), dict)
        self.assertEqual(sorted(found), keys)
        for replicas in found.values():
            self.assertEqual([one.is_memory_replica() for one in replicas], [True])
        self.assertEqual(self.store.batch_get_replica_desc([]), {})
        self.assertEqual(self.store.batch_get_replica_desc([self.key("no")]), {})

    def test_of_what_is_being_written(self):
        """1.11 get_replica_desc: [] for a value that is not readable."""
        self.assert_plain(self.store.batch_put_session_start([self.key()], [5], ReplicateConfig()), [0])
        self.assertEqual(self.store.get_replica_desc(self.key()), [])
        self.assertEqual(self.store.batch_get_replica_desc([self.key()]), {})
        self.assert_plain(self.store.batch_put_session_revoke([self.key()]), [0])

    def test_constructors(self):
        """1.11 Descriptor: has a constructor and a repr."""
        made = mooncake_store.Descriptor()
        self.assertTrue(repr(made))
        self.assertEqual((made.size, made.transport_endpoint), (0, ""))

    def test_wrong_types(self):
        """1.11 get_replica_desc, batch_get_replica_desc: TypeError."""
        for call in (lambda: self.store.get_replica_desc(1), lambda: self.store.batch_get_replica_desc("k"),
                     lambda: self.store.batch_get_replica_desc([1])):
            with self.assertRaises(TypeError):
                call()


@unlike_mooncake("its tier writes after a heartbeat of 10 s")
class Tier(OnPool):
    """A node with a disk: values that left memory are read like any others."""

    pool_settings = {"memory": "64MiB", "disk": "1GiB"}
    segment = 32 * MIB

    def on_disk(self, keys):
        told = self.store.batch_get_replica_desc(keys)
        return [key for key in keys if told.get(key) and not any(one.is_memory_replica() for one in told[key])]

    def test_values_on_disk_alone(self):
        """trap 20, 1.11 ReplicaDescriptor, DiskDescriptor: a value from disk is a success; vLLM's tier log sees is_local_disk_replica."""
        keys = self.keys(48)
        values = {key: value_of(key, MIB) for key in keys}
        for key in keys:
            self.eventually(0, lambda k=key: self.store.put(k, values[k]), -200)
        on_disk = wait_until(lambda: self.on_disk(keys), 15, "values only on disk")
        self.assert_plain(self.store.batch_is_exist(keys), [1] * len(keys))
        one = self.store.get_replica_desc(on_disk[0])[0]
        self.assertTrue(one.is_local_disk_replica() or one.is_disk_replica())
        with self.assertRaises(RuntimeError):
            one.get_memory_descriptor()
        if one.is_disk_replica():
            self.assertEqual(one.get_disk_descriptor().object_size, MIB)
        memory = self.memory(8 * MIB)
        for start in range(0, len(keys), 8):
            part = keys[start:start + 8]
            lease_over(self.pool)
            got = self.store.batch_get_into_multi_buffers(part, [[memory.address + i * MIB, memory.address + i * MIB + 1000]
                                                                 for i in range(8)], [[1000, MIB - 1000]] * 8)
            self.assert_plain(got, [MIB] * 8)
            self.assertEqual([memory.read(MIB, i * MIB) for i in range(8)], [values[key] for key in part])


class Standalone(OnPool):
    """SGLang's standalone mode: the memory belongs to a mooncake_client, engines are dummies that use it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        program = os.path.join(os.path.dirname(sys.executable), "mooncake_client")
        if not MOONCAKE:
            from node_support import BIN

            program = os.path.join(BIN, "mooncake_client")
        if not os.path.exists(program):
            raise unittest.SkipTest("no mooncake_client was built")
        cls.port = free_port()
        cls.client = subprocess.Popen(
            [program, "--host=127.0.0.1", f"--port={cls.port}", "--metadata_server=P2PHANDSHAKE", "--protocol=tcp",
             f"--master_server_address={cls.pool.address}", "--global_segment_size=64MB"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **cls.pool.environment()})
        cls.addClassCleanup(cls.client.wait)
        cls.addClassCleanup(cls.client.terminate)

    def dummy(self):
        def connected():
            one = MooncakeDistributedStore()
            if one.setup_dummy(32 * MIB, 16 * MIB, f"127.0.0.1:{self.port}") == 0:
                return one
            self.assertIsNone(self.client.poll(), "mooncake_client ended")
            return None

        one = wait_until(connected, 10, "a dummy's setup")
        self.addCleanup(one.close)
        return one

    def test_a_dummy_stores_and_loads(self):
        """1.5 setup_dummy, 1.10 dummy, 1.15 MooncakeHostMemAllocator: SGLang's pool is allocated by the allocator; it is registered as a
        whole, written from and read into."""
        one = self.dummy()
        if not MOONCAKE:  # the wheel answers 2 for a while
            self.assertEqual(one.health_check(), 0)
        allocator = MooncakeHostMemAllocator()
        address = allocator.alloc(4 * MIB)
        self.assertEqual(one.register_buffer(address, 4 * MIB), 0)
        value = value_of("dummy", MIB)
        ctypes.memmove(address, value, MIB)
        self.assert_plain(one.batch_put_from([self.key()], [address], [MIB]), [0])
        self.assert_plain(one.batch_is_exist([self.key(), self.key("no")]), [1, 0])
        self.assert_plain(one.batch_get_into([self.key(), self.key("no")], [address + MIB, address], [MIB, MIB]),
                          [MIB, NOT_FOUND])
        self.assertEqual(ctypes.string_at(address + MIB, MIB), value)
        self.assertEqual(self.store.get(self.key()), value)
        self.assertEqual(one.unregister_buffer(address), 0)
        self.assertEqual(allocator.free(address), 0)

    @unlike_mooncake("it takes exactly what was allocated")
    def test_halves_of_an_allocation(self):
        """1.10 dummy, register_buffer, unregister_buffer, 1.15 MooncakeHostMemAllocator: SGLang's MHA registers the K half and the V half
        of one allocation; any part may be registered, but none that ends beyond it."""
        one = self.dummy()
        allocator = MooncakeHostMemAllocator()
        for make, give in ((allocator.alloc, allocator.free), (one.alloc_from_mem_pool, lambda _: 0)):
            address = make(2 * MIB)
            for offset in (0, MIB):
                self.assertEqual(one.register_buffer(address + offset, MIB), 0)
            value = value_of(address, 2 * MIB)
            ctypes.memmove(address, value, len(value))
            key = self.key(str(address))
            self.assert_plain(one.batch_put_from([key + "k", key + "v"], [address, address + MIB], [MIB, MIB]), [0, 0])
            self.assert_plain(one.batch_get_into([key + "v", key + "k"], [address, address + MIB], [MIB, MIB]), [MIB, MIB])
            self.assertEqual(ctypes.string_at(address, 2 * MIB), value[MIB:] + value[:MIB])
            for offset, length in ((0, 2 * MIB), (4096, 4096), (2 * MIB - 1, 1)):
                self.assertEqual(one.register_buffer(address + offset, length), 0, (offset, length))
            for offset, length in ((0, 2 * MIB + 1), (MIB, MIB + 1), (2 * MIB, 1), (-1, 2)):
                self.assertEqual(one.register_buffer(address + offset, length), -1, (offset, length))
            for offset in (MIB, 0, 4096, 2 * MIB - 1, 0):
                self.assertEqual(one.unregister_buffer(address + offset), 0, offset)
            self.assertEqual(one.unregister_buffer(address), -1)
            self.assertEqual(give(address), 0)

    def test_warm_up_of_a_dummy(self):
        """1.5 setup_dummy: put, is_exist, get."""
        one = self.dummy()
        self.assertEqual(one.put(self.key(), bytes(4096)), 0)
        self.assertEqual(one.is_exist(self.key()), 1)
        self.assertEqual(one.get(self.key()), bytes(4096))

    def test_foreign_memory(self):
        """1.10 dummy: memory of another allocator is refused with -1, or works."""
        one = self.dummy()
        memory = Memory(MIB)
        self.assertIn(one.register_buffer(memory.address, MIB), (-1, 0))

    def test_pool_memory(self):
        """1.5 alloc_from_mem_pool: for a dummy, the address of fresh shared memory."""
        one = self.dummy()
        address = one.alloc_from_mem_pool(MIB)
        self.assertGreater(address, 0)
        ctypes.memset(address, 5, MIB)
        self.assertEqual(one.register_buffer(address, MIB), 0)
        self.assertEqual(one.put_from(self.key(), address, MIB), 0)
        self.assertEqual(self.store.get(self.key()), b"\5" * MIB)
        self.assertEqual(one.get_offload_rpc_read_count(), 0)


if __name__ == "__main__":
    main()
