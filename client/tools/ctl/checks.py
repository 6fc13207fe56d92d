"""The checks of `sluicectl doctor` and of `sluicectl config --check`, which each start of a node runs. Facts that need C come from doctor.c at
standard input. The checks change nothing, except that the check of a disk writes and removes a file of one page.

    python3 checks.py text|json|start < FACTS
"""

import contextlib
import errno
import fcntl
import json
import math
import mmap
import os
import re
import resource
import socket
import struct
import sys
import time

from node import events_at, fabric_memory
from plain import clean, interruptible, run, size_text
from plain import supervision as supervised

OK, WARN, FAIL = "ok", "warn", "fail"
MIB = 1 << 20
HEADER = 4 * MIB  # of a shm file, at most
CORE_WAIT_S, CORE_WAIT_SHARE = 2, 1 / 20  # an actor that waited longer for a core, and for a larger share of its life, is slowed down
MTU_SMALL = 4200  # fits a path MTU of 4096 and its headers
SIOCGIFADDR, CAP_IPC_LOCK, CAP_SYS_RESOURCE = 0x8915, 14, 24


def line(check, level, text, mend=""):
    return check, level, text, "" if level == OK else mend


def judged(fine, works=False):
    return OK if fine else WARN if works else FAIL


def existing(path):
    """The path, or the nearest existing directory above it; "": none."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path) if path != "/" else ""
    return path


def free(path):
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def used(path):
    """Bytes of the files in a directory. A file that is removed meanwhile is not counted."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512 if entry.is_file(follow_symlinks=False) else 0
    return total


# ---- limits of the machine, a container and the shell ----

def unlimited(value):
    return math.inf if value < 0 else value


def mib(size):
    return "any" if size == math.inf else f"{-(-size // MIB)} MiB"


def shell_limits(pid, root=""):
    """Resource limits of a process, as set by its shell or unit; -1: no limit."""
    def limit(which, hard=False, lifted_by=None):
        try:
            return -1 if lifted_by is not None and able >> lifted_by & 1 else resource.prlimit(pid, which)[hard]
        except OSError:
            return -1

    able = 0
    with contextlib.suppress(OSError), open(f"{root}/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        able = int((re.search(r"(?m)^CapEff:\s*([0-9a-f]+)$", file.read()) or "00")[1], 16)
    return {"file_bytes": limit(resource.RLIMIT_FSIZE), "data_bytes": limit(resource.RLIMIT_DATA), "address_bytes": limit(resource.RLIMIT_AS),
            "descriptors": limit(resource.RLIMIT_NOFILE, hard=True),  # an actor raises its soft limit to this
            "locked_bytes": limit(resource.RLIMIT_MEMLOCK, lifted_by=CAP_IPC_LOCK), "threads": limit(resource.RLIMIT_NPROC, lifted_by=CAP_SYS_RESOURCE)}


def index_and_actors(facts):
    return facts["settings"]["memory"] + facts["needs"]["index"] + facts["needs"]["room"]


def descriptors(facts):
    """A mailbox needs a few for each attached process: lanes, doorbells, pidfd. Actors raise their limit to the hard limit."""
    settings, needs, most = facts["settings"], facts["needs"], unlimited(facts["limits"]["descriptors"])
    least = 64 + 8 * (settings["ranks"] + needs["disk_paths"])
    files = settings["disk"] // max(1, needs["disk_paths"] * needs["disk_segment"])  # of one disk; at 3/4 of the limit the oldest are removed
    want = max(8 * settings["clients_max"] + settings["fabric_connections_max"] + 64, files * 4 // 3)
    return judged(most >= want, most >= least), "any number of descriptors" if most == math.inf else \
        f"RLIMIT_NOFILE allows a process {most} descriptors; the node needs {least}, and up to {want} with clients_max, fabric_connections_max and log files"


def clients(facts):
    """All actors except the registrar are attached to it, as clients are."""
    most, actors = facts["settings"]["clients_max"], facts["needs"]["actors"]
    return judged(most >= actors), f"{most} processes may attach, {actors - 1} of them are actors"


def memory_limit(facts):
    memory, kills, needs = facts["limits"]["memory"], facts["limits"]["oom_kills"], facts["needs"]
    most, want = unlimited(memory["most"]), index_and_actors(facts)
    if most == math.inf:
        return OK, "no limit of a cgroup on memory"
    killed = f", and the kernel has killed {kills} processes there because memory ran out" if kills else ""
    return judged(want <= most and not kills, want <= most), \
        f"memory {mib(facts['settings']['memory'])}, index {mib(needs['index'])} and {mib(needs['room'])} for actors need {mib(want)}; " \
        f"{memory['file']} allows {mib(most)}{killed}"


def processes(facts):
    """Threads of a node with its supervisor and tools: 3 to 7 for each actor, more with threads that copy. A running node has its threads already."""
    limit, want = facts["limits"]["processes"], 24 + 8 * facts["needs"]["actors"]
    most, name = min((unlimited(limit["most"]), limit["file"]), (unlimited(facts["limits"]["threads"]), "RLIMIT_NPROC"))
    left = most if facts["running"] else min(most, unlimited(limit["left"]))  # the number of processes that the user has is not checked
    return judged(left >= want), "no limit on processes" if left == math.inf else \
        f"the node needs {want} threads and processes; {name} has {left} left of {most}"


def core_limit(facts):
    cores = facts["limits"]["cores"]
    most = unlimited(cores["most"])  # thousandths
    return judged(most >= 1000, True), "no limit of a cgroup on cores" if most == math.inf else f"{cores['file']} allows {most // 10 / 100:.2f} cores"


def allowed(what, wanted, limit, most):
    return judged(wanted <= unlimited(most)), f"{what} {mib(wanted)}; {limit} allows {mib(unlimited(most))}"


def file_size(facts):
    """The largest file that the node creates with these settings."""
    settings, needs = facts["settings"], facts["needs"]
    files = {"memory": settings["memory"] + HEADER, "the index": needs["index"] + HEADER, "clients' counts": needs["counts"],
             "trace_events": needs["page"], "disk_segment": needs["disk_segment"],
             "record_max": settings["record_max"] if settings["record"] else 0, "log_bytes_max": settings["log_bytes_max"] // 2}
    name = max(files, key=files.get)
    return allowed(f"the file for {name} has", files[name], "RLIMIT_FSIZE", facts["limits"]["file_bytes"])


def memlock(facts):
    locked = facts["settings"]["memory"] if facts["settings"]["fabric"] == "verbs" else 0
    return allowed("the fabric locks", locked, "RLIMIT_MEMLOCK", facts["limits"]["locked_bytes"])


def addresses(facts):
    return allowed("memory, index and actors need", index_and_actors(facts), "RLIMIT_AS", facts["limits"]["address_bytes"])


def data(facts):
    return allowed("an actor needs", 192 * MIB, "RLIMIT_DATA", facts["limits"]["data_bytes"])


def called(why):
    return judged(not why), why or "available"


def pidfd(facts):
    return called(facts["calls"]["pidfd"])


def io_uring(facts):
    why = facts["calls"]["io_uring"]
    return (OK, "not needed: no disk and not fabric = tcp") if why is None else called(why)


LIMITS = (
    ("descriptors", descriptors, "raise the hard limit: ulimit -Hn, or LimitNOFILE= of the unit"),
    ("clients_max", clients, "raise clients_max, so that clients can attach"),
    ("memory_limit", memory_limit, "raise the limit (docker --memory, resources.limits.memory, MemoryMax=), or lower memory, index_memory, or settings "
                                   "above their default (trace_events, staging)"),
    ("processes", processes, "raise pids.max (docker --pids-limit, podPidsLimit, TasksMax=) or ulimit -u"),
    ("core_limit", core_limit, "raise cpu.max (docker --cpus, resources.limits.cpu, CPUQuota=)"),
    ("file_size", file_size, "ulimit -f unlimited, or LimitFSIZE=infinity of the unit"),
    ("memlock", memlock, "ulimit -l unlimited, or LimitMEMLOCK=infinity of the unit"),
    ("addresses", addresses, "ulimit -v unlimited, or LimitAS=infinity of the unit"),
    ("data", data, "ulimit -d unlimited, or LimitDATA=infinity of the unit"),
    ("pidfd", pidfd, "use Linux 5.3 or later, and a seccomp profile that allows pidfd_open: docker 20.10 or later, or --security-opt seccomp=FILE"),
    ("io_uring", io_uring, "sysctl kernel.io_uring_disabled=0; in a container, use a seccomp profile that allows io_uring_setup, _enter and _register"),
)


def limits(facts):
    for name, check, mend in LIMITS:
        yield line(name, *check(facts), mend)


# ---- memory ----

def pages(facts):
    return facts["needs"]["page"] * facts["needs"]["actors"]


def memory(facts):
    shm, settings = facts["shm_dir"], facts["settings"]
    at, own = existing(shm), used(shm)
    if not at:
        yield line("memory", FAIL, f"no directory above '{shm}' exists", "mount a tmpfs there, or set shm_dir")
        return
    left, least = free(at), settings["memory"] + pages(facts)
    want = least + facts["needs"]["index"]
    # With large values the index stays far below index_memory.
    yield line("memory", judged(left + own >= want, left + own >= least + settings["index_memory"]),
               f"{size_text(left)} free at {at}, {size_text(own)} used by this node; memory, index_memory and trace_events need up to {size_text(want)}",
               "mount -o remount,size=N /dev/shm, or lower memory or index_memory")


def flight_recorders(facts):
    """The actors' flight recorders have their full size from the start."""
    at, want = existing(facts["shm_dir"]), pages(facts)
    room = free(at) + used(facts["shm_dir"]) if at else want
    yield line("trace_events", judged(want <= room), f"the actors' flight recorders need {size_text(want)}; {at} has {size_text(room)}", "lower trace_events")


def huge_pages(facts):
    if facts["huge"]:
        yield line("huge_pages", judged(facts["huge"][0], True), facts["huge"][1],
                   "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or mount the tmpfs with huge=advise")


# ---- the running node ----

def node(facts):
    asked, name = facts["node"], facts["settings"]["instance"]
    other = asked.get("of_other")
    if not facts["running"]:
        yield line("node", judged(not other, True), f"no node of this user runs under the name '{name}'{', but another user has ' if other else ''}"
                   f"{other or ''}: checking the settings given here", "run this command as that user, or as root")
    elif "file" in asked:
        yield line("node", OK, f"running; checking the settings of '{asked['file']}'")
    elif asked["why"]:
        yield line("node", WARN, f"running, but its settings cannot be read ({asked['why']})", "name its settings file: --config FILE")
    else:
        yield line("node", OK, f"running; checking its settings{'' if asked['as_is'] else ', with those given here'}")


def supervisor(facts):
    found = facts["supervisor"]
    if found["state"] == "supervised":
        yield line("supervisor", OK, f"process {found['pid']}")
    elif found["state"] != "none":
        yield line("supervisor", WARN, *supervised(found, facts["settings"]["instance"]))


def cores(facts):
    """How long the actors were ready to run but had no core."""
    waits = []
    for actor in facts["actors"]:
        try:
            with open(f"/proc/{actor['pid']}/schedstat", encoding="ascii") as file:
                wait_s = int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            continue
        if actor["alive"] and not actor["name"].startswith("client."):
            late = wait_s > CORE_WAIT_S and wait_s > actor["uptime_s"] * CORE_WAIT_SHARE
            waits.append((late, wait_s, actor["name"], actor["uptime_s"]))  # actors over the limit come first
    if waits:
        late, wait_s, name, life_s = max(waits)
        yield line("cores", judged(not late, True), f"{name} was ready to run and had no core for {wait_s:.2f} s of its {life_s:.2f} s",
                   "reserve a core for the node, raise its CPU limit, start it with CAP_SYS_NICE or LimitNICE=, or sysctl kernel.sched_autogroup_enabled=0")


def device(facts):
    why = facts["device"]
    yield line("device", judged(not why), why or facts["settings"]["device"], "set device = host, or install a driver and a GPU for each rank")


# ---- disks ----

def direct_try(directory):
    """Tries to write a page with O_DIRECT in the directory. Gives errno; 0: it works."""
    path = f"{directory}/.doctor-{os.urandom(6).hex()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        return error.errno
    try:
        os.unlink(path)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
        return 0 if os.pwrite(fd, mmap.mmap(-1, 4096), 0) == 4096 else errno.EIO
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)


def disk_direct(facts, at):
    code, wanted = direct_try(at), facts["settings"]["disk_direct"]
    if code == 0:
        yield line("disk_direct", OK, f"O_DIRECT works at {at}")
    elif code == errno.EINVAL:
        yield line("disk_direct", judged(not wanted, True), f"O_DIRECT does not work at {at}: files are read and written through the page cache", "put disk_path on ext4 or xfs")
    else:
        yield line("disk_direct", FAIL, f"cannot write at {at}: {os.strerror(code)}", "make this user the owner of the directory, or set disk_path")


def disk_running(facts, number, place, want):
    """A disk of the running node, as its tierer reports it."""
    name, mend = f"tierer.{number}", "see sluice-node status and logs, and fix the reason: the tierer then restarts by itself"
    tierer = next((actor for actor in facts["actors"] if actor["name"] == name), {"alive": False, "reason": ""})
    why = f": {tierer['reason']}" if tierer["reason"] else ""
    if not tierer["alive"]:
        return line("disk", FAIL, f"the disk '{place}' is not served: {name} does not run{why}", mend)
    own, left, fine = used(place), free(place), tierer["health"] == "ready"
    return line("disk", judged(fine and own + left >= want, True),
                f"{name} serves '{place}': {size_text(own)} used, {size_text(left)} free, its limit is {size_text(want)}{why}",
                "free some space, or restart the node with a lower disk" if fine else mend)


def disk(facts):
    disks, missing = facts["disks"], {}  # by device: bytes that earlier paths still need
    want = facts["settings"]["disk"] // len(disks)
    if facts["settings"]["disk"] == 0:
        yield line("disk", OK, "no disk tier (disk = 0)")
    elif facts["needs"]["disk_why"]:
        yield line("disk", FAIL, facts["needs"]["disk_why"], "set disk to 256 KiB to 8000 GiB for each path")
    else:
        for number, (place, why) in enumerate(disks):
            at = existing(place)
            if facts["node"]["as_is"]:
                yield disk_running(facts, number, place, want)
            elif why or not at:
                yield line("disk", FAIL, why or f"no directory above '{place}' exists", "set disk_path, or fix the directory")
            else:
                left, own, on = free(at), used(place), os.stat(at).st_dev
                others = missing.get(on, 0)
                missing[on] = others + max(want - own, 0)
                yield line("disk", judged(left >= missing[on]), f"'{place}': {size_text(left)} free, {size_text(own)} used by this node; this path needs "
                           f"{size_text(want)}{', others on the same device also need theirs' if others else ''}", "free some space, or lower disk")
                yield from disk_direct(facts, at)


# ---- NICs ----

def nic(port, bad):
    socket_text = f", socket {port['numa_node']}" if port["numa_node"] >= 0 else ""
    if port["state"] != "ACTIVE":
        yield line("nic", bad, f"{port['name']}: state '{port['state']}'", "connect the port, or ip link set DEVICE up")
        return
    speed = f"{port['speed_mbit_s'] / 1e3:g} Gbit/s" if port["speed_mbit_s"] else "?"
    yield line("nic", OK if port["usable"] else bad, f"{port['name']}: active, {port['layer']}, {speed}{socket_text}, {port['gids']} usable GIDs"
               f"{', virtual function' if port['virtual_function'] else ''}", "give its network device an address; the NIC must speak RoCE v2")
    if port["mtu_bytes"] and port["layer"] != "InfiniBand":
        small = port["mtu_bytes"] < MTU_SMALL
        yield line("mtu", judged(not small, True), f"{port['netdev']}: {port['mtu_bytes']} bytes{': packets of 1024 bytes instead of 4096' if small else ''}",
                   "ip link set DEVICE mtu 9000, also on switches and peers")


def nic_plan(facts):
    """With verbs: whether every rank has a usable port."""
    if not facts["nics"]["plan"]:
        yield line("nic_plan", FAIL, facts["nics"]["why"], "correct the settings nic and nic_by")
    for name, number in facts["nics"]["plan"]:
        port = facts["nics"]["ports"][number] if number >= 0 else None
        if not name:
            yield line("nic_plan", OK, "the first device with a usable port serves all ranks (nic = auto: nearest to each GPU)")
        elif port is None or not port["usable"]:
            yield line("nic_plan", FAIL, f"{name}: {'no such RDMA port' if port is None else 'not usable'}",
                       "correct the setting nic, or repair the NIC")
        else:
            yield line("nic_plan", OK, f"{name} serves ranks {','.join(str(row['rank']) for row in port['ranks'])}")


def nics(facts):
    wanted, ports = facts["settings"]["fabric"] == "verbs", facts["nics"]["ports"]
    none_works = wanted and not any(port["usable"] for port in ports)
    for port in ports:  # a single port that is down is no failure
        yield from nic(port, FAIL if none_works else WARN)
    if facts["nics"]["skipped"]:
        yield line("nic", WARN, f"{facts['nics']['skipped']} RDMA devices or ports have no usable name")
    if not ports:
        yield line("nic", judged(not wanted), f"no RDMA device{', but fabric = verbs' if wanted else ''}",
                   "load the NIC's driver (modprobe mlx5_ib, or rdma_rxe for a test), or set fabric = tcp")
    elif wanted:
        yield from nic_plan(facts)


def device_memory(facts):
    """Engines' device memory of the running node. With tcp it always passes through the node's memory."""
    mends = {"fabric": "install rdma-core 34 or later", "swapper": "needs a driver and a GPU that export dmabufs; see the transporter's log",
             "nic": "needs a NIC and a kernel that accept dmabufs; see the transporter's log"}
    found, verbs = fabric_memory(facts["actors"]), facts["settings"]["fabric"] == "verbs"
    if found["dmabuf_bytes"]:
        yield line("device_memory", OK, f"{size_text(found['dmabuf_bytes'])} registered by dmabuf")
    for row in found["left_out"]:
        yield line("device_memory", judged(not verbs, True), f"{size_text(row['bytes'])} pass through the node's memory: {row['why']}", mends[row["cause"]])


def libibverbs(facts):
    if facts["settings"]["fabric"] == "verbs":
        import ctypes  # only here: a start does not need it
        why = ""
        try:
            ctypes.CDLL("libibverbs.so.1")
        except OSError as error:
            why = str(error)
        yield line("libibverbs", judged(not why), why or "found", "deploy/install (libibverbs-dev ibverbs-providers)")


# ---- listening addresses ----

def cut(text, needs_port):
    """Host and port of HOST, HOST:PORT, [HOST] or [HOST]:PORT; port None: there is none. As in runtime/base/sl_address.h."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return (host, rest[1:] if rest else None) if rest[:1] in ("", ":") and "]" in text else ("", None)
    if ":" in text and (needs_port or text.count(":") == 1):
        return text.rpartition(":")[::2]
    return text, None


def sockaddr(host, port):
    """(family, (IP, port)); None: not such an address."""
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        return None
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family, (host, int(port))
    return None


def interface_ip(name):
    """The IP address of a network interface, or for "*" that of all; "": none."""
    if name == "*":
        return "0.0.0.0"
    request = struct.pack("16s24x", os.fsencode(name))
    if request[15]:
        return ""  # too long for an interface
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            return socket.inet_ntoa(fcntl.ioctl(any_socket, SIOCGIFADDR, request)[20:24])
        except OSError:
            return ""


def port_try(address):
    """errno of bind or listen; 0: it is free."""
    family, at = address
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(at)
            trial.listen(1)
    except OSError as error:
        return error.errno
    return 0


def listens(settings):
    """(setting, address) of each address at which transporters listen."""
    if settings["fabric"] == "tcp" and settings["fabric_address"]:
        yield from (("fabric_address", text.strip(" ")) for text in settings["fabric_address"].split(","))
    if settings["cluster_listen"]:
        yield "cluster_listen", settings["cluster_listen"]


def listen_try(setting, text, running, until):
    """errno; 0: this node could listen there. Tries an address that is in use again, until that time (monotonic)."""
    control = setting == "cluster_listen"
    host, port = cut(text, False)
    address = sockaddr(host, port if port is not None else "0")
    if address is None and control:  # also at an interface's name, or at *
        host, port = cut(text, True)
        address = sockaddr(interface_ip(host), port or "")
    if address is None or (control and address[1][1] == 0):
        return errno.EADDRNOTAVAIL
    code = port_try(address)
    while code == errno.EADDRINUSE and not running and time.monotonic() < until:
        time.sleep(0.02)
        code = port_try(address)
    return 0 if code == errno.EADDRINUSE and running else code


def ports(facts):
    places, whose = list(listens(facts["settings"])), "this node's" if facts["running"] else "free"
    until = time.monotonic() + 1  # for all of them: the kernel is late to close sockets that a killed process had in io_uring
    for setting, text in places:
        code = listen_try(setting, text, facts["running"], until)
        if code == 0:
            yield line("ports", OK, f"{setting} {text}: {whose}")
        else:
            what = " is not an address of this machine (ip addr)" if code == errno.EADDRNOTAVAIL else f": {os.strerror(code)}"
            yield line("ports", FAIL, f"{setting}: '{text}'{what}",
                       "choose another port, or end the process that has it (ss -ltnp)" if code == errno.EADDRINUSE else
                       "ports below 1024 need privileges: choose another" if code == errno.EACCES else
                       "cluster_listen = IP:PORT, INTERFACE:PORT or *:PORT" if setting == "cluster_listen" else
                       "fabric_address = IP or IP:PORT, or a list with commas")
    if not places:
        yield line("ports", OK, "nothing listens on a network")


def announced(facts):
    """The address that the directory announces to other nodes."""
    settings, cluster_facts = facts["settings"], facts["cluster"]
    if settings["cluster_listen"] and cluster_facts["guided"] and not cluster_facts["reached"]:
        name = "cluster_address" if settings["cluster_address"] else "cluster_listen"
        yield line("ports", FAIL, f"{name}: '{settings[name]}' is not an address that the directory can announce to other nodes",
                   "set cluster_address to the IP:PORT at which other nodes reach this one")


def helper_listens(setting, text, reads, mend):
    """Checks a setting with an address of a helper: whether it is free, and whether others can read there."""
    check, (host, port) = setting.partition("_")[0], cut(text, True)
    address = sockaddr(host, port or "")
    code = port_try(address) if address and address[1][1] else 0  # the helper resolves names
    if code:
        return line(check, FAIL, f"{setting} {text}: {os.strerror(code)}",
                    "choose another port, or end the process that has it (ss -ltnp); the node also runs without it" if code == errno.EADDRINUSE else
                    "set an IP:PORT of this machine, or local; the node also runs without it")
    inside = host in ("localhost", "::1") or (address is not None and host.startswith("127."))
    exposed = reads and not inside
    return line(check, judged(not exposed, True), f"{setting} {text}: free{'; anyone who reaches it can read ' + reads if exposed else ''}", mend)


def lacks(facts, program):
    return not os.access(f"{os.path.dirname(facts['program'])}/{program}", os.X_OK)


def metrics(facts):
    text, running = facts["settings"]["metrics_listen"], facts["running"]
    guarded = os.environ.get("SLUICE_METRICS_TOKEN") or os.environ.get("SLUICE_METRICS_TOKEN_FILE")
    if text == "off":
        yield line("metrics", OK, "off")
    elif facts["metrics_at"] is not None:
        yield line("metrics", OK, f"/metrics at {facts['metrics_at']['address']}")
    elif lacks(facts, "sluice-metrics"):
        yield line("metrics", WARN, "the program sluice-metrics is missing: /metrics is not served", "install it beside sluicectl")
    elif text != "local":
        yield helper_listens("metrics_listen", text, "" if guarded else "load and hit rates (no keys)",
                             "set SLUICE_METRICS_TOKEN_FILE, use a firewall, or set metrics_listen = local")
    else:
        yield line("metrics", judged(not running, True), "/metrics is not served" if running else "a local socket", "see metrics.out in the log directory")


def events(facts):
    text, running, at = facts["settings"]["events_listen"], facts["running"], facts["events_at"]
    if at is not None:
        yield line("events", OK, "at {}, missed events at {}".format(*events_at(at)))
    elif text == "off":
        yield line("events", OK, "off")
    elif lacks(facts, "sluice-events"):
        yield line("events", WARN, "the program sluice-events is missing: no events are published for routers", "install it beside sluicectl")
    elif text != "local":
        yield helper_listens("events_listen", text, "hashes of blocks and names of models", "use a network only for routers, a firewall, or set events_listen = local")
    else:
        yield line("events", judged(not running, True), "no events are published" if running else "local sockets", "see events.out in the log directory")


# ---- files with secrets or rights; other nodes ----

def key_files(facts):
    for right in facts["rights"]:
        yield line("key_files", judged(not right["why"]), f"{right['name']}: " + (right["why"] or f"'{right['path']}'"),
                   "create it, or correct the setting" if right["missing"] else "chown or chmod it, or run this command as its owner")
    if not facts["rights"]:
        yield line("key_files", OK, "none is configured")


def names(facts):
    """Reports of the running node about its peers: two nodes with one name, a peer whose key is missing."""
    transporter = next((actor for actor in facts["actors"] if actor["name"] == "transporter.0"), None)
    if not facts["running"] or transporter is None:
        return
    twice = transporter["counters"].get("names_twice", 0) > 0
    if transporter["health"] != "degraded":
        yield line("names", OK, "no two nodes with one name")
    else:
        yield line("names", FAIL if twice else WARN, transporter["reason"],
                   "give the refused node its own node_name and keys (sluicectl keygen), and restart it" if twice else
                   "see sluicectl nodes; copy NAME.pub again from a peer that is refused")


def keys(facts):
    """(level, text, mend) of each finding."""
    directory, name, found = facts["settings"]["cluster_keys"], facts["cluster"]["node"], facts["cluster"]["keys"]
    every = {other: (public, why) for other, public, why in found["all"]}
    others = {other: why for other, (_, why) in every.items() if other != name}
    secret = f"{directory}/{name}.secret"
    try:
        os.stat(directory)
    except OSError as error:
        yield FAIL, f"'{directory}': {error.strerror}", "create it with sluicectl keygen DIRECTORY NODE"
        return
    if found["open"]:
        yield FAIL, f"{found['open']}: anyone who can put a key there can connect", "chown and chmod the named path"
    elif found["why"]:
        yield FAIL, found["why"], \
            f"chown and chmod the named path; if it is not a key pair: remove '{secret}', run sluicectl keygen, and copy the new {name}.pub to all peers" \
            if os.path.exists(secret) else f"sluicectl keygen '{directory}' {name}, or set node_name"
    elif every.get(name, ("", ""))[0] not in ("", found["own"]):
        yield FAIL, f"'{directory}/{name}.pub' is not the public half of {name}.secret", "remove both, run sluicectl keygen, and copy the new .pub to all peers"
    else:
        for peer in found["peers"]:
            if others.get(peer):
                yield WARN, f"no connection to node {peer}: {others[peer]}", "copy NAME.pub unchanged from that node, or remove the node from peers"
        for other, (_, why) in every.items():
            if why and (other == name or other not in found["peers"]):
                yield WARN, why, "copy it again from its node, or remove it"
        count = sum(not why for why in others.values())
        yield judged(count, True), f"node {name} has its own key pair in '{directory}', and the keys of {count} others", "copy the NAME.pub of each peer there"


def cluster(facts):
    settings, found = facts["settings"], facts["cluster"]
    if not found["wanted"]:
        yield line("cluster_keys", OK, "no other nodes are configured (cluster_listen, peers, directory)")
        return
    yield from names(facts)
    if settings["fabric"] == "off":
        yield line("cluster_keys", FAIL, "other nodes are configured, but fabric is off: nothing carries bytes", "set fabric to tcp or verbs")
    if found["why"]:
        yield line("cluster_keys", FAIL, found["why"], "correct that setting: the node does not start with it")
    if not found["node"]:
        return  # reported above
    if settings["cluster_plaintext"]:
        yield line("cluster_keys", WARN, "plaintext: anyone who reaches this node can read all of its memory", "set cluster_plaintext = false and cluster_keys")
    elif not settings["cluster_keys"]:
        yield line("cluster_keys", FAIL, f"cluster_keys is not set: node {found['node']} has no keys",
                   "run sluicectl keygen DIRECTORY NODE, and set cluster_keys = DIRECTORY")
    else:
        yield from (line("cluster_keys", *finding) for finding in keys(facts))


def directory(facts):
    why, link = facts["directory"]["why"], facts["directory"]["link"]
    if facts["settings"]["directory"] == "embedded" and not why:
        yield line("directory", OK, "embedded: only this node")
    else:
        yield line("directory", judged(not why and not link), why or link or "redis answers", "correct the setting" if why else
                   "start redis-server there, and check directory_url, directory_password_file and firewalls")


# ---- memory that earlier nodes left, and that a logout would remove ----

def leftovers(facts):
    for path, size in facts["leftovers"]["found"]:
        yield line("leftovers", WARN, f"'{path}' holds {size_text(size)}, but its node does not run",
                   "start this instance to use it again, or remove the directory")
    if not facts["leftovers"]["found"]:
        yield line("leftovers", OK, f"none in {facts['leftovers']['in']}")


def logout_removes(root, user, uid):
    """Whether systemd-logind, by its files below root, removes the user's shared memory when the user's last session ends."""
    places = [f"{root}{place}/logind.conf" for place in ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")]
    if uid <= 999 or not os.path.exists(f"{root}/run/systemd/seats") or os.path.exists(f"{root}/var/lib/systemd/linger/{user}"):
        return False  # a system user; no logind, which makes that directory; or a user who lingers
    for place in list(places):
        with contextlib.suppress(OSError):
            places += [f"{place}.d/{name}" for name in sorted(os.listdir(place + ".d")) if name.endswith(".conf")]
    removes = True  # systemd's default
    for path in places:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                words = re.findall(r"(?m)^[ \t]*RemoveIPC[ \t]*=[ \t]*((?i:true|false|yes|no|on|off|1|0))\b", file.read())
        except OSError:
            continue
        removes = words[-1].lower() in ("true", "yes", "on", "1") if words else removes
    return removes


def logout(facts):
    import pwd  # only here: a start does not need it
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = ""
    removes = facts["shm_dir"].startswith("/dev/shm/") and logout_removes("", user, os.geteuid())
    yield line("logout", judged(not removes, True), f"systemd removes shared memory of user {user} when the last session ends (RemoveIPC): a node then "
               "restarts with empty memory" if removes else "shared memory outlives sessions",
               "loginctl enable-linger USER, or RemoveIPC=no in a file of /etc/systemd/logind.conf.d")


# ---- all checks ----

def refused(facts):
    """The error with which an actor would end."""
    if facts["refused"]:
        yield line("", FAIL, facts["refused"])


START = (limits, flight_recorders, refused, ports)
CHECKS = (node, supervisor, memory, huge_pages, cores, limits, device, disk, nics, device_memory, libibverbs, ports, announced, metrics, events, key_files, cluster,
          directory, leftovers, logout)


def decoded(value):
    """The facts; texts that are not UTF-8 arrive as "hex:..."."""
    if isinstance(value, dict):
        return {name: decoded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [decoded(one) for one in value]
    hexed = isinstance(value, str) and re.fullmatch("hex:((?:[0-9a-f]{2})+)", value)
    return os.fsdecode(bytes.fromhex(hexed[1])) if hexed else value


def json_text(text):
    return "hex:" + os.fsencode(text).hex() if any("\udc80" <= letter <= "\udcff" for letter in text) else text


def start(lines):
    """Prints what prevents a start."""
    said = [f"{'' if check in ('', 'ports') else check + ': '}{text}{'; ' if mend else ''}{mend}" for check, level, text, mend in lines if level == FAIL]
    for text in said:
        print(text, file=sys.stderr)
    return 1 if said else 0


def guarded(check, facts):
    """The lines of a check. If the check itself fails, a line reports the failure, and later checks still run."""
    try:
        yield from check(facts)
    except Exception as error:  # also a bug of ours
        name = check.__name__
        yield line(name, FAIL, f"the check of {name} failed: {type(error).__name__}: {error}", "fix what it names, or report it")


def main():
    how, facts, count = sys.argv[1], decoded(json.load(sys.stdin)), {OK: 0, WARN: 0, FAIL: 0}
    facts["limits"].update(shell_limits(facts["pid"] or os.getpid()))
    lines = (row for check in (START if how == "start" else CHECKS) for row in guarded(check, facts))
    if how == "start":
        return start(lines)
    shown = []
    for check, level, text, mend in lines:
        count[level] += 1
        shown.append({"check": check, "level": level, "text": json_text(text), "mend": json_text(mend)})
        if how == "text":
            print(clean(f"{level:<5}{check:<14}{text}"))
            if mend:
                print(clean(f"{'':19}-> {mend}"))
    if how == "text":
        print(f"{count[OK]} ok, {count[WARN]} warnings, {count[FAIL]} failed")
    else:
        print(json.dumps({"ok": count[FAIL] == 0, "running": facts["running"], "checks": shown}, separators=(",", ":")))
    return 1 if count[FAIL] else 0


if __name__ == "__main__":
    interruptible()
    run(main)
