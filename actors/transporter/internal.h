/* actors/transporter/internal.h - what the actor's own files ask of each other. */
#ifndef SL_TRANSPORTER_INTERNAL_H
#define SL_TRANSPORTER_INTERNAL_H

#include "actors/transporter/state/state.h"

/* Opens the control plane and what belongs to it; self->fabric is open (or NULL: an error). control
 * NULL: none is made, a test has set self->control. */
sl_err tr_cluster_init(struct transporter *self, struct sl_error *why);
void tr_cluster_fini(struct transporter *self);
/* One frame from a peer. Every byte is hostile. */
void tr_frame(struct transporter *self, const struct sl_control_frame *frame);
void tr_calls_ended(struct transporter *self, const struct sl_call *call,
                    const struct sl_msg *reply);

/* The fabric's news of grants: of a hand-over's, or of an arena's. */
void tr_fabric_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why);
void tr_fabric_grant_ended(void *context, uint32_t grant);

/* ---- fences.c: FENCE, answered when nothing lands any more in the claims that it names ---- */
void tr_fence(struct transporter *self, const struct sl_msg *msg);
/* What the fences of these bits waited for is over. */
void tr_fences_over(struct transporter *self, uint64_t fences);

#endif
