/* client/top/groups.h - keys by model or by prefix: what they are called, and a table of them. */
#ifndef SL_CLIENT_TOP_GROUPS_H
#define SL_CLIENT_TOP_GROUPS_H

#include "runtime/sl_error.h"

#include <stdint.h>

#define TOP_GROUP_BYTES 64u
#define TOP_GROUPS_MAX  1024u                 /* what comes after them is added up as "(others)" */
#define TOP_GROUP_SLOTS (2u * TOP_GROUPS_MAX) /* of a table; a power of two */

/* A model is what engines' keys begin with: the identity of our own keys, the name in those of
 * connectors. A prefix is the key but for what names one block or value of many. */
enum top_grouping { TOP_BY_MODEL, TOP_BY_PREFIX };

struct top_group {
    char name[TOP_GROUP_BYTES];        /* printable ASCII, others as '?'; longer ones are cut */
    uint64_t objects;                  /* 0: it is not known which ones there are */
    uint64_t memory_bytes, disk_bytes; /* of an object that is in both, in both */
    double uses;                       /* of values in memory, a second */
};
struct top_groups {
    struct top_group *rows; /* TOP_GROUPS_MAX + 1 */
    uint32_t count;
    uint16_t slots[TOP_GROUP_SLOTS]; /* number of a row + 1; 0: none */
};

/* Errors: SL_ERR_NO_MEMORY. */
sl_err top_groups_init(struct top_groups *groups, struct sl_error *why);
void top_groups_fini(struct top_groups *groups); /* zeroed ones, too */
void top_groups_clear(struct top_groups *groups);
/* The group of that name, which is made if need be; "(others)" when there are too many. Its rows are
 * in no other order meanwhile. */
struct top_group *top_groups_of(struct top_groups *groups, const char *name);
struct top_group *top_groups_find(const struct top_groups *groups, const char *name); /* or NULL */

/* The group of a key. */
void top_group_of(const char *key, uint32_t length, enum top_grouping grouping,
                  char out[TOP_GROUP_BYTES]);

#endif
