#!/usr/bin/env python3
"""The models in this folder hold as they are, and fail without each of their fences.

models_test.py [MODEL]: needs spin and a C compiler; exits 77 without them. A model that finds no error without a fence would
prove nothing about it, so each variant must fail."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
MEMORY_MIB = 1024
DEPTH = 20000
SECONDS_MAX = 2400  # each; the largest needs four on an idle machine, but builds and other suites have priority

# Model: (variants that hold, variants that must fail).
MODELS = {
    "pins": (
        ["", "TSO"],
        ["NO_FENCE_PIN", "NO_FENCE_SCAN", "NO_FENCE_FIND", "NO_ACQUIRE_FIND", "NO_ACQUIRE_SLOT", "NO_FENCE_COPY",
         "NO_FENCE_RECORD", "NO_FENCE_SLAB", "NO_RELEASE_RECORD", "NO_RELEASE_KIND", "NO_RELEASE_GIVE", "NO_RECHECK",
         "NO_SCAN", "REUSE_VERSION", "TSO NO_FENCE_PIN", "TSO NO_FENCE_SCAN", "TSO NO_ACQUIRE_SLOT"],
    ),
    "queue": (
        ["", "TSO", "DEATH", "TSO DEATH"],
        ["NO_FENCE_SLEEP", "NO_FENCE_RING", "NO_RELEASE_TAIL", "NO_ACQUIRE_TAIL", "NO_RELEASE_HEAD", "NO_RECHECK",
         "DEATH NO_LOOK_AGAIN", "TSO NO_FENCE_SLEEP", "TSO NO_FENCE_RING"],
    ),
    "calls": (
        ["", "CLIENTS=2"],
        ["NO_ARM_WAIT", "NO_KEEP_START", "NO_KEEP_LEAVE", "NO_LOOK_ARMED", "NO_HAND_OVER", "NO_WAKE_POLLER",
         "NO_WAKE_WAITER"],
    ),
}


def run(command, directory):
    done = subprocess.run(command, cwd=directory, timeout=SECONDS_MAX, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} gave {done.returncode}:\n{done.stdout}")
    return done.stdout


def check(model, variant, holds, compiler):
    """The first violation or None, and the number of states that were searched."""
    with tempfile.TemporaryDirectory(prefix="sl-model-") as directory:
        defines = [f"-D{word}" for word in variant.split()]
        run(["spin", *defines, "-a", os.path.join(HERE, model + ".pml")], directory)
        # Short searches: compiling costs more than it saves.
        run([compiler, "-O1" if holds else "-O0", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c"], directory)
        text = run(["./pan", f"-m{DEPTH}"], directory)
    states = re.search(r"(\d+) states, stored", text)
    errors = re.search(r"errors: (\d+)", text)
    # A search that was cut short proves nothing.
    if states is None or errors is None or "max search depth too small" in text or "memory limit" in text or \
            "Search not completed" in text and errors.group(1) == "0":
        raise SystemExit(f"{model} {variant}: the search did not end:\n{text}")
    found = re.search(r"pan:1: (.*?) \(at depth", text)
    if (found is None) != (errors.group(1) == "0"):
        raise SystemExit(f"{model} {variant}: not understood:\n{text}")
    return found.group(1) if found else None, int(states.group(1))


def main():
    compiler = shutil.which("gcc") or shutil.which("cc")
    if shutil.which("spin") is None or compiler is None:
        print(f"skipped: {'spin' if compiler else 'a C compiler'} is not installed (deploy/install --test installs it)")
        return 77
    failures = 0
    variants = [(model, variant, variant in MODELS[model][0])
                for model in sys.argv[1:] or MODELS for variant in MODELS[model][0] + MODELS[model][1]]

    def timed(row):
        began = time.monotonic()
        return (*row, *check(*row, compiler), time.monotonic() - began)

    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for model, variant, holds, found, states, seconds in pool.map(timed, variants):
            good = (found is None) == holds
            failures += not good
            print(f"{'ok    ' if good else 'FAILED'} {model:5} {variant or 'whole':20} {states:8} states, {seconds:4.1f} s: "
                  f"{found or 'holds'}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
