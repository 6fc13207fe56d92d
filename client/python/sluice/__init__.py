"""Sluice: the KV cache of large language models outside the inference engine.

    with sluice.Client() as client:
        client.put("greeting", b"hello")
        with client.get_pinned("greeting") as view:
            print(bytes(view))

Every object is a context manager. After close(), end() or release() it refuses calls. A memoryview, an array, an op or a call in another
thread keeps the memory that it uses until it has ended. Calls that can wait release the
GIL, and each ends by its timeout (seconds; None: the node's op_timeout). Failures raise SluiceError or the subclass of its code.
"""

import enum as _enum
from typing import NamedTuple as _NamedTuple
from typing import Optional as _Optional
from typing import Sequence as _Sequence

from . import _native
from ._native import *  # noqa: F401,F403 - the types, the records and the exceptions
from ._batches import Batches  # noqa: F401
from ._modes import store_config  # noqa: F401
from ._native import CODES, __version__

Code = _enum.IntEnum("Code", CODES, module=__name__)
Code.__doc__ = "The error codes of libsluice, without SL_ERR_. SluiceError.code and the lists that batches return hold them as ints."

POOL_ATTENTION, POOL_MAMBA_STATE, POOL_MAMBA_CONV, POOL_INDEXER, POOL_OTHER = 0, 1, 2, 3, 255
HANDOVER_BY_ENVIRONMENT, HANDOVER_BY_STORAGE, HANDOVER_DIRECT = 0, 1, 2


class Layer(_NamedTuple):
    """Memory of one layer of one pool of one rank, in bytes. K and V of a layer are two layers of a pool. piece: bytes of one block. In a
    pool with part_count, one Layer is one part of a layer: `part` counts from the rank's first part, and layers of a part are in table
    order. fragment: a piece is runs of `fragment` bytes, whose starts are fragment_stride bytes apart; 0: it is one run."""

    offset: int
    length: int
    block_stride: int
    piece: int
    part: int = 0
    fragment: int = 0
    fragment_stride: int = 0


class Pool(_NamedTuple):
    """One kind of cache, on every rank. memory_bytes 0: up to the end of the last layer. The memory is one of: fds, a descriptor of
    shared memory for each rank; device_pools, a DevicePool for each rank; device, for each rank the address of each layer, in CUDA memory
    of this process (tensor.data_ptr()) or plain memory. With none of them libsluice allocates it. In a team these have a row for each
    rank of this process. part_count: parts of a block, whatever the number of ranks; 0: one for each rank. first_parts: the first part of
    each rank of the world; None: ranks have equal shares."""

    name: str
    kind: int
    layers: _Sequence[Layer]
    memory_bytes: int = 0
    fds: _Optional[_Sequence[int]] = None
    device_pools: _Optional[_Sequence["_native.DevicePool"]] = None
    device: _Optional[_Sequence[_Sequence[int]]] = None
    part_count: int = 0
    first_parts: _Optional[_Sequence[int]] = None


__all__ = [name for name in dir() if not name.startswith("_")] + ["__version__"]
