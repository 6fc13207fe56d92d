/* cuda/host_crew.h - threads that do the tasks of a call beside the thread that calls; private to
 * cuda/host_*.c. */
#ifndef SL_HOST_CREW_H
#define SL_HOST_CREW_H

#include "runtime/base/sl_error.h"

#define HOST_CREW_MAX 64u

/* Does task number `task` of the call. worker: 0 the caller, others from 1 on; no two threads have
 * the same number at a time. */
typedef void (*host_task_fn)(void *context, uint32_t worker, uint32_t task);

struct host_crew; /* opaque; one thread calls */

/* Gives *out, with thread_count (0..HOST_CREW_MAX - 1) threads that sleep until there are tasks.
 * They take no signals, and begin with the caller's cores and priority. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err host_crew_create(uint32_t thread_count, struct host_crew **out, struct sl_error *why);
/* Accepts NULL. */
void host_crew_destroy(struct host_crew **crew);
uint32_t host_crew_workers(const struct host_crew *crew); /* with the caller */
/* Does all tasks, in any order and several at a time. Returns when the last is over. A thread that
 * wakes late finds none left: it is waited for only once it has begun. */
void host_crew_run(struct host_crew *crew, uint32_t task_count, host_task_fn task, void *context);

#endif
