"""libsluice for the daemons: the calls of sluice.h that they need, by ctypes, and the names of keys on a node.

Keys of the default tenant are their own names, unless they begin with the mark; others are mark, tenant, mark, key. A key that a node
cannot have (over 1,024 bytes with its prefix, with a zero byte, or not UTF-8) is named by its digest (client/mooncake/store/names.h)."""

import ctypes
import glob
import hashlib
import os
import re
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

API_VERSION = 6  # of sluice.h; sl_client_open refuses others
OK, NOT_FOUND, BUSY, LIMIT, TIMEOUT, UNREACHABLE, UNSUPPORTED, LEASED = 0, 1, 3, 4, 5, 8, 16, 27
RETRY = (BUSY, LIMIT, TIMEOUT, 6, 7, UNREACHABLE, 11, 12, 13, 20, 21, 23)  # codes after which the same call may succeed later
CALL_NS = 2_000_000_000  # longest wait for the registrar
CONTRIBUTIONS_MAX = 64
MARK, DIGEST_MARK = b"\x01", b"\x03"  # names.h
NAME_BYTES_MAX, KEY_BYTES_MAX = 1024, 1 << 20


class NodeError(Exception):
    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class _Error(Structure):
    _fields_ = [("code", c_int), ("os_code", c_int), ("text", c_char * 240)]


class _Options(Structure):
    _fields_ = [("api_version", c_uint32), ("instance", c_char_p), ("config", c_char_p), ("timeout_ns", c_uint64), ("read_only", c_bool),
                ("leases", c_bool), ("settings", c_void_p)]


class _Key(Structure):
    _fields_ = [("at", c_char_p), ("length", c_uint32)]


class _RemoveOptions(Structure):
    _fields_ = [("respect_leases", c_bool), ("report_busy", c_bool)]


class _Stat(Structure):
    _fields_ = [("length_bytes", c_uint64), ("lease_end_ns", c_uint64), ("contributions", c_uint64), ("in_memory", c_bool),
                ("on_disk", c_bool), ("hard_pin", c_bool), ("ours", c_bool), ("soft_pin_end_ns", c_uint64), ("writer_pid", c_uint32)]


class _Contribution(Structure):
    _fields_ = [("name", c_char * 256), ("number", c_uint32), ("length_bytes", c_uint64), ("used_bytes", c_uint64),
                ("value_count", c_uint64), ("process", c_char * 32), ("pid", c_uint32)]


class _Listed(Structure):  # the first fields of sl_object_info
    _fields_ = [("at", c_void_p), ("length", c_uint32)]


_EACH = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(_Listed))


class Segment(NamedTuple):
    """A contribution of a process."""
    name: str
    number: int
    length: int
    used: int
    values: int
    process: str
    pid: int


class Found(NamedTuple):
    code: int
    length: int
    segments: int  # bit set of segment numbers
    in_memory: bool
    on_disk: bool


def _load(bin_directory: str) -> ctypes.CDLL:
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    places = [package + "/lib/libsluice.so.0", bin_directory + "/../lib/libsluice.so.0", *glob.glob(bin_directory + "/../lib/*/libsluice.so.0")]
    library = ctypes.CDLL(next((place for place in places if os.path.exists(place)), "libsluice.so.0"))
    for name, arguments in {
            "sl_client_open": [POINTER(_Options), POINTER(c_void_p), POINTER(_Error)],
            "sl_client_close": [POINTER(c_void_p)],
            "sl_segment_mount": [c_void_p, c_char_p, c_uint64, c_bool, c_uint64, POINTER(_Error)],
            "sl_segment_unmount": [c_void_p, c_char_p, c_uint64, POINTER(_Error)],
            "sl_segments": [c_void_p, POINTER(_Contribution), POINTER(c_uint32), c_uint64, POINTER(_Error)],
            "sl_stat_batch": [c_void_p, POINTER(_Key), c_uint32, POINTER(_Stat), POINTER(c_int)],
            "sl_list": [c_void_p, c_char_p, _EACH, c_void_p, POINTER(_Error)],
            "sl_remove_batch": [c_void_p, POINTER(_Key), c_uint32, POINTER(_RemoveOptions), POINTER(c_int), c_uint64, POINTER(_Error)],
    }.items():
        getattr(library, name).argtypes = arguments
    return library


class Node:
    """A client of the node with this name. Any thread, except close()."""
    _library: Optional[ctypes.CDLL] = None

    def __init__(self, instance: str, bin_directory: str, read_only: bool = False):
        self._client = c_void_p()
        Node._library = Node._library or _load(bin_directory)
        options = _Options(api_version=API_VERSION, instance=instance.encode(), timeout_ns=CALL_NS, read_only=read_only)
        self._call("sl_client_open", byref(options), byref(self._client), client=False)

    def _call(self, name: str, *arguments: Any, client: bool = True) -> None:
        why = _Error()
        handle = (self._client,) if client else ()
        code = getattr(self._library, name)(*handle, *arguments, byref(why))
        if code != OK:
            raise NodeError(code, why.text.decode("utf-8", "replace") or f"{name}: code {code}")

    def close(self) -> None:
        """Closes the client; no other thread may use it."""
        if self._client:
            self._library.sl_client_close(byref(self._client))

    __del__ = close

    def contribute(self, name: str, length: int) -> None:
        self._call("sl_segment_mount", name.encode(), length, False, CALL_NS)

    def withdraw(self, name: str) -> None:
        self._call("sl_segment_unmount", name.encode(), CALL_NS)

    def segments(self) -> List[Segment]:
        infos, count = (_Contribution * CONTRIBUTIONS_MAX)(), c_uint32()
        self._call("sl_segments", infos, byref(count), CALL_NS)
        return [Segment(info.name.decode("utf-8", "replace"), info.number, info.length_bytes, info.used_bytes, info.value_count,
                        info.process.decode("utf-8", "replace"), info.pid) for info in infos[:count.value]]

    def stat(self, names: Sequence[bytes]) -> List[Found]:
        """Looks names up without leasing them."""
        stats, codes = (_Stat * len(names))(), (c_int * len(names))()
        if names:
            self._library.sl_stat_batch(self._client, _keys(names), len(names), stats, codes)
        return [Found(code, stat.length_bytes, stat.contributions, stat.in_memory, stat.on_disk) for code, stat in zip(codes, stats)]

    def list(self, each: Callable[[bytes], bool]) -> None:
        """Calls each(name) for every visible value until it returns False. Reads shared memory, asks no actor."""
        def one(_: Any, info: Any) -> bool:
            return each(ctypes.string_at(info[0].at, info[0].length))
        self._call("sl_list", None, _EACH(one), None)

    def remove(self, names: Sequence[bytes], force: bool) -> List[int]:
        """Removes values; returns a code for each. Without force, leased values stay."""
        codes = (c_int * len(names))()
        self._call("sl_remove_batch", _keys(names), len(names), byref(_RemoveOptions(not force, True)), codes, CALL_NS)
        return list(codes)


def _keys(names: Sequence[bytes]) -> Any:
    return (_Key * len(names))(*(_Key(name, len(name)) for name in names))


# ---- names of keys

def tenant_prefix(tenant: str) -> bytes:
    return b"" if tenant == "default" else MARK + tenant.encode() + MARK


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in key


def _digest_name(prefix: bytes, key: bytes) -> bytes:
    return (prefix or MARK + MARK)[:-1] + DIGEST_MARK + b"%s-%d" % (hashlib.sha256(key).hexdigest().encode(), len(key))


def name_of(prefix: bytes, key: bytes) -> Optional[bytes]:
    """Name of a tenant's key on the node. None: invalid key."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        return None
    own = MARK + MARK if not prefix and key.startswith(MARK) else prefix
    return own + key if len(own) + len(key) <= NAME_BYTES_MAX and _is_text(key) else _digest_name(prefix, key)


def key_of(prefix: bytes, name: bytes) -> Optional[bytes]:
    """The tenant's key for a name; None: another tenant's name, or one by digest."""
    if not prefix and not name.startswith(MARK):
        return name
    full = prefix or MARK + MARK
    return name[len(full):] if name.startswith(full) and len(name) > len(full) else None


def is_digest(prefix: bytes, name: bytes) -> bool:
    """Whether a name is one by digest of this tenant."""
    return re.fullmatch(re.escape((prefix or MARK + MARK)[:-1] + DIGEST_MARK) + rb"[0-9a-f-]+", name) is not None
