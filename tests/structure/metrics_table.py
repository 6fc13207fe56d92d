"""The table of metrics (client/metrics/table_*.h), what code defines, and the page made of the table.

    tests/structure/metrics_table.py --write    puts the table into client/metrics/README.md
"""

import glob
import os
import re
import sys
import typing

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = "client/metrics/README.md"
BEGIN, END = "<!-- made of the table: tests/structure/metrics_table.py --write -->\n", "<!-- end of the table -->\n"
KINDS = ("registrar", "coordinator", "transporter", "tierer", "swapper", "keyer", "events")
COUNTERS_HEADER = "ipc/sl_counts.h"
LABELS_HEADER = "ipc/sl_labels.h"
OWN_LABELS = {"NODE": [], "CLIENT": [], "MODEL": ["model"], "TENANT": ["tenant"]}  # of all others: actor


class Row(typing.NamedTuple):
    kind: str
    name: str
    type: str
    unit: str
    family: str
    labels: str
    help: str


def text_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def sources(root, *folders):
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(root, folder, "**", "*.[ch]"), recursive=True)):
            yield os.path.relpath(path, root)


def rows(root=ROOT):
    """All rows, in the order of METRICS_TABLE."""
    tables = {}
    for path in sorted(glob.glob(os.path.join(root, "client/metrics/table_*.h"))):
        text = text_of(root, path)
        for name, body in re.findall(r"#define METRICS_(\w+)\(X\) \\\n((?:.*\\\n)*.*\n)", text):
            found = re.findall(r'X\((\w+), "(\w+)", (\w+), (\w+), "([^"]*)", "([^"]*)",\s*\\\s*"([^"]*)"\)', body)
            if len(found) != body.count("X("):
                raise ValueError(f"{path}: a row of METRICS_{name} has another form than the others")
            tables[name] = [Row(*fields) for fields in found]
    order = re.findall(r"METRICS_(\w+)\(X\)", text_of(root, "client/metrics/table.h").split("#define METRICS_TABLE(X)")[1])
    if sorted(order) != sorted(tables):
        raise ValueError(f"METRICS_TABLE has {sorted(order)}, the headers have {sorted(tables)}")
    return [row for name in order for row in tables[name]]


def strings_of(text, argument, all_texts):
    """The texts that an argument stands for: a literal, a macro, elements of an array, a parameter of a static function."""
    if argument.startswith('"'):
        return [argument.strip('"')]
    name = re.match(r"\w+", argument)[0]
    macro = re.findall(rf'#define {name}\s+"(\w+)"', all_texts)
    array = re.findall(rf"\*const {name}\[\w*\] = \{{([^}}]*)\}}", text)
    if macro or array:
        return macro or re.findall(r'"(\w+)"', array[0])
    function = re.search(rf"^static \w+ (\w+)\([^)]*const char \*{name}\)\n\{{", text, re.M)
    found = re.findall(rf'\b{function[1]}\([^()]*"(\w+)"\)', text) if function else []
    if not found:
        raise ValueError(f"nothing says which name `{argument}` is")
    return found


def defined(root=ROOT):
    """{(kind, name): is it a histogram} of all that code puts on pages."""
    found = {}
    paths = list(sources(root, "actors", "ipc", "cuda", "client/events"))
    all_texts = "".join(text_of(root, path) for path in paths)
    for path in paths:
        text = text_of(root, path)
        kind = path.split("/")[1].upper() if path.startswith(("actors/", "client/events/")) else "ANY"
        names = [(what, name) for what, name in re.findall(r'SL_(METRIC|HISTOGRAM)_ROW\(\s*\w+,\s*[\w.]+,\s*"(\w+)"\)', text)]
        names += [("METRIC", name) for name in re.findall(r"REG_METRIC\(\s*\w+,\s*(\w+)\)", text) if name != "member"]
        for what, argument in re.findall(r"\bsl_(metric|histogram)_define\(\s*[^,()]+,\s*([^()]+)\)", text):
            try:
                names += [(what.upper(), name) for name in strings_of(text, argument, all_texts)]
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        for what, name in names:
            found[kind, name] = what == "HISTOGRAM"
    return found


def counts(root=ROOT):
    """What clients count."""
    text = text_of(root, COUNTERS_HEADER)
    timed = re.search(r"enum sl_tier \{(.*?)\}", text)[1] + re.search(r"enum sl_timed \{(.*?)\}", text)[1]
    table = text.split("#define SL_COUNT_TABLE(X)")[1].split("#define")[0]
    found = {("CLIENT", name): False for name in re.findall(r"X\((\w+),", table)}
    found.update({("CLIENT", f"TIME_{name}"): True for name in re.findall(r"SL_(?:TIER|TIMED)_(\w+)", timed) if name != "COUNT"})
    names = text_of(root, LABELS_HEADER).split("#define SL_LABEL_COUNT_TABLE(X)")[1].split("#define")[0]
    found.update({("MODEL", name): False for name in ["NAME", *re.findall(r"X\((\w+),", names)]})
    # What a tenant stores is not counted.
    found.update({("TENANT", name): False for name in re.findall(r"X\((\w+),", names) if name not in ("STORED", "EXISTED", "REFUSED", "STORED_BYTES")})
    return found


def found_out(root=ROOT):
    """What scrape.c finds out by itself."""
    text = text_of(root, "client/metrics/scrape.c").split("static void node_give")[1]
    return {("NODE", name): False for name in re.findall(r'\{"(\w+)", \w+, \w+\}', text)}


def page_table(root=ROOT):
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    families = {}
    for row in rows(root):
        families.setdefault(row.family, []).append(row)
    for family, members in families.items():
        labels = {name: [] for name in OWN_LABELS.get(members[0].kind, ["actor"])}
        for row in members:
            for part in filter(None, row.labels.split(",")):
                name, value = part.split("=")
                values = labels.setdefault(name, [])
                values += [value] if value not in values else []
        texts = [f"{name}: {', '.join(values)}" if values else name for name, values in labels.items()]
        lines.append(f"| `{family}` | {members[0].type.lower()} | {'; '.join(texts)} | {members[0].help} |")
    return "\n".join(lines) + "\n"


def page_with_table(text, table):
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{PAGE} has no place for the table: {BEGIN.strip()} ... {END.strip()}")
    return text.split(BEGIN)[0] + BEGIN + "\n" + table + "\n" + END + text.split(END)[1]


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    text = text_of(ROOT, PAGE)
    with open(os.path.join(ROOT, PAGE), "w", encoding="utf-8") as file:
        file.write(page_with_table(text, page_table()))


if __name__ == "__main__":
    main()
