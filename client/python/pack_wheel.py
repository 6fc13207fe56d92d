"""Packs an installed package into a wheel: pack_wheel.py STAGE OUTPUT_DIRECTORY VERSION

STAGE is what `cmake --install BUILD --component python` wrote. A wheel is a zip file with three files of text, so
that nothing has to be downloaded to make one. It is for CPython 3.11 and later (stable ABI) on this processor, with
the glibc of this machine or a newer one."""

import base64
import hashlib
import os
import platform
import sys
import zipfile

METADATA = """Metadata-Version: 2.1
Name: sluice
Version: {version}
Summary: The KV cache of large language models outside the inference engine
License: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """Wheel-Version: 1.0
Generator: sluice
Root-Is-Purelib: false
Tag: {tag}
"""


def files_of(stage):
    """(name in the wheel, path). A library is found by its soname, which here is a link: the file takes its name."""
    links = {}
    for folder, _, names in os.walk(stage):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                links[os.path.realpath(path)] = path
    for folder, _, names in sorted(os.walk(stage)):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                yield os.path.relpath(links.get(os.path.realpath(path), path), stage), path


def record_of(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def pack(stage, directory, version):
    glibc = platform.libc_ver()[1].split(".")
    tag = f"cp311-abi3-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    about = f"sluice-{version}.dist-info"
    with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "README.md"), encoding="utf-8") as text:
        readme = text.read()
    path = os.path.join(directory, f"sluice-{version}-{tag}.whl")
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def write(name, data):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same bytes from the same files
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)

        def add(name, data):
            nonlocal record
            write(name, data)
            record += record_of(name, data)

        for name, source in files_of(stage):
            with open(source, "rb") as content:
                add(name, content.read())
        add(f"{about}/METADATA", METADATA.format(version=version, readme=readme).encode())
        add(f"{about}/WHEEL", WHEEL.format(tag=tag).encode())
        write(f"{about}/RECORD", record + f"{about}/RECORD,,\n")
    return path


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(pack(*sys.argv[1:]))
