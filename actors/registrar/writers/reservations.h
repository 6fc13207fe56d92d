/* actors/registrar/writers/reservations.h - ends of reservations: COMMIT, ABORT and expiry. */
#ifndef SL_REGISTRAR_WRITERS_RESERVATIONS_H
#define SL_REGISTRAR_WRITERS_RESERVATIONS_H

#include "actors/registrar/base/core.h"

struct reg_reservations {
    struct {
        sl_metric commit_count, stale_count, abort_count, replaced_count;
    } metric;
};

/* Frees the slot of a committed claim, and notes the commit for repeated requests. */
void reg_claim_committed(struct registrar *self, uint32_t slot);
/* Record `ref` became visible: a value (group REG_NONE), or a part of that block. */
void reg_record_committed(struct registrar *self, sl_ref ref, uint64_t hash, uint32_t group,
                          uint32_t part_index);

extern const struct reg_part reg_reservations_part;

#endif
