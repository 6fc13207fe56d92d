/* actors/registrar/writers/ahead.h - extents granted ahead of use, and PUBLISH. */
#ifndef SL_REGISTRAR_WRITERS_AHEAD_H
#define SL_REGISTRAR_WRITERS_AHEAD_H

#include "actors/registrar/base/core.h"

struct reg_ahead {
    uint64_t grants_bytes_max; /* settings */
    uint32_t grants_max;
    struct {
        sl_metric ahead_count, ahead_bytes;
    } metric;
};

bool reg_ahead_is(const struct sl_entry *entry);   /* a record of a grant ahead of use */
bool reg_ahead_revoke_all(struct registrar *self); /* true: space was freed */

extern const struct reg_part reg_ahead_part;

#endif
