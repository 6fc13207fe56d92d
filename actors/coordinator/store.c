/* actors/coordinator/store.c - STORE: RESERVE, COPY out, COMMIT, slice by slice; then waits for
 * blocks that other ops write. */
#include "actors/coordinator/internal.h"
#include "runtime/base/sl_backoff.h"

/* How late another op's reservation may end, by the registrar's timers and ours. */
#define BUSY_GRACE_NS (200 * SL_NS_PER_MS)
/* Between two RESERVEs of a block whose writer has not sent HELLO. */
#define AWAY_NS (10 * SL_NS_PER_MS)

static void block_fail(struct co_op *op, uint32_t block, const char *why)
{
    op->blocks[block].outcome = CO_BLOCK_FAILED;
    co_reason(op, "block %u: %s", op->first_block + block, why);
}

static void store_finish(struct coordinator *self, struct co_op *op)
{
    uint32_t there =
        co_bits_count(op->stored, op->block_count) + co_bits_count(op->existed, op->block_count);
    if (op->many) { /* later slices are tails, but were committed last */
        co_load_note(self, op);
    }
    co_op_end(self, op, there == op->block_count ? SL_OK : SL_ERR_INCOMPLETE);
}

/* Chooses open blocks, in order, up to the bounds of a slice. */
static uint32_t slice_choose(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t limit = SL_MAX(self->store_parts_max / engine->part_count, 1u);
    uint64_t bytes_max = co_by_layers(op) ? SL_MIN(self->store_bytes_max, self->layered_bytes_max)
                                          : self->store_bytes_max;
    limit = (uint32_t)SL_MIN(limit, SL_MAX(bytes_max / engine->block_bytes, UINT64_C(1)));
    uint32_t count = 0;
    for (uint32_t i = op->at; i < op->block_count && count < limit; i++) {
        if (op->blocks[i].outcome != CO_BLOCK_OPEN) {
            continue;
        }
        if (op->blocks[i].key.at == NULL) {
            block_fail(op, i, "the key format has no key for it");
            continue;
        }
        op->slice[count++] = i;
    }
    return count;
}

static void store_reserve(struct coordinator *self, struct co_op *op)
{
    const struct co_engine *engine = op->engine;
    uint32_t part_total = op->slice_count * engine->part_count;
    struct sl_item_want *items = co_memory_take(&op->work, part_total, sizeof(*items));
    struct sl_item_group *groups = co_memory_take(&op->work, op->slice_count, sizeof(*groups));
    if (items == NULL || groups == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < part_total; i++) {
        items[i] = (struct sl_item_want){
            .key = co_key_text(&op->part_keys[i]),
            .length_bytes = co_cut_of(op, i)->length_bytes,
            .group = 1 + i / engine->part_count,
            .part_index = i % engine->part_count,
            .writer = sl_text_of(self->ranks[co_part_writer(op, i)].name),
        };
    }
    for (uint32_t i = 0; i < op->slice_count; i++) {
        groups[i] = co_group_of(self, op, i, op->block_count);
    }
    struct sl_msg reserve = {.type = SL_MSG_RESERVE};
    reserve.body.reserve = (struct sl_body_reserve){
        .wait = true,
        /* Outlasts the op and its fences; if we die the registrar ends it anyway. */
        .ttl_ns = sl_budget_ns(self->env->now_ns, op->deadline_ns) +
                  sl_config_u64(self->env->config, SL_SET_fence_timeout),
        .items = {.at = items, .count = part_total},
        .groups = {.at = groups, .count = op->slice_count},
    };
    if (op->handover != NULL) {
        reserve.body.reserve.hold_id = op->handover_id;
        reserve.body.reserve.hold_ns =
            sl_deadline_ns(sl_budget_ns(self->env->now_ns, op->deadline_ns), op->hold_ns);
    }
    (void)co_op_call(self, op, "registrar", &reserve);
}

void co_store_slice(struct coordinator *self, struct co_op *op)
{
    op->many = op->many || op->slice_total > 0;
    op->slice_count = 0;
    co_memory_reset(&op->work);
    while (op->at < op->block_count && op->blocks[op->at].outcome != CO_BLOCK_OPEN) {
        op->at++;
    }
    op->slice = co_memory_take(&op->work, op->block_count, sizeof(*op->slice));
    if (op->slice == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    uint32_t count = slice_choose(self, op);
    if (count > 0) {
        if (co_slice_make(self, op, count)) {
            co_op_enter(self, op, CO_RESERVE);
        }
        return;
    }
    for (uint32_t i = 0; i < op->block_count; i++) {
        if (op->blocks[i].outcome == CO_BLOCK_BUSY) {
            co_op_enter(self, op, CO_OTHERS);
            return;
        }
    }
    store_finish(self, op);
}

/* ---- RESERVE_REPLY ---- */

/* A swapper, or this process, has not sent HELLO to the registrar: the node, or one of them, is
 * starting. The block is requested again until the op's deadline. */
static void block_await(struct coordinator *self, struct co_op *op, uint32_t block)
{
    struct co_block *state = &op->blocks[block];
    state->outcome = CO_BLOCK_BUSY;
    state->away = true;
    state->busy_until_ns = sl_deadline_ns(self->env->now_ns, AWAY_NS);
}

static void grants_of_block(struct coordinator *self, struct co_op *op, uint32_t i,
                            const struct sl_item_grant *grants)
{
    const struct co_engine *engine = op->engine;
    uint32_t block = op->slice[i], granted = 0, existing = 0;
    uint64_t busy_ns = 0;
    bool busy = false;
    sl_err failed = SL_OK;
    for (uint32_t k = 0; k < engine->part_count; k++) {
        const struct sl_item_grant *grant = &grants[k];
        struct co_part *part = &op->parts[i * engine->part_count + k];
        if (grant->code == SL_OK && grant->ref != 0 && grant->generation != 0) {
            *part = (struct co_part){.generation = grant->generation,
                                     .offset_bytes = grant->offset_bytes,
                                     .ref = (sl_ref)grant->ref,
                                     .arena = (uint16_t)grant->arena,
                                     .state = CO_PART_GRANTED};
            granted++;
        } else if (grant->code == SL_ERR_EXISTS) {
            existing++;
        } else if (grant->code == SL_ERR_BUSY) {
            busy = true;
            busy_ns = SL_MAX(busy_ns, grant->busy_ns);
        } else if (failed == SL_OK) {
            failed = grant->code != SL_OK ? sl_err_received(grant->code) : SL_ERR_PROTOCOL;
        }
    }
    struct co_block *state = &op->blocks[block];
    if (failed == SL_ERR_UNREACHABLE) {
        block_await(self, op, block);
        return;
    }
    state->round++;
    if (granted == engine->part_count) {
        return;
    }
    if (existing == engine->part_count) {
        state->outcome = CO_BLOCK_EXISTED;
        co_bit_set(op->existed, block);
    } else if (failed == SL_OK && busy) {
        state->outcome = CO_BLOCK_BUSY;
        state->busy_until_ns =
            sl_deadline_ns(self->env->now_ns, sl_deadline_ns(busy_ns, BUSY_GRACE_NS));
    } else {
        block_fail(op, block, sl_err_text(failed != SL_OK ? failed : SL_ERR_INCOMPLETE));
    }
}

static void claims_abort(struct coordinator *self, const struct co_op *op,
                         const struct sl_item_claim *claims, uint32_t count)
{
    if (count == 0) {
        return;
    }
    struct sl_msg abort = {.type = SL_MSG_ABORT, .op_id = op->id, .trace_id = op->trace_id};
    abort.body.abort.items.at = claims;
    abort.body.abort.items.count = count;
    /* A lost ABORT only costs time: the reservations end by their own deadline. */
    (void)co_ask(self, "registrar", &abort, co_cookie(CO_CALL_UNANSWERED, 0, 0), NULL);
}

/* Aborts the slice's claims of blocks that are not whole. None of them may be in a COPY. */
static void abort_broken(struct coordinator *self, struct co_op *op, enum co_part_state whole)
{
    uint32_t part_count = op->slice_count > 0 ? op->engine->part_count : 0;
    struct sl_item_claim *claims =
        co_memory_take(&op->work, (size_t)op->slice_count * part_count, sizeof(*claims));
    uint32_t claim_count = 0;
    for (uint32_t i = 0; i < op->slice_count; i++) {
        struct co_part *parts = &op->parts[i * part_count];
        uint32_t good = 0;
        for (uint32_t k = 0; k < part_count; k++) {
            good += parts[k].state == (uint8_t)whole ? 1u : 0u;
        }
        for (uint32_t k = 0; k < part_count && good < part_count; k++) {
            bool held = parts[k].state == CO_PART_GRANTED || parts[k].state == CO_PART_COPIED ||
                        parts[k].state == CO_PART_BROKEN;
            if (held && claims != NULL) {
                claims[claim_count++] =
                    (struct sl_item_claim){.ref = parts[k].ref, .generation = parts[k].generation};
            }
            parts[k].state = CO_PART_GONE;
        }
    }
    claims_abort(self, op, claims, claim_count);
}

/* Aborts reservations that are not committed; after fences. */
static void store_abort(struct coordinator *self, struct co_op *op)
{
    abort_broken(self, op, CO_PART_GONE); /* no part is: aborts all */
    op->slice_count = 0;
}

static void store_reserved(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    uint32_t part_count = op->engine->part_count;
    const struct sl_item_grant *grants = reply->body.reserve_reply.items.at;
    if (reply->code == SL_OK &&
        reply->body.reserve_reply.items.count != (uint64_t)op->slice_count * part_count) {
        co_reason(op, "the registrar answered %u of %u parts",
                  (uint32_t)reply->body.reserve_reply.items.count, op->slice_count * part_count);
        co_op_end(self, op, SL_ERR_PROTOCOL);
        return;
    }
    for (uint32_t i = 0; i < op->slice_count; i++) {
        if (reply->code == SL_OK) {
            grants_of_block(self, op, i, &grants[i * part_count]);
        } else if (reply->code == SL_ERR_UNREACHABLE) {
            block_await(self, op, op->slice[i]);
        } else {
            block_fail(op, op->slice[i], co_why(reply));
        }
    }
    co_trace(self, op, "reserved", "registrar", op->slice_count);
    abort_broken(self, op, CO_PART_GRANTED); /* all parts or none */
    if (co_by_layers(op)) {
        co_layers_begin_store(self, op);
    } else {
        co_op_enter(self, op, CO_COPY);
    }
}

/* ---- COPY_REPLYs, then COMMIT ---- */

static void store_copied(struct coordinator *self, struct co_op *op)
{
    uint32_t part_count = op->engine->part_count, whole = 0;
    abort_broken(self, op, CO_PART_COPIED);
    for (uint32_t i = 0; i < op->slice_count; i++) {
        if (op->parts[i * part_count].state == CO_PART_COPIED) {
            whole++;
        } else if (op->blocks[op->slice[i]].outcome == CO_BLOCK_OPEN) {
            block_fail(op, op->slice[i], "a rank did not copy its part");
        }
    }
    if (whole == 0) {
        co_store_slice(self, op);
    } else {
        co_op_enter(self, op, CO_COMMIT);
    }
}

static void commit_send(struct coordinator *self, struct co_op *op)
{
    uint32_t part_count = op->engine->part_count;
    struct sl_item_claim *claims =
        co_memory_take(&op->work, (size_t)op->slice_count * part_count, sizeof(*claims));
    uint32_t count = 0;
    if (claims == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < op->slice_count * part_count; i++) {
        const struct co_part *part = &op->parts[i];
        if (op->parts[i / part_count * part_count].state != CO_PART_COPIED) {
            continue;
        }
        claims[count++] = (struct sl_item_claim){.ref = part->ref,
                                                 .generation = part->generation,
                                                 .digest_low = part->digest.low,
                                                 .digest_high = part->digest.high};
    }
    struct sl_msg commit = {.type = SL_MSG_COMMIT};
    commit.body.commit.tail_first = true;
    commit.body.commit.items.at = claims;
    commit.body.commit.items.count = count;
    (void)co_op_call(self, op, "registrar", &commit);
}

static void store_committed(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    uint32_t part_count = op->engine->part_count;
    const struct sl_u64s *codes = &reply->body.commit_reply.codes;
    uint64_t at = 0;
    for (uint32_t i = 0; i < op->slice_count; i++) {
        struct co_part *parts = &op->parts[i * part_count];
        if (parts[0].state != CO_PART_COPIED) {
            continue;
        }
        sl_err code = reply->code;
        for (uint32_t k = 0; k < part_count; k++, at++) {
            bool has_code = at < codes->count && codes->at[at] < SL_ERR_COUNT;
            if (code == SL_OK && (!has_code || codes->at[at] != SL_OK)) {
                code = has_code ? (sl_err)codes->at[at] : SL_ERR_PROTOCOL;
            }
        }
        struct co_block *block = &op->blocks[op->slice[i]];
        if (code != SL_OK) {
            block_fail(op, op->slice[i],
                       sl_err_text(code)); /* the ABORT at the slice's end has its claims */
            continue;
        }
        block->outcome = CO_BLOCK_STORED;
        co_bit_set(op->stored, op->slice[i]);
        block->note_ref = parts[0].ref;
        block->note_generation = parts[0].generation;
        op->bytes += op->engine->block_bytes;
        for (uint32_t k = 0; k < part_count; k++) {
            parts[k].state = CO_PART_GONE; /* committed, so not to be aborted */
        }
    }
    co_trace(self, op, "committed", "registrar", op->slice_count);
    store_abort(self, op);
    co_store_slice(self, op);
}

/* Aborts grants that arrived after the op's end. No swapper knows them, so none writes there. */
void co_store_late_grants(struct coordinator *self, const struct sl_msg *reply)
{
    struct co_op *op = co_op_find(self, reply->op_id);
    if (op == NULL || op->phase != CO_DONE || op->type->kind != CO_STORE) {
        return;
    }
    uint64_t count = reply->body.reserve_reply.items.count;
    struct sl_item_claim *claims = co_memory_take(&op->work, count, sizeof(*claims));
    uint32_t claim_count = 0;
    for (uint64_t i = 0; claims != NULL && i < count; i++) {
        const struct sl_item_grant *grant = &reply->body.reserve_reply.items.at[i];
        if (grant->code == SL_OK && grant->ref != 0 && grant->generation != 0) {
            claims[claim_count++] =
                (struct sl_item_claim){.ref = grant->ref, .generation = grant->generation};
        }
    }
    claims_abort(self, op, claims, claim_count);
    co_memory_reset(&op->work);
}

/* ---- blocks that other ops write ---- */

static void other_look(struct coordinator *self, struct co_op *op, uint32_t i, bool view)
{
    struct co_block *block = &op->blocks[i];
    if (block->away) {
        if (self->env->now_ns >= block->busy_until_ns) {
            block->away = false;
            block->outcome = CO_BLOCK_OPEN;
            op->at = SL_MIN(op->at, i);
        }
        return;
    }
    char key[SL_KEY_BYTES_MAX];
    uint32_t length = co_block_key_write(op->engine, &block->key, key);
    sl_err state = view ? sl_index_find_group(self->view, key, length) : SL_ERR_BUSY;
    if (state == SL_OK && op->handover != NULL) {
        block->outcome = CO_BLOCK_OPEN; /* the hold needs it as well */
        op->at = SL_MIN(op->at, i);
    } else if (state == SL_OK) {
        block->outcome = CO_BLOCK_EXISTED;
        co_bit_set(op->existed, i);
    } else if (state == SL_ERR_NOT_FOUND && block->round < CO_RESERVE_ROUNDS) {
        block->outcome = CO_BLOCK_OPEN; /* the other writer gave up */
        op->at = SL_MIN(op->at, i);
    } else if (state == SL_ERR_NOT_FOUND || self->env->now_ns >= block->busy_until_ns) {
        block_fail(op, i, "another writer kept it busy");
    }
}

static void others_await(struct coordinator *self, struct co_op *op)
{
    op->poll_ns = CO_POLL_NS;
    co_wake(self, op, self->env->now_ns + sl_backoff_next(&op->poll_ns, CO_POLL_NS_MAX));
}

static void others_poll(struct coordinator *self, struct co_op *op)
{
    bool view = sl_index_view_ready(self->env, &self->view);
    bool open = false, busy = false;
    for (uint32_t i = 0; i < op->block_count; i++) {
        if (op->blocks[i].outcome == CO_BLOCK_BUSY) {
            other_look(self, op, i, view);
        }
        open |= op->blocks[i].outcome == CO_BLOCK_OPEN;
        busy |= op->blocks[i].outcome == CO_BLOCK_BUSY;
    }
    if (open || !busy) {
        co_store_slice(self, op);
        return;
    }
    co_wake(self, op, self->env->now_ns + sl_backoff_next(&op->poll_ns, CO_POLL_NS_MAX));
}

static const struct co_phase_ops phases[CO_PHASES] = {
    CO_PHASES_OF_ALL,
    [CO_RESERVE] = {.enter = store_reserve, .reply = store_reserved},
    [CO_COPY] = {.enter = co_copy_start},
    [CO_LAYERS] = {.enter = co_layers_go_store},
    [CO_COMMIT] = {.enter = commit_send, .reply = store_committed},
    [CO_OTHERS] = {.enter = others_await, .tick = others_poll},
};

const struct co_type co_store_type = {
    .kind = CO_STORE,
    .copied_from = CO_PART_GRANTED,
    .go = co_store_slice,
    .copied = store_copied,
    .done = store_abort,
    .phases = phases,
};
