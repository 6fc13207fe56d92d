"""Figures of a run: medians, 99th percentiles, rates, ratios; as a table and as JSON."""

import json
import os
import platform
import statistics
import time

from rows import SECTIONS, exercises_all, size_text

PROCESSES = {"two": 2}  # processes that a row's rate adds up


def percentile(values, share):
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def side_figures(row, rounds):
    calls = [time_ns for phase in rounds for time_ns in phase.times]
    p50_ns = statistics.median(calls)
    per_s = PROCESSES.get(row.section, 1) * row.threads * row.batch * 1e9 / p50_ns
    rate = {"bytes_per_s": per_s * row.size} if row.size else {"keys_per_s": per_s}
    return {"p50_us": p50_ns / 1e3, "p99_us": percentile(calls, 0.99) / 1e3, "calls": len(calls), **rate,
            "cpu_us": statistics.median(phase.cpu_ns + phase.services_ns for phase in rounds) / 1e3,
            "caller_cpu_us": statistics.median(phase.cpu_ns for phase in rounds) / 1e3}


def ratio(peer_rounds, own_rounds):
    """How many times faster Sluice is: of each round's medians, and of these the median."""
    each = [statistics.median(peer.times) / statistics.median(own.times) for peer, own in zip(peer_rounds, own_rounds)]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}


def figures(options, bench, sides, missing, seconds):
    rows = []
    for row in bench.rows:
        times = bench.times.get(row, {})
        if not options.pattern.search(row.name) or not (times or bench.failures.get(row)):
            continue
        own = times.get("sluice")
        rows.append({"name": row.name, "section": row.section, "call": row.call, "batch": row.batch, "bytes": row.size, "threads": row.threads,
                     "sides": {name: side_figures(row, rounds) for name, rounds in times.items()},
                     "faster_than": {name: ratio(rounds, own) for name, rounds in times.items() if own and name != "sluice"},
                     "failures": bench.failures.get(row, {})})
    return {"host": host(), "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "seconds": round(seconds),
            "rounds": options.rounds, "measured_s": options.seconds, "memory_mib": options.memory,
            "versions": {side.title: side.version for side in sides}, "missing": missing, "rows": rows}


def host():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {"cpu": model or platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
            "kernel": platform.release(), "python": platform.python_version()}


# ---- the table ----

def time_text(time_us):
    return f"{time_us:.2f}" if time_us < 10 else f"{time_us:.1f}" if time_us < 1000 else f"{time_us:,.0f}"


def rate_text(side):
    if "keys_per_s" in side:
        per_s = side["keys_per_s"]
        return f"{per_s / 1e6:.2f} M/s" if per_s >= 1e6 else f"{per_s / 1e3:.1f} k/s"
    return f"{side['bytes_per_s'] / 1e9:.2f} GB/s"


def ratio_text(row, name):
    found = row["faster_than"].get(name)
    return "-" if found is None else f"{found['median']:.2f}" if found["median"] < 10 else f"{found['median']:.0f}"


SIDE_COLUMNS = (("sluice", "Sluice"), ("mooncake", "Mooncake"), ("redis", "Redis"))


def table(found, cpu):
    """All rows as text, with a summary; with cpu: CPU of a call instead of p99."""
    present = {name for row in found["rows"] for name in row["sides"]}
    columns = [(name, title) for name, title in SIDE_COLUMNS if name in present]
    call_width = max((len(call_text(row)) for row in found["rows"]), default=0)
    head = f"{'':{call_width}}  {'value':>7} {'batch':>5}"
    under = head
    for _, title in columns:
        head += f" │{title:^33}"
        under += f" │{'p50 us':>10} {'CPU us' if cpu else 'p99 us':>10} {'rate':>11}"
    if present - {"sluice"}:
        head += f" │{'Sluice is faster than':^24}"
        under += f" │{'Mooncake':>9} {'Redis':>7} {'memcpy':>6}"
    lines = []
    for section, text in SECTIONS.items():
        rows = [row for row in found["rows"] if row["section"] == section]
        if rows:
            lines += ["", f"{section}: {text}", head, under]
            lines += [line(row, columns, call_width, 'cpu_us' if cpu else 'p99_us') for row in rows]
    return "\n".join([*lines, "", *summary(found)])


def call_text(row):
    return row["call"] + (f" by {row['threads']}" if row["threads"] > 1 else "")


def line(row, columns, call_width, second):
    value = size_text(row["bytes"]) if row["bytes"] else ""
    text = f"{call_text(row):{call_width}}  {value:>7} {row['batch']:>5}"
    for name, _ in columns:
        side = row["sides"].get(name)
        if side is None:
            text += f" │{'failed' if name in row['failures'] else '-':>33}"
        else:
            text += f" │{time_text(side['p50_us']):>10} {time_text(side[second]):>10} {rate_text(side):>11}"
    if not row["faster_than"]:
        return text
    text += f" │{ratio_text(row, 'mooncake'):>9} {ratio_text(row, 'redis'):>7} {ratio_text(row, 'memcpy'):>6}"
    return text


def summary(found):
    lines = []
    for name, title in SIDE_COLUMNS[1:]:
        rows = [row for row in found["rows"] if name in row["faster_than"]]
        if rows:
            lines.append(summary_of_peer(rows, name, title))
    failures = {}
    for row in found["rows"]:
        for name, text in row["failures"].items():
            failures.setdefault((name, text), []).append(row["name"])
    lines += [f"{name} failed in {len(names)} rows, first '{names[0]}': {text}" for (name, text), names in failures.items()]
    lines += [f"{title} was left out: {text}" for title, text in found["missing"].items()]
    where = found["host"]
    versions = ", ".join(f"{title} {version}" for title, version in found["versions"].items() if version)
    lines.append(f"{versions}; {where['cpu']}, {where['cores']} cores, load {where['load']}; {found['rounds']} rounds, "
                 f"{found['seconds']} s")
    return lines


def summary_of_peer(rows, name, title):
    ratios = [row["faster_than"][name]["median"] for row in rows]
    least = min(rows, key=lambda row: row["faster_than"][name]["median"])
    return (f"faster than {title} in {sum(one > 1 for one in ratios)} of {len(rows)} rows: {statistics.median(ratios):.1f} times in the "
            f"median, {min(ratios):.2f} at least ({least['name']}), {max(ratios):.0f} at most")


def save(found, path):
    if path:
        with open(path, "w", encoding="utf-8") as sink:
            json.dump(found, sink, indent=1)
            sink.write("\n")


# ---- for a README ----

SHORT = {"one": "one process", "two": "two at a time", "cross": "read by another", "standalone": "standalone", "dummy": "standalone, dummy"}


def markdown(found, peer="mooncake"):
    """How many times faster Sluice is than a peer, writing / reading, a line for each pair of calls."""
    lines, looks = {}, []
    sizes = sorted({row["bytes"] for row in found["rows"]} - {0})
    for section, writing, reading, batch in pairs():
        cells = [" / ".join(ratio_text(row, peer) if row else "-" for row in
                            (find(found, section, call, batch, size) for call in (writing, reading))) for size in sizes]
        if any(cell.strip("- /") for cell in cells):
            what = f"`{writing}`, `{reading}`" + (f" × {batch}" if batch > 1 else "")
            cells = ["" if cell == "- / -" else cell for cell in cells]
            lines.setdefault(section, []).append(f"| {what} | " + " | ".join(cells) + " |")
    for row in found["rows"]:
        if not row["bytes"] and peer in row["faster_than"]:
            looks.append(f"`{row['call'].replace(' (', '` (')}" + (f" × {row['batch']}" if row["batch"] > 1 else "")
                         + f" {SHORT[row['section']]}: {ratio_text(row, peer)}")
    text = []
    for section, some in lines.items():
        text += [f"| {SHORT[section]} | " + " | ".join(map(size_text, sizes)) + " |", "|---" * (len(sizes) + 1) + "|", *some, ""]
    return "\n".join(text + ([", ".join(looks), ""] if looks else []))


def markdown_save(found, path):
    if path:
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(markdown(found))


def pairs():
    """(section, writing call, reading call, batch) of all exercises that have them."""
    seen = {}
    for one in exercises_all():
        if one.kind != "exist" and one.section != "cold":
            put, get = one.rows().values()
            seen[one.section, put.call, get.call, one.batch] = None
    return list(seen)


def find(found, section, call, batch, size):
    return next((row for row in found["rows"]
                 if (row["section"], row["call"], row["batch"], row["bytes"], row["threads"]) == (section, call, batch, size, 1)),
                None)
