/* client/ctl/tiers.c - the tiers of a node: what each holds, how much of what was asked came from
 * it, how long it takes, and whether it is well. Read from metrics pages; nobody is disturbed. */
#include "client/ctl/commands.h"
#include "client/ctl/devices.h"
#include "client/ctl/nics.h"
#include "runtime/sl_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TIERERS_MAX 64u

struct tiers {
    /* memory, from the registrar */
    uint64_t used_bytes, usable_bytes, ceiling_bytes, object_count, disk_object_count, pending;
    uint64_t written, written_bytes, refused, refused_bytes, later, over_budget;
    /* blocks that came ahead of use; which of them somebody wanted, and which left before that */
    uint64_t ahead_parts, ahead_wanted, ahead_lost;
    uint64_t sessions, session_asked, session_refused;
    /* blocks that loads got, from the coordinator */
    uint64_t from_memory, from_disk, from_remote;
    /* blocks that were not waited for, since they were sooner computed */
    uint64_t left_blocks, left_tokens, left_us, soft_missed, spared;
    char registrar_reason[SL_METRICS_REASON_BYTES];
    struct tierer_row {
        char name[32], reason[SL_METRICS_REASON_BYTES];
        enum sl_health health;
        uint64_t used_bytes, live_bytes, ceiling_bytes, live_values, segments, queued, in_flight,
            values_read, values_written, corrupt, io_errors, emptied, budget, budget_left, today,
            all;
        struct sl_histogram_summary read, write;
    } tierers[TIERERS_MAX];
    uint32_t tierer_count;
};

static void histogram_of(const struct sl_metrics_view *view,
                         const struct sl_metrics_summary *summary, const char *wanted,
                         struct sl_histogram_summary *out)
{
    struct sl_histogram_summary row;
    for (uint32_t i = 0; i < summary->histogram_count; i++) {
        if (sl_metrics_view_histogram(view, i, &row) && strcmp(row.name, wanted) == 0) {
            *out = row;
        }
    }
}

static void tierer_read(const struct sl_metrics_view *view,
                        const struct sl_metrics_summary *summary, struct tierer_row *row)
{
    (void)snprintf(row->name, sizeof row->name, "%s", summary->actor);
    (void)snprintf(row->reason, sizeof row->reason, "%s", summary->reason);
    row->health = summary->health;
    row->used_bytes = ctl_page_metric(view, "disk_used_bytes");
    row->live_bytes = ctl_page_metric(view, "live_bytes");
    row->ceiling_bytes = ctl_page_metric(view, "disk_ceiling_bytes");
    row->live_values = ctl_page_metric(view, "live_values");
    row->segments = ctl_page_metric(view, "segments");
    row->queued = ctl_page_metric(view, "queued_requests");
    row->in_flight = ctl_page_metric(view, "requests_in_flight");
    row->values_read = ctl_page_metric(view, "values_read");
    row->values_written = ctl_page_metric(view, "values_written");
    row->corrupt = ctl_page_metric(view, "corrupt_count");
    row->io_errors = ctl_page_metric(view, "io_error_count");
    row->emptied = ctl_page_metric(view, "emptied_segments");
    row->budget = ctl_page_metric(view, "write_budget_bytes");
    row->budget_left = ctl_page_metric(view, "write_budget_left_bytes");
    row->today = ctl_page_metric(view, "written_today_bytes");
    row->all = ctl_page_metric(view, "written_all_bytes");
    histogram_of(view, summary, "read_ns", &row->read);
    histogram_of(view, summary, "write_ns", &row->write);
}

static bool page_read(void *context, struct sl_metrics_view *view)
{
    struct tiers *tiers = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (strcmp(summary.actor, "registrar") == 0) {
        tiers->used_bytes = ctl_page_metric(view, "used_bytes");
        tiers->usable_bytes = ctl_page_metric(view, "usable_bytes");
        tiers->ceiling_bytes = ctl_page_metric(view, "ceiling_bytes");
        tiers->object_count = ctl_page_metric(view, "object_count");
        tiers->disk_object_count = ctl_page_metric(view, "disk_object_count");
        tiers->pending = ctl_page_metric(view, "write_behind_pending_count");
        tiers->written = ctl_page_metric(view, "written_count");
        tiers->written_bytes = ctl_page_metric(view, "written_bytes");
        tiers->refused = ctl_page_metric(view, "not_written_count");
        tiers->refused_bytes = ctl_page_metric(view, "not_written_bytes");
        tiers->later = ctl_page_metric(view, "written_later_count");
        tiers->over_budget = ctl_page_metric(view, "over_budget_count");
        tiers->ahead_parts = ctl_page_metric(view, "prefetched_count");
        tiers->ahead_wanted = ctl_page_metric(view, "prefetch_used_count");
        tiers->ahead_lost = ctl_page_metric(view, "prefetch_lost_count");
        (void)snprintf(tiers->registrar_reason, sizeof tiers->registrar_reason, "%s",
                       summary.reason);
    } else if (strcmp(summary.actor, "coordinator") == 0) {
        tiers->from_memory = ctl_page_metric(view, "blocks_from_memory");
        tiers->from_disk = ctl_page_metric(view, "blocks_from_disk");
        tiers->from_remote = ctl_page_metric(view, "blocks_from_remote");
        tiers->left_blocks = ctl_page_metric(view, "blocks_not_waited_for");
        tiers->left_tokens = ctl_page_metric(view, "tokens_not_waited_for");
        tiers->left_us = ctl_page_metric(view, "waiting_saved_us");
        tiers->soft_missed = ctl_page_metric(view, "soft_deadlines_missed");
        tiers->spared = ctl_page_metric(view, "fetches_spared");
        tiers->sessions = ctl_page_metric(view, "sessions");
        tiers->session_asked = ctl_page_metric(view, "session_prefetches");
        tiers->session_refused = ctl_page_metric(view, "session_prefetches_refused");
    } else if (strncmp(summary.actor, "tierer.", 7) == 0 && tiers->tierer_count < TIERERS_MAX) {
        tierer_read(view, &summary, &tiers->tierers[tiers->tierer_count++]);
    }
    return true;
}

static double share(uint64_t part, const struct tiers *tiers)
{
    uint64_t whole = tiers->from_memory + tiers->from_disk + tiers->from_remote;
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* Of what loads got from disk, by what each one read. */
static double disk_share(const struct tierer_row *row, const struct tiers *tiers)
{
    uint64_t read = 0;
    for (uint32_t i = 0; i < tiers->tierer_count; i++) {
        read += tiers->tierers[i].values_read;
    }
    double part = read > 0 ? (double)row->values_read / (double)read : 0;
    return share(tiers->from_disk, tiers) * part;
}

static const char *health_name(enum sl_health health)
{
    static const char *const texts[] = {"starting", "ready", "degraded", "draining", "stopped"};
    return (size_t)health < SL_COUNT(texts) ? texts[health] : "?";
}

static json_t *times_json(const struct sl_histogram_summary *times)
{
    return json_pack("{s:f, s:f, s:I}", "p50_us", (double)times->p50 / 1e3, "p99_us",
                     (double)times->p99 / 1e3, "count", (json_int_t)times->count);
}

static json_t *tierer_json(const struct tierer_row *row)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
        "name", row->name, "health", health_name(row->health), "reason", row->reason, "used_bytes",
        (json_int_t)row->used_bytes, "live_bytes", (json_int_t)row->live_bytes, "ceiling_bytes",
        (json_int_t)row->ceiling_bytes, "objects", (json_int_t)row->live_values, "segments",
        (json_int_t)row->segments, "queued_requests", (json_int_t)row->queued, "requests_in_flight",
        (json_int_t)row->in_flight, "values_read", (json_int_t)row->values_read, "values_written",
        (json_int_t)row->values_written, "corrupt", (json_int_t)row->corrupt, "io_errors",
        (json_int_t)row->io_errors, "emptied_segments", (json_int_t)row->emptied, "read",
        times_json(&row->read), "write", times_json(&row->write));
    if (row->budget > 0) {
        (void)json_object_set_new(
            json, "write_budget",
            json_pack("{s:I, s:I, s:I, s:I}", "a_day_bytes", (json_int_t)row->budget,
                      "written_today_bytes", (json_int_t)row->today, "left_bytes",
                      (json_int_t)row->budget_left, "written_in_all_bytes", (json_int_t)row->all));
    }
    return json;
}

static json_t *admission_json(const struct tiers *tiers)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "written", (json_int_t)tiers->written,
                     "written_bytes", (json_int_t)tiers->written_bytes, "not_written",
                     (json_int_t)tiers->refused, "not_written_bytes",
                     (json_int_t)tiers->refused_bytes, "written_later", (json_int_t)tiers->later,
                     "over_budget", (json_int_t)tiers->over_budget);
}

static json_t *left_json(const struct tiers *tiers)
{
    return json_pack("{s:I, s:I, s:f, s:I, s:I}", "blocks", (json_int_t)tiers->left_blocks,
                     "tokens", (json_int_t)tiers->left_tokens, "saved_s",
                     (double)tiers->left_us / 1e6, "soft_deadlines_missed",
                     (json_int_t)tiers->soft_missed, "fetches_spared", (json_int_t)tiers->spared);
}

static json_t *ahead_json(const struct tiers *tiers)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "objects", (json_int_t)tiers->ahead_parts,
                     "units_wanted", (json_int_t)tiers->ahead_wanted, "units_lost",
                     (json_int_t)tiers->ahead_lost, "sessions", (json_int_t)tiers->sessions,
                     "session_prefetches", (json_int_t)tiers->session_asked, "refused",
                     (json_int_t)tiers->session_refused);
}

static void ahead_print(const struct tiers *tiers)
{
    if (tiers->ahead_parts > 0) {
        (void)printf("%-12s %" PRIu64 " objects came from disk before they were wanted: %" PRIu64
                     " blocks or lone objects of them were wanted then, %" PRIu64
                     " left before that; %" PRIu64 " sessions known\n",
                     "memory", tiers->ahead_parts, tiers->ahead_wanted, tiers->ahead_lost,
                     tiers->sessions);
    }
}

static void tiers_json(const struct tiers *tiers, const struct ctl_devices *devices,
                       const struct ctl_nics *nics)
{
    json_t *disks = json_array();
    for (uint32_t i = 0; i < tiers->tierer_count; i++) {
        const struct tierer_row *row = &tiers->tierers[i];
        (void)json_array_append_new(disks, tierer_json(row));
    }
    ctl_print_json(json_pack(
        "{s:{s:I, s:I, s:I, s:I, s:I, s:f, s:o}, s:{s:I, s:I, s:f, s:o, s:o}, s:{s:I, s:f, s:o, s:o}, s:o}",
        "memory", "used_bytes", (json_int_t)tiers->used_bytes, "usable_bytes",
        (json_int_t)tiers->usable_bytes, "ceiling_bytes", (json_int_t)tiers->ceiling_bytes,
        "objects", (json_int_t)tiers->object_count, "blocks_loaded", (json_int_t)tiers->from_memory,
        "share_percent", share(tiers->from_memory, tiers), "ahead", ahead_json(tiers), "disk",
        "waiting_to_be_written", (json_int_t)tiers->pending, "blocks_loaded",
        (json_int_t)tiers->from_disk, "share_percent", share(tiers->from_disk, tiers), "admission",
        admission_json(tiers), "tierers", disks, "remote", "blocks_loaded",
        (json_int_t)tiers->from_remote, "share_percent", share(tiers->from_remote, tiers),
        "device_memory", ctl_devices_json(devices), "nics", ctl_nics_json(nics), "not_waited_for",
        left_json(tiers)));
}

static void left_print(const struct tiers *tiers)
{
    if (tiers->left_blocks + tiers->soft_missed + tiers->spared > 0) {
        (void)printf(
            "not waited for: %" PRIu64 " blocks, %" PRIu64
            " tokens, sooner computed than read; about %.1f s saved; soft deadlines missed "
            "%" PRIu64 ", other nodes not asked %" PRIu64 "\n",
            tiers->left_blocks, tiers->left_tokens, (double)tiers->left_us / 1e6,
            tiers->soft_missed, tiers->spared);
    }
}

static void budget_print(const struct tierer_row *row)
{
    char a[32], b[32], c[32], d[32];
    if (row->budget > 0) {
        (void)printf("%-12s may be written %s a day: %s written today, %s left now; %s in all\n",
                     row->name, ctl_size_text(row->budget, a), ctl_size_text(row->today, b),
                     ctl_size_text(row->budget_left, c), ctl_size_text(row->all, d));
    }
}

static void admission_print(const struct tiers *tiers)
{
    char a[32], b[32];
    if (tiers->refused > 0) {
        (void)printf("%-12s %" PRIu64 " values written (%s); %" PRIu64
                     " were not at first (%s; for the budget: %" PRIu64 " blocks), %" PRIu64
                     " of them later\n",
                     "disk", tiers->written, ctl_size_text(tiers->written_bytes, a), tiers->refused,
                     ctl_size_text(tiers->refused_bytes, b), tiers->over_budget, tiers->later);
    }
}

static void tiers_print(const struct tiers *tiers)
{
    char a[32], b[32], c[32];
    (void)printf("%-12s %-9s %11s %11s %10s %8s  %s\n", "TIER", "HEALTH", "BYTES", "OF", "OBJECTS",
                 "LOADS", "");
    (void)printf("%-12s %-9s %11s %11s %10" PRIu64 " %7.1f%%", "memory", "ready",
                 ctl_size_text(tiers->used_bytes, a), ctl_size_text(tiers->ceiling_bytes, b),
                 tiers->object_count, share(tiers->from_memory, tiers));
    if (tiers->usable_bytes < tiers->ceiling_bytes) {
        (void)printf("  %s of it there so far, the rest comes when it is wanted",
                     ctl_size_text(tiers->usable_bytes, a));
    }
    (void)putchar('\n');
    for (uint32_t i = 0; i < tiers->tierer_count; i++) {
        const struct tierer_row *row = &tiers->tierers[i];
        (void)printf(
            "%-12s %-9s %11s %11s %10" PRIu64 " %7.1f%%  takes %s; queue %" PRIu64
            ", in flight %" PRIu64 "; read p50 %.0f "
            "us, p99 %.0f us; write p50 %.0f us; errors %" PRIu64 ", corrupt %" PRIu64 "%s%s\n",
            row->name, health_name(row->health), ctl_size_text(row->live_bytes, a),
            ctl_size_text(row->ceiling_bytes, b), row->live_values, disk_share(row, tiers),
            ctl_size_text(row->used_bytes, c), row->queued, row->in_flight,
            (double)row->read.p50 / 1e3, (double)row->read.p99 / 1e3, (double)row->write.p50 / 1e3,
            row->io_errors, row->corrupt, row->reason[0] != '\0' ? "  -- " : "", row->reason);
        budget_print(row);
        if (row->emptied > 0) {
            (void)printf("%-12s began empty: it had been away while others served (%" PRIu64
                         " segments "
                         "removed)\n",
                         row->name, row->emptied);
        }
    }
    admission_print(tiers);
    ahead_print(tiers);
    (void)printf("%-12s %-9s %11s %11s %10s %7.1f%%\n", "remote", "", "", "", "",
                 share(tiers->from_remote, tiers));
    left_print(tiers);
    if (tiers->pending > 0) {
        (void)printf("%" PRIu64 " objects wait to be written to disk\n", tiers->pending);
    }
    if (tiers->registrar_reason[0] != '\0') {
        (void)printf("the node: %s\n", tiers->registrar_reason);
    }
}

static int row_order(const void *left, const void *right)
{
    return strverscmp(((const struct tierer_row *)left)->name,
                      ((const struct tierer_row *)right)->name);
}

static int tiers_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    const char *sysfs = SL_SYSFS;
    const struct ctl_option options[] = {{.name = "sysfs", .text = &sysfs}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    struct tiers *tiers = calloc(1, sizeof *tiers);
    if (tiers == NULL || ctl_pages(ctl, page_read, tiers) == 0) {
        struct sl_error why;
        bool memory = tiers != NULL;
        free(tiers);
        (void)(memory ? ctl_no_pages(ctl, &why) : sl_fail(&why, SL_ERR_NO_MEMORY, "no memory"));
        return ctl_failed(ctl, &why);
    }
    qsort(tiers->tierers, tiers->tierer_count, sizeof(tiers->tierers[0]), row_order);
    struct ctl_devices devices;
    struct ctl_nics *nics = ctl_nics_look(ctl->config, sysfs, true);
    ctl_devices_read(ctl, &devices);
    if (ctl->json) {
        tiers_json(tiers, &devices, nics);
    } else {
        tiers_print(tiers);
        ctl_devices_print(&devices);
        ctl_nics_print(nics);
    }
    free(nics);
    free(tiers);
    return CTL_FINE;
}

/* clang-format off */
const struct ctl_command ctl_tiers = {
    .name = "tiers",
    .summary = "what each tier holds, gives and takes",
    .help = "tiers [--sysfs DIR]\n"
            "\n"
            "Memory, each disk and remote: bytes, objects, share of the loaded blocks, queue, latency, errors, health.\n"
            "Then the device memory of engines: registered by dmabuf, or why it goes by the node's memory.\n"
            "Then each RDMA port of this machine: state of its link, speed, socket, what it carries now, and the ranks it serves.\n"
            "Reads the actors' metrics pages and the ports' counters, and disturbs nobody.\n"
            "\n"
            "  --sysfs DIR       look for NICs below DIR (default /sys)\n"
            CTL_HELP_COMMON,
    .run = tiers_command,
};
/* clang-format on */
