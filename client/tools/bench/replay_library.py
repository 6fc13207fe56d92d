"""The engine of `sluicectl replay`: calls of sluice.h by ctypes, with blocks in host memory.

The package sluice has the same calls, but it is an extension that may be missing beside sluicectl: in a mooncake wheel, in Debian's
package sluice, in a build without CPython's headers. libsluice is always installed."""

import ctypes
import glob
import os
import sys
from array import array
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_uint32, c_uint64, c_void_p

from replay_trace import BLOCK_TOKENS

API_VERSION = 6  # of sluice.h: sl_client_open refuses any other, so the structures here match those of the library
OK, NOT_FOUND, LIMIT, TIMEOUT, UNREACHABLE, PROTOCOL, VERSION, PERMISSION, INVALID, CONFIG, FOREIGN = 0, 1, 4, 5, 8, 12, 13, 14, 15, 17, 19
HERE = os.path.dirname(os.path.realpath(__file__))
PREFIX = os.path.dirname(os.path.dirname(HERE))  # of share/sluice and bin


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Error(Structure):
    _fields_ = [("code", c_int), ("os_code", c_int), ("text", c_char * 240)]

    def message(self):
        return self.text.decode(errors="replace") or error_text(self.code)


class _ClientOptions(Structure):
    _fields_ = [("api_version", c_uint32), ("instance", c_char_p), ("config", c_char_p), ("timeout_ns", c_uint64), ("read_only", c_bool),
                ("leases", c_bool), ("settings", POINTER(c_char_p))]


class _Layer(Structure):
    _fields_ = [("offset_bytes", c_uint64), ("length_bytes", c_uint64), ("block_stride_bytes", c_uint64), ("piece_bytes", c_uint64),
                ("part", c_uint32), ("fragment_bytes", c_uint64), ("fragment_stride_bytes", c_uint64)]


class _Pool(Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("layer_count", c_uint32), ("layers", POINTER(_Layer)), ("memory_bytes", c_uint64),
                ("fds", c_void_p), ("from", c_void_p), ("device", c_void_p), ("part_count", c_uint32), ("first_parts", c_void_p)]


class _Model(Structure):
    _fields_ = [(name, c_char_p) for name in ("name", "revision", "dtype", "layout", "rope", "lora", "quantisation")]


class _EngineOptions(Structure):
    _fields_ = [("name", c_char_p), ("model", _Model), ("key_format", c_char_p), ("seed", c_char_p), ("block_tokens", c_uint32),
                ("world", c_uint32), ("block_count", c_uint32), ("pool_count", c_uint32), ("pools", POINTER(_Pool)), ("team", c_uint64),
                ("first_rank", c_uint32), ("rank_count", c_uint32)]


class Hints(Structure):
    _fields_ = [("session", c_int), ("priority", c_int), ("keep_ns", c_uint64), ("session_id", c_char_p), ("pause_ns", c_uint64)]


class Prefill(Structure):
    _fields_ = [("prefill_tokens_per_s", c_uint64), ("attention_doubles_at", c_uint64)]


class _Request(Structure):
    _fields_ = [("tokens", POINTER(c_uint32)), ("token_count", c_uint32), ("extras", c_char_p), ("first_block", c_uint32), ("partial", c_bool),
                ("device_blocks", c_void_p), ("device_block_count", c_uint32), ("timeout_ns", c_uint64), ("trace_id", c_uint64),
                ("layer_count", c_uint32), ("layer_ends", c_void_p), ("events", c_void_p), ("event_count", c_uint32), ("hashes", c_void_p),
                ("hash_bytes", c_uint32), ("pool_blocks", c_void_p), ("before_hash", c_void_p), ("hints", Hints), ("context", c_void_p),
                ("prefill", Prefill)]


class Result(Structure):
    _fields_ = [("code", c_int), ("op_id", c_uint64), ("trace_id", c_uint64), ("block_count", c_uint32), ("stored_count", c_uint32),
                ("existed_count", c_uint32), ("from_memory", c_uint32), ("from_disk", c_uint32), ("from_remote", c_uint32), ("bytes", c_uint64),
                ("fenced", c_bool), ("why", Error), ("not_awaited_count", c_uint32)]


class _Place(Structure):  # of replay_content.h
    _fields_ = [("memory", c_void_p), ("layers", POINTER(_Layer)), ("layer_count", c_uint64), ("block_bytes", c_uint64), ("rank", c_uint32),
                ("pool", c_uint32), ("part", POINTER(c_uint64))]


def _load(places, functions):
    """The first library that loads: the system may have several architectures."""
    failed = []
    for place in places:
        try:
            library = ctypes.CDLL(place)
            for name, result, arguments in functions:
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
            return library
        except (OSError, AttributeError) as error:
            failed.append(str(error))
    sys.exit("sluicectl replay: " + "; ".join(failed))


_START = [c_void_p, POINTER(_Request), POINTER(c_void_p), POINTER(Error)]
_library = _load([*glob.glob(PREFIX + "/lib/*/libsluice.so.0"), *glob.glob(PREFIX + "/lib*/libsluice.so.0"), "libsluice.so.0"], (
    ("sl_client_open", c_int, [POINTER(_ClientOptions), POINTER(c_void_p), POINTER(Error)]),
    ("sl_client_close", None, [POINTER(c_void_p)]),
    ("sl_client_instance", c_char_p, [c_void_p]),
    ("sl_engine_register", c_int, [c_void_p, POINTER(_EngineOptions), c_uint64, POINTER(c_void_p), POINTER(Error)]),
    ("sl_engine_memory", c_void_p, [c_void_p, c_uint32, c_uint32]),
    ("sl_engine_end", None, [POINTER(c_void_p)]),
    ("sl_store_start", c_int, _START),
    ("sl_load_start", c_int, _START),
    ("sl_op_wait", c_int, [c_void_p, c_uint64, POINTER(Result)]),
    ("sl_op_wait_fenced", c_int, [c_void_p, c_uint64, POINTER(Error)]),
    ("sl_op_block_stored", c_bool, [c_void_p, c_uint32]),
    ("sl_op_block_existed", c_bool, [c_void_p, c_uint32]),
    ("sl_op_release", None, [POINTER(c_void_p)]),
    ("sl_err_name", c_char_p, [c_int]),
    ("sl_err_text", c_char_p, [c_int])))
_content = _load([*glob.glob(PREFIX + "/lib/*/sluice/libreplay.so"), *glob.glob(PREFIX + "/lib*/sluice/libreplay.so"), HERE + "/libreplay.so"], (
    ("replay_layers", c_uint64, [c_uint64, c_uint64, c_uint64, POINTER(_Layer)]),
    ("replay_prepare", None, [c_void_p, c_uint32, c_uint32, c_uint32, POINTER(c_uint32), c_void_p, c_uint32]),
    ("replay_poison", None, [POINTER(_Place), c_void_p, c_uint32]),
    ("replay_compute", None, [POINTER(_Place), c_void_p, c_void_p, c_uint32]),
    ("replay_check", c_uint32, [POINTER(_Place), c_void_p, c_void_p, c_uint32, c_void_p]),
    ("replay_shm_dir", c_int, [c_char_p, c_int, POINTER(c_char_p), c_char * 1024, POINTER(Error)]),
    ("replay_counters", c_int, [c_char_p, POINTER(c_char_p), c_uint32, POINTER(c_uint64), POINTER(Error)])))


def error_name(code):
    return _library.sl_err_name(code).decode()


def error_text(code):
    return _library.sl_err_text(code).decode()


def _at(numbers, first=0):
    """The address of an item of an array."""
    return numbers.buffer_info()[0] + first * numbers.itemsize


def _check(code, why):
    if code != OK:
        raise Failure(code, why.message())


class Pages:
    """A node's metrics pages, read without messages to actors."""

    def __init__(self, config, settings):
        found, why, words = (c_char * 1024)(), Error(), [b"", *(b"--" + os.fsencode(setting) for setting in settings)]
        _check(_content.replay_shm_dir(os.fsencode(config) or None, len(words), (c_char_p * len(words))(*words), found, byref(why)), why)
        self.shm_dir = found.value

    def ranks(self):
        return sum(name.startswith(b"metrics.swapper.") for name in os.listdir(self.shm_dir))

    def counters(self, actor, *names):
        """Values of an actor's metrics; 0 for a name that it lacks."""
        values, why = (c_uint64 * len(names))(), Error()
        texts = (c_char_p * len(names))(*(name.encode() for name in names))
        _check(_content.replay_counters(self.shm_dir + b"/metrics." + actor.encode(), texts, len(names), values, byref(why)), why)
        return list(values)


class Op:
    """A running or ended op. It keeps the numbers of its device blocks, which may be in use until it is fenced."""

    def __init__(self, handle, blocks):
        self.handle, self.blocks = handle, blocks

    def fenced(self, wait_ns):
        """Waits until no process uses the blocks any more. True: they are free, and the op was released."""
        if _library.sl_op_wait_fenced(self.handle, wait_ns, None) != OK:
            return False
        self.release()
        return True

    def stored(self, block):
        return _library.sl_op_block_stored(self.handle, block)

    def existed(self, block):
        return _library.sl_op_block_existed(self.handle, block)

    def release(self):
        _library.sl_op_release(byref(self.handle))


class Engine:
    """A client of a node with one engine, whose device is host memory. replay_content.c makes tokens and bytes of a request's blocks.
    Device blocks are an array of "I", chains an array of "Q"."""

    def __init__(self, config, settings, *, ranks, pools, layers, block_bytes, block_count, token_count, key_format, timeout_ns):
        self.client, self.engine, why = c_void_p(), c_void_p(), Error()
        self.tokens = (c_uint32 * token_count)()
        self.request = _Request(tokens=self.tokens, partial=True, timeout_ns=timeout_ns)
        texts = (c_char_p * (len(settings) + 1))(*map(os.fsencode, settings))
        options = _ClientOptions(api_version=API_VERSION, config=os.fsencode(config) or None, settings=texts)
        _check(_library.sl_client_open(byref(options), byref(self.client), byref(why)), why)
        self.instance = _library.sl_client_instance(self.client).decode(errors="replace")
        rows = (_Layer * layers)()
        memory_bytes = _content.replay_layers(layers, block_bytes, block_count, rows)
        tables = (_Pool * pools)(*((b"pool%d" % i, 0, layers, rows, memory_bytes) for i in range(pools)))
        engine = _EngineOptions(
            name=b"replay", model=_Model(name=b"replay", revision=b"1", dtype=b"u8", layout=b"layer-first"), key_format=key_format.encode(),
            block_tokens=BLOCK_TOKENS, world=ranks, block_count=block_count, pool_count=pools, pools=tables)
        _check(_library.sl_engine_register(self.client, byref(engine), 0, byref(self.engine), byref(why)), why)
        part = (c_uint64 * -(-block_bytes // 8))()
        self.places = [_Place(_library.sl_engine_memory(self.engine, rank, pool), rows, layers, block_bytes, rank, pool, part)
                       for rank in range(ranks) for pool in range(pools)]

    def prepare(self, ids, token_count, block_count):
        """Makes the tokens of a request. Gives the chains of its first blocks; each depends on all tokens up to the end of its block."""
        chains = array("Q", bytes(8 * block_count))
        self.request.token_count = token_count
        _content.replay_prepare(_at(ids), len(ids), BLOCK_TOKENS, token_count, self.tokens, _at(chains), block_count)
        return chains

    def poison(self, blocks):
        for place in self.places:
            _content.replay_poison(place, _at(blocks), len(blocks))

    def compute(self, blocks, chains, first):
        for place in self.places:
            _content.replay_compute(place, _at(blocks, first), _at(chains, first), len(blocks) - first)

    def wrong(self, blocks, chains, count):
        """(block, rank, pool, layer) of every block among the first `count` that has a wrong byte."""
        layers = array("i", bytes(4 * count))
        for place in self.places:
            if _content.replay_check(place, _at(blocks), _at(chains), count, _at(layers)):
                yield from ((i, place.rank, place.pool, layer) for i, layer in enumerate(layers) if layer >= 0)

    def run(self, store, blocks, first, hints, prefill):
        """Runs an op of the request on the blocks from `first` on until it ends. Gives the op (None: it could not start) and its result."""
        request, handle, result = self.request, c_void_p(), Result()
        request.first_block, request.device_blocks, request.device_block_count = first, _at(blocks, first), len(blocks) - first
        request.hints, request.prefill = hints, prefill
        start = _library.sl_store_start if store else _library.sl_load_start
        result.code = start(self.engine, byref(request), byref(handle), byref(result.why))
        if result.code != OK:
            result.fenced = True
            return None, result
        _library.sl_op_wait(handle, 0, byref(result))
        return Op(handle, blocks), result

    def close(self):
        if self.engine:
            _library.sl_engine_end(byref(self.engine))
        if self.client:
            _library.sl_client_close(byref(self.client))
