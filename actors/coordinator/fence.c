/* actors/coordinator/fence.c - FENCE, and the processes of workers.
 *
 * Swappers and the transporter access device blocks for an op. Before these blocks are reused, each
 * worker that was asked has answered, has acknowledged a FENCE, or is dead. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- the processes of workers ---- */

void co_rank_identify(struct coordinator *self, uint32_t rank)
{
    struct co_rank *state = &self->ranks[rank];
    if (state->proc.pid != 0 || state->asked) {
        return;
    }
    struct sl_msg ping = {.type = SL_MSG_PING};
    state->asked =
        co_ask(self, state->name, &ping, co_cookie(CO_CALL_PING, 0, rank), NULL) == SL_OK;
}

void co_rank_greet(struct coordinator *self, uint32_t rank)
{
    self->ungreeted |= co_worker_bit(rank);
    struct sl_msg fence = {.type = SL_MSG_FENCE}; /* without op and claims: fences everything */
    (void)sl_calls_send(self->calls, self->ranks[rank].name, &fence, SL_NEVER_NS,
                        co_cookie(CO_CALL_GREET, 0, rank), NULL);
}

void co_rank_greeted(struct coordinator *self, uint32_t rank, const struct sl_msg *reply)
{
    if (reply == NULL || reply->code != SL_OK) {
        co_rank_greet(self, rank);
        return;
    }
    self->ungreeted &= ~co_worker_bit(rank);
}

void co_rank_identified(struct coordinator *self, uint32_t rank, const struct sl_msg *reply)
{
    struct co_rank *state = &self->ranks[rank];
    state->asked = false;
    if (reply == NULL || reply->code != SL_OK || reply->body.pong.start_time == 0) {
        return; /* asked again when needed */
    }
    struct sl_proc_id proc = {.pid = (uint32_t)reply->body.pong.pid,
                              .start_time = reply->body.pong.start_time};
    if (self->env->ops->watch(self->env, proc, rank) == SL_OK) {
        state->proc = proc;
    }
}

void co_rank_died(struct coordinator *self, struct sl_proc_id proc)
{
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        struct co_rank *state = &self->ranks[rank];
        if (state->proc.pid != 0 && sl_proc_id_equal(state->proc, proc)) {
            state->proc = (struct sl_proc_id){0};
            state->died_ns = self->env->now_ns;
            co_rank_identify(self, rank);
        }
    }
}

bool co_share_is_settled(const struct coordinator *self, const struct co_share *share)
{
    if (self->env->now_ns - share->sent_ns < sl_config_u64(self->env->config, SL_SET_call_retry)) {
        return true; /* it was not sent twice */
    }
    return share->proc.pid != 0 && self->env->ops->alive(self->env, share->proc);
}

/* ---- FENCE ---- */

void co_fence_send(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = op->id, .trace_id = op->trace_id};
    /* If sending fails, the next tick tries again. */
    (void)co_ask(self, self->ranks[rank].name, &fence, co_op_cookie(self, op, CO_CALL_FENCE, rank),
                 &op->shares[rank].call_seq);
}

void co_fence_start(struct coordinator *self, struct co_op *op, co_workers workers)
{
    op->unsettled = workers;
    op->shares_open = 0;
    op->killed = 0;
    op->fence_started_ns = self->env->now_ns;
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        if ((workers & co_worker_bit(rank)) == 0) {
            continue;
        }
        /* The COPY is dropped first: resent after the fence, it would undo it. */
        co_call_forget(self, &op->shares[rank].call_seq);
        co_rank_identify(self, rank);
        co_fence_send(self, op, rank);
        co_count(self, self->metric.fence_count, 1);
    }
    co_trace(self, op, "fence", "swappers", (uint32_t)__builtin_popcountll((uint64_t)workers));
    co_wake(self, op, self->env->now_ns + CO_FENCE_POLL_NS);
}

void co_settle(struct coordinator *self, struct co_op *op, co_workers waited_workers,
               void (*settled)(struct coordinator *self, struct co_op *op))
{
    op->settling = waited_workers;
    op->settled = settled;
    co_count(self, self->metric.settled_count, 1);
    co_op_enter(self, op, CO_SETTLE);
    co_fence_start(self, op, op->unsettled);
}

/* True: no worker is waited for; the op has continued and may be over. */
static bool rank_fenced(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    op->unsettled &= ~co_worker_bit(rank);
    co_call_forget(self, &op->shares[rank].call_seq);
    bool settles = op->phase == CO_SETTLE;
    co_workers waited = settles ? op->unsettled & op->settling : op->unsettled;
    if (waited != 0 || (!settles && op->phase != CO_ZOMBIE)) {
        return false;
    }
    co_trace(self, op, "fenced", "swappers", 0);
    (settles ? op->settled : co_op_done)(self, op);
    return true;
}

/* Whether no process can still work on an old COPY: the one we knew is dead and not replaced. */
static bool rank_is_dead(struct coordinator *self, uint32_t rank, uint64_t now_ns,
                         uint64_t timeout_ns)
{
    const struct co_rank *state = &self->ranks[rank];
    if (state->proc.pid != 0 || state->died_ns == 0 || now_ns - state->died_ns < timeout_ns) {
        return false;
    }
    struct sl_msg ping = {.type = SL_MSG_PING};
    return sl_send(self->env, state->name, &ping, NULL) == SL_ERR_UNREACHABLE;
}

static void fence_overdue(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    const struct co_rank *state = &self->ranks[rank];
    if ((op->killed & co_worker_bit(rank)) != 0 || state->proc.pid == 0) {
        co_rank_identify(self, rank);
        return;
    }
    op->killed |= co_worker_bit(rank);
    if (self->env->ops->alive(self->env, state->proc)) {
        co_count(self, self->metric.killed_count, 1);
        sl_log_write(self->env->log, SL_LOG_WARN, op->trace_id,
                     "%s (process %u) acknowledged no fence of op %016" PRIx64
                     " in time and was killed",
                     state->name, state->proc.pid, op->id);
        self->env->ops->kill(self->env, state->proc);
    }
}

void co_fence_forget(struct coordinator *self, struct co_op *op)
{
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        co_call_forget(self, &op->shares[rank].call_seq);
    }
    op->unsettled = 0;
}

void co_fence_tick(struct coordinator *self, struct co_op *op)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t timeout_ns = sl_config_u64(self->env->config, SL_SET_fence_timeout);
    bool overdue = now_ns - op->fence_started_ns >= timeout_ns;
    co_wake(self, op, now_ns + CO_FENCE_POLL_NS);
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        if ((op->unsettled & co_worker_bit(rank)) == 0) {
            continue;
        }
        if (op->shares[rank].call_seq == 0) {
            co_fence_send(self, op, rank);
        }
        if (overdue) {
            fence_overdue(self, op, rank);
        }
        if (overdue && rank_is_dead(self, rank, now_ns, timeout_ns) &&
            rank_fenced(self, op, rank)) {
            return;
        }
    }
}

void co_fence_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                       const struct sl_msg *reply)
{
    op->shares[rank].call_seq = 0;
    if (reply == NULL) {
        co_wake(self, op, self->env->now_ns);
    } else if (reply->code == SL_OK) {
        (void)rank_fenced(self, op, rank);
    } /* otherwise the next tick sends it again */
}

void co_greet_look(struct coordinator *self)
{
    struct sl_msg ping = {.type = SL_MSG_PING};
    uint64_t timeout_ns = sl_config_u64(self->env->config, SL_SET_fence_timeout);
    if ((self->ungreeted & co_worker_bit(CO_TRANSPORTER)) != 0 &&
        self->env->now_ns - self->greeted_from_ns >= timeout_ns &&
        sl_send(self->env, "transporter.0", &ping, NULL) == SL_ERR_UNREACHABLE) {
        self->ungreeted &= ~co_worker_bit(CO_TRANSPORTER);
    }
}

/* ---- OP_FENCED, CANCEL ---- */

void co_op_fenced(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_op *op = co_op_find(self, msg->body.op_fenced.target_op);
    if (op != NULL && op->phase == CO_DONE) {
        struct sl_msg reply = {.code = SL_OK};
        reply.body.op_fenced_reply.fenced = true;
        sl_reply(self->env, msg, &reply);
        return;
    }
    bool unknown = op == NULL;
    if (unknown) {
        op = co_op_new(self, &co_unknown_type, msg);
    }
    struct sl_error why = {0};
    sl_err err = op != NULL ? co_waiter_add(self, op, msg, 0, CO_FENCE_WAITERS_MAX, &why)
                            : sl_fail(&why, SL_ERR_LIMIT, "%u ops are in flight", self->op_active);
    if (err != SL_OK) {
        if (unknown && op != NULL) {
            co_op_done(self, op); /* it existed only for this request */
        }
        sl_reply_code(self->env, msg, err, &why);
        return;
    }
    if (unknown && op != NULL) {
        /* An old op, or one of a dead coordinator: fences everything that was sent for it. */
        op->answered = true;
        co_op_enter(self, op, CO_ZOMBIE);
        co_workers all = co_worker_bit(self->rank_count) - 1;
        co_fence_start(self, op, self->pulls ? all | co_worker_bit(CO_TRANSPORTER) : all);
    }
}

void co_cancel(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_op *op = co_op_find(self, msg->body.cancel.target_op);
    if (op == NULL || !co_op_is_of(op, msg)) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND,
                      "no op %016" PRIx64 " of this client is known", msg->body.cancel.target_op);
        return;
    }
    if (!op->answered) {
        op->reason[0] = '\0';
        co_reason(op, "cancelled by its client %s", co_phase_text(op->phase));
        co_op_end(self, op, SL_ERR_CANCELLED);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.cancel_reply.fenced = op->unsettled == 0;
    sl_reply(self->env, msg, &reply);
}
