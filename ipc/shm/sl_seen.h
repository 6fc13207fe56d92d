/* ipc/shm/sl_seen.h - which keys were ever here: what a miss would have been with unlimited memory.
 *
 * The segment `seen` in the shm directory is a filter (a Bloom filter of blocks of a cache line, 8
 * bits a key) of the hashes of keys that became visible. The registrar alone writes, at commits.
 * Clients ask at misses of gets, the coordinator at misses of loads: a key that is nowhere and in
 * the filter left, or was removed. Nobody asks at hits.
 *
 * It has two halves. When as many keys are in the newer one as it is made for, the older one is
 * emptied and is the newer one. So it knows the newest keys: as many as one half is made for at
 * least, twice as many at most. Of keys that were never here it says in under 0.5 % that they were.
 */
#ifndef SL_SEEN_H
#define SL_SEEN_H

#include "ipc/shm/sl_segment.h"

#define SL_SEEN_KEYS_MIN (UINT64_C(1) << 16)
#define SL_SEEN_KEYS_MAX (UINT64_C(1) << 22) /* a half has 8 MiB then */

struct sl_seen; /* opaque; one writer, any number of readers */

/* The registrar, at its start: makes it for so many keys a half, which are rounded up to a power of
 * two within the bounds, or goes on with its predecessor's of this size. Errors: those of segments.
 */
sl_err sl_seen_make(const char *shm_dir, uint64_t key_count, struct sl_seen **out,
                    struct sl_error *why);
/* For asking. Errors: those of segments. */
sl_err sl_seen_open(const char *shm_dir, struct sl_seen **out, struct sl_error *why);
void sl_seen_close(struct sl_seen **seen);
/* As sl_labels_are_current, sl_labels_follow. */
bool sl_seen_is_current(const char *shm_dir, const struct sl_seen *seen);
void sl_seen_follow(const char *shm_dir, struct sl_seen **seen);

/* hash: sl_key_hash of the key. seen may be NULL: nothing was here. fetch: it is added soon. */
void sl_seen_fetch(const struct sl_seen *seen, uint64_t hash);
void sl_seen_add(struct sl_seen *seen, uint64_t hash);
bool sl_seen_has(const struct sl_seen *seen, uint64_t hash);

#endif
