"""How figures and names are said to people."""

import errno
import os
import re
import signal
import sys
import time


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


def sluicectl(config, *settings):
    """The program that started this one, and options that name the same node (ctl_script_settings)."""
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [prefix + "/bin/sluicectl", *([f"--config={config}"] if config else []), *(f"--{setting}" for setting in settings)]


def since_text(found):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found["since_ms"] / 1000)) if found["since_ms"] else None


def supervision(found, instance):
    """What is wrong with who restarts a node's actors, and what to do about it; "" when nothing is."""
    if found["state"] == "unsupervised":
        return (f"unsupervised since {since_text(found) or 'an unknown time'}: nobody restarts what ends",
                f"sluice-node start --instance {instance} (with the settings of its start) takes it over")
    if found["state"] == "stopped":
        return f"the supervisor {found['pid']} is stopped (SIGSTOP): nobody restarts what ends", f"kill -CONT {found['pid']}"
    return "", ""


def interruptible():
    """No traceback at an interrupt, nor for a letter that the locale lacks."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")


def run(main):
    """Ends with main's code; by SIGPIPE where nobody reads on, as behind `head`; with code 1 and a line where what it says cannot be
    written otherwise. Until then SIGPIPE is ignored, as Python begins: a child that has ended is no end of its parent."""
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
        os._exit(1)  # what is left of it would be tried again
    if failed:
        print(f"sluicectl: {failed}", file=sys.stderr)
    sys.exit(code)
