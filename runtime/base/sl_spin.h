/* runtime/base/sl_spin.h - decides whether a wait spins. On a fast lane a reply may arrive before a
 * sleeper wakes up, but a spinning process takes a core from the process that makes the reply.
 *
 * The rule: never spin if the node has more runnable processes than cores. Otherwise spin for at
 * most the bound, and only while it pays. After a wait that ended in time the next one spins also.
 * After one that did not, the SL_SPIN_PROBE-th wait tries again, and each failed try doubles the
 * waits until the next one. So a process that is woken by other events hardly tries at all (for a
 * busy fabric, tries took a third of the time). One thread. */
#ifndef SL_SPIN_H
#define SL_SPIN_H

#include "runtime/base/sl_base.h"

#define SL_SPIN_PROBE        16u
#define SL_SPIN_FAILURES_MAX 4u

struct sl_spin {
    uint32_t waits;    /* since the last one that spun */
    uint32_t failures; /* tries in a row that timed out */
    bool worth;
};

/* Cores that this process may use: affinity, and quota of its cgroups (rounded down, at least
 * 1). */
uint32_t sl_spin_cores(void);
/* How long the next wait is to spin: bound_ns, or 0: sleep at once. runnable: processes that may
 * want one of the cores now, this one included. */
uint64_t sl_spin_budget(struct sl_spin *spin, uint64_t bound_ns, uint32_t cores, uint32_t runnable);
/* Reports how the spin ended; success: something arrived. */
void sl_spin_result(struct sl_spin *spin, bool success);
/* Yields execution resources to the other hyper-thread between two looks. */
static inline void sl_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
