"""Processes and directories that end with the program that makes them, for programs that start others."""

import ctypes
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
    """A directory of this run; what runs that were killed left behind goes. Neither of the names has a dash."""
    for old in glob.glob(os.path.join(parent, f"{program}-{name}-*")):
        owner = os.path.basename(old).split("-")[2]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(old, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{program}-{name}-{os.getpid()}-", dir=parent)
