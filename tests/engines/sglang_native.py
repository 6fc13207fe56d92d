"""SGLang's host pools, HiCacheController and unified cache, unmodified, on the back ends of the package sluice: bytes are right, whatever
the layout, the number of ranks and the state of the node."""

import os
import signal
import time

import kills
from harness import HERE, Node, Outcome, Scenario, Table, Worker, check, wait_until
from reasons import Failed
from things import SharedThings
from turns import SECONDS, Turns

WORKER = os.path.join(HERE, "sglang_native_worker.py")
PAGE, PAGES = 64, 16
LAYOUTS = (("mha", "layer_first"), ("mha", "page_first"), ("mha", "page_first_direct"), ("mha", "page_head"),
           ("mla", "layer_first"), ("mla", "page_first"), ("mla", "page_first_direct"))
HEADS = 4  # heads of the model
WORK_SECONDS = 6
CALL_SECONDS = 10  # a batch when the node does not answer: its deadline is 2 s
HICACHE = {"mode": "hicache", "kind": "mha", "layout": "page_first", "heads": HEADS}
LINKER = {"mode": "linker"}
TOLD, SILENT, TURNS, SLOT_S = 4, 1, 5, 4.0
# Sessions of 5.2 MiB; a turn and the other prompts after it take nearly all of memory.
TURNS_BYTES, TURNS_OTHERS = 24 << 20, 3
SPEED_PAGES, SPEED_BYTES = 64, (256 << 10, 2 << 20)


class Native(SharedThings):
    script, name, start_seconds = WORKER, "sglang-native", 240
    settings = {"HF_HUB_OFFLINE": "1", "SGLANG_LOG_LEVEL": "info"}

    def worker_start(self, node, **told):
        variables = {**node.client_variables(), **self.settings}
        variables["PYTHONPATH"] = self.run.sluice_package() + os.pathsep + variables["PYTHONPATH"]
        worker = Worker(self.run, self.script, self.name, self.run.variables(**variables), {"master": node.address, "node": {}, **told})
        worker.answer(self.start_seconds)
        return worker

    def worker(self, name="first", **told):
        return self.shared(name, lambda: self.worker_start(self.node(), **{**HICACHE, **told}))

    def linker(self):
        return self.shared("linker", lambda: self.worker_start(self.node(), **LINKER))

    def stored(self, worker, seed, pages=PAGES, objects=None):
        answer = worker.ask(do="write", seed=seed, pages=pages)
        check(answer["tokens"] == pages * PAGE, f"SGLang calls {answer['tokens']} of {pages * PAGE} tokens stored")
        check(objects is None or answer["counted"] == objects, f"{answer['counted']} pages are counted as stored, not {objects}")

    def hit(self, worker, seed, pages=PAGES):
        """All pages are found and read, with the bytes that were stored."""
        answer = worker.ask(do="read", seed=seed, pages=pages)
        check(answer["right"], "other bytes than were stored")
        check(answer["found"] == answer["tokens"] == pages * PAGE, f"only {answer} of {pages} pages")
        return Outcome(answer["tokens"], pages * PAGE)

    def missed(self, worker, seed):
        answer = worker.ask(do="read", seed=seed, pages=PAGES)
        check(answer["found"] == answer["tokens"] == 0, f"a hit for what was not stored: {answer}")
        return Outcome(0, PAGES * PAGE)

    @staticmethod
    def sum(outcomes):
        return Outcome(sum(one.hits for one in outcomes), sum(one.queried for one in outcomes))

    def alone(self, **told):
        """Starts a worker for this scenario only."""
        return self.worker_start(self.node(), **{**HICACHE, **told})

    @staticmethod
    def end(*workers):
        for worker in workers:
            worker.stop()

    # ---- HiCache ----

    def layout(self, kind, layout):
        worker = self.alone(kind=kind, layout=layout, extra={"extra_backend_tag": f"{kind}-{layout}"})
        self.missed(worker, 1)
        self.stored(worker, 1, objects=PAGES)
        self.hit(worker, 1)
        self.stored(worker, 1, objects=0)  # no page is written twice
        outcome = self.hit(worker, 1)
        self.end(worker)
        return outcome

    def orders(self, kind):
        """A page's bytes have one order, layer by layer and page by page: one layout reads what another stored."""
        both = [self.alone(kind=kind, layout=layout, extra={"extra_backend_tag": "orders"}) for layout in ("layer_first", "page_first_direct")]
        self.stored(both[0], 2)
        self.stored(both[1], 3)
        outcome = self.sum([self.hit(both[1], 2), self.hit(both[0], 3)])
        self.end(*both)
        return outcome

    def splits(self, layout):
        """tp_lcm_size 2: two ranks read what one stored, and one reads what both stored."""
        extra = {"extra_backend_tag": f"splits-{layout}", "tp_lcm_size": 2}
        one = self.alone(layout=layout, extra=extra)
        two = [self.alone(layout=layout, extra=extra, heads=HEADS // 2, ranks=2, rank=rank) for rank in (0, 1)]
        self.stored(one, 4)
        outcomes = [self.hit(rank, 4) for rank in two]
        self.stored(two[0], 5)
        self.missed(one, 5)
        self.stored(two[1], 5)
        outcome = self.sum([*outcomes, self.hit(one, 5)])
        self.end(one, *two)
        return outcome

    def ranks(self):
        """Two ranks: MHA has other heads on each; MLA has the same bytes, which are stored once for both."""
        mha = [self.alone(heads=HEADS // 2, ranks=2, rank=rank, extra={"extra_backend_tag": "ranks"}) for rank in (0, 1)]
        self.stored(mha[0], 6)
        self.missed(mha[1], 6)
        self.stored(mha[1], 6)
        outcomes = [self.hit(worker, 6) for worker in mha]
        self.end(*mha)
        mla = [self.alone(kind="mla", ranks=2, rank=rank, extra={"extra_backend_tag": "ranks"}) for rank in (0, 1)]
        keys = self.node().settled()
        self.stored(mla[0], 6)
        check(self.node().settled() == keys + PAGES, "MLA pages are not stored once")
        outcomes += [self.hit(worker, 6) for worker in mla]
        self.end(*mla)
        return self.sum(outcomes)

    def other_process(self):
        self.stored(self.worker(), 7)
        return self.hit(self.worker("second"), 7)

    def prefix(self):
        """Of a longer prompt the stored part is read."""
        self.stored(self.worker(), 8, 8)
        answer = self.worker().ask(do="read", seed=8, pages=PAGES)
        check(answer["found"] == answer["tokens"] == 8 * PAGE and answer["right"], f"{answer}")
        return Outcome(answer["tokens"], PAGES * PAGE)

    def others(self):
        """Another model, another tag, other heads: pages of the first are no hits."""
        self.stored(self.worker(), 9)
        told = ({"extra": {"model": "another"}}, {"extra": {"extra_backend_tag": "another"}}, {"heads": 2}, {"layout": "page_head"})
        outcomes = []
        for more in told:
            worker = self.alone(**more)
            outcomes.append(self.missed(worker, 9))
            self.end(worker)
        return self.sum(outcomes)

    def tensors(self):
        """Without interface_v1 SGLang copies pages through tensors. The values are the same ones."""
        worker = self.alone(v1=0)
        self.stored(worker, 10)
        self.stored(self.worker(), 11)
        outcome = self.sum([self.hit(worker, 10), self.hit(self.worker(), 10), self.hit(worker, 11)])
        self.end(worker)
        return outcome

    def hybrid(self, layout):
        """Index and latent cache are stored for all pages, a state of linear attention only at the end of a prefix."""
        worker = self.alone(mode="hybrid", layout=layout, extra={"extra_backend_tag": f"hybrid-{layout}"})
        check(worker.ask(do="read", seed=1, pages=8)["lengths"] == [], "a hit for what was not stored")
        told = worker.ask(do="write", seed=1, pages=8, states=[2, 5])
        check(told["stored"] == {"kv": 8, "indexer": 8, "mamba": 2}, f"{told}")
        for pages, lengths in ((8, [2, 5]), (4, [2]), (1, [])):
            got = worker.ask(do="read", seed=1, pages=pages)
            want = lengths[-1] if lengths else 0
            check(got["right"] and got["lengths"] == lengths and got["came"] == want, f"of {pages} pages: {got}")
        worker.ask(do="write", seed=2, pages=8, states=[])
        check(worker.ask(do="read", seed=2, pages=8)["lengths"] == [], "a hit without a state")
        worker.ask(do="clear")
        check(worker.ask(do="read", seed=1, pages=8)["lengths"] == [], "a hit for what was removed")
        self.end(worker)
        return Outcome(7 * PAGE, 12 * PAGE)

    # ---- the linker ----

    def linker_alone(self):
        self.missed(self.linker(), 30)
        self.stored(self.linker(), 30)
        return self.hit(self.linker(), 30)

    def linker_processes(self):
        self.stored(self.linker(), 31)
        other = self.worker_start(self.node(), **LINKER)
        outcome = self.hit(other, 31)
        self.end(other)
        return outcome

    def linker_sessions(self):
        """SGLang names the session that it offloads for, and a framework announces pauses: these sessions' pages are in memory in time."""
        node = Node(self.run, memory_bytes=TURNS_BYTES, disk_bytes=1 << 30)
        worker = self.worker_start(node, **LINKER)
        outcomes = []

        def take(session, turn, pause_s):
            if turn == 0:
                answer = worker.ask(do="write", seed=60 + session, pages=PAGES, session_id=f"chat {session}")
                check(answer["counted"] == PAGES, f"{answer}")
                wait_until(lambda: node.session(f"chat {session}"), 30, "the session is known")
            else:
                outcomes.append(self.hit(worker, 60 + session))
            if pause_s is not None:
                check(node.session(f"chat {session}", "--pause", f"{pause_s * 1000:.0f}ms"), "the session is not known")

        def others(number):
            for i in range(TURNS_OTHERS):
                worker.ask(do="write", seed=1000 + TURNS_OTHERS * number + i, pages=PAGES)
                node.flush()  # evicted values have to be on disk

        play = Turns(node, TOLD, SILENT, TURNS, SLOT_S, take, others)
        play.play()
        check(not node.session("chat 99"), "a session that was never named is known")
        self.end(worker)
        told = self.sum(outcomes)
        outcome = play.judge(told.hits, told.queried)
        node.stop()
        return outcome

    # ---- failures ----

    def refused(self, said, **told):
        try:
            self.alone(**told)
        except Failed as failure:
            check(said in str(failure), f"it fails otherwise: {failure}")
            return Outcome(note="SGLang does not start, and reports why")
        raise Failed("SGLang starts")

    def no_node(self, mode):
        return self.refused("UnreachableError", **{**mode, "extra": {"settings": {"runtime_dir": os.path.join(self.run.directory, "none")}}})

    def stopped(self):
        """Without the node nothing is stored, and stored pages are hits or misses, each within its deadline. Then everything works again."""
        node, workers = Node(self.run), ()
        workers = [self.worker_start(node, **mode) for mode in (HICACHE, LINKER)]
        for worker in workers:
            self.stored(worker, 20)
        node.stop()
        for worker in workers:
            for command in ({"do": "read", "seed": 20}, {"do": "write", "seed": 21}, {"do": "read", "seed": 21}):
                began = time.monotonic()
                answer = worker.ask(**command, pages=PAGES)
                check(time.monotonic() - began < CALL_SECONDS, f"{command} took {time.monotonic() - began:.1f} s")
                check(answer.get("right", True), f"other bytes than were stored: {answer}")
                check(command["seed"] == 20 or answer["tokens"] == 0, f"{command} without a node: {answer}")
            with open(worker.log, encoding="utf-8") as log:
                said = [line for line in log if "storing fails" in line]
            check(len(said) == 1, f"a failure is logged {len(said)} times")
        node.start()
        began = time.monotonic()
        for worker in workers:  # after a failure the node is not asked for `retry`
            wait_until(lambda worker=worker: worker.ask(do="write", seed=22, pages=PAGES)["tokens"], CALL_SECONDS, "pages are stored again")
        seconds = time.monotonic() - began
        outcome = self.sum([self.hit(worker, 22) for worker in workers])
        self.end(*workers)
        node.stop()
        return Outcome(outcome.hits, outcome.queried, f"stores again {seconds:.1f} s after the start")

    def disk(self):
        """The node is stopped and starts again with its disk."""
        node = self.node()
        workers = (self.worker(), self.linker())
        for worker in workers:
            self.stored(worker, 23)
        node.flush()
        node.stop()
        node.start()
        return self.sum([self.hit(worker, 23) for worker in workers])

    def killed(self, actor):
        """SIGKILL for an actor, again and again, while both store and read: bytes are never wrong, and then all is served."""
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

    def engine_killed(self):
        """SIGKILL for engines that store: pages that another one finds are whole."""
        outcomes = []
        for seed, mode in ((40, HICACHE), (50, LINKER)):
            dying, other = self.worker_start(self.node(), **mode), self.worker() if mode is HICACHE else self.linker()
            dying.tell(do="work", seeds=list(range(seed, seed + 8)), pages=PAGES, seconds=30)
            time.sleep(1)
            os.kill(dying.process.pid, signal.SIGKILL)
            for number in range(seed, seed + 8):
                answer = other.ask(do="read", seed=number, pages=PAGES)
                check(answer["right"], f"other bytes than were stored: {answer}")
                outcomes.append(Outcome(answer["tokens"], PAGES * PAGE))
                self.stored(other, number)  # no engine has it any more
                self.hit(other, number)
        return self.sum(outcomes)

    # ---- figures ----

    def speed(self):
        """batch_set_v1 and batch_get_v1 of 64 pages, compared with a plain copy of them and with SGLang's MooncakeStore on our wheel."""
        table = Table(f"SGLang HiCache, {SPEED_PAGES} pages a batch, page_first, medians",
                      ("page", "path", "set GB/s", "set pages/s", "get GB/s", "get pages/s", "set CPU s/GB", "get CPU s/GB"))
        for size in SPEED_BYTES:
            node = Node(self.run, memory_bytes=1 << 30)
            worker = self.worker_start(node, mode="speed", page_bytes=size, pages=SPEED_PAGES)
            for row in worker.ask(300, do="measure"):
                table.rows.append((f"{size >> 10} KiB", row.pop("path"), *(f"{value:.3g}" for value in row.values())))
            self.end(worker)
            node.stop()
        self.run.tables.append(table)
        return Outcome(note=f"{len(table.rows)} rows")


def scenarios(run):
    native = Native(run)
    mha = [layout for kind, layout in LAYOUTS if kind == "mha"]
    return [
        *(Scenario(f"native hicache {kind} {layout}", lambda kind=kind, layout=layout: native.layout(kind, layout)) for kind, layout in LAYOUTS),
        *(Scenario(f"native hicache {kind}: one order, two layouts", lambda kind=kind: native.orders(kind)) for kind in ("mha", "mla")),
        *(Scenario(f"native hicache {layout}: TP=1 and TP=2", lambda layout=layout: native.splits(layout)) for layout in mha),
        Scenario("native hicache: two ranks", native.ranks, 900),
        Scenario("native hicache: prefix of a longer prompt", native.prefix),
        Scenario("native hicache: another process reads", native.other_process),
        Scenario("native hicache: other models, other layouts", native.others, 900),
        Scenario("native hicache: pages through tensors", native.tensors),
        *(Scenario(f"native hybrid {layout}", lambda layout=layout: native.hybrid(layout)) for layout in ("page_first", "page_first_direct")),
        Scenario("native linker", native.linker_alone),
        Scenario("native linker: another process reads", native.linker_processes),
        Scenario("native linker: sessions", native.linker_sessions, SECONDS),
        *(Scenario(f"native {mode['mode']}: no node", lambda mode=mode: native.no_node(mode)) for mode in (HICACHE, LINKER)),
        Scenario("native: an unknown option", lambda: native.refused("timeuot: unknown setting", extra={"timeuot": 1})),
        Scenario("native: the node stops and starts", native.stopped, 900),
        Scenario("native: restart from disk", native.disk, 900),
        *(Scenario(f"native kill -9 {actor}", lambda actor=actor: native.killed(actor)) for actor in kills.ACTORS),
        Scenario("native kill -9 engine", native.engine_killed, 900),
        Scenario("native speed", native.speed, 900),
    ]
