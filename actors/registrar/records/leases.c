/* actors/registrar/records/leases.c - units that eviction skips since they are leased or pinned.
 *
 * They are in lists of their own, so that a search for victims does not meet them again and again:
 * hard-pinned units in `pinned`, soft-pinned ones in `soft`, and units found leased at the old end
 * of `hot` in `leased`. A heap says when to check units of the last two again. A unit whose lease
 * was renewed stays; others return as the newest of `hot`, since a lease is a use. */
#include "actors/registrar/records/leases.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/units.h"

#define DUES_RUN_MAX 16384u /* checked in one step */

/* ---- leases of units ---- */

/* The block's record if lookups may hold it; 0: another kind of unit, or block leases are off. */
static sl_ref held_block(const struct registrar *self, sl_ref unit)
{
    bool may = self->set.leases.block_ns != 0;
    return may && sl_index_kind(self->index, unit) == SL_RECORD_GROUP ? unit : 0;
}

/* A client that knows the keys of parts can lease these as objects. */
uint64_t reg_unit_leased(struct registrar *self, sl_ref unit)
{
    struct reg_unit_parts parts;
    sl_ref block = held_block(self, unit);
    uint64_t end_ns = block != 0 ? sl_index_lease_end(self->index, block, self->env->now_ns) : 0;
    if (self->set.leases.object_ns == 0) {
        return end_ns;
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_stay stay;
        sl_index_stay(self->index, parts.refs[i], &stay);
        uint64_t part_ns =
            stay.bundle != 0
                ? sl_index_bundle_lease_end(self->index, stay.bundle, self->env->now_ns)
                : sl_index_lease_end(self->index, parts.refs[i], self->env->now_ns);
        end_ns = SL_MAX(end_ns, part_ns);
    }
    return end_ns;
}

/* Reopens the first count parts. */
static void parts_reopen(struct registrar *self, const struct reg_unit_parts *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_index_lease_reopen(self->index, parts->refs[i]);
    }
}

static void block_reopen(struct registrar *self, sl_ref block)
{
    if (block != 0) {
        sl_index_lease_reopen(self->index, block);
    }
}

bool reg_unit_lease_close(struct registrar *self, sl_ref unit)
{
    struct reg_unit_parts parts;
    struct sl_stay stay;
    sl_ref block = held_block(self, unit);
    if (block != 0 && !sl_index_lease_close(self->index, block, self->env->now_ns)) {
        return false;
    }
    if (self->set.leases.object_ns == 0) {
        return true;
    }
    sl_index_stay(self->index, unit, &stay);
    if (stay.bundle != 0) {
        return sl_index_bundle_lease_close(self->index, stay.bundle, self->env->now_ns);
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        if (!sl_index_lease_close(self->index, parts.refs[i], self->env->now_ns)) {
            parts_reopen(self, &parts, i);
            block_reopen(self, block);
            return false;
        }
    }
    return true;
}

void reg_unit_lease_reopen(struct registrar *self, sl_ref unit)
{
    struct reg_unit_parts parts;
    block_reopen(self, held_block(self, unit));
    if (self->set.leases.object_ns != 0) {
        reg_unit_parts(self, unit, &parts);
        parts_reopen(self, &parts, parts.count);
    }
}

uint64_t reg_unit_bundle(struct registrar *self, sl_ref unit)
{
    struct sl_stay stay;
    if (self->bundles->by_ref.count == 0) {
        return 0;
    }
    sl_index_stay(self->index, unit, &stay);
    return stay.bundle;
}

/* ---- when to check again ---- */

bool reg_lease_check_at(struct registrar *self, sl_ref unit, uint64_t at_ns)
{
    struct sl_entry entry;
    sl_index_read(self->index, unit, &entry);
    if (entry.hard_pin) {
        return true; /* until it is removed */
    }
    struct sl_heap_item due = {.at_ns = at_ns, .cookie = entry.version, .id = unit};
    return sl_heap_add(&self->lease_ends->heap, due) == SL_OK;
}

void reg_unit_skip_until(struct registrar *self, sl_ref unit, uint64_t until_ns)
{
    uint16_t flags = sl_index_links(self->index, unit)->flags & REG_FLAG_SKIPPED_LISTS;
    if (flags == REG_FLAG_HOT && reg_lease_check_at(self, unit, until_ns)) {
        reg_unit_move(self, unit, REG_FLAG_SKIPPED_LISTS);
    }
}

/* Until when the unit is skipped; 0: it is not, or is no longer such a unit. */
static uint64_t due_again(struct registrar *self, const struct sl_heap_item *due)
{
    struct sl_entry entry;
    if (!sl_index_ref_live(self->index, due->id)) {
        return 0;
    }
    sl_index_read(self->index, due->id, &entry);
    uint16_t flags = sl_index_links(self->index, due->id)->flags & REG_FLAG_SKIPPED_LISTS;
    if (entry.version != due->cookie || flags != REG_FLAG_SKIPPED_LISTS || entry.hard_pin) {
        return 0;
    }
    uint64_t until_ns = entry.soft_pin_end_ns > self->env->now_ns ? entry.soft_pin_end_ns
                                                                  : reg_unit_leased(self, due->id);
    if (until_ns == 0) {
        reg_unit_move(self, due->id, REG_FLAG_HOT);
        /* It can be evicted now. */
        self->space.freed = self->space.freed || self->space.waiting_count > 0;
    }
    return until_ns;
}

void reg_leases_check(struct registrar *self)
{
    struct sl_heap *all = &self->lease_ends->heap;
    struct sl_heap_item due;
    for (uint32_t i = 0; i < DUES_RUN_MAX && sl_heap_pop(all, self->env->now_ns, &due); i++) {
        uint64_t until_ns = due_again(self, &due);
        if (until_ns != 0) {
            due.at_ns = until_ns;
            (void)sl_heap_add(all, due); /* fits: one entry was just removed */
        }
    }
}

static void leases_fini(struct registrar *self)
{
    sl_heap_fini(&self->lease_ends->heap);
}

/* ---- the part ---- */

const struct reg_part reg_leases_part = {
    .name = "leases",
    REG_STATE(lease_ends, reg_lease_ends),
    .fini = leases_fini,
    .tick = reg_leases_check,
};
