/* runtime/base/sl_priority.h - how soon this process gets a core beside processes that use all of
 * them.
 */
#ifndef SL_PRIORITY_H
#define SL_PRIORITY_H

#include "runtime/base/sl_error.h"

/* Raises the priority of the calling process by levels (0: nothing happens; at most 20) nice
 * levels. Call it before the process has threads: those it makes later inherit the level.
 *
 * The kernel may group processes by session (kernel.sched_autogroup_enabled, sched(7)): a nice
 * level then counts within the session alone, and the session has a level of its own. So the
 * process also becomes the leader of a session of its own, where it can, and raises the level of
 * that session; a session that others share stays as it is. Signals to the group or session that it
 * was in do not reach it any more. May sleep for a second while others raise theirs.
 *
 * Errors: SL_ERR_PERMISSION, when the process may not do so (CAP_SYS_NICE and RLIMIT_NICE allow
 * it); SL_ERR_OS. What was refused is as it was before, and the process can go on. */
sl_err sl_priority_raise(uint32_t levels, struct sl_error *why);

/* How long the first thread of process pid has been ready to run and had no core, since it started
 * (the second number of /proc/PID/schedstat); a CPU limit counts, too. Errors: SL_ERR_NOT_FOUND (no
 * such process), SL_ERR_UNSUPPORTED (the kernel does not count it). */
sl_err sl_core_wait_ns(uint32_t pid, uint64_t *wait_ns, struct sl_error *why);

#endif
