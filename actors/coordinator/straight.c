/* actors/coordinator/straight.c - pushes straight between pools: what the transporter writes to at decode
 * are the device blocks of its LOAD, and what it reads at prefill are those of its STORE. Each side
 * decides for itself, and goes by extents where its pools are not in the fabric.
 *
 * The transporter touches device blocks then. They are lent to it until the ticket was closed, or
 * every batch acknowledged; else it is fenced before they are given back. */
#include "actors/coordinator/internal.h"

bool co_straight_may(const struct coordinator *self, const struct co_op *op, uint32_t block_count)
{
    const struct co_engine *engine = op->engine;
    bool load = op->type->kind == CO_LOAD;
    /* A writer elsewhere knows no events of streams; at prefill the swappers' look comes behind. Nor
     * does it know which layers a coordinator before us has told. */
    bool early = load && (op->event_count > 0 || op->layers.in > 0);
    return self->pulls && !early && !op->push.straight_barred &&
           engine->push_again_ns <= self->env->now_ns &&
           (!load || (uint64_t)block_count * co_block_spots(engine) <= co_spots_max(self));
}

bool co_straight_open(struct coordinator *self, struct co_op *op, struct sl_body_push_open *open)
{
    uint32_t part_total = op->slice_count * op->engine->part_count, spot_count = 0;
    uint64_t *lengths = co_memory_take(&op->work, part_total, sizeof(*lengths));
    struct sl_item_spot *spots = lengths != NULL ? co_spots_make(op, 0, &spot_count) : NULL;
    if (spots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        lengths[i] = co_cut_of(op, i)->length_bytes;
    }
    open->lengths = (struct sl_u64s){.at = lengths, .count = part_total};
    open->spots.at = spots;
    open->spots.count = spot_count;
    if (op->handover->prefill_here || op->handover->send != NULL) {
        open->from = sl_text_of(self->node); /* it is not asked for what only a NIC writes to */
    }
    op->push.lent = true;
    op->handover->straight = true;
    sl_metric_add(self->env->metrics, self->metric.straight_count, 1);
    return true;
}

bool co_straight_refused(struct coordinator *self, struct co_op *op, sl_err code)
{
    bool none = code == SL_ERR_UNSUPPORTED || code == SL_ERR_NOT_FOUND || code == SL_ERR_LIMIT ||
                code == SL_ERR_INVALID;
    if (!op->push.straight || !none) {
        return false;
    }
    op->push.straight = false;
    op->push.straight_barred = true;
    op->push.lent = false; /* nothing was begun */
    op->engine->push_again_ns =
        code == SL_ERR_LIMIT ? self->env->now_ns : co_pools_again_ns(self, code);
    op->reason[0] = '\0';
    sl_metric_add(self->env->metrics, self->metric.straight_refused_count, 1);
    return true;
}

void co_straight_pieces(struct co_op *op, const struct sl_item_pushed *pieces, uint32_t count,
                        struct sl_item_arrived *out, struct sl_item_spot *spots)
{
    const struct co_engine *engine = op->engine;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_item_pushed *piece = &pieces[i];
        uint32_t part = (uint32_t)piece->part;
        const struct co_cut *cut = co_cut_of(op, part);
        uint32_t rank = co_part_writer(op, part);
        out[i] = (struct sl_item_arrived){.part = piece->part,
                                          .part_offset_bytes = piece->part_offset_bytes,
                                          .length_bytes = piece->length_bytes,
                                          .digest_low = piece->digest_low,
                                          .digest_high = piece->digest_high};
        spots[i] = (struct sl_item_spot){
            .engine_id = engine->members[rank],
            .rank = rank,
            .pool = cut->pool,
            .part = cut->part,
            .device_block = co_device_block(op, op->slice[part / engine->part_count], cut->pool),
            .item = i};
    }
}
