/* actors/coordinator/push.c - hand-overs without storage: prefill's transporter writes into extents
 * of decode's node.
 *
 * Decode reserves extents under names of its own that nobody ever sees, opens a ticket for them and
 * waits. Prefill copies its blocks out into such extents too, and has them pushed under the ticket;
 * it has handed over when decode's coordinator has acknowledged all. Then the ticket is closed, and
 * only what nothing can write to any more is copied to the device. A push that fails goes on
 * through storage when the setting handover_push_fallback says so. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICKET_PARTS_MAX 4096u
#define BATCH_PIECES     512u
#define NAME_BYTES       48u

static bool falls_back(const struct coordinator *self)
{
    return sl_config_bool(self->env->config, SL_SET_handover_push_fallback);
}

/* The reason is told and forgotten: the hand-over may be fine yet. */
static void fallback_note(struct coordinator *self, struct co_op *op)
{
    sl_metric_add(self->env->metrics, self->metric.handover_fallback_count, 1);
    sl_log_write(self->env->log, SL_LOG_INFO, op->trace_id,
                 "hand-over %016" PRIx64 " goes through storage: %s", op->handover_id, op->reason);
    op->reason[0] = '\0';
}

/* ---- extents ---- */

static bool push_reserve(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = op->slice_count * engine->part_count;
    struct sl_item_want *items = co_arena_take(&op->work, part_total, sizeof(*items));
    char(*names)[NAME_BYTES] = co_arena_take(&op->work, part_total, sizeof(*names));
    char(*writers)[16] = co_arena_take(&op->work, engine->world, sizeof(*writers));
    if (items == NULL || names == NULL || writers == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    for (uint32_t rank = 0; rank < engine->world; rank++) {
        (void)snprintf(writers[rank], sizeof(writers[rank]),
                       op->kind == CO_STORE ? "swapper.%u" : "transporter.0", rank & 0xff);
    }
    for (uint32_t i = 0; i < part_total; i++) {
        uint32_t rank = i % engine->part_count / engine->pool_count;
        (void)snprintf(names[i], NAME_BYTES, "push/%s/%016" PRIx64 "/%u",
                       op->kind == CO_STORE ? "out" : "in", op->handover_id, i);
        items[i] = (struct sl_item_want){
            .key = sl_text_of(names[i]),
            .length_bytes = engine->part_bytes[rank][i % engine->pool_count],
            .writer = sl_text_of(writers[rank]),
        };
    }
    struct sl_msg reserve = {.type = SL_MSG_RESERVE};
    reserve.body.reserve = (struct sl_body_reserve){
        .wait = true,
        .ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns) +
                  sl_config_u64(self->env->config, SL_SET_fence_timeout),
        .items = {.at = items, .count = part_total},
    };
    op->phase = CO_RESERVE;
    return co_op_call(self, op, "registrar", &reserve);
}

/* The whole of it is one slice. */
void co_push_start(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t first = op->kind == CO_STORE ? op->push_skip : 0;
    uint32_t count = op->block_count - first;
    uint64_t parts = (uint64_t)count * engine->part_count;
    if (parts > SL_MIN(TICKET_PARTS_MAX, CO_SLICE_PARTS_MAX) ||
        count * engine->block_bytes > self->store_bytes_max) {
        co_reason(op, "%" PRIu64 " parts are too many to be pushed at once", parts);
        co_push_failed(self, op, SL_ERR_LIMIT);
        return;
    }
    co_arena_reset(&op->work);
    op->slice = co_arena_take(&op->work, count, sizeof(*op->slice));
    if (op->slice == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        op->slice[i] = first + i;
    }
    (void)(co_slice_make(self, op, count) && push_reserve(self, op));
}

static void ticket_open(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    uint32_t part_total = op->slice_count * op->engine->part_count;
    struct sl_item_target *targets = co_arena_take(&op->work, part_total, sizeof(*targets));
    row->claims = targets != NULL ? calloc(SL_MAX(part_total, 1u), sizeof(*row->claims)) : NULL;
    if (row->claims == NULL) {
        co_push_return(self, op);
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    row->claim_count = part_total;
    for (uint32_t i = 0; i < part_total; i++) {
        struct co_part *part = &op->parts[i];
        uint32_t k = i % op->engine->part_count;
        targets[i] = (struct sl_item_target){
            .ref = part->ref,
            .generation = part->generation,
            .arena = part->arena,
            .offset_bytes = part->offset_bytes,
            .length_bytes =
                op->engine->part_bytes[k / op->engine->pool_count][k % op->engine->pool_count]};
        row->claims[i] = (struct sl_item_claim){.ref = part->ref, .generation = part->generation};
        part->state = CO_PART_PINNED; /* as what a load copies in */
    }
    struct sl_msg open = {.type = SL_MSG_PUSH_OPEN};
    /* Not the hand-over's own: a ticket of a coordinator before us is of other extents. */
    row->push_id = self->env->ops->random_u64(self->env) << 16 | (uint64_t)(row - self->handovers);
    open.body.push_open.handover = row->push_id;
    open.body.push_open.ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns);
    open.body.push_open.parts.at = targets;
    open.body.push_open.parts.count = part_total;
    sl_handover_lend(&row->machine, SL_HANDOVER_TICKET);
    op->phase = CO_OPEN;
    (void)co_op_call(self, op, "transporter.0", &open);
}

static void push_reserved(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    const struct sl_item_grant *grants = reply->body.reserve_reply.items.at;
    sl_err failed = reply->code;
    if (failed == SL_OK && reply->body.reserve_reply.items.count != part_total) {
        failed = SL_ERR_PROTOCOL;
    }
    for (uint32_t i = 0; reply->code == SL_OK && failed != SL_ERR_PROTOCOL && i < part_total; i++) {
        if (grants[i].code != SL_OK) {
            failed = grants[i].code < SL_ERR_COUNT ? (sl_err)grants[i].code : SL_ERR_PROTOCOL;
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
        co_push_failed(self, op, failed);
    } else if (op->kind == CO_STORE && co_by_layers(op)) {
        co_layers_store(self, op);
    } else if (op->kind == CO_STORE) {
        co_copy_start(self, op, CO_PART_GRANTED);
    } else {
        ticket_open(self, op);
    }
}

/* ---- prefill ---- */

static void batch_send(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = op->slice_count * engine->part_count;
    uint32_t from = op->asked_count, count = SL_MIN(part_total - from, BATCH_PIECES);
    struct sl_item_pushed *pieces = co_arena_take(&op->work, count, sizeof(*pieces));
    if (pieces == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct co_part *part = &op->parts[from + i];
        uint32_t k = (from + i) % engine->part_count;
        pieces[i] = (struct sl_item_pushed){
            .part = from + i,
            .arena = part->arena,
            .offset_bytes = part->offset_bytes,
            .length_bytes = engine->part_bytes[k / engine->pool_count][k % engine->pool_count],
            .digest_low = part->digest.low,
            .digest_high = part->digest.high};
    }
    op->asked_count = from + count;
    struct sl_msg push = {.type = SL_MSG_PUSH_SEND};
    push.body.push_send.ticket = op->ticket;
    push.body.push_send.last = op->asked_count == part_total;
    push.body.push_send.pieces.at = pieces;
    push.body.push_send.pieces.count = count;
    op->phase = CO_PUSH;
    (void)co_op_call(self, op, "transporter.0", &push);
}

void co_push_copied(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    for (uint32_t i = 0; i < part_total; i++) {
        if (op->parts[i].state != CO_PART_COPIED) {
            co_reason(op, "a rank did not copy its part");
            co_push_failed(self, op, SL_ERR_INCOMPLETE);
            return;
        }
    }
    op->asked_count = 0;
    batch_send(self, op);
}

static void batch_sent(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    if (reply->code != SL_OK) {
        co_reason(op, "push: %s",
                  reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
        co_push_failed(self, op, reply->code);
    } else if (op->asked_count < op->slice_count * op->engine->part_count) {
        batch_send(self, op);
    } else {
        co_push_done(self, op);
    }
}

void co_push_done(struct coordinator *self, struct co_op *op)
{
    sl_metric_add(self->env->metrics, self->metric.handover_pushed_count, 1);
    op->bytes = (uint64_t)op->slice_count * op->engine->block_bytes;
    co_op_end(self, op, SL_OK);
}

/* ---- prefill, by layers ---- */

bool co_push_layers(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    struct co_layers *layers = &op->layers;
    uint32_t part_total = op->slice_count * engine->part_count, count = 0;
    if (layers->pieces == NULL) {
        layers->pieces = co_arena_take(&op->life, BATCH_PIECES, sizeof(*layers->pieces));
    }
    if (layers->pieces == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    for (; op->asked_count < part_total; op->asked_count++) {
        const struct co_part *part = &op->parts[op->asked_count];
        uint32_t k = op->asked_count % engine->part_count;
        struct co_range range;
        if (!co_layers_between(op, k / engine->pool_count, k % engine->pool_count, layers->pushed,
                               layers->push_end, &range)) {
            continue; /* also behind the last piece: a batch is never empty */
        }
        if (count == BATCH_PIECES) {
            break;
        }
        layers->pieces[count++] =
            (struct sl_item_pushed){.part = op->asked_count,
                                    .part_offset_bytes = range.from,
                                    .arena = part->arena,
                                    .offset_bytes = part->offset_bytes + range.from,
                                    .length_bytes = range.end - range.from,
                                    .digest_low = part->pushed_digest.low,
                                    .digest_high = part->pushed_digest.high};
    }
    struct sl_msg push = {.type = SL_MSG_PUSH_SEND};
    push.body.push_send.ticket = op->ticket;
    push.body.push_send.layer = layers->push_end; /* 1 + the last one in it */
    push.body.push_send.last = op->asked_count == part_total && layers->push_end == layers->count;
    push.body.push_send.pieces.at = layers->pieces;
    push.body.push_send.pieces.count = count;
    layers->pushing = true;
    return co_op_call(self, op, "transporter.0", &push);
}

/* Nothing more is to be read for it. Nobody acknowledges what comes late. */
void co_push_abort(struct coordinator *self, struct co_op *op, sl_err code)
{
    struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT, .trace_id = op->trace_id};
    op->push_over = true;
    abort.body.push_abort.ticket = op->ticket;
    abort.body.push_abort.code = (uint64_t)code;
    abort.body.push_abort.text = sl_text_of(op->reason);
    (void)sl_calls_send(self->calls, "transporter.0", &abort,
                        sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                        co_cookie(CO_CALL_NOBODY, 0, 0), NULL);
}

void co_push_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (op->kind == CO_STORE) {
        if (op->call_seq != 0) { /* by layers: others of it may be on their way */
            sl_calls_forget(self->calls, op->call_seq);
            op->call_seq = 0;
        }
        op->layers.pushing = false;
        co_push_abort(self, op, code);
        co_store_abort(self, op);
    } else if (op->parts != NULL && op->slice_count > 0 && op->handover->claims == NULL) {
        co_push_return(self, op);
    }
    if (!falls_back(self)) {
        co_op_end(self, op, code);
        return;
    }
    fallback_note(self, op);
    op->direct = false;
    op->slice_count = 0;
    op->slice_total = 0;
    if (op->kind == CO_STORE) {
        sl_handover_lend(&op->handover->machine, SL_HANDOVER_HELD);
        co_store_slice(self, op);
    } else {
        co_handover_await(self, op);
    }
}

/* ---- decode ---- */

static void ticket_opened(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    struct co_handover *row = op->handover;
    const struct sl_bytes *ticket = &reply->body.push_open_reply.ticket;
    if (reply->code != SL_OK || ticket->length == 0) {
        co_reason(op, "no ticket: %s",
                  reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
        op->push_over = true; /* it is closed all the same */
        if (!falls_back(self)) {
            co_op_end(self, op, reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL);
            return;
        }
        fallback_note(self, op);
    } else {
        row->ticket_bytes = (uint32_t)SL_MIN(ticket->length, sizeof(row->ticket));
        memcpy(row->ticket, ticket->at, row->ticket_bytes);
    }
    co_handover_await(self, op);
}

static void ticket_closed(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    if (reply->code != SL_OK) {
        co_reason(op, "the ticket does not end: %s", sl_err_text(reply->code));
        co_op_end(self, op, reply->code);
        return;
    }
    sl_handover_return(&op->handover->machine, SL_HANDOVER_TICKET);
    co_handover_await(self, op);
}

void co_push_close(struct coordinator *self, struct co_op *op)
{
    struct sl_msg close = {.type = SL_MSG_PUSH_CLOSE};
    close.body.push_close.handover = op->handover->push_id;
    close.body.push_close.taken = op->handover->arrived;
    op->phase = CO_CLOSE;
    (void)co_op_call(self, op, "transporter.0", &close);
}

void co_push_load(struct coordinator *self, struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count; i++) {
        op->blocks[op->slice[i]].tier = op->handover->sent_here ? CO_TIER_MEMORY : CO_TIER_REMOTE;
    }
    if (co_by_layers(op)) {
        op->layers.ready = op->layers.count;
        co_layers_go(self, op);
    } else {
        co_copy_start(self, op, CO_PART_PINNED);
    }
}

/* Extents of an op that never got a ticket. */
void co_push_return(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count, count = 0;
    struct sl_item_claim *claims = co_arena_take(&op->work, part_total, sizeof(*claims));
    for (uint32_t i = 0; claims != NULL && i < part_total; i++) {
        if (op->parts[i].state == CO_PART_GRANTED) {
            claims[count++] = (struct sl_item_claim){.ref = op->parts[i].ref,
                                                     .generation = op->parts[i].generation};
            op->parts[i].state = CO_PART_GONE;
        }
    }
    co_claims_abort(self, op->id, op->trace_id, claims, count);
}

void co_push_answer(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    switch (op->phase) {
    case CO_OPEN:
        ticket_opened(self, op, reply);
        break;
    case CO_CLOSE:
        ticket_closed(self, op, reply);
        break;
    case CO_PUSH:
        batch_sent(self, op, reply);
        break;
    default:
        push_reserved(self, op, reply);
        break;
    }
}
