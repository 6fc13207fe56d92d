"""Makes the answers of `sluicectl status`, `tiers` and `nodes`, as text or JSON, from the facts and actors' pages at standard input.

    python3 node.py status|tiers|nodes text|json < FACTS
"""

import collections
import json
import math
import sys

from plain import clean, interruptible, natural, percent, run, since_text, size_text, supervision
from text import table


COUNTERS_IN_TABLE = 4
U64 = 2**64 - 1  # numbers over 2^63 are negative in the facts


def counters(actors, name, names):
    """{name here: value} of an actor's counters; names maps names here to the actor's. 0 for a counter that it lacks."""
    found = next((actor["counters"] for actor in actors if actor["name"] == name), {})
    return {here: found.get(there, 0) for here, there in names.items()}


# ---- engines' device memory in the fabric, RDMA ports: for nodes, tiers and doctor ----

CAUSES = {"fabric": "the fabric does not support dmabuf (tcp, or libibverbs without ibv_reg_dmabuf_mr)",
          "swapper": "the driver or the GPU exports no dmabuf, or the rank's swapper did not answer",
          "nic": "the NIC or its driver did not register it"}


def fabric_memory(actors):
    found = counters(actors, "transporter.0", {"": "pool_device_bytes", **{cause: f"pool_device_out_{cause}_bytes" for cause in CAUSES}})
    return {"dmabuf_bytes": found[""], "left_out": [{"cause": cause, "bytes": found[cause], "why": why} for cause, why in CAUSES.items() if found[cause]]}


def devices(shown):
    """A line, or none if no engine has device memory."""
    said = [f"{size_text(shown['dmabuf_bytes'])} registered by dmabuf"] if shown["dmabuf_bytes"] else []
    said += [f"{size_text(row['bytes'])} through the arena: {row['why']}" for row in shown["left_out"]]
    return ["device memory: " + "; ".join(said)] if said else []


def nics(rows, why):
    """A table, or nothing if there is no port."""
    def state(row):
        return "no GID" if row["state"] == "ACTIVE" and not row["usable"] else row["state"]

    lines = table(("{:<16} {:<8} {:<11} {:>12} {:>6} {:>13} {:>13} {:>6}  {}", "NIC", "STATE", "LAYER", "SPEED", "SOCKET", "SENT", "RECEIVED", "LOAD",
                   "RANKS"),
                  [(row["name"], state(row), row["layer"], f"{row['speed_mbit_s'] / 1e3:g} Gbit/s" if row["speed_mbit_s"] else "?",
                    row["numa_node"] if row["numa_node"] >= 0 else "?", size_text(row["sent_bytes_s"]) + "/s", size_text(row["received_bytes_s"]) + "/s",
                    f"{row['load_percent']:.1f}%",
                    ",".join(str(rank["rank"]) for rank in row["ranks"]) + (" (virtual function)" if row["virtual_function"] else "")) for row in rows], "")
    return [*lines, *([f"no NIC serves a rank: {why}"] if rows and why else [])]


# ---- tiers ----

def tierer(actor):
    row = {"name": actor["name"], "health": actor["health"], "reason": actor["reason"], **counters([actor], actor["name"], {
        "used_bytes": "disk_used_bytes", "live_bytes": "live_bytes", "ceiling_bytes": "disk_ceiling_bytes", "objects": "live_values",
        "segments": "segments", "queued_requests": "queued_requests", "requests_in_flight": "requests_in_flight", "values_read": "values_read",
        "values_written": "values_written", "corrupt": "corrupt_count", "io_errors": "io_error_count", "emptied_segments": "emptied_segments"})}
    for what in ("read", "write"):
        times = actor["histograms"].get(what + "_ns", {"p50": 0, "p99": 0, "count": 0})
        row[what] = {"p50_us": times["p50"] / 1e3, "p99_us": times["p99"] / 1e3, "count": times["count"]}
    budget = counters([actor], actor["name"], {"a_day_bytes": "write_budget_bytes", "written_today_bytes": "written_today_bytes",
                                               "left_bytes": "write_budget_left_bytes", "written_in_all_bytes": "written_all_bytes"})
    return {**row, "write_budget": budget} if budget["a_day_bytes"] else row


def tiers(facts):
    actors = facts["actors"]
    loads = counters(actors, "coordinator", {tier: "blocks_from_" + tier for tier in ("memory", "disk", "remote")})
    of_loads = {tier: {"blocks_loaded": count, "share_percent": percent(count, sum(loads.values()))} for tier, count in loads.items()}
    ahead = {**counters(actors, "registrar", {"objects": "prefetched_count", "units_wanted": "prefetch_used_count", "units_lost": "prefetch_lost_count"}),
             **counters(actors, "coordinator", {"sessions": "sessions", "session_prefetches": "session_prefetches", "refused": "session_prefetches_refused"})}
    left = counters(actors, "coordinator", {"blocks": "blocks_not_waited_for", "tokens": "tokens_not_waited_for", "saved_s": "waiting_saved_us",
                                            "soft_deadlines_missed": "soft_deadlines_missed", "fetches_spared": "fetches_spared"})
    rows = [tierer(actor) for actor in actors if actor["name"].startswith("tierer.")]
    return {
        "memory": {**counters(actors, "registrar", {"used_bytes": "used_bytes", "usable_bytes": "usable_bytes", "ceiling_bytes": "ceiling_bytes",
                                                    "objects": "object_count"}), **of_loads["memory"], "ahead": ahead},
        "disk": {**counters(actors, "registrar", {"waiting_to_be_written": "write_behind_pending_count"}), **of_loads["disk"],
                 "admission": counters(actors, "registrar", {
                     "written": "written_count", "written_bytes": "written_bytes", "not_written": "not_written_count",
                     "not_written_bytes": "not_written_bytes", "written_later": "written_later_count", "over_budget": "over_budget_count"}),
                 "tierers": sorted(rows, key=lambda row: natural(row["name"]))},
        "remote": {**of_loads["remote"], "device_memory": fabric_memory(actors), "nics": facts["nics"]},
        "not_waited_for": {**left, "saved_s": left["saved_s"] / 1e6}}


def tiers_lines(facts, shown):
    reason = next((actor["reason"] for actor in facts["actors"] if actor["name"] == "registrar"), "")
    memory, disk, admission, ahead, left = shown["memory"], shown["disk"], shown["disk"]["admission"], shown["memory"]["ahead"], shown["not_waited_for"]
    read = sum(row["values_read"] for row in disk["tierers"])
    more = f"  {size_text(memory['usable_bytes'])} of it are allocated, the rest on demand" \
        if memory["usable_bytes"] < memory["ceiling_bytes"] else ""
    yield f"{'TIER':<12} {'HEALTH':<9} {'BYTES':>11} {'OF':>11} {'OBJECTS':>10} {'LOADS':>8}"
    yield (f"{'memory':<12} {'ready':<9} {size_text(memory['used_bytes']):>11} {size_text(memory['ceiling_bytes']):>11} {memory['objects']:>10} "
           f"{memory['share_percent']:7.1f}%{more}")
    for row in disk["tierers"]:
        share = disk["share_percent"] * (row["values_read"] / read if read else 0)
        why = f"  -- {row['reason']}" if row["reason"] else ""
        yield (f"{row['name']:<12} {row['health']:<9} {size_text(row['live_bytes']):>11} {size_text(row['ceiling_bytes']):>11} {row['objects']:>10} "
               f"{share:7.1f}%  takes {size_text(row['used_bytes'])}; queue {row['queued_requests']}, in flight {row['requests_in_flight']}; "
               f"read p50 {row['read']['p50_us']:.0f} us, p99 {row['read']['p99_us']:.0f} us; write p50 {row['write']['p50_us']:.0f} us; "
               f"errors {row['io_errors']}, corrupt {row['corrupt']}{why}")
        if "write_budget" in row:
            budget = {name: size_text(value) for name, value in row["write_budget"].items()}
            yield (f"{row['name']:<12} write budget {budget['a_day_bytes']} a day: {budget['written_today_bytes']} written today, "
                   f"{budget['left_bytes']} left now; {budget['written_in_all_bytes']} written in all")
        if row["emptied_segments"]:
            yield f"{row['name']:<12} began empty: it was absent while other disks served ({row['emptied_segments']} log files removed)"
    if admission["not_written"]:
        yield (f"{'disk':<12} {admission['written']} values written ({size_text(admission['written_bytes'])}); {admission['not_written']} not admitted at first "
               f"({size_text(admission['not_written_bytes'])}; by the write budget: {admission['over_budget']} blocks), {admission['written_later']} of them written later")
    if ahead["objects"]:
        yield (f"{'memory':<12} {ahead['objects']} objects prefetched from disk: {ahead['units_wanted']} blocks or single objects of them "
               f"were used, {ahead['units_lost']} evicted unused; {ahead['sessions']} sessions known")
    yield f"{'remote':<12} {'':9} {'':11} {'':11} {'':10} {shown['remote']['share_percent']:7.1f}%"
    if left["blocks"] + left["soft_deadlines_missed"] + left["fetches_spared"]:
        yield (f"skipped by loads: {left['blocks']} blocks, {left['tokens']} tokens, faster to compute than to read; about {left['saved_s']:.1f} s saved; "
               f"soft deadlines missed {left['soft_deadlines_missed']}, fetches from other nodes avoided {left['fetches_spared']}")
    if disk["waiting_to_be_written"]:
        yield f"{disk['waiting_to_be_written']} objects are waiting to be written to disk"
    if reason:
        yield f"the node: {reason}"
    yield from devices(shown["remote"]["device_memory"])
    yield from nics(facts["nics"], facts["nics_why"])


# ---- nodes ----

def nodes(facts):
    """Bytes that pass through the arena count as copied: a swapper copies them once more."""
    moved = counters(facts["actors"], "transporter.0", {name: name for name in (
        "bytes_read", "pulled_bytes", "pull_copied_bytes", "copied_bytes", "pool_read_bytes", "landed_bytes")})
    copied = moved["bytes_read"] - min(moved["pulled_bytes"], moved["bytes_read"]) + moved["pull_copied_bytes"] + moved["copied_bytes"]
    whole = moved["bytes_read"] + moved["pool_read_bytes"] + moved["landed_bytes"]
    trouble = next((actor["reason"] for actor in facts["actors"] if actor["name"] == "transporter.0"), "")
    return {"name": facts["name"], "trouble": trouble, "listen": facts["listen"], "fabric": facts["fabric"], "nodes": facts["nodes"],
            "moved_bytes": whole, "copied_bytes": copied, "copied_per_byte_moved": copied / whole if whole else 0.0,
            "device_memory": fabric_memory(facts["actors"]), "nics": facts["nics"], "nics_why": facts["nics_why"]}


def nodes_lines(_facts, shown):
    if not shown["name"] or (not shown["listen"] and not shown["nodes"] and shown["fabric"] == "off"):
        yield "this node has no peers, and no other node can reach it (settings peers, directory, cluster_listen)"
    else:
        yield f"this node: {shown['name']}, listening at {shown['listen'] or 'no address'}; {shown['fabric']}"
        if shown["trouble"]:
            yield f"degraded: {shown['trouble']}"
        yield from table(("{:<20} {:<10} {:<10} {:>9} {:>9} {:>11} {:>8} {:>8}  {:<19} {:<9} {}", "NODE", "STATE", "LINK", "RTT", "LAST SEEN", "READ", "VALUES",
                          "FAILED", "INCARNATION", "KNOWN BY", "ADDRESS"),
                         [(row["name"], row["state"], row["link"], f"{row['round_trip_ns'] / 1e3:.0f} us", f"{row['last_seen_ago_ns'] / 1e9:.1f} s",
                           size_text(row["read_bytes"]), row["read_values"], row["failures"], row["incarnation"], row["source"], row["address"])
                          for row in shown["nodes"]], None)
        if shown["moved_bytes"]:
            yield f"read and pushed: {size_text(shown['moved_bytes'])}, copied per byte moved {shown['copied_per_byte_moved']:.2f}"
    yield from devices(shown["device_memory"])
    yield from nics(shown["nics"], shown["nics_why"])


# ---- status ----

def figures(families):
    """Summary since the node was started: hits, bytes, times, memory, disks."""
    samples = {family["name"]: family["samples"] for family in families}

    def total(name, **labels):
        return sum(sample["value"] for sample in samples.get(name, ()) if labels.items() <= sample["labels"].items())

    def done(what, size):
        ends = collections.Counter()
        for sample in samples.get(f"sluice_{what}_duration_seconds", ()):
            if sample["name"].endswith("_bucket"):
                ends[float(sample["labels"]["le"])] += sample["value"]
        most = max(ends.values(), default=0)
        row = {"bytes": size}
        for name, share in (("p50_ns", 0.5), ("p99_ns", 0.99)):  # the upper bound of the bucket with this quantile
            end = next((end for end in sorted(ends) if ends[end] >= share * most), 0) if most else 0
            row[name] = -1 if math.isinf(end) else round(end * 1e9)
        return row

    def found(what, unit):
        return {**done(what, total(f"sluice_{what}_bytes_total")),
                **{name: total(f"sluice_{what}_{unit}_total", tier=tier) for name, tier in (
                    ("memory", "memory"), ("disk", "disk"), ("remote", "remote"), ("missed", "none"))}}

    disks = list(dict.fromkeys(sample["labels"]["actor"] for sample in samples.get("sluice_tier_live_bytes", ())))
    return {"gets": found("get", "keys"), "loads": found("load", "blocks"),
            "stores": {**done("store", total("sluice_store_bytes_total")), "blocks": total("sluice_store_blocks_total", result="stored")},
            "disks": [{"name": disk, **{name: total(f"sluice_tier_{of}", actor=disk) for name, of in (
                ("live_bytes", "live_bytes"), ("ceiling_bytes", "ceiling_bytes"), ("written_bytes", "written_bytes_total"),
                ("io_errors", "io_errors_total"), ("corrupt", "corrupt_values_total"))}} for disk in disks],
            "memory": {name: total("sluice_" + of) for name, of in (
                ("used_bytes", "memory_used_bytes"), ("ceiling_bytes", "memory_ceiling_bytes"), ("keys", "index_keys"),
                ("evicted_units", "evicted_units_total"))}}


def events_at(at):
    """The address where events are published, and the one for missed events."""
    return at["address"].partition(" ")[::2]


def status(facts):
    actors = [actor for actor in facts["actors"] if actor["alive"] or not actor["name"].startswith("client.")]  # pages of dead clients are kept for `trace`
    if not facts["metrics"]:
        actors = [{name: value for name, value in actor.items() if name != "histograms"} for actor in actors]
    found, metrics, events = facts["supervisor"], facts["metrics_at"], facts["events_at"]
    return {"instance": facts["instance"], **({"figures": figures(facts["families"])} if "families" in facts else {}), "actors": actors,
            "supervisor": {"state": found["state"], "pid": found["pid"], "since": since_text(found), "since_ms": found["since_ms"]},
            "program": facts["program"], "metrics_at": metrics and metrics["address"],
            "events_at": events and dict(zip(("publish", "replay"), events_at(events)))}


def figures_lines(shown):
    """Operations that were never used have no line."""
    def count_text(value):
        unit = next(unit for unit in range(5) if value < 1000 ** (unit + 1) or unit == 4)
        value /= 1000**unit
        return f"{value:.1f}{' kMGT'[unit]}" if unit and value < 100 else f"{value:.0f}{' kMGT'[unit]}".strip()

    def time_text(ns):  # upper bound of a bucket; -1: the last bucket
        unit, name = (1e3, "us") if ns < 10**6 else (1e6, "ms") if ns < 10**9 else (1e9, "s")
        return "-" if ns == 0 else ">10s" if ns < 0 else f"<{ns / unit:.0f}{name}"

    def done(row):
        return f"; {size_text(row['bytes'])}; p50 {time_text(row['p50_ns'])}, p99 {time_text(row['p99_ns'])}"

    for name, unit in (("gets", "keys"), ("loads", "blocks")):
        row = shown[name]
        where = {tier: row[tier] for tier in ("memory", "disk", "remote", "missed")}
        if sum(where.values()):
            shares = ", ".join(f"{tier} {percent(count, sum(where.values())):.1f}%" for tier, count in where.items())
            yield f"{name:<8} {count_text(sum(where.values()))} {unit}: {shares}{done(row)}"
    if shown["stores"]["blocks"]:
        yield f"{'stores':<8} {count_text(shown['stores']['blocks'])} blocks{done(shown['stores'])}"
    memory = shown["memory"]
    yield (f"{'memory':<8} {size_text(memory['used_bytes'])} of {size_text(memory['ceiling_bytes'])}, {count_text(memory['keys'])} keys; "
           f"{count_text(memory['evicted_units'])} units evicted")
    for disk in shown["disks"]:
        yield (f"{disk['name']:<8} {size_text(disk['live_bytes'])} of {size_text(disk['ceiling_bytes'])}; {size_text(disk['written_bytes'])} written, "
               f"errors {disk['io_errors']}, corrupt {disk['corrupt']}")
    yield ""


def status_lines(facts, shown):
    if "figures" in shown:
        yield from figures_lines(shown["figures"])
    yield f"{'ACTOR':<20} {'PID':>8} {'HEALTH':<9} {'UPTIME':>9} {'STARTS':>6}  COUNTERS"
    for actor in shown["actors"]:
        health = "dead" if not actor["alive"] else "stuck" if actor["stuck"] else actor["health"]
        some = [] if facts["metrics"] else [f" {name}={value & U64}" for name, value in actor["counters"].items() if value][:COUNTERS_IN_TABLE]
        yield (f"{actor['name']:<20} {actor['pid']:>8} {health:<9} {actor['uptime_s']:8.1f}s {actor['incarnation']:>6} {''.join(some)}"
               f"{'  -- ' if actor['reason'] else ''}{actor['reason']}")
        if facts["metrics"]:
            yield from (f"    {name:<40} {value & U64}" for name, value in actor["counters"].items())
            yield from (f"    {name:<40} count {row['count']}, p50 {row['p50']}, p90 {row['p90']}, p99 {row['p99']}, max {row['max']}"
                        for name, row in actor["histograms"].items())
    metrics, events = facts["metrics_at"], facts["events_at"]
    yield f"/metrics at {metrics['address']} (process {metrics['pid']})" if metrics else "/metrics is not served"
    yield ("events at {}, missed events at {} (process {})".format(*events_at(events), events["pid"]) if events else
           "no events are published for routers")
    text, mend = supervision(facts["supervisor"], facts["instance"])
    if text:
        yield from (text, f"  -> {mend}")


def main():
    facts = json.load(sys.stdin)
    show, lines = {"status": (status, status_lines), "tiers": (tiers, tiers_lines), "nodes": (nodes, nodes_lines)}[sys.argv[1]]
    shown = show(facts)
    if sys.argv[2] == "json":
        print(json.dumps(shown, separators=(",", ":")))
        return
    for line in lines(facts, shown):
        print(clean(line))


if __name__ == "__main__":
    interruptible()
    run(main)
