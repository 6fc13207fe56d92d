"""Measures the cost of pinning: shared memory in pages of 4 KiB, and in huge pages if the system has them. Prints one line of JSON.

    registration.py BYTES

Slices are as long as those that the cuda device pins (CUDA_PIN_BYTES in cuda/cuda_internal.h)."""

import ctypes
import json
import mmap
import os
import sys
import time

from driver import Driver, DriverError

SLICE_BYTES = 32 << 20
MFD_HUGETLB = 4
MADV_HUGEPAGE = 14
HUGE_BYTES = 2 << 20


def huge_kib(address):
    """KiB in huge pages of the mapping at the address, by the kernel's count."""
    found, inside = 0, False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            first = line.split()[0]
            if "-" in first and not first.endswith(":"):
                low, _, high = first.partition("-")
                inside = int(low, 16) <= address < int(high, 16)
            elif inside and first in ("ShmemPmdMapped:", "FilePmdMapped:", "AnonHugePages:", "Shared_Hugetlb:", "Private_Hugetlb:"):
                found += int(line.split()[1])
    return found


def memory_of(pages, length_bytes):
    """A mapping of shared memory with all pages present; OSError where the system has none of this kind."""
    fd = os.memfd_create("checkup", os.MFD_CLOEXEC | (MFD_HUGETLB if pages == "hugetlb" else 0))
    try:
        os.ftruncate(fd, length_bytes)
        memory = mmap.mmap(fd, length_bytes)
    finally:
        os.close(fd)
    if pages == "transparent":
        memory.madvise(MADV_HUGEPAGE)
    for at in range(0, length_bytes, 4096):
        memory[at] = 1
    return memory


def measured(driver, address, length_bytes, slice_bytes):
    """Seconds to pin all of it slice by slice, and to unpin it."""
    slices = range(address, address + length_bytes, slice_bytes)
    start = time.monotonic()
    for at in slices:
        driver.pin(at, slice_bytes)
    pinned = time.monotonic()
    for at in slices:
        driver.unpin(at)
    return pinned - start, time.monotonic() - pinned


def row_of(driver, pages, length_bytes):
    memory = memory_of(pages, length_bytes)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    row = {"kind": "registration", "pages": pages, "bytes": length_bytes, "huge_share": round(huge_kib(address) * 1024 / length_bytes, 2)}
    gib = length_bytes / (1 << 30)
    for name, slice_bytes in (("slice", SLICE_BYTES), ("whole", length_bytes)):
        pin_s, unpin_s = measured(driver, address, length_bytes, slice_bytes)
        row[f"{name}_ms_per_gib"] = round(1e3 * pin_s / gib, 1)
        row[f"{name}_unpin_ms_per_gib"] = round(1e3 * unpin_s / gib, 1)
    return row  # a view of the mapping still exists, so the mapping ends with the process


def main():
    length_bytes = int(sys.argv[1]) // SLICE_BYTES * SLICE_BYTES
    rows, notes = [], []
    try:
        driver = Driver()
        driver.enter()
    except DriverError as wrong:
        print(f"skipped: {wrong}")
        return 77
    for pages in ("small", "transparent", "hugetlb"):
        try:
            row = row_of(driver, pages, length_bytes)
        except OSError as wrong:
            notes.append(f"{pages} pages: {wrong}")
            continue
        if pages == "transparent" and row["huge_share"] == 0:
            notes.append("transparent pages: the system gave none for shared memory (shmem_enabled)")
            continue
        rows.append(row)
    print(json.dumps({"rows": rows, "notes": notes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
