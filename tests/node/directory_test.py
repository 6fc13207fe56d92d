"""The cluster directory of a real node: its published keys, and a server that dies; and sluicectl doctor."""

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest

from node_support import BIN, CTL, PATIENCE, Node, free_port, main, wait_until
from upgrade_support import programs_copied


class Redis:
    """A redis-server on a Unix socket of its own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="sl-redis-")
        self.socket = self.directory + "/redis"
        self.process = None

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.directory,
                                         "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def say(self, *words):
        """The reply to one command, raw."""
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words) + "*1\r\n$4\r\nQUIT\r\n"
        reply = b""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(self.socket)
                connection.sendall(request.encode())
                while chunk := connection.recv(65536):
                    reply += chunk
        except (FileNotFoundError, ConnectionError):
            return b""  # the socket does not exist yet
        return reply[:-len(b"+OK\r\n")]

    def key_count(self):
        return self.say("KEYS", "sluice:*:k:*").count(b"sluice:")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def transporter(node):
    pages = json.loads(node.ctl("status", "--json", check=False).stdout)["actors"]
    return next(page for page in pages if page["name"] == "transporter.0")


def settings(redis):
    # The time limit is generous: this test is about a server that is down, not about a slow one.
    return ["--directory", "redis", "--directory-url", "unix://" + redis.socket, "--directory-timeout", "30s",
            "--directory-name", "test", "--node-name", "node-a"]


@unittest.skipIf(shutil.which("redis-server") is None, "skipped: redis-server is not installed (deploy/install --test)")
class Directory(unittest.TestCase):
    def test_what_a_node_holds_is_published_and_withdrawn(self):
        with Redis() as redis, Node(ranks=1, settings=settings(redis)) as node:
            for key in ("one", "two", "three"):
                node.ctl("put", key, stdin=key.encode())
            wait_until(lambda: redis.key_count() == 3, 20, "three keys in redis")
            wait_until(lambda: b"\r\n1 " in redis.say("GET", "sluice:test:n:node-a"), 20, "its record")
            node.ctl("rm", "two")
            wait_until(lambda: redis.key_count() == 2, 20, "two keys in redis")
            node.stop()
            self.assertEqual(redis.say("GET", "sluice:test:n:node-a"), b"$-1\r\n")  # it withdrew its record

    def test_a_server_that_dies_degrades_and_comes_back(self):
        with Redis() as redis, Node(ranks=1, settings=settings(redis)) as node:
            node.ctl("put", "one", stdin=b"1")
            wait_until(lambda: redis.key_count() == 1, 20, "one key in redis")
            redis.kill()
            wait_until(lambda: transporter(node)["health"] == "degraded", 20, "degraded")
            node.ctl("put", "two", stdin=b"2")
            self.assertEqual(node.ctl("get", "one").stdout, b"1")
            redis.start()
            wait_until(lambda: transporter(node)["health"] == "ready", 20, "ready again")
            wait_until(lambda: redis.key_count() == 2, 20, "everything published again")

    def test_a_node_starts_without_its_server(self):
        redis = Redis()
        with redis:
            redis.kill()
            with Node(ranks=1, settings=settings(redis)) as node:
                node.ctl("put", "one", stdin=b"1")
                self.assertEqual(node.ctl("get", "one").stdout, b"1")
                redis.start()
                wait_until(lambda: redis.key_count() == 1, 20, "published after all")


def doctor_lines(*words):
    node = Node()
    try:
        done = node.ctl("doctor", "--json", *words, check=False)
        return done.returncode, json.loads(done.stdout)["checks"]
    finally:
        shutil.rmtree(node.directory, ignore_errors=True)


def doctor(*words):
    code, lines = doctor_lines(*words)
    return code, {line["check"]: line for line in lines}


class Doctor(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="sl-doctor-")
        self.addCleanup(shutil.rmtree, self.directory)

    def test_each_fault_is_found_and_has_a_remedy(self):
        open_file = self.directory + "/open"
        with open(open_file, "w", encoding="utf-8") as out:
            out.write("secret\n")
        os.chmod(open_file, 0o644)
        taken = socket.socket()
        self.addCleanup(taken.close)
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        free = free_port()
        node_a = ["--fabric", "tcp", "--cluster-listen", f"127.0.0.1:{free}", "--node-name", "a"]
        keys, shared = self.directory + "/keys", self.directory + "/shared"
        for name in ("a", "b", "open", "empty", "other"):
            subprocess.run([CTL, "keygen", keys, name], check=True, stdout=subprocess.DEVNULL)
        os.chmod(keys + "/open.secret", 0o644)
        with open(keys + "/empty.secret", "w", encoding="utf-8") as out:
            out.write("public = nonsense\n")
        shutil.copy(keys + "/b.pub", keys + "/other.pub")
        shutil.copytree(keys, shared)
        os.chmod(shared, 0o777)
        cases = (
            ("memory", ["--memory", "16TiB"], "free"),
            ("disk", ["--disk", "7TiB", "--disk-path", self.directory], "free"),
            ("disk", ["--disk", "1024TiB", "--disk-path", self.directory], "8000 GiB a path"),
            ("disk", ["--disk", "14TiB", "--disk-path", f"{self.directory}/a,{self.directory}/b"], "free"),
            ("disk_direct", ["--disk", "1MiB", "--disk-path", "/proc/nothing"], "cannot write"),
            ("key_files", ["--directory-password-file", self.directory + "/none"], "No such file"),
            ("key_files", ["--directory-password-file", open_file], "users other than its owner"),
            ("key_files", ["--peers-file", shared + "/b.pub"], "0777"),
            ("ports", ["--fabric", "tcp", "--fabric-address", f"127.0.0.1:{port}"], "in use"),
            ("ports", ["--fabric", "tcp", "--fabric-address", "192.0.2.1:4000"], "192.0.2.1"),
            ("ports", ["--fabric", "tcp", "--fabric-address", "nonsense"], "not an address"),
            ("ports", ["--fabric", "tcp", "--fabric-address", f"127.0.0.1:{free}, 192.0.2.1:4000"], "192.0.2.1:4000"),
            ("ports", ["--fabric", "tcp", "--fabric-address", f"127.0.0.1:{free},"], "'' is not an address"),
            ("ports", ["--cluster-listen", f"127.0.0.1:{port}"], "in use"),
            ("ports", ["--cluster-listen", f"*:{port}"], "in use"),
            ("ports", ["--cluster-listen", f"lo:{port}"], "in use"),
            ("ports", ["--cluster-listen", "192.0.2.1:4000"], "192.0.2.1"),
            ("ports", ["--cluster-listen", "127.0.0.1"], "not an address"),
            ("ports", ["--cluster-listen", "nowhere:1"], "not an address"),
            ("ports", ["--directory", "redis", "--cluster-listen", "*:0"], "not an address"),
            ("ports", ["--directory", "redis", "--cluster-listen", f"*:{free}"], "announce to other"),
            ("ports", ["--directory", "redis", "--cluster-listen", f"127.0.0.1:{free}", "--cluster-address", "host:1"],
             "cluster_address"),
            ("cluster_keys", ["--cluster-listen", f"127.0.0.1:{free}"], "nothing carries bytes"),
            ("cluster_keys", [*node_a], "has no keys"),
            ("cluster_keys", [*node_a, "--cluster-keys", keys, "--peers", "b@h:1,b@h:2"], "'b' is listed twice"),
            ("cluster_keys", [*node_a[:-1], "a b", "--cluster-keys", keys], "node_name"),
            ("cluster_keys", [*node_a, "--cluster-keys", self.directory + "/none"], "No such file"),
            ("cluster_keys", [*node_a, "--cluster-keys", shared], "can connect"),
            ("cluster_keys", [*node_a[:-1], "z", "--cluster-keys", keys], "z.secret"),
            ("cluster_keys", [*node_a[:-1], "open", "--cluster-keys", keys], "0600"),
            ("cluster_keys", [*node_a[:-1], "empty", "--cluster-keys", keys], "no pair"),
            ("cluster_keys", [*node_a[:-1], "other", "--cluster-keys", keys], "not the public half"),
            ("directory", ["--directory", "redis", "--directory-url", f"unix://{self.directory}/none"], "connect"),
            ("directory", ["--directory", "redis", "--directory-url", "redis://name:1"], "no IP address"),
            ("directory", ["--directory", "redis", "--directory-url", f"redis://127.0.0.1:{port}",
                           "--directory-timeout", "50ms"], "no answer"),
        )
        for check, words, text in cases:
            with self.subTest(check=check, words=words):
                code, lines = doctor_lines(*words)
                self.assertEqual(code, 1)
                failed = [line for line in lines if (line["check"], line["level"]) == (check, "fail")]
                self.assertTrue(any(text in line["text"] for line in failed), lines)
                self.assertTrue(all(line["mend"] != "" for line in failed), lines)

    def test_a_directory_that_is_none_is_named_before_a_start(self):
        for url, code, said in (("", 1, "expected redis://"), ("foo", 2, "begins with neither redis:// nor unix://"),
                                ("redis://127.0.0.1:99999", 1, "no port"), ("redis://name:a-pass-word@host:1", 1, "no IP address")):
            with self.subTest(url=url):
                done = subprocess.run([CTL, "config", "--check", "--directory", "redis"], capture_output=True, text=True, check=False,
                                      env={**os.environ, "SLUICE_DIRECTORY_URL": url})
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertNotIn("a-pass-word", done.stderr)

    def test_no_node_starts_with_what_others_could_have_put_there(self):
        keys = self.directory + "/keys"
        subprocess.run([CTL, "keygen", keys, "a"], check=True, stdout=subprocess.DEVNULL)
        files = {name: f"{self.directory}/{name}" for name in ("password", "peers", "token", "conf")}
        for name in files.values():
            with open(name, "w", encoding="utf-8") as out:
                out.write("a text of some length\n")
            os.chmod(name, 0o600)
        with open(files["conf"], "w", encoding="utf-8") as out:
            out.write("directory_url = redis://user:a-pass-word@127.0.0.1:1/0\n")
        settings = ["--fabric", "tcp", "--cluster-listen", "127.0.0.1:1", "--node-name", "a", "--cluster-keys", keys,
                    "--directory-password-file", files["password"], "--peers-file", files["peers"], "--config", files["conf"]]
        cases = ((keys, 0o777, "keys"), (keys, 0o772, "keys"), (keys + "/a.secret", 0o644, "a.secret"),
                 (files["password"], 0o660, "directory_password_file"), (files["peers"], 0o646, "peers_file"),
                 (files["token"], 0o604, "SLUICE_METRICS_TOKEN_FILE"), (files["conf"], 0o644, "config: '"), (files["conf"], 0o660, "config: '"), (self.directory, 0o777, "directory"))
        for path, mode, said in cases:
            with self.subTest(path=path, mode=oct(mode)):
                node = Node(ranks=1, settings=settings)
                node.environment["SLUICE_METRICS_TOKEN_FILE"] = files["token"]
                before = os.stat(path).st_mode & 0o7777
                os.chmod(path, mode)
                check = subprocess.run([CTL, "config", "--check", *settings], capture_output=True, text=True, check=False,
                                       env={**os.environ, "SLUICE_METRICS_TOKEN_FILE": files["token"]})
                self.assertEqual(check.returncode, 1)  # a restart checks this before it stops running processes
                self.assertIn(f"mode {mode:04o}", check.stderr)
                try:
                    with node:
                        self.fail("it started")
                except AssertionError as error:
                    self.assertIn("gave 1:", str(error))
                    self.assertIn(said, str(error))
                    self.assertIn(f"mode {mode:04o}", str(error))
                    self.assertNotIn("a-pass-word", str(error))
                    self.assertEqual("chgrp" in str(error), path == files["conf"] and mode & 0o27 != 0, error)
                finally:
                    os.chmod(path, before)

    def test_a_password_in_a_url_is_said_to_nobody(self):
        conf = self.directory + "/conf"
        for url, shown in (("redis://user:a-pass-word@127.0.0.1:1/0", "redis://user:***@127.0.0.1:1/0"), ("redis://a-pass-word@127.0.0.1:1", "redis://***@127.0.0.1:1"),
                           ("redis://u:a-pass/word@x:1", "redis://u:***@x:1"), ("redis://u:p@a-pass-word@x:1", "redis://u:***@x:1"),
                           ("redis://a/b:a-pass-word@x:1", "redis://a/b:***@x:1"), ("redis://a-pass/word@x:1", "redis://***@x:1"), ("u:a-pass-word@x:1", None),
                           ("redis:u:a-pass-word@x:1", None), ("redis:/u:a-pass-word@x:1", None), ("redis://u:a-pass-word@127.0.0.1/" + "x" * 1100, None), ("redis://u:a-pass-word@127.0.0.1:99999", None),
                           ("redis://u:a-pass-word@a.name:1", None), ("redis://u:a-pass-word%zz@127.0.0.1:1", None)):
            with open(conf, "w", encoding="utf-8") as out:
                out.write(f"directory_url = {url}\n")
            os.chmod(conf, 0o600)
            for words, known in ((["config"], True), (["config", "--json"], True), (["config", "--plain"], True), (["config", "--null"], True), (["doctor"], False),
                                 (["doctor", "--json"], False), (["status"], False)):
                for sources, environment in ((["--config", conf], {}), ([], {"SLUICE_DIRECTORY_URL": url}), (["--directory-url", url], {})):
                    with self.subTest(url=url[:60], words=words, sources=sources[:1]):
                        done = subprocess.run([CTL, *words, "--directory", "redis", "--instance", f"none-{os.getpid()}", *sources], stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE, check=False, env={**os.environ, **environment})
                        self.assertNotIn("a-pass", done.stdout)
                        self.assertNotIn("word@", done.stdout)
                        if shown and known and sources[:1] != ["--directory-url"]:
                            self.assertIn(shown, done.stdout.replace("\\/", "/"))
        done = subprocess.run([CTL, "config", "--plain", "--passwords", "--directory-url", "redis://127.0.0.1:1"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ}, check=True)
        self.assertIn("directory_url=redis://127.0.0.1:1\n", done.stdout)

    def test_no_program_of_a_node_takes_a_password_from_a_file_that_others_may_read(self):
        conf = self.directory + "/" + "long" * 40 + "/" + "name" * 40
        os.makedirs(os.path.dirname(conf))
        with open(conf, "w", encoding="utf-8") as out:
            out.write("directory_url = redis://user:a-pass-word@127.0.0.1:1/0\n")
        os.chmod(conf, 0o644)
        for program in ("registrar", "keyer", "tierer", "swapper", "transporter", "coordinator", "metrics", "events"):
            if os.path.exists(f"{BIN}/sluice-{program}"):
                with self.subTest(program=program):
                    done = subprocess.run([f"{BIN}/sluice-{program}", "--config", conf, "--runtime-dir", self.directory + "/none", "--shm-dir",
                                           self.directory + "/no"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE, check=False)
                    self.assertEqual(done.returncode, 2, done.stdout)
                    self.assertIn("mode 0644", done.stdout)
                    self.assertNotIn("a-pass", done.stdout)

    def test_a_line_that_is_refused_says_no_password(self):
        conf = self.directory + "/conf"
        for line in ("directoryurl = redis://u:a-pass-word@x:1", "directory_url redis://u:a-pass-word@x:1", 'directory_url = "redis://u:a-pass-word@x:1',
                     "directory = redis://u:a-pass-word@x:1",
                     "events_listen = tcp://u:a-pass-word@x:1", "metrics_listen = tcp://u:a-pass-word@x:1", "events_replay_listen = tcp://u:a-pass-word@x:1",
                     "cluster_listen = tcp://u:a-pass-word@x:1", "fabric_address = tcp://u:a-pass-word@x", "peers = a@tcp://u:a-pass-word@x:1",
                     "node_name = x://u:a-pass-word@x", "events_topic = x://u:a-pass-word@x", "disk_path = /x://u:a-pass-word@x",
                     "directoryurl = redis://user:a-pass-word" + "d" * 200 + "@x:1"):
            with open(conf, "w", encoding="utf-8") as out:
                out.write(line + "\n")
            os.chmod(conf, 0o600)
            for words in (["config"], ["doctor"], ["status", "--json"]):
                with self.subTest(line=line[:60], words=words):
                    done = subprocess.run([CTL, *words, "--config", conf], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE,
                                          check=False)
                    self.assertEqual(done.returncode, 2, done.stdout)
                    self.assertRegex(done.stdout, "://u|unknown setting")
                    self.assertNotIn("a-pass", done.stdout)

    def test_keygen_makes_the_directories_that_lack(self):
        keys = self.directory + "/etc/sluice/keys"
        subprocess.run([CTL, "keygen", keys, "a"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(sorted(os.listdir(keys)), ["a.pub", "a.secret"])
        for path in (keys, self.directory + "/etc"):
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o700, path)

    def test_keygen_makes_no_keys_where_others_could_replace_them(self):
        keys = self.directory + "/keys"
        os.mkdir(keys)
        for mode, where in ((0o777, keys), (0o775, keys), (0o777, keys + "/below")):
            os.chmod(keys, mode)
            os.chown(keys, -1, 65534 if os.geteuid() == 0 else -1)
            done = subprocess.run([CTL, "keygen", where, "a"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("others may write to the directory of", done.stdout)
            self.assertEqual([files for _, _, files in os.walk(keys) if files], [])
        os.chmod(keys, 0o1777)
        subprocess.run([CTL, "keygen", keys, "a"], check=True, stdout=subprocess.DEVNULL)
        if os.geteuid() == 0:  # makes the files of a node's user
            os.mkdir(keys + "/theirs")
            os.chown(keys + "/theirs", 65534, 65534)
            subprocess.run([CTL, "keygen", keys + "/theirs", "a"], check=True, stdout=subprocess.DEVNULL)

    def test_keygen_where_no_file_may_grow_says_so(self):
        done = subprocess.run(["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", CTL, "keygen", self.directory + "/keys", "a"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"make '.*/keys/a.secret': .*RLIMIT_FSIZE")
        self.assertEqual(os.listdir(self.directory + "/keys"), [])

    def test_keys_that_are_fine_are_said_to_be(self):
        keys = self.directory + "/keys"
        words = ["--fabric", "tcp", "--peers", "b@h:1", "--node-name", "a", "--cluster-keys", keys]
        subprocess.run([CTL, "keygen", keys, "a"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([CTL, "keygen", self.directory + "/b", "b"], check=True, stdout=subprocess.DEVNULL)
        lines = [line for line in doctor_lines(*words)[1] if line["check"] == "cluster_keys"]
        self.assertEqual({line["level"] for line in lines}, {"warn"}, lines)
        self.assertIn("no connection to node b", lines[0]["text"])
        shutil.copy(self.directory + "/b/b.pub", keys)
        line = doctor(*words)[1]["cluster_keys"]
        self.assertEqual(line["level"], "ok", line)
        self.assertIn("1 others", line["text"])

    def test_public_keys_that_are_none_are_named_whatever_their_files_are_called(self):
        keys = self.directory + "/keys"
        subprocess.run([CTL, "keygen", keys, "a"], check=True, stdout=subprocess.DEVNULL)
        for name in (b"a", b"\xff"):
            with open(os.fsencode(keys) + b"/" + name + b".pub", "w", encoding="ascii") as out:
                out.write("nonsense\n")
        lines = doctor_lines("--fabric", "tcp", "--peers", "a@h:1", "--node-name", "a", "--cluster-keys", keys)[1]
        self.assertEqual(sum((line["check"], line["level"]) == ("cluster_keys", "warn") and "copy it again" in line["mend"]
                             for line in lines), 2, lines)

    def test_what_takes_long_is_named_meanwhile(self):
        with socket.create_server(("127.0.0.1", 0)) as silent, subprocess.Popen(
                [CTL, "doctor", "--directory", "redis", "--directory-url", f"redis://127.0.0.1:{silent.getsockname()[1]}", "--directory-timeout", "60s",
                 "--instance", f"none-{os.getpid()}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as asked:
            self.addCleanup(asked.kill)
            lines = iter(asked.stderr.readline, b"sluicectl: still looking at: directory\n")
            self.assertNotIn(b"", itertools.islice(lines, 12))
            asked.kill()

    def test_a_program_is_looked_for_beside_sluicectl(self):
        programs = programs_copied(self.directory + "/programs")
        for level in ("ok", "warn"):
            done = subprocess.run([programs + "/sluicectl", "doctor", "--json", "--events-listen", "local", "--instance", f"none-{os.getpid()}"],
                                  capture_output=True, check=False)
            self.assertEqual([line["level"] for line in json.loads(done.stdout)["checks"] if line["check"] == "events"], [level], done.stdout)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(programs + "/sluice-events")

    def test_what_is_fine_is_said_to_be(self):
        code, lines = doctor("--memory", "64MiB", "--disk", "1MiB", "--disk-path", self.directory)
        for check in ("memory", "disk", "ports", "key_files", "cluster_keys", "directory"):
            self.assertEqual(lines[check]["level"], "ok", lines[check])
        self.assertEqual(code, 1 if any(line["level"] == "fail" for line in lines.values()) else 0)
        self.assertEqual(os.listdir(self.directory), [])  # nothing is left

    @unittest.skipIf(shutil.which("redis-server") is None, "skipped: redis-server is not installed")
    def test_a_directory_that_answers_is_fine(self):
        with Redis() as redis:
            wait_until(lambda: os.path.exists(redis.socket), 20, "redis-server")
            words = ["--directory", "redis", "--directory-url", "unix://" + redis.socket, "--directory-timeout", "60s"]
            wait_until(lambda: doctor(*words)[1]["directory"]["level"] == "ok", 20, "an answer")


if __name__ == "__main__":
    main()
