"""Prefill in one vLLM, decode in another, through SluiceConnector: the parameters that a proxy would pass on are passed from answer to
request here. Only hand-overs move blocks: neither engine stores what it computes."""

import concurrent.futures
import functools
import json
import os
import random
import secrets
import shutil
import signal
import statistics
import subprocess
import time
import urllib.request

from harness import GIB, Outcome, Scenario, Table, check, end, free_port, popen, session_pids, wait_until
from reasons import Failed
from vllm_engine import KILLS
from vllm_native import Native, NativeNode
from vllm_parts import START_SECONDS, TOKENS, VARIABLES, Engine, prompts_make

ASKED = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None, "remote_host": None,
         "remote_port": None}
REQUESTS = 200
LENGTHS = (3, 90, 127, 128, 129, 130, 256, 257, 300, 400, 512, 640)  # blocks have 128 tokens
BATCH = 40                 # concurrent requests of a proxy
SPEED_LENGTHS = (500, 2000, 4000)
SPEED_ROUNDS = 4
HANDED_SECONDS = 20        # time for decode to wait for prefill: both compute on the same two cores
ANSWER_SECONDS = 120       # limit for the answers of a batch, whichever process is killed
KILLS_MAX = 3
KILL_PAUSE_S = 0.3
DIED = "died"              # the answer of an engine that was killed


@functools.cache
def prompts_of():
    rng = random.Random("prefill and decode")
    return [prompts_make(f"prefill and decode {i}", 1, rng.choice(LENGTHS))[0] for i in range(REQUESTS)]


def batches():
    return [range(first, first + BATCH) for first in range(0, REQUESTS, BATCH)]


class Pair:
    """Two engines and a stand-in for the proxy."""

    def __init__(self, pd, mode, nodes, model="llama"):
        told = {"handover": mode, "save": False, "handover_timeout": HANDED_SECONDS, "timeout": 5}
        self.mode, self.model = mode, model
        self.node_name = None  # name of prefill's node
        self.start = {what: functools.partial(Engine, pd.run, pd.model(model), node, extra=told, core=core)
                      for core, (what, node) in enumerate(zip(("prefill", "decode"), nodes))}
        self.prefill, self.decode = (start(wait=False) for start in self.start.values())
        for engine in (self.prefill, self.decode):
            engine.started()

    def asked(self, prompts):
        """Prefill's transfer parameters for the prompts."""
        answer = self.prefill.generate(prompts, tokens=1, transfer=[ASKED] * len(prompts))
        self.node_name = next((given["sluice_node"] for given in answer["transfer"] if given), self.node_name)
        return answer["transfer"]

    def in_turn(self, prompts, beside=lambda: None):
        """Runs prefill, then decode. Returns decode's answer."""
        self.decode.generate_start(prompts, transfer=self.asked(prompts))
        beside()
        return self.decode.generate_end()

    def at_once(self, prompts, beside=lambda: None):
        """Runs both at the same time, decode first. Returns decode's answer. An engine that died has none."""
        numbers = [f"{secrets.randbits(63) + 1:x}" for _ in prompts]
        self.decode.generate_start(prompts, transfer=[{"do_remote_prefill": True, "sluice_handover": number, "sluice_node": self.node_name}
                                                      for number in numbers])
        self.prefill.generate_start(prompts, tokens=1, transfer=[{**ASKED, "sluice_handover": number} for number in numbers])
        killed = beside()
        answers = {what: DIED if what == killed else getattr(self, what).generate_end() for what in ("prefill", "decode")}
        return answers["decode"]

    def reset(self):
        for engine in (self.prefill, self.decode):
            engine.reset()

    def stop(self):
        for engine in (self.prefill, self.decode):
            engine.worker.stop()


class Served:
    """Runs `vllm serve` twice, and the package's proxy in front. The command needs a package named vllm, which the CPU package is not."""

    def __init__(self, run, model, node, direct):
        self.run, self.model = run, model
        variables = [run.variables(**{**VARIABLES, "VLLM_CPU_OMP_THREADS_BIND": str(core)}, **node.client_variables()) for core in range(2)]
        transfer = {"kv_connector": "SluiceConnector", "kv_connector_module_path": "sluice.vllm", "kv_role": "kv_both",
                    "kv_load_failure_policy": "recompute",
                    "kv_connector_extra_config": {"handover": "direct" if direct else "storage", "save": False}}
        serve = ["-m", "vllm.entrypoints.openai.api_server", "--model", model, "--dtype", "float32", "--enforce-eager", "--max-model-len", "6144",
                 "--max-num-seqs", "16", "--seed", "1", "--kv-transfer-config", json.dumps(transfer), "--port"]
        self.ports = [free_port() for _ in range(3)]
        prefill, decode, proxy = self.ports
        self.processes = [self.started(f"serve-{port}", [*serve, str(port)], its) for port, its in zip((prefill, decode), variables)]
        asked = ["-m", "sluice.vllm.proxy", "--prefill", f"http://127.0.0.1:{prefill}", "--decode", f"http://127.0.0.1:{decode}",
                 "--port", str(proxy), *["--direct"] * direct]
        self.processes.append(self.started("proxy", asked, variables[0]))
        run.started_add(self)
        for port in self.ports:
            wait_until(lambda at=port: self.answers(at), START_SECONDS, f"port {port} answers")

    def started(self, name, arguments, variables):
        return popen([self.run.interpreter, *arguments], os.path.join(self.run.directory, name + ".log"), variables)

    def answers(self, port):
        check(all(process.poll() is None for process in self.processes), "a server has ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as page:
                return page.status == 200
        except OSError:
            return False

    def ask(self, prompt, **how):
        """The answer's body."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, **how}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.ports[2]}/v1/completions", json.dumps(body).encode(),
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS) as answer:
            return answer.read().decode()

    def tokens(self, prompt):
        return json.loads(self.ask(prompt))["choices"][0]["token_ids"]

    def streamed(self, prompt):
        lines = [line[len("data: "):] for line in self.ask(prompt, stream=True).splitlines() if line.startswith("data: ")]
        check(lines and lines[-1] == "[DONE]", "the stream has no end")
        return [token for line in lines[:-1] for choice in json.loads(line)["choices"] for token in choice.get("token_ids") or ()]

    def counted(self, name):
        """A counter of decode's."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[1]}/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:sluice_{name}_total"))

    def stop(self):
        for process in reversed(self.processes):
            end(process)


class Pd(Native):
    def __init__(self, run, other):
        super().__init__(run, other)
        self.expected_pd = {}  # model: tokens of all prompts

    def want_pd(self, model="llama"):
        """The tokens of an engine without a connector."""
        if model not in self.expected_pd:
            engine = Engine(self.run, self.model(model))
            answers = sum((engine.generate([prompts_of()[i] for i in batch])["tokens"] for batch in batches()), [])
            check(len({tuple(tokens) for tokens in answers}) > REQUESTS // 2, "the model answers too many prompts alike to tell")
            self.expected_pd[model] = answers
            engine.worker.stop()
        return self.expected_pd[model]

    def same_pd(self, batch, answer, model="llama"):
        want = [self.want_pd(model)[i] for i in batch]
        differ = [i for i, got, one in zip(batch, answer["tokens"], want) if got != one]
        check(not differ and len(want) == len(answer["tokens"]), f"other tokens than without the connector for prompts {differ}")

    def node(self, name="node"):
        return self.shared(f"{name} of P/D", lambda: NativeNode(self.run, disk_bytes=2 * GIB))

    def pair(self, mode, model="llama"):
        """One at a time: their memory is needed."""
        name = f"P/D {mode} {model}"
        self.pairs_end(name)
        self.want_pd(model)
        return self.shared(name, lambda: Pair(self, mode, (self.node(), self.node()), model))

    def pairs_end(self, but=None):
        for other in [other for other in self.things if other.startswith("P/D ") and other != but]:
            _, pair = self.things.pop(other)
            pair.stop()

    def requests(self, pair, how, batches_of=None):
        """Runs all of them. Returns an Outcome if each was handed over."""
        received = failures = hits = queried = milliseconds = 0
        pair.reset()
        began = time.monotonic()
        for batch in batches_of or batches():
            answer = getattr(pair, how)([prompts_of()[i] for i in batch])
            self.same_pd(batch, answer, pair.model)
            received, failures = received + answer["received"], failures + answer["receive_failures"]
            hits, queried, milliseconds = hits + answer["hits"], queried + answer["queried"], milliseconds + answer["receive_ms"]
        seconds = time.monotonic() - began
        count = sum(len(batch) for batch in batches_of or batches())
        check((received, failures) == (count, 0), f"{received} of {count} requests were handed over, {failures} failed")
        return Outcome(hits, queried, f"{received} hand-overs in {seconds:.1f} s, {milliseconds / received:.1f} ms each at decode")

    def handed(self, mode, how, model="llama"):
        def scenario():
            pair = self.pair(mode, model)
            pair.asked([prompts_make("the node's name", 1, 20)[0]])
            return self.requests(pair, how)

        return scenario

    # ---- kills ----

    def kill_actors(self, mode):
        """Each actor, again and again, while both engines work on a batch."""
        def scenario():
            pair, notes = self.pair(mode), []
            pair.asked([prompts_make("the node's name", 1, 20)[0]])
            for actor, batch in zip(KILLS, batches() * 2):
                pair.reset()
                kills = []

                def beside():
                    for pause_s in (KILL_PAUSE_S / 6, *[KILL_PAUSE_S] * (KILLS_MAX - 1)):  # 40 answers take 400 ms
                        if not pair.decode.worker.has_answer(pause_s):
                            kills.append(self.actor_kill(actor))

                began = time.monotonic()
                answer = pair.at_once([prompts_of()[i] for i in batch], beside)
                took = time.monotonic() - began
                self.same_pd(batch, answer)
                check(any(kills), f"all was answered before {actor} was killed")
                check(took < ANSWER_SECONDS, f"{actor}: the answers took {took:.0f} s")
                wait_until(self.node().ready, 60, "the node is ready again")
                notes.append(f"{actor} {sum(kills)}x: {answer['received'] - answer['receive_failures']} of {BATCH} in {took:.1f} s")
            self.still_hands_over(pair)
            return Outcome(0, 0, "; ".join(notes))

        return scenario

    def still_hands_over(self, pair):
        """All is handed over again; the first requests register the ranks with the node."""
        for attempt in range(4):
            try:
                return self.requests(pair, "in_turn", batches()[:1])
            except Failed:
                if attempt == 3:
                    raise
                time.sleep(1.5)

    def kill_engine(self, which):
        """An engine dies with requests under way; the other one answers, or a new one is asked again."""
        def scenario():
            pair, batch = self.pair("direct"), batches()[0]
            pair.asked([prompts_make("the node's name", 1, 20)[0]])
            pair.reset()
            prompts = [prompts_of()[i] for i in batch]

            def beside():
                time.sleep(KILL_PAUSE_S)
                getattr(pair, which).kill()
                return which

            began = time.monotonic()
            answer = pair.at_once(prompts, beside)
            took = time.monotonic() - began
            check(took < ANSWER_SECONDS, f"the answers took {took:.0f} s")
            setattr(pair, which, pair.start[which]())
            if which == "decode":
                check(answer == DIED, "decode has answered")
                answer = pair.decode.generate(prompts, transfer=pair.asked(prompts))  # as a client that retries
            self.same_pd(batch, answer)
            note = f"{answer['received'] - answer['receive_failures']} of {BATCH} handed over, {took:.1f} s"
            found = self.still_hands_over(pair)
            return Outcome(found.hits, found.queried, note)

        return scenario

    # ---- two nodes ----

    def two_nodes(self):
        """Prefill's engine at one node, decode's at another one of this machine."""
        self.want_pd()
        self.pairs_end()
        nodes, notes, hits, queried = self.peers(), [], 0, 0
        for mode in ("storage", "direct"):
            pair = Pair(self, mode, nodes)
            try:
                for how in ("in_turn", "at_once"):
                    found = self.requests(pair, how, batches()[:2])
                    hits, queried = hits + found.hits, queried + found.queried
                    notes.append(f"{mode} {how}: {found.note}")
            finally:
                pair.stop()
        for node in nodes:
            node.stop()
        return Outcome(hits, queried, "; ".join(notes))

    def peers(self):
        keys, names = os.path.join(self.run.directory, "keys"), ("a", "b")
        os.makedirs(keys, exist_ok=True)
        programs = os.path.join(self.run.wheel, "mooncake", "bin")
        control, fabric = ({name: free_port() for name in names} for _ in range(2))
        for name in names:
            made = subprocess.run([os.path.join(programs, "sluicectl"), "keygen", os.path.join(keys, name), name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            check(made.returncode == 0, f"sluicectl keygen: {made.stdout}")
        for name, other in (names, names[::-1]):
            shutil.copy(os.path.join(keys, other, f"{other}.pub"), os.path.join(keys, name))
        nodes = [NativeNode(self.run, SLUICE_NODE_NAME=name, SLUICE_PEERS=",".join(f"{one}@127.0.0.1:{control[one]}" for one in names),
                            SLUICE_CLUSTER_LISTEN=f"127.0.0.1:{control[name]}", SLUICE_CLUSTER_KEYS=os.path.join(keys, name),
                            SLUICE_FABRIC="tcp", SLUICE_FABRIC_ADDRESS=f"127.0.0.1:{fabric[name]}") for name in names]
        for node, other in zip(nodes, names[::-1]):
            wait_until(lambda at=node, who=other: f'"{who}"' in at.ctl("nodes", "--json").stdout and
                       '"alive"' in at.ctl("nodes", "--json").stdout, 30, "the nodes have found each other")
        return nodes

    # ---- servers ----

    def served(self, direct):
        def scenario():
            self.want_pd()
            self.pairs_end()
            served = Served(self.run, self.model("llama"), self.node(), direct)
            first, count = served.tokens(prompts_of()[0]), BATCH  # the proxy learns the node's name
            check(first == self.want_pd()[0], "other tokens than without the connector for the first prompt")
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(served.streamed if i % 2 else served.tokens, prompts_of()[i]) for i in range(1, count)]
                self.same_pd(range(count), {"tokens": [first, *(one.result() for one in asked)]})
            received, failures = served.counted("handovers_received"), served.counted("handover_receive_failures")
            check((received, failures) == (count, 0), f"{received:.0f} of {count} requests were handed over, {failures:.0f} failed")
            took = self.prefill_dies(served)
            served.stop()
            return Outcome(0, 0, f"{received:.0f} hand-overs; answers in {took:.1f} s when prefill died")

        return scenario

    def prefill_dies(self, served):
        """Prefill dies with requests under way. Returns the seconds until all are answered."""
        batch = range(BATCH, 2 * BATCH)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(served.streamed if i % 2 else served.tokens, prompts_of()[i]) for i in batch]
            time.sleep(KILL_PAUSE_S)
            began = time.monotonic()
            for pid in session_pids(served.processes[0].pid):
                os.kill(pid, signal.SIGKILL)
            self.same_pd(batch, {"tokens": [one.result() for one in asked]})
        took = time.monotonic() - began
        check(took < HANDED_SECONDS, f"the answers took {took:.0f} s after prefill was killed")
        return took

    # ---- figures ----

    def speed(self):
        """The time to decode's first token with a hand-over, and when decode computes the prompt, one prompt at a time."""
        pair = self.pair("storage")
        table = Table("vLLM: first token at decode (ms), median", ("prompt", "computed", "handed over", "prefill, then decode"))
        for length in SPEED_LENGTHS:
            prompts = prompts_make(f"speed {length}", SPEED_ROUNDS, length)
            pair.reset()
            computed = pair.decode.generate(prompts, together=False)["first_token_s"]
            pair.reset()
            handed, both = [], []
            for prompt in prompts:
                began = time.monotonic()
                given = pair.asked([prompt])
                prefilled = time.monotonic() - began
                answer = pair.decode.generate([prompt], transfer=given)
                check(answer["received"] == 1 and answer["receive_failures"] == 0, "nothing was handed over")
                handed.append(answer["first_token_s"][0])
                both.append(prefilled + handed[-1])
            table.rows.append((f"{length} tokens", *(f"{1e3 * statistics.median(times):.0f}" for times in (computed, handed, both))))
        self.run.tables.append(table)


def scenarios(run, vllm):
    pd = Pd(run, vllm)
    rows = [("storage, in turn", pd.handed("storage", "in_turn")), ("storage, at once", pd.handed("storage", "at_once")),
            ("storage, kill actors", pd.kill_actors("storage")), ("speed", pd.speed),
            ("direct, in turn", pd.handed("direct", "in_turn")), ("direct, at once", pd.handed("direct", "at_once")),
            ("direct, kill actors", pd.kill_actors("direct")),
            ("hybrid, storage, in turn", pd.handed("storage", "in_turn", "hybrid")),
            ("hybrid, direct, at once", pd.handed("direct", "at_once", "hybrid")),
            ("kill prefill's engine", pd.kill_engine("prefill")), ("kill decode's engine", pd.kill_engine("decode")),
            ("two nodes", pd.two_nodes), ("vllm serve and the proxy", pd.served(False)),
            ("vllm serve and the proxy, direct", pd.served(True))]
    return [Scenario("P/D " + name, action, 1200) for name, action in rows]
