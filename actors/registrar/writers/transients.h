/* actors/registrar/writers/transients.h - drops blocks whose time to live is over. */
#ifndef SL_REGISTRAR_WRITERS_TRANSIENTS_H
#define SL_REGISTRAR_WRITERS_TRANSIENTS_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_heap.h"

struct reg_transients {
    struct sl_heap heap; /* references and versions; stale entries are discarded when due */
};

void reg_transient_add(struct registrar *self, sl_ref group, uint64_t at_ns);

extern const struct reg_part reg_transients_part;

#endif
