/* client/top/views.c - the overview, and what all views share. The tables are in tables.c. */
#include "client/top/views.h"
#include "client/command/command.h"
#include "client/top/tables.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BAR_CELLS   16u
#define LABEL_CELLS 10u
#define DISKS_SHOWN 4u /* in the overview */
#define SILENCE_NS  (2 * SL_NS_PER_S)

/* ---- texts ---- */

void top_spark(const double *values, uint32_t count, uint32_t cells, bool ascii, char *out)
{
    static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                         "\u2585", "\u2586", "\u2587", "\u2588"};
    static const char *const letters[] = {"_", ".", "-", "=", "+", "*", "#", "@"};
    double highest = 0;
    uint32_t first = count > cells ? count - cells : 0;
    for (uint32_t i = first; i < count; i++) {
        highest = SL_MAX(highest, values[i]);
    }
    out[0] = '\0';
    size_t at = 0;
    for (uint32_t i = first; i < count; i++) {
        double share = highest > 0 ? values[i] / highest : 0;
        uint32_t step = (uint32_t)(share * 7.999);
        const char *cell = (ascii ? letters : blocks)[SL_MIN(step, 7u)];
        at += (size_t)snprintf(&out[at], 4, "%s", cell);
    }
}

const char *top_count_text(double value, char out[32])
{
    static const char units[] = " kMGT";
    size_t unit = 0;
    while (value >= 1000 && unit + 2 < sizeof units) {
        value /= 1000;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(out, 32, value < 10 && value != (double)(uint64_t)value ? "%.1f" : "%.0f",
                       value);
    } else {
        (void)snprintf(out, 32, value < 100 ? "%.1f%c" : "%.0f%c", value, units[unit]);
    }
    return out;
}

const char *top_time_text(uint64_t ns, char out[32])
{
    if (ns == 0) {
        (void)snprintf(out, 32, "-");
    } else if (ns == UINT64_MAX) {
        (void)snprintf(out, 32, ">10s");
    } else if (ns < SL_NS_PER_MS) {
        (void)snprintf(out, 32, "<%.0fus", (double)ns / 1e3);
    } else if (ns < SL_NS_PER_S) {
        (void)snprintf(out, 32, "<%.0fms", (double)ns / 1e6);
    } else {
        (void)snprintf(out, 32, "<%.0fs", (double)ns / 1e9);
    }
    return out;
}

static const char *rate_text(uint64_t bytes, const struct top_figures *last, char out[32])
{
    char size[32];
    double per_second = (double)bytes / ((double)last->at_ns / 1e9);
    (void)snprintf(out, 32, "%s/s", ctl_size_text((uint64_t)per_second, size));
    return out;
}

/* Characters that a terminal would take for orders are escaped; what is longer than the line is cut. */
static void line_fill(char out[TOP_LINE_BYTES], const char *text, uint32_t width)
{
    char shown[CTL_CHARACTER_TEXT];
    size_t at = 0, taken = 0;
    uint32_t cells = 0;
    for (size_t left = strlen(text); left > 0; left -= taken, text += taken) {
        taken = ctl_character_text(text, left, shown);
        size_t length = strlen(shown);
        cells += length == taken ? 1 : (uint32_t)length;
        if (cells > width || at + length >= TOP_LINE_BYTES) {
            break;
        }
        memcpy(&out[at], shown, length);
        at += length;
    }
    out[at] = '\0';
}

void top_line_add(struct top_lines *lines, enum top_style style, const char *format, ...)
{
    char text[TOP_LINE_BYTES];
    if (lines->count == TOP_LINES_MAX) {
        return;
    }
    struct top_line *line = &lines->lines[lines->count++];
    va_list arguments;
    va_start(arguments, format);
    /* The analyser loses va_start when it checks several files in one run. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    line_fill(line->text, text, lines->width);
    line->style = style;
}

/* "[#######.......]" */
static const char *bar_text(uint64_t part, uint64_t whole, char out[BAR_CELLS + 3])
{
    uint32_t filled =
        whole > 0 ? (uint32_t)((double)SL_MIN(part, whole) / (double)whole * BAR_CELLS) : 0;
    out[0] = '[';
    for (uint32_t i = 0; i < BAR_CELLS; i++) {
        out[1 + i] = i < filled ? '#' : '.';
    }
    (void)snprintf(&out[1 + BAR_CELLS], 2, "]");
    return out;
}

static const char *uptime_text(uint64_t ns, char out[32])
{
    uint64_t s = ns / SL_NS_PER_S;
    if (s < 3600) {
        (void)snprintf(out, 32, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    } else if (s < 48 * 3600) {
        (void)snprintf(out, 32, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
    } else {
        (void)snprintf(out, 32, "%" PRIu64 " days", s / 86400);
    }
    return out;
}

/* ---- the title ---- */

static void title(const struct top_state *state, struct top_lines *lines)
{
    char up[32];
    char clock[16];
    uint32_t ready = 0;
    uint64_t restarts = 0;
    uint64_t longest_ns = 0;
    time_t now = time(NULL);
    struct tm parts;
    for (uint32_t i = 0; i < state->now.actor_count; i++) {
        const struct top_actor *actor = &state->now.actors[i];
        ready += actor->up && strcmp(actor->state, "ready") == 0;
        restarts += actor->restarts;
        longest_ns = SL_MAX(longest_ns, actor->uptime_ns);
    }
    (void)strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &parts));
    top_line_add(
        lines, TOP_HEAD, "sluice %s  %s  %s%s  %u/%u actors ready, %" PRIu64 " restarts, up %s",
        state->instance, clock, top_view_name(state->view), state->paused ? "  PAUSED" : "", ready,
        state->now.actor_count, restarts, uptime_text(longest_ns, up));
    if (state->problem[0] != '\0') {
        top_line_add(lines, TOP_BAD, "%s", state->problem);
    }
    for (uint32_t i = 0; i < state->now.actor_count; i++) {
        const struct top_actor *actor = &state->now.actors[i];
        bool stuck = actor->up && actor->silence_ns > SILENCE_NS;
        if (!actor->up || stuck || strcmp(actor->state, "ready") != 0) {
            top_line_add(lines, TOP_BAD, "%s: %s%s", actor->name, stuck ? "stuck, " : "",
                         actor->state);
        }
    }
}

/* ---- the overview ---- */

struct where_table {
    const char *what;
    const uint64_t *last, *now; /* TOP_WHERE_COUNT each */
    const uint64_t *last_bytes; /* NULL: they are not known by tier */
    const struct top_times *times;
};

static void where_lines(const struct where_table *table, const struct top_figures *last,
                        struct top_lines *lines)
{
    char a[32], b[32], c[32], d[32], e[32];
    double seconds = (double)last->at_ns / 1e9;
    top_line_add(lines, TOP_HEAD, "%-10s %8s %7s %9s %7s %13s %8s %8s", table->what, "now/s",
                 "share", "in all", "share", "bytes", "p50", "p99");
    for (uint32_t i = 0; i < TOP_WHERE_COUNT; i++) {
        bool timed = table->times != NULL && i < TOP_NONE;
        top_line_add(lines, TOP_PLAIN, "%-10s %8s %6.1f%% %9s %6.1f%% %13s %8s %8s",
                     top_where_names[i], top_count_text((double)table->last[i] / seconds, a),
                     top_percent(table->last[i], top_where_sum(table->last)),
                     top_count_text((double)table->now[i], b),
                     top_percent(table->now[i], top_where_sum(table->now)),
                     table->last_bytes != NULL && i < TOP_NONE
                         ? rate_text(table->last_bytes[i], last, c)
                         : "",
                     timed ? top_time_text(top_times_quantile(&table->times[i], 0.5), d) : "",
                     timed ? top_time_text(top_times_quantile(&table->times[i], 0.99), e) : "");
    }
}

static void op_line(const char *what, uint64_t blocks, uint64_t all, uint64_t bytes,
                    const struct top_times *times, const struct top_figures *last,
                    struct top_lines *lines)
{
    char a[32], b[32], c[32], d[32], e[32];
    top_line_add(lines, TOP_PLAIN, "%-10s %8s %7s %9s %7s %13s %8s %8s", what,
                 top_count_text((double)blocks / ((double)last->at_ns / 1e9), a), "",
                 top_count_text((double)all, b), "", rate_text(bytes, last, c),
                 top_time_text(top_times_quantile(times, 0.5), d),
                 top_time_text(top_times_quantile(times, 0.99), e));
}

enum drawn { DRAWN_HITS, DRAWN_BYTES, DRAWN_EVICTED };

static void spark_line(const struct top_state *state, const char *label, enum drawn drawn,
                       const char *now, struct top_lines *lines)
{
    double values[TOP_HISTORY_MAX];
    char text[3 * TOP_HISTORY_MAX + 1];
    uint32_t count = SL_MIN(state->point_count, TOP_HISTORY_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct top_point *point =
            &state->history[(state->point_count - count + i) % TOP_HISTORY_MAX];
        uint64_t bytes = drawn == DRAWN_BYTES ? point->bytes : point->evicted_bytes;
        values[i] = drawn == DRAWN_HITS ? top_percent(point->hits, point->references)
                                        : (double)bytes / point->seconds;
    }
    uint32_t room = lines->width > LABEL_CELLS + 16 ? lines->width - LABEL_CELLS - 16 : 10;
    top_spark(values, count, SL_MIN(room, 160u), state->ascii, text);
    top_line_add(lines, TOP_GOOD, "%-10s %13s %s", label, now, text);
}

static void holds_lines(const struct top_state *state, struct top_lines *lines)
{
    char a[32], b[32], c[32], d[32], bar[BAR_CELLS + 3];
    const struct top_figures *now = &state->now;
    top_line_add(
        lines, TOP_PLAIN, "%-10s %s %s of %s, %s keys, %s blocks", "memory",
        bar_text(now->memory_used_bytes, now->memory_ceiling_bytes, bar),
        ctl_size_text(now->memory_used_bytes, a), ctl_size_text(now->memory_ceiling_bytes, b),
        top_count_text((double)now->index_keys, c), top_count_text((double)now->index_blocks, d));
    for (uint32_t i = 0; i < SL_MIN(now->disk_count, DISKS_SHOWN); i++) {
        const struct top_disk *disk = &now->disks[i];
        const struct top_disk *last = &state->last.disks[i];
        top_line_add(
            lines, TOP_PLAIN, "%-10s %s live; read %s, written %s; queue %" PRIu64, disk->name,
            ctl_size_text(disk->live_bytes, a), rate_text(last->read_bytes, &state->last, b),
            rate_text(last->written_bytes, &state->last, c), disk->queue + disk->in_flight);
    }
    top_line_add(lines, TOP_PLAIN,
                 "%-10s %" PRIu64 " keys to write; %" PRIu64 " peers, %" PRIu64 " clients, %" PRIu64
                 " engines, %" PRIu64 " sessions, %" PRIu64 " ops",
                 "waiting", now->write_behind_keys, now->peers_alive, now->clients, now->engines,
                 now->sessions, now->ops_active);
}

/* Beside what an unlimited memory would have reached. */
static void hits_line(const struct top_state *state, struct top_lines *lines)
{
    const struct top_hits last = top_hits_of(&state->last), all = top_hits_of(&state->now);
    top_line_add(
        lines, TOP_PLAIN,
        "hit rate   now %5.1f%% of %5.1f%% with unlimited memory; in all %5.1f%% of %5.1f%%",
        top_percent(last.hits, last.references), top_percent(last.ceiling, last.references),
        top_percent(all.hits, all.references), top_percent(all.ceiling, all.references));
}

static uint64_t bytes_of(const struct top_figures *last)
{
    return top_where_sum(last->get_bytes) + last->load_bytes;
}

static void overview(const struct top_state *state, struct top_lines *lines)
{
    char text[32];
    const struct top_figures *now = &state->now;
    const struct top_figures *last = &state->last;
    const struct top_hits now_hits = top_hits_of(last);
    const struct where_table gets = {"gets", last->get_keys, now->get_keys, last->get_bytes,
                                     last->get};
    const struct where_table loads = {"loads", last->load_blocks, now->load_blocks, NULL, NULL};
    where_lines(&gets, last, lines);
    where_lines(&loads, last, lines);
    op_line(
        "all loads",
        last->load_blocks[TOP_MEMORY] + last->load_blocks[TOP_DISK] + last->load_blocks[TOP_REMOTE],
        now->load_blocks[TOP_MEMORY] + now->load_blocks[TOP_DISK] + now->load_blocks[TOP_REMOTE],
        last->load_bytes, &last->load, last, lines);
    op_line("stores", last->stored, now->stored, last->store_bytes, &last->store, last, lines);
    hits_line(state, lines);
    (void)snprintf(text, sizeof text, "%.1f%%", top_percent(now_hits.hits, now_hits.references));
    spark_line(state, "hits", DRAWN_HITS, text, lines);
    spark_line(state, "bytes", DRAWN_BYTES, rate_text(bytes_of(last), last, text), lines);
    spark_line(state, "evicted", DRAWN_EVICTED, rate_text(last->evicted_bytes, last, text), lines);
    holds_lines(state, lines);
}

static void help(struct top_lines *lines)
{
    static const char *const texts[] = {
        "1 to 6      overview, memory, disks, peers, actors, engines; Tab: the next one",
        "p, Space    pause; what is shown stays",
        "s, r        sort by the next column; the other way round",
        "/           show rows of tables whose name has a text; an empty one: all",
        "g           memory and uses: by model, by prefix",
        "+ -         longer, shorter intervals",
        "up, down    move in a long table",
        "h, ?        this; q: end",
        "",
        "now/s and the times are of the last interval, `in all` is since the node was started.",
        "Times are ends of buckets: <20us is more than 10 us and at most 20 us.",
        "missed: found on no tier. Blocks of loads are those that engines asked for.",
        "engines: a row is all engines of a model; single ones are not counted.",
        "uses/s: values got and blocks loaded; a block counts once, under its first part.",
        "Processes that come and go between two readings are not among them.",
    };
    for (size_t i = 0; i < SL_COUNT(texts); i++) {
        top_line_add(lines, TOP_PLAIN, "%s", texts[i]);
    }
}

/* ---- all of it ---- */

void top_state_take(struct top_state *state, const struct top_figures *read)
{
    if (state->now.at_ns == 0) { /* the first one: nothing has come yet */
        state->now = *read;
    }
    top_figures_between(&state->now, read, &state->last);
    state->now = *read;
    const struct top_figures *last = &state->last;
    struct top_point *point = &state->history[state->point_count++ % TOP_HISTORY_MAX];
    const struct top_hits hits = top_hits_of(last);
    *point = (struct top_point){.hits = hits.hits,
                                .references = hits.references,
                                .bytes = bytes_of(last),
                                .evicted_bytes = last->evicted_bytes,
                                .seconds = (double)last->at_ns / 1e9};
}

const char *top_view_name(enum top_view view)
{
    static const char *const names[] = {"overview", "memory",  "disks", "peers",
                                        "actors",   "engines", "help"};
    return names[view];
}

void top_view_draw(const struct top_state *state, struct top_lines *lines)
{
    lines->count = 0;
    title(state, lines);
    switch (state->view) {
    case TOP_VIEW_MEMORY:
        top_memory_lines(state, lines);
        break;
    case TOP_VIEW_DISKS:
        top_disk_lines(state, lines);
        break;
    case TOP_VIEW_PEERS:
        top_peer_lines(state, lines);
        break;
    case TOP_VIEW_ACTORS:
        top_actor_lines(state, lines);
        break;
    case TOP_VIEW_ENGINES:
        top_engine_lines(state, lines);
        break;
    case TOP_VIEW_HELP:
        help(lines);
        break;
    default:
        overview(state, lines);
        break;
    }
}
