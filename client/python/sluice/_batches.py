"""Batches of the native module, with a prefix for keys, and with rows of an array as values."""

import operator

from . import _native

KEY_BYTES_MAX = 1024


class Batches(_native.Batches):
    """Batches(client, *, threads=3, depth=1024, timeout=10, prefix='')

    Runs jobs of many objects in the background. Submitting never waits, and each job ends by its timeout. A job beyond `depth` queued and
    running ones fails at once. prefix is put before each key."""

    __slots__ = ("_prefix",)

    def __new__(cls, client, *, threads=3, depth=1024, timeout=None, prefix=""):
        if not isinstance(prefix, str):
            raise TypeError("prefix: a str is needed")
        if len(prefix.encode()) > KEY_BYTES_MAX or "\0" in prefix:
            raise _native.InvalidError("prefix: a key has at most 1024 bytes in UTF-8 and no NUL")
        made = super().__new__(cls, client, threads=threads, depth=depth, timeout=timeout)
        made._prefix = prefix
        return made

    def _names(self, keys):
        if not self._prefix or _loose(keys):  # native code refuses the latter
            return keys
        texts = (key.decode() if isinstance(key, bytes) else key for key in keys)
        return [text and self._prefix + text for text in texts]  # native code refuses an empty key

    def put(self, keys, buffers, *, timeout=None):
        """Stores each buffer and returns the job's number. A key that exists is success. Buffers are in use until drain returns the job."""
        return super().put(self._names(keys), buffers, timeout=timeout)

    def get(self, keys, buffers, *, timeout=None):
        """Reads each value into its buffer; returns the job's number. A value of another size fails, and its buffer is undefined."""
        return super().get(self._names(keys), buffers, timeout=timeout)

    def put_rows(self, keys, memory, rows, *, timeout=None):
        """As put, with rows of a two-dimensional array as values. Keys are any bytes; their hexadecimal digits are stored. For arrays
        whose items a memoryview cannot hold (bfloat16, datetime64) pass array.view("uint8")."""
        return self.put(_digits(keys), _rows(memory, rows), timeout=timeout)

    def get_rows(self, keys, memory, rows, *, timeout=None):
        """As get, into rows of a two-dimensional array."""
        return self.get(_digits(keys), _rows(memory, rows), timeout=timeout)

    def exists(self, keys, *, timeout=None):
        """Looks up whether this node or a peer has each key; returns the job's number."""
        return super().exists(self._names(keys), timeout=timeout)

    def remove(self, keys, *, timeout=None):
        """Removes each key from this node; returns the job's number."""
        return super().remove(self._names(keys), timeout=timeout)

    def look(self, keys, *, timeout=None):
        """As exists, but in this call: returns a list of bools. Without peers it does not wait. An unknown state is False."""
        return super().look(self._names(keys), timeout=timeout)


Batches.__module__ = "sluice"


def _loose(given):
    """Whether it is no sequence of keys: a text, or an object without an order or that can be iterated only once."""
    return isinstance(given, (dict, str, bytes)) or not hasattr(type(given), "__getitem__")


def _digits(keys):
    if _loose(keys) or not all(isinstance(key, bytes) and key for key in keys):
        raise TypeError("keys of rows: a sequence of bytes, one or more, is needed")
    return [key.hex() for key in keys]


def _rows(memory, rows):
    """The rows of a two-dimensional buffer, as flat memoryviews."""
    view = memoryview(memory)
    count = view.shape[0] if view.ndim >= 2 else 0
    if not count or not view.nbytes or not view.c_contiguous:
        raise _native.InvalidError("rows: contiguous memory of two dimensions is needed")
    if _loose(rows):
        raise TypeError("rows: a sequence is needed")
    flat, length, numbers = view.cast("B"), view.nbytes // count, [operator.index(row) for row in rows]  # not numpy's: they wrap
    for row in numbers:
        if row < 0:
            raise OverflowError("rows: a 32-bit number is needed")
        if row >= count:
            raise _native.InvalidError("rows: the memory has no such row")
    return [flat[row * length:(row + 1) * length] for row in numbers]
