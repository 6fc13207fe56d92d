/* client/ctl/summary.h - what a person asks of a node first, in a few lines of `status`: hits, bytes, times,
 * memory. Since the node was started. */
#ifndef SL_CLIENT_CTL_SUMMARY_H
#define SL_CLIENT_CTL_SUMMARY_H

#include "client/command/command.h"

/* What nobody asked for yet has no line; nothing is printed where no node has counts. */
void summary_print(const struct ctl *ctl);
/* The same as an object: a new reference; NULL: no node has counts. */
json_t *summary_json(const struct ctl *ctl);

#endif
