#!/usr/bin/env python3
"""The check-up's archive: made from the build, unpacked elsewhere, and run there on the driver that plays a GPU."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))

import suite  # noqa: E402

STEPS = ("programs", "device", "bench-cap", "node", "device-node", "registration", "torch-plain", "given-back")


class Archive(unittest.TestCase):
    def test_it_is_small_and_runs_where_it_is_unpacked(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "checkup.tar.gz")
            done = subprocess.run([os.path.join(HERE, "checkup"), "--pack", file, "--no-build"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            print(done.stdout)
            self.assertEqual(int(re.search(r": (\d+) bytes", done.stdout).group(1)), os.path.getsize(file))
            self.assertLess(os.path.getsize(file), 60 << 20)
            subprocess.run(["tar", "xf", file, "-C", folder], check=True)
            top = os.path.join(folder, "sluice-checkup")
            self.only_its_own_libraries(top)
            environment = {name: os.environ[name] for name in ("PATH", "CHECKUP_PYTHON", "HOME") if name in os.environ}
            done = subprocess.run([os.path.join(top, "checkup"), "--played", "--out", folder + "/out", *STEPS], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(folder + "/out/checkup.json", encoding="utf-8") as said:
                self.assertEqual([(step["name"], step["status"]) for step in json.load(said)["steps"]], [(name, "fine") for name in STEPS])

    def only_its_own_libraries(self, top):
        """All libraries except glibc are loaded from the archive."""
        libraries = os.path.join(top, "build", "release", "lib")
        for folder in ("bin", "tests", "python/sluice", "python/mooncake"):
            folder = os.path.join(top, "build", "release", folder)
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                path = os.path.join(folder, name)
                if os.path.isdir(path):
                    continue
                for line in subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout.splitlines():
                    self.assertNotIn("not found", line, path)
                    words = line.split()
                    if "=>" in words and not re.match(r"(ld-linux|lib(c|m|pthread|dl|rt|resolv|stdc\+\+|gcc_s)\.so)", words[0]):
                        self.assertEqual(os.path.dirname(os.path.realpath(words[2])), os.path.realpath(libraries), f"{path}: {line}")


if __name__ == "__main__":
    suite.run()
