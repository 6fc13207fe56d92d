"""Ports for tests that run side by side."""

import random
import socket

FIRST, LAST = 20000, 30000  # below the kernel's range of ephemeral ports
RANDOM = random.SystemRandom()
kept = []


def free_port():
    """A port that is not in use, and that no other test gets while this process lives."""
    for _ in range(1000):
        port = RANDOM.randrange(FIRST, LAST)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0sluice-test-port-{port}")  # an abstract name ends with the process
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            mark.close()
            continue
        kept.append(mark)
        return port
    raise OSError("no port is free")
