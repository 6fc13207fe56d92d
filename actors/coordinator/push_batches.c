/* actors/coordinator/push_batches.c - a push that is not by layers: its looks, writes and checks at the
 * same time.
 *
 * Swappers look at some parts of the slice where they lie, and go on with the next. What they are
 * through with goes in batches of which a few are in flight: one is looked at, one is written,
 * one is checked at decode. The last batch says that it is the last. It goes when every other
 * one was acknowledged: a transporter that started anew in between may hear of them in any order. */
#include "actors/coordinator/internal.h"

#define BATCH_PARTS \
    128u /* 2 MiB of parts of 16 KiB: what a batch costs by itself is little beside them */
#define BATCH_BYTES (4 * SL_MIB)
#define LOOK_PARTS  512u /* of a rank about a millisecond, far more than a round trip */
#define LOOK_BYTES  (16 * SL_MIB)

static uint32_t parts_of(const struct co_op *op)
{
    return op->slice_count * op->engine->part_count;
}

/* The end of what goes together: one part at least. */
static uint32_t run_end(const struct co_op *op, uint32_t from, uint32_t end, uint32_t part_max,
                        uint64_t bytes_max)
{
    uint64_t bytes = 0;
    uint32_t at = from;
    while (at < end && at - from < part_max) {
        bytes += co_cut_of(op, at)->length_bytes;
        if (at > from && bytes > bytes_max) {
            break;
        }
        at++;
    }
    return at;
}

static bool looking(const struct co_op *op)
{
    return op->push.batches.look_end > op->push.batches.looked;
}

void co_batches_forget(struct coordinator *self, struct co_op *op)
{
    for (uint32_t i = 0; i < CO_BATCHES_MAX; i++) {
        co_call_forget(self, &op->push.batches.call_seqs[i]);
    }
    op->push.batches.open = 0;
}

/* The next parts are looked at; few at first, so that the first batch goes soon. */
static void look_next(struct coordinator *self, struct co_op *op)
{
    struct co_batches *batches = &op->push.batches;
    bool first = batches->looked == 0;
    batches->look_end = run_end(op, batches->looked, parts_of(op), first ? BATCH_PARTS : LOOK_PARTS,
                                first ? BATCH_BYTES : LOOK_BYTES);
    co_op_enter(self, op, CO_COPY);
}

void co_batches_begin(struct coordinator *self, struct co_op *op)
{
    op->push.batches = (struct co_batches){0};
    look_next(self, op);
}

/* Sends the parts up to end. False: the op was ended. */
static bool batch_send(struct coordinator *self, struct co_op *op, uint32_t end)
{
    struct co_batches *batches = &op->push.batches;
    uint32_t place = 0;
    if (!co_push_pieces(self, op)) {
        return false;
    }
    for (uint32_t i = batches->sent; i < end; i++) {
        const struct co_range whole = {.end = co_cut_of(op, i)->length_bytes};
        co_push_piece(op, i, &whole, op->parts[i].digest);
    }
    struct sl_msg push = co_push_message(self, op, end == parts_of(op));
    push.op_id = op->id;
    push.trace_id = op->trace_id;
    while (batches->call_seqs[place] != 0) {
        place++;
    }
    sl_err err =
        sl_calls_send(self->calls, "transporter.0", &push, op->deadline_ns,
                      co_op_cookie(self, op, CO_CALL_BATCH, place), &batches->call_seqs[place]);
    batches->sent = end;
    if (err != SL_OK) {
        co_reason(op, "%s to transporter.0: %s", sl_msg_name(push.type), sl_err_text(err));
        co_op_end(self, op, err);
        return false;
    }
    batches->open++;
    return true;
}

/* What can be done now. */
static void batches_go(struct coordinator *self, struct co_op *op)
{
    struct co_batches *batches = &op->push.batches;
    uint32_t part_total = parts_of(op);
    if (batches->failed != SL_OK) {
        if (!looking(op) && batches->open == 0) {
            co_push_out_failed(self, op, batches->failed);
        }
        return;
    }
    while (batches->sent < batches->looked && batches->open < CO_BATCHES_MAX) {
        uint32_t end = run_end(op, batches->sent, batches->looked, BATCH_PARTS, BATCH_BYTES);
        if (end == part_total && batches->open > 0) {
            break;
        }
        if (!batch_send(self, op, end)) {
            return;
        }
    }
    if (batches->sent == part_total && batches->open == 0) {
        co_push_done(self, op);
    } else if (!looking(op) && batches->looked < part_total) {
        look_next(self, op);
    } else if (!looking(op) && op->phase != CO_PUSH) {
        co_op_enter(self, op, CO_PUSH);
    }
}

void co_batches_looked(struct coordinator *self, struct co_op *op)
{
    struct co_batches *batches = &op->push.batches;
    for (uint32_t i = batches->looked; i < batches->look_end; i++) {
        if (op->parts[i].state != CO_PART_COPIED && batches->failed == SL_OK) {
            co_reason(op, "a rank did not look at its part");
            batches->failed = SL_ERR_INCOMPLETE;
        }
    }
    batches->looked = batches->look_end;
    batches_go(self, op);
}

void co_batch_answered(struct coordinator *self, struct co_op *op, uint32_t place,
                       const struct sl_msg *reply)
{
    struct co_batches *batches = &op->push.batches;
    batches->call_seqs[place] = 0;
    batches->open--;
    if (reply == NULL) {
        co_reason(op, "deadline passed %s", co_phase_text(CO_PUSH));
        co_op_end(self, op, SL_ERR_TIMEOUT);
        return;
    }
    op->push.begun = op->push.begun || reply->code == SL_OK;
    if (reply->code != SL_OK && batches->failed == SL_OK) {
        co_reason(op, "push: %s", co_why(reply));
        batches->failed = reply->code;
    }
    batches_go(self, op);
}
