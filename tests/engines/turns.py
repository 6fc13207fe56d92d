"""Sessions that take turns while other prompts fill the memory, for any engine. Some sessions announce their pauses, some do not; the
announced pauses decide whose values are in memory again before their turn. Three rounds are not judged: until the node has learned what
its memory is worth, it holds the first values that fit."""

import dataclasses
import time

from harness import Outcome, check
from reasons import Skipped

JUDGED = 3  # turns of a session that are not judged
ANNOUNCED_SHARE, UNANNOUNCED_SHARE = 0.8, 0.2  # share of values that are in memory before a turn: at least, at most
LATE_SHARE = 1 / 32  # share of a pause: a turn that is later than announced by more is not judged, since others use its memory then
SECONDS = 1800  # of a scenario, where other work leaves a tenth of the machine
SPARE = 1.25  # if a turn with the prompts after it takes longer than slot_s, slot_s becomes this multiple of that time


@dataclasses.dataclass
class TurnResult:
    """A turn that is judged."""

    told: bool
    all: int = 0
    here: int = 0  # number of values in memory before it
    read: int = 0  # number of values read from disk during it
    late: float = 0.0  # share of the pause


def text_of(turns):
    return (f"{sum(one.here for one in turns)} of {sum(one.all for one in turns)} values in memory before {len(turns)} turns, "
            f"{sum(one.read for one in turns)} read from disk in them")


class Turns:
    """take(session, turn, pause) runs a turn; pause: seconds until the next one, or None when it is not announced. others(number) runs
    prompts that no session asks for again."""

    def __init__(self, node, told, silent, count, slot_s, take, others):
        self.node, self.told, self.sessions, self.count = node, told, told + silent, count
        self.slot_s = slot_s  # least time between two turns
        self.take, self.others = take, others
        self.keys = [set() for _ in range(self.sessions)]
        self.taken = []

    def from_disk(self):
        """Number of values for which a load waited on the disk."""
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
            if took_s > self.slot_s:  # all pauses announced so far will be longer: these turns are late
                self.slot_s = SPARE * took_s

    def turn(self, session, turn, pause_s):
        where, keys, read = self.node.listed(), self.keys[session], self.from_disk()
        missing = [key for key in keys if key not in where]
        check(not missing, f"{len(missing)} values of session {session} are nowhere")
        self.take(session, turn, pause_s)
        return TurnResult(session < self.told, len(keys), sum(where[key]["in_memory"] for key in keys), self.from_disk() - read)

    def judge(self, hits=0, queried=0):
        in_time = [one for one in self.taken if one.late <= LATE_SHARE]
        told, silent = [one for one in in_time if one.told], [one for one in in_time if not one.told]
        values = sum(one.all for one in told)
        note = f"announced: {text_of(told)}; silent: {text_of(silent)}; {len(self.taken) - len(in_time)} turns late"
        if len(in_time) < len(self.taken) / 2 or not told or not silent:
            raise Skipped(f"this machine does not keep times: {note}")
        check(sum(one.here for one in told) >= ANNOUNCED_SHARE * values, f"values are not in memory: {note}; {told}")
        check(sum(one.read for one in told) <= (1 - ANNOUNCED_SHARE) * values, f"values were read too late: {note}; {told}")
        check(sum(one.here for one in silent) <= UNANNOUNCED_SHARE * sum(one.all for one in silent), f"announcements had no effect: {note}")
        return Outcome(hits, queried, note)
