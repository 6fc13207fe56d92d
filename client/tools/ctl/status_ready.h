/* client/tools/ctl/status_ready.h - `sluicectl status --ready`, and what it shares with others. */
#ifndef SL_CLIENT_CTL_STATUS_READY_H
#define SL_CLIENT_CTL_STATUS_READY_H

#include "client/tools/command/command.h"

#define STATUS_DEADLINE_NS SL_NS_PER_S

/* Waits until deadline_ns (monotonic) for a node that serves: the actors that its supervisor starts
 * are alive and ready or degraded, some of its disks left out, and the registrar answers. Prints,
 * and gives CTL_FINE or CTL_NO. */
int status_ready(const struct ctl *ctl, bool disks, uint64_t deadline_ns);

/* status.c: whether the loop of a living actor has not turned for long; one that starts has more
 * time. */
bool status_is_stuck(const struct sl_metrics_summary *summary);
/* Each page with its counters and histograms. New reference. */
json_t *status_actors(const struct ctl *ctl);
/* Shows by node.py what a command answers of a node: these facts, which it takes, and the actors.
 * Gives the exit code. */
int status_answer(const struct ctl *ctl, json_t *facts);
/* metrics.c: gives *out families with their samples. Errors: those of scrape_node. */
sl_err metrics_families(const char *shm_dir, json_t **out, struct sl_error *why);
/* helpers.c: adds program, metrics_at and events_at: {address, pid}, or null. */
void ctl_helpers_json(const struct ctl *ctl, json_t *into);

#endif
