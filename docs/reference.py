#!/usr/bin/env python3
"""Makes the pages of the reference from programs, tables and headers.

    python3 docs/reference.py --man FOLDER      the calls of libsluice as manual pages (sl_put.3)

docs/site_pages.py calls it for the site.
"""

import argparse
import ast
import html
import json
import os
import re
import subprocess
import sys
import typing

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))

PROGRAMS = ("sluice-node", "sluice-supervise", "sluice-metrics", "sluice-events", "sluice-registrar", "sluice-keyer", "sluice-coordinator",
            "sluice-swapper", "sluice-tierer", "sluice-transporter", "mooncake_master", "mooncake_client")
MADE = "<!-- made by docs/reference.py: change its sources -->\n\n"


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def cell(text):
    """The text of a table's cell, with escaped <, | and *."""
    return html.escape(str(text), quote=False).replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def code(text):
    return f"`{text}`" if text else ""


# ---- settings ----

def amount(kind, number):
    """A bound of a setting with its unit."""
    number = int(number)
    if kind == "RATIO":
        return f"{number / 1e6:g}"
    steps = {"SIZE": ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
             "DURATION": ((86400 * 10**9, "d"), (3600 * 10**9, "h"), (60 * 10**9, "min"), (10**9, "s"), (10**6, "ms"), (10**3, "us"))}.get(kind, ())
    for size, unit in steps:
        if number >= size and number % size == 0:
            return f"{number // size} {unit}"
    return f"{number} ns" if kind == "DURATION" and number else str(number)


def settings(rows):
    """One heading a setting, so that other pages can link to it."""
    parts = ["# Settings\n\nA setting is read, in rising order of precedence, from its default, the file that `--config` names (`name = value`), the\n"
             "environment (`SLUICE_NAME`, upper case) and the command line (`--name value`, with `-` for `_`).\n"]
    for row in rows:
        kind = row["kind"].lower()
        facts = [f"**{kind}**", f"default {code(row['default']) or 'empty'}"]
        if row.get("choices"):
            facts.append("one of " + ", ".join(code(word) for word in re.split(r"[ ,|]+", row["choices"]) if word))
        elif row["kind"] not in ("TEXT", "BOOL"):
            facts.append(f"{amount(row['kind'], row['low'])} to {amount(row['kind'], row['high'])}")
        parts.append(f"## {row['name']}\n\n{', '.join(facts)}\n\n{cell(row['help'])}\n")
    return "\n".join(parts)


# ---- commands ----

def printed(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode != 0 or not done.stdout.strip():
        raise SystemExit(f"reference: {' '.join(command)} gave {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


def help_of(command):
    """The output of --help without the list of settings, which have their own page."""
    text = re.split(r"(?m)^Settings are read, in rising order", printed([*command, "--help"]))[0].rstrip()
    return f"```text\n{text}\n```\n"


def commands(bin_folder):
    main = os.path.join(bin_folder, "sluicectl")
    names = re.findall(r"(?m)^  ([a-z][a-z-]*) ", printed([main, "--help"]))
    parts = ["# sluicectl\n", help_of([main])]
    for name in names:
        parts.append(f"## {name}\n\n{help_of([main, name])}")
    others = ["# Programs of a node\n"]
    for name in PROGRAMS:
        path = os.path.join(bin_folder, name)
        others.append(f"## {name}\n\n{help_of([path if os.path.exists(path) else os.path.join(ROOT, 'deploy', name)])}")
    return "\n".join(parts), "\n".join(others)


# ---- metrics, errors ----

def metrics():
    sys.path.insert(0, os.path.join(ROOT, "tests", "structure"))  # absent where packages are built
    import metrics_table

    rows = {}
    for row in metrics_table.rows():
        rows.setdefault(row.family, []).append(row)
    parts = ["# Metrics\n\nThe metrics of `sluicectl metrics` and of `GET /metrics`. All have the label `instance`, those of an actor the label `actor`.\n"]
    for kind in dict.fromkeys(same[0].kind for same in rows.values()):
        title = {"ANY": "Every actor", "NODE": "The node", "CLIENT": "Clients", "MODEL": "By model", "TENANT": "By tenant"}.get(kind, kind.capitalize())
        chosen = [(family, same) for family, same in rows.items() if same[0].kind == kind]
        parts.append(f"## {title}\n\n" + table(("metric", "type, unit", "labels", "meaning"), [
            (code(family), same[0].type.lower() + {"ONE": "", "BYTES": ", bytes"}.get(same[0].unit, ", seconds"),
             "<br>".join(code(row.labels) for row in same if row.labels), "<br>".join(dict.fromkeys(cell(row.help) for row in same if row.help)))
            for family, same in chosen]))
    return "\n".join(parts)


class Error(typing.NamedTuple):
    name: str
    number: int
    kind: str
    text: str


def errors_of(header):
    return [Error(name, int(number), kind, text) for name, number, kind, text in
            re.findall(r'X\((SL_\w+), (\d+), (SL_CLASS_\w+), "([^"]*)"\)', header)]


def errors(header):
    helps = dict(re.findall(r"(SL_CLASS_\w+), +/\* (.*?) \*/", header))
    return ("# Errors\n\nEvery call of libsluice that can fail returns one of these codes; `struct sl_error` has the message. The class says what\nhelps. "
            "Python raises `SluiceError` with the same number as `code`.\n\n"
            + table(("number", "name", "meaning", "what helps"),
                    [(str(one.number), code(one.name), cell(one.text), cell(helps[one.kind])) for one in errors_of(header)]))


# ---- the C API ----

HEADER = "client/include/sluice.h"
MESSAGE_ERRORS = ("SL_ERR_UNREACHABLE", "SL_ERR_TIMEOUT", "SL_ERR_INVALID", "SL_ERR_NO_MEMORY", "SL_ERR_PERMISSION")
COMMON = {  # arguments with the same meaning in every call
    "client": "a client of the node", "engine": "the registered engine", "op": "the operation", "pool": "the pool",
    "draft": "of sl_put_start", "drafts": "count drafts", "view": "of sl_get_pinned", "views": "receive the values in place",
    "key": "of the value", "keys": "count keys", "value": "its bytes", "values": "the bytes of each", "buffer": "receives the bytes",
    "buffers": "receive the bytes of each", "at": "the first byte", "length_bytes": "number of bytes", "lengths_bytes": "number of bytes of each",
    "count": "number of items", "codes": "receives a code for each item", "out": "receives the result", "result": "receives the result",
    "timeout_ns": "how long the call may take, in ns; 0: the setting op_timeout", "why": "receives the message of an error; may be NULL",
    "event": "of the engine; NULL: none", "rank": "number of the rank", "layer": "number of the layer", "context": "passed on to each()",
    "each": "called for each object", "fd": "receives the descriptor", "ops": "receive the operations", "ids": "of the hand-overs",
    "digest": "receives the digest", "name": "of the contribution", "required_bytes": "receives the sum", "class_count": "number of classes",
    "count_max": "length of the array", "stats": "receive the statistics of each", "reasons": "receive the reason of each", "told": "of sl_op_trace_get",
    "respect_leases": "leased values stay (SL_ERR_LEASED)",
}


class Call(typing.NamedTuple):
    name: str
    result: str
    arguments: list  # (type, name)
    text: str  # of the comment
    section: str
    declaration: str


def comment_text(comment):
    """The words of a comment, line by line."""
    return "\n".join(re.sub(r"^ \*( |$)", "", line) for line in comment[2:-2].strip().split("\n"))


def declared(text):
    """(kind, text, whether it begins a line) of each comment, preprocessor line and declaration of a header."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        begun = text[text.rfind("\n", 0, at) + 1:at].strip() == ""
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            yield "comment", text[at:end], begun
        elif text[at] == "#":
            end = re.compile(r"(?:\\\n|[^\n])*").match(text, at).end()
            yield "directive", text[at:end], begun
        elif text.startswith(('extern "C" {', "}"), at):
            end = text.index("\n", at)
        else:
            depth, end = 0, at
            while depth or text[end] != ";":
                if text.startswith("/*", end):
                    end = text.index("*/", end) + 1
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            end += 1
            yield "declaration", text[at:end], begun
        at = end


def api(header):
    """(calls, {struct or enum: its declaration with its comment}, {section: its comment})"""
    calls, types, sections, pending, section = [], {}, {}, "", ""
    for kind, text, begun in declared(header):
        if kind == "comment" and begun:
            title = re.match(r"---- (.*?) ----\n*", comment_text(text))
            if title:
                section = title[1]
                sections[section] = comment_text(text)[title.end():]
            elif pending:  # a comment about several calls
                sections[section] = sections.get(section, "") + "\n\n" + comment_text(pending)
            pending = "" if title else text
        elif kind == "declaration":
            function = re.match(r"(?s)([\w\s*]*?[\s*])(sl_\w+)\((.*)\);$", text)
            named = re.match(r"(struct|enum)\s+(\w+)\s*\{", text)
            if function:
                if not pending:
                    raise SystemExit(f"reference: {HEADER}: {function[2]} has no comment of its own")
                arguments = [re.match(r"(?s)(.*?)(\w+(?:\[\w*\])?)$", one.strip()) for one in split_arguments(function[3])]
                calls.append(Call(function[2], function[1].strip(), [(one[1].strip(), one[2]) for one in arguments if one],
                                  comment_text(pending), section, text))
            elif named:
                types[named[2]] = (pending + "\n" if pending else "") + text
            pending = ""
    return calls, types, sections


def split_arguments(text):
    """Splits at commas outside of brackets; the name of a function pointer is moved out of its brackets."""
    parts, depth = [""], 0
    for sign in re.sub(r"\s+", " ", text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    parts = [re.sub(r"^(.*)\(\*(\w+)\)(\(.*\))$", r"\1(*)\3 \2", part.strip()) for part in parts]
    return [part for part in parts if part != "void"]


def flowed(text):
    """A comment's paragraphs, each on one line; items of a list as lines, and indented lines as they are."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.startswith("- "):
            found.append("\n".join(" ".join(item.split()) for item in re.split(r"\n(?=- )", paragraph)))
        elif paragraph.startswith("  "):
            found.append(paragraph)
        else:
            found.append(" ".join(paragraph.split()))
    return [paragraph for paragraph in found if paragraph]


class Page(typing.NamedTuple):
    """The page of a call in the manual and on the site."""
    call: Call
    about: list  # paragraphs
    arguments: list  # (declaration, words)
    returns: str
    errors: list  # (code, words)
    types: list  # texts
    example: str


def items_of(text):
    """The parts of a list, at the commas outside of brackets."""
    return [part.strip() for part in re.findall(r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))+", text.strip().rstrip("."))]


def errors_listed(call, calls, codes):
    """[(code, when)] of a call. "as sl_x" means the list of sl_x."""
    found = {}
    for item in items_of(call.text.partition("Errors: ")[2].replace("\n", " ")):
        code_and_when = re.match(r"(SL_ERR_\w+)(?: \((.*)\))?$", item)
        if code_and_when:
            found[code_and_when[1]] = code_and_when[2] or codes[code_and_when[1]]
        elif item.startswith("as "):
            for name in re.findall(r"sl_\w+", item):
                found = {**errors_listed(calls[name], calls, codes), **found}
        else:
            words = item.removeprefix("and ")
            found[words.partition(" when ")[0]] = words.partition(" when ")[2] or "see above"
    return found


def short_of(argument):
    return re.sub(r"\W.*", "", argument[1])


def own_words(call):
    """(lines of prose, {argument: its description}) from the comment of a call."""
    words, prose, argument = {}, [], ""
    names = [short_of(one) for one in call.arguments]
    for line in call.text.partition("Errors: ")[0].split("\n"):
        named = re.match(r"(\w+): (.*)", line)
        if named and named[1] in names:
            argument = named[1]
            words[argument] = named[2]
        elif argument:
            words[argument] += " " + line.strip()
        else:
            prose.append(line)
    return prose, {name: text.strip().rstrip(".") for name, text in words.items()}


def page_of(call, calls, types, codes, examples):
    prose, words = own_words(call)
    like = re.search(r"Errors: as (sl_\w+)", call.text)  # describes arguments of the same name
    words = {**(own_words(calls[like[1]])[1] if like else {}), **COMMON, **words}
    about = flowed("\n".join(prose))
    returns = "SL_OK, or the code of an error." if call.result == "sl_err" else "Nothing." if call.result == "void" else ""
    said = re.search(r"(?:^|(?<=\. ))Returns (.*?\.)(?= [A-Z]|$)", about[0])
    if said:
        returns = said[1][0].upper() + said[1][1:]
    used = [name for name in types if re.search(rf"\b(struct|enum) {name}\b", call.declaration)]
    for name in used:  # the list grows
        used += [other for other in types if other not in used and re.search(rf"\b(struct|enum) {other}\b", types[name])]
    arguments = []
    for kind, name in call.arguments:
        below = re.search(r"struct (\w+)", kind)
        words_of_type = f"see struct {below[1]} below" if below and below[1] in types else ""
        arguments.append((f"{kind} {name}".replace("* ", "*"), words.get(short_of((kind, name)), words_of_type)))
        if not arguments[-1][1]:
            raise SystemExit(f"reference: {HEADER}: the comment of {call.name} does not describe {name}")
    listed = errors_listed(call, calls, codes)
    errors_found = list(listed.items())
    if any(name == "timeout_ns" for _, name in call.arguments) and call.result == "sl_err":
        errors_found.append(("any call that sends messages", ", ".join(name for name in MESSAGE_ERRORS if name not in listed)))
    return Page(call, about, arguments, returns, errors_found, [types[name] for name in used], example_of(call.name, examples))


def example_of(name, examples):
    """The lines of an example that use the call."""
    for path, lines in examples:
        for i, line in enumerate(lines):
            if re.search(rf"\b{name}\(", line) and not line.lstrip().startswith(("*", "/*")):
                begin = max(i - 4, 0)
                while begin < i and lines[begin].strip() in ("", "}"):
                    begin += 1
                return f"/* {path} */\n" + "\n".join(lines[begin:i + 6]).rstrip()
    return ""


def c_pages(texts_of_examples):
    header = text_of(HEADER)
    calls, types, sections = api(header)
    codes = {one.name: one.text for one in errors_of(text_of("runtime/base/sl_error.h"))}
    examples = [(path, text.split("\n")) for path, text in texts_of_examples.items()]
    by_name = {call.name: call for call in calls}
    return [page_of(call, by_name, types, codes, examples) for call in calls], sections


def c_markdown(page):
    call = page.call
    parts = [f"# {call.name}\n", *[escape(paragraph) + "\n" for paragraph in page.about[:1]],
             f"```c\n#include <sluice.h> /* -lsluice */\n\n{call.declaration}\n```\n", *[escape(paragraph) + "\n" for paragraph in page.about[1:]]]
    if page.arguments:
        parts.append("## Arguments\n\n" + table(("argument", "meaning"), [(code(what), cell(words)) for what, words in page.arguments]))
    parts.append(f"## Returns\n\n{escape(page.returns)}\n")
    if page.errors:
        parts.append("## Errors\n\n" + table(("code", "when"), [(code(name) if name.startswith("SL_") else name, cell(words)) for name, words in page.errors]))
    if page.types:
        parts.append("## Types\n\n```c\n" + "\n\n".join(page.types) + "\n```\n")
    if page.example:
        parts.append(f"## Example\n\n```c\n{page.example}\n```\n")
    return "\n".join(parts)


def escape(text):
    """Plain text as Markdown; code is not escaped."""
    if text.startswith("  "):
        return f"```text\n{text}\n```"
    return re.sub(r"([*_<\[])", r"\\\1", text)


def roff(text):
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def c_manual(page, version):
    call = page.call
    first = re.split(r"[.:;](?: |$)", page.about[0])[0]
    parts = [f'.TH {call.name.upper()} 3 "" "Sluice {version}" "Sluice"', ".SH NAME", f"{call.name} \\- {roff(first[0].lower() + first[1:])}",
             ".SH SYNOPSIS", ".nf", "#include <sluice.h>", "", roff(call.declaration), "", "Link with \\-lsluice.", ".fi", ".SH DESCRIPTION"]
    for paragraph in page.about:
        parts += [".PP", *([".nf", roff(paragraph), ".fi"] if "\n" in paragraph else [roff(paragraph)])]
    parts.append(".SH ARGUMENTS")
    for what, words in page.arguments:
        parts += [".TP", f".I {roff(what)}", roff(words or "(see above)")]
    parts += [".SH RETURN VALUE", roff(page.returns)]
    if page.errors:
        parts.append(".SH ERRORS")
        for name, words in page.errors:
            parts += [".TP", f".B {name}", roff(words)]
    for title, text in (("TYPES", "\n\n".join(page.types)), ("EXAMPLE", page.example)):
        if text:
            parts += [f".SH {title}", ".nf", roff(text), ".fi"]
    return "\n".join([*parts, ".SH SEE ALSO", ".BR sluicectl (1)", ""])


def example_texts(language):
    folder = os.path.join(ROOT, "client", "examples")
    return {f"client/examples/{name}": text_of(f"client/examples/{name}") for name in sorted(os.listdir(folder)) if name.endswith(language)}


# ---- the Python API ----

DOCUMENTED = ("import inspect, json, sluice\n"
              "print(json.dumps({f'{c}.{m}' if m else c: (inspect.getdoc(v) or '') for c, o in vars(sluice).items() "
              "for m, v in [('', o), *(vars(o).items() if inspect.isclass(o) else ())] if getattr(v, '__doc__', None)}))")


def docstrings(package):
    """{name: docstring} of the built package; {} if it was not built."""
    if not os.path.isdir(os.path.join(package, "sluice")):
        return {}
    return json.loads(subprocess.run([sys.executable, "-c", DOCUMENTED], capture_output=True, text=True, check=True,
                                     env={**os.environ, "PYTHONPATH": package}).stdout)


def python_page(package):
    docs, source = docstrings(package), text_of("client/python/sluice/__init__.pyi")
    parts = ["# Python API\n\nThe package `sluice`. `import sluice`; types are in `sluice/__init__.pyi`, which type checkers read.\n"]
    functions = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not any(isinstance(base, ast.Name) and base.id.endswith("Error") for base in node.bases):
            members = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("__")]
            fields = [ast.unparse(one) for one in node.body if isinstance(one, (ast.AnnAssign, ast.Assign))]
            doc = ast.get_docstring(node) or docs.get(node.name, "")
            parts.append(f"## {node.name}\n\n{escape(doc)}\n")
            if fields:
                parts.append("```python\n" + "\n".join(fields) + "\n```\n")
            parts += [python_function(one, f"{node.name}.", docs) for one in members]
        elif isinstance(node, ast.FunctionDef):
            functions.append(python_function(node, "", docs))
    return "\n".join([*parts, "## Functions\n", *functions])


def python_function(node, prefix, docs):
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list)
    words = ast.unparse(node.args)
    for name in ("self, ", "self", "cls, "):
        words = words.removeprefix(name)
    shown = f"{prefix}{node.name}" + ("" if is_property else f"({words})") + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
    doc = docs.get(prefix + node.name, "")
    return f"### {prefix}{node.name}\n\n```python\n{shown}\n```\n\n{escape(doc)}\n"


# ---- all ----

def pages(bin_folder):
    """{path of the page, as if it were in the repository: its Markdown}"""
    header = text_of("runtime/base/sl_error.h")
    main = os.path.join(bin_folder, "sluicectl")
    made = {"settings": settings(json.loads(printed([main, "config", "--template", "--json"]))), "metrics": metrics(), "errors": errors(header),
            "messages": printed([main, "messages"]),
            "python": python_page(os.path.join(os.path.dirname(os.path.abspath(bin_folder)), "python"))}
    made["commands"], made["programs"] = commands(bin_folder)
    calls, sections = c_pages(example_texts(".c"))
    parts = ["# C API"]
    for section in dict.fromkeys(page.call.section for page in calls):
        parts += [f"## {section}"] if section else []
        parts += [escape(one.removeprefix(f"{HEADER} - ")) for one in flowed(sections.get(section, ""))]
        parts.append(table(("call", "what it does"), [(f"[{page.call.name}]({page.call.name}.md)", cell(page.about[0].split(". ")[0]))
                                                      for page in calls if page.call.section == section]))
    made["c/README"] = "\n\n".join(parts)
    made.update({f"c/{page.call.name}": c_markdown(page) for page in calls})
    found = {f"docs/reference/{name}.md": MADE + text for name, text in made.items()}
    index = text_of("docs/reference/README.md")
    for title, name in (("settings", "settings.md"), ("commands", "commands.md"), ("programs", "programs.md"), ("metrics", "metrics.md"), ("errors", "errors.md"),
                        ("messages", "messages.md"), ("C API", "c/README.md"), ("Python API", "python.md")):
        index = index.replace(f"\n| {title} |", f"\n| [{title}]({name}) |")
    return {**found, "docs/reference/README.md": index}


def names(texts):
    """{setting, command or call: its address on the site}"""
    found = {path[len("docs/reference/c/"):-len(".md")]: path[len("docs/"):] for path in texts if path.startswith("docs/reference/c/sl_")}
    found.update({name: f"reference/settings.md#{name}" for name in re.findall(r"(?m)^## (\w+)$", texts["docs/reference/settings.md"])})
    found.update({f"sluicectl {name}": f"reference/commands.md#{name}" for name in re.findall(r"(?m)^## (\w+)$", texts["docs/reference/commands.md"])})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--man", required=True, metavar="FOLDER")
    folder = parser.parse_args().man
    version = re.search(r'VERSION "?(\d+\.\d+\.\d+[\w.-]*)', text_of("CMakeLists.txt"))[1]
    os.makedirs(folder, exist_ok=True)
    for page in c_pages(example_texts(".c"))[0]:
        with open(os.path.join(folder, f"{page.call.name}.3"), "w", encoding="utf-8") as file:
            file.write(c_manual(page, version))


if __name__ == "__main__":
    main()
