/* runtime/policy/sessions/sessions.h - the sessions of engines, and when their blocks are needed
 * again.
 *
 * A session is known by the hash of its name, or by its chain of blocks: a request that continues
 * the blocks of an earlier one is of the same session. Requests that ask for blocks are its turns;
 * between them are pauses. The table learns how reliable reported pause lengths are, and so what a
 * session's blocks are worth in memory at each time of its pause. A session is due when that
 * exceeds the worth of the blocks that would be evicted for them (the edge).
 *
 * Bounded: the session without a turn for longest is dropped. The user stores its own data by the
 * session's number. Time is an argument. One thread. */
#ifndef SL_SESSIONS_H
#define SL_SESSIONS_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

struct sl_sessions; /* opaque */

/* Blocks that were brought may be evicted early: writers need room at once, or other blocks are
 * retained. This is called now and then for a session that was brought; false: its blocks are gone,
 * and it is due again. */
typedef bool (*sl_sessions_here_fn)(void *context, uint32_t session);
/* count_max: 1..2^20 sessions. here may be NULL. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_sessions_create(uint32_t count_max, sl_sessions_here_fn here, void *context,
                          struct sl_sessions **out);
void sl_sessions_destroy(struct sl_sessions **sessions);

/* A request that loads or stores blocks. */
struct sl_turn {
    uint64_t id;            /* hash of the session's name; 0: none */
    const uint64_t *blocks; /* hashes of a run of its chain, none is 0 */
    uint32_t count;
    uint32_t depth;    /* known number of blocks before these in the chain */
    uint64_t before;   /* hash of the last of them; 0: unknown */
    uint64_t pause_ns; /* expected time until the next turn; 0: unknown */
    bool load;         /* it asks for blocks; otherwise it stores computed ones */
    bool ends;         /* no other turn is expected */
};
/* Records a turn. Returns the number of its session, 0..count_max-1, also for one that ends;
 * SL_SESSION_NONE: the request belongs to no session. *fresh: the session is new, so data stored by
 * its number was another session's. */
#define SL_SESSION_NONE UINT32_MAX
uint32_t sl_sessions_turn(struct sl_sessions *sessions, const struct sl_turn *turn, uint64_t now_ns,
                          bool *fresh);
/* Updates the present pause without a turn: the next turn is expected in pause_ns from now. 0: the
 * pause is over, and the next request will follow at once. SL_SESSION_PAUSE_UNKNOWN: earlier
 * reports are void. False: no session has this name. */
#define SL_SESSION_PAUSE_UNKNOWN UINT64_MAX
bool sl_sessions_report_pause(struct sl_sessions *sessions, uint64_t id, uint64_t pause_ns,
                              uint64_t now_ns);
void sl_sessions_drop(struct sl_sessions *sessions, uint32_t session);
/* The session without a turn for longest; SL_SESSION_NONE: there are no sessions. */
uint32_t sl_sessions_oldest(const struct sl_sessions *sessions);
uint32_t sl_sessions_count(const struct sl_sessions *sessions);

/* Sets the hits per second that a block in memory must bring to stay, and how long in advance a
 * block has to be requested. At any time; both are 0 at first. */
void sl_sessions_edge(struct sl_sessions *sessions, double hits_a_second, uint64_t lead_ns);

struct sl_session_due {
    uint32_t session;
    uint32_t serial; /* number of this result */
    double worth;    /* hits per second of each of its blocks in memory */
    uint64_t for_ns; /* how long they are worth their room */
};
/* When a session may next be due; SL_NEVER_NS: none. */
uint64_t sl_sessions_next_ns(const struct sl_sessions *sessions);
/* Returns a session that is due; false: none. The caller then calls sl_sessions_result. */
bool sl_sessions_due(struct sl_sessions *sessions, uint64_t now_ns, struct sl_session_due *out);
/* Reports the outcome. here: the blocks are in memory, for the time that was given; otherwise they
 * are requested again if they are worth more later. full: share of the room for such blocks that is
 * taken (0 to 1). */
void sl_sessions_result(struct sl_sessions *sessions, const struct sl_session_due *due, bool here,
                        double full, uint64_t now_ns);

#endif
