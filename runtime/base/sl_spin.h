/* runtime/base/sl_spin.h - whether to wait awake: on a fast lane an answer may be nearer than the
 * wake-up of a sleeper, but a spinning process takes a core from the one that makes the answer.
 *
 * The rule: never, when there are fewer cores than processes of the node that are runnable now.
 * Else for at most the bound, and only while it pays: after a wait that ended in time the next one
 * spins too; after one that did not, the SL_SPIN_PROBE-th wait tries again, and each try that fails
 * doubles the waits until the next one. A process that is woken by other things (a fabric at work
 * took a third of its time for tries) hardly tries at all. One thread.
 */
#ifndef SL_SPIN_H
#define SL_SPIN_H

#include "runtime/base/sl_base.h"

#define SL_SPIN_PROBE        16u
#define SL_SPIN_FAILURES_MAX 4u

struct sl_spin {
    uint32_t waits;    /* since the last one that was spun */
    uint32_t failures; /* tries in a row in which nothing came */
    bool worth;
};

/* Cores that this process may use: its affinity, and the quota of its cgroups (rounded
 * down, at least 1). */
uint32_t sl_spin_cores(void);
/* How long the wait that begins now shall spin: bound_ns, or 0: sleep at once. runnable: processes
 * that may want one of the cores now, this one included. */
uint64_t sl_spin_budget(struct sl_spin *spin, uint64_t bound_ns, uint32_t cores, uint32_t runnable);
/* How the spinning ended: something came. */
void sl_spin_learn(struct sl_spin *spin, bool came);
/* Eases the other hyper-thread while this one looks again. */
static inline void sl_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
