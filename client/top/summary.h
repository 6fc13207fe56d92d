/* client/top/summary.h - what a person asks of a node first, in a few lines: hits, bytes, times,
 * memory. Since the node was started. */
#ifndef SL_CLIENT_TOP_SUMMARY_H
#define SL_CLIENT_TOP_SUMMARY_H

#include "client/top/figures.h"

#include <jansson.h>

/* Prints them to standard output. What nobody asked for yet has no line. */
void top_summary_print(const struct top_figures *figures);
/* The same as an object; a new reference. */
json_t *top_summary_json(const struct top_figures *figures);

#endif
