/* actors/registrar/memory/evict.h - making room. */
#ifndef SL_REGISTRAR_MEMORY_EVICT_H
#define SL_REGISTRAR_MEMORY_EVICT_H

#include "actors/registrar/base/core.h"

struct reg_evict {
    /* Room that nobody needs yet is made: nothing from here on goes; 0: all may. */
    uint64_t spared_generation;
    /* What was committed or read from disk last is of these generations or newer: a share of
     * memory, at least, since the first one was noted. */
    uint64_t young_from[2];
    uint64_t young_bytes; /* committed or read since the second one was */
    uint32_t batch_units; /* setting */
    bool index_stays;     /* nothing may leave the index in this turn */
    struct {
        sl_metric evicted_count, evicted_bytes, evict_skipped_count, evict_attempt_count,
            evict_success_count;
        sl_histogram evict_age_ns;
    } metric;
};

/* Until reg_spare_none() nothing goes that was just committed or read, nor what is of generation
 * `from` or newer (0: none). For room that nobody needs yet: where all that is older is leased or
 * pinned, it would be the first to go. */
void reg_spare_young(struct registrar *self, uint64_t from);
void reg_spare_none(struct registrar *self);
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
/* One batch of the oldest units that may leave, until want_bytes of them are out; what nobody pins
 * is free. Gives how many went. quietly: as above. */
uint32_t reg_evict(struct registrar *self, uint64_t want_bytes);
uint32_t reg_evict_quietly(struct registrar *self, uint64_t want_bytes);
/* Drops units from the index. False: none may go, which is looked for once a turn: some 35,000
 * units. */
bool reg_make_index_room(struct registrar *self);
/* Rounds of it for a record that needs a slot or a note; and for a new one, which may need a whole
 * slab of its size. */
#define REG_INDEX_ROUNDS  4u
#define REG_INSERT_ROUNDS 16u

extern const struct reg_part reg_evict_part;

#endif
