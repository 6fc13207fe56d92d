/* runtime/base/sl_spin.c - see sl_spin.h. */
#include "runtime/base/sl_spin.h"

#include "runtime/base/sl_limits.h"

#include <sched.h>

uint32_t sl_spin_cores(void)
{
    cpu_set_t set;
    uint32_t cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    struct sl_limits limits;
    sl_limits_read("", 0, &limits);
    return (uint32_t)SL_MAX(SL_MIN(cores, limits.cores.most / 1000), 1u);
}

uint64_t sl_spin_budget(struct sl_spin *spin, uint64_t bound_ns, uint32_t cores, uint32_t runnable)
{
    if (cores < 2 || runnable > cores) {
        return 0;
    }
    return spin->worth || ++spin->waits >= SL_SPIN_PROBE << spin->failures ? bound_ns : 0;
}

void sl_spin_result(struct sl_spin *spin, bool success)
{
    spin->failures = success ? 0 : SL_MIN(spin->failures + !spin->worth, SL_SPIN_FAILURES_MAX);
    spin->worth = success;
    spin->waits = 0;
}
