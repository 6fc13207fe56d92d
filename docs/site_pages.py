"""Builds the site of Sluice: the pages of docs/, the Markdown files of all other folders, and the reference (reference.py).

    deploy/install --docs                                 MkDocs and its theme, in build/docs-venv
    build/docs-venv/bin/python docs/site_pages.py [--bin build/release/bin] [--out build/docs]

OUT/pages gets the Markdown that MkDocs reads, OUT/site the site. Exit codes: 0, 1 (a link leads nowhere, a page is in no section, a
warning of MkDocs, a program that is not built).
"""

import argparse
import logging
import os
import posixpath
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import reference  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`]|\\.)*)\]\(([^)\s]+)\)")
PROGRAM = re.compile(r"(?m)^\[[^\]]*\]\((\S*/examples/\w+\.(c|py))\)$")  # a link on a line of its own: the site shows the program
APART = re.compile(r"(!?\[(?:`[^`]*`|[^\[\]`]|\\.)*\]\([^)\s]+\)|^ {4}.*$|^#.*$)", re.M)  # links, code, headings
IMAGES = (".svg", ".png")
PLACES = {"README.md": "README.md", "ARCHITECTURE.md": "internals/architecture.md", "CHANGELOG.md": "project/changelog.md",
          "CONTRIBUTING.md": "project/contributing.md", "SECURITY.md": "project/security.md", "docs/not.md": "project/not.md"}


def place_of(path):
    """The path on the site of a Markdown file of the repository. READMEs of folders are pages for developers."""
    return PLACES.get(path) or (path[len("docs/"):] if path.startswith("docs/") else "internals/" + path)


def markdown_files():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", "shared") and not name.startswith((".", "build-"))]
        for name in names:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


class Site:
    """Pages by their path on the site, with their files in the repository (pages of the reference: as if they were in it)."""

    def __init__(self, texts, names=()):
        self.texts = {place_of(path): text for path, text in texts.items()}
        self.files = {place_of(path): path for path in texts}
        self.names = dict(names)  # names of the reference and their pages
        self.pictures = set()
        self.dead = []

    def link(self, page, mark, text, address):
        """A link of the repository as a link of the site; a link to a file that is not a page becomes text."""
        if re.match(r"[a-z]+:|#", address):
            return f"{mark}[{text}]({address})"
        path, _, anchor = address.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.files[page]), path))
        if os.path.exists(os.path.join(ROOT, path, "README.md")):
            path = posixpath.normpath(posixpath.join(path, "README.md"))
        place = place_of(path) if path.endswith(".md") else path
        if path.endswith(IMAGES) and os.path.exists(os.path.join(ROOT, path)):
            self.pictures.add(path)
        elif place not in self.texts:
            if not os.path.exists(os.path.join(ROOT, path)):
                self.dead.append(f"{self.files[page]}: {address} leads nowhere")
            name = posixpath.relpath(path, ROOT) if posixpath.isabs(path) else path
            return text if posixpath.basename(name.removesuffix("/README.md")) in text else f"{text} (`{name}`)"
        there = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{mark}[{text}]({there}{'#' + anchor if anchor else ''})"

    def linked_name(self, page, found, seen):
        """Links the first mention of a setting, call or command in a page to the reference."""
        place = self.names.get(found[1])
        if place is None or found[1] in seen or page.startswith("reference/"):
            return found[0]
        seen.add(found[1])
        return f"[{found[0]}]({posixpath.relpath(place, posixpath.dirname(page) or '.')})"

    def program(self, page, address):
        with open(os.path.join(ROOT, os.path.dirname(self.files[page]), address), encoding="utf-8") as file:
            return file.read()

    def markdown(self, page):
        """The page for MkDocs: with links of the site, and a blank line between a paragraph and a list."""
        text = PROGRAM.sub(lambda found: f"```{found[2]}\n{self.program(page, found[1])}```", self.texts[page])
        parts, seen = FENCED.split(text), set()
        for i in range(0, len(parts), 2):
            words = APART.split(parts[i])
            words[::2] = [re.sub(r"(?<!`)`([a-z_ ]+)`(?!`)", lambda found: self.linked_name(page, found, seen), one) for one in words[::2]]
            words[1::2] = [LINK.sub(lambda found: self.link(page, found[1], found[2], found[3]), one) for one in words[1::2]]
            parts[i] = "".join(words)
            parts[i] = re.sub(r"(?m)^((?![-*] |\d+\. |#|\||\s).*\S.*\n)(?=(?:[-*]|1\.) )", r"\1\n", parts[i])
        return "".join(parts)

    def title(self, page):
        found = re.search(r"^# (.*)", self.texts[page], re.M)
        return found[1] if found else page

    def section(self, index, seen):
        """A section of the navigation: the index page, then the pages in or below its folder that it links to."""
        folder = posixpath.dirname(index)
        pages = []
        for _, _, address in LINK.findall(self.texts[index]):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(self.files[index]), address.partition("#")[0]))
            place = place_of(path if path.endswith(".md") else posixpath.join(path, "README.md"))
            if folder and place.startswith(folder + "/") and place in self.texts and place not in seen:
                seen.add(place)
                pages.append(place)
        below = {page: self.section(page, seen) for page in pages if page.endswith("/README.md")}
        return [index] + [{self.title(page): below[page]} if len(below.get(page, ())) > 1 else page for page in pages]

    def write(self, folder):
        for page in self.texts:
            path = os.path.join(folder, page)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.markdown(page))
        for picture in self.pictures:
            path = os.path.join(folder, picture)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(os.path.join(ROOT, picture), path)


def texts_of_the_tree():
    texts = {}
    for path in markdown_files():
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            texts[path] = file.read()
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="folder of the programs whose --help the reference shows")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "docs"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    from mkdocs.commands.build import build  # of build/docs-venv
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    texts = texts_of_the_tree()
    texts.update(reference.pages(options.bin))
    site, folder = Site(texts, reference.names(texts)), os.path.join(options.out, "pages")
    shutil.rmtree(folder, ignore_errors=True)
    site.write(folder)
    for text in site.dead:
        print(text, file=sys.stderr)
    config = load_config(os.path.join(ROOT, "docs", "mkdocs.yml"), docs_dir=os.path.abspath(folder), site_dir=os.path.abspath(os.path.join(options.out, "site")))
    seen = {page for section in config.nav for page in section.values()}
    config.nav = [{name: site.section(page, seen) if "/" in page else page} for section in config.nav for name, page in section.items()]
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as failure:
        print(failure, file=sys.stderr)
        return 1
    finally:
        config.plugins.on_shutdown()
    print(f"{len(site.texts)} pages in {config.site_dir}")
    return 1 if site.dead else 0


if __name__ == "__main__":
    sys.exit(main())
