/* actors/tierer/health.c - is the disk well: failures pause what needs it, the next success ends
 * the pause. A disk that answers nothing is noticed too: what waits for it is told, and nothing new
 * is handed to it until it has answered. */
#include "actors/tierer/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void health_failed(struct tierer *self, const char *what, int os_code)
{
    char reason[96];
    char text[64];
    (void)snprintf(reason, sizeof(reason), "%s: %s", what, strerror_r(os_code, text, sizeof(text)));
    sl_metric_add(self->env->metrics, self->metrics.io_errors, 1);
    sl_metrics_health(self->env->metrics, SL_HEALTH_DEGRADED, reason);
    sl_log_write(self->env->log, SL_LOG_ERROR, 0, "disk: %s", reason);
    self->degraded = true;
    self->degraded_os_code = os_code;
    self->blocked_until_ns = sl_deadline_ns(self->env->now_ns, HEALTH_RETRY_NS);
}

void health_fine(struct tierer *self)
{
    self->blocked_until_ns = 0;
    if (!self->degraded || self->stalled) {
        return;
    }
    self->degraded = false;
    sl_metrics_health(self->env->metrics, self->draining ? SL_HEALTH_DRAINING : SL_HEALTH_READY,
                      "");
    sl_log_write(self->env->log, SL_LOG_INFO, 0, "disk: it works again");
}

static uint64_t oldest_request_ns(const struct tierer *self)
{
    uint64_t oldest_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->ios_in_flight > 0 && i < IOS_MAX; i++) {
        const struct io *io = &self->ios[i];
        oldest_ns = io->kind != IO_FREE ? SL_MIN(oldest_ns, io->started_ns) : oldest_ns;
    }
    return oldest_ns;
}

void health_look(struct tierer *self)
{
    uint64_t oldest_ns = oldest_request_ns(self);
    bool stalled = oldest_ns != SL_NEVER_NS && self->env->now_ns >= oldest_ns + HEALTH_STALL_NS;
    if (stalled && !self->stalled) {
        self->stalled = true;
        health_failed(self, "no answer for 5 s", ETIMEDOUT);
    } else if (!stalled && self->stalled) {
        self->stalled = false;
        health_fine(self);
    }
    log_refuse(self);
}

uint64_t health_next_ns(const struct tierer *self)
{
    /* Once a second is enough, and an idle disk costs nothing. */
    bool busy = self->ios_in_flight > 0 || (self->degraded && self->waiting.count > 0);
    return busy ? self->env->now_ns + SL_NS_PER_S : SL_NEVER_NS;
}
