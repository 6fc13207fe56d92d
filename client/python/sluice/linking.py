"""What back ends of engines share: strict options, and a client of the node that may start later than the engine."""

import logging
import threading
import time

from . import Batches, Client, SluiceError

RETRY_SECONDS = 2.0
SAID_SECONDS = 30.0
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def switch(name, value):
    """A bool, or a text or 0 or 1 that means one; ValueError for all that may mean anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int)) and str(value).strip().lower() in _SWITCHES:
        return _SWITCHES[str(value).strip().lower()]
    raise ValueError(f"{name}: true or false, not {value!r}")


def number(name, value, least, most, kind=int):
    """An int or a float (kind) within its range, also as text; ValueError otherwise."""
    try:
        if isinstance(value, bool):
            raise ValueError
        made = kind(value)
        if kind is int and made != float(value):
            raise ValueError
    except (TypeError, ValueError):
        made = None
    if made is None or not least <= made <= most:
        raise ValueError(f"{name}: a number from {least} to {most}, not {value!r}")
    return made


def text(name, value):
    """A str that is not empty, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{name}: a text, not {value!r}")
    return value


class Options:
    """What every back end is told of the node. Names beside these and `more` are errors.

    instance: the node's name ($SLUICE_INSTANCE, "default"); config: a configuration file; timeout: seconds that a store or
    a load may take; threads: threads of C that copy; depth: jobs that may be at work, further ones fail at once. `more`
    are functions (name, value) for the options of one back end: they check, and what they give becomes an attribute."""

    def __init__(self, given, more=None, defaults=None, where=""):
        checks = {"instance": text, "config": text,
                  "timeout": lambda name, value: number(name, value, 0.001, 3600, float),
                  "threads": lambda name, value: number(name, value, 1, 64),
                  "depth": lambda name, value: number(name, value, 1, 65536), **(more or {})}
        values = {"instance": None, "config": None, "timeout": 10.0, "threads": 2, "depth": 1024, **(defaults or {})}
        unknown = sorted(str(name) for name in given if name not in checks)
        if unknown:
            raise ValueError(f"{where}{unknown[0]}: there is no such option (there are {', '.join(sorted(checks))})")
        for name, value in {**values, **given}.items():
            setattr(self, name, checks[name](where + name, value))


class Said:
    """A line of the log about the same thing at most twice a minute."""

    def __init__(self, logger):
        self._logger, self._last = logger, {}

    def warn(self, what, *details):
        now = time.monotonic()
        if now - self._last.get(what, -SAID_SECONDS) >= SAID_SECONDS:
            self._last[what] = now
            self._logger.warning(what, *details)


class Link:
    """A client and its batches. While there is no node, open() gives None and tries again now and then, in the background.
    Once opened, a node that stops or starts anew is the client's own matter. Any thread."""

    def __init__(self, options, prefix="", opened=None):
        """opened(client, batches) is called once, in whatever thread opened it."""
        self._options, self._prefix, self._opened = options, prefix, opened
        self._lock = threading.Lock()
        self._held = None
        self._closed = self._trying = False
        self._tried = 0.0
        self._said = Said(logging.getLogger("sluice"))
        self._try()

    def _try(self):
        try:
            client = Client(self._options.instance, config=self._options.config)
        except SluiceError as failure:
            self._said.warn("no node of Sluice yet, nothing is stored or found: %s", failure)
            client = None
        batches = None if client is None else Batches(
            client, threads=self._options.threads, depth=self._options.depth, timeout=self._options.timeout, prefix=self._prefix)
        with self._lock:
            self._tried, self._trying = time.monotonic(), False
            unwanted = self._closed
            if client is not None and not unwanted:
                self._held = (client, batches)
        if client is not None and unwanted:
            batches.close()
            client.close()
        elif client is not None and self._opened is not None:
            self._opened(client, batches)

    def open(self):
        """(client, batches), or None."""
        held = self._held
        if held is not None:
            return held
        with self._lock:
            if self._closed or self._trying or time.monotonic() - self._tried < RETRY_SECONDS:
                return self._held
            self._trying = True
        threading.Thread(target=self._try, name="sluice-link", daemon=True).start()
        return None

    def close(self):
        """Jobs that run end first, by their deadlines."""
        with self._lock:
            self._closed, held, self._held = True, self._held, None
        if held is not None:
            held[1].close()
            held[0].close()
