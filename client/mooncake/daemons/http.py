"""A small HTTP/1.1 server for the daemons with a strict parser.

A request that two servers could parse differently is refused and its connection closed: two lengths, a length together with chunks, a
bare LF, a folded line, no Host or two (RFC 9112). So no request can hide in another one on its way through a proxy. Path, method, origin
and token are checked before the body is read. Connections, bytes and times are bounded; when connections run out, the oldest one with an
incomplete request is closed. aiohttp is not used: of the 91 doubtful requests of tests/python/daemons_test.py its version 3.8 accepts 36,
and a handler cannot detect them."""

import asyncio
import contextlib
import dataclasses
import errno
import fcntl
import hmac
import http
import ipaddress
import re
import socket
import struct
import time
from collections import Counter
from email.utils import formatdate
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

HEAD_BYTES_MAX = 32 << 10
FIELDS_MAX = 64
BODY_BYTES_MAX = 4 << 20
BODIES_OF_ONE = 16 << 20  # memory for bodies from one address
BODIES_BYTES = 64 << 20  # and from all
CONNECTIONS_MAX = 256
OF_ONE_ADDRESS = CONNECTIONS_MAX // 2
IDLE_S, REQUEST_S, ANSWER_S, LINGER_S = 10, 60, 300, 2  # without a byte; until a request is complete; for an answer; for a peer to read it

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_BAD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n)(?=.)", re.DOTALL)
_START = re.compile(rb"(" + TOKEN + rb") ([^ ]*) (.*)")
_FIELD = re.compile(rb"(" + TOKEN + rb"):[ \t]*(.*?)[ \t]*")
_HOST = re.compile(r"[0-9A-Za-z\-._~%!$&'()*+;=:\[\]]+")
_SINGLE = ("host", "content-length", "transfer-encoding", "authorization", "origin", "expect")
_CHUNK = "a chunk is SIZE CR LF, its bytes, CR LF"


class Refusal(Exception):
    """Answers the request with this status and closes its connection."""

    def __init__(self, status: int, text: str, allow: str = ""):
        super().__init__(text)
        self.status, self.allow = status, allow


@dataclasses.dataclass
class Request:
    method: str
    path: str
    arguments: Dict[str, str]  # still escaped, the first of each name
    fields: Dict[str, str]  # names in lower case; the last of each name
    old: bool = False  # HTTP/1.0
    closes: bool = False
    length: Optional[int] = None
    chunked: bool = False
    body: bytearray = dataclasses.field(default_factory=bytearray)


@dataclasses.dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    type: str = "text/plain; charset=utf-8"
    # Yields bytes while they are sent. If it raises, the connection is cut, so that no client takes a part for the whole.
    stream: Optional[AsyncGenerator[bytes, None]] = None


class Route(NamedTuple):
    path: str
    methods: Tuple[str, ...]
    handler: Callable[[Any], Awaitable[Answer]]  # gets the Request
    guarded: Tuple[str, ...] = ()  # methods that change data


class Guard(NamedTuple):
    """Access to guarded methods. With a token: requests that carry it, also over the loopback. Without: requests over the loopback, or
    all with open_without_token. Pages of other origins are refused unless listed in origins."""
    token: Optional[str] = None
    origins: Sequence[str] = ()
    open_without_token: bool = False


def text_answer(status: int, text: str) -> Answer:
    return Answer(status, text.encode("utf-8", "replace"))


def unescape(text: str) -> Optional[bytes]:
    """Decodes a part of a URL; None: an escape is malformed, or encodes a zero byte."""
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", text):
        return None
    return re.sub(rb"%(..)", lambda found: bytes([int(found[1], 16)]), text.replace("+", " ").encode("latin-1"))


def _parse_target(target: bytes) -> Tuple[str, str, Optional[str]]:
    """Returns path, arguments, and the host if the target is a whole URL."""
    host = None
    if target[:7].lower() == b"http://":
        found = re.match(rb"([^/?]*)(.*)", target[7:], re.DOTALL)
        host, target = found[1].decode("latin-1"), found[2]
    if not target.startswith(b"/") or b"\t" in target or b"#" in target:
        raise Refusal(400, "the target of a request must be a path")
    path, _, arguments = target.decode("latin-1").partition("?")
    return path, arguments, host


def parse_head(data: bytes) -> Tuple[Request, bool]:
    """Parses a head with its blank line. Also returns whether the peer waits for 100 Continue. Raises Refusal."""
    lines = data[:-4].split(b"\r\n")
    start = _START.fullmatch(lines[0])
    version = start[3] if start else b""
    if not version.startswith(b"HTTP/") or b" " in version:
        raise Refusal(400, "a request must begin with METHOD TARGET HTTP/1.1")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refusal(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    path, query, host = _parse_target(start[2])
    if len(lines) - 1 > FIELDS_MAX:
        raise Refusal(431, f"a request has at most {FIELDS_MAX} header lines")
    pairs = []
    for line in lines[1:]:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise Refusal(400, "a header line must be NAME: VALUE, and not folded")
        pairs.append((found[1].decode().lower(), found[2].decode("latin-1")))
    names = Counter(name for name, _ in pairs)
    if any(names[name] > 1 for name in _SINGLE):
        raise Refusal(400, "Host, Content-Length, Transfer-Encoding, Authorization, Origin and Expect must not occur twice")
    request = Request(start[1].decode(), path, {}, dict(pairs), old=version == b"HTTP/1.0")
    for part in query.split("&"):
        name, sign, raw = part.partition("=")
        if sign:
            request.arguments.setdefault(name, raw)
    _take_length(request)
    _check_host(request.fields.get("host"), host, request.old)
    request.closes = request.old or any("close" in re.split("[, \t]+", value.lower()) for name, value in pairs if name == "connection")
    waits = request.fields.get("expect") if not request.old else None
    if waits is not None and waits.lower() != "100-continue":
        raise Refusal(417, "only 100-continue may be expected")
    return request, waits is not None


def _take_length(request: Request) -> None:
    length, coding = request.fields.get("content-length"), request.fields.get("transfer-encoding")
    if coding is not None and (length is not None or request.old):
        raise Refusal(400, "Transfer-Encoding is not allowed with Content-Length or in HTTP/1.0")
    if coding is not None and coding.lower() != "chunked":
        raise Refusal(501, "the only transfer coding is chunked")
    if length is not None and not re.fullmatch("[0-9]+", length):
        raise Refusal(400, "Content-Length must be one number")
    request.chunked = coding is not None
    request.length = int(length) if length is not None and len(length) < 20 else None if length is None else 1 << 64


def _check_host(field: Optional[str], host: Optional[str], old: bool) -> None:
    if field is None and old and host is None:
        return
    if field is None or not _HOST.fullmatch(field):
        raise Refusal(400, "a request must name its Host")
    if host is not None and host.lower() != field.lower():
        raise Refusal(400, "the target of the request names another host than Host")


# ---- connections

def address_of(peer: Any) -> bytes:
    """Returns what counts as one address: for IPv6 the 64-bit network."""
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except (TypeError, ValueError, IndexError):
        return b""  # the connection has already ended
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped.packed if mapped else address.packed[:8]


class ConnectionCounts:
    """Connections in order of age, counted by address."""

    def __init__(self, of_one_max: int):
        self.of_one_max = of_one_max
        self.addresses: Dict[Any, bytes] = {}
        self.counts: "Counter[bytes]" = Counter()

    def add(self, one: Any, address: bytes) -> Any:
        """Adds a connection. Returns the one to close: the oldest of the address if it has too many, else None."""
        self.addresses[one] = address
        self.counts[address] += 1
        return self.oldest_of(address) if self.counts[address] > self.of_one_max else None

    def remove(self, one: Any) -> None:
        address = self.addresses.pop(one, None)
        if address is not None:
            self.counts[address] -= 1
            if not self.counts[address]:
                del self.counts[address]

    def oldest_of(self, address: bytes) -> Any:
        return next(one for one, its in self.addresses.items() if its == address)

    def crowded(self) -> Any:
        """Returns the oldest connection of the address with the most; None: there are none."""
        return self.oldest_of(max(self.counts, key=self.counts.__getitem__)) if self.counts else None


class Server:
    """Serves routes on any number of listening sockets, in the running event loop."""

    def __init__(self, routes: Sequence[Route], guard: Guard = Guard()):
        self.routes = {route.path: route for route in routes}
        self.guard = guard
        self.here: Dict["Connection", None] = {}
        self.reading = ConnectionCounts(OF_ONE_ADDRESS)  # connections with an incomplete request
        self.served = ConnectionCounts(OF_ONE_ADDRESS)  # connections that are being answered
        self.bodies: Dict["Connection", int] = {}
        self._servers: List[asyncio.AbstractServer] = []
        self._tending: Optional[asyncio.Task] = None

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(lambda: Connection(self), sock=listener, backlog=1024))
        self._tending = self._tending or loop.create_task(self._tend())

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        if self._tending:
            self._tending.cancel()
        tasks = [one.task for one in self.here if one.task]
        for one in list(self.here):
            self.cut(one)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            for one in [one for one in self.here if one.until < now]:
                self.cut(one)

    def cut(self, one: "Connection") -> None:
        self.go(one)
        one.transport.abort()

    def go(self, one: "Connection") -> None:
        self.here.pop(one, None)
        self.bodies.pop(one, None)
        self.reading.remove(one)
        self.served.remove(one)

    def move(self, one: "Connection", crowd: Optional[ConnectionCounts]) -> None:
        self.reading.remove(one)
        self.served.remove(one)
        goes = crowd.add(one, one.address) if crowd is not None and one in self.here else None
        if goes is not None:
            self.cut(goes)

    def come(self, one: "Connection") -> None:
        self.here[one] = None
        self.move(one, self.reading)
        if len(self.here) > CONNECTIONS_MAX:
            self.cut(self.reading.crowded())  # this one itself if all others are being answered

    def charge(self, one: "Connection", length: int) -> None:
        """Charges memory for a body of this length, rounded up to a power of two. Raises Refusal."""
        room = max(4096, 1 << (length - 1).bit_length())
        if room == self.bodies.get(one):
            return
        others = [(its, other) for other, its in self.bodies.items() if other is not one]
        of_one = sum(its for its, other in others if other.address == one.address)
        if room + of_one > BODIES_OF_ONE or room + sum(its for its, _ in others) > BODIES_BYTES:
            raise Refusal(503, "too many bodies at a time: try again")
        self.bodies[one] = room

    def route_of(self, request: Request, of_this_host: bool) -> Route:
        """Selects the route by the head of the request. Raises Refusal."""
        route = self.routes.get(request.path)
        if route is None:
            raise Refusal(404, "no such path; GET / lists them")
        method = "GET" if request.method == "HEAD" else request.method
        if method not in route.methods:
            allow = ", ".join("GET, HEAD" if one == "GET" else one for one in route.methods)
            raise Refusal(405, f"{route.path} accepts {allow}", allow)
        self._check_rights(route, request, of_this_host)
        if method == "PUT" and request.length is None and not request.chunked:
            raise Refusal(411, "a body needs a Content-Length")  # else a missing length would store an empty value
        if (request.length or 0) > BODY_BYTES_MAX:
            raise Refusal(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        return route

    def _check_rights(self, route: Route, request: Request, of_this_host: bool) -> None:
        origin = request.fields.get("origin")
        if origin is not None and origin not in self.guard.origins:
            raise Refusal(403, f"pages of {origin[:200]} are not allowed")
        if request.method not in route.guarded:
            return
        if self.guard.token is None:
            if not self.guard.open_without_token and not of_this_host:
                raise Refusal(403, f"{route.path} is only for this host: use the loopback, or start the server with "
                                   "MOONCAKE_ADMIN_TOKEN or MOONCAKE_ADMIN_TOKEN_FILE")
            return
        scheme, _, shown = request.fields.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(shown.encode("latin-1"), self.guard.token.encode()):
            raise Refusal(401, f"{route.path} needs the header Authorization: Bearer TOKEN")


class Connection(asyncio.Protocol):
    """Handles one request at a time: head, body, answer. `buffer` holds unparsed bytes. While it answers, it does not read."""

    def __init__(self, server: Server):
        self.server = server
        self.transport: asyncio.Transport = None  # type: ignore[assignment] # set by connection_made
        self.address = b""
        self.buffer = bytearray()
        self.scanned = 0
        self.request: Optional[Request] = None  # the request whose body is being read
        self.route: Optional[Route] = None
        self.left: Optional[int] = None  # bytes left of the body or chunk; None: the size of a chunk follows
        self.after: Optional[str] = None  # state after a chunk: "data", or "end" of the body
        self.task: Optional[asyncio.Task] = None
        self.dropping = False  # the answer closes the connection: further input is dropped
        self.whole_by = self.until = 0.0
        self.writable = asyncio.Event()
        self.writable.set()

    # ---- called by asyncio
    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.address = address_of(transport.get_extra_info("peername"))
        self._expect()
        self.server.come(self)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.server.go(self)
        if self.task:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def eof_received(self) -> bool:
        return self.task is not None  # a peer that has closed its side may still wait for the answer

    def data_received(self, data: bytes) -> None:
        if self.dropping:
            return
        self.buffer += data
        if self.task is not None:
            self.transport.pause_reading()
            return
        self.until = min(time.monotonic() + IDLE_S, self.whole_by)
        self._read()

    # ---- reading
    def _expect(self) -> None:
        now = time.monotonic()
        self.whole_by, self.until = now + REQUEST_S, now + IDLE_S
        self.request = self.route = self.left = self.after = None
        self.scanned = 0

    def _read(self) -> None:
        try:
            whole = (self.request is not None or self._read_head()) and self._read_body()
        except Refusal as refusal:
            head_only = self.request is not None and self.request.method == "HEAD"
            self._answer(self._refuse(refusal, head_only))
            return
        if whole:
            self._answer(self._serve(self.request, self.route))

    def _answer(self, work: Any) -> None:
        self.server.move(self, self.server.served)
        self.until = time.monotonic() + ANSWER_S
        self.task = asyncio.get_running_loop().create_task(work)

    def _read_head(self) -> bool:
        end = 2 if self.buffer[:2] == b"\r\n" else self.buffer.find(b"\r\n\r\n", max(0, self.scanned - 3)) + 4
        limit = min(len(self.buffer) if end == 3 else end, HEAD_BYTES_MAX)
        if _BAD.search(self.buffer, max(0, self.scanned - 1), limit) or end == 2:
            raise Refusal(400, "a line ends with CR LF and has no control characters, and a head is not empty")
        if end == 3 or end > HEAD_BYTES_MAX:
            if limit == HEAD_BYTES_MAX:
                raise Refusal(431 if b"\n" in self.buffer[:limit] else 414, "a head has at most 32 KiB")
            self.scanned = limit
            return False
        head = bytes(self.buffer[:end])
        del self.buffer[:end]
        self.request, waits = parse_head(head)
        here = self.transport.get_extra_info("sockname")
        address = ipaddress.ip_address(here[0].partition("%")[0])
        self.route = self.server.route_of(self.request, (getattr(address, "ipv4_mapped", None) or address).is_loopback)
        self.left = None if self.request.chunked else self.request.length or 0
        if waits and not self.buffer and self.left != 0:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _read_body(self) -> bool:
        """Reads the body; True: it is complete. Only bodies of PUT are kept, since handlers read no others."""
        request = self.request
        while True:
            if self.left is None:
                if not self._read_chunk_line():
                    return False
                if self.after == "end":
                    return True
            share = min(self.left, len(self.buffer))
            if share and request.method == "PUT":
                self.server.charge(self, len(request.body) + share)
                request.body += self.buffer[:share]
            elif share:
                request.length = (request.length or 0) + share if request.chunked else request.length
            del self.buffer[:share]
            self.left -= share
            if self.left:
                return False
            if not request.chunked:
                return True
            self.left, self.after = None, "data"

    def _read_chunk_line(self) -> bool:
        """Reads the end of a chunk and the size of the next one. Refuses extensions and trailers: proxies differ there."""
        begin = 0
        if self.after == "data":
            if not b"\r\n".startswith(bytes(self.buffer[:2])):
                raise Refusal(400, _CHUNK)
            begin = 2
            if len(self.buffer) < 2:
                return False
        found = re.match(rb"([0-9A-Fa-f]{1,8})\r\n", self.buffer[begin:begin + 10])
        if found is None:
            if not re.fullmatch(rb"[0-9A-Fa-f]{0,8}|[0-9A-Fa-f]{1,8}\r", self.buffer[begin:begin + 10]):
                raise Refusal(400, _CHUNK)
            return False
        size = int(found[1], 16)
        have = len(self.request.body) if self.request.method == "PUT" else self.request.length or 0
        if size > BODY_BYTES_MAX - have:
            raise Refusal(413, "the body is too large")
        if size == 0:
            end = self.buffer[begin + found.end():begin + found.end() + 2]
            if not b"\r\n".startswith(bytes(end)):
                raise Refusal(400, _CHUNK)
            if len(end) < 2:
                return False
            begin, self.after = begin + 2, "end"
        del self.buffer[:begin + found.end()]
        self.left = size
        return True

    # ---- answering
    async def _send(self, data: bytes) -> None:
        self.transport.write(data)
        await self.writable.wait()

    async def _refuse(self, refusal: Refusal, head_only: bool) -> None:
        await self._send_answer(text_answer(refusal.status, f"{refusal}\n"), head_only, True, refusal.allow)
        self._end()

    async def _serve(self, request: Request, route: Route) -> None:
        try:
            answer = await route.handler(request)
        except Refusal as refusal:
            answer = text_answer(refusal.status, f"{refusal}\n")
        except Exception as error:  # a bug in a handler; logged
            asyncio.get_running_loop().call_exception_handler({"message": f"{request.method} {request.path}", "exception": error})
            answer = text_answer(500, "this server failed: see its log\n")
        self.until = time.monotonic() + ANSWER_S
        chunks = answer.stream is not None and not request.old
        try:
            await self._send_answer(answer, request.method == "HEAD", request.closes, chunks=chunks)
        except Exception:
            self.transport.abort()  # within a stream
            raise
        self.server.bodies.pop(self, None)
        if request.closes:
            self._end()
            return
        self.task = None
        self._expect()
        self.server.move(self, self.server.reading)
        self.transport.resume_reading()
        if self.buffer and not self.transport.is_closing():
            self._read()

    async def _send_answer(self, answer: Answer, head_only: bool, closes: bool, allow: str = "", chunks: bool = False) -> None:
        lines = [f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}", f"Date: {formatdate(usegmt=True)}",
                 f"Content-Type: {answer.type}"]
        if answer.stream is None:
            lines.append(f"Content-Length: {len(answer.body)}")
        elif chunks:
            lines.append("Transfer-Encoding: chunked")
        lines += [f"Allow: {allow}"] if allow else []
        lines += ["Connection: close"] if closes else []
        await self._send(("\r\n".join(lines) + "\r\n\r\n").encode() + (b"" if head_only else answer.body))
        if answer.stream is not None and not head_only:
            async with contextlib.aclosing(answer.stream) as blocks:
                async for block in blocks:
                    await self._send(b"%x\r\n%b\r\n" % (len(block), block) if chunks else block)
            await self._send(b"0\r\n\r\n" if chunks else b"")

    def _end(self) -> None:
        """Closes the connection after a moment in which the peer can read the answer: a close with unread input would discard it."""
        self.dropping = True
        self.buffer.clear()
        self.task = None
        self.server.bodies.pop(self, None)
        if self.transport.is_closing():
            return
        self.server.move(self, self.server.reading)
        self.until = time.monotonic() + LINGER_S
        try:
            self.transport.write_eof()
        except OSError:  # the peer has disconnected
            self.transport.abort()
            return
        self.transport.resume_reading()


def listen_socket(host: str, port: int, interface: str = "") -> socket.socket:
    """Returns a bound socket that does not listen yet. host: a name or an address, "" for all of IPv4. interface: its first address
    replaces host. Raises OSError, whose text names the port."""
    if interface:
        host = interface_address(interface)
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"'{host[:150]}': {error.strerror}") from error
    family, kind, _, _, address = found[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # despite lingering connections of an earlier process
        listener.bind(address)
        return listener
    except OSError as error:
        listener.close()
        raise listen_error(error, host, port) from error


def listen_error(error: OSError, host: str, port: int) -> OSError:
    if error.errno == errno.EADDRINUSE:
        return OSError(error.errno, f"port {port} of {host or '0.0.0.0'} is in use by another process")
    return OSError(error.errno, f"listen at port {port} of {host or '0.0.0.0'}: {error.strerror}")


def _interface_ip(name: str) -> Optional[str]:
    """Returns the IPv4 address of a network interface; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            found = fcntl.ioctl(one, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def interface_address(name: str) -> str:
    address = _interface_ip(name)
    if address is None:
        raise OSError(f"rpc_interface: '{name}' is not a network interface with an IPv4 address")
    return address


def own_address() -> Optional[str]:
    """Returns the first IPv4 address outside the loopback."""
    found = (_interface_ip(name) for _, name in socket.if_nameindex())
    return next((address for address in found if address and not address.startswith("127.")), None)


def address_text(host: str, port: int) -> str:
    """Returns HOST:PORT, with brackets if needed; this machine's name replaces the address of all interfaces."""
    if host in ("", "0.0.0.0", "::", "[::]"):
        host = socket.gethostname() or "localhost"
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
