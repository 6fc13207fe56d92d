"""Device memory at plain addresses, which look like those of host memory (trap 14). Without a GPU, on the driver that plays one."""

import ctypes
import os
import unittest

from contract_support import KIB, MIB, MOONCAKE, NOT_FOUND, OnPool, main, unlike_mooncake, value_of


class Gpu:
    """Memory of device 0 by the driver's API, moved through pinned memory."""

    staging_bytes = 8 * MIB

    def __init__(self):
        self.cuda = self.driver()
        context, device, self.stream, staging = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.check(self.cuda.cuCtxSetCurrent(context))
        self.check(self.cuda.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0))
        self.check(self.cuda.cuMemHostAlloc(ctypes.byref(staging), ctypes.c_size_t(self.staging_bytes), 0))
        self.staging = staging.value

    @staticmethod
    def driver():
        """The machine's driver, or the one that plays a GPU in ordinary memory; it has the same name, under which the store finds it."""
        try:
            return ctypes.CDLL("libcuda.so.1")
        except OSError:
            if MOONCAKE:
                raise
            from node_support import BIN

            return ctypes.CDLL(os.path.join(BIN, "..", "tests", "fake", "libcuda.so.1"))

    @staticmethod
    def check(code):
        if code != 0:
            raise RuntimeError(f"CUDA gave {code}")

    def allocate(self, length):
        at = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(length)))
        return at.value

    def free(self, at):
        self.check(self.cuda.cuMemFree_v2(ctypes.c_uint64(at)))

    def write(self, at, value):
        ctypes.memmove(self.staging, value, len(value))
        self.check(self.cuda.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(at), ctypes.c_void_p(self.staging), ctypes.c_size_t(len(value)),
                                                  self.stream))
        self.check(self.cuda.cuStreamSynchronize(self.stream))

    def read(self, at, length):
        self.check(self.cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(self.staging), ctypes.c_uint64(at), ctypes.c_size_t(length),
                                                  self.stream))
        self.check(self.cuda.cuStreamSynchronize(self.stream))
        return ctypes.string_at(self.staging, length)


@unlike_mooncake("the wheel without CUDA")
class Device(OnPool):
    length = 8 * MIB

    @classmethod
    def setUpClass(cls):
        try:
            cls.gpu = Gpu()
        except (OSError, RuntimeError) as failure:
            raise unittest.SkipTest(f"no GPU: {failure}") from None
        super().setUpClass()

    def setUp(self):
        self.at = self.gpu.allocate(self.length)
        self.addCleanup(self.gpu.free, self.at)
        self.gpu.write(self.at, b"\xee" * self.length)
        self.assertEqual(self.store.register_buffer(self.at, self.length), 0)
        self.addCleanup(self.store.unregister_buffer, self.at)

    def test_register(self):
        """1.10 device memory, trap 14: a whole KV cache is registered in one call, and unregistered once."""
        self.assertEqual(self.store.unregister_buffer(self.at), 0)
        self.assertEqual(self.store.unregister_buffer(self.at), -600)
        self.assertEqual(self.store.register_buffer(self.at, self.length), 0)

    def test_the_multi_buffer_pair(self):
        """1.10 device memory, trap 14: blocks are scattered over the device when stored and when loaded, host memory may lie between."""
        host = self.memory(64 * KIB)
        keys = self.keys(20)
        places, values = [], []
        for number, key in enumerate(keys):
            value = value_of(key, 3 * 4097)
            at = [self.at + (2 * number + half) * 10_000 + number for half in range(2)]
            for half in range(2):
                self.gpu.write(at[half], value[half * 4097:(half + 1) * 4097])
            places.append([*at, host.write(value[2 * 4097:], number * 4100 % 60_000)])
            values.append(value)
            self.assert_plain(self.store.batch_put_from_multi_buffers([key], [places[-1]], [[4097] * 3]), [0])
        self.assertEqual(self.store.get_batch(keys), values)
        self.gpu.write(self.at, b"\xee" * self.length)
        targets = [[self.at + 2 * MIB + (3 * number + part) * 5001 for part in range(3)] for number in range(20)]
        got = self.store.batch_get_into_multi_buffers([*keys, self.key("no")], [*targets, [self.at]], [[4097] * 3] * 20 + [[10]])
        self.assert_plain(got, [3 * 4097] * 20 + [NOT_FOUND])
        for target, value in zip(targets, values):
            self.assertEqual(b"".join(self.gpu.read(at, 4097) for at in target), value)
            self.assertEqual(self.gpu.read(target[0] + 4097, 5001 - 4097), b"\xee" * (5001 - 4097))

    def test_single_runs(self):
        """1.10 device memory, trap 14: put_from, batch_put_from, get_into, batch_get_into, upsert_from, ranges."""
        value = value_of("device", MIB)
        self.gpu.write(self.at, value)
        self.assertEqual(self.store.put_from(self.key("a"), self.at, MIB), 0)
        self.assert_plain(self.store.batch_put_from([self.key("b")], [self.at + 1000], [1000]), [0])
        self.assertEqual(self.store.upsert_from(self.key("a"), self.at + 1, MIB - 1), 0)
        self.assertEqual(self.store.get(self.key("b")), value[1000:2000])
        self.assertEqual(self.store.get_into(self.key("a"), self.at + 4 * MIB, MIB), MIB - 1)
        self.assertEqual(self.gpu.read(self.at + 4 * MIB, MIB - 1), value[1:])
        self.assert_plain(self.store.batch_get_into([self.key("b")], [self.at + 6 * MIB], [1000]), [1000])
        self.assertEqual(self.gpu.read(self.at + 6 * MIB, 1000), value[1000:2000])
        got = self.store.get_into_ranges([self.at], [[self.key("a")]], [[[7 * MIB]]], [[[100]]], [[[5000]]])
        self.assertEqual(got, [[[5000]]])
        self.assertEqual(self.gpu.read(self.at + 7 * MIB, 5000), value[101:5101])

    def test_sessions(self):
        """1.10 device memory, 1.8 batch_put_from_multi_buffer_ranges, batch_get_into_multi_buffer_ranges: layer by layer."""
        key, value = self.key(), value_of("layers", 4 * 10_000)
        self.assert_plain(self.store.batch_put_session_start([key], [len(value)]), [0])
        for layer in range(4):
            self.gpu.write(self.at + layer * 20_000, value[layer * 10_000:(layer + 1) * 10_000])
            got = self.store.batch_put_from_multi_buffer_ranges([key], [[self.at + layer * 20_000]], [[10_000]], [[layer * 10_000]])
            self.assert_plain(got, [10_000])
        self.assert_plain(self.store.batch_put_session_end([key]), [0])
        self.assert_plain(self.store.batch_get_session_start([key]), [0])
        got = self.store.batch_get_into_multi_buffer_ranges([key], [[self.at + MIB]], [[len(value)]], [[0]])
        self.assert_plain(got, [len(value)])
        self.assertEqual(self.store.batch_get_session_end([key]), 0)
        self.assertEqual(self.gpu.read(self.at + MIB, len(value)), value)


if __name__ == "__main__":
    main()
