/* actors/swapper/served.h - memory of a process that does not let others copy it: its own copier does
 * (runtime/sl_copier.h), asked over a socket and without waiting.
 *
 * The bytes go through shared memory, so that a copier that was stopped writes to no extent when it
 * goes on. A COPY out that is to end is given up at once. One in is taken back: the copier finds no
 * more bytes for its blocks, and a process that is stopped is in no copy. */
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
    bool revoked;                /* it was taken back, and is not settled yet */
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
