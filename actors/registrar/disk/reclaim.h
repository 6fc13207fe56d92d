/* actors/registrar/disk/reclaim.h - the oldest segment of a disk goes. */
#ifndef SL_REGISTRAR_DISK_RECLAIM_H
#define SL_REGISTRAR_DISK_RECLAIM_H

#include "actors/registrar/base/core.h"

struct reg_reclaim { /* the oldest segment of a disk goes, when what is kept of it is in memory */
    bool active;
    uint32_t segment;
    struct sl_return back;
    uint64_t until_ns;
    uint32_t number;    /* of this one, never 0 */
    uint32_t left;      /* values that are on their way */
    uint32_t held_left; /* values that a hand-over holds and that are not in memory yet */
};

void reg_reclaim_forget(struct registrar *self, uint32_t disk); /* its tierer died */
/* A value that the reclaim of this number waited for has come, or will not. held: it has, and is
 * held. */
void reg_reclaim_read(struct registrar *self, uint32_t disk, uint32_t number, bool held);
bool reg_reclaim_waits(const struct registrar *self, uint32_t disk, uint32_t number);

extern const struct reg_part reg_reclaim_part;

#endif
