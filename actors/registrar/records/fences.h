/* actors/registrar/records/fences.h - quarantine of extents whose reservation has ended and whose
 * writer may still write. */
#ifndef SL_REGISTRAR_RECORDS_FENCES_H
#define SL_REGISTRAR_RECORDS_FENCES_H

#include "actors/registrar/base/core.h"

/* Frees the extent and the claim. */
void reg_claim_release(struct registrar *self, uint32_t slot);
/* Ends a reservation whose extent may still be written: the key is free at once, the extent when
 * its writer can no longer write. */
void reg_claim_quarantine(struct registrar *self, uint32_t slot);
/* Frees quarantined extents whose client pins them for each write and does not pin them now. */
void reg_held_free_unpinned(struct registrar *self);
/* For claims that a restart finds quarantined or promoting. */
void reg_claim_restore_quarantine(struct registrar *self, uint32_t slot, struct sl_proc_id writer,
                                  uint64_t deadline_ns);

extern const struct reg_part reg_fences_part;

#endif
