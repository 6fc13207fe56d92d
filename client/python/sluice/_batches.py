"""Batches of the native module, with a prefix before each key, and rows of memory."""

import operator

from . import _native

KEY_BYTES_MAX = 1024


class Batches(_native.Batches):
    """Batches(client, *, threads=3, depth=1024, timeout=10, prefix='')

    Many objects in one job, in the background: submitting never waits, and each job ends by its timeout. With more than depth
    jobs at work a further one ends at once as failed. prefix goes before each key."""

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
        if not self._prefix or _loose(keys):  # the last are refused
            return keys
        texts = (key.decode() if isinstance(key, bytes) else key for key in keys)
        return [text and self._prefix + text for text in texts]  # an empty one is refused

    def put(self, keys, buffers, *, timeout=None):
        """Stores each buffer; a key that exists is success. The number of the job. The buffers are used until the job was drained."""
        return super().put(self._names(keys), buffers, timeout=timeout)

    def get(self, keys, buffers, *, timeout=None):
        """Reads each value into its buffer. A value of another size is a failure, and the buffer then holds anything."""
        return super().get(self._names(keys), buffers, timeout=timeout)

    def put_rows(self, keys, memory, rows, *, timeout=None):
        """As put, of rows of memory with two dimensions. Keys are any bytes; their hexadecimal digits are stored. Of arrays whose
        items no memoryview has (bfloat16, datetime64): array.view("uint8")."""
        return self.put(_digits(keys), _rows(memory, rows), timeout=timeout)

    def get_rows(self, keys, memory, rows, *, timeout=None):
        """As get, into rows of memory."""
        return self.get(_digits(keys), _rows(memory, rows), timeout=timeout)

    def exists(self, keys, *, timeout=None):
        """Whether this node or a peer has each."""
        return super().exists(self._names(keys), timeout=timeout)

    def remove(self, keys, *, timeout=None):
        """Removes each from this node."""
        return super().remove(self._names(keys), timeout=timeout)

    def look(self, keys, *, timeout=None):
        """As exists, at once: a list of bools. Without peers it waits for nobody. What is not known is False."""
        return super().look(self._names(keys), timeout=timeout)


Batches.__module__ = "sluice"


def _loose(given):
    """No sequence, or one that is a text: what it gives has no order, or none twice."""
    return isinstance(given, (dict, str, bytes)) or not hasattr(type(given), "__getitem__")


def _digits(keys):
    if _loose(keys) or not all(isinstance(key, bytes) and key for key in keys):
        raise TypeError("keys of rows: a sequence of bytes, one or more, is needed")
    return [key.hex() for key in keys]


def _rows(memory, rows):
    """Of one buffer of two dimensions: each key has that of its number."""
    view = memoryview(memory)
    count = view.shape[0] if view.ndim >= 2 else 0
    if not count or not view.nbytes or not view.c_contiguous:
        raise _native.InvalidError("rows: memory of two dimensions, one row behind the other, is needed")
    if _loose(rows):
        raise TypeError("rows: a sequence is needed")
    flat, length, numbers = view.cast("B"), view.nbytes // count, [operator.index(row) for row in rows]  # not numpy's: they wrap
    for row in numbers:
        if row < 0:
            raise OverflowError("rows: a number of 32 bits is needed")
        if row >= count:
            raise _native.InvalidError("rows: the memory has no such row")
    return [flat[row * length:(row + 1) * length] for row in numbers]
