"""KV events that routers receive: a mirror kept by vLLM's own classes equals the index, whichever process is killed, joins late or is slow."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

import events_support
import events_writer
from metrics_test import client_environment
from node_support import BIN, PATIENCE, Node, free_port, main, wait_until

HELPERS = "/run/supervisor.helpers"
VLLM = re.compile(rb"^(.+)@tp_rank:(\d+)@pcp0@dcp0@pp_rank:0@group:(\d+)@([0-9a-f]{64})$")


def lines_of(node, *words):
    return [json.loads(line) for line in node.ctl(*words).stdout.decode().splitlines()]


def number_of(digest):
    return int.from_bytes(digest[-8:], "big")


def expected(node):
    """The blocks in the index, from a list of its keys: [[medium, hash]]. Written independently, from README.md."""
    families = {}
    done = node.ctl("ls", "--json", check=False)
    if done.returncode != 0:
        return None  # its registrar is down
    for row in json.loads(done.stdout)["objects"]:
        key = bytes.fromhex(row["key"][4:]) if row["key"].startswith("hex:") else row["key"].encode()
        named = VLLM.match(key)
        if named:
            family, part, digest = (named[1], named[3]), named[2], bytes.fromhex(named[4].decode())
        elif key[32:33] == b"/" and key[97:98] == b"/":
            family, part, digest = key[:32], key[98:], bytes.fromhex(key[33:97].decode())
        else:
            continue
        parts, blocks = families.setdefault(family, (set(), {}))
        parts.add(part)
        media = blocks.setdefault(digest, {"CPU": set(), "DISK": set()})
        for medium, there in (("CPU", row["in_memory"]), ("DISK", row["on_disk"])):
            media[medium] |= {part} if there else set()
    return sorted({(medium, number_of(digest)) for parts, blocks in families.values() for digest, media in blocks.items()
                   for medium in media if media[medium] == parts})


class Process:
    """A program that answers each line with a line."""

    def __init__(self, case, arguments, environment=None):
        self.process = subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        case.addCleanup(self.end)

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Mirror(Process):
    def __init__(self, case, node, addresses=None):
        publish, replay = addresses or addresses_of(node)
        super().__init__(case, [case.python, events_support.__file__, publish, replay, case.kv_events])

    def state(self):
        self.say("state")
        return json.loads(self.hear())

    def seen(self):
        self.say("log")
        return json.loads(self.hear())

    def there(self):
        return sorted((medium, one) for medium, one in self.state()["there"])


def addresses_of(node):
    def read():
        try:
            with open(node.directory + "/run/events.at", encoding="utf-8") as at:
                return at.read().split()[2:]
        except FileNotFoundError:
            return None
    return wait_until(read, 5, "the publisher says where it is")


def helper_pid(node, name="events"):
    with open(node.directory + HELPERS, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if words[0] == name and words[2] == "running":
                return int(words[1])
    return 0


def seconds_until_equal(node, mirror, limit):
    """Asks until the mirror equals the index; returns how long that took."""
    begin = time.monotonic()
    while True:
        want, have = expected(node), mirror.there()
        now = time.monotonic() - begin
        if want is not None and want == have and want == expected(node):
            return now, len(want)
        if now > limit:
            raise AssertionError(f"not equal within {limit} s: {want and len(want)} blocks in the index, {len(have)} in the mirror; "
                                 f"missing {sorted(set(want or []) - set(have))[:3]}, too many {sorted(set(have) - set(want or []))[:3]}\n{node.logs()[-3000:]}")
        time.sleep(0.02)  # each check starts programs, which take CPU time from the node's actors


class Events(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python, cls.kv_events = events_support.environment()
        if not os.path.isdir(os.path.join(os.path.dirname(BIN), "python", "sluice")):
            raise unittest.SkipTest("the Python package was not built")

    def node(self, *settings, **more):
        node = Node(ranks=1, settings=("--events-listen", "local", *settings), **{"memory": "64MiB", **more})
        node.__enter__()
        self.addCleanup(node.__exit__, None, None, None)
        return node

    def writer(self, node, name, threads):
        writer = Process(self, [sys.executable, events_writer.__file__, name, str(threads)], client_environment(node))
        self.assertEqual(writer.hear(), "begun")
        return writer

    def equal(self, node, mirror, limit=6 * PATIENCE):
        return seconds_until_equal(node, mirror, limit)

    def test_what_is_stored_moved_removed_and_cleared_is_told(self):
        node = self.node(disk="256MiB")
        mirror = Mirror(self, node)
        keys = [events_writer.key_of("model", rank, block) for block in range(3) for rank in range(2)]
        for key in keys:
            node.ctl("put", key, "-", stdin=b"value of " + key.encode())
        node.ctl("put", "greeting", "-", stdin=b"hello")
        node.ctl("flush")
        count = self.equal(node, mirror)[1]
        self.assertEqual(count, 6, "three blocks, in memory and on disk")
        node.ctl("rm", keys[0])
        self.equal(node, mirror)
        late = Mirror(self, node)
        self.equal(node, late)
        node.ctl("rm", *keys[1:])
        self.equal(node, mirror)
        self.assertEqual(mirror.there(), [])
        seen = mirror.seen()
        self.assertEqual((seen["twice"], seen["unknown"], seen["gaps"]), (0, 0, 0))
        self.assertGreaterEqual(seen["cleared"], 2)  # the snapshot of the beginning, and the end
        wait_until(lambda: re.search(r"sluice_events_keys_other_total\{[^}]*\} [1-9]", node.ctl("metrics").stdout.decode()), 5, "`greeting` is counted")

    def test_forms_of_the_message_are_as_the_settings_say(self):
        port = free_port()
        with Node(ranks=1, memory="64MiB", settings=("--events-listen", f"127.0.0.1:{port}", "--events-topic", "kv@node@m", "--events-hashes",
                                                    "bytes", "--events-rank", "3", "--events-block-size", "16")) as node:
            key = events_writer.key_of("m", 0, 1)
            node.ctl("put", key, "-", stdin=b"x")
            words = ("--events-hashes", "bytes", "--json")
            wait_until(lambda: lines_of(node, "events", "--once", *words)[-1].get("block") == key[-64:], 5, "the event of the block arrives")
            self.assertEqual(len(lines_of(node, "events", "--count", "2", *words)), 2)
            read = subprocess.run([self.python, "-c", RAW, f"tcp://127.0.0.1:{port}", os.path.dirname(events_support.__file__), self.kv_events],
                                  stdout=subprocess.PIPE, text=True, timeout=30 * PATIENCE, check=True).stdout
            self.assertIn("kv@node@m", read)
            self.assertIn("data_parallel_rank=3", read)

    def test_a_mirror_equals_the_index_whoever_is_killed(self):
        took, kills = [], 0
        for threads in (1, 2, 4, 8):
            node = self.node("--disk-segment", "4MiB", disk="256MiB", memory="32MiB")
            mirror = Mirror(self, node)
            writers = [self.writer(node, f"w{threads}-{number}", threads) for number in range(3)]
            victims = [*sorted(node.processes()), "events", "writer", "registrar", "events"]
            for victim in victims:
                time.sleep(0.3)
                if victim == "writer":
                    writers[-1].process.kill()
                    writers[-1].process.wait()
                    writers.pop()
                else:
                    os.kill(helper_pid(node) if victim == "events" else node.processes()[victim][0], signal.SIGKILL)
                kills += 1
                begin = time.monotonic()
                for writer in writers:
                    writer.say("hold")
                for writer in writers:
                    self.assertEqual(writer.hear(), "held")
                held = time.monotonic() - begin
                seconds, count = self.equal(node, mirror)
                took.append((seconds, victim, held))
                self.assertGreater(count, 0)
                for writer in writers:
                    writer.say("go")
                wait_until(lambda name=victim: name == "writer" or (helper_pid(node) if name == "events" else node.processes()[name][1] == "running"),
                           10, f"{victim} runs again")
            seen, late = mirror.seen(), Mirror(self, node)
            for writer in writers:
                writer.say("hold")
                self.assertEqual(writer.hear(), "held")
            self.equal(node, late)
            self.assertEqual(seen["twice"] + seen["unknown"], 0, seen)
            print(f"{threads} threads a process: {seen}; {delays(node)}", flush=True)
            for writer in writers:
                writer.end()
        took.sort()
        print(f"{kills} kills: equal {took[len(took) // 2][0]:.3f} s after the writers were held (median), at most {took[-1][0]:.3f} s "
              f"({took[-1][1]}); held {max(one[2] for one in took):.3f} s after the kill at most", flush=True)

    def test_a_subscriber_that_is_stopped_holds_nobody_up(self):
        node = self.node("--events-queue", "16", "--events-kept", "50", "--events-hashes", "bytes")
        slow = Mirror(self, node)
        wait_until(lambda: slow.state()["exact"], 10, "the mirror has begun")
        os.kill(slow.process.pid, signal.SIGSTOP)
        quick = Mirror(self, node)
        writer = self.writer(node, "burst", 4)
        puts = []
        end = time.monotonic() + 5
        while time.monotonic() < end:
            begin = time.monotonic()
            node.ctl("put", events_writer.key_of("b", 0, len(puts)), "-", stdin=b"x")
            puts.append(time.monotonic() - begin)
        writer.say("hold")
        self.assertEqual(writer.hear(), "held")
        with open(f"/proc/{helper_pid(node)}/status", encoding="utf-8") as status:
            resident = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
        os.kill(slow.process.pid, signal.SIGCONT)
        self.assertTrue(quick.state()["exact"])
        wait_until(lambda: slow.there() and slow.there() == quick.there(), 10, "who was stopped is exact again")
        print(f"a stopped subscriber: {len(puts)} puts, the longest {max(puts) * 1000:.0f} ms; the publisher has {resident >> 10} MiB; "
              f"it saw {slow.seen()}", flush=True)
        self.assertLess(resident >> 10, 200)
        self.assertEqual(slow.seen()["unknown"], 0)

    def test_any_bytes_are_a_request_or_none(self):
        node = self.node()
        mirror = Mirror(self, node)
        before = helper_pid(node)
        subprocess.run([self.python, "-c", FUZZ, addresses_of(node)[1], addresses_of(node)[0]], timeout=60 * PATIENCE, check=True)
        node.ctl("put", events_writer.key_of("m", 0, 1), "-", stdin=b"x")
        self.equal(node, mirror)
        self.assertEqual(helper_pid(node), before)
        wait_until(lambda: re.search(r"sluice_events_requests_refused_total\{[^}]*\} [1-9]", node.ctl("metrics").stdout.decode()), 5,
                   "requests were refused")

    def test_nothing_is_published_unless_it_is_asked_for(self):
        with Node(ranks=1, memory="32MiB") as node:
            self.assertEqual(helper_pid(node), 0)
            node.ctl("put", events_writer.key_of("m", 0, 1), "-", stdin=b"x")
            said = lines_of(node, "events", "--once", "--json")  # without --follow no publisher is needed
            self.assertEqual([(one["event"], one["snapshot"]) for one in said], [("cleared", True), ("stored", True)])
            self.assertEqual([said[1][name] for name in ("block", "parent", "medium", "model", "group")],
                             [str(number_of(bytes.fromhex(events_writer.key_of("m", 0, 1)[-64:]))), None, "CPU", "m", 0])
            self.assertRegex(node.ctl("events", "--once").stdout.decode(), r"(?m)^[\d:.]+ stored   CPU \d+ group 0 of m$")
            self.assertIn("\nno events are published for routers\n", node.ctl("status").stdout.decode())
            self.assertIsNone(json.loads(node.ctl("status", "--json").stdout)["events_at"])
            self.assertEqual(doctor_says(node, "events"), ("ok", "off"))

    def test_status_and_doctor_say_where_and_what_is_wrong(self):
        node = self.node()
        where = [f"ipc://{node.directory}/run/events.{name}" for name in ("pub", "replay")]
        said = f"at {where[0]}, missed events at {where[1]}"
        self.assertIn(f"\nevents {said} (process {helper_pid(node)})\n", node.ctl("status").stdout.decode())
        status = json.loads(node.ctl("status", "--json").stdout)
        self.assertEqual(status["events_at"], dict(zip(("publish", "replay"), where)))
        self.assertEqual(doctor_says(node, "events"), ("ok", said))
        os.rename(f"{node.directory}/run/events.at", f"{node.directory}/run/events.away")
        self.assertEqual(doctor_says(node, "events"), ("warn", "no events are published"))

    def test_a_second_publisher_has_another_place(self):
        node, port = self.node(), free_port()
        program = [os.path.join(BIN, "sluice-events"), *node.where]
        refused = subprocess.run([*program, "--events-listen", "local"], capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("publishes the node's events", refused.stderr)
        second = Process(self, [*program, "--events-listen", f"127.0.0.1:{port}", "--events-model", "b"])
        self.assertIn(f"127.0.0.1:{port}", second.hear())
        node.ctl("put", events_writer.key_of("a", 0, 1), "-", stdin=b"x")
        node.ctl("put", events_writer.key_of("b", 0, 2), "-", stdin=b"x")
        mirror = Mirror(self, node, (f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port + 1}"))
        wait_until(lambda: len(mirror.there()) == 1, 5, "only the event of the model's block arrives")


def doctor_says(node, check):
    [line] = [line for line in json.loads(node.ctl("doctor", "--json", check=False).stdout)["checks"] if line["check"] == check]
    return line["level"], line["text"]


def delays(node):
    """Median and 99th percentile of the time from store to event."""
    families = json.loads(node.ctl("metrics", "--json").stdout)["families"]
    samples = next(family["samples"] for family in families if family["name"] == "sluice_events_delay_seconds")
    buckets = [(row["labels"]["le"], row["value"]) for row in samples if row["name"].endswith("_bucket")]
    total = buckets[-1][1] if buckets else 0
    at = {share: next((end for end, count in buckets if count >= total * share), "?") for share in (0.5, 0.99)}
    return f"{total} events of engines' blocks: median up to {at[0.5]} s, p99 up to {at[0.99]} s"


# Prints topic and batch of the first message with an event.
RAW = """
import sys, zmq, msgspec
sys.path.insert(0, sys.argv[2])
import events_support
kv = events_support.classes(sys.argv[3])
socket = zmq.Context().socket(zmq.SUB)
socket.subscribe(b"kv@node")
socket.connect(sys.argv[1])
topic, sequence, payload = socket.recv_multipart()
print(topic.decode(), int.from_bytes(sequence, "big"), msgspec.msgpack.Decoder(kv.KVEventBatch).decode(payload))
"""
FUZZ = """
import os, random, sys, zmq
choose = random.Random(7)
context = zmq.Context()
for round in range(200):
    kind = choose.choice([zmq.DEALER, zmq.REQ, zmq.DEALER])
    socket = context.socket(kind)
    socket.linger = 0
    socket.connect(sys.argv[1])
    for _ in range(choose.randrange(1, 20)):
        frames = [os.urandom(choose.choice([0, 0, 1, 7, 8, 8, 9, 200])) for _ in range(choose.randrange(1, 6))]
        if choose.random() < 0.4:
            frames = [b"", os.urandom(8)]
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            break
    socket.poll(5)
    socket.close()
    wrong = context.socket(choose.choice([zmq.DEALER, zmq.SUB, zmq.PUSH]))  # another kind, and bytes to PUB
    wrong.linger = 0
    wrong.connect(sys.argv[2])
    if wrong.type == zmq.SUB:
        wrong.subscribe(os.urandom(choose.randrange(1, 300)))
    wrong.poll(2)
    wrong.close()
"""


if __name__ == "__main__":
    main()
