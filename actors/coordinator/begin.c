/* actors/coordinator/begin.c - how ops begin: the request, the engine's registration, the keys. */
#include "actors/coordinator/internal.h"
#include "runtime/sl_hex.h"
#include "runtime/sl_traceparent.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An answer takes a while to arrive: an op ends so much of its budget before its client's deadline.
 */
#define ANSWER_SHARE  20u
#define ANSWER_NS_MAX (10 * SL_NS_PER_MS)

static bool from_client_of(const struct co_op *op, const struct sl_msg *msg)
{
    return msg->sender.length == strlen(op->back.to) &&
           memcmp(msg->sender.at, op->back.to, msg->sender.length) == 0;
}

/* An op of that id is known. False: it is over and was somebody else's; a new one may have the id.
 */
static bool op_start_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    bool mine =
        op->type->kind != CO_UNKNOWN && op->back.type == msg->type && from_client_of(op, msg);
    if (!mine && op->phase == CO_DONE && op->type->kind != CO_UNKNOWN) {
        co_op_recycle(self, op);
        return false;
    }
    if (op->type->kind == CO_UNKNOWN) {
        sl_reply_fail(self->env, msg, SL_ERR_CANCELLED,
                      "op %016" PRIx64 " was fenced before it came", msg->op_id);
    } else if (!mine) {
        sl_reply_fail(self->env, msg, SL_ERR_BUSY, "op id %016" PRIx64 " is in use by %s",
                      msg->op_id, op->back.to);
    } else {
        sl_metric_add(self->env->metrics, self->metric.repeated_count, 1);
        sl_return_keep(msg, &op->back);
        if (op->answered) {
            co_op_answer(self, op);
        } else {
            if (co_by_layers(op)) {
                co_layers_again(self, op, msg);
            }
            if (!op->answered && op->handover != NULL) {
                co_handover_again(self, op, msg);
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

struct request { /* what STORE and LOAD have in common */
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
    struct sl_said said;
    uint64_t prefill_rate, prefill_doubles;
    uint64_t session_id, pause_ns;
    struct sl_text request, traceparent;
};

/* With a table of blocks for each pool there is none of all; how long they are the hashes say. */
static void request_count(struct request *request)
{
    request->block_count = request->pool_blocks.count > 0 && request->hash_bytes > 0
                               ? request->hashes.length / request->hash_bytes
                               : request->device_blocks.count;
}

static struct request request_of(const struct sl_msg *msg)
{
    const struct sl_body_store *store = &msg->body.store;
    const struct sl_body_load *load = &msg->body.load;
    if (msg->type == SL_MSG_STORE) {
        bool by_layers = store->layer_ends.count > 0;
        const struct sl_u64s *blocks = store->events.count > 0 ? &store->ordered_blocks
                                       : by_layers             ? &store->layered_blocks
                                                               : &store->device_blocks;
        struct request request = {.engine_id = store->engine_id,
                                  .first_block = store->first_block,
                                  .tokens = store->tokens,
                                  .extras = store->extras,
                                  .device_blocks = *blocks,
                                  .events = store->events.at,
                                  .event_count = store->events.count,
                                  .partial = store->partial,
                                  .handover = store->handover_id != 0,
                                  .hashes = store->hashes,
                                  .hash_bytes = store->hash_bytes,
                                  .pool_blocks = store->pool_blocks,
                                  .before_hash = store->before_hash,
                                  .said = {.session = (uint32_t)store->session,
                                           .priority = (uint32_t)store->priority,
                                           .keep_ns = store->keep_ns},
                                  .session_id = store->session_id,
                                  .pause_ns = store->pause_ns,
                                  .request = store->request,
                                  .traceparent = store->traceparent};
        request_count(&request);
        return request;
    }
    struct request request = {.engine_id = load->engine_id,
                              .first_block = load->first_block,
                              .tokens = load->tokens,
                              .extras = load->extras,
                              .device_blocks = load->events.count > 0 ? load->ordered_blocks
                                                                      : load->device_blocks,
                              .events = load->events.at,
                              .event_count = load->events.count,
                              .partial = load->partial,
                              .handover = load->handover_id != 0,
                              .hashes = load->hashes,
                              .hash_bytes = load->hash_bytes,
                              .pool_blocks = load->pool_blocks,
                              .said = {.session = (uint32_t)load->session,
                                       .priority = (uint32_t)load->priority,
                                       .keep_ns = load->keep_ns},
                              .prefill_rate = load->prefill_rate,
                              .prefill_doubles = load->prefill_doubles,
                              .session_id = load->session_id,
                              .pause_ns = load->pause_ns,
                              .request = load->request,
                              .traceparent = load->traceparent};
    request_count(&request);
    return request;
}

/* Tokens or hashes; these one a block. */
static sl_err hashes_check(const struct request *request, struct sl_error *why)
{
    uint64_t length = request->hashes.length, each = request->hash_bytes;
    if ((length == 0) == (request->tokens.length == 0)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "tokens: %" PRIu64 " bytes of them, and %" PRIu64 " of hashes",
                       request->tokens.length, length);
    }
    if (request->before_hash.length != 0 && request->before_hash.length != each) {
        return sl_fail(why, SL_ERR_INVALID,
                       "before_hash: %" PRIu64 " bytes, and %" PRIu64 " of each hash",
                       request->before_hash.length, each);
    }
    if (length == 0) {
        return request->pool_blocks.count == 0
                   ? SL_OK
                   : sl_fail(why, SL_ERR_INVALID, "pool_blocks: without hashes");
    }
    uint64_t table_blocks = request->device_blocks.count + request->pool_blocks.count;
    bool lone_partial = request->partial && !request->handover;
    /* No table has more entries than a message takes: nor are there more blocks. */
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
        return sl_fail(why, SL_ERR_INVALID, "tokens: %" PRIu64 " bytes are no whole number of u32",
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

static bool op_keep_before(struct co_op *op, const struct request *request)
{
    uint64_t each = request->before_hash.length;
    if (each == 0) {
        return true;
    }
    char *text = co_memory_take(&op->life, 2 * each + 1, 1);
    if (text != NULL) {
        sl_hex_write(text, request->before_hash.at, each);
        op->before = (struct sl_key){.at = text, .length = (uint32_t)(2 * each)};
    }
    return text != NULL;
}

/* The key of a block is its hash in lower-case hex. */
static bool op_keep_hashes(struct co_op *op, const struct request *request)
{
    const uint8_t *from = request->hashes.at;
    uint64_t each = request->hash_bytes, room = 2 * each + 1;
    if (request->hashes.length == 0) {
        return true;
    }
    char *text = co_memory_take(&op->life, op->block_count * room, 1);
    if (text == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < op->block_count; i++, text += room) {
        sl_hex_write(text, from + i * each, each);
        op->blocks[i].key = (struct sl_key){.at = text, .length = (uint32_t)(2 * each)};
    }
    op->keyed = true;
    return op_keep_before(op, request);
}

/* NULL: it is empty, or there is no memory for it. */
static const char *text_keep(struct co_op *op, const struct sl_text *text)
{
    char *kept = text->length > 0 ? co_memory_take(&op->life, text->length + 1, 1) : NULL;
    if (kept != NULL) {
        memcpy(kept, text->at, text->length);
    }
    return kept;
}

/* What is no trace context is left out, as its standard says. */
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

/* Keeps what must outlive the message. The tokens do so only while the engine is asked for. */
static sl_err op_keep(struct co_op *op, const struct request *request, const struct sl_msg *msg)
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
        op->said.session = SAID_GOES_ON; /* who names its next turn says as much */
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
    sl_err err = op_keep_events(op, request);
    return err == SL_OK ? co_layers_keep(op, msg) : err;
}

static sl_err op_keep_tokens(struct co_op *op)
{
    void *tokens = co_memory_take(&op->life, op->tokens.length, 1);
    char *extras = co_memory_take(&op->life, op->extras.length + 1, 1);
    if (tokens == NULL || extras == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(tokens, op->tokens.at, op->tokens.length);
    if (op->extras.length > 0) {
        memcpy(extras, op->extras.at, op->extras.length);
    }
    op->tokens.at = tokens;
    op->extras.at = extras;
    return SL_OK;
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

/* Only a hand-over is pushed. */
static const struct co_type *type_of(const struct sl_msg *msg)
{
    const struct sl_body_store *store = &msg->body.store;
    const struct sl_body_load *load = &msg->body.load;
    if (msg->type == SL_MSG_STORE) {
        bool push = store->handover_id != 0 && store->ticket.count > 0;
        return push ? &co_push_out_type : &co_store_type;
    }
    bool push = load->handover_id != 0 && load->direct && request_of(msg).block_count > 0;
    return push ? &co_push_in_type : &co_load_type;
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
    op = err == SL_OK ? co_op_new(self, type_of(msg), msg) : NULL;
    if (err == SL_OK && op == NULL) {
        err = sl_fail(&why, SL_ERR_LIMIT, "%u ops are in flight", self->op_active);
    }
    if (op == NULL) {
        sl_metric_add(env->metrics, self->metric.op_refused_count, 1);
        /* What is malformed asks for nothing. */
        if (err == SL_ERR_LIMIT || err == SL_ERR_DRAINING) {
            co_refused_account(self, msg->type == SL_MSG_STORE, (uint32_t)request.block_count);
        }
        sl_reply_code(env, msg, err, &why);
        return;
    }
    sl_metric_add(env->metrics,
                  op->type->kind == CO_STORE ? self->metric.store_count : self->metric.load_count,
                  1);
    sl_trace_event(env->metrics, env->now_ns, op->trace_id,
                   op->type->kind == CO_STORE ? "store begins" : "load begins", "",
                   (uint32_t)request.block_count);
    sl_return_keep(msg, &op->back);
    op->deadline_ns = op_deadline(self, msg);
    co_op_enter(self, op, CO_ENGINE);
    env->ops->wake_at(env, op->deadline_ns);
    op_keep_origin(self, op, &request);
    err = op_keep(op, &request, msg);
    if (err == SL_OK) {
        err = co_handover_begin(self, op, msg);
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

bool co_op_call(struct coordinator *self, struct co_op *op, const char *to, struct sl_msg *msg)
{
    return co_op_call_until(self, op, to, msg, op->deadline_ns);
}

bool co_op_call_until(struct coordinator *self, struct co_op *op, const char *to,
                      struct sl_msg *msg, uint64_t until_ns)
{
    msg->op_id = op->id;
    msg->trace_id = op->trace_id;
    sl_err err = sl_calls_send(self->calls, to, msg, until_ns,
                               co_cookie(CO_CALL_OP, 0, (uint32_t)(op - self->ops)), &op->call_seq);
    if (err != SL_OK) {
        op->call_seq = 0;
        co_reason(op, "%s to %s: %s", sl_msg_name(msg->type), to, sl_err_text(err));
        co_op_end(self, op, err);
    }
    return err == SL_OK;
}

/* Only now it is known how many blocks and pools the engine has. False: the op was ended. */
static bool blocks_fit(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    if (op->pool_blocks != NULL &&
        op->pool_block_count != (uint64_t)op->block_count * engine->pool_count) {
        co_reason(op, "pool_blocks: %" PRIu64 " for %u blocks in %u pools", op->pool_block_count,
                  op->block_count, engine->pool_count);
        co_op_end(self, op, SL_ERR_INVALID);
        return false;
    }
    uint64_t count = op->pool_blocks != NULL ? op->pool_block_count : op->block_count;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t block = op->pool_blocks != NULL ? op->pool_blocks[i] : op->blocks[i].device_block;
        if (block > engine->device_block_max) {
            co_reason(op, "%s_blocks[%" PRIu64 "]: %u, the engine has %" PRIu64,
                      op->pool_blocks != NULL ? "pool" : "device", i, block,
                      engine->device_block_max + 1);
            co_op_end(self, op, SL_ERR_INVALID);
            return false;
        }
    }
    return true;
}

void co_op_engine_known(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    if (!blocks_fit(self, op)) {
        return;
    }
    for (uint32_t i = 0; i < op->event_count; i++) {
        if (op->event_ranks[i] >= engine->world) {
            co_reason(op, "events[%u].rank: %" PRIu64 ", the engine has %u ranks", i,
                      op->event_ranks[i], engine->world);
            co_op_end(self, op, SL_ERR_INVALID);
            return;
        }
    }
    if (co_by_layers(op) && !co_layers_check(self, op)) {
        return;
    }
    co_op_enter(self, op, CO_KEYS);
}

static void op_keyed(struct coordinator *self, struct co_op *op, uint32_t count)
{
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "keys known",
                   op->keyed ? "" : "keyer", count);
    if (op->handover == NULL || co_handover_keys(self, op)) {
        co_op_go(self, op);
    }
}

void co_op_ask_keys(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    if (op->keyed) {
        op->before_hash = op->before.at != NULL ? co_block_hash(engine, &op->before) : 0;
        op_keyed(self, op, op->block_count);
        return;
    }
    struct sl_msg keys = {.type = SL_MSG_KEYS};
    keys.body.keys = (struct sl_body_keys){
        .format = sl_text_of(engine->key_format),
        .block_tokens = engine->block_tokens,
        .tokens = op->tokens,
        .extras = op->extras,
        .seed = sl_text_of(engine->seed),
        .partial = op->partial,
    };
    (void)co_op_call(self, op, "keyer", &keys);
}

void co_op_keys(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    const struct sl_texts *keys = &reply->body.keys_reply.keys;
    if (reply->code != SL_OK) {
        co_reason(op, "keys: %s",
                  reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
        co_op_end(self, op, reply->code);
        return;
    }
    const struct co_engine *engine = op->engine;
    /* MODEL/BLOCK/RANK/POOL must fit into a key. */
    uint64_t block_key_max =
        SL_KEY_BYTES_MAX - strlen(engine->model) - sizeof("//63/") - sizeof(engine->pool_names[0]);
    if (op->first_block > 0 && op->first_block <= keys->count) {
        struct sl_text before = keys->at[op->first_block - 1];
        struct sl_key key = {.at = before.at, .length = (uint32_t)before.length};
        op->before_hash = before.length <= block_key_max ? co_block_hash(engine, &key) : 0;
    }
    for (uint32_t i = 0; i < op->block_count; i++) {
        uint64_t number = (uint64_t)op->first_block + i;
        if (number >= keys->count) {
            break; /* the format has no key for an incomplete last block, or there are more blocks
                      than tokens */
        }
        struct sl_text key = keys->at[number];
        char *kept =
            key.length <= block_key_max ? co_memory_take(&op->life, key.length + 1, 1) : NULL;
        if (kept == NULL) {
            co_reason(op, "key of block %" PRIu64 " has %" PRIu64 " bytes", number, key.length);
            co_op_end(self, op, key.length > block_key_max ? SL_ERR_INVALID : SL_ERR_NO_MEMORY);
            return;
        }
        memcpy(kept, key.at, key.length);
        op->blocks[i].key = (struct sl_key){.at = kept, .length = (uint32_t)key.length};
    }
    op_keyed(self, op, (uint32_t)keys->count);
}

co_workers co_op_ungreeted(const struct coordinator *self, const struct co_op *op)
{
    uint32_t world = op->engine != NULL && op->engine->state == CO_ENGINE_KNOWN ? op->engine->world
                                                                                : CO_RANKS_MAX;
    return self->ungreeted & (co_worker_bit(CO_TRANSPORTER) | (co_worker_bit(world) - 1));
}

void co_op_go(struct coordinator *self, struct co_op *op)
{
    if (co_op_ungreeted(self, op) != 0) {
        co_op_enter(self, op, CO_GREET);
    } else {
        op->type->go(self, op);
    }
}

void co_op_greet(struct coordinator *self, struct co_op *op)
{
    co_wake(self, op, self->env->now_ns + CO_POLL_NS);
}

void co_op_greet_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    (void)now_ns;
    co_greet_look(self);
    co_op_go(self, op);
}
