"""Records that the native module returns, and the exceptions that it raises: one for each code of libsluice."""

from typing import NamedTuple, Optional


class ObjectInfo(NamedTuple):
    """An object of this node."""

    key: str
    size: int  # bytes of the value
    in_memory: bool
    on_disk: bool
    digest: int  # of 128 bits: XXH3-128 over the XXH3-64s of its 16 KiB chunks


class MissReason(NamedTuple):
    """Why a key is a miss."""

    code: int  # 0: it exists; BUSY: being written; NOT_FOUND
    ago: Optional[float]  # seconds since it was evicted or removed; None: not known
    text: str


class NodeInfo(NamedTuple):
    """Another node."""

    name: str
    address: str  # where this node sends requests; "": only the peer sends them
    state: str  # alive, away, broken, or why it is not a peer
    link: str  # connection for values: up, connecting, down
    source: str  # how this node learned of it: peers, directory
    incarnation: int
    round_trip: float  # seconds
    last_seen_ago: float  # seconds since its last message
    read_bytes: int
    read_values: int
    failures: int
    pinned_values: int


class ClusterInfo(NamedTuple):
    """This node, as its peers see it."""

    name: str  # "": no peers are configured
    listen: str  # where peers send requests; "": nowhere
    fabric: str  # transport for values: tcp, verbs


class OpResult(NamedTuple):
    """The result of an ended op."""

    code: int  # 0, or why it failed
    op_id: int
    trace_id: int  # for sluicectl trace
    block_count: int  # store: requested; load: loaded, from first_block on
    stored_count: int
    existed_count: int
    from_memory: int
    from_disk: int
    from_remote: int
    bytes: int
    fenced: bool  # whether the op no longer touches the device blocks
    why: str
    not_awaited_count: int  # load with prefill: blocks after these that are faster to compute than to read


class PoolInfo(NamedTuple):
    """A row of the node's table of pools."""

    deployment: str
    rank: int
    pool: str
    state: str  # absent (a process waits for it), allocating, ready, revoking
    epoch: int
    length: int  # bytes
    by_sluice: bool
    owner: str
    owner_pid: int  # 0: the owner has exited
    mapper_count: int
    waiter_count: int
    mappers: str  # names; cut off if there are many


class SluiceError(Exception):
    """A failed call of libsluice. code, name: of the error; os_code: errno, or 0; result: OpResult of a failed op, else None."""

    code, name, os_code, result = 25, "SL_ERR_?", 0, None


SluiceError.__module__ = "sluice"
# Names of the exceptions, and built-in exceptions that some also derive from.
NAMES = {
    "NOT_FOUND": "NotFoundError", "EXISTS": "ExistsError", "BUSY": "BusyError", "LIMIT": "LimitError", "TIMEOUT": "DeadlineError",
    "NO_SPACE": "NoSpaceError", "NO_MEMORY": "NoMemoryError", "UNREACHABLE": "UnreachableError", "CANCELLED": "CancelledError",
    "STALE": "StaleError", "PEER_DIED": "PeerDiedError", "PROTOCOL": "ProtocolError", "VERSION": "VersionError",
    "PERMISSION": "NotPermittedError", "INVALID": "InvalidError", "UNSUPPORTED": "UnsupportedError", "CONFIG": "ConfigError",
    "CORRUPT": "CorruptError", "FOREIGN": "ForeignError", "IO": "IoError", "OS": "SystemCallError", "DEVICE": "DeviceError",
    "DRAINING": "DrainingError", "INCOMPLETE": "IncompleteError", "INTERNAL": "InternalError", "HANDOVER": "HandoverError",
    "LEASED": "LeasedError", "LEASE_OVER": "LeaseOverError", "DISK_AWAY": "DiskAwayError"}
ALSO = {"NOT_FOUND": LookupError, "TIMEOUT": TimeoutError, "NO_MEMORY": MemoryError, "UNREACHABLE": ConnectionError,
        "INVALID": ValueError, "CONFIG": ValueError}
CODES = {}  # {"NOT_FOUND": 1, ...}
RECORDS = (ObjectInfo, MissReason, NodeInfo, ClusterInfo, OpResult, PoolInfo)
__all__ = ["CODES", "SluiceError"]
for record in RECORDS:
    record.__module__ = "sluice"
    __all__.append(record.__name__)


def errors(codes):
    """Makes the exception for each code of libsluice. codes: rows of number, name and text."""
    found = []
    for code, name, text in codes:
        short = name.removeprefix("SL_").removeprefix("ERR_")
        CODES[short] = code
        error = SluiceError  # for success, and for codes that are unknown here
        if short in NAMES:
            bases = (SluiceError, ALSO[short]) if short in ALSO else (SluiceError,)
            error = type(NAMES[short], bases, {"__module__": "sluice", "__doc__": text, "code": code, "name": name})
            globals()[error.__name__] = error
            __all__.append(error.__name__)
        found.append(error)
    return found
