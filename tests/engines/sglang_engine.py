"""SGLang's host pools, HiCacheController, MooncakeStore and direct linker, unmodified, on Sluice's wheel: bytes and hits (as SGLang counts
them) are right, whatever happens to the node."""

import os
import subprocess

import kills
import sglang_native
import vllm_engine
from environment import Recipe, Step
from harness import HERE, Node, Outcome, Scenario, check, progress
from reasons import Failed
from things import SharedThings

VERSION = "0.5.23"
RECIPE = Recipe("sglang", free_gib=2, base=vllm_engine.RECIPE, steps=(
    Step(f"SGLang {VERSION}", ("--no-deps", f"sglang=={VERSION}")),
    Step("transformers", ("transformers==5.19.0",)),
    # Without kernels of GPUs: the package imports without them.
    Step("what SGLang imports", ("orjson==3.13.0", "scipy==1.17.1", "xxhash==4.1.0", "zstandard==0.25.0", "distro==1.9.0",
                                   "ipython==9.18.1", "gguf==0.19.0", "datasets==5.2.0")),
    Step("torchvision", ("--no-deps", "torchvision==0.29.2")),
))

WORKER = os.path.join(HERE, "sglang_worker.py")
PAGE, PAGES = 64, 16
# (kind, layout) that SGLang supports with the back end mooncake; see layer_first_mha().
LAYOUTS = (("mha", "page_first"), ("mha", "page_first_direct"), ("mla", "page_first"), ("mla", "page_first_direct"), ("mla", "layer_first"))
START_SECONDS = 240
WORK_SECONDS = 6
VARIABLES = {"HF_HUB_OFFLINE": "1", "SGLANG_LOG_LEVEL": "info"}
HICACHE = {"mode": "hicache", "kind": "mha", "layout": "page_first"}
LINKER = {"mode": "linker"}


class Sglang(SharedThings):
    script, name, settings, start_seconds = WORKER, "sglang", VARIABLES, START_SECONDS

    def worker(self, name="first", **told):
        return self.shared(name, lambda: self.worker_start(self.node(), **{**HICACHE, **told}))

    def linker(self):
        return self.shared("linker", lambda: self.worker_start(self.node(), **LINKER))

    def stored(self, worker, seed, pages=PAGES, objects=None):
        answer = worker.ask(do="write", seed=seed, pages=pages)
        check(answer["tokens"] == pages * PAGE, f"SGLang calls {answer['tokens']} of {pages * PAGE} tokens stored")
        check(objects is None or answer["counted"] == objects, f"SGLang counts {answer['counted']} objects stored, not {objects}")

    def hit(self, worker, seed, pages=PAGES):
        """All pages are found and read, with the bytes that were stored."""
        answer = worker.ask(do="read", seed=seed, pages=pages)
        check(answer["right"], "other bytes than were stored")
        check(answer["found"] == answer["tokens"] == pages * PAGE and answer["counted"] == pages, f"only {answer} of {pages} pages")
        return Outcome(answer["tokens"], pages * PAGE)

    def missed(self, worker, seed):
        answer = worker.ask(do="read", seed=seed, pages=PAGES)
        check(answer["found"] == answer["tokens"] == 0, f"a hit for what was not stored: {answer}")
        return Outcome(0, PAGES * PAGE)

    # ---- HiCache ----

    def layout(self, kind, layout):
        worker = self.worker_start(self.node(), mode="hicache", kind=kind, layout=layout, extra={"extra_backend_tag": f"{kind}-{layout}"})
        self.missed(worker, 1)
        self.stored(worker, 1, objects=PAGES * (2 if kind == "mha" else 1))
        self.hit(worker, 1)
        answer = worker.ask(do="read", seed=1, pages=PAGES)
        self.stored(worker, 1, objects=0)  # no page is written twice
        check(answer["right"], "other bytes the second time")
        outcome = self.hit(worker, 1)
        worker.stop()
        return outcome

    def layer_first_mha(self):
        """SGLang refuses it: its back end packs several pieces a page only for MLA. Nothing is stored, and nothing is a hit."""
        worker = self.worker_start(self.node(), mode="hicache", kind="mha", layout="layer_first", extra={"extra_backend_tag": "refused"})
        answer = worker.ask(do="write", seed=1, pages=PAGES)
        check(answer["tokens"] == 0, f"SGLang stores MHA in layer_first now: {answer}; make it a row of LAYOUTS")
        outcome = self.missed(worker, 1)
        worker.stop()
        return outcome

    def other_process(self):
        self.stored(self.worker(), 2)
        return self.hit(self.worker("second"), 2)

    def prefix(self):
        """Of a longer prompt the stored part is read."""
        self.stored(self.worker(), 3, 8)
        answer = self.worker().ask(do="read", seed=3, pages=PAGES)
        check(answer["found"] == answer["tokens"] == 8 * PAGE and answer["right"], f"{answer}")
        return Outcome(answer["tokens"], PAGES * PAGE)

    def ranks(self):
        """Two ranks of a model: MHA has other bytes on each, and each finds its own."""
        both = [self.worker(f"rank {rank}", ranks=2, rank=rank, extra={"extra_backend_tag": "ranks"}) for rank in (0, 1)]
        self.stored(both[0], 4)
        self.missed(both[1], 4)
        self.stored(both[1], 4)
        return self.sum([self.hit(worker, 4) for worker in both])

    @staticmethod
    def sum(outcomes):
        return Outcome(sum(one.hits for one in outcomes), sum(one.queried for one in outcomes))

    def groups(self):
        """enable_group_semantics: K and V of a page are one group."""
        worker = self.worker("groups", extra={"enable_group_semantics": True, "extra_backend_tag": "groups"})
        self.stored(worker, 5)
        return self.hit(worker, 5)

    def embedded(self):
        """SGLang's ranks contribute the memory."""
        node = Node(self.run, contribute=False)
        worker = self.worker_start(node, **HICACHE, segment_bytes=256 << 20)
        self.stored(worker, 6)
        outcome = self.hit(worker, 6)
        worker.stop()
        node.stop()
        return outcome

    def standalone(self, kind):
        """The host pool is memory of MooncakeHostMemAllocator, and a mooncake_client serves the store. For MHA, SGLang registers
        the halves of one allocation separately."""
        node = self.node()
        worker = self.worker_start(node, mode="hicache", kind=kind, layout="page_first", client=f"127.0.0.1:{node.client_port}",
                                   extra={"extra_backend_tag": f"standalone-{kind}"})
        self.stored(worker, 7)
        outcome = self.hit(worker, 7)
        worker.stop()
        return outcome

    # ---- the direct linker ----

    def linker_alone(self):
        worker = self.linker()
        self.missed(worker, 30)
        self.stored(worker, 30)
        return self.hit(worker, 30)

    def linker_processes(self):
        self.stored(self.linker(), 31)
        other = self.worker_start(self.node(), **LINKER)
        outcome = self.hit(other, 31)
        other.stop()
        return outcome

    # ---- failures ----

    def no_node(self, mode):
        """SGLang checks what setup returns, and does not start."""
        node = Node(self.run, contribute=False)
        node.stop()
        try:
            self.worker_start(node, **mode)
        except Failed as failure:
            check("Failed to setup Mooncake store" in str(failure), f"it fails otherwise: {failure}")
            return Outcome(note="SGLang does not start, and reports why")
        raise Failed("SGLang starts without a node")

    def restart(self):
        """The node is stopped and starts again with its disk."""
        node = self.node()
        self.stored(self.worker(), 20)
        self.stored(self.linker(), 20)
        node.flush()
        node.stop()
        for worker in (self.worker(), self.linker()):
            worker.ask(do="read", seed=20, pages=PAGES)  # the call ends, whatever its answer
        node.start()
        workers = [self.worker_start(node, **mode) for mode in (HICACHE, LINKER)]
        outcome = self.sum([self.hit(worker, 20) for worker in workers])
        for worker in workers:
            worker.stop()
        return outcome

    def killed(self, actor):
        """SIGKILL for an actor, repeatedly, while HiCache and the linker store and read: no byte is ever wrong, and then all is served."""
        node, workers = self.node(), (self.worker(), self.linker())
        first = 100 + 10 * kills.ACTORS.index(actor)
        for worker in workers:
            worker.tell(do="work", seeds=list(range(first, first + 4)), pages=PAGES, seconds=WORK_SECONDS)
        count, answer = kills.while_it_works(node, actor, workers[0])
        answers = [answer, workers[1].answer(150)]
        check(all(answer["wrong"] == 0 for answer in answers), f"other bytes than were stored: {answers}")
        for worker in workers:
            self.stored(worker, first)
        outcome = self.sum([self.hit(worker, first) for worker in workers])
        rounds, tokens = (sum(answer[what] for answer in answers) for what in ("rounds", "tokens"))
        return Outcome(outcome.hits, outcome.queried, f"{count} kills, {rounds} rounds, {tokens} tokens then")

    def master_killed(self):
        """SIGKILL for mooncake_master, mooncake_client and all actors."""
        node = self.node()
        self.stored(self.worker(), 21)
        node.flush()
        for process in (node.client, node.master):
            progress(f"SIGKILL for {process.args[0]}")
            process.kill()
            process.wait(10)
        self.worker().ask(do="read", seed=21, pages=PAGES)
        node.stop()
        node.start()
        worker = self.worker_start(node, **HICACHE)
        outcome = self.hit(worker, 21)
        worker.stop()
        return outcome

    # ---- what SGLang's package carries ----

    def package_test(self):
        """Its own test of the back end, unmodified."""
        node = Node(self.run, contribute=False)
        done = subprocess.run(
            [self.run.interpreter, "-m", "sglang.srt.mem_cache.storage.mooncake_store.test_mooncake_store"],
            env=self.run.variables(**node.client_variables(), **VARIABLES, MOONCAKE_MASTER=node.address,
                                   MOONCAKE_GLOBAL_SEGMENT_SIZE=256 << 20, MOONCAKE_PROTOCOL="tcp",
                                   MOONCAKE_TE_META_DATA_SERVER="P2PHANDSHAKE"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        with open(os.path.join(self.run.directory, "test_mooncake_store.log"), "w", encoding="utf-8") as log:
            log.write(done.stdout)
        node.stop()
        check(done.returncode == 0 and "All tests passed" in done.stdout, f"test_mooncake_store.py ends with {done.returncode}")
        return Outcome(note=f"{done.stdout.count('operation passed')} of its tests passed")


def scenarios(run):
    engine = Sglang(run)
    return [
        Scenario("test_mooncake_store.py of the package", engine.package_test, 420),
        *(Scenario(f"hicache {kind} {layout}", lambda kind=kind, layout=layout: engine.layout(kind, layout)) for kind, layout in LAYOUTS),
        Scenario("hicache mha layer_first: SGLang refuses", engine.layer_first_mha),
        Scenario("hicache: prefix of a longer prompt", engine.prefix),
        Scenario("hicache: another process reads", engine.other_process),
        Scenario("hicache: two ranks", engine.ranks, 600),
        Scenario("hicache: groups", engine.groups),
        Scenario("hicache: memory of the engine", engine.embedded),
        *(Scenario(f"hicache standalone {kind}", lambda kind=kind: engine.standalone(kind)) for kind in ("mha", "mla")),
        Scenario("linker", engine.linker_alone),
        Scenario("linker: another process reads", engine.linker_processes),
        Scenario("no node: hicache", lambda: engine.no_node(HICACHE)),
        Scenario("no node: linker", lambda: engine.no_node(LINKER)),
        Scenario("restart of the node", engine.restart, 900),
        *(Scenario(f"kill -9 {actor}", lambda actor=actor: engine.killed(actor)) for actor in kills.ACTORS),
        Scenario("kill -9 of the whole node", engine.master_killed, 600),
        *sglang_native.scenarios(run),
    ]
