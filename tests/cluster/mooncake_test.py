"""Two hosts, each with its own mooncake_master, the second joined to the first: values that engines put on one can be found, read and
removed on the other. Hosts are network namespaces."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import shutil
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "python"))

from python_support import LIBASAN, NO_LEAKS, PACKAGE  # noqa: E402
from cluster_support import PACE, PATIENCE, Network, main, wait_until  # noqa: E402
from node_support import BIN  # noqa: E402

MASTER = os.path.join(BIN, "mooncake_master")
SECRET = "the secret of all hosts of this test"
PORT, ADMIN = 50051, 9003

# An engine, controlled by lines of JSON: [method, arguments...]; bytes are given as their length and a seed.
ENGINE = """
import ctypes, json, random, sys
if sys.argv[1] != "installed":
    sys.path.insert(0, sys.argv[1])
from mooncake.store import MooncakeDistributedStore, MooncakeHostMemAllocator
store = MooncakeDistributedStore()
def value(seed, length):
    return random.Random(seed).randbytes(length)
for line in sys.stdin:
    what, *words = json.loads(line)
    if what == "put":
        said = store.put(words[0], value(words[1], words[2]))
    elif what == "get":
        got = store.get(words[0])
        said = "right" if got == value(words[1], words[2]) else f"{len(got)} other bytes"
    elif what == "buffer":
        buffer = MooncakeHostMemAllocator().alloc(words[0])
        said = store.register_buffer(buffer, words[0])
    elif what == "unregister":
        said = store.unregister_buffer(buffer)
    elif what == "into":
        ctypes.memset(buffer, 0xa5, words[2] + 1)
        got = store.get_into(words[0], buffer, words[2] + 1)
        fine = ctypes.string_at(buffer, words[2] + 1) == value(words[1], words[2]) + bytes([0xa5])
        said = "right" if got == words[2] and fine else f"{got}, and other bytes"
    elif what == "descriptors":
        said = [one.get_memory_descriptor().buffer_descriptor.transport_endpoint
                for one in store.get_replica_desc(words[0]) if one.is_memory_replica()]
    else:
        said = getattr(store, what)(*words)
    print(json.dumps(said), flush=True)
"""


class Host:
    """One namespace with its master and engines."""

    def __init__(self, network, port, secret=SECRET):
        self.network, self.port = network, port
        self.address = network.address(port)
        self.directory = tempfile.mkdtemp(prefix="sl-mc-")
        self.shm = f"/dev/shm/sluice-test-mc-{os.getpid()}-{port}"
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith(("SLUICE_", "MOONCAKE_", "MC_"))}
        self.environment.update(SLUICE_RUNTIME_DIR=self.directory + "/run", SLUICE_SHM_DIR=self.shm,
                                XDG_RUNTIME_DIR=self.directory, XDG_STATE_HOME=self.directory + "/state", SLUICE_PEER_TIMEOUT=f"{1000 * PACE}ms",
                                SLUICE_FABRIC_PROGRESS_TIMEOUT=f"{2 * PACE}s")
        if secret is not None:
            self.environment["MOONCAKE_CLUSTER_SECRET"] = secret
        self.processes = []
        self.log = open(self.directory + "/log", "w+b")

    def start(self, *words, environment=None, **streams):
        """In the namespace: the process enters it before the exec, so that signals reach the program itself."""
        process = subprocess.Popen([*self.network.ports[self.port].enter(), *words], env=environment or self.environment, **streams)
        self.processes.append(process)
        return process

    def master(self, *flags, wait=True):
        process = self.start(MASTER, f"--port={PORT}", f"--metrics_port={ADMIN}", "--memory=128mb",
                             "--default_kv_lease_ttl=300ms", *flags, stdout=self.log, stderr=self.log)
        if wait:
            wait_until(lambda: process.poll() is not None or self.healthy(), 30, f"the master of host {self.port}")
            if process.poll() is not None:
                raise AssertionError(f"mooncake_master ended with {process.returncode}: {self.said()}")
        return process

    def said(self):
        with open(self.directory + "/log", encoding="utf-8", errors="replace") as log:
            return log.read()

    def healthy(self):
        done = subprocess.run([*self.network.ports[self.port].enter(), sys.executable, "-c",
                               "import urllib.request; urllib.request.urlopen('http://127.0.0.1:%d/health', timeout=5)" % ADMIN],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return done.returncode == 0

    def counters(self, actor):
        done = subprocess.run([*self.network.ports[self.port].enter(), os.path.join(BIN, "sluicectl"), "status", "--pages"],
                              env=self.environment | {"SLUICE_INSTANCE": f"mooncake-{PORT}"}, stdout=subprocess.PIPE, check=True)
        return next(row["counters"] for row in json.loads(done.stdout)["actors"] if row["name"] == actor)

    def engine(self, **settings):
        sanitized = dict(LD_PRELOAD=LIBASAN, PYTHONMALLOC="malloc",
                         ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + NO_LEAKS) if LIBASAN else {}
        process = self.start(sys.executable, "-c", ENGINE, PACKAGE, environment=self.environment | sanitized | settings, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ask(*words):
            process.stdin.write((json.dumps(words) + "\n").encode())
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise AssertionError(f"the engine of host {self.port} ended at {words}")
            return json.loads(line)
        return ask

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=60 * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)


@unittest.skipUnless(os.path.exists(MASTER), "mooncake_master was not built")
class TwoHosts(unittest.TestCase):
    def setUp(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)

    def host(self, port, **options):
        host = Host(self.network, port, **options)
        self.addCleanup(host.close)
        return host

    def set_up(self, ask, host, master, segment=64 << 20):
        return ask("setup", host.address, "P2PHANDSHAKE", segment, 16 << 20, "tcp", "", f"{master.address}:{PORT}")

    def comes(self, on, key, number, length):
        """A host without CPU time for a while answers like one that does not have the value: b"", and nothing else."""
        def right():
            said = on("get", key, number, length)
            self.assertIn(said, ("right", "0 other bytes"))
            return said == "right"

        wait_until(right, 20, f"{key} arrives")

    def test_what_one_host_puts_the_other_has(self):
        a, b = self.host(0), self.host(1)
        a.master()
        b.master(f"--join={a.address}:{PORT}")
        on_a, on_b = a.engine(), b.engine()
        self.assertEqual(self.set_up(on_a, a, a), 0)
        self.assertEqual(self.set_up(on_b, b, a), 0)
        for number, length in enumerate((1, 4096, 1 << 20, 9 << 20)):
            self.assertEqual(on_a("put", f"a{number}", number, length), 0)
        wait_until(lambda: on_b("is_exist", "a0") == 1, 20, "the hosts know each other")
        self.assertEqual(on_b("batch_is_exist", ["a0", "none", "a3"]), [1, 0, 1])
        self.assertEqual(on_b("get_size", "a3"), 9 << 20)
        self.assertEqual(len(on_b("descriptors", "a2")), 1)
        for number, length in enumerate((1, 4096, 1 << 20, 9 << 20)):
            self.comes(on_b, f"a{number}", number, length)
        self.assertEqual(on_b("get", "none", 0, 0), "right")  # b"" for a key that no host has
        self.assertEqual(on_b("put", "b0", 7, 5000), 0)
        wait_until(lambda: on_a("is_exist", "b0") == 1, 20, "also the other way")
        self.comes(on_a, "b0", 7, 5000)

        # A lookup from the other host leases the key at its own; removed everywhere once the lease is over.
        self.assertEqual(on_a("put", "c", 1, 100), 0)
        self.assertEqual(on_b("is_exist", "c"), 1)
        self.assertIn(on_a("remove", "c"), (-706, 0))  # 0: the machine was paused for a whole lease
        time.sleep(0.4)
        wait_until(lambda: on_b("remove", "c") in (0, -704), 20, "c goes")
        self.assertEqual(on_a("is_exist", "c"), 0)
        self.assertEqual(on_b("is_exist", "c"), 0)

        # A host that dies takes its own values with it, and no call waits for it for long.
        self.assertEqual(on_a("put", "only", 3, 1000), 0)
        self.network.cut(0)
        self.assertEqual(on_b("is_exist", "only"), 0)
        self.assertEqual(on_b("get", "b0", 7, 5000), "right")
        self.network.mend(0)
        wait_until(lambda: on_b("is_exist", "only") == 1, 30, "it is back")
        self.comes(on_b, "only", 3, 1000)

    def test_what_another_host_has_comes_into_a_registered_buffer(self):
        a, b = self.host(0), self.host(1)
        a.master()
        b.master(f"--join={a.address}:{PORT}")
        on_a, on_b = a.engine(), b.engine()
        self.assertEqual(self.set_up(on_a, a, a), 0)
        self.assertEqual(self.set_up(on_b, b, a), 0)
        self.assertEqual(on_b("buffer", 4 << 20), 0)
        self.assertEqual(on_a("put", "first", 0, 100), 0)
        wait_until(lambda: on_b("is_exist", "first") == 1, 20, "the hosts know each other")
        for number, length in enumerate((8, 5000, 1 << 20, (4 << 20) - 1)):
            self.assertEqual(on_a("put", f"a{number}", number, length), 0)
            self.assertEqual(on_b("into", f"a{number}", number, length), "right")
        self.assertEqual(on_b("into", "none", 0, 100), "-704, and other bytes")
        self.assertEqual(on_b("unregister"), 0)
        self.assertEqual(on_b("into", "a1", 1, 5000), "right")

    def test_who_does_not_know_the_secret_stays_alone(self):
        a = self.host(0)
        a.master()
        for secret, text in (("another secret, long enough", "another secret"), (None, "MOONCAKE_CLUSTER_SECRET")):
            b = self.host(1, secret=secret)
            refused = b.master(f"--join={a.address}:{PORT}", wait=False)
            self.assertEqual(refused.wait(timeout=60 * PATIENCE), 1)
            self.assertIn(text, b.said())
            on_b = b.engine()
            self.assertNotEqual(self.set_up(on_b, b, a), 0)

    def test_port_and_name_are_kept_over_a_boot_and_the_port_is_none_of_outgoing_connections(self):
        for low, high in ((1024, 55000), (30000, 65535)):
            with self.subTest(low=low, high=high):
                a = self.host(0)
                self.network.ports[0].run(f"sysctl -qw net.ipv4.ip_local_port_range='{low} {high}'")
                ports, names = [], set()
                for _ in range(2):
                    master = a.master()
                    with open(f"{a.directory}/state/sluice/mooncake-{PORT}/cluster/port", encoding="utf-8") as text:
                        ports.append(int(text.read()))
                    with open(f"{a.directory}/state/sluice/mooncake-{PORT}/cluster/name", encoding="utf-8") as text:
                        names.add(text.read())
                    master.send_signal(signal.SIGTERM)
                    master.wait(timeout=60 * PATIENCE)
                    shutil.rmtree(a.directory + "/run")
                self.assertEqual(len(names), 1)
                self.assertFalse(low <= ports[0] <= high, ports)
                self.assertEqual(ports[0], ports[1])
                a.close()

    def test_without_a_secret_nothing_listens_for_other_hosts(self):
        a = self.host(0, secret=None)
        a.master()
        listening = self.network.ports[0].run("ss -Htln").split("\n")
        places = sorted(line.split()[3] for line in listening if line.strip())
        self.assertEqual(places, sorted((f"127.0.0.1:{PORT}", f"127.0.0.1:{ADMIN}")))

    def ask(self, port, address, path, method="GET", **headers):
        """Status of an answer of host a to one of host `port`; 0: nothing listens there."""
        program = ("import sys, json, urllib.request, urllib.error\n"
                   "url, method, headers = sys.argv[1:]\n"
                   "request = urllib.request.Request(url, method=method, headers=json.loads(headers), data=b'x' if method in ('PUT', 'POST') else None)\n"
                   "try: print(urllib.request.urlopen(request, timeout=20).status)\n"
                   "except urllib.error.HTTPError as error: print(error.code)\n"
                   "except urllib.error.URLError: print(0)")
        done = subprocess.run([*self.network.ports[port].enter(), sys.executable, "-c", program, f"http://{address}{path}", method,
                               json.dumps(headers)], stdout=subprocess.PIPE, check=True, timeout=60 * PATIENCE)
        return int(done.stdout)

    def test_what_changes_things_wants_the_token_that_there_is_and_no_page_of_another_place(self):
        token, remove = "a token of all admins", "/api/v1/remove_all"
        for known, is_open in ((None, False), (token, False), (token, True)):
            a = self.host(0, secret=None)
            if known:
                a.environment["MOONCAKE_ADMIN_TOKEN"] = known
            a.master("--listen_host=0.0.0.0", "--allowed_origins=https://board.example,http://b:1", "--enable_http_metadata_server=true",
                     *(["--metadata_open"] if is_open else []))
            afar, here = f"{a.address}:{ADMIN}", f"127.0.0.1:{ADMIN}"
            bearer = {"Authorization": f"Bearer {token}"}
            self.assertEqual(self.ask(1, afar, "/get_all_keys"), 200)
            self.assertEqual(self.ask(1, afar, remove, "POST"), 401 if known else 403)
            self.assertEqual(self.ask(1, afar, remove, "POST", Authorization="Bearer another token, as long"), 401 if known else 403)
            self.assertEqual(self.ask(1, afar, remove, "POST", **bearer), 200 if known else 403)
            self.assertEqual(self.ask(0, here, remove, "POST"), 401 if known else 200)
            self.assertEqual(self.ask(0, here, remove, "POST", **bearer), 200)
            self.assertEqual(self.ask(0, afar, remove, "POST"), 401 if known else 403)
            for origin, code in (("https://evil.example", 403), ("null", 403), ("https://board.example.evil", 403), ("https://board.example", 200)):
                self.assertEqual(self.ask(0, here, remove, "POST", Origin=origin, **bearer), code, origin)
                self.assertEqual(self.ask(0, here, "/health", Origin=origin), code, origin)
            # Other hosts may write to the metadata server, unless there is a token.
            metadata = f"{a.address}:8080"
            for port, address in ((1, metadata), (0, "127.0.0.1:8080")):
                for method in ("PUT", "DELETE"):
                    self.assertEqual(self.ask(port, address, "/metadata?key=k", method), 401 if known and not is_open else 200)
                self.assertEqual(self.ask(port, address, "/metadata?key=k", "PUT", **bearer), 200)
            self.assertEqual(self.ask(1, metadata, "/metadata?key=k", "DELETE", Origin="https://evil.example"), 403)
            self.assertEqual(self.ask(1, metadata, "/metadata?key=k"), 200)
            a.close()


if __name__ == "__main__":
    main()
