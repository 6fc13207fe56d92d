/* client/top/top.c - sluicectl top: reads the node again and again, and shows it. */
#include "client/top/top.h"
#include "client/command/supervision.h"
#include "client/top/screen.h"
#include "client/top/uses.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_NS_MIN (100 * SL_NS_PER_MS)
#define INTERVAL_NS_MAX (60 * SL_NS_PER_S)
#define ONCE_WIDTH      120u
#define SCAN_NS         (20 * SL_NS_PER_MS) /* of the index at a time: 2 % of a core */
#define SCAN_ONCE_NS    (10 * SL_NS_PER_S)
#define PEERS_NS        (300 * SL_NS_PER_MS) /* that a transporter is waited for */

struct top {
    struct ctl *ctl;
    struct top_state state;
    struct top_holdings *holdings;
    struct top_uses *uses;
    struct sl_client *client; /* NULL until peers are looked at */
};

/* ---- reading ---- */

static void problem_take(struct top *top, const struct sl_error *why)
{
    char text[200], mend[200];
    struct supervision supervision;
    if (why->code != SL_OK) {
        (void)snprintf(top->state.problem, sizeof top->state.problem, "%s", why->text);
        return;
    }
    supervision_look(top->ctl, &supervision);
    supervision_text(top->ctl, &supervision, text, mend);
    (void)snprintf(top->state.problem, sizeof top->state.problem, "%s", text);
}

static void peers_take(struct top *top)
{
    struct top_peers *peers = &top->state.peers;
    peers->why = (struct sl_error){0};
    peers->count = 0;
    sl_err err = top->client != NULL ? SL_OK : ctl_open(top->ctl, false, &top->client, &peers->why);
    if (err == SL_OK) {
        err =
            sl_nodes(top->client, &peers->self, peers->nodes, &peers->count, PEERS_NS, &peers->why);
    }
    if (err != SL_OK) {
        peers->count = 0;
        sl_client_close(&top->client);
    }
    peers->asked = true;
}

static sl_err groups_take(struct top *top, uint64_t scan_ns, struct sl_error *why)
{
    uint32_t count = 0;
    struct top_state *state = &top->state;
    sl_err err = top_holdings_read_on(top->holdings, state->grouping, scan_ns, why);
    if (err == SL_OK) {
        err = top_uses_read(top->uses, state->grouping, why);
    }
    const struct top_group *held = top_holdings_groups(top->holdings, &count, &state->groups_whole);
    state->groups = top_uses_join(top->uses, held, count, &state->group_count);
    return err;
}

/* A node that is away leaves what was seen last, and a line that says so. */
static sl_err take(struct top *top, uint64_t scan_ns, struct sl_error *why)
{
    struct top_figures *read = malloc(sizeof *read);
    if (read == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a node's figures");
    }
    sl_err err = top_figures_read(top->ctl->paths.shm_dir, read, why);
    if (err == SL_OK) {
        top_state_take(&top->state, read);
        err = groups_take(top, scan_ns, why);
    } else if (err == SL_ERR_UNREACHABLE) {
        (void)ctl_no_pages(top->ctl, why);
    }
    free(read);
    return err;
}

sl_err top_take(struct top *top, bool first)
{
    struct sl_error why = {0};
    sl_err err = take(top, first ? 0 : SCAN_NS, &why);
    problem_take(top, &why);
    if (err == SL_OK && !first && top->state.view == TOP_VIEW_PEERS) {
        peers_take(top);
    }
    return err;
}

struct top_state *top_state_of(struct top *top)
{
    return &top->state;
}

/* ---- once ---- */

static json_t *where_json(const uint64_t last[TOP_WHERE_COUNT], const uint64_t now[TOP_WHERE_COUNT],
                          const struct top_times *times, double seconds)
{
    json_t *json = json_object();
    for (uint32_t i = 0; i < TOP_WHERE_COUNT; i++) {
        json_t *row = json_pack("{s:o, s:f, s:f, s:f}", "count", ctl_json_u64(now[i]),
                                "share_percent", top_percent(now[i], top_where_sum(now)),
                                "per_second", (double)last[i] / seconds, "now_share_percent",
                                top_percent(last[i], top_where_sum(last)));
        if (times != NULL && i < TOP_NONE) {
            (void)json_object_set_new(row, "p50_ns",
                                      ctl_json_u64(top_times_quantile(&times[i], 0.5)));
            (void)json_object_set_new(row, "p99_ns",
                                      ctl_json_u64(top_times_quantile(&times[i], 0.99)));
        }
        (void)json_object_set_new(json, top_where_names[i], row);
    }
    return json;
}

static json_t *actors_json(const struct top_state *state, double seconds)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < state->now.actor_count; i++) {
        const struct top_actor *now = &state->now.actors[i];
        const struct top_actor *last = &state->last.actors[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:o, s:f, s:o, s:f, s:f, s:f}", "name", now->name, "state",
                      now->state, "restarts", ctl_json_u64(now->restarts), "cpu_percent",
                      (double)last->cpu_ns / 1e7 / seconds, "resident_bytes",
                      ctl_json_u64(now->resident_bytes), "received_per_second",
                      (double)last->received / seconds, "sent_per_second",
                      (double)last->sent / seconds, "uptime_s", (double)now->uptime_ns / 1e9));
    }
    return rows;
}

static json_t *disks_json(const struct top_state *state, double seconds)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < state->now.disk_count; i++) {
        const struct top_disk *now = &state->now.disks[i];
        const struct top_disk *last = &state->last.disks[i];
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "name",
                            now->name, "live_bytes", ctl_json_u64(now->live_bytes), "used_bytes",
                            ctl_json_u64(now->used_bytes), "queue", ctl_json_u64(now->queue),
                            "in_flight", ctl_json_u64(now->in_flight), "read_bytes_per_second",
                            (double)last->read_bytes / seconds, "written_bytes_per_second",
                            (double)last->written_bytes / seconds, "written_today_bytes",
                            ctl_json_u64(now->today_bytes), "written_ever_bytes",
                            ctl_json_u64(now->ever_bytes), "write_budget_bytes",
                            ctl_json_u64(now->budget_bytes), "io_errors",
                            ctl_json_u64(now->io_errors), "corrupt", ctl_json_u64(now->corrupt)));
    }
    return rows;
}

static json_t *engines_json(const struct top_state *state, double seconds)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < state->now.model_count; i++) {
        const struct top_model *now = &state->now.models[i];
        const struct top_model *last = &state->last.models[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model", now->id,
                      "name", now->name, "loads",
                      where_json(last->load_blocks, now->load_blocks, NULL, seconds), "load_bytes",
                      ctl_json_u64(now->load_bytes), "looked_found", ctl_json_u64(now->look_found),
                      "looked_missing", ctl_json_u64(now->look_missing), "stored",
                      ctl_json_u64(now->stored), "existed", ctl_json_u64(now->existed), "refused",
                      ctl_json_u64(now->refused), "store_bytes", ctl_json_u64(now->store_bytes)));
    }
    return rows;
}

static json_t *groups_json(const struct top_state *state)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < state->group_count; i++) {
        const struct top_group *group = &state->groups[i];
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:o, s:o, s:o, s:f}", "name", group->name, "objects",
                            ctl_json_u64(group->objects), "memory_bytes",
                            ctl_json_u64(group->memory_bytes), "disk_bytes",
                            ctl_json_u64(group->disk_bytes), "uses_per_second", group->uses));
    }
    return rows;
}

static json_t *hits_json(const struct top_figures *figures)
{
    const struct top_hits hits = top_hits_of(figures);
    return json_pack("{s:o, s:o, s:o, s:f, s:f}", "references", ctl_json_u64(hits.references),
                     "hits", ctl_json_u64(hits.hits), "ceiling_hits", ctl_json_u64(hits.ceiling),
                     "hit_percent", top_percent(hits.hits, hits.references), "ceiling_percent",
                     top_percent(hits.ceiling, hits.references));
}

static void once_json(const struct top_state *state)
{
    const struct top_figures *now = &state->now;
    const struct top_figures *last = &state->last;
    double seconds = (double)last->at_ns / 1e9;
    json_t *stores = json_pack("{s:o, s:o, s:o, s:o}", "stored", ctl_json_u64(now->stored),
                               "existed", ctl_json_u64(now->existed), "refused",
                               ctl_json_u64(now->refused), "bytes", ctl_json_u64(now->store_bytes));
    json_t *memory = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "used_bytes", ctl_json_u64(now->memory_used_bytes),
        "ceiling_bytes", ctl_json_u64(now->memory_ceiling_bytes), "keys",
        ctl_json_u64(now->index_keys), "blocks", ctl_json_u64(now->index_blocks), "evicted_units",
        ctl_json_u64(now->evicted_units), "evicted_bytes", ctl_json_u64(now->evicted_bytes));
    json_t *json = json_pack(
        "{s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}",
        "instance", state->instance, "interval_s", seconds, "problem", state->problem, "hits",
        hits_json(now), "hits_now", hits_json(last), "gets",
        where_json(last->get_keys, now->get_keys, last->get, seconds), "loads",
        where_json(last->load_blocks, now->load_blocks, NULL, seconds), "stores", stores, "memory",
        memory, "grouping", state->grouping == TOP_BY_MODEL ? "model" : "prefix", "groups",
        groups_json(state), "disks", disks_json(state, seconds), "actors",
        actors_json(state, seconds), "engines", engines_json(state, seconds), "peers_alive",
        ctl_json_u64(now->peers_alive), "clients", ctl_json_u64(now->clients));
    ctl_print_json(json);
}

static int once(struct top *top)
{
    struct sl_error why = {0};
    sl_err err = take(top, 0, &why);
    if (err == SL_OK) {
        const struct timespec pause = {.tv_sec = (time_t)(top->state.interval_ns / SL_NS_PER_S),
                                       .tv_nsec = (long)(top->state.interval_ns % SL_NS_PER_S)};
        (void)nanosleep(&pause, NULL);
        err = take(top, SCAN_ONCE_NS, &why);
    }
    if (err != SL_OK) {
        return ctl_failed(top->ctl, &why);
    }
    problem_take(top, &why);
    if (top->ctl->json) {
        once_json(&top->state);
        return CTL_FINE;
    }
    if (top->state.view == TOP_VIEW_PEERS) {
        peers_take(top);
    }
    struct top_lines *lines = malloc(sizeof *lines);
    if (lines == NULL) {
        (void)sl_fail(&why, SL_ERR_NO_MEMORY, "no memory for a view");
        return ctl_failed(top->ctl, &why);
    }
    lines->width = ONCE_WIDTH;
    top_view_draw(&top->state, lines);
    for (uint32_t i = 0; i < lines->count; i++) {
        (void)printf("%s\n", lines->lines[i].text);
    }
    free(lines);
    return CTL_FINE;
}

/* ---- the command ---- */

static bool view_of(const char *text, enum top_view *view)
{
    for (uint32_t i = 0; i < TOP_VIEW_HELP; i++) {
        if (strcmp(text, top_view_name((enum top_view)i)) == 0) {
            *view = (enum top_view)i;
            return true;
        }
    }
    return false;
}

static int top_run(struct top *top)
{
    struct sl_error why = {0};
    sl_err err = top_take(top, true);
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "%s", top->state.problem);
        return ctl_failed(top->ctl, &why);
    }
    err = top_screen_run(top, &why);
    return err == SL_OK ? CTL_FINE : ctl_failed(top->ctl, &why);
}

static void top_free(struct top *top)
{
    if (top != NULL) {
        top_holdings_destroy(&top->holdings);
        top_uses_destroy(&top->uses);
        sl_client_close(&top->client);
        free(top);
    }
}

static int top_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool is_once = false;
    bool ascii = false;
    bool prefixes = false;
    const char *view = "overview";
    const char *filter = "";
    uint64_t interval_ns = SL_NS_PER_S;
    const struct ctl_option options[] = {
        {.name = "once", .flag = &is_once},      {.name = "ascii", .flag = &ascii},
        {.name = "prefixes", .flag = &prefixes}, {.name = "view", .text = &view},
        {.name = "filter", .text = &filter},     {.name = "interval", .duration = &interval_ns}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    enum top_view first = TOP_VIEW_OVERVIEW;
    if (!view_of(view, &first)) {
        return ctl_wrong(ctl, "--view is overview, memory, disks, peers, actors or engines");
    }
    if (interval_ns < INTERVAL_NS_MIN || interval_ns > INTERVAL_NS_MAX) {
        return ctl_wrong(ctl, "--interval is 100ms to 60s");
    }
    if (strlen(filter) >= TOP_FILTER_BYTES) {
        return ctl_wrong(ctl, "--filter has %u bytes at most", TOP_FILTER_BYTES - 1);
    }
    if (ctl->json && !is_once) {
        return ctl_wrong(ctl, "--json goes with --once");
    }
    if (!is_once && (isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0)) {
        return ctl_wrong(ctl, "the live view needs a terminal; --once prints one and ends");
    }
    (void)setlocale(LC_CTYPE, "");
    struct top *top = calloc(1, sizeof *top);
    struct sl_error why = {0};
    if (top == NULL || top_holdings_create(ctl->paths.shm_dir, &top->holdings, &why) != SL_OK ||
        top_uses_create(ctl->paths.shm_dir, &top->uses, &why) != SL_OK) {
        top_free(top);
        (void)sl_fail(&why, SL_ERR_NO_MEMORY, "no memory");
        return ctl_failed(ctl, &why);
    }
    top->ctl = ctl;
    top->state.view = first;
    top->state.sort = 1;
    top->state.interval_ns = interval_ns;
    top->state.grouping = prefixes ? TOP_BY_PREFIX : TOP_BY_MODEL;
    top->state.ascii = ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    (void)snprintf(top->state.filter, sizeof top->state.filter, "%s", filter);
    (void)snprintf(top->state.instance, sizeof top->state.instance, "%s",
                   sl_config_text(ctl->config, SL_SET_instance));
    code = is_once ? once(top) : top_run(top);
    top_free(top);
    return code;
}

/* clang-format off */
const struct ctl_command ctl_top = {
    .name = "top",
    .summary = "watch a node: hits, bytes, times, memory, disks, peers, engines, actors",
    .help = "top [--interval DURATION] [--view NAME] [--filter TEXT] [--prefixes] [--ascii] [--once]\n"
            "\n"
            "Shows a node live in the terminal, from 80x24 on: where gets and loads were found, bytes, times, what takes the\n"
            "memory, which models and prefixes are used most, disks and their wear, peers, engines by model, and actors with their restarts.\n"
            "Keys: 1 to 6 or Tab for the views, p pause, s sort, r the other way round, / filter, g models or prefixes, + and -\n"
            "interval, h help, q end. Reads shared memory and disturbs nobody; the view of peers asks the transporter.\n"
            "\n"
            "In the view of engines a row is all engines of one model, layout and all else that gives bytes their meaning.\n"
            "What each of them loads, looks up and stores is not counted. To look at one model, prefix, engine, disk, peer or\n"
            "actor, filter by its name.\n"
            "\n"
            "  --interval DURATION  between two readings, 100ms to 60s (1s)\n"
            "  --view NAME       begin with overview, memory, disks, peers, actors or engines\n"
            "  --filter TEXT     only rows of tables whose name has this text\n"
            "  --prefixes        memory and uses by prefixes of keys instead of by models\n"
            "  --ascii           no characters beyond ASCII\n"
            "  --once            wait one interval, print and end; with --json all figures\n"
            CTL_HELP_COMMON,
    .run = top_command,
};
/* clang-format on */
