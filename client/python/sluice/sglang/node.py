"""A client of the node whose failures count as misses: every call ends by its deadline, logs its failure once, and raises nothing."""

import logging
import threading
import time

import sluice

from ..hints import LANES

logger = logging.getLogger(__name__)

AGAIN_SECONDS = 60  # between two log lines about a lasting failure
ORDINARY = frozenset((sluice.Code.OK, sluice.Code.NOT_FOUND))
# The node does not answer. It is not called for a while after these, so that an engine's threads do not wait for it in each call.
SILENT = frozenset((sluice.Code.TIMEOUT, sluice.Code.UNREACHABLE, sluice.Code.DRAINING, sluice.Code.PEER_DIED))


class CallHealth:
    """State of one kind of call: logs when it starts to fail and when it works again. Any thread."""

    def __init__(self, what, retry):
        self.what, self.retry = what, retry
        self.lock = threading.Lock()
        self.since = self.told = self.quiet_until = 0.0
        self.pages = 0

    def quiet(self):
        """Whether the node is not called at the moment; pages of skipped calls count as failed."""
        return self.quiet_until > time.monotonic()

    def failed(self, pages, code, why):
        now = time.monotonic()
        with self.lock:
            if code in SILENT:
                self.quiet_until = now + self.retry
            self.since = self.since or now
            self.pages += pages
            if self.told and now < self.told + AGAIN_SECONDS:
                return
            self.told = now
            count = self.pages
        logger.warning("sluice: %s fails, %d pages so far count as misses: %s", self.what, count, why)

    def skipped(self, pages):
        with self.lock:
            self.pages += pages

    def fine(self):
        if not self.since:
            return
        with self.lock:
            since, pages = self.since, self.pages
            self.since = self.told = self.quiet_until = 0.0
            self.pages = 0
        if since:
            logger.info("sluice: %s works again after %.1f s and %d pages", self.what, time.monotonic() - since, pages)


class Node:
    """The pages of one engine in one node. Any thread."""

    def __init__(self, options):
        self.options = options
        self.client = options.open()
        self.troubles = {what: CallHealth(what, options.retry) for what in ("storing", "reading", "looking up", "sending hints")}

    def close(self):
        self.client.close()

    def _call(self, what, pages, call):
        """Runs call() and returns a code for each page, as bytes."""
        trouble = self.troubles[what]
        if trouble.quiet():
            trouble.skipped(pages)
            return bytes([sluice.Code.TIMEOUT]) * pages
        try:
            codes = call()
        except sluice.SluiceError as error:
            trouble.failed(pages, error.code, error)
            return bytes([error.code or sluice.Code.INTERNAL]) * pages
        wrong = [code for code in set(codes) if code not in ORDINARY]
        if wrong:
            worst = next((code for code in wrong if code in SILENT), wrong[0])
            trouble.failed(sum(map(codes.count, wrong)), worst, sluice.Code(worst).name)
        elif pages:
            trouble.fine()
        return codes

    def _moved(self, what, call, plan, keys, indices, more):
        codes, step = [], plan.pages_max
        for first in range(0, len(keys), step):
            some = keys[first:first + step]
            of = indices[first * plan.page:(first + len(some)) * plan.page]
            codes.append(self._call(what, len(some), lambda some=some, of=of: call(
                some, of, **{**plan.arrays, **more}, prefix=plan.prefix, suffixes=plan.suffixes, timeout=self.options.timeout)))
        return b"".join(codes)

    def put(self, plan, keys, indices):
        """Stores pages of a plan's memory. Returns a byte for each page: 0 or a code."""
        return self._moved("storing", self.client.put_pages, plan, keys, indices, {})

    def get(self, plan, keys, indices, **part):
        """Reads into pages of a plan's memory. part: arrays that replace the plan's."""
        return self._moved("reading", self.client.get_pages, plan, keys, indices, part)

    def find(self, plan, keys):
        """Looks pages up. Returns a byte for each page: 0 if it exists, or a code."""
        codes, step = [], max(1, 65536 // len(plan.suffixes))
        for first in range(0, len(keys), step):
            some = keys[first:first + step]
            codes.append(self._call("looking up", len(some), lambda some=some: self.client.find_pages(
                some, prefix=plan.prefix, suffixes=plan.suffixes, elsewhere=self.options.peers, timeout=self.options.timeout)))
        return b"".join(codes)

    def hint(self, pools, hints, asked, lane):
        """Sends hints about pages and their session. pools: [(plan, keys)]; the first one has all pages in the order of their chain.
        asked: the pages were read, from the session's first page on. lane: number of a rank that has values of its own."""
        place = {key: number for number, key in enumerate(pools[0][1])}
        pages = sorted(((place.get(key, len(place)), key, plan) for plan, keys in pools for key in keys), key=lambda page: page[0])
        names = [plan.prefix + key + suffix for _, key, plan in pages for suffix in plan.suffixes]

        def call():
            self.client.hint(names, hints, asked=asked, lane=lane % LANES, timeout=self.options.timeout)
            return b""

        if names:
            self._call("sending hints", 0, call)

    def register(self, memories):
        """Registers the memory of pages, (address, bytes), with libsluice, so that it need not query the GPU driver for each piece."""
        for address, length in memories:
            if length:
                self.client.register_memory(address, length)

    def clear(self, prefix):
        """Removes this node's values under a prefix."""
        try:
            keys = [info.key for info in self.client.list(prefix)]
            for first in range(0, len(keys), 65536):
                self.client.remove_batch(keys[first:first + 65536], timeout=self.options.timeout)
        except sluice.SluiceError as error:
            logger.warning("sluice: not all values under %s were removed: %s", prefix, error)


def leading(codes):
    """Number of existing pages, from the first one on."""
    for number, code in enumerate(codes):
        if code:
            return number
    return len(codes)


def window_ends(codes, window):
    """All lengths of prefixes whose last `window` pages (or all, if fewer) exist."""
    ends, run = [], 0
    for number, code in enumerate(codes, 1):
        run = 0 if code else run + 1
        if run >= min(window, number):
            ends.append(number)
    return ends
