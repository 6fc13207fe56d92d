/* actors/swapper/slices.c - slices of COPYs: fills them with parts, and takes their results. */
#include "actors/swapper/internal.h"
#include "ipc/shm/sl_index.h"

#include <string.h>

struct extent { /* the range of a part to copy */
    uint64_t from, end;
};

const struct sw_part *sw_item_part(const struct sw_engine *engine, const struct sl_item_piece *item)
{
    bool parts = item->pool < SW_POOLS_MAX && engine->pools[item->pool].part_count > 0;
    return sw_engine_part(engine, item->pool, parts ? item->part : 0);
}

/* The item was checked. */
static struct extent item_extent(const struct sw_engine *engine, const struct sl_item_piece *item)
{
    const struct sw_part *part = sw_item_part(engine, item);
    SL_ASSERT(part != NULL);
    uint64_t end = item->layer_end != 0 ? part->layer_offsets[item->layer_end] : part->value_bytes;
    return (struct extent){.from = part->layer_offsets[item->first_layer], .end = end};
}

struct sl_digest_span sw_item_span(const struct sw_engine *engine, const struct sl_item_piece *item)
{
    struct extent extent = item_extent(engine, item);
    return sl_digest_span_of(extent.from, extent.end, item->length_bytes);
}

/* ---- start ---- */

/* Fills the job's next slice with parts that may still be written. Gives their bytes. */
static uint64_t slice_pick(struct swapper *self, struct sw_slice *slice, struct sw_job *job,
                           const struct sw_engine *engine)
{
    const struct sl_device *device = self->memory.device;
    uint64_t bytes = 0, runs = 0;
    slice->count = 0;
    for (uint32_t looked = 0; job->next_item < job->item_count; looked++) {
        uint32_t i = job->next_item;
        const struct sl_item_piece *item = &job->items[i];
        struct extent extent = item_extent(engine, item);
        struct sw_slice_part part = {
            .item = i, .bytes = extent.end - extent.from, .chunk_at = job->chunk_at};
        const struct sw_part *of = sw_item_part(engine, item);
        if (sl_device_slice_full(device, looked, bytes, part.bytes) ||
            (runs > 0 && runs + of->runs > SL_DEVICE_SLICE_RUNS_MAX)) {
            break;
        }
        runs += of->runs;
        job->next_item++;
        if (job->chunked) {
            part.span = sw_item_span(engine, item);
            job->chunk_at += part.span.count * sizeof(uint64_t);
        }
        /* A claim that ends before the slice does is quarantined. Its extent is reused only after
         * this actor has answered a FENCE, which waits for the slice. */
        if (job->out && !job->looks &&
            !sl_index_claim_exists(self->view, (sl_ref)item->ref, item->generation)) {
            sl_metric_add(self->env->metrics, self->metrics.claims_gone, 1);
            continue;
        }
        /* The arena was checked, but may have been replaced since. */
        const struct sl_arena *arena = self->memory.arena;
        unsigned char *host = arena == NULL || job->looks
                                  ? NULL
                                  : sl_arena_at(arena, item->offset_bytes, item->length_bytes);
        if (host == NULL && !job->looks) {
            continue;
        }
        bytes += part.bytes;
        slice->parts[slice->count] = part;
        slice->moves[slice->count++] = (struct sl_move){
            .host = host,
            .device_block = item->device_block,
            .layers_index = of->layers_index,
            .first_layer = (uint32_t)item->first_layer,
            .layer_end = (uint32_t)item->layer_end,
        };
    }
    return bytes;
}

/* Order in which moves of the same layers are adjacent. */
static bool move_before(const struct sl_move *a, const struct sl_move *b)
{
    if (a->layers_index != b->layers_index) {
        return a->layers_index < b->layers_index;
    }
    return a->first_layer != b->first_layer ? a->first_layer < b->first_layer
                                            : a->layer_end < b->layer_end;
}

/* Items are ordered by block, each with all its pools and parts. The device moves equal layers
 * together, with one kernel. A stable merge sort of up to 1024 moves; ordered ones stay as they
 * are. */
static void slice_order(struct sw_slice *slice)
{
    uint16_t order[SL_DEVICE_SLICE_MOVES_MAX], merged[SL_DEVICE_SLICE_MOVES_MAX];
    bool in_order = true;
    for (uint32_t i = 0; i < slice->count; i++) {
        order[i] = (uint16_t)i;
        in_order &= i == 0 || !move_before(&slice->moves[i], &slice->moves[i - 1]);
    }
    if (in_order) {
        return;
    }
    for (uint32_t width = 1; width < slice->count; width *= 2) {
        for (uint32_t from = 0; from < slice->count; from += 2 * width) {
            uint32_t middle = SL_MIN(from + width, slice->count);
            uint32_t end = SL_MIN(from + 2 * width, slice->count), a = from, b = middle;
            for (uint32_t i = from; i < end; i++) {
                bool second = a == middle || (b < end && move_before(&slice->moves[order[b]],
                                                                     &slice->moves[order[a]]));
                merged[i] = order[second ? b++ : a++];
            }
        }
        memcpy(order, merged, slice->count * sizeof(*order));
    }
    for (uint32_t i = 0; i < slice->count; i++) { /* follows each cycle of the permutation once */
        struct sl_move move = slice->moves[i];
        struct sw_slice_part part = slice->parts[i];
        uint32_t to = i;
        while (order[to] != to) {
            uint32_t from = order[to];
            order[to] = (uint16_t)to;
            if (from == i) {
                slice->moves[to] = move;
                slice->parts[to] = part;
                break;
            }
            slice->moves[to] = slice->moves[from];
            slice->parts[to] = slice->parts[from];
            to = from;
        }
    }
}

struct sw_slice *sw_slice_next(struct swapper *self)
{
    SL_ASSERT(self->slice_count < SL_DEVICE_SLICES_MAX + 1);
    struct sw_slice *slice =
        &self->slices[(self->first_slice + self->slice_count) % SL_COUNT(self->slices)];
    slice->check = false;
    return slice;
}

void sw_slice_send(struct swapper *self, struct sw_slice *slice, struct sw_job *job,
                   struct sl_error *why)
{
    struct sl_device *device = self->memory.device;
    if (slice->count == 0) {
        return;
    }
    slice_order(slice);
    slice->job = job;
    job->slices++;
    self->slice_count++;
    self->memory.slices_use_arena = true;
    sl_err err = slice->check ? sl_device_digest_begin(device, slice->moves, slice->count, why)
                              : sl_device_move_begin(device, slice->moves, slice->count, job->out,
                                                     job->out && !job->chunked, why);
    slice->number = device->slices_begun;
    sw_slices_over(self, err, why);
}

sl_err sw_slice_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                      uint64_t *bytes, struct sl_error *why)
{
    struct sw_slice *slice = sw_slice_next(self);
    slice->check = job->looks;
    *bytes = slice_pick(self, slice, job, engine);
    sw_slice_send(self, slice, job, why);
    return SL_OK; /* an error belongs to each job that lost parts by it */
}

/* ---- end ---- */

static void put_u64(unsigned char *out, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

/* Hashes chunks that are complete now. A chunk may begin with layers that were copied earlier,
 * which are in the extent under the same claim. The rest was just copied and is in the cache. */
static void chunks_hash(struct sw_job *job, const struct sw_slice_part *part,
                        const struct sl_move *move)
{
    const struct sl_item_piece *item = &job->items[part->item];
    for (uint64_t i = 0; i < part->span.count; i++) {
        uint64_t at = (part->span.first + i) * SL_DIGEST_CHUNK_BYTES;
        put_u64(job->chunks + part->chunk_at + i * sizeof(uint64_t),
                sl_digest_chunk(move->host + at,
                                SL_MIN(item->length_bytes - at, (uint64_t)SL_DIGEST_CHUNK_BYTES)));
    }
}

/* Gives the job its results; err: why they are incomplete. */
static void slice_over(struct sw_slice *slice, sl_err err, const struct sl_error *why)
{
    struct sw_job *job = slice->job;
    uint32_t done_count = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct sw_slice_part *part = &slice->parts[i];
        const struct sl_move *move = &slice->moves[i];
        uint32_t item = part->item;
        if (move->done == 0) {
            continue;
        }
        done_count++;
        job->done[item >> 3] = (unsigned char)(job->done[item >> 3] | 1u << (item & 7));
        job->bytes += part->bytes;
        if (job->chunked) {
            chunks_hash(job, part, move);
        } else if (job->out) {
            put_u64(job->digests + (size_t)item * 16, move->digest.low);
            put_u64(job->digests + (size_t)item * 16 + 8, move->digest.high);
        }
    }
    job->done_count += done_count;
    job->slices--;
    if (done_count < slice->count && job->code == SL_OK) {
        SL_ASSERT(err != SL_OK);
        job->code = err;
        if (why != NULL) {
            job->why = *why;
        }
    }
}

void sw_slices_over(struct swapper *self, sl_err err, const struct sl_error *why)
{
    while (self->slice_count > 0) {
        struct sw_slice *slice = &self->slices[self->first_slice];
        if (slice->number > self->memory.device->slices_done) {
            break;
        }
        if (slice->check && !slice->job->looks) {
            sw_verify_over(self, slice, err, why);
        } else {
            slice_over(slice, err, why);
        }
        self->first_slice = (self->first_slice + 1) % SL_COUNT(self->slices);
        self->slice_count--;
    }
    self->memory.slices_use_arena = self->slice_count > 0;
    if (sl_err_class(err) == SL_CLASS_RESTART) {
        self->fatal = err;
    }
}

void sw_slices_end(struct swapper *self, bool wait)
{
    struct sl_error why = {0};
    if (self->slice_count > 0) {
        sl_err err = sl_device_move_end(self->memory.device, wait, &why);
        sw_slices_over(self, err, &why);
    }
}
