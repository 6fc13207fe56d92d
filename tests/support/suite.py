"""How a Python suite ends: 0 when its tests passed, 77 when all of them skipped themselves, so that nobody takes it for one that
passed, else 1."""

import sys
import unittest

SKIP_CODE = 77  # SKIP_RETURN_CODE of every suite


def code_of(result):
    """(exit code, why it was skipped)."""
    skipped = {test.id(): reason for test, reason in result.skipped}
    if not result.wasSuccessful():
        return 1, None
    # What setUpClass or setUpModule skipped has an entry and no test; a subtest's entry is not its test's.
    ran = result.testsRun - sum(isinstance(test, unittest.TestCase) and not hasattr(test, "test_case") for test, _ in result.skipped)
    if ran > 0:
        return 0, None
    return (SKIP_CODE, "; ".join(sorted(set(skipped.values())))) if skipped else (1, None)


def run(verbosity=2):
    """Of the calling program's tests; takes the command line as unittest.main does, and ends the process."""
    code, reason = code_of(unittest.main(module="__main__", verbosity=verbosity, exit=False).result)
    if reason is not None:
        print("skipped:", reason.removeprefix("skipped: "), flush=True)
    sys.exit(code)
