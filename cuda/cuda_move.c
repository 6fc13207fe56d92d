/* cuda/cuda_move.c - cuts a job into slots, by one of four ways. */
#include "cuda/cuda_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- contents of a slot ---- */

/* Adds a copy between device memory and pinned memory, merged with the previous one if both sides
 * continue it. joins: merging is allowed; a copy must not cross registrations of host memory.
 * False: the slot is full. */
static bool copy_add(struct cuda_slot *slot, sl_cu_ptr to, sl_cu_ptr from, uint64_t length_bytes,
                     bool joins)
{
    if (joins && slot->copy_count > 0) {
        uint32_t last = slot->copy_count - 1;
        if (slot->to[last] + slot->lengths[last] == to &&
            slot->from[last] + slot->lengths[last] == from) {
            slot->lengths[last] += length_bytes;
            return true;
        }
    }
    if (slot->copy_count == CUDA_SLOT_COPIES) {
        return false;
    }
    slot->to[slot->copy_count] = to;
    slot->from[slot->copy_count] = from;
    slot->lengths[slot->copy_count++] = length_bytes;
    return true;
}

/* Adds copies for any host memory; direct: it is added memory, and copies are cut at its slices.
 * Returns the bytes that fit. */
static uint64_t copy_cut(struct cuda_device *cuda, struct cuda_slot *slot, sl_cu_ptr device,
                         unsigned char *host, uint64_t length_bytes, bool direct, bool to_host)
{
    uint64_t done_bytes = 0;
    while (done_bytes < length_bytes) {
        unsigned char *at = host + done_bytes;
        uint64_t run_bytes = length_bytes - done_bytes;
        bool starts = false;
        if (direct) {
            uint64_t slice_bytes = cuda_host_run(cuda, at, &starts);
            SL_ASSERT(slice_bytes > 0);
            run_bytes = SL_MIN(run_bytes, slice_bytes);
        }
        sl_cu_ptr host_at = (uintptr_t)at, device_at = device + done_bytes;
        if (!copy_add(slot, to_host ? host_at : device_at, to_host ? device_at : host_at, run_bytes,
                      !starts)) {
            break;
        }
        done_bytes += run_bytes;
    }
    return done_bytes;
}

/* Adds an item; memory that is not pinned uses the bounce memory. */
static struct cuda_item *item_add(struct cuda_device *cuda, struct cuda_slot *slot,
                                  struct sl_move *move, uint64_t from_bytes, uint64_t length_bytes,
                                  uint64_t bounce_offset_bytes)
{
    struct cuda_item *item = &slot->items[slot->item_count++];
    bool direct = !slot->check && cuda_host_pinned(cuda, move->host + from_bytes, length_bytes);
    *item = (struct cuda_item){
        .move = move,
        .from_bytes = from_bytes,
        .length_bytes = length_bytes,
        .bounce_offset_bytes = direct ? CUDA_DIRECT : bounce_offset_bytes,
        .hash_index = CUDA_NO_HASH,
    };
    if (!direct) {
        cuda->base.stats.bounced_bytes += length_bytes;
    }
    return item;
}

static unsigned char *item_host(const struct cuda_slot *slot, const struct cuda_item *item)
{
    return item->bounce_offset_bytes == CUDA_DIRECT ? item->move->host + item->from_bytes
                                                    : slot->bounce + item->bounce_offset_bytes;
}

/* Whether the slot has room for one more value's digest on the device. */
static bool hash_fits(const struct cuda_device *cuda, const struct cuda_slot *slot,
                      const struct cuda_job *job)
{
    uint64_t chunks = sl_digest_chunks(job->range.length_bytes);
    return job->digests && cuda->kernels.module != NULL && !job->copies_only &&
           (slot->hash_count + 1) * chunks <= cuda->hash_count_max;
}

bool cuda_hash_in_place_ok(const struct cuda_job *job)
{
    const struct sl_layer_table *table = &job->table->host;
    return job->table->hash_in_place &&
           (table->path != SL_PLAN_RUNS || job->range.length_bytes == table->value_bytes);
}

/* The kernels' view of the slot's values. */
static struct sl_swap slot_swap(const struct cuda_slot *slot, const struct cuda_job *job,
                                uint32_t first_layer, uint32_t layer_count)
{
    struct sl_swap swap = sl_plan_swap(&job->table->host, first_layer, layer_count,
                                       (const uint64_t *)(uintptr_t)slot->ring_device,
                                       slot->item_count, (unsigned char *)(uintptr_t)slot->staging);
    swap.value_stride_bytes = sl_align_up(swap.value_bytes, SL_WORD_BYTES);
    /* The host's table was read for sizes; the kernel reads the device's. */
    swap.layers = (const struct sl_swap_layer *)(uintptr_t)job->table->device + first_layer;
    return swap;
}

/* Advances the job by the bytes of the next move that the item has taken. */
static void range_step(struct cuda_job *job, struct cuda_item *item, uint64_t taken_bytes)
{
    job->next_bytes += taken_bytes;
    if (job->next_bytes == job->range.length_bytes) {
        item->last = true;
        job->next_bytes = 0;
        job->next++;
    }
}

/* ---- staged: values lie one after the other in the staging ---- */

static sl_err staged_values(struct cuda_device *cuda, struct cuda_slot *slot, struct cuda_job *job,
                            struct sl_error *why)
{
    const struct sl_plan_range *range = &job->range;
    uint64_t stride_bytes = sl_align_up(range->length_bytes, SL_WORD_BYTES);
    while (job->next < job->count && slot->item_count < CUDA_SLOT_ITEMS &&
           slot->used_bytes + stride_bytes <= cuda->half_bytes) {
        struct sl_move *move = &job->moves[job->next];
        uint32_t copies_before = slot->copy_count;
        slot->ring[slot->item_count] = move->device_block;
        struct cuda_item *item =
            item_add(cuda, slot, move, range->offset_bytes, range->length_bytes, slot->used_bytes);
        if (copy_cut(cuda, slot, slot->staging + slot->used_bytes, item_host(slot, item),
                     range->length_bytes, item->bounce_offset_bytes == CUDA_DIRECT,
                     job->to_host) < range->length_bytes) {
            SL_ASSERT(slot->item_count > 1);
            slot->copy_count = copies_before; /* for the next slot */
            slot->item_count--;
            break;
        }
        item->last = true;
        if (hash_fits(cuda, slot, job)) {
            item->hash_index = slot->hash_count++;
        }
        slot->used_bytes += stride_bytes;
        job->next++;
    }
    struct sl_swap swap =
        slot_swap(slot, job, range->first_layer, range->layer_end - range->first_layer);
    return cuda_slot_send(cuda, slot, job, &swap, why);
}

/* Moves part of a value that is larger than the staging: some layers at a time. */
static sl_err staged_slice(struct cuda_device *cuda, struct cuda_slot *slot, struct cuda_job *job,
                           uint32_t first_layer, struct sl_error *why)
{
    struct sl_move *move = &job->moves[job->next];
    uint32_t layers =
        sl_plan_slice(&job->table->host, first_layer, job->range.layer_end, cuda->half_bytes);
    slot->ring[0] = move->device_block;
    struct sl_swap swap = slot_swap(slot, job, first_layer, layers);
    uint64_t from_bytes = job->range.offset_bytes + job->next_bytes;
    struct cuda_item *item = item_add(cuda, slot, move, from_bytes, swap.value_bytes, 0);
    uint64_t taken = copy_cut(cuda, slot, slot->staging, item_host(slot, item), swap.value_bytes,
                              item->bounce_offset_bytes == CUDA_DIRECT, job->to_host);
    SL_ASSERT(taken == swap.value_bytes);
    slot->used_bytes = swap.value_bytes;
    swap.block_count = 1;
    range_step(job, item, swap.value_bytes);
    return cuda_slot_send(cuda, slot, job, &swap, why);
}

/* ---- copies: one DMA copy per run of a piece, single or in a batch ---- */

/* The layer that byte `at` of a value belongs to. */
static uint32_t layer_at(const struct sl_layer_table *table, uint64_t at_bytes)
{
    uint32_t low = 0, high = table->layer_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (table->layers[middle].value_offset_bytes <= at_bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Adds copies of [from, +length) of a value; returns the bytes that the slot had room for. */
static uint64_t range_add(struct cuda_device *cuda, struct cuda_slot *slot,
                          const struct cuda_job *job, const struct cuda_item *item,
                          uint64_t length_bytes)
{
    const struct sl_layer_table *table = &job->table->host;
    bool whole = table->path == SL_PLAN_RUNS;
    bool direct = item->bounce_offset_bytes == CUDA_DIRECT;
    unsigned char *host = item_host(slot, item);
    uint32_t l = whole ? 0 : layer_at(table, item->from_bytes);
    uint64_t done_bytes = 0;
    while (done_bytes < length_bytes) {
        const struct sl_swap_layer *layer = &table->layers[l++];
        uint64_t at_bytes = item->from_bytes + done_bytes - layer->value_offset_bytes;
        uint64_t left_bytes = (whole ? table->value_bytes : layer->piece_bytes) - at_bytes;
        uint64_t piece_bytes = SL_MIN(left_bytes, length_bytes - done_bytes);
        sl_cu_ptr block = (uintptr_t)layer->base + item->move->device_block * layer->stride_bytes;
        uint64_t taken = 0, run_bytes = 0, run_taken = 0;
        struct sl_swap_cursor at = sl_swap_cursor_of(layer, at_bytes);
        for (; taken < piece_bytes && run_taken == run_bytes; taken += run_taken) {
            run_bytes = whole ? piece_bytes : SL_MIN(at.left_bytes, piece_bytes - taken);
            run_taken = copy_cut(cuda, slot, block + at.offset_bytes, host + done_bytes + taken,
                                 run_bytes, direct, job->to_host);
            sl_swap_cursor_next(layer, &at, run_taken);
        }
        done_bytes += taken;
        if (taken < piece_bytes) {
            break;
        }
    }
    return done_bytes;
}

/* Whether the next value waits for the next slot: cut in two, the processor must digest it. */
static bool kept_whole(const struct cuda_device *cuda, const struct cuda_slot *slot,
                       const struct cuda_job *job)
{
    uint64_t length_bytes = job->range.length_bytes;
    return cuda_hash_in_place_ok(job) && hash_fits(cuda, slot, job) && job->next_bytes == 0 &&
           slot->used_bytes > 0 && length_bytes <= cuda->half_bytes &&
           length_bytes > cuda->half_bytes - slot->used_bytes;
}

static sl_err copied(struct cuda_device *cuda, struct cuda_slot *slot, struct cuda_job *job,
                     struct sl_error *why)
{
    const struct sl_plan_range *range = &job->range;
    while (job->next < job->count && slot->item_count < CUDA_SLOT_ITEMS &&
           slot->copy_count < CUDA_SLOT_COPIES && slot->used_bytes < cuda->half_bytes &&
           !kept_whole(cuda, slot, job)) {
        struct sl_move *move = &job->moves[job->next];
        uint64_t length_bytes =
            SL_MIN(range->length_bytes - job->next_bytes, cuda->half_bytes - slot->used_bytes);
        struct cuda_item *item = item_add(cuda, slot, move, range->offset_bytes + job->next_bytes,
                                          length_bytes, slot->used_bytes);
        uint64_t taken = range_add(cuda, slot, job, item, length_bytes);
        if (taken == 0) {
            slot->item_count--;
            break;
        }
        item->length_bytes = taken;
        slot->used_bytes += taken;
        if (cuda_hash_in_place_ok(job) && taken == range->length_bytes &&
            hash_fits(cuda, slot, job)) {
            slot->ring[slot->hash_count] = move->device_block;
            item->hash_index = slot->hash_count++;
        }
        range_step(job, item, taken);
        if (!item->last) {
            break;
        }
    }
    struct sl_swap swap =
        slot_swap(slot, job, range->first_layer, range->layer_end - range->first_layer);
    return cuda_slot_send(cuda, slot, job, &swap, why);
}

/* ---- mapped: a kernel accesses pinned memory ---- */

static sl_err mapped(struct cuda_device *cuda, struct cuda_slot *slot, struct cuda_job *job,
                     struct sl_error *why)
{
    const struct sl_plan_range *range = &job->range;
    uint64_t stride_bytes = sl_align_up(range->length_bytes, SL_WORD_BYTES);
    while (job->next < job->count && slot->item_count < CUDA_SLOT_ITEMS &&
           slot->used_bytes + stride_bytes <= cuda->half_bytes) {
        struct sl_move *move = &job->moves[job->next];
        slot->ring[slot->item_count] = move->device_block;
        struct cuda_item *item =
            item_add(cuda, slot, move, range->offset_bytes, range->length_bytes, slot->used_bytes);
        slot->ring[CUDA_SLOT_ITEMS + slot->item_count - 1] = (uintptr_t)item_host(slot, item);
        item->last = true;
        if (cuda_hash_in_place_ok(job) && hash_fits(cuda, slot, job)) {
            item->hash_index = slot->hash_count++;
        }
        slot->used_bytes += stride_bytes;
        job->next++;
    }
    struct sl_swap swap =
        slot_swap(slot, job, range->first_layer, range->layer_end - range->first_layer);
    swap.values = NULL; /* offsets are addresses */
    swap.value_offsets = (const uint64_t *)(uintptr_t)slot->ring_device + CUDA_SLOT_ITEMS;
    return cuda_slot_send(cuda, slot, job, &swap, why);
}

/* ---- the job ---- */

void cuda_ways(const struct cuda_device *cuda, const struct cuda_job *job, bool *possible)
{
    bool fits = sl_align_up(job->range.length_bytes, SL_WORD_BYTES) <= cuda->half_bytes;
    /* If the GPU cannot digest a block that is only copied, the detour through staging costs less
     * than digesting on the processor. While an engine computes, it costs the engine more. */
    bool kernels = cuda->kernels.module != NULL;
    bool plain =
        !job->digests || !kernels || job->copies_only || cuda_hash_in_place_ok(job) || !fits;
    possible[SL_WAY_COPIES] = plain;
    possible[SL_WAY_BATCH] = plain && cuda->batch_works;
    possible[SL_WAY_STAGED] = kernels && (fits || job->table->host.path != SL_PLAN_RUNS);
    possible[SL_WAY_MAPPED] = kernels && plain && fits && cuda->host_pointers;
}

/* Sends the next part of the job that fits a slot. */
static sl_err job_step(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why)
{
    const struct sl_layer_table *table = &job->table->host;
    struct cuda_slot *slot = NULL;
    sl_err err = cuda_slot_take(cuda, job, &slot, why);
    if (err != SL_OK) {
        return err;
    }
    if (job->way == SL_WAY_MAPPED) {
        return mapped(cuda, slot, job, why);
    }
    if (job->way == SL_WAY_STAGED) {
        if (sl_align_up(job->range.length_bytes, SL_WORD_BYTES) <= cuda->half_bytes) {
            return staged_values(cuda, slot, job, why);
        }
        uint64_t at_bytes = job->range.offset_bytes + job->next_bytes;
        uint32_t layer = layer_at(table, at_bytes);
        if (table->layers[layer].piece_bytes <= cuda->half_bytes &&
            table->layers[layer].value_offset_bytes == at_bytes) {
            return staged_slice(cuda, slot, job, layer, why);
        }
        struct cuda_job one = *job; /* a single piece larger than the staging: copied */
        one.way = SL_WAY_COPIES;
        one.count = one.next + 1;
        err = copied(cuda, slot, &one, why);
        job->next = one.next;
        job->next_bytes = one.next_bytes;
        return err;
    }
    return copied(cuda, slot, job, why);
}

sl_err cuda_move_by(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why)
{
    sl_err err = SL_OK;
    while (err == SL_OK && job->next < job->count) {
        err = job_step(cuda, job, why);
    }
    return err;
}

void cuda_job_way(const struct cuda_device *cuda, struct cuda_job *job)
{
    const struct sl_layer_table *table = &job->table->host;
    struct sl_crossover_job shape = {
        .to_host = job->to_host,
        .follows = cuda_slots_busy(cuda),
        .computes = job->copies_only,
        .runs = sl_plan_host_runs(job->moves, job->count, job->range.length_bytes)};
    if (table->path != SL_PLAN_RUNS) {
        shape.pieces = (uint64_t)job->count * sl_plan_fragments(table, &job->range);
    } else if (job->range.length_bytes < table->value_bytes) {
        shape.pieces = job->count;
    } else {
        for (uint32_t i = 0; i < job->count; shape.pieces++) {
            i += sl_plan_run(table, job->moves + i, job->count - i);
        }
    }
    uint64_t all_bytes = job->count * job->range.length_bytes;
    shape.piece_bytes = all_bytes / SL_MAX(shape.pieces, UINT64_C(1));
    shape.run_bytes = all_bytes / shape.runs;
    cuda_ways(cuda, job, shape.possible);
    job->way = sl_crossover_choose(&cuda->crossover, &shape);
}

static sl_err moves_check(const struct cuda_device *cuda, struct sl_move *moves, uint32_t count,
                          struct sl_error *why)
{
    struct sl_plan_range range;
    for (uint32_t i = 0; i < count; i++) {
        moves[i].done = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = moves[i].layers_index;
        if (index >= cuda->table_count || cuda->tables[index].host.layers == NULL) {
            return sl_fail(why, SL_ERR_INVALID, "move %u: layer table %u is unknown", i, index);
        }
        if (moves[i].device_block >= cuda->tables[index].host.block_count) {
            return sl_fail(why, SL_ERR_INVALID, "move %u: device block %" PRIu64 " of %" PRIu64, i,
                           moves[i].device_block, cuda->tables[index].host.block_count);
        }
        sl_err err = sl_plan_range_of(&cuda->tables[index].host, &moves[i], &range, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* Sends all moves, grouped by equal layers, until all are in flight. */
static sl_err moves_send(struct cuda_device *cuda, struct sl_move *moves, uint32_t count,
                         const struct cuda_job *like, struct sl_error *why)
{
    bool copies_only = cuda_watch_computes(cuda);
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < count;) {
        struct cuda_job job = *like;
        job.table = &cuda->tables[moves[i].layers_index];
        job.moves = moves + i;
        job.count = sl_plan_same(moves + i, count - i);
        job.copies_only = copies_only;
        err = sl_plan_range_of(&job.table->host, &moves[i], &job.range, why);
        if (err == SL_OK && job.table->host.remote != 0) {
            err = cuda_plain_by(cuda, &job, why);
        } else if (err == SL_OK && job.check) {
            err = cuda_check_by(cuda, &job, why);
        } else if (err == SL_OK) {
            cuda_job_way(cuda, &job);
            err = cuda_move_by(cuda, &job, why);
        }
        i += job.count;
    }
    return err;
}

/* Returns the error that an earlier call kept. */
static sl_err late_error(struct cuda_device *cuda, struct sl_error *why)
{
    sl_err err = cuda->late.code;
    if (err != SL_OK && why != NULL) {
        *why = cuda->late;
    }
    cuda->late = (struct sl_error){0};
    return err;
}

sl_err cuda_slice_begin(struct cuda_device *cuda, struct sl_move *moves, uint32_t count,
                        const struct cuda_job *like, struct sl_error *why)
{
    sl_err err = late_error(cuda, why);
    sl_err checked = moves_check(cuda, moves, count, err == SL_OK ? why : NULL);
    if (err == SL_OK) {
        err = checked;
    }
    if (err == SL_OK) {
        err = cuda_enter(cuda, why);
    }
    if (err == SL_OK) {
        err = moves_send(cuda, moves, count, like, why);
    }
    if (err == SL_OK) {
        err = cuda_slots_finish(cuda, false, why);
    }
    if (err != SL_OK) {
        cuda_slots_drop(cuda, &err, why);
    }
    return err;
}

sl_err cuda_move_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                       bool to_host, bool digests, struct sl_error *why)
{
    struct cuda_job like = {.to_host = to_host, .digests = digests && to_host};
    return cuda_slice_begin(cuda_of(device), moves, count, &like, why);
}

sl_err cuda_move_end(struct sl_device *device, bool wait, struct sl_error *why)
{
    struct cuda_device *cuda = cuda_of(device);
    sl_err err = late_error(cuda, why);
    if (err == SL_OK && device->slices_done < device->slices_begun) {
        err = cuda_enter(cuda, why);
        if (err == SL_OK) {
            err = cuda_slots_finish(cuda, wait, why);
        }
    }
    if (err != SL_OK) {
        cuda_slots_drop(cuda, &err, why);
    }
    return err;
}

sl_err cuda_move(struct sl_device *device, struct sl_move *moves, uint32_t count, bool to_host,
                 bool digests, struct sl_error *why)
{
    sl_err err = sl_device_move_begin(device, moves, count, to_host, digests, why);
    return err == SL_OK ? cuda_move_end(device, true, why) : err;
}
