"""The store tests of LMCache's packages, unmodified, on Sluice's wheel."""

import json
import os
import re
import shutil
import subprocess
import urllib.request

from harness import Node, Outcome, Scenario, check, free_port, popen, end, wait_until
from reasons import Skipped

VERSION = "0.5.6"
CHECK_SECONDS = 240
PYTEST_SECONDS = 500
KEYS = 8
SETTLE_SECONDS = 3
# In the source package; the only storage test that needs a Mooncake store.
TESTS = "tests/v1/distributed/test_mooncake_store_l2_adapter.py"
# LMCache's extension for Mooncake is not in its wheel. Ours has the same calls and is imported under its name for these tests.
ALIAS = "import sys\nimport mooncake.lmcache_connector\nsys.modules['lmcache.lmcache_mooncake'] = mooncake.lmcache_connector\n"
VARIABLES = {"LMCACHE_TRACK_USAGE": "false", "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}


def adapter_of(node, segment_bytes=0):
    """The value of --l2-adapter."""
    setup = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE", "master_server_address": node.address,
             "global_segment_size": str(segment_bytes)}
    return json.dumps({"type": "native_plugin", "module_path": "mooncake.lmcache_connector", "class_name": "LMCacheMooncakeClient",
                       "adapter_params": {"config": setup, "num_workers": 2}})


class Package:
    def __init__(self, run, node):
        self.run, self.node = run, node

    def program(self, name, arguments, seconds, **variables):
        """Runs it and returns its output, which is also logged."""
        done = subprocess.run([self.run.interpreter, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                              env=self.run.variables(**{**self.node().client_variables(), **VARIABLES, **variables}))
        with open(os.path.join(self.run.directory, name + ".log"), "w", encoding="utf-8") as log:
            log.write(done.stdout)
        return done

    def check_mode(self, mode, *arguments, **variables):
        """{row of its table: (passed, all)}"""
        done = self.program(mode, ["-m", "lmcache.v1.basic_check", "--mode", mode, f"--num-keys={KEYS}", *arguments], CHECK_SECONDS, **variables)
        check(done.returncode == 0, f"basic_check --mode {mode} ends with {done.returncode}")
        rows = re.findall(r"^\| ([A-Z][^|]*?) *\|.*?\| *(\d+)/(\d+) \|", done.stdout, re.MULTILINE)
        check(rows, f"basic_check --mode {mode} prints no table")
        return {name: (int(passed), int(of)) for name, passed, of in rows}, done.stdout

    def l2_adapter(self):
        rows, _ = self.check_mode("test_l2_adapter", "--l2-adapter", adapter_of(self.node()))
        check(len(rows) == 4 and all(passed == of == KEYS for passed, of in rows.values()), f"{rows}")
        return Outcome(note=", ".join(rows))

    def config_write(self):
        path = os.path.join(self.run.directory, "lmcache.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"chunk_size: 256\nlocal_cpu: false\nmax_local_cpu_size: 0.1\nremote_url: 'mooncakestore://{self.node().address}/'\n"
                       "remote_serde: naive\nextra_config:\n  local_hostname: localhost\n  metadata_server: P2PHANDSHAKE\n"
                       f"  master_server_address: '{self.node().address}'\n  protocol: tcp\n  device_name: ''\n  global_segment_size: 0\n"
                       "  local_buffer_size: 67108864\n  transfer_timeout: 10\n  save_chunk_meta: false\n")
        return path

    def storage_manager(self):
        """LMCache's connector for Mooncake refuses this test's reads one by one, on any store."""
        # The test does not wait for its own writes, and unmaps the memory that they read from when it ends: so they get time.
        rows, said = self.check_mode("test_storage_manager", f"--settle-time={SETTLE_SECONDS}", LMCACHE_CONFIG_FILE=self.config_write())
        check(all(rows[name] == (KEYS, KEYS) for name in ("EXISTS (non-exist)", "PUT", "EXISTS (exist)")), f"{rows}")
        check(rows["GET"] == (KEYS, KEYS) or "Single get operation is not supported" in said, f"{rows}")
        return Outcome(note=f"GET {rows['GET'][0]}/{KEYS}: LMCache's connector refuses to read one by one")

    def source(self):
        """The tests of the source package, fetched by pip and kept next to the environments."""
        target = os.path.join(os.path.dirname(self.run.environment.directory), f"lmcache-{VERSION}-tests")
        if os.path.exists(os.path.join(target, TESTS)):
            return target
        scratch = os.path.join(self.run.directory, "source")
        os.makedirs(scratch)
        # pip downloads a source package only if it can make its metadata, which for LMCache's needs a compiler for GPUs. So pip fails, and
        # leaves the unpacked files.
        said = subprocess.run([self.run.interpreter, "-m", "pip", "download", "-q", "--no-clean", "--no-deps", "--no-build-isolation",
                               "--no-binary", ":all:", "-d", scratch, f"lmcache=={VERSION}"],
                              env={**os.environ, "TMPDIR": scratch}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PYTEST_SECONDS).stdout
        for path, _, names in os.walk(scratch):
            if path.endswith(os.path.dirname(TESTS)) and os.path.basename(TESTS) in names:
                root = path[:-len(os.path.dirname(TESTS)) - 1]
                shutil.copytree(os.path.join(root, "tests"), target + ".new/tests", dirs_exist_ok=True)
                os.replace(target + ".new", target)
                shutil.rmtree(scratch, ignore_errors=True)
                return target
        raise Skipped(f"the source package of LMCache {VERSION}: {(said.strip().splitlines() or ['pip printed nothing'])[-1]}")

    def source_tests(self):
        target = self.source()
        with open(os.path.join(self.run.directory, "sluice_alias.py"), "w", encoding="utf-8") as file:
            file.write(ALIAS)
        variables = {"PYTHONPATH": os.pathsep.join((self.run.wheel, self.run.directory)), "MOONCAKE_LOCAL_HOSTNAME": "localhost",
                     "MOONCAKE_METADATA_SERVER": "P2PHANDSHAKE", "MOONCAKE_MASTER_SERVER_ADDRESS": self.node().address,
                     "MOONCAKE_RUN_RDMA_TESTS": "1"}
        done = self.program("pytest", ["-m", "pytest", "-q", "-p", "sluice_alias", "-p", "no:cacheprovider", "-rs",
                                       os.path.join(target, TESTS), f"--rootdir={target}"], PYTEST_SECONDS, **variables)
        last = (done.stdout.strip().splitlines() or ["pytest printed nothing"])[-1]
        check(done.returncode == 0, f"{TESTS}: {last}")
        passed = int(re.search(r"(\d+) passed", last).group(1))
        check(passed >= 36, f"only {passed} tests ran: {last}")
        return Outcome(note=last.strip("= "))

    def server(self):
        """`lmcache server` itself starts with the adapter and reports it as healthy."""
        port, http = free_port(), free_port()
        log = os.path.join(self.run.directory, "server.log")
        server = popen([self.run.interpreter, "-m", "lmcache.cli.main", "server", "--l1-size-gb=0.125", "--no-l1-use-lazy",
                        "--eviction-policy=LRU", f"--port={port}", f"--http-port={http}", "--l2-adapter", adapter_of(self.node())],
                       log, self.run.variables(**self.node().client_variables(), **VARIABLES))
        try:
            status = wait_until(lambda: self.asked(server, f"http://127.0.0.1:{http}/status"), CHECK_SECONDS, "lmcache server answers")
        finally:
            end(server)
        adapters = status["storage_manager"]["l2_adapters"]
        check(status["is_healthy"] and adapters == [{"is_healthy": True, "type": "LMCacheMooncakeClient"}], f"{adapters}")
        return Outcome(note="healthy, with one L2 adapter")

    @staticmethod
    def asked(server, address):
        if server.poll() is not None:
            check(False, f"lmcache server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                return json.load(page)
        except OSError:
            return None

    def scenarios(self):
        return [
            Scenario("package: basic_check test_l2_adapter", self.l2_adapter),
            Scenario("package: basic_check test_storage_manager", self.storage_manager),
            Scenario("package: " + os.path.basename(TESTS), self.source_tests, PYTEST_SECONDS + 60),
            Scenario("lmcache server", self.server),
        ]
