/* actors/registrar/memory/whole.h - detects shm files that another process truncated. */
#ifndef SL_REGISTRAR_MEMORY_WHOLE_H
#define SL_REGISTRAR_MEMORY_WHOLE_H

#include "actors/registrar/base/core.h"

/* Called before any file is opened. If a file of the node's memory is shorter than it was made, it
 * removes arena, index and leases, and pin files that are short, and kills the other actors, which
 * are started again. Values in memory only are lost, which is logged. Pin files count because an
 * unreadable one may pin anything. */
void reg_memory_recreate_if_cut(struct registrar *self);
/* Returns SL_ERR_INTERNAL, after logging, if a file has become short. The registrar must end then:
 * no value in such memory would be safe. Costs a system call per file. */
sl_err reg_memory_check_sizes(struct registrar *self);

#endif
