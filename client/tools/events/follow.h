/* client/tools/events/follow.h - follows the shared index and gives its changes as events.
 *
 * It opens the index, reopens it when it was created again, and walks it when it may have changed.
 * It detects that by the arena's counter of generations and the numbers of keys and groups, at the
 * cost of a few loads. */
#ifndef SL_CLIENT_EVENTS_FOLLOW_H
#define SL_CLIENT_EVENTS_FOLLOW_H

#include "client/tools/events/blocks.h"

struct ev_follow; /* opaque; one thread */
/* delay_ns: shortest pause between two walks. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_follow_create(const char *shm_dir, const char *model, uint64_t delay_ns,
                        struct ev_follow **out, struct sl_error *why);
void ev_follow_destroy(struct ev_follow **follow);
/* Does the work that is due and calls fn with events. True: a walk has ended or the index was lost,
 * so there may have been events. */
bool ev_follow_step(struct ev_follow *follow, uint64_t now_ns, ev_event_fn fn, void *context);
/* Time of the next step; 0: now. */
uint64_t ev_follow_wake_at(const struct ev_follow *follow);
/* Reports all reported blocks again: ev_blocks_report_all. */
void ev_follow_report_all(struct ev_follow *follow, ev_event_fn fn, void *context);

struct ev_follow_stats {
    struct ev_blocks_stats blocks;
    uint64_t walks, walk_ns, indexes;
};
void ev_follow_stats(const struct ev_follow *follow, struct ev_follow_stats *out);

#endif
