"""The order in which a node evicts blocks, for sluice.advise: calls the node's own code (runtime/policy/density) by ctypes."""

import ctypes
import os
import threading
from ctypes import POINTER, Structure, byref, c_bool, c_double, c_int, c_uint32, c_uint64, c_void_p

BLOCKS_MAX = 1 << 30
GHOSTS = 65536, 1048576  # SL_DENSITY_GHOSTS_MIN, _MAX
HINTS, PRIORITY_NORMAL = 3, 2


class _Options(Structure):
    _fields_ = [("ghosts_min", c_uint64), ("ghosts_max", c_uint64)]


class _Wanted(Structure):  # struct reg_wanted
    _fields_ = [("parent_hash", c_uint64), ("stored_count", c_uint32), ("cut", c_bool), ("hint", c_int), ("priority", c_int)]


# PyDLL: calls are short and keep the GIL.
_library = ctypes.PyDLL(os.path.join(os.path.dirname(os.path.realpath(__file__)), "libdensity.so"))
for _name, _result, _arguments in (
        ("create", c_int, (POINTER(_Options), POINTER(c_void_p))), ("destroy", None, (POINTER(c_void_p),)),
        ("now", None, (c_void_p, c_uint32, c_uint64)), ("use", None, (c_void_p, c_uint32, c_int)),
        ("hint", None, (c_void_p, c_uint32, c_int, c_int)), ("enter", c_uint32, (c_void_p, c_uint64, c_uint32, POINTER(_Wanted))),
        ("next", c_uint32, (c_void_p, c_bool)), ("first", c_uint32, (c_void_p,)), ("user", c_uint32, (c_void_p, c_uint32)),
        ("leave", None, (c_void_p, c_uint32)), ("chance", c_double, (c_void_p, c_uint32, c_uint64))):
    _function = getattr(_library, "sl_density_" + _name)
    _function.restype, _function.argtypes = _result, _arguments
_use, _hint, _enter = _library.sl_density_use, _library.sl_density_hint, _library.sl_density_enter


def _number(block):
    if not 0 <= block < BLOCKS_MAX:
        raise ValueError(f"block {block} is not below 2^30")
    return block


def _hash(block):
    return hash((_number(block),)) & (1 << 64) - 1 or 1


class Density:
    """The blocks in memory, evicted by density. Threads may share it."""

    def __init__(self):
        self._at, self._units, self._lock = c_void_p(), {}, threading.Lock()
        if _library.sl_density_create(byref(_Options(*GHOSTS)), byref(self._at)) != 0:
            raise MemoryError

    def __del__(self):
        _library.sl_density_destroy(byref(self._at))

    def __contains__(self, block):
        return _number(block) in self._units

    def use(self, ids, to, before, stored, hint, now_s):
        """Notes a request. ids: blocks of a chain; those whose byte in `to` is not 0 are in memory or are added to it. before: the block
        before the first one, or None. stored: number of new blocks. Blocks in memory are used from the end on, as engines report them."""
        if len(ids) != len(to) or not 0 <= hint < HINTS:
            raise ValueError("a byte a block, and a hint below 3 are needed")
        at, units = self._at, self._units
        with self._lock:
            _library.sl_density_now(at, now_s, 0)
            for i in range(len(ids) - 1, -1, -1):
                unit = units.get(ids[i]) if to[i] else None
                if unit:
                    _use(at, unit, hint)
                    _hint(at, unit, hint, PRIORITY_NORMAL)
            wanted = _Wanted(0, max(stored, 1), False, hint, PRIORITY_NORMAL)
            for i, block in enumerate(ids):
                if to[i] and block not in units:
                    parent = ids[i - 1] if i else before
                    wanted.parent_hash, wanted.cut = 0 if parent is None else _hash(parent), i + 1 == len(ids)
                    unit = _enter(at, _hash(block), block, byref(wanted))
                    if not unit:
                        raise MemoryError
                    units[block] = unit

    def evict(self):
        """Removes and returns the block to evict. A walk continues at the last victim; a use starts the next walk."""
        with self._lock:
            unit = _library.sl_density_next(self._at, False) or _library.sl_density_first(self._at)
            if not unit:
                raise IndexError("no block is in memory")
            block = _library.sl_density_user(self._at, unit)
            _library.sl_density_leave(self._at, unit)
            del self._units[block]
        return block

    def chance(self, block, references):
        """Probability that the block is used within the next `references` references; 1 for a block that is not in memory."""
        with self._lock:
            unit = self._units.get(_number(block))
            return _library.sl_density_chance(self._at, unit, references) if unit else 1.0
