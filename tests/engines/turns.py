"""Sessions that take turns while others take all of memory, whatever the engine: what is told of their pauses decides whose values are
in memory again when their turn comes. Some tell them, some do not. Three rounds go by first: until the node has learnt what its room is
worth, the first ones that fit have it."""

import dataclasses
import time

from harness import Outcome, check
from reasons import Skipped

JUDGED = 3  # turns of a session that are not judged
TOLD_SHARE, SILENT_SHARE = 0.8, 0.2  # of values that are in memory before a turn: at least, at most
LATE_SHARE = 1 / 32  # of a pause: a turn that comes later than told by more says nothing; others have its room then
SECONDS = 1800  # of a scenario, where other work leaves a tenth of the machine
SPARE = 1.25  # where a turn, with the others behind it, takes longer than the time from turn to turn, that becomes so much longer than it


@dataclasses.dataclass
class Taken:
    """A turn that is judged."""

    told: bool
    all: int = 0
    here: int = 0  # of all values, in memory before it
    read: int = 0  # from disk in it
    late: float = 0.0  # of the pause


def text_of(turns):
    return (f"{sum(one.here for one in turns)} of {sum(one.all for one in turns)} values in memory before {len(turns)} turns, "
            f"{sum(one.read for one in turns)} read from disk in them")


class Turns:
    """take(session, turn, pause): a turn; pause: seconds until the next one, or None when nothing is said of it. others(number): prompts
    that nobody asks for again."""

    def __init__(self, node, told, silent, count, slot_s, take, others):
        self.node, self.told, self.sessions, self.count = node, told, told + silent, count
        self.slot_s = slot_s  # from turn to turn, at least
        self.take, self.others = take, others
        self.keys = [set() for _ in range(self.sessions)]
        self.taken = []

    def from_disk(self):
        """Values that somebody waited for."""
        counters = self.node.counters("registrar")
        return counters["promoted_count"] - counters["prefetched_count"]

    def play(self):
        known, due_s, pauses_s, began_s = set(self.node.listed()), [0.0] * self.sessions, [0.0] * self.sessions, 0.0
        for number in range(self.count * self.sessions):
            turn, session = divmod(number, self.sessions)
            time.sleep(max(0.0, max(due_s[session], began_s + self.slot_s) - time.monotonic()))
            began_s = time.monotonic()
            late = (began_s - due_s[session]) / pauses_s[session] if turn > 0 else 0.0
            pauses_s[session] = self.sessions * self.slot_s
            due_s[session] = began_s + pauses_s[session]
            taken = self.turn(session, turn, pauses_s[session] if turn + 1 < self.count and session < self.told else None)
            if turn >= JUDGED:
                self.taken.append(dataclasses.replace(taken, late=late))
            self.node.settled()
            self.keys[session] |= set(self.node.listed()) - known
            self.others(number)
            self.node.settled()
            self.node.flush()
            known = set(self.node.listed())
            took_s = time.monotonic() - began_s
            if took_s > self.slot_s:  # all pauses that were told so far will be longer: these turns come late
                self.slot_s = SPARE * took_s

    def turn(self, session, turn, pause_s):
        where, keys, read = self.node.listed(), self.keys[session], self.from_disk()
        missing = [key for key in keys if key not in where]
        check(not missing, f"{len(missing)} values of session {session} are nowhere")
        self.take(session, turn, pause_s)
        return Taken(session < self.told, len(keys), sum(where[key]["in_memory"] for key in keys), self.from_disk() - read)

    def judge(self, hits=0, queried=0):
        in_time = [one for one in self.taken if one.late <= LATE_SHARE]
        told, silent = [one for one in in_time if one.told], [one for one in in_time if not one.told]
        values = sum(one.all for one in told)
        note = f"told: {text_of(told)}; silent: {text_of(silent)}; {len(self.taken) - len(in_time)} turns late"
        if len(in_time) < len(self.taken) / 2 or not told or not silent:
            raise Skipped(f"this machine does not keep times: {note}")
        check(sum(one.here for one in told) >= TOLD_SHARE * values, f"values did not come: {note}; {told}")
        check(sum(one.read for one in told) <= (1 - TOLD_SHARE) * values, f"values came too late: {note}; {told}")
        check(sum(one.here for one in silent) <= SILENT_SHARE * sum(one.all for one in silent), f"what was told decided nothing: {note}")
        return Outcome(hits, queried, note)
