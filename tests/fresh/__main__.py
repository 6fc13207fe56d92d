"""Runs the commands of README and of the pages in docs/, in order, in a bare Debian 12 that has nothing but git, as a new user would.

    deploy/test --fresh [--keep] [--list]       needs root; installs mmdebstrap; some ten minutes

Commands are the indented lines, except sections of SECTIONS_LEFT_OUT. Commands in a fence (```sh) are not run either; a comment above the
fence gives the reason. Exit codes: 0, 1 (a command failed), 77 (this machine cannot).
"""

import argparse
import collections
import glob
import os
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))
import bare_debian  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.join(ROOT, "build", "fresh")
SKIPPED = 77
# Programs at the beginning of a line's second part: it is a command, not an explanation of the first.
PROGRAMS = ("sluicectl", "sluice-node")
PAGES = ("start", "concepts", "guides", "operate", "performance")  # folders of docs/, in reading order
NOT_RUN = "<!-- not run here: "
SECTIONS_LEFT_OUT = {"README.md: Install": "deploy/test --package runs them in a Debian 12 of its own"}
# A user replaces these words.
WORDS = (("TRACE.jsonl", "/tmp/trace.jsonl"), ("KEY", "greeting"), ("cd MODEL", "cd client/python"),
         ("--request ID", "--request $(sluicectl trace --last 1 | grep -om1 '[0-9a-f]\\{16\\}')"))
# Run until the next section begins, as a user would in another terminal: with a check that it is ready.
DAEMONS = (
    (r"^mooncake_master\b", "curl -sf http://localhost:9003/health"),
    (r"^mooncake_client\b", "curl -sf http://localhost:9003/get_all_segments | grep -q ."),
)
# Commands that take over the terminal: with the keys that end them.
TYPED = ((r"^sluicectl top\b", "q"),)
BEFORE = ((r"^deploy/demo --trace", "build/release/bin/sluicectl workload --requests 400 >/tmp/trace.jsonl"),)
CODES = ((r"^sluicectl (explain|doctor)\b", "0 1"),)  # 1 means no
READY_SECONDS = 60
LIMIT_SECONDS = 3600


def commands_read():
    """[(page: section, command)] of README and the pages: their indented lines outside of fences. A fence without a reason is an error."""
    return [found for page in ["README.md", *(page for folder in PAGES for page in sorted(glob.glob(f"docs/{folder}/*.md", root_dir=ROOT)))]
            for found in commands_of_page(page)]


def commands_of_page(page):
    found, section, fenced, begun, before = [], "", False, "", ""
    with open(os.path.join(ROOT, page), encoding="utf-8") as lines:
        for line in lines:
            if line.lstrip().startswith("```"):
                if line.lstrip().startswith("```sh") and not before.lstrip().startswith(NOT_RUN):
                    sys.exit(f"{page}: a fence of commands has no line '{NOT_RUN}REASON -->' above it")
                fenced = not fenced
            elif line.startswith("#") and not fenced:
                section = line.strip("# \n")
            elif line.startswith("    ") and not fenced:
                text = begun + line.strip()
                begun = text[:-1] if text.endswith("\\") else ""
                found += [] if begun else [(f"{page}: {section}", command) for command in commands_of(text)]
            before = line
    return found


def commands_of(line):
    first, *rest = re.split(r"\s{2,}#\s|\s{3,}", line)
    return [first] + [part for part in rest if part.startswith(PROGRAMS)]


def of_table(table, command):
    return next((value for pattern, value in table if re.search(pattern, command)), None)


def script_of(commands):
    """A bash script that runs all of them in one shell and reports each: its number, exit code and seconds."""
    lines = ["cd /root/sluice", "daemons=()", "end_daemons() { for pid in ${daemons[@]+\"${daemons[@]}\"}; do kill $pid; wait $pid; done; daemons=(); }"]
    section_now = ""
    for number, (section, command) in enumerate(commands):
        for word, mine in WORDS:
            command = command.replace(word, mine)
        if section != section_now:
            lines.append("end_daemons >/dev/null 2>&1")
            if section.partition(":")[0] != section_now.partition(":")[0]:  # each page begins without a node
                lines.append("sluice-node stop >/dev/null 2>&1")
            section_now = section
        if section in SECTIONS_LEFT_OUT:
            continue
        if of_table(BEFORE, command):
            lines.append(of_table(BEFORE, command))
        ready = of_table(DAEMONS, command)
        lines += [f"echo '@@ begin {number}'", "began=$SECONDS"]
        if ready:
            lines += [f"{command} & daemons+=($!)", f"for i in $(seq {READY_SECONDS}); do {ready} >/dev/null && break; sleep 1; done",
                      f"{ready} >/dev/null", "code=$?"]
        elif of_table(TYPED, command):
            lines += [f"(sleep 2; printf '{of_table(TYPED, command)}') | TERM=linux script -qec '{command}' /dev/null", "code=$?"]
        else:
            lines += [f"{{ {command}\n}} </dev/null", "code=$?"]
        lines.append(f"echo; echo \"@@ end {number} $code $((SECONDS - began))\"")
    return "\n".join([*lines, "end_daemons >/dev/null 2>&1", "sluice-node stop >/dev/null 2>&1", ""])


def root_make(place):
    """Makes a Debian 12 with its essential packages, git, and curl, which pages show and users have."""
    environment = bare_debian.make(place, ("git", "ca-certificates", "curl"))
    subprocess.run(["git", "clone", "--quiet", ROOT, os.path.join(place, "root", "sluice")], check=True)
    return environment


class Tally:
    """Prints each command when it has ended, in the order of the pages; on a terminal also the running one."""

    def __init__(self, commands):
        self.commands, self.next = commands, 0
        self.passed = self.failed = self.left_out = 0
        self.output = collections.deque(maxlen=25)

    def line(self, text):
        begun, ended = re.match(r"@@ begin (\d+)$", text), re.match(r"@@ end (\d+) (\d+) (\d+)$", text)
        if begun:
            self.missed(int(begun[1]))
            self.output.clear()
            self.tell(f"...              {self.commands[self.next][1]}", passing=True)
        elif ended:
            self.ended(int(ended[2]), int(ended[3]))
        else:
            self.output.append(text)

    def missed(self, until):
        """Commands before this one did not run."""
        while self.next < until:
            reason = SECTIONS_LEFT_OUT.get(self.commands[self.next][0])
            if reason:
                self.left_out += 1
                self.tell(f"left out          {self.commands[self.next][1]}   ({reason})")
                self.next += 1
            else:
                self.ended(-1, 0)

    def ended(self, code, seconds):
        section, command = self.commands[self.next]
        self.next += 1
        fine = str(code) in (of_table(CODES, command) or "0").split()
        self.passed, self.failed = self.passed + fine, self.failed + (not fine)
        self.tell(f"{'ok' if fine else 'FAILED':8} {seconds:5} s   {command}")
        if not fine:
            self.tell(f"    section '{section}', {'not ended' if code < 0 else f'code {code}'}; the last lines:")
            for text in self.output:
                self.tell("    | " + text)

    def tell(self, text, passing=False):
        if sys.stdout.isatty():
            print(f"\r\033[K{text}", end="" if passing else "\n", flush=True)
        elif not passing:
            print(text, flush=True)


def run_in(place, environment, script, log_path, tally):
    with open(os.path.join(place, "root", "run.sh"), "w", encoding="utf-8") as file:
        file.write(script)
    with open(log_path, "w", encoding="utf-8", buffering=1) as log, \
            subprocess.Popen(bare_debian.words_in(place, "/root/run.sh"), env=environment, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace") as process:
        limit = threading.Timer(LIMIT_SECONDS, process.kill)
        limit.start()
        try:
            for text in process.stdout:
                log.write(text)
                tally.line(text.rstrip("\n"))
        finally:
            limit.cancel()
            process.kill()
    tally.missed(len(tally.commands))


def main():
    parser = argparse.ArgumentParser(prog="deploy/test --fresh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="leave the root in build/fresh/root; the next run removes it")
    parser.add_argument("--list", action="store_true", help="print the commands and end")
    options = parser.parse_args()
    commands = commands_read()
    if options.list:
        for section, command in commands:
            reason = SECTIONS_LEFT_OUT.get(section)
            print(f"{section:44} {command}   {f'(left out: {reason})' if reason else ''}".rstrip())
        return 0
    if not bare_debian.possible():
        print("skipped: needs root and mmdebstrap")
        return SKIPPED
    place, log_path = os.path.join(BUILD, "root"), os.path.join(BUILD, "log")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    tally = Tally(commands)
    began = time.monotonic()
    try:
        print(f"a bare Debian 12 in {place} (half a minute); what its commands print: {log_path}", flush=True)
        run_in(place, root_make(place), script_of(commands), log_path, tally)
    except bare_debian.Skipped as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.left_out} left out; {time.monotonic() - began:.0f} s in all")
    return 0 if tally.failed == 0 and tally.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
