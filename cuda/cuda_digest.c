/* cuda/cuda_digest.c - slices that digest device blocks in place and move nothing. A kernel does
 * it: the GPU's memory is some fifty times as fast as the bus. Without kernels, or while an engine
 * computes, the bytes are copied to the host and the processor digests them. */
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Digests may take one part in CHECK_SHARE of the time of moves to the device; at most
 * CHECK_ROOM_NS_MAX is saved up. */
#define CHECK_SHARE       20
#define CHECK_ROOM_NS_MAX ((int64_t)(50 * SL_NS_PER_MS))

/* ---- by the GPU ---- */

/* Launches the hash kernel for chunks [first, +value_chunks) of each block in the slot. */
static sl_err check_send(struct cuda_device *cuda, struct cuda_slot *slot,
                         const struct cuda_job *job, uint64_t first_chunk, uint64_t value_chunks,
                         struct sl_error *why)
{
    const struct sl_layer_table *table = &job->table->host;
    const struct sl_swap_layer *layers =
        (const struct sl_swap_layer *)(uintptr_t)job->table->device;
    bool in_place = cuda_hash_in_place_ok(job);
    struct sl_hash_job argument = {
        .swap = sl_plan_swap(
            table, job->range.first_layer, job->range.layer_end - job->range.first_layer,
            (const uint64_t *)(uintptr_t)slot->ring_device, slot->item_count, NULL),
        .hashes = (uint64_t *)(uintptr_t)slot->hashes_device,
        .value_chunks = value_chunks,
        .first_chunk = first_chunk,
        .words = job->table->words,
        .tails = (unsigned char *)(uintptr_t)slot->staging, /* which is otherwise unused */
    };
    uint64_t chunks = slot->item_count * value_chunks;
    /* The host's table was read for sizes; the kernel reads the device's. */
    argument.swap.layers = layers + job->range.first_layer;
    if (in_place && table->path == SL_PLAN_RUNS) { /* the layer that represents a whole block */
        argument.swap.layers = layers + table->layer_count;
        argument.swap.layer_count = 1;
    }
    sl_err err = cuda_slot_send_ids(cuda, slot, slot->item_count, why);
    if (err == SL_OK) {
        err = cuda_slot_launch(cuda, slot, in_place ? cuda->kernels.hash : cuda->kernels.hash_runs,
                               &argument, chunks * SL_HASH_TERMS, "the digest of blocks", why);
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(&cuda->driver, why,
                           cuda->driver.to_host(slot->hashes, slot->hashes_device,
                                                chunks * sizeof(uint64_t), slot->stream),
                           "copy %" PRIu64 " digests from the device", chunks);
    }
    return err == SL_OK ? cuda_slot_sent(cuda, slot, why) : err;
}

static void check_add(struct cuda_slot *slot, struct cuda_job *job, uint64_t length_bytes)
{
    struct sl_move *move = &job->moves[job->next];
    slot->ring[slot->item_count] = move->device_block;
    slot->items[slot->item_count++] = (struct cuda_item){
        .move = move,
        .from_bytes = job->range.offset_bytes + job->next_bytes,
        .length_bytes = length_bytes,
        .bounce_offset_bytes = CUDA_DIRECT,
        .hash_index = slot->hash_count,
        .last = job->next_bytes + length_bytes == job->range.length_bytes,
    };
    slot->hash_count += (uint32_t)sl_digest_chunks(length_bytes);
    job->next_bytes += length_bytes;
    if (job->next_bytes == job->range.length_bytes) {
        job->next_bytes = 0;
        job->next++;
    }
}

/* Sends as many values as a slot has room for hashes of, or a part of a larger one. */
static sl_err check_step(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why)
{
    uint64_t chunks = sl_digest_chunks(job->range.length_bytes);
    struct cuda_slot *slot = NULL;
    sl_err err = cuda_slot_take(cuda, job, &slot, why);
    if (err != SL_OK) {
        return err;
    }
    if (chunks > cuda->hash_count_max) {
        uint64_t first = job->next_bytes / SL_DIGEST_CHUNK_BYTES;
        uint64_t some = SL_MIN(chunks - first, cuda->hash_count_max);
        check_add(slot, job,
                  SL_MIN(job->range.length_bytes - job->next_bytes, some * SL_DIGEST_CHUNK_BYTES));
        return check_send(cuda, slot, job, first, some, why);
    }
    uint64_t items_max = SL_MIN(cuda->half_bytes / SL_HASH_TAIL_BYTES, (uint64_t)CUDA_SLOT_ITEMS);
    while (job->next < job->count && slot->item_count < items_max &&
           slot->hash_count + chunks <= cuda->hash_count_max) {
        check_add(slot, job, job->range.length_bytes);
    }
    return check_send(cuda, slot, job, 0, chunks, why);
}

/* Makes room for the hashes of a value that exceed a slot's. */
static sl_err check_room(struct cuda_device *cuda, const struct cuda_job *job, struct sl_error *why)
{
    uint64_t chunks = sl_digest_chunks(job->range.length_bytes);
    if (chunks <= SL_MAX(cuda->hash_count_max, cuda->check.hashes_max)) {
        return SL_OK;
    }
    cuda_slots_wait_all(cuda); /* the present hashes may be of a value in flight */
    uint64_t *grown = realloc(cuda->check.hashes, chunks * sizeof(*grown));
    if (grown == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " hashes", chunks);
    }
    cuda->check.hashes = grown;
    cuda->check.hashes_max = chunks;
    return SL_OK;
}

sl_err cuda_check_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why)
{
    if (cuda->kernels.module == NULL || job->copies_only) {
        job->to_host = true;
        job->way = cuda->batch_works ? SL_WAY_BATCH : SL_WAY_COPIES;
        return cuda_move_by(cuda, job, why);
    }
    sl_err err = check_room(cuda, job, why);
    while (err == SL_OK && job->next < job->count) {
        err = check_step(cuda, job, why);
    }
    return err;
}

/* ---- completion ---- */

void cuda_check_finish(struct cuda_device *cuda, const struct cuda_slot *slot,
                       const struct cuda_item *item)
{
    const struct sl_plan_range *range = &slot->range;
    struct cuda_check *check = &cuda->check;
    bool first = item->from_bytes == range->offset_bytes;
    if (item->hash_index == CUDA_NO_HASH) {
        if (first) {
            sl_digest_start(&check->stream);
        }
        sl_digest_feed(&check->stream, slot->bounce + item->bounce_offset_bytes,
                       item->length_bytes);
        if (item->last) {
            item->move->digest = sl_digest_finish(&check->stream);
        }
    } else if (first && item->last) {
        item->move->digest = sl_digest_of_chunks(slot->hashes + item->hash_index,
                                                 sl_digest_chunks(item->length_bytes));
    } else {
        uint64_t at = (item->from_bytes - range->offset_bytes) / SL_DIGEST_CHUNK_BYTES;
        memcpy(check->hashes + at, slot->hashes + item->hash_index,
               sl_digest_chunks(item->length_bytes) * sizeof(uint64_t));
        if (item->last) {
            item->move->digest =
                sl_digest_of_chunks(check->hashes, sl_digest_chunks(range->length_bytes));
        }
    }
    if (item->last) {
        item->move->done = 1;
    }
}

/* Slots run one after the other: the time of a slot begins when the previous one ended. */
void cuda_check_charge(struct cuda_device *cuda, const struct cuda_slot *slot)
{
    struct cuda_check *check = &cuda->check;
    uint64_t now_ns = sl_clock_monotonic_ns();
    int64_t took_ns = (int64_t)(now_ns - SL_MAX(slot->sent_ns, check->ended_ns));
    check->ended_ns = now_ns;
    if (slot->check) {
        check->room_ns -= took_ns;
    } else if (!slot->to_host) {
        check->room_ns = SL_MIN(check->room_ns + took_ns / CHECK_SHARE, CHECK_ROOM_NS_MAX);
    }
}

/* ---- the slice ---- */

sl_err cuda_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                         struct sl_error *why)
{
    struct cuda_job like = {.check = true};
    return cuda_slice_begin(cuda_of(device), moves, count, &like, why);
}

bool cuda_digests(struct sl_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    return cuda->kernels.module != NULL && cuda->check.room_ns >= 0 &&
           cuda_enter(cuda, NULL) == SL_OK && !cuda_watch_computes(cuda);
}
