/* tests/fuzz/registrar_check.h - what must hold of a registrar between two messages. */
#ifndef REGISTRAR_CHECK_H
#define REGISTRAR_CHECK_H

#include "actors/registrar/memory/contributions.h"

struct registrar_tally {
    uint32_t claims, retired; /* records */
    uint64_t objects;
    uint32_t bundled;                        /* values and reservations */
    uint64_t charged[REG_CONTRIBUTIONS_MAX]; /* space of what is charged to each */
    struct sl_alloc *alloc;                  /* while counting */
};
/* Every extent has one record, the allocator says the same as the records, tables and lists agree
 * with them. Aborts otherwise. */
struct registrar_tally registrar_check(struct registrar *self);

#endif
