"""Reads compute-sanitizer's output. Findings that a rule of sanitizer_rules.json names are noise, with the rule's reason."""

import json
import os
import re

HERE = os.path.dirname(os.path.realpath(__file__))
MARK = "========="
FRAME = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "INITCHECK SUMMARY", "SYNCCHECK SUMMARY",
         "Target application returned an error", "This tool is deprecated")
REFUSED = ("Device not supported", "Unable to launch", "No attachable process", "Unable to find injection library",
           "was not able to initialize", "terminated before first instrumented API call", "Internal Sanitizer Error")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK|INITCHECK|SYNCCHECK) SUMMARY: (\d+) (?:error|hazard)")


def rules_read(path=os.path.join(HERE, "sanitizer_rules.json")):
    with open(path, encoding="utf-8") as file:
        rules = json.load(file)
    for rule in rules:
        if not rule["reason"] or not rule["pattern"]:
            raise ValueError(f"a rule without pattern or reason: {rule}")
    return rules


def findings(text):
    """[text of a finding: its first line and the indented ones below it]"""
    found, open_ = [], False
    for line in text.splitlines():
        if not line.startswith(MARK):
            continue
        said = line[len(MARK):]
        body = said.strip()
        if not body:
            open_ = False
        elif said.startswith("     ") and open_:
            found[-1] += "\n" + body
        elif not body.startswith(FRAME):
            found.append(body)
            open_ = True
    return found


def summed(text):
    """Errors and hazards that the tool's own summaries count; None if it printed none, so it did not finish."""
    counts = [int(number) for number in SUMMARY.findall(text)]
    return sum(counts) if counts else None


def reader(tool, rules=None):
    """A step's read: fails for real findings, and for a tool that prints fewer findings than it counts."""
    known = [rule for rule in (rules_read() if rules is None else rules) if rule["tool"] in (tool, "all")]

    def read(ran, _results):
        text = ran.out + ran.err
        refused = next((line.strip("= ") for line in text.splitlines() if any(words in line for words in REFUSED)), None)
        if refused:
            return {"skipped": f"compute-sanitizer: {refused}"[:300]}
        count, real, noise = summed(text), [], {}
        for finding in findings(text):
            rule = next((rule for rule in known if re.search(rule["pattern"], finding)), None)
            if rule is None:
                real.append(finding)
            else:
                noise[rule["reason"]] = noise.get(rule["reason"], 0) + 1
        notes = [f"left out {number} times: {reason}" for reason, number in noise.items()]
        notes += [f"finding: {finding[:600]}" for finding in real[:10]]
        row = {"kind": "sanitizer", "tool": tool, "findings": len(real), "noise": sum(noise.values()), "counted": count}
        reason = None
        if real:
            reason = f"{len(real)} findings: {real[0].splitlines()[0]}"
        elif count is None:
            reason = "the tool printed no summary"
        elif count > 0 and not noise:
            reason = f"the tool counts {count}, and shows none"
        return {"rows": [row], "notes": notes, "reason": reason}

    return read
