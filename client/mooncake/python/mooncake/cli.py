"""Runs the programs that the package brings, with the arguments of this process: the daemons, and those of a node.

    python3 -m mooncake.cli PROGRAM [ARGUMENT...]
"""

import os
import sys
from typing import List, NoReturn

_BIN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin")


def programs() -> List[str]:
    """Names of what is there."""
    names = os.listdir(_BIN) if os.path.isdir(_BIN) else []
    return sorted(name for name in names if os.access(os.path.join(_BIN, name), os.X_OK))


def program_path(name: str) -> str:
    """Raises FileNotFoundError: the package was built without it."""
    path = os.path.join(_BIN, name)
    if name not in programs():
        raise FileNotFoundError(f"{name}: this package has no such program; it has: {', '.join(programs()) or 'none'}")
    return path


def become(name: str, arguments: List[str]) -> NoReturn:
    """Exits with 127 when the package has no such program, or it cannot be run here."""
    try:
        path = program_path(name)
        # sluicectl shows by python3: behind all others this one, of an environment that is not in PATH.
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))))
        os.execv(path, [path, *arguments])
    except OSError as error:
        print(f"mooncake: {error}", file=sys.stderr)
        sys.exit(127)


def main() -> NoReturn:
    """The console script mooncake_master: a node of Sluice that answers as Mooncake's master."""
    from mooncake.daemons import master
    sys.exit(master.main())


def main_client() -> NoReturn:
    """The console script mooncake_client: memory for the node of a master."""
    from mooncake.daemons import client
    sys.exit(client.main())


DAEMONS = {"mooncake_master": main, "mooncake_client": main_client}


def main_ctl() -> NoReturn:
    """The console script sluicectl."""
    become("sluicectl", sys.argv[1:])


def main_node() -> NoReturn:
    """The console script sluice-node, the supervisor of a node."""
    become("sluice-node", sys.argv[1:])


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        print("\nPROGRAM: " + ", ".join([*DAEMONS, *programs()]))
        sys.exit(0 if len(sys.argv) > 1 else 2)
    if sys.argv[1] in DAEMONS:
        del sys.argv[0]
        DAEMONS[sys.argv[0]]()
    become(sys.argv[1], sys.argv[2:])
