"""Packs an installed package into a wheel: pack_wheel.py sluice|mooncake STAGE OUTPUT_DIRECTORY VERSION

STAGE is what `cmake --install BUILD --component COMPONENT` wrote, with the component `python` for sluice and `mooncake` for
mooncake. A wheel is a zip file with a few text files, so packing needs no downloads. It is for CPython 3.11 and later (stable ABI) on
this processor, with the glibc of this machine or a newer one. It contains the licences of its libraries; packing fails if the licence of
a library is not on this machine (Debian installs them)."""

import base64
import glob
import hashlib
import os
import platform
import re
import subprocess
import sys
import zipfile
from typing import NamedTuple

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
METADATA = """Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: {summary}
Author: The authors of Sluice
Keywords: {keywords}
License-Expression: {licence}
Requires-Python: >=3.11
{more}Description-Content-Type: text/markdown

{page}"""
CLASSIFIERS = (
    "Development Status :: 4 - Beta", "Intended Audience :: Developers", "Intended Audience :: System Administrators",
    "Operating System :: POSIX :: Linux", "Programming Language :: C", "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3 :: Only", "Programming Language :: Python :: 3.11", "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13", "Programming Language :: Python :: Implementation :: CPython",
    "Topic :: Scientific/Engineering :: Artificial Intelligence", "Topic :: System :: Distributed Computing", "Typing :: Typed")
# Licences of Debian packages whose libraries a wheel may contain, as SPDX expressions. The wheel also has the full texts.
SPDX = {
    "libbsd0": "BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware", "libcom-err2": "MIT", "libffi8": "MIT",
    "libgmp10": "LGPL-3.0-or-later OR GPL-2.0-or-later", "libgnutls30": "LGPL-2.1-or-later", "libgssapi-krb5-2": "MIT",
    "libhiredis0.14": "BSD-3-Clause", "libhogweed6": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libidn2-0": "LGPL-3.0-or-later OR GPL-2.0-or-later", "libjansson4": "MIT", "libk5crypto3": "MIT",
    "libkeyutils1": "LGPL-2.0-or-later", "libkrb5-3": "MIT", "libkrb5support0": "MIT",
    "libmd0": "BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware", "libmsgpackc2": "BSL-1.0",
    "libnettle8": "LGPL-3.0-or-later OR GPL-2.0-or-later", "libnorm1": "LicenseRef-NRL AND BSD-3-Clause", "libp11-kit0": "BSD-3-Clause",
    "libpcre2-dev": "BSD-3-Clause", "libpgm-5.3-0": "LGPL-2.1-only", "libsodium23": "ISC", "libssl-dev": "Apache-2.0",
    "libssl3": "Apache-2.0", "libtasn1-6": "LGPL-2.1-or-later",
    "libtinfo6": "X11-distribute-modifications-variant AND BSD-3-Clause", "libunistring2": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "liburing2": "LGPL-2.1-or-later OR MIT", "libxxhash-dev": "BSD-2-Clause", "libxxhash0": "BSD-2-Clause",
    "libzmq5": "LGPL-3.0-or-later", "zlib1g": "Zlib"}
WHEEL = """Wheel-Version: 1.0
Generator: sluice
Root-Is-Purelib: false
Tag: {tag}
"""
# Files of other projects that are linked into our binaries, by which their packages are found. A missing one was linked as a library.
STATIC = ("*/libcrypto.a", "*/libpcre2-8.a", "/usr/include/xxhash.h")


class Distribution(NamedTuple):
    name: str
    summary: str
    page: str  # text of its page at a package index; path under client
    keywords: str
    more: str = ""  # lines of METADATA
    scripts: tuple = ()  # (name, function, file of the wheel that it needs)


DISTRIBUTIONS = {
    "sluice": Distribution("sluice", "The KV cache of large language models outside the inference engine", "python/page.md",
                           "llm,kv-cache,prefix-cache,inference,vllm,sglang,lmcache"),
    "mooncake": Distribution(
        "sluice-mooncake", "Sluice with the Python interface of Mooncake's store: the package mooncake, and a node",
        "mooncake/python/page.md", "llm,kv-cache,prefix-cache,inference,mooncake,vllm,sglang,lmcache,fastdeploy",
        "Provides-Dist: mooncake-transfer-engine\nObsoletes-Dist: mooncake-transfer-engine\n",
        (("mooncake_master", "mooncake.cli:main", "daemons/master.py"),
         ("mooncake_client", "mooncake.cli:main_client", "daemons/client.py"),
         ("mooncake_http_metadata_server", "mooncake.http_metadata_server:main", "http_metadata_server.py"),
         ("sluicectl", "mooncake.cli:main_ctl", "bin/sluicectl"),
         ("sluice-node", "mooncake.cli:main_node", "bin/sluice-node"))),
}


def files_of(stage):
    """Yields (name in the wheel, path). A library is found by its soname, which is a link in STAGE: the file gets the link's name."""
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


def read(path):
    with open(path, "rb") as file:
        return file.read()


def owners_of(patterns):
    """Returns {file name: Debian package that installed it} for libraries and headers."""
    try:
        asked = subprocess.run(["dpkg-query", "--search", *patterns], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               check=False)  # 1: some were not found
    except FileNotFoundError:
        sys.exit("pack_wheel: no dpkg-query: the licences of the libraries in a wheel are only known on Debian and its derivatives")
    owners = {}
    for line in asked.stdout.splitlines():
        packages, _, path = line.partition(": ")
        if path.startswith(("/usr/lib/", "/lib/", "/usr/include/")) and not packages.startswith("diversion "):
            owners.setdefault(os.path.basename(path), packages.split(",")[0].split(":")[0])
    return owners


def licences_of(stage):
    """Returns [(name, content)]: our own licence, one for each Debian package with a library in the wheel, and common texts."""
    licences = {"LICENSE": read(os.path.join(ROOT, "LICENSE"))}
    carried = {os.path.basename(path) for name, path in files_of(stage) if f"{os.sep}lib{os.sep}" in name}
    carried = {name for name in carried if not name.startswith("libsluice.so")}
    owners = owners_of([*(f"*/{name}" for name in sorted(carried)), *STATIC])
    common = set()
    for name in sorted(carried | owners.keys()):
        text = f"/usr/share/doc/{owners.get(name, '?')}/copyright"
        if not os.path.exists(text):
            sys.exit(f"pack_wheel: no licence of {name} ({text}): a wheel that contains it cannot be distributed")
        licences[f"{owners[name]}.txt"] = read(text)
        common.update(re.findall(rb"/usr/share/common-licenses/([-A-Za-z.0-9]+[A-Za-z0-9])", licences[f"{owners[name]}.txt"]))
    for name in sorted(known.decode() for known in common):
        for path in glob.glob(f"/usr/share/common-licenses/{name}"):
            licences[f"common/{name}"] = read(path)
    return sorted(licences.items())


def expression_of(licences):
    """Returns one SPDX expression for the whole wheel."""
    found = {"Apache-2.0"}
    for name, _ in licences:
        package = name.removesuffix(".txt")
        if name.endswith(".txt") and package not in SPDX:
            sys.exit(f"pack_wheel: {package} has no line in SPDX: read its licence, and add it there")
        if name.endswith(".txt"):
            found.update([f"({SPDX[package]})"] if " OR " in SPDX[package] else SPDX[package].split(" AND "))
    return " AND ".join(sorted(found))


def page_of(distribution):
    """Returns the text of the page, with the example of docs/start/python.md, which tests run."""
    page = read(os.path.join(ROOT, "client", distribution.page)).decode()
    example = re.search(r"```python\n(.*?)\n```", read(os.path.join(ROOT, "docs", "start", "python.md")).decode(), re.DOTALL)[1]
    return page.replace("{example}", example)


class Wheel:
    """A zip file with a record of its contents. The same files give the same bytes."""

    def __init__(self, path, about):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.about = about
        self.record = ""

    def write(self, name, data, mode):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = mode << 16
        self.zip.writestr(entry, data, zipfile.ZIP_DEFLATED)

    def add(self, name, data, mode=0o100644):
        self.write(name, data, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record += f"{name},sha256={digest},{len(data)}\n"

    def close(self):
        record = f"{self.about}/RECORD"
        self.write(record, (self.record + f"{record},,\n").encode(), 0o100644)
        self.zip.close()


def scripts_of(distribution, stage):
    lines = []
    for name, function, needed in distribution.scripts:
        if os.path.exists(os.path.join(stage, "mooncake", needed)):
            lines.append(f"{name} = {function}\n")
        else:
            print(f"pack_wheel: {name} was not built (deploy/install installs what it needs): the wheel does not have it", file=sys.stderr)
    return "[console_scripts]\n" + "".join(lines) if lines else ""


def pack(package, stage, directory, version):
    distribution = DISTRIBUTIONS[package]
    glibc = platform.libc_ver()[1].split(".")
    tag = f"cp311-abi3-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    stem = f"{distribution.name.replace('-', '_')}-{version}"
    about = f"{stem}.dist-info"
    licences = licences_of(stage)
    path = os.path.join(directory, f"{stem}-{tag}.whl")
    wheel = Wheel(path, about)
    for name, source in files_of(stage):
        wheel.add(name, read(source), 0o100755 if os.stat(source).st_mode & 0o100 and "/bin/" in name else 0o100644)
    for name, text in licences:
        wheel.add(f"{about}/licenses/{name}", text)
    more = (distribution.more + "".join(f"License-File: {name}\n" for name, _ in licences) +
            "".join(f"Classifier: {classifier}\n" for classifier in CLASSIFIERS))
    wheel.add(f"{about}/METADATA", METADATA.format(
        name=distribution.name, version=version, summary=distribution.summary, keywords=distribution.keywords,
        licence=expression_of(licences), more=more, page=page_of(distribution)).encode())
    wheel.add(f"{about}/WHEEL", WHEEL.format(tag=tag).encode())
    scripts = scripts_of(distribution, stage)
    if scripts:
        wheel.add(f"{about}/entry_points.txt", scripts.encode())
    wheel.close()
    return path


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in DISTRIBUTIONS:
        sys.exit(__doc__)
    print(pack(*sys.argv[1:]))
