"""The views of sluicectl top for given figures: differences, times, lines."""

import math
import os
import sys
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 4))
sys.path[:0] = [os.path.join(ROOT, "client", "tools", "top"), os.path.join(ROOT, "client", "tools", "command"), os.path.join(ROOT, "tests", "support")]
import suite  # noqa: E402
import top  # noqa: E402



def figures(at_s, samples):
    return top.Figures("".join(f"{key} {value}\n" for key, value in samples.items()), int(at_s * 1e9))


def taken(state, at_s, samples, **head):
    lines = "# HELP sluice_x x\n" + "".join(f"{key} {value}\n" for key, value in samples.items())
    state.take({"at_ns": int(at_s * 1e9), "groups": [], "groups_whole": True, "problem": "", **head}, lines)
    return state


def drawn(state, width=80):
    return [line for line, _ in state.draw(width)]


def actor(name, state, **values):
    rows = {f'sluice_actor_up{{actor="{name}"}}': int(state != "dead"), f'sluice_actor_state{{actor="{name}",state="{state}"}}': 1}
    return {**rows, **{f'sluice_actor_{key}{{actor="{name}"}}': value for key, value in values.items()}}


class Figures(unittest.TestCase):
    def test_an_interval_has_what_came_in_it(self):
        key, gauge, bucket = 'sluice_get_keys_total{tier="memory"}', "sluice_memory_used_bytes", 'sluice_get_duration_seconds_bucket{tier="memory",le="2e-05"}'
        last = figures(3, {key: 160, gauge: 7, bucket: 14}).since(figures(1, {key: 100, gauge: 5, bucket: 10}))
        self.assertEqual((last.values[key], last.values[gauge], last.values[bucket], last.at_ns), (60, 7, 4, 2e9))

    def test_labels_are_what_they_were_before_they_were_quoted(self):
        now = figures(1, {'sluice_model_info{model="0",name="a\\"b\\\\c"}': 1})
        self.assertEqual(now.label("sluice_model_info", "name", model="0"), 'a"b\\c')
        self.assertEqual(now.names("sluice_model_info", "name"), ['a"b\\c'])

    def test_series_of_one_figure_are_summed(self):
        now = figures(1, {'sluice_load_blocks_total{actor="coordinator",tier="disk"}': 5, 'sluice_load_blocks_total{actor="coordinator",tier="none"}': 2})
        self.assertEqual(now.where("sluice_load_blocks_total"), {"memory": 0, "disk": 5, "remote": 0, "none": 2})

    def test_counters_of_a_node_that_began_anew_are_what_came_since(self):
        key = 'sluice_load_blocks_total{tier="disk"}'
        self.assertEqual(figures(2, {key: 20}).since(figures(1, {key: 500})).values[key], 20)

    def test_actors_are_compared_by_their_names(self):
        last = figures(2, {**actor("keyer", "ready", cpu_seconds_total="0.50"), **actor("registrar", "ready", cpu_seconds_total="0.9")}).since(
            figures(1, actor("registrar", "ready", cpu_seconds_total="0.7")))
        self.assertAlmostEqual(last.sum("sluice_actor_cpu_seconds_total", actor="keyer"), 0.5)
        self.assertAlmostEqual(last.sum("sluice_actor_cpu_seconds_total", actor="registrar"), 0.2)

    def test_a_quantile_is_the_end_of_its_bucket(self):
        name = "sluice_get_duration_seconds"
        self.assertEqual(figures(1, {}).quantile(name, 0.5), 0)
        now = figures(1, {f'{name}_bucket{{tier="memory",le="{end}"}}': count for end, count in (("1e-06", 98), ("2e-05", 99), ("+Inf", 100))})
        self.assertEqual([now.quantile(name, share, tier="memory") for share in (0.5, 0.99, 1)], [1e-6, 2e-5, math.inf])


class Lines(unittest.TestCase):
    def test_counts_sizes_and_times_are_short(self):
        self.assertEqual([top.count_text(value) for value in (0, 7.5, 999, 12345, 4.5e8)], ["0", "7.5", "999", "12.3k", "450M"])
        self.assertEqual([top.time_text(value) for value in (0, 2e-5, 5e-3, math.inf)], ["-", "<20us", "<5ms", ">10s"])
        self.assertEqual(sorted(("node-10", "node-9", "\u00b2"), key=top.natural), ["node-9", "node-10", "\u00b2"])
        self.assertEqual([top.size_text(value) for value in (0, 1023, 1536, 5 << 50)], ["0 B", "1023 B", "1.5 KiB", "5120.0 TiB"])

    def test_a_sparkline_has_the_newest_and_its_highest(self):
        self.assertEqual(top.spark([9, 0, 5, 10], 3, True), "_=@")
        self.assertEqual(len(top.spark([9, 0, 5, 10], 8, False)), 4)
        self.assertEqual(top.spark([], 8, True), "")

    def test_an_overview_shows_tiers_and_what_is_wrong(self):
        state = taken(top.State("here"), 1, actor("registrar", "dead"))
        taken(state, 3, {**actor("registrar", "dead"), 'sluice_load_blocks_total{tier="memory"}': 30, 'sluice_load_blocks_total{tier="none"}': 10})
        lines = drawn(state)
        for said in ("0/1 actors ready", "registrar: dead", " 15   75.0%        30   75.0%", "  5   25.0%        10   25.0%", "75.0% _@"):
            self.assertTrue(any(said in line for line in lines), (said, lines))
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_a_node_that_is_away_leaves_what_was_seen_last(self):
        state = taken(top.State("here"), 1, actor("registrar", "ready"))
        state.take({"failed": "no node runs", "at_ns": 2}, "")
        self.assertIn("1/1 actors ready", drawn(state)[0])
        self.assertEqual(drawn(state)[1], "no node runs")

    def test_lines_are_cut_and_give_a_terminal_no_orders(self):
        self.assertEqual(top.line_text("███", 2), "██")
        self.assertEqual(top.line_text("a\033[2J\x7f\x9b\u202e\\", 80), "a\\x1b[2J\\x7f\\xc2\\x9b\\xe2\\x80\\xae\\x5c")
        self.assertEqual(top.line_text(b"\x9b".decode(errors="surrogateescape"), 80), "\\x9b")
        self.assertEqual(top.line_text("ab\033", 5), "ab")
        state = taken(top.State("here", view="peers"), 1, {})
        state.nodes = [{"name": "a\033[2J", "state": "alive", "link": "tcp", "round_trip_ns": 0, "last_seen_ago_ns": 0, "read_bytes": 0, "failures": 0}]
        self.assertTrue(any("a\\x1b[2J" in line for line in drawn(state)))

    def test_rows_are_sorted_and_left_out(self):
        groups = [{"name": name, "objects": objects, "memory_bytes": memory, "disk_bytes": 0, "uses_per_second": uses}
                  for name, objects, memory, uses in (("b", 1, 300, 0.5), ("a", 9, 200, 0), ("x", 5, 100, 1200), ("u", 0, 0, 7))]
        state = taken(top.State("here", view="memory"), 1, {}, groups=groups)
        state.sort = 3  # objects
        self.assertEqual([line[-1] for line in drawn(state)[3:]], ["a", "x", "b", "u"])
        state.reverse = True
        self.assertEqual([line[-1] for line in drawn(state)[3:]], ["u", "b", "x", "a"])
        state.sort, state.reverse, state.filter = 0, False, "X"
        self.assertEqual([line[-3:] for line in drawn(state)[3:]], ["  x"])
        state.filter = "u"  # it was used, but has no values
        self.assertEqual(drawn(state)[3], "      -          -      -          -      7  u")

    def test_engines_have_a_row_for_each_model(self):
        def model(identity, name, found, missed):
            of = f'model="{identity}"'
            rows = {f'sluice_model_load_blocks_total{{{of},tier="disk"}}': found, f'sluice_model_load_blocks_total{{{of},tier="none"}}': missed}
            return {**rows, f'sluice_model_info{{{of},name="{name}"}}': 1}

        state = taken(top.State("here", view="engines"), 1, model("0123", "small", 5, 5))
        taken(state, 3, {**model("0012", "", 3, 0), **model("0123", "small", 35, 15)})
        lines = drawn(state)
        self.assertIn("sorted by loads", lines[1])
        self.assertIn("      20   75.0% ", lines[3])
        self.assertTrue(lines[3].endswith("  small"))
        self.assertIn("0123: all loads 50 (70.0% found), stores 0", lines[4])
        self.assertIn("     1.5  100.0% ", lines[5])
        self.assertTrue(lines[5].endswith("  0012"))
        for shown, there, gone in (("SMALL", "0123: ", "0012"), ("0012", "  0012", "small")):
            state.filter = shown
            self.assertTrue(any(there in line for line in drawn(state)[3:]))
            self.assertFalse(any(gone in line for line in drawn(state)[3:]))


if __name__ == "__main__":
    suite.run()
