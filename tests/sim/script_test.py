"""The supervisor's decisions, by the script's own functions under a simulated clock (script_world.bash): restarts, back-off, stops.

An actor that repeatedly dies at once is restarted after pauses that double from 0.1 s to 5 s; the first start is immediate, and so is
one after a drain. No actor runs twice at the same time. Healthy actors keep running, and an actor killed once is restarted at once.
When the cause is gone, the node is whole within the longest pause. A stop also ends during a back-off, and nothing is started after it.
In a third of the runs watchers die, hang and cannot be started. SL_SIM_SEEDS: how many; SL_SIM_SEED: only this one.
"""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/support"))
import suite  # noqa: E402

SCRIPT = os.path.join(ROOT, "deploy/sluice-node")
WORLD = os.path.join(ROOT, "tests/sim/script_world.bash")
SEEDS = int(os.environ.get("SL_SIM_SEEDS", "40"))
MUTANTS = [  # the defect, the script's text and its replacement; each text must occur once
    ("the pause does not grow", "backoff_ms[$name] * 2", "backoff_ms[$name]"),
    ("the pause has no bound", '-le "$BACKOFF_MS_MAX" ] || backoff_ms', "-le 999999 ] || backoff_ms"),
    ("who runs is started again", 'if [ "${pid_of[$name]:-0}" -eq 0 ] && [ "${start_at_ms[$name]:-0}" -le "$now" ]', 'if [ "${start_at_ms[$name]:-0}" -le "$now" ]'),
    ("a restart waits for the next tick", "wait_ms=$((${start_at_ms[$name]:-0} - now))", "wait_ms=$WATCH_MS"),
    ("a long life does not count", "STABLE_SECONDS * 1000)) ] || [ \"${#exits[@]}\" -eq 1 ]", "999999)) ] || [ \"${#exits[@]}\" -eq 1 ]"),
    ("the node waits for its metrics", 'is_helper "$name" || node_state_set', "node_state_set"),
    ("metrics are not tried again", 'for name in "${actors[@]}" "${helpers[@]}"; do\n        if [ "${pid_of[$name]:-0}" -eq 0 ] && [ "${start_at_ms[$name]:-0}" -le "$now" ]',
     'for name in "${actors[@]}"; do\n        if [ "${pid_of[$name]:-0}" -eq 0 ] && [ "${start_at_ms[$name]:-0}" -le "$now" ]'),
    ("a state of before a start counts", '[ "$pid" != "$watch_commands" ] || state_reported', "state_reported"),
    ("a watcher that hangs is not replaced", '$((now - report_ms)) -gt "$WATCH_MS"', "$((now - report_ms)) -gt 99999999"),
]


def run(script, first, count):
    done = subprocess.run([WORLD, script, str(first), str(count)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1500)
    return done.returncode == 0, done.stdout


class Functions(unittest.TestCase):
    """Single functions of the script, for moments that random runs rarely meet. Each prints its errors, and `end`."""

    def said(self, text):
        with tempfile.TemporaryDirectory() as at:
            before = f"""source <(head -n -1 {SCRIPT}); state_paths {at}; S_runtime_dir={at} S_log_dir={at}/logs log_place={at} me=$BASHPID my_born=1 bin=/none
                declare -A pid_of=([keyer]=0) born_of; mkdir {at}/logs; supervisor_log() {{ :; }}; supervisor_lives() {{ :; }}\n"""
            return subprocess.run(["bash", "-c", f"{before}{text}\necho end"], text=True, stdout=subprocess.PIPE, cwd=at, timeout=60).stdout

    def test_an_upgrade_that_finds_no_process_kills_none(self):
        self.assertEqual(self.said("kill() { echo kill $*; }; now=2 until_drained=1 since=0; swap_is_over keyer 0 1 /none"), "end\n")

    def test_an_actor_is_not_taken_for_ended_while_no_descriptor_is_free(self):
        self.assertEqual(self.said("""sleep 60 & pid_of[keyer]=$! ; born_set $!; born_of[keyer]=$born
            ulimit -S -n 3; is_running keyer || echo gone; ulimit -S -n 64
            kill $!; wait $!; ! is_running keyer || echo lives"""), "end\n")

    def test_a_lock_that_cannot_be_made_again_stays_with_its_holder(self):
        self.assertEqual(self.said("""lock_take; mv supervisor.lock lock; mkdir supervisor.lock; lock_restore; lock_restore
            ! flock -n lock true || echo lost"""), "end\n")

    def test_a_state_of_another_release_is_understood(self):
        for line in "ready", "degraded tierer.0":
            self.assertEqual(self.said(f"""watch_pid=1 actors=(); exec {{watch_out}}<<<'state {line}'; hear 1000; [ "$node_state" = '{line}' ] || echo $node_state"""), "end\n")
            first, *rest = line.split()
            self.assertEqual(self.said(f"""echo {first} 7 {' '.join(rest)} >supervisor.ready; node_how_set; [ "$how" = '{line}' ] || echo $how"""), "end\n")

    def test_an_upgrade_in_place_does_not_take_a_refusal_for_the_new_supervisor(self):
        text = """new_bin=$bin; format_write; LOCK_SECONDS=0; supervisor_reads_next() { pid=1; }; kill() { rm supervisor.next; %s; }
            (supervisor_swap) && echo swapped"""
        self.assertEqual(self.said(text % ":"), "end\n")
        self.assertEqual(self.said(text % "format_write"), "swapped\nend\n")

    def test_a_log_directory_removed_before_a_takeover_is_made_again(self):
        self.assertEqual(self.said('exec {log_fd}<logs/.; rmdir logs; S_shm_dir=/none; state_open; [ "$S_log_dir" -ef "$log_place" ] || echo unlinked'), "end\n")

    def test_systemd_learns_of_a_node_that_serves_without_an_actor(self):
        actors = "actors=(registrar tierer.0 swapper.0) NOTIFY_SOCKET=/none; watch_send() { echo $*; }; now_set; serves=%d ready_until_ms=$((now %+d))"
        for serves, ms, waiting, said in [(1, -1, "swapper.0", "notify READY=1\n"), (1, 9999, "swapper.0", ""), (0, -1, "swapper.0", ""),
                                          (1, -1, "tierer.0", "notify READY=1\n"), (0, -1, "tierer.0", "")]:
            self.assertEqual(self.said(f"{actors % (serves, ms)}; node_state='waiting {waiting}'; systemd_report; systemd_report"), said + "end\n")

    def test_a_supervisor_that_lost_the_first_signal_ends(self):
        self.assertEqual(self.said("""exec {nap_fd}<> <(:); bash -c 'trap "trap - TERM" TERM; echo $$ >ready; while :; do sleep 0.1; done' & until [ -s ready ]; do nap 0.01; done
            born_set $!; pid_put "$pid_file" $! $born; supervisor_end $! || { echo lives; kill -KILL $!; }"""), "end\n")


class Decisions(unittest.TestCase):
    def test_every_seed_holds(self):
        one = os.environ.get("SL_SIM_SEED")
        fine, said = run(SCRIPT, int(one or 0), 1 if one else SEEDS)
        self.assertTrue(fine, said)
        self.assertEqual(said, "")

    def test_every_mutant_is_found(self):
        with open(SCRIPT, encoding="utf-8") as file:
            text = file.read()
        for name, what, by in MUTANTS:
            with self.subTest(name), tempfile.NamedTemporaryFile("w", suffix=".bash") as mutant:
                self.assertEqual(text.count(what), 1, f"{what}: the script has changed")
                mutant.write(text.replace(what, by))
                mutant.flush()
                found = next((said for first in range(0, SEEDS, 4) for fine, said in [run(mutant.name, first, 4)] if not fine), "")
                self.assertRegex(found, "seed [0-9]+: at ", f"not found within {SEEDS} seeds")
                print(f"{name}: {found.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    suite.run()
