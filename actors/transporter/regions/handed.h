/* actors/transporter/regions/handed.h - memory of engines for rails that other processes drive: the door
 * keeps a descriptor of what it has mapped, and hands it out (rails/handout.h). Where this process
 * drives all rails nothing is kept. */
#ifndef SL_TRANSPORTER_REGIONS_HANDED_H
#define SL_TRANSPORTER_REGIONS_HANDED_H

#include "actors/transporter/state/state.h"
#include "cuda/sl_device.h"

/* Maps memory of an engine; *number: what it is handed out by, 0: it is not. Errors: those of map, and
 * of tr_handout_add. */
sl_err tr_handed_map(struct transporter *self, struct sl_device *device,
                     const struct sl_memory_handle *handle, uint64_t length_bytes,
                     struct sl_mapping *mapping, uint64_t *number, struct sl_error *why);
/* Hands out a copy of the descriptor. Errors: those of tr_handout_add. */
sl_err tr_handed_out(struct transporter *self, int fd, uint64_t length_bytes, uint64_t *number,
                     struct sl_error *why);
/* Nobody gets it any more. */
void tr_handed_back(struct transporter *self, uint64_t *number);

#endif
