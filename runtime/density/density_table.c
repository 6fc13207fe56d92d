/* runtime/density/density_table.c - the memory of units, and which unit a hash has. */
#include "runtime/density/density_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNITS_FIRST 1024u
#define UNITS_MAX   (UINT32_C(1) << 30)
/* One number in so many stays vacant, so that the next one is found in a few steps. */
#define FULL_SHARE 8u
/* Numbers are looked for among those in use and so large a share of them more. */
#define SPREAD_SHARE 2u
/* Of the numbers that come next, so far ahead is fetched from memory what is written when they do. */
#define TAKE_AHEAD 8u
/* A unit that is followed by more than so many keeps its number. */
#define MOVE_CHILDREN 4u

/* What a place of the table says of a hash: of places that are passed by no unit is looked at. */
static uint32_t hash_fold(uint64_t hash)
{
    return (uint32_t)(hash ^ (hash >> 32));
}

/* The place where it is, or would be: 0. */
static uint32_t table_place(const struct sl_density *density, uint64_t hash)
{
    uint32_t fold = hash_fold(hash);
    uint32_t at = fold & density->table_mask;
    while (density->table[at] != 0 && ((uint32_t)(density->table[at] >> 32) != fold ||
                                       density->ages[(uint32_t)density->table[at]].hash != hash)) {
        at = (at + 1) & density->table_mask;
    }
    return at;
}

uint32_t density_unit_of(const struct sl_density *density, uint64_t hash)
{
    return (uint32_t)density->table[table_place(density, hash)];
}

void density_place_fetch(const struct sl_density *density, uint64_t hash)
{
    __builtin_prefetch(&density->table[hash_fold(hash) & density->table_mask], 1);
}

void sl_density_fetch(struct sl_density *density, uint64_t hash)
{
    uint64_t *before = &density->fetched[density->fetch_count++ % DENSITY_FETCH_AHEAD];
    uint32_t fold = hash_fold(*before);
    uint64_t place = density->table[fold & density->table_mask]; /* mostly it is the first one */
    uint32_t unit = (uint32_t)(place >> 32) == fold ? (uint32_t)place : 0;
    density_place_fetch(density, hash);
    density_unit_fetch(density, unit);
    *before = hash;
}

static void table_add(struct sl_density *density, uint64_t hash, uint32_t unit)
{
    density->table[table_place(density, hash)] = (uint64_t)hash_fold(hash) << 32 | unit;
}

static void table_remove(struct sl_density *density, uint32_t unit)
{
    uint32_t mask = density->table_mask;
    uint32_t hole = hash_fold(density->ages[unit].hash) & mask;
    while ((uint32_t)density->table[hole] != unit) {
        hole = (hole + 1) & mask;
    }
    for (uint32_t at = (hole + 1) & mask; density->table[at] != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)(density->table[at] >> 32) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            density->table[hole] = density->table[at];
            hole = at;
        }
    }
    density->table[hole] = 0;
}

/* From this size on tables ask for huge pages: what is touched at random would else miss the
 * processor's table of pages nearly each time. */
#define HUGE_BYTES ((size_t)2 << 20)

static void *table_alloc(size_t bytes)
{
    if (bytes < HUGE_BYTES) {
        return malloc(bytes);
    }
    void *at = aligned_alloc(HUGE_BYTES, sl_align_up(bytes, HUGE_BYTES));
    if (at != NULL) {
        (void)madvise(at, bytes, MADV_HUGEPAGE); /* where the system allows it */
    }
    return at;
}

static bool table_grow(void **table, size_t bytes, uint32_t was, uint32_t count)
{
    void *fresh = table_alloc(bytes * count);
    if (fresh == NULL) {
        return false;
    }
    if (was > 0) {
        memcpy(fresh, *table, bytes * was);
    } else {
        memset(fresh, 0, bytes * count); /* later ones are written before they are read, too */
    }
    free(*table);
    *table = fresh;
    return true;
}

/* Twice as many units, and a table of two places a unit. */
sl_err density_grow(struct sl_density *density)
{
    uint32_t capacity = density->capacity == 0 ? UNITS_FIRST : density->capacity * 2;
    if (capacity > UNITS_MAX) {
        return SL_ERR_NO_MEMORY;
    }
    /* Should one fail, those before it are larger than they need be. */
    if (!table_grow((void **)&density->ages, sizeof(*density->ages), density->capacity, capacity) ||
        !table_grow((void **)&density->cohorts, sizeof(*density->cohorts), density->cohort_high,
                    capacity) ||
        !table_grow((void **)&density->units, sizeof(*density->units), density->capacity,
                    capacity) ||
        !table_grow((void **)&density->vacant, sizeof(*density->vacant), density->capacity / 64,
                    capacity / 64)) {
        return SL_ERR_NO_MEMORY;
    }
    uint64_t *table = table_alloc((size_t)capacity * 2 * sizeof(*table));
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(table, 0, (size_t)capacity * 2 * sizeof(*table));
    free(density->table);
    density->table = table;
    density->table_mask = capacity * 2 - 1;
    memset(&density->vacant[density->capacity / 64], 0xff,
           (capacity - density->capacity) / 64 * sizeof(*density->vacant));
    density->capacity = capacity;
    for (uint32_t unit = 1; unit < density->high; unit++) {
        if (density->ages[unit].state != UNIT_FREE) {
            table_add(density, density->ages[unit].hash, unit);
        }
    }
    return SL_OK;
}

/* ---- numbers ----
 *
 * They are given out in order, round and round, and a unit that is wanted again gets another one. So
 * units that were wanted one after the other lie side by side, as they stand in the rows: who walks
 * along a row meets memory in order, which the processor fetches ahead. */

/* The next number; 0: none is left. */
static uint32_t number_take(struct sl_density *density)
{
    uint64_t spread = density->taken + density->taken / SPREAD_SHARE;
    uint32_t words = (uint32_t)SL_MIN(spread / 64 + 1, density->capacity / 64u);
    bool within = density->hand / 64 < words;
    uint32_t at = within ? density->hand / 64 : 0;
    uint64_t ahead = ~UINT64_C(0) << (within ? density->hand % 64 : 0);
    for (uint32_t i = 0; i <= words; i++) {
        uint64_t vacant = density->vacant[at] & ahead;
        if (vacant != 0) {
            uint32_t number = at * 64 + (uint32_t)__builtin_ctzll(vacant);
            density->vacant[at] ^= UINT64_C(1) << (number % 64);
            density->hand = number + 1;
            density->high = SL_MAX(density->high, number + 1);
            density->taken++;
            density_unit_fetch(density, (number + TAKE_AHEAD) & (density->capacity - 1u));
            return number;
        }
        at = at + 1 < words ? at + 1 : 0;
        ahead = ~UINT64_C(0);
    }
    return 0;
}

static void number_give(struct sl_density *density, uint32_t number)
{
    density->ages[number].state = UNIT_FREE;
    density->vacant[number / 64] |= UINT64_C(1) << (number % 64);
    density->taken--;
}

uint32_t density_unit_new(struct sl_density *density, uint64_t hash)
{
    if (density->taken >= density->capacity / FULL_SHARE * (FULL_SHARE - 1u)) {
        (void)density_grow(density); /* without memory those that are left are taken */
    }
    uint32_t unit = number_take(density);
    if (unit == 0) {
        return 0;
    }
    density->ages[unit] = (struct density_aged){.hash = hash, .weight = 1}; /* normal */
    density->units[unit] = (struct density_unit){0};
    table_add(density, hash, unit);
    return unit;
}

void density_unit_free(struct sl_density *density, uint32_t unit)
{
    table_remove(density, unit);
    density->units[unit].child = 0;
    number_give(density, unit);
}

/* Whether those that follow it are few. */
static bool is_followed_by_few(const struct sl_density *density, uint32_t unit)
{
    const struct density_unit *units = density->units;
    uint32_t first = units[unit].child;
    uint32_t child = first;
    for (uint32_t steps = 0; child != 0 && steps < MOVE_CHILDREN; steps++) {
        child = units[child].siblings.newer;
        if (child == first) {
            return true;
        }
    }
    return child == 0;
}

/* Who names it in its chain names it by the other number. */
static void chain_renumber(struct sl_density *density, uint32_t unit, uint32_t fresh)
{
    struct density_unit *units = density->units;
    struct density_unit *at = &units[fresh];
    for (uint32_t child = at->child; child != 0 && units[child].parent == unit;
         child = units[child].siblings.newer) {
        units[child].parent = fresh;
    }
    if (at->parent == 0) {
        return;
    }
    if (at->siblings.newer == unit) {
        at->siblings = (struct pair){.older = fresh, .newer = fresh};
    } else {
        units[at->siblings.older].siblings.newer = fresh;
        units[at->siblings.newer].siblings.older = fresh;
    }
    if (units[at->parent].child == unit) {
        units[at->parent].child = fresh;
    }
}

uint32_t density_unit_move(struct sl_density *density, uint32_t unit)
{
    uint32_t fresh = is_followed_by_few(density, unit) ? number_take(density) : 0;
    if (fresh == 0) {
        return unit;
    }
    density->ages[fresh] = density->ages[unit];
    density->units[fresh] = density->units[unit];
    uint64_t *place = &density->table[table_place(density, density->ages[fresh].hash)];
    *place = (*place & ~(uint64_t)UINT32_MAX) | fresh;
    chain_renumber(density, unit, fresh);
    number_give(density, unit);
    return fresh;
}
