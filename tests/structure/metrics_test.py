"""The table of metrics has what code defines, all of it and nothing else, under names that monitoring takes."""

import os
import re
import sys
import tempfile
import unittest

import dashboard
import metrics_table

sys.path.insert(0, os.path.join(metrics_table.ROOT, "tests", "support"))
import suite  # noqa: E402

# As promtool's linter has them: https://prometheus.io/docs/practices/naming
TYPE_WORDS = {"counter", "gauge", "histogram", "summary", "untyped"}
SHORT_UNITS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
UNIT_SUFFIX = {"BYTES": "_bytes", "NS": "_seconds", "US": "_seconds", "MS": "_seconds", "SINCE": "_seconds", "AGE": "_seconds"}


class Table(unittest.TestCase):
    def setUp(self):
        self.rows = metrics_table.rows()

    def test_every_metric_of_the_code_is_in_the_table_and_every_row_in_the_code(self):
        code = {**metrics_table.defined(), **metrics_table.counts(), **metrics_table.found_out()}
        table = {(row.kind, row.name): row.type == "HISTOGRAM" for row in self.rows}
        self.assertGreater(len(code), 290)
        self.assertEqual(sorted(set(code) - set(table)), [], "code defines them, client/tools/metrics/README.md lacks them")
        self.assertEqual(sorted(set(table) - set(code)), [], "rows that no code defines")
        self.assertEqual({key for key in code if code[key] != table[key]}, set(), "one is a histogram, the other is none")
        self.assertEqual(len(table), len(self.rows), "two rows of one metric")

    def test_names_follow_the_rules(self):
        for row in self.rows:
            with self.subTest(row=row.name, family=row.family):
                words = row.family.split("_")
                self.assertRegex(row.family, r"^sluice(_[a-z][a-z0-9]*)+$")
                self.assertEqual(row.family.endswith("_total"), row.type == "COUNTER")
                self.assertFalse(row.family.endswith(("_count", "_sum", "_bucket", "_created")))
                self.assertFalse(TYPE_WORDS & set(words), "the type is no part of a name")
                self.assertFalse(SHORT_UNITS & set(words), "units are written in full")
                stem = row.family.removesuffix("_total").removesuffix("_timestamp")
                suffix = UNIT_SUFFIX.get(row.unit, "")
                self.assertTrue(stem.endswith(suffix), f"{row.unit} ends by {suffix}")
                if row.unit == "ONE":
                    self.assertFalse(stem.endswith(("_bytes", "_seconds")), "it counts no bytes and no time")
                self.assertRegex(row.labels, r"^([a-z_]+=[a-z_]+(,[a-z_]+=[a-z_]+)*)?$")

    def test_rows_of_a_family_stand_together_and_differ_in_labels_alone(self):
        families = [row.family for row in self.rows]
        starts = [family for before, family in zip([None] + families, families) if before != family]
        self.assertEqual(sorted(starts), sorted(set(starts)), "a family in two places")
        for family in starts:
            members = [row for row in self.rows if row.family == family]
            with self.subTest(family=family):
                self.assertEqual(len({(row.kind, row.type, row.unit) for row in members}), 1)
                self.assertEqual(len({row.labels for row in members}), len(members), "two series of one name")
                self.assertEqual(len({tuple(re.findall(r"(\w+)=", row.labels)) for row in members}), 1)
                self.assertRegex(members[0].help, r"^[A-Z0-9][^\\\n]*\.$", "a sentence says what it is")
                self.assertEqual([row.help for row in members[1:]], [""] * (len(members) - 1))


class Shipped(unittest.TestCase):
    def test_the_dashboard_is_made_of_the_table(self):
        self.assertEqual(metrics_table.text_of(metrics_table.ROOT, dashboard.PATH), dashboard.text(), "run tests/structure/dashboard.py --write")

    def test_rules_name_metrics_that_there_are(self):
        families = {row.family for row in metrics_table.rows()}
        for name in ("sluice.rules.yml", "sluice.rules.test.yml"):
            used = set(re.findall(r"\bsluice_\w+", metrics_table.text_of(metrics_table.ROOT, "deploy/monitoring/" + name)))
            self.assertGreater(len(used), 10)
            self.assertEqual(sorted(used - families), [])


class Reading(unittest.TestCase):
    """What stands for a name in the code is found, or the test says that it is not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def code(self, text):
        path = os.path.join(self.root, "actors/keyer/a.c")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return metrics_table.defined(self.root)

    def test_all_forms_of_a_definition(self):
        found = self.code('#define D "d"\nstatic const char *const es[2] = {"e", "f"};\n'
                          'static void count(struct e *env, const char *name)\n{\n    sl_metric_define(env, name);\n}\n'
                          'SL_METRIC_ROW(x, y.a, "a"), SL_HISTOGRAM_ROW(\n x, b, "b"), REG_METRIC(x, c), CO_METRIC(i, "i")\n'
                          'sl_metric_define(p, D); sl_metric_define(p, es[k]); count(env, "g"); sl_histogram_define(p, "h");\n')
        self.assertEqual(found, {("KEYER", name): name in "bh" for name in "abcdefghi"})

    def test_a_name_from_nowhere_is_told(self):
        with self.assertRaisesRegex(ValueError, "actors/keyer/a.c: nothing says which name `name` is"):
            self.code("sl_metric_define(page, name);\n")


if __name__ == "__main__":
    suite.run()
