"""A connector to the store for LMCache's multi-process mode, loaded by its L2 adapter of type `native_plugin`:

    {"type": "native_plugin", "module_path": "mooncake.lmcache_connector", "class_name": "LMCacheMooncakeClient",
     "adapter_params": {"config": {"master_server_address": "127.0.0.1:50051", "global_segment_size": "34359738368"}}}

It has the names and calls of the extension `lmcache.lmcache_mooncake`, which LMCache builds from Mooncake's C++ headers."""

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .store import MooncakeDistributedStore

_LANES = ("lookup", "retrieve", "store", "delete")
_Completion = Tuple[int, bool, str, Optional[List[bool]]]


def _held(buffer: "bytearray | memoryview") -> ctypes.c_char:
    """A ctypes object at the buffer's first byte, which keeps the buffer in place."""
    return ctypes.c_char.from_buffer(buffer)


class L1RegistrationConfig:
    """LMCache's memory, which can be registered in advance: `size` bytes at address `base`, if `enabled`."""

    def __init__(self) -> None:
        self.enabled = False
        self.base = 0
        self.size = 0


class LMCacheMooncakeClient:
    """Runs batches in the background. A call returns a number at once. When its batch has ended, `event_fd()` becomes readable and
    `drain_completions()` returns (number, whether all succeeded, the first error, success for each key).

    config: the dict for `MooncakeDistributedStore.setup`. num_workers: batches that run at the same time. per_op_workers: separate
    threads for some of lookup, retrieve, store, delete. Raises RuntimeError if setup fails. Buffers are used in place, so they must stay
    until the batch has ended. Any thread may call."""

    def __init__(self, config: Dict[str, str], num_workers: int = 4, l1_registration: Optional[L1RegistrationConfig] = None,
                 per_op_workers: Optional[Dict[str, int]] = None) -> None:
        self._store = MooncakeDistributedStore()
        code = self._store.setup({name: str(value) for name, value in config.items()})
        if code != 0:
            raise RuntimeError(f"setup of the store failed with {code}; the line above on standard error has the reason")
        if l1_registration is not None and l1_registration.enabled:
            code = self._store.register_buffer(l1_registration.base, l1_registration.size)
            if code != 0:
                self._store.close()
                raise RuntimeError(f"LMCache's memory could not be registered: {code}")
        shared = ThreadPoolExecutor(num_workers, thread_name_prefix="mooncake-lmcache")
        own = per_op_workers or {}
        self._lanes = {lane: ThreadPoolExecutor(own[lane], thread_name_prefix=f"mooncake-{lane}") if lane in own else shared
                       for lane in _LANES}
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()  # for all below
        self._ended: List[_Completion] = []
        self._last = 0
        self._closed = False

    def event_fd(self) -> int:
        """Readable while ended batches have not been drained. The client owns it."""
        return self._event

    def submit_batch_set(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Stores values; a key that exists counts as stored."""
        def run() -> List[int]:
            # ctypes gives no address of a read-only view, so it is copied.
            held = [_held(bytearray(view) if view.readonly else view) for view in views]
            return self._store.batch_put_from(list(keys), [ctypes.addressof(one) for one in held], [view.nbytes for view in views])

        return self._submit("store", keys, run, lambda codes: [code == 0 for code in codes])

    def submit_batch_get(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Reads values into views. A value whose size differs from its view is a miss."""
        sizes = [view.nbytes for view in views]

        def run() -> List[int]:
            held = [_held(view) for view in views]
            return self._store.batch_get_into(list(keys), [ctypes.addressof(one) for one in held], sizes)

        return self._submit("retrieve", keys, run, lambda codes: [code == size for code, size in zip(codes, sizes)])

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        return self._submit("lookup", keys, lambda: self._store.batch_is_exist(list(keys)), lambda codes: [code == 1 for code in codes],
                            misses_are_fine=True)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Removes keys even if leased, since LMCache locks its keys itself. A missing key is no error."""
        return self._submit("delete", keys, lambda: [self._store.remove(key, True) for key in keys],
                            lambda codes: [code == 0 for code in codes], misses_are_fine=True)

    def drain_completions(self) -> List[_Completion]:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass  # none since the last call
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Waits for running batches and drops queued ones."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for lane in set(self._lanes.values()):
            lane.shutdown(wait=True, cancel_futures=True)
        self._store.close()
        os.close(self._event)

    def _submit(self, lane: str, keys: Sequence[str], run: Callable[[], List[int]], fine: Callable[[List[int]], List[bool]],
                misses_are_fine: bool = False) -> int:
        with self._lock:
            if self._closed:
                raise RuntimeError("the connector is closed")
            self._last += 1
            number = self._last

            def work() -> None:
                self._end(self._outcome(number, keys, run, fine, misses_are_fine))

            self._lanes[lane].submit(work)
        return number

    @staticmethod
    def _outcome(number: int, keys: Sequence[str], run: Callable[[], List[int]], fine: Callable[[List[int]], List[bool]],
                 misses_are_fine: bool) -> _Completion:
        if not keys:
            return number, True, "", []
        try:
            codes = run()
        except (TypeError, ValueError, BufferError) as error:  # invalid buffers or keys: report the end to LMCache
            return number, False, str(error), [False] * len(keys)
        which = fine(codes)
        if misses_are_fine or all(which):
            return number, True, "", which
        at = which.index(False)
        return number, False, f"key '{keys[at]}': {codes[at]}", which

    def _end(self, completion: _Completion) -> None:
        with self._lock:
            self._ended.append(completion)
        os.eventfd_write(self._event, 1)
