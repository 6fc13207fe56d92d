/* actors/coordinator/copy.c - work of the ranks: COPY and FENCE, and who is behind a rank.
 *
 * A COPY is resent while it is unanswered. The swapper recognises what it was asked already, but a
 * swapper that was restarted in between does not: it may work on a COPY that its predecessor has
 * answered. Device blocks and extents must not be given away then. So an answer that came late
 * counts at once only when the process that was asked first is alive still; otherwise the rank is
 * fenced before the slice goes on (CO_SETTLE). */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void rank_name(uint32_t rank, char name[16])
{
    (void)snprintf(name, 16, "swapper.%u", rank % CO_RANKS_MAX);
}

static uint64_t rank_bit(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

/* ---- who is behind a rank ---- */

void co_rank_learn(struct coordinator *self, uint32_t rank)
{
    struct co_rank *state = &self->ranks[rank];
    if (state->proc.pid != 0 || state->asked) {
        return;
    }
    char name[16];
    rank_name(rank, name);
    struct sl_msg ping = {.type = SL_MSG_PING};
    state->asked =
        sl_calls_send(self->calls, name, &ping, sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                      co_cookie(CO_CALL_PING, rank, 0), NULL) == SL_OK;
}

void co_rank_greet(struct coordinator *self, uint32_t rank)
{
    char name[16];
    rank_name(rank, name);
    self->ungreeted |= rank_bit(rank);
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
    self->ungreeted &= ~rank_bit(rank);
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
    for (uint32_t rank = 0; rank < self->rank_count; rank++) {
        struct co_rank *state = &self->ranks[rank];
        if (state->proc.pid != 0 && sl_proc_id_equal(state->proc, proc)) {
            state->proc = (struct sl_proc_id){0};
            state->died_ns = self->env->now_ns;
            co_rank_learn(self, rank);
        }
    }
}

/* ---- COPY ---- */

static void slice_copied(struct coordinator *self, struct co_op *op)
{
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id,
                   op->type->kind == CO_STORE ? "copied out" : "copied in", "", op->slice_count);
    if (co_by_layers(op)) {
        co_layers_copied(self, op);
    } else {
        op->type->copied(self, op);
    }
}

static uint32_t device_block(const struct co_op *op, uint32_t block, uint32_t pool)
{
    return op->pool_blocks != NULL ? op->pool_blocks[pool * op->block_count + block]
                                   : op->blocks[block].device_block;
}

/* Who copies what of the slice now. */
static void parts_ask(struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_part *part = &op->parts[i];
        const struct co_cut *cut = co_cut_of(op, i);
        struct co_range range;
        bool asked = part->state == op->type->copied_from && co_layers_range(op, cut, &range);
        part->missed = false;
        part->asked = !asked                      ? 0
                      : op->type->kind == CO_LOAD ? cut->owners
                                                  : rank_bit(co_part_writer(op, i));
    }
}

static uint32_t rank_items(const struct co_op *op, uint32_t rank, struct sl_item_piece *items)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        const struct co_part *part = &op->parts[i];
        const struct co_cut *cut = co_cut_of(op, i);
        struct co_range range;
        if ((part->asked & rank_bit(rank)) == 0) {
            continue;
        }
        (void)co_layers_range(op, cut, &range);
        bool told = op->type == &co_load_type && range.layer_end == 0;
        items[count++] = (struct sl_item_piece){
            .digest_low = told ? part->digest.low : 0,
            .digest_high = told ? part->digest.high : 0,
            .pool = cut->pool,
            .part = cut->part,
            .device_block = device_block(op, op->slice[i / op->engine->part_count], cut->pool),
            .arena = part->arena,
            .offset_bytes = part->offset_bytes,
            .length_bytes = cut->length_bytes,
            .ref = part->ref,
            .generation = part->generation,
            .first_layer = range.first_layer,
            .layer_end = range.layer_end,
        };
    }
    return count;
}

/* A rank has told of the part. It is copied when all have copied it. */
static void part_told(struct co_op *op, struct co_part *part, uint32_t rank, bool copied)
{
    part->asked &= ~rank_bit(rank);
    part->missed = part->missed || !copied;
    if (part->asked != 0) {
        return;
    }
    if (!part->missed && !co_layers_partial(op)) {
        part->state = CO_PART_COPIED;
    } else if (part->missed && co_by_layers(op)) {
        part->state = CO_PART_BROKEN;
    }
}

/* Marks what a rank has done. An answer of another size than asked says nothing. */
static void take_done(struct co_op *op, uint32_t rank, const struct sl_body_copy_reply *body)
{
    const uint8_t *done = body->done.at, *digests = body->digests.at, *hashes = body->chunks.at;
    uint32_t count = op->shares[rank].item_count, item = 0;
    bool chunked = co_layers_chunked(op);
    bool whole = body->done.length == co_bits_bytes(count) &&
                 (op->type->kind == CO_LOAD || chunked ||
                  body->digests.length == (uint64_t)count * sizeof(struct sl_digest));
    uint64_t hash_at = 0;
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_part *part = &op->parts[i];
        struct co_range range;
        if ((part->asked & rank_bit(rank)) == 0) {
            continue;
        }
        (void)co_layers_range(op, co_cut_of(op, i), &range);
        bool copied = whole && done != NULL && item < count && co_bit(done, item);
        uint64_t hash_from = hash_at;
        hash_at += chunked ? co_layers_hash_bytes(&range) : 0;
        copied = copied && (!chunked || hash_at <= body->chunks.length);
        if (copied && chunked) {
            co_layers_hashes(part, &range, hashes + hash_from);
        } else if (copied && op->type->kind == CO_STORE) {
            memcpy(&part->digest, digests + (uint64_t)item * sizeof(part->digest),
                   sizeof(part->digest));
        }
        part_told(op, part, rank, copied);
        item++;
    }
}

static void rank_copy(struct coordinator *self, struct co_op *op, uint32_t rank,
                      const struct sl_item_piece *items, uint32_t count)
{
    struct co_share *share = &op->shares[rank];
    char name[16];
    rank_name(rank, name);
    co_rank_learn(self, rank);
    struct sl_msg copy = {.type = SL_MSG_COPY, .op_id = op->id, .trace_id = op->trace_id};
    copy.body.copy = (struct sl_body_copy){.engine_id = op->engine->members[rank],
                                           .rank = rank,
                                           .out = op->type->kind == CO_STORE,
                                           .chunks = co_layers_chunked(op)};
    copy.body.copy.items.at = items;
    copy.body.copy.items.count = count;
    for (uint32_t i = 0; i < op->event_count; i++) {
        if (op->event_ranks[i] == rank) {
            copy.body.copy.event = (struct sl_bytes){.at = op->events[i], .length = SL_EVENT_BYTES};
        }
    }
    sl_err err =
        sl_calls_send(self->calls, name, &copy, op->deadline_ns,
                      co_cookie(CO_CALL_SHARE, rank, (uint32_t)(op - self->ops)), &share->call_seq);
    share->item_count = count;
    if (err != SL_OK) { /* its parts are not copied */
        share->call_seq = 0;
        co_reason(op, "COPY to %s: %s", name, sl_err_text(err));
        take_done(op, rank, &(struct sl_body_copy_reply){0});
        return;
    }
    share->proc = self->ranks[rank].proc;
    share->sent_ns = self->env->now_ns;
    op->shares_open++;
}

/* By layers there are many COPYs of a slice, which share their room. */
static struct sl_item_piece *copy_items(struct co_op *op)
{
    uint32_t room = op->slice_count * op->engine->part_count; /* of one rank, at most */
    struct co_layers *layers = &op->layers;
    if (!co_by_layers(op)) {
        return co_memory_take(&op->work, room, sizeof(struct sl_item_piece));
    }
    if (layers->items == NULL || layers->item_room < room) {
        layers->items = co_memory_take(&op->life, room, sizeof(*layers->items));
        layers->item_room = room;
    }
    return layers->items;
}

void co_copy_slice(struct coordinator *self, struct co_op *op)
{
    if (co_by_layers(op)) {
        op->type->layers_begin(self, op);
    } else {
        co_op_enter(self, op, CO_COPY);
    }
}

void co_copy_start(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    struct sl_item_piece *items = copy_items(op);
    if (items == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    parts_ask(op);
    for (uint32_t rank = 0; rank < engine->world; rank++) {
        uint32_t count = rank_items(op, rank, items);
        if (count > 0) {
            rank_copy(self, op, rank, items, count);
        }
    }
    if (op->shares_open == 0) {
        slice_copied(self, op);
    }
}

static bool share_is_settled(const struct coordinator *self, const struct co_op *op, uint32_t rank)
{
    const struct co_share *share = &op->shares[rank];
    if (self->env->now_ns - share->sent_ns < sl_config_u64(self->env->config, SL_SET_call_retry)) {
        return true; /* it was not sent twice */
    }
    return share->proc.pid != 0 && self->env->ops->alive(self->env, share->proc);
}

static void copy_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                          const struct sl_msg *reply)
{
    struct co_share *share = &op->shares[rank];
    share->call_seq = 0;
    op->shares_open--;
    take_done(op, rank, &reply->body.copy_reply);
    if (reply->code == SL_ERR_NOT_FOUND && op->engine->team) {
        op->engine->stale = true;
    }
    if (reply->code != SL_OK) {
        co_reason(op, "rank %u: %s", rank,
                  reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
    }
    if (!share_is_settled(self, op, rank)) {
        op->unsettled |= rank_bit(rank);
    }
    if (op->shares_open > 0) {
        return;
    }
    if (op->unsettled == 0) {
        slice_copied(self, op);
        return;
    }
    sl_metric_add(self->env->metrics, self->metric.settled_count, 1);
    co_op_enter(self, op, CO_SETTLE);
    co_fence_start(self, op, op->unsettled);
}

/* ---- FENCE ---- */

static void fence_send(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    char name[16];
    rank_name(rank, name);
    struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = op->id, .trace_id = op->trace_id};
    struct co_share *share = &op->shares[rank];
    sl_err err =
        sl_calls_send(self->calls, name, &fence, sl_deadline_ns(self->env->now_ns, CO_CALL_NS),
                      co_cookie(CO_CALL_SHARE, rank, (uint32_t)(op - self->ops)), &share->call_seq);
    if (err != SL_OK) {
        share->call_seq = 0; /* the next tick tries again */
    }
}

void co_fence_start(struct coordinator *self, struct co_op *op, uint64_t ranks)
{
    op->unsettled = ranks;
    op->shares_open = 0;
    op->killed_ranks = 0;
    op->fence_started_ns = self->env->now_ns;
    for (uint32_t rank = 0; rank < CO_RANKS_MAX; rank++) {
        if ((ranks & rank_bit(rank)) == 0) {
            continue;
        }
        /* First of all the COPY is forgotten: one that is resent behind the fence would break it.
         */
        if (op->shares[rank].call_seq != 0) {
            sl_calls_forget(self->calls, op->shares[rank].call_seq);
            op->shares[rank].call_seq = 0;
        }
        co_rank_learn(self, rank);
        fence_send(self, op, rank);
        sl_metric_add(self->env->metrics, self->metric.fence_count, 1);
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "fence", "swappers",
                   (uint32_t)__builtin_popcountll(ranks));
    co_wake(self, op, self->env->now_ns + CO_FENCE_POLL_NS);
}

static void rank_fenced(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    op->unsettled &= ~rank_bit(rank);
    if (op->shares[rank].call_seq != 0) {
        sl_calls_forget(self->calls, op->shares[rank].call_seq);
        op->shares[rank].call_seq = 0;
    }
    if (op->unsettled != 0) {
        return;
    }
    sl_trace_event(self->env->metrics, self->env->now_ns, op->trace_id, "fenced", "swappers", 0);
    if (op->phase == CO_ZOMBIE) {
        co_op_done(self, op);
    } else {
        slice_copied(self, op);
    }
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
    rank_name(rank, name);
    struct sl_msg ping = {.type = SL_MSG_PING};
    return sl_send(self->env, name, &ping, NULL) == SL_ERR_UNREACHABLE;
}

static void fence_overdue(struct coordinator *self, struct co_op *op, uint32_t rank)
{
    const struct co_rank *state = &self->ranks[rank];
    if ((op->killed_ranks & rank_bit(rank)) != 0 || state->proc.pid == 0) {
        co_rank_learn(self, rank);
        return;
    }
    op->killed_ranks |= rank_bit(rank);
    if (self->env->ops->alive(self->env, state->proc)) {
        sl_metric_add(self->env->metrics, self->metric.killed_count, 1);
        sl_log_write(self->env->log, SL_LOG_WARN, op->trace_id,
                     "swapper.%u (process %u) acknowledged no fence of op %016" PRIx64
                     " in time and was killed",
                     rank, state->proc.pid, op->id);
        self->env->ops->kill(self->env, state->proc);
    }
}

void co_fence_forget(struct coordinator *self, struct co_op *op)
{
    for (uint32_t rank = 0; rank < CO_RANKS_MAX; rank++) {
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
    for (uint32_t rank = 0; rank < CO_RANKS_MAX; rank++) {
        if ((op->unsettled & rank_bit(rank)) == 0) {
            continue;
        }
        if (op->shares[rank].call_seq == 0) {
            fence_send(self, op, rank);
        }
        if (overdue) {
            fence_overdue(self, op, rank);
        }
        if (overdue && rank_is_dead(self, rank, now_ns, timeout_ns)) {
            bool last = op->unsettled == rank_bit(rank);
            rank_fenced(self, op, rank);
            if (last) {
                return; /* the op may be gone */
            }
        }
    }
}

void co_share_answered(struct coordinator *self, struct co_op *op, uint32_t rank, uint32_t type,
                       const struct sl_msg *reply)
{
    struct co_share *share = &op->shares[rank];
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
        copy_answered(self, op, rank, reply);
        return;
    }
    share->call_seq = 0;
    if (reply->code == SL_OK) {
        rank_fenced(self, op, rank);
    } /* else the next tick asks again */
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
        uint64_t all =
            self->rank_count == CO_RANKS_MAX ? UINT64_MAX : rank_bit(self->rank_count) - 1;
        co_fence_start(self, op, all);
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
