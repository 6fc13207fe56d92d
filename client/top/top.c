/* client/top/top.c - sluicectl top: gives readings of the node to top.py, which shows them. */
#include "client/top/top.h"
#include "client/command/supervision.h"
#include "client/metrics/scrape.h"
#include "client/top/holdings.h"
#include "client/top/uses.h"
#include "runtime/sl_clock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INTERVAL_NS_MIN  (100 * SL_NS_PER_MS)
#define INTERVAL_NS_MAX  (60 * SL_NS_PER_S)
#define FILTER_BYTES_MAX 31u
#define PEERS_NS         (300 * SL_NS_PER_MS) /* that a transporter is waited for */

struct top {
    struct ctl *ctl;
    struct top_holdings *holdings;
    struct top_uses *uses;
    bool once, failed; /* the last reading */
    struct sl_error why;
};
/* What top.py asks for: a line "model|prefix SCAN_MS PEERS". */
struct asked {
    enum top_grouping grouping;
    uint64_t scan_ns; /* so long the index is read on */
    bool peers;
};

/* ---- a reading ---- */

static sl_err groups_take(struct top *top, const struct asked *asked, json_t *into,
                          struct sl_error *why)
{
    bool whole = false;
    uint32_t count = 0;
    sl_err err = top_holdings_read_on(top->holdings, asked->grouping, asked->scan_ns, why);
    if (err == SL_OK) {
        err = top_uses_read(top->uses, asked->grouping, why);
    }
    if (err != SL_OK) {
        return err;
    }
    json_t *rows = json_array();
    const struct top_group *held = top_holdings_groups(top->holdings, &count, &whole);
    const struct top_group *groups = top_uses_join(top->uses, held, count, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct top_group *group = &groups[i];
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:o, s:o, s:o, s:f}", "name", group->name, "objects",
                            ctl_json_u64(group->objects), "memory_bytes",
                            ctl_json_u64(group->memory_bytes), "disk_bytes",
                            ctl_json_u64(group->disk_bytes), "uses_per_second", group->uses));
    }
    (void)json_object_set_new(into, "groups", rows);
    (void)json_object_set_new(into, "groups_whole", json_boolean(whole));
    return SL_OK;
}

/* The client lives no longer: uses are read of all pin files, and to close a descriptor of its own would cost its lock. */
static void peers_take(struct top *top, json_t *into)
{
    static struct sl_node_info nodes[SL_NODES_MAX];
    struct sl_cluster_info self;
    struct sl_error why = {0};
    uint32_t count = 0;
    json_t *rows = json_array();
    struct sl_client *client = NULL;
    sl_err err = ctl_open(top->ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_nodes(client, &self, nodes, &count, PEERS_NS, &why);
    }
    sl_client_close(&client);
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        const struct sl_node_info *node = &nodes[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "name", ctl_json_text(node->name),
                      "state", node->state, "link", node->link, "round_trip_ns",
                      ctl_json_u64(node->round_trip_ns), "heard_ago_ns",
                      ctl_json_u64(node->heard_ago_ns), "read_bytes",
                      ctl_json_u64(node->read_bytes), "failures", ctl_json_u64(node->failures)));
    }
    (void)json_object_set_new(into, "peers", rows);
    (void)json_object_set_new(into, "peers_why", json_string(why.text));
}

/* Shared memory and /proc alone are read, but for peers. Fills into, and *text with all metrics as monitoring
 * reads them, which the caller frees. */
static sl_err reading_take(struct top *top, const struct asked *asked, json_t *into, char **text,
                           size_t *text_bytes)
{
    struct sl_error *why = &top->why;
    char unsupervised[200], mend[200];
    struct supervision supervision;
    FILE *out = open_memstream(text, text_bytes);
    if (out == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a node's metrics");
    }
    sl_err err = scrape_text(top->ctl->paths.shm_dir, out, why);
    if (fclose(out) != 0 && err == SL_OK) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a node's metrics");
    }
    if (err == SL_ERR_UNREACHABLE) {
        return ctl_no_pages(top->ctl, why);
    }
    err = err == SL_OK ? groups_take(top, asked, into, why) : err;
    if (err == SL_OK && asked->peers) {
        peers_take(top, into);
    }
    supervision_look(top->ctl, &supervision);
    supervision_text(top->ctl, &supervision, unsupervised, mend);
    (void)json_object_set_new(into, "problem", json_string(unsupervised));
    return err;
}

/* A line of JSON, and so many bytes of text as its metrics_bytes says. False: top.py is gone, or there will be no other reading. */
static bool reading_give(struct top *top, const char *request, FILE *to)
{
    char grouping[8] = "";
    unsigned scan_ms = 0, peers = 0;
    /* NOLINTNEXTLINE(cert-err34-c): top.py's own numbers */
    (void)sscanf(request, "%7s %u %u", grouping, &scan_ms, &peers);
    const struct asked asked = {.grouping =
                                    strcmp(grouping, "prefix") == 0 ? TOP_BY_PREFIX : TOP_BY_MODEL,
                                .scan_ns = scan_ms * SL_NS_PER_MS,
                                .peers = peers != 0};
    char *text = NULL;
    size_t text_bytes = 0;
    json_t *head = json_object();
    top->failed = reading_take(top, &asked, head, &text, &text_bytes) != SL_OK;
    if (top->failed) {
        (void)json_object_set_new(head, "failed", ctl_json_text(top->why.text));
        text_bytes = 0;
    }
    (void)json_object_set_new(head, "at_ns", ctl_json_u64(sl_clock_monotonic_ns()));
    (void)json_object_set_new(head, "metrics_bytes", ctl_json_u64(text_bytes));
    bool sent = !(top->failed && top->once) && json_dumpf(head, to, JSON_COMPACT) == 0 &&
                fputc('\n', to) != EOF && fwrite(text, 1, text_bytes, to) == text_bytes &&
                fflush(to) == 0;
    json_decref(head);
    free(text);
    return sent;
}

/* ---- top.py ---- */

/* words: what top.py takes behind the descriptor by which it asks, which is the first of them. */
static int script_serve(struct top *top, const char *words[])
{
    int pair[2];
    char number[16];
    char *line = NULL;
    size_t room = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return CTL_NO;
    }
    (void)signal(SIGINT, SIG_IGN); /* a Ctrl-C is for top.py */
    (void)signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)snprintf(number, sizeof number, "%d", dup(pair[1])); /* open in the program, too */
        words[0] = number;
        ctl_script_become("top.py", words);
    }
    (void)close(pair[1]);
    FILE *from = fdopen(pair[0], "r"), *to = fdopen(dup(pair[0]), "w");
    while (pid > 0 && from != NULL && to != NULL && getline(&line, &room, from) >= 0 &&
           reading_give(top, line, to)) {
    }
    free(line);
    if (from != NULL) {
        (void)fclose(from);
    }
    if (to != NULL) {
        (void)fclose(to);
    }
    int code = pid > 0 ? ctl_script_end(pid) : CTL_NO;
    return top->once && top->failed ? ctl_failed(top->ctl, &top->why) : code;
}

/* ---- the command ---- */

static int top_run(struct top *top, const char *words[])
{
    char *text = NULL;
    size_t text_bytes = 0;
    json_t *ignored = json_object();
    const struct asked first = {.grouping = TOP_BY_MODEL};
    sl_err err = top_holdings_create(top->ctl->paths.shm_dir, &top->holdings, &top->why);
    if (err == SL_OK) {
        err = top_uses_create(top->ctl->paths.shm_dir, &top->uses, &top->why);
    }
    if (err == SL_OK) { /* what cannot be read at all is said before the screen is another one */
        err = reading_take(top, &first, ignored, &text, &text_bytes);
    }
    free(text);
    json_decref(ignored);
    int code = err == SL_OK ? script_serve(top, words) : ctl_failed(top->ctl, &top->why);
    top_holdings_destroy(&top->holdings);
    top_uses_destroy(&top->uses);
    return code;
}

static bool is_view(const char *text)
{
    static const char *const views[] = {"overview", "memory", "disks",
                                        "peers",    "actors", "engines"};
    for (size_t i = 0; i < SL_COUNT(views); i++) {
        if (strcmp(text, views[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int top_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool ascii = false, prefixes = false;
    char interval[32];
    const char *view = "overview", *filter = "";
    uint64_t interval_ns = SL_NS_PER_S;
    struct top top = {.ctl = ctl};
    const struct ctl_option options[] = {
        {.name = "once", .flag = &top.once},     {.name = "ascii", .flag = &ascii},
        {.name = "prefixes", .flag = &prefixes}, {.name = "view", .text = &view},
        {.name = "filter", .text = &filter},     {.name = "interval", .duration = &interval_ns}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (!is_view(view)) {
        return ctl_wrong(ctl, "--view is overview, memory, disks, peers, actors or engines");
    }
    if (interval_ns < INTERVAL_NS_MIN || interval_ns > INTERVAL_NS_MAX) {
        return ctl_wrong(ctl, "--interval is 100ms to 60s");
    }
    if (strlen(filter) > FILTER_BYTES_MAX) {
        return ctl_wrong(ctl, "--filter has %u bytes at most", FILTER_BYTES_MAX);
    }
    if (ctl->json && !top.once) {
        return ctl_wrong(ctl, "--json goes with --once");
    }
    if (!top.once && (isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0)) {
        return ctl_wrong(ctl, "the live view needs a terminal; --once prints one and ends");
    }
    (void)snprintf(interval, sizeof interval, "%.9f", (double)interval_ns / SL_NS_PER_S);
    const char *words[] = {NULL, /* the descriptor */
                           sl_config_text(ctl->config, SL_SET_instance),
                           view,
                           filter,
                           interval,
                           prefixes ? "prefix" : "model",
                           ascii ? "ascii" : "",
                           !top.once   ? "screen"
                           : ctl->json ? "json"
                                       : "text",
                           NULL};
    return top_run(&top, words);
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
