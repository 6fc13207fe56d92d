/* actors/registrar/records/fences.h - quarantine: extents whose reservation is over and whose
 * writer may still write. */
#ifndef SL_REGISTRAR_RECORDS_FENCES_H
#define SL_REGISTRAR_RECORDS_FENCES_H

#include "actors/registrar/base/core.h"

/* The extent is nobody's any more. */
void reg_claim_release(struct registrar *self, uint32_t slot);
/* The reservation is over, its bytes may still be written: key free, extent quarantined until the
 * writer is known to be out. */
void reg_claim_quarantine(struct registrar *self, uint32_t slot);
/* Frees what was quarantined that its client pins whenever it writes to it, and does not pin now.
 */
void reg_held_settle(struct registrar *self);
/* What a restart finds quarantined or promoting. */
void reg_claim_restore_quarantine(struct registrar *self, uint32_t slot, struct sl_proc_id writer,
                                  uint64_t deadline_ns);

extern const struct reg_part reg_fences_part;

#endif
