/* client/tools/command/pages.c - reads the metrics pages of a node without messages to actors. */
#include "client/tools/command/command.h"
#include "runtime/base/sl_metrics.h"
#include "runtime/base/sl_proc.h"

#include <string.h>

uint32_t ctl_pages(const struct ctl *ctl, bool (*each)(void *context, struct sl_metrics_view *view),
                   void *context)
{
    return sl_metrics_views_each(ctl->paths.shm_dir, each, context);
}

uint32_t ctl_registrar_pid(const char *shm_dir)
{
    char path[1400];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary = {0};
    (void)snprintf(path, sizeof path, "%s/metrics.registrar", shm_dir);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return 0;
    }
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    return summary.proc.pid != 0 && sl_proc_alive(summary.proc) ? (uint32_t)summary.proc.pid : 0;
}

bool ctl_registrar_lives(const char *shm_dir)
{
    return ctl_registrar_pid(shm_dir) != 0;
}

sl_err ctl_no_pages(const struct ctl *ctl, struct sl_error *why)
{
    char path[1400];
    struct sl_metrics_view *view = NULL;
    (void)snprintf(path, sizeof path, "%s/metrics.registrar", ctl->paths.shm_dir);
    sl_err err = sl_metrics_view_open(path, &view, why);
    sl_metrics_view_close(&view);
    return err == SL_ERR_VERSION
               ? err
               : sl_fail(why, SL_ERR_UNREACHABLE,
                         "no node runs under the name '%s' (no pages in %.150s)",
                         sl_config_text(ctl->config, SL_SET_instance), ctl->paths.shm_dir);
}

uint64_t ctl_page_metric(const struct sl_metrics_view *view, const char *wanted)
{
    char name[SL_METRIC_NAME_BYTES];
    uint64_t value = 0;
    for (uint32_t i = 0; sl_metrics_view_metric(view, i, name, &value); i++) {
        if (strcmp(name, wanted) == 0) {
            return value;
        }
    }
    return 0;
}
