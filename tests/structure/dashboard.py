#!/usr/bin/env python3
"""The dashboard that deploy/monitoring ships, made of the table of metrics: units and descriptions come from it, and all families.

    tests/structure/dashboard.py --write    makes deploy/monitoring/dashboard.json anew
"""

import json
import os
import re
import sys

import metrics_table

PATH = "deploy/monitoring/dashboard.json"
SELECT = 'instance=~"$instance"'


def by(family, label, what="rate"):
    inner = f"{family}{{{SELECT}}}"
    return f"sum by ({label}) ({f'rate({inner}[$__rate_interval])' if what == 'rate' else inner})"


def quantile(q, family, label):
    return f"histogram_quantile({q}, sum by (le, {label}) (rate({family}_bucket{{{SELECT}}}[$__rate_interval])))"


# Title, unit ("": that of the first family), [(query, legend)]. What a picture of the node at a glance has.
OVERVIEW = [
    ("Hits of loads, and the ceiling", "percentunit", [(f"sluice:load_hits:ratio5m{{{SELECT}}}", "hits {{instance}}"),
                                                       (f"sluice:load_ceiling:ratio5m{{{SELECT}}}", "with unlimited memory {{instance}}")]),
    ("Hits of gets, and the ceiling", "percentunit", [(f"sluice:get_hits:ratio5m{{{SELECT}}}", "hits {{instance}}"),
                                                      (f"sluice:get_ceiling:ratio5m{{{SELECT}}}", "with unlimited memory {{instance}}")]),
    ("Loads by tier", "ops", [(by("sluice_load_blocks_total", "tier"), "{{tier}}")]),
    ("Gets by tier", "ops", [(by("sluice_get_keys_total", "tier"), "{{tier}}")]),
    ("Lookups", "ops", [(by("sluice_lookup_blocks_total", "result"), "blocks {{result}}"), (by("sluice_lookup_keys_total", "result"), "keys {{result}}")]),
    ("Bytes", "Bps", [(by("sluice_load_bytes_total", "instance"), "loaded {{instance}}"), (by("sluice_store_bytes_total", "instance"), "stored {{instance}}"),
                      (by("sluice_get_bytes_total", "tier"), "got from {{tier}}")]),
    ("Time of loads and stores", "s", [(quantile(q, f"sluice_{op}_duration_seconds", "instance"), f"{op} p{int(100 * q)} {{{{instance}}}}")
                                       for op in ("load", "store") for q in (0.5, 0.99)]),
    ("Time of gets by tier", "s", [(quantile(q, "sluice_get_duration_seconds", "tier"), f"p{int(100 * q)} {{{{tier}}}}") for q in (0.5, 0.99)]),
    ("Time of engines' lookups", "s", [(quantile(q, "sluice_lookup_blocks_duration_seconds", "instance"), f"p{int(100 * q)} {{{{instance}}}}") for q in (0.5, 0.99)]),
    ("Loads by model", "ops", [(by("sluice_model_load_blocks_total", "model, tier"), "{{model}} {{tier}}")]),
    ("Gets by tenant", "ops", [(by("sluice_tenant_get_keys_total", "tenant, tier"), "{{tenant}} {{tier}}")]),
    ("Memory for values", "bytes", [(by("sluice_memory_used_bytes", "instance", "now"), "used {{instance}}"),
                                    (by("sluice_memory_usable_bytes", "instance", "now"), "there {{instance}}")]),
    ("Age of what is evicted", "s", [(quantile(q, "sluice_evict_age_seconds", "instance"), f"p{int(100 * q)} {{{{instance}}}}") for q in (0.1, 0.5)]),
    ("Write-behind", "s", [(f"sluice_write_behind_lag_seconds{{{SELECT}}}", "oldest waits {{instance}}")]),
    ("Disk traffic", "Bps", [(by("sluice_tier_written_bytes_total", "instance, actor"), "written {{instance}} {{actor}}"),
                             (by("sluice_tier_read_bytes_total", "instance, actor"), "read {{instance}} {{actor}}")]),
    ("Written to disks today", "bytes", [(f"sluice_tier_written_today_bytes{{{SELECT}}}", "{{instance}} {{actor}}")]),
    ("Queues", "none", [(f"sluice_tier_queue{{{SELECT}}}", "disk {{instance}} {{actor}}"), (f"sluice_swap_queue{{{SELECT}}}", "copies {{instance}} {{actor}}"),
                        (f"sluice_reserve_waiting{{{SELECT}}}", "stores that wait {{instance}}"), (f"sluice_ops_active{{{SELECT}}}", "ops {{instance}}")]),
    ("Ops that did not end well", "ops", [(by("sluice_ops_unsuccessful_total", "instance, reason"), "{{instance}} {{reason}}"),
                                          (by("sluice_get_keys_failed_total", "instance"), "gets {{instance}}")]),
    ("Actors", "none", [(f"sluice_actor_up{{{SELECT}}}", "{{instance}} {{actor}}")]),
    ("Restarts in an hour", "none", [(f"increase(sluice_actor_restarts_total{{{SELECT}}}[1h])", "{{instance}} {{actor}}")]),
    ("Processor time", "percentunit", [(by("sluice_actor_cpu_seconds_total", "instance, actor"), "{{instance}} {{actor}}")]),
    ("Other nodes, and the directory", "none", [(f"sluice_peers_alive{{{SELECT}}}", "other nodes {{instance}}"),
                                                (f"sluice_directory_up{{{SELECT}}}", "directory answers {{instance}}")]),
]
# Of these a node alone has nothing.
NOT_ALONE = ("sluice_directory", "sluice_peers", "sluice_tenant")
UNITS = {"BYTES": "bytes", "NS": "s", "US": "s", "MS": "s", "SINCE": "s", "AGE": "s", "ONE": "none"}
RATES = {"bytes": "Bps", "none": "ops", "s": "percentunit"}


def panel(identity, title, unit, targets, position, description=""):
    x, y, width, height = position
    return {
        "id": identity, "type": "timeseries", "title": title, "description": description, "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": {"x": x, "y": y, "w": width, "h": height}, "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend} for i, (expression, legend) in enumerate(targets)],
    }


def family_panel(identity, rows, position):
    """A family as it is: counters as rates, histograms as quantiles."""
    first = rows[0]
    labels = ", ".join(dict.fromkeys(re.findall(r"(\w+)=", first.labels)))
    whose = ", ".join(filter(None, ["instance", *metrics_table.OWN_LABELS.get(first.kind, ["actor"]), labels]))
    legend = " ".join(f"{{{{{label}}}}}" for label in whose.split(", "))
    unit = UNITS[first.unit]
    if first.type == "HISTOGRAM":
        targets = [(quantile(q, first.family, whose), f"p{int(100 * q)} {legend}") for q in (0.5, 0.99)]
    elif first.type == "COUNTER":
        targets, unit = [(by(first.family, whose), legend)], RATES[unit]
    else:
        targets = [(f"{first.family}{{{SELECT}}}", legend)]
    return panel(identity, first.family.removeprefix("sluice_"), unit, targets, position, first.help)


def dashboard():
    helps, families = {}, {}
    for row in metrics_table.rows():
        helps.setdefault(row.family, row.help)
        families.setdefault(row.kind, {}).setdefault(row.family, []).append(row)
    panels, identity, y = [], 1, 0
    for number, (title, unit, targets) in enumerate(OVERVIEW):
        used = dict.fromkeys(family for expression, _ in targets for family in re.findall(r"sluice_\w+", expression))
        texts = [helps[family.removesuffix("_bucket")] for family in used]
        panels.append(panel(identity, title, unit, targets, (12 * (number % 2), y, 12, 8), " ".join(texts)))
        identity, y = identity + 1, y + 8 * (number % 2)
    y += 8
    for kind, members in families.items():
        row = {"id": identity, "type": "row", "title": f"All of: {kind.lower().replace('any', 'every actor')}", "collapsed": True,
               "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        identity += 1
        for number, rows in enumerate(members.values()):
            row["panels"].append(family_panel(identity, rows, (8 * (number % 3), y + 1 + 6 * (number // 3), 8, 6)))
            identity += 1
        panels.append(row)
        y += 1
    return {
        "title": "Sluice", "uid": "sluice", "tags": ["sluice"], "schemaVersion": 39, "editable": True, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            {"name": "instance", "type": "query", "datasource": {"type": "prometheus", "uid": "$datasource"}, "multi": True, "includeAll": True,
             "allValue": ".*", "query": "label_values(sluice_build_info, instance)", "refresh": 2, "current": {"text": "All", "value": "$__all"}}]},
        "panels": panels,
    }


def text():
    """A panel a line, so that a change is read as one."""
    board = dashboard()
    lines = []
    for one in board.pop("panels"):
        inner = one.pop("panels", None)
        head = json.dumps(one)
        lines.append(head if inner is None else head[:-1] + ', "panels": [\n' + ",\n".join(json.dumps(panel_) for panel_ in inner) + "\n]}")
    return json.dumps(board)[:-1] + ', "panels": [\n' + ",\n".join(lines) + "\n]}\n"


def queries(board):
    """(panel's title, query, whether it is of the overview)"""
    for one in board["panels"]:
        for inner in one.get("panels", [one]):
            for target in inner.get("targets", []):
                yield inner["title"], target["expr"], "panels" not in one


def main():
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    with open(os.path.join(metrics_table.ROOT, PATH), "w", encoding="utf-8") as file:
        file.write(text())


if __name__ == "__main__":
    main()
