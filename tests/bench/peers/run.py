"""The run: stores take turns at each exercise, and their workers' figures are gathered."""

import dataclasses
import sys
import time

from rows import MIB, SECTIONS
from sides import Missing, Refused

PROCESSES = {"two": 2, "cross": 2}
START_DELAY_NS = 20_000_000  # so that two processes begin at the same moment
CALLS_MIN = 3
CALLS_MAX_EXIST = 200_000
EXIST_KEYS = 2048


@dataclasses.dataclass(frozen=True)
class Phase:
    times: list  # ns of each call
    cpu_ns: float  # CPU time of the calling process, a call
    services_ns: float  # CPU time of the store's other processes, a call of all workers


class Progress:
    """A bar on a terminal; elsewhere a line for each section."""

    def __init__(self, total):
        self.total, self.done, self.began, self.section = total, 0, time.monotonic(), None

    def step(self, section, what):
        self.done += 1
        share = self.done / self.total
        left_s = (time.monotonic() - self.began) * (1 - share) / share
        if sys.stderr.isatty():
            bar = "█" * round(share * 30)
            print(f"\r\x1b[K{bar:░<30} {share:4.0%}  {what}  {left_s:.0f} s left", end="", file=sys.stderr, flush=True)
        elif section != self.section:
            self.section = section
            print(f"{time.monotonic() - self.began:5.0f} s  {section}: {SECTIONS[section]}", file=sys.stderr, flush=True)

    def end(self):
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, options, sides):
        self.options, self.sides = options, sides
        self.times = {}     # row -> side's name -> a list of Phase, one a round
        self.failures = {}  # row -> side's name -> text
        self.rows = []
        self.cell = 0

    # ---- sections ----

    def section_run(self, section, exercises, progress):
        count = PROCESSES.get(section, 1)
        refused = {}
        sides = [side for side in self.sides if section in side.sections]
        for side in sides:
            self.attempt(side, refused, lambda side=side: side.section_start(section, count))
        for side in sides:
            self.attempt(side, refused, lambda side=side: self.ready(side))
        for exercise in exercises:
            self.rows += exercise.rows().values()
            for turn in range(self.options.rounds):
                first = turn % len(self.sides)
                for side in self.sides[first:] + self.sides[:first]:
                    progress.step(section, next(iter(exercise.rows().values())).name)
                    self.turn(side, exercise, turn, refused)
        for side in self.sides:
            side.section_stop()

    def attempt(self, side, refused, action):
        """A side that does not start is left out of the section."""
        if side.name in refused:
            return
        try:
            action()
        except (Refused, Missing) as failure:
            refused[side.name] = str(failure)
            side.section_stop()

    def turn(self, side, exercise, turn, refused):
        """A side that fails is not asked again in this row, and is restarted for the next one."""
        rows = exercise.rows()
        if side.name == "memcpy" and exercise.kind == "exist" or exercise.section not in side.sections:
            return
        failures = [self.failures.setdefault(row, {}) for row in rows.values()]
        if side.name in failures[0]:
            return
        failure = refused.get(side.name)
        if failure is None:
            try:
                for phase, times in self.exercise_run(side, exercise, turn).items():
                    self.times.setdefault(rows[phase], {}).setdefault(side.name, []).append(times)
                return
            except Refused as refusal:
                failure = str(refusal)
                side.section_stop()
                self.attempt(side, refused, lambda: side.section_start(exercise.section, PROCESSES.get(exercise.section, 1)))
                self.attempt(side, refused, lambda: self.ready(side))
        for row, of_row in zip(rows.values(), failures):
            of_row[side.name] = failure
            self.times.get(row, {}).pop(side.name, None)

    def ready(self, side):
        """Waits for the workers and touches the store's memory once, as in a store that has been running for a while."""
        side.workers_wait()
        side.services_find()
        if side.section == "cold":
            return
        commands = [dict(self.command("direct", 4 * MIB, 1, number), do="put", seconds=30, bytes_max=self.room(side) * 2)
                    for number in range(len(side.workers))]
        self.together(side, side.workers, commands)
        self.clear(side)

    # ---- one exercise of one side ----

    def room(self, side):
        """Bytes that each process may write: well below the size at which eviction starts."""
        return self.options.segment_bytes * 3 // 10 // len(side.workers)

    def command(self, kind, size, batch, number):
        self.cell += 1
        return {"kind": kind, "size": size, "batch": batch, "cell": self.cell, "seconds": self.options.seconds,
                "calls_min": CALLS_MIN, "thorough": False,
                "prefix": f"bench@tp_rank:{number}@group:0@{self.cell:032x}{(self.cell * 0x9E3779B97F4A7C15) % 2**128:032x}"}

    def together(self, side, workers, commands):
        """Runs all at the same moment. Returns a Phase of each."""
        before_ns = side.services_cpu_ns()
        start_ns = time.perf_counter_ns() + (START_DELAY_NS if len(workers) > 1 else 0)
        for worker, command in zip(workers, commands):
            worker.tell(**command, start_ns=start_ns)
        answers, refusals = [], []
        for worker in workers:
            try:
                answers.append(worker.answer())
            except Refused as refusal:
                refusals.append(refusal)
        if refusals:
            raise refusals[0]
        services_ns = (side.services_cpu_ns() - before_ns) / sum(len(answer["times"]) for answer in answers)
        return [Phase(answer["times"], answer["cpu_ns"] / len(answer["times"]), services_ns) for answer in answers]

    def exercise_run(self, side, exercise, turn):
        """{phase: durations of calls}."""
        if exercise.section == "cold":
            return self.cold(side, exercise, turn)
        if exercise.kind == "exist":
            phases = self.exist(side, exercise)
        elif exercise.section == "cross":
            phases = self.cross(side, exercise, turn)
        else:
            phases = self.write_and_read(side, exercise, turn)
        self.clear(side)
        return phases

    def clear(self, side):
        side.workers[0].tell(do="clear")
        side.workers[0].answer()

    def write_and_read(self, side, exercise, turn):
        commands = [dict(self.command(exercise.kind, exercise.size, exercise.batch, number), bytes_max=self.room(side))
                    for number in range(len(side.workers))]
        wrote = self.together(side, side.workers, [dict(command, do="put") for command in commands])
        read = self.together(side, side.workers, [dict(command, do="get", calls=len(phase.times), thorough=turn == 0)
                                            for command, phase in zip(commands, wrote)])
        return {"put": steady(wrote), "get": steady(read)}

    def cross(self, side, exercise, turn):
        """The second process reads what the first wrote before, while the first writes more."""
        writer, reader = side.workers
        before, beside = [dict(self.command(exercise.kind, exercise.size, exercise.batch, 0), do="put",
                               bytes_max=self.room(side)) for _ in range(2)]
        wrote = self.together(side, [writer], [before])
        read = dict(before, do="get", calls=len(wrote[0].times), thorough=turn == 0)
        wrote, got = self.together(side, [writer, reader], [beside, read])
        return {"put": steady([wrote]), "get": steady([got])}

    def cold(self, side, exercise, turn):
        """Values that fill memory several times are written once; each reading walks through them from the oldest on, so
        that every one has left memory when it is read."""
        command = dict(self.command("direct", exercise.size, exercise.batch, 0), prefix=f"cold@{exercise.size}@",
                       calls=side.cold_bytes // exercise.size, threads=exercise.threads, thorough=turn == 0)
        if exercise.size not in side.written:
            self.together(side, side.workers, [dict(command, do="cold_put")])
            side.written.add(exercise.size)
        return {"get": self.together(side, side.workers, [dict(command, do="cold_get")])[0]}

    def exist(self, side, exercise):
        commands = [dict(self.command("direct", exercise.size, 64, number), do="put", seconds=30,
                         bytes_max=EXIST_KEYS * exercise.size) for number in range(len(side.workers))]
        self.together(side, side.workers, commands)
        phases = {}
        for phase in ("hit", "miss"):
            looks = [dict(command, do="exist", batch=exercise.batch, keys=EXIST_KEYS, found=phase == "hit",
                          seconds=self.options.seconds, calls_max=CALLS_MAX_EXIST,
                          prefix=command["prefix"] + ("" if phase == "hit" else "-")) for command in commands]
            phases[phase] = steady(self.together(side, side.workers, looks))
        return phases


def steady(phases):
    """The workers' phases as one, without the first call of each, which runs on cold caches."""
    times = [time_ns for phase in phases for time_ns in (phase.times[1:] if len(phase.times) > 2 else phase.times)]
    return Phase(times, sum(phase.cpu_ns for phase in phases) / len(phases), phases[0].services_ns)
