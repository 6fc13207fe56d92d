/* actors/registrar/disk/damaged.h - values whose bytes in memory are not what was stored. */
#ifndef SL_REGISTRAR_DISK_DAMAGED_H
#define SL_REGISTRAR_DISK_DAMAGED_H

#include "actors/registrar/base/core.h"

/* Nobody reads these bytes again: a value that is on disk, too, is there alone from now on, else its
 * unit is dropped, so that a store writes it anew. ref: a committed record. */
void reg_memory_damaged(struct registrar *self, sl_ref ref);

extern const struct reg_part reg_damaged_part;

#endif
