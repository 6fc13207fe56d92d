"""A node reports about a real vLLM: a request by the name that its client gave it, its ops as spans below the traceparent of the
request, a log line a load, engines in `sluicectl top`, and KV events (vllm_router.py)."""

import json
import os
import socket
import subprocess

from harness import GIB, Outcome, Scenario, check, free_port
from vllm_parts import Engine, prompts_make

BLOCK_TOKENS, LENGTH, BLOCKS_MAX = 32, 600, 64  # BLOCKS_MAX: of the engine's own cache
BLOCKS = (LENGTH - 1) // BLOCK_TOKENS
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def ports_free():
    """Returns the first of two free ports: for events, and for missed ones."""
    while True:
        first = free_port()
        with socket.socket() as second:
            try:
                second.bind(("127.0.0.1", first + 1))
                return first
            except OSError:
                continue


class ReportingVllm:
    """A node that logs loads, and an engine that publishes events."""

    def __init__(self, run, native, node_make):
        self.port = ports_free()
        self.node = node_make(run, memory_bytes=GIB, SLUICE_LOAD_LOG="true")
        events = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{self.port}",
                  "replay_endpoint": f"tcp://*:{self.port + 1}"}
        self.engine = Engine(run, native.model("llama"), self.node, length=BLOCKS_MAX // 2 * BLOCK_TOKENS,
                             more={"block_size": BLOCK_TOKENS, "num_gpu_blocks_override": BLOCKS_MAX, "kv_events_config": events})


class Told:
    def __init__(self, run, native, node_make):
        self.run, self.native, self.node_make = run, native, node_make

    def telling(self):
        return self.native.shared("telling", lambda: ReportingVllm(self.run, self.native, self.node_make))

    def stop(self):
        self.telling().engine.worker.stop()
        self.telling().node.stop()
        del self.native.things["telling"]

    def explained(self, node, name):
        """Ops of the request, the latest first."""
        asked = node.ctl("explain", "--request", name, "--json")
        check(asked.returncode in (0, 1) and asked.stdout, f"explain --request {name}: {asked.stderr.strip()}")
        return json.loads(asked.stdout)["ops"]

    def spans(self, node):
        """{span id: span} of all ops so far; ids are hex."""
        sent = subprocess.run([self.run.interpreter, "-m", "sluice.otel", "-", "--sluicectl", node.program("sluicectl")], env={**node.variables, **node.client_variables()},
                              capture_output=True, text=True, timeout=60, check=False)
        check(sent.returncode == 0, f"sluice.otel: {sent.stderr.strip()}")
        spans = [json.loads(line) for line in sent.stdout.splitlines()]
        return {span["context"]["span_id"].removeprefix("0x"): span for span in spans}

    def row(self, node):
        """The engine's row in top."""
        asked = node.ctl("top", "--view", "engines", "--once", "--json", "--interval", "100ms")
        check(asked.returncode == 0, f"top: {asked.stderr.strip()}")
        rows = json.loads(asked.stdout)["engines"]
        check(len(rows) == 1, f"top knows {len(rows)} models of engines")
        return rows[0]

    def log_of(self, node, actor):
        said = ""
        for path, _, names in os.walk(os.path.join(node.settings["SLUICE_RUNTIME_DIR"], "log")):
            for name in names:
                if name.startswith(actor) and name.endswith(".jsonl"):
                    with open(os.path.join(path, name), encoding="utf-8") as log:
                        said += log.read()
        return said

    def requests(self):
        node, engine = self.telling().node, self.telling().engine
        (prompt,) = prompts_make("told", 1, LENGTH)
        cold = engine.generate([prompt], names=["client-cold"], traced=PARENT)
        node.settled()
        engine.reset()
        warm = engine.generate([prompt], names=["client-warm"], traced=PARENT)
        check(warm["tokens"] == cold["tokens"], "other tokens than computed")
        node.settled()
        engine.reset()

        store = next(op for op in self.explained(node, "client-cold") if op["kind"] == "store")
        check(store["traceparent"] == PARENT and store["request"].startswith("client-cold"), f"of the first request: {store}")
        load = next(op for op in self.explained(node, "client-warm") if op["kind"] == "load")
        check([(run["count"], run["outcome"]) for run in load["runs"]] == [(BLOCKS, "memory")], f"of the second one: {load}")

        spans = self.spans(node)
        names = {op["trace"]: f"sluice {op['kind']}" for op in (store, load)}
        below = {number: span["name"] for number, span in spans.items() if (span["context"]["trace_id"], span["parent_id"]) == ("0x" + TRACE, "0x" + SPAN)}
        check(names.items() <= below.items(), f"below the traceparent are {below}, not {names}")

        said = self.log_of(node, "coordinator")
        check(f"load of {BLOCKS} blocks" in said and "request client-warm-" in said, "the log has no line of the load")

        row = self.row(node)
        loads = {tier: where["count"] for tier, where in row["loads"].items() if where["count"]}
        check(loads == {"memory": warm["loaded_blocks"]}, f"top says {loads} of loads, vLLM {warm['loaded_blocks']}")
        stored = cold["stored_blocks"] + warm["stored_blocks"]
        check(row["stored"] == stored >= BLOCKS, f"top says {row['stored']} stored, vLLM {stored}")
        text = node.ctl("top", "--view", "engines", "--once", "--interval", "100ms").stdout
        check(row["name"] and row["name"][:40] in text, f"top shows no engine {row['name']!r}: {text}")
        return Outcome(warm["hits"], warm["queried"], f"{len(spans)} spans; top: {row['stored']} blocks stored, {loads} loaded, as vLLM")


def scenarios(run, native, node_make):
    return [Scenario("native requests are explained", Told(run, native, node_make).requests, 900)]
