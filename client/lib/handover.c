/* client/lib/handover.c - prefill -> decode: the two sides as ops, and their messages. */
#include "client/lib/engine.h"
#include "runtime/base/sl_parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HANDOVER_BATCH_MAX 1024u
#define MODE_VARIABLE      "FD_PD_TRANSFER_VIA_STORAGE"

sl_err sl_handover_mode_get(enum sl_handover_mode *out, struct sl_error *why)
{
    const char *text = getenv(MODE_VARIABLE);
    bool storage = false;
    if (text != NULL && sl_parse_bool(text, &storage, NULL) != SL_OK) {
        return sl_fail(why, SL_ERR_CONFIG, "%s: '%s' is not a boolean", MODE_VARIABLE, text);
    }
    *out = storage ? SL_HANDOVER_BY_STORAGE : SL_HANDOVER_DIRECT;
    return SL_OK;
}

static sl_err options_check(const struct sl_handover_options *options, bool *direct,
                            struct sl_error *why)
{
    enum sl_handover_mode mode = options->mode;
    if (options->id == 0) {
        return sl_fail(why, SL_ERR_INVALID, "hand-over: no id");
    }
    sl_err err = mode == SL_HANDOVER_BY_ENVIRONMENT ? sl_handover_mode_get(&mode, why) : SL_OK;
    if (err == SL_OK && mode != SL_HANDOVER_BY_STORAGE && mode != SL_HANDOVER_DIRECT) {
        err = sl_fail(why, SL_ERR_INVALID, "hand-over: mode %u", (unsigned)mode);
    }
    *direct = mode == SL_HANDOVER_DIRECT;
    return err;
}

static sl_err ticket_check(const struct sl_ticket *ticket, struct sl_item_ticket *item,
                           struct sl_error *why)
{
    if (ticket->length_bytes == 0 || ticket->length_bytes > sizeof ticket->bytes ||
        ticket->block_end == 0) {
        return sl_fail(why, SL_ERR_INVALID, "ticket: %u bytes, of blocks %u to %u",
                       ticket->length_bytes, ticket->first_block, ticket->block_end);
    }
    *item = (struct sl_item_ticket){.bytes = {ticket->bytes, ticket->length_bytes},
                                    .first_block = ticket->first_block,
                                    .block_end = ticket->block_end,
                                    .keys_low = ticket->keys_low,
                                    .keys_high = ticket->keys_high};
    return SL_OK;
}

static sl_err receipt_check(const struct sl_transfer_params *receipt, struct sl_item_receipt *item,
                            struct sl_error *why)
{
    bool named = memchr(receipt->node, '\0', sizeof receipt->node) != NULL;
    if (receipt->handover_id == 0 || receipt->block_end == 0 || !named) {
        return sl_fail(why, SL_ERR_INVALID, "receipt: id %016" PRIx64 ", %u blocks%s",
                       receipt->handover_id, receipt->block_end,
                       named ? "" : ", the node's name has no end");
    }
    *item = (struct sl_item_receipt){.handover_id = receipt->handover_id,
                                     .block_end = receipt->block_end,
                                     .keys_low = receipt->keys_low,
                                     .keys_high = receipt->keys_high,
                                     .node = sl_text_of(receipt->node)};
    return SL_OK;
}

sl_err sl_kv_send_start(struct sl_engine *engine, const struct sl_op_request *request,
                        const struct sl_handover_options *options, struct sl_op **op,
                        struct sl_error *why)
{
    struct sl_handover_side side = {.id = options->id, .hold_ns = options->hold_ns};
    struct sl_item_ticket item = {0};
    sl_err err = options_check(options, &side.direct, why);
    if (err == SL_OK && side.direct && options->ticket != NULL) {
        err = ticket_check(options->ticket, &item, why);
        side.ticket = &item;
    }
    return err == SL_OK ? sl_client_handover_start(engine, request, true, &side, op, why) : err;
}

sl_err sl_kv_receive_start(struct sl_engine *engine, const struct sl_op_request *request,
                           const struct sl_handover_options *options, struct sl_op **op,
                           struct sl_error *why)
{
    struct sl_handover_side side = {.id = options->id,
                                    .from = sl_text_of(options->from != NULL ? options->from : "")};
    struct sl_item_receipt item = {0};
    sl_err err = options_check(options, &side.direct, why);
    if (err == SL_OK && side.from.length >= sizeof((struct sl_transfer_params){0}.node)) {
        err = sl_fail(why, SL_ERR_INVALID, "hand-over: a node's name of %" PRIu64 " bytes",
                      side.from.length);
    }
    if (err == SL_OK && options->receipt != NULL) {
        err = receipt_check(options->receipt, &item, why);
        if (err == SL_OK && item.handover_id != options->id) {
            err = sl_fail(why, SL_ERR_INVALID,
                          "hand-over %016" PRIx64 ": the receipt is of %016" PRIx64, options->id,
                          item.handover_id);
        }
        side.receipt = &item;
    }
    return err == SL_OK ? sl_client_handover_start(engine, request, false, &side, op, why) : err;
}

/* ---- batches ---- */

struct answers {
    sl_err *codes;
    uint32_t count;
    bool short_one; /* fewer codes than items */
};

static void codes_answered(void *context, const struct sl_msg *reply)
{
    struct answers *answers = context;
    const struct sl_u64s *codes = reply->type == SL_MSG_ARRIVED_REPLY
                                      ? &reply->body.arrived_reply.codes
                                      : &reply->body.handover_end_reply.codes;
    answers->short_one = codes->count != answers->count;
    for (uint32_t i = 0; i < answers->count && !answers->short_one; i++) {
        answers->codes[i] = sl_err_received(codes->at[i]);
    }
}

static sl_err batch_check(uint32_t count, struct sl_error *why)
{
    return count >= 1 && count <= HANDOVER_BATCH_MAX
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "1 to %u hand-overs at once, not %u",
                         HANDOVER_BATCH_MAX, count);
}

static sl_err batch_call(struct sl_client *client, struct sl_client_call *call,
                         struct answers *answers, struct sl_error *why)
{
    call->to = "coordinator";
    call->answered = codes_answered;
    call->context = answers;
    sl_err err = sl_client_call(client, call, why);
    if (err == SL_OK && answers->short_one) {
        err =
            sl_fail(why, SL_ERR_PROTOCOL, "the coordinator answered with another number of codes");
    }
    return err;
}

/* Adds the receipts to waiting loads of this client: a restarted coordinator must know them. */
static void receipts_note(struct sl_client *client, const struct sl_item_receipt *items,
                          uint32_t count, bool *waiting)
{
    pthread_mutex_lock(&client->lock);
    for (struct sl_client_call *call = client->calls; call != NULL; call = call->next) {
        for (uint32_t i = 0; call->msg.type == SL_MSG_LOAD && i < count; i++) {
            waiting[i] |= sl_client_op_arrived(call, &items[i]);
        }
    }
    pthread_mutex_unlock(&client->lock);
}

sl_err sl_kv_arrived(struct sl_client *client, const struct sl_transfer_params *receipts,
                     uint32_t count, sl_err *codes, uint64_t timeout_ns, struct sl_error *why)
{
    bool waiting[HANDOVER_BATCH_MAX] = {false};
    struct answers answers = {.codes = codes, .count = count};
    sl_err err = batch_check(count, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_item_receipt *items = malloc((size_t)count * sizeof *items);
    if (items == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "%u receipts", count);
    }
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        err = receipt_check(&receipts[i], &items[i], why);
    }
    if (err == SL_OK) {
        receipts_note(client, items, count, waiting);
        struct sl_client_call call = {.deadline_ns = sl_client_deadline(client, timeout_ns)};
        call.msg.type = SL_MSG_ARRIVED;
        call.msg.body.arrived.items.at = items;
        call.msg.body.arrived.items.count = count;
        err = batch_call(client, &call, &answers, why);
    }
    /* A coordinator that has not seen the load yet gets the receipt with it. */
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        codes[i] = codes[i] == SL_ERR_NOT_FOUND && waiting[i] ? SL_OK : codes[i];
    }
    free(items);
    return err;
}

sl_err sl_kv_end(struct sl_client *client, const uint64_t *ids, uint32_t count, sl_err *codes,
                 uint64_t timeout_ns, struct sl_error *why)
{
    struct answers answers = {.codes = codes, .count = count};
    sl_err err = batch_check(count, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_client_call call = {.deadline_ns = sl_client_deadline(client, timeout_ns)};
    call.msg.type = SL_MSG_HANDOVER_END;
    call.msg.body.handover_end.handover_ids = (struct sl_u64s){.at = ids, .count = count};
    return batch_call(client, &call, &answers, why);
}
