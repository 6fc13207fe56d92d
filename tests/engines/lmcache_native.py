"""Sluice's own back ends for LMCache and for vLLM's tiered offloading, in real LMCache and vLLM: the plug-in of LMCache's engine, the
connector of its multi-process server, and the secondary tier. Every byte that is read is compared."""

import collections
import json
import os
import statistics

import kills
import lmcache_package
from harness import HERE, NativeNode, Node, Outcome, Scenario, Table, Worker, check, progress, wait_until
from lmcache_engine import COUNT, VARIABLES, WORK_SECONDS, Lmcache
from turns import SECONDS, Turns

TIER_WORKER = os.path.join(HERE, "vllm_tier_worker.py")
SPEED_CHUNKS, SPEED_COUNT, TOKEN_BYTES = (128, 2048), 32768, 2048  # tokens of a chunk, of a prompt: 256 KiB and 4 MiB, 64 MiB
SPEED_ROUNDS, SPEED_TURNS, SPEED_GIB = 7, 3, 2  # all stored values fit
TIER_CHUNKS = 64       # chunks of 64 KiB in vLLM's own memory
TIER_COUNT = 32
TIMEOUT = 5            # seconds that a job may take: the most that a failure costs
SCHEDULER_SECONDS = 0.25  # the limit of one call in a scheduler, for a busy machine
ENGINES_KILLED = 6
# Sessions of 32 chunks of 128 KiB, 20 MiB together; a turn and the other prompts after it are as large as memory.
TOLD, SILENT, TURNS, SLOT_S = 4, 1, 5, 4.0
TURNS_BYTES, TURNS_COUNT, TURNS_CHUNK, TURNS_OTHERS = 16 << 20, 2048, 64, 3
PLUGIN = {"storage_plugin.sluice.module_path": "sluice.lmcache", "storage_plugin.sluice.class_name": "SluiceBackend",
          "sluice.timeout": TIMEOUT}


class Native(Lmcache):
    name = "lmcache-native"

    def node(self):
        return self.shared("node", lambda: self.node_make(disk_bytes=2 << 30))

    def node_make(self, **options):
        return NativeNode(self.run, **options)

    def worker_start(self, node, **told):
        return super().worker_start(node, **{"native": {"timeout": TIMEOUT}, **told})

    # ---- the engine's plug-in ----

    def kept(self):
        """LMCache's own cache is on: it keeps copies and pins nothing in the node."""
        self.worker().ask(do="store", seed=50, count=COUNT)
        worker = self.worker("hot", hot=True)
        outcome = self.hit(worker, 50)
        again = worker.ask(do="retrieve", seed=50, count=COUNT)
        check(again["found"] == COUNT and again["right"], f"a second time: {again}")
        return outcome

    def async_loading(self):
        worker = self.worker("async", asynchronous=True)
        worker.ask(do="store", seed=51, count=COUNT)
        answer = worker.ask(do="prefetch", seed=51, count=COUNT)
        check(answer["found"] == COUNT and answer["right"], f"asynchronous loading: {answer}")
        return Outcome(answer["found"], COUNT)

    def pinned(self):
        """A pinned value is read after its removal; an unpinned one is not."""
        worker = self.worker()
        worker.ask(do="store", seed=52, count=COUNT)
        answer = worker.ask(do="pinned", seed=52, count=COUNT)
        check(answer["looked"] == COUNT and answer["found"] == COUNT and answer["right"], f"pinned and removed: {answer}")
        check(answer["after"] == 0, f"removed and unpinned: {answer}")
        return Outcome(answer["found"], COUNT)

    def from_disk(self):
        """After a restart the node has its values only on disk."""
        node, worker = self.node(), self.worker()
        worker.ask(do="store", seed=53, count=COUNT)
        node.settled()
        node.flush()
        node.stop()
        node.start()
        wait_until(lambda: worker.ask(do="lookup", seed=53, count=COUNT)["found"] == COUNT, 60, "all is there again")
        return self.hit(worker, 53)

    def hints(self):
        """Hints of requests decide which sessions' chunks are in memory again before their turn."""
        node = self.node_make(memory_bytes=TURNS_BYTES, disk_bytes=1 << 30)
        worker = self.worker_start(node, chunk=TURNS_CHUNK)
        found = collections.Counter()

        def configs(number, **more):
            return {"lmcache.sluice.session_id": f"chat {number}",
                    **{f"lmcache.sluice.{name}": value for name, value in more.items() if value is not None}}

        def take(session, turn, pause_s):
            told = configs(session, pause=pause_s, session="ends" if turn + 1 == TURNS and session == 0 else None)
            if turn == 0:
                worker.ask(do="store", seed=90 + session, count=TURNS_COUNT, configs=told)
                return
            answer = worker.ask(do="retrieve", seed=90 + session, count=TURNS_COUNT, configs=told)
            check(answer["right"] and answer["found"] == TURNS_COUNT, f"turn {turn} of session {session}: {answer}")
            found.update(hits=answer["loaded"], queried=answer["asked"])

        def others(number):
            for i in range(TURNS_OTHERS):
                worker.ask(do="store", seed=1000 + TURNS_OTHERS * number + i, count=TURNS_COUNT)
                node.flush()  # evicted values have to be on disk

        play = Turns(node, TOLD, SILENT, TURNS, SLOT_S, take, others)
        play.play()
        known = [session for session in range(TOLD + SILENT) if node.session(f"chat {session}")]
        check(known == list(range(1, TOLD + SILENT)), f"at the end sessions {known} are known")
        worker.ask(do="store", seed=89, count=COUNT, configs={"lmcache.sluice.sesion": "ends"})  # an unknown hint does not prevent the store
        check(worker.ask(do="retrieve", seed=89, count=COUNT)["right"], "other bytes")
        worker.stop()
        outcome = play.judge(**found)
        node.stop()
        return outcome

    def late_node(self):
        """LMCache starts before the node: first nothing is found, then everything."""
        node = self.node_make(contribute=False)
        node.stop()
        worker = self.worker_start(node)
        for what in ("lookup", "retrieve"):
            answer = worker.ask(do=what, seed=54, count=COUNT)
            check(answer["found"] == 0, f"a hit without a node: {what} says {answer}")
        node.contribute = True
        node.start()

        def stored():
            worker.ask(do="store", seed=54, count=COUNT, wait=False)
            return worker.ask(do="lookup", seed=54, count=COUNT)["found"] == COUNT

        wait_until(stored, 60, "the node was found")
        outcome = self.hit(worker, 54)
        worker.stop()
        node.stop()
        return outcome

    def engine_killed(self):
        """SIGKILL for an engine that stores: another one finds only right bytes, and the killed one's pins are released."""
        for turn in range(ENGINES_KILLED):
            worker = self.worker_start(self.node())
            worker.tell(do="work", seeds=[60, 61, 62 + turn], count=COUNT, seconds=WORK_SECONDS)
            worker.has_answer(0.4 + 0.3 * turn)
            worker.process.kill()
        self.worker().tell(do="work", seeds=list(range(60, 62 + ENGINES_KILLED)), count=COUNT, seconds=WORK_SECONDS)
        answer = self.worker().answer()
        check(answer["wrong"] == 0 and answer["found"] > 0, f"after an engine was killed: {answer}")
        return Outcome(note=f"{answer['rounds']} rounds, {answer['found']} tokens then")

    def basic_check(self):
        """LMCache's own test of a storage manager, with reads one by one."""
        path = os.path.join(self.run.directory, "lmcache-native.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"chunk_size": 256, "local_cpu": False, "max_local_cpu_size": 0.1, "storage_plugins": ["sluice"],
                       "extra_config": PLUGIN}, file)
        tests = lmcache_package.Package(self.run, self.node)
        rows, _ = tests.check_mode("test_storage_manager", f"--settle-time={lmcache_package.SETTLE_SECONDS}", LMCACHE_CONFIG_FILE=path)
        check(rows and all(passed == of for passed, of in rows.values()), f"{rows}")
        return Outcome(note=", ".join(rows))

    # ---- the multi-process server's connector ----

    @staticmethod
    def adapter():
        return json.dumps({"type": "native_plugin", "module_path": "sluice.lmcache_l2", "class_name": "Connector",
                           "adapter_params": {"timeout": TIMEOUT, "threads": 2}})

    def mp_start(self, node):
        server = ["--l1-size-gb", "0.125", "--no-l1-use-lazy", "--eviction-policy", "LRU", "--l2-adapter", self.adapter()]
        worker = Worker(self.run, os.path.join(HERE, "lmcache_mp_worker.py"), name="lmcache-native-mp",
                        environment=self.run.variables(**node.client_variables(), **VARIABLES), arguments={"server": server})
        worker.answer(180)
        return worker

    def mp_check(self):
        tests = lmcache_package.Package(self.run, self.node)
        rows, _ = tests.check_mode("test_l2_adapter", "--l2-adapter", self.adapter())
        check(len(rows) == 4 and all(passed == of for passed, of in rows.values()), f"{rows}")
        return Outcome(note=", ".join(rows))

    # ---- vLLM's secondary tier ----

    def tier(self, name="tier", **options):
        return self.shared(name, lambda: self.tier_start(self.node(), **options))

    def tier_start(self, node, **options):
        worker = Worker(self.run, TIER_WORKER, name="vllm-tier", environment=self.run.variables(**node.client_variables(), **VARIABLES),
                        arguments={"chunks": TIER_CHUNKS, "tier": {"timeout": TIMEOUT, **options}})
        worker.answer(180)
        return worker

    @staticmethod
    def tier_hit(worker, seed):
        answer = worker.ask(do="load", seed=seed, count=TIER_COUNT)
        check(answer["right"] and answer["found"] == TIER_COUNT, f"{answer} of {TIER_COUNT} chunks")
        return Outcome(answer["found"], TIER_COUNT)

    @staticmethod
    def tier_never_waited(worker):
        seconds = worker.ask(do="slowest")["seconds"]
        check(seconds < SCHEDULER_SECONDS, f"a call held the scheduler up for {seconds:.3f} s")
        return f"the longest call took {seconds * 1000:.1f} ms"

    def tier_alone(self):
        answer = self.tier().ask(do="load", seed=70, count=TIER_COUNT)
        check(answer["found"] == 0, f"an empty node: {answer}")
        self.tier().ask(do="store", seed=70, count=TIER_COUNT)
        more = self.tier().ask(do="load", seed=70, count=TIER_COUNT + 1)
        check(more["found"] == TIER_COUNT and more["right"], f"a longer prompt: {more}")
        outcome = self.tier_hit(self.tier(), 70)
        return Outcome(outcome.hits, outcome.queried, self.tier_never_waited(self.tier()))

    def tier_processes(self):
        self.tier().ask(do="store", seed=71, count=TIER_COUNT)
        return self.tier_hit(self.tier("other tier"), 71)

    def tier_killed(self, actor):
        node, worker = self.node(), self.tier()
        worker.ask(do="slowest")
        seeds = list(range(80 + 10 * kills.ACTORS.index(actor), 84 + 10 * kills.ACTORS.index(actor)))
        worker.tell(do="work", seeds=seeds, count=TIER_COUNT, seconds=WORK_SECONDS)
        count, answer = kills.while_it_works(node, actor, worker)
        check(answer["wrong"] == 0, f"other bytes in {answer['wrong']} of {answer['rounds']} rounds")
        said = self.tier_never_waited(worker)

        def served():
            worker.ask(do="store", seed=seeds[0], count=TIER_COUNT)
            return worker.ask(do="load", seed=seeds[0], count=TIER_COUNT)["found"] == TIER_COUNT

        wait_until(served, 30, "all is served again")
        outcome = self.tier_hit(worker, seeds[0])
        return Outcome(outcome.hits, outcome.queried, f"{count} kills, {answer['rounds']} rounds, {answer['found']} chunks then; {said}")

    def tier_no_node(self):
        node = self.node_make(contribute=False)
        node.stop()
        worker = self.tier_start(node)
        worker.ask(do="store", seed=79, count=TIER_COUNT)
        answer = worker.ask(do="load", seed=79, count=TIER_COUNT)
        check(answer["found"] == 0, f"a hit without a node: {answer}")
        note = self.tier_never_waited(worker)
        worker.stop()
        return Outcome(0, TIER_COUNT, note)

    # ---- figures ----

    def speed(self):
        """The plug-in and the drop-in connector, on one node, in turns."""
        table = Table("LMCache's storage manager: GB/s (CPU seconds of the engine's process a GB)",
                      ("chunk", "side", "put", "get, handed over", "get, copied on", "memcpy"))
        for tokens in SPEED_CHUNKS:
            node = Node(self.run, memory_bytes=SPEED_GIB << 30)  # the connector removes no keys
            sides = {"native": {**node.settings, "PYTHONPATH": self.run.sluice_package()}, "drop-in": node.client_variables()}
            answers = {name: [] for name in sides}
            workers = {name: self.speed_worker(node, variables, tokens, name) for name, variables in sides.items()}
            for _ in range(SPEED_TURNS):
                for name, worker in workers.items():
                    answers[name].append(worker.ask(do="speed", rounds=SPEED_ROUNDS, count=SPEED_COUNT))
            for name, several in answers.items():
                table.rows.append((f"{tokens * TOKEN_BYTES >> 10} KiB", name, *(
                    f"{statistics.median(one[what][0] for one in several):.2f} ({statistics.median(one[what][1] for one in several):.3f})"
                    for what in ("put", "handed", "get", "memcpy"))))
            for thing in (*workers.values(), node):
                thing.stop()
        self.run.tables.append(table)
        return Outcome(note="figures below")

    def speed_worker(self, node, variables, tokens, name):
        told = {"native": {"timeout": TIMEOUT}} if name == "native" else {"master": node.address}
        worker = Worker(self.run, self.script, f"speed-{name}", self.run.variables(**variables, **self.settings),
                        {"chunk": tokens, "gib": 0.5, **told})
        worker.answer(self.start_seconds)
        return worker

    # ---- all of them ----

    def node_dead(self):
        """The whole node dies under all three and starts again: calls end, and then all values are found."""
        node, engine, tier = self.node(), self.worker(), self.tier()
        engine.ask(do="store", seed=55, count=COUNT)
        tier.ask(do="store", seed=72, count=TIER_COUNT)
        node.settled()
        node.flush()
        for process in (node.client, node.master):
            progress(f"SIGKILL for {process.args[0]}")
            process.kill()
            process.wait(10)
        check(engine.ask(do="retrieve", seed=55, count=COUNT)["right"], "other bytes of a dead node")
        check(tier.ask(do="load", seed=72, count=TIER_COUNT)["right"], "other bytes of a dead node")
        engine.ask(do="store", seed=56, count=COUNT, wait=False)
        node.stop()
        node.start()
        wait_until(lambda: engine.ask(do="lookup", seed=55, count=COUNT)["found"] == COUNT, 60, "all is there again")
        outcome = self.hit(engine, 55)
        wait_until(lambda: tier.ask(do="load", seed=72, count=TIER_COUNT)["found"] == TIER_COUNT, 60, "the tier finds all again")
        return outcome


def scenarios(run):
    native = Native(run)
    rows = [
        ("empty node", native.cold), ("stored and read", native.warm), ("prefix of a longer prompt", native.prefix),
        ("another process reads", native.other_process), ("two ranks", native.ranks), ("short last chunk", native.unfull),
        ("with LMCache's own cache", native.kept), ("asynchronous loading", native.async_loading), ("pinned by a lookup", native.pinned),
        ("only from disk", native.from_disk), ("basic_check", native.basic_check),
        ("multi-process: stored and read", native.mp_alone), ("multi-process: another process reads", native.mp_processes),
        ("multi-process: kill -9 registrar", native.mp_killed), ("multi-process: basic_check", native.mp_check),
        ("tier: stored and read", native.tier_alone), ("tier: another process reads", native.tier_processes),
        ("no node: no hit", native.no_node), ("the node starts later", native.late_node), ("tier: no node", native.tier_no_node),
        ("restart of the node", native.restart), ("kill -9 of an engine", native.engine_killed),
        *((f"kill -9 {actor}", lambda actor=actor: native.killed(actor)) for actor in kills.ACTORS),
        *((f"tier: kill -9 {actor}", lambda actor=actor: native.tier_killed(actor)) for actor in kills.ACTORS),
        ("kill -9 of the whole node", native.node_dead), ("speed", native.speed),
    ]
    return [*(Scenario(f"native {name}", action) for name, action in rows), Scenario("native hints of requests", native.hints, SECONDS)]
