/* actors/registrar/disk/admission.h - what goes to disk: all, what is likely to be wanted again, or
 * what was wanted twice; and no more than the disks may be written a day.
 *
 * A unit that is refused is in memory alone, may leave it without a copy, and is looked at again
 * when somebody wants it. Nothing is refused that was promised: what a FLUSH waits for, what a
 * hand-over holds, and what was put with a pin or in a bundle. */
#ifndef SL_REGISTRAR_DISK_ADMISSION_H
#define SL_REGISTRAR_DISK_ADMISSION_H

#include "actors/registrar/base/core.h"

enum reg_admission_how { REG_ADMIT_ALL, REG_ADMIT_REUSE, REG_ADMIT_SECOND };
#define REG_ADMISSION_BINS 64u

struct reg_admission {
    enum reg_admission_how how;
    double chance_min;
    sl_ref *refused; /* units, some of which are not refused any more */
    uint32_t count, capacity;
    /* what came lately */
    double unit_bytes, part_bytes;         /* mean, 0: nothing yet */
    uint32_t seen_count;                   /* since the bins were halved */
    double seen_bytes[REG_ADMISSION_BINS]; /* by how likely they are to be wanted */
    struct {
        sl_metric not_written_count, not_written_bytes, written_later_count, over_budget_count;
    } metric;
};

/* A unit came to memory, or was found there after a restart: to the queue of what is to be written,
 * or refused. */
void reg_admission_offer(struct registrar *self, sl_ref unit);
/* All that was refused is to be written. */
void reg_admission_take_all(struct registrar *self);
/* Of what may be written now, by the best first: 1 is all. */
double reg_admission_share(const struct registrar *self);

extern const struct reg_part reg_admission_part;

#endif
