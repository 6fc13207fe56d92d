/* client/ctl/helpers.h - what serves others beside the actors of a node: lines of `status`. */
#ifndef SL_CLIENT_CTL_HELPERS_H
#define SL_CLIENT_CTL_HELPERS_H

#include "client/command/command.h"

/* Where /metrics and events are, a line each. */
void ctl_helpers_print(const struct ctl *ctl);
/* The same as members metrics_at (text or null) and events_at ({publish, replay} or null). */
void ctl_helpers_json(const struct ctl *ctl, json_t *into);

#endif
