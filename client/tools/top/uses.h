/* client/tools/top/uses.h - keys by model or by prefix: what a group of them is called, a table of
 * groups, and how much each is used: the accesses that readers noted in their pin segments for
 * eviction. They are read beside the registrar: each view of a segment has its own position in it,
 * so that neither it nor readers notice. */
#ifndef SL_CLIENT_TOP_USES_H
#define SL_CLIENT_TOP_USES_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

#define TOP_GROUP_BYTES 64u
#define TOP_GROUPS_MAX  1024u                 /* what comes after them is added up as "(others)" */
#define TOP_GROUP_SLOTS (2u * TOP_GROUPS_MAX) /* of a table; a power of two */
#define TOP_READERS_MAX \
    256u /* processes whose accesses are read; those of others are not counted */

/* A model is what engines' keys begin with: the identity of our own keys, the name in those of
 * connectors. A prefix is the key but for what names one block or value of many. */
enum top_grouping { TOP_BY_MODEL, TOP_BY_PREFIX };

struct top_group {
    char name[TOP_GROUP_BYTES];        /* printable ASCII, others as '?'; longer ones are cut */
    uint64_t objects;                  /* 0: it is not known which ones there are */
    uint64_t memory_bytes, disk_bytes; /* of an object that is in both, in both */
    double uses;                       /* of values in memory, a second */
};
struct top_groups { /* zeroed: empty */
    struct top_group rows[TOP_GROUPS_MAX + 1];
    uint32_t count;
    uint16_t slots[TOP_GROUP_SLOTS]; /* number of a row + 1; 0: none */
};

/* The group of a key. */
void top_group_of(const char *key, uint32_t length, enum top_grouping grouping,
                  char out[TOP_GROUP_BYTES]);
/* The group of that name, which is made if need be; "(others)" when there are too many. */
struct top_group *top_groups_of(struct top_groups *groups, const char *name);

struct top_uses; /* opaque; one thread */

/* Errors: SL_ERR_NO_MEMORY. */
sl_err top_uses_create(const char *shm_dir, struct top_uses **out, struct sl_error *why);
void top_uses_destroy(struct top_uses **uses);
/* Adds up what was noted since the last call; the first one begins. A reader that is gone is
 * counted once more and dropped. At most some ten thousand accesses are looked at, and stand for
 * all that their readers noted. Errors: those of segments. */
sl_err top_uses_read(struct top_uses *uses, enum top_grouping grouping, struct sl_error *why);
/* The groups with their uses a second, followed by those which were used and are not among them:
 * of objects that were not read yet, of groups beyond TOP_GROUPS_MAX, and "(keys gone since)".
 * Borrowed until the next call. */
const struct top_group *top_uses_join(struct top_uses *uses, const struct top_group *groups,
                                      uint32_t count, uint32_t *joined_count);

#endif
