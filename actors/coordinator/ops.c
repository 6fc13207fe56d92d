/* actors/coordinator/ops.c - the table of ops: how they change, end, and are remembered. */
#include "actors/coordinator/internal.h"
#include "actors/coordinator/sessions.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Frames carry more than keys; what a part takes in a RESERVE or BRING, with the longest common
 * keys. */
#define PART_MESSAGE_BYTES 256u

sl_err co_ops_init(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    uint64_t memory = sl_config_u64(config, SL_SET_memory);
    uint64_t pins = sl_config_u64(config, SL_SET_client_pins_max);
    uint64_t frame_parts = sl_config_u64(config, SL_SET_message_bytes_max) / PART_MESSAGE_BYTES;
    uint64_t reservations = sl_config_u64(config, SL_SET_reservations_max);
    /* A load leaves room for others: in pins, and in the memory that its own promotions need. */
    self->load_bytes_max = memory / 8;
    self->load_parts_max = (uint32_t)SL_MIN(SL_MIN(pins / 4, frame_parts), CO_SLICE_PARTS_MAX);
    self->store_bytes_max = memory / 4;
    self->store_parts_max =
        (uint32_t)SL_MIN(SL_MIN(reservations / 4, frame_parts), CO_SLICE_PARTS_MAX);

    /* A chunk's hash is 8 bytes of an answer. */
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
    switch (phase) {
    case CO_ENGINE:
        return "waiting for the engine's registration";
    case CO_KEYS:
        return "waiting for the keyer";
    case CO_AWAIT:
        return "waiting for prefill";
    case CO_OPEN:
        return "waiting for a ticket";
    case CO_CLOSE:
        return "waiting for the end of a ticket";
    case CO_PUSH:
        return "waiting for decode's node";
    case CO_GREET:
        return "waiting for swappers to leave a dead coordinator's work";
    case CO_LOOK:
        return "looking for blocks";
    case CO_PROMOTE:
        return "waiting for the disk";
    case CO_FETCH:
        return "waiting for other nodes";
    case CO_PULL:
        return "waiting for other nodes' blocks";
    case CO_RESERVE:
        return "waiting for room";
    case CO_COPY:
        return "waiting for a swapper";
    case CO_LAYERS:
        return "waiting for the engine's next layer";
    case CO_SETTLE:
    case CO_ZOMBIE:
        return "waiting for a fence";
    case CO_COMMIT:
        return "waiting for the commit";
    case CO_OTHERS:
        return "waiting for another op's blocks";
    case CO_FREE:
    case CO_DONE:
    case CO_PHASES:
        break;
    }
    return "ended";
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

/* Empties a slot; its bitmaps and the source of its memory stay. */
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

/* ---- reasons ---- */

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

/* ---- slices ---- */

uint32_t co_part_key_write(const struct co_engine *engine, struct sl_key block,
                           const struct co_cut *cut, char *out)
{
    char *at = out;
    size_t model_length = strlen(engine->model);
    memcpy(at, engine->model, model_length);
    at += model_length;
    *at++ = '/';
    memcpy(at, block.at, block.length);
    at += block.length;
    *at++ = '/';
    if (cut->part >= 10) {
        *at++ = (char)('0' + cut->part / 10);
    }
    *at++ = (char)('0' + cut->part % 10);
    *at++ = '/';
    size_t pool_length = strlen(engine->pool_names[cut->pool]);
    memcpy(at, engine->pool_names[cut->pool], pool_length + 1);
    return (uint32_t)(at - out + (ptrdiff_t)pool_length);
}

size_t co_part_key_room(const struct co_engine *engine, struct sl_key block)
{
    return strlen(engine->model) + block.length + sizeof("//63/") + sizeof(engine->pool_names[0]);
}

struct sl_key co_part_key(struct co_memory *memory, const struct co_engine *engine,
                          struct sl_key block, const struct co_cut *cut)
{
    char *text = co_memory_take(memory, co_part_key_room(engine, block), 1);
    return (struct sl_key){
        .at = text, .length = text != NULL ? co_part_key_write(engine, block, cut, text) : 0};
}

uint64_t co_block_hash(const struct co_engine *engine, const struct sl_key *key)
{
    char text[SL_KEY_BYTES_MAX];
    size_t model_length = strlen(engine->model);
    if (model_length + 1 + key->length > sizeof(text)) {
        return 0;
    }
    memcpy(text, engine->model, model_length);
    text[model_length] = '/';
    memcpy(text + model_length + 1, key->at, key->length);
    return sl_key_hash(text, model_length + 1 + key->length);
}

/* Of the block before this one of the op; 0: it has none, or it is not known. */
static uint64_t parent_hash(const struct co_op *op, uint32_t block)
{
    if (block == 0) {
        return op->before_hash;
    }
    const struct sl_key *before = &op->blocks[block - 1].key;
    return before->at != NULL ? co_block_hash(op->engine, before) : 0;
}

struct sl_item_group co_group_of(const struct coordinator *self, const struct co_op *op, uint32_t i,
                                 uint32_t stored_count)
{
    const struct co_engine *engine = op->engine;
    uint32_t block = op->slice[i];
    bool tail = co_handover_is_tail(op, block);
    /* MODEL/BLOCK is what its parts' keys begin with. */
    const struct sl_key *part = &op->part_keys[i * engine->part_count];
    return (struct sl_item_group){
        .key = {.at = part->at, .length = strlen(engine->model) + 1 + op->blocks[block].key.length},
        .part_count = engine->part_count,
        .parent_hash = parent_hash(op, block),
        .stored_count = stored_count,
        .cut = block + 1 == op->block_count,
        .hint = op->said.session,
        .priority = op->said.priority,
        .keep_ns = op->said.keep_ns,
        .transient_ns = tail ? sl_config_u64(self->env->config, SL_SET_handover_partial_ttl) : 0,
    };
}

bool co_slice_make(struct coordinator *self, struct co_op *op, uint32_t count)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = count * engine->part_count;
    op->slice_count = count;
    op->slice_total = count;
    op->parts = co_memory_take(&op->work, part_total, sizeof(*op->parts));
    op->part_keys = co_memory_take(&op->work, part_total, sizeof(*op->part_keys));
    bool fits = op->parts != NULL && op->part_keys != NULL;
    for (uint32_t i = 0; fits && i < part_total; i++) {
        struct sl_key block = op->blocks[op->slice[i / engine->part_count]].key;
        op->part_keys[i] = co_part_key(&op->work, engine, block, co_cut_of(op, i));
        fits = op->part_keys[i].at != NULL;
    }
    if (!fits) {
        op->slice_count = 0;
        op->slice_total = 0;
        co_reason(op, "no memory for %u parts", part_total);
        co_op_end(self, op, SL_ERR_NO_MEMORY);
    }
    return fits;
}

uint32_t co_part_writer(const struct co_op *op, uint32_t i)
{
    const struct co_cut *cut = co_cut_of(op, i);
    uint32_t block = op->first_block + op->slice[i / op->engine->part_count];
    uint64_t owners = cut->owners;
    SL_ASSERT(owners != 0);
    for (uint32_t turn = (block + cut->part) % (uint32_t)__builtin_popcountll(owners); turn > 0;
         turn--) {
        owners &= owners - 1;
    }
    return (uint32_t)__builtin_ctzll(owners);
}

/* ---- ending ---- */

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
            receipt = (struct sl_item_receipt){.handover_id = op->handover_id,
                                               .block_end = op->receipt.block_end,
                                               .keys_low = op->receipt.keys.low,
                                               .keys_high = op->receipt.keys.high,
                                               .node = sl_text_of(op->receipt.node)};
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
    sl_return_reply(self->env, &op->back, &reply);
}

/* Blocks of a load that are nowhere, and by which its prefix would be longer with unlimited memory:
 * those that were here once, up to the first that was not. */
static uint32_t seen_count(struct coordinator *self, const struct co_op *op)
{
    uint32_t at = op->at;
    if (op->type->kind == CO_STORE || op->code != SL_OK || op->engine == NULL ||
        at >= op->block_count || op->blocks == NULL || op->blocks[at].key.length == 0) {
        return 0;
    }
    sl_seen_follow(self->env->paths->shm_dir, &self->seen);
    while (at < op->block_count && op->blocks[at].key.length > 0 && /* the rest has no keys */
           sl_seen_has(self->seen, co_block_hash(op->engine, &op->blocks[at].key))) {
        at++;
    }
    return at - op->at;
}

/* The same by model. */
static void model_account(struct coordinator *self, const struct co_op *op, uint32_t stored,
                          uint32_t existed, uint32_t seen)
{
    bool store = op->type->kind == CO_STORE;
    uint32_t rest = store ? op->block_count - stored - existed : op->block_count - op->at;
    const struct {
        enum sl_label_count count;
        uint64_t amount;
    } stores[] = {{SL_LABEL_STORED, stored},
                  {SL_LABEL_EXISTED, existed},
                  {SL_LABEL_REFUSED, rest},
                  {SL_LABEL_STORED_BYTES, op->bytes}},
      loads[] = {{SL_LABEL_MEMORY, op->from_memory},
                 {SL_LABEL_DISK, op->from_disk},
                 {SL_LABEL_REMOTE, op->from_remote},
                 {op->code == SL_OK ? SL_LABEL_NONE : SL_LABEL_FAILED, rest},
                 {SL_LABEL_SEEN, seen},
                 {SL_LABEL_BYTES, op->bytes}},
      *counts = store ? stores : loads;
    sl_labels_follow(self->env->paths->shm_dir, &self->labels);
    bool known = op->engine != NULL && op->engine->model[0] != '\0';
    uint32_t label = known ? sl_label_find(self->labels, SL_LABEL_MODEL, op->engine->model, "",
                                           &op->engine->model_place)
                           : SL_LABEL_MODEL;
    for (size_t i = 0; i < (store ? SL_COUNT(stores) : SL_COUNT(loads)); i++) {
        sl_label_add(self->labels, label, 0, counts[i].count, counts[i].amount);
    }
}

void co_refused_account(struct coordinator *self, bool store, uint32_t block_count)
{
    if (store) {
        sl_metric_add(self->env->metrics, self->metric.block_refused_count, block_count);
    } else {
        sl_metric_add(self->env->metrics, self->metric.block_failed_count, block_count);
    }
    sl_labels_follow(self->env->paths->shm_dir, &self->labels);
    sl_label_add(self->labels, SL_LABEL_MODEL, 0, store ? SL_LABEL_REFUSED : SL_LABEL_FAILED,
                 block_count);
}

/* Counters, and one line that says why blocks are missing. */
static void op_account(struct coordinator *self, struct co_op *op)
{
    struct sl_metrics *page = self->env->metrics;
    const struct co_metrics *metric = &self->metric;
    uint64_t took_ns = self->env->now_ns - op->started_ns;
    uint32_t stored = 0, existed = 0;
    if (op->type->kind == CO_STORE) {
        stored = co_bits_count(op->stored, op->block_count);
        existed = co_bits_count(op->existed, op->block_count);
        sl_histogram_add(page, metric->store_ns, took_ns);
        sl_metric_add(page, metric->block_stored_count, stored);
        sl_metric_add(page, metric->block_existed_count, existed);
        sl_metric_add(page, metric->block_refused_count, op->block_count - stored - existed);
        sl_metric_add(page, metric->stored_bytes, op->bytes);
    } else {
        sl_histogram_add(page, metric->load_ns, took_ns);
        sl_metric_add(page, metric->block_from_memory_count, op->from_memory);
        sl_metric_add(page, metric->block_from_disk_count, op->from_disk);
        sl_metric_add(page, metric->block_from_remote_count, op->from_remote);
        sl_metric_add(page,
                      op->code == SL_OK ? metric->block_missed_count : metric->block_failed_count,
                      op->block_count - op->at);
        sl_metric_add(page, metric->loaded_bytes, op->bytes);
    }
    uint32_t seen = seen_count(self, op);
    sl_metric_add(page, metric->block_seen_count, seen);
    model_account(self, op, stored, existed, seen);
    if (op->code != SL_OK) {
        sl_metric_add(page, metric->op_failed_count, 1);
        sl_metric_add(page, metric->op_timeout_count, op->code == SL_ERR_TIMEOUT ? 1 : 0);
        sl_metric_add(page, metric->op_cancelled_count, op->code == SL_ERR_CANCELLED ? 1 : 0);
    }
    enum sl_log_level level = op->code == SL_OK ? SL_LOG_DEBUG : SL_LOG_WARN;
    level = op->code == SL_ERR_CANCELLED || op->code == SL_ERR_PEER_DIED ? SL_LOG_INFO : level;
    bool told = self->logs_loads && op->type->kind != CO_STORE && level == SL_LOG_DEBUG;
    level = told ? SL_LOG_INFO : level;
    const char *request = op->origin.request != NULL ? op->origin.request : "";
    const char *of = request[0] != '\0' ? ", request " : "";
    if (op->type->kind == CO_STORE) {
        sl_log_write(self->env->log, level, op->trace_id,
                     "store of %u blocks for %s%s%s: %u stored, %u existed, %" PRIu64 " us%s%s",
                     op->block_count, op->back.to, of, request, stored, existed,
                     took_ns / SL_NS_PER_US, op->reason[0] != '\0' ? ": " : "", op->reason);
    } else {
        sl_log_write(
            self->env->log, level, op->trace_id,
            "load of %u blocks for %s%s%s: %u loaded (%u memory, %u disk, %u remote), %" PRIu64
            " us%s%s",
            op->block_count, op->back.to, of, request, op->at, op->from_memory, op->from_disk,
            op->from_remote, took_ns / SL_NS_PER_US, op->reason[0] != '\0' ? ": " : "", op->reason);
    }
    sl_trace_event(page, self->env->now_ns, op->trace_id,
                   op->type->kind == CO_STORE ? "store ended" : "load ended", sl_err_name(op->code),
                   op->type->kind == CO_STORE ? stored + existed : op->at);
}

void co_op_end(struct coordinator *self, struct co_op *op, sl_err code)
{
    SL_ASSERT(!op->answered);
    code = co_by_layers(op) ? co_layers_ended(op, code) : code;
    if (op->handover != NULL) {
        code = co_handover_ended(self, op, code);
    }
    if (op->call_seq != 0) {
        sl_calls_forget(self->calls, op->call_seq);
        op->call_seq = 0;
    }
    co_batches_forget(self, op);
    if (op->type->failed != NULL && code != SL_OK) {
        op->type->failed(self, op, code);
    }
    /* The request may be one that a coordinator before us had begun with. */
    bool fencing = op->phase == CO_SETTLE;
    op->unsettled |= co_op_ungreeted(self, op);
    op->unsettled |= op->push.lent ? co_worker_bit(CO_TRANSPORTER) : 0;
    op->answered = true;
    op->code = code;
    if (code != SL_OK) {
        co_reason(op, "%s", sl_err_text(code));
    }
    op_account(self, op);
    co_story_note(self, op);
    if (!op->client_gone) {
        co_op_answer(self, op);
    }
    if (code == SL_OK) {
        co_sessions_note(self, op);
    }
    if (co_by_layers(op)) {
        co_layers_tell(self, op);
    }
    co_workers workers = op->unsettled;
    for (uint32_t i = 0; i < CO_WORKERS_MAX; i++) {
        workers |= op->shares[i].call_seq != 0 ? co_worker_bit(i) : 0;
    }
    if (workers == 0) {
        co_op_done(self, op);
        return;
    }
    sl_metric_add(self->env->metrics, self->metric.zombie_count, 1);
    co_op_enter(self, op, CO_ZOMBIE);
    if (!fencing) { /* else they are in flight already */
        co_fence_start(self, op, workers);
    }
}

void co_op_done(struct coordinator *self, struct co_op *op)
{
    if (op->type->done != NULL) {
        op->type->done(self, op);
    }
    if (op->handover != NULL) {
        co_handover_done(self, op);
    }
    co_op_enter(self, op, CO_DONE);
    co_waiters_answer(self, op, SL_OK, true);
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

/* ---- time ---- */

static void waiters_expire(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        if (op->waiters[i].deadline_ns > now_ns) {
            op->waiters[kept++] = op->waiters[i];
            continue;
        }
        struct sl_msg reply = {.code = SL_ERR_TIMEOUT,
                               .text = sl_text_of("device blocks are still lent")};
        sl_return_reply(self->env, &op->waiters[i], &reply);
    }
    op->waiter_count = kept;
}

void co_op_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
    waiters_expire(self, op, now_ns);
    co_layers_expire(self, op, now_ns);
    if (op->type->kind == CO_UNKNOWN && op->waiter_count == 0) {
        /* It was only there for those who asked; a rank that is away must not keep it. */
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
    if (op->handover != NULL && !op->answered && co_handover_failed(self, op)) {
        return;
    }
    if (op->type->phases[op->phase].tick != NULL) {
        op->type->phases[op->phase].tick(self, op, now_ns);
    }
}
