/* runtime/net/sl_handover.h - state machine of one hand-over from prefill to decode, as one node
 * sees it.
 *
 *   announced -> allocated -> producing -> committed -> consumed -> released
 *         \           \            \            \__________________^
 *          \___________\____________\___ aborted ___/
 *
 * It serves both modes. Through storage, "committed" means that every part is acknowledged and
 * held; directly, that every part has arrived and its digest was checked. Pure: it sends nothing
 * and reads no clock. A hand-over is released only when it has no loans: neither time nor an abort
 * releases blocks that a process may still write to. One thread. */
#ifndef SL_HANDOVER_H
#define SL_HANDOVER_H

#include "runtime/base/sl_error.h"

enum sl_handover_state {
    SL_HANDOVER_ANNOUNCED, /* an engine has named it */
    SL_HANDOVER_ALLOCATED, /* decode's blocks are allocated */
    SL_HANDOVER_PRODUCING, /* prefill stores or lends */
    SL_HANDOVER_COMMITTED, /* all blocks are available: the first token may be sent */
    SL_HANDOVER_CONSUMED,  /* decode has all blocks */
    SL_HANDOVER_ABORTED,   /* it failed; loans must end */
    SL_HANDOVER_RELEASED,  /* final */
    SL_HANDOVER_STATES
};
/* Blocks that other processes may still access; a set of bits. */
enum sl_handover_loan {
    SL_HANDOVER_SOURCE = 1u << 0, /* prefill's device blocks */
    SL_HANDOVER_TARGET = 1u << 1, /* decode's device blocks */
    SL_HANDOVER_HELD = 1u << 2,   /* blocks that storage holds for it */
};

struct sl_handover {
    enum sl_handover_state state;
    enum sl_handover_state aborted_in;     /* state at the time of the abort */
    sl_err code;                           /* reason of the abort, or SL_OK */
    uint32_t loans;                        /* enum sl_handover_loan */
    uint64_t deadline_ns;                  /* of the state; SL_NEVER_NS in RELEASED */
    uint64_t limit_ns[SL_HANDOVER_STATES]; /* maximum time in each state */
};

/* Starts in ANNOUNCED. limit_ns: SL_HANDOVER_STATES entries, each > 0; copied. */
void sl_handover_start(struct sl_handover *handover, const uint64_t *limit_ns, uint64_t now_ns);

/* Enters the state target, any but ABORTED, with its own deadline. Errors, with nothing changed:
 * SL_ERR_EXISTS (already reached), SL_ERR_INVALID (an earlier step is missing), SL_ERR_CANCELLED
 * (aborted before), SL_ERR_BUSY (RELEASED while loans exist), SL_ERR_STALE (already released). */
sl_err sl_handover_step(struct sl_handover *handover, enum sl_handover_state target,
                        uint64_t now_ns);
/* Aborts the hand-over. Errors: SL_ERR_EXISTS (already aborted: the first reason is kept),
 * SL_ERR_STALE (already consumed or released). */
sl_err sl_handover_abort(struct sl_handover *handover, sl_err code, uint64_t now_ns);

/* Records that loans begin, or have ended. */
void sl_handover_lend(struct sl_handover *handover, uint32_t loans);
void sl_handover_return(struct sl_handover *handover, uint32_t loans);

/* Checks the deadline of the state; true: it has passed. A hand-over that was not consumed is then
 * aborted with SL_ERR_TIMEOUT; one that was consumed or aborted is released. While it has loans, it
 * gets a new deadline instead, and the caller keeps calling. */
bool sl_handover_expire(struct sl_handover *handover, uint64_t now_ns);

const char *sl_handover_state_text(enum sl_handover_state state);

#endif
