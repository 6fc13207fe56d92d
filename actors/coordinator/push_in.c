/* actors/coordinator/push_in.c - the type of a LOAD whose blocks are pushed: decode's side. It
 * opens a ticket for the blocks of its pools, waits and closes it; or it reserves extents, opens a ticket for
 * these, and copies in. */
#include "actors/coordinator/internal.h"

#include <stdlib.h>
#include <string.h>

/* Extents of an op that never got a ticket. */
static void extents_return(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count, count = 0;
    struct sl_item_claim *claims = co_memory_take(&op->work, part_total, sizeof(*claims));
    for (uint32_t i = 0; claims != NULL && i < part_total; i++) {
        if (op->parts[i].state == CO_PART_GRANTED) {
            claims[count++] = (struct sl_item_claim){.ref = op->parts[i].ref,
                                                     .generation = op->parts[i].generation};
            op->parts[i].state = CO_PART_GONE;
        }
    }
    co_claims_abort(self, op->id, op->trace_id, claims, count);
}

static void in_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (op->parts != NULL && op->slice_count > 0 && op->handover->claims == NULL) {
        extents_return(self, op); /* of none, where it is straight */
    }
    if (!co_push_falls_back(self)) {
        co_op_end(self, op, code);
        return;
    }
    co_push_fallback_note(self, op);
    co_op_become(op, &co_load_type);
    co_load_await(self, op);
}

static void in_reserved(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    sl_err err = co_push_granted(op, reply);
    if (err != SL_OK) {
        in_failed(self, op, err);
    } else {
        co_op_enter(self, op, CO_OPEN);
    }
}

/* ---- the ticket ---- */

/* Extents become the parts of a ticket. False: out of memory, the op was ended. */
static bool extents_open(struct coordinator *self, struct co_op *op, struct sl_body_push_open *open)
{
    struct co_handover *row = op->handover;
    uint32_t part_total = op->slice_count * op->engine->part_count;
    struct sl_item_target *targets = co_memory_take(&op->work, part_total, sizeof(*targets));
    row->claims = targets != NULL ? calloc(SL_MAX(part_total, 1u), sizeof(*row->claims)) : NULL;
    if (row->claims == NULL) {
        extents_return(self, op);
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    row->claim_count = part_total;
    for (uint32_t i = 0; i < part_total; i++) {
        struct co_part *part = &op->parts[i];
        targets[i] = (struct sl_item_target){.ref = part->ref,
                                             .generation = part->generation,
                                             .arena = part->arena,
                                             .offset_bytes = part->offset_bytes,
                                             .length_bytes = co_cut_of(op, i)->length_bytes};
        row->claims[i] = (struct sl_item_claim){.ref = part->ref, .generation = part->generation};
        part->state = CO_PART_PINNED; /* as what a load copies in */
    }
    open->parts.at = targets;
    open->parts.count = part_total;
    return true;
}

static void ticket_open(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    struct sl_msg open = {.type = SL_MSG_PUSH_OPEN};
    bool straight = op->push.straight;
    if (straight && !co_straight_open(self, op, &open.body.push_open)) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    if (!straight && !extents_open(self, op, &open.body.push_open)) {
        return;
    }
    /* Not the hand-over's own: a ticket of a coordinator before us is of other extents. */
    row->push_id = self->env->ops->random_u64(self->env) << 16 | (uint64_t)(row - self->handovers);
    open.body.push_open.handover = row->push_id;
    open.body.push_open.ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns);
    sl_handover_lend(&row->machine, SL_HANDOVER_TICKET);
    (void)co_op_call(self, op, "transporter.0", &open);
}

static void ticket_opened(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    struct co_handover *row = op->handover;
    const struct sl_bytes *ticket = &reply->body.push_open_reply.ticket;
    if (co_straight_refused(self, op, reply->code)) {
        row->straight = false;
        sl_handover_return(&row->machine, SL_HANDOVER_TICKET); /* there is none */
        co_push_extents(self, op);
        return;
    }
    if (reply->code != SL_OK || ticket->length == 0) {
        co_reason(op, "no ticket: %s",
                  reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
        op->push.over = true; /* it is closed all the same */
        if (!co_push_falls_back(self)) {
            co_op_end(self, op, reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL);
            return;
        }
        co_push_fallback_note(self, op);
    } else {
        row->ticket_bytes = (uint32_t)SL_MIN(ticket->length, sizeof(row->ticket));
        memcpy(row->ticket, ticket->at, row->ticket_bytes);
        co_word_ask(self, row); /* now with the ticket */
    }
    co_push_in_await(self, op);
}

static void ticket_closed(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    if (reply->code != SL_OK) {
        co_reason(op, "the ticket does not end: %s", sl_err_text(reply->code));
        co_op_end(self, op, reply->code);
        return;
    }
    sl_handover_return(&op->handover->machine, SL_HANDOVER_TICKET);
    op->push.lent = false; /* nothing lands any more */
    co_push_in_await(self, op);
}

static void ticket_close(struct coordinator *self, struct co_op *op)
{
    struct sl_msg close = {.type = SL_MSG_PUSH_CLOSE};
    close.body.push_close.handover = op->handover->push_id;
    close.body.push_close.taken = op->handover->arrived;
    (void)co_op_call(self, op, "transporter.0", &close);
}

static void arrived_copy(struct coordinator *self, struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count; i++) {
        op->blocks[op->slice[i]].tier = op->handover->sent_here ? CO_TIER_MEMORY : CO_TIER_REMOTE;
    }
    if (op->handover->straight) { /* all of it lies where it belongs */
        for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
            op->parts[i].state = CO_PART_PULLED;
        }
    }
    if (co_by_layers(op)) {
        op->layers.ready = op->layers.count;
        co_layers_go_arriving(self, op);
    } else if (op->handover->straight) {
        co_load_copied(self, op);
    } else {
        co_op_enter(self, op, CO_COPY);
    }
}

void co_push_in_await(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    if (row->claims == NULL && !row->straight) {
        co_push_start(self, op, 0);
        return;
    }
    co_op_enter(self, op, CO_AWAIT);
    if (!co_handover_is_committed(op) && !op->push.over) {
        if (co_by_layers(op)) {
            co_layers_go_arriving(self, op);
        }
        return; /* whoever commits it wakes us; time ends it otherwise */
    }
    if ((row->machine.loans & SL_HANDOVER_TICKET) != 0) {
        co_op_enter(self, op, CO_CLOSE);
    } else if (row->arrived) {
        arrived_copy(self, op);
    } else { /* prefill went through storage, or there is no ticket */
        co_op_become(op, &co_load_type);
        co_handover_give(self, row);
        co_load_await(self, op);
    }
}

/* ---- the type ---- */

static void await_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    (void)now_ns;
    co_push_in_await(self, op);
}

static const struct co_phase_ops phases[CO_PHASES] = {
    CO_PHASES_OF_ALL,
    [CO_RESERVE] = {.enter = co_push_reserve, .reply = in_reserved},
    [CO_OPEN] = {.enter = ticket_open, .reply = ticket_opened},
    [CO_AWAIT] = {.tick = await_tick},
    [CO_CLOSE] = {.enter = ticket_close, .reply = ticket_closed},
    [CO_COPY] = {.enter = co_copy_start},
};

const struct co_type co_push_in_type = {
    .kind = CO_LOAD,
    .push = true,
    .copied_from = CO_PART_PINNED,
    .go = co_push_in_await,
    .push_failed = in_failed,
    .copied = co_load_copied,
    .layers_copied = co_layers_copied_arriving,
    .layers_go = co_layers_go_arriving,
    .done = co_load_done,
    .phases = phases,
};
