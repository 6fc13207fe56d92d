/* client/command/supervision.c - the supervisor by its pid file, and since when it is gone by what actors
 * noted on their pages. */
#include "client/command/supervision.h"
#include "ipc/sl_process.h"
#include "runtime/sl_metrics.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

struct noted {
    uint32_t living_count;
    uint64_t since_ms; /* the earliest; 0: nobody noted it */
};

static bool page_noted(void *context, struct sl_metrics_view *view)
{
    struct noted *noted = context;
    struct sl_metrics_summary summary;
    sl_metrics_view_summary(view, &summary);
    if (strncmp(summary.actor, "client.", 7) == 0 || summary.proc.pid == 0 ||
        !sl_proc_alive(summary.proc)) {
        return true;
    }
    noted->living_count++;
    uint64_t since_ms = ctl_page_metric(view, SL_PROCESS_UNSUPERVISED);
    if (since_ms != 0 && (noted->since_ms == 0 || since_ms < noted->since_ms)) {
        noted->since_ms = since_ms;
    }
    return true;
}

static void since_text(struct supervision *out)
{
    time_t seconds = (time_t)(out->since_ms / 1000);
    struct tm utc;
    if (out->since_ms == 0 || gmtime_r(&seconds, &utc) == NULL ||
        strftime(out->since, sizeof(out->since), "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
        (void)snprintf(out->since, sizeof(out->since), "an unknown time");
    }
}

void supervision_look(const struct ctl *ctl, struct supervision *out)
{
    char path[1400];
    struct noted noted = {0};
    struct sl_proc_id supervisor = {0};
    *out = (struct supervision){.state = SUPERVISION_NONE};
    (void)snprintf(path, sizeof(path), "%s/supervisor.pid", ctl->paths.runtime_dir);
    bool named = sl_proc_id_read(path, &supervisor, NULL) == SL_OK;
    (void)ctl_pages(ctl, page_noted, &noted);
    out->pid = supervisor.pid;
    if (named && sl_proc_alive(supervisor)) {
        out->state = sl_proc_stopped(supervisor.pid) ? SUPERVISION_STOPPED : SUPERVISION_FINE;
    } else if (noted.living_count > 0 && (named || noted.since_ms != 0)) {
        out->state = SUPERVISION_GONE;
        out->since_ms = noted.since_ms;
        since_text(out);
    }
}

void supervision_text(const struct ctl *ctl, const struct supervision *supervision, char out[200],
                      char mend[200])
{
    out[0] = mend[0] = '\0';
    if (supervision->state == SUPERVISION_GONE) {
        (void)snprintf(out, 200, "unsupervised since %s: nobody restarts what ends",
                       supervision->since);
        (void)snprintf(
            mend, 200,
            "sluice-node start --instance %.64s (with the settings of its start) takes it over",
            sl_config_text(ctl->config, SL_SET_instance));
    } else if (supervision->state == SUPERVISION_STOPPED) {
        (void)snprintf(out, 200,
                       "the supervisor %" PRIu32 " is stopped (SIGSTOP): nobody restarts what ends",
                       supervision->pid);
        (void)snprintf(mend, 200, "kill -CONT %" PRIu32, supervision->pid);
    }
}

json_t *supervision_json(const struct supervision *supervision)
{
    static const char *const names[] = {"none", "supervised", "stopped", "unsupervised"};
    bool gone = supervision->state == SUPERVISION_GONE;
    return json_pack("{s:s, s:I, s:s?, s:o}", "state", names[supervision->state], "pid",
                     (json_int_t)supervision->pid, "since",
                     gone && supervision->since_ms != 0 ? supervision->since : NULL, "since_ms",
                     ctl_json_u64(supervision->since_ms));
}
