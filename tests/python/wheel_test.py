"""The wheel, installed by pip where nothing of the build is: the README's example runs, and on no library of the build's
machine but what every Linux with Python has."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "node"))
from node_support import BIN, PATIENCE, ROOT, Node, main  # noqa: E402

EVERYWHERE = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|util|z|expat|python)[-.0-9])|linux-vdso|locale")
AFTERWARDS = """
import os
import ssl, hashlib  # beside OpenSSL of the interpreter's own
with open("/proc/self/maps") as maps:
    print("mapped", *sorted({line.split()[5] for line in maps if len(line.split()) > 5 and ".so" in line}))
print("version", sluice.__version__)
"""


def example():
    with open(os.path.join(ROOT, "client", "python", "README.md"), encoding="utf-8") as text:
        return re.search(r"```python\n(.*?)```", text.read(), re.DOTALL).group(1)


class Wheel(unittest.TestCase):
    def run_clean(self, *command, **options):
        """Outside of the source, with nothing of the environment that could lead back to it."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": self.directory, **options}
        done = subprocess.run(command, cwd=self.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_it_is_all_that_is_needed(self):
        with tempfile.TemporaryDirectory(prefix="sl-") as self.directory, Node(ranks=1, memory="64MiB") as node:
            preset = os.path.basename(os.path.dirname(os.path.realpath(BIN)))
            wheel = subprocess.run([os.path.join(ROOT, "deploy", "wheel"), "--preset", preset, "--output", self.directory],
                                   stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
            self.run_clean(sys.executable, "-m", "venv", "venv")
            python = os.path.join(self.directory, "venv", "bin", "python")
            self.run_clean(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
            with open(os.path.join(self.directory, "example.py"), "w", encoding="utf-8") as script:
                script.write(example() + AFTERWARDS)
            said = self.run_clean(python, "example.py", SLUICE_INSTANCE=node.instance, SLUICE_SHM_DIR=node.shm,
                                  SLUICE_RUNTIME_DIR=node.directory + "/run").splitlines()
            self.assertEqual(said[:2], ["b'hello'", "1"])
            mapped = said[2].split()[1:]
            own = [path for path in mapped if path.startswith(self.directory) and "/sluice/" in path]
            self.assertTrue(any("/sluice/lib/libsluice.so.1" in path for path in own), mapped)
            self.assertTrue(any("/sluice/lib/libzmq.so" in path for path in own), mapped)
            names = {os.path.basename(path) for path in own}
            for path in set(mapped) - set(own):
                self.assertNotIn(os.path.basename(path), names)
                # The interpreter's own modules bring what they need.
                self.assertTrue(EVERYWHERE.search(os.path.basename(path)) or "lib-dynload" in path or
                                re.match(r"lib(crypto|ssl)\.so", os.path.basename(path)), path)
            self.run_clean(python, "-m", "pip", "check")
            self.run_clean(python, "-m", "pip", "uninstall", "-y", "sluice")


if __name__ == "__main__":
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        print("skipped: no venv with pip can be made (Debian's python3-venv)")
        sys.exit(77)
    main()
