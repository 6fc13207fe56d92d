/* runtime/sl_backoff.h - how long to leave alone what has failed: longer each time, and by
 * chance, so that those who lost the same peer do not come back in step. */
#ifndef SL_BACKOFF_H
#define SL_BACKOFF_H

#include "runtime/sl_base.h"

/* min_ns * 2^failures up to max_ns, then between a half and the whole of it. failures: of the same
 * kind that came before this one, in a row. random: any bits. Any thread. */
uint64_t sl_backoff_ns(uint64_t min_ns, uint64_t max_ns, uint32_t failures, uint64_t random);

#endif
