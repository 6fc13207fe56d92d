/* actors/registrar/records/bundles.h - which values belong to which bundle. */
#ifndef SL_REGISTRAR_RECORDS_BUNDLES_H
#define SL_REGISTRAR_RECORDS_BUNDLES_H

#include "actors/registrar/base/core.h"

struct reg_bundled { /* of a bundle */
    uint64_t bundle;
    sl_ref ref; /* 0: free */
    uint32_t next, previous, ref_next;
    bool writing; /* a reservation */
};
struct reg_bundles {
    struct reg_bundled *members;
    uint32_t count, high, capacity, free;
    uint32_t *bundle_heads, *ref_heads;
    uint32_t heads_mask;
    sl_ref *scratch; /* members of one bundle */
    uint32_t scratch_capacity;
};

/* Once more, without writing: the reservation is a value now. bundle 0: nothing happens. */
void reg_bundle_join(struct registrar *self, uint64_t bundle, sl_ref ref, bool writing);
void reg_bundle_leave(struct registrar *self, sl_ref ref);     /* also of what is in none */
void reg_bundle_unreserve(struct registrar *self, sl_ref ref); /* if it is a reservation still */
void reg_bundle_renamed(struct registrar *self, sl_ref old, sl_ref fresh);
/* Its values, borrowed until the next call. False: one is being written, or no memory. */
bool reg_bundle_members(struct registrar *self, uint64_t bundle, const sl_ref **refs,
                        uint32_t *count);

extern const struct reg_part reg_bundles_part;

#endif
