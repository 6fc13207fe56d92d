/* actors/registrar/records/retired.h - extents outside the table that may still be pinned or read
 * by a tierer, and which generations are pinned. */
#ifndef SL_REGISTRAR_RECORDS_RETIRED_H
#define SL_REGISTRAR_RECORDS_RETIRED_H

#include "actors/registrar/base/core.h"

struct reg_retired_extent {
    sl_ref ref;
    bool being_read; /* a tierer still reads it */
    struct sl_extent extent;
};

struct reg_retired {
    struct reg_retired_extent *all;
    uint64_t count, capacity;
    uint64_t scan_ns;
    uint64_t *victim_table; /* scratch of the scan: generations */
    bool *victim_pinned;
    uint64_t victim_capacity, victim_slots; /* allocated, used by the last scan */
    struct {
        sl_metric retired_count;
    } metric;
};

#define REG_RETIRED_SCAN_NS (10 * SL_NS_PER_MS) /* how often retired extents are checked */
sl_err reg_retired_reserve(struct registrar *self, uint64_t more); /* room for more entries */
void reg_retired_add(struct registrar *self, sl_ref ref, const struct sl_extent *extent,
                     bool being_read);
void reg_retired_read_done(struct registrar *self, uint64_t generation); /* by a tierer */
/* Frees the entries from index `from` on that no pin names and no tierer reads. */
void reg_retired_scan(struct registrar *self, uint64_t from);
/* Frees a range of the arena; requests that wait for memory are tried again. */
void reg_give(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes);

/* Finds which of up to count generations are pinned: begin, add each, scan once, then ask. False:
 * no memory. */
bool reg_pinned_begin(struct registrar *self, uint64_t count);
void reg_pinned_add(struct registrar *self, uint64_t generation);
void reg_pinned_scan(struct registrar *self);
bool reg_pinned_is(const struct registrar *self, uint64_t generation);

extern const struct reg_part reg_retired_part;

#endif
