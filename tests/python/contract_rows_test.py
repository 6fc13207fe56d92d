"""Every row and every trap of the contract has its tests, and the table that lists them is up to date."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))

import suite  # noqa: E402
from contract_rows import table, wanted, written  # noqa: E402


class Rows(unittest.TestCase):
    maxDiff = None

    def test_every_row_has_a_test(self):
        made = table()
        self.assertEqual([row for row in wanted() if not made.get(row)], [])

    def test_every_test_is_for_a_row(self):
        made, rows = table(), set(wanted())
        self.assertEqual({row: tests for row, tests in made.items() if row not in rows}, {})

    def test_the_table_is_true(self):
        """Detects renamed and lost tests: if it was intended, run python3 contract_rows.py > contract_rows.txt."""
        self.assertEqual(written(), table())


if __name__ == "__main__":
    suite.run()
