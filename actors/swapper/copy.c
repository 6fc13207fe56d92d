/* actors/swapper/copy.c - COPY and FENCE. Copies are done in slices, so that a large COPY keeps
 * nobody from fencing or cancelling it; between two messages nothing is in progress, so a FENCE is
 * answered at once. */
#include "actors/swapper/internal.h"
#include "ipc/sl_index.h"

#include <inttypes.h>
#include <stdlib.h>

#define CHUNK_BYTES_MAX (8 * SL_MIB) /* of an answer: of the message table */
/* A swapper that is never idle pins and measures once in so many slices, or its copies would stay
 * slow. */
#define IDLE_TURNS 16u

/* ---- answers ---- */

static void job_send_answer(struct swapper *self, const struct sw_job *job)
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

void sw_job_answer(struct swapper *self, struct sw_job *job, sl_err code,
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
    sw_jobs_end(self->jobs, job);
    sl_metric_set(env->metrics, self->metrics.queued, sw_jobs_queued(self->jobs));
}

static sl_err view_follow(struct swapper *self, struct sl_error *why)
{
    sl_err err = sl_index_view_follow(self->env->paths->shm_dir, &self->view, why);
    /* What is not there is the node's, not the caller's. */
    return err == SL_ERR_NOT_FOUND
               ? sl_fail(why, SL_ERR_UNREACHABLE, "the node has no segment 'index'")
               : err;
}

/* ---- copying ---- */

struct extent { /* what of a part is to be copied */
    uint64_t from, end;
};

static struct extent item_extent(const struct sw_engine *engine, const struct sl_item_piece *item)
{
    const struct sw_pool *pool = &engine->pools[item->pool];
    uint64_t end = item->layer_end != 0 ? pool->layer_offsets[item->layer_end] : pool->value_bytes;
    return (struct extent){.from = pool->layer_offsets[item->first_layer], .end = end};
}

static struct sl_digest_span item_span(const struct sw_engine *engine,
                                       const struct sl_item_piece *item)
{
    struct extent extent = item_extent(engine, item);
    return sl_digest_span_of(extent.from, extent.end, item->length_bytes);
}

static sl_err item_layers_check(const struct sl_item_piece *item, const struct sw_pool *pool,
                                uint32_t number, struct sl_error *why)
{
    bool all = item->first_layer == 0 && item->layer_end == 0;
    return all || (item->first_layer < item->layer_end && item->layer_end <= pool->layer_count)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID,
                         "items[%u].layer_end: layers %" PRIu64 " to %" PRIu64 " of %u", number,
                         item->first_layer, item->layer_end, pool->layer_count);
}

/* Room for the hashes that are answered. */
static sl_err job_chunks(struct sw_job *job, const struct sw_engine *engine, struct sl_error *why)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        job->chunk_bytes += item_span(engine, &job->items[i]).count * sizeof(uint64_t);
    }
    if (job->chunk_bytes > CHUNK_BYTES_MAX) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_LIMIT, "more than %" PRIu64 " bytes of hashes were asked for",
                       CHUNK_BYTES_MAX);
    }
    job->chunks = calloc(1, SL_MAX(job->chunk_bytes, UINT64_C(1)));
    if (job->chunks == NULL) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for hashes");
    }
    return SL_OK;
}

/* Everything a slice relies on; refuses the whole COPY before a byte is touched. */
static sl_err job_check(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                        struct sl_error *why)
{
    uint64_t arena = 0;
    sl_err err = view_follow(self, why);
    for (uint32_t i = 0; err == SL_OK && i < job->item_count; i++) {
        const struct sl_item_piece *item = &job->items[i];
        if (item->pool >= SW_POOLS_MAX || !engine->pools[item->pool].present) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].pool: engine %" PRIu64 " has no pool %" PRIu64
                           " on rank %" PRIu64,
                           i, engine->engine_id, item->pool, self->rank);
        }
        const struct sw_pool *pool = &engine->pools[item->pool];
        if (item->device_block >= pool->block_count) {
            return sl_fail(why, SL_ERR_INVALID, "items[%u].device_block: %" PRIu64 " of %" PRIu64,
                           i, item->device_block, pool->block_count);
        }
        if (item->length_bytes != pool->value_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].length_bytes: %" PRIu64 ", parts of the pool have %" PRIu64,
                           i, item->length_bytes, pool->value_bytes);
        }
        err = item_layers_check(item, pool, i, why);
        if (err != SL_OK) {
            return err;
        }
        if (i == 0 || item->arena != arena) {
            arena = item->arena;
            err = sw_arena(&self->memory, arena, why);
        }
        if (err == SL_OK && sl_arena_at(self->memory.arenas[arena], item->offset_bytes,
                                        item->length_bytes) == NULL) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].offset_bytes: %" PRIu64
                           " is not within a chunk of arena %" PRIu64,
                           i, item->offset_bytes, arena);
        }
    }
    return err == SL_OK && job->chunked ? job_chunks(job, engine, why) : err;
}

/* Picks the moves of one slice: what may still be written, up to the bounds. */
static uint32_t job_pick(struct swapper *self, struct sw_job *job, const struct sw_engine *engine)
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
static void chunks_hash(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                        uint32_t move)
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

static sl_err job_slice(struct swapper *self, struct sw_job *job, struct sw_engine *engine,
                        struct sl_error *why)
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
static struct sw_job *job_next(struct swapper *self, struct sw_engine **engine)
{
    struct sw_job *next = NULL;
    uint32_t cursor = 0;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        struct sw_engine *its = sw_engine_find(self, job->engine_id);
        if (its != NULL && its->state == SW_ENGINE_READY &&
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
static sl_err job_turn(struct swapper *self, struct sw_job *job, struct sw_engine *engine)
{
    struct sl_error why = {0};
    uint64_t bytes = job->bytes;
    sl_err err = job_slice(self, job, engine, &why);
    pace(self, job->bytes - bytes);
    if (err == SL_OK && job->next_item < job->item_count) {
        sw_jobs_turn(self->jobs, job);
    } else {
        sw_job_answer(self, job, err, err == SL_OK ? NULL : &why);
    }
    return sl_err_class(err) == SL_CLASS_RESTART ? err : SL_OK;
}

sl_err sw_step(struct swapper *self)
{
    struct sl_env *env = self->env;
    struct sw_engine *engine = NULL;
    struct sw_job *job = job_next(self, &engine);
    sl_err fatal = SL_OK;
    bool idle = job == NULL;
    if (job != NULL && env->now_ns >= self->paced_ns) {
        fatal = job_turn(self, job, engine);
        sw_memory_publish(&self->memory);
        job = job_next(self, &engine);
        idle = ++self->turns % IDLE_TURNS == 0;
    }
    if (idle && fatal == SL_OK) {
        fatal = sw_memory_idle(&self->memory);
    }
    if (job != NULL) {
        env->ops->wake_at(env, SL_MAX(env->now_ns, self->paced_ns));
    }
    if (self->draining && sw_jobs_queued(self->jobs) == 0) {
        env->ops->finish(env);
    }
    return fatal;
}

/* ---- messages ---- */

sl_err sw_copy(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    struct sw_job *job = NULL;
    struct sl_error why = {0};
    sl_err err = SL_OK;
    switch (sw_jobs_known(self->jobs, msg, &job)) {
    case SW_QUEUED:
    case SW_OLD:
        sl_metric_add(env->metrics, self->metrics.repeated, 1);
        return SL_OK;
    case SW_ANSWERED:
        sl_metric_add(env->metrics, self->metrics.repeated, 1);
        job_send_answer(self, job);
        return SL_OK;
    case SW_FENCED:
        err = sl_fail(&why, SL_ERR_CANCELLED, "the op was fenced");
        break;
    case SW_NEW:
        break;
    }
    if (err == SL_OK && msg->body.copy.rank != self->rank) {
        err =
            sl_fail(&why, SL_ERR_INVALID, "rank: %" PRIu64 ", this is the swapper of rank %" PRIu64,
                    msg->body.copy.rank, self->rank);
    }
    if (err == SL_OK && self->draining) {
        err = sl_fail(&why, SL_ERR_DRAINING, "the swapper takes no more copies");
    }
    if (err == SL_OK) {
        err = sw_jobs_add(self->jobs, msg, &job, &why);
    }
    if (err != SL_OK) {
        sl_metric_add(env->metrics, self->metrics.refused, 1);
        sl_log_write(env->log, SL_LOG_WARN, msg->trace_id, "copy refused: %s", why.text);
        sl_reply_code(env, msg, err, &why);
        return SL_OK;
    }
    sl_metric_add(env->metrics, self->metrics.copies, 1);
    sl_metric_set(env->metrics, self->metrics.queued, sw_jobs_queued(self->jobs));
    sw_engine_want(self, job);
    return SL_OK;
}

sl_err sw_fence(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_env *env = self->env;
    sl_metric_add(env->metrics, self->metrics.fences, 1);
    /* Claims that ended need no more: they do not stand, so no later slice writes to them, and none
     * is in progress now. */
    if (msg->body.fence.items.count == 0) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_CANCELLED, "the op was fenced");
        uint32_t cursor = 0;
        for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
            if (sw_job_is_before(job, msg)) {
                sw_job_answer(self, job, SL_ERR_CANCELLED, &why);
            }
        }
        if (msg->op_id != 0) {
            sw_jobs_fence(self->jobs, msg);
        }
    }
    sl_trace_event(env->metrics, env->now_ns, msg->trace_id, "fence", "",
                   (uint32_t)msg->body.fence.items.count);
    sl_reply_code(env, msg, SL_OK, NULL);
    return SL_OK;
}

void sw_copies_tick(struct swapper *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    uint32_t cursor = 0;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->back.deadline_ns > now_ns) {
            next_ns = SL_MIN(next_ns, job->back.deadline_ns);
            continue;
        }
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_TIMEOUT, "deadline passed with %u of %u parts copied",
                      job->done_count, job->item_count);
        sw_job_answer(self, job, SL_ERR_TIMEOUT, &why);
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}
