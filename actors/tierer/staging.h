/* actors/tierer/staging.h - bounds the bytes of disk reads in flight.
 *
 * A value costs its pages and two more. Values are read together within the usable share, a larger
 * one by itself. A value over the whole budget is refused; the error names both sizes. */
#ifndef SL_TIERER_STAGING_H
#define SL_TIERER_STAGING_H

#include "runtime/base/sl_error.h"

#define TI_STAGING_OVERHEAD_BYTES 8192u

struct ti_staging {
    uint64_t budget_bytes;
    uint64_t usable_bytes;
    uint64_t used_bytes; /* by reads in flight */
};
/* usable_ppm: share of the budget, 0..1,000,000. */
void ti_staging_init(struct ti_staging *staging, uint64_t budget_bytes, uint64_t usable_ppm);
/* Whether a value of this size can ever be read. */
bool ti_staging_fits(const struct ti_staging *staging, uint64_t length_bytes);
/* SL_OK: reserved until ti_staging_give. SL_ERR_BUSY: wait for reads in flight. SL_ERR_LIMIT: never
 * possible; `why` has both sizes. */
sl_err ti_staging_take(struct ti_staging *staging, uint64_t length_bytes, struct sl_error *why);
void ti_staging_give(struct ti_staging *staging, uint64_t length_bytes);

#endif
