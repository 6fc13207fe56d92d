/* runtime/density/density_units.c - units and ghosts in cells, and in chains.
 *
 * A unit is in three places at once: with a cohort, ghosts too (density_cohorts.c); in a row of those
 * that are in memory, or with all ghosts, by when they left; and among the children of its parent. */
#include "runtime/density/density_internal.h"

#include <stdlib.h>
#include <string.h>

#define USES_MAX 255u
/* Over so many that went what they were worth is averaged. */
#define EDGE_UNITS 64.0

/* ---- turns: the rows of what is in memory ---- */

void density_turn_remove(struct sl_density *density, uint32_t unit)
{
    if (density->walk_next == unit) {
        density->walk_next = density_turn_after(density, unit);
    }
    switch (density->ages[unit].state) {
    case UNIT_RESTORED:
        density_row_remove(density, &density->restored, unit);
        break;
    case UNIT_SUNK:
        density_row_remove(density, &density->sunk, unit);
        break;
    case UNIT_KEPT:
        density_row_remove(density, &density->kept, unit);
        density_kept_leave(density, unit);
        break;
    default:
        density_turn_leave(density, unit);
    }
}

/* Before its parent where that is in the same cohort, so that the end of a chain is met first. */
void density_cell_enter(struct sl_density *density, uint32_t unit, uint32_t age)
{
    density_cohort_join(density, unit, age);
    if (density->units[unit].keep_pages != 0) {
        density_kept_enter(density, unit);
        return;
    }
    uint32_t parent_unit = density->units[unit].parent;
    const struct density_aged *parent = &density->ages[parent_unit];
    bool with = parent->state == UNIT_HERE && parent->cohort == density->ages[unit].cohort;
    density_turn_enter(density, unit, with ? parent_unit : 0);
}

/* ---- chains ---- */

static void parent_leave(struct sl_density *density, uint32_t unit)
{
    struct density_unit *units = density->units;
    struct density_unit *at = &units[unit];
    struct pair ring = at->siblings;
    if (at->parent == 0) {
        return;
    }
    struct density_unit *parent = &units[at->parent];
    if (ring.newer == unit) {
        parent->child = 0;
    } else {
        units[ring.older].siblings.newer = ring.newer;
        units[ring.newer].siblings.older = ring.older;
        parent->child = parent->child == unit ? ring.newer : parent->child;
    }
    at->siblings = (struct pair){0};
    at->parent = 0;
}

/* In front of the others: the one that was used last. */
static void parent_join(struct sl_density *density, uint32_t unit, uint32_t parent_unit)
{
    struct density_unit *units = density->units;
    struct density_unit *parent = &units[parent_unit];
    struct pair *ring = &units[unit].siblings;
    if (parent_unit == 0 || parent_unit == unit) {
        return;
    }
    *ring = (struct pair){.older = unit, .newer = unit};
    if (parent->child != 0) {
        ring->newer = parent->child;
        ring->older = units[parent->child].siblings.older;
        units[ring->older].siblings.newer = unit;
        units[ring->newer].siblings.older = unit;
    }
    parent->child = unit;
    units[unit].parent = parent_unit;
}

/* Whether unit is among what comes before `of` in its chain; hashes may collide, and a request may
 * name anything. */
static bool is_before(const struct sl_density *density, uint32_t unit, uint32_t of)
{
    for (uint32_t steps = 0; of != 0 && steps < 65536; steps++) {
        if (of == unit) {
            return true;
        }
        of = density->units[of].parent;
    }
    return of != 0;
}

/* ---- ghosts ---- */

static void ghost_drop(struct sl_density *density, uint32_t unit)
{
    struct density_unit *units = density->units;
    while (units[unit].child != 0) {
        parent_leave(density, units[unit].child);
    }
    density_row_remove(density, &density->ghosts, unit);
    if (density->ages[unit].state == UNIT_GHOST) {
        density_cohort_leave(density, unit);
    }
    density->ghost_count--;
    density_unit_free(density, unit);
}

static uint64_t ghosts_max(const struct sl_density *density)
{
    uint64_t want = density->unit_count * SL_DENSITY_GHOSTS_FACTOR;
    return SL_MIN(SL_MAX(want, density->set.ghosts_min), density->set.ghosts_max);
}

/* What dropping the next ones reads is fetched before it is asked for: of the third what lies by its
 * number, and of the second what that says. */
static void ghosts_fetch(const struct sl_density *density)
{
    uint32_t second = density->ages[density->ghosts.oldest].turn.newer;
    density_unit_fetch(density, density->ages[second].turn.newer);
    __builtin_prefetch(&density->cohorts[density->ages[second].cohort], 1);
    density_place_fetch(density, density->ages[second].hash);
}

void density_ghosts_bound(struct sl_density *density)
{
    while (density->ghost_count > ghosts_max(density)) {
        ghost_drop(density, density->ghosts.oldest);
        ghosts_fetch(density);
    }
}

void sl_density_leave(struct sl_density *density, uint32_t unit)
{
    struct density_aged *at = &density->ages[unit];
    SL_ASSERT(density_in_memory(at));
    if (at->state == UNIT_HERE) {
        density->edge +=
            (density->rates.value[density_cell_of(density, at)] - density->edge) / EDGE_UNITS;
    }
    density_turn_remove(density, unit);
    density->units[unit].keep_pages = 0;
    parent_leave(density, unit);
    /* Before a restart is over it is in no row by age, and not known well enough for a ghost. */
    at->state = at->state == UNIT_RESTORED ? UNIT_NAMED : UNIT_GHOST;
    if (at->state == UNIT_GHOST) {
        density_ghost_note(density, unit);
    }
    density_row_append(density, &density->ghosts, unit);
    density->unit_count--;
    density->ghost_count++;
    density_ghosts_bound(density);
}

/* Chains come from either end: who names a parent that is not here keeps a place for it, among the
 * ghosts. */
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash)
{
    if (parent_hash == 0 || parent_hash == density->ages[unit].hash) {
        return;
    }
    uint32_t parent = density_unit_of(density, parent_hash);
    if (parent == 0) {
        parent = density_unit_new(density, parent_hash);
        if (parent == 0) {
            return;
        }
        density->ages[parent].state = UNIT_NAMED;
        density_row_append(density, &density->ghosts, parent);
        density->ghost_count++;
    } else if (density->units[unit].child != 0 && is_before(density, unit, parent)) {
        return;
    }
    parent_join(density, unit, parent);
}

/* ---- uses ---- */

/* Out of its cell, with what that use taught. */
void density_used(struct sl_density *density, uint32_t unit)
{
    struct density_aged *at = &density->ages[unit];
    sl_rates_wanted(&density->rates, density_cell_of(density, at),
                    density_age_references(density, at));
    density_cohort_leave(density, unit);
    at->use_count = (uint8_t)SL_MIN(at->use_count + 1u, USES_MAX);
}

/* A place for what comes to memory, and what its ghost knew; 0: no memory. */
uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t unit, uint32_t user)
{
    if (unit == 0) {
        unit = density_unit_new(density, hash);
        if (unit == 0) {
            return 0;
        }
    } else {
        const struct density_aged *was = &density->ages[unit];
        bool known = was->state == UNIT_GHOST || was->state == UNIT_DISK;
        SL_ASSERT(!density_in_memory(was));
        if (was->state == UNIT_DISK || was->state == UNIT_RESTORED_DISK) {
            density_disk_leave(density, unit);
        } else if (was->state == UNIT_RESTORED_GHOST) {
            density_row_remove(density, &density->restored, unit);
        } else {
            density_row_remove(density, &density->ghosts, unit);
            density->ghost_count--;
        }
        if (known) {
            density_used(density, unit);
            unit = density_unit_move(density, unit);
        }
    }
    struct density_aged *at = &density->ages[unit];
    at->counted = 0;
    at->use_count = SL_MAX(at->use_count, 1);
    at->at = (uint32_t)density->references;
    at->weight = 1;
    at->state = UNIT_HERE;
    at->user = user;
    density->units[unit].keep_pages = 0;
    density->units[unit].keep_end_s = 0;
    density->unit_count++;
    return unit;
}

static uint32_t weight_of(const struct density_aged *at, enum reg_priority priority)
{
    return priority == REG_PRIORITY_NONE ? at->weight : (uint32_t)priority - 1u;
}

uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted)
{
    uint32_t unit = density_unit_of(density, hash);
    if (density_in_memory(&density->ages[unit])) { /* unit 0 is free */
        return 0;
    }
    density_reference(density);
    unit = density_unit_come(density, hash, unit, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, wanted->parent_hash);
    struct density_aged *at = &density->ages[unit];
    at->class_index =
        (uint8_t)sl_rates_class(at->use_count, wanted->stored_count, wanted->cut, wanted->hint);
    at->weight = weight_of(at, wanted->priority) & 3u;
    density_cell_enter(density, unit, density->rates.start);
    density_ghosts_bound(density);
    return unit;
}

uint32_t sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint)
{
    struct density_aged *at = &density->ages[unit];
    SL_ASSERT(density_in_memory(at));
    if (at->state == UNIT_RESTORED) {
        return unit; /* its use counts when it is in its row */
    }
    if (at->counted) { /* the one that it came for */
        at->counted = 0;
        return unit;
    }
    density_reference(density);
    density->kept_wanted += at->state == UNIT_KEPT ? 1.0 : 0.0;
    density_turn_remove(density, unit);
    at->state = UNIT_HERE;
    density_used(density, unit);
    unit = density_unit_move(density, unit);
    at = &density->ages[unit];
    hint = hint != REG_HINT_NONE ? hint : (enum reg_hint)(at->class_index / SL_DENSITY_KINDS);
    at->class_index = (uint8_t)sl_rates_class(at->use_count, 1, false, hint);
    at->at = (uint32_t)density->references;
    uint32_t parent = density->units[unit].parent;
    if (parent != 0) {
        parent_leave(density, unit);
        parent_join(density, unit, parent);
    }
    density_kept_used(density, unit);
    density_cell_enter(density, unit, density->rates.start);
    return unit;
}

void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority)
{
    struct density_aged *at = &density->ages[unit];
    uint32_t said = at->class_index / SL_DENSITY_KINDS;
    uint32_t says = hint != REG_HINT_NONE ? (uint32_t)hint : said;
    if ((at->state != UNIT_HERE && at->state != UNIT_KEPT) ||
        (says == said && weight_of(at, priority) == at->weight)) {
        return;
    }
    uint32_t age = density_age_of(density, at);
    density_turn_remove(density, unit);
    density_cohort_leave(density, unit);
    at->state = UNIT_HERE;
    at->class_index = (uint8_t)(at->class_index % SL_DENSITY_KINDS + says * SL_DENSITY_KINDS);
    at->weight = weight_of(at, priority) & 3u;
    density_cell_enter(density, unit, age);
}

void sl_density_sink(struct sl_density *density, uint32_t unit)
{
    struct density_aged *at = &density->ages[unit];
    if (at->state == UNIT_HERE || at->state == UNIT_KEPT) {
        density_turn_remove(density, unit);
        density->units[unit].keep_pages = 0;
        at->state = UNIT_SUNK;
        density_row_append(density, &density->sunk, unit);
    }
}

uint32_t sl_density_user(const struct sl_density *density, uint32_t unit)
{
    return density->ages[unit].user;
}

uint64_t sl_density_hash(const struct sl_density *density, uint32_t unit)
{
    return density->ages[unit].hash;
}

void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user)
{
    density->ages[unit].user = user;
}

bool sl_density_is(const struct sl_density *density, uint32_t unit, uint32_t user)
{
    return unit < density->high && density->ages[unit].user == user &&
           density_in_memory(&density->ages[unit]);
}

uint32_t sl_density_find(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density_unit_of(density, hash);
    return unit != 0 && density_in_memory(&density->ages[unit]) ? unit : 0;
}

/* ---- the whole ---- */

sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out)
{
    struct sl_density *density = calloc(1, sizeof(*density));
    if (density == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    density->set = *options;
    density->settle_at = SETTLE_REFERENCES;
    sl_rates_init(&density->rates);
    density_turns_all(density);
    sl_err err = density_grow(density);
    if (err != SL_OK) {
        sl_density_destroy(&density);
        return err;
    }
    density->vacant[0] &= ~UINT64_C(1); /* 0 is none */
    density->taken = 1;
    density->high = 1;
    density->cohort_high = 1;
    density->ages[0] = (struct density_aged){0};
    density->cohorts[0] = (struct density_cohort){0};
    density->units[0] = (struct density_unit){0};
    *out = density;
    return SL_OK;
}

void sl_density_destroy(struct sl_density **density)
{
    if (*density != NULL) {
        free((*density)->ages);
        free((*density)->cohorts);
        free((*density)->units);
        free((*density)->vacant);
        free((*density)->table);
        free(*density);
        *density = NULL;
    }
}

uint64_t sl_density_references(const struct sl_density *density)
{
    return density->references;
}

void sl_density_view(const struct sl_density *density, uint32_t unit, struct sl_density_view *out)
{
    const struct density_aged *at = &density->ages[unit];
    *out = (struct sl_density_view){.class_index = at->class_index,
                                    .age = density_age_of(density, at),
                                    .use_count = at->use_count,
                                    .age_references = density_age_references(density, at),
                                    .value = density->rates.value[density_cell_of(density, at)],
                                    .priority = (enum reg_priority)(at->weight + 1u),
                                    .kept = at->state == UNIT_KEPT,
                                    .learnt = density->learnt};
}

double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references)
{
    const struct density_aged *at = &density->ages[unit];
    return sl_rates_chance(&density->rates, at->class_index, density_age_references(density, at),
                           within_references);
}

void sl_density_stats(const struct sl_density *density, struct sl_density_stats *out)
{
    *out = (struct sl_density_stats){.unit_count = density->unit_count,
                                     .ghost_count = density->ghost_count,
                                     .disk_count = density->disk_count,
                                     .reference_count = density->references,
                                     .kept_pages = density->kept_pages,
                                     .learnt = density->learnt};
}
