/* actors/registrar/records/leases.c - what eviction passes by: values that are leased or pinned.
 *
 * They stand in lists of their own, so that a search for victims does not meet the same refused
 * ones again and again: hard-pinned ones in `pinned`, soft-pinned ones in `soft`, and what was
 * found leased at the old end of `hot` in `leased`. A heap says when to look at those of the last
 * two again; a value whose lease was renewed meanwhile stays, others come back as the newest of
 * `hot`: a lease is a use. */
#include "actors/registrar/records/leases.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

#define DUES_FIRST   1024u
#define DUES_RUN_MAX 16384u /* looked at in one step */

/* ---- leases of units ---- */

uint64_t reg_unit_leased(struct registrar *self, sl_ref unit)
{
    struct reg_parts parts;
    uint64_t end_ns = 0;
    if (self->set.lease_ttl_ns == 0) {
        return 0;
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts.refs[i], &entry);
        uint64_t part_ns =
            entry.bundle != 0
                ? sl_index_bundle_lease_end(self->index, entry.bundle, self->env->now_ns)
                : sl_index_lease_end(self->index, parts.refs[i], self->env->now_ns);
        end_ns = SL_MAX(end_ns, part_ns);
    }
    return end_ns;
}

/* For parts up to count: opens what was shut. */
static void parts_unshut(struct registrar *self, const struct reg_parts *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_index_lease_unshut(self->index, parts->refs[i]);
    }
}

bool reg_unit_shut(struct registrar *self, sl_ref unit)
{
    struct reg_parts parts;
    struct sl_entry entry;
    if (self->set.lease_ttl_ns == 0) {
        return true;
    }
    sl_index_read(self->index, unit, &entry);
    if (entry.bundle != 0) {
        return sl_index_bundle_lease_shut(self->index, entry.bundle, self->env->now_ns);
    }
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        if (!sl_index_lease_shut(self->index, parts.refs[i], self->env->now_ns)) {
            parts_unshut(self, &parts, i);
            return false;
        }
    }
    return true;
}

void reg_unit_unshut(struct registrar *self, sl_ref unit)
{
    struct reg_parts parts;
    if (self->set.lease_ttl_ns != 0) {
        reg_unit_parts(self, unit, &parts);
        parts_unshut(self, &parts, parts.count);
    }
}

uint64_t reg_unit_bundle(struct registrar *self, sl_ref unit)
{
    struct sl_entry entry;
    if (self->bundles->count == 0) {
        return 0;
    }
    sl_index_read(self->index, unit, &entry);
    return entry.bundle;
}

/* ---- when to look again ---- */

static bool due_before(const struct reg_due *a, const struct reg_due *b)
{
    return a->at_ns < b->at_ns;
}

static void dues_sink(struct reg_dues *all, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < all->count && due_before(&all->heap[child + 1], &all->heap[child])) {
            child++;
        }
        if (child >= all->count || !due_before(&all->heap[child], &all->heap[at])) {
            return;
        }
        struct reg_due swap = all->heap[at];
        all->heap[at] = all->heap[child];
        all->heap[child] = swap;
        at = child;
    }
}

static bool due_add(struct registrar *self, struct reg_due due)
{
    struct reg_dues *all = self->dues;
    if (all->count == all->capacity) {
        uint32_t capacity = SL_MAX(all->capacity * 2, DUES_FIRST);
        struct reg_due *grown =
            all->capacity > UINT32_MAX / 2 ? NULL : realloc(all->heap, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        all->heap = grown;
        all->capacity = capacity;
    }
    uint32_t at = all->count++;
    all->heap[at] = due;
    while (at > 0 && due_before(&all->heap[at], &all->heap[(at - 1) / 2])) {
        struct reg_due swap = all->heap[at];
        all->heap[at] = all->heap[(at - 1) / 2];
        all->heap[(at - 1) / 2] = swap;
        at = (at - 1) / 2;
    }
    return true;
}

static struct reg_due dues_take(struct reg_dues *all)
{
    struct reg_due due = all->heap[0];
    all->heap[0] = all->heap[--all->count];
    dues_sink(all, 0);
    return due;
}

bool reg_due_note(struct registrar *self, sl_ref unit, uint64_t at_ns)
{
    struct sl_entry entry;
    sl_index_read(self->index, unit, &entry);
    if (entry.hard_pin) {
        return true; /* until it is removed */
    }
    return due_add(self, (struct reg_due){.at_ns = at_ns, .version = entry.version, .ref = unit});
}

void reg_unit_aside(struct registrar *self, sl_ref unit, uint64_t until_ns)
{
    uint16_t flags = sl_index_links(self->index, unit)->flags & REG_FLAG_KEPT_LISTS;
    if (flags == REG_FLAG_HOT && reg_due_note(self, unit, until_ns)) {
        reg_unit_move(self, unit, REG_FLAG_KEPT_LISTS);
    }
}

/* Until when the unit is passed by; 0: it is not, or is no such unit any more. */
static uint64_t due_again(struct registrar *self, const struct reg_due *due)
{
    struct sl_entry entry;
    if (!sl_index_ref_live(self->index, due->ref)) {
        return 0;
    }
    sl_index_read(self->index, due->ref, &entry);
    uint16_t flags = sl_index_links(self->index, due->ref)->flags & REG_FLAG_KEPT_LISTS;
    if (entry.version != due->version || flags != REG_FLAG_KEPT_LISTS || entry.hard_pin) {
        return 0;
    }
    uint64_t until_ns = entry.soft_pin_end_ns > self->env->now_ns ? entry.soft_pin_end_ns
                                                                  : reg_unit_leased(self, due->ref);
    if (until_ns == 0) {
        reg_unit_move(self, due->ref, REG_FLAG_HOT);
        self->space.freed = self->space.freed || self->space.parked_count > 0; /* it may be now */
    }
    return until_ns;
}

void reg_dues_run(struct registrar *self)
{
    struct reg_dues *all = self->dues;
    for (uint32_t i = 0;
         i < DUES_RUN_MAX && all->count > 0 && all->heap[0].at_ns <= self->env->now_ns; i++) {
        struct reg_due due = dues_take(all);
        uint64_t until_ns = due_again(self, &due);
        if (until_ns != 0) {
            due.at_ns = until_ns;
            (void)due_add(self, due); /* the place of the one taken */
        }
    }
}

static void leases_fini(struct registrar *self)
{
    free(self->dues->heap);
}

/* ---- the part ---- */

const struct reg_part reg_leases_part = {
    .name = "leases",
    REG_STATE(dues, reg_dues),
    .fini = leases_fini,
    .tick = {REG_TICK_LEASES, reg_dues_run},
};
