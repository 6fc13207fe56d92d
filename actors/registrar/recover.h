/* actors/registrar/recover.h - a new registrar learns everything from the records of the index. */
#ifndef SL_REGISTRAR_RECOVER_H
#define SL_REGISTRAR_RECOVER_H

#include "actors/registrar/base/core.h"

sl_err reg_recover(struct registrar *self, struct sl_error *why);

#endif
