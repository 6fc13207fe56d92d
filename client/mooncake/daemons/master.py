"""mooncake_master: a node of Sluice in place of Mooncake's master."""

import asyncio
import os
import socket
import sys
import time
from typing import List, Optional, Tuple

from mooncake.daemons import http
from mooncake.daemons.admin import Admin
from mooncake.daemons.daemon import PeriodicCheck, Programs, log, run, secret
from mooncake.daemons.flags import MASTER, Failure, Flags
from mooncake.daemons.join import Cluster, Port, open_directory
from mooncake.daemons.node import MIB, Node, Taken
from mooncake.http_metadata_server import metadata_routes
from mooncake.places import instance_joined, split_address

ABOUT = """Runs a node of Sluice in place of Mooncake's master: clients of this host find it by its port.
SIGTERM and SIGINT end the node and delete its memory. If this process is killed, its successor takes the node over.
SLUICE_NAME in the environment overrides the setting NAME of the node (sluicectl config --help).
Exit codes: 0 stopped, 1 failed, 2 wrong use."""
START_TICK_S, TICK_S = 0.2, 5  # between checks of a node that starts, and of one that serves
SLOW_S = 10  # after this, a node that is not ready is logged


class Master:
    def __init__(self, flags: Flags):
        self.flags = flags
        self.listeners: List[Tuple[socket.socket, str, int]] = []
        self.trouble = ""
        self.was_ready = False
        self.kept = PeriodicCheck()
        self.taken: Optional[Taken] = None
        self.taken_since: Optional[float] = None

    # ---- ports
    def _host(self, flag: str) -> str:
        """Address for a port: that of the flag, else listen_host."""
        return self.flags[flag] or self.flags["listen_host"]

    def _bind(self, host: str, port: int, interface: str = "") -> socket.socket:
        listener = http.listen_socket(host, port, interface)
        self.listeners.append((listener, host, port))
        return listener

    def bind(self) -> None:
        """Binds all ports first, so that a port in use is found before anything starts. No request is answered yet."""
        flags = self.flags
        joined = secret("MOONCAKE_CLUSTER_SECRET") is not None and not flags["rpc_address"]
        self.rpc_host = "0.0.0.0" if joined else self._host("rpc_address")  # hosts that join must prove that they know the secret
        self.rpc_port = flags["rpc_port"] or flags["port"]
        self.rpc: Optional[socket.socket] = self._bind(self.rpc_host, self.rpc_port, flags["rpc_interface"])
        self.admin_socket = self._bind(self._host("metrics_host"), flags["metrics_port"])
        self.metadata_socket = None
        if flags["enable_http_metadata_server"]:
            self.metadata_socket = self._bind(self._host("http_metadata_server_host"), flags["http_metadata_server_port"])
        for listener, host, port in self.listeners[1:]:
            try:
                listener.listen(1024)
            except OSError as error:
                raise http.listen_error(error, host, port) from error

    # ---- the node
    async def open(self) -> None:
        flags, join = self.flags, None
        instance = os.environ.get("SLUICE_INSTANCE") or f"mooncake-{self.rpc_port}"
        if flags["join"]:
            join = split_address(flags["join"])
            if join is None:
                raise Failure(f"'{flags['join'][:128]}' is not HOST:PORT of a master")
            instance = os.environ.get("SLUICE_INSTANCE") or instance_joined(*join)
        programs = Programs()
        self.node = Node(flags, programs, instance)
        await self.node.open()
        self.cluster = await self._open_cluster(join, programs)
        await self.node.start(self.cluster.settings() if self.cluster else [])
        self.port = Port(programs.version(), instance, self.cluster, flags["rpc_conn_timeout_seconds"] / 1000)
        self.admin = Admin(programs, instance, http.address_text(self.rpc_host, self.rpc_port), self.node.disk_bytes, self.open_port)

    async def open_port(self) -> None:
        """Opens the main port; called once the node is ready."""
        if self.rpc is not None:
            listener, self.rpc = self.rpc, None
            await self.port.start(listener)

    async def _open_cluster(self, join: Optional[Tuple[str, int]], programs: Programs) -> Optional[Cluster]:
        known = secret("MOONCAKE_CLUSTER_SECRET")
        if known is None and join:
            raise Failure("--join needs the cluster's secret: MOONCAKE_CLUSTER_SECRET or MOONCAKE_CLUSTER_SECRET_FILE, the same on all hosts")
        if known is None:
            return None
        directory = open_directory(self.flags["cluster_dir"], self.node.instance, self.node.runtime_dir)
        cluster = Cluster(known, directory, self.flags["member_ttl"] / 1000, join, programs.ctl)
        await cluster.open(self.flags["cluster_address"])
        return cluster

    async def serve(self, ended: asyncio.Event) -> None:
        flags, node = self.flags, self.node
        guard = http.Guard(secret("MOONCAKE_ADMIN_TOKEN"), tuple(flags["allowed_origins"].split(",")) if flags["allowed_origins"] else ())
        servers = [http.Server(self.admin.routes(), guard)]
        await servers[0].start(self.admin_socket)
        if self.metadata_socket:
            # Other hosts write to the metadata server.
            servers.append(http.Server(metadata_routes(), guard._replace(open_without_token=True, token=None if flags["metadata_open"] else guard.token)))
            await servers[1].start(self.metadata_socket)
        joining = asyncio.create_task(self.cluster.keep_joining()) if self.cluster else None
        log("info", f"node '{node.instance}': port {self.rpc_port}, admin http at port {flags['metrics_port']}")
        if node.room_bytes is not None and node.memory_bytes > node.room_bytes:
            log("warn", f"clients may contribute {node.memory_bytes // MIB} MiB, but shared memory had only {node.room_bytes // MIB} MiB free: "
                        "df -h /dev/shm")
        try:
            await self._watch(ended)
        finally:
            for server in servers:
                await server.close()
            if joining:
                joining.cancel()
            failed = node.died.is_set() and not ended.is_set()
            try:
                if not failed:
                    await self._stop()  # before the port closes, so that a free port means that no node has this name
            finally:
                await self.port.close()
                self.admin.close()

    async def _watch(self, ended: asyncio.Event) -> None:
        """Runs until a signal arrives or the supervisor ends."""
        events = [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(self.node.died.wait())]
        since = asyncio.get_running_loop().time()
        slow = False
        while not ended.is_set():
            if self.node.died.is_set():
                self._supervisor_died()
                return
            ready, why = await self.admin.ready()
            now = asyncio.get_running_loop().time()
            if not ready and not self.was_ready and not slow and now - since > SLOW_S:
                slow = True
                log("warn", f"node '{self.node.instance}' is still not ready: {why}; logs are in {self.node.log_dir}")
            if ready != self.was_ready:
                since, slow = now, False
            self._note(ready, why)
            self._look()
            if self.taken:
                raise self.taken
            await asyncio.wait(events, timeout=TICK_S if ready else START_TICK_S, return_when=asyncio.FIRST_COMPLETED)
        for event in events:
            event.cancel()
        log("info", f"stopping node '{self.node.instance}'")

    async def _stop(self) -> None:
        """Ends the node, unless another master has its lock, or had it at the last successful check."""
        before = self.taken_since
        self._look()
        if not (self.taken or self.taken_since or (before and self.kept.trouble)):
            await self.node.stop()

    def _look(self) -> None:
        self.kept.look(self._keep_names, f"files of node '{self.node.instance}' cannot be kept")

    def _keep_names(self) -> None:
        """Restores removed files. Another master owns the node if it holds the lock for a whole tick; until then it may still fail."""
        try:
            self.node.keep_names()
            self.taken_since = None
            if self.cluster:
                self.cluster.members.keep()
        except Taken as error:
            now = time.monotonic()
            self.taken_since = self.taken_since or now
            if now - self.taken_since >= TICK_S:
                log("error", f"{error}, since the lock file of this one was removed: this one ends and leaves the node to it")
                self.taken = error
            raise
        except OSError:
            self.taken_since = None
            raise

    def _note(self, ready: bool, why: str) -> None:
        node = self.node
        if ready and why != self.trouble:
            log("warn" if why else "info", f"node '{node.instance}': {why or 'works normally again'}")
            self.trouble = why
        if ready and not self.was_ready:
            log("info", f"node '{node.instance}' is ready{' (it was already running)' if node.adopted else ''}: {node.memory_bytes // MIB} MiB memory, "
                        f"{node.disk_bytes // MIB} MiB disk")
        if self.was_ready and not ready:
            log("warn", f"node '{node.instance}' is not ready: {why}")
        self.was_ready = ready

    def _supervisor_died(self) -> None:
        node = self.node
        log("error", f"the supervisor of node '{node.instance}', process {node.supervisor}, ended; its output is in {node.log_dir}/supervisor.out")
        raise Failure(f"node '{node.instance}' {'lost its supervisor' if self.was_ready else 'did not start'}: {node.last_words()}")


async def _master(flags: Flags, ended: asyncio.Event) -> None:
    master = Master(flags)
    try:
        master.bind()
        await master.open()
        await master.serve(ended)
    finally:
        if hasattr(master, "node"):
            master.node.close()
        for listener, _, _ in master.listeners:
            listener.close()


def main(words: Optional[List[str]] = None) -> int:
    return run("mooncake_master", MASTER, ABOUT, _master, words)


if __name__ == "__main__":
    sys.exit(main())
