"""Facts about this machine: driver, device, link, modes, memory. Prints one line of JSON; fails where there is no GPU, since a
check-up without one must not pass."""

import glob
import json
import os
import platform
import resource
import shutil
import subprocess
import sys

from driver import ATTRIBUTES, COMPUTE_MODES, Driver, DriverError

SMI_FIELDS = ("driver_version", "pcie.link.gen.max", "pcie.link.gen.current", "pcie.link.width.max", "pcie.link.width.current",
              "compute_mode", "mig.mode.current", "persistence_mode", "memory.used")
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # a lane of each generation, one way, without the coding overhead
SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s, as in sysfs


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def smi_asked(address, fields):
    done = subprocess.run(["nvidia-smi", f"--id={address}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=10, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(fields, values)) if done.returncode == 0 and len(values) == len(fields) else None


def smi(address):
    """{field: text} of nvidia-smi, {} if it is not installed; without the fields that it does not know."""
    if shutil.which("nvidia-smi") is None:
        return {}
    found = {}
    try:
        found = smi_asked(address, SMI_FIELDS)
        if found is None:  # one field that an old nvidia-smi does not know makes all of its output an error
            found = {}
            for field in SMI_FIELDS:
                found.update(smi_asked(address, (field,)) or {})
    except subprocess.TimeoutExpired:
        pass  # keeps what it printed until then
    return found


def number(text):
    return int(text) if text and text.isdigit() else None


def link(address, said):
    """Generation and width, highest and current (an idle GPU drops to the first generation), by sysfs or nvidia-smi."""
    folder = f"/sys/bus/pci/devices/{address}"
    found = {}
    for which in ("max", "current"):
        speed = (read(f"{folder}/{which}_link_speed") or "").split(" ")[0]
        found[f"generation_{which}"] = SPEEDS.get(speed) or number(said.get(f"pcie.link.gen.{which}"))
        found[f"width_{which}"] = number(read(f"{folder}/{which}_link_width")) or number(said.get(f"pcie.link.width.{which}"))
    generation, width = found["generation_max"], found["width_max"]
    found["limit_gb_per_s"] = round(LANE_GB_S[generation] * width, 1) if generation in LANE_GB_S and width else None
    return found


def processes(name):
    return any(read(path) == name for path in glob.glob("/proc/[0-9]*/comm"))


def memory_gib(field):
    for line in (read("/proc/meminfo") or "").splitlines():
        if line.startswith(field + ":"):
            return round(int(line.split()[1]) / (1 << 20), 1)
    return None


def pinned_pages():
    """Pages that devices hold pinned, of all processes; None if the kernel does not count them."""
    counts = dict(line.split() for line in (read("/proc/vmstat") or "").splitlines())
    names = ("nr_foll_pin_acquired", "nr_foll_pin_released")
    return int(counts[names[0]]) - int(counts[names[1]]) if all(name in counts for name in names) else None


def machine():
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return {
        "kind": "machine", "kernel": platform.release(), "glibc": platform.libc_ver()[1], "python": platform.python_version(),
        "processors": os.cpu_count(), "memory_gib": memory_gib("MemTotal"), "available_gib": memory_gib("MemAvailable"),
        "shm_free_gib": round(shared.f_bavail * shared.f_frsize / (1 << 30), 1) if shared else None,
        "locked_bytes_max": "none" if locked == resource.RLIM_INFINITY else locked,
        "huge_pages_shmem": read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "huge_pages_free": number(read("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")),
        "pinned_pages": pinned_pages(), "ptrace_scope": read("/proc/sys/kernel/yama/ptrace_scope"), "user": os.geteuid(),
        "driver_module": (read("/proc/driver/nvidia/version") or "").splitlines()[:1],
        "mps": processes("nvidia-cuda-mps"), "fabric_manager": processes("nv-fabricmanage"),
    }


def device():
    driver = Driver()
    row = {"kind": "device", "devices": driver.count(), "name": driver.name(), "driver": driver.version()}
    row.update({name: driver.attribute(name) for name in ATTRIBUTES})
    row["compute_mode"] = COMPUTE_MODES.get(row["compute_mode"], row["compute_mode"])
    address = "{:04x}:{:02x}:{:02x}.0".format(row["pci_domain"] or 0, row["pci_bus"] or 0, row["pci_device"] or 0)
    said = smi(address)
    row.update(address=address, smi=said, link=link(address, said))
    driver.enter()
    told = driver.memory()
    if told:
        row.update(free_bytes=told[0], total_bytes=told[1])
    return row


def main():
    rows = [machine()]
    try:
        rows.append(device())
    except DriverError as wrong:
        print(json.dumps({"rows": rows}))
        print(wrong, file=sys.stderr)
        return 1
    print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
