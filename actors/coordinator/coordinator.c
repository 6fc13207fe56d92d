/* actors/coordinator/coordinator.c - the actor contract: dispatch of messages, answers and time. */
#include "actors/coordinator/coordinator.h"
#include "actors/coordinator/internal.h"
#include "actors/coordinator/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS_RING_COUNT 8192u

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(coordinator, metric.store_count, "stores"),
    SL_METRIC_ROW(coordinator, metric.load_count, "loads"),
    SL_METRIC_ROW(coordinator, metric.op_failed_count, "ops_failed"),
    SL_METRIC_ROW(coordinator, metric.op_timeout_count, "ops_timed_out"),
    SL_METRIC_ROW(coordinator, metric.op_cancelled_count, "ops_cancelled"),
    SL_METRIC_ROW(coordinator, metric.op_refused_count, "ops_refused"),
    SL_METRIC_ROW(coordinator, metric.repeated_count, "ops_repeated"),
    SL_METRIC_ROW(coordinator, metric.op_active_count, "ops_active"),
    SL_METRIC_ROW(coordinator, metric.late_reply_count, "late_replies"),
    SL_METRIC_ROW(coordinator, metric.zombie_count, "ops_ended_unfenced"),
    SL_METRIC_ROW(coordinator, metric.fence_count, "fences"),
    SL_METRIC_ROW(coordinator, metric.killed_count, "swappers_killed"),
    SL_METRIC_ROW(coordinator, metric.settled_count, "copies_settled"),
    SL_METRIC_ROW(coordinator, metric.ahead_count, "stores_granted_ahead"),
    SL_METRIC_ROW(coordinator, metric.block_stored_count, "blocks_stored"),
    SL_METRIC_ROW(coordinator, metric.block_existed_count, "blocks_existed"),
    SL_METRIC_ROW(coordinator, metric.block_refused_count, "blocks_not_stored"),
    SL_METRIC_ROW(coordinator, metric.block_from_memory_count, "blocks_from_memory"),
    SL_METRIC_ROW(coordinator, metric.block_from_disk_count, "blocks_from_disk"),
    SL_METRIC_ROW(coordinator, metric.block_from_remote_count, "blocks_from_remote"),
    SL_METRIC_ROW(coordinator, metric.block_missed_count, "blocks_missed"),
    SL_METRIC_ROW(coordinator, metric.block_failed_count, "blocks_failed"),
    SL_METRIC_ROW(coordinator, metric.block_seen_count, "blocks_seen"),
    SL_METRIC_ROW(coordinator, metric.stored_bytes, "stored_bytes"),
    SL_METRIC_ROW(coordinator, metric.loaded_bytes, "loaded_bytes"),
    SL_METRIC_ROW(coordinator, metric.promote_count, "parts_promoted"),
    SL_METRIC_ROW(coordinator, metric.fetch_count, "parts_asked_of_nodes"),
    SL_METRIC_ROW(coordinator, metric.pull_count, "parts_pulls_asked"),
    SL_METRIC_ROW(coordinator, metric.pulled_count, "parts_pulled"),
    SL_METRIC_ROW(coordinator, metric.pull_copied_bytes, "pull_copied_bytes"),
    SL_METRIC_ROW(coordinator, metric.pull_refused_count, "pulls_refused"),
    SL_METRIC_ROW(coordinator, metric.promote_gave_up_count, "promotes_given_up"),
    SL_METRIC_ROW(coordinator, metric.pin_limit_count, "pin_limits"),
    SL_METRIC_ROW(coordinator, metric.length_mismatch_count, "length_mismatches"),
    SL_METRIC_ROW(coordinator, metric.client_died_count, "engines_died"),
    SL_METRIC_ROW(coordinator, metric.handover_active_count, "handovers_active"),
    SL_METRIC_ROW(coordinator, metric.handover_committed_count, "handovers_committed"),
    SL_METRIC_ROW(coordinator, metric.handover_consumed_count, "handovers_consumed"),
    SL_METRIC_ROW(coordinator, metric.handover_aborted_count, "handovers_aborted"),
    SL_METRIC_ROW(coordinator, metric.handover_recomputed_count, "handovers_recomputed"),
    SL_METRIC_ROW(coordinator, metric.handover_gone_count, "handovers_gone"),
    SL_METRIC_ROW(coordinator, metric.straight_count, "pushes_straight"),
    SL_METRIC_ROW(coordinator, metric.straight_refused_count, "pushes_straight_refused"),
    SL_METRIC_ROW(coordinator, metric.handover_pushed_count, "handovers_pushed"),
    SL_METRIC_ROW(coordinator, metric.handover_fallback_count, "handovers_fallen_back"),
    SL_METRIC_ROW(coordinator, metric.handover_released_count, "handovers_released_by_peers"),
    SL_METRIC_ROW(coordinator, metric.word_refused_count, "words_refused"),
    SL_METRIC_ROW(coordinator, metric.release_refused_count, "releases_refused"),
    SL_METRIC_ROW(coordinator, metric.layered_count, "ops_by_layers"),
    SL_METRIC_ROW(coordinator, metric.layers_copied_count, "layers_copied"),
    SL_METRIC_ROW(coordinator, pace.not_awaited_count, "blocks_not_waited_for"),
    SL_METRIC_ROW(coordinator, pace.not_awaited_tokens, "tokens_not_waited_for"),
    SL_METRIC_ROW(coordinator, pace.not_awaited_us, "waiting_saved_us"),
    SL_METRIC_ROW(coordinator, pace.soft_missed_count, "soft_deadlines_missed"),
    SL_METRIC_ROW(coordinator, pace.fetch_spared_count, "fetches_spared"),
    SL_HISTOGRAM_ROW(coordinator, metric.store_ns, "store_ns"),
    SL_HISTOGRAM_ROW(coordinator, metric.load_ns, "load_ns"),
    SL_HISTOGRAM_ROW(coordinator, metric.handover_ns, "handover_ns"),
};

static sl_err pins_make(struct coordinator *self, struct sl_error *why)
{
    const struct sl_config *config = self->env->config;
    sl_pins_name(self->env->name, self->pins_name);
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
    self->rank_count = (uint32_t)sl_config_u64(env->config, SL_SET_ranks);
    self->logs_loads = sl_config_bool(env->config, SL_SET_load_log);
    self->keeps = sl_config_bool(env->config, SL_SET_load_keeps);
    self->pulls = sl_config_bool(env->config, SL_SET_fabric_pools) &&
                  strcmp(sl_config_text(env->config, SL_SET_fabric), "off") != 0;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    sl_err err = co_engines_init(self, why);
    if (err == SL_OK) {
        err = co_ops_init(self, why);
    }
    if (err == SL_OK) {
        err = co_handovers_init(self, why);
    }
    if (err == SL_OK) {
        err = co_sessions_init(self, why);
    }
    if (err == SL_OK) {
        /* An op has one call, or one for each rank and batch; an ABORT may outlive it. */
        uint32_t call_count = self->op_max * (4 + CO_BATCHES_MAX + self->rank_count) +
                              self->engine_max + 4 * self->handover_max + CO_RANKS_MAX + 1 + 1 +
                              CO_SESSION_CALLS;
        err = sl_calls_create(env, call_count, &self->calls, why);
    }
    if (err == SL_OK) {
        err = pins_make(self, why);
    }
    for (uint32_t rank = 0; err == SL_OK && rank < self->rank_count; rank++) {
        co_rank_greet(self, rank);
    }
    self->greeted_from_ns = env->now_ns;
    if (err == SL_OK && self->pulls) {
        co_rank_greet(self, CO_TRANSPORTER);
    } else if (err == SL_OK) {
        sl_log_write(env->log, SL_LOG_INFO, 0,
                     "no direct hand-overs: fabric is off, or fabric_pools is false");
    }
    env->ops->wake_at(env, env->now_ns); /* the first HELLO */
    return err;
}

/* ---- the registrar ---- */

bool co_view(struct coordinator *self)
{
    struct sl_error why = {0};
    sl_err err = sl_index_view_follow(self->env->paths->shm_dir, &self->view, &why);
    if (err != SL_OK && err != SL_ERR_NOT_FOUND) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "index not opened, trying again: %s",
                     why.text);
    }
    return err == SL_OK;
}

bool co_may_pin(const struct coordinator *self)
{
    return self->boot_generation != 0;
}

/* A registrar must know our pins before we rely on them: it says so in its answer, and we say it
 * again to each new one. */
static void hello_send(struct coordinator *self)
{
    struct sl_env *env = self->env;
    struct sl_msg hello = {.type = SL_MSG_HELLO};
    hello.body.hello = (struct sl_body_hello){
        .role = sl_text_of("coordinator"),
        .name = sl_text_of(env->name),
        .pid = env->self.pid,
        .start_time = env->self.start_time,
        .segment = sl_text_of(self->pins_name),
    };
    self->hello_due_ns =
        sl_clock_next_ns(env->now_ns, sl_config_u64(env->config, SL_SET_heartbeat));
    if (sl_calls_send(self->calls, "registrar", &hello, sl_deadline_ns(env->now_ns, CO_CALL_NS),
                      co_cookie(CO_CALL_HELLO, 0, 0), &self->hello_seq) != SL_OK) {
        self->hello_seq = 0;
    }
    env->ops->wake_at(env, self->hello_due_ns);
}

static void hello_answered(struct coordinator *self, const struct sl_msg *reply)
{
    self->hello_seq = 0;
    if (reply == NULL || reply->code != SL_OK) {
        self->boot_generation = 0;
        sl_log_write(self->env->log, SL_LOG_WARN, 0,
                     "the registrar does not take our pins, loads wait: %s",
                     reply == NULL            ? "no answer"
                     : reply->text.length > 0 ? reply->text.at
                                              : sl_err_text(reply->code));
        return;
    }
    self->boot_generation = reply->body.hello_reply.boot_generation;
}

/* An answer to the process's own HELLO, which names no pins. */
static void hello_seen(struct coordinator *self, const struct sl_msg *reply)
{
    if (reply->code == SL_OK && reply->body.hello_reply.boot_generation != self->boot_generation) {
        self->boot_generation = 0;
        if (self->hello_seq == 0) {
            hello_send(self);
        }
    }
}

/* ---- messages ---- */

static void op_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
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
    uint32_t index = (uint32_t)call->cookie, rank = (uint32_t)(call->cookie >> 32 & 0xffff);
    switch ((enum co_call)(call->cookie >> 48)) {
    case CO_CALL_OP:
        op_answered(self, &self->ops[index], reply);
        break;
    case CO_CALL_SHARE:
        co_share_answered(self, &self->ops[index], rank, call->type, reply);
        break;
    case CO_CALL_BATCH:
        co_batch_answered(self, &self->ops[index], rank, reply);
        break;
    case CO_CALL_ENGINE:
        co_engine_answered(self, index, reply);
        break;
    case CO_CALL_PING:
        co_rank_pong(self, rank, reply);
        break;
    case CO_CALL_HELLO:
        hello_answered(self, reply);
        break;
    case CO_CALL_GREET:
        co_rank_greeted(self, rank, reply);
        break;
    case CO_CALL_HOLD:
        co_handover_hold_ended(self, index);
        break;
    case CO_CALL_CLOSE:
        co_handover_ticket_closed(self, index, reply);
        break;
    case CO_CALL_WORD:
        co_word_answered(self, index, reply);
        break;
    case CO_CALL_HELD:
        co_word_held(self, index, reply);
        break;
    case CO_CALL_PREFETCH:
        co_wait_prefetched(self);
        break;
    case CO_CALL_SESSION:
        co_sessions_answered(self, index, reply);
        break;
    case CO_CALL_NOBODY:
        break;
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
        hello_seen(self, reply);
        return;
    }
    sl_metric_add(self->env->metrics, self->metric.late_reply_count, 1);
    if (reply->type == SL_MSG_RESERVE_REPLY && reply->code == SL_OK) {
        co_store_late_grants(self, reply);
    } else if (reply->type == SL_MSG_COMMIT_REPLY && reply->code == SL_OK) {
        co_ahead_late(self, reply);
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
    {SL_MSG_LAYER_READY, co_layer_ready},
    {SL_MSG_LAYER_WAIT, co_layer_wait},
    {SL_MSG_ARRIVED, co_handover_arrived},
    {SL_MSG_HANDOVER_END, co_handover_end},
    {SL_MSG_SESSION_PAUSE, co_sessions_pause},
    {SL_MSG_SESSION_TURN, co_sessions_turn},
    {SL_MSG_HANDOVER_WORD, co_word_handle},
    {SL_MSG_TICKET, co_word_ticket},
    {SL_MSG_PUSH_ARRIVED, co_handover_push_arrived},
    {SL_MSG_ENGINE_OVER, co_engine_over},
    {SL_MSG_OP_STORY, co_story_tell},
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

void co_wake(struct coordinator *self, struct co_op *op, uint64_t at_ns)
{
    op->wake_ns = at_ns;
    self->env->ops->wake_at(self->env, at_ns);
}

static uint64_t op_next(const struct co_op *op)
{
    uint64_t next_ns = op->wake_ns;
    if (!op->answered) {
        next_ns = SL_MIN(next_ns, op->deadline_ns);
    }
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        next_ns = SL_MIN(next_ns, op->waiters[i].deadline_ns);
    }
    for (uint32_t i = 0; i < op->layers.waiter_count; i++) {
        next_ns = SL_MIN(next_ns, op->layers.waiters[i].back.deadline_ns);
    }
    return next_ns;
}

static sl_err coordinator_tick(void *state, uint64_t now_ns)
{
    struct coordinator *self = state;
    struct co_op *newer = NULL;
    co_handovers_tick(self, now_ns);
    co_ahead_tick(self, now_ns);
    co_sessions_tick(self, now_ns);
    for (struct co_op *op = self->active_first; op != NULL; op = newer) {
        newer = op->newer;
        co_op_tick(self, op, now_ns);
    }
    struct sl_call call;
    while (sl_calls_expired(self->calls, now_ns, &call)) {
        call_ended(self, &call, NULL);
    }
    if (self->hello_seq == 0 && now_ns >= self->hello_due_ns) {
        hello_send(self);
        for (uint32_t rank = 0; rank < self->rank_count; rank++) {
            co_rank_learn(self, rank);
        }
        if (self->pulls) {
            co_rank_learn(self, CO_TRANSPORTER);
        }
    }
    uint64_t next_ns = self->hello_seq == 0 ? self->hello_due_ns : SL_NEVER_NS;
    next_ns = SL_MIN(SL_MIN(next_ns, self->handover_next_ns), self->ahead_due_ns);
    next_ns = SL_MIN(next_ns, co_sessions_next_ns(self));
    for (const struct co_op *op = self->active_first; op != NULL; op = op->newer) {
        next_ns = SL_MIN(next_ns, op_next(op));
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
    co_sessions_fini(self); /* its memory goes back to the ops' */
    co_ops_fini(self);
    co_handovers_fini(self);
    co_engines_fini(self);
    co_wait_fini(self);
    co_stories_fini(self);
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
