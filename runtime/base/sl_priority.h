/* runtime/base/sl_priority.h - priority of this process over processes that use all cores. */
#ifndef SL_PRIORITY_H
#define SL_PRIORITY_H

#include "runtime/base/sl_error.h"

/* Raises the priority of the calling process by up to 20 nice levels; 0: does nothing. Call it
 * before the process has threads: those it makes later inherit the level.
 *
 * The kernel may group processes by session (kernel.sched_autogroup_enabled, sched(7)): a nice
 * level then counts only within the session, and the session has its own level. So the process also
 * becomes the leader of a new session, if it can, and raises the level of that session. A session
 * that it shares with others is left as it is. Signals to its previous group or session no longer
 * reach it. May sleep for a second while other processes raise their levels.
 *
 * Errors: SL_ERR_PERMISSION, if the process may not do so (CAP_SYS_NICE or RLIMIT_NICE allows it);
 * SL_ERR_OS. Anything refused is left unchanged, and the process can continue. */
sl_err sl_priority_raise(uint32_t levels, struct sl_error *why);

/* Time that the first thread of process pid has spent ready to run without a core since it started
 * (second number of /proc/PID/schedstat), including waits for a CPU limit. Errors: SL_ERR_NOT_FOUND
 * (no such process), SL_ERR_UNSUPPORTED (the kernel does not count it). */
sl_err sl_core_wait_ns(uint32_t pid, uint64_t *wait_ns, struct sl_error *why);

#endif
