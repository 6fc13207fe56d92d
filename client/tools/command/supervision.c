/* client/tools/command/supervision.c - whether a node has a supervisor, by its pid file; if not,
 * since when, as the actors noted it on their metrics pages. */
#include "client/tools/command/command.h"
#include "ipc/msg/sl_process.h"
#include "runtime/base/sl_proc.h"

#include <string.h>

struct noted {
    uint32_t living_count;
    uint64_t since_ms; /* the earliest; 0: no actor noted it */
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

json_t *ctl_supervision(const struct ctl *ctl)
{
    char path[1400];
    struct noted noted = {0};
    struct sl_proc_id supervisor = {0};
    (void)snprintf(path, sizeof(path), "%s/supervisor.pid", ctl->paths.runtime_dir);
    bool named = sl_proc_id_read(path, &supervisor, NULL) == SL_OK;
    (void)ctl_pages(ctl, page_noted, &noted);
    bool lives = named && sl_proc_alive(supervisor);
    bool gone = !lives && noted.living_count > 0 && (named || noted.since_ms != 0);
    const char *state = gone                              ? "unsupervised"
                        : !lives                          ? "none"
                        : sl_proc_stopped(supervisor.pid) ? "stopped"
                                                          : "supervised";
    return json_pack("{s:s, s:I, s:o}", "state", state, "pid", (json_int_t)supervisor.pid,
                     "since_ms", ctl_json_u64(gone ? noted.since_ms : 0));
}
