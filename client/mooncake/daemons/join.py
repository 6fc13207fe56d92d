"""Makes the node of one host a peer of the nodes of other hosts: it joins the master at its main port, with a common secret.

The protocol is three lines of JSON over TCP. The master sends {"sluice": VERSION, "instance": NAME, "challenge": HEX} (without challenge
it serves only its own host). The joining host sends {"join": TEXT, "mac": HEX}, where TEXT is {"name", "key", "port", "challenge"}. The
master replies {"nodes": TEXT, "mac": HEX}, where TEXT is a list of {"name", "key", "control"}, its own entry with "port" instead; or
{"error": TEXT}. A mac is HMAC-SHA256 with the secret over "join" or "nodes", the other side's challenge and TEXT, each ended by a line
feed. The address of a joining host is the source address of its connection. The secret itself is never sent.

A directory keeps what a host has learned: NODE.secret and NAME.pub as the transporter reads them (setting cluster_keys), `peers` with
addresses (setting peers_file), `name` and `port` of this host. Files of other origin are refused and not changed. No values or keys are
sent over the port."""

import asyncio
import hashlib
import hmac
import ipaddress
import json
import os
import random
import re
import secrets
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from mooncake.daemons.daemon import keep_file, log, make_directory, read_file, remove_leftovers, write_file
from mooncake.daemons.flags import Failure
from mooncake.daemons.http import ConnectionCounts, address_of, own_address
from mooncake.places import split_address

MEMBERS_MAX = 64
LINE_BYTES_MAX = 32768
CONNECTIONS_MAX = 64
OF_ONE_ADDRESS = CONNECTIONS_MAX // 4  # connections that have not proved the secret
GREET_S, LINE_S, JOIN_S, LINGER_S = 3, 5, 10, 1
JOIN_PAUSE_S = 0.2
JOIN_AGAIN_S = 5
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}")
KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")  # Z85
HEX = re.compile("[0-9a-f]{64}")


class Refused(Failure):
    """No process listens at the master's port."""


def control_is_fine(text: str) -> bool:
    """Whether the text is IP:PORT of one machine, IPv6 in brackets."""
    at = split_address(text) if len(text) <= 128 else None
    try:
        return at is not None and "%" not in text and (":" in at[0]) == text.startswith("[") and int(ipaddress.ip_address(at[0])) != 0
    except ValueError:
        return False


@dataclass
class Member:
    name: str
    key: str
    control: str  # "": not known

    def check(self) -> None:
        if not NAME.fullmatch(self.name):
            raise Failure(f"'{self.name[:40]}' is not a name of a node")
        if not KEY.fullmatch(self.key):
            raise Failure(f"the key of '{self.name}' is not a public key")
        if self.control and not control_is_fine(self.control):
            raise Failure(f"'{self.control[:80]}' is not IP:PORT of '{self.name}'")


class Members:
    """The nodes of a cluster, in memory and in the directory. quiet_s: if there are MEMBERS_MAX, a new node replaces one that was silent
    for this time; the removal of its NAME.pub revokes its access."""

    def __init__(self, directory: str, quiet_s: float, ctl: str):
        """ctl: path of sluicectl, which makes keys."""
        make_directory(directory)
        remove_leftovers(directory, rf"peers|port|name|{NAME.pattern}\.(?:pub|secret)")
        self.directory, self.quiet_s, self._ctl = directory, quiet_s, ctl
        self.at: Dict[str, Member] = {}
        self.heard: Dict[str, float] = {}
        self.own: Dict[str, str] = {}  # files of this host that keep its identity over restarts
        known = self._load()
        self.name = self._own_name()
        for member in known[:MEMBERS_MAX]:
            if member.name != self.name:
                self.at[member.name] = member
                self.heard[member.name] = time.monotonic()
        self.key = self._own_key()
        self._write_peers()

    def _path(self, file: str) -> str:
        return f"{self.directory}/{file}"

    def _own_name(self) -> str:
        try:
            name = read_file(self._path("name")).partition("\n")[0]
        except FileNotFoundError:
            host = re.sub("[^A-Za-z0-9]", "-", socket.gethostname())[:24]
            name = f"{host if host[:1].isalnum() else 'node'}-{secrets.token_hex(3)}"
            write_file(self._path("name"), name)
        if not NAME.fullmatch(name):
            raise Failure(f"'{self._path('name')}' does not contain a name of a node: remove it")
        self.own["name"] = name
        return name

    def _own_key(self) -> str:
        path = self._path(self.name + ".secret")
        if not os.path.exists(path):
            made = subprocess.run([self._ctl, "keygen", self.directory, self.name], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  timeout=20, check=False)
            if made.returncode != 0:
                raise Failure(made.stderr.strip().removeprefix("sluicectl keygen: ") or "sluicectl keygen failed")
        text = read_file(path)
        found = re.search(r"^public = (\S{40})$", text, re.MULTILINE)
        if not found:
            raise Failure(f"key file '{path}' does not contain a key pair")
        self.own[self.name + ".secret"] = text
        self.own[self.name + ".pub"] = f"public = {found[1]}\n"
        write_file(self._path(self.name + ".pub"), self.own[self.name + ".pub"], 0o644)
        return found[1]

    def _key_of(self, name: str) -> str:
        """Returns the key in NAME.pub; "": there is no such file."""
        try:
            return read_file(self._path(name + ".pub")).removeprefix("public = ").rstrip("\n")
        except FileNotFoundError:
            return ""

    def _load(self) -> List[Member]:
        """Returns the members of an earlier start. Skips nodes without a key, which join again. Raises Failure for foreign lines."""
        known = []
        try:
            lines = read_file(self._path("peers")).splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            name, _, control = line.partition("@")
            if not NAME.fullmatch(name) or not control_is_fine(control):
                raise Failure(f"'{self._path('peers')}': '{line[:80]}' was not written here: name another --cluster_dir, or remove the file")
            member = Member(name, self._key_of(name), control)
            if KEY.fullmatch(member.key):
                known.append(member)
        return known

    def _peers(self) -> str:
        return "".join(f"{one.name}@{one.control}\n" for one in self.at.values() if one.control)

    def _write_peers(self) -> None:
        write_file(self._path("peers"), self._peers())

    def keep(self) -> None:
        """Restores files that a cleaner removed. Other hosts' NAME.pub are not restored: removing one shuts that host out."""
        keep_file(self._path("peers"), self._peers())
        for file, text in self.own.items():
            keep_file(self._path(file), text, 0o644 if file.endswith(".pub") else 0o600)

    def hear(self, name: str) -> None:
        if name in self.at:
            self.heard[name] = time.monotonic()

    def add(self, member: Member) -> bool:
        """Adds a node that has proved the secret; it replaces one of its name. Skips this node. True: something changed. Raises
        Failure."""
        member.check()
        if member.name == self.name:
            return False
        before = self.at.get(member.name)
        member.control = member.control or (before.control if before else "")
        put = self._key_of(member.name) if before is None else ""
        if KEY.fullmatch(put) and put != member.key:
            raise Failure(f"'{self._path(member.name + '.pub')}' contains another key than the '{member.name}' that joins: remove it")
        if before is None and len(self.at) == MEMBERS_MAX:
            self._make_room()
        self.heard[member.name] = time.monotonic()
        if before == member:
            return False
        # The line in peers is written before the key: a line without a key is ignored, but a key without a line would stay forever. A
        # node that could not be written is not added, so that it is tried again.
        self.at[member.name] = member
        try:
            self._write_peers()
            if before is None or before.key != member.key:
                write_file(self._path(member.name + ".pub"), f"public = {member.key}\n")
        except OSError:
            self.at.pop(member.name)
            if before:
                self.at[member.name] = before
            raise
        return True

    def _make_room(self) -> None:
        oldest = min(self.at, key=lambda name: self.heard[name])
        if time.monotonic() - self.heard[oldest] < self.quiet_s:
            raise Failure(f"the cluster has {MEMBERS_MAX + 1} nodes, and each was active in the last {int(self.quiet_s)} s")
        try:
            os.unlink(self._path(oldest + ".pub"))
        except FileNotFoundError:
            pass
        del self.at[oldest], self.heard[oldest]


# ---- lines

def mac_of(secret: str, what: str, challenge: str, text: str) -> str:
    return hmac.new(secret.encode(), f"{what}\n{challenge}\n{text}\n".encode(), hashlib.sha256).hexdigest()


def _text(line: Dict[str, Any], name: str) -> str:
    value = line.get(name)
    return value if isinstance(value, str) else ""


def proved(secret: str, what: str, challenge: str, line: Dict[str, Any]) -> bool:
    text, mac = _text(line, what), _text(line, "mac")
    return hmac.compare_digest(mac_of(secret, what, challenge, text).encode(), mac.encode("utf-8", "replace")) and text != ""


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("duplicate names")
    return dict(pairs)


def parse_line(data: bytes) -> Dict[str, Any]:
    """Parses one flat object of texts and numbers. Refuses nesting before parsing, since any peer can send it. Raises Failure."""
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)
    try:
        if b"[" in bare or bare.count(b"{") > 1:
            raise ValueError("nesting")
        line = json.loads(data, object_pairs_hook=_unique)
        if isinstance(line, dict):
            return line
    except (ValueError, RecursionError):
        pass
    raise Failure("the line is not a flat JSON object")


async def read_line(reader: asyncio.StreamReader, within_s: float) -> Dict[str, Any]:
    try:
        data = await asyncio.wait_for(reader.readline(), within_s)
    except asyncio.TimeoutError as error:
        raise Failure("the other side did not answer in time") from error
    except ValueError as error:
        raise Failure(f"a line of more than {LINE_BYTES_MAX} bytes") from error
    except ConnectionError as error:
        raise Failure(f"the connection ended: {error}") from error
    if not data.endswith(b"\n"):
        raise Failure("the other side closed the connection")
    return parse_line(data)


async def send_line(writer: asyncio.StreamWriter, line: Dict[str, Any]) -> None:
    writer.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), LINE_S)


def _control_of(address: Any, port: Any) -> str:
    """Returns IP:PORT of a host at this socket address."""
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise Failure("a node without a port")
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


# ---- the main port of a daemon

class Port:
    """Greets each connection and, in a cluster, lets hosts join. A connection ends within seconds. New connections displace those that
    have not proved the secret: the oldest of an address that has 16, or, at 64 connections, the oldest of the address with the most."""

    def __init__(self, version: str, instance: str, cluster: Optional["Cluster"] = None, greet_s: float = 0):
        self.version, self.instance, self.cluster, self.greet_s = version, instance, cluster, greet_s or GREET_S
        self._unauthenticated = ConnectionCounts(OF_ONE_ADDRESS)
        self._here: Dict[asyncio.StreamWriter, "asyncio.Task[Any]"] = {}
        self._server: Optional[asyncio.AbstractServer] = None

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=LINE_BYTES_MAX, backlog=1024)

    async def close(self) -> None:
        if self._server:
            self._server.close()
        tasks = list(self._here.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _push(self, writer: Optional[asyncio.StreamWriter]) -> bool:
        if writer is None:
            return False
        self._unauthenticated.remove(writer)
        self._here.pop(writer, None)
        writer.transport.abort()
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._here) >= CONNECTIONS_MAX and not self._push(self._unauthenticated.crowded()):
            writer.transport.abort()
            return
        self._here[writer] = asyncio.current_task()
        self._push(self._unauthenticated.add(writer, address_of(writer.get_extra_info("peername"))))
        try:
            await self._talk(reader, writer)
            writer.write_eof()  # a close with unread input would discard the last line
            await asyncio.wait_for(reader.read(2 * LINE_BYTES_MAX), LINGER_S)
        except (OSError, asyncio.TimeoutError, Failure):
            pass  # a probe, or a peer that has disconnected
        finally:
            self._unauthenticated.remove(writer)
            self._here.pop(writer, None)
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        challenge = secrets.token_hex(32)
        greeting = {"sluice": self.version, "instance": self.instance}
        await send_line(writer, {**greeting, "challenge": challenge} if self.cluster else greeting)
        if self.cluster is None:
            return
        line = await read_line(reader, self.greet_s)
        try:
            if not proved(self.cluster.secret, "join", challenge, line):
                raise Failure("another secret, or none")
            self._unauthenticated.remove(writer)
            answer = self.cluster.take(line["join"], writer.get_extra_info("peername"))
        except (Failure, OSError) as error:
            answer = {"error": str(error)}
        await send_line(writer, answer)


class Cluster:
    """This host's membership in a cluster. join: (host, port) of the master to join; None: this one is the master."""

    def __init__(self, secret: str, directory: str, quiet_s: float, join: Optional[Tuple[str, int]], ctl: str):
        # 0: members that the master no longer lists can be replaced at once, since its table has the same size.
        self.secret, self.join = secret, join
        self.members = Members(directory, 0 if join else quiet_s, ctl)
        self.control_port = self._own_port()
        self.ip = ""

    async def open(self, address: str) -> None:
        """Joins, waits for the master for JOIN_S, and sets this host's address (--cluster_address; "": automatic). Raises Failure."""
        until = time.monotonic() + JOIN_S
        while self.join:  # the port of a master that is starting opens when its node is ready
            try:
                await self.join_once(JOIN_S)
                break
            except Refused:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(JOIN_PAUSE_S)
        if address and not control_is_fine(f"[{address}]:1" if ":" in address else f"{address}:1"):
            raise Failure(f"--cluster_address: '{address[:64]}' is not an IP address")
        self.ip = f"[{address}]" if ":" in address else address or self.ip or own_address() or ""
        if not self.ip:
            raise Failure("this host has no IPv4 address for other hosts: set --cluster_address")

    def settings(self) -> List[Tuple[str, str]]:
        directory = self.members.directory
        return [("node_name", self.members.name), ("cluster_keys", directory), ("peers_file", directory + "/peers"),
                ("cluster_listen", f"{self.ip}:{self.control_port}"), ("fabric", "tcp"), ("fabric_address", self.ip), ("peer_removes", "true")]

    def _own_port(self) -> int:
        """Returns the port of an earlier start, so that the node's settings do not change; else a free one. Ports that the system uses
        for outgoing connections are avoided: they could be taken at a restart."""
        try:
            with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
                first, last = map(int, file.read().split())
        except (OSError, ValueError):
            first, last = 32768, 60999  # the kernel's own default
        path = self.members.directory + "/port"
        try:
            text = read_file(path).rstrip("\n")
            if not re.fullmatch("[1-9][0-9]{0,4}", text) or int(text) > 65535:
                raise Failure(f"'{path}' does not contain a port: remove it")
            if not first <= int(text) <= last:
                self.members.own["port"] = text + "\n"
                return int(text)
        except FileNotFoundError:
            pass
        for port in [*random.SystemRandom().sample([port for port in range(10000, 65536) if not first <= port <= last] or [0], 1) * 256, 0]:
            with socket.socket() as one:
                try:
                    one.bind(("0.0.0.0", port))
                except OSError:
                    continue
                port = one.getsockname()[1]
            self.members.own["port"] = f"{port}\n"
            write_file(path, f"{port}\n")
            return port
        raise Failure("this host has no free port for other hosts")

    # ---- the master's side
    def take(self, text: str, peer: Any) -> Dict[str, Any]:
        """Handles a join whose sender has proved the secret, and returns the reply. Raises Failure, OSError."""
        try:
            join = json.loads(text, object_pairs_hook=_unique)
            member = Member(_text(join, "name"), _text(join, "key"), _control_of(peer, join.get("port")))
            challenge = _text(join, "challenge")
        except (ValueError, AttributeError, RecursionError, Failure) as error:
            raise Failure("a join without name, key, port or challenge") from error
        if not HEX.fullmatch(challenge):
            raise Failure("a join without name, key, port or challenge")
        if self.members.add(member):
            log("info", f"host '{member.name}' joined the cluster")
        nodes = json.dumps([{"name": self.members.name, "key": self.members.key, "port": self.control_port}] +
                           [{"name": one.name, "key": one.key, "control": one.control} for one in self.members.at.values()], separators=(",", ":"))
        return {"nodes": nodes, "mac": mac_of(self.secret, "nodes", challenge, nodes)}

    # ---- the side that joins
    async def join_once(self, within_s: float) -> bool:
        """Joins, or joins again, and adds the other nodes. True: something changed. Raises Failure."""
        host, port = self.join
        try:
            return await asyncio.wait_for(self._join(host, port), within_s)
        except asyncio.TimeoutError as error:
            raise Failure(f"master {host}:{port}: the other side did not answer in time") from error

    async def _join(self, host: str, port: int) -> bool:
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES_MAX)
        except OSError as error:
            kind = Refused if isinstance(error, ConnectionRefusedError) else Failure
            raise kind(f"master {host}:{port}: {error.strerror or error}") from error
        try:
            here = ipaddress.ip_address(writer.get_extra_info("sockname")[0].partition("%")[0])
            here = getattr(here, "ipv4_mapped", None) or here
            self.ip = self.ip or (f"[{here}]" if here.version == 6 else str(here))
            return await self._ask(reader, writer)
        except ConnectionError as error:
            raise Failure(f"master {host}:{port}: the connection ended: {error}") from error
        finally:
            writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        greeting = await read_line(reader, JOIN_S)
        theirs, ours = _text(greeting, "challenge"), secrets.token_hex(32)
        if not _text(greeting, "sluice"):
            raise Failure("the other side is not a master of Sluice")
        if not HEX.fullmatch(theirs):
            raise Failure("the master serves only its own host: start it with MOONCAKE_CLUSTER_SECRET")
        text = json.dumps({"name": self.members.name, "key": self.members.key, "port": self.control_port, "challenge": ours}, separators=(",", ":"))
        await send_line(writer, {"join": text, "mac": mac_of(self.secret, "join", theirs, text)})
        line = await read_line(reader, JOIN_S)
        if _text(line, "error"):
            raise Failure(f"the master refused: {_text(line, 'error')[:120]}")
        if not proved(self.secret, "nodes", ours, line):
            raise Failure("the master has another secret")
        return self._take_nodes(line["nodes"], writer.get_extra_info("peername"))

    def _take_nodes(self, text: str, master: Any) -> bool:
        try:
            nodes = json.loads(text)
            if not isinstance(nodes, list) or len(nodes) > MEMBERS_MAX + 1:
                raise ValueError("no list")
            members = [Member(_text(node, "name"), _text(node, "key"), _text(node, "control") if "control" in node else
                              _control_of(master, node.get("port"))) for node in nodes]
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise Failure("the master's list of nodes is invalid") from error
        for member in members:  # first refresh known members, before a new one replaces a silent one
            self.members.hear(member.name)
        return any([self.members.add(member) for member in members])

    async def keep_joining(self) -> None:
        """Joins again periodically until cancelled, so that each host learns of hosts that joined later."""
        away = False
        while self.join:
            await asyncio.sleep(JOIN_AGAIN_S)
            try:
                changed = await self.join_once(JOIN_S)
            except (Failure, OSError) as error:
                if not away:
                    log("warn", f"the cluster's master is not reachable: {error}")
                away = True
                continue
            if away:
                log("info", "the cluster's master is reachable again")
            elif changed:
                log("info", "another host joined the cluster")
            away = False


def open_directory(told: str, instance: str, runtime_dir: str) -> str:
    """Returns a directory where name and keys of this host survive a reboot: --cluster_dir, else the user's state directory. If that
    cannot be written, the runtime directory."""
    state, home = os.environ.get("XDG_STATE_HOME", ""), os.environ.get("HOME", "")
    own = (os.path.abspath(told) if told else (f"{state}/sluice/{instance}/cluster" if state.startswith("/") else f"/var/lib/sluice/{instance}/cluster" if os.geteuid() == 0
                    else f"{home}/.local/state/sluice/{instance}/cluster" if home.startswith("/") else ""))
    try:
        if own:
            make_directory(own)
            return own
    except OSError as error:
        if told:
            raise Failure(f"--cluster_dir '{told}': {error.strerror}") from error
    return runtime_dir + "/cluster"
