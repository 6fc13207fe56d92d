/* actors/transporter/rails/remote.h - the door's side of a rail that another process drives: a
 * fabric (runtime/fabric/core/front.h) whose orders travel as messages.
 *
 * It keeps what the rail is to have - memories, peers, grants of reading, keys - and gives it to
 * every process that greets in the rail's name. While none is there the links are down, memories
 * count as registered, and transfers end with SL_ERR_UNREACHABLE: the other rails go on.
 *
 * What lets memory go - the end of a transfer, of a grant, of a memory - is told when the process
 * has said so, or when it is dead, or when it says that it has begun a new life. A process that is
 * silent for `stall_ns` while something is to end is killed. */
#ifndef SL_TRANSPORTER_RAILS_REMOTE_H
#define SL_TRANSPORTER_RAILS_REMOTE_H

#include "ipc/sl_msg.h"
#include "runtime/fabric/core/fabric.h"

#define TR_RAILS_MAX 16u

struct tr_remote; /* opaque; owned by its fabric */
struct tr_handout;
struct tr_remotes {
    struct sl_env *env;
    uint64_t fence_ns;          /* what a living process may take to end something */
    struct tr_handout *handout; /* of engines' pools; NULL: these are none of the fabric's */
    struct tr_remote *at[TR_RAILS_MAX]; /* by rail; NULL: this process drives it, or nobody */
    uint32_t count;                     /* rails; 0: all are of this process */
    /* See tr_remotes_earlier_over. asked_ns: first, and it was not so; 0: not yet */
    uint64_t asked_ns;
    bool earlier_over, earlier_killed;
};

/* For sl_fabric_options.rail_open; the context is the struct tr_remotes. Errors: SL_ERR_NO_MEMORY. */
sl_err tr_remote_open(void *remotes, uint32_t index, const struct sl_fabric_options *options,
                      struct sl_fabric **out, struct sl_error *why);
/* RAIL_HELLO, RAIL_NEWS and RAIL_DONE. Events of the fabric come from here, too: to be called when
 * no function of the fabric runs. False: not for us. */
bool tr_remotes_handle(struct tr_remotes *remotes, const struct sl_msg *msg);
/* Whether nothing lands any more of what a door before this one had its rails' processes do: each has
 * greeted this door, or has closed its fabric, or is dead. One that has done none of that half of
 * fence_ns after the first question is killed. */
bool tr_remotes_earlier_over(struct tr_remotes *remotes);
/* True: it was the process of a rail. */
bool tr_remotes_died(struct tr_remotes *remotes, const struct sl_body_local_died *died);

#endif
