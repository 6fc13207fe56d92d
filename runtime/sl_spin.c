/* runtime/sl_spin.c - the rule of spinning. */
#include "runtime/sl_spin.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

/* "max 100000" or "QUOTA PERIOD". UINT32_MAX: no quota, or none that is visible. */
static uint32_t quota_cores(void)
{
    uint64_t quota;
    uint64_t period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file == NULL) {
        return UINT32_MAX;
    }
    bool limited = fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2 && period > 0;
    (void)fclose(file);
    return limited ? (uint32_t)SL_MIN(quota / period, UINT64_C(1) << 20) : UINT32_MAX;
}

uint32_t sl_spin_cores(void)
{
    cpu_set_t set;
    uint32_t cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    return SL_MAX(SL_MIN(cores, quota_cores()), 1u);
}

uint64_t sl_spin_budget(struct sl_spin *spin, uint64_t bound_ns, uint32_t cores, uint32_t runnable)
{
    if (cores < 2 || runnable > cores) {
        return 0;
    }
    return spin->worth || ++spin->waits >= SL_SPIN_PROBE << spin->failures ? bound_ns : 0;
}

void sl_spin_learn(struct sl_spin *spin, bool came)
{
    spin->failures = came ? 0 : SL_MIN(spin->failures + !spin->worth, SL_SPIN_FAILURES_MAX);
    spin->worth = came;
    spin->waits = 0;
}
