/* actors/registrar/parts.h - the table of the registrar's parts. */
#ifndef SL_REGISTRAR_PARTS_H
#define SL_REGISTRAR_PARTS_H

#include "actors/registrar/base/part.h"

/* Ends with NULL. */
extern const struct reg_part *const reg_parts[];

/* Allocates the states of all parts (zeroed) and builds the tables of their callbacks. Errors:
 * SL_ERR_NO_MEMORY. */
sl_err reg_parts_create(struct registrar *self, struct sl_error *why);
void reg_parts_destroy(struct registrar *self);

#endif
