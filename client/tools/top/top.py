"""The screen of `sluicectl top`: requests readings of the node from `sluicectl top --readings` and makes lines of text from them.

    python3 top.py INSTANCE VIEW FILTER INTERVAL_S model|prefix ascii|"" once|"" json|"" CONFIG_FILE [SETTING=VALUE]...
"""

import collections
import curses
import json
import locale
import math
import os
import re
import select
import subprocess
import sys
import time

from plain import interruptible, escaped, natural, percent, run, size_text, sluicectl, supervision

VIEWS = {"overview": (), "memory": ("name", "memory", "disk", "objects", "uses"), "disks": ("name", "live", "read", "written", "queue"),
         "peers": ("name", "read", "failures", "round trip"), "actors": ("name", "processor time", "memory", "messages", "restarts", "uptime"),
         "engines": ("name", "loads", "lookups", "stores", "bytes"), "help": ()}  # columns by which their tables can be sorted
TIERS = ("memory", "disk", "remote")
WHERE = {**{tier: tier for tier in TIERS}, "none": "missed"}
PLAIN, HEAD, GOOD, BAD = range(4)  # styles of lines
SILENCE_S = 2
SCAN_MS, SCAN_ONCE_MS = 20, 10000  # time for the scan of the index in a reading: 2 % of a core
PEERS_S = 0.3  # wait for the transporter in a reading
FILTER_MAX, HISTORY_MAX, DISKS_SHOWN, WIDTH_MIN, ONCE_WIDTH = 31, 512, 4, 40, 120
HELP = """\
1 to 6      overview, memory, disks, peers, actors, engines; Tab: the next one
p, Space    pause: keep the present screen
s, r        sort by the next column; reverse the order
/           show rows of tables whose name contains a text; empty: all rows
g           group memory and uses by model or by prefix
+ -         longer, shorter intervals
up, down    scroll in a long table
h, ?        this help; q: quit

now/s and times are those of the last interval; `in all` is since the node was started.
Times are upper bounds of buckets: <20us is more than 10 us and at most 20 us.
missed: found in no tier. Blocks of loads are those that engines requested.
engines: a row is all engines of a model; there are no figures for single engines.
uses/s: values read and blocks loaded; a block counts once, under its first part.
Processes that start and end between two readings are not included."""


# ---- figures ----

class Figures:
    """All metrics of a node, as `sluicectl metrics` prints them: at one moment, or the difference between two."""

    def __init__(self, text, at_ns):
        self.at_ns = at_ns  # monotonic; for a difference, the length of the interval
        self.values, self.series = {}, collections.defaultdict(list)
        for line in text.split("\n"):
            if line and not line.startswith("#"):
                key, value = line.rsplit(" ", 1)
                self.values[key] = float(value) if "." in value else int(value)
                labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', key)
                self.series[key.partition("{")[0]].append(({name: re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], label) for name, label in labels}, key))

    def since(self, then):
        """The difference since then. Gauges keep their value, as do counters that were reset by a restart of the node."""
        last = Figures("", max(self.at_ns - then.at_ns, 1))
        last.series = self.series
        for key, value in self.values.items():
            counts = key.partition("{")[0].endswith(("_total", "_bucket", "_count", "_sum"))
            before = then.values.get(key, 0) if counts else 0
            last.values[key] = value - before if value >= before else value
        return last

    def sum(self, name, **labels):
        return sum(self.values[key] for row, key in self.series.get(name, ()) if labels.items() <= row.items())

    def names(self, name, label):
        return sorted({row[label] for row, _ in self.series.get(name, ())}, key=natural)

    def label(self, name, label, **labels):
        """The label of the series that is not 0; "": none."""
        return next((row[label] for row, key in self.series.get(name, ()) if self.values[key] and labels.items() <= row.items()), "")

    def where(self, *names, **labels):
        return {tier: sum(self.sum(name, tier=tier, **labels) for name in names) for tier in WHERE}

    def quantile(self, name, share, **labels):
        """The upper bound of the bucket with this quantile, in s; 0: nothing was timed."""
        ends = collections.Counter()
        for row, key in self.series.get(name + "_bucket", ()):
            if labels.items() <= row.items():
                ends[float(row["le"])] += self.values[key]
        most = max(ends.values(), default=0)
        return next((end for end in sorted(ends) if ends[end] >= share * most), 0) if most else 0

    def rate(self, amount):
        return amount / (self.at_ns / 1e9)

    def hits(self):
        """(found, found with unlimited memory, requested) keys of gets and blocks of loads. The counters are not read at one moment."""
        where = self.where("sluice_get_keys_total", "sluice_load_blocks_total")
        hits, references = sum(where[tier] for tier in TIERS), sum(where.values())
        return hits, min(hits + self.sum("sluice_get_keys_seen_total") + self.sum("sluice_load_blocks_seen_total"), references), references

    def bytes(self):
        return self.sum("sluice_get_bytes_total") + self.sum("sluice_load_bytes_total")

    def actor_state(self, actor):
        return self.label("sluice_actor_state", "state", actor=actor) if self.sum("sluice_actor_up", actor=actor) else "dead"


# ---- texts ----

def count_text(value):
    unit = 0
    while value >= 1000 and unit < 4:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return f"{value:.1f}" if value < 10 and value != int(value) else f"{value:.0f}"
    return f"{value:.{1 if value < 100 else 0}f}{' kMGT'[unit]}"


def time_text(seconds):
    """A time that is the upper bound of a bucket."""
    if seconds == 0 or math.isinf(seconds):
        return "-" if seconds == 0 else ">10s"
    return f"<{seconds * 1e6:.0f}us" if seconds < 0.001 else f"<{seconds * 1e3:.0f}ms" if seconds < 1 else f"<{seconds:.0f}s"


def uptime_text(seconds):
    s = int(seconds)
    return (f"{s // 60} min {s % 60} s" if s < 3600 else f"{s // 3600} h {s // 60 % 60} min" if s < 48 * 3600 else f"{s // 86400} days")


def spark(values, cells, ascii_only):
    """A graph of the values from 0 to the highest, the newest at the right."""
    letters = "_.-=+*#@" if ascii_only else "▁▂▃▄▅▆▇█"
    shown = list(values)[-cells:]
    highest = max(shown, default=0)
    return "".join(letters[min(int(value / highest * 7.999), 7) if highest > 0 else 0] for value in shown)


def bar(part, whole):
    filled = int(min(part, whole) / whole * 16) if whole else 0
    return f"[{'#' * filled}{'.' * (16 - filled)}]"


def line_text(text, width):
    """The text with escaped control characters, cut to the width."""
    out = ""
    for letter in text:
        shown = escaped(letter)
        if len(out) + len(shown) > width:
            break
        out += shown
    return out


# ---- views ----

class State:
    def __init__(self, instance, view="overview", shown="", interval_s=1.0, grouping="model", ascii_only=True):
        self.instance, self.view, self.filter, self.interval_s, self.grouping, self.ascii = instance, view, shown, interval_s, grouping, ascii_only
        self.now = self.last = None
        self.history = collections.deque(maxlen=HISTORY_MAX)  # (share of hits, bytes a second, evicted bytes a second)
        self.groups, self.groups_whole, self.problem = [], False, ""
        self.nodes, self.nodes_why = None, ""  # None: not requested yet
        self.sort, self.reverse, self.paused = 1, False, False
        self.lines, self.width = [], ONCE_WIDTH

    def take(self, head, text):
        """Takes a reading. If the node does not answer, the last figures stay, with a line that reports it."""
        if "failed" in head:
            self.problem = head["failed"]
            return
        now = Figures(text, head["at_ns"])
        self.last, self.now = now.since(self.now or now), now
        hits, _, references = self.last.hits()
        self.history.append((percent(hits, references), self.last.rate(self.last.bytes()), self.last.rate(self.last.sum("sluice_evicted_bytes_total"))))
        self.groups, self.groups_whole, self.problem = head["groups"], head["groups_whole"], head["problem"]
        self.groups.sort(key=lambda group: (not group["objects"], -group["memory_bytes"], -group["disk_bytes"], group["name"]))

    def add(self, text, style=PLAIN):
        self.lines.append((line_text(text, self.width), style))

    def draw(self, width):
        """The view's lines, with their styles."""
        self.lines, self.width = [], width
        self.title()
        if self.view == "help":
            for line in HELP.split("\n"):
                self.add(line)
        elif self.now is not None:
            getattr(self, self.view)()
        return self.lines

    def title(self):
        now, ready, restarts, up_s = self.now, 0, 0, 0
        actors = now.names("sluice_actor_up", "actor") if now else []
        if now:
            ready = sum(now.actor_state(actor) == "ready" for actor in actors)
            restarts = now.sum("sluice_actor_restarts_total")
            up_s = max((now.sum("sluice_actor_uptime_seconds", actor=actor) for actor in actors), default=0)
        self.add(f"sluice {self.instance}  {time.strftime('%H:%M:%S')}  {self.view}{'  PAUSED' if self.paused else ''}  "
                 f"{ready}/{len(actors)} actors ready, {restarts} restarts, up {uptime_text(up_s)}", HEAD)
        if self.problem:
            self.add(self.problem, BAD)
        for actor in actors:
            state = now.actor_state(actor)
            stuck = state != "dead" and now.sum("sluice_actor_silence_seconds", actor=actor) > SILENCE_S
            if stuck or state != "ready":
                self.add(f"{actor}: {'stuck, ' if stuck else ''}{state}", BAD)

    # ---- the overview ----

    def found(self, what, family, bytes_family, times_family):
        """A table of the tiers in which keys or blocks were found."""
        last, now = self.last.where(family), self.now.where(family)
        self.add(f"{what:<10} {'now/s':>8} {'share':>7} {'in all':>9} {'share':>7} {'bytes':>13} {'p50':>8} {'p99':>8}", HEAD)
        for tier, name in WHERE.items():
            known = bytes_family is not None and tier != "none"
            size = size_text(self.last.rate(self.last.sum(bytes_family, tier=tier))) + "/s" if known else ""
            times = [time_text(self.last.quantile(times_family, share, tier=tier)) if known else "" for share in (0.5, 0.99)]
            self.add(f"{name:<10} {count_text(self.last.rate(last[tier])):>8} {percent(last[tier], sum(last.values())):6.1f}% "
                     f"{count_text(now[tier]):>9} {percent(now[tier], sum(now.values())):6.1f}% {size:>13} {times[0]:>8} {times[1]:>8}".rstrip())

    def op(self, what, last, now, size, family):
        times = [time_text(self.last.quantile(family, share)) for share in (0.5, 0.99)]
        self.add(f"{what:<10} {count_text(self.last.rate(last)):>8} {'':7} {count_text(now):>9} {'':7} "
                 f"{size_text(self.last.rate(size)) + '/s':>13} {times[0]:>8} {times[1]:>8}")

    def overview(self):
        now, last = self.now, self.last
        self.found("gets", "sluice_get_keys_total", "sluice_get_bytes_total", "sluice_get_duration_seconds")
        self.found("loads", "sluice_load_blocks_total", None, None)
        loads = [sum(figures.where("sluice_load_blocks_total")[tier] for tier in TIERS) for figures in (last, now)]
        stores = [figures.sum("sluice_store_blocks_total", result="stored") for figures in (last, now)]
        self.op("all loads", *loads, last.sum("sluice_load_bytes_total"), "sluice_load_duration_seconds")
        self.op("stores", *stores, last.sum("sluice_store_bytes_total"), "sluice_store_duration_seconds")
        shares = [(percent(hits, whole), percent(most, whole)) for hits, most, whole in (last.hits(), now.hits())]
        self.add("hit rate   now {:5.1f}% of {:5.1f}% with unlimited memory; in all {:5.1f}% of {:5.1f}%".format(*shares[0], *shares[1]))
        cells = min(self.width - 26, 160) if self.width > 26 else 10
        for at, (what, text) in enumerate((("hits", f"{shares[0][0]:.1f}%"), ("bytes", size_text(last.rate(last.bytes())) + "/s"),
                                           ("evicted", size_text(last.rate(last.sum("sluice_evicted_bytes_total"))) + "/s"))):
            self.add(f"{what:<10} {text:>13} {spark([point[at] for point in self.history], cells, self.ascii)}", GOOD)
        used, most = now.sum("sluice_memory_used_bytes"), now.sum("sluice_memory_ceiling_bytes")
        self.add(f"{'memory':<10} {bar(used, most)} {size_text(used)} of {size_text(most)}, {count_text(now.sum('sluice_index_keys'))} keys, "
                 f"{count_text(now.sum('sluice_index_blocks'))} blocks")
        for disk in now.names("sluice_tier_live_bytes", "actor")[:DISKS_SHOWN]:
            read, written = [size_text(last.rate(last.sum(f"sluice_tier_{what}_bytes_total", actor=disk))) for what in ("read", "written")]
            self.add(f"{disk:<10} {size_text(now.sum('sluice_tier_live_bytes', actor=disk))} live; read {read}/s, written {written}/s; "
                     f"queue {now.sum('sluice_tier_queue', actor=disk) + now.sum('sluice_tier_in_flight', actor=disk)}")
        self.add(f"{'waiting':<10} {now.sum('sluice_write_behind_keys')} keys to write; {now.sum('sluice_peers_alive')} peers, "
                 f"{now.sum('sluice_clients')} clients, {now.sum('sluice_engines')} engines, {now.sum('sluice_sessions')} sessions, "
                 f"{now.sum('sluice_ops_active')} ops")

    # ---- tables ----

    def table(self, head, rows, none):
        """Rows are (name, values of the other columns for sorting, [(line, style)], more names for the filter). The highest number is the first row."""
        shown = [row for row in rows if any(self.filter.lower() in name.lower() for name in (row[0], *row[3]))]
        shown.sort(key=lambda row: natural(row[0]))
        if self.sort > 0:
            shown.sort(key=lambda row: -row[1][self.sort - 1])
        if self.reverse:
            shown.reverse()
        names = f"; names with '{self.filter}'" if self.filter else ""
        self.add(f"sorted by {VIEWS[self.view][self.sort]}{', reversed' if self.reverse else ''}{names}")
        self.add(head, HEAD)
        for row in shown:
            for line, style in row[2]:
                self.add(line, style)
        if none and not shown:
            self.add(none)

    def memory(self):
        rows, used = [], self.now.sum("sluice_memory_used_bytes")
        for group in self.groups:
            uses, objects, memory, disk = group["uses_per_second"], group["objects"], group["memory_bytes"], group["disk_bytes"]
            texts = (count_text(objects), size_text(memory), f"{percent(memory, used):.1f}%", size_text(disk)) if objects else "----"
            rows.append((group["name"], (memory, disk, objects, uses),
                         [("{:>7} {:>10} {:>6} {:>10} {:>6}  {}".format(*texts, count_text(uses), group["name"]), PLAIN)], ()))
        self.table(f"{'objects':>7} {'memory':>10} {'share':>6} {'disk':>10} {'uses/s':>6}  {self.grouping}", rows,
                   "the node is empty" if self.groups_whole else "")
        if not self.groups_whole:
            self.add("scanning the index ...")

    def disks(self):
        rows = []
        for disk in self.now.names("sluice_tier_live_bytes", "actor"):
            now = {what: self.now.sum(f"sluice_tier_{what}", actor=disk) for what in (
                "live_bytes", "ceiling_bytes", "queue", "in_flight", "written_bytes_total", "io_errors_total", "corrupt_values_total",
                "write_budget_bytes", "write_budget_left_bytes", "written_today_bytes")}
            read, written = [self.last.sum(f"sluice_tier_{what}_bytes_total", actor=disk) for what in ("read", "written")]
            times = [time_text(self.last.quantile(f"sluice_tier_{what}_duration_seconds", 0.99, actor=disk)) for what in ("read", "write")]
            queue, errors, corrupt = now["queue"] + now["in_flight"], now["io_errors_total"], now["corrupt_values_total"]
            lines = [(f"{disk:<12} {size_text(now['live_bytes']):>10} {size_text(now['ceiling_bytes']):>10} {size_text(self.last.rate(read)):>8}/s "
                      f"{size_text(self.last.rate(written)):>8}/s {queue:>5} {times[0]:>7} {times[1]:>7}", PLAIN),
                     (f"  written since the start {size_text(now['written_bytes_total'])}; errors {errors}, corrupt {corrupt}",
                      BAD if errors + corrupt else PLAIN)]
            if now["write_budget_bytes"]:
                lines.append((f"  budget a day {size_text(now['write_budget_bytes'])}, written today {size_text(now['written_today_bytes'])}, "
                              f"left {size_text(now['write_budget_left_bytes'])}", PLAIN))
            rows.append((disk, (now["live_bytes"], read, written, queue), lines, ()))
        self.table(f"{'disk':<12} {'live':>10} {'of':>10} {'read':>10} {'written':>10} {'queue':>5} {'r p99':>7} {'w p99':>7}", rows,
                   "no disk (settings disk, disk_path)")

    def peers(self):
        rows = [(node["name"], (node["read_bytes"], node["failures"], node["round_trip_ns"]),
                 [(f"{node['name']:<18} {node['state']:<9} {node['link']:<9} {node['round_trip_ns'] / 1e3:6.0f} us {node['last_seen_ago_ns'] / 1e9:7.1f} s "
                   f"{size_text(node['read_bytes']):>10} {node['failures']:>8}", PLAIN if node["state"] == "alive" else BAD)], ())
                for node in self.nodes or ()]
        asked = self.nodes is not None
        self.table(f"{'peer':<18} {'state':<9} {'link':<9} {'rtt':>9} {'last seen':>9} {'read':>10} {'failures':>8}", rows,
                   "no peers (settings peers, directory, cluster_listen)" if asked and not self.nodes_why else "")
        if not asked:
            self.add("waiting for the transporter ...")
        elif self.nodes_why:
            self.add(self.nodes_why, BAD)

    def actors(self):
        rows = []
        for actor in self.now.names("sluice_actor_up", "actor"):
            state, cpu = self.now.actor_state(actor), self.last.sum("sluice_actor_cpu_seconds_total", actor=actor)
            resident, silent_s, up_s = [self.now.sum(f"sluice_actor_{what}", actor=actor) for what in (
                "resident_memory_bytes", "silence_seconds", "uptime_seconds")]
            restarts = self.now.sum("sluice_actor_restarts_total", actor=actor)
            got, sent = [self.last.sum("sluice_actor_messages_total", actor=actor, direction=way) for way in ("received", "sent")]
            line = (f"{actor:<16} {state:<9} {restarts + 1:>6} {100 * self.last.rate(cpu):5.1f}% {size_text(resident):>10} "
                    f"{count_text(self.last.rate(got)):>8} {count_text(self.last.rate(sent)):>8} {silent_s:5.1f}s")
            rows.append((actor, (cpu, resident, got + sent, restarts, up_s), [(line, BAD if state == "dead" else PLAIN)], ()))
        self.table(f"{'actor':<16} {'state':<9} {'starts':>6} {'cpu':>6} {'memory':>10} {'in/s':>8} {'out/s':>8} {'silent':>6}", rows, "")

    def engines(self):
        rows, rate = [], lambda amount: count_text(self.last.rate(amount))
        for model in self.models():
            last, now = model["last"], model["now"]
            name, asked, looked = model["name"] or model["model"], sum(last["loads"].values()), last["looked_found"] + last["looked_missing"]
            moved, whole = last["load_bytes"] + last["store_bytes"], sum(now["loads"].values())
            rows.append((name, (asked, looked, last["stored"], moved), [
                (f"{rate(asked):>8} {percent(asked - last['loads']['none'], asked):6.1f}% {rate(looked):>8} {percent(last['looked_found'], looked):6.1f}% "
                 f"{rate(last['stored']):>8} {size_text(self.last.rate(moved)):>10}/s  {name}", PLAIN),
                (f"  {model['model']}: all loads {count_text(whole)} ({percent(whole - now['loads']['none'], whole):.1f}% found), "
                 f"stores {count_text(now['stored'])}", PLAIN)], (model["model"],)))
        self.table(f"{'loads/s':>8} {'found':>7} {'looks/s':>8} {'found':>7} {'stores/s':>8} {'bytes':>12}  engines of", rows,
                   "" if rows else "no engine has stored or loaded blocks")

    def models(self):
        for model in self.now.names("sluice_model_load_blocks_total", "model"):
            row = {"model": model, "name": self.now.label("sluice_model_info", "name", model=model)}
            for when, figures in (("now", self.now), ("last", self.last)):
                looked = {f"looked_{what}": figures.sum("sluice_model_lookup_blocks_total", model=model, result=what) for what in ("found", "missing")}
                stored = {what: figures.sum("sluice_model_store_blocks_total", model=model, result=what) for what in ("stored", "existed", "refused")}
                row[when] = {"loads": figures.where("sluice_model_load_blocks_total", model=model), **looked, **stored,
                             "load_bytes": figures.sum("sluice_model_load_bytes_total", model=model),
                             "store_bytes": figures.sum("sluice_model_store_bytes_total", model=model)}
            yield row

    # ---- JSON ----

    def where_json(self, last, now, times=None):
        rows = {}
        for tier, name in WHERE.items():
            rows[name] = {"count": now[tier], "share_percent": percent(now[tier], sum(now.values())), "per_second": self.last.rate(last[tier]),
                          "now_share_percent": percent(last[tier], sum(last.values()))}
            if times and tier != "none":
                for what, share in (("p50_ns", 0.5), ("p99_ns", 0.99)):
                    end = self.last.quantile(times, share, tier=tier)
                    rows[name][what] = -1 if math.isinf(end) else round(end * 1e9)
        return rows

    def json(self):
        now, last = self.now, self.last

        def hits(figures):
            found, most, references = figures.hits()
            return {"references": references, "hits": found, "ceiling_hits": most, "hit_percent": percent(found, references),
                    "ceiling_percent": percent(most, references)}

        def actor(name):
            of = {"actor": name}
            messages = {f"{way}_per_second": last.rate(last.sum("sluice_actor_messages_total", direction=way, **of)) for way in ("received", "sent")}
            return {"name": name, "state": now.actor_state(name), "restarts": now.sum("sluice_actor_restarts_total", **of),
                    "cpu_percent": 100 * last.rate(last.sum("sluice_actor_cpu_seconds_total", **of)),
                    "resident_bytes": now.sum("sluice_actor_resident_memory_bytes", **of), **messages,
                    "uptime_s": now.sum("sluice_actor_uptime_seconds", **of)}

        def disk(name):
            gauges = {"live_bytes": "live_bytes", "used_bytes": "used_bytes", "queue": "queue", "in_flight": "in_flight",
                      "written_today_bytes": "written_today_bytes", "written_ever_bytes": "written_ever_bytes_total",
                      "write_budget_bytes": "write_budget_bytes", "io_errors": "io_errors_total", "corrupt": "corrupt_values_total"}
            rates = {f"{way}_bytes_per_second": last.rate(last.sum(f"sluice_tier_{way}_bytes_total", actor=name)) for way in ("read", "written")}
            return {"name": name, **{to: now.sum("sluice_tier_" + of, actor=name) for to, of in gauges.items()}, **rates}

        stores = {what: now.sum("sluice_store_blocks_total", result=what) for what in ("stored", "existed", "refused")}
        return {
            "instance": self.instance, "interval_s": last.at_ns / 1e9, "problem": self.problem, "hits": hits(now), "hits_now": hits(last),
            "gets": self.where_json(last.where("sluice_get_keys_total"), now.where("sluice_get_keys_total"), "sluice_get_duration_seconds"),
            "loads": self.where_json(last.where("sluice_load_blocks_total"), now.where("sluice_load_blocks_total")),
            "stores": {**stores, "bytes": now.sum("sluice_store_bytes_total")},
            "memory": {name: now.sum("sluice_" + family) for name, family in (
                ("used_bytes", "memory_used_bytes"), ("ceiling_bytes", "memory_ceiling_bytes"), ("keys", "index_keys"), ("blocks", "index_blocks"),
                ("evicted_units", "evicted_units_total"), ("evicted_bytes", "evicted_bytes_total"))},
            "grouping": self.grouping, "groups": self.groups, "disks": [disk(name) for name in now.names("sluice_tier_live_bytes", "actor")],
            "actors": [actor(name) for name in now.names("sluice_actor_up", "actor")],
            "engines": [{"model": row["model"], "name": row["name"], **row["now"], "loads": self.where_json(row["last"]["loads"], row["now"]["loads"])}
                        for row in self.models()],
            "peers_alive": now.sum("sluice_peers_alive"), "clients": now.sum("sluice_clients")}


# ---- the screen ----

class Screen:
    def __init__(self, window, state, node):
        self.window, self.state, self.node = window, state, node
        self.scrolled, self.due_s, self.over, self.typing = 0, time.monotonic() + 0.25, False, False
        self.colours = curses.has_colors()
        if self.colours:
            curses.use_default_colors()
            curses.init_pair(GOOD, curses.COLOR_GREEN, -1)
            curses.init_pair(BAD, curses.COLOR_RED, -1)

    def line(self, row, text, style):
        colour = curses.color_pair(style) if self.colours else curses.A_BOLD
        attributes = {PLAIN: curses.A_NORMAL, HEAD: curses.A_REVERSE, GOOD: colour, BAD: colour | curses.A_BOLD}[style]
        room = self.window.getmaxyx()[1] - 1  # without the last cell: writing that of the last row would scroll
        try:
            self.window.addstr(row, 0, text.ljust(room) if style == HEAD else text, attributes)
        except curses.error:
            pass  # the window became smaller

    def draw(self):
        state = self.state
        height, width = self.window.getmaxyx()
        lines = state.draw(max(width, WIDTH_MIN))
        rows = max(height - 1, 1)
        heads = [at + 1 for at, (_, style) in enumerate(lines) if style == HEAD]
        fixed = min(heads[-1] if VIEWS[state.view] and heads else 0, rows - 1)  # title and heads stay, the rest scrolls
        self.scrolled = max(min(self.scrolled, len(lines) - fixed - (rows - fixed)), 0)
        self.window.erase()
        for row, (text, style) in enumerate((lines[:fixed] + lines[fixed + self.scrolled:])[:rows]):
            self.line(row, text, style)
        footer = (f"names with: {state.filter}_  (Enter: done)" if self.typing else
                  f"1-6 views  p pause  s sort  r reverse  / filter  g group  h help  q quit  +- {state.interval_s:.3g}s")
        self.line(height - 1, footer[:width - 1], HEAD)
        self.window.refresh()

    def view(self, name):
        self.state.view, self.state.reverse, self.scrolled = name, False, 0
        self.state.sort = 1 if VIEWS[name] and name != "actors" else 0
        if name == "peers":
            self.due_s = 0  # request them now

    def filter_key(self, key):
        state = self.state
        if key in (10, 13, curses.KEY_ENTER, 27):
            self.typing = False
            state.filter = "" if key == 27 else state.filter
        elif key in (curses.KEY_BACKSPACE, 127, 8):
            state.filter = state.filter[:-1]
        elif 32 <= key < 127 and len(state.filter) < FILTER_MAX:
            state.filter += chr(key)

    def key(self, key):
        state, name = self.state, chr(key) if 0 <= key < 127 else ""
        columns = len(VIEWS[state.view])
        if self.typing:
            self.filter_key(key)
        elif name in ("q", "Q"):
            self.over = True
        elif name and name in "123456":
            self.view(list(VIEWS)[int(name) - 1])
        elif name == "\t":
            at = list(VIEWS).index(state.view) + 1
            self.view("overview" if at >= len(VIEWS) - 1 else list(VIEWS)[at])
        elif name in ("h", "?"):
            self.view("help")
        elif name in ("p", " "):
            state.paused = not state.paused
        elif name == "s":
            state.sort = (state.sort + 1) % columns if columns else 0
        elif name == "r":
            state.reverse = not state.reverse
        elif name == "g":
            state.grouping = "prefix" if state.grouping == "model" else "model"
            state.groups, state.groups_whole, self.due_s = [], False, 0
        elif name == "/":
            self.typing = True
        elif name in ("+", "-"):
            next_s = state.interval_s * (2 if name == "+" else 0.5)
            if 0.125 <= next_s <= 32:
                state.interval_s, self.due_s = next_s, min(self.due_s, time.monotonic() + next_s)
        elif key in (curses.KEY_UP, curses.KEY_DOWN, curses.KEY_PPAGE, curses.KEY_NPAGE) or name in ("k", "j"):
            half = self.window.getmaxyx()[0] // 2
            self.scrolled += {curses.KEY_UP: -1, ord("k"): -1, curses.KEY_DOWN: 1, ord("j"): 1, curses.KEY_PPAGE: -half, curses.KEY_NPAGE: half}[key]

    def run(self):
        ends = select.poll()
        for stream in (sys.stdin, self.node.readings.stdout):
            ends.register(stream, 0)
        while not self.over:
            if time.monotonic() >= self.due_s and not self.state.paused:
                self.node.read(self.state, SCAN_MS)
                if self.state.view == "peers":
                    self.node.read_peers(self.state, PEERS_S)
                self.due_s = time.monotonic() + self.state.interval_s
            self.draw()
            wait_s = 1 if self.state.paused else max(self.due_s - time.monotonic(), 0)
            self.window.timeout(int(wait_s * 1000) + 1)
            key = self.window.getch()
            if key != -1:
                self.key(key)
            elif gone := dict(ends.poll(0)):
                if self.node.readings.stdout.fileno() in gone:
                    self.node.end()
                self.over = True  # the terminal was closed


def screen_run(state, node):
    terminal = os.environ.get("TERM", "")
    try:
        curses.setupterm()
    except curses.error:
        sys.exit(f"sluicectl top: the terminal '{terminal}' is not known; set TERM, or use --once")
    if not curses.tigetstr("cup"):  # as "dumb", which would show nothing
        sys.exit(f"sluicectl top: the terminal '{terminal}' cannot move its cursor; set TERM, or use --once")

    def run(window):
        curses.set_escdelay(50)
        try:
            curses.curs_set(0)
        except curses.error:
            pass  # the terminal cannot hide its cursor
        Screen(window, state, node).run()

    node.read(state, 0, True)
    curses.wrapper(run)


class Node:
    """The sluicectl processes that read the node. Each has its own session, so that Ctrl-C signals only this process."""

    def __init__(self, settings, as_json):
        self.command, *self.settings = sluicectl(*settings)
        self.readings = self.start("top", "--readings", *(["--json"] if as_json else []), stdin=subprocess.PIPE)
        self.nodes = None  # the running `sluicectl nodes`

    def start(self, *words, **streams):
        return subprocess.Popen([self.command, *words, *self.settings], stdout=subprocess.PIPE, start_new_session=True, **streams)

    def read(self, state, scan_ms, must=False):
        """Passes a reading to the state. Ends this process if a reading with must fails, or if the program ends, which prints why."""
        lines = []
        try:
            self.readings.stdin.write(f"{state.grouping} {scan_ms} {int(must)}\n".encode())
            self.readings.stdin.flush()
            while not lines or lines[-1][:1] not in (b"", b"{"):
                lines.append(self.readings.stdout.readline())
        except OSError:
            lines.append(b"")
        head = json.loads(lines[-1] or "{}")
        if "at_ns" not in head:
            print(end="".join(line.decode() for line in lines[-1:]))
            self.end()
        head["problem"] = supervision(head["supervisor"], state.instance)[0]
        state.take(head, b"".join(lines[:-1]).decode(errors="surrogateescape"))

    def end(self):
        """Ends this process because the readings have ended. A program that ended by itself has printed why."""
        code = self.readings.wait()
        sys.exit(f"sluicectl top: its readings were ended by signal {-code}" if code < 0 else max(code, 1))

    def read_peers(self, state, patience_s):
        """Reads the peers. An answer that is late is taken by a later call. NICs are left out: reading their load takes 0.25 s."""
        self.nodes = self.nodes or self.start("nodes", "--json", "--sysfs", "/nonexistent", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            answer = json.loads(self.nodes.communicate(timeout=patience_s)[0] or "{}")
        except subprocess.TimeoutExpired:
            state.nodes_why = "the transporter has not answered yet"
            return
        self.nodes = None
        state.nodes, state.nodes_why = answer.get("nodes", []), "" if "nodes" in answer else answer.get("text", "sluicectl nodes failed")


def main():
    instance, view, shown, interval, grouping, letters, once, as_json, *settings = sys.argv[1:]
    for right, text in ((view in VIEWS and view != "help", "--view must be overview, memory, disks, peers, actors or engines"),
                        (0.1 <= float(interval) <= 60, "--interval must be 100ms to 60s"),
                        (len(os.fsencode(shown)) <= FILTER_MAX, f"--filter may have at most {FILTER_MAX} bytes"),
                        (once or not as_json, "--json needs --once"),
                        (once or (os.isatty(0) and os.isatty(1)), "the live view needs a terminal; --once prints one screen and ends")):
        if not right:
            print(f"sluicectl top: {text}; see: sluicectl top --help", file=sys.stderr)
            return 2
    locale.setlocale(locale.LC_CTYPE, "")
    plain = bool(letters) or locale.nl_langinfo(locale.CODESET) != "UTF-8"
    if once:
        interruptible()
    node = Node(settings, as_json)
    state = State(instance, view, shown, float(interval), grouping, plain)
    if not once:
        screen_run(state, node)
        return 0
    node.read(state, 0, True)
    time.sleep(state.interval_s)
    node.read(state, SCAN_ONCE_MS, True)
    if as_json:
        print(json.dumps(state.json(), separators=(",", ":")))
        return 0
    if view == "peers":
        node.read_peers(state, None)
    print("\n".join(text for text, _ in state.draw(ONCE_WIDTH)))
    return 0


if __name__ == "__main__":
    try:
        run(main)
    except KeyboardInterrupt:
        sys.exit(130)
