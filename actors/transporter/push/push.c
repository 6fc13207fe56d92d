/* actors/transporter/push/push.c - direct hand-over: what comes in is handed to its part. */
#include "actors/transporter/push/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(push, metric.tickets, "tickets_open"),
    SL_METRIC_ROW(push, metric.expired, "tickets_expired"),
    SL_METRIC_ROW(push, metric.fenced, "tickets_fenced"),
    SL_METRIC_ROW(push, metric.pushes, "pushes"),
    SL_METRIC_ROW(push, metric.failed, "pushes_failed"),
    SL_METRIC_ROW(push, metric.bytes_out, "pushed_bytes"),
    SL_METRIC_ROW(push, metric.bytes_in, "arrived_bytes"),
    SL_METRIC_ROW(push, metric.arrivals, "arrivals"),
    SL_METRIC_ROW(push, metric.digests_bad, "arrivals_bad"),
    SL_METRIC_ROW(push, metric.refused, "tickets_refused"),
    SL_METRIC_ROW(push, metric.pool_tickets, "pool_tickets"),
    SL_METRIC_ROW(push, metric.copied_bytes, "copied_bytes"),
    SL_HISTOGRAM_ROW(push, metric.push_ns, "push_ns"),
};

sl_err tr_push_init(struct transporter *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    struct push *push = aligned_alloc(64, sl_align_up(sizeof(*push), 64)); /* a digest in it */
    if (push == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for hand-overs");
    }
    memset(push, 0, sizeof(*push));
    self->push = push;
    push->self = self;
    push->ticket_max = (uint32_t)sl_config_u64(config, SL_SET_tickets_max);
    push->parts_max = (uint32_t)sl_config_u64(config, SL_SET_ticket_parts_max);
    push->push_max = (uint32_t)sl_config_u64(config, SL_SET_pushes_max);
    push->grant_max = SL_FABRIC_SLOTS_MAX + 1;
    push->next_push = self->env->ops->random_u64(self->env) >> 2 | 1;
    push->due_ns = SL_NEVER_NS;
    /* A peer that was never heard of may still be greeting. */
    push->grace_ns = self->env->now_ns + 3 * SL_MAX(sl_config_u64(config, SL_SET_peer_heartbeat),
                                                    sl_config_u64(config, SL_SET_peer_timeout));
    push->tickets = calloc(push->ticket_max, sizeof(*push->tickets));
    push->grants = calloc(push->grant_max, sizeof(*push->grants));
    push->arrivals = calloc(push->push_max, sizeof(*push->arrivals));
    push->targets = calloc(push->ticket_max, sizeof(*push->targets));
    push->sends = calloc(push->push_max, sizeof(*push->sends));
    if (push->tickets == NULL || push->grants == NULL || push->arrivals == NULL ||
        push->targets == NULL || push->sends == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u tickets", push->ticket_max);
    }
    sl_metrics_define(self->env->metrics, metric_rows, SL_COUNT(metric_rows), push);
    return sl_calls_create(self->env, push->push_max + push->ticket_max, &push->calls, why);
}

void tr_push_fini(struct transporter *self)
{
    struct push *push = self->push;
    if (push == NULL) {
        return;
    }
    push_tickets_fini(push);
    push_arrivals_fini(push);
    push_targets_fini(push);
    push_sends_fini(push);
    if (push->calls != NULL) {
        sl_calls_destroy(&push->calls);
    }
    free(push->grants);
    free(push);
    self->push = NULL;
}

/* ---- what comes in ---- */

static const struct {
    uint32_t type;
    void (*handle)(struct push *push, const struct sl_msg *msg);
} requests[] = {
    {SL_MSG_PUSH_OPEN, push_open},
    {SL_MSG_PUSH_CLOSE, push_close},
    {SL_MSG_PUSH_SEND, push_send},
    {SL_MSG_PUSH_ABORT, push_abort},
};

static const struct {
    uint32_t type;
    void (*handle)(struct push *push, struct tr_peer *peer, const struct sl_msg *msg);
} frames[] = {
    {SL_MSG_PEER_TICKET, push_ticket_shown},   {SL_MSG_PEER_TICKET_REPLY, push_target_keys},
    {SL_MSG_PEER_PUSH, push_notice},           {SL_MSG_PEER_PUSH_REPLY, push_send_acknowledged},
    {SL_MSG_PUSH_ABORT, push_ticket_given_up}, {SL_MSG_PUSH_ABORT_REPLY, push_target_end_answered},
};

bool tr_push_request(struct transporter *self, const struct sl_msg *msg)
{
    if (self->push == NULL && (msg->type == SL_MSG_PUSH_CLOSE || msg->type == SL_MSG_PUSH_ABORT)) {
        sl_reply_code(self->env, msg, SL_OK, NULL); /* there is nothing to end */
        return true;
    }
    for (size_t i = 0; self->push != NULL && i < SL_COUNT(requests); i++) {
        if (requests[i].type == msg->type) {
            requests[i].handle(self->push, msg);
            push_due(self->push, 0);
            return true;
        }
    }
    return false;
}

static void call_ended(struct push *push, const struct sl_call *call, const struct sl_msg *reply)
{
    uint32_t index = (uint32_t)call->cookie;
    if (call->cookie >> 32 == PUSH_CALL_ARRIVAL) {
        push_arrival_answered(push, index, reply);
    } else {
        push_ticket_told(push, index);
    }
    push_due(push, 0);
}

void tr_push_answer(struct transporter *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (self->push != NULL && sl_calls_match(self->push->calls, msg, &call)) {
        call_ended(self->push, &call, msg);
    }
}

void tr_push_frame(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    for (size_t i = 0; self->push != NULL && i < SL_COUNT(frames); i++) {
        if (frames[i].type == msg->type) {
            frames[i].handle(self->push, peer, msg);
            push_due(self->push, 0);
        }
    }
}

bool tr_push_done(struct transporter *self, const struct sl_fabric_done *done)
{
    if (self->push == NULL || (done->cookie & PUSH_COOKIE) == 0) {
        return false;
    }
    push_send_done(self->push, done);
    push_due(self->push, 0);
    return true;
}

/* ---- time ---- */

void tr_push_step(struct transporter *self, uint64_t now_ns)
{
    struct push *push = self->push;
    struct sl_call call;
    if (push == NULL) {
        return;
    }
    while (sl_calls_expired(push->calls, now_ns, &call)) {
        call_ended(push, &call, NULL);
    }
    if (push->due_ns <= now_ns) {
        push->due_ns = SL_NEVER_NS;
        push->look = push->look_ns <= now_ns;
        push->look_ns = push->look ? now_ns + PUSH_LOOK_NS : push->look_ns;
        push_tickets_step(push, now_ns);
        push_arrivals_step(push);
        push_targets_step(push, now_ns);
        push_sends_step(push, now_ns);
        if (self->peer_count > 0 && push->tickets_open + push->sends_open > 0) {
            push_due(push, push->look_ns);
        }
    }
    if (push->due_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, push->due_ns);
    }
}

void tr_push_peer_expelled(struct transporter *self, const struct tr_peer *peer)
{
    struct push *push = self->push;
    uint32_t number = tr_peer_number(self, peer);
    for (uint32_t i = 0; push != NULL && push->tickets_open > 0 && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        if (ticket->state == TICKET_OPEN && ticket->bound && !ticket->local &&
            ticket->peer == number) {
            push_ticket_end(push, ticket, SL_ERR_PERMISSION, "the node's key was removed");
        }
    }
    for (uint32_t i = 0; push != NULL && push->targets_open > 0 && i < push->ticket_max; i++) {
        struct push_target *target = &push->targets[i];
        if (target->used && !target->over && target->peer == number) {
            push_target_over(push, target, SL_ERR_PERMISSION, "the node's key was removed", false);
        }
    }
}
