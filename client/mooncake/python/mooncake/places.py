"""Finds the node of this machine that belongs to an address of Mooncake's daemons, for the store and for the daemons."""

import errno
import os
import re
import socket
from typing import Optional, Tuple

MASTER_PORT = 50051


class Failure(Exception):
    """A failure whose text is for people; the program ends with code 1."""


def split_address(text: str, port: Optional[int] = None) -> Optional[Tuple[str, int]]:
    """Returns (host without brackets, port) for HOST:PORT; `port` is the default. None: not an address."""
    found = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?", text)
    if found is None or (found[2] is None and port is None):
        return None
    number = int(found[2]) if found[2] is not None else port
    return (found[1].strip("[]"), number) if number is not None and 1 <= number <= 65535 else None


def is_here(host: str) -> bool:
    if host.lower() in ("localhost", socket.gethostname().lower()):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, _, _, address in found:
        try:
            with socket.socket(family, kind) as one:
                one.bind(address)  # works only for addresses of this machine
                return True
        except OSError as error:  # also if the host has IPv6 and this machine has not
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise Failure(f"cannot check whether '{host[:128]}' is this machine: {error.strerror}") from error
    return False


def instance_joined(host: str, port: int) -> str:
    """Name of this machine's node that joined a master on another machine. Long host names are cut, with a hash (FNV-1a) appended."""
    data, digest = host.encode("utf-8", "surrogateescape"), 2166136261
    for byte in data.lower():
        digest = (digest ^ byte) * 16777619 & 0xffffffff
    kept = data if len(data) <= 23 else data[:14]
    shown = "".join(chr(byte).lower() if chr(byte).isascii() and chr(byte).isalnum() else "-" for byte in kept)
    return f"mooncake-{shown}{f'-{digest:08x}' if len(data) > 23 else ''}-{port}"


def instance_of_master(master: str) -> str:
    at = split_address(master, MASTER_PORT)
    if os.environ.get("SLUICE_INSTANCE"):
        return os.environ["SLUICE_INSTANCE"]
    if at is None:
        raise Failure(f"master_server_addr '{master[:128]}' is not host:port")
    return f"mooncake-{at[1]}" if is_here(at[0]) else instance_joined(*at)


def advice(master: str) -> str:
    """Returns what to start if no node runs for this master."""
    host, port = split_address(master, MASTER_PORT) or ("", 0)
    if os.environ.get("SLUICE_INSTANCE"):
        return f"no node runs under the name '{os.environ['SLUICE_INSTANCE']}'"
    if not is_here(host):
        return (f"master '{host[:80]}' is on another machine, and no node of this one joined it: start mooncake_master --join {master[:80]} here")
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return f"no master runs here at port {port}: start mooncake_master --port {port}"
    return (f"a process listens at port {port}, but this user sees no node: mooncake_master must run as the same user, with the same "
            "/dev/shm, /tmp (or XDG_RUNTIME_DIR) and process numbers")


def sign_of_client(port: int) -> str:
    """Path of the file in which a mooncake_client writes the name of its node, so that setup_dummy finds it by the port."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{base if base.startswith('/') else '/tmp'}/sluice-{os.geteuid()}/mooncake-client-{port}"
