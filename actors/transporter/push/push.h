/* actors/transporter/push/push.h - direct hand-over, as the actor sees it. */
#ifndef SL_TRANSPORTER_PUSH_PUSH_H
#define SL_TRANSPORTER_PUSH_PUSH_H

#include "actors/transporter/peers/peers.h"

#define TR_PUSH_PLACES_MAX (1u << 18) /* of the fabric, of all tickets and batches */

/* ---- push.c, tickets.c, grants.c ---- */
sl_err tr_push_init(struct transporter *self, struct sl_error *why);
void tr_push_fini(struct transporter *self);
/* False: not about hand-overs. */
bool tr_push_request(struct transporter *self, const struct sl_msg *msg);
void tr_push_answer(struct transporter *self, const struct sl_msg *msg);
void tr_push_frame(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);
void tr_push_step(struct transporter *self, uint64_t now_ns);
/* The fabric's news; false: not about hand-overs. */
bool tr_push_done(struct transporter *self, const struct sl_fabric_done *done);
bool tr_push_granted(struct transporter *self, uint32_t grant, const struct sl_bytes *key,
                     const struct sl_error *why);
bool tr_push_grant_ended(struct transporter *self, uint32_t grant);
/* Of the fabric's events: what a notice has named is not written any more. */
bool tr_push_may_write(void *context, uint64_t cookie, uint64_t offset_bytes,
                       uint64_t length_bytes);
/* Grants of writing go with their link (verbs). */
void tr_push_link_lost(struct transporter *self, uint32_t fabric_peer);
/* A new life of the peer. */
void tr_push_peer_renewed(struct transporter *self, const struct tr_peer *peer);
/* Its key has gone: tickets that it has, or that it gave, end. */
void tr_push_peer_expelled(struct transporter *self, const struct tr_peer *peer);
/* An engine's pools leave: tickets for them end, and batches that read them. */
void tr_push_engine_ends(struct transporter *self, uint64_t engine_id);
/* A FENCE without claims ends tickets and batches of its op, or of all that its sender asked for. Gives
 * how many are not over yet; fence: that waits for them, or TR_FENCES_MAX: none does. */
uint32_t tr_push_fence(struct transporter *self, const struct sl_msg *msg, uint32_t fence);

/* ---- word.c ---- */
void tr_word(struct transporter *self, const struct sl_msg *msg);
void tr_word_frame(struct transporter *self, struct tr_peer *peer, const struct sl_msg *msg);

#endif
