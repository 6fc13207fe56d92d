/* actors/coordinator/ops.c - the table of ops: how they get keys, change phase, end and are
 * kept. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a part in a RESERVE or BRING, with the longest common keys and other fields. */
#define PART_MESSAGE_BYTES 256u

sl_err co_ops_init(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint64_t memory = sl_config_u64(config, SL_SET_memory);
    uint64_t pins = sl_config_u64(config, SL_SET_client_pins_max);
    uint64_t frame_parts = sl_config_u64(config, SL_SET_message_bytes_max) / PART_MESSAGE_BYTES;
    uint64_t reservations = sl_config_u64(config, SL_SET_reservations_max);
    /* A load leaves pins for others, and memory for its own reads from disk. */
    self->load_bytes_max = memory / 8;
    self->load_parts_max = (uint32_t)SL_MIN(SL_MIN(pins / 4, frame_parts), CO_SLICE_PARTS_MAX);
    self->store_bytes_max = memory / 4;
    self->store_parts_max =
        (uint32_t)SL_MIN(SL_MIN(reservations / 4, frame_parts), CO_SLICE_PARTS_MAX);

    /* An answer has 8 bytes for the hash of each chunk. */
    self->layered_bytes_max =
        SL_MIN(sl_config_u64(config, SL_SET_message_bytes_max) / 4, 4 * SL_MIB) / 8 *
        SL_DIGEST_CHUNK_BYTES;

    self->op_max = (uint32_t)SL_MIN(sl_config_u64(config, SL_SET_queue_messages), 4096);
    self->op_slots = self->op_max + CO_FINISHED_MAX;
    self->ops = calloc(self->op_slots, sizeof(*self->ops));
    if (self->ops == NULL || !sl_table_reserve(&self->op_by_id, self->op_slots)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu32 " ops", self->op_slots);
    }
    for (uint32_t i = self->op_slots; i-- > 0;) {
        struct co_op *op = &self->ops[i];
        op->life.chunks = &self->chunks;
        op->work.chunks = &self->chunks;
        op->newer = self->free_first;
        self->free_first = op;
    }
    return SL_OK;
}

void co_ops_fini(struct coordinator *self)
{
    for (uint32_t i = 0; self->ops != NULL && i < self->op_slots; i++) {
        co_memory_reset(&self->ops[i].life);
        co_memory_reset(&self->ops[i].work);
        free(self->ops[i].stored);
    }
    free(self->ops);
    sl_table_fini(&self->op_by_id);
    co_chunks_fini(&self->chunks);
}

const char *co_phase_text(enum co_phase phase)
{
    static const char *const texts[CO_PHASES] = {
        [CO_ENGINE] = "waiting for the engine's registration",
        [CO_KEYS] = "waiting for the keyer",
        [CO_AWAIT] = "waiting for prefill",
        [CO_LEND] = "waiting for decode's node",
        [CO_GREET] = "waiting for swappers to stop a dead coordinator's work",
        [CO_LOOK] = "looking for blocks",
        [CO_PROMOTE] = "waiting for the disk",
        [CO_FETCH] = "waiting for other nodes",
        [CO_PULL] = "waiting for other nodes' blocks",
        [CO_RESERVE] = "waiting for space",
        [CO_COPY] = "waiting for a swapper",
        [CO_LAYERS] = "waiting for the engine's next layer",
        [CO_SETTLE] = "waiting for a fence",
        [CO_ZOMBIE] = "waiting for a fence",
        [CO_COMMIT] = "waiting for the commit",
        [CO_OTHERS] = "waiting for another op's blocks",
    };
    return texts[phase] != NULL ? texts[phase] : "ended";
}

/* ---- table and lists ---- */

struct co_op *co_op_find(const struct coordinator *self, uint64_t id)
{
    return SL_TABLE_FIRST(&self->op_by_id, sl_table_hash(id), struct co_op, node);
}

static void list_add(struct co_op **first, struct co_op **last, struct co_op *op)
{
    op->older = *last;
    op->newer = NULL;
    *(*last != NULL ? &(*last)->newer : first) = op;
    *last = op;
}

static void list_remove(struct co_op **first, struct co_op **last, struct co_op *op)
{
    *(op->older != NULL ? &op->older->newer : first) = op->newer;
    *(op->newer != NULL ? &op->newer->older : last) = op->older;
}

void co_op_enter(struct coordinator *self, struct co_op *op, enum co_phase phase)
{
    op->phase = phase;
    if (op->type->phases[phase].enter != NULL) {
        op->type->phases[phase].enter(self, op);
    }
}

void co_op_become(struct co_op *op, const struct co_type *type)
{
    op->type = type;
    op->slice_count = 0;
    op->slice_total = 0;
}

static const struct co_phase_ops unknown_phases[CO_PHASES] = {
    [CO_ZOMBIE] = {.tick = co_fence_tick},
};

const struct co_type co_unknown_type = {.kind = CO_UNKNOWN, .phases = unknown_phases};

void co_op_recycle(struct coordinator *self, struct co_op *op)
{
    SL_ASSERT(op->phase == CO_DONE);
    list_remove(&self->done_first, &self->done_last, op);
    sl_table_remove(&self->op_by_id, &op->node);
    co_op_enter(self, op, CO_FREE);
    op->newer = self->free_first;
    self->free_first = op;
}

/* Clears a slot; it keeps its bitmaps and its source of memory. */
static void op_clear(struct coordinator *self, struct co_op *op)
{
    struct co_op fresh = {
        .stored = op->stored, .existed = op->existed, .bitmap_bytes = op->bitmap_bytes};
    fresh.life.chunks = &self->chunks;
    fresh.work.chunks = &self->chunks;
    *op = fresh;
}

struct co_op *co_op_new(struct coordinator *self, const struct co_type *type,
                        const struct sl_msg *msg)
{
    if (self->op_active == self->op_max) {
        return NULL;
    }
    if (self->free_first == NULL) {
        co_op_recycle(self, self->done_first);
    }
    struct co_op *op = self->free_first;
    self->free_first = op->newer;
    op_clear(self, op);
    op->type = type;
    op->trace_id = msg->trace_id;
    op->started_ns = self->env->now_ns;
    op->wake_ns = SL_NEVER_NS;
    op->poll_ns = CO_POLL_NS;
    op->id = type->kind == CO_UNKNOWN ? msg->body.op_fenced.target_op : msg->op_id;
    sl_table_add(&self->op_by_id, &op->node, sl_table_hash(op->id));
    list_add(&self->active_first, &self->active_last, op);
    self->op_active++;
    sl_metric_set(self->env->metrics, self->metric.op_active_count, self->op_active);
    return op;
}

void co_wake(struct coordinator *self, struct co_op *op, uint64_t at_ns)
{
    op->wake_ns = at_ns;
    self->env->ops->wake_at(self->env, at_ns);
}

void co_reason(struct co_op *op, const char *format, ...)
{
    if (op->reason[0] != '\0') {
        return;
    }
    va_list list;
    va_start(list, format);
    (void)vsnprintf(op->reason, sizeof(op->reason), format, list);
    va_end(list);
}

/* ---- ending ---- */

struct sl_item_receipt co_receipt_item(uint64_t handover_id, const struct co_receipt *receipt)
{
    return (struct sl_item_receipt){.handover_id = handover_id,
                                    .block_end = receipt->block_end,
                                    .keys_low = receipt->keys.low,
                                    .keys_high = receipt->keys.high,
                                    .node = sl_text_of(receipt->node)};
}

void co_op_answer(struct coordinator *self, struct co_op *op)
{
    bool fenced = op->shares_open == 0 && op->unsettled == 0;
    struct sl_msg reply = {.code = op->code};
    if (op->code != SL_OK) {
        reply.text = sl_text_of(op->reason);
    }
    struct sl_item_receipt receipt;
    if (op->type->kind == CO_STORE) {
        reply.body.store_reply = (struct sl_body_store_reply){
            .block_count = op->block_count,
            .stored = {.at = op->stored, .length = co_bits_bytes(op->block_count)},
            .existed = {.at = op->existed, .length = co_bits_bytes(op->block_count)},
            .fenced = fenced,
        };
        if (op->receipt.known) {
            receipt = co_receipt_item(op->handover_id, &op->receipt);
            reply.body.store_reply.receipt.at = &receipt;
            reply.body.store_reply.receipt.count = 1;
        }
    } else {
        reply.body.load_reply = (struct sl_body_load_reply){
            .block_count = op->at,
            .from_memory = op->from_memory,
            .from_disk = op->from_disk,
            .from_remote = op->from_remote,
            .bytes = op->bytes,
            .fenced = fenced,
            .not_awaited = op->wait.left,
        };
    }
    sl_reply_route_send(self->env, &op->back, &reply);
}

/* The op's workers that may still work for an earlier coordinator. */
static co_workers ungreeted(const struct coordinator *self, const struct co_op *op)
{
    uint32_t world = op->engine != NULL && op->engine->state == CO_ENGINE_KNOWN ? op->engine->world
                                                                                : CO_RANKS_MAX;
    return self->ungreeted & (co_worker_bit(CO_TRANSPORTER) | (co_worker_bit(world) - 1));
}

void co_op_end(struct coordinator *self, struct co_op *op, sl_err code)
{
    SL_ASSERT(!op->answered);
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        code = (*at)->ending != NULL ? (*at)->ending(self, op, code) : code;
    }
    co_call_forget(self, &op->call_seq);
    co_workers fencing = op->phase == CO_SETTLE ? op->unsettled : 0;
    /* An earlier coordinator may have begun with this request. */
    op->unsettled |= ungreeted(self, op);
    op->unsettled |= op->direct.device_in_use ? co_worker_bit(CO_TRANSPORTER) : 0;
    op->answered = true;
    op->code = code;
    if (code != SL_OK) {
        co_reason(op, "%s", sl_err_text(code));
    }
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        if ((*at)->ended != NULL) {
            (*at)->ended(self, op);
        }
    }
    if (!op->client_gone) {
        co_op_answer(self, op);
    }
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        if ((*at)->answered != NULL) {
            (*at)->answered(self, op);
        }
    }
    co_workers workers = op->unsettled;
    for (uint32_t i = 0; i < CO_WORKERS_MAX; i++) {
        workers |= op->shares[i].call_seq != 0 ? co_worker_bit(i) : 0;
    }
    if (workers == 0) {
        co_op_done(self, op);
        return;
    }
    co_count(self, self->metric.zombie_count, 1);
    co_op_enter(self, op, CO_ZOMBIE);
    if ((workers & ~fencing) != 0) { /* otherwise they are in flight already */
        co_fence_start(self, op, workers);
    }
}

void co_op_done(struct coordinator *self, struct co_op *op)
{
    if (op->type->done != NULL) {
        op->type->done(self, op);
    }
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        if ((*at)->done != NULL) {
            (*at)->done(self, op);
        }
    }
    co_op_enter(self, op, CO_DONE);
    struct sl_msg fenced = {.body.op_fenced_reply.fenced = true};
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        sl_reply_route_send(self->env, &op->waiters[i].back, &fenced);
    }
    op->waiter_count = 0;
    op->waiters = NULL;
    co_engine_release(op);
    co_memory_reset(&op->work);
    co_memory_reset(&op->life);
    op->blocks = NULL;
    op->parts = NULL;
    op->part_keys = NULL;
    op->slice = NULL;
    list_remove(&self->active_first, &self->active_last, op);
    list_add(&self->done_first, &self->done_last, op);
    self->op_active--;
    sl_metric_set(self->env->metrics, self->metric.op_active_count, self->op_active);
    if (self->draining && self->op_active == 0) {
        self->env->ops->finish(self->env);
    }
    if (op->type->kind == CO_UNKNOWN) {
        co_op_recycle(self, op); /* asked again, it is fenced again */
    }
}

/* ---- waiters ---- */

sl_err co_waiter_add(struct coordinator *self, struct co_op *op, const struct sl_msg *msg,
                     uint32_t layers, uint32_t max, struct sl_error *why)
{
    uint32_t at = 0, alike = 0;
    if (op->waiters == NULL) {
        op->waiters = co_memory_take(&op->life, CO_WAITERS_MAX, sizeof(*op->waiters));
    }
    if (op->waiters == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the op's waiters");
    }
    while (at < op->waiter_count && !sl_reply_route_matches(&op->waiters[at].back, msg)) {
        alike += (op->waiters[at++].layers == 0) == (layers == 0) ? 1u : 0u;
    }
    /* A known waiter keeps its kind: there are at most max of each. */
    bool other = at < op->waiter_count && (op->waiters[at].layers == 0) != (layers == 0);
    if (other || (at == op->waiter_count && alike == max)) {
        return sl_fail(why, SL_ERR_LIMIT, "%u requests wait for %s of this op already", max,
                       layers == 0 ? "the fence" : "layers");
    }
    op->waiter_count = SL_MAX(op->waiter_count, at + 1); /* or it was resent, with less time */
    op->waiters[at].layers = layers;
    sl_reply_route_keep(msg, &op->waiters[at].back);
    self->env->ops->wake_at(self->env, op->waiters[at].back.deadline_ns);
    return SL_OK;
}

static void waiters_expire(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        const struct co_waiter *waiter = &op->waiters[i];
        if (waiter->back.deadline_ns > now_ns) {
            op->waiters[kept++] = *waiter;
            continue;
        }
        struct sl_msg reply = {.code = SL_ERR_TIMEOUT,
                               .text =
                                   sl_text_of(waiter->layers == 0 ? "device blocks are still in use"
                                                                  : "the layer is not loaded yet")};
        sl_reply_route_send(self->env, &waiter->back, &reply);
    }
    op->waiter_count = kept;
}

/* ---- time ---- */

uint64_t co_op_next_ns(const struct co_op *op)
{
    uint64_t next_ns = op->answered ? op->wake_ns : SL_MIN(op->wake_ns, op->deadline_ns);
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        next_ns = SL_MIN(next_ns, op->waiters[i].back.deadline_ns);
    }
    return next_ns;
}

void co_op_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    waiters_expire(self, op, now_ns);
    if (op->type->kind == CO_UNKNOWN && op->waiter_count == 0) {
        /* The op existed only for its waiters; a rank that does not answer must not keep it. */
        co_fence_forget(self, op);
        co_op_done(self, op);
        return;
    }
    if (!op->answered && op->type->kind != CO_UNKNOWN && now_ns >= op->deadline_ns) {
        char ranks[64] = "";
        for (uint32_t rank = 0; rank < CO_RANKS_MAX && ranks[0] == '\0'; rank++) {
            if (op->shares[rank].call_seq != 0) {
                (void)snprintf(ranks, sizeof(ranks), " of rank %u", rank);
            }
        }
        op->reason[0] = '\0';
        co_reason(op, "deadline passed %s%s", co_phase_text(op->phase), ranks);
        co_op_end(self, op, SL_ERR_TIMEOUT);
        return;
    }
    if (now_ns < op->wake_ns) {
        return;
    }
    op->wake_ns = SL_NEVER_NS;
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        if (!op->answered && (*at)->turn != NULL && !(*at)->turn(self, op)) {
            return;
        }
    }
    if (op->type->phases[op->phase].tick != NULL) {
        op->type->phases[op->phase].tick(self, op);
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
                               co_op_cookie(self, op, CO_CALL_OP, 0), &op->call_seq);
    if (err != SL_OK) {
        co_reason(op, "%s to %s: %s", sl_msg_name(msg->type), to, sl_err_text(err));
        co_op_end(self, op, err);
    }
    return err == SL_OK;
}

/* ---- from registration to keys ---- */

/* Runs the features after a phase. False: the op was ended. */
static bool op_passed(struct coordinator *self, struct co_op *op)
{
    bool goes_on = true;
    for (const struct co_feature *const *at = self->features; *at != NULL; at++) {
        goes_on = goes_on && ((*at)->phase == NULL || (*at)->phase(self, op));
    }
    return goes_on;
}

/* The numbers of the engine's blocks and pools are known now. False: the op was ended. */
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
    if (op_passed(self, op)) {
        co_op_enter(self, op, CO_KEYS);
    }
}

static void op_keyed(struct coordinator *self, struct co_op *op, uint32_t count)
{
    co_trace(self, op, "keys known", op->keyed ? "" : "keyer", count);
    if (op_passed(self, op)) {
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
        co_reason(op, "keys: %s", co_why(reply));
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
            break; /* no key for an incomplete last block, or more blocks than tokens */
        }
        struct sl_text key = keys->at[number];
        char *kept =
            key.length <= block_key_max ? co_memory_keep(&op->life, key.at, key.length) : NULL;
        if (kept == NULL) {
            co_reason(op, "key of block %" PRIu64 " has %" PRIu64 " bytes", number, key.length);
            co_op_end(self, op, key.length > block_key_max ? SL_ERR_INVALID : SL_ERR_NO_MEMORY);
            return;
        }
        op->blocks[i].key = (struct sl_key){.at = kept, .length = (uint32_t)key.length};
    }
    op_keyed(self, op, (uint32_t)keys->count);
}

void co_op_go(struct coordinator *self, struct co_op *op)
{
    co_greet_look(self);
    if (ungreeted(self, op) != 0) {
        co_op_enter(self, op, CO_GREET);
        co_wake(self, op, self->env->now_ns + CO_POLL_NS);
    } else {
        op->type->go(self, op);
    }
}
