"""Draws a terminal's screen as SVG: `tmux capture-pane -e` prints its text with the escapes that set colours. Block characters are drawn as
shapes, since fonts differ in them; all else is text, which can be searched and copied."""

import html
import re

CELL_W, CELL_H, SIZE, MARGIN, BAR = 8.0, 17.0, 13.3, 14.0, 30.0
INK, PAPER, FRAME = "#d5d9e0", "#15181e", "#2b303a"
# The eight colours of a terminal, and the brighter eight.
COLOURS = ("#15181e", "#f0616d", "#5fc873", "#e3b341", "#62a8f5", "#c792ea", "#4fc4cf", "#d5d9e0",
           "#6b7280", "#ff8a93", "#8ae29a", "#f2cc60", "#8fc4ff", "#ddb3f8", "#7fdde6", "#ffffff")
FULL = 0x2588  # a full block; those before it are eighths of one, from below


class Style:
    def __init__(self):
        self.ink, self.paper, self.reverse, self.bold = None, None, False, False

    def take(self, code):
        """Applies an SGR code; returns whether it is known."""
        if code == 0:
            self.__init__()
        elif code in (1, 22):
            self.bold = code == 1
        elif code in (7, 27):
            self.reverse = code == 7
        elif 30 <= code <= 37 or 90 <= code <= 97:
            self.ink = code - 30 if code < 90 else code - 82
        elif 40 <= code <= 47:
            self.paper = code - 40
        elif code == 39:
            self.ink = None
        elif code == 49:
            self.paper = None
        else:
            return False
        return True

    def look(self):
        """(ink, paper, bold) as displayed; paper None: that of the screen."""
        ink = INK if self.ink is None else COLOURS[self.ink]
        paper = None if self.paper is None else COLOURS[self.paper]
        if self.reverse:
            ink, paper = paper or PAPER, ink
        return ink, paper, self.bold


def runs_of(lines):
    """[[(column, text, look)]], a list a line: text of one look, without escapes."""
    style = Style()
    for line in lines:
        runs, column = [], 0
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                for code in part[2:-1].split(";"):
                    if not style.take(int(code or 0)):
                        raise ValueError(f"a colour that is not known: {part!r}")
            elif part:
                runs.append((column, part, style.look()))
                column += len(part)
        yield runs


def _x(column):
    return MARGIN + column * CELL_W


def _run(column, text, look, top):
    ink, paper, bold = look
    lines = []
    if paper:
        lines.append(f'<rect x="{_x(column):g}" y="{top:g}" width="{len(text) * CELL_W:g}" height="{CELL_H:g}" fill="{paper}"/>')
    for at, character in enumerate(text):
        eighths = ord(character) - FULL + 8
        if 1 <= eighths <= 8:
            height = CELL_H * eighths / 8
            lines.append(f'<rect x="{_x(column + at):g}" y="{top + CELL_H - height:g}" width="{CELL_W:g}" height="{height:g}" fill="{ink}"/>')
    # Words one by one: a font of another width moves none of them.
    for word in re.finditer(r"[^\s\u2581-\u2588]+(?: [^\s\u2581-\u2588]+)*", text):
        lines.append(f'<text x="{_x(column + word.start()):g}" y="{top + CELL_H - 4.5:g}" fill="{ink}" textLength="{len(word[0]) * CELL_W:g}"'
                     f'{" font-weight=" + chr(34) + "700" + chr(34) if bold else ""}>{html.escape(word[0])}</text>')
    return lines


def drawn(lines, title):
    """lines: of the screen, with escapes. The picture has a frame and a background of its own, for light and dark pages."""
    rows = list(runs_of(lines))
    columns = max((run[0] + len(run[1]) for runs in rows for run in runs), default=0)
    width, height = 2 * MARGIN + columns * CELL_W, BAR + len(rows) * CELL_H + MARGIN
    told = html.escape(title)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" aria-label="{told}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE:g}">',
           f"<title>{told}</title>",
           f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8" fill="{PAPER}" stroke="{FRAME}"/>']
    out += [f'<circle cx="{MARGIN + 6 + 18 * at:g}" cy="{BAR / 2:g}" r="5" fill="{colour}"/>' for at, colour in enumerate(COLOURS[1:4])]
    out.append(f'<text x="{width / 2:g}" y="{BAR / 2 + 4.5:g}" fill="{COLOURS[8]}" text-anchor="middle">{told}</text>')
    for row, runs in enumerate(rows):
        for run in runs:
            out += _run(*run, BAR + row * CELL_H)
    return "\n".join([*out, "</svg>", ""])
