"""A service of metadata over HTTP: a few keys and their values in memory, for processes that tell each other where they are.

    mooncake_http_metadata_server --host 0.0.0.0 --port 8080

GET, PUT and DELETE /metadata?key=KEY. 400: no key, or a blank one; 404: no such key (or path). A second PUT of a key that
contains "rpc_meta" is refused with 400: two processes would have one name. Nobody needs the service who says P2PHANDSHAKE.

It has no authentication, like the one whose place it takes: it belongs on a network of one's own. Whatever arrives costs
bounded memory and time.
"""

import argparse
import logging
import signal
import socket
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Dict, List, Optional, Tuple
from urllib.parse import parse_qs, urlsplit

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 4 << 20  # a segment of many buffers has some 100 KiB
TOTAL_BYTES_MAX = 512 << 20  # keys and values
KEYS_MAX = 1 << 20
CONNECTIONS_MAX = 256
SILENCE_SECONDS = 30  # then a connection is closed
REQUEST_SECONDS = 60  # likewise, when a request takes longer
_ONCE = "rpc_meta"  # keys with this in it are not put twice

log = logging.getLogger("mooncake.http_metadata_server")


class Metadata:
    """Keys and values, for any number of threads."""

    def __init__(self) -> None:
        self._values: Dict[str, bytes] = {}
        self._total_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> Optional[bytes]:
        with self._lock:
            return self._values.get(key)

    def put(self, key: str, value: bytes) -> Tuple[HTTPStatus, str]:
        with self._lock:
            old = self._values.get(key)
            if old is not None and _ONCE in key:
                return HTTPStatus.BAD_REQUEST, "the key is there already: another process has this name"
            cost = len(value) - len(old) if old is not None else len(value) + len(key.encode())
            if self._total_bytes + cost > TOTAL_BYTES_MAX or (old is None and len(self._values) >= KEYS_MAX):
                return HTTPStatus.INSUFFICIENT_STORAGE, "no room for more metadata"
            self._values[key] = value
            self._total_bytes += cost
            return HTTPStatus.OK, "put"

    def delete(self, key: str) -> bool:
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._total_bytes -= len(value) + len(key.encode())
            return value is not None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mooncake-metadata", ""
    timeout = SILENCE_SECONDS
    server: "MetadataServer"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
        log.debug("%s %s", self.client_address[0], (format % args).encode("unicode_escape").decode())

    def handle_one_request(self) -> None:
        super().handle_one_request()
        self.server.served(self.connection)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, text.encode())

    def _key(self) -> Optional[str]:
        """The key that is asked for; None: the answer has been given."""
        try:
            url = urlsplit(self.path)
            given = parse_qs(url.query, keep_blank_values=True, errors="strict", max_num_fields=16).get("key", [""])
        except ValueError:  # no URL, no UTF-8, or too many fields
            self._say(HTTPStatus.BAD_REQUEST, "the address is not understood")
            return None
        if url.path != "/metadata":
            self._say(HTTPStatus.NOT_FOUND, "only /metadata is here")
            return None
        key = given[0].strip()
        if key == "" or len(key.encode()) > KEY_BYTES_MAX:
            self._say(HTTPStatus.BAD_REQUEST, f"a key of 1..{KEY_BYTES_MAX} bytes is required: /metadata?key=KEY")
            return None
        return key

    def _body(self) -> Optional[bytes]:
        """The body of the request; None: it was refused, and the connection ends, since what follows may be that body."""
        lengths = set(self.headers.get_all("Content-Length", []))
        text = lengths.pop() if len(lengths) == 1 else ""
        refused = None
        if "Transfer-Encoding" in self.headers or lengths or (text == "" and self.command == "PUT"):
            refused = HTTPStatus.LENGTH_REQUIRED, "a body needs one Content-Length"
        elif not (text or "0").isascii() or not (text or "0").isdigit() or len(text) > 19:
            refused = HTTPStatus.BAD_REQUEST, "Content-Length is not a number"
        elif int(text or "0") > VALUE_BYTES_MAX:
            refused = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a value has at most {VALUE_BYTES_MAX} bytes"
        if refused is not None:
            self.close_connection = True
            self._say(*refused)
            return None
        wanted = int(text or "0")
        body = self.rfile.read(wanted) if wanted else b""
        if len(body) != wanted:
            self.close_connection = True  # it went away in the middle
            return None
        return body

    def do_GET(self) -> None:
        body = self._body()
        key = None if body is None else self._key()
        if key is None:
            return
        value = self.server.metadata.get(key)
        if value is None:
            self._say(HTTPStatus.NOT_FOUND, "no such key")
        else:
            self._answer(HTTPStatus.OK, value, "application/json")

    def do_PUT(self) -> None:
        body = self._body()
        key = None if body is None else self._key()
        if key is None or body is None:
            return
        status, text = self.server.metadata.put(key, body)
        if status != HTTPStatus.OK:
            log.warning("put of %s refused: %s", ascii(key), text)
        self._say(status, text)

    def do_DELETE(self) -> None:
        body = self._body()
        key = None if body is None else self._key()
        if key is None:
            return
        if self.server.metadata.delete(key):
            self._say(HTTPStatus.OK, "deleted")
        else:
            self._say(HTTPStatus.NOT_FOUND, "no such key")


class MetadataServer(socketserver.ThreadingMixIn, HTTPServer):
    """The service on host:port (port 0: any free one, see server_port); `serve_forever` runs it, `shutdown` ends that, and
    `server_close` gives the port back. Raises OSError."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = place[0]
        self.metadata = Metadata()
        self._lock = threading.Lock()
        self._ends_at: Dict[socket.socket, float] = {}  # when the request of each connection has to be through
        super().__init__((str(place[4][0]), port), _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # without HTTPServer's look-up of the own name, which may take its time
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            full = len(self._ends_at) >= CONNECTIONS_MAX
            if not full:
                self._ends_at[request] = time.monotonic() + REQUEST_SECONDS
        if full:
            log.warning("more than %d connections: one of %s was closed", CONNECTIONS_MAX, client_address[0])
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def served(self, connection: socket.socket) -> None:
        """A request of the connection has been answered."""
        with self._lock:
            self._ends_at[connection] = time.monotonic() + REQUEST_SECONDS

    def shutdown_request(self, request) -> None:  # type: ignore[no-untyped-def]
        with self._lock:
            self._ends_at.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """serve_forever calls it twice a second."""
        with self._lock:
            now = time.monotonic()
            late = [connection for connection, end in self._ends_at.items() if end < now]
            for connection in late:
                try:
                    connection.shutdown(socket.SHUT_RDWR)  # its thread sees an end, and closes it
                except OSError:
                    continue  # it is gone already

    def handle_error(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        failure = sys.exc_info()[1]
        if isinstance(failure, OSError):  # the connection, which is gone
            log.debug("%s: %s", client_address[0], failure)
        else:
            log.error("%s: request failed", client_address[0], exc_info=failure)


def main(arguments: Optional[List[str]] = None) -> int:
    """The console script. Ends with 0 on SIGTERM or SIGINT, with 1 when the port cannot be had."""
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=(__doc__ or "").strip(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (%(default)s)")
    parser.add_argument("--log-level", type=str.upper, default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= 65535:
        parser.error("--port is 0..65535")
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        server = MetadataServer(options.host, options.port)
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", options.host, options.port, error)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):  # shutdown waits for serve_forever, which this thread runs
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    log.info("listens on %s:%d", *server.server_address[:2])
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
