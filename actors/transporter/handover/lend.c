/* actors/transporter/handover/lend.c - loans: decode's node reads blocks from this node's pools.
 *
 * LEND names pieces of parts as they become ready. PEER_LEND announces them to decode's node, which
 * reads them when it likes; a message is repeated until decode has read it. The last LEND is
 * answered when the loan is over. A loan that decode does not read ends and frees its blocks; the
 * hand-over continues through storage. */
#include "actors/transporter/handover/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RIGHTS_NS  (2 * SL_NS_PER_S) /* shortest wait until all is sent: rights take time */
#define POOL_SHARE 4u                /* divisor of a pool: limit for unread loans */

static void message_drop(struct ho_loan *loan, uint32_t at)
{
    free(loan->messages[at].pieces);
    loan->unread--;
    memmove(&loan->messages[at], &loan->messages[at + 1],
            (loan->unread - at) * sizeof(loan->messages[0]));
}

static void loan_free(struct handover *ho, struct ho_loan *loan)
{
    SL_ASSERT(loan->grants_open == 0);
    while (loan->unread > 0) {
        message_drop(loan, loan->unread - 1);
    }
    for (uint32_t i = 0; i < loan->share_count; i++) {
        free(loan->shares[i].key);
    }
    ho->places_open -= loan->places_open; /* 0, unless the fabric was closed */
    free(loan->shares);
    ho->shares_open -= loan->share_count;
    *loan = (struct ho_loan){0};
    ho->loans_open--;
    sl_metric_set(ho->self->env->metrics, ho->metric.loans_open, ho->loans_open);
}

void ho_loans_fini(struct handover *ho)
{
    for (uint32_t i = 0; ho->loans != NULL && i < ho->both_max; i++) {
        if (ho->loans[i].state != HO_FREE) {
            ho->loans[i].grants_open = 0; /* the fabric is closed, and they with it */
            loan_free(ho, &ho->loans[i]);
        }
    }
    free(ho->loans);
    ho->loans = NULL;
}

static struct ho_loan *loan_of(struct handover *ho, const struct sl_ticket_fields *ticket)
{
    for (uint32_t i = 0; ho->loans_open > 0 && i < ho->both_max; i++) {
        if (ho->loans[i].state != HO_FREE && ho_ticket_is(&ho->loans[i].ticket, ticket)) {
            return &ho->loans[i];
        }
    }
    return NULL;
}

static void loan_answer(struct handover *ho, struct ho_loan *loan, sl_err code, const char *text)
{
    static const struct sl_msg empty = {0};
    if (loan->waits) {
        loan->waits = false;
        ho_reply(ho, &loan->back, &empty, code, text);
    }
}

/* ---- messages to decode ---- */

static void peer_lend_send(struct handover *ho, struct ho_loan *loan, const struct sl_msg *said)
{
    unsigned char bytes[SL_TICKET_BYTES_MAX];
    uint64_t seq = 0;
    struct sl_msg msg = *said;
    msg.type = SL_MSG_PEER_LEND;
    msg.op_id = loan->number;
    msg.trace_id = loan->back.trace_id;
    msg.budget_ns = sl_config_u64(ho->self->env->config, SL_SET_peer_timeout);
    msg.body.peer_lend.ticket =
        (struct sl_bytes){.at = bytes, .length = sl_ticket_write(&loan->ticket, bytes)};
    if (!loan->local) { /* lost messages are repeated */
        (void)tr_peer_ask(ho->self, &ho->self->peers[loan->peer], &msg, &seq);
        return;
    }
    struct sl_error why = {0};
    uint32_t number = 0;
    bool fresh = false;
    sl_err err = ho_take_message(ho, NULL, &msg, &number, &fresh, &why);
    if (!fresh) {
        ho_loan_answered(ho, NULL, msg.op_id, number, err, why.text);
    }
}

static void message_send(struct handover *ho, struct ho_loan *loan, struct ho_message *message)
{
    struct sl_msg msg = {0};
    struct sl_body_peer_lend *body = &msg.body.peer_lend;
    uint32_t doors = 0;
    for (uint32_t i = 0; !loan->local && i < message->piece_count; i++) {
        const struct sl_item_arrived *piece = &message->pieces[i];
        const struct ho_share *share = &loan->shares[piece->part];
        if (piece->part_offset_bytes == 0) { /* the first message of a part contains its key */
            ho->doors[doors++] = (struct sl_item_door){
                .part = piece->part, .key = {.at = share->key, .length = share->key_bytes}};
        }
    }
    body->number = message->number;
    body->last = message->last;
    body->doors.at = ho->doors;
    body->doors.count = doors;
    body->pieces.at = message->pieces;
    body->pieces.count = message->piece_count;
    loan->sign_ns = message->said_ns == 0 ? ho_now(ho) : loan->sign_ns;
    message->sent = true;
    message->said_ns = ho_now(ho);
    loan->due_ns = ho_now(ho) + HO_REPEAT_NS;
    ho_due(ho, loan->due_ns);
    peer_lend_send(ho, loan, &msg); /* may free message */
}

/* The message to repeat: the first that was sent but not received, else the oldest that was sent;
 * NULL: none. */
static struct ho_message *message_to_repeat(struct ho_loan *loan)
{
    uint32_t at = 0;
    while (at < loan->unread && loan->messages[at].heard) {
        at++;
    }
    struct ho_message *message =
        &loan->messages[at < loan->unread && loan->messages[at].sent ? at : 0];
    return loan->unread > 0 && message->sent ? message : NULL;
}

/* Sends new messages in order, because a part's key is only in its first message. Gives whether the
 * loan still exists. */
static bool messages_send_new(struct handover *ho, struct ho_loan *loan)
{
    struct sl_error why = {0};
    uint64_t number = loan->number;
    for (uint32_t i = 0; i < loan->unread; i++) {
        struct ho_message *message = &loan->messages[i];
        sl_err err = message->sent || loan->local ? SL_OK : ho_rights_make(ho, loan, message, &why);
        if (err == SL_ERR_BUSY) {
            break;
        }
        if (err != SL_OK) {
            ho_loan_end(ho, loan, err, why.text, true);
        } else if (!message->sent) {
            message_send(ho, loan, message);
        }
        if (loan->state != HO_OPEN || loan->number != number) { /* a local decode has answered */
            return false;
        }
    }
    return true;
}

static void messages_send(struct handover *ho, struct ho_loan *loan, uint64_t now_ns)
{
    struct ho_message *again = messages_send_new(ho, loan) ? message_to_repeat(loan) : NULL;
    if (again != NULL && loan->due_ns <= now_ns) {
        message_send(ho, loan, again);
    } else if (again != NULL) {
        ho_due(ho, loan->due_ns);
    }
}

/* ---- the end ---- */

void ho_loan_settle(struct handover *ho, struct ho_loan *loan)
{
    uint64_t fences = loan->fences;
    if (loan->state != HO_ENDING || loan->grants_open > 0) {
        return;
    }
    loan_answer(ho, loan, loan->code, loan->text);
    ho_ended_note(&ho->ended_loans, &loan->ticket, loan->code);
    loan_free(ho, loan);
    if (fences != 0) {
        ho->self->events.fences_over(ho->self, fences);
    }
}

void ho_loan_end(struct handover *ho, struct ho_loan *loan, sl_err code, const char *text,
                 bool tell)
{
    if (loan->state != HO_OPEN) {
        return;
    }
    loan->state = HO_ENDING;
    loan->code = code;
    (void)snprintf(loan->text, sizeof(loan->text), "%s",
                   text[0] != '\0' ? text : sl_err_text(code));
    while (loan->unread > 0) {
        message_drop(loan, loan->unread - 1);
    }
    sl_metric_add(ho->self->env->metrics, ho->metric.loans_failed, code == SL_OK ? 0 : 1);
    if (tell) {
        struct sl_msg msg = {0};
        msg.body.peer_lend.code = (uint64_t)code;
        msg.body.peer_lend.text = sl_text_of(loan->text);
        peer_lend_send(ho, loan, &msg);
    }
    ho_rights_end(ho, loan);
    ho_loan_settle(ho, loan);
}

void tr_lend_link_lost(struct transporter *self, uint32_t fabric_peer)
{
    struct handover *ho = self->handover;
    for (uint32_t i = 0; ho != NULL && ho->loans_open > 0 && i < ho->both_max; i++) {
        struct ho_loan *loan = &ho->loans[i];
        if (loan->state == HO_OPEN && loan->grants_open > 0 &&
            self->peers[loan->peer].fabric_peer == fabric_peer) {
            ho_loan_end(ho, loan, SL_ERR_UNREACHABLE, "the link was lost, and its rights with it",
                        true);
        }
    }
}

/* ---- answers of decode ---- */

static struct ho_loan *loan_numbered(struct handover *ho, uint64_t number)
{
    for (uint32_t i = 0; ho->loans_open > 0 && i < ho->both_max; i++) {
        if (ho->loans[i].state == HO_OPEN && ho->loans[i].number == number) {
            return &ho->loans[i];
        }
    }
    return NULL;
}

const struct tr_slot *ho_loan_slot(struct handover *ho, uint64_t loan, uint64_t part)
{
    const struct ho_loan *own = loan_numbered(ho, loan);
    return own != NULL && part < own->share_count ? &own->shares[part].slot : NULL;
}

static void message_read(struct handover *ho, struct ho_loan *loan, uint32_t at)
{
    const struct ho_message *message = &loan->messages[at];
    bool last = message->last;
    for (uint32_t i = 0; i < message->piece_count; i++) {
        struct ho_share *share = &loan->shares[message->pieces[i].part];
        share->read_bytes += message->pieces[i].length_bytes;
        if (share->read_bytes == share->length_bytes) {
            ho_right_end(ho, share);
        }
        sl_metric_add(ho->self->env->metrics, ho->metric.pool_read_bytes,
                      message->pieces[i].length_bytes);
    }
    message_drop(loan, at);
    if (last) { /* decode has read everything */
        ho_loan_end(ho, loan, SL_OK, "", false);
    } else if (!loan->last) {
        loan_answer(ho, loan, SL_OK, "");
    }
}

void ho_loan_answered(struct handover *ho, const struct tr_peer *peer, uint64_t number_of_loan,
                      uint32_t number, sl_err code, const char *text)
{
    struct ho_loan *loan = loan_numbered(ho, number_of_loan);
    uint32_t at = 0;
    if (loan == NULL || loan->local != (peer == NULL) ||
        (peer != NULL && loan->peer != tr_peer_number(ho->self, peer))) {
        return;
    }
    while (at < loan->unread && loan->messages[at].number != number) {
        at++;
    }
    if (peer != NULL && loan->peer_incarnation == 0) {
        loan->peer_incarnation = peer->incarnation;
    }
    if (code == SL_OK || code == SL_ERR_BUSY) {
        loan->sign_ns = ho_now(ho);
    }
    bool died = code == SL_ERR_BUSY && loan->unread > 0 && number + 1 < loan->messages[0].number;
    for (uint32_t i = 0; code == SL_ERR_BUSY && i < loan->unread; i++) {
        struct ho_message *message = &loan->messages[i];
        died = died || (message->heard && message->number > number); /* its receiver died */
        message->heard = message->heard || message->number <= number;
        message->sent =
            message->heard || (message->sent && ho_now(ho) < message->said_ns + HO_REPEAT_NS);
    }
    if (died) {
        ho_loan_end(ho, loan, SL_ERR_PEER_DIED, "decode's transporter died", true);
    } else if (code == SL_OK && at < loan->unread) {
        message_read(ho, loan, at);
    } else if (code != SL_OK && code != SL_ERR_BUSY && code != SL_ERR_NOT_FOUND) {
        ho_loan_end(ho, loan, code, text, false);
    }
}

void tr_lend_answered(struct transporter *self, struct tr_peer *peer, const struct sl_msg *reply)
{
    if (self->handover != NULL) {
        ho_loan_answered(self->handover, peer, reply->op_id,
                         (uint32_t)reply->body.peer_lend_reply.number, reply->code,
                         reply->text.length > 0 ? reply->text.at : "");
        ho_due(self->handover, 0);
    }
}

/* ---- LEND ---- */

static bool slot_equal(const struct tr_slot *slot, const struct tr_slot *other)
{
    return slot->engine_id == other->engine_id && slot->rank == other->rank &&
           slot->pool == other->pool && slot->part == other->part &&
           slot->device_block == other->device_block;
}

/* Begins a part with its first piece. Device memory is allowed if another node reads it, because
 * that node checks the bytes. On one node the CPU would have to copy them. */
static sl_err share_begin(struct handover *ho, struct ho_loan *loan, struct ho_share *share,
                          const struct tr_slot *slot, struct sl_error *why)
{
    struct tr_slot_shape shape;
    sl_err err = tr_slot_shape(ho->self, slot, &shape, why);
    if (err == SL_OK && shape.places_max > SL_FABRIC_PLACES_MAX) {
        err = sl_fail(why, SL_ERR_LIMIT, "a part uses %" PRIu64 " memory ranges, %u at most",
                      shape.places_max, SL_FABRIC_PLACES_MAX);
    }
    if (err == SL_OK) {
        share->slot = *slot;
        share->length_bytes = shape.length_bytes;
        loan->pool_blocks = share == loan->shares ? (uint32_t)shape.block_count : loan->pool_blocks;
    }
    return err;
}

/* Extends the table of parts to `count`. */
static sl_err shares_grow(struct handover *ho, struct ho_loan *loan, uint32_t count,
                          struct sl_error *why)
{
    if (count <= loan->share_count) {
        return SL_OK;
    }
    if (count - loan->share_count > ho->parts_max - ho->shares_open) {
        return sl_fail(why, SL_ERR_LIMIT, "%u parts are in loans, %u at most", ho->shares_open,
                       ho->parts_max);
    }
    struct ho_share *shares = realloc(loan->shares, count * sizeof(*shares));
    if (shares == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u parts", count);
    }
    memset(&shares[loan->share_count], 0, (count - loan->share_count) * sizeof(*shares));
    ho->shares_open += count - loan->share_count;
    loan->shares = shares;
    loan->share_count = count;
    return SL_OK;
}

static sl_err piece_take(struct handover *ho, struct ho_loan *loan,
                         const struct sl_item_arrived *piece, const struct sl_item_slot *at,
                         struct sl_error *why)
{
    struct tr_slot slot = tr_slot_of(at);
    slot.unseen = !loan->local;
    sl_err err = shares_grow(ho, loan, (uint32_t)piece->part + 1, why);
    if (err == SL_OK && loan->shares[piece->part].named_bytes == 0) {
        err = share_begin(ho, loan, &loan->shares[piece->part], &slot, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct ho_share *share = &loan->shares[piece->part];
    if (!slot_equal(&share->slot, &slot) || piece->part_offset_bytes != share->named_bytes ||
        piece->length_bytes > share->length_bytes - share->named_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "part %" PRIu64 ": %" PRIu64 "+%" PRIu64 " does not follow %" PRIu64
                       " of %" PRIu64 " bytes",
                       piece->part, piece->part_offset_bytes, piece->length_bytes,
                       share->named_bytes, share->length_bytes);
    }
    share->named_bytes += piece->length_bytes;
    return SL_OK;
}

static sl_err message_take(struct handover *ho, struct ho_loan *loan,
                           const struct sl_body_lend *body, struct sl_error *why)
{
    uint32_t count = (uint32_t)body->pieces.count;
    SL_ASSERT(loan->unread < HO_UNREAD_MAX); /* else the last LEND is unanswered */
    if (count == 0 || body->slots.count != count || loan->last || body->number != loan->taken + 1) {
        return sl_fail(why, SL_ERR_INVALID,
                       "LEND %" PRIu64 " of %u pieces and %" PRIu64 " slots does not follow %u",
                       body->number, count, body->slots.count, loan->taken);
    }
    struct sl_item_arrived *pieces = calloc(count, sizeof(*pieces));
    if (pieces == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u pieces", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        sl_err err = piece_take(ho, loan, &body->pieces.at[i], &body->slots.at[i], why);
        if (err != SL_OK) {
            free(pieces);
            return err;
        }
        pieces[i] = body->pieces.at[i];
    }
    loan->messages[loan->unread++] = (struct ho_message){.number = (uint32_t)body->number,
                                                         .last = body->last,
                                                         .piece_count = count,
                                                         .pieces = pieces};
    loan->taken = (uint32_t)body->number;
    loan->last = body->last;
    return SL_OK;
}

static struct ho_loan *loan_new(struct handover *ho, const struct sl_msg *msg,
                                const struct sl_ticket_fields *ticket, struct sl_error *why)
{
    struct transporter *self = ho->self;
    bool local = strcmp(ticket->node, self->node) == 0;
    const struct tr_peer *peer = local ? NULL : tr_peer_find(self, ticket->node);
    uint32_t index = 0;
    if (tr_fenced_has(&self->fenced, msg)) {
        (void)sl_fail(why, SL_ERR_CANCELLED, "the op was fenced");
    } else if (msg->body.lend.number != 1) {
        (void)sl_fail(why, SL_ERR_NOT_FOUND, "the transporter has no such loan since its start");
    } else if (!local && (peer == NULL || peer->address[0] == '\0')) {
        (void)sl_fail(why, SL_ERR_UNREACHABLE, "node %s of the ticket is no peer of node %s",
                      ticket->node, self->node);
    } else if (ho->loans_open == ho->both_max) {
        (void)sl_fail(why, SL_ERR_LIMIT, "%u loans are open", ho->loans_open);
    }
    if (why->code != SL_OK) {
        return NULL;
    }
    while (ho->loans[index].state != HO_FREE) {
        index++;
    }
    struct ho_loan *loan = &ho->loans[index];
    *loan = (struct ho_loan){.state = HO_OPEN,
                             .local = local,
                             .ticket = *ticket,
                             .number = ho->next_loan++,
                             .peer = local ? 0 : tr_peer_number(self, peer),
                             .peer_incarnation = local ? 0 : peer->incarnation};
    ho->loans_open++;
    sl_metric_add(self->env->metrics, ho->metric.loans, 1);
    sl_metric_set(self->env->metrics, ho->metric.loans_open, ho->loans_open);
    return loan;
}

static void lend(struct handover *ho, const struct sl_msg *msg, struct ho_loan *loan)
{
    struct sl_error why = {0};
    uint64_t number = loan->number;
    bool first = loan->taken == 0;
    sl_reply_route_keep(msg, &loan->back);
    loan->waits = true;
    loan->deadline_ns = loan->back.deadline_ns;
    loan->sign_ns = ho_now(ho);
    sl_err err = message_take(ho, loan, &msg->body.lend, &why);
    if (err != SL_OK) {
        ho_loan_end(ho, loan, err, why.text, !first);
        return;
    }
    messages_send(ho, loan, ho_now(ho));
    bool open = loan->state == HO_OPEN && loan->number == number;
    if (open && !loan->last && loan->unread < HO_UNREAD_MAX) {
        loan_answer(ho, loan, SL_OK, "");
    }
}

/* Repetition of a LEND: keeps waiting, or is answered again. */
static void lend_again(struct handover *ho, const struct sl_msg *msg, struct ho_loan *loan)
{
    bool open = loan->state == HO_OPEN;
    if (msg->body.lend.number < loan->taken || (open && !loan->last && !loan->waits)) {
        sl_reply_code(ho->self->env, msg, SL_OK, NULL);
        return;
    }
    sl_reply_route_keep(msg, &loan->back);
    loan->waits = true;
}

void tr_lend(struct transporter *self, const struct sl_msg *msg)
{
    const struct sl_body_lend *body = &msg->body.lend;
    struct handover *ho = self->handover;
    struct sl_ticket_fields ticket;
    struct sl_error why = {0};
    if (!ho_ticket_taken(self, msg, &body->ticket, &ticket)) {
        return;
    }
    const struct ho_ended *ended = ho_ended_find(&ho->ended_loans, &ticket);
    struct ho_loan *loan = loan_of(ho, &ticket);
    bool same = loan != NULL && loan->back.op_id == msg->op_id &&
                strcmp(loan->back.to, msg->sender.at) == 0;
    bool next = loan != NULL && loan->state == HO_OPEN && body->number > loan->taken;
    if (loan != NULL && (!same || (next && loan->waits))) {
        sl_reply_fail(self->env, msg, SL_ERR_BUSY,
                      "another LEND of the ticket is not answered yet");
    } else if (loan != NULL && !next) {
        lend_again(ho, msg, loan);
    } else if (loan == NULL && ended != NULL) {
        sl_reply_fail(self->env, msg, ended->code, "the loan is over");
    } else {
        loan = loan != NULL ? loan : loan_new(ho, msg, &ticket, &why);
        if (loan == NULL) {
            sl_reply_code(self->env, msg, why.code, &why);
        } else {
            lend(ho, msg, loan);
        }
    }
    ho_due(ho, 0);
}

/* ---- time ---- */

/* The time of a turn may be before that of the previous message. */
static uint64_t silent_ns(const struct handover *ho, const struct ho_loan *loan)
{
    return ho_now(ho) - SL_MIN(loan->sign_ns, ho_now(ho));
}

/* Whether loans without a sign of decode use too many blocks of this loan's pool. Ranks of a team
 * have registrations of their own. */
static bool is_crowded(const struct handover *ho, const struct ho_loan *loan, uint64_t after_ns)
{
    uint64_t blocks = 0;
    const struct tr_slot *pool = &loan->shares[0].slot;
    for (uint32_t i = 0; i < ho->both_max; i++) {
        const struct ho_loan *other = &ho->loans[i];
        uint32_t count = 0;
        bool same = false,
             waits = other->state == HO_OPEN && other->last && silent_ns(ho, other) >= after_ns;
        for (uint32_t k = 0; waits && k < other->share_count; k++) {
            const struct tr_slot *slot = &other->shares[k].slot;
            bool of_pool = slot->pool == pool->pool && slot->part == pool->part;
            count += of_pool ? 1 : 0;
            same = same || slot->engine_id == pool->engine_id;
        }
        blocks += same ? count : 0;
    }
    return blocks * POOL_SHARE > loan->pool_blocks;
}

static void loan_step(struct handover *ho, struct ho_loan *loan, uint64_t now_ns)
{
    struct sl_error why = {0};
    uint64_t wait_ns = sl_config_u64(ho->self->env->config, SL_SET_handover_read_wait);
    bool waits = loan->last || loan->unread == HO_UNREAD_MAX;
    bool said = loan->unread == 0 || loan->messages[loan->unread - 1].said_ns != 0;
    wait_ns = said ? wait_ns : SL_MAX(wait_ns, RIGHTS_NS);
    if (loan->deadline_ns <= now_ns) {
        ho_loan_end(ho, loan, SL_ERR_TIMEOUT, "decode did not read it in time", true);
    } else if (ho->look && !loan->local && ho_peer_gone(ho, &ho->self->peers[loan->peer], &why)) {
        ho_loan_end(ho, loan, why.code, why.text, false);
    } else if (waits && silent_ns(ho, loan) >= wait_ns) {
        ho_loan_end(ho, loan, SL_ERR_TIMEOUT,
                    said ? "decode does not read it" : "no resources for its rights", true);
    } else if (loan->last && said && silent_ns(ho, loan) >= wait_ns / 2 &&
               is_crowded(ho, loan, wait_ns / 2)) {
        ho_loan_end(ho, loan, SL_ERR_LIMIT, "unread loans use a quarter of the pool", true);
    } else {
        ho_due(ho, SL_MIN(loan->deadline_ns, waits ? loan->sign_ns + wait_ns : SL_NEVER_NS));
        messages_send(ho, loan, now_ns);
    }
}

void ho_loans_step(struct handover *ho, uint64_t now_ns)
{
    for (uint32_t i = 0; ho->loans_open > 0 && i < ho->both_max; i++) {
        if (ho->loans[i].state == HO_OPEN) {
            loan_step(ho, &ho->loans[i], now_ns);
        }
    }
}
