/* actors/transporter/regions/regions.h - this node's memory: NICs, size of regions, index and
 * arena. */
#ifndef SL_TRANSPORTER_REGIONS_REGIONS_H
#define SL_TRANSPORTER_REGIONS_REGIONS_H

#include "actors/transporter/state/state.h"

/* ---- regions.c ---- */
/* Chooses the NICs and the maximum region size from settings and environment. Errors:
 * SL_ERR_CONFIG, those of tr_nic_choose. */
sl_err tr_regions_init(struct transporter *self, struct sl_error *why);

/* ---- memory.c ---- */
/* Opens index and arena, and registers the arena with the fabric, when this is due. */
void tr_memory_step(struct transporter *self, uint64_t now_ns);
/* Whether the mapped arena still is the node's. */
bool tr_arena_is_current(struct transporter *self);
void tr_memory_registered(struct transporter *self, uint32_t memory, const struct sl_error *why);
void tr_memory_fini(struct transporter *self);

/* nic.c: sets self->nic from the settings nic and nic_by. Errors: SL_ERR_CONFIG, SL_ERR_UNSUPPORTED
 * (auto, and no port is usable), SL_ERR_NO_MEMORY. */
sl_err tr_nic_choose(struct transporter *self, struct sl_error *why);

#endif
