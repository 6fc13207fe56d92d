/* actors/registrar/writers/transients.h - blocks with a time to live. */
#ifndef SL_REGISTRAR_WRITERS_TRANSIENTS_H
#define SL_REGISTRAR_WRITERS_TRANSIENTS_H

#include "actors/registrar/base/core.h"

struct reg_transient { /* a block with a time to live */
    uint64_t at_ns, version;
    sl_ref ref;
};
struct reg_transients { /* heap by at_ns; entries whose block is gone are dropped when they come up
                         */
    struct reg_transient *heap;
    uint32_t count, capacity;
};

void reg_transient_add(struct registrar *self, sl_ref group, uint64_t at_ns);

extern const struct reg_part reg_transients_part;

#endif
