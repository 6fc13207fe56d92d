/* client/tools/supervise/hang.c - decides whether an actor hangs. */
#include "client/tools/supervise/hang.h"

/* Whether the condition held at every look for SUP_HANG_NS. */
static bool for_long(uint64_t *since_ns, bool is_so, uint64_t now_ns)
{
    if (!is_so) {
        *since_ns = 0;
    } else if (*since_ns == 0) {
        *since_ns = now_ns;
    }
    return *since_ns != 0 && now_ns - *since_ns >= SUP_HANG_NS;
}

enum sup_verdict sup_hang_look(struct sup_hang *hang, const struct sup_seen *seen, uint64_t now_ns)
{
    uint64_t patience_ns = SUP_HANG_NS * (seen->starting ? SUP_STARTING_PATIENCE : 1);
    if (now_ns > hang->looked_ns + SUP_HANG_NS) { /* a long gap: the actor may have run in it */
        *hang = (struct sup_hang){0};
    }
    hang->looked_ns = now_ns;
    bool silent = seen->beat_ns != 0 && now_ns > seen->beat_ns + patience_ns;
    bool stopped_long = for_long(&hang->stopped_since_ns, seen->stopped, now_ns);
    bool silent_long = for_long(&hang->silent_since_ns, silent, now_ns);
    if (!stopped_long && !silent_long) {
        return SUP_FINE;
    }
    *hang = (struct sup_hang){0}; /* reported again if it still hangs after SUP_HANG_NS */
    return stopped_long ? SUP_STOPPED : SUP_SILENT;
}

uint64_t sup_hang_next_ns(const struct sup_hang *hang, const struct sup_seen *seen, uint64_t now_ns)
{
    uint64_t next_ns = now_ns + SUP_LOOK_NS;
    if (hang->stopped_since_ns != 0) {
        next_ns = SL_MIN(next_ns, hang->stopped_since_ns + SUP_HANG_NS);
    }
    if (hang->silent_since_ns != 0) {
        next_ns = SL_MIN(next_ns, hang->silent_since_ns + SUP_HANG_NS);
    }
    if (!sup_is_late(seen, now_ns)) {
        next_ns = seen->beat_ns + SUP_LATE_NS;
    }
    return SL_MAX(next_ns, now_ns + 1);
}
