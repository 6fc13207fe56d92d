"""The output of sluicectl trace for given events and logs: order, lines that are no log lines, no terminal escapes."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "client", "tools", "ctl"), os.path.join(ROOT, "client", "tools", "command"), os.path.join(ROOT, "tests", "support")]
import suite  # noqa: E402
import trace  # noqa: E402

ID, OTHER = "0000000000001234", "0000000000005678"
EVENTS = [[5000, ID, "registrar", "> reserve", "client.1.0", 7, None], [9000, OTHER, "keyer", "load", "", 1, None],
          [1000, ID, "keyer", "traceparent", "", 0, "00-a-b-01"], [2000, OTHER, "keyer", "x", "", 1, None]]


def shown(*words, logs=b""):
    """(code, standard output)"""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("keyer.jsonl", "swapper.0.jsonl.1"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(logs)
        old, sys.argv, sys.stdin = (sys.argv, sys.stdin), ["trace.py", *words[:2], folder, words[2]], io.StringIO(json.dumps([row for row in EVENTS if words[0] != "id" or row[1] == words[1]]))
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
                code = trace.main()
        finally:
            sys.argv, sys.stdin = old
        return code, said.getvalue()


class Trace(unittest.TestCase):
    def test_an_op_is_in_the_order_of_time_with_its_logs(self):
        line = b'{"ns":3000,"trace":"%s","msg":"hel\\u001b[2Jlo","actor":"keyer;x"}\n' % ID.encode()
        code, said = shown("id", ID, "text", logs=line + b'{"ns":1,"trace":"5678","msg":"no"}\n')
        self.assertEqual(code, 0)
        lines = said.splitlines()
        self.assertEqual([row.split()[0] for row in lines], ["0.0", "2.0", "2.0", "4.0"])
        self.assertIn("traceparent: 00-a-b-01", lines[0])
        self.assertRegex(lines[1], r" keyer +log: hel\\x1b\[2Jlo$")
        self.assertRegex(lines[3], r" registrar +> reserve +client\.1\.0 +7$")

    def test_what_is_no_line_of_a_log_is_left_out(self):
        identity = ID.encode()
        for line in (b"[" * 60000 + identity, b'{"trace":"' + identity, b'{"trace":"%s","msg":5}' % identity, b'["%s"]' % identity,
                     b'{"trace":"%s","msg":"\xff"}' % identity, b"\0" + identity, b'{"trace":"%s","ns":"x","actor":{}}' % identity):
            code, said = shown("id", ID, "json", logs=line + b"\n")
            self.assertEqual((code, [event["what"] for event in json.loads(said)["events"]]), (0, ["traceparent", "> reserve"]), line[:40])

    def test_the_latest_and_the_longest_ops(self):
        for how, want in (("last", [OTHER, ID]), ("slow", [OTHER, ID])):
            code, said = shown(how, "5", "json")
            self.assertEqual((code, [op["trace"] for op in json.loads(said)["ops"]]), (0, want))
        self.assertEqual(json.loads(shown("slow", "1", "events")[1])["ops"][0]["duration_us"], 7.0)
        self.assertEqual(shown("last", "5", "text")[1].splitlines()[1], f"{ID}          4.0 us    2 events  keyer              traceparent")

    def test_letters_that_a_locale_lacks_and_halves_of_letters_are_escaped(self):
        line = b'{"ns":3000,"trace":"%s","msg":"a\\ud800b","actor":"keyer"}\n' % ID.encode()
        self.assertIn("log: a\\xed\\xa0\\x80b\n", shown("id", ID, "text", logs=line)[1])
        environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "client", "tools", "command"), "PYTHONIOENCODING": "ascii"}
        words = [sys.executable, "-B", os.path.join(ROOT, "client", "tools", "ctl", "trace.py"), "last", "5", "/", "text"]
        done = subprocess.run(words, input=json.dumps([[1000, ID, "keyer", "\u65e5", "", 1, None]]), capture_output=True, text=True, env=environment, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r" keyer +\\u65e5$")

    def test_a_trace_that_nobody_remembers(self):
        self.assertEqual(shown("id", "f" * 16, "text"), (1, ""))


if __name__ == "__main__":
    suite.run()
