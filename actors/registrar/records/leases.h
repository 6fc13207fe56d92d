/* actors/registrar/records/leases.h - units that eviction passes by, and when to look at them
 * again. */
#ifndef SL_REGISTRAR_RECORDS_LEASES_H
#define SL_REGISTRAR_RECORDS_LEASES_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_heap.h"

struct reg_lease_ends {
    struct sl_heap heap; /* references and versions; what is gone is dropped when it comes up */
};

/* Until when somebody leases the unit, a part of it or its bundle; 0: nobody does. */
uint64_t reg_unit_leased(struct registrar *self, sl_ref unit);
/* Nobody leases it (its whole bundle, when it has one) from now on, as the unit is about to go.
 * False: it is leased. reopen: it stays after all; a bundle is opened with
 * sl_index_bundle_lease_reopen in any case. */
bool reg_unit_lease_close(struct registrar *self, sl_ref unit);
void reg_unit_lease_reopen(struct registrar *self, sl_ref unit);
uint64_t reg_unit_bundle(struct registrar *self, sl_ref unit); /* 0: none */
/* Eviction passes the unit by for so long; of others than hot ones nothing changes. */
void reg_unit_aside(struct registrar *self, sl_ref unit, uint64_t until_ns);
/* When a unit in such a list is looked at again; false: no memory. */
bool reg_due_note(struct registrar *self, sl_ref unit, uint64_t at_ns);
void reg_lease_ends_run(struct registrar *self);

extern const struct reg_part reg_leases_part;

#endif
