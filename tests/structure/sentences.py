"""Sentences of a Markdown file, with the line each begins on. Code, tables, lists, links and abbreviations are known."""

import re

# A full stop behind one of these does not end a sentence.
ABBREVIATIONS = {"e.g", "i.e", "etc", "cf", "vs", "approx", "no", "nos", "fig", "sec", "dr", "mr", "ca", "incl", "max", "min"}
CODE = "\x00"  # an inline code span: one word, which may begin a sentence
ITEM = re.compile(r"^(\s*)([-*+]|\d{1,3}[.)])(\s+)")
FENCE = re.compile(r"^\s*(```|~~~)")
END = re.compile(r"([.!?]+)([\"')\]*_”’]*)(?=\s)")
BEGIN = re.compile(r"[\"'(\[*_“‘]*[A-Z0-9\x00À-Þ]")
WORD = re.compile(r"[^\W_]|\x00")


def blocks(text):
    """[(line number, text)] of paragraphs, list items, headings and cells of tables. Code blocks are left out."""
    found, open_block = [], None  # open_block: [line number, [lines]]
    fenced, blank, item_indent, was_code = "", True, 0, False

    def close():
        nonlocal open_block
        if open_block:
            found.append((open_block[0], " ".join(open_block[1])))
        open_block = None

    text = re.sub(r"<!--.*?-->", lambda match: re.sub(r"[^\n]", "", match[0]), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if fence or fenced:
            close()
            if fence and not fenced:
                fenced = fence[1]
            elif fence and fenced == fence[1]:
                fenced = ""
            blank = True
            continue
        if not line.strip():
            close()
            blank = True
            continue
        indent = len(line) - len(line.lstrip(" "))
        item = ITEM.match(line)
        if blank and not item and indent < item_indent:
            item_indent = 0
        if (blank or was_code) and open_block is None and indent >= item_indent + 4:
            was_code = True  # an indented code block
            continue
        was_code = False
        if item:
            close()
            item_indent = item.end()
            open_block = [number, [line[item.end():].strip()]]
        elif line.lstrip().startswith("#"):
            close()
            item_indent = 0
            found.append((number, line.strip("# ")))
        elif line.lstrip().startswith("|"):
            close()
            found += [(number, cell.strip()) for cell in re.split(r"(?<!\\)\|", hidden(line.strip().strip("|")))]
        elif open_block:
            open_block[1].append(line.strip())
        else:
            open_block = [number, [line.strip()]]
        blank = False
    close()
    return found


def hidden(text):
    """The text with each code span as one sign."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", CODE, text)


def plain(text):
    """What a reader reads: the words of links without their addresses, a code span as one word."""
    text = hidden(text)
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    return re.sub(r"<?https?://\S+", CODE, text)


def split(text):
    """The sentences of one block."""
    text = plain(text) + " "
    found, begin = [], 0
    for match in END.finditer(text):
        before = text[begin:match.start()].split()
        word = before[-1].lstrip("(\"'*_").lower() if before else ""
        rest = text[match.end():].lstrip()
        if match[1] == "." and (word in ABBREVIATIONS or re.fullmatch(r"[a-z]", word)):
            continue
        if rest and not BEGIN.match(rest):
            continue
        found.append(text[begin:match.end()].strip())
        begin = match.end()
    if text[begin:].strip():
        found.append(text[begin:].strip())
    return found


def links(text):
    """[(line number, address)] of the links and pictures."""
    return [(number, address) for number, block in blocks(text)
            for address in re.findall(r"!?\[[^\]]*\]\(\s*<?([^)\s>]*)", hidden(block))]


def word_count(text):
    return sum(1 for token in text.split() if WORD.search(token))


def sentences(text):
    """[(line number of its block, words, sentence)] of a Markdown text."""
    found = [(number, word_count(sentence), sentence.replace(CODE, "`...`")) for number, block in blocks(text) for sentence in split(block)]
    return [one for one in found if one[1] > 0]
