"""A subscriber with vLLM's own classes of KV events, as a router would have it. The interpreter of a virtual environment that has
them (environment()) runs it as a program that keeps a mirror and answers commands from standard input:

    events_support.py PUBLISH REPLAY KV_EVENTS_PY     `state` prints the mirror as JSON, `log` what was seen, end of input ends it
"""

import fcntl
import importlib.util
import json
import logging
import os
import subprocess
import sys
import sysconfig
import threading
import time
import types
import unittest
import zipfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
WHEEL, PACKAGES = (os.path.join(os.path.dirname(os.path.realpath(__file__)), f"events_{name}.txt") for name in ("wheel", "requirements"))
MODULE = "vllm/distributed/kv_events.py"
# Modules that it imports for other purposes than events.
STUBS = {"vllm": (), "vllm.config": (), "vllm.config.kv_events": ("KVEventsConfig",), "vllm.logger": ("init_logger",), "vllm.utils": (),
         "vllm.utils.network_utils": ("get_ip", "get_tcp_uri", "is_valid_ipv6_address", "split_zmq_path"), "vllm.v1": (),
         "vllm.v1.core": (), "vllm.v1.core.kv_cache_utils": ("ExternalBlockHash",)}
ASK_SECONDS = 0.3  # if no answer arrives, ask again


def environment():
    """(interpreter, kv_events.py) of an environment below build/, made once. Raises SkipTest when the packages cannot be downloaded."""
    folder = os.path.join(ROOT, "build", "events-environment")
    python, module = os.path.join(folder, "venv", "bin", "python"), os.path.join(folder, "kv_events.py")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(folder, "done")):
            return python, module
        steps = ([sys.executable, "-m", "venv", os.path.join(folder, "venv")], [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", PACKAGES],
                 [python, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "-d", folder, "-r", WHEEL])
        for step in steps:
            try:
                done = subprocess.run(step, capture_output=True, text=True, timeout=300, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise unittest.SkipTest(f"vLLM's classes cannot be had: {error}") from error
            if done.returncode != 0:
                raise unittest.SkipTest(f"vLLM's classes cannot be had: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]}")
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
        with zipfile.ZipFile(os.path.join(folder, wheels[0])) as wheel, open(module, "wb") as out:
            out.write(wheel.read(MODULE))
        for name in wheels:
            os.unlink(os.path.join(folder, name))
        with open(os.path.join(folder, "done"), "w", encoding="utf-8"):
            pass
    return python, module


def classes(path):
    """The module of vLLM's wheel."""
    for name, attributes in STUBS.items():
        module = types.ModuleType(name)
        for attribute in attributes:
            setattr(module, attribute, object)
        sys.modules[name] = module
    sys.modules["vllm.logger"].init_logger = logging.getLogger
    sys.modules["vllm.v1.core.kv_cache_utils"].ExternalBlockHash = bytes | int
    spec = importlib.util.spec_from_file_location("kv_events", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Mirror:
    """A subscriber's view: {(medium, hash)}. It has no notion of snapshots and incarnations: it asks for missing messages."""

    def __init__(self, publish, replay, kv_events):
        import msgspec  # pylint: disable=import-outside-toplevel
        import zmq  # pylint: disable=import-outside-toplevel

        self.zmq, self.kv = zmq, kv_events
        self.decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.set_hwm(100000)
        self.live.subscribe(b"")
        self.live.connect(publish)
        self.replay_address, self.replay = replay, None
        self.lock = threading.Lock()
        self.there, self.parents, self.last, self.exact = set(), {}, -1, False
        self.seen = {"batches": 0, "gaps": 0, "stored": 0, "removed": 0, "cleared": 0, "twice": 0, "unknown": 0, "orphans": 0}

    def apply(self, payload):
        batch = self.decoder.decode(payload)
        self.seen["batches"] += 1
        for event in batch.events:
            if isinstance(event, self.kv.AllBlocksCleared):
                self.seen["cleared"] += 1
                self.there.clear()
            elif isinstance(event, self.kv.BlockStored):
                self.seen["stored"] += len(event.block_hashes)
                known = {(event.medium, one) for one in event.block_hashes}
                self.seen["twice"] += len(known & self.there)
                parent = event.parent_block_hash
                if parent is not None:
                    self.seen["orphans"] += (event.medium, parent) not in self.there
                    for one in event.block_hashes:
                        self.parents[one], parent = parent, one
                self.there |= known
            else:
                gone = {(event.medium, one) for one in event.block_hashes}
                self.seen["removed"] += len(gone)
                self.seen["unknown"] += len(gone - self.there)
                self.there -= gone

    def ask(self, first):
        """Asks from a sequence number on and applies the answer, until a complete one arrives."""
        self.exact = False
        while True:
            self.replay = self.context.socket(self.zmq.DEALER)
            self.replay.linger = 0
            self.replay.connect(self.replay_address)
            self.replay.send_multipart([b"", first.to_bytes(8, "big")])
            while self.replay.poll(ASK_SECONDS * 1000):
                *_, sequence, payload = self.replay.recv_multipart()
                if not payload:
                    self.replay.close()
                    self.exact = True
                    return
                number = int.from_bytes(sequence, "big")
                if number >= self.last:
                    self.apply(payload)
                    self.last = number
            self.replay.close()
            first = 0

    def step(self):
        if self.last < 0:
            with self.lock:
                self.ask(0)
        if not self.live.poll(50):
            return
        with self.lock:
            _, sequence, payload = self.live.recv_multipart()
            number = int.from_bytes(sequence, "big")
            if number > self.last + 1:
                self.seen["gaps"] += 1
                self.ask(self.last + 1)
            elif number == self.last + 1:
                self.apply(payload)
                self.last = number

    def state(self):
        with self.lock:
            return {"exact": self.exact, "last": self.last, "there": sorted([medium, one.hex() if isinstance(one, bytes) else one] for medium, one in self.there)}


def main():
    mirror = Mirror(sys.argv[1], sys.argv[2], classes(sys.argv[3]))

    def follow():
        while True:
            mirror.step()

    threading.Thread(target=follow, daemon=True).start()
    for line in sys.stdin:
        print(json.dumps(mirror.state() if line.strip() == "state" else mirror.seen), flush=True)
    time.sleep(0)
    os._exit(0)


if __name__ == "__main__":
    assert sysconfig.get_python_version()
    main()
