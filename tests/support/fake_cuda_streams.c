/* tests/support/fake_cuda_streams.c - the fake driver's streams, events, kernels and copies.
 * Asynchronous work runs when a caller waits for it. */
#include "tests/support/fake_cuda_internal.h"

#include <stdlib.h>
#include <string.h>

static struct stream *streams;

/* ---- streams and events ---- */

void fake_streams_end(void)
{
    while (streams != NULL) {
        struct stream *gone = streams;
        streams = gone->next;
        fake_state.undone -= gone->count - gone->begun;
        free(gone->ops);
        free(gone);
    }
}

static void op_run(const struct op *op)
{
    switch (op->kind) {
    case COPY:
        memcpy((void *)op->to, (const void *)op->from, op->length);
        break;
    case FILL:
        memset((void *)op->to, (int)op->from, op->length);
        break;
    case EVENT:
        fake_event_reached((struct fake_event_page *)op->to, op->length);
        break;
    case SWAP_OUT:
    case SWAP_IN:
        for (uint64_t worker = 0; worker < op->workers; worker++) {
            if (op->kind == SWAP_OUT) {
                sl_gather_body(&op->job.swap, worker, op->workers);
            } else {
                sl_scatter_body(&op->job.swap, worker, op->workers);
            }
        }
        break;
    case HASH:
        for (uint64_t i = 0; i < op->job.swap.block_count * op->job.value_chunks; i++) {
            struct sl_hash_chunk chunk = sl_hash_locate(&op->job, i);
            uint64_t sum = 0;
            for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
                sum += sl_hash_chunk_term(&chunk, term);
            }
            op->job.hashes[i] = sl_hash_chunk_finish(chunk.length_bytes, sum);
        }
        break;
    case HASH_RUNS:
        for (uint64_t i = 0; i < op->job.swap.block_count * op->job.value_chunks; i++) {
            uint32_t length = 0;
            uint64_t sum = 0;
            for (uint32_t term = 0; term < SL_HASH_TERMS; term++) {
                sum += sl_hash_runs_chunk(&op->job, i, term, &length);
            }
            op->job.hashes[i] = sl_hash_chunk_finish(length, sum);
        }
        break;
    }
}

uint64_t fake_stream_end(const struct stream *stream)
{
    return stream->dropped + stream->count;
}

bool fake_stream_done(const struct stream *stream, uint64_t upto)
{
    return stream->dropped + stream->begun >= upto;
}

void fake_stream_run(struct stream *stream, uint64_t upto)
{
    while (!fake_stream_done(stream, upto)) {
        op_run(&stream->ops[stream->begun++]);
        fake_state.undone--;
    }
    if (stream->begun == stream->count) {
        stream->dropped += stream->count;
        stream->begun = stream->count = 0;
    }
}

struct op *fake_stream_add(struct stream *stream)
{
    static struct op recorded; /* for captures: discarded */
    if (fake_captured(stream)) {
        recorded = (struct op){0};
        return &recorded;
    }
    if (stream->ops == NULL || stream->count == stream->capacity) {
        stream->capacity = stream->capacity == 0 ? 64 : 2 * stream->capacity;
        stream->ops = realloc(stream->ops, stream->capacity * sizeof(*stream->ops));
        if (stream->ops == NULL) {
            abort();
        }
    }
    fake_state.undone++;
    stream->ops[stream->count] = (struct op){0};
    return &stream->ops[stream->count++];
}

sl_cu_result fake_stream_create(sl_cu_stream *out, unsigned flags, int priority)
{
    TAKES();
    if (!fake_current || flags != SL_CU_STREAM_NON_BLOCKING) {
        return SL_CU_INVALID_VALUE;
    }
    fake_state.streams++;
    fake_state.stream_priority = priority;
    struct stream *stream = calloc(1, sizeof(*stream));
    stream->next = streams;
    streams = stream;
    *out = stream;
    return 0;
}

sl_cu_result fake_stream_destroy(sl_cu_stream at)
{
    GIVES();
    struct stream *stream = at;
    struct stream **link = &streams;
    while (*link != NULL && *link != stream) {
        link = &(*link)->next;
    }
    if (*link == NULL) { /* it ended with its context */
        return SL_CU_INVALID_VALUE;
    }
    *link = stream->next;
    if (fake_state.stuck == 0) {
        fake_stream_run(stream, fake_stream_end(stream));
    }
    fake_state.undone -= stream->count - stream->begun;
    free(stream->ops);
    free(stream);
    fake_state.streams--;
    return result;
}

sl_cu_result fake_stream_wait(sl_cu_stream at)
{
    TAKES();
    struct stream *stream = at;
    fake_hang();
    fake_stream_run(stream, fake_stream_end(stream));
    return 0;
}

sl_cu_result fake_event_create(sl_cu_event *out, unsigned flags)
{
    TAKES();
    if (!fake_current ||
        ((flags & SL_CU_EVENT_INTERPROCESS) != 0 && (flags & SL_CU_EVENT_NO_TIMING) == 0)) {
        return SL_CU_INVALID_VALUE;
    }
    struct event *event = fake_event_new();
    if ((flags & SL_CU_EVENT_INTERPROCESS) != 0) {
        event->page = fake_event_page_make();
    }
    *out = event;
    return 0;
}

sl_cu_result fake_event_destroy(sl_cu_event at)
{
    GIVES();
    return fake_event_end(at) ? result : SL_CU_INVALID_VALUE;
}

sl_cu_result fake_event_record(sl_cu_event at, sl_cu_stream stream)
{
    TAKES();
    struct event *event = at;
    if (event->imported) {
        return SL_CU_NOT_SUPPORTED; /* the real driver supports it; no code here uses it */
    }
    fake_event_recorded(event, stream);
    bool dry = true;
    for (const struct stream *other = streams; other != NULL; other = other->next) {
        dry &= other == stream || fake_stream_done(other, fake_stream_end(other));
    }
    fake_state.dry += dry;
    event->queries = 0;
    event->stream = stream;
    event->upto = fake_stream_end(stream);
    return 0;
}

sl_cu_result fake_event_wait(sl_cu_event at)
{
    TAKES();
    struct event *event = at;
    if (event->stream != NULL) {
        fake_hang();
        fake_stream_run(event->stream, event->upto);
        event->stream = NULL;
    }
    return 0;
}

/* ---- kernels ---- */

sl_cu_result fake_launch(sl_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, sl_cu_stream stream, void **parameters,
                         void **extra)
{
    TAKES();
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x != SL_KERNEL_THREADS || block_y != 1 ||
        block_z != 1 || shared_bytes != 0 || extra != NULL) {
        return SL_CU_INVALID_VALUE;
    }
    if (fake_state.foreign_context) {
        return fake_state.stuck = SL_CU_ILLEGAL_ADDRESS;
    }
    struct op *op = fake_stream_add(stream);
    op->workers = (uint64_t)grid_x * block_x;
    bool runs = strcmp(function, SL_KERNEL_HASH_RUNS) == 0;
    if (runs || strcmp(function, SL_KERNEL_HASH) == 0) {
        op->kind = runs ? HASH_RUNS : HASH;
        memcpy(&op->job, parameters[0], sizeof(op->job));
    } else {
        op->kind = strcmp(function, SL_KERNEL_GATHER) == 0 ? SWAP_OUT : SWAP_IN;
        memcpy(&op->job.swap, parameters[0], sizeof(op->job.swap));
    }
    fake_state.launches++;
    fake_state.grid_max = SL_MAX(fake_state.grid_max, grid_x);
    return 0;
}

/* ---- copies ---- */

static sl_cu_result copy_add(sl_cu_stream stream, uintptr_t to, uintptr_t from, size_t length,
                             bool to_host)
{
    if (fake_range_of(to, length, to_host) == NULL ||
        fake_range_of(from, length, !to_host) == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct stream *in = stream;
    const struct op *before = in->count == 0 ? NULL : &in->ops[in->count - 1];
    fake_state.neighbours +=
        before != NULL && before->kind == COPY &&
        (to_host ? before->to + before->length == to : before->from + before->length == from);
    struct op *op = fake_stream_add(stream);
    op->kind = COPY;
    op->to = to;
    op->from = from;
    op->length = length;
    return 0;
}

sl_cu_result fake_to_device(sl_cu_ptr to, const void *from, size_t length, sl_cu_stream stream)
{
    TAKES();
    fake_state.copies++;
    return copy_add(stream, (uintptr_t)to, (uintptr_t)from, length, false);
}

sl_cu_result fake_to_host(void *to, sl_cu_ptr from, size_t length, sl_cu_stream stream)
{
    TAKES();
    fake_state.copies++;
    return copy_add(stream, (uintptr_t)to, (uintptr_t)from, length, true);
}

sl_cu_result fake_fill(sl_cu_ptr at, unsigned char byte, size_t length, sl_cu_stream stream)
{
    TAKES();
    if (fake_range_of((uintptr_t)at, length, false) == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    struct op *op = fake_stream_add(stream);
    op->kind = FILL;
    op->to = (uintptr_t)at;
    op->from = byte;
    op->length = length;
    return 0;
}

static sl_cu_result batch_add(const sl_cu_ptr *to, const sl_cu_ptr *from, const size_t *lengths,
                              size_t count, const struct sl_cu_copy_kind *kinds,
                              const size_t *kind_starts, size_t kind_count, sl_cu_stream stream)
{
    if (count == 0 || kind_count != 1 || kind_starts[0] != 0 ||
        kinds[0].source_order != SL_CU_ORDER_STREAM || stream == NULL) {
        return SL_CU_INVALID_VALUE;
    }
    fake_state.batches++;
    for (size_t i = 0; i < count; i++) {
        struct range *host = fake_range_of((uintptr_t)to[i], 1, true);
        bool to_host = host != NULL;
        host = to_host ? host : fake_range_of((uintptr_t)from[i], 1, true);
        if (fake_state.no_host_pointers && host != NULL && host->kind == REGISTERED) {
            fake_state.stuck = SL_CU_ILLEGAL_ADDRESS; /* the address is not valid there */
            return fake_state.stuck;
        }
        sl_cu_result result =
            copy_add(stream, (uintptr_t)to[i], (uintptr_t)from[i], lengths[i], to_host);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* A driver below 13.0 lacks the first of these, one below 12.8 both: the lookup fails. */
static sl_cu_result copy_batch(sl_cu_ptr *to, sl_cu_ptr *from, size_t *lengths, size_t count,
                               struct sl_cu_copy_kind *kinds, size_t *kind_starts,
                               size_t kind_count, sl_cu_stream stream)
{
    LOCKED();
    sl_cu_result refused = fake_fails("fake_copy_batch");
    return refused != 0
               ? refused
               : batch_add(to, from, lengths, count, kinds, kind_starts, kind_count, stream);
}

static sl_cu_result copy_batch_12(sl_cu_ptr *to, sl_cu_ptr *from, size_t *lengths, size_t count,
                                  struct sl_cu_copy_kind *kinds, size_t *kind_starts,
                                  size_t kind_count, size_t *failed, sl_cu_stream stream)
{
    LOCKED();
    sl_cu_result refused = fake_fails("fake_copy_batch_12");
    *failed = SIZE_MAX;
    return refused != 0
               ? refused
               : batch_add(to, from, lengths, count, kinds, kind_starts, kind_count, stream);
}

static __typeof__(&copy_batch) __attribute__((used)) copy_batch_resolve(void)
{
    return fake_number() >= 13000 ? copy_batch : NULL;
}

static __typeof__(&copy_batch_12) __attribute__((used)) copy_batch_12_resolve(void)
{
    return fake_number() >= 12080 ? copy_batch_12 : NULL;
}

__typeof__(copy_batch) fake_copy_batch __attribute__((ifunc("copy_batch_resolve")));
__typeof__(copy_batch_12) fake_copy_batch_12 __attribute__((ifunc("copy_batch_12_resolve")));
