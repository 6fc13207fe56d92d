"""Identifies a model's weights by a digest of its files, which replaces the model's path in keys. So one model at two paths shares its
blocks, and two models at one path do not.

For each file the digest covers the name relative to the model's directory, the size, the header of a safetensors file (names, types and
shapes), and 64 pieces of 64 KiB, including the first and the last: 4 MiB, whatever the size. `whole` covers every byte. Files that do not
affect the computation are left out: tokenizers (token ids are part of the keys), generation, training.

Digests are cached by path, size, times and inode in $XDG_CACHE_HOME/sluice/weights.json (default ~/.cache, mode 0600)."""

import functools
import hashlib
import json
import logging
import os
import queue
import re
import stat
import tempfile
import threading
import time

log = logging.getLogger("sluice.weights")
NOTHING = "nothing of this model or adapter is stored or loaded: %s"
FORMAT = 1          # of the digest; with another number, no earlier block is found
PIECE_BYTES, PIECES = 64 << 10, 64
READ_BYTES = 4 << 20
HEADER_BYTES_MAX = 100_000_000  # limit of a safetensors file's header, as in its readers
FILES_MAX = 10000
THREADS = 8
WAIT_SECONDS = 1    # how long an engine waits for a check of files
TRIES = 3           # for a file that changes while it is read
CACHE_FILES_MAX = 16384
KNOWN_MAX = 65536
# A file that changed a moment ago may change again within one tick of the file system's clock, so its digest is not cached.
SETTLED_SECONDS = 10
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".tensors", ".npz")
OTHERS = (".json", ".py")  # configurations (rope, quantisation, images), index files, code of the model
LEFT_OUT = frozenset((
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "chat_template.json",
    "generation_config.json", "trainer_state.json", "training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt",
    "all_results.json", "train_results.json", "eval_results.json"))
PER_HOST = ("_name_or_path", "transformers_version")  # fields of config.json about the program and path that wrote it
# Loaders that read these files. Others generate weights or fetch them from elsewhere.
LOADERS = frozenset((
    "auto", "hf", "safetensors", "pt", "npcache", "fastsafetensors", "instanttensor", "runai_streamer", "runai_streamer_sharded",
    "sharded_state", "presharded", "mistral", "gguf", "bitsandbytes", "layered", "local_cached", "expert_pack"))
GGUF_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")


def identity(name, revision=None, whole=False, load_format="auto", hub_directory=None):
    """Returns (name, revision) of a model or adapter for keys: (digest, "") if its files are on this machine, else the arguments. name: a
    path, or a name at a hub, whose files may be in the hub's cache (hub_directory: path of that cache if not the default). Raises
    ValueError, which names the file, if files cannot be read or keep changing."""
    local = files_of(name, revision, hub_directory) if load_format in LOADERS else {}
    return (digest_of(local, whole), "") if local else (name, revision or "")


def identity_by_name(name, whole=False):
    """As identity, for an engine that names its model without revision and format. Raises ValueError also if revisions in the hub's cache
    differ."""
    return identity_of_all(revisions_of(name), name, whole)


def identity_of_all(places, name, whole):
    found = {identity(place, whole=whole)[0] for place in places}
    if len(found) > 1:
        raise ValueError(f"{name}: the hub's cache has {len(places)} revisions of it, whose weights differ, and the engine does not say which it "
                         "has; name them by the setting `model`, or remove the others (hf cache)")
    return found.pop()


def revisions_of(name):
    """Returns where files of the name may be: [path], or its revisions with weights in the cache of huggingface_hub, or [name]."""
    if os.path.exists(os.path.expanduser(name)):
        return [name]
    try:
        from huggingface_hub import constants

        base = os.path.join(constants.HF_HUB_CACHE, "models--" + name.replace("/", "--"), "snapshots")
        return [place for place in sorted(os.path.join(base, one) for one in os.listdir(base)) if files_of(place)] or [name]
    except (ImportError, FileNotFoundError):
        return [name]


def files_of(name, revision=None, hub_directory=None):
    """Returns {name relative to the model's directory: path}; {}: this machine has no weights of it."""
    name = os.path.expanduser(name)
    try:
        if os.path.isfile(name):
            return siblings_of(name)
        directory = name if os.path.isdir(name) else cached_of(name, revision, hub_directory)
        if directory is None:
            return {}
        found = files_in(directory, counts)
        found.update(indexed_of(directory, found))
    except OSError as error:
        raise unreadable(error.filename or name, error) from None
    if len(found) > FILES_MAX:
        raise ValueError(f"{directory}: {len(found)} files of weights, {FILES_MAX} at most; the setting `model` names a model without its files")
    return found if any(one.endswith(WEIGHTS) for one in found) else {}


def files_in(directory, wanted):
    with os.scandir(directory) as entries:
        return {one.name: one.path for one in entries if wanted(one.name) and one.is_file()}


def counts(name):
    return name.endswith(WEIGHTS + OTHERS) and name not in LEFT_OUT and not name.startswith((".", "rng_state"))


def siblings_of(path):
    """Files of a model in one file, which may be the first of several, with its image projector."""
    directory, name = os.path.split(os.path.abspath(path))
    shard = GGUF_SHARD.search(name)
    stem = name[:shard.start()] if shard else None

    def belongs(other):
        return other == name or "mmproj" in other and other.endswith(".gguf") or shard and other.startswith(stem) and \
            GGUF_SHARD.fullmatch(other[len(stem):])

    return files_in(directory, belongs)


def indexed_of(directory, found):
    """Shards in subdirectories that the index files name."""
    shards = {one: os.path.join(directory, one) for name, path in found.items() if name.endswith(".index.json")
              for one in named_below(path, state_of(os.stat(path)))}
    return {name: path for name, path in shards.items() if os.path.isfile(path)}


@functools.lru_cache(maxsize=64)  # index files of large models have megabytes, and Held checks them with each batch of keys
def named_below(path, state):
    """state: of the current file at path; part of the cache's key."""
    try:
        with open(path, encoding="utf-8") as file:
            named = set(json.load(file)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()  # not an index of weights: only its bytes are digested
    return tuple(one for one in named if isinstance(one, str) and os.sep in one)


def cached_of(name, revision, hub_directory):
    """Returns the directory of a hub's model in the cache of huggingface_hub, or None. Downloads nothing."""
    try:
        from huggingface_hub import snapshot_download

        return snapshot_download(name, revision=revision or None, cache_dir=hub_directory, local_files_only=True)
    except (ImportError, OSError, ValueError):  # not installed; not in the cache; not a name of a hub
        return None


def digest_of(files, whole):
    cache, paths, digests, failed = Cache(), queue.SimpleQueue(), {}, []
    for path in (*files.values(), *[None] * THREADS):
        paths.put(path)

    def read():
        for path in iter(paths.get, None):
            try:
                digests[path] = None if failed else digest_of_file(path, whole, cache)
            except ValueError as error:
                failed.append(error)

    # Daemon threads: at exit the interpreter would wait for an executor's threads, and a file system may hang.
    threads = [threading.Thread(target=read, name="sluice-weights", daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    cache.save()
    told = [FORMAT, "whole" if whole else "pieces", sorted((name, digests[path]) for name, path in files.items())]
    return "weights:" + hashlib.sha256(json.dumps(told).encode()).hexdigest()


def unreadable(path, error):
    return ValueError(f"{path}: {error.strerror or error}: the model's weights cannot be identified; fix that, or name them by the setting "
                      "`model`")


def digest_of_file(path, whole, cache):
    for _ in range(TRIES):
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                before = state_of(os.fstat(file.fileno()))
                made = digest_read(file, path, before, whole, cache)
                # The path may lead to another file by now.
                if before == state_of(os.fstat(file.fileno())) == state_of(os.stat(path)):
                    return made
        except OSError as error:
            raise unreadable(path, error) from None
    raise ValueError(f"{path}: changes while it is read: start the engine when it is complete")


def state_of(about):
    if not stat.S_ISREG(about.st_mode):
        raise OSError(0, "not a regular file")
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def digest_read(file, path, state, whole, cache):
    size, number = state[2], file.fileno()
    if os.path.basename(path) == "config.json" and size <= READ_BYTES:
        return hashlib.sha256(canonical(file.read())).hexdigest()
    # The key contains both ends of the file: an image that is mounted again may have other files with the same inodes and times.
    ends = os.pread(number, PIECE_BYTES, 0) + os.pread(number, PIECE_BYTES, max(0, size - PIECE_BYTES))
    key = hashlib.sha256(repr((FORMAT, whole, os.path.realpath(path), state)).encode() + ends).hexdigest()
    found = cache.get(key)
    if found is None:
        found = digest_bytes(number, path, size, whole)
        if max(state[3:]) < time.time_ns() - SETTLED_SECONDS * 1_000_000_000:
            cache.put(key, found)
    return found


def digest_bytes(number, path, size, whole):
    made = hashlib.sha256(b"%d\0" % size)
    if whole or size <= PIECE_BYTES * PIECES:
        ranges = [(0, size)]
    else:
        ranges = [(at * (size - PIECE_BYTES) // (PIECES - 1), PIECE_BYTES) for at in range(PIECES)]
        if path.endswith(".safetensors"):
            header = 8 + int.from_bytes(os.pread(number, 8, 0), "little")
            ranges.insert(0, (0, min(header, HEADER_BYTES_MAX, size)))
    for first, length in ranges:
        for at in range(first, first + length, READ_BYTES):
            made.update(os.pread(number, min(READ_BYTES, first + length - at), at))
    return made.hexdigest()


def canonical(text):
    """Returns a configuration without the fields that depend on the machine."""
    try:
        return json.dumps({name: value for name, value in json.loads(text).items() if name not in PER_HOST}, sort_keys=True).encode()
    except (ValueError, AttributeError):
        return text


class Cache:
    """A cache file of digests by the state of files. If it cannot be read or written, it is empty."""

    def __init__(self):
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.path = os.path.join(base, "sluice", "weights.json")
        self.lock, self.new, self.held = threading.Lock(), False, {}
        if not os.path.isabs(self.path):  # a user without a home, as in many containers: else a directory "~" would be made
            return
        try:
            with open(self.path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
                about = os.fstat(file.fileno())
                held = json.load(file) if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077 else {}
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.info("%s: not used: %s", self.path, error)
            return
        if isinstance(held, dict) and all(isinstance(one, str) for one in held.values()):
            self.held = held

    def get(self, key):
        with self.lock:
            found = self.held.pop(key, None)
            if found is not None:
                self.held[key] = found  # least recently used first
            return found

    def put(self, key, digest):
        with self.lock:
            self.held[key], self.new = digest, True

    def save(self):
        if not self.new or not os.path.isabs(self.path):
            return
        directory = os.path.dirname(self.path)
        try:
            os.makedirs(directory, 0o700, exist_ok=True)
            number, made = tempfile.mkstemp(dir=directory)  # 0600
            try:
                with open(number, "w", encoding="utf-8") as file:
                    json.dump(dict(list(self.held.items())[-CACHE_FILES_MAX:]), file)
                os.replace(made, self.path)
            except OSError:
                os.unlink(made)
                raise
        except OSError as error:
            log.info("%s: digests are made again at each start: %s", self.path, error)


def state_at(places):
    """Returns {(directory, name): state of the file}."""
    return {(place, name): state_of(os.stat(file)) for place in places for name, file in files_of(place).items()}


def changed(path):
    return ValueError(f"{path}: its files changed after they were loaded; load them under another name, or start the engine again")


class Loaded:
    """A path whose files a process has loaded, with their name (digest). state: of the loaded files; {}: those that exist at the first
    check. first: the first name of the files. name: first, or None while revisions with other weights exist beside them."""

    def __init__(self, path, held):
        self.path, self.held, self.state, self.first, self.name, self.failed = path, held, {}, None, None, False
        self.turn, self.late = threading.Lock(), False  # held during a check; late: the running check exceeded WAIT_SECONDS

    def ask(self):
        """Checks the files and returns the name; None: there is none, or files hang or have not been read yet."""
        if self.failed:
            return None
        self.late = not self.turn.acquire(timeout=0 if self.late else WAIT_SECONDS) or not self.begin().wait(WAIT_SECONDS)
        return None if self.late else self.name

    def begin(self):
        """Checks the files on a thread, since a hanging file system would block the engine. The caller holds turn; the thread frees
        it."""
        done = threading.Event()

        def look():
            try:
                self.check()
            finally:
                self.turn.release()
                done.set()

        threading.Thread(target=look, name="sluice-weights", daemon=True).start()
        return done

    def fail(self, error):
        log.warning(NOTHING, error)
        self.name, self.failed = None, True

    def check(self):
        """Checks that the files are still the loaded ones; the first time computes their name. Revisions of a hub's model may appear and
        disappear, and a partly downloaded one counts as another model: there is no name while they differ."""
        try:
            if self._same() and (self.first or self.name):
                return
            self.name, name = None, self._read()
            while not self._same():
                name = self._read()
            if self.state:  # else no files exist yet, so none were loaded
                self.first = self.first or name
            self.name = name
        except (OSError, ValueError) as error:
            self.fail(error)

    def _same(self):
        """Whether no file appeared or disappeared since the last check. Loaded files must not change, and a process that has loaded a
        revision with other weights keeps them when its files disappear."""
        before, now = self.state, state_at(self.held.places(self.path))
        if before and now != before and not (self.first and (before.items() <= now.items() or self.name and now.items() <= before.items())):
            raise changed(self.path)
        self.state = now
        return now == before

    def _read(self):
        try:
            name = identity_of_all(self.held.places(self.path), self.path, self.held.whole)
        except ValueError as error:
            if not self.first:
                raise
            log.warning(NOTHING, error)
            return None
        if self.first not in (None, name):
            raise changed(self.path)
        return name


class Held:
    """Names of models and adapters for the life of a process, which keeps the weights that it loaded even if files change. A model or
    adapter has no name if its files cannot be read, or changed since they were loaded (or first requested, if the time of loading is
    unknown): then nothing of it is stored or loaded. places: returns where the files of a path may be."""

    def __init__(self, whole, places=lambda path: [path]):
        self.whole, self.places, self.known = whole, places, {}

    def load(self, key, path, read):
        """Calls read(), which loads the files of path, and returns its result. `key` gets their name; a known key keeps its name."""
        if key in self.known:
            return read()
        one = Loaded(path, self)
        try:
            one.state = state_at(self.places(path))  # {}: this load downloads them from a hub
        except (OSError, ValueError) as error:
            one.fail(error)
        done = read()
        self._keep(key, one)
        if not one.failed and one.turn.acquire(blocking=False):
            one.begin()  # so that the first request need not wait
        return done

    def name(self, key, path):
        """Returns the identity of the loaded files; None: none, or not yet. Waits WAIT_SECONDS at most, and only once for files that
        hang. key: distinguishes loads of the same path."""
        return (self.known.get(key) or self._keep(key, Loaded(path, self))).ask()

    def _keep(self, key, one):
        if len(self.known) == KNOWN_MAX:
            del self.known[next(iter(self.known))]
        self.known[key] = one
        return one
