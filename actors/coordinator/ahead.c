/* actors/coordinator/ahead.c - extents that were granted in advance, so that a small store whose size
 * comes again costs the registrar one round trip: COMMIT without RESERVE. For blocks of one part.
 *
 * A grant is for one op alone: no COPY of an earlier op can be on its way to it. It ends as every
 * reservation does, by its deadline, by our death, or when the registrar needs the memory: the swapper
 * is fenced then. So an op that finds its grant gone has stored nothing, and goes the long way.
 *
 * What no op has taken by half its time goes back in an ABORT. Nobody was told of it, so nobody has
 * to be fenced: a swapper that is slow to acknowledge a fence is killed. */
#include "actors/coordinator/internal.h"

#include <string.h>

#define AHEAD_BLOCKS_MAX 8u

void co_claims_abort(struct coordinator *self, uint64_t op_id, uint64_t trace_id,
                     const struct sl_item_claim *claims, uint32_t count)
{
    if (count == 0) {
        return;
    }
    struct sl_msg abort = {.type = SL_MSG_ABORT, .op_id = op_id, .trace_id = trace_id};
    abort.body.abort.items.at = claims;
    abort.body.abort.items.count = count;
    /* A lost ABORT costs nothing but time: the reservations end by their own deadline. */
    (void)co_ask(self, "registrar", &abort, co_cookie(CO_CALL_NOBODY, 0, 0), NULL);
}

/* Whether the slice is all that the op stores, and small. */
static bool op_is_small(const struct co_op *op)
{
    return !op->type->direct && op->handover == NULL && !co_by_layers(op) && !op->many &&
           !op->ahead_barred && op->engine->part_count == 1 &&
           op->slice_count <= AHEAD_BLOCKS_MAX &&
           op->slice_count * op->engine->block_bytes <= SL_AHEAD_BYTES_MAX;
}

/* Blocks that exist, or that another op writes, are the registrar's to tell of. */
static bool blocks_are_new(struct coordinator *self, const struct co_op *op)
{
    size_t model_length = strlen(op->engine->model);
    bool fresh = sl_index_view_ready(self->env, &self->view);
    for (uint32_t i = 0; fresh && i < op->slice_count; i++) {
        uint64_t length = model_length + 1 + op->blocks[op->slice[i]].key.length;
        fresh = sl_index_find_group(self->view, op->part_keys[i].at, (uint32_t)length) ==
                SL_ERR_NOT_FOUND;
    }
    return fresh;
}

/* How long ops may take a grant: what is left of its time is theirs. */
static uint64_t useful_ns(const struct coordinator *self)
{
    return sl_config_u64(self->env->config, SL_SET_reservation_ttl) / 2;
}

static struct sl_ahead_kind kind_of(const struct co_op *op, uint32_t i)
{
    return (struct sl_ahead_kind){.space_bytes = sl_extent_space(co_cut_of(op, i)->length_bytes),
                                  .writer = co_part_writer(op, i)};
}

/* One that stands and will for a while. False: there is none. */
static bool extent_take(struct coordinator *self, struct sl_ahead_kind kind,
                        struct sl_ahead_extent *extent)
{
    while (sl_ahead_take(&self->ahead, kind, 0, extent)) {
        if (self->env->now_ns - extent->asked_ns < useful_ns(self) &&
            sl_index_claim_stands(self->view, extent->ref, extent->generation)) {
            return true;
        }
    }
    return false;
}

bool co_ahead_take(struct coordinator *self, struct co_op *op)
{
    struct sl_ahead_extent extents[AHEAD_BLOCKS_MAX];
    if (!op_is_small(op) || !blocks_are_new(self, op)) {
        return false;
    }
    for (uint32_t i = 0; i < op->slice_count; i++) {
        if (!extent_take(self, kind_of(op, i), &extents[i])) {
            while (i-- > 0) { /* where they were */
                (void)sl_ahead_return(&self->ahead, kind_of(op, i), &extents[i]);
            }
            return false;
        }
    }
    for (uint32_t i = 0; i < op->slice_count; i++) {
        op->parts[i] = (struct co_part){.generation = extents[i].generation,
                                        .offset_bytes = extents[i].offset_bytes,
                                        .ref = extents[i].ref,
                                        .arena = extents[i].arena,
                                        .state = CO_PART_GRANTED};
    }
    op->ahead = true;
    co_count(self, self->metric.ahead_count, 1);
    co_trace(self, op, "granted ahead", "", op->slice_count);
    return true;
}

void co_ahead_wish(struct coordinator *self, struct co_op *op, struct sl_body_commit *commit)
{
    op->ahead_wish = (struct sl_ahead_kind){0};
    for (uint32_t i = 0; i < op->slice_count && op_is_small(op) && commit->ahead_count == 0; i++) {
        struct sl_ahead_kind kind = kind_of(op, i);
        uint32_t count = sl_ahead_wish(&self->ahead, kind, op->slice_count, self->env->now_ns);
        if (count > 0) {
            commit->ahead_count = count;
            commit->ahead_bytes = kind.space_bytes;
            commit->ahead_writer = sl_text_of(self->ranks[kind.writer].name);
            op->ahead_wish = kind;
        }
    }
}

void co_ahead_arrived(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    const struct sl_body_commit_reply *body = &reply->body.commit_reply;
    if (op->ahead_wish.space_bytes == 0) {
        return;
    }
    sl_ahead_arrived(&self->ahead, op->ahead_wish, body->ahead.at, body->ahead.count, 0,
                     self->env->now_ns);
    for (uint64_t i = 0; i < body->ahead.count; i++) {
        self->ahead_newest = SL_MAX(self->ahead_newest, body->ahead.at[i].generation);
    }
    self->ahead_due_ns = SL_MIN(self->ahead_due_ns,
                                sl_deadline_ns(sl_ahead_oldest_ns(&self->ahead), useful_ns(self)));
    self->env->ops->wake_at(self->env, self->ahead_due_ns);
}

/* Generations rise: what is not newer than all that was taken may be an answer that came twice, and
 * be written to at this moment. That is left to its deadline. */
void co_ahead_late(struct coordinator *self, const struct sl_msg *reply)
{
    const struct sl_body_commit_reply *body = &reply->body.commit_reply;
    struct sl_item_claim claims[SL_AHEAD_EXTENTS];
    uint32_t count = 0;
    for (uint64_t i = 0; i < body->ahead.count && count < SL_AHEAD_EXTENTS; i++) {
        const struct sl_item_grant *grant = &body->ahead.at[i];
        if (grant->code == SL_OK && grant->ref != 0 && grant->generation > self->ahead_newest) {
            claims[count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
    co_claims_abort(self, 0, reply->trace_id, claims, count);
}

static uint64_t ahead_tick(struct coordinator *self, uint64_t now_ns)
{
    struct sl_item_claim claims[SL_AHEAD_EXTENTS];
    uint64_t age_ns = useful_ns(self);
    while (self->ahead_due_ns <= now_ns) {
        uint32_t count = sl_ahead_expire(&self->ahead, now_ns - SL_MIN(now_ns, age_ns) + 1, claims,
                                         SL_AHEAD_EXTENTS);
        co_claims_abort(self, 0, 0, claims, count);
        self->ahead_due_ns = sl_deadline_ns(sl_ahead_oldest_ns(&self->ahead), age_ns);
    }
    return self->ahead_due_ns;
}

const struct co_feature co_ahead_feature = {.tick = ahead_tick};
