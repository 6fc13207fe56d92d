"""Compares measured rows with expectations.json, and reports those that fall short.

An expectation: name; of (a row's kind); where ({field: value, list of values, or {"from": a, "to": b}}); figure (a field; a dotted
one is a path into objects); least or most; beside (a field: least and most are shares of it; none: of 1); reason."""

import json
import os

HERE = os.path.dirname(os.path.realpath(__file__))


def read(path=os.path.join(HERE, "expectations.json")):
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    for one in wanted:
        if ("least" in one) == ("most" in one) or not one["reason"]:
            raise ValueError(f"an expectation has a reason, and one of least and most: {one}")
    return wanted


def field(row, name):
    for part in name.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def fits(row, where):
    for name, want in where.items():
        value = field(row, name)
        if isinstance(want, dict):
            right = value is not None and want.get("from", value) <= value <= want.get("to", value)
        else:
            right = value in want if isinstance(want, list) else value == want
        if not right:
            return False
    return True


def compared(wanted, row):
    """The row's figure compared with the expectation, or None if the row has no such figure."""
    value = field(row, wanted["figure"])
    beside = field(row, wanted["beside"]) if "beside" in wanted else 1
    if not value or not beside:
        return None  # 0: unusable, or not measured
    ratio = value / beside
    least, most = wanted.get("least"), wanted.get("most")
    return {"name": wanted["name"], "value": value, "beside": beside if "beside" in wanted else None, "ratio": round(ratio, 3),
            "least": least, "most": most, "short": ratio < least if least is not None else ratio > most, "reason": wanted["reason"],
            "row": {name: field(row, name) for name in list(wanted.get("where", {})) + wanted.get("shown", [])}}


def judged(wanted, results):
    """(comparisons, names of expectations for which nothing was measured). Also marks the steps that fall short."""
    found, unmeasured = [], []
    for one in wanted:
        seen = False
        for result in results:
            for row in result["rows"]:
                got = compared(one, row) if row.get("kind") == one["of"] and fits(row, one.get("where", {})) else None
                if got:
                    seen = True
                    found.append(dict(got, step=result["name"]))
        if not seen:
            unmeasured.append(one["name"])
    return found, unmeasured
