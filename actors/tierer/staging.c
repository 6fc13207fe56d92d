/* actors/tierer/staging.c - the staging budget of disk reads. */
#include "actors/tierer/staging.h"

#include <inttypes.h>

void ti_staging_init(struct ti_staging *staging, uint64_t budget_bytes, uint64_t usable_ppm)
{
    SL_ASSERT(usable_ppm <= 1000000);
    uint64_t millions = budget_bytes / 1000000, rest = budget_bytes % 1000000;
    *staging = (struct ti_staging){
        .budget_bytes = budget_bytes,
        .usable_bytes = millions * usable_ppm + rest * usable_ppm / 1000000,
    };
}

static uint64_t staging_cost(uint64_t length_bytes)
{
    return sl_align_up(length_bytes, SL_PAGE_BYTES) + TI_STAGING_OVERHEAD_BYTES;
}

bool ti_staging_fits(const struct ti_staging *staging, uint64_t length_bytes)
{
    return staging_cost(length_bytes) <= staging->budget_bytes;
}

sl_err ti_staging_take(struct ti_staging *staging, uint64_t length_bytes, struct sl_error *why)
{
    uint64_t cost = staging_cost(length_bytes);
    if (!ti_staging_fits(staging, length_bytes)) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "a value of %" PRIu64 " bytes needs %" PRIu64
                       " bytes of staging, disk_staging is %" PRIu64,
                       length_bytes, cost, staging->budget_bytes);
    }
    bool alone = staging->used_bytes == 0;
    if (!alone && staging->used_bytes + cost > staging->usable_bytes) {
        return SL_ERR_BUSY;
    }
    staging->used_bytes += cost;
    return SL_OK;
}

void ti_staging_give(struct ti_staging *staging, uint64_t length_bytes)
{
    uint64_t cost = staging_cost(length_bytes);
    SL_ASSERT(staging->used_bytes >= cost);
    staging->used_bytes -= cost;
}
