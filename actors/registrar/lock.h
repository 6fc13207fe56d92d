/* actors/registrar/lock.h - the lock that admits one registrar per node. */
#ifndef SL_REGISTRAR_LOCK_H
#define SL_REGISTRAR_LOCK_H

#include "actors/registrar/base/core.h"

/* Takes RUNTIME_DIR/registrar.lock, waiting 2 s at most. Errors: SL_ERR_BUSY, SL_ERR_OS. */
sl_err reg_lock_take(const char *runtime_dir, int *fd, struct sl_error *why);

#endif
