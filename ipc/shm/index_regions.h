/* ipc/shm/index_regions.h - how often each part of the table was changed, and how many keys it has:
 * words that lie beside it.
 *
 * The table is cut into regions of INDEX_REGION_BUCKETS. The registrar counts up a region's word
 * (release) behind each store to one of its slots, so that a reader which finds the word (acquire)
 * as it was before its last look at the region has nothing to look at there. Who counts has the
 * file locked: without a lock the counts say nothing of what was changed since. Recovery counts
 * nothing either: until it is over nobody has the lock. The other word of a region is how many of
 * its slots are set: a walk leaves out those that have none, so that it costs what there is and not
 * what there is room for. */
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

/* Makes those of an index that is about to be made: nobody's. */
sl_err index_regions_make(const char *shm_dir, const struct index_header *index,
                          struct sl_goes_on goes_on, struct sl_error *why);
/* Opens or makes those of the view's index, nobody's from here on. Without them each look at the
 * table is at all of it: they may be missing. */
void index_regions_open(const char *shm_dir, const struct sl_index_view *view,
                        struct sl_goes_on goes_on, struct index_regions *out);
/* Counts the slots of a region that are set, whatever its word said. Before this process owns the
 * counts of an index that was there: of each region. */
void index_region_recount(const struct sl_index_view *view, uint64_t region);
/* This process counts from here on. opened: what is there may have been changed by who did not. */
void index_regions_own(struct sl_index_view *view, bool opened);

/* Where another process cut them short, or there are none, others are made, and who has the old
 * ones looks for them. True: they were. */
bool index_regions_renew(const char *shm_dir, struct sl_index_view *view);

/* A reader's. Errors: SL_ERR_NOT_FOUND, SL_ERR_STALE (of another index), those of sl_segment_open.
 */
sl_err index_regions_attach(const char *shm_dir, const struct sl_index_view *view,
                            struct index_regions *out);
/* Which life of the index's writer counts now, and goes on; 0: none does. */
uint64_t index_regions_life(const struct index_regions *regions);
void index_regions_close(struct index_regions *regions);

#endif
