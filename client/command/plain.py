"""How figures and names are said to people."""

import os
import re
import signal
import sys


def escaped(letter):
    """The letter; what a terminal would take for orders as its bytes, and a backslash likewise."""
    how = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return letter if letter.isprintable() and letter != "\\" else "".join(f"\\x{byte:02x}" for byte in letter.encode(errors=how))


def clean(text):
    return "".join(map(escaped, text))


def natural(name):
    """Numbers in names by their values."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def size_text(value):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.{0 if unit == 'B' else 1}f} {unit}"
        value /= 1024
    return ""


def percent(part, whole):
    return 100 * part / whole if whole else 0


def end_with_reader():
    """No traceback where nobody reads on, as behind `head`, at an interrupt, nor for a letter that the locale lacks."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")


def run(main, tells=True):
    """Ends with main's code; where what it says cannot be written, with code 1 and a line, if it is this process that tells."""
    failed, unwritten, write = None, [], sys.stdout.write

    def noted(text):
        try:
            return write(text)
        except OSError as error:
            unwritten.append(error)
            raise

    sys.stdout.write = noted
    try:
        code = main()
    except OSError as error:
        failed, code = error, 1
    try:
        sys.stdout.flush()
    except OSError as error:
        unwritten.append(error)
    if unwritten:
        if tells:
            print(f"sluicectl: cannot write to standard output: {unwritten[0].strerror}", file=sys.stderr, flush=True)
        os._exit(1)  # what is left of it would be tried again
    if failed:
        print(f"sluicectl: {failed}", file=sys.stderr)
    sys.exit(code)
