/* actors/swapper/copy.c - COPY and FENCE. Copies run in slices, so that a large COPY delays no
 * FENCE or cancel. The end of a COPY waits for its slices in flight: a millisecond or two. */
#include "actors/swapper/internal.h"
#include "ipc/shm/sl_index.h"

#include <inttypes.h>
#include <stdlib.h>

#define CHUNK_BYTES_MAX (8 * SL_MIB) /* of hashes in an answer, by the message table */
/* A swapper that is never idle does idle work once in this many slices, so that copies get fast. */
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
    sl_reply_route_send(self->env, &job->back, &reply);
}

void sw_job_answer(struct swapper *self, struct sw_job *job, sl_err code,
                   const struct sl_error *why)
{
    struct sl_env *env = self->env;
    if (job->slices > 0) { /* the device uses its memory until then */
        sw_slices_end(self, true);
    }
    if (self->memory.device->moves_pending) { /* the GPU hangs: a repeated request gets the next
                                                 swapper's answer */
        return;
    }
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
    sl_metric_add(env->metrics,
                  job->looks ? self->metrics.looked
                  : job->out ? self->metrics.parts_out
                             : self->metrics.parts_in,
                  job->done_count);
    sl_metric_add(env->metrics,
                  job->looks ? self->metrics.looked_bytes
                  : job->out ? self->metrics.bytes_out
                             : self->metrics.bytes_in,
                  job->bytes);
    sw_event_close(self, job);
    job_send_answer(self, job);
    sw_jobs_end(self->jobs, job);
    sl_metric_set(env->metrics, self->metrics.queued, sw_jobs_queued(self->jobs));
}

static sl_err view_follow(struct swapper *self, struct sl_error *why)
{
    sl_err err = sl_index_view_follow(self->env->paths->shm_dir, &self->view, why);
    /* A missing shm file is the node's fault, not the caller's. */
    return err == SL_ERR_NOT_FOUND
               ? sl_fail(why, SL_ERR_UNREACHABLE, "the node has no shm file 'index'")
               : err;
}

/* ---- copying ---- */

static sl_err item_layers_check(const struct sl_item_piece *item, const struct sw_part *part,
                                uint32_t number, struct sl_error *why)
{
    bool all = item->first_layer == 0 && item->layer_end == 0;
    return all || (item->first_layer < item->layer_end && item->layer_end <= part->layer_count)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID,
                         "items[%u].layer_end: layers %" PRIu64 " to %" PRIu64 " of %u", number,
                         item->first_layer, item->layer_end, part->layer_count);
}

static sl_err item_part_check(const struct swapper *self, const struct sw_engine *engine,
                              const struct sl_item_piece *item, uint32_t number,
                              struct sl_error *why)
{
    if (sw_item_part(engine, item) != NULL) {
        return SL_OK;
    }
    if (item->pool < SW_POOLS_MAX && engine->pools[item->pool].part_count > 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "items[%u].part: engine %" PRIu64 " has no part %" PRIu64 " of pool %" PRIu64
                       " on rank %" PRIu64,
                       number, engine->engine_id, item->part, item->pool, self->rank);
    }
    return sl_fail(why, SL_ERR_INVALID,
                   "items[%u].pool: engine %" PRIu64 " has no pool %" PRIu64 " on rank %" PRIu64,
                   number, engine->engine_id, item->pool, self->rank);
}

/* Allocates the hashes of the answer. */
static sl_err job_chunks(struct sw_job *job, const struct sw_engine *engine, struct sl_error *why)
{
    for (uint32_t i = 0; i < job->item_count; i++) {
        job->chunk_bytes += sw_item_span(engine, &job->items[i]).count * sizeof(uint64_t);
    }
    if (job->chunk_bytes > CHUNK_BYTES_MAX) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_LIMIT, "more than %" PRIu64 " bytes of hashes were requested",
                       CHUNK_BYTES_MAX);
    }
    job->chunks = calloc(1, SL_MAX(job->chunk_bytes, UINT64_C(1)));
    if (job->chunks == NULL) {
        job->chunk_bytes = 0;
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for hashes");
    }
    return SL_OK;
}

/* Checks everything that slices rely on; refuses the whole COPY before any byte is touched. */
static sl_err job_check(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                        struct sl_error *why)
{
    sl_err err = view_follow(self, why);
    err = err == SL_OK && !job->looks && job->item_count > 0 ? sw_arena(&self->memory, why) : err;
    for (uint32_t i = 0; err == SL_OK && i < job->item_count; i++) {
        const struct sl_item_piece *item = &job->items[i];
        err = item_part_check(self, engine, item, i, why);
        if (err != SL_OK) {
            return err;
        }
        const struct sw_part *part = sw_item_part(engine, item);
        if (item->device_block >= part->block_count) {
            return sl_fail(why, SL_ERR_INVALID, "items[%u].device_block: %" PRIu64 " of %" PRIu64,
                           i, item->device_block, part->block_count);
        }
        if (item->length_bytes != part->value_bytes) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].length_bytes: %" PRIu64 ", parts of the pool have %" PRIu64,
                           i, item->length_bytes, part->value_bytes);
        }
        err = item_layers_check(item, part, i, why);
        if (err != SL_OK) {
            return err;
        }
        if (job->looks) {
            continue; /* it uses no arena */
        }
        if (item->arena != 0 ||
            sl_arena_at(self->memory.arena, item->offset_bytes, item->length_bytes) == NULL) {
            return sl_fail(why, SL_ERR_INVALID,
                           "items[%u].offset_bytes: %" PRIu64
                           " is not within a chunk of arena %" PRIu64,
                           i, item->offset_bytes, item->arena);
        }
    }
    return err == SL_OK && job->chunked ? job_chunks(job, engine, why) : err;
}

/* Checks the job before its first slice, then starts its next one. */
static sl_err job_slice(struct swapper *self, struct sw_job *job, struct sw_engine *engine,
                        uint64_t *bytes, struct sl_error *why)
{
    struct sl_env *env = self->env;
    if (job->back.deadline_ns <= env->now_ns) {
        return sl_fail(why, SL_ERR_TIMEOUT, "deadline passed with %u of %u parts copied",
                       job->done_count, job->item_count);
    }
    if (!job->checked) {
        sl_err err = job_check(self, job, engine, why);
        if (err != SL_OK) {
            return err;
        }
        job->checked = true;
        sl_trace_event(env->metrics, env->now_ns, job->back.trace_id,
                       job->out ? "copy out" : "copy in", job->back.to, job->item_count);
    }
    engine->used_ns = env->now_ns;
    if (job->next_item == job->item_count) {
        *bytes = sw_verify_begin(self, job, engine, why);
        return SL_OK;
    }
    return sw_slice_begin(self, job, engine, bytes, why);
}

/* The queued job whose turn is next, with work to start, a mapped engine, and no event to wait
 * for. */
static struct sw_job *job_next(struct swapper *self, struct sw_engine **engine)
{
    struct sw_job *next = NULL;
    uint32_t cursor = 0;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        struct sw_engine *its = sw_engine_find(self, job->engine_id);
        bool moves = job->code == SL_OK && (!job->checked || job->next_item < job->item_count);
        if ((moves || sw_verify_left(self, job)) && its != NULL && its->state == SW_ENGINE_READY &&
            job->event_state == SW_EVENT_OVER && (next == NULL || job->turn < next->turn)) {
            next = job;
            *engine = its;
        }
    }
    return next;
}

/* Delays the next slice by swap_rate. */
static void pace(struct swapper *self, uint64_t bytes)
{
    uint64_t rate = sl_config_u64(self->env->config, SL_SET_swap_rate);
    if (rate > 0) {
        double pause_ns = (double)bytes / (double)rate * (double)SL_NS_PER_S;
        self->paced_ns =
            sl_deadline_ns(SL_MAX(self->paced_ns, self->env->now_ns), (uint64_t)pause_ns);
    }
}

/* Starts a slice of the job; an error ends the job. */
static void job_turn(struct swapper *self, struct sw_job *job, struct sw_engine *engine)
{
    struct sl_error why = {0};
    uint64_t bytes = 0;
    sl_err err = job_slice(self, job, engine, &bytes, &why);
    pace(self, bytes);
    sw_jobs_turn(self->jobs, job);
    if (err != SL_OK) {
        sw_job_answer(self, job, err, &why);
    }
}

/* Answers jobs that have nothing left to move or verify, or that failed. */
static void jobs_answer(struct swapper *self)
{
    uint32_t cursor = 0;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        bool whole = job->checked && job->next_item == job->item_count;
        if (job->slices > 0 || (!whole && job->code == SL_OK)) {
            continue;
        }
        if (sw_verify_left(self, job)) {
            continue;
        }
        sw_job_answer(self, job, job->code, NULL);
    }
}

sl_err sw_step(struct swapper *self)
{
    struct sl_env *env = self->env;
    struct sw_engine *engine = NULL;
    sw_slices_end(self, false);
    jobs_answer(self);
    uint64_t event_ns = SL_NEVER_NS;
    sl_err asked = sw_events_ask(self, &event_ns);
    self->fatal = self->fatal == SL_OK ? asked : self->fatal;
    struct sw_job *job = job_next(self, &engine);
    bool begins = job != NULL && env->now_ns >= self->paced_ns;
    bool idle = job == NULL;
    if (begins) {
        job_turn(self, job, engine);
        idle = ++self->turns % IDLE_TURNS == 0;
    }
    /* With work left, two slices are in flight. Otherwise new jobs are looked for once more before
     * the last slice is waited for. */
    sw_slices_end(self, !begins);
    jobs_answer(self);
    sw_memory_publish(&self->memory);
    job = job_next(self, &engine);
    if (idle && sw_memory_unpin_due(&self->memory)) {
        sw_slices_end(self, true);
        jobs_answer(self);
    }
    if (idle && self->fatal == SL_OK) {
        self->fatal = sw_memory_idle(&self->memory);
    }
    if (job != NULL) {
        env->ops->wake_at(env, SL_MAX(env->now_ns, self->paced_ns));
    }
    if (self->slice_count > 0) {
        env->ops->wake_at(env, env->now_ns);
    }
    if (event_ns != SL_NEVER_NS) {
        env->ops->wake_at(env, event_ns);
    }
    if (self->draining && sw_jobs_queued(self->jobs) == 0) {
        env->ops->finish(env);
    }
    return self->fatal;
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
    uint64_t event_bytes = msg->body.copy.event.length;
    if (err == SL_OK && event_bytes != 0 && event_bytes != SL_EVENT_BYTES) {
        err = sl_fail(&why, SL_ERR_INVALID, "event: %" PRIu64 " bytes are no handle", event_bytes);
    }
    if (err == SL_OK && self->draining) {
        err = sl_fail(&why, SL_ERR_DRAINING, "the swapper accepts no more copies");
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
    sw_slices_end(self, true);
    jobs_answer(self);
    if (self->fatal != SL_OK) {
        return self->fatal; /* slices may still run: the next swapper answers */
    }
    /* A FENCE with claims needs no more: these claims are not valid, so no later slice writes to
     * them, and none is in flight. */
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
    sw_slices_end(self, false);
    jobs_answer(self);
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->code != SL_OK) { /* answered when its slices are done */
            continue;
        }
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
