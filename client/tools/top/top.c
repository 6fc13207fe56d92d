/* client/tools/top/top.c - sluicectl top. It replaces itself by top.py, which starts it again with
 * --readings for what C reads faster than Python: metrics, the index, and accesses of readers. */
#include "client/tools/top/top.h"
#include "client/tools/metrics/scrape.h"
#include "client/tools/top/uses.h"
#include "ipc/shm/sl_index.h"
#include "runtime/base/sl_base.h"
#include "runtime/base/sl_clock.h"

#include <string.h>

#define LOOK_EVERY 256u /* objects between two looks at the clock */

/* The index is scanned in slices, so that the screen stays responsive with any number of keys. */
struct top {
    struct ctl *ctl;
    struct sl_index_view *view;
    enum top_grouping grouping;
    uint64_t cursor;
    struct top_groups held, filled; /* by the last complete scan of the index; by the present one */
    bool whole;                     /* a scan was completed */
    struct top_uses *uses;
};

static void group_add(struct top_groups *groups, const struct sl_entry *entry,
                      enum top_grouping grouping)
{
    char name[TOP_GROUP_BYTES];
    top_group_of(entry->key, entry->key_length, grouping, name);
    struct top_group *group = top_groups_of(groups, name);
    group->objects++;
    group->memory_bytes +=
        entry->extent.generation != 0 ? sl_extent_space(entry->extent.length_bytes) : 0;
    group->disk_bytes += entry->disk.valid != 0 ? entry->extent.length_bytes : 0;
}

/* Continues the scan for about budget_ns. Starts over if the node's index is a new one, or the
 * grouping has changed. */
static sl_err index_scan_step(struct top *top, enum top_grouping grouping, uint64_t budget_ns,
                              struct sl_error *why)
{
    char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    const struct sl_index_view *before = top->view;
    sl_err err = sl_index_view_follow(top->ctl->paths.shm_dir, &top->view, why);
    if (err != SL_OK) {
        return err;
    }
    if (top->view != before || top->grouping != grouping) {
        top->grouping = grouping;
        top->cursor = 0;
        top->whole = false;
        memset(&top->held, 0, sizeof top->held);
        memset(&top->filled, 0, sizeof top->filled);
    }
    uint64_t until_ns = sl_deadline_ns(sl_clock_monotonic_ns(), budget_ns);
    for (uint32_t i = 1; sl_index_scan(top->view, &top->cursor, &entry, key); i++) {
        group_add(&top->filled, &entry, grouping);
        if (i % LOOK_EVERY == 0 && sl_clock_monotonic_ns() >= until_ns) {
            return SL_OK;
        }
    }
    top->cursor = 0;
    top->whole = true;
    top->held = top->filled;
    memset(&top->filled, 0, sizeof top->filled);
    return SL_OK;
}

static json_t *groups_json(struct top *top)
{
    uint32_t count = 0;
    json_t *rows = json_array();
    const struct top_group *groups =
        top_uses_join(top->uses, top->held.rows, top->held.count, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct top_group *group = &groups[i];
        (void)json_array_append_new(
            rows, json_pack("{s:s, s:o, s:o, s:o, s:f}", "name", group->name, "objects",
                            ctl_json_u64(group->objects), "memory_bytes",
                            ctl_json_u64(group->memory_bytes), "disk_bytes",
                            ctl_json_u64(group->disk_bytes), "uses_per_second", group->uses));
    }
    return rows;
}

/* For each input line "model|prefix SCAN_MS MUST" prints all metrics as monitoring reads them, then
 * a line of JSON. Reads only shared memory and /proc. Ends after a reading that failed with MUST
 * set. */
static int readings_print(struct top *top)
{
    char asked[64];
    while (fgets(asked, sizeof asked, stdin) != NULL) {
        char word[8] = "";
        unsigned scan_ms = 0, must = 0;
        struct sl_error why = {0};
        /* NOLINTNEXTLINE(cert-err34-c): top.py's own numbers */
        (void)sscanf(asked, "%7s %u %u", word, &scan_ms, &must);
        enum top_grouping grouping = strcmp(word, "prefix") == 0 ? TOP_BY_PREFIX : TOP_BY_MODEL;
        sl_err err = scrape_text(top->ctl->paths.shm_dir, stdout, &why);
        if (err == SL_ERR_UNREACHABLE) {
            (void)ctl_no_pages(top->ctl, &why);
        }
        err = err == SL_OK ? index_scan_step(top, grouping, scan_ms * SL_NS_PER_MS, &why) : err;
        err = err == SL_OK ? top_uses_read(top->uses, grouping, &why) : err;
        if (err != SL_OK && must != 0) {
            return ctl_failed(top->ctl, &why);
        }
        ctl_print_json(json_pack("{s:o, s:o*, s:o*, s:b, s:o}", "at_ns",
                                 ctl_json_u64(sl_clock_monotonic_ns()), "failed",
                                 err != SL_OK ? ctl_json_text(why.text) : NULL, "groups",
                                 err == SL_OK ? groups_json(top) : NULL, "groups_whole", top->whole,
                                 "supervisor", ctl_supervision(top->ctl)));
        (void)fflush(stdout);
    }
    return CTL_SUCCESS;
}

static int top_command(struct ctl *ctl, int argc, char **argv)
{
    static struct top top; /* too large for a stack */
    int code;
    bool once = false, ascii = false, prefixes = false, readings = false;
    char interval[32];
    const char *view = "overview", *filter = "";
    uint64_t interval_ns = SL_NS_PER_S;
    struct sl_error why = {0};
    const struct ctl_option options[] = {
        {.name = "once", .flag = &once},         {.name = "ascii", .flag = &ascii},
        {.name = "prefixes", .flag = &prefixes}, {.name = "view", .text = &view},
        {.name = "filter", .text = &filter},     {.name = "interval", .duration = &interval_ns},
        {.name = "readings", .flag = &readings}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (readings) {
        top.ctl = ctl;
        code = top_uses_create(ctl->paths.shm_dir, &top.uses, &why) == SL_OK
                   ? readings_print(&top)
                   : ctl_failed(ctl, &why);
        top_uses_destroy(&top.uses);
        sl_index_view_close(&top.view);
        return code;
    }
    (void)snprintf(interval, sizeof interval, "%.9f", (double)interval_ns / SL_NS_PER_S);
    const char *words[CTL_WORDS_MAX] = {sl_config_text(ctl->config, SL_SET_instance),
                                        view,
                                        filter,
                                        interval,
                                        prefixes ? "prefix" : "model",
                                        ascii ? "ascii" : "",
                                        once ? "once" : "",
                                        ctl->json ? "json" : ""};
    ctl_script_settings(ctl, words, 8);
    ctl_script_exec("top.py", words);
}

/* clang-format off */
const struct ctl_command ctl_top = {
    .name = "top",
    .summary = "watch a node: hits, bytes, times, memory, disks, peers, engines, actors",
    .help = "top [--interval DURATION] [--view NAME] [--filter TEXT] [--prefixes] [--ascii] [--once]\n"
            "\n"
            "Shows a node live in the terminal (80x24 or more): where gets and loads find their data, bytes, times, what uses the\n"
            "memory, the most used models and prefixes, disks and their wear, peers, engines by model, and actors with their restarts.\n"
            "Keys: 1 to 6 or Tab for the views, p pause, s sort, r reverse, / filter, g models or prefixes, + and - interval, h help,\n"
            "q quit. Reads only shared memory; only the view of peers sends requests, to the transporter.\n"
            "\n"
            "In the view of engines a row represents all engines with the same model identity (model, layout and all else that\n"
            "determines the meaning of bytes); there are no figures for single engines. To see one model, prefix, engine, disk, peer\n"
            "or actor, filter by its name.\n"
            "\n"
            "  --interval DURATION  time between two readings, 100ms to 60s (1s)\n"
            "  --view NAME       start with overview, memory, disks, peers, actors or engines\n"
            "  --filter TEXT     show only rows of tables whose name contains TEXT\n"
            "  --prefixes        group memory and uses by prefixes of keys instead of models\n"
            "  --ascii           use only ASCII characters\n"
            "  --once            wait one interval, print and end; with --json all figures\n"
            "  --readings        internal: print a reading as JSON for each line of standard input\n"
            CTL_HELP_COMMON,
    .run = top_command,
};
/* clang-format on */
