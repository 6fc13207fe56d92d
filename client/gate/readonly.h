/* client/gate/readonly.h - descriptors that nobody can open anew to write. */
#ifndef SL_CLIENT_GATE_READONLY_H
#define SL_CLIENT_GATE_READONLY_H

#include "runtime/sl_error.h"

/* From here on all file systems are read-only to this process, which must have one thread. What it opens
 * stays so in other processes: /proc/self/fd/N gives them no more either, whatever they may override
 * (CAP_DAC_OVERRIDE, the same user). Errors: SL_ERR_OS (no namespaces to be had here). */
sl_err readonly_enter(struct sl_error *why);
/* Whether it would work, tried in a process that ends with it. */
bool readonly_works(void);

#endif
