/* actors/registrar/memory/accesses.h - reads the uses that readers noted in their access rings. */
#ifndef SL_REGISTRAR_MEMORY_ACCESSES_H
#define SL_REGISTRAR_MEMORY_ACCESSES_H

#include "actors/registrar/base/core.h"

struct reg_accesses {
    uint64_t lost_count; /* overwritten in rings before they were read */
    struct {
        sl_metric access_lost_count;
    } metric;
};

/* Reports the entries of all rings to the policy. Returns how many named a current record. */
uint32_t reg_accesses_drain(struct registrar *self);

extern const struct reg_part reg_accesses_part;

#endif
