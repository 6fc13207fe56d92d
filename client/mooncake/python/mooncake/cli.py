"""Runs the programs in the package with the arguments of this process: the daemons, and the programs of a node.

    python3 -m mooncake.cli PROGRAM [ARGUMENT...]
"""

import os
import sys
from typing import List, NoReturn

_BIN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "bin")


def programs() -> List[str]:
    """Names of the node's programs in the package."""
    names = os.listdir(_BIN) if os.path.isdir(_BIN) else []
    return sorted(name for name in names if os.access(os.path.join(_BIN, name), os.X_OK))


def program_path(name: str) -> str:
    """Returns the path of a program. Raises FileNotFoundError if the package was built without it."""
    path = os.path.join(_BIN, name)
    if name not in programs():
        raise FileNotFoundError(f"{name}: this package has no such program; it has: {', '.join(programs()) or 'none'}")
    return path


def become(name: str, arguments: List[str]) -> NoReturn:
    """Replaces this process by a program. Exits with 127 if the package does not have it or it cannot be run."""
    try:
        path = program_path(name)
        # sluicectl runs python3: append this interpreter to PATH, which may lack its environment.
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable))))
        os.execv(path, [path, *arguments])
    except OSError as error:
        print(f"mooncake: {error}", file=sys.stderr)
        sys.exit(127)


def main() -> NoReturn:
    """The console script mooncake_master: a node of Sluice in place of Mooncake's master."""
    from mooncake.daemons import master
    sys.exit(master.main())


def main_client() -> NoReturn:
    """The console script mooncake_client: contributes memory to the node of a master."""
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
