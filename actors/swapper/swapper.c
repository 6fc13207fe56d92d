/* actors/swapper/swapper.c - answers COPY, FENCE. Copies are done in slices, so that a large COPY
 * keeps nobody from fencing or cancelling it; between two messages nothing is in progress, so a
 * FENCE is answered at once. */
#include "actors/swapper/swapper.h"

#include "actors/swapper/engines.h"
#include "actors/swapper/jobs.h"
#include "actors/swapper/memory.h"
#include "actors/swapper/pools.h"
#include "ipc/sl_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES_MAX (8 * SL_MIB) /* of an answer: of the message table */
/* Who is never idle pins and measures once in so many slices, or its copies would stay slow. */
#define IDLE_TURNS 16u
/* An idle engine's registration is asked for again so often; what ended is unmapped. */
#define ENGINE_CHECK_NS (2 * SL_NS_PER_S)

struct swapper {
    struct sl_env *env; /* borrowed */
    uint64_t rank;
    struct sl_swapper_memory memory;
    struct sl_index_view *view; /* NULL until first needed: the registrar makes it */
    uint64_t paced_ns;          /* no slice before: swap_rate */
    uint64_t turns;             /* slices so far */
    struct sl_calls *calls;     /* ENGINE_GET, cookie = engine id */
    struct sl_swapper_engine *engines;
    uint32_t engine_count;
    struct sl_swapper_jobs *jobs;
    struct sl_swapper_pools pools;
    bool draining;
    /* Of the slice in progress. */
    struct sl_move moves[SL_DEVICE_SLICE_MOVES_MAX];
    uint32_t move_items[SL_DEVICE_SLICE_MOVES_MAX];
    uint64_t move_chunks[SL_DEVICE_SLICE_MOVES_MAX]; /* where their hashes go */
    struct {
        sl_metric copies, refused, repeated, parts_out, parts_in, bytes_out, bytes_in, claims_gone,
            fences, queued, engines_mapped, pools_made, pool_bytes;
    } metrics;
};

static sl_err swapper_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct swapper *self = state;
    self->env = env;
    self->rank = sl_config_u64(env->config, SL_SET_rank);
    self->engine_count = (uint32_t)sl_config_u64(env->config, SL_SET_engines_max);
    struct sl_metrics *page = env->metrics;
    self->metrics.copies = sl_metric_define(page, "copies");
    self->metrics.refused = sl_metric_define(page, "copies_refused");
    self->metrics.repeated = sl_metric_define(page, "copies_repeated");
    self->metrics.parts_out = sl_metric_define(page, "parts_out");
    self->metrics.parts_in = sl_metric_define(page, "parts_in");
    self->metrics.bytes_out = sl_metric_define(page, "out_bytes");
    self->metrics.bytes_in = sl_metric_define(page, "in_bytes");
    self->metrics.claims_gone = sl_metric_define(page, "claims_gone");
    self->metrics.fences = sl_metric_define(page, "fences");
    self->metrics.queued = sl_metric_define(page, "copies_queued");
    self->metrics.engines_mapped = sl_metric_define(page, "engines_mapped");
    self->metrics.pools_made = sl_metric_define(page, "pools_made");
    self->metrics.pool_bytes = sl_metric_define(page, "pool_bytes");
    self->engines = calloc(self->engine_count, sizeof(*self->engines));
    if (self->engines == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u engines", self->engine_count);
    }
    sl_err err = sl_swapper_jobs_create(&self->jobs, why);
    if (err == SL_OK) {
        err = sl_calls_create(env, 2 * self->engine_count, &self->calls, why);
    }
    if (err == SL_OK) {
        err = sl_swapper_memory_open(&self->memory, env, self->rank, why);
    }
    return err;
}

/* ---- shared memory of the node ---- */

static sl_err swapper_view(struct swapper *self, struct sl_error *why)
{
    sl_err err = sl_index_view_follow(self->env->paths->shm_dir, &self->view, why);
    /* What is not there is the node's, not the caller's. */
    return err == SL_ERR_NOT_FOUND
               ? sl_fail(why, SL_ERR_UNREACHABLE, "the node has no segment 'index'")
               : err;
}

/* ---- answers ---- */

static void job_send_answer(struct swapper *self, const struct sl_swapper_job *job)
{
    struct sl_msg reply = {.code = job->code};
    if (job->code != SL_OK) {
        reply.text = sl_text_of(job->why.text);
    }
    if (job->item_count > 0) {
        reply.body.copy_reply.done =
            (struct sl_bytes){.at = job->done, .length = (job->item_count + 7) / 8};
        if (job->chunked) {
            reply.body.copy_reply.chunks =
                (struct sl_bytes){.at = job->chunks, .length = job->chunk_bytes};
        } else if (job->out) {
            reply.body.copy_reply.digests =
                (struct sl_bytes){.at = job->digests, .length = (uint64_t)job->item_count * 16};
        }
    }
    sl_return_reply(self->env, &job->back, &reply);
}

static void job_answer(struct swapper *self, struct sl_swapper_job *job, sl_err code,
                       const struct sl_error *why)
{
    struct sl_env *env = self->env;
    job->code = code;
    if (why != NULL) {
        job->why = *why;
    }
    sl_trace_event(env->metrics, env->now_ns, job->back.trace_id,
                   job->out ? "copy out done" : "copy in done", job->back.to, job->done_count);
    if (code != SL_OK) {
        sl_metric_add(env->metrics, self->metrics.refused, 1);
        sl_log_write(env->log, code == SL_ERR_CANCELLED ? SL_LOG_DEBUG : SL_LOG_WARN,
                     job->back.trace_id, "copy %s ended after %u of %u parts: %s",
                     job->out ? "out" : "in", job->done_count, job->item_count,
                     job->why.text[0] != '\0' ? job->why.text : sl_err_text(code));
    }
    sl_metric_add(env->metrics, job->out ? self->metrics.parts_out : self->metrics.parts_in,
                  job->done_count);
    sl_metric_add(env->metrics, job->out ? self->metrics.bytes_out : self->metrics.bytes_in,
                  job->bytes);
    job_send_answer(self, job);
    sl_swapper_jobs_end(self->jobs, job);
    sl_metric_set(env->metrics, self->metrics.queued, sl_swapper_jobs_queued(self->jobs));
}

/* ---- engines ---- */

static struct sl_swapper_engine *engine_find(struct swapper *self, uint64_t engine_id)
{
    for (uint32_t i = 0; i < self->engine_count; i++) {
        if (self->engines[i].state != SL_SWAPPER_ENGINE_FREE &&
            self->engines[i].engine_id == engine_id) {
            return &self->engines[i];
        }
    }
    return NULL;
}

static void engine_forget(struct swapper *self, struct sl_swapper_engine *engine)
{
    struct sl_proc_id proc = engine->proc;
    bool shared = false;
    if (engine->state == SL_SWAPPER_ENGINE_READY) {
        sl_metric_add(self->env->metrics, self->metrics.engines_mapped, UINT64_MAX); /* one less */
    }
    sl_swapper_engine_unmap(self->memory.device, engine);
    *engine = (struct sl_swapper_engine){0};
    for (uint32_t i = 0; i < self->engine_count; i++) {
        shared |= self->engines[i].state == SL_SWAPPER_ENGINE_READY &&
                  sl_proc_id_equal(self->engines[i].proc, proc);
    }
    if (proc.pid != 0 && !shared) {
        self->env->ops->unwatch(self->env, proc);
    }
}

/* Ends all queued jobs of an engine and forgets it. */
static void engine_end(struct swapper *self, struct sl_swapper_engine *engine, sl_err code,
                       const struct sl_error *why)
{
    uint32_t cursor = 0;
    for (struct sl_swapper_job *job; (job = sl_swapper_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->engine_id == engine->engine_id) {
            job_answer(self, job, code, why);
        }
    }
    engine_forget(self, engine);
}

static bool engine_has_jobs(struct swapper *self, uint64_t engine_id)
{
    uint32_t cursor = 0;
    for (const struct sl_swapper_job *job;
         (job = sl_swapper_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->engine_id == engine_id) {
            return true;
        }
    }
    return false;
}

/* A free slot; when there is none, that of the mapped engine that was idle longest. NULL: all are
 * busy. */
static struct sl_swapper_engine *engine_slot(struct swapper *self)
{
    struct sl_swapper_engine *oldest = NULL;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sl_swapper_engine *engine = &self->engines[i];
        if (engine->state == SL_SWAPPER_ENGINE_FREE) {
            return engine;
        }
        if (engine->state == SL_SWAPPER_ENGINE_READY &&
            (oldest == NULL || engine->used_ns < oldest->used_ns) &&
            !engine_has_jobs(self, engine->engine_id)) {
            oldest = engine;
        }
    }
    if (oldest != NULL) {
        engine_forget(self, oldest);
    }
    return oldest;
}

static sl_err engine_ask(struct swapper *self, struct sl_swapper_engine *engine, uint64_t trace_id)
{
    struct sl_env *env = self->env;
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET, .trace_id = trace_id};
    msg.body.engine_get.engine_id = engine->engine_id;
    engine->asked_ns = env->now_ns;
    return sl_calls_send(self->calls, "registrar", &msg,
                         sl_deadline_ns(env->now_ns, sl_config_u64(env->config, SL_SET_op_timeout)),
                         engine->engine_id, NULL);
}

/* Maps what the registrar answered; jobs that waited for it go on, or end with the reason. A result
 * other than SL_OK ends the actor: the device is lost. */
static sl_err engine_map(struct swapper *self, struct sl_swapper_engine *engine,
                         const struct sl_body_engine_get_reply *body)
{
    struct sl_env *env = self->env;
    struct sl_error why = {0};
    struct sl_proc_id proc = {.pid = (uint32_t)body->pid, .start_time = body->start_time};
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < body->regions.count && err == SL_OK; i++) {
        if (sl_swapper_pool_is_over(&self->pools, body->regions.at[i].pool_epoch)) {
            err = sl_fail(&why, SL_ERR_NOT_FOUND, "region %llu: its memory was revoked",
                          (unsigned long long)i);
        }
    }
    if (err == SL_OK) {
        err = sl_swapper_engine_map(self->memory.device, body, self->rank, engine, &why);
    }
    bool watched = false;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        watched |= self->engines[i].state == SL_SWAPPER_ENGINE_READY &&
                   sl_proc_id_equal(self->engines[i].proc, proc);
    }
    if (err == SL_OK && !watched) {
        /* Watched after mapping: a process that died meanwhile is reported at once, so a descriptor
         * of a later process with its number cannot stay mapped. */
        err = env->ops->watch(env, proc, engine->engine_id);
        if (err != SL_OK) {
            (void)sl_fail(&why, err, "engine process %u cannot be watched", proc.pid);
        }
    }
    if (err != SL_OK) {
        engine_end(self, engine, err, &why);
        return sl_err_class(err) == SL_CLASS_RESTART ? err : SL_OK;
    }
    engine->state = SL_SWAPPER_ENGINE_READY;
    engine->proc = proc;
    engine->used_ns = env->now_ns;
    sl_metric_add(env->metrics, self->metrics.engines_mapped, 1);
    sl_log_write(env->log, SL_LOG_INFO, 0, "engine %llu of process %u mapped: %u memory handles",
                 (unsigned long long)engine->engine_id, proc.pid, engine->mapping_count);
    return SL_OK;
}

static sl_err swapper_engine_answer(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (!sl_calls_match(self->calls, msg, &call)) {
        return SL_OK;
    }
    struct sl_swapper_engine *engine = engine_find(self, call.cookie);
    if (engine == NULL) {
        return SL_OK;
    }
    engine->asked_ns = self->env->now_ns;
    if (msg->code == SL_OK && engine->state == SL_SWAPPER_ENGINE_ASKED) {
        return engine_map(self, engine, &msg->body.engine_get_reply);
    }
    if (msg->code == SL_ERR_NOT_FOUND || engine->state == SL_SWAPPER_ENGINE_ASKED) {
        struct sl_error why = {0};
        if (msg->code != SL_OK) {
            (void)sl_fail(&why, msg->code, "engine %llu: %s", (unsigned long long)call.cookie,
                          msg->text.length > 0 ? msg->text.at : sl_err_text(msg->code));
        }
        engine_end(self, engine, msg->code, &why);
    }
    return SL_OK;
}

static void swapper_engine_died(struct swapper *self, const struct sl_body_local_died *died)
{
    struct sl_proc_id proc = {.pid = (uint32_t)died->pid, .start_time = died->start_time};
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sl_swapper_engine *engine = &self->engines[i];
        if (engine->state == SL_SWAPPER_ENGINE_READY && sl_proc_id_equal(engine->proc, proc)) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_NOT_FOUND, "engine %llu: its process %u is gone",
                          (unsigned long long)engine->engine_id, proc.pid);
            engine_end(self, engine, SL_ERR_NOT_FOUND, &why);
        }
    }
}

/* ---- copying ---- */

struct extent { /* what of a part is to be copied */
    uint64_t from, end;
};

static struct extent item_extent(const struct sl_swapper_engine *engine,
                                 const struct sl_item_piece *item)
{
    const struct sl_swapper_pool *pool = &engine->pools[item->pool];
    uint64_t end = item->layer_end != 0 ? pool->layer_offsets[item->layer_end] : pool->value_bytes;
    return (struct extent){.from = pool->layer_offsets[item->first_layer], .end = end};
}

static struct sl_digest_span item_span(const struct sl_swapper_engine *engine,
                                       const struct sl_item_piece *item)
{
    struct extent extent = item_extent(engine, item);
    return sl_digest_span_of(extent.from, extent.end, item->length_bytes);
}

static sl_err item_layers_check(const struct sl_item_piece *item,
                                const struct sl_swapper_pool *pool, uint32_t number,
                                struct sl_error *why)
{
    bool all = item->first_layer == 0 && item->layer_end == 0;
    return all || (item->first_layer < item->layer_end && item->layer_end <= pool->layer_count)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "items[%u].layer_end: layers %llu to %llu of %u",
                         number, (unsigned long long)item->first_layer,
                         (unsigned long long)item->layer_end, pool->layer_count);
}

/* Room for the hashes that are answered. */
static sl_err job_chunks(struct sl_swapper_job *job, const struct sl_swapper_engine *engine,
                         struct sl_error *why)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        job->chunk_bytes += item_span(engine, &job->items[i]).count * sizeof(uint64_t);
    }
    if (job->chunk_bytes > CHUNK_BYTES_MAX) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_LIMIT, "more than %llu bytes of hashes were asked for",
                       (unsigned long long)CHUNK_BYTES_MAX);
    }
    job->chunks = calloc(1, SL_MAX(job->chunk_bytes, UINT64_C(1)));
    if (job->chunks == NULL) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for hashes");
    }
    return SL_OK;
}

/* Everything a slice relies on; refuses the whole COPY before a byte is touched. */
static sl_err job_check(struct swapper *self, struct sl_swapper_job *job,
                        const struct sl_swapper_engine *engine, struct sl_error *why)
{
    uint64_t arena = 0;
    sl_err err = swapper_view(self, why);
    for (uint32_t i = 0; err == SL_OK && i < job->item_count; i++) {
        const struct sl_item_piece *item = &job->items[i];
        if (item->pool >= SL_SWAPPER_POOLS_MAX || !engine->pools[item->pool].present) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].pool: engine %llu has no pool %llu on rank %llu", i,
                           (unsigned long long)engine->engine_id, (unsigned long long)item->pool,
                           (unsigned long long)self->rank);
        }
        const struct sl_swapper_pool *pool = &engine->pools[item->pool];
        if (item->device_block >= pool->block_count) {
            return sl_fail(why, SL_ERR_INVALID, "items[%u].device_block: %llu of %llu", i,
                           (unsigned long long)item->device_block,
                           (unsigned long long)pool->block_count);
        }
        if (item->length_bytes != pool->value_bytes) {
            return sl_fail(
                why, SL_ERR_INVALID, "items[%u].length_bytes: %llu, parts of the pool have %llu", i,
                (unsigned long long)item->length_bytes, (unsigned long long)pool->value_bytes);
        }
        err = item_layers_check(item, pool, i, why);
        if (err != SL_OK) {
            return err;
        }
        if (i == 0 || item->arena != arena) {
            arena = item->arena;
            err = sl_swapper_arena(&self->memory, arena, why);
        }
        if (err == SL_OK && sl_arena_at(self->memory.arenas[arena], item->offset_bytes,
                                        item->length_bytes) == NULL) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].offset_bytes: %llu is not within a chunk of arena %llu", i,
                           (unsigned long long)item->offset_bytes, (unsigned long long)arena);
        }
    }
    return err == SL_OK && job->chunked ? job_chunks(job, engine, why) : err;
}

/* Picks the moves of one slice: what may still be written, up to the bounds. */
static uint32_t job_pick(struct swapper *self, struct sl_swapper_job *job,
                         const struct sl_swapper_engine *engine)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    for (uint32_t looked = 0;
         looked < self->memory.device->slice_moves && job->next_item < job->item_count; looked++) {
        uint32_t i = job->next_item;
        const struct sl_item_piece *item = &job->items[i];
        struct extent extent = item_extent(engine, item);
        if (bytes > 0 && bytes + (extent.end - extent.from) > self->memory.device->slice_bytes) {
            break;
        }
        job->next_item++;
        self->move_chunks[count] = job->chunk_at;
        job->chunk_at += job->chunked ? item_span(engine, item).count * sizeof(uint64_t) : 0;
        /* A claim that ended between here and the copy is still quarantined: its extent is reused
         * only after this actor has answered a FENCE, which it cannot do in the middle of a slice.
         */
        if (job->out && !sl_index_claim_stands(self->view, (sl_ref)item->ref, item->generation)) {
            sl_metric_add(self->env->metrics, self->metrics.claims_gone, 1);
            continue;
        }
        /* The arena was checked, but may have been made anew since. */
        const struct sl_arena *arena = self->memory.arenas[item->arena];
        unsigned char *host =
            arena == NULL ? NULL : sl_arena_at(arena, item->offset_bytes, item->length_bytes);
        if (host == NULL) {
            continue;
        }
        bytes += extent.end - extent.from;
        self->move_items[count] = i;
        self->moves[count++] = (struct sl_move){
            .host = host,
            .device_block = item->device_block,
            .layers_index = engine->pools[item->pool].layers_index,
            .first_layer = (uint32_t)item->first_layer,
            .layer_end = (uint32_t)item->layer_end,
        };
    }
    return count;
}

static void put_u64(unsigned char *out, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

/* The hashes of what is whole now: a chunk may have begun with layers that were copied before,
 * which lie in the extent under the same claim. Just copied, it is in the cache. */
static void chunks_hash(struct swapper *self, struct sl_swapper_job *job,
                        const struct sl_swapper_engine *engine, uint32_t move)
{
    const struct sl_item_piece *item = &job->items[self->move_items[move]];
    struct sl_digest_span span = item_span(engine, item);
    for (uint64_t i = 0; i < span.count; i++) {
        uint64_t at = (span.first + i) * SL_DIGEST_CHUNK_BYTES;
        put_u64(job->chunks + self->move_chunks[move] + i * sizeof(uint64_t),
                sl_digest_chunk(self->moves[move].host + at,
                                SL_MIN(item->length_bytes - at, (uint64_t)SL_DIGEST_CHUNK_BYTES)));
    }
}

static sl_err job_slice(struct swapper *self, struct sl_swapper_job *job,
                        struct sl_swapper_engine *engine, struct sl_error *why)
{
    struct sl_env *env = self->env;
    if (job->back.deadline_ns <= env->now_ns) {
        return sl_fail(why, SL_ERR_TIMEOUT, "deadline passed with %u of %u parts copied",
                       job->done_count, job->item_count);
    }
    sl_err err = SL_OK;
    if (!job->checked) {
        err = job_check(self, job, engine, why);
        if (err != SL_OK) {
            return err;
        }
        job->checked = true;
        sl_trace_event(env->metrics, env->now_ns, job->back.trace_id,
                       job->out ? "copy out" : "copy in", job->back.to, job->item_count);
    }
    uint32_t count = job_pick(self, job, engine);
    if (count > 0) {
        err = self->memory.device->ops->move(self->memory.device, self->moves, count, job->out,
                                             job->out && !job->chunked, why);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t item = self->move_items[i];
        if (self->moves[i].done == 0) {
            continue;
        }
        job->done[item >> 3] = (unsigned char)(job->done[item >> 3] | 1u << (item & 7));
        job->done_count++;
        struct extent extent = item_extent(engine, &job->items[item]);
        job->bytes += extent.end - extent.from;
        if (job->chunked) {
            chunks_hash(self, job, engine, i);
        } else if (job->out) {
            put_u64(job->digests + (size_t)item * 16, self->moves[i].digest.low);
            put_u64(job->digests + (size_t)item * 16 + 8, self->moves[i].digest.high);
        }
    }
    engine->used_ns = env->now_ns;
    return err;
}

/* The queued job whose turn it is and whose engine is mapped. */
static struct sl_swapper_job *swapper_next(struct swapper *self, struct sl_swapper_engine **engine)
{
    struct sl_swapper_job *next = NULL;
    uint32_t cursor = 0;
    for (struct sl_swapper_job *job; (job = sl_swapper_jobs_each(self->jobs, &cursor)) != NULL;) {
        struct sl_swapper_engine *its = engine_find(self, job->engine_id);
        if (its != NULL && its->state == SL_SWAPPER_ENGINE_READY &&
            (next == NULL || job->turn < next->turn)) {
            next = job;
            *engine = its;
        }
    }
    return next;
}

/* The next slice waits until the bus has had its pause. */
static void pace(struct swapper *self, uint64_t bytes)
{
    uint64_t rate = sl_config_u64(self->env->config, SL_SET_swap_rate);
    if (rate > 0) {
        double pause_ns = (double)bytes / (double)rate * (double)SL_NS_PER_S;
        self->paced_ns =
            sl_deadline_ns(SL_MAX(self->paced_ns, self->env->now_ns), (uint64_t)pause_ns);
    }
}

/* A result other than SL_OK ends the actor. */
static sl_err job_turn(struct swapper *self, struct sl_swapper_job *job,
                       struct sl_swapper_engine *engine)
{
    struct sl_error why = {0};
    uint64_t bytes = job->bytes;
    sl_err err = job_slice(self, job, engine, &why);
    pace(self, job->bytes - bytes);
    if (err == SL_OK && job->next_item < job->item_count) {
        sl_swapper_jobs_turn(self->jobs, job);
    } else {
        job_answer(self, job, err, err == SL_OK ? NULL : &why);
    }
    return sl_err_class(err) == SL_CLASS_RESTART ? err : SL_OK;
}

/* One slice of one job. A result other than SL_OK ends the actor. */
static sl_err swapper_step(struct swapper *self)
{
    struct sl_env *env = self->env;
    struct sl_swapper_engine *engine = NULL;
    struct sl_swapper_job *job = swapper_next(self, &engine);
    sl_err fatal = SL_OK;
    bool idle = job == NULL;
    if (job != NULL && env->now_ns >= self->paced_ns) {
        fatal = job_turn(self, job, engine);
        sl_swapper_memory_publish(&self->memory);
        job = swapper_next(self, &engine);
        idle = ++self->turns % IDLE_TURNS == 0;
    }
    if (idle && fatal == SL_OK) {
        fatal = sl_swapper_memory_idle(&self->memory);
    }
    if (job != NULL) {
        env->ops->wake_at(env, SL_MAX(env->now_ns, self->paced_ns));
    }
    if (self->draining && sl_swapper_jobs_queued(self->jobs) == 0) {
        env->ops->finish(env);
    }
    return fatal;
}

/* ---- messages ---- */

/* Gives a job its engine, or asks for it. */
static void swapper_start(struct swapper *self, struct sl_swapper_job *job)
{
    struct sl_error why = {0};
    struct sl_swapper_engine *engine = engine_find(self, job->engine_id);
    /* Parked jobs end at their deadline, whoever does not answer. */
    self->env->ops->wake_at(self->env, job->back.deadline_ns);
    if (engine != NULL) {
        return;
    }
    engine = engine_slot(self);
    if (engine == NULL) {
        sl_err err = sl_fail(&why, SL_ERR_LIMIT, "%u engines are in use", self->engine_count);
        job_answer(self, job, err, &why);
        return;
    }
    *engine =
        (struct sl_swapper_engine){.state = SL_SWAPPER_ENGINE_ASKED, .engine_id = job->engine_id};
    sl_err err = engine_ask(self, engine, job->back.trace_id);
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "engine %llu could not be asked for",
                      (unsigned long long)engine->engine_id);
        engine_end(self, engine, err, &why);
    }
}

static sl_err swapper_copy(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    struct sl_swapper_job *job = NULL;
    struct sl_error why = {0};
    sl_err err = SL_OK;
    switch (sl_swapper_jobs_known(self->jobs, msg, &job)) {
    case SL_SWAPPER_QUEUED:
    case SL_SWAPPER_OLD:
        sl_metric_add(env->metrics, self->metrics.repeated, 1);
        return SL_OK;
    case SL_SWAPPER_ANSWERED:
        sl_metric_add(env->metrics, self->metrics.repeated, 1);
        job_send_answer(self, job);
        return SL_OK;
    case SL_SWAPPER_FENCED:
        err = sl_fail(&why, SL_ERR_CANCELLED, "the op was fenced");
        break;
    case SL_SWAPPER_NEW:
        break;
    }
    if (err == SL_OK && msg->body.copy.rank != self->rank) {
        err = sl_fail(&why, SL_ERR_INVALID, "rank: %llu, this is the swapper of rank %llu",
                      (unsigned long long)msg->body.copy.rank, (unsigned long long)self->rank);
    }
    if (err == SL_OK && self->draining) {
        err = sl_fail(&why, SL_ERR_DRAINING, "the swapper takes no more copies");
    }
    if (err == SL_OK) {
        err = sl_swapper_jobs_add(self->jobs, msg, &job, &why);
    }
    if (err != SL_OK) {
        sl_metric_add(env->metrics, self->metrics.refused, 1);
        sl_log_write(env->log, SL_LOG_WARN, msg->trace_id, "copy refused: %s", why.text);
        sl_reply_code(env, msg, err, &why);
        return SL_OK;
    }
    sl_metric_add(env->metrics, self->metrics.copies, 1);
    sl_metric_set(env->metrics, self->metrics.queued, sl_swapper_jobs_queued(self->jobs));
    swapper_start(self, job);
    return swapper_step(self);
}

static void swapper_fence(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    sl_metric_add(env->metrics, self->metrics.fences, 1);
    /* Claims that ended need no more: they do not stand, so no later slice writes to them, and none
     * is in progress now. */
    if (msg->body.fence.items.count == 0) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_CANCELLED, "the op was fenced");
        uint32_t cursor = 0;
        for (struct sl_swapper_job *job;
             (job = sl_swapper_jobs_each(self->jobs, &cursor)) != NULL;) {
            if (sl_swapper_job_is_before(job, msg)) {
                job_answer(self, job, SL_ERR_CANCELLED, &why);
            }
        }
        if (msg->op_id != 0) {
            sl_swapper_jobs_fence(self->jobs, msg);
        }
    }
    sl_trace_event(env->metrics, env->now_ns, msg->trace_id, "fence", "",
                   (uint32_t)msg->body.fence.items.count);
    sl_reply_code(env, msg, SL_OK, NULL);
}

static void swapper_pool_make(struct swapper *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_make *body = &msg->body.pool_make;
    struct sl_memory_handle handle = {0};
    struct sl_error why = {0};
    struct sl_msg reply = {.code = SL_OK};
    uint32_t before = sl_swapper_pools_made(&self->pools);
    sl_err err = self->draining
                     ? sl_fail(&why, SL_ERR_DRAINING, "the swapper makes no more memory")
                     : sl_swapper_pool_make(&self->pools, self->memory.device, body->epoch,
                                            body->length_bytes, &handle, &why);
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, msg->trace_id, "pool %s/%s not made: %s",
                     body->name.at, body->pool.at, why.text);
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    if (sl_swapper_pools_made(&self->pools) > before) {
        sl_metric_add(self->env->metrics, self->metrics.pools_made, 1);
        sl_metric_add(self->env->metrics, self->metrics.pool_bytes, body->length_bytes);
        sl_log_write(self->env->log, SL_LOG_INFO, msg->trace_id, "pool %s/%s made: %llu bytes",
                     body->name.at, body->pool.at, (unsigned long long)body->length_bytes);
    }
    reply.body.pool_make_reply.handle_kind = handle.kind;
    reply.body.pool_make_reply.pid = self->env->self.pid;
    reply.body.pool_make_reply.fd = handle.fd < 0 ? 0 : (uint64_t)handle.fd;
    reply.body.pool_make_reply.inode = handle.inode;
    if (handle.kind == SL_MEMORY_CUDA_IPC) {
        reply.body.pool_make_reply.handle =
            (struct sl_bytes){.at = handle.ipc, .length = sizeof(handle.ipc)};
    }
    sl_reply(self->env, msg, &reply);
}

/* Nothing is in progress between two messages: what is unmapped here is touched no more. */
static void swapper_pool_drop(struct swapper *self, const struct sl_msg *msg)
{
    uint64_t epoch = msg->body.pool_drop.epoch;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sl_swapper_engine *engine = &self->engines[i];
        if (engine->state == SL_SWAPPER_ENGINE_READY && sl_swapper_engine_is_of(engine, epoch)) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_NOT_FOUND, "engine %llu: its memory was revoked",
                          (unsigned long long)engine->engine_id);
            engine_end(self, engine, SL_ERR_NOT_FOUND, &why);
        }
    }
    uint64_t freed_bytes = sl_swapper_pool_drop(&self->pools, self->memory.device, epoch);
    if (freed_bytes > 0) {
        sl_metric_add(self->env->metrics, self->metrics.pools_made, UINT64_MAX); /* one less */
        sl_metric_add(self->env->metrics, self->metrics.pool_bytes, 0 - freed_bytes);
    }
    sl_reply_code(self->env, msg, SL_OK, NULL);
}

static sl_err swapper_handle(void *state, const struct sl_msg *msg)
{
    struct swapper *self = state;
    sl_err err = SL_OK;
    switch (msg->type) {
    case SL_MSG_COPY:
        return swapper_copy(self, msg);
    case SL_MSG_FENCE:
        swapper_fence(self, msg);
        return swapper_step(self);
    case SL_MSG_POOL_MAKE:
        swapper_pool_make(self, msg);
        return swapper_step(self);
    case SL_MSG_POOL_DROP:
        swapper_pool_drop(self, msg);
        return swapper_step(self);
    case SL_MSG_ENGINE_GET_REPLY:
        err = swapper_engine_answer(self, msg);
        return err == SL_OK ? swapper_step(self) : err;
    case SL_MSG_LOCAL_DIED:
        swapper_engine_died(self, &msg->body.local_died);
        return swapper_step(self);
    default:
        if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_IO) {
            sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
        }
        return SL_OK;
    }
}

/* ---- time ---- */

/* Ends jobs whose deadline has passed; asks to be woken for the next one. */
static void swapper_expire(struct swapper *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    uint32_t cursor = 0;
    for (struct sl_swapper_job *job; (job = sl_swapper_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->back.deadline_ns > now_ns) {
            next_ns = SL_MIN(next_ns, job->back.deadline_ns);
            continue;
        }
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_TIMEOUT, "deadline passed with %u of %u parts copied",
                      job->done_count, job->item_count);
        job_answer(self, job, SL_ERR_TIMEOUT, &why);
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}

/* Questions about engines that nobody answered: asked again while jobs wait, else forgotten. */
static void swapper_unanswered(struct swapper *self, uint64_t now_ns)
{
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        struct sl_swapper_engine *engine = engine_find(self, call.cookie);
        if (engine == NULL || engine->state != SL_SWAPPER_ENGINE_ASKED) {
            continue; /* an idle one is asked again later */
        }
        if (!engine_has_jobs(self, engine->engine_id) || engine_ask(self, engine, 0) != SL_OK) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_TIMEOUT, "engine %llu: the registrar does not answer",
                          (unsigned long long)engine->engine_id);
            engine_end(self, engine, SL_ERR_TIMEOUT, &why);
        }
    }
}

/* Registrations may end while their process lives on: idle engines are asked about now and then. */
static void swapper_check_engines(struct swapper *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sl_swapper_engine *engine = &self->engines[i];
        if (engine->state != SL_SWAPPER_ENGINE_READY) {
            continue;
        }
        uint64_t due_ns =
            sl_deadline_ns(SL_MAX(engine->used_ns, engine->asked_ns), ENGINE_CHECK_NS);
        if (due_ns <= now_ns) {
            (void)engine_ask(self, engine, 0); /* a full table: next time */
            due_ns = sl_deadline_ns(now_ns, ENGINE_CHECK_NS);
        }
        next_ns = SL_MIN(next_ns, due_ns);
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}

static sl_err swapper_tick(void *state, uint64_t now_ns)
{
    struct swapper *self = state;
    swapper_unanswered(self, now_ns);
    swapper_expire(self, now_ns);
    swapper_check_engines(self, now_ns);
    return swapper_step(self);
}

static void swapper_drain(void *state)
{
    struct swapper *self = state;
    self->draining = true;
    if (sl_swapper_jobs_queued(self->jobs) == 0) {
        self->env->ops->finish(self->env);
    }
}

static void swapper_fini(void *state)
{
    struct swapper *self = state;
    for (uint32_t i = 0; self->engines != NULL && i < self->engine_count; i++) {
        if (self->engines[i].state == SL_SWAPPER_ENGINE_READY) {
            sl_swapper_engine_unmap(self->memory.device, &self->engines[i]);
        }
    }
    free(self->engines);
    sl_swapper_pools_fini(&self->pools, self->memory.device);
    sl_swapper_memory_close(&self->memory);
    sl_calls_destroy(&self->calls);
    sl_swapper_jobs_destroy(&self->jobs);
    sl_index_view_close(&self->view);
}

const struct sl_actor sl_swapper_actor = {
    .role = "swapper",
    .ranked = true,
    .state_bytes = sizeof(struct swapper),
    .init = swapper_init,
    .handle = swapper_handle,
    .tick = swapper_tick,
    .drain = swapper_drain,
    .fini = swapper_fini,
};
