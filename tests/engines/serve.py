"""Commands and answers of the programs that run in engines' environments, as lines of JSON."""

import json
import os
import sys


def serve(start, command, stop):
    """start(told) returns the object to work with and the first answer; command(thing, name, **arguments) returns an answer;
    stop(thing) is called when no more commands arrive. told: the argument of the program. A failure is reported as an answer and
    ends the program; the scenario decides."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # the engine's own output is logged

    def answered(function, *arguments, **names):
        try:
            return function(*arguments, **names)
        except Exception as failure:
            say({"error": f"{type(failure).__name__}: {failure}"})
            raise

    def say(what):
        answers.write(json.dumps(what).encode() + b"\n")

    thing, first = answered(start, json.loads(sys.argv[1]))
    say(first)
    for line in sys.stdin:
        asked = json.loads(line)
        say(answered(command, thing, asked.pop("do"), **asked))
    stop(thing)
