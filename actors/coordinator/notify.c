/* actors/coordinator/notify.c - notifications (HANDOVER_NOTIFY) between the nodes of a hand-over,
 * where decode names prefill's node instead of a receipt; and the end of a hand-over.
 *
 * Decode's coordinator notifies prefill's, through both transporters, that decode is waiting, with
 * its ticket if direct. Prefill's answers when it has committed or failed. Decode repeats until it
 * knows, so a lost notification, or a restarted coordinator, costs NOTIFY_AGAIN_NS. */
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_backoff.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NOTIFY_AGAIN_NS (500 * SL_NS_PER_MS)
#define NOTIFY_SOON_NS  (20 * SL_NS_PER_MS) /* after a failed notification; then twice that */
#define REASON_BYTES    160u                /* of the message table, and a final 0 */

enum notification {
    NOTIFY_WAITS = 1,
    NOTIFY_COMMITTED,
    NOTIFY_FAILED,
    NOTIFY_GAVE_UP,
    NOTIFY_TAKEN
};

static sl_err notify_send(struct coordinator *self, uint64_t trace_id,
                          const struct sl_body_handover_notify *body, uint64_t cookie,
                          uint64_t *seq)
{
    struct sl_msg word = {.type = SL_MSG_HANDOVER_NOTIFY, .trace_id = trace_id};
    word.body.handover_notify = *body;
    return co_ask(self, "transporter.0", &word, cookie, seq);
}

/* ---- tickets ---- */

static struct sl_item_ticket ticket_of(const struct co_handover *row)
{
    const struct co_op *decode = row->receive;
    return (struct sl_item_ticket){.bytes = {row->ticket, row->ticket_bytes},
                                   .first_block = decode->first_block,
                                   .block_end = decode->receipt.block_end,
                                   .keys_low = decode->receipt.keys.low,
                                   .keys_high = decode->receipt.keys.high};
}

bool co_ticket_offered(const struct co_handover *row, struct sl_item_ticket *ticket)
{
    if (row->receive != NULL && row->offered) {
        *ticket = ticket_of(row);
        return true;
    }
    *ticket = row->offer;
    return ticket->bytes.length > 0;
}

void co_ticket_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct co_handover *row = co_handover_find(self, msg->body.ticket.handover_id);
    struct sl_msg reply = {.code = SL_OK};
    struct sl_item_ticket ticket;
    if (row == NULL || row->receive == NULL) {
        reply.code = SL_ERR_NOT_FOUND;
    } else if (!row->offered) {
        reply.code = row->receive->type->direct ? SL_ERR_BUSY : SL_ERR_UNSUPPORTED;
    } else {
        ticket = ticket_of(row);
        reply.body.ticket_reply.ticket.at = &ticket;
        reply.body.ticket_reply.ticket.count = 1;
    }
    sl_reply(self->env, msg, &reply);
}

/* ---- decode's side ---- */

/* Whether decode is waiting for a prefill that this coordinator does not know. */
static bool waits_for_prefill(const struct co_handover *row)
{
    return row->receive != NULL && !row->sent_here && row->machine.state < SL_HANDOVER_COMMITTED;
}

uint64_t co_notify_due(const struct co_handover *row)
{
    return waits_for_prefill(row) ? row->notify_ns : SL_NEVER_NS;
}

/* An earlier coordinator may have answered prefill: then the registrar holds all blocks. One query
 * at a time, however often the other node repeats its notification. */
static void hold_query(struct coordinator *self, struct co_handover *row,
                       const struct co_receipt *receipt)
{
    struct sl_msg ask = {.type = SL_MSG_HOLD, .trace_id = row->trace_id};
    if (row->hold_query_seq != 0) {
        return;
    }
    row->awaited = *receipt;
    ask.body.hold = (struct sl_body_hold){.hold_id = row->id,
                                          .keys_low = receipt->keys.low,
                                          .keys_high = receipt->keys.high,
                                          .ask = true};
    (void)co_ask(self, "registrar", &ask,
                 co_cookie(CO_CALL_HOLD_QUERY, 0, (uint32_t)(row - self->handovers)),
                 &row->hold_query_seq);
}

void co_hold_query_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    struct co_handover *row = &self->handovers[index];
    row->hold_query_seq = 0;
    if (reply == NULL || reply->code != SL_OK || row->sent_here ||
        row->machine.state >= SL_HANDOVER_COMMITTED) {
        return;
    }
    row->receipt = row->awaited;
    (void)snprintf(row->receipt.node, sizeof(row->receipt.node), "%s", self->node);
    row->sent_here = row->found = true;
    sl_handover_lend(&row->machine, SL_HANDOVER_HELD);
    co_handover_commits(self, row);
    co_handover_sides_wake(self, row);
    co_notify_decode(self, row);
}

static sl_err prefill_node_notify(struct coordinator *self, struct co_handover *row)
{
    struct sl_body_handover_notify body = {
        .node = sl_text_of(row->prefill_node), .handover_id = row->id, .state = NOTIFY_WAITS};
    struct sl_item_receipt receipt = co_receipt_item(row->id, &row->receive->receipt);
    struct sl_item_ticket ticket;
    if (row->receive->receipt.known) {
        body.receipt.at = &receipt;
        body.receipt.count = 1;
    }
    if (row->offered) {
        ticket = ticket_of(row);
        body.ticket.at = &ticket;
        body.ticket.count = 1;
    }
    co_call_forget(self, &row->notify_seq); /* the new one has all that is known */
    return notify_send(self, row->trace_id, &body,
                       co_cookie(CO_CALL_NOTIFY, 0, (uint32_t)(row - self->handovers)),
                       &row->notify_seq);
}

/* The next pause after a failed notification: it grows. */
static uint64_t pause_ns(struct co_handover *row)
{
    row->notify_pause_ns = SL_MAX(row->notify_pause_ns, NOTIFY_SOON_NS);
    return sl_backoff_next(&row->notify_pause_ns, NOTIFY_AGAIN_NS);
}

void co_notify_prefill(struct coordinator *self, struct co_handover *row)
{
    sl_err err = SL_OK;
    if (!waits_for_prefill(row)) {
        return;
    }
    if (row->prefill_node[0] != '\0') {
        err = prefill_node_notify(self, row);
    } else if (row->notify_ns != 0 && row->receive->receipt.known) {
        hold_query(self, row, &row->receive->receipt);
    }
    row->notify_ns =
        sl_deadline_ns(self->env->now_ns, err == SL_OK ? NOTIFY_AGAIN_NS : pause_ns(row));
    co_handover_look_at(self, row->notify_ns);
}

void co_notify_gave_up(struct coordinator *self, const struct co_handover *row)
{
    const struct sl_body_handover_notify body = {
        .node = sl_text_of(row->prefill_node), .handover_id = row->id, .state = NOTIFY_GAVE_UP};
    if (row->prefill_node[0] != '\0' && !row->receipt.known) {
        /* A lost one costs the time of the hold. */
        (void)notify_send(self, row->trace_id, &body, co_cookie(CO_CALL_UNANSWERED, 0, 0), NULL);
    }
}

void co_notify_taken(struct coordinator *self, const struct co_receipt *receipt,
                     uint64_t handover_id, uint64_t trace_id)
{
    const struct sl_item_receipt item = co_receipt_item(handover_id, receipt);
    const struct sl_body_handover_notify body = {.node = item.node,
                                                 .handover_id = handover_id,
                                                 .state = NOTIFY_TAKEN,
                                                 .receipt = {.at = &item, .count = 1}};
    if (receipt->known && receipt->node[0] != '\0' && strcmp(receipt->node, self->node) != 0) {
        (void)notify_send(self, trace_id, &body, co_cookie(CO_CALL_UNANSWERED, 0, 0), NULL);
    }
}

void co_notify_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    struct co_handover *row = &self->handovers[index];
    row->notify_seq = 0;
    if (reply != NULL && reply->code == SL_OK) {
        row->notify_pause_ns = 0;
    } else if (waits_for_prefill(row)) {
        uint64_t again_ns = sl_deadline_ns(self->env->now_ns, pause_ns(row));
        row->notify_ns = SL_MIN(row->notify_ns, again_ns);
        co_handover_look_at(self, row->notify_ns);
    }
}

/* A result of prefill: only prefill's node may send it. */
static sl_err prefill_result_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    struct co_handover *row = co_handover_find(self, body->handover_id);
    if (row != NULL && strcmp(row->prefill_node, body->node.at) != 0) {
        return SL_ERR_PERMISSION;
    }
    if (body->state == NOTIFY_FAILED) {
        char text[CO_REASON_BYTES];
        (void)snprintf(text, sizeof(text), "prefill's node: %.120s", body->reason.at);
        return row != NULL ? co_handover_peer_failed(self, row, SL_ERR_HANDOVER, text) : SL_OK;
    }
    const struct sl_item_receipt *receipt = body->receipt.count > 0 ? &body->receipt.at[0] : NULL;
    if (receipt == NULL || receipt->handover_id != body->handover_id ||
        receipt->node.length != body->node.length ||
        memcmp(receipt->node.at, body->node.at, body->node.length) != 0) {
        return SL_ERR_INVALID;
    }
    return co_handover_receipt(self, receipt, msg->trace_id);
}

/* ---- prefill's side ---- */

/* A reason may be longer than its field, and be cut within a character. */
static struct sl_text reason_of(const struct co_handover *row, char room[REASON_BYTES])
{
    (void)snprintf(room, REASON_BYTES, "%.*s", (int)REASON_BYTES - 1, row->reason);
    uint64_t length = strlen(room);
    for (uint32_t cut = 0; cut < 3 && length > 0 && !sl_text_is_clean(room, length); cut++) {
        room[--length] = '\0';
    }
    return sl_text_of(sl_text_is_clean(room, length) ? room : sl_err_text(row->machine.code));
}

void co_notify_decode(struct coordinator *self, const struct co_handover *row)
{
    char room[REASON_BYTES];
    bool known = row->receipt.known && row->sent_here;
    bool failed = row->machine.state == SL_HANDOVER_ABORTED;
    if (row->decode_node[0] == '\0' || (!known && !failed)) {
        return;
    }
    const struct sl_item_receipt item = co_receipt_item(row->id, &row->receipt);
    struct sl_body_handover_notify body = {.node = sl_text_of(row->decode_node),
                                           .handover_id = row->id,
                                           .state = failed ? NOTIFY_FAILED : NOTIFY_COMMITTED,
                                           .reason =
                                               failed ? reason_of(row, room) : sl_text_of("")};
    if (!failed) {
        body.receipt.at = &item;
        body.receipt.count = 1;
    }
    /* If it is lost, decode asks again. */
    (void)notify_send(self, row->trace_id, &body, co_cookie(CO_CALL_UNANSWERED, 0, 0), NULL);
}

static sl_err decode_waits_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    struct co_handover *row = co_handover_find(self, body->handover_id);
    const struct co_op *store =
        row == NULL ? co_handover_ended(self, body->handover_id, CO_STORE) : NULL;
    if (store != NULL && store->code == SL_OK) {
        return SL_OK; /* it crossed the result, and all is released */
    }
    if (row == NULL) {
        /* Peers may fill only half of the table. */
        row = self->handover_count < self->handover_max / 2
                  ? co_handover_new(self, body->handover_id, msg->trace_id)
                  : NULL;
    }
    if (row == NULL) {
        return SL_ERR_LIMIT;
    }
    if (row->received ||
        (row->decode_node[0] != '\0' && strcmp(row->decode_node, body->node.at) != 0)) {
        return SL_ERR_PERMISSION; /* another decode has it */
    }
    (void)snprintf(row->decode_node, sizeof(row->decode_node), "%s", body->node.at);
    if (body->ticket.count > 0) { /* 128 bytes at most, by the message table */
        row->offer = body->ticket.at[0];
        memcpy(row->offer_bytes, row->offer.bytes.at, row->offer.bytes.length);
        row->offer.bytes.at = row->offer_bytes;
    }
    co_notify_decode(self, row);
    if (!row->sent_here && body->receipt.count > 0) {
        struct co_receipt awaited = {
            .known = true,
            .block_end = (uint32_t)body->receipt.at[0].block_end,
            .keys = {.low = body->receipt.at[0].keys_low, .high = body->receipt.at[0].keys_high}};
        hold_query(self, row, &awaited);
    }
    return SL_OK;
}

/* Decode gave up: its blocks, stored or not, will not be fetched. */
static sl_err decode_gave_up_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    struct co_handover *row = co_handover_find(self, body->handover_id);
    if (row == NULL) {
        return SL_OK;
    }
    if (strcmp(row->decode_node, body->node.at) != 0) {
        return SL_ERR_PERMISSION;
    }
    return co_handover_peer_failed(self, row, SL_ERR_CANCELLED, "decode gave up");
}

/* Decode has finished; the receipt proves that it means this hand-over. */
static sl_err decode_done_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    const struct sl_item_receipt *item = body->receipt.at;
    if (body->receipt.count == 0 || item->handover_id != body->handover_id ||
        (item->keys_low == 0 && item->keys_high == 0)) { /* the registrar would not check it */
        return SL_ERR_INVALID;
    }
    bool ours = item->node.length == strlen(self->node) &&
                memcmp(item->node.at, self->node, item->node.length) == 0;
    sl_err code = ours ? co_handover_peer_done(self, item, msg->trace_id) : SL_ERR_PERMISSION;
    co_count(self, self->metric.handover_released_count, code == SL_OK);
    return code;
}

void co_notify_handle(struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_handover_notify *body = &msg->body.handover_notify;
    bool done = body->state == NOTIFY_TAKEN;
    sl_err code = done                            ? decode_done_handle(self, msg)
                  : body->state == NOTIFY_WAITS   ? decode_waits_handle(self, msg)
                  : body->state == NOTIFY_GAVE_UP ? decode_gave_up_handle(self, msg)
                                                  : prefill_result_handle(self, msg);
    if (code == SL_ERR_PERMISSION || code == SL_ERR_INVALID || (done && code == SL_ERR_BUSY)) {
        sl_metric_add(self->env->metrics,
                      done ? self->metric.release_refused_count : self->metric.word_refused_count,
                      1);
        sl_log_write(self->env->log, SL_LOG_WARN, msg->trace_id,
                     "notification %" PRIu64 " of node %.31s on hand-over %016" PRIx64
                     " refused: %s",
                     body->state, body->node.at, body->handover_id, sl_err_text(code));
    }
    sl_reply_code(self->env, msg, code, NULL);
}
