"""mooncake_client: contributes memory to the node of a mooncake_master on this host while it runs. setup_dummy finds the node by its
port."""

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import time
from typing import List, Optional, Tuple

from mooncake.daemons import http, library
from mooncake.daemons.admin import Admin, json_answer
from mooncake.daemons.daemon import PeriodicCheck, Programs, log, make_directory, remove_leftovers, run, write_file
from mooncake.daemons.flags import CLIENT, Failure, Flags
from mooncake.daemons.join import Port
from mooncake.daemons.node import MIB
from mooncake.places import advice, instance_of_master, sign_of_client

ABOUT = """Contributes memory to the node of a mooncake_master on this host as long as it runs.
Exit codes: 0 stopped, 1 failed, 2 wrong use."""
TICK_S = 1
START_S, START_PAUSE_S = 30, 0.2  # to wait for a master that starts at the same time


class Contributor:
    def __init__(self, flags: Flags):
        self.flags = flags
        self.name = http.address_text(flags["host"], flags["port"])  # of the contribution
        self.length = flags["global_segment_size"]
        self.node: Optional[library.Node] = None
        self.contributed = False
        self.listeners: List[Tuple[socket.socket, str, int]] = []
        self.sign, self.kept = "", PeriodicCheck()

    def bind(self) -> None:
        """Binds all ports, so that a port in use is found before anything is contributed. No request is answered yet."""
        host = self.flags["host"] or "127.0.0.1"
        for port in [self.flags["port"]] + ([self.flags["http_port"]] if self.flags["enable_http_server"] else []):
            self.listeners.append((http.listen_socket(host, port), host, port))

    def listen(self) -> None:
        """Listens before the sign file is written: another process with this port keeps its own sign file."""
        for listener, host, port in self.listeners:
            try:
                listener.listen(1024)
            except OSError as error:
                raise http.listen_error(error, host, port) from error

    # ---- contributing
    def _contribute(self) -> None:
        self.node = self.node or library.Node(self.instance, self.programs.bin)
        if self.length:
            self.node.contribute(self.name, self.length)

    def _is_contributed(self) -> bool:
        """Whether the node has the contribution. The client library repeats it at a new node by itself; this only checks."""
        try:
            return self.node is not None and any(one.name == self.name and one.pid == os.getpid() for one in self.node.segments())
        except library.NodeError:
            return False

    def _contribute_again(self) -> None:
        was, self.contributed, why = self.contributed, self._is_contributed(), "the node does not have it"
        if not self.contributed:
            try:
                self._contribute()
                self.contributed = True
            except library.NodeError as error:
                why = str(error)
                if error.code == library.LIMIT and self.node:  # the client has seen too many restarts of nodes
                    self.node.close()
                    self.node = None
        if self.contributed != was:
            log("info" if self.contributed else "warn", f"segment '{self.name}': {'the node has it again' if self.contributed else why}")

    async def contribute_first(self, ended: asyncio.Event) -> None:
        """Contributes; waits for a master that is starting. Raises Failure."""
        until, told = time.monotonic() + START_S, False
        while not ended.is_set():
            try:
                await asyncio.to_thread(self._contribute)
                self.contributed = True
                return
            except library.NodeError as error:
                if error.code not in (library.UNREACHABLE, library.TIMEOUT) or time.monotonic() > until:
                    raise Failure(advice(self.flags["master_server_address"]) if error.code == library.UNREACHABLE else str(error)) from error
            if not told:
                log("info", f"waiting for node '{self.instance}'")
                told = True
            try:
                await asyncio.wait_for(ended.wait(), START_PAUSE_S)
            except asyncio.TimeoutError:
                pass

    async def check_offload(self) -> None:
        """Reads the size of the disk tier from the node's settings file, next to its sockets. Raises Failure if it is missing."""
        path = self.runtime_dir + "/mooncake-master.conf"
        self.disk_bytes = 0
        if os.access(path, os.R_OK):
            self.disk_bytes = int(json_value(await self.programs.run("config", "--json", "--config", path), "disk"))
        if self.flags["enable_offload"] and not self.disk_bytes:
            raise Failure(f"--enable_offload: node '{self.instance}' has no disk tier: start mooncake_master with --enable_offload and "
                          "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH")

    def put_sign(self) -> None:
        """Writes the node's name to a file that setup_dummy finds by the port, wherever the node has its own files."""
        self.sign = sign_of_client(self.flags["port"])
        directory, name = os.path.split(self.sign)
        make_directory(directory)
        remove_leftovers(directory, re.escape(name))
        write_file(self.sign, self.instance + "\n")

    def keep_sign(self) -> None:
        """Writes the file again if a cleaner removed it."""
        if not os.path.lexists(self.sign):
            self.put_sign()

    # ---- serving
    async def health(self, _: http.Request) -> http.Answer:
        ready, why = await self.admin.ready()
        return json_answer(200 if ready else 503, {"status": "ok" if ready else "waiting", "segment": self.name, "instance": self.instance, "reason": why})

    async def life(self, ended: asyncio.Event) -> None:
        self.programs = Programs()
        self.instance = instance_of_master(self.flags["master_server_address"])
        self.runtime_dir = json_value(await self.programs.run("config", "--json", "--instance", self.instance), "runtime_dir")
        await self.contribute_first(ended)
        if ended.is_set():
            return
        await self.check_offload()
        self.admin = Admin(self.programs, self.instance, self.name, self.disk_bytes)
        server = http.Server([http.Route("/health", ("GET",), self.health), http.Route("/metrics", ("GET",), self.admin.metrics),
                              http.Route("/metrics/summary", ("GET",), self.admin.summary)])
        port = Port(self.programs.version(), self.instance)
        try:
            self.listen()
            self.put_sign()
            await port.start(self.listeners[0][0])
            for listener, _, _ in self.listeners[1:]:
                await server.start(listener)
            log("info", f"segment '{self.name}' of {self.length // MIB} MiB is ready at node '{self.instance}'")
            while not ended.is_set():
                try:
                    await asyncio.wait_for(ended.wait(), TICK_S)
                except asyncio.TimeoutError:
                    self.kept.look(self.keep_sign, f"'{self.sign}' was removed, and cannot be written again")
                    if self.length:
                        await asyncio.to_thread(self._contribute_again)
        finally:
            await server.close()
            await port.close()
            self.admin.close()

    def end(self) -> None:
        if self.sign:
            with contextlib.suppress(OSError):  # a cleaner may have removed the directory, and another user made it again
                if os.stat(os.path.dirname(self.sign)).st_uid == os.geteuid():
                    os.unlink(self.sign)
        if self.node and self.contributed and self.length:
            try:
                self.node.withdraw(self.name)
            except library.NodeError as error:
                log("warn", f"segment '{self.name}': {error}")
        if self.node:
            self.node.close()
        for listener, _, _ in self.listeners:
            listener.close()


def json_value(said: bytes, name: str) -> str:
    return json.loads(said)[name]["value"]


async def _client(flags: Flags, ended: asyncio.Event) -> None:
    lender = Contributor(flags)
    try:
        lender.bind()
        await lender.life(ended)
    finally:
        lender.end()


def main(words: Optional[List[str]] = None) -> int:
    return run("mooncake_client", CLIENT, ABOUT, _client, words)


if __name__ == "__main__":
    sys.exit(main())
