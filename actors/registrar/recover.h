/* actors/registrar/recover.h - rebuilds a new registrar's tables from the records of the index. */
#ifndef SL_REGISTRAR_RECOVER_H
#define SL_REGISTRAR_RECOVER_H

#include "actors/registrar/base/core.h"

/* Errors: SL_ERR_NO_MEMORY, and those of the notes' restore (struct reg_blob). */
sl_err reg_recover(struct registrar *self, struct sl_error *why);

#endif
