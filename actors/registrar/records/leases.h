/* actors/registrar/records/leases.h - units that eviction skips, and when to check them again. */
#ifndef SL_REGISTRAR_RECORDS_LEASES_H
#define SL_REGISTRAR_RECORDS_LEASES_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_heap.h"

struct reg_lease_ends {
    struct sl_heap heap; /* references and versions; stale entries are discarded when due */
};

/* Until when the unit, a part of it or its bundle is leased; 0: it is not. */
uint64_t reg_unit_leased(struct registrar *self, sl_ref unit);
/* Closes a unit that is about to be dropped, with its bundle, for new leases. False: it is leased.
 * reopen: the unit stays after all; a bundle needs sl_index_bundle_lease_reopen in any case. */
bool reg_unit_lease_close(struct registrar *self, sl_ref unit);
void reg_unit_lease_reopen(struct registrar *self, sl_ref unit);
uint64_t reg_unit_bundle(struct registrar *self, sl_ref unit); /* 0: none */
/* Eviction skips the unit until then; only hot units are affected. */
void reg_unit_skip_until(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* Schedules the next check of a unit that is skipped; false: no memory. */
bool reg_lease_check_at(struct registrar *self, sl_ref unit, uint64_t at_ns);
void reg_leases_check(struct registrar *self);

extern const struct reg_part reg_leases_part;

#endif
