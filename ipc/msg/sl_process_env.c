/* ipc/msg/sl_process_env.c - the real environment: sending, watching, killing, helper threads,
 * random numbers. */
#include "ipc/msg/process_internal.h"
#include "ipc/shm/sl_pins.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct sl_process *process_of(struct sl_env *env)
{
    return (struct sl_process *)env;
}

static sl_err env_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                       bool reply)
{
    struct sl_process *process = process_of(env);
    sl_err err = sl_mailbox_send(process->mailbox, to, frame, length_bytes, reply);
    sl_metric metric = process->counters.sent;
    if (err == SL_ERR_LIMIT) {
        metric = process->counters.limited;
    } else if (err != SL_OK) {
        metric = process->counters.unreachable;
    }
    sl_metric_add(env->metrics, metric, 1);
    return err;
}

static void env_wake_at(struct sl_env *env, uint64_t at_ns)
{
    struct sl_process *process = process_of(env);
    process->tick_at_ns = SL_MIN(process->tick_at_ns, at_ns);
}

static void fd_ready(void *context, int fd, uint32_t events)
{
    struct sl_process *process = context;
    (void)fd;
    (void)events;
    process->tick_at_ns = 0; /* before the next wait */
}

static sl_err env_watch_fd(struct sl_env *env, int fd, struct sl_error *why)
{
    struct sl_process *process = process_of(env);
    return sl_loop_fd_add(process->loop, fd, SL_LOOP_READ, fd_ready, process, why);
}

static void env_unwatch_fd(struct sl_env *env, int fd)
{
    sl_loop_fd_remove(process_of(env)->loop, fd);
}

/* ---- processes ---- */

static struct sl_process_watch *watch_find(struct sl_process *process, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < process->watch_count; i++) {
        if (sl_proc_id_equal(process->watches[i].proc, proc)) {
            return &process->watches[i];
        }
    }
    return NULL;
}

static void watch_forget(struct sl_process *process, struct sl_process_watch *watch)
{
    sl_auto_close(&watch->pins_fd);
    *watch = process->watches[--process->watch_count];
}

static void watch_died(void *context, struct sl_proc_id proc)
{
    struct sl_process *process = context;
    struct sl_process_watch *watch = watch_find(process, proc);
    if (watch == NULL) {
        return;
    }
    struct sl_msg msg = {.type = SL_MSG_LOCAL_DIED};
    msg.body.local_died.cookie = watch->cookie;
    msg.body.local_died.pid = proc.pid;
    msg.body.local_died.start_time = proc.start_time;
    watch_forget(process, watch);
    sl_process_dispatch(process, &msg);
}

void sl_process_clients_look(struct sl_process *process, uint64_t now_ns)
{
    process->clients_at_ns = SL_NEVER_NS;
    for (uint32_t i = process->watch_count; i-- > 0;) {
        if (i >= process->watch_count) { /* the callback has removed others */
            continue;
        }
        struct sl_process_watch *watch = &process->watches[i];
        if (!sl_proc_id_is_client(watch->proc)) {
            continue;
        }
        process->clients_at_ns = sl_clock_next_ns(now_ns, SL_PROCESS_CLIENTS_NS);
        if (sl_client_state(process->paths.shm_dir, watch->proc, &watch->pins_fd) ==
            SL_CLIENT_GONE) {
            watch_died(process, watch->proc);
        }
    }
}

static sl_err env_watch(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie)
{
    struct sl_process *process = process_of(env);
    struct sl_process_watch *watch = watch_find(process, proc);
    if (watch != NULL) {
        watch->cookie = cookie;
        return SL_OK;
    }
    if (process->watch_count == process->watch_count_max) {
        return SL_ERR_LIMIT;
    }
    struct sl_process_watch fresh = {.proc = proc, .cookie = cookie, .pins_fd = -1};
    if (sl_proc_id_is_client(proc)) {
        process->clients_at_ns = 0;
    } else {
        sl_err err = sl_loop_process_watch(process->loop, proc, watch_died, process, NULL);
        if (err != SL_OK) {
            return err;
        }
    }
    process->watches[process->watch_count++] = fresh;
    return SL_OK;
}

static void env_unwatch(struct sl_env *env, struct sl_proc_id proc)
{
    struct sl_process *process = process_of(env);
    struct sl_process_watch *watch = watch_find(process, proc);
    if (watch != NULL && !sl_proc_id_is_client(proc)) {
        sl_loop_process_unwatch(process->loop, proc);
    }
    if (watch != NULL) {
        watch_forget(process, watch);
    }
}

static enum sl_client_state client_life(struct sl_process *process, struct sl_proc_id proc)
{
    struct sl_process_watch *watch = watch_find(process, proc);
    int fd = -1;
    if (watch != NULL) {
        return sl_client_state(process->paths.shm_dir, proc, &watch->pins_fd);
    }
    enum sl_client_state life = sl_client_state(process->paths.shm_dir, proc, &fd);
    sl_auto_close(&fd);
    return life;
}

static bool env_alive(struct sl_env *env, struct sl_proc_id proc)
{
    if (sl_proc_id_is_client(proc)) {
        return client_life(process_of(env), proc) != SL_CLIENT_GONE;
    }
    return proc.pid != 0 && sl_proc_alive(proc); /* if it cannot be determined it counts as alive */
}

static bool env_locked(struct sl_env *env, struct sl_proc_id proc)
{
    return !sl_proc_id_is_client(proc) || client_life(process_of(env), proc) == SL_CLIENT_LIVES;
}

static void env_kill(struct sl_env *env, struct sl_proc_id proc)
{
    int fd = -1;
    (void)env;
    /* By pidfd, so that the pid cannot become another process between check and signal. */
    if (sl_proc_open(proc, &fd, NULL) == SL_OK) {
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
        (void)close(fd);
    }
}

/* ---- helper threads ---- */

static void *job_thread(void *context)
{
    const struct sl_process_job_thread *thread = context;
    struct sl_process_job *job = thread->job;
    struct sl_process *process = job->process;
    sl_err err = job->run(job->context, thread->number);
    (void)pthread_mutex_lock(&process->jobs_lock);
    if (err != SL_OK && (job->result == SL_OK || thread->number < job->failed_thread)) {
        job->result = err;
        job->failed_thread = thread->number;
    }
    job->running_count--;
    if (job->running_count == 0) {
        /* Under the lock: the loop exists as long as a job counts as running. */
        sl_loop_wake(process->loop);
    }
    (void)pthread_mutex_unlock(&process->jobs_lock);
    return NULL;
}

static bool job_is_over(struct sl_process *process, struct sl_process_job *job)
{
    (void)pthread_mutex_lock(&process->jobs_lock);
    bool over = job->used && job->running_count == 0;
    (void)pthread_mutex_unlock(&process->jobs_lock);
    return over;
}

/* Joins threads that have done all but return, and frees the slot. */
static void job_release(struct sl_process_job *job)
{
    for (uint32_t i = 0; i < job->thread_count; i++) {
        (void)pthread_join(job->threads[i].thread, NULL);
    }
    job->used = false;
}

void sl_process_jobs_collect(void *context)
{
    struct sl_process *process = context;
    for (uint32_t i = 0; i < SL_PROCESS_JOBS_MAX; i++) {
        struct sl_process_job *job = &process->jobs[i];
        if (!job_is_over(process, job)) {
            continue;
        }
        job_release(job);
        struct sl_msg msg = {.type = SL_MSG_LOCAL_JOB, .code = job->result};
        msg.body.local_job.cookie = job->cookie;
        sl_process_dispatch(process, &msg);
    }
}

bool sl_process_jobs_end(struct sl_process *process)
{
    uint64_t deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), SL_PROCESS_JOB_END_NS);
    bool ended = true;
    for (uint32_t i = 0; process->jobs != NULL && i < SL_PROCESS_JOBS_MAX; i++) {
        struct sl_process_job *job = &process->jobs[i];
        while (job->used && !job_is_over(process, job) && sl_clock_monotonic_ns() < deadline_ns) {
            const struct timespec pause = {.tv_nsec = (long)SL_NS_PER_MS};
            (void)nanosleep(&pause, NULL);
        }
        if (job_is_over(process, job)) {
            job_release(job);
        }
        ended = ended && !job->used;
    }
    return ended;
}

/* Starts the threads. If one does not start, the others continue. */
static sl_err job_start(struct sl_process_job *job, uint32_t thread_count)
{
    struct sl_process *process = job->process;
    sl_err err = SL_OK;
    (void)pthread_mutex_lock(
        &process->jobs_lock); /* no thread counts down before all are counted */
    for (uint32_t i = 0; i < thread_count; i++) {
        struct sl_process_job_thread *thread = &job->threads[i];
        *thread = (struct sl_process_job_thread){.job = job, .number = i};
        int os_code = pthread_create(&thread->thread, NULL, job_thread, thread);
        if (os_code != 0) {
            struct sl_error why = {0};
            err = sl_fail_os(&why, os_code, "start helper thread %u of %u", i + 1, thread_count);
            sl_log_write(process->env.log, SL_LOG_WARN, 0, "job runs with fewer threads: %s",
                         why.text);
            break;
        }
        job->thread_count++;
        job->running_count++;
    }
    (void)pthread_mutex_unlock(&process->jobs_lock);
    return job->thread_count > 0 ? SL_OK : err;
}

static sl_err env_job(struct sl_env *env, uint32_t thread_count,
                      sl_err (*run)(void *context, uint32_t thread), void *context, uint64_t cookie)
{
    struct sl_process *process = process_of(env);
    struct sl_process_job *job = NULL;
    if (thread_count == 0 || thread_count > SL_PROCESS_JOB_THREADS_MAX) {
        return SL_ERR_INVALID;
    }
    for (uint32_t i = 0; i < SL_PROCESS_JOBS_MAX && job == NULL; i++) {
        job = process->jobs[i].used ? NULL : &process->jobs[i];
    }
    if (job == NULL) {
        return SL_ERR_LIMIT;
    }
    *job = (struct sl_process_job){
        .process = process, .run = run, .context = context, .cookie = cookie, .used = true};
    sl_err err = job_start(job, thread_count);
    job->used = err == SL_OK;
    return err;
}

static uint64_t env_random_u64(struct sl_env *env)
{
    uint64_t value = 0;
    (void)env;
    /* Eight bytes are returned completely once the kernel's pool is ready, long before a node
     * starts. */
    ssize_t got = getrandom(&value, sizeof(value), 0);
    SL_ASSERT(got == (ssize_t)sizeof(value));
    return value;
}

static uint64_t env_wall_ns(struct sl_env *env)
{
    (void)env;
    return sl_clock_wall_ns();
}

static void env_finish(struct sl_env *env)
{
    struct sl_process *process = process_of(env);
    process->finished = true;
    sl_loop_stop(process->loop);
}

const struct sl_env_ops sl_process_env_ops = {
    .send = env_send,
    .wake_at = env_wake_at,
    .watch = env_watch,
    .unwatch = env_unwatch,
    .alive = env_alive,
    .locked = env_locked,
    .kill = env_kill,
    .disk_open = sl_process_disk_open,
    .job = env_job,
    .watch_fd = env_watch_fd,
    .unwatch_fd = env_unwatch_fd,
    .random_u64 = env_random_u64,
    .wall_ns = env_wall_ns,
    .finish = env_finish,
};
