/* actors/coordinator/push.c - hand-overs without storage: prefill's transporter writes into extents
 * of decode's node, or straight into decode's pools (straight.c).
 *
 * Decode reserves extents under names of its own that nobody ever sees, opens a ticket for them and
 * waits. Prefill copies its blocks out into such extents too, and has them pushed under the ticket;
 * it has handed over when decode's coordinator has acknowledged all. Then the ticket is closed, and
 * only what nothing can write to any more is copied to the device. A push that fails goes on
 * through storage when the setting handover_push_fallback says so. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>

#define TICKET_PARTS_MAX 4096u
#define NAME_BYTES       48u

bool co_push_falls_back(const struct coordinator *self)
{
    return sl_config_bool(self->env->config, SL_SET_handover_push_fallback);
}

void co_push_fallback_note(struct coordinator *self, struct co_op *op)
{
    sl_metric_add(self->env->metrics, self->metric.handover_fallback_count, 1);
    sl_log_write(self->env->log, SL_LOG_INFO, op->trace_id,
                 "hand-over %016" PRIx64 " goes through storage: %s", op->handover_id, op->reason);
    op->reason[0] = '\0';
}

void co_push_reserve(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = op->slice_count * engine->part_count;
    struct sl_item_want *items = co_memory_take(&op->work, part_total, sizeof(*items));
    char(*names)[NAME_BYTES] = co_memory_take(&op->work, part_total, sizeof(*names));
    char(*writers)[16] = co_memory_take(&op->work, engine->world, sizeof(*writers));
    if (items == NULL || names == NULL || writers == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t rank = 0; rank < engine->world; rank++) {
        (void)snprintf(writers[rank], sizeof(writers[rank]),
                       op->type->kind == CO_STORE ? "swapper.%u" : "transporter.0", rank & 0xff);
    }
    for (uint32_t i = 0; i < part_total; i++) {
        (void)snprintf(names[i], NAME_BYTES, "push/%s/%016" PRIx64 "/%u",
                       op->type->kind == CO_STORE ? "out" : "in", op->handover_id, i);
        items[i] = (struct sl_item_want){
            .key = sl_text_of(names[i]),
            .length_bytes = co_cut_of(op, i)->length_bytes,
            .writer = sl_text_of(writers[co_part_writer(op, i)]),
        };
    }
    struct sl_msg reserve = {.type = SL_MSG_RESERVE};
    reserve.body.reserve = (struct sl_body_reserve){
        .wait = true,
        .ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns) +
                  sl_config_u64(self->env->config, SL_SET_fence_timeout),
        .items = {.at = items, .count = part_total},
    };
    (void)co_op_call(self, op, "registrar", &reserve);
}

void co_push_extents(struct coordinator *self, struct co_op *op)
{
    if (op->slice_count * op->engine->block_bytes > self->store_bytes_max) {
        co_reason(op, "%u blocks are too many to be pushed at once", op->slice_count);
        op->type->push_failed(self, op, SL_ERR_LIMIT);
        return;
    }
    co_op_enter(self, op, CO_RESERVE);
}

/* What lies in the pools needs no room. */
static void straight_start(struct coordinator *self, struct co_op *op)
{
    if (op->type->kind == CO_LOAD) {
        co_op_enter(self, op, CO_OPEN);
        return;
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        op->parts[i].state = CO_PART_GRANTED; /* to be looked at */
    }
    co_copy_slice(self, op);
}

void co_push_start(struct coordinator *self, struct co_op *op, uint32_t first)
{
    const struct co_engine *engine = op->engine;
    uint32_t count = op->block_count - first;
    uint64_t parts = (uint64_t)count * engine->part_count;
    if (parts > SL_MIN(TICKET_PARTS_MAX, CO_SLICE_PARTS_MAX)) {
        co_reason(op, "%" PRIu64 " parts are too many to be pushed at once", parts);
        op->type->push_failed(self, op, SL_ERR_LIMIT);
        return;
    }
    co_memory_reset(&op->work);
    op->slice = co_memory_take(&op->work, count, sizeof(*op->slice));
    if (op->slice == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        op->slice[i] = first + i;
    }
    if (!co_slice_make(self, op, count)) {
        return;
    }
    op->push.straight = co_straight_may(self, op, count);
    if (op->push.straight) {
        straight_start(self, op);
    } else {
        co_push_extents(self, op);
    }
}

bool co_push_message(struct coordinator *self, struct co_op *op,
                     const struct sl_item_pushed *pieces, uint32_t count, bool last,
                     struct sl_msg *out)
{
    struct co_layers *layers = &op->layers;
    struct sl_body_push_send *body = &out->body.push_send;
    *out = (struct sl_msg){.type = SL_MSG_PUSH_SEND};
    body->ticket = op->push.ticket;
    if (!op->push.straight) {
        body->last = last;
        body->pieces.at = pieces;
        body->pieces.count = count;
        return true;
    }
    if (layers->pool_pieces == NULL) {
        layers->pool_pieces =
            co_memory_take(&op->life, CO_BATCH_PIECES, sizeof(*layers->pool_pieces));
        layers->spots = co_memory_take(&op->life, CO_BATCH_PIECES, sizeof(*layers->spots));
    }
    if (layers->pool_pieces == NULL || layers->spots == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    co_straight_pieces(op, pieces, count, layers->pool_pieces, layers->spots);
    body->pool_last = last;
    body->pool_pieces.at = layers->pool_pieces;
    body->pool_pieces.count = count;
    body->spots.at = layers->spots;
    body->spots.count = count;
    if (!op->push.lent) {
        op->push.lent = true;
        sl_metric_add(self->env->metrics, self->metric.straight_count, 1);
    }
    return true;
}

bool co_push_batch(struct coordinator *self, struct co_op *op, const struct sl_item_pushed *pieces,
                   uint32_t count, uint32_t layer, bool last)
{
    struct sl_msg push;
    if (!co_push_message(self, op, pieces, count, last, &push)) {
        return false;
    }
    push.body.push_send.layer = layer;
    return co_op_call(self, op, "transporter.0", &push);
}

sl_err co_push_granted(struct co_op *op, const struct sl_msg *reply)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    const struct sl_item_grant *grants = reply->body.reserve_reply.items.at;
    sl_err failed = reply->code;
    if (failed == SL_OK && reply->body.reserve_reply.items.count != part_total) {
        failed = SL_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; reply->code == SL_OK && failed != SL_ERR_PROTOCOL && i < part_total; i++) {
        if (grants[i].code != SL_OK) {
            failed = sl_err_received(grants[i].code);
            continue;
        }
        op->parts[i] = (struct co_part){.generation = grants[i].generation,
                                        .offset_bytes = grants[i].offset_bytes,
                                        .ref = (sl_ref)grants[i].ref,
                                        .arena = (uint16_t)grants[i].arena,
                                        .state = CO_PART_GRANTED};
    }
    if (failed != SL_OK) {
        co_reason(op, "extents for a push: %s", sl_err_text(failed));
    }
    return failed;
}
