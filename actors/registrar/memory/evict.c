/* actors/registrar/memory/evict.c - chooses and evicts units, from memory or from the index. */
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/accesses.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/records/bundles.h"
#include "actors/registrar/records/ghosts.h"
#include "actors/registrar/records/leases.h"
#include "actors/registrar/records/order.h"
#include "actors/registrar/records/retired.h"
#include "actors/registrar/records/units.h"

#include <stdlib.h>

/* Units examined for one batch: units at the old end that are not on disk yet are skipped. */
#define EVICT_LOOKED_MAX 16384u
#define EVICT_ROUNDS_MAX 4096u
/* Units moved to the skipped lists in one search: each at most once in the time of a lease. */
#define EVICT_ASIDE_MAX 262144u
#define LAST_LOOKED_MAX 1024u /* of soft-pinned and leased units */
/* A bundle with a member that must stay is checked again after this time. */
#define BUNDLE_ASIDE_NS   SL_NS_PER_S
#define TAKE_TRIES_MAX    64u
#define INDEX_BATCH_UNITS 64u
#define QUIET_LOOKED_MAX  1024u
#define QUIET_UNITS_MIN   64u
#define QUIET_UNITS_MAX   256u
#define QUIET_TRIES_MAX   8u
#define YOUNG_SHARE       32u /* of memory: one to two of these shares count as new */

/* ---- new values ---- */

static void young_note(struct registrar *self, uint64_t newest, uint64_t bytes)
{
    struct reg_evict *evict = self->evict;
    if (newest == 0) { /* it is on disk only */
        return;
    }
    evict->recent_bytes += bytes;
    if (evict->recent_from[0] == 0) {
        evict->recent_from[0] = newest;
        evict->recent_from[1] = newest;
    } else if (evict->recent_bytes > reg_ceiling_bytes(self) / YOUNG_SHARE) {
        evict->recent_from[0] = evict->recent_from[1];
        evict->recent_from[1] = newest;
        evict->recent_bytes = 0;
    }
}

static void evict_committed(struct registrar *self, const struct reg_committed *what)
{
    struct reg_unit_parts parts;
    uint64_t newest = 0, bytes = 0;
    reg_unit_parts(self, what->unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_extent extent;
        sl_index_extent(self->index, parts.refs[i], &extent);
        newest = SL_MAX(newest, extent.generation);
        bytes += sl_extent_space(extent.length_bytes);
    }
    young_note(self, newest, bytes);
}

/* A value read from disk gets a generation as new as a commit's. */
static void evict_switched(struct registrar *self, const struct reg_switched *what)
{
    if (what->extent != NULL) {
        young_note(self, what->extent->generation, sl_extent_space(what->extent->length_bytes));
    }
}

void reg_protect_recent(struct registrar *self, uint64_t from)
{
    uint64_t young = self->evict->recent_from[0];
    self->evict->protected_generation = from == 0 || (young != 0 && young < from) ? young : from;
}

void reg_protect_none(struct registrar *self)
{
    self->evict->protected_generation = 0;
}

/* ---- victims ---- */

uint64_t reg_free_bytes(const struct registrar *self)
{
    struct sl_alloc_stats stats;
    sl_alloc_stats(self->alloc, &stats);
    return stats.free_bytes;
}

static bool part_may_leave(struct registrar *self, sl_ref ref, const struct sl_entry *entry)
{
    uint16_t flags = sl_index_links(self->index, ref)->flags;
    if ((flags & REG_FLAG_WRITING) != 0) {
        return false;
    }
    return entry->disk.valid != 0 || (flags & (REG_FLAG_RECLAIMED | REG_FLAG_REFUSED)) != 0 ||
           !reg_copy_required(self);
}

enum unit_outcome { UNIT_STAYS, UNIT_LEASED, UNIT_TO_DISK, UNIT_DROPS };

/* A unit whose parts are all on disk can leave memory. Otherwise it is dropped, where that is
 * allowed. last: nothing else can be evicted. Then soft pins are ignored, and leased units may
 * leave memory: a lease protects a value from loss, not from being moved. */
static enum unit_outcome unit_outcome(struct registrar *self, sl_ref unit,
                                      const struct reg_unit_parts *parts, bool last)
{
    enum unit_outcome outcome = UNIT_TO_DISK;
    uint16_t flags = sl_index_links(self->index, unit)->flags;
    bool kept = (flags & REG_FLAG_KEPT) != 0;
    if ((flags & REG_FLAG_HELD) != 0) {
        return UNIT_STAYS;
    }
    for (uint32_t i = 0; i < parts->count; i++) {
        struct sl_entry entry;
        sl_index_read(self->index, parts->refs[i], &entry);
        bool pinned = entry.hard_pin || (!last && entry.soft_pin_end_ns > self->env->now_ns);
        pinned = pinned || (kept && entry.disk.valid != 0 &&
                            entry.disk.segment == self->units->going[entry.disk.disk]);
        pinned = pinned || (self->evict->protected_generation != 0 &&
                            entry.extent.generation >= self->evict->protected_generation);
        if (pinned || !part_may_leave(self, parts->refs[i], &entry)) {
            return UNIT_STAYS;
        }
        if (!reg_is_on_disk(self, &entry)) {
            outcome = UNIT_DROPS;
        }
    }
    bool leased = (outcome == UNIT_DROPS || !last) && reg_unit_leased(self, unit) != 0;
    return leased ? UNIT_LEASED : outcome;
}

static bool unit_to_disk(struct registrar *self, sl_ref unit)
{
    static const struct sl_extent nowhere = {0};
    sl_ref now = unit;
    struct reg_unit_parts parts;
    reg_unit_parts(self, unit, &parts);
    for (uint32_t i = 0; i < parts.count; i++) {
        struct sl_extent extent;
        sl_ref fresh;
        sl_index_extent(self->index, parts.refs[i], &extent);
        if (extent.generation == 0) {
            continue;
        }
        if (reg_record_switch(self, parts.refs[i], &nowhere, NULL, &fresh) != SL_OK) {
            return false; /* the rest stays in memory, and the unit in its list */
        }
        now = parts.refs[i] == unit ? fresh : now;
    }
    reg_unit_place(self, now);
    return true;
}

/* Drops a unit, unless a reader leases it at this moment. */
static bool unit_lose(struct registrar *self, sl_ref unit, const struct reg_drop *how)
{
    if (!reg_unit_lease_close(self, unit)) {
        return false;
    }
    if (reg_unit_drop(self, unit, how) != SL_OK) {
        reg_unit_lease_reopen(self, unit);
        return false;
    }
    return true;
}

/* Units evicted together: a bundle, or a single unit. */
struct victims {
    const sl_ref *units;
    uint32_t count;
    sl_ref alone;
    uint64_t bundle;
    enum unit_outcome outcome;
};

/* The outcome of a bundle is that of the member that is hardest to evict. */
static void victims_find(struct registrar *self, sl_ref unit, bool last, struct victims *out)
{
    struct reg_unit_parts parts;
    *out = (struct victims){.count = 1, .bundle = reg_unit_bundle(self, unit), .alone = unit};
    out->units = &out->alone;
    /* One is being written: */
    if (out->bundle != 0 && !reg_bundle_members(self, out->bundle, &out->units, &out->count)) {
        out->units = &out->alone;
        out->count = 1;
        return;
    }
    out->outcome = UNIT_TO_DISK;
    for (uint32_t i = 0; i < out->count && out->outcome > UNIT_LEASED; i++) {
        reg_unit_parts(self, out->units[i], &parts);
        enum unit_outcome outcome = unit_outcome(self, out->units[i], &parts, last);
        out->outcome = outcome <= UNIT_LEASED ? outcome : SL_MAX(out->outcome, outcome);
    }
}

static void victims_pass_by(struct registrar *self, const struct victims *victims)
{
    uint64_t again_ns = sl_deadline_ns(self->env->now_ns, BUNDLE_ASIDE_NS);
    if (victims->outcome != UNIT_LEASED && victims->bundle == 0) {
        return; /* not on disk yet, or held: that may end at any moment */
    }
    for (uint32_t i = 0; i < victims->count; i++) {
        uint64_t leased_ns =
            victims->outcome == UNIT_LEASED ? reg_unit_leased(self, victims->units[i]) : 0;
        reg_unit_skip_until(self, victims->units[i], leased_ns != 0 ? leased_ns : again_ns);
    }
    sl_metric_add(self->env->metrics, self->evict->metric.evict_skipped_count, victims->count);
}

static bool is_on_disk_alone(struct registrar *self, sl_ref unit)
{
    uint16_t flags = sl_index_links(self->index, unit)->flags;
    return (flags & REG_FLAG_SKIPPED_LISTS) == REG_FLAG_COLD;
}

static bool is_refused(struct registrar *self, sl_ref unit)
{
    return (sl_index_links(self->index, unit)->flags & REG_FLAG_REFUSED) != 0;
}

/* Notes when the unit that just left its list was last used, if the policy knows. */
static void age_note(struct registrar *self, uint32_t gone)
{
    uint64_t age_ns = self->units->judged.age_ns;
    if (gone > 0 && age_ns > 0) {
        sl_histogram_add(self->env->metrics, self->evict->metric.evict_age_ns, age_ns);
    }
}

/* Returns the number of units that left. lose: drop them even if they are on disk. */
static uint32_t victims_evict(struct registrar *self, const struct victims *victims, bool lose,
                              const struct reg_drop *how)
{
    uint32_t gone = 0;
    bool drops = lose || victims->outcome == UNIT_DROPS;
    if (victims->outcome <= UNIT_LEASED ||
        (drops && !sl_index_bundle_lease_close(self->index, victims->bundle, self->env->now_ns))) {
        return 0;
    }
    for (uint32_t i = 0; i < victims->count; i++) {
        if (!drops && is_on_disk_alone(self, victims->units[i])) {
            continue; /* this member left memory earlier */
        }
        struct reg_drop why = *how;
        if (!lose && is_refused(self, victims->units[i])) {
            why.reason = REG_GHOST_NOT_ADMITTED;
        }
        uint32_t went = drops ? unit_lose(self, victims->units[i], &why)
                              : unit_to_disk(self, victims->units[i]);
        age_note(self, went);
        gone += went;
    }
    sl_index_bundle_lease_reopen(self->index, victims->bundle);
    return gone;
}

/* The next unit that is not of this bundle. */
static sl_ref next_of(struct registrar *self, struct reg_order *list, uint64_t bundle)
{
    sl_ref unit = 0;
    do {
        unit = reg_unit_next(self, list, false);
    } while (unit != 0 && bundle != 0 && reg_unit_bundle(self, unit) == bundle);
    return unit;
}

struct eviction {
    struct reg_drop how;
    bool last; /* the other units did not suffice */
    bool lose; /* drop units from the index as well */
    uint32_t count_max, looked_max;
    uint64_t want_bytes;
    uint32_t taken, looked, aside;
    uint64_t bytes;
};

/* Evicts units from the old end of a list. Units that must stay are moved out of the way, in the
 * last pass to the list's other end, so that the search does not meet them again. */
static void evict_from(struct registrar *self, struct reg_order *list, struct eviction *evict)
{
    sl_ref unit = reg_unit_first(self, list);
    /* A policy may walk twice: in its order, and by recency. */
    for (uint64_t left = 2 * list->count;
         left > 0 && unit != 0 && evict->taken < evict->count_max &&
         evict->looked < evict->looked_max && evict->aside < EVICT_ASIDE_MAX &&
         evict->bytes < evict->want_bytes;
         left--) {
        struct victims victims;
        uint64_t before = self->retired->count;
        victims_find(self, unit, evict->last, &victims);
        uint32_t gone = victims_evict(self, &victims, evict->lose, &evict->how);
        if (gone == 0 && !evict->last) {
            uint64_t hot_count = list->count;
            victims_pass_by(self, &victims);
            evict->aside += list->count < hot_count;
            evict->looked += list->count == hot_count;
        } else if (gone == 0) {
            self->space.copies_wanted = self->space.copies_wanted ||
                                        (victims.outcome == UNIT_LEASED && is_refused(self, unit));
            reg_unit_to_newest(self, unit);
            evict->looked++;
        }
        evict->taken += gone;
        for (uint64_t i = before; i < self->retired->count; i++) {
            evict->bytes += sl_extent_space(self->retired->all[i].extent.length_bytes);
        }
        unit = next_of(self, list, victims.bundle);
    }
}

static void evict_last(struct registrar *self, struct eviction *evict)
{
    evict->last = true;
    evict->looked = 0;
    evict->looked_max = LAST_LOOKED_MAX;
    evict_from(self, &self->units->soft, evict);
    if (reg_has_disks(self)) {
        evict_from(self, &self->units->leased, evict);
    }
}

/* Counts a search for victims. bytes: memory freed; units on disk only held none. */
static void searched_note(struct registrar *self, uint32_t taken, uint64_t bytes)
{
    sl_metric_add(self->env->metrics, self->evict->metric.evict_attempt_count, 1);
    sl_metric_add(self->env->metrics, self->evict->metric.evict_success_count, taken > 0);
    sl_metric_add(self->env->metrics, self->evict->metric.evicted_count, taken);
    sl_metric_add(self->env->metrics, self->evict->metric.evicted_bytes, bytes);
}

uint32_t reg_evict(struct registrar *self, uint64_t want_bytes)
{
    uint64_t from = self->retired->count;
    struct eviction evict = {
        .how = {.reason = reg_has_disks(self) ? (reg_copy_required(self) ? REG_GHOST_DISK_RECLAIMED
                                                                         : REG_GHOST_DISK_FAILED)
                                              : REG_GHOST_EVICTED,
                .forget = true},
        .count_max = self->evict->batch_units,
        .looked_max = EVICT_LOOKED_MAX,
        .want_bytes = want_bytes,
    };
    reg_leases_check(self);
    evict_from(self, &self->units->hot, &evict);
    if (evict.taken == 0) {
        evict_last(self, &evict);
    }
    searched_note(self, evict.taken, evict.bytes);
    if (evict.taken > 0) {
        reg_retired_scan(self, from);
    }
    return evict.taken;
}

bool reg_make_room(struct registrar *self, uint64_t want_bytes)
{
    if (reg_free_bytes(self) >= want_bytes) {
        return true;
    }
    /* Unpopulated memory is used before values are evicted, a few MiB a turn: larger requests wait
     * for the next turn. */
    (void)reg_populate_now(self, want_bytes - reg_free_bytes(self));
    if (reg_free_bytes(self) >= want_bytes || reg_populate_pending(self)) {
        return reg_free_bytes(self) >= want_bytes;
    }
    reg_retired_scan(self, 0);
    reg_accesses_drain(self);
    for (uint32_t round = 0; round < EVICT_ROUNDS_MAX && reg_free_bytes(self) < want_bytes;
         round++) {
        if (reg_evict(self, want_bytes - reg_free_bytes(self)) == 0) {
            break;
        }
    }
    return reg_free_bytes(self) >= want_bytes;
}

sl_err reg_take(struct registrar *self, uint64_t length_bytes, uint64_t *offset_bytes)
{
    uint64_t space = sl_extent_space(length_bytes);
    for (uint32_t i = 0; i < TAKE_TRIES_MAX; i++) {
        sl_err err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
        if (err != SL_ERR_NO_SPACE) {
            return err;
        }
        bool enough = reg_free_bytes(self) >= space; /* fragmented: populate or evict more */
        if (enough && reg_populate_now(self, space)) {
            continue;
        }
        if (enough ? reg_evict(self, space << (i / 8)) == 0 : !reg_make_room(self, space)) {
            break;
        }
    }
    return sl_alloc_take(self->alloc, length_bytes, offset_bytes);
}

/* ---- room without cost to others ---- */

struct quiet_victim {
    sl_ref unit;
    uint64_t bytes; /* 0: a reader pins it */
};

static bool quiet_has(const struct quiet_victim *victims, uint32_t count, sl_ref unit)
{
    for (uint32_t i = 0; i < count; i++) {
        if (victims[i].unit == unit) {
            return true;
        }
    }
    return false;
}

/* Finds the oldest units that can leave without cost, until they hold want_bytes, and some more in
 * case those are pinned. Returns their number; *extents is the number of their extents. A walk may
 * return a unit twice that is to leave and has not yet. */
static uint32_t quiet_find(struct registrar *self, uint64_t want_bytes, struct quiet_victim *out,
                           uint64_t *extents)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    struct reg_order *list = &self->units->hot;
    sl_ref unit = reg_unit_first(self, list);
    *extents = 0;
    for (uint32_t looked = 0; unit != 0 && looked < QUIET_LOOKED_MAX && count < QUIET_UNITS_MAX &&
                              (bytes < want_bytes || count < QUIET_UNITS_MIN);
         looked++) {
        const struct sl_links *links = sl_index_links(self->index, unit);
        struct reg_unit_parts parts;
        reg_unit_parts(self, unit, &parts);
        bool goes = (links->flags & REG_FLAG_PREFETCHED) == 0 && reg_unit_bundle(self, unit) == 0 &&
                    unit_outcome(self, unit, &parts, false) == UNIT_TO_DISK;
        if (goes && !quiet_has(out, count, unit)) {
            out[count] = (struct quiet_victim){.unit = unit};
            for (uint32_t i = 0; i < parts.count; i++) {
                struct sl_entry entry;
                sl_index_read(self->index, parts.refs[i], &entry);
                bool here = entry.extent.generation != 0;
                out[count].bytes += here ? sl_extent_space(entry.extent.length_bytes) : 0;
                *extents += here;
            }
            bytes += out[count++].bytes;
        }
        unit = reg_unit_next(self, list, goes);
    }
    return count;
}

/* Excludes pinned units, which would free nothing. */
static bool quiet_spare_pinned(struct registrar *self, struct quiet_victim *victims, uint32_t count,
                               uint64_t extents)
{
    if (count == 0 || !reg_pinned_begin(self, extents)) {
        return false;
    }
    for (int scanned = 0; scanned < 2; scanned++) {
        for (uint32_t i = 0; i < count; i++) {
            struct reg_unit_parts parts;
            reg_unit_parts(self, victims[i].unit, &parts);
            for (uint32_t k = 0; k < parts.count; k++) {
                struct sl_entry entry;
                sl_index_read(self->index, parts.refs[k], &entry);
                if (entry.extent.generation != 0 && scanned == 0) {
                    reg_pinned_add(self, entry.extent.generation);
                } else if (entry.extent.generation != 0 &&
                           reg_pinned_is(self, entry.extent.generation)) {
                    victims[i].bytes = 0;
                }
            }
        }
        if (scanned == 0) {
            reg_pinned_scan(self);
        }
    }
    return true;
}

/* Returns the number of units that left memory. */
uint32_t reg_evict_for_prefetch(struct registrar *self, uint64_t want_bytes)
{
    struct quiet_victim victims[QUIET_UNITS_MAX];
    uint64_t extents = 0;
    uint64_t from = self->retired->count;
    uint64_t bytes = 0;
    uint32_t taken = 0;
    uint32_t count = quiet_find(self, want_bytes, victims, &extents);
    if (!quiet_spare_pinned(self, victims, count, extents)) {
        count = 0;
    }
    for (uint32_t i = 0; i < count && bytes < want_bytes; i++) {
        if (victims[i].bytes > 0 && unit_to_disk(self, victims[i].unit)) {
            bytes += victims[i].bytes;
            taken++;
        }
    }
    reg_retired_scan(self, from);
    searched_note(self, taken, bytes);
    return taken;
}

sl_err reg_take_for_prefetch(struct registrar *self, uint64_t length_bytes, uint64_t batch_bytes,
                             uint64_t *offset_bytes)
{
    uint64_t space = SL_MAX(sl_extent_space(length_bytes), batch_bytes);
    sl_err err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
    for (uint32_t i = 0; err == SL_ERR_NO_SPACE && i < QUIET_TRIES_MAX; i++) {
        uint64_t free_bytes = reg_free_bytes(self);
        if (reg_evict_for_prefetch(self, free_bytes < space ? space - free_bytes : space) == 0) {
            break;
        }
        err = sl_alloc_take(self->alloc, length_bytes, offset_bytes);
    }
    return err;
}

/* ---- the index ---- */

/* Drops units on disk only, except held, leased and pinned ones and bundles. */
static uint32_t index_drop_cold(struct registrar *self, const struct reg_drop *how)
{
    uint32_t taken = 0;
    struct reg_order *list = &self->units->cold;
    sl_ref unit = reg_unit_first(self, list);
    uint64_t left = SL_MIN(list->count, (uint64_t)EVICT_LOOKED_MAX);
    for (; left > 0 && unit != 0 && taken < INDEX_BATCH_UNITS; left--) {
        struct reg_unit_parts parts;
        reg_unit_parts(self, unit, &parts);
        bool held = (sl_index_links(self->index, unit)->flags & REG_FLAG_HELD) != 0;
        bool goes = reg_unit_bundle(self, unit) == 0 &&
                    unit_outcome(self, unit, &parts, false) > UNIT_LEASED;
        if (goes && unit_lose(self, unit, how)) {
            taken++;
        } else if (!held) {
            reg_unit_to_newest(self, unit);
        }
        unit = reg_unit_next(self, list, false);
    }
    return taken;
}

bool reg_make_index_room(struct registrar *self)
{
    uint64_t from = self->retired->count;
    struct reg_drop how = {.reason = REG_GHOST_INDEX_FULL, .forget = true};
    struct eviction evict = {.how = how,
                             .lose = true,
                             .count_max = INDEX_BATCH_UNITS,
                             .looked_max = EVICT_LOOKED_MAX,
                             .want_bytes = UINT64_MAX};
    if (self->evict->index_exhausted) {
        return false;
    }
    evict.taken = index_drop_cold(self, &how);
    reg_leases_check(self);
    evict_from(self, &self->units->hot, &evict);
    if (evict.taken == 0) {
        evict_last(self, &evict);
    }
    if (evict.taken == 0) {
        evict.looked = 0;
        evict_from(self, &self->units->cold, &evict); /* including bundles and soft-pinned units */
    }
    reg_retired_scan(self, from);
    searched_note(self, evict.taken, evict.bytes);
    self->evict->index_exhausted = evict.taken == 0 && self->evict->protected_generation == 0;
    return evict.taken > 0;
}

/* ---- the part ---- */

static void evict_after(struct registrar *self)
{
    self->evict->index_exhausted = false;
}

static void evict_settings(struct registrar *self)
{
    self->evict->batch_units = (uint32_t)sl_config_u64(self->env->config, SL_SET_evict_batch);
}

static const struct sl_metric_row metrics[] = {
    SL_HISTOGRAM_ROW(reg_evict, metric.evict_age_ns, "evict_age_ns"),
    REG_METRIC(reg_evict, evicted_count),
    REG_METRIC(reg_evict, evicted_bytes),
    REG_METRIC(reg_evict, evict_skipped_count),
    REG_METRIC(reg_evict, evict_attempt_count),
    REG_METRIC(reg_evict, evict_success_count),
};

const struct reg_part reg_evict_part = {
    .name = "evict",
    REG_STATE(evict, reg_evict),
    REG_METRICS(metrics),
    .settings = evict_settings,
    .committed = evict_committed,
    .switched = evict_switched,
    .after = evict_after,
    .index_room = reg_make_index_room,
};
