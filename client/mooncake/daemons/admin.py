"""The admin HTTP of mooncake_master. Figures are from the metrics pages of the node's actors, segments and keys from libsluice."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncGenerator, Awaitable, Callable, Dict, List, Optional, Tuple

from mooncake.daemons import library
from mooncake.daemons.daemon import Programs, why_not_ready
from mooncake.daemons.flags import Failure
from mooncake.daemons.http import Answer, Refusal, Request, Route, text_answer, unescape
from mooncake.mooncake_config import parse_bool

TENANT_BYTES_MAX = 255
QUERY_KEYS_MAX = 4096
REMOVE_AT_ONCE = 4096
LISTINGS_MAX = 32  # at one time; each has a thread
BLOCK_BYTES = 64 << 10  # in a listing
STATUS_S = 0.1  # how long an answer of sluicectl is reused
NOT_FOUND, NOT_READY = -704, -703

# Mooncake's metric: its type, help, and actor and name of the equivalent counter of Sluice.
KNOWN = (
    ("master_allocated_bytes", "gauge", "bytes of memory in use", "registrar", "used_bytes"),
    ("master_key_count", "gauge", "values, in memory or on disk", "registrar", "object_count"),
    ("master_soft_pin_key_count", "gauge", "values with a soft pin", "registrar", "soft_pinned_count"),
    ("master_allocated_file_size_bytes", "gauge", "bytes of values on disk", "tierer", "live_bytes"),
    ("master_put_start_requests_total", "counter", "extents requested for writes", "registrar", "reserve_count"),
    ("master_put_start_alloc_failures_total", "counter", "writes refused for lack of memory", "registrar", "refused_count"),
    ("master_put_end_requests_total", "counter", "values committed", "registrar", "commit_count"),
    ("master_put_revoke_requests_total", "counter", "writes aborted", "registrar", "abort_count"),
    ("master_put_start_discard_cnt", "counter", "writes that expired", "registrar", "expired_count"),
    ("master_put_start_discarded_staging_size", "gauge", "bytes of dead writers that are not free yet", "registrar", "quarantined_bytes"),
    ("master_attempted_evictions_total", "counter", "eviction rounds", "registrar", "evict_attempt_count"),
    ("master_successful_evictions_total", "counter", "eviction rounds that freed memory", "registrar", "evict_success_count"),
    ("master_evicted_key_count", "counter", "values evicted from memory", "registrar", "evicted_count"),
    ("master_evicted_size_bytes", "counter", "their bytes", "registrar", "evicted_bytes"),
    ("master_promotion_completed_total", "counter", "values read from disk into memory", "registrar", "promoted_count"),
    ("master_promotion_completed_bytes_total", "counter", "their bytes", "registrar", "promoted_bytes"),
    ("master_promotion_failed_total", "counter", "reads from disk that failed", "registrar", "promote_failed_count"),
)


def json_answer(status: int, content: Any) -> Answer:
    return Answer(status, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(), "application/json")


def shown(key: bytes) -> str:
    """Returns a key as text for JSON; if it is not UTF-8, its bytes from 0x80 on become '?'."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else "?" for byte in key)


def argument(request: Request, name: str) -> bytes:
    raw = request.arguments.get(name, "")
    if not raw:
        raise Refusal(400, f"the argument '{name}' is missing")
    value = unescape(raw)
    if value is None:
        raise Refusal(400, f"the argument '{name}' is malformed")
    return value


def prefix_of(request: Request) -> bytes:
    if not request.arguments.get("tenant_id"):
        return b""
    tenant = argument(request, "tenant_id")
    try:
        if len(tenant) <= TENANT_BYTES_MAX and library.MARK not in tenant:
            return library.tenant_prefix(tenant.decode())
    except UnicodeDecodeError:
        pass
    raise Refusal(400, "tenant_id: invalid name of a tenant")


class Admin:
    """The handlers of a daemon for the node `instance`. disk_bytes: limit of its disk tier; 0: none."""

    def __init__(self, programs: Programs, instance: str, address: str, disk_bytes: int,
                 when_ready: Optional[Callable[[], Awaitable[None]]] = None):
        """when_ready: awaited before the node is reported as ready."""
        self.programs, self.instance, self.address, self.disk_bytes = programs, instance, address, disk_bytes
        self._when_ready = when_ready
        self._client: Optional[library.Node] = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(32, "admin")
        self._asking: Optional["asyncio.Task[Dict[str, Any]]"] = None
        self._status: Tuple[float, Dict[str, Any]] = (float("-inf"), {"actors": []})
        self._listings = 0

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        if self._client:
            self._client.close()

    # ---- the node
    async def status(self) -> Dict[str, Any]:
        """Returns the node's status. One query runs at a time, and all concurrent callers share its answer. Raises Failure."""
        if time.monotonic() - self._status[0] < STATUS_S:
            return self._status[1]
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Dict[str, Any]:
        try:
            self._status = (time.monotonic(), await self.programs.status(self.instance))
        finally:
            self._asking = None
        return self._status[1]

    async def ready(self) -> Tuple[bool, str]:
        try:
            ready, why = why_not_ready(await self.status(), self.disk_bytes != 0)
        except (Failure, OSError, RuntimeError, ValueError) as error:  # also: no process, thread or descriptor for sluicectl
            return False, str(error)
        if ready and self._when_ready:
            await self._when_ready()
        return ready, why

    async def call(self, work: Callable[[library.Node], Any]) -> Any:
        """Runs work(client) on a thread and returns its result. Raises Refusal, 503, if the node is not ready."""
        ready, why = await self.ready()
        if not ready:
            raise Refusal(503, f"node '{self.instance}' is not ready: {why}")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._call, work)

    def _call(self, work: Callable[[library.Node], Any]) -> Any:
        try:
            with self._lock:
                self._client = self._client or library.Node(self.instance, self.programs.bin)
                client = self._client
            return work(client)
        except library.NodeError as error:
            if error.code == library.LIMIT:  # the client has seen too many restarts of nodes: the next call opens another
                with self._lock:
                    self._client = None
            raise Refusal(503 if error.code in library.RETRY else 500, str(error)) from error

    def _segments(self, client: library.Node) -> List[library.Segment]:
        try:
            return client.segments()
        except library.NodeError as error:
            if error.code != library.UNSUPPORTED:
                raise
        usable, used, count = (total(self._status[1], "registrar", name) for name in ("usable_bytes", "used_bytes", "object_count"))
        return [library.Segment(self.instance, 0, usable, used, count, "", 0)]  # a node without contributions

    async def segments(self) -> List[library.Segment]:
        return await self.call(self._segments)

    # ---- state
    async def health(self, _: Request) -> Answer:
        ready, why = await self.ready()
        return json_answer(200 if ready else 503, {
            "status": "ok" if ready else "starting", "role": "leader", "ha_state": "serving" if ready else "starting", "service_ready": ready,
            "leader_address": self.address, "view_version": 0, "instance": self.instance, "reason": why})

    async def role(self, _: Request) -> Answer:
        return text_answer(200, "leader\n")

    async def ha_status(self, _: Request) -> Answer:
        ready, _why = await self.ready()
        return text_answer(200 if ready else 503, "serving\n" if ready else "starting\n")

    async def leader(self, _: Request) -> Answer:
        return json_answer(200, {"leader_address": self.address, "view_version": 0})

    async def paths(self, _: Request) -> Answer:
        return text_answer(200, "".join(f"{route.methods[0]} {route.path}\n" for route in self.routes()))

    def routes(self) -> List[Route]:
        reads = (("/", self.paths), ("/metrics", self.metrics), ("/metrics/summary", self.summary), ("/health", self.health),
                 ("/role", self.role), ("/ha_status", self.ha_status), ("/leader", self.leader), ("/get_all_keys", self.all_keys),
                 ("/get_all_segments", self.all_segments), ("/get_segments_detail", self.segments_detail),
                 ("/query_segment", self.query_segment), ("/query_key", self.query_key), ("/batch_query_keys", self.batch_query_keys),
                 ("/api/v1/segments/status", self.segments_status))
        return [*(Route(path, ("GET",), handler) for path, handler in reads),
                Route("/api/v1/remove_all", ("POST",), self.remove_all, ("POST",))]

    # ---- segments
    async def all_segments(self, _: Request) -> Answer:
        return text_answer(200, "".join(f"{segment.name}\n" for segment in await self.segments()))

    async def segments_detail(self, _: Request) -> Answer:
        return json_answer(200, {"success": True, "segments": [{
            "name": one.name, "ids": [one.number], "base": 0, "size": one.length, "endpoint": one.name, "protocol": "shm", "status": "OK",
            "used": one.used, "capacity": one.length, "usage_percent": 100.0 * one.used / one.length if one.length else 0.0,
            "values": one.values, "process": one.process, "pid": one.pid} for one in await self.segments()]})

    async def _named(self, name: bytes) -> library.Segment:
        for segment in await self.segments():
            if segment.name.encode() == name:
                return segment
        raise Refusal(404, "no segment has this name")

    async def query_segment(self, request: Request) -> Answer:
        one = await self._named(argument(request, "segment"))
        return text_answer(200, f"{one.name}\nused_bytes: {one.used}\ncapacity_bytes: {one.length}\n")

    async def segments_status(self, request: Request) -> Answer:
        one = "segment" in request.arguments
        segments = [await self._named(argument(request, "segment"))] if one else await self.segments()
        return json_answer(200, {"success": True, "segments": [{"name": segment.name, "status": "OK"} for segment in segments]})

    # ---- keys
    async def _look(self, prefix: bytes, keys: List[bytes]) -> List[Dict[str, Any]]:
        """Returns code, size and replicas of each key. Does not lease."""
        names = [library.name_of(prefix, key) for key in keys]
        asked = [name for name in names if name]

        def work(client: library.Node) -> Any:
            return self._segments(client), client.stat(asked)
        segments, stats = await self.call(work)
        found = iter(stats)
        return [self._replicas(next(found), segments) if name else {"code": library.NOT_FOUND} for name in names]

    def _replicas(self, found: library.Found, segments: List[library.Segment]) -> Dict[str, Any]:
        holders = [segment.name for segment in segments if found.segments >> segment.number & 1] or [self.instance]
        rows = [("memory", name) for name in holders if found.in_memory] + ([("local_disk", self.instance)] if found.on_disk else [])
        return {"code": found.code, "size": found.length, "replicas": [
            {"type": kind, "status": "COMPLETE", "size": found.length, "buffer_address": 0, "transport_endpoint": name} for kind, name in rows]}

    async def query_key(self, request: Request) -> Answer:
        prefix, key = prefix_of(request), argument(request, "key")
        [found] = await self._look(prefix, [key])
        if found["code"] == library.OK:
            return json_answer(200, {"success": True, "key": shown(key), "size": found["size"], "data": found["replicas"]})
        busy = found["code"] == library.BUSY
        return json_answer(503 if busy else 404, {"success": False, "key": shown(key), "error_code": NOT_READY if busy else NOT_FOUND,
                                                  "error_message": "object is not ready" if busy else "object not found"})

    async def batch_query_keys(self, request: Request) -> Answer:
        prefix = prefix_of(request)
        parts = [part for part in request.arguments.get("keys", "").split(",") if part]  # split before decoding: a comma in a key is %2C
        if len(parts) > QUERY_KEYS_MAX:
            raise Refusal(400, f"at most {QUERY_KEYS_MAX} keys")
        keys = [unescape(part) for part in parts]
        if not keys or None in keys:
            raise Refusal(400, f"the argument 'keys' is {'malformed' if keys else 'empty'}")
        data = {}
        for key, found in zip(keys, await self._look(prefix, keys)):
            busy = found["code"] == library.BUSY
            data[shown(key)] = {"ok": True, "size": found["size"], "values": found["replicas"]} if found["code"] == library.OK else {
                "ok": False, "error_code": NOT_READY if busy else NOT_FOUND, "error": "object is not ready" if busy else "object not found"}
        return json_answer(200, {"success": True, "data": data})

    async def all_keys(self, request: Request) -> Answer:
        prefix = prefix_of(request)
        ready, why = await self.ready()
        if not ready:
            raise Refusal(503, f"node '{self.instance}' is not ready: {why}")
        if self._listings == LISTINGS_MAX:
            raise Refusal(503, f"{LISTINGS_MAX} listings are running: try again")
        return Answer(stream=self._list(prefix))

    async def _list(self, prefix: bytes) -> AsyncGenerator[bytes, None]:
        """Streams the keys. A thread walks the index at the pace of the reader. Raises the error that ended the walk."""
        blocks: "asyncio.Queue[Any]" = asyncio.Queue(2)
        over = threading.Event()
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._walk, args=(prefix, blocks, over, loop), daemon=True)
        self._listings += 1
        thread.start()
        try:
            while True:
                block = await blocks.get()
                if block is None:
                    return
                if isinstance(block, Exception):
                    raise block
                yield block
        finally:
            over.set()
            self._listings -= 1
            while not blocks.empty():  # the walk may wait for space in the queue
                blocks.get_nowait()
            await loop.run_in_executor(None, thread.join)

    def _walk(self, prefix: bytes, blocks: "asyncio.Queue[Any]", over: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        lines: List[bytes] = []
        state: Dict[str, Any] = {"bytes": 0, "failed": None}

        def give(block: Any) -> bool:
            if not over.is_set():
                asyncio.run_coroutine_threadsafe(blocks.put(block), loop).result()
            return not over.is_set()

        def each(name: bytes) -> bool:
            key = library.key_of(prefix, name)
            if key is None:
                return True
            lines.append(key)
            state["bytes"] += len(key) + 1
            if state["bytes"] < BLOCK_BYTES:
                return True
            block = b"\n".join(lines) + b"\n"
            lines.clear()
            state["bytes"] = 0
            return give(block)

        walked = None
        try:
            walked = library.Node(self.instance, self.programs.bin, read_only=True)
            walked.list(each)
        except library.NodeError as error:
            state["failed"] = error
        finally:
            if walked:
                walked.close()
        if lines:
            give(b"\n".join(lines) + b"\n")
        give(state["failed"])

    async def remove_all(self, request: Request) -> Answer:
        prefix, force = prefix_of(request), False
        text = request.arguments.get("force", "")
        try:
            force = bool(text) and parse_bool(text)
        except ValueError as error:
            raise Refusal(400, f"force: '{text[:40]}' is not true or false") from error

        def work(client: library.Node) -> Tuple[int, int]:
            removed = skipped = 0
            names: List[bytes] = []

            def flush() -> None:
                nonlocal removed, skipped
                codes = client.remove(names, force) if names else []
                removed += codes.count(library.OK)
                skipped += codes.count(library.LEASED) + codes.count(library.BUSY)
                names.clear()

            found: List[bytes] = []

            def each(name: bytes) -> bool:
                if library.key_of(prefix, name) is not None or library.is_digest(prefix, name):
                    found.append(name)
                return True
            client.list(each)
            for name in found:
                names.append(name)
                if len(names) == REMOVE_AT_ONCE:
                    flush()
            flush()
            return removed, skipped
        removed, skipped = await self.call(work)
        return json_answer(200, {"success": True, "removed_count": removed, "skipped_count": skipped})

    # ---- metrics
    async def metrics(self, _: Request) -> Answer:
        segments = await self.segments()
        status = await self.status()
        lines: List[str] = []

        def family(name: str, kind: str, text: str, *rows: Tuple[str, int]) -> None:
            lines.extend([f"# HELP {name} {text}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value}" for labels, value in rows)])

        def label(segment: library.Segment) -> str:
            name = segment.name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            return f'{{segment="{name}"}}'
        family("master_total_capacity_bytes", "gauge", "memory that clients contribute", ("", sum(one.length for one in segments)))
        family("master_active_clients", "gauge", "processes that contribute memory", ("", len({one.pid for one in segments if one.pid})))
        family("master_total_file_capacity_bytes", "gauge", "ceiling of the disk tier", ("", self.disk_bytes))
        family("segment_total_capacity_bytes", "gauge", "memory of a segment", *((label(one), one.length) for one in segments))
        family("segment_allocated_bytes", "gauge", "bytes charged to a segment", *((label(one), one.used) for one in segments))
        for name, kind, text, actor, ours in KNOWN:
            family(name, kind, text, ("", total(status, actor, ours)))
        family("sluice_attached_processes", "gauge", "processes with libsluice on this node", ("", attached(status)))
        actors = [row for row in status["actors"] if row["alive"] and not row["name"].startswith("client.")]
        counters = sorted((name, row["name"], value) for row in actors for name, value in row["counters"].items())
        lines.extend(f'sluice_{name}{{actor="{actor}"}} {value}' for name, actor, value in counters)
        histograms = sorted(((name, row["name"], value) for row in actors for name, value in row["histograms"].items()), key=lambda one: one[:2])
        last = ""
        for name, actor, value in histograms:
            lines.extend([f"# TYPE sluice_{name} summary"] if name != last else [])
            lines.extend(f'sluice_{name}{{actor="{actor}",quantile="{quantile}"}} {value[field]}'
                         for quantile, field in (("0.5", "p50"), ("0.9", "p90"), ("0.99", "p99")))
            lines.extend(f'sluice_{name}_{field}{{actor="{actor}"}} {value[field]}' for field in ("sum", "count"))
            last = name
        return Answer(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def summary(self, _: Request) -> Answer:
        segments = await self.segments()
        status = await self.status()
        of = {name: total(status, "registrar", name) for name in ("used_bytes", "object_count", "reserve_count", "commit_count", "refused_count",
                                                                  "evicted_count", "evicted_bytes")}
        return text_answer(200, f"memory: {of['used_bytes']} of {sum(one.length for one in segments)} bytes in {len(segments)} segments | "
                           f"disk: {total(status, 'tierer', 'live_bytes')} of {self.disk_bytes} bytes | keys: {of['object_count']} | "
                           f"puts: {of['reserve_count']} started, {of['commit_count']} committed, {of['refused_count']} refused | "
                           f"evicted: {of['evicted_count']} keys, {of['evicted_bytes']} bytes | processes: {attached(status)} attached\n")


def total(status: Dict[str, Any], actor: str, name: str) -> int:
    """Sums a counter over the live actors whose names begin with `actor`."""
    return sum(row["counters"].get(name, 0) for row in status["actors"] if row["alive"] and row["name"].startswith(actor))


def attached(status: Dict[str, Any]) -> int:
    """Number of the registrar's peers that are not actors."""
    actors = sum(row["alive"] and not row["name"].startswith("client.") for row in status["actors"])
    return max(total(status, "registrar", "peer_count") - max(actors - 1, 0), 0)
