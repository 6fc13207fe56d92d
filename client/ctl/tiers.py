"""What `sluicectl tiers` shows, as text or JSON: of actors as `sluicectl status --metrics --json` has them, at standard input."""

import json
import sys

from plain import clean, end_with_reader, natural, percent, run, size_text
from text import devices, nics


def counters(actors, name, names):
    """{what they are called here: their values} of an actor's counters, which names gives; 0 where it has none."""
    found = next((actor["counters"] for actor in actors if actor["name"] == name), {})
    return {here: found.get(there, 0) for here, there in names.items()}


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
        "remote": {**of_loads["remote"], "device_memory": facts["device_memory"], "nics": facts["nics"]},
        "not_waited_for": {**left, "saved_s": left["saved_s"] / 1e6}}


def lines(shown, reason):
    memory, disk, admission, ahead, left = shown["memory"], shown["disk"], shown["disk"]["admission"], shown["memory"]["ahead"], shown["not_waited_for"]
    read = sum(row["values_read"] for row in disk["tierers"])
    more = f"  {size_text(memory['usable_bytes'])} of it there so far, the rest comes when it is wanted" \
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
            yield (f"{row['name']:<12} may be written {budget['a_day_bytes']} a day: {budget['written_today_bytes']} written today, "
                   f"{budget['left_bytes']} left now; {budget['written_in_all_bytes']} in all")
        if row["emptied_segments"]:
            yield f"{row['name']:<12} began empty: it had been away while others served ({row['emptied_segments']} segments removed)"
    if admission["not_written"]:
        yield (f"{'disk':<12} {admission['written']} values written ({size_text(admission['written_bytes'])}); {admission['not_written']} were not at first "
               f"({size_text(admission['not_written_bytes'])}; for the budget: {admission['over_budget']} blocks), {admission['written_later']} of them later")
    if ahead["objects"]:
        yield (f"{'memory':<12} {ahead['objects']} objects came from disk before they were wanted: {ahead['units_wanted']} blocks or lone objects of them "
               f"were wanted then, {ahead['units_lost']} left before that; {ahead['sessions']} sessions known")
    yield f"{'remote':<12} {'':9} {'':11} {'':11} {'':10} {shown['remote']['share_percent']:7.1f}%"
    if left["blocks"] + left["soft_deadlines_missed"] + left["fetches_spared"]:
        yield (f"not waited for: {left['blocks']} blocks, {left['tokens']} tokens, sooner computed than read; about {left['saved_s']:.1f} s saved; "
               f"soft deadlines missed {left['soft_deadlines_missed']}, other nodes not asked {left['fetches_spared']}")
    if disk["waiting_to_be_written"]:
        yield f"{disk['waiting_to_be_written']} objects wait to be written to disk"
    if reason:
        yield f"the node: {reason}"


def main():
    facts = json.load(sys.stdin)
    shown = tiers(facts)
    if sys.argv[1] == "json":
        print(json.dumps(shown, separators=(",", ":")))
        return
    reason = next((actor["reason"] for actor in facts["actors"] if actor["name"] == "registrar"), "")
    for line in [*lines(shown, reason), *devices(facts["device_memory"]), *nics(facts["nics"], facts["nics_why"])]:
        print(clean(line))


if __name__ == "__main__":
    end_with_reader()
    run(main)
