/* ipc/sl_huge.h - whether shared memory can have huge pages. The arena asks for them
 * (MADV_HUGEPAGE); whether it gets them depends on how its file system is mounted and on the
 * system's policy. */
#ifndef SL_HUGE_H
#define SL_HUGE_H

#include "runtime/sl_base.h"

#define SL_HUGE_TEXT_BYTES 128u

/* Whether files in this directory get huge pages when they ask. `why` says so, or why not, for a
 * log line. */
bool sl_huge_pages(const char *directory, char why[SL_HUGE_TEXT_BYTES]);

/* The same from the system's texts: that of /proc/self/mountinfo, the device of the
 * directory, and the text of .../transparent_hugepage/shmem_enabled ("" when there is none). */
struct sl_huge_facts {
    const char *mounts;
    const char *policy;
    uint32_t device_major, device_minor;
};
bool sl_huge_from(const struct sl_huge_facts *facts, char why[SL_HUGE_TEXT_BYTES]);

#endif
