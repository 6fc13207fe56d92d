"""SIGKILL for actors while an engine works."""

import os
import signal

from harness import check, wait_until

ACTORS = ("registrar", "keyer", "coordinator", "swapper", "transporter", "tierer")
PAUSE_S = 0.5


def while_it_works(node, actor, worker, seconds=180):
    """Kills the actor again and again until the worker answers. Returns the number of kills and the answer; then the node serves again."""
    kills = 0
    while not worker.has_answer(PAUSE_S):
        for name, pid in node.actors().items():
            if name.split(".")[0] == actor:
                try:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass  # the actor is restarting
                break
    answer = worker.answer(seconds)
    check(kills > 0, f"no {actor} ran")
    wait_until(node.ready, 60, "the node serves again")
    return kills, answer
