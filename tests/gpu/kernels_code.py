#!/usr/bin/env python3
"""Checks the images of the kernels, and that the program contains them.

    kernels_code.py PROGRAM IMAGE...

An image is a fat binary of nvcc, machine code of ptxas (cubin) or PTX. In all machine code gather and scatter must load and store
16 bytes at a time, and the digest must load 16 bytes at a time. Each image must be accepted by its drivers: a fat binary by any
driver from 580 on, machine code and PTX by those from 525 on. So each architecture that such a driver knows has one image of ELF
ABI 7 at most, or PTX of ISA 7 at most; a line reports what is missing and why.

The cubins are uncompressed in images and program. Instructions of sm_80 to sm_120 have 16 bytes: bits 0..11 are the operation, bits
73..75 of a load or store its width. Where cuobjdump is installed, its listing must agree."""
import re
import shutil
import struct
import subprocess
import sys

NEW = {80, 86, 89, 90, 100, 120}  # architectures of nvcc
OLD = {80, 86, 89, 90}            # architectures of ptxas 12.0
LOAD_GLOBAL, STORE_GLOBAL, WIDTH_128 = 0x981, 0x986, 6
MACHINE_CUDA = 190
MAGIC_FATBIN = b"\x50\xed\x55\xba"
FATBIN_PTX = 1
OSABI_NEW = 0x41  # the architecture is in bits 8..15 of the flags then, before in 0..7
ABI_OLD = 7       # the latest that drivers below 580 take
PTX_OLD = (7, 8)  # of CUDA 11.8: driver 520
PTX_NEW = (9, 0)  # of CUDA 13.0: driver 580
#          kernel              loads, stores of 16 bytes at least: four of a tile go out together
WANTED = {"sl_gather_kernel": (4, 4), "sl_scatter_kernel": (4, 4), "sl_hash_kernel": (16, 0),
          "sl_hash_runs_kernel": (8, 0)}


def cubins(data):
    at = data.find(b"\x7fELF")
    while at >= 0:
        if len(data) >= at + 64 and struct.unpack_from("<H", data, at + 18)[0] == MACHINE_CUDA:
            yield at
        at = data.find(b"\x7fELF", at + 4)


def architecture_of(data, base):
    flags, = struct.unpack_from("<I", data, base + 48)
    return flags >> 8 & 0xff if data[base + 7] == OSABI_NEW else flags & 0xff


def sections(data, base):
    table, = struct.unpack_from("<Q", data, base + 40)
    size, count, names = struct.unpack_from("<HHH", data, base + 58)
    headers = [struct.unpack_from("<IIQQQQ", data, base + table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in headers:
        start = base + headers[names][4] + name
        yield data[start:data.index(b"\0", start)].decode(), data[base + offset:base + offset + length]


def fatbin_texts(data):
    """The PTX in a fat binary; its entries: kind, version, bytes of the head, bytes of the rest, ..."""
    at, = struct.unpack_from("<H", data, 6)
    while at < len(data):
        kind, _, head, length = struct.unpack_from("<HHIQ", data, at)
        if kind == FATBIN_PTX:
            yield data[at + head:at + head + length]
        at += head + length


def ptx_version(text):
    found = re.search(rb"^\.version (\d+)\.(\d+)$", text, re.MULTILINE)
    return tuple(map(int, found.groups())) if found else None


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


def code_errors(path, data):
    """Returns the errors of all machine code in the file, and its set of (architecture, ABI)."""
    found, errors = set(), []
    for base in cubins(data):
        architecture, abi = architecture_of(data, base), data[base + 8]
        found.add((architecture, abi))
        code = dict(sections(data, base))
        for kernel, (loads_min, stores_min) in WANTED.items():
            loads, stores = wide(code.get(".text." + kernel, b""))
            print(f"sm_{architecture}, ABI {abi}, {kernel}: {loads} LDG.E.128, {stores} STG.E.128")
            if loads < loads_min or stores < stores_min:
                errors.append(f"{path}: sm_{architecture} {kernel}: at least {loads_min} loads and {stores_min} stores of 16 bytes")
            if data.startswith(MAGIC_FATBIN) and shutil.which("cuobjdump"):
                said = listed(path, architecture, kernel)
                if said != (loads, stores):
                    errors.append(f"{path}: sm_{architecture} {kernel}: cuobjdump lists {said}")
    return found, errors


def image_errors(path, data, old):
    """Returns the errors of one image; adds to `old` what drivers below 580 have of it."""
    found, errors = code_errors(path, data)
    architectures = {architecture for architecture, _ in found}
    if data.startswith(MAGIC_FATBIN):
        texts = [ptx_version(text) for text in fatbin_texts(data)]
        print(f"{path}: fat binary, PTX {texts}")
        if architectures != NEW:
            errors.append(f"{path}: architectures {sorted(architectures)}, wanted {sorted(NEW)}")
        if len(texts) != 1 or texts[0] is None or texts[0] > PTX_NEW:
            errors.append(f"{path}: PTX {texts}, wanted one of at most {PTX_NEW}")
    elif found:
        if any(abi > ABI_OLD for _, abi in found):
            errors.append(f"{path}: ELF ABI over {ABI_OLD}, which drivers below 580 refuse")
        old |= architectures
    else:
        version = ptx_version(data)
        print(f"{path}: PTX {version}")
        if version is None or version > PTX_OLD or b".target sm_80" not in data:
            errors.append(f"{path}: PTX {version}, wanted at most {PTX_OLD} for sm_80")
        errors += [f"{path}: no {kernel}" for kernel in WANTED if f".entry {kernel}(".encode() not in data]
        old.add("PTX")
    return errors


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    errors, old = [], set()
    with open(sys.argv[1], "rb") as file:
        program = file.read()
    for path in sys.argv[2:]:
        with open(path, "rb") as file:
            data = file.read()
        if data not in program:
            errors.append(f"{sys.argv[1]} does not carry {path}")
        errors += image_errors(path, data, old)
    if "PTX" not in old:
        if shutil.which("clang"):
            errors.append("no PTX for drivers below 580, though there is a clang")
        else:
            print("missing: PTX for drivers below 580 (no clang)")
    if not OLD <= old:
        print(f"missing: machine code for drivers below 580: {sorted(OLD - old)} (no ptxas of CUDA 12.0: deploy/install --kernels)")
        if old & OLD:
            errors.append(f"machine code for drivers below 580: only {sorted(old & OLD)} of {sorted(OLD)}")
    for error in errors:
        print("error:", error, file=sys.stderr)
    sys.exit(1 if errors else 0)


main()
