/* tests/fuzz/registrar_check.h - checks a registrar's invariants between two messages. */
#ifndef REGISTRAR_CHECK_H
#define REGISTRAR_CHECK_H

#include "actors/registrar/memory/contributions.h"

struct registrar_tally {
    uint32_t claims, retired; /* records */
    uint64_t objects;
    uint32_t bundled;                        /* values and reservations */
    uint64_t charged[REG_CONTRIBUTIONS_MAX]; /* bytes charged to each contribution */
    struct sl_alloc *alloc;                  /* used during the count */
};
/* Checks that every extent has one record, that the allocator agrees with the records, and that
 * tables and lists agree with them. Aborts otherwise. */
struct registrar_tally registrar_check(struct registrar *self);

#endif
