"""Replaces the parts of torch that torch_probe.py uses, on the driver that plays a GPU. Its tensors are real device memory of that driver,
so that stores handle them as they handle torch's; their contents are computed here."""

import ctypes
import os
import struct
import time

__version__ = "played"
uint8, float32, bfloat16 = "uint8", "float32", "bfloat16"


def check(code):
    if code != 0:
        raise RuntimeError(f"CUDA gave {code}")


class _Driver:
    opened = None

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        check(self.cuda.cuInit(0))
        check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        check(self.cuda.cuCtxSetCurrent(context))

    @classmethod
    def get(cls):
        cls.opened = cls.opened or cls()
        return cls.opened.cuda


class Memory:
    """An allocation; its bytes are readable, since the device is a CPU."""

    def __init__(self, length):
        at = ctypes.c_uint64()
        check(_Driver.get().cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(length + 512)))
        self.base = at.value
        self.at = at.value + 512  # as torch's allocator returns parts of its segments

    def __del__(self):
        _Driver.get().cuMemFree_v2(ctypes.c_uint64(self.base))


class Expandable:
    """The same for an expandable segment: addresses that are mapped granule by granule, each from a handle of its own."""

    GRANULE = 2 << 20
    MEMORY = struct.pack("iiiiQ8s", 1, 1, 1, 0, 0, b"")  # CUmemAllocationProp: pinned, POSIX descriptors, on device 0
    ACCESS = struct.pack("iii", 1, 0, 3)  # CUmemAccessDesc: device 0 reads and writes

    def __init__(self, length):
        cuda, base = _Driver.get(), ctypes.c_uint64()
        self.handles = []
        self.length = -(-(length + 512) // self.GRANULE) * self.GRANULE
        check(cuda.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(self.length), ctypes.c_size_t(0), ctypes.c_uint64(0),
                                       ctypes.c_uint64(0)))
        self.base = base.value
        for offset in range(0, self.length, self.GRANULE):
            handle = ctypes.c_uint64()
            check(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(self.GRANULE), self.MEMORY, ctypes.c_uint64(0)))
            check(cuda.cuMemMap(ctypes.c_uint64(self.base + offset), ctypes.c_size_t(self.GRANULE), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))
            self.handles.append(handle)
        check(cuda.cuMemSetAccess(base, ctypes.c_size_t(self.length), self.ACCESS, ctypes.c_size_t(1)))
        self.at = self.base + 512

    def __del__(self):
        cuda = _Driver.get()
        for number, handle in enumerate(self.handles):
            check(cuda.cuMemUnmap(ctypes.c_uint64(self.base + number * self.GRANULE), ctypes.c_size_t(self.GRANULE)))
            check(cuda.cuMemRelease(handle))
        check(cuda.cuMemAddressFree(ctypes.c_uint64(self.base), ctypes.c_size_t(self.length)))


def memory(length):
    """Allocates by the allocator's setting, which torch reads when it is imported."""
    return (Expandable if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") else Memory)(length)


class Tensor:
    """Bytes on the device, one dimension."""

    def __init__(self, memory, offset, length):
        self.memory, self.offset, self.length = memory, offset, length

    def data_ptr(self):
        return self.memory.at + self.offset

    def numel(self):
        return self.length

    def bytes(self):
        return ctypes.string_at(self.data_ptr(), self.length)

    def fill_(self, value):
        ctypes.memset(self.data_ptr(), value, self.length)

    def zero_(self):
        self.fill_(0)

    def random_(self, _low, _high):
        block = bytes((i * 131 + i // 257) % 256 for i in range(65536))
        for at in range(0, self.length, len(block)):
            ctypes.memmove(self.data_ptr() + at, block[at % 251:] + block[:at % 251], min(len(block), self.length - at))

    def __getitem__(self, part):
        start, stop, _ = part.indices(self.length)
        return Tensor(self.memory, self.offset + start, stop - start)

    def view(self, _rows, columns):
        whole = self.bytes()
        return Rows([whole[at:at + columns] for at in range(0, self.length, columns)])

    def __eq__(self, value):
        return Values([byte == value for byte in self.bytes()])

    def __ne__(self, value):
        return Values([byte != value for byte in self.bytes()])

    __hash__ = None


class Rows:
    def __init__(self, rows):
        self.rows = rows

    def flip(self, _dimension):
        return Rows(self.rows[::-1])

    def reshape(self, _length):
        return self

    def bytes(self):
        return b"".join(self.rows)


class Values:
    """Numbers on the host."""

    def __init__(self, values):
        self.values = values

    def sum(self):
        return sum(self.values)

    def __getitem__(self, index):
        return self.values[index]

    def __iadd__(self, other):
        def add():
            self.values = [mine + its for mine, its in zip(self.values, other.values)]

        if cuda.capturing is not None:
            cuda.capturing.work.append(add)
        else:
            add()
        return self

    def to(self, _dtype):
        return self


def empty(length, dtype, device):
    assert dtype == uint8 and device == "cuda"
    return Tensor(memory(length), 0, length)


def zeros(length, device):
    assert device == "cuda"
    return Values([0.0] * length)


def ones(length, device):
    assert device == "cuda"
    return Values([1.0] * length)


def randn(rows, columns, device):
    assert device == "cuda"
    return Values([0.5] * (rows * columns))


def mm(_a, _b):
    time.sleep(0.0005)


def equal(left, right):
    return left.bytes() == right.bytes()


class _Graph:
    def __init__(self):
        self.work = []

    def replay(self):
        for one in self.work:
            one()


class _Capture:
    """A graph's capture: the driver is notified if it supports captures."""

    def __init__(self, graph, capture_error_mode):
        self.graph, self.mode = graph, ("global", "thread_local", "relaxed").index(capture_error_mode)
        self.stream = ctypes.c_void_p()

    def __enter__(self):
        driver = _Driver.get()
        cuda.capturing = self.graph
        self.told = hasattr(driver, "cuStreamBeginCapture_v2") and hasattr(driver, "cuStreamEndCapture")
        if self.told:
            check(driver.cuStreamCreateWithPriority(ctypes.byref(self.stream), 1, 0))
            check(driver.cuStreamBeginCapture_v2(self.stream, self.mode))

    def __exit__(self, *_about):
        cuda.capturing = None
        if self.told:
            made = ctypes.c_void_p()
            code = _Driver.get().cuStreamEndCapture(self.stream, ctypes.byref(made))
            check(_Driver.get().cuStreamDestroy_v2(self.stream))
            check(code)


class _Stream:
    @staticmethod
    def synchronize():
        pass


class _Cuda:
    CUDAGraph = _Graph
    graph = _Capture
    capturing = None

    @staticmethod
    def is_available():
        _Driver.get()
        return True

    @staticmethod
    def get_device_name(_number):
        return "Fake"

    @staticmethod
    def synchronize():
        pass

    @staticmethod
    def current_stream():
        return _Stream()

    @staticmethod
    def _sleep(_cycles):
        pass


cuda = _Cuda()
