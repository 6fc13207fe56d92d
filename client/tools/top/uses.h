/* client/tools/top/uses.h - groups keys by model or by prefix, and counts uses of each group. Uses
 * are the accesses that readers write to rings in their pin files for eviction. Each view of a pin
 * file has its own position in the ring, so neither the registrar nor readers are affected. */
#ifndef SL_CLIENT_TOP_USES_H
#define SL_CLIENT_TOP_USES_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

#define TOP_GROUP_BYTES 64u
#define TOP_GROUPS_MAX  1024u                 /* further ones are added up as "(others)" */
#define TOP_GROUP_SLOTS (2u * TOP_GROUPS_MAX) /* a power of two */
#define TOP_READERS_MAX 256u                  /* processes whose accesses are counted */

/* A model is the beginning of engines' keys: the identity in our own keys, the name in those of
 * connectors. A prefix is a key without the part that names a single block or value. */
enum top_grouping { TOP_BY_MODEL, TOP_BY_PREFIX };

struct top_group {
    char name[TOP_GROUP_BYTES];        /* printable ASCII, else '?'; longer ones are cut */
    uint64_t objects;                  /* 0: unknown */
    uint64_t memory_bytes, disk_bytes; /* an object in both counts in both */
    double uses;                       /* uses of values in memory, per second */
};
struct top_groups { /* zeroed: empty */
    struct top_group rows[TOP_GROUPS_MAX + 1];
    uint32_t count;
    uint16_t slots[TOP_GROUP_SLOTS]; /* index of a row + 1; 0: free */
};

/* The group of a key. */
void top_group_of(const char *key, uint32_t length, enum top_grouping grouping,
                  char out[TOP_GROUP_BYTES]);
/* The group with that name, created if need be; "(others)" if there are too many. */
struct top_group *top_groups_of(struct top_groups *groups, const char *name);

struct top_uses; /* opaque; one thread */

/* Errors: SL_ERR_NO_MEMORY. */
sl_err top_uses_create(const char *shm_dir, struct top_uses **out, struct sl_error *why);
void top_uses_destroy(struct top_uses **uses);
/* Counts the accesses since the last call; the first call only starts. A reader that has ended is
 * counted once more and dropped. If there are too many accesses, 32,768 at most are examined, of
 * one reader 8,192, and weighted. Errors: those of shm files. */
sl_err top_uses_read(struct top_uses *uses, enum top_grouping grouping, struct sl_error *why);
/* The groups with their uses per second, followed by used groups that are not among them: those of
 * objects not scanned yet, groups beyond TOP_GROUPS_MAX, and "(keys gone since)". Borrowed until
 * the next call. */
const struct top_group *top_uses_join(struct top_uses *uses, const struct top_group *groups,
                                      uint32_t count, uint32_t *joined_count);

#endif
