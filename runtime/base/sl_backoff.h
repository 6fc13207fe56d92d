/* runtime/base/sl_backoff.h - how long to leave alone what has failed: longer each time. */
#ifndef SL_BACKOFF_H
#define SL_BACKOFF_H

#include "runtime/base/sl_base.h"

/* Of requests that are sent again until they are answered. One that was not taken goes again soon,
 * since a connection to a living peer stands within a millisecond; then each pause is doubled. An
 * actor that drains has a successor within a fraction of a second. */
#define SL_RESEND_REFUSED_NS  (1 * SL_NS_PER_MS)
#define SL_RESEND_DRAINING_NS (20 * SL_NS_PER_MS)

/* For what many may have lost at once: by chance, so that they do not come back in step. min_ns *
 * 2^failures up to max_ns, then between a half and the whole of it. failures: of the same kind that
 * came before this one, in a row. random: any bits. Any thread. */
uint64_t sl_backoff_ns(uint64_t min_ns, uint64_t max_ns, uint32_t failures, uint64_t random);

/* For what one asker alone tries again. Gives the pause that is due, and doubles it for the next
 * time, up to max_ns. */
static inline uint64_t sl_backoff_next(uint64_t *pause_ns, uint64_t max_ns)
{
    uint64_t this_ns = *pause_ns;
    *pause_ns = SL_MIN(2 * this_ns, max_ns);
    return this_ns;
}

#endif
