/* actors/registrar/memory/evict.h - making room. */
#ifndef SL_REGISTRAR_MEMORY_EVICT_H
#define SL_REGISTRAR_MEMORY_EVICT_H

#include "actors/registrar/base/core.h"

struct reg_evict {
    uint64_t
        spared_generation; /* room ahead of use is made: nothing from here on goes; 0: all may */
    uint32_t batch_units;  /* setting */
    struct {
        sl_metric evicted_count, evicted_bytes, evict_skipped_count, evict_attempt_count,
            evict_success_count;
    } metric;
};

uint64_t reg_free_bytes(const struct registrar *self);
/* Makes want_bytes free, evicting; false: less is. */
bool reg_make_room(struct registrar *self, uint64_t want_bytes);
/* One extent, evicting when it must. Errors: SL_ERR_NO_SPACE. */
sl_err reg_take(struct registrar *self, uint64_t length_bytes, uint64_t *offset_bytes);
/* The same at nobody's cost: of what is free, else in place of the oldest that are on disk, that
 * nobody pins and that were not prefetched themselves. batch_bytes: so much is about to be taken;
 * where something must leave, it makes room for all of it with one scan of the pins. */
sl_err reg_take_quietly(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                        uint64_t *offset_bytes);
/* One batch of the oldest units that may leave; gives how many went. quietly: as above. */
uint32_t reg_evict(struct registrar *self, uint64_t want_bytes);
uint32_t reg_evict_quietly(struct registrar *self, uint64_t want_bytes);
bool reg_make_index_room(
    struct registrar *self); /* drops units from the index; false: none could go */

extern const struct reg_part reg_evict_part;

#endif
