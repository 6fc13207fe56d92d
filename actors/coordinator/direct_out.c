/* actors/coordinator/direct_out.c - the type of a STORE that is handed over directly: prefill's
 * side.
 *
 * Swappers compute digests of some parts in place ("look"), and continue with the next ones. A LEND
 * names the parts that decode's node may read, with their digests. The transporter answers a LEND
 * when it has noted it, so nothing waits for decode. Only the last LEND is answered when decode has
 * everything, or the loan has ended otherwise. */
#include "actors/coordinator/internal.h"

#define LOOK_PARTS_FIRST 128u /* few at first, so that decode starts early */
#define LOOK_BYTES_FIRST (4 * SL_MIB)
#define LOOK_PARTS       512u /* about a millisecond for one rank, far more than a round trip */
#define LOOK_BYTES       (16 * SL_MIB)

static uint32_t parts_of(const struct co_op *op)
{
    return op->slice_count * op->engine->part_count;
}

/* ---- parts that are looked at, and named ---- */

/* End of the parts that are looked at together: at least one. */
static uint32_t look_end(const struct co_op *op)
{
    uint32_t from = op->direct.looked, at = from;
    uint32_t count_max = from == 0 ? LOOK_PARTS_FIRST : LOOK_PARTS;
    uint64_t bytes_max = from == 0 ? LOOK_BYTES_FIRST : LOOK_BYTES, bytes = 0;
    while (at < parts_of(op) && at - from < count_max) {
        bytes += co_cut_of(op, at)->length_bytes;
        if (at > from && bytes > bytes_max) {
            break;
        }
        at++;
    }
    return at;
}

static bool looked_at_all(const struct co_op *op)
{
    return co_by_layers(op) ? op->layers.done == op->layers.count
                            : op->direct.looked == parts_of(op);
}

static bool named_all(const struct co_op *op)
{
    return co_by_layers(op) ? op->direct.named_layers == op->layers.done
                            : op->direct.named == op->direct.looked;
}

/* ---- ends ---- */

static void out_store(struct coordinator *self, struct co_op *op)
{
    co_direct_fallback_note(self, op);
    op->direct.look_end = 0;
    co_op_become(op, &co_store_type);
    sl_handover_lend(&op->handover->machine, SL_HANDOVER_HELD);
    co_store_slice(self, op);
}

static void out_over(struct coordinator *self, struct co_op *op);

static void out_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (op->handover->arrived || !co_direct_falls_back(self)) {
        co_op_end(self, op, code); /* blocks that arrived are handed over anyway */
    } else if (op->direct.device_in_use) {
        co_direct_settle(self, op, out_over);
    } else {
        out_store(self, op);
    }
}

/* Decode reads no more. */
static void out_over(struct coordinator *self, struct co_op *op)
{
    if (op->direct.failed != SL_OK) {
        out_failed(self, op, op->direct.failed);
    } else {
        co_op_end(self, op, SL_OK);
    }
}

/* ---- LEND ---- */

static void piece_name(struct co_op *op, uint32_t part, const struct co_range *range, uint32_t i)
{
    const struct co_engine *engine = op->engine;
    const struct co_cut *cut = co_cut_of(op, part);
    uint32_t rank = co_part_writer(op, part);
    op->direct.pieces[i] = (struct sl_item_arrived){.part = part,
                                                    .part_offset_bytes = range->from,
                                                    .length_bytes = range->end - range->from,
                                                    .digest_low = op->parts[part].digest.low,
                                                    .digest_high = op->parts[part].digest.high};
    op->direct.slots[i] = (struct sl_item_slot){
        .engine_id = engine->members[rank],
        .rank = rank,
        .pool = cut->pool,
        .part = cut->part,
        .device_block = co_device_block(op, op->slice[part / engine->part_count], cut->pool),
        .item = i};
}

/* Names the next pieces that have digests: at least one. */
static uint32_t pieces_name(struct co_op *op)
{
    struct co_direct *direct = &op->direct;
    uint32_t end = co_by_layers(op) ? parts_of(op) : direct->looked, count = 0;
    for (; direct->named < end; direct->named++) {
        struct co_range range = {.end = co_cut_of(op, direct->named)->length_bytes};
        if (co_by_layers(op) && !co_layers_between(op, co_cut_of(op, direct->named),
                                                   direct->named_layers, op->layers.done, &range)) {
            continue; /* also parts after the last piece */
        }
        if (count == CO_LEND_PIECES) {
            return count;
        }
        piece_name(op, direct->named, &range, count++);
    }
    if (co_by_layers(op)) {
        direct->named_layers = op->layers.done;
        direct->named = 0;
    }
    return count;
}

/* False: the op was ended. */
static bool lend_next(struct coordinator *self, struct co_op *op)
{
    struct co_direct *direct = &op->direct;
    struct sl_msg lend = {.type = SL_MSG_LEND};
    struct sl_body_lend *body = &lend.body.lend;
    uint64_t count = pieces_name(op);
    body->ticket = direct->ticket;
    body->number = ++direct->lends;
    body->last = looked_at_all(op) && named_all(op);
    body->pieces.at = direct->pieces;
    body->pieces.count = count;
    body->slots.at = direct->slots;
    body->slots.count = count;
    return co_direct_call(self, op, &lend);
}

/* No swapper works: continues with what has digests and what is named. */
static void loan_go(struct coordinator *self, struct co_op *op)
{
    struct co_direct *direct = &op->direct;
    if (direct->failed != SL_OK) {
        co_call_forget(self, &op->call_seq);
        out_failed(self, op, direct->failed);
        return;
    }
    if (op->call_seq == 0 && !named_all(op) && !lend_next(self, op)) {
        return;
    }
    if (!named_all(op) || looked_at_all(op)) { /* continues with its answer */
        co_op_enter(self, op, CO_LEND);
    } else if (!co_by_layers(op)) {
        direct->look_end = look_end(op);
        co_op_enter(self, op, CO_COPY);
    } else if (op->phase != CO_LAYERS) {
        co_op_enter(self, op, CO_LAYERS); /* calls this again */
    } else {
        co_layers_copy_ready(self, op);
    }
}

static void look_failed(struct co_op *op)
{
    if (op->direct.failed == SL_OK) {
        co_reason(op, "a rank did not compute the digest of its part");
        op->direct.failed = SL_ERR_INCOMPLETE;
    }
}

static void out_looked(struct coordinator *self, struct co_op *op)
{
    for (; op->direct.looked < op->direct.look_end; op->direct.looked++) {
        if (op->parts[op->direct.looked].state != CO_PART_COPIED) {
            look_failed(op);
        }
    }
    loan_go(self, op);
}

static void layers_enter(struct coordinator *self, struct co_op *op)
{
    if (co_layers_any(op, CO_PART_BROKEN)) {
        look_failed(op);
    }
    loan_go(self, op);
}

static void lend_answered(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    struct co_direct *direct = &op->direct;
    bool looking = op->phase == CO_COPY || op->phase == CO_SETTLE;
    if (reply->code != SL_OK) {
        co_reason(op, "not handed over: %s", co_why(reply));
        direct->failed = direct->failed != SL_OK ? direct->failed : reply->code;
        direct->device_in_use = !co_share_is_settled(self, &op->shares[CO_TRANSPORTER]);
        if (direct->lends == 1) {
            (void)co_direct_is_refusal(self, reply->code);
        }
    }
    if (looking) {
        return; /* continues after the look */
    }
    if (reply->code == SL_OK && looked_at_all(op) && named_all(op)) {
        co_direct_over(self, op, out_over);
    } else {
        loan_go(self, op);
    }
}

/* ---- the type ---- */

static void out_go(struct coordinator *self, struct co_op *op)
{
    struct co_direct *direct = &op->direct;
    if (!co_direct_start(self, op, direct->skip)) {
        return;
    }
    direct->pieces = co_memory_take(&op->life, CO_LEND_PIECES, sizeof(*direct->pieces));
    direct->slots = co_memory_take(&op->life, CO_LEND_PIECES, sizeof(*direct->slots));
    if (direct->pieces == NULL || direct->slots == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < parts_of(op); i++) {
        op->parts[i].state = CO_PART_GRANTED; /* to be looked at */
    }
    co_layers_begin(op);
    loan_go(self, op);
}

/* By layers a LEND is in flight while swappers look at other layers. */
static const struct co_phase_ops phases[CO_PHASES] = {
    [CO_KEYS] = {.enter = co_op_ask_keys, .reply = co_op_keys},
    [CO_GREET] = {.tick = co_op_go},
    [CO_COPY] = {.enter = co_copy_start, .reply = lend_answered},
    [CO_LAYERS] = {.enter = layers_enter, .reply = lend_answered},
    [CO_SETTLE] = {.reply = lend_answered, .tick = co_fence_tick},
    [CO_LEND] = {.reply = lend_answered},
    [CO_ZOMBIE] = {.tick = co_fence_tick},
};

const struct co_type co_direct_out_type = {
    .kind = CO_STORE,
    .direct = true,
    .copied_from = CO_PART_GRANTED,
    .go = out_go,
    .direct_failed = out_failed,
    .copied = out_looked,
    .phases = phases,
};
