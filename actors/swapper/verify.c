/* actors/swapper/verify.c - digests loaded blocks on the device, and compares them with what was
 * stored (load_verify). This finds what checksums on the way cannot: a copy that went wrong or to
 * another place, or memory that lost it. */
#include "actors/swapper/internal.h"

#include <inttypes.h>
#include <string.h>

#define SAMPLE_SHARE 32u /* verifies one of this many bytes */

void sw_verify_init(struct swapper *self)
{
    const char *text = sl_config_text(self->env->config, SL_SET_load_verify);
    self->verify.automatic = strcmp(text, "auto") == 0;
    self->verify.share = strcmp(text, "off") == 0   ? 0
                         : strcmp(text, "all") == 0 ? 1
                                                    : SAMPLE_SHARE; /* sample, auto */
}

/* Whether to verify the item: shares add up over jobs. */
static bool item_is_due(struct swapper *self, const struct sw_job *job, uint32_t i)
{
    const struct sl_item_piece *item = &job->items[i];
    bool done = ((uint32_t)job->done[i >> 3] >> (i & 7) & 1u) != 0;
    bool has_digest = (item->digest_low | item->digest_high) != 0 && item->layer_end == 0;
    if (!done || !has_digest || self->verify.share == 0) {
        return false;
    }
    if (job->verify_all) {
        return true;
    }
    self->verify.due_bytes += item->length_bytes;
    if (self->verify.due_bytes < item->length_bytes * self->verify.share) {
        return false;
    }
    self->verify.due_bytes -= item->length_bytes * self->verify.share;
    return true;
}

/* Moves to the next item to verify. Each item is decided once. */
static bool verify_next(struct swapper *self, struct sw_job *job)
{
    if (job->verified == 0 && !job->verify_due) {
        job->verify_all = self->verify.automatic && sl_device_digest_cheap(self->memory.device);
    }
    while (!job->verify_due && job->verified < job->item_count) {
        job->verify_due = item_is_due(self, job, job->verified);
        job->verified += !job->verify_due;
    }
    return job->verify_due;
}

bool sw_verify_left(struct swapper *self, struct sw_job *job)
{
    bool moved = job->checked && job->next_item == job->item_count;
    bool begun = job->verified > 0 || job->verify_due; /* then its slices are checks */
    if (job->out || !moved || (!begun && (job->slices > 0 || job->code != SL_OK)) ||
        self->fatal != SL_OK) { /* a wrong part does not spare the others */
        return false;
    }
    const struct sw_engine *engine = sw_engine_find(self, job->engine_id);
    return engine != NULL && verify_next(self, job);
}

uint64_t sw_verify_begin(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                         struct sl_error *why)
{
    struct sl_device *device = self->memory.device;
    struct sw_slice *slice = sw_slice_next(self);
    uint64_t bytes = 0, runs = 0, bounced_bytes = device->stats.bounced_bytes;
    slice->check = true;
    slice->count = 0;
    while (verify_next(self, job)) {
        const struct sl_item_piece *item = &job->items[job->verified];
        const struct sw_part *part = sw_item_part(engine, item);
        SL_ASSERT(part != NULL); /* the COPY was checked */
        if (sl_device_slice_full(device, slice->count, bytes, item->length_bytes) ||
            (runs > 0 && runs + part->runs > SL_DEVICE_SLICE_RUNS_MAX)) {
            break;
        }
        bytes += item->length_bytes;
        runs += part->runs;
        slice->parts[slice->count] =
            (struct sw_slice_part){.item = job->verified, .bytes = item->length_bytes};
        slice->moves[slice->count++] = (struct sl_move){.device_block = item->device_block,
                                                        .layers_index = part->layers_index};
        job->verify_due = false;
        job->verified++;
    }
    sw_slice_send(self, slice, job, why);
    return device->stats.bounced_bytes - bounced_bytes;
}

/* Whether the value itself is wrong, not only its copy. Its reader has pinned it. */
static bool value_is_damaged(struct swapper *self, const struct sl_item_piece *item)
{
    const struct sl_arena *arena = self->memory.arena;
    const unsigned char *value =
        arena == NULL ? NULL : sl_arena_at(arena, item->offset_bytes, item->length_bytes);
    if (value == NULL || item->ref == 0) {
        return false;
    }
    struct sl_digest digest = sl_digest_of(value, item->length_bytes);
    return digest.low != item->digest_low || digest.high != item->digest_high;
}

/* The registrar then reads the value from disk, or drops it, so that a store writes it again. If no
 * call is free, the damage will be found again. */
static void damaged_notify(struct swapper *self, const struct sw_job *job,
                           const struct sl_item_piece *item)
{
    struct sl_env *env = self->env;
    struct sl_item_claim claim = {.ref = item->ref,
                                  .generation = item->generation,
                                  .digest_low = item->digest_low,
                                  .digest_high = item->digest_high};
    struct sl_msg msg = {.type = SL_MSG_DAMAGED, .trace_id = job->back.trace_id};
    msg.body.damaged.items.at = &claim;
    msg.body.damaged.items.count = 1;
    uint64_t timeout_ns = sl_config_u64(env->config, SL_SET_op_timeout);
    (void)sl_calls_send(self->calls, "registrar", &msg, sl_deadline_ns(env->now_ns, timeout_ns), 0,
                        NULL);
    sl_metric_add(env->metrics, self->metrics.damaged, 1);
}

/* Marks the part as not done. */
static void part_fail(struct sw_job *job, uint32_t i, sl_err err, const struct sl_error *why)
{
    job->done[i >> 3] = (unsigned char)((uint32_t)job->done[i >> 3] & ~(1u << (i & 7)));
    job->done_count--;
    if (job->code == SL_OK) {
        job->code = err;
        if (why != NULL) {
            job->why = *why;
        }
    }
}

void sw_verify_over(struct swapper *self, struct sw_slice *slice, sl_err err,
                    const struct sl_error *why)
{
    struct sw_job *job = slice->job;
    struct sl_env *env = self->env;
    job->slices--;
    for (uint32_t k = 0; k < slice->count; k++) {
        const struct sl_move *move = &slice->moves[k];
        uint32_t i = slice->parts[k].item;
        const struct sl_item_piece *item = &job->items[i];
        struct sl_digest stored = {.low = item->digest_low, .high = item->digest_high};
        if (move->done == 0) {
            SL_ASSERT(err != SL_OK);
            part_fail(job, i, err, why);
            continue;
        }
        sl_metric_add(env->metrics, self->metrics.verified, 1);
        sl_metric_add(env->metrics, self->metrics.verified_bytes, item->length_bytes);
        if (!sl_digest_equal(move->digest, stored)) {
            struct sl_error wrong = {0};
            sl_err corrupt = sl_fail(&wrong, SL_ERR_CORRUPT,
                                     "device block %" PRIu64 ", pool %" PRIu64
                                     ": the data differ from what was stored",
                                     item->device_block, item->pool);
            sl_metric_add(env->metrics, self->metrics.corrupt, 1);
            bool damaged = value_is_damaged(self, item);
            sl_log_write(env->log, SL_LOG_ERROR, job->back.trace_id, "%s%s", wrong.text,
                         damaged ? "; the value in memory is damaged as well" : "");
            if (damaged) {
                damaged_notify(self, job, item);
            }
            part_fail(job, i, corrupt, &wrong);
        }
    }
}
