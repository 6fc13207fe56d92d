"""The check's own tests: for each rule a small tree that breaks it, and one that does not."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")]
import graph  # noqa: E402
import rules  # noqa: E402
import sentences  # noqa: E402
import suite  # noqa: E402
import words  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
COMPILER = shutil.which("cc")


class Made(unittest.TestCase):
    """A tree in a temporary directory: {path: text}."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="structure-")
        self.addCleanup(shutil.rmtree, self.root)

    def make(self, files):
        for path, text in files.items():
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return rules.Tree(self.root)

    def known(self, known, exceptions=None):
        self.make({"tests/structure/known.json": json.dumps({"exceptions": exceptions or {}, "known": known})})

    def check(self, *options):
        run = subprocess.run([sys.executable, HERE, "--root", self.root, *options], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr


class Cycles(Made):
    def test_cycle_of_includes_is_found(self):
        tree = self.make({"runtime/a.h": "", "runtime/a.c": '#include "ipc/b.h"\n', "ipc/b.h": '#include "runtime/a.h"\n'})
        found = rules.cycles(tree)
        self.assertEqual(list(found), ["ipc, runtime"])
        self.assertIn("ipc -> runtime, 1 times: ipc/b.h includes runtime/a.h", found["ipc, runtime"].texts)

    def test_cycle_through_three_folders_is_found(self):
        tree = self.make({"ipc/a.h": '#include "cuda/b.h"\n', "cuda/b.h": '#include "runtime/c.h"\n', "runtime/c.h": '#include "ipc/a.h"\n'})
        self.assertEqual(list(rules.cycles(tree)), ["cuda, ipc, runtime"])

    def test_folder_and_its_subfolder_are_two(self):
        tree = self.make({"runtime/a.h": '#include "runtime/keys/b.h"\n', "runtime/keys/b.h": '#include "runtime/a.h"\n'})
        self.assertEqual(list(rules.cycles(tree)), ["runtime, runtime/keys"])

    def test_one_way_and_same_folder_are_fine(self):
        tree = self.make({"runtime/a.h": '#include "runtime/b.h"\n', "runtime/b.h": '#include "runtime/a.h"\n', "ipc/c.c": '#include "runtime/a.h"\n'})
        self.assertEqual(rules.cycles(tree), {})

    def test_include_beside_the_file_is_found(self):
        tree = self.make({"ipc/a.c": '#include "b.h"\n#include "../runtime/c.h"\n', "ipc/b.h": "", "runtime/c.h": '#include "ipc/b.h"\n'})
        self.assertEqual(list(rules.cycles(tree)), ["ipc, runtime"])

    @unittest.skipUnless(COMPILER and shutil.which("nm"), "needs a compiler and nm")
    def test_cycle_of_calls_is_found_in_object_files(self):
        files = {"runtime/a.c": "void in_ipc(void); void in_runtime(void) { in_ipc(); }\n",
                 "ipc/b.c": "void in_runtime(void); void in_ipc(void) { in_runtime(); }\n"}
        self.make(files)
        build = os.path.join(self.root, "build", "release")
        for path in files:
            made = os.path.join(build, os.path.dirname(path), "CMakeFiles", "x.dir", os.path.basename(path) + ".o")
            os.makedirs(os.path.dirname(made))
            subprocess.run([COMPILER, "-c", "-o", made, os.path.join(self.root, path)], check=True)
        self.assertEqual(rules.cycles(rules.Tree(self.root)), {})
        found = rules.cycles(rules.Tree(self.root, build))
        self.assertEqual(list(found), ["ipc, runtime"])
        self.assertIn("ipc -> runtime, 1 times: ipc/b.c uses in_runtime of runtime/a.c", found["ipc, runtime"].texts)

    def test_symbol_of_two_folders_says_nothing(self):
        defines = {"actors/a/main.c": {"main"}, "actors/b/main.c": {"main"}, "ipc/c.c": {"sl_c"}}
        found = graph.calls(defines, {"runtime/x.c": {"main", "sl_c"}})
        self.assertEqual(found, {"runtime/x.c": {"ipc/c.c": "sl_c"}})

    def test_object_of_a_folder_above_is_known(self):
        self.make({"client/a.c": "", "build/client/x/CMakeFiles/y.dir/__/a.c.o": ""})
        found = graph.object_files(os.path.join(self.root, "build"), ["client/a.c"])
        self.assertEqual(list(found.values()), ["client/a.c"])


class Storeys(Made):
    def test_arrows_up_and_aside_are_found(self):
        tree = self.make({"runtime/a.h": '#include "ipc/b.h"\n', "ipc/b.h": "", "client/lib/c.c": '#include "actors/x/d.h"\n', "actors/x/d.h": "",
                          "client/lib/e.c": '#include "client/tools/top/f.h"\n', "client/tools/top/f.h": '#include "client/lib/g.h"\n', "client/lib/g.h": '#include "ipc/b.h"\n'})
        self.assertEqual({path: finding.count for path, finding in rules.storeys(tree).items()}, {"runtime/a.h": 1, "client/lib/c.c": 1, "client/lib/e.c": 1})


class FileCircles(Made):
    def circle(self, folder, count):
        tree = self.make({})
        names = [f"{folder}/{number}.c" for number in range(count)]
        tree.calls = {name: {names[(number + 1) % count]: "sl_next"} for number, name in enumerate(names)}
        return rules.file_circles(tree)

    def test_limits(self):
        for folder, limit in (("actors/keyer", 6), ("actors/tierer", 11), ("ipc", 6), ("client/lib", 6), ("runtime/policy/density", 8), ("client/tools/top", 100)):
            self.assertEqual(self.circle(folder, limit), {}, folder)
        found = self.circle("ipc", 7)
        self.assertEqual([finding.count for finding in found.values()], [7])
        self.assertIn("ipc/6.c uses sl_next of ipc/0.c", list(found.values())[0].texts)

    def test_smaller_circle_of_a_known_one_is_known(self):
        known = {"file_circles": {", ".join(f"ipc/{number}.c" for number in range(9)): 9}}
        found = {"file_circles": self.circle("ipc", 7)}
        self.assertEqual(rules.judged(found, known)[0], [])
        self.assertEqual(len(rules.judged({"file_circles": self.circle("actors/keyer", 7)}, known)[0]), 2)


class ForeignHeaders(Made):
    def test_header_of_another_actor_is_found(self):
        tree = self.make({"actors/tierer/a.h": "", "actors/keyer/b.c": '#include "actors/tierer/a.h"\n'})
        self.assertEqual(list(rules.foreign_headers(tree)), ["actors/keyer/b.c"])

    def test_header_of_an_actor_in_another_program_is_found(self):
        tree = self.make({"actors/tierer/disk/a.h": "", "client/b.c": '#include "actors/tierer/disk/a.h"\n'})
        self.assertEqual(rules.foreign_headers(tree)["client/b.c"].count, 1)

    def test_own_header_and_that_of_a_test_are_fine(self):
        tree = self.make({"actors/tierer/a.h": "", "actors/tierer/disk/b.c": '#include "actors/tierer/a.h"\n',
                          "tests/unit/c.c": '#include "actors/tierer/a.h"\n'})
        self.assertEqual(rules.foreign_headers(tree), {})


class LongFiles(Made):
    def test_limits(self):
        tree = self.make({"ipc/a.h": "\n" * 400, "ipc/b.h": "\n" * 401, "ipc/a.c": "\n" * 800, "ipc/b.c": "\n" * 801,
                          "tests/unit/c.c": "\n" * 2000})
        self.assertEqual({path: finding.count for path, finding in rules.long_files(tree).items()}, {"ipc/b.c": 801, "ipc/b.h": 401})

    def test_exception_with_a_reason_is_fine(self):
        self.make({"ipc/b.c": "\n" * 900})
        self.known({}, {"ipc/b.c": "one table, a row a message"})
        self.assertEqual(self.check()[0], 0)

    def test_exception_without_reason_or_need_or_too_many_of_them(self):
        self.make({f"ipc/{number}.c": "\n" * 900 for number in range(6)})
        self.known({}, {f"ipc/{number}.c": "one table, a row a message" for number in range(6)})
        self.assertIn("6 exceptions, 5 at most", self.check()[1])
        self.known({}, {**{f"ipc/{number}.c": "one table, a row a message" for number in range(4)}, "ipc/4.c": "long", "ipc/short.c": "it is a table still"})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("ipc/4.c in known.json has no reason", text)
        self.assertIn("ipc/short.c in known.json is not needed any more", text)


class Budgets(Made):
    def test_limits(self):
        tree = self.make({"cuda/a.cu": "\n" * 8000, "cuda/b.hpp": "\n" * 501, "cuda/c.py": "\n" * 9000, "tests/d.c": "\n" * 150000})
        self.assertEqual({name: finding.count for name, finding in rules.budgets(tree).items()}, {"cuda": 8501})

    def test_rows_are_parts_of_the_product(self):
        tree = self.make({f"{folder}/a.c": "\n" * 30000 for folder in ("runtime", "ipc", "actors", "client/lib", "client/tools/top")})
        found = {name: finding.count for name, finding in rules.budgets(tree).items()}
        self.assertEqual(found, {"product": 150000, "runtime": 30000, "ipc": 30000, "client/lib": 30000, "tools": 30000})

    def test_smaller_part_than_known_passes_and_more_fails(self):
        self.make({"ipc/a.c": "\n" * 700, "ipc/b.c": "\n" * 17000, "tests/structure/x": ""})
        self.known({"budgets": {"ipc": 17800}, "long_files": {"ipc/b.c": 17000}})
        self.assertEqual(self.check()[0], 0)
        self.known({"budgets": {"ipc": 17600}, "long_files": {"ipc/b.c": 17000}})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("17600 known, 17700 now", text)


class Sentences(Made):
    def words(self, text):
        return [words for _, words, _ in sentences.sentences(text)]

    def test_sentences_of_a_paragraph(self):
        self.assertEqual(self.words("One two three. Four five!\nSix seven\neight? Nine\n"), [3, 2, 3, 1])

    def test_abbreviations_numbers_and_dots_do_not_end_one(self):
        self.assertEqual(self.words("It takes e.g. 2.5 s, i.e. less (cf. README). Then X etc. follows ... and ends.\n"), [9, 6])

    def test_code_is_one_word_and_may_begin_a_sentence(self):
        self.assertEqual(self.words("Run `a b. C d` now. `sluicectl ls` lists it. ``x ` y`` too.\n"), [3, 3, 2])

    def test_code_blocks_do_not_count(self):
        self.assertEqual(self.words("Before.\n\n    a command. Another one\n    more\n\n```\nfenced. Code\n```\nBehind it.\n"), [1, 2])

    def test_line_that_is_indented_within_a_paragraph_counts(self):
        self.assertEqual(self.words("one two\n    three four.\n"), [4])

    def test_list_items_are_texts_of_their_own(self):
        self.assertEqual(self.words("Intro:\n- one two\n  three\n- four\n\n  five six\n\n      code in it\n1. seven\n"), [1, 3, 1, 2, 1])

    def test_cells_are_texts_of_their_own(self):
        self.assertEqual(self.words("| a b | `c|d` e |\n| --- | :-: |\n| foo. G h | |\n"), [2, 2, 1, 2])

    def test_links_count_by_their_words(self):
        self.assertEqual(self.words("See [the page](a/b.md#c d) and ![a picture](x.svg) at https://a.b/c.\n"), [8])

    def test_headings_and_comments(self):
        self.assertEqual(self.words("# One two\nThree.\n<!-- not. Read\n-->\nFour\n"), [2, 1, 1])

    def test_line_numbers(self):
        self.assertEqual([line for line, _, _ in sentences.sentences("# A\n\nB c.\n\n- d\n")], [1, 3, 5])

    def test_long_sentence_of_a_readme_is_found_and_of_other_pages_not(self):
        text = "word " * 40 + ".\n\n" + "word " * 41 + ".\n"
        tree = self.make({"README.md": text, "ipc/README.md": text, "ARCHITECTURE.md": text, "docs/a/b.md": text, "client/page.md": text})
        found = rules.long_sentences(tree)
        self.assertEqual({path: finding.count for path, finding in found.items()}, {"README.md": 1, "ipc/README.md": 1, "ARCHITECTURE.md": 1, "docs/a/b.md": 1})
        self.assertIn("README.md:3: 41 words", found["README.md"].texts[0])


class LongPages(Made):
    def test_limit(self):
        self.assertEqual(rules.long_pages(self.make({"ARCHITECTURE.md": "word " * 2999})), {})
        self.assertEqual(rules.long_pages(self.make({"ARCHITECTURE.md": "word " * 3000}))["ARCHITECTURE.md"].count, 3000)


    def test_glossary(self):
        def page(count):
            return "## Glossary\n\n| word | meaning |\n| --- | --- |\n" + "| a | b |\n" * count + "\n## Next\n\n| c | d |\n"
        self.assertEqual(rules.long_pages(self.make({"ARCHITECTURE.md": page(25)})), {})
        self.assertEqual(rules.long_pages(self.make({"ARCHITECTURE.md": page(26)}))["glossary"].count, 26)


class DeadLinks(Made):
    def test_link_that_leads_nowhere_is_found(self):
        text = "See [a](../ipc/README.md#leases), [b](gone.md) and\n[c](https://example.org/x) and [d](#here), `[e](f)`.\n"
        tree = self.make({"runtime/README.md": text, "ipc/README.md": "Fine.\n"})
        self.assertEqual(rules.dead_links(tree)["runtime/README.md"].texts, ["runtime/README.md:1: gone.md leads nowhere"])


class PlainWords(Made):
    def found(self, files):
        return {path: finding.count for path, finding in rules.plain_words(self.make(files)).items()}

    def test_documents_headers_and_strings_contain_none(self):
        self.assertEqual(self.found({"docs/a.md": "Who reads it hears so. `nobody`\n", "ipc/a.h": "/* What is given back. */\nint b; /* x */\n",
                                     "ipc/b.c": 'const char *c = "the node is told";\nconst char *d = "told";\n' + "\n" * 400,
                                     "client/d.py": '"""A page."""\nE = "nobody reads it"\n' + "\n" * 400}),
                         {"docs/a.md": 2, "ipc/a.h": 2, "ipc/b.c": 1, "client/d.py": 1})

    def test_comments_contain_one_in_200_lines(self):
        lines = "int a;\n" * 399
        self.assertEqual(self.found({"ipc/a.c": "/* nobody is told */\n" + lines}), {})
        self.assertEqual(self.found({"ipc/a.c": "/* nobody is told anew */\n" + lines}), {"ipc": 3})
        self.assertEqual(self.found({"ipc/a.c": "", "tests/a.py": "# nobody is told\nB = 'nobody is told'\n" + lines}), {"tests": 4})

    def test_a_question_and_other_words_are_fine(self):
        self.assertEqual(self.found({"docs/a.md": "Who reads it? A round trip. As much as 3. What is it?\n\n    nobody\n"}), {})

    def test_comments_on_lines_that_follow_are_one_text(self):
        comments, strings = words.prose_of_c('// so\n// many\nint a; // b\nchar *c = "/* no comment */";\n')
        self.assertEqual((comments, strings), ([(1, "so many b")], [(4, "/* no comment */")]))

    def test_docstrings_are_comments(self):
        comments, strings = words.prose_of_python('"""A b c."""\nX = "d e f"\ndef g():\n    """H."""  # i\n    return "j"\n')
        self.assertEqual(([text for _, text in comments], [text for _, text in strings]), (["A b c.", "H. i"], ["d e f"]))


class Known(Made):
    def test_new_violation_fails_and_says_what_to_do(self):
        self.make({"ipc/a.h": "\n" * 500})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("ipc/a.h has 500 lines, 400 at most", text)
        self.assertIn("to do: split it", text)

    def test_known_violation_passes_until_it_grows(self):
        self.make({"ipc/a.h": "\n" * 500})
        self.known({"long_files": {"ipc/a.h": 500}})
        self.assertEqual(self.check()[0], 0)
        self.make({"ipc/a.h": "\n" * 501})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("500 known, 501 now", text)

    def test_shorter_file_than_known_passes_and_is_said(self):
        self.make({"ipc/a.h": "\n" * 450})
        self.known({"long_files": {"ipc/a.h": 500}})
        code, text = self.check()
        self.assertEqual(code, 0)
        self.assertIn("better than known.json says: long_files: ipc/a.h: 500 known, 450 now", text)

    def test_lower_count_has_to_be_written_down(self):
        self.make({"README.md": ("word " * 41 + ".\n\n") * 2})
        self.known({"long_sentences": {"README.md": 3}})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("3 known, 2 now", text)
        self.known({"long_sentences": {"README.md": 2}})
        self.assertEqual(self.check()[0], 0)

    def test_mended_violation_has_to_leave_the_list(self):
        self.make({"ipc/a.h": "\n" * 400})
        self.known({"long_files": {"ipc/a.h": 500}})
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("remove it from the list", text)

    def test_part_of_a_known_cycle_is_known(self):
        found = {"cycles": {"ipc, runtime": rules.Finding(2, [], "")}}
        complaints, notes = rules.judged(found, {"cycles": {"cuda, ipc, runtime": 3}})
        self.assertEqual((complaints, len(notes)), ([], 1))
        self.assertEqual(len(rules.judged(found, {"cycles": {"cuda, ipc": 2}})[0]), 2)  # a new one, and one that is gone

    def test_includes_alone_do_not_mend_a_cycle(self):
        known = {"cycles": {"ipc, runtime": 2}}
        self.assertEqual(rules.judged({"cycles": {}}, known, calls_seen=False), ([], []))
        self.assertEqual(len(rules.judged({"cycles": {}}, known, calls_seen=True)[0]), 1)

    def test_lowering_takes_out_what_is_mended_and_adds_nothing(self):
        found = {"long_files": {"a": rules.Finding(450, [], ""), "new": rules.Finding(900, [], "")}}
        self.assertEqual(rules.lowered(found, {"long_files": {"a": 500, "mended": 700}}), {"long_files": {"a": 450}})

    def test_wrong_use(self):
        self.assertEqual(self.check("--build", "/nowhere")[0], 2)
        self.assertEqual(self.check("--lower")[0], 2)


if __name__ == "__main__":
    suite.run(verbosity=1)
