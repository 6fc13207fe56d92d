"""A real router finds where a prefix is cached: Dynamo's indexer of KV events, from PyPI, is asked for the tokens of a prompt, while vLLM
with SluiceConnector publishes events for its own cache and for the node."""

import json
import os
import urllib.error
import urllib.request

from harness import Outcome, Scenario, check, end, free_port, popen, wait_until
from reasons import Failed
from vllm_parts import prompts_make
from vllm_told import BLOCK_TOKENS, BLOCKS, LENGTH, Told

PACKAGE = "ai-dynamo-runtime==1.6.1"
TOKENS = BLOCKS * BLOCK_TOKENS
ENGINE = 1    # its number in the indexer
SECONDS = 60         # until an event has arrived; the connector checks its blocks in steps of the engine


class Indexer:
    """`python -m dynamo.indexer` in the engine's environment, which has what it needs."""

    def __init__(self, run):
        self.port = free_port()
        self.log = os.path.join(run.directory, "indexer.log")
        self.process = popen([run.interpreter, "-m", "dynamo.indexer", "--port", str(self.port), "--threads", "1"], self.log,
                             run.variables(PYTHONPATH=run.package_beside("dynamo", PACKAGE)))
        run.started_add(self)
        wait_until(lambda: self.ask("/workers") is not None, 120, "the indexer answers")

    def ask(self, path, **body):
        """None while it does not answer."""
        if self.process.poll() is not None:
            raise Failed(f"the indexer ended with {self.process.returncode} ({self.log})")
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode() if body else None,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            raise Failed(f"{path}: {refused.read().decode()}") from None
        except OSError:
            return None

    def register(self, number, port):
        self.ask("/register", instance_id=number, endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=f"tcp://127.0.0.1:{port + 1}",
                 model_name="model", block_size=BLOCK_TOKENS)

    def node_blocks(self):
        """All blocks that it knows in the node."""
        events = (self.ask("/dump") or {}).get("model:default", {}).get("events", [])
        return sum(len(one["event"]["data"].get("stored", {}).get("blocks", ())) for one in events if one["storage_tier"] == "host_pinned")

    def where(self, prompt):
        """(tokens of its prefix in the engine's own cache, there or in the node), from the engine's events."""
        found = self.ask("/query", token_ids=prompt, model_name="model")
        row = (found or {}).get("instances", {}).get(str(ENGINE), {})
        return row.get("gpu", 0), row.get("cpu", 0)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def stop(self):
        end(self.process)


class Router:
    def __init__(self, run, told):
        self.run, self.told = run, told

    def prefixes(self):
        telling = self.told.telling()
        node, engine = telling.node, telling.engine
        indexer = Indexer(self.run)
        indexer.register(ENGINE, telling.port)
        prompt, *others = prompts_make("router", 6, LENGTH)

        def lies(gpu, cpu, what):
            def there():
                engine.generate([others[-1][:1]], tokens=1)  # the connector checks its blocks while the engine steps
                return indexer.where(prompt) == (gpu, cpu)
            try:
                wait_until(there, SECONDS, what)
            except Failed as late:
                raise Failed(f"{late}; the indexer says {indexer.where(prompt)}") from None

        before = set(node.listed())
        engine.generate([prompt])
        node.settled()
        keys = sorted(set(node.listed()) - before)
        lies(TOKENS, TOKENS, "the prefix is in both")
        for other in others:
            engine.generate([other])
        lies(0, TOKENS, "others have taken the engine's own cache, the node has the prefix")
        warm = engine.generate([prompt])
        check(warm["hits"] > 0, "the prefix was not loaded")
        lies(TOKENS, TOKENS, "it was loaded")
        known = indexer.node_blocks()
        for at in range(0, len(keys), 64):
            node.ctl("rm", *keys[at:at + 64])

        def forgotten():
            engine.generate([others[-1][:1]], tokens=1)
            return indexer.node_blocks() == known - BLOCKS
        wait_until(forgotten, SECONDS, "the node has lost it")
        lies(TOKENS, TOKENS, "the engine's own cache still has it")
        check("Failed to decode" not in indexer.said(), "the indexer does not understand a message (indexer.log)")
        workers = {row["instance_id"]: row["status"] for row in indexer.ask("/workers")}
        check(workers == {ENGINE: "active"}, f"workers of the indexer: {workers}")
        indexer.stop()
        self.told.stop()
        return Outcome(warm["hits"], warm["queried"], f"{len(keys)} keys")


def scenarios(run, native, node_make):
    return [Scenario("native events: Dynamo's indexer", Router(run, Told(run, native, node_make)).prefixes, 900)]
