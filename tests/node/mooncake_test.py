"""mooncake_master and mooncake_client: real processes, their ports, their HTTP, and which process survives which."""

import errno
import fcntl
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
import urllib.parse
import urllib.request

from node_support import BIN, CTL, NODE, PATIENCE, free_port, lives, main, wait_until

MASTER = os.path.join(BIN, "mooncake_master")
CLIENT = os.path.join(BIN, "mooncake_client")


class Daemon:
    """One process, its output, and its end."""

    def __init__(self, words, environment):
        self.process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = None

    def end(self, number=signal.SIGTERM):
        """Sends the signal and waits. Returns (code, output)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self):
        if self.said is None:
            self.said = self.process.communicate(timeout=60 * PATIENCE)[0]
        return self.process.returncode, self.said


class StoreProcess(Daemon):
    def __init__(self, words, environment):
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = None

    def wait_line(self, wanted):
        """False: this build has no package that runs here."""
        line = self.process.stdout.readline().strip()
        if line == wanted:
            return True
        said = line + self.process.stdout.read()
        assert any(word in said for word in ("ImportError", "ModuleNotFoundError", "ASan runtime")), said
        return False

    def end_by_line(self):
        """Ends the process. Returns "" if it succeeded, else its output or "failed"."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.said = self.process.stdout.read()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.said + ("" if self.process.wait(60 * PATIENCE) == 0 else "failed")


STORE = """
import sys, time
from mooncake.store import MooncakeDistributedStore as Store, ReplicateConfig
MIB = 1 << 20
store = Store()
assert store.setup('localhost', 'P2PHANDSHAKE', 0, 8 * MIB, 'tcp', '', sys.argv[1]) == 0
"""
# 28 of 64 MiB, half written. Later these can be neither written nor ended.
LEFT_SESSIONS = """
import ctypes
keys = [sys.argv[2] + str(i) for i in range(7)]
dirt = ctypes.create_string_buffer(b'\\xee' * MIB, MIB)
def write(offset):
    return store.batch_put_from_multi_buffer_ranges(keys, [[ctypes.addressof(dirt)]] * 7, [[MIB]] * 7, [[offset]] * 7)
assert store.batch_put_session_start(keys, [4 * MIB] * 7, ReplicateConfig()) == [0] * 7
assert write(0) == [MIB] * 7
print('open', flush=True)
sys.stdin.readline()
assert all(code < 0 for code in write(MIB)), write(MIB)
ends = store.batch_put_session_end(keys[:6]) + store.batch_put_session_revoke(keys[6:])
assert all(code < 0 for code in ends[:6]) and store.batch_is_exist(keys) == [0] * 7, ends
"""
FILL = """
values = {'fill' + str(i): bytes([i + 1]) * (4 * MIB) for i in range(14)}
config = ReplicateConfig()
config.with_hard_pin = True  # or the first of them would make room for the last
end = time.monotonic() + 60
for key, value in values.items():
    while store.put(key, value, config) != 0:
        assert time.monotonic() < end, key
        time.sleep(0.1)
print('filled', flush=True)
sys.stdin.readline()
assert all(store.get(key) == value for key, value in values.items())
"""


class Place:
    """Directories and ports of one master, its node and its clients."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sl-mc-")
        self.port, self.admin, self.client, self.client_http, self.metadata = (free_port() for _ in range(5))
        self.instance = f"mooncake-{self.port}"
        self.shm = f"/dev/shm/sluice-test-{self.instance}"
        self.run = self.directory + "/run"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("SLUICE_", "MOONCAKE_", "MC_"))}
        self.environment.update(SLUICE_RUNTIME_DIR=self.run, SLUICE_SHM_DIR=self.shm, XDG_RUNTIME_DIR=self.directory, XDG_STATE_HOME=self.directory + "/state")
        self.where = ["--instance", self.instance, "--runtime-dir", self.run, "--shm-dir", self.shm]
        self.daemons = []

    def start(self, program, *flags, **environment):
        daemon = Daemon([program, *flags], dict(self.environment, **environment))
        self.daemons.append(daemon)
        return daemon

    def master(self, *flags, wait=True, **environment):
        words = [f"--port={self.port}", f"--metrics_port={self.admin}", "--memory=64mb", "--default_kv_lease_ttl=200ms", *flags]
        daemon = self.start(MASTER, *words, **environment)
        if wait:
            self.wait_ready(daemon)
        return daemon

    def lender(self, *flags, wait=True, **environment):
        words = ["--host=127.0.0.1", f"--port={self.client}", f"--master_server_address=127.0.0.1:{self.port}",
                 "--global_segment_size=16mb", *flags]
        daemon = self.start(CLIENT, *words, **environment)
        if wait:
            wait_until(lambda: daemon.process.poll() is not None or os.path.exists(self.sign()), 20, "mooncake_client is ready")
            assert daemon.process.poll() is None, daemon.wait()
        return daemon

    def sign(self):
        return f"{self.directory}/sluice-{os.geteuid()}/mooncake-client-{self.client}"

    def segment(self):
        return f"127.0.0.1:{self.client}"

    def get(self, path, method="GET", data=None, port=None):
        """(status, body, headers); status 0: no answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.admin}{path}", method=method, data=data)
        try:
            with urllib.request.urlopen(request, timeout=20 * PATIENCE) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers
        except (urllib.error.URLError, ConnectionError):
            return 0, "", None

    def wait_ready(self, daemon):
        wait_until(lambda: daemon.process.poll() is not None or self.get("/health")[0] == 200, 20, "the master serves")
        assert daemon.process.poll() is None, daemon.wait()

    def ctl(self, *words, stdin=b""):
        done = subprocess.run([CTL, *words, *self.where], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.environment, timeout=60 * PATIENCE)
        assert done.returncode == 0, done
        return done.stdout

    def put(self, key, value=b"value"):
        self.ctl("put", key, stdin=value)

    def lease(self, key):
        """Looks up a key as an engine does. False: this build has no package that runs here."""
        program = ("import sys; from mooncake.store import MooncakeDistributedStore as Store; store = Store(); "
                   "store.setup('localhost', 'P2PHANDSHAKE', 0, 1 << 20, 'tcp', '', sys.argv[1]); sys.exit(store.is_exist(sys.argv[2]) != 1)")
        done = subprocess.run([sys.executable, "-c", program, f"127.0.0.1:{self.port}", key], stderr=subprocess.PIPE, text=True,
                              env=dict(self.environment, PYTHONPATH=os.path.join(os.path.dirname(BIN), "python")), timeout=60 * PATIENCE)
        if any(word in done.stderr for word in ("ImportError", "ModuleNotFoundError", "ASan runtime")):
            return False
        assert done.returncode == 0, done
        return True

    def store_process(self, program, *words):
        """A process with a store, which continues when it gets a line."""
        daemon = StoreProcess([sys.executable, "-c", STORE + program, f"127.0.0.1:{self.port}", *words],
                              dict(self.environment, PYTHONPATH=os.path.join(os.path.dirname(BIN), "python")))
        self.daemons.append(daemon)
        return daemon

    def orphans_killed(self):
        """Returns their number."""
        count = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as words:
                    ours = self.instance.encode() in words.read().split(b"\0")
                if ours and int(pid) != os.getpid():
                    os.kill(int(pid), signal.SIGKILL)
                    count += 1
            except (FileNotFoundError, ProcessLookupError):
                pass
        return count

    def orphans_end(self):
        """Ends actors whose supervisor was killed by the test. A killed master's start may still run and make others meanwhile."""
        wait_until(lambda: self.orphans_killed() == 0, 20, "all that ran here has ended")

    def supervisor(self):
        with open(self.run + "/supervisor.pid", encoding="utf-8") as line:
            return int(line.read().split()[0])

    def actor(self, name):
        """0 in the moment between making the file and writing to it."""
        with open(f"{self.run}/pid/{name}", encoding="utf-8") as line:
            return int((line.read().split() or ["0"])[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
            daemon.wait()
        subprocess.run([NODE, "stop", *self.where], env=dict(self.environment, SLUICE_BIN=BIN), stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=60 * PATIENCE)
        self.orphans_end()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)


class Flags(unittest.TestCase):
    def test_help_and_wrong_use(self):
        for program in (MASTER, CLIENT):
            shown = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True)
            self.assertEqual(shown.returncode, 0)
            self.assertIn("--port=", shown.stdout)
            self.assertEqual(subprocess.run([program, "--version"], stdout=subprocess.DEVNULL).returncode, 0)
            wrong = subprocess.run([program, "--prot=1"], stderr=subprocess.PIPE, text=True)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("the nearest known one is --port", wrong.stderr)

    def test_flags_and_files_become_settings_of_the_node(self):
        with Place() as place:
            config = place.directory + "/master.json"
            with open(config, "w", encoding="utf-8") as out:
                json.dump({"eviction_ratio": 0.2, "default_kv_lease_ttl": "1s", "put_start_discard_timeout_sec": 7}, out)
            place.master("--config_path", config, "--eviction-high-watermark-ratio=0.5", "-enable_ha")
            settings = json.loads(place.ctl("config", "--json", "--config", place.run + "/mooncake-master.conf"))
            values = {name: setting["value"] for name, setting in settings.items()}
            self.assertEqual(values["contributions"], "true")
            self.assertEqual(values["memory"], str(64 << 20))
            self.assertEqual(values["lease_ttl"], "200000000ns")  # the command line takes precedence
            self.assertEqual(values["evict_ratio"], "0.200000")
            self.assertEqual(values["evict_watermark"], "0.500000")
            self.assertEqual(values["put_preempt"], "7000000000ns")
            self.assertEqual(values["put_release"], "600000000000ns")  # like Mooncake's
            code, said = place.daemons[0].end()
            self.assertEqual(code, 0, said)
            self.assertIn("--enable_ha=true has no effect", said)


    def test_secrets_stay_where_they_are(self):
        with Place() as place:
            master = place.master("--enable_ha", "--ha_backend_connstring=redis://:sesame@host",
                                  MOONCAKE_CLUSTER_SECRET="0123456789abcdef-cluster")
            with open(f"/proc/{place.actor('registrar')}/environ", "rb") as environment:
                self.assertNotIn(b"0123456789abcdef", environment.read())
            code, said = master.end()
            self.assertEqual(code, 0, said)
            self.assertIn("--ha_backend_connstring has no effect", said)
            self.assertNotIn("sesame", said)


class Admin(unittest.TestCase):
    def test_every_path(self):
        with Place() as place:
            place.master()
            place.lender()
            for key in ("a", "with space & = +", "schlüssel", "x,y"):
                place.put(key)

            status, text, _ = place.get("/health")
            health = json.loads(text)
            self.assertEqual((status, health["status"], health["role"], health["service_ready"]), (200, "ok", "leader", True))
            self.assertTrue(health["leader_address"].endswith(f":{place.port}"))
            self.assertEqual(place.get("/role")[:2], (200, "leader\n"))
            self.assertEqual(place.get("/ha_status")[0], 200)
            self.assertTrue(json.loads(place.get("/leader")[1])["leader_address"])
            self.assertEqual(sorted(place.get("/get_all_keys")[1].splitlines()), sorted(["a", "with space & = +", "schlüssel", "x,y"]))
            self.assertEqual(place.get("/get_all_segments")[:2], (200, place.segment() + "\n"))
            detail = json.loads(place.get("/get_segments_detail")[1])["segments"][0]
            self.assertEqual((detail["name"], detail["capacity"], detail["status"]), (place.segment(), 16 << 20, "OK"))
            self.assertGreater(detail["used"], 0)
            status, text, _ = place.get("/query_segment?segment=" + urllib.parse.quote(place.segment()))
            self.assertEqual(status, 200)
            self.assertIn(f"capacity_bytes: {16 << 20}", text)
            self.assertEqual(json.loads(place.get("/api/v1/segments/status")[1])["segments"],
                             [{"name": place.segment(), "status": "OK"}])

            for key in ("a", "with space & = +", "schlüssel", "x,y"):
                status, text, _ = place.get("/query_key?key=" + urllib.parse.quote(key))
                found = json.loads(text)
                self.assertEqual((status, found["success"], found["key"]), (200, True, key))
                self.assertEqual(found["data"][0]["transport_endpoint"], place.segment())
                self.assertEqual(found["data"][0]["size"], 5)
            status, text, _ = place.get("/query_key?key=none")
            self.assertEqual((status, json.loads(text)["error_code"]), (404, -704))
            several = json.loads(place.get("/batch_query_keys?keys=a,none,x%2Cy," + "k" * 2000)[1])["data"]
            self.assertEqual((several["a"]["ok"], several["none"]["ok"], several["x,y"]["ok"], several["k" * 2000]["ok"]),
                             (True, False, True, False))

            # Pages are written at intervals.
            wait_until(lambda: "\nmaster_key_count 4\n" in place.get("/metrics")[1], 10, "the registrar's page shows it")
            text = place.get("/metrics")[1]
            self.assertIn(f"\nmaster_total_capacity_bytes {16 << 20}\n", text)
            self.assertIn("\nmaster_active_clients 1\n", text)
            self.assertIn(f'segment_total_capacity_bytes{{segment="{place.segment()}"}} {16 << 20}', text)
            self.assertRegex(text, r'sluice_commit_count\{actor="registrar"\} \d+')
            names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
            self.assertEqual(len(names), len(set(names)))
            self.assertIn("keys: 4", place.get("/metrics/summary")[1])
            for line in place.get("/")[1].splitlines():
                self.assertIn(line.split()[0], ("GET", "POST"))

    def test_what_is_wrong_is_refused(self):
        with Place() as place:
            place.master()
            self.assertEqual(place.get("/nothing")[0], 404)
            self.assertEqual(place.get("/health", method="POST", data=b"")[0], 405)
            self.assertEqual(place.get("/health", method="POST", data=b"")[2]["Allow"], "GET, HEAD")
            self.assertEqual(place.get("/api/v1/remove_all")[0], 405)
            self.assertEqual(place.get("/health", method="BREW")[0], 405)
            self.assertEqual(place.get("/api/v1/remove_all?force=flase", method="POST", data=b"")[0], 400)
            self.assertEqual(place.get("/api/v1/remove_all", method="POST", data=b"x" * (5 << 20))[0], 413)
            for path in ("/query_key", "/query_key?key=", "/query_key?key=%", "/query_key?key=%zz", "/query_key?key=a%00b",
                         "/query_segment", "/batch_query_keys", "/batch_query_keys?keys=,,", "/batch_query_keys?keys=%f",
                         "/query_key?key=a&tenant_id=" + "t" * 300):
                self.assertEqual(place.get(path)[0], 400, path)
            self.assertEqual(place.get("/query_segment?segment=none")[0], 404)
            self.assertEqual(place.get("/query_key?key=" + "k" * 2000)[0], 404)
            self.assertEqual(place.get("/query_key?key=%ff%fe")[0], 404)
            connection = http.client.HTTPConnection("127.0.0.1", place.admin, timeout=20 * PATIENCE)
            connection.request("HEAD", "/health")
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b""))
            connection.close()
            for hostile in (b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 100000 + b"\r\n\r\n",
                            b"POST /api/v1/remove_all HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", os.urandom(5000)):
                with socket.create_connection(("127.0.0.1", place.admin), timeout=30 * PATIENCE) as one:
                    try:
                        one.sendall(hostile)
                        one.shutdown(socket.SHUT_WR)
                        while one.recv(65536):
                            pass
                    except OSError as error:  # closed before it received all of it
                        self.assertIn(error.errno, (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN))
            self.assertEqual(place.get("/health")[0], 200)

    def test_removing_heeds_leases_and_tenants(self):
        with Place() as place:
            place.master("--default_kv_lease_ttl=1h")
            place.lender()
            place.put("a")
            place.put("b")
            place.put("\x01tenant\x01c")
            self.assertEqual(place.get("/query_key?key=b")[0], 200)  # leases nothing
            self.assertEqual(place.get("/batch_query_keys?keys=b,c")[0], 200)
            self.assertEqual(place.get("/get_all_keys?tenant_id=tenant")[1], "c\n")
            self.assertEqual(place.get("/query_key?key=c")[0], 404)
            leased = place.lease("a")
            removed = json.loads(place.get("/api/v1/remove_all", method="POST", data=b"")[1])
            self.assertEqual((removed["removed_count"], removed["skipped_count"]), (2 - leased, leased))
            self.assertEqual(place.get("/get_all_keys")[1], "a\n" * leased)
            removed = json.loads(place.get("/api/v1/remove_all?force=true", method="POST", data=b"")[1])
            self.assertEqual(removed["removed_count"], leased)
            self.assertEqual(place.get("/get_all_keys")[1], "")
            self.assertEqual(place.get("/get_all_keys?tenant_id=tenant")[1], "c\n")
            removed = json.loads(place.get("/api/v1/remove_all?force=1&tenant_id=tenant", method="POST", data=b"")[1])
            self.assertEqual(removed["removed_count"], 1)

    def test_a_long_list_of_keys_is_whole(self):
        with Place() as place:
            place.master()
            place.lender()
            keys = {f"{number:03}" + "k" * 1000 for number in range(150)}  # more than one block of a stream
            for key in keys:
                place.put(key)
            listed = place.get("/get_all_keys")[1].splitlines()
            self.assertEqual(len(listed), len(keys))
            self.assertEqual(set(listed), keys)
            with socket.create_connection(("127.0.0.1", place.admin), timeout=20 * PATIENCE) as one:
                one.sendall(b"GET /get_all_keys HTTP/1.1\r\nHost: x\r\n\r\n")
                one.recv(100)  # and disconnects
            self.assertEqual(place.get("/health")[0], 200)

    def test_metadata_server(self):
        with Place() as place:
            place.master("--enable_http_metadata_server=true", f"--http_metadata_server_port={place.metadata}")
            at = {"port": place.metadata}
            self.assertEqual(place.get("/metadata?key=k", **at)[0], 404)
            self.assertEqual(place.get("/metadata", **at)[0], 400)
            self.assertEqual(place.get("/metadata?key=+%20", **at)[0], 400)
            self.assertEqual(place.get("/metadata?key=+k+", method="PUT", data=b"one", **at)[0], 200)
            self.assertEqual(place.get("/metadata?key=k", method="PUT", data=b"two", **at)[0], 200)
            self.assertEqual(place.get("/metadata?key=k", **at)[:2], (200, "two"))
            name = "/metadata?key=mooncake/rpc_meta/h:1"
            self.assertEqual(place.get(name, method="PUT", data=b"{}", **at)[0], 200)
            self.assertEqual(place.get(name, method="PUT", data=b"{}", **at)[0], 400)
            self.assertEqual(place.get("/metadata?key=k", method="DELETE", **at)[0], 200)
            self.assertEqual(place.get("/metadata?key=k", method="DELETE", **at)[0], 404)


class Lives(unittest.TestCase):
    def test_sigterm_ends_the_node_and_frees_the_ports(self):
        with Place() as place:
            master = place.master()
            supervisor = place.supervisor()
            with socket.create_connection(("127.0.0.1", place.port), timeout=20 * PATIENCE) as probe:
                greeting = json.loads(probe.makefile().readline())
            self.assertEqual(greeting["instance"], place.instance)
            self.assertEqual(master.end()[0], 0)
            self.assertFalse(lives(supervisor))
            self.assertFalse(os.path.exists(place.shm + "/arena.0"))
            self.assertEqual(place.master().end(signal.SIGINT)[0], 0)  # at once again

    def test_a_port_that_answers_has_its_node_behind_it(self):
        for disk in ((), ("--enable_offload", "--quota_bytes=256mb")):
            with Place() as place:
                master = place.master("--default_kv_lease_ttl=10s", *disk, wait=False, MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=place.directory + "/disk")
                deadline = time.monotonic() + 60 * PATIENCE
                while True:
                    self.assertLess(time.monotonic(), deadline)
                    self.assertIsNone(master.process.poll())
                    try:
                        socket.create_connection(("127.0.0.1", place.port), timeout=60 * PATIENCE).close()
                        break
                    except ConnectionRefusedError:
                        time.sleep(0.0005)
                done = subprocess.run([CTL, "exists", "key", *place.where], env=place.environment, capture_output=True, text=True, timeout=60 * PATIENCE,
                                      check=False)
                self.assertEqual((done.returncode, done.stderr), (1, ""))  # it asked the node, which does not have the key
                self.assertEqual(place.get("/health")[0], 200)

    def test_a_second_master_is_refused_by_name(self):
        with Place() as place:
            place.master()
            code, said = place.master(wait=False).wait()
            self.assertEqual(code, 1)
            self.assertIn(f"port {place.port}", said)
            self.assertIn("in use", said)
            other = free_port(), free_port()
            code, said = place.start(MASTER, f"--port={other[0]}", f"--metrics_port={place.admin}").wait()
            self.assertIn(f"port {place.admin}", said)
            code, said = place.start(MASTER, f"--port={other[0]}", f"--metrics_port={other[1]}", "--memory=64mb",
                                     SLUICE_INSTANCE=place.instance).wait()
            self.assertEqual(code, 1)
            self.assertIn("another mooncake_master", said)
            self.assertEqual(place.get("/health")[0], 200)

    def test_a_killed_master_leaves_its_node_to_the_next(self):
        with Place() as place:
            master = place.master()
            lender = place.lender()
            place.put("kept")
            supervisor = place.supervisor()
            master.end(signal.SIGKILL)
            self.assertEqual(place.ctl("get", "kept"), b"value")
            code, said = place.master("--eviction_ratio=0.3", wait=False).wait()  # other settings than it has
            self.assertEqual(code, 1, said)
            self.assertIn("evict_ratio", said)
            master = place.master()
            self.assertEqual(place.supervisor(), supervisor)
            self.assertEqual(place.get("/get_all_keys")[1], "kept\n")
            self.assertIsNone(lender.process.poll())
            code, said = master.end()
            self.assertEqual(code, 0, said)
            self.assertIn("it was already running", said)
            wait_until(lambda: not lives(supervisor), 10, "the adopted node has ended")

    def test_a_node_that_was_started_by_hand_since_is_nobody_elses(self):
        """A master that ended leaves the settings file."""
        with Place() as place:
            def node(*words):
                done = subprocess.run([NODE, *words, *place.where], env=dict(place.environment, SLUICE_BIN=BIN), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE)
                self.assertEqual(done.returncode, 0, done.stdout)

            for words, number in ((("start", "--memory", "64MiB"), signal.SIGTERM), (("restart", "--evict-ratio", "0.2"), signal.SIGKILL)):
                place.master().end(number)
                node(*words)
                supervisor = place.supervisor()
                code, said = place.master(wait=False).wait()
                self.assertEqual(code, 1, said)
                self.assertIn("it was not started by a mooncake_master", said)
                self.assertTrue(lives(supervisor))
                node("stop")
            place.master().end(signal.SIGKILL)
            node("restart")  # with its values
            supervisor = place.supervisor()
            place.master()
            self.assertEqual(place.supervisor(), supervisor)

    def test_a_dead_actor_comes_back_and_a_dead_supervisor_ends_the_master(self):
        with Place() as place:
            master = place.master()
            place.lender()
            place.put("kept")
            old = place.actor("registrar")
            os.kill(old, signal.SIGKILL)
            wait_until(lambda: os.path.exists(place.run + "/pid/registrar") and place.actor("registrar") not in (0, old), 10, "restarted")
            wait_until(lambda: place.get("/health")[0] == 200, 10, "serves again")
            self.assertEqual(place.get("/get_all_keys")[1], "kept\n")
            self.assertIsNone(master.process.poll())
            os.kill(place.supervisor(), signal.SIGKILL)
            code, said = master.wait()
            self.assertEqual(code, 1, said)
            self.assertIn("supervisor", said)
            place.master()  # takes over the memory that is left
            self.assertEqual(place.get("/get_all_keys")[1], "kept\n")

    def test_a_master_says_that_its_nodes_directory_was_removed_or_its_node_killed(self):
        # a killed supervisor whose mv was renaming a file leaves the mv, whose directory is removed: its last message
        for harm, words in ((lambda place: os.rename(place.run, place.run + ".gone"), "it.* was removed"),
                            (lambda place: os.kill(place.supervisor(), signal.SIGKILL), "(it.* ended without output|mv: cannot stat)")):
            with Place() as place:
                master = place.master()
                harm(place)
                code, said = master.wait()
                self.assertEqual(code, 1, said)
                self.assertRegex(said, f"(lost its supervisor|did not start): {words}")

    def test_leftovers_of_other_settings_are_removed(self):
        with Place() as place:
            master = place.master()
            os.kill(place.supervisor(), signal.SIGKILL)
            master.wait()
            place.master("--memory=32mb")
            self.assertEqual(os.stat(place.shm + "/arena.0").st_size >> 20 < 64, True)

    def test_memory_of_a_client_is_there_as_long_as_it_lives(self):
        with Place() as place:
            lender = place.lender(wait=False)  # before its master: it waits
            master = place.master()
            wait_until(lambda: os.path.exists(place.sign()), 20, "mooncake_client is ready")
            with open(place.sign(), encoding="utf-8") as sign:
                self.assertEqual(sign.read(), place.instance + "\n")
            self.assertEqual(place.get("/get_all_segments")[1], place.segment() + "\n")
            place.put("there")
            lender.end(signal.SIGKILL)
            wait_until(lambda: place.get("/get_all_segments")[1] == "", 10, "its segment is gone")
            wait_until(lambda: place.get("/get_all_keys")[1] == "", 10, "what was charged to it is gone")
            lender = place.lender("--enable_http_server", f"--http_port={place.client_http}")
            wait_until(lambda: place.get("/health", port=place.client_http)[0] == 200, 10, "its HTTP")
            self.assertIn("segment_total_capacity_bytes", place.get("/metrics", port=place.client_http)[1])
            self.assertEqual(place.get("/get_all_keys", port=place.client_http)[0], 404)
            master.end()
            self.assertEqual(place.get("/health", port=place.client_http)[0], 503)
            place.master()
            wait_until(lambda: place.get("/get_all_segments")[1] == place.segment() + "\n", 20, "contributed again")
            code, said = lender.end()
            self.assertEqual(code, 0, said)
            self.assertFalse(os.path.exists(place.sign()))
            self.assertEqual(place.get("/get_all_segments")[1], "")

    def test_names_that_a_cleaner_takes_are_made_again(self):
        """Files in /tmp, or in the runtime directory."""
        with Place() as place:
            master, lender = place.master(), place.lender()
            supervisor = place.supervisor()
            shutil.rmtree(os.path.dirname(place.sign()))
            for path in (place.run + "/mooncake-master.conf", place.run + "/mooncake-master.lock"):
                os.remove(path)
                wait_until(lambda path=path: os.path.exists(path), 10, f"{path} is made again")
            wait_until(lambda: os.path.exists(place.sign()), 10, "so is the sign")
            with open(place.sign(), encoding="utf-8") as sign:
                self.assertEqual(sign.read(), place.instance + "\n")
            code, said = place.start(MASTER, f"--port={free_port()}", f"--metrics_port={free_port()}", "--memory=64mb",
                                     SLUICE_INSTANCE=place.instance).wait()
            self.assertEqual(code, 1)
            self.assertIn("another mooncake_master", said)
            master.end(signal.SIGKILL)
            place.master()
            self.assertEqual(place.supervisor(), supervisor, "the next master knows what the node was started with")
            os.kill(lender.process.pid, signal.SIGSTOP)
            os.remove(place.sign())
            lender.process.send_signal(signal.SIGTERM)
            code, said = lender.end(signal.SIGCONT)
            self.assertEqual(code, 0, said)
            self.assertEqual(place.get("/get_all_segments")[1], "")

    def test_a_node_that_another_master_has_taken_is_left_to_it(self):
        with Place() as place:
            master, lock = place.master(), place.run + "/mooncake-master.lock"
            supervisor = place.supervisor()
            with open(lock + ".other", "w", encoding="utf-8") as other:
                fcntl.flock(other, fcntl.LOCK_EX)
                os.rename(lock + ".other", lock)  # as when a cleaner removed the name, and another process was faster
                code, said = master.wait()
            self.assertEqual(code, 1, said)
            self.assertIn("another mooncake_master runs node", said)
            place.master()
            self.assertEqual(place.supervisor(), supervisor)

    def test_memory_of_sessions_that_are_not_ended_comes_back(self):
        """One writer is silent, one is stopped. Neither may overwrite values that were put there since."""
        with Place() as place:
            place.master("--put_start_release_timeout_sec=4", "--default_kv_lease_ttl=0ms")
            place.lender("--global_segment_size=64mb")
            writers = [place.store_process(LEFT_SESSIONS, name) for name in ("idle", "stopped")]
            for writer in writers:
                if not writer.wait_line("open"):
                    self.skipTest("this build has no package that runs here")
            os.kill(writers[1].process.pid, signal.SIGSTOP)
            filler = place.store_process(FILL)
            self.assertTrue(filler.wait_line("filled"))
            os.kill(writers[1].process.pid, signal.SIGCONT)
            for process in (*writers, filler):
                self.assertEqual(process.end_by_line(), "")

    def test_what_a_client_cannot_have_is_told(self):
        with Place() as place:
            place.master()
            code, said = place.lender("--enable_offload", wait=False).wait()
            self.assertEqual(code, 1)
            self.assertIn("mooncake_master with --enable_offload", said)
            code, said = place.lender("--global_segment_size=1tb", wait=False).wait()
            self.assertEqual(code, 1, said)
            place.lender()
            code, said = place.lender(wait=False).wait()
            self.assertEqual(code, 1)
            self.assertIn(f"port {place.client}", said)

    def test_more_than_shared_memory_has_is_told(self):
        with Place() as place:
            room = os.statvfs("/dev/shm")
            master = place.master(f"--memory={2 * room.f_blocks * room.f_frsize}")
            code, said = place.lender(f"--global_segment_size={room.f_blocks * room.f_frsize + (1 << 30)}", wait=False).wait()
            self.assertEqual(code, 1, said)
            self.assertIn("df -h /dev/shm", said)
            place.lender()
            place.put("a")
            code, said = master.end()
            self.assertEqual(code, 0, said)
            self.assertIn("shared memory had only", said)

    def test_a_client_waits_for_the_node_that_joins_another_hosts_master(self):
        with Place() as place:
            waiting = place.start(CLIENT, "--port", str(place.client), "--master_server_address=192.0.2.1:1", "--enable_http_server",
                                  f"--http_port={place.client_http}", SLUICE_RUNTIME_DIR=place.directory + "/other", SLUICE_SHM_DIR=place.shm + "-other")
            self.assertIn("waiting for node 'mooncake-192-0-2-1-1'", waiting.process.stdout.readline())
            for port in (place.client, place.client_http):  # accepted, and not answered before there is a node
                with self.assertRaises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), timeout=60 * PATIENCE).close()
            self.assertEqual(waiting.end()[0], 0)
            self.assertFalse(os.path.exists(place.sign()))

    def test_a_disk_tier(self):
        with Place() as place:
            disk = place.directory + "/files"
            place.master("--enable_offload", "--quota_bytes=67108864", MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=disk)
            place.lender("--enable_offload")
            place.put("kept")
            place.ctl("flush")
            status, text, _ = place.get("/query_key?key=kept")
            self.assertEqual({row["type"] for row in json.loads(text)["data"]}, {"memory", "local_disk"}, text)
            self.assertIn("\nmaster_total_file_capacity_bytes 67108864\n", place.get("/metrics")[1])
            self.assertTrue(os.listdir(disk))

    def test_a_disk_directory_as_operators_make_it(self):
        with Place() as place:
            disk = place.directory + "/files"
            os.mkdir(disk)
            os.chmod(disk, 0o755)
            place.master("--quota_bytes=67108864", "--root_fs_dir", disk)
            place.lender()
            place.put("kept")
            place.ctl("flush")
            self.assertEqual(os.listdir(disk), [f"sluice-disk-{os.geteuid()}"])
            self.assertEqual(place.daemons[0].end()[0], 0)

    def test_a_disk_tier_that_cannot_work_ends_the_start(self):
        with Place() as place:
            file, open_to_all = place.directory + "/file", place.directory + "/open"
            with open(file, "w", encoding="utf-8"):
                pass
            os.mkdir(open_to_all)
            os.chmod(open_to_all, 0o777)
            for path, said in ((file, "is no directory"), (open_to_all, "others may write there"), ("/proc/none", "/proc/none")):
                with self.subTest(path=path):
                    started = time.monotonic()
                    master = place.master("--enable_offload", "--quota_bytes=67108864", wait=False,
                                          MOONCAKE_OFFLOAD_FILE_STORAGE_PATH=path)
                    code, text = master.wait()
                    self.assertLess(time.monotonic() - started, 10 * PATIENCE)
                    self.assertEqual(code, 1, text)
                    self.assertIn(said, text)
                    self.assertFalse(os.path.exists(place.shm), text)
                    self.assertEqual(place.get("/health")[0], 0)

    def test_many_who_say_nothing_hold_up_nobody(self):
        with Place() as place:
            place.master()
            idle = [socket.create_connection(("127.0.0.1", port), timeout=20 * PATIENCE)
                    for port in [place.admin] * 40 + [place.port] * 100]
            idle[0].sendall(b"GET /health HT")
            self.assertEqual(place.get("/health")[0], 200)
            started = time.monotonic()
            while idle[0].recv(4096):  # ends by itself
                self.assertLess(time.monotonic() - started, 60 * PATIENCE)
            for one in idle:
                one.close()
            self.assertEqual(place.get("/health")[0], 200)


if __name__ == "__main__":
    main()
