/* client/tools/supervise/hang.h - whether an actor hangs, judged by what is seen of it from time to
 * time. No clock and no process: a test steps it. */
#ifndef SL_CLIENT_SUPERVISE_HANG_H
#define SL_CLIENT_SUPERVISE_HANG_H

#include "runtime/base/sl_clock.h"

/* A process that stays stopped (SIGSTOP), or whose loop does not turn, for so long hangs. */
#define SUP_HANG_NS SL_NS_PER_S
/* A start has no loop that turns, only steps that it tells: it may be silent for so many times
 * that. */
#define SUP_STARTING_PATIENCE 10u
/* An idle actor beats every half a second (SL_PROCESS_BEAT_NS): later than this it is looked at. */
#define SUP_LATE_NS (600 * SL_NS_PER_MS)
/* So often one that is late. */
#define SUP_LOOK_NS (250 * SL_NS_PER_MS)

struct sup_seen {
    uint64_t beat_ns; /* when its loop turned last; 0: it has not told yet */
    bool starting;
    bool stopped; /* SIGSTOP; need be looked for only when sup_is_late */
};
/* Zeroed at the beginning. */
struct sup_hang {
    uint64_t stopped_since_ns, silent_since_ns; /* at each look since then; 0: it is not */
    uint64_t looked_ns;                         /* the last time; 0: never */
};
enum sup_verdict { SUP_FINE, SUP_STOPPED, SUP_SILENT };

static inline bool sup_is_late(const struct sup_seen *seen, uint64_t now_ns)
{
    return now_ns >= seen->beat_ns + SUP_LATE_NS;
}
/* One look. What is no hang at one look in between was none. A look that is late by more than
 * SUP_HANG_NS begins anew: the watcher did not run either. */
enum sup_verdict sup_hang_look(struct sup_hang *hang, const struct sup_seen *seen, uint64_t now_ns);
/* When to look again after that: after now_ns. */
uint64_t sup_hang_next_ns(const struct sup_hang *hang, const struct sup_seen *seen,
                          uint64_t now_ns);

#endif
