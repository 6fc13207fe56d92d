"""The wheels, installed by pip without access to the build: the README's example runs, with no libraries of the build machine except those
that every Linux with Python has; the wheel of mooncake brings a complete node."""

import email
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "node"))
from node_support import BIN, PATIENCE, ROOT, Node, main  # noqa: E402

EVERYWHERE = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|util|z|expat|python)[-.0-9])|linux-vdso|locale")
AFTERWARDS = """
import os
import ssl, hashlib  # beside OpenSSL of the interpreter's own
with open("/proc/self/maps") as maps:
    print("mapped", *sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line}))
print("version", sluice.__version__)
"""


IN_REPLAY = """
import sys
sys.path.insert(0, sys.argv[1])
import replay_library
with open("/proc/self/maps") as maps:
    print(*sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line}))
"""

IN_MOONCAKE = """
import os, ssl
import mooncake.engine
try:
    import mooncake.store
except ModuleNotFoundError:
    assert not os.path.exists(os.path.join(os.path.dirname(mooncake.__file__), "_store.abi3.so"))
engine = mooncake.engine.TransferEngine()
assert engine.initialize("localhost", "P2PHANDSHAKE", "tcp", "") == 0 and engine.get_engine() is not None
with open("/proc/self/maps") as maps:
    print("mapped", *sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line}))
import mooncake.async_store, mooncake.cli, mooncake.lmcache_connector, mooncake.mooncake_config  # these map more of Python's
print("programs", *mooncake.cli.programs())
import importlib.metadata
about = importlib.metadata.metadata("sluice-mooncake")
assert about.get_all("Obsoletes-Dist") == ["mooncake-transfer-engine"] and about.get_all("Requires-Dist") is None
"""

METADATA_SERVER = """
import http.client
from mooncake.http_metadata_server import MetadataServer
with MetadataServer("127.0.0.1", 0) as server:
    asking = http.client.HTTPConnection("127.0.0.1", server.server_port)
    asking.request("PUT", "/metadata?key=k", b"v")
    assert asking.getresponse().read() != b""
    asking.request("GET", "/metadata?key=k")
    assert asking.getresponse().read() == b"v"
with open("/proc/self/maps") as maps:
    print(*sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line}))
"""


def example():
    with open(os.path.join(ROOT, "docs", "start", "python.md"), encoding="utf-8") as text:
        return re.search(r"```python\n(.*?)```", text.read(), re.DOTALL).group(1)


class Wheel(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="sl-")
        self.addCleanup(shutil.rmtree, self.directory)

    def run_clean(self, *command, **options):
        """Outside of the source, with an environment that does not lead back to it."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": self.directory, **options}
        done = subprocess.run(command, cwd=self.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def install(self, package):
        """Makes an environment with only the wheel; returns the directory of its programs."""
        preset = os.path.basename(os.path.dirname(os.path.realpath(BIN)))
        wheel = subprocess.run([os.path.join(ROOT, "deploy", "wheel"), "--preset", preset, "--output", self.directory, package],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        self.run_clean(sys.executable, "-m", "venv", "venv")
        programs = os.path.join(self.directory, "venv", "bin")
        self.run_clean(os.path.join(programs, "python"), "-m", "pip", "install", "--no-index", wheel)
        return programs

    def check_mapped(self, mapped, package, wanted):
        """Files that a process mapped are from the wheel or from every Linux with Python, and none is mapped twice."""
        own = [path for path in mapped if path.startswith(self.directory) and f"/{package}/" in path]
        for library in wanted:
            self.assertTrue(any(f"/{package}/lib/{library}" in path for path in own), mapped)
        names = {os.path.basename(path) for path in own}
        for path in set(mapped) - set(own):
            self.assertNotIn(os.path.basename(path), names)
            # The interpreter's own modules bring what they need.
            self.assertTrue(EVERYWHERE.search(os.path.basename(path)) or "lib-dynload" in path or
                            re.match(r"lib(crypto|ffi|ssl)\.so", os.path.basename(path)), path)

    def check_licences(self, distribution, libraries):
        folder = glob.glob(os.path.join(self.directory, f"venv/lib/python3*/site-packages/{distribution}-*.dist-info/licenses"))[0]
        there = os.listdir(folder)
        self.assertIn("LICENSE", there)
        for library in libraries:
            self.assertTrue(any(name.startswith(library) for name in there), (library, there))

    def check_metadata(self, distribution, example):
        """The metadata that a package index requires and shows."""
        about = glob.glob(os.path.join(self.directory, f"venv/lib/python3*/site-packages/{distribution}-*.dist-info"))[0]
        with open(os.path.join(about, "METADATA"), encoding="utf-8") as file:
            metadata = email.message_from_file(file)
        self.assertEqual(sorted(metadata.get_all("License-File")),
                         sorted(os.path.relpath(path, about + "/licenses") for path in glob.glob(about + "/licenses/**", recursive=True)
                                if os.path.isfile(path)))
        self.assertIn("Apache-2.0 AND ", metadata["License-Expression"])
        self.assertNotIn("License", metadata)
        self.assertIn("Operating System :: POSIX :: Linux", metadata.get_all("Classifier"))
        self.assertFalse([name for name in metadata.get_all("Classifier") if name.startswith("License ::")])
        page = metadata.get_payload()
        self.assertEqual(page.split("\n")[0], "# " + metadata["Name"])
        self.assertEqual(re.findall(r"\]\((?!https?:)[^)]*\)", page), [], "links to files of the tree lead nowhere from a page of an index")
        self.assertEqual(example in page, distribution == "sluice")

    def test_sluice_is_all_that_is_needed(self):
        with Node(ranks=1, memory="64MiB") as node:
            python = os.path.join(self.install("sluice"), "python")
            with open(os.path.join(self.directory, "example.py"), "w", encoding="utf-8") as script:
                script.write(example() + AFTERWARDS)
            said = self.run_clean(python, "example.py", SLUICE_INSTANCE=node.instance, SLUICE_SHM_DIR=node.shm,
                                  SLUICE_RUNTIME_DIR=node.directory + "/run").splitlines()
            self.assertEqual(said[:2], ["b'hello'", "1"])
            self.check_mapped(said[2].split()[1:], "sluice", ("libsluice.so.0", "libxxhash.so"))
            self.check_licences("sluice", ("libxxhash",))
            self.check_metadata("sluice", example())
            self.run_clean(python, "-m", "pip", "check")
            self.run_clean(python, "-m", "pip", "uninstall", "-y", "sluice")

    def test_mooncake_brings_a_node(self):
        programs = self.install("mooncake")
        python = os.path.join(programs, "python")
        said = self.run_clean(python, "-c", IN_MOONCAKE).splitlines()
        bundled = said[1].split()[1:]
        native = glob.glob(os.path.join(self.directory, "venv/lib/python3*/site-packages/mooncake/_store*.so"))
        self.check_mapped(said[0].split()[1:], "mooncake", ("libsluice.so.0", "libxxhash.so") if native else ())
        self.check_licences("sluice_mooncake", ("libzmq", "libhiredis", "libssl"))
        self.check_metadata("sluice_mooncake", example())
        self.run_clean(python, "-m", "pip", "check")
        where = ["--instance", f"wheel-{os.getpid()}", "--runtime-dir", self.directory + "/run",
                 "--shm-dir", f"/dev/shm/sluice-test-wheel-{os.getpid()}"]
        self.run_clean(os.path.join(programs, "sluice-node"), "start", "--memory", "64MiB", "--ranks", "1", *where)
        try:
            loaded = self.programs_in_use(where[3])
            self.assertIn("ready", self.run_clean(os.path.join(programs, "sluicectl"), "status", *where))
            self.assertIn("memory", self.run_clean(os.path.join(programs, "sluicectl"), "tiers", *where))  # this command is a Python file
            trace = os.path.join(self.directory, "trace")
            with open(trace, "w", encoding="utf-8") as file:
                file.write(self.run_clean(os.path.join(programs, "sluicectl"), "workload", "--requests", "3"))
            self.assertIn("mismatches", self.run_clean(os.path.join(programs, "sluicectl"), "replay", trace, *where))
            share = glob.glob(os.path.join(self.directory, "venv/lib/python3*/site-packages/mooncake/share/sluice"))[0]
            self.check_mapped(self.run_clean(python, "-BSE", "-c", IN_REPLAY, share).split(), "mooncake", ("libsluice.so.0", "libxxhash.so"))
        finally:
            self.run_clean(os.path.join(programs, "sluice-node"), "stop", *where)
        self.assertEqual(set(loaded), {name for name in bundled if name.startswith("sluice-")} - {"sluice-node", "sluice-supervise", "sluice-tierer", "sluice-events"})
        for name, mapped in loaded.items():
            self.check_mapped(mapped, "mooncake", () if name == "sluice-metrics" else ("libxxhash.so",))
        for name in ("mooncake_master", "mooncake_client", "mooncake_http_metadata_server"):
            self.run_clean(os.path.join(programs, name), "--help")
        self.check_mapped(self.run_clean(python, "-c", METADATA_SERVER).split(), "mooncake", ())
        if native:
            report = json.loads(self.run_clean(python, os.path.join(ROOT, "client", "mooncake", "howto", "example.py"), "--json",
                                               "--blocks", "8", SLUICE_RUNTIME_DIR=self.directory + "/run"))
            self.assertTrue(report["good"], report)
            self.assertEqual((report["stored_blocks"], report["prefix_blocks"], report["wrong_blocks"]), (8, 8, 0))
            self.assertEqual(report["segments"], [report["segment"]])
        self.run_clean(python, "-m", "pip", "uninstall", "-y", "sluice-mooncake")

    @staticmethod
    def programs_in_use(runtime_directory):
        """{program: mapped files} of a node's actors."""
        loaded = {}
        for name in os.listdir(os.path.join(runtime_directory, "pid")):
            with open(os.path.join(runtime_directory, "pid", name), encoding="ascii") as file:
                pid = file.read().split()[0]
            with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                loaded[os.path.basename(os.readlink(f"/proc/{pid}/exe"))] = sorted(
                    {line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line})
        return loaded


if __name__ == "__main__":
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        print("skipped: no venv with pip can be made (Debian's python3-venv)")
        sys.exit(77)
    main()
