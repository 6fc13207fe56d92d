/* runtime/base/sl_guard.h - protects mappings of files that another process may truncate.
 *
 * An access to a page beyond the end of its file raises SIGBUS, which ends the process, and any
 * process of the user can truncate files of shared memory. So mappings are registered here. A
 * SIGBUS handler maps zeros over the missing pages, marks the mapping as cut, and lets the thread
 * continue. A reader that copied or checked bytes of a mapping looks at the mark afterwards: if it
 * is not set, the bytes are the file's.
 *
 * The first registration installs the handler, for the whole process and permanently. Signals for
 * other addresses are passed to the previous handler; a handler that the program installs later
 * must do the same. Threads must not block SIGBUS, since the kernel then ends the process
 * (sl_signals.h). A system call that meets the hole fails with EFAULT. */
#ifndef SL_GUARD_H
#define SL_GUARD_H

#include "runtime/base/sl_base.h"

#include <stdatomic.h>

struct sl_guard; /* of one mapping */

/* Registers [at, at + length_bytes), whole pages of a shared mapping of a file, until it is
 * removed. count_cut: sl_guard_cuts counts its cut. NULL: too many mappings, or no handler; the
 * mapping is then not guarded. */
struct sl_guard *sl_guard_add(void *at, uint64_t length_bytes, bool count_cut);
/* Call it before the mapping ends, when no thread uses it. Accepts NULL; sets *guard to NULL. */
void sl_guard_remove(struct sl_guard **guard);
/* Whether bytes of the mapping may be zeros that are not the file's. Call it after reading them.
 * NULL: false. */
bool sl_guard_is_cut(const struct sl_guard *guard);

/* For a program that must end before it acts on zeros: called in the handler when a mapping with
 * `count_cut` is cut. It may only use write(2) and _exit, and must not return. NULL: none. */
extern void (*_Atomic sl_guard_cut_hook)(void);

extern _Atomic uint32_t sl_guard_cut_count;
/* Number of cut mappings that were registered to be counted. Costs a load. */
static inline uint32_t sl_guard_cuts(void)
{
    /* Pairs with the handler, which counts before it maps zeros. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&sl_guard_cut_count, memory_order_acquire);
}

#endif
