"""mooncake.engine: the transfer engine, reduced to what the store needs.

Connectors of the store make an engine to share its memory registrations and its address, and pass it to `store.setup(engine=...)`. It
transfers no bytes: the store copies in shared memory, and a node of Sluice talks to its peers by itself. So methods that transfer bytes
are missing: a connector that sends KV from prefill to decode with this engine gets an AttributeError with the reason, never wrong bytes.
"""

import bisect
import enum
import json
import operator
import os
import socket
import threading
from typing import Dict, List, Optional, Sequence, SupportsIndex, Tuple

_FAILED = -1
_ADDRESS_END = 1 << 64
_PORTS_MIN, _PORTS_MAX = 15000, 17000  # defaults of MC_MIN_RPC_PORT and MC_MAX_RPC_PORT
_HANDSHAKE = "P2PHANDSHAKE"
_DEVICES = "/sys/class/infiniband"
_CPUS = "/sys/devices/system/node"


class TransferOpcode(enum.IntEnum):
    Read = 0
    Write = 1


class TransferNotify:
    """A message that accompanies a transfer."""

    __slots__ = ("name", "msg")

    def __init__(self, name: str = "", msg: str = "") -> None:
        if not isinstance(name, str) or not isinstance(msg, str):
            raise TypeError("TransferNotify(name: str, msg: str)")
        self.name = name
        self.msg = msg

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


class InnerTransferEngine:
    """The argument of `store.setup(engine=...)`. It keeps the engine's port reserved."""

    __slots__ = ("_port",)

    _port: "_Port"

    def __init__(self) -> None:
        raise TypeError("use TransferEngine.get_engine()")


def _numbers_of(values: Sequence[SupportsIndex]) -> List[int]:
    """Converts integers, also numpy's. Raises TypeError."""
    return [operator.index(value) for value in values]


def _port_of(name: str) -> Optional[int]:
    """The port in an environment variable; None: not set. Raises ValueError for other texts."""
    text = os.environ.get(f"MC_{name}_RPC_PORT") or os.environ.get(f"MC_{name}_PRC_PORT")  # the second is the old spelling
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 65535:
        raise ValueError(f"MC_{name}_RPC_PORT: {text!r} is not a port: 1..65535")
    return int(text)


def _port_range() -> Tuple[int, int]:
    low, high = _port_of("MIN"), _port_of("MAX")
    low = _PORTS_MIN if low is None else low
    high = _PORTS_MAX if high is None else high
    if low > high:
        raise ValueError(f"MC_MIN_RPC_PORT {low} is above MC_MAX_RPC_PORT {high}")
    return low, high


def _explicit_port(hostname: str) -> Optional[int]:
    """The port of HOST:PORT or [ADDRESS]:PORT; None: only a host or an IPv6 address. Raises ValueError."""
    host, separator, port = hostname.rpartition(":")
    if not separator or (":" in host and not host.endswith("]")):
        return None
    if not port.isascii() or not port.isdigit() or not 1 <= int(port[:9]) <= 65535:
        raise ValueError(f"{hostname!r}: {port!r} is not a port: 1..65535")
    return int(port)


class _Port:
    """A TCP port that is reserved while the object lives. It has no listener, so connections are refused at once."""

    __slots__ = ("number", "_socket")

    def __init__(self, number: int) -> None:
        """Raises OSError."""
        self.number = number
        try:
            self._socket = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        except OSError:  # a machine without IPv6
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.bind(("", number))
        except OSError:
            self._socket.close()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()


def _first_free(low: int, high: int) -> Optional[_Port]:
    """Reserves a free port; processes that start together try different ones first."""
    count = high - low + 1
    first = os.getpid() * 17 % count
    for i in range(count):
        try:
            return _Port(low + (first + i) % count)
        except OSError:
            continue
    return None


def _numbers(directory: str, prefix: str) -> List[int]:
    """The sorted numbers N of names prefixN in the directory."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return sorted(int(name[len(prefix):]) for name in names if name.startswith(prefix) and name[len(prefix):].isdigit())


def _device_node(device: str) -> int:
    """NUMA node of an RDMA device; -1: it has none."""
    try:
        with open(os.path.join(_DEVICES, device, "device", "numa_node"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


class _Registry:
    """Ranges of memory that do not overlap; one thread at a time."""

    def __init__(self) -> None:
        self._starts: List[int] = []
        self._lengths: Dict[int, int] = {}

    def add(self, start: int, length: int) -> bool:
        if start <= 0 or length <= 0 or start + length > _ADDRESS_END:
            return False
        place = bisect.bisect_right(self._starts, start)
        if place > 0 and self._starts[place - 1] + self._lengths[self._starts[place - 1]] > start:
            return False
        if place < len(self._starts) and start + length > self._starts[place]:
            return False
        self._starts.insert(place, start)
        self._lengths[start] = length
        return True

    def has(self, start: int) -> bool:
        return start in self._lengths

    def remove(self, start: int) -> None:
        del self._starts[bisect.bisect_left(self._starts, start)]
        del self._lengths[start]


class TransferEngine:
    """An address and a list of registered memory. Any thread may call; failures are negative numbers."""

    __slots__ = ("_lock", "_memory", "_port", "_inner", "__weakref__")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory = _Registry()
        self._port: Optional[_Port] = None
        self._inner: Optional[InnerTransferEngine] = None

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"mooncake.engine.TransferEngine of Sluice has no '{name}': it transfers nothing and only serves "
                             "mooncake.store. Transfers from prefill to decode over Mooncake's engine are not supported",
                             name=name, obj=self)

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Returns 0, or -1: already initialized, no port of MC_MIN_RPC_PORT..MC_MAX_RPC_PORT (15000..17000) is free, or one of these or
        the port of local_hostname is invalid. With P2PHANDSHAKE it chooses a port; else it uses that of local_hostname, if given.
        metadata_server, protocol and device_name are otherwise ignored."""
        if not all(isinstance(given, str) for given in (local_hostname, metadata_server, protocol, device_name)):
            raise TypeError("initialize(local_hostname: str, metadata_server: str, protocol: str, device_name: str)")
        with self._lock:
            if self._port is not None:
                return _FAILED
            try:
                explicit = None if metadata_server == _HANDSHAKE else _explicit_port(local_hostname)
                low, high = _port_range() if explicit is None else (explicit, explicit)
            except ValueError:
                return _FAILED
            self._port = _first_free(low, high)
            if self._port is None:
                return _FAILED
            self._inner = InnerTransferEngine.__new__(InnerTransferEngine)
            self._inner._port = self._port
            return 0

    def initialize_ext(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str,
                       metadata_type: str) -> int:
        """As initialize; metadata_type is ignored."""
        if not isinstance(metadata_type, str):
            raise TypeError("initialize_ext(..., metadata_type: str)")
        return self.initialize(local_hostname, metadata_server, protocol, device_name)

    def get_rpc_port(self) -> int:
        """The port that is reserved for this engine; 0: not initialized."""
        with self._lock:
            return 0 if self._port is None else self._port.number

    def get_engine(self) -> Optional[InnerTransferEngine]:
        """The argument for `store.setup(engine=...)`; None: not initialized."""
        with self._lock:
            return self._inner

    def register_memory(self, addr: SupportsIndex, length: SupportsIndex, location: str = "*") -> int:
        """Returns 0, or -1: not initialized, empty, beyond the address space, or overlapping registered memory."""
        if not isinstance(location, str):
            raise TypeError("register_memory(addr: int, length: int, location: str = '*')")
        return self.batch_register_memory([addr], [length])

    def unregister_memory(self, addr: SupportsIndex) -> int:
        """Returns 0, or -1: not initialized, or no registered memory begins there."""
        return self.batch_unregister_memory([addr])

    def batch_register_memory(self, addrs: Sequence[SupportsIndex], lengths: Sequence[SupportsIndex]) -> int:
        """As register_memory, all or none; also -1 if the lists differ in length."""
        starts, sizes = _numbers_of(addrs), _numbers_of(lengths)
        with self._lock:
            if self._port is None or len(starts) != len(sizes):
                return _FAILED
            for done, (start, size) in enumerate(zip(starts, sizes)):
                if not self._memory.add(start, size):
                    for added in starts[:done]:
                        self._memory.remove(added)
                    return _FAILED
            return 0

    def batch_unregister_memory(self, addrs: Sequence[SupportsIndex]) -> int:
        """As unregister_memory, all or none."""
        starts = _numbers_of(addrs)
        with self._lock:
            if self._port is None or len(set(starts)) != len(starts) or not all(map(self._memory.has, starts)):
                return _FAILED
            for start in starts:
                self._memory.remove(start)
            return 0

    def get_local_topology(self) -> str:
        """Returns JSON: for "cpu:N" of each NUMA node two lists of RDMA devices, those of that node and the others."""
        nodes = {device: _device_node(device) for device in (sorted(os.listdir(_DEVICES)) if os.path.isdir(_DEVICES) else [])}
        matrix = {}
        for number in _numbers(_CPUS, "node") or [0]:
            near = [device for device, node in nodes.items() if node == number]
            matrix[f"cpu:{number}"] = [near, [device for device in nodes if device not in near]]
        return json.dumps(matrix)
