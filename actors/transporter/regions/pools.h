/* actors/transporter/regions/pools.h - engines' pools, registered with the fabric: with the setting
 * fabric_pools.
 *
 * The registrar is asked once a second which engines there are, and tells of new ones. The memory
 * of a new one is mapped
 * and registered, a step a turn: all of it or nothing. It goes when the registration ends
 * (ENGINE_OVER), the process dies, or the registrar knows it no more. Device memory is registered
 * by dmabuf, where the fabric, the rank's swapper and the NIC can; what cannot, and plain memory of
 * processes, is left out. */
#ifndef SL_TRANSPORTER_REGIONS_POOLS_H
#define SL_TRANSPORTER_REGIONS_POOLS_H

#include "actors/transporter/state/state.h"

#define TR_SPANS_MAX 4096u /* memories of all engines together */

/* Makes self->pools where the setting asks for it; self->fabric is open. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_UNSUPPORTED. */
sl_err tr_pools_init(struct transporter *self, struct sl_error *why);
/* After the fabric is closed: unmaps. */
void tr_pools_fini(struct transporter *self);
/* Takes the next step; gives when it wants to run again. */
uint64_t tr_pools_step(struct transporter *self, uint64_t now_ns);
/* Answers to ENGINES and ENGINE_GET; reply NULL: none in time. */
void tr_pools_listed(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_pools_described(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* The answer to POOL_EXPORT; reply NULL: none in time. */
void tr_pools_exported(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* The fabric's word on a memory. False: it is no pool's. */
bool tr_pools_registered(struct transporter *self, uint32_t memory, const struct sl_error *why);
void tr_pools_added(struct transporter *self, const struct sl_msg *msg); /* ENGINE_ADDED */
/* ENGINE_OVER: answered when nothing of the engine is registered or mapped here. */
void tr_pools_over(struct transporter *self, const struct sl_msg *msg);
void tr_pools_died(struct transporter *self, const struct sl_body_local_died *died);

struct tr_layout;     /* layout.h */
struct tr_pool_view { /* of an engine that is registered; valid until the turn ends */
    const struct tr_layout *layout;
    const uint32_t *memories; /* of the fabric, one a span of the layout */
    const void *engine;
};
/* Errors: SL_ERR_NOT_FOUND (not known, not ready yet, or it ends), SL_ERR_UNSUPPORTED (without the
 * setting; it was refused). */
sl_err tr_pools_view(struct transporter *self, uint64_t engine_id, struct tr_pool_view *out,
                     struct sl_error *why);
/* Where a span of the layout begins in this process; none of device memory. */
unsigned char *tr_pools_at(const struct tr_pool_view *view, uint32_t span);

#endif
