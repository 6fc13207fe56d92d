"""How programs of this package end."""

import errno
import os
import sys


def run(name, main):
    """Ends with main's code; where what it says cannot be written, with code 1 and a line, but quietly where nobody reads on (`| head`)."""
    failed, unwritten = None, []
    if sys.stdout is None:  # it was closed
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
        os._exit(1)  # what is left of it would be tried again
    if failed:
        print(f"{name}: {failed}", file=sys.stderr)
    sys.exit(code)
