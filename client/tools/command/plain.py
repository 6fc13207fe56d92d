"""Figures, names and errors as text for people."""

import errno
import os
import re
import signal
import sys
import time


def escaped(letter):
    """The letter; a control character or a backslash as its escaped bytes."""
    how = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return letter if letter.isprintable() and letter != "\\" else "".join(f"\\x{byte:02x}" for byte in letter.encode(errors=how))


def clean(text):
    return "".join(map(escaped, text))


def natural(name):
    """A sort key that compares numbers in names by their values."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def size_text(value):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.{0 if unit == 'B' else 1}f} {unit}"
        value /= 1024
    return ""


def percent(part, whole):
    return 100 * part / whole if whole else 0


def sluicectl(config, *settings):
    """The command line of the sluicectl that started this process, with the options for the same node (ctl_script_settings)."""
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [prefix + "/bin/sluicectl", *([f"--config={config}"] if config else []), *(f"--{setting}" for setting in settings)]


def since_text(found):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found["since_ms"] / 1000)) if found["since_ms"] else None


def supervision(found, instance):
    """(problem of the supervisor, remedy); "" if there is none."""
    if found["state"] == "unsupervised":
        return (f"unsupervised since {since_text(found) or 'an unknown time'}: actors that end are not restarted",
                f"adopt it: sluice-node start --instance {instance} (with the settings of its start)")
    if found["state"] == "stopped":
        return f"the supervisor {found['pid']} is stopped (SIGSTOP): actors that end are not restarted", f"kill -CONT {found['pid']}"
    return "", ""


def interruptible():
    """Prevents a traceback after an interrupt, and for a letter that the locale lacks."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")


def run(main):
    """Runs main and ends the process with its code. If output cannot be written, it ends by SIGPIPE when the reader has ended, as in a pipe to
    `head`, else with code 1 and an error. Until then SIGPIPE stays ignored, as Python sets it, so that a child that ends does not end its parent."""
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
        if unwritten[0].errno == errno.EPIPE:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
        print(f"sluicectl: cannot write to standard output: {unwritten[0].strerror}", file=sys.stderr, flush=True)
        os._exit(1)  # a normal exit would try to write the rest again
    if failed:
        print(f"sluicectl: {failed}", file=sys.stderr)
    sys.exit(code)
