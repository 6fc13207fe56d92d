"""A metadata service over HTTP: a few keys and values in memory, by which processes find each other.

    mooncake_http_metadata_server --host 0.0.0.0 --port 8080

GET, PUT and DELETE /metadata?key=KEY. 400: no key, or a blank one; 404: no such key (or path). A second PUT of a key that contains
"rpc_meta" is refused with 400: two processes would have one name. Engines with P2PHANDSHAKE do not need the service.

If $MOONCAKE_ADMIN_TOKEN is set, or $MOONCAKE_ADMIN_TOKEN_FILE names a file with a token, PUT and DELETE need it (`Authorization: Bearer
TOKEN`), except with --metadata_open. Without a token anyone can write, as with Mooncake's server: run it on a private network. Requests
cost bounded memory and time. mooncake_master --enable_http_metadata_server is the same service.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from typing import Dict, List, Optional

from mooncake.daemons import http
from mooncake.daemons.daemon import secret
from mooncake.daemons.flags import Failure

KEYS_MAX = 1 << 20
KEY_BYTES_MAX = 4096
ENTRY_BYTES = 150  # overhead of a key and its value
TOTAL_BYTES_MAX = 512 << 20  # keys and values

log = logging.getLogger("mooncake.http_metadata_server")


class _Metadata:
    """Values under keys, in memory."""

    def __init__(self, total_bytes_max: int) -> None:
        self.values: Dict[bytes, bytes] = {}
        self.used, self.total_bytes_max = 0, total_bytes_max

    async def answer(self, request: http.Request) -> http.Answer:
        raw = request.arguments.get("key", "")
        key = (http.unescape(raw) or b"").strip(b" \t\r\n") if len(raw) <= KEY_BYTES_MAX else b""
        if not key:
            raise http.Refusal(400, "the argument 'key' is missing, blank or malformed")
        value = self.values.get(key)
        if request.method == "PUT":
            return self._put(key, value, bytes(request.body))
        if value is None:
            raise http.Refusal(404, "metadata not found")
        if request.method == "DELETE":
            self.used -= ENTRY_BYTES + len(key) + len(value)
            del self.values[key]
            return http.text_answer(200, "metadata deleted\n")
        return http.Answer(200, value, "application/json")

    def _put(self, key: bytes, old: Optional[bytes], value: bytes) -> http.Answer:
        if old is not None and b"rpc_meta" in key:  # two processes with one name would take each other's connections
            raise http.Refusal(400, "this rpc_meta key exists already")
        used = self.used + len(value) - len(old) if old is not None else self.used + ENTRY_BYTES + len(key) + len(value)
        if used > self.total_bytes_max or (old is None and len(self.values) == KEYS_MAX):
            raise http.Refusal(507, f"full: at most {KEYS_MAX} keys and {self.total_bytes_max} bytes")
        self.used, self.values[key] = used, value
        return http.text_answer(200, "metadata updated\n")


async def _health(_: http.Request) -> http.Answer:
    return http.text_answer(200, "ok\n")


def metadata_routes() -> List[http.Route]:
    """Routes of the service, with their own storage; PUT and DELETE are guarded."""
    changes = ("PUT", "DELETE")
    return [http.Route("/metadata", ("GET", *changes), _Metadata(TOTAL_BYTES_MAX).answer, changes), http.Route("/health", ("GET",), _health)]


class MetadataServer:
    """The service on host:port (port 0: any free one, see server_port), in a thread of its own. `serve_forever` waits until `shutdown`;
    `server_close` ends the service and frees the port. Raises OSError, also for an invalid token."""

    def __init__(self, host: str, port: int, metadata_open: bool = False) -> None:
        try:
            token = None if metadata_open else secret("MOONCAKE_ADMIN_TOKEN")
        except Failure as error:
            raise OSError(str(error)) from error
        listener = http.listen_socket(host, port)
        try:
            listener.listen(1024)
        except OSError as error:
            listener.close()
            raise http.listen_error(error, host, port) from error
        self.server_address = listener.getsockname()
        self.server_name, self.server_port = self.server_address[:2]
        self._listener = listener
        self._ended, self._closed = threading.Event(), False
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()
        self._server = http.Server(metadata_routes(), http.Guard(token, open_without_token=True))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._pid = os.getpid()
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()
        self._listener.close()

    async def _serve(self) -> None:
        await self._server.start(self._listener)
        await self._end.wait()
        await self._server.close()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        while not self._ended.wait(poll_interval):
            pass
        self._ended.clear()

    def shutdown(self) -> None:
        self._ended.set()

    def server_close(self) -> None:
        """Ends the service. Does nothing in a forked child, since the service belongs to the parent."""
        if not self._closed and self._pid == os.getpid():
            self._closed = True
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    def __enter__(self) -> "MetadataServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.server_close()


def main(arguments: Optional[List[str]] = None) -> int:
    """The console script. Returns 0 on SIGTERM or SIGINT, 1 if the port is not available."""
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=(__doc__ or "").strip(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen on (%(default)s); without a token anyone who reaches it can write, so use a private network")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (%(default)s)")
    parser.add_argument("--metadata_open", action="store_true", help="writes need no token, even if one is set")
    parser.add_argument("--log-level", type=str.upper, default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= 65535:
        parser.error("--port is 0..65535")
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        server = MetadataServer(options.host, options.port, options.metadata_open)
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", options.host, options.port, error)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):  # in a thread, since shutdown takes a lock that this thread may hold
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    log.info("listening on %s:%d", *server.server_address[:2])
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
