/* actors/transporter/handover/handover.h - direct hand-over: the interface to the actor. */
#ifndef SL_TRANSPORTER_HANDOVER_HANDOVER_H
#define SL_TRANSPORTER_HANDOVER_HANDOVER_H

#include "actors/transporter/peers/peers.h"

#define TR_HANDOVER_PLACES_MAX (1u << 18) /* memory ranges of all loans and reads */
#define TR_HANDOVER_READS_MAX  256u       /* messages in progress at once */

/* ---- handover.c ---- */
sl_err tr_handover_init(struct transporter *self, struct sl_error *why);
void tr_handover_fini(struct transporter *self);
void tr_handover_step(struct transporter *self, uint64_t now_ns);
/* The peer restarted. */
void tr_handover_peer_renewed(struct transporter *self, const struct tr_peer *peer);
/* The peer's key was removed. */
void tr_handover_peer_expelled(struct transporter *self, const struct tr_peer *peer);
/* The engine's pools are released. */
void tr_handover_engine_ends(struct transporter *self, uint64_t engine_id);
/* Handles a FENCE without claims: ends the loans and reads of its op, or of its sender. Gives the
 * number that have not ended yet; bit: of the fence that waits for them, 0: none. */
uint32_t tr_handover_fence(struct transporter *self, const struct sl_msg *msg, uint64_t bit);

/* ---- lend.c, grants.c: prefill ---- */
void tr_lend(struct transporter *self, const struct sl_msg *msg);
void tr_lend_answered(struct transporter *self, struct tr_peer *peer, const struct sl_msg *reply);
/* Callbacks of the fabric; false: the grant is not of a hand-over. */
bool tr_lend_granted(struct transporter *self, uint32_t grant, const struct sl_bytes *key,
                     const struct sl_error *why);
bool tr_lend_grant_ended(struct transporter *self, uint32_t grant);
/* verbs: a lost link voids the rights to read pools. */
void tr_lend_link_lost(struct transporter *self, uint32_t fabric_peer);

/* ---- take.c, read.c: decode ---- */
void tr_take(struct transporter *self, const struct sl_msg *msg); /* BRING with a ticket */
/* Answers to calls; reply NULL: no answer in time. */
void tr_take_opened(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_read_answered(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_take_announced(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
/* False: the transfer is not of a hand-over. */
bool tr_take_read(struct transporter *self, const struct sl_fabric_done *done);

/* ---- notify.c ---- */
void tr_handover_notify(struct transporter *self, const struct sl_msg *msg);
void tr_handover_notify_frame(struct transporter *self, struct tr_peer *peer,
                              const struct sl_msg *msg);

#endif
