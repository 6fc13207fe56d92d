/* actors/coordinator/engines.c - the registrations of engines, as far as ops need them. */
#include "actors/coordinator/internal.h"
#include "ipc/msg/sl_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

sl_err co_engines_init(struct coordinator *self, struct sl_error *why)
{
    self->engine_max = (uint32_t)sl_config_u64(self->env->config, SL_SET_engines_max);
    self->engines = calloc(self->engine_max, sizeof(*self->engines));
    if (self->engines == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu32 " engines",
                       self->engine_max);
    }
    return SL_OK;
}

/* Unfinished ops may still refer to the row. */
static void engine_empty(struct co_engine *engine)
{
    free(engine->cuts);
    free(engine->layer_offsets);
    engine->cuts = NULL;
    engine->layer_offsets = NULL;
    engine->part_count = 0;
}

static void engine_clear(struct co_engine *engine)
{
    engine_empty(engine);
    *engine = (struct co_engine){0};
}

void co_engines_fini(struct coordinator *self)
{
    for (uint32_t i = 0; self->engines != NULL && i < self->engine_max; i++) {
        engine_clear(&self->engines[i]);
    }
    free(self->engines);
}

/* A process may have registered several engines; it is watched once. */
static bool process_is_shared(const struct coordinator *self, const struct co_engine *engine)
{
    for (uint32_t i = 0; i < self->engine_max; i++) {
        const struct co_engine *other = &self->engines[i];
        if (other != engine && other->state == CO_ENGINE_KNOWN && !other->team && !other->stale &&
            sl_proc_id_equal(other->proc, engine->proc)) {
            return true;
        }
    }
    return false;
}

/* The row is no longer found. It is freed when the last of its ops is fenced. */
static void engine_leave(struct coordinator *self, struct co_engine *engine)
{
    if (engine->state == CO_ENGINE_KNOWN && !engine->team && !engine->stale &&
        !process_is_shared(self, engine)) {
        self->env->ops->unwatch(self->env, engine->proc);
    }
    engine->stale = true;
    if (engine->ops == 0) {
        engine_clear(engine);
    }
}

/* A free row, or the one that was idle longest. */
static struct co_engine *engine_room(struct coordinator *self)
{
    struct co_engine *oldest = NULL;
    for (uint32_t i = 0; i < self->engine_max; i++) {
        struct co_engine *engine = &self->engines[i];
        if (engine->state == CO_ENGINE_FREE) {
            return engine;
        }
        if (!engine->asking && engine->ops == 0 &&
            (oldest == NULL || engine->used_ns < oldest->used_ns)) {
            oldest = engine;
        }
    }
    if (oldest != NULL) {
        engine_leave(self, oldest);
    }
    return oldest;
}

/* Skips stale rows: a team that lost a rank is kept only for the ops that use it. */
static struct co_engine *engine_find(struct coordinator *self, uint64_t id)
{
    for (uint32_t i = 0; i < self->engine_max; i++) {
        struct co_engine *engine = &self->engines[i];
        if (engine->state != CO_ENGINE_FREE && engine->id == id && !engine->stale) {
            return engine;
        }
    }
    return NULL;
}

const struct co_engine *co_engine_known(struct coordinator *self, uint64_t id)
{
    const struct co_engine *engine = engine_find(self, id);
    return engine != NULL && engine->state == CO_ENGINE_KNOWN ? engine : NULL;
}

sl_err co_engine_want(struct coordinator *self, uint64_t id, uint64_t trace_id,
                      struct co_engine **out)
{
    struct co_engine *engine = engine_find(self, id);
    if (engine != NULL && (engine->state == CO_ENGINE_KNOWN || engine->asking)) {
        engine->used_ns = self->env->now_ns;
        *out = engine;
        return SL_OK;
    }
    /* After a failed request the row remains while ended ops wait for fences. */
    engine = engine != NULL ? engine : engine_room(self);
    if (engine == NULL) {
        return SL_ERR_LIMIT;
    }
    struct sl_msg get = {.type = SL_MSG_ENGINE_GET, .trace_id = trace_id};
    get.body.engine_get.engine_id = id;
    uint32_t index = (uint32_t)(engine - self->engines);
    sl_err err = co_ask(self, "registrar", &get, co_cookie(CO_CALL_ENGINE, 0, index), NULL);
    if (err != SL_OK) {
        return err;
    }
    *engine = (struct co_engine){.state = CO_ENGINE_ASKED,
                                 .asking = true,
                                 .id = id,
                                 .used_ns = self->env->now_ns,
                                 .ops = engine->ops};
    *out = engine;
    return SL_OK;
}

void co_engine_release(struct co_op *op)
{
    struct co_engine *engine = op->engine;
    op->engine = NULL;
    if (engine == NULL) {
        return;
    }
    SL_ASSERT(engine->ops > 0);
    if (--engine->ops == 0 && engine->stale) {
        engine_clear(engine); /* its process is no longer watched for it */
    }
}

/* Lengths are bounded by the message table: strings fit their buffers. */
static void text_keep(char *to, size_t room, struct sl_text from)
{
    size_t length = SL_MIN((size_t)from.length, room - 1);
    if (length > 0) {
        memcpy(to, from.at, length);
    }
    to[length] = '\0';
}

/* Number of parts of a block in a pool. */
static uint32_t pool_parts(const struct sl_body_engine_get_reply *body, uint64_t pool)
{
    uint64_t count = body->pools.at[pool].part_count;
    return (uint32_t)(count != 0 ? count : body->world);
}

static struct co_cut *cut_find(struct co_engine *engine, uint64_t pool, uint64_t part)
{
    for (uint32_t k = 0; k < engine->part_count; k++) {
        if (engine->cuts[k].pool == pool && engine->cuts[k].part == part) {
            return &engine->cuts[k];
        }
    }
    return NULL;
}

/* Orders parts by number, then by pool, as on disks and in the index. */
static sl_err cuts_make(struct co_engine *engine, const struct sl_body_engine_get_reply *body,
                        struct sl_error *why)
{
    uint32_t most = 0, count = 0;
    for (uint64_t pool = 0; pool < engine->pool_count; pool++) {
        most = SL_MAX(most, pool_parts(body, pool));
        count += pool_parts(body, pool);
    }
    engine->cuts = calloc(count + 1u, sizeof(*engine->cuts));
    if (engine->cuts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u parts", count);
    }
    for (uint32_t part = 0; part < most; part++) {
        for (uint32_t pool = 0; pool < engine->pool_count; pool++) {
            if (part < pool_parts(body, pool)) {
                engine->cuts[engine->part_count++] = (struct co_cut){.pool = pool, .part = part};
            }
        }
    }
    return SL_OK;
}

/* Adds what one rank has of a part. Ranks with the same part have the same layers of it. */
static sl_err cut_row(struct co_engine *engine, const struct sl_body_engine_get_reply *body,
                      const struct sl_layout *layout, const struct sl_layout_row *row,
                      struct sl_error *why)
{
    bool parted = body->pools.at[row->pool].part_count != 0;
    struct co_cut *cut = cut_find(engine, row->pool, parted ? row->part : row->rank);
    const struct sl_layout_layer *layers = &layout->layers[row->first_layer];
    SL_ASSERT(cut != NULL); /* sl_layout_make has checked it */
    bool first = cut->owners == 0;
    if (first) {
        cut->layer_at = row->first_layer + (uint32_t)(row - layout->rows); /* 1 more for each end */
        cut->layer_count = row->layer_count;
        cut->length_bytes = row->length_bytes;
        engine->layer_offsets[cut->layer_at + row->layer_count] = row->length_bytes;
        engine->block_bytes += row->length_bytes;
    }
    bool same = cut->layer_count == row->layer_count && cut->length_bytes == row->length_bytes;
    for (uint32_t i = 0; same && i < row->layer_count; i++) {
        uint64_t *offset = &engine->layer_offsets[cut->layer_at + i];
        *offset = first ? layers[i].part_offset_bytes : *offset;
        same = *offset == layers[i].part_offset_bytes;
    }
    uint64_t member = body->regions.at[layers[0].region].member;
    engine->members[row->rank] = member != 0 ? member : engine->id;
    engine->device_block_max = SL_MIN(engine->device_block_max, row->block_count - 1);
    cut->owners |= UINT64_C(1) << row->rank;
    return same ? SL_OK
                : sl_fail(why, SL_ERR_INVALID,
                          "pool %s, part %u: rank %u has other layers of it than another rank",
                          engine->pool_names[cut->pool], cut->part, row->rank);
}

static sl_err engine_regions(struct co_engine *engine, const struct sl_body_engine_get_reply *body,
                             struct sl_error *why)
{
    struct sl_layout layout = {0};
    sl_err err = cuts_make(engine, body, why);
    err = err == SL_OK ? sl_layout_make(body, SL_LAYOUT_ALL, &layout, why) : err;
    engine->device_block_max = UINT32_MAX;
    engine->layer_offsets = calloc(layout.layer_count + layout.row_count + 1u, sizeof(uint64_t));
    if (err == SL_OK && engine->layer_offsets == NULL) {
        err = sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layers");
    }
    for (uint32_t i = 0; err == SL_OK && i < layout.row_count; i++) {
        err = cut_row(engine, body, &layout, &layout.rows[i], why);
    }
    for (uint32_t k = 0; err == SL_OK && k < engine->part_count; k++) {
        if (engine->cuts[k].owners == 0) {
            err = sl_fail(why, SL_ERR_INVALID, "pool %s, part %u: no rank has it",
                          engine->pool_names[engine->cuts[k].pool], engine->cuts[k].part);
        }
    }
    sl_layout_fini(&layout);
    return err;
}

static sl_err engine_fill(struct coordinator *self, struct co_engine *engine,
                          const struct sl_body_engine_get_reply *body, struct sl_error *why)
{
    if (body->pools.count == 0) {
        return sl_fail(why, SL_ERR_INVALID, "engine %" PRIu64 " has no pools", engine->id);
    }
    if (body->world > self->rank_count) {
        return sl_fail(why, SL_ERR_INVALID, "engine %" PRIu64 " has %" PRIu64 " ranks, the node %u",
                       engine->id, body->world, self->rank_count);
    }
    engine->world = (uint32_t)body->world;
    engine->pool_count = (uint32_t)body->pools.count;
    engine->team = engine->id >= SL_TEAM_FIRST;
    engine->block_tokens = (uint32_t)body->block_tokens;
    engine->proc = (struct sl_proc_id){.pid = (uint32_t)body->pid, .start_time = body->start_time};
    text_keep(engine->model, sizeof(engine->model), body->model);
    text_keep(engine->key_format, sizeof(engine->key_format), body->key_format);
    text_keep(engine->seed, sizeof(engine->seed), body->seed);
    for (uint32_t i = 0; i < engine->pool_count; i++) {
        text_keep(engine->pool_names[i], sizeof(engine->pool_names[i]), body->pools.at[i].name);
    }
    return engine_regions(engine, body, why);
}

void co_engine_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply)
{
    struct co_engine *engine = &self->engines[index];
    struct sl_error why = {0};
    sl_err err = reply != NULL ? reply->code : SL_ERR_TIMEOUT;
    if (engine->state != CO_ENGINE_ASKED || !engine->asking) {
        return;
    }
    engine->asking = false;
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "engine %" PRIu64 ": %s", engine->id,
                      reply != NULL ? co_why(reply) : sl_err_text(err));
    } else {
        err = engine_fill(self, engine, &reply->body.engine_get_reply, &why);
    }
    engine->state = err == SL_OK ? CO_ENGINE_KNOWN : CO_ENGINE_ASKED;
    /* The ops of an engine that dies end with it; without a watch they end by their deadlines. */
    sl_err watched = err != SL_OK || engine->team || process_is_shared(self, engine)
                         ? SL_OK
                         : self->env->ops->watch(self->env, engine->proc, engine->id);
    if (watched != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "engine %" PRIu64
                     ": process %u cannot be watched (%s), its ops end by deadline",
                     engine->id, engine->proc.pid, sl_err_text(watched));
    }
    struct co_op *newer = NULL;
    for (struct co_op *op = self->active_first; op != NULL; op = newer) {
        newer = op->newer;
        if (op->engine != engine || op->phase != CO_ENGINE) {
            continue;
        }
        if (err == SL_OK) {
            co_op_engine_known(self, op);
        } else {
            co_reason(op, "%s", why.text);
            co_op_end(self, op, err);
        }
    }
    if (err != SL_OK) {
        engine_empty(engine); /* an invalid registration */
        if (engine->ops == 0) {
            engine_clear(engine);
        }
    }
}

/* Ends its ops in flight. */
static void engine_ops_end(struct coordinator *self, const struct co_engine *engine, bool gone)
{
    struct co_op *newer = NULL;
    for (struct co_op *op = self->active_first; op != NULL; op = newer) {
        newer = op->newer;
        if (op->engine != engine) {
            continue;
        }
        op->client_gone = op->client_gone || gone;
        if (op->answered) {
            continue;
        }
        if (gone) {
            co_reason(op, "the engine's process %u is gone", engine->proc.pid);
        } else {
            co_reason(op, "engine %" PRIu64 " has ended", engine->id);
        }
        co_op_end(self, op, gone ? SL_ERR_PEER_DIED : SL_ERR_STALE);
    }
}

void co_engine_over(struct coordinator *self, const struct sl_msg *msg)
{
    uint64_t id = msg->body.engine_over.engine_id;
    for (uint32_t i = 0; i < self->engine_max; i++) {
        struct co_engine *engine = &self->engines[i];
        bool has = false;
        if (engine->state != CO_ENGINE_KNOWN || engine->stale) {
            continue;
        }
        for (uint32_t rank = 0; engine->team && rank < engine->world; rank++) {
            has |= engine->members[rank] == id;
        }
        if (!engine->team && engine->id == id) {
            /* Its memory is no longer ours. Its ops end now, not at their deadlines, and are fenced
             * like any op that ends early. */
            engine_ops_end(self, engine, false);
            engine_leave(self, engine);
        } else if (has) { /* the next op requests the team again */
            engine_leave(self, engine);
        }
    }
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

void co_process_died(struct coordinator *self, const struct sl_body_local_died *died)
{
    struct sl_proc_id proc = {.pid = (uint32_t)died->pid, .start_time = died->start_time};
    for (uint32_t i = 0; i < self->engine_max; i++) {
        struct co_engine *engine = &self->engines[i];
        if (engine->state == CO_ENGINE_KNOWN && !engine->team &&
            sl_proc_id_equal(engine->proc, proc)) {
            engine_ops_end(self, engine, true);
            co_count(self, self->metric.client_died_count, 1);
            engine_leave(self, engine);
        }
    }
    co_rank_died(self, proc);
}
