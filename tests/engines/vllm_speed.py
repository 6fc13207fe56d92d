"""The speed of vLLM without a connector, on Mooncake's wheel, on Sluice's, and with Sluice's own connector, on the same prompts."""

import os
import statistics
import sys

from harness import GIB, HERE, Node, Outcome, Scenario, Table, check, end, free_port, popen, wait_until
from reasons import Failed, Skipped
from vllm_parts import Engine, prompts_make

sys.path.append(os.path.join(HERE, "..", "bench", "peers"))
import sides as peers  # noqa: E402  how Mooncake's wheel is run there

SEGMENT_BYTES = 2 * GIB
ROUNDS = 5                    # prompts of each length
LENGTHS = (2000, 4000, 8000)
BATCH, BATCH_LENGTH = 16, 1500
SLOWEST = 4                   # requests of the first seconds that are listed with their time
FIRST_SECONDS, FIRST_LENGTH, FIRST_PROMPTS = 15, 500, 1500


class MooncakeNode:
    """Mooncake's own master. The settings that make its client fast are those of tests/bench/peers."""

    def __init__(self, run):
        self.target, self.libraries = run.mooncake_wheel()
        self.package = os.path.join(self.target, "mooncake")
        self.libraries_complete(run)
        self.log = os.path.join(run.directory, "mooncake-master.log")
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        program = os.path.join(self.package, "mooncake_master")
        os.chmod(program, 0o755)
        self.master = popen([program, f"--port={self.port}", "--rpc_address=127.0.0.1", f"--metrics_port={free_port()}",
                             "--metrics_host=127.0.0.1", "--enable_metric_reporting=false", "--minloglevel=2"],
                            self.log, run.variables(LD_LIBRARY_PATH=self.libraries))
        run.started_add(self)
        wait_until(self.listens, 30, "mooncake_master listens")

    def libraries_complete(self, run):
        """Installs shared libraries that the wheel takes from the system, as root."""
        try:
            asked = peers.run(["ldd", *(os.path.join(self.package, name) for name in ("store.so", "mooncake_master"))],
                              env=run.variables(LD_LIBRARY_PATH=self.libraries))
            lacks = {line.split()[0] for line in asked.splitlines() if line.endswith("not found")}
            unknown = sorted(lacks - peers.PACKAGE_OF.keys())
            if unknown:
                raise peers.Missing(f"it lacks {', '.join(unknown)}")
            if lacks:
                peers.apt_install(sorted(peers.PACKAGE_OF[name] for name in lacks), "its wheel")
        except peers.Missing as reason:
            raise Skipped(f"Mooncake's wheel: {reason}") from reason

    def listens(self):
        if self.master.poll() is not None:
            raise Failed(f"Mooncake's master ended with {self.master.returncode}")
        with peers.socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def client_variables(self):
        return {"PYTHONPATH": self.target, "LD_LIBRARY_PATH": self.libraries, "MC_STORE_MEMCPY": "1",
                "MC_STORE_CLIENT_METRIC": "0", "MC_LOG_LEVEL": "ERROR", "GLOG_minloglevel": "2", "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65536",
                "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "65536"}

    def stop(self):
        end(self.master)


class Speed:
    def __init__(self, run, vllm):
        self.run, self.vllm = run, vllm
        self.table = Table(f"vLLM: ms to the first token (median of {ROUNDS}); thousand tokens/s of {BATCH} prompts "
                           f"of {BATCH_LENGTH}; ms of a request in the first {FIRST_SECONDS} s",
                           ("store", *(f"{length} {what}" for length in LENGTHS for what in ("cold", "warm")),
                            "kilotokens/s cold", "warm", "first seconds p50", "p99"))

    def side(self, title, make):
        def measured():
            if self.table not in self.run.tables:
                self.run.stop()  # stops what earlier scenarios shared: nothing else runs while this measures
                self.run.tables.append(self.table)
            node = make()
            row, outcome = self.measure(node)
            self.table.rows.append((title, *row))
            self.run.stop()
            return outcome

        return measured

    def none(self):
        return None

    def mooncake(self):
        return MooncakeNode(self.run)

    def sluice(self):
        return Node(self.run, memory_bytes=SEGMENT_BYTES, contribute=False)

    def native(self):
        import vllm_native

        return vllm_native.NativeNode(self.run, memory_bytes=SEGMENT_BYTES)

    def measure(self, node):
        segment_bytes = SEGMENT_BYTES if node and not hasattr(node, "connector") else 0  # the native one has a standalone store
        engine = Engine(self.run, self.vllm.model("llama"), node, segment_bytes=segment_bytes, length=LENGTHS[-1] + 64)
        prompts = prompts_make("first seconds", FIRST_PROMPTS, FIRST_LENGTH)
        first = engine.worker.ask(120, do="first_seconds", prompts=prompts, lasting_s=FIRST_SECONDS)
        check(not first["all"], "the prompts did not last: more of them are needed")
        hits = queried = 0
        row = []
        for length in LENGTHS:
            prompts = prompts_make(f"speed {length}", ROUNDS, length)
            cold = engine.generate(prompts, tokens=1, together=False)
            if node is not None:
                self.quiet(engine)
            warm = engine.generate(prompts, tokens=1, together=False) if node is not None else None
            row += [milliseconds(cold), milliseconds(warm)]
            hits, queried = counted(warm, hits, queried)
        prompts = prompts_make("speed batch", BATCH, BATCH_LENGTH)
        cold = engine.generate(prompts)
        if node is not None:
            self.quiet(engine)
        warm = engine.generate(prompts) if node is not None else None
        row += [rate(cold), rate(warm)]
        hits, queried = counted(warm, hits, queried)
        times = sorted(first["times"])
        row += [f"{statistics.median(times) * 1e3:.0f}", f"{times[min(len(times) - 1, len(times) * 99 // 100)] * 1e3:.0f}"]
        slowest = sorted(zip(first["times"], first["starts"]), reverse=True)[:SLOWEST]
        said = ", ".join(f"{took * 1e3:.0f} ms at {at:.1f} s" for took, at in slowest)
        return row, Outcome(hits, queried, f"{len(times)} requests in the first {FIRST_SECONDS} s, slowest {said}")

    def quiet(self, engine):
        """Waits until all is stored, which no counter shows for both stores, and clears the engine's own cache."""
        engine.worker.ask(60, do="rest", lasting_s=2)
        engine.reset()


def counted(answer, hits, queried):
    return (hits + answer["hits"], queried + answer["queried"]) if answer else (hits, queried)


def milliseconds(answer):
    return f"{statistics.median(answer['first_token_s']) * 1e3:.0f}" if answer else ""


def rate(answer):
    return f"{BATCH * BATCH_LENGTH / answer['seconds'] / 1e3:.1f}" if answer else ""


def scenarios(run, vllm):
    speed = Speed(run, vllm)
    return [Scenario("speed: no store", speed.side("none", speed.none)),
            Scenario("speed: Mooncake's wheel", speed.side("Mooncake", speed.mooncake)),
            Scenario("speed: Sluice", speed.side("Sluice", speed.sluice)),
            Scenario("speed: Sluice native", speed.side("Sluice native", speed.native))]
