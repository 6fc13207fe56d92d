/* client/tools/events/follow.h - from the shared index to events, and what is to be done when.
 *
 * The index is opened, followed when it is made anew, and walked when something in it may have
 * changed: the arena's counter of generations and the number of keys say so, which costs two loads.
 */
#ifndef SL_CLIENT_EVENTS_FOLLOW_H
#define SL_CLIENT_EVENTS_FOLLOW_H

#include "client/tools/events/blocks.h"

struct ev_follow; /* opaque; one thread */
/* delay_ns: pause between two walks at least. Errors: SL_ERR_NO_MEMORY. */
sl_err ev_follow_create(const char *shm_dir, const char *model, uint64_t delay_ns,
                        struct ev_follow **out, struct sl_error *why);
void ev_follow_destroy(struct ev_follow **follow);
/* Does what is due; events go to fn. True: a walk has ended, and events may have been told. */
bool ev_follow_step(struct ev_follow *follow, uint64_t now_ns, ev_event_fn fn, void *context);
/* When the next step is due. */
uint64_t ev_follow_wake_at(const struct ev_follow *follow);
/* Tells all that was told: ev_blocks_all. */
void ev_follow_all(struct ev_follow *follow, ev_event_fn fn, void *context);

struct ev_follow_stats {
    struct ev_blocks_stats blocks;
    uint64_t walks, walk_ns, indexes;
};
void ev_follow_stats(const struct ev_follow *follow, struct ev_follow_stats *out);

#endif
