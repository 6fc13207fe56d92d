/* actors/coordinator/coordinator.c - the actor contract: dispatches messages, answers and ticks. */
#include "actors/coordinator/coordinator.h"
#include "actors/coordinator/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS_RING_COUNT 8192u

/* Called in this order: layers are handled before hand-overs. */
static const struct co_feature *const features[] = {
    &co_layers_feature,   &co_handover_feature, &co_accounts, &co_op_trace_feature,
    &co_sessions_feature, &co_wait_feature,     NULL};

#define CO_METRIC(field, name) SL_METRIC_ROW(coordinator, metric.field, name),
static const struct sl_metric_row metric_rows[] = {
    CO_METRICS SL_HISTOGRAM_ROW(coordinator, metric.store_ns, "store_ns"),
    SL_HISTOGRAM_ROW(coordinator, metric.load_ns, "load_ns"),
    SL_HISTOGRAM_ROW(coordinator, metric.handover_ns, "handover_ns"),
};

static sl_err pins_make(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    struct sl_pins_options options = {
        .shm_dir = self->env->paths->shm_dir,
        .name = self->env->name,
        .slot_count = (uint32_t)sl_config_u64(config, SL_SET_client_pins_max),
        .access_count = ACCESS_RING_COUNT,
        .self = self->env->self,
        .pinned_bytes_max = sl_config_u64(config, SL_SET_memory) / 2,
    };
    return sl_pins_create(&options, &self->pins, why);
}

static sl_err coordinator_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct coordinator *self = state;
    self->env = env;
    self->features = features;
    self->rank_count = (uint32_t)sl_config_u64(env->config, SL_SET_ranks);
    self->logs_loads = sl_config_bool(env->config, SL_SET_load_log);
    self->keeps = sl_config_bool(env->config, SL_SET_cache_remote_loads);
    self->pulls = sl_config_bool(env->config, SL_SET_fabric_pools) &&
                  strcmp(sl_config_text(env->config, SL_SET_fabric), "off") != 0;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    sl_err err = co_engines_init(self, why);
    if (err == SL_OK) {
        err = co_ops_init(self, why);
    }
    for (size_t i = 0; features[i] != NULL; i++) {
        err = err == SL_OK && features[i]->init != NULL ? features[i]->init(self, why) : err;
    }
    if (err == SL_OK) {
        /* An op has one call, or one per rank; an ABORT may outlive it. */
        uint32_t call_count = self->op_max * (4 + self->rank_count) + self->engine_max +
                              4 * self->handover_max + CO_RANKS_MAX + 1 + CO_SESSION_CALLS;
        err = sl_calls_create(env, call_count, &self->calls, why);
    }
    if (err == SL_OK) {
        err = pins_make(self, why);
    }
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        struct co_rank *worker = &self->ranks[rank];
        (void)snprintf(worker->name, sizeof(worker->name), "%s.%u",
                       rank == CO_TRANSPORTER ? "transporter" : "swapper", rank % CO_TRANSPORTER);
        if (err == SL_OK && rank < self->rank_count) {
            co_rank_greet(self, rank);
        }
    }
    self->greeted_from_ns = env->now_ns;
    if (err == SL_OK && self->pulls) {
        co_rank_greet(self, CO_TRANSPORTER);
    } else if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0,
                     "no direct hand-overs: fabric is off, or fabric_pools is false");
    }
    return err;
}

/* ---- the registrar ---- */

/* An answer to this process's HELLO, which names our pins: the registrar must know them before we
 * rely on them. Each heartbeat has one, so new processes of ranks are also looked up here. */
static void hello_answered(struct coordinator *self, const struct sl_msg *reply)
{
    self->pins_known = reply->code == SL_OK;
    if (!self->pins_known) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "the registrar does not accept our pins, loads wait: %s", co_why(reply));
    }
    for (uint32_t rank = 0; rank < self->rank_count; rank++) {
        co_rank_identify(self, rank);
    }
    if (self->pulls) {
        co_rank_identify(self, CO_TRANSPORTER);
    }
}

/* ---- messages ---- */

static void op_answered(struct coordinator *self, struct co_op *op, uint32_t place,
                        const struct sl_msg *reply)
{
    (void)place;
    const struct co_phase_ops *phase = &op->type->phases[op->phase];
    op->call_seq = 0;
    if (reply == NULL && !phase->unanswered) {
        co_reason(op, "deadline passed %s", co_phase_text(op->phase));
        co_op_end(self, op, SL_ERR_TIMEOUT);
        return;
    }
    SL_ASSERT(phase->reply != NULL); /* an op in another phase has no call of its own */
    phase->reply(self, op, reply);
}

static void call_ended(struct coordinator *self, const struct sl_call *call,
                       const struct sl_msg *reply)
{
    static const struct {
        void (*of_op)(struct coordinator *self, struct co_op *op, uint32_t place,
                      const struct sl_msg *reply);
        void (*other)(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
    } calls[CO_CALLS] = {[CO_CALL_OP] = {.of_op = op_answered},
                         [CO_CALL_COPY] = {.of_op = co_copy_answered},
                         [CO_CALL_FENCE] = {.of_op = co_fence_answered},
                         [CO_CALL_ENGINE] = {.other = co_engine_answered},
                         [CO_CALL_PING] = {.other = co_rank_identified},
                         [CO_CALL_GREET] = {.other = co_rank_greeted},
                         [CO_CALL_HOLD] = {.other = co_handover_hold_ended},
                         [CO_CALL_NOTIFY] = {.other = co_notify_answered},
                         [CO_CALL_HOLD_QUERY] = {.other = co_hold_query_answered},
                         [CO_CALL_PREFETCH] = {.other = co_wait_prefetched},
                         [CO_CALL_SESSION] = {.other = co_sessions_answered}};
    uint32_t index = (uint32_t)call->cookie, place = (uint32_t)(call->cookie >> 32 & 0xffff);
    uint32_t kind = (uint32_t)(call->cookie >> 48);
    if (calls[kind].of_op != NULL) {
        calls[kind].of_op(self, &self->ops[index], place, reply);
    } else if (calls[kind].other != NULL) {
        calls[kind].other(self, index, reply);
    }
}

static void reply_handle(struct coordinator *self, const struct sl_msg *reply)
{
    struct sl_call call;
    if (sl_calls_match(self->calls, reply, &call)) {
        call_ended(self, &call, reply);
        return;
    }
    if (reply->type == SL_MSG_HELLO_REPLY) {
        hello_answered(self, reply);
        return;
    }
    co_count(self, self->metric.late_reply_count, 1);
    if (reply->type == SL_MSG_RESERVE_REPLY && reply->code == SL_OK) {
        co_store_late_grants(self, reply);
    }
}

static void process_died(struct coordinator *self, const struct sl_msg *msg)
{
    co_process_died(self, &msg->body.local_died);
}

static const struct {
    uint32_t type;
    void (*handle)(struct coordinator *self, const struct sl_msg *msg);
} handlers[] = {
    {SL_MSG_STORE, co_op_start},
    {SL_MSG_LOAD, co_op_start},
    {SL_MSG_CANCEL, co_cancel},
    {SL_MSG_OP_FENCED, co_op_fenced},
    {SL_MSG_LAYERS, co_layers_handle},
    {SL_MSG_ARRIVED, co_handover_arrived},
    {SL_MSG_HANDOVER_END, co_handover_end},
    {SL_MSG_SESSION_PAUSE, co_sessions_pause},
    {SL_MSG_SESSION_TURN, co_sessions_turn},
    {SL_MSG_HANDOVER_NOTIFY, co_notify_handle},
    {SL_MSG_TICKET, co_ticket_handle},
    {SL_MSG_LANDED, co_handover_landed},
    {SL_MSG_ENGINE_OVER, co_engine_over},
    {SL_MSG_OP_TRACE, co_op_trace_handle},
    {SL_MSG_LOCAL_DIED, process_died},
};

static sl_err coordinator_handle(void *state, const struct sl_msg *msg)
{
    struct coordinator *self = state;
    if (SL_MSG_IS_REPLY(msg->type)) {
        reply_handle(self, msg);
        return SL_OK;
    }
    for (size_t i = 0; i < SL_COUNT(handlers); i++) {
        if (handlers[i].type == msg->type) {
            handlers[i].handle(self, msg);
            return SL_OK;
        }
    }
    sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED, "a coordinator does not answer %s",
                  sl_msg_name(msg->type));
    return SL_OK;
}

/* ---- time ---- */

static sl_err coordinator_tick(void *state, uint64_t now_ns)
{
    struct coordinator *self = state;
    struct co_op *newer = NULL;
    uint64_t next_ns = SL_NEVER_NS;
    for (size_t i = 0; features[i] != NULL; i++) {
        if (features[i]->tick != NULL) {
            next_ns = SL_MIN(next_ns, features[i]->tick(self, now_ns));
        }
    }
    for (struct co_op *op = self->active_first; op != NULL; op = newer) {
        newer = op->newer;
        co_op_tick(self, op, now_ns);
    }
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        call_ended(self, &call, NULL);
    }
    for (const struct co_op *op = self->active_first; op != NULL; op = op->newer) {
        next_ns = SL_MIN(next_ns, co_op_next_ns(op));
    }
    if (next_ns != SL_NEVER_NS) {
        self->env->ops->wake_at(self->env, next_ns);
    }
    return SL_OK;
}

static void coordinator_drain(void *state)
{
    struct coordinator *self = state;
    self->draining = true;
    if (self->op_active == 0) {
        self->env->ops->finish(self->env);
    }
}

static void coordinator_fini(void *state)
{
    struct coordinator *self = state;
    sl_calls_destroy(&self->calls);
    sl_pins_destroy(&self->pins);
    sl_index_view_close(&self->view);
    sl_labels_close(&self->labels);
    sl_seen_close(&self->seen);
    for (size_t i = 0; features[i] != NULL; i++) { /* their memory returns to the ops' chunks */
        if (features[i]->fini != NULL) {
            features[i]->fini(self);
        }
    }
    co_ops_fini(self);
    co_engines_fini(self);
}

const struct sl_actor sl_coordinator_actor = {
    .role = "coordinator",
    .ranked = false,
    .state_bytes = sizeof(struct coordinator),
    .init = coordinator_init,
    .handle = coordinator_handle,
    .tick = coordinator_tick,
    .drain = coordinator_drain,
    .fini = coordinator_fini,
};
