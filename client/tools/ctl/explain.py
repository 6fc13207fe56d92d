"""Makes the answers of `sluicectl explain --tokens` and `--request`: the blocks of a prompt, and whether a block is here under another model
identity. The registrar writes the fields of each identity to identities.jsonl beside the logs.

    python3 explain.py tokens text|json LOG_DIRECTORY FILE MODEL FORMAT seed|"" SEED BLOCK_TOKENS CONFIG [SETTING=VALUE]...
    python3 explain.py request text|json LOG_DIRECTORY CONFIG [SETTING=VALUE]... < OPS
"""

import errno
import itertools
import json
import re
import subprocess
import sys

import text
from plain import clean, interruptible, run, sluicectl

IDENTITY_DIGITS, IDENTITIES_MAX = 32, 1024
KEYS_MAX = 64  # in one query for other identities
PROMPT_BYTES_MAX = 64 << 20
TOKEN_MAX = 2**32 - 1
ERRORS = {"SL_ERR_INVALID": "invalid argument", "SL_ERR_NOT_FOUND": "not found", "SL_ERR_PERMISSION": "not permitted", "SL_ERR_OS": "system call failed"}


class Refused(Exception):
    def __init__(self, error, why):
        super().__init__(why)
        self.error = error


# ---- the node ----

def explanations(keys, where):
    """For each key, where it is or why it is not here. Ends this process if the node does not answer: sluicectl has printed why."""
    command, *settings = where
    done = subprocess.run([command, "explain", "--json", *settings, "-"], input="\0".join(keys).encode(), stdout=subprocess.PIPE, check=False)
    answer = json.loads(done.stdout or "{}")
    if "keys" not in answer:
        if sys.argv[2] == "json":
            print(done.stdout.decode(), end="")
        sys.exit(max(done.returncode, 1))
    return answer["keys"]


def identities(log_directory):
    """The fields of the identities that the node knows, the youngest last."""
    found = []
    try:
        with open(log_directory + "/identities.jsonl", encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    one = json.loads(line)
                except ValueError:
                    continue  # cut off when the registrar was killed
                if len(fact(one, "identity")) == IDENTITY_DIGITS:
                    found.append(one)
    except OSError:
        pass  # no engine has registered yet
    return found[-IDENTITIES_MAX:]


def fact(identity, name):
    value = identity.get(name) if isinstance(identity, dict) else None
    return value if isinstance(value, str) else ""


def differing(here, there):
    pairs = [(name, fact(here, name), fact(there, name)) for name in dict.fromkeys([*here, *there]) if name != "identity"]
    return "; ".join(f'{name} "{ours}" here, "{theirs}" there' for name, ours, theirs in pairs if ours != theirs)


def seek(known, identity, block_of, where):
    """A text that names another identity under which the block is here; None: there is none. block_of(identity) gives the block's key under
    that identity, or None."""
    here = next((one for one in reversed(known) if fact(one, "identity") == identity), None)
    others = ((one, block_of(one)) for one in known if fact(one, "identity") != identity)
    others = ((one, f"{fact(one, 'identity')}/{block}") for one, block in others if block)
    while some := list(itertools.islice(others, KEYS_MAX)):
        for (there, _), explanation in zip(some, explanations([key for _, key in some], where)):
            if explanation["code"] == "SL_OK":
                why = differing(here, there) if here else "the fields of this model's identity are not known"
                return f"stored under the model identity {fact(there, 'identity')} ({fact(there, 'name')}), which differs: {why}"
    return None


# ---- a prompt ----

def prompt_read(path):
    """Numbers, a JSON array of them, or an object as `sluicectl keys` reads it."""
    try:
        with open(0 if path == "-" else path, "rb") as file:
            given = file.read(PROMPT_BYTES_MAX + 1)
    except OSError as error:
        raise Refused({errno.ENOENT: "SL_ERR_NOT_FOUND", errno.EACCES: "SL_ERR_PERMISSION"}.get(error.errno, "SL_ERR_OS"), f"{path}: {error.strerror}") from error
    if len(given) > PROMPT_BYTES_MAX:
        raise Refused("SL_ERR_INVALID", f"{path}: more than {PROMPT_BYTES_MAX} bytes")
    prompt = given.decode(errors="surrogateescape").strip(" \t\r\n")
    if prompt[:1] in ("[", "{"):
        try:
            prompt = json.loads(prompt)
        except (ValueError, RecursionError) as error:
            raise Refused("SL_ERR_INVALID", f"prompt: not JSON: {error}") from error
        prompt = prompt if isinstance(prompt, dict) else {"tokens": prompt}
    else:
        words = [word for word in re.split("[ ,\t\r\n]+", prompt) if word]
        wrong = next((word for word in words if not re.fullmatch("[0-9]{1,10}", word) or int(word) > TOKEN_MAX), None)
        if wrong:
            raise Refused("SL_ERR_INVALID", "'{:.23}' is not a token".format(wrong.partition("\0")[0]))
        prompt = {"tokens": [int(word) for word in words]}
    tokens = prompt.get("tokens")
    if not isinstance(tokens, list):
        raise Refused("SL_ERR_INVALID", f"tokens: {'missing' if tokens is None else 'not a list'}")
    wrong = next((at for at, token in enumerate(tokens) if type(token) is not int or not 0 <= token <= TOKEN_MAX), None)
    if wrong is not None:
        raise Refused("SL_ERR_INVALID", f"tokens: element {wrong} is not an integer in 0..{TOKEN_MAX}")
    if not tokens:
        raise Refused("SL_ERR_INVALID", "no tokens")
    return prompt


def keys_made(making, prompt, where):
    """The keys of all complete blocks, as `sluicectl keys` derives them."""
    key_format, seed, block_tokens = making
    line = json.dumps({**prompt, "seed": seed})
    done = subprocess.run([where[0], "keys", "--format", key_format, "--block-tokens", str(block_tokens)], input=line, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        why = re.sub(r"^sluicectl keys: (line 1: )?|; see: [^;]*$", "", done.stderr.strip())
        raise Refused("SL_ERR_INVALID", why)
    return done.stdout.split()


def model_chosen(known, model):
    fitting = [one for one in known if fact(one, "identity").startswith(model) or fact(one, "name") == model]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise Refused("SL_ERR_NOT_FOUND", f"no engine of this node has registered {'such a model' if model else 'a model yet'}: give all 32 digits of a "
                      "model identity with --format and --block-tokens instead")
    some = ", ".join(f"{fact(one, 'identity')[:8]} ({fact(one, 'name')[:60]}, {fact(one, 'dtype')[:20]})" for one in fitting)
    raise Refused("SL_ERR_INVALID", f"--model is required, one of {some:.399}")


def tokens_shown(known, path, model, key_format, seeded, seed, block_tokens, *settings):
    def making(identity):
        """(format, seed, tokens of a block) by which keys are derived. Options of the command line apply to all identities."""
        own = fact(identity, "block_tokens")
        return (key_format or fact(identity, "key_format"),
                seed if seeded else fact(identity, "seed") if prompt.get("seed") is None else prompt["seed"],
                int(block_tokens) or (int(own) if own.isdecimal() else 0))

    def block_there(there):
        if making(there) not in alike:  # most models derive them in the same way
            try:
                alike[making(there)] = keys_made(making(there), prompt, where)
            except Refused:
                alike[making(there)] = []
        made = alike[making(there)]
        if not made:
            return None
        at = first * making(identity)[2] // making(there)[2]
        return made[at] if at < len(made) else None

    prompt, where = prompt_read(path), sluicectl(*settings)
    try:
        identity = model_chosen(known, model)
    except Refused:
        if len(model) != IDENTITY_DIGITS or not key_format or not int(block_tokens):
            raise
        identity = {"identity": model}
    made = keys_made(making(identity), prompt, where)
    if not made:
        raise Refused("SL_ERR_INVALID", f"{len(prompt['tokens'])} tokens do not fill a block of {making(identity)[2]}")
    alike = {making(identity): made}
    rows = explanations([f"{identity['identity']}/{key}" for key in made], where)
    first = next((at for at, row in enumerate(rows) if row["code"] != "SL_OK"), len(rows))
    elsewhere = seek(known, identity["identity"], block_there, where) if first < len(rows) else None
    return first == len(rows), {"model": identity["identity"], "name": fact(identity, "name"), "prefix": first, "blocks": rows, "elsewhere": elsewhere}


def request_shown(known, *settings):
    """Adds to each load whether its first missing block is here under another identity that derives keys in the same way."""
    shown = json.load(sys.stdin)
    for op in shown["ops"]:
        missing = op["not_there"][0] if op["kind"] == "load" and op["not_there"] else {"code": "SL_OK"}
        op["elsewhere"] = None
        if missing["code"] != "SL_OK":
            block = missing["key"].partition("/")[2]
            op["elsewhere"] = seek(known, op["model"], lambda _, block=block: block, sluicectl(*settings))
    return True, shown


def main():
    what, how, log_directory, *words = sys.argv[1:]
    try:
        whole, shown = {"tokens": tokens_shown, "request": request_shown}[what](identities(log_directory), *words)
    except Refused as refused:
        print(f"sluicectl explain: {refused} ({ERRORS[refused.error]})", file=sys.stderr)
        if how == "json":
            print(json.dumps({"error": refused.error, "text": str(refused)}))
        return 2 if refused.error == "SL_ERR_INVALID" else 1
    if how == "json":
        print(json.dumps(shown, separators=(",", ":")))
    else:
        for line in text.explain(shown):
            print(clean(line))
    return 0 if whole else 1


if __name__ == "__main__":
    interruptible()
    run(main)
