"""The results: JSON for programs, a table for people, a log with the output of every step."""

import json
import os
import sys
import traceback

import expectations
from runner import FAILED, FINE, HUNG, SHORT

CODE_FINE, CODE_FAILED, CODE_SHORT = 0, 1, 3  # exit codes of the check-up; 2 is wrong use


def say(text):
    """Prints; if the reader has gone, the steps still run and write the files."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def size(bytes_):
    if bytes_ is None:
        return None
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ > 0 and bytes_ % unit == 0:
            return f"{bytes_ // unit} {name}"
    return str(bytes_)


def shown(value):
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"
    return "-" if value is None else str(value)


def table(heads, rows):
    """Lines, with columns as wide as they need; texts to the left, numbers to the right."""
    texts = [[shown(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [heads, *texts]) for i in range(len(heads))]
    left = [all(not isinstance(row[i], (int, float)) for row in rows) for i in range(len(heads))]
    lines = []
    for row in [heads, *texts]:
        lines.append("  ".join(cell.ljust(width) if to_left else cell.rjust(width)
                               for cell, width, to_left in zip(row, widths, left)).rstrip())
    return lines


def step_line(result):
    line = f"{result['status']:8}{result['name']:20}{result['seconds']:7.1f} s  {result['title']}"
    return line + (f": {result['reason']}" if result["reason"] else "")


def device_lines(rows):
    """The machine and its device in three lines."""
    lines = []
    for row in rows:
        if row.get("kind") == "machine":
            names = ("kernel", "glibc", "processors", "memory_gib", "shm_free_gib", "huge_pages_shmem", "ptrace_scope", "mps", "fabric_manager")
            lines.append("machine: " + ", ".join(f"{name} {shown(row.get(name))}" for name in names))
        elif row.get("kind") == "device":
            link = {name: shown(value) for name, value in row["link"].items()}
            lines.append(f"device: {row['name']} sm_{row['major']}{row['minor']}, driver {row['driver']} "
                         f"({row['smi'].get('driver_version', 'no nvidia-smi')}), {row['multiprocessors']} multiprocessors, "
                         f"{row['copy_engines']} copy engines, compute mode {row['compute_mode']}, {row['devices']} in all")
            lines.append(f"link: generation {link['generation_current']} of {link['generation_max']}, "
                         f"width {link['width_current']} of {link['width_max']}, at most {link['limit_gb_per_s']} GB/s")
    return lines


def columns(title, rows, spec):
    """A table of rows; spec: (head, field) each. A missing field is a dash; bytes read as sizes."""
    if not rows:
        return []
    cells = [[size(row.get(name)) if name == "piece_bytes" else row.get(name) for _, name in spec] for row in rows]
    return ["", title, *table([head for head, _ in spec], cells)]


def bench_lines(rows):
    ways = sorted({way for row in rows for way in row.get("ways", {})})
    flat = [dict(row, digested=row.get("digested_gb_per_s") or None, **{f"way {way}": row.get("ways", {}).get(way) or None for way in ways})
            for row in rows]
    return columns("pieces between the GPU and pinned memory, GB/s", flat, [
        ("", "direction"), ("cap", "cap"), ("host", "host"), ("values", "values"), ("piece", "piece_bytes"), ("pieces", "pieces"), ("GB/s", "gb_per_s"),
        ("pinned", "limit_gb_per_s"), ("ratio", "of_limit"), ("single", "single_gb_per_s"), ("digested", "digested"),
        ("cost", "digest_cost"), ("chosen", "chosen"),
        *((way, f"way {way}") for way in ways)])


def node_lines(rows):
    return columns("an engine through a node", rows, [
        ("", "direction"), ("way", "way"), ("piece", "piece_bytes"), ("layers", "layers"), ("blocks", "blocks"), ("ops", "ops"),
        ("failed", "failed"), ("GB/s", "gb_per_s"), ("pinned", "pinned_gb_per_s"), ("mean ms", "mean_ms"), ("worst ms", "worst_ms"),
        ("first layer ms", "first_layer_ms")])


def plain_lines(title, rows):
    """Rows of one kind, with a column for each field."""
    if not rows:
        return []
    heads = list(dict.fromkeys(name for row in rows for name in row if name != "kind"))
    return ["", title, *table(heads, [[row.get(name) for name in heads] for row in rows])]


def shortfall_lines(compared, unmeasured, played):
    lines = ["", f"expectations: {len(compared)} figures compared"]
    short = [one for one in compared if one["short"]]
    if played:
        lines[-1] += ", which say nothing: a processor played the GPU"
    elif not short:
        lines[-1] += ", none falls short"
    rows = []
    for one in short:
        want = f"{'>=' if one['least'] is not None else '<='} {one['least'] if one['least'] is not None else one['most']}"
        where = " ".join(f"{name} {shown(value)}" for name, value in one["row"].items())
        rows.append([one["name"], where, float(one["value"]), one["beside"], one["ratio"], want])
    if rows:
        lines += ["", *table(["falls short", "of", "measured", "beside", "ratio", "wanted"], rows)]
        reasons = dict.fromkeys((one["name"], one["reason"]) for one in short)
        lines += ["", *(f"{name}: {reason}" for name, reason in reasons)]
    if unmeasured:
        lines += ["", "not measured: " + ", ".join(unmeasured)]
    return lines


def lines_of(results, compared, unmeasured, played):
    rows = [row for result in results for row in result["rows"]]

    def kind(name):
        return [row for row in rows if row.get("kind") == name]

    first = next((result["rows"] for result in results if result["name"] == "device"), [])
    lines = ["check-up of the GPU" + (" (played by a processor)" if played else ""), *device_lines(first), "",
             *(step_line(result) for result in results)]
    notes = [f"{result['name']}: {note}" for result in results for note in result["notes"]]
    lines += bench_lines(kind("bench")) + node_lines(kind("node"))
    lines += plain_lines("pinning, ms a GiB", kind("registration"))
    lines += plain_lines("tensors of torch", kind("torch"))
    lines += plain_lines("copies beside an engine that computes", kind("beside"))
    lines += plain_lines("compute-sanitizer", kind("sanitizer"))
    if notes:
        lines += ["", "notes", *notes]
    lines += shortfall_lines(compared, unmeasured, played)
    counts = {}
    for result in results:
        counts[result["status"]] = counts.get(result["status"], 0) + 1
    seconds = sum(result["seconds"] for result in results)
    lines += ["", f"summary: {', '.join(f'{number} {status}' for status, number in counts.items())}; {seconds:.0f} s"]
    return lines


class Report:
    """Writes the results so far to the files of --out after each step, so that a forced end loses only one step."""

    def __init__(self, folder, played):
        self.folder, self.played, self.results = folder, played, []
        self.wanted = expectations.read()
        os.makedirs(folder, exist_ok=True)
        self.compared, self.unmeasured = [], []
        with open(os.path.join(folder, "checkup.log"), "w", encoding="utf-8"):
            pass

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def told(self, result):
        self.results.append(result)
        with open(os.path.join(self.folder, "checkup.log"), "a", encoding="utf-8") as log:
            log.write(f"---- {step_line(result)}\n$ {' '.join(result['command'])}\n{result['out']}\n{result['err']}\n")
        self.json_write()
        try:
            self.compared, self.unmeasured = expectations.judged(self.wanted, self.results)
            self.short_mark()
            self.json_write()
            self.write("checkup.txt", "\n".join(self.lines()) + "\n")
        except Exception:  # the next steps are worth more than this table: a GPU is rare
            result.update(status=FAILED, reason="its rows cannot be shown: " + traceback.format_exc().strip().splitlines()[-1])
            result["rows"] = []
            self.json_write()
        say(step_line(result))

    def short_mark(self):
        for one in self.results if not self.played else []:
            if one["status"] == FINE and any(found["short"] and found["step"] == one["name"] for found in self.compared):
                one["status"] = SHORT

    def json_write(self):
        said = [{name: value for name, value in one.items() if name not in ("out", "err")} for one in self.results]
        self.write("checkup.json", json.dumps({"played": self.played, "steps": said, "expectations": self.compared,
                                               "not_measured": self.unmeasured, "code": self.code()}, indent=1) + "\n")

    def lines(self):
        return lines_of(self.results, self.compared, self.unmeasured, self.played)

    def code(self):
        statuses = {result["status"] for result in self.results}
        if statuses & {FAILED, HUNG}:
            return CODE_FAILED
        return CODE_SHORT if SHORT in statuses else CODE_FINE
