"""Prose of the tree (documents, comments, strings of several words), and words in it that mark a sentence to rewrite.

A question may begin with Who or What. Words in code spans are not prose.
"""

import io
import re
import tokenize

import sentences

# (pattern, what to write instead)
WORDS = [(re.compile(pattern, re.I), help) for pattern, help in (
    (r"\b(?:whoever|nobody|somebody|whom)\b", "the client, the process, no process"),
    (r"\b(?:told|tells|said|says so|say so|hears?|heard)\b", "reports, announces, logs, returns an error, is notified"),
    (r"(?<!stand-)\balone\b", "only, by itself"),
    (r"\banew\b", "again, new"),
    (r"\bin vain\b", "without effect"),
    (r"\bfor good\b", "permanently"),
    (r"\b(?:so many|so much|as much(?! as))\b", "the number of X, X bytes"),
    (r"\b(?:lets?|letting) go of\b", "releases"),
    (r"\b(?:gives?|gave|given|giving) back\b", "releases, frees, returns"),
    (r"\b(?:takes?|took|taken|taking) (?:it |them )?out\b", "removes"),
    (r"\b(?:is|are|was|were) (?:not |already |still )?there(?=[.,;:]|$)", "exists, is present"),
    (r"\b(?:is|are|was|were|be) away\b", "is absent, cannot be reached"),
    (r"\b(?:goes|comes|stands)\b", "exits, moves, arrives, exists, is stored"),
    (r"(?<!fall )(?<!falls )(?<!write-)\bbehind\b", "after; a place of a thing: below, following"),
    (r", too(?=[.,;:)]|$)", "also, before the verb"),
    (r"\bstrangers?\b", "unauthenticated connection, unknown peer"),
    (r"\bguests?\b", "foreign client; of a machine: virtual machine"),
    (r"(?<!round )(?<!round-)\btrips?\b", "fetch batch, round trip"),
    (r"\bspots?\b", "pool slot"),
    (r"\b(?:story|stories)\b", "op trace, miss reason"),
    (r"\blent\b", "in use by the device, borrowed"),
    (r"\bdoors?\b", "listener, entry point"),
)]


CODE = re.compile(r"\{[^{}]*\}|\$\w+|(?<!\w)--[\w-]+|\w+=\w+|`[^`]*`")  # names in a text: of fields, variables, options, labels


def marks(text):
    """[(word, help)] of a text."""
    text = CODE.sub(sentences.CODE, text)
    found = [(match[0].strip(" ,"), help) for pattern, help in WORDS for match in pattern.finditer(text)]
    for sentence in sentences.split(text):
        first = re.match(r"\W*(Who|What|Whom|Whose)\b", sentence)
        if first and not sentence.rstrip("\"')` ").endswith("?"):
            found.append((first[1] + " ...", "begin with the thing that is meant: the client, the value"))
    return found


C_TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
SH_TOKEN = re.compile(r"(?:(?<=\s)|^)#[^\n]*|\"(?:\\.|[^\"\\])*\"|'[^']*'", re.M)


def joined(pieces):
    """[(line, text)] of [(first line, text, last line)]: comments on lines that follow each other are one text."""
    found = []
    for line, text, end in pieces:
        if found and found[-1][2] in (line, line - 1):
            found[-1] = (found[-1][0], found[-1][1] + " " + text, end)
        else:
            found.append((line, text, end))
    return [(line, text) for line, text, _ in found]


def several_words(text):
    return text.count(" ") > 1


def prose_of_c(source):
    """([(line, comment)], [(line, string)])."""
    comments, strings = [], []
    for match in C_TOKEN.finditer(source):
        line, token = source.count("\n", 0, match.start()) + 1, match[0]
        if token.startswith("/"):
            text = " ".join(part.strip(" \t*\\") for part in re.sub(r"^/[*/]|\*/$", "", token).splitlines())
            comments.append((line, text.strip(), line + token.count("\n")))
        elif token.startswith('"') and several_words(token):
            strings.append((line, token[1:-1].replace("\\n", " ")))
    return joined(comments), strings


def prose_of_python(source):
    comments, strings = [], []
    statement = True  # a string that begins a line of its own is a docstring
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.append((token.start[0], token.string.lstrip("#! "), token.end[0]))
        elif token.type == tokenize.STRING:
            text = " ".join(token.string.lstrip("rbfuRBFU").strip("\"'").split())
            if statement:
                comments.append((token.start[0], text, token.end[0]))
            elif several_words(text):
                strings.append((token.start[0], text))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            statement = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    return joined(comments), strings


def prose_of_shell(source):
    comments, strings = [], []
    for match in SH_TOKEN.finditer(source):
        line, token = source.count("\n", 0, match.start()) + 1, match[0]
        if token.startswith("#"):
            comments.append((line, token.lstrip("#! "), line))
        elif several_words(token):
            strings.append((line, token[1:-1]))
    return joined(comments), strings


def prose(path, source):
    """([(line, comment)], [(line, string of several words)]) of a file, by its kind; a document is all comments."""
    if path.endswith((".c", ".h", ".cu", ".cpp", ".hpp")):
        return prose_of_c(source)
    if path.endswith((".py", ".pyi")) or source.startswith("#!/usr/bin/env python3"):
        return prose_of_python(source)
    if path.endswith(".md"):
        return [(line, sentences.plain(text)) for line, text in sentences.blocks(source)], []
    if source.startswith("#!") or path.endswith((".sh", ".cmake", "CMakeLists.txt")):
        return prose_of_shell(source)
    return [], []
