/* client/gate/relay_check.h - what a client of another user may say to actors about engines, and how it is said
 * there. Actors believe whom they know by name; so all that such a message names is looked at here:
 * - Memory is what the client lent (relay_memory.h), in its bounds.
 * - Engines are those that it registered. Teams, ops and sessions have numbers that are made of theirs and the
 *   user's (relay_number): no user can name what is another one's.
 * - Nothing of it is waited for longer than SL_GATE_WAIT_NS_MAX.
 * - What one registration may be is less than what the table of messages allows: it keeps the registrar busy.
 * - Hand-overs, events of GPUs, pools of the table of pools and all other messages are refused. */
#ifndef SL_CLIENT_GATE_RELAY_CHECK_H
#define SL_CLIENT_GATE_RELAY_CHECK_H

#include "client/gate/relay_memory.h"
#include "ipc/sl_msg.h"
#include "runtime/sl_proc.h"

#define RELAY_ENGINES_MAX 16u   /* of a client */
#define RELAY_REGIONS_MAX 4096u /* of a registration */

struct relay_engine {
    uint64_t id;          /* 0: free */
    uint64_t memories;    /* bits: which of them it has */
    uint64_t team;        /* as actors know it; 0: none */
    uint64_t block_bytes; /* of all ranks; UINT64_MAX: not known */
    uint64_t seq;         /* of its registration */
};
struct relay_rules {
    uint32_t uid;           /* of the client */
    uint64_t op_timeout_ns; /* of what says no time */
    struct sl_proc_id self; /* as who the node knows it */
    const struct relay_memory *memories;
    const struct relay_engine *engines; /* RELAY_ENGINES_MAX */
};
/* What a message that was checked points at. */
struct relay_checked {
    struct sl_item_region *regions; /* owned; NULL: none */
    uint64_t memories;              /* bits: which of them a registration has */
    uint64_t target;                /* what else it names: an engine, a team, an op or a session */
    uint64_t block_bytes;           /* of a registration, as in struct relay_engine */
    uint64_t draft_bytes;           /* that a STORE reserves before it has them */
    bool stranger;                  /* an op of a team of which the client has no rank */
};

/* Of a user's number that names something: never 0, unless it is 0. what: numbers of different things differ. */
enum relay_what { RELAY_OP = 1, RELAY_TEAM, RELAY_SESSION };
uint64_t relay_number(uint32_t uid, enum relay_what what, uint64_t number);

/* What may be said to that actor at all: nothing else is even decoded. Gives how many. */
uint32_t relay_types(const char *to, const enum sl_msg_type **types);
/* Makes of the client's message that for the actor (to: its name); out is to be freed also after an error.
 * Errors: SL_ERR_PERMISSION, SL_ERR_INVALID, SL_ERR_UNSUPPORTED, SL_ERR_NOT_FOUND (an engine), SL_ERR_LIMIT
 * (memory that could not be taken, too many regions), SL_ERR_NO_MEMORY. */
sl_err relay_check(const struct relay_rules *rules, const char *to, struct sl_msg *msg,
                   struct relay_checked *out, struct sl_error *why);
void relay_checked_free(struct relay_checked *checked);

#endif
