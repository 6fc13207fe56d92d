"""mooncake.store on a node: setup and close, every way to write and to read, sessions, removal, arguments, threads, forks."""

import array
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
import unittest

import python_support
from python_support import PACKAGE, fork  # noqa: F401  (puts the built package on the path)
from node_support import PACE, PATIENCE, Node, free_port, main, wait_until

import mooncake.store as mooncake
from mooncake.store import MooncakeDistributedStore, ReplicateConfig, SoftPinAction

KIB = 1024
MIB = 1024 * KIB
MASTER = "127.0.0.1:50051"


def use(node):
    """All stores of this process find this node."""
    os.environ.update(SLUICE_INSTANCE=node.instance, SLUICE_RUNTIME_DIR=node.directory + "/run", SLUICE_SHM_DIR=node.shm)


class Memory:
    """Bytes at an address."""

    def __init__(self, content):
        self.bytes = bytearray(content) if not isinstance(content, int) else bytearray(content)
        self.hold = (ctypes.c_char * len(self.bytes)).from_buffer(self.bytes)
        self.at = ctypes.addressof(self.hold)

    def __len__(self):
        return len(self.bytes)


class OnNode(python_support.OnNode):
    segment = 16 * MIB
    buffer = 16 * MIB

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        use(cls.node)

    def open(self, host="localhost", segment=None, buffer=None, **more):
        store = MooncakeDistributedStore()
        code = store.setup(host, "P2PHANDSHAKE", self.segment if segment is None else segment,
                           self.buffer if buffer is None else buffer, "tcp", "ibp6s0", MASTER, **more)
        self.assertEqual(code, 0)
        self.addCleanup(store.close)
        return store

    def setUp(self):
        self.store = self.open()
        self.store.remove_all(force=True)


class Life(OnNode):
    def test_a_store_that_was_never_set_up_answers_codes(self):
        store, memory = MooncakeDistributedStore(), Memory(8)
        self.assertEqual(store.get("k"), b"")
        self.assertEqual(store.get_batch(["k", "l"]), [b""])
        self.assertEqual(store.put("k", b"v"), -600)
        self.assertEqual(store.put_parts("k", b"v"), -600)
        self.assertEqual(store.put_parts("k"), -600)
        self.assertEqual(store.put_batch(["k"], [b"v"]), -600)
        self.assertEqual(store.put_from("k", memory.at, 8), -600)
        self.assertEqual(store.put_from("k", memory.at, 0), -600)
        self.assertEqual(store.batch_put_from(["k", "l"], [1, 2], [3, 4]), [-600, -600])
        self.assertEqual(store.batch_put_from_multi_buffers(["k"], [[1]], [[2]]), [])
        self.assertEqual(store.batch_upsert_from(["k"], [memory.at], [8]), [-600])
        self.assertEqual(store.get_into("k", memory.at, 8), -600)
        self.assertEqual(store.batch_get_into(["k"], [memory.at], [8]), [-600])
        self.assertEqual(store.batch_get_into_multi_buffers(["k"], [[memory.at]], [[8]]), [-600])
        self.assertEqual(store.get_into_ranges([memory.at], [["k"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]])
        self.assertIsNone(store.get_buffer("k"))
        self.assertEqual(store.batch_get_buffer(["k"]), [None])
        self.assertEqual(store.is_exist("k"), 0)  # LMCache: any other code is a hit
        self.assertEqual(store.batch_is_exist(["k", "l"]), [0, 0])
        self.assertEqual(store.get_size("k"), -600)
        self.assertEqual(store.remove("k"), -600)
        self.assertEqual(store.batch_remove(["k"]), [-600])
        self.assertEqual(store.remove_all(), -600)
        self.assertEqual(store.remove_by_regex("k"), -600)
        self.assertEqual(store.batch_replica_clear(["k"]), [])
        self.assertEqual(store.register_buffer(memory.at, 8), -600)
        self.assertEqual(store.unregister_buffer(memory.at), -600)
        self.assertEqual(store.get_replica_desc("k"), [])
        self.assertEqual(store.batch_get_replica_desc(["k"]), {})
        self.assertEqual(store.batch_get_session_start(["k"]), [])
        self.assertEqual(store.batch_put_session_start(["k"], [8]), [])
        self.assertEqual(store.batch_get_session_end(["k"]), -1)
        self.assertEqual(store.get_hostname(), "")
        self.assertEqual(store.health_check(), 1)
        self.assertEqual(store.close(), 0)
        self.assertEqual(store.alloc_from_mem_pool(4096), 0)

    def test_a_closed_store_answers_as_one_never_set_up_and_can_be_set_up_again(self):
        store = self.open()
        self.assertEqual(store.put("k", b"v"), 0)
        self.assertEqual(store.close(), 0)
        self.assertEqual(store.close(), 0)
        self.assertEqual(store.get("k"), b"")
        self.assertEqual(store.put("k", b"v"), -600)
        self.assertEqual(store.health_check(), 1)
        self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", MIB, MIB, "tcp", "", MASTER), 0)
        self.assertEqual(store.health_check(), 0)
        self.assertEqual(store.put("again", b"v"), 0)
        self.assertEqual(store.get("again"), b"v")

    def test_setup_takes_positions_names_and_a_dict(self):
        store = MooncakeDistributedStore()
        self.addCleanup(store.close)
        self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", MIB, MIB, "tcp", "", MASTER, None), 0)
        self.assertEqual(store.setup(local_hostname="localhost", metadata_server="P2PHANDSHAKE", global_segment_size=0,
                                     local_buffer_size=MIB, protocol="rdma", rdma_devices="mlx5_0,mlx5_1",
                                     master_server_addr=MASTER, engine=object(), enable_ssd_offload=True,
                                     ssd_offload_path="/x", tenant_id="t", enable_client_http_server=False,
                                     client_http_port=9300), 0)
        self.assertEqual(store.setup({"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE",
                                      "global_segment_size": "16 MB", "local_buffer_size": "1mb", "device_name": "x",
                                      "master_server_address": MASTER, "unknown": "ignored"}), 0)
        self.assertEqual(store.setup(config={"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE",
                                             "global_segment_size": 4096}), 0)

    def test_a_setup_that_fails_leaves_a_store_that_answers_codes(self):
        store = MooncakeDistributedStore()
        dict_form = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}
        for bad in ({**dict_form, "global_segment_size": "50%"}, {"local_hostname": "localhost"},
                    {**dict_form, "local_buffer_size": 1000}, {**dict_form, "local_buffer_size": "2tb"}):
            for last in (store, self.open()):  # never set up, and set up before
                self.assertLess(last.setup(bad), 0)
                self.assertEqual(last.health_check(), 1)
                self.assertEqual(last.put("k", b"v"), -600)
        for segment, buffer in ((1000, MIB), (MIB, 1), (MIB, (1 << 40) + 1)):
            self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", segment, buffer, "tcp", "", MASTER), -600)
        for host in ("", "host:", "host:0", "host:70000", "host:x"):
            self.assertEqual(store.setup(host, "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER), -600)

    def test_a_missing_or_unknown_argument_is_a_type_error_that_names_the_arguments(self):
        store = MooncakeDistributedStore()
        names = ("local_hostname", "metadata_server", "global_segment_size", "local_buffer_size", "protocol",
                 "rdma_devices", "master_server_addr", "engine", "enable_ssd_offload", "ssd_offload_path", "tenant_id",
                 "enable_client_http_server", "client_http_port", "brand_new")
        for args, words in ((("a",), {}), ((), {}), (("a", "b", 1, 1, "tcp", "", MASTER), {"brand_new": 1}),
                            (("a", "b", -1, 1, "tcp", "", MASTER), {"brand_new": 1})):
            with self.assertRaises(TypeError) as caught:
                store.setup(*args, **words)
            for name in names if words else names[:-1]:
                self.assertIn(name, str(caught.exception))

    def test_a_host_without_a_port_gets_one_that_is_really_taken(self):
        stores = [self.open(segment=0) for _ in range(3)]
        names = {store.get_hostname() for store in stores}
        self.assertEqual(len(names), 3)
        for name in names:
            host, port = name.rsplit(":", 1)
            self.assertEqual(host, "localhost")
            self.assertTrue(12300 <= int(port) <= 14300)
            with socket.socket() as other, self.assertRaises(OSError):
                other.bind(("", int(port)))

    def test_ports_come_from_the_environment_and_end(self):
        with socket.socket() as taken:
            port = str(free_port())
            taken.bind(("", int(port)))
            with Environment(MC_STORE_CLIENT_MIN_PORT=port, MC_STORE_CLIENT_MAX_PORT=port,
                             MC_STORE_CLIENT_SETUP_RETRIES="3"):
                store = MooncakeDistributedStore()
                self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER), -1)
            named = ("localhost:" + port, "http://localhost/metadata", 0, MIB, "tcp", "", MASTER)
            self.assertEqual(store.setup(*named), -600)
            self.assertNotIn(self.open("localhost:" + port).get_hostname(), ("", "localhost:" + port))  # no name to keep
        with Environment(MC_STORE_CLIENT_MIN_PORT=port, MC_STORE_CLIENT_MAX_PORT=port):
            self.assertEqual(self.open("localhost").get_hostname(), "localhost:" + port)
        self.assertEqual(self.open(f"[::1]:{free_port()}").get_hostname()[:6], "[::1]:")

    def test_a_name_that_is_no_text_keeps_no_port(self):
        port = free_port()
        with Environment(SLUICE_INSTANCE=os.fsdecode(b"\xff")), self.assertRaises(TypeError):
            MooncakeDistributedStore().setup(f"localhost:{port}", "http://localhost/metadata", 0, MIB, "tcp", "", MASTER)
        with socket.socket() as other:
            other.bind(("", port))

    def test_the_master_has_to_be_one_of_this_machine(self):
        with Environment(SLUICE_INSTANCE=None, SLUICE_RUNTIME_DIR=None, SLUICE_SHM_DIR=None):
            store = MooncakeDistributedStore()
            for master in ("192.0.2.1:50051", "127.0.0.1:1", "not a master:x", ""):
                self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", master), -600)

    def test_tenants_do_not_see_each_other(self):
        left, right = self.open(tenant_id="left"), self.open(tenant_id="right")
        for store, value in ((self.store, b"default"), (left, b"left"), (right, b"right")):
            self.assertEqual(store.put("k", value), 0)
            self.assertEqual(store.put("\x01left\x01k", value), 0)
        for store, value in ((self.store, b"default"), (left, b"left"), (right, b"right")):
            self.assertEqual(store.get("k"), value)
            self.assertEqual(store.get("\x01left\x01k"), value)
        self.assertEqual(left.remove_all(force=True), 2)
        self.assertEqual((self.store.get("k"), left.get("k"), right.get("k")), (b"default", b"", b"right"))
        self.assertEqual(right.remove_by_regex("^k$", force=True), 1)
        self.assertEqual((self.store.get("k"), right.get("k")), (b"default", b""))
        long = "k" * 1020  # with a tenant's prefix it is no key of a node
        for store, value in ((self.store, b"default"), (left, b"left"), (right, b"right")):
            self.assertEqual(store.put(long, value), 0)
        self.assertEqual([store.get(long) for store in (self.store, left, right)], [b"default", b"left", b"right"])

    def test_a_child_of_a_fork_leaves_the_parents_store_alone(self):
        self.store.put("k", b"v")
        handle = self.store.get_buffer("k")
        child = fork()
        if child == 0:
            del handle
            self.store.close()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(bytes(handle), b"v")
        self.assertEqual(self.store.health_check(), 0)
        self.assertEqual(self.store.get("k"), b"v")

    def test_a_child_does_not_wait_for_threads_that_stayed_with_its_parent(self):
        memory, stop, children = Memory(40 * MIB), threading.Event(), []
        self.assertEqual(self.store.batch_put_session_start(["k"], [len(memory)]), [0])

        def work():
            while not stop.is_set():
                self.store.batch_put_from_multi_buffer_ranges(["k"], [[memory.at]], [[len(memory)]], [[0]])

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(10):  # in one of the forks the thread is just using the session
            time.sleep(0.01)
            children.append(fork(but=thread.native_id))
            if children[-1] == 0:
                self.store.close()
                os._exit(0)
        stop.set()
        thread.join()

        def all_ended():
            children[:] = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
            return not children

        self.addCleanup(lambda: [os.kill(child, signal.SIGKILL) for child in children])
        wait_until(all_ended, 10, "children that close the store end")

    def test_a_closed_stores_port_is_free_while_its_buffers_are_held(self):
        self.store.put("k", b"v")
        port = int(self.open(segment=0).get_hostname().rsplit(":", 1)[1])
        self.doCleanups()
        store = self.open(f"localhost:{port}", segment=0)
        store.put("k", b"v")
        handle = store.get_buffer("k")
        store.close()
        self.assertEqual(store.setup(f"localhost:{port}", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER), 0)
        self.assertEqual(bytes(handle), b"v")


def is_shared_memory(at):
    """Whether memory of the allocator is mapped there."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        ranges = [line.split()[0].split("-") for line in lines if "/memfd:sluice" in line]
    return any(int(start, 16) <= at < int(end, 16) for start, end in ranges)


class Environment:
    """Variables of this process, for a while."""

    def __init__(self, **values):
        self.values = values

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.values}
        self.set(self.values)

    def __exit__(self, *_):
        self.set(self.before)

    @staticmethod
    def set(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Writing(OnNode):
    def test_what_is_put_keeps_its_first_value(self):
        self.assertEqual(self.store.put("k", b"first"), 0)
        self.assertEqual(self.store.put("k", b"second"), 0)
        self.assertEqual(self.store.get("k"), b"first")

    def test_every_byte_of_any_buffer_is_stored(self):
        numbers = array.array("I", range(1000))
        self.assertEqual(self.store.put("numbers", numbers), 0)
        self.assertEqual(self.store.get("numbers"), numbers.tobytes())
        every_second = memoryview(bytes(range(10)))[::2]
        self.assertEqual(self.store.put("strided", every_second), 0)
        self.assertEqual(self.store.get("strided"), every_second.tobytes())
        self.assertEqual(self.store.put_batch(["a", "b"], [bytearray(b"xy"), every_second]), 0)
        self.assertEqual(self.store.get_batch(["a", "b", "c"]), [b"xy", every_second.tobytes(), b""])
        for call in (self.store.put, self.store.upsert):
            self.assertRaises(TypeError, call, "k", "text")
            self.assertRaises(TypeError, call, "k", None)
            self.assertRaises(TypeError, call, 7, b"v")

    def test_keys_and_values_that_cannot_be(self):
        for call in (self.store.put, self.store.upsert):
            self.assertEqual(call("", b"v"), -600)
            self.assertEqual(call("k", b""), -600)
            self.assertEqual(call("k" * 1_048_577, b"v"), -400)
        self.assertEqual(self.store.is_exist("k"), 0)
        self.assertEqual(self.store.put("ключ/κλειδί/鍵", b"v"), 0)
        self.assertEqual(self.store.get("ключ/κλειδί/鍵"), b"v")

    def test_parts_are_joined(self):
        self.assertEqual(self.store.put_parts("k", b"ab", bytearray(b""), memoryview(b"cd")), 0)
        self.assertEqual(self.store.get("k"), b"abcd")
        self.assertEqual(self.store.put_parts("none"), 0)
        self.assertEqual(self.store.put_parts("none", b"", b""), 0)
        self.assertEqual(self.store.is_exist("none"), 0)
        self.assertEqual(self.store.put_parts("named", b"x", config=ReplicateConfig()), 0)
        self.assertRaises(RuntimeError, self.store.put_parts, "k", array.array("I", [1]))
        self.assertRaises(RuntimeError, self.store.put_parts, "k", memoryview(b"abcd").cast("B", (2, 2)))
        self.assertRaises(RuntimeError, self.store.put_parts, "k", memoryview(b"abcd")[::2])
        self.assertRaises(TypeError, self.store.put_parts, "k", "text")
        self.assertRaises(TypeError, self.store.put_parts)
        self.assertRaises(TypeError, self.store.put_parts, "k", b"x", confog=None)

    def test_addresses(self):
        memory = Memory(b"0123456789")
        self.assertEqual(self.store.register_buffer(memory.at, 10), 0)
        self.assertEqual(self.store.put_from("k", memory.at + 2, 5), 0)
        self.assertEqual(self.store.get("k"), b"23456")
        self.assertEqual(self.store.put_from("empty", memory.at, 0), 0)
        self.assertEqual(self.store.is_exist("empty"), 0)
        self.assertEqual(self.store.put_from("null", 0, 5), -600)
        self.assertEqual(self.store.put_from_with_metadata("m", memory.at + 5, memory.at, 5, 2), 0)
        self.assertEqual(self.store.get("m"), b"0156789")
        self.assertEqual(self.store.put_from("huge", memory.at, 1 << 63), -600)
        self.assertRaises(TypeError, self.store.put_from, "k", -1, 5)
        self.assertRaises(TypeError, self.store.put_from, "k", 1 << 64, 5)
        self.assertRaises(TypeError, self.store.put_from, "k", 1.5, 5)

    def test_batches_of_addresses(self):
        memory = Memory(bytes(range(100)))
        codes = self.store.batch_put_from(["a", "b", "", "z"], [memory.at, memory.at + 10, memory.at, memory.at],
                                          [10, 20, 1, 0])
        self.assertIs(type(codes), list)
        self.assertEqual(codes, [0, 0, -600, -600])
        self.assertEqual((self.store.get("a"), self.store.get("b")), (bytes(range(10)), bytes(range(10, 30))))
        self.assertEqual(self.store.batch_put_from([], [], []), [])
        self.assertEqual(self.store.batch_put_from(["a", "b"], [memory.at], [1, 1]), [-600, -600])
        self.assertEqual(self.store.batch_put_from(("a",), (memory.at,), (1,)), [0])
        self.assertEqual(self.store.get("a"), bytes(range(10)))

    def test_the_last_of_a_key_in_a_batch_counts(self):
        memory = Memory(b"abcdefgh")
        self.assertEqual(self.store.batch_put_from(["k", "l", "k"], [memory.at, memory.at + 1, memory.at + 2], [1, 1, 1]),
                         [0, 0, 0])
        self.assertEqual((self.store.get("k"), self.store.get("l")), (b"c", b"b"))
        self.assertEqual(self.store.put_batch([f"m{i % 50}" for i in range(500)], [b"%d" % i for i in range(500)]), 0)
        self.assertEqual([int(v) for v in self.store.get_batch([f"m{i}" for i in range(50)])], list(range(450, 500)))
        self.assertEqual(self.store.put_batch(["a"], []), -600)
        self.assertEqual(self.store.put_batch([], []), 0)

    def test_values_of_many_buffers(self):
        memory = Memory(os.urandom(64 * KIB))
        keys = [f"k{i}" for i in range(300)]
        addresses = [[memory.at + 8 * ((i * 7 + j) % 1000) for j in range(5)] for i in range(300)]
        sizes = [[1 + (i + j) % 9 for j in range(5)] for i in range(300)]
        self.assertEqual(self.store.batch_put_from_multi_buffers(keys, addresses, sizes), [0] * 300)
        wanted = [b"".join(bytes(memory.bytes[a - memory.at:a - memory.at + s]) for a, s in zip(*both))
                  for both in zip(addresses, sizes)]
        self.assertEqual(self.store.get_batch(keys), wanted)
        into = Memory(300 * 64)
        places = [[into.at + 64 * i, into.at + 64 * i + 3, into.at + 64 * i + 20] for i in range(300)]
        room = [[3, 17, 44]] * 300
        self.assertEqual(self.store.batch_get_into_multi_buffers(keys, places, room), [len(v) for v in wanted])
        for i, value in enumerate(wanted):
            self.assertEqual(bytes(into.bytes[64 * i:64 * i + len(value)]), value)

    def test_odd_lists_of_many_buffers(self):
        memory = Memory(b"0123456789")
        put = self.store.batch_put_from_multi_buffers
        self.assertEqual(put([], [], []), [])
        self.assertEqual(put(["a", "b"], [[memory.at]], [[1], [1]]), [-600, -600])
        self.assertEqual(put(["a", "b"], [[memory.at], [memory.at]], [[1, 1], [2]]), [-600, 0])
        self.assertEqual(put(["c"], [[]], [[]]), [-600])
        self.assertEqual(put(["d"], [[memory.at, memory.at + 5, memory.at]], [[2, 0, 1]]), [0])
        self.assertEqual(self.store.get("d"), b"010")
        self.assertEqual(put(("e",), ((memory.at,),), ((3,),)), [0])
        self.assertEqual(put(["f"], [[0]], [[3]]), [-600])
        get = self.store.batch_get_into_multi_buffers
        self.assertEqual(get(["d", "d", "none", "d"], [[memory.at], [memory.at, memory.at + 5], [memory.at], [0]],
                             [[2], [2, 2], [8], [8]]), [-600, 3, -704, -600])
        self.assertEqual(get(["d"], [[memory.at]], [[8]], prefer_alloc_in_same_node=True), [3])
        self.assertEqual(get(["d", "d"], [[memory.at]], [[8]]), [-600, -600])
        for bad in ((["a"], [memory.at], [[1]]), (["a"], [[memory.at]], [[-1]]), (["a"], [["x"]], [[1]]),
                    ([1], [[memory.at]], [[1]]), ("a", [[memory.at]], [[1]]), (None, [[1]], [[1]])):
            self.assertRaises(TypeError, put, *bad)

    def test_without_a_local_buffer_only_zero_copy_works(self):
        store, memory = self.open(buffer=0), Memory(b"value")
        self.assertNotEqual(store.put("k", b"v"), 0)
        self.assertNotEqual(store.put_parts("k", b"v"), 0)
        self.assertNotEqual(store.put_batch(["k"], [b"v"]), 0)
        self.assertEqual(store.is_exist("k"), 0)
        self.assertEqual(store.put_from("k", memory.at, 5), 0)
        self.assertEqual(store.get("k"), b"value")
        small = self.open(buffer=4 * KIB)
        self.assertEqual(small.put("large", bytes(4 * KIB + 1)), -600)
        self.assertEqual(small.put("fits", bytes(4 * KIB)), 0)
        self.assertEqual(small.put("fits too", bytes(4 * KIB)), 0)

    def test_what_config_asks_for_is_checked(self):
        config, memory = ReplicateConfig(), Memory(b"value")
        config.prefer_alloc_in_same_node = True
        self.assertEqual(self.store.put("k", b"v", config), -600)
        self.assertEqual(self.store.put_from("k", memory.at, 5, config=config), -600)
        self.assertEqual(self.store.batch_put_from(["k"], [memory.at], [5], config), [-600])
        self.assertEqual(self.store.upsert("k", b"v", config), -600)
        self.assertEqual(self.store.batch_put_from_multi_buffers(["same"], [[memory.at]], [[5]], config), [0])
        config.replica_num = 2
        self.assertEqual(self.store.batch_put_from_multi_buffers(["k"], [[memory.at]], [[5]], config), [-600])
        for action, ttl, code in ((SoftPinAction.PRESERVE, 1000, -600), (SoftPinAction.DISABLE, 1000, -600),
                                  (SoftPinAction.ENABLE, 1 << 63, -600), (SoftPinAction.ENABLE, 1000, 0),
                                  (SoftPinAction.ENABLE, None, 0), (SoftPinAction.DISABLE, None, 0)):
            config = ReplicateConfig()
            config.soft_pin_action, config.soft_pin_ttl_ms = action, ttl
            self.assertEqual(self.store.put(f"pin {action} {ttl}", b"v", config), code)
        config = ReplicateConfig()
        config.group_ids = ["g"]
        self.assertEqual(self.store.put("grouped", b"v", config), 0)
        self.assertEqual(self.store.put_batch(["a", "b"], [b"v", b"w"], config), -600)
        config.group_ids = ["g", ""]
        self.assertEqual(self.store.put_batch(["a", "b"], [b"v", b"w"], config), 0)
        config = ReplicateConfig()
        config.preferred_segment = "nobody:1"
        self.assertEqual(self.store.put("preferred", b"v", config), 0)
        config.replica_num = 0
        self.assertEqual(self.store.put("zero", b"v", config), -600)
        config.replica_num = 1 << 40  # as many as possible
        self.assertEqual(self.store.put("many", b"v", config), 0)
        self.assertEqual(self.store.batch_put_session_start(["many in parts"], [1], config), [0])
        self.assertRaises(TypeError, self.store.put, "k", b"v", "config")
        self.assertRaises(TypeError, self.store.put, "k", b"v", None)


class Config(unittest.TestCase):
    def test_defaults_and_both_generations(self):
        config = ReplicateConfig()
        self.assertEqual((config.replica_num, config.nof_replica_num, config.dfs_replica_num), (1, 0, 0))
        self.assertEqual((config.soft_pin_action, config.soft_pin_ttl_ms), (SoftPinAction.PRESERVE, None))
        self.assertEqual((config.with_hard_pin, config.with_soft_pin, config.prefer_alloc_in_same_node), (False,) * 3)
        self.assertEqual((config.preferred_segments, config.preferred_nof_segments, config.preferred_segment), ([], [], ""))
        self.assertEqual((config.data_type, config.group_ids), (mooncake.UNKNOWN, None))
        config.with_soft_pin = True
        self.assertIs(config.soft_pin_action, SoftPinAction.ENABLE)
        config.with_soft_pin = False
        self.assertIs(config.soft_pin_action, SoftPinAction.PRESERVE)
        config.group_ids = ["group-a", ""]
        self.assertEqual(config.group_ids, ["group-a", ""])
        config.group_ids = None
        self.assertIsNone(config.group_ids)
        config.replica_num, config.data_type = 3, mooncake.KVCACHE
        self.assertIn("3", str(config))

    def test_what_does_not_fit_is_a_type_error(self):
        config = ReplicateConfig()
        for name, values in (("replica_num", (-1, 1.5, "1", None, 1 << 64)), ("soft_pin_ttl_ms", (-1, 1 << 64, "1")),
                             ("with_hard_pin", (1, None, "yes")), ("preferred_segments", ("a", [1], None)),
                             ("preferred_segment", (None, 1)), ("group_ids", ("g", [1], 3)),
                             ("soft_pin_action", (1, "ENABLE", None)), ("data_type", (1, None))):
            for value in values:
                with self.assertRaises(TypeError, msg=f"{name} = {value!r}"):
                    setattr(config, name, value)
        self.assertRaises(TypeError, ReplicateConfig, 1)
        self.assertRaises(TypeError, MooncakeDistributedStore, "x")

    def test_classes_are_closed(self):
        for thing in (ReplicateConfig(), MooncakeDistributedStore(), mooncake.Descriptor()):
            with self.assertRaises(AttributeError):
                thing.brand_new = 1
        with self.assertRaises(TypeError):
            mooncake.BufferHandle()

    def test_enums(self):
        self.assertEqual([(m.name, int(m), m.value) for m in SoftPinAction],
                         [("PRESERVE", 0, 0), ("ENABLE", 1, 1), ("DISABLE", 2, 2)])
        self.assertIs(mooncake.GENERAL, mooncake.ObjectDataType.GENERAL)
        self.assertIs(mooncake.COMPLETE, mooncake.ReplicaStatus.COMPLETE)
        self.assertFalse(hasattr(mooncake, "ENABLE"))
        self.assertEqual(str(SoftPinAction.ENABLE), "SoftPinAction.ENABLE")
        self.assertNotEqual(SoftPinAction.ENABLE, SoftPinAction.DISABLE)


class Reading(OnNode):
    def test_into_addresses(self):
        self.store.put("k", b"0123456789")
        memory = Memory(20)
        self.assertEqual(self.store.get_into("k", memory.at, 20), 10)
        self.assertEqual(bytes(memory.bytes), b"0123456789" + bytes(10))
        self.assertEqual(self.store.get_into("k", memory.at, 10), 10)
        self.assertEqual(self.store.get_into("k", memory.at, 9), -600)
        self.assertEqual(self.store.get_into("none", memory.at, 9), -704)
        self.assertEqual(self.store.get_into("k", 0, 20), -600)
        self.assertEqual(self.store.batch_get_into(["k", "none", "k"], [memory.at] * 3, [20, 20, 3]), [10, -704, -600])
        self.assertEqual(self.store.batch_get_into(["k"], [memory.at, 1], [20]), [-600])
        self.assertEqual(self.store.batch_get_into([], [], []), [])
        self.assertEqual(self.store.get_batch([]), [b""])

    def test_buffers_stay_as_long_as_anybody_looks(self):
        value = os.urandom(100 * KIB)
        self.store.put("k", value)
        handle = self.store.get_buffer("k")
        self.assertEqual((handle.size(), len(handle), bytes(handle)), (len(value), len(value), value))
        self.assertEqual(ctypes.string_at(handle.ptr(), handle.size()), value)
        view = memoryview(handle)
        self.assertEqual((view.ndim, view.itemsize, view.format, view.readonly), (1, 1, "b", True))
        del handle
        self.store.remove("k", force=True)
        for i in range(100):
            self.store.put(f"other{i}", os.urandom(100 * KIB))
        self.assertEqual(bytes(view), value)
        self.store.close()
        self.assertEqual(bytes(view), value)
        self.assertIsNone(self.open().get_buffer("k"))
        self.assertEqual(self.store.batch_get_buffer([]), [])

    def test_buffers_beyond_the_pins_are_copies(self):
        keys = [f"k{i}" for i in range(3000)]
        self.assertEqual(self.store.put_batch(keys, [b"%d" % i for i in range(3000)]), 0)
        with Environment(SLUICE_CLIENT_PINS_MAX="64"):
            reader = self.open()
        handles = reader.batch_get_buffer(keys + ["none"])
        self.assertIsNone(handles.pop())
        self.assertEqual(sum(memoryview(handle).readonly for handle in handles), 64)
        self.assertEqual([int(bytes(handle)) for handle in handles], list(range(3000)))

    def test_ranges(self):
        self.store.put("a", bytes(range(100)))
        self.store.put("b", bytes(range(100, 150)))
        first, second = Memory(64), Memory(32)
        for memory in (first, second):
            self.assertEqual(self.store.register_buffer(memory.at, len(memory)), 0)
        got = self.store.get_into_ranges([first.at, second.at], [["a", "b", "none"], ["a"]],
                                         [[[0, 10, 60], [20], [0, 1]], [[0, 0]]],
                                         [[[5, 90, 0], [40], [0, 0]], [[99, 100]]],
                                         [[[5, 10, 5], [10], [1, 1]], [[1, 1]]])
        self.assertEqual(got, [[[5, 10, -600], [10], [-704, -704]], [[1, -600]]])
        self.assertEqual(bytes(first.bytes[:5]), bytes(range(5, 10)))
        self.assertEqual(bytes(first.bytes[10:30]), bytes(range(90, 100)) + bytes(range(140, 150)))
        self.assertEqual(second.bytes[0], 99)

    def test_ranges_that_do_not_fit_together(self):
        self.store.put("a", bytes(100))
        memory = Memory(64)
        call = self.store.get_into_ranges
        self.assertEqual(call([memory.at], [["a"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]])  # not registered
        self.store.register_buffer(memory.at, 64)
        for args in (([["a"]], [[[0, 1]]], [[[0]]], [[[1, 1]]]), ([["a"]], [[[0]]], [[[0]]], [[]]),
                     ([[]], [[[0]]], [[[0]]], [[[1]]]), ([], [[[0]]], [[[0]]], [[[1]]])):
            result = call([memory.at], *args)
            self.assertEqual(len(result), 1)
            self.assertTrue(all(code < 0 for code in result[0][0]))
        self.assertEqual(call([memory.at], [["a"]], [[[0, 1 << 63]]], [[[0, 0]]], [[[1, 1 << 63]]]), [[[1, -600]]])
        self.assertEqual(call([], [], [], [], []), [])
        self.assertEqual(call([memory.at], [[]], [[]], [[]], [[]]), [[]])
        for bad in (([["a"]], [[0]], [[[0]]], [[[1]]]), ([["a"]], [[["x"]]], [[[0]]], [[[1]]]),
                    ([[1]], [[[0]]], [[[0]]], [[[1]]]), ("a", [[[0]]], [[[0]]], [[[1]]])):
            self.assertRaises(TypeError, call, [memory.at], *bad)

    def test_ranges_have_the_shape_that_was_asked_for(self):
        class Once:
            def __getitem__(self, index):
                return [[0]][index]

        memory = Memory(64)
        self.store.register_buffer(memory.at, 64)
        self.store.put("a", bytes(100))
        self.assertEqual(self.store.get_into_ranges([memory.at], [["a"]], [Once()], [[[0]]], [[[5]]]), [[[5]]])

    def test_existence_and_size(self):
        self.store.put("k", b"12345")
        self.assertEqual((self.store.is_exist("k"), self.store.is_exist("none")), (1, 0))
        self.assertEqual(self.store.batch_is_exist(["k", "none", "k"]), [1, 0, 1])
        self.assertEqual(self.store.batch_is_exist([]), [])
        self.assertEqual((self.store.get_size("k"), self.store.get_size("none")), (5, -704))
        self.assertEqual(self.store.batch_is_exist(["", "k" * 2_000_000]), [-600, 0])
        self.assertEqual((self.store.get_size("k" * 2_000_000), self.store.remove("k" * 2_000_000)), (-704, -704))
        self.assertTrue(all(type(n) is int for n in self.store.batch_is_exist(["k", "none"])))

    def test_batches_larger_than_one_of_libsluice(self):
        count = 70_000
        keys = [f"k{i}" for i in range(count)]
        self.assertEqual(self.store.batch_is_exist(keys), [0] * count)
        memory = Memory(8)
        self.assertEqual(self.store.batch_get_into(keys, [memory.at] * count, [8] * count), [-704] * count)


class Removing(OnNode):
    def test_by_key_by_pattern_and_all(self):
        for key in ("a1", "a2", "b1", "xa1x", "long" * 100):
            self.store.put(key, b"v")
        self.assertEqual((self.store.remove("b1"), self.store.remove("b1")), (0, -704))
        self.assertEqual(self.store.batch_remove(["xa1x", "none"]), [0, -704])
        self.assertEqual(self.store.remove_by_regex("a[12]"), 2)
        self.assertEqual(self.store.remove_by_regex("a[12]"), 0)
        self.assertEqual(self.store.remove_by_regex("(((", True), -600)
        self.assertEqual(self.store.remove_all(), 1)
        self.assertEqual(self.store.remove_all(force=True), 0)

    def test_what_cannot_be_a_key_leaves_the_others_alone(self):
        odd = ["", b"k" * 1_048_577, "k" * 2_000_000]
        memory = Memory(b"value")
        put = self.store.batch_put_from(odd + ["k"], [memory.at] * 4, [5] * 4)
        self.assertEqual(put, [-600, -400, -400, 0])
        self.assertEqual(self.store.batch_is_exist(odd + ["k"]), [-600, 0, 0, 1])
        self.assertEqual(self.store.batch_get_into(odd + ["k"], [memory.at] * 4, [5] * 4), [-600, -704, -704, 5])
        self.assertEqual(self.store.batch_get_session_start(odd + ["k"]), [-600, -704, -704, 0])
        self.assertEqual(list(self.store.batch_get_replica_desc(odd + ["k"])), ["k"])
        self.assertEqual(self.store.batch_remove(odd + ["k"]), [-600, -704, -704, 0])
        self.assertEqual(self.store.is_exist("k"), 0)
        self.assertEqual(self.store.batch_remove(odd), [-600, -704, -704])

    def test_patterns_as_ecmascript_has_them(self):
        self.store.put("k\n", b"v")
        self.store.put("ключ-7", b"v")
        self.assertEqual(self.store.remove_by_regex("k$"), 0)
        self.assertEqual(self.store.remove_by_regex("^\\u043a.*-\\d$"), 1)
        self.assertEqual(self.store.remove_by_regex("[^]"), 1)

    def test_a_hostile_pattern_ends(self):
        self.store.put("a" * 1000 + "!", b"v")
        self.assertEqual(self.store.remove_by_regex("^(a|aa)+$"), -600)
        self.assertEqual(self.store.remove_by_regex("(" * 300 + ")" * 300), -600)
        self.assertEqual(self.store.is_exist("a" * 1000 + "!"), 1)


class Sessions(OnNode):
    def test_a_value_is_read_in_parts(self):
        value = os.urandom(10_000)
        self.store.put("k", value)
        self.assertEqual(self.store.batch_get_session_start(["k", "none"]), [0, -704])
        memory = Memory(10_000)
        for at in range(0, 10_000, 2500):
            got = self.store.batch_get_into_multi_buffer_ranges(
                ["k"], [[memory.at + at, memory.at + at + 1000]], [[1000, 1500]], [[at, at + 1000]])
            self.assertEqual(got, [2500])
        self.assertEqual(bytes(memory.bytes), value)
        read = self.store.batch_get_into_multi_buffer_ranges
        self.assertEqual(read(["k", "none"], [[memory.at], [memory.at]], [[1], [1]], [[10_000], [0]]), [-600, -600])
        self.assertEqual(read(["k"], [[memory.at]], [[1]], []), [-600])
        self.assertEqual(read(["k"], [[memory.at]], [[1]], [[]]), [-600])
        self.assertEqual(self.store.batch_get_session_end(["k", "none"]), 0)
        self.assertEqual(read(["k"], [[memory.at]], [[1]], [[0]]), [-600])

    def test_a_value_that_was_replaced_is_not_mixed_with_the_new_one(self):
        self.store.put("k", b"old value")
        self.assertEqual(self.store.batch_get_session_start(["k"]), [0])
        self.store.remove("k", force=True)
        self.store.put("k", b"new value")
        memory = Memory(9)
        self.assertEqual(self.store.batch_get_into_multi_buffer_ranges(["k"], [[memory.at]], [[9]], [[0]]), [-704])
        self.assertEqual(self.store.batch_get_into_multi_buffer_ranges(["k"], [[memory.at]], [[9]], [[0]]), [-600])

    def test_a_value_is_written_in_parts(self):
        self.store.put("there", b"v")
        start = self.store.batch_put_session_start(["k", "there", "k", "", "zero"], [10, 10, 10, 10, 0])
        self.assertEqual(sorted(start[:3:2]), [-600, 0])
        self.assertEqual((start[1], start[3], start[4]), (-705, -600, -600))
        self.assertEqual(self.store.batch_put_session_start(["k"], [10]), [-600])
        memory = Memory(b"0123456789")
        write = self.store.batch_put_from_multi_buffer_ranges
        self.assertEqual(write(["k", "none"], [[memory.at + 5], [memory.at]], [[5], [1]], [[5], [0]]), [5, -600])
        self.assertEqual(write(["k"], [[memory.at]], [[6]], [[5]]), [-600])
        self.assertEqual(self.store.is_exist("k"), 0)
        self.assertEqual(write(["k"], [[memory.at, memory.at + 2]], [[2, 3]], [[0, 2]]), [5])
        self.assertEqual(self.store.batch_put_session_end(["k", "none"]), [0, -600])
        self.assertEqual(self.store.get("k"), bytes(memory.bytes))
        self.assertEqual(self.store.batch_put_session_end(["k"]), [-600])

    def test_what_is_revoked_or_left_is_given_back(self):
        self.assertEqual(self.store.batch_put_session_start(["k", "l"], [10, 10]), [0, 0])
        self.assertEqual(self.store.batch_put_session_revoke(["k", "none"]), [0, -600])
        self.assertEqual(self.store.is_exist("k"), 0)
        self.assertEqual(self.store.put("k", b"v"), 0)
        self.store.close()  # with a session open
        other = self.open()
        self.assertEqual((other.is_exist("l"), other.put("l", b"v"), other.get("l")), (0, 0, b"v"))

    def test_sessions_of_many_keys(self):
        keys = [f"k{i}" for i in range(2000)]
        memory = Memory(os.urandom(2000 * 8))
        places = [[memory.at + 8 * i] for i in range(2000)]
        self.assertEqual(self.store.batch_put_session_start(keys, [8] * 2000), [0] * 2000)
        self.assertEqual(self.store.batch_put_from_multi_buffer_ranges(keys, places, [[8]] * 2000, [[0]] * 2000), [8] * 2000)
        self.assertEqual(self.store.batch_put_session_end(keys), [0] * 2000)
        self.assertEqual(self.store.batch_get_session_start(keys), [0] * 2000)
        into = Memory(2000 * 8)
        self.assertEqual(self.store.batch_get_into_multi_buffer_ranges(
            keys, [[into.at + 8 * i] for i in range(2000)], [[8]] * 2000, [[0]] * 2000), [8] * 2000)
        self.assertEqual(into.bytes, memory.bytes)
        self.assertEqual(self.store.batch_get_session_end(keys), 0)


def segments(descriptors):
    return sorted(d.get_memory_descriptor().buffer_descriptor.transport_endpoint for d in descriptors)


def hard_pinned():
    config = ReplicateConfig()
    config.with_hard_pin = True
    return config


class Segments(OnNode):
    """A node as mooncake_master runs it, without leases."""

    settings = {"ranks": 1, "memory": "64MiB", "settings": ["--contributions", "true"]}

    def test_values_are_in_the_segments_that_were_asked_for(self):
        other = self.open()
        config = ReplicateConfig()
        config.replica_num = 2
        self.store.put("two", b"value", config)
        descriptors = self.store.get_replica_desc("two")
        self.assertIn(segments(descriptors), ([self.store.get_hostname()], [other.get_hostname()]))
        self.assertEqual([d.get_memory_descriptor().buffer_descriptor.size for d in descriptors], [5])
        self.assertTrue(all(d.status == mooncake.COMPLETE and d.is_memory_replica() for d in descriptors))
        self.assertFalse(any(d.is_disk_replica() or d.is_local_disk_replica() for d in descriptors))
        self.assertRaises(RuntimeError, descriptors[0].get_disk_descriptor)
        for name in (self.store.get_hostname(), other.get_hostname()):
            config = ReplicateConfig()
            config.preferred_segment = name
            self.store.put("at " + name, b"v", config)
            self.assertEqual(segments(self.store.get_replica_desc("at " + name)), [name])
        config = ReplicateConfig()
        config.preferred_segments = ["nobody:1", other.get_hostname()]
        self.store.put("listed", b"v", config)
        found = self.store.batch_get_replica_desc(["listed", "none", "two"])
        self.assertEqual(sorted(found), ["listed", "two"])
        self.assertEqual(segments(found["listed"]), [other.get_hostname()])

    def test_values_go_with_their_segment(self):
        other = self.open()
        for name in (self.store.get_hostname(), other.get_hostname()):
            config = ReplicateConfig()
            config.preferred_segment = name
            self.store.put("at " + name, b"v", config)
        left = ["at " + other.get_hostname(), "at " + self.store.get_hostname()]
        other.close()
        self.assertEqual(self.store.batch_is_exist(left), [0, 1])
        self.assertEqual(self.store.close(), 0)
        again = self.open()
        self.assertEqual(again.batch_is_exist(left), [0, 0])

    def test_values_of_a_process_that_was_killed_go(self):
        reads, writes = os.pipe()
        child = fork()
        if child == 0:
            store = MooncakeDistributedStore()
            fine = store.setup("localhost", "P2PHANDSHAKE", MIB, MIB, "tcp", "", MASTER) == 0
            config = ReplicateConfig()
            config.preferred_segment = store.get_hostname()
            fine = fine and store.put("of the dead", b"v", config) == 0
            os.write(writes, b"1" if fine else b"0")
            while True:
                time.sleep(60)
        self.assertEqual(os.read(reads, 1), b"1")
        self.assertEqual(self.store.get("of the dead"), b"v")
        os.kill(child, 9)
        os.waitpid(child, 0)
        wait_until(lambda: self.store.is_exist("of the dead") == 0, 10, "a dead process's segment is gone")

    def test_a_pure_client_uses_what_others_give(self):
        client = self.open(segment=0)
        self.assertEqual(client.put("k", b"v"), 0)
        self.assertEqual(segments(client.get_replica_desc("k")), [self.store.get_hostname()])
        client.close()
        self.assertEqual(self.store.get("k"), b"v")

    def test_what_is_full_says_so_and_holds_what_it_has(self):
        memory = Memory(bytes(MIB))
        codes = [self.store.put_from(f"k{i}", memory.at, MIB, hard_pinned()) for i in range(20)]
        self.assertIn(-200, codes)
        held = codes.index(-200)
        self.assertTrue(8 <= held <= 16)
        self.assertEqual(self.store.batch_is_exist([f"k{i}" for i in range(held)]), [1] * held)
        self.assertEqual(self.store.batch_put_from(["k0", "new"], [memory.at] * 2, [MIB] * 2), [0, -200])

    def test_a_batch_is_stored_as_far_as_there_is_room(self):
        memory = Memory(bytes(MIB))
        keys, codes = [f"k{i}" for i in range(24)], []

        def put():  # while memory is being populated a batch larger than all of it is refused as a whole
            codes[:] = self.store.batch_put_from(keys, [memory.at] * 24, [MIB] * 24, hard_pinned())
            return 0 in codes

        wait_until(put, 5, "memory is populated")
        self.assertEqual(set(codes), {0, -200})
        self.assertTrue(8 <= codes.count(0) <= 16)
        self.assertEqual([0 if there else -200 for there in self.store.batch_is_exist([f"k{i}" for i in range(24)])], codes)

    def test_who_meets_another_writer_does_not_wait(self):
        other, memory = self.open(), Memory(b"value")
        self.assertEqual(other.batch_put_session_start(["k"], [5]), [0])
        self.assertEqual(self.store.put("k", b"mine"), 0)
        self.assertEqual(self.store.is_exist("k"), 0)
        codes = []
        wait_until(lambda: codes.append(self.store.get_into("k", memory.at, 5)) or codes[-1] == -703, 10, "the registrar says who writes")
        self.assertLessEqual(set(codes), {-703, -704})
        self.assertEqual(self.store.batch_put_session_start(["k"], [5]), [-705])
        self.assertEqual(other.batch_put_from_multi_buffer_ranges(["k"], [[memory.at]], [[5]], [[0]]), [5])
        self.assertEqual(other.batch_put_session_end(["k"]), [0])
        self.assertEqual(self.store.get("k"), b"value")

    def test_an_upsert_leaves_pins_as_they_are(self):
        config = ReplicateConfig()
        config.soft_pin_action = SoftPinAction.ENABLE
        for key in ("kept", "dropped"):
            self.assertEqual(self.store.put(key, bytes(MIB), config), 0)
        self.assertEqual(self.store.put("hard", bytes(MIB), hard_pinned()), 0)
        self.assertEqual(self.store.upsert("hard", bytes(MIB)), 0)
        self.assertEqual(self.store.upsert("kept", bytes(MIB)), 0)
        config.soft_pin_action = SoftPinAction.DISABLE
        self.assertEqual(self.store.upsert("dropped", bytes(MIB), config), 0)
        for i in range(40):
            self.assertEqual(self.store.put(f"other{i}", bytes(MIB)), 0)
        self.assertEqual(self.store.batch_is_exist(["hard", "kept", "dropped"]), [1, 1, 0])

    def test_segments_come_and_go_while_it_runs(self):
        mounted = self.store.allocate_and_mount_segment(5 * MIB)
        self.assertEqual((mounted["ret"], mounted["allocated_size"], len(mounted["segment_ids"])), (0, 8 * MIB, 1))
        memory = Memory(bytes(MIB))
        codes = [self.store.put_from(f"k{i}", memory.at, MIB, hard_pinned()) for i in range(24)]
        self.assertGreater(codes.count(0), 16)
        self.assertEqual(self.store.unmount_and_free_segment(mounted["segment_ids"]), 0)
        self.assertLessEqual(sum(self.store.batch_is_exist([f"k{i}" for i in range(24)])), 16)
        self.assertEqual(self.store.unmount_segment(mounted["segment_ids"]), -101)
        self.assertEqual(self.store.unmount_segment(["x"]), -600)
        path = self.node.directory + "/segment"
        with open(path, "wb") as file:
            file.truncate(MIB)
        mounted = self.store.mount_segment(path, MIB)
        self.assertEqual(mounted["ret"], 0)
        self.assertEqual(self.store.unmount_segment(mounted["segment_ids"], 1), 0)
        self.assertEqual(self.store.mount_segment(path, MIB, 1)["ret"], -600)
        self.assertEqual(self.store.mount_segment(path + ".none", MIB), {"ret": -1100, "segment_ids": []})
        self.assertEqual(self.store.mount_segment(path, 1 << 62)["ret"], -600)
        self.assertEqual(self.store.unmount_local_disk_segment(), -1010)

    def test_more_than_the_node_has_is_refused(self):
        store = MooncakeDistributedStore()
        self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 1 << 40, MIB, "tcp", "", MASTER), -600)
        self.assertEqual(store.health_check(), 1)

    def test_what_is_upserted_is_replaced(self):
        memory = Memory(b"0123456789")
        self.assertEqual(self.store.upsert("k", b"first"), 0)
        self.assertEqual(self.store.get("k"), b"first")
        handle = self.store.get_buffer("k")
        self.assertEqual(self.store.upsert("k", b"other"), 0)
        self.assertEqual(self.store.get("k"), b"other")
        self.assertEqual(self.store.upsert_from("k", memory.at, 10), 0)
        self.assertEqual(self.store.get("k"), b"0123456789")
        self.assertEqual(self.store.upsert_parts("k", b"a", b"b"), 0)
        self.assertEqual(self.store.get("k"), b"ab")
        self.assertEqual(self.store.upsert_batch(["k", "l"], [b"c", b"d"]), 0)
        self.assertEqual(self.store.batch_upsert_from(["k", "m"], [memory.at, memory.at + 1], [1, 1]), [0, 0])
        self.assertEqual(self.store.get_batch(["k", "l", "m"]), [b"0", b"d", b"1"])
        self.assertEqual(bytes(handle), b"first")
        config = ReplicateConfig()
        config.soft_pin_ttl_ms = 1000
        self.assertEqual(self.store.upsert("k", b"v", config), -600)

    def test_replicas_that_this_process_put_are_cleared(self):
        other = self.open()
        config = ReplicateConfig()
        config.preferred_segment = other.get_hostname()
        self.store.put("a", b"v")
        self.store.put("b", b"v", config)
        self.assertEqual(self.store.batch_replica_clear(["a", "none"]), ["a"])
        self.assertEqual(self.store.is_exist("a"), 0)
        self.assertEqual(self.store.batch_replica_clear(["b"], self.store.get_hostname()), [])
        self.assertEqual(self.store.batch_replica_clear(["b"], "nobody:1"), [])
        self.assertEqual(self.store.batch_replica_clear(["b"], other.get_hostname()), ["b"])
        child = fork()
        if child == 0:
            store = MooncakeDistributedStore()
            store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER)
            os._exit(store.put("of another", b"v"))
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(self.store.batch_replica_clear(["of another"]), [])


class Leases(OnNode):
    settings = {"ranks": 1, "memory": "64MiB", "settings": ["--contributions", "true", "--lease-ttl", "1h"]}

    def test_look_ups_lease_and_puts_do_not(self):
        for key, look in (("exist", lambda k: self.store.is_exist(k)), ("size", lambda k: self.store.get_size(k)),
                          ("get", lambda k: self.store.get(k)), ("describe", lambda k: self.store.get_replica_desc(k)),
                          ("session", lambda k: self.store.batch_get_session_start([k]))):
            self.store.put(key, b"v")
            look(key)
            self.assertEqual((key, self.store.remove(key)), (key, -706))
            self.assertEqual(self.store.batch_remove([key, "none"]), [-706, -704])
            self.assertEqual(self.store.remove_all(), 0)
            self.assertEqual(self.store.remove_by_regex("."), 0)
            self.assertEqual(self.store.batch_replica_clear([key]), [])
            self.assertEqual(self.store.remove(key, force=True), 0)
        self.store.put("k", b"v")
        self.assertEqual(self.store.remove("k"), 0)
        self.store.put("k", b"v")
        self.assertEqual(self.store.batch_replica_clear(["k"]), ["k"])


class ShortLeases(OnNode):
    settings = {"ranks": 1, "memory": "64MiB", "settings": ["--contributions", "true", "--lease-ttl", "200ms"]}

    def test_a_lease_ends(self):
        self.store.put("k", b"v")
        self.store.is_exist("k")
        wait_until(lambda: self.store.remove("k") == 0, 5, "the lease ended")

    def test_a_session_ends_with_its_lease(self):
        self.store.put("k", b"v")
        memory = Memory(1)
        read = self.store.batch_get_into_multi_buffer_ranges

        def over():
            self.assertEqual(self.store.batch_get_session_start(["k"]), [0])
            time.sleep(0.3)
            return read(["k"], [[memory.at]], [[1]], [[0]]) == [-707]

        self.assertTrue(over())
        self.assertEqual(read(["k"], [[memory.at]], [[1]], [[0]]), [-600])
        self.assertEqual(self.store.get("k"), b"v")


class Dummy(OnNode):
    """A dummy for a mooncake_client, of which only the file that it writes is needed."""

    def setUp(self):
        super().setUp()
        self.base = self.node.directory + "/base"
        self.port = str(free_port())
        place = f"{self.base}/sluice-{os.getuid()}"
        os.makedirs(place, exist_ok=True)
        with open(f"{place}/mooncake-client-{self.port}", "w", encoding="ascii") as file:
            file.write(self.node.instance + "\n")
        self.dummy = MooncakeDistributedStore()
        with Environment(XDG_RUNTIME_DIR=self.base, SLUICE_INSTANCE=None):
            self.assertEqual(self.dummy.setup_dummy(64 * MIB, MIB, "127.0.0.1:" + self.port), 0)
        self.addCleanup(self.dummy.close)

    def test_it_reads_and_writes_and_registers_only_shared_memory(self):
        allocator = mooncake.MooncakeHostMemAllocator()
        at = allocator.alloc(MIB)
        memory = Memory(10)
        self.assertEqual(self.dummy.register_buffer(memory.at, 10), -1)
        self.assertEqual(self.dummy.register_buffer(at, MIB + 1), -1)
        self.assertEqual(self.dummy.register_buffer(at + 4096, MIB - 4096), 0)  # a part
        self.assertEqual(self.dummy.register_buffer(at, MIB), 0)
        pool = self.dummy.alloc_from_mem_pool(4096)
        self.assertEqual(self.dummy.register_buffer(pool, 4096), 0)
        ctypes.memset(at, 65, 5)
        self.assertEqual(self.dummy.batch_put_from(["k"], [at], [5]), [0])
        self.assertEqual(self.store.get("k"), b"AAAAA")
        self.assertEqual(self.dummy.batch_get_into(["k"], [pool], [4096]), [5])
        self.assertEqual(self.dummy.unregister_buffer(at), 0)
        self.assertEqual(self.dummy.unregister_buffer(at), -1)
        self.assertEqual(self.dummy.unregister_buffer(at + 4096), 0)
        self.assertEqual(allocator.free(at), 0)
        self.assertEqual(self.dummy.batch_is_exist(["k", "none", ""]), [1, 0, -1])
        self.assertEqual(self.dummy.batch_get_session_start(["k"]), [-600])
        self.assertEqual(self.dummy.batch_put_session_start(["l"], [5]), [-600])
        self.assertEqual(self.dummy.get_offload_rpc_read_count(), 0)
        self.assertEqual(self.dummy.health_check(), 0)
        self.assertEqual(self.store.alloc_from_mem_pool(4096), 0)

    def test_pool_memory_stays_while_a_call_or_a_buffer_uses_its_setup(self):
        pool = self.dummy.alloc_from_mem_pool(4096)
        self.assertEqual(self.store.put("k", b"v"), 0)
        handle = self.dummy.get_buffer("k")  # keeps the setup, as a running call does
        self.dummy.close()
        self.assertTrue(is_shared_memory(pool))
        del handle
        self.assertFalse(is_shared_memory(pool))

    def hybrid_pools(self):
        """The host pools of a model with attention, states and an indexer that it lacks, as an engine makes them: {name: (where, bytes)}.
        K and V are halves of one allocation, the two tensors of a convolution parts of another."""
        allocator = mooncake.MooncakeHostMemAllocator()
        kv, states, conv = (allocator.alloc(size) for size in (4 * MIB, 3 * MIB, 2 * MIB))
        for at in (kv, states, conv):
            self.addCleanup(allocator.free, at)
        return {"k": (kv, 2 * MIB), "v": (kv + 2 * MIB, 2 * MIB), "temporal": (states, 3 * MIB), "conv_0": (conv, MIB // 2),
                "conv_1": (conv + MIB // 2, MIB), "indexer": (0, 0)}

    def front(self, pool_bytes):
        dummy = MooncakeDistributedStore()
        with Environment(XDG_RUNTIME_DIR=self.base, SLUICE_INSTANCE=None):
            self.assertEqual(dummy.setup_dummy(pool_bytes, MIB, "127.0.0.1:" + self.port), 0)
        self.addCleanup(dummy.close)
        return dummy

    def test_pools_of_a_hybrid_model(self):
        """Pages of all pools of a model whose memory is that of the engine, the sum of its buffers announced."""
        pools = self.hybrid_pools()
        dummy = self.front(sum(size for _, size in pools.values()))
        for at, size in pools.values():
            if size > 0:
                self.assertEqual(dummy.register_buffer(at, size), 0)
        page, keys, places, sizes = 4096, [], [], []
        for number, (name, (at, size)) in enumerate(pools.items()):
            for index in range(3 if size else 0):
                ctypes.memset(at + index * page, 16 * number + index + 1, page)
                keys.append(f"page {index}_{name}")
                places.append(at + index * page)
                sizes.append(page)
        self.assertEqual(dummy.batch_put_from(keys, places, sizes), [0] * len(keys))
        # A state is one value of several tensors.
        state = [pools[name][0] for name in ("temporal", "conv_0", "conv_1")]
        self.assertEqual(dummy.batch_put_from_multi_buffers(["state"], [state], [[page, 64, 100]]), [0])
        want = [ctypes.string_at(at, page) for at in places]
        want_state = b"".join(ctypes.string_at(at, size) for at, size in zip(state, (page, 64, 100)))
        for at, size in pools.values():
            if size > 0:
                ctypes.memset(at, 0, size)
        self.assertEqual(dummy.batch_get_into(keys, places, sizes), sizes)
        self.assertEqual([ctypes.string_at(at, page) for at in places], want)
        later = [at + 64 * 1024 for at in state]
        self.assertEqual(dummy.batch_get_into_multi_buffers(["state"], [later], [[page, 64, 100]]), [page + 164])
        self.assertEqual(b"".join(ctypes.string_at(at, size) for at, size in zip(later, (page, 64, 100))), want_state)
        self.assertEqual(dummy.batch_is_exist(["page 0_temporal", "page 0_indexer"]), [1, 0])
        for at, size in pools.values():
            if size > 0:
                self.assertEqual(dummy.unregister_buffer(at), 0)

    def test_what_pools_may_share(self):
        """The same start with other lengths is one buffer, of which the longest counts; a missing one is ignored; two that share some of
        their bytes are an error, and so is a buffer past the end of the memory."""
        pools = self.hybrid_pools()
        dummy = self.front(9 * MIB)
        at, _ = pools["temporal"]
        for size in (MIB, 3 * MIB, 2 * MIB):
            self.assertEqual(dummy.register_buffer(at, size), 0, size)
        self.assertEqual(dummy.register_buffer(0, MIB), -600)
        self.assertEqual(dummy.register_buffer(at, 0), -600)
        conv, _ = pools["conv_0"]
        self.assertEqual(dummy.register_buffer(conv, MIB), 0)
        self.assertEqual(dummy.register_buffer(conv + MIB // 2, MIB), -600)
        self.assertEqual(dummy.register_buffer(conv + MIB, MIB), 0)  # adjacent to it
        gone = mooncake.MooncakeHostMemAllocator()
        late_at = gone.alloc(MIB)
        self.assertEqual(dummy.register_buffer(late_at, MIB), 0)  # beyond the announced memory: it is mapped nevertheless
        self.assertEqual(dummy.unregister_buffer(late_at), 0)
        self.assertEqual(gone.free(late_at), 0)
        for late, size in ((conv + MIB, MIB + 1), (at, 3 * MIB + 1), (late_at, MIB)):
            self.assertEqual(dummy.register_buffer(late, size), -1, (late, size))
        ctypes.memset(at, 7, 3 * MIB)
        self.assertEqual(dummy.put_from("whole", at, 3 * MIB), 0)
        self.assertEqual(self.store.get("whole"), b"\7" * (3 * MIB))

    def test_without_a_client_there_is_no_front(self):
        with Environment(XDG_RUNTIME_DIR=self.base, SLUICE_INSTANCE=None):
            for address in ("127.0.0.1:1", "192.0.2.1:" + self.port, "nonsense:x", ""):
                self.assertEqual(MooncakeDistributedStore().setup_dummy(MIB, MIB, address), -1)


class OnDisk(OnNode):
    settings = {"ranks": 1, "memory": "64MiB", "disk": "256MiB", "settings": ["--contributions", "true"]}

    def test_what_is_on_disk_says_so_and_comes_back(self):
        memory = Memory(os.urandom(MIB))
        keys = [f"k{i}" for i in range(40)]
        for key in keys:
            wait_until(lambda key=key: self.store.put_from(key, memory.at, MIB) == 0, 10, f"{key} is stored")
        wait_until(lambda: all(any(d.is_local_disk_replica() for d in found)
                               for found in self.store.batch_get_replica_desc(keys).values()), 10, "all are on disk")
        found = self.store.batch_get_replica_desc(keys)
        self.assertEqual(sorted(found), sorted(keys))
        gone = [key for key in keys if not any(d.is_memory_replica() for d in found[key])]
        self.assertTrue(gone)
        self.assertRaises(RuntimeError, found[gone[0]][0].get_memory_descriptor)
        into = Memory(MIB)
        self.assertEqual(self.store.get_into(gone[0], into.at, MIB), MIB)
        self.assertEqual(into.bytes, memory.bytes)
        self.assertEqual(self.store.get(gone[1]), bytes(memory.bytes))

    def stop_for(self, seconds):
        """Stops the registrar for this time."""
        pids = self.node.pids_to_stop("registrar")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        alive_again = threading.Timer(seconds, lambda: [os.kill(pid, signal.SIGCONT) for pid in reversed(pids)])
        alive_again.start()
        self.addCleanup(alive_again.join)

    def impatient_reader(self, name):
        """A store whose calls wait 2 s a PACE, and keys whose values, 150,000 times the key, are only on disk; "here" is in memory."""
        keys = [f"{name}{i}" for i in range(40)]
        for key in keys:
            wait_until(lambda key=key: self.store.put(key, key.encode() * 150_000) == 0, 10, f"{key} is stored")
        with Environment(MC_RPC_TIMEOUT_MS=str(2000 * PACE)):
            reader = self.open(segment=0)
        gone = wait_until(lambda: [key for key, found in self.store.batch_get_replica_desc(keys).items()
                                   if not any(d.is_memory_replica() for d in found)], 10, "values only on disk")
        self.assertEqual(self.store.put("here", b"value", hard_pinned()), 0)
        return reader, gone

    def test_a_batch_may_take_longer_than_a_call_waits(self):
        """When a call's time is over, missing values are waited for one by one, as long as answers arrive."""
        reader, gone = self.impatient_reader("slow")
        self.stop_for(2 * PACE + 0.7)
        handles = reader.batch_get_buffer(["here", gone[0], gone[1]])
        self.assertEqual([handle and bytes(handle) for handle in handles],
                         [b"value", gone[0].encode() * 150_000, gone[1].encode() * 150_000])

    def test_a_batch_of_copies_may_as_well(self):
        reader, gone = self.impatient_reader("busy")
        into = Memory(2 * MIB)
        self.stop_for(2 * PACE + 0.7)
        size = len(gone[0]) * 150_000
        self.assertEqual(reader.batch_get_into([gone[0], "here"], [into.at, into.at + MIB], [MIB, 5]), [size, 5])
        self.assertEqual((bytes(into.bytes[:size]), bytes(into.bytes[MIB:MIB + 5])), (gone[0].encode() * 150_000, b"value"))

    def on_disk_only(self, keys):
        """A reader without memory of its own; no other process contributes any, so that nothing can be read from disk."""
        for key in keys:
            wait_until(lambda key=key: self.store.put(key, b"value") == 0, 10, "it is stored")
        wait_until(lambda: all(any(d.is_local_disk_replica() for d in found)
                               for found in self.store.batch_get_replica_desc(keys).values()), 10, "all are on disk")
        reader = self.open(segment=0)
        self.assertEqual(self.store.close(), 0)
        return reader

    def test_long_keys_are_removed_with_all_though_nobody_can_read_them(self):
        reader = self.on_disk_only(["short", *(f"{i}long" * 500 for i in range(4))])
        self.assertEqual(reader.remove_by_regex("long|short", True), 1)  # a pattern does not match a key that is replaced by its digest
        self.assertEqual(reader.remove_all(True), 4)

    def test_a_load_by_handle_or_session_that_failed_is_a_miss_to_look_ups_as_well(self):
        keys = ["handle", "handles", "session"]
        for key in keys:
            self.assertEqual(self.store.put(key, b"value"), 0)
        with Environment(SLUICE_CLIENT_PINS_MAX="16"):
            unpinned = self.open(segment=0)
        pins = [unpinned.get_buffer("handle") for _ in range(16)]
        self.assertEqual(unpinned.batch_get_session_start(["session"]), [0])
        del pins
        reader, into = self.on_disk_only(keys), Memory(5)
        self.assertEqual(reader.batch_is_exist(keys), [1, 1, 1])
        self.assertIsNone(reader.get_buffer("handle"))
        self.assertEqual(reader.batch_get_buffer(["handles"]), [None])
        self.assertEqual(reader.batch_is_exist(keys), [0, 0, 1])
        self.assertEqual(unpinned.batch_get_into_multi_buffer_ranges(["session"], [[into.at]], [[5]], [[0]]), [-200])
        self.assertEqual(unpinned.batch_is_exist(keys), [1, 1, 0])

    def test_what_could_not_be_read_is_a_miss_to_look_ups_for_a_while(self):
        """An engine whose load failed looks the key up again immediately: if it were found, the engine would load and fail forever."""
        memory = Memory(os.urandom(MIB))
        wait_until(lambda: self.store.put_from("k", memory.at, MIB) == 0, 10, "it is stored")
        wait_until(lambda: any(d.is_local_disk_replica() for d in self.store.get_replica_desc("k")), 10, "it is on disk")
        reader, into = self.open(segment=0), Memory(MIB)
        self.assertEqual(self.store.close(), 0)  # no process contributes: there is no memory to read it into
        self.assertEqual(reader.batch_is_exist(["k", "none"]), [1, 0])
        self.assertEqual(reader.get_into("k", into.at, MIB), -200)
        self.assertEqual(reader.batch_is_exist(["k", "none"]), [0, 0])
        self.assertEqual(reader.is_exist("k"), 0)
        wait_until(lambda: reader.is_exist("k") == 1, 10, "it is looked at again")
        self.assertEqual(reader.batch_get_into_multi_buffers(["k"], [[into.at]], [[MIB]]), [-200])
        self.assertEqual(reader.is_exist("k"), 0)
        self.open()
        wait_until(lambda: reader.get_into("k", into.at, MIB) == MIB, 10, "there is memory again")
        self.assertEqual(reader.is_exist("k"), 1)
        self.assertEqual(into.bytes, memory.bytes)

    def test_what_was_put_again_is_doubted_no_more(self):
        memory = Memory(os.urandom(MIB))
        wait_until(lambda: self.store.put_from("k", memory.at, MIB) == 0, 10, "it is stored")
        wait_until(lambda: any(d.is_local_disk_replica() for d in self.store.get_replica_desc("k")), 10, "it is on disk")
        reader, into = self.open(segment=0), Memory(MIB)
        self.assertEqual(self.store.close(), 0)
        self.assertEqual(reader.get_into("k", into.at, MIB), -200)
        self.assertEqual(reader.is_exist("k"), 0)
        self.assertEqual(reader.remove("k", True), 0)
        writer = self.open()
        wait_until(lambda: writer.put_from("k", memory.at, MIB) == 0, 10, "it is stored again")
        self.assertEqual(reader.is_exist("k"), 1)


class Sizes(OnNode):
    def test_what_was_larger_than_its_memory_is_a_miss_to_look_ups_for_a_while(self):
        """Engines with one rank and with two use the same key for different parts."""
        into = Memory(MIB)
        self.assertEqual(self.store.put("k", b"v" * MIB), 0)
        self.assertEqual(self.store.batch_get_into_multi_buffers(["k"], [[into.at, into.at + 4096]], [[4096, 4096]]), [-600])
        self.assertEqual(self.store.batch_is_exist(["k"]), [0])
        self.assertEqual(self.store.get_size("k"), MIB)
        self.assertEqual(self.store.get_into("k", into.at, MIB), MIB)
        self.assertEqual(self.store.is_exist("k"), 1)


class TwoNodes(unittest.TestCase):
    """Masters of two hosts that are peers, here on one."""

    def node(self, name, ports, other, other_ports):
        node = Node(ranks=1, memory="64MiB", settings=[
            "--contributions", "true", "--lease-ttl", "2s", "--peer-timeout", "20s", "--node-name", name, "--peers",
            f"{other}@127.0.0.1:{other_ports[0]}", "--cluster-listen", f"127.0.0.1:{ports[0]}", "--fabric", "tcp",
            "--fabric-address", f"127.0.0.1:{ports[1]}", "--cluster-plaintext", "true", "--peer-removes", "true"])
        node.__enter__()
        self.addCleanup(node.__exit__)
        use(node)
        store = MooncakeDistributedStore()
        self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 16 * MIB, MIB, "tcp", "", MASTER), 0)
        self.addCleanup(store.close)
        return store

    def test_what_another_node_has_is_there(self):
        ports = [free_port() for _ in range(4)]
        a = self.node("a", ports[:2], "b", ports[2:])
        b = self.node("b", ports[2:], "a", ports[:2])
        memory = Memory(b"value of a")
        self.assertEqual(a.put("k", b"value of a"), 0)
        wait_until(lambda: b.is_exist("k") == 1, 20, "b learns of a's value")
        self.assertEqual(b.batch_is_exist(["k", "none", "k", ""]), [1, 0, 1, -600])
        self.assertEqual((b.get_size("k"), b.get_size("none")), (10, -704))
        found = b.get_replica_desc("k")
        self.assertEqual(segments(found), ["a"])
        self.assertEqual(b.get_replica_desc("none"), [])
        wait_until(lambda: b.get("k") == b"value of a", 20, "b reads it")
        self.assertEqual(b.batch_get_into(["k", "none"], [memory.at] * 2, [10] * 2), [10, -704])
        wait_until(lambda: b.remove("k") == 0, 20, "leases ended")
        self.assertEqual((a.is_exist("k"), b.is_exist("k"), b.remove("k")), (0, 0, -704))


class Registration(OnNode):
    def test_buffers(self):
        register, unregister = self.store.register_buffer, self.store.unregister_buffer
        self.assertEqual((register(0, 10), register(4096, 0), register((1 << 64) - 1, 2)), (-600, -600, -600))
        self.assertEqual(register(1 << 40, 4096), 0)
        self.assertEqual(register((1 << 40) + 4096, 4096), 0)
        self.assertEqual((register((1 << 40) + 100, 8), unregister((1 << 40) + 100)), (-600, -600))
        self.assertEqual(register((1 << 40) + 4000, 100), -600)
        self.assertEqual(register((1 << 40) - 100, 101), -600)
        self.assertEqual(register(1 << 40, 4096), -600)
        self.assertEqual((unregister(1 << 40), unregister(1 << 40)), (0, -600))
        self.assertEqual((register(1 << 40, 4096), unregister(1 << 40)), (0, 0))
        self.assertEqual(unregister((1 << 40) + 4097), -600)
        self.assertRaises(TypeError, register, -1, 10)

    def test_ranges_may_span_buffers_that_adjoin(self):
        memory = Memory(100)
        self.store.put("k", bytes(range(100)))
        self.store.register_buffer(memory.at, 50)
        self.assertEqual(self.store.get_into_ranges([memory.at], [["k"]], [[[0]]], [[[0]]], [[[100]]]), [[[-600]]])
        self.store.register_buffer(memory.at + 50, 50)
        self.assertEqual(self.store.get_into_ranges([memory.at], [["k"]], [[[0]]], [[[0]]], [[[100]]]), [[[100]]])

    def test_memory_for_others(self):
        allocator = mooncake.MooncakeHostMemAllocator()
        at = allocator.alloc(100_000)
        self.assertEqual(at % 4096, 0)
        ctypes.memset(at, 7, 100_000)
        self.assertEqual(mooncake.MooncakeHostMemAllocator().free(at), 0)
        self.assertEqual(allocator.free(at), -1)
        self.assertRaises(RuntimeError, allocator.alloc, 0)
        self.assertRaises(RuntimeError, allocator.alloc, 1 << 62)
        self.assertRaises(TypeError, allocator.alloc, -1)
        self.assertRaises(TypeError, allocator.alloc, "x")

    def test_torch_could_call_what_the_addresses_name(self):
        alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(mooncake.get_alloc_func_addr())
        free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
                                ctypes.c_void_p)(mooncake.get_free_func_addr())
        at = alloc(1000, 0, None)
        ctypes.memset(at, 1, 1000)
        free(at, 1000, 0, None)
        self.assertIsNone(alloc(0, 0, None))

    def test_a_thread_is_bound_to_a_node_of_memory(self):
        thread = threading.Thread(target=mooncake.bind_to_numa_node, args=(0,))
        thread.start()
        thread.join()
        self.assertIsNone(mooncake.bind_to_numa_node(-1))
        self.assertRaises(TypeError, mooncake.bind_to_numa_node, "x")


class Deadlines(OnNode):
    """No answers: the registrar is stopped, and so is the supervisor that would replace it."""

    def seconds(self, call, code):
        """Seconds until it answers code."""
        with self.node.actors_stopped("registrar"):
            began = time.monotonic()
            self.assertEqual(call(), code)
            return time.monotonic() - began

    def test_a_call_ends_after_three_seconds(self):
        memory = Memory(64)
        for call, code in ((lambda: self.store.remove("k"), -901),
                           (lambda: self.store.batch_put_from_multi_buffers(["k"], [[memory.at]], [[64]]), [-901])):
            took = self.seconds(call, code)
            self.assertTrue(2 <= took <= 3.5 + 5 * PATIENCE, took)

    def test_a_setting_says_how_long(self):
        os.environ["MC_RPC_TIMEOUT_MS"] = str(1000 * PACE)
        self.addCleanup(os.environ.pop, "MC_RPC_TIMEOUT_MS")
        hasty = self.open()
        self.assertLess(self.seconds(lambda: hasty.remove("k"), -901), 1.5 * PACE + 5 * PATIENCE)
        os.environ["MC_RPC_TIMEOUT_MS"] = str(2500 * PACE)
        patient = self.open()
        self.assertGreater(self.seconds(lambda: patient.remove("k"), -901), 2.2 * PACE)


class Threads(OnNode):
    def test_many_threads_on_one_store(self):
        wrong, barrier = [], threading.Barrier(8)

        def work(number):
            barrier.wait()
            for i in range(20):
                key, value = f"t{number}/{i}", bytes([number]) * 100_000
                if self.store.put(key, value) != 0 or self.store.get(key) != value or self.store.is_exist(key) != 1:
                    wrong.append(key)
                self.store.remove(key, force=True)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_close_beside_calls(self):
        store, stop = self.open(), threading.Event()
        self.store.put("k", b"v" * 1000)
        odd = []

        def work():
            while not stop.is_set():
                if store.get("k") not in (b"v" * 1000, b"") or store.put("k", b"x") not in (0, -600):
                    odd.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            store.close()
            self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER), 0)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(odd, [])

    def test_setups_and_closes_beside_each_other_and_beside_sessions(self):
        store, memory, wrong = self.open(), Memory(1000), []

        def life(closes):
            for _ in range(20):
                if store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER) != 0:
                    wrong.append("setup")
                store.register_buffer(memory.at, 1000)
                if closes:
                    store.close()

        def work(number):
            key = f"life{number}"
            for _ in range(200):
                store.batch_put_session_start([key], [1000])
                store.batch_put_from_multi_buffer_ranges([key], [[memory.at]], [[1000]], [[0]])
                store.batch_put_session_end([key])
                store.batch_get_session_start([key])
                store.batch_get_into_multi_buffer_ranges([key], [[memory.at]], [[1000]], [[0]])
                store.remove(key, force=True)

        threads = [threading.Thread(target=life, args=(n == 0,)) for n in range(3)]
        threads += [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
        self.assertEqual(wrong, [])
        self.assertEqual((store.health_check(), store.put("k", b"v")), (1, -600))
        self.assertEqual(store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER), 0)
        self.assertEqual((store.put("k", b"v"), store.get("k")), (0, b"v"))

    def test_a_close_that_waits_ends_nothing_of_the_next_setup(self):
        store, slow, memory = self.open(segment=0), Memory(16 * MIB), Memory(5)
        self.store.put("k", b"value")
        self.assertEqual(store.batch_put_session_start(["slow"], [len(slow)]), [0])
        write = threading.Thread(target=store.batch_put_from_multi_buffer_ranges,
                                 args=(["slow"], [[slow.at] * 200], [[len(slow)] * 200], [[0] * 200]))
        close = threading.Thread(target=store.close)
        for thread in (write, close):
            thread.start()
            time.sleep(0.05)  # or there is nothing to wait for, which is also right
        wait_until(lambda: store.setup("localhost", "P2PHANDSHAKE", 0, MIB, "tcp", "", MASTER) == 0, 10, "set up again")
        self.assertEqual(store.register_buffer(memory.at, 5), 0)
        self.assertEqual(store.batch_get_session_start(["k"]), [0])
        close.join()
        write.join()
        self.assertEqual(store.batch_get_into_multi_buffer_ranges(["k"], [[memory.at]], [[5]], [[0]]), [5])
        self.assertEqual(store.unregister_buffer(memory.at), 0)

    def test_nothing_leaks(self):
        memory = Memory(b"0123456789")

        def round():
            self.store.put("k", b"v")
            self.store.get_batch(["k", "none"])
            self.store.batch_put_from_multi_buffers(["k", "m"], [[memory.at]] * 2, [[3]] * 2, ReplicateConfig())
            self.store.batch_get_into_multi_buffers(["k", "m"], [[memory.at]] * 2, [[3]] * 2)
            self.store.get_into_ranges([memory.at], [["k"]], [[[0]]], [[[0]]], [[[1]]])
            self.store.batch_get_buffer(["k", "none"])
            self.store.batch_get_replica_desc(["k"])
            self.store.batch_get_session_start(["k"])
            self.store.batch_get_session_end(["k"])
            for bad in (lambda: self.store.put("k", 1), lambda: self.store.batch_put_from(["k"], [-1], [1]),
                        lambda: self.store.setup("x"), lambda: self.store.get_into_ranges([1], [[1]], [[[1]]], [[[1]]], [[["x"]]])):
                try:
                    bad()
                except TypeError:
                    pass

        for _ in range(50):
            round()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(500):
            round()
        gc.collect()
        self.assertLess(sys.getallocatedblocks() - before, 400)  # less than one a round


if __name__ == "__main__":
    main()
