/* actors/transporter/regions/lent.h - buffers that clients registered, among engines' pools: whose they
 * are, and which requests have named them. */
#ifndef SL_TRANSPORTER_REGIONS_LENT_H
#define SL_TRANSPORTER_REGIONS_LENT_H

#include "ipc/sl_msg.h"
#include "runtime/sl_error.h"

struct transporter;

struct tr_lent { /* zeroed: an engine's pools */
    bool is;
    char owner[32];
    uint64_t seq;  /* the newest request that named it; 0: none yet */
    uint64_t seen; /* those up to it, a bit each */
};
void tr_lent_take(struct tr_lent *lent, const struct sl_body_engine_get_reply *body);

/* Whether it is registered, by the sender, and the request did not name it before. Errors: those of
 * tr_pools_view; SL_ERR_PERMISSION (none of the sender's), SL_ERR_BUSY (it did, or is very late). */
sl_err tr_lent_check(struct transporter *self, uint64_t engine_id, const struct sl_msg *request,
                     struct sl_error *why);
/* The request is begun: from now on it is refused. The buffer was checked in this turn. */
void tr_lent_note(struct transporter *self, uint64_t engine_id, uint64_t seq);

#endif
