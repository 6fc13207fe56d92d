"""Several real nodes, each in a network namespace of its own, joined by a bridge. Namespaces and bridge end with their processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import shutil

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "node"))

import node_support  # noqa: E402
from node_support import CTL, NODE, PACE, PATIENCE, PD_ENGINES, Node, wait_until, workload  # noqa: E402,F401

# More settings of every node, to run the same tests with other settings.
EVERYWHERE = os.environ.get("SL_CLUSTER_SETTINGS", "").split()
CONTROL_PORT = 7411
FABRIC_PORT = 7412
REDIS_PORT = 7413


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def counter(node, actor, name):
    status = json.loads(node.ctl("status", "--pages").stdout)
    return next(row for row in status["actors"] if row["name"] == actor)["counters"][name]


def cpu_of(pid):
    """CPU seconds of its threads."""
    ran = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as stat:
                ran += int(stat.read().split()[0])
        except FileNotFoundError:  # a worker of the kernel that has ended
            pass
    return ran / 1e9


def wait_alive(node, name):
    def state():
        done = node.ctl("nodes", "--json", check=False)
        rows = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
        return any(row["name"] == name and row["state"] == "alive" for row in rows)
    wait_until(state, 10, f"{name} alive at {node.name}")


class Namespace:
    """A network namespace, held by a process in it that ends with this one at the latest."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        ours = os.readlink("/proc/self/ns/net")
        wait_until(lambda: self.holder.poll() is not None or os.readlink(f"/proc/{self.holder.pid}/ns/net") != ours, 5,
                   "a network namespace")
        if self.holder.poll() is not None:
            raise OSError("no network namespaces for this user (run as root)")

    def enter(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def run(self, command):
        done = run(*self.enter(), "sh", "-c", command)
        if done.returncode != 0:
            raise OSError(f"{command}: {done.stdout.strip()}")
        return done.stdout

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdin.close()


class Network:
    """A bridge, and a namespace at each of its ports. The address of port i is 10.98.0.(i + 1)."""

    def __init__(self, ports):
        self.spaces = []
        try:
            self.hub = Namespace()
            self.spaces.append(self.hub)
            self.hub.run("ip link add sl-br type bridge && ip link set sl-br up")
            self.ports = []
            for i in range(ports):
                space = Namespace()
                self.spaces.append(space)
                self.ports.append(space)
                self.hub.run(f"ip link add sl-p{i} type veth peer name sl-e{i}"
                             f" && ip link set sl-p{i} master sl-br up"
                             f" && ip link set sl-e{i} netns {space.holder.pid}")
                space.run(f"ip addr add {self.address(i)}/24 dev sl-e{i} && ip link set sl-e{i} up && ip link set lo up")
        except OSError:
            self.close()
            raise

    @staticmethod
    def address(port):
        return f"10.98.0.{port + 1}"

    def cut(self, port):
        self.hub.run(f"ip link set sl-p{port} down")

    def mend(self, port):
        self.hub.run(f"ip link set sl-p{port} up")

    def close(self):
        for space in self.spaces:
            space.close()


class ClusterNode(Node):
    """A node in a namespace; its commands run there too."""

    def __init__(self, network, port, name, settings=(), **options):
        super().__init__(settings=["--node-name", name, *settings], **options)
        self.network, self.port, self.name = network, port, name

    def supervisor(self, command, *arguments, check=True, timeout=60 * PATIENCE):
        done = subprocess.run([*self.network.ports[self.port].enter(), NODE, command, *arguments, *self.where],
                              env=self.environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"sluice-node {command} gave {done.returncode}:\n{done.stdout}\n{self.logs()}")
        return done

    def ctl_start(self, *arguments):
        return subprocess.Popen([CTL, *arguments, *self.where], env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def kill(self):
        """The machine dies: the supervisor first, so that no actor is restarted."""
        with open(self.directory + "/run/supervisor.pid", encoding="utf-8") as line:
            os.kill(int(line.read().split()[0]), signal.SIGKILL)
        for pid, *_ in self.processes().values():
            if pid != 0:
                os.kill(pid, signal.SIGKILL)

    def listening(self):
        """Sockets that listen on any network interface of the namespace, loopback included."""
        return [line for line in self.network.ports[self.port].run("ss -Htlnu").splitlines() if line.strip()]


class Redis:
    """A redis-server at the bridge for all nodes; this process uses a socket."""

    ADDRESS = "10.98.0.250"

    def __init__(self, network):
        self.network = network
        self.directory = tempfile.mkdtemp(prefix="sl-redis-")
        self.socket = self.directory + "/redis"
        self.url = f"redis://{self.ADDRESS}:{REDIS_PORT}"
        self.process = None
        network.hub.run(f"ip addr add {self.ADDRESS}/24 dev sl-br")

    def start(self):
        self.process = subprocess.Popen([
            *self.network.hub.enter(), "redis-server", "--bind", self.ADDRESS, "--port", str(REDIS_PORT), "--unixsocket",
            self.socket, "--protected-mode", "no", "--dir", self.directory, "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL)
        wait_until(lambda: self.say("PING") == b"+PONG\r\n", 20, "redis-server answers")

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        shutil.rmtree(self.directory, ignore_errors=True)

    def say(self, *words):
        """The reply to one command, raw; b"": no server."""
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words) + "*1\r\n$4\r\nQUIT\r\n"
        reply = b""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                connection.connect(self.socket)
                connection.sendall(request.encode())
                while chunk := connection.recv(65536):
                    reply += chunk
        except (FileNotFoundError, ConnectionError):
            return b""
        return reply[:-len(b"+OK\r\n")]


class Cluster:
    """Nodes a, b, ... that are peers of each other. Use as a context manager."""

    def __init__(self, count, settings=(), unknown_node=None, memory="128MiB", ranks=1, disk="0", use_directory=False,
                 twin=None):
        """twin: the name of a node of which another one with its keys exists, cluster.twin, that the test starts.
        unknown_node: a node that knows the others' addresses and keys, but is unknown to them. use_directory: no peer is configured;
        all are found in a redis-server of the cluster's (cluster.redis)."""
        self.directory = tempfile.mkdtemp(prefix="sl-keys-")
        self.names = [chr(ord("a") + i) for i in range(count)]
        self.network = Network(count + (twin is not None))
        peers = ",".join(f"{name}@{Network.address(i)}:{CONTROL_PORT}" for i, name in enumerate(self.names)
                         if name != unknown_node)
        for name in self.names:
            made = run(CTL, "keygen", os.path.join(self.directory, name), name)
            if made.returncode != 0:
                self.network.close()
                raise AssertionError(f"no keys of {name}: {made.returncode}, {made.stdout}")
        for name in self.names:
            for other in self.names:
                if other != unknown_node:
                    self.allow(name, other)
        self.redis = Redis(self.network) if use_directory else None
        known = ["--directory", "redis", "--directory-url", self.redis.url] if use_directory else ["--peers", peers]
        self.nodes = []
        self.twin = None
        for i, name in enumerate(self.names + [twin] * (twin is not None)):
            self.nodes.append(ClusterNode(self.network, i, name, memory=memory, ranks=ranks, disk=disk, settings=[
                *known,
                "--cluster-listen", f"{Network.address(i)}:{CONTROL_PORT}",
                "--cluster-keys", os.path.join(self.directory, name),
                "--fabric", "tcp", "--fabric-address", f"{Network.address(i)}:{FABRIC_PORT}",
                "--peer-timeout", f"{1000 * PACE}ms", "--fabric-progress-timeout", f"{2 * PACE}s", *EVERYWHERE, *settings]))
        if twin is not None:
            self.twin = self.nodes.pop()

    def allow(self, name, other):
        """Puts the public key of `other` where `name` looks for keys."""
        if name != other:
            shutil.copy(os.path.join(self.directory, other, f"{other}.pub"), os.path.join(self.directory, name))

    def __enter__(self):
        try:
            if self.redis is not None:
                self.redis.start()
            for node in self.nodes:
                node.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *_):
        for node in [*self.nodes, *([self.twin] if self.twin is not None else [])]:
            node.__exit__()
        if self.redis is not None:
            self.redis.kill()
            self.redis.close()
        self.network.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def missing():
    """Why these tests cannot run here; None if they can."""
    for program in ("ip", "nsenter", "unshare", "ss"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        Network(1).close()
    except OSError as error:
        return str(error)
    return None


def main():
    why = missing()
    if why is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    node_support.main()
