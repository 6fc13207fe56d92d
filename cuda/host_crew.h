/* cuda/host_crew.h - a pool of threads that share a call's tasks with the calling thread; private
 * to cuda/host_*.c. */
#ifndef SL_HOST_CREW_H
#define SL_HOST_CREW_H

#include "runtime/base/sl_error.h"

#define HOST_CREW_MAX 64u

/* Performs task number `task` of the call. worker: 0 for the caller, others from 1 on; unique among
 * running threads. */
typedef void (*host_task_fn)(void *context, uint32_t worker, uint32_t task);

struct host_crew; /* opaque; one thread makes calls */

/* Gives *out, with thread_count (0..HOST_CREW_MAX - 1) threads that sleep until there are tasks.
 * They block signals, and start with the caller's cores and priority. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_OS. */
sl_err host_crew_create(uint32_t thread_count, struct host_crew **out, struct sl_error *why);
/* Accepts NULL. */
void host_crew_destroy(struct host_crew **crew);
uint32_t host_crew_workers(const struct host_crew *crew); /* including the caller */
/* Performs all tasks, in any order and several at a time; returns when the last has ended. A thread
 * that wakes up late finds none left: only threads that have begun are waited for. */
void host_crew_run(struct host_crew *crew, uint32_t task_count, host_task_fn task, void *context);

#endif
