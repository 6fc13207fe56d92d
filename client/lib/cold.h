/* client/lib/cold.h - values that are on disk alone: brought into memory and read, portion by
 * portion. */
#ifndef SL_CLIENT_LIB_COLD_H
#define SL_CLIENT_LIB_COLD_H

#include "client/lib/internal.h"

struct sl_cold {
    struct sl_client *client;
    uint64_t deadline_ns; /* monotonic */
    struct sl_error *why; /* may be NULL */
    sl_err *codes; /* count; SL_ERR_INCOMPLETE: on disk alone, the others are left as they are */
    uint32_t count;
    /* Of the caller's items. read: as it is now, without waiting; SL_ERR_INCOMPLETE: on disk alone
     * (again). */
    struct sl_object_key (*key)(const void *items, uint32_t item);
    sl_err (*read)(const void *items, uint32_t item);
    const void *items;
};

/* Settles all items by the deadline: none is SL_ERR_INCOMPLETE any more. Errors of the whole:
 * SL_ERR_NO_MEMORY; all others are items' codes, among them SL_ERR_TIMEOUT and SL_ERR_PERMISSION (a
 * read-only client). Any thread. */
sl_err sl_cold_read(struct sl_cold *cold);

#endif
