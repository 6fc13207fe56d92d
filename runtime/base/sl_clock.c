/* runtime/base/sl_clock.c - the two system clocks, and saturating arithmetic on deadlines. */
#include "runtime/base/sl_clock.h"

#include <time.h>

static uint64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    SL_ASSERT(clock_gettime(clock, &now) == 0);
    return (uint64_t)now.tv_sec * SL_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t sl_clock_monotonic_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

uint64_t sl_clock_wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

uint64_t sl_deadline_ns(uint64_t now_ns, uint64_t budget_ns)
{
    uint64_t deadline_ns;
    return __builtin_add_overflow(now_ns, budget_ns, &deadline_ns) ? SL_NEVER_NS : deadline_ns;
}

uint64_t sl_budget_ns(uint64_t now_ns, uint64_t deadline_ns)
{
    if (deadline_ns == SL_NEVER_NS) {
        return SL_NEVER_NS;
    }
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

uint64_t sl_clock_next_ns(uint64_t now_ns, uint64_t every_ns)
{
    return sl_deadline_ns(now_ns, every_ns - now_ns % every_ns);
}
