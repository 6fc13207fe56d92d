/* cuda/host_process.c - plain memory of another process: copied by process_vm_readv and
 * process_vm_writev, many runs per call, with the rights of a debugger. The kernel looks up and
 * copies each page separately, at half the speed of memcpy, so several threads share a call's
 * moves.
 *
 * These calls name the process by its pid. Before each call and after the last read its pidfd shows
 * that it lives, so the bytes read are its own. A write could hit another process only if this one
 * died, was reaped, and its pid was reused within the microsecond between. */
#include "cuda/host_internal.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define BATCH_RUNS 1024u /* IOV_MAX */
/* Bytes of one thread's task, still in the cache when they are hashed. Whole digest chunks. */
#define TASK_BYTES (256 * SL_KIB)
/* Bytes of a call to the kernel, including gaps between runs. */
#define BATCH_BYTES (512 * SL_KIB)

/* Runs this close are read with their gaps and picked out here. A single run takes the kernel 0.4
 * us for looking up its page; in that time it copies 3 KiB. */
#define SPAN_STRIDE_BYTES_MAX 2048u
#define BATCH_SPANS           256u

/* Runs of a piece with their gaps. */
struct span {
    const struct sl_swap_layer *layer;
    unsigned char *to;       /* destination of the first run; the others follow it */
    const unsigned char *at; /* the first run in the batch */
    uint64_t run_count;
};

struct host_batch {
    struct iovec local[BATCH_RUNS], remote[BATCH_RUNS];
    uint32_t local_count, remote_count;
    uint64_t bytes;
    struct span spans[BATCH_SPANS];
    uint32_t span_count;
    uint64_t gathered_bytes; /* bytes of `gathered` in use */
    unsigned char gathered[BATCH_BYTES];
};

static sl_err process_fail(const struct host_process *process, int os_code, struct sl_error *why)
{
    char scope[4] = "?";
    if (os_code == ESRCH) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "process %u is gone", process->pid);
    }
    if (os_code == EFAULT) {
        return sl_fail(why, SL_ERR_STALE,
                       "memory of process %u is not mapped any more, or not writable",
                       process->pid);
    }
    if (os_code != EPERM && os_code != EACCES) {
        return sl_fail_os(why, os_code, "copy memory of process %u", process->pid);
    }
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file == NULL || fgets(scope, sizeof(scope), file) == NULL) {
        strcpy(scope, "-");
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sl_fail(why, SL_ERR_PERMISSION,
                   "process %u may not be copied from: it is another user's or not dumpable, or "
                   "Yama (ptrace_scope %.1s) needs prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) there",
                   process->pid, scope);
}

static bool process_lives(const struct host_process *process)
{
    struct pollfd polled = {.fd = process->pidfd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&polled, 1, 0);
    } while (ready < 0 && errno == EINTR);
    return ready == 0;
}

/* ---- a call ---- */

/* Skips `bytes` bytes of the row. */
static void row_advance(struct iovec **row, uint32_t *count, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t part = SL_MIN(bytes, (uint64_t)(*row)->iov_len);
        (*row)->iov_base = (unsigned char *)(*row)->iov_base + part;
        (*row)->iov_len -= part;
        bytes -= part;
        if ((*row)->iov_len == 0) {
            (*row)++;
            (*count)--;
        }
    }
}

static void spans_pick(struct host_batch *batch)
{
    for (uint32_t i = 0; i < batch->span_count; i++) {
        const struct span *span = &batch->spans[i];
        uint64_t run_bytes = span->layer->fragment_bytes;
        for (uint64_t r = 0; r < span->run_count; r++) {
            memcpy(span->to + r * run_bytes, span->at + r * span->layer->fragment_stride_bytes,
                   run_bytes);
        }
    }
}

/* Sends the batch. A call may end early, between two runs or within one. */
static sl_err batch_send(struct host_batch *batch, const struct host_process *process, bool to_host,
                         struct sl_error *why)
{
    struct iovec *local = batch->local, *remote = batch->remote;
    uint32_t local_count = batch->local_count, remote_count = batch->remote_count;
    uint64_t left_bytes = batch->bytes;
    uint32_t span_count = batch->span_count;
    batch->local_count = batch->remote_count = batch->span_count = 0;
    batch->bytes = batch->gathered_bytes = 0;
    while (left_bytes > 0) {
        if (!process_lives(process)) {
            return process_fail(process, ESRCH, why);
        }
        ssize_t took = to_host ? process_vm_readv((pid_t)process->pid, local, local_count, remote,
                                                  remote_count, 0)
                               : process_vm_writev((pid_t)process->pid, local, local_count, remote,
                                                   remote_count, 0);
        if (took < 0 && errno == EINTR) {
            continue;
        }
        if (took <= 0) {
            return process_fail(process, took < 0 ? errno : EFAULT, why);
        }
        left_bytes -= (uint64_t)took;
        row_advance(&local, &local_count, (uint64_t)took);
        row_advance(&remote, &remote_count, (uint64_t)took);
    }
    if (to_host && !process_lives(process)) {
        return process_fail(process, ESRCH, why);
    }
    batch->span_count = span_count;
    spans_pick(batch);
    batch->span_count = 0;
    return SL_OK;
}

static bool row_join(const struct iovec *row, uint32_t count, const void *at)
{
    return count > 0 && (const unsigned char *)row[count - 1].iov_base + row[count - 1].iov_len ==
                            (const unsigned char *)at;
}

/* Adds a run, merged with the previous one if it continues it. False: it does not fit. */
static bool batch_add(struct host_batch *batch, unsigned char *local, unsigned char *remote,
                      uint64_t length_bytes)
{
    bool joins = row_join(batch->remote, batch->remote_count, remote);
    bool joins_local = row_join(batch->local, batch->local_count, local);
    if (batch->bytes + length_bytes > BATCH_BYTES ||
        (!joins && batch->remote_count == BATCH_RUNS) ||
        (!joins_local && batch->local_count == BATCH_RUNS)) {
        return false;
    }
    if (joins) {
        batch->remote[batch->remote_count - 1].iov_len += length_bytes;
    } else {
        batch->remote[batch->remote_count++] =
            (struct iovec){.iov_base = remote, .iov_len = length_bytes};
    }
    if (joins_local) {
        batch->local[batch->local_count - 1].iov_len += length_bytes;
    } else {
        batch->local[batch->local_count++] =
            (struct iovec){.iov_base = local, .iov_len = length_bytes};
    }
    batch->bytes += length_bytes;
    return true;
}

/* Adds as many whole runs with their gaps as fit. Returns their bytes without gaps; 0: none. */
static uint64_t batch_add_span(struct host_batch *batch, const struct sl_swap_layer *layer,
                               unsigned char *to, unsigned char *remote, uint64_t length_bytes)
{
    uint64_t room_bytes = BATCH_BYTES - SL_MAX(batch->bytes, batch->gathered_bytes);
    uint64_t stride_bytes = layer->fragment_stride_bytes, run_bytes = layer->fragment_bytes;
    if (room_bytes < run_bytes || batch->span_count == BATCH_SPANS) {
        return 0;
    }
    uint64_t runs = SL_MIN(1 + (room_bytes - run_bytes) / stride_bytes, length_bytes / run_bytes);
    uint64_t span_bytes = (runs - 1) * stride_bytes + run_bytes;
    unsigned char *at = batch->gathered + batch->gathered_bytes;
    if (!batch_add(batch, at, remote, span_bytes)) {
        return 0;
    }
    batch->spans[batch->span_count++] =
        (struct span){.layer = layer, .to = to, .at = at, .run_count = runs};
    batch->gathered_bytes += span_bytes;
    return runs * run_bytes;
}

/* Adds some of a piece's remaining bytes; returns how many, 0: none fit. */
static uint64_t batch_add_piece(struct host_batch *batch, const struct sl_swap_layer *layer,
                                const struct sl_swap_cursor *at, unsigned char *local,
                                unsigned char *block, uint64_t length_bytes, bool to_host)
{
    unsigned char *remote = block + at->offset_bytes;
    /* A task may begin or end within a run. */
    bool whole = at->left_bytes == layer->fragment_bytes && length_bytes >= layer->fragment_bytes;
    if (to_host && whole && layer->fragment_bytes != 0 &&
        layer->fragment_stride_bytes <= SPAN_STRIDE_BYTES_MAX) {
        return batch_add_span(batch, layer, local, remote, length_bytes);
    }
    uint64_t run = SL_MIN(SL_MIN(at->left_bytes, length_bytes), BATCH_BYTES - batch->bytes);
    return run > 0 && batch_add(batch, local, remote, run) ? run : 0;
}

/* ---- processes ---- */

/* Creates threads and their buffers when the first process is opened. If the threads cannot be
 * started, the caller works by itself. */
static sl_err crew_make(struct host_device *host, struct sl_error *why)
{
    if (host->crew != NULL) {
        return SL_OK;
    }
    uint32_t wanted = SL_MIN(SL_MAX(host->copy_threads, 1u), HOST_CREW_MAX);
    for (uint32_t i = 0; i < wanted; i++) {
        if (host->batches[i] == NULL) {
            host->batches[i] = calloc(1, sizeof(*host->batches[i]));
        }
        if (host->batches[i] == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for runs");
        }
    }
    sl_err err = host_crew_create(wanted - 1, &host->crew, why);
    err = err == SL_OK ? SL_OK : host_crew_create(0, &host->crew, why);
    host->base.stats.copy_threads = err == SL_OK ? host_crew_workers(host->crew) : 0;
    return err;
}

static sl_err probe_byte(struct host_device *host, const struct host_process *process,
                         unsigned char *at, struct sl_error *why)
{
    unsigned char byte;
    struct host_batch *batch = host->batches[0];
    SL_ASSERT(batch->remote_count == 0);
    (void)batch_add(batch, &byte, at, 1);
    return batch_send(batch, process, true, why);
}

sl_err host_process_open(struct host_device *host, const struct sl_memory_handle *handle,
                         struct sl_mapping *out, struct sl_error *why)
{
    struct sl_proc_id id = {.pid = handle->pid, .start_time = handle->start_time};
    struct host_process process = {.pid = handle->pid, .pidfd = -1};
    uint32_t slot = 0;
    if (id.pid == 0 || id.start_time == 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "memory of process %u: start_time: 0 does not identify a process", id.pid);
    }
    while (slot < host->process_count && host->processes[slot].pidfd >= 0) {
        slot++;
    }
    if (slot == HOST_PROCESSES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "memory of %u processes is in use", HOST_PROCESSES_MAX);
    }
    if (!SL_ARRAY_ROOM(host->processes, host->process_capacity, slot + 1)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for process %u", id.pid);
    }
    sl_err err = crew_make(host, why);
    if (err == SL_OK) {
        err = sl_proc_open(id, &process.pidfd, why);
    }
    if (err == SL_OK) {
        err = probe_byte(host, &process, (unsigned char *)(uintptr_t)handle->offset_bytes, why);
    }
    if (err != SL_OK) {
        if (process.pidfd >= 0) {
            (void)close(process.pidfd);
        }
        return err;
    }
    host->processes[slot] = process;
    host->process_count = SL_MAX(host->process_count, slot + 1);
    *out = (struct sl_mapping){.remote = slot + 1};
    return SL_OK;
}

void host_process_close(struct host_device *host, uint32_t number)
{
    SL_ASSERT(number > 0 && number <= host->process_count);
    struct host_process *process = &host->processes[number - 1];
    (void)close(process->pidfd);
    process->pidfd = -1;
}

void host_processes_close(struct host_device *host)
{
    for (uint32_t i = 0; i < host->process_count; i++) {
        if (host->processes[i].pidfd >= 0) {
            (void)close(host->processes[i].pidfd);
        }
    }
    host_crew_destroy(&host->crew);
    for (uint32_t i = 0; i < HOST_CREW_MAX; i++) {
        free(host->batches[i]);
    }
    free(host->processes);
    free(host->hashes);
}

static const struct host_process *process_of(const struct host_device *host, uint32_t number,
                                             struct sl_error *why)
{
    if (number > host->process_count || host->processes[number - 1].pidfd < 0) {
        (void)sl_fail(why, SL_ERR_INVALID, "memory of process number %u is not open", number);
        return NULL;
    }
    return &host->processes[number - 1];
}

sl_err host_process_probe(struct host_device *host, const struct sl_layer_table *table,
                          struct sl_error *why)
{
    const struct host_process *process = process_of(host, table->remote, why);
    sl_err err = process == NULL ? SL_ERR_INVALID : SL_OK;
    for (uint32_t l = 0; err == SL_OK && l < table->layer_count; l++) {
        const struct sl_swap_layer *layer = &table->layers[l];
        struct sl_swap_cursor last = sl_swap_cursor_of(layer, layer->piece_bytes - 1);
        unsigned char *ends[] = {layer->base, layer->base +
                                                  (table->block_count - 1) * layer->stride_bytes +
                                                  last.offset_bytes};
        for (unsigned i = 0; err == SL_OK && i < 2; i++) {
            err = probe_byte(host, process, ends[i], why);
            if (err == SL_ERR_STALE) {
                err = sl_fail(why, SL_ERR_STALE, "layer %u: process %u has no memory at %p", l,
                              process->pid, (void *)ends[i]);
            }
        }
    }
    return err;
}

/* ---- moves ---- */

/* Moves of the same layers, cut into tasks: some whole moves, or some of the bytes of one. */
struct moves_call {
    struct host_device *host;
    const struct host_process *process;
    const struct sl_layer_table *table;
    const struct sl_plan_range *range;
    struct sl_move *moves;
    uint32_t count;
    bool to_host, digests;
    uint32_t moves_per_task; /* 0: a move has several tasks */
    uint32_t tasks_per_move; /* in that case; `done` of a move counts its successful tasks */
    uint64_t *hashes;        /* in that case, with digests: of the moves' chunks */
    pthread_mutex_t lock;    /* for the fields below */
    sl_err err;              /* the first error */
    struct sl_error why;
};

/* Copies bytes [from, end) of a move's range. Sends full batches to make room. */
static sl_err move_add(const struct moves_call *call, struct host_batch *batch,
                       const struct sl_move *move, uint64_t from, uint64_t end,
                       struct sl_error *why)
{
    const struct sl_plan_range *range = call->range;
    for (uint32_t l = range->first_layer; l < range->layer_end && from < end; l++) {
        const struct sl_swap_layer *layer = &call->table->layers[l];
        uint64_t layer_from = layer->value_offset_bytes - range->offset_bytes;
        uint64_t layer_end = SL_MIN(layer_from + layer->piece_bytes, end);
        unsigned char *block = layer->base + move->device_block * layer->stride_bytes;
        while (from < layer_end) {
            struct sl_swap_cursor at = sl_swap_cursor_of(layer, from - layer_from);
            uint64_t taken =
                batch_add_piece(batch, layer, &at, move->host + range->offset_bytes + from, block,
                                layer_end - from, call->to_host);
            from += taken;
            if (taken == 0) {
                sl_err err = batch_send(batch, call->process, call->to_host, why);
                if (err != SL_OK) {
                    return err;
                }
            }
        }
    }
    return SL_OK;
}

/* Digests moves whose bytes are still in the cache. */
static void moves_digest(const struct moves_call *call, uint32_t first, uint32_t next)
{
    for (uint32_t i = first; i < next; i++) {
        struct sl_move *move = &call->moves[i];
        if (call->digests) {
            move->digest =
                sl_digest_of(move->host + call->range->offset_bytes, call->range->length_bytes);
        }
        move->done = 1;
    }
}

static void chunks_digest(const struct moves_call *call, uint32_t i, uint64_t from, uint64_t end)
{
    const unsigned char *value = call->moves[i].host + call->range->offset_bytes;
    uint64_t chunks = sl_digest_chunks(call->range->length_bytes);
    for (uint64_t at = from; call->digests && at < end; at += SL_DIGEST_CHUNK_BYTES) {
        call->hashes[i * chunks + at / SL_DIGEST_CHUNK_BYTES] =
            sl_digest_chunk(value + at, SL_MIN(end - at, (uint64_t)SL_DIGEST_CHUNK_BYTES));
    }
    (void)__atomic_fetch_add(&call->moves[i].done, 1, __ATOMIC_RELAXED); /* read after all tasks */
}

static bool call_failed(struct moves_call *call, sl_err err, const struct sl_error *why)
{
    (void)pthread_mutex_lock(&call->lock);
    if (err != SL_OK && call->err == SL_OK) {
        call->err = err;
        call->why = *why;
    }
    bool failed = call->err != SL_OK;
    (void)pthread_mutex_unlock(&call->lock);
    return failed;
}

static void moves_task(void *context, uint32_t worker, uint32_t task)
{
    struct moves_call *call = context;
    struct host_batch *batch = call->host->batches[worker];
    struct sl_error why = {0};
    sl_err err = SL_OK;
    uint64_t length = call->range->length_bytes;
    if (call_failed(call, SL_OK, NULL)) {
        return;
    }
    if (call->moves_per_task == 0) {
        uint32_t i = task / call->tasks_per_move;
        uint64_t from = task % call->tasks_per_move * TASK_BYTES;
        uint64_t end = SL_MIN(from + TASK_BYTES, length);
        err = move_add(call, batch, &call->moves[i], from, end, &why);
        err = err == SL_OK ? batch_send(batch, call->process, call->to_host, &why) : err;
        if (err == SL_OK) {
            chunks_digest(call, i, from, end);
        }
    } else {
        uint32_t first = task * call->moves_per_task;
        uint32_t next = SL_MIN(first + call->moves_per_task, call->count);
        for (uint32_t i = first; err == SL_OK && i < next; i++) {
            err = move_add(call, batch, &call->moves[i], 0, length, &why);
        }
        err = err == SL_OK ? batch_send(batch, call->process, call->to_host, &why) : err;
        if (err == SL_OK) {
            moves_digest(call, first, next);
        }
    }
    (void)call_failed(call, err, &why);
}

/* Completes moves with several tasks. */
static void moves_complete(const struct moves_call *call)
{
    uint64_t chunks = sl_digest_chunks(call->range->length_bytes);
    for (uint32_t i = 0; i < call->count; i++) {
        struct sl_move *move = &call->moves[i];
        move->done = move->done == call->tasks_per_move;
        if (call->digests && move->done != 0) {
            move->digest = sl_digest_of_chunks(&call->hashes[i * chunks], chunks);
        }
    }
}

sl_err host_process_move(struct host_device *host, const struct sl_layer_table *table,
                         const struct sl_plan_range *range, struct sl_move *moves, uint32_t count,
                         bool to_host, bool digests, struct sl_error *why)
{
    struct moves_call call = {.host = host,
                              .process = process_of(host, table->remote, why),
                              .table = table,
                              .range = range,
                              .moves = moves,
                              .count = count,
                              .to_host = to_host,
                              .digests = digests,
                              .lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t length = range->length_bytes;
    if (call.process == NULL) {
        return SL_ERR_INVALID;
    }
    if (length <= TASK_BYTES) {
        call.moves_per_task = (uint32_t)(TASK_BYTES / length);
        host_crew_run(host->crew, (count + call.moves_per_task - 1) / call.moves_per_task,
                      moves_task, &call);
    } else {
        uint64_t hash_count = digests ? count * sl_digest_chunks(length) : 0;
        if (!SL_ARRAY_ROOM(host->hashes, host->hash_capacity, hash_count)) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " hashes", hash_count);
        }
        call.hashes = host->hashes;
        call.tasks_per_move = (uint32_t)((length + TASK_BYTES - 1) / TASK_BYTES);
        host_crew_run(host->crew, count * call.tasks_per_move, moves_task, &call);
        moves_complete(&call);
    }
    (void)pthread_mutex_destroy(&call.lock);
    if (call.err != SL_OK && why != NULL) {
        *why = call.why;
    }
    return call.err;
}

/* The fewest bytes of a piece to add at a time: a run read with gaps is added as a whole. */
static uint64_t piece_step(const struct sl_swap_layer *layer)
{
    bool spans =
        layer->fragment_bytes != 0 && layer->fragment_stride_bytes <= SPAN_STRIDE_BYTES_MAX;
    return spans ? layer->fragment_bytes : 1;
}

sl_err host_process_digest(struct host_device *host, const struct sl_layer_table *table,
                           const struct sl_plan_range *range, struct sl_move *move,
                           struct sl_error *why)
{
    const struct host_process *process = process_of(host, table->remote, why);
    struct host_batch *batch = host->batches[0]; /* only the caller digests */
    struct sl_digest_stream stream;
    uint64_t held_bytes = 0; /* bytes in the staging */
    if (process == NULL) {
        return SL_ERR_INVALID;
    }
    sl_digest_start(&stream);
    for (uint32_t l = range->first_layer; l < range->layer_end; l++) {
        const struct sl_swap_layer *layer = &table->layers[l];
        unsigned char *block = layer->base + move->device_block * layer->stride_bytes;
        for (uint64_t in_piece = 0; in_piece < layer->piece_bytes;) {
            struct sl_swap_cursor at = sl_swap_cursor_of(layer, in_piece);
            uint64_t some = SL_MIN(layer->piece_bytes - in_piece, host->half_bytes - held_bytes);
            uint64_t taken = some < piece_step(layer)
                                 ? 0
                                 : batch_add_piece(batch, layer, &at, host->staging + held_bytes,
                                                   block, some, true);
            in_piece += taken;
            held_bytes += taken;
            if (taken > 0) {
                continue;
            }
            sl_err err = batch_send(batch, process, true, why);
            if (err != SL_OK) {
                return err;
            }
            sl_digest_feed(&stream, host->staging, held_bytes);
            held_bytes = 0;
        }
    }
    sl_err err = batch_send(batch, process, true, why);
    if (err == SL_OK) {
        sl_digest_feed(&stream, host->staging, held_bytes);
        move->digest = sl_digest_finish(&stream);
    }
    return err;
}
