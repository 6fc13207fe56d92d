"""The check-up's entry point: see tests/gpu/checkup."""

import argparse
import os
import shutil
import sys
import tempfile

import pack
import steps
from report import CODE_FAILED, CODE_FINE, Report, say
from runner import Ended, Runner

RUN_MINUTES = 8.75  # of the nine; the rest is for the report
PLAYED_MINUTES = 8.0


def arguments(words):
    parser = argparse.ArgumentParser(prog="checkup", description="The check-up of a machine with a GPU; tests/README.md says more.")
    use = parser.add_mutually_exclusive_group(required=True)
    use.add_argument("--pack", metavar="FILE", help="build, and put programs, libraries and scripts into one archive")
    use.add_argument("--run", action="store_true", help="run all steps on this machine's GPU")
    use.add_argument("--played", action="store_true", help="run all steps on the driver that plays a GPU")
    use.add_argument("--list", action="store_true", help="print the steps")
    parser.add_argument("--out", metavar="DIR", help="where checkup.json, checkup.txt and checkup.log go (default: checkup-out)")
    parser.add_argument("--minutes", type=float, help=f"in all, at most (default {RUN_MINUTES})")
    parser.add_argument("--no-build", action="store_true", help="--pack: take build/release as it is")
    parser.add_argument("--sanitizer", metavar="FOLDER", help="--pack: take compute-sanitizer along from this folder")
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only these steps")
    given = parser.parse_args(words)
    names = [step.name for step in steps.all_steps("", given.played)]
    wrong = [name for name in given.steps if name not in names]
    if wrong:
        parser.error(f"no step {', '.join(wrong)}; steps are {', '.join(names)}")
    return given


def run(given):
    work = tempfile.mkdtemp(prefix="checkup-work-")
    try:
        told = Report(given.out or "checkup-out", given.played)
        minutes = given.minutes or (PLAYED_MINUTES if given.played else RUN_MINUTES)
        with Runner(60 * minutes, told.told, steps.environment(work, given.played)) as runner:
            for step in steps.all_steps(work, given.played):
                if not given.steps or step.name in given.steps:
                    runner.step(step)
        lines = told.lines()
        say("\n".join(lines[lines.index("") + 1 + len(told.results):]))  # the steps were already printed one by one
        say(f"results: {os.path.join(told.folder, 'checkup.json')}, checkup.txt, checkup.log")
        return told.code()
    except Ended as signal_name:
        print(f"checkup: ended by {signal_name}", file=sys.stderr)
        return CODE_FAILED
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    given = arguments(sys.argv[1:])
    if given.list:
        for step in steps.all_steps("", False):
            print(f"{step.name:20}{step.limit_s:4.0f} s at most  {step.title}")
        return CODE_FINE
    if given.pack:
        return pack.pack(given.pack, given.sanitizer, not given.no_build)
    return run(given)


if __name__ == "__main__":
    sys.exit(main())
