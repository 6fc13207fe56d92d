"""Child processes and directories that end with the program that makes them."""

import ctypes
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import tempfile

from ports import free_port  # noqa: F401

PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl


def popen(arguments, log, environment, **options):
    """A child in a session of its own that gets SIGTERM when this process dies. Raises OSError."""
    mother = os.getpid()

    def tie():
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != mother:
            os.kill(os.getpid(), signal.SIGTERM)

    with open(log, "ab") as sink:
        return subprocess.Popen(arguments, stdin=options.pop("stdin", subprocess.DEVNULL), stdout=options.pop("stdout", sink),
                                stderr=sink, env=environment, preexec_fn=tie, start_new_session=True, **options)


def directory_make(program, name, parent):
    """Makes a directory for this run and removes those of runs that were killed. Neither of the names has a dash.

    A run holds a lock on its directory: its process is not seen from another container, which may have the same parent."""
    for old in glob.glob(os.path.join(parent, f"{program}-{name}-*")):
        owner = os.path.basename(old).split("-")[2]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}") and (lock := directory_lock(old)) is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(lock)
    while True:
        made = tempfile.mkdtemp(prefix=f"{program}-{name}-{os.getpid()}-", dir=parent)
        if directory_lock(made) is not None and os.path.exists(made):  # held until this process ends
            return made


def directory_lock(path):
    """A descriptor that holds the lock; None: a run has it, or the directory no longer exists."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    except OSError:
        os.close(lock)
        return None
