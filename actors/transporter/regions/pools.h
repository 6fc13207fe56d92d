/* actors/transporter/regions/pools.h - registers engines' pools with the fabric (setting
 * fabric_pools).
 *
 * The registrar is asked for its list of engines once a second, and announces new ones. The memory
 * of a new engine is mapped and registered in steps, one a turn: all of it or nothing. It is
 * released when the registration ends (ENGINE_OVER), the process dies, or the registrar no longer
 * lists it. Device memory is registered by dmabuf if fabric, swapper and NIC support it. Other
 * device memory and plain memory of processes are left out. */
#ifndef SL_TRANSPORTER_REGIONS_POOLS_H
#define SL_TRANSPORTER_REGIONS_POOLS_H

#include "actors/transporter/state/state.h"

#define TR_SPANS_MAX 4096u /* of all engines together */

/* Creates self->pools if the setting is on; self->fabric must be open. Errors: SL_ERR_NO_MEMORY,
 * SL_ERR_UNSUPPORTED. */
sl_err tr_pools_init(struct transporter *self, struct sl_error *why);
/* Unmaps everything. Call after the fabric was closed. */
void tr_pools_fini(struct transporter *self);
/* Takes the next step. Gives when to call again. */
uint64_t tr_pools_step(struct transporter *self, uint64_t now_ns);
/* Answers to ENGINES and ENGINE_GET; reply NULL: no answer in time. */
void tr_pools_listed(struct transporter *self, uint32_t index, const struct sl_msg *reply);
void tr_pools_described(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* Answer to POOL_EXPORT; reply NULL: no answer in time. */
void tr_pools_exported(struct transporter *self, uint32_t index, const struct sl_msg *reply);
/* Result of a registration. False: the memory is not of a pool. */
bool tr_pools_registered(struct transporter *self, uint32_t memory, const struct sl_error *why);
void tr_pools_added(struct transporter *self, const struct sl_msg *msg); /* ENGINE_ADDED */
/* ENGINE_OVER: answered when nothing of the engine is registered or mapped any more. */
void tr_pools_over(struct transporter *self, const struct sl_msg *msg);
void tr_pools_died(struct transporter *self, const struct sl_body_local_died *died);

struct tr_layout;     /* layout.h */
struct tr_pool_view { /* a registered engine; valid until the turn ends */
    const struct tr_layout *layout;
    const uint32_t *memories; /* fabric handles, one for each span */
    const void *engine;
};
/* Errors: SL_ERR_NOT_FOUND (unknown, not ready, or ending), SL_ERR_UNSUPPORTED (the setting is off,
 * or the engine was refused). */
sl_err tr_pools_view(struct transporter *self, uint64_t engine_id, struct tr_pool_view *out,
                     struct sl_error *why);
/* Address of a span in this process; not for device memory. */
unsigned char *tr_pools_at(const struct tr_pool_view *view, uint32_t span);

#endif
