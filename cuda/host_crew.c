/* cuda/host_crew.c - a pool of threads that share a call's tasks with the calling thread.
 *
 * During a long copy calls follow each other closely, and sleeping threads would wake up too late
 * for each. So after a call all spin for a moment if each has a core: threads for the next call, at
 * most for a share of the time they worked in the last one; the caller for the tasks still
 * running. */
#include "cuda/host_crew.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_signals.h"
#include "runtime/base/sl_spin.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Longest spin: the time of a task, and between two calls of a long copy. */
#define SPIN_NS_MAX (200 * SL_NS_PER_US)
/* A thread spins for at most one part in this number of the time that it has just worked. */
#define SPIN_SHARE 2u
#define LOST_NS    (50 * SL_NS_PER_US)
#define SPIN_POLLS 32u /* polls before a yield */

struct worker {
    struct host_crew *crew;
    uint32_t number; /* from 1 on */
    pthread_t thread;
};

struct host_crew {
    pthread_mutex_t lock; /* for all but next_task and the workers */
    pthread_cond_t work, idle;
    host_task_fn task; /* NULL: no call */
    void *context;
    uint32_t task_count;
    bool ending;
    bool awake; /* each thread has a core; never changes */
    /* All are relaxed: the lock orders what tasks read and write. busy_count and calls change only
     * under the lock, and threads that spin on them look again under it. */
    atomic_uint busy_count; /* threads in the call */
    _Atomic uint64_t calls; /* number of calls so far */
    atomic_uint next_task;  /* of the call */
    uint32_t worker_count;  /* number of threads */
    struct worker workers[HOST_CREW_MAX];
};

static void tasks_do(struct host_crew *crew, uint32_t worker, host_task_fn task, void *context,
                     uint32_t task_count)
{
    for (;;) {
        uint32_t next = atomic_fetch_add_explicit(&crew->next_task, 1, memory_order_relaxed);
        if (next >= task_count) {
            return;
        }
        task(context, worker, next);
    }
}

static bool call_arrived(struct host_crew *crew, uint64_t seen)
{
    return atomic_load_explicit(&crew->calls, memory_order_relaxed) != seen;
}

static bool all_ended(struct host_crew *crew, uint64_t ignored)
{
    (void)ignored;
    return atomic_load_explicit(&crew->busy_count, memory_order_relaxed) == 0;
}

/* Yields the core, for example to the process that makes the next call. False: another process
 * computed for long, so that a sleeping thread would be woken sooner than this one is scheduled
 * again. */
static bool yield_core(uint64_t *now_ns)
{
    uint64_t before_ns = *now_ns;
    (void)sched_yield();
    *now_ns = sl_clock_monotonic_ns();
    return *now_ns - before_ns <= LOST_NS;
}

static void wait_spinning(struct host_crew *crew, uint64_t wait_ns, uint64_t seen,
                          bool (*over)(struct host_crew *crew, uint64_t seen))
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint64_t end_ns = sl_deadline_ns(now_ns, SL_MIN(wait_ns, SPIN_NS_MAX));
    do {
        for (uint32_t i = 0; i < SPIN_POLLS; i++) {
            if (over(crew, seen)) {
                return;
            }
            sl_spin_pause();
        }
    } while (yield_core(&now_ns) && now_ns < end_ns);
}

static void *worker_run(void *context)
{
    const struct worker *self = context;
    struct host_crew *crew = self->crew;
    uint64_t seen = 0; /* the last call that this thread was in */
    (void)pthread_mutex_lock(&crew->lock);
    while (!crew->ending) {
        if (crew->task == NULL || !call_arrived(crew, seen)) {
            (void)pthread_cond_wait(&crew->work, &crew->lock);
            continue;
        }
        host_task_fn task = crew->task;
        void *its = crew->context;
        uint32_t task_count = crew->task_count;
        seen = atomic_load_explicit(&crew->calls, memory_order_relaxed);
        atomic_fetch_add_explicit(&crew->busy_count, 1, memory_order_relaxed);
        (void)pthread_mutex_unlock(&crew->lock);
        uint64_t began_ns = sl_clock_monotonic_ns();
        tasks_do(crew, self->number, task, its, task_count);
        uint64_t worked_ns = sl_clock_monotonic_ns() - began_ns;
        (void)pthread_mutex_lock(&crew->lock);
        if (atomic_fetch_sub_explicit(&crew->busy_count, 1, memory_order_relaxed) == 1) {
            (void)pthread_cond_signal(&crew->idle);
        }
        if (crew->awake) {
            (void)pthread_mutex_unlock(&crew->lock);
            wait_spinning(crew, worked_ns / SPIN_SHARE, seen, call_arrived);
            (void)pthread_mutex_lock(&crew->lock);
        }
    }
    (void)pthread_mutex_unlock(&crew->lock);
    return NULL;
}

sl_err host_crew_create(uint32_t thread_count, struct host_crew **out, struct sl_error *why)
{
    struct host_crew *crew = calloc(1, sizeof(*crew));
    sigset_t all, before;
    if (crew == NULL || thread_count >= HOST_CREW_MAX) {
        free(crew);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u threads", thread_count);
    }
    (void)pthread_mutex_init(&crew->lock, NULL);
    (void)pthread_cond_init(&crew->work, NULL);
    (void)pthread_cond_init(&crew->idle, NULL);
    crew->awake = thread_count + 1 <= sl_spin_cores();
    sl_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int os_code = 0;
    while (crew->worker_count < thread_count && os_code == 0) {
        struct worker *worker = &crew->workers[crew->worker_count];
        *worker = (struct worker){.crew = crew, .number = crew->worker_count + 1};
        os_code = pthread_create(&worker->thread, NULL, worker_run, worker);
        crew->worker_count += os_code == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (os_code != 0) {
        host_crew_destroy(&crew);
        return sl_fail_os(why, os_code, "start %u threads", thread_count);
    }
    *out = crew;
    return SL_OK;
}

void host_crew_destroy(struct host_crew **crew)
{
    if (*crew == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&(*crew)->lock);
    (*crew)->ending = true;
    (void)pthread_cond_broadcast(&(*crew)->work);
    (void)pthread_mutex_unlock(&(*crew)->lock);
    for (uint32_t i = 0; i < (*crew)->worker_count; i++) {
        (void)pthread_join((*crew)->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&(*crew)->work);
    (void)pthread_cond_destroy(&(*crew)->idle);
    (void)pthread_mutex_destroy(&(*crew)->lock);
    free(*crew);
    *crew = NULL;
}

uint32_t host_crew_workers(const struct host_crew *crew)
{
    return crew->worker_count + 1;
}

void host_crew_run(struct host_crew *crew, uint32_t task_count, host_task_fn task, void *context)
{
    uint32_t helpers = task_count > 1 ? SL_MIN(crew->worker_count, task_count - 1) : 0;
    atomic_store_explicit(&crew->next_task, 0, memory_order_relaxed);
    if (helpers == 0) {
        tasks_do(crew, 0, task, context, task_count);
        return;
    }
    (void)pthread_mutex_lock(&crew->lock);
    crew->task = task;
    crew->context = context;
    crew->task_count = task_count;
    atomic_fetch_add_explicit(&crew->calls, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < helpers; i++) {
        (void)pthread_cond_signal(&crew->work);
    }
    (void)pthread_mutex_unlock(&crew->lock);
    tasks_do(crew, 0, task, context, task_count);
    (void)pthread_mutex_lock(&crew->lock);
    crew->task = NULL; /* no other thread joins the call */
    if (crew->awake && !all_ended(crew, 0)) {
        (void)pthread_mutex_unlock(&crew->lock);
        wait_spinning(crew, SPIN_NS_MAX, 0, all_ended);
        (void)pthread_mutex_lock(&crew->lock);
    }
    while (!all_ended(crew, 0)) {
        (void)pthread_cond_wait(&crew->idle, &crew->lock);
    }
    (void)pthread_mutex_unlock(&crew->lock);
}
