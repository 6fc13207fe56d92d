"""Whether the tree keeps the rules of the house: folders without cycles, actors apart, short files, short sentences.

    python3 tests/structure [--build build/release] [--root DIR] [--lower] [--without RULE] [--sentences FILE...]

Without --build arrows between folders are those of #include alone; with it also those of calls, from the object files.
known.json lists what was wrong before the rules: its counts may only fall, and what is mended leaves the list.
Exit codes: 0, 1 (a rule is broken), 2 (wrong use).
"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402
import sentences  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))


def known_read(path):
    if not os.path.exists(path):
        return {"exceptions": {}, "known": {}}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def known_write(path, known):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=2)
        file.write("\n")


def sentences_print(paths):
    """Sentences over 25 words, longest first: for whoever mends a page."""
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found = sentences.sentences(file.read())
        for line, words, text in sorted(found, key=lambda one: -one[1]):
            if words > 25:
                print(f"{path}:{line}: {words} words: {text}")
        words = [one[1] for one in found] or [0]
        print(f"{path}: {len(found)} sentences, {sum(count > 25 for count in words)} over 25 words, {sum(count > 40 for count in words)} over 40, "
              f"longest {max(words)}")


def main():
    parser = argparse.ArgumentParser(prog="tests/structure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT, help="the tree to look at")
    parser.add_argument("--build", default="", help="a build of it, for the arrows of calls")
    parser.add_argument("--nm", default="nm", help="the program that lists symbols")
    parser.add_argument("--known", default="", help="another known.json")
    parser.add_argument("--lower", action="store_true", help="take what is mended out of known.json; adds nothing")
    parser.add_argument("--without", choices=sorted(rules.RULES), default="", help="leave out this rule, as for a tree with an example in it")
    parser.add_argument("--sentences", nargs="+", metavar="FILE", help="print the sentences of these files over 25 words, and end")
    options = parser.parse_args()
    if options.sentences:
        sentences_print(options.sentences)
        return 0
    if options.build and not os.path.isdir(options.build):
        parser.error(f"--build {options.build}: no such directory")
    path = options.known or os.path.join(options.root, "tests", "structure", "known.json")
    known = known_read(path)
    tree = rules.Tree(options.root, os.path.abspath(options.build) if options.build else "", options.nm)
    found = {name: rule(tree) for name, rule in rules.RULES.items() if name != options.without}
    found, complaints = rules.without_exceptions(found, known["exceptions"])
    if options.lower:
        if not tree.objects:
            parser.error("--lower needs --build with a built tree: includes alone do not show every cycle")
        known_write(path, {**known, "known": rules.lowered(found, known["known"])})
        known = known_read(path)
    judged, notes = rules.judged(found, known["known"], bool(tree.objects))
    complaints += judged
    for text in complaints:
        print(text)
    for text in notes:
        print(f"better than known.json says: {text} (--lower writes it)")
    graph_of = f"includes and {len(tree.objects)} object files" if tree.objects else "includes alone"
    left = sum(len(subjects) for subjects in known["known"].values())
    print(f"{len(tree.files)} files, {graph_of}: {len(complaints)} complaints, {left} known violations left")
    if complaints:
        print("What to do: mend each as its last line says. tests/structure/known.json is for what was there before; it never grows.")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
