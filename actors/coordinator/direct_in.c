/* actors/coordinator/direct_in.c - the type of a LOAD that receives a hand-over directly: decode's
 * side. It makes a ticket for its blocks, has the transporter bring them under it, and waits. */
#include "actors/coordinator/internal.h"
#include "ipc/msg/sl_ticket.h"

#include <stdio.h>
#include <string.h>

static void in_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    op->handover->offered = false;
    if (!co_direct_falls_back(self) && !co_handover_is_committed(op)) {
        co_op_end(self, op, code);
        return;
    }
    co_direct_fallback_note(self, op);
    co_op_become(op, &co_load_type);
    co_load_await(self, op);
}

/* ---- BRING ---- */

/* The number is random, so that tickets of earlier coordinators do not match. */
static void ticket_make(struct coordinator *self, struct co_handover *row)
{
    struct sl_env *env = self->env;
    uint64_t secret[2] = {env->ops->random_u64(env), env->ops->random_u64(env)};
    struct sl_ticket_fields ticket = {.number = (env->ops->random_u64(env) | 1) << 16 |
                                                (uint64_t)(row - self->handovers)};
    (void)snprintf(ticket.node, sizeof(ticket.node), "%s", self->node);
    memcpy(ticket.secret, secret, sizeof(ticket.secret));
    row->ticket_number = ticket.number;
    row->ticket_bytes = sl_ticket_write(&ticket, row->ticket);
}

static void bring_send(struct coordinator *self, struct co_op *op)
{
    struct co_handover *row = op->handover;
    struct sl_msg bring = {.type = SL_MSG_BRING};
    struct sl_body_bring *body = &bring.body.bring;
    uint32_t slot_count = 0;
    body->slots.at = co_pool_slots_make(op, 0, &slot_count);
    body->slots.count = slot_count;
    if (body->slots.at == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    ticket_make(self, row);
    op->direct.from_here = row->prefill_here || row->send != NULL;
    /* If that is this node, device memory is refused at once. */
    body->from = sl_text_of(op->direct.from_here ? self->node : row->prefill_node);
    body->ticket = (struct sl_bytes){.at = row->ticket, .length = row->ticket_bytes};
    if (co_direct_call(self, op, &bring)) {
        co_op_enter(self, op, CO_AWAIT);
    }
}

/* ---- arrivals ---- */

/* Reports the layers that have arrived. */
static void layers_go(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    if (layers->done == layers->count && op->handover->arrived) {
        co_layers_finish(self, op);
    } else if (layers->done < layers->ready) {
        layers->asked = layers->ready; /* they are in place */
        co_layers_copied(self, op);
    } /* otherwise waits for the next layers, or for the end */
}

static void in_arrived(struct coordinator *self, struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count; i++) {
        op->blocks[op->slice[i]].tier = op->handover->sent_here ? CO_TIER_MEMORY : CO_TIER_REMOTE;
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        op->parts[i].state = CO_PART_PULLED; /* all of it is in place */
    }
    op->layers.ready = op->layers.count;
    if (co_by_layers(op)) {
        layers_go(self, op);
    } else {
        co_load_copied(self, op);
    }
}

/* No worker writes any more. */
static void in_settled(struct coordinator *self, struct co_op *op)
{
    if (op->handover->arrived) {
        in_arrived(self, op);
    } else if (op->direct.failed != SL_OK) {
        in_failed(self, op, op->direct.failed);
    } else { /* prefill used storage */
        op->handover->offered = false;
        co_op_become(op, &co_load_type);
        co_load_await(self, op);
    }
}

static void bring_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    if (op->handover->arrived) {
        return; /* LANDED has reported it */
    }
    /* Prefill has given up: a cancel by decode's own client would have ended the op before. */
    bool other = reply->code == SL_OK || reply->code == SL_ERR_CANCELLED;
    op->direct.failed = other ? SL_ERR_HANDOVER : reply->code;
    co_reason(op, "not brought: %s", co_why(reply));
    if (!op->handover->offered && co_direct_is_refusal(self, reply->code) &&
        reply->code == SL_ERR_UNSUPPORTED && !op->direct.from_here) { /* whoever lends */
        op->engine->direct_again_ns = co_pools_again_ns(self, reply->code);
    }
    co_direct_over(self, op, in_settled);
}

/* Woken by the commit or by arrivals; otherwise the deadline ends it. */
static void in_await(struct coordinator *self, struct co_op *op)
{
    co_op_enter(self, op, CO_AWAIT);
    if (op->handover->arrived) {
        co_call_forget(self, &op->call_seq); /* LANDED was the answer */
        co_direct_over(self, op, in_settled);
    } else if (co_handover_is_committed(op)) {
        co_direct_settle(self, op, in_settled);
    } else if (co_by_layers(op)) {
        layers_go(self, op);
    }
}

static void layers_enter(struct coordinator *self, struct co_op *op)
{
    co_layers_report(self, op);
    in_await(self, op);
}

/* ---- the type ---- */

static void in_go(struct coordinator *self, struct co_op *op)
{
    if (co_handover_is_committed(op)) { /* by storage, before decode came */
        co_op_become(op, &co_load_type);
        co_load_await(self, op);
    } else if (co_direct_start(self, op, 0)) {
        bring_send(self, op);
    }
}

static const struct co_phase_ops phases[CO_PHASES] = {
    CO_PHASES_OF_ALL,
    [CO_AWAIT] = {.reply = bring_answered, .tick = in_await},
    [CO_LAYERS] = {.enter = layers_enter},
};

const struct co_type co_direct_in_type = {
    .kind = CO_LOAD,
    .direct = true,
    .go = in_go,
    .direct_failed = in_failed,
    .copied = co_load_copied,
    .done = co_load_done,
    .phases = phases,
};
