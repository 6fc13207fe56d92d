/* client/lib/bring.h - reads values that are not in memory here, in portions. */
#ifndef SL_CLIENT_LIB_BRING_H
#define SL_CLIENT_LIB_BRING_H

#include "client/lib/internal.h"

struct sl_bring {
    struct sl_client *client;
    uint64_t deadline_ns; /* monotonic */
    struct sl_error *why; /* may be NULL */
    sl_err *codes;        /* count */
    uint32_t count;
    /* Both take the caller's items. read: reads the value as it is now, without waiting;
     * SL_ERR_INCOMPLETE: it is only on disk (again). */
    struct sl_object_key (*key)(const void *items, uint32_t item);
    sl_err (*read)(const void *items, uint32_t item);
    const void *items;
};

/* Asks other nodes for the items whose codes are SL_ERR_NOT_FOUND, and reads those that were found.
 * If that fails, the item remains a miss. Any thread. */
void sl_bring_from_nodes(const struct sl_bring *bring);
/* Settles the items (at least one) whose codes are SL_ERR_INCOMPLETE, as their values are only on
 * disk, by the deadline. The call itself fails only with SL_ERR_NO_MEMORY; all others are codes of
 * items, e.g. SL_ERR_TIMEOUT, SL_ERR_PERMISSION (a read-only client). Any thread. */
sl_err sl_bring_from_disk(const struct sl_bring *bring);

#endif
