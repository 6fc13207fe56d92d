"""Prints the trace of `sluicectl workload`: python3 workload.py REQUESTS SEED SESSIONS RATE

SESSIONS conversations are active at a time. Each begins with one of a few system prompts (popular ones more often) and has a
geometric number of turns. The input of a turn is the whole conversation so far plus new user tokens. A hash id represents the
content of a block and of all blocks before it: full blocks of a conversation keep their id, an incomplete last block gets a new
one each time. A small share of requests is an exact retry. Arrivals are Poisson, lengths log-normal."""

import math
import sys

from plain import clean, interruptible, run
from replay_trace import BLOCK_TOKENS, TIMESTAMP_MAX

SYSTEM_PROMPTS = 8
# Medians and spreads (sigma of the logarithm) in tokens. They give about 15 blocks of 512 tokens for each request, a third of them
# reusable, like the public chat traces that this imitates.
SYSTEM, USER, OUTPUT = (1500.0, 0.7), (2600.0, 1.3), (250.0, 0.9)
TURN_END_SHARE, RETRY_SHARE = 0.50, 0.01  # share of turns that end a conversation; share of requests that repeat one exactly
CONTEXT_TOKENS_MAX = 131072
MASK = (1 << 64) - 1


class Random:
    """splitmix64, so that the same parameters give the same trace with any version of Python."""

    def __init__(self, seed):
        self.state = seed

    def number(self):
        self.state = z = self.state + 0x9e3779b97f4a7c15 & MASK
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & MASK
        z = (z ^ z >> 27) * 0x94d049bb133111eb & MASK
        return z ^ z >> 31

    def uniform(self):
        """In (0, 1): never 0, so its logarithm is finite."""
        return ((self.number() >> 11) + 0.5) * 2.0 ** -53

    def log_normal(self, median, sigma):
        radius = math.sqrt(-2.0 * math.log(self.uniform()))
        normal = radius * math.cos(6.283185307179586 * self.uniform())
        return int(min(max(median * math.exp(sigma * normal), 1.0), CONTEXT_TOKENS_MAX / 2))


class Conversation:
    def __init__(self):
        self.ids, self.tokens, self.alive = [], 0, False  # of its full blocks; tokens of prompts and outputs so far


class Workload:
    def __init__(self, seed, sessions, rate):
        self.random, self.rate = Random(seed), rate
        self.sessions = [Conversation() for _ in range(sessions)]
        self.clock_ms, self.next_id, self.turn = 0.0, 0, None
        self.prompts = [self.fresh(self.random.log_normal(*SYSTEM) // BLOCK_TOKENS) for _ in range(SYSTEM_PROMPTS)]

    def fresh(self, count):
        self.next_id += count
        return range(self.next_id - count, self.next_id)

    def say(self, session, tokens):
        """Adds tokens; full blocks get ids."""
        session.tokens += tokens
        session.ids += self.fresh(session.tokens // BLOCK_TOKENS - len(session.ids))

    def turn_make(self):
        """Gives the turn's input length, output length and hash ids."""
        session = self.sessions[self.random.number() % len(self.sessions)]
        if not session.alive:  # replaces an ended one; shares the full blocks of its system prompt with others
            prompt = self.prompts[min(self.random.number() % SYSTEM_PROMPTS, self.random.number() % SYSTEM_PROMPTS)]  # low ones are popular
            session.ids, session.tokens = list(prompt), len(prompt) * BLOCK_TOKENS
        self.say(session, self.random.log_normal(*USER))
        said, ids = session.tokens, session.ids + list(self.fresh(session.tokens % BLOCK_TOKENS != 0))
        output = self.random.log_normal(*OUTPUT)
        self.say(session, output)
        session.alive = self.random.uniform() >= TURN_END_SHARE and session.tokens < CONTEXT_TOKENS_MAX
        return said, output, ids

    def request(self):
        retry = self.random.uniform() < RETRY_SHARE
        if not retry or self.turn is None:
            self.turn = self.turn_make()
        self.clock_ms += -math.log(self.random.uniform()) * 1000.0 / self.rate
        return int(min(self.clock_ms, TIMESTAMP_MAX)), *self.turn


def wrong(text):
    print(clean(f"sluicectl workload: {text}; see: sluicectl workload --help"), file=sys.stderr)
    return 2


def main():
    requests, seed, sessions = map(int, sys.argv[1:4])
    try:
        rate = float(sys.argv[4])
    except ValueError:
        return wrong(f"--rate '{sys.argv[4]}' is not a number")
    if not 1 <= requests <= 10_000_000:
        return wrong("requests: 1 to 10000000")
    if not 1 <= sessions <= 65536:
        return wrong("sessions: 1 to 65536")
    if not 0 < rate <= 1e6:
        return wrong("rate: above 0, at most 1000000")
    workload = Workload(seed, sessions, rate)
    for _ in range(requests):
        timestamp, length, output, ids = workload.request()
        print(f'{{"timestamp": {timestamp}, "input_length": {length}, "output_length": {output}, "hash_ids": {ids}}}')
    return 0


if __name__ == "__main__":
    interruptible()
    run(main)
