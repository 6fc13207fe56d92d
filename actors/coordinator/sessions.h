/* actors/coordinator/sessions.h - sessions of engines: their blocks come back from disk before they
 * are asked for. */
#ifndef SL_COORDINATOR_SESSIONS_H
#define SL_COORDINATOR_SESSIONS_H

#include "runtime/sl_error.h"

#define CO_SESSION_CALLS 4u /* requests under way */
struct coordinator;
struct co_op;
struct co_sessions; /* opaque */
struct sl_msg;

/* Nothing without a disk, or where the settings want none. Errors: SL_ERR_NO_MEMORY. */
sl_err co_sessions_init(struct coordinator *self, struct sl_error *why);
void co_sessions_fini(struct coordinator *self);
/* The op ended well, and its blocks are known. */
void co_sessions_note(struct coordinator *self, const struct co_op *op);
/* SESSION_PAUSE, SESSION_TURN: answered at once. */
void co_sessions_pause(struct coordinator *self, const struct sl_msg *msg);
void co_sessions_turn(struct coordinator *self, const struct sl_msg *msg);
/* The answer to the BRING of this place; NULL: none came. */
void co_sessions_answered(struct coordinator *self, uint32_t index, const struct sl_msg *reply);
void co_sessions_tick(struct coordinator *self, uint64_t now_ns);
uint64_t co_sessions_next_ns(const struct coordinator *self); /* SL_NEVER_NS: nothing is due */

#endif
