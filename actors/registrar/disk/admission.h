/* actors/registrar/disk/admission.h - decides which committed units are written to disk: all, those
 * likely to be wanted again, or those wanted twice, within the daily write budget of the disks.
 *
 * A refused unit exists only in memory and may be evicted without a copy on disk. It is
 * reconsidered when it is wanted again. Some units are never refused: those that a FLUSH waits for,
 * that a hand-over holds, or that were put with a pin or in a bundle. */
#ifndef SL_REGISTRAR_DISK_ADMISSION_H
#define SL_REGISTRAR_DISK_ADMISSION_H

#include "actors/registrar/base/core.h"

enum reg_admission_how { REG_ADMIT_ALL, REG_ADMIT_REUSE, REG_ADMIT_SECOND };
#define REG_ADMISSION_BINS 64u

struct reg_admission {
    enum reg_admission_how how;
    double chance_min;
    sl_ref *refused; /* units; some of them may no longer be refused */
    uint32_t count, capacity;
    /* statistics of the units offered lately */
    double unit_bytes, part_bytes;         /* means; 0: no unit yet */
    uint32_t seen_count;                   /* units in the bins; halved with them */
    double seen_bytes[REG_ADMISSION_BINS]; /* by the chance of reuse */
    struct {
        sl_metric not_written_count, not_written_bytes, written_later_count, over_budget_count;
    } metric;
};

/* Queues a unit for writing or refuses it. Called when the unit is committed, or found in memory
 * after a restart. */
void reg_admission_offer(struct registrar *self, sl_ref unit);
/* Queues all refused units for writing. */
void reg_admission_admit_all(struct registrar *self);
/* Share (0 to 1) of the offered bytes that the budget admits now, the likeliest to be reused
 * first. */
double reg_admission_share(const struct registrar *self);

extern const struct reg_part reg_admission_part;

#endif
