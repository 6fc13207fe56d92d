/* actors/transporter/handover/check.c - pieces that were read into device memory. No CPU can read them, so
 * the swapper of each rank, one after the other, digests them where they lie (regions/digests.h).
 *
 * A swapper digests layers of a part, so a piece is whole layers of it. */
#include "actors/transporter/handover/internal.h"
#include "actors/transporter/regions/digests.h"

#include <inttypes.h>

static const struct ho_part *part_of(const struct handover *ho, const struct ho_read *read,
                                     uint32_t piece)
{
    return &ho->takes[read->take].parts[read->pieces[piece].part];
}

static const struct tr_spot *spot_of(const struct handover *ho, const struct ho_read *read,
                                     uint32_t piece)
{
    return &ho->takes[read->take].spots[part_of(ho, read, piece)->spot_first];
}

static sl_err block_make(struct handover *ho, const struct ho_read *read, uint32_t piece,
                         struct sl_item_piece *out, struct sl_error *why)
{
    const struct tr_spot *spot = spot_of(ho, read, piece);
    uint32_t first = 0, end = 0;
    sl_err err = tr_spot_layers(ho->self, spot, ho_range(&read->pieces[piece]), &first, &end, why);
    *out = (struct sl_item_piece){.pool = spot->pool,
                                  .part = spot->part,
                                  .device_block = spot->device_block,
                                  .length_bytes = part_of(ho, read, piece)->length_bytes,
                                  .first_layer = first,
                                  .layer_end = end};
    return err;
}

/* No digests came: the pieces that were asked for are due again. A queue that is full will not stay so. */
static sl_err question_failed(const struct handover *ho, struct ho_read *read, sl_err code,
                              const char *text, struct sl_error *why)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < read->piece_count; i++) {
        if (read->states[i] == PIECE_ASKED) {
            rank = spot_of(ho, read, i)->rank;
            read->states[i] = PIECE_DUE;
        }
    }
    return sl_fail(why, code == SL_ERR_LIMIT ? SL_ERR_BUSY : code,
                   "swapper.%u has not checked it: %.160s", rank,
                   text[0] != '\0' ? text : sl_err_text(code));
}

sl_err ho_check_ask(struct handover *ho, struct ho_read *read, bool *asked, struct sl_error *why)
{
    uint32_t count = 0;
    const struct tr_spot *rank = NULL;
    for (uint32_t i = 0; i < read->piece_count; i++) {
        if (!part_of(ho, read, i)->device || read->states[i] != PIECE_DUE) {
            continue;
        }
        const struct tr_spot *spot = spot_of(ho, read, i);
        rank = rank != NULL ? rank : spot;
        if (spot->rank != rank->rank || spot->engine_id != rank->engine_id) {
            continue;
        }
        sl_err err = block_make(ho, read, i, &ho->blocks[count], why);
        if (err != SL_OK) {
            return err;
        }
        read->states[i] = PIECE_ASKED;
        count++;
    }
    *asked = count > 0;
    if (rank == NULL) {
        return SL_OK;
    }
    const struct tr_digests_want want = {.rank = rank,
                                         .blocks = ho->blocks,
                                         .block_count = count,
                                         .trace_id = read->trace_id,
                                         .deadline_ns = ho->takes[read->take].back.deadline_ns,
                                         .cookie =
                                             tr_cookie(TR_CALL_READ, (uint32_t)(read - ho->reads))};
    sl_err err = tr_digests_ask(ho->self, &want, &read->call_seq);
    return err == SL_OK ? SL_OK : question_failed(ho, read, err, "", why);
}

sl_err ho_check_answered(struct handover *ho, struct ho_read *read, const struct sl_msg *reply,
                         struct sl_error *why)
{
    uint32_t at = 0;
    if (reply == NULL || reply->code != SL_OK) {
        bool told = reply != NULL && reply->text.length > 0;
        return question_failed(ho, read, reply == NULL ? SL_ERR_TIMEOUT : reply->code,
                               told ? reply->text.at : "", why);
    }
    for (uint32_t i = 0; i < read->piece_count; i++) {
        if (read->states[i] != PIECE_ASKED) {
            continue;
        }
        const struct sl_item_arrived *piece = &read->pieces[i];
        const struct sl_digest want = {.low = piece->digest_low, .high = piece->digest_high};
        sl_err err = tr_digests_said(&reply->body.copy_reply, at++, want);
        if (err != SL_OK) {
            sl_metric_add(ho->self->env->metrics, ho->self->metric.digests_bad,
                          err == SL_ERR_CORRUPT ? 1 : 0);
            return sl_fail(
                why, err, "part %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64 " in device memory: %s",
                piece->part, piece->length_bytes, piece->part_offset_bytes,
                err == SL_ERR_CORRUPT ? "they do not match their digest"
                                      : "its swapper says nothing of them");
        }
        read->states[i] = PIECE_RIGHT;
    }
    return SL_OK;
}
