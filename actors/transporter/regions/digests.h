/* actors/transporter/regions/digests.h - verifies device memory: the swapper of the rank computes
 * digests there. This process cannot read it, and the end of a transfer does not guarantee that the
 * GPU sees the bytes. Correct digests prove both. */
#ifndef SL_TRANSPORTER_REGIONS_DIGESTS_H
#define SL_TRANSPORTER_REGIONS_DIGESTS_H

#include "actors/transporter/state/state.h"

struct tr_verify { /* a part, or whole layers of it, read into device memory */
    const struct tr_slot *slot;
    struct tr_range range;
    uint64_t length_bytes; /* of the part */
    struct sl_digest want;
    uint8_t *state; /* enum tr_verify_state */
    uint32_t owner; /* for the caller */
    sl_err code;    /* the result; SL_OK: correct, or not asked for */
};
struct tr_verify_batch {
    struct tr_verify at[TR_KEYS_MAX];
    uint32_t count;
    uint64_t trace_id, deadline_ns, cookie; /* cookie: of the call */
};
/* Asks the swapper of the next rank about all parts that are due there (COPY with `look`). *asked:
 * some were due. The answer, or a timeout, ends the call *call_seq. Errors, also set as codes of
 * these parts: SL_ERR_INVALID (not whole layers), those of tr_slot_layers and sl_calls_send. */
sl_err tr_verify_ask(struct transporter *self, struct tr_verify_batch *looks, uint64_t *call_seq,
                     bool *asked, struct sl_error *why);
/* Fills the codes of the parts that were asked for: SL_ERR_CORRUPT (wrong digest), SL_ERR_PROTOCOL
 * (no digest in the reply), the swapper's own code, SL_ERR_TIMEOUT (reply NULL). Gives the first
 * part that failed; NULL: none. */
const struct tr_verify *tr_verify_answered(struct tr_verify_batch *looks,
                                           const struct sl_msg *reply);

#endif
