/* ipc/shm/sl_seen.h - the keys that were ever stored: whether unlimited memory would have avoided a
 * miss.
 *
 * The shm file `seen` is a Bloom filter (blocks of a cache line, 8 bits a key) of the hashes of
 * keys that became visible. Only the registrar writes it, at commits. Clients query it at misses of
 * gets, the coordinator at misses of loads: a missing key that is in the filter was evicted or
 * removed. Hits do not query it.
 *
 * It has two halves. When the newer half has as many keys as it is made for, the older one is
 * emptied and becomes the newer. So it knows the newest keys: at least the capacity of one half, at
 * most of two. False positives are under 0.5 %. */
#ifndef SL_SEEN_H
#define SL_SEEN_H

#include "ipc/shm/sl_shm_file.h"

#define SL_SEEN_KEYS_MIN (UINT64_C(1) << 16)
#define SL_SEEN_KEYS_MAX (UINT64_C(1) << 22) /* at this size a half has 8 MiB */

struct sl_seen; /* opaque; one writer, any number of readers */

/* For the registrar at its start: creates it for key_count keys a half, rounded up to a power of
 * two within the bounds, or continues that of its predecessor of this size. Errors: those of
 * sl_shm_file_open and _create. */
sl_err sl_seen_make(const char *shm_dir, uint64_t key_count, struct sl_seen **out,
                    struct sl_error *why);
/* For queries. Errors: those of sl_shm_file_open. */
sl_err sl_seen_open(const char *shm_dir, struct sl_seen **out, struct sl_error *why);
void sl_seen_close(struct sl_seen **seen);
/* As sl_labels_are_current, sl_labels_follow. */
bool sl_seen_is_current(const char *shm_dir, const struct sl_seen *seen);
void sl_seen_follow(const char *shm_dir, struct sl_seen **seen);

/* hash: sl_key_hash of the key. seen may be NULL: an empty filter. fetch: prefetches for
 * sl_seen_add. */
void sl_seen_fetch(const struct sl_seen *seen, uint64_t hash);
void sl_seen_add(struct sl_seen *seen, uint64_t hash);
bool sl_seen_has(const struct sl_seen *seen, uint64_t hash);

#endif
