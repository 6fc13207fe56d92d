/* actors/registrar/writers/ahead.h - extents granted in advance, before anything has their key. */
#ifndef SL_REGISTRAR_WRITERS_AHEAD_H
#define SL_REGISTRAR_WRITERS_AHEAD_H

#include "actors/registrar/base/core.h"

struct reg_ahead {
    uint32_t grants_max; /* setting */
    struct {
        sl_metric ahead_count, ahead_bytes;
    } metric;
};

/* Makes item `index` of a COMMIT, whose claim is in `slot`, what it names. Errors leave the grant
 * as it is, but SL_ERR_STALE: SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_INVALID, SL_ERR_NO_SPACE. */
sl_err reg_ahead_commit(struct registrar *self, const struct sl_msg *msg, uint32_t slot,
                        uint32_t index);
/* Grants what a COMMIT asks for, once its items have their codes; how many: in the scratch. */
uint64_t reg_ahead_wish(struct registrar *self, const struct sl_msg *msg, uint32_t peer);
bool reg_ahead_is(const struct sl_entry *entry);   /* a record of a grant in advance */
bool reg_ahead_revoke_all(struct registrar *self); /* true: space was freed */

extern const struct reg_part reg_ahead_part;

#endif
