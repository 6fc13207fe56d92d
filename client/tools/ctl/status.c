/* client/tools/ctl/status.c - sluicectl status: the actors of a node, read from their metrics pages
 * without a message to them. node.py makes the text. */
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/status_ready.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_metrics.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STUCK_NS       (2 * SL_NS_PER_S)
#define READY_PAUSE_NS (10 * SL_NS_PER_MS)
#define WITHIN_MS_MAX  UINT64_C(3600000)

static const char *health_text(enum sl_health health)
{
    static const char *const texts[] = {"starting", "ready", "degraded", "draining", "stopped"};
    return (size_t)health < SL_COUNT(texts) ? texts[health] : "?";
}

static uint64_t silence_ns(const struct sl_metrics_summary *summary, uint64_t now_ns)
{
    uint64_t last_ns = SL_MAX(summary->last_beat_ns, summary->started_ns);
    return now_ns > last_ns ? now_ns - last_ns : 0;
}

bool status_is_stuck(const struct sl_metrics_summary *summary)
{
    return silence_ns(summary, sl_clock_monotonic_ns()) > STUCK_NS;
}

static json_t *counters_json(const struct sl_metrics_view *view,
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

static bool page_collect(void *actors, struct sl_metrics_view *view)
{
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    uint64_t now_ns = sl_clock_monotonic_ns(), silent_ns = silence_ns(&summary, now_ns);
    bool living = sl_proc_alive(summary.proc);
    (void)json_array_append_new(
        actors,
        json_pack(
            "{s:s, s:I, s:b, s:s, s:s, s:b, s:f, s:f, s:I, s:o, s:o}", "name", summary.actor, "pid",
            (json_int_t)summary.proc.pid, "alive", living, "health", health_text(summary.health),
            "reason", summary.reason, "stuck", living && silent_ns > STUCK_NS, "uptime_s",
            living ? (double)(now_ns - SL_MIN(now_ns, summary.started_ns)) / 1e9 : 0.0, "silent_s",
            (double)silent_ns / 1e9, "incarnation", (json_int_t)summary.incarnation, "counters",
            counters_json(view, &summary), "histograms", histograms_json(view, &summary)));
    return true;
}

json_t *status_actors(const struct ctl *ctl)
{
    json_t *actors = json_array();
    (void)ctl_pages(ctl, page_collect, actors);
    return actors;
}

int status_answer(const struct ctl *ctl, json_t *facts)
{
    struct sl_error why;
    const char *const words[] = {ctl->command->name, ctl->json ? "json" : "text", NULL};
    json_t *actors = status_actors(ctl);
    size_t count = json_array_size(actors); /* facts is NULL if memory ran out */
    if (json_object_set_new(facts, "actors", actors) == 0 && count > 0) {
        return ctl_script_print("node.py", words, facts);
    }
    json_decref(facts);
    (void)(count == 0 ? ctl_no_pages(ctl, &why)
                      : sl_fail(&why, SL_ERR_NO_MEMORY, "state of the node"));
    return ctl_failed(ctl, &why);
}

struct status {
    const struct ctl *ctl;
    uint64_t now_ns, within_ms;
    bool ready[CTL_PAGES_MAX]; /* by index of the names of --not-ready */
};

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

/* Whether all named actors are ready. Sets status->ready. */
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

/* Prints all names if no node runs: none of them is ready then. */
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
    return CTL_SUCCESS;
}

static int status_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    bool names_asked = false;
    bool ready_asked = false;
    bool metrics = false;
    bool pages = false; /* without Python, for daemons that call often */
    const char *ready_of = NULL;
    uint64_t deadline_ns = 0;
    struct status status = {.ctl = ctl, .now_ns = sl_clock_monotonic_ns()};
    const struct ctl_option options[] = {{.name = "metrics", .flag = &metrics},
                                         {.name = "pages", .flag = &pages},
                                         {.name = "not-ready", .flag = &names_asked},
                                         {.name = "ready", .flag = &ready_asked, .text = &ready_of},
                                         {.name = "deadline", .duration = &deadline_ns},
                                         {.name = "within-ms", .count = &status.within_ms}};
    if (!ctl_parse(ctl, argc, argv, options, SL_COUNT(options), &code)) {
        return code;
    }
    if (ctl->word_count > 0 && !names_asked) {
        return ctl_usage_error(ctl, "names need --not-ready");
    }
    if (status.within_ms > WITHIN_MS_MAX || (status.within_ms > 0 && !names_asked)) {
        return ctl_usage_error(ctl, "--within-ms needs --not-ready and is at most an hour");
    }
    if (deadline_ns > WITHIN_MS_MAX * SL_NS_PER_MS || (deadline_ns > 0 && !ready_asked)) {
        return ctl_usage_error(ctl, "--deadline needs --ready and is at most an hour");
    }
    if (ready_asked && (names_asked || metrics)) {
        return ctl_usage_error(ctl, "--ready can be combined only with --deadline and --json");
    }
    if (ready_of != NULL && strcmp(ready_of, "disks") != 0) {
        return ctl_usage_error(ctl, "--ready=%s: expected --ready or --ready=disks", ready_of);
    }
    if (ready_asked) {
        uint64_t patience_ns = ready_of != NULL ? WITHIN_MS_MAX * SL_NS_PER_MS : STATUS_DEADLINE_NS;
        deadline_ns = deadline_ns > 0 ? deadline_ns : patience_ns;
        return status_ready(ctl, ready_of != NULL, sl_deadline_ns(status.now_ns, deadline_ns));
    }
    if (names_asked) {
        return not_ready(&status);
    }
    if (pages) {
        ctl_print_json(json_pack("{s:o}", "actors", status_actors(ctl)));
        return CTL_SUCCESS;
    }
    json_t *families = NULL;
    (void)metrics_families(ctl->paths.shm_dir, &families, NULL);
    json_t *facts =
        json_pack("{s:s, s:b, s:o*, s:o}", "instance", sl_config_text(ctl->config, SL_SET_instance),
                  "metrics", metrics, "families", families, "supervisor", ctl_supervision(ctl));
    ctl_helpers_json(ctl, facts);
    return status_answer(ctl, facts);
}

/* clang-format off */
const struct ctl_command ctl_status = {
    .name = "status",
    .summary = "show hits, bytes and times; actors, health, counters",
    .help = "status [--metrics] [--ready[=disks] [--deadline T]] [--not-ready NAME... [--within-ms N]]\n"
            "\n"
            "Prints where gets and loads found their data, bytes and times since the node was started, and the contents of memory and\n"
            "disks; then each actor. Reads only the actors' metrics pages. An actor whose loop has not run for 2 s is shown as stuck.\n"
            "\n"
            "  --metrics         print all counters and histograms\n"
            "  --pages           print only the actors' pages, as JSON, for programs that call often\n"
            "  --ready           print whether the node serves, and what is missing or degraded; exit code 0 or 1, for probes. A node serves\n"
            "                    if the registrar answers and all actors are alive and ready or degraded; some of its disks may be missing\n"
            "  --ready=disks     also wait until each disk has been read: until then the values on it are misses\n"
            "  --deadline T      of --ready: longest wait (1s, with =disks 1h). It waits for actors that are being restarted,\n"
            "                    but not for a node of which no process runs\n"
            "  --not-ready NAME...   print the named actors that are not alive and ready, one a line\n"
            "  --within-ms N     of --not-ready: wait up to N ms until all of them are ready (0)"
            CTL_HELP_COMMON,
    .run = status_command,
    .words_max = (int)CTL_PAGES_MAX,
    .words = "too many names",
};
/* clang-format on */
