/* runtime/base/sl_clock.h - the two clocks. Actors take the time from their env instead. */
#ifndef SL_CLOCK_H
#define SL_CLOCK_H

#include "runtime/base/sl_base.h"

#define SL_NEVER_NS UINT64_MAX

uint64_t sl_clock_monotonic_ns(void); /* CLOCK_MONOTONIC: the same for all processes of a host */
uint64_t sl_clock_wall_ns(void);      /* CLOCK_REALTIME since 1970 */

/* now + budget, saturating at SL_NEVER_NS. */
uint64_t sl_deadline_ns(uint64_t now_ns, uint64_t budget_ns);
/* The time left until deadline_ns: 0 when it has passed, SL_NEVER_NS for SL_NEVER_NS. */
uint64_t sl_budget_ns(uint64_t now_ns, uint64_t deadline_ns);
/* The first multiple of every_ns (not 0) after now_ns. Periodic work of different processes then
 * happens at the same time, and wakes the machine once. */
uint64_t sl_clock_next_ns(uint64_t now_ns, uint64_t every_ns);

#endif
