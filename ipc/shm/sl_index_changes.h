/* ipc/shm/sl_index_changes.h - keys that appeared in the index or vanished, found by a reader
 * alone.
 *
 * The writer is not asked: the reader remembers the word of every slot and compares. A change costs
 * a look at its record. Beside the table lies how often each region of 128 buckets was changed
 * (ipc/shm/index_regions.h): regions that did not change are left out, so that a walk reads 16
 * bytes a region and what lies in those that did. Where nobody counts, which a node's registrar of
 * an older release does not, a walk is over all of the table: two sequential reads of 12 and 11
 * bytes a key. The receiver of a change may refuse it. It is then told again in the next walk, so
 * nothing is lost and nothing is queued here.
 *
 * Keys are told as 64-bit ids, the same on all nodes. Two keys may share one (1 in 2^64): good for
 * hints, not for bytes. */
#ifndef SL_INDEX_CHANGES_H
#define SL_INDEX_CHANGES_H

#include "ipc/shm/sl_index.h"

/* XXH3-64 of the key. */
uint64_t sl_key_id(const char *key, uint32_t key_length);

struct sl_index_changes; /* opaque; one thread */

/* Remembers nothing: the first walk tells all visible objects as there. shm_dir: where the view's
 * index is, for the counts; NULL: each walk is over all of the table. tiers: an object whose value
 * is somewhere else than told (memory, disk) is told as there once more. View and shm_dir are
 * borrowed. Takes 21 bytes a slot of the table, 28 a key it was made for. Errors: SL_ERR_NO_MEMORY.
 */
sl_err sl_index_changes_create(const struct sl_index_view *view, const char *shm_dir, bool tiers,
                               struct sl_index_changes **out, struct sl_error *why);
void sl_index_changes_destroy(struct sl_index_changes **changes);

/* A visible object is there now, or is not any more. Of one that is not, and of one that is told
 * again by sl_index_changes_again, the id alone is known, and the rest is 0. */
struct sl_index_change {
    uint64_t id;
    bool there;
    bool memory, disk; /* where its value is */
    const char *key;   /* borrowed during the call */
    uint32_t key_length;
    uint32_t block_length; /* its block's key is so much of it; 0: it is in none, or not known */
    uint64_t parent_hash;  /* sl_key_hash of the key of the block before this one; 0: not known */
    uint64_t committed_ns; /* when its block became visible (monotonic); 0: not known */
};
/* Changes of one key may come together; the last one told is true. False: refused, tell it again
 * later. */
typedef bool (*sl_index_change_fn)(void *context, const struct sl_index_change *change);

enum sl_index_walk {
    SL_INDEX_WALK_ON,      /* there is more of the table */
    SL_INDEX_WALK_END,     /* that was all; the next step begins anew */
    SL_INDEX_WALK_REFUSED, /* a change was refused; the next step begins with it */
    SL_INDEX_WALK_DEAD,    /* the index was made anew: open it again */
};
/* Looks at the next bucket_count_max buckets (seven slots each) at most; a region left out is as a
 * bucket. */
enum sl_index_walk sl_index_changes_step(struct sl_index_changes *changes,
                                         uint64_t bucket_count_max, sl_index_change_fn fn,
                                         void *context);
/* Tells again the keys that were told as there: the next slot_count_max slots from *cursor (0 at
 * first; UINT64_MAX: the end) at most. Stops early when fn refuses, and goes on with the same key.
 */
void sl_index_changes_again(const struct sl_index_changes *changes, uint64_t *cursor,
                            uint64_t slot_count_max, sl_index_change_fn fn, void *context);
/* Records that were being written when the walk came by: it says nothing of them. Of this walk, or
 * of the one that ended with the last step. */
uint64_t sl_index_changes_torn(const struct sl_index_changes *changes);
/* Parts in the table whose block was not committed: they become visible without a change of the
 * table, and are looked at in each walk. Of the walks as above. */
uint64_t sl_index_changes_pending(const struct sl_index_changes *changes);
/* Keys told as there. */
uint64_t sl_index_changes_count(const struct sl_index_changes *changes);

/* Names the arena that the index belongs to: another number, other contents. */
uint64_t sl_index_view_birth(const struct sl_index_view *view);

#endif
