#!/usr/bin/env python3
"""`sluicectl bench gpu --json` on the GPU of this machine; skipped, with its own message, where there is none.

    bench_gpu_test.py [FOLDER OF A DRIVER THAT PLAYS A GPU]"""
import json
import os
import subprocess
import sys
import tempfile

WAYS = ("copies", "batch", "staged", "mapped")
TOTAL = 80 if len(sys.argv) == 1 else 20  # the CPU that plays a GPU is slow


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
        sizes = {(row["host"], row["values"], row["direction"], row["piece_bytes"], row["pieces"]) for row in said["rows"]}
        wanted = {(host, values, way, size, count) for host in ("tmpfs", "pinned") for values in ("scattered", "adjacent", "layers")
                  for way in ("in", "out") for size in (4096, 16384, 28672, 65536, 262144) for count in (1000, 10000, 100000)
                  if size * count <= TOTAL << 20}
        assert sizes == wanted, sizes
        assert len(said["rows"]) == len(wanted) and said["rows_late"] == 0 and said["note"] == "", said
        assert said["rows_left_out"] == 180 - len(wanted)
        for row in said["rows"]:
            print(row)
            assert row["drains"] <= 1 and row["cap"] == 8
            assert row["chosen"] in WAYS and row["gb_per_s"] > 0 and row["limit_gb_per_s"] > 0
            assert row["digested_gb_per_s"] > 0
            if row["direction"] == "in":  # the digest pass together with the load, as a share of its time
                assert abs(row["digest_cost"] - row["gb_per_s"] / row["digested_gb_per_s"]) < 1e-6
            assert row["ways"][row["chosen"]] > 0
        assert said["checked_bytes"] > 0 and len(said["crossover"]) == 108
        kept = [name for name in os.listdir(folder + "/run/cache") if name.startswith("crossover-")]
        assert len(kept) == 1, kept
        done = bench(environment, "--json", "--total", "8MiB", "--sizes", "4KiB,8KiB", "--counts", "100,1000", "--ways", "batch,mapped",
                     "--values", "layers", "--host", "pinned", "--swap-multiprocessors", "2")
        said = json.loads(done.stdout)
        assert [(row["piece_bytes"], row["pieces"]) for row in said["rows"]] == [(size, count) for size in (4096, 8192) for count in (100, 1000)
                                                                                for _ in range(2)], said["rows"]
        for row in said["rows"]:
            assert row["host"] == "pinned" and row["values"] == "layers" and row["cap"] == 2
            assert row["ways"]["copies"] == row["ways"]["staged"] == 0 and row["ways"]["batch"] > 0
        kept = [name for name in os.listdir(folder + "/run/cache") if name.startswith("crossover-")]
        assert len(kept) == 2, kept  # the name contains the number of multiprocessors
        done = bench(environment, "--json", "--total", "8MiB", "--seconds", "0.000001")
        assert json.loads(done.stdout)["rows"] == [] and json.loads(done.stdout)["rows_late"] == 12, done.stdout
        for wrong in (("--sizes", "4KiB,"), ("--counts", "7"), ("--ways", "fast"), ("--values", ""), ("--host", "disk")):
            assert bench(environment, *wrong).returncode != 0, wrong
        done = bench(environment, "--total", "8MiB")  # the table, with the figures that were saved
        assert done.returncode == 0 and "CHOSEN" in done.stdout and "crossover out" in done.stdout, done.stdout
        print(done.stdout)


main()
