"""LMCache's multi-process server with a node of Sluice as its second level.

    lmcache server ... --l2-adapter '{"type": "native_plugin", "module_path": "sluice.lmcache_l2", "class_name": "Connector"}'

docs/start/lmcache.md has the options, and what happens on failures. All work is done by threads of C."""

import time

from . import Batches, UnreachableError, weights
from .backend import Options, number
from .linking import ROWS

WAIT_STEP_SECONDS = 0.2
UNKNOWN = "unknown:"  # in the place of weights: nothing has this name


class Connector:
    """What LMCache asks of a native connector. Submitting waits for the model's files alone (weights.Held), and each
    job ends by `timeout` seconds.

    start_wait: seconds that a node may take to appear, 0 to 3600; UnreachableError then, and LMCache does not start."""

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
        # Of weights without a name nothing is stored: the job has ended before it begins.
        return self._batches.put(names, values, timeout=0 if any(one.startswith(UNKNOWN) for one in names) else None)

    def submit_batch_get(self, keys, values):
        return self._batches.get(self._names(keys), values)

    def submit_batch_exists(self, keys):
        return self._batches.exists(self._names(keys))

    def submit_batch_delete(self, keys):
        return self._batches.remove(self._names(keys))

    def _names(self, keys):
        """Keys begin with the engine's path of its model, and an "@"; the weights that lie there take its place."""
        models = {model: self._weights(model) for model in {key.partition("@")[0] for key in keys}}
        return [models[model] + at + rest for model, at, rest in (key.partition("@") for key in keys)]

    def _weights(self, model):
        # Which engines have loaded the files before they changed nobody says; and they may not be read yet.
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
        """What waits is cancelled, what runs ends first."""
        self._batches.close()
        self._client.close()
