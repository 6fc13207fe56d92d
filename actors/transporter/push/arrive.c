/* actors/transporter/push/arrive.c - what was written under a ticket.
 *
 * A notice comes after all completions at the writer. The bytes are hashed where they lie, in the
 * order of the notices and a slice a turn; then the ticket's owner is told, and its word is the
 * acknowledgement. What lies in device memory is digested by the swapper of its rank, when all else
 * of the batch was right (check.c). A batch of this node is copied on the way. What several ranks
 * have in their pools was written to the first of them, and is copied to the others when its digest
 * was right. */
#include "actors/transporter/push/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANDS        UINT64_MAX
#define LAND_LOOK_NS (SL_NS_PER_MS / 5)

static bool is_of(const struct push_arrival *arrival, const struct push_ticket *ticket,
                  const struct push *push)
{
    return arrival->phase != ARRIVAL_FREE && arrival->ticket_number == ticket->number &&
           arrival->ticket == (uint32_t)(ticket - push->tickets);
}

static void arrival_free(struct push *push, struct push_arrival *arrival)
{
    if (arrival->call_seq != 0) {
        sl_calls_forget(push->calls, arrival->call_seq);
    }
    free(arrival->pieces);
    free(arrival->states);
    *arrival = (struct push_arrival){0};
}

void push_arrivals_fini(struct push *push)
{
    for (uint32_t i = 0; push->arrivals != NULL && i < push->push_max; i++) {
        free(push->arrivals[i].pieces);
        free(push->arrivals[i].states);
    }
    free(push->arrivals);
    push->arrivals = NULL;
}

static struct push_arrival *arrival_new(struct push *push, const struct push_ticket *ticket,
                                        uint32_t piece_count, struct sl_error *why)
{
    uint32_t index = 0;
    while (index < push->push_max && push->arrivals[index].phase != ARRIVAL_FREE) {
        index++;
    }
    if (index == push->push_max) {
        (void)sl_fail(why, SL_ERR_LIMIT, "%u batches are on their way", push->push_max);
        return NULL;
    }
    struct push_arrival *arrival = &push->arrivals[index];
    struct sl_item_arrived *pieces = calloc(SL_MAX(piece_count, 1u), sizeof(*pieces));
    uint8_t *states = ticket->device ? calloc(SL_MAX(piece_count, 1u), 1) : NULL;
    if (pieces == NULL || (ticket->device && states == NULL)) {
        free(pieces);
        free(states);
        (void)sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u pieces", piece_count);
        return NULL;
    }
    *arrival = (struct push_arrival){
        .phase = ARRIVAL_CHECK,
        .ticket = (uint32_t)(ticket - push->tickets),
        .ticket_number = ticket->number,
        .trace_id = ticket->trace_id,
        .deadline_ns = ticket->deadline_ns,
        .piece_count = piece_count,
        .pieces = pieces,
        .states = states,
        .order = push->next_arrival++,
    };
    sl_metric_add(push->self->env->metrics, push->metric.arrivals, 1);
    push_due(push, 0);
    return arrival;
}

/* ---- its fate ---- */

static void told_answer(struct push *push, struct tr_peer *peer, const struct push_arrival *arrival,
                        sl_err code, const char *text)
{
    struct sl_msg reply = {.code = code, .op_id = arrival->op_id, .trace_id = arrival->trace_id};
    reply.body.peer_push_reply.push = arrival->push;
    if (code != SL_OK) {
        reply.text = sl_text_of(text[0] != '\0' ? text : sl_err_text(code));
    }
    tr_peer_answer(push->self, peer, SL_MSG_PEER_PUSH, arrival->seq, &reply);
}

static void arrival_end(struct push *push, struct push_arrival *arrival, sl_err code,
                        const char *text)
{
    struct push_ticket *ticket = &push->tickets[arrival->ticket];
    if (arrival->local) {
        struct push_send *send = &push->sends[arrival->send];
        bool waits = send->phase == SEND_LOCAL && send->number == arrival->push;
        arrival_free(push, arrival);
        if (waits) {
            push_send_end(push, send, code, text);
        }
        return;
    }
    ticket->told[ticket->told_next++ % PUSH_TOLD_MAX] =
        (struct push_told){.push = arrival->push, .code = code};
    told_answer(push, &push->self->peers[ticket->peer], arrival, code, text);
    arrival_free(push, arrival);
}

void push_arrivals_drop(struct push *push, const struct push_ticket *ticket, sl_err code,
                        const char *text)
{
    for (uint32_t i = 0; i < push->push_max; i++) {
        if (is_of(&push->arrivals[i], ticket, push)) {
            arrival_end(push, &push->arrivals[i], code, text);
        }
    }
}

void push_arrivals_forget(struct push *push, const struct push_ticket *ticket)
{
    for (uint32_t i = 0; i < push->push_max; i++) {
        if (is_of(&push->arrivals[i], ticket, push)) {
            arrival_free(push, &push->arrivals[i]);
        }
    }
}

/* The hand-over has failed: the ticket ends, and with it everything under it. */
static void arrival_fail(struct push *push, struct push_arrival *arrival, sl_err code,
                         const char *text)
{
    struct push_ticket *ticket = &push->tickets[arrival->ticket];
    char kept[SL_ERROR_TEXT_BYTES]; /* the text may be the ticket's own */
    (void)snprintf(kept, sizeof(kept), "%s", text);
    push_ticket_end(push, ticket, code, kept);
}

/* ---- checked: tell the owner ---- */

static sl_err ticket_is_whole(const struct push_ticket *ticket, struct sl_error *why)
{
    for (uint32_t i = 0; i < ticket->part_count; i++) {
        const struct push_part *part = &ticket->parts[i];
        if (!sl_cover_whole(&part->cover, part->length_bytes)) {
            return sl_fail(why, SL_ERR_INCOMPLETE,
                           "of part %u %" PRIu64 " of %" PRIu64 " bytes have arrived", i,
                           sl_cover_bytes(&part->cover), part->length_bytes);
        }
    }
    return SL_OK;
}

/* What comes beside the last batch is none of the hand-over. */
static void others_drop(struct push *push, const struct push_arrival *last)
{
    const struct push_ticket *ticket = &push->tickets[last->ticket];
    for (uint32_t i = 0; i < push->push_max; i++) {
        struct push_arrival *arrival = &push->arrivals[i];
        if (arrival != last && is_of(arrival, ticket, push)) {
            arrival_end(push, arrival, ticket->code, ticket->text);
        }
    }
}

static void arrival_tell(struct push *push, struct push_arrival *arrival)
{
    struct push_ticket *ticket = &push->tickets[arrival->ticket];
    struct sl_error why = {0};
    struct sl_msg msg = {.type = SL_MSG_PUSH_ARRIVED, .trace_id = ticket->trace_id};
    struct sl_body_push_arrived *body = &msg.body.push_arrived;
    sl_err err = arrival->last ? ticket_is_whole(ticket, &why) : SL_OK;
    if (err != SL_OK) {
        arrival_fail(push, arrival, err, why.text);
        return;
    }
    arrival->phase = ARRIVAL_TELL;
    body->handover = ticket->handover;
    body->state = arrival->last ? 1 : 0;
    body->layer = arrival->layer;
    body->from =
        sl_text_of(arrival->local ? push->self->node : push->self->peers[ticket->peer].name);
    body->pieces.at = arrival->pieces;
    body->pieces.count = arrival->piece_count;
    err = sl_calls_send(push->calls, ticket->owner, &msg, arrival->deadline_ns,
                        push_cookie(PUSH_CALL_ARRIVAL, (uint32_t)(arrival - push->arrivals)),
                        &arrival->call_seq);
    if (err != SL_OK) {
        arrival->call_seq = 0;
        (void)sl_fail(&why, err, "%s cannot be told: %s", ticket->owner, sl_err_text(err));
        arrival_fail(push, arrival, err, why.text);
    } else if (arrival->last) {
        push_ticket_complete(push, ticket);
        others_drop(push, arrival);
    }
}

static void check_again(struct push *push, struct push_arrival *arrival)
{
    arrival->again_ns = push_now(push) + PUSH_SOON_NS;
    push_due(push, arrival->again_ns);
}

/* All is right that the CPU can see: the swappers are asked for the rest, then it is told. */
static void arrival_seen(struct push *push, struct push_arrival *arrival)
{
    struct sl_error why = {0};
    bool asked = false;
    sl_err err = push_check_ask(push, arrival, &asked, &why);
    if (err == SL_OK && !asked) {
        arrival_tell(push, arrival);
        return;
    }
    if (err != SL_OK && err != SL_ERR_BUSY) {
        arrival_fail(push, arrival, err, why.text);
        return;
    }
    arrival->phase = ARRIVAL_SWAPPER; /* others need not wait for it */
    if (err == SL_ERR_BUSY) {
        check_again(push, arrival);
    }
}

static void arrival_looked_at(struct push *push, struct push_arrival *arrival,
                              const struct sl_msg *reply)
{
    struct sl_error why = {0};
    sl_err err = push_check_answered(push, arrival, reply, &why);
    if (err == SL_OK) {
        arrival_seen(push, arrival);
    } else if (err == SL_ERR_BUSY) {
        check_again(push, arrival);
    } else {
        arrival_fail(push, arrival, err, why.text);
    }
}

/* Swappers that were busy are asked again. */
static void checks_step(struct push *push, uint64_t now_ns)
{
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->push_max; i++) {
        struct push_arrival *arrival = &push->arrivals[i];
        if (arrival->again_ns == 0) {
            continue;
        }
        if (arrival->again_ns > now_ns) {
            push_due(push, arrival->again_ns);
            continue;
        }
        arrival->again_ns = 0;
        if (arrival->deadline_ns <= now_ns) {
            arrival_fail(push, arrival, SL_ERR_TIMEOUT, "nobody checked it in time");
        } else {
            arrival_seen(push, arrival);
        }
    }
}

void push_arrival_answered(struct push *push, uint32_t index, const struct sl_msg *reply)
{
    struct push_arrival *arrival = &push->arrivals[index];
    if (arrival->phase != ARRIVAL_TELL && arrival->phase != ARRIVAL_SWAPPER) {
        return;
    }
    struct push_ticket *ticket = &push->tickets[arrival->ticket];
    char text[SL_ERROR_TEXT_BYTES];
    arrival->call_seq = 0;
    if (arrival->phase == ARRIVAL_SWAPPER) {
        arrival_looked_at(push, arrival, reply);
        return;
    }
    if (reply != NULL && reply->code == SL_OK) {
        push_parts_taken(push, ticket, arrival->pieces, arrival->piece_count);
        arrival_end(push, arrival, SL_OK, "");
        return;
    }
    if (reply == NULL) {
        (void)snprintf(text, sizeof(text), "%s did not answer in time", ticket->owner);
    } else {
        (void)snprintf(text, sizeof(text), "%s refused: %.180s", ticket->owner,
                       reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
        ticket->quiet = true;
    }
    arrival_fail(push, arrival, reply == NULL ? SL_ERR_TIMEOUT : reply->code, text);
}

/* ---- PEER_PUSH ---- */

/* A notice that came before: answered again, or waited for. */
static bool notice_is_known(struct push *push, struct push_ticket *ticket, struct tr_peer *peer,
                            const struct sl_msg *msg)
{
    uint64_t number = msg->body.peer_push.push;
    for (uint32_t i = 0; i < PUSH_TOLD_MAX; i++) {
        if (ticket->told[i].push == number) {
            const struct push_arrival again = {
                .push = number, .seq = msg->seq, .op_id = msg->op_id, .trace_id = msg->trace_id};
            told_answer(push, peer, &again, ticket->told[i].code, "");
            return true;
        }
    }
    for (uint32_t i = 0; i < push->push_max; i++) {
        struct push_arrival *arrival = &push->arrivals[i];
        if (is_of(arrival, ticket, push) && !arrival->local && arrival->push == number) {
            arrival->seq = msg->seq;
            return true;
        }
    }
    return false;
}

static sl_err notice_take(struct push *push, struct push_ticket *ticket, const struct sl_msg *msg,
                          struct sl_error *why)
{
    const struct sl_body_peer_push *body = &msg->body.peer_push;
    sl_err err = push_pieces_check(ticket, body->pieces.at, body->pieces.count, why);
    err = err == SL_OK ? push_pieces_shut(push, ticket, body->pieces.at, body->pieces.count, why)
                       : err;
    if (err != SL_OK) {
        return err;
    }
    struct push_arrival *arrival = arrival_new(push, ticket, (uint32_t)body->pieces.count, why);
    if (arrival == NULL) {
        return why->code;
    }
    arrival->last = body->last;
    arrival->layer = body->layer;
    arrival->push = body->push;
    arrival->seq = msg->seq;
    arrival->op_id = msg->op_id;
    arrival->deadline_ns =
        SL_MIN(arrival->deadline_ns, sl_deadline_ns(msg->received_ns, msg->budget_ns));
    if (body->pieces.count > 0) {
        memcpy(arrival->pieces, body->pieces.at, body->pieces.count * sizeof(*arrival->pieces));
    }
    return SL_OK;
}

void push_notice(struct push *push, struct tr_peer *peer, const struct sl_msg *msg)
{
    const struct sl_body_peer_push *body = &msg->body.peer_push;
    struct sl_error why = {0};
    struct push_ticket *ticket = push_ticket_find(push, &body->ticket, &why);
    const struct push_arrival refused = {
        .push = body->push, .seq = msg->seq, .op_id = msg->op_id, .trace_id = msg->trace_id};
    bool bound = ticket != NULL && ticket->bound && !ticket->local &&
                 ticket->peer == tr_peer_number(push->self, peer);
    if (bound && notice_is_known(push, ticket, peer, msg)) {
        return;
    }
    sl_err err = why.code;
    if (ticket != NULL && (!bound || ticket->peer_incarnation != peer->incarnation)) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "node %s has not shown this ticket", peer->name);
    } else if (ticket != NULL) {
        err = push_ticket_take(push, ticket, peer, &why);
        err = err == SL_OK ? notice_take(push, ticket, msg, &why) : err;
    }
    if (err != SL_OK) {
        told_answer(push, peer, &refused, err, why.text);
    }
}

/* ---- batches of this node ---- */

sl_err push_arrive_local(struct push *push, struct push_ticket *ticket, struct push_send *send,
                         struct sl_error *why)
{
    if (ticket->device) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "no writer of this node writes to device memory");
    }
    sl_err err = push_pieces_check(ticket, send->pieces, send->piece_count, why);
    if (err != SL_OK) {
        return err;
    }
    struct push_arrival *arrival = arrival_new(push, ticket, send->piece_count, why);
    if (arrival == NULL) {
        return why->code;
    }
    arrival->local = true;
    arrival->last = send->last;
    arrival->layer = send->layer;
    arrival->send = (uint32_t)(send - push->sends);
    arrival->push = send->number;
    arrival->deadline_ns = SL_MIN(arrival->deadline_ns, send->deadline_ns);
    if (send->piece_count > 0) {
        memcpy(arrival->pieces, send->pieces, send->piece_count * sizeof(*arrival->pieces));
    }
    return SL_OK;
}

/* ---- checking, a slice a turn ---- */

static sl_err slice_copy(struct push *push, const struct tr_spot *from, const struct tr_spot *to,
                         struct tr_range range, struct sl_error *why)
{
    sl_metric_add(push->self->env->metrics, push->metric.copied_bytes, range.length_bytes);
    return tr_spot_copy(push->self, from, to, range, why);
}

/* Hashes what is next of its piece, or copies it to another owner of the part; gives how many bytes.
 * 0: it has failed. */
static uint64_t slice_check(struct push *push, struct push_arrival *arrival, uint64_t bytes_max)
{
    const struct sl_item_arrived *piece = &arrival->pieces[arrival->piece_at];
    const struct push_ticket *ticket = &push->tickets[arrival->ticket];
    const struct push_part *part = &ticket->parts[piece->part];
    struct sl_error why = {0};
    const struct tr_range range = {.offset_bytes = piece->part_offset_bytes + arrival->byte_at,
                                   .length_bytes =
                                       SL_MIN(piece->length_bytes - arrival->byte_at, bytes_max)};
    const struct tr_spot *first = &ticket->spots[part->spot_first];
    /* What was acknowledged before is not written again. */
    bool here = sl_cover_within(&part->cover, range.offset_bytes, range.length_bytes) > 0;
    sl_err err = SL_OK;
    if (arrival->copy_to > 0) {
        err = slice_copy(push, first, first + arrival->copy_to, range, &why);
    } else {
        if (arrival->local && !here) { /* from where the sender has it */
            const struct push_send *send = &push->sends[arrival->send];
            err = slice_copy(push, &send->spots[arrival->piece_at], first, range, &why);
        }
        if (arrival->byte_at == 0) {
            sl_digest_start(&push->digest);
        }
        err = err == SL_OK ? tr_spot_digest(push->self, first, range, &push->digest, &why) : err;
    }
    if (err != SL_OK) {
        arrival_fail(push, arrival, err, why.text);
        return 0;
    }
    return range.length_bytes;
}

static sl_err piece_checked(struct push *push, const struct push_arrival *arrival,
                            struct sl_error *why)
{
    const struct sl_item_arrived *piece = &arrival->pieces[arrival->piece_at];
    struct sl_digest want = {.low = piece->digest_low, .high = piece->digest_high};
    if (!sl_digest_equal(sl_digest_finish(&push->digest), want)) {
        sl_metric_add(push->self->env->metrics, push->metric.digests_bad, 1);
        return sl_fail(why, SL_ERR_CORRUPT,
                       "part %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
                       " do not match their digest",
                       piece->part, piece->length_bytes, piece->part_offset_bytes);
    }
    return SL_OK;
}

/* All bytes of the piece were looked at, or copied: goes on to the next owner of its part that has
 * no copy, then to the next piece. */
static sl_err piece_next(struct push *push, struct push_arrival *arrival, struct sl_error *why)
{
    const struct sl_item_arrived *piece = &arrival->pieces[arrival->piece_at];
    const struct push_part *part = &push->tickets[arrival->ticket].parts[piece->part];
    bool here = sl_cover_within(&part->cover, piece->part_offset_bytes, piece->length_bytes) > 0;
    sl_err err = arrival->copy_to == 0 ? piece_checked(push, arrival, why) : SL_OK;
    arrival->byte_at = 0;
    if (err == SL_OK && !here && arrival->copy_to + 1 < part->spot_count) {
        arrival->copy_to++;
        return SL_OK;
    }
    arrival->copy_to = 0;
    err = err == SL_OK ? push_piece_arrived(push, arrival, arrival->piece_at, why) : err;
    arrival->piece_at += err == SL_OK ? 1 : 0;
    return err;
}

/* Goes on with the first of them; gives how many bytes were looked at. What it names may still be
 * written to by a request that began before: then it waits for the end of that (LANDS). */
static uint64_t arrival_check(struct push *push, struct push_arrival *arrival, uint64_t bytes_max)
{
    struct sl_error why = {0};
    const struct push_ticket *ticket = &push->tickets[arrival->ticket];
    if (!arrival->local && arrival->piece_at == 0 && arrival->byte_at == 0 &&
        push_pieces_land(push, ticket, arrival->pieces, arrival->piece_count)) {
        return LANDS;
    }
    while (arrival->piece_at < arrival->piece_count &&
           ticket->parts[arrival->pieces[arrival->piece_at].part].device) {
        arrival->piece_at++;
    }
    if (arrival->piece_at == arrival->piece_count) {
        arrival_seen(push, arrival);
        return 1;
    }
    if (arrival->local && (push->sends[arrival->send].phase != SEND_LOCAL ||
                           push->sends[arrival->send].number != arrival->push)) {
        arrival_free(push, arrival); /* its sender gave up: its sources are not read any more */
        return 1;
    }
    uint64_t length = slice_check(push, arrival, bytes_max);
    if (length == 0) {
        return 1;
    }
    arrival->byte_at += length;
    if (arrival->byte_at == arrival->pieces[arrival->piece_at].length_bytes) {
        sl_err err = piece_next(push, arrival, &why);
        if (err != SL_OK) {
            arrival_fail(push, arrival, err, why.text);
        }
    }
    return length;
}

static struct push_arrival *check_first(const struct push *push)
{
    struct push_arrival *first = NULL;
    for (uint32_t i = 0; push->tickets_open > 0 && i < push->push_max; i++) {
        struct push_arrival *arrival = &push->arrivals[i];
        if (arrival->phase == ARRIVAL_CHECK && (first == NULL || arrival->order < first->order)) {
            first = arrival;
        }
    }
    return first;
}

void push_arrivals_step(struct push *push)
{
    uint64_t left = PUSH_SLICE, looked = 0;
    struct push_arrival *arrival = NULL;
    checks_step(push, push_now(push));
    while (left > 0 && (arrival = check_first(push)) != NULL) {
        looked = arrival_check(push, arrival, left);
        left -= SL_MIN(SL_MAX(looked, SL_PAGE_BYTES), left);
    }
    if (arrival != NULL) { /* the end of what lands wakes this actor, too */
        push_due(push, looked == LANDS ? push_now(push) + LAND_LOOK_NS : 0);
    }
}
