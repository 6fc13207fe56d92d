"""How fast the engine computes, so that a load does not wait for what is sooner computed. No vLLM in it."""

import collections
import statistics

from .settings import LEARN

STEP_TOKENS_MIN = 256  # smaller steps take as long as they take, whatever the number of tokens
STEPS_MIN, STEPS_MAX = 4, 32


class Pace:
    """What was set, or the median of tokens a second of the last steps that computed prompts. A step lasts from the moment when it was
    scheduled to that when the next one is asked for. Where steps overlap some times are too short and some too long: hence a median."""

    def __init__(self, setting, doubles):
        self.set = None if setting == LEARN else setting
        self.doubles = doubles
        self.samples = collections.deque(maxlen=STEPS_MAX)
        self.step = None  # (tokens, when it was scheduled) of the last one

    def begins(self, tokens, now):
        """The next step is being scheduled. One without tokens says that the engine was idle meanwhile."""
        before, self.step = self.step, None
        if self.set is None and before is not None and tokens > 0 and before[0] >= STEP_TOKENS_MIN and now > before[1]:
            self.samples.append(before[0] / (now - before[1]))

    def scheduled(self, tokens, now):
        self.step = (tokens, now)

    @property
    def rate(self):
        """Tokens a second; 0: not known, or nothing is to be said."""
        if self.set is not None:
            return self.set
        return int(statistics.median(self.samples)) if len(self.samples) >= STEPS_MIN else 0

    def prefill(self):
        """For engine.load, or None."""
        return (self.rate, self.doubles) if self.rate > 0 else None
