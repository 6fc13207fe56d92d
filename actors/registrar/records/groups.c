/* actors/registrar/records/groups.c - blocks being written: their table, and how they end. */
#include "actors/registrar/records/groups.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/fences.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

static sl_err groups_init(struct registrar *self, struct sl_error *why)
{
    uint32_t max = self->set.reservations_max;
    self->groups->all = calloc(max, sizeof(*self->groups->all));
    self->groups->free = calloc(max, sizeof(*self->groups->free));
    if (self->groups->all == NULL || self->groups->free == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "table of %u reservations", max);
    }
    return SL_OK;
}

static void groups_fini(struct registrar *self)
{
    free(self->groups->all);
    free(self->groups->free);
}

uint32_t reg_group_add(struct registrar *self, const struct reg_group *group, uint64_t deadline_ns)
{
    uint32_t slot;
    if (self->groups->free_count > 0) {
        slot = self->groups->free[--self->groups->free_count];
    } else if (self->groups->high < self->set.reservations_max) {
        slot = self->groups->high++;
    } else {
        return REG_NONE;
    }
    self->groups->all[slot] = *group;
    self->groups->all[slot].used = true;
    self->groups->found_count += group->found;
    self->groups->all[slot].claims = REG_NONE;
    self->groups->all[slot].hash = reg_unit_hash(self, group->ref);
    /* This word of the record is unused until the block is visible. */
    sl_index_links(self->index, group->ref)->newer = slot + 1;
    if (deadline_ns != SL_NEVER_NS) {
        sl_heap_set(&self->claims->timers, reg_group_timer(self, slot), deadline_ns);
    }
    return slot;
}

sl_err reg_group_make(struct registrar *self, const struct sl_group_want *want,
                      struct reg_group *group, uint32_t *slot)
{
    sl_err err = sl_index_group_create(self->index, want, &group->ref, NULL);
    *slot = err == SL_OK ? reg_group_add(self, group, want->deadline_ns) : REG_NONE;
    if (err == SL_OK && *slot == REG_NONE) {
        sl_index_group_drop(self->index, group->ref);
        sl_index_unlink(self->index, group->ref, SL_RECORD_FREE);
        err = SL_ERR_LIMIT;
    }
    return err;
}

void reg_group_remove(struct registrar *self, uint32_t slot)
{
    SL_ASSERT(self->groups->all[slot].used);
    sl_heap_clear(&self->claims->timers, reg_group_timer(self, slot));
    sl_index_links(self->index, self->groups->all[slot].ref)->newer = 0;
    self->groups->all[slot].used = false;
    self->groups->found_count -= self->groups->all[slot].found;
    self->groups->free[self->groups->free_count++] = slot;
}

uint32_t reg_group_slot(struct registrar *self, sl_ref ref)
{
    const struct sl_links *links = sl_index_links(self->index, ref);
    uint32_t slot = links->newer - 1;
    if ((links->flags & (REG_FLAG_HOT | REG_FLAG_COLD)) != 0 || links->newer == 0 ||
        slot >= self->groups->high || !self->groups->all[slot].used ||
        self->groups->all[slot].ref != ref) {
        return REG_NONE;
    }
    return slot;
}

/* ---- ends ---- */

void reg_group_abandon(struct registrar *self, uint32_t slot, enum reg_ghost_reason reason)
{
    sl_ref group = self->groups->all[slot].ref;
    struct reg_unit_parts parts;
    struct sl_entry entry;
    uint64_t from = self->retired->count;
    struct reg_drop how = {
        .reason = reason, .forget = true, .reported = self->groups->all[slot].found};
    sl_index_read(self->index, group, &entry);
    reg_ghost_add(self, entry.key, entry.key_length, reason);
    sl_index_group_drop(self->index, group);
    while (self->groups->all[slot].claims != REG_NONE) {
        reg_claim_quarantine(self, self->groups->all[slot].claims);
    }
    reg_unit_parts(self, group, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        if (reg_unit_part_drop(self, parts.refs[i], &how) != SL_OK) {
            /* The parts stay hidden; a restart removes them. */
            reg_log(self, SL_LOG_ERROR, 0,
                    "no memory to drop a block: its space is lost until a restart");
            reg_group_remove(self, slot);
            return;
        }
    }
    reg_group_remove(self, slot);
    sl_index_unlink(self->index, group, SL_RECORD_FREE);
    reg_retired_scan(self, from);
    sl_metric_add(self->env->metrics, self->claims->metric.expired_count,
                  reason == REG_GHOST_EXPIRED ? 1 : 0);
}

void reg_group_done(struct registrar *self, uint32_t slot)
{
    sl_ref group = self->groups->all[slot].ref;
    uint64_t hash = self->groups->all[slot].hash;
    struct sl_group_info info;
    SL_ASSERT(self->groups->all[slot].claims == REG_NONE);
    reg_group_remove(self, slot);
    sl_index_group_info(self->index, group, &info);
    reg_unit_committed(self, group, hash, &info);
}

/* ---- the part ---- */

static void groups_left(struct registrar *self, uint32_t peer)
{
    struct sl_proc_id proc = self->peers->all[peer].proc;
    for (uint32_t i = 0; i < self->groups->high; i++) {
        if (self->groups->all[i].used && !self->groups->all[i].found &&
            sl_proc_id_equal(self->groups->all[i].owner, proc)) {
            reg_group_abandon(self, i, REG_GHOST_EXPIRED);
        }
    }
}

/* Drops blocks whose owner is no longer among the processes. */
static void groups_recovered(struct registrar *self)
{
    for (uint32_t i = 0; i < self->groups->high; i++) {
        if (self->groups->all[i].used && !self->groups->all[i].found &&
            reg_peer_by_proc(self, self->groups->all[i].owner) == REG_NONE) {
            reg_group_abandon(self, i, REG_GHOST_EXPIRED);
        }
    }
}

static void groups_gauges(struct registrar *self)
{
    sl_metric_set(self->env->metrics, self->groups->metric.half_block_count,
                  self->groups->found_count);
}

static const struct sl_metric_row metrics[] = {REG_METRIC(reg_groups, half_block_count)};

const struct reg_part reg_groups_part = {
    .name = "groups",
    REG_STATE(groups, reg_groups),
    REG_METRICS(metrics),
    .gauges = groups_gauges,
    .init = groups_init,
    .fini = groups_fini,
    .recovered = groups_recovered,
    .left = groups_left,
};
