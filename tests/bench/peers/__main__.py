#!/usr/bin/env python3
"""Sluice, Mooncake and Redis on the same work in one run on this host, with memcpy of the same bytes as the limit.

Every row is measured in rounds in which the stores take turns, every value is different, and every byte that was read is
compared outside the measured time. Ratios are medians of the rounds' ratios of the median times of a call. Mooncake's wheel
is installed from PyPI into a virtual environment (--cache); a store that cannot be installed is left out and named.

  python3 tests/bench/peers --quick                              about a minute
  python3 tests/bench/peers --json peers.json --plot peers.svg   all rows
  python3 tests/bench/peers --rows 'one batch_' --peers mooncake

Exit codes: 0 measured, 1 something failed, 2 wrong use, 77 not built (--smoke), 130 interrupted."""

import argparse
import os
import re
import shutil
import signal
import sys
import time

import plot
import report
from rows import MIB, SECTIONS, Exercise, exercises_all, exercises_quick, exercises_smoke
from run import Bench, Progress
from sides import MOONCAKE_PACKAGES, ROOT, SIDES, Missing

# rounds, measured seconds of each phase in a round, MiB of each store
SCALES = {"smoke": (1, 0.02, 192), "quick": (3, 0.08, 1024), "full": (3, 0.2, 2048)}


def arguments_parse():
    parser = argparse.ArgumentParser(prog="tests/bench/peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="fewer rows, about a minute")
    add("--smoke", action="store_true", help="a handful of rows once, of Sluice only, to check that the bench works")
    add("--rows", metavar="REGEX", default="", help="only rows whose name matches, e.g. 'two|is_exist'")
    add("--list", action="store_true", help="print the names of the rows and end")
    add("--peers", metavar="NAMES", default="mooncake,redis,memcpy", help="beside Sluice (default: %(default)s)")
    add("--rounds", type=int, help="turns of each row (default: 3)")
    add("--seconds", type=float, help="measured in each round of writing and of reading (default: 0.2, quick: 0.08)")
    add("--memory", metavar="MIB", type=int, help="of each store (default: 2048, quick: 1024)")
    add("--cpu", action="store_true", help="print CPU time of a call, of the caller and the store's processes, instead of p99")
    add("--json", metavar="FILE", help="write all figures")
    add("--plot", metavar="FILE.svg", help="write a picture of the ratios")
    add("--markdown", metavar="FILE", help="write the ratios to Mooncake as tables for a README")
    add("--build", metavar="DIR", default=os.path.join(ROOT, "build", "release"), help="where Sluice is built")
    add("--cache", metavar="DIR", default=os.path.join(ROOT, "build", "peers"), help="virtual environments (default: %(default)s)")
    add("--mooncake", metavar="PACKAGE", default=MOONCAKE_PACKAGES[shutil.which("nvidia-smi") is not None],
        help="what pip installs (default: %(default)s, of which packages/ has the version and the hashes)")
    add("--keep", action="store_true", help="keep the logs of all processes")
    options = parser.parse_args()
    options.scale = "smoke" if options.smoke else "quick" if options.quick else "full"
    for name, value in zip(("rounds", "seconds", "memory"), SCALES[options.scale]):
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.smoke:
        options.peers = ""
    options.peers = [name for name in options.peers.split(",") if name]
    unknown = set(options.peers) - (SIDES.keys() - {"sluice"})
    if unknown:
        parser.error(f"no peer is called {', '.join(sorted(unknown))}: there are mooncake, redis, memcpy")
    if options.rounds < 1 or options.seconds <= 0 or options.memory < 64:
        parser.error("--rounds is at least 1, --seconds above 0, --memory at least 64")
    try:
        options.pattern = re.compile(options.rows)
    except re.error as failure:
        parser.error(f"--rows: {failure}")
    options.segment_bytes = options.memory * MIB
    options.cold_memory_bytes = min(options.segment_bytes, 256 * MIB)
    options.buffer_bytes = options.local_bytes = max(options.segment_bytes // 8, 16 * MIB)
    return options


def exercises_chosen(options) -> list[Exercise]:
    every = {"smoke": exercises_smoke, "quick": exercises_quick, "full": exercises_all}[options.scale]()
    return [one for one in every if one.bytes <= options.buffer_bytes
            and any(options.pattern.search(row.name) for row in one.rows().values())]


def sides_prepare(options):
    """The sides that can run here, Sluice first, and why others cannot."""
    sides, missing = [], {}
    for name in ["sluice", *options.peers]:
        side = SIDES[name](options)
        try:
            side.prepare()
            sides.append(side)
        except Missing as failure:
            side.stop()
            missing[side.title] = str(failure)
            print(f"{side.title} is left out: {failure}", file=sys.stderr, flush=True)
    return sides, missing


def measure(options, exercises, bench, sides):
    progress = Progress(len(exercises) * options.rounds * len(sides))
    for section in SECTIONS:
        chosen = [one for one in exercises if one.section == section]
        if chosen:
            bench.section_run(section, chosen, progress)
    progress.end()


def interrupted(number, frame):
    raise KeyboardInterrupt


def main():
    options = arguments_parse()
    exercises = exercises_chosen(options)
    if options.list:
        for one in exercises:
            print("\n".join(row.name for row in one.rows().values()))
        return 0
    if not exercises:
        print("no row matches", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    sides, bench, code, began = [], None, 0, time.time()
    try:
        sides, missing = sides_prepare(options)
        if "Sluice" in missing:
            return 77 if options.smoke else 1
        bench = Bench(options, sides)
        measure(options, exercises, bench, sides)
    except Missing as failure:
        print(f"failed: {failure}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("interrupted; what was measured until now:", file=sys.stderr)
        code = 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for side in sides:
            side.stop()
    if bench is not None:
        figures = report.figures(options, bench, sides, missing, time.time() - began)
        print(report.table(figures, options.cpu))
        report.save(figures, options.json)
        report.markdown_save(figures, options.markdown)
        plot.save(figures, options.plot)
        if any("sluice" in row["failures"] for row in figures["rows"]):
            code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
