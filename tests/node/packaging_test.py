"""The contents of the Debian packages, without building them: manual pages, completion and settings match the programs, and all users who
may use the system's node find it. deploy/test --package builds and tests the packages."""

import fcntl
import glob
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import unittest

from node_support import BIN, CTL, NODE, PATIENCE, ROOT, main

DEBIAN = os.path.join(ROOT, "deploy", "debian")
PLACES = ("/var/lib/sluice", "/var/log/sluice", "/run/sluice", "/dev/shm/sluice-7")  # paths that a purge removes
COMPLETION = os.path.join(ROOT, "deploy", "completion", "sluicectl")
# The words that bash offers after each list of words.
COMPLETE = """
. "$1"
sluicectl=$2
offered() { # WORDS...
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _sluicectl "$sluicectl" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\\n' "${COMPREPLY[@]}"
}
"""


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: code {done.returncode}\n{done.stdout}")
    return done.stdout


def file_of(place):
    """The name of a file that a node has in this directory."""
    return "members" if place.startswith("/var/lib/") else "registrar.jsonl"


def offered(script):
    return run("bash", "-c", COMPLETE + script, "bash", COMPLETION, CTL)


def commands_by_source():
    """[(source, its commands, their options)] of sluicectl."""
    for path in sorted(path for folder in ("ctl", "bench", "top") for path in glob.glob(os.path.join(ROOT, "client", "tools", folder, "*.c"))):
        text = read(path)
        commands = re.findall(r'struct ctl_command ctl_\w+ = \{\s*\.name = "([^"]+)"', text)
        options = set(re.findall(r'\{\.name = "([^"]+)",\s*\.(?:flag|text|count|size|duration) =', text))
        if commands:
            yield os.path.relpath(path, ROOT), commands, options


class Packaging(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp(prefix="sl-packaging-")
        self.addCleanup(shutil.rmtree, self.place)

    @unittest.skipUnless(shutil.which("help2man"), "skipped: no help2man (deploy/install --package)")
    def test_every_program_that_is_installed_has_a_manual_page(self):
        run("cmake", "--install", os.path.dirname(BIN), "--prefix", self.place + "/prefix")
        programs = sorted(os.listdir(self.place + "/prefix/bin"))

        run(os.path.join(ROOT, "deploy", "man"), self.place + "/prefix/bin", self.place + "/man")

        self.assertEqual(sorted(os.listdir(self.place + "/man")), sorted(["sluice.conf.5", *(f"{name}.1" for name in programs)]))
        for name in programs:
            page = read(self.place, "man", f"{name}.1")
            self.assertIn(".SH DESCRIPTION", page, name)
            self.assertIn(f"{name} \\- ", page.replace("\\-", "-").replace(f"{name} - ", f"{name} \\- "), name)

    def test_help_and_version_are_there_wherever_they_are_asked_for(self):
        environment = {**os.environ, "SLUICE_BIN": BIN}
        help_text = run(NODE, "--help", env=environment)
        commands = dict.fromkeys(re.findall(r"(?m)^  sluice-node ([a-z]+) ", help_text))
        self.assertEqual(len(commands), 6)
        for command in commands:
            self.assertEqual(run(NODE, command, "--help", env=environment), help_text, command)
        self.assertEqual(run(NODE, "start", "--memory", "1GiB", "-h", env=environment), help_text)
        self.assertEqual(run(NODE, "--version", env=environment).split(), ["sluice-node", run(CTL, "--version").split()[1]])
        self.assertEqual(run(CTL, "help", "replay"), run(CTL, "replay", "--help"))

    def test_every_option_is_completed(self):
        seen = set()
        for source, names, options in commands_by_source():
            completed = set(offered("".join(f'offered "$sluicectl" {name} --\n' for name in names)).split())
            self.assertEqual({f"--{option}" for option in options} - completed, set(), f"{source}: not in the help of {names}")
            seen.update(names)
        self.assertEqual(seen, set(re.findall(r"(?m)^  ([a-z-]+) ", run(CTL, "--help"))))
        self.assertEqual(seen | {"--help", "--version"}, set(offered('offered "$sluicectl" ""\n').split()))

    def test_settings_and_what_they_may_be_are_completed(self):
        settings = set(re.findall(r"(?m)^    X\((\w+), (?:BOOL|COUNT|SIZE|DURATION|RATIO|TEXT),", read(ROOT, "runtime", "base", "sl_config.h")))

        completed = set(offered('offered "$sluicectl" status --\n').split())

        self.assertGreater(len(settings), 100)
        self.assertEqual({"--" + name.replace("_", "-") for name in settings} - completed, set())
        self.assertEqual(offered('offered "$sluicectl" status --device ""\n').split(), ["auto", "cuda", "host"])
        self.assertEqual(offered('offered "$sluicectl" status --contributions ""\n').split(), ["true", "false"])
        self.assertEqual(offered('offered "$sluicectl" expl\n').split(), ["explain"])

    def test_default_conf_sets_places_alone_and_explains_the_rest(self):
        path = os.path.join(self.place, "default.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(read(DEBIAN, "default.conf.head") + run(CTL, "config", "--template"))

        plain = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        said = run(CTL, "config", "--config", path, env=plain)

        set_there = re.findall(rf"(?m)^(\w+) .*# {re.escape(path)}:", said)
        self.assertEqual(sorted(set_there), ["disk_path", "log_dir"])
        for name in re.findall(r"(?m)^(\w+) ", said):
            self.assertRegex(read(path), rf"(?m)^# {name}: .*\n(# .+\n)+#{name} = ", name)

    def test_the_template_names_every_setting_and_its_lines_are_the_defaults(self):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
        template, path = run(CTL, "config", "--template"), os.path.join(self.place, "template.conf")
        lines = re.findall(r"(?m)^#(\w+ = .*)\n", template)
        for text, source in ((template, {"default"}), ("\n".join(lines) + "\n", {f"{path}:{number + 1}" for number in range(len(lines))})):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)

            settings, standard = (json.loads(run(CTL, "config", "--json", *words, env=plain)) for words in (("--config", path), ()))

            self.assertEqual({row["source"] for row in settings.values()} - {"default, for the room"}, source)
            self.assertEqual([line.split(" ")[0] for line in lines], list(settings))
            for name, row in settings.items():
                self.assertTrue(row["value"] == standard[name]["value"] or standard[name]["source"] != "default", name)

    def test_lines_of_the_changelog_are_as_long_as_lintian_takes_them(self):
        self.assertEqual([line for line in read(DEBIAN, "changelog").splitlines() if len(line) > 80], [])

    def test_all_that_states_a_version_states_that_of_cmake(self):
        """Wheels, pkg-config, programs and packages have it from CMake; these files have it as text."""
        version = re.search(r"(?m)^project\(sluice VERSION ([0-9.]+) ", read(ROOT, "CMakeLists.txt"))[1]
        self.assertEqual(run(CTL, "--version").split(), ["sluicectl", version + "-dev"])  # until 0.3.0 is released
        entries = re.findall(r"(?m)^sluice \(([0-9.]+)\) ", read(DEBIAN, "changelog"))
        self.assertEqual(entries[0], version, "deploy/debian/changelog says first what this version brings")
        self.assertEqual(entries, sorted(set(entries), key=lambda text: [int(number) for number in text.split(".")], reverse=True))
        container = os.path.join(ROOT, "deploy", "container")
        chart = read(container, "helm", "sluice", "Chart.yaml")
        self.assertEqual(re.findall(r'(?m)^(?:version|appVersion): "?([0-9.]+)"?$', chart), [version, version])
        manifests = "".join(read(path) for path in sorted(glob.glob(os.path.join(container, "kubernetes", "*.yaml"))))
        found = re.findall(r'(?:app\.kubernetes\.io/version: "|image: localhost/sluice[a-z-]*:)([0-9.]+)', manifests)
        self.assertGreater(len(found), 5)
        self.assertEqual(set(found), {version})

    def test_library_and_its_package_have_one_soname(self):
        soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", os.path.join(os.path.dirname(BIN), "lib", "libsluice.so")))[1]
        symbols = read(DEBIAN, "libsluice0.symbols")
        self.assertEqual(symbols.split()[:2], [soname, soname.replace(".so.", "")])
        self.assertEqual(re.findall(r"\(symver\)(\w+)", symbols), re.findall(r"(?m)^(\w+) \{", read(ROOT, "client", "lib", "sluice.map")))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_closed_and_none_runs_as_root(self):
        with tempfile.TemporaryDirectory() as root:
            units = os.path.join(root, "etc", "systemd", "system")
            shutil.copytree(os.path.join(ROOT, "deploy", "systemd"), units)
            for path in glob.glob(os.path.join(units, "sluice-*@.service")):
                said = run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", os.path.basename(path))
                exposure = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)[1])
                self.assertLessEqual(exposure, 4.0, said)  # 9.2 before
                self.assertRegex(said, r"\S User=/DynamicUser= .*", said)
                self.assertNotRegex(said, r"Service runs as root user", said)

    def test_scripts_can_be_read_by_their_shells(self):
        for path in glob.glob(os.path.join(DEBIAN, "sluice.p*")):
            run("sh", "-n", path)

    def programs_make(self, texts):
        """An environment where programs of these names are scripts with these texts."""
        os.makedirs(self.place + "/programs", exist_ok=True)
        for name, text in texts.items():
            with open(f"{self.place}/programs/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(f"{self.place}/programs/{name}", 0o755)
        return {**os.environ, "PATH": f"{self.place}/programs:{os.environ['PATH']}"}

    def script_run(self, name, *words, **programs):
        """Runs a script of the package with the machine's directories below self.place, and `id` and others as given."""
        text = re.sub(r"(?<![\w.])/(run|var|etc|dev/shm|usr)/", rf"{self.place}/\1/", read(DEBIAN, name))
        others = re.findall(r"""(?<=[\s"'=<>(])/(?!dev/null|bin/sh)\w[^\s"]*""", text.replace(self.place + "/", ""))
        self.assertEqual(others, [], f"{name}: a directory of this machine")
        return run("sh", "-c", text, name, *words, env=self.programs_make({"id": "echo 7", **programs}))

    def test_a_purge_leaves_a_node_that_runs_and_directories_of_users_that_no_unit_names(self):
        own = pwd.getpwuid(os.geteuid()).pw_name
        for name, user in (("gone", own), ("runs", own), ("pod", "somebody")):
            for place in (f"/etc/systemd/system/sluice-node@{name}.service.d", *(f"{place}/{name}" for place in PLACES)):
                os.makedirs(self.place + place)
                open(f"{self.place}{place}/{file_of(place)}", "w", encoding="utf-8").close()
            with open(f"{self.place}/etc/systemd/system/sluice-node@{name}.service.d/10-user.conf", "w", encoding="utf-8") as file:
                file.write(f"[Service]\nUser={user}\n")
        locks = [os.open(f"{self.place}{place}/runs", os.O_RDONLY) for place in ("/run/sluice", "/dev/shm/sluice-7")]
        for lock in locks:
            self.addCleanup(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH)  # as every actor does

        self.script_run("sluice.postrm", "purge")

        for place in PLACES:
            self.assertEqual(sorted(os.listdir(self.place + place)), ["pod", "runs"], place)
            self.assertEqual([os.listdir(f"{self.place}{place}/{name}") for name in ("pod", "runs")], [[file_of(place)]] * 2, place)

    def test_a_purge_leaves_directories_with_other_files(self):
        for place in ("/var/lib/sluice/models", "/var/log/sluice/notes"):
            unit = f"{self.place}/etc/systemd/system/sluice-node@{os.path.basename(place)}.service.d"
            os.makedirs(self.place + place)
            os.makedirs(unit)
            with open(unit + "/10-user.conf", "w", encoding="utf-8") as file:
                file.write(f"[Service]\nUser={pwd.getpwuid(os.geteuid()).pw_name}\n")
            for name in (file_of(place), "own"):
                open(f"{self.place}{place}/{name}", "w", encoding="utf-8").close()

        said = self.script_run("sluice.postrm", "purge")

        for place in ("/var/lib/sluice/models", "/var/log/sluice/notes"):
            self.assertEqual(sorted(os.listdir(self.place + place)), sorted([file_of(place), "own"]))
            self.assertIn(f"not removed, because it is in use or has other files than a stopped node's: {self.place}{place}", said)

    def test_a_purge_leaves_no_directory_of_a_node_that_ran(self):
        for place in PLACES:
            os.makedirs(self.place + place + "/default")
            open(f"{self.place}{place}/default/{file_of(place)}", "w", encoding="utf-8").close()
        os.makedirs(self.place + "/etc/systemd/system/sluice-node@default.service.d")
        with open(self.place + "/etc/systemd/system/sluice-node@default.service.d/override.conf", "w", encoding="utf-8") as file:
            file.write(f"[Service]\nUser=sluice\nUser={pwd.getpwuid(os.geteuid()).pw_name}\n")

        self.script_run("sluice.postrm", "purge")

        self.assertEqual([place for place in PLACES if os.path.exists(self.place + place)], [])

    def test_units_of_0_2_are_stopped_by_an_upgrade_from_it_and_by_no_later_one(self):
        wants, calls = self.place + "/etc/systemd/system/multi-user.target.wants", self.place + "/calls"
        for directory in (wants, self.place + "/run/systemd/system"):
            os.makedirs(directory)
        for before, left in (("", ["sluice-metrics@own.service"]), ("0.3.0~rc1", ["sluice-metrics@own.service"]), ("0.2.9+1", [])):
            open(wants + "/sluice-metrics@own.service", "w", encoding="utf-8").close()
            open(calls, "w", encoding="utf-8").close()

            self.script_run("sluice.postinst", "configure", before, **{"deb-systemd-invoke": f'echo "$*" >>{calls}', "systemctl": ""})

            self.assertEqual(os.listdir(wants), left, before)
            self.assertEqual("stop sluice-metrics@*.service" in read(calls), not left, before)

    @unittest.skipUnless(BIN == os.path.join(ROOT, "build", "release", "bin"), "skipped: deploy/demo has the release build")
    def test_the_demo_removes_nothing_that_its_environment_names(self):
        for name in ("disk_path", "run", "work"):
            os.makedirs(f"{self.place}/{name}/kept")
        environment = {**self.programs_make({"cmake": ""}), **{name: f"{self.place}/{name}" for name in ("disk_path", "run", "work")}}

        run(os.path.join(ROOT, "deploy", "demo"), "--no-install", "--requests", "3", "--memory", "64MiB", env=environment)

        for name in ("disk_path", "run", "work"):
            self.assertEqual(os.listdir(f"{self.place}/{name}"), ["kept"], name)

    def package_environment(self, build):
        """For deploy/package, with a dpkg-buildpackage that runs this text instead."""
        return self.programs_make({"dh": "", "help2man": "", "dpkg-buildpackage": build})

    def test_a_build_removes_no_directory_that_it_has_not_made(self):
        work, words = self.place + "/sluice-build", ["--output", self.place, "--no-install"]
        os.makedirs(work + "/sluice")
        for path in (work + "/sluice/work.c", self.place + "/build.log"):
            with open(path, "w", encoding="utf-8") as file:
                file.write("somebody's")
        refused = f"{work} exists and was not made by this script"
        fails = self.package_environment("echo it fails; exit 1")

        with self.assertRaisesRegex(AssertionError, refused):
            run(os.path.join(ROOT, "deploy", "package"), *words, env=fails)
        self.assertEqual(read(work, "sluice", "work.c"), "somebody's")
        shutil.rmtree(work)
        for _ in range(2):  # leftovers of a failed build are its own
            with self.assertRaisesRegex(AssertionError, f"(?s)it fails.*all of it: {work}/build.log"):
                run(os.path.join(ROOT, "deploy", "package"), *words, env=fails)
        with self.assertRaisesRegex(AssertionError, refused):  # by the script in that directory
            run(work + "/sluice/deploy/package", *words, env=fails)
        self.assertEqual(read(self.place, "build.log"), "somebody's")

    def test_packages_that_others_made_stay_in_the_directory(self):
        output = self.place + "/output"
        environment = self.package_environment("""
            version=$(sed -n '1s/.*(\\(.*\\)).*/\\1/p' debian/changelog)
            for name in sluice libsluice0 libsluice-dev python3-sluice sluice-dbgsym; do echo made >"../${name}_${version}_amd64.deb"; done
            echo made >"../sluice_${version}_amd64.changes"; echo made >"../sluice_${version}_amd64.buildinfo"
        """)
        os.mkdir(output)
        others = ["sluice_0.1_amd64.deb", "sluice-dbgsym_0.1_amd64.deb", "libsluice0_0.1_arm64.deb", "sluice_0.1_amd64.changes", "python3-sluice_9_all.deb"]
        for name in others:
            open(f"{output}/{name}", "w", encoding="utf-8").close()
        words = [os.path.join(ROOT, "deploy", "package"), "--output", output, "--no-install", "--version-suffix"]
        said = []
        for suffix in ("~one", "~two"):
            said.append(run(*words, suffix, env=environment))
            with open(output + "/build.made", "a", encoding="utf-8") as file:
                file.write("\n../other\n")
        left = [name for name in os.listdir(output) if name not in others]
        self.assertEqual([name for name in left if "~one" in name], [], "its own of before")
        self.assertEqual(len([name for name in left if "~two" in name]), 7)
        self.assertEqual(len(os.listdir(output)) - len(left), len(others))
        self.assertEqual(len(re.findall(r"^/\S+~two_amd64\.deb$", said[1], re.MULTILINE)), 4, said)
        self.assertNotIn("python3-sluice_9", said[1])
        same = re.search(r"sluice_\S+~two_amd64\.deb", said[1])[0].replace("~two", "~three")
        open(f"{output}/{same}", "w", encoding="utf-8").close()
        with self.assertRaisesRegex(AssertionError, f"{re.escape(same)} exists and was not made by a build here"):
            run(*words, "~three", env=environment)
        self.assertEqual(os.stat(f"{output}/{same}").st_size, 0)
        self.assertNotIn(same, read(output, "build.made"))
        self.assertEqual(len([name for name in os.listdir(output) if "~two" in name]), 7)

    @unittest.skipUnless(os.geteuid() == 0, "skipped: needs root")
    def test_roots_doctor_says_whose_settings_it_looks_at(self):
        path = self.place + "/node.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write("memory = 64MiB\n")
        os.chmod(path, 0o600)
        os.chown(path, 65534, 65534)
        done = subprocess.run([CTL, "doctor", "--json", "--config", path], stdout=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=False)
        row = next(row for row in json.loads(done.stdout)["checks"] if row["check"] == "key_files")
        self.assertIn(f"'{path}' belongs to uid 65534", row["text"])
        self.assertIn("run this command as its owner", row["mend"])

    @unittest.skipUnless(os.geteuid() == 0, "skipped: needs root")
    def test_root_asks_a_node_of_the_systems_user_as_that_user_and_finds_its_logs(self):
        name = f"packaging-{os.getpid()}"
        steps = f"""
            set -e
            export SLUICE_BIN={BIN} SLUICE_INSTANCE={name}
            mount -t tmpfs none /run
            install -d -m 0755 /run/sluice
            install -d -m 0700 -o nobody -g nogroup /run/sluice/{name} /run/logs
            {NODE} start --memory 64MiB --log-dir /run/logs >/dev/null
            {NODE} logs registrar | grep -c '"ready'
            echo hello | {CTL} put greeting
            {CTL} get greeting
            stat -c %U /proc/$(cut -d' ' -f1 /run/sluice/{name}/pid/registrar)
            setpriv --reuid nobody --regid nogroup --clear-groups {CTL} get greeting
            setpriv --reuid daemon --regid daemon --clear-groups {CTL} get other 2>&1 || echo "code $?"
            {CTL} workload --requests 3 | {CTL} replay - | grep -c -e "errors *0" -e "mismatches *0"
            install -m 0600 /dev/null /run/of-root
            {CTL} put of-root /run/of-root 2>&1 || echo "code $?"
            echo '{{"input_length": 1, "hash_ids": [1]}}' | {CTL} replay - --json /run/of-root 2>&1 || echo "code $?"
            mkfifo /run/lines
            OF_ROOT=1 {CTL} workload --requests 100000 >/run/lines &
            exec 9</run/lines
            read -r first <&9
            tr '\\0' '\\n' </proc/$!/environ | grep -o -e ^PATH= -e ^OF_ROOT=
            exec 9<&-
            wait $! || true
            {NODE} status | head -n 1 | cut -d, -f1
            {NODE} stop >/dev/null
            ls -A /run/sluice/{name}
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        try:
            said = run("unshare", "--mount", "bash", "-c", steps, env=environment, cwd="/").split("\n")
        finally:
            shutil.rmtree(f"/dev/shm/sluice-65534/{name}", ignore_errors=True)
        self.assertIn(f"/run/sluice/{name} belongs to user nobody: run this command as that user, or as root", said)
        self.assertEqual(said.count("ran as user 'nobody', since this node belongs to that user, who must be able to open the file; standard input and output always work"), 2)
        self.assertEqual([line for line in said if not any(part in line for part in ("greeting", f"'{name}'", "belongs", "/run/of-root"))],
                         ["1", "hello", "nobody", "hello", "code 3", "2", "code 1", "code 1", "PATH=", f"node {name}", "log", "start-arguments", "supervisor.lock", ""])


if __name__ == "__main__":
    main()
