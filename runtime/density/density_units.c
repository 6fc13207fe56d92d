/* runtime/density/density_units.c - units and ghosts in cells, and in chains.
 *
 * A unit stands in three rows at once: with all of its cell, ghosts too, by when they were used
 * last; with those of its cell that are in memory, likewise (ghosts: with all ghosts, by when they
 * left); and among the children of its parent. Getting older moves it from the old end of one row
 * to the young end of the next, so rows stay in order. */
#include "runtime/density/density_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An age's rows are looked at so often while it lasts. */
#define AGE_LOOKS   8u
#define UNITS_FIRST 1024u
#define UNITS_MAX   (UINT32_C(1) << 30)
#define USES_MAX    255u
/* Over so many that went what they were worth is averaged. */
#define EDGE_UNITS 64.0

/* ---- rows ---- */

void density_row_append(struct sl_density *density, struct row *row, enum row_kind kind,
                        uint32_t unit)
{
    struct density_unit *units = density->units;
    units[unit].in[kind] = (struct pair){.older = row->newest};
    if (row->newest != 0) {
        units[row->newest].in[kind].newer = unit;
    } else {
        row->oldest = unit;
    }
    row->newest = unit;
}

/* at is in the row. */
static void row_insert_before(struct sl_density *density, struct row *row, enum row_kind kind,
                              uint32_t at, uint32_t unit)
{
    struct density_unit *units = density->units;
    uint32_t older = units[at].in[kind].older;
    units[unit].in[kind] = (struct pair){.older = older, .newer = at};
    units[at].in[kind].older = unit;
    if (older != 0) {
        units[older].in[kind].newer = unit;
    } else {
        row->oldest = unit;
    }
}

void density_row_remove(struct sl_density *density, struct row *row, enum row_kind kind,
                        uint32_t unit)
{
    struct density_unit *units = density->units;
    struct pair out = units[unit].in[kind];
    if (out.older != 0) {
        units[out.older].in[kind].newer = out.newer;
    } else {
        row->oldest = out.newer;
    }
    if (out.newer != 0) {
        units[out.newer].in[kind].older = out.older;
    } else {
        row->newest = out.older;
    }
    units[unit].in[kind] = (struct pair){0};
}

static void turn_mark(struct sl_density *density, uint32_t turn)
{
    uint32_t rank = density->turn_rank[turn];
    uint64_t bit = UINT64_C(1) << (rank % 64);
    if (density->by_turn[turn].oldest != 0) {
        density->filled[rank / 64] |= bit;
    } else {
        density->filled[rank / 64] &= ~bit;
    }
}

/* ---- turns: the rows of what is in memory ---- */

static struct row *turn_row(struct sl_density *density, const struct density_unit *unit)
{
    switch (unit->state) {
    case UNIT_RESTORED:
        return &density->restored;
    case UNIT_SUNK:
        return &density->sunk;
    case UNIT_KEPT:
        return &density->kept;
    default:
        return &density->by_turn[density_turn_of(unit)];
    }
}

void density_turn_remove(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    if (density->walk_next == unit) {
        density->walk_next = density_turn_after(density, unit);
    }
    density_row_remove(density, turn_row(density, at), ROW_TURN, unit);
    if (at->state == UNIT_HERE) {
        turn_mark(density, density_turn_of(at));
    } else if (at->state == UNIT_KEPT) {
        density_kept_leave(density, at);
    }
}

void density_turn_first(struct sl_density *density, uint32_t unit)
{
    uint32_t turn = density_turn_of(&density->units[unit]);
    struct row *row = &density->by_turn[turn];
    if (row->oldest != 0) {
        row_insert_before(density, row, ROW_TURN, row->oldest, unit);
    } else {
        density_row_append(density, row, ROW_TURN, unit);
    }
    turn_mark(density, turn);
}

void density_turn_enter(struct sl_density *density, uint32_t unit)
{
    uint32_t turn = density_turn_of(&density->units[unit]);
    density_row_append(density, &density->by_turn[turn], ROW_TURN, unit);
    turn_mark(density, turn);
}

/* To the young end of its cell; but before its parent where that is in the same cell, so that the
 * end of a chain is met first. */
void density_cell_enter(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    const struct density_unit *parent = &density->units[at->parent];
    uint32_t cell = density_cell_of(at);
    bool with = at->parent != 0 && density_cell_of(parent) == cell;
    if (with && (parent->state == UNIT_HERE || parent->state == UNIT_KEPT)) {
        row_insert_before(density, &density->by_age[cell], ROW_AGE, at->parent, unit);
    } else {
        density_row_append(density, &density->by_age[cell], ROW_AGE, unit);
    }
    if (at->keep_pages != 0) {
        density_kept_enter(density, unit);
        return;
    }
    uint32_t turn = density_turn_of(at);
    if (with && parent->state == UNIT_HERE && parent->weight == at->weight) {
        row_insert_before(density, &density->by_turn[turn], ROW_TURN, at->parent, unit);
    } else {
        density_row_append(density, &density->by_turn[turn], ROW_TURN, unit);
    }
    turn_mark(density, turn);
}

/* ---- time ---- */

static void unit_older(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    uint32_t cell = density_cell_of(at);
    sl_rates_outlived(&density->rates, cell);
    density_row_remove(density, &density->by_age[cell], ROW_AGE, unit);
    if (at->state == UNIT_HERE) {
        density_turn_remove(density, unit);
    }
    density->on_disk[cell] -= at->state == UNIT_DISK;
    at->age++;
    cell = density_cell_of(at);
    density->on_disk[cell] += at->state == UNIT_DISK;
    density_row_append(density, &density->by_age[cell], ROW_AGE, unit);
    if (at->state == UNIT_HERE) {
        density_turn_enter(density, unit);
    }
}

/* From the oldest age down, so that a unit moves once. */
static void all_older(struct sl_density *density)
{
    density->older_at = UINT64_MAX;
    for (uint32_t age = SL_DENSITY_AGES - 1; age-- > 0;) {
        uint64_t width = density->rates.end[age] - (age > 0 ? density->rates.end[age - 1] : 0);
        bool due = density->references >= density->older_age_at[age];
        for (uint32_t class_index = 0; due && class_index < SL_DENSITY_CLASSES; class_index++) {
            struct row *row = &density->by_age[sl_rates_cell(class_index, age)];
            while (row->oldest != 0 &&
                   density_age_references(density, &density->units[row->oldest]) >=
                       density->rates.end[age]) {
                unit_older(density, row->oldest);
            }
        }
        if (due) {
            density->older_age_at[age] = density->references + width / AGE_LOOKS;
        }
        density->older_at = SL_MIN(density->older_at, density->older_age_at[age]);
    }
}

/* The cells in their order, once for each weight, merged. Of equals the lighter goes first. */
static void turns_order(struct sl_density *density)
{
    static const double weights[SL_DENSITY_PRIORITIES] = {0.5, 1.0, 2.0};
    const struct sl_rates *rates = &density->rates;
    uint32_t at[SL_DENSITY_PRIORITIES] = {0};
    for (uint32_t place = 0; place < SL_DENSITY_TURNS; place++) {
        uint32_t best = 0;
        double least = INFINITY; /* as of one whose cells are all placed */
        for (uint32_t weight = 0; weight < SL_DENSITY_PRIORITIES; weight++) {
            double value = at[weight] < SL_DENSITY_CELLS
                               ? rates->value[rates->order[at[weight]]] * weights[weight]
                               : INFINITY;
            if (value < least) {
                best = weight;
                least = value;
            }
        }
        uint32_t turn = best * SL_DENSITY_CELLS + rates->order[at[best]++];
        density->turn_order[place] = (uint16_t)turn;
        density->turn_rank[turn] = (uint16_t)place;
    }
}

void density_settle(struct sl_density *density)
{
    sl_rates_settle(&density->rates);
    turns_order(density);
    memset(density->filled, 0, sizeof(density->filled));
    for (uint32_t turn = 0; turn < SL_DENSITY_TURNS; turn++) {
        if (density->by_turn[turn].oldest != 0) {
            turn_mark(density, turn);
        }
    }
}

void density_reference(struct sl_density *density)
{
    density->references++;
    density->walk_base = 0; /* a walk that was begun ends */
    density->walk_next = 0;
    density_kept_look(density);
    if (density->references >= density->older_at) {
        all_older(density);
    }
    if (density->references >= density->halve_at) {
        density->halve_at = density->references + HALVE_REFERENCES;
        sl_rates_halve(&density->rates);
        density->kept_exposure /= 2.0;
        density->kept_wanted /= 2.0;
    }
    if (density->references >= density->settle_at) {
        density->settle_at = density->references + SETTLE_REFERENCES;
        density_settle(density);
        density->learnt = true;
    }
}

/* ---- the table ---- */

uint32_t *density_table_place(const struct sl_density *density, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash ^ (hash >> 32)) & density->table_mask;
    while (density->table[at] != 0 && density->units[density->table[at]].hash != hash) {
        at = (at + 1) & density->table_mask;
    }
    return &density->table[at];
}

static void table_remove(struct sl_density *density, uint64_t hash)
{
    uint32_t mask = density->table_mask;
    uint32_t hole = (uint32_t)(density_table_place(density, hash) - density->table);
    for (uint32_t at = (hole + 1) & mask; density->table[at] != 0; at = (at + 1) & mask) {
        uint64_t other = density->units[density->table[at]].hash;
        uint32_t home = (uint32_t)(other ^ (other >> 32)) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            density->table[hole] = density->table[at];
            hole = at;
        }
    }
    density->table[hole] = 0;
}

/* Twice as many units, and a table of four places a unit. */
static sl_err grow(struct sl_density *density)
{
    uint32_t capacity = density->capacity == 0 ? UNITS_FIRST : density->capacity * 2;
    if (capacity > UNITS_MAX) {
        return SL_ERR_NO_MEMORY;
    }
    struct density_unit *units = realloc(density->units, capacity * sizeof(*units));
    if (units == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    density->units = units;
    uint32_t *table = calloc((size_t)capacity * 2, sizeof(*table));
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    free(density->table);
    density->table = table;
    density->table_mask = capacity * 2 - 1;
    density->capacity = capacity;
    for (uint32_t unit = 1; unit < density->high; unit++) {
        if (units[unit].state != UNIT_FREE) {
            *density_table_place(density, units[unit].hash) = unit;
        }
    }
    return SL_OK;
}

uint32_t density_unit_new(struct sl_density *density, uint64_t hash)
{
    uint32_t unit = density->free;
    if (unit == 0 && density->high >= density->capacity && grow(density) != SL_OK) {
        return 0;
    }
    if (unit != 0) {
        density->free = density->units[unit].in[ROW_TURN].newer;
    } else {
        unit = density->high++;
    }
    density->units[unit] = (struct density_unit){.hash = hash};
    *density_table_place(density, hash) = unit;
    return unit;
}

static void unit_free(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    table_remove(density, at->hash);
    *at = (struct density_unit){.in[ROW_TURN].newer = density->free};
    density->free = unit;
}

/* ---- chains ---- */

static void parent_leave(struct sl_density *density, uint32_t unit)
{
    struct density_unit *units = density->units;
    struct density_unit *at = &units[unit];
    struct pair ring = at->in[ROW_SIBLINGS];
    if (at->parent == 0) {
        return;
    }
    struct density_unit *parent = &units[at->parent];
    if (ring.newer == unit) {
        parent->child = 0;
    } else {
        units[ring.older].in[ROW_SIBLINGS].newer = ring.newer;
        units[ring.newer].in[ROW_SIBLINGS].older = ring.older;
        parent->child = parent->child == unit ? ring.newer : parent->child;
    }
    at->in[ROW_SIBLINGS] = (struct pair){0};
    at->parent = 0;
}

/* In front of the others: the one that was used last. */
static void parent_join(struct sl_density *density, uint32_t unit, uint32_t parent_unit)
{
    struct density_unit *units = density->units;
    struct density_unit *parent = &units[parent_unit];
    struct pair *ring = &units[unit].in[ROW_SIBLINGS];
    if (parent_unit == 0 || parent_unit == unit) {
        return;
    }
    *ring = (struct pair){.older = unit, .newer = unit};
    if (parent->child != 0) {
        ring->newer = parent->child;
        ring->older = units[parent->child].in[ROW_SIBLINGS].older;
        units[ring->older].in[ROW_SIBLINGS].newer = unit;
        units[ring->newer].in[ROW_SIBLINGS].older = unit;
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
    density_row_remove(density, &density->ghosts, ROW_TURN, unit);
    if (units[unit].state == UNIT_GHOST) {
        density_row_remove(density, &density->by_age[density_cell_of(&units[unit])], ROW_AGE, unit);
    }
    density->ghost_count--;
    unit_free(density, unit);
}

static uint64_t ghosts_max(const struct sl_density *density)
{
    uint64_t want = density->unit_count * SL_DENSITY_GHOSTS_FACTOR;
    return SL_MIN(SL_MAX(want, density->set.ghosts_min), density->set.ghosts_max);
}

void density_ghosts_bound(struct sl_density *density)
{
    while (density->ghost_count > ghosts_max(density)) {
        ghost_drop(density, density->ghosts.oldest);
    }
}

void sl_density_leave(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    SL_ASSERT(density_in_memory(at));
    if (at->state == UNIT_HERE) {
        density->edge += (density->rates.value[density_cell_of(at)] - density->edge) / EDGE_UNITS;
    }
    density_turn_remove(density, unit);
    at->keep_pages = 0;
    parent_leave(density, unit);
    /* Before a restart is over it is in no row by age, and not known well enough for a ghost. */
    at->state = at->state == UNIT_RESTORED ? UNIT_NAMED : UNIT_GHOST;
    density_row_append(density, &density->ghosts, ROW_TURN, unit);
    density->unit_count--;
    density->ghost_count++;
    density_ghosts_bound(density);
}

/* Chains come from either end: who names a parent that is not here keeps a place for it, among the
 * ghosts. */
void density_parent_find(struct sl_density *density, uint32_t unit, uint64_t parent_hash)
{
    if (parent_hash == 0 || parent_hash == density->units[unit].hash) {
        return;
    }
    uint32_t parent = *density_table_place(density, parent_hash);
    if (parent == 0) {
        parent = density_unit_new(density, parent_hash);
        if (parent == 0) {
            return;
        }
        density->units[parent].state = UNIT_NAMED;
        density_row_append(density, &density->ghosts, ROW_TURN, parent);
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
    struct density_unit *at = &density->units[unit];
    sl_rates_wanted(&density->rates, density_cell_of(at), density_age_references(density, at));
    density_row_remove(density, &density->by_age[density_cell_of(at)], ROW_AGE, unit);
    at->use_count = (uint8_t)SL_MIN(at->use_count + 1u, USES_MAX);
}

/* A place for what comes to memory, and what its ghost knew; 0: no memory. */
uint32_t density_unit_come(struct sl_density *density, uint64_t hash, uint32_t user)
{
    uint32_t unit = *density_table_place(density, hash);
    if (unit == 0) {
        unit = density_unit_new(density, hash);
        if (unit == 0) {
            return 0;
        }
    } else {
        struct density_unit *at = &density->units[unit];
        bool known = at->state == UNIT_GHOST || at->state == UNIT_DISK;
        SL_ASSERT(!density_in_memory(at));
        if (at->state == UNIT_DISK || at->state == UNIT_RESTORED_DISK) {
            density_disk_leave(density, unit);
        } else {
            density_row_remove(density, &density->ghosts, ROW_TURN, unit);
            density->ghost_count--;
        }
        if (known) {
            density_used(density, unit);
        }
    }
    struct density_unit *at = &density->units[unit];
    at->counted = 0;
    at->use_count = SL_MAX(at->use_count, 1);
    at->user = user;
    at->at = (uint32_t)density->references;
    at->age = 0;
    at->weight = 1;
    at->keep_pages = 0;
    at->state = UNIT_HERE;
    density->unit_count++;
    return unit;
}

static uint32_t weight_of(const struct density_unit *unit, enum reg_priority priority)
{
    return priority == REG_PRIORITY_NONE ? unit->weight : (uint32_t)priority - 1u;
}

uint32_t sl_density_enter(struct sl_density *density, uint64_t hash, uint32_t user,
                          const struct reg_wanted *wanted)
{
    density_reference(density);
    uint32_t unit = density_unit_come(density, hash, user);
    if (unit == 0) {
        return 0;
    }
    density_parent_find(density, unit, wanted->parent_hash);
    struct density_unit *at = &density->units[unit];
    at->class_index =
        (uint8_t)sl_rates_class(at->use_count, wanted->stored_count, wanted->cut, wanted->hint);
    at->weight = weight_of(at, wanted->priority) & 3u;
    density_cell_enter(density, unit);
    density_ghosts_bound(density);
    return unit;
}

void sl_density_use(struct sl_density *density, uint32_t unit, enum reg_hint hint)
{
    struct density_unit *at = &density->units[unit];
    SL_ASSERT(density_in_memory(at));
    if (at->state == UNIT_RESTORED) {
        return; /* its use counts when it is in its row */
    }
    if (at->counted) { /* the one that it came for */
        at->counted = 0;
        return;
    }
    density_reference(density);
    density->kept_wanted += at->state == UNIT_KEPT ? 1.0 : 0.0;
    density_turn_remove(density, unit);
    at->state = UNIT_HERE;
    density_used(density, unit);
    hint = hint != REG_HINT_NONE ? hint : (enum reg_hint)(at->class_index / SL_DENSITY_KINDS);
    at->class_index = (uint8_t)sl_rates_class(at->use_count, 1, false, hint);
    at->age = 0;
    at->at = (uint32_t)density->references;
    uint32_t parent = at->parent;
    if (parent != 0) {
        parent_leave(density, unit);
        parent_join(density, unit, parent);
    }
    density_cell_enter(density, unit);
}

void sl_density_say(struct sl_density *density, uint32_t unit, enum reg_hint hint,
                    enum reg_priority priority)
{
    struct density_unit *at = &density->units[unit];
    uint32_t said = at->class_index / SL_DENSITY_KINDS;
    uint32_t says = hint != REG_HINT_NONE ? (uint32_t)hint : said;
    if ((at->state != UNIT_HERE && at->state != UNIT_KEPT) ||
        (says == said && weight_of(at, priority) == at->weight)) {
        return;
    }
    density_turn_remove(density, unit);
    density_row_remove(density, &density->by_age[density_cell_of(at)], ROW_AGE, unit);
    at->state = UNIT_HERE;
    at->class_index = (uint8_t)(at->class_index % SL_DENSITY_KINDS + says * SL_DENSITY_KINDS);
    at->weight = weight_of(at, priority) & 3u;
    density_cell_enter(density, unit);
}

void sl_density_sink(struct sl_density *density, uint32_t unit)
{
    struct density_unit *at = &density->units[unit];
    if (at->state == UNIT_HERE || at->state == UNIT_KEPT) {
        density_turn_remove(density, unit);
        at->keep_pages = 0;
        at->state = UNIT_SUNK;
        density_row_append(density, &density->sunk, ROW_TURN, unit);
    }
}

uint32_t sl_density_user(const struct sl_density *density, uint32_t unit)
{
    return density->units[unit].user;
}

void sl_density_set_user(struct sl_density *density, uint32_t unit, uint32_t user)
{
    density->units[unit].user = user;
}

uint32_t sl_density_find(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = *density_table_place(density, hash);
    return unit != 0 && density_in_memory(&density->units[unit]) ? unit : 0;
}

/* ---- the whole ---- */

sl_err sl_density_create(const struct sl_density_options *options, struct sl_density **out)
{
    struct sl_density *density = calloc(1, sizeof(*density));
    if (density == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    density->set = *options;
    density->high = 1; /* 0 is none */
    density->settle_at = SETTLE_REFERENCES;
    density->halve_at = HALVE_REFERENCES;
    sl_rates_init(&density->rates);
    turns_order(density);
    sl_err err = grow(density);
    if (err != SL_OK) {
        sl_density_destroy(&density);
        return err;
    }
    density->units[0] = (struct density_unit){0};
    *out = density;
    return SL_OK;
}

void sl_density_destroy(struct sl_density **density)
{
    if (*density != NULL) {
        free((*density)->units);
        free((*density)->table);
        free(*density);
        *density = NULL;
    }
}

void sl_density_view(const struct sl_density *density, uint32_t unit, struct sl_density_view *out)
{
    const struct density_unit *at = &density->units[unit];
    *out = (struct sl_density_view){.class_index = at->class_index,
                                    .age = at->age,
                                    .use_count = at->use_count,
                                    .age_references = density_age_references(density, at),
                                    .value = density->rates.value[density_cell_of(at)],
                                    .priority = (enum reg_priority)(at->weight + 1u),
                                    .kept = at->state == UNIT_KEPT};
}

double sl_density_chance(const struct sl_density *density, uint32_t unit,
                         uint64_t within_references)
{
    const struct density_unit *at = &density->units[unit];
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
