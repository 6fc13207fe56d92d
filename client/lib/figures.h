/* client/lib/figures.h - opens and closes a client's files of counts, and the filter of keys. */
#ifndef SL_CLIENT_LIB_FIGURES_H
#define SL_CLIENT_LIB_FIGURES_H

#include "client/lib/internal.h"

/* Opens files that are missing here or were replaced. Under the client's lock, or before other
 * threads know the attachment. Without them nothing is counted: for a read-only user, with a node
 * of an earlier release, or after too many replacements. */
void sl_client_stats_follow(const struct sl_client *client, struct sl_attachment *at);
/* The same for a reader; less and less often while they cannot be opened. */
void sl_client_stats_poll(struct sl_client *client, struct sl_attachment *at, uint64_t now_ns);
/* is_ours: false in a fork, whose parent continues to count. */
void sl_client_stats_close(struct sl_attachment *at, bool is_ours);

#endif
