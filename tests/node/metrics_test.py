"""Metrics that add up: the hits and misses of `sluicectl metrics` are those that clients counted themselves, also when they are killed."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import metrics_driver
import metrics_engine
from node_support import BIN, PATIENCE, Node, expected_hits, free_port, lives, main, store_setup, wait_until, workload
from values_support import Values, put_all

SIZE = 512 << 10


class Metrics:
    """A node's metrics at one moment."""

    def __init__(self, node):
        self.families = json.loads(node.ctl("metrics", "--json").stdout)["families"]
        self.samples = [sample for family in self.families for sample in family["samples"]]

    def sum(self, name, **labels):
        found = [row["value"] for row in self.samples if row["name"] == name and labels.items() <= row["labels"].items()]
        if not found:
            raise AssertionError(f"no metric {name} {labels}")
        return sum(found)

    def tiers(self, name="sluice_get_keys_total"):
        return {tier: self.sum(name, tier=tier) for tier in ("memory", "disk", "remote", "none")}


def client_environment(node):
    path = os.path.join(os.path.dirname(BIN), "python")
    found = dict(os.environ, SLUICE_INSTANCE=node.instance, SLUICE_RUNTIME_DIR=node.directory + "/run", SLUICE_SHM_DIR=node.shm,
                 PYTHONPATH=path)
    sanitizer = os.environ.get("SLUICE_TEST_PRELOAD", "")  # its runtime has to be loaded before the package
    if sanitizer:
        found.update(LD_PRELOAD=sanitizer, PYTHONMALLOC="malloc", ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    return found


def fill(node, count):
    """Values of twice the memory's size: the first are only on a disk."""
    names = [f"v{i}" for i in range(count)]
    for begin in range(0, count, 16):
        put_all(node, {name: name.encode() * (SIZE // len(name)) for name in names[begin:begin + 16]})
        node.ctl("flush")
    return names


def inode(path):
    """0: it does not exist, as for a moment when it is made again."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(path).st_ino
    return 0


class Balance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.isdir(os.path.join(os.path.dirname(BIN), "python", "sluice")):
            raise unittest.SkipTest("the Python package was not built")

    def drive(self, node, path, threads, seconds, keys):
        driver = subprocess.Popen([sys.executable, metrics_driver.__file__, path, str(threads), str(seconds), *keys],
                                  env=client_environment(node), stdout=subprocess.PIPE, text=True)
        self.addCleanup(driver.stdout.close)
        self.addCleanup(driver.wait)
        self.addCleanup(lambda: driver.poll() is None and driver.kill())
        self.assertEqual(driver.stdout.readline(), "begun\n")
        return driver

    def test_hits_by_tier_and_misses_are_the_references(self):
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="16MiB", disk="256MiB") as node:
            keys = fill(node, 48) + [f"nowhere{i}" for i in range(10)]
            before = Metrics(node)
            drivers = [(f"{folder}/{threads}", self.drive(node, f"{folder}/{threads}", threads, 6 if threads != 2 else 60, keys), threads)
                       for threads in (1, 2, 4, 8)]
            victim = drivers[1][1]
            wait_until(lambda: metrics_driver.totals(f"{folder}/2")["gets"] > 50, 20, "the process that is to be killed has begun")
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            registrar = node.live_pid("registrar")
            node.signal("registrar", signal.SIGKILL)
            node.wait_restarted("registrar", registrar, seconds=20)
            for _, driver, _ in drivers:
                driver.wait(timeout=60 * PATIENCE)

            own = [metrics_driver.totals(path) for path, _, _ in drivers]
            after = Metrics(node)

        self.assertEqual([driver.returncode for _, driver, _ in drivers], [0, -signal.SIGKILL, 0, 0])
        mine = {name: sum(row[name] for row in own) for name in metrics_driver.FIELDS}
        tiers = {tier: after.tiers()[tier] - before.tiers()[tier] for tier in after.tiers()}
        failed = after.sum("sluice_get_keys_failed_total") - before.sum("sluice_get_keys_failed_total")
        grown = {name: after.sum(name) - before.sum(name)
                 for name in ("sluice_lookup_keys_total", "sluice_lookup_keys_duration_seconds_count", "sluice_get_bytes_total",
                              "sluice_get_duration_seconds_count")}
        in_flight = 2  # in the killed process: one operation a thread
        hits = tiers["memory"] + tiers["disk"] + tiers["remote"]
        self.assertGreater(min(tiers["memory"], tiers["disk"], tiers["none"]), 0)
        self.assertEqual(tiers["remote"], 0)
        # Both count all ended operations, except those that the killed process had ended and not yet counted, or begun and not ended.
        self.assertLessEqual(mine["found"], hits)
        self.assertLessEqual(hits, mine["found"] + in_flight)
        self.assertLessEqual(mine["missed"], tiers["none"])
        self.assertLessEqual(tiers["none"], mine["missed"] + in_flight)
        references = sum(tiers.values()) + failed
        self.assertLessEqual(mine["gets"] - in_flight, references)
        self.assertLessEqual(references, mine["gets"])
        self.assertLessEqual(mine["bytes"], grown["sluice_get_bytes_total"])
        self.assertLessEqual(grown["sluice_get_bytes_total"], mine["bytes"] + in_flight * SIZE)
        self.assertLessEqual(mine["here"] + mine["nowhere"], grown["sluice_lookup_keys_total"])
        self.assertLessEqual(grown["sluice_lookup_keys_total"], mine["looks"])
        # One in 64 of a thread is timed, including its first.
        timed = grown["sluice_lookup_keys_duration_seconds_count"]
        self.assertGreater(timed, 0)
        self.assertLessEqual(abs(timed - grown["sluice_lookup_keys_total"]), 64 * sum(threads for _, _, threads in drivers))
        self.assertEqual(after.sum("sluice_clients"), 0)
        self.assertEqual(after.sum("sluice_actor_restarts_total", actor="registrar"), 1)
        self.assertGreaterEqual(after.sum("sluice_process_deaths_total"), before.sum("sluice_process_deaths_total"))

    def test_gets_by_tenant_are_those_of_mooncakes_clients(self):
        """Four processes, one of which is killed."""
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="64MiB") as node:
            if store_setup(node) is None:
                self.skipTest("this build has no mooncake.store")
            tenants, own = ("default", "team-a", "team-a", "team-b"), {}
            for tenant in sorted(set(tenants)):
                prefix = "" if tenant == "default" else f"\x01{tenant}\x01"
                put_all(node, {f"{prefix}k{i}": b"v" * 1000 for i in range(20)})
            before = Metrics(node)
            keys = [f"k{i}" for i in range(25)]
            drivers = [self.drive(node, f"{folder}/{i}", 4, 1.5 if i != 1 else 60, [f"tenant={tenant}", *keys]) for i, tenant in enumerate(tenants)]
            wait_until(lambda: metrics_driver.totals(f"{folder}/1")["gets"] > 100, 20, "the process that is to be killed has begun")
            drivers[1].send_signal(signal.SIGKILL)
            for driver in drivers:
                driver.wait(timeout=60 * PATIENCE)
            after = Metrics(node)
            noted = [metrics_driver.totals(f"{folder}/{i}") for i in range(4)]

        self.assertEqual([driver.returncode for driver in drivers], [0, -signal.SIGKILL, 0, 0])
        for tenant in ("team-a", "team-b", None):
            rows = [row for row, whose in zip(noted, tenants) if tenant in (whose, None)]
            own = {name: sum(row[name] for row in rows) for name in metrics_driver.FIELDS}
            dead = 4 if tenant != "team-b" else 0  # one get or lookup a thread of the killed process

            def told(name, **labels):
                if tenant is None:
                    return after.sum(name, **labels) - before.sum(name, **labels)
                return after.sum(name.replace("sluice_", "sluice_tenant_"), tenant=tenant, **labels)

            with self.subTest(tenant=tenant):
                self.assertGreater(min(own["found"], own["missed"], own["here"], own["nowhere"]), 0)
                for mine, theirs in (("found", told("sluice_get_keys_total", tier="memory")), ("missed", told("sluice_get_keys_total", tier="none")),
                                     ("here", told("sluice_lookup_keys_total", result="found")),
                                     ("nowhere", told("sluice_lookup_keys_total", result="missing"))):
                    self.assertLessEqual(own[mine], theirs, mine)
                    self.assertLessEqual(theirs, own[mine] + dead, mine)
                self.assertLessEqual(own["bytes"], told("sluice_get_bytes_total"))
                self.assertEqual(told("sluice_get_keys_failed_total"), own["failed"])
        self.assertEqual({row["labels"]["tenant"] for row in after.samples if row["name"].startswith("sluice_tenant_")}, {"team-a", "team-b"})

    def test_a_get_of_what_was_evicted_is_a_miss_that_was_here_once(self):
        with Node(ranks=1, memory="16MiB") as node:
            put_all(node, {f"v{i}": b"v" * SIZE for i in range(48)})
            node.ctl("rm", "v47")
            with Values(node) as client:
                gone = [f"v{i}" for i in range(48) if not client.exists(f"v{i}")]
                self.assertEqual({client.get(key) for key in gone + ["never", "nor"]}, {None})
            metrics = Metrics(node)

        self.assertGreater(len(gone), 15)
        self.assertEqual(metrics.tiers()["none"], len(gone) + 2)
        self.assertEqual(metrics.sum("sluice_get_keys_seen_total"), len(gone))

    def test_a_client_follows_figures_that_come_or_are_made_anew_while_it_lives(self):
        """The filter of keys and the counts: a client has them open as long as it lives."""
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "gone", "-", stdin=b"v")
            node.ctl("rm", "gone")
            os.rename(node.shm + "/seen", node.shm + "/away")  # as when a client starts before the file is made
            code = "import sluice, sys\nclient = sluice.Client()\nprint('begun', flush=True)\n" \
                   "for key in sys.stdin:\n    try:\n        client.get(key.strip())\n    except sluice.NotFoundError:\n        pass\n" \
                   "    print('done', flush=True)\n"
            client = subprocess.Popen([sys.executable, "-c", code], env=client_environment(node), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)
            self.addCleanup(client.stdout.close)
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
            self.addCleanup(client.stdin.close)
            self.assertEqual(client.stdout.readline(), "begun\n")

            def seen_grows():
                before = Metrics(node).sum("sluice_get_keys_seen_total")
                client.stdin.write("gone\n")
                client.stdin.flush()
                self.assertEqual(client.stdout.readline(), "done\n")
                return Metrics(node).sum("sluice_get_keys_seen_total") - before == 1

            self.assertFalse(seen_grows())
            os.rename(node.shm + "/away", node.shm + "/seen")
            wait_until(seen_grows, 5, "the client asks the filter that came")
            for name in ("seen", "counts"):
                with self.subTest(made_anew=name):
                    path = f"{node.shm}/{name}"
                    was = os.stat(path).st_ino
                    os.truncate(path, 9000)
                    wait_until(lambda at=path, old=was: inode(at) not in (0, old), 10, "it starts again")
                    node.ctl("put", "gone", "-", stdin=b"v")
                    node.ctl("rm", "gone")
                    wait_until(seen_grows, 5, "the client counts in the new file")

    def test_each_get_counts_in_the_tier_where_the_value_was(self):
        with Node(ranks=1, memory="16MiB", disk="256MiB") as node:
            keys = fill(node, 48)
            with Values(node) as client:
                here = {key: "memory" in client.places(key) for key in keys}
            memory = [key for key in keys if here[key]][-4:]
            disk = [key for key in keys if not here[key]][:3]
            self.assertEqual((len(memory), len(disk)), (4, 3))
            before = Metrics(node).tiers()
            for key in memory + disk:
                node.ctl("get", key)
            for key in ("no", "nor"):
                self.assertEqual(node.ctl("get", key, check=False).returncode, 1)

            after = Metrics(node).tiers()

            self.assertEqual({tier: after[tier] - before[tier] for tier in after}, {"memory": 4, "disk": 3, "remote": 0, "none": 2})


class Engines(unittest.TestCase):
    def drive(self, node, path, threads, seconds, model):
        """(driver, the model's identity)"""
        driver = subprocess.Popen([sys.executable, metrics_engine.__file__, path, str(threads), str(seconds), model],
                                  env=client_environment(node), stdout=subprocess.PIPE, text=True)
        self.addCleanup(driver.stdout.close)
        self.addCleanup(driver.wait)
        self.addCleanup(lambda: driver.poll() is None and driver.kill())
        identity = driver.stdout.readline().strip()
        self.assertRegex(identity, "^[0-9a-f]{32}$")
        return driver, identity

    def balanced(self, name, low, high, told):
        """Both count all ended operations, except those in flight."""
        self.assertTrue(low <= told <= high, f"{name}: {low} <= {told} <= {high}")

    @unittest.skipUnless(os.path.isdir(os.path.join(os.path.dirname(BIN), "python", "sluice")), "the Python package was not built")
    def test_loads_stores_and_look_ups_of_engines_are_those_of_their_drivers(self):
        """By model and in total, with 1, 2, 4 and 8 threads, one process of which is killed; so are registrar and coordinator."""
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="8MiB", disk="256MiB") as node:
            drivers = [(f"{folder}/{threads}", *self.drive(node, f"{folder}/{threads}", threads, 4 if threads != 2 else 60, model), threads, model)
                       for threads, model in ((1, "small"), (2, "large"), (4, "small"), (8, "large"))]
            victim = drivers[1][1]
            wait_until(lambda: metrics_engine.totals(f"{folder}/2")["loads"] > 100, 20, "the process that is to be killed has begun")
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            for actor in ("registrar", "coordinator"):
                pid = node.live_pid(actor)
                node.signal(actor, signal.SIGKILL)
                node.wait_restarted(actor, pid, seconds=20)
            for _, driver, _, _, _ in drivers:
                driver.wait(timeout=60 * PATIENCE)
            after = Metrics(node)
            noted = {path: metrics_engine.totals(path) for path, _, _, _, _ in drivers}

        self.assertEqual([driver.returncode for _, driver, _, _, _ in drivers], [0, -signal.SIGKILL, 0, 0])
        run = metrics_engine.RUN
        for model in ("small", "large", None):
            rows = [row for row in drivers if model in (row[4], None)]
            own = {name: sum(noted[row[0]][name] for row in rows) for name in metrics_engine.FIELDS}
            # Of the killed process: one run a thread. Of the killed coordinator: results counted but not reported are done again.
            dead = sum(row[3] for row in rows if row[1] is victim) * run
            again = sum(row[3] for row in rows) * run
            labels = [{"model": identity} for identity in sorted({row[2] for row in rows})]
            self.assertEqual(len(labels), 2 if model is None else 1)
            with self.subTest(model=model):
                self.assertGreater(min(own["memory"], own["disk"], own["none"], own["stored"], own["existed"], own["here"]), 0)
                for kind, prefix in ("load", "sluice_model_load_blocks_total"), ("lookup", "sluice_model_lookup_blocks_total"), ("store", "sluice_model_store_blocks_total"):
                    names = {"load": {"tier": ("memory", "disk", "remote", "none")},
                             "lookup": {"result": ("found", "missing")}, "store": {"result": ("stored", "existed", "refused")}}[kind]
                    mine = {"load": ("memory", "disk", "remote", "none"), "lookup": ("here", "nowhere"), "store": ("stored", "existed", "refused")}[kind]
                    (label, values), = names.items()
                    extra = 0 if kind == "lookup" else again
                    told = [sum(after.sum(prefix, **{label: value}, **one) for one in labels) for value in values]
                    for name, value in zip(mine, told):
                        self.balanced(f"{kind} {name}", own[name], own[name] + dead + extra, value)
                    failed = 0 if kind == "store" else sum(after.sum(f"sluice_model_{kind}_blocks_failed_total", **one) for one in labels)
                    begun = own[{"load": "loads", "lookup": "looks", "store": "stores"}[kind]]
                    self.balanced(f"{kind}s", begun - dead, begun + extra, sum(told) + failed)
                self.balanced("bytes", own["bytes"], own["bytes"] + (dead + again) * metrics_engine.PIECE * metrics_engine.LAYERS,
                              sum(after.sum("sluice_model_load_bytes_total", **one) for one in labels))
        for tier in ("memory", "disk", "remote", "none"):  # in total they equal the coordinator's metrics
            self.assertEqual(after.sum("sluice_load_blocks_total", tier=tier), after.sum("sluice_model_load_blocks_total", tier=tier))
        self.assertEqual(after.sum("sluice_lookup_blocks_total"), after.sum("sluice_model_lookup_blocks_total"))
        # Each lookup is timed after its blocks are counted: some of the killed process are not.
        looked = after.sum("sluice_lookup_blocks_total")
        self.balanced("times of lookups", looked - dead, looked, after.sum("sluice_lookup_blocks_duration_seconds_count") * run)
        self.assertEqual(sorted(row["labels"]["name"] for row in after.samples if row["name"] == "sluice_model_info"), ["large", "small"])

    @unittest.skipUnless(os.path.isdir(os.path.join(os.path.dirname(BIN), "python", "sluice")), "the Python package was not built")
    def test_engines_of_a_swapper_that_was_killed_are_counted_once(self):
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="32MiB") as node:
            driver, _ = self.drive(node, folder + "/1", 1, 600, "m")
            wait_until(lambda: Metrics(node).sum("sluice_swap_engines") == 1, 10, "the swapper has mapped the engine")
            pid = node.live_pid("swapper.0")
            node.signal("swapper.0", signal.SIGKILL)
            node.wait_restarted("swapper.0", pid)
            loads = metrics_engine.totals(folder + "/1")["loads"]
            wait_until(lambda: metrics_engine.totals(folder + "/1")["loads"] > loads + 100, 20, "the engine continues")

            self.assertEqual(Metrics(node).sum("sluice_swap_engines"), 1)

            driver.kill()
            wait_until(lambda: Metrics(node).sum("sluice_swap_engines") == 0, 10, "the engine is gone")

    def test_the_ceiling_is_what_unlimited_memory_would_have_hit(self):
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="2MiB") as node:
            workload(folder + "/trace.jsonl", 600, 5)
            references, most = expected_hits(folder + "/trace.jsonl")
            node.ctl("replay", folder + "/trace.jsonl", "--block-bytes", "4096", "--ranks", "1", "--op-timeout", "30s", "--json",
                     folder + "/report.json", timeout=100 * PATIENCE)
            with open(folder + "/report.json", encoding="utf-8") as file:
                report = json.load(file)
            metrics = Metrics(node)

        self.assertEqual(metrics.sum("sluice_load_blocks_total"), references)
        self.assertLess(report["hits"], most * 0.8)  # it does not fit
        ceiling = report["hits"] + metrics.sum("sluice_load_blocks_seen_total")
        self.assertLessEqual(most * 0.98, ceiling)  # a block for which no memory was found was never stored
        self.assertLessEqual(ceiling, most + 0.005 * (references - most))
        self.assertEqual(metrics.sum("sluice_load_blocks_seen_total"), metrics.sum("sluice_model_load_blocks_seen_total"))
        self.assertGreater(metrics.sum("sluice_evict_age_seconds_count"), 0)
        self.assertGreater(metrics.sum("sluice_evict_age_seconds_bucket", le="+Inf"), metrics.sum("sluice_evict_age_seconds_bucket", le="0.1") - 1)

    def test_blocks_of_loads_are_those_of_the_replay(self):
        with tempfile.TemporaryDirectory() as folder, Node(ranks=2, memory="8MiB", disk="256MiB") as node:
            workload(folder + "/trace.jsonl", 300, 11)
            node.ctl("replay", folder + "/trace.jsonl", "--block-bytes", "4096", "--ranks", "2", "--op-timeout", "30s", "--json",
                     folder + "/report.json", timeout=100 * PATIENCE)
            with open(folder + "/report.json", encoding="utf-8") as file:
                report = json.load(file)
            metrics = Metrics(node)

        tiers = metrics.tiers("sluice_load_blocks_total")
        self.assertGreater(report["hits"], 0)
        self.assertEqual(report["errors"], 0)
        self.assertEqual({tier: tiers[tier] for tier in ("memory", "disk", "remote")}, report["hits_by_tier"])
        self.assertEqual(sum(tiers.values()), report["block_references"])


class Text(unittest.TestCase):
    def test_promtool_finds_nothing_to_complain_of(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool is not installed (Debian's prometheus; deploy/install --test)")
        with Node(ranks=2, memory="32MiB", disk="64MiB") as node:
            node.ctl("put", "k", "-", stdin=b"v" * 5000)
            node.ctl("get", "k")
            text = node.ctl("metrics").stdout

        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)

        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, b""))
        for family in (b"sluice_get_keys_total counter", b"sluice_load_duration_seconds histogram", b"sluice_memory_used_bytes gauge"):
            self.assertIn(b"# TYPE " + family, text)

    def test_text_and_json_say_the_same_and_nobody_is_asked(self):
        with Node(ranks=1, memory="32MiB") as node:
            node.ctl("put", "k", "-", stdin=b"v" * 5000)
            node.ctl("get", "k")
            pids = [node.live_pid(name) for name in node.processes()]
            with node.actors_stopped(*node.processes()):
                text = node.ctl("metrics").stdout.decode()
                metrics = Metrics(node)
            self.assertTrue(all(lives(pid) for pid in pids))

            self.assertIn('sluice_get_keys_total{tier="memory"} 1\n', text)
            self.assertEqual(len([line for line in text.splitlines() if not line.startswith("#")]), len(metrics.samples))
            self.assertEqual(len([line for line in text.splitlines() if line.startswith("# TYPE")]), len(metrics.families))
            self.assertEqual(metrics.sum("sluice_get_keys_total", tier="memory"), 1)
            self.assertEqual(metrics.sum("sluice_actor_metrics_unknown"), 0)
            self.assertEqual(metrics.sum("sluice_actor_up"), len(pids))
            buckets = [row["value"] for row in metrics.samples
                       if row["name"] == "sluice_actor_handle_duration_seconds_bucket" and row["labels"]["actor"] == "registrar"]
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual(buckets[-1], metrics.sum("sluice_actor_handle_duration_seconds_count", actor="registrar"))
            self.assertGreater(buckets[-1], 0)

    def test_figures_that_cannot_be_kept_cost_neither_the_node_nor_the_others(self):
        with Node(ranks=1, memory="16MiB") as node:
            node.ctl("put", "key", "-", stdin=b"value")
            before = node.pid("registrar")
            os.unlink(node.shm + "/labels")
            os.mkdir(node.shm + "/labels")
            node.signal("registrar", signal.SIGKILL)
            node.wait_restarted("registrar", before, 60)
            node.wait_ready(60)
            self.assertEqual(node.ctl("get", "key").stdout, b"value")
            self.assertGreaterEqual(Metrics(node).tiers()["memory"], 1)
            os.rmdir(node.shm + "/labels")

    def test_without_a_node_it_says_so(self):
        with Node(ranks=1, memory="32MiB") as node:
            node.stop()
            gone = node.ctl("metrics", check=False)

            self.assertEqual((gone.returncode, gone.stdout), (3, b""))
            self.assertIn(b"no node runs under the name", gone.stderr)


EXPORTER = os.path.join(BIN, "sluice-metrics")
CONNECTIONS_MAX = 256  # HTTP_CONNECTIONS_MAX


def ask_socket(path, what="/metrics", method="GET"):
    """(status, type, body)."""
    connection = http.client.HTTPConnection("localhost", timeout=30 * PATIENCE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30 * PATIENCE)
    try:
        connection.sock.connect(path)
        connection.request(method, what)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        connection.close()


def own_address():
    """A non-loopback address of this machine; None: it has none."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        return probe.getsockname()[0]


class Supervised(unittest.TestCase):
    """The node's own: `metrics_listen`."""

    def at(self, node):
        """(pid, address) of the process that serves the node; None: there is none."""
        try:
            with open(node.directory + "/run/metrics.at", encoding="utf-8") as line:
                pid, _, address = line.read().split()
        except FileNotFoundError:
            return None
        return (int(pid), address) if lives(int(pid)) else None

    def test_it_comes_back_and_goes_with_the_node(self):
        with Node(ranks=1, memory="32MiB") as node:
            path = node.directory + "/run/metrics.http"
            wait_until(lambda: self.at(node), 10, "the node serves its metrics")
            self.assertEqual(self.at(node)[1], path)
            self.assertEqual(ask_socket(path)[0], 200)
            ready = node.supervisor("status").stdout
            for how in (signal.SIGKILL, signal.SIGSTOP):
                pid = self.at(node)[0]
                os.kill(pid, how)
                wait_until(lambda: self.at(node) and self.at(node)[0] != pid, 10, f"another one serves after signal {how}")
                self.assertEqual(ask_socket(path)[0], 200)
            self.assertIn("/metrics at " + path, ready)
            self.assertRegex(ready, r"\nmetrics +[0-9]+ running +0 ")
            self.assertEqual(node.ctl("status", "--not-ready", "registrar").stdout, b"")
            self.assertEqual(json.loads(node.ctl("status", "--json").stdout)["metrics_at"], path)
            self.assertIn(f"metrics       /metrics at {path}".encode(), node.ctl("doctor", check=False).stdout)
            last = self.at(node)[0]
            os.kill(node.supervisor_pid(), signal.SIGKILL)
            node.start()
            self.assertEqual(self.at(node)[0], last)  # the next supervisor takes it over
            node.stop()
            self.assertFalse(lives(last))
            self.assertFalse(os.path.exists(path) or os.path.exists(node.directory + "/run/metrics.at"))
            self.assertEqual(node.leftovers(), [])

    def test_off_is_off(self):
        with Node(ranks=1, memory="32MiB", settings=["--metrics-listen", "off"]) as node:
            self.assertEqual([line for line in node.running().values() if "sluice-metrics" in line], [])
            self.assertIn(b"/metrics is not served", node.ctl("status").stdout)
            self.assertRegex(node.ctl("doctor", check=False).stdout, rb"ok +metrics +off")
            none = subprocess.run([EXPORTER, *node.where, "--metrics-listen", "off"], capture_output=True, text=True, timeout=60 * PATIENCE,
                                  check=False)
            self.assertEqual((none.returncode, none.stdout), (2, ""))
            self.assertIn("metrics_listen is off", none.stderr)

    def test_an_address_in_use_costs_the_node_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            node = Node(ranks=1, memory="32MiB", settings=["--metrics-listen", f"127.0.0.1:{port}"])
            with node:
                said = node.supervisor("status").stdout
                started = node.supervisor("start", *node.settings, check=False)  # it already runs
                self.assertIn("runs already", started.stdout)
                node.ctl("put", "k", "-", stdin=b"v" * 5000)
                self.assertEqual(node.ctl("get", "k").stdout, b"v" * 5000)
                self.assertIn("/metrics is not served", said)
                self.assertRegex(node.ctl("doctor", check=False).stdout, rb"fail +metrics +metrics_listen 127.0.0.1:[0-9]+: Address already in use")
                restarted = node.supervisor("restart").stdout
                self.assertIn(f"no /metrics yet, trying again: sluice-metrics: port {port} of 127.0.0.1 is in use", restarted)
                other.close()
                wait_until(lambda: self.at(node), 20, "it is served when the address is free")
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30 * PATIENCE) as answer:
                    self.assertIn(b"sluice_actor_up", answer.read())

    def test_it_wants_the_token_that_there_is(self):
        address = own_address()
        if address is None:
            self.skipTest("this machine has no address but the loopback")

        def ask(port, to=address, **headers):
            try:
                with urllib.request.urlopen(urllib.request.Request(f"http://{to}:{port}/metrics", headers=headers), timeout=30 * PATIENCE) as answer:
                    return answer.status
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code

        for token in ("", "a token of some length"):
            with self.subTest(token=token):
                port = free_port()
                node = Node(ranks=1, memory="32MiB", settings=["--metrics-listen", f"0.0.0.0:{port}"])
                node.environment["SLUICE_METRICS_TOKEN"] = token
                with node:
                    wait_until(lambda: self.at(node), 10, "the node serves its metrics")
                    self.assertEqual(ask(port), 401 if token else 200)
                    self.assertEqual(ask(port, to="127.0.0.1"), 401 if token else 200)
                    if token:
                        self.assertEqual(ask(port, Authorization="Bearer " + token), 200)
                        self.assertEqual(ask(port, to="127.0.0.1", Authorization="Bearer " + token), 200)
                        self.assertEqual(ask(port, Authorization="Bearer another token, wrong"), 401)
                    self.assertEqual(ask(port, Origin="http://elsewhere.example", Authorization="Bearer " + token), 403)

    def test_wrong_addresses_are_named(self):
        for words in ("nothing", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:0"):
            node = Node(ranks=1, memory="32MiB")
            self.addCleanup(shutil.rmtree, node.directory, True)
            done = node.supervisor("start", "--metrics-listen", words, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"metrics_listen: '{words}' is none of local, off and HOST:PORT", done.stdout)


class Http(unittest.TestCase):
    def serve(self, node, *arguments):
        """Starts the process and waits until it has printed where it listens."""
        exporter = subprocess.Popen([EXPORTER, *arguments, *node.where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(exporter.stdout.close)
        self.addCleanup(exporter.stderr.close)
        self.addCleanup(exporter.wait)
        self.addCleanup(lambda: exporter.poll() is None and exporter.kill())
        self.assertIn("/metrics of node", exporter.stdout.readline())
        return exporter

    def test_the_local_socket_is_for_this_user_and_goes_with_its_process(self):
        with Node(ranks=1, memory="32MiB", settings=["--metrics-listen", "off"]) as node:
            path = node.directory + "/run/metrics.http"
            exporter = self.serve(node, "--listen", "local")
            node.ctl("put", "k", "-", stdin=b"v" * 5000)
            node.ctl("get", "k")

            status, kind, text = ask_socket(path)

            self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            self.assertIn(b'sluice_get_keys_total{tier="memory"} 1\n', text)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            self.assertEqual(ask_socket(path, "/nowhere")[0], 404)
            self.assertEqual(ask_socket(path, method="POST")[0], 405)
            second = subprocess.run([EXPORTER, "--listen", "local", *node.where], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
            self.assertEqual(second.returncode, 1)
            self.assertIn("another process listens", second.stderr)
            exporter.kill()
            exporter.wait()
            self.assertTrue(os.path.exists(path))
            successor = self.serve(node, "--listen", "local")  # at the address of the killed one
            self.assertEqual(ask_socket(path)[0], 200)
            node.stop()
            status, _, text = ask_socket(path)
            self.assertEqual(status, 503)
            self.assertIn(b"no node has pages", text)
            successor.terminate()
            self.assertEqual(successor.wait(timeout=30 * PATIENCE), 0)
            self.assertFalse(os.path.exists(path))

    def test_strangers_who_say_nothing_keep_nobody_out(self):
        with Node(ranks=1, memory="32MiB") as node:
            port = free_port()
            exporter = self.serve(node, "--listen", f"127.0.0.1:{port}")
            silent = []
            try:
                for _ in range(CONNECTIONS_MAX + 50):
                    silent.append(socket.create_connection(("127.0.0.1", port), timeout=30 * PATIENCE))
                    silent[-1].sendall(b"GET /metr")
                begin = time.monotonic()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30 * PATIENCE) as answer:
                    self.assertEqual(answer.status, 200)
                    self.assertIn(b"sluice_actor_up", answer.read())
                self.assertLess(time.monotonic() - begin, 5 * PATIENCE)
            finally:
                for connection in silent:
                    connection.close()
            self.assertIsNone(exporter.poll())
            request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Origin": "http://elsewhere.example"})
            with self.assertRaises(urllib.error.HTTPError) as refused:  # a page in a browser on this machine
                urllib.request.urlopen(request, timeout=30 * PATIENCE)
            self.assertEqual(refused.exception.code, 403)
            refused.exception.close()

    def test_wrong_words(self):
        with Node(ranks=1, memory="32MiB") as node:
            for words in (("--listen",), ("--listen", "nothing"), ("--listen", "127.0.0.1:0"), ("--no-such", "x"), ("word",)):
                done = subprocess.run([EXPORTER, *node.where, *words], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
                self.assertEqual(done.returncode, 2, (words, done.stderr))
                self.assertNotEqual(done.stderr, "")


if __name__ == "__main__":
    main()
