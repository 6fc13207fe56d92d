#!/usr/bin/env python3
"""The check-up itself, with made-up steps: a step that hangs, fails, is missing or falls short is reported, and costs no other step."""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "checking"), os.path.join(HERE, "..", "support")]
import expectations  # noqa: E402
import report  # noqa: E402
import sanitizer  # noqa: E402
import steps  # noqa: E402
import suite  # noqa: E402
from report import CODE_FAILED, CODE_FINE, CODE_SHORT, Report  # noqa: E402
from runner import FAILED, FINE, HUNG, SHORT, SKIPPED, StepRun, Runner, Step, lives  # noqa: E402

PATIENCE = int(os.environ.get("SLUICE_TEST_SLOWDOWN", "1"))


def python(*words):
    return [sys.executable, "-c", *words]


def shell(text):
    return ["/bin/sh", "-c", text]


class Steps(unittest.TestCase):
    def setUp(self):
        self.told = []
        self.runner = Runner(120, self.told.append)

    def run_step(self, command, limit_s=30, **more):
        return self.runner.step(Step("made-up", "a made-up step", command, limit_s, **more))

    def test_what_ends_well_is_fine_with_its_rows(self):
        result = self.run_step(python('print(\'{"rows": [{"kind": "x", "value": 3}], "notes": ["n"]}\')'))
        self.assertEqual((result["status"], result["rows"], result["notes"]), (FINE, [{"kind": "x", "value": 3}], ["n"]))
        self.assertEqual(self.told, [result])

    def test_what_fails_is_failed_with_its_last_words(self):
        result = self.run_step(shell("echo before; echo the reason >&2; exit 3"))
        self.assertEqual((result["status"], result["reason"]), (FAILED, "exit 3: the reason"))
        self.assertEqual(result["out"], "before\n")

    def test_what_dies_by_a_signal_is_failed(self):
        result = self.run_step(shell("kill -11 $$"))
        self.assertEqual((result["status"], result["code"]), (FAILED, -11))

    def test_what_hangs_costs_its_own_limit_and_the_next_step_runs(self):
        start = time.monotonic()
        result = self.run_step(shell("sleep 1000 & sleep 1000"), limit_s=0.5)
        self.assertEqual(result["status"], HUNG)
        self.assertLess(time.monotonic() - start, 60 * PATIENCE)
        self.assertTrue(any("sleep" in note for note in result["notes"]), result["notes"])
        self.assertEqual(self.run_step(shell("true"))["status"], FINE)

    def test_what_ignores_the_end_and_leaves_its_group_is_ended_too(self):
        with tempfile.TemporaryDirectory() as folder:
            pids = os.path.join(folder, "pids")
            result = self.run_step(shell(f"trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ >>{pids}; while :; do sleep 1; done\" & "
                                         "while :; do sleep 1; done"), limit_s=1.0)
            self.assertEqual(result["status"], HUNG)
            with open(pids, encoding="utf-8") as file:
                left = [pid for pid in map(int, file) if lives(pid)]
        self.assertEqual(left, [])

    def test_a_process_that_outlives_its_step_is_ended_and_shown(self):
        result = self.run_step(shell("setsid sleep 1000 & echo $!"))
        self.assertEqual((result["status"], result["reason"]), (FAILED, "it left processes behind"))
        self.assertIn("left behind: sleep", result["notes"])
        self.assertFalse(lives(int(result["out"])))

    def test_a_missing_tool_skips_its_step(self):
        result = self.run_step(shell("true"), needs=("sh", "no-such-tool-anywhere"))
        self.assertEqual((result["status"], result["reason"]), (SKIPPED, "no no-such-tool-anywhere here"))

    def test_a_program_that_cannot_be_started_is_failed(self):
        self.assertEqual(self.run_step(["/no/such/program"])["status"], FAILED)

    def test_a_suite_that_skips_itself_is_skipped_for_its_reason(self):
        result = self.run_step(shell("echo 'skipped: no GPU'; exit 77"))
        self.assertEqual((result["status"], result["reason"]), (SKIPPED, "no GPU"))

    def test_words_that_cannot_be_read_are_a_failure(self):
        result = self.run_step(shell("echo '{\"rows\": ['"))
        self.assertEqual(result["status"], FAILED)
        self.assertIn("cannot be read", result["reason"])

    def test_a_reader_that_finds_a_fault_fails_the_step(self):
        result = self.run_step(shell("true"), read=lambda ran, results: {"reason": "a fault"})
        self.assertEqual((result["status"], result["reason"]), (FAILED, "a fault"))

    def test_without_time_left_no_step_begins(self):
        self.runner.end = time.monotonic() + 1
        result = self.run_step(shell("true"))
        self.assertEqual((result["status"], result["reason"]), (SKIPPED, "no time was left"))

    def test_the_time_in_all_bounds_a_step_and_is_not_called_a_hang(self):
        self.runner.end = time.monotonic() + 6
        start = time.monotonic()
        result = self.run_step(shell("sleep 1000"))
        self.assertEqual(result["status"], SKIPPED)
        self.assertIn("the time of the whole run was over", result["reason"])
        self.assertLess(time.monotonic() - start, 30 * PATIENCE)


ENDED = """
import sys
sys.path.insert(0, sys.argv[1])
from runner import Ended, Runner, Step
try:
    with Runner(60, print) as runner:
        runner.step(Step("long", "long", ["/bin/sh", "-c", "setsid sh -c 'trap \\"\\" TERM; echo $$ >&9; sleep 1000' & sleep 1000"], 50))
except Ended as by:
    print(by)
"""


class Ends(unittest.TestCase):
    def test_a_check_up_that_is_asked_to_end_takes_its_steps_along(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pid")
            script = ENDED.replace(">&9", f">{path}")
            process = subprocess.Popen(python(script, os.path.join(HERE, "checking")), stdout=subprocess.PIPE, text=True)
            end = time.monotonic() + 30 * PATIENCE
            while not (os.path.exists(path) and os.path.getsize(path)) and time.monotonic() < end:
                time.sleep(0.02)
            process.terminate()
            said, _ = process.communicate(timeout=30 * PATIENCE)
            with open(path, encoding="utf-8") as file:
                self.assertFalse(lives(int(file.read())))
        self.assertEqual(said, "SIGTERM\n")


WANTED = [{"name": "bulk", "of": "bench", "where": {"pieces": {"from": 100}, "way": ["a", "b"]}, "figure": "gb_per_s",
           "beside": "limit", "least": 0.9, "reason": "the bus"},
          {"name": "quick", "of": "node", "figure": "load.ms", "most": 5, "reason": "people wait"}]


def results_of(*rows):
    return [{"name": "step", "rows": list(rows)}]


class Expectations(unittest.TestCase):
    def test_a_figure_that_falls_short_is_found_with_value_and_ratio(self):
        found, unmeasured = expectations.judged(WANTED, results_of(
            {"kind": "bench", "pieces": 100, "way": "a", "gb_per_s": 40.0, "limit": 50.0}))
        self.assertEqual([(one["short"], one["value"], one["beside"], one["ratio"], one["step"]) for one in found],
                         [(True, 40.0, 50.0, 0.8, "step")])
        self.assertEqual(unmeasured, ["quick"])

    def test_one_that_suffices_is_not_short(self):
        found, _ = expectations.judged(WANTED, results_of({"kind": "bench", "pieces": 100, "way": "b", "gb_per_s": 45.0, "limit": 50.0}))
        self.assertEqual([one["short"] for one in found], [False])

    def test_rows_that_are_not_meant_are_not_compared(self):
        for row in ({"kind": "other", "pieces": 100, "way": "a"}, {"kind": "bench", "pieces": 99, "way": "a"},
                    {"kind": "bench", "pieces": 100, "way": "c"}, {"kind": "bench", "way": "a"}):
            self.assertEqual(expectations.judged(WANTED, results_of(dict(row, gb_per_s=1.0, limit=50.0)))[0], [], row)

    def test_a_figure_over_its_most_is_short(self):
        for value, short in ((4.0, False), (6.0, True)):
            found, _ = expectations.judged(WANTED, results_of({"kind": "node", "load": {"ms": value}}))
            self.assertEqual([one["short"] for one in found], [short])

    def test_what_could_not_be_measured_is_not_called_fine(self):
        found, unmeasured = expectations.judged(WANTED, results_of(
            {"kind": "bench", "pieces": 100, "way": "a", "gb_per_s": 40.0, "limit": None}))
        self.assertEqual((found, unmeasured), ([], ["bulk", "quick"]))

    def test_the_table_beside_it_is_whole(self):
        for one in expectations.read():
            self.assertTrue(one["reason"] and one["figure"] and one["of"], one)

    def test_one_without_a_reason_or_a_bound_is_refused(self):
        for change in ({"reason": ""}, {"most": 1}):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump([dict(WANTED[0], **change)], file)
                file.flush()
                self.assertRaises(ValueError, expectations.read, file.name)


class Reports(unittest.TestCase):
    def run_all(self, played, *made):
        """(checkup.json, checkup.txt) after these steps; captures what is printed meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            told = Report(folder, played)
            told.wanted = WANTED
            runner = Runner(60, told.told)
            with contextlib.redirect_stdout(io.StringIO()):
                for step in made:
                    runner.step(step)
            with open(os.path.join(folder, "checkup.json"), encoding="utf-8") as file:
                said = json.load(file)
            with open(os.path.join(folder, "checkup.txt"), encoding="utf-8") as file:
                text = file.read()
        self.assertEqual(said["code"], told.code())
        return said, text

    short = Step("short", "falls short", shell('echo \'{"rows": [{"kind": "node", "load": {"ms": 9}}]}\''), 30)

    def test_a_step_whose_figure_falls_short_is_shown_as_such(self):
        said, text = self.run_all(False, Step("well", "is well", shell("true"), 30), self.short)
        self.assertEqual([(step["name"], step["status"]) for step in said["steps"]], [("well", FINE), ("short", SHORT)])
        self.assertEqual((said["code"], said["not_measured"]), (CODE_SHORT, ["bulk"]))
        self.assertRegex(text, r"quick +9\.00 +- +9\.00 +<= 5")
        self.assertIn("people wait", text)
        self.assertIn("not measured: bulk", text)
        self.assertIn("summary: 1 fine, 1 short", text)

    def test_a_played_run_judges_no_figures(self):
        said, text = self.run_all(True, self.short)
        self.assertEqual(([step["status"] for step in said["steps"]], said["code"]), ([FINE], CODE_FINE))
        self.assertIn("quick", text)

    def test_a_failure_counts_more_than_a_shortfall(self):
        said, text = self.run_all(False, self.short, Step("bad", "goes wrong", shell("exit 1"), 30))
        self.assertEqual(said["code"], CODE_FAILED)
        self.assertRegex(text, r"failed +bad .*goes wrong: exit 1")

    def test_rows_that_cannot_be_shown_cost_their_step_alone(self):
        strange = Step("strange", "says strange things", shell('echo \'{"rows": [{"kind": "bench", "pieces": "many", "way": "a"}]}\''), 30)
        said, text = self.run_all(False, strange, Step("well", "is well", shell("true"), 30))
        self.assertEqual([(step["name"], step["status"]) for step in said["steps"]], [("strange", FAILED), ("well", FINE)])
        self.assertRegex(text, "failed +strange .*cannot be shown: TypeError")

    def test_a_hang_is_a_failure(self):
        said, text = self.run_all(False, Step("long", "hangs", shell("sleep 1000"), 0.2))
        self.assertEqual(said["code"], CODE_FAILED)
        self.assertRegex(text, r"hung +long .*hangs: not over after")


MEMCHECK = """========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuPointerGetAttribute.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0x1234] in gpu_test
=========
"""
INVALID = """========= Invalid __global__ write of size 16 bytes
=========     at sl_gather+0x70
=========     by thread (3,0,0) in block (1,0,0)
=========     Address 0x7f1000000 is out of bounds
=========
"""


def checked(tool, text, code=0):
    return sanitizer.reader(tool)(StepRun(code, text, "", 1.0), [])


class Sanitizers(unittest.TestCase):
    def test_nothing_found_is_fine(self):
        read = checked("memcheck", "========= COMPUTE-SANITIZER\n100%: Checks: 72\n========= ERROR SUMMARY: 0 errors\n")
        self.assertEqual((read["reason"], read["rows"][0]["findings"]), (None, 0))

    def test_a_finding_fails_and_is_quoted(self):
        read = checked("memcheck", MEMCHECK + INVALID + "========= ERROR SUMMARY: 2 errors\n")
        self.assertEqual(read["reason"], "1 findings: Invalid __global__ write of size 16 bytes")
        self.assertEqual(read["rows"][0]["noise"], 1)
        self.assertTrue(any("out of bounds" in note for note in read["notes"]))

    def test_known_noise_is_left_out_with_its_reason(self):
        read = checked("memcheck", MEMCHECK + "========= ERROR SUMMARY: 1 error\n")
        self.assertEqual((read["reason"], read["rows"][0]["findings"]), (None, 0))
        self.assertIn("a question that the driver answers with an error", read["notes"][0])

    def test_a_failed_launch_is_no_noise(self):
        read = checked("memcheck", MEMCHECK.replace("cuPointerGetAttribute", "cuLaunchKernel") + "========= ERROR SUMMARY: 1 error\n")
        self.assertIn("cuLaunchKernel", read["reason"])

    def test_a_race_is_a_finding(self):
        read = checked("racecheck", "========= COMPUTE-SANITIZER\n========= Error: Race reported between Write access at sl_hash+0x10\n"
                       "=========     and Read access at sl_hash+0x40 [48 hazards]\n=========\n"
                       "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n")
        self.assertIn("Race reported", read["reason"])

    def test_a_count_without_a_finding_is_a_failure(self):
        self.assertIn("shows none", checked("initcheck", "========= ERROR SUMMARY: 3 errors\n")["reason"])

    def test_a_tool_that_did_not_come_to_its_end_is_a_failure(self):
        self.assertIn("no summary", checked("memcheck", "========= COMPUTE-SANITIZER\n")["reason"])

    def test_a_tool_that_refuses_the_device_is_skipped(self):
        read = checked("memcheck", "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the manual\n")
        self.assertIn("Device not supported", read["skipped"])


class Made(unittest.TestCase):
    def test_every_step_has_a_limit_and_names_are_its_own(self):
        for played in (False, True):
            made = steps.all_steps("/work", played)
            names = [step.name for step in made]
            self.assertEqual(len(names), len(set(names)))
            self.assertTrue(all(0 < step.limit_s <= 120 and step.title for step in made))

    def test_the_bench_is_read_with_what_it_is_compared_with(self):
        row = {"direction": "in", "piece_bytes": 4096, "pieces": 1000, "gb_per_s": 30.0, "limit_gb_per_s": 50.0, "ways": {"a": 31.0, "b": 0.0}}
        ran = StepRun(0, json.dumps({"device": "GPU 0", "rows": [row], "note": "", "rows_late": 2}) + "\n", "", 1.0)
        device = {"name": "device", "rows": [{"kind": "device", "link": {"limit_gb_per_s": 63.0}}]}
        read = steps.bench_read(ran, [device])
        self.assertEqual(read["notes"], ["GPU 0", "2 rows left out for lack of time"])
        self.assertEqual([read["rows"][0][name] for name in ("kind", "bytes", "best_gb_per_s", "link_gb_per_s")], ["bench", 4096000, 31.0, 63.0])

    def test_a_bench_without_a_device_is_skipped(self):
        ran = StepRun(1, '{"error": "SL_ERR_UNSUPPORTED", "text": "no driver"}\n', "", 1.0)
        self.assertEqual(steps.bench_read(ran, []), {"skipped": "no driver"})

    def test_a_bench_that_says_nothing_fails_with_its_words(self):
        self.assertEqual(steps.bench_read(StepRun(2, "", "unknown option\n", 1.0), []), {"reason": "unknown option"})

    def test_memory_that_stays_away_is_a_failure(self):
        first = [{"name": "device", "rows": [{"kind": "device", "free_bytes": 10 << 30}]}]
        for free, wrong in ((10 << 30, False), (9 << 30, True)):
            ran = StepRun(0, json.dumps({"rows": [{"kind": "device", "free_bytes": free}]}) + "\n", "", 1.0)
            self.assertEqual(bool(steps.memory_released_read(ran, first)["reason"]), wrong)

    def test_pages_that_stay_pinned_are_a_failure(self):
        def said(pages):
            return [{"kind": "machine", "pinned_pages": pages}, {"kind": "device", "free_bytes": 1 << 30}]

        for pages, wrong in ((100, False), (1 << 20, True)):
            ran = StepRun(0, json.dumps({"rows": said(pages)}) + "\n", "", 1.0)
            self.assertEqual(bool(steps.memory_released_read(ran, [{"name": "device", "rows": said(100)}])["reason"]), wrong)

    def test_columns_are_as_wide_as_what_they_hold(self):
        self.assertEqual(report.table(["name", "GB/s"], [["long name", 1.5], ["x", None]]),
                         ["name       GB/s", "long name  1.50", "x             -"])

    def test_wrong_use_is_told(self):
        checkup = os.path.join(HERE, "checkup")
        for words in ([], ["--run", "no-such-step"], ["--run", "--played"]):
            done = subprocess.run([checkup, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)

    def test_a_run_without_a_gpu_is_not_fine(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink("/dev/null", os.path.join(folder, "libcuda.so.1"))  # a driver that cannot be loaded, on any machine
            done = subprocess.run([os.path.join(HERE, "checkup"), "--run", "--out", folder, "device", "registration", "given-back"],
                                  env=dict(os.environ, LD_LIBRARY_PATH=folder), capture_output=True, text=True, check=False)
            with open(os.path.join(folder, "checkup.json"), encoding="utf-8") as file:
                said = json.load(file)["steps"]
        self.assertEqual(([step["status"] for step in said], done.returncode), ([FAILED, SKIPPED, SKIPPED], CODE_FAILED), done.stdout)
        self.assertIn("no driver: ", said[0]["reason"])

    def test_without_a_python_the_reason_is_told(self):
        done = subprocess.run([os.path.join(HERE, "checkup"), "--run"], capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/bin:/bin", "CHECKUP_PYTHON": "no-such-python"})
        self.assertEqual(done.returncode, 4)
        self.assertIn("no Python from 3.8 on", done.stderr)


if __name__ == "__main__":
    suite.run()
