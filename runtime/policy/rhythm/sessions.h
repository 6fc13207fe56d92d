/* runtime/policy/rhythm/sessions.h - the sessions of engines, and when their blocks are wanted
 * again.
 *
 * A session is known by its name's hash, or by its chain of blocks: a request that goes on from the
 * blocks of an earlier one is of the same session. Requests that ask for blocks are its turns, what
 * is between them are pauses. Of pauses is learnt how far what is said of their length is right,
 * and so what blocks in memory are worth at each time of them. When that is more than what goes for
 * them is worth (the edge), a session is due.
 *
 * Bounded: the session that had no turn for longest makes way. Its user keeps what it needs by the
 * session's number. Time is an argument. One thread. */
#ifndef SL_SESSIONS_H
#define SL_SESSIONS_H

#include "runtime/base/sl_error.h"

#include <stdint.h>

struct sl_sessions; /* opaque */

/* What came may leave again before its time: writers need room at once, others are kept instead.
 * Asked of a session that is due and came, now and then; false: it is given as due again. */
typedef bool (*sl_sessions_here_fn)(void *context, uint32_t session);
/* count_max: 1..2^20 sessions. here: NULL: not asked. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_sessions_create(uint32_t count_max, sl_sessions_here_fn here, void *context,
                          struct sl_sessions **out);
void sl_sessions_destroy(struct sl_sessions **sessions);

/* A request that loads or stores blocks. */
struct sl_turn {
    uint64_t id;            /* hash of the session's name; 0: it has none */
    const uint64_t *blocks; /* hashes of a run of its chain, none 0 */
    uint32_t count;
    uint32_t depth;    /* blocks before these in the chain, as far as they are known */
    uint64_t before;   /* hash of the last of them; 0: not known */
    uint64_t pause_ns; /* after which the next turn is expected; 0: nothing is said */
    bool load;         /* it asks for blocks; else it stores what was computed */
    bool ends;         /* no other turn is expected */
};
/* Gives the number of its session, 0..count_max-1, also of one that ends; SL_SESSION_NONE: nothing
 * makes it one. *fresh: the session begins with it: what was kept by the number was another's. */
#define SL_SESSION_NONE UINT32_MAX
uint32_t sl_sessions_turn(struct sl_sessions *sessions, const struct sl_turn *turn, uint64_t now_ns,
                          bool *fresh);
/* Of the pause that goes on, and no turn: another turn is expected in so long, counted from now.
 * 0: the pause is over, and the next request is about to come. SL_TOLD_UNKNOWN: what was told
 * counts no more. false: no session has this name. */
#define SL_TOLD_UNKNOWN UINT64_MAX
bool sl_sessions_told(struct sl_sessions *sessions, uint64_t id, uint64_t pause_ns,
                      uint64_t now_ns);
void sl_sessions_drop(struct sl_sessions *sessions, uint32_t session);
/* The one that had no turn for longest; SL_SESSION_NONE: there is none. */
uint32_t sl_sessions_oldest(const struct sl_sessions *sessions);
uint32_t sl_sessions_count(const struct sl_sessions *sessions);

/* Hits a second that a block in memory must bring to stay; and how long before its time a block has
 * to be asked for. Any time; both begin with 0. */
void sl_sessions_edge(struct sl_sessions *sessions, double hits_a_second, uint64_t lead_ns);

struct sl_session_due {
    uint32_t session;
    uint32_t serial; /* of the times that any was given */
    double worth;    /* hits a second of each of its blocks in memory */
    uint64_t for_ns; /* for so long they are worth their place */
};
/* When the next one may be due; SL_NEVER_NS: none. */
uint64_t sl_sessions_next_ns(const struct sl_sessions *sessions);
/* Gives one that is due. false: none. Its user says what became of it by sl_sessions_tried. */
bool sl_sessions_due(struct sl_sessions *sessions, uint64_t now_ns, struct sl_session_due *out);
/* here: its blocks are in memory, until the time that was given; else they will be asked for again,
 * if that is worth more later. full: of the room for what comes so, how much is taken (0 to 1). */
void sl_sessions_tried(struct sl_sessions *sessions, const struct sl_session_due *due, bool here,
                       double full, uint64_t now_ns);

#endif
