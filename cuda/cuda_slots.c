/* cuda/cuda_slots.c - the two slots of the pipeline: while the GPU works on one, the other is
 * filled. Each slot has its own stream, in which its work is ordered, so that a kernel of one slot
 * runs beside copies of the other. */
#include "cuda/cuda_internal.h"
#include "cuda/cuda_wait.h"
#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Copies of a slot take a millisecond, more beside a busy engine. */
#define CUDA_WAIT_NS (10 * SL_NS_PER_S)

static uint64_t wait_deadline(const struct cuda_device *cuda)
{
    return sl_deadline_ns(sl_clock_monotonic_ns(), cuda->wait_ns);
}

/* ---- open and close ---- */

static sl_err slot_open(struct cuda_device *cuda, struct cuda_slot *slot, int priority,
                        struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    size_t ring_bytes = 2 * CUDA_SLOT_ITEMS * sizeof(uint64_t);
    size_t hash_bytes = cuda->hash_count_max * sizeof(uint64_t);
    void *pinned = NULL;
    sl_err err = sl_fail_cuda(
        driver, why, driver->stream_create(&slot->stream, SL_CU_STREAM_NON_BLOCKING, priority),
        "create a stream");
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->event_create(&slot->done, SL_CU_EVENT_NO_TIMING),
                           "create an event");
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->memory_get(&slot->staging, cuda->half_bytes),
                           "get %" PRIu64 " bytes of device memory for staging", cuda->half_bytes);
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->memory_get(&slot->ring_device, ring_bytes),
                           "get device memory for block ids");
    }
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why, driver->memory_get(&slot->hashes_device, hash_bytes),
                           "get device memory for digests");
    }
    /* One pinned allocation: bounce, ring, hashes. */
    if (err == SL_OK) {
        err = sl_fail_cuda(driver, why,
                           driver->host_get(&pinned, cuda->half_bytes + ring_bytes + hash_bytes,
                                            SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
                           "get %" PRIu64 " bytes of pinned memory",
                           cuda->half_bytes + ring_bytes + hash_bytes);
    }
    if (err == SL_OK) {
        slot->bounce = pinned;
        slot->ring = (uint64_t *)(void *)(slot->bounce + cuda->half_bytes);
        slot->hashes = slot->ring + (size_t)2 * CUDA_SLOT_ITEMS;
    }
    return err;
}

sl_err cuda_slots_open(struct cuda_device *cuda, struct sl_error *why)
{
    int least = 0, greatest = 0;
    cuda->wait_ns = cuda->wait_ns == 0 ? CUDA_WAIT_NS : cuda->wait_ns;
    cuda->slots = calloc(CUDA_SLOTS, sizeof(*cuda->slots));
    if (cuda->slots == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for device cuda");
    }
    /* The lowest priority: a waiting decode kernel runs first. */
    sl_err err = sl_fail_cuda(&cuda->driver, why, cuda->driver.priorities(&least, &greatest),
                              "ask for the priorities of streams");
    for (uint32_t i = 0; err == SL_OK && i < CUDA_SLOTS; i++) {
        err = slot_open(cuda, &cuda->slots[i], least, why);
    }
    return err;
}

void cuda_slots_close(struct cuda_device *cuda)
{
    struct sl_driver *driver = &cuda->driver;
    for (uint32_t i = 0; cuda->slots != NULL && i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &cuda->slots[i];
        if (slot->stream != NULL) {
            if (!driver->lost) {
                (void)sl_cuda_stream_wait(driver, slot->stream, wait_deadline(cuda));
            }
            (void)driver->stream_destroy(slot->stream);
        }
        if (slot->done != NULL) {
            (void)driver->event_destroy(slot->done);
        }
        if (cuda->hung) { /* the GPU may still write there, and freeing would wait for it */
            continue;
        }
        if (slot->staging != 0) {
            (void)driver->memory_free(slot->staging);
        }
        if (slot->ring_device != 0) {
            (void)driver->memory_free(slot->ring_device);
        }
        if (slot->hashes_device != 0) {
            (void)driver->memory_free(slot->hashes_device);
        }
        if (slot->bounce != NULL) {
            (void)driver->host_free(slot->bounce);
        }
    }
    free(cuda->slots);
    cuda->slots = NULL;
}

/* ---- completion of a slot ---- */

static void item_finish(struct cuda_device *cuda, const struct cuda_slot *slot,
                        const struct cuda_item *item)
{
    if (slot->check) {
        cuda_check_finish(cuda, slot, item);
        return;
    }
    struct sl_move *move = item->move;
    const struct sl_plan_range *range = &slot->range;
    bool digested = !slot->digests;
    unsigned char *to = move->host + item->from_bytes;
    if (slot->to_host && item->bounce_offset_bytes != CUDA_DIRECT) {
        const unsigned char *from = slot->bounce + item->bounce_offset_bytes;
        if (!digested && item->hash_index == CUDA_NO_HASH &&
            item->length_bytes == range->length_bytes) {
            move->digest = sl_digest_copy(to, from, item->length_bytes);
            digested = true;
        } else {
            memcpy(to, from, item->length_bytes);
        }
    }
    if (!digested && item->hash_index != CUDA_NO_HASH) {
        uint64_t chunks = sl_digest_chunks(range->length_bytes);
        move->digest = sl_digest_of_chunks(slot->hashes + item->hash_index * chunks, chunks);
    } else if (!digested && item->last) {
        move->digest = sl_digest_of(move->host + range->offset_bytes, range->length_bytes);
    }
    if (item->last) {
        move->done = 1;
    }
}

/* Completes a slot whose work has ended. */
static void slot_complete(struct cuda_device *cuda, struct cuda_slot *slot)
{
    SL_ASSERT(slot->state == CUDA_SLOT_IN_FLIGHT);
    cuda_check_charge(cuda, slot);
    for (uint32_t i = 0; i < slot->item_count; i++) {
        item_finish(cuda, slot, &slot->items[i]);
    }
    slot->state = CUDA_SLOT_FREE;
}

/* Waits for the slot. A GPU that exceeds the limit may finish at any later time: its memory is
 * never provably free again, so the context is lost. */
static sl_err slot_wait(struct cuda_device *cuda, struct cuda_slot *slot, struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    sl_cu_result result = sl_cuda_event_wait(driver, slot->done, 0);
    if (result == SL_CU_NOT_READY) {
        cuda->base.stats.waits++;
        result = sl_cuda_event_wait(driver, slot->done, wait_deadline(cuda));
    }
    if (result == SL_CU_NOT_READY) {
        driver->lost = cuda->hung = cuda->base.moves_pending = true;
        return sl_fail(why, SL_ERR_DEVICE,
                       "device cuda: %u copies have not ended after %" PRIu64 " ms",
                       slot->copy_count, (cuda->wait_ns / SL_NS_PER_MS));
    }
    return sl_fail_cuda(driver, why, result, "wait for %u copies", slot->copy_count);
}

static sl_err slot_finish(struct cuda_device *cuda, struct cuda_slot *slot, struct sl_error *why)
{
    sl_err err = slot_wait(cuda, slot, why);
    slot->failed = err != SL_OK;
    if (err == SL_OK) {
        slot_complete(cuda, slot);
    }
    return err;
}

sl_err cuda_slot_take(struct cuda_device *cuda, const struct cuda_job *job, struct cuda_slot **out,
                      struct sl_error *why)
{
    struct cuda_slot *slot = &cuda->slots[cuda->next_slot];
    sl_err err = slot->state == CUDA_SLOT_IN_FLIGHT ? slot_finish(cuda, slot, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    SL_ASSERT(slot->state == CUDA_SLOT_FREE);
    slot->state = CUDA_SLOT_FILLING;
    slot->failed = false;
    slot->to_host = job->to_host;
    slot->digests = job->digests;
    slot->check = job->check;
    slot->slice = cuda->base.slices_begun;
    slot->range = job->range;
    slot->used_bytes = 0;
    slot->item_count = slot->copy_count = slot->hash_count = 0;
    cuda->next_slot = (cuda->next_slot + 1) % CUDA_SLOTS;
    *out = slot;
    return SL_OK;
}

/* Slot number i, oldest first. */
static struct cuda_slot *slot_at(struct cuda_device *cuda, uint32_t i)
{
    return &cuda->slots[(cuda->next_slot + i) % CUDA_SLOTS];
}

/* Slices before that of the oldest slot in use have ended. */
static void slices_note(struct cuda_device *cuda)
{
    uint64_t done = cuda->base.slices_begun;
    for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
        if (cuda->slots[i].state != CUDA_SLOT_FREE) {
            done = SL_MIN(done, cuda->slots[i].slice - 1);
        }
    }
    cuda->base.slices_done = done;
}

sl_err cuda_slots_finish(struct cuda_device *cuda, bool wait, struct sl_error *why)
{
    bool drained = false;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = slot_at(cuda, i);
        if (slot->state != CUDA_SLOT_IN_FLIGHT) {
            continue;
        }
        if (!wait && sl_cuda_event_wait(&cuda->driver, slot->done, 0) == SL_CU_NOT_READY) {
            break;
        }
        drained = wait;
        err = slot_finish(cuda, slot, why);
    }
    cuda->base.stats.drains += drained;
    slices_note(cuda);
    return err;
}

void cuda_slots_drop(struct cuda_device *cuda, sl_err *err, struct sl_error *why)
{
    bool whole = true; /* all older slots have ended without an error */
    for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = slot_at(cuda, i);
        sl_cu_result result = 0;
        if (slot->state != CUDA_SLOT_FREE) { /* also one that was being started */
            result = cuda->driver.lost
                         ? SL_CU_NOT_READY
                         : sl_cuda_stream_wait(&cuda->driver, slot->stream, wait_deadline(cuda));
        }
        if (result != 0 && *err != SL_ERR_DEVICE) {
            /* Without this proof the GPU may still write to memory that is released: only the end
             * of the context stops that, whatever class the error has. */
            (void)sl_fail_cuda(&cuda->driver, why, result, "wait for copies that were given up");
            cuda->base.moves_pending |=
                !cuda->driver.lost; /* unless an earlier call has recorded that */
            cuda->hung |= !cuda->driver.lost;
            cuda->driver.lost = true;
            *err = SL_ERR_DEVICE;
            if (why != NULL) {
                why->code = SL_ERR_DEVICE;
            }
        }
        whole &= slot->state == CUDA_SLOT_FREE ||
                 (slot->state == CUDA_SLOT_IN_FLIGHT && result == 0 && !slot->failed);
        if (slot->state == CUDA_SLOT_IN_FLIGHT && whole) {
            slot_complete(cuda, slot);
        }
        slot->state = CUDA_SLOT_FREE;
    }
    slices_note(cuda);
}

bool cuda_slots_busy(const struct cuda_device *cuda)
{
    bool busy = false;
    for (uint32_t i = 0; i < CUDA_SLOTS; i++) {
        busy |= cuda->slots[i].state != CUDA_SLOT_FREE;
    }
    return busy;
}

void cuda_slots_wait_all(struct cuda_device *cuda)
{
    struct sl_error why = {0};
    if (!cuda_slots_busy(cuda)) {
        return;
    }
    sl_err err = cuda_enter(cuda, &why);
    if (err == SL_OK) {
        err = cuda_slots_finish(cuda, true, &why);
    }
    if (err != SL_OK) {
        cuda_slots_drop(cuda, &err, &why);
        cuda->late = why;
    }
}

/* ---- starting a slot ---- */

static sl_err copies_single(struct cuda_device *cuda, struct cuda_slot *slot, bool to_host,
                            struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < slot->copy_count; i++) {
        sl_cu_result result = sl_driver_copy(driver, slot->to[i], slot->from[i], slot->lengths[i],
                                             to_host, slot->stream);
        err = sl_fail_cuda(driver, why, result, "copy %zu bytes %s the device", slot->lengths[i],
                           to_host ? "from" : "to");
    }
    cuda->base.stats.copies += slot->copy_count;
    return err;
}

/* False: the driver refuses the batch, and the copies are made one by one. Copies of it that have
 * run are repeated, which is safe. */
static bool copies_batch(struct cuda_device *cuda, struct cuda_slot *slot, sl_cu_result *result)
{
    *result = sl_driver_copy_batch(&cuda->driver, slot->to, slot->from, slot->lengths,
                                   slot->copy_count, slot->stream);
    if (*result == 0) {
        cuda->base.stats.batches++;
    } else if (!sl_driver_sticky(*result)) {
        cuda->base.stats.batches_refused++;
        cuda->batch_works &= *result != SL_CU_NOT_SUPPORTED;
        return false;
    }
    return true;
}

static sl_err copies_send(struct cuda_device *cuda, struct cuda_slot *slot, bool to_host,
                          bool batch, struct sl_error *why)
{
    sl_cu_result result = 0;
    if (batch && cuda->batch_works && slot->copy_count > 1 && copies_batch(cuda, slot, &result)) {
        return sl_fail_cuda(&cuda->driver, why, result, "copy a batch of %u pieces",
                            slot->copy_count);
    }
    return copies_single(cuda, slot, to_host, why);
}

sl_err cuda_slot_launch(struct cuda_device *cuda, struct cuda_slot *slot, sl_cu_function function,
                        void *argument, uint64_t workers, const char *name, struct sl_error *why)
{
    uint64_t blocks = (workers + SL_KERNEL_THREADS - 1) / SL_KERNEL_THREADS;
    /* Two blocks fill a multiprocessor's registers, so the grid bounds the number of
     * multiprocessors used. */
    unsigned grid = (unsigned)SL_MIN(blocks, (uint64_t)2 * cuda->sm_limit);
    void *parameters[] = {argument};
    cuda->base.stats.kernels++;
    return sl_fail_cuda(&cuda->driver, why,
                        cuda->driver.launch(function, grid, 1, 1, SL_KERNEL_THREADS, 1, 1, 0,
                                            slot->stream, parameters, NULL),
                        "launch %s with %u blocks", name, grid);
}

static sl_err swap_launch(struct cuda_device *cuda, struct cuda_slot *slot,
                          const struct sl_swap *swap, bool to_host, struct sl_error *why)
{
    struct sl_swap argument = *swap;
    uint64_t tiles = swap->block_count * swap->value_tiles;
    return cuda_slot_launch(cuda, slot, to_host ? cuda->kernels.gather : cuda->kernels.scatter,
                            &argument, tiles * SL_TILE_LANES, to_host ? "gather" : "scatter", why);
}

/* Launches the digest of the values in the staging, or of the blocks in place: of the first
 * hash_count entries of the ring. */
static sl_err hash_launch(struct cuda_device *cuda, struct cuda_slot *slot,
                          const struct cuda_job *job, const struct sl_swap *swap,
                          struct sl_error *why)
{
    const struct sl_layer_table *table = &job->table->host;
    struct sl_hash_job argument = {
        .swap = *swap,
        .hashes = (uint64_t *)(uintptr_t)slot->hashes_device,
        .value_chunks = sl_digest_chunks(job->range.length_bytes),
    };
    argument.swap.block_count = slot->hash_count;
    if (job->way != SL_WAY_STAGED) {
        argument.swap.values = NULL;
        argument.swap.value_offsets = NULL;
        if (table->path == SL_PLAN_RUNS) { /* the layer that represents a whole block */
            argument.swap.layers =
                (const struct sl_swap_layer *)(uintptr_t)job->table->device + table->layer_count;
            argument.swap.layer_count = 1;
        }
    }
    uint64_t chunks = slot->hash_count * argument.value_chunks;
    return cuda_slot_launch(cuda, slot, cuda->kernels.hash, &argument, chunks * SL_HASH_TERMS,
                            "the digest", why);
}

/* Called after the copies: before them a small copy would wait for the other slot's copies. */
static sl_err hashes_fetch(struct cuda_device *cuda, struct cuda_slot *slot,
                           const struct cuda_job *job, struct sl_error *why)
{
    uint64_t chunks = slot->hash_count * sl_digest_chunks(job->range.length_bytes);
    return sl_fail_cuda(&cuda->driver, why,
                        cuda->driver.to_host(slot->hashes, slot->hashes_device,
                                             chunks * sizeof(uint64_t), slot->stream),
                        "copy %" PRIu64 " digests from the device", chunks);
}

static void bounce_fill(struct cuda_slot *slot)
{
    for (uint32_t i = 0; i < slot->item_count; i++) {
        const struct cuda_item *item = &slot->items[i];
        if (item->bounce_offset_bytes != CUDA_DIRECT) {
            memcpy(slot->bounce + item->bounce_offset_bytes, item->move->host + item->from_bytes,
                   item->length_bytes);
        }
    }
}

sl_err cuda_slot_send_ids(struct cuda_device *cuda, struct cuda_slot *slot, uint32_t words,
                          struct sl_error *why)
{
    struct sl_driver *driver = &cuda->driver;
    return sl_fail_cuda(
        driver, why,
        driver->to_device(slot->ring_device, slot->ring, words * sizeof(uint64_t), slot->stream),
        "copy %u block ids to the device", slot->item_count);
}

sl_err cuda_slot_sent(struct cuda_device *cuda, struct cuda_slot *slot, struct sl_error *why)
{
    sl_err err =
        sl_fail_cuda(&cuda->driver, why, cuda->driver.event_record(slot->done, slot->stream),
                     "record the end of %u copies", slot->copy_count);
    if (err == SL_OK) {
        slot->state = CUDA_SLOT_IN_FLIGHT;
        slot->sent_ns = sl_clock_monotonic_ns();
    }
    return err;
}

sl_err cuda_slot_send(struct cuda_device *cuda, struct cuda_slot *slot, const struct cuda_job *job,
                      const struct sl_swap *swap, struct sl_error *why)
{
    bool kernel = job->way == SL_WAY_STAGED || job->way == SL_WAY_MAPPED;
    bool batch = job->way != SL_WAY_COPIES;
    sl_err err = SL_OK;
    SL_ASSERT(slot->state == CUDA_SLOT_FILLING);
    if (!job->to_host) {
        bounce_fill(slot);
    }
    if (kernel || slot->hash_count > 0) {
        uint32_t words = job->way == SL_WAY_MAPPED ? 2 * CUDA_SLOT_ITEMS : slot->item_count;
        err = cuda_slot_send_ids(cuda, slot, words, why);
    }
    if (err == SL_OK && !job->to_host) {
        err = copies_send(cuda, slot, false, batch, why);
    }
    if (err == SL_OK && kernel) {
        err = swap_launch(cuda, slot, swap, job->to_host, why);
    }
    if (err == SL_OK && slot->hash_count > 0) {
        err = hash_launch(cuda, slot, job, swap, why);
    }
    if (err == SL_OK && job->to_host) {
        err = copies_send(cuda, slot, true, batch, why);
    }
    if (err == SL_OK && slot->hash_count > 0) {
        err = hashes_fetch(cuda, slot, job, why);
    }
    return err == SL_OK ? cuda_slot_sent(cuda, slot, why) : err;
}
