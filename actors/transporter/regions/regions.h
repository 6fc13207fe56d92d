/* actors/transporter/regions/regions.h - this node's memory: regions of a NIC, index and arena. */
#ifndef SL_TRANSPORTER_REGIONS_REGIONS_H
#define SL_TRANSPORTER_REGIONS_REGIONS_H

#include "actors/transporter/state/state.h"

/* ---- regions.c ---- */
/* Chooses NIC and limit of a region, from settings and environment. Errors: SL_ERR_CONFIG. */
sl_err tr_regions_init(struct transporter *self, struct sl_error *why);

/* ---- memory.c ---- */
/* Looks for index and arena, and registers that with the fabric, when it is time. */
void tr_memory_step(struct transporter *self, uint64_t now_ns);
/* Whether the arena that is mapped still is the node's. */
bool tr_arena_same(struct transporter *self);
void tr_memory_registered(struct transporter *self, uint32_t memory, const struct sl_error *why);
void tr_memory_fini(struct transporter *self);

/* nic.c: sets self->nic from the settings nic and nic_by. Errors: SL_ERR_CONFIG, SL_ERR_UNSUPPORTED
 * (auto, and no port is usable), SL_ERR_NO_MEMORY. */
sl_err tr_nic_choose(struct transporter *self, struct sl_error *why);

#endif
