/* actors/transporter/push/check.c - pieces of a notice that lie in device memory. No CPU can read
 * them, so the swapper of each rank, one after the other, digests them where they lie
 * (regions/digests.h).
 *
 * A swapper digests layers of a part. So a piece is whole layers of it: the part itself, or what a
 * push by layers brings. It counts when its digest is right, not before, and nothing of the batch is
 * told until then. */
#include "actors/transporter/push/internal.h"
#include "actors/transporter/regions/digests.h"

#include <inttypes.h>

static const struct push_part *part_of(const struct push *push, const struct push_arrival *arrival,
                                       uint32_t piece)
{
    return &push->tickets[arrival->ticket].parts[arrival->pieces[piece].part];
}

static const struct tr_spot *spot_of(const struct push *push, const struct push_arrival *arrival,
                                     uint32_t piece)
{
    return &push->tickets[arrival->ticket].spots[part_of(push, arrival, piece)->spot_first];
}

sl_err push_piece_arrived(struct push *push, const struct push_arrival *arrival, uint32_t index,
                          struct sl_error *why)
{
    const struct sl_item_arrived *piece = &arrival->pieces[index];
    struct push_part *part = &push->tickets[arrival->ticket].parts[piece->part];
    if (sl_cover_within(&part->cover, piece->part_offset_bytes, piece->length_bytes) > 0) {
        return SL_OK; /* a repetition */
    }
    sl_metric_add(push->self->env->metrics, push->metric.bytes_in, piece->length_bytes);
    sl_err err = sl_cover_add(&part->cover, piece->part_offset_bytes, piece->length_bytes);
    return err == SL_OK
               ? SL_OK
               : sl_fail(why, err, "part %" PRIu64 " comes in too many pieces", piece->part);
}

static bool is_due(const struct push *push, const struct push_arrival *arrival, uint32_t piece)
{
    return part_of(push, arrival, piece)->device && arrival->states[piece] == PIECE_DUE;
}

static sl_err block_make(struct push *push, const struct push_arrival *arrival, uint32_t piece,
                         struct sl_item_piece *out, struct sl_error *why)
{
    const struct tr_spot *spot = spot_of(push, arrival, piece);
    const struct tr_range range = {.offset_bytes = arrival->pieces[piece].part_offset_bytes,
                                   .length_bytes = arrival->pieces[piece].length_bytes};
    uint32_t first = 0, end = 0;
    sl_err err = tr_spot_layers(push->self, spot, range, &first, &end, why);
    *out = (struct sl_item_piece){.pool = spot->pool,
                                  .part = spot->part,
                                  .device_block = spot->device_block,
                                  .length_bytes = part_of(push, arrival, piece)->length_bytes,
                                  .first_layer = first,
                                  .layer_end = end};
    return err;
}

/* The pieces that were asked for are due again; gives their rank. */
static uint32_t question_over(const struct push *push, struct push_arrival *arrival)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < arrival->piece_count; i++) {
        if (arrival->states[i] == PIECE_ASKED) {
            rank = spot_of(push, arrival, i)->rank;
            arrival->states[i] = PIECE_DUE;
        }
    }
    return rank;
}

/* No digests came. A queue that is full will not stay so. */
static sl_err question_failed(const struct push *push, struct push_arrival *arrival, sl_err code,
                              const char *text, struct sl_error *why)
{
    uint32_t rank = question_over(push, arrival);
    return sl_fail(why, code == SL_ERR_LIMIT ? SL_ERR_BUSY : code,
                   "swapper.%u has not checked it: %.160s", rank,
                   text[0] != '\0' ? text : sl_err_text(code));
}

sl_err push_check_ask(struct push *push, struct push_arrival *arrival, bool *asked,
                      struct sl_error *why)
{
    uint32_t count = 0;
    const struct tr_spot *rank = NULL;
    for (uint32_t i = 0; i < arrival->piece_count; i++) {
        if (!is_due(push, arrival, i)) {
            continue;
        }
        const struct tr_spot *spot = spot_of(push, arrival, i);
        rank = rank != NULL ? rank : spot;
        if (spot->rank != rank->rank || spot->engine_id != rank->engine_id) {
            continue;
        }
        sl_err err = block_make(push, arrival, i, &push->blocks[count], why);
        if (err != SL_OK) {
            return err;
        }
        arrival->states[i] = PIECE_ASKED;
        count++;
    }
    *asked = count > 0;
    if (rank == NULL) {
        return SL_OK;
    }
    const struct tr_digests_want want = {
        .rank = rank,
        .blocks = push->blocks,
        .block_count = count,
        .trace_id = arrival->trace_id,
        .deadline_ns = arrival->deadline_ns,
        .cookie = push_cookie(PUSH_CALL_ARRIVAL, (uint32_t)(arrival - push->arrivals))};
    sl_err err = tr_digests_ask(push->self, push->calls, &want, &arrival->call_seq);
    return err == SL_OK ? SL_OK : question_failed(push, arrival, err, "", why);
}

static sl_err piece_verdict(struct push *push, struct push_arrival *arrival, uint32_t piece,
                            const struct sl_body_copy_reply *body, uint32_t at,
                            struct sl_error *why)
{
    const struct sl_item_arrived *told = &arrival->pieces[piece];
    const struct sl_digest want = {.low = told->digest_low, .high = told->digest_high};
    sl_err err = tr_digests_said(body, at, want);
    if (err == SL_OK) {
        arrival->states[piece] = PIECE_RIGHT;
        return push_piece_arrived(push, arrival, piece, why);
    }
    if (err == SL_ERR_CORRUPT) {
        sl_metric_add(push->self->env->metrics, push->metric.digests_bad, 1);
        return sl_fail(why, err,
                       "part %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
                       " in device memory do not match their digest",
                       told->part, told->length_bytes, told->part_offset_bytes);
    }
    return sl_fail(why, err, "swapper.%u says nothing of part %" PRIu64,
                   spot_of(push, arrival, piece)->rank, told->part);
}

sl_err push_check_answered(struct push *push, struct push_arrival *arrival,
                           const struct sl_msg *reply, struct sl_error *why)
{
    sl_err err = SL_OK;
    uint32_t at = 0;
    if (reply == NULL || reply->code != SL_OK) {
        bool told = reply != NULL && reply->text.length > 0;
        return question_failed(push, arrival, reply == NULL ? SL_ERR_TIMEOUT : reply->code,
                               told ? reply->text.at : "", why);
    }
    for (uint32_t i = 0; err == SL_OK && i < arrival->piece_count; i++) {
        if (arrival->states[i] == PIECE_ASKED) {
            err = piece_verdict(push, arrival, i, &reply->body.copy_reply, at++, why);
        }
    }
    return err;
}
