/* actors/coordinator/push.c - hand-overs without storage: prefill's transporter writes from the pools of
 * its node straight into decode's.
 *
 * Decode opens a ticket for the device blocks of its LOAD and waits. Prefill's swappers look at its
 * blocks, and its transporter writes them under the ticket; it has handed over when decode's
 * coordinator has acknowledged all. Then the ticket is closed. What cannot be pushed, and a push that fails, goes
 * through storage when the setting handover_push_fallback says so.
 *
 * The transporter touches device blocks. They are lent to it until the ticket was closed, or every
 * batch acknowledged; else it is fenced before they are given back. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>

bool co_push_falls_back(const struct coordinator *self)
{
    return sl_config_bool(self->env->config, SL_SET_handover_push_fallback);
}

void co_push_fallback_note(struct coordinator *self, struct co_op *op)
{
    co_count(self, self->metric.handover_fallback_count, 1);
    sl_log_write(self->env->log, self->pulls ? SL_LOG_INFO : SL_LOG_DEBUG, op->trace_id,
                 "hand-over %016" PRIx64 " goes through storage: %s", op->handover_id, op->reason);
    op->reason[0] = '\0';
}

/* Whether these blocks can be pushed; if not, the op has a reason. */
static sl_err may_push(const struct coordinator *self, struct co_op *op, uint32_t block_count)
{
    const struct co_engine *engine = op->engine;
    bool load = op->type->kind == CO_LOAD;
    uint64_t parts = block_count * (uint64_t)engine->part_count;
    uint64_t spots = load ? block_count * (uint64_t)co_block_spots(engine) : 0;
    if (!self->pulls || (load && engine->push_again_ns > self->env->now_ns)) {
        co_reason(op, "the pools are not in the fabric, or were not a moment ago");
        return SL_ERR_UNSUPPORTED;
    }
    /* A writer elsewhere knows no events of streams; at prefill the swappers' look comes behind. Nor
     * does it know which layers a coordinator before us has told. */
    if (load && (op->event_count > 0 || op->layers.in > 0)) {
        co_reason(op, "the blocks wait for events, or layers of them were told before");
        return SL_ERR_UNSUPPORTED;
    }
    if (parts > CO_SLICE_PARTS_MAX || spots > co_spots_max(self)) {
        co_reason(op, "%" PRIu64 " parts are too many to be pushed at once", parts);
        return SL_ERR_LIMIT;
    }
    return SL_OK;
}

bool co_push_start(struct coordinator *self, struct co_op *op, uint32_t first)
{
    uint32_t count = op->block_count - first;
    sl_err err = may_push(self, op, count);
    if (err != SL_OK) {
        op->type->push_failed(self, op, err);
        return false;
    }
    co_memory_reset(&op->work);
    op->slice = co_memory_take(&op->work, count, sizeof(*op->slice));
    if (op->slice == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        op->slice[i] = first + i;
    }
    return co_slice_make(self, op, count);
}

void co_push_lent(struct coordinator *self, struct co_op *op)
{
    if (!op->push.lent) {
        op->push.lent = true;
        co_count(self, self->metric.straight_count, 1);
    }
}

bool co_push_refused(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (code != SL_ERR_UNSUPPORTED && code != SL_ERR_NOT_FOUND && code != SL_ERR_LIMIT &&
        code != SL_ERR_INVALID) {
        return false;
    }
    op->push.lent = false; /* nothing was begun */
    co_count(self, self->metric.straight_refused_count, 1);
    return true;
}
