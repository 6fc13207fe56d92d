/* runtime/base/sl_backoff.h - pauses before something that failed is retried. */
#ifndef SL_BACKOFF_H
#define SL_BACKOFF_H

#include "runtime/base/sl_base.h"

/* First pauses of requests that are resent until answered; each later pause doubles. A refused
 * request is resent soon, since a connection to a living peer takes less than a millisecond. A
 * draining actor is replaced within a fraction of a second. */
#define SL_RESEND_REFUSED_NS  (1 * SL_NS_PER_MS)
#define SL_RESEND_DRAINING_NS (20 * SL_NS_PER_MS)

/* A random pause, for failures that many processes see at once: they must not retry in step. It
 * lies between half of and the whole of min_ns * 2^failures, which is capped at max_ns. failures:
 * earlier failures of this kind in a row. random: any bits. Any thread. */
uint64_t sl_backoff_ns(uint64_t min_ns, uint64_t max_ns, uint32_t failures, uint64_t random);

/* Returns the present pause and doubles it for the next time, up to max_ns. For a single process
 * that retries. */
static inline uint64_t sl_backoff_next(uint64_t *pause_ns, uint64_t max_ns)
{
    uint64_t this_ns = *pause_ns;
    *pause_ns = SL_MIN(2 * this_ns, max_ns);
    return this_ns;
}

#endif
