"""The table of metrics (client/tools/metrics/README.md), and what code defines."""

import glob
import os
import re
import typing

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGE = "client/tools/metrics/README.md"
COUNTERS_HEADER = "ipc/shm/sl_counts.h"
LABELS_HEADER = "ipc/shm/sl_labels.h"
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
    """All rows of the table, in its order. One without a name belongs to the metric above."""
    found = []
    for line in text_of(root, PAGE).splitlines():
        if re.match(r"\| (`sluice_\w+`)? \| ", line):
            family, what, labels, where, text = [cell.strip().replace("`", "") for cell in line.split("|")[1:-1]]
            kind, name = where.split(" ")
            type_, _, unit = what.upper().partition(", ")
            if not family:
                family, type_, unit = found[-1].family, found[-1].type, found[-1].unit
            found.append(Row("ANY" if kind == "actor" else kind.upper(), name, type_, unit or "ONE", family, labels.replace(", ", ","), text))
    return found


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
    paths = list(sources(root, "actors", "ipc", "cuda", "client/tools/events"))
    all_texts = "".join(text_of(root, path) for path in paths)
    for path in paths:
        text = text_of(root, path)
        owner = re.match(r"(?:actors|client/tools)/(\w+)/", path)
        kind = owner[1].upper() if owner else "ANY"
        names = [(what, name) for what, name in re.findall(r'SL_(METRIC|HISTOGRAM)_ROW\(\s*\w+,\s*[\w.]+,\s*"(\w+)"\)', text)]
        names += [("METRIC", name) for name in re.findall(r"REG_METRIC\(\s*\w+,\s*(\w+)\)", text) if name != "member"]
        names += [("METRIC", name) for name in re.findall(r'CO_METRIC\(\w+, "(\w+)"\)', text)]
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
    text = text_of(root, "client/tools/metrics/scrape.c").split("static void page_find_out")[1].split("/* ---- the table")[0]
    return {("NODE", name): False for name in re.findall(r'^ +\{"(\w+)", .*\},$|strcmp\(fact->name, "(\w+)"\)', text, re.M) for name in name if name}
