"""The rules of the house. Each gives {subject: Finding}; known.json lists the findings that were there before the rule."""

import os
import re
import typing

import graph
import sentences
import words

HEADER_LINES_MAX = 400
SOURCE_LINES_MAX = 800
EXCEPTIONS_MAX = 5
SENTENCE_WORDS_MAX = 40
LINES_PER_MARK = 200  # comments of sources may contain one word of words.WORDS per this number of lines
ARCHITECTURE_WORDS_MAX = 3000
GLOSSARY_WORDS_MAX = 25
TOP_DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
PRODUCT = ("runtime", "ipc", "cuda", "actors", "client")
COMPILED = (".c", ".h", ".cu", ".cpp", ".hpp")
SOURCES = (*COMPILED, ".py")

# Lines of C, C++ and CUDA that each part of the product may have. A row may rise when another one falls by as much.
BUDGETS = {
    "product": (140000, PRODUCT + ("deploy", "docs")),
    "runtime": (27700, ("runtime",)),
    "ipc": (16600, ("ipc",)),
    "cuda": (8500, ("cuda",)),
    "actors": (50500, ("actors",)),
    "client/lib": (14000, ("client/include", "client/lib", "client/examples")),
    "tools": (13650, ("client/tools",)),
    "python and mooncake": (9050, ("client/python", "client/mooncake")),
}


# A lower storey includes and calls nothing of a higher one; two of one storey know nothing of each other.
STOREYS = (("runtime",), ("cuda",), ("ipc",), ("client/include",), ("actors", "client/lib"), ("client",), ("deploy",))

# Files that call each other in a circle have to be read together: so many at most. The longest name counts.
CIRCLE_FILES_MAX = {
    "actors": 6,
    "actors/tierer": 11,  # its log is one struct: segments, entries, jobs and scans are parts of it
    "ipc": 6,
    "client/lib": 6,
    "runtime": 8,
}


class Finding(typing.NamedTuple):
    count: int  # it may only fall
    texts: list  # one line for each thing that is wrong
    help: str  # what to do next


class Tree:
    """The files of a checkout, and the object files of a build where there are some."""

    def __init__(self, root, build="", nm="nm"):
        self.root = root
        self.files = sorted(self.listed())
        code = [path for path in self.files if path.endswith(COMPILED)]
        self.includes = graph.includes(root, code)
        self.objects = graph.object_files(build, [path for path in code if path.startswith(PRODUCT)]) if build else {}
        self.calls = graph.calls(*graph.symbols(build, self.objects, nm)) if self.objects else {}

    def listed(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in ("build", "shared", "__pycache__") and not name.startswith(".")]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()


def cycles(tree):
    """Arrows between folders run one way: no folder reaches itself through another."""
    folders = graph.between_folders(tree.includes, tree.calls)
    found = {}
    for members in graph.cycles(folders):
        rows = [(folders[here][there], here, there) for here in members for there in members if there in folders.get(here, {})]
        rows.sort(key=lambda row: (len(row[0]), *row[1:]))  # the thinnest arrows first: these are turned around with least work
        texts = [f"{here} -> {there}, {len(arrows)} times: {'; '.join(arrows[:2])}" for arrows, here, there in rows]
        found[", ".join(members)] = Finding(len(members), texts, "turn the thin arrows around (an event, a callback), or move what both "
                                            "folders need into one below them")
    return found


def below(path, folders):
    """The longest of these folders that has this file, or None."""
    return max((folder for folder in folders if path.startswith(folder + "/")), key=len, default=None)


def storeys(tree):
    """Arrows between storeys run down."""
    number = {folder: level for level, folders in enumerate(STOREYS) for folder in folders}
    arrows = [(path, other, f"{path} includes {other}") for path, others in tree.includes.items() for other in others]
    arrows += [(path, other, f"{path} uses {name} of {other}") for path, others in tree.calls.items() for other, name in others.items()]
    found = {}
    for path, other, text in sorted(arrows):
        here, there = below(path, number), below(other, number)
        if here and there and here != there and number[here] <= number[there]:
            texts = found.get(path, Finding(0, [], "")).texts + [text]
            found[path] = Finding(len(texts), texts, "hand what is needed down as an argument, or move what both need below")
    return found


def file_circles(tree):
    """Few files call each other in a circle: what has to be read together is small."""
    found = {}
    for members in graph.cycles({path: set(others) for path, others in tree.calls.items()}):
        folder = below(members[0], CIRCLE_FILES_MAX)
        if folder and len(members) > CIRCLE_FILES_MAX[folder]:
            texts = [f"{here} uses {tree.calls[here][there]} of {there}" for here in members for there in members if there in tree.calls.get(here, {})]
            found[", ".join(members)] = Finding(len(members), texts, "cut the circle into parts whose calls run one way")
    return found


def foreign_headers(tree):
    """An actor's headers are its own: other actors send messages, other programs use libraries."""
    found = {}
    for path, others in tree.includes.items():
        if not path.startswith(PRODUCT):
            continue
        here = path.split("/")
        for other in sorted(others):
            there = other.split("/")
            if there[0] == "actors" and len(there) > 2 and (here[0] != "actors" or here[1] != there[1]):
                text = f"{path} includes {other}"
                old = found.get(path, Finding(0, [], ""))
                found[path] = Finding(old.count + 1, old.texts + [text], "send a message instead, or move what both need below the actors "
                                      "(runtime/, ipc/)")
    return found


def long_files(tree):
    """A header has at most 400 lines, a source 800. Suites under tests/ are flat lists of cases and may be longer."""
    found = {}
    for path in tree.files:
        if not path.startswith(PRODUCT) or not path.endswith(SOURCES):
            continue
        limit = HEADER_LINES_MAX if path.endswith((".h", ".hpp")) else SOURCE_LINES_MAX
        count = tree.text(path).count("\n")
        if count > limit:
            found[path] = Finding(count, [f"{path} has {count} lines, {limit} at most"], "split it by what its parts do")
    return found


def budgets(tree):
    """The product is small enough to be held in one head: a limit for it, and for each of its parts."""
    lines = {path: tree.text(path).count("\n") for path in tree.files if path.endswith(COMPILED)}
    found = {}
    for name, (limit, folders) in BUDGETS.items():
        count = sum(lines[path] for path in lines if path.startswith(tuple(folder + "/" for folder in folders)))
        if count > limit:
            found[name] = Finding(count, [f"{name} has {count} lines of C, C++ and CUDA, {limit} at most"], "take away as much as this adds")
    return found


def documents(tree):
    return [path for path in tree.files if path.endswith(".md") and (path.startswith("docs/") or os.path.basename(path) in ("README.md", *TOP_DOCUMENTS))]


def long_sentences(tree):
    """A sentence of a document has at most 40 words; 25 is the rule."""
    found = {}
    for path in documents(tree):
        texts = [f"{path}:{line}: {words} words: {text[:100]}..." for line, words, text in sentences.sentences(tree.text(path))
                 if words > SENTENCE_WORDS_MAX]
        if texts:
            found[path] = Finding(len(texts), texts, "one thought a sentence: end it where the second thought begins")
    return found


def long_pages(tree):
    """ARCHITECTURE.md has fewer than 3,000 words, and its glossary at most 25 rows."""
    if "ARCHITECTURE.md" not in tree.files:
        return {}
    found, text = {}, tree.text("ARCHITECTURE.md")
    count = len(text.split())
    if count >= ARCHITECTURE_WORDS_MAX:
        found["ARCHITECTURE.md"] = Finding(count, [f"ARCHITECTURE.md has {count} words, fewer than {ARCHITECTURE_WORDS_MAX} is the rule"],
                                           "move details of one folder to the README.md of that folder")
    glossary = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    rows = len(re.findall(r"^\|", glossary[1], re.M)) - 2 if glossary else 0  # without its head
    if rows > GLOSSARY_WORDS_MAX:
        found["glossary"] = Finding(rows, [f"the glossary of ARCHITECTURE.md has {rows} words, {GLOSSARY_WORDS_MAX} at most"],
                                    "use the field's word instead of a private one")
    return found


def dead_links(tree):
    """A link of a document to a file of the tree leads there."""
    found = {}
    for path in documents(tree):
        texts = []
        for line, address in sentences.links(tree.text(path)):
            there = os.path.normpath(os.path.join(os.path.dirname(path), address.split("#")[0]))
            if not re.match(r"[a-z]+:|#", address) and not os.path.exists(os.path.join(tree.root, there)):
                texts.append(f"{path}:{line}: {address} leads nowhere")
        if texts:
            found[path] = Finding(len(texts), texts, "name the place where the file is now")
    return found


def plain_words(tree):
    """Documents, headers and strings contain no word of words.WORDS, comments of sources one in 200 lines."""
    found, marks, lines = {}, {}, {}
    help = "write a sentence whose subject is a named thing and whose verb is the field's"
    for path in tree.files:
        if not path.startswith(("tests/structure/", "tests/examples/")):
            source = tree.text(path)
            comments, strings = words.prose(path, source)
            free = path.endswith((".md", ".h", ".hpp"))  # of any mark
            texts = [f"{path}:{line}: '{word}' ({instead}): {text[:80]}" for line, text in strings + comments * free for word, instead in words.marks(text)]
            if path.startswith("tests/"):
                comments, texts = comments + strings, []
            if texts:
                found[path] = Finding(len(texts), texts, help)
            folder = path.split("/")[0] if "/" in path else "."
            lines[folder] = lines.get(folder, 0) + source.count("\n") * bool(comments)
            if not free or path.startswith("tests/"):
                marks.setdefault(folder, []).extend(f"{path}:{line}: {word}" for line, text in comments for word, _ in words.marks(text))
    for folder, texts in marks.items():
        if len(texts) * LINES_PER_MARK > lines[folder]:
            found[folder] = Finding(len(texts), [f"{folder} has {len(texts)} in {lines[folder]} lines", *texts[:5]], help)
    return found


RULES = {"cycles": cycles, "storeys": storeys, "file_circles": file_circles, "foreign_headers": foreign_headers, "long_files": long_files, "budgets": budgets, "long_sentences": long_sentences,
         "long_pages": long_pages, "dead_links": dead_links, "plain_words": plain_words}


# Includes alone do not show all of these.
BY_CALLS = ("cycles", "file_circles")

# These change with every edit of the file, so a lower count is told and not asked for.
LENGTHS = ("cycles", "file_circles", "long_files", "budgets", "long_pages")


def without_exceptions(findings, exceptions):
    """(findings, complaints): long files that known.json names as exceptions are fine; at most five, each with a reason."""
    complaints = []
    if len(exceptions) > EXCEPTIONS_MAX:
        complaints.append(f"known.json names {len(exceptions)} exceptions, {EXCEPTIONS_MAX} at most: split one of these files")
    for path, reason in exceptions.items():
        if len(reason.split()) < 4:
            complaints.append(f"the exception {path} in known.json has no reason: say why the file cannot be split")
        if path not in findings["long_files"]:
            complaints.append(f"the exception {path} in known.json is not needed any more: remove it from the list")
    kept = {path: finding for path, finding in findings["long_files"].items() if path not in exceptions}
    return {**findings, "long_files": kept}, complaints


def listed(rule, subject, known):
    """The subject in known.json that covers this finding. A circle is covered by a listed one that has all its folders, or files."""
    if rule not in BY_CALLS:
        return subject if subject in known else None
    members = set(subject.split(", "))
    return next((other for other in known if members <= set(other.split(", "))), None)


def judged(findings, known, calls_seen=True):
    """(complaints, notes): what is new or worse, what is mended and still listed; what got better."""
    complaints, notes = [], []
    for rule, found in findings.items():
        old = known.get(rule, {})
        covered = set()
        for subject, finding in sorted(found.items()):
            home = listed(rule, subject, old)
            if home:
                covered.add(home)
            if home is None or finding.count > old[home]:
                head = f"{rule}: {subject}" + (f" ({old[home]} known, {finding.count} now)" if home else "")
                complaints.append("\n".join([head, *("    " + text for text in finding.texts), f"    to do: {finding.help}"]))
            elif finding.count < old[home] and rule in LENGTHS:
                notes.append(f"{rule}: {subject}: {old[home]} known, {finding.count} now")
            elif finding.count < old[home]:
                complaints.append(f"{rule}: {subject}\n    {old[home]} known, {finding.count} now\n    to do: write the new count into known.json (--lower)")
        for subject in sorted(set(old) - covered):
            if rule not in BY_CALLS or calls_seen:  # includes alone do not show every arrow
                complaints.append(f"{rule}: {subject}\n    is mended, but still stands in known.json\n    to do: remove it from the list (--lower)")
    return complaints, notes


def lowered(findings, known):
    """known.json's lists without what is mended, and with the counts of today where they are lower. Nothing is added."""
    result = {}
    for rule, found in findings.items():
        old = known.get(rule, {})
        result[rule] = {}
        for subject, finding in sorted(found.items()):
            home = listed(rule, subject, old)
            if home is not None:
                result[rule][subject] = min(finding.count, old[home])
    return result
