"""vLLM in a container of its own on a node: namespaces of process numbers, IPC, network, mounts and users, with only the node's two
directories. It is set up as deploy/container says, with vLLM's tiered offloading and Sluice as secondary tier."""

import os
import shutil
import signal
import sys

import harness
from harness import GIB, HERE, ROOT, NativeNode, Outcome, Scenario, check, popen, wait_until
from reasons import Failed, Skipped
from vllm_engine import HIT_SHARE, KILL_PAUSE_S, KILLS, KILLS_MAX
from vllm_parts import Engine, prompts_make

sys.path.append(os.path.join(HERE, "..", "node"))
import containers_support as containers  # noqa: E402  how its own tests make such clients

PRIMARY_BYTES = 256 << 20  # vLLM's own tier: it dies with the engine
TIER = {"spec_name": "CpuTieringSpec", "spec_module_path": "vllm_cpu_tier", "cpu_bytes_to_use": PRIMARY_BYTES,
        "secondary_tiers": [{"type": "SluiceTier", "module_path": "sluice.vllm_tier"}]}
LOOP = 'ip link set lo up && exec "$@"'  # the network of a container has its own loopback
VICTIMS = KILLS
SETS = {"base": 4, **dict.fromkeys(VICTIMS, 4), "last": 4}  # prompts
LENGTH, BLOCK_TOKENS = 600, 32
# It holds less than one request batch, so that some of it is loaded from the node. A lost job ends at its deadline, 10 s.
SMALL = {**TIER, "cpu_bytes_to_use": 12 << 20}
ANSWERS_SECONDS = 60  # limit of answers while a process of the node is killed three times


def prompts_of(*names):
    return sum((prompts_make(f"apart {name}", SETS[name], LENGTH) for name in names), [])


class ApartNode(NativeNode):
    """The node as an engine of another container sees it. `image` has that container's files; the programs are those of this build."""

    connector = "tier"

    def __init__(self, run, **options):
        self.image = os.path.join(os.path.dirname(run.environment.directory), f"image-{os.getpid()}")
        super().__init__(run, **options)

    def program(self, name):
        return os.path.join(ROOT, "build", "release", "bin", name)

    def start(self):
        if not os.path.exists(self.program("sluice-registrar")):
            raise Skipped("no node was built (cmake --build --preset release)")
        self.master = popen([os.path.join(ROOT, "deploy", "sluice-node"), "start", "--foreground", "--ranks", "1"],
                            os.path.join(self.directory, "node.log"), {**self.variables, "SLUICE_BIN": self.program("")})
        wait_until(self.ready, 60, f"{self.name} is ready")

    def ready(self):
        if self.master.poll() is not None:
            raise Failed(f"sluice-node ended with {self.master.returncode} ({self.directory}/node.log)")
        return self.ctl("status", "--ready").returncode == 0

    def keys(self):
        return len(self.listed())

    def loaded_bytes(self):
        """Bytes loaded by all of its clients, also those of other users."""
        said = self.ctl("metrics")
        check(said.returncode == 0, f"sluicectl metrics: {said.stderr.strip()}")
        return sum(float(line.split()[-1]) for line in said.stdout.splitlines()
                   if line.startswith(("sluice_get_bytes_total", "sluice_load_bytes_total")))

    def prefix(self):
        return [*containers.apart(self.settings["SLUICE_RUNTIME_DIR"], os.path.dirname(self.settings["SLUICE_SHM_DIR"])), "sh", "-c", LOOP, "sh"]

    def client_variables(self):
        return {"SLUICE_INSTANCE": self.name, "SLUICE_RUNTIME_DIR": containers.HERE + "/run", "SLUICE_SHM_DIR": containers.HERE + "/shm/" + os.path.basename(self.settings["SLUICE_SHM_DIR"]),
                "PYTHONPATH": f"{os.path.join(self.image, 'sluice')}:{HERE}", "HOME": "/tmp", "TMPDIR": "/tmp", "VLLM_HOST_IP": "127.0.0.1",
                "GLOO_SOCKET_IFNAME": "lo"}

    def kill(self, name):
        """SIGKILL for the processes of an actor. Returns whether there was one."""
        pids = [pid for actor, pid in self.actors().items() if actor.split(".")[0] == name]
        killed = False
        for pid in filter(None, pids):
            try:
                os.kill(pid, signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                pass  # the actor is restarting
        return killed

    def clients(self):
        """Number of pin files of clients that live, or whose death is not yet noticed."""
        return [name for name in os.listdir(self.settings["SLUICE_SHM_DIR"]) if name.startswith("pins.client.")]

    def stop(self):
        super().stop()
        shutil.rmtree(self.image, ignore_errors=True)


class Apart:
    def __init__(self, run, other):
        self.run, self.other = run, other  # `other` has the model
        self.expected = None               # {set: tokens} of an engine without a connector, in no container

    def node(self):
        for path in (HERE, self.run.environment.directory, sys.executable):
            if path.startswith(("/tmp/", "/mnt/", "/dev/shm/")):
                raise Skipped(f"{path} is not seen in a container, which has a /tmp of its own")
        if not containers.can_be_apart():
            raise Skipped("no namespaces of users here (unshare)")
        node = ApartNode(self.run, disk_bytes=GIB)
        shutil.rmtree(node.image, ignore_errors=True)
        shutil.copytree(self.run.sluice_package(), os.path.join(node.image, "sluice"))
        shutil.copytree(self.other.model("llama"), os.path.join(node.image, "llama"))
        return node

    def engine(self, node, tier=None):
        return Engine(self.run, os.path.join(node.image, "llama"), node, extra=tier or TIER, prefix=node.prefix(), more={"block_size": BLOCK_TOKENS})

    def want(self):
        if self.expected is None:
            engine = Engine(self.run, self.other.model("llama"), more={"block_size": BLOCK_TOKENS})
            self.expected = {name: engine.generate(prompts_of(name))["tokens"] for name in SETS}
            engine.worker.stop()
        return self.expected

    def right(self, answer, *names):
        want = sum((self.want()[name] for name in names), [])
        differ = [at for at, tokens in enumerate(answer["tokens"]) if tokens != want[at]]
        check(not differ and len(want) == len(answer["tokens"]), f"other tokens than without a cache for prompts {differ} of {', '.join(names)}")

    def answered(self, engine, *names):
        answer = engine.generate(prompts_of(*names))
        self.right(answer, *names)
        return answer

    def hit(self, engine, *names):
        answer = self.answered(engine, *names)
        check(answer["hits"] >= HIT_SHARE * answer["queried"] > 0, f"only {answer['hits']} of {answer['queried']} tokens hit")
        return answer

    def restarted(self):
        """The next engine starts with nothing of the last one, except what the node has."""
        self.want()
        node = self.node()
        engine = self.engine(node)
        check(node.clients(), "the engine is no client of the node")
        cold = self.answered(engine, "base")
        check(cold["hits"] == 0, f"{cold['hits']} tokens hit in an empty node")
        keys = node.settled()
        check(keys > 0, "nothing was stored")
        engine.worker.stop()
        wait_until(lambda: not node.clients(), 20, "nothing is left of the engine")
        engine = self.engine(node)
        warm = self.hit(engine, "base")
        engine.worker.stop()
        node.stop()
        return Outcome(warm["hits"], warm["queried"], f"{keys} keys; cold {cold['seconds']:.2f} s, warm in another engine {warm['seconds']:.2f} s")

    def kill_while_it_answers(self, node, engine, victim):
        """Returns the number of kills and the seconds that the answers took."""
        engine.reset()
        engine.generate_start(prompts_of("base", victim))
        kills = 0
        for _ in range(KILLS_MAX):
            if not engine.worker.has_answer(0):
                kills += node.kill(victim)
                engine.worker.has_answer(KILL_PAUSE_S)
        answer = engine.generate_end()
        self.right(answer, "base", victim)
        check(kills > 0, f"all was answered before {victim} was killed")
        check(answer["seconds"] < ANSWERS_SECONDS * harness.SLOWDOWN, f"{victim} killed: the answers took {answer['seconds']:.1f} s")
        wait_until(lambda: node.ready() and node.clients(), 60, f"the node serves the engine again after the death of {victim}")
        self.loads(node, engine, victim)
        return kills, answer["seconds"]

    def loads(self, node, engine, victim):
        """Also after each death the engine, whose own cache was cleared, has hits from the node. Keys that failed at the death are not
        asked for again for a few seconds."""
        before = node.loaded_bytes()

        def hit():
            engine.reset()
            answer = self.answered(engine, "base")
            return answer["hits"] >= HIT_SHARE * answer["queried"] > 0

        wait_until(hit, 60, f"the engine has hits again after the death of {victim}")
        check(node.loaded_bytes() > before, f"nothing was loaded from the node after the death of {victim}")

    def killed(self):
        """SIGKILL for each actor while the engine answers, and then for the engine."""
        self.want()
        node = self.node()
        engine = self.engine(node, SMALL)
        self.answered(engine, "base")
        node.settled()
        found = {victim: self.kill_while_it_answers(node, engine, victim) for victim in VICTIMS}
        before = node.keys()
        engine.generate_start(prompts_of("last"))
        wait_until(lambda: node.keys() > before or engine.worker.has_answer(0), 60, "the engine stores")
        engine.kill()
        wait_until(lambda: not node.clients(), 20, "nothing is left of the killed engine")
        engine = self.engine(node)
        hit = self.hit(engine, "base")
        self.answered(engine, *VICTIMS, "last")
        engine.worker.stop()
        node.stop()
        return Outcome(hit["hits"], hit["queried"],
                       ", ".join(f"{victim} {kills} times, {seconds:.1f} s" for victim, (kills, seconds) in found.items()))


def scenarios(run, vllm):
    apart = Apart(run, vllm)
    return [Scenario("apart: the engine starts again", apart.restarted, 1200), Scenario("apart: kills on both sides", apart.killed, 1800)]
