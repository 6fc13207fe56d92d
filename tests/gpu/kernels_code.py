#!/usr/bin/env python3
"""Looks into the machine code of the kernels: for each architecture gather and scatter must load and store 16
bytes at a time, and the digest must load so.

    kernels_code.py FILE...

The cubins lie uncompressed in image and program. Instructions of sm_80 to sm_100 have 16 bytes: bits 0..11 are the
operation, bits 73..75 of a load or store its width. Where there is a cuobjdump its listing of the image must agree."""
import re
import shutil
import struct
import subprocess
import sys

ARCHITECTURES = {80, 90, 100}
LOAD_GLOBAL, STORE_GLOBAL, WIDTH_128 = 0x981, 0x986, 6
MACHINE_CUDA = 190
MAGIC_IMAGE = b"\x50\xed\x55\xba"
#          kernel              loads, stores of 16 bytes at least: four of a tile go out together
WANTED = {"sl_gather_kernel": (4, 4), "sl_scatter_kernel": (4, 4), "sl_hash_kernel": (16, 0)}


def cubins(data):
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == MACHINE_CUDA:
            yield at
        at = data.find(b"\x7fELF", at + 4)


def sections(data, base):
    table, = struct.unpack_from("<Q", data, base + 40)
    size, count, names = struct.unpack_from("<HHH", data, base + 58)
    headers = [struct.unpack_from("<IIQQQQ", data, base + table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        start = base + headers[names][4] + name
        yield data[start:data.index(b"\0", start)].decode(), data[base + offset:base + offset + length]


def wide(code):
    loads = stores = 0
    for low, high in struct.iter_unpack("<QQ", code):
        if high >> 9 & 7 == WIDTH_128:
            loads += low & 0xfff == LOAD_GLOBAL
            stores += low & 0xfff == STORE_GLOBAL
    return loads, stores


def listed(program, architecture, kernel):
    text = subprocess.run(["cuobjdump", "-sass", "-arch", f"sm_{architecture}", "-fun", kernel, program],
                          check=True, capture_output=True, text=True).stdout
    return tuple(len(re.findall(rf"\b{name}\.E(?:\.[A-Z]+)*\.128\b", text)) for name in ("LDG", "STG"))


def check(path):
    with open(path, "rb") as file:
        data = file.read()
    found, errors = set(), []
    for base in cubins(data):
        architecture = struct.unpack_from("<I", data, base + 48)[0] >> 8 & 0xff
        found.add(architecture)
        code = dict(sections(data, base))
        for kernel, (loads_min, stores_min) in WANTED.items():
            loads, stores = wide(code.get(".text." + kernel, b""))
            print(f"sm_{architecture} {kernel}: {loads} LDG.E.128, {stores} STG.E.128")
            if loads < loads_min or stores < stores_min:
                errors.append(f"sm_{architecture} {kernel}: at least {loads_min} loads and {stores_min} stores of 16 bytes")
            if data.startswith(MAGIC_IMAGE) and shutil.which("cuobjdump"):
                said = listed(path, architecture, kernel)
                if said != (loads, stores):
                    errors.append(f"sm_{architecture} {kernel}: cuobjdump lists {said}")
    if found != ARCHITECTURES:
        errors.append(f"architectures {sorted(found)}, wanted {sorted(ARCHITECTURES)}")
    return [f"{path}: {error}" for error in errors]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    errors = [error for path in sys.argv[1:] for error in check(path)]
    for error in errors:
        print("error:", error, file=sys.stderr)
    sys.exit(1 if errors else 0)


main()
