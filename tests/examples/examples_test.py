#!/usr/bin/env python3
"""Tests the patches for "How to add" in ARCHITECTURE.md. Each patch in this folder adds one thing with its test: it changes at most three
existing files, applies by itself and with all others, keeps the rules of tests/structure and the layout, builds without a warning, and its
test passes.

    tests/examples/examples_test.py             checks all of this, in a copy of the tree
    tests/examples/examples_test.py --refresh   rewrites the patches for the last commit, by a three-way merge

The text before a patch's first diff describes it, and has a line "Builds:" with targets and one "Tests:" with names of ctest."""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FILES_MAX = 3
DIFF = ("diff", "--cached", "--binary", "--full-index", "-U1")  # little context: changes nearby do not matter
STARTED = time.monotonic()


class Failed(Exception):
    pass


class Patch:
    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path)
        with open(path, encoding="utf-8") as file:
            self.head, start, rest = file.read().partition("diff --git ")
        self.builds, self.tests = self.words("Builds"), self.words("Tests")
        self.diffs = re.split(r"^diff --git ", rest, flags=re.M) if start else []

    def words(self, name):
        found = re.search(rf"^{name}: (.+)$", self.head, re.M)
        if not found:
            raise Failed(f"{self.name}: no line '{name}: ...' before its first diff")
        return found[1].split()

    def files(self, fresh):
        """Files that it adds, or files that existed before."""
        return [diff.split(" ", 1)[0][2:] for diff in self.diffs if ("\nnew file mode " in diff.split("\n@@", 1)[0]) == fresh]


def say(text):
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


def run(command, cwd, what, **variables):
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(cwd), **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{what}: {' '.join(command)} ended with {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-60:]))
    return done.stdout


def applied(patch, tree, *options):
    try:
        run(["git", "apply", "--whitespace=error", *options, patch.path], tree, f"{patch.name} does not apply")
    except Failed as failure:
        raise Failed(f"{failure}\nto do: commit, run tests/examples/examples_test.py --refresh, and look at what it wrote") from None


def tree_copied(to):
    """The working tree, without what git ignores."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ".", ":(exclude)shared"], ROOT, "no git checkout")
    for path in filter(None, listed.split("\0")):
        source, target = os.path.join(ROOT, path), os.path.join(to, path)
        if os.path.isfile(source):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(source, target)


def patches():
    found = [Patch(path) for path in sorted(glob.glob(os.path.join(HERE, "*.patch")))]
    if not found:
        raise Failed("there are no patches")
    return found


def check(options, place):
    tree, build = os.path.join(place, "tree"), os.path.join(place, "build")
    found = patches()
    for patch in found:
        changed = patch.files(fresh=False)
        say(f"{patch.name} changes {', '.join(changed)}")
        if len(changed) > FILES_MAX:
            raise Failed(f"{patch.name} changes {len(changed)} existing files, {FILES_MAX} at most")
    tree_copied(tree)
    for patch in found:
        applied(patch, tree, "--check")
    for patch in found:
        applied(patch, tree)
    say(f"{len(found)} patches apply, one by one and together")
    run([sys.executable, "tests/structure", "--without", "budgets"], tree, "rules")
    sources = [path for patch in found for path in patch.files(True) + patch.files(False) if path.endswith((".c", ".h"))]
    if shutil.which("clang-format"):
        run(["clang-format", "--dry-run", "-Werror", *sources], tree, "layout")
    # Paths in the compiler cache are relative to the copy, so that the next copy hits.
    cache = {"CCACHE_BASEDIR": place, "CCACHE_NOHASHDIR": "1"}
    launcher = options.launcher or shutil.which("ccache") or ""
    run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DSL_WERROR=ON", "-DSL_HEADER_CHECK=OFF", f"-DCMAKE_C_COMPILER={options.compiler}",
         f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}"], place, "configure", **cache)
    say("configured")
    targets = sorted({target for patch in found for target in patch.builds})
    run(["nice", "cmake", "--build", build, "-j", str(os.cpu_count()), "--target", *targets], place, "build", **cache)
    say(f"built {' '.join(targets)}")
    for patch in found:
        tests = "|".join(re.escape(test) for test in patch.tests)
        told = run(["ctest", "--test-dir", build, "-R", f"^({tests})$", "--output-on-failure", "--no-tests=error"], place, patch.name)
        passed = len(re.findall(r" Passed ", told))
        if passed != len(patch.tests):
            raise Failed(f"{patch.name}: {passed} of {len(patch.tests)} tests passed\n{told}")
        say(f"{patch.name}: {' '.join(patch.tests)} passed")


def refresh(_, place):
    conflicts = []
    for patch in patches():
        tree = os.path.join(place, patch.name)
        run(["git", "clone", "-q", "--shared", ROOT, tree], place, "clone")
        try:
            run(["git", "apply", "--3way", patch.path], tree, f"{patch.name} has conflicts")
        except Failed as failure:
            kept = tempfile.mkdtemp(prefix="sluice-example-")
            shutil.move(tree, kept)
            conflicts.append(f"{failure}\nto do: solve them in {kept}/{patch.name}, git add all there, then write what is before the first "
                             f"diff of the patch and the output of `git {' '.join(DIFF)}` to {patch.path}")
            continue
        fresh = patch.head + run(["git", *DIFF], tree, "diff")
        with open(patch.path, "w", encoding="utf-8") as file:
            file.write(fresh)
        say(f"{patch.name} is written")
    if conflicts:
        raise Failed("\n".join(conflicts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refresh", action="store_true", help="carry the patches over to the last commit")
    parser.add_argument("--compiler", default="cc", help="C compiler")
    parser.add_argument("--launcher", default="", help="what runs it (ccache, where there is one)")
    options = parser.parse_args()
    if not shutil.which("git"):
        print("skipped: git is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="sluice-examples-") as place:
        try:
            (refresh if options.refresh else check)(options, place)
        except Failed as failure:
            print(f"FAILED: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
