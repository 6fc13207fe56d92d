"""Which file uses which: by #include, and by the symbols of object files (nm)."""

import os
import re
import subprocess

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
OBJECT = re.compile(r"^(?:(.*)/)?CMakeFiles/[^/]+\.dir/(.+)\.o$")


def includes(root, files):
    """{file: set of files of the tree that it includes}"""
    known, found = set(files), {}
    for path in files:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            names = INCLUDE.findall(file.read())
        near = (os.path.normpath(os.path.join(os.path.dirname(path), name)) for name in names)
        found[path] = {name if name in known else beside for name, beside in zip(names, near) if name in known or beside in known} - {path}
    return found


def object_files(build, files):
    """{object file: source file} of a build tree of CMake."""
    known, found = set(files), {}
    for folder, _, names in os.walk(build):
        for name in names:
            path = os.path.join(folder, name)
            match = OBJECT.match(os.path.relpath(path, build)) if name.endswith(".o") else None
            if match:
                source = os.path.normpath(os.path.join(match[1] or "", match[2].replace("__/", "../")))
                if source in known:
                    found[path] = source
    return found


def symbols(build, objects, nm="nm"):
    """({file: symbols it defines}, {file: symbols it wants}) of a build's object files."""
    defines, wants = {}, {}
    paths = sorted(objects)
    for begin in range(0, len(paths), 200):
        run = subprocess.run([nm, "-A", "-g", "--", *(os.path.relpath(path, build) for path in paths[begin:begin + 200])], cwd=build,
                             capture_output=True, text=True, check=True)
        for line in run.stdout.splitlines():
            match = re.match(r"(.*\.o):\s*[0-9a-fA-F]*\s+([A-Za-z])\s+(\S+)$", line)
            if match:
                source = objects[os.path.join(build, match[1])]
                (wants if match[2] in "Uwv" else defines).setdefault(source, set()).add(match[3])
    return defines, wants


def calls(defines, wants):
    """{file: {file whose symbols it wants: one of them}}. A symbol that several files define (main) says nothing."""
    where = {}
    for path, names in defines.items():
        for name in names:
            where.setdefault(name, set()).add(path)
    found = {}
    for path, names in wants.items():
        for name in names - defines.get(path, set()):
            homes = where.get(name, set())
            if len(homes) == 1:
                row = found.setdefault(path, {})
                home = min(homes)
                row[home] = min(name, row.get(home, name))
    return found


def between_folders(included, called):
    """{folder: {other folder: sorted arrows, each a text}}"""
    arrows = [(path, other, f"{path} includes {other}") for path, others in included.items() for other in others]
    arrows += [(path, other, f"{path} uses {name} of {other}") for path, others in called.items() for other, name in others.items()]
    found = {}
    for path, other, text in sorted(arrows):
        here, there = os.path.dirname(path), os.path.dirname(other)
        if here != there:
            found.setdefault(here, {}).setdefault(there, []).append(text)
    return found


def cycles(graph):
    """Sorted lists of folders that reach each other (Tarjan's strongly connected components, without recursion)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for start in sorted(set(graph) | {there for row in graph.values() for there in row}):
        if start in number:
            continue
        work = [(start, iter(sorted(graph.get(start, ()))))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            here, rest = work[-1]
            there = next(rest, None)
            if there is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[here])
                if low[here] == number[here]:
                    component = []
                    while not component or component[-1] != here:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1:
                        found.append(sorted(component))
            elif there not in number:
                number[there] = low[there] = len(number)
                stack.append(there)
                on_stack.add(there)
                work.append((there, iter(sorted(graph.get(there, ())))))
            elif there in on_stack:
                low[here] = min(low[here], number[there])
    return sorted(found)
