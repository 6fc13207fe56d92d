/* actors/transporter/regions/regions.c - chooses the maximum region size and the NICs. */
#include "actors/transporter/regions/regions.h"

#include <inttypes.h>
#include <stdlib.h>

sl_err tr_regions_init(struct transporter *self, struct sl_error *why)
{
    struct sl_env *env = self->env;
    struct sl_mr_sources sources = {
        .setting_bytes = sl_config_u64(env->config, SL_SET_mr_bytes_max),
        .variable = getenv("MC_MAX_MR_SIZE"),
    };
    sl_err err = sl_mr_limit_of(&sources, &self->limit, why);
    if (err != SL_OK) {
        return err;
    }
    if (self->limit.clamped) {
        sl_log_write(env->log, SL_LOG_WARN, 0,
                     "MC_MAX_MR_SIZE '%.64s' is not within 1 GiB..6 GiB, %" PRIu64
                     " bytes are used",
                     sources.variable, self->limit.bytes);
    }
    err = tr_nic_choose(self, why);
    if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0,
                     "memory regions of at most %" PRIu64 " bytes, nic %s", self->limit.bytes,
                     self->nic[0] == '\0' ? "none" : self->nic);
    }
    return err;
}
