"""A storage plug-in that makes a node of Sluice the storage of LMCache's engine.

    storage_plugins: [sluice]
    extra_config: {storage_plugin.sluice.module_path: sluice.lmcache, storage_plugin.sluice.class_name: SluiceBackend}

docs/start/lmcache.md has the options and the behaviour on failures. A value is the bytes of one of LMCache's memory objects. Its layout
is part of the key, so values of another layout are never found. Where LMCache processes what it reads on the CPU, a read returns views of
the node's memory and copies nothing."""

import asyncio
import collections
import concurrent.futures
import functools
import hashlib
import inspect
import logging
import sys
import threading
import time
import warnings

import torch
from lmcache.v1.memory_management import MemoryAllocatorInterface, MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface

from . import Code, NotFoundError, SluiceError, weights
from .backend import Options, number, switch
from .hints import HintSender, hints_checked
from .linking import ROWS, Link, LimitedLog

OPTION = "sluice."
HINT = "lmcache.sluice."  # prefix of a request's configs with hints
KEY_BYTES_MAX = 1024
PINS_MAX = 4096          # keys that lookups may pin until they are read
CLOSE_SECONDS = 5.0
NOTHING = torch.empty(0, dtype=torch.uint8)

with warnings.catch_warnings():  # torch warns once that a tensor over read-only memory must not be written; ours never are
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class Views(MemoryAllocatorInterface):
    """The allocator of memory objects that are read-only views of the node's memory. Their bytes stay in place and unchanged until the
    last tensor over them is released."""

    def allocate(self, shapes, dtypes, fmt=MemoryFormat.UNDEFINED, allocator_type=None):
        return None

    def batched_allocate(self, shapes, dtypes, batch_size, fmt=MemoryFormat.UNDEFINED, allocator_type=None):
        return None

    def free(self, memory_obj, allocator_type=None):
        memory_obj.invalidate()
        memory_obj.raw_data = NOTHING  # tensors own the View; the last one releases its pin

    def batched_free(self, memory_objs, allocator_type=None, update_stats=True):
        for memory_obj in memory_objs:
            self.free(memory_obj)


class Layout:
    """Layout of a chunk in its value. The last chunk may be shorter."""

    def __init__(self, metadata, config):
        self._metadata = metadata
        self.groups = metadata.kv_layer_groups_manager
        self.format = MemoryFormat.KV_MLA_FMT if metadata.use_mla else MemoryFormat.KV_2LTD
        self.chunk_tokens = max(config.chunk_size, metadata.kv_shape[2])
        self.dtypes = metadata.get_dtypes()
        one = metadata.get_shapes(1)
        self.token_bytes = sum(shape.numel() * dtype.itemsize for shape, dtype in zip(one, self.dtypes))
        said = repr((self.format.name, [tuple(shape) for shape in one], [str(dtype) for dtype in self.dtypes]))
        self.name = hashlib.sha256(said.encode()).hexdigest()[:16]
        self._shapes = {}

    def shapes(self, tokens):
        if tokens not in self._shapes:
            self._shapes[tokens] = self._metadata.get_shapes(tokens)
        return self._shapes[tokens]

    def tokens(self, length):
        """Number of tokens in a value of `length` bytes; 0: the value has another layout."""
        count, rest = divmod(length, self.token_bytes)
        return count if rest == 0 and count <= self.chunk_tokens else 0


class Pins:
    """Pins values that lookups found until they are read. Values that are only on disk are read into memory in the background."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._lock = threading.Lock()
        self._held = collections.OrderedDict()  # name: [count, future of a list of views, index, end in seconds]
        self._fetcher = concurrent.futures.ThreadPoolExecutor(1, "sluice-pins")
        self._closed = False

    @staticmethod
    def _fetch(client, names, timeout):
        try:
            return client.get_pinned_batch(names, timeout=timeout)
        except SluiceError:  # no pin slots are left, or a value cannot be read: values are then read without pins
            return [None] * len(names)

    def _expire(self):
        now = time.monotonic()
        while self._held and next(iter(self._held.values()))[3] < now:
            self._held.popitem(last=False)

    def add(self, client, names, timeout):
        with self._lock:
            self._expire()
            fresh = []
            for name in names:
                if name in self._held:
                    self._held[name][0] += 1
                elif len(self._held) + len(fresh) < PINS_MAX:
                    fresh.append(name)
            if fresh and not self._closed:
                future = self._fetcher.submit(self._fetch, client, fresh, timeout)
                end_s = time.monotonic() + self._seconds
                self._held.update((name, [1, future, index, end_s]) for index, name in enumerate(fresh))

    def drop(self, name):
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held[0] -= 1
                if held[0] == 0:
                    del self._held[name]
            return held is not None

    def views(self, names, timeout):
        """Returns a view for each name; None if it is not pinned, or not read within timeout."""
        with self._lock:
            held = [self._held.get(name) for name in names]
        end_s, found = time.monotonic() + timeout, []
        for one in held:
            view = None
            if one is not None:
                try:
                    view = one[1].result(max(0.0, end_s - time.monotonic()))[one[2]]
                except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
                    pass
            found.append(view)
        return found

    def close(self):
        with self._lock:
            self._closed = True
            self._held.clear()
        self._fetcher.shutdown(wait=False, cancel_futures=True)


def adapters_warn(said):
    """Logs a warning for each adapter that vLLM's worker loads in this process: LMCache's keys do not contain adapters."""
    module = sys.modules.get("vllm.lora.worker_manager")
    if module is None:
        return

    def warn(name):
        said.warn("adapter '%s': LMCache's keys do not contain adapters, so its requests and others hit each other's chunks and get wrong "
                  "tokens, unless each adapter has a tag (lmcache.tag.adapter in kv_transfer_params)", name)

    loads = getattr(module, "WorkerLoRAManager", None)
    if not hasattr(loads, "_load_adapter"):  # another release of vLLM: loads cannot be seen
        warn("(any)")
        return
    load = inspect.unwrap(loads._load_adapter)

    @functools.wraps(load)
    def told(manager, lora_request):
        warn(lora_request.lora_name)
        return load(manager, lora_request)

    loads._load_adapter = told


class SluiceBackend(StoragePluginInterface):
    """LMCache's storage back end. Failures of the node raise nothing: they are logged, and count as misses or drop the value."""

    def __init__(self, config=None, dst_device="cpu", metadata=None, local_cpu_backend=None, loop=None):
        if config is None or metadata is None or loop is None:
            raise ValueError("SluiceBackend: config, metadata and loop are needed")
        if config.use_layerwise:
            raise ValueError("SluiceBackend: use_layerwise is not supported")
        super().__init__(dst_device=dst_device, config=config, metadata=metadata, local_cpu_backend=local_cpu_backend, loop=loop)
        given = {name[len(OPTION):]: value for name, value in (config.extra_config or {}).items() if name.startswith(OPTION)}
        rows = {**ROWS, "zero_copy": (switch, True), "pin_timeout": (number(1, 86400, float), float(config.pin_timeout_sec))}
        self._options = Options(given, rows, where="extra_config: " + OPTION)
        # Replaces the path in LMCache's keys. LMCache loads no weights itself, so revision and format are not known.
        self._model = self._options.model or weights.identity_by_name(metadata.model_name, self._options.whole)
        # A GPU reads only memory that is registered with its driver: LMCache's own, not the node's.
        self._on_cpu = torch.device(dst_device).type == "cpu"
        # With MLA all ranks have the same bytes, so only the first one stores them and sends hints.
        self._of_first = metadata.use_mla and metadata.world_size > 1 and not metadata.is_first_rank()
        self._said = LimitedLog(logging.getLogger("sluice.lmcache"))
        adapters_warn(self._said)
        self._teller = None if self._of_first else HintSender(self._said, self._options.timeout, 0 if metadata.use_mla else metadata.worker_id)
        self._views, self._pins = Views(), Pins(self._options.pin_timeout)
        self._layout_now = None
        self._lock = threading.Lock()  # for _putting and _jobs
        self._putting = set()
        self._jobs = {}  # number: (keys, names, memory objects, callback, future)
        self._watched = False  # whether LMCache's loop polls the event descriptor
        self._link = Link(self._options, opened=self._watch)

    def __str__(self):
        return type(self).__name__

    # ---- names ----

    def _layout(self):
        if self._layout_now is None or self._layout_now.groups is not self.metadata.kv_layer_groups_manager:
            self._layout_now = Layout(self.metadata, self.config)
        return self._layout_now

    def _names(self, keys):
        begin, of_first = f"lmcache/{self._layout().name}/", self._of_first
        keys = [key.with_new_worker_id(self.metadata.first_rank) if of_first else key for key in keys]
        return [self._name(begin, self._key(key)) for key in keys]

    def _key(self, key):
        """LMCache's key with the weights' digest instead of the model's path."""
        text, path = key.to_string(), self.metadata.model_name
        return self._model + text[len(path):] if key.model_name == path else text

    @staticmethod
    def _name(begin, key):
        name = begin + key
        if len(name) > KEY_BYTES_MAX // 4 and len(name.encode()) > KEY_BYTES_MAX:
            return begin + hashlib.sha256(key.encode()).hexdigest()
        return name

    # ---- hints ----

    def _hint(self, client, keys, names, asked):
        """Sends the hints of the request to which these keys belong. asked: the values were read, else they were stored."""
        given = {name[len(HINT):]: value for name, value in (keys[0].request_configs or {}).items()
                 if name.startswith(HINT)} if keys and self._teller is not None else {}
        if not given:
            return
        try:
            hints = hints_checked(HINT + "*", given)
        except ValueError as failure:
            self._said.warn("hints of a request are ignored: %s", failure)
            return
        if hints is not None:
            self._teller.tell(client, names, hints, asked)

    # ---- lookups ----

    def _found(self, keys, pin):
        """Returns how many keys exist, counted from the first one up to a miss."""
        held = self._link.open()
        if held is None or not keys:
            return 0
        client, batches = held
        names = self._names(keys)
        try:
            there = batches.look(names, timeout=self._options.timeout)
        except SluiceError as failure:
            self._said.warn("lookups fail and count as misses: %s", failure)
            return 0
        count = there.index(False) if False in there else len(there)
        if pin and count:
            self._pins.add(client, names[:count], self._options.timeout)
        return count

    def contains(self, key, pin=False):
        return self._found([key], pin) == 1

    def batched_contains(self, keys, pin=False):
        return self._found(keys, pin)

    async def batched_async_contains(self, lookup_id, keys, pin=False):
        """Does not pin: LMCache reads the values at once, and views pin themselves."""
        held = self._link.open()
        if held is not None and held[1].has_peers:  # asking them takes time
            return await asyncio.get_running_loop().run_in_executor(None, self._found, keys, False)
        return self._found(keys, False)

    def pin(self, key):
        return self._found([key], True) == 1

    def unpin(self, key):
        return self._pins.drop(self._names([key])[0])

    # ---- reading ----

    def _object(self, view, layout):
        """Returns a memory object over the view; None: the value has another layout."""
        tokens = layout.tokens(len(view))
        if tokens == 0:
            return None
        shapes, raw = layout.shapes(tokens), torch.frombuffer(view, dtype=torch.uint8)
        about = MemoryObjMetadata(shapes[0], layout.dtypes[0], raw.data_ptr(), len(view), 1, 0, layout.format, shapes=shapes,
                                  dtypes=layout.dtypes)
        return TensorMemoryObj(raw, about, self._views)

    def _read_views(self, client, names, layout):
        """Returns a memory object for each name, None for a miss; None instead of a list if no more values can be pinned."""
        views = self._pins.views(names, self._options.timeout)
        missing = [index for index, view in enumerate(views) if view is None]
        if missing:
            try:
                fetched = client.get_pinned_batch([names[index] for index in missing], timeout=self._options.timeout)
            except SluiceError:
                return None
            for index, view in zip(missing, fetched):
                views[index] = view
        return [None if view is None else self._object(view, layout) for view in views]

    def _read_copies(self, client, names, layout):
        """As _read_views, but copies values into LMCache's memory: for its own cache, or for a GPU."""
        objects = []
        try:
            for name in names:
                tokens = layout.tokens(self._size(client, name, layout))
                made = None if tokens == 0 or self.local_cpu_backend is None else self.local_cpu_backend.allocate(
                    layout.shapes(tokens), layout.dtypes, layout.format, busy_loop=False)
                if made is None:
                    break  # values after a gap are of no use
                objects.append(made)
            into = [made.byte_array for made in objects]
            lengths = client.get_batch_into(names[:len(into)], into, timeout=self._options.timeout) if into else []
        except SluiceError:
            for made in objects:
                made.ref_count_down()
            raise
        found = []
        for made, length in zip(objects, lengths):
            found.append(made if length == made.get_size() else None)
            if found[-1] is None:
                made.ref_count_down()
                self._miss(length)
        return found + [None] * (len(names) - len(found))

    @staticmethod
    def _size(client, name, layout):
        try:
            return client.size(name)
        except NotFoundError:  # a peer may have it
            return layout.chunk_tokens * layout.token_bytes

    def _miss(self, length):
        if length < 0 and -length != Code.NOT_FOUND:
            self._said.warn("values cannot be read and count as misses: %s", Code(-length).name)

    def _read(self, keys, views):
        held = self._link.open()
        if held is None or not keys:
            return [None] * len(keys)
        names, layout, found = self._names(keys), self._layout(), None
        try:
            if views:
                found = self._read_views(held[0], names, layout)
            found = self._read_copies(held[0], names, layout) if found is None else found
        except SluiceError as failure:
            self._said.warn("reads fail and count as misses: %s", failure)
            return [None] * len(keys)
        count = found.index(None) if None in found else len(found)
        if len(keys) > 1 or views:  # a single chunk may be anywhere in its chain
            self._hint(held[0], keys[:count], names[:count], True)
        return found

    def batched_get_blocking(self, keys):
        # A view in LMCache's own cache would stay pinned as long as it is cached.
        kept = self.local_cpu_backend is not None and self.local_cpu_backend.use_hot
        return self._read(keys, self._options.zero_copy and self._on_cpu and not kept)

    def get_blocking(self, key):
        """Always copies: LMCache puts values that it reads this way into its own cache, whatever its settings are."""
        return self._read([key], False)[0]

    async def batched_get_non_blocking(self, lookup_id, keys, transfer_spec=None):
        """Returns the memory objects up to the first miss."""
        found = await asyncio.get_running_loop().run_in_executor(None, self.batched_get_blocking, keys)
        count = found.index(None) if None in found else len(found)
        for extra in found[count:]:
            if extra is not None:
                extra.ref_count_down()
        return found[:count]

    def get_non_blocking(self, key, location=None):
        async def read():
            return await asyncio.get_running_loop().run_in_executor(None, self.get_blocking, key)

        return asyncio.run_coroutine_threadsafe(read(), self.loop)

    # ---- storing ----

    def exists_in_put_tasks(self, key):
        with self._lock:
            return key in self._putting

    def batched_submit_put_task(self, keys, objs, transfer_spec=None, on_complete_callback=None):
        """Returns [a future of all puts], or None if nothing is stored. Objects are stored from their own memory, referenced until
        then."""
        held, layout = self._link.open(), self._layout()
        if held is None or self._of_first:
            return None
        pairs = [(key, one) for key, one in zip(keys, objs)
                 if layout.tokens(one.get_size()) and not self.exists_in_put_tasks(key)]
        if not pairs:
            return None
        keys, objs = [key for key, _ in pairs], [one for _, one in pairs]
        future = concurrent.futures.Future()
        for one in objs:
            one.ref_count_up()
        try:
            with self._lock:  # the job may end before it is in _jobs
                names = self._names(keys)
                number_of_job = held[1].put(names, [one.byte_array for one in objs])
                self._jobs[number_of_job] = (keys, names, objs, on_complete_callback, future)
                self._putting.update(keys)
        except SluiceError as failure:
            self._said.warn("nothing is stored: %s", failure)
            for one in objs:
                one.ref_count_down()
            return None
        return [future]

    async def async_batched_submit_put_task(self, keys, objs, transfer_spec=None, on_complete_callback=None):
        self.batched_submit_put_task(keys, objs, transfer_spec, on_complete_callback)

    def _watch(self, client, batches):
        """Makes LMCache's own event loop drain ended jobs."""
        def begin():
            if not batches.closed:
                self._watched = True
                self.loop.add_reader(batches.event_fd(), self._drain, batches)

        self.loop.call_soon_threadsafe(begin)

    def _drain(self, batches):
        held = self._link.open()
        for number_of_job, ok, error, stored in batches.drain():
            with self._lock:
                keys, names, objs, callback, future = self._jobs.pop(number_of_job)
                self._putting.difference_update(keys)
            for one in objs:
                one.ref_count_down()
            if not ok:
                self._said.warn("%d of %d chunks were not stored: %s", stored.count(False), len(stored), error)
            there = [index for index, fine in enumerate(stored) if fine]
            if held is not None:
                self._hint(held[0], [keys[index] for index in there], [names[index] for index in there], False)
            self._tell(callback, [keys[index] for index in there])
            future.set_result(stored)

    def _tell(self, callback, keys):
        for key in keys if callback is not None else ():
            try:
                callback(key)
            except Exception as failure:  # LMCache specifies that failures of callbacks are logged
                self._said.warn("a callback after a store failed: %s", failure)

    # ---- the rest ----

    def remove(self, key, force=True):
        return self.batched_remove([key], force) == 1

    def batched_remove(self, keys, force=True):
        held = self._link.open()
        if held is None or not keys:
            return 0
        try:
            return held[0].remove_batch(self._names(keys), timeout=self._options.timeout).count(0)
        except SluiceError as failure:
            self._said.warn("removals fail: %s", failure)
            return 0

    def get_allocator_backend(self):
        """Returns LMCache's own memory: LMCache allocates before it knows the key, so it cannot write values in place."""
        return self.local_cpu_backend

    def close(self):
        """Waits for submitted puts, until their deadlines at most."""
        self._pins.close()
        held = self._link.open()
        if held is not None:
            batches = held[1]
            batches.wait(self._options.timeout + CLOSE_SECONDS)
            if self._watched and self.loop.is_running():
                ended = concurrent.futures.Future()
                self.loop.call_soon_threadsafe(lambda: ended.set_result(self.loop.remove_reader(batches.event_fd())))
                ended.result(CLOSE_SECONDS)
            self._watched = False
            self._drain(batches)
        if self._teller is not None:
            self._teller.close()
        self._link.close()
