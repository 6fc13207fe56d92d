"""The proxy in front of prefill and decode, with servers that are played."""

import http.client
import http.server
import json
import socket
import threading
import time
import unittest

import python_support  # noqa: F401  the package that was built
from node_support import main

from sluice.vllm import proxy

GIVEN = {"do_remote_prefill": True, "do_remote_decode": False, "sluice_handover": "1234", "sluice_node": "a",
         "sluice_models": {"full16": "m"}}
SECONDS = 20
PIECES = [b"data: {\"a\": 1}\n\n", b"data: [DONE]\n\n"]


class Played(http.server.ThreadingHTTPServer):
    """A fake vLLM: records its requests, and answers as a test wants."""

    daemon_threads = True

    def __init__(self, answer=None, status=200, pieces=None, cut=False):
        super().__init__(("127.0.0.1", 0), Played.Handler)
        self.reply, self.status, self.pieces, self.cut = answer, status, pieces, cut
        self.asked, self.headers, self.seen, self.wait = [], [], [], None
        self.begins = False  # a stream, before it waits
        self.closes = False  # says that the connection ends with the answer
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.server.seen.append(self.path)
            self.say({"path": self.path})

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked.append((self.path, json.loads(body)))
            self.server.headers.append(dict(self.headers.items()))
            if self.server.wait and not self.server.begins:
                self.server.wait.wait(SECONDS)
            if self.server.pieces is None:
                return self.say(self.server.reply)
            self.send_response(self.server.status)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            if self.server.closes:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.server.wait and self.server.begins:
                self.server.wait.wait(SECONDS)
            for piece in self.server.pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not self.server.cut:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def say(self, what):
            body = json.dumps(what).encode()
            self.send_response(self.server.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass


class Proxied(unittest.TestCase):
    def started(self, prefill=None, decode=None, direct=False):
        self.prefill = prefill or Played({"kv_transfer_params": GIVEN})
        self.decode = decode or Played({"choices": ["text"]})
        self.made = made = proxy.Proxy(("127.0.0.1", 0), proxy.Server(self.prefill.url), proxy.Server(self.decode.url), direct)
        threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        for server in (made, self.prefill, self.decode):
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        proxy.log.setLevel("CRITICAL")
        self.port = made.server_address[1]

    def ask(self, path="/v1/completions", body=None, method="POST", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self.addCleanup(connection.close)
        if not isinstance(body, bytes):
            body = json.dumps(body or {"prompt": "p", "max_tokens": 20})
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response, response.read()

    def test_prefill_first_then_decode_with_what_it_gave(self):
        self.started()
        asked = {"model": "m", "prompt": "p", "max_tokens": 20, "min_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        response, answer = self.ask(body=asked, headers={"Authorization": "Bearer x", "X-Request-Id": "7"})
        self.assertEqual((response.status, json.loads(answer)), (200, {"choices": ["text"]}))
        ((path, first),), (second,) = self.prefill.asked, self.decode.asked
        self.assertEqual(path, "/v1/completions")
        self.assertEqual(first, {"model": "m", "prompt": "p", "max_tokens": 1, "stream": False, "kv_transfer_params": proxy.ASKED})
        self.assertEqual(second, ("/v1/completions", {**asked, "kv_transfer_params": GIVEN}))
        for server in (self.prefill, self.decode):
            self.assertEqual([server.headers[0][name] for name in ("Authorization", "X-Request-Id")], ["Bearer x", "7"])

    def test_hints_of_the_client_go_to_both_and_nothing_else_of_its_parameters(self):
        self.started()
        hints = {"sluice_hints": {"session": "ends"}}
        self.ask(body={"prompt": "p", "kv_transfer_params": {**hints, "do_remote_prefill": True, "sluice_node": "elsewhere"}})
        ((_, first),), ((_, second),) = self.prefill.asked, self.decode.asked
        self.assertEqual(first["kv_transfer_params"], {**proxy.ASKED, **hints})
        self.assertEqual(second["kv_transfer_params"], {**GIVEN, **hints})

    def test_chat(self):
        self.started()
        self.ask("/v1/chat/completions", {"messages": [], "max_completion_tokens": 9})
        self.assertEqual((self.prefill.asked[0][1]["max_tokens"], self.prefill.asked[0][1]["max_completion_tokens"]), (1, 1))
        self.assertEqual(self.decode.asked[0][1]["max_completion_tokens"], 9)

    def test_both_requests_have_the_same_id(self):
        self.started()
        self.ask()
        self.assertEqual(self.prefill.headers[0]["X-Request-Id"], self.decode.headers[0]["X-Request-Id"])

    def test_streams(self):
        self.started(decode=Played(pieces=PIECES))
        response, answer = self.ask(body={"prompt": "p", "stream": True})
        self.assertEqual((response.getheader("Content-Type"), answer), ("text/event-stream", b"".join(PIECES)))

    def test_pieces_come_before_the_end(self):
        self.started(decode=Played(pieces=(wait_between(go := threading.Event()))))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", b'{"prompt": "p", "stream": true}')
        response = connection.getresponse()
        self.assertEqual(response.read1(100), PIECES[0])
        go.set()
        self.assertEqual(response.read(), PIECES[1])

    def test_a_stream_that_is_cut_off_does_not_look_whole(self):
        self.started(decode=Played(pieces=PIECES, cut=True))
        with self.assertRaises(http.client.IncompleteRead):
            self.ask(body={"prompt": "p", "stream": True})

    def test_decode_computes_whatever_becomes_of_prefill(self):
        for prefill in (Played({"error": "busy"}, 503), Played({"kv_transfer_params": None}), Played([1]),
                        Played({"kv_transfer_params": "x"})):
            self.started(prefill)
            response, _ = self.ask()
            self.assertEqual(response.status, 200)
            self.assertNotIn("kv_transfer_params", self.decode.asked[0][1])
        self.started()
        self.prefill.shutdown()
        self.prefill.server_close()
        response, _ = self.ask()
        self.assertEqual((response.status, "kv_transfer_params" in self.decode.asked[0][1]), (200, False))

    def test_what_prefill_calls_wrong_is_the_answer(self):
        self.started(Played({"error": "no such model"}, 404))
        response, answer = self.ask()
        self.assertEqual((response.status, json.loads(answer), self.decode.asked), (404, {"error": "no such model"}, []))

    def test_decode_that_is_gone(self):
        self.started()
        self.decode.shutdown()
        self.decode.server_close()
        self.assertEqual(self.ask()[0].status, 502)

    def test_direct_asks_both_at_once(self):
        self.started(direct=True)
        self.ask()
        self.assertEqual(self.decode.asked[0][1]["kv_transfer_params"], GIVEN)  # the first one learns the node's name
        self.prefill.wait = threading.Event()
        response, _ = self.ask()  # answered while prefill computes
        told = self.decode.asked[1][1]["kv_transfer_params"]
        self.assertEqual((response.status, told["do_remote_prefill"], told["sluice_node"]), (200, True, "a"))
        end = time.monotonic() + SECONDS
        while len(self.prefill.asked) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(self.prefill.asked[1][1]["kv_transfer_params"], {**proxy.ASKED, "sluice_handover": told["sluice_handover"]})
        self.prefill.wait.set()

    def decode_asked(self, count):
        end = time.monotonic() + SECONDS
        while len(self.decode.asked) < count and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(len(self.decode.asked), count)

    def failing_beside(self, reply, **how):
        """Decode waits for its blocks when prefill answers this; the response and its body."""
        self.started(direct=True)
        self.ask()
        waits, fails = threading.Event(), threading.Event()
        self.addCleanup(waits.set)
        self.addCleanup(fails.set)
        self.prefill.reply, self.prefill.status = reply
        self.prefill.wait = fails
        self.decode.wait = waits
        for name, value in how.items():
            setattr(self.decode, name, value)
        got = []
        asking = threading.Thread(target=lambda: got.append(self.ask()), daemon=True)
        asking.start()
        self.decode_asked(2)
        if self.decode.begins:  # prefill fails when the stream has begun
            time.sleep(0.2)
        fails.set()
        self.decode_asked(3)  # again, while the one before waits
        waits.set()
        asking.join(SECONDS)
        self.assertTrue(self.decode.asked[1][1]["kv_transfer_params"]["do_remote_prefill"])
        self.assertNotIn("kv_transfer_params", self.decode.asked[2][1])
        return got[0]

    def test_direct_asks_decode_again_when_prefill_fails(self):
        for reply in (({"error": "no"}, 500), ({"no": "hand-over"}, 200), ({"error": "bad"}, 400)):
            response, answer = self.failing_beside(reply)
            self.assertEqual((response.status, json.loads(answer)), (200, {"choices": ["text"]}))

    def test_direct_does_not_ask_decode_to_wait_for_a_prefill_that_has_failed(self):
        self.started(direct=True)
        self.ask()
        beside = proxy.ConcurrentDecode()
        beside.prefill_failed()
        self.assertRaises(ConnectionAbortedError, beside.connected, http.client.HTTPConnection("127.0.0.1"))
        self.assertFalse(beside.answered())

    def test_direct_asks_decode_again_for_a_stream_that_has_said_nothing(self):
        for closes in (False, True):
            response, answer = self.failing_beside(({"error": "no"}, 500), pieces=PIECES, begins=True, closes=closes)
            self.assertEqual((response.status, answer), (200, b"".join(PIECES)))

    def test_direct_keeps_an_answer_that_has_begun(self):
        self.started(direct=True)
        self.ask()
        self.prefill.reply, self.prefill.status, self.prefill.wait = {"error": "late"}, 500, threading.Event()
        self.decode.pieces = wait_between(goes_on := threading.Event())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "p"}))
        response = connection.getresponse()
        answer = response.read1()
        self.prefill.wait.set()
        time.sleep(0.2)  # a wrong answer would arrive in this time
        goes_on.set()
        answer += response.read()
        self.assertEqual((response.status, answer, len(self.decode.asked)), (200, b"".join(PIECES), 2))

    def test_clients_cannot_say_what_is_handed_over(self):
        self.started(Played({}))
        self.ask(body={"prompt": "p", "kv_transfer_params": GIVEN})
        self.assertNotIn("kv_transfer_params", self.decode.asked[0][1])

    def test_other_paths_go_to_decode(self):
        self.started()
        self.assertEqual(json.loads(self.ask("/v1/models?a=b", b"", "GET")[1]), {"path": "/v1/models?a=b"})
        self.ask("/tokenize", {"prompt": "p"})
        self.assertEqual((self.prefill.asked, self.decode.asked), ([], [("/tokenize", {"prompt": "p"})]))

    def test_requests_that_are_none(self):
        self.started()
        self.assertEqual(self.ask(body=b"{")[0].status, 400)
        self.assertEqual(self.ask(body=b"[]")[0].status, 400)
        self.assertEqual(self.ask(body=b"{}", headers={"Content-Length": str(1 << 40)})[0].status, 413)
        self.assertEqual((self.prefill.asked, self.decode.asked), ([], []))

    def test_a_doubtful_request_is_refused_and_hides_no_other(self):
        self.started()
        hidden, post, body = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", "POST /tokenize HTTP/1.1\r\nHost: x\r\n", '{"a": 1}'
        for said in (post + "Content-Length: 8\r\nTransfer-Encoding: chunked\r\n\r\n" + body, post + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     post + "Content-Length: 8\r\nContent-Length: 8\r\n\r\n" + body, post + "Content-Length: 0\r\nContent-Length: 8\r\n\r\n" + body,
                     post + "Content-Length: +8\r\n\r\n" + body, post + "Content-Length : 8\r\n\r\n" + body, post + "Content-Length: 8\n\r\n" + body,
                     post + "A: b\r\n c\r\nContent-Length: 8\r\n\r\n" + body, post + "A: b\rContent-Length: 8\r\n\r\n" + body,
                     post + "A: \0\r\nContent-Length: 8\r\n\r\n" + body, post + "no line\r\nContent-Length: 8\r\n\r\n" + body,
                     post + "Host: y\r\nContent-Length: 8\r\n\r\n" + body, post.replace("Host: x\r\n", "") + "Content-Length: 8\r\n\r\n" + body,
                     post.replace("\r\nHost", "\nHost") + "Content-Length: 8\r\n\r\n" + body,
                     "GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n" + body,
                     "GET /v1/models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
            with self.subTest(said=said), socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as asking:
                asking.sendall((said + hidden).encode())
                answer = b"".join(iter(lambda: taken(asking), b""))
                self.assertRegex(answer, rb"\AHTTP/1.1 4")
                self.assertEqual((answer.count(b"HTTP/1.1 "), answer.count(b"hidden")), (1, 0), answer)
                self.assertEqual(self.decode.asked, [])
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as asking:  # and plain ones follow each other
            asking.sendall((post + "Content-Length: 8\r\n\r\n" + body + hidden.replace("Host: x", "Host: x\r\nConnection: close")).encode())
            self.assertEqual(b"".join(iter(lambda: taken(asking), b"")).count(b"HTTP/1.1 200"), 2)

    def begin(self, path, length, body=b""):
        """A request of whose body only the beginning arrives."""
        client = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        self.addCleanup(client.close)
        client.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path, length, body))
        return client

    def test_a_large_body_is_read_when_the_key_is_right(self):
        self.started(decode=Played(status=401))
        answer = self.begin(b"/v1/completions", 32 << 20).recv(100)
        self.assertIn(b" 401 ", answer)
        self.assertEqual(self.decode.seen, ["/v1/models"])
        self.decode.status = 200
        response, _ = self.ask(body={"prompt": "p" * (2 << 20)})
        self.assertEqual((response.status, len(self.prefill.asked)), (200, 1))

    def test_bodies_of_other_paths_are_passed_on_as_they_come(self):
        self.started()
        body = json.dumps({"text": "t" * (3 << 20)}).encode()
        response, _ = self.ask("/tokenize", body)
        self.assertEqual((response.status, self.decode.asked), (200, [("/tokenize", json.loads(body))]))
        self.assertEqual(self.made.bodies.left, proxy.BODIES_BYTES_MAX)

    def test_bodies_under_way_have_a_bound(self):
        self.started()
        self.made.bodies.left = 1 << 20
        self.begin(b"/v1/completions", 1 << 20)
        self.wait_for(lambda: self.made.bodies.left == 0)
        response, _ = self.ask()
        self.assertEqual(response.status, 503)

    def test_threads_have_a_bound_and_come_back(self):
        self.started()
        self.made.threads.left = 2
        first, _ = (self.begin(b"/v1/completions", 10) for _ in range(2))
        self.wait_for(lambda: self.made.threads.left == 0)
        over = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        self.addCleanup(over.close)
        self.assertIn(b" 503 ", over.recv(100))
        first.close()
        self.wait_for(lambda: self.made.threads.left == 1)
        self.assertEqual(self.ask()[0].status, 200)

    def test_a_prefill_beside_has_a_thread_of_the_bound(self):
        self.started(direct=True)
        self.ask()
        self.wait_for(lambda: self.made.threads.left == proxy.THREADS_MAX - 1)  # this connection
        self.made.threads.left = 1
        self.assertEqual(self.ask()[0].status, 200)  # prefill is asked first
        self.assertEqual(len(self.prefill.asked), 2)

    def wait_for(self, condition):
        until = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.005)

    def test_addresses(self):
        for url in ("ftp://a", "http://"):
            with self.assertRaises(proxy.argparse.ArgumentTypeError):
                proxy.Server(url)
        self.assertEqual(proxy.Server("host:9").where, ("host", 9))


def taken(asking):
    try:
        return asking.recv(65536)
    except ConnectionResetError:  # the unread part was dropped
        return b""


def wait_between(go):
    yield PIECES[0]
    go.wait(SECONDS)
    yield PIECES[1]


if __name__ == "__main__":
    main()
