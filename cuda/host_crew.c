/* cuda/host_crew.c - threads that do the tasks of a call beside the thread that calls. */
#include "cuda/host_crew.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct worker {
    struct host_crew *crew;
    uint32_t number; /* from 1 on */
    pthread_t thread;
};

struct host_crew {
    pthread_mutex_t lock; /* of all but next_task and the workers */
    pthread_cond_t work, idle;
    host_task_fn task; /* NULL: there is no call */
    void *context;
    uint32_t task_count;
    uint32_t busy_count; /* threads in the call */
    uint64_t calls;      /* so far */
    bool ending;
    atomic_uint next_task; /* of the call; relaxed: the lock orders what tasks read and write */
    uint32_t worker_count; /* threads */
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

static void *worker_run(void *context)
{
    const struct worker *self = context;
    struct host_crew *crew = self->crew;
    uint64_t seen = 0; /* the last call that this thread was in */
    (void)pthread_mutex_lock(&crew->lock);
    while (!crew->ending) {
        if (crew->task == NULL || crew->calls == seen) {
            (void)pthread_cond_wait(&crew->work, &crew->lock);
            continue;
        }
        host_task_fn task = crew->task;
        void *its = crew->context;
        uint32_t task_count = crew->task_count;
        seen = crew->calls;
        crew->busy_count++;
        (void)pthread_mutex_unlock(&crew->lock);
        tasks_do(crew, self->number, task, its, task_count);
        (void)pthread_mutex_lock(&crew->lock);
        if (--crew->busy_count == 0) {
            (void)pthread_cond_signal(&crew->idle);
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
    (void)sigfillset(&all);
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
    crew->calls++;
    for (uint32_t i = 0; i < helpers; i++) {
        (void)pthread_cond_signal(&crew->work);
    }
    (void)pthread_mutex_unlock(&crew->lock);
    tasks_do(crew, 0, task, context, task_count);
    (void)pthread_mutex_lock(&crew->lock);
    crew->task = NULL; /* nobody else comes in */
    while (crew->busy_count > 0) {
        (void)pthread_cond_wait(&crew->idle, &crew->lock);
    }
    (void)pthread_mutex_unlock(&crew->lock);
}
