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

uint32_t reg_accesses_drain(struct registrar *self); /* rings -> the policy; returns the uses */

extern const struct reg_part reg_accesses_part;

#endif
