"""One vLLM as the scenarios see it, and prompts."""

import json
import os
import random
import signal

from harness import HERE, Worker, session_pids

WORKER = os.path.join(HERE, "vllm_worker.py")
START_SECONDS = 240
ANSWER_SECONDS = 180
VOCABULARY = 1000
TOKENS = 8  # tokens of each answer
VARIABLES = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0-1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
             "VLLM_DO_NOT_TRACK": "1"}


def prompts_make(seed, count, length):
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCABULARY) for _ in range(length)] for _ in range(count)]


class Engine:
    """One vLLM. node: the node of its connector; None: it has no connector. A caller that does not wait calls started() first. core: the
    core of this engine, when two engines run at once. A worker of vLLM that waits for its next step yields its core in a loop for a second:
    on one core (Linux 6.18) such a worker kept the other engine from computing for half a minute."""

    def __init__(self, run, model, node=None, ranks=1, segment_bytes=0, extra=None, length=6144, stages=1, more=None, wait=True, core=None,
                 prefix=()):
        variables = {**VARIABLES, "VLLM_CPU_OMP_THREADS_BIND": "0|1" if ranks * stages == 2 else "0-1"}
        if core is not None:
            variables["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
        if stages > 1:
            variables["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # a function is sent to the workers
        if node is not None:
            variables.update(node.client_variables(), MOONCAKE_CONFIG_PATH=self.config_write(run, node, segment_bytes))
        # LFM2 gives other answers in another batch, even without a connector.
        self.together = os.path.basename(model) != "states"
        connector = getattr(node, "connector", node is not None)
        self.worker = Worker(run, WORKER, "vllm" if node else "vllm-off", run.variables(**variables),
                             {"model": model, "connector": connector, "ranks": ranks, "extra": extra or {}, "length": length, "stages": stages,
                              "more": more or {}}, prefix)
        if wait:
            self.started()

    def started(self):
        self.start_s = self.worker.answer(START_SECONDS)["seconds"]

    def config_write(self, run, node, segment_bytes):
        path = os.path.join(run.directory, f"mooncake-{run.number('config')}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"mode": "embedded" if segment_bytes else "standalone-store", "metadata_server": "P2PHANDSHAKE",
                       "master_server_address": node.address, "global_segment_size": segment_bytes,
                       "local_buffer_size": 64 << 20, "protocol": "tcp", "device_name": ""}, file)
        return path

    def generate(self, prompts, **how):
        self.generate_start(prompts, **how)
        return self.generate_end()

    def generate_start(self, prompts, **how):
        self.worker.tell(do="generate", prompts=prompts, **{"tokens": TOKENS, "together": self.together, **how})

    def generate_end(self):
        return self.worker.answer(ANSWER_SECONDS)

    def reset(self):
        self.worker.ask(60, do="reset")

    def kill(self):
        """SIGKILL for all of its processes."""
        for pid in session_pids(self.worker.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.worker.process.wait(10)
