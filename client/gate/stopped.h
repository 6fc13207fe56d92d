/* client/gate/stopped.h - stand-ins that stand still (SIGSTOP). One that does sees neither its client's questions
 * nor its end, and has pins and drafts: its client goes on with another one. */
#ifndef SL_CLIENT_GATE_STOPPED_H
#define SL_CLIENT_GATE_STOPPED_H

#include "runtime/sl_clock.h"

#include <stdbool.h>
#include <sys/types.h>

/* So long: as actors (client/supervise/hang.h). */
#define STOPPED_NS SL_NS_PER_S
/* At a time; more of them are not looked at. */
#define STOPPED_MAX 256u

struct stopped { /* zeroed: none is */
    struct {
        pid_t pid;
        uint64_t since_ns;
    } all[STOPPED_MAX];
    uint32_t count;
};

/* It stopped, or it goes on or is gone. */
void stopped_add(struct stopped *self, pid_t pid, uint64_t now_ns);
void stopped_remove(struct stopped *self, pid_t pid);
/* One that stands still for too long, which is removed; 0: none. Who looks late by as much was stopped, too: then it
 * begins anew. */
pid_t stopped_take(struct stopped *self, uint64_t now_ns);
/* When to look again. SL_NEVER_NS: none stands still. */
uint64_t stopped_next_ns(const struct stopped *self);

#endif
