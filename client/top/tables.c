/* client/top/tables.c - memory by model or prefix, disks, peers and actors: rows that are sorted by a
 * column, and left out by a filter. */
#include "client/top/tables.h"
#include "client/command/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX (2 * (TOP_GROUPS_MAX + 1)) /* groups are the most: held and used */

/* What a table is sorted by: numbers with the highest first, names from a on. */
struct order {
    const char *name;
    double number;
    uint32_t at; /* of the row */
};

static bool is_shown(const struct top_state *state, const char *name)
{
    return state->filter[0] == '\0' || strcasestr(name, state->filter) != NULL;
}

static int by_name(const void *left, const void *right)
{
    return strverscmp(((const struct order *)left)->name, ((const struct order *)right)->name);
}

static int by_number(const void *left, const void *right)
{
    double a = ((const struct order *)left)->number;
    double b = ((const struct order *)right)->number;
    return a > b ? -1 : a < b ? 1 : by_name(left, right);
}

static void order_rows(const struct top_state *state, struct order *rows, uint32_t count)
{
    qsort(rows, count, sizeof rows[0], state->sort == 0 ? by_name : by_number);
    for (uint32_t i = 0; state->reverse && i < count / 2; i++) {
        struct order row = rows[i];
        rows[i] = rows[count - 1 - i];
        rows[count - 1 - i] = row;
    }
}

uint32_t top_view_columns(enum top_view view)
{
    static const uint32_t columns[TOP_VIEW_COUNT] = {[TOP_VIEW_MEMORY] = 5,
                                                     [TOP_VIEW_DISKS] = 5,
                                                     [TOP_VIEW_PEERS] = 4,
                                                     [TOP_VIEW_ACTORS] = 6,
                                                     [TOP_VIEW_ENGINES] = 5};
    return columns[view];
}

static void sorted_by(const struct top_state *state, const char *const *names,
                      struct top_lines *lines)
{
    top_line_add(lines, TOP_PLAIN, "sorted by %s%s%s%s%s", names[state->sort],
                 state->reverse ? ", the other way round" : "",
                 state->filter[0] != '\0' ? "; names with '" : "", state->filter,
                 state->filter[0] != '\0' ? "'" : "");
}

/* Bytes a second of the last interval. */
static double rate_of(const struct top_state *state, uint64_t amount)
{
    return (double)amount / ((double)state->last.at_ns / 1e9);
}

/* ---- memory ---- */

void top_memory_lines(const struct top_state *state, struct top_lines *lines)
{
    static const char *const columns[] = {"name", "memory", "disk", "objects", "uses"};
    struct order rows[ROWS_MAX] = {{NULL, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->group_count && count < ROWS_MAX; i++) {
        const struct top_group *group = &state->groups[i];
        const double numbers[] = {0, (double)group->memory_bytes, (double)group->disk_bytes,
                                  (double)group->objects, group->uses};
        if (is_shown(state, group->name)) {
            rows[count++] = (struct order){group->name, numbers[state->sort], i};
        }
    }
    order_rows(state, rows, count);
    sorted_by(state, columns, lines);
    top_line_add(lines, TOP_HEAD, "%7s %10s %6s %10s %6s  %s", "objects", "memory", "share", "disk",
                 "uses/s", state->grouping == TOP_BY_MODEL ? "model" : "prefix");
    for (uint32_t i = 0; i < count; i++) {
        char a[32], b[32], c[32], d[32];
        const struct top_group *group = &state->groups[rows[i].at];
        if (group->objects == 0) {
            top_line_add(lines, TOP_PLAIN, "%7s %10s %6s %10s %6s  %s", "-", "-", "-", "-",
                         top_count_text(group->uses, d), group->name);
            continue;
        }
        top_line_add(
            lines, TOP_PLAIN, "%7s %10s %5.1f%% %10s %6s  %s",
            top_count_text((double)group->objects, a), ctl_size_text(group->memory_bytes, b),
            top_percent(group->memory_bytes, state->now.memory_used_bytes),
            ctl_size_text(group->disk_bytes, c), top_count_text(group->uses, d), group->name);
    }
    if (!state->groups_whole) {
        top_line_add(lines, TOP_PLAIN, "the index is being read ...");
    } else if (count == 0) {
        top_line_add(lines, TOP_PLAIN, "nothing is held");
    }
}

/* ---- disks ---- */

static void disk_line(const struct top_state *state, uint32_t at, struct top_lines *lines)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    const struct top_disk *now = &state->now.disks[at];
    const struct top_disk *last = &state->last.disks[at];
    top_line_add(lines, TOP_PLAIN, "%-12s %10s %10s %8s/s %8s/s %5" PRIu64 " %7s %7s", now->name,
                 ctl_size_text(now->live_bytes, a), ctl_size_text(now->ceiling_bytes, b),
                 ctl_size_text((uint64_t)rate_of(state, last->read_bytes), c),
                 ctl_size_text((uint64_t)rate_of(state, last->written_bytes), d),
                 now->queue + now->in_flight,
                 top_time_text(top_times_quantile(&last->read, 0.99), e),
                 top_time_text(top_times_quantile(&last->write, 0.99), f));
}

static void wear_line(const struct top_disk *disk, struct top_lines *lines)
{
    char a[32], b[32], c[32];
    bool bad = disk->io_errors + disk->corrupt > 0;
    top_line_add(lines, bad ? TOP_BAD : TOP_PLAIN,
                 "  written since the start %s; errors %" PRIu64 ", corrupt %" PRIu64,
                 ctl_size_text(disk->written_bytes, a), disk->io_errors, disk->corrupt);
    if (disk->budget_bytes > 0) {
        top_line_add(lines, TOP_PLAIN, "  budget a day %s, written today %s, left %s",
                     ctl_size_text(disk->budget_bytes, a), ctl_size_text(disk->today_bytes, b),
                     ctl_size_text(disk->budget_left_bytes, c));
    }
}

void top_disk_lines(const struct top_state *state, struct top_lines *lines)
{
    static const char *const columns[] = {"name", "live", "read", "written", "queue"};
    struct order rows[TOP_DISKS_MAX] = {{NULL, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->now.disk_count; i++) {
        const struct top_disk *disk = &state->now.disks[i];
        const struct top_disk *last = &state->last.disks[i];
        const uint64_t numbers[] = {0, disk->live_bytes, last->read_bytes, last->written_bytes,
                                    disk->queue + disk->in_flight};
        if (is_shown(state, disk->name)) {
            rows[count++] = (struct order){disk->name, (double)numbers[state->sort], i};
        }
    }
    order_rows(state, rows, count);
    sorted_by(state, columns, lines);
    top_line_add(lines, TOP_HEAD, "%-12s %10s %10s %10s %10s %5s %7s %7s", "disk", "live", "of",
                 "read", "written", "queue", "r p99", "w p99");
    for (uint32_t i = 0; i < count; i++) {
        disk_line(state, rows[i].at, lines);
        wear_line(&state->now.disks[rows[i].at], lines);
    }
    if (count == 0) {
        top_line_add(lines, TOP_PLAIN, "no disk (settings disk, disk_path)");
    }
}

/* ---- peers ---- */

void top_peer_lines(const struct top_state *state, struct top_lines *lines)
{
    static const char *const columns[] = {"name", "read", "failures", "round trip"};
    const struct top_peers *peers = &state->peers;
    struct order rows[SL_NODES_MAX] = {{NULL, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < peers->count; i++) {
        const struct sl_node_info *node = &peers->nodes[i];
        const uint64_t numbers[] = {0, node->read_bytes, node->failures, node->round_trip_ns};
        if (is_shown(state, node->name)) {
            rows[count++] = (struct order){node->name, (double)numbers[state->sort], i};
        }
    }
    order_rows(state, rows, count);
    sorted_by(state, columns, lines);
    top_line_add(lines, TOP_HEAD, "%-18s %-9s %-9s %9s %9s %10s %8s", "peer", "state", "link",
                 "trip", "heard", "read", "failures");
    for (uint32_t i = 0; i < count; i++) {
        char a[32];
        const struct sl_node_info *node = &peers->nodes[rows[i].at];
        top_line_add(lines, strcmp(node->state, "alive") == 0 ? TOP_PLAIN : TOP_BAD,
                     "%-18s %-9s %-9s %6.0f us %7.1f s %10s %8" PRIu64, node->name, node->state,
                     node->link, (double)node->round_trip_ns / 1e3,
                     (double)node->heard_ago_ns / 1e9, ctl_size_text(node->read_bytes, a),
                     node->failures);
    }
    if (!peers->asked) {
        top_line_add(lines, TOP_PLAIN, "the transporter is being asked ...");
    } else if (peers->why.code != SL_OK) {
        top_line_add(lines, TOP_BAD, "%s", peers->why.text);
    } else if (count == 0) {
        top_line_add(lines, TOP_PLAIN, "no peers (settings peers, directory, cluster_listen)");
    }
}

/* ---- engines ---- */

static const char *model_name(const struct top_model *model)
{
    return model->name[0] != '\0' ? model->name : model->id;
}

static void model_line(const struct top_state *state, uint32_t at, struct top_lines *lines)
{
    char a[32], b[32], c[32], d[32];
    const struct top_model *now = &state->now.models[at];
    const struct top_model *last = &state->last.models[at];
    uint64_t asked = top_where_sum(last->load_blocks);
    uint64_t looked = last->look_found + last->look_missing;
    top_line_add(lines, TOP_PLAIN, "%8s %6.1f%% %8s %6.1f%% %8s %10s/s  %s",
                 top_count_text(rate_of(state, asked), a),
                 top_percent(asked - last->load_blocks[TOP_NONE], asked),
                 top_count_text(rate_of(state, looked), b), top_percent(last->look_found, looked),
                 top_count_text(rate_of(state, last->stored), c),
                 ctl_size_text((uint64_t)rate_of(state, last->load_bytes + last->store_bytes), d),
                 model_name(now));
    asked = top_where_sum(now->load_blocks);
    top_line_add(lines, TOP_PLAIN, "  %s: all loads %s (%.1f%% found), stores %s", now->id,
                 top_count_text((double)asked, a),
                 top_percent(asked - now->load_blocks[TOP_NONE], asked),
                 top_count_text((double)now->stored, b));
}

void top_engine_lines(const struct top_state *state, struct top_lines *lines)
{
    static const char *const columns[] = {"name", "loads", "look-ups", "stores", "bytes"};
    struct order rows[TOP_MODELS_MAX] = {{NULL, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->now.model_count; i++) {
        const struct top_model *last = &state->last.models[i];
        const char *name = model_name(&state->now.models[i]);
        const uint64_t numbers[] = {0, top_where_sum(last->load_blocks),
                                    last->look_found + last->look_missing, last->stored,
                                    last->load_bytes + last->store_bytes};
        if (is_shown(state, name) || is_shown(state, state->now.models[i].id)) {
            rows[count++] = (struct order){name, (double)numbers[state->sort], i};
        }
    }
    order_rows(state, rows, count);
    sorted_by(state, columns, lines);
    top_line_add(lines, TOP_HEAD, "%8s %7s %8s %7s %8s %12s  %s", "loads/s", "found", "looks/s",
                 "found", "stores/s", "bytes", "engines of");
    for (uint32_t i = 0; i < count; i++) {
        model_line(state, rows[i].at, lines);
    }
    if (state->now.model_count == 0) {
        top_line_add(lines, TOP_PLAIN, "no blocks of engines were counted");
    }
}

/* ---- actors ---- */

void top_actor_lines(const struct top_state *state, struct top_lines *lines)
{
    static const char *const columns[] = {"name",     "processor time", "memory",
                                          "messages", "restarts",       "uptime"};
    struct order rows[TOP_ACTORS_MAX] = {{NULL, 0, 0}};
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->now.actor_count; i++) {
        const struct top_actor *now = &state->now.actors[i];
        const struct top_actor *last = &state->last.actors[i];
        const uint64_t numbers[] = {0,
                                    last->cpu_ns,
                                    now->resident_bytes,
                                    last->received + last->sent,
                                    now->restarts,
                                    now->uptime_ns};
        if (is_shown(state, now->name)) {
            rows[count++] = (struct order){now->name, (double)numbers[state->sort], i};
        }
    }
    order_rows(state, rows, count);
    sorted_by(state, columns, lines);
    top_line_add(lines, TOP_HEAD, "%-16s %-9s %6s %6s %10s %8s %8s %6s", "actor", "state", "starts",
                 "cpu", "memory", "in/s", "out/s", "silent");
    for (uint32_t i = 0; i < count; i++) {
        char a[32], b[32], c[32];
        const struct top_actor *now = &state->now.actors[rows[i].at];
        const struct top_actor *last = &state->last.actors[rows[i].at];
        top_line_add(lines, now->up ? TOP_PLAIN : TOP_BAD,
                     "%-16s %-9s %6" PRIu64 " %5.1f%% %10s %8s %8s %5.1fs", now->name, now->state,
                     now->restarts + 1, 100 * rate_of(state, last->cpu_ns) / 1e9,
                     ctl_size_text(now->resident_bytes, a),
                     top_count_text(rate_of(state, last->received), b),
                     top_count_text(rate_of(state, last->sent), c), (double)now->silence_ns / 1e9);
    }
}
