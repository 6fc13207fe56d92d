/* actors/registrar/records/groups.h - blocks being written. */
#ifndef SL_REGISTRAR_RECORDS_GROUPS_H
#define SL_REGISTRAR_RECORDS_GROUPS_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/records/ghosts.h"

struct reg_group {
    bool used;
    bool found;   /* found by a disk scan: it has no owner */
    bool aborted; /* the owner gave up a part: the block is dropped when its last claim ends */
    sl_ref ref;
    uint64_t hash; /* of its key */
    struct sl_proc_id owner;
    uint64_t op_id, seq;
    uint64_t parts[REG_PARTS_MAX / 64]; /* part indexes that are claimed or filled */
    uint32_t claims;                    /* first of its live claims */
};
static inline bool reg_group_has(const struct reg_group *group, uint64_t part)
{
    return (group->parts[part / 64] >> (part % 64) & 1) != 0;
}
static inline void reg_group_mark(struct reg_group *group, uint64_t part, bool there)
{
    uint64_t bit = UINT64_C(1) << (part % 64);
    group->parts[part / 64] =
        there ? group->parts[part / 64] | bit : group->parts[part / 64] & ~bit;
}

struct reg_groups {
    struct reg_group *all;
    uint32_t high;
    uint32_t *free;
    uint32_t free_count, found_count;
    struct {
        sl_metric half_block_count;
    } metric;
};

uint32_t reg_group_add(struct registrar *self, const struct reg_group *group,
                       uint64_t deadline_ns); /* REG_NONE: full */
/* Also makes the record, group->ref. Errors: of sl_index_group_create, SL_ERR_LIMIT (full). */
sl_err reg_group_make(struct registrar *self, const struct sl_group_want *want,
                      struct reg_group *group, uint32_t *slot);
void reg_group_remove(struct registrar *self, uint32_t slot); /* keeps the record */
/* The slot of a GROUP record; REG_NONE: the block is not being written. */
uint32_t reg_group_slot(struct registrar *self, sl_ref ref);
static inline uint32_t reg_group_timer(const struct registrar *self, uint32_t slot)
{
    return self->set.reservations_max + slot;
}
/* Ends a block that is being written: its parts are dropped and its claims quarantined. */
void reg_group_abandon(struct registrar *self, uint32_t slot, enum reg_ghost_reason reason);
/* The block's last part was committed: makes it a unit. */
void reg_group_done(struct registrar *self, uint32_t slot);

extern const struct reg_part reg_groups_part;

#endif
