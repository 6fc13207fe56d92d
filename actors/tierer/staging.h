/* actors/tierer/staging.h - how much of the disk may be under way into memory at once.
 *
 * A value costs its pages and two more. What fits the usable share goes together; a value over the
 * usable share travels alone; a value over the whole budget never travels and is refused by name.
 */
#ifndef SL_TIERER_STAGING_H
#define SL_TIERER_STAGING_H

#include "runtime/base/sl_error.h"

#define TI_STAGING_OVERHEAD_BYTES 8192u

struct ti_staging {
    uint64_t budget_bytes;
    uint64_t usable_bytes;
    uint64_t used_bytes; /* cost of what is under way */
};
/* usable_ppm: share of the budget, 0..1,000,000. */
void ti_staging_init(struct ti_staging *staging, uint64_t budget_bytes, uint64_t usable_ppm);
/* Whether a value of this size may ever be read. */
bool ti_staging_fits(const struct ti_staging *staging, uint64_t length_bytes);
/* SL_OK: taken, give it back with ti_staging_give. SL_ERR_BUSY: wait for what is under way.
 * SL_ERR_LIMIT: never, `why` says how much it needs and how much there is. */
sl_err ti_staging_take(struct ti_staging *staging, uint64_t length_bytes, struct sl_error *why);
void ti_staging_give(struct ti_staging *staging, uint64_t length_bytes);

#endif
