"""Shared by back ends with background jobs: a client of a node that may start after the engine, and a log without repetitions."""

import logging
import threading
import time

from . import Batches, SluiceError
from .backend import number

REPEAT_SECONDS = 30.0
# Rows of backend.Options. threads: native threads that copy, the last one only for reads. depth: most queued and running jobs.
ROWS = {"threads": (number(1, 64), 3), "depth": (number(1, 65536), 1024)}


class LimitedLog:
    """Logs each message at most twice a minute."""

    def __init__(self, logger):
        self._logger, self._last = logger, {}

    def warn(self, what, *details):
        now = time.monotonic()
        if now - self._last.get(what, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._last[what] = now
            self._logger.warning(what, *details)


class Link:
    """A client and its Batches. While the node does not run, open() returns None and a thread retries in the background. Once open, the
    client itself handles a node that stops or restarts. Any thread."""

    def __init__(self, options, prefix="", opened=None):
        """options: backend.Options with ROWS. opened(client, batches) is called once, in the thread that opened the client."""
        self._options, self._prefix, self._opened = options, prefix, opened
        self._lock = threading.Lock()
        self._held = None
        self._closed = self._trying = False
        self._tried = 0.0
        self._said = LimitedLog(logging.getLogger("sluice"))
        self._try()

    def _try(self):
        client = batches = None
        try:
            client = self._options.open()
            batches = Batches(client, threads=self._options.threads, depth=self._options.depth, timeout=self._options.timeout,
                              prefix=self._prefix)
        except SluiceError as failure:
            self._said.warn("no node of Sluice yet, nothing is stored or found: %s", failure)
            if client is not None:
                client.close()
        with self._lock:
            self._tried, self._trying = time.monotonic(), False
            unwanted = self._closed
            if batches is not None and not unwanted:
                self._held = (client, batches)
        if batches is not None and unwanted:
            batches.close()
            client.close()
        elif batches is not None and self._opened is not None:
            self._opened(client, batches)

    def open(self):
        """Returns (client, batches), or None."""
        held = self._held
        if held is not None:
            return held
        with self._lock:
            if self._closed or self._trying or time.monotonic() - self._tried < self._options.retry:
                return self._held
            self._trying = True
        threading.Thread(target=self._try, name="sluice-link", daemon=True).start()
        return None

    def close(self):
        """Waits for running jobs, until their deadlines at most."""
        with self._lock:
            self._closed, held, self._held = True, self._held, None
        if held is not None:
            held[1].close()
            held[0].close()
