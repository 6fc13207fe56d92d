/* client/lib/health.c - the node's own report of its health. */
#include "client/lib/internal.h"
#include "runtime/base/sl_metrics.h"

#include <stdio.h>

_Static_assert(SL_TROUBLE_BYTES >= SL_METRICS_REASON_BYTES, "the whole reason");

bool sl_client_health(const struct sl_client *client, char out[SL_TROUBLE_BYTES])
{
    char path[sizeof client->paths.shm_dir + 32];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    (void)snprintf(path, sizeof path, "%s/metrics.registrar", client->paths.shm_dir);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return false;
    }
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    (void)snprintf(out, SL_TROUBLE_BYTES, "%s", summary.reason);
    return summary.health == SL_HEALTH_DEGRADED;
}
