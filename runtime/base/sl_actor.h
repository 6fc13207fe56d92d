/* runtime/base/sl_actor.h - the actor contract: a state struct and five functions on one thread.
 *
 * handle() processes one message in bounded time. Completions (disk, death of a process, jobs) are
 * also messages, of the SL_MSG_LOCAL_ kinds that never leave the process. A returned error of class
 * SL_CLASS_RESTART ends the process; other errors are logged and counted. */
#ifndef SL_ACTOR_H
#define SL_ACTOR_H

#include "runtime/base/sl_env.h"

struct sl_actor {
    const char *role; /* "swapper"; the instance name is role or role.N */
    bool ranked;      /* its name carries the setting `rank` */
    size_t state_bytes;
    /* state arrives zeroed. */
    sl_err (*init)(void *state, struct sl_env *env, struct sl_error *why);
    /* msg is borrowed, with everything it points at. */
    sl_err (*handle)(void *state, const struct sl_msg *msg);
    /* Called at the time given to wake_at, or earlier; also if a descriptor is readable. */
    sl_err (*tick)(void *state, uint64_t now_ns);
    /* Finish what is in flight, take nothing new, then call env->ops->finish. */
    void (*drain)(void *state);
    /* Also runs after a failed init. */
    void (*fini)(void *state);
};

#endif
