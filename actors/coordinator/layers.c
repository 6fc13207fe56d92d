/* actors/coordinator/layers.c - stores and loads by layers: computed layers are copied out while
 * the engine computes the next, and loaded layers are used while the next arrive.
 *
 * A part has its layers in the order of the forward pass, so a layer is a range of every part,
 * right after the layers before it. A store reserves all extents first. Each COPY takes all layers
 * that became ready meanwhile, one COPY a rank. A direct store lends layers while swappers look at
 * the next. A load fixes its blocks before it reports a layer; from then on it brings all or
 * fails. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A load copies the first layer by itself, then this many bytes of a rank, doubling each time. A
 * round trip to the swapper takes half a millisecond with 256 blocks, in which a GPU moves 25 MiB:
 * small batches throughout would halve the speed. While the engine computes with some
 * layers, twice as many arrive. */
#define BATCH_BYTES     (8 * SL_MIB)
#define BATCH_BYTES_MAX (128 * SL_MIB)

/* ---- ranges ---- */

static uint32_t pool_end(const struct co_op *op, uint32_t pool, uint32_t layers)
{
    return layers == 0 ? 0 : op->layers.ends[(layers - 1) * op->engine->pool_count + pool];
}

bool co_layers_between(const struct co_op *op, const struct co_cut *cut, uint32_t from,
                       uint32_t end, struct co_range *out)
{
    const uint64_t *offsets = &op->engine->layer_offsets[cut->layer_at];
    uint32_t first = pool_end(op, cut->pool, from), behind = pool_end(op, cut->pool, end);
    *out = (struct co_range){.first_layer = first,
                             .layer_end = behind,
                             .from = offsets[first],
                             .end = offsets[behind],
                             .length_bytes = cut->length_bytes};
    return first < behind;
}

bool co_layers_partial(const struct co_op *op)
{
    return co_by_layers(op) && (op->layers.done > 0 || op->layers.asked < op->layers.count);
}

bool co_layers_chunked(const struct co_op *op)
{
    return co_layers_partial(op) && op->type->kind == CO_STORE && !op->type->direct;
}

bool co_layers_range(const struct co_op *op, const struct co_cut *cut, struct co_range *out)
{
    if (!co_layers_partial(op)) {
        *out = (struct co_range){.end = cut->length_bytes, .length_bytes = cut->length_bytes};
        return true;
    }
    return co_layers_between(op, cut, op->layers.done, op->layers.asked, out);
}

/* ---- digests of parts that are copied in ranges ---- */

static struct sl_digest_span range_span(const struct co_range *range)
{
    return sl_digest_span_of(range->from, range->end, range->length_bytes);
}

uint64_t co_layers_hash_bytes(const struct co_range *range)
{
    return range_span(range).count * sizeof(uint64_t);
}

void co_layers_hashes(struct co_part *part, const struct co_range *range, const uint8_t *hashes)
{
    struct sl_digest_span span = range_span(range);
    if (span.count > 0) {
        memcpy(&part->chunks[span.first], hashes, span.count * sizeof(uint64_t));
    }
}

static uint64_t part_chunks(const struct co_engine *engine, uint32_t part)
{
    uint64_t bytes = engine->cuts[part % engine->part_count].length_bytes;
    return sl_digest_span_of(0, bytes, bytes).count;
}

static bool chunks_make(struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    uint64_t count = 0;
    for (uint32_t i = 0; i < part_total; i++) {
        count += part_chunks(op->engine, i);
    }
    uint64_t *chunks = co_memory_take(&op->work, count, sizeof(*chunks));
    for (uint32_t i = 0; chunks != NULL && i < part_total; i++) {
        op->parts[i].chunks = chunks;
        chunks += part_chunks(op->engine, i);
    }
    return chunks != NULL;
}

/* ---- the request ---- */

static sl_err layers_begin(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    (void)self;
    struct co_layers *layers = &op->layers;
    const struct sl_u64s *ends =
        op->type->kind == CO_STORE ? &msg->body.store.layer_ends : &msg->body.load.layer_ends;
    layers->ends = co_memory_take(&op->life, ends->count, sizeof(*layers->ends));
    if (layers->ends == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < ends->count; i++) {
        layers->ends[i] = (uint32_t)SL_MIN(ends->at[i], UINT64_C(1) << 31);
    }
    layers->entry_count = ends->count;
    layers->count = ends->count > 0 ? 1 : 0; /* replaced when the engine is known */
    if (op->type->kind == CO_STORE) {
        layers->ready = (uint32_t)msg->body.store.layers_ready;
    } else if (layers->count != 0 && msg->body.load.layers_in > 0) {
        /* An earlier coordinator has reported these layers: this load must have the same blocks or
         * fail. */
        layers->in = (uint32_t)msg->body.load.layers_in;
        layers->done = layers->asked = layers->in; /* reported layers are not written again */
        layers->block_count = (uint32_t)msg->body.load.layer_blocks;
        op->block_count = SL_MIN(op->block_count, layers->block_count);
    }
    return SL_OK;
}

/* Ends must grow in at least one pool with each layer, shrink in none, and cover all layers. */
static bool ends_fit(const struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    const struct co_layers *layers = &op->layers;
    for (uint32_t layer = 1; layer <= layers->count; layer++) {
        bool more = false;
        for (uint32_t pool = 0; pool < engine->pool_count; pool++) {
            uint32_t before = pool_end(op, pool, layer - 1), end = pool_end(op, pool, layer);
            if (end < before) {
                return false;
            }
            more |= end > before;
        }
        if (!more) {
            return false;
        }
    }
    for (uint32_t k = 0; k < engine->part_count; k++) {
        const struct co_cut *cut = &engine->cuts[k];
        if (pool_end(op, cut->pool, layers->count) != cut->layer_count) {
            return false;
        }
    }
    return true;
}

/* ---- reports of single ranks ---- */

static bool is_member(const struct co_op *op, uint64_t rank, uint64_t member)
{
    return rank < op->engine->world && op->engine->members[rank] == member;
}

/* Checks reports that came before the engine was known: those of other processes do not count. */
static void reports_check(struct co_op *op)
{
    for (uint32_t rank = 0; op->layers.rank_reports != NULL && rank < CO_RANKS_MAX; rank++) {
        struct co_layer_report *word = &op->layers.rank_reports[rank];
        word->layers =
            is_member(op, rank, word->member) ? SL_MIN(word->layers, op->layers.count) : 0;
    }
}

/* Layers that all ranks have reported. */
static uint32_t reports_ready(const struct co_op *op)
{
    uint32_t ready = op->layers.rank_reports == NULL || !op->layers.checked ? 0 : UINT32_MAX;
    for (uint32_t rank = 0; ready > 0 && rank < op->engine->world; rank++) {
        ready = SL_MIN(ready, op->layers.rank_reports[rank].layers);
    }
    return ready;
}

static sl_err report_keep(struct co_op *op, const struct sl_body_layers *body, struct sl_error *why)
{
    struct co_layers *layers = &op->layers;
    if (layers->rank_reports == NULL) {
        layers->rank_reports =
            co_memory_take(&op->life, CO_RANKS_MAX, sizeof(*layers->rank_reports));
    }
    if (layers->rank_reports == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for reports of ranks");
    }
    struct co_layer_report *word = &layers->rank_reports[body->rank];
    uint32_t before = word->member == body->member ? word->layers : 0;
    *word = (struct co_layer_report){.member = body->member,
                                     .layers = SL_MAX(before, (uint32_t)body->rank_layers)};
    return SL_OK;
}

static bool layers_check(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    uint32_t pool_count = op->engine->pool_count;
    if (!co_by_layers(op) || op->phase != CO_ENGINE) {
        return true;
    }
    layers->count = (uint32_t)(layers->entry_count / pool_count);
    if (layers->count * (uint64_t)pool_count != layers->entry_count ||
        layers->count > CO_LAYERS_MAX || !ends_fit(op)) {
        layers->count = 1;
        layers->in = 0;
        co_reason(op, "layer_ends: %" PRIu64 " entries do not fit the layers of %u pools",
                  layers->entry_count, pool_count);
        co_op_end(self, op, SL_ERR_INVALID);
        return false;
    }
    layers->ready = SL_MIN(layers->ready, layers->count);
    layers->in = SL_MIN(layers->in, layers->count);
    layers->done = layers->asked = layers->in;
    layers->checked = true;
    reports_check(op);
    layers->ready = SL_MAX(layers->ready, reports_ready(op));
    co_count(self, self->metric.layered_count, 1);
    return true;
}

static void layers_are_ready(struct coordinator *self, struct co_op *op, uint32_t ready)
{
    struct co_layers *layers = &op->layers;
    ready = layers->checked ? SL_MIN(ready, layers->count) : ready;
    if (ready <= layers->ready) {
        return;
    }
    layers->ready = ready;
    if (op->phase == CO_LAYERS) {
        co_op_enter(self, op, CO_LAYERS); /* continues with what is ready now */
    }
}

static void layers_again(struct coordinator *self, struct co_op *op, const struct sl_msg *msg)
{
    if (co_by_layers(op) && op->type->kind == CO_STORE) {
        layers_are_ready(self, op, (uint32_t)msg->body.store.layers_ready);
    }
}

/* ---- store ---- */

bool co_layers_any(const struct co_op *op, enum co_part_state state)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    for (uint32_t i = 0; i < part_total; i++) {
        if (op->parts[i].state == (uint8_t)state) {
            return true;
        }
    }
    return false;
}

void co_layers_begin(struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    layers->done = layers->asked = 0;
}

void co_layers_begin_store(struct coordinator *self, struct co_op *op)
{
    co_layers_begin(op);
    if (chunks_make(op)) {
        co_op_enter(self, op, CO_LAYERS);
    } else {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
    }
}

/* All layers are copied: completes the digests of parts that were copied in ranges. */
void co_layers_finish(struct coordinator *self, struct co_op *op)
{
    bool store = op->type->kind == CO_STORE;
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_part *part = &op->parts[i];
        if (part->state == (store ? CO_PART_GRANTED : CO_PART_PINNED)) {
            part->state = CO_PART_COPIED;
            part->digest = store ? sl_digest_of_chunks(part->chunks, part_chunks(op->engine, i))
                                 : part->digest;
        }
    }
    op->type->copied(self, op);
}

void co_layers_copy_ready(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    if (layers->done < layers->ready) {
        layers->asked = layers->ready;
        co_op_enter(self, op, CO_COPY);
    }
}

void co_layers_go_store(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    /* All layers are copied, or no part is left to copy. */
    if (layers->done == layers->count || !co_layers_any(op, CO_PART_GRANTED)) {
        co_layers_finish(self, op);
    } else {
        co_layers_copy_ready(self, op);
    }
}

/* ---- load ---- */

/* End of the layers in the next COPY. */
static uint32_t load_end(struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    const struct co_engine *engine = op->engine;
    uint32_t end = layers->done + 1;
    if (layers->done == 0) {
        return end;
    }
    layers->batch_bytes = SL_MAX(SL_MIN(2 * layers->batch_bytes, BATCH_BYTES_MAX), BATCH_BYTES);
    while (end < layers->ready) {
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < engine->part_count; k++) { /* ranks have about the same */
            struct co_range range;
            (void)co_layers_between(op, &engine->cuts[k], layers->done, end + 1, &range);
            bytes += (engine->cuts[k].owners & 1) * (range.end - range.from) * op->slice_count;
        }
        if (bytes > layers->batch_bytes) {
            break;
        }
        end++;
    }
    return end;
}

static void load_go(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    if (layers->done == layers->count) {
        co_layers_finish(self, op);
    } else { /* only the last slice is reported by layers */
        layers->asked = layers->last ? load_end(op) : layers->ready;
        co_op_enter(self, op, CO_COPY);
    }
}

void co_layers_begin_load(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    uint32_t end = op->at + op->slice_count;
    layers->done = layers->asked = layers->in;
    layers->ready = layers->count;
    layers->last = op->last || end == op->block_count || op->blocks[end].key.at == NULL;
    if (layers->last && layers->in > 0 && end != layers->block_count) {
        co_reason(op, "%u blocks exist, but %u layers of %u blocks were reported", end, layers->in,
                  layers->block_count);
        co_op_end(self, op, SL_ERR_INCOMPLETE);
        return;
    }
    load_go(self, op);
}

/* ---- direct load ---- */

void co_layers_arrived(struct coordinator *self, struct co_op *op,
                       const struct sl_body_landed *body)
{
    struct co_layers *layers = &op->layers;
    uint32_t part_total = op->slice_count * op->engine->part_count;
    if (op->parts == NULL) {
        return;
    }
    for (uint64_t i = 0; i < body->pieces.count; i++) {
        const struct sl_item_arrived *piece = &body->pieces.at[i];
        struct co_part *part = piece->part < part_total ? &op->parts[piece->part] : NULL;
        if (part != NULL && piece->part_offset_bytes <= part->arrived_bytes) {
            part->arrived_bytes =
                SL_MAX(part->arrived_bytes, piece->part_offset_bytes + piece->length_bytes);
        }
    }
    uint32_t ready = layers->ready;
    for (bool there = true; there && ready < layers->count; ready += there ? 1u : 0u) {
        for (uint32_t i = 0; there && i < part_total; i++) {
            struct co_range range;
            (void)co_layers_between(op, co_cut_of(op, i), ready, ready + 1, &range);
            there = op->parts[i].arrived_bytes >= range.end;
        }
    }
    if (ready > layers->ready) {
        layers->ready = ready;
        co_trace(self, op, "layers arrived", "transporter", ready);
        co_wake(self, op, self->env->now_ns);
    }
}

/* ---- progress, and reports of it ---- */

static struct sl_msg wait_answer(const struct co_op *op)
{
    const struct co_layers *layers = &op->layers;
    struct sl_msg reply = {.code = op->answered ? op->code : SL_OK};
    if (reply.code != SL_OK) {
        reply.text = sl_text_of(op->reason);
        return reply;
    }
    reply.body.layers_reply.layers = op->answered ? layers->count : layers->in;
    reply.body.layers_reply.block_count = op->answered ? op->at : layers->block_count;
    return reply;
}

static void waiters_answer(struct coordinator *self, struct co_op *op)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        const struct co_waiter *waiter = &op->waiters[i];
        if (waiter->layers == 0 || (!op->answered && waiter->layers > op->layers.in)) {
            op->waiters[kept++] = *waiter;
            continue;
        }
        struct sl_msg reply = wait_answer(op);
        sl_reply_route_send(self->env, &waiter->back, &reply);
    }
    op->waiter_count = kept;
}

void co_layers_report(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    layers->in = layers->done;
    layers->block_count = op->at + op->slice_count;
    waiters_answer(self, op);
}

void co_layers_go_load(struct coordinator *self, struct co_op *op)
{
    if (co_layers_any(op, CO_PART_BROKEN)) { /* all or nothing from the first layer on */
        co_reason(op, "a rank did not copy its part");
        co_op_end(self, op, SL_ERR_INCOMPLETE);
        return;
    }
    if (op->layers.last) {
        co_layers_report(self, op);
    }
    load_go(self, op);
}

void co_layers_copied(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    co_count(self, self->metric.layers_copied_count, layers->asked - layers->done);
    layers->done = layers->asked;
    co_op_enter(self, op, CO_LAYERS);
}

/* Reported layers promised a number of blocks: the load must end with it. */
static sl_err layers_ending(struct coordinator *self, struct co_op *op, sl_err code)
{
    (void)self;
    const struct co_layers *layers = &op->layers;
    bool holds = code == SL_OK && op->at == layers->block_count;
    if (!co_by_layers(op) || op->type->kind != CO_LOAD || layers->in == 0 || holds) {
        return code;
    }
    co_reason(op, "%u of %u blocks whose layers were reported exist", op->at, layers->block_count);
    op->at = 0;
    op->from_memory = op->from_disk = op->from_remote = 0;
    op->bytes = 0;
    return code == SL_OK ? SL_ERR_INCOMPLETE : code;
}

/* ---- messages ---- */

/* The op of this kind, by layers, that the message names. A message for a rank names the rank's
 * registration, since the op's client is another process. NULL: see `why`. */
static struct co_op *op_of_message(struct coordinator *self, const struct sl_msg *msg,
                                   const struct sl_body_layers *body, enum co_kind kind,
                                   struct sl_error *why)
{
    struct co_op *op = co_op_find(self, body->target_op);
    bool of_rank = body->layers == 0;
    uint64_t count = of_rank ? body->rank_layers : body->layers;
    if (op == NULL || op->type->kind == CO_UNKNOWN || (!of_rank && !co_op_is_of(op, msg))) {
        (void)sl_fail(why, SL_ERR_NOT_FOUND, "no op %016" PRIx64 " of this client is known",
                      body->target_op);
        return NULL;
    }
    if (!co_by_layers(op) || op->type->kind != kind) {
        (void)sl_fail(why, SL_ERR_INVALID, "op %016" PRIx64 " is not a %s by layers",
                      body->target_op, kind == CO_STORE ? "store" : "load");
        return NULL;
    }
    if (count == 0 || (op->layers.checked && count > op->layers.count)) {
        (void)sl_fail(why, SL_ERR_INVALID, "layers: %" PRIu64 ", op %016" PRIx64 " has %u", count,
                      body->target_op, op->layers.count);
        return NULL;
    }
    if (of_rank && op->layers.checked && !op->answered &&
        !is_member(op, body->rank, body->member)) {
        (void)sl_fail(why, SL_ERR_PERMISSION,
                      "engine %" PRIu64 " is not rank %" PRIu64 " of the engine of op %016" PRIx64,
                      body->member, body->rank, body->target_op);
        return NULL;
    }
    return op;
}

void co_layers_handle(struct coordinator *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    const struct sl_body_layers *body = &msg->body.layers;
    struct co_op *op = op_of_message(self, msg, body, body->wait ? CO_LOAD : CO_STORE, &why);
    uint64_t count = body->layers != 0 ? body->layers : body->rank_layers;
    bool counts = op != NULL && !op->answered;
    sl_err err = op != NULL ? SL_OK : why.code;
    if (counts && body->wait && count > op->layers.in) {
        err = co_waiter_add(self, op, msg, (uint32_t)count, CO_LAYER_WAITERS_MAX, &why);
        if (err == SL_OK) {
            return;
        }
    } else if (counts && !body->wait && body->layers == 0) {
        err = report_keep(op, body, &why);
    }
    struct sl_msg reply = {.code = SL_OK};
    if (err != SL_OK) {
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    reply = body->wait ? wait_answer(op) : reply;
    sl_reply(self->env, msg, &reply);
    if (counts && !body->wait) {
        layers_are_ready(self, op, body->layers != 0 ? (uint32_t)count : reports_ready(op));
    }
}

const struct co_feature co_layers_feature = {.begin = layers_begin,
                                             .again = layers_again,
                                             .phase = layers_check,
                                             .ending = layers_ending,
                                             .answered = waiters_answer};
