#!/usr/bin/env python3
"""`sluicectl bench gpu --json` on the GPU of this machine; skipped with its own words where there is none.

    bench_gpu_test.py [FOLDER OF A DRIVER THAT PLAYS A GPU]"""
import json
import os
import subprocess
import sys
import tempfile

WAYS = ("copies", "batch", "staged", "mapped")
TOTAL = 80 if len(sys.argv) == 1 else 20  # a processor that plays a GPU is slow


def bench(environment, *arguments):
    command = [os.path.join(os.environ["SLUICE_BIN"], "sluicectl"), "bench", "gpu", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def main():
    environment = dict(os.environ)
    if len(sys.argv) > 1:
        environment["LD_LIBRARY_PATH"] = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        environment["SLUICE_RUNTIME_DIR"] = folder + "/run"
        done = bench(environment, "--json", "--total", f"{TOTAL}MiB")
        said = json.loads(done.stdout)
        if "error" in said:
            assert done.returncode == 1 and said["error"] == "SL_ERR_UNSUPPORTED", said
            print("skipped:", said["text"])
            sys.exit(77 if len(sys.argv) == 1 else 1)
        assert done.returncode == 0, done.stderr
        print(said["device"])
        sizes = {(row["direction"], row["piece_bytes"], row["pieces"]) for row in said["rows"]}
        wanted = {(way, size, count) for way in ("in", "out") for size in (4096, 16384, 65536)
                  for count in (1000, 10000, 100000) if size * count <= TOTAL << 20}
        assert sizes == wanted, sizes
        assert said["rows_left_out"] == 18 - len(wanted)
        for row in said["rows"]:
            print(row)
            assert row["chosen"] in WAYS and row["gb_per_s"] > 0 and row["limit_gb_per_s"] > 0
            assert (row["digested_gb_per_s"] > 0) == (row["direction"] == "out")
            assert row["ways"][row["chosen"]] > 0
        assert said["checked_bytes"] > 0 and len(said["crossover"]) == 54
        kept = [name for name in os.listdir(folder + "/run/cache") if name.startswith("crossover-")]
        assert len(kept) == 1, kept
        done = bench(environment, "--total", "8MiB")  # the table, with the figures that were kept
        assert done.returncode == 0 and "CHOSEN" in done.stdout and "crossover out" in done.stdout, done.stdout
        print(done.stdout)


main()
