/* actors/registrar/memory/whole.h - shared memory that another process cut short. */
#ifndef SL_REGISTRAR_MEMORY_WHOLE_H
#define SL_REGISTRAR_MEMORY_WHOLE_H

#include "actors/registrar/base/core.h"

/* Before anything is opened: where a file of the node's memory is shorter than it was made, arena,
 * index and leases are removed, to be made anew, and so are pin segments that are short; the other
 * actors are killed, to be started again. What was in memory alone is lost; said in the log. Pins
 * count: those of a process that cannot be read may be any. */
void reg_memory_renew(struct registrar *self);
/* SL_ERR_INTERNAL, and said in the log: a file became short since. The registrar has to end, since
 * nothing that it would give room for could be relied on. Costs a system call for each file. */
sl_err reg_memory_check(struct registrar *self);

#endif
