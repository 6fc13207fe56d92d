"""Objects through sluicectl, on actors that are started directly, without a supervisor that restarts or kills them."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))

import suite  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("SLUICE_BIN", os.path.join(ROOT, "build", "release", "bin"))
SLOWDOWN = 4 * int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))  # a busy machine is also slow
PROBE = os.path.join(BIN, "..", "tests", "client_probe")
ACTORS = [("registrar", None), ("keyer", None), ("tierer", 0), ("swapper", 0), ("coordinator", None)]


class BareNode:
    """The actors of a node as children of this process."""

    count = 0

    def __init__(self, memory="64MiB", disk="256MiB"):
        BareNode.count += 1
        self.instance = f"o{os.getpid()}-{BareNode.count}"
        self.directory = tempfile.mkdtemp(prefix="sl-")
        self.shm = f"/dev/shm/sluice-test-{self.instance}"
        self.where = ["--instance", self.instance, "--runtime-dir", self.directory + "/run", "--shm-dir", self.shm]
        self.settings = ["--memory", memory, "--disk", disk, "--disk-path", self.directory + "/disk", "--ranks", "1"]
        self.processes = {}
        self.actors = [(role, number) for role, number in ACTORS if disk != "0" or role != "tierer"]
        os.mkdir(self.directory + "/run", 0o700)
        os.mkdir(self.directory + "/run/log", 0o700)

    def start(self, role, number=None):
        name = role if number is None else f"{role}.{number}"
        arguments = [os.path.join(BIN, f"sluice-{role}"), *self.where, *self.settings]
        if number is not None:
            arguments += ["--rank", str(number)]
        errors = open(f"{self.directory}/run/log/{name}.err", "ab")
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        errors.close()
        self.processes[name] = process
        end = time.monotonic() + 10 * SLOWDOWN
        said = b""
        while b"ready" not in said:
            if not select.select([process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"{name} is not ready in time\n{self.logs()}")
            got = os.read(process.stdout.fileno(), 4096)
            if not got:
                raise AssertionError(f"{name} ended before it was ready: {process.wait()}\n{self.logs()}")
            said += got

    def ctl(self, *arguments, stdin=None, timeout=30, environment=None):
        return subprocess.run([os.path.join(BIN, "sluicectl"), *arguments, *self.where], input=stdin, env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * SLOWDOWN)

    def logs(self):
        text = []
        log = self.directory + "/run/log"
        for name in sorted(os.listdir(log)):
            with open(os.path.join(log, name), encoding="utf-8", errors="replace") as lines:
                tail = lines.readlines()[-20:]
            if tail:
                text.append(f"--- {name}\n" + "".join(tail))
        return "\n".join(text)

    def __enter__(self):
        try:
            for role, number in self.actors:
                self.start(role, number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def stop(self):
        for process in reversed(list(self.processes.values())):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self.processes = {}

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)


class Library(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(PROBE), "client_probe was not built")
    def test_libsluice_as_an_engine_uses_it_and_a_node_started_anew(self):
        with BareNode(disk="0") as node:
            probe = subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                ready = select.select([probe.stdout], [], [], 30 * SLOWDOWN)[0] and probe.stdout.readline()
                if ready == b"registrar\n":
                    shown = {actor["name"]: actor for actor in json.loads(node.ctl("status", "--json").stdout)["actors"]}
                    self.assertGreater(shown["registrar"]["counters"]["ahead_count"], 100)
                    node.processes["registrar"].kill()
                    node.processes["registrar"].wait()
                    node.start("registrar")
                    probe.stdin.write(b"\n")
                    probe.stdin.flush()
                    ready = select.select([probe.stdout], [], [], 30 * SLOWDOWN)[0] and probe.stdout.readline()
                if ready == b"replace\n":
                    node.stop()
                    shutil.rmtree(node.shm)
                    for role, number in node.actors:
                        node.start(role, number)
                _, errors = probe.communicate(b"\n", timeout=30 * SLOWDOWN)
            finally:
                probe.kill()
            self.assertEqual((ready, probe.wait()), (b"replace\n", 0), errors.decode() + node.logs())


class ObjectApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = BareNode()
        cls.node.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.node.__exit__()

    def setUp(self):
        self.fine("rm", "--all")

    def fine(self, *arguments, stdin=None):
        done = self.node.ctl(*arguments, stdin=stdin, timeout=90, environment={**os.environ, "SLUICE_OP_TIMEOUT": "60s"})
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout[-500:]}{done.stderr.decode()}\n{self.node.logs()}")
        return done.stdout

    def code(self, *arguments, stdin=None):
        return self.node.ctl(*arguments, stdin=stdin).returncode

    def test_value_comes_back_as_it_was_put(self):
        for size in (1, 63, 64, 4095, 4096, 4097, 16384, 1 << 20, (3 << 20) + 17):
            value = os.urandom(size)
            self.fine("put", f"size/{size}", stdin=value)
            self.assertEqual(self.fine("get", f"size/{size}"), value, size)

    def test_put_of_an_existing_key_changes_nothing(self):
        self.fine("put", "twice", stdin=b"first")
        self.fine("put", "twice", stdin=b"second")
        self.assertEqual(self.fine("get", "twice"), b"first")

    def test_files_as_source_and_target(self):
        path = self.node.directory + "/file"
        with open(path, "wb") as out:
            out.write(b"f" * 100000)
        self.fine("put", "file", path)
        self.fine("get", "file", path + ".back")
        with open(path + ".back", "rb") as lines:
            self.assertEqual(lines.read(), b"f" * 100000)

    def test_missing_key_is_code_1_everywhere(self):
        self.assertEqual(self.code("get", "none"), 1)
        self.assertEqual(self.code("exists", "none"), 1)
        self.assertEqual(self.code("rm", "none"), 1)
        self.assertEqual(self.code("stat", "none"), 1)

    def test_wrong_use_is_code_2(self):
        for words in (["put"], ["get"], ["exists"], ["rm"], ["rm", "--all", "key"], ["ls", "a", "b"], ["trace"],
                      ["trace", "nonsense"], ["bench", "nonsense"], ["keys"], ["get", "--flase", "key"],
                      ["put", "k" * 1025], ["replay"], ["replay", "/none"], ["flush", "--timeout", "soon"]):
            self.assertEqual(self.code(*words, stdin=b"x"), 2, words)

    def test_empty_value_is_refused(self):
        self.assertEqual(self.code("put", "empty", stdin=b""), 2)

    def test_exists_ls_stat_rm(self):
        for name in ("a/1", "a/2", "b/1"):
            self.fine("put", name, stdin=name.encode())
        self.assertEqual(self.fine("exists", "a/1", "b/1"), b"yes\ta/1\nyes\tb/1\n")
        self.assertEqual(self.code("exists", "a/1", "c/1"), 1)
        listed = json.loads(self.fine("ls", "a/", "--json"))
        self.assertEqual(sorted(row["key"] for row in listed["objects"]), ["a/1", "a/2"])
        self.assertEqual(listed["count"], 2)
        about = json.loads(self.fine("stat", "a/1", "--json"))
        self.assertEqual((about["bytes"], about["in_memory"]), (3, True))
        self.fine("rm", "a/1")
        self.assertEqual(self.code("exists", "a/1"), 1)
        self.assertEqual(json.loads(self.fine("ls", "--json"))["count"], 2)
        self.assertEqual(self.code("stat"), 2)

    def test_keys_of_any_bytes(self):
        odd = "ключ \t\n'\"\\ 键"
        self.fine("put", odd, stdin=b"odd")
        self.assertEqual(self.fine("get", odd), b"odd")
        self.assertEqual([row["key"] for row in json.loads(self.fine("ls", "--json"))["objects"]], [odd])

    def put_on_disk(self, node, values):
        """Puts them all, however slow the disk is. Values lost because the disk was silent for seconds are put again."""
        def fine(*arguments, stdin=None):
            done = node.ctl(*arguments, "--op-timeout", "60s", stdin=stdin, timeout=90)
            self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr.decode()}\n{node.logs()}")
            return done.stdout

        absent = sorted(values)
        for _ in range(10):
            for key in absent:
                fine("put", key, stdin=values[key])
            fine("flush")
            listed = json.loads(fine("ls", "--json"))["objects"]
            absent = sorted(set(values) - {row["key"] for row in listed})
            if not absent:
                return listed
            rows = json.loads(node.ctl("explain", *absent, "--json").stdout)["keys"]
            self.assertEqual({row["text"].split(";")[0] for row in rows}, {"evicted while the disk was failing"}, f"{rows}\n{node.logs()}")
        raise AssertionError(f"the disk fails all the time\n{node.logs()}")

    def test_value_on_disk_alone_is_read_back(self):
        values = {f"spill/{i}": os.urandom(1 << 20) for i in range(96)}  # 1.5 times the memory
        # A disk of its own, so large that no log file is reclaimed, however much failed writes take up.
        with BareNode(disk="1GiB") as node:
            listed = self.put_on_disk(node, values)
            self.assertTrue(all(row["on_disk"] for row in listed))
            outside = [row["key"] for row in listed if not row["in_memory"]]
            self.assertGreater(len(outside), 0)
            for key in outside:
                self.assertEqual(node.ctl("get", key).stdout, values[key])

    def test_a_miss_is_explained(self):
        self.fine("put", "here", stdin=b"value")
        self.fine("put", "gone", stdin=b"value")
        self.fine("rm", "gone")
        self.assertEqual(self.code("explain", "here", "gone", "never"), 1)
        rows = {row["key"]: row for row in json.loads(self.node.ctl("explain", "here", "gone", "never", "--json").stdout)["keys"]}
        self.assertEqual(rows["here"]["code"], "SL_OK")
        self.assertEqual((rows["gone"]["code"], rows["gone"]["text"]), ("SL_ERR_NOT_FOUND", "removed"))
        self.assertGreater(rows["gone"]["ago_ns"], 0)
        self.assertIn("not seen", rows["never"]["text"])
        self.fine("explain", "here")

    def test_status_shows_every_actor(self):
        shown = {actor["name"]: actor for actor in json.loads(self.fine("status", "--json"))["actors"]}
        for name in self.node.processes:
            self.assertTrue(shown[name]["alive"], name)
            self.assertEqual(shown[name]["pid"], self.node.processes[name].pid)
        self.assertIn(b"registrar", self.fine("status", "--metrics"))
        self.assertEqual(self.fine("status", "--not-ready", "registrar", "nobody"), b"nobody\n")
        started = time.monotonic()
        self.assertEqual(self.fine("status", "--not-ready", "--within-ms", "300", "registrar", "nobody"), b"nobody\n")
        self.assertGreaterEqual(time.monotonic() - started, 0.3)
        self.assertEqual(self.fine("status", "--not-ready", "--within-ms", "3600000", "registrar"), b"")  # otherwise it hangs
        self.assertEqual([self.code("status", *words) for words in (["--within-ms", "5"], ["--not-ready", "--within-ms", "3600001", "registrar"])], [2, 2])

    def test_readers_need_no_actor(self):
        self.fine("put", "kept", stdin=b"value")
        registrar = self.node.processes["registrar"]
        registrar.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.fine("get", "kept"), b"value")
            self.assertEqual(self.fine("exists", "kept"), b"yes\tkept\n")
            self.assertEqual(len(json.loads(self.fine("ls", "--json"))["objects"]), 1)
            self.fine("stat", "kept")
            self.fine("status")
            started = time.monotonic()
            self.assertEqual(self.code("put", "late", stdin=b"x"), 3)  # a deadline, not a hang
            self.assertLess(time.monotonic() - started, 5 * SLOWDOWN)
            time.sleep(1)
            self.assertIn("registrar", [actor["name"] for actor in json.loads(self.fine("status", "--json"))["actors"] if actor["silent_s"] > 1])
        finally:
            registrar.send_signal(signal.SIGCONT)
        self.fine("put", "after", stdin=b"x")

    def test_a_killed_registrar_comes_back_with_every_key(self):
        for i in range(20):
            self.fine("put", f"kept/{i}", stdin=str(i).encode())
        registrar = self.node.processes["registrar"]
        registrar.kill()
        registrar.wait()
        registrar.stdout.close()
        self.assertEqual(self.fine("get", "kept/7"), b"7")
        self.node.start("registrar")
        for i in range(20):
            self.assertEqual(self.fine("get", f"kept/{i}"), str(i).encode())
        self.fine("put", "kept/new", stdin=b"new")
        self.assertEqual(self.fine("get", "kept/new"), b"new")

    def test_bench_measures_and_cleans_up(self):
        for kind in ("get", "put", "exists"):
            row = json.loads(self.fine("bench", kind, "--size", "4KiB", "--keys", "64", "--batch", "8", "--seconds", "0.2",
                                       "--json"))
            self.assertGreater(row["ops_per_s"], 0)
            self.assertGreater(row["baseline"]["ops_per_s"], 0)
            self.assertEqual((row["batch"], row["keys"]), (8, 64))
        for kind in ("get", "put"):
            row = json.loads(self.fine("bench", kind, "--size", "4KiB", "--keys", "64", "--batch", "8", "--pieces", "5",
                                       "--seconds", "0.2", "--json"))
            self.assertEqual(row["pieces"], 5)
            self.assertGreater(row["ops_per_s"], 0)
        self.assertEqual(json.loads(self.fine("ls", "bench/", "--json"))["count"], 0)

    def test_bench_of_an_engine_measures_and_cleans_up(self):
        before = json.loads(self.fine("ls", "--json"))["count"]
        report = json.loads(self.fine("bench", "engine", "--blocks", "3", "--part-bytes", "20000", "--layers", "7", "--ops", "20", "--json"))
        self.assertEqual((report["bench"], report["ranks"], report["blocks"], report["part_bytes"]), ("engine", 1, 3, 20000))
        rows = {row["op"]: row for row in report["rows"]}
        self.assertEqual(set(rows), {"store", "load", "miss", "look"})
        for row in rows.values():
            self.assertGreaterEqual(row["ops"], 20)
            self.assertGreater(row["p50_us"], 0)
            self.assertLessEqual(row["least_us"], row["p99_us"])
            self.assertGreater(row["cpu_us"]["client"], 0)
        self.assertGreater(rows["look"]["baseline"]["ratio"], 0)
        self.assertGreater(rows["look"]["baseline"]["ops_per_s"], 0)
        for op in ("store", "load", "miss"):
            self.assertGreater(rows[op]["cpu_us"]["coordinator"], 0)
        for op in ("store", "load"):
            self.assertGreater(rows[op]["baseline"]["ratio"], 0)
            self.assertGreater(rows[op]["baseline"]["bytes_per_s"], 0)
            self.assertGreater(rows[op]["cpu_s_per_gb"], 0)
            self.assertGreater(rows[op]["cpu_us"]["swapper.0"], 0)
        self.assertEqual(json.loads(self.fine("ls", "--json"))["count"], before)

    def test_bench_of_an_engine_refuses_what_cannot_be(self):
        for words in (["--ranks", "65"], ["--blocks", "4097"], ["--part-bytes", "65MiB"], ["--layers", "1025"],
                      ["--part-bytes", "4", "--layers", "5"]):
            self.assertEqual(self.node.ctl("bench", "engine", *words).returncode, 2, words)
        too_large = self.node.ctl("bench", "engine", "--blocks", "64")
        self.assertEqual(too_large.returncode, 2)
        self.assertIn(b"cannot hold two", too_large.stderr)

    def test_replay_of_a_small_workload_is_whole(self):
        trace = self.node.directory + "/trace.jsonl"
        with open(trace, "wb") as out:
            out.write(self.fine("workload", "--requests", "60", "--seed", "3"))
        report = json.loads(self.fine("replay", trace, "--block-bytes", "515", "--layers", "3", "--json", "-"))
        self.assertEqual((report["requests"], report["mismatches"], report["errors"], report["lost"]), (60, 0, 0, 0))
        self.assertEqual(sum(report["hits_by_tier"].values()), report["hits"])
        shown = json.loads(self.fine("trace", report["slowest"][0]["trace"], "--json"))
        times = [event["at_ns"] for event in shown["events"]]
        self.assertEqual(times, sorted(times))
        self.assertIn("coordinator", {event["actor"] for event in shown["events"]})
        self.assertEqual(len(json.loads(self.fine("trace", "--slow", "3", "--json"))["ops"]), 3)

    def test_commands_without_a_node(self):
        nowhere = ["--instance", "nowhere", "--shm-dir", self.node.directory + "/none", "--runtime-dir",
                   self.node.directory + "/none"]
        for words in (["get", "k"], ["put", "k"], ["ls"], ["stat", "k"], ["status"], ["trace", "1"], ["flush"]):
            done = subprocess.run([os.path.join(BIN, "sluicectl"), *words, *nowhere], input=b"x", timeout=30,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 3, words)
        self.assertIn(b"RESERVE", self.fine("messages"))
        self.assertIn(b"memory=67108864\0", self.fine("config", "--null", "--memory", "64MiB"))
        keys = self.node.ctl("keys", "--format", "vllm-sha256-cbor", "--block-tokens", "2", stdin=b'{"tokens": [1, 2, 3, 4, 5]}')
        self.assertEqual(len(keys.stdout.split()), 2)


def main():
    missing = [role for role, _ in ACTORS if not os.path.exists(os.path.join(BIN, f"sluice-{role}"))]
    if missing:
        print(f"skipped: no programs {', '.join(missing)} in {BIN}")
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    suite.run()


if __name__ == "__main__":
    main()
