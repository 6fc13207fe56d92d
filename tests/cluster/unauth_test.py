"""A host that is only in the network: a port scan of nodes and masters from another namespace, and connections that take all places while a
peer joins, connects and fetches."""

import json
import os
import subprocess
import sys
import tempfile
import shutil
import time
import unittest

from cluster_support import (CONTROL_PORT, FABRIC_PORT, PATIENCE, Cluster, ClusterNode, Network, main, wait_alive, wait_until)
from node_support import BIN

MASTER = os.path.join(BIN, "mooncake_master")
RPC_PORT, ADMIN_PORT, METADATA_PORT = 50051, 9003, 8080

# Prints the TCP ports of an address on which a process listens: all 65535 are tried, some thousands at a time.
SCAN = r"""
import errno, select, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
address = socket.getaddrinfo(sys.argv[1], 1, family, socket.SOCK_STREAM)[0][4]
poll, waiting, found, refused = select.epoll(), {}, [], 0
ports = iter(range(1, 65536))
more = True
while more or waiting:
    while more and len(waiting) < 900:
        port = next(ports, None)
        more = port is not None
        if more:
            one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            code = one.connect_ex((address[0], port, *address[2:]))
            if code == errno.EINPROGRESS:
                waiting[one.fileno()] = (one, port)
                poll.register(one.fileno(), select.EPOLLOUT)
            elif code == 0:
                found.append(port)
            elif code == errno.ECONNREFUSED:
                refused += 1
            else:
                sys.exit(f"port {port}: {errno.errorcode.get(code, code)}")
    ready = poll.poll(10)
    if waiting and not ready:
        sys.exit(f"{len(waiting)} ports say nothing, such as {[port for _, port in waiting.values()][:5]}")
    for fd, _ in ready:
        one, port = waiting.pop(fd)
        code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        found += [port] if code == 0 else []
        refused += code == errno.ECONNREFUSED
        one.close()
assert refused + len(found) == 65535, (refused, found)
print(*found)
"""

# Keeps `held` connections to each port, from each address in turn, for as long as the other side allows, and immediately opens closed
# ones again. A byte now and then looks like a slow handshake. Prints a line when all were attempted.
FLOOD = r"""
import select, socket, sys
to, ports, sources, held = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(","), int(sys.argv[4])
poll, ones, number = select.epoll(), {}, 0
def connect(port):
    global number
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    one.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    one.bind((sources[number % len(sources)], 0))
    one.connect_ex((to, port))
    ones[one.fileno()] = (one, port)
    poll.register(one.fileno(), select.EPOLLIN | select.EPOLLET)
    number += 1
def over(one):
    try:
        return one.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
for _ in range(held):
    for port in ports:
        connect(int(port))
print(number, flush=True)
while True:
    for fd, _ in poll.poll():
        one, port = ones[fd]
        if over(one):
            del ones[fd]
            one.close()
            connect(port)
        elif number % 5 == 0:
            try:
                one.send(b"\xff")
            except OSError:
                pass
"""


def scan(network, port, address):
    """Open TCP ports of an address, as seen from this port of the network."""
    done = subprocess.run([*network.ports[port].enter(), sys.executable, "-c", SCAN, address], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the scan of {address} ended with {done.returncode}: {done.stderr}")
    return [int(word) for word in done.stdout.split()]


def udp_answers(network, port, address, ports):
    """Those of these UDP ports that are not reported as unreachable. The host reports most (icmp_ratelimit), and is asked three times."""
    program = ("import errno, socket, sys\n"
               "for port in map(int, sys.argv[2].split(',')):\n"
               "    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
               "    one.connect((sys.argv[1], port))\n"
               "    try:\n"
               "        for wait in (0.1, 0.5, 2):\n"
               "            one.settimeout(wait)\n"
               "            one.send(b'x')\n"
               "            try:\n"
               "                one.recv(1)\n"
               "            except TimeoutError:\n"
               "                pass\n"
               "        print(port)\n"
               "    except ConnectionRefusedError:\n"
               "        pass\n")
    done = subprocess.run([*network.ports[port].enter(), sys.executable, "-c", program, address, ",".join(map(str, ports))],
                          stdout=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=True)
    return [int(word) for word in done.stdout.split()]


def link_local(network, port):
    """The link-local IPv6 address of each interface, as the other ports address it."""
    def found():
        for line in network.ports[port].run(f"ip -6 -o addr show dev sl-e{port} scope link").splitlines():
            if "tentative" not in line:
                return line.split("inet6 ")[1].split("/")[0]
        return None
    return wait_until(found, 10, "an address of IPv6")


class Scan(unittest.TestCase):
    def setUp(self):
        self.network = Network(2)
        self.addCleanup(self.network.close)
        self.network.ports[0].run("sysctl -qw net.ipv4.icmp_ratelimit=0")

    def listeners(self):
        return [line.split()[4] for line in self.network.ports[0].run("ss -Htlnu").splitlines()]

    def assert_closed(self):
        """No port answers, by IPv4 or IPv6, TCP or UDP; a scan would find a listener (test_a_scan_finds_...)."""
        self.assertEqual(scan(self.network, 1, Network.address(0)), [])
        self.assertEqual(scan(self.network, 1, f"{link_local(self.network, 0)}%sl-e1"), [])
        self.assertEqual(udp_answers(self.network, 1, Network.address(0), [*range(1, 65536, 331), RPC_PORT, ADMIN_PORT]), [])

    def test_of_a_node_with_defaults_nothing_is_found(self):
        node = ClusterNode(self.network, 0, "a")
        node.settings = ["--ranks", "2", "--memory", "64MiB", "--disk", "64MiB", "--disk-path", node.directory + "/disk"]
        with node:
            node.wait_ready()
            self.assertEqual(self.listeners(), [])
            self.assert_closed()

    def test_a_scan_finds_what_listens(self):
        program = ("import socket, time\n"
                   "tcp, udp = socket.create_server(('', 47001)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                   "udp.bind(('', 47002))\n"
                   "print(flush=True)\n"
                   "time.sleep(1e6)\n")
        with subprocess.Popen([*self.network.ports[0].enter(), sys.executable, "-c", program], stdout=subprocess.PIPE) as somebody:
            try:
                somebody.stdout.readline()
                self.assertEqual(scan(self.network, 1, Network.address(0)), [47001])
                self.assertEqual(udp_answers(self.network, 1, Network.address(0), [47001, 47002, 47003]), [47002])
            finally:
                somebody.kill()

    @unittest.skipUnless(os.path.exists(MASTER), "mooncake_master was not built")
    def test_a_master_with_defaults_answers_loopback_alone(self):
        directory = tempfile.mkdtemp(prefix="sl-mc-")
        shm = f"/dev/shm/sluice-test-scan-{os.getpid()}"
        self.addCleanup(shutil.rmtree, directory, True)
        self.addCleanup(shutil.rmtree, shm, True)
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("SLUICE_", "MOONCAKE_", "MC_"))}
        environment.update(SLUICE_RUNTIME_DIR=directory + "/run", SLUICE_SHM_DIR=shm, XDG_RUNTIME_DIR=directory,
                           XDG_STATE_HOME=directory + "/state")
        with open(directory + "/log", "w+b") as log:
            master = subprocess.Popen([*self.network.ports[0].enter(), MASTER, "--memory=128mb", "--enable_http_metadata_server=true"],
                                      env=environment, stdout=log, stderr=log)
            try:
                wait_until(lambda: master.poll() is not None or self.answers("/health", ADMIN_PORT), 30, "the master answers")
                self.assertIsNone(master.poll())
                self.assertTrue(self.answers("/metadata?key=k", METADATA_PORT, 404))
                self.assertEqual(sorted(self.listeners()), sorted(f"127.0.0.1:{port}" for port in (RPC_PORT, ADMIN_PORT, METADATA_PORT)))
                self.assert_closed()
            finally:
                master.terminate()
                master.wait(timeout=60 * PATIENCE)

    def answers(self, path, port, status=200):
        program = ("import sys, urllib.error, urllib.request\n"
                   "try:\n"
                   "    print(urllib.request.urlopen(sys.argv[1], timeout=5).status)\n"
                   "except urllib.error.HTTPError as error:\n"
                   "    print(error.code)\n")
        done = subprocess.run([*self.network.ports[0].enter(), sys.executable, "-c", program, f"http://127.0.0.1:{port}{path}"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return done.stdout.split() == [str(status).encode()]


class Flood(unittest.TestCase):
    """A host between two nodes takes all places that it can get at both ports of one of them, from many addresses, and keeps trying."""

    SOURCES = [f"10.98.0.{i}" for i in range(100, 200)]

    def flood(self, cluster, sources):
        for source in sources:
            cluster.network.ports[2].run(f"ip addr add {source}/24 dev sl-e2")
        program = [*cluster.network.ports[2].enter(), sys.executable, "-c", FLOOD, Network.address(0), f"{FABRIC_PORT},{CONTROL_PORT}",
                   ",".join(sources), "900"]
        flood = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # its addresses must exist first
        self.addCleanup(flood.stdout.close)
        self.addCleanup(flood.wait)
        self.addCleanup(flood.kill)
        self.assertGreaterEqual(int(flood.stdout.readline()), 1800)
        return flood

    def among(self, sources):
        with Cluster(3, settings=["--fabric-progress-timeout", "10min"]) as cluster:  # unauthenticated connections must not delay it
            a, b, c = cluster.nodes
            c.stop()  # the flood uses its place in the network
            b.stop()
            value = os.urandom(3 << 20)
            a.ctl("put", "before", "-", stdin=value)
            flood = self.flood(cluster, sources)
            begin = time.monotonic()
            b.start()
            wait_alive(b, "a")
            wait_until(lambda: b.ctl("get", "before", "-", check=False).stdout == value, 10, "a value arrives at b")
            for i in range(20):  # the link stays
                a.ctl("put", f"k{i}", "-", stdin=value[i:])
                wait_until(lambda: b.ctl("get", f"k{i}", "-", check=False).stdout == value[i:], 10, f"k{i} arrives at b")
            rows = {row["name"]: row for row in json.loads(b.ctl("nodes", "--json").stdout)["nodes"]}
            self.assertEqual(rows["a"]["state"], "alive")
            self.assertIsNone(flood.poll())
            sys.stderr.write(f"joined and read 21 values within {time.monotonic() - begin:.1f} s ... ")

    def test_a_peer_joins_and_fetches_among_strangers_of_one_address(self):
        self.among(self.SOURCES[:1])

    def test_a_peer_joins_and_fetches_among_strangers_of_many_addresses(self):
        self.among(self.SOURCES)


if __name__ == "__main__":
    main()
