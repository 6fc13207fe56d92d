/* ipc/shm/sl_index_changes.h - keys that appeared in the index or vanished, found by a reader
 * without help of the writer.
 *
 * The reader remembers the word of every slot and compares. A change costs reading its record.
 * Counters beside the table hold the number of changes of each region of 128 buckets
 * (ipc/shm/index_regions.h). Unchanged regions are skipped, so a walk reads 16 bytes a region and
 * the changed regions. If no process counts, as with a registrar of an older release, a walk covers
 * the whole table: two sequential reads of 12 and 11 bytes a key. The receiver of a change may
 * refuse it. It is then reported again in the next walk, so nothing is lost or queued here.
 *
 * Keys are reported as 64-bit ids, which are the same on all nodes. Two keys may share one (1 in
 * 2^64): fit for hints, not for bytes. */
#ifndef SL_INDEX_CHANGES_H
#define SL_INDEX_CHANGES_H

#include "ipc/shm/sl_index.h"

/* XXH3-64 of the key. */
uint64_t sl_key_id(const char *key, uint32_t key_length);

struct sl_index_changes; /* opaque; one thread */

/* Starts without memory: the first walk reports all visible objects. shm_dir: directory of the
 * view's index, for the counters; NULL: each walk covers the whole table. tiers: an object whose
 * value moved (memory, disk) is reported again. View and shm_dir are borrowed. Takes 21 bytes per
 * slot of the table, 28 per key it was made for. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_index_changes_create(const struct sl_index_view *view, const char *shm_dir, bool tiers,
                               struct sl_index_changes **out, struct sl_error *why);
void sl_index_changes_destroy(struct sl_index_changes **changes);

/* A visible object appeared or vanished. For one that vanished, or is reported by
 * sl_index_changes_again, only the id is known, and the rest is 0. */
struct sl_index_change {
    uint64_t id;
    bool there;
    bool memory, disk; /* its value is in memory, on disk */
    const char *key;   /* borrowed during the call */
    uint32_t key_length;
    uint32_t block_length; /* length of its block's key in the key; 0: no block, or not known */
    uint64_t parent_hash;  /* sl_key_hash of the key of the block before this one; 0: not known */
    uint64_t committed_ns; /* when its block became visible (monotonic); 0: not known */
};
/* Several changes of one key may arrive together; the last one is valid. False: refused, report it
 * again later. */
typedef bool (*sl_index_change_fn)(void *context, const struct sl_index_change *change);

enum sl_index_walk {
    SL_INDEX_WALK_ON,      /* more of the table follows */
    SL_INDEX_WALK_END,     /* end of the table; the next step starts a new walk */
    SL_INDEX_WALK_REFUSED, /* a change was refused; the next step starts with it */
    SL_INDEX_WALK_DEAD,    /* the index was replaced: open it again */
};
/* Processes at most the next bucket_count_max buckets (seven slots each); a skipped region counts
 * as a bucket. */
enum sl_index_walk sl_index_changes_step(struct sl_index_changes *changes,
                                         uint64_t bucket_count_max, sl_index_change_fn fn,
                                         void *context);
/* Reports existing keys again: at most the next slot_count_max slots from *cursor (0 at first;
 * UINT64_MAX: the end). Stops when fn refuses, and continues with the same key. */
void sl_index_changes_again(const struct sl_index_changes *changes, uint64_t *cursor,
                            uint64_t slot_count_max, sl_index_change_fn fn, void *context);
/* Number of records that were being written when the walk passed, and are not reported. For this
 * walk, or the one that ended with the last step. */
uint64_t sl_index_changes_torn(const struct sl_index_changes *changes);
/* Number of parts in the table whose block was not committed. They become visible without a change
 * of the table, so each walk reads them. For the walks as above. */
uint64_t sl_index_changes_pending(const struct sl_index_changes *changes);
/* Number of keys reported as existing. */
uint64_t sl_index_changes_count(const struct sl_index_changes *changes);

/* Identifies the arena of the index: another number means other contents. */
uint64_t sl_index_view_birth(const struct sl_index_view *view);

#endif
