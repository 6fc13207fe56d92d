/* client/ctl/status_ready.h - `sluicectl status --ready`, and what it shares with others. */
#ifndef SL_CLIENT_CTL_STATUS_READY_H
#define SL_CLIENT_CTL_STATUS_READY_H

#include "client/command/command.h"

#define STATUS_DEADLINE_NS SL_NS_PER_S

/* Waits until deadline_ns (monotonic) for a node that serves: the actors that its supervisor starts are alive
 * and ready or degraded, some of its disks left out, and the registrar answers. Prints, and gives CTL_FINE or
 * CTL_NO. */
int status_ready(const struct ctl *ctl, bool disks, uint64_t deadline_ns);

/* status.c: whether the loop of a living actor has not turned for long; one that starts has more time. */
bool status_is_stuck(const struct sl_metrics_summary *summary);
/* Each actor with its counters and histograms, as --metrics --json gives them. New reference. */
json_t *status_actors(const struct ctl *ctl);

#endif
