/* actors/transporter/regions/digests.h - what lies in device memory is digested where it lies, by the
 * swapper of its rank. This process cannot read it, and a transfer's end does not say that the GPU
 * sees the bytes: digests that are right say both. */
#ifndef SL_TRANSPORTER_REGIONS_DIGESTS_H
#define SL_TRANSPORTER_REGIONS_DIGESTS_H

#include "actors/transporter/state/state.h"

struct tr_digests_want {
    const struct tr_spot *rank;         /* whose swapper is asked */
    const struct sl_item_piece *blocks; /* of this rank */
    uint32_t block_count;
    uint64_t trace_id, deadline_ns, cookie; /* of the call */
};
/* Asks (COPY with `blocks`). The answer, or that none came in time, comes to the calls. Errors: those
 * of sl_calls_send; then *call_seq is 0. */
sl_err tr_digests_ask(struct transporter *self, const struct tr_digests_want *want,
                      uint64_t *call_seq);
/* What the answer says of block `at`. Errors: SL_ERR_CORRUPT (another digest), SL_ERR_PROTOCOL (it
 * says nothing of the block). */
sl_err tr_digests_said(const struct sl_body_copy_reply *body, uint32_t at, struct sl_digest want);

#endif
