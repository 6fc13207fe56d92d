"""A suite that skips itself counts as skipped, in plain ctest too: 77 is a skip for every suite, and every way that a suite has of
skipping itself gives 77 and says why. With --build FOLDER the suites of that build are asked, each without what it needs."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
SUPPORT = os.path.join(ROOT, "tests", "support")
sys.path[:0] = [SUPPORT, os.path.join(ROOT, "tests", "engines")]
import children  # noqa: E402
import environment  # noqa: E402
import rotation  # noqa: E402
import suite  # noqa: E402

BUILD = None  # the folder of a build


class Ends(unittest.TestCase):
    """How a Python suite ends (support/suite.py)."""

    def end_of(self, body):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made_up.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"import sys, unittest\nsys.path.insert(0, {SUPPORT!r})\nimport suite\n{body}\nsuite.run()\n")
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

    def test_a_suite_whose_tests_pass_passes(self):
        self.assertEqual(self.end_of("class A(unittest.TestCase):\n    def test_a(self): pass")[0], 0)

    def test_a_suite_of_skipped_tests_is_skipped_for_their_reason(self):
        code, said = self.end_of("@unittest.skipIf(True, 'no such thing')\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"
                                 "    def test_b(self): pass\n")
        self.assertEqual((code, said), (suite.SKIP_CODE, "skipped: no such thing\n"))
        self.assertEqual(self.end_of("class A(unittest.TestCase):\n    def test_a(self): self.skipTest('none')\n"), (suite.SKIP_CODE, "skipped: none\n"))

    def test_a_class_or_module_that_skips_itself_is_a_skip(self):
        for code in ("class A(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls): raise unittest.SkipTest('no')\n    def test_a(self): pass\n",
                     "def setUpModule(): raise unittest.SkipTest('no')\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"):
            self.assertEqual(self.end_of(code), (suite.SKIP_CODE, "skipped: no\n"))

    def test_what_ran_counts_whatever_else_was_skipped(self):
        self.assertEqual(self.end_of("class A(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): self.skipTest('no')\n")[0], 0)
        self.assertEqual(self.end_of("class A(unittest.TestCase):\n    def test_a(self):\n        for i in range(2):\n"
                                     "            with self.subTest(i): self.skipTest('no')\n")[0], 0)
        self.assertEqual(self.end_of("class A(unittest.TestCase):\n    def test_a(self): self.fail()\n    def test_b(self): self.skipTest('no')\n")[0], 1)

    def test_a_suite_without_a_test_fails(self):
        self.assertEqual(self.end_of("")[0], 1)


class Sources(unittest.TestCase):
    def files(self, *endings):
        for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(endings) and "/tests/engines/" not in path and path != os.path.realpath(__file__):
                    with open(path, encoding="utf-8") as file:
                        yield os.path.relpath(path, ROOT), file.read()

    def test_python_suites_end_by_support(self):
        self.assertEqual([path for path, text in self.files(".py") if "unittest.main(" in text and path != "tests/support/suite.py"], [])

    # One test of a suite whose others ran, and a program for hands.
    PARTS = ("tests/unit/ipc/shm/arena_test.c", "tests/unit/client/tools/events_listener_test.c", "tests/unit/ipc/shm/index_test.c", "tests/unit/ipc/shm/shm_file_test.c", "tests/bench/directory_bench.c")

    # Not suites of ctest, and those that decide later.
    OTHERS = {"tests/support/suite.py", "tests/gpu/nic_test.c", "tests/gpu/checkup_test.py", "tests/fresh/__main__.py", "tests/package/__main__.py"}

    def test_who_says_that_it_was_skipped_gives_77(self):
        silent = set()
        for path, text in self.files(".py", ".c"):
            for said in re.finditer(r"(print|printf|echo)[ (][^\n]*[\"']skipped:? ?[^\n]*\n", text):
                if not re.search(r"77|SKIP_CODE|_exit", text[said.end():said.end() + 200]):
                    silent.add(path)
        self.assertEqual(silent - self.OTHERS, set(self.PARTS))


def suites():
    """{name: (command, environment, properties)} of the build."""
    done = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    found = {}
    for test in json.loads(done.stdout)["tests"]:
        properties = {row["name"]: row["value"] for row in test["properties"]}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        found[test["name"]] = (test.get("command"), environment, properties)
    return found


# Of which suites, what is taken away, and what they say.
NOWHERE = "/nonexistent"
WAYS = (
    ("the node's programs", r"node/(?!directory_redis)|cluster/(?!cluster_transfer)", {"SLUICE_BIN": NOWHERE}, ""),
    ("network namespaces", r"cluster/(?!directory)", {"PATH": NOWHERE}, "ip"),
    ("redis-server", r"node/directory_redis_test|cluster/directory", {"PATH": NOWHERE}, "redis-server"),
    ("the Python package", r"python/(?!wheel|contract_rows)", {"SLUICE_TEST_PACKAGE": NOWHERE}, "package|store"),
    ("a guest with RDMA devices", r"rdma/", {"SLUICE_VERBS_VM": NOWHERE}, "verbs-vm"),
    ("spin", r"models/", {"PATH": NOWHERE}, "not installed"),
)


class Engines(unittest.TestCase):
    """Where programs of the engines put what they make."""

    def test_the_directory_of_a_run_whose_process_is_not_seen_stays(self):
        """Of one in another container; what a killed one left goes."""
        with tempfile.TemporaryDirectory() as parent:
            runs = [os.path.join(parent, f"engines-vllm-{2**22 + at}-x") for at in range(2)]  # no process has such a number
            for path in runs:
                os.mkdir(path)
            lock = children.directory_lock(runs[0])
            self.addCleanup(os.close, lock)
            own = children.directory_make("engines", "vllm", parent)
            self.assertEqual(set(os.listdir(parent)), {os.path.basename(path) for path in (runs[0], own)})
            self.assertIsNone(children.directory_lock(own))

    def test_a_directory_that_no_run_made_is_no_environment(self):
        with tempfile.TemporaryDirectory() as base, unittest.mock.patch.object(environment, "python_find", return_value="/bin/false"):
            recipe = environment.Recipe("vllm", (), 0)
            for name in ("vllm/work.py", "vllm.lock"):
                os.makedirs(os.path.dirname(os.path.join(base, name)), exist_ok=True)
                with open(os.path.join(base, name), "w", encoding="utf-8") as file:
                    file.write("somebody's")
            with self.assertRaisesRegex(environment.Skipped, "vllm exists, but no run made it"):
                environment.prepare(recipe, base)
            for name in ("vllm/work.py", "vllm.lock"):
                with open(os.path.join(base, name), encoding="utf-8") as file:
                    self.assertEqual(file.read(), "somebody's")
            os.remove(os.path.join(base, "vllm/work.py"))
            for _ in range(2):
                with self.assertRaisesRegex(environment.Skipped, "-m venv' failed"):
                    environment.prepare(recipe, base)


class LeftOut(unittest.TestCase):
    """What a run of deploy/test without --all leaves out."""

    def test_a_pass_is_taken_for_the_same_contents_and_tools_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            asked, ran = os.path.join(folder, "asked"), os.path.join(folder, "ran")

            def run(content, code=0, tool="echo 1", believes="1"):
                with open(asked, "w", encoding="utf-8") as file:
                    file.write(content)
                if os.path.exists(ran):
                    os.remove(ran)
                # One in 20 runs all the same; not for long.
                for _ in range(100):
                    done = subprocess.run([os.path.join(ROOT, "tests/by_content"), "--of", asked, "--tool", tool, "--", "sh", "-c", f"echo >{ran}; exit {code}"],
                                          env={**os.environ, "XDG_CACHE_HOME": folder, "SL_BY_CONTENT": believes}, capture_output=True, text=True, check=False)
                    if done.returncode == suite.SKIP_CODE:
                        self.assertIn("skipped: as before: passed at ", done.stdout)
                        return "taken"
                    self.assertEqual((done.returncode, os.path.exists(ran)), (code, True))
                    if content not in known:
                        break
                return "ran"

            known = set()
            self.assertEqual([run("a"), run("b", code=3), run("b", code=3)], ["ran"] * 3)  # a failure is not noted
            known.add("a")
            self.assertEqual(run("a"), "taken")
            known.clear()
            self.assertEqual([run("c"), run("a", tool="echo 2"), run("a", believes="")], ["ran"] * 3)

    def test_every_suite_has_its_commits(self):
        tests = [{"name": f"suite {i}", "properties": [{"name": "COST", "value": 7.0 * i}]} for i in range(12)]
        tests.append({"name": "no cost", "properties": []})
        number = rotation.commit_number
        try:
            shares = []
            for slot in range(rotation.SHARES):
                rotation.commit_number = lambda slot=slot: slot
                shares.append(rotation.share(tests))
        finally:
            rotation.commit_number = number
        self.assertEqual(sorted(name for share in shares for name in share), sorted(test["name"] for test in tests))
        self.assertEqual({len(share) for share in shares}, {2, 3})


class Build(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if BUILD is None:
            raise unittest.SkipTest("no build was named")
        cls.suites = suites()

    def test_77_is_a_skip_for_every_suite(self):
        self.assertGreater(len(self.suites), 100)
        wrong = [name for name, (_, _, properties) in self.suites.items() if properties.get("SKIP_RETURN_CODE") != suite.SKIP_CODE]
        self.assertEqual(wrong, [])

    def test_a_suite_without_what_it_needs_skips_itself_and_says_why(self):
        for what, names, lacks, said in WAYS:
            asked = [name for name in self.suites if re.match(names, name)]
            for name in asked:
                command, environment, _ = self.suites[name]
                with self.subTest(f"{name} without {what}"):
                    done = subprocess.run(command, env={**os.environ, **environment, **lacks}, capture_output=True, text=True, timeout=120,
                                          check=False, cwd=ROOT)
                    self.assertEqual(done.returncode, suite.SKIP_CODE, done.stdout[-2000:] + done.stderr[-2000:])
                    self.assertRegex(done.stdout, rf"skipped: .*({said})")

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "there is a GPU")
    def test_suites_of_the_gpu_skip_themselves_without_one(self):
        for name in ("gpu/gpu_test", "gpu/nic_test", "gpu/bench_gpu_test"):
            if name in self.suites:
                command, environment, _ = self.suites[name]
                with self.subTest(name):
                    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False)
                    self.assertEqual(done.returncode, suite.SKIP_CODE, done.stdout[-2000:] + done.stderr[-2000:])
                    self.assertIn("skipped: ", done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    options, sys.argv[1:] = parser.parse_known_args()
    BUILD = options.build
    suite.run()
