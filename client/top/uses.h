/* client/top/uses.h - what is used most: accesses that readers noted in their pin segments for eviction,
 * added up by model or by prefix. They are read beside the registrar: each view of a segment has its own
 * place in it, so that neither it nor readers notice. */
#ifndef SL_CLIENT_TOP_USES_H
#define SL_CLIENT_TOP_USES_H

#include "client/top/groups.h"

#define TOP_READERS_MAX \
    256u /* processes whose accesses are read; those of others are not counted */

struct top_uses; /* opaque; one thread */

/* Errors: SL_ERR_NO_MEMORY. */
sl_err top_uses_create(const char *shm_dir, struct top_uses **out, struct sl_error *why);
void top_uses_destroy(struct top_uses **uses);
/* Adds up what was noted since the last call; the first one begins. A reader that is gone is counted
 * once more and dropped. At most some ten thousand accesses are looked at, and stand for all that their
 * readers noted. Errors: those of segments. */
sl_err top_uses_read(struct top_uses *uses, enum top_grouping grouping, struct sl_error *why);
/* The groups with their uses a second, and behind them those which were used and are not among them:
 * of objects that were not read yet, of groups beyond TOP_GROUPS_MAX, and "(keys gone since)". Borrowed
 * until the next call. */
const struct top_group *top_uses_join(struct top_uses *uses, const struct top_group *groups,
                                      uint32_t count, uint32_t *joined_count);

#endif
