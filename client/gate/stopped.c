/* client/gate/stopped.c - see stopped.h. */
#include "client/gate/stopped.h"

void stopped_remove(struct stopped *self, pid_t pid)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->all[i].pid == pid) {
            self->all[i] = self->all[--self->count];
            return;
        }
    }
}

void stopped_add(struct stopped *self, pid_t pid, uint64_t now_ns)
{
    stopped_remove(self, pid);
    if (self->count < STOPPED_MAX) {
        self->all[self->count].pid = pid;
        self->all[self->count++].since_ns = now_ns;
    }
}

pid_t stopped_take(struct stopped *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < self->count; i++) {
        uint64_t due_ns = self->all[i].since_ns + STOPPED_NS;
        if (now_ns >= due_ns + STOPPED_NS) {
            self->all[i].since_ns = now_ns;
        } else if (now_ns >= due_ns) {
            pid_t pid = self->all[i].pid;
            stopped_remove(self, pid);
            return pid;
        }
    }
    return 0;
}

uint64_t stopped_next_ns(const struct stopped *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < self->count; i++) {
        next_ns = SL_MIN(next_ns, self->all[i].since_ns + STOPPED_NS);
    }
    return next_ns;
}
