"""Builds the Debian packages, runs lintian, and tests them in a bare Debian 12: installs, starts, uses,
upgrades, removes and purges them, in a chroot and then under a systemd of its own.

    deploy/test --package [--debs DIRECTORY] [--again] [--keep]       needs root; installs mmdebstrap
    --debs DIRECTORY   tests existing packages instead of building them
    --again            builds them twice, and compares the bytes
    --keep             leaves the root in build/package-test/root; the next run removes it

It takes about two minutes, without building. Exit codes: 0, 1 (something failed), 77 (this machine cannot).
"""

import argparse
import filecmp
import glob
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "node")]
import bare_debian  # noqa: E402
import install_test  # noqa: E402

ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
BUILD = os.path.join(ROOT, "build", "package-test")
SUPPORT = os.path.join(ROOT, "tests", "support")
NAMES = ("sluice", "libsluice0", "libsluice-dev", "python3-sluice")
SKIPPED = 77


def run(*words):
    done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    if done.returncode != 0:  # it has printed why
        sys.exit(f"tests/package: {' '.join(words)} ended with code {done.returncode}")


def built(output, *options):
    run(os.path.join(ROOT, "deploy", "package"), "--output", output, *options)
    return output


def one(directory, name):
    found = glob.glob(os.path.join(directory, f"{name}_*.deb"))
    if len(found) != 1:
        sys.exit(f"tests/package: {len(found)} packages {name} in {directory}")
    return found[0]


def newer_make(path, output):
    """The same package with a newer version, and a changed default.conf."""
    work = os.path.join(output, "work")
    run("dpkg-deb", "--raw-extract", path, work)
    control = os.path.join(work, "DEBIAN", "control")
    with open(control, encoding="utf-8") as file:
        text = file.read()
    version = re.search(r"^Version: (.*)$", text, re.MULTILINE)[1]
    newer = version + "+newer"
    with open(control, "w", encoding="utf-8") as file:
        file.write(text.replace(f"\nVersion: {version}\n", f"\nVersion: {newer}\n").replace(f"(= {version})", f"(= {newer})"))
    settings = os.path.join(work, "etc", "sluice", "default.conf")
    if os.path.exists(settings):
        with open(settings, "a", encoding="utf-8") as file:
            file.write("\n# of the newer version\n")
    run("dpkg-deb", "--root-owner-group", "--build", work, output)
    shutil.rmtree(work)
    return newer


def library_serves(debs):
    """Whether a program builds with the files of libsluice-dev, and runs with libsluice0. It has no node: code 3."""
    place = os.path.join(BUILD, "library")
    for name in ("libsluice0", "libsluice-dev"):
        run("dpkg-deb", "--extract", one(debs, name), place)
    libraries = glob.glob(os.path.join(place, "usr", "lib", "*", "pkgconfig"))[0]
    source, program = os.path.join(place, "use.c"), os.path.join(place, "use")
    with open(source, "w", encoding="utf-8") as file:
        file.write(install_test.PROGRAM)
    words = subprocess.run(["pkg-config", "--cflags", "--libs", "sluice"], env={**os.environ, "PKG_CONFIG_PATH": libraries},
                           stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", source, *words, "-o", program)
    code = subprocess.run([program, "no-such-node"], env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(libraries)},
                          stdout=subprocess.DEVNULL, check=False).returncode
    print(f"{'ok' if code == 3 else 'FAILED'}: a program with libsluice ends with {code}")
    return code == 3


def script_make(path, name, **variables):
    with open(path, "w", encoding="utf-8") as script:
        script.writelines(f"{variable}={value}\n" for variable, value in variables.items())
        for part in (os.path.join(SUPPORT, "steps.sh"), os.path.join(HERE, "user.sh"), os.path.join(HERE, name)):
            with open(part, encoding="utf-8") as text:
                script.write(text.read())


def tried_plainly(place, environment, newer):
    script_make(os.path.join(place, "root", "plain.sh"), "plain.sh", NEW=newer)
    return subprocess.run(bare_debian.words_in(place, "/root/plain.sh"), env=environment, stdin=subprocess.DEVNULL, timeout=900,
                          check=False).returncode == 0


def tried_booted(place):
    """Also true, with a message, where systemd cannot be booted."""
    out, steps, setup = (os.path.join(BUILD, name) for name in ("out", "booted.sh", "setup"))
    os.makedirs(out)
    script_make(steps, "booted.sh")
    with open(setup, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh -e\nmkdir "$1/dev/pts"\nmount -t devpts -o newinstance,ptmxmode=0666 none "$1/dev/pts"\n'
                   'ln -s pts/ptmx "$1/dev/ptmx"\n')  # tmux needs terminals
    os.chmod(setup, 0o755)
    code = subprocess.run([os.path.join(SUPPORT, "systemd_box"), place, out, setup, steps], timeout=900, check=False).returncode
    if code == SKIPPED:
        return True
    with open(os.path.join(out, "result"), encoding="utf-8") as result:
        return code == 0 and result.read() == "0 failed\n"


def same_bytes(first, second):
    """Whether a second build gave the same packages."""
    differ = [path for path in sorted(glob.glob(os.path.join(first, "*.deb")))
              if not filecmp.cmp(path, os.path.join(second, os.path.basename(path)), shallow=False)]
    print("the second build gave the same bytes" if not differ else f"FAILED: the second build gave others: {' '.join(differ)}")
    return not differ


def main():
    parser = argparse.ArgumentParser(prog="deploy/test --package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debs", help="existing packages")
    parser.add_argument("--again", action="store_true", help="build them twice, and compare")
    parser.add_argument("--keep", action="store_true", help="leave the root")
    options = parser.parse_args()
    if not bare_debian.possible():
        print("skipped: needs root and mmdebstrap")
        return SKIPPED
    shutil.rmtree(BUILD, ignore_errors=True)
    os.makedirs(BUILD)
    sys.stdout.reconfigure(line_buffering=True)
    began = time.monotonic()
    debs = options.debs or built(os.path.join(ROOT, "build", "package"), "--lintian")
    fine = True
    if options.again:
        kept = os.path.join(BUILD, "first")
        shutil.copytree(debs, kept)
        fine = same_bytes(kept, built(debs))
    fine = library_serves(debs) and fine
    place = os.path.join(BUILD, "root")
    try:
        environment = bare_debian.make(place, ("ca-certificates", "tmux"))
        for folder in ("old", "new"):
            os.makedirs(os.path.join(place, "debs", folder))
        for name in NAMES:
            shutil.copy(one(debs, name), os.path.join(place, "debs", "old"))
            newer = newer_make(one(debs, name), os.path.join(place, "debs", "new"))
        fine = tried_plainly(place, environment, newer) and fine
        fine = tried_booted(place) and fine
    except bare_debian.Skipped as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{'all is fine' if fine else 'FAILED'}; {time.monotonic() - began:.0f} s in all")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
