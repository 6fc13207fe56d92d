"""LMCache's own engine, its connector `mooncakestore://` and its multi-process mode on Sluice's wheel: bytes and hits (LMCache's counters)
are right, whatever happens to the node."""

import os

import kills
import lmcache_package
import vllm_engine
from environment import Recipe, Step
from harness import HERE, Node, Outcome, Scenario, Worker, check, progress, wait_until
from things import SharedThings

# Not by constraints.txt: its exporter for Prometheus requires an older OpenTelemetry than vLLM does.
RECIPE = Recipe("lmcache", free_gib=1, pinned=False, base=vllm_engine.RECIPE, steps=(
    Step(f"LMCache {lmcache_package.VERSION}", ("--no-deps", f"lmcache=={lmcache_package.VERSION}")),
    # Without packages for clouds and GPUs. pytest runs the tests in the source package.
    Step("what LMCache imports", ("aiofile==3.11.1", "aiofiles==25.1.0", "nvtx==0.2.17", "redis==8.1.0", "sortedcontainers==2.4.0",
                                  "opentelemetry-exporter-prometheus==0.61b0", "pytest==9.2.0", "pytest-asyncio==1.5.0")),
))

WORKER = os.path.join(HERE, "lmcache_worker.py")
MP_WORKER = os.path.join(HERE, "lmcache_mp_worker.py")
MP_CHUNKS = 16         # chunks of 1 MiB
CHUNK = 256
COUNT = 4096           # tokens of a prompt: 16 chunks of 1 MiB
WORK_SECONDS = 6
VARIABLES = {"LMCACHE_TRACK_USAGE": "false", "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "LMCACHE_LOG_LEVEL": "INFO"}


class Lmcache(SharedThings):
    script, name, settings = WORKER, "lmcache", VARIABLES

    def node_make(self, **options):
        return Node(self.run, **options)

    def worker(self, name="first", **told):
        return self.shared(name, lambda: self.worker_start(self.node(), **told))

    def hit(self, worker, seed, count=COUNT):
        """The whole prompt is found, and its bytes are right."""
        looked = worker.ask(do="lookup", seed=seed, count=count)
        full = count // CHUNK * CHUNK
        check(looked["found"] == looked["hits"] == full, f"lookup finds {looked} of {count} tokens")
        answer = worker.ask(do="retrieve", seed=seed, count=count)
        check(answer["right"], "other bytes than were stored")
        check(answer["loaded"] == answer["found"] == full, f"only {answer} of {full} tokens came")
        return Outcome(answer["loaded"], answer["asked"])

    # ---- one engine, several ----

    def cold(self):
        answer = self.worker().ask(do="lookup", seed=1, count=COUNT)
        check(answer["found"] == answer["hits"] == 0 and answer["queried"] == COUNT, f"an empty node: {answer}")
        answer = self.worker().ask(do="retrieve", seed=1, count=COUNT)
        check(answer["found"] == 0 and answer["right"], f"an empty node: {answer}")
        return Outcome(0, COUNT)

    def warm(self):
        self.worker().ask(do="store", seed=2, count=COUNT)
        return self.hit(self.worker(), 2)

    def prefix(self):
        """Of a longer prompt only the stored part is read; the rest of the pool is unchanged."""
        self.worker().ask(do="store", seed=3, count=COUNT)
        answer = self.worker().ask(do="retrieve", seed=3, count=COUNT + 100)
        check(answer["found"] in (0, COUNT) and answer["right"], f"a prompt that is longer: {answer}")
        return Outcome(answer["loaded"], answer["asked"])

    def other_process(self):
        self.worker().ask(do="store", seed=4, count=COUNT)
        return self.hit(self.worker("second"), 4)

    def ranks(self):
        """Two ranks of a model: each finds its own bytes and not those of the other."""
        both = [self.worker(f"rank {rank}", ranks=2, rank=rank) for rank in (0, 1)]
        both[0].ask(do="store", seed=5, count=COUNT)
        other = both[1].ask(do="lookup", seed=5, count=COUNT)
        check(other["found"] == 0, f"rank 1 finds what rank 0 stored: {other}")
        both[1].ask(do="store", seed=5, count=COUNT)
        outcomes = [self.hit(worker, 5) for worker in both]
        return Outcome(sum(one.hits for one in outcomes), sum(one.queried for one in outcomes))

    def unfull(self):
        """The last, short chunk is also stored and read."""
        worker = self.worker("unfull", unfull=True)
        worker.ask(do="store", seed=6, count=COUNT + 100)
        wait_until(lambda: worker.ask(do="lookup", seed=6, count=COUNT + 100)["found"] == COUNT + 100, 30, "the short chunk is stored")
        answer = worker.ask(do="retrieve", seed=6, count=COUNT + 100)
        check(answer["right"] and answer["found"] == COUNT + 100, f"{answer}")
        return Outcome(answer["loaded"], answer["asked"])

    def chunk_meta(self):
        """save_chunk_meta: values begin with LMCache's description of them, written with put_parts."""
        worker = self.worker("meta", chunk_meta=True, rank=2, ranks=3)
        worker.ask(do="store", seed=7, count=COUNT)
        return self.hit(worker, 7)

    def embedded(self):
        """The engine contributes the memory itself."""
        node = Node(self.run, contribute=False)
        worker = self.worker_start(node, segment_bytes=256 << 20)
        worker.ask(do="store", seed=8, count=COUNT)
        outcome = self.hit(worker, 8)
        worker.stop()
        node.stop()
        return outcome

    def mooncake_lookup(self):
        """LMCache's client that asks the master directly, for a scheduler without an engine: it is set up without a segment."""
        self.worker().ask(do="store", seed=9, count=COUNT)
        found = self.worker().ask(do="scheduler_lookup", seed=9, count=COUNT)["found"]
        check(found == COUNT, f"the scheduler finds {found} of {COUNT} tokens")
        return Outcome(found, COUNT)

    # ---- the multi-process mode's storage manager ----

    def mp(self, name="mp"):
        return self.shared(name, lambda: self.mp_start(self.node()))

    def mp_start(self, node):
        server = ["--l1-size-gb", "0.125", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--l2-adapter", lmcache_package.adapter_of(node)]
        worker = Worker(self.run, MP_WORKER, name="lmcache-mp", environment=self.run.variables(**node.client_variables(), **VARIABLES),
                        arguments={"server": server})
        worker.answer(180)
        return worker

    @staticmethod
    def mp_hit(worker, seed):
        answer = worker.ask(do="read", seed=seed, count=MP_CHUNKS)
        check(answer["right"], "other bytes than were stored")
        check(answer["hits"] == answer["found"] == MP_CHUNKS, f"only {answer} of {MP_CHUNKS} chunks")
        return Outcome(answer["hits"] * CHUNK, MP_CHUNKS * CHUNK)

    def mp_alone(self):
        answer = self.mp().ask(do="read", seed=40, count=MP_CHUNKS)
        check(answer["hits"] == answer["found"] == 0, f"an empty node: {answer}")
        self.mp().ask(do="write", seed=40, count=MP_CHUNKS)
        return self.mp_hit(self.mp(), 40)

    def mp_processes(self):
        self.mp().ask(do="write", seed=41, count=MP_CHUNKS)
        return self.mp_hit(self.mp("other mp"), 41)

    def mp_killed(self):
        """SIGKILL for the registrar while chunks are read."""
        self.mp().ask(do="write", seed=42, count=MP_CHUNKS)
        self.mp().tell(do="work", seeds=[42], count=MP_CHUNKS, seconds=WORK_SECONDS)
        count, answer = kills.while_it_works(self.node(), "registrar", self.mp())
        check(answer["wrong"] == 0, f"other bytes in {answer['wrong']} of {answer['rounds']} rounds")
        outcome = self.mp_hit(self.mp(), 42)
        return Outcome(outcome.hits, outcome.queried, f"{count} kills, {answer['rounds']} rounds, {answer['hits']} chunks then")

    # ---- failures ----

    def no_node(self):
        """setup fails, which LMCache ignores: nothing is a hit, stores and reads end, and nothing raises."""
        node = self.node_make(contribute=False)
        node.stop()
        worker = self.worker_start(node)
        worker.ask(do="store", seed=20, count=COUNT, wait=False)
        for what in ("lookup", "retrieve"):
            answer = worker.ask(do=what, seed=20, count=COUNT)
            check(answer["found"] == 0, f"a hit without a node: {what} says {answer}")
        check(answer["right"], "bytes were written without a node")
        worker.stop()
        return Outcome(0, COUNT)

    def restart(self):
        """The node is stopped and starts again with its disk: an engine that was set up before finds all chunks."""
        node = self.node()
        self.worker().ask(do="store", seed=21, count=COUNT)
        node.settled()
        node.flush()
        node.stop()
        self.worker().ask(do="lookup", seed=21, count=COUNT)  # the call ends, whatever its answer
        node.start()
        wait_until(lambda: self.worker_fresh().ask(do="lookup", seed=21, count=COUNT)["found"] == COUNT, 60, "all is there again")
        return self.hit(self.worker_fresh(), 21)

    def worker_fresh(self):
        return self.worker("after the restart")

    def killed(self, actor):
        """SIGKILL for an actor, again and again, while the engine stores and reads: bytes are never wrong, and then all is served."""
        node, worker = self.node(), self.worker()
        seeds = list(range(100 + 10 * kills.ACTORS.index(actor), 104 + 10 * kills.ACTORS.index(actor)))
        worker.tell(do="work", seeds=seeds, count=COUNT, seconds=WORK_SECONDS)
        count, answer = kills.while_it_works(node, actor, worker)
        check(answer["wrong"] == 0, f"other bytes in {answer['wrong']} of {answer['rounds']} rounds")
        worker.ask(do="store", seed=seeds[0], count=COUNT)
        outcome = self.hit(worker, seeds[0])
        return Outcome(outcome.hits, outcome.queried, f"{count} kills, {answer['rounds']} rounds, {answer['found']} tokens then")

    def master_killed(self):
        """SIGKILL for mooncake_master and mooncake_client and all of their actors."""
        node = self.node()
        self.worker().ask(do="store", seed=22, count=COUNT)
        node.settled()
        node.flush()
        for process in (node.client, node.master):
            progress(f"SIGKILL for {process.args[0]}")
            process.kill()
            process.wait(10)
        self.worker().ask(do="lookup", seed=22, count=COUNT)
        node.stop()
        node.start()
        return self.hit(self.worker("after the kill"), 22)


def scenarios(run):
    import lmcache_native  # it uses names of this module

    engine = Lmcache(run)
    package = lmcache_package.Package(run, engine.node)
    return [
        Scenario("empty node", engine.cold),
        Scenario("stored and read", engine.warm),
        Scenario("prefix of a longer prompt", engine.prefix),
        Scenario("another process reads", engine.other_process),
        Scenario("two ranks", engine.ranks),
        Scenario("short last chunk", engine.unfull),
        Scenario("values with their description", engine.chunk_meta),
        Scenario("memory of the engine", engine.embedded),
        Scenario("the scheduler asks the master", engine.mooncake_lookup),
        Scenario("multi-process: stored and read", engine.mp_alone),
        Scenario("multi-process: another process reads", engine.mp_processes),
        Scenario("multi-process: kill -9 registrar", engine.mp_killed),
        *package.scenarios(),
        Scenario("no node: no hit", engine.no_node),
        Scenario("restart of the node", engine.restart),
        *(Scenario(f"kill -9 {actor}", lambda actor=actor: engine.killed(actor)) for actor in kills.ACTORS),
        Scenario("kill -9 of the whole node", engine.master_killed),
        *lmcache_native.scenarios(run),
    ]
