"""A proxy for two vLLM servers, one for prefill and one for decode:

    python -m sluice.vllm.proxy --prefill http://HOST:PORT --decode http://HOST:PORT [--port 8080] [--host 127.0.0.1] [--direct]

Clients use it like vLLM (/v1/completions, /v1/chat/completions, also with stream). The proxy first asks prefill for one token and passes
the hand-over parameters of the response to decode with the request. With --direct it calls both at once, as soon as a first response has
named prefill's node. Whatever happens to prefill, decode answers: it computes what is not handed over. If prefill fails while decode
waits for its blocks, decode is called again without them. All other paths go to decode. Of the client's own kv_transfer_params only
`sluice_hints` are passed on, to both."""

import argparse
import http.client
import http.server
import json
import logging
import re
import secrets
import socket
import socketserver
import threading
import time
import urllib.parse

from .hints import NAME as HINTS

log = logging.getLogger("sluice.vllm.proxy")
PATHS = ("/v1/completions", "/v1/chat/completions")
THREADS_MAX = 1024  # connections, and concurrent prefills
BODY_BYTES_MAX = 64 << 20
BODY_BYTES_FREE = 1 << 20  # a larger one is read only after decode has accepted the client's key
BODIES_BYTES_MAX = 256 << 20  # of all running requests
CLIENT_SECONDS = 60.0  # without data, and for a whole body
LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0-\x08\n-\x1f\x7f]*\r\n")  # a valid header line
PIECE_BYTES = 1 << 16
PREFILL_SECONDS = 600.0
DECODE_SECONDS = 3600.0
CONNECT_SECONDS = 5.0
ONE_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "host",
           "content-length", "accept-encoding"}
ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None, "remote_host": None,
         "remote_port": None}


class Server:
    """A vLLM server."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise argparse.ArgumentTypeError(f"{url!r}: http://HOST:PORT is needed")
        self.url, self.base = url, parts.path.rstrip("/")
        self.kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self.where = (parts.hostname, parts.port)

    def ask(self, method, path, body, headers, seconds, connected=lambda connection: None):
        """Sends a request; returns (connection, response). Raises OSError or http.client.HTTPException."""
        connection = self.kind(*self.where, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(seconds)
            connected(connection)
            try:
                connection.request(method, self.base + path, body, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server may have answered before it read the whole body
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise


class ConcurrentDecode:
    """Decode's request while prefill computes. It is abandoned if prefill fails before decode's answer begins."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sock = None  # of decode's connection, which drops its reference if the answer closes the connection
        self.failed = self.answers = False

    def connected(self, connection):
        with self.lock:
            if self.failed:
                raise ConnectionAbortedError("prefill has failed")
            self.sock = connection.sock

    def answered(self):
        """Notes that decode's answer has begun. Returns whether to pass it on."""
        with self.lock:
            self.answers = not self.failed
            return self.answers

    def prefill_failed(self):
        with self.lock:
            self.failed = not self.answers
            if self.failed and self.sock is not None:
                try:
                    self.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for its answer
                except OSError:
                    pass  # decode has closed it


def prefill_body(asked, params):
    """Returns the request that computes the prompt and one token."""
    body = {**asked, "stream": False, "max_tokens": 1, "kv_transfer_params": params}
    if "max_completion_tokens" in body:
        body["max_completion_tokens"] = 1
    for name in ("stream_options", "min_tokens"):
        body.pop(name, None)
    return body


class Proxy(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address, prefill, decode, direct=False):
        super().__init__(address, Handler)
        self.prefill, self.decode, self.direct = prefill, decode, direct
        self.node = None  # name of prefill's node, once known
        self.threads, self.bodies = Share(THREADS_MAX), Share(BODIES_BYTES_MAX)

    def process_request(self, request, client_address):
        if not self.threads.take(1):
            log.warning("%d threads are running: %s is refused", THREADS_MAX, client_address[0])
            try:
                request.setblocking(False)
                request.send(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            except OSError:
                pass  # the client has disconnected
            return self.shutdown_request(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.threads.give(1)
            raise

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.threads.give(1)

    def prefilled(self, path, asked, params, headers):
        """Calls prefill and returns the parameters for decode, or None. Raises Refused if the request itself is invalid."""
        try:
            connection, response = self.prefill.ask("POST", path, json.dumps(prefill_body(asked, params)), headers, PREFILL_SECONDS)
            try:
                answer = response.read()
            finally:
                connection.close()
            if response.status in (400, 401, 403, 404, 413, 422):
                raise Refused(response.status, response.getheader("Content-Type", "application/json"), answer)
            given = json.loads(answer).get("kv_transfer_params") if response.status == 200 else None
            if not isinstance(given, dict):
                log.warning("prefill %s answers %d without a hand-over: decode computes", self.prefill.url, response.status)
                return None
            self.node = given.get("sluice_node")
            return given
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            log.warning("prefill %s: %s: decode computes", self.prefill.url, error or type(error).__name__)
            return None

    def prefill_concurrently(self, beside, *request):
        try:
            if self.prefilled(*request) is None:
                beside.prefill_failed()
        except Refused as refused:
            log.warning("prefill %s answers %d", self.prefill.url, refused.status)
            beside.prefill_failed()
        finally:
            self.threads.give(1)

    def offer(self, path, asked, headers, hints):
        """Returns (kv_transfer_params for decode or None, ConcurrentDecode or None). With --direct a thread calls prefill meanwhile."""
        if not self.direct or self.node is None or not self.threads.take(1):
            return self.prefilled(path, asked, {**ASKED, **hints}, headers), None
        number, beside = f"{secrets.randbits(63) + 1:x}", ConcurrentDecode()
        told = {**ASKED, "sluice_handover": number, **hints}
        threading.Thread(target=self.prefill_concurrently, args=(beside, path, asked, told, headers), daemon=True).start()
        return {"do_remote_prefill": True, "do_remote_decode": False, "sluice_handover": number, "sluice_node": self.node}, beside


class Share:
    """A budget that all requests share."""

    def __init__(self, most):
        self.lock, self.left = threading.Lock(), most

    def take(self, count):
        with self.lock:
            fits = count <= self.left
            self.left -= count if fits else 0
            return fits

    def give(self, count):
        with self.lock:
            self.left += count


class Refused(Exception):
    def __init__(self, status, kind, answer):
        super().__init__(status)
        self.status, self.kind, self.answer = status, kind, answer


class Body:
    """A request's body, read on demand."""

    def __init__(self, file, length):
        self.file, self.left, self.until = file, length, time.monotonic() + CLIENT_SECONDS

    def read(self, most=PIECE_BYTES):
        if self.left == 0:
            return b""
        piece = self.file.read1(min(most, self.left)) if time.monotonic() < self.until else b""
        if not piece:
            raise ConnectionAbortedError("the client has not sent all of its body")
        self.left -= len(piece)
        return piece


class Lines:
    """A file that records the lines read from it."""

    def __init__(self, file):
        self.file, self.read = file, []

    def readline(self, *most):
        self.read.append(self.file.readline(*most))
        return self.read[-1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = CLIENT_SECONDS
    server: Proxy

    def parse_request(self):
        """Refuses headers that another proxy may parse differently than http.server: a bare LF, a folded line, two lengths. Returns False
        if the request was answered; a refusal also closes the connection."""
        self.rfile = lines = Lines(self.rfile)
        try:
            if not super().parse_request():
                return False
        finally:
            self.rfile = lines.file
        count = {name: len(self.headers.get_all(name, [])) for name in ("Host", "Content-Length", "Transfer-Encoding")}
        if (not self.raw_requestline.endswith(b"\r\n") or not all(LINE.fullmatch(line) for line in lines.read[:-1]) or lines.read[-1:] != [b"\r\n"]
                or count["Host"] > 1 or (count["Host"] == 0 and self.request_version != "HTTP/1.0") or count["Content-Length"] > 1 or count["Transfer-Encoding"]):
            self.close_connection = True
            self.say(400, {"error": "header lines must end with CR LF, Host and Content-Length must occur once, and bodies must have a length"})
            return False
        return True

    def do_GET(self):
        if self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True
            return self.say(413, {"error": "a GET must have no body"})
        self.pass_on(None)

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            return self.say(411 if not length else 413, {"error": f"a body of {BODY_BYTES_MAX} bytes at most, with its length, is needed"})
        body = Body(self.rfile, int(length))
        if urllib.parse.urlsplit(self.path).path not in PATHS:
            self.pass_on(body, {**self.passed_headers(), "Content-Length": length})
        elif int(length) > BODY_BYTES_FREE and self.denied():
            pass
        elif not self.server.bodies.take(int(length)):
            self.say(503, {"error": f"request bodies use {BODIES_BYTES_MAX} bytes: try again"})
        else:
            try:
                self.complete(body)
            except ConnectionAbortedError as error:
                log.info("%s", error)
            finally:
                self.server.bodies.give(int(length))
        self.close_connection = self.close_connection or body.left > 0

    def denied(self):
        """Whether decode refuses the client's key or cannot be reached; the client was answered then."""
        try:
            connection, response = self.server.decode.ask("GET", "/v1/models", None, self.passed_headers(), CONNECT_SECONDS)
            try:
                answer = response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            log.warning("decode %s: %s", self.server.decode.url, error or type(error).__name__)
            self.say(502, {"error": "decode cannot be reached"})
            return True
        if response.status not in (401, 403):
            return False
        self.answer(response.status, response.getheader("Content-Type", "application/json"), answer)
        return True

    def complete(self, body):
        try:
            asked = json.loads(b"".join(iter(body.read, b"")))
            if not isinstance(asked, dict):
                raise ValueError("a JSON object is needed")
        except ValueError as error:
            return self.say(400, {"error": str(error)})
        headers = self.passed_headers()
        headers.setdefault("X-Request-Id", secrets.token_hex(16))
        said = asked.pop("kv_transfer_params", None)  # the proxy sets these itself, except hints
        hints = {HINTS: said[HINTS]} if isinstance(said, dict) and HINTS in said else {}
        try:
            offer, beside = self.server.offer(self.path, asked, headers, hints)
        except Refused as refused:
            return self.answer(refused.status, refused.kind, refused.answer)
        asked = {**asked, "kv_transfer_params": hints} if hints else asked
        told = {**asked, "kv_transfer_params": {**offer, **hints}} if offer else asked
        if beside is None or not self.pass_on(json.dumps(told).encode(), headers, beside):
            self.pass_on(json.dumps(told if beside is None else asked).encode(), headers)

    def passed_headers(self):
        return {name: value for name, value in self.headers.items() if name.lower() not in ONE_HOP}

    def pass_on(self, body, headers=None, beside=None):
        """Passes decode's answer on as it arrives. If the client disconnects, decode's request ends. Returns False if prefill failed
        meanwhile and nothing was passed on."""
        connection, first, more = None, b"", [beside.connected] if beside is not None else []
        try:
            connection, response = self.server.decode.ask(self.command, self.path, body, headers or self.passed_headers(), DECODE_SECONDS, *more)
            if beside is not None:  # vLLM sends the headers of a stream before its first data
                first = response.read1(PIECE_BYTES)
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            if beside is not None and beside.failed:
                return False
            log.warning("decode %s: %s", self.server.decode.url, error or type(error).__name__)
            self.say(502, {"error": "decode cannot be reached"})
            return True
        try:
            if beside is not None and not beside.answered():
                return False
            self.stream(response, first)
        except (OSError, http.client.HTTPException) as error:
            self.close_connection = True  # the client sees that the answer is incomplete
            log.info("an answer was cut off: %s", error or type(error).__name__)
        finally:
            connection.close()
        return True

    def stream(self, response, first):
        """Copies a response to the client. first: the part of its body that was already read."""
        length = response.getheader("Content-Length")
        chunked = length is None and self.request_version != "HTTP/1.0"
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ONE_HOP | {"date", "server"}:
                self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", length)
        elif chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.close_connection = True
        self.end_headers()
        left = int(length or 0)
        while piece := first or response.read1(PIECE_BYTES):
            first = b""
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            left -= len(piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        if length is not None and left > 0:
            raise http.client.IncompleteRead(b"", left)

    def say(self, status, what):
        self.answer(status, "application/json", json.dumps(what).encode())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        log.debug(format, *arguments)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sluice.vllm.proxy", description=__doc__.split("\n", 1)[0].rstrip(":"))
    parser.add_argument("--prefill", required=True, type=Server, metavar="URL")
    parser.add_argument("--decode", required=True, type=Server, metavar="URL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", default=8080, type=int)
    parser.add_argument("--direct", action="store_true", help="call prefill and decode at once")
    told = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with Proxy((told.host, told.port), told.prefill, told.decode, told.direct) as proxy:
        log.info("listening on %s:%d", *proxy.server_address[:2])
        try:
            proxy.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
