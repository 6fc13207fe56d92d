"""Why a scenario did not pass."""


class Skipped(Exception):
    """It cannot run on this machine."""


class Failed(Exception):
    """It ran, and something is wrong."""


class Overdue(Exception):
    """It did not end within its time."""
