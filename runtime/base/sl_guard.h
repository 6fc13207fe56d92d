/* runtime/base/sl_guard.h - mappings of files that another process may cut short.
 *
 * A page that lies beyond the end of its file is a SIGBUS, which ends the process. Any process of
 * the user can cut the files of shared memory short. So mappings are registered here, and a handler
 * lays zeros over what is missing of one, marks it as cut, and lets the thread go on. Whoever has
 * copied or checked bytes of a mapping asks for its mark afterwards: bytes of one that is not cut
 * are the file's.
 *
 * The handler is set with the first registration, for the whole process and for ever. What is not
 * of a registered mapping goes to the handler that was there before. A handler that the program
 * sets later has to pass on what is not its own, as this one does. Threads must not block SIGBUS:
 * the kernel ends a process whose thread does (sl_signals.h). A system call that meets the hole
 * gives EFAULT. */
#ifndef SL_GUARD_H
#define SL_GUARD_H

#include "runtime/base/sl_base.h"

#include <stdatomic.h>

struct sl_guard; /* of one mapping */

/* Registers [at, at + length_bytes), whole pages of a shared mapping of a file, until it is
 * removed. tells: its cut is counted by sl_guard_cuts. NULL: too many, or no handler; it is not
 * guarded then. */
struct sl_guard *sl_guard_add(void *at, uint64_t length_bytes, bool tells);
/* Before the mapping ends, when nobody uses it any more; accepts NULL, and sets it NULL. */
void sl_guard_remove(struct sl_guard **guard);
/* Whether bytes of it may be zeros that are not the file's; to be asked behind the look at them.
 * NULL: false. */
bool sl_guard_is_cut(const struct sl_guard *guard);

/* For a program that ends when a mapping that tells is cut, before it goes by a zero: called in the
 * handler, so it may do no more than write(2) and _exit; it does not return. NULL: there is none.
 */
extern void (*_Atomic sl_guard_ends)(void);

extern _Atomic uint32_t sl_guard_cut_count;
/* How many registered mappings are cut, of those that tell. Costs a load. */
static inline uint32_t sl_guard_cuts(void)
{
    /* Partner of the handler's count, which comes before its zeros. */
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&sl_guard_cut_count, memory_order_acquire);
}

#endif
