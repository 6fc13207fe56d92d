"""vLLM with Sluice's own connector: the scenarios of the Mooncake connector, and those that only it has."""

import os
import shutil
import signal
import statistics
import time

import harness
from harness import GIB, Outcome, Scenario, Table, check, wait_until
from vllm_engine import KILLS, Vllm, prompts_of
from turns import SECONDS
from vllm_hints import Hints
import vllm_router
import vllm_told
from vllm_parts import Engine, prompts_make

LOADS = ("async", "sync", "layers")
LENGTHS, ROUNDS = (2000, 4000, 8000), 7
BY_LAYERS = {"load": "layers", "save": "layers"}
STOPPED_SECONDS = 60  # limit of answers while a process of the node is stopped or killed


class NativeNode(harness.NativeNode):
    """A node with one swapper a rank."""

    connector = "native"

    def __init__(self, run, **options):
        super().__init__(run, **{"SLUICE_RANKS": 2, **options})


class Native(Vllm):
    def __init__(self, run, other):
        super().__init__(run)
        self.other = other  # has the answers of engines without a connector, and the models

    def model(self, kind):
        return self.other.model(kind)

    def want(self, **which):
        return self.other.want(**which)

    def node(self, name="node"):
        return self.shared(name, lambda: NativeNode(self.run, disk_bytes=2 * GIB))

    def connected(self, engine):
        """Waits until the ranks have registered, before which nothing is looked up: then stored prompts are hit again."""

        def hits():
            engine.reset()
            return engine.generate(prompts_of("pair"))["hits"] > 0

        wait_until(hits, 60, "the engine uses the new node")

    def sync(self):
        """Loads before the step instead of during it."""
        self.filled("base", self.engine())
        found = self.hit("base", self.engine("sync", extra={"load": "sync"}))
        self.engine("sync").worker.stop()
        del self.things["engine sync"]
        return found

    def layers(self, ranks):
        """Layer by layer, both ways; then stored values are damaged, and missing blocks are computed."""

        def scenario():
            name, which = f"layers {ranks}", {"model": "llama", "ranks": ranks}
            at = f"node of {name}"
            self.want(**which)
            engine, node = self.engine(name, at, extra=BY_LAYERS, **which), self.node(at)
            self.filled("base", engine, at, **which)
            stores = self.by_layers(node)
            check(stores > 0, "nothing was stored by layers")
            found = self.hit("base", engine, **which)
            check(self.by_layers(node) > stores, "nothing was loaded by layers")
            self.on_disk_only("disk", engine, at, **which)
            check(node.disk_damage() > 0, "there is nothing on disk to damage")
            node.start()
            self.connected(engine)
            engine.reset()
            answer = engine.generate(prompts_of("disk"))
            self.same(["disk"], answer, **which)
            check(answer["failed_keys"] > 0, "no load failed: nothing was shown")
            self.filled("disk", engine, at, **which)
            again = self.hit("disk", engine, **which)
            engine.worker.stop()
            node.stop()
            del self.things[f"engine {name}"], self.things[at]
            return Outcome(found.hits + again.hits, found.queried + again.queried,
                           f"{found.note}, {again.note}; {answer['failed_keys']} loads failed, recomputed")

        return scenario

    def loads(self):
        """Time to the first token with each way of loading, in turns: three engines, one node."""
        self.run.stop()
        node = NativeNode(self.run, memory_bytes=2 * GIB)
        engines = {load: Engine(self.run, self.model("llama"), node, extra={"load": load}, length=LENGTHS[-1] + 64) for load in LOADS}
        took, hits, queried = {(load, length): [] for load in LOADS for length in LENGTHS}, 0, 0
        for length in LENGTHS:
            (prompt,) = prompts_make(f"loads {length}", 1, length)
            engines[LOADS[0]].generate([prompt], tokens=1)
            engines[LOADS[0]].worker.ask(60, do="rest", lasting_s=2)
            for _ in range(ROUNDS):
                for load, engine in engines.items():
                    engine.reset()
                    answer = engine.generate([prompt], tokens=1)
                    took[load, length].append(answer["first_token_s"][0])
                    hits, queried = hits + answer["hits"], queried + answer["queried"]
        table = Table(f"vLLM: ms to the first token of a prompt in the node, by the setting load (median of {ROUNDS}, by turns)",
                      ("load", *map(str, LENGTHS)))
        table.rows += [(load, *(f"{statistics.median(took[load, length]) * 1e3:.0f}" for length in LENGTHS)) for load in LOADS]
        self.run.tables.append(table)
        self.run.stop()
        return Outcome(hits, queried, f"{ROUNDS} rounds")

    def by_layers(self, node):
        """Number of ops so far."""
        return node.counters()["ops_by_layers"]

    def share(self, what, extra=None, **which):
        """Two ranks read what one stored, and one reads what two stored. which: how the two are started."""

        def scenario():
            two_are = {"model": "llama", **which}
            one = self.engine("one", "node to share", extra=extra)
            self.filled("base", one, "node to share")
            two = self.engine("two", "node to share", extra=extra, **two_are)
            there = self.hit("base", two, **two_are)
            self.filled("disk", two, "node to share", **two_are)
            two.worker.stop()
            back = self.hit("disk", one)
            one.worker.stop()
            self.node("node to share").stop()
            del self.things["engine one"], self.things["engine two"], self.things["node to share"]
            return Outcome(there.hits + back.hits, there.queried + back.queried, f"{what}=1 to 2 {there.note}, 2 to 1 {back.note}")

        return scenario

    def states(self):
        """Every other layer is a convolution, whose state is kept at boundaries of blocks."""
        which = {"model": "states"}
        self.filled("base", self.engine("states", "node of states", **which), "node of states", **which)
        self.hit("base", self.engine("states", "node of states", **which), **which)
        self.engine("states", "node of states", **which).worker.stop()
        del self.things["engine states"]
        engine = self.engine("states", "node of states", **which)
        found = self.hit("base", engine, **which)
        engine.worker.stop()
        self.node("node of states").stop()
        del self.things["engine states"], self.things["node of states"]
        return found

    def other_weights(self):
        """The weights at a path are replaced: nothing of the old ones is hit. The same weights at another path hit."""
        at, path = "node of weights", self.model("llama") + "-replaced"
        shutil.copytree(self.model("llama"), path)
        models = self.other.models
        models["first weights"] = path
        self.filled("base", self.engine("weights", at, model="first weights"), at, model="first weights")
        self.ended("weights")
        shutil.copy(os.path.join(self.model("llama of another seed"), "model.safetensors"), path)
        models["second weights"] = path
        engine = self.engine("weights", at, model="second weights")
        answer = self.filled("base", engine, at, model="second weights")
        check(answer["hits"] == 0, f"{answer['hits']} tokens of other weights hit")
        self.ended("weights")
        models["second weights elsewhere"] = shutil.copytree(path, path + "-elsewhere")
        found = self.hit("base", self.engine("weights", at, model="second weights elsewhere"), model="second weights")
        self.ended("weights")
        self.node(at).stop()
        del self.things[at]
        return found

    def ended(self, name):
        self.things.pop(f"engine {name}")[1].worker.stop()

    def node_restarts(self):
        """The node is stopped while the engine answers, and started again: the same tokens, and hits again."""
        engine, node = self.engine(), self.node()
        self.filled("base", engine)
        engine.reset()
        engine.generate_start(prompts_of("base") + prompts_of("master"))
        time.sleep(0.2)
        node.stop()
        answer = engine.generate_end()
        self.same(["base", "master"], answer)
        without = engine.generate(prompts_of("pair"))
        self.same(["pair"], without)
        check(without["seconds"] < STOPPED_SECONDS, f"without a node the answers took {without['seconds']:.1f} s")
        engine.reset()
        node.start()
        self.filled("master", engine)
        self.filled("master", engine)  # the first ops register the ranks with the node
        return self.hit("master", engine)

    def late(self):
        """The engine starts before the node."""
        node = self.shared("late node", lambda: NativeNode(self.run))
        node.stop()
        engine = self.engine("late", "late node")
        answer = engine.generate(prompts_of("base"))
        self.same(["base"], answer)
        node.start()
        time.sleep(1.5)
        self.filled("base", engine, "late node")
        self.filled("base", engine, "late node")
        found = self.hit("base", engine)
        engine.worker.stop()
        del self.things["engine late"], self.things["late node"]
        return found

    def actor_stopped(self, actor):
        """An actor is stopped (SIGSTOP) for a while: the engine still answers."""

        def scenario():
            engine, node = self.engine(), self.node()
            self.filled("base", engine)
            engine.reset()
            pids = [pid for name, pid in node.actors().items() if name.split(".")[0] == actor]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                answer = engine.generate(prompts_of("base"))
            finally:
                for pid in pids:
                    if os.path.exists(f"/proc/{pid}"):
                        os.kill(pid, signal.SIGCONT)
            self.same(["base"], answer)
            check(answer["seconds"] < STOPPED_SECONDS, f"the answers took {answer['seconds']:.1f} s")
            wait_until(node.ready, 30, "the node is ready again")
            self.filled("base", engine)
            found = self.hit("base", engine)
            return Outcome(found.hits, found.queried, f"answered in {answer['seconds']:.1f} s")

        return scenario


def scenarios(run, vllm):
    native = Native(run, vllm)
    rows = [
        ("cold", native.cold), ("warm", native.warm), ("other process", native.other_process), ("two engines", native.two_engines),
        ("load before the step", native.sync), ("layers TP=1", native.layers(1)), ("layers TP=2", native.layers(2)),
        ("loads compared", native.loads), *[(f"kill {actor}", native.kill(actor)) for actor in KILLS],
        ("kill engine", native.kill_engine), ("node stopped and started", native.node_restarts),
        *[(f"{actor} is stopped", native.actor_stopped(actor)) for actor in ("registrar", "coordinator", "swapper")],
        ("restart from disk", native.disk), ("load fails: damaged on disk", native.digest), ("load fails: silent tierer", native.silent),
        ("the node starts later", native.late), ("TP=2", native.ranks), ("TP=1 and TP=2", native.share("TP", ranks=2)),
        ("PP=1 and PP=2", native.share("PP", {"stages": 2}, stages=2)), ("hybrid", native.hybrid),
        ("states", native.states), ("other weights at the path", native.other_weights),
    ]
    return [*(Scenario("native " + name, action, 900) for name, action in rows),
            *vllm_told.scenarios(run, native, NativeNode), *vllm_router.scenarios(run, native, NativeNode),
            Scenario("native hints of requests", Hints(run, native, NativeNode).turns, SECONDS)]
