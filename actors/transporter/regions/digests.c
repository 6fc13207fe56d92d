/* actors/transporter/regions/digests.c - see digests.h. */
#include "actors/transporter/regions/digests.h"

#include <stdio.h>
#include <string.h>

#define DIGEST_BYTES 16u /* of an item in COPY_REPLY: low, high */

sl_err tr_digests_ask(struct transporter *self, const struct tr_digests_want *want,
                      uint64_t *call_seq)
{
    char to[32];
    struct sl_msg copy = {
        .type = SL_MSG_COPY, .op_id = self->next_op_id++, .trace_id = want->trace_id};
    (void)snprintf(to, sizeof(to), "swapper.%u", want->rank->rank);
    copy.body.copy.engine_id = want->rank->engine_id;
    copy.body.copy.rank = want->rank->rank;
    copy.body.copy.out = true;
    copy.body.copy.look = true;
    copy.body.copy.items.at = want->blocks;
    copy.body.copy.items.count = want->block_count;
    sl_err err =
        sl_calls_send(self->calls, to, &copy,
                      SL_MIN(want->deadline_ns, sl_deadline_ns(self->env->now_ns, TR_CALL_NS)),
                      want->cookie, call_seq);
    if (err != SL_OK) {
        *call_seq = 0;
    }
    return err;
}

sl_err tr_digests_said(const struct sl_body_copy_reply *body, uint32_t at, struct sl_digest want)
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
