"""Runs the main function of a program of this package and ends the process with its exit code."""

import errno
import os
import sys


def run(name, main):
    """Runs main and exits with its code. If output fails, exits with 1 and an error line; silently if the pipe was closed (`| head`)."""
    failed, unwritten = None, []
    if sys.stdout is None:  # it is closed
        print(f"{name}: cannot write to standard output: {os.strerror(errno.EBADF)}", file=sys.stderr, flush=True)
        sys.exit(1)
    write = sys.stdout.write

    def noted(text):
        try:
            return write(text)
        except OSError as error:
            unwritten.append(error)
            raise

    sys.stdout.write = noted
    try:
        code = main()
    except SystemExit as end:  # of argparse
        code = end.code
    except OSError as error:
        failed, code = error, 1
    try:
        sys.stdout.flush()
    except OSError as error:
        unwritten.append(error)
    if unwritten:
        if not isinstance(unwritten[0], BrokenPipeError):
            print(f"{name}: cannot write to standard output: {unwritten[0].strerror}", file=sys.stderr, flush=True)
        os._exit(1)  # a normal exit would try to write the rest again
    if failed:
        print(f"{name}: {failed}", file=sys.stderr)
    sys.exit(code)
