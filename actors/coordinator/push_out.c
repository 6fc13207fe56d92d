/* actors/coordinator/push_out.c - the type of a STORE that is pushed: prefill's side. Its swappers
 * look at its blocks, and the transporter writes them under decode's ticket. */
#include "actors/coordinator/internal.h"

static void out_go(struct coordinator *self, struct co_op *op)
{
    if (!co_push_start(self, op, op->push.skip)) {
        return;
    }
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        op->parts[i].state = CO_PART_GRANTED; /* to be looked at */
    }
    if (co_by_layers(op)) {
        co_layers_begin(op);
        co_op_enter(self, op, CO_LAYERS);
    } else {
        co_batches_begin(self, op);
    }
}

/* ---- PUSH_SEND ---- */

bool co_push_pieces(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    layers->piece_count = 0;
    if (layers->pieces == NULL) {
        layers->pieces = co_memory_take(&op->life, CO_BATCH_PIECES, sizeof(*layers->pieces));
        layers->spots = co_memory_take(&op->life, CO_BATCH_PIECES, sizeof(*layers->spots));
    }
    if (layers->pieces == NULL || layers->spots == NULL) {
        co_op_end(self, op, SL_ERR_NO_MEMORY);
        return false;
    }
    return true;
}

void co_push_piece(struct co_op *op, uint32_t part, const struct co_range *range,
                   struct sl_digest digest)
{
    const struct co_engine *engine = op->engine;
    const struct co_cut *cut = co_cut_of(op, part);
    uint32_t rank = co_part_writer(op, part), i = op->layers.piece_count++;
    op->layers.pieces[i] = (struct sl_item_arrived){.part = part,
                                                    .part_offset_bytes = range->from,
                                                    .length_bytes = range->end - range->from,
                                                    .digest_low = digest.low,
                                                    .digest_high = digest.high};
    op->layers.spots[i] = (struct sl_item_spot){
        .engine_id = engine->members[rank],
        .rank = rank,
        .pool = cut->pool,
        .part = cut->part,
        .device_block = co_device_block(op, op->slice[part / engine->part_count], cut->pool),
        .item = i};
}

struct sl_msg co_push_message(struct coordinator *self, struct co_op *op, bool last)
{
    const struct co_layers *layers = &op->layers;
    struct sl_msg push = {.type = SL_MSG_PUSH_SEND};
    struct sl_body_push_send *body = &push.body.push_send;
    body->ticket = op->push.ticket;
    body->last = last;
    body->pieces.at = layers->pieces;
    body->pieces.count = layers->piece_count;
    body->spots.at = layers->spots;
    body->spots.count = layers->piece_count;
    co_push_lent(self, op);
    return push;
}

/* Nothing more is to be read for it. Nobody acknowledges what comes late. */
static void out_abort(struct coordinator *self, struct co_op *op, sl_err code)
{
    struct sl_msg abort = {.type = SL_MSG_PUSH_ABORT, .trace_id = op->trace_id};
    op->push.over = true;
    abort.body.push_abort.ticket = op->push.ticket;
    abort.body.push_abort.code = (uint64_t)code;
    abort.body.push_abort.text = sl_text_of(op->reason);
    (void)co_ask(self, "transporter.0", &abort, co_cookie(CO_CALL_NOBODY, 0, 0), NULL);
}

void co_push_out_failed(struct coordinator *self, struct co_op *op, sl_err code)
{
    if (op->push.lent && !op->push.begun) {
        (void)co_push_refused(self, op, code);
    }
    co_call_forget(self, &op->call_seq); /* by layers: others of it may be on their way */
    op->layers.pushing = false;
    co_batches_forget(self, op);
    op->push.batches = (struct co_batches){0};
    out_abort(self, op, code);
    if (!co_push_falls_back(self)) {
        co_op_end(self, op, code);
        return;
    }
    co_push_fallback_note(self, op);
    co_op_become(op, &co_store_type);
    sl_handover_lend(&op->handover->machine, SL_HANDOVER_HELD);
    co_store_slice(self, op);
}

void co_push_done(struct coordinator *self, struct co_op *op)
{
    op->push.lent = false; /* all was acknowledged: nothing is read any more */
    co_count(self, self->metric.handover_pushed_count, 1);
    op->bytes = (uint64_t)op->slice_count * op->engine->block_bytes;
    co_op_end(self, op, SL_OK);
}

/* ---- by layers ---- */

/* Sends what is next of layers [pushed, push_end). False: the op was ended. */
static bool push_layers(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    uint32_t part_total = op->slice_count * op->engine->part_count;
    if (!co_push_pieces(self, op)) {
        return false;
    }
    for (; op->asked_count < part_total; op->asked_count++) {
        const struct co_part *part = &op->parts[op->asked_count];
        struct co_range range;
        if (!co_layers_between(op, co_cut_of(op, op->asked_count), layers->pushed, layers->push_end,
                               &range)) {
            continue; /* also behind the last piece: a batch is never empty */
        }
        if (layers->piece_count == CO_BATCH_PIECES) {
            break;
        }
        co_push_piece(op, op->asked_count, &range, part->pushed_digest);
    }
    layers->pushing = true;
    struct sl_msg push = co_push_message(
        self, op, op->asked_count == part_total && layers->push_end == layers->count);
    push.body.push_send.layer = layers->push_end; /* 1 + the last in it */
    return co_op_call(self, op, "transporter.0", &push);
}

/* False: the op was ended. */
static bool push_begin(struct coordinator *self, struct co_op *op)
{
    uint32_t part_total = op->slice_count * op->engine->part_count;
    op->layers.push_end = op->layers.done;
    op->asked_count = 0;
    for (uint32_t i = 0; i < part_total; i++) {
        op->parts[i].pushed_digest = op->parts[i].digest;
    }
    return push_layers(self, op);
}

static void layers_go(struct coordinator *self, struct co_op *op)
{
    struct co_layers *layers = &op->layers;
    if (layers->pushed == layers->count) {
        co_push_done(self, op);
        return;
    }
    if (!layers->pushing && layers->pushed < layers->done && !push_begin(self, op)) {
        return;
    }
    /* What is copied and not pushed yet has one digest: that of one COPY. */
    if (layers->push_end == layers->done) {
        co_layers_copy_ready(self, op);
    }
}

static void layers_enter(struct coordinator *self, struct co_op *op)
{
    sl_err failed = op->layers.push_failed;
    if (failed == SL_OK && co_layers_any(op, CO_PART_BROKEN)) {
        co_reason(op, "a rank did not look at its part");
        failed = SL_ERR_INCOMPLETE;
    }
    if (failed != SL_OK) {
        co_push_out_failed(self, op, failed);
    } else {
        layers_go(self, op);
    }
}

static void layers_pushed(struct coordinator *self, struct co_op *op, const struct sl_msg *reply)
{
    struct co_layers *layers = &op->layers;
    layers->pushing = false;
    op->push.begun = op->push.begun || reply->code == SL_OK;
    if (reply->code != SL_OK) {
        co_reason(op, "push: %s", co_why(reply));
        layers->push_failed = reply->code;
    } else if (op->asked_count < op->slice_count * op->engine->part_count) {
        (void)push_layers(self, op);
        return;
    } else {
        layers->pushed = layers->push_end;
        co_trace(self, op, "layers pushed", "transporter", layers->pushed);
    }
    if (op->phase == CO_LAYERS) { /* else swappers still look at the blocks */
        layers_enter(self, op);
    }
}

/* ---- the type ---- */

/* What was sent may be read yet. */
static void out_ended(struct coordinator *self, struct co_op *op, sl_err code)
{
    co_batches_forget(self, op);
    bool sent = co_by_layers(op) || op->push.batches.sent > 0 || op->phase == CO_PUSH;
    if (sent && !op->push.over) {
        out_abort(self, op, code);
    }
}

/* By layers a PUSH_SEND is in flight while others are looked at. */
static const struct co_phase_ops phases[CO_PHASES] = {
    [CO_KEYS] = {.enter = co_op_ask_keys, .reply = co_op_keys},
    [CO_GREET] = {.tick = co_op_go},
    [CO_COPY] = {.enter = co_copy_start, .reply = layers_pushed},
    [CO_LAYERS] = {.enter = layers_enter, .reply = layers_pushed},
    [CO_SETTLE] = {.reply = layers_pushed, .tick = co_fence_tick},
    [CO_PUSH] = {.enter = NULL}, /* batches are calls of their own */
    [CO_ZOMBIE] = {.tick = co_fence_tick},
};

const struct co_type co_push_out_type = {
    .kind = CO_STORE,
    .push = true,
    .copied_from = CO_PART_GRANTED,
    .go = out_go,
    .push_failed = co_push_out_failed,
    .copied = co_batches_looked,
    .failed = out_ended,
    .phases = phases,
};
