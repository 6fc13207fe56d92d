/* ipc/shm/index_regions.h - words beside the table that count, by region, the changes and the keys.
 *
 * The table is divided into regions of INDEX_REGION_BUCKETS. The registrar increments a region's
 * word (release) after each store to one of its slots. A reader that finds the word (acquire)
 * unchanged since its last visit can skip the region. The counting process holds a lock on the
 * file: without a lock the counts do not reflect later changes. Recovery does not count; until it
 * is done no process holds the lock. A second word per region counts its occupied slots: walks skip
 * empty regions, so they cost what is stored and not the capacity. */
#ifndef SL_INDEX_REGIONS_H
#define SL_INDEX_REGIONS_H

#include "ipc/shm/index_layout.h"

#define INDEX_REGION_BUCKETS 128u
#define INDEX_REGION_SLOTS   ((uint64_t)INDEX_REGION_BUCKETS * INDEX_BUCKET_SLOTS)

static inline uint64_t index_region_count(uint64_t bucket_count)
{
    return (bucket_count + INDEX_REGION_BUCKETS - 1) / INDEX_REGION_BUCKETS;
}

/* Stores a slot. One writer. */
static inline void index_region_store(const struct index_regions *regions, uint64_t bucket,
                                      index_word *slot, uint64_t word)
{
    if (regions->counts == NULL) {
        word_publish(slot, word);
        return;
    }
    index_word *count = &regions->counts[bucket / INDEX_REGION_BUCKETS];
    index_word *occupied = &regions->occupied[bucket / INDEX_REGION_BUCKETS];
    bool was_set = word_get(slot) != 0;
    if (word != 0 && !was_set) {
        word_publish(occupied, word_get(occupied) + 1);
    }
    word_publish(slot, word);
    word_publish(count, word_get(count) + 1);
    if (word == 0 && was_set) {
        word_publish(occupied, word_get(occupied) - 1);
    }
}

/* Creates the words of an index that is about to be created, without an owner. */
sl_err index_regions_make(const char *shm_dir, const struct index_header *index,
                          struct sl_progress_callback goes_on, struct sl_error *why);
/* Opens or creates the words of the view's index, without an owner. They are optional: without them
 * each walk covers the whole table. */
void index_regions_open(const char *shm_dir, const struct sl_index_view *view,
                        struct sl_progress_callback goes_on, struct index_regions *out);
/* Recounts the occupied slots of a region. Do so for all regions before this process takes over the
 * counts of an existing index. */
void index_region_recount(const struct sl_index_view *view, uint64_t region);
/* Makes this process the one that counts. opened: a process that did not count may have made
 * changes. */
void index_regions_own(struct sl_index_view *view, bool opened);

/* Creates new words if another process truncated them or there are none; readers of the old ones
 * look for them. True: it did. */
bool index_regions_renew(const char *shm_dir, struct sl_index_view *view);

/* Opens them for a reader. Errors: SL_ERR_NOT_FOUND, SL_ERR_STALE (of another index), those of
 * sl_shm_file_open. */
sl_err index_regions_attach(const char *shm_dir, const struct sl_index_view *view,
                            struct index_regions *out);
/* Returns the life of the index's writer that counts now; 0: none does. */
uint64_t index_regions_life(const struct index_regions *regions);
void index_regions_close(struct index_regions *regions);

#endif
