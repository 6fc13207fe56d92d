/* actors/coordinator/fence.c - FENCE, and who is behind a rank.
 *
 * Swappers and the transporter touch device blocks for an op. Before the blocks are given back each of
 * them that was asked has answered, or has acknowledged a FENCE, or is dead. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void co_worker_name(uint32_t worker, char name[16])
{
    if (worker == CO_TRANSPORTER) {
        memcpy(name, "transporter.0", sizeof("transporter.0"));
    } else {
        (void)snprintf(name, 16, "swapper.%u", worker % CO_RANKS_MAX);
    }
}

/* ---- who is behind a rank ---- */

void co_rank_learn(struct coordinator *self, uint32_t rank)
{
    struct co_rank *state = &self->ranks[rank];
    if (state->proc.pid != 0 || state->asked) {
        return;
    }
    char name[16];
    co_worker_name(rank, name);
    struct sl_msg ping = {.type = SL_MSG_PING};
    state->asked =
        sl_calls_send(self->calls, name, &ping, sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                      co_cookie(CO_CALL_PING, rank, 0), NULL) == SL_OK;
}

void co_rank_greet(struct coordinator *self, uint32_t rank)
{
    char name[16];
    co_worker_name(rank, name);
    self->ungreeted |= co_worker_bit(rank);
    struct sl_msg fence = {.type = SL_MSG_FENCE}; /* no op, no claims: everything */
    (void)sl_calls_send(self->calls, name, &fence, SL_NEVER_NS, co_cookie(CO_CALL_GREET, rank, 0),
                        NULL);
}

void co_rank_greeted(struct coordinator *self, uint32_t rank, const struct sl_msg *reply)
{
    if (reply == NULL || reply->code != SL_OK) {
        co_rank_greet(self, rank);
        return;
    }
    self->ungreeted &= ~co_worker_bit(rank);
}

void co_rank_pong(struct coordinator *self, uint32_t rank, const struct sl_msg *reply)
{
    struct co_rank *state = &self->ranks[rank];
    state->asked = false;
    if (reply == NULL || reply->code != SL_OK || reply->body.pong.start_time == 0) {
        return; /* asked again when it matters */
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
            co_rank_learn(self, rank);
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
    char name[16];
    co_worker_name(rank, name);
    struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = op->id, .trace_id = op->trace_id};
    struct co_share *share = &op->shares[rank];
    sl_err err =
        sl_calls_send(self->calls, name, &fence, sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                      co_cookie(CO_CALL_SHARE, rank, (uint32_t)(op - self->ops)), &share->call_seq);
    if (err != SL_OK) {
        share->call_seq = 0; /* the next tick tries again */
    }
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
        /* First of all the COPY is forgotten: one that is resent behind the fence would break it.
         */
        if (op->shares[rank].call_seq != 0) {
            sl_calls_forget(self->calls, op->shares[rank].call_seq);
            op->shares[rank].call_seq = 0;
        }
        co_rank_learn(self, rank);
        co_fence_send(self, op, rank);
        sl_metric_add(self->env->metrics, self->metric.fence_count, 1);
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "fence", "swappers",
                   (uint32_t)__builtin_popcountll((uint64_t)workers));
    co_wake(self, op, self->env->now_ns + CO_FENCE_POLL_NS);
}

/* True: nobody is waited for any more, the op has gone on and may be over. */
static bool rank_fenced(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    op->unsettled &= ~co_worker_bit(rank);
    if (op->shares[rank].call_seq != 0) {
        sl_calls_forget(self->calls, op->shares[rank].call_seq);
        op->shares[rank].call_seq = 0;
    }
    /* A slice that was copied does not wait for the transporter: see co_copy_answered. */
    co_workers waited = op->phase == CO_SETTLE && !op->pull_settles
                            ? op->unsettled & ~co_worker_bit(CO_TRANSPORTER)
                            : op->unsettled;
    if (waited != 0 || (op->phase != CO_SETTLE && op->phase != CO_ZOMBIE)) {
        return false;
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "fenced", "swappers", 0);
    if (op->phase == CO_ZOMBIE) {
        co_op_done(self, op);
    } else if (op->pull_settles) {
        co_pull_settled(self, op);
    } else {
        co_slice_copied(self, op);
    }
    return true;
}

/* Nobody is there who could still act on an old COPY: the process we knew is dead, and no other
 * took its place. */
static bool rank_is_dead(struct coordinator *self, uint32_t rank, uint64_t now_ns,
                         uint64_t timeout_ns)
{
    const struct co_rank *state = &self->ranks[rank];
    if (state->proc.pid != 0 || state->died_ns == 0 || now_ns - state->died_ns < timeout_ns) {
        return false;
    }
    char name[16];
    co_worker_name(rank, name);
    struct sl_msg ping = {.type = SL_MSG_PING};
    return sl_send(self->env, name, &ping, NULL) == SL_ERR_UNREACHABLE;
}

static void fence_overdue(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    const struct co_rank *state = &self->ranks[rank];
    if ((op->killed & co_worker_bit(rank)) != 0 || state->proc.pid == 0) {
        co_rank_learn(self, rank);
        return;
    }
    op->killed |= co_worker_bit(rank);
    if (self->env->ops->alive(self->env, state->proc)) {
        char name[16];
        co_worker_name(rank, name);
        sl_metric_add(self->env->metrics, self->metric.killed_count, 1);
        sl_log_write(self->env->log, SL_LOG_WARN, op->trace_id,
                     "%s (process %u) acknowledged no fence of op %016" PRIx64
                     " in time and was killed",
                     name, state->proc.pid, op->id);
        self->env->ops->kill(self->env, state->proc);
    }
}

void co_fence_forget(struct coordinator *self, struct co_op *op)
{
    for (uint32_t rank = 0; rank < CO_WORKERS_MAX; rank++) {
        if (op->shares[rank].call_seq != 0) {
            sl_calls_forget(self->calls, op->shares[rank].call_seq);
            op->shares[rank].call_seq = 0;
        }
    }
    op->unsettled = 0;
}

void co_fence_tick(struct coordinator *self, struct co_op *op, uint64_t now_ns)
{
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
        if (overdue && rank_is_dead(self, rank, now_ns, timeout_ns)) {
            if (rank_fenced(self, op, rank)) {
                return;
            }
        }
    }
}

void co_share_answered(struct coordinator *self, struct co_op *op, uint32_t rank, uint32_t type,
                       const struct sl_msg *reply)
{
    struct co_share *share = &op->shares[rank];
    if (type == SL_MSG_BRING) {
        co_pull_answered(self, op, reply);
        return;
    }
    if (reply == NULL) { /* nobody answered: a COPY ends with its op, a FENCE is sent again */
        if (type == SL_MSG_FENCE) {
            share->call_seq = 0;
            co_wake(self, op, self->env->now_ns);
        } else if (!op->answered) {
            co_op_end(self, op, SL_ERR_TIMEOUT);
        }
        return;
    }
    if (type == SL_MSG_COPY) {
        co_copy_answered(self, op, rank, reply);
        return;
    }
    share->call_seq = 0;
    if (reply->code == SL_OK) {
        (void)rank_fenced(self, op, rank);
    } /* else the next tick asks again */
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

void co_waiters_answer(struct coordinator *self, struct co_op *op, sl_err code, bool fenced)
{
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        struct sl_msg reply = {.code = code};
        reply.body.op_fenced_reply.fenced = fenced;
        sl_return_reply(self->env, &op->waiters[i], &reply);
    }
    op->waiter_count = 0;
}

static sl_err waiter_add(struct co_op *op, const struct sl_msg *msg)
{
    struct sl_return back;
    sl_return_keep(msg, &back);
    for (uint32_t i = 0; i < op->waiter_count; i++) {
        if (op->waiters[i].seq == back.seq && strcmp(op->waiters[i].to, back.to) == 0) {
            op->waiters[i] = back; /* resent, with what is left of its budget */
            return SL_OK;
        }
    }
    if (op->waiter_count == CO_FENCE_WAITERS_MAX) {
        return SL_ERR_LIMIT;
    }
    op->waiters[op->waiter_count++] = back;
    return SL_OK;
}

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
    sl_err err = op != NULL ? waiter_add(op, msg) : SL_ERR_LIMIT;
    if (err != SL_OK) {
        sl_reply_fail(self->env, msg, err, "too many wait for fences");
        return;
    }
    self->env->ops->wake_at(self->env, op->waiters[op->waiter_count - 1].deadline_ns);
    if (unknown) {
        /* It is long over, or it was asked of a coordinator that died: whatever that one sent is
         * fenced now. */
        op->answered = true;
        co_op_enter(self, op, CO_ZOMBIE);
        co_workers all = co_worker_bit(self->rank_count) - 1;
        co_fence_start(self, op, self->pulls ? all | co_worker_bit(CO_TRANSPORTER) : all);
    }
}

void co_cancel(struct coordinator *self, const struct sl_msg *msg)
{
    struct co_op *op = co_op_find(self, msg->body.cancel.target_op);
    bool mine = op != NULL && op->type->kind != CO_UNKNOWN &&
                msg->sender.length == strlen(op->back.to) &&
                memcmp(msg->sender.at, op->back.to, msg->sender.length) == 0;
    if (!mine) {
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
