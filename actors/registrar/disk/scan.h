/* actors/registrar/disk/scan.h - what a scan of a disk finds. */
#ifndef SL_REGISTRAR_DISK_SCAN_H
#define SL_REGISTRAR_DISK_SCAN_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/units.h"

/* The record loses its place; what has no other copy is dropped as a whole block. reclaimed: it had its
 * time on disk, else it is written anew. */
void reg_place_clear(struct registrar *self, const struct sl_entry *entry,
                     const struct reg_drop *how, bool reclaimed);
/* A place cannot be trusted: forgets it; what has no other copy is dropped as a whole block. */
void reg_place_lost(struct registrar *self, sl_ref ref, sl_err code);

extern const struct reg_part reg_scan_part;

#endif
