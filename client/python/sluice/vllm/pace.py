"""Measures how fast the engine computes, so that loads can skip blocks that are faster to compute. Imports no vLLM."""

import collections
import statistics

from .settings import LEARN

STEP_TOKENS_MIN = 256  # the time of smaller steps does not depend on the number of tokens
STEPS_MIN, STEPS_MAX = 4, 32


class Pace:
    """The rate: the setting, or the median tokens per second of the last steps that computed prompts. A step lasts from its scheduling
    until the scheduling of the next one. If steps overlap, some times are too short and some too long; hence a median."""

    def __init__(self, setting, doubles):
        self.set = None if setting == LEARN else setting
        self.doubles = doubles
        self.samples = collections.deque(maxlen=STEPS_MAX)
        self.step = None  # (tokens, time of scheduling) of the last step

    def begins(self, tokens, now):
        """Notes that the next step is being scheduled. A step without tokens means that the engine was idle."""
        before, self.step = self.step, None
        if self.set is None and before is not None and tokens > 0 and before[0] >= STEP_TOKENS_MIN and now > before[1]:
            self.samples.append(before[0] / (now - before[1]))

    def scheduled(self, tokens, now):
        self.step = (tokens, now)

    @property
    def rate(self):
        """Tokens per second; 0: not known, or not used."""
        if self.set is not None:
            return self.set
        return int(statistics.median(self.samples)) if len(self.samples) >= STEPS_MIN else 0

    def prefill(self):
        """The argument `prefill` of engine.load, or None."""
        return (self.rate, self.doubles) if self.rate > 0 else None
