/* actors/coordinator/begin.c - begins ops: checks and keeps what STORE and LOAD request. */
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_hex.h"
#include "runtime/base/sl_traceparent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An answer takes a while: an op ends this share of its budget before its client's deadline. */
#define ANSWER_SHARE  20u
#define ANSWER_NS_MAX (10 * SL_NS_PER_MS)

/* Answers a request whose op id is known. False: that op was another's and is over: the id is
 * free. */
static bool op_start_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    bool mine = op->back.type == msg->type && co_op_is_of(op, msg);
    if (!mine && op->phase == CO_DONE && op->type->kind != CO_UNKNOWN) {
        co_op_recycle(self, op);
        return false;
    }
    if (op->type->kind == CO_UNKNOWN) {
        sl_reply_fail(self->env, msg, SL_ERR_CANCELLED,
                      "op %016" PRIx64 " was fenced before it arrived", msg->op_id);
    } else if (!mine) {
        sl_reply_fail(self->env, msg, SL_ERR_BUSY, "op id %016" PRIx64 " is in use by %s",
                      msg->op_id, op->back.to);
    } else {
        co_count(self, self->metric.repeated_count, 1);
        sl_reply_route_keep(msg, &op->back);
        if (op->answered) {
            co_op_answer(self, op);
        }
        for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
            if (!op->answered && (*at)->again != NULL) {
                (*at)->again(self, op, msg);
            }
        }
    }
    return true;
}

static sl_err op_bitmaps(struct co_op *op, uint32_t block_count)
{
    uint64_t bytes = SL_MAX(co_bits_bytes(block_count), UINT64_C(64));
    if (bytes > op->bitmap_bytes) {
        uint8_t *grown = realloc(op->stored, 2 * bytes); /* both bitmaps */
        if (grown == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        op->stored = grown;
        op->existed = grown + bytes;
        op->bitmap_bytes = bytes;
    }
    memset(op->stored, 0, 2 * op->bitmap_bytes);
    return SL_OK;
}

struct request { /* the fields that STORE and LOAD share */
    uint64_t engine_id, first_block;
    struct sl_bytes tokens;
    struct sl_text extras;
    struct sl_u64s device_blocks;
    const struct sl_item_event *events;
    uint64_t event_count;
    bool partial, handover;
    struct sl_bytes hashes;
    uint64_t hash_bytes, block_count;
    struct sl_u64s pool_blocks;
    struct sl_bytes before_hash;
    struct sl_packed_hints said;
    uint64_t prefill_rate, prefill_doubles;
    uint64_t session_id, pause_ns;
    struct sl_text request, traceparent;
};

#define REQUEST_OF(body)                                                                 \
    {                                                                                    \
        .engine_id = (body)->engine_id, .first_block = (body)->first_block,              \
        .tokens = (body)->tokens, .extras = (body)->extras, .events = (body)->events.at, \
        .event_count = (body)->events.count, .partial = (body)->partial,                 \
        .handover = (body)->handover_id != 0, .hashes = (body)->hashes,                  \
        .hash_bytes = (body)->hash_bytes, .pool_blocks = (body)->pool_blocks,            \
        .said = {.session = (uint32_t)(body)->session,                                   \
                 .priority = (uint32_t)(body)->priority,                                 \
                 .keep_ns = (body)->keep_ns},                                            \
        .session_id = (body)->session_id, .pause_ns = (body)->pause_ns,                  \
        .request = (body)->request, .traceparent = (body)->traceparent                   \
    }

static struct request request_of(const struct sl_msg *msg)
{
    const struct sl_body_store *store = &msg->body.store;
    const struct sl_body_load *load = &msg->body.load;
    struct request of_store = REQUEST_OF(store), of_load = REQUEST_OF(load);
    struct request request = msg->type == SL_MSG_STORE ? of_store : of_load;
    if (msg->type == SL_MSG_STORE) {
        request.device_blocks = store->events.count > 0       ? store->ordered_blocks
                                : store->layer_ends.count > 0 ? store->layered_blocks
                                                              : store->device_blocks;
        request.before_hash = store->before_hash;
    } else {
        request.device_blocks = load->events.count > 0 ? load->ordered_blocks : load->device_blocks;
        request.prefill_rate = load->prefill_rate;
        request.prefill_doubles = load->prefill_doubles;
    }
    /* With a table of blocks for each pool there is no common one: the number of hashes counts. */
    request.block_count = request.pool_blocks.count > 0 && request.hash_bytes > 0
                              ? request.hashes.length / request.hash_bytes
                              : request.device_blocks.count;
    return request;
}

/* A request has either tokens or hashes, one hash per block. */
static sl_err hashes_check(const struct request *request, struct sl_error *why)
{
    uint64_t length = request->hashes.length, each = request->hash_bytes;
    if ((length == 0) == (request->tokens.length == 0)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "tokens: %" PRIu64 " bytes, hashes: %" PRIu64
                       " bytes: one of them is needed",
                       request->tokens.length, length);
    }
    if (request->before_hash.length != 0 && request->before_hash.length != each) {
        return sl_fail(why, SL_ERR_INVALID,
                       "before_hash: %" PRIu64 " bytes, a hash has %" PRIu64 " bytes",
                       request->before_hash.length, each);
    }
    if (length == 0) {
        return request->pool_blocks.count == 0
                   ? SL_OK
                   : sl_fail(why, SL_ERR_INVALID, "pool_blocks: only with hashes");
    }
    uint64_t table_blocks = request->device_blocks.count + request->pool_blocks.count;
    bool lone_partial = request->partial && !request->handover;
    /* A message bounds the entries of a table, and so the number of blocks. */
    if (each == 0 || length % each != 0 || length / each != request->block_count ||
        request->block_count > table_blocks ||
        (request->device_blocks.count > 0 && request->pool_blocks.count > 0) || lone_partial) {
        return sl_fail(why, SL_ERR_INVALID,
                       "hashes: %" PRIu64 " bytes, %" PRIu64 " each, for %" PRIu64
                       " device_blocks and %" PRIu64 " pool_blocks%s",
                       length, each, request->device_blocks.count, request->pool_blocks.count,
                       lone_partial ? ", partial without a hand-over" : "");
    }
    return SL_OK;
}

static sl_err request_check(const struct coordinator *self, const struct sl_msg *msg,
                            const struct request *request, struct sl_error *why)
{
    if (msg->op_id == 0) {
        return sl_fail(why, SL_ERR_INVALID, "%s without an op id", sl_msg_name(msg->type));
    }
    if (request->tokens.length % 4 != 0) {
        return sl_fail(why, SL_ERR_INVALID, "tokens: %" PRIu64 " bytes are no whole u32s",
                       request->tokens.length);
    }
    const struct sl_u64s *tables[] = {&request->device_blocks, &request->pool_blocks};
    for (uint64_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < tables[t]->count; i++) {
            if (tables[t]->at[i] >= UINT32_MAX) {
                return sl_fail(why, SL_ERR_INVALID, "%s_blocks[%" PRIu64 "]: %" PRIu64,
                               t == 0 ? "device" : "pool", i, tables[t]->at[i]);
            }
        }
    }
    sl_err err = hashes_check(request, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint64_t i = 1; i < request->event_count; i++) { /* 64 at most */
        for (uint64_t j = 0; j < i; j++) {
            if (request->events[i].rank == request->events[j].rank) {
                return sl_fail(why, SL_ERR_INVALID, "events[%" PRIu64 "].rank: %" PRIu64 " twice",
                               i, request->events[i].rank);
            }
        }
    }
    if (self->draining) {
        return sl_fail(why, SL_ERR_DRAINING, "the coordinator takes no new ops");
    }
    return SL_OK;
}

static sl_err op_keep_events(struct co_op *op, const struct request *request)
{
    uint32_t count = (uint32_t)request->event_count;
    if (count == 0) {
        return SL_OK;
    }
    op->events = co_memory_take(&op->life, count, sizeof(*op->events));
    op->event_ranks = co_memory_take(&op->life, count, sizeof(*op->event_ranks));
    if (op->events == NULL || op->event_ranks == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(op->events[i], request->events[i].handle.at, SL_EVENT_BYTES);
        op->event_ranks[i] = request->events[i].rank;
    }
    op->event_count = count;
    return SL_OK;
}

static bool op_keep_pool_blocks(struct co_op *op, const struct request *request)
{
    const struct sl_u64s *from = &request->pool_blocks;
    op->pool_block_count = from->count;
    if (from->count == 0) {
        return true;
    }
    op->pool_blocks = co_memory_take(&op->life, from->count, sizeof(*op->pool_blocks));
    for (uint64_t i = 0; op->pool_blocks != NULL && i < from->count; i++) {
        op->pool_blocks[i] = (uint32_t)from->at[i];
    }
    return op->pool_blocks != NULL;
}

/* The key of a block: its hash in lower-case hex. at NULL: out of memory. */
static struct sl_key hex_keep(struct co_op *op, const uint8_t *hash, uint64_t length)
{
    char *text = co_memory_take(&op->life, 2 * length + 1, 1);
    if (text != NULL) {
        sl_hex_write(text, hash, length);
    }
    return (struct sl_key){.at = text, .length = (uint32_t)(2 * length)};
}

static bool op_keep_hashes(struct co_op *op, const struct request *request)
{
    const uint8_t *from = request->hashes.at;
    uint64_t each = request->hash_bytes;
    bool kept = true;
    op->keyed = request->hashes.length > 0;
    for (uint32_t i = 0; op->keyed && kept && i < op->block_count; i++) {
        op->blocks[i].key = hex_keep(op, from + i * each, each);
        kept = op->blocks[i].key.at != NULL;
    }
    if (op->keyed && request->before_hash.length > 0) {
        op->before = hex_keep(op, request->before_hash.at, each);
        kept = kept && op->before.at != NULL;
    }
    return kept;
}

/* NULL: empty, or no memory. */
static const char *text_keep(struct co_op *op, const struct sl_text *text)
{
    return text->length > 0 ? co_memory_keep(&op->life, text->at, text->length) : NULL;
}

/* A malformed trace context is ignored, as its standard demands. */
static void op_keep_origin(struct coordinator *self, struct co_op *op,
                           const struct request *request)
{
    struct sl_traceparent parent;
    op->origin.request = text_keep(op, &request->request);
    if (sl_traceparent_parse(request->traceparent.at, request->traceparent.length, &parent)) {
        op->origin.traceparent = text_keep(op, &request->traceparent);
        sl_traceparent_event(self->env->metrics, self->env->now_ns, op->trace_id, &parent);
    }
}

/* Keeps what must outlive the message. Tokens are kept only while the engine is requested. */
static sl_err op_keep(struct co_op *op, const struct request *request)
{
    op->block_count = (uint32_t)request->block_count;
    op->first_block = (uint32_t)request->first_block;
    op->engine_id = request->engine_id;
    op->partial = request->partial;
    op->tokens = request->tokens;
    op->token_count = (uint32_t)(request->tokens.length / 4);
    op->extras = request->extras;
    op->said = request->said;
    op->wait.tokens_per_s = request->prefill_rate;
    op->wait.doubles_tokens = request->prefill_doubles;
    op->session_id = request->session_id;
    op->pause_ns = request->pause_ns;
    if (op->pause_ns != 0 && op->said.session == 0) {
        op->said.session = HINT_CONTINUES; /* an announced pause implies it */
    }
    op->blocks = co_memory_take(&op->life, op->block_count, sizeof(*op->blocks));
    if (op->blocks == NULL || op_bitmaps(op, op->block_count) != SL_OK) {
        op->block_count = 0; /* the answer has no bitmaps */
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < op->block_count && request->device_blocks.count > 0; i++) {
        op->blocks[i].device_block = (uint32_t)request->device_blocks.at[i];
    }
    if (!op_keep_pool_blocks(op, request) || !op_keep_hashes(op, request)) {
        return SL_ERR_NO_MEMORY;
    }
    return op_keep_events(op, request);
}

static sl_err op_keep_tokens(struct co_op *op)
{
    op->tokens.at = co_memory_keep(&op->life, op->tokens.at, op->tokens.length);
    op->extras.at = co_memory_keep(&op->life, op->extras.at, op->extras.length);
    return op->tokens.at != NULL && op->extras.at != NULL ? SL_OK : SL_ERR_NO_MEMORY;
}

static uint64_t op_deadline(const struct coordinator *self, const struct sl_msg *msg)
{
    uint64_t budget_ns = msg->budget_ns;
    if (budget_ns == 0) {
        budget_ns = sl_config_u64(self->env->config, SL_SET_op_timeout);
    }
    budget_ns -= SL_MIN(budget_ns / ANSWER_SHARE, ANSWER_NS_MAX);
    return sl_deadline_ns(msg->received_ns, budget_ns);
}

/* Only hand-overs can go directly. */
static const struct co_type *type_of(const struct coordinator *self, const struct sl_msg *msg)
{
    const struct sl_body_store *store = &msg->body.store;
    const struct sl_body_load *load = &msg->body.load;
    if (msg->type == SL_MSG_STORE) {
        bool direct = store->handover_id != 0 &&
                      (store->ticket.count > 0 ||
                       (store->direct && co_handover_offers(self, store->handover_id)));
        return direct ? &co_direct_out_type : &co_store_type;
    }
    bool direct = load->handover_id != 0 && load->direct && request_of(msg).block_count > 0;
    return direct ? &co_direct_in_type : &co_load_type;
}

void co_op_start(struct coordinator *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    struct sl_error why = {0};
    struct request request = request_of(msg);
    struct co_op *op = msg->op_id != 0 ? co_op_find(self, msg->op_id) : NULL;
    if (op != NULL && op_start_again(self, op, msg)) {
        return;
    }
    sl_err err = request_check(self, msg, &request, &why);
    op = err == SL_OK ? co_op_new(self, type_of(self, msg), msg) : NULL;
    if (err == SL_OK && op == NULL) {
        err = sl_fail(&why, SL_ERR_LIMIT, "%u ops are in flight", self->op_active);
    }
    if (op == NULL) {
        co_count(self, self->metric.op_refused_count, 1);
        /* A malformed request asks for no blocks. */
        if (err == SL_ERR_LIMIT || err == SL_ERR_DRAINING) {
            co_refused_account(self, msg->type == SL_MSG_STORE, (uint32_t)request.block_count);
        }
        sl_reply_code(env, msg, err, &why);
        return;
    }
    bool store = op->type->kind == CO_STORE;
    co_count(self, store ? self->metric.store_count : self->metric.load_count, 1);
    co_trace(self, op, store ? "store begins" : "load begins", "", (uint32_t)request.block_count);
    sl_reply_route_keep(msg, &op->back);
    op->deadline_ns = op_deadline(self, msg);
    co_op_enter(self, op, CO_ENGINE);
    env->ops->wake_at(env, op->deadline_ns);
    op_keep_origin(self, op, &request);
    err = op_keep(op, &request);
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        err = err == SL_OK && (*at)->begin != NULL ? (*at)->begin(self, op, msg) : err;
    }
    if (err == SL_OK) {
        err = co_engine_want(self, op->engine_id, op->trace_id, &op->engine);
    }
    if (err != SL_OK) {
        co_op_end(self, op, err);
        return;
    }
    op->engine->ops++;
    if (op->engine->state == CO_ENGINE_KNOWN) {
        co_op_engine_known(self, op);
    } else if (op_keep_tokens(op) != SL_OK) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
    }
}
