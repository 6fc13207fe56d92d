/* client/lib/bring.h - values that are not in memory here: brought there and read, portion by
 * portion. */
#ifndef SL_CLIENT_LIB_BRING_H
#define SL_CLIENT_LIB_BRING_H

#include "client/lib/internal.h"

struct sl_bring {
    struct sl_client *client;
    uint64_t deadline_ns; /* monotonic */
    struct sl_error *why; /* may be NULL */
    sl_err *codes;        /* count */
    uint32_t count;
    /* Of the caller's items. read: as it is now, without waiting; SL_ERR_INCOMPLETE: on disk alone
     * (again). */
    struct sl_object_key (*key)(const void *items, uint32_t item);
    sl_err (*read)(const void *items, uint32_t item);
    const void *items;
};

/* Asks other nodes for the items whose codes are SL_ERR_NOT_FOUND, and reads what came. Whatever
 * goes wrong on that way leaves the miss that it was. Any thread. */
void sl_bring_from_nodes(const struct sl_bring *bring);
/* Settles the items, one or more, whose codes are SL_ERR_INCOMPLETE: on disk alone. By the
 * deadline. Errors of the whole: SL_ERR_NO_MEMORY; all others are items' codes, among them
 * SL_ERR_TIMEOUT and SL_ERR_PERMISSION (a read-only client). Any thread. */
sl_err sl_bring_from_disk(const struct sl_bring *bring);

#endif
