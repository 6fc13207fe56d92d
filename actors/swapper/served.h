/* actors/swapper/served.h - memory of a process that does not let others copy it: its own copier does
 * (runtime/sl_copier.h), asked over a socket and without waiting.
 *
 * The bytes go through an area of shared memory, so that a copier that was stopped writes to no
 * extent when it goes on. It may still write to its own blocks. So a COPY in that was begun is
 * answered when the copier has said that it is over, or is gone, however late that is; and so is a
 * FENCE of it. One out is given up at once. */
#ifndef SL_SWAPPER_SERVED_H
#define SL_SWAPPER_SERVED_H

#include "actors/swapper/engines.h"
#include "runtime/sl_copier.h"

struct sw_slice;
struct sw_served {
    struct sl_copier_link *link; /* NULL: it was lost; made anew for the next request */
    struct sl_proc_id proc;      /* whose copier it is, and the number of its door */
    uint64_t number;
    struct sl_copier_room room;
    struct sw_slice *slice; /* what was asked for; owned */
    bool busy;              /* a request is not over; slice->job NULL: it was given up */
    bool out;
    uint64_t asked_ns, again_ns; /* when it was asked, and when to look at it again */
};

/* Gives *out. The layers of the engine's parts are known: a slice of them fits. Errors: those of
 * sl_copier_connect; SL_ERR_NO_MEMORY. */
sl_err sw_served_open(const struct sw_mapper *mapper, const struct sw_engine *engine,
                      const struct sl_memory_handle *handle, struct sw_served **out,
                      struct sl_error *why);
/* Accepts NULL. Of a request that is not over nothing is waited for. */
void sw_served_close(struct sw_served **served);

#endif
