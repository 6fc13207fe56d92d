/* actors/registrar/writers/prealloc.h - extents granted to a client before it names their keys. */
#ifndef SL_REGISTRAR_WRITERS_PREALLOC_H
#define SL_REGISTRAR_WRITERS_PREALLOC_H

#include "actors/registrar/base/core.h"

struct reg_prealloc {
    uint32_t grants_max; /* setting */
    struct {
        sl_metric ahead_count, ahead_bytes;
    } metric;
};

/* Makes a value of item `index` of a COMMIT, whose claim is in `slot`, under its key. Errors:
 * SL_ERR_STALE (the grant is freed); SL_ERR_EXISTS, SL_ERR_BUSY, SL_ERR_INVALID, SL_ERR_NO_SPACE
 * (it stays). */
sl_err reg_prealloc_commit(struct registrar *self, const struct sl_msg *msg, uint32_t slot,
                           uint32_t index);
/* Grants the extents that a COMMIT asks for, after its items; returns how many are in the
 * scratch. */
uint64_t reg_prealloc_grant(struct registrar *self, const struct sl_msg *msg, uint32_t peer);
bool reg_prealloc_is(const struct sl_entry *entry);   /* granted in advance */
bool reg_prealloc_revoke_all(struct registrar *self); /* true: space was freed */

extern const struct reg_part reg_prealloc_part;

#endif
