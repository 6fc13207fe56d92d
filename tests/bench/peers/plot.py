"""Draws a run as SVG: for every row, how many times faster Sluice is, on a logarithmic axis."""

import html
import math

from rows import SECTIONS, size_text

LINE, LABEL, AXIS, GAP, TOP = 17, 250, 330, 60, 118
COLOURS = {"mooncake": "#2f6fde", "redis": "#e0912f", "slower": "#d33f49", "ink": "#1d2433", "faint": "#8a93a5",
           "grid": "#e4e8ef", "group": "#f5f7fb"}
TITLES = {"mooncake": "Mooncake", "redis": "Redis"}


def text(x, y, what, size=11, colour="ink", anchor="start", weight=400):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{COLOURS[colour]}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(what)}</text>')


def groups_of(rows):
    """[(section, call, rows)], in their order."""
    groups = []
    for row in rows:
        key = (row["section"], row["call"].split(" (")[0])
        if not groups or groups[-1][0] != key:
            groups.append((key, []))
        groups[-1][1].append(row)
    merged = {}
    for key, some in groups:
        merged.setdefault(key, []).extend(some)
    return list(merged.items())


def height_of(group):
    return (len(group[1]) + 1.6) * LINE


def columns_of(groups):
    """Two columns of about the same height; a section is in one column."""
    half = sum(height_of(group) for group in groups) / 2
    left, height = [], 0
    for at, group in enumerate(groups):
        if height + height_of(group) / 2 > half:
            return [left, groups[at:]]
        left.append(group)
        height += height_of(group)
    return [left]


class Axis:
    def __init__(self, rows, left):
        ratios = [found["median"] for row in rows for name, found in row["faster_than"].items() if name in TITLES]
        ratios += [row["faster_than"]["mooncake"]["median"] / row["faster_than"]["memcpy"]["median"] for row in rows
                   if {"mooncake", "memcpy"} <= row["faster_than"].keys()]
        self.low = min(0.5, min(ratios, default=1) * 0.8)
        self.high = max(10, max(ratios, default=1) * 1.6)
        self.left = left

    def x(self, ratio):
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return self.left + AXIS * min(1, max(0, share))

    def ticks(self):
        return [tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 300, 1000, 3000) if self.low <= tick <= self.high]


def told(row, name):
    """The text shown when the pointer is over a mark."""
    found = row["faster_than"][name]
    return (f"<title>{html.escape(row['name'])}: {found['median']:.2f} times as fast as {TITLES[name]} "
            f"(rounds: {found['least']:.2f} to {found['most']:.2f})</title>")


def limit_lines(row, faster, axis, y):
    """A line where a store would be that takes only the time of the copy."""
    share = row["faster_than"].get("memcpy")
    if share is None:
        return []
    x = axis.x(faster / share["median"])
    return [f'<line x1="{x:.1f}" y1="{y - 6:.1f}" x2="{x:.1f}" y2="{y + 6:.1f}" stroke="{COLOURS["ink"]}" stroke-width="1.6"/>']


def row_lines(row, axis, y):
    what = size_text(row["bytes"]) if row["bytes"] else row["call"].split("(")[-1].rstrip(")")
    lines = [text(axis.left - 12, y + 4, what + (f" × {row['batch']}" if row["batch"] > 1 else ""), anchor="end")]
    found = row["faster_than"].get("mooncake")
    if found is not None:
        start, stop = sorted((axis.x(1), axis.x(found["median"])))
        colour = COLOURS["slower" if found["median"] < 1 else "mooncake"]
        lines.append(f'<rect x="{start:.1f}" y="{y - 4:.1f}" width="{max(stop - start, 1.5):.1f}" height="8" rx="1.5" '
                     f'fill="{colour}">{told(row, "mooncake")}</rect>')
        lines += limit_lines(row, found["median"], axis, y)
        label = f"{found['median']:.1f}×" if found["median"] < 20 else f"{found['median']:.0f}×"
        lines.append(text(axis.left + AXIS + 44, y + 3.5, label, size=10, anchor="end", weight=600,
                          colour="slower" if found["median"] < 1 else "ink"))
    if "redis" in row["faster_than"]:
        lines.append(f'<circle cx="{axis.x(row["faster_than"]["redis"]["median"]):.1f}" cy="{y:.1f}" r="3.6" fill="{COLOURS["redis"]}" '
                     f'stroke="white">{told(row, "redis")}</circle>')
    return lines


def column_lines(groups, axis, bottom):
    lines = []
    for tick in axis.ticks():
        x = axis.x(tick)
        strong = tick == 1
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 14}" x2="{x:.1f}" y2="{bottom}" stroke="{COLOURS["ink" if strong else "grid"]}" '
                     f'stroke-width="1"/>')
        lines.append(text(x, TOP - 20, "same" if strong else f"{tick:g}×", size=10, colour="faint", anchor="middle"))
    y = TOP
    for (section, call), rows in groups:
        y += LINE * 1.1
        lines.append(text(axis.left - LABEL + 10, y, call, size=12, weight=600))
        lines.append(text(axis.left - LABEL + 10, y + 14, section_text(section), size=9.5, colour="faint"))
        for row in rows:
            y += LINE
            lines += row_lines(row, axis, y)
        y += LINE * 0.5
    return lines


def section_text(section):
    return {"one": "one process", "two": "two processes", "cross": "read by another", "standalone": "standalone",
            "dummy": "standalone, dummy"}.get(section, SECTIONS.get(section, section))


def legend_lines():
    y = 76
    return [f'<rect x="20" y="{y - 8}" width="26" height="8" rx="1.5" fill="{COLOURS["mooncake"]}"/>', text(52, y, "than Mooncake"),
            f'<rect x="150" y="{y - 8}" width="26" height="8" rx="1.5" fill="{COLOURS["slower"]}"/>', text(182, y, "slower"),
            f'<circle cx="250" cy="{y - 4}" r="3.6" fill="{COLOURS["redis"]}"/>', text(260, y, "than Redis"),
            f'<line x1="350" y1="{y - 10}" x2="350" y2="{y + 2}" stroke="{COLOURS["ink"]}" stroke-width="1.6"/>',
            text(358, y, "the limit: a store that takes no time but that of one memcpy of the same bytes")]


def draw(found):
    rows = [row for row in found["rows"] if any(name in row["faster_than"] for name in TITLES)]
    columns = columns_of(groups_of(rows))
    width = len(columns) * (LABEL + AXIS + GAP) + 20
    bottom = TOP + max(sum(height_of(group) for group in column) for column in columns)
    host = found["host"]
    versions = ", ".join(f"{title} {version}" for title, version in found["versions"].items() if version)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 40:.0f}" width="{width}" '
             f'height="{bottom + 40:.0f}" font-family="Inter, Helvetica, Arial, sans-serif">',
             '<rect width="100%" height="100%" fill="white"/>',
             text(20, 34, "How many times faster Sluice is", size=20, weight=700),
             text(20, 54, f"Median time of a call, same host, same run. {host['cpu']}, {host['cores']} cores. {versions}.", colour="faint")]
    lines += legend_lines()
    for at, column in enumerate(columns):
        lines += column_lines(column, Axis(rows, 10 + LABEL + at * (LABEL + AXIS + GAP)), bottom)
    return "\n".join([*lines, "</svg>", ""])


def save(found, path):
    if path and any(row["faster_than"] for row in found["rows"]):
        with open(path, "w", encoding="utf-8") as sink:
            sink.write(draw(found))
