"""The calls of the CUDA driver that the check-up itself makes, by ctypes. Values are those of cuda.h."""

import ctypes

ATTRIBUTES = {  # CUdevice_attribute
    "multiprocessors": 16, "integrated": 18, "can_map_host_memory": 19, "compute_mode": 20, "ecc": 32, "pci_bus": 33, "pci_device": 34,
    "copy_engines": 40, "unified_addressing": 41, "pci_domain": 50, "major": 75, "minor": 76, "stream_priorities": 78,
    "pageable_memory_access": 88, "host_pointer_for_registered": 91, "host_register": 99, "pageable_by_host_tables": 100,
    "virtual_memory": 102, "handle_descriptor": 103, "memory_pools": 115, "handle_fabric": 128, "host_numa": 134,
}
COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}
HOST_PORTABLE, HOST_DEVICEMAP = 1, 2


class DriverError(Exception):
    pass


class Driver:
    """The first device of this process; its primary context is current. Raises DriverError with the driver's error."""

    def __init__(self, number=0):
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as wrong:
            raise DriverError(f"no driver: {wrong}") from None
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self.device), number)

    def has(self, symbol):
        return hasattr(self.cuda, symbol)

    def call(self, symbol, *arguments):
        if not self.has(symbol):
            raise DriverError(f"the driver has no {symbol}")
        code = getattr(self.cuda, symbol)(*arguments)
        if code != 0:
            raise DriverError(f"{symbol}: {self.error_name(code)} ({code})")

    def error_name(self, code):
        name = ctypes.c_char_p()
        return name.value.decode() if self.cuda.cuGetErrorName(code, ctypes.byref(name)) == 0 and name.value else "an error without a name"

    def enter(self):
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def version(self):
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value

    def count(self):
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def name(self):
        text = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", text, 128, self.device)
        return text.value.decode(errors="replace")

    def attribute(self, name):
        """The value, or None if this driver does not know the attribute."""
        value = ctypes.c_int()
        try:
            self.call("cuDeviceGetAttribute", ctypes.byref(value), ATTRIBUTES[name], self.device)
        except DriverError:
            return None
        return value.value

    def memory(self):
        """(free, total) bytes of the device, or None if the driver does not report them."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        if not self.has("cuMemGetInfo_v2"):
            return None
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def pin(self, address, length_bytes):
        self.call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(length_bytes), HOST_PORTABLE | HOST_DEVICEMAP)

    def unpin(self, address):
        self.call("cuMemHostUnregister", ctypes.c_void_p(address))
