"""Packs all that the check-up needs into one archive, which unpacks and runs on a machine without compiler, toolkit and packages.

The archive has the folders of the tree. Programs find libraries in build/release/lib by the path that is built into them. Only glibc is
always the other machine's; the archive's file GLIBC names the lowest version that works."""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import steps

ROOT, BUILD = steps.ROOT, steps.BUILD
LIMIT_BYTES = 60 << 20
TARGET = "checkup_programs"
PROGRAMS = ("bin/sluice-registrar", "bin/sluice-keyer", "bin/sluice-swapper", "bin/sluice-transporter", "bin/sluice-tierer",
            "bin/sluice-coordinator", "bin/sluice-supervise", "bin/sluicectl", "tests/gpu_test", "tests/engine_probe", "tests/engine_speed",
            "tests/parts_probe",
            "tests/fake/libcuda.so.1")
MODULES = ("python/sluice", "python/mooncake")  # where CPython's headers are
SCRIPTS = ("deploy/sluice-node", "tests/gpu/checkup", "tests/gpu/checking", "tests/gpu/device_node_test.py", "tests/node/node_support.py",
           "tests/support/ports.py", "tests/support/suite.py", "LICENSE")
GLIBC = re.compile(r"^(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec)\.so)")
# Files of compute-sanitizer in its folder, where a toolkit may also have other programs.
SANITIZER = re.compile(r"^(compute-sanitizer|TreeLauncher\w*|lib(sanitizer|TreeLauncher|Interceptor)\S*\.so)$")
SPARE = re.compile(r"^lib(stdc\+\+|gcc_s)\.so")  # used after the other machine's own, which may be newer
TOP = "sluice-checkup"


def say(text):
    print(f"pack: {text}", flush=True)


def done(*command):
    """Runs the command and returns its output; exits with the output when it fails."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"pack: {' '.join(command)}\n{(ran.stdout + ran.stderr)[-3000:]}")
    return ran.stdout


def build():
    say("building preset release (minutes the first time)")
    done("cmake", "--preset", "release", "-DSL_CUDA=ON")
    done("cmake", "--build", "--preset", "release", "--target", TARGET)


def needed(path):
    """{file name: path} of the libraries that a file needs, directly or indirectly."""
    found = {}
    for line in done("ldd", path).splitlines():
        words = line.split()
        if "not found" in line:
            sys.exit(f"pack: {path}: {line.strip()}")
        if len(words) >= 3 and words[1] == "=>" and not GLIBC.match(words[0]):
            found[words[0]] = words[2]
    return found


def glibc_of(path):
    """The newest version of glibc that a file requires, as numbers."""
    said = done("objdump", "-T", path)
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", said)]
    return max(versions, default=(0,))


def stripped(source, folder):
    """A copy without debug information."""
    copy = os.path.join(folder, "stripped")
    shutil.copyfile(source, copy)
    os.chmod(copy, 0o755)
    done("strip", "--strip-unneeded", copy)
    return copy


def sanitizer_folder(given):
    """The toolkit's folder of the sanitizer, with the libraries next to the program; None if there is none."""
    for program in [os.path.join(given, "compute-sanitizer")] if given else steps.TOOLKIT_SANITIZERS[:3]:
        folder = os.path.dirname(os.path.realpath(program))
        if os.path.exists(program) and os.path.exists(os.path.join(folder, "libsanitizer-collection.so")):
            return folder
    if given:
        sys.exit(f"pack: no compute-sanitizer with its libraries in {given}")
    return None


class Archive:
    def __init__(self, path):
        self.tar = tarfile.open(path, "w:gz", compresslevel=9)
        self.glibc = (0,)

    def add(self, source, name):
        self.tar.add(source, f"{TOP}/{name}", recursive=False, filter=self.plain)

    @staticmethod
    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        return entry

    def tree(self, source, name):
        if not os.path.isdir(source):
            self.add(source, name)
            return
        for folder, folders, files in os.walk(source):
            folders[:] = [one for one in folders if one != "__pycache__"]
            for file in sorted(files):
                path = os.path.join(folder, file)
                self.add(path, os.path.join(name, os.path.relpath(path, source)))

    def binary(self, source, name, scratch, counts=True):
        """counts: the archive is useless where this cannot be loaded."""
        if counts:
            self.glibc = max(self.glibc, glibc_of(source))
        self.add(stripped(source, scratch), name)

    def program(self, source, name):
        """Adds it unchanged; wheels of a toolkit unpack without the permission to run it."""
        entry = self.tar.gettarinfo(source, f"{TOP}/{name}")
        entry.mode = 0o755
        with open(source, "rb") as file:
            self.tar.addfile(self.plain(entry), file)

    def text(self, name, text):
        entry = tarfile.TarInfo(f"{TOP}/{name}")
        entry.size, entry.mode = len(text.encode()), 0o644
        self.tar.addfile(entry, io.BytesIO(text.encode()))

    def link(self, name, to):
        entry = tarfile.TarInfo(f"{TOP}/{name}")
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, to, 0o777
        self.tar.addfile(entry)


def programs_add(archive, scratch):
    """Adds programs, Python modules, and every library that any of them needs. Returns the number of libraries."""
    libraries = {"libsluice.so.0": os.path.join(BUILD, "lib", "libsluice.so.0")}
    binaries = list(PROGRAMS)
    for package in MODULES:
        for file in sorted(os.listdir(os.path.join(BUILD, package))) if os.path.isdir(os.path.join(BUILD, package)) else []:
            path = f"{package}/{file}"
            if file.endswith(".so"):
                binaries.append(path)
            elif os.path.isfile(os.path.join(BUILD, path)):
                archive.add(os.path.join(BUILD, path), f"build/release/{path}")
    for path in binaries:
        archive.binary(os.path.join(BUILD, path), f"build/release/{path}", scratch)
        libraries.update(needed(os.path.join(BUILD, path)))
    for package in sorted({os.path.dirname(path) for path in binaries if path.startswith("python/")}):
        archive.link(f"build/release/{package}/lib", "../../lib")
    libraries.update(needed(libraries["libsluice.so.0"]))
    for name, source in sorted(libraries.items()):
        archive.binary(os.path.realpath(source), f"build/release/{'spare' if SPARE.match(name) else 'lib'}/{name}", scratch,
                       counts=not SPARE.match(name))
    return len(libraries)


def sanitizer_add(archive, folder):
    """Adds the program and its libraries, next to it or, as in newer toolkits, in lib next to its folder."""
    for name, source in (("bin", folder), ("lib", os.path.join(folder, "..", "lib"))):
        for file in sorted(os.listdir(source)) if os.path.isdir(source) else []:
            if SANITIZER.match(file):
                archive.program(os.path.join(source, file), f"sanitizer/{name}/{file}")


def pack(path, sanitizer, building):
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        sys.exit(f"pack: no folder for {path}")
    if building:
        build()
    folder = sanitizer_folder(sanitizer)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Archive(path + ".new")  # complete, or absent
        for script in SCRIPTS:
            archive.tree(os.path.join(ROOT, script), script)
        archive.tree(os.path.join(BUILD, "share", "sluice"), "build/release/share/sluice")
        archive.link("checkup", "tests/gpu/checkup")
        count = programs_add(archive, scratch)
        if folder:
            sanitizer_add(archive, folder)
        archive.text("GLIBC", ".".join(map(str, archive.glibc)) + "\n")
        archive.tar.close()
    os.replace(path + ".new", path)
    size = os.path.getsize(path)
    say(f"{path}: {size} bytes ({size / (1 << 20):.1f} MiB), {count} libraries, "
        + (f"compute-sanitizer of {folder}" if folder else "no compute-sanitizer (--sanitizer FOLDER takes one along)"))
    say(f"for a machine with Python 3.8 and glibc {'.'.join(map(str, archive.glibc))} or newer: "
        f"tar xf {os.path.basename(path)} && {TOP}/checkup --run")
    if size > LIMIT_BYTES:
        print(f"pack: over {LIMIT_BYTES} bytes", file=sys.stderr)
        return 1
    return 0
