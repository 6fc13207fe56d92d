/* actors/transporter/push/target.c - a ticket of another node, as the one that writes sees it.
 *
 * Its keys are asked for a page at a time, when a batch needs them (PEER_TICKET). When one batch
 * has failed nothing more is written under the ticket: a transfer that was given up may still be
 * under way, and must not meet a later one in the same bytes. */
#include "actors/transporter/push/internal.h"

#include "runtime/sl_backoff.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RENEW_MAX_NS (200 * SL_NS_PER_MS)

static struct tr_peer *peer_of(const struct push *push, const struct push_target *target)
{
    return &push->self->peers[target->peer];
}

static void doors_close(struct push *push, struct push_target *target)
{
    for (uint32_t i = 0; target->doors != NULL && i < target->ticket.part_count; i++) {
        if (target->doors[i].used) {
            sl_fabric_key_close(push->self->fabric, target->doors[i].key);
            target->doors[i].used = false;
            push->doors_open--;
        }
    }
    target->door_count = 0;
}

static void target_free(struct push *push, struct push_target *target)
{
    SL_ASSERT(target->sends == 0 && !target->aborting);
    doors_close(push, target);
    free(target->doors);
    *target = (struct push_target){0};
    push->targets_open--;
}

void push_targets_fini(struct push *push)
{
    for (uint32_t i = 0; push->targets != NULL && i < push->ticket_max; i++) {
        free(push->targets[i].doors); /* keys went with the fabric */
    }
    free(push->targets);
    push->targets = NULL;
}

/* ---- the table ---- */

static bool is_ticket(const struct push_target *target, const struct sl_ticket *ticket)
{
    return target->used && target->ticket.number == ticket->number &&
           target->ticket.slot == ticket->slot &&
           target->ticket.incarnation == ticket->incarnation &&
           strcmp(target->ticket.node, ticket->node) == 0 &&
           memcmp(target->ticket.secret, ticket->secret, SL_TICKET_SECRET_BYTES) == 0;
}

static struct push_target *target_find(struct push *push, const struct sl_ticket *ticket)
{
    for (uint32_t i = 0; push->targets_open > 0 && i < push->ticket_max; i++) {
        if (is_ticket(&push->targets[i], ticket)) {
            return &push->targets[i];
        }
    }
    return NULL;
}

/* A free place; one that is kept for late batches alone makes room. */
static struct push_target *target_place(struct push *push)
{
    struct push_target *oldest = NULL;
    for (uint32_t i = 0; i < push->ticket_max; i++) {
        struct push_target *target = &push->targets[i];
        if (!target->used) {
            return target;
        }
        if (target->over && target->sends == 0 && !target->aborting &&
            (oldest == NULL || target->deadline_ns < oldest->deadline_ns)) {
            oldest = target;
        }
    }
    if (oldest != NULL) {
        target_free(push, oldest);
    }
    return oldest;
}

sl_err push_target_get(struct push *push, const struct sl_ticket *ticket, struct push_target **out,
                       struct sl_error *why)
{
    struct transporter *self = push->self;
    struct push_target *target = target_find(push, ticket);
    if (target != NULL) {
        *out = target;
        return target->over ? sl_fail(why, target->code, "%s", target->text) : SL_OK;
    }
    const struct tr_peer *peer = self->peers != NULL ? tr_peer_find(self, ticket->node) : NULL;
    if (peer == NULL || peer->address[0] == '\0') {
        return sl_fail(why, SL_ERR_UNREACHABLE, "node %s of the ticket is no peer of node %s",
                       ticket->node, self->node);
    }
    target = target_place(push);
    struct push_door *doors = calloc(SL_MAX(ticket->part_count, 1u), sizeof(*doors));
    if (target == NULL || doors == NULL) {
        free(doors);
        return sl_fail(why, target == NULL ? SL_ERR_LIMIT : SL_ERR_NO_MEMORY,
                       "%u tickets of other nodes are in use", push->targets_open);
    }
    *target = (struct push_target){
        .used = true,
        .ticket = *ticket,
        .peer = tr_peer_number(self, peer),
        .doors = doors,
        .deadline_ns =
            sl_deadline_ns(push_now(push), sl_config_u64(self->env->config, SL_SET_ticket_ttl_max)),
    };
    target->length_bytes = sl_ticket_write(ticket, target->bytes);
    push->targets_open++;
    *out = target;
    return SL_OK;
}

/* ---- keys ---- */

static void keys_ask(struct push *push, struct push_target *target, uint32_t first_part)
{
    struct transporter *self = push->self;
    uint64_t timeout_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    struct sl_msg msg = {.type = SL_MSG_PEER_TICKET, .budget_ns = timeout_ns};
    msg.body.peer_ticket.ticket =
        (struct sl_bytes){.at = target->bytes, .length = target->length_bytes};
    msg.body.peer_ticket.first_part = first_part;
    target->asked_first = first_part;
    bool sent = tr_peer_ask(self, peer_of(push, target), &msg, &target->ask_seq) == SL_OK;
    target->ask_due_ns = push_now(push) + (sent ? timeout_ns : PUSH_SOON_NS);
    push_due(push, target->ask_due_ns);
}

bool push_target_ready(struct push *push, struct push_target *target, const struct push_send *send)
{
    uint64_t now_ns = push_now(push);
    for (uint32_t i = 0; i < send->piece_count; i++) {
        const struct push_door *door = &target->doors[send->pieces[i].part];
        if (door->used || door->taken) {
            continue;
        }
        if (target->ask_due_ns <= now_ns) {
            if (target->ask_seq != 0) { /* no answer: perhaps it has not heard of us */
                peer_of(push, target)->hello_due_ns = 0;
            }
            uint32_t part = (uint32_t)send->pieces[i].part;
            keys_ask(push, target, part - part % PUSH_PIECES_MAX);
        }
        push_due(push, target->ask_due_ns);
        return false;
    }
    return true;
}

static sl_err door_open(struct push *push, struct push_target *target,
                        const struct sl_item_door *item, struct sl_error *why)
{
    if (item->part >= target->ticket.part_count) {
        return sl_fail(why, SL_ERR_PROTOCOL, "node %s speaks of part %" PRIu64, target->ticket.node,
                       item->part);
    }
    struct push_door *door = &target->doors[item->part];
    if (door->used || door->taken) {
        return SL_OK;
    }
    if (push->doors_open == push->parts_max) {
        return sl_fail(why, SL_ERR_LIMIT, "%u parts of tickets are in use", push->doors_open);
    }
    sl_err err = sl_fabric_key_open(push->self->fabric, peer_of(push, target)->fabric_peer,
                                    item->key.at, (uint32_t)item->key.length, &door->key, why);
    if (err == SL_OK) {
        door->used = true;
        door->length_bytes = item->length_bytes;
        push->doors_open++;
        target->door_count++;
    }
    return err;
}

static sl_err door_taken(struct push *push, struct push_target *target, uint64_t part,
                         struct sl_error *why)
{
    if (part >= target->ticket.part_count) {
        return sl_fail(why, SL_ERR_PROTOCOL, "node %s speaks of part %" PRIu64, target->ticket.node,
                       part);
    }
    struct push_door *door = &target->doors[part];
    if (door->used) {
        sl_fabric_key_close(push->self->fabric, door->key);
        door->used = false;
        push->doors_open--;
        target->door_count--;
    }
    door->taken = true;
    return SL_OK;
}

/* What is written next wants keys: they are asked for while this page is written. */
static void keys_ask_ahead(struct push *push, struct push_target *target)
{
    for (uint32_t i = target->asked_first + PUSH_PIECES_MAX; i < target->ticket.part_count; i++) {
        if (!target->doors[i].used && !target->doors[i].taken) {
            keys_ask(push, target, i - i % PUSH_PIECES_MAX);
            return;
        }
    }
}

static void sends_advance(struct push *push, const struct push_target *target)
{
    uint32_t index = (uint32_t)(target - push->targets);
    for (uint32_t i = 0; target->sends > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase != SEND_FREE && !send->local && send->target == index) {
            push_send_advance(push, send);
        }
    }
}

void push_target_keys(struct push *push, struct tr_peer *peer, const struct sl_msg *reply)
{
    const struct sl_body_peer_ticket_reply *body = &reply->body.peer_ticket_reply;
    struct push_target *target = NULL;
    struct sl_error why = {0};
    for (uint32_t i = 0; push->targets_open > 0 && i < push->ticket_max; i++) {
        struct push_target *candidate = &push->targets[i];
        if (candidate->used && candidate->ask_seq != 0 && candidate->ask_seq == reply->reply_to &&
            candidate->peer == tr_peer_number(push->self, peer)) {
            target = candidate;
        }
    }
    if (target == NULL || target->over) {
        return; /* late */
    }
    target->ask_seq = 0;
    if (reply->code == SL_ERR_BUSY || reply->code == SL_ERR_LIMIT) {
        target->ask_due_ns = push_now(push) + PUSH_SOON_NS;
        push_due(push, target->ask_due_ns);
        return;
    }
    target->ask_due_ns = 0;
    sl_err err = reply->code;
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "%s", reply->text.length > 0 ? reply->text.at : sl_err_text(err));
    } else if (body->part_count != target->ticket.part_count ||
               body->doors.count + body->taken.count == 0) {
        err = sl_fail(&why, SL_ERR_PROTOCOL, "node %s gave %" PRIu64 " of %" PRIu64 " parts",
                      target->ticket.node, body->doors.count, body->part_count);
    }
    for (uint64_t i = 0; err == SL_OK && i < body->doors.count; i++) {
        err = door_open(push, target, &body->doors.at[i], &why);
    }
    for (uint64_t i = 0; err == SL_OK && i < body->taken.count; i++) {
        err = door_taken(push, target, body->taken.at[i], &why);
    }
    if (err == SL_OK) {
        target->deadline_ns = sl_deadline_ns(push_now(push), body->ttl_ns);
        push_due(push, target->deadline_ns);
        keys_ask_ahead(push, target);
        sends_advance(push, target);
    } else if (err == SL_ERR_LIMIT) {
        target->ask_due_ns = push_now(push) + PUSH_SOON_NS;
        push_due(push, target->ask_due_ns);
    } else {
        push_target_over(push, target, err, why.text, reply->code == SL_OK);
    }
}

void push_target_renew(struct push *push, struct push_target *target)
{
    doors_close(push, target);
    target->ask_seq = 0;
    target->ask_due_ns = sl_deadline_ns(
        push_now(push), sl_backoff_ns(PUSH_SOON_NS, RENEW_MAX_NS, target->failures,
                                      push->self->env->ops->random_u64(push->self->env)));
    target->failures += target->failures < 16 ? 1 : 0;
    push_due(push, target->ask_due_ns);
}

/* ---- the end ---- */

static void end_tell(struct push *push, struct push_target *target)
{
    struct transporter *self = push->self;
    uint64_t timeout_ns = sl_config_u64(self->env->config, SL_SET_peer_timeout);
    struct sl_msg msg = {.type = SL_MSG_PUSH_ABORT, .budget_ns = timeout_ns};
    msg.body.push_abort.ticket =
        (struct sl_bytes){.at = target->bytes, .length = target->length_bytes};
    msg.body.push_abort.code = (uint64_t)target->code;
    msg.body.push_abort.text = sl_text_of(target->text);
    (void)tr_peer_ask(self, peer_of(push, target), &msg, &target->end_seq);
    target->end_due_ns = push_now(push) + timeout_ns;
    push_due(push, target->end_due_ns);
}

void push_target_end_answered(struct push *push, struct tr_peer *peer, const struct sl_msg *reply)
{
    for (uint32_t i = 0; push->targets_open > 0 && i < push->ticket_max; i++) {
        struct push_target *target = &push->targets[i];
        if (target->used && target->tell && target->end_seq != 0 &&
            target->end_seq == reply->reply_to &&
            target->peer == tr_peer_number(push->self, peer)) {
            target->tell = false;
        }
    }
}

void push_target_over(struct push *push, struct push_target *target, sl_err code, const char *text,
                      bool tell)
{
    if (target->over) {
        return;
    }
    target->over = true;
    target->tell = tell;
    target->code = code != SL_OK ? code : SL_ERR_STALE;
    (void)snprintf(target->text, sizeof(target->text), "%s",
                   code == SL_OK     ? "the hand-over is complete"
                   : text[0] != '\0' ? text
                                     : sl_err_text(code));
    uint32_t index = (uint32_t)(target - push->targets);
    for (uint32_t i = 0; target->sends > 0 && i < push->push_max; i++) {
        struct push_send *send = &push->sends[i];
        if (send->phase != SEND_FREE && !send->local && send->target == index) {
            push_send_end(push, send, target->code, target->text);
        }
    }
    doors_close(push, target);
    if (tell) {
        end_tell(push, target);
    }
    push_due(push, target->deadline_ns);
}

void push_target_left(struct push *push, struct push_target *target)
{
    SL_ASSERT(target->sends > 0);
    target->sends--;
    push_due(push, 0);
    if (target->sends == 0 && target->aborting) {
        target->aborting = false;
        push_reply(push, &target->abort_back, SL_OK, "");
    }
    if (!target->over) {
        sends_advance(push, target); /* the last one waits for the others */
    }
}

static void abort_local(struct push *push, const struct sl_ticket *shown, const struct sl_msg *msg,
                        sl_err code, const char *text)
{
    struct sl_error why = {0};
    struct push_ticket *ticket = push_ticket_named(push, shown, &why);
    if (ticket != NULL && push_ticket_take(push, ticket, NULL, &why) == SL_OK) {
        push_ticket_end(push, ticket, code, text); /* copies are made in turns: none is under way */
    }
    sl_reply_code(push->self->env, msg, SL_OK, NULL);
}

void push_abort(struct push *push, const struct sl_msg *msg)
{
    const struct sl_body_push_abort *body = &msg->body.push_abort;
    struct sl_ticket shown;
    struct sl_error why = {0};
    struct push_target *target = NULL;
    sl_err err = sl_ticket_read(body->ticket.at, body->ticket.length, &shown, &why);
    sl_err code =
        body->code != SL_OK && body->code < SL_ERR_COUNT ? (sl_err)body->code : SL_ERR_CANCELLED;
    const char *text = body->text.length > 0 ? body->text.at : "the sender gave up";
    if (err != SL_OK) {
        sl_reply_code(push->self->env, msg, err, &why);
        return;
    }
    if (strcmp(shown.node, push->self->node) == 0) {
        abort_local(push, &shown, msg, code, text);
        return;
    }
    err = push_target_get(push, &shown, &target, &why); /* one that is new hears of the end alone */
    if (err == SL_OK) {
        push_target_over(push, target, code, text, true);
    }
    if (target == NULL || target->sends == 0) {
        sl_reply_code(push->self->env, msg, SL_OK, NULL);
        return;
    }
    target->aborting = true;
    sl_return_keep(msg, &target->abort_back);
}

void push_targets_step(struct push *push, uint64_t now_ns)
{
    for (uint32_t i = 0; push->targets_open > 0 && i < push->ticket_max; i++) {
        struct push_target *target = &push->targets[i];
        if (!target->used) {
            continue;
        }
        if (target->deadline_ns <= now_ns) {
            push_target_over(push, target, SL_ERR_TIMEOUT, "the ticket ended at its deadline",
                             false);
            if (target->sends == 0 && !target->aborting) {
                target_free(push, target);
            }
            continue;
        }
        push_due(push, target->deadline_ns);
        if (target->tell && target->end_due_ns <= now_ns) {
            end_tell(push, target);
        } else if (target->tell) {
            push_due(push, target->end_due_ns);
        }
    }
}
