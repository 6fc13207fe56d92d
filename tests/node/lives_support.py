"""A registrar without a supervisor, and lives_probe, whose threads use it without end."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from contributions_support import Probe as Asked
from node_support import BIN, PATIENCE, wait_until

PROBE = os.path.join(BIN, "..", "tests", "lives_probe")


class Bare:
    """A node with only a registrar, which is all that objects in memory need. It restarts in a tenth of a second."""

    def __init__(self, test, memory="16MiB"):
        self.instance = "lives"
        self.directory = tempfile.mkdtemp(prefix="sl-")
        self.shm = f"/dev/shm/sluice-test-{os.path.basename(self.directory)}"
        self.command = [os.path.join(BIN, "sluice-registrar"), "--instance", self.instance, "--runtime-dir", self.directory + "/run",
                        "--shm-dir", self.shm, "--memory", memory, "--disk", "0"]
        self.registrar = None
        test.addCleanup(self.end)

    def start(self):
        self.registrar = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if not self.registrar.stdout.readline().startswith(b"ready"):
            raise AssertionError("the registrar did not start")

    def stop(self):
        """Stops like sluice-node: the registrar ends, then its files are removed."""
        self.registrar.send_signal(signal.SIGTERM)
        self.registrar.wait(20 * PATIENCE)
        self.registrar.stdout.close()
        self.registrar = None
        shutil.rmtree(self.shm)

    def pins(self):
        return [name for name in os.listdir(self.shm) if name.startswith("pins.")]

    def end(self):
        if self.registrar is not None:
            self.registrar.kill()
            self.registrar.wait()
            self.registrar.stdout.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)


class Probe(Asked):
    def __init__(self, test, node, threads):
        self.node = node
        self.wrong = False
        super().__init__(test, node, (PROBE,), (str(threads),))

    def counts(self):
        words = self.ask("count")
        plain = dict(zip(words[0:6:2], (int(word) for word in words[1:6:2])))
        self.wrong = plain["wrong"] > 0
        plain.update((name, int(times)) for name, times in (word.split("=") for word in words[6:]))
        return plain

    def end(self):
        if self.process.poll() is None and self.wrong:
            self.process.kill()
            print(self.process.stderr.read(2000).decode())
        super().end()

    def wait_ok(self, more, seconds=10):
        """Waits until this number of further calls were SL_OK."""
        end = self.counts().get("SL_OK", 0) + more
        wait_until(lambda: self.counts().get("SL_OK", 0) >= end or self.process.poll() is not None, seconds, f"{more} more calls end well")

    def kept(self):
        """(number of mapped arenas, bytes of the node's memory files that this process has open)"""
        with open(f"/proc/{self.process.pid}/maps", encoding="utf-8") as lines:
            arenas = {line.split()[4] for line in lines if self.node.shm + "/arena" in line}
        files = {}
        folder = f"/proc/{self.process.pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(f"{folder}/{name}").startswith(self.node.shm):
                    about = os.stat(f"{folder}/{name}")
                    files[about.st_ino] = about.st_blocks * 512
            except FileNotFoundError:
                pass
        return len(arenas), sum(files.values())


class Kept(Bare):
    """A node whose registrar is restarted whenever it ends, as by a supervisor."""

    def __init__(self, test, **settings):
        super().__init__(test, **settings)
        self.ended = []  # exit codes of registrars that ended by themselves
        self.ending = False
        self.keeper = threading.Thread(target=self.keep, daemon=True)

    def start(self):
        super().start()
        self.keeper.start()

    def keep(self):
        while not self.ending:
            status = self.registrar.wait()
            self.registrar.stdout.close()
            if self.ending:
                return
            self.ended.append(status)
            time.sleep(0.1)
            self.registrar = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.registrar.stdout.readline()

    def end(self):
        self.ending = True
        while self.keeper.is_alive():
            self.registrar.kill()
            self.keeper.join(0.1)
        self.registrar = None
        super().end()
