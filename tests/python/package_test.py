"""The package mooncake without its store: configuration, the metadata service, the engine, the store for asyncio, and how programs
are run. They need no node."""

import asyncio
import contextlib
import dataclasses
import errno
import http.client
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import python_support
from node_support import PATIENCE, free_port, main, wait_until

from mooncake import async_store, cli, engine, http_metadata_server, mooncake_config
from mooncake.mooncake_config import MooncakeConfig

VALUE_BYTES_MAX = 4 << 20
CONNECTIONS_MAX = 128  # from one address
REQUIRED = {"local_hostname": "h:1", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:50051"}


class Config(unittest.TestCase):
    def from_file(self, **given):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({**REQUIRED, **given}, file)
            file.flush()
            return MooncakeConfig.from_file(file.name)

    def from_environment(self, **given):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MOONCAKE_")}
        with mock.patch.dict(os.environ, {**kept, **given}, clear=True):
            return MooncakeConfig.load_from_env()

    def test_a_file_with_what_is_required_has_defaults_for_the_rest(self):
        self.assertEqual(dataclasses.asdict(self.from_file()), {
            **REQUIRED, "global_segment_size": 3355443200, "local_buffer_size": 1073741824, "protocol": "tcp",
            "device_name": "", "enable_ssd_offload": False, "ssd_offload_path": "", "tenant_id": "default",
            "enable_client_http_server": False, "client_http_port": 9300})

    def test_a_file_sets_everything(self):
        config = self.from_file(global_segment_size="4GB", local_buffer_size=0, protocol="RDMA", device_name="mlx5_0,mlx5_1",
                                enable_ssd_offload=True, ssd_offload_path="/d", tenant_id="t",
                                enable_client_http_server="yes", client_http_port="9400", mode="embedded", other=[1])
        self.assertEqual((config.global_segment_size, config.local_buffer_size, config.protocol, config.device_name),
                         (4 << 30, 0, "rdma", "mlx5_0,mlx5_1"))
        self.assertEqual((config.enable_ssd_offload, config.ssd_offload_path, config.tenant_id,
                          config.enable_client_http_server, config.client_http_port), (True, "/d", "t", True, 9400))

    def test_what_is_required_is_named_when_it_is_missing(self):
        for name in REQUIRED:
            for value in (None, "", "  "):
                with self.subTest(name=name, value=value), self.assertRaisesRegex(ValueError, name):
                    self.from_file(**{name: value})

    def test_what_is_no_settings_file_is_a_value_error(self):
        for text in ("", "[]", "3", "{", '"x"', "null"):
            with self.subTest(text=text), tempfile.NamedTemporaryFile("w") as file:
                file.write(text)
                file.flush()
                self.assertRaises(ValueError, MooncakeConfig.from_file, file.name)
        self.assertRaises(FileNotFoundError, MooncakeConfig.from_file, "/nowhere/x.json")

    def test_sizes(self):
        for value, size in ((0, 0), (7, 7), ("7", 7), (" 7 ", 7), ("7b", 7), ("1k", 1024), ("1KB", 1024), ("2 mb", 2 << 20),
                            ("2m", 2 << 20), ("80GB", 80 << 30), ("80 g", 80 << 30), ("1tb", 1 << 40), ("1T", 1 << 40),
                            ("1.5gb", 3 << 29), ("0.5b", 0), (4294967296.0, 1 << 32), ((1 << 64) - 1, (1 << 64) - 1)):
            with self.subTest(value=value):
                self.assertEqual(mooncake_config.parse_size(value), size)
                self.assertIs(type(mooncake_config.parse_size(value)), int)

    def test_what_is_no_size(self):
        for value in ("", "gb", "-1", -1, "50%", "1 2", "1gbit", "1.gb", ".5gb", "0x10", "1e9", True, None, [], 1.5,
                      float("nan"), float("inf"), 1 << 64, "99999999tb", "9" * 5000, "\u0663gb"):
            with self.subTest(value=value), self.assertRaises(ValueError):
                mooncake_config.parse_size(value)
        with self.assertRaisesRegex(ValueError, "local_buffer_size.*50%"):
            self.from_file(local_buffer_size="50%")

    def test_booleans_are_strict(self):
        for value, truth in ((True, True), (1, True), ("true", True), ("TRUE", True), (" on ", True), ("1", True), ("yes", True),
                             (False, False), (0, False), ("false", False), ("False", False), ("0", False), ("no", False),
                             ("off", False)):
            with self.subTest(value=value):
                self.assertIs(self.from_file(enable_ssd_offload=value).enable_ssd_offload, truth)
        for value in ("flase", "", "2", 2, -1, 1.0, [], {}):
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, "enable_ssd_offload"):
                self.from_file(enable_ssd_offload=value)

    def test_ports(self):
        for value in (0, 65536, -1, "x", "", 1.5, True, "99999999"):
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, "client_http_port"):
                self.from_file(client_http_port=value)

    def test_a_text_has_to_be_one(self):
        for name in ("local_hostname", "protocol", "tenant_id", "device_name"):
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, name):
                self.from_file(**{name: 3})

    def test_the_environment_alone(self):
        config = self.from_environment(MOONCAKE_MASTER="m:1")
        self.assertEqual((config.local_hostname, config.metadata_server, config.master_server_address, config.protocol),
                         ("localhost", "P2PHANDSHAKE", "m:1", "tcp"))
        config = self.from_environment(
            MOONCAKE_MASTER="m:1", MOONCAKE_LOCAL_HOSTNAME="h", MOONCAKE_TE_META_DATA_SERVER="http://x/metadata",
            MOONCAKE_GLOBAL_SEGMENT_SIZE="1gb", MOONCAKE_LOCAL_BUFFER_SIZE="16 MB", MOONCAKE_PROTOCOL="RDMA",
            MOONCAKE_DEVICE="d", MOONCAKE_OFFLOAD_ENABLED="true", MOONCAKE_OFFLOAD_FILE_STORAGE_PATH="/p",
            MOONCAKE_TENANT_ID="t", MOONCAKE_ENABLE_CLIENT_HTTP_SERVER="1", MOONCAKE_CLIENT_HTTP_PORT="9301")
        self.assertEqual(dataclasses.astuple(config),
                         ("h", "http://x/metadata", "m:1", 1 << 30, 16 << 20, "rdma", "d", True, "/p", "t", True, 9301))

    def test_an_empty_variable_is_none(self):
        config = self.from_environment(MOONCAKE_MASTER="m:1", MOONCAKE_OFFLOAD_ENABLED="", MOONCAKE_LOCAL_HOSTNAME="",
                                       MOONCAKE_CONFIG_PATH="")
        self.assertEqual((config.enable_ssd_offload, config.local_hostname), (False, "localhost"))

    def test_the_environment_names_what_is_wrong(self):
        with self.assertRaisesRegex(ValueError, "MOONCAKE_MASTER"):
            self.from_environment()
        with self.assertRaisesRegex(ValueError, "MOONCAKE_OFFLOAD_ENABLED"):
            self.from_environment(MOONCAKE_MASTER="m:1", MOONCAKE_OFFLOAD_ENABLED="flase")
        with self.assertRaisesRegex(ValueError, "MOONCAKE_LOCAL_BUFFER_SIZE"):
            self.from_environment(MOONCAKE_MASTER="m:1", MOONCAKE_LOCAL_BUFFER_SIZE="50%")

    def test_a_file_wins_over_variables(self):
        with tempfile.NamedTemporaryFile("w") as file:
            json.dump(REQUIRED, file)
            file.flush()
            config = self.from_environment(MOONCAKE_CONFIG_PATH=file.name, MOONCAKE_MASTER="other:1")
        self.assertEqual(config.master_server_address, "m:50051")


class MetadataService(unittest.TestCase):
    def setUp(self):
        self.server = http_metadata_server.MetadataServer("127.0.0.1", 0)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()
        self.addCleanup(self.end)

    def end(self):
        self.end_tending()
        self.server.server_close()

    def end_tending(self):
        self.server.shutdown()
        self.thread.join()

    def ask(self, method, path, body=None, headers=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.server.server_port, timeout=10 * PATIENCE)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def raw(self, line, headers, body):
        """The whole answer to these bytes, until the server ends the connection. None: it ended before all was read, and the
        system dropped the answer."""
        data = line + b"\r\nHost: h\r\n" + headers + b"\r\n" + body
        with socket.create_connection(("127.0.0.1", self.server.server_port), timeout=10 * PATIENCE) as connection:
            connection.sendall(data)
            with contextlib.suppress(OSError):  # it may have answered and closed before
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while True:
                try:
                    more = connection.recv(65536)
                except ConnectionResetError:
                    return answer or None
                if more == b"":
                    return answer
                answer += more

    def test_put_get_delete(self):
        self.assertEqual(self.ask("GET", "/metadata?key=a")[0], 404)
        self.assertEqual(self.ask("PUT", "/metadata?key=a", b'{"x": 1}')[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=a"), (200, b'{"x": 1}'))
        self.assertEqual(self.ask("PUT", "/metadata?key=a", b"2")[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=a"), (200, b"2"))
        self.assertEqual(self.ask("DELETE", "/metadata?key=a")[0], 200)
        self.assertEqual(self.ask("DELETE", "/metadata?key=a")[0], 404)
        self.assertEqual(self.ask("GET", "/metadata?key=a")[0], 404)

    def test_values_are_bytes_and_may_be_empty(self):
        self.assertEqual(self.ask("PUT", "/metadata?key=a", bytes(range(256)))[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=a"), (200, bytes(range(256))))
        self.assertEqual(self.ask("PUT", "/metadata?key=b", b"", {"Content-Length": "0"})[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=b"), (200, b""))

    def test_keys_are_stripped_and_decoded(self):
        self.assertEqual(self.ask("PUT", "/metadata?key=%20mooncake%2Fram%2Fh%3A1%20", b"1")[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=mooncake/ram/h:1"), (200, b"1"))

    def test_no_key_is_a_bad_request(self):
        for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
            for path in ("/metadata", "/metadata?key=", "/metadata?key=%20%20", "/metadata?other=1"):
                with self.subTest(method=method, path=path):
                    self.assertEqual(self.ask(method, path, body)[0], 400)

    def test_a_name_is_given_once(self):
        self.assertEqual(self.ask("PUT", "/metadata?key=mooncake/rpc_meta/h:1", b"1")[0], 200)
        self.assertEqual(self.ask("PUT", "/metadata?key=mooncake/rpc_meta/h:1", b"2")[0], 400)
        self.assertEqual(self.ask("GET", "/metadata?key=mooncake/rpc_meta/h:1"), (200, b"1"))
        self.assertEqual(self.ask("DELETE", "/metadata?key=mooncake/rpc_meta/h:1")[0], 200)
        self.assertEqual(self.ask("PUT", "/metadata?key=mooncake/rpc_meta/h:1", b"2")[0], 200)

    def test_one_connection_serves_many_requests(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=10 * PATIENCE)
        for i in range(20):
            connection.request("PUT", f"/metadata?key=k{i}", str(i))
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read() != b""), (200, True))
        connection.close()

    def test_threads_do_not_lose_each_others_keys(self):
        def put(thread):
            for i in range(20):
                self.assertEqual(self.ask("PUT", f"/metadata?key={thread}-{i}", f"{thread}.{i}")[0], 200)

        threads = [threading.Thread(target=put, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for thread in range(8):
            self.assertEqual(self.ask("GET", f"/metadata?key={thread}-19"), (200, f"{thread}.19".encode()))

    def test_hostile_requests_are_refused_by_status(self):
        put = b"PUT /metadata?key=a HTTP/1.1"
        for line, headers, body, status in (
                (b"GET / HTTP/1.1", b"", b"", 404), (b"GET /metadata/../etc?key=a HTTP/1.1", b"", b"", 404),
                (b"POST /metadata?key=a HTTP/1.1", b"", b"", 405), (b"BREW /metadata?key=a HTTP/1.1", b"", b"", 405),
                (b"nonsense", b"", b"", 400), (b"\x16\x03\x01\x00\xff", b"", b"", 400),
                (b"GET http://[/metadata?key=a HTTP/1.1", b"", b"", 400), (b"GET /metadata?key=%ff%fe HTTP/1.1", b"", b"", 404),
                (b"GET /metadata?key=%f HTTP/1.1", b"", b"", 400), (b"GET /metadata?key=%00 HTTP/1.1", b"", b"", 400),
                (b"GET /metadata?key=" + b"a" * 5000 + b" HTTP/1.1", b"", b"", 400), (b"GET /" + b"a" * 70000, b"", b"", 414),
                (b"GET /metadata?key=a HTTP/1.1", b"X: y\r\n" * 6000, b"", 431),
                (put, b"", b"", 411), (put, b"Transfer-Encoding: chunked\r\n", b"no number\r\n", 400),
                (put, b"Content-Length: -1\r\n", b"", 400), (put, b"Content-Length: 1x\r\n", b"", 400),
                (put, b"Content-Length: " + b"9" * 5000 + b"\r\n", b"", 413),
                (put, b"Content-Length: %d\r\n" % (VALUE_BYTES_MAX + 1), b"x" * (VALUE_BYTES_MAX + 1), 413)):
            with self.subTest(line=line[:60], headers=headers[:60]):
                answer = self.raw(line, headers, body)
                if answer is None:
                    self.assertIn(status, (413, 414, 431))
                else:
                    self.assertEqual(answer.split(b" ", 2)[1:2], [str(status).encode()])
        self.assertEqual(self.ask("GET", "/metadata?key=a")[0], 404)

    def test_a_request_names_its_host(self):
        with socket.create_connection(("127.0.0.1", self.server.server_port), timeout=10 * PATIENCE) as connection:
            connection.sendall(b"GET /metadata?key=a HTTP/1.1\r\n\r\n")
            self.assertIn(b" 400 ", connection.recv(100))

    def test_the_largest_value(self):
        self.assertEqual(self.ask("PUT", "/metadata?key=a", b"x" * VALUE_BYTES_MAX)[0], 200)
        self.assertEqual(self.ask("GET", "/metadata?key=a"), (200, b"x" * VALUE_BYTES_MAX))

    def test_a_body_that_never_comes_changes_nothing(self):
        self.assertEqual(self.raw(b"PUT /metadata?key=a HTTP/1.1", b"Content-Length: 100\r\n", b"short"), b"")
        self.assertEqual(self.ask("GET", "/metadata?key=a")[0], 404)

    def test_the_whole_is_bounded(self):
        with mock.patch.object(http_metadata_server, "TOTAL_BYTES_MAX", 1000):
            server = http_metadata_server.MetadataServer("127.0.0.1", 0)
        with server:
            self.assertEqual(self.ask("PUT", "/metadata?key=a", b"x" * 800, port=server.server_port)[0], 200)
            self.assertEqual(self.ask("PUT", "/metadata?key=b", b"x" * 400, port=server.server_port)[0], 507)
            self.assertEqual(self.ask("PUT", "/metadata?key=a", b"x" * 10, port=server.server_port)[0], 200)
            self.assertEqual(self.ask("PUT", "/metadata?key=b", b"x" * 400, port=server.server_port)[0], 200)

    def test_writes_need_the_token_that_is_set(self):
        token = {"MOONCAKE_ADMIN_TOKEN": "a-token-of-16-bytes-or-more"}
        right = {"Authorization": "Bearer " + token["MOONCAKE_ADMIN_TOKEN"]}
        for metadata_open, without in ((False, 401), (True, 200)):
            with mock.patch.dict(os.environ, token):
                server = http_metadata_server.MetadataServer("127.0.0.1", 0, metadata_open)
            with server:
                def ask(method, headers):
                    return self.ask(method, "/metadata?key=a", b"x" if method == "PUT" else None, headers, server.server_port)[0]
                self.assertEqual(ask("PUT", {}), without)
                self.assertEqual(ask("PUT", {"Authorization": "Bearer another-token-than-it"}), without)
                self.assertEqual(ask("PUT", right), 200)
                self.assertEqual(ask("GET", {}), 200)
                self.assertEqual(ask("DELETE", {}), without)
        for wrong in ({"MOONCAKE_ADMIN_TOKEN": "short"}, {"MOONCAKE_ADMIN_TOKEN_FILE": "/there/is/none"}):
            with mock.patch.dict(os.environ, wrong), self.assertRaises(OSError):
                http_metadata_server.MetadataServer("127.0.0.1", 0)

    def test_connections_are_bounded_and_given_back(self):
        held = [socket.create_connection(("127.0.0.1", self.server.server_port)) for _ in range(CONNECTIONS_MAX)]
        with socket.create_connection(("127.0.0.1", self.server.server_port), timeout=5 * PATIENCE) as further:
            self.assertEqual(further.recv(1), b"")
        for connection in held:
            connection.close()

        def served():
            try:
                return self.ask("GET", "/metadata?key=a")[0] == 404
            except (OSError, http.client.HTTPException):
                return False
        wait_until(served, 10, "connections that ended make room")

    def test_a_request_that_drips_is_ended(self):
        with mock.patch.object(http_metadata_server.http, "REQUEST_S", 1), \
                socket.create_connection(("127.0.0.1", self.server.server_port), timeout=10 * PATIENCE) as slow:
            ended = False
            slow.settimeout(0.05)
            for _ in range(int(200 * PATIENCE)):
                try:
                    slow.send(b"G")
                    if slow.recv(1) == b"":
                        ended = True
                        break
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
                    break
            self.assertTrue(ended)

    def test_a_child_of_fork_leaves_the_server_alone(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=10 * PATIENCE)
        connection.request("GET", "/metadata?key=a")
        self.assertEqual((connection.getresponse().read() != b"", connection.sock is not None), (True, True))
        self.end_tending()  # a fork under a sanitizer waits until all threads rest, and it runs every 20 ms
        child = python_support.fork()
        if child == 0:
            self.server.server_close()
            os._exit(7)
        self.assertEqual(os.waitpid(child, 0)[1], 7 << 8)
        connection.auto_open = False  # the connection of before
        connection.request("GET", "/metadata?key=a")
        self.assertEqual(connection.getresponse().status, 404)
        connection.close()

    def test_a_closed_server_gives_its_port_back(self):
        with http_metadata_server.MetadataServer("127.0.0.1", 0) as first:
            with self.assertRaises(OSError) as caught:
                http_metadata_server.MetadataServer("127.0.0.1", first.server_port)
            self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
        with http_metadata_server.MetadataServer("127.0.0.1", first.server_port) as second:
            self.assertEqual(self.ask("GET", "/metadata?key=a", port=second.server_port)[0], 404)
        for _ in range(20):  # as soon as it exists, even before it serves
            http_metadata_server.MetadataServer("127.0.0.1", first.server_port).server_close()

    def test_the_program_listens_and_ends_when_it_is_told(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = str(other.getsockname()[1])
            environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(http_metadata_server.__file__))}
            if python_support.LIBASAN:
                environment.update(LD_PRELOAD=python_support.LIBASAN, ASAN_OPTIONS="detect_leaks=0")
            command = [sys.executable, "-m", "mooncake.http_metadata_server", "--host", "127.0.0.1", "--port"]
            refused = subprocess.run([*command, taken], env=environment, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            self.assertIn("cannot listen on 127.0.0.1:" + taken, refused.stderr)
            process = subprocess.Popen([*command, "0"], env=environment, stderr=subprocess.PIPE, text=True)
            self.assertIn("listening on 127.0.0.1:", process.stderr.readline())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(10 * PATIENCE), 0)
            process.stderr.close()


class Engine(unittest.TestCase):
    def started(self, hostname="localhost", metadata="P2PHANDSHAKE"):
        made = engine.TransferEngine()
        self.assertEqual(made.initialize(hostname, metadata, "rdma", "mlx5_0"), 0)
        return made

    def test_a_port_of_its_own_in_the_range(self):
        engines = [self.started() for _ in range(8)]
        ports = [one.get_rpc_port() for one in engines]
        self.assertEqual(len(set(ports)), 8)
        for port in ports:
            self.assertTrue(15000 <= port <= 17000, port)
            with socket.socket() as other:
                self.assertRaises(OSError, other.bind, ("", port))
                self.assertNotEqual(other.connect_ex(("127.0.0.1", port)), 0)

    def test_the_port_is_free_again_afterwards(self):
        one = self.started()
        port = one.get_rpc_port()
        del one
        with socket.socket() as other:
            other.bind(("", port))

    def test_the_inner_engine_keeps_the_port(self):
        one = self.started()
        port, inner = one.get_rpc_port(), one.get_engine()
        del one
        with socket.socket() as other:
            self.assertRaises(OSError, other.bind, ("", port))
        self.assertIsInstance(inner, engine.InnerTransferEngine)

    def test_the_range_is_the_environments(self):
        free = free_port()
        with mock.patch.dict(os.environ, MC_MIN_RPC_PORT=str(free), MC_MAX_RPC_PORT=str(free)):
            self.assertEqual(self.started().get_rpc_port(), free)
        with mock.patch.dict(os.environ, MC_MIN_PRC_PORT=str(free), MC_MAX_PRC_PORT=str(free)):
            one = self.started()
            self.assertEqual(one.get_rpc_port(), free)
            self.assertEqual(engine.TransferEngine().initialize("h", "P2PHANDSHAKE", "tcp", ""), -1)  # all are taken

    def test_a_range_without_sense_fails(self):
        for low, high in (("2", "1"), ("x", "2"), ("0", "5"), ("1", "65536"), ("9" * 5000, "5")):
            with self.subTest(low=low[:9], high=high), mock.patch.dict(os.environ, MC_MIN_RPC_PORT=low, MC_MAX_RPC_PORT=high):
                self.assertEqual(engine.TransferEngine().initialize("h", "P2PHANDSHAKE", "tcp", ""), -1)

    def test_an_explicit_port_counts_where_nobody_shakes_hands(self):
        free = free_port()
        for host in (f"localhost:{free}", f"[::1]:{free}"):
            one = self.started(host, "http://localhost:8080/metadata")
            self.assertEqual(one.get_rpc_port(), free)
            del one
        self.assertTrue(15000 <= self.started(f"localhost:{free}").get_rpc_port() <= 17000)
        self.assertTrue(15000 <= self.started("fe80::1", "etcd://x").get_rpc_port() <= 17000)
        for host in ("h:", "h:0", "h:x", "h:65536"):
            self.assertEqual(engine.TransferEngine().initialize(host, "etcd://x", "tcp", ""), -1, host)

    def test_initialized_once(self):
        one = self.started()
        self.assertEqual(one.initialize("h", "P2PHANDSHAKE", "tcp", ""), -1)
        self.assertEqual(engine.TransferEngine().initialize_ext("h", "P2PHANDSHAKE", "tcp", "", "P2PHANDSHAKE"), 0)

    def test_without_initialize(self):
        one = engine.TransferEngine()
        self.assertEqual((one.get_rpc_port(), one.get_engine(), one.register_memory(4096, 1), one.unregister_memory(4096),
                          one.batch_register_memory([], []), one.batch_unregister_memory([])), (0, None, -1, -1, -1, -1))

    def test_memory(self):
        one = self.started()
        self.assertEqual(one.register_memory(0x1000, 0x1000), 0)
        self.assertEqual(one.register_memory(0x2000, 0x1000, "cuda:0"), 0)
        for start, length in ((0x1000, 0x1000), (0x1800, 1), (0xfff, 2), (0x1, 0x10000), (0x2fff, 1)):
            self.assertEqual(one.register_memory(start, length), -1, (start, length))
        self.assertEqual(one.unregister_memory(0x1800), -1)
        self.assertEqual((one.unregister_memory(0x1000), one.unregister_memory(0x1000)), (0, -1))
        self.assertEqual(one.register_memory(0x1800, 0x800), 0)

    def test_ranges_that_make_no_sense(self):
        one = self.started()
        for start, length in ((0, 1), (-1, 1), (1, 0), (1, -1), (1 << 64, 1), ((1 << 64) - 1, 2), (1, 1 << 64)):
            self.assertEqual(one.register_memory(start, length), -1, (start, length))
        self.assertEqual(one.register_memory((1 << 64) - 1, 1), 0)
        for wrong in ("1", None, 1.0):
            self.assertRaises(TypeError, one.register_memory, wrong, 1)
            self.assertRaises(TypeError, one.register_memory, 1, wrong)
            self.assertRaises(TypeError, one.unregister_memory, wrong)

    def test_batches_are_all_or_none(self):
        one = self.started()
        self.assertEqual(one.batch_register_memory([100, 200], [50, 50]), 0)
        self.assertEqual(one.batch_register_memory([300, 400, 110], [50, 50, 1]), -1)
        self.assertEqual(one.batch_register_memory([300], [50, 60]), -1)
        self.assertEqual(one.batch_register_memory([300, 300], [50, 50]), -1)
        self.assertEqual(one.batch_unregister_memory([100, 300]), -1)
        self.assertEqual(one.batch_unregister_memory([100, 100]), -1)
        self.assertEqual(one.batch_register_memory([300], [50]), 0)
        self.assertEqual(one.batch_unregister_memory([100, 200, 300]), 0)
        self.assertEqual(one.batch_register_memory([], []), 0)

    def test_transfers_are_absent_by_name(self):
        one = self.started()
        for name in ("transfer_sync_write", "transfer_sync_read", "batch_transfer_sync_write", "batch_transfer_sync_read",
                     "transfer_sync", "batch_transfer_sync", "batch_transfer_async_write", "transfer_submit_write",
                     "transfer_check_status", "send_probe", "get_notifies", "get_engine_ptr"):
            self.assertFalse(hasattr(one, name))
            with self.assertRaisesRegex(AttributeError, name):
                getattr(one, name)

    def test_the_classes_are_closed(self):
        one = self.started()
        with self.assertRaises(AttributeError):
            one.anything = 1
        with self.assertRaises(AttributeError):
            one.get_engine().anything = 1
        self.assertRaises(TypeError, engine.InnerTransferEngine)
        self.assertRaises(TypeError, one.initialize, "h", "P2PHANDSHAKE", "tcp")
        self.assertRaises(TypeError, one.initialize, 1, "P2PHANDSHAKE", "tcp", "")

    def test_names(self):
        self.assertEqual([opcode.name for opcode in engine.TransferOpcode], ["Read", "Write"])
        notify = engine.TransferNotify("a", "b")
        self.assertEqual((notify.name, notify.msg), ("a", "b"))

    def test_topology(self):
        topology = json.loads(engine.TransferEngine().get_local_topology())
        self.assertTrue(topology)
        for name, (near, far) in topology.items():
            self.assertRegex(name, "^cpu:[0-9]+$")
            self.assertFalse(set(near) & set(far))

    def test_topology_of_a_machine_with_devices(self):
        with tempfile.TemporaryDirectory() as directory:
            for device, node in (("mlx5_0", "0"), ("mlx5_1", "1"), ("mlx5_2", "-1")):
                os.makedirs(f"{directory}/ib/{device}/device")
                with open(f"{directory}/ib/{device}/device/numa_node", "w", encoding="ascii") as file:
                    file.write(node + "\n")
            for node in ("node0", "node1", "nodes", "possible"):
                os.makedirs(f"{directory}/cpu/{node}")
            with mock.patch.multiple(engine, _DEVICES=directory + "/ib", _CPUS=directory + "/cpu"):
                self.assertEqual(json.loads(engine.TransferEngine().get_local_topology()),
                                 {"cpu:0": [["mlx5_0"], ["mlx5_1", "mlx5_2"]], "cpu:1": [["mlx5_1"], ["mlx5_0", "mlx5_2"]]})

    def test_threads_share_an_engine(self):
        one, failures = self.started(), []

        def work(thread):
            for i in range(200):
                start = 1 + thread * 1000 + i
                if one.register_memory(start, 1) != 0 or one.unregister_memory(start) != 0:
                    failures.append(start)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class FakeStore:
    """An async store can wrap any object with methods."""

    def __init__(self):
        self.values, self.begin, self.go, self.ended = {}, threading.Event(), threading.Event(), False
        self.number = 3

    def put(self, key, value, config=None):
        """Puts it."""
        self.values[key] = (value, config)
        return 0

    def get(self, key):
        return self.values.get(key, (b"",))[0]

    def fail(self):
        raise RuntimeError("as the store said")

    def slow(self):
        self.begin.set()
        self.go.wait(60 * PATIENCE)
        self.ended = True
        return "late"


class AsyncStore(unittest.TestCase):
    def setUp(self):
        self.fake = FakeStore()
        self.store = async_store.MooncakeDistributedStoreAsync(self.fake, max_workers=1)

    def test_every_method_with_keywords(self):
        async def body():
            self.assertEqual(await self.store.async_put("a", b"1", config="c"), 0)
            return await self.store.async_get(key="a")
        self.assertEqual(asyncio.run(body()), b"1")
        self.assertEqual(self.fake.values["a"], (b"1", "c"))

    def test_the_plain_methods_are_there_too(self):
        self.assertEqual(self.store.put("a", b"2"), 0)
        self.assertEqual((self.store.get("a"), self.store.number), (b"2", 3))
        self.assertIn("async_put", dir(self.store))
        self.assertNotIn("async_number", dir(self.store))
        self.assertEqual((self.store.async_put.__name__, self.store.async_put.__doc__), ("async_put", "Puts it."))

    def test_what_the_store_has_not_the_async_one_has_not(self):
        for name in ("async_nothing", "async_number", "nothing", "async_", "__fspath__"):
            self.assertFalse(hasattr(self.store, name), name)

    def test_exceptions_arrive(self):
        with self.assertRaisesRegex(RuntimeError, "as the store said"):
            asyncio.run(self.store.async_fail())

    def test_the_loop_turns_while_a_call_runs(self):
        async def body():
            call = asyncio.ensure_future(self.store.async_slow())
            while not self.fake.begin.is_set():
                await asyncio.sleep(0.01)
            self.assertFalse(call.done())
            self.fake.go.set()
            return await call
        self.assertEqual(asyncio.run(body()), "late")

    def test_a_cancelled_call_ends_before_its_coroutine_does(self):
        async def body():
            call = asyncio.ensure_future(self.store.async_slow())
            while not self.fake.begin.is_set():
                await asyncio.sleep(0.01)
            for _ in range(3):
                call.cancel()
                await asyncio.sleep(0.01)
            self.assertFalse(call.done())
            self.fake.go.set()
            with self.assertRaises(asyncio.CancelledError):
                await call
            self.assertTrue(self.fake.ended)
        asyncio.run(body())

    def test_a_call_that_has_not_begun_is_dropped(self):
        async def body():
            first = asyncio.ensure_future(self.store.async_slow())
            while not self.fake.begin.is_set():
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(self.store.async_put("b", b""))
            await asyncio.sleep(0.01)
            second.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await second
            self.fake.go.set()
            await first
        asyncio.run(body())
        self.assertNotIn("b", self.fake.values)


class Programs(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.write("sluicectl", "#!/bin/sh\necho \"$@\"; exit 7\n", 0o755)
        self.write("data", "x", 0o644)

    def write(self, name, text, mode):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def run_cli(self, *arguments):
        code = f"import sys; from mooncake import cli; cli._BIN = {self.directory.name!r}; " + arguments[0]
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(cli.__file__))}
        return subprocess.run([sys.executable, "-c", code, *arguments[1:]], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=60 * PATIENCE)

    def test_a_script_becomes_its_program(self):
        done = self.run_cli("cli.main_ctl()", "--port", "1", "a b")
        self.assertEqual((done.stdout, done.returncode), ("--port 1 a b\n", 7))

    def test_a_program_that_is_not_there_is_named(self):
        done = self.run_cli("cli.main_node()")
        self.assertEqual(done.returncode, 127)
        self.assertIn("sluice-node: this package has no such program; it has: sluicectl", done.stderr)

    def test_nothing_outside_of_the_package_is_run(self):
        with mock.patch.object(cli, "_BIN", self.directory.name):
            self.assertEqual(cli.programs(), ["sluicectl"])
            for name in ("../sluicectl", "/bin/sh", "data", "", ".", ".."):
                self.assertRaises(FileNotFoundError, cli.program_path, name)


class Namespace(unittest.TestCase):
    def test_other_wheels_may_add_to_it(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(directory + "/mooncake")
            with open(directory + "/mooncake/__init__.py", "w", encoding="ascii"), \
                    open(directory + "/mooncake/further.py", "w", encoding="ascii") as file:
                file.write("here = True\n")
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(
                [os.path.dirname(os.path.dirname(cli.__file__)), directory])}
            done = subprocess.run([sys.executable, "-c", "import mooncake.further, mooncake.engine; print(mooncake.further.here)"],
                                  env=environment, stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.stdout, "True\n")

    def test_what_is_not_built_yet_is_not_pretended(self):
        package = importlib.import_module("mooncake")
        self.assertFalse(hasattr(package, "BufferPool"))


if __name__ == "__main__":
    main()
