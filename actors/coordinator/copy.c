/* actors/coordinator/copy.c - COPY requests to the ranks, and their answers.
 *
 * A COPY is resent until it is answered. A swapper recognises a repeated COPY, but one that was
 * restarted in between does not: it may work on a COPY that its predecessor has answered. Device
 * blocks and extents must not be reused meanwhile. So a late answer counts at once only if the
 * first receiver still lives. Otherwise the rank is fenced before the slice continues
 * (CO_SETTLE). */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <string.h>

static uint64_t rank_bit(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

/* ---- COPY ---- */

static void slice_copied(struct coordinator *self, struct co_op *op)
{
    co_trace(self, op, op->type->kind == CO_STORE ? "copied out" : "copied in", "",
             op->slice_count);
    if (co_by_layers(op)) {
        co_layers_copied(self, op);
    } else {
        op->type->copied(self, op);
    }
}

/* Whether COPYs that start now include this part: a direct store looks at its parts in steps. */
static bool is_next(const struct co_op *op, uint32_t part)
{
    const struct co_direct *direct = &op->direct;
    return direct->look_end == 0 || (part >= direct->looked && part < direct->look_end);
}

/* Notes which ranks copy each part of the slice now. */
static void parts_ask(struct co_op *op)
{
    for (uint32_t i = 0; i < op->slice_count * op->engine->part_count; i++) {
        struct co_part *part = &op->parts[i];
        const struct co_cut *cut = co_cut_of(op, i);
        struct co_range range;
        bool asked = part->state == op->type->copied_from && is_next(op, i) &&
                     co_layers_range(op, cut, &range);
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
        bool has_digest = op->type->kind == CO_LOAD && range.layer_end == 0;
        items[count++] = (struct sl_item_piece){
            .digest_low = has_digest ? part->digest.low : 0,
            .digest_high = has_digest ? part->digest.high : 0,
            .pool = cut->pool,
            .part = cut->part,
            .device_block = co_device_block(op, op->slice[i / op->engine->part_count], cut->pool),
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

/* A rank has answered for the part, which is copied when all its ranks have copied it. */
static void part_answered(struct co_op *op, struct co_part *part, uint32_t rank, bool copied)
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

/* Marks what a rank has copied. A bitmap of another size than requested marks nothing. */
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
        part_answered(op, part, rank, copied);
        item++;
    }
}

static void rank_copy(struct coordinator *self, struct co_op *op, uint32_t rank,
                      const struct sl_item_piece *items, uint32_t count)
{
    struct co_share *share = &op->shares[rank];
    const char *name = self->ranks[rank].name;
    co_rank_identify(self, rank);
    struct sl_msg copy = {.type = SL_MSG_COPY, .op_id = op->id, .trace_id = op->trace_id};
    copy.body.copy = (struct sl_body_copy){.engine_id = op->engine->members[rank],
                                           .rank = rank,
                                           .out = op->type->kind == CO_STORE,
                                           .look = op->type->direct,
                                           .chunks = co_layers_chunked(op),
                                           .items = {items, count}};
    for (uint32_t i = 0; i < op->event_count; i++) {
        if (op->event_ranks[i] == rank) {
            copy.body.copy.event = (struct sl_bytes){.at = op->events[i], .length = SL_EVENT_BYTES};
        }
    }
    sl_err err = sl_calls_send(self->calls, name, &copy, op->deadline_ns,
                               co_op_cookie(self, op, CO_CALL_COPY, rank), &share->call_seq);
    share->item_count = count;
    if (err != SL_OK) { /* then its parts are not copied */
        co_reason(op, "COPY to %s: %s", name, sl_err_text(err));
        take_done(op, rank, &(struct sl_body_copy_reply){0});
        return;
    }
    share->proc = self->ranks[rank].proc;
    share->sent_ns = self->env->now_ns;
    op->shares_open++;
}

/* By layers a slice has many COPYs, which share this memory. */
static struct sl_item_piece *copy_items(struct co_op *op)
{
    uint32_t room = op->slice_count * op->engine->part_count; /* one rank has no more */
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

void co_copy_answered(struct coordinator *self, struct co_op *op, uint32_t rank,
                      const struct sl_msg *reply)
{
    if (reply == NULL) { /* its deadline is the op's */
        co_op_end(self, op, SL_ERR_TIMEOUT);
        return;
    }
    op->shares[rank].call_seq = 0;
    op->shares_open--;
    take_done(op, rank, &reply->body.copy_reply);
    if (reply->code == SL_ERR_NOT_FOUND && op->engine->team) {
        op->engine->stale = true;
    }
    if (reply->code != SL_OK) {
        co_reason(op, "rank %u: %s", rank, co_why(reply));
    }
    if (!co_share_is_settled(self, &op->shares[rank])) {
        op->unsettled |= co_worker_bit(rank);
    }
    if (op->shares_open > 0) {
        return;
    }
    /* The transporter writes only blocks that no rank copies. */
    co_workers ranks = ~co_worker_bit(CO_TRANSPORTER);
    if ((op->unsettled & ranks) == 0) {
        slice_copied(self, op);
    } else {
        co_settle(self, op, ranks, slice_copied);
    }
}
