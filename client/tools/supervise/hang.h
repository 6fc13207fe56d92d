/* client/tools/supervise/hang.h - decides from repeated looks at an actor whether it hangs. It uses
 * no clock and no process, so that a test can step it. */
#ifndef SL_CLIENT_SUPERVISE_HANG_H
#define SL_CLIENT_SUPERVISE_HANG_H

#include "runtime/base/sl_clock.h"

/* A process hangs if it is stopped (SIGSTOP), or its loop does not run, for this time. */
#define SUP_HANG_NS SL_NS_PER_S
/* While an actor starts, its loop does not run yet and beats mark only its steps: it may be silent
 * for this multiple of SUP_HANG_NS. */
#define SUP_STARTING_PATIENCE 10u
/* An idle actor beats every 0.5 s (SL_PROCESS_BEAT_NS). One whose last beat is older is late. */
#define SUP_LATE_NS (600 * SL_NS_PER_MS)
/* Time between two looks at a late actor. */
#define SUP_LOOK_NS (250 * SL_NS_PER_MS)

struct sup_seen {
    uint64_t beat_ns; /* time of its last beat; 0: none yet */
    bool starting;
    bool stopped; /* SIGSTOP; set only if sup_is_late */
};
/* Begins zeroed. */
struct sup_hang {
    uint64_t stopped_since_ns, silent_since_ns; /* true at each look since then; 0: not */
    uint64_t looked_ns;                         /* the last look; 0: none */
};
enum sup_verdict { SUP_FINE, SUP_STOPPED, SUP_SILENT };

static inline bool sup_is_late(const struct sup_seen *seen, uint64_t now_ns)
{
    return now_ns >= seen->beat_ns + SUP_LATE_NS;
}
/* One look. A hang must show at every look for SUP_HANG_NS. If the last look is more than
 * SUP_HANG_NS ago, it starts over, because the watcher itself did not run. */
enum sup_verdict sup_hang_look(struct sup_hang *hang, const struct sup_seen *seen, uint64_t now_ns);
/* Time of the next look, later than now_ns. */
uint64_t sup_hang_next_ns(const struct sup_hang *hang, const struct sup_seen *seen,
                          uint64_t now_ns);

#endif
