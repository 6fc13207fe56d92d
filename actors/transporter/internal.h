/* actors/transporter/internal.h - interfaces between the transporter's top-level files. */
#ifndef SL_TRANSPORTER_INTERNAL_H
#define SL_TRANSPORTER_INTERNAL_H

#include "actors/transporter/state/state.h"

/* Opens the control plane and everything that depends on it. self->fabric must be open; if it is
 * NULL, the call fails. Tests may set self->control before; then it is used. */
sl_err tr_cluster_init(struct transporter *self, struct sl_error *why);
void tr_cluster_fini(struct transporter *self);
/* Handles one frame from a peer. Every byte of it is untrusted. */
void tr_frame(struct transporter *self, const struct sl_control_frame *frame);
void tr_calls_ended(struct transporter *self, const struct sl_call *call,
                    const struct sl_msg *reply);

/* Callbacks of the fabric about grants, either of a hand-over or of an arena. */
void tr_fabric_granted(void *context, uint32_t grant, const void *key, uint32_t key_bytes,
                       const struct sl_error *why);
void tr_fabric_grant_ended(void *context, uint32_t grant);

/* ---- fences.c: FENCE, answered once no read writes into the claims that it names ---- */
void tr_fence(struct transporter *self, const struct sl_msg *msg);
/* Marks the fences of these bits as having one operation less to wait for. */
void tr_fences_over(struct transporter *self, uint64_t fences);

#endif
