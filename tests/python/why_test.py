"""Explanations: the results of a request block by block, why its blocks were missing, and ops as spans of a caller's trace."""

import base64
import fcntl
import glob
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import unittest

import python_support
from python_support import client, sluice
from node_support import CTL, PATIENCE, main, wait_until

BLOCKS, PIECE, TOKENS = 64, 4096, 4
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
PACKAGES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "otel_requirements.txt")


def pool():
    return sluice.Pool("attention", sluice.POOL_ATTENTION, [sluice.Layer(0, BLOCKS * PIECE, PIECE, PIECE)])


class OnNode(python_support.OnNode):
    settings = {"ranks": 1, "memory": "16MiB", "disk": "256MiB", "settings": ["--op-timeout", f"{10 * PATIENCE}s", "--load-log", "true"]}
    client_settings = {"op_timeout": f"{10 * PATIENCE}s"}

    def setUp(self):
        super().setUp()
        self.addCleanup(sluice.set_origin)

    def register(self, name="e", dtype="bf16", **options):
        words = {"pools": [pool()], "block_tokens": TOKENS, "block_count": BLOCKS, "model": {"name": "m", "dtype": dtype}, **options}
        engine = self.client.engine(name, **words)
        self.addCleanup(engine.end)
        return engine

    def ctl_json(self, *arguments, check=True):
        return json.loads(self.node.ctl(*arguments, "--json", check=check).stdout)

    def run_op(self, start, tokens, count, **options):
        return start(tokens, range(count), **options).wait()


class Requests(OnNode):
    def test_a_request_is_told_block_by_block_with_the_reason_of_its_first_miss(self):
        engine = self.register()
        sluice.set_origin("cmpl-7", PARENT)
        self.run_op(engine.store, range(4 * TOKENS), 4)
        self.run_op(engine.load, range(6 * TOKENS), 6)
        sluice.set_origin("cmpl-8")
        self.run_op(engine.load, range(4 * TOKENS), 4)

        of_seven = self.ctl_json("explain", "--request", "cmpl-7", check=False)["ops"]
        text = self.node.ctl("explain", "--request", "cmpl-7", check=False).stdout.decode()

        self.assertEqual([op["kind"] for op in of_seven], ["load", "store"])
        load, store = of_seven
        self.assertEqual([(run["first_block"], run["count"], run["outcome"]) for run in load["runs"]],
                         [(0, 4, "memory"), (4, 1, "missing"), (5, 1, "behind")])
        self.assertEqual([(run["count"], run["outcome"]) for run in store["runs"]], [(4, "stored")])
        self.assertEqual((load["traceparent"], load["request"], load["code"]), (PARENT, "cmpl-7", "SL_OK"))
        self.assertGreater(load["runs"][0]["at_ns"], 0)
        self.assertLessEqual(load["runs"][0]["at_ns"], load["took_ns"])
        self.assertEqual([row["block"] for row in load["not_there"]], [4, 5])
        self.assertIn("never stored", load["not_there"][0]["text"] + "never stored" * ("not seen" in load["not_there"][0]["text"]))
        self.assertIn("blocks 0 to 3: hit, memory", text)
        self.assertIn("blocks 4 to 4: miss", text)
        self.assertEqual(self.node.ctl("explain", "--request", "cmpl-8").returncode, 0)
        nobody = self.node.ctl("explain", "--request", "cmpl-9", check=False)
        self.assertEqual(nobody.returncode, 1)
        self.assertIn(b"not among the last", nobody.stderr)

    def test_a_request_is_found_by_what_its_client_called_it(self):
        """vLLM appends eight random digits to that."""
        engine = self.register()
        for name in ("chat-5-0a1b2c3d", "chat-5-0a1b2c3d4", "chat-5-words678", "chat-55"):
            sluice.set_origin(name)
            self.run_op(engine.store, range(TOKENS), 1)

        told = self.ctl_json("explain", "--request", "chat-5")["ops"]

        self.assertEqual([one["request"] for one in told], ["chat-5-0a1b2c3d"])
        for name in ("chat-6", "chat-6-0a1b2c3d"):
            sluice.set_origin(name)
            self.run_op(engine.store, range(TOKENS), 1)
        told = self.ctl_json("explain", "--request", "chat-6")["ops"]
        self.assertEqual([one["request"] for one in told], ["chat-6"], "its own name is listed before longer ones")

    def test_a_trace_id_finds_its_op_and_a_removal_is_the_reason(self):
        engine = self.register()
        self.run_op(engine.store, range(2 * TOKENS), 2)
        self.client.remove_all()
        self.run_op(engine.load, range(2 * TOKENS), 2, trace_id=0xabc123)

        told, = self.ctl_json("explain", "--request", "abc123", check=False)["ops"]

        self.assertEqual([(run["count"], run["outcome"]) for run in told["runs"]], [(1, "missing"), (1, "behind")])
        self.assertIn("removed", told["not_there"][0]["text"])
        self.assertGreater(told["not_there"][0]["ago_ns"], 0)

    def test_blocks_of_a_disk_are_told_as_such(self):
        engine = self.register()
        self.run_op(engine.store, range(TOKENS * BLOCKS), BLOCKS)
        self.node.ctl("flush")
        for i in range(20):  # more than 16 MiB: the blocks leave memory
            self.client.put(f"fill{i}", os.urandom(1 << 20))
        self.node.ctl("flush")
        sluice.set_origin("from-disk")
        result = self.run_op(engine.load, range(TOKENS * BLOCKS), BLOCKS)

        told, = self.ctl_json("explain", "--request", "from-disk", check=False)["ops"]

        counted = {"memory": 0, "disk": 0}
        for run in told["runs"]:
            counted[run["outcome"]] += run["count"]
        self.assertEqual(counted, {"memory": result.from_memory, "disk": result.from_disk})
        self.assertGreater(result.from_disk, 0)

    def test_another_identity_is_named_with_the_fields_that_differ(self):
        first, second = self.register("one", "bf16"), self.register("two", "fp8")
        self.run_op(first.store, range(3 * TOKENS), 3)
        sluice.set_origin("other-identity")
        self.run_op(second.load, range(3 * TOKENS), 3)

        told, = self.ctl_json("explain", "--request", "other-identity", check=False)["ops"]
        by_tokens = subprocess.run([CTL, "explain", "--tokens", "-", "--model", second.model_identity[:8], *self.node.where],
                                   input=" ".join(map(str, range(3 * TOKENS))), capture_output=True, text=True, env=self.node.environment)

        for text in (told["elsewhere"], by_tokens.stdout):
            self.assertIn(first.model_identity, text)
            self.assertIn('dtype "fp8" here, "bf16" there', text)
        self.assertEqual(by_tokens.returncode, 1)

    def test_tokens_are_told_block_by_block(self):
        engine = self.register("tokens", model={"name": "of tokens"})
        self.run_op(engine.store, range(100, 100 + 5 * TOKENS), 5)
        path = self.node.directory + "/tokens.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tokens": list(range(100, 100 + 7 * TOKENS))}, file)

        told = self.ctl_json("explain", "--tokens", path, "--model", "of tokens", check=False)
        text = self.node.ctl("explain", "--tokens", path, "--model", "of tokens", check=False).stdout.decode()
        unknown = self.node.ctl("explain", "--tokens", path, "--model", "none", check=False)
        several = self.node.ctl("explain", "--tokens", path, check=False)

        self.assertEqual((told["prefix"], [row["code"] for row in told["blocks"]]), (5, ["SL_OK"] * 5 + ["SL_ERR_NOT_FOUND"] * 2))
        self.assertEqual(told["model"], engine.model_identity)
        self.assertIn("blocks 0 to 4: there, in memory", text.replace("a block, all of its parts are here", "in memory"))
        many = json.loads(self.node.ctl("explain", "--json", "-", stdin="\0".join(row["key"] for row in told["blocks"] * 20).encode(), check=False).stdout)
        self.assertEqual([row["code"] for row in many["keys"]], [row["code"] for row in told["blocks"]] * 20)
        self.assertIn(b"no engine of this node has registered such a model", unknown.stderr)
        self.assertIn(b"--model is required, one of", several.stderr)

    def test_what_cannot_be_read_is_named(self):
        for text, said in (("1 2 x", "'x' is not a token"), ("1 2\x003 4", "'2' is not a token"), ("[1, 2, -3]", "tokens: element 2 is not"), ("{}", "tokens: missing"),
                           ("[1, 2", "line 1"), ("", "no tokens"), ("4294967296", "is not a token")):
            done = subprocess.run([CTL, "explain", "--tokens", "-", *self.node.where], input=text, capture_output=True, text=True,
                                  env=self.node.environment)
            self.assertIn(said, done.stderr)
            self.assertNotEqual(done.returncode, 0)
        prompt = "1 " * 200000  # more than a pipe holds, and `keys` ends before it reads
        done = subprocess.run([CTL, "explain", "--tokens", "-", "--format", "typo", "--block-tokens", "16", "--model", "0" * 32, *self.node.where],
                              input=prompt, capture_output=True, text=True, env=self.node.environment)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("typo", done.stderr)
        self.assertEqual(self.node.ctl("explain", check=False).returncode, 2)
        self.assertEqual(self.node.ctl("explain", "k", "--model", "m", check=False).returncode, 2)

    def test_an_origin_that_is_wrong_changes_nothing(self):
        sluice.set_origin("before", PARENT)
        for words in ({"request": "x" * 128}, {"traceparent": "00-zz"}, {"traceparent": PARENT.replace("4bf9", "4BF9")},
                      {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {"traceparent": f"ff-{TRACE}-{SPAN}-01"}):
            with self.assertRaises(sluice.InvalidError):
                sluice.set_origin(**words)
        engine = self.register()
        self.run_op(engine.store, range(TOKENS), 1)
        told, = self.ctl_json("explain", "--request", "before")["ops"]
        self.assertEqual(told["traceparent"], PARENT)

    def test_each_thread_has_an_origin_of_its_own(self):
        for count in (1, 2, 4, 8):
            engine = self.register(f"threads{count}", model={"name": f"threads {count}"})

            def work(number):
                for turn in range(10):
                    sluice.set_origin(f"t{count}-{number}-{turn}")
                    self.run_op(engine.load, range(number * 100, number * 100 + TOKENS), 1)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for number in range(count):
                for turn in (0, 9):
                    told, = self.ctl_json("explain", "--request", f"t{count}-{number}-{turn}", check=False)["ops"]
                    self.assertEqual(told["runs"][0]["count"], 1)

    def test_a_coordinator_that_was_killed_forgets_and_goes_on(self):
        engine = self.register()
        sluice.set_origin("lost")
        self.run_op(engine.store, range(TOKENS), 1)
        killed = self.node.live_pid("coordinator")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: self.node.pid("coordinator") not in (0, killed), 5, "a new coordinator")
        sluice.set_origin("kept")
        self.run_op(engine.store, range(TOKENS), 1)
        self.assertEqual(self.node.ctl("explain", "--request", "lost", check=False).returncode, 1)
        told, = self.ctl_json("explain", "--request", "kept")["ops"]
        self.assertEqual(told["runs"][0]["outcome"], "existed")

    def test_a_line_in_the_log_for_each_load(self):
        engine = self.register()
        sluice.set_origin("logged")
        self.run_op(engine.load, range(TOKENS), 1)

        def lines():
            with open(self.node.directory + "/run/log/coordinator.jsonl", encoding="utf-8") as log:
                return [line for line in map(json.loads, log) if "request logged" in line["msg"]]

        line, = wait_until(lines, 5, "a line of the load")
        self.assertRegex(line["msg"], r"load of 1 blocks for \S+, request logged: 0 loaded \(0 memory, 0 disk, 0 remote\), \d+ us")


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, self.headers, body))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.end_headers()

    def log_message(self, *_):
        pass


def otel():
    """An interpreter with OpenTelemetry's package, whose messages this one can also import. Made once below build/. Raises SkipTest when
    the package cannot be downloaded."""
    folder = os.path.join(python_support.ROOT, "build", "otel-environment")
    python = os.path.join(folder, "venv", "bin", "python")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for step in ([sys.executable, "-m", "venv", os.path.join(folder, "venv")], [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", PACKAGES]):
            if os.path.exists(os.path.join(folder, "done")):
                break
            done = subprocess.run(step, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                raise unittest.SkipTest(f"OpenTelemetry's package cannot be had: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]}")
        with open(os.path.join(folder, "done"), "w", encoding="utf-8"):
            pass
    sys.path += glob.glob(os.path.join(folder, "venv", "lib", "python3*", "site-packages"))
    return python


def spans_of(body):
    """{span id: span} of a request, as a collector reads it; ids are hex."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    found = {}
    for resource in json_format.MessageToDict(ExportTraceServiceRequest.FromString(body))["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                span.update((name, base64.b64decode(span[name]).hex()) for name in ("traceId", "spanId", "parentSpanId") if name in span)
                found[span["spanId"]] = span
    return found


@unittest.skipIf(python_support.LIBASAN, "skipped: nothing of memory is in it")
class Spans(OnNode):
    @classmethod
    def setUpClass(cls):
        cls.python = otel()
        super().setUpClass()

    def collector(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        server.got, server.answers = [], []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server, f"http://127.0.0.1:{server.server_port}"

    def sender(self, *arguments, **more):
        path = {} if python_support.PACKAGE == "installed" else {"PYTHONPATH": python_support.PACKAGE}
        process = subprocess.Popen([self.python, "-m", "sluice.otel", *arguments, "--sluicectl", CTL, *self.node.where], text=True,
                                   env={**self.node.environment, **path, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.communicate()))
        return process

    def sent(self, *arguments, **more):
        process = self.sender(*arguments, **more)
        out, errors = process.communicate(timeout=60 * PATIENCE)
        return process.returncode, out, errors

    def seen(self, trace_id):
        wait_until(lambda: f'"span_id": "0x{trace_id:016x}"' in self.sent("-")[1], 30, "the op's span")

    def op_traced(self, engine, name, tokens=4 * TOKENS):
        sluice.set_origin(name, PARENT)
        return self.run_op(engine.store, range(tokens), tokens // TOKENS).trace_id

    def test_ops_are_spans_of_their_callers_trace(self):
        engine = self.register()
        trace_id = self.op_traced(engine, "spans")
        server, url = self.collector()

        def given():
            code, _, errors = self.sent(url)
            self.assertEqual(code, 0, errors)
            spans = spans_of(server.got[-1][2]) if server.got else {}
            return spans if f"{trace_id:016x}" in spans else None

        spans = wait_until(given, 60, "the op's span")
        span = spans[f"{trace_id:016x}"]
        self.assertEqual((span["traceId"], span["parentSpanId"], span["name"], span["status"]["code"]),
                         (TRACE, SPAN, "sluice store", "STATUS_CODE_OK"))
        children = [one for one in spans.values() if one.get("parentSpanId") == span["spanId"]]
        self.assertIn("registrar", {one["name"] for one in children})
        self.assertIn("copy from device", {one["name"] for one in children})
        for one in children:
            self.assertEqual(one["traceId"], TRACE)
            self.assertLessEqual(int(span["startTimeUnixNano"]), int(one["startTimeUnixNano"]))
            self.assertLessEqual(int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"]))
        shown = self.node.ctl("trace", f"{trace_id:016x}").stdout.decode()
        self.assertIn(f"traceparent: {PARENT}", shown)

    def test_a_collector_gets_each_op_once_whatever_it_answers(self):
        engine = self.register()
        server, url = self.collector()
        server.answers[:] = [500]
        sender = self.sender("--follow", url, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20x,other=2")
        ids = [self.op_traced(engine, f"follow{i}", (i + 1) * TOKENS) for i in range(5)]

        def counted():
            seen = {}
            for _, _, body in server.got[1:]:  # the first was refused
                for span in spans_of(body):
                    seen[span] = seen.get(span, 0) + 1
            return seen if all(f"{one:016x}" in seen for one in ids) else None

        seen = wait_until(counted, 60, "all five ops")
        self.assertEqual({seen[f"{one:016x}"] for one in ids}, {1})
        path, headers, _ = server.got[0]
        self.assertEqual((path, headers["Content-Type"]), ("/v1/traces", "application/x-protobuf"))
        self.assertEqual((headers["authorization"], headers["other"]), ("Bearer x", "2"))
        sender.send_signal(signal.SIGTERM)
        out, errors = sender.communicate(timeout=60 * PATIENCE)
        self.assertEqual(sender.returncode, 0, errors)
        self.assertIn("accepted no spans", errors)
        self.assertIn("ops sent", out)

    def test_what_cannot_be_sent_is_an_error_that_says_why(self):
        self.seen(self.op_traced(self.register(), "away"))
        for arguments, code, said in ((["http://127.0.0.1:1"], 3, "the collector accepted no spans; 0 ops were sent before"),
                                      (["ftp://x"], 2, "'ftp://x' is not a URL"), (["--instance", "nowhere"], 3, "")):
            got, _, errors = self.sent(*arguments, **{"OTEL_EXPORTER_OTLP_TIMEOUT": "1"})
            self.assertEqual(got, code, errors)
            self.assertIn(said, errors)

    def test_many_ops_go_in_requests_of_512_spans_and_those_before_a_refusal_are_counted(self):
        engine = self.register()
        server, url = self.collector()
        ids = [self.op_traced(engine, f"many{i}", TOKENS) for i in range(200)]
        self.seen(ids[-1])
        server.answers[:] = [200, 400]
        code, _, errors = self.sent(url)
        self.assertEqual(code, 3, errors)
        first, second = (spans_of(body) for _, _, body in server.got)
        self.assertTrue(256 < len(first) <= 512 and 0 < len(second) <= 512, (len(first), len(second)))
        self.assertFalse(first.keys() & second.keys())
        ops = [one for one in first.values() if any(row["key"] == "sluice.trace" for row in one["attributes"])]
        self.assertIn(f"accepted no spans; {len(ops)} ops were sent before", errors)


if __name__ == "__main__":
    main()
