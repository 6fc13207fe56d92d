/* ipc/shm/sl_huge.h - whether shared memory can have huge pages. The arena requests them
 * (MADV_HUGEPAGE); the mount options of its file system and the system's policy decide. */
#ifndef SL_HUGE_H
#define SL_HUGE_H

#include "runtime/base/sl_base.h"

#include <stdio.h>
#include <sys/types.h>

#define SL_HUGE_TEXT_BYTES 128u

/* Whether files in this directory get huge pages on request. `why` receives the explanation for a
 * log line. */
bool sl_huge_pages(const char *directory, char why[SL_HUGE_TEXT_BYTES]);

/* The same, from the system's texts: /proc/self/mountinfo (NULL: not readable), the line of
 * .../transparent_hugepage/shmem_enabled ("": none), and the device of the directory. */
bool sl_huge_from(FILE *mounts, const char *policy, dev_t device, char why[SL_HUGE_TEXT_BYTES]);

#endif
