/* actors/swapper/registrations.c - the engines known here: requested from the registrar, mapped
 * while COPYs need them, dropped when their process or registration ends. */
#include "actors/swapper/gpu.h"
#include "actors/swapper/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Interval of checks of an idle engine's registration, and of any team rank's. Ended ones are
 * unmapped. */
#define ENGINE_CHECK_NS (2 * SL_NS_PER_S)

struct sw_engine *sw_engine_find(struct swapper *self, uint64_t engine_id)
{
    for (uint32_t i = 0; i < self->engine_count; i++) {
        if (self->engines[i].state != SW_ENGINE_FREE && self->engines[i].engine_id == engine_id) {
            return &self->engines[i];
        }
    }
    return NULL;
}

void sw_engines_gauge(struct swapper *self)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        count += self->engines[i].state == SW_ENGINE_READY;
    }
    sl_metric_set(self->env->metrics, self->metrics.engines_mapped, count);
}

static void engine_forget(struct swapper *self, struct sw_engine *engine)
{
    struct sl_proc_id proc = engine->proc;
    bool shared = false;
    sl_calls_drop(self->calls, engine->call_seq); /* its answer may be outdated */
    (void)sw_exports_end(self->exports, engine->engine_id, self->env->now_ns);
    sw_engine_unmap(self->memory.device, engine);
    *engine = (struct sw_engine){0};
    sw_engines_gauge(self);
    for (uint32_t i = 0; i < self->engine_count; i++) {
        shared |= self->engines[i].state == SW_ENGINE_READY &&
                  sl_proc_id_equal(self->engines[i].proc, proc);
    }
    if (proc.pid != 0 && !shared) {
        self->env->ops->unwatch(self->env, proc);
    }
}

/* Ends all queued jobs of an engine and forgets it. */
static void engine_end(struct swapper *self, struct sw_engine *engine, sl_err code,
                       const struct sl_error *why)
{
    uint32_t cursor = 0;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->engine_id == engine->engine_id) {
            sw_job_answer(self, job, code, why);
        }
    }
    engine_forget(self, engine);
}

static bool engine_has_jobs(struct swapper *self, uint64_t engine_id)
{
    uint32_t cursor = 0;
    for (const struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        if (job->engine_id == engine_id) {
            return true;
        }
    }
    return false;
}

/* A free slot, or that of the mapped engine that was idle longest. NULL: all are in use. */
static struct sw_engine *engine_slot(struct swapper *self)
{
    struct sw_engine *oldest = NULL;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sw_engine *engine = &self->engines[i];
        if (engine->state == SW_ENGINE_FREE) {
            return engine;
        }
        if (engine->state == SW_ENGINE_READY &&
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

static sl_err engine_ask(struct swapper *self, struct sw_engine *engine, uint64_t trace_id)
{
    struct sl_env *env = self->env;
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET, .trace_id = trace_id};
    msg.body.engine_get.engine_id = engine->engine_id;
    engine->asked_ns = env->now_ns;
    sl_calls_drop(self->calls, engine->call_seq);
    engine->call_seq = 0;
    return sl_calls_send(self->calls, "registrar", &msg,
                         sl_deadline_ns(env->now_ns, sl_config_u64(env->config, SL_SET_op_timeout)),
                         engine->engine_id, &engine->call_seq);
}

/* Maps the engine of an answer. Waiting jobs continue, or end with the error. */
static sl_err engine_map(struct swapper *self, struct sw_engine *engine,
                         const struct sl_body_engine_get_reply *body)
{
    struct sl_env *env = self->env;
    struct sl_error why = {0};
    struct sl_proc_id proc = {.pid = (uint32_t)body->pid, .start_time = body->start_time};
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < body->regions.count && err == SL_OK; i++) {
        if (sw_pool_is_over(&self->pools, body->regions.at[i].pool_epoch)) {
            err = sl_fail(&why, SL_ERR_NOT_FOUND, "region %" PRIu64 ": its memory was revoked", i);
        }
    }
    if (err == SL_OK) {
        err = sw_gpu_check(self->memory.device, body, self->rank, &why);
    }
    if (err == SL_OK) {
        struct sw_mapper mapper = {.device = self->memory.device, .metrics = env->metrics};
        err = sw_engine_map(&mapper, body, self->rank, engine, &why);
    }
    bool watched = false;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        watched |= self->engines[i].state == SW_ENGINE_READY &&
                   sl_proc_id_equal(self->engines[i].proc, proc);
    }
    if (err == SL_OK && !watched) {
        /* Watched after mapping: if the process died meanwhile that is reported at once, so no
         * descriptor of a later process with its number stays mapped. */
        err = env->ops->watch(env, proc, engine->engine_id);
        if (err != SL_OK) {
            (void)sl_fail(&why, err, "engine process %u cannot be watched", proc.pid);
        }
    }
    if (err != SL_OK) {
        engine_end(self, engine, err, &why);
        return sl_err_class(err) == SL_CLASS_RESTART ? err : SL_OK;
    }
    engine->state = SW_ENGINE_READY;
    engine->proc = proc;
    engine->team = body->team != 0;
    engine->used_ns = env->now_ns;
    sw_engines_gauge(self);
    sl_log_write(env->log, SL_LOG_INFO, 0,
                 "engine %" PRIu64 " of process %u mapped: %u memory handles", engine->engine_id,
                 proc.pid, engine->mapping_count);
    return SL_OK;
}

sl_err sw_engine_answered(struct swapper *self, const struct sl_msg *msg)
{
    struct sl_call call;
    if (!sl_calls_match(self->calls, msg, &call)) {
        return SL_OK;
    }
    struct sw_engine *engine = sw_engine_find(self, call.cookie);
    if (engine == NULL) {
        return SL_OK;
    }
    engine->asked_ns = self->env->now_ns;
    engine->call_seq = 0;
    if (msg->code == SL_OK && engine->state == SW_ENGINE_ASKED) {
        return engine_map(self, engine, &msg->body.engine_get_reply);
    }
    if (msg->code == SL_ERR_NOT_FOUND || engine->state == SW_ENGINE_ASKED) {
        struct sl_error why = {0};
        if (msg->code != SL_OK) {
            (void)sl_fail(&why, msg->code, "engine %" PRIu64 ": %s", call.cookie,
                          msg->text.length > 0 ? msg->text.at : sl_err_text(msg->code));
        }
        engine_end(self, engine, msg->code, &why);
    }
    return SL_OK;
}

void sw_engine_died(struct swapper *self, const struct sl_body_local_died *died)
{
    struct sl_proc_id proc = {.pid = (uint32_t)died->pid, .start_time = died->start_time};
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sw_engine *engine = &self->engines[i];
        if (engine->state == SW_ENGINE_READY && sl_proc_id_equal(engine->proc, proc)) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_NOT_FOUND, "engine %" PRIu64 ": its process %u is gone",
                          engine->engine_id, proc.pid);
            engine_end(self, engine, SL_ERR_NOT_FOUND, &why);
        }
    }
}

/* Also drops one that was only requested: its answer is ignored, even if it is requested again. */
void sw_engine_over(struct swapper *self, uint64_t engine_id)
{
    struct sw_engine *engine = sw_engine_find(self, engine_id);
    if (engine != NULL) {
        struct sl_error why = {0};
        (void)sl_fail(&why, SL_ERR_NOT_FOUND, "engine %" PRIu64 ": its registration ended",
                      engine_id);
        engine_end(self, engine, SL_ERR_NOT_FOUND, &why);
    }
}

void sw_engines_revoke(struct swapper *self, uint64_t epoch)
{
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sw_engine *engine = &self->engines[i];
        if (engine->state == SW_ENGINE_READY && sw_engine_is_of(engine, epoch)) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_NOT_FOUND, "engine %" PRIu64 ": its memory was revoked",
                          engine->engine_id);
            engine_end(self, engine, SL_ERR_NOT_FOUND, &why);
        }
    }
}

/* Requests an engine that is not known here. */
static sl_err engine_begin(struct swapper *self, struct sw_engine *engine, uint64_t engine_id,
                           uint64_t trace_id, struct sl_error *why)
{
    *engine = (struct sw_engine){.state = SW_ENGINE_ASKED, .engine_id = engine_id};
    sl_err err = engine_ask(self, engine, trace_id);
    if (err != SL_OK) {
        (void)sl_fail(why, err, "engine %" PRIu64 " could not be requested", engine_id);
        engine_end(self, engine, err, why);
    }
    return err;
}

void sw_engine_want(struct swapper *self, struct sw_job *job)
{
    struct sl_error why = {0};
    /* Waiting jobs end at their deadline, even without an answer. */
    self->env->ops->wake_at(self->env, job->back.deadline_ns);
    if (sw_engine_find(self, job->engine_id) != NULL) {
        return;
    }
    struct sw_engine *engine = engine_slot(self);
    if (engine == NULL) {
        sl_err err = sl_fail(&why, SL_ERR_LIMIT, "%u engines are in use", self->engine_count);
        sw_job_answer(self, job, err, &why);
        return;
    }
    (void)engine_begin(self, engine, job->engine_id, job->back.trace_id, &why); /* ends its jobs */
}

sl_err sw_engine_ready(struct swapper *self, uint64_t engine_id, uint64_t trace_id,
                       struct sw_engine **out, struct sl_error *why)
{
    struct sw_engine *engine = sw_engine_find(self, engine_id);
    if (engine != NULL && engine->state == SW_ENGINE_READY) {
        *out = engine;
        return SL_OK;
    }
    sl_err err = SL_OK;
    if (engine == NULL) {
        engine = engine_slot(self);
        err = engine != NULL
                  ? engine_begin(self, engine, engine_id, trace_id, why)
                  : sl_fail(why, SL_ERR_LIMIT, "%u engines are in use", self->engine_count);
    }
    return err != SL_OK
               ? err
               : sl_fail(why, SL_ERR_BUSY, "engine %" PRIu64 " is being mapped", engine_id);
}

void sw_engines_unanswered(struct swapper *self, uint64_t now_ns)
{
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        struct sw_engine *engine = sw_engine_find(self, call.cookie);
        if (engine != NULL) {
            engine->call_seq = 0;
        }
        if (engine == NULL || engine->state != SW_ENGINE_ASKED) {
            continue; /* an idle one is checked again later */
        }
        if (!engine_has_jobs(self, engine->engine_id) || engine_ask(self, engine, 0) != SL_OK) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_TIMEOUT, "engine %" PRIu64 ": the registrar does not answer",
                          engine->engine_id);
            engine_end(self, engine, SL_ERR_TIMEOUT, &why);
        }
    }
}

void sw_engines_check(struct swapper *self, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sw_engine *engine = &self->engines[i];
        if (engine->state != SW_ENGINE_READY) {
            continue;
        }
        uint64_t since_ns =
            engine->team ? engine->asked_ns : SL_MAX(engine->used_ns, engine->asked_ns);
        uint64_t due_ns = sl_deadline_ns(since_ns, ENGINE_CHECK_NS);
        if (due_ns <= now_ns) {
            (void)engine_ask(self, engine, 0); /* if no call is free: next time */
            due_ns = sl_deadline_ns(now_ns, ENGINE_CHECK_NS);
        }
        next_ns = SL_MIN(next_ns, due_ns);
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
}

void sw_engines_fini(struct swapper *self)
{
    for (uint32_t i = 0; self->engines != NULL && i < self->engine_count; i++) {
        if (self->engines[i].state == SW_ENGINE_READY) {
            sw_engine_unmap(self->memory.device, &self->engines[i]);
        }
    }
    free(self->engines);
}
