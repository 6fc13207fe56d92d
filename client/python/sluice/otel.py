"""Sends a node's ops as spans to an OpenTelemetry collector.

    pip install opentelemetry-exporter-otlp-proto-http
    python -m sluice.otel --follow http://localhost:4318

An op is a span, with a child span for each step of the coordinator and one for each other actor. It belongs to the trace that the engine
passed with the request (traceparent), else to a trace of its own. The events are those of the flight recorders, as printed by `sluicectl
trace --json`. Without a URL, OpenTelemetry's variables OTEL_EXPORTER_OTLP_* select the collector; headers, certificates and timeouts are
always taken from them. `-` prints the spans as JSON, one per line.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

from . import _output

SETTLE_NS = 10**9  # events of an op may still arrive for this long after its end
LOST_NS = 60 * 10**9  # an op without an end counts as over this long after its last event: its coordinator died
IDLE_NS = 2 * 10**9  # requests that are not ops count as over this long after their last event
SPANS_MAX = 512  # in a request to the collector, unless one op has more
PAUSE_S, PAUSE_MAX_S = 1, 30  # between two queries; the longest back-off while the collector fails
# Steps of the coordinator by the event that ends them; each begins with the event before it.
STEPS = {"keys known": "keys", "pinned": "look up and pin", "promoted": "read disk", "fetched": "fetch from nodes",
         "pulled": "pull from nodes", "copied in": "copy to device", "copied out": "copy from device", "reserved": "reserve",
         "committed": "commit", "fenced": "fence"}


class Failed(Exception):
    """The text has the problem and the remedy. code: exit code of the process."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


class Op:
    """The flight recorders' events of one op, in order of time."""

    def __init__(self, row):
        self.id, self.events = int(row["trace"], 16), row["events"]
        steps = [event for event in self.events if event["actor"] == "coordinator" and "text" not in event]
        self.parent = next((event["text"] for event in self.events if "text" in event), None)
        self.begin = next((event for event in steps if event["what"].endswith(" begins")), None)
        self.end = next((event for event in reversed(steps) if event["what"].endswith(" ended")), None)
        self.steps = steps
        last_ns = self.events[-1]["at_ns"]
        self.over_ns = self.end["at_ns"] if self.end else last_ns + (LOST_NS if self.begin else IDLE_NS)

    def spans(self, sdk):
        """Returns ReadableSpans, the op's own first."""
        trace_id, parent = self.id, None
        if self.parent is not None:
            _, trace, span, _ = self.parent.split("-")
            trace_id, parent = int(trace, 16), sdk.context(int(trace, 16), int(span, 16), remote=True)
        root = sdk.context(trace_id, self.id)
        attributes, status = {"sluice.trace": f"{self.id:016x}"}, None
        if self.begin is not None:
            attributes["sluice.blocks"] = self.begin["value"]
            attributes["sluice.blocks_done"] = self.end["value"] if self.end else 0
            status = self.end["peer"] if self.end else "its end is missing"
        name = f"sluice {self.begin['what'].split()[0]}" if self.begin else self.events[0]["what"]
        found = [sdk.span(name, root, parent, self.events, self.steps, attributes, status)]

        def child(child_name, actor, between, events, **more):
            digest = hashlib.blake2b(f"{self.id} {len(found)}".encode(), digest_size=8).digest()
            context = sdk.context(trace_id, int.from_bytes(digest, "big") or 1)
            found.append(sdk.span(child_name, context, root, between, events, {"sluice.actor": actor, **more}))

        for before, event in zip(self.steps, self.steps[1:]):
            if event["what"] in STEPS:
                child(STEPS[event["what"]], "coordinator", (before, event), (), **{"sluice.value": event["value"]})
        others = {}
        for event in self.events:
            if event["actor"] != "coordinator" and "text" not in event:
                others.setdefault(event["actor"], []).append(event)
        for actor, events in others.items():
            child(actor, actor, events, events)
        return found


class Sdk:
    """The classes of OpenTelemetry's package that make spans of one node."""

    def __init__(self, instance):
        try:
            from opentelemetry.sdk import resources, trace, util  # noqa: F401
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
            from opentelemetry.trace import SpanContext, TraceFlags
            from opentelemetry.trace.status import Status, StatusCode
        except ImportError as error:
            raise Failed(f"OpenTelemetry's package is missing ({error}): pip install opentelemetry-exporter-otlp-proto-http", 2) from error
        from . import __version__
        self.trace, self.status_of, self.codes = trace, Status, StatusCode
        self.span_context, self.sampled = SpanContext, TraceFlags(TraceFlags.SAMPLED)
        self.scope = InstrumentationScope("sluice", __version__)
        host = socket.gethostname()
        self.resource = resources.Resource.create({"service.name": "sluice", "service.instance.id": f"{host}/{instance}", "host.name": host})
        self.to_unix_ns = time.time_ns() - time.monotonic_ns()

    def context(self, trace_id, span_id, remote=False):
        return self.span_context(trace_id, span_id, remote, self.sampled)

    def span(self, name, context, parent, between, events, attributes, status=None):
        """Makes a span. between: events; the first and the last one give its times. status: for an op, the name of its code."""
        shown = [self.trace.Event(event["what"], {"sluice.actor": event["actor"], "sluice.value": event["value"],
                                                  **({"sluice.peer": event["peer"]} if event["peer"] else {})},
                                  event["at_ns"] + self.to_unix_ns) for event in events]
        judged = self.status_of(self.codes.UNSET) if status is None else self.status_of(self.codes.OK) if status == "SL_OK" \
            else self.status_of(self.codes.ERROR, status)
        return self.trace.ReadableSpan(name, context, parent, self.resource, attributes, shown, status=judged,
                                       start_time=between[0]["at_ns"] + self.to_unix_ns, end_time=between[-1]["at_ns"] + self.to_unix_ns,
                                       instrumentation_scope=self.scope)

    def exporter(self, where):
        """Returns a function that exports spans and returns true if they were accepted."""
        if where == "-":
            def show(spans):
                for span in spans:
                    print(span.to_json(indent=None), flush=True)
                return True
            return show
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import SpanExportResult
        except ImportError as error:
            raise Failed(f"OpenTelemetry's exporter is missing ({error}): pip install opentelemetry-exporter-otlp-proto-http", 2) from error
        exporter = OTLPSpanExporter(endpoint=where)
        return lambda spans: exporter.export(spans) == SpanExportResult.SUCCESS


class Sender:
    def __init__(self, command, sdk, where):
        self.command, self.sdk, self.sent, self.op_count = command, sdk, (0, 0), 0
        self.export = sdk.exporter(where)

    def ops(self):
        """Returns the ops that have ended since the last one that was sent, in order of their end."""
        done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(done.stderr.strip() or f"sluicectl ended with {done.returncode}", done.returncode)
        until = (time.monotonic_ns() - SETTLE_NS, 0)
        ops = sorted(map(Op, json.loads(done.stdout)["ops"]), key=lambda op: (op.over_ns, op.id))
        return [op for op in ops if self.sent < (op.over_ns, op.id) <= until]

    def send(self):
        batch, spans = [], []
        for op in [*self.ops(), None]:
            more = op.spans(self.sdk) if op else []
            if batch and (op is None or len(spans) + len(more) > SPANS_MAX):
                if not self.export(spans):
                    raise Failed(f"the collector accepted no spans; {self.op_count} ops were sent before", 3)
                self.sent, self.op_count = (batch[-1].over_ns, batch[-1].id), self.op_count + len(batch)
                batch, spans = [], []
            if op:
                batch.append(op)
                spans += more


def endpoint(text):
    """Checks a URL; one without a path is a base, as in OTEL_EXPORTER_OTLP_ENDPOINT."""
    if text in (None, "-"):
        return text
    url = urllib.parse.urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise argparse.ArgumentTypeError(f"'{text}' is not a URL: http://HOST:PORT, https://HOST:PORT or -")
    return url._replace(path="/v1/traces").geturl() if url.path in ("", "/") else text


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m sluice.otel", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("where", nargs="?", type=endpoint, metavar="URL|-", help="the collector (v1/traces is appended to a URL without a path)")
    parser.add_argument("--follow", action="store_true", help="continue with ops that end later, until SIGINT or SIGTERM")
    parser.add_argument("--instance", default=os.environ.get("SLUICE_INSTANCE", "default"), help="name of the node")
    for name in ("--runtime-dir", "--shm-dir", "--config"):
        parser.add_argument(name, metavar="PATH", help="as for the node")
    parser.add_argument("--sluicectl", default=shutil.which("sluicectl"), metavar="PROGRAM", help="path of sluicectl (default: found in PATH)")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    try:
        if not options.sluicectl:
            raise Failed("sluicectl is not in PATH; pass --sluicectl PROGRAM", 2)
        command = [options.sluicectl, "trace", "--last", str(2**32 - 1), "--json", "--events", "--instance", options.instance]
        for name in ("runtime_dir", "shm_dir", "config"):
            if getattr(options, name) is not None:
                command += ["--" + name.replace("_", "-"), getattr(options, name)]
        sender = Sender(command, Sdk(options.instance), options.where)
        for number in (signal.SIGINT, signal.SIGTERM) if options.follow else ():
            signal.signal(number, lambda *_: ended.set())
        pause_s = PAUSE_S
        while True:
            try:
                sender.send()
                pause_s = PAUSE_S
            except (Failed, OSError) as error:
                if not options.follow or (isinstance(error, OSError) and options.where == "-"):
                    raise
                print(f"sluice.otel: {error}", file=sys.stderr, flush=True)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            if not options.follow or ended.wait(pause_s):
                break
    except Failed as error:
        print(f"sluice.otel: {error}", file=sys.stderr)
        return error.code
    if options.where != "-":
        print(f"{sender.op_count} ops sent")
    return 0


if __name__ == "__main__":
    _output.run("sluice.otel", main)
