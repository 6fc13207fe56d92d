"""Makes the answer of `sluicectl trace` from events of the flight recorders at standard input and from the logs.

    python3 trace.py id|last|slow ID|N LOG_DIRECTORY text|json|events < [[at_ns, trace, actor, what, peer, value, text or null], ...]
"""

import glob
import itertools
import json
import os
import re
import sys

from plain import clean, interruptible, run

LOG_FILES_MAX, LINE_BYTES_MAX = 1024, 64 << 10


def log_events(folder, trace):
    """The trace's events in each ACTOR.jsonl and ACTOR.jsonl.1."""
    for path in itertools.islice((path for end in ("", ".1") for path in sorted(glob.glob(os.path.join(glob.escape(folder), f"*.jsonl{end}")))), LOG_FILES_MAX):
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = [line for line in iter(lambda: file.readline(LINE_BYTES_MAX), "") if trace in line]
        except OSError:
            continue
        for line in lines:
            try:
                line.encode()  # a line that is not UTF-8 is not ours
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut off when its process was killed
            if isinstance(row, dict) and row.get("trace") == trace and isinstance(row.get("msg"), str):
                at_ns, actor = row.get("ns"), row.get("actor")
                yield [at_ns if isinstance(at_ns, int) else 0, trace, re.match(r"[\w.?-]*", str(actor or "?"), re.A)[0][:31], "log", "", 0, row["msg"]]


def event_json(event, first_ns):
    at_ns, _, actor, what, peer, value, text = event
    shown = {"at_ns": at_ns, "offset_us": (at_ns - first_ns) / 1e3, "actor": actor, "what": what}
    return {**shown, "text": text} if text is not None else {**shown, "peer": peer, "value": value}


def events_json(events):
    return [event_json(event, events[0][0]) for event in events]


def dump(shown):
    print(json.dumps(shown, separators=(",", ":")))


def show_one(trace, events, how):
    if how == "json":
        dump({"trace": trace, "events": events_json(events)})
    else:
        for at_ns, _, actor, what, peer, value, text in events:
            rest = f"{what:<24} {peer:<16} {value}" if text is None else f"{what}: {text}"
            print(clean(f"{(at_ns - events[0][0]) / 1e3:12.1f} us  {actor:<18} {rest}"))
    if not events:
        print(f"sluicectl trace: no record of trace {trace}", file=sys.stderr)
    return 0 if events else 1


def show_many(ops, how):
    rows = [{"trace": op[0][1], "at_ns": op[0][0], "duration_us": (op[-1][0] - op[0][0]) / 1e3, "events": events_json(op) if how == "events" else len(op),
             "actor": op[0][2], "what": op[0][3]} for op in ops]
    if how != "text":
        dump({"ops": rows})
        return 0
    for row in rows:
        print(clean(f"{row['trace']} {row['duration_us']:12.1f} us {row['events']:4} events  {row['actor']:<18} {row['what']}"))
    if not rows:
        print("no ops yet: gets of values in memory need no actor", file=sys.stderr)
    return 0


def main():
    what, number, logs, how = sys.argv[1:]
    events = json.load(sys.stdin)
    if what == "id":
        return show_one(number, sorted(events + list(log_events(logs, number)), key=lambda event: event[0]), how)
    events.sort(key=lambda event: (event[1], event[0]))
    ops = [list(group) for _, group in itertools.groupby(events, key=lambda event: event[1])]
    ops.sort(key=lambda op: op[0][0] - op[-1][0] if what == "slow" else -op[-1][0])  # the longest, or the latest, first
    return show_many(ops[:int(number)], how)


if __name__ == "__main__":
    interruptible()
    run(main)
