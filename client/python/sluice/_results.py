"""What the native module gives and raises: records, and an exception for each code of libsluice."""

from typing import NamedTuple, Optional


class ObjectInfo(NamedTuple):
    """An object of this node."""

    key: str
    size: int  # bytes of the value
    in_memory: bool
    on_disk: bool
    digest: int  # of 128 bits: XXH3-128 over the XXH3-64s of its 16 KiB chunks


class Story(NamedTuple):
    """Why a key is a miss."""

    code: int  # 0: it is there; BUSY: being written; NOT_FOUND
    ago: Optional[float]  # seconds since it went; None: not known
    text: str


class NodeInfo(NamedTuple):
    """Another node."""

    name: str
    address: str  # where it is asked; "": it only asks us
    state: str  # alive, away, broken, or why it is no peer
    link: str  # where bytes go: up, connecting, down
    source: str  # who told of it: peers, directory
    incarnation: int
    round_trip: float  # seconds
    heard_ago: float  # seconds
    read_bytes: int
    read_values: int
    failures: int
    pinned_values: int


class ClusterInfo(NamedTuple):
    """This node among others."""

    name: str  # "": it has no peers
    listen: str  # where peers ask it; "": nowhere
    fabric: str  # what carries bytes


class OpResult(NamedTuple):
    """The end of an op."""

    code: int  # 0, or why it failed
    op_id: int
    trace_id: int  # sluicectl trace shows its path
    block_count: int  # store: asked for; load: loaded, from first_block on
    stored_count: int
    existed_count: int
    from_memory: int
    from_disk: int
    from_remote: int
    bytes: int
    fenced: bool  # whether the device blocks are free again
    why: str
    not_awaited_count: int  # load with prefill: blocks behind these, sooner computed than read


class PoolInfo(NamedTuple):
    """A row of the node's table of pools."""

    deployment: str
    rank: int
    pool: str
    state: str  # absent (somebody waits for it), allocating, ready, revoking
    epoch: int
    length: int  # bytes
    by_sluice: bool
    owner: str
    owner_pid: int  # 0: gone
    mapper_count: int
    waiter_count: int
    mappers: str  # names; cut when there are many


class SluiceError(Exception):
    """What libsluice could not do. code: its number; name: the number's name; os_code: errno, or 0; result: of an op that
    failed, else None."""

    code, name, os_code, result = 25, "SL_ERR_?", 0, None


SluiceError.__module__ = "sluice"
# Names, and the built-in exceptions that some are as well.
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
RECORDS = (ObjectInfo, Story, NodeInfo, ClusterInfo, OpResult, PoolInfo)
__all__ = ["CODES", "SluiceError"]
for record in RECORDS:
    record.__module__ = "sluice"
    __all__.append(record.__name__)


def errors(codes):
    """The exception for each of libsluice's codes, rows of a number, its name and its text."""
    found = []
    for code, name, text in codes:
        short = name.removeprefix("SL_").removeprefix("ERR_")
        CODES[short] = code
        error = SluiceError  # of success, and of a code that is not known here
        if short in NAMES:
            bases = (SluiceError, ALSO[short]) if short in ALSO else (SluiceError,)
            error = type(NAMES[short], bases, {"__module__": "sluice", "__doc__": text, "code": code, "name": name})
            globals()[error.__name__] = error
            __all__.append(error.__name__)
        found.append(error)
    return found
