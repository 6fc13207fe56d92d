/* actors/registrar/memory/charges.c - who is charged with which extent: taking, giving back, what
 * becomes of it when a contribution ends, and eviction above a watermark.
 *
 * Invariant: what a contribution has used is the space of all extents in whose records its bit
 * stands, records of every kind. Whoever frees an extent, or hands it to another record, says so
 * here. */
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
/* Records looked at in one slice of the walk. */
#define WALK_RECORDS  2048u
#define WALK_AGAIN_NS (100 * SL_NS_PER_MS)
#define RATIO_ONE     1000000.0
#define BIT(number)   (UINT64_C(1) << (number))

/* ---- sums ---- */

static void charge_count(struct registrar *self, uint64_t set, uint64_t space_bytes)
{
    for (; set != 0; set &= set - 1) {
        struct reg_contribution *at = &self->contributions->all[__builtin_ctzll(set)];
        at->used_bytes += space_bytes;
        at->value_count++;
    }
}

void reg_uncharge(struct registrar *self, uint64_t set, uint64_t space_bytes)
{
    for (; set != 0; set &= set - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(set);
        struct reg_contribution *at = &self->contributions->all[number];
        SL_ASSERT(at->used_bytes >= space_bytes);
        SL_ASSERT(at->value_count > 0);
        at->used_bytes -= space_bytes;
        at->value_count--;
        self->space.freed = true;
        reg_contribution_left(self, number);
    }
}

uint64_t reg_charge_of(const struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    if (!self->contributions->on) {
        return 0;
    }
    sl_index_read(self->index, ref, &entry);
    return entry.contributions;
}

void reg_charge_note(struct registrar *self, sl_ref ref, uint64_t set)
{
    if (self->contributions->on) {
        bool noted = sl_index_set_contributions(self->index, ref, set);
        SL_ASSERT(noted); /* it was made with a place for it */
    }
}

/* A record with this set is another now: a walk may have passed where it is. */
static void charge_moved(struct registrar *self, uint64_t set)
{
    self->contributions->seen |= set & self->contributions->ending;
}

/* The same for a charge that must not be lost; false: the record, of a time without contributions,
 * has no place for it. */
static bool charge_store(struct registrar *self, sl_ref ref, uint64_t set, uint64_t space_bytes)
{
    if (sl_index_set_contributions(self->index, ref, set)) {
        return true;
    }
    reg_uncharge(self, set, space_bytes);
    return false;
}

/* The extent of this record is free now, or will be another record's. */
static void charge_end(struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    if (!self->contributions->on) {
        return;
    }
    sl_index_read(self->index, ref, &entry);
    if (entry.contributions != 0) {
        reg_charge_note(self, ref, 0);
        reg_uncharge(self, entry.contributions, sl_extent_space(entry.extent.length_bytes));
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
    for (uint64_t left = all->standing; left != 0; left &= left - 1) {
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

static uint64_t with_room(const struct registrar *self, uint64_t space_bytes)
{
    uint64_t set = 0;
    for (uint64_t left = self->contributions->standing; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(left);
        set |= room_of(self, number) >= space_bytes ? BIT(number) : 0;
    }
    return set;
}

/* xorshift64*: any of them will do, so that all fill up alike. */
static uint64_t random_next(struct registrar *self)
{
    uint64_t x = self->contributions->random | 1;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    self->contributions->random = x;
    return x * UINT64_C(0x2545f4914f6cdd1d) >> 32;
}

static uint32_t pick_random(struct registrar *self, uint64_t among)
{
    uint64_t skip = random_next(self) % (uint64_t)__builtin_popcountll(among);
    for (; skip > 0; skip--) {
        among &= among - 1;
    }
    return (uint32_t)__builtin_ctzll(among);
}

/* The one with the largest share that is free. */
static uint32_t pick_free(const struct registrar *self, uint64_t among)
{
    uint32_t best = (uint32_t)__builtin_ctzll(among);
    double best_share = -1;
    for (; among != 0; among &= among - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(among);
        double share =
            (double)room_of(self, number) / (double)self->contributions->all[number].length_bytes;
        if (share > best_share) {
            best = number;
            best_share = share;
        }
    }
    return best;
}

static uint64_t of_process(const struct registrar *self, struct sl_proc_id proc)
{
    uint64_t set = 0;
    for (uint64_t left = self->contributions->standing; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(left);
        bool own = sl_proc_id_equal(self->contributions->all[number].proc, proc);
        set |= own ? BIT(number) : 0;
    }
    return set;
}

static uint32_t pick(struct registrar *self, const struct reg_wish *wish, uint64_t among)
{
    uint64_t own = 0;
    switch (self->contributions->strategy) {
    case REG_STRATEGY_FREE:
        return pick_free(self, among);
    case REG_STRATEGY_LOCAL:
        own = wish == NULL || reg_proc_none(wish->proc) ? 0 : among & of_process(self, wish->proc);
        break;
    case REG_STRATEGY_RANDOM:
        break;
    }
    return pick_random(self, own != 0 ? own : among);
}

static uint64_t preferred(const struct registrar *self, const struct reg_wish *wish, uint64_t among)
{
    uint64_t set = 0;
    for (uint32_t i = 0; i < wish->count; i++) {
        const struct reg_wished *at = &wish->preferred[i];
        bool meant = self->contributions->all[at->number].serial == at->serial;
        if (meant && (among & BIT(at->number)) != 0 &&
            (uint32_t)__builtin_popcountll(set) < wish->copies) {
            set |= BIT(at->number);
        }
    }
    return set;
}

/* Charges space_bytes to as many as wish says (NULL: any one) of those that have room, at least
 * one; without contributions *set is 0. Evicts nothing. Errors: SL_ERR_NO_SPACE. */
static sl_err charge(struct registrar *self, const struct reg_wish *wish, uint64_t space_bytes,
                     uint64_t *set)
{
    *set = 0;
    if (!self->contributions->on) {
        return SL_OK;
    }
    uint64_t among = with_room(self, space_bytes);
    uint32_t copies = wish == NULL ? 1 : wish->copies;
    uint64_t chosen = wish == NULL ? 0 : preferred(self, wish, among);
    for (uint32_t count = (uint32_t)__builtin_popcountll(chosen);
         count < copies && (among & ~chosen) != 0; count++) {
        chosen |= BIT(pick(self, wish, among & ~chosen));
    }
    if (chosen == 0) {
        return SL_ERR_NO_SPACE;
    }
    charge_count(self, chosen, space_bytes);
    *set = chosen;
    return SL_OK;
}

/* ---- taking ---- */

uint64_t reg_charge_largest(const struct registrar *self)
{
    uint64_t largest = 0;
    for (uint64_t left = self->contributions->standing; left != 0; left &= left - 1) {
        largest = SL_MAX(largest, self->contributions->all[__builtin_ctzll(left)].length_bytes);
    }
    return self->contributions->on ? largest : UINT64_MAX;
}

static int by_space_falling(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a < b) - (a > b);
}

/* The first contribution that has room, the largest values first. That may miss a way that there
 * is; who is charged is chosen less carefully than that. */
bool reg_charge_packs(const struct registrar *self, uint64_t *spaces, uint32_t count)
{
    uint64_t rooms[64];
    uint32_t room_count = 0;
    if (!self->contributions->on) {
        return true;
    }
    for (uint64_t left = self->contributions->standing; left != 0; left &= left - 1) {
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
    for (uint64_t left = self->contributions->standing; left != 0; left &= left - 1) {
        largest = SL_MAX(largest, room_of(self, (uint32_t)__builtin_ctzll(left)));
    }
    return largest;
}

/* What is evicted was charged to any of them: it goes on until one has room. */
static sl_err charge_evicting(struct registrar *self, const struct reg_wish *wish,
                              uint64_t space_bytes, uint64_t *set)
{
    sl_err err = charge(self, wish, space_bytes, set);
    if (err == SL_OK || reg_charge_largest(self) < space_bytes) {
        return err;
    }
    reg_retired_scan(self, 0);
    reg_peers_drain(self);
    for (uint32_t i = 0; i < CHARGE_ROUNDS_MAX; i++) {
        err = charge(self, wish, space_bytes, set);
        if (err == SL_OK || reg_evict(self, space_bytes - room_largest(self)) == 0) {
            break;
        }
    }
    return err == SL_OK ? err : charge(self, wish, space_bytes, set);
}

sl_err reg_take_charged(struct registrar *self, const struct reg_wish *wish, uint64_t length_bytes,
                        uint64_t *offset_bytes, uint64_t *set)
{
    uint64_t space = sl_extent_space(length_bytes);
    sl_err err = charge_evicting(self, wish, space, set);
    if (err != SL_OK) {
        return err;
    }
    err = reg_take(self, length_bytes, offset_bytes);
    if (err != SL_OK) {
        reg_uncharge(self, *set, space);
        *set = 0;
    }
    return err;
}

sl_err reg_take_charged_quietly(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                                uint64_t *offset_bytes, uint64_t *set)
{
    uint64_t space = sl_extent_space(length_bytes);
    sl_err err = charge(self, NULL, space, set);
    for (uint32_t i = 0; err != SL_OK && i < CHARGE_QUIET_MAX; i++) {
        uint64_t room = room_largest(self);
        if (reg_charge_largest(self) < space ||
            reg_evict_quietly(self, SL_MAX(space, batch_bytes) - SL_MIN(room, space - 1)) == 0) {
            return err;
        }
        err = charge(self, NULL, space, set);
    }
    if (err != SL_OK) {
        return err;
    }
    err = reg_take_quietly(self, length_bytes, batch_bytes, offset_bytes);
    if (err != SL_OK) {
        reg_uncharge(self, *set, space);
        *set = 0;
    }
    return err;
}

void reg_give_charged(struct registrar *self, uint64_t offset_bytes, uint64_t length_bytes,
                      uint64_t set)
{
    reg_uncharge(self, set, sl_extent_space(length_bytes));
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

sl_err reg_charge_settle(struct registrar *self, sl_ref ref)
{
    struct sl_entry entry;
    if (!self->contributions->on) {
        return SL_OK;
    }
    sl_index_read(self->index, ref, &entry);
    uint64_t set = entry.contributions;
    uint64_t there = set & self->contributions->standing;
    uint64_t fresh = there;
    uint64_t space = sl_extent_space(entry.extent.length_bytes);
    if (there != 0 && there == set) {
        return SL_OK;
    }
    sl_err err = there != 0 ? SL_OK : charge_evicting(self, NULL, space, &fresh);
    if (err != SL_OK || !charge_store(self, ref, fresh, there != 0 ? 0 : space)) {
        return SL_ERR_NO_SPACE;
    }
    reg_uncharge(self, set & ~there, space);
    return SL_OK;
}

/* ---- restart ---- */

void reg_charge_recover(struct registrar *self, sl_ref ref)
{
    struct reg_contributions *all = self->contributions;
    struct sl_entry entry;
    sl_index_read(self->index, ref, &entry);
    uint64_t known =
        entry.extent.generation == 0 ? 0 : entry.contributions & (all->standing | all->ending);
    if (known != entry.contributions) {
        reg_charge_note(self, ref, known);
    }
    charge_count(self, known, sl_extent_space(entry.extent.length_bytes));
    if (known == 0 && entry.extent.generation != 0 && entry.kind != SL_RECORD_RETIRED &&
        entry.kind != SL_RECORD_QUARANTINED) {
        all->some_homeless = true;
        all->again_ns = 0;
    }
}

/* ---- what ended contributions paid for ---- */

/* The value leaves memory. False: not now. */
static bool value_leave(struct registrar *self, const struct sl_entry *entry, uint32_t serial)
{
    static const struct sl_extent nowhere = {0};
    sl_ref unit = reg_unit_of(entry);
    sl_ref fresh = 0;
    if ((sl_index_links(self->index, entry->ref)->flags & REG_FLAG_WRITING) != 0) {
        return false; /* what is on disk stays there: in a moment it is */
    }
    if (entry->disk.valid == 0) {
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

/* Whom it is charged to from now on; false: nobody has room. */
static bool charge_move(struct registrar *self, const struct sl_entry *entry, uint64_t set)
{
    uint64_t fresh = 0;
    uint64_t space = sl_extent_space(entry->extent.length_bytes);
    if (charge(self, NULL, space, &fresh) != SL_OK ||
        !charge_store(self, entry->ref, fresh, space)) {
        return false;
    }
    reg_uncharge(self, set, space);
    return true;
}

static void walk_value(struct registrar *self, const struct sl_entry *entry, uint64_t set)
{
    struct reg_contributions *all = self->contributions;
    uint32_t serial = set == 0 ? 0 : all->all[__builtin_ctzll(set)].serial;
    if (set == 0 && charge_move(self, entry, 0)) { /* a successor found it with nobody's bit */
        return;
    }
    if (!value_leave(self, entry, serial)) {
        all->seen |= set;
        all->left_homeless |= set == 0;
    }
}

static void walk_record(struct registrar *self, const struct sl_entry *entry)
{
    struct reg_contributions *all = self->contributions;
    bool extent = entry->kind == SL_RECORD_RESERVED || entry->kind == SL_RECORD_COMMITTED ||
                  entry->kind == SL_RECORD_RETIRED || entry->kind == SL_RECORD_QUARANTINED ||
                  entry->kind == SL_RECORD_PROMOTING;
    if (!extent || entry->extent.generation == 0) {
        return;
    }
    uint64_t set = entry->contributions;
    uint64_t there = set & all->standing;
    bool over = entry->kind == SL_RECORD_RETIRED || entry->kind == SL_RECORD_QUARANTINED;
    if (set != 0 && set == there) {
        return;
    }
    if (there != 0 || over) { /* others pay for it, or nobody: its space is free soon */
        (void)sl_index_set_contributions(self->index, entry->ref, there);
        reg_uncharge(self, set & ~there, sl_extent_space(entry->extent.length_bytes));
    } else if (entry->kind == SL_RECORD_COMMITTED) {
        walk_value(self, entry, set);
    } else if (!charge_move(self, entry, set)) { /* decided when it is committed */
        all->left_homeless |= set == 0;
    }
}

static void walk_end(struct registrar *self)
{
    struct reg_contributions *all = self->contributions;
    all->walking = false;
    all->some_homeless = all->left_homeless;
    reg_contributions_unseen(self, all->begun & all->ending & ~all->seen);
    if ((all->ending & ~all->begun) != 0) {
        all->again_ns = 0;
    } else if (all->ending != 0 || all->some_homeless) {
        all->again_ns = sl_deadline_ns(self->env->now_ns, WALK_AGAIN_NS);
    } else {
        all->again_ns = SL_NEVER_NS;
    }
}

/* A slice of the walk over what ended contributions paid for. */
static void charges_walk(struct registrar *self)
{
    struct reg_contributions *all = self->contributions;
    if (!all->on || (!all->walking && self->env->now_ns < all->again_ns)) {
        return;
    }
    if (!all->walking) {
        all->walking = true;
        all->cursor = 0;
        all->seen = 0;
        all->begun = all->ending;
        all->left_homeless = false;
        all->again_ns = SL_NEVER_NS;
    }
    uint64_t from = self->retired->count;
    uint64_t again_ns = all->again_ns;
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
        walk_end(self);
        all->again_ns = SL_MIN(all->again_ns, again_ns);
    }
}

/* ---- the watermark ---- */

/* A slice of evicting down to where the setting evict_watermark wants it. */
static void watermark_run(struct registrar *self)
{
    double ceiling = (double)reg_ceiling_bytes(self);
    double high = (double)self->contributions->watermark_ppm / RATIO_ONE;
    double low = high - SL_MIN(high, (double)self->contributions->ratio_ppm / RATIO_ONE);
    if (self->contributions->watermark_ppm >= (uint64_t)RATIO_ONE || ceiling == 0) {
        self->contributions->lowering = false; /* what nobody pays for leaves by itself */
        return;
    }
    if (!self->contributions->lowering && self->env->now_ns < self->contributions->lower_again_ns) {
        return;
    }
    double used = (double)reg_used_bytes(self);
    self->contributions->lowering = used > (self->contributions->lowering ? low : high) * ceiling;
    reg_spare_young(self, 0);
    if (self->contributions->lowering &&
        reg_evict(self, SL_MAX((uint64_t)(used - low * ceiling), UINT64_C(1))) == 0) {
        self->contributions->lowering = false; /* nothing may leave now */
        self->contributions->lower_again_ns = sl_deadline_ns(self->env->now_ns, WALK_AGAIN_NS);
    }
    reg_spare_none(self);
}

/* ---- the part ---- */

/* The old record is charged with the old extent, as long as that stands. */
static void charges_switched(struct registrar *self, const struct reg_switched *what)
{
    if (what->extent != NULL) {
        reg_charge_note(self, what->fresh, 0);
    } else {
        charge_moved(self, what->old->contributions);
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
    .after = {REG_AFTER_CHARGES, charges_after},
    .next_ns = charges_next,
    .switched = {REG_SWITCHED_CHARGES, charges_switched},
    .freed = charge_end,
};
