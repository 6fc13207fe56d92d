/* actors/transporter/regions/digests.c - see digests.h: asks swappers, compares digests. */
#include "actors/transporter/regions/digests.h"
#include "actors/transporter/regions/places.h"

#include <stdio.h>
#include <string.h>

#define DIGEST_BYTES 16u /* of an item in COPY_REPLY: low, high */

static sl_err block_make(struct transporter *self, const struct tr_verify *look,
                         struct sl_item_piece *out, struct sl_error *why)
{
    uint32_t first = 0, end = 0;
    sl_err err = look->range.length_bytes < look->length_bytes
                     ? tr_slot_layers(self, look->slot, look->range, &first, &end, why)
                     : SL_OK;
    *out = (struct sl_item_piece){.pool = look->slot->pool,
                                  .part = look->slot->part,
                                  .device_block = look->slot->device_block,
                                  .length_bytes = look->length_bytes,
                                  .first_layer = first,
                                  .layer_end = end};
    return err;
}

/* Sets the result of a part that was asked for. */
static void look_end(struct tr_verify *look, sl_err code)
{
    if (*look->state == TR_VERIFY_ASKED) {
        look->code = code;
        *look->state = code == SL_OK ? TR_VERIFY_OK : TR_VERIFY_DUE;
    }
}

sl_err tr_verify_ask(struct transporter *self, struct tr_verify_batch *looks, uint64_t *call_seq,
                     bool *asked, struct sl_error *why)
{
    struct sl_item_piece blocks[TR_KEYS_MAX];
    struct sl_msg copy = {.type = SL_MSG_COPY, .trace_id = looks->trace_id};
    struct sl_body_copy *body = &copy.body.copy;
    const struct tr_slot *rank = NULL;
    char to[32];
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < looks->count && err == SL_OK; i++) {
        const struct tr_verify *look = &looks->at[i];
        if (*look->state != TR_VERIFY_DUE) {
            continue;
        }
        rank = rank != NULL ? rank : look->slot;
        if (look->slot->rank == rank->rank && look->slot->engine_id == rank->engine_id) {
            err = block_make(self, look, &blocks[body->items.count++], why);
            *look->state = TR_VERIFY_ASKED;
        }
    }
    *asked = rank != NULL;
    if (rank != NULL && err == SL_OK) {
        copy.op_id = self->next_op_id++;
        body->engine_id = rank->engine_id;
        body->rank = rank->rank;
        body->out = body->look = true;
        body->items.at = blocks;
        (void)snprintf(to, sizeof(to), "swapper.%u", rank->rank);
        err =
            sl_calls_send(self->calls, to, &copy,
                          SL_MIN(looks->deadline_ns, sl_deadline_ns(self->env->now_ns, TR_CALL_NS)),
                          looks->cookie, call_seq);
        if (err != SL_OK) {
            *call_seq = 0;
            (void)sl_fail(why, err, "%s has not checked it: %s", to, sl_err_text(err));
        }
    }
    for (uint32_t i = 0; err != SL_OK && i < looks->count; i++) {
        look_end(&looks->at[i], err);
    }
    return err;
}

/* Compares the digest of block `at` in the answer. */
static sl_err digest_check(const struct sl_body_copy_reply *body, uint32_t at,
                           struct sl_digest want)
{
    struct sl_digest found;
    const uint8_t *done = body->done.at, *digests = body->digests.at;
    if (at / 8 >= body->done.length || ((uint32_t)done[at / 8] >> (at % 8) & 1u) == 0 ||
        (uint64_t)(at + 1) * DIGEST_BYTES > body->digests.length) {
        return SL_ERR_PROTOCOL;
    }
    memcpy(&found, digests + (size_t)at * DIGEST_BYTES, sizeof(found));
    return sl_digest_equal(found, want) ? SL_OK : SL_ERR_CORRUPT;
}

const struct tr_verify *tr_verify_answered(struct tr_verify_batch *looks,
                                           const struct sl_msg *reply)
{
    sl_err code = reply == NULL ? SL_ERR_TIMEOUT : reply->code;
    const struct tr_verify *wrong = NULL;
    uint32_t at = 0;
    for (uint32_t i = 0; i < looks->count; i++) {
        struct tr_verify *look = &looks->at[i];
        if (*look->state == TR_VERIFY_ASKED) {
            look_end(look, code != SL_OK ? code
                                         : digest_check(&reply->body.copy_reply, at++, look->want));
            wrong = wrong == NULL && look->code != SL_OK ? look : wrong;
        }
    }
    return wrong;
}
