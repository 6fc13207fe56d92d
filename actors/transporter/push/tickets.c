/* actors/transporter/push/tickets.c - tickets for pools of this node: who may write what, and that nobody
 * does any more.
 *
 * A ticket is bound to the first node that shows it (or to the one that its owner named), and to
 * that node's life: a new life gets grants of its own after those of the earlier one have ended. */
#include "actors/transporter/push/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ticket_free(struct push *push, struct push_ticket *ticket)
{
    SL_ASSERT(ticket->grants_open == 0);
    if (ticket->call_seq != 0) {
        sl_calls_forget(push->calls, ticket->call_seq);
    }
    push_arrivals_forget(push, ticket);
    for (uint32_t i = 0; i < ticket->part_count; i++) {
        sl_cover_fini(&ticket->parts[i].cover);
        sl_cover_fini(&ticket->parts[i].shut);
        free(ticket->parts[i].key);
    }
    push->parts_open -= ticket->part_count;
    push->places_open -= ticket->place_count;
    free(ticket->parts);
    free(ticket->spots);
    *ticket = (struct push_ticket){0};
    push->tickets_open--;
    sl_metric_set(push->self->env->metrics, push->metric.tickets, push->tickets_open);
}

void push_tickets_fini(struct push *push)
{
    for (uint32_t i = 0; push->tickets != NULL && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        if (ticket->state != TICKET_FREE) {
            ticket->grants_open = 0; /* they went with the fabric */
            ticket_free(push, ticket);
        }
    }
    free(push->tickets);
    push->tickets = NULL;
}

/* ---- the end ---- */

/* Nothing lands any more: says so to whoever waits for it. */
void push_ticket_look(struct push *push, struct push_ticket *ticket)
{
    if (ticket->grants_open > 0) {
        return;
    }
    ticket->renewing = false;
    if (ticket->state == TICKET_ENDING) {
        ticket->state = TICKET_OVER;
        uint64_t fences = ticket->fences;
        ticket->fences = 0;
        if (fences != 0) {
            push->self->events.push_over(push->self, fences);
        }
        ticket->tell_due_ns = push_now(push);
        push_due(push, 0);
    }
    if (ticket->state != TICKET_OVER) {
        return;
    }
    if (ticket->closing) {
        push_reply(push, &ticket->close_back, SL_OK, "");
        ticket_free(push, ticket);
    } else if (ticket->quiet && !ticket->complete) {
        ticket_free(push, ticket);
    }
}

void push_ticket_end(struct push *push, struct push_ticket *ticket, sl_err code, const char *text)
{
    if (ticket->state == TICKET_FREE || (ticket->state != TICKET_OPEN && !ticket->complete)) {
        return;
    }
    ticket->complete = false;
    ticket->state = TICKET_ENDING;
    ticket->code = code;
    (void)snprintf(ticket->text, sizeof(ticket->text), "%s",
                   text[0] != '\0' ? text : sl_err_text(code));
    push_arrivals_drop(push, ticket, code, ticket->text);
    if (ticket->asked_seq != 0) {
        push_page_answer(push, ticket, code, ticket->text);
    }
    push_grants_end(push, ticket);
    push_ticket_look(push, ticket);
}

void push_ticket_complete(struct push *push, struct push_ticket *ticket)
{
    ticket->complete = true;
    ticket->state = TICKET_ENDING;
    ticket->code = SL_ERR_STALE;
    (void)snprintf(ticket->text, sizeof(ticket->text), "the hand-over is complete");
    push_grants_end(push, ticket);
    push_ticket_look(push, ticket);
}

static void ticket_tell(struct push *push, struct push_ticket *ticket)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_ARRIVED, .trace_id = ticket->trace_id};
    struct sl_body_push_arrived *body = &msg.body.push_arrived;
    const struct transporter *self = push->self;
    body->handover = ticket->handover;
    body->state = 2;
    body->code = (uint64_t)ticket->code;
    body->text = sl_text_of(ticket->text);
    body->from = sl_text_of(!ticket->bound  ? ""
                            : ticket->local ? self->node
                                            : self->peers[ticket->peer].name);
    uint64_t now_ns = push_now(push);
    sl_err err = sl_calls_send(push->calls, ticket->owner, &msg, now_ns + TR_CALL_NS,
                               push_cookie(PUSH_CALL_OVER, push_ticket_index(push, ticket)),
                               &ticket->call_seq);
    ticket->tell_due_ns = err == SL_OK ? SL_NEVER_NS : now_ns + PUSH_SOON_NS;
    if (err != SL_OK) {
        ticket->call_seq = 0;
    }
}

void push_ticket_told(struct push *push, uint32_t index)
{
    struct push_ticket *ticket = &push->tickets[index];
    if (ticket->state == TICKET_OVER) {
        ticket->call_seq = 0;
        ticket_free(push, ticket);
    }
}

/* ---- PUSH_OPEN, PUSH_CLOSE ---- */

static struct push_ticket *ticket_of(struct push *push, const struct sl_text *owner,
                                     uint64_t handover)
{
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        if (ticket->state != TICKET_FREE && ticket->handover == handover &&
            strcmp(ticket->owner, owner->at) == 0) {
            return ticket;
        }
    }
    return NULL;
}

static struct push_ticket *ticket_new(struct push *push, const struct sl_msg *msg,
                                      struct sl_error *why)
{
    const struct sl_body_push_open *body = &msg->body.push_open;
    struct push_ticket parts;
    if (tr_fenced_has(&push->self->fenced, msg)) {
        (void)sl_fail(why, SL_ERR_CANCELLED, "the op was fenced");
        return NULL;
    }
    if (push_open_parts(push, body, &parts, why) != SL_OK) {
        return NULL;
    }
    uint32_t index = 0;
    while (push->tickets[index].state != TICKET_FREE) {
        index++;
    }
    struct sl_env *env = push->self->env;
    uint64_t ttl_ns = SL_MIN(body->ttl_ns, sl_config_u64(env->config, SL_SET_ticket_ttl_max));
    struct push_ticket *ticket = &push->tickets[index];
    *ticket = parts;
    ticket->state = TICKET_OPEN;
    ticket->number = ++push->next_ticket;
    ticket->handover = body->handover;
    ticket->deadline_ns = sl_deadline_ns(env->now_ns, ttl_ns);
    ticket->trace_id = msg->trace_id;
    sl_return_keep(msg, &ticket->opened);
    for (uint32_t i = 0; i < SL_TICKET_SECRET_BYTES / 8; i++) {
        uint64_t bits = env->ops->random_u64(env);
        memcpy(&ticket->secret[8 * i], &bits, sizeof(bits));
    }
    (void)snprintf(ticket->owner, sizeof(ticket->owner), "%s", msg->sender.at);
    (void)snprintf(ticket->from, sizeof(ticket->from), "%s",
                   body->from.length > 0 ? body->from.at : "");
    push->tickets_open++;
    push->parts_open += ticket->part_count;
    push->places_open += ticket->place_count;
    push_due(push, ticket->deadline_ns);
    sl_metric_set(env->metrics, push->metric.tickets, push->tickets_open);
    sl_metric_add(env->metrics, push->metric.pool_tickets, 1);
    return ticket;
}

void push_open(struct push *push, const struct sl_msg *msg)
{
    struct sl_env *env = push->self->env;
    struct sl_error why = {0};
    unsigned char bytes[SL_TICKET_BYTES_MAX];
    struct push_ticket *ticket = ticket_of(push, &msg->sender, msg->body.push_open.handover);
    ticket = ticket != NULL ? ticket : ticket_new(push, msg, &why);
    if (ticket != NULL && ticket->state != TICKET_OPEN) {
        (void)sl_fail(&why, SL_ERR_STALE, "%s", ticket->text);
    }
    if (ticket == NULL || ticket->state != TICKET_OPEN) {
        sl_reply_code(env, msg, why.code, &why);
        return;
    }
    struct sl_ticket shown = {.incarnation = push->self->incarnation,
                              .number = ticket->number,
                              .slot = push_ticket_index(push, ticket),
                              .part_count = ticket->part_count};
    memcpy(shown.secret, ticket->secret, sizeof(shown.secret));
    (void)snprintf(shown.node, sizeof(shown.node), "%s", push->self->node);
    struct sl_msg reply = {.code = SL_OK};
    reply.body.push_open_reply.ticket.length = sl_ticket_write(&shown, bytes);
    reply.body.push_open_reply.ticket.at = bytes;
    reply.body.push_open_reply.ttl_ns = sl_budget_ns(env->now_ns, ticket->deadline_ns);
    sl_reply(env, msg, &reply);
}

void push_close(struct push *push, const struct sl_msg *msg)
{
    struct push_ticket *ticket = ticket_of(push, &msg->sender, msg->body.push_close.handover);
    if (ticket == NULL) {
        sl_reply_code(push->self->env, msg, SL_OK, NULL);
        return;
    }
    ticket->closing = true;
    sl_return_keep(msg, &ticket->close_back);
    if (ticket->state == TICKET_OPEN) {
        push_ticket_end(push, ticket, SL_ERR_CANCELLED, "the hand-over was closed");
    } else { /* complete, perhaps before its owner acknowledged the last batch */
        bool taken = msg->body.push_close.taken && ticket->complete;
        push_arrivals_drop(push, ticket, taken ? SL_OK : SL_ERR_CANCELLED,
                           taken ? "" : "the hand-over was closed");
        push_ticket_look(push, ticket);
    }
}

/* ---- who may use it ---- */

struct push_ticket *push_ticket_named(struct push *push, const struct sl_ticket *shown,
                                      struct sl_error *why)
{
    const struct transporter *self = push->self;
    if (strcmp(shown->node, self->node) != 0) {
        (void)sl_fail(why, SL_ERR_PERMISSION, "this is node %s, the ticket is of node %s",
                      self->node, shown->node);
        return NULL;
    }
    if (shown->incarnation != self->incarnation) {
        (void)sl_fail(why, SL_ERR_STALE, "the ticket is of an earlier life of node %s", self->node);
        return NULL;
    }
    struct push_ticket *ticket =
        shown->slot < push->ticket_max ? &push->tickets[shown->slot] : NULL;
    /* All that do not fit are refused alike. */
    static const uint8_t nothing[SL_TICKET_SECRET_BYTES];
    bool there = ticket != NULL && ticket->state != TICKET_FREE && ticket->number == shown->number;
    bool same =
        sl_same_bytes(there ? ticket->secret : nothing, shown->secret, SL_TICKET_SECRET_BYTES);
    if (!there || !same) {
        sl_metric_add(self->env->metrics, push->metric.refused, 1);
        (void)sl_fail(why, SL_ERR_STALE, "node %s has no such ticket any more", self->node);
        return NULL;
    }
    return ticket;
}

struct push_ticket *push_ticket_find(struct push *push, const struct sl_bytes *bytes,
                                     struct sl_error *why)
{
    struct sl_ticket shown;
    return sl_ticket_read(bytes->at, bytes->length, &shown, why) == SL_OK
               ? push_ticket_named(push, &shown, why)
               : NULL;
}

sl_err push_ticket_take(struct push *push, struct push_ticket *ticket, const struct tr_peer *peer,
                        struct sl_error *why)
{
    const struct transporter *self = push->self;
    const char *name = peer != NULL ? peer->name : self->node;
    uint32_t number = peer != NULL ? tr_peer_number(self, peer) : 0;
    if (ticket->state != TICKET_OPEN) {
        return sl_fail(why, ticket->code, "%s", ticket->text);
    }
    bool others = ticket->bound &&
                  (ticket->local != (peer == NULL) || (peer != NULL && ticket->peer != number));
    if (others || (ticket->from[0] != '\0' && strcmp(ticket->from, name) != 0)) {
        sl_metric_add(self->env->metrics, push->metric.refused, 1);
        return sl_fail(why, SL_ERR_PERMISSION, "the ticket is for another node than %s", name);
    }
    if (ticket->renewing) {
        return sl_fail(why, SL_ERR_BUSY, "what node %s had is being ended", name);
    }
    ticket->bound = true;
    ticket->local = peer == NULL;
    ticket->peer = number;
    ticket->peer_incarnation = peer != NULL ? peer->incarnation : 0;
    return SL_OK;
}

sl_err push_pieces_check(const struct push_ticket *ticket, const struct sl_item_arrived *pieces,
                         uint64_t count, struct sl_error *why)
{
    for (uint64_t i = 0; i < count; i++) {
        const struct push_part *part =
            pieces[i].part < ticket->part_count ? &ticket->parts[pieces[i].part] : NULL;
        if (part == NULL || pieces[i].part_offset_bytes > part->length_bytes ||
            pieces[i].length_bytes > part->length_bytes - pieces[i].part_offset_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "%" PRIu64 "+%" PRIu64 " is not within part %" PRIu64 " of the ticket",
                           pieces[i].part_offset_bytes, pieces[i].length_bytes, pieces[i].part);
        }
        uint64_t there =
            sl_cover_within(&part->cover, pieces[i].part_offset_bytes, pieces[i].length_bytes);
        if (there != 0 && there != pieces[i].length_bytes) { /* a repetition has all of it */
            return sl_fail(why, SL_ERR_INVALID,
                           "of %" PRIu64 "+%" PRIu64 " of part %" PRIu64 " some is here already",
                           pieces[i].part_offset_bytes, pieces[i].length_bytes, pieces[i].part);
        }
    }
    return SL_OK;
}

void push_ticket_shown(struct push *push, struct tr_peer *peer, const struct sl_msg *msg)
{
    const struct sl_body_peer_ticket *body = &msg->body.peer_ticket;
    struct sl_error why = {0};
    struct push_ticket *ticket = push_ticket_find(push, &body->ticket, &why);
    sl_err err = ticket != NULL ? push_ticket_take(push, ticket, peer, &why) : why.code;
    if (ticket != NULL && err == SL_OK && body->first_part >= ticket->part_count) {
        err = sl_fail(&why, SL_ERR_INVALID, "the ticket has %u parts", ticket->part_count);
    }
    if (ticket == NULL || err != SL_OK) {
        push_peer_reply(push, peer, SL_MSG_PEER_TICKET, msg, err, why.text);
        return;
    }
    ticket->asked_seq = msg->seq;
    ticket->asked_first = (uint32_t)body->first_part;
    push_page_go(push, ticket);
}

void push_ticket_given_up(struct push *push, struct tr_peer *peer, const struct sl_msg *msg)
{
    const struct sl_body_push_abort *body = &msg->body.push_abort;
    struct sl_error why = {0};
    struct push_ticket *ticket = push_ticket_find(push, &body->ticket, &why);
    sl_err err = ticket != NULL ? push_ticket_take(push, ticket, peer, &why) : why.code;
    if (ticket != NULL && (err == SL_OK || err == SL_ERR_BUSY)) {
        char text[SL_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "node %s gave up: %.180s", peer->name,
                       body->text.length > 0 ? body->text.at : "");
        sl_err code = body->code != SL_OK && body->code < SL_ERR_COUNT ? (sl_err)body->code
                                                                       : SL_ERR_CANCELLED;
        push_ticket_end(push, ticket, code, text);
        err = SL_OK;
    }
    push_peer_reply(push, peer, SL_MSG_PUSH_ABORT, msg, err, why.text);
}

/* ---- what happens to it ---- */

static void ticket_renew(struct push *push, struct push_ticket *ticket, bool another_life)
{
    push_arrivals_forget(push, ticket);
    for (uint32_t i = 0; another_life && i < ticket->part_count; i++) {
        sl_cover_fini(&ticket->parts[i].shut); /* it does not know what the one before has named */
    }
    ticket->asked_seq = 0;
    ticket->renewing = ticket->grants_open > 0;
    push_grants_end(push, ticket);
    push_ticket_look(push, ticket);
}

static void peer_renewed(struct push *push, uint32_t peer, uint64_t incarnation)
{
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        if (ticket->state == TICKET_OPEN && ticket->bound && !ticket->local &&
            ticket->peer == peer && ticket->peer_incarnation != incarnation) {
            ticket_renew(push, ticket, incarnation != 0);
        }
    }
}

void tr_push_link_lost(struct transporter *self, uint32_t fabric_peer)
{
    for (uint32_t i = 0; self->push != NULL && i < self->peer_count; i++) {
        if (self->peers[i].fabric_peer == fabric_peer) {
            peer_renewed(self->push, i, 0); /* whatever life it is in */
        }
    }
}

void tr_push_peer_renewed(struct transporter *self, const struct tr_peer *peer)
{
    struct push *push = self->push;
    if (push == NULL) {
        return;
    }
    peer_renewed(push, tr_peer_number(self, peer), peer->incarnation);
    for (uint32_t i = 0; push->targets_open > 0 && i < push->ticket_max; i++) {
        struct push_target *target = &push->targets[i];
        if (target->used && !target->over && target->peer == tr_peer_number(self, peer) &&
            target->ticket.incarnation != peer->incarnation) {
            push_target_over(push, target, SL_ERR_PEER_DIED,
                             "the node's transporter died, and its tickets with it", false);
        }
    }
    push_due(push, 0);
}

uint32_t tr_push_fence(struct transporter *self, const struct sl_msg *msg, uint32_t fence)
{
    struct push *push = self->push;
    if (push == NULL || msg->body.fence.items.count > 0) { /* of claims: no ticket has any */
        return 0;
    }
    uint32_t waiting = push_sends_fence(push, msg, fence);
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        if (ticket->state == TICKET_FREE || ticket->state == TICKET_OVER ||
            !tr_fence_covers(msg, &ticket->opened)) {
            continue;
        }
        if (ticket->state == TICKET_OPEN) {
            sl_metric_add(self->env->metrics, push->metric.fenced, 1);
            push_ticket_end(push, ticket, SL_ERR_STALE, "the op of the ticket was fenced");
        }
        if (ticket->state == TICKET_ENDING) {
            waiting++;
            ticket->fences |= fence < TR_FENCES_MAX ? UINT64_C(1) << fence : 0;
        }
    }
    push_due(push, 0);
    return waiting;
}

void tr_push_engine_ends(struct transporter *self, uint64_t engine_id)
{
    struct push *push = self->push;
    for (uint32_t i = 0; push != NULL && push->tickets_open > 0 && i < push->ticket_max; i++) {
        struct push_ticket *ticket = &push->tickets[i];
        bool named = false;
        for (uint32_t k = 0; ticket->state == TICKET_OPEN && !named && k < ticket->spot_count;
             k++) {
            named = ticket->spots[k].engine_id == engine_id;
        }
        if (named) {
            push_ticket_end(push, ticket, SL_ERR_STALE, "the engine of its blocks has ended");
        }
    }
    if (push != NULL) {
        push_sends_engine_ends(push, engine_id);
        push_due(push, 0);
        self->env->ops->wake_at(self->env, 0);
    }
}

static void ticket_step(struct push *push, struct push_ticket *ticket, uint64_t now_ns)
{
    struct sl_error why = {0};
    if (ticket->state == TICKET_OPEN && ticket->deadline_ns <= now_ns) {
        sl_metric_add(push->self->env->metrics, push->metric.expired, 1);
        push_ticket_end(push, ticket, SL_ERR_TIMEOUT, "the ticket ended at its deadline");
    } else if (ticket->state == TICKET_OPEN && push->look && ticket->bound && !ticket->local &&
               push_peer_gone(push, &push->self->peers[ticket->peer], &why)) {
        push_ticket_end(push, ticket, why.code, why.text);
    } else if (ticket->state == TICKET_OVER && ticket->complete && ticket->deadline_ns <= now_ns) {
        ticket_free(push, ticket); /* nobody closed it */
    } else if (ticket->state == TICKET_OVER && !ticket->complete && ticket->call_seq == 0 &&
               ticket->tell_due_ns <= now_ns) {
        ticket_tell(push, ticket);
    }
    if (ticket->state == TICKET_OPEN || (ticket->state == TICKET_OVER && ticket->complete)) {
        push_due(push, ticket->deadline_ns);
    } else if (ticket->state == TICKET_OVER && ticket->call_seq == 0) {
        push_due(push, ticket->tell_due_ns);
    }
}

void push_tickets_step(struct push *push, uint64_t now_ns)
{
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->ticket_max; i++) {
        if (push->tickets[i].state != TICKET_FREE) {
            ticket_step(push, &push->tickets[i], now_ns);
        }
    }
}
