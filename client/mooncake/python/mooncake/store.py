"""mooncake.store: Mooncake's store on a node of Sluice.

Calls that copy values or look keys up are native (_store). Rare calls and plain records are here."""

import errno
import functools
import operator
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Any

from mooncake import _store
from mooncake._store import BufferHandle, __version__, get_alloc_func_addr, get_free_func_addr  # noqa: F401
from mooncake.mooncake_config import parse_size
from mooncake.places import Failure, advice, instance_of_master, is_here, sign_of_client, split_address

OK, INTERNAL, INVALID, NOT_READY, NOT_NOW = 0, -1, -600, -703, -1010
NO_FILE, FILE_OPEN = -1100, -1101
CLIENT_PORT = 50052
U64_MAX = (1 << 64) - 1
SIZE_MIN, LOCAL_BUFFER_MAX = 1 << 10, 1 << 40
SLAB = 4 << 20  # sizes of allocated segments are rounded up to this
NAME_BYTES = 255  # longest name of a segment
SET_MEMPOLICY, MPOL_BIND, NUMA_NODES_MAX = {"x86_64": 238, "aarch64": 237}, 2, 1024


class SoftPinAction(IntEnum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2

    __str__ = Enum.__str__


class ObjectDataType(IntEnum):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9

    __str__ = Enum.__str__


class ReplicaStatus(IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5

    __str__ = Enum.__str__


globals().update(ObjectDataType.__members__)
globals().update(ReplicaStatus.__members__)


# ---- checks of values and arguments: TypeError or ValueError

def _number(value: Any) -> int:
    number = operator.index(value)
    if not 0 <= number <= U64_MAX:
        raise ValueError("0 to 2^64 - 1")
    return number


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no bool")
    return value


def _text(value: Any) -> str:
    """A str without zeros, since native code would cut it at the first one."""
    if not isinstance(value, str) or "\0" in value:
        raise TypeError("no text")
    value.encode()
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    value.encode()
    return value


def _list(value: Any) -> "list[Any]":
    if isinstance(value, (str, bytes, dict)) or not hasattr(type(value), "__getitem__"):
        raise TypeError("no list")
    return list(value)


def _words(value: Any) -> "tuple[str, ...]":
    return tuple(_word(one) for one in _list(value))


def _member(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"no {kind.__name__}")
        return value
    return check


def _optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _accepts(name: str, other: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a method so that invalid arguments raise a TypeError with the signature and the given keywords."""
    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *arguments: Any, **names: Any) -> Any:
            try:
                return method(self, *arguments, **names)
            except (TypeError, ValueError, OverflowError):
                import inspect  # slow to import, and rarely needed
                raise TypeError(f"{name}(): incompatible function arguments. The following argument types are supported:\n"
                                f"    1. {inspect.signature(method)}{other}\n\nInvoked with: kwargs: {tuple(names)}") from None
        call.__name__ = name
        return call
    return decorate


class _Field:
    """A field of ReplicateConfig: checked on assignment; lists are copied on assignment and access."""

    def __init__(self, check: Callable[[Any], Any], default: Any, about: str):
        self.check, self.default, self.__doc__ = check, default, about

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: Any, owner: type) -> Any:
        if config is None:
            return self
        value = config._values[self.name]
        return list(value) if isinstance(value, tuple) else value

    def __set__(self, config: Any, value: Any) -> None:
        try:
            value = self.check(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"ReplicateConfig.{self.name}: {value!r}: {error}") from None
        config._values = {**config._values, self.name: value}
        config._pack()


class ReplicateConfig:
    """Options of a put."""

    __slots__ = ("_values", "_terms")
    replica_num = _Field(_number, 1, "Number of copies in memory; at least one.")
    nof_replica_num = _Field(_number, 0, "NVMe-oF copies; not supported.")
    dfs_replica_num = _Field(_number, 0, "Copies on shared file systems; not supported.")
    soft_pin_action = _Field(_member(SoftPinAction), SoftPinAction.PRESERVE, "A SoftPinAction.")
    soft_pin_ttl_ms = _Field(_optional(_number), None, "Only with ENABLE; None: 30 minutes.")
    with_hard_pin = _Field(_flag, False, "Never evicted.")
    preferred_segments = _Field(_words, (), "Segments to try first, in order.")
    preferred_segment = _Field(_word, "", "If not empty, replaces preferred_segments.")
    preferred_nof_segments = _Field(_words, (), "Ignored.")
    prefer_alloc_in_same_node = _Field(_flag, False, "Only for calls with many buffers and for sessions.")
    data_type = _Field(_member(ObjectDataType), ObjectDataType.UNKNOWN, "An ObjectDataType: a label.")
    group_ids = _Field(_optional(_words), None, 'None, or one for each key of the batch; "": no group.')

    def __init__(self) -> None:
        self._values = {name: field.default for name, field in vars(ReplicateConfig).items() if isinstance(field, _Field)}
        self._pack()

    @property
    def with_soft_pin(self) -> bool:
        """As in Mooncake's releases: whether soft_pin_action is ENABLE."""
        return self.soft_pin_action is SoftPinAction.ENABLE

    @with_soft_pin.setter
    def with_soft_pin(self, value: bool) -> None:
        self.soft_pin_action = SoftPinAction.ENABLE if _flag(value) else SoftPinAction.PRESERVE

    def _pack(self) -> None:
        """Packs the fields that calls use, for the native class `terms` of _store."""
        has = self._values
        segments = (has["preferred_segment"],) if has["preferred_segment"] else has["preferred_segments"]
        self._terms = (has["replica_num"], has["nof_replica_num"], has["dfs_replica_num"], int(has["soft_pin_action"]),
                       has["soft_pin_ttl_ms"], has["with_hard_pin"], has["prefer_alloc_in_same_node"], segments, has["group_ids"])

    def __repr__(self) -> str:
        return "ReplicateConfig: { " + ", ".join(f"{name}: {value!s}" for name, value in self._values.items()) + " }"


# ---- descriptors

class Descriptor:
    """Location of a value in memory."""

    __slots__ = ("size", "buffer_address", "transport_endpoint")

    def __init__(self) -> None:
        self.size, self.transport_endpoint = 0, ""
        self.buffer_address = 0  # addresses are not valid in other processes

    def __repr__(self) -> str:
        return f"<Descriptor size={self.size} buffer_address={self.buffer_address} transport_endpoint={self.transport_endpoint!r}>"


class MemoryDescriptor:
    """A replica in memory."""

    __slots__ = ("_buffer",)

    @property
    def buffer_descriptor(self) -> Descriptor:
        return self._buffer


class DiskDescriptor:
    """A replica on a shared file system; none exist here."""

    __slots__ = ()
    file_path = property(lambda self: "")
    object_size = property(lambda self: 0)


class ReplicaDescriptor:
    """One replica of a value."""

    __slots__ = ("_replica",)

    @property
    def status(self) -> ReplicaStatus:
        return ReplicaStatus.COMPLETE

    def is_memory_replica(self) -> bool:
        return self._replica[0]

    def is_disk_replica(self) -> bool:
        """Whether it is on a shared file system."""
        return False

    def is_local_disk_replica(self) -> bool:
        return not self._replica[0]

    def get_memory_descriptor(self) -> MemoryDescriptor:
        in_memory, length, segment = self._replica
        if not in_memory:
            raise RuntimeError("this replica is not in memory")
        made = MemoryDescriptor()
        made._buffer = Descriptor()
        made._buffer.size, made._buffer.transport_endpoint = length, segment
        return made

    def get_disk_descriptor(self) -> DiskDescriptor:
        raise RuntimeError("this replica is not on a shared file system")


def _key_name(key: Any) -> Any:
    """A key in results: str as in Mooncake, also for bytes; unchanged if it is not UTF-8."""
    try:
        return key.decode() if isinstance(key, bytes) else key
    except UnicodeDecodeError:
        return key


# ---- the store

def _say(text: str) -> None:
    try:
        print(f"mooncake.store: {text[:320]}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # standard error is closed; the caller still gets the code


def _bracketed(address: str) -> str:
    """Adds brackets to an IPv6 address without a port: several colons and no brackets."""
    return f"[{address}]" if address.count(":") > 1 and "[" not in address else address


def _of_environment(name: str, otherwise: int, most: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= most else otherwise


def _port_taken(port: int) -> int:
    """Binds the port on all addresses without listening, to reserve it. Returns the descriptor; -1: the port is taken."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            one.bind(("", port))
            return one.detach()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise Failure(f"port {port}: {error.strerror}") from error
        return -1


def _ports(given: int, strict: bool) -> Iterator[int]:
    """Yields ports to try. Without a metadata server ports are not names: engines pass one to several clients, and Mooncake chooses
    another."""
    if given:
        yield given
    if given and strict:
        return
    low, high = (_of_environment(f"MC_STORE_CLIENT_{name}_PORT", port, 65535) for name, port in (("MIN", 12300), ("MAX", 14300)))
    if low > high:
        raise Failure(f"ports {low} to {high} are not a range")
    first = int.from_bytes(os.urandom(4), "little")
    for turn in range(_of_environment("MC_STORE_CLIENT_SETUP_RETRIES", 20, 10_000)):
        yield low + (first + turn) % (high - low + 1)


class MooncakeDistributedStore(_store.Store):
    """A store with Mooncake's semantics on a node of Sluice."""

    __slots__ = ()
    locals().update({name: method for name, method in vars(_store.Store).items() if not name.startswith("_")})

    def __init__(self) -> None:
        pass  # refuses arguments

    def setup(self, *arguments: Any, **names: Any) -> int:
        """setup(local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices, master_server_addr,
        engine=None, enable_ssd_offload=False, ssd_offload_path='', tenant_id='default', enable_client_http_server=False,
        client_http_port=9300), or setup(config: dict). 0, or a negative code."""
        config = arguments[0] if len(arguments) == 1 and not names else names.get("config") if not arguments and len(names) == 1 else None
        return self._setup_of(config) if isinstance(config, dict) else self._setup_by_arguments(*arguments, **names)

    @_accepts("setup", "\n    2. (self, config: dict) -> int")
    def _setup_by_arguments(self, local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int, protocol: str,
                            rdma_devices: str, master_server_addr: str, engine: object = None, enable_ssd_offload: bool = False,
                            ssd_offload_path: str = "", tenant_id: str = "default", enable_client_http_server: bool = False,
                            client_http_port: int = 9300) -> int:
        for text in (protocol, rdma_devices, ssd_offload_path):
            _text(text)
        _number(client_http_port)
        return self._setup_here(_text(local_hostname), _text(metadata_server), _number(global_segment_size), _number(local_buffer_size),
                                _text(master_server_addr), _text(tenant_id))

    @_accepts("setup")
    def _setup_of(self, config: "dict[str, Any]") -> int:
        def text(otherwise: Any, *names: str) -> Any:
            return next((_text(str(config[name])) for name in names if name in config), otherwise)

        host, server = text(None, "local_hostname"), text(None, "metadata_server")
        sizes = []
        try:
            for name in ("global_segment_size", "local_buffer_size"):
                sizes.append(parse_size(text("16mb", name), name))
            if host is None or server is None:
                raise ValueError("local_hostname and metadata_server are needed")
        except ValueError as error:
            return self._setup_refused("setup", INVALID, str(error))
        master = text("127.0.0.1:50051", "master_server_addr", "master_server_address")
        return self._setup_here(host, server, *sizes, master, text("default", "tenant_id"))

    def _setup_refused(self, call: str, code: int, why: str) -> int:
        """Logs why a setup fails, since the code does not say it, and closes an earlier setup."""
        _store.Store.close(self)
        _say(f"{call} gives {code}: {why}")
        return code

    def _setup_here(self, host: str, server: str, segment: int, local_buffer: int, master: str, tenant: str) -> int:
        _store.Store.close(self)
        try:
            for name, size, most in (("global_segment_size", segment, U64_MAX), ("local_buffer_size", local_buffer, LOCAL_BUFFER_MAX)):
                if size and not SIZE_MIN <= size <= most:
                    raise Failure(f"{name}: 0, or {SIZE_MIN} to {most} bytes, not {size}")
            instance = instance_of_master(_bracketed(master))
            text = _bracketed(host)
            given = split_address(text)
            bare = given or split_address(text, 1)
            if bare is None or len(bare[0].encode()) + 10 > NAME_BYTES:
                raise Failure(f"local_hostname '{host[:128]}' is not host or host:port")
            shown = f"[{bare[0]}]" if ":" in bare[0] else bare[0]
            code, why = _store.EXISTS, "no port is free"
            for port in _ports(given[1] if given else 0, server != "P2PHANDSHAKE"):
                held = _port_taken(port)
                if held < 0:
                    why = f"port {port} is taken"
                    continue
                try:
                    code, why = self._setup(instance, f"{shown}:{port}", held, segment, local_buffer, tenant, False)
                except (TypeError, ValueError):  # an argument is not a text, and the port was not taken over
                    os.close(held)
                    raise
                if code != _store.EXISTS:
                    break
        except Failure as failure:
            return self._setup_refused("setup", INVALID, str(failure))
        if code == OK:
            if why:
                _say(f"setup: the node is degraded: {why}")
            return OK
        if code == _store.UNREACHABLE and not os.environ.get("SLUICE_INSTANCE"):
            why = advice(_bracketed(master))
        return self._setup_refused("setup", INTERNAL if code == _store.EXISTS and not given else INVALID, why)

    @_accepts("setup_dummy")
    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Uses the node of a mooncake_client on this machine. Returns 0, or -1."""
        _number(mem_pool_size)  # ignored: each pool is allocated on demand
        size, address = _number(local_buffer_size), _text(server_address)
        _store.Store.close(self)
        try:
            if size and not SIZE_MIN <= size <= LOCAL_BUFFER_MAX:
                raise Failure(f"local_buffer_size: 0, or {SIZE_MIN} to {LOCAL_BUFFER_MAX} bytes, not {size}")
            at = split_address(_bracketed(address), CLIENT_PORT)
            if at is None:
                raise Failure(f"server_address '{address[:128]}' is not host:port")
            if not is_here(at[0]):
                raise Failure(f"mooncake_client '{address[:128]}' is not on this machine")
            with open(sign_of_client(at[1]), encoding="utf-8") as sign:
                instance = sign.readline(63).rstrip("\r\n")
            if not instance:
                raise Failure(f"'{sign_of_client(at[1])[:100]}' names no node")
            code, why = self._setup(instance, address[:NAME_BYTES], -1, 0, size, "", True)
        except OSError as error:
            return self._setup_refused("setup_dummy", INTERNAL, f"no mooncake_client at port {at[1]}: {error}")
        except Failure as failure:
            return self._setup_refused("setup_dummy", INTERNAL, str(failure))
        return OK if code == OK else self._setup_refused("setup_dummy", INTERNAL, why)

    @_accepts("init_all")
    def init_all(self, protocol: str, device_name: str, mount_segment_size: int = 16777216) -> int:
        """setup() with fixed addresses, as old tests use it."""
        _text(protocol), _text(device_name)
        return self._setup_here("localhost:12345", "etcd://localhost:2379", _number(mount_segment_size), 16 << 20, "localhost:50051", "default")

    def get_offload_rpc_read_count(self) -> int:
        """Always 0: the node reads its disks."""
        return 0

    @_accepts("get_into_ranges")
    def get_into_ranges(self, buffer_ptrs: "Sequence[int]", all_keys: "Sequence[Sequence[str | bytes]]",
                        all_dst_offsets: "Sequence[Sequence[Sequence[int]]]", all_src_offsets: "Sequence[Sequence[Sequence[int]]]",
                        all_sizes: "Sequence[Sequence[Sequence[int]]]") -> "list[list[list[int]]]":
        """Reads ranges of values into registered buffers. Returns a result for each fragment, nested as all_dst_offsets. Reads nothing
        for lists that differ in length."""
        buffers = _list(buffer_ptrs)
        outer = [_list(one) for one in (all_keys, all_dst_offsets, all_src_offsets, all_sizes)]
        rows, shape = [], []
        for at in range(len(outer[1])):
            own_keys, *own = (_list(one[at]) if at < len(one) else [] for one in outer)
            shape.append(len(own[0]))
            for number in range(len(own[0])):
                lists = [_list(one[number]) if number < len(one) else [] for one in own]
                fits = at < len(buffers) and number < len(own_keys) and len({len(one) for one in lists}) == 1
                rows.append((own_keys[number] if number < len(own_keys) else "", _number(buffers[at]) if fits else 0,
                             list(zip(*([_number(offset) for offset in one] for one in lists))) if fits else [(0, 0, 0)] * len(lists[0])))
        found = iter(self._ranges_read(rows))
        return [[next(found) for _ in range(count)] for count in shape]

    def _ranges_read(self, rows: "list[tuple[Any, int, list[tuple[int, int, int]]]]") -> "list[list[int]]":
        """rows: (key, buffer, [(offset in the buffer, offset in the value, bytes)]). Reads fragments that are within both; if the value
        changes meanwhile, all of the row fail."""
        keys, none = [key for key, _, _ in rows], [[]] * len(rows)
        lengths = self._read_parts(keys, none, none, none)
        results, parts = [], []
        for (_, buffer, fragments), length in zip(rows, lengths):
            room = self._registered(buffer)
            failed = length if length < 0 else INVALID if room == 0 else OK
            fine = [failed == OK and source + size <= length and target + size <= room for target, source, size in fragments]
            results.append([size if good else failed or INVALID for good, (_, _, size) in zip(fine, fragments)])
            parts.append([(buffer + target, size, source) for good, (target, source, size) in zip(fine, fragments) if good and size])
        columns = ([[part[column] for part in one] for one in parts] for column in range(3))
        for now, length, one in zip(self._read_parts(keys, *columns), lengths, results):
            if now != length:
                one[:] = [(NOT_READY if now >= 0 else now) if code >= 0 else code for code in one]  # the value was replaced meanwhile
        return results

    # ---- descriptors, and values that this process put
    def _replicas_of(self, keys: "list[Any]") -> "dict[Any, list[ReplicaDescriptor]]":
        found: "dict[Any, list[ReplicaDescriptor]]" = {}
        for key, (in_memory, on_disk, length, segment) in zip(keys, self._replicas(keys)):
            replicas = [ReplicaDescriptor() for there in (in_memory, on_disk) if there]
            for one, of_memory in zip(replicas, (True, False) if in_memory else (False,)):
                one._replica = of_memory, length, segment
            if replicas:
                found[_key_name(key)] = replicas
        return found

    @_accepts("get_replica_desc")
    def get_replica_desc(self, key: "str | bytes") -> "list[ReplicaDescriptor]":
        """Returns the ReplicaDescriptors of a key."""
        return next(iter(self._replicas_of([key]).values()), [])

    @_accepts("batch_get_replica_desc")
    def batch_get_replica_desc(self, keys: "Sequence[str | bytes]") -> "dict[str, list[ReplicaDescriptor]]":
        """Returns {key: ReplicaDescriptors}."""
        return self._replicas_of(_list(keys))

    @_accepts("batch_replica_clear")
    def batch_replica_clear(self, keys: "Sequence[str | bytes]", segment_name: str = "") -> "list[str]":
        """Removes values that this process put; returns the keys that were cleared."""
        own = _list(keys)
        return [_key_name(key) for key, cleared in zip(own, self._replica_clear(own, _text(segment_name))) if cleared]

    # ---- more segments: segment id HIGH-LOW is the contribution HOST#HIGHLOW
    def _segment_name(self, high: int, low: int) -> str:
        return f"{self.get_hostname()[:200]}#{high:016x}{low:016x}"

    def _mounted(self, size: int) -> "tuple[int, list[str]]":
        high, low = (int.from_bytes(os.urandom(8), "little") for _ in range(2))
        code = self._contribute(self._segment_name(high, low), size)
        return code, [f"{high}-{low}"] if code == OK else []

    @_accepts("mount_segment")
    def mount_segment(self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = "") -> "dict[str, Any]":
        """Returns {'ret': 0 or a code, 'segment_ids': [...]}. Mooncake maps the file; here it only has to be large enough, since the
        segment is a quota of the node's memory."""
        end, ids = _number(offset) + _number(size), []
        _text(protocol), _text(location)
        try:
            with open(_text(path), "r+b", buffering=0) as file:
                code = INVALID if os.path.isfile(path) and end > os.fstat(file.fileno()).st_size else OK
        except OSError as error:
            code = NO_FILE if error.errno == errno.ENOENT else FILE_OPEN
        if code == OK or not self.get_hostname():
            code, ids = self._mounted(size)
        return {"ret": code, "segment_ids": ids}

    @_accepts("allocate_and_mount_segment")
    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> "dict[str, Any]":
        """Returns {'ret': ..., 'segment_ids': [...], 'allocated_size': ...}."""
        _text(protocol), _text(location)
        rounded = min(-(-_number(size) // SLAB) * SLAB, U64_MAX)
        code, ids = self._mounted(rounded)
        return {"ret": code, "segment_ids": ids, "allocated_size": rounded if code == OK else 0}

    @_accepts("unmount_segment")
    def unmount_segment(self, segment_ids: "Sequence[str]", grace_period_seconds: int = 0) -> int:
        """Returns 0, or a code."""
        _number(grace_period_seconds)
        found = [re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20})", _word(one)) for one in _list(segment_ids)]
        if not self.get_hostname() or None in found:
            return INVALID
        codes = [self._withdraw(self._segment_name(int(one[1]), int(one[2]))) for one in found]
        return next((code for code in codes if code != OK), OK)

    unmount_and_free_segment = unmount_segment

    @_accepts("unmount_local_disk_segment")
    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """Returns -1010: disks belong to the node."""
        _number(grace_period_seconds)
        return NOT_NOW if self.get_hostname() else INVALID


class MooncakeHostMemAllocator:
    """Allocates shared memory of this process. Memory of one allocator may be freed by another."""

    __slots__ = ()

    @_accepts("alloc")
    def alloc(self, size: int, /) -> int:
        """Allocates `size` bytes and returns the address. Raises RuntimeError."""
        at = _store.memory_alloc(_number(size))
        if at == 0:
            raise RuntimeError(f"no shared memory of {size} bytes")
        return at

    @_accepts("free")
    def free(self, ptr: int, /) -> int:
        """Returns 0; -1: the address is not from alloc."""
        return _store.memory_free(_number(ptr))


def bind_to_numa_node(node: int, /) -> None:
    """Binds the calling thread to the CPUs and the memory of a NUMA node."""
    import ctypes  # only here, since it maps libffi

    number = operator.index(node)
    try:
        with open(f"/sys/devices/system/node/node{number}/cpulist", encoding="ascii") as file:
            runs = [run.split("-") for run in file.read().strip().split(",")]
        os.sched_setaffinity(0, {cpu for run in runs for cpu in range(int(run[0]), int(run[-1]) + 1)})
        nodes, library = (1 << number).to_bytes(NUMA_NODES_MAX // 8, sys.byteorder), ctypes.CDLL(None, use_errno=True)
        if library.syscall(SET_MEMPOLICY[os.uname().machine], MPOL_BIND, nodes, ctypes.c_ulong(NUMA_NODES_MAX)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (OSError, ValueError, OverflowError, KeyError) as error:
        _say(f"bind_to_numa_node({number}): {error}")
