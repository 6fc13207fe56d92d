/* actors/coordinator/push_in.c - the type of a LOAD whose blocks are pushed: decode's side. It
 * opens a ticket for the blocks of its pools, waits and closes it. */
#include "actors/coordinator/internal.h"

#include <string.h>

static void in_await(struct coordinator *self, struct co_op *op);

static void in_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (!co_push_falls_back(self)) {
        co_op_end(self, op, code);
        return;
    }
    co_push_fallback_note(self, op);
    co_op_become(op, &co_load_type);
    co_load_await(self, op);
}

/* ---- the ticket ---- */

/* The blocks of the slice, part by part. False: out of memory. */
static bool spots_name(struct co_op *op, struct sl_body_push_open *open)
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
    return true;
}

static void ticket_open(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    struct sl_msg open = {.type = SL_MSG_PUSH_OPEN};
    struct sl_body_push_open *body = &open.body.push_open;
    if (!spots_name(op, body)) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    op->push.from_here = row->prefill_here || row->send != NULL;
    if (op->push.from_here) {
        body->from = sl_text_of(self->node); /* it is not asked for what only a NIC writes to */
    }
    /* Not the hand-over's own: a ticket of a coordinator before us is another one. */
    row->push_id = self->env->ops->random_u64(self->env) << 16 | (uint64_t)(row - self->handovers);
    body->handover = row->push_id;
    body->ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns);
    sl_handover_lend(&row->machine, SL_HANDOVER_TICKET);
    co_push_lent(self, op);
    (void)co_op_call(self, op, "transporter.0", &open);
}

static void ticket_opened(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    struct co_handover *row = op->handover;
    const struct sl_bytes *ticket = &reply->body.push_open_reply.ticket;
    bool opened = reply->code == SL_OK && ticket->length > 0;
    if (!opened) {
        co_reason(op, "no ticket: %s", co_why(reply));
    }
    if (!opened && co_push_refused(self, op, reply->code)) {
        if (reply->code == SL_ERR_UNSUPPORTED && !op->push.from_here) { /* whoever writes */
            op->engine->push_again_ns = co_pools_again_ns(self, reply->code);
        }
        sl_handover_return(&row->machine, SL_HANDOVER_TICKET); /* there is none */
        in_failed(self, op, reply->code);
        return;
    }
    if (opened) {
        row->ticket_bytes = (uint32_t)SL_MIN(ticket->length, sizeof(row->ticket));
        memcpy(row->ticket, ticket->at, row->ticket_bytes);
        co_word_ask(self, row); /* now with the ticket */
    } else if (co_push_falls_back(self)) {
        op->push.over = true; /* it is closed all the same */
        co_push_fallback_note(self, op);
    } else {
        co_op_end(self, op, reply->code != SL_OK ? reply->code : SL_ERR_PROTOCOL);
        return;
    }
    in_await(self, op);
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
    in_await(self, op);
}

static void ticket_close(struct coordinator *self, struct co_op *op)
{
    struct sl_msg close = {.type = SL_MSG_PUSH_CLOSE};
    close.body.push_close.handover = op->handover->push_id;
    close.body.push_close.taken = op->handover->arrived;
    (void)co_op_call(self, op, "transporter.0", &close);
}

/* By layers: tells of those that came. */
static void layers_go(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    const struct co_handover *row = op->handover;
    bool open = row->machine.state < SL_HANDOVER_COMMITTED ||
                (row->machine.loans & SL_HANDOVER_TICKET) != 0;
    if (layers->done == layers->count && !open) {
        co_layers_finish(self, op);
    } else if (layers->done < layers->ready) {
        layers->asked = layers->ready; /* they lie where they belong */
        co_layers_copied(self, op);
    } else { /* the next layers are on their way, or the word of the last */
        co_op_enter(self, op, CO_AWAIT);
    }
}

static void arrived_all(struct coordinator *self, struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count; i++) {
        op->blocks[op->slice[i]].tier = op->handover->sent_here ? CO_TIER_MEMORY : CO_TIER_REMOTE;
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        op->parts[i].state = CO_PART_PULLED; /* all of it lies where it belongs */
    }
    op->layers.ready = op->layers.count;
    if (co_by_layers(op)) {
        layers_go(self, op);
    } else {
        co_load_copied(self, op);
    }
}

static void in_await(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    co_op_enter(self, op, CO_AWAIT);
    if (!co_handover_is_committed(op) && !op->push.over) {
        if (co_by_layers(op)) {
            layers_go(self, op);
        }
        return; /* whoever commits it wakes us; time ends it otherwise */
    }
    if ((row->machine.loans & SL_HANDOVER_TICKET) != 0) {
        co_op_enter(self, op, CO_CLOSE);
    } else if (row->arrived) {
        arrived_all(self, op);
    } else { /* prefill went through storage, or there is no ticket */
        co_op_become(op, &co_load_type);
        co_load_await(self, op);
    }
}

/* ---- the type ---- */

static void in_go(struct coordinator *self, struct co_op *op)
{
    if (co_push_start(self, op, 0)) {
        co_op_enter(self, op, CO_OPEN);
    }
}

static void layers_enter(struct coordinator *self, struct co_op *op)
{
    co_layers_told(self, op);
    in_await(self, op);
}

static const struct co_phase_ops phases[CO_PHASES] = {
    CO_PHASES_OF_ALL,
    [CO_OPEN] = {.enter = ticket_open, .reply = ticket_opened},
    [CO_AWAIT] = {.tick = in_await},
    [CO_LAYERS] = {.enter = layers_enter},
    [CO_CLOSE] = {.enter = ticket_close, .reply = ticket_closed},
};

const struct co_type co_push_in_type = {
    .kind = CO_LOAD,
    .push = true,
    .go = in_go,
    .push_failed = in_failed,
    .copied = co_load_copied,
    .done = co_load_done,
    .phases = phases,
};
