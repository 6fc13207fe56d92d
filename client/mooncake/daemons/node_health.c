/* client/mooncake/daemons/node_health.c - whether a node serves, as the pages of its actors say. */
#include "client/mooncake/daemons/node.h"
#include "runtime/sl_metrics.h"

static sl_err actor_check(const struct sl_paths *paths, const char *name, struct sl_error *why)
{
    char path[1100];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    (void)snprintf(path, sizeof path, "%s/metrics.%s", paths->shm_dir, name);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "%s has not started", name);
    }
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    if (!sl_proc_alive(summary.proc)) {
        bool said = summary.health == SL_HEALTH_STOPPED && summary.reason[0] != '\0';
        return sl_fail(why, SL_ERR_UNREACHABLE, "%s is down%s%s", name, said ? ": " : "",
                       said ? summary.reason : "");
    }
    if (summary.health == SL_HEALTH_DEGRADED) {
        (void)sl_fail(why, SL_ERR_INCOMPLETE, "%s: %s", name, summary.reason);
        return SL_OK;
    }
    if (summary.health != SL_HEALTH_READY) {
        return sl_fail(why, SL_ERR_UNREACHABLE, "%s is not ready: %s", name, summary.reason);
    }
    return SL_OK;
}

bool mc_node_ready(const struct sl_paths *paths, uint32_t disk_count, struct sl_error *why)
{
    if (actor_check(paths, "registrar", why) != SL_OK) {
        return false;
    }
    bool served = disk_count == 0;
    for (uint32_t i = 0; i < disk_count && !served; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "tierer.%u", i);
        served = actor_check(paths, name, why) == SL_OK;
    }
    return served;
}
