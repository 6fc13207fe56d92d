"""A service of metadata over HTTP: a few keys and their values in memory, for processes that tell each other where they are.

    mooncake_http_metadata_server --host 0.0.0.0 --port 8080

GET, PUT and DELETE /metadata?key=KEY. 400: no key, or a blank one; 404: no such key (or path). A second PUT of a key that
contains "rpc_meta" is refused with 400: two processes would have one name. Nobody needs the service who says P2PHANDSHAKE.

With $MOONCAKE_ADMIN_TOKEN, or a file that $MOONCAKE_ADMIN_TOKEN_FILE names, PUT and DELETE need it (`Authorization: Bearer
TOKEN`), unless --metadata_open says otherwise. Without one anybody may write, as at the one whose place it takes: it belongs
on a network of one's own. Whatever arrives costs bounded memory and time. mooncake_master --enable_http_metadata_server is the same service.
"""

import argparse
import logging
import signal
import socket
import sys
import threading
import time
from typing import List, Optional

from mooncake import _metadata

TOTAL_BYTES_MAX = _metadata.BYTES_MAX  # keys and values

log = logging.getLogger("mooncake.http_metadata_server")


class MetadataServer:
    """The service on host:port (port 0: any free one, see server_port), by threads of its own. `serve_forever` cuts requests
    that take too long, `shutdown` ends that, and `server_close` ends the service and gives the port back. Raises OSError, for a
    token that is none, too."""

    def __init__(self, host: str, port: int, metadata_open: bool = False) -> None:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
            listener.setblocking(False)
            self.server_address = listener.getsockname()
            self._server = _metadata.start(listener.detach(), TOTAL_BYTES_MAX, metadata_open)
        self.server_name, self.server_port = self.server_address[:2]
        self._ended = threading.Event()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        while not self._ended.wait(poll_interval):
            _metadata.tend(self._server, time.monotonic_ns())
        self._ended.clear()

    def shutdown(self) -> None:
        self._ended.set()

    def server_close(self) -> None:
        self._server = None

    def __enter__(self) -> "MetadataServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.server_close()


def main(arguments: Optional[List[str]] = None) -> int:
    """The console script. Ends with 0 on SIGTERM or SIGINT, with 1 when the port cannot be had."""
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=(__doc__ or "").strip(),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen on (%(default)s); whoever reaches it may write there, so name one only on a wire that is yours")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (%(default)s)")
    parser.add_argument("--metadata_open", action="store_true", help="writes need no token, also where there is one")
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
    for number in (signal.SIGTERM, signal.SIGINT):  # shutdown takes a lock that this thread may hold just then
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    log.info("listens on %s:%d", *server.server_address[:2])
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
