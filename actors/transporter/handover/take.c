/* actors/transporter/handover/take.c - BRING with a ticket: blocks that prefill's node lends are
 * read straight into pools of an engine of this node.
 *
 * Only one node may announce pieces: the one that BRING names, or else the first peer that shows
 * the ticket. BRING is answered once nothing is written for it any more. */
#include "actors/transporter/handover/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take_free(struct handover *ho, struct ho_take *take)
{
    SL_ASSERT(take->reads_open == 0);
    for (uint32_t i = 0; i < take->items.count; i++) {
        if (take->parts[i].open) {
            sl_fabric_key_close(ho->self->fabric, take->parts[i].key);
        }
    }
    ho->parts_open -= take->items.count;
    free(take->parts);
    tr_items_free(&take->items);
    *take = (struct ho_take){0};
    ho->takes_open--;
    sl_metric_set(ho->self->env->metrics, ho->metric.takes_open, ho->takes_open);
}

void ho_takes_fini(struct handover *ho)
{
    for (uint32_t i = 0; ho->takes != NULL && i < ho->both_max; i++) {
        free(ho->takes[i].parts); /* keys were closed with the fabric */
        tr_items_free(&ho->takes[i].items);
    }
    free(ho->takes);
    ho->takes = NULL;
}

static struct ho_take *take_of(struct handover *ho, const struct sl_ticket_fields *ticket)
{
    for (uint32_t i = 0; ho->takes_open > 0 && i < ho->both_max; i++) {
        if (ho->takes[i].state != HO_FREE && ho_ticket_is(&ho->takes[i].ticket, ticket)) {
            return &ho->takes[i];
        }
    }
    return NULL;
}

/* ---- the end ---- */

void ho_take_settle(struct handover *ho, struct ho_take *take)
{
    struct sl_msg reply = {0};
    uint64_t fences = take->fences;
    if (take->state != HO_ENDING || take->reads_open > 0) {
        return;
    }
    reply.body.bring_reply.copied_bytes = take->copied_bytes;
    ho_reply(ho, &take->back, &reply, take->code, take->text);
    ho_ended_note(&ho->taken, &take->ticket, take->code);
    take_free(ho, take);
    if (fences != 0) {
        ho->self->events.fences_over(ho->self, fences);
    }
}

void ho_take_end(struct handover *ho, struct ho_take *take, sl_err code, const char *text)
{
    if (take->state != HO_OPEN) {
        return;
    }
    take->state = HO_ENDING;
    take->code = code;
    (void)snprintf(take->text, sizeof(take->text), "%s",
                   text[0] != '\0' ? text : sl_err_text(code));
    if (take->call_seq != 0) {
        sl_calls_drop(ho->self->calls, take->call_seq);
    }
    sl_metric_add(ho->self->env->metrics, ho->metric.takes_failed, code == SL_OK ? 0 : 1);
    ho_reads_stop(ho, take);
    ho_take_settle(ho, take);
}

/* ---- BRING ---- */

/* Device memory works if its swapper can check it: on one node, the CPU would have to write it. */
static sl_err device_check(const struct handover *ho, const struct sl_body_bring *body,
                           const struct tr_item *item, struct sl_error *why)
{
    const struct transporter *self = ho->self;
    bool here =
        self->peer_count == 0 || (body->from.length > 0 && strcmp(body->from.at, self->node) == 0);
    if (item->count > 1) { /* the CPU cannot copy it on */
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "a part that %u ranks have, one of them in device memory", item->count);
    }
    return here ? sl_fail(why, SL_ERR_UNSUPPORTED, "device memory, and prefill is on this node")
                : SL_OK;
}

static sl_err items_take(struct handover *ho, const struct sl_body_bring *body, struct ho_take *out,
                         struct sl_error *why)
{
    uint32_t count = (uint32_t)body->slots.at[body->slots.count - 1].item + 1;
    sl_err err = tr_items_take(ho->self, body, count, &out->items, why);
    for (uint32_t i = 0; i < count && err == SL_OK; i++) {
        const struct tr_item *item = &out->items.at[i];
        err = item->device ? device_check(ho, body, item, why) : SL_OK;
        out->device = out->device || item->device;
    }
    out->parts = calloc(count, sizeof(*out->parts));
    return err != SL_OK || out->parts != NULL
               ? err
               : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u parts", count);
}

static sl_err bounds_check(const struct handover *ho, const struct sl_msg *msg,
                           const struct sl_ticket_fields *ticket, struct sl_error *why)
{
    const struct sl_body_bring *body = &msg->body.bring;
    uint64_t count = body->slots.count == 0 ? 0 : body->slots.at[body->slots.count - 1].item + 1;
    if (strcmp(ticket->node, ho->self->node) != 0) {
        return sl_fail(why, SL_ERR_INVALID, "the ticket is of node %s", ticket->node);
    }
    if (body->from.length > 0 && !sl_actor_name_is_clean(body->from.at, body->from.length)) {
        return sl_fail(why, SL_ERR_INVALID, "BRING.from: '%.31s' is not a node name",
                       body->from.at);
    }
    if (body->keys.count > 0 || count == 0 || count > HO_PARTS_MAX) {
        return sl_fail(why, SL_ERR_INVALID,
                       "BRING of a ticket: %" PRIu64 " keys, %" PRIu64 " parts", body->keys.count,
                       count);
    }
    if (ho->takes_open == ho->both_max || count > ho->parts_max - ho->parts_open) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "%u hand-overs of %u parts are in progress, %" PRIu64 " more wanted",
                       ho->takes_open, ho->parts_open, count);
    }
    return tr_fenced_has(&ho->self->fenced, msg)
               ? sl_fail(why, SL_ERR_CANCELLED, "the op was fenced")
               : SL_OK;
}

static struct ho_take *take_new(struct handover *ho, const struct sl_msg *msg,
                                const struct sl_ticket_fields *ticket, struct sl_error *why)
{
    const struct sl_body_bring *body = &msg->body.bring;
    if (bounds_check(ho, msg, ticket, why) != SL_OK) {
        return NULL;
    }
    struct ho_take made = {.state = HO_OPEN, .ticket = *ticket};
    if (items_take(ho, body, &made, why) != SL_OK) {
        free(made.parts);
        tr_items_free(&made.items);
        return NULL;
    }
    uint32_t index = 0;
    while (ho->takes[index].state != HO_FREE) {
        index++;
    }
    sl_reply_route_keep(msg, &made.back);
    (void)snprintf(made.from, sizeof(made.from), "%s", body->from.length > 0 ? body->from.at : "");
    struct ho_take *take = &ho->takes[index];
    *take = made;
    ho->takes_open++;
    ho->parts_open += take->items.count;
    sl_metric_add(ho->self->env->metrics, ho->metric.takes, 1);
    sl_metric_set(ho->self->env->metrics, ho->metric.takes_open, ho->takes_open);
    return take;
}

/* Reports that the ticket may be given to prefill. */
static void take_report(struct handover *ho, struct ho_take *take)
{
    struct sl_msg msg = {.type = SL_MSG_LANDED, .trace_id = take->back.trace_id};
    msg.body.landed.handover = take->ticket.number;
    sl_err err =
        sl_calls_send(ho->self->calls, take->back.to, &msg, take->back.deadline_ns,
                      tr_cookie(TR_CALL_TAKE, (uint32_t)(take - ho->takes)), &take->call_seq);
    take->report_due = err == SL_ERR_LIMIT; /* the table of calls is full: retry */
    take->call_seq = err == SL_OK ? take->call_seq : 0;
    if (take->report_due) {
        ho_due(ho, ho_now(ho) + HO_SOON_NS);
    } else if (err != SL_OK) {
        ho_take_end(ho, take, err, "its sender cannot be notified");
    }
}

void tr_take_opened(struct transporter *self, uint32_t index, const struct sl_msg *reply)
{
    struct handover *ho = self->handover;
    struct ho_take *take = &ho->takes[index];
    take->call_seq = 0;
    if (reply == NULL || reply->code != SL_OK) {
        ho_take_end(ho, take, reply != NULL ? reply->code : SL_ERR_TIMEOUT,
                    "its sender rejected it");
    }
}

void tr_take(struct transporter *self, const struct sl_msg *msg)
{
    struct handover *ho = self->handover;
    struct sl_ticket_fields ticket;
    struct sl_error why = {0};
    if (!ho_ticket_taken(self, msg, &msg->body.bring.ticket, &ticket)) {
        return;
    }
    const struct ho_ended *ended = ho_ended_find(&ho->taken, &ticket);
    struct ho_take *take = take_of(ho, &ticket);
    if (take != NULL && sl_reply_route_matches(&take->back, msg)) {
        return; /* the first message is answered */
    }
    if (take != NULL || ended != NULL) { /* also a repetition after the answer */
        sl_reply_code(self->env, msg, take != NULL ? SL_ERR_BUSY : ended->code, NULL);
        return;
    }
    take = take_new(ho, msg, &ticket, &why);
    if (take == NULL) {
        sl_reply_code(self->env, msg, why.code, &why);
        return;
    }
    take_report(ho, take);
    ho_due(ho, 0);
}

/* ---- announced pieces ---- */

static sl_err take_bind(struct handover *ho, struct ho_take *take, const struct tr_peer *peer,
                        uint64_t loan, struct sl_error *why)
{
    const char *name = peer != NULL ? peer->name : ho->self->node;
    uint32_t number = peer != NULL ? tr_peer_number(ho->self, peer) : 0;
    bool same = take->local == (peer == NULL) && take->peer == number && take->loan == loan;
    if ((take->bound && !same) || (take->from[0] != '\0' && strcmp(take->from, name) != 0)) {
        sl_metric_add(ho->self->env->metrics, ho->metric.refused, 1);
        return sl_fail(why, SL_ERR_PERMISSION, "the ticket is not for node %s", name);
    }
    take->bound = true;
    take->local = peer == NULL;
    take->peer = number;
    take->peer_incarnation = peer != NULL ? peer->incarnation : 0;
    take->loan = loan;
    return peer == NULL && take->device
               ? sl_fail(why, SL_ERR_UNSUPPORTED, "device memory, and prefill is on this node")
               : SL_OK;
}

static sl_err keys_open(struct handover *ho, struct ho_take *take,
                        const struct sl_body_peer_lend *body, struct sl_error *why)
{
    for (uint64_t i = 0; i < body->doors.count; i++) {
        const struct sl_item_door *door = &body->doors.at[i];
        struct ho_part *part = door->part < take->items.count ? &take->parts[door->part] : NULL;
        if (part == NULL || part->open || take->local) {
            return sl_fail(why, SL_ERR_INVALID, "a key of part %" PRIu64 " is not expected",
                           door->part);
        }
        sl_err err = sl_fabric_key_open(ho->self->fabric, ho->self->peers[take->peer].fabric_peer,
                                        door->key.at, (uint32_t)door->key.length, &part->key, why);
        if (err != SL_OK) {
            return err;
        }
        part->open = true;
    }
    return SL_OK;
}

/* Counts announced bytes. Pieces of a part are contiguous: the count shows if it is complete. */
static sl_err pieces_count(struct ho_take *take, const struct sl_body_peer_lend *body,
                           struct sl_error *why)
{
    for (uint64_t i = 0; i < body->pieces.count; i++) {
        const struct sl_item_arrived *piece = &body->pieces.at[i];
        struct ho_part *part = piece->part < take->items.count ? &take->parts[piece->part] : NULL;
        if (part == NULL || !(part->open || take->local) ||
            piece->part_offset_bytes != part->named_bytes ||
            piece->length_bytes > take->items.at[piece->part].length_bytes - part->named_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "part %" PRIu64 ": %" PRIu64 "+%" PRIu64 " does not follow", piece->part,
                           piece->part_offset_bytes, piece->length_bytes);
        }
        part->named_bytes += piece->length_bytes;
    }
    for (uint32_t i = 0; body->last && i < take->items.count; i++) {
        uint64_t named = take->parts[i].named_bytes, all = take->items.at[i].length_bytes;
        if (named != all) {
            return sl_fail(why, SL_ERR_INCOMPLETE,
                           "of part %u %" PRIu64 " of %" PRIu64 " bytes were sent", i, named, all);
        }
    }
    return SL_OK;
}

/* Accepts the next message. An invalid one ends the take. */
static sl_err next_take(struct handover *ho, struct ho_take *take, const struct sl_msg *msg,
                        struct sl_error *why)
{
    const struct sl_body_peer_lend *body = &msg->body.peer_lend;
    sl_err err = take->last ? sl_fail(why, SL_ERR_INVALID, "a message after the last one") : SL_OK;
    err = err == SL_OK ? keys_open(ho, take, body, why) : err;
    err = err == SL_OK ? pieces_count(take, body, why) : err;
    err = err == SL_OK ? ho_read_begin(ho, take, msg, why) : err;
    if (err != SL_OK) {
        ho_take_end(ho, take, err, why->text);
        return err;
    }
    take->heard++;
    take->last = body->last;
    return SL_OK;
}

sl_err ho_take_message(struct handover *ho, struct tr_peer *peer, const struct sl_msg *msg,
                       uint32_t *number, bool *fresh, struct sl_error *why)
{
    const struct sl_body_peer_lend *body = &msg->body.peer_lend;
    struct sl_ticket_fields ticket;
    sl_err err = sl_ticket_read(body->ticket.at, body->ticket.length, &ticket, why);
    *number = (uint32_t)body->number;
    if (err != SL_OK) {
        return err;
    }
    struct ho_take *take = take_of(ho, &ticket);
    const struct ho_ended *ended = take == NULL ? ho_ended_find(&ho->taken, &ticket) : NULL;
    if (take == NULL ||
        (take->state == HO_OPEN &&
         (take->call_seq != 0 || take->report_due))) { /* its LANDED is not acknowledged */
        return ended != NULL ? ho_over_code(ended->code)
                             : sl_fail(why, SL_ERR_NOT_FOUND, "no such hand-over here");
    }
    if (take->state != HO_OPEN) {
        return sl_fail(why, ho_over_code(take->code), "%s", take->text);
    }
    err = take_bind(ho, take, peer, msg->op_id, why);
    if (err == SL_ERR_UNSUPPORTED) {
        ho_take_end(ho, take, err, why->text);
    }
    if (err != SL_OK) {
        return err;
    }
    if (body->code != SL_OK) {
        char text[SL_ERROR_TEXT_BYTES];
        (void)snprintf(text, sizeof(text), "node %s: %.180s",
                       peer != NULL ? peer->name : ho->self->node,
                       body->text.length > 0 ? body->text.at : "");
        ho_take_end(ho, take, sl_err_received(body->code), text);
        return SL_OK;
    }
    if (body->number <= take->heard && ho_read_of(ho, take, (uint32_t)body->number) == NULL) {
        return SL_OK;
    }
    if (body->number != take->heard + 1) {
        *number = take->heard;
        return SL_ERR_BUSY;
    }
    if (ho->reads_open == HO_READS_MAX || take->reads_open == HO_UNREAD_MAX) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "%u messages are being read", ho->reads_open);
    }
    err = next_take(ho, take, msg, why);
    *fresh = err == SL_OK;
    return err == SL_OK ? SL_ERR_BUSY : err;
}

void tr_take_announced(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    struct sl_msg reply = {.op_id = msg->op_id, .trace_id = msg->trace_id};
    uint32_t number = 0;
    bool fresh = false;
    if (self->handover == NULL) {
        return;
    }
    reply.code = peer->incarnation == 0
                     ? sl_fail(&why, SL_ERR_NOT_FOUND, "send PEER_HELLO first")
                     : ho_take_message(self->handover, peer, msg, &number, &fresh, &why);
    ho_due(self->handover, 0);
    if (fresh) {
        return;
    }
    reply.body.peer_lend_reply.number = number;
    if (reply.code != SL_OK) {
        reply.text = sl_text_of(why.text[0] != '\0' ? why.text : sl_err_text(reply.code));
    }
    tr_peer_answer(self, peer, SL_MSG_PEER_LEND, msg->seq, &reply);
}

/* ---- time ---- */

void ho_takes_step(struct handover *ho, uint64_t now_ns)
{
    struct sl_error why = {0};
    for (uint32_t i = 0; ho->takes_open > 0 && i < ho->both_max; i++) {
        struct ho_take *take = &ho->takes[i];
        if (take->state != HO_OPEN) {
            continue;
        }
        if (take->back.deadline_ns <= now_ns) {
            ho_take_end(ho, take, SL_ERR_TIMEOUT, "it was not read in time");
        } else if (ho->look && take->bound && !take->local &&
                   ho_peer_gone(ho, &ho->self->peers[take->peer], &why)) {
            ho_take_end(ho, take, why.code, why.text);
        } else {
            ho_due(ho, take->back.deadline_ns);
            if (take->report_due) {
                take_report(ho, take);
            }
        }
    }
}
