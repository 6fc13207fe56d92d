/* client/ctl/status.c - the actors of a node as their metrics pages show them; nobody is asked
 * anything. */
#include "client/command/supervision.h"
#include "client/ctl/commands.h"
#include "client/ctl/helpers.h"
#include "client/ctl/status_ready.h"
#include "client/ctl/summary.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STUCK_NS          (2 * SL_NS_PER_S)
#define COUNTERS_IN_TABLE 4u
#define READY_PAUSE_NS    (10 * SL_NS_PER_MS)
#define WITHIN_MS_MAX     UINT64_C(3600000)

static const char *health_text(enum sl_health health)
{
    static const char *const texts[] = {"starting", "ready", "degraded", "draining", "stopped"};
    return (size_t)health < SL_COUNT(texts) ? texts[health] : "?";
}

struct status {
    const struct ctl *ctl;
    uint64_t now_ns;
    bool metrics;
    uint64_t within_ms;
    json_t *actors;
    uint32_t shown;
    bool ready[CTL_PAGES_MAX]; /* of the names asked for with --not-ready */
};

static uint64_t silence_since(const struct sl_metrics_summary *summary, uint64_t now_ns)
{
    uint64_t last_ns = SL_MAX(summary->last_beat_ns, summary->started_ns);
    return now_ns > last_ns ? now_ns - last_ns : 0;
}

static uint64_t silence_ns(const struct status *status, const struct sl_metrics_summary *summary)
{
    return silence_since(summary, status->now_ns);
}

bool status_is_stuck(const struct sl_metrics_summary *summary)
{
    return silence_since(summary, sl_clock_monotonic_ns()) > STUCK_NS;
}

static json_t *metrics_json(const struct sl_metrics_view *view,
                            const struct sl_metrics_summary *summary)
{
    json_t *counters = json_object();
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value;
    for (uint32_t i = 0; i < summary->metric_count; i++) {
        if (sl_metrics_view_metric(view, i, name, &value)) {
            (void)json_object_set_new(counters, name, ctl_json_u64(value));
        }
    }
    return counters;
}

static json_t *histograms_json(const struct sl_metrics_view *view,
                               const struct sl_metrics_summary *summary)
{
    json_t *histograms = json_object();
    struct sl_histogram_summary row;
    for (uint32_t i = 0; i < summary->histogram_count; i++) {
        if (sl_metrics_view_histogram(view, i, &row)) {
            (void)json_object_set_new(histograms, row.name,
                                      json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "count",
                                                (json_int_t)row.count, "sum", (json_int_t)row.sum,
                                                "p50", (json_int_t)row.p50, "p90",
                                                (json_int_t)row.p90, "p99", (json_int_t)row.p99,
                                                "max", (json_int_t)row.max));
        }
    }
    return histograms;
}

static void page_json(struct status *status, const struct sl_metrics_view *view,
                      const struct sl_metrics_summary *summary)
{
    bool living = sl_proc_alive(summary->proc);
    uint64_t silent_ns = silence_ns(status, summary);
    json_t *actor = json_pack(
        "{s:s, s:I, s:b, s:s, s:s, s:b, s:f, s:f, s:I, s:o}", "name", summary->actor, "pid",
        (json_int_t)summary->proc.pid, "alive", living, "health", health_text(summary->health),
        "reason", summary->reason, "stuck", living && silent_ns > STUCK_NS, "uptime_s",
        living ? (double)(status->now_ns - SL_MIN(status->now_ns, summary->started_ns)) / 1e9 : 0.0,
        "silent_s", (double)silent_ns / 1e9, "incarnation", (json_int_t)summary->incarnation,
        "counters", metrics_json(view, summary));
    if (status->metrics && actor != NULL) {
        (void)json_object_set_new(actor, "histograms", histograms_json(view, summary));
    }
    (void)json_array_append_new(status->actors, actor);
}

static bool page_collect(void *context, struct sl_metrics_view *view)
{
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    page_json(context, view, &summary);
    return true;
}

json_t *status_actors(const struct ctl *ctl)
{
    struct status status = {
        .ctl = ctl, .now_ns = sl_clock_monotonic_ns(), .metrics = true, .actors = json_array()};
    (void)ctl_pages(ctl, page_collect, &status);
    return status.actors;
}

static void page_metrics(const struct sl_metrics_view *view,
                         const struct sl_metrics_summary *summary)
{
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value;
    struct sl_histogram_summary row;
    for (uint32_t i = 0; i < summary->metric_count; i++) {
        if (sl_metrics_view_metric(view, i, name, &value)) {
            (void)printf("    %-40s %" PRIu64 "\n", name, value);
        }
    }
    for (uint32_t i = 0; i < summary->histogram_count; i++) {
        if (sl_metrics_view_histogram(view, i, &row)) {
            (void)printf("    %-40s count %" PRIu64 ", p50 %" PRIu64 ", p90 %" PRIu64
                         ", p99 %" PRIu64 ", max %" PRIu64 "\n",
                         row.name, row.count, row.p50, row.p90, row.p99, row.max);
        }
    }
}

static void page_row(struct status *status, const struct sl_metrics_view *view,
                     const struct sl_metrics_summary *summary)
{
    bool living = sl_proc_alive(summary->proc);
    bool stuck = living && silence_ns(status, summary) > STUCK_NS;
    double uptime_s =
        living ? (double)(status->now_ns - SL_MIN(status->now_ns, summary->started_ns)) / 1e9 : 0;
    if (status->shown == 0) {
        (void)printf("%-20s %8s %-9s %9s %6s  %s\n", "ACTOR", "PID", "HEALTH", "UPTIME", "STARTS",
                     "COUNTERS");
    }
    (void)printf("%-20s %8u %-9s %8.1fs %6" PRIu64 " ", summary->actor, summary->proc.pid,
                 !living ? "dead"
                 : stuck ? "stuck"
                         : health_text(summary->health),
                 uptime_s, summary->incarnation);
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value;
    uint32_t printed = 0;
    for (uint32_t i = 0;
         !status->metrics && i < summary->metric_count && printed < COUNTERS_IN_TABLE; i++) {
        if (sl_metrics_view_metric(view, i, name, &value) && value != 0) {
            (void)printf(" %s=%" PRIu64, name, value);
            printed++;
        }
    }
    (void)printf("%s%s\n", summary->reason[0] == '\0' ? "" : "  -- ", summary->reason);
    if (status->metrics) {
        page_metrics(view, summary);
    }
}

static bool page_show(void *context, struct sl_metrics_view *view)
{
    struct status *status = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    bool client = strncmp(summary.actor, "client.", 7) == 0;
    if (client && !sl_proc_alive(summary.proc)) {
        return true; /* kept for `trace` alone */
    }
    if (status->ctl->json) {
        page_json(status, view, &summary);
    } else {
        page_row(status, view, &summary);
    }
    status->shown++;
    return true;
}

static bool page_ready(void *context, struct sl_metrics_view *view)
{
    struct status *status = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    bool ready = summary.health == SL_HEALTH_READY || summary.health == SL_HEALTH_DEGRADED;
    for (int i = 0; ready && i < status->ctl->word_count; i++) {
        if (strcmp(status->ctl->words[i], summary.actor) == 0) {
            status->ready[i] = sl_proc_alive(summary.proc);
        }
    }
    return true;
}

/* Whether all of the names are; status->ready has each. */
static bool all_ready(struct status *status)
{
    bool all = true;
    memset(status->ready, 0, sizeof status->ready);
    (void)ctl_pages(status->ctl, page_ready, status);
    for (int i = 0; i < status->ctl->word_count; i++) {
        all = all && status->ready[i];
    }
    return all;
}

/* Answers with names also when there is no node at all: none of them is ready then. */
static int not_ready(struct status *status)
{
    const struct timespec pause = {.tv_nsec = (long)READY_PAUSE_NS};
    uint64_t deadline_ns = sl_deadline_ns(status->now_ns, status->within_ms * SL_NS_PER_MS);
    while (!all_ready(status) && sl_clock_monotonic_ns() < deadline_ns) {
        (void)nanosleep(&pause, NULL);
    }
    for (int i = 0; i < status->ctl->word_count; i++) {
        if (!status->ready[i]) {
            (void)printf("%s\n", status->ctl->words[i]);
        }
    }
    return CTL_FINE;
}

/* Who watches the actors, and where others read; takes them. */
static void status_end(const struct ctl *ctl, json_t *actors)
{
    struct supervision supervision;
    char text[200], mend[200];
    supervision_look(ctl, &supervision);
    if (ctl->json) {
        json_t *all =
            json_pack("{s:s, s:o*, s:o, s:o}", "instance",
                      sl_config_text(ctl->config, SL_SET_instance), "figures", summary_json(ctl),
                      "actors", actors, "supervisor", supervision_json(&supervision));
        ctl_helpers_json(ctl, all);
        ctl_print_json(all);
        return;
    }
    json_decref(actors);
    ctl_helpers_print(ctl);
    supervision_text(ctl, &supervision, text, mend);
    if (text[0] != '\0') {
        (void)printf("%s\n  -> %s\n", text, mend);
    }
}

static int status_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool names_asked = false;
    bool ready_asked = false;
    const char *ready_of = NULL;
    uint64_t deadline_ns = 0;
    struct status status = {.ctl = ctl, .now_ns = sl_clock_monotonic_ns()};
    const struct ctl_option options[] = {{.name = "metrics", .flag = &status.metrics},
                                         {.name = "not-ready", .flag = &names_asked},
                                         {.name = "ready", .flag = &ready_asked, .text = &ready_of},
                                         {.name = "deadline", .duration = &deadline_ns},
                                         {.name = "within-ms", .count = &status.within_ms}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (ctl->word_count > 0 && !names_asked) {
        return ctl_wrong(ctl, "names go with --not-ready");
    }
    if (status.within_ms > WITHIN_MS_MAX || (status.within_ms > 0 && !names_asked)) {
        return ctl_wrong(ctl, "--within-ms goes with --not-ready, and is an hour at most");
    }
    if (deadline_ns > WITHIN_MS_MAX * SL_NS_PER_MS || (deadline_ns > 0 && !ready_asked)) {
        return ctl_wrong(ctl, "--deadline goes with --ready, and is an hour at most");
    }
    if (ready_asked && (names_asked || status.metrics)) {
        return ctl_wrong(ctl, "--ready goes with --deadline and --json alone");
    }
    if (ready_of != NULL && strcmp(ready_of, "disks") != 0) {
        return ctl_wrong(ctl, "--ready=%s: it is --ready or --ready=disks", ready_of);
    }
    if (ready_asked) {
        uint64_t patience_ns = ready_of != NULL ? WITHIN_MS_MAX * SL_NS_PER_MS : STATUS_DEADLINE_NS;
        deadline_ns = deadline_ns > 0 ? deadline_ns : patience_ns;
        return status_ready(ctl, ready_of != NULL, sl_deadline_ns(status.now_ns, deadline_ns));
    }
    if (names_asked) {
        return not_ready(&status);
    }
    status.actors = json_array();
    if (!ctl->json) {
        summary_print(ctl);
    }
    uint32_t pages = ctl_pages(ctl, page_show, &status);
    if (pages == 0) {
        struct sl_error why;
        json_decref(status.actors);
        (void)ctl_no_pages(ctl, &why);
        return ctl_failed(ctl, &why);
    }
    status_end(ctl, status.actors);
    return CTL_FINE;
}

/* clang-format off */
const struct ctl_command ctl_status = {
    .name = "status",
    .summary = "hits, bytes, times; actors, health, counters",
    .help = "status [--metrics] [--ready[=disks] [--deadline T]] [--not-ready NAME... [--within-ms N]]\n"
            "\n"
            "Says where gets and loads were found, bytes, times, and what memory and disks hold, since the node was started; then\n"
            "each actor. Reads the actors' metrics pages and disturbs nobody. A loop that has not turned for 2 s is called stuck.\n"
            "\n"
            "  --metrics         all counters and histograms\n"
            "  --ready           say whether the node serves, and what is missing or degraded; code 0 or 1, for probes. It serves when all\n"
            "                    actors are alive and ready or degraded, some of its disks may be missing, and the registrar answers\n"
            "  --ready=disks     the same, but wait until each disk has been read: until then what lies on it is a miss\n"
            "  --deadline T      of --ready: the answer takes so long at most (1s, with =disks 1h); what is just being restarted is waited for,\n"
            "                    but not a node of which no process runs\n"
            "  --not-ready NAME...   print those of the names that are not alive and ready, one a line\n"
            "  --within-ms N     of --not-ready: wait so long until all of them are (0)"
            CTL_HELP_COMMON,
    .run = status_command,
    .words_max = (int)CTL_PAGES_MAX,
    .words = "too many names",
};
/* clang-format on */
