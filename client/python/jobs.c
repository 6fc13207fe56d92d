/* client/python/jobs.c - see jobs.h. Jobs are carried out slice by slice, so that several threads
 * share a large one. */
#include "client/python/jobs.h"
#include "runtime/sl_signals.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
/* A slice is what one thread does in one call: large enough that its round trips do not count. */
#define SLICE_KEYS      256u
#define SLICE_BYTES_MIN (4ull << 20)
#define SLICE_BYTES_MAX (32ull << 20)

enum lane { LANE_READS = 0, LANE_WRITES = 1, LANE_COUNT = 2 };
struct list {
    struct py_job *first, *last;
};
struct thread {
    struct py_jobs *jobs;
    pthread_t id;
    enum lane preferred;
    bool alone; /* it takes nothing else: reads go on while all writes wait for an actor */
};
struct py_jobs {
    struct sl_client *client; /* borrowed */
    int fd;
    uint32_t thread_count, depth_max;
    struct thread threads[PY_JOBS_THREADS_MAX];
    pthread_mutex_t lock; /* of all below; held without the interpreter's, and shortly */
    pthread_cond_t work, idle;
    struct list lanes[LANE_COUNT]; /* of which slices are left to be taken */
    struct list ended;
    uint64_t next_id;
    uint32_t pending;
    bool stopping;
};
struct slice {
    struct py_job *job;
    uint32_t first, count;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void list_append(struct list *list, struct py_job *job)
{
    job->next = NULL;
    if (list->last == NULL) {
        list->first = job;
    } else {
        list->last->next = job;
    }
    list->last = job;
}

static void list_shift(struct list *list)
{
    list->first = list->first->next;
    if (list->first == NULL) {
        list->last = NULL;
    }
}

/* ---- what a job does: without the lock ---- */

static void codes_fill(sl_err *codes, uint32_t count, sl_err code)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = code;
    }
}

/* Asks peers for what is missing here. */
static void misses_seek(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                        sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_object_key asked[SLICE_KEYS];
    struct sl_elsewhere found[SLICE_KEYS];
    sl_err answers[SLICE_KEYS];
    uint32_t places[SLICE_KEYS], missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (codes[i] == SL_ERR_NOT_FOUND) {
            asked[missing] = keys[i];
            places[missing++] = i;
        }
    }
    if (missing == 0) {
        return;
    }
    sl_err err = sl_seek_batch(client, asked, missing, found, answers, timeout_ns, why);
    for (uint32_t i = 0; i < missing; i++) {
        codes[places[i]] = err == SL_OK ? answers[i] : err;
    }
}

void sl_py_look(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = sl_exists_batch(client, keys, count, codes);
    if (err != SL_OK) {
        codes_fill(codes, count, err);
        return;
    }
    uint64_t end_ns = now_ns() + timeout_ns;
    for (uint32_t first = 0; first < count && sl_client_has_peers(client); first += SLICE_KEYS) {
        uint32_t share = count - first < SLICE_KEYS ? count - first : SLICE_KEYS;
        uint64_t at_ns = now_ns();
        uint64_t left_ns = timeout_ns == 0 ? 0 : end_ns > at_ns ? end_ns - at_ns : 1;
        misses_seek(client, &keys[first], share, &codes[first], left_ns, why);
    }
}

/* A value that is smaller than its piece left the rest of it as it was: that is no hit. */
static void sizes_check(const struct slice *slice, const uint64_t *lengths, struct sl_error *why)
{
    const struct py_job *job = slice->job;
    for (uint32_t i = 0; i < slice->count; i++) {
        sl_err *code = &job->codes[slice->first + i];
        uint64_t room_bytes = job->pieces[slice->first + i].length_bytes;
        if (*code == SL_OK && lengths[i] != room_bytes) {
            *code = why->code = SL_ERR_LIMIT;
            (void)snprintf(why->text, sizeof why->text,
                           "the value has %" PRIu64 " bytes, the buffer %" PRIu64, lengths[i],
                           room_bytes);
        }
    }
}

static void slice_copy(struct sl_client *client, const struct slice *slice, uint64_t left_ns,
                       struct sl_error *why)
{
    const struct py_job *job = slice->job;
    struct sl_pieces items[SLICE_KEYS];
    uint64_t lengths[SLICE_KEYS] = {0};
    sl_err *codes = &job->codes[slice->first];
    for (uint32_t i = 0; i < slice->count; i++) {
        items[i] = (struct sl_pieces){
            .key = job->keys[slice->first + i], .at = &job->pieces[slice->first + i], .count = 1};
    }
    sl_err err =
        job->kind == PY_JOB_PUT
            ? sl_put_pieces(client, items, slice->count, NULL, codes, left_ns, why)
            : sl_get_pieces(client, items, slice->count, true, lengths, codes, left_ns, why);
    if (err != SL_OK) {
        codes_fill(codes, slice->count, err);
    } else if (job->kind == PY_JOB_GET) {
        sizes_check(slice, lengths, why);
    }
}

static void slice_run(struct sl_client *client, const struct slice *slice, struct sl_error *why)
{
    const struct py_job *job = slice->job;
    sl_err *codes = &job->codes[slice->first];
    uint64_t at_ns = now_ns();
    if (at_ns >= job->deadline_ns) {
        codes_fill(codes, slice->count, SL_ERR_TIMEOUT);
        return;
    }
    uint64_t left_ns = job->deadline_ns - at_ns;
    if (job->kind == PY_JOB_LOOK) {
        sl_py_look(client, &job->keys[slice->first], slice->count, codes, left_ns, why);
    } else if (job->kind == PY_JOB_REMOVE) {
        sl_err err =
            sl_remove_batch(client, &job->keys[slice->first], slice->count, codes, left_ns, why);
        if (err != SL_OK) {
            codes_fill(codes, slice->count, err);
        }
    } else {
        slice_copy(client, slice, left_ns, why);
    }
}

/* ---- queues: with the lock ---- */

static void job_end(struct py_jobs *jobs, struct py_job *job)
{
    const uint64_t one = 1;
    list_append(&jobs->ended, job);
    /* It fails only at 2^64 - 1, when it is readable as well. */
    ssize_t written = write(jobs->fd, &one, sizeof one);
    (void)written;
}

static void slice_settled(struct py_jobs *jobs, struct py_job *job, uint32_t count,
                          const struct sl_error *why)
{
    if (why != NULL && job->why.code == SL_OK) {
        job->why = *why;
    }
    job->settled += count;
    if (job->settled == job->count) {
        jobs->pending--;
        job_end(jobs, job);
        if (jobs->pending == 0) {
            (void)pthread_cond_broadcast(&jobs->idle);
        }
    }
}

/* Ends what nobody has taken of the lane's first job. */
static void first_give_up(struct py_jobs *jobs, enum lane lane, sl_err code)
{
    struct py_job *job = jobs->lanes[lane].first;
    uint32_t left = job->count - job->taken;
    list_shift(&jobs->lanes[lane]);
    codes_fill(&job->codes[job->taken], left, code);
    job->taken = job->count;
    slice_settled(jobs, job, left, NULL);
}

/* Those that wait behind others end by their deadlines, too. */
static void lanes_expire(struct py_jobs *jobs)
{
    uint64_t at_ns = now_ns();
    for (enum lane lane = LANE_READS; lane < LANE_COUNT; lane++) {
        while (jobs->lanes[lane].first != NULL && jobs->lanes[lane].first->deadline_ns <= at_ns) {
            first_give_up(jobs, lane, SL_ERR_TIMEOUT);
        }
    }
}

static bool slice_take(struct py_jobs *jobs, enum lane lane, struct slice *out)
{
    struct py_job *job = jobs->lanes[lane].first;
    if (job == NULL) {
        return false;
    }
    uint64_t bytes = 0;
    *out = (struct slice){.job = job, .first = job->taken};
    while (job->taken < job->count && out->count < SLICE_KEYS) {
        bytes += job->pieces == NULL ? 0 : job->pieces[job->taken].length_bytes;
        if (out->count > 0 && bytes > job->slice_bytes) {
            break;
        }
        out->count++;
        job->taken++;
    }
    if (job->taken == job->count) {
        list_shift(&jobs->lanes[lane]);
    }
    return true;
}

static void *thread_main(void *context)
{
    const struct thread *self = context;
    struct py_jobs *jobs = self->jobs;
    enum lane other = self->preferred == LANE_READS ? LANE_WRITES : LANE_READS;
    struct slice slice;
    (void)pthread_mutex_lock(&jobs->lock);
    while (!jobs->stopping) {
        lanes_expire(jobs);
        if (!slice_take(jobs, self->preferred, &slice) &&
            (self->alone || !slice_take(jobs, other, &slice))) {
            (void)pthread_cond_wait(&jobs->work, &jobs->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&jobs->lock);
        struct sl_error why = {.code = SL_OK};
        slice_run(jobs->client, &slice, &why);
        (void)pthread_mutex_lock(&jobs->lock);
        slice_settled(jobs, slice.job, slice.count, &why);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return NULL;
}

/* ---- life ---- */

static void threads_end(struct py_jobs *jobs)
{
    (void)pthread_mutex_lock(&jobs->lock);
    jobs->stopping = true;
    for (enum lane lane = LANE_READS; lane < LANE_COUNT; lane++) {
        while (jobs->lanes[lane].first != NULL) {
            first_give_up(jobs, lane, SL_ERR_CANCELLED);
        }
    }
    (void)pthread_cond_broadcast(&jobs->work);
    (void)pthread_mutex_unlock(&jobs->lock);
    for (uint32_t i = 0; i < jobs->thread_count; i++) {
        (void)pthread_join(jobs->threads[i].id, NULL);
    }
}

/* Signals are for the threads of the interpreter. */
static sl_err threads_start(struct py_jobs *jobs, uint32_t count, struct sl_error *why)
{
    sigset_t all, before;
    int failed = 0;
    sl_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (failed == 0 && jobs->thread_count < count) {
        struct thread *thread = &jobs->threads[jobs->thread_count];
        bool several = count > 1;
        *thread = (struct thread){
            .jobs = jobs,
            .preferred = several && jobs->thread_count == 0 ? LANE_WRITES : LANE_READS,
            .alone = several && jobs->thread_count == count - 1,
        };
        failed = pthread_create(&thread->id, NULL, thread_main, thread);
        jobs->thread_count += failed == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0 && why != NULL) {
        *why = (struct sl_error){.code = SL_ERR_OS, .os_code = failed, .text = "start a thread"};
    }
    return failed == 0 ? SL_OK : SL_ERR_OS;
}

sl_err sl_py_jobs_create(struct sl_client *client, uint32_t thread_count, uint32_t depth_max,
                         struct py_jobs **out, struct sl_error *why)
{
    if (thread_count < 1 || thread_count > PY_JOBS_THREADS_MAX || depth_max < 1 ||
        depth_max > PY_JOBS_DEPTH_MAX) {
        if (why != NULL) {
            *why = (struct sl_error){.code = SL_ERR_INVALID,
                                     .text = "threads are 1 to 64, depth is 1 to 65536"};
        }
        return SL_ERR_INVALID;
    }
    struct py_jobs *jobs = calloc(1, sizeof *jobs);
    if (jobs == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    pthread_condattr_t monotonic;
    *jobs = (struct py_jobs){.client = client, .depth_max = depth_max};
    (void)pthread_mutex_init(&jobs->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&jobs->work, &monotonic);
    (void)pthread_cond_init(&jobs->idle, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    jobs->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (jobs->fd < 0 && why != NULL) {
        *why = (struct sl_error){.code = SL_ERR_OS, .os_code = errno, .text = "eventfd"};
    }
    sl_err err = jobs->fd < 0 ? SL_ERR_OS : threads_start(jobs, thread_count, why);
    if (err != SL_OK) {
        (void)sl_py_jobs_destroy(&jobs);
        return err;
    }
    *out = jobs;
    return SL_OK;
}

struct py_job *sl_py_jobs_destroy(struct py_jobs **held)
{
    struct py_jobs *jobs = *held;
    *held = NULL;
    if (jobs == NULL) {
        return NULL;
    }
    threads_end(jobs);
    struct py_job *left = jobs->ended.first;
    if (jobs->fd >= 0) {
        (void)close(jobs->fd);
    }
    (void)pthread_cond_destroy(&jobs->idle);
    (void)pthread_cond_destroy(&jobs->work);
    (void)pthread_mutex_destroy(&jobs->lock);
    free(jobs);
    return left;
}

/* ---- for callers ---- */

int sl_py_jobs_fd(const struct py_jobs *jobs)
{
    return jobs->fd;
}

/* So large that every thread has a share of a large job. */
static uint64_t slice_bytes_of(const struct py_job *job, uint32_t thread_count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; job->pieces != NULL && i < job->count; i++) {
        bytes += job->pieces[i].length_bytes;
    }
    bytes = bytes / thread_count + 1;
    return bytes < SLICE_BYTES_MIN   ? SLICE_BYTES_MIN
           : bytes > SLICE_BYTES_MAX ? SLICE_BYTES_MAX
                                     : bytes;
}

uint64_t sl_py_jobs_submit(struct py_jobs *jobs, struct py_job *job)
{
    job->slice_bytes = slice_bytes_of(job, jobs->thread_count);
    job->deadline_ns = now_ns() + job->timeout_ns;
    job->taken = job->settled = 0;
    job->why = (struct sl_error){.code = SL_OK};
    enum lane lane = job->kind == PY_JOB_GET || job->kind == PY_JOB_LOOK ? LANE_READS : LANE_WRITES;
    (void)pthread_mutex_lock(&jobs->lock);
    uint64_t id = ++jobs->next_id;
    job->id = id;
    if (job->count == 0) {
        job_end(jobs, job);
    } else if (jobs->pending >= jobs->depth_max) {
        codes_fill(job->codes, job->count, SL_ERR_LIMIT);
        job_end(jobs, job);
    } else {
        jobs->pending++;
        list_append(&jobs->lanes[lane], job);
        (void)pthread_cond_broadcast(&jobs->work);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return id;
}

struct py_job *sl_py_jobs_drain(struct py_jobs *jobs)
{
    uint64_t count;
    /* Before the list: what ends behind it makes it readable again. */
    ssize_t got = read(jobs->fd, &count, sizeof count);
    (void)got;
    (void)pthread_mutex_lock(&jobs->lock);
    struct py_job *ended = jobs->ended.first;
    jobs->ended = (struct list){.first = NULL};
    (void)pthread_mutex_unlock(&jobs->lock);
    return ended;
}

uint32_t sl_py_jobs_pending(struct py_jobs *jobs)
{
    (void)pthread_mutex_lock(&jobs->lock);
    uint32_t pending = jobs->pending;
    (void)pthread_mutex_unlock(&jobs->lock);
    return pending;
}

bool sl_py_jobs_wait(struct py_jobs *jobs, uint64_t timeout_ns)
{
    uint64_t end_ns = now_ns() + timeout_ns;
    const struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S),
                                 .tv_nsec = (long)(end_ns % NS_PER_S)};
    int failed = 0;
    (void)pthread_mutex_lock(&jobs->lock);
    while (jobs->pending > 0 && failed == 0) {
        failed = pthread_cond_timedwait(&jobs->idle, &jobs->lock, &end);
    }
    bool idle = jobs->pending == 0;
    (void)pthread_mutex_unlock(&jobs->lock);
    return idle;
}
