"""The store for asyncio: every method of the store also as `async_METHOD`, which runs it in a thread."""

import asyncio
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Awaitable, Callable, List, Optional

_PREFIX = "async_"


class MooncakeDistributedStoreAsync:
    """The methods of a `MooncakeDistributedStore`, and each also as a coroutine whose name begins with `async_`:

        store = MooncakeDistributedStoreAsync()
        await store.async_put("key", b"value")

    store: the store to use (default: a new one). max_workers: calls that may run at the same time; further calls are queued. A cancelled
    coroutine ends when its call has ended, since the call uses memory of the caller; a queued call is dropped at once."""

    def __init__(self, store: Any = None, max_workers: Optional[int] = None) -> None:
        if store is None:
            from .store import MooncakeDistributedStore

            store = MooncakeDistributedStore()
        self._store = store
        self._executor = ThreadPoolExecutor(max_workers, thread_name_prefix="mooncake-store")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_store", "_executor"):
            raise AttributeError(name)
        if not name.startswith(_PREFIX):
            return getattr(self._store, name)
        method = getattr(self._store, name[len(_PREFIX):], None)
        if not callable(method):
            raise AttributeError(f"{type(self._store).__name__} has no method '{name[len(_PREFIX):]}'")
        return self._wrapped(method, name)

    def __dir__(self) -> List[str]:
        names = [name for name in dir(self._store) if not name.startswith("_")]
        return sorted({*super().__dir__(), *names, *(_PREFIX + name for name in names if callable(getattr(self._store, name)))})

    def _wrapped(self, method: Callable[..., Any], name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            return await _ended(self._executor.submit(functools.partial(method, *arguments, **keywords)))

        call.__name__ = call.__qualname__ = name
        call.__doc__ = method.__doc__
        return call


async def _ended(running: "Future[Any]") -> Any:
    """Waits for the call and returns or raises its result. If cancelled, raises CancelledError once the call has ended."""
    waited = asyncio.wrap_future(running)
    cancelled: Optional[asyncio.CancelledError] = None
    while not waited.done():
        try:
            await asyncio.wait([waited])
        except asyncio.CancelledError as error:
            running.cancel()  # has no effect on a running call
            cancelled = error
    if cancelled is not None:
        if not waited.cancelled():
            waited.exception()  # marks the exception as retrieved
        raise cancelled
    return waited.result()
