/* client/top/top.h - sluicectl top, for main and between the files of this folder. */
#ifndef SL_CLIENT_TOP_TOP_H
#define SL_CLIENT_TOP_TOP_H

#include "client/command/command.h"
#include "client/top/views.h"

extern const struct ctl_command ctl_top;

struct top; /* opaque; one thread */
/* Reads the node again. first: the index is left for later. Errors: those of top_figures_read and of
 * the index; the state says them as its problem, too, and keeps what was seen last. */
sl_err top_take(struct top *top, bool first);
struct top_state *top_state_of(struct top *top); /* borrowed */

#endif
