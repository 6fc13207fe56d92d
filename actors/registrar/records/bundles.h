/* actors/registrar/records/bundles.h - the members of each bundle. */
#ifndef SL_REGISTRAR_RECORDS_BUNDLES_H
#define SL_REGISTRAR_RECORDS_BUNDLES_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_table.h"

struct reg_bundled { /* a member of a bundle */
    struct sl_table_node by_bundle, by_ref;
    struct reg_bundled *free_next;
    sl_ref ref;
    bool writing; /* still a reservation */
};
struct reg_bundles {
    struct reg_bundled **chunks; /* of members */
    uint32_t chunk_count, chunk_capacity;
    struct reg_bundled *free;
    struct sl_table by_bundle, by_ref;
    sl_ref *scratch; /* members of one bundle */
    uint32_t scratch_capacity;
};

/* Adds a member (bundle 0: none). Called without writing once a reservation became a value. */
void reg_bundle_join(struct registrar *self, uint64_t bundle, sl_ref ref, bool writing);
void reg_bundle_leave(struct registrar *self, sl_ref ref); /* members of no bundle are accepted */
void reg_bundle_unreserve(struct registrar *self, sl_ref ref); /* only while it is a reservation */
void reg_bundle_renamed(struct registrar *self, sl_ref old, sl_ref fresh);
/* Gives the bundle's values, borrowed until the next call. False: one is being written, or no
 * memory. */
bool reg_bundle_members(struct registrar *self, uint64_t bundle, const sl_ref **refs,
                        uint32_t *count);

extern const struct reg_part reg_bundles_part;

#endif
