"""Chooses which of the long checks a run of deploy/test without --all includes: a share chosen by the commit, and those that the last
commits changed.

    rotation.py BUILD...    prints the suites with the label `rotating` that this commit leaves out, a line each
    rotation.py --slot N    prints this commit's number below N

SL_SINCE=COMMIT: use the changes since that commit instead of those of the last ten. A shallow clone may have fewer."""

import functools
import json
import os
import subprocess
import sys
import zlib

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
SHARES = 5  # of suites: a run takes one in five
COMMITS = 10


def git(*words):
    """The lines that git prints; none outside of a repository."""
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


@functools.cache
def commit_number():
    return int(next(iter(git("rev-parse", "HEAD")), "0")[:8], 16)


def chosen(name, shares):
    """Whether this commit's share includes the name, for checks of about equal cost."""
    return (zlib.crc32(name.encode()) + commit_number()) % shares == 0


def share(tests):
    """The names of this commit's share of ctest's tests. They are dealt in order of cost, so that all shares cost about the same."""
    costs = {test["name"]: next((-one["value"] for one in test["properties"] if one["name"] == "COST"), 0) for test in tests}
    dealt = sorted(costs, key=lambda name: (costs[name], zlib.crc32(name.encode())))
    return set(dealt[commit_number() % SHARES :: SHARES])


@functools.cache
def changed():
    """Paths that the last commits changed, and uncommitted new files."""
    commits = [os.environ["SL_SINCE"]] if "SL_SINCE" in os.environ else git("rev-list", "--first-parent", "-n", str(COMMITS + 1), "HEAD")
    return frozenset(git("diff", "--name-only", commits[-1]) if commits else []) | frozenset(git("ls-files", "-o", "--exclude-standard"))


def left_out(build):
    said = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "-L", "^rotating$"], stdout=subprocess.PIPE, text=True, check=True).stdout
    tests = json.loads(said)["tests"]
    taken = share(tests)
    stems = {os.path.splitext(os.path.basename(path))[0] for path in changed() if path.startswith("tests/")}
    for test in tests:
        touched = any(os.path.splitext(os.path.basename(word))[0] in stems for word in test.get("command", []))
        if not touched and test["name"] not in taken:
            yield test["name"]


def main():
    if sys.argv[1] == "--slot":
        print(commit_number() % int(sys.argv[2]))
        return
    for build in sys.argv[1:]:
        for name in left_out(build):
            print(name)


if __name__ == "__main__":
    main()
