"""The daemons of the package mooncake by themselves: flags, parsing of requests, joining hosts, names of keys. They need no node."""

import asyncio
import contextlib
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

from python_support import PATIENCE, ROOT

from mooncake import places
from mooncake.daemons import admin, client, daemon, flags, http, join, library, master, node
from node_support import BIN, main, wait_until

MIB, GIB = 1 << 20, 1 << 30
CTL = os.path.join(BIN, "sluicectl")
SECRET = "a secret of some length"

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
ECHO = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /hidden HTTP/1.1\r\n"
TOKEN = b"Authorization: Bearer a token of some length\r\n"
# Requests that two servers could parse differently, and the status that refuses them. tests/unit/client/tools/http_test.c has the same for http.c.
DOUBTFUL = (
    (ECHO + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nabcde", 400),
    (ECHO + b"transfer-encoding:\r\nContent-Length: 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n", 400),
    (ECHO + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 5, 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: +5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: -5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 0x5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 5 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: 5;\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length: \r\n\r\n", 400),
    (ECHO + b"Content-Length: 18446744073709551617\r\n\r\n", 413),
    (ECHO + b"Content-Length: 99999999999999999999999999\r\n\r\n", 413),
    (ECHO + b"Content-Length : 5\r\n\r\nabcde", 400),
    (ECHO + b"Content-Length\t: 5\r\n\r\nabcde", 400),
    (ECHO + b" Content-Length: 5\r\n\r\nabcde", 400),
    (ECHO + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    (ECHO + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501),
    (ECHO + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    (ECHO + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', 501),
    (ECHO + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n100000003\r\nabc\r\n0\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\nabc\r\n0\r\n\r\n", 413),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n0\r\nHost: y\r\n\r\n", 400),
    (ECHO + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\n", 400),
    (b"GET /hidden HTTP/1.1\nHost: x\r\n\r\n", 400),
    (GET + b"Host: x\n\r\n", 400),
    (GET + b"Host: x\r\n\n", 400),
    (GET + b"Host: x\n\n", 400),
    (GET + b"Host: x\r\r\n\r\n", 400),
    (GET + b"Host: x\rContent-Length: 5\r\n\r\n", 400),
    (GET + b"Host: x\r\nA: b\r\n c\r\n\r\n", 400),
    (GET + b"Host: x\r\nA: b\r\n\tc\r\n\r\n", 400),
    (GET + b" Host: x\r\n\r\n", 400),
    (b"\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (GET + b"Host: x\r\nA: b\x00c\r\n\r\n", 400),
    (b"GET /hid\x00den HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (GET + b"Host: x\r\nA\x7f: b\r\n\r\n", 400),
    (GET + b"Host: x\r\nno colon\r\n\r\n", 400),
    (GET + b"Host: x\r\n: b\r\n\r\n", 400),
    (GET + b"Host: x\r\nA(b): c\r\n\r\n", 400),
    (b"GET  /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hidden  HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hidden HTTP/1.1 \r\nHost: x\r\n\r\n", 400),
    (b"GET\t/hidden\tHTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hid den HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hidden#a HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hidden\r\n\r\n", 400),
    (b"GET hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"G(T /hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /hidden HTTP/1.2\r\nHost: x\r\n\r\n", 505),
    (b"GET /hidden HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    (b"GET /hidden HTTP/11\r\nHost: x\r\n\r\n", 505),
    (b"GET /hidden http/1.1\r\nHost: x\r\n\r\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"\x16\x03\x01\x02\x00\x01", 400),
    (GET + b"\r\n", 400),
    (GET + b"Host:\r\n\r\n", 400),
    (GET + b"Host: x\r\nHost: x\r\n\r\n", 400),
    (GET + b"Host: x\r\nHost: y\r\n\r\n", 400),
    (GET + b"Host: x y\r\n\r\n", 400),
    (GET + b"Host: x,y\r\n\r\n", 400),
    (GET + b"Host: x/y\r\n\r\n", 400),
    (GET + b"Host: u@x\r\n\r\n", 400),
    (b"GET http://y/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET http://x/hidden HTTP/1.1\r\n\r\n", 400),
    (b"GET https://x/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET //x/hidden HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    (GET + b"Host: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
    (GET + b"Host: x\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400),
    (GET + b"Host: x\r\nExpect: gold\r\n\r\n", 417),
)
PLAIN = (  # and whether the connection stays open
    (GET + b"Host: x\r\n\r\n", True),
    (b"GET http://x/hidden HTTP/1.1\r\nHost: X\r\n\r\n", True),
    (GET + b"host:\tx:80 \r\nA: b\xe9 \t c\r\nEmpty:\r\n\r\n", True),
    (GET + b"Host: [::1]:80\r\nConnection: keep-alive, x\r\n\r\n", True),
    (GET + b"Host: x\r\nContent-Length: 3\r\n\r\nGET", True),
    (GET + b"Host: x\r\nTransfer-Encoding: Chunked\r\n\r\n00A\r\n0123456789\r\n0\r\n\r\n", True),
    (b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 003\r\n\r\nGET", True),
    (GET + b"Host: x\r\nConnection: x, Close\r\n\r\n", False),
    (b"GET /hidden HTTP/1.0\r\n\r\n", False),
    (b"GET /hidden HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
)
HEADS_ALONE = (
    (b"PUT /nowhere HTTP/1.1\r\nContent-Length: 1000000\r\n", 404),
    (b"DELETE /echo HTTP/1.1\r\nContent-Length: 1000000\r\n", 405),
    (b"PATCH /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 405),
    (b"PUT /echo HTTP/1.1\r\nContent-Length: 1000000\r\n", 401),
    (b"PUT /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 401),
    (b"PUT /echo HTTP/1.1\r\nContent-Length: 1000000\r\nAuthorization: Bearer a token\r\n", 401),
    (b"PUT /echo HTTP/1.1\r\nContent-Length: 99999999\r\n", 401),
    (b"PUT /echo HTTP/1.1\r\n", 401),
    (b"PUT /echo HTTP/1.1\r\n" + TOKEN, 411),
    (b"PUT /echo HTTP/1.1\r\nContent-Length: 4194305\r\n" + TOKEN, 413),
    (b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nOrigin: http://evil\r\n", 403),
    (b"POST /hidden HTTP/1.1\r\nContent-Length: 4194305\r\n", 413),
)


class Loop:
    """A loop on a thread of its own, in which servers of this process run."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60 * PATIENCE)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Served(unittest.TestCase):
    """Servers at ports of the loopback."""

    def setUp(self):
        self.loop = Loop()
        self.addCleanup(self.loop.close)

    def listen(self, server):
        listener = http.listen_socket("127.0.0.1", 0)
        self.loop.run(server.start(listener))
        self.addCleanup(lambda: (self.loop.run(server.close()), listener.close()))
        return listener.getsockname()[1]

    @staticmethod
    def said(port, data, end=False):
        """The whole answer to these bytes, until the connection ends."""
        with socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE) as one:
            one.sendall(data)
            if end:
                one.shutdown(socket.SHUT_WR)
            answer = b""
            while more := one.recv(65536):
                answer += more
            return answer


class Http(Served):
    def setUp(self):
        super().setUp()
        self.hidden = 0
        self.slow = asyncio.Event()

    def serve(self, **guard):
        async def hidden(_):
            self.hidden += 1
            return http.text_answer(200, "hidden")

        async def echo(request):
            return http.text_answer(200, f"'{request.body.decode()}'")

        async def slow(_):
            await self.slow.wait()
            return http.text_answer(200, "slow")

        self.server = http.Server([http.Route("/hidden", ("GET", "POST"), hidden), http.Route("/echo", ("PUT", "POST"), echo, ("PUT",)),
                                   http.Route("/slow", ("GET",), slow)], http.Guard(open_without_token=True, **guard))
        return self.listen(self.server)

    def test_a_doubtful_request_is_refused_and_hides_no_other(self):
        port = self.serve()
        for text, status in DOUBTFUL:
            with self.subTest(text=text):
                answer = self.said(port, text + HIDDEN)
                self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), answer)
                self.assertIn(b"Connection: close\r\n", answer)
                self.assertNotIn(b"HTTP/1.1 200", answer)
                self.assertEqual(self.hidden, 0)

    def test_requests_follow_each_other_on_a_connection(self):
        port = self.serve()
        for text, goes_on in PLAIN:
            with self.subTest(text=text):
                answer = self.said(port, text + text + GET + b"Host: x\r\nConnection: close\r\n\r\n")
                self.assertEqual(answer.count(b"HTTP/1.1 200 "), 3 if goes_on else 1, answer)

    def test_a_request_may_come_byte_by_byte(self):
        port = self.serve()
        with socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE) as one:
            for byte in b"PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n":
                one.sendall(bytes([byte]))
            answer = b""
            while more := one.recv(65536):
                answer += more
        self.assertTrue(answer.endswith(b"'abcd'"), answer)

    def test_a_head_has_a_bound(self):
        port = self.serve()
        for begin, line, count, status in ((GET + b"Host: x\r\n", b"A: b\r\n", 63, 200), (GET + b"Host: x\r\n", b"A: b\r\n", 64, 431),
                                           (GET + b"Host: x\r\n", b"A: b\r\n", 20000, 431), (GET + b"Host: x\r\n", b"A", 40000, 431),
                                           (b"GET /hidden?", b"A", 40000, 414)):
            with socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE) as one:
                one.sendall(begin + line * count + b"\r\n")
                self.assertTrue(one.recv(1024).startswith(b"HTTP/1.1 %d " % status), (line, count))

    def test_the_head_is_answered_before_its_body_comes(self):
        port = self.serve(token="a token of some length")
        for head, status in HEADS_ALONE:
            with self.subTest(head=head):
                answer = self.said(port, head + b"Host: x\r\nExpect: 100-continue\r\n\r\n")  # the body never arrives
                self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), answer)
                self.assertIn(b"Connection: close\r\n", answer)

    def test_a_body_that_waits_is_called(self):
        port = self.serve(token="a token of some length")
        with socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE) as one:
            one.sendall(b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + TOKEN + b"Expect: 100-continue\r\nConnection: close\r\n\r\n")
            self.assertEqual(one.recv(1024), b"HTTP/1.1 100 Continue\r\n\r\n")
            one.sendall(b"abc")
            answer = b""
            while more := one.recv(65536):
                answer += more
        self.assertTrue(answer.endswith(b"\r\n\r\n'abc'"), answer)

    def test_a_put_says_how_long_it_is(self):
        port = self.serve()
        for head, body, status, end in ((b"PUT /echo HTTP/1.1\r\nContent-Length: 3\r\n", b"abc", 200, b"'abc'"),
                                        (b"PUT /echo HTTP/1.1\r\nContent-Length: 0\r\n", b"", 200, b"''"),
                                        (b"PUT /echo HTTP/1.1\r\n", b"", 411, b"Content-Length\n"), (b"POST /echo HTTP/1.1\r\n", b"", 200, b"''")):
            answer = self.said(port, head + b"Host: x\r\nConnection: close\r\n\r\n" + body)
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status) and answer.endswith(end), answer)

    def test_bodies_of_one_address_have_a_bound(self):
        """Four of 4 MiB that are not whole leave no memory for a fifth. Bodies that no handler reads take none."""
        port = self.serve()
        head = b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\nConnection: close\r\n\r\n"
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE)) for _ in range(4)]
            for one in held:
                one.sendall(head + b"x" * (4 * MIB - 1))
            wait_until(lambda: sum(self.server.bodies.values()) == http.BODIES_OF_ONE, 60, "all of them are read")
            self.assertTrue(self.said(port, head + b"x").startswith(b"HTTP/1.1 503 "))
            dropped = self.said(port, b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 4194304\r\nConnection: close\r\n\r\n" + b"x" * 4 * MIB)
            self.assertTrue(dropped.startswith(b"HTTP/1.1 200 "), dropped)
            held[0].sendall(b"x")
            self.assertTrue(held[0].recv(1024).startswith(b"HTTP/1.1 200 "))

    def test_an_answer_may_take_longer_than_a_request(self):
        with mock.patch.multiple(http, IDLE_S=0.2, REQUEST_S=0.2):
            port = self.serve()
            self.loop.loop.call_later(3, self.slow.set)
            self.assertTrue(self.said(port, b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").endswith(b"slow"))

    def test_a_connection_that_says_nothing_or_drips_is_ended(self):
        with mock.patch.multiple(http, IDLE_S=1000, REQUEST_S=1):
            port = self.serve()
            with socket.create_connection(("127.0.0.1", port), timeout=0.05) as one:
                until = time.monotonic() + 60 * PATIENCE
                with contextlib.suppress(ConnectionError):
                    while True:
                        self.assertLess(time.monotonic(), until)
                        one.send(b"G")
                        with contextlib.suppress(TimeoutError):
                            if one.recv(1) == b"":
                                break

    def test_requests_are_answered_while_silent_connections_take_every_place(self):
        port = self.serve()
        with contextlib.ExitStack() as stack:
            busy = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE))
            busy.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for number in range(400):
                one = stack.enter_context(socket.socket())
                one.bind((f"127.0.0.{2 + number % 50}", 0))
                one.connect(("127.0.0.1", port))
            self.assertTrue(self.said(port, GET + b"Host: x\r\nConnection: close\r\n\r\n").endswith(b"hidden"))
            self.loop.loop.call_soon_threadsafe(self.slow.set)
            self.assertIn(b" 200 ", busy.recv(1024))  # a request that is being answered is not dropped

    def test_what_a_token_and_origins_let_through(self):
        port = self.serve(token="a token of some length", origins=("https://board.example",))
        put = b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n"
        for more, status in ((b"", 401), (b"Authorization: Basic abc\r\n", 401), (b"Authorization: Bearer another token, as long\r\n", 401),
                             (b"Authorization: Bearer\r\n", 401), (TOKEN.replace(b"Bearer", b"bearer"), 200), (TOKEN, 200),
                             (TOKEN + b"Origin: https://board.example\r\n", 200), (TOKEN + b"Origin: https://board.example.evil\r\n", 403),
                             (TOKEN + b"Origin: null\r\n", 403)):
            answer = self.said(port, put + more + b"\r\n")
            self.assertTrue(answer.startswith(b"HTTP/1.1 %d " % status), (more, answer))


class Flags(unittest.TestCase):
    def test_defaults_are_those_of_mooncake(self):
        master, client = flags.Flags(flags.MASTER), flags.Flags(flags.CLIENT)
        for name, value in (("port", 50051), ("metrics_port", 9003), ("default_kv_lease_ttl", 10000), ("max_kv_soft_pin_ttl", 86400000),
                            ("put_start_discard_timeout_sec", 30000), ("put_start_release_timeout_sec", 600000),
                            ("eviction_high_watermark_ratio", 0.9), ("enable_offload", False)):
            self.assertEqual(master[name], value, name)
        self.assertFalse(master.given("port"))
        self.assertEqual(client["global_segment_size"], 4 * GIB)

    def test_values_come_in_every_form(self):
        for words, name, value in (
                ("--port=1234", "port", 1234), ("-port|1234", "port", 1234), ("--metrics-port|1234", "metrics_port", 1234),
                ("-metrics_port=7|--metrics-port=8", "metrics_port", 8), ("--enable_offload", "enable_offload", True),
                ("-enable-offload=TRUE", "enable_offload", True), ("--enable_offload=n", "enable_offload", False),
                ("--enable_offload|--noenable_offload", "enable_offload", False), ("--noenable-offload|--enable_offload=1", "enable_offload", True),
                ("--default_kv_lease_ttl=500", "default_kv_lease_ttl", 500), ("--default_kv_lease_ttl=500ms", "default_kv_lease_ttl", 500),
                ("--default_kv_lease_ttl|5s", "default_kv_lease_ttl", 5000), ("--default_kv_lease_ttl=2m", "default_kv_lease_ttl", 120000),
                ("--default_kv_lease_ttl=1.5s", "default_kv_lease_ttl", 1500), ("--default_kv_lease_ttl=0.5min", "default_kv_lease_ttl", 30000),
                ("--put_start_discard_timeout_sec=1.5", "put_start_discard_timeout_sec", 1500),
                ("--default_kv_lease_ttl=1h", "default_kv_lease_ttl", 3600000), ("--default_kv_lease_ttl=0", "default_kv_lease_ttl", 0),
                ("--put_start_discard_timeout_sec=2", "put_start_discard_timeout_sec", 2000),
                ("--put_start_discard_timeout_sec=1500ms", "put_start_discard_timeout_sec", 1500), ("--memory=16", "memory", 16),
                ("--memory|1.5 GB", "memory", 1536 * MIB), ("--memory=16 MB", "memory", 16 * MIB), ("--memory|2g", "memory", 2 * GIB),
                ("--port=1|--rpc-port=2", "rpc_port", 2), ("--root_fs_dir=", "root_fs_dir", "")):
            with self.subTest(words=words):
                parsed = flags.Flags(flags.MASTER)
                self.assertIsNone(parsed.parse(words.split("|")))
                self.assertEqual(parsed[name], value)
                self.assertTrue(parsed.given(name))
        parsed = flags.Flags(flags.CLIENT)
        parsed.parse(["--global_segment_size", "1.5 GB"])
        self.assertEqual(parsed["global_segment_size"], 1536 * MIB)

    def test_what_is_wrong_is_named(self):
        for words, text in (
                ("--metrcs_port=1", "unknown flag 'metrcs_port'; the nearest known one is --metrics_port"), ("--evict_ratio=1", "--eviction_ratio"),
                ("--nometrics_port", "unknown flag"), ("--port", "--port needs a value"), ("--port=", "'' is not a whole number"),
                ("--port=-1", "not a whole number"), ("--port= 1", "not a whole number"), ("--port=1x", "not a whole number"),
                ("--port=\u0661", "not a whole number"), ("--port=0", "'0' is not in 1..65535"), ("--port=65536", "not in 1..65535"),
                ("--port=99999999999999999999999", "not a whole number"), ("--enable_offload=flase", "'flase' is not true or false"),
                ("--enable_offload|false", "'false' is not a flag"), ("--eviction_ratio=1.5", "not in 0..1"), ("--eviction_ratio=nan", "not a number"),
                ("--eviction_ratio=0.5x", "not a number"), ("--default_kv_lease_ttl=5 s", "not a duration"),
                ("--default_kv_lease_ttl=0.5ms", "not a duration"), ("--default_kv_lease_ttl=1.s", "not a duration"),
                ("--default_kv_lease_ttl=5d", "not a duration"), ("--default_kv_lease_ttl=18446744073709551615h", "not a duration"),
                ("--memory=50%", "is not bytes"), ("--memory=18446744073709551615k", "is not bytes"),
                ("--allocation_strategy=fastest", "'fastest' is not one of: random"), ("--rpc_interface=a-name-that-is-too-long", "longer than 15 bytes"),
                ("word", "'word' is not a flag"), ("--", "'--' is not a flag"), ("---port=1", "is not a flag"), ("--=1", "is not a flag"),
                ("--a_name_that_is_so_long_that_no_flag_of_any_program_could_ever_have_it=1", "unknown flag"),
                ("--config_path=/nowhere/x.json", "/nowhere/x.json"), ("--config_path=/nowhere/x.toml", "must end in .json, .yaml or .yml")):
            with self.subTest(words=words), self.assertRaises(flags.WrongUse) as caught:
                flags.Flags(flags.MASTER).parse(words.split("|"))
            self.assertIn(text, str(caught.exception))

    def test_the_limit_of_the_disk_is_a_size_as_mooncakes_are(self):
        made = types.SimpleNamespace(flags={"quota_bytes": 1 << 50, "global_file_segment_size": 1 << 50})
        for text, want in (("1073741824", GIB), ("1GB", GIB), ("1.5 gb", 1536 * MIB), ("", 2048 * GIB)):
            with mock.patch.dict(os.environ, MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES=text):
                self.assertEqual(node.Node._disk_size(made, "/"), want, text)
        with mock.patch.dict(os.environ, MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES="half"), self.assertRaisesRegex(daemon.Failure, "TOTAL_SIZE_LIMIT_BYTES: 'half'"):
            node.Node._disk_size(made, "/")

    def test_help_and_what_means_nothing(self):
        for word, asked in (("--help", "help"), ("-h", "help"), ("-help", "help"), ("--version", "version")):
            self.assertEqual(flags.Flags(flags.MASTER).parse([word]), asked)
        parsed = flags.Flags(flags.MASTER)
        shown = parsed.help()
        for flag in flags.MASTER:
            self.assertIn(f"--{flag.name}=", shown)
        parsed.parse(["--enable_ha", "--max_threads=8", "--client_ttl=10000ms", "--port=7"])  # client_ttl: its default, written otherwise
        self.assertEqual(sorted(flag.name for flag, _ in parsed.ignored()), ["enable_ha", "max_threads"])

    def test_files_are_read_strictly(self):
        fine = None  # port 7, offload, a lease of 5 s
        for name, text, error in (
                ("a.json", '{"port": 7, "enable_offload": true, "default_kv_lease_ttl": "5s"}', fine),
                ("a.json", '{"port": "7", "enable-offload": "yes", "default_kv_lease_ttl": 5000}', fine),
                ("a.json", '{"prt": 7}', "unknown flag 'prt'; the nearest known one is --port"), ("a.json", '{"port": 70000}', "'70000' is not in"),
                ("a.json", '{"port": [7]}', "port: neither text, number nor boolean"), ("a.json", '{"port": null}', "port: neither"),
                ("a.json", '{"port": 1, "port": 2}', "duplicate"), ("a.json", "[7]", "not a JSON object"), ("a.json", '{"port": 7', "a.json:1"),
                ("a.json", "", "a.json:1"), ("a.json", '{"root_fs_dir": "a\\u0000b"}', "zero byte"), ("a.json", " " * (MIB + 1), "larger than 1 MiB"),
                ("a.yaml", "# a comment\nport: 7\nenable_offload: true\ndefault_kv_lease_ttl: 5s\n", fine),
                ("a.yml", "---\r\nport: '7' # seven\r\n\r\nenable_offload: on\r\ndefault_kv_lease_ttl: \"5000\"\r\n", fine),
                ("a.yaml", "port: 7\nprt: 8\n", "a.yaml:2: unknown flag 'prt'"), ("a.yaml", "port: [7]\n", "a.yaml:1: expected a line of `name: value`"),
                ("a.yaml", "port:\n  deep: 7\n", "a.yaml:1"), ("a.yaml", "port: &x 7\n", "a.yaml:1"), ("a.yaml", "port: 7\nport: 8\n", "a.yaml:2"),
                ("a.yaml", "port: 7\n\t- x: [\n", "a.yaml:2"), ("a.yaml", "just a text\n", "`name: value`")):
            with self.subTest(text=text[:40]), tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, name)
                with open(path, "w", encoding="utf-8", newline="") as file:
                    file.write(text)
                parsed = flags.Flags(flags.MASTER)
                if error is None:
                    parsed.parse([f"--config_path={path}"])
                    self.assertEqual((parsed["port"], parsed["enable_offload"], parsed["default_kv_lease_ttl"]), (7, True, 5000))
                    parsed.parse(["--port=9", "--config-path", path])  # the command line takes precedence
                    self.assertEqual(parsed["port"], 9)
                else:
                    with self.assertRaises(flags.WrongUse) as caught:
                        parsed.parse([f"--config_path={path}"])
                    self.assertIn(error, str(caught.exception))


class Secrets(unittest.TestCase):
    def test_secrets_come_from_the_environment_or_a_private_file(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ):
            os.environ.pop("MOONCAKE_CLUSTER_SECRET", None)
            self.assertIsNone(daemon.secret("MOONCAKE_CLUSTER_SECRET"))
            os.environ["MOONCAKE_CLUSTER_SECRET"] = "short"
            with self.assertRaisesRegex(flags.Failure, "at least 16"):
                daemon.secret("MOONCAKE_CLUSTER_SECRET")
            os.environ["MOONCAKE_CLUSTER_SECRET"] = SECRET
            self.assertEqual(daemon.secret("MOONCAKE_CLUSTER_SECRET"), SECRET)
            del os.environ["MOONCAKE_CLUSTER_SECRET"]
            path = os.environ["MOONCAKE_CLUSTER_SECRET_FILE"] = directory + "/secret"
            for make in (lambda: None, lambda: os.mkfifo(path), lambda: (os.unlink(path), open(path, "w", encoding="ascii").close(), os.chmod(path, 0o644)),
                         lambda: (os.chmod(path, 0o600), os.chmod(directory, 0o777))):  # others may read it; put another one there
                make()
                self.assertRaises(flags.Failure, daemon.secret, "MOONCAKE_CLUSTER_SECRET")
            os.chmod(directory, 0o700)
            with open(path, "w", encoding="ascii") as file:
                file.write(SECRET + "\nmore\n")
            self.assertEqual(daemon.secret("MOONCAKE_CLUSTER_SECRET"), SECRET)


class Files(unittest.TestCase):
    def test_a_directory_that_is_named_from_here_is_known_everywhere(self):
        """As the node's settings resolve it."""
        with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
            self.assertEqual(join.open_directory("keys", "i", "/run"), os.path.realpath(directory) + "/keys")
            self.assertTrue(os.path.isdir(directory + "/keys"))

    def test_a_file_is_synced_before_it_has_its_name_and_its_name_after(self):
        done = []
        with tempfile.TemporaryDirectory() as directory:
            with mock.patch.object(daemon.os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}"))), \
                    mock.patch.object(daemon.os, "rename", lambda old, new: done.append((old, new))):
                daemon.write_file(directory + "/name", "text")
            new = done[0]
            self.assertEqual(done, [new, (new, directory + "/name"), directory])

    def test_a_file_is_written_beside_what_has_any_name(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkfifo(directory + "/name.new")
            daemon.write_file(directory + "/name", "text", 0o644)
            self.assertEqual(sorted(os.listdir(directory)), ["name", "name.new"])
            self.assertEqual(os.stat(directory + "/name").st_mode & 0o777, 0o644)
            with mock.patch.object(daemon.os, "rename", side_effect=OSError(28, "no space")), self.assertRaisesRegex(OSError, f"'{directory}/name'$"):
                daemon.write_file(directory + "/name", "another")  # names the file that it could not write, the same each time
            self.assertEqual(sorted(os.listdir(directory)), ["name", "name.new"])


class Keeping(unittest.TestCase):
    """A master checks its files and its lock every few seconds."""

    def setUp(self):
        asked = flags.Flags(flags.MASTER)
        asked.parse([])
        self.said = mock.Mock()
        for module in (daemon, master):
            patch = mock.patch.object(module, "log", self.said)
            patch.start()
            self.addCleanup(patch.stop)
        self.master = master.Master(asked)
        self.master.node, self.master.cluster = mock.Mock(), None

    def look(self, at_s, error=None):
        self.master.node.keep_names.side_effect = error
        with mock.patch.object(master.time, "monotonic", return_value=at_s):
            self.master.kept.look(self.master._keep_names, "what")

    def test_who_takes_the_lock_and_fails_ends_no_other(self):
        taken = node.Taken("another master runs it")
        for at_s in (100, 100 + master.TICK_S):
            self.look(at_s, taken)
            self.look(at_s + 1)
            self.assertIsNone(self.master.taken)
        self.look(200, taken)
        self.look(199 + master.TICK_S, taken)
        self.assertIsNone(self.master.taken)
        self.look(200 + master.TICK_S, taken)
        self.assertIs(self.master.taken, taken)

    def test_a_lock_that_was_not_another_masters_for_a_whole_tick_was_not_taken(self):
        taken = node.Taken("another master runs it")
        for at_s, error in ((100, taken), (101, OSError(28, "no space")), (100 + master.TICK_S, taken)):
            self.look(at_s, error)
        self.assertIsNone(self.master.taken)

    def test_a_signal_ends_no_node_whose_lock_another_master_has(self):
        self.master.node.stop = mock.AsyncMock()
        full = OSError(28, "no space")
        for error, stops in ((full, 1), (node.Taken("another master runs it"), 1), (full, 1), (None, 2), (full, 3)):
            self.master.node.keep_names.side_effect = error
            asyncio.run(self.master._stop())
            self.assertEqual(self.master.node.stop.await_count, stops)

    def test_what_cannot_be_kept_is_said_once(self):
        for _ in range(3):
            self.look(100, OSError(28, "no space", "/run/x"))
        self.assertEqual([call.args for call in self.said.call_args_list], [("warn", "what: [Errno 28] no space: '/run/x'")])
        self.look(100)
        self.look(100, OSError(28, "no space", "/run/x"))
        self.assertEqual(self.said.call_count, 2)


class Serving(unittest.TestCase):
    def test_a_program_that_does_not_start_is_a_node_that_is_not_ready(self):
        """The error does not leave the master's watch, which would end a healthy node."""
        programs = mock.Mock()
        asked = admin.Admin(programs, "name", "host:1", 0)
        self.addCleanup(asked.close)
        for error in (BlockingIOError(11, "too busy"), OSError(24, "too many files"), RuntimeError("no thread"), ValueError("no JSON"),
                      flags.Failure("no node")):
            programs.status = mock.AsyncMock(side_effect=error)
            self.assertEqual(asyncio.run(asked.ready()), (False, str(error)))
            self.assertEqual(asyncio.run(asked.health(mock.Mock())).status, 503)

    def test_a_port_that_cannot_be_opened_is_an_error(self):
        programs = mock.Mock(status=mock.AsyncMock(return_value={"actors": [{"name": "registrar", "alive": True, "health": "ready", "reason": ""}]}))
        asked = admin.Admin(programs, "name", "host:1", 0, mock.AsyncMock(side_effect=OSError(98, "in use")))
        self.addCleanup(asked.close)
        with self.assertRaises(OSError):
            asyncio.run(asked.ready())


class Contributing(unittest.TestCase):
    def test_a_client_that_saw_too_many_nodes_is_replaced(self):
        asked = flags.Flags(flags.CLIENT)
        asked.parse([])
        lender = client.Contributor(asked)
        lender.instance, lender.programs, lender.length, lender.contributed = "name", mock.Mock(), 1, True
        gone = library.NodeError(library.LIMIT, "too many restarts")
        lender.node = old = mock.Mock()
        old.segments.side_effect = old.contribute.side_effect = gone
        new = mock.Mock()
        with mock.patch.object(library, "Node", side_effect=[gone, new]), mock.patch.object(client, "log"):
            for contributed in (False, False, True):  # the second attempt finds no client, and cannot open one
                lender._contribute_again()
                self.assertEqual(lender.contributed, contributed)
        old.close.assert_called_once_with()
        self.assertIs(lender.node, new)


class Adopting(unittest.TestCase):
    def test_a_number_that_another_process_has_since_is_no_supervisor(self):
        """Between a check of the process and opening its descriptor the supervisor ended, and its number was reused."""
        opened = []

        def comes_round(pid):
            opened.append(os.open("/dev/null", os.O_RDONLY))
            return opened[0]

        made = node.Node(flags.Flags(flags.MASTER), mock.Mock(), "name")
        with tempfile.TemporaryDirectory() as made.runtime_dir, mock.patch.object(node.os, "pidfd_open", comes_round), \
                mock.patch.object(node, "start_time", lambda pid: "second" if opened else "10"):
            with open(made.runtime_dir + "/supervisor.pid", "w", encoding="utf-8") as file:
                file.write("1 10\n")
            self.assertIsNone(made._running())
        with self.assertRaises(OSError):
            os.fstat(opened[0])


@unittest.skipUnless(os.path.exists(CTL), "sluicectl, which makes keys, was not built")
class Join(Served):
    def setUp(self):
        super().setUp()
        quiet = mock.patch.object(join, "log")
        quiet.start()
        self.addCleanup(quiet.stop)
        self.directory = tempfile.mkdtemp(prefix="sl-")
        self.addCleanup(shutil.rmtree, self.directory)

    def cluster(self, name, join_port=None, secret=SECRET):
        return join.Cluster(secret, f"{self.directory}/{name}", 3600, ("127.0.0.1", join_port) if join_port else None, CTL)

    def master(self, secret=SECRET, greet_s=0):
        cluster = self.cluster("master", secret=secret) if secret else None
        return cluster, self.listen(join.Port("1.0", "mooncake-1", cluster, greet_s))

    def joins(self, cluster):
        return self.loop.run(cluster.join_once(30 * PATIENCE))

    def knows(self, cluster, other, control):
        with open(f"{cluster.members.directory}/{other.members.name}.pub", encoding="ascii") as file:
            self.assertEqual(file.read(), f"public = {other.members.key}\n")
        with open(f"{cluster.members.directory}/peers", encoding="ascii") as file:
            self.assertIn(f"{other.members.name}@{control}\n", file.read())

    def test_nodes_that_join_know_each_other(self):
        master, port = self.master()
        b, c = self.cluster("b", port), self.cluster("c", port)
        self.assertTrue(self.joins(b))
        self.assertTrue(self.joins(c))
        self.assertTrue(self.joins(b))  # learns of c
        self.assertFalse(self.joins(b))
        self.knows(b, master, f"127.0.0.1:{master.control_port}")
        self.knows(b, c, f"127.0.0.1:{c.control_port}")
        self.knows(c, b, f"127.0.0.1:{b.control_port}")
        self.knows(master, b, f"127.0.0.1:{b.control_port}")
        self.assertNotIn(b.members.name, b.members.at)
        again = self.cluster("b", port)  # a later life is the same host, and knows them still
        self.assertEqual((again.members.name, again.members.key, again.control_port), (b.members.name, b.members.key, b.control_port))
        self.assertEqual(again.members.at, b.members.at)
        os.unlink(f"{b.members.directory}/{b.members.name}.pub")  # a pair of files that a power cut left incomplete
        self.assertEqual(self.cluster("b", port).members.key, b.members.key)
        self.assertTrue(os.path.exists(f"{b.members.directory}/{b.members.name}.pub"))

    def test_files_that_are_somebody_elses_are_named_and_stay(self):
        """In a --cluster_dir that has a person's files."""
        own, key = f"{self.directory}/b", "1" * 40

        def put(text, name="own"):
            with open(f"{own}/{name}", "w", encoding="utf-8") as file:
                file.write(text)

        def link(text):
            put(text)
            os.symlink("own", f"{own}/{name}")

        for name, make in (("peers", lambda: put("# by hand\nx@10.0.0.1:7000\n", name)), ("peers", lambda: put("x@host.lan:7000\n", name)),
                           ("peers", lambda: put("x@10.0.0.1:7000\n" * 3000, name)), ("peers", lambda: link("x@10.0.0.1:7000\n")),
                           ("peers", lambda: os.mkfifo(f"{own}/{name}")), ("port", lambda: put("7000 of ours\n", name)), ("port", lambda: put("0\n", name)),
                           ("port", lambda: link("7000\n")), ("port", lambda: os.mkdir(f"{own}/{name}")), ("name", lambda: link("a-name\n")),
                           ("name", lambda: put("a" * 70000, name))):
            os.mkdir(own, 0o700)
            make()
            before = os.lstat(f"{own}/{name}")
            with self.subTest(name=name), self.assertRaisesRegex(flags.Failure, f"'{own}/{name}'"):
                self.cluster("b")
            self.assertEqual(os.lstat(f"{own}/{name}").st_ino, before.st_ino)
            self.assertEqual(os.lstat(f"{own}/{name}").st_mtime_ns, before.st_mtime_ns)
            shutil.rmtree(own)
        members = self.cluster("b").members
        put(f"public = {key}\n", "x.pub")
        with self.assertRaisesRegex(flags.Failure, f"'{own}/x.pub' contains another key"):
            members.add(join.Member("x", "2" * 40, "10.0.0.1:7000"))
        self.assertTrue(members.add(join.Member("x", key, "10.0.0.1:7000")))
        self.assertTrue(members.add(join.Member("x", "2" * 40, "10.0.0.1:7000")))  # its own since
        for number, damaged in enumerate(("", "public = 11", "\0" * 50)):
            put(damaged, f"y{number}.pub")
            self.assertTrue(members.add(join.Member(f"y{number}", key, "10.0.0.1:7000")))
            self.assertEqual(self.text(members, f"y{number}.pub"), f"public = {key}\n")

    def test_files_that_are_removed_are_written_again(self):
        first = self.cluster("b")
        for cluster in (first, self.cluster("b")):  # made them, and read them
            members = cluster.members
            members.add(join.Member("x", "1" * 40, "10.0.0.1:7000"))
            before = {name: self.text(members, name) for name in os.listdir(members.directory)}
            for name in before:
                os.unlink(f"{members.directory}/{name}")
            members.keep()
            del before["x.pub"]  # it is shut out
            self.assertEqual({name: self.text(members, name) for name in os.listdir(members.directory)}, before)
            self.assertEqual(os.stat(f"{members.directory}/{members.name}.secret").st_mode & 0o777, 0o600)
        self.assertEqual((members.name, members.key, cluster.control_port), (first.members.name, first.members.key, first.control_port))

    def test_a_sign_in_what_is_another_users_since_is_left(self):
        with tempfile.TemporaryDirectory() as place, mock.patch.dict(os.environ, XDG_RUNTIME_DIR=place), mock.patch.object(daemon, "log") as said:
            asked = flags.Flags(flags.CLIENT)
            asked.parse([])
            lender = client.Contributor(asked)
            lender.instance = "mooncake-1"
            lender.put_sign()
            os.unlink(lender.sign)
            os.chmod(os.path.dirname(lender.sign), 0o777)
            for _ in range(3):
                lender.kept.look(lender.keep_sign, "what")
            self.assertEqual(said.call_count, 1)  # and not every second
            os.chmod(os.path.dirname(lender.sign), 0o700)
            with open(lender.sign + ".0123abcd", "w", encoding="utf-8"):
                pass  # of a process that was killed
            lender.kept.look(lender.keep_sign, "what")
            self.assertFalse(os.path.exists(lender.sign + ".0123abcd"))
            with mock.patch.object(client.os, "geteuid", return_value=os.geteuid() + 1):
                lender.end()
            self.assertTrue(os.path.exists(lender.sign))
            with mock.patch.object(client.os, "unlink", side_effect=PermissionError):
                lender.end()
            lender.end()
            self.assertFalse(os.path.exists(lender.sign))

    def test_what_a_killed_write_left_goes_at_the_next_start(self):
        own = self.cluster("b").members.directory
        for name in ("peers.0123abcd", "name.0123abcd", "port.0123abcd", "x-1.pub.0123abcd", "x.secret.0123abcd"):
            shutil.copy(own + "/peers", f"{own}/{name}")
        for name in ("peers.0123abcde", "peers.old", "notes.0123abcd"):  # files that are not the master's
            shutil.copy(own + "/peers", f"{own}/{name}")
        members = self.cluster("b").members
        self.assertEqual(sorted(os.listdir(own)), sorted(["peers.0123abcde", "peers.old", "notes.0123abcd", "peers", *members.own]))

    @staticmethod
    def text(members, name):
        with open(f"{members.directory}/{name}", encoding="ascii") as file:
            return file.read()

    def test_a_file_that_cannot_be_written_was_not_taken(self):
        members = self.cluster("b").members
        member = join.Member("host-1", "1" * 40, "10.0.0.1:7000")
        for after in (0, 1):
            written, write = [], join.write_file

            def fails(path, *rest, written=written, write=write, after=after):
                written.append(path)
                if len(written) > after:
                    raise OSError(28, "no space")
                write(path, *rest)
            with mock.patch.object(join, "write_file", fails), self.assertRaises(OSError):
                members.add(member)
            self.assertEqual(members.at, {})
        self.assertTrue(members.add(member))

    def test_names_that_say_nothing_make_room(self):
        members = self.cluster("b").members
        named = [join.Member(f"host-{number:06x}", f"{number:040}", "10.0.0.1:7000") for number in range(join.MEMBERS_MAX + 1)]
        for member in named[:-1]:
            self.assertTrue(members.add(member))
        with self.assertRaisesRegex(flags.Failure, "was active in the last 3600 s"):
            members.add(named[-1])
        self.assertFalse(members.add(named[0]))  # known again
        members.quiet_s = 0
        self.assertTrue(members.add(named[-1]))
        self.assertEqual(set(members.at), {member.name for member in named} - {named[1].name})
        self.assertFalse(os.path.exists(f"{members.directory}/{named[1].name}.pub"))  # its key is no longer accepted here
        self.assertTrue(os.path.exists(f"{members.directory}/{named[0].name}.pub"))
        self.assertEqual(len(self.cluster("b").members.at), join.MEMBERS_MAX)

    def test_a_host_without_the_secret_learns_nothing(self):
        for ours, theirs, text in ((SECRET, "another secret, long enough", "another secret"), (None, SECRET, "serves only its own host")):
            master, port = self.master(ours)
            b = self.cluster("b", port, theirs)
            with self.assertRaisesRegex(flags.Failure, text):
                self.joins(b)
            self.assertEqual(b.members.at, {})
            self.assertEqual(master.members.at if master else {}, {})

    def test_what_is_no_master_teaches_nothing(self):
        zeros = "0" * 64
        greeting = b'{"sluice": "1", "challenge": "%s"}\n' % zeros.encode()
        for lines in (b"HTTP/1.1 400 Bad Request\n", b"{}\n", b"[1]\n", b'{"sluice": 3}\n', b'{"sluice": "1", "challenge": "short"}\n', b"x" * 70000,
                      greeting + b"{}\n", greeting + b'{"nodes": "[]", "mac": "%s"}\n' % zeros.encode()):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                def speak(listener=listener, lines=lines):
                    with listener.accept()[0] as one, contextlib.suppress(OSError):
                        for line in lines.splitlines(keepends=True):
                            one.sendall(line)
                            one.settimeout(0.2)
                            with contextlib.suppress(TimeoutError):
                                one.recv(4096)
                thread = threading.Thread(target=speak)
                thread.start()
                b = self.cluster("b", listener.getsockname()[1])
                self.assertRaises(flags.Failure, self.joins, b)
                self.assertEqual(b.members.at, {})
                thread.join()

    def test_what_is_no_join_changes_nothing(self):
        master, port = self.master()
        deep = b'{"join": ' + b"[" * 2000 + b"]" * 2000 + b"}\n"
        for line in (b"", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"join": "{}", "mac": ""}\n', b'{"join": 3, "mac": 4}\n',
                     b'{"join": "{}", "mac": "%s"}\n' % (b"0" * 64), deep):
            answer = self.said(port, line, end=True)
            self.assertIn(b'"sluice"', answer)
            self.assertNotIn(b"nodes", answer)
            self.assertNotIn(b"error" if line == deep else b"nodes", answer)  # nesting is not even parsed
            self.assertEqual(master.members.at, {})
        for text in ("{}", "[]", "1", json.dumps({"name": "x", "key": "0" * 40, "port": 70000, "challenge": "0" * 64}),
                     json.dumps({"name": "a/b", "key": "0" * 40, "port": 7, "challenge": "0" * 64}),
                     json.dumps({"name": "x", "key": "0" * 40, "port": 7, "challenge": "short"})):  # from one that knows the secret
            self.assertRaises(flags.Failure, master.take, text, ("127.0.0.1", 1))
            self.assertEqual(master.members.at, {})
        self.joins(self.cluster("b", port))  # it still serves

    def test_bad_members_are_refused(self):
        members = self.cluster("b").members
        key = "0123456789012345678901234567890123456789"
        for name, its, control in (("a/b", key, ""), ("", key, ""), ("x", "short", ""), ("x", key[:-3] + " \n9", ""), ("x", key, "host:1"),
                                   ("x", key, "0.0.0.0:1"), ("x", key, "1.2.3.4:1\ny@1.1.1.1:1"), ("x", key, "[fe80::1%a\nb]:1"), ("x\n", key, ""),
                                   (".", key, ""), ("x", key, "1.2.3.4:0"), ("x", key, "::1:1")):
            with self.subTest(name=name, control=control):
                self.assertRaises(flags.Failure, members.add, join.Member(name, its, control))
                self.assertEqual(members.at, {})

    def test_a_host_joins_while_silent_connections_take_every_place(self):
        master, port = self.master()
        with contextlib.ExitStack() as stack:
            for number in range(200):
                one = stack.enter_context(socket.socket())
                one.bind((f"127.0.0.{2 + number % 100}", 0))
                one.connect(("127.0.0.1", port))
            b = self.cluster("b", port)
            self.assertTrue(self.joins(b))
        self.assertEqual(list(master.members.at), [b.members.name])

    def test_a_host_has_so_long_to_say_who_it_is(self):
        _, port = self.master(greet_s=0.1)
        with socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE) as one:
            one.sendall(b"{")
            while one.recv(4096):
                pass


class Names(unittest.TestCase):
    def test_a_host_with_addresses_of_a_kind_that_is_not_here(self):
        found = [(socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("2001:db8::1", 0, 0, 0)), (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("192.0.2.1", 0))]
        with mock.patch("socket.getaddrinfo", return_value=found), mock.patch("socket.socket", side_effect=OSError("no such family")):
            self.assertFalse(places.is_here("elsewhere"))

    def test_the_version_of_libsluice_is_that_of_its_header(self):
        with open(os.path.join(ROOT, "client", "include", "sluice.h"), encoding="utf-8") as header:
            self.assertEqual(int(re.search(r"#define SLUICE_API_VERSION (\d+)", header.read())[1]), library.API_VERSION)

    @unittest.skipUnless(shutil.which("cc"), "no C compiler is here")
    def test_structures_lie_as_in_its_header(self):
        names = {"sl_error": library._Error, "sl_client_options": library._Options, "sl_object_key": library._Key, "sl_stat": library._Stat,
                 "sl_segment_info": library._Contribution}
        lines = [f'printf("%zu ", sizeof(struct {name}));' + "".join(
            f'printf("%zu:%zu ", offsetof(struct {name}, {field}), sizeof(((struct {name} *)0)->{field}));' for field, _ in kind._fields_)
            for name, kind in names.items()]
        with tempfile.TemporaryDirectory() as directory:
            with open(directory + "/a.c", "w", encoding="ascii") as file:
                file.write('#include "client/include/sluice.h"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {' + "\n".join(lines) + "}\n")
            subprocess.run(["cc", "-w", "-I", ROOT, "-o", directory + "/a", directory + "/a.c"], check=True, timeout=60 * PATIENCE)
            said = subprocess.run([directory + "/a"], stdout=subprocess.PIPE, text=True, check=True, timeout=60 * PATIENCE).stdout.split()
        ours = [text for kind in names.values() for text in [str(ctypes.sizeof(kind)), *(
            f"{getattr(kind, field).offset}:{getattr(kind, field).size}" for field, _ in kind._fields_)]]
        self.assertEqual(said, ours)

    def test_keys_are_named_as_the_store_names_them(self):
        """tests/unit/client/mooncake/store_names_test.c has the same."""
        tenant = library.tenant_prefix("t")
        self.assertEqual((library.tenant_prefix("default"), tenant), (b"", b"\x01t\x01"))
        for prefix, key, name in ((b"", b"a", b"a"), (b"", b"\x01a", b"\x01\x01\x01a"), (tenant, b"a", b"\x01t\x01a"), (b"", "\u00e4".encode(), b"\xc3\xa4")):
            self.assertEqual(library.name_of(prefix, key), name)
            self.assertEqual(library.key_of(prefix, name), key)
            self.assertFalse(library.is_digest(prefix, name))
        for prefix, key in ((b"", b"l" * 1025), (tenant, b"l" * 1023), (b"", b"a\0b"), (b"", b"\xff")):
            name = library.name_of(prefix, key)
            self.assertTrue(name.startswith((prefix or b"\x01\x01")[:-1] + b"\x03"))
            self.assertTrue(library.is_digest(prefix, name))
            self.assertIsNone(library.key_of(prefix, name))
        self.assertEqual((library.name_of(b"", b""), library.name_of(b"", b"l" * (MIB + 1))), (None, None))
        self.assertIsNone(library.key_of(tenant, b"a"))
        self.assertIsNone(library.key_of(b"", b"\x01t\x01a"))

    def test_which_node_is_behind_a_master(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("SLUICE_INSTANCE", None)
            for master, instance in (("127.0.0.1:7", "mooncake-7"), ("localhost", "mooncake-50051"), ("[::1]:7", "mooncake-7"),
                                     ("192.0.2.1:1", "mooncake-192-0-2-1-1")):
                self.assertEqual(places.instance_of_master(master), instance)
            self.assertRaises(flags.Failure, places.instance_of_master, "a:b:c")
            self.assertRegex(places.instance_joined("A" * 30, 5), "^mooncake-a{14}-[0-9a-f]{8}-5$")
            os.environ["SLUICE_INSTANCE"] = "own"
            self.assertEqual(places.instance_of_master("192.0.2.1:1"), "own")


if __name__ == "__main__":
    main()
