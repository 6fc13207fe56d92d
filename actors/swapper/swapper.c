/* actors/swapper/swapper.c - the actor contract of the swapper; makes and drops memory of pools. */
#include "actors/swapper/swapper.h"

#include "actors/swapper/gpu.h"
#include "actors/swapper/internal.h"
#include "ipc/shm/sl_index.h"

#include <inttypes.h>
#include <stdlib.h>

#define DAMAGED_MAX 64u /* reports to the registrar in flight */

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(swapper, metrics.copies, "copies"),
    SL_METRIC_ROW(swapper, metrics.refused, "copies_refused"),
    SL_METRIC_ROW(swapper, metrics.repeated, "copies_repeated"),
    SL_METRIC_ROW(swapper, metrics.parts_out, "parts_out"),
    SL_METRIC_ROW(swapper, metrics.parts_in, "parts_in"),
    SL_METRIC_ROW(swapper, metrics.bytes_out, "out_bytes"),
    SL_METRIC_ROW(swapper, metrics.bytes_in, "in_bytes"),
    SL_METRIC_ROW(swapper, metrics.claims_gone, "claims_gone"),
    SL_METRIC_ROW(swapper, metrics.verified, "parts_verified"),
    SL_METRIC_ROW(swapper, metrics.verified_bytes, "verified_bytes"),
    SL_METRIC_ROW(swapper, metrics.looked, "parts_looked_at"),
    SL_METRIC_ROW(swapper, metrics.looked_bytes, "looked_at_bytes"),
    SL_METRIC_ROW(swapper, metrics.corrupt, "parts_corrupt"),
    SL_METRIC_ROW(swapper, metrics.damaged, "values_damaged"),
    SL_METRIC_ROW(swapper, metrics.fences, "fences"),
    SL_METRIC_ROW(swapper, metrics.queued, "copies_queued"),
    SL_METRIC_ROW(swapper, metrics.engines_mapped, "engines_mapped"),
    SL_METRIC_ROW(swapper, metrics.pools_made, "pools_made"),
    SL_METRIC_ROW(swapper, metrics.pool_bytes, "pool_bytes"),
    SL_METRIC_ROW(swapper, metrics.exports, "memory_exports"),
    SL_METRIC_ROW(swapper, memory.pinned, "pinned_bytes"),
    SL_METRIC_ROW(swapper, memory.bounced, "bounced_bytes"),
    SL_METRIC_ROW(swapper, memory.copies, "dma_copies"),
    SL_METRIC_ROW(swapper, memory.batches, "dma_batches"),
    SL_METRIC_ROW(swapper, memory.kernels, "kernels"),
    SL_METRIC_ROW(swapper, memory.drains, "drains"),
    SL_METRIC_ROW(swapper, memory.computes, "engine_computes"),
    SL_METRIC_ROW(swapper, memory.threads, "copy_threads"),
};

/* The page outlives this process, so gauges are set, not incremented. */
static void pools_gauge(struct swapper *self)
{
    sl_metric_set(self->env->metrics, self->metrics.pools_made, sw_pools_made(&self->pools));
    sl_metric_set(self->env->metrics, self->metrics.pool_bytes, sw_pools_bytes(&self->pools));
}

static sl_err swapper_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct swapper *self = state;
    self->env = env;
    self->rank = sl_config_u64(env->config, SL_SET_rank);
    self->engine_count = (uint32_t)sl_config_u64(env->config, SL_SET_engines_max);
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    self->engines = calloc(self->engine_count, sizeof(*self->engines));
    if (self->engines == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u engines", self->engine_count);
    }
    sw_engines_gauge(self);
    pools_gauge(self);
    sw_verify_init(self);
    sl_err err = sw_jobs_create(&self->jobs, why);
    if (err == SL_OK) {
        err = sl_calls_create(env, 2 * self->engine_count + DAMAGED_MAX, &self->calls, why);
    }
    if (err == SL_OK) {
        err = sw_memory_open(&self->memory, env, self->rank, why);
    }
    return err;
}

/* ---- messages ---- */

static sl_err pool_make(struct swapper *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_make *body = &msg->body.pool_make;
    struct sl_memory_handle handle = {0};
    struct sl_error why = {0};
    struct sl_msg reply = {.code = SL_OK};
    uint32_t before = sw_pools_made(&self->pools);
    sl_err err = self->draining ? sl_fail(&why, SL_ERR_DRAINING, "the swapper makes no more memory")
                                : sw_exports_open(&self->exports, self->env, &why);
    if (err == SL_OK) {
        err = sw_pool_make(&self->pools, self->memory.device, body->epoch, body->length_bytes,
                           &handle, &why);
    }
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, msg->trace_id, "pool %s/%s not made: %s",
                     body->name.at, body->pool.at, why.text);
        sl_reply_code(self->env, msg, err, &why);
        return SL_OK;
    }
    if (sw_pools_made(&self->pools) > before) {
        pools_gauge(self);
        sl_log_write(self->env->log, SL_LOG_INFO, msg->trace_id,
                     "pool %s/%s made: %" PRIu64 " bytes", body->name.at, body->pool.at,
                     body->length_bytes);
    }
    reply.body.pool_make_reply.handle_kind = handle.kind;
    reply.body.pool_make_reply.pid = self->env->self.pid;
    reply.body.pool_make_reply.fd = handle.fd < 0 ? 0 : (uint64_t)handle.fd;
    reply.body.pool_make_reply.inode = handle.inode;
    if (sw_gpu_is(self->memory.device)) {
        reply.body.pool_make_reply.gpu = (struct sl_bytes){
            .at = self->memory.device->gpu, .length = sizeof(self->memory.device->gpu)};
    }
    if (handle.kind == SL_MEMORY_CUDA_IPC) {
        reply.body.pool_make_reply.handle =
            (struct sl_bytes){.at = handle.ipc, .length = sizeof(handle.ipc)};
    }
    sl_reply(self->env, msg, &reply);
    return SL_OK;
}

/* No slice touches memory that is unmapped here. */
static sl_err pool_drop(struct swapper *self, const struct sl_msg *msg)
{
    sw_slices_end(self, true);
    if (self->fatal != SL_OK) {
        return self->fatal;
    }
    uint64_t epoch = msg->body.pool_drop.epoch;
    sw_engines_revoke(self, epoch);
    (void)sw_pool_drop(&self->pools, self->memory.device, epoch);
    pools_gauge(self);
    sl_reply_code(self->env, msg, SL_OK, NULL);
    return SL_OK;
}

/* After the answer the engine may unmap the memory, or reuse it. */
static sl_err engine_over(struct swapper *self, const struct sl_msg *msg)
{
    sw_slices_end(self, true);
    if (self->fatal != SL_OK) {
        return self->fatal;
    }
    sw_engine_over(self, msg->body.engine_over.engine_id);
    sl_reply_code(self->env, msg, SL_OK, NULL);
    return SL_OK;
}

static sl_err damaged_answered(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_call call;
    (void)sl_calls_match(self->calls, msg, &call);
    return SL_OK;
}

static sl_err engine_died(struct swapper *self, const struct sl_msg *msg)
{
    sw_engine_died(self, &msg->body.local_died);
    return SL_OK;
}

/* A result other than SL_OK ends the actor. */
static const struct {
    uint32_t type;
    sl_err (*handle)(struct swapper *self, const struct sl_msg *msg);
} handlers[] = {
    {SL_MSG_COPY, sw_copy},
    {SL_MSG_FENCE, sw_fence},
    {SL_MSG_POOL_MAKE, pool_make},
    {SL_MSG_POOL_DROP, pool_drop},
    {SL_MSG_POOL_EXPORT, sw_pool_export},
    {SL_MSG_ENGINE_OVER, engine_over},
    {SL_MSG_ENGINE_GET_REPLY, sw_engine_answered},
    {SL_MSG_DAMAGED_REPLY, damaged_answered},
    {SL_MSG_LOCAL_DIED, engine_died},
};

static sl_err swapper_handle(void *state, const struct sl_msg *msg)
{
    struct swapper *self = state;
    for (size_t i = 0; i < SL_COUNT(handlers); i++) {
        if (handlers[i].type == msg->type) {
            sl_err err = handlers[i].handle(self, msg);
            return err == SL_OK ? sw_step(self) : err;
        }
    }
    if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_IO) {
        sl_reply_code(self->env, msg, SL_ERR_UNSUPPORTED, NULL);
    }
    return SL_OK;
}

/* ---- time ---- */

static sl_err swapper_tick(void *state, uint64_t now_ns)
{
    struct swapper *self = state;
    sw_engines_unanswered(self, now_ns);
    sw_copies_tick(self, now_ns);
    sw_engines_check(self, now_ns);
    sw_exports_tick(self);
    return sw_step(self);
}

static void swapper_drain(void *state)
{
    struct swapper *self = state;
    self->draining = true;
    if (sw_jobs_queued(self->jobs) == 0) {
        self->env->ops->finish(self->env);
    }
}

static void swapper_fini(void *state)
{
    struct swapper *self = state;
    sw_exports_close(&self->exports);
    sw_events_fini(self);
    sw_engines_fini(self);
    sw_pools_fini(&self->pools, self->memory.device);
    sw_memory_close(&self->memory);
    sl_calls_destroy(&self->calls);
    sw_jobs_destroy(&self->jobs);
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
