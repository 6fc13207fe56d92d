/* client/lib/gpu_pipe.c - executes copies in two halves: while the GPU transfers one, the processor
 * fills, empties and digests the other. There are no other waits.
 *
 * The methods are those of the swapper's device (cuda/README.md). Pieces are at arbitrary
 * addresses, so a half has a table with a row for each piece instead of a table of layers. Its
 * kernels read a row as a layer with one block.
 *
 * A digest is that of the bytes that arrive, even if the engine writes meanwhile. The GPU hashes
 * its staging, from which the bytes are sent on; the processor hashes the arena. */
#include "client/lib/gpu_internal.h"

#include "cuda/cuda_wait.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* From this size on a digest by the GPU is worth its start (about 50 us of a processor). */
#define GPU_DIGEST_BYTES_MIN SL_MIB
/* Below this number there is no choice, so the kernels need not be loaded. */
#define GPU_KERNEL_PIECES_MIN 16u
/* Blocks of a launch. PCIe is saturated with 8 multiprocessors; the others stay for the engine. */
#define GPU_GRID_MAX 16u
/* Grace for copies that begin shortly before their deadline: they do not count as stuck. */
#define GPU_GRACE_NS SL_NS_PER_S
/* Values of different sizes need a launch each to be hashed. */
#define GPU_HASH_LAUNCHES_MAX 16u

/* ---- filling a half ---- */

static bool kernel_way(enum sl_way way)
{
    return way == SL_WAY_STAGED || way == SL_WAY_MAPPED;
}

/* Measures the next copies that are contiguous in an arena and belong to one value, as far as the
 * half has room. Returns their bytes, and the number of rows. */
static uint64_t part_measure(const struct gpu_half *half, const struct gpu_job *job,
                             uint32_t *segments)
{
    const struct sl_gpu_copy *first = &job->copies->at[job->next];
    uint64_t room_bytes = GPU_HALF_BYTES - half->used_bytes;
    uint64_t length_bytes = first->length_bytes - job->next_bytes;
    uint32_t i = job->next + 1;
    while (i < job->end && length_bytes < room_bytes &&
           half->segment_count + (i - job->next) < GPU_HALF_SEGMENTS) {
        const struct sl_gpu_copy *copy = &job->copies->at[i];
        if (copy->value != first->value || copy->arena != first->arena ||
            copy->host != first->host + job->next_bytes + length_bytes) {
            break;
        }
        length_bytes += copy->length_bytes;
        i++;
    }
    *segments = i - job->next;
    return SL_MIN(length_bytes, room_bytes);
}

/* How much of a part of a value that the GPU digests fits into this half: complete chunks, or all
 * that is left of it. 0: none. */
static uint64_t part_chunks(const struct sl_gpu_value *value, const unsigned char *host,
                            uint64_t length_bytes)
{
    uint64_t from_bytes = (uint64_t)(host - value->host);
    if (from_bytes % SL_DIGEST_CHUNK_BYTES != 0) {
        return 0;
    }
    return from_bytes + length_bytes == value->length_bytes
               ? length_bytes
               : length_bytes / SL_DIGEST_CHUNK_BYTES * SL_DIGEST_CHUNK_BYTES;
}

/* Whether all of it is pinned. */
static bool pinned(const struct gpu_job *job, const struct sl_arena *arena, const unsigned char *at,
                   uint64_t length_bytes)
{
    uint64_t run = 0;
    for (uint64_t done = 0; done < length_bytes; done += run) {
        run = sl_gpu_pins_run(&sl_gpu_driver, job->device, arena, at + done, length_bytes - done);
        if (run == 0) {
            return false;
        }
    }
    return true;
}

static void copy_add(struct gpu_half *half, sl_cu_ptr host, sl_cu_ptr device, uint64_t length_bytes,
                     bool to_host)
{
    SL_ASSERT(half->copy_count < GPU_HALF_COPIES);
    half->to[half->copy_count] = to_host ? host : device;
    half->from[half->copy_count] = to_host ? device : host;
    half->lengths[half->copy_count++] = length_bytes;
}

/* Adds copies between the part's host memory, from at_bytes on, and the device. No copy crosses a
 * boundary between registrations. */
static void copy_cut(struct gpu_half *half, const struct gpu_job *job, const struct gpu_part *part,
                     const struct sl_arena *arena, uint64_t at_bytes, sl_cu_ptr device,
                     uint64_t length_bytes)
{
    bool direct = part->bounce_bytes == GPU_DIRECT;
    const unsigned char *host =
        (direct ? part->host : half->bounce + part->bounce_bytes) + at_bytes;
    uint64_t run = 0;
    for (uint64_t done = 0; done < length_bytes; done += run) {
        run = length_bytes - done;
        if (direct) {
            uint64_t registered =
                sl_gpu_pins_run(&sl_gpu_driver, job->device, arena, host + done, run);
            SL_ASSERT(registered > 0);
            run = registered;
        }
        copy_add(half, (uintptr_t)(host + done), device + done, run, job->to_host);
    }
}

/* Adds one piece, or a slice of one, of a part that begins at_bytes before it. */
static void segment_add(struct gpu_half *half, const struct gpu_job *job,
                        const struct gpu_part *part, const struct sl_gpu_copy *copy,
                        uint64_t from_bytes, uint64_t at_bytes, uint64_t length_bytes)
{
    sl_cu_ptr device = copy->device + from_bytes;
    half->segment_count++;
    if (!kernel_way(job->way)) {
        copy_cut(half, job, part, copy->arena, at_bytes, device, length_bytes);
        return;
    }
    const unsigned char *host = part->bounce_bytes == GPU_DIRECT
                                    ? part->host + at_bytes
                                    : half->bounce + part->bounce_bytes + at_bytes;
    half->table[half->segment_count - 1] = (struct sl_swap_layer){
        .base = (unsigned char *)(uintptr_t)device, /* NOLINT(performance-no-int-to-ptr) */
        .piece_bytes = length_bytes,
        .value_offset_bytes =
            job->way == SL_WAY_STAGED ? part->used_bytes + at_bytes : (uint64_t)(uintptr_t)host,
        .first_tile = half->tile_count,
    };
    half->tile_count += (length_bytes + SL_TILE_BYTES - 1) / SL_TILE_BYTES;
}

/* Adds the next part to the half. *full: it did not fit. */
static sl_err part_take(struct gpu_half *half, struct gpu_job *job, bool *full,
                        struct sl_error *why)
{
    struct sl_gpu_copies *copies = job->copies;
    const struct sl_gpu_copy *copy = &copies->at[job->next];
    uint32_t segments = 0;
    uint64_t length_bytes = part_measure(half, job, &segments);
    struct gpu_part part = {
        .host = copy->host + job->next_bytes,
        .used_bytes = half->used_bytes,
        .value =
            job->to_host && copy->value != SL_GPU_NO_VALUE ? &copies->values[copy->value] : NULL,
        .hash_first = GPU_NO_HASH,
    };
    if (job->way == SL_WAY_STAGED && part.value != NULL && part.value->on_gpu) {
        uint64_t whole_bytes = part_chunks(part.value, part.host, length_bytes);
        uint64_t chunks = sl_digest_chunks(whole_bytes);
        *full = half->hash_count + chunks > GPU_HALF_HASHES ||
                (whole_bytes == 0 && half->part_count > 0);
        if (*full) {
            return SL_OK;
        }
        if (whole_bytes > 0) { /* else it has too many pieces: the processor's */
            length_bytes = whole_bytes;
            part.hash_first = half->hash_count;
            half->hash_count += (uint32_t)chunks;
        }
    }
    part.length_bytes = length_bytes;
    part.bounce_bytes = GPU_DIRECT;
    if (!pinned(job, copy->arena, part.host, length_bytes)) {
        sl_err err = gpu_bounce_open(half, why);
        if (err != SL_OK) {
            return err;
        }
        part.bounce_bytes = half->used_bytes;
    }
    if (job->way == SL_WAY_STAGED) {
        copy_cut(half, job, &part, copy->arena, 0, half->staging + half->used_bytes, length_bytes);
    }
    for (uint64_t at_bytes = 0, taken = 0; at_bytes < length_bytes; at_bytes += taken) {
        copy = &copies->at[job->next];
        taken = SL_MIN(copy->length_bytes - job->next_bytes, length_bytes - at_bytes);
        segment_add(half, job, &part, copy, job->next_bytes, at_bytes, taken);
        job->next_bytes += taken;
        if (job->next_bytes == copy->length_bytes) {
            job->next_bytes = 0;
            job->next++;
        }
    }
    half->parts[half->part_count++] = part;
    half->used_bytes =
        SL_MIN(sl_align_up(half->used_bytes + length_bytes, SL_WORD_BYTES), GPU_HALF_BYTES);
    return SL_OK;
}

static sl_err half_fill(struct gpu_half *half, struct gpu_job *job, struct sl_error *why)
{
    sl_err err = SL_OK;
    bool full = false;
    half->used_bytes = half->tile_count = 0;
    half->part_count = half->segment_count = half->copy_count = 0;
    half->hash_count = half->hash_end = 0;
    while (err == SL_OK && !full && job->next < job->end && half->used_bytes < GPU_HALF_BYTES &&
           half->segment_count < GPU_HALF_SEGMENTS) {
        err = part_take(half, job, &full, why);
    }
    for (uint32_t i = 0; err == SL_OK && !job->to_host && i < half->part_count; i++) {
        const struct gpu_part *part = &half->parts[i];
        if (part->bounce_bytes != GPU_DIRECT) {
            memcpy(half->bounce + part->bounce_bytes, part->host, part->length_bytes);
        }
    }
    return err;
}

/* ---- sending a half ---- */

static sl_err copies_singly(const struct gpu_half *half, bool to_host, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < half->copy_count && err == SL_OK; i++) {
        sl_cu_result result = sl_driver_copy(&sl_gpu_driver, half->to[i], half->from[i],
                                             half->lengths[i], to_host, half->stream);
        err = gpu_failed(why, result, to_host ? "copy from the device" : "copy to the device");
    }
    return err;
}

/* In one call if the driver supports it and there is more than one copy. */
static sl_err copies_send(struct gpu *gpu, struct gpu_half *half, const struct gpu_job *job,
                          struct sl_error *why)
{
    if (job->way != SL_WAY_COPIES && gpu->batch_works && half->copy_count > 1) {
        sl_cu_result result = sl_driver_copy_batch(&sl_gpu_driver, half->to, half->from,
                                                   half->lengths, half->copy_count, half->stream);
        gpu->batch_works = result != SL_CU_NOT_SUPPORTED;
        if (result == 0 || sl_driver_sticky(result)) {
            return gpu_failed(why, result, "copy a batch");
        } /* otherwise single copies; those that it executed before refusing are repeated */
    }
    return copies_singly(half, job->to_host, why);
}

static sl_err launch(const struct gpu_half *half, sl_cu_function function, void *argument,
                     uint64_t workers, const char *doing, struct sl_error *why)
{
    uint64_t blocks = (workers + SL_KERNEL_THREADS - 1) / SL_KERNEL_THREADS;
    void *parameters[] = {argument};
    return gpu_failed(
        why,
        sl_gpu_driver.launch(function, (unsigned)SL_MIN(blocks, (uint64_t)GPU_GRID_MAX), 1, 1,
                             SL_KERNEL_THREADS, 1, 1, 0, half->stream, parameters, NULL),
        doing);
}

/* Passes rows of the table as layers of one block, with offsets relative to the first one. */
static sl_err swap_launch(const struct gpu *gpu, const struct gpu_half *half,
                          const struct gpu_job *job, struct sl_error *why)
{
    uint64_t first = half->table[0].value_offset_bytes;
    uint64_t tiles = (half->table[0].piece_bytes + SL_TILE_BYTES - 1) / SL_TILE_BYTES;
    struct sl_swap swap = {
        .layers = (const struct sl_swap_layer *)(uintptr_t)half->table_device,
        .values =
            (unsigned char *)(uintptr_t)(job->way == SL_WAY_STAGED ? half->staging + first : first),
        .layer_count = half->segment_count,
        .block_count = 1,
        .value_tiles = half->tile_count,
        .piece_tiles = tiles,
    };
    for (uint32_t i = 1; i < half->segment_count && swap.piece_tiles != 0; i++) {
        if (half->table[i].first_tile != i * tiles) {
            swap.piece_tiles = 0; /* kernels search for the row */
        }
    }
    if (half->tile_count != half->segment_count * tiles) {
        swap.piece_tiles = 0;
    }
    /* The id of the only block is the first row's count of preceding tiles: 0. */
    swap.block_ids = (const uint64_t *)(uintptr_t)(half->table_device +
                                                   offsetof(struct sl_swap_layer, first_tile));
    return launch(half, job->to_host ? gpu->code.gather : gpu->code.scatter, &swap,
                  half->tile_count * SL_TILE_LANES,
                  job->to_host ? "launch the gather" : "launch the scatter", why);
}

/* Number of parts from the i-th on with one size and one distance. */
static uint32_t same_parts(const struct gpu_half *half, uint32_t i)
{
    const struct gpu_part *first = &half->parts[i];
    uint64_t stride_bytes = sl_align_up(first->length_bytes, SL_WORD_BYTES);
    uint32_t count = 1;
    while (i + count < half->part_count) {
        const struct gpu_part *next = &half->parts[i + count];
        if (next->hash_first == GPU_NO_HASH || next->length_bytes != first->length_bytes ||
            next->used_bytes != first->used_bytes + count * stride_bytes) {
            break;
        }
        count++;
    }
    return count;
}

static sl_err hash_launch(const struct gpu *gpu, struct gpu_half *half, struct sl_error *why)
{
    sl_err err = SL_OK;
    uint32_t launches = 0;
    half->hash_end = 0;
    for (uint32_t i = 0, count = 0; i < half->part_count && err == SL_OK; i += count) {
        const struct gpu_part *first = &half->parts[i];
        count = 1;
        if (first->hash_first == GPU_NO_HASH) {
            continue;
        }
        count = same_parts(half, i);
        if (launches++ >= GPU_HASH_LAUNCHES_MAX) {
            for (uint32_t k = i; k < i + count; k++) {
                half->parts[k].hash_first = GPU_NO_HASH;
            }
            continue;
        }
        uint64_t chunks = sl_digest_chunks(first->length_bytes);
        struct sl_hash_job hash = {
            .swap = {.values = (unsigned char *)(uintptr_t)(half->staging + first->used_bytes),
                     .block_count = count,
                     .value_stride_bytes = sl_align_up(first->length_bytes, SL_WORD_BYTES),
                     .value_bytes = first->length_bytes},
            .hashes = (uint64_t *)(uintptr_t)half->hashes_device + first->hash_first,
            .value_chunks = chunks,
        };
        err = launch(half, gpu->code.hash, &hash, count * chunks * SL_HASH_TERMS,
                     "launch the digest", why);
        half->hash_end = first->hash_first + (uint32_t)(count * chunks);
    }
    return err;
}

/* After the copies: a small copy before them would wait for the other half's, and they for it. */
static sl_err hashes_fetch(const struct gpu_half *half, struct sl_error *why)
{
    return gpu_failed(why,
                      sl_gpu_driver.to_host(half->hashes, half->hashes_device,
                                            half->hash_end * sizeof(uint64_t), half->stream),
                      "copy digests from the device");
}

static sl_err half_send(struct gpu *gpu, struct gpu_half *half, const struct gpu_job *job,
                        struct sl_error *why)
{
    const struct sl_driver *driver = &sl_gpu_driver;
    sl_err err = SL_OK;
    half->in_flight = true; /* from the first call on */
    if (kernel_way(job->way)) {
        err = gpu_failed(why,
                         driver->to_device(half->table_device, half->table,
                                           half->segment_count * sizeof(struct sl_swap_layer),
                                           half->stream),
                         "copy a table of pieces to the device");
    }
    if (err == SL_OK && !job->to_host) {
        err = copies_send(gpu, half, job, why);
    }
    if (err == SL_OK && kernel_way(job->way)) {
        err = swap_launch(gpu, half, job, why);
    }
    if (err == SL_OK && half->hash_count > 0) {
        err = hash_launch(gpu, half, why);
    }
    if (err == SL_OK && job->to_host) {
        err = copies_send(gpu, half, job, why);
    }
    if (err == SL_OK && half->hash_end > 0) {
        err = hashes_fetch(half, why);
    }
    if (err == SL_OK) {
        err = gpu_failed(why, driver->event_record(half->done, half->stream),
                         "record the end of copies");
    }
    return err;
}

/* ---- completing a half ---- */

static void part_finish(const struct gpu_half *half, const struct gpu_part *part,
                        struct gpu_job *job)
{
    if (job->to_host && part->bounce_bytes != GPU_DIRECT) {
        memcpy(part->host, half->bounce + part->bounce_bytes, part->length_bytes);
    }
    struct sl_gpu_value *value = part->value;
    if (value == NULL) {
        return;
    }
    uint64_t from_bytes = (uint64_t)(part->host - value->host);
    uint64_t end_bytes = from_bytes + part->length_bytes;
    if (part->hash_first != GPU_NO_HASH && value->hashed_bytes == from_bytes) {
        uint64_t chunks = sl_digest_chunks(part->length_bytes);
        memcpy(job->copies->hashes + value->hash_first + from_bytes / SL_DIGEST_CHUNK_BYTES,
               half->hashes + part->hash_first, chunks * sizeof(uint64_t));
        value->hashed_bytes = end_bytes;
    } else {
        gpu_value_landed(job->copies, value, end_bytes);
    }
}

static sl_err half_finish(struct gpu_half *half, struct gpu_job *job, struct sl_error *why)
{
    if (!half->in_flight) {
        return SL_OK;
    }
    sl_cu_result result = sl_cuda_event_wait(&sl_gpu_driver, half->done, job->deadline_ns);
    if (result == SL_CU_NOT_READY) {
        return sl_fail(why, SL_ERR_DEVICE,
                       "device cuda: copies of %" PRIu64 " bytes did not end by the deadline",
                       half->used_bytes);
    }
    sl_err err = gpu_failed(why, result, "wait for the device");
    if (err != SL_OK) {
        return err;
    }
    half->in_flight = false;
    for (uint32_t i = 0; i < half->part_count; i++) {
        part_finish(half, &half->parts[i], job);
    }
    return SL_OK;
}

bool gpu_pipe_ended(struct gpu *gpu, uint64_t deadline_ns)
{
    bool ended = true;
    for (uint32_t i = 0; gpu->halves != NULL && i < GPU_HALVES; i++) {
        struct gpu_half *half = &gpu->halves[i];
        if (!half->in_flight) {
            continue;
        }
        /* A call may fail once for its own reason; a lost context ends everything in it. */
        sl_cu_result result = sl_cuda_stream_wait(&sl_gpu_driver, half->stream, deadline_ns);
        if (result != 0 && result != SL_CU_NOT_READY && !sl_driver_sticky(result)) {
            result = sl_cuda_stream_wait(&sl_gpu_driver, half->stream, deadline_ns);
        }
        half->in_flight = result != 0 && !sl_driver_sticky(result);
        ended = ended && !half->in_flight;
    }
    return ended;
}

/* ---- the job ---- */

/* Whether kernels may access the memory. Memory that an engine got in a context of its own is not
 * accessible to the primary one: a kernel would end that context. Mapped or pooled memory has no
 * context. */
static bool kernels_reach(const struct gpu *gpu, const struct sl_gpu_copy *copy)
{
    sl_cu_context context = NULL;
    return sl_gpu_driver.pointer_attribute(&context, SL_CU_POINTER_CONTEXT, copy->device) == 0 &&
           (context == NULL || context == gpu->context);
}

/* Chooses the fastest method. */
static enum sl_way way_choose(struct gpu *gpu, const struct gpu_job *job)
{
    static const struct sl_crossover published; /* nothing is measured in an engine's process */
    struct sl_crossover_job shape = {.to_host = job->to_host, .pieces = job->end - job->next};
    uint64_t bytes = 0, digested_bytes = 0;
    const unsigned char *run_end = NULL;
    for (uint32_t i = job->next; i < job->end; i++) {
        const struct sl_gpu_copy *copy = &job->copies->at[i];
        bytes += copy->length_bytes;
        shape.runs += copy->host != run_end;
        run_end = copy->host + copy->length_bytes;
        if (copy->value != SL_GPU_NO_VALUE && job->copies->values[copy->value].on_gpu) {
            digested_bytes += copy->length_bytes;
        }
    }
    bool digests = job->to_host && digested_bytes >= GPU_DIGEST_BYTES_MIN;
    /* The first and the last piece represent all: an engine allocates its memory in one context. */
    bool kernels = (digests || shape.pieces >= GPU_KERNEL_PIECES_MIN) &&
                   kernels_reach(gpu, &job->copies->at[job->next]) &&
                   kernels_reach(gpu, &job->copies->at[job->end - 1]) && gpu_kernels_open(gpu);
    /* As in the swapper: going through staging costs less than digesting by the processor. */
    bool plain = !digests || !kernels;
    shape.piece_bytes = SL_MAX(bytes / shape.pieces, UINT64_C(1));
    shape.runs = SL_MAX(shape.runs, UINT64_C(1));
    shape.run_bytes = SL_MAX(bytes / shape.runs, UINT64_C(1));
    shape.possible[SL_WAY_COPIES] = plain;
    shape.possible[SL_WAY_BATCH] = plain && gpu->batch_works;
    shape.possible[SL_WAY_STAGED] = kernels;
    shape.possible[SL_WAY_MAPPED] = plain && kernels && gpu->host_pointers;
    return sl_crossover_choose(&published, &shape);
}

sl_err gpu_pipe_run(struct gpu *gpu, struct gpu_job *job, struct sl_error *why)
{
    sl_err err = SL_OK;
    uint32_t turn = 0;
    job->device = gpu->device;
    job->deadline_ns = SL_MAX(job->deadline_ns, sl_clock_monotonic_ns() + GPU_GRACE_NS);
    job->way = way_choose(gpu, job);
    for (; err == SL_OK && job->next < job->end; turn++) {
        struct gpu_half *half = &gpu->halves[turn % GPU_HALVES];
        err = half_finish(half, job, why);
        if (err == SL_OK) {
            err = half_fill(half, job, why);
        }
        if (err == SL_OK) {
            err = half_send(gpu, half, job, why);
        }
    }
    for (uint32_t i = 0; err == SL_OK && i < GPU_HALVES; i++) { /* the oldest first */
        err = half_finish(&gpu->halves[(turn + i) % GPU_HALVES], job, why);
    }
    /* Also after a failure: no copy of ours may be in flight when the memory is released. */
    gpu->stuck = err != SL_OK && !gpu_pipe_ended(gpu, job->deadline_ns);
    return err;
}
