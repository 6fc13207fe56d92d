"""`cmake --install`: a node runs from its installed place, and programs find libsluice by pkg-config and by CMake."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

from node_support import BIN, Node, main

PROGRAM = r"""
#include <sluice.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    struct sl_client *client = NULL;
    struct sl_error why = {0};
    const char *const settings[] = {argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL, NULL};
    const struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                              .instance = argc > 1 ? argv[1] : NULL,
                                              .settings = settings};
    if (sl_client_open(&options, &client, &why) != SL_OK) {
        printf("%s\n", why.text);
        return 3;
    }
    printf("%s\n", sl_client_instance(client));
    sl_client_close(&client);
    return 0;
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(use C)
find_package(sluice 0.1 REQUIRED)
add_executable(use use.c)
target_link_libraries(use PRIVATE sluice::sluice)
"""


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: code {done.returncode}\n{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.mkdtemp(prefix="sluice-install-")
        cls.addClassCleanup(shutil.rmtree, cls.place)
        cls.prefix = os.path.join(cls.place, "prefix")
        cls.said = run("cmake", "--install", os.path.dirname(BIN), "--prefix", cls.prefix)
        for name, text in (("use.c", PROGRAM), ("CMakeLists.txt", PROJECT)):
            with open(os.path.join(cls.place, name), "w", encoding="utf-8") as file:
                file.write(text)
        cls.lib = os.path.dirname(cls.find("libsluice.so"))

    @classmethod
    def find(cls, name):
        for directory, _, files in os.walk(cls.prefix):
            if name in files:
                return os.path.join(directory, name)
        raise AssertionError(f"{name} is not installed")

    def says(self, program, node):
        said = run(program, node.instance, f"runtime_dir={node.directory}/run", f"shm_dir={node.shm}",
                   env={**os.environ, "LD_LIBRARY_PATH": self.lib})
        self.assertEqual(said, node.instance + "\n")

    def test_units_come_with_their_user_and_what_closes_them(self):
        self.assertIn("\nUser=sluice\n", open(self.find("10-hardening.conf"), encoding="utf-8").read())
        self.assertIn(os.path.join("lib", "sysusers.d", "sluice.conf"), [os.path.join(os.path.relpath(directory, self.prefix), name)
                                                                      for directory, _, files in os.walk(self.prefix) for name in files])
        self.assertIn('echo "d /dev/shm/sluice-$(id -u sluice) 0700 sluice sluice -" >/etc/tmpfiles.d/', self.said)
        with open(self.find("sluice-node@.service"), encoding="utf-8") as unit:
            self.assertIn(f"ExecStart={self.prefix}/bin/sluice-node start", unit.read())

    def test_a_node_runs_from_there(self):
        node = Node(ranks=1, memory="64MiB")  # only its directories and settings
        self.addCleanup(shutil.rmtree, node.directory)
        supervisor = os.path.join(self.prefix, "bin", "sluice-node")
        environment = {name: value for name, value in os.environ.items() if name != "SLUICE_BIN"}
        run(supervisor, "start", *node.settings, *node.where, env=environment, cwd="/")
        self.addCleanup(run, supervisor, "stop", *node.where, env=environment, cwd="/")
        with open(f"{node.directory}/run/pid/registrar", encoding="utf-8") as line:
            registrar = int(line.read().split()[0])
        self.assertEqual(os.readlink(f"/proc/{registrar}/exe"), os.path.join(self.prefix, "bin", "sluice-registrar"))

    def test_programs_find_the_library(self):
        pkg_config = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(self.find("sluice.pc"))}
        words = run("pkg-config", "--cflags", "--libs", "sluice", env=pkg_config).split()
        run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "use.c", *words, "-o", "use", cwd=self.place)
        run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", cwd=self.place)
        run("cmake", "--build", "build", cwd=self.place)
        with Node(ranks=1, memory="64MiB") as node:
            for program in ("use", "build/use"):
                self.says(os.path.join(self.place, program), node)

    def test_units_name_what_is_installed(self):
        units = os.path.dirname(self.find("sluice-node@.service"))
        for name in filter(lambda one: "@" in one, os.listdir(units)):
            with open(os.path.join(units, name), encoding="utf-8") as unit:
                text = unit.read()
            for place in ("/usr/lib/sluice", "@sluice_bin@"):
                self.assertNotIn(place, text, name)
            for program in re.findall(r"(/[\w./-]+/sluice-[a-z]+) (?:--|start)", text):
                self.assertEqual(os.path.dirname(program), os.path.join(self.prefix, "bin"), name)
                self.assertTrue(os.access(program, os.X_OK), program)

    def test_no_program_loads_libraries_from_where_it_is_started(self):
        built = os.path.dirname(BIN)
        for place in (built + "/bin", built + "/lib", built + "/python/sluice", built + "/python/mooncake", self.prefix + "/bin"):
            for name in os.listdir(place) if os.path.isdir(place) else []:
                path = os.path.join(place, name)
                with open(path, "rb") if os.path.isfile(path) else open(os.devnull, "rb") as file:
                    if file.read(4) != b"\x7fELF":
                        continue
                for entries in re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", run("readelf", "-d", path)):
                    self.assertNotIn("", entries.split(":"), f"{path}: an empty entry is the current directory")

    def test_nothing_of_the_python_packages_is_in_the_way(self):
        self.assertEqual(sorted(os.listdir(self.prefix)), ["bin", "include", "lib", "share"])
        for name in ("checks.py", "explain.py", "node.py", "plain.py", "text.py", "top.py", "trace.py"):  # where bin/sluicectl looks for them
            self.assertTrue(os.path.isfile(self.prefix + "/share/sluice/" + name))


if __name__ == "__main__":
    main()
