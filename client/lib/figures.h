/* client/lib/figures.h - what clients count in, and ask of figures. */
#ifndef SL_CLIENT_LIB_FIGURES_H
#define SL_CLIENT_LIB_FIGURES_H

#include "client/lib/internal.h"

/* Opens those that are not the node's, as they are not there yet or were made anew. Under the
 * client's lock, or before others know the attachment. Without them nothing is counted: a reader
 * that may not write, a node of an earlier release, one that made them anew again and again. */
void sl_client_figures_follow(const struct sl_client *client, struct sl_attachment *at);
/* The same of a reader; rarer and rarer where they are out of reach. */
void sl_client_figures_look(struct sl_client *client, struct sl_attachment *at, uint64_t now_ns);
/* is_ours: false in a fork, whose parent goes on counting. */
void sl_client_figures_close(struct sl_attachment *at, bool is_ours);

#endif
