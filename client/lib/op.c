/* client/lib/op.c - store and load: starting, waiting, cancelling, fencing. */
#include "client/lib/op.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX       (SL_TOKENS_BYTES_MAX / 4u)
#define HASHES_BYTES_MAX 4194304u

static void bitmap_take(struct sl_op *op, unsigned char *to, struct sl_bytes from, uint32_t *count)
{
    memcpy(to, from.at, SL_MIN(from.length, op->bitmap_bytes));
    *count = 0;
    for (uint32_t i = 0; i < op->block_count; i++) {
        *count += (uint32_t)(to[i >> 3] >> (i & 7)) & 1u;
    }
}

/* A restarted coordinator treats a resent request as a new one. A late answer of its predecessor
 * does not tell what that does with the device blocks: they are free when they are fenced
 * (sl_op_wait_fenced). */
static bool answered_by_all(const struct sl_op *op)
{
    const struct sl_client *client = op->engine->client;
    return !op->call.sent_again || op->call.connects == sl_mailbox_connect_count(client->mailbox);
}

/* Copies the node's name into the op. */
static void receipt_take(struct sl_op *op, const struct sl_item_receipt *item)
{
    op->receipt = *item;
    (void)snprintf(op->receipt_node, sizeof op->receipt_node, "%.*s", (int)item->node.length,
                   item->node.length > 0 ? item->node.at : "");
    op->receipt.node = sl_text_of(op->receipt_node);
    op->has_receipt = true;
}

/* Under the client's lock, once. */
static void op_answered(void *context, const struct sl_msg *reply)
{
    struct sl_op *op = context;
    struct sl_op_result *result = &op->result;
    if (op->store) {
        const struct sl_body_store_reply *body = &reply->body.store_reply;
        result->block_count = (uint32_t)body->block_count;
        if (body->stored.length > 0) {
            bitmap_take(op, op->stored, body->stored, &result->stored_count);
        }
        if (body->existed.length > 0) {
            bitmap_take(op, op->existed, body->existed, &result->existed_count);
        }
        atomic_store_explicit(&op->fenced, body->fenced && answered_by_all(op),
                              memory_order_release);
        if (op->handover_id != 0 && body->receipt.count > 0) {
            receipt_take(op, &body->receipt.at[0]);
        }
    } else {
        const struct sl_body_load_reply *body = &reply->body.load_reply;
        atomic_store_explicit(&op->fenced, body->fenced && answered_by_all(op),
                              memory_order_release);
        if (body->block_count > op->block_count ||
            body->not_awaited > op->block_count - body->block_count ||
            body->from_memory > body->block_count || body->from_disk > body->block_count ||
            body->from_remote > body->block_count) {
            op->impossible = true;
            return;
        }
        result->block_count = (uint32_t)body->block_count;
        result->from_memory = (uint32_t)body->from_memory;
        result->from_disk = (uint32_t)body->from_disk;
        result->from_remote = (uint32_t)body->from_remote;
        result->bytes = body->bytes;
        result->not_awaited_count = (uint32_t)body->not_awaited;
    }
}

static void op_free(struct sl_op *op)
{
    free(op->tokens);
    free(op->hashes);
    free(op->device_blocks);
    free(op->extras);
    free(op->stored);
    free(op->existed);
    free(op->event_handles);
    free(op->events);
    free(op->layers.ends);
    free(op);
}

static struct sl_op *op_new(struct sl_engine *engine, const struct sl_op_request *request,
                            bool store)
{
    struct sl_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return NULL;
    }
    op->engine = engine;
    op->store = store;
    op->context = request->context;
    sl_op_origin_take(op);
    op->block_count = request->device_block_count;
    op->bitmap_bytes = (uint64_t)request->device_block_count / 8 + 1;
    op->tokens = malloc((size_t)request->token_count * sizeof *op->tokens);
    op->table_count = request->pool_blocks != NULL ? engine->pool_count : 0;
    op->device_blocks = malloc((size_t)request->device_block_count * SL_MAX(op->table_count, 1u) *
                                   sizeof *op->device_blocks +
                               1);
    op->hash_bytes = request->hashes != NULL ? request->hash_bytes : 0;
    op->hashes = malloc((size_t)request->device_block_count * op->hash_bytes + 1);
    op->stored = calloc(1, op->bitmap_bytes);
    op->existed = calloc(1, op->bitmap_bytes);
    op->extras = request->extras == NULL ? NULL : strdup(request->extras);
    op->event_count = request->event_count;
    op->event_handles = malloc(request->event_count * sizeof *op->event_handles + 1);
    op->events = calloc((size_t)request->event_count + 1, sizeof *op->events);
    if (op->event_handles == NULL || op->events == NULL || op->tokens == NULL ||
        op->hashes == NULL || op->device_blocks == NULL || op->stored == NULL ||
        op->existed == NULL || (request->extras != NULL && op->extras == NULL)) {
        op_free(op);
        return NULL;
    }
    if (op->hash_bytes > 0) {
        memcpy(op->hashes, request->hashes, (size_t)op->block_count * op->hash_bytes);
        op->has_before = request->before_hash != NULL;
        if (op->has_before) {
            memcpy(op->before_hash, request->before_hash, op->hash_bytes);
        }
    } else {
        memcpy(op->tokens, request->tokens, (size_t)request->token_count * sizeof *op->tokens);
    }
    for (uint32_t i = 0; i < request->device_block_count * SL_MAX(op->table_count, 1u); i++) {
        op->device_blocks[i] = op->table_count > 0
                                   ? request->pool_blocks[i / op->block_count][i % op->block_count]
                                   : request->device_blocks[i];
    }
    for (uint32_t i = 0; i < request->event_count; i++) {
        op->event_handles[i] = request->events[i];
        op->events[i] = (struct sl_item_event){
            .rank = request->events[i].rank,
            .handle = {.at = op->event_handles[i].handle, .length = SL_EVENT_BYTES}};
    }
    return op;
}

static sl_err events_check(const struct sl_engine *engine, const struct sl_op_request *request,
                           struct sl_error *why)
{
    uint64_t ranks = 0;
    for (uint32_t i = 0; i < request->event_count && request->events != NULL; i++) {
        uint32_t rank = request->events[i].rank;
        if (rank >= engine->world || (ranks >> rank & 1) != 0) {
            return sl_fail(why, SL_ERR_INVALID, "op: events[%u] is of rank %u: %s", i, rank,
                           rank < engine->world ? "it has one already" : "there is no such rank");
        }
        ranks |= UINT64_C(1) << rank;
    }
    return request->event_count > 0 && request->events == NULL
               ? sl_fail(why, SL_ERR_INVALID, "op: %u events at address NULL", request->event_count)
               : SL_OK;
}

/* Checks a request with the engine's own keys. */
static sl_err hashed_check(const struct sl_engine *engine, const struct sl_op_request *request,
                           bool handover, struct sl_error *why)
{
    uint32_t tables = request->pool_blocks != NULL ? engine->pool_count : 1;
    if (request->hash_bytes < 1 || request->hash_bytes > SL_HASH_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "op: keys of 1 to %u bytes, not %u", SL_HASH_BYTES_MAX,
                       request->hash_bytes);
    }
    if (request->token_count != 0 || (request->partial && !handover) || request->extras != NULL) {
        return sl_fail(why, SL_ERR_INVALID, "op: tokens, partial and extras do not go with hashes");
    }
    if (request->device_block_count == 0 ||
        (uint64_t)request->device_block_count * tables > SL_BATCH_MAX ||
        (uint64_t)request->device_block_count * request->hash_bytes > HASHES_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "op: %u blocks of %u tables, 1 to %d in all",
                       request->device_block_count, tables, SL_BATCH_MAX);
    }
    for (uint32_t i = 0; i < tables; i++) {
        if ((request->pool_blocks != NULL ? request->pool_blocks[i] : request->device_blocks) ==
            NULL) {
            return sl_fail(why, SL_ERR_INVALID, "op: table %u of blocks is at address NULL", i);
        }
    }
    return events_check(engine, request, why);
}

/* NOLINTNEXTLINE(misc-redundant-expression): one is of the interface, the other of messages */
static_assert(SL_KEEP_NS_LIMIT == SL_KEEP_NS_MAX, "a week in both");

/* NOLINTNEXTLINE(misc-redundant-expression): one is of the interface, the other of messages */
static_assert(SL_COMPUTE_RATE_MAX == SL_PREFILL_MAX, "the same in both");

static sl_err prefill_check(const struct sl_compute_rate *prefill, struct sl_error *why)
{
    bool fits = prefill->prefill_tokens_per_s <= SL_COMPUTE_RATE_MAX &&
                prefill->attention_doubles_at <= SL_COMPUTE_RATE_MAX;
    return fits ? SL_OK
                : sl_fail(why, SL_ERR_INVALID,
                          "op: prefill of %" PRIu64 " tokens/s, twice the work at %" PRIu64
                          ": above 2^40",
                          prefill->prefill_tokens_per_s, prefill->attention_doubles_at);
}

sl_err sl_client_hints_check(const char *what, const struct sl_hints *hints, struct sl_error *why)
{
    if ((uint32_t)hints->session > SL_SESSION_CONTINUES ||
        (uint32_t)hints->priority > SL_PRIORITY_HIGH) {
        return sl_fail(why, SL_ERR_INVALID, "%s: no such hint: session %u, priority %u", what,
                       (uint32_t)hints->session, (uint32_t)hints->priority);
    }
    if (hints->keep_ns > SL_KEEP_NS_LIMIT || hints->pause_ns > SL_KEEP_NS_LIMIT) {
        bool keep = hints->keep_ns > SL_KEEP_NS_LIMIT;
        return sl_fail(why, SL_ERR_INVALID, "%s: %s is %" PRIu64 ", a week at most", what,
                       keep ? "keep_ns" : "pause_ns", keep ? hints->keep_ns : hints->pause_ns);
    }
    return SL_OK;
}

static sl_err request_check(const struct sl_engine *engine, const struct sl_op_request *request,
                            bool handover, struct sl_error *why)
{
    sl_err err = sl_client_hints_check("op", &request->hints, why);
    err = err == SL_OK ? prefill_check(&request->prefill, why) : err;
    if (err != SL_OK) {
        return err;
    }
    if (request->before_hash != NULL && request->hashes == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "op: before_hash without hashes");
    }
    if (request->hashes != NULL) {
        return hashed_check(engine, request, handover, why);
    }
    if (request->pool_blocks != NULL) {
        return sl_fail(why, SL_ERR_INVALID, "op: pool_blocks without hashes");
    }
    if (request->tokens == NULL || request->token_count == 0 || request->token_count > TOKENS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "op: 1 to %u tokens, not %u", TOKENS_MAX,
                       request->token_count);
    }
    if (request->device_block_count > SL_BATCH_MAX ||
        (request->device_blocks == NULL && request->device_block_count > 0)) {
        return sl_fail(why, SL_ERR_INVALID, "op: at most %d device blocks, not %u", SL_BATCH_MAX,
                       request->device_block_count);
    }
    return events_check(engine, request, why);
}

static void op_message(struct sl_op *op, const struct sl_op_request *request,
                       const struct sl_handover_side *side)
{
    struct sl_msg *msg = &op->call.msg;
    /* LOAD and STORE have the same fields. */
    struct sl_body_store body = {
        .engine_id = atomic_load_explicit(&op->engine->id, memory_order_acquire),
        .tokens = {.at = op->tokens, .length = (uint64_t)request->token_count * 4},
        .extras = sl_text_of(op->extras == NULL ? "" : op->extras),
        .first_block = request->first_block,
        .partial = request->partial || (op->handover_id != 0 && op->hash_bytes == 0),
        .device_blocks = {.at = op->device_blocks, .count = request->device_block_count},
        .hashes = {.at = op->hashes, .length = (uint64_t)op->block_count * op->hash_bytes},
        .hash_bytes = op->hash_bytes,
        .handover_id = op->handover_id,
        .hold_ns = side != NULL ? side->hold_ns : 0,
        .session = (uint64_t)request->hints.session,
        .priority = (uint64_t)request->hints.priority,
        .keep_ns = request->hints.keep_ns,
        .session_id = sl_client_session_id(request->hints.session_id),
        .pause_ns = request->hints.pause_ns,
        .before_hash = {.at = op->before_hash, .length = op->has_before ? op->hash_bytes : 0},
        .request = sl_text_of(op->origin.request),
        .traceparent = sl_text_of(op->origin.traceparent),
    };
    if (op->table_count > 0) {
        body.pool_blocks = body.device_blocks;
        body.pool_blocks.count *= op->table_count;
        body.device_blocks.count = 0;
    }
    msg->op_id = op->result.op_id;
    msg->trace_id = op->result.trace_id;
    const struct sl_u64s ends = {.at = op->layers.ends, .count = op->layers.entry_count};
    if (op->store) {
        msg->type = SL_MSG_STORE;
        msg->body.store = body;
        msg->body.store.layer_ends = ends;
        msg->body.store.direct = side != NULL && side->direct && side->ticket == NULL;
        if (op->layers.count > 0) {
            msg->body.store.layered_blocks = body.device_blocks;
            msg->body.store.device_blocks.count = 0;
        }
        if (op->event_count > 0) {
            msg->body.store.events.at = op->events;
            msg->body.store.events.count = op->event_count;
            msg->body.store.ordered_blocks = body.device_blocks;
            msg->body.store.device_blocks.count = msg->body.store.layered_blocks.count = 0;
        }
        if (side != NULL && side->ticket != NULL) {
            op->ticket = *side->ticket;
            memcpy(op->ticket_bytes, side->ticket->bytes.at, side->ticket->bytes.length);
            op->ticket.bytes.at = op->ticket_bytes;
            msg->body.store.ticket.at = &op->ticket;
            msg->body.store.ticket.count = 1;
        }
    } else {
        msg->type = SL_MSG_LOAD;
        msg->body.load =
            (struct sl_body_load){.engine_id = body.engine_id,
                                  .tokens = body.tokens,
                                  .extras = body.extras,
                                  .first_block = body.first_block,
                                  .partial = body.partial,
                                  .device_blocks = body.device_blocks,
                                  .handover_id = op->handover_id,
                                  .direct = side != NULL && side->direct,
                                  .hashes = body.hashes,
                                  .hash_bytes = body.hash_bytes,
                                  .pool_blocks = body.pool_blocks,
                                  .layer_ends = ends,
                                  .session = body.session,
                                  .priority = body.priority,
                                  .keep_ns = body.keep_ns,
                                  .session_id = body.session_id,
                                  .pause_ns = body.pause_ns,
                                  .request = body.request,
                                  .traceparent = body.traceparent,
                                  .prefill_rate = request->prefill.prefill_tokens_per_s,
                                  .prefill_doubles = request->prefill.attention_doubles_at};
        if (side != NULL) {
            (void)snprintf(op->prefill_node, sizeof op->prefill_node, "%s", side->from.at);
            msg->body.load.prefill_node = sl_text_of(op->prefill_node);
        }
        if (op->event_count > 0) {
            msg->body.load.events.at = op->events;
            msg->body.load.events.count = op->event_count;
            msg->body.load.ordered_blocks = body.device_blocks;
            msg->body.load.device_blocks.count = 0;
        }
        if (op->has_receipt) {
            msg->body.load.receipt.at = &op->receipt;
            msg->body.load.receipt.count = 1;
        }
    }
}

static sl_err op_start(struct sl_engine *engine, const struct sl_op_request *request, bool store,
                       const struct sl_handover_side *side, struct sl_op **out,
                       struct sl_error *why)
{
    uint64_t deadline_ns = sl_client_deadline(engine->client, request->timeout_ns);
    sl_err err = request_check(engine, request, side != NULL, why);
    if (err == SL_OK) {
        err = sl_engine_ready(engine, deadline_ns, why);
    }
    if (err == SL_OK) {
        err = sl_engine_memory_check(engine, why);
    }
    if (err != SL_OK) {
        return err;
    }
    if (atomic_fetch_add_explicit(&engine->ops, 1, memory_order_relaxed) >= SL_ENGINE_OPS_MAX) {
        atomic_fetch_sub_explicit(&engine->ops, 1, memory_order_relaxed);
        return sl_fail(why, SL_ERR_LIMIT, "engine: %u ops are in flight", SL_ENGINE_OPS_MAX);
    }
    struct sl_op *op = op_new(engine, request, store);
    if (op == NULL) {
        atomic_fetch_sub_explicit(&engine->ops, 1, memory_order_relaxed);
        return sl_fail(why, SL_ERR_NO_MEMORY, "op of %u tokens", request->token_count);
    }
    err = sl_op_layers_make(op, request, why);
    if (err != SL_OK) {
        atomic_fetch_sub_explicit(&engine->ops, 1, memory_order_relaxed);
        op_free(op);
        return err;
    }
    op->result.op_id = sl_client_op_id(engine->client);
    op->result.trace_id = request->trace_id != 0 ? request->trace_id : sl_client_random();
    op->handover_id = side != NULL ? side->id : 0;
    if (side != NULL && side->receipt != NULL) {
        receipt_take(op, side->receipt);
    }
    op->call.to = "coordinator";
    op->call.deadline_ns = deadline_ns;
    op->call.answered = op_answered;
    op->call.context = op;
    op->call.op = op;
    op_message(op, request, side);
    err = sl_client_call_start(engine->client, &op->call, why);
    if (err != SL_OK) {
        atomic_fetch_sub_explicit(&engine->ops, 1, memory_order_relaxed);
        op_free(op);
        return err;
    }
    *out = op;
    return SL_OK;
}

sl_err sl_store_start(struct sl_engine *engine, const struct sl_op_request *request,
                      struct sl_op **op, struct sl_error *why)
{
    return op_start(engine, request, true, NULL, op, why);
}

sl_err sl_load_start(struct sl_engine *engine, const struct sl_op_request *request,
                     struct sl_op **op, struct sl_error *why)
{
    return op_start(engine, request, false, NULL, op, why);
}

sl_err sl_client_handover_start(struct sl_engine *engine, const struct sl_op_request *request,
                                bool store, const struct sl_handover_side *side, struct sl_op **op,
                                struct sl_error *why)
{
    return op_start(engine, request, store, side, op, why);
}

bool sl_client_op_arrived(struct sl_client_call *call, const struct sl_item_receipt *receipt)
{
    struct sl_op *op = call->context;
    if (call->msg.type != SL_MSG_LOAD || call->answered != op_answered ||
        op->handover_id != receipt->handover_id) {
        return false;
    }
    if (!op->has_receipt) {
        receipt_take(op, receipt);
        call->msg.body.load.receipt.at = &op->receipt;
        call->msg.body.load.receipt.count = 1;
    }
    return true;
}

/* The result of a receive that did not load all blocks: no block count, and one code for all
 * reasons, except for errors and cancellation by the caller. */
static void receive_settle(struct sl_op *op)
{
    struct sl_op_result *result = &op->result;
    if (result->code == SL_OK && result->block_count < op->block_count) {
        result->code = sl_fail(&result->why, SL_ERR_HANDOVER, "%u of %u blocks were loaded",
                               result->block_count, op->block_count);
    }
    bool plain = result->code == SL_OK || result->code == SL_ERR_INCOMPLETE ||
                 result->code == SL_ERR_CANCELLED || sl_err_class(result->code) == SL_CLASS_CALL;
    if (!plain) {
        result->code = SL_ERR_HANDOVER;
        result->why.code = SL_ERR_HANDOVER;
    }
    if (result->code != SL_OK && result->code != SL_ERR_INCOMPLETE) {
        result->block_count = result->from_memory = result->from_disk = result->from_remote = 0;
        result->bytes = 0;
    }
}

static void handover_settle(struct sl_op *op)
{
    if (!op->store) {
        receive_settle(op);
    } else if (op->result.code == SL_OK && !op->has_receipt) {
        op->result.code = sl_fail(&op->result.why, SL_ERR_VERSION,
                                  "the node's coordinator does not know hand-overs");
    }
}

void sl_op_settle(struct sl_op *op)
{
    struct sl_client *client = op->engine->client;
    pthread_mutex_lock(&client->lock);
    if (!op->settled) {
        op->settled = true;
        op->result.code = op->call.code;
        op->result.why = op->call.why;
        if (op->impossible && op->result.code == SL_OK) {
            op->result.code = sl_fail(&op->result.why, SL_ERR_PROTOCOL,
                                      "the answer names more blocks than were requested");
        }
        if (op->cancelled &&
            (op->result.code == SL_ERR_TIMEOUT || op->result.code == SL_ERR_UNREACHABLE)) {
            op->result.code = sl_fail(&op->result.why, SL_ERR_CANCELLED, "cancelled");
        }
        if (op->store && (op->layers.count > 0 || op->event_count > 0) &&
            op->result.code == SL_OK && op->result.block_count != op->block_count) {
            op->result.code =
                sl_fail(&op->result.why, SL_ERR_VERSION, "the node's coordinator does not know %s",
                        op->event_count > 0 ? "events" : "layers");
        }
        if (op->handover_id != 0) {
            handover_settle(op);
        }
        if (!op->call.ever_sent) { /* the coordinator has not received it */
            atomic_store_explicit(&op->fenced, true, memory_order_release);
        }
    }
    pthread_mutex_unlock(&client->lock);
}

sl_err sl_op_wait(struct sl_op *op, uint64_t timeout_ns, struct sl_op_result *result)
{
    uint64_t until_ns =
        timeout_ns == 0 ? SL_NEVER_NS : sl_deadline_ns(sl_clock_monotonic_ns(), timeout_ns);
    bool last = until_ns >= op->call.deadline_ns;
    while (!sl_client_call_wait(op->engine->client, &op->call,
                                SL_MIN(until_ns, op->call.deadline_ns))) {
        if (!last) {
            return SL_ERR_TIMEOUT;
        }
    }
    sl_op_settle(op);
    *result = op->result;
    result->fenced = atomic_load_explicit(&op->fenced, memory_order_acquire);
    return SL_OK;
}

sl_err sl_op_poll(struct sl_op *op, struct sl_op_result *result)
{
    if (!sl_client_call_wait(op->engine->client, &op->call, 0)) {
        return SL_ERR_BUSY;
    }
    return sl_op_wait(op, 1, result);
}

sl_err sl_op_transfer_params(struct sl_op *op, struct sl_transfer_params *out, struct sl_error *why)
{
    struct sl_op_result result;
    if (!op->store || op->handover_id == 0) {
        return sl_fail(why, SL_ERR_INVALID, "the op is not the prefill side of a hand-over");
    }
    if (sl_op_poll(op, &result) != SL_OK) {
        return sl_fail(why, SL_ERR_BUSY, "the hand-over is not committed yet");
    }
    if (result.code != SL_OK) {
        if (why != NULL) {
            *why = result.why;
        }
        return result.code;
    }
    *out = (struct sl_transfer_params){.handover_id = op->receipt.handover_id,
                                       .keys_low = op->receipt.keys_low,
                                       .keys_high = op->receipt.keys_high,
                                       .block_end = (uint32_t)op->receipt.block_end};
    memcpy(out->node, op->receipt_node, sizeof out->node);
    return SL_OK;
}

static void ticket_answered(void *context, const struct sl_msg *reply)
{
    struct sl_ticket *ticket = context;
    if (reply->code != SL_OK || reply->body.ticket_reply.ticket.count == 0) {
        return;
    }
    const struct sl_item_ticket *item = &reply->body.ticket_reply.ticket.at[0];
    *ticket = (struct sl_ticket){.keys_low = item->keys_low,
                                 .keys_high = item->keys_high,
                                 .first_block = (uint32_t)item->first_block,
                                 .block_end = (uint32_t)item->block_end,
                                 .length_bytes =
                                     (uint32_t)SL_MIN(item->bytes.length, sizeof ticket->bytes)};
    memcpy(ticket->bytes, item->bytes.at, ticket->length_bytes);
}

/* The first request to an actor waits for the connection: until then the actor does not know it. */
static bool op_unsent(struct sl_op *op)
{
    struct sl_client *client = op->engine->client;
    pthread_mutex_lock(&client->lock);
    bool unsent = !op->call.done && !op->call.ever_sent;
    pthread_mutex_unlock(&client->lock);
    return unsent;
}

sl_err sl_op_ticket(struct sl_op *op, struct sl_ticket *out, uint64_t timeout_ns,
                    struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    struct sl_ticket ticket = {0};
    struct sl_client_call call = {.to = "coordinator",
                                  .deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = ticket_answered,
                                  .context = &ticket};
    if (op->store || op->handover_id == 0) {
        return sl_fail(why, SL_ERR_INVALID, "the op is not the decode side of a hand-over");
    }
    struct sl_op_result result;
    if (sl_op_poll(op, &result) == SL_ERR_BUSY && op_unsent(op)) {
        return sl_fail(why, SL_ERR_BUSY, "the op is being sent to the coordinator");
    }
    call.msg.type = SL_MSG_TICKET;
    call.msg.op_id = op->result.op_id;
    call.msg.trace_id = op->result.trace_id;
    call.msg.body.ticket.handover_id = op->handover_id;
    sl_err err = sl_client_call(client, &call, why);
    if (err == SL_OK && ticket.length_bytes == 0) {
        err = sl_fail(why, SL_ERR_PROTOCOL, "the coordinator's answer has no ticket");
    }
    if (err == SL_OK) {
        *out = ticket;
    }
    return err;
}

static bool bit_of(const struct sl_op *op, const unsigned char *bitmap, uint32_t block)
{
    return block < op->block_count && ((uint32_t)bitmap[block >> 3] >> (block & 7) & 1u) != 0;
}

bool sl_op_block_stored(const struct sl_op *op, uint32_t block)
{
    return bit_of(op, op->stored, block);
}

bool sl_op_block_existed(const struct sl_op *op, uint32_t block)
{
    return bit_of(op, op->existed, block);
}

bool sl_op_block_loaded(const struct sl_op *op, uint32_t block)
{
    return !op->store && op->settled && block < op->result.block_count;
}

void *sl_op_context(const struct sl_op *op)
{
    return op->context;
}

/* CANCEL and OP_FENCED: both replies tell whether the op's blocks are free. */
static void fence_answered(void *context, const struct sl_msg *reply)
{
    struct sl_op *op = context;
    bool fenced = reply->type == SL_MSG_CANCEL_REPLY ? reply->body.cancel_reply.fenced
                                                     : reply->body.op_fenced_reply.fenced;
    if (reply->code == SL_OK && fenced) {
        atomic_store_explicit(&op->fenced, true, memory_order_release);
    }
}

static sl_err op_ask(struct sl_op *op, enum sl_msg_type type, uint64_t deadline_ns,
                     struct sl_error *why)
{
    struct sl_client_call call = {
        .to = "coordinator", .deadline_ns = deadline_ns, .answered = fence_answered, .context = op};
    call.msg.type = type;
    call.msg.op_id = op->result.op_id;
    call.msg.trace_id = op->result.trace_id;
    if (type == SL_MSG_CANCEL) {
        call.msg.body.cancel.target_op = op->result.op_id;
    } else {
        call.msg.body.op_fenced.target_op = op->result.op_id;
    }
    return sl_client_call(op->engine->client, &call, why);
}

sl_err sl_op_cancel(struct sl_op *op, struct sl_error *why)
{
    struct sl_client *client = op->engine->client;
    pthread_mutex_lock(&client->lock);
    op->cancelled = true;
    op->call.silenced = true; /* a resend would start it again */
    bool over = op->call.done;
    bool unsent = !over && !op->call.ever_sent;
    pthread_mutex_unlock(&client->lock);
    if (unsent) { /* and never will be */
        sl_client_call_drop(client, &op->call);
        return SL_OK;
    }
    if (over) {
        return SL_OK;
    }
    sl_err err = op_ask(op, SL_MSG_CANCEL,
                        sl_deadline_ns(sl_clock_monotonic_ns(), SL_CLIENT_CANCEL_NS), why);
    if (err != SL_OK) {
        /* The coordinator was restarted and does not know the op, or is absent. No end of the op
         * will be reported, since it is not resent. OP_FENCED frees its blocks as usual. */
        sl_client_call_drop(client, &op->call);
    }
    return err == SL_ERR_NOT_FOUND ? SL_OK : err;
}

sl_err sl_op_wait_fenced(struct sl_op *op, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_op_result result;
    uint64_t deadline_ns = sl_client_deadline(op->engine->client, timeout_ns);
    sl_err err =
        sl_op_wait(op, SL_MAX(sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns), 1), &result);
    while (err == SL_OK && !atomic_load_explicit(&op->fenced, memory_order_acquire)) {
        if (sl_clock_monotonic_ns() >= deadline_ns) {
            err = SL_ERR_TIMEOUT;
            break;
        }
        err = op_ask(op, SL_MSG_OP_FENCED, deadline_ns, NULL);
        if (err == SL_ERR_LIMIT || err == SL_ERR_BUSY || err == SL_ERR_NOT_FOUND ||
            err == SL_ERR_UNREACHABLE) {
            err = SL_OK; /* ask again */
        }
        if (err == SL_OK && !atomic_load_explicit(&op->fenced, memory_order_acquire)) {
            sl_client_sleep(FENCE_PAUSE_NS);
        }
    }
    return err == SL_OK
               ? SL_OK
               : sl_fail(why, err, "the op's device blocks are not free yet: %s", sl_err_text(err));
}

void sl_op_release(struct sl_op **op)
{
    struct sl_op *gone = op == NULL ? NULL : *op;
    if (gone == NULL) {
        return;
    }
    struct sl_client *client = gone->engine->client;
    pthread_mutex_lock(&client->lock);
    bool running = !gone->call.done;
    sl_client_ends_forget(client, &gone->call);
    pthread_mutex_unlock(&client->lock);
    if (running) {
        struct sl_msg cancel = {
            .type = SL_MSG_CANCEL, .op_id = gone->result.op_id, .trace_id = gone->result.trace_id};
        cancel.body.cancel.target_op = gone->result.op_id;
        sl_client_send(client, "coordinator", &cancel, SL_CLIENT_CANCEL_NS);
        sl_client_call_drop(client, &gone->call);
    }
    atomic_fetch_sub_explicit(&gone->engine->ops, 1, memory_order_relaxed);
    op_free(gone);
    *op = NULL;
}
