/* runtime/net/sl_handover.h - one request that goes from prefill to decode, as one node sees it.
 *
 *   announced -> allocated -> producing -> committed -> consumed -> released
 *         \           \            \            \__________________^
 *          \___________\____________\___ aborted ___/
 *
 * One machine for both modes: through storage "committed" means that every part is acknowledged and
 * held, directly that every part has landed and its digest was checked. Pure: it sends nothing and
 * reads no clock. A hand-over is released only when nothing of it is lent any more: neither time
 * nor an abort gives away blocks that a process may still write to. One thread. */
#ifndef SL_HANDOVER_H
#define SL_HANDOVER_H

#include "runtime/base/sl_error.h"

enum sl_handover_state {
    SL_HANDOVER_ANNOUNCED, /* an engine has named it */
    SL_HANDOVER_ALLOCATED, /* decode's blocks are there */
    SL_HANDOVER_PRODUCING, /* prefill stores or lends */
    SL_HANDOVER_COMMITTED, /* all of it can be had: the first token may go */
    SL_HANDOVER_CONSUMED,  /* decode has all of it */
    SL_HANDOVER_ABORTED,   /* it failed; what is lent comes back */
    SL_HANDOVER_RELEASED,  /* over */
    SL_HANDOVER_STATES
};
/* What others may still touch; any set of them. */
enum sl_handover_loan {
    SL_HANDOVER_SOURCE = 1u << 0, /* prefill's device blocks */
    SL_HANDOVER_TARGET = 1u << 1, /* decode's device blocks */
    SL_HANDOVER_HELD = 1u << 2,   /* blocks in storage that are held for it */
};

struct sl_handover {
    enum sl_handover_state state;
    enum sl_handover_state aborted_in;     /* where it was when it was aborted */
    sl_err code;                           /* why it was aborted; SL_OK */
    uint32_t loans;                        /* enum sl_handover_loan */
    uint64_t deadline_ns;                  /* of the state; SL_NEVER_NS in RELEASED */
    uint64_t limit_ns[SL_HANDOVER_STATES]; /* how long each state may last */
};

/* Announced at now_ns. limit_ns: SL_HANDOVER_STATES of them, each > 0; copied. */
void sl_handover_start(struct sl_handover *handover, const uint64_t *limit_ns, uint64_t now_ns);

/* Goes on to the state target, any but ABORTED. SL_OK: it has a deadline of its own. Errors, with
 * nothing changed: SL_ERR_EXISTS (it has happened already), SL_ERR_INVALID (an earlier step is
 * missing), SL_ERR_CANCELLED (aborted before), SL_ERR_BUSY (RELEASED while something is lent),
 * SL_ERR_STALE (over). */
sl_err sl_handover_step(struct sl_handover *handover, enum sl_handover_state target,
                        uint64_t now_ns);
/* Fails it. Errors: SL_ERR_EXISTS (aborted before: the first reason stays), SL_ERR_STALE (consumed
 * or released: too late). */
sl_err sl_handover_abort(struct sl_handover *handover, sl_err code, uint64_t now_ns);

/* Notes loans that begin, and loans that ended. */
void sl_handover_lend(struct sl_handover *handover, uint32_t loans);
void sl_handover_return(struct sl_handover *handover, uint32_t loans);

/* Looks at the clock. True when the deadline of the state has passed. A hand-over that was not
 * consumed is then aborted with SL_ERR_TIMEOUT; one that was consumed or aborted is released. While
 * something is still lent, it is not released: the deadline is set anew, and the caller goes on
 * asking. */
bool sl_handover_expire(struct sl_handover *handover, uint64_t now_ns);

const char *sl_handover_state_text(enum sl_handover_state state);

#endif
