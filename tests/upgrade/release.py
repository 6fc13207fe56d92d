"""Builds the release before this tree in a folder of its own that is kept."""

import os
import subprocess

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
TARGETS = ("sluice-registrar", "sluice-keyer", "sluice-swapper", "sluice-transporter", "sluice-tierer", "sluice-coordinator", "sluice-supervise",
           "sluicectl")


def git(*words, check=True):
    return subprocess.run(["git", "-C", ROOT, *words], check=check, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def commit_of_release():
    """(name, commit) of the newest tag v* before this commit, else of the commit that the file `release` names."""
    for place in ("HEAD", "HEAD^"):
        tag = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", place, check=False)
        if tag and git("rev-parse", tag + "^{commit}") != git("rev-parse", "HEAD"):
            return tag, git("rev-parse", tag + "^{commit}")
    with open(os.path.join(os.path.dirname(__file__), "release"), encoding="utf-8") as line:
        commit = git("rev-parse", line.read().strip() + "^{commit}")
    return commit[:9], commit


def built(name, commit, folder):
    """Builds it unless that was done; returns its root."""
    root = os.path.join(folder, commit[:12])
    done = os.path.join(root, "build", "built-for-upgrade")
    if os.path.exists(done):
        return root
    print(f"building {name} in {root}", flush=True)
    os.makedirs(root, exist_ok=True)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", root], stdin=archive.stdout, check=True)
    archive.stdout.close()
    if archive.wait() != 0:
        raise SystemExit(f"git archive {commit} failed")
    with open(os.path.join(root, "build.log"), "w", encoding="utf-8") as log:
        for words in (["--preset", "release"], ["--build", "--preset", "release", "--target", *TARGETS]):
            if subprocess.run(["cmake", *words], cwd=root, stdout=log, stderr=subprocess.STDOUT, check=False).returncode != 0:
                raise SystemExit(f"{name} cannot be built: see {root}/build.log")
    with open(done, "w", encoding="utf-8"):
        pass
    return root
