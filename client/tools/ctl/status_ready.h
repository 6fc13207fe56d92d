/* client/tools/ctl/status_ready.h - `sluicectl status --ready`, and functions that status, tiers,
 * nodes and doctor share. */
#ifndef SL_CLIENT_CTL_STATUS_READY_H
#define SL_CLIENT_CTL_STATUS_READY_H

#include "client/tools/command/command.h"

#define STATUS_DEADLINE_NS SL_NS_PER_S

/* Waits until deadline_ns (monotonic) for a node that serves: all actors of its supervisor are
 * alive and ready or degraded, except some of its disks, and the registrar answers. With disks it
 * also waits until all disks have been read. Prints the result and gives CTL_SUCCESS or CTL_NO. */
int status_ready(const struct ctl *ctl, bool disks, uint64_t deadline_ns);

/* status.c: whether the actor's loop has not run for over 2 s. */
bool status_is_stuck(const struct sl_metrics_summary *summary);
/* The actors' pages with counters and histograms. New reference. */
json_t *status_actors(const struct ctl *ctl);
/* Prints by node.py a command's answer about a node from the facts (taken) and the actors. Gives
 * the exit code. */
int status_answer(const struct ctl *ctl, json_t *facts);
/* metrics.c: gives *out the metric families with their samples. Errors: those of scrape_node. */
sl_err metrics_families(const char *shm_dir, json_t **out, struct sl_error *why);
/* helpers.c: adds the path `program`, and metrics_at and events_at: {address, pid} or null. */
void ctl_helpers_json(const struct ctl *ctl, json_t *into);

#endif
