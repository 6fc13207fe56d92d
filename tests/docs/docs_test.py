"""The site: it builds without a warning, each call of libsluice has a manual page, and links of the repository are links of the site."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "docs"), os.path.join(ROOT, "tests", "support")]
import reference  # noqa: E402
import suite  # noqa: E402
from site_pages import Site  # noqa: E402

BIN = os.environ.get("SLUICE_BIN", os.path.join(ROOT, "build", "release", "bin"))


class Built(unittest.TestCase):
    def test_the_site_builds_without_a_warning(self):
        installed = subprocess.run([os.path.join(ROOT, "deploy", "install"), "--docs"], capture_output=True, text=True, check=False)
        if installed.returncode != 0:
            raise unittest.SkipTest((installed.stderr.strip() or installed.stdout.strip()).splitlines()[-1])
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([os.path.join(ROOT, "build", "docs-venv", "bin", "python"), os.path.join(ROOT, "docs", "site_pages.py"),
                                   "--bin", BIN, "--out", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertTrue(os.path.exists(os.path.join(folder, "site", "reference", "c", "sl_put", "index.html")), done.stdout)

    def test_each_exported_call_has_a_manual_page(self):
        exported = re.findall(r"\bsl_\w+(?=;)", reference.text_of("client/lib/sluice.map"))
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, os.path.join(ROOT, "docs", "reference.py"), "--man", folder], check=True)
            pages = {name.removesuffix(".3") for name in os.listdir(folder)}
        self.assertGreater(len(exported), 50)
        self.assertEqual({name for name in exported if not name.startswith("sl_err")} - pages, set())


class Links(unittest.TestCase):
    def site(self, **texts):
        return Site({name.replace("__", "/") + ".md": text for name, text in texts.items()}, {"memory": "reference/settings.md#memory"})

    def test_a_link_between_files_is_one_between_pages(self):
        site = self.site(docs__start__a="See [the log](../../CHANGELOG.md#x), [top](../../README.md).\n", CHANGELOG="# Changes\n", README="# S\n")
        self.assertEqual(site.markdown("start/a.md"), "See [the log](../project/changelog.md#x), [top](../README.md).\n")

    def test_a_link_to_a_source_becomes_its_words_and_one_to_nothing_is_named(self):
        site = self.site(docs__a="[the header](../client/include/sluice.h) and [`sluice.h`](../client/include/sluice.h), [gone](gone.md)\n")
        self.assertEqual(site.markdown("a.md"), "the header (`client/include/sluice.h`) and `sluice.h`, gone (`docs/gone.md`)\n")
        self.assertEqual(site.dead, ["docs/a.md: gone.md leads nowhere"])

    def test_code_is_left_alone_and_the_first_mention_of_a_setting_leads_to_it(self):
        site = self.site(docs__start__a="# `memory`\n\n    `memory`\n\n`memory` and `memory`\n\n```\n[a](b) `memory`\n```\n")
        self.assertEqual(site.markdown("start/a.md"), "# `memory`\n\n    `memory`\n\n[`memory`](../reference/settings.md#memory) and `memory`\n\n"
                                                      "```\n[a](b) `memory`\n```\n")

    def test_a_link_to_an_example_that_is_a_line_becomes_the_program(self):
        with open(os.path.join(ROOT, "client", "examples", "put_get.py"), encoding="utf-8") as file:
            text = file.read()
        site = self.site(docs__start__a="Try\n\n[put_get.py](../../client/examples/put_get.py)\n")
        self.assertEqual(site.markdown("start/a.md"), f"Try\n\n```py\n{text}```\n")

    def test_a_section_is_its_index_and_what_that_links_to_below_it(self):
        site = self.site(docs__s__README="# S\n[b](b.md), [t](t/README.md), [other](../o/c.md)\n", docs__s__b="# B\n", docs__s__t__README="# T\n[c](c.md)\n",
                         docs__s__t__c="# C\n", docs__o__c="# O\n")
        self.assertEqual(site.section("s/README.md", set()), ["s/README.md", "s/b.md", {"T": ["s/t/README.md", "s/t/c.md"]}])


if __name__ == "__main__":
    suite.run()
