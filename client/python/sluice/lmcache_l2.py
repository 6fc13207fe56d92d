"""An adapter that makes a node of Sluice the second level (L2) of LMCache's multi-process server.

    lmcache server ... --l2-adapter '{"type": "native_plugin", "module_path": "sluice.lmcache_l2", "class_name": "Connector"}'

docs/start/lmcache.md has the options and the behaviour on failures. Native threads do the work."""

import time

from . import Batches, UnreachableError, weights
from .backend import Options, number
from .linking import ROWS

WAIT_STEP_SECONDS = 0.2
UNKNOWN = "unknown:"  # instead of a digest of weights: no stored value has this name


class Connector:
    """LMCache's interface of a native connector. Submitting may wait for the model's files (weights.Held), and for nothing else. A job
    ends by `timeout` seconds.

    start_wait: seconds to wait for the node at the start, 0 to 3600. UnreachableError follows, and LMCache does not start."""

    def __init__(self, **given):
        options = Options(given, {**ROWS, "start_wait": (number(0, 3600, float), 10.0)}, where="adapter_params: ")
        self._client = self._attach(options)
        self._batches = Batches(self._client, threads=options.threads, depth=options.depth, timeout=options.timeout,
                                prefix="lmcache-l2/")
        self._model, self._held = options.model, weights.Held(options.whole, weights.revisions_of)
        self.event_fd = self._batches.event_fd
        self.drain_completions = self._batches.drain

    def submit_batch_set(self, keys, values):
        names = self._names(keys)
        # For weights without a digest nothing is stored: a timeout of 0 ends the job at once.
        return self._batches.put(names, values, timeout=0 if any(one.startswith(UNKNOWN) for one in names) else None)

    def submit_batch_get(self, keys, values):
        return self._batches.get(self._names(keys), values)

    def submit_batch_exists(self, keys):
        return self._batches.exists(self._names(keys))

    def submit_batch_delete(self, keys):
        return self._batches.remove(self._names(keys))

    def _names(self, keys):
        """LMCache's keys begin with the engine's path of its model and "@". The digest of the weights at that path replaces it."""
        models = {model: self._weights(model) for model in {key.partition("@")[0] for key in keys}}
        return [models[model] + at + rest for model, at, rest in (key.partition("@") for key in keys)]

    def _weights(self, model):
        # No digest if the files changed, since it is unknown which engines loaded them before, or if they have not been read yet.
        return self._model or self._held.name(model, model) or UNKNOWN

    @staticmethod
    def _attach(options):
        end_s = time.monotonic() + options.start_wait
        while True:
            try:
                return options.open()
            except UnreachableError:
                if time.monotonic() >= end_s:
                    raise
            time.sleep(WAIT_STEP_SECONDS)

    def close(self):
        """Cancels queued jobs and waits for running ones."""
        self._batches.close()
        self._client.close()
