/* actors/registrar/memory/charges.c - charges extents to contributions: takes and frees them,
 * removes the values of contributions that ended, and evicts above a watermark.
 *
 * Invariant: a contribution's used bytes are the space of all extents whose records have its
 * number, records of every kind. Code that frees an extent or moves it to another record updates
 * the charge here. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/groups.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

#define CHARGE_ROUNDS_MAX 4096u
#define CHARGE_QUIET_MAX  8u
/* Records per slice of the walk. */
#define WALK_RECORDS  2048u
#define WALK_AGAIN_NS (100 * SL_NS_PER_MS)
#define RATIO_ONE     1000000.0
#define BIT(number)   (UINT64_C(1) << (number))

/* ---- sums ---- */

static void charge_count(struct registrar *self, uint32_t charged, uint64_t space_bytes)
{
    if (charged != 0) {
        self->contributions->all[charged - 1].used_bytes += space_bytes;
        self->contributions->all[charged - 1].value_count++;
    }
}

static void uncharge(struct registrar *self, uint32_t charged, uint64_t space_bytes)
{
    if (charged == 0) {
        return;
    }
    struct reg_contribution *at = &self->contributions->all[charged - 1];
    SL_ASSERT(at->used_bytes >= space_bytes);
    SL_ASSERT(at->value_count > 0);
    at->used_bytes -= space_bytes;
    at->value_count--;
    self->space.freed = true;
    reg_contribution_free_if_empty(self, charged - 1);
}

uint32_t reg_charge_of(const struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    if (!self->contributions->on) {
        return 0;
    }
    sl_index_read(self->index, ref, &entry);
    return entry.contribution;
}

void reg_charge_set(struct registrar *self, sl_ref ref, uint32_t charged)
{
    if (self->contributions->on) {
        bool noted = sl_index_set_contribution(self->index, ref, charged);
        SL_ASSERT(noted); /* the record was made with a field for it */
    }
}

static bool stands(const struct registrar *self, uint32_t charged)
{
    return charged != 0 && (self->contributions->active & BIT(charged - 1)) != 0;
}

/* Uncharges a record whose extent is about to be freed, or whose contribution ended. */
static void charge_end(struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    if (!self->contributions->on) {
        return;
    }
    sl_index_read(self->index, ref, &entry);
    if (entry.contribution != 0) {
        reg_charge_set(self, ref, 0);
        uncharge(self, entry.contribution, sl_extent_space(entry.extent.length_bytes));
    }
}

uint64_t reg_ceiling_bytes(const struct registrar *self)
{
    return SL_MIN(self->space.contributed_bytes, sl_arena_data_bytes(self->arena));
}

uint64_t reg_used_bytes(const struct registrar *self)
{
    const struct reg_contributions *all = self->contributions;
    uint64_t used_bytes = 0;
    if (!all->on) {
        struct sl_alloc_stats stats;
        sl_alloc_stats(self->alloc, &stats);
        return stats.used_bytes;
    }
    for (uint64_t left = all->active; left != 0; left &= left - 1) {
        used_bytes += all->all[__builtin_ctzll(left)].used_bytes;
    }
    return used_bytes;
}

/* ---- choosing ---- */

static uint64_t room_of(const struct registrar *self, uint32_t number)
{
    const struct reg_contribution *at = &self->contributions->all[number];
    return at->length_bytes - SL_MIN(at->used_bytes, at->length_bytes);
}

/* 1 + the number of the contribution with the largest free share that has room; 0: none. */
static uint32_t emptiest(const struct registrar *self, uint64_t space_bytes)
{
    uint32_t best = 0;
    double best_share = -1;
    for (uint64_t left = self->contributions->active; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(left);
        uint64_t room = room_of(self, number);
        double share = (double)room / (double)self->contributions->all[number].length_bytes;
        if (room >= space_bytes && share > best_share) {
            best = 1 + number;
            best_share = share;
        }
    }
    return best;
}

/* Charges space_bytes to a contribution with room: the first that wish (or NULL) prefers, else the
 * emptiest. Without contributions *charged is 0. Evicts nothing. Errors: SL_ERR_NO_SPACE. */
static sl_err charge(struct registrar *self, const struct reg_preferences *wish,
                     uint64_t space_bytes, uint32_t *charged)
{
    *charged = 0;
    if (!self->contributions->on) {
        return SL_OK;
    }
    for (uint32_t i = 0; wish != NULL && *charged == 0 && i < wish->count; i++) {
        const struct reg_preferred *at = &wish->preferred[i];
        bool meant = stands(self, 1u + at->number) &&
                     self->contributions->all[at->number].serial == at->serial;
        *charged = meant && room_of(self, at->number) >= space_bytes ? 1u + at->number : 0;
    }
    *charged = *charged != 0 ? *charged : emptiest(self, space_bytes);
    charge_count(self, *charged, space_bytes);
    return *charged != 0 ? SL_OK : SL_ERR_NO_SPACE;
}

/* ---- taking ---- */

uint64_t reg_charge_largest(const struct registrar *self)
{
    uint64_t largest = 0;
    for (uint64_t left = self->contributions->active; left != 0; left &= left - 1) {
        largest = SL_MAX(largest, self->contributions->all[__builtin_ctzll(left)].length_bytes);
    }
    return self->contributions->on ? largest : UINT64_MAX;
}

static int by_space_falling(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a < b) - (a > b);
}

/* First fit, largest values first. It may miss a solution, but actual charges are chosen less
 * carefully still. */
bool reg_charge_fits_all(const struct registrar *self, uint64_t *spaces, uint32_t count)
{
    uint64_t rooms[64];
    uint32_t room_count = 0;
    if (!self->contributions->on) {
        return true;
    }
    for (uint64_t left = self->contributions->active; left != 0; left &= left - 1) {
        rooms[room_count++] = self->contributions->all[__builtin_ctzll(left)].length_bytes;
    }
    qsort(spaces, count, sizeof(*spaces), by_space_falling);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < room_count && rooms[at] < spaces[i]) {
            at++;
        }
        if (at == room_count) {
            return false;
        }
        rooms[at] -= spaces[i];
    }
    return true;
}

static uint64_t room_largest(const struct registrar *self)
{
    uint64_t largest = 0;
    for (uint64_t left = self->contributions->active; left != 0; left &= left - 1) {
        largest = SL_MAX(largest, room_of(self, (uint32_t)__builtin_ctzll(left)));
    }
    return largest;
}

/* Evicted values are charged to various contributions, so it evicts until one has room. */
static sl_err charge_evicting(struct registrar *self, const struct reg_preferences *wish,
                              uint64_t space_bytes, uint32_t *charged)
{
    sl_err err = charge(self, wish, space_bytes, charged);
    if (err == SL_OK || reg_charge_largest(self) < space_bytes) {
        return err;
    }
    reg_retired_scan(self, 0);
    reg_accesses_drain(self);
    for (uint32_t i = 0; i < CHARGE_ROUNDS_MAX; i++) {
        err = charge(self, wish, space_bytes, charged);
        if (err == SL_OK || reg_evict(self, space_bytes - room_largest(self)) == 0) {
            break;
        }
    }
    return err == SL_OK ? err : charge(self, wish, space_bytes, charged);
}

sl_err reg_take_charged(struct registrar *self, const struct reg_preferences *wish,
                        uint64_t length_bytes, uint64_t *offset_bytes, uint32_t *charged)
{
    uint64_t space = sl_extent_space(length_bytes);
    sl_err err = charge_evicting(self, wish, space, charged);
    if (err != SL_OK) {
        return err;
    }
    err = reg_take(self, length_bytes, offset_bytes);
    if (err != SL_OK) {
        uncharge(self, *charged, space);
        *charged = 0;
    }
    return err;
}

sl_err reg_take_charged_for_prefetch(struct registrar *self, uint64_t length_bytes,
                                     uint64_t batch_bytes, uint64_t *offset_bytes,
                                     uint32_t *charged)
{
    uint64_t space = sl_extent_space(length_bytes);
    sl_err err = charge(self, NULL, space, charged);
    for (uint32_t i = 0; err != SL_OK && i < CHARGE_QUIET_MAX; i++) {
        uint64_t room = room_largest(self);
        if (reg_charge_largest(self) < space ||
            reg_evict_for_prefetch(self, SL_MAX(space, batch_bytes) - SL_MIN(room, space - 1)) ==
                0) {
            return err;
        }
        err = charge(self, NULL, space, charged);
    }
    if (err != SL_OK) {
        return err;
    }
    err = reg_take_for_prefetch(self, length_bytes, batch_bytes, offset_bytes);
    if (err != SL_OK) {
        uncharge(self, *charged, space);
        *charged = 0;
    }
    return err;
}

void reg_give_charged(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes,
                      uint32_t charged)
{
    uncharge(self, charged, sl_extent_space(length_bytes));
    reg_give(self, offset_bytes, length_bytes);
}

bool reg_charge_room(struct registrar *self, uint64_t want_bytes)
{
    if (!self->contributions->on) {
        return true;
    }
    uint64_t ceiling = reg_ceiling_bytes(self);
    for (uint32_t i = 0; i < CHARGE_ROUNDS_MAX; i++) {
        uint64_t used = reg_used_bytes(self);
        uint64_t room = ceiling - SL_MIN(used, ceiling);
        if (room >= want_bytes) {
            return true;
        }
        if (reg_evict(self, want_bytes - room) == 0) {
            return false;
        }
    }
    return false;
}

sl_err reg_charge_check(const struct registrar *self, sl_ref ref)
{
    return !self->contributions->on || stands(self, reg_charge_of(self, ref)) ? SL_OK
                                                                              : SL_ERR_NO_SPACE;
}

/* ---- restart ---- */

void reg_charge_recover(struct registrar *self, sl_ref ref)
{
    struct reg_contributions *all = self->contributions;
    struct sl_entry entry;
    sl_index_read(self->index, ref, &entry);
    uint64_t bit = entry.contribution == 0 || entry.contribution > REG_CONTRIBUTIONS_MAX
                       ? 0
                       : BIT(entry.contribution - 1);
    bool known = entry.extent.generation != 0 && (bit & (all->active | all->ending)) != 0;
    if (!known && entry.contribution != 0) {
        reg_charge_set(self, ref, 0);
    }
    charge_count(self, known ? entry.contribution : 0, sl_extent_space(entry.extent.length_bytes));
    all->again_ns = known ? all->again_ns : 0;
}

/* ---- values of ended contributions ---- */

/* Removes the value from memory. False: not possible now. */
static bool value_leave(struct registrar *self, const struct sl_entry *entry, uint32_t serial)
{
    static const struct sl_extent nowhere = {0};
    sl_ref unit = reg_unit_of(entry);
    sl_ref fresh = 0;
    if ((sl_index_links(self->index, entry->ref)->flags & REG_FLAG_WRITING) != 0) {
        return false; /* soon it is on disk, and stays there */
    }
    if (!reg_is_on_disk(self, entry)) {
        struct reg_drop how = {.reason = REG_GHOST_CONTRIBUTION, .forget = true};
        self->ghosts->telling = serial;
        sl_err err = reg_unit_drop(self, unit, &how);
        self->ghosts->telling = 0;
        return err == SL_OK;
    }
    if (reg_record_switch(self, entry->ref, &nowhere, NULL, &fresh) != SL_OK) {
        (void)reg_make_index_room(self);
        return false;
    }
    bool pending = entry->group != 0 && reg_group_slot(self, unit) != REG_NONE;
    if (!pending) {
        reg_unit_place(self, entry->group != 0 ? unit : fresh);
    }
    return true;
}

/* Removes what no existing contribution pays for: values leave memory, a claim is refused at its
 * COMMIT, the rest is freed soon. */
static void walk_record(struct registrar *self, const struct sl_entry *entry)
{
    struct reg_contributions *all = self->contributions;
    bool extent = entry->kind == SL_RECORD_RESERVED || entry->kind == SL_RECORD_COMMITTED ||
                  entry->kind == SL_RECORD_RETIRED || entry->kind == SL_RECORD_QUARANTINED ||
                  entry->kind == SL_RECORD_PROMOTING;
    if (!extent || entry->extent.generation == 0 || stands(self, entry->contribution)) {
        return;
    }
    if (entry->kind != SL_RECORD_COMMITTED) {
        all->some_left |= entry->contribution != 0;
        charge_end(self, entry->ref);
        return;
    }
    all->some_left = true;
    uint32_t serial = entry->contribution == 0 ? 0 : all->all[entry->contribution - 1].serial;
    all->some_stayed |= !value_leave(self, entry, serial);
}

/* Walks a slice of the records for values of ended contributions. The walk repeats until it finds
 * none, since records move meanwhile. */
static void charges_walk(struct registrar *self)
{
    struct reg_contributions *all = self->contributions;
    if (!all->on || (!all->walking && self->env->now_ns < all->again_ns)) {
        return;
    }
    if (!all->walking) {
        all->walking = true;
        all->cursor = 0;
        all->some_left = all->some_stayed = false;
        all->again_ns = SL_NEVER_NS;
    }
    uint64_t from = self->retired->count;
    struct sl_entry entry;
    bool more = true;
    for (uint32_t i = 0; i < WALK_RECORDS && more; i++) {
        more = sl_index_walk(self->index, &all->cursor, &entry);
        if (more) {
            walk_record(self, &entry);
        }
    }
    reg_retired_scan(self, from);
    if (!more) {
        all->walking = false;
        uint64_t pause_ns = all->some_stayed ? WALK_AGAIN_NS : 0;
        if (all->some_left || all->ending != 0) {
            all->again_ns = SL_MIN(all->again_ns, sl_deadline_ns(self->env->now_ns, pause_ns));
        }
    }
}

/* ---- the watermark ---- */

/* Above evict_watermark, evicts a slice each turn until use is down by evict_ratio. */
static void watermark_run(struct registrar *self)
{
    double ceiling = (double)reg_ceiling_bytes(self);
    double high = (double)self->contributions->watermark_ppm / RATIO_ONE;
    double low = high - SL_MIN(high, (double)self->contributions->ratio_ppm / RATIO_ONE);
    if (self->contributions->watermark_ppm >= (uint64_t)RATIO_ONE || ceiling == 0) {
        self->contributions->lowering = false; /* uncharged values leave by themselves */
        return;
    }
    if (!self->contributions->lowering && self->env->now_ns < self->contributions->lower_again_ns) {
        return;
    }
    double used = (double)reg_used_bytes(self);
    self->contributions->lowering = used > (self->contributions->lowering ? low : high) * ceiling;
    reg_protect_recent(self, 0);
    if (self->contributions->lowering &&
        reg_evict(self, SL_MAX((uint64_t)(used - low * ceiling), UINT64_C(1))) == 0) {
        self->contributions->lowering = false; /* nothing can leave now */
        self->contributions->lower_again_ns = sl_deadline_ns(self->env->now_ns, WALK_AGAIN_NS);
    }
    reg_protect_none(self);
}

/* ---- the part ---- */

/* The old record keeps the charge of the old extent while it exists. */
static void charges_switched(struct registrar *self, const struct reg_switched *what)
{
    if (what->extent != NULL) {
        reg_charge_set(self, what->fresh, 0);
    }
}

static void charges_after(struct registrar *self)
{
    charges_walk(self);
    watermark_run(self);
}

static uint64_t charges_next(const struct registrar *self)
{
    return self->contributions->lowering ? self->env->now_ns : SL_NEVER_NS;
}

const struct reg_part reg_charges_part = {
    .name = "charges",
    .after = charges_after,
    .next_ns = charges_next,
    .switched = charges_switched,
    .freed = charge_end,
};
