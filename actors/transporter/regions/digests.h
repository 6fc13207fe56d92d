/* actors/transporter/regions/digests.h - what lies in device memory is digested where it lies, by
 * the swapper of its rank. This process cannot read it, and a transfer's end does not say that the
 * GPU sees the bytes: digests that are right say both. */
#ifndef SL_TRANSPORTER_REGIONS_DIGESTS_H
#define SL_TRANSPORTER_REGIONS_DIGESTS_H

#include "actors/transporter/state/state.h"

struct tr_look { /* a part, or whole layers of it, that was read into device memory */
    const struct tr_spot *spot;
    struct tr_range range;
    uint64_t length_bytes; /* of the part */
    struct sl_digest want;
    uint8_t *state; /* enum tr_look_state */
    uint32_t owner; /* of the caller */
    sl_err code;    /* what the answer says of it; SL_OK: it is right, or was not asked for */
};
struct tr_looks {
    struct tr_look at[TR_KEYS_MAX];
    uint32_t count;
    uint64_t trace_id, deadline_ns, cookie; /* of the call */
};
/* Asks the swapper of the next rank for all that is due there (COPY with `look`). Gives whether any
 * was left; its answer, or that none came, comes to the calls. Errors, as codes of all that is due
 * there, too: SL_ERR_INVALID (a range is not whole layers), those of tr_spot_layers and
 * sl_calls_send. */
sl_err tr_looks_ask(struct transporter *self, struct tr_looks *looks, uint64_t *call_seq,
                    bool *asked, struct sl_error *why);
/* Fills codes of those that were asked for: SL_ERR_CORRUPT (another digest), SL_ERR_PROTOCOL (it
 * says nothing of it), the swapper's own, SL_ERR_TIMEOUT (reply NULL). Gives the first that is
 * wrong; NULL: none is. */
const struct tr_look *tr_looks_answered(struct tr_looks *looks, const struct sl_msg *reply);

#endif
