"""Draws panels of lines over time, two side by side, as SVG."""

import html
import math

WIDTH, HEIGHT, GAP, HEAD, PAD, AXIS, LEGEND = 470, 205, 16, 58, 12, 58, 16
LINES_MAX = 8
INK, FAINT, GRID, PAPER, CARD, FRAME = "#1d2433", "#5d6779", "#e4e8ef", "#f5f7fb", "#ffffff", "#d7dce5"
COLOURS = ("#2f6fde", "#e0912f", "#2e9e5b", "#d33f49", "#7d56c2", "#1aa3a8", "#b0578d", "#7a7f2a")
BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def text(x, y, what, size=11, colour=FAINT, anchor="start", weight=400):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(what)}</text>")


def told(value, unit):
    """A number in readable form."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit in ("bytes", "Bps"):
        scale, name = next((row for row in BYTES if value >= row[0]), BYTES[-1])
        return f"{value / scale:.3g} {name}{'/s' if unit == 'Bps' else ''}"
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 or value == 0 else f"{1000 * value:.3g} ms" if value >= 0.001 else f"{1e6 * value:.3g} us"
    short = f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
    return short + ("/s" if unit == "ops" else "")


def top_of(value, unit):
    """(end of the axis, ticks) above a value: round numbers of its unit."""
    base = next((scale for scale, _ in BYTES if value >= scale), 1) if unit in ("bytes", "Bps") else 1
    value = max(value / base, 1e-9)
    step = 10 ** math.floor(math.log10(value / 2))
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor * 4 >= value)
    count = math.ceil(value / step)
    return count * step * base, [at * step * base for at in range(count + 1)]


def _finite(lines):
    return [(name, [(at, value) for at, value in points if math.isfinite(value)]) for name, points in lines]


def _panel(x, y, panel, begin, end):
    title, unit, lines = panel
    lines = sorted((line for line in _finite(lines) if line[1]), key=lambda line: -max(value for _, value in line[1]))
    over, lines = len(lines) - LINES_MAX, lines[:LINES_MAX]
    high, ticks = top_of(max((value for _, points in lines for _, value in points), default=1), unit)
    left, right, top = x + AXIS, x + WIDTH - PAD, y + 34
    rows = math.ceil(len(lines) / 2)
    bottom = y + HEIGHT - 26 - rows * LEGEND

    def place(at, value):
        return f"{left + (right - left) * (at - begin) / (end - begin):.1f},{bottom - (bottom - top) * value / high:.1f}"

    out = [f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{CARD}" stroke="{FRAME}"/>',
           text(x + PAD, y + 21, title, 12.5, INK, weight=600)]
    for tick in ticks:
        height = bottom - (bottom - top) * tick / high
        out += [f'<line x1="{left}" y1="{height:.1f}" x2="{right}" y2="{height:.1f}" stroke="{GRID}"/>', text(left - 6, height + 3.5, told(tick, unit), 10, anchor="end")]
    for seconds in range(0, int(end - begin) + 1, 30):
        out.append(text(left + (right - left) * seconds / (end - begin), bottom + 13, f"{seconds} s", 10, anchor="middle"))
    for number, (name, points) in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round" points="{" ".join(place(*point) for point in points)}"/>')
        column, row = number % 2, number // 2
        at_x, at_y = left + column * (right - left) / 2, bottom + 30 + row * LEGEND
        out += [f'<rect x="{at_x:.1f}" y="{at_y - 6:.1f}" width="12" height="3" fill="{colour}"/>',
                text(at_x + 17, at_y, f"{name}: {told(points[-1][1], unit)}", 10.5, INK)]
    if over > 0:
        out.append(text(right, y + 21, f"the {LINES_MAX} highest of {LINES_MAX + over}", 10, anchor="end"))
    return out


def drawn(panels, title):
    """panels: [(title, unit, [(name, [(unix time, value)])])]. The last value follows each name."""
    begin = min(at for _, _, lines in panels for _, points in lines for at, _ in points)
    end = max(at for _, _, lines in panels for _, points in lines for at, _ in points)
    rows = math.ceil(len(panels) / 2)
    width, height = 2 * WIDTH + 3 * GAP, HEAD + rows * (HEIGHT + GAP)
    name = html.escape(title)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{name}" '
           f'font-family="Inter, Helvetica, Arial, DejaVu Sans, sans-serif">', f"<title>{name}</title>",
           f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
           text(GAP, 26, title, 15, INK, weight=700), text(GAP, 44, "the answers to the dashboard's queries; each name with its last value")]
    for number, panel in enumerate(panels):
        out += _panel(GAP + number % 2 * (WIDTH + GAP), HEAD + number // 2 * (HEIGHT + GAP), panel, begin, end)
    return "\n".join([*out, "</svg>", ""])
