"""Hints of requests about sessions, priority and retention: checks for the back ends of all engines, and a thread that sends hints."""

import queue
import threading

from . import SluiceError
from .backend import number

SECONDS_MAX = 7 * 86400
ID_BYTES_MAX = 1024
WORDS = {"session": ("ends", "continues"), "priority": ("low", "normal", "high")}
SHOWN = 60  # characters of an invalid value in an error
LANES = 64
WAITING_MAX = 1024


def shown(value):
    return ascii(value)[:SHOWN]


def name_checked(where, value):
    """Checks and returns the name of a session."""
    if not isinstance(value, str) or not value or len(value.encode("utf-8", "replace")) > ID_BYTES_MAX:
        raise ValueError(f"{where}: session_id must be a text of 1 to {ID_BYTES_MAX} bytes, not {shown(value)}")
    if "\0" in value or not value.isprintable():
        raise ValueError(f"{where}: session_id is not printable: {shown(value)}")
    return value


def hints_checked(where, given):
    """Returns the hints of a dict as engine.store and client.hint take them, or None. Raises ValueError for unknown names and values."""
    if not isinstance(given, dict):
        raise ValueError(f"{where}: an object, not {shown(given)}")
    hints = {}
    for name, value in given.items():
        if value is None:
            continue
        if name in WORDS:
            if value not in WORDS[name]:
                raise ValueError(f"{where}: {name} must be one of {', '.join(WORDS[name])}, not {shown(value)}")
            hints[name] = value
        elif name in ("keep", "pause"):
            hints[name] = number(0, SECONDS_MAX, float)(f"{where}: {name}", value)
        elif name == "session_id":
            hints[name] = name_checked(where, value)
        else:
            raise ValueError(f"{where}: unknown name {shown(name)}; known are session, session_id, pause, priority and keep")
    return hints or None


class HintSender:
    """Sends hints for values to a node from a thread of its own, so that callers do not wait. Hints that arrive too fast are dropped."""

    def __init__(self, said, timeout, lane=0):
        """timeout: seconds per call. lane: number of a rank that has values of its own."""
        self._said, self._timeout, self._lane = said, timeout, lane % LANES
        self._waiting = queue.Queue(WAITING_MAX)
        self._thread, self._lock = None, threading.Lock()

    def tell(self, client, names, hints, asked):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sluice-hints", daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait((client, list(names), hints, asked))
        except queue.Full:
            self._said.warn("hints are dropped: they arrive faster than the node takes them")

    def _run(self):
        while (one := self._waiting.get()) is not None:
            client, names, hints, asked = one
            try:
                client.hint(names, hints, asked=asked, lane=self._lane, timeout=self._timeout)
            except (SluiceError, ValueError, TypeError) as failure:
                self._said.warn("hints could not be sent: %s", failure)
            finally:
                self._waiting.task_done()

    def wait(self):
        """Waits until all hints so far are sent."""
        self._waiting.join()

    def close(self):
        """Drops queued hints and stops the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            try:
                while True:
                    self._waiting.get_nowait()
                    self._waiting.task_done()
            except queue.Empty:
                pass
            self._waiting.put(None)
            thread.join(self._timeout)
