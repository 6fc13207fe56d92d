"""Exit codes of a Python suite: 0 if its tests passed, 77 if all of them skipped themselves, so that it does not count as passed,
else 1."""

import sys
import unittest

SKIP_CODE = 77  # SKIP_RETURN_CODE of every suite


def code_of(result):
    """(exit code, reason for the skip or None)."""
    skipped = {test.id(): reason for test, reason in result.skipped}
    if not result.wasSuccessful():
        return 1, None
    # A skip in setUpClass or setUpModule has an entry and no test; a subtest's entry is not its test's.
    ran = result.testsRun - sum(isinstance(test, unittest.TestCase) and not hasattr(test, "test_case") for test, _ in result.skipped)
    if ran > 0:
        return 0, None
    return (SKIP_CODE, "; ".join(sorted(set(skipped.values())))) if skipped else (1, None)


def run(verbosity=2):
    """Runs the calling program's tests with the command line of unittest.main, and ends the process."""
    code, reason = code_of(unittest.main(module="__main__", verbosity=verbosity, exit=False).result)
    if reason is not None:
        print("skipped:", reason.removeprefix("skipped: "), flush=True)
    sys.exit(code)
