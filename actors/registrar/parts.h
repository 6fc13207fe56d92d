/* actors/registrar/parts.h - the table of parts. */
#ifndef SL_REGISTRAR_PARTS_H
#define SL_REGISTRAR_PARTS_H

#include "actors/registrar/base/part.h"

/* NULL behind the last. */
extern const struct reg_part *const reg_parts[];

/* Makes the state of every part, and the walks. Errors: SL_ERR_NO_MEMORY. */
sl_err reg_parts_create(struct registrar *self, struct sl_error *why);
void reg_parts_destroy(struct registrar *self);

#endif
