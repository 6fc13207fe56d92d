/* actors/coordinator/direct.c - hand-overs without storage: decode's transporter reads blocks from
 * prefill's pools into decode's.
 *
 * Decode makes a ticket, asks its transporter for the blocks under it (BRING), and waits. Prefill's
 * swappers look at its blocks, and its transporter lends them to decode's node (LEND). Prefill is
 * done when decode's coordinator has acknowledged all blocks. Blocks that cannot go directly, or
 * fail, go through storage if the setting handover_fallback allows it.
 *
 * The transporter accesses device blocks until it reports the end of its work. An op that ends
 * earlier fences it before the blocks are reused. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>

bool co_direct_falls_back(const struct coordinator *self)
{
    return sl_config_bool(self->env->config, SL_SET_handover_fallback);
}

void co_direct_fallback_note(struct coordinator *self, struct co_op *op)
{
    co_count(self, self->metric.handover_fallback_count, 1);
    sl_log_write(self->env->log, self->pulls ? SL_LOG_INFO : SL_LOG_DEBUG, op->trace_id,
                 "hand-over %016" PRIx64 " uses storage: %s", op->handover_id, op->reason);
    op->reason[0] = '\0';
}

/* Whether these blocks can go directly; if not, the op gets the reason. */
static sl_err may_go(const struct coordinator *self, struct co_op *op, uint32_t block_count)
{
    const struct co_engine *engine = op->engine;
    bool load = op->type->kind == CO_LOAD;
    uint64_t parts = block_count * (uint64_t)engine->part_count;
    uint64_t slots = load ? block_count * (uint64_t)co_block_pool_slots(engine) : 0;
    if (!self->pulls || (load && engine->direct_again_ns > self->env->now_ns)) {
        co_reason(op, "the pools are not in the fabric, or were refused recently");
        return SL_ERR_UNSUPPORTED;
    }
    /* The transporter does not know events of streams; at prefill, LEND follows the swappers' look.
     * Nor does it know which layers an earlier coordinator has reported. */
    if (load && (op->event_count > 0 || op->layers.in > 0)) {
        co_reason(op, "the blocks wait for events, or some layers were reported before");
        return SL_ERR_UNSUPPORTED;
    }
    if (parts > CO_SLICE_PARTS_MAX || slots > co_pool_slots_max(self)) {
        co_reason(op, "%" PRIu64 " parts are too many for one direct hand-over", parts);
        return SL_ERR_LIMIT;
    }
    return SL_OK;
}

bool co_direct_start(struct coordinator *self, struct co_op *op, uint32_t first)
{
    uint32_t count = op->block_count - first;
    sl_err err = may_go(self, op, count);
    if (err != SL_OK) {
        op->type->direct_failed(self, op, err);
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

void co_direct_mark_in_use(struct coordinator *self, struct co_op *op)
{
    struct co_share *share = &op->shares[CO_TRANSPORTER];
    op->direct.device_in_use = true;
    co_rank_identify(self, CO_TRANSPORTER);
    share->proc = self->ranks[CO_TRANSPORTER].proc;
    share->sent_ns = self->env->now_ns;
}

bool co_direct_call(struct coordinator *self, struct co_op *op, struct sl_msg *msg)
{
    co_count(self, self->metric.straight_count, !op->direct.device_in_use);
    co_direct_mark_in_use(self, op);
    return co_op_call(self, op, "transporter.0", msg);
}

void co_direct_over(struct coordinator *self, struct co_op *op,
                    void (*then)(struct coordinator *self, struct co_op *op))
{
    if (op->direct.device_in_use && !co_share_is_settled(self, &op->shares[CO_TRANSPORTER])) {
        co_direct_settle(self, op, then);
    } else {
        op->direct.device_in_use = false;
        then(self, op);
    }
}

void co_direct_settle(struct coordinator *self, struct co_op *op,
                      void (*then)(struct coordinator *self, struct co_op *op))
{
    co_call_forget(self, &op->call_seq); /* resent after the fence, it would start work again */
    op->direct.device_in_use = false;
    op->unsettled |= co_worker_bit(CO_TRANSPORTER);
    co_settle(self, op, co_worker_bit(CO_TRANSPORTER), then);
}

bool co_direct_is_refusal(const struct coordinator *self, sl_err code)
{
    bool refusal = code == SL_ERR_UNSUPPORTED || code == SL_ERR_NOT_FOUND || code == SL_ERR_LIMIT ||
                   code == SL_ERR_INVALID;
    co_count(self, self->metric.straight_refused_count, refusal);
    return refusal;
}
