/* actors/registrar/memory/evict.h - makes room in memory and in the index by eviction. */
#ifndef SL_REGISTRAR_MEMORY_EVICT_H
#define SL_REGISTRAR_MEMORY_EVICT_H

#include "actors/registrar/base/core.h"

struct reg_evict {
    /* While room is made ahead of need: generations from here on stay; 0: all may leave. */
    uint64_t protected_generation;
    /* Generations from recent_from[0] on are new: values committed or read from disk since then
     * take a share of memory at least. */
    uint64_t recent_from[2];
    uint64_t recent_bytes; /* committed or read since recent_from[1] */
    uint32_t batch_units;  /* setting */
    bool index_exhausted;  /* nothing more can leave the index in this turn */
    struct {
        sl_metric evicted_count, evicted_bytes, evict_skipped_count, evict_attempt_count,
            evict_success_count;
        sl_histogram evict_age_ns;
    } metric;
};

/* Until reg_protect_none(), values that were just committed or read stay in memory, and those of
 * generation `from` or newer (0: none). For room that no request needs yet: where all older values
 * are leased or pinned, the new ones would be evicted first. */
void reg_protect_recent(struct registrar *self, uint64_t from);
void reg_protect_none(struct registrar *self);
uint64_t reg_free_bytes(const struct registrar *self);
/* Makes want_bytes free, evicting if needed; false: less is free. */
bool reg_make_room(struct registrar *self, uint64_t want_bytes);
/* Takes an extent, evicting if needed. Errors: SL_ERR_NO_SPACE. */
sl_err reg_take(struct registrar *self, uint64_t length_bytes, uint64_t *offset_bytes);
/* Takes an extent without cost to others: free memory, else that of the first units in the order of
 * eviction that are on disk, not pinned and not prefetched. batch_bytes: size of the coming takes;
 * one scan of the pins makes room for all of them. */
sl_err reg_take_for_prefetch(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                             uint64_t *offset_bytes);
/* Evicts one batch of the first units that may leave, until they hold want_bytes. Unpinned extents
 * are free then. Returns the number of units. for_prefetch: as reg_take_for_prefetch. */
uint32_t reg_evict(struct registrar *self, uint64_t want_bytes);
uint32_t reg_evict_for_prefetch(struct registrar *self, uint64_t want_bytes);
/* Drops units from the index. False: none could be dropped. Such a search looks at some 35,000
 * units, so it is not repeated in the same turn of the loop. */
bool reg_make_index_room(struct registrar *self);
/* Rounds of it for a record that needs a slot or a note, and for a new record, which may need a
 * whole slab of its size. */
#define REG_INDEX_ROUNDS  4u
#define REG_INSERT_ROUNDS 16u

extern const struct reg_part reg_evict_part;

#endif
