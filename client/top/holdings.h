/* client/top/holdings.h - who takes the memory and the disks: objects of the index, added up by model
 * or by prefix. The index is read in slices, so that a screen stays quick with any number of keys. */
#ifndef SL_CLIENT_TOP_HOLDINGS_H
#define SL_CLIENT_TOP_HOLDINGS_H

#include "client/top/groups.h"

#include <stdbool.h>

struct top_holdings; /* opaque; one thread */

/* Errors: SL_ERR_NO_MEMORY. */
sl_err top_holdings_create(const char *shm_dir, struct top_holdings **out, struct sl_error *why);
void top_holdings_destroy(struct top_holdings **holdings);
/* Reads on for about budget_ns; what is given changes when all of the index was read, or when the
 * node is another one. Other ways to group begin anew. Errors: those of segments. */
sl_err top_holdings_read_on(struct top_holdings *holdings, enum top_grouping grouping,
                            uint64_t budget_ns, struct sl_error *why);
/* The groups of the last whole reading, the most memory first; borrowed until the next call.
 * *whole: there was one. */
const struct top_group *top_holdings_groups(const struct top_holdings *holdings, uint32_t *count,
                                            bool *whole);

#endif
